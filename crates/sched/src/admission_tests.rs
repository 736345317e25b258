//! Admission by cases, and against a model: a queue of requests and a number of tokens.

use crate::admission::{Admission, QueuePlace, Tried};
use evenkeel_base::{Code, Error};
use evenkeel_io::Event;
use proptest::prelude::*;
use std::cell::Cell;
use std::sync::Arc;

fn no_wait(_: &Arc<Event>, _: u64) -> evenkeel_base::Result<()> {
    panic!("nothing is lacking")
}

#[test]
fn an_operation_with_tokens_at_hand_never_enters_the_queue() {
    let (admission, attempts) = (Admission::default(), Cell::new(0));
    let attempt = |is_turn| {
        assert!(is_turn && admission.is_empty());
        attempts.set(attempts.get() + 1);
        Ok(Tried::Admitted)
    };
    admission.admit(1, attempt, no_wait).expect("admitted");
    assert_eq!((attempts.get(), admission.first_wanted()), (1, None));
}

/// It looks again at once, without a wait: what it lacked it has provided itself.
#[test]
fn an_attempt_that_made_room_is_followed_by_another_one() {
    let (admission, left) = (Admission::default(), Cell::new(3));
    let attempt = |_| {
        left.set(left.get() - 1);
        assert_eq!(admission.first_wanted(), if left.get() < 2 { Some(7) } else { None });
        Ok(if left.get() == 0 { Tried::Admitted } else { Tried::Retry })
    };
    admission.admit(7, attempt, no_wait).expect("admitted");
    assert_eq!((left.get(), admission.len()), (0, 0));
}

/// A wait that ends with an error, and an attempt that does, leave no place behind and wake the
/// next one.
#[test]
fn an_operation_that_gives_up_leaves_the_queue_to_the_next_one() {
    let admission = Admission::default();
    let cancelled = |_: &Arc<Event>, _| Err(Error::new(Code::StatementCancelled));
    let mut next = None;
    let lacking = |_| {
        // Another one arrives behind it.
        if next.is_none() && !admission.is_empty() {
            let place = admission.enter(2);
            next = Some((place.event.now(), place));
        }
        Ok(Tried::Wait)
    };
    let ended = admission.admit(1, lacking, cancelled).map_err(|e| e.code());
    assert_eq!(ended, Err(Code::StatementCancelled));
    let (seen, place) = next.expect("it arrived");
    assert!(place.is_first() && place.event.now() > seen, "it is woken");
    let stopped = admission.admit(1, |_| Err(Error::new(Code::WritesStopped)), no_wait);
    assert_eq!(stopped.map_err(|e| e.code()), Err(Code::WritesStopped));
    assert_eq!((admission.len(), admission.first_wanted()), (1, Some(2)));
}

#[test]
fn the_end_of_all_waits_wakes_also_those_whose_turn_it_is_not() {
    let admission = Admission::default();
    let places: Vec<QueuePlace<'_>> = (0..3).map(|n| admission.enter(n)).collect();
    let seen: Vec<u64> = places.iter().map(|place| place.event.now()).collect();
    admission.wake_first();
    let woken = |n: usize| places[n].event.now() > seen[n];
    assert_eq!([woken(0), woken(1), woken(2)], [true, false, false]);
    admission.wake_all();
    assert_eq!([woken(0), woken(1), woken(2)], [true, true, true]);
}

/// What happens to the queue.
#[derive(Clone, Debug)]
enum Step {
    /// An operation of so many tokens arrives.
    Arrives(u64),
    /// Tokens are provided, or given back.
    Adds(u64),
    /// One of the waiting operations is cancelled.
    GivesUp(usize),
    /// One of the woken operations runs.
    Runs(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1u64..9).prop_map(Step::Arrives),
        (0u64..9).prop_map(Step::Adds),
        (0usize..9).prop_map(Step::GivesUp),
        (0usize..9).prop_map(Step::Runs),
    ];
    prop::collection::vec(step, 1..60)
}

struct Waiting<'a> {
    number: usize,
    wanted: u64,
    place: QueuePlace<'a>,
    /// The count of its event before its last attempt.
    seen: u64,
}

struct World<'a> {
    admission: &'a Admission,
    tokens: u64,
    waiting: Vec<Waiting<'a>>,
    admitted: Vec<usize>,
}

impl World<'_> {
    fn woken(&self) -> Vec<usize> {
        let is_woken = |w: &&Waiting<'_>| w.place.event.now() != w.seen;
        self.waiting.iter().filter(is_woken).map(|w| w.number).collect()
    }

    /// The operation attempts if it is its turn, as `Admission::admit` does; then it waits.
    fn run(&mut self, number: usize) {
        let at = self.waiting.iter().position(|w| w.number == number).expect("it waits");
        let waiting = &mut self.waiting[at];
        waiting.seen = waiting.place.event.now();
        if waiting.place.is_first() && waiting.wanted <= self.tokens {
            self.tokens -= waiting.wanted;
            self.admitted.push(number);
            self.waiting.remove(at);
        }
    }
}

proptest! {
    /// Operations are admitted in the order of their arrival, none twice, and once every woken
    /// operation has run the first one lacks tokens: no wake-up is lost.
    #[test]
    fn tokens_go_to_the_first_and_no_wake_up_is_lost(steps in steps()) {
        let admission = Admission::default();
        let mut world =
            World { admission: &admission, tokens: 0, waiting: Vec::new(), admitted: Vec::new() };
        let mut model: Vec<(usize, u64)> = Vec::new();
        let (mut numbers, mut tokens) = (0.., 0u64);
        for step in steps {
            match step {
                Step::Arrives(wanted) => {
                    let number = numbers.next().expect("endless");
                    model.push((number, wanted));
                    if world.admission.is_empty() && wanted <= world.tokens {
                        world.tokens -= wanted;
                        world.admitted.push(number);
                    } else {
                        let place = world.admission.enter(wanted);
                        let seen = place.event.now();
                        world.waiting.push(Waiting { number, wanted, place, seen });
                        world.run(number);
                    }
                }
                Step::Adds(more) => {
                    tokens += more;
                    world.tokens += more;
                    world.admission.wake_first();
                }
                Step::GivesUp(n) if !world.waiting.is_empty() => {
                    let gone = world.waiting.remove(n % world.waiting.len());
                    model.retain(|(number, _)| *number != gone.number);
                }
                Step::Runs(n) => {
                    let woken = world.woken();
                    if !woken.is_empty() {
                        world.run(woken[n % woken.len()]);
                    }
                }
                Step::GivesUp(_) => {}
            }
            let waiting = world.waiting.iter().map(|w| w.wanted).collect::<Vec<_>>();
            prop_assert_eq!(admission.len(), waiting.len());
            prop_assert_eq!(admission.first_wanted(), waiting.first().copied());
        }
        while let Some(number) = world.woken().first().copied() {
            world.run(number);
        }
        // The model: each in its turn, as far as the tokens go.
        let mut expected = Vec::new();
        for (number, wanted) in &model {
            if *wanted > tokens {
                break;
            }
            tokens -= wanted;
            expected.push(*number);
        }
        prop_assert_eq!(&world.admitted, &expected);
        prop_assert_eq!(world.tokens, tokens);
    }
}
