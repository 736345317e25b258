//! Repair of a table.

use crate::alter::EkBuild;
use crate::database::EkDatabase;
use crate::value::{EkBytes, EkError, fence};
use evenkeel::{CheckProgress, RepairScope, TableRepair};
use std::ffi::c_void;

/// A line about an index that was built anew.
pub const EK_REPAIR_REBUILT: i32 = 0;
/// A line about rows that were given up.
pub const EK_REPAIR_LOST: i32 = 1;
/// A line about damage that is left.
pub const EK_REPAIR_PROBLEM: i32 = 2;
/// The same about rows: nothing was repaired, because they were not to be given up.
pub const EK_REPAIR_ROWS: i32 = 3;

/// What a repair calls back.
#[repr(C)]
pub struct EkRepairCalls {
    /// Passed to both.
    pub context: *mut c_void,
    /// Hears a kind of line (`EK_REPAIR_*`) and the line.
    pub each: unsafe extern "C" fn(*mut c_void, i32, EkBytes),
    /// Hears how far the check is: its stage (`EK_CHECK_*`) and the millionths of the stage that
    /// are done.
    pub watch: unsafe extern "C" fn(*mut c_void, i32, u32),
}

/// Checks a table and repairs what is damaged, rows only if `gives_up_rows` is not 0; tells what
/// was done and which damage is left. Returns the number of lines about that damage, or -1 on
/// error. `build` shows and cancels the builds of indexes, and the end of the repair.
///
/// # Safety
/// All pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ek_repair_table(
    db: *const EkDatabase,
    table: EkBytes,
    gives_up_rows: u8,
    build: *const EkBuild,
    calls: *const EkRepairCalls,
    error: *mut EkError,
) -> i64 {
    // SAFETY: by contract of the caller.
    unsafe {
        let repaired = fence(error, -1, || {
            let scope = if gives_up_rows == 0 { RepairScope::Indexes } else { RepairScope::Rows };
            let EkRepairCalls { context, each, watch } = *calls;
            let told = |now: CheckProgress| {
                watch(context, now.stage as i32, (now.share * 1e6) as u32);
            };
            let progress = (*build).progress();
            let report = (*db).0.repair_table(table.text()?, scope, progress, &told)?;
            tell(&report, &mut |kind, line| each(context, kind, EkBytes::of(line.as_bytes())));
            Ok(report.problems.len() as i64)
        });
        // Also if the repair never began, because another thread waits for its end.
        (*build).progress().end();
        repaired
    }
}

fn tell(report: &TableRepair, each: &mut dyn FnMut(i32, &str)) {
    for lost in &report.lost {
        let (from, below, why) = (&lost.from, &lost.below, &lost.why);
        let line = match below.is_empty() {
            true => format!("lost is the row {from}: {why}"),
            false => format!("lost are the rows from {from} to below {below}: {why}"),
        };
        each(EK_REPAIR_LOST, &line);
    }
    let more = report.lost_ranges - report.lost.len() as u64;
    if more > 0 {
        each(EK_REPAIR_LOST, &format!("lost are {more} further ranges of rows"));
    }
    for rebuilt in &report.rebuilt {
        let (index, entries) = (&rebuilt.index, rebuilt.entries);
        each(EK_REPAIR_REBUILT, &format!("index {index} was built anew: {entries} entries"));
    }
    let kind = if report.rows_damaged { EK_REPAIR_ROWS } else { EK_REPAIR_PROBLEM };
    report.problems.iter().for_each(|problem| each(kind, problem));
}
