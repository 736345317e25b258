//! An actor: one kind of background work of one database, done in bounded beats. A thread drives
//! its beats and sleeps on its event between them: a thread of its own ([`Job::drive`]), or one of
//! those that actors share ([`crate::background::workers`]).
//!
//! Invariants: one thread at a time drives an actor. After `stop` was called no beat begins. A beat
//! that fails for want of space is repeated when space may have returned; any other error has
//! latched `Health` already and ends the actor's writing.

use evenkeel_base::{Beat, Cause, Code, Kind, Result};
use evenkeel_io::{Event, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long an actor rests after the disk was found full.
const FULL_DISK_REST: Duration = Duration::from_millis(200);

/// Who an actor is, what wakes it, and whether it goes on.
pub(crate) struct Actor {
    pub name: &'static str,
    /// The runtime of its database.
    pub rt: Arc<Runtime>,
    pub event: Arc<Event>,
    /// Its thread has a lower priority than users' threads.
    pub is_low: bool,
    is_stopped: AtomicBool,
}

impl Actor {
    pub(crate) fn new(
        name: &'static str,
        rt: &Arc<Runtime>,
        event: Arc<Event>,
        is_low: bool,
    ) -> Arc<Actor> {
        let is_stopped = AtomicBool::new(false);
        Arc::new(Actor { name, rt: rt.clone(), event, is_low, is_stopped })
    }

    /// No beat begins after the present one.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.event.notify();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }
}

/// An actor with its work. Only the thread that has the job runs the actor.
pub(crate) struct Job {
    pub actor: Arc<Actor>,
    beat: Box<dyn FnMut() -> Result<Beat> + Send>,
    rest: Box<dyn Fn() -> Option<Duration> + Send>,
    /// The error that the log has already.
    reported: Option<Code>,
}

/// What follows a beat.
pub(crate) enum AfterBeat {
    /// Another beat at once.
    Beat,
    /// A sleep until the actor's event has advanced from `seen`, and at most for `rest`.
    Sleep { seen: u64, rest: Option<Duration> },
    /// Nothing: the actor was stopped, and there was no beat.
    End,
}

impl Job {
    pub(crate) fn new(
        actor: Arc<Actor>,
        beat: impl FnMut() -> Result<Beat> + Send + 'static,
        rest: impl Fn() -> Option<Duration> + Send + 'static,
    ) -> Job {
        Job { actor, beat: Box::new(beat), rest: Box::new(rest), reported: None }
    }

    /// Runs one beat.
    pub(crate) fn beat(&mut self) -> AfterBeat {
        let actor = &self.actor;
        if actor.is_stopped() {
            return AfterBeat::End;
        }
        let seen = actor.event.now();
        if actor.is_stopped() {
            return AfterBeat::End;
        }
        match (self.beat)() {
            Ok(Beat::More) => {
                self.reported = None;
                actor.rt.step();
                AfterBeat::Beat
            }
            Ok(Beat::Idle) => {
                self.reported = None;
                AfterBeat::Sleep { seen, rest: (self.rest)() }
            }
            Err(error) => {
                if self.reported != Some(error.code()) {
                    log::error!("{}: {error}", actor.name);
                    self.reported = Some(error.code());
                }
                let rest = (error.kind() == Kind::Full).then_some(FULL_DISK_REST);
                AfterBeat::Sleep { seen, rest }
            }
        }
    }

    /// Drives the actor until it is stopped.
    pub(crate) fn drive(mut self) {
        loop {
            match self.beat() {
                AfterBeat::Beat => {}
                AfterBeat::Sleep { seen, rest } => {
                    self.actor.rt.wait(&self.actor.event, seen, rest, Cause::Idle);
                }
                AfterBeat::End => return,
            }
        }
    }
}
