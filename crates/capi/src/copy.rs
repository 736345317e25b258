//! Rows copied into a new table by a copying ALTER TABLE.

use crate::alter::EkBuild;
use crate::database::EkDatabase;
use crate::value::{EkBytes, EkError, EkValue, catch, fence, values};
use evenkeel::TableCopy;
use std::ffi::c_void;

/// A copy under way.
pub struct EkCopy(TableCopy);

/// Begins to copy rows into an empty table that nobody else uses; null on error. Free it with
/// `ek_copy_free`. If `leaves_out` is not 0 duplicates are found as rows arrive, otherwise at the
/// end. `build`, which is freed after the copy, shows the progress of the end and cancels the whole
/// copy.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_copy_begin(
    db: *const EkDatabase,
    table: EkBytes,
    leaves_out: u8,
    build: *const EkBuild,
    error: *mut EkError,
) -> *mut EkCopy {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, std::ptr::null_mut(), || {
            let progress = (*build).progress();
            let copy = (*db).0.copy_into(table.text()?, leaves_out != 0, progress)?;
            Ok(Box::into_raw(Box::new(EkCopy(copy))))
        })
    }
}

/// Adds a row of all columns; 0, or -1 on error. A row with the key of another one is left out, and
/// the copy may continue.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_copy_row(
    copy: *mut EkCopy,
    row: *const EkValue,
    row_len: usize,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe { fence(error, -1, || (*copy).0.push(&values(row, row_len)).map(|()| 0)) }
}

/// The number of rows that were added.
///
/// # Safety
/// `copy` is a copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_copy_rows(copy: *const EkCopy) -> u64 {
    // SAFETY: by contract of the caller.
    catch(0, || unsafe { (*copy).0.rows() })
}

/// Calls `each` with the name of each index that is built at the end.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_copy_late_indexes(
    copy: *const EkCopy,
    context: *mut c_void,
    each: unsafe extern "C" fn(*mut c_void, EkBytes),
) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe {
        (*copy).0.late_indexes().for_each(|name| each(context, EkBytes::of(name.as_bytes())));
    });
}

/// Completes the copy: rows and indexes exist and are durable when this returns. 0, or -1 on error;
/// then the table can only be used to read the row that `ek_build_duplicate` names, and has to be
/// dropped.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_copy_finish(copy: *mut EkCopy, error: *mut EkError) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe { fence(error, -1, || (*copy).0.finish().map(|()| 0)) }
}

/// Frees a copy; the rows that an unfinished one has loaded are removed.
///
/// # Safety
/// `copy` is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_copy_free(copy: *mut EkCopy) {
    // SAFETY: by contract of the caller.
    catch((), || drop(unsafe { Box::from_raw(copy) }));
}
