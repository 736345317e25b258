//! Row buffers, plans of the columns that are read from many rows, and long values taken out of a
//! row.

use crate::value::{EkBytes, EkError, EkValue, catch, fence, slice};
use evenkeel::{Row, RowPlan, Value};

/// A row buffer.
pub struct EkRow(pub(crate) Row);

/// Makes a row buffer; free it with `ek_row_free`.
#[unsafe(no_mangle)]
pub extern "C" fn ek_row_new() -> *mut EkRow {
    catch(std::ptr::null_mut(), || Box::into_raw(Box::new(EkRow(Row::new()))))
}

/// Frees a row buffer.
///
/// # Safety
/// `row` is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_row_free(row: *mut EkRow) {
    // SAFETY: by contract of the caller.
    catch((), || drop(unsafe { Box::from_raw(row) }));
}

/// Empties a row buffer: it then keeps no snapshot and no long value.
///
/// # Safety
/// `row` is a row buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_row_clear(row: *mut EkRow) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe { (*row).0.clear() });
}

/// Where a column lies in a record, and how.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EkPut {
    /// From the record's first byte.
    pub at: u32,
    /// Bytes in the record.
    pub len: u32,
    /// The byte that says NULL.
    pub null_at: u32,
    /// The bit of it; 0 for a column that is never NULL.
    pub null_bit: u8,
    /// One of `EK_PUT_*`.
    pub how: u8,
    /// What `EK_PUT_CHARS` is filled up with.
    pub fill: u8,
    /// Of `EK_PUT_VARIABLE`: 1 or 2.
    pub len_bytes: u8,
    /// The `len` bytes that the record gets where the column is NULL.
    pub beneath_null: *const u8,
}

/// Some columns that are wanted of one row after the other.
pub struct EkPlan {
    pub(crate) plan: RowPlan,
    /// Where they lie in records, if `ek_plan_put` has said it.
    pub(crate) puts: Vec<EkPut>,
}

/// Makes a plan to read these columns; free it with `ek_plan_free`.
///
/// # Safety
/// `columns` is valid for `len` items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_plan_new(columns: *const u32, len: usize) -> *mut EkPlan {
    catch(std::ptr::null_mut(), || {
        // SAFETY: by contract of the caller.
        let columns = unsafe { slice(columns, len) }.iter().map(|column| *column as usize);
        let plan = RowPlan::new(columns.collect());
        Box::into_raw(Box::new(EkPlan { plan, puts: Vec::new() }))
    })
}

/// Frees a plan, which may be null.
///
/// # Safety
/// `plan` is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_plan_free(plan: *mut EkPlan) {
    if !plan.is_null() {
        // SAFETY: by contract of the caller.
        catch((), || drop(unsafe { Box::from_raw(plan) }));
    }
}

/// The clustered key bytes of the row, and the values of the columns of a plan in its order; the
/// bytes are valid until the next read into the row. 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call, `values` for as many items as the plan has columns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_row_values(
    row: *const EkRow,
    plan: *mut EkPlan,
    key: *mut EkBytes,
    values: *mut EkValue,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let row = &(*row).0;
            key.write(EkBytes::of(row.key()));
            let plan = &mut (*plan).plan;
            row.values_by(plan, |at, value| values.add(at).write(EkValue::of(value)))?;
            Ok(0)
        })
    }
}

/// A long value that was taken out of a row buffer.
pub struct EkLong(#[allow(dead_code)] Value); // Kept for its bytes.

/// Moves a long value, which `ek_row_values` has returned, out of the row buffer: its bytes stay
/// where they are until `ek_long_free`. Null if it shares memory with other values.
///
/// # Safety
/// `row` is a row buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_row_take(row: *mut EkRow, column: u32) -> *mut EkLong {
    // SAFETY: by contract of the caller.
    catch(std::ptr::null_mut(), || unsafe {
        let taken = (*row).0.take_large(column as usize);
        taken.map_or(std::ptr::null_mut(), |value| Box::into_raw(Box::new(EkLong(value))))
    })
}

/// Frees such a value.
///
/// # Safety
/// `value` is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_long_free(value: *mut EkLong) {
    // SAFETY: by contract of the caller.
    catch((), || drop(unsafe { Box::from_raw(value) }));
}
