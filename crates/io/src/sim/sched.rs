//! The baton scheduler (protocol G5): of all threads of a simulation only the holder of one baton
//! runs; at each wait the seed chooses the next holder among the runnable threads. If there is
//! none, the virtual clock jumps to the nearest deadline; without a deadline, that is a deadlock.
//!
//! Invariants: everything that determines the order (random numbers, the clock, the state of
//! threads) changes only in the hands of the holder, so equal seeds give equal schedules. An
//! unknown thread that calls in becomes an *outside* thread (usually the test's own). After a crash
//! each thread may wait a few more times (to see its errors and finish); then a wait unwinds it
//! with the payload [`Unwound`]. No thread may hold a `Mutex` over a wait.

use super::disk::SimDisk;
use super::{Moods, SimOptions};
use crate::rng::{SharedRng, mix};
use crate::{Event, Woken};
use evenkeel_base::Cause;
use evenkeel_base::sync::{Condvar, Mutex, MutexGuard};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Waits that a thread may do after the crash before a wait unwinds it.
const WAITS_AFTER_CRASH: u32 = 16;
/// This many waits while unwinding, or of an outside thread after the end, mean that the thread
/// never finishes.
const WAITS_AT_END: u32 = 100_000;
/// An outside thread that waits this long while nothing is scheduled reports a hang.
const HANG: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 60 });

/// Background threads run on for this long, by the virtual clock or by turns, while every other
/// thread waits without a time limit: what those wait for never comes.
const FUTILE_NS: u64 = 600_000_000_000;
const FUTILE_TURNS: u64 = 2_000_000;

/// The payload with which a wait unwinds a thread of a crashed or stopped simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwound;

/// The role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Not started by the simulation.
    Outside,
    /// A closure of `run`.
    Session,
    /// Started by `Env::spawn`.
    Background,
}

enum State {
    Ready,
    Waiting(Wait),
    Done,
}

struct Wait {
    event: Arc<Event>,
    seen: u64,
    deadline: Option<u64>,
    cause: Cause,
    /// Waits for the end of threads: continues only then, crash or not.
    join: bool,
}

impl Wait {
    fn is_over(&self, now: u64) -> bool {
        self.event.now() != self.seen || self.deadline.is_some_and(|d| d <= now)
    }
}

struct Slot {
    name: String,
    role: Role,
    state: State,
    turn: Arc<Turn>,
    late_waits: u32,
    /// Its share of the turns.
    weight: u64,
}

/// Where a thread sleeps until it gets the baton.
#[derive(Default)]
struct Turn {
    mine: Mutex<bool>,
    condvar: Condvar,
}

impl Turn {
    fn give(&self) {
        *self.mine.lock() = true;
        self.condvar.notify_one();
    }
}

enum Mode {
    Running,
    /// Threads unwind at their next wait; the text is the reason, if it is a failure.
    Ending(Option<String>),
}

/// What a wait does to a thread that should end.
enum Late {
    GoOn,
    Unwind,
    Panic(String),
}

struct Table {
    slots: Vec<Slot>,
    holder: Option<usize>,
    mode: Mode,
    switches: u64,
    trace: u64,
    /// Turn and time of the last choice of a thread that is not a background one.
    driven: (u64, u64),
    /// The messages of background threads that panicked.
    panics: Vec<String>,
    /// An outside thread was told why the simulation failed.
    reported: bool,
}

/// The scheduler of one simulation.
pub(super) struct Scheduler {
    id: u64,
    pub options: SimOptions,
    moods: Moods,
    pub disk: SimDisk,
    pub rng: SharedRng,
    clock: AtomicU64,
    /// The CPU on which all started threads run.
    pub cpu: OnceLock<usize>,
    table: Mutex<Table>,
    /// Notified at the end of every thread.
    pub ended: Arc<Event>,
}

/// This OS thread's slots in the simulations in which it takes part.
struct Membership {
    id: u64,
    slot: usize,
    outside: bool,
    scheduler: Weak<Scheduler>,
}

struct Memberships(RefCell<Vec<Membership>>);

impl Drop for Memberships {
    fn drop(&mut self) {
        for member in self.0.borrow().iter().filter(|m| m.outside) {
            if let Some(scheduler) = member.scheduler.upgrade() {
                scheduler.leave(member.slot);
            }
        }
    }
}

thread_local! {
    static MEMBER: Memberships = const { Memberships(RefCell::new(Vec::new())) };
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Scheduler {
    pub fn new(options: SimOptions, disk: SimDisk) -> Arc<Scheduler> {
        Arc::new(Scheduler {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            options,
            disk,
            moods: Moods::new(&options),
            rng: SharedRng::new(options.seed),
            clock: AtomicU64::new(1_000_000_000),
            cpu: OnceLock::new(),
            table: Mutex::new(Table {
                slots: Vec::new(),
                holder: None,
                mode: Mode::Running,
                switches: 0,
                trace: mix(options.seed),
                driven: (0, 0),
                panics: Vec::new(),
                reported: false,
            }),
            ended: Arc::new(Event::new()),
        })
    }

    /// The clock; each reading advances it a little, so that loops on it end.
    pub fn now_ns(&self) -> u64 {
        self.clock.fetch_add(20, Ordering::Relaxed)
    }

    /// Lets time pass without a wait.
    pub fn pass(&self, ns: u64) {
        self.clock.fetch_add(ns, Ordering::Relaxed);
    }

    /// (hand-overs, hash of the schedule): equal for equal runs.
    pub fn trace(&self) -> (u64, u64) {
        let table = self.table.lock();
        (table.switches, table.trace)
    }

    /// The failure that ended the simulation, for the caller to report.
    pub fn failure(&self) -> Option<String> {
        let mut table = self.table.lock();
        let Mode::Ending(Some(why)) = &table.mode else { return None };
        let why = why.clone();
        table.reported = true;
        Some(why)
    }

    /// Texts of the panics in the background so far.
    pub fn panics(&self) -> Vec<String> {
        self.table.lock().panics.clone()
    }

    fn known_slot(&self) -> Option<usize> {
        let find = |m: &Memberships| m.0.borrow().iter().find(|m| m.id == self.id).map(|m| m.slot);
        MEMBER.try_with(find).ok().flatten()
    }

    fn remember(self: &Arc<Self>, slot: usize, outside: bool) {
        let scheduler = Arc::downgrade(self);
        let _ = MEMBER.try_with(|m| {
            let mut members = m.0.borrow_mut();
            members.retain(|m| m.scheduler.strong_count() > 0);
            members.push(Membership { id: self.id, slot, outside, scheduler });
        });
    }

    /// This thread's slot; an unknown thread is added and gets the baton first.
    pub fn me(self: &Arc<Self>) -> usize {
        if let Some(slot) = self.known_slot() {
            return slot;
        }
        let mut table = self.table.lock();
        let slot = table.add("outside", Role::Outside);
        self.remember(slot, true);
        if table.holder.is_none() {
            table.holder = Some(slot);
        } else {
            self.sleep(table, slot);
        }
        slot
    }

    /// Adds a thread, which will call `begin` and `end` from its own OS thread.
    pub fn add(self: &Arc<Self>, name: &str, role: Role) -> usize {
        self.me();
        self.table.lock().add(name, role)
    }

    /// First call of a started thread: waits for its first turn.
    pub fn begin(self: &Arc<Self>, slot: usize) {
        self.remember(slot, false);
        self.sleep(self.table.lock(), slot);
    }

    /// Last call of a started thread. A session's panic ends the simulation.
    pub fn end(&self, slot: usize, panic: Option<String>) {
        let mut table = self.table.lock();
        table.slots[slot].state = State::Done;
        if let Some(message) = panic {
            let name = &table.slots[slot].name;
            let seed = self.options.seed;
            let text = format!("thread {name} panicked (seed {seed}): {message}");
            if table.slots[slot].role == Role::Session && matches!(table.mode, Mode::Running) {
                table.mode = Mode::Ending(Some(text));
            } else {
                log::error!("{text}");
                table.panics.push(text);
            }
        }
        self.ended.notify();
        self.pass_on(table, slot);
    }

    /// An outside OS thread has ended. Without it no thread may ever end the others: unwind them.
    fn leave(&self, slot: usize) {
        let mut table = self.table.lock();
        table.slots[slot].state = State::Done;
        let alone = |s: &Slot| s.role != Role::Outside || matches!(s.state, State::Done);
        if table.slots.iter().all(alone) && matches!(table.mode, Mode::Running) {
            table.mode = Mode::Ending(None);
        }
        if table.holder == Some(slot) {
            self.pass_on(table, slot);
        }
    }

    /// Passes the baton on for good.
    fn pass_on(&self, mut table: MutexGuard<'_, Table>, from: usize) {
        table.holder = self.choose(&mut table, from);
        if let Some(next) = table.holder {
            let turn = table.slots[next].turn.clone();
            drop(table);
            turn.give();
        }
    }

    /// A point where another thread may run, one time in `one_in`; rarely this one is delayed for
    /// up to 1 ms, as by an operating system that runs others first.
    pub fn step(self: &Arc<Self>, one_in: u64, never: &Arc<Event>) {
        if !self.rng.one_in(one_in) {
            return;
        }
        if self.rng.one_in(self.moods.hold_up) {
            let time = Duration::from_micros(1 << self.rng.below(11));
            self.wait(never, never.now(), Some(time), Cause::Unexplained);
            return;
        }
        let me = self.me();
        self.pass(self.rng.below(1000));
        let mut table = self.table.lock();
        table.slots[me].state = State::Ready;
        self.hand_over(table, me);
    }

    /// `Env::wait` with a time-out above zero or none.
    pub fn wait(
        self: &Arc<Self>,
        event: &Arc<Event>,
        seen: u64,
        timeout: Option<Duration>,
        cause: Cause,
    ) -> Woken {
        let me = self.me();
        self.pass(self.rng.below(1000));
        let now = self.clock.load(Ordering::Relaxed);
        let deadline = timeout.map(|t| now.saturating_add(t.as_nanos() as u64));
        let mut table = self.table.lock();
        let event = event.clone();
        let wait = Wait { event: event.clone(), seen, deadline, cause, join: false };
        table.slots[me].state = State::Waiting(wait);
        self.hand_over(table, me);
        if event.now() != seen { Woken::Event } else { Woken::Timeout }
    }

    /// Waits until `over` holds, which depends on the end of some thread. Never unwinds.
    pub fn join(self: &Arc<Self>, over: impl Fn() -> bool) {
        let me = self.me();
        loop {
            let seen = self.ended.now();
            if over() {
                return;
            }
            let mut table = self.table.lock();
            let event = self.ended.clone();
            let wait = Wait { event, seen, deadline: None, cause: Cause::Idle, join: true };
            table.slots[me].state = State::Waiting(wait);
            if !self.switch(table, me) {
                return;
            }
        }
    }

    /// True if these threads have all ended.
    pub fn all_ended(&self, slots: &[usize]) -> bool {
        let table = self.table.lock();
        slots.iter().all(|s| matches!(table.slots[*s].state, State::Done))
    }

    /// Ends the simulation: every started thread unwinds at its next wait. Returns when all have.
    pub fn stop(self: &Arc<Self>) {
        self.me();
        let started: Vec<usize> = {
            let mut table = self.table.lock();
            if matches!(table.mode, Mode::Running) {
                table.mode = Mode::Ending(None);
            }
            let slots = table.slots.iter().enumerate();
            slots.filter(|(_, s)| s.role != Role::Outside).map(|(i, _)| i).collect()
        };
        self.join(|| self.all_ended(&started));
    }

    /// Passes the baton to a chosen thread and returns when this one is chosen again; unwinds it if
    /// the simulation is over.
    fn hand_over(self: &Arc<Self>, table: MutexGuard<'_, Table>, me: usize) {
        self.switch(table, me);
        let mut table = self.table.lock();
        let ending = !matches!(table.mode, Mode::Running);
        if !ending && !self.disk.is_crashed() {
            return;
        }
        let late = self.late(&mut table, me, ending);
        drop(table);
        match late {
            Late::GoOn => {}
            Late::Unwind => std::panic::resume_unwind(Box::new(Unwound)),
            Late::Panic(why) => panic!("{why}"),
        }
    }

    fn late(&self, table: &mut Table, me: usize, ending: bool) -> Late {
        table.slots[me].late_waits += 1;
        let late = table.slots[me].late_waits;
        let over = late > if ending { WAITS_AT_END } else { WAITS_AFTER_CRASH };
        if std::thread::panicking() {
            // A panic while unwinding ends the process, with its text.
            let why = || format!("waits for ever while unwinding: {}", self.why(table));
            return if late > WAITS_AT_END { Late::Panic(why()) } else { Late::GoOn };
        }
        if table.slots[me].role != Role::Outside {
            return if ending || over { Late::Unwind } else { Late::GoOn };
        }
        // The test's own thread hears of a failure once; then it may clean up.
        let failed = matches!(table.mode, Mode::Ending(Some(_)));
        if failed && !std::mem::replace(&mut table.reported, true) {
            return Late::Panic(self.why(table));
        }
        match over {
            true if super::in_catch() => Late::Unwind,
            true => Late::Panic(format!("a wait after the end: {}", self.why(table))),
            false => Late::GoOn,
        }
    }

    fn why(&self, table: &Table) -> String {
        let seed = self.options.seed;
        match &table.mode {
            Mode::Ending(Some(why)) => why.clone(),
            Mode::Ending(None) => format!("the simulation was stopped (seed {seed})"),
            Mode::Running => format!("the simulated machine crashed (seed {seed})"),
        }
    }

    /// The hand-over itself. False if no thread can ever run again.
    fn switch(&self, mut table: MutexGuard<'_, Table>, me: usize) -> bool {
        let Some(next) = self.choose(&mut table, me) else {
            table.slots[me].state = State::Ready;
            return false;
        };
        table.holder = Some(next);
        if next == me {
            table.slots[me].state = State::Ready;
            return true;
        }
        let turn = table.slots[next].turn.clone();
        let mine = table.slots[me].turn.clone();
        let outside = table.slots[me].role == Role::Outside;
        drop(table);
        turn.give();
        self.block(&mine, outside);
        self.table.lock().slots[me].state = State::Ready;
        true
    }

    fn sleep(&self, table: MutexGuard<'_, Table>, slot: usize) {
        let turn = table.slots[slot].turn.clone();
        let outside = table.slots[slot].role == Role::Outside;
        drop(table);
        self.block(&turn, outside);
    }

    fn block(&self, turn: &Turn, outside: bool) {
        let mut switches = if outside { self.table.lock().switches } else { 0 };
        let mut mine = turn.mine.lock();
        while !*mine {
            if !outside {
                turn.condvar.wait(&mut mine);
                continue;
            }
            if turn.condvar.wait_for(&mut mine, HANG).timed_out() && !*mine {
                let now = self.table.lock().switches;
                if now == switches {
                    let report = self.table.lock().report(self.now_ns());
                    drop(mine);
                    panic!(
                        "simulation hangs (seed {}): the running thread blocks or computes \
                         without waiting through Env; a Mutex held over a wait?\n{report}",
                        self.options.seed
                    );
                }
                switches = now;
            }
        }
        *mine = false;
    }

    /// Chooses the next thread and counts the choice; `None` if all have ended.
    fn choose(&self, table: &mut Table, from: usize) -> Option<usize> {
        self.change_weights(table);
        let ending = self.disk.is_crashed() || !matches!(table.mode, Mode::Running);
        let next = if ending {
            self.pick(table, |slot, now| slot.may_end(now))
        } else {
            self.pick(table, |slot, now| slot.may_run(now)).or_else(|| {
                self.jump(table);
                self.pick(table, |slot, now| slot.may_run(now))
            })
        };
        let next = next.or_else(|| {
            self.give_up(table, from);
            self.pick(table, |slot, now| slot.may_end(now))
        })?;
        table.switches += 1;
        let now = self.clock.load(Ordering::Relaxed);
        if table.slots[next].role != Role::Background {
            table.driven = (table.switches, now);
        } else if !ending && table.is_futile(now) {
            self.give_up(table, from);
        }
        table.trace = mix(table.trace ^ now.rotate_left(16) ^ next as u64);
        Some(next)
    }

    fn pick(&self, table: &Table, may: impl Fn(&Slot, u64) -> bool) -> Option<usize> {
        let now = self.clock.load(Ordering::Relaxed);
        let able = || table.slots.iter().enumerate().filter(|(_, slot)| may(slot, now));
        let total: u64 = able().map(|(_, slot)| slot.weight).sum();
        let mut place = self.rng.below(total);
        for (i, slot) in able() {
            match place.checked_sub(slot.weight) {
                Some(rest) => place = rest,
                None => return Some(i),
            }
        }
        None
    }

    /// Uneven machines: now and then another thread becomes slow or fast.
    fn change_weights(&self, table: &mut Table) {
        if self.rng.one_in(self.moods.uneven) {
            let one = self.rng.below(table.slots.len() as u64) as usize;
            table.slots[one].weight = 1 << (2 * self.rng.below(3));
        }
    }

    /// Moves the clock to the nearest deadline.
    fn jump(&self, table: &Table) {
        let deadlines = table.slots.iter().filter_map(|s| match &s.state {
            State::Waiting(wait) => wait.deadline,
            _ => None,
        });
        if let Some(nearest) = deadlines.min() {
            self.clock.fetch_max(nearest, Ordering::Relaxed);
        }
    }

    /// No thread can run: a deadlock, unless all have ended.
    fn give_up(&self, table: &mut Table, from: usize) {
        if table.slots.iter().all(|s| matches!(s.state, State::Done)) {
            return;
        }
        let why = format!(
            "deadlock (seed {}), found when {} stopped running:\n{}",
            self.options.seed,
            table.slots[from].name,
            table.report(self.now_ns())
        );
        if matches!(table.mode, Mode::Running) {
            table.mode = Mode::Ending(Some(why));
        }
    }
}

impl Table {
    /// True if only background threads run on, and none of the threads that they serve can.
    fn is_futile(&self, now: u64) -> bool {
        let (turn, time) = self.driven;
        if self.switches - turn < FUTILE_TURNS && now - time < FUTILE_NS {
            return false;
        }
        self.slots.iter().all(|slot| match &slot.state {
            State::Waiting(wait) => slot.role == Role::Background || wait.deadline.is_none(),
            State::Ready => slot.role == Role::Background,
            State::Done => true,
        })
    }

    fn add(&mut self, name: &str, role: Role) -> usize {
        self.slots.push(Slot {
            name: format!("{name}#{}", self.slots.len()),
            role,
            state: State::Ready,
            turn: Arc::new(Turn::default()),
            late_waits: 0,
            weight: 1,
        });
        self.slots.len() - 1
    }

    /// One line per thread that has not ended.
    fn report(&self, now: u64) -> String {
        let mut text = String::new();
        for (i, slot) in self.slots.iter().enumerate() {
            let _ = match &slot.state {
                State::Done => continue,
                _ if self.holder == Some(i) && matches!(slot.state, State::Ready) => {
                    writeln!(text, "  {} ({:?}): running", slot.name, slot.role)
                }
                State::Ready => writeln!(text, "  {} ({:?}): ready", slot.name, slot.role),
                State::Waiting(wait) => {
                    let what = if wait.join { "the end of threads" } else { wait.cause.name() };
                    let left =
                        wait.deadline.map(|d| format!(", {} ns left", d.saturating_sub(now)));
                    let left = left.unwrap_or_default();
                    writeln!(text, "  {} ({:?}): waits for {what}{left}", slot.name, slot.role)
                }
            };
        }
        text
    }
}

impl Slot {
    fn may_run(&self, now: u64) -> bool {
        match &self.state {
            State::Ready => true,
            State::Waiting(wait) => wait.is_over(now),
            State::Done => false,
        }
    }

    /// In a simulation that is over every thread may run, to notice it; joins still only at their
    /// end.
    fn may_end(&self, now: u64) -> bool {
        match &self.state {
            State::Ready => true,
            State::Waiting(wait) => !wait.join || wait.is_over(now),
            State::Done => false,
        }
    }
}
