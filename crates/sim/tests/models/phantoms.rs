//! (f) Range locks (A7). A locker registers its range, scans it, and scans it again before it ends.
//! A writer inserts an entry into the range, checks for range locks in its way, and commits when
//! there is none. The registry is the engine's (`txn/src/lock_table.rs`); the steps around it are
//! those of `tables/src/locked_scan.rs` and `tables/src/apply.rs`: all transactions see an index
//! entry at once, the entry is undecided until its transaction ends, and a locker waits for
//! undecided entries.

use crate::owner::Mode;
use crate::parties::{Locks, Party, Waited};
use crate::row_queue::Keep;
use crate::sync::Mutex;
use crate::{model, start};
use evenkeel_sim::interleave::Thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// The locker scans before it has registered.
    ScannedTooEarly,
    /// The writer checks before it inserts its entry.
    AskedTooEarly,
    /// The locker does not wait for undecided entries.
    UndecidedIgnored,
}

const SPACE: [u8; 5] = [2, 0, 0, 0, 1];
const KEY: [u8; 6] = [2, 0, 0, 0, 1, 7];

#[derive(Clone, Copy, PartialEq)]
enum Entry {
    None,
    Undecided,
    Committed,
}

struct Engine {
    locks: Locks,
    entry: Mutex<Entry>,
    planted: Planted,
}

impl Engine {
    /// True if the entry exists now. `None`: the entry is undecided, and its writer may wait for
    /// this locker; in this deadlock the locker gives up.
    fn scan(&self) -> Option<bool> {
        let entry = *self.entry.lock();
        if entry == Entry::Undecided && self.planted != Planted::UndecidedIgnored {
            return None;
        }
        Some(entry == Entry::Committed)
    }

    fn locker(&self) {
        let me = Party::new(1, 0);
        let early = (self.planted == Planted::ScannedTooEarly).then(|| self.scan());
        if self.locks.lock_range(&me, SPACE, Mode::Shared) == Waited::Granted {
            let first = early.unwrap_or_else(|| self.scan());
            if let (Some(first), Some(second)) = (first, self.scan()) {
                assert_eq!(first, second, "a phantom");
            }
        }
        self.locks.table.release_all(&me);
    }

    fn insert(&self) {
        *self.entry.lock() = Entry::Undecided;
    }

    fn writer(&self) {
        let me = Party::new(2, 0);
        if self.planted != Planted::AskedTooEarly {
            self.insert();
        }
        let table = &self.locks.table;
        if table.may_be_against(&SPACE, &KEY[5..])
            && !table.against_write(&me, &KEY, true).is_empty()
        {
            let ask = (Mode::Exclusive, Keep::Nothing);
            assert!(self.locks.queue_for(&me, &KEY, ask, None) == Waited::Granted);
        }
        if self.planted == Planted::AskedTooEarly {
            self.insert();
        }
        *self.entry.lock() = Entry::Committed;
        table.release_all(&me);
    }
}

fn run(planted: Planted) {
    model("phantoms", 2, || {
        let (locks, entry) = (Locks::new(false), Mutex::new(Entry::None));
        let engine = Arc::new(Engine { locks, entry, planted });
        let threads = [start(&engine, Engine::locker), start(&engine, Engine::writer)];
        threads.into_iter().for_each(Thread::join);
        assert!(*engine.entry.lock() == Entry::Committed);
    });
}

#[test]
fn a_range_lock_and_an_insert_see_each_other() {
    run(Planted::Nothing);
}

#[test]
#[should_panic(expected = "a phantom")]
fn a_scan_before_the_range_is_registered_is_found() {
    run(Planted::ScannedTooEarly);
}

#[test]
#[should_panic(expected = "a phantom")]
fn a_check_before_the_insert_is_found() {
    run(Planted::AskedTooEarly);
}

#[test]
#[should_panic(expected = "a phantom")]
fn an_undecided_entry_not_waited_for_is_found() {
    run(Planted::UndecidedIgnored);
}
