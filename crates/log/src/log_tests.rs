//! Tests of the log against a model: a list of (lsn, kind, body).

use crate::{Durability, Log, LogEnd, LogOptions, Replay, Share, replay};
use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Cause, Code, Lsn, Result};
use evenkeel_format::record::RecordKind;
use evenkeel_format::wal::{BLOCK, SEGMENT_HEADER, segment_number};
use evenkeel_io::Runtime;
use evenkeel_io::sim::{
    CrashPolicy, Fault, FaultKind, Session, SimDisk, SimEnv, SimOptions, When, catch_crash,
    is_crash,
};
use std::sync::Arc;

/// Records as appended or replayed.
type Records = Vec<(Lsn, Vec<u8>)>;

#[derive(Default)]
struct Collect(Records);

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

fn read(rt: &Runtime, from: Lsn) -> Result<(Records, LogEnd)> {
    let mut records = Collect::default();
    let end = replay(rt, from, None, &mut records)?;
    Ok((records.0, end))
}

fn append(log: &Log, body: &[u8]) -> Result<Lsn> {
    let mut r = log.reserve(body.len(), Share::User)?;
    Ok(log.append(&mut r, RecordKind::Row, &[&body[..body.len() / 2], &body[body.len() / 2..]]))
}

struct Rng(u64);
impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
    fn body(&mut self) -> Vec<u8> {
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
fn quiet(disk: SimDisk, seed: u64) -> SimEnv {
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

/// What a test knows from outside the simulated machine.
#[derive(Default, Clone)]
struct Outside {
    appended: Records,
    /// Records appended so far that were acknowledged as durable.
    acked: usize,
    checkpoint: Lsn,
}

/// A log of eight segments of 32 KiB, so that a short script wraps it.
fn tiny(epoch: u32) -> LogOptions {
    LogOptions { log_bytes: 256 << 10, buffer_bytes: 32 << 10, epoch }
}

/// Appends, commits, checkpoints; what happened is in `out`, also after a crash.
fn script(rt: &Arc<Runtime>, end: LogEnd, out: &mut Outside, rng: &mut Rng, n: u64) -> Result<()> {
    let log = Log::create(rt.clone(), tiny(end.epoch + 1), end.end)?;
    // What was replayed counts from here on.
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

/// Replays after a crash; every acknowledged record is there, and nothing but a prefix.
fn check_survivor(rt: &Runtime, out: &mut Outside, what: &str) -> LogEnd {
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
        // Or only the process ends: what is written stays, synced or not.
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
            disk = sim.disk().crash(policy, rng.below(1 << 40));
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
