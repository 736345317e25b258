//! Every short history of one entry while its index is built: transactions that commit, roll back
//! to a savepoint or abort; the scan and VALID anywhere among them; flushes before or after
//! outcomes; compactions; a snapshot. The index must show the same state as the row (A1, D1, D4,
//! F2).

use super::test_support::{Commits, TestLog, stamp};
use crate::{Direction, IndexSpec, KeyRange, Runs, RunsOptions, Unsorted, entry_bytes};
use evenkeel_base::{Beat, Cause, IndexId, Lsn, Snapshot, TxnId, TxnState};
use evenkeel_format::record::{Entry, entry_op};
use evenkeel_io::{MemEnv, Runtime};
use evenkeel_sched::Scheduler;
use std::sync::Arc;

/// The changes of the row by a transaction: each step makes the row live or deletes it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Once,
    Twice,
    /// One step, rolled back.
    Back,
    /// A second step, rolled back.
    SecondBack,
    Abort,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flush {
    Never,
    BeforeOutcome,
    After,
}

const KINDS: [Kind; 5] = [Kind::Once, Kind::Twice, Kind::Back, Kind::SecondBack, Kind::Abort];
const FLUSHES: [Flush; 3] = [Flush::Never, Flush::BeforeOutcome, Flush::After];

#[derive(Debug)]
struct Case {
    /// The row exists before the build begins.
    live: bool,
    history: Vec<(Kind, Flush)>,
    /// After this many transactions the scan reads the row, and the index becomes VALID.
    scan: usize,
    valid: usize,
    compact_often: bool,
    /// A snapshot is taken when the index becomes VALID.
    snapshot: bool,
}

struct Machine {
    commits: Arc<Commits>,
    log: Arc<TestLog>,
    runs: Arc<Runs>,
    next: u32,
}

impl Machine {
    fn new() -> Machine {
        let rt = Runtime::new(Arc::new(MemEnv::new()));
        let (commits, log) = (Arc::new(Commits::default()), Arc::new(TestLog::default()));
        let options = RunsOptions { generation_bytes: 1 << 20, cache_bytes: 1 << 20 };
        let runs = Runs::create(Scheduler::new(rt), options, commits.clone()).expect("creates");
        runs.attach_log(log.clone());
        runs.finish_restore().expect("starts");
        Machine { commits, log, runs, next: 0 }
    }

    fn write(&self, index: IndexId, txn: u64, undo_no: u32, live: bool) {
        let op = if live { entry_op::INS | entry_op::FRESH } else { entry_op::DEL };
        let mut reserved = self.runs.reserve(entry_bytes(1, 1, 0)).expect("space");
        let pin = self.runs.pin();
        let entry = Entry { index, op, key: b"k", value: b"" };
        let lsn = self.log.next();
        self.runs.insert(&pin, &mut reserved, &entry, b"p", stamp(txn, undo_no), lsn);
    }

    fn flush(&self) {
        self.runs.seal_active();
        while self.runs.flush_beat().expect("flushes") == Beat::More {}
    }

    fn is_live(&self, index: IndexId, at: Lsn) -> bool {
        let at = Snapshot::committed_at(at);
        let live = [Direction::Forward, Direction::Reverse].map(|direction| {
            let mut cursor =
                self.runs.cursor(index, KeyRange::all(), direction, at).expect("opens");
            cursor.next().expect("reads").is_some()
        });
        assert_eq!(live[0], live[1], "both ways");
        live[0]
    }

    /// Runs a transaction; true if the row is live after it.
    fn transaction(&self, index: IndexId, live: bool, (kind, flush): (Kind, Flush)) -> bool {
        let txn = TxnId(self.log.next().0);
        self.commits.set(txn, TxnState::Active);
        self.write(index, txn.0, 1, !live);
        if matches!(kind, Kind::Twice | Kind::SecondBack) {
            self.write(index, txn.0, 2, live);
        }
        if flush == Flush::BeforeOutcome {
            self.flush();
        }
        match kind {
            Kind::Back => self.commits.revert(txn, 1, 1),
            Kind::SecondBack => self.commits.revert(txn, 2, 2),
            _ => {}
        }
        self.commits.set(
            txn,
            match kind {
                Kind::Abort => TxnState::Aborted,
                _ => TxnState::Committed(self.log.next()),
            },
        );
        if flush == Flush::After {
            self.flush();
        }
        match kind {
            Kind::Once | Kind::SecondBack => !live,
            Kind::Twice | Kind::Back | Kind::Abort => live,
        }
    }

    fn make_valid(&self, index: IndexId, scanned: bool) {
        let mut piece = Unsorted::new(index);
        if scanned {
            piece.push(b"k", b"p", b"").expect("short");
        }
        let pieces = vec![piece.sort().expect("sorts")];
        let plan = self.runs.plan_run(index, pieces, 1).expect("plans");
        (0..plan.parts()).for_each(|part| plan.write(part, &|| Ok(())).expect("writes"));
        self.runs.install(index, vec![plan.finish()], &|_| Ok(())).expect("installs");
        let from = self.commits.inner.lock().published;
        self.runs.set_valid(index, from);
    }

    fn run(&mut self, case: &Case) {
        self.next += 1;
        let index = IndexId(self.next);
        let valid_from = Lsn::ZERO;
        self.runs.add_index(IndexSpec { id: index, unique_key: false, building: true, valid_from });
        let (mut live, mut scanned, mut held) = (case.live, false, None);
        self.commits.set(TxnId(self.log.next().0), TxnState::Committed(self.log.next()));
        for at in 0..=case.history.len() {
            if at == case.scan {
                scanned = live;
            }
            if at == case.valid {
                self.make_valid(index, scanned);
                assert_eq!(self.is_live(index, Lsn::MAX), live, "when VALID: {case:?}");
                if case.snapshot {
                    let mut inner = self.commits.inner.lock();
                    let now = inner.published;
                    inner.snapshots.push(now);
                    held = Some((now, live));
                }
            }
            if let Some(step) = case.history.get(at) {
                live = self.transaction(index, live, *step);
            }
            if case.compact_often {
                self.runs.compact_to_rest().expect("merges");
            }
        }
        for what in ["as it is", "flushed", "merged"] {
            match what {
                "flushed" => self.flush(),
                "merged" => self.runs.compact_to_rest().expect("merges"),
                _ => {}
            }
            assert_eq!(self.is_live(index, Lsn::MAX), live, "{what}: {case:?}");
            if let Some((at, live)) = held {
                assert_eq!(self.is_live(index, at), live, "snapshot, {what}: {case:?}");
            }
        }
        self.runs.drop_index(index).expect("drops");
        *self.commits.inner.lock() = Default::default();
    }
}

/// All histories of this length whose number is a multiple of `stride`.
fn histories(length: usize, stride: usize) {
    let mut machine = Machine::new();
    let steps: Vec<(Kind, Flush)> =
        KINDS.iter().flat_map(|kind| FLUSHES.map(|flush| (*kind, flush))).collect();
    let mut number = 0;
    for mut code in 0..steps.len().pow(length as u32) {
        let history: Vec<(Kind, Flush)> = (0..length)
            .map(|_| {
                let step = steps[code % steps.len()];
                code /= steps.len();
                step
            })
            .collect();
        for scan in 0..=length {
            for valid in scan..=length {
                for bits in 0..8 {
                    number += 1;
                    if number % stride != 0 {
                        continue;
                    }
                    let (live, compact_often) = (bits & 1 != 0, bits & 2 != 0);
                    let (snapshot, history) = (bits & 4 != 0, history.clone());
                    machine.run(&Case { live, history, scan, valid, compact_often, snapshot });
                }
            }
        }
    }
    println!("{} histories of {length} transactions", number / stride);
}

#[test]
fn builds_pass_every_history_of_two_transactions() {
    histories(1, 1);
    histories(2, 1);
}

#[test]
fn builds_pass_histories_of_three_transactions() {
    histories(3, 97);
}

/// The statement needs more memory than there is, and none is freed: the build waits once, not at
/// every attempt.
#[test]
fn a_build_waits_once_for_memory_that_never_comes() {
    let rt = Runtime::new(Arc::new(MemEnv::new()));
    let options = RunsOptions { generation_bytes: 1 << 20, cache_bytes: 1 << 20 };
    let runs = Runs::create(Scheduler::new(rt.clone()), options, Arc::new(Commits::default()))
        .expect("creates");
    let waits = || rt.stalls.get(Cause::FreeFrame).count;
    let first = runs.lend(1 << 20);
    assert_eq!(waits(), 0, "it is there");
    let second = runs.lend(1 << 20);
    assert_eq!((waits(), runs.lent_to_builds()), (1, 2 << 20));
    drop((first, second));
    assert_eq!(runs.lent_to_builds(), 0);
}
