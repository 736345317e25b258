//! The ballast (protocol G4): a file that reserves disk blocks for the background work that must
//! continue when the disk is full. That work is the flush of a generation, compactions that ingest
//! needs (in small pieces, each of which frees the space of its input), saving undo for a
//! checkpoint, and rollback.
//!
//! Invariants: users' writes fail with `DiskFull` by themselves before the ballast is touched. When
//! required background work finds the disk full, the ballast first refuses user writes, then
//! returns its blocks to the file system, and the work is repeated. From then on compactions choose
//! indexes full of garbage (`Runs::set_short`) and skip those that free nothing. Users continue
//! once all required work is done and the blocks are reserved again. (The log reserves two segments
//! of its own in the same way.)

use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Code, Error, Result};
use evenkeel_io::{Event, File, OpenMode, Runtime};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const BALLAST_FILE: &str = "evenkeel.ballast";
/// Interval at which the released ballast tries to reserve its blocks again.
const REST: Duration = Duration::from_millis(500);

/// The reserve of blocks.
pub(crate) struct Ballast {
    rt: Arc<Runtime>,
    file: Arc<dyn File>,
    bytes: u64,
    state: Mutex<State>,
    event: Arc<Event>,
    /// Hears whether the ballast is gone.
    tell: Box<dyn Fn(bool) + Send + Sync>,
}

#[derive(Default)]
struct State {
    held: bool,
    /// Actors that found the disk full and have not finished their work since.
    stuck: BTreeSet<&'static str>,
    /// Actors whose last beat failed because the system had no file or memory for it.
    limited: BTreeSet<&'static str>,
}

impl Ballast {
    /// Reserves the blocks. If the disk is full already, the database opens all the same and
    /// refuses user writes until the blocks can be reserved. `tell` hears when they are released
    /// and when they are back.
    ///
    /// # Errors
    /// Those of the environment but `DiskFull`.
    pub(crate) fn open(
        rt: &Arc<Runtime>,
        bytes: u64,
        tell: impl Fn(bool) + Send + Sync + 'static,
    ) -> Result<Arc<Ballast>> {
        let file = rt.env.open(BALLAST_FILE, OpenMode::READ_WRITE)?;
        let ballast = Arc::new(Ballast {
            rt: rt.clone(),
            file,
            bytes,
            state: Mutex::default(),
            event: Arc::default(),
            tell: Box::new(tell),
        });
        if let Err(error) = ballast.take() {
            if !error.code().is_shortage() {
                return Err(error);
            }
            rt.health.refuse(error);
            (ballast.tell)(true);
        }
        Ok(ballast)
    }

    fn take(&self) -> Result<()> {
        // At an open the file usually has its full length; then nothing has changed that needs a
        // sync.
        let is_there = self.file.len()? == self.bytes;
        let allocated = self.file.allocate(0, self.bytes);
        let taken = allocated.and_then(|()| if is_there { Ok(()) } else { self.file.sync() });
        if let Err(error) = taken {
            // The file system may have reserved a part.
            self.file.set_len(0)?;
            return Err(error);
        }
        let gone = {
            let mut state = self.state.lock();
            state.held = state.stuck.is_empty();
            !state.held
        };
        if gone { self.file.set_len(0) } else { Ok(()) }
    }

    /// Refuses user writes and returns the blocks to the file system.
    pub(crate) fn give(&self, error: &Error) {
        self.rt.health.refuse(error.clone());
        let held = std::mem::replace(&mut self.state.lock().held, false);
        if held {
            log::warn!("the disk is full, user writes are refused: {error}");
            let given = self.file.set_len(0).and_then(|()| self.file.sync());
            if let Err(error) = given {
                log::error!("giving the ballast away: {error}");
            }
            (self.tell)(true);
            self.event.notify();
        }
    }

    /// Records what a beat of a required actor found out about the disk and the system. An actor
    /// counts as stuck until it has nothing left to do.
    pub(crate) fn note(&self, actor: &'static str, result: &Result<Beat>) {
        match result {
            Err(error) if error.code() == Code::SystemLimit => self.note_limit(actor, error),
            Err(error) if error.code().is_shortage() => {
                self.state.lock().stuck.insert(actor);
                self.give(error);
            }
            Err(_) => {}
            Ok(beat) => {
                self.end_limit(actor);
                if *beat == Beat::Idle && self.state.lock().stuck.remove(actor) {
                    self.event.notify();
                }
            }
        }
    }

    /// The system has no file or memory for an actor. Releasing disk blocks does not help. Users
    /// are refused only if this happens twice in a row, because a single failure usually passes.
    fn note_limit(&self, actor: &'static str, error: &Error) {
        let is_first = self.state.lock().limited.insert(actor);
        if !is_first {
            self.rt.health.refuse(error.clone());
        }
    }

    fn end_limit(&self, actor: &'static str) {
        let mut state = self.state.lock();
        if state.limited.remove(actor) && state.limited.is_empty() && state.held {
            drop(state);
            self.rt.health.allow();
        }
    }

    /// Reserves the blocks again when no actor needs them any more; then users continue.
    ///
    /// # Errors
    /// Those of the environment but `DiskFull`.
    pub(crate) fn beat(&self) -> Result<Beat> {
        let wanted = {
            let state = self.state.lock();
            !state.held && state.stuck.is_empty()
        };
        if !wanted || self.rt.health.is_failed() {
            return Ok(Beat::Idle);
        }
        match self.take() {
            Err(error) if !error.code().is_shortage() => return Err(error),
            _ => {}
        }
        if self.state.lock().held {
            log::info!("there is space again, user writes go on");
            (self.tell)(false);
            self.rt.health.allow();
        }
        Ok(Beat::Idle)
    }

    /// How long the thread that drives `beat` may rest.
    pub(crate) fn rest(&self) -> Option<Duration> {
        (!self.state.lock().held).then_some(REST)
    }

    /// Wakes the thread that drives `beat`.
    pub(crate) fn event(&self) -> Arc<Event> {
        self.event.clone()
    }
}
