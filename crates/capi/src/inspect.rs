//! Figures of an open database: settings, tables and indexes, transactions, locks, checks.

use crate::database::EkDatabase;
use crate::table::EkTable;
use crate::value::{EkBytes, EkError, catch, fence};
use evenkeel::{CheckProgress, Phase};
use std::ffi::c_void;

/// Changes a setting of the open database (`docs/reference/settings.md`); 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_set(
    db: *const EkDatabase,
    name: EkBytes,
    value: u64,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe { fence(error, -1, || (*db).0.set(name.text()?, value).map(|()| 0)) }
}

/// One figure: its name, unit and value.
pub type EkEachFigure = unsafe extern "C" fn(*mut c_void, EkBytes, EkBytes, u64);

/// Calls `each` with every counter and gauge, always the same ones in the same order.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_figures(
    db: *const EkDatabase,
    context: *mut c_void,
    each: EkEachFigure,
) {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), (), || {
            let db = &(*db).0;
            let stats = db.stats();
            let text = |s: &str| EkBytes::of(s.as_bytes());
            for (name, unit, value) in &stats.metrics {
                each(context, text(name), text(unit), *value);
            }
            for (cause, figures) in &stats.stalls {
                for (what, unit, value) in [
                    ("count", "count", figures.count),
                    ("us", "microseconds", figures.us),
                    ("max_us", "microseconds", figures.max_us),
                ] {
                    each(context, text(&format!("wait_{cause}_{what}")), text(unit), value);
                }
            }
            let info = db.info();
            for (name, unit, value) in [
                ("log_age_bytes", "bytes", stats.log_age_bytes),
                ("log_end", "bytes", info.log_end_lsn),
                ("log_checkpoint", "bytes", info.checkpoint_lsn),
                ("page_size", "bytes", u64::from(info.page_size)),
                ("memory_size", "bytes", db.setting("memory_size")?),
                ("log_size", "bytes", db.setting("log_size")?),
            ] {
                each(context, text(name), text(unit), value);
            }
            Ok(())
        });
    }
}

/// Waits of one cause: its name, their number, those over 1 ms, total microseconds, the longest.
pub type EkEachWait = unsafe extern "C" fn(*mut c_void, EkBytes, u64, u64, u64, u64);

/// Calls `each` with the waits of every cause.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_waits(db: *const EkDatabase, context: *mut c_void, each: EkEachWait) {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), (), || {
            for (cause, f) in (*db).0.stats().stalls {
                each(context, EkBytes::of(cause.as_bytes()), f.count, f.over_1ms, f.us, f.max_us);
            }
            Ok(())
        });
    }
}

/// Pages that a thread has used.
#[repr(C)]
#[derive(Default)]
pub struct EkCosts {
    /// Pages latched, for reading or writing.
    pub visits: u64,
    /// Pages read from storage by the thread itself.
    pub reads: u64,
    /// How long these reads took.
    pub read_ns: u64,
}

/// The costs of the calling thread since it began, in any database.
///
/// # Safety
/// `to` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_costs_of_thread(to: *mut EkCosts) {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), (), || {
            let evenkeel::Costs { visits, reads, read_ns } = evenkeel::costs();
            *to = EkCosts { visits, reads, read_ns };
            Ok(())
        });
    }
}

/// Figures of a table.
#[repr(C)]
#[derive(Default)]
pub struct EkTableInfo {
    /// Its number in the catalog, never reused.
    pub id: u32,
    /// Clustered on a hidden id.
    pub hidden_key: u32,
    /// Rows, estimated.
    pub rows_estimate: u64,
    /// Columns.
    pub columns: u64,
    /// Row formats that its rows may have.
    pub row_formats: u64,
    /// A number that differs after each change of columns or indexes.
    pub definition: u64,
    /// The mark of the last marked change (`ek_alter_tables`), 0 for none.
    pub mark: u64,
    /// Indexes.
    pub indexes: u64,
    /// Bytes of the runs of its indexes.
    pub index_bytes: u64,
    /// Bytes of the pages that belong to its rows.
    pub row_bytes: u64,
}

/// Figures of a table; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_table_figures(
    db: *const EkDatabase,
    table: EkBytes,
    to: *mut EkTableInfo,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let info = (*db).0.table_info(table.text()?)?;
            *to = EkTableInfo {
                id: info.id,
                hidden_key: u32::from(info.hidden_key),
                rows_estimate: info.rows_estimate,
                columns: info.columns,
                row_formats: info.row_formats,
                definition: info.definition,
                mark: info.mark,
                indexes: info.indexes.len() as u64,
                index_bytes: info.indexes.iter().map(|(index, _)| index.run_bytes).sum(),
                row_bytes: info.row_bytes,
            };
            Ok(0)
        })
    }
}

/// The approximate number of rows of a table, cheap enough for every statement; -1 on error.
/// `bytes`, unless null, gets the bytes of the pages that hold them.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_rows(
    db: *const EkDatabase,
    table: *mut EkTable,
    bytes: *mut u64,
    error: *mut EkError,
) -> i64 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let size = (*db).0.size_estimate_of(&mut (*table).0)?;
            if let Some(to) = bytes.as_mut() {
                *to = size.bytes;
            }
            Ok(i64::try_from(size.rows).unwrap_or(i64::MAX))
        })
    }
}

/// A text, which the function has to copy.
pub type EkEachText = unsafe extern "C" fn(*mut c_void, EkBytes);

/// Calls `each` with the name of every table.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_tables(db: *const EkDatabase, context: *mut c_void, each: EkEachText) {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), (), || {
            (*db).0.tables().iter().for_each(|name| each(context, EkBytes::of(name.as_bytes())));
            Ok(())
        });
    }
}

/// An index: its name, whether it is readable, its runs, their entries, their bytes.
pub type EkEachIndex = unsafe extern "C" fn(*mut c_void, EkBytes, u8, u64, u64, u64);

/// Calls `each` with every secondary index of a table; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_indexes(
    db: *const EkDatabase,
    table: EkBytes,
    context: *mut c_void,
    each: EkEachIndex,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            for (index, valid) in (*db).0.table_info(table.text()?)?.indexes {
                let name = EkBytes::of(index.name.as_bytes());
                let (runs, entries) = (index.runs, index.run_entries);
                each(context, name, u8::from(valid), runs, entries, index.run_bytes);
            }
            Ok(0)
        })
    }
}

/// A compaction under way: its table, its index, its runs, bytes done, bytes in all, and whether
/// writers need it.
pub type EkEachCompaction = unsafe extern "C" fn(*mut c_void, EkBytes, EkBytes, u64, u64, u64, u8);

/// Calls `each` with the compactions under way, except those of small indexes.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_compactions(
    db: *const EkDatabase,
    context: *mut c_void,
    each: EkEachCompaction,
) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe {
        for merge in (*db).0.merges() {
            let of = |text: &str| EkBytes::of(text.as_bytes());
            let (table, index) = (of(&merge.table), of(&merge.index));
            let required = u8::from(merge.required);
            each(context, table, index, merge.runs, merge.bytes_done, merge.bytes, required);
        }
    });
}

/// Hears the progress of a check: its stage (0 pages, 1 rows, 2 indexes) and the millionths of the
/// stage that are done; a nonzero result ends the check.
pub type EkCheckWatch = unsafe extern "C" fn(*mut c_void, i32, u32) -> i32;

/// Checks a table, calling `each` with one line per problem; returns the number of those that tell
/// of damage, which rows that refer to nothing are not, or -1 on error, also soon after `watch`
/// returns a nonzero number.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_check_table(
    db: *const EkDatabase,
    table: EkBytes,
    context: *mut c_void,
    each: EkEachText,
    cancelled: EkCheckWatch,
    error: *mut EkError,
) -> i64 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let is_cancelled = |now: CheckProgress| {
                cancelled(context, now.stage as i32, (now.share * 1e6) as u32) != 0
            };
            let report = (*db).0.check_table_until(table.text()?, &is_cancelled)?;
            for problem in &report.problems {
                each(context, EkBytes::of(problem.as_bytes()));
            }
            // Rows that refer to nothing are looked for in a sound table, and are no damage of it.
            let is_sound = report.rows_without_parent > 0;
            Ok(if is_sound { 0 } else { report.problems.len() as i64 })
        })
    }
}

/// A transaction: its id, 1 if it is prepared, row operations, its id in two-phase commit, a
/// transaction that it waits for (0: none), and its owner's tag (0: none, or it has no owner).
pub type EkEachTxn = unsafe extern "C" fn(*mut c_void, u64, u8, u64, EkBytes, u64, u64);

/// Calls `each` with every transaction that has changed or locked something.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_txns(db: *const EkDatabase, context: *mut c_void, each: EkEachTxn) {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), (), || {
            for txn in (*db).0.transactions() {
                let prepared = u8::from(txn.phase == Phase::Prepared);
                let waits_for = txn.waits_for.first().map_or(0, |id| id.0);
                let xid = EkBytes::of(&txn.xid);
                let tag = if txn.phase == Phase::Open { txn.tag } else { 0 };
                let operations = u64::from(txn.operations);
                each(context, txn.id.0, prepared, operations, xid, waits_for, tag);
            }
            Ok(())
        });
    }
}

/// A lock: transaction, table, index (empty: rows), 1 exclusive, 1 granted, 1 range, key bytes.
pub type EkEachLock = unsafe extern "C" fn(*mut c_void, u64, EkBytes, EkBytes, u8, u8, u8, EkBytes);

/// Calls `each` with locks on keys and ranges, `limit` at most.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_locks(
    db: *const EkDatabase,
    limit: usize,
    context: *mut c_void,
    each: EkEachLock,
) {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), (), || {
            for lock in (*db).0.locks(limit) {
                let (table, index) = (lock.table.as_bytes(), lock.index.as_bytes());
                let (x, granted) = (u8::from(lock.exclusive), u8::from(lock.granted));
                let (table, index) = (EkBytes::of(table), EkBytes::of(index));
                let key = EkBytes::of(&lock.key);
                each(context, lock.txn, table, index, x, granted, u8::from(lock.range), key);
            }
            Ok(())
        });
    }
}

/// 1 if writes have stopped because a write or sync failed, else 0.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_writes_stopped(db: *const EkDatabase) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe { fence(std::ptr::null_mut(), 0, || Ok(i32::from((*db).0.writes_stopped()))) }
}

/// Takes a checkpoint now; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_checkpoint(db: *const EkDatabase, error: *mut EkError) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe { fence(error, -1, || (*db).0.checkpoint().map(|()| 0)) }
}
