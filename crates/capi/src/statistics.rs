//! Statistics of keys, and the exact number of a table's rows.

use crate::database::{EkDatabase, EkSchemaWait, waiting};
use crate::transaction::EkTxn;
use crate::value::{EkBytes, EkError, fence};

/// Estimates how many rows share the values of the first parts of each key of a table, and keeps
/// the result; 0, or -1 on error. `wait`, for schema changes of the table, may be null.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_analyze(
    db: *const EkDatabase,
    table: EkBytes,
    wait: *const EkSchemaWait,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let table = table.text()?;
            waiting(wait, |how| (*db).0.analyze_table_with(table, how)).map(|()| 0)
        })
    }
}

/// Writes how many rows share the values of the first part, the first two, ... of an index (empty:
/// of the clustered key) to `rows`, `len` numbers at most. Returns how many were written: 0 if the
/// table was not analyzed since the key was made.
///
/// # Safety
/// All pointers are valid during the call; `rows` has room for `len` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_rows_per_key(
    db: *const EkDatabase,
    table: EkBytes,
    index: EkBytes,
    rows: *mut u64,
    len: usize,
) -> u32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), 0, || {
            let known = (*db).0.key_statistics(table.text()?, index.text()?)?.unwrap_or_default();
            let averages = (1..=len).map_while(|parts| known.rows_per_key(parts));
            let mut written = 0;
            for average in averages {
                *rows.add(written) = average;
                written += 1;
            }
            Ok(written as u32)
        })
    }
}

/// Counts the rows of a table that the transaction sees, as a plain read; -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_count(txn: *mut EkTxn, table: EkBytes, error: *mut EkError) -> i64 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let rows = (*txn).get()?.table(table.text()?)?.count()?;
            Ok(i64::try_from(rows).unwrap_or(i64::MAX))
        })
    }
}
