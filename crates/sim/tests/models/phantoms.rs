//! (f) Range locks (A7): a locker registers its range, scans, and scans again before it ends; a
//! writer puts an entry into the range, asks who is in its way, and commits when nobody is. The
//! registry is the engine's (`txn/src/range_locks.rs`); the steps around it are those of
//! `tables/src/locked_scan.rs` and `tables/src/apply.rs`: in an index an entry is there for all at
//! once, undecided until its transaction ends, and a locker waits for those that are.

use crate::event::Event;
use crate::range_locks::{Mode, RangeLocks, Span};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::{model, start, wait_until};
use evenkeel_base::TxnId;
use evenkeel_sim::interleave::Thread;
use std::ops::Bound;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// The locker scans before it has registered.
    ScannedTooEarly,
    /// The writer asks before its entry is there.
    AskedTooEarly,
    /// The locker does not wait for entries that are undecided.
    UndecidedIgnored,
}

const SPACE: [u8; 5] = [2, 0, 0, 0, 1];
const KEY: [u8; 6] = [2, 0, 0, 0, 1, 7];
const LOCKER: TxnId = TxnId(1);
const WRITER: TxnId = TxnId(2);

#[derive(Clone, Copy, PartialEq)]
enum Entry {
    None,
    Undecided,
    Committed,
}

struct Engine {
    ranges: RangeLocks,
    /// Locks of all kinds: a writer asks no further while there is none.
    count: AtomicU64,
    entry: Mutex<Entry>,
    /// The locker, or the writer, has ended.
    ended: Event,
    planted: Planted,
}

impl Engine {
    fn register(&self) {
        let key = KEY[..5].to_vec();
        let span = Span { lower: Bound::Included(key), upper: Bound::Unbounded };
        let (ticket, _) =
            self.ranges.add(LOCKER, SPACE, span, Mode::Shared).expect("the only one of its owner");
        self.count.fetch_add(1, SeqCst);
        let (_, blockers) = self.ranges.in_the_way(SPACE, ticket).expect("it is registered");
        assert!(blockers.is_empty());
        self.ranges.grant(SPACE, ticket);
    }

    /// What is there now. An undecided entry would be waited for; its writer may wait for this
    /// locker meanwhile, a deadlock, and one of the two gives up: here the locker, with `None`.
    fn scan(&self) -> Option<bool> {
        let entry = *self.entry.lock();
        if entry == Entry::Undecided && self.planted != Planted::UndecidedIgnored {
            return None;
        }
        Some(entry == Entry::Committed)
    }

    fn locker(&self) {
        let early = (self.planted == Planted::ScannedTooEarly).then(|| self.scan());
        self.register();
        let first = early.unwrap_or_else(|| self.scan());
        if let (Some(first), Some(second)) = (first, self.scan()) {
            assert_eq!(first, second, "a phantom");
        }
        self.ranges.remove(|range| range.owner == LOCKER);
        self.count.fetch_sub(1, SeqCst);
        self.ended.notify();
    }

    fn is_free(&self) -> bool {
        if self.count.load(SeqCst) == 0 {
            return true;
        }
        let mut blockers = Vec::new();
        self.ranges.blockers(WRITER, &KEY, Mode::Exclusive, &mut blockers);
        blockers.is_empty()
    }

    fn writer(&self) {
        if self.planted == Planted::AskedTooEarly {
            wait_until(&self.ended, || self.is_free());
            *self.entry.lock() = Entry::Undecided;
        } else {
            *self.entry.lock() = Entry::Undecided;
            wait_until(&self.ended, || self.is_free());
        }
        *self.entry.lock() = Entry::Committed;
    }
}

fn run(planted: Planted) {
    model("phantoms", 2, || {
        let (ranges, count) = (RangeLocks::default(), AtomicU64::new(0));
        let (entry, ended) = (Mutex::new(Entry::None), Event::new());
        let engine = Arc::new(Engine { ranges, count, entry, ended, planted });
        let threads = [start(&engine, Engine::locker), start(&engine, Engine::writer)];
        threads.into_iter().for_each(Thread::join);
        assert!(*engine.entry.lock() == Entry::Committed);
    });
}

#[test]
fn a_locker_and_a_writer_see_each_other() {
    run(Planted::Nothing);
}

#[test]
#[should_panic(expected = "a phantom")]
fn a_scan_before_the_range_is_registered_is_found() {
    run(Planted::ScannedTooEarly);
}

#[test]
#[should_panic(expected = "a phantom")]
fn a_writer_that_asks_before_it_inserts_is_found() {
    run(Planted::AskedTooEarly);
}

#[test]
#[should_panic(expected = "a phantom")]
fn an_undecided_entry_not_waited_for_is_found() {
    run(Planted::UndecidedIgnored);
}
