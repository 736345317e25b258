//! Enumerates interleavings of a few threads. It serves models of protocols: the seeds of the
//! simulator switch threads only at waits and steps, which is too coarse for them. A body is run
//! again and again; each operation on the types of [`sync`] is a point where the scheduler may
//! switch to another thread. [`explore`] enumerates all schedules with few preemptions, depth
//! first; [`sample`] draws schedules.
//!
//! Memory is sequentially consistent, as the engine's handshakes require (`SeqCst`). A state in
//! which no thread can run is a failure, so lost wake-ups are found. Models compile the engine's
//! own source files against these types where they can (`tests/models`).

use evenkeel_io::Rng;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

const THREADS_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ready,
    /// Blocked until this address, or the thread with this number, wakes it.
    Blocked(usize),
    Done,
}

/// A choice: which option was taken, of how many.
#[derive(Clone, Copy)]
struct Choice {
    taken: usize,
    of: usize,
}

/// The source of choices.
enum Choices {
    /// Repeats the choices made before, then takes the first option each time.
    Trail { trail: Vec<Choice>, at: usize },
    /// Draws each choice; most of them let the running thread continue.
    Drawn(Rng),
}

/// One place in this many where a preemption is possible gets one, by chance.
const PREEMPT_ONE_IN: u64 = 12;

struct State {
    threads: Vec<Status>,
    current: usize,
    choices: Choices,
    preemptions: usize,
    failure: Option<String>,
    over: bool,
}

struct Machine {
    state: Mutex<State>,
    turns: [Condvar; THREADS_MAX],
}

/// The panic payload that unwinds a thread whose run is over.
struct Over;

thread_local! {
    static ME: RefCell<Option<(Arc<Machine>, usize)>> = const { RefCell::new(None) };
}

fn me() -> Option<(Arc<Machine>, usize)> {
    if std::thread::panicking() {
        // The run is over: destructors run.
        return None;
    }
    ME.with_borrow(|me| me.clone())
}

impl State {
    /// Chooses one of the options. The first of them may be to continue the running thread.
    fn choose(&mut self, options: &[usize], may_go_on: bool) -> usize {
        if options.len() == 1 {
            return options[0];
        }
        let of = options.len();
        match &mut self.choices {
            Choices::Drawn(rng) => {
                let goes_on = may_go_on && !rng.one_in(PREEMPT_ONE_IN);
                if goes_on { options[0] } else { options[rng.below(of as u64) as usize] }
            }
            Choices::Trail { trail, at } => {
                if *at == trail.len() {
                    trail.push(Choice { taken: 0, of });
                }
                *at += 1;
                options[trail[*at - 1].taken]
            }
        }
    }

    /// Chooses the thread that runs next; `me` is the first option while it can run.
    fn pick(&mut self, me: usize) {
        let ready = |i: &usize| self.threads[*i] == Status::Ready;
        let mut options: Vec<usize> = (0..self.threads.len()).filter(ready).collect();
        let may_go_on = ready(&me);
        if may_go_on {
            options.retain(|i| *i != me);
            options.insert(0, me);
            if self.preemptions == 0 {
                options.truncate(1);
            }
        }
        if options.is_empty() {
            if self.threads.iter().any(|t| *t != Status::Done) {
                self.fail(format!("nobody can go on: {:?}", self.threads));
            }
            return;
        }
        let next = self.choose(&options, may_go_on);
        if next != me && may_go_on {
            self.preemptions -= 1;
        }
        self.current = next;
    }

    fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
        self.over = true;
    }
}

impl Machine {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets another thread run, and returns when it is this thread's turn again.
    fn switch(&self, me: usize, set: Status) {
        let mut state = self.lock();
        state.threads[me] = set;
        if !state.over {
            state.pick(me);
        }
        self.turn(state, me);
    }

    fn turn(&self, mut state: MutexGuard<'_, State>, me: usize) {
        if state.current != me || state.over {
            self.wake_current(&state);
        }
        while state.current != me && !state.over {
            state = self.turns[me].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.over {
            drop(state);
            resume_unwind(Box::new(Over));
        }
    }

    fn wake_current(&self, state: &State) {
        match state.over {
            true => self.turns.iter().for_each(Condvar::notify_all),
            false => self.turns[state.current].notify_all(),
        }
    }

    fn ended(&self, me: usize, result: Result<(), Box<dyn std::any::Any + Send>>) {
        let mut state = self.lock();
        state.threads[me] = Status::Done;
        let waiting = Status::Blocked(me);
        state.threads.iter_mut().filter(|t| **t == waiting).for_each(|t| *t = Status::Ready);
        match result {
            Err(why) if !why.is::<Over>() => state.fail(message(&*why)),
            _ if !state.over => state.pick(me),
            _ => {}
        }
        self.wake_current(&state);
    }
}

fn message(why: &(dyn std::any::Any + Send)) -> String {
    let text = why.downcast_ref::<String>().map(String::as_str);
    text.or(why.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_string()
}

/// A point where the scheduler may switch to another thread.
pub fn step() {
    if let Some((machine, me)) = me() {
        machine.switch(me, Status::Ready);
    }
}

fn block(on: usize) {
    match me() {
        Some((machine, me)) => machine.switch(me, Status::Blocked(on)),
        None => std::thread::yield_now(),
    }
}

fn wake(on: usize) {
    if let Some((machine, _)) = me() {
        let waiting = Status::Blocked(on);
        let mut state = machine.lock();
        state.threads.iter_mut().filter(|t| **t == waiting).for_each(|t| *t = Status::Ready);
    }
}

/// A thread that a body has started.
pub struct Thread {
    number: usize,
    real: std::thread::JoinHandle<()>,
}

/// Starts a thread; the body must join it.
///
/// # Panics
/// When called outside of a body.
pub fn spawn(f: impl FnOnce() + Send + 'static) -> Thread {
    let (machine, _) = me().expect("within `explore`");
    let number = {
        let mut state = machine.lock();
        state.threads.push(Status::Ready);
        state.threads.len() - 1
    };
    assert!(number < THREADS_MAX, "at most {THREADS_MAX} threads");
    let real = std::thread::spawn(move || {
        ME.set(Some((machine.clone(), number)));
        let result = catch_unwind(AssertUnwindSafe(|| {
            machine.turn(machine.lock(), number);
            f();
        }));
        ME.set(None);
        machine.ended(number, result);
    });
    Thread { number, real }
}

impl Thread {
    /// Waits for the end of the thread.
    pub fn join(self) {
        while let Some((machine, me)) = me() {
            if machine.lock().threads[self.number] == Status::Done {
                break;
            }
            machine.switch(me, Status::Blocked(self.number));
        }
        let _ = self.real.join();
    }
}

/// Runs `body` under every schedule with at most `preemptions` preemptions; returns the number of
/// schedules.
///
/// # Panics
/// With the payload of a thread that panicked, or if no thread can run; the message has the number
/// of the schedule.
pub fn explore(preemptions: usize, body: impl Fn()) -> u64 {
    let mut trail: Vec<Choice> = Vec::new();
    let mut schedules = 0;
    loop {
        schedules += 1;
        let choices = match run(preemptions, Choices::Trail { trail, at: 0 }, &body) {
            Ok(choices) => choices,
            Err(why) => panic!("schedule {schedules}: {why}"),
        };
        let Choices::Trail { trail: made, .. } = choices else { return schedules };
        trail = made;
        while let Some(last) = trail.pop() {
            if last.taken + 1 < last.of {
                trail.push(Choice { taken: last.taken + 1, ..last });
                break;
            }
        }
        if trail.is_empty() {
            return schedules;
        }
    }
}

/// Runs `body` under `draws` random schedules, each with at most `preemptions` preemptions.
///
/// # Panics
/// As for `explore`, with the number of the draw.
pub fn sample(draws: u64, preemptions: usize, body: impl Fn()) {
    for draw in 0..draws {
        if let Err(why) = run(preemptions, Choices::Drawn(Rng::new(draw)), &body) {
            panic!("draw {draw}: {why}");
        }
    }
}

fn run(preemptions: usize, choices: Choices, body: &impl Fn()) -> Result<Choices, String> {
    let threads = vec![Status::Ready];
    let state = State { threads, current: 0, choices, preemptions, failure: None, over: false };
    let turns = [const { Condvar::new() }; THREADS_MAX];
    let machine = Arc::new(Machine { state: Mutex::new(state), turns });
    ME.set(Some((machine.clone(), 0)));
    let result = catch_unwind(AssertUnwindSafe(body));
    ME.set(None);
    let mut state = machine.lock();
    state.threads[0] = Status::Done;
    let forgotten = state.threads.iter().any(|t| *t != Status::Done);
    state.over = true;
    machine.wake_current(&state);
    match (state.failure.take(), result) {
        (Some(why), _) => Err(why),
        (None, Err(why)) if why.is::<Over>() => Err("over without a reason".to_string()),
        (None, Err(why)) => resume_unwind(why),
        (None, Ok(())) if forgotten => Err("a thread was not joined".to_string()),
        (None, Ok(())) => {
            let none = Choices::Trail { trail: Vec::new(), at: 0 };
            Ok(std::mem::replace(&mut state.choices, none))
        }
    }
}

pub mod sync {
    //! Locks and atomics; each of their operations is a scheduling point.

    use super::{block, step, wake};
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;
    use std::time::Instant;

    /// A mutex.
    #[derive(Default)]
    pub struct Mutex<T> {
        held: std::sync::atomic::AtomicBool,
        inner: std::sync::Mutex<T>,
    }

    /// Holds a mutex locked.
    pub struct MutexGuard<'a, T> {
        mutex: &'a Mutex<T>,
        inner: Option<std::sync::MutexGuard<'a, T>>,
    }

    impl<T> Mutex<T> {
        /// A mutex.
        pub fn new(value: T) -> Mutex<T> {
            Mutex { held: Default::default(), inner: std::sync::Mutex::new(value) }
        }

        fn address(&self) -> usize {
            std::ptr::from_ref(&self.held) as usize
        }

        /// Locks the mutex.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            let mut guard = MutexGuard { mutex: self, inner: None };
            guard.acquire();
            guard
        }
    }

    impl<T> MutexGuard<'_, T> {
        fn acquire(&mut self) {
            step();
            while self.mutex.held.swap(true, std::sync::atomic::Ordering::SeqCst) {
                block(self.mutex.address());
            }
            let inner = self.mutex.inner.lock().unwrap_or_else(PoisonError::into_inner);
            self.inner = Some(inner);
        }

        fn release(&mut self) {
            if self.inner.take().is_some() {
                self.mutex.held.store(false, std::sync::atomic::Ordering::SeqCst);
                wake(self.mutex.address());
            }
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            self.release();
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.inner.as_ref().expect("held")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.inner.as_mut().expect("held")
        }
    }

    /// A condition variable.
    #[derive(Default)]
    pub struct Condvar {
        /// Gives each condition variable an address of its own.
        place: u8,
    }

    /// The result of a wait with a deadline; the deadline never passes.
    pub struct WaitTimeout;

    impl WaitTimeout {
        /// Always false.
        pub fn timed_out(&self) -> bool {
            false
        }
    }

    impl Condvar {
        fn address(&self) -> usize {
            std::ptr::from_ref(&self.place) as usize
        }

        /// Unlocks the mutex and waits for a notification.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            guard.release();
            block(self.address());
            guard.acquire();
        }

        /// The same as `wait`: time stands still.
        pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> WaitTimeout {
            self.wait(guard);
            WaitTimeout
        }

        /// Wakes all waiters.
        pub fn notify_all(&self) {
            step();
            wake(self.address());
        }
    }

    pub mod atomic {
        //! Atomics.

        use super::step;
        pub use std::sync::atomic::Ordering;
        use std::sync::atomic::Ordering::SeqCst;

        macro_rules! atomic {
            ($name:ident, $value:ty) => {
                /// An atomic. Whatever ordering the caller names, it is sequentially consistent.
                #[derive(Debug, Default)]
                pub struct $name(std::sync::atomic::$name);

                #[allow(missing_docs, reason = "as in std")]
                impl $name {
                    pub const fn new(value: $value) -> $name {
                        $name(std::sync::atomic::$name::new(value))
                    }
                    pub fn load(&self, _: Ordering) -> $value {
                        step();
                        self.0.load(SeqCst)
                    }
                    pub fn store(&self, value: $value, _: Ordering) {
                        step();
                        self.0.store(value, SeqCst)
                    }
                    pub fn swap(&self, value: $value, _: Ordering) -> $value {
                        step();
                        self.0.swap(value, SeqCst)
                    }
                    pub fn compare_exchange(
                        &self,
                        now: $value,
                        new: $value,
                        _: Ordering,
                        _: Ordering,
                    ) -> Result<$value, $value> {
                        step();
                        self.0.compare_exchange(now, new, SeqCst, SeqCst)
                    }
                    pub fn compare_exchange_weak(
                        &self,
                        now: $value,
                        new: $value,
                        a: Ordering,
                        b: Ordering,
                    ) -> Result<$value, $value> {
                        self.compare_exchange(now, new, a, b)
                    }
                }
            };
        }

        macro_rules! number {
            ($name:ident, $value:ty) => {
                atomic!($name, $value);

                #[allow(missing_docs, reason = "as in std")]
                impl $name {
                    pub fn fetch_add(&self, n: $value, _: Ordering) -> $value {
                        step();
                        self.0.fetch_add(n, SeqCst)
                    }
                    pub fn fetch_sub(&self, n: $value, _: Ordering) -> $value {
                        step();
                        self.0.fetch_sub(n, SeqCst)
                    }
                    pub fn fetch_and(&self, n: $value, _: Ordering) -> $value {
                        step();
                        self.0.fetch_and(n, SeqCst)
                    }
                    pub fn fetch_max(&self, n: $value, _: Ordering) -> $value {
                        step();
                        self.0.fetch_max(n, SeqCst)
                    }
                    pub fn fetch_min(&self, n: $value, _: Ordering) -> $value {
                        step();
                        self.0.fetch_min(n, SeqCst)
                    }
                }
            };
        }

        atomic!(AtomicBool, bool);
        number!(AtomicU32, u32);
        number!(AtomicU64, u64);
    }
}
