//! Tests of the log against a model: a list of (lsn, kind, body).

use crate::{Durability, Limits, Log, LogEnd, LogOptions, Replay, Share, replay};
use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Cause, Code, Error, Lsn, Result};
use evenkeel_format::record::RecordKind;
use evenkeel_format::wal::{BLOCK, SEGMENT_HEADER, segment_number};
use evenkeel_io::sim::{
    CrashPolicy, Fault, FaultKind, Session, SimDisk, SimEnv, SimOptions, When, catch_crash,
    is_crash,
};
use evenkeel_io::{OpenMode, RealEnv, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Records as appended or replayed.
pub(crate) type Records = Vec<(Lsn, Vec<u8>)>;

#[derive(Default)]
pub(crate) struct Collect(pub Records);

impl Replay for Collect {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        assert_eq!(kind, RecordKind::Row);
        self.0.push((lsn, body.to_vec()));
        Ok(())
    }
}

fn options(epoch: u32) -> LogOptions {
    LogOptions { log_bytes: 1 << 20, buffer_bytes: 128 << 10, epoch }
}

pub(crate) fn read(rt: &Arc<Runtime>, from: Lsn) -> Result<(Records, LogEnd)> {
    let mut records = Collect::default();
    let end = replay(rt, from, None, &mut records)?;
    Ok((records.0, end))
}

pub(crate) fn append(log: &Log, body: &[u8]) -> Result<Lsn> {
    let mut r = log.reserve(body.len(), Share::User)?;
    Ok(log.append(&mut r, RecordKind::Row, &[&body[..body.len() / 2], &body[body.len() / 2..]]))
}

pub(crate) struct Rng(pub u64);
impl Rng {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
    pub(crate) fn body(&mut self) -> Vec<u8> {
        let len = match self.below(20) {
            0 => self.below(20_000),
            1..4 => 470 + self.below(20),
            _ => self.below(300),
        };
        let byte = self.below(256) as u8;
        (0..len).map(|i| byte.wrapping_add(i as u8)).collect()
    }
}

/// A simulated machine that never switches threads: the test's own thread drives it.
pub(crate) fn quiet(disk: SimDisk, seed: u64) -> SimEnv {
    SimEnv::on(
        disk,
        SimOptions {
            seed,
            step_switch: 0,
            wait_switch: 1 << 40,
            io_switch: 1 << 40,
            latency: false,
        },
    )
}

#[test]
fn records_come_back_in_order() -> Result<()> {
    let sim = quiet(SimDisk::new(1), 1);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), options(1), Lsn(0))?;
    let (mut rng, mut model) = (Rng(7), Records::new());
    for i in 0..500 {
        let body = rng.body();
        model.push((append(&log, &body)?, body));
        if i % 7 == 0 {
            let lsn = model[i].0;
            assert!(!log.is_durable(lsn));
            log.wait_durable(lsn)?;
            assert!(log.is_durable(lsn));
        }
    }
    log.wait_durable(log.end())?;
    assert!(model.iter().all(|(lsn, _)| lsn.0 > 0 && log.is_durable(*lsn)));
    let (records, end) = read(&rt, Lsn(0))?;
    assert_eq!(records, model);
    assert_eq!(end.epoch, 1);
    // From any record on, and until any.
    for at in [1, 100, 499] {
        assert_eq!(read(&rt, model[at].0)?.0, model[at..]);
        let mut some = Collect::default();
        replay(&rt, Lsn(0), Some(model[at].0), &mut some)?;
        assert_eq!(some.0, model[..at]);
    }
    Ok(())
}

/// The state that a test keeps outside of the simulated machine.
#[derive(Default, Clone)]
pub(crate) struct Outside {
    pub(crate) appended: Records,
    /// Records appended so far that were acknowledged as durable.
    pub(crate) acked: usize,
    pub(crate) checkpoint: Lsn,
}

/// A log of eight segments of 32 KiB: a short script fills all of it.
pub(crate) fn tiny(epoch: u32) -> LogOptions {
    LogOptions { log_bytes: 256 << 10, buffer_bytes: 32 << 10, epoch }
}

/// Appends, commits and takes checkpoints; `out` records the steps, also after a crash.
fn script(rt: &Arc<Runtime>, end: LogEnd, out: &mut Outside, rng: &mut Rng, n: u64) -> Result<()> {
    // Some devices take blocks of 512 bytes, others only of 4 KiB.
    let align = if rng.below(4) == 0 { 8 } else { 1 };
    let log = Log::create_aligned(rt.clone(), tiny(end.epoch + 1), end.end, align)?;
    // Replayed records count as durable from here on.
    out.acked = out.appended.len();
    log.set_checkpoint(out.checkpoint)?;
    for _ in 0..n {
        let mut body = rng.body();
        body.truncate(4000);
        let lsn = append(&log, &body)?;
        out.appended.push((lsn, body));
        match rng.below(8) {
            0..3 => log.wait_durable(lsn)?,
            3 => log.wait_commit(lsn, Durability::Write)?,
            4 => log.wait_commit(lsn, Durability::Lazy)?,
            5 => drop(log.beat()?),
            _ => {}
        }
        while out.acked < out.appended.len() && log.is_durable(out.appended[out.acked].0) {
            out.acked += 1;
        }
        if out.acked > 0 && (log.age() > log.age_target() / 2 || rng.below(20) == 0) {
            let at = out.appended[out.acked - 1].0;
            out.checkpoint = out.checkpoint.max(at);
            log.set_checkpoint(at)?;
        }
    }
    Ok(())
}

/// Replays after a crash; every acknowledged record is found, and the records are a prefix.
pub(crate) fn check_survivor(rt: &Arc<Runtime>, out: &mut Outside, what: &str) -> LogEnd {
    let (records, end) = match read(rt, out.checkpoint) {
        Ok(read) => read,
        Err(error) => panic!("{what}: {error}"),
    };
    let first = out.appended.partition_point(|(lsn, _)| *lsn < out.checkpoint);
    let expected = &out.appended[first..];
    assert!(records.len() <= expected.len(), "{what}: records nobody appended");
    assert_eq!(records, expected[..records.len()], "{what}: not a prefix");
    assert!(first + records.len() >= out.acked, "{what}: acknowledged records lost");
    out.appended.truncate(first + records.len());
    end
}

/// Four lives with a crash at call `call` of the first one and at random calls of the others.
fn lives(seed: u64, call: u64, policy: CrashPolicy, epochs: &mut u32, segments: &mut u64) -> bool {
    let mut rng = Rng(seed * 2 + 1);
    let mut disk = SimDisk::new(seed);
    let mut out = Outside::default();
    let mut end = LogEnd { end: Lsn(0), epoch: 0 };
    let mut crashed = false;
    for life in 0..4 {
        let sim = quiet(disk.clone(), seed + life);
        let at = if life == 0 { call } else { 1 + rng.below(60) };
        // In some lives only the process ends: its writes stay, synced or not.
        let killed = life > 0 && rng.below(3) == 0;
        if !killed {
            sim.disk().crash_at(sim.disk().calls() + at);
        }
        let rt = sim.runtime();
        let n = if life == 0 { 800 } else { 40 };
        let result = catch_crash(|| script(&rt, end, &mut out, &mut rng, n));
        if let Some(Err(error)) = &result {
            assert!(sim.is_crashed() || is_crash(error), "seed {seed} call {call}: {error}");
        }
        crashed |= life == 0 && sim.is_crashed();
        let names = sim.disk().paths();
        let numbers = names.iter().filter_map(|p| segment_number(p.strip_prefix("wal/")?));
        *segments = numbers.max().unwrap_or(0).max(*segments);
        if !killed {
            sim.disk().crash_now();
            // A later crash of the machine loses the writes that a killed process has not synced.
            let last = life % 2 == 1 && policy == CrashPolicy::Killed;
            let of = if last { CrashPolicy::ALL[rng.below(9) as usize] } else { policy };
            disk = sim.disk().crash(of, rng.below(1 << 40));
        }
        let survivor = quiet(disk.clone(), seed);
        let what = format!("seed {seed} call {call} life {life} {policy:?}");
        let found = check_survivor(&survivor.runtime(), &mut out, &what);
        end = LogEnd { end: found.end, epoch: end.epoch.max(found.epoch) + 1 };
        *epochs = end.epoch.max(*epochs);
    }
    crashed
}

#[test]
fn crash_at_every_call() {
    let (mut states, mut epochs, mut segments) = (0, 0, 0);
    for call in 1.. {
        let policies = CrashPolicy::ALL.len() as u64;
        let mut crashed = false;
        for i in 0..policies {
            let policy = CrashPolicy::ALL[i as usize];
            crashed |= lives(call * 10 + i, call, policy, &mut epochs, &mut segments);
            states += 4;
        }
        if !crashed {
            println!("{call} calls, {states} surviving disks checked, epochs up to {epochs}");
            assert!(segments > 12, "the log wrapped: {segments} segments");
            assert!(call > 150);
            return;
        }
    }
}

/// Sessions append and commit in every mode while a beat thread works; the seed interleaves them
/// and, in half of the runs, a crash ends them.
fn sessions(seed: u64) -> (u64, u64) {
    let sim = SimEnv::new(seed);
    let rt = sim.runtime();
    let mut rng = Rng(seed * 2 + 1);
    let out = Arc::new(Mutex::new(Outside::default()));
    let log = match catch_crash(|| Log::create(rt.clone(), tiny(1), Lsn(0))) {
        Some(Ok(log)) => log,
        other => panic!("seed {seed}: {:?}", other.map(|r| r.err())),
    };
    if seed.is_multiple_of(2) {
        sim.disk().crash_at(sim.disk().calls() + 1 + rng.below(250));
    }
    if seed % 4 == 1 {
        // An error that only one of two syncs sees must not let the other acknowledge.
        let when = When::Nth(1 + rng.below(30));
        sim.disk().inject(Fault::on("wal/0", FaultKind::SyncError, when));
    }
    let background = (rt.clone(), log.clone());
    rt.spawn("log", move || {
        let (rt, log) = background;
        while !rt.health.is_failed() {
            let event = log.event();
            let seen = event.now();
            if log.beat().is_ok_and(|beat| beat == Beat::Idle) {
                rt.wait(&event, seen, log.next_beat_in(), Cause::Idle);
            }
        }
    })
    .expect("a thread");
    let mut bodies: Vec<Session> = (0..4)
        .map(|i| {
            let (rt, log, out) = (rt.clone(), log.clone(), out.clone());
            let mut rng = Rng(seed * 8 + i + 1);
            Box::new(move || session(&rt, &log, &out, &mut rng)) as Session
        })
        .collect();
    if seed % 4 == 3 {
        // Another layer stops writes at some moment in a group's life.
        let (rt, ms) = (rt.clone(), 1 + rng.below(60));
        bodies.push(Box::new(move || {
            rt.delay(std::time::Duration::from_millis(ms), Cause::Idle);
            let _ = rt.health.fail(Error::new(Code::SyncFailed));
        }));
    }
    sim.run(bodies);
    let commits = out.lock().appended.len() as u64;
    let syncs = rt.metrics.get(Metric::LogSyncs);
    let after = sim.crash(CrashPolicy::ALL[(seed % 9) as usize], seed);
    let quiet = quiet(after.disk().clone(), seed);
    let mut known = out.lock().clone();
    known.appended.sort();
    let acked = known.checkpoint;
    known.acked = known.appended.partition_point(|(lsn, _)| *lsn <= acked);
    known.checkpoint = Lsn(0);
    check_survivor(&quiet.runtime(), &mut known, &format!("seed {seed}"));
    (commits, syncs)
}

/// One session; `checkpoint` of `out` is the largest acknowledged LSN.
fn session(rt: &Runtime, log: &Log, out: &Mutex<Outside>, rng: &mut Rng) {
    for _ in 0..25 {
        let mut body = rng.body();
        body.truncate(1000);
        let Ok(mut r) = log.reserve(body.len(), Share::User) else { return };
        let (lsn, ()) = log.append_with(&mut r, RecordKind::Row, &[&body], |lsn| {
            out.lock().appended.push((lsn, body.clone()));
        });
        drop(r);
        if rng.below(6) == 0 {
            // Long enough that the beat's sync meets those of leaders.
            rt.delay(std::time::Duration::from_millis(400), Cause::Idle);
        }
        rt.step();
        let done = match rng.below(8) {
            0 => log.wait_commit(lsn, Durability::Write),
            1 => log.wait_commit(lsn, Durability::Lazy),
            _ => log.wait_durable(lsn),
        };
        if done.is_err() {
            return;
        }
        if log.is_durable(lsn) {
            let mut out = out.lock();
            out.checkpoint = out.checkpoint.max(lsn);
        }
    }
}

#[test]
fn group_commit_under_every_interleaving() {
    let (mut commits, mut syncs) = (0, 0);
    for seed in 1..=400 {
        let (c, s) = sessions(seed);
        commits += c;
        syncs += s;
    }
    println!("{commits} commits, {syncs} syncs");
    assert!(syncs < commits * 2 / 3, "groups form: {syncs} syncs for {commits} commits");
}

/// A bit flipped below what later blocks state to be durable is refused by name; one in the last
/// group is where the log ends.
#[test]
fn rot_is_distinguished_from_the_end_of_the_log() -> Result<()> {
    let sim = quiet(SimDisk::new(3), 3);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), options(1), Lsn(0))?;
    let mut rng = Rng(11);
    let mut model = Records::new();
    for _ in 0..40 {
        let mut body = rng.body();
        body.truncate(2000);
        let lsn = append(&log, &body)?;
        log.wait_durable(lsn)?;
        model.push((lsn, body));
    }
    let last_group = model[39].0.0 / 480;
    for block in 1..log.end().0 / 480 {
        let disk = sim.disk().crash(CrashPolicy::KeepAll, block);
        let offset = SEGMENT_HEADER as u64 + block * BLOCK as u64;
        assert!(disk.flip_bit("wal/00000001.wal", offset + rng.below(512), 3));
        let rt = quiet(disk, 1).runtime();
        match read(&rt, Lsn(0)) {
            Err(error) => {
                assert!(block < last_group, "block {block}: {error}");
                assert_eq!(error.code(), Code::LogDamaged);
                assert_eq!(error.context("file"), Some("wal/00000001.wal"));
                assert_eq!(error.context("offset"), Some(offset.to_string().as_str()));
            }
            Ok((records, _)) => {
                assert!(block >= last_group, "block {block} of {last_group} is not missed");
                assert_eq!(records, model[..39]);
            }
        }
    }
    Ok(())
}

/// A waiter for buffer room that another thread has reserved does not write: there is nothing to
/// write.
#[test]
fn waiting_for_reserved_buffer_room_writes_nothing() -> Result<()> {
    let sim = SimEnv::new(5);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), tiny(1), Lsn(0))?;
    sim.run(vec![Box::new(move || {
        let _ = append(&log, &[1; 100]);
        let refused = log.reserve(1 << 40, Share::User).map(|_| ()).expect_err("more than all");
        let limit: usize = refused.context("limit").and_then(|l| l.parse().ok()).expect("a limit");
        let largest = (0..limit).rev().find_map(|bytes| log.reserve(bytes, Share::User).ok());
        let (second, done) = (log.clone(), Arc::new(AtomicBool::new(false)));
        let granted = done.clone();
        let waiter = move || {
            granted.store(second.reserve(1000, Share::User).is_ok(), Ordering::SeqCst);
        };
        let waiter = rt.spawn("waiter", waiter).expect("a thread");
        rt.delay(std::time::Duration::from_secs(1), Cause::Idle);
        assert!(!done.load(Ordering::SeqCst), "there is no room");
        drop(largest);
        assert!(waiter.join().is_ok() && done.load(Ordering::SeqCst));
    })]);
    Ok(())
}

/// Users wait in order for the checkpoint; other shares use their parts; no waiter is left without
/// a reason.
#[test]
fn log_space_is_granted_in_order() -> Result<()> {
    let sim = SimEnv::new(5);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), tiny(1), Lsn(0))?;
    let fill = log.clone();
    let rt2 = rt.clone();
    sim.run(vec![Box::new(move || {
        while fill.age() + 3000 < fill.capacity() {
            let _ = append(&fill, &[1; 1500]);
            let _ = fill.wait_durable(fill.end());
        }
        // Commits of admitted users still go through, and so do the checkpoint's records.
        for share in [Share::System, Share::Checkpoint] {
            let before = fill.age().max(fill.capacity());
            while fill.age() < before + 14_000 {
                let Ok(mut r) = fill.reserve(1000, share) else { panic!("no room for {share:?}") };
                fill.append(&mut r, RecordKind::Row, &[&[2; 1000]]);
                let _ = fill.wait_durable(fill.end());
            }
        }
        let full = loop {
            match fill.reserve(1000, Share::Checkpoint) {
                Ok(mut r) => drop(fill.append(&mut r, RecordKind::Row, &[&[2; 1000]])),
                Err(error) => break error,
            }
        };
        assert_eq!(full.code(), Code::LogFull);
        assert!(rt2.stalls.get(Cause::LogSpace).count > 0, "delays between target and trigger");
    })]);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut bodies: Vec<Session> = Vec::new();
    for i in 0..4u64 {
        let (rt, log, order) = (rt.clone(), log.clone(), order.clone());
        bodies.push(Box::new(move || {
            rt.delay(std::time::Duration::from_millis(10 * (i + 1)), Cause::Idle);
            assert!(append(&log, &[3; 4000]).is_ok());
            order.lock().push(i);
        }));
    }
    let (rt3, log3, order3) = (rt.clone(), log.clone(), order.clone());
    bodies.push(Box::new(move || {
        rt3.delay(std::time::Duration::from_millis(500), Cause::Idle);
        assert!(order3.lock().is_empty(), "users wait");
        while order3.lock().len() < 4 {
            let at = Lsn(log3.checkpoint_lsn().0 + 2000).min(log3.durable());
            assert!(log3.set_checkpoint(at).is_ok());
            assert!(log3.wait_durable(log3.end()).is_ok());
            rt3.delay(std::time::Duration::from_millis(1), Cause::Idle);
        }
    }));
    sim.run(bodies);
    assert_eq!(*order.lock(), [0, 1, 2, 3]);
    assert_eq!(log.reserve(1 << 20, Share::User).err().map(|e| e.code()), Some(Code::LogTooLarge));
    Ok(())
}

/// Whoever waits for log space is woken when writes stop, by an event: no timer takes part.
/// A log that was left long and is opened with a smaller size: recovery and the checkpoint write,
/// and users do once the checkpoint has moved. The limits are then those of the size set.
#[test]
fn a_log_found_longer_than_its_size_lets_the_checkpoint_move() -> Result<()> {
    let sim = quiet(SimDisk::new(1), 1);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), options(1), Lsn(0))?;
    let redo = append(&log, &[1; 100])?;
    while log.age() < log.capacity() - 30_000 {
        append(&log, &[2; 10_000])?;
        log.wait_durable(log.end())?;
        while log.beat()? != Beat::Idle {}
    }
    drop(log);
    let (_, end) = read(&rt, redo)?;
    let log = Log::create(rt.clone(), tiny(2), end.end)?;
    log.set_checkpoint(redo)?;
    let limits = Limits::of_log(tiny(2).log_bytes);
    assert!(log.age() > 2 * limits.checkpoint, "{} bytes", log.age());
    // No thread that could help exists yet.
    let mut loser = log.reserve(1000, Share::System)?;
    log.append(&mut loser, RecordKind::Row, &[&[3; 1000]]);
    let mut manifest = log.reserve(20_000, Share::Checkpoint)?;
    log.append(&mut manifest, RecordKind::Row, &[&[4; 20_000]]);
    drop((loser, manifest));
    log.wait_durable(log.end())?;
    log.set_checkpoint(log.durable())?;
    append(&log, &[5; 1000])?;
    // The limit is the size that was set: a reservation that only the longer log could hold is too
    // large.
    let mut held = Vec::new();
    while let Ok(r) = log.reserve(10_000, Share::Checkpoint) {
        held.push(r);
    }
    let held = held.len() as u64 * 10_000;
    assert!(held > limits.user && held <= limits.checkpoint, "{held} of {}", limits.checkpoint);
    Ok(())
}

#[test]
fn waiters_for_log_space_wake_when_writes_stop() -> Result<()> {
    let sim = SimEnv::new(6);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), tiny(1), Lsn(0))?;
    while let Ok(mut r) = log.reserve(1000, Share::Checkpoint) {
        log.append(&mut r, RecordKind::Row, &[&[1; 1000]]);
        log.wait_durable(log.end())?;
    }
    let mut bodies: Vec<Session> = Vec::new();
    let ended = Arc::new(Mutex::new(0));
    for share in [Share::User, Share::System, Share::User] {
        let (log, ended) = (log.clone(), ended.clone());
        bodies.push(Box::new(move || {
            let code = log.reserve(1000, share).err().map(|e| e.code());
            assert_eq!(code, Some(Code::WritesStopped));
            *ended.lock() += 1;
        }));
    }
    let (rt2, ended2) = (rt.clone(), ended.clone());
    bodies.push(Box::new(move || {
        rt2.delay(std::time::Duration::from_secs(10), Cause::Idle);
        assert_eq!(*ended2.lock(), 0, "they wait");
        rt2.health.fail(evenkeel_base::Error::new(Code::WriteFailed).with("file", "pages/1"));
    }));
    sim.run(bodies);
    assert_eq!(*ended.lock(), 3);
    let waits = rt.stalls.get(Cause::LogSpace);
    assert!(waits.count <= 6, "{} waits: somebody looks now and then", waits.count);
    Ok(())
}

/// On a full disk users get an error before the ballast is touched and commits continue; when there
/// is space again, users continue. Writes are not stopped for good.
#[test]
fn a_full_disk_refuses_users_and_admits_commits() -> Result<()> {
    let sim = quiet(SimDisk::new(4), 4);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), tiny(1), Lsn(0))?;
    sim.disk().set_capacity(Some(sim.disk().used_bytes()));
    let error = loop {
        match append(&log, &[1; 1000]) {
            Ok(lsn) => log.wait_durable(lsn)?,
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), Code::DiskFull);
    let at = log.end();
    for _ in 0..30 {
        let mut r = log.reserve(1000, Share::System)?;
        let lsn = log.append(&mut r, RecordKind::Row, &[&[2; 1000]]);
        drop(r);
        log.wait_durable(lsn)?;
    }
    assert!(log.end().0 > at.0 + 40_000 && !rt.health.is_failed());
    assert_eq!(append(&log, &[1; 1000]).err().map(|e| e.code()), Some(Code::DiskFull));
    sim.disk().set_capacity(None);
    let lsn = append(&log, &[1; 1000])?;
    log.wait_durable(lsn)?;
    assert!(read(&rt, Lsn(0))?.0.len() > 40);
    Ok(())
}

/// The first failed write or sync stops all claims of durability; appends continue.
#[test]
fn the_first_failed_write_or_sync_stops_claims_of_durability() -> Result<()> {
    for kind in [FaultKind::WriteError, FaultKind::ShortWrite, FaultKind::SyncError] {
        let sim = quiet(SimDisk::new(4), 4);
        let rt = sim.runtime();
        let log = Log::create(rt.clone(), tiny(1), Lsn(0))?;
        let good = append(&log, b"good")?;
        log.wait_durable(good)?;
        let mut late = log.reserve(10, Share::System)?;
        let bad = append(&log, b"bad")?;
        sim.disk().inject(Fault::new(kind, When::Nth(1)));
        assert!(log.wait_durable(bad).is_err());
        assert!(rt.health.is_failed() && !log.is_durable(bad));
        log.append(&mut late, RecordKind::Row, &[b"late"]);
        for _ in 0..2 {
            let code = log.wait_durable(bad).err().map(|e| e.code());
            assert_eq!(code, Some(Code::WritesStopped), "{kind:?}");
        }
        assert!(log.reserve(1, Share::User).is_err() && log.beat().is_err());
        assert!(!log.is_durable(bad));
        drop(log);
        let known = read(&rt, Lsn(0))?.0;
        assert!(!known.is_empty() && known[0].1 == b"good");
    }
    Ok(())
}

/// An idle log sets no timer; a log with unsynced commits sets one of a second.
#[test]
fn lazy_commits_are_synced_within_a_second() -> Result<()> {
    let sim = quiet(SimDisk::new(9), 9);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), tiny(1), Lsn(0))?;
    while log.beat()? == Beat::More {}
    assert_eq!(log.next_beat_in(), None);
    for mode in [Durability::Write, Durability::Lazy] {
        let lsn = append(&log, b"x")?;
        log.wait_commit(lsn, mode)?;
        assert!(!log.is_durable(lsn));
        let left = log.next_beat_in().expect("a time");
        assert!(left.as_millis() > 900);
        assert_eq!(log.beat()?, Beat::Idle);
        let syncs = rt.metrics.get(Metric::LogSyncs);
        rt.delay(left, Cause::Idle);
        assert_eq!(log.beat()?, Beat::More);
        assert!(log.is_durable(lsn));
        assert_eq!(rt.metrics.get(Metric::LogSyncs), syncs + 1);
        assert_eq!(log.next_beat_in(), None);
    }
    Ok(())
}

/// No content of a segment makes a scan panic or return records that were never appended.
#[test]
fn mutated_segments_are_refused_or_end_the_log() -> Result<()> {
    let sim = quiet(SimDisk::new(6), 6);
    let rt = sim.runtime();
    let log = Log::create(rt.clone(), tiny(1), Lsn(0))?;
    let mut rng = Rng(13);
    let mut model = Records::new();
    for _ in 0..60 {
        let mut body = rng.body();
        body.truncate(1500);
        let lsn = append(&log, &body)?;
        log.wait_durable(lsn)?;
        model.push((lsn, body));
    }
    let (mut refused, mut cut) = (0, 0);
    for seed in 0..3000 {
        let disk = sim.disk().crash(CrashPolicy::KeepAll, seed);
        let path = format!("wal/0000000{}.wal", 1 + rng.below(3));
        for _ in 0..1 + rng.below(4) {
            let in_header = rng.below(4) == 0;
            let offset = if in_header { rng.below(48) } else { rng.below(32 << 10) };
            let bytes: Vec<u8> = (0..1 + rng.below(20)).map(|_| rng.below(256) as u8).collect();
            disk.corrupt(&path, offset, &bytes);
        }
        if rng.below(20) == 0 {
            disk.truncate(&path, rng.below(32 << 10));
        }
        match read(&quiet(disk, 1).runtime(), Lsn(0)) {
            Err(_) => refused += 1,
            Ok((records, _)) => {
                assert_eq!(records, model[..records.len()], "seed {seed}");
                // Only the last group has no later block that states its durability.
                assert!(records.len() >= model.len() - 1, "seed {seed}: silently cut");
                cut += u64::from(records.len() < model.len());
            }
        }
    }
    println!("{refused} refused, {cut} without the last record");
    assert!(refused > 500);
    Ok(())
}

/// Operating system threads and real files: every acknowledged record is found, in order.
#[test]
fn threads_commit_together() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rt = Runtime::new(Arc::new(RealEnv::new(dir.path())));
    let options = LogOptions { log_bytes: 32 << 20, buffer_bytes: 256 << 10, epoch: 1 };
    let log = Log::create(rt.clone(), options, Lsn(0))?;
    let commits = Arc::new(Mutex::new(Records::new()));
    let together = Arc::new(std::sync::Barrier::new(8));
    let tasks: Vec<_> = (0..8u64)
        .map(|i| {
            let (log, commits, together) = (log.clone(), commits.clone(), together.clone());
            rt.spawn("committer", move || {
                let mut rng = Rng(i + 1);
                for n in 0..150 {
                    let body = rng.body();
                    let lsn = append(&log, &body).expect("space");
                    // Sometimes all threads have appended before one waits: that is one sync.
                    if n % 2 == 0 {
                        together.wait();
                    }
                    if n % 10 < 7 {
                        log.wait_durable(lsn).expect("a sync");
                    }
                    commits.lock().push((lsn, body));
                }
            })
        })
        .collect::<Result<_>>()?;
    for task in tasks {
        task.join()?;
    }
    log.wait_durable(log.end())?;
    let mut commits = std::mem::take(&mut *commits.lock());
    commits.sort();
    assert_eq!(read(&rt, Lsn(0))?.0, commits);
    // Of 105 waits of each thread 60 come after the others' records; in the other 45 each may sync
    // for itself where a sync is quick. Segments are synced too.
    let syncs = rt.metrics.get(Metric::LogSyncs);
    println!("{syncs} syncs");
    assert!(syncs <= 60 + 8 * 45 + 20, "{syncs} syncs");
    Ok(())
}

/// The longest record fits a buffer of just that size; commits of open transactions get room of
/// their own.
#[test]
fn long_records_and_many_reservations() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rt = Runtime::new(Arc::new(RealEnv::new(dir.path())));
    let options = LogOptions { log_bytes: 64 << 20, buffer_bytes: 2400 << 10, epoch: 1 };
    let log = Log::create(rt.clone(), options, Lsn(0))?;
    let long = vec![9; crate::RECORD_BYTES_MAX];
    let mut held = Vec::new();
    for i in 0..3 {
        append(&log, &long)?;
        for _ in 0..10_000 {
            held.push(log.reserve(20, Share::System)?);
        }
        assert_eq!(held.len(), (i + 1) * 10_000);
    }
    for r in &mut held {
        log.append(r, RecordKind::Row, &[b"commit"]);
    }
    log.wait_durable(log.end())?;
    let records = read(&rt, Lsn(0))?.0;
    assert_eq!(records.len(), 30_003);
    assert!(records.iter().filter(|(_, body)| *body == long).count() == 3);
    Ok(())
}

/// A new directory stays small, its segments are kept ready, and a missing one is told by name.
#[test]
fn a_new_log_directory_is_small_and_a_missing_segment_is_named() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rt = Runtime::new(Arc::new(RealEnv::new(dir.path())));
    let options = LogOptions { log_bytes: 512 << 20, buffer_bytes: 1 << 20, epoch: 1 };
    let log = Log::create(rt.clone(), options, Lsn(0))?;
    while log.beat()? == Beat::More {}
    let bytes: u64 = rt.env.list("wal")?.iter().fold(0, |sum, name| {
        let file = rt.env.open(&format!("wal/{name}"), OpenMode::READ).expect("opens");
        sum + file.len().expect("a length")
    });
    assert_eq!((rt.env.list("wal")?.len(), bytes), (4, (1 + 1 + 1 + 2) << 20));
    assert_eq!(log.beat()?, Beat::Idle);
    for _ in 0..9 {
        let lsn = append(&log, &vec![1; 1 << 19])?;
        log.wait_durable(lsn)?;
    }
    rt.env.remove("wal/00000001.wal")?;
    let error = read(&rt, Lsn(0)).expect_err("an error");
    assert_eq!((error.code(), error.context("file")), (Code::LogMissing, Some("wal/00000001.wal")));
    Ok(())
}

/// Where commits do not sync, segments get blocks and headers but are not filled with zeros.
#[test]
fn a_buffered_log_is_not_zero_written() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rt = Runtime::new(Arc::new(RealEnv::new(dir.path())));
    let options = LogOptions { log_bytes: 512 << 20, buffer_bytes: 1 << 20, epoch: 1 };
    let prepared = |rt: &Runtime| rt.metrics.get(evenkeel_base::metrics::Metric::LogPreparedBytes);
    let log = Log::create_buffered(rt.clone(), options, Lsn(0))?;
    while log.beat()? == Beat::More {}
    assert_eq!((rt.env.list("wal")?.len(), prepared(&rt)), (4, 4 * 4096));
    append(&log, &vec![1; 1 << 19])?;
    let lsn = append(&log, &vec![2; 1 << 19])?;
    log.wait_durable(lsn)?;
    drop(log);
    // Blocks never written end the log; a later start, which writes directly, continues behind
    // them.
    let (records, end) = read(&rt, Lsn(0))?;
    assert_eq!(records.len(), 2);
    let log = Log::create(rt.clone(), LogOptions { epoch: 2, ..options }, end.end)?;
    let lsn = append(&log, b"third")?;
    log.wait_durable(lsn)?;
    assert_eq!(read(&rt, Lsn(0))?.0.len(), 3);
    Ok(())
}

/// Records of checkpoints wait for a segment that another thread prepares. The log is full only if
/// there is no such segment.
#[test]
fn a_checkpoint_waits_for_a_segment_that_another_prepares() {
    for seed in 0..60 {
        let sim = SimEnv::new(seed);
        let rt = sim.runtime();
        let log = Log::create(rt.clone(), options(1), Lsn(0)).expect("a log");
        let mut bodies: Vec<Session> = Vec::new();
        for share in [Share::User, Share::Checkpoint, Share::Checkpoint] {
            let log = log.clone();
            bodies.push(Box::new(move || {
                while log.age() + (200 << 10) < log.capacity() {
                    let mut r = log.reserve(12_000, share).expect("room");
                    let lsn = log.append(&mut r, RecordKind::Row, &[&[2; 12_000]]);
                    drop(r);
                    log.wait_durable(lsn).expect("a sync");
                }
            }));
        }
        sim.run(bodies);
    }
}
