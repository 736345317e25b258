//! Transactions, rows and scans.

use crate::database::{EkDatabase, durability, milliseconds};
use crate::row::EkRow;
use crate::table::EkTable;
use crate::value::{EkBytes, EkError, EkValue, catch, fence, say_taken, slice, values};
use evenkeel::{
    Access, Canceller, Code, Direction, Error, Given, Insertion, Isolation, LockWait, Locking,
    Mode, Range, Result, Row, Scan, Txn, ValueRef,
};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::ops::Bound;

/// A transaction; empty once it has ended.
pub struct EkTxn(Option<Txn>);

impl EkTxn {
    pub(crate) fn get(&mut self) -> Result<&mut Txn> {
        self.0.as_mut().ok_or_else(|| Error::new(Code::TransactionEnded))
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.0.as_ref().is_none_or(Txn::is_ended)
    }
}

/// READ UNCOMMITTED.
pub const EK_READ_UNCOMMITTED: u8 = 0;
/// READ COMMITTED.
pub const EK_READ_COMMITTED: u8 = 1;
/// REPEATABLE READ.
pub const EK_REPEATABLE_READ: u8 = 2;
/// SERIALIZABLE.
pub const EK_SERIALIZABLE: u8 = 3;

/// Begins a transaction; null on error. Free it with `ek_commit`, `ek_rollback` or `ek_prepare`.
/// Its reads lock only if the caller says so, also at SERIALIZABLE.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_begin(
    db: *const EkDatabase,
    isolation: u8,
    lock_wait_ms: u64,
    error: *mut EkError,
) -> *mut EkTxn {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, std::ptr::null_mut(), || {
            let isolation = match isolation {
                EK_READ_UNCOMMITTED => Isolation::ReadUncommitted,
                EK_READ_COMMITTED => Isolation::ReadCommitted,
                EK_SERIALIZABLE => Isolation::Serializable,
                _ => Isolation::RepeatableRead,
            };
            let mut txn = (*db).0.begin(isolation, Access::ReadWrite)?;
            txn.set_lock_wait(milliseconds(lock_wait_ms));
            txn.set_reads_plain();
            Ok(Box::into_raw(Box::new(EkTxn(Some(txn)))))
        })
    }
}

/// 0: changing or locking a row newer than the snapshot is no conflict, and the newest committed
/// version is changed or locked. Other values, and the initial state: it is a conflict.
///
/// # Safety
/// `txn` is a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_set_snapshot_isolation(txn: *mut EkTxn, on: u8) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe {
        if let Some(txn) = (*txn).0.as_mut() {
            txn.set_snapshot_isolation(on != 0);
        }
    });
}

/// Takes the snapshot now; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_take_snapshot(txn: *mut EkTxn, error: *mut EkError) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe { fence(error, -1, || (*txn).get()?.take_snapshot().map(|_| 0)) }
}

/// Sets how long it waits for locks from now on.
///
/// # Safety
/// `txn` is a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_set_lock_wait(txn: *mut EkTxn, ms: u64) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe {
        if let Some(txn) = (*txn).0.as_mut() {
            txn.set_lock_wait(milliseconds(ms));
        }
    });
}

/// Cancels waits of a transaction from another thread; of one transaction after the other, as a
/// connection has them.
pub struct EkCanceller(Mutex<Option<Canceller>>);

/// Makes a canceller without a transaction; free it with `ek_canceller_free`.
#[unsafe(no_mangle)]
pub extern "C" fn ek_canceller_new() -> *mut EkCanceller {
    catch(std::ptr::null_mut(), || Box::into_raw(Box::new(EkCanceller(Mutex::default()))))
}

/// Sets its transaction, or none if null.
///
/// # Safety
/// `canceller` was not freed, `txn` is a transaction or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_canceller_of(canceller: *const EkCanceller, txn: *const EkTxn) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe {
        let of = txn.as_ref().and_then(|txn| txn.0.as_ref()).map(Txn::canceller);
        *(*canceller).0.lock() = of;
    });
}

/// Cancels the waits of the transaction; from any thread.
///
/// # Safety
/// `canceller` was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_cancel(canceller: *const EkCanceller) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe { (*canceller).0.lock().iter().for_each(Canceller::cancel) });
}

/// Frees a canceller.
///
/// # Safety
/// `canceller` is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_canceller_free(canceller: *mut EkCanceller) {
    // SAFETY: by contract of the caller.
    catch((), || drop(unsafe { Box::from_raw(canceller) }));
}

/// Commits in order, without waiting, and frees the handle. `commit` gets the timestamp (0 if
/// nothing changed); 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call; `txn` is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_commit(txn: *mut EkTxn, commit: *mut u64, error: *mut EkError) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        let txn = Box::from_raw(txn);
        fence(error, -1, || {
            let txn = txn.0.ok_or_else(|| Error::new(Code::TransactionEnded))?;
            *commit = txn.commit_ordered()?.0;
            Ok(0)
        })
    }
}

/// Rolls back and frees the handle; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call; `txn` is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_rollback(txn: *mut EkTxn, error: *mut EkError) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        let txn = Box::from_raw(txn);
        fence(error, -1, || match txn.0 {
            Some(txn) => match txn.rollback() {
                // A deadlock rolled it back already.
                Err(e) if e.code() == Code::TransactionEnded => Ok(0),
                done => done.map(|()| 0),
            },
            None => Ok(0),
        })
    }
}

/// Prepares under an id, as durably as `durability_mode` says, and frees the handle: 1, 0 if it
/// changed nothing and so has ended, -1 on error.
///
/// # Safety
/// All pointers are valid during the call; `txn` is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_prepare(
    txn: *mut EkTxn,
    xid: EkBytes,
    durability_mode: u8,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        let txn = Box::from_raw(txn);
        fence(error, -1, || {
            let txn = txn.0.ok_or_else(|| Error::new(Code::TransactionEnded))?;
            txn.prepare_with(xid.get(), durability(durability_mode)).map(i32::from)
        })
    }
}

/// 1 if the transaction was rolled back: by a deadlock, or because the changes of a failed
/// statement could not be undone alone or that undo was cancelled.
///
/// # Safety
/// `txn` is a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_is_ended(txn: *const EkTxn) -> i32 {
    // SAFETY: by contract of the caller.
    catch(1, || unsafe { i32::from((*txn).is_ended()) })
}

/// 1 if `ek_prepare` would prepare the transaction, or fail; 0 if it has changed nothing.
///
/// # Safety
/// `txn` is a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_has_changes(txn: *const EkTxn) -> i32 {
    // SAFETY: by contract of the caller.
    catch(1, || unsafe {
        i32::from((*txn).0.as_ref().is_none_or(|t| t.is_ended() || t.has_changes()))
    })
}

/// Begins (`begins` 1) or ends (0) a statement of several calls. It can be undone alone, its plain
/// reads share one snapshot under READ COMMITTED, and its beginning clears the cancellation of an
/// earlier statement.
///
/// # Safety
/// `txn` is a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_statement(txn: *mut EkTxn, begins: u8) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe {
        if let Some(txn) = (*txn).0.as_mut() {
            match begins {
                0 => txn.end_statement(),
                _ => txn.begin_statement(),
            }
        }
    });
}

/// Undoes the changes of the statement; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_undo_statement(txn: *mut EkTxn, error: *mut EkError) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe { fence(error, -1, || (*txn).get()?.rollback_statement().map(|()| 0)) }
}

/// Sets the transaction's tag for `ek_watch_waits`.
///
/// # Safety
/// `txn` is a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_set_tag(txn: *mut EkTxn, tag: u64) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe {
        if let Some(txn) = (*txn).0.as_mut() {
            txn.set_tag(tag);
        }
    });
}

/// Sets a savepoint, rolls back to one, or forgets one; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_savepoint(
    txn: *mut EkTxn,
    name: EkBytes,
    what: u8,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let (txn, name) = ((*txn).get()?, name.text()?);
            match what {
                0 => txn.savepoint(name),
                1 => txn.rollback_to(name),
                _ => txn.release_savepoint(name),
            }
            .map(|()| 0)
        })
    }
}

/// Leaves the tables that the transaction has used, if it has neither changed nor locked anything:
/// schema changes no longer wait for it. 1, or 0 if it keeps using them.
///
/// # Safety
/// `txn` is a transaction without an open scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_leave_tables(txn: *mut EkTxn) -> i32 {
    // SAFETY: by contract of the caller.
    catch(0, || unsafe { (*txn).0.as_mut().map_or(1, |txn| i32::from(txn.leave_tables())) })
}

/// Leaves one table, if the transaction has neither changed nor locked anything in it: schema
/// changes no longer wait for it, until it uses the table again.
///
/// # Safety
/// `txn` is a transaction without an open scan of the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_leave_table(txn: *mut EkTxn, table: EkBytes) {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), (), || (*txn).get()?.leave_table(table.text()?));
    }
}

/// Inserts a row of all columns; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_insert(
    txn: *mut EkTxn,
    table: *mut EkTable,
    row: *const EkValue,
    row_len: usize,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let row = values(row, row_len);
            match (*txn).get()?.table_of(&mut (*table).0)?.insert_or_tell(&row[..])? {
                Insertion::Done(_) => Ok(0),
                Insertion::Taken(index) => {
                    say_taken(error, index.as_deref());
                    Ok(-1)
                }
            }
        })
    }
}

/// The present clustered key bytes of the row inserted or updated last, until the next call.
///
/// # Safety
/// `txn` is a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_last_key(txn: *mut EkTxn) -> EkBytes {
    // SAFETY: by contract of the caller.
    catch(EkBytes::NONE, || unsafe {
        (*txn).0.as_mut().map_or(EkBytes::NONE, |txn| EkBytes::of(txn.last_key()))
    })
}

/// Changes columns of the row with these clustered key bytes: 1, 0 if there is none, -1 on error.
/// `read` is null, or the row buffer read last: if that holds the row, locked, it is not read
/// again.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_update(
    txn: *mut EkTxn,
    table: *mut EkTable,
    key: EkBytes,
    read: *const EkRow,
    columns: *const u16,
    new: *const EkValue,
    len: usize,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let columns = slice(columns, len).iter().map(|c| usize::from(*c));
            let changes: SmallVec<[(usize, ValueRef<'_>); 8]> =
                columns.zip(values(new, len)).collect();
            let table = (*txn).get()?.table_of(&mut (*table).0)?;
            let done = match of_key(read, key.get()) {
                Some(row) => table.update_read(row, &changes[..]),
                None => table.update_by_key(key.get(), &changes[..]),
            };
            done.map(i32::from)
        })
    }
}

/// The row buffer, if it holds a row with this key.
///
/// # Safety
/// The pointer is null or valid.
unsafe fn of_key<'a>(row: *const EkRow, key: &[u8]) -> Option<&'a Row> {
    // SAFETY: by contract of the caller.
    unsafe { row.as_ref() }.map(|row| &row.0).filter(|row| !row.is_empty() && row.key() == key)
}

/// Deletes the row with these clustered key bytes: 1, 0 if there is none, -1 on error. `read` as
/// for `ek_update`.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_delete(
    txn: *mut EkTxn,
    table: *mut EkTable,
    key: EkBytes,
    read: *const EkRow,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let table = (*txn).get()?.table_of(&mut (*table).0)?;
            let done = match of_key(read, key.get()) {
                Some(row) => table.delete_read(row),
                None => table.delete_by_key(key.get()),
            };
            done.map(i32::from)
        })
    }
}

/// Rows are read at the snapshot.
pub const EK_LOCK_NONE: u8 = 0;
/// Rows are locked against changes.
pub const EK_LOCK_SHARED: u8 = 1;
/// Rows are locked for a change.
pub const EK_LOCK_EXCLUSIVE: u8 = 2;
/// Added to a lock: rows that other transactions hold are skipped.
pub const EK_LOCK_SKIP: u8 = 4;

fn wait(lock: u8) -> LockWait {
    if lock & EK_LOCK_SKIP != 0 { LockWait::Skip } else { LockWait::Wait }
}

/// Reads the row with these clustered key bytes: 1, 0 if there is none, -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_get(
    txn: *mut EkTxn,
    table: *mut EkTable,
    key: EkBytes,
    lock: u8,
    row: *mut EkRow,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let table = (*txn).get()?.table_of(&mut (*table).0)?;
            let row = &mut (*row).0;
            match lock & !EK_LOCK_SKIP {
                EK_LOCK_SHARED => table.share_by_key(key.get(), wait(lock), row),
                EK_LOCK_EXCLUSIVE => table.lock_by_key(key.get(), wait(lock), row),
                _ => table.get_by_key(key.get(), row),
            }
            .map(i32::from)
        })
    }
}

/// Reads the row with this primary key, on which the table is clustered, as a plain read: 1, 0 if
/// there is none, -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_get_at(
    txn: *mut EkTxn,
    table: *mut EkTable,
    key: *const EkValue,
    len: usize,
    row: *mut EkRow,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let table = (*txn).get()?.table_of(&mut (*table).0)?;
            table.get_into(&values(key, len)[..], &mut (*row).0).map(i32::from)
        })
    }
}

/// There is no bound.
pub const EK_UNBOUNDED: u8 = 0;
/// The bound contains every key that starts with its values.
pub const EK_INCLUDED: u8 = 1;
/// The bound excludes every key that starts with its values.
pub const EK_EXCLUDED: u8 = 2;

/// A bound of a range: values of the first parts of a key.
#[repr(C)]
pub struct EkBound {
    /// `EK_UNBOUNDED`, `EK_INCLUDED` or `EK_EXCLUDED`.
    pub kind: u8,
    /// The values.
    pub values: *const EkValue,
    /// Their number.
    pub len: usize,
}

/// A bound of the kind of this one, with its values.
fn bound<'v>(bound: &EkBound, values: &'v [ValueRef<'v>]) -> Bound<&'v [ValueRef<'v>]> {
    match bound.kind {
        EK_INCLUDED => Bound::Included(values),
        EK_EXCLUDED => Bound::Excluded(values),
        _ => Bound::Unbounded,
    }
}

pub(crate) enum Rows {
    Table(Scan),
    Index(Scan),
    Locked(Scan),
}

/// A scan.
pub struct EkScan {
    pub(crate) rows: Rows,
    peek: bool,
    /// Of rows that are not read where they lie.
    pub(crate) row: Row,
}

/// # Safety
/// What names and bounds point to is there during the call.
unsafe fn begin_scan(
    txn: &mut Txn,
    (table, index): (*mut EkTable, EkBytes),
    (lower, upper): (&EkBound, &EkBound),
    flags: u8,
    locking: Option<Locking>,
) -> Result<*mut EkScan> {
    // SAFETY: by contract of the caller.
    let (from, to, table, index) = unsafe {
        (
            values(lower.values, lower.len),
            values(upper.values, upper.len),
            &mut (*table).0,
            index.text()?,
        )
    };
    let range = Range { lower: bound(lower, &from), upper: bound(upper, &to) };
    let backward = flags & EK_SCAN_BACKWARD != 0;
    let direction = if backward { Direction::Backward } else { Direction::Forward };
    let table = txn.table_of(table)?.by_clustered_key();
    let rows = match (index.is_empty(), locking) {
        (true, None) => Rows::Table(table.scan(range, direction)?),
        (true, Some(locking)) => Rows::Locked(table.locked_scan(range, direction, locking)?),
        (false, None) if flags & EK_SCAN_KEYS_ONLY != 0 => {
            Rows::Index(table.index(index)?.keys_only().scan(range, direction)?)
        }
        (false, None) => Rows::Index(table.index(index)?.scan(range, direction)?),
        (false, Some(locking)) => {
            Rows::Locked(table.index(index)?.locked_scan(range, direction, locking)?)
        }
    };
    let peek = locking.is_some() && flags & EK_SCAN_PEEK != 0;
    Ok(Box::into_raw(Box::new(EkScan { rows, peek, row: Row::new() })))
}

/// Only columns of the index and the primary key are wanted.
pub const EK_SCAN_KEYS_ONLY: u8 = 1;
/// From the upper bound down.
pub const EK_SCAN_BACKWARD: u8 = 2;

/// Begins a scan of the primary key (`index` empty) or of an index; null on error. Free it with
/// `ek_scan_free`.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_scan(
    txn: *mut EkTxn,
    table: *mut EkTable,
    index: EkBytes,
    lower: *const EkBound,
    upper: *const EkBound,
    flags: u8,
    error: *mut EkError,
) -> *mut EkScan {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, std::ptr::null_mut(), || {
            begin_scan((*txn).get()?, (table, index), (&*lower, &*upper), flags, None)
        })
    }
}

/// Returns rows that other transactions hold as they were committed last, without a lock: see
/// `ek_scan_next`.
pub const EK_SCAN_PEEK: u8 = 4;

/// Begins a scan that locks the newest versions of rows (`lock`: `EK_LOCK_SHARED` or
/// `EK_LOCK_EXCLUSIVE`, with `EK_LOCK_SKIP` or not); null on error. Free it with `ek_scan_free`,
/// before its transaction.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_scan_locked(
    txn: *mut EkTxn,
    table: *mut EkTable,
    index: EkBytes,
    lower: *const EkBound,
    upper: *const EkBound,
    flags: u8,
    lock: u8,
    error: *mut EkError,
) -> *mut EkScan {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, std::ptr::null_mut(), || {
            let shared = lock & !EK_LOCK_SKIP == EK_LOCK_SHARED;
            let mode = if shared { Mode::Shared } else { Mode::Exclusive };
            let locking = Some(Locking { mode, wait: wait(lock) });
            begin_scan((*txn).get()?, (table, index), (&*lower, &*upper), flags, locking)
        })
    }
}

/// Locks the keys of an index, or of the clustered key, that begin with `key`, exclusively at every
/// isolation level; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_lock_range(
    txn: *mut EkTxn,
    table: *mut EkTable,
    index: EkBytes,
    key: *const EkBound,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let of = values((*key).values, (*key).len);
            let range = Range { lower: bound(&*key, &of), upper: bound(&*key, &of) };
            let table = (*txn).get()?.table_of(&mut (*table).0)?.by_clustered_key();
            match index.text()? {
                "" => table.lock_range(range)?,
                index => table.index(index)?.lock_range(range)?,
            }
            Ok(0)
        })
    }
}

/// Releases the lock of the row that a locking scan last returned, if the scan took it: the row is
/// not wanted, or was changed.
///
/// # Safety
/// `scan` is a scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_scan_unlock(scan: *mut EkScan) {
    // SAFETY: by contract of the caller.
    catch((), || {
        if let Rows::Locked(scan) = unsafe { &mut (*scan).rows } {
            scan.unlock();
        }
    });
}

/// Reads the next row: 1, 0 at the end, -1 on error. 2: the last committed version of a row that
/// another transaction holds; the next call locks that row, unless `ek_scan_unlock` came before.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_scan_next(
    scan: *mut EkScan,
    row: *mut EkRow,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let row = &mut (*row).0;
            let peek = (*scan).peek;
            match &mut (*scan).rows {
                Rows::Table(scan) => scan.next(row).map(i32::from),
                Rows::Index(scan) => scan.next(row).map(i32::from),
                Rows::Locked(scan) if peek => Ok(match scan.next_or_peek(row)? {
                    Given::End => 0,
                    Given::Locked => 1,
                    Given::Peeked => 2,
                }),
                Rows::Locked(scan) => scan.next(row).map(i32::from),
            }
        })
    }
}

/// Continues behind the row with these clustered key bytes, in a scan of the primary key; 0, or -1
/// on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_scan_resume(
    scan: *mut EkScan,
    key: EkBytes,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            match &mut (*scan).rows {
                Rows::Table(scan) | Rows::Locked(scan) => scan.resume_after(key.get())?,
                Rows::Index(_) => return Err(Error::internal("an index scan is not resumed")),
            }
            Ok(0)
        })
    }
}

/// Reads the whole row of an entry that a scan of keys has returned, as the scan sees it: 1, 0 if
/// it has moved on, -1 on error.
///
/// # Safety
/// All pointers are valid during the call; the rows are two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_scan_fetch(
    scan: *const EkScan,
    entry: *const EkRow,
    row: *mut EkRow,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || match &(*scan).rows {
            Rows::Index(scan) => scan.fetch(&(*entry).0, &mut (*row).0).map(i32::from),
            _ => Err(Error::internal("these rows are whole")),
        })
    }
}

/// Frees a scan.
///
/// # Safety
/// `scan` is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_scan_free(scan: *mut EkScan) {
    // SAFETY: by contract of the caller.
    catch((), || drop(unsafe { Box::from_raw(scan) }));
}

/// The approximate number of rows in a range of the primary key (`index` empty) or of an index; -1
/// on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_estimate(
    txn: *mut EkTxn,
    table: *mut EkTable,
    index: EkBytes,
    lower: *const EkBound,
    upper: *const EkBound,
    error: *mut EkError,
) -> i64 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let (from, to) =
                (values((*lower).values, (*lower).len), values((*upper).values, (*upper).len));
            let range = Range { lower: bound(&*lower, &from), upper: bound(&*upper, &to) };
            let name = index.text()?;
            let table = (*txn).get()?.table_of(&mut (*table).0)?.by_clustered_key();
            let rows = match name.is_empty() {
                true => table.count_estimate(range)?,
                false => table.index(name)?.count_estimate(range)?,
            };
            Ok(i64::try_from(rows).unwrap_or(i64::MAX))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the fence the process would abort.
    #[test]
    fn a_panic_ends_at_a_function_without_an_error() {
        assert_eq!(catch(7, || panic!("planted")), 7);
    }
}
