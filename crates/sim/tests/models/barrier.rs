//! (d) The barriers of an index build (F1, F3): writers whose transactions are open when the index
//! is published, the scan of the latest committed versions, and the proof of uniqueness. The gate
//! of epochs is the engine's (`tables/src/gate.rs`). Rows, entries and transactions repeat in short
//! what `tables` does: a row has its latest version and the committed one before it, an operation
//! that knows the index adds DEL and INS in order, and the build's entries are the oldest.

use crate::event::Event;
use crate::gate::SchemaGate;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::{model, start, wait_until};
use evenkeel_sim::interleave::Thread;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone, Copy, Default, PartialEq)]
enum Planted {
    #[default]
    Nothing,
    /// The barrier does not wait for operations that are in their last step.
    PinsIgnored,
    /// The barrier does not wait for transactions that wrote before it.
    WritersIgnored,
    /// The operation does not compare the epoch in its last step.
    EpochNotCompared,
    /// The scan takes undecided versions for committed ones.
    UndecidedScanned,
    /// A rollback to a savepoint leaves the entries alive.
    DeadComeAlive,
    /// The proof begins before all transactions that did not check uniqueness have ended.
    ProofTooEarly,
}

/// The state of the index as operations see it.
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
enum Index {
    #[default]
    None,
    Building,
    Checking,
    Valid,
}

#[derive(Clone, Copy, Default)]
struct Row {
    value: u64,
    /// The undecided transaction that wrote the value (0: none), and the value before.
    by: u64,
    before: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    row: usize,
    value: u64,
    insert: bool,
    by: u64,
}

#[derive(Default)]
struct Entries {
    /// Entries of operations, in order; entries of rolled-back operations are dead.
    written: Vec<Entry>,
    /// Entries of the build: row and value.
    built: Vec<(usize, u64)>,
}

impl Entries {
    /// The live entries (value, row): the last entry of each pair decides.
    fn live(&self, but: &dyn Fn(u64) -> bool) -> BTreeSet<(u64, usize)> {
        let mut last: BTreeMap<(u64, usize), bool> = BTreeMap::new();
        last.extend(self.built.iter().map(|(row, value)| ((*value, *row), true)));
        let written = self.written.iter().filter(|e| !but(e.by));
        last.extend(written.map(|e| ((e.value, e.row), e.insert)));
        last.into_iter().filter(|(_, live)| *live).map(|(entry, _)| entry).collect()
    }
}

struct Table {
    gate: SchemaGate,
    state: Mutex<(u64, Index)>,
    users: Mutex<BTreeSet<u64>>,
    rows: [Mutex<Row>; 2],
    entries: Mutex<Entries>,
    changed: Event,
    /// The last epoch whose barrier has ended.
    shut: AtomicU64,
    /// Held from the check of a unique key to the write of its entry.
    slot: Mutex<()>,
    /// The build has met a duplicate, or is decided.
    build: Mutex<Option<bool>>,
    planted: Planted,
}

impl Table {
    fn new(planted: Planted) -> Arc<Table> {
        let rows = [1, 2].map(|value| Mutex::new(Row { value, ..Row::default() }));
        Arc::new(Table {
            gate: SchemaGate::new(1),
            state: Mutex::new((1, Index::None)),
            users: Mutex::default(),
            rows,
            entries: Mutex::default(),
            changed: Event::new(),
            shut: AtomicU64::new(0),
            slot: Mutex::default(),
            build: Mutex::default(),
            planted,
        })
    }

    /// The last step of an operation, under the row's latch. False if the schema has changed.
    fn write(&self, by: u64, row: usize, value: u64, (epoch, index): (u64, Index)) -> bool {
        let mut cell = self.rows[row].lock();
        let entered = self.gate.enter(epoch) || self.planted == Planted::EpochNotCompared;
        if entered {
            let old = cell.value;
            if cell.by == 0 {
                (cell.by, cell.before) = (by, old);
            }
            cell.value = value;
            if index > Index::None {
                let mut entries = self.entries.lock();
                entries.written.push(Entry { row, value: old, insert: false, by });
                entries.written.push(Entry { row, value, insert: true, by });
            }
            let shut = self.shut.load(SeqCst);
            assert!(shut <= epoch, "an operation of epoch {epoch} behind the barrier of {shut}");
        }
        drop(cell);
        if self.gate.leave(epoch) {
            self.changed.notify();
        }
        entered
    }

    fn update(&self, by: u64, row: usize, value: u64) -> bool {
        loop {
            let state = *self.state.lock();
            let checks = state.1 >= Index::Checking;
            let _slot = checks.then(|| self.slot.lock());
            if checks && !self.check(row, value, state.1) {
                return false;
            }
            if self.write(by, row, value, state) {
                return true;
            }
        }
    }

    /// Checks for another row with this value, decided or not. If there is one, the build fails, or
    /// the statement does.
    fn check(&self, row: usize, value: u64, index: Index) -> bool {
        let live = self.entries.lock().live(&|_| false);
        if !live.iter().any(|(v, r)| *v == value && *r != row) {
            return true;
        }
        let mut build = self.build.lock();
        index == Index::Checking && !*build.get_or_insert(false)
    }

    fn end(&self, by: u64, row: usize, commit: bool) {
        let mut cell = self.rows[row].lock();
        if cell.by == by {
            if !commit {
                cell.value = cell.before;
            }
            cell.by = 0;
        }
        if !commit {
            self.rolled_back(by);
        }
    }

    fn rolled_back(&self, by: u64) {
        if self.planted != Planted::DeadComeAlive {
            self.entries.lock().written.retain(|e| e.by != by);
        }
    }

    fn leave(&self, by: u64) {
        self.users.lock().remove(&by);
        self.changed.notify();
    }

    fn publish(&self, epoch: u64, index: Index) {
        {
            let mut state = self.state.lock();
            *state = (epoch, index);
            self.gate.open(epoch);
        }
        if self.planted != Planted::PinsIgnored {
            wait_until(&self.changed, || self.gate.is_empty(epoch - 1));
        }
        self.shut.store(epoch, SeqCst);
    }

    fn wait_writers(&self) {
        let before = self.users.lock().clone();
        wait_until(&self.changed, || self.users.lock().is_disjoint(&before));
    }

    fn scan(&self) {
        for (i, row) in self.rows.iter().enumerate() {
            let row = *row.lock();
            let undecided = row.by != 0 && self.planted != Planted::UndecidedScanned;
            let value = if undecided { row.before } else { row.value };
            self.entries.lock().built.push((i, value));
        }
    }

    fn build(&self) {
        self.publish(2, Index::Building);
        if self.planted != Planted::WritersIgnored {
            self.wait_writers();
        }
        self.scan();
        self.publish(3, Index::Valid);
    }

    /// F3: the second barrier, the proof on committed entries, the decision.
    fn build_unique(&self) {
        self.publish(2, Index::Building);
        self.wait_writers();
        self.scan();
        self.publish(3, Index::Checking);
        if self.planted != Planted::ProofTooEarly {
            self.wait_writers();
        }
        let undecided: BTreeSet<u64> = self.rows.iter().map(|row| row.lock().by).collect();
        let live = self.entries.lock().live(&|by| undecided.contains(&by));
        let values: BTreeSet<u64> = live.iter().map(|(value, _)| *value).collect();
        let unique = values.len() == live.len();
        let decided = unique && *self.build.lock().get_or_insert(true);
        self.publish(4, if decided { Index::Valid } else { Index::None });
    }

    fn rows(&self) -> Vec<u64> {
        self.rows.iter().map(|row| row.lock().value).collect()
    }
}

/// A transaction with two updates of a row; between them a third update is rolled back to a
/// savepoint.
fn transaction(table: &Table, by: u64, row: usize, commit: bool) {
    table.users.lock().insert(by);
    table.update(by, row, 10 * by);
    // The third update has a number of its own, so that its entries can be recognized as dead:
    // stamps name operations (A1).
    let undone = by + 100;
    let state = *table.state.lock();
    if table.write(undone, row, 10 * by + 1, state) {
        let mut cell = table.rows[row].lock();
        cell.value = 10 * by;
        table.rolled_back(undone);
    }
    table.end(by, row, commit);
    table.leave(by);
}

fn build_among(planted: Planted) {
    model("barrier", 3, || {
        let table = Table::new(planted);
        let threads = [
            start(&table, |table| transaction(table, 1, 0, true)),
            start(&table, |table| transaction(table, 2, 1, false)),
            start(&table, Table::build),
        ];
        threads.into_iter().for_each(Thread::join);
        let expected: BTreeSet<(u64, usize)> =
            table.rows().into_iter().enumerate().map(|(row, value)| (value, row)).collect();
        let live = table.entries.lock().live(&|_| false);
        assert_eq!(live, expected, "the index differs from its table");
    });
}

fn unique_among(planted: Planted) {
    model("unique", 3, || {
        let table = Table::new(planted);
        let insert = |by: u64, row: usize| {
            move |table: &Table| {
                table.users.lock().insert(by);
                table.update(by, row, 7);
                table.end(by, row, true);
                table.leave(by);
            }
        };
        let threads = [
            start(&table, insert(1, 0)),
            start(&table, insert(2, 1)),
            start(&table, Table::build_unique),
        ];
        threads.into_iter().for_each(Thread::join);
        let valid = table.state.lock().1 == Index::Valid;
        assert!(!valid || table.rows() != [7, 7], "a VALID unique index with a duplicate");
    });
}

#[test]
fn an_index_built_beside_open_transactions_equals_its_table() {
    build_among(Planted::Nothing);
}

#[test]
#[should_panic(expected = "behind the barrier")]
fn a_barrier_that_ignores_running_operations_is_found() {
    build_among(Planted::PinsIgnored);
}

#[test]
#[should_panic(expected = "the index differs")]
fn a_barrier_that_ignores_open_transactions_is_found() {
    build_among(Planted::WritersIgnored);
}

#[test]
#[should_panic(expected = "behind the barrier")]
fn an_operation_that_ignores_the_epoch_is_found() {
    build_among(Planted::EpochNotCompared);
}

#[test]
#[should_panic(expected = "the index differs")]
fn a_scan_of_undecided_rows_is_found() {
    build_among(Planted::UndecidedScanned);
}

#[test]
#[should_panic(expected = "the index differs")]
fn a_rollback_that_leaves_entries_is_found() {
    build_among(Planted::DeadComeAlive);
}

#[test]
fn uniqueness_is_proved_beside_open_transactions() {
    unique_among(Planted::Nothing);
}

#[test]
#[should_panic(expected = "with a duplicate")]
fn a_proof_before_all_writers_check_is_found() {
    unique_among(Planted::ProofTooEarly);
}
