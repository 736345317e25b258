//! Auto-increment numbers for a caller that fills in the column itself, and watched waits.

use crate::database::EkDatabase;
use crate::value::{EkBytes, EkError, catch, fence};
use evenkeel::{Cause, Report, ThreadWatch, WaitWatch};

/// Moves the table's next number from `from` to `to`: 1, 0 if it differs by now, -1 on error. A
/// `to` below `from` gives back numbers that were not handed out.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_move_numbers(
    db: *const EkDatabase,
    table: EkBytes,
    from: u64,
    to: u64,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe { fence(error, -1, || Ok((*db).0.move_numbers(table.text()?, from, to)?.into())) }
}

/// The table's numbers continue above this one; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_pass_number(
    db: *const EkDatabase,
    table: EkBytes,
    number: u64,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe { fence(error, -1, || (*db).0.pass_number(table.text()?, number).map(|()| 0)) }
}

/// The table's next number; 0 if there is no such table.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_next_number(db: *const EkDatabase, table: EkBytes) -> u64 {
    // SAFETY: by contract of the caller.
    unsafe { fence(std::ptr::null_mut(), 0, || (*db).0.next_number(table.text()?)) }
}

/// The table's numbers continue at this one, which may be lower than before; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_restart_numbers(
    db: *const EkDatabase,
    table: EkBytes,
    next: u64,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe { fence(error, -1, || (*db).0.restart_numbers(table.text()?, next).map(|()| 0)) }
}

/// Waits are not reported.
pub const EK_REPORT_NOTHING: u8 = 0;
/// A report names the holders and the nearest earlier request.
pub const EK_REPORT_NEAREST: u8 = 1;
/// A report names all transactions before the waiting one.
pub const EK_REPORT_ALL: u8 = 2;

/// How the waits of the transaction with this tag are to be reported (`EK_REPORT_*`).
pub type EkWaitAsks = unsafe extern "C" fn(u64) -> u8;
/// Called before a wait of the transaction with the first tag for those with the others.
pub type EkWaitBegins = unsafe extern "C" fn(u64, *const u64, usize);

struct Watch(EkWaitAsks, EkWaitBegins);

impl WaitWatch for Watch {
    fn asks(&self, waiter: u64) -> Report {
        // SAFETY: by contract of who gave the function.
        match unsafe { (self.0)(waiter) } {
            EK_REPORT_NOTHING => Report::Nothing,
            EK_REPORT_NEAREST => Report::Nearest,
            _ => Report::All,
        }
    }

    fn begins(&self, waiter: u64, others: &[u64]) {
        // SAFETY: by contract of who gave the function.
        unsafe { (self.1)(waiter, others.as_ptr(), others.len()) }
    }
}

/// Calls `begins` before every wait of a transaction for others (`ek_set_tag`), in the waiting
/// thread, unless `asks` returns `EK_REPORT_NOTHING` for it. Once per database.
///
/// # Safety
/// The functions may be called as long as the database is open, by any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_watch_waits(
    db: *const EkDatabase,
    asks: EkWaitAsks,
    begins: EkWaitBegins,
) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe { (*db).0.watch_waits(Box::new(Watch(asks, begins))) });
}

/// A thread waits for the log to be durable.
pub const EK_WAIT_LOG: u8 = 0;
/// It waits for a device, or for background work that gives it memory or space.
pub const EK_WAIT_DEVICE: u8 = 1;
/// It waits for other transactions.
pub const EK_WAIT_OTHERS: u8 = 2;

/// Called before a wait of this thread, with its kind (`EK_WAIT_*`).
pub type EkThreadWaits = unsafe extern "C" fn(u8);
/// Called after that wait.
pub type EkThreadGoesOn = unsafe extern "C" fn();

struct Threads {
    waits: EkThreadWaits,
    goes_on: EkThreadGoesOn,
}

impl ThreadWatch for Threads {
    fn begins(&self, cause: Cause) {
        let kind = match cause {
            Cause::LogSync => EK_WAIT_LOG,
            Cause::RowLock | Cause::Schema => EK_WAIT_OTHERS,
            _ => EK_WAIT_DEVICE,
        };
        // SAFETY: by contract of who gave the function.
        unsafe { (self.waits)(kind) }
    }

    fn ends(&self) {
        // SAFETY: by contract of who gave the function.
        unsafe { (self.goes_on)() }
    }
}

/// Calls these functions around every wait of a thread in a call of this interface, except page
/// latches. They must not call this interface. Once per database.
///
/// # Safety
/// The functions may be called as long as the database is open, by any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_watch_threads(
    db: *const EkDatabase,
    waits: EkThreadWaits,
    goes_on: EkThreadGoesOn,
) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe { (*db).0.watch_threads(Box::new(Threads { waits, goes_on })) });
}
