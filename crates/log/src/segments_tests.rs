//! Segments that could not be renamed.

use crate::log_tests::{append, read};
use crate::{Log, LogOptions};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Code, Lsn, Result};
use evenkeel_io::sim::{Fault, FaultKind, SimDisk, SimEnv, SimOptions, When};

fn options(epoch: u32) -> LogOptions {
    LogOptions { log_bytes: 1 << 20, buffer_bytes: 128 << 10, epoch }
}

/// A directory that takes no name for lack of space is no reason for a gap among the segments.
#[test]
fn a_segment_whose_name_could_not_change_is_recycled_later() -> Result<()> {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), options(1), Lsn(0))?;
    sim.disk().inject(Fault::on("wal/0", FaultKind::NoSpaceForName, When::Nth(1)));
    let mut last = Lsn(0);
    for _ in 0..500 {
        match append(&log, &[1; 10_000]) {
            Ok(lsn) => last = lsn,
            Err(error) => assert_eq!(error.code(), Code::DiskFull),
        }
        log.wait_durable(last)?;
        log.set_checkpoint(last)?;
        while let Ok(Beat::More) = log.beat() {}
        if rt.metrics.get(Metric::WalRecycled) == 3 {
            break;
        }
    }
    assert_eq!((sim.disk().faults_struck(), rt.metrics.get(Metric::WalRecycled)), (1, 3));
    drop(log);
    let (records, end) = read(&rt, last)?;
    assert_eq!(records.len(), 1);
    Log::create(rt, options(2), end.end)?;
    Ok(())
}
