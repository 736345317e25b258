//! Ingest during long compactions, in virtual time: an index with a large bottom run, flushes at a
//! fixed rate, compactions that get one beat each as `choose` and `next_compaction` decide, and
//! ingest at the pace of `pace.rs` with the credit of `admission.rs`.

use super::test_support::{Fixture, Random, spec};
use evenkeel_base::{Beat, Code, Error, IndexId, metrics::Metric};
use evenkeel_format::record::entry_op;
use evenkeel_sched::laws::compaction::{
    CompactionTurn, FREES_NOTHING, Facts, Rest, bytes_per_run, choose, next_compaction, passes,
};
use evenkeel_sched::laws::depths::{RUNS_HELP, RUNS_LIMIT, RUNS_PACED, RUNS_TRIGGER};
use evenkeel_sched::laws::ingest::{
    ADVANCE_PART, credit_bytes, owed_bytes, pace_ns, pays_bytes, room_bytes, tightest,
};
use proptest::prelude::*;
use std::sync::atomic::Ordering;

/// Bytes of a generation, in the memtable and as a run.
const GENERATION: u64 = 10_000;
/// Beats in the time in which one generation arrives.
const STEPS: u64 = 50;
const STEPS_PER_SEC: u64 = 100_000;

#[derive(Clone, Copy)]
struct Run {
    number: u64,
    bytes: u64,
    busy: bool,
}

struct Job {
    numbers: Vec<u64>,
    bytes: u64,
    left: u64,
    unpaid: u64,
}

struct World {
    /// Newest first.
    runs: Vec<Run>,
    jobs: Vec<Job>,
    next: u64,
    active: u64,
    credit: u64,
    in_debt: bool,
    most: usize,
    written: u64,
    into_bottom: u64,
    /// Bytes that compactions move in a step.
    merged: u64,
    /// Bytes that the pace has admitted and that have not arrived.
    paced: u64,
}

impl World {
    fn new(tiers: &[u64], bottom: u64, merged: u64) -> World {
        let sizes = tiers.iter().chain([&bottom]).map(|b| b * GENERATION);
        let runs: Vec<Run> =
            sizes.zip(0..).map(|(bytes, number)| Run { number, bytes, busy: false }).collect();
        World {
            next: runs.len() as u64,
            runs,
            jobs: Vec::new(),
            active: 0,
            credit: 0,
            in_debt: false,
            most: 0,
            written: 0,
            into_bottom: 0,
            merged,
            paced: 0,
        }
    }

    fn begin(&mut self) {
        loop {
            let freeing = self.jobs.iter().map(|job| bytes_per_run(job.left, job.numbers.len()));
            let freeing = freeing.min().unwrap_or(FREES_NOTHING);
            let fact = |r: &Run| Facts { bytes: r.bytes, busy: r.busy, ..Facts::default() };
            let facts: Vec<Facts> = self.runs.iter().map(fact).collect();
            let Some((range, _)) = choose(&facts, Rest::No, freeing) else { return };
            let inputs = &mut self.runs[range];
            inputs.iter_mut().for_each(|run| run.busy = true);
            let bytes = inputs.iter().map(|run| run.bytes).sum();
            let numbers: Vec<u64> = inputs.iter().map(|run| run.number).collect();
            let unpaid = pays_bytes(numbers.len(), GENERATION);
            self.jobs.push(Job { numbers, bytes, left: bytes, unpaid });
        }
    }

    /// Bytes that the pace admits; unused time lasts for two steps.
    fn pace(&mut self, wanted: u64) -> u64 {
        let all: u64 = self.runs.iter().map(|run| run.bytes).sum();
        let runs = if self.jobs.is_empty() { 0 } else { self.runs.len() };
        let moves = (passes(all as f64 / GENERATION as f64) * 1024.0) as u64;
        let first = self.jobs.iter().map(|job| job.left).min().unwrap_or(0);
        let first = owed_bytes(first, GENERATION);
        let owed = tightest(vec![(runs as u64, first)], 0, self.active, GENERATION);
        let new = match pace_ns(runs as u64, self.merged * STEPS_PER_SEC, moves, owed) {
            0 => wanted,
            ns => 1_000_000_000 / STEPS_PER_SEC * 1024 / ns,
        };
        self.paced = (self.paced + new).min(2 * wanted);
        self.paced
    }

    /// Ingests up to `wanted` bytes; returns the admitted ones.
    fn ingest(&mut self, wanted: u64) -> u64 {
        let mut bytes = wanted.min(self.pace(wanted));
        self.paced -= bytes;
        if self.runs.len() >= RUNS_TRIGGER {
            if !std::mem::replace(&mut self.in_debt, true) {
                let room = room_bytes(self.runs.len(), 0, self.active, GENERATION);
                self.credit = room.min(GENERATION / ADVANCE_PART);
            }
            bytes = bytes.min(self.credit);
            self.credit -= bytes;
        } else {
            (self.credit, self.in_debt) = (0, false);
        }
        self.active += bytes;
        if self.active >= GENERATION {
            self.active -= GENERATION;
            self.next += 1;
            let run = Run { number: self.next, bytes: GENERATION, busy: false };
            self.runs.insert(0, run);
            self.begin();
        }
        self.most = self.most.max(self.runs.len());
        bytes
    }

    /// Compacts the bytes of a step.
    fn compaction(&mut self) {
        let mut bytes = self.merged;
        let turn = |job: &Job| CompactionTurn {
            required: true,
            left: job.left,
            ..CompactionTurn::default()
        };
        while let Some(at) = next_compaction(self.jobs.iter().map(turn), false) {
            let job = &mut self.jobs[at];
            let part = bytes.min(job.left);
            if self.runs.len() >= RUNS_TRIGGER {
                let room = room_bytes(self.runs.len(), 0, self.active, GENERATION);
                let pays = credit_bytes(job.unpaid, part, job.left);
                let new = pays.min(room.saturating_sub(self.credit));
                self.credit += new;
                job.unpaid -= new;
            }
            job.left -= part;
            // It pays for finished bytes and never ahead (a byte is lost to rounding).
            let all = u128::from(pays_bytes(job.numbers.len(), GENERATION));
            let behind = (u128::from(job.unpaid) + 1) * u128::from(job.bytes);
            assert!(behind >= all * u128::from(job.left), "{} of {all} unpaid", job.unpaid);
            self.written += part;
            if job.left == 0 {
                self.end(at);
            }
            bytes -= part;
            if bytes == 0 {
                return;
            }
        }
    }

    fn end(&mut self, at: usize) {
        let job = self.jobs.swap_remove(at);
        self.next += 1;
        let run = Run { number: self.next, bytes: job.bytes, busy: false };
        let place = self.runs.iter().position(|r| job.numbers.contains(&r.number)).expect("there");
        self.into_bottom += u64::from(self.runs[place + job.numbers.len() - 1..].len() == 1);
        self.runs.splice(place..place + job.numbers.len(), [run]);
        self.begin();
    }
}

/// Tiers as ingest leaves them before a compaction into the bottom.
fn tiers(bottom: u64) -> Vec<u64> {
    let (mut tiers, mut size) = (Vec::new(), bottom * 3 / 10);
    while size > 0 {
        tiers.insert(0, size);
        size /= 4;
    }
    tiers
}

/// `all` generations are to arrive, and compactions move `merged` hundredths of one while one
/// arrives. Returns the world, and per 1,000 the bytes that arrived in each time of 20 generations,
/// sorted.
fn come(bottom: u64, merged: u64, young: &[u64], all: u64) -> (World, Vec<u64>) {
    let merged = merged * GENERATION / (100 * STEPS);
    let mut world = World::new(&[young, &tiers(bottom)].concat(), bottom, merged);
    world.begin();
    let (mut shares, mut came) = (Vec::new(), 0);
    for step in 1..=all * STEPS {
        came += world.ingest(GENERATION / STEPS);
        world.compaction();
        if step % (20 * STEPS) == 0 {
            shares.push(came * 1000 / (20 * GENERATION));
            came = 0;
        }
    }
    shares.sort_unstable();
    (world, shares)
}

/// An index grows from `bottom` to three times as much; compactions move `merged` hundredths of a
/// generation while one arrives. Returns the world, and the lowest share that arrived.
fn keeps_up(bottom: u64, merged: u64, young: &[u64]) -> (World, u64) {
    let (world, shares) = come(bottom, merged * 100, young, 2 * bottom.max(50));
    (world, shares[0])
}

/// D3: while an index grows to 1,000 generations, compactions that move eight generations while one
/// arrives keep ingest even; a smaller index needs a lower rate, one of 6,000 needs 14. If a
/// compaction into the bottom run took all tiers as inputs, few runs would be left that other
/// compactions could join meanwhile, and ingest would fall to a tenth.
#[test]
fn ingest_is_even_beside_a_long_compaction() {
    for (bottom, merged) in [(10, 5), (33, 5), (100, 6), (200, 7), (333, 8), (933, 10), (2_000, 14)]
    {
        let (world, least) = keeps_up(bottom, merged, &[]);
        assert!(least >= 900, "{bottom}: {least} of 1,000 came");
        assert!(world.most <= RUNS_LIMIT, "{bottom}: {} runs", world.most);
        assert!(world.into_bottom >= 1, "{bottom}: {} long merges", world.into_bottom);
        let passes = world.written as f64 / (2 * bottom.max(50) * GENERATION) as f64;
        assert!(passes <= merged as f64, "{passes} passes");
    }
}

/// An index of thousands of generations grows alone to three times its size, at several compaction
/// rates; compactions also write fewer bytes than before. Before small runs were left out of long
/// compactions (`locks_a_small_run`) ingest fell to 0.50, 0.33 and 0.59 at these rates: four runs
/// were locked for the time of 30 generations, and in the one or two remaining places the two
/// youngest runs were compacted for each new generation, which took the whole compaction rate.
#[test]
fn a_large_index_that_grows_alone_takes_ingest_evenly() {
    for merged in [22, 24, 28, 32] {
        let (world, least) = keeps_up(6_000, merged, &[]);
        assert!(least >= 870, "{merged}: {least} of 1,000 came");
        assert!(world.most <= RUNS_LIMIT, "{merged}: {} runs", world.most);
        let passes = world.written as f64 / (12_000 * GENERATION) as f64;
        assert!(passes <= 13.0, "{merged}: {passes} passes");
    }
}

/// Faster compactions admit more ingest; slow ones never stop it.
#[test]
fn a_slow_compaction_slows_ingest_and_does_not_stop_it() {
    for merged in [3, 5, 7] {
        let (world, least) = keeps_up(300, merged, &[]);
        assert!(least >= 10, "{merged}: {least} of 1,000 came");
        assert!(world.most <= RUNS_LIMIT, "{merged}: {} runs", world.most);
    }
}

/// G1: if compactions move a quarter, half, three quarters or all of the required bytes, ingest
/// falls to that rate and is even. Without the pace it came in bursts: the worst twentieth of the
/// time had 0.15 to 0.37 of the median (except 333 at three quarters and more), and the total was
/// lower, because compactions begun in haste are small.
#[test]
fn slow_compactions_slow_ingest_evenly() {
    for bottom in [100, 200, 333] {
        for percent in [25, 50, 75, 100] {
            let needed = passes(2.0 * bottom as f64);
            let merged = (needed * percent as f64) as u64;
            let (world, shares) = come(bottom, merged, &[], 600);
            let at = |percent: usize| shares[(shares.len() - 1) * percent / 100];
            assert!(at(5) * 10 >= at(50) * 7, "{bottom}, {percent}%: {shares:?}");
            let mean = shares.iter().sum::<u64>() / shares.len() as u64;
            assert!(mean * 100 >= 700 * percent, "{bottom}, {percent}%: {mean} of 1,000 came");
            assert!(world.most <= RUNS_LIMIT, "{bottom}, {percent}%: {} runs", world.most);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    /// Whatever runs an index has at the start, runs stay within the limit and ingest continues.
    #[test]
    fn runs_stay_within_the_limit(
        bottom in 1u64..200,
        merged in 1u64..20,
        young in prop::collection::vec(1u64..20, 0..5),
    ) {
        let (world, least) = keeps_up(bottom, merged, &young);
        prop_assert!(world.most <= RUNS_LIMIT.max(tiers(bottom).len() + young.len() + 1));
        prop_assert!(least > 0 || merged < 4, "{} of 1,000 came", least);
    }
}

/// G1: a compaction pays nine tenths of the generations that it makes room for, byte by byte.
#[test]
fn a_compaction_pays_in_proportion_to_its_bytes() {
    assert_eq!([0, 1, 2, 5, 9].map(|inputs| pays_bytes(inputs, 1_000)), [0, 0, 900, 3_600, 7_200]);
    for (done, pays) in [(0, 0), (1, 9), (50, 450), (99, 891), (100, 900), (200, 900)] {
        assert_eq!(credit_bytes(900, done, 100), pays, "{done} of 100");
    }
    assert_eq!((credit_bytes(0, 50, 100), credit_bytes(900, 50, 0)), (0, 0));
    assert_eq!(credit_bytes(u64::MAX, u64::MAX / 2, u64::MAX), u64::MAX / 2);
}

/// G1: the work of a compaction from before the debt pays once there is debt; credit never exceeds
/// the room below the limit, and the excess is paid later.
#[test]
fn unclaimed_credit_is_paid_over_the_remaining_compaction() {
    let generation = 4 << 20;
    let rig = Fixture::new(generation);
    // It is not small.
    rig.set_segment_bytes(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    let mut random = Random(4);
    let mut flush = |entries: u32| {
        (0..entries).for_each(|_| rig.put(1, entry_op::INS, &random.next().to_be_bytes(), b"p"));
        rig.flush();
    };
    (0..9).for_each(|_| flush(5_000));
    let beat = || assert_eq!(rig.runs.compaction_beat().expect("merges"), Beat::More);
    let job = || rig.runs.compaction_jobs.lock().first();
    let credit = || rig.runs.credit.load(Ordering::SeqCst);
    beat();
    let (left, all) = job().expect("nine become one");
    assert_eq!((all, credit()), (pays_bytes(9, generation), 0), "nobody asked for it");
    flush(5_000);
    beat();
    let (after, unpaid) = job().expect("it goes on");
    let pays = credit_bytes(all, left - after, left);
    let room = room_bytes(RUNS_TRIGGER, 0, 0, generation);
    assert!(pays > room, "{pays} of {room}: else this shows nothing");
    // In addition to the credit at the start of the debt.
    let advance = generation / ADVANCE_PART;
    assert_eq!((credit(), unpaid), (room, all - (room - advance)));
    beat();
    assert_eq!((rig.runs.stats(IndexId(1)).runs, credit()), (2, 0), "the debt is over");
}

/// Several threads compact an index with `RUNS_HELP` runs, each in another compaction that ingest
/// needs.
#[test]
fn further_threads_help_compact_an_index_with_many_runs() {
    let rig = Fixture::new(4 << 20);
    rig.set_segment_bytes(1 << 20);
    (1..=3).for_each(|index| rig.runs.add_index(spec(index, false, false)));
    let mut random = Random(6);
    let mut flush = |entries: u32| {
        for index in 1..=3 {
            let mut put = || rig.put(index, entry_op::INS, &random.next().to_be_bytes(), b"p");
            (0..entries).for_each(|_| put());
        }
        rig.flush();
    };
    let help = || rig.runs.compaction_help_beat().expect("merges");
    let runs = || [1, 2, 3].map(|index| rig.runs.stats(IndexId(index)).runs);
    (1..RUNS_HELP).for_each(|_| flush(12_000));
    assert_eq!(rig.runs.compaction_beat().expect("merges"), Beat::More);
    assert_eq!((help(), runs()), (Beat::Idle, [RUNS_HELP as u64 - 1; 3]), "one thread is enough");
    flush(100);
    // When help is no longer needed, the rest of the helper's compaction is left to the other
    // thread, which may sleep.
    assert_eq!(rig.runs.compaction_beat().expect("merges"), Beat::More);
    rig.runs.is_help_wanted.store(false, Ordering::SeqCst);
    let woken = rig.runs.compaction_event.now();
    assert_eq!(help(), Beat::Idle);
    assert_ne!(rig.runs.compaction_event.now(), woken);
    rig.runs.is_help_wanted.store(true, Ordering::SeqCst);
    let mut beats = 0;
    while help() == Beat::More {
        beats += 1;
    }
    assert!(beats >= 3, "{beats} beats");
    assert!(!rig.runs.are_compactions_needed());
    assert_eq!(runs(), [2; 3], "they were begun, and ended by the helper alone");
}

/// The beat of a compaction ends once: putting it back does not touch the next compaction, which
/// may have begun in another thread.
#[test]
fn putting_a_beat_back_leaves_other_threads_compactions() {
    let rig = Fixture::new(4 << 20);
    rig.set_segment_bytes(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    let mut random = Random(7);
    for _ in 0..8 {
        (0..12_000).for_each(|_| rig.put(1, entry_op::INS, &random.next().to_be_bytes(), b"p"));
        rig.flush();
    }
    assert_eq!(rig.runs.compaction_beat().expect("merges"), Beat::More);
    let take = || {
        rig.runs
            .compaction_jobs
            .lock()
            .take_required(&Default::default(), |_, _| {})
            .expect("it goes on")
    };
    let (needed, count) = {
        let jobs = rig.runs.compaction_jobs.lock();
        (jobs.needed().into_keys().collect::<Vec<_>>(), jobs.turns().len())
    };
    let first = take();
    let run = first.start.run;
    let (done, has_ended) = rig.runs.job_step(first);
    assert_eq!((done.expect("merges"), has_ended), (Beat::More, false));
    // Another thread takes a beat in between.
    let second = take();
    assert_eq!(second.start.run, run);
    rig.runs.beat_over(run, has_ended);
    {
        let jobs = rig.runs.compaction_jobs.lock();
        let now = jobs.needed().into_keys().collect::<Vec<_>>();
        assert_eq!((now, jobs.turns().len()), (needed, count));
    }
    assert_eq!(rig.runs.job_step(second).0.expect("merges"), Beat::More);
}

/// A pace of ingest is set from the start of a compaction on.
#[test]
fn a_starting_compaction_sets_the_pace_of_ingest() {
    let rig = Fixture::new(4 << 20);
    rig.set_segment_bytes(1 << 20);
    rig.runs.add_index(spec(1, false, false));
    // Compactions are slow.
    rig.runs.pace.merged(1 << 10, 0, 1_000_000_000, false);
    let mut random = Random(8);
    for _ in 0..RUNS_PACED {
        (0..12_000).for_each(|_| rig.put(1, entry_op::INS, &random.next().to_be_bytes(), b"p"));
        rig.flush();
    }
    let waits = || rig.runs.pace.line.take(4 << 20, || 1_000_000_000).0 > 0;
    assert!(!waits(), "nothing is being merged");
    assert_eq!(rig.runs.compaction_beat().expect("merges"), Beat::More);
    assert_eq!(rig.runs.stats(IndexId(1)).runs, RUNS_PACED as u64, "it goes on");
    assert!(waits());
}

/// Read-ahead of compactions takes memory while a thread works on them, not while they wait.
#[test]
fn waiting_compactions_hold_no_read_ahead_memory() {
    const INDEXES: u32 = 40;
    let rig = Fixture::new(64 << 20);
    rig.set_segment_bytes(1 << 20);
    (1..=INDEXES).for_each(|index| rig.runs.add_index(spec(index, false, false)));
    let mut random = Random(9);
    for _ in 0..4 {
        for index in 1..=INDEXES {
            for _ in 0..300 {
                let key: Vec<u8> = (0..128).flat_map(|_| random.next().to_be_bytes()).collect();
                rig.put(index, entry_op::INS, &key, b"p");
            }
        }
        rig.flush();
    }
    assert_eq!(rig.runs.compaction_beat().expect("merges"), Beat::More);
    assert_eq!(rig.rt.metrics.get(Metric::CompactionsStarted), u64::from(INDEXES));
    let read = rig.rt.metrics.get(Metric::CompactionReadBytes);
    assert!((1..=2 << 20).contains(&read), "{read} bytes read");
}

/// On a full disk one thread compacts; the other threads are woken when space is free again, even
/// if the ballast was not missing.
#[test]
fn helpers_are_woken_when_there_is_space_again() {
    let rig = Fixture::new(4 << 20);
    rig.runs.add_index(spec(1, false, false));
    for _ in 0..4 {
        (0..100u64).for_each(|n| rig.put(1, entry_op::INS, &n.to_be_bytes(), b"p"));
        rig.flush();
    }
    let seen = rig.runs.help_event.now();
    let full = || rig.runs.compact_full.lock().is_some();
    *rig.runs.compact_full.lock() = Some((Error::new(Code::DiskFull), true));
    rig.runs.compact_to_rest().expect("merges");
    assert_eq!((rig.runs.stats(IndexId(1)).runs, full()), (1, false));
    assert_ne!(rig.runs.help_event.now(), seen);
}

/// The compaction of an index that has few runs pays nothing for one that has too many.
#[test]
fn only_compactions_of_indexes_in_debt_pay() {
    let rig = Fixture::new(4 << 20);
    // The first index is small, the second is not.
    rig.set_segment_bytes(1 << 20);
    (1..=2).for_each(|index| rig.runs.add_index(spec(index, false, false)));
    let mut random = Random(5);
    for flush in 0..10 {
        (0..50).filter(|_| flush < 4).for_each(|n| rig.put(1, entry_op::INS, &[flush, n], b"p"));
        (0..4_000).for_each(|_| rig.put(2, entry_op::INS, &random.next().to_be_bytes(), b"p"));
        rig.flush();
    }
    let credit = || rig.runs.credit.load(Ordering::SeqCst);
    let advance = (4 << 20) / ADVANCE_PART;
    assert_eq!(credit(), advance, "what there is when debt begins");
    let pay = |index| rig.runs.issue_credit(IndexId(index), 900, 50, 100);
    assert_eq!((pay(1), credit()), (900, advance));
    assert_eq!((pay(2), credit()), (450, advance + 450));
    rig.runs.compact_to_rest().expect("merges");
    assert_eq!(credit(), 0, "the debt is over");
}
