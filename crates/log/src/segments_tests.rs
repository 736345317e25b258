//! Segments that could not be renamed, or whose names a failed sync has lost; segments prepared
//! ahead.

use crate::log_tests::{append, quiet, read};
use crate::{Log, LogOptions};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Cause, Code, Lsn, Result};
use evenkeel_io::sim::{CrashPolicy, Fault, FaultKind, SimDisk, SimEnv, SimOptions, When};

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
        if rt.metrics.get(Metric::LogRecycled) == 3 {
            break;
        }
    }
    assert_eq!((sim.disk().faults_struck(), rt.metrics.get(Metric::LogRecycled)), (1, 3));
    drop(log);
    let (records, end) = read(&rt, last)?;
    assert_eq!(records.len(), 1);
    Log::create(rt, options(2), end.end)?;
    Ok(())
}

/// Each sync in turn finds no space, as on file systems that allocate late. Where names may be
/// lost, writes stop for good instead of reporting a full disk that a caller could wait out; no
/// durable content is lost.
#[test]
fn a_sync_without_space_is_a_failed_sync() -> Result<()> {
    let (mut stopped, mut went_on) = (0, 0);
    for nth in 1.. {
        let sim = SimEnv::on(SimDisk::new(nth), SimOptions::quiet(nth));
        let rt = sim.runtime();
        let log = Log::create(rt.clone(), options(1), Lsn(0))?;
        let mut known = vec![append(&log, b"first")?];
        log.wait_durable(known[0])?;
        sim.disk().inject(Fault::on("wal", FaultKind::NoSpaceForSync, When::Nth(nth)));
        while rt.metrics.get(Metric::LogRecycled) < 8 && !rt.health.is_failed() {
            let appended = append(&log, &[1; 10_000]);
            match appended.and_then(|lsn| log.wait_durable(lsn).map(|()| lsn)) {
                Ok(lsn) => known.push(lsn),
                Err(error) if rt.health.is_failed() => assert_ne!(error.code(), Code::DiskFull),
                Err(error) => assert_eq!(error.code(), Code::DiskFull),
            }
            // The checkpoint stays some segments behind. A refused move leaves it in place.
            let _ = log.set_checkpoint(known[known.len().saturating_sub(40)]);
            while let Ok(Beat::More) = log.beat() {}
        }
        let struck = sim.disk().faults_struck();
        sim.disk().clear_faults();
        for policy in CrashPolicy::ALL {
            let after = SimEnv::on(sim.disk().crash(*policy, nth), SimOptions::quiet(nth));
            let from = log.checkpoint_lsn();
            let kept: Vec<Lsn> = known.iter().copied().filter(|lsn| *lsn >= from).collect();
            let (records, end) = read(&after.runtime(), from)?;
            let found: Vec<Lsn> = records.iter().map(|record| record.0).collect();
            assert_eq!(found[..kept.len().min(found.len())], kept, "{nth} {policy:?}");
            Log::create(after.runtime(), options(2), end.end)?;
        }
        match (struck, rt.health.is_failed()) {
            (0, _) => break,
            (_, true) => stopped += 1,
            (_, false) => went_on += 1,
        }
    }
    assert!(stopped > 20 && went_on > 3, "{stopped} of {}", stopped + went_on);
    Ok(())
}

/// The write that enters a segment has another one prepared, so that no user needs it first:
/// without a checkpoint, and with commits that sync themselves, no other event wakes the
/// background.
#[test]
fn entering_a_segment_prepares_the_next_one() -> Result<()> {
    let sim = quiet(SimDisk::new(1), 1);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), options(1), Lsn(0))?;
    let mut woken = 0;
    while log.age() < log.age_target() {
        let seen = log.event().now();
        let lsn = append(&log, &[1; 10_000])?;
        log.wait_durable(lsn)?;
        if log.event().now() == seen {
            continue;
        }
        woken += 1;
        while log.beat()? != Beat::Idle {}
    }
    println!("woken {woken} times");
    assert!(woken >= 5);
    assert_eq!(rt.stalls.get(Cause::LogSpace).count, 0, "users prepare none");
    Ok(())
}

/// Zeroing keeps pace with the log: the zeros of a segment are not written all at once, and are
/// complete in time.
#[test]
fn zeros_keep_pace_with_the_log() -> Result<()> {
    let sim = quiet(SimDisk::new(1), 1);
    let rt = sim.runtime();
    let log_options = LogOptions { log_bytes: 128 << 20, buffer_bytes: 1 << 20, epoch: 1 };
    let log = Log::create(rt.clone(), log_options, Lsn(0))?;
    let (mut most, mut steps, mut checkpoint) = (0, 0, Lsn(0));
    while log.age() < log.age_target() {
        let lsn = append(&log, &vec![1; 60_000])?;
        log.wait_durable(lsn)?;
        // From here on old segments are recycled; a segment that grows still has its time.
        if checkpoint == Lsn(0) && log.age() > log.age_target() / 2 {
            checkpoint = lsn;
            log.set_checkpoint(lsn)?;
        }
        let before = rt.metrics.get(Metric::LogPreparedBytes);
        while log.beat()? != Beat::Idle {}
        let bytes = rt.metrics.get(Metric::LogPreparedBytes) - before;
        most = most.max(bytes);
        steps += u64::from(bytes > 0);
    }
    println!("{steps} times, {most} bytes at most");
    assert!(steps >= 60 && most <= (2 << 20) + 4096, "{steps} times, {most} bytes at most");
    assert_eq!(rt.stalls.get(Cause::LogSpace).count, 0);
    Ok(())
}
