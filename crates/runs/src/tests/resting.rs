//! An unhurried flush takes its time (RFC 32).

use super::test_support::{Fixture, spec};
use evenkeel_base::{Beat, Cause};
use evenkeel_format::record::entry_op;
use evenkeel_io::sim::{SimDisk, SimEnv, SimOptions};
use std::time::Duration;

const ENTRIES: u64 = 160_000;
const FILL: Duration = Duration::from_secs(12);

/// Inserts `entries` entries and seals their generation.
fn fill(rig: &Fixture, entries: u64) {
    (0..entries).for_each(|n| rig.put(1, entry_op::INS, &n.to_be_bytes(), b"p"));
    rig.runs.seal_active();
}

/// Flushes sealed generations like the thread; returns the seconds it took, calling `beside` after
/// beats.
fn flush(rig: &Fixture, mut beside: impl FnMut(u64)) -> f64 {
    let (start, mut beats) = (rig.rt.env.now_ns(), 0);
    while rig.runs.flush_beat().expect("flushes") == Beat::More {
        beats += 1;
        beside(beats);
        rig.runs.flush_rest();
    }
    (rig.rt.env.now_ns() - start) as f64 / 1e9
}

#[test]
fn a_flush_takes_a_part_of_the_time_that_its_generation_took_to_fill() {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let (env, (done, over)) = (sim.env(), std::sync::mpsc::channel());
    sim.run(vec![Box::new(move || {
        let rig = Fixture::simulated(env, 64 << 20);
        rig.runs.add_index(spec(1, false, false));
        let wait = |time| rig.rt.delay(time, Cause::Idle);
        fill(&rig, ENTRIES);
        assert!(flush(&rig, |_| ()) < 1.0, "it was filled at once");
        wait(FILL);
        fill(&rig, ENTRIES);
        let paced = rig.runs.flush_line.ns_per_kib();
        let took = flush(&rig, |_| ());
        assert!((2.5..4.0).contains(&took), "a quarter of 12 s: {took}");
        let now = rig.runs.flush_line.ns_per_kib();
        assert!(now < 2 * paced + 1_000, "its rests are no work: {now}, {paced}");
        // Another generation waits.
        wait(FILL);
        fill(&rig, ENTRIES);
        fill(&rig, 10);
        assert!(flush(&rig, |_| ()) < 1.0);
        // From some beat on.
        wait(FILL);
        fill(&rig, ENTRIES);
        let took = flush(&rig, |beats| {
            if beats == 5 {
                fill(&rig, 10);
            }
        });
        assert!((0.3..2.0).contains(&took), "{took}");
        // A checkpoint is to advance beyond it.
        wait(FILL);
        fill(&rig, ENTRIES);
        rig.runs.hand_over_below(rig.log.next());
        assert!(flush(&rig, |_| ()) < 1.0);
        assert_eq!(rig.count(1), ENTRIES as usize);
        done.send(()).expect("heard");
    })]);
    over.try_recv().expect("the body ran to its end");
}
