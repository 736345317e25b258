//! Numbers of auto-increment columns that the caller fills in, and waits that he watches.

use crate::database::EkDatabase;
use crate::value::{EkBytes, EkError, catch, fence};
use evenkeel::WaitWatch;

/// Moves the table's next number from `from` to `to`: 1, 0 if it is another by now, -1 on error.
/// One below `from` gives back numbers that nobody was handed.
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

/// Numbers of the table go on above this one; 0, or -1 on error.
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

/// The number that the table would hand out next; 0 if there is no such table.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_next_number(db: *const EkDatabase, table: EkBytes) -> u64 {
    // SAFETY: by contract of the caller.
    unsafe { fence(std::ptr::null_mut(), 0, || (*db).0.next_number(table.text()?)) }
}

/// Numbers of the table go on at this one, which may be lower than before; 0, or -1 on error.
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

/// Called before a wait of the transaction of the first tag for those of the others.
pub type EkWaitBegins = unsafe extern "C" fn(u64, *const u64, usize);
/// Called after it.
pub type EkWaitEnds = unsafe extern "C" fn(u64);

struct Watch {
    begins: EkWaitBegins,
    ends: EkWaitEnds,
}

impl WaitWatch for Watch {
    fn begins(&self, waiter: u64, others: &[u64]) {
        // SAFETY: by contract of who gave the function.
        unsafe { (self.begins)(waiter, others.as_ptr(), others.len()) }
    }

    fn ends(&self, waiter: u64) {
        // SAFETY: by contract of who gave the function.
        unsafe { (self.ends)(waiter) }
    }
}

/// Calls these functions around every wait of a transaction for others (`ek_set_tag`), in the
/// thread that waits. Once per database.
///
/// # Safety
/// The functions may be called as long as the database is open, by any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_watch_waits(
    db: *const EkDatabase,
    begins: EkWaitBegins,
    ends: EkWaitEnds,
) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe { (*db).0.watch_waits(Box::new(Watch { begins, ends })) });
}
