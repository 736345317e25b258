//! Tests of what a sync acknowledges.

use crate::log_tests::{append, read};
use crate::{Durability, Log, LogOptions};
use evenkeel_base::{Cause, Lsn};
use evenkeel_io::sim::{CrashPolicy, SimDisk, SimEnv, SimOptions};
use std::sync::Arc;
use std::time::Duration;

/// When the sync of the modes that do not wait for one is due.
const DUE: Duration = Duration::from_millis(1_100);

/// Writes during a sync may not be durable at its end, and are not reported as durable: a crash
/// that loses everything unsynced shows it. The beat's sync is used, because a leader's sync blocks
/// other writers.
#[test]
fn a_sync_acknowledges_what_was_written_before_it() {
    let mut amid = 0;
    for seed in 1..=60 {
        let sim = SimEnv::on(SimDisk::new(seed), SimOptions::new(seed));
        let rt = sim.runtime();
        let options = LogOptions { log_bytes: 1 << 20, buffer_bytes: 128 << 10, epoch: 1 };
        let log = Log::create(rt.clone(), options, Lsn(0)).expect("creates");
        let write = |log: &Arc<Log>, bytes: &[u8]| {
            let lsn = append(log, bytes).expect("appends");
            log.wait_commit(lsn, Durability::Write).expect("writes");
            lsn
        };
        let (of_beat, of_second, rt_of_beat) = (log.clone(), log.clone(), rt.clone());
        let began = rt.env.now_ns();
        let until_due = move || DUE.saturating_sub(Duration::from_nanos(rt.env.now_ns() - began));
        let first = until_due.clone();
        let rt = sim.runtime();
        sim.run(vec![
            Box::new(move || {
                let lsn = write(&of_beat, &[1; 100]);
                rt_of_beat.delay(first(), Cause::Idle);
                while !of_beat.is_durable(lsn) {
                    of_beat.beat().expect("beats");
                }
            }),
            Box::new(move || {
                rt.delay(until_due() + Duration::from_micros(50 * seed), Cause::Idle);
                write(&of_second, &[2; 2_000]);
            }),
        ]);
        let after = sim.crash(CrashPolicy::LoseAll, seed);
        let (records, _) = read(&after.runtime(), Lsn(0)).expect("reads");
        let is_durable = log.is_durable(Lsn(log.end().0 - 1));
        assert!(records.len() == 2 || !is_durable, "{seed}: {} records", records.len());
        amid += u32::from(!is_durable);
    }
    assert!(amid > 5, "written amid a sync or behind it: {amid}");
}
