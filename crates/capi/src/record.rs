//! Rows of a scan put into records of the embedding program: each column's value goes from the
//! leaf, or from the entry of an index, to its place in the record, with no row in between.
//!
//! The caller says once where the columns of a plan lie in its records (`ek_plan_put`);
//! `ek_scan_read` writes there and nowhere else.

use crate::row::{EkPlan, EkPut, EkRow};
use crate::table::EkTable;
use crate::transaction::{EkScan, EkTxn, Rows};
use crate::value::{EkBytes, EkError, EkValue, catch, fence, slice, values};
use evenkeel::{Code, Error, RowPlan, ValueRef};

/// A whole number, low byte first.
pub const EK_PUT_NUMBER: u8 = 0;
/// A float of 4 or 8 bytes.
pub const EK_PUT_FLOAT: u8 = 1;
/// Bytes, all of them.
pub const EK_PUT_BYTES: u8 = 2;
/// Bytes, filled up with `fill`.
pub const EK_PUT_CHARS: u8 = 3;
/// Bytes behind their length, which takes `len_bytes`.
pub const EK_PUT_VARIABLE: u8 = 4;

impl EkPut {
    /// Puts a value; false if it does not fit.
    ///
    /// # Safety
    /// The record has the places that this names, and `beneath_null` is valid.
    #[inline]
    unsafe fn put(&self, record: *mut u8, value: ValueRef<'_>) -> bool {
        // SAFETY: by contract of the caller.
        unsafe {
            let at = record.add(self.at as usize);
            let to = std::slice::from_raw_parts_mut(at, self.len as usize);
            if matches!(value, ValueRef::Null | ValueRef::Decimal(..)) {
                to.copy_from_slice(std::slice::from_raw_parts(self.beneath_null, to.len()));
                *record.add(self.null_at as usize) |= self.null_bit;
                return self.null_bit != 0;
            }
            if self.null_bit != 0 {
                *record.add(self.null_at as usize) &= !self.null_bit;
            }
            match value {
                ValueRef::Int(i) => self.put_number(to, i as u64),
                ValueRef::UInt(u) => self.put_number(to, u),
                ValueRef::Bytes(bytes) => self.put_bytes(to, bytes),
                ValueRef::Text(text) => self.put_bytes(to, text.as_bytes()),
                ValueRef::Float(float) => self.put_float(to, float),
                ValueRef::Bool(b) => self.put_number(to, u64::from(b)),
                ValueRef::Date(d) => self.put_number(to, i64::from(d) as u64),
                ValueRef::DateTime(t) => self.put_number(to, t as u64),
                ValueRef::Null | ValueRef::Decimal(..) => false,
            }
        }
    }

    #[inline]
    fn put_number(&self, to: &mut [u8], number: u64) -> bool {
        let bytes = number.to_le_bytes();
        if let Some(to) = to.first_chunk_mut::<4>().filter(|_| self.len == 4) {
            *to = [bytes[0], bytes[1], bytes[2], bytes[3]];
            return self.how == EK_PUT_NUMBER;
        }
        match bytes.get(..to.len()) {
            Some(bytes) => to.copy_from_slice(bytes),
            None => return false,
        }
        self.how == EK_PUT_NUMBER
    }

    fn put_float(&self, to: &mut [u8], float: f64) -> bool {
        match to.len() {
            4 => to.copy_from_slice(&(float as f32).to_le_bytes()),
            8 => to.copy_from_slice(&float.to_le_bytes()),
            _ => return false,
        }
        self.how == EK_PUT_FLOAT
    }

    #[inline]
    fn put_bytes(&self, to: &mut [u8], bytes: &[u8]) -> bool {
        match self.how {
            EK_PUT_BYTES => {
                let fits = bytes.len() == to.len();
                if fits {
                    to.copy_from_slice(bytes);
                }
                fits
            }
            EK_PUT_CHARS => {
                let (head, tail) = to.split_at_mut(bytes.len().min(to.len()));
                head.copy_from_slice(&bytes[..head.len()]);
                tail.fill(self.fill);
                true
            }
            EK_PUT_VARIABLE => {
                let (len, room) = to.split_at_mut(usize::from(self.len_bytes).min(to.len()));
                let Some(room) = room.get_mut(..bytes.len()) else { return false };
                room.copy_from_slice(bytes);
                match len {
                    [low] => *low = bytes.len() as u8,
                    [low, high] => [*low, *high] = (bytes.len() as u16).to_le_bytes(),
                    _ => return false,
                }
                true
            }
            _ => false,
        }
    }
}

/// Says where the columns of a plan lie in records, in the plan's order.
///
/// # Safety
/// `plan` is a plan, `puts` is valid for as many items as it has columns; what lies beneath a NULL
/// stays where it is for as long as the plan is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_plan_put(plan: *mut EkPlan, puts: *const EkPut, len: usize) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe { (*plan).puts = slice(puts, len).to_vec() });
}

/// Reads the columns of a plan of the row with this primary key, on which the table is clustered,
/// into a record, as a plain read: 1, 0 if there is none, -1 on error. `of` gets the row's
/// clustered key bytes, which stay until the next read into `row`, a buffer for what is not read
/// where it lies.
///
/// # Safety
/// All pointers are valid during the call; `ek_plan_put` has said where in the record the columns
/// lie.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_get_read(
    txn: *mut EkTxn,
    table: *mut EkTable,
    key: *const EkValue,
    len: usize,
    plan: *mut EkPlan,
    record: *mut u8,
    row: *mut EkRow,
    of: *mut EkBytes,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let EkPlan { plan, puts } = &mut *plan;
            let row = &mut (*row).0;
            let mut misfit = None;
            let put = |at: usize, value: ValueRef<'_>| {
                if !puts.get(at).is_some_and(|put| put.put(record, value)) {
                    misfit = Some(at);
                }
            };
            let table = (*txn).get()?.table_of(&mut (*table).0)?;
            if !table.get_by(&values(key, len)[..], plan, row, put)? {
                return Ok(0);
            }
            of.write(EkBytes::of(row.key()));
            misfit.map_or(Ok(1), |at| Err(does_not_fit(plan, at)))
        })
    }
}

/// A value of this column of a plan does not fit the record.
#[cold]
fn does_not_fit(plan: &RowPlan, at: usize) -> Error {
    let error = Error::new(Code::BadEncoding)
        .with("what", "row")
        .with("why", "a value does not fit its column");
    match plan.columns().get(at) {
        Some(column) => error.with("column", column),
        None => error,
    }
}

/// Reads the columns of a plan of the next row into a record, of a scan that does not lock: 1, 0 at
/// the end, -1 on error. `key` gets the row's clustered key bytes, which stay until the next call.
///
/// # Safety
/// All pointers are valid during the call; `ek_plan_put` has said where in the record the columns
/// lie.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_scan_read(
    scan: *mut EkScan,
    plan: *mut EkPlan,
    record: *mut u8,
    key: *mut EkBytes,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let EkPlan { plan, puts } = &mut *plan;
            let EkScan { rows, row, .. } = &mut *scan;
            let mut misfit = None;
            let put = |at: usize, value: ValueRef<'_>| {
                if !puts.get(at).is_some_and(|put| put.put(record, value)) {
                    misfit = Some(at);
                }
            };
            let found = match rows {
                Rows::Table(scan) => scan.next_by(plan, row, put)?,
                Rows::Index(scan) => scan.next_by(plan, row, put)?,
                Rows::Locked(_) => return Err(Error::internal("locked rows are read whole")),
            };
            let Some(found) = found else { return Ok(0) };
            key.write(EkBytes::of(found));
            misfit.map_or(Ok(1), |at| Err(does_not_fit(plan, at)))
        })
    }
}

/// Reads the whole row of the entry that `ek_scan_read` gave last, of a scan of keys, as the scan
/// sees it: 1, 0 if it has moved on, -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_scan_fetch_last(
    scan: *const EkScan,
    row: *mut EkRow,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || match &(*scan).rows {
            Rows::Index(rows) => rows.fetch_last(&(*scan).row, &mut (*row).0).map(i32::from),
            _ => Err(Error::internal("these rows are whole")),
        })
    }
}
