//! Shared threads in the simulator's environment: no wake-up is lost, idle actors need no thread,
//! and actors that block or panic stop no other.

use super::*;
use evenkeel_base::Beat;
use evenkeel_io::sim::{SimEnv, SimOptions};
use evenkeel_io::{Rng, SimDisk};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Longer than an actor keeps its thread and a worker waits for the next one.
const LONG: Duration = Duration::from_secs(4);

/// What a test sees of an actor.
#[derive(Default)]
struct Seen {
    asked: AtomicBool,
    beats: AtomicU64,
    done: Arc<Event>,
}

impl Seen {
    fn beats(&self) -> u64 {
        self.beats.load(SeqCst)
    }

    fn ask(&self, actor: &Actor) {
        self.asked.store(true, SeqCst);
        actor.event.notify();
    }

    /// One beat: there is more to do if there was something to do.
    fn beat(&self) -> Result<Beat> {
        self.beats.fetch_add(1, SeqCst);
        self.done.notify();
        Ok(if self.asked.swap(false, SeqCst) { Beat::More } else { Beat::Idle })
    }
}

fn actor(rt: &Arc<Runtime>, name: &'static str) -> Arc<Actor> {
    Actor::new(name, rt, Arc::default(), false)
}

fn job(actor: &Arc<Actor>, seen: &Arc<Seen>, rest: Option<Duration>) -> Job {
    let seen = seen.clone();
    Job::new(actor.clone(), move || seen.beat(), move || rest)
}

/// Runs a test in the simulator's environment; the texts of panics in its background.
fn simulated(seed: u64, body: impl FnOnce(&Arc<Runtime>) + Send + 'static) -> Vec<String> {
    let sim = SimEnv::on(SimDisk::new(seed), SimOptions::new(seed));
    let rt = sim.runtime();
    sim.run(vec![Box::new(move || body(&rt))]);
    sim.panics()
}

fn stop(workers: &Workers, actor: &Arc<Actor>) -> Result<()> {
    actor.stop();
    workers.remove(actor)
}

/// (parked actors, workers).
fn counts(workers: &Workers) -> (usize, usize) {
    let state = workers.shared.state.lock();
    (state.parked.len(), state.tasks.len() - state.gone.len())
}

#[test]
fn idle_actors_need_no_worker_and_their_events_wake_them() {
    for seed in 0..50 {
        let panics = simulated(seed, |rt| {
            let workers = Workers::new(rt.clone());
            let all: Vec<_> = (0..20).map(|_| (actor(rt, "one"), Arc::<Seen>::default())).collect();
            for (actor, seen) in &all {
                workers.add(job(actor, seen, None)).expect("starts");
            }
            rt.delay(LONG, Cause::Idle);
            assert_eq!(counts(&workers), (20, 0));
            assert!(all.iter().all(|(_, seen)| seen.beats() == 1), "the first beat of each");
            let (actor, seen) = &all[7];
            seen.ask(actor);
            rt.wait_until(&seen.done, Cause::Idle, || seen.beats() >= 3);
            assert!(counts(&workers).1 <= 1, "one worker is enough");
            rt.delay(LONG, Cause::Idle);
            assert_eq!(counts(&workers), (20, 0));
            all.iter().for_each(|(actor, _)| stop(&workers, actor).expect("ends"));
            assert_eq!(counts(&workers), (0, 0));
            let beats: u64 = all.iter().map(|(_, seen)| seen.beats()).sum();
            assert_eq!(beats, 22, "no beat without a reason");
        });
        assert_eq!(panics, Vec::<String>::new());
    }
}

/// Requests at all distances from the moment at which an actor leaves its thread.
#[test]
fn no_request_is_lost_when_actors_leave_their_threads() {
    for seed in 0..300 {
        let panics = simulated(seed, move |rt| {
            let workers = Workers::new(rt.clone());
            let all: Vec<_> = (0..3).map(|_| (actor(rt, "one"), Arc::<Seen>::default())).collect();
            for (actor, seen) in &all {
                workers.add(job(actor, seen, None)).expect("starts");
            }
            let mut rng = Rng::new(seed);
            for _ in 0..30 {
                let (actor, seen) = &all[rng.below(3) as usize];
                seen.ask(actor);
                let near = ns(LINGER) - 200_000 + rng.below(400_000);
                let time = if rng.one_in(2) { near } else { rng.below(3_000_000) };
                rt.delay(Duration::from_nanos(time), Cause::Idle);
            }
            for (_, seen) in &all {
                rt.wait_until(&seen.done, Cause::Idle, || !seen.asked.load(SeqCst));
            }
            all.iter().for_each(|(actor, _)| stop(&workers, actor).expect("ends"));
        });
        assert_eq!(panics, Vec::<String>::new());
    }
}

/// The event advances after the actor's last look and before the dispatcher knows of it.
#[test]
fn a_request_just_before_an_actor_leaves_its_thread_is_seen() {
    let panics = simulated(1, |rt| {
        let workers = Workers::new(rt.clone());
        let (one, seen) = (actor(rt, "one"), Arc::<Seen>::default());
        let (told, event, first) = (seen.clone(), one.event.clone(), AtomicBool::new(true));
        let own = rt.clone();
        let rest = move || {
            // The dispatcher has nothing else to look for by now.
            own.delay(Duration::from_millis(100), Cause::Idle);
            if first.swap(false, SeqCst) {
                event.notify();
            }
            None
        };
        let job = Job::new(one.clone(), move || told.beat(), rest);
        workers.add(job).expect("starts");
        rt.delay(LONG, Cause::Idle);
        assert_eq!(seen.beats(), 2);
        stop(&workers, &one).expect("ends");
    });
    assert_eq!(panics, Vec::<String>::new());
}

#[test]
fn an_actor_without_a_thread_beats_when_its_time_has_come() {
    let panics = simulated(2, |rt| {
        let workers = Workers::new(rt.clone());
        let (one, seen) = (actor(rt, "one"), Arc::<Seen>::default());
        workers.add(job(&one, &seen, Some(Duration::from_secs(10)))).expect("starts");
        rt.delay(Duration::from_secs(95), Cause::Idle);
        assert_eq!((seen.beats(), counts(&workers)), (10, (1, 0)));
        stop(&workers, &one).expect("ends");
    });
    assert_eq!(panics, Vec::<String>::new());
}

/// As many actors as there are wait for the last one that was added: each gets a worker.
#[test]
fn beats_that_wait_for_other_actors_get_as_many_workers_as_they_need() {
    for seed in 0..20 {
        let panics = simulated(seed, |rt| {
            let workers = Workers::new(rt.clone());
            let (open, event) = (Arc::new(AtomicBool::new(false)), Arc::<Event>::default());
            let mut all = Vec::new();
            for _ in 0..10 {
                let (rt, open, event) = (rt.clone(), open.clone(), event.clone());
                let waits = actor(&rt, "waits");
                let beat = move || {
                    rt.wait_until(&event, Cause::Idle, || open.load(SeqCst));
                    Ok(Beat::Idle)
                };
                workers.add(Job::new(waits.clone(), beat, || None)).expect("starts");
                all.push(waits);
            }
            let opens = actor(rt, "opens");
            let beat = move || {
                open.store(true, SeqCst);
                event.notify();
                Ok(Beat::Idle)
            };
            workers.add(Job::new(opens.clone(), beat, || None)).expect("starts");
            rt.delay(LONG, Cause::Idle);
            assert_eq!(counts(&workers), (11, 0));
            all.iter().for_each(|actor| stop(&workers, actor).expect("ends"));
            stop(&workers, &opens).expect("ends");
        });
        assert_eq!(panics, Vec::<String>::new());
    }
}

/// Two databases share the threads. One actor of the first database panics, and another one waits
/// for a device that never answers. The actors of the second database go on.
#[test]
fn a_panic_or_a_stuck_device_of_one_database_does_not_stop_another() {
    for seed in 0..20 {
        let panics = simulated(seed, |rt| {
            let workers = Workers::new(rt.clone());
            let (panics, stuck) = (actor(rt, "panics"), actor(rt, "stuck"));
            let beat = || -> Result<Beat> { panic!("on purpose") };
            workers.add(Job::new(panics.clone(), beat, || None)).expect("starts");
            let (device, wait) = (Arc::<Event>::default(), rt.clone());
            let own = device.clone();
            let beat = move || {
                wait.wait_until(&own, Cause::DeviceSlow, || own.now() > 0);
                Ok(Beat::Idle)
            };
            workers.add(Job::new(stuck.clone(), beat, || None)).expect("starts");
            let (other, seen) = (actor(rt, "other"), Arc::<Seen>::default());
            workers.add(job(&other, &seen, None)).expect("starts");
            for _ in 0..3 {
                rt.delay(LONG, Cause::Idle);
                let before = seen.beats();
                seen.ask(&other);
                rt.wait_until(&seen.done, Cause::Idle, || seen.beats() > before);
            }
            stop(&workers, &other).expect("ends");
            device.notify();
            stop(&workers, &stuck).expect("ends");
            stop(&workers, &panics).expect_err("it has panicked");
        });
        assert_eq!(panics.len(), 1, "{panics:?}");
    }
}

/// An actor is removed from wherever it is, also from the hands of a worker in a beat.
#[test]
fn a_removed_actor_has_no_further_beat() {
    for seed in 0..200 {
        let panics = simulated(seed, move |rt| {
            let workers = Workers::new(rt.clone());
            let (one, seen) = (actor(rt, "one"), Arc::<Seen>::default());
            let (told, own) = (seen.clone(), rt.clone());
            let beat = move || {
                own.delay(Duration::from_millis(1), Cause::Idle);
                told.beat()
            };
            workers.add(Job::new(one.clone(), beat, || None)).expect("starts");
            let time = Rng::new(seed).below(2_000_000);
            rt.delay(Duration::from_nanos(time), Cause::Idle);
            seen.ask(&one);
            stop(&workers, &one).expect("ends");
            let beats = seen.beats();
            rt.delay(LONG, Cause::Idle);
            assert_eq!((seen.beats(), Arc::strong_count(&seen)), (beats, 1));
        });
        assert_eq!(panics, Vec::<String>::new());
    }
}

#[test]
fn helpers_of_all_databases_share_their_seats() {
    let seats = HelperSeats::new(2);
    let taken = [seats.take(), seats.take()];
    assert!(taken.iter().all(Option::is_some) && seats.take().is_none());
    drop(taken);
    assert!(seats.take().is_some());
}
