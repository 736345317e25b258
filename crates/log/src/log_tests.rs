//! Tests of the log against a model: a list of (lsn, kind, body).

use crate::{Durability, Log, LogEnd, LogOptions, Replay, Share, replay};
use evenkeel_base::{Beat, Code, Lsn, Result};
use evenkeel_format::record::RecordKind;
use evenkeel_io::sim::{CrashPolicy, SimDisk, SimEnv, SimOptions};
use evenkeel_io::{Event, Runtime};
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
