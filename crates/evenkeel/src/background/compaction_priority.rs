//! Decides whether compaction threads run at the usual or at a lower priority where they and users
//! compete for the processors (RFC 0023).
//!
//! Two compaction threads on two cores leave an inserting thread two thirds of one core, so users
//! notice seconds with much compaction. Threads of a lower priority leave users the processors that
//! they want and use the rest, which is enough while few users are at work. While many users are at
//! work such threads would get next to nothing, and a thread cannot be given its priority back. So
//! each compaction thread has a twin of a lower priority, and one of the two has the turn: the
//! twin, until it starves.
//!
//! Invariants: at most one of the two twins runs a beat. A twin is woken when it gets the turn.

use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Result};
use evenkeel_io::Event;
use evenkeel_sched::Scheduler;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SECOND: u64 = 1_000_000_000;
/// Time of compaction threads, running or waiting for a processor, between two evaluations.
const LOOK_NS: u64 = SECOND / 5;
/// Threads of a lower priority starve if they wait for a processor longer than this many times the
/// time that they run.
const STARVED: u64 = 3;
/// After starvation the threads of the usual priority have the turn, for at least the first and at
/// most the second time: the sooner the others starved again, the longer.
const USUAL_NS: (u64, u64) = (5 * SECOND, 80 * SECOND);
/// Starvation is forgotten after this time without any.
const FINE_NS: u64 = 10 * SECOND;

/// Which priority has the turn, since when, and how long the usual priority keeps it at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Turn {
    is_low: bool,
    since_ns: u64,
    usual_ns: u64,
}

/// The law: compaction threads ran for `ran_ns` and waited for a processor for `waited_ns`.
fn next(turn: Turn, ran_ns: u64, waited_ns: u64, now_ns: u64) -> Turn {
    let long = now_ns.saturating_sub(turn.since_ns);
    match turn.is_low {
        true if waited_ns > ran_ns.saturating_mul(STARVED) => {
            let more = if long < FINE_NS { turn.usual_ns.saturating_mul(2) } else { 0 };
            let usual_ns = more.clamp(USUAL_NS.0, USUAL_NS.1);
            Turn { is_low: false, since_ns: now_ns, usual_ns }
        }
        // Even threads of the usual priority wait much: those of the lower one would starve.
        false if long >= turn.usual_ns && waited_ns < ran_ns => {
            Turn { is_low: true, since_ns: now_ns, ..turn }
        }
        _ => turn,
    }
}

#[derive(Default)]
struct State {
    turn: Turn,
    /// Sums since the last evaluation.
    ran_ns: u64,
    waited_ns: u64,
}

/// Shared by all compaction threads.
pub(crate) struct CompactionPriority {
    state: Mutex<State>,
    is_low: AtomicBool,
    sched: Arc<Scheduler>,
    /// What the threads sleep on.
    events: [Arc<Event>; 2],
}

impl CompactionPriority {
    pub(crate) fn new(sched: Arc<Scheduler>, events: [Arc<Event>; 2]) -> Arc<CompactionPriority> {
        Arc::new(CompactionPriority {
            state: Mutex::default(),
            is_low: AtomicBool::new(false),
            sched,
            events,
        })
    }

    fn wake(&self) {
        self.events.iter().for_each(|event| event.notify());
    }

    /// A compaction thread ran this long, and waited this long for a processor.
    fn saw(&self, ran_ns: u64, waited_ns: u64, now_ns: u64) {
        let has_changed = {
            let mut state = self.state.lock();
            state.ran_ns += ran_ns;
            state.waited_ns += waited_ns;
            if state.ran_ns + state.waited_ns < LOOK_NS {
                return;
            }
            let (ran, waited) = (state.ran_ns, state.waited_ns);
            let turn = next(state.turn, ran, waited, now_ns);
            let has_changed = turn.is_low != state.turn.is_low;
            *state = State { turn, ..State::default() };
            self.is_low.store(turn.is_low, Ordering::SeqCst);
            // Threads that need the usual priority so as not to starve run no wider than necessary.
            if has_changed || waited >= ran {
                self.sched.governor.set_crowded(!turn.is_low);
            }
            has_changed
        };
        if has_changed {
            self.sched.runtime().metrics.add(Metric::CompactionPriorityChanges, 1);
            self.wake();
        }
    }
}

/// One of two twins.
pub(crate) struct Twin {
    shared: Arc<CompactionPriority>,
    is_low: bool,
    /// One of the two runs a beat.
    is_busy: Arc<AtomicBool>,
    /// Running and waiting time of the thread at its last look.
    seen: (u64, u64),
}

impl Twin {
    /// The twin of the usual priority and the one of the lower.
    pub(crate) fn both(shared: &Arc<CompactionPriority>) -> [Twin; 2] {
        let is_busy = Arc::new(AtomicBool::new(false));
        let twin = |is_low| Twin {
            shared: shared.clone(),
            is_low,
            is_busy: is_busy.clone(),
            seen: (0, 0),
        };
        [twin(false), twin(true)]
    }

    fn has_turn(&self) -> bool {
        self.shared.is_low.load(Ordering::SeqCst) == self.is_low
    }

    /// Says whether this twin has the turn.
    pub(crate) fn turn(&self) -> impl Fn() -> bool + Send + use<> {
        let (shared, is_low) = (self.shared.clone(), self.is_low);
        move || shared.is_low.load(Ordering::SeqCst) == is_low
    }

    pub(crate) fn is_low(&self) -> bool {
        self.is_low
    }

    /// Beats run on another thread from now on; `counts`: how long it has run and waited so far.
    pub(crate) fn begin_thread(&mut self, counts: Option<(u64, u64)>) {
        self.seen = counts.unwrap_or_default();
    }

    /// Runs a beat if this twin has the turn; else `Idle`. `processor` returns how long this thread
    /// has run so far, and how long it has waited for a processor.
    ///
    /// # Errors
    /// Those of the beat.
    pub(crate) fn beat(
        &mut self,
        now_ns: impl Fn() -> u64,
        processor: impl Fn() -> Option<(u64, u64)>,
        beat: &mut dyn FnMut() -> Result<Beat>,
    ) -> Result<Beat> {
        if !self.has_turn() || self.is_busy.swap(true, Ordering::SeqCst) {
            return Ok(Beat::Idle);
        }
        let done = beat();
        if let (Ok(Beat::More), Some((ran, waited))) = (&done, processor()) {
            let before = std::mem::replace(&mut self.seen, (ran, waited));
            let (ran, waited) = (ran.saturating_sub(before.0), waited.saturating_sub(before.1));
            self.shared.saw(ran, waited, now_ns());
        }
        self.is_busy.store(false, Ordering::SeqCst);
        if !self.has_turn() {
            // The other twin may have found this one busy, and may sleep.
            self.shared.wake();
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_io::{MemEnv, Runtime};
    use evenkeel_sched::Class;

    const MS: u64 = 1_000_000;

    fn sched() -> Arc<Scheduler> {
        Scheduler::new(Runtime::new(Arc::new(MemEnv::new())))
    }

    #[test]
    fn compaction_priority_changes_after_its_usual_time() {
        let usual = |since: u64, usual_s: u64| Turn {
            is_low: false,
            since_ns: since * SECOND,
            usual_ns: usual_s * SECOND,
        };
        let low = |since: u64, usual_s: u64| Turn { is_low: true, ..usual(since, usual_s) };
        let ms = |turn, ran: u64, waited: u64, now_s: u64| {
            next(turn, ran * MS, waited * MS, now_s * SECOND)
        };
        // At the beginning, next to one user on two cores.
        assert_eq!(ms(Turn::default(), 140, 60, 1), low(1, 0));
        assert_eq!(ms(low(1, 0), 100, 100, 7), low(1, 0), "half of a processor each is enough");
        assert_eq!(ms(low(1, 0), 50, 150, 7), low(1, 0), "and a quarter");
        // Many users arrive.
        assert_eq!(ms(low(1, 0), 49, 151, 7), usual(7, 5));
        assert_eq!(ms(usual(7, 5), 20, 180, 60), usual(7, 5), "and stay");
        assert_eq!(ms(usual(7, 5), 140, 60, 11), usual(7, 5), "they are waited for");
        assert_eq!(ms(usual(7, 5), 140, 60, 12), low(12, 5));
        // They are still there, the next time as well.
        assert_eq!(ms(low(12, 5), 2, 198, 13), usual(13, 10));
        assert_eq!(ms(low(30, 10), 2, 198, 31), usual(31, 20));
        assert_eq!(ms(low(30, 80), 2, 198, 31), usual(31, 80));
        assert_eq!(ms(low(30, 80), 2, 198, 40), usual(40, 5), "long ago");
    }

    /// The beats move from one twin to the other with the turn, and the twin that has it never
    /// sleeps.
    #[test]
    fn one_twin_thread_works_and_the_other_sleeps() {
        let events: [Arc<Event>; 2] = Default::default();
        let shared = CompactionPriority::new(sched(), events.clone());
        let [mut usual, mut low] = Twin::both(&shared);
        let mut count = 0;
        let mut work = || {
            count += 1;
            Ok(Beat::More)
        };
        shared.sched.runtime().journal.keep(true);
        let crowded = |second: u64| {
            shared.sched.governor.grant(Class::Compaction, 1, true, second * SECOND);
            shared
                .sched
                .runtime()
                .journal
                .take()
                .last()
                .and_then(|decision| decision.inputs.last().copied())
        };
        let told = || events.iter().map(|event| event.now()).sum::<u64>();
        let runs = |ran: u64, waited: u64| move || Some((ran * MS, waited * MS));
        assert_eq!(low.beat(|| 0, runs(0, 0), &mut work).expect("a beat"), Beat::Idle);
        // The thread shares a processor for a while.
        assert_eq!(usual.beat(|| SECOND, runs(100, 40), &mut work).expect("a beat"), Beat::More);
        assert_eq!(told(), 0, "too short to tell");
        assert_eq!(usual.beat(|| SECOND, runs(200, 80), &mut work).expect("a beat"), Beat::More);
        let after = told();
        assert!(after > 0, "the other one is woken");
        assert_eq!(crowded(1), Some(0));
        assert_eq!(usual.beat(|| SECOND, runs(200, 80), &mut work).expect("a beat"), Beat::Idle);
        assert_eq!(low.beat(|| SECOND, runs(40, 100), &mut work).expect("a beat"), Beat::More);
        // Earlier waits no longer count.
        assert_eq!(low.beat(|| 2 * SECOND, runs(50, 300), &mut work).expect("a beat"), Beat::More);
        assert!(told() > after, "it starves");
        assert_eq!(crowded(2), Some(1), "those who do not take no more than is enough");
        assert_eq!(low.beat(|| 2 * SECOND, runs(50, 300), &mut work).expect("a beat"), Beat::Idle);
        assert_eq!(
            usual.beat(|| 2 * SECOND, runs(200, 80), &mut work).expect("a beat"),
            Beat::More
        );
        assert_eq!(count, 5);
        assert_eq!(shared.sched.runtime().metrics.get(Metric::CompactionPriorityChanges), 2);
    }

    /// Where the system does not tell who waits for a processor, the priority stays as usual.
    #[test]
    fn unknown_waits_leave_the_priority() {
        let shared = CompactionPriority::new(sched(), Default::default());
        let [mut usual, mut low] = Twin::both(&shared);
        for second in 0..100 {
            let done = usual.beat(|| second * SECOND, || None, &mut || Ok(Beat::More));
            assert_eq!(done.expect("a beat"), Beat::More);
            assert_eq!(
                low.beat(|| 0, || None, &mut || Ok(Beat::More)).expect("a beat"),
                Beat::Idle
            );
        }
    }

    /// A turn that ends amid a beat of the other thread waits for its end.
    #[test]
    fn a_change_of_priority_waits_for_a_running_beat() {
        let events: [Arc<Event>; 2] = Default::default();
        let shared = CompactionPriority::new(sched(), events.clone());
        let ([mut usual, mut low], nobody) = (Twin::both(&shared), || None);
        let done = usual.beat(|| 0, nobody, &mut || {
            shared.saw(200 * MS, 0, SECOND);
            let woken = low.beat(|| 0, nobody, &mut || Ok(Beat::More));
            assert_eq!(woken.expect("a beat"), Beat::Idle, "not at once");
            Ok(Beat::More)
        });
        assert_eq!(done.expect("a beat"), Beat::More);
        assert!(events.iter().all(|event| event.now() == 2), "at the change, and at the end");
        assert_eq!(low.beat(|| 0, nobody, &mut || Ok(Beat::More)).expect("a beat"), Beat::More);
    }
}
