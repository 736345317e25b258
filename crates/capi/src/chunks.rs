//! Chunked tables: how a table is cut, its chunks, and their drop.

use crate::database::{EkDatabase, EkSchemaWait, waiting};
use crate::transaction::EkTxn;
use crate::value::{EkBytes, EkError, catch, fence};
use evenkeel::{Chunking, Code, Error, Result, TimeUnit};
use std::ffi::c_void;
use std::time::Duration;

/// Units of times, by number.
const UNITS: [TimeUnit; 8] = [
    TimeUnit::Days,
    TimeUnit::Seconds,
    TimeUnit::Milliseconds,
    TimeUnit::Microseconds,
    TimeUnit::Nanoseconds,
    TimeUnit::PackedDays,
    TimeUnit::PackedSeconds,
    TimeUnit::Timestamp,
];

/// How a new table is cut into chunks.
#[repr(C)]
pub struct EkChunking {
    /// The column of times.
    pub time: EkBytes,
    /// The column whose hash chooses the slot; empty for none.
    pub space: EkBytes,
    /// Seconds that a chunk spans.
    pub width_s: u64,
    /// Seconds for which rows are kept; 0 for ever.
    pub retain_s: u64,
    /// Chunks of each span.
    pub slots: u32,
    /// The unit of the times, by number.
    pub unit: u8,
}

impl EkChunking {
    /// # Safety
    /// The names are there during the call.
    pub(crate) unsafe fn spec(&self) -> Result<Chunking> {
        // SAFETY: by contract of the caller.
        let (time, space) = unsafe { (self.time.text()?, self.space.text()?) };
        let unit = *UNITS.get(usize::from(self.unit)).ok_or_else(|| {
            Error::new(Code::ChunkingInvalid).with("why", "no such unit of times")
        })?;
        let mut spec = Chunking::by(time, Duration::from_secs(self.width_s)).unit(unit);
        if !space.is_empty() {
            spec = spec.space(space, self.slots);
        }
        Ok(match self.retain_s {
            0 => spec,
            seconds => spec.retain(Duration::from_secs(seconds)),
        })
    }
}

/// A chunk.
#[repr(C)]
pub struct EkChunk {
    /// Its number, which no other chunk ever has.
    pub number: u64,
    /// The first time it takes; the least number for the early catch-all chunk.
    pub from: i64,
    /// The first time behind it; the greatest number for the late catch-all chunk.
    pub to: i64,
    /// Rows, estimated.
    pub rows: u64,
    /// Bytes of its leaves and of the runs of its indexes.
    pub bytes: u64,
    /// Its slot.
    pub slot: u32,
}

/// A chunk, whose figures the function has to copy.
pub type EkEachChunk = unsafe extern "C" fn(*mut c_void, *const EkChunk);

/// The number of the unit of a chunked table's times; -1 if the table is not chunked, or if there
/// is none.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_chunk_unit(db: *const EkDatabase, table: EkBytes) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), -1, || {
            let unit = (*db).0.definition(table.text()?)?.chunking.map(|entry| entry.unit);
            let place = unit.and_then(|unit| UNITS.iter().position(|known| *known == unit));
            Ok(place.map_or(-1, |place| place as i32))
        })
    }
}

/// How long the rows of a chunked table are kept, in the unit of its times; 1, or 0 if for ever, if
/// it is not chunked, or if there is none.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_retain(db: *const EkDatabase, table: EkBytes, units: *mut u64) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(std::ptr::null_mut(), 0, || {
            let retain =
                (*db).0.definition(table.text()?)?.chunking.map_or(0, |entry| entry.retain);
            *units = retain;
            Ok(i32::from(retain != 0))
        })
    }
}

/// Calls `each` with the chunks of a chunked table; 0, or -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_chunks(
    db: *const EkDatabase,
    table: EkBytes,
    context: *mut c_void,
    each: EkEachChunk,
    error: *mut EkError,
) -> i32 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            for chunk in (*db).0.chunks(table.text()?)? {
                let chunk = EkChunk {
                    number: chunk.number,
                    from: chunk.from.unwrap_or(i64::MIN),
                    to: chunk.to.unwrap_or(i64::MAX),
                    rows: chunk.rows,
                    bytes: chunk.bytes,
                    slot: chunk.slot,
                };
                each(context, &raw const chunk);
            }
            Ok(0)
        })
    }
}

/// A chunk that is kept, and the transaction that needs it.
pub type EkKept = unsafe extern "C" fn(*mut c_void, u64, u64);

/// Drops the chunks that hold only times before `before`, in the unit of the table's times. Calls
/// `kept` with each that a transaction has changed or locked rows in. Returns the number of those
/// dropped, -1 on error.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_drop_chunks(
    db: *const EkDatabase,
    table: EkBytes,
    before: i64,
    wait: *const EkSchemaWait,
    context: *mut c_void,
    kept: EkKept,
    error: *mut EkError,
) -> i64 {
    // SAFETY: by contract of the caller.
    unsafe {
        fence(error, -1, || {
            let table = table.text()?;
            let done = waiting(wait, |how| (*db).0.drop_chunks(table, before, how))?;
            done.kept.iter().for_each(|chunk| kept(context, chunk.number, chunk.txn));
            Ok(done.dropped.len() as i64)
        })
    }
}

/// 0: a statement may make any number of chunks of a chunked table, because it copies one. Other
/// values, and the initial state: it may make a thousand.
///
/// # Safety
/// `txn` is a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_set_chunk_limit(txn: *mut EkTxn, on: u8) {
    // SAFETY: by contract of the caller.
    catch((), || unsafe {
        if let Ok(txn) = (*txn).get() {
            txn.set_chunk_limit(on != 0);
        }
    });
}
