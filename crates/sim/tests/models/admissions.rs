//! (h) Admission: writers that want tokens, a provider that adds them, a writer that gives up,
//! writers that give their tokens back. No wake-up is lost, and writers are admitted in the order
//! in which they entered the queue. The queue is the engine's (`sched/src/admission.rs`).

use crate::admission::{Admission, Tried};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::{Event, model, start};
use evenkeel_base::{Code, Error, Result};
use evenkeel_sim::interleave::{Thread, step};
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// The provider wakes the first writer, then adds the tokens.
    WokenTooEarly,
    /// A writer takes tokens whoever is before it.
    TurnIgnored,
    /// Writers that do not use their tokens wake nobody.
    GivenBackSilently,
}

struct Engine {
    admission: Admission,
    tokens: AtomicU64,
    cancelled: AtomicBool,
    /// The event of the writer that is to be cancelled; no scheduling point.
    waits_for: Mutex<Option<Arc<Event>>>,
    /// Writers that were admitted or gave up, by their tokens; no scheduling point.
    ended: Mutex<Vec<u64>>,
    planted: Planted,
}

impl Engine {
    fn new(planted: Planted) -> Arc<Engine> {
        Arc::new(Engine {
            admission: Admission::default(),
            tokens: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            waits_for: Mutex::default(),
            ended: Mutex::default(),
            planted,
        })
    }

    fn take(&self, wanted: u64) -> bool {
        loop {
            let tokens = self.tokens.load(SeqCst);
            let Some(left) = tokens.checked_sub(wanted) else { return false };
            if self.tokens.compare_exchange(tokens, left, SeqCst, SeqCst).is_ok() {
                return true;
            }
        }
    }

    /// Waits for tokens; false if the writer gave up. No two writers want the same number.
    fn reserve(&self, wanted: u64, gives_up: bool) -> bool {
        let ended = || self.ended.lock().expect("no panic");
        let before = self.admission.first_wanted();
        let attempt = |is_first: bool| -> Result<Tried> {
            let has_turn = is_first || self.planted == Planted::TurnIgnored;
            if !has_turn || !self.take(wanted) {
                return Ok(Tried::Wait);
            }
            assert!(before.is_none_or(|n| ended().contains(&n)), "it has overtaken");
            ended().push(wanted);
            Ok(Tried::Admitted)
        };
        let wait = |event: &Arc<Event>, seen: u64| {
            if gives_up {
                *self.waits_for.lock().expect("no panic") = Some(event.clone());
                step();
                if self.cancelled.load(SeqCst) {
                    ended().push(wanted);
                    return Err(Error::new(Code::StatementCancelled));
                }
            }
            event.block(seen, None);
            Ok(())
        };
        self.admission.admit(wanted, attempt, wait).is_ok()
    }

    fn provide(&self, tokens: u64) {
        if self.planted == Planted::WokenTooEarly {
            self.admission.wake_first();
        }
        self.tokens.fetch_add(tokens, SeqCst);
        if self.planted != Planted::WokenTooEarly {
            self.admission.wake_first();
        }
    }

    fn cancel(&self) {
        self.cancelled.store(true, SeqCst);
        let event = self.waits_for.lock().expect("no panic").clone();
        if let Some(event) = event {
            event.notify();
        }
    }
}

/// Two writers and a provider whose tokens suffice for both.
fn two_writers(planted: Planted) {
    let e = Engine::new(planted);
    let threads =
        [start(&e, |e| assert!(e.reserve(2, false))), start(&e, |e| assert!(e.reserve(1, false)))];
    e.provide(1);
    e.provide(2);
    threads.into_iter().for_each(Thread::join);
    assert_eq!((e.tokens.load(SeqCst), e.admission.len()), (0, 0));
}

/// Two writers take tokens that they do not use: there are enough for one at a time.
fn both_give_back(planted: Planted) {
    let e = Engine::new(planted);
    e.provide(2);
    let uses_nothing = |e: &Engine, wanted: u64| {
        assert!(e.reserve(wanted, false));
        match e.planted {
            Planted::GivenBackSilently => drop(e.tokens.fetch_add(wanted, SeqCst)),
            _ => e.provide(wanted),
        }
    };
    let other = start(&e, move |e| uses_nothing(e, 1));
    uses_nothing(&e, 2);
    other.join();
    assert_eq!((e.tokens.load(SeqCst), e.admission.len()), (2, 0));
}

/// The first writer wants more than there will be, and gives up; the second one then goes on.
fn one_gives_up() {
    let e = Engine::new(Planted::Nothing);
    let first = start(&e, |e| {
        e.reserve(9, true);
    });
    let second = start(&e, |e| assert!(e.reserve(1, false)));
    e.provide(1);
    e.cancel();
    first.join();
    second.join();
    assert_eq!((e.tokens.load(SeqCst), e.admission.len()), (0, 0));
}

#[test]
fn no_wake_up_of_a_writer_is_lost_and_none_overtakes() {
    model("admission", 3, || two_writers(Planted::Nothing));
    model("admission: tokens given back", 2, || both_give_back(Planted::Nothing));
    model("admission: a cancelled writer", 3, one_gives_up);
}

#[test]
#[should_panic(expected = "nobody can go on")]
fn a_provider_that_wakes_before_it_adds_is_found() {
    model("admission", 3, || two_writers(Planted::WokenTooEarly));
}

#[test]
#[should_panic(expected = "it has overtaken")]
fn a_writer_that_does_not_wait_for_its_turn_is_found() {
    model("admission", 3, || two_writers(Planted::TurnIgnored));
}

#[test]
#[should_panic(expected = "nobody can go on")]
fn tokens_given_back_silently_are_found() {
    model("admission", 2, || both_give_back(Planted::GivenBackSilently));
}
