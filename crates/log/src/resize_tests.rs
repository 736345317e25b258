//! The size of the log changes while it is open.

use crate::log_tests::{Outside, Records, Rng, append, check_survivor, quiet, read, tiny};
use crate::rest::REST;
use crate::segments::Activity;
use crate::{Limits, Log, LogEnd, LogOptions, Share};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Cause, Code, Lsn, Result};
use evenkeel_format::record::RecordKind;
use evenkeel_io::Runtime;
use evenkeel_io::sim::{CrashPolicy, Session, SimDisk, SimEnv, catch_crash, is_crash};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SMALL: u64 = 256 << 10;
const LARGE: u64 = 4 << 20;

fn large(epoch: u32) -> LogOptions {
    LogOptions { log_bytes: LARGE, ..tiny(epoch) }
}

/// Appends records of `bytes` bytes until the log has reached an age.
fn fill(log: &Log, age: u64, bytes: usize, model: &mut Records) -> Result<()> {
    while log.age() < age {
        let body = vec![model.len() as u8; bytes];
        model.push((append(log, &body)?, body));
        log.wait_durable(log.end())?;
        while log.beat()? == Beat::More {}
    }
    Ok(())
}

/// The lengths of the segments' files, in order.
fn files(sim: &SimEnv) -> Vec<u64> {
    let disk = sim.disk();
    let mut names: Vec<_> = disk.paths().into_iter().filter(|p| p.starts_with("wal/")).collect();
    names.sort();
    names.iter().filter_map(|name| disk.content(name)).map(|bytes| bytes.len() as u64).collect()
}

/// A larger log has room at once: users no longer wait at the age of before.
#[test]
fn a_larger_log_has_room_at_once() -> Result<()> {
    let sim = quiet(SimDisk::new(1), 1);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), tiny(1), Lsn(0))?;
    let mut model = Records::new();
    fill(&log, log.capacity() - 3000, 1000, &mut model)?;
    assert!(files(&sim).iter().all(|bytes| *bytes == SMALL / 8));
    log.set_log_bytes(LARGE);
    assert_eq!(log.capacity(), Limits::of_log(LARGE).user());
    fill(&log, log.capacity() - 20_000, 10_000, &mut model)?;
    let files = files(&sim);
    assert!(files.iter().sum::<u64>() <= LARGE && files.contains(&(LARGE / 16)), "{files:?}");
    assert_eq!(read(&rt, Lsn(0))?.0, model);
    Ok(())
}

/// A smaller size is reached step by step: the last part of the log is refused to no share, users
/// continue with half of the space that checkpoints free, and surplus files are removed.
#[test]
fn a_smaller_log_is_reached_as_checkpoints_move() -> Result<()> {
    let sim = quiet(SimDisk::new(2), 2);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), large(1), Lsn(0))?;
    let mut model = Records::new();
    fill(&log, 2_500_000, 10_000, &mut model)?;
    let held = log.reserve(5_000, Share::System)?;
    log.set_log_bytes(SMALL);
    let limits = Limits::of_log(SMALL);
    assert_eq!((log.capacity(), log.age_target()), (limits.user(), limits.target()));
    let refused = log.reserve(limits.user() as usize / 2, Share::System).map(|_| ());
    assert_eq!(refused.expect_err("half of all is more than it may").code(), Code::LogTooLarge);
    // Commits and checkpoints have room before any space is freed.
    for (bytes, share) in [(60_000, Share::System), (20_000, Share::Checkpoint)] {
        log.append(&mut log.reserve(bytes, share)?, RecordKind::Row, &[&vec![1; bytes]]);
        log.wait_durable(log.end())?;
    }
    drop(held);
    let mut oldest = log.checkpoint_lsn();
    let mut appended = 0;
    while log.age() > log.capacity() {
        let (age, freed) = (log.age(), 40_000);
        oldest = Lsn(oldest.0 + freed);
        log.set_checkpoint(oldest)?;
        append(&log, &[2; 10_000])?;
        appended += 10_000;
        log.wait_durable(log.end())?;
        while log.beat()? == Beat::More {}
        assert!(log.age() < age, "it becomes shorter");
    }
    assert!(appended > 600_000, "{appended} bytes of users");
    // The last of the large segments is soon behind the end.
    for _ in 0..60 {
        append(&log, &[3; 10_000])?;
        log.wait_durable(log.end())?;
        log.set_checkpoint(log.durable())?;
        while log.beat()? == Beat::More {}
    }
    let left = files(&sim);
    assert!(left.iter().sum::<u64>() <= SMALL, "{left:?}");
    let refused = log.reserve(1 << 20, Share::System).map(|_| ()).expect_err("too large");
    assert_eq!(refused.context("limit"), Some(&*(limits.user() / 2).to_string()));
    Ok(())
}

/// Segments prepared for the larger log are removed at once, also while no transaction writes.
#[test]
fn segments_prepared_for_a_larger_log_are_given_back() -> Result<()> {
    let sim = quiet(SimDisk::new(3), 3);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), large(1), Lsn(0))?;
    let mut model = Records::new();
    fill(&log, 300_000, 10_000, &mut model)?;
    log.set_checkpoint(log.durable())?;
    while log.beat()? == Beat::More {}
    assert!(files(&sim).iter().all(|bytes| *bytes == LARGE / 16) && files(&sim).len() > 4);
    log.set_log_bytes(SMALL);
    while log.beat()? == Beat::More {}
    let (one, small) = (LARGE / 16, SMALL / 8);
    assert_eq!(files(&sim), [one, small, small], "the one in use, and two ahead");
    // Segments follow each other without a gap, here and after a restart.
    let from = log.checkpoint_lsn();
    let mut more = Records::new();
    fill(&log, 100_000, 1000, &mut more)?;
    drop(log);
    let (records, end) = read(&rt, from)?;
    assert_eq!(records, more);
    Log::create(rt, tiny(2), end.end)?;
    Ok(())
}

/// A file that grows when the log is made smaller is removed too.
#[test]
fn a_segment_grown_for_a_larger_log_is_prepared_again() -> Result<()> {
    let sim = quiet(SimDisk::new(4), 4);
    let log = Log::create(sim.runtime(), LogOptions { log_bytes: 64 << 20, ..tiny(1) }, Lsn(0))?;
    // Its first segments have 1 MiB; the fourth has 2 MiB, of which one is written.
    assert_eq!((files(&sim).len(), log.beat()?), (3, Beat::More));
    assert_eq!(files(&sim), [1 << 20, 1 << 20, 1 << 20, 2 << 20]);
    log.set_log_bytes(SMALL);
    while log.beat()? == Beat::More {}
    assert_eq!(files(&sim), [1 << 20, SMALL / 8, SMALL / 8]);
    assert!(!sim.disk().paths().iter().any(|path| path.ends_with("new.tmp")));
    Ok(())
}

/// A waiting reservation that is too large for the smaller log fails; one that fits waits on, in
/// order, and a checkpoint is requested for it.
#[test]
fn a_waiting_reservation_that_no_longer_fits_fails() -> Result<()> {
    let sim = SimEnv::new(7);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), LogOptions { log_bytes: 1 << 20, ..tiny(1) }, Lsn(0))?;
    let ended = Arc::new(Mutex::new(Vec::new()));
    let mut bodies: Vec<Session> = Vec::new();
    let first = log.clone();
    sim.run(vec![Box::new(move || {
        fill(&first, first.capacity() - 12_000, 10_000, &mut Records::new()).expect("room");
    })]);
    // A change within an operation may be larger than the buffer.
    for (i, bytes, share) in [(0, 100_000, Share::Within), (1, 10_000, Share::Within)] {
        let (rt, log, ended) = (rt.clone(), log.clone(), ended.clone());
        bodies.push(Box::new(move || {
            rt.delay(Duration::from_millis(10 * (i + 1)), Cause::Idle);
            let result = log.reserve(bytes, share).map(|_| ()).map_err(|e| e.code());
            ended.lock().push((bytes, result));
        }));
    }
    let (rt2, log2, ended2) = (rt.clone(), log.clone(), ended.clone());
    bodies.push(Box::new(move || {
        let rest = || rt2.delay(Duration::from_secs(1), Cause::Idle);
        rest();
        assert!(ended2.lock().is_empty(), "both wait");
        let pressed = log2.pressure().now();
        log2.set_log_bytes(SMALL);
        rest();
        assert!(log2.pressure().now() > pressed);
        assert_eq!(*ended2.lock(), [(100_000, Err(Code::LogTooLarge))]);
        let needed = log2.needed().expect("the other one waits");
        log2.set_checkpoint(needed).expect("durable");
        rest();
        assert_eq!(ended2.lock()[1..], [(10_000, Ok(()))]);
    }));
    sim.run(bodies);
    Ok(())
}

/// A writer waits repeatedly while the log shrinks, and checkpoints advance only as far as it
/// requests: each one lets it continue, and the log reaches its size.
#[test]
fn writers_continue_while_the_log_shrinks() -> Result<()> {
    let sim = SimEnv::new(8);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), large(1), Lsn(0))?;
    let first = log.clone();
    sim.run(vec![Box::new(move || {
        fill(&first, 2_000_000, 10_000, &mut Records::new()).expect("room");
        first.set_log_bytes(SMALL);
    })]);
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (log1, stop1, written1) = (log.clone(), stop.clone(), written.clone());
    let writer = move || {
        while !stop1.load(Ordering::SeqCst) {
            append(&log1, &[1; 2000]).expect("room");
            log1.wait_durable(log1.end()).expect("a sync");
            written1.fetch_add(2000, Ordering::SeqCst);
        }
    };
    let (log2, rt2) = (log.clone(), rt.clone());
    let checkpointer = move || {
        let begun = log2.checkpoint_lsn();
        while log2.age() > log2.capacity() {
            let seen = log2.pressure().now();
            let Some(needed) = log2.needed() else {
                rt2.wait(&log2.pressure(), seen, None, Cause::Idle);
                continue;
            };
            // The checkpoint frees 500 bytes more than needed: the rest of a record.
            let to = Lsn(needed.0 + 500).min(log2.durable());
            assert!(to > log2.checkpoint_lsn());
            log2.set_checkpoint(to).expect("durable");
        }
        stop.store(true, Ordering::SeqCst);
        let freed = log2.checkpoint_lsn().0 - begun.0;
        let by_users = written.load(Ordering::SeqCst);
        println!("{freed} bytes freed, {by_users} written meanwhile");
        assert!(by_users > freed / 3, "{by_users} bytes of users for {freed} freed");
        assert!(freed < 2 * 2_100_000, "{freed} bytes freed");
        log2.set_checkpoint(log2.durable()).expect("durable");
    };
    sim.run(vec![Box::new(writer), Box::new(checkpointer)]);
    Ok(())
}

/// A log to which nothing is appended for a minute keeps the segment of its end and those ahead;
/// the next append finds room, and the log has segments behind it again.
#[test]
fn a_log_at_rest_gives_recyclable_segments_back() -> Result<()> {
    let sim = SimEnv::new(9);
    let (rt, sim2) = (sim.runtime(), sim.clone());
    let log = Log::create(rt.clone(), large(1), Lsn(0))?;
    sim.run(vec![Box::new(move || {
        let beat = || while log.beat().expect("a beat") == Beat::More {};
        let mut model = Records::new();
        fill(&log, 2_000_000, 10_000, &mut model).expect("room");
        assert_eq!(log.next_beat_in(), None, "no segment is behind the checkpoint");
        let busy = files(&sim2).len();
        log.set_checkpoint(log.durable()).expect("durable");
        beat();
        rt.delay(REST / 2, Cause::Idle);
        append(&log, &[1; 100]).expect("room");
        log.wait_durable(log.end()).expect("a sync");
        beat();
        rt.delay(REST / 2, Cause::Idle);
        beat();
        assert!(files(&sim2).len() >= busy, "half a minute is no rest");
        rt.delay(log.next_beat_in().expect("segments may go"), Cause::Idle);
        beat();
        let rest = files(&sim2).len();
        assert!((3..=4).contains(&rest) && busy > 8, "{rest} segments of {busy}");
        assert_eq!(log.next_beat_in(), None, "nothing is left to do");
        let from = log.checkpoint_lsn();
        let mut more = Records::new();
        fill(&log, 2_000_000, 10_000, &mut more).expect("room");
        assert!(files(&sim2).len() > 8);
        let found = read(&rt, from).expect("reads").0;
        assert_eq!(found[found.len() - more.len()..], more);
    })]);
    Ok(())
}

/// A closed log has no file but those from its checkpoint to its end, and the next open prepares
/// two small ones, however large the others are.
#[test]
fn a_closed_log_keeps_only_what_recovery_needs() -> Result<()> {
    let size = 64 << 20;
    let options = |epoch| LogOptions { log_bytes: size, ..tiny(epoch) };
    let sim = quiet(SimDisk::new(10), 10);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), options(1), Lsn(0))?;
    let mut model = Records::new();
    fill(&log, 20 << 20, 20_000, &mut model)?;
    let redo = model[model.len() / 2].0;
    log.set_checkpoint(redo)?;
    model.drain(..model.len() / 2);
    let before = files(&sim);
    log.shrink_for_close()?;
    let (end, after) = (log.end(), files(&sim));
    drop(log);
    let (kept, most) = (after.iter().sum::<u64>(), (end.0 - redo.0) + 2 * (4 << 20));
    assert!(kept <= most && after.len() + 3 <= before.len(), "{before:?}, then {after:?}");
    let (records, found) = read(&rt, redo)?;
    assert_eq!(records, model);
    let log = Log::create(rt.clone(), options(2), found.end)?;
    let small = [1 << 20; 2];
    assert_eq!(files(&sim)[after.len()..], small, "two ahead");
    log.set_checkpoint(redo)?;
    fill(&log, 30 << 20, 20_000, &mut Records::new())?;
    assert_eq!(files(&sim).last(), Some(&(4 << 20)), "full size again");
    Ok(())
}

/// Appends, commits, checkpoints, rests, and another size now and then.
fn script(rt: &Arc<Runtime>, end: LogEnd, out: &mut Outside, rng: &mut Rng, n: u64) -> Result<()> {
    let log = Log::create(rt.clone(), tiny(end.epoch + 1), end.end)?;
    out.acked = out.appended.len();
    log.set_checkpoint(out.checkpoint)?;
    for _ in 0..n {
        let mut body = rng.body();
        body.truncate(6000);
        let lsn = append(&log, &body)?;
        out.appended.push((lsn, body));
        if rng.below(10) == 0 {
            log.set_log_bytes(SMALL << rng.below(4));
        }
        match rng.below(4) {
            0 => log.wait_durable(lsn)?,
            1 => while log.beat()? == Beat::More {},
            2 if rng.below(4) == 0 => {
                while log.beat()? == Beat::More {}
                log.shared().segments.set_activity(Activity::Idle);
                while log.beat()? == Beat::More {}
            }
            _ => {}
        }
        while out.acked < out.appended.len() && log.is_durable(out.appended[out.acked].0) {
            out.acked += 1;
        }
        let is_old = log.age() > log.age_target() / 2;
        if is_old || rng.below(20) == 0 {
            log.wait_durable(lsn)?;
            out.acked = out.appended.len();
            out.checkpoint = lsn;
            log.set_checkpoint(lsn)?;
        }
    }
    log.wait_durable(log.end())?;
    out.acked = out.appended.len();
    log.shrink_for_close()
}

/// A crash at every call of lives in which the size changes, the log rests, and is closed: no
/// acknowledged record is lost, no segment is missing.
#[test]
fn crash_at_every_call_while_the_size_changes() {
    let (mut crashes, mut call) = (0, 0);
    loop {
        call += 1;
        let mut rng = Rng(call * 2 + 1);
        let mut disk = SimDisk::new(call);
        let mut out = Outside::default();
        let mut end = LogEnd { end: Lsn(0), epoch: 0 };
        let mut crashed = false;
        for life in 0..3 {
            let sim = quiet(disk.clone(), call + life);
            let at = if life == 0 { call } else { 1 + rng.below(80) };
            sim.disk().crash_at(sim.disk().calls() + at);
            let rt = sim.runtime();
            let n = if life == 0 { 250 } else { 40 };
            let result = catch_crash(|| script(&rt, end, &mut out, &mut rng, n));
            if let Some(Err(error)) = &result {
                assert!(sim.is_crashed() || is_crash(error), "call {call} life {life}: {error}");
            }
            crashed |= life == 0 && sim.is_crashed();
            sim.disk().crash_now();
            let policy = CrashPolicy::ALL[((call + life) % 9) as usize];
            disk = sim.disk().crash(policy, rng.below(1 << 40));
            let survivor = quiet(disk.clone(), call);
            let what = format!("call {call} life {life} {policy:?}");
            let found = check_survivor(&survivor.runtime(), &mut out, &what);
            end = LogEnd { end: found.end, epoch: end.epoch.max(found.epoch) + 1 };
        }
        crashes += u64::from(crashed);
        if !crashed {
            break;
        }
    }
    println!("{crashes} crash points");
    assert!(crashes > 200);
}
