//! The threads that the actors of all open databases of a process share.
//!
//! An idle database needs no thread: an actor that has had nothing to do for `LINGER` leaves its
//! thread and is *parked*. One dispatcher watches the events and deadlines of all parked actors
//! (`Event::watch`) and passes an actor that is due to a worker. An actor in use keeps its worker
//! and sleeps on its own event, so its wake-ups cost what they cost with a thread of its own.
//!
//! ```text
//!   add --> due --(worker)--> running --(idle for LINGER)--> parked
//!            ^                                                  |
//!            +-------------(dispatcher: event or deadline)------+
//! ```
//!
//! Invariants:
//! - A job (an actor with its work) is in one place: due, parked, or in the hands of one worker.
//! - A beat may wait for another actor, also for long (log space, a slow device), so the number of
//!   workers has no limit: an actor that is due gets a new one if no worker is idle. First beats,
//!   which an open makes due all at once, wait `PATIENCE` for a worker to become idle.
//! - A worker that had nothing to do for `KEEP` ends; the last handle of the workers ends them all.
//! - A panic in a beat ends that actor and its worker, and no other. Who removes the actor hears of
//!   the panic.
//! - A thread's priority cannot be raised again: actors of the lower one have workers of their own.
//! - No lock is held over a wait, a beat, or the drop of a job.

use crate::background::actor::{Actor, AfterBeat, Job};
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, Result};
use evenkeel_io::{Event, RealEnv, Runtime, Task, Woken, lower_priority, name_thread};
use evenkeel_sched::laws::compaction::compaction_helpers;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// An actor keeps its worker for this long after its last work or wake-up.
const LINGER: Duration = Duration::from_secs(1);
/// An idle worker ends after this time.
const KEEP: Duration = Duration::from_secs(1);
/// First beats get a further worker if none was taken up for this long.
const PATIENCE: Duration = Duration::from_millis(2);
/// A start of a thread that failed is tried again after this time.
const RETRY: Duration = Duration::from_millis(100);
/// Times to try for the lock of the shared workers, a millisecond apart. In a child process nobody
/// may ever release it: the thread of the parent that held it at the fork does not exist there.
const LOCK_TRIES: usize = 1000;

/// Names of workers without an actor, by priority; others have the actor's name.
const IDLE_NAMES: [&str; 2] = ["ek-worker", "ek-worker-low"];

static SHARED: Mutex<Weak<Workers>> = Mutex::new(Weak::new());

/// A handle of the threads; the last one ends them.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    seats: Arc<HelperSeats>,
}

/// The threads that help compactions, of all databases together: each database that compacts has
/// one thread that begins compactions, but helpers beyond the cores would only take turns.
pub(crate) struct HelperSeats {
    free: AtomicUsize,
}

/// A seat for one beat, given back when dropped.
pub(crate) struct HelperSeat<'s>(&'s HelperSeats);

impl HelperSeats {
    fn new(count: usize) -> Arc<HelperSeats> {
        Arc::new(HelperSeats { free: AtomicUsize::new(count) })
    }

    /// A seat, if one is free.
    pub(crate) fn take(&self) -> Option<HelperSeat<'_>> {
        let less = |free: usize| free.checked_sub(1);
        self.free.fetch_update(SeqCst, SeqCst, less).is_ok().then_some(HelperSeat(self))
    }
}

impl Drop for HelperSeat<'_> {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, SeqCst);
    }
}

struct Shared {
    rt: Arc<Runtime>,
    /// Wakes the dispatcher.
    hub: Arc<Event>,
    /// What idle workers sleep on, by priority.
    work: [Arc<Event>; 2],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    parked: Vec<Resting>,
    /// Jobs for the next idle worker, by priority.
    due: [Queue; 2],
    /// Actors in the hands of a worker, by its number. A panic leaves its entry.
    running: BTreeMap<u64, Arc<Actor>>,
    /// The dispatcher was started, or is being started.
    dispatches: bool,
    dispatcher: Option<Box<dyn Task>>,
    /// Workers by number; those of `gone` have ended or are about to.
    tasks: BTreeMap<u64, Box<dyn Task>>,
    gone: Vec<u64>,
    /// Workers that end with their present actor.
    leaving: BTreeSet<u64>,
    next_task: u64,
    is_ending: bool,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Due>,
    /// Workers that will look into the queue.
    idle: usize,
    /// When a worker last took a job, or was started to take one.
    taken_ns: u64,
}

struct Due {
    job: Job,
    why: Why,
}

/// Why a job is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It was added.
    First,
    /// Its time has come.
    Time,
    /// Its event was notified.
    Event,
}

struct Resting {
    job: Job,
    seen: u64,
    until_ns: Option<u64>,
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

impl Workers {
    /// The threads that all databases of this process share.
    pub(crate) fn of_process() -> Arc<Workers> {
        // Nothing is opened in this environment: it has only the clock and the threads.
        let rt = Runtime::new(Arc::new(RealEnv::new(".")));
        for _ in 0..LOCK_TRIES {
            let Some(mut shared) = SHARED.try_lock() else {
                rt.delay(Duration::from_millis(1), Cause::Idle);
                continue;
            };
            // A child process has none of its parent's threads.
            let present = shared.upgrade().filter(|workers| !workers.shared.rt.is_forked());
            return present.unwrap_or_else(|| {
                let workers = Workers::new(rt);
                *shared = Arc::downgrade(&workers);
                workers
            });
        }
        Workers::new(rt)
    }

    /// Threads of `rt`, started when there is something to do.
    pub(crate) fn new(rt: Arc<Runtime>) -> Arc<Workers> {
        let shared =
            Shared { rt, hub: Arc::default(), work: Default::default(), state: Mutex::default() };
        let seats = HelperSeats::new(compaction_helpers(evenkeel_io::real::cores()));
        Arc::new(Workers { shared: Arc::new(shared), seats })
    }

    /// Seats for threads that help compactions.
    pub(crate) fn helper_seats(&self) -> Arc<HelperSeats> {
        self.seats.clone()
    }

    /// Has a job driven from now on, until `remove`.
    ///
    /// # Errors
    /// `ThreadSpawn`.
    pub(crate) fn add(&self, job: Job) -> Result<()> {
        let shared = &self.shared;
        let has_dispatcher = std::mem::replace(&mut shared.state.lock().dispatches, true);
        if !has_dispatcher {
            let own = shared.clone();
            let task = shared.rt.spawn_needed("ek-dispatch", move || own.dispatch());
            let mut state = shared.state.lock();
            state.dispatches = task.is_ok();
            state.dispatcher = Some(task?);
        }
        let is_low = job.actor.is_low;
        {
            let mut state = shared.state.lock();
            let queue = &mut state.due[usize::from(is_low)];
            if queue.jobs.is_empty() {
                queue.taken_ns = shared.rt.env.now_ns();
            }
            queue.jobs.push_back(Due { job, why: Why::First });
        }
        shared.work[usize::from(is_low)].notify();
        shared.hub.notify();
        Ok(())
    }

    /// Waits until no worker has an actor that was told to stop. The worker that had it ends.
    ///
    /// # Errors
    /// `Internal` if it panicked.
    pub(crate) fn remove(&self, actor: &Arc<Actor>) -> Result<()> {
        let shared = &self.shared;
        loop {
            let found = shared.state.lock().take(actor);
            let worker = match found {
                Found::Nowhere => return Ok(()),
                Found::Waiting(job) => {
                    drop(job);
                    return Ok(());
                }
                Found::With(worker) => worker,
            };
            let task = shared.state.lock().tasks.remove(&worker);
            if let Some(task) = task {
                let ended = task.join();
                let mut state = shared.state.lock();
                state.running.remove(&worker);
                state.leaving.remove(&worker);
                return ended;
            }
            // The thread that has started the worker is about to name it.
            shared.rt.delay(Duration::from_millis(1), Cause::Idle);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let shared = &self.shared;
        // A child process has no such threads.
        if shared.rt.is_forked() {
            return;
        }
        shared.state.lock().is_ending = true;
        shared.hub.notify();
        shared.work.iter().for_each(|work| work.notify());
        let dispatcher = shared.state.lock().dispatcher.take();
        if let Some(task) = dispatcher {
            shared.join(task);
        }
        // The dispatcher has ended, so no further thread is started.
        let tasks = std::mem::take(&mut shared.state.lock().tasks);
        tasks.into_values().for_each(|task| shared.join(task));
    }
}

/// What a worker does next.
enum Next {
    Job(Due),
    Wait,
    End,
}

/// Where an actor is.
enum Found {
    Waiting(Job),
    /// In the hands of this worker, which ends with it.
    With(u64),
    Nowhere,
}

impl State {
    /// Takes a job out of the place where it waits.
    fn take(&mut self, actor: &Arc<Actor>) -> Found {
        if let Some(at) = self.parked.iter().position(|p| Arc::ptr_eq(&p.job.actor, actor)) {
            actor.event.unwatch();
            return Found::Waiting(self.parked.swap_remove(at).job);
        }
        let queue = &mut self.due[usize::from(actor.is_low)];
        let at = queue.jobs.iter().position(|due| Arc::ptr_eq(&due.job.actor, actor));
        if let Some(due) = at.and_then(|at| queue.jobs.remove(at)) {
            return Found::Waiting(due.job);
        }
        match self.running.iter().find(|(_, running)| Arc::ptr_eq(running, actor)) {
            Some((worker, _)) => {
                self.leaving.insert(*worker);
                Found::With(*worker)
            }
            None => Found::Nowhere,
        }
    }

    /// Moves parked jobs whose event was notified, or whose time has come, to the workers. These go
    /// before first beats. Returns how many there are of each priority.
    fn wake(&mut self, now_ns: u64) -> [usize; 2] {
        let mut woken = [0; 2];
        let mut at = 0;
        while let Some(parked) = self.parked.get(at) {
            let is_notified = parked.job.actor.event.now() != parked.seen;
            let is_over = parked.until_ns.is_some_and(|until| until <= now_ns);
            if !is_notified && !is_over {
                at += 1;
                continue;
            }
            let Resting { job, .. } = self.parked.swap_remove(at);
            job.actor.event.unwatch();
            let why = if is_notified { Why::Event } else { Why::Time };
            let priority = usize::from(job.actor.is_low);
            woken[priority] += 1;
            self.due[priority].jobs.push_front(Due { job, why });
        }
        woken
    }

    /// What a worker does next; `waited`: it has had nothing to do for `KEEP`.
    fn next(&mut self, worker: u64, is_low: bool, waited: bool, now_ns: u64) -> Next {
        let is_ending = self.is_ending;
        let queue = &mut self.due[usize::from(is_low)];
        if let Some(due) = queue.jobs.pop_front() {
            queue.idle -= 1;
            queue.taken_ns = now_ns;
            self.running.insert(worker, due.job.actor.clone());
            return Next::Job(due);
        }
        if waited || is_ending {
            queue.idle -= 1;
            self.gone.push(worker);
            return Next::End;
        }
        Next::Wait
    }

    /// The time at which the next parked job is due.
    fn next_deadline_ns(&self) -> Option<u64> {
        self.parked.iter().filter_map(|parked| parked.until_ns).min()
    }
}

impl Queue {
    /// The number of workers to start now, and the time at which to look again.
    fn missing(&mut self, now_ns: u64) -> (usize, Option<u64>) {
        let waiting = self.jobs.len();
        let urgent = self.jobs.iter().filter(|due| due.why != Why::First).count();
        let mut missing = urgent.saturating_sub(self.idle);
        if waiting <= self.idle + missing {
            return (missing, None);
        }
        let patient_until = self.taken_ns + ns(PATIENCE);
        if missing == 0 && self.idle == 0 && now_ns >= patient_until {
            self.taken_ns = now_ns;
            missing = 1;
        }
        let look_ns = if now_ns < patient_until { patient_until } else { now_ns + ns(PATIENCE) };
        (missing, Some(look_ns))
    }
}

impl Shared {
    /// Waits for the end of a thread that runs no actor any more.
    fn join(&self, task: Box<dyn Task>) {
        if task.join().is_err() {
            log::debug!("a thread of the background has panicked");
        }
    }

    /// The dispatcher's loop.
    fn dispatch(self: Arc<Shared>) {
        loop {
            let seen = self.hub.now();
            let (missing, look_ns, gone) = {
                let mut state = self.state.lock();
                if state.is_ending {
                    return;
                }
                let now_ns = self.rt.env.now_ns();
                let woken = state.wake(now_ns);
                for (priority, _) in woken.iter().enumerate().filter(|(_, woken)| **woken > 0) {
                    self.work[priority].notify();
                }
                let [usual, low] = &mut state.due;
                let (usual, low) = (usual.missing(now_ns), low.missing(now_ns));
                let looks = [usual.1, low.1, state.next_deadline_ns()];
                let gone = std::mem::take(&mut state.gone);
                let gone: Vec<_> = gone.iter().filter_map(|n| state.tasks.remove(n)).collect();
                ([usual.0, low.0], looks.into_iter().flatten().min(), gone)
            };
            gone.into_iter().for_each(|task| self.join(task));
            let mut failed = false;
            for (is_low, missing) in [false, true].into_iter().zip(missing) {
                (0..missing).for_each(|_| failed |= !self.start_worker(is_low));
            }
            let look_in = look_ns.map(|at| at.saturating_sub(self.rt.env.now_ns()));
            let look_in = [look_in, failed.then_some(ns(RETRY))].into_iter().flatten().min();
            self.rt.wait(&self.hub, seen, look_in.map(Duration::from_nanos), Cause::Idle);
        }
    }

    /// Starts a worker; false if the system has no thread.
    fn start_worker(self: &Arc<Shared>, is_low: bool) -> bool {
        let number = {
            let mut state = self.state.lock();
            state.due[usize::from(is_low)].idle += 1;
            state.next_task += 1;
            state.next_task
        };
        let own = self.clone();
        match self.rt.spawn_needed(IDLE_NAMES[usize::from(is_low)], move || {
            own.work(number, is_low);
        }) {
            Ok(task) => {
                self.state.lock().tasks.insert(number, task);
                true
            }
            Err(error) => {
                log::error!("background work waits for a thread: {error}");
                self.state.lock().due[usize::from(is_low)].idle -= 1;
                false
            }
        }
    }

    /// A worker's loop.
    fn work(&self, number: u64, is_low: bool) {
        if is_low && !lower_priority() {
            log::warn!("compactions have the priority of users: the system refuses a lower one");
        }
        let work = &self.work[usize::from(is_low)];
        let mut waited = false;
        loop {
            let seen = work.now();
            let due = self.state.lock().next(number, is_low, waited, self.rt.env.now_ns());
            let Next::Job(due) = due else {
                if matches!(due, Next::End) {
                    return;
                }
                waited = self.rt.wait(work, seen, Some(KEEP), Cause::Idle) == Woken::Timeout;
                continue;
            };
            waited = false;
            name_thread(due.job.actor.name);
            self.run(due);
            name_thread(IDLE_NAMES[usize::from(is_low)]);
            let mut state = self.state.lock();
            state.running.remove(&number);
            if state.leaving.contains(&number) {
                return;
            }
            state.due[usize::from(is_low)].idle += 1;
        }
    }

    /// Drives an actor until it has had nothing to do for a while.
    fn run(&self, Due { mut job, why }: Due) {
        let now = || self.rt.env.now_ns();
        let mut active_ns = (why == Why::Event).then(now);
        loop {
            let (seen, rest) = match job.beat() {
                AfterBeat::Beat => {
                    active_ns = Some(now());
                    continue;
                }
                AfterBeat::End => return,
                AfterBeat::Sleep { seen, rest } => (seen, rest),
            };
            let is_active = active_ns.is_some_and(|at| now().saturating_sub(at) < ns(LINGER));
            if !is_active {
                return self.park(job, seen, rest);
            }
            let time = rest.unwrap_or(LINGER).min(LINGER);
            let actor = &job.actor;
            match actor.rt.wait(&actor.event, seen, Some(time), Cause::Idle) {
                Woken::Event => active_ns = Some(now()),
                Woken::Timeout if Some(time) == rest => {}
                Woken::Timeout => {
                    let rest = rest.map(|rest| rest.saturating_sub(time));
                    return self.park(job, seen, rest);
                }
            }
        }
    }

    /// Leaves the job to the dispatcher, which wakes the actor when its event advances from `seen`
    /// or `rest` has passed.
    fn park(&self, job: Job, seen: u64, rest: Option<Duration>) {
        let until_ns = rest.map(|rest| self.rt.env.now_ns().saturating_add(ns(rest)));
        let stopped = {
            let mut state = self.state.lock();
            match job.actor.is_stopped() {
                true => Some(job),
                false => {
                    job.actor.event.watch(&self.hub);
                    state.parked.push(Resting { job, seen, until_ns });
                    None
                }
            }
        };
        drop(stopped);
        // The dispatcher sleeps as long as the deadlines that it knows, and may have missed a
        // notification from before it was told of.
        if !fault_injection::is(Fault::ParkedUnseen) {
            self.hub.notify();
        }
    }
}

#[cfg(test)]
#[path = "workers_tests.rs"]
mod workers_tests;
