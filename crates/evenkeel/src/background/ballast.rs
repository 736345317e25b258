//! The ballast (protocol G4): a file whose blocks are kept for background work that must go on when
//! the disk is full: flushing a generation, compactions that ingest needs (in small pieces, each of
//! which gives back what it read), saving undo for a checkpoint, reverting.
//!
//! Held: users' writes fail for want of space by themselves, before these blocks are touched. When
//! required background work finds the disk full, user writes are refused first, then the blocks go
//! back to the file system, and the work is tried again. Indexes full of garbage are merged then
//! (`Runs::set_short`), and nothing that frees none. Once all of it is done and the blocks can be
//! had again, users go on. (Two log segments are kept back in the same way by the log itself.)

use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Code, Error, Result};
use evenkeel_io::{Event, File, OpenMode, Runtime};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const BALLAST_FILE: &str = "evenkeel.ballast";
/// A ballast given away is asked back this often.
const REST: Duration = Duration::from_millis(500);

/// The reserve of blocks.
pub(crate) struct Ballast {
    rt: Arc<Runtime>,
    file: Arc<dyn File>,
    bytes: u64,
    state: Mutex<State>,
    event: Arc<Event>,
    /// Is told whether it is gone.
    tell: Box<dyn Fn(bool) + Send + Sync>,
}

#[derive(Default)]
struct State {
    held: bool,
    /// Actors that found the disk full and have not ended their work since.
    stuck: BTreeSet<&'static str>,
    /// Actors whose last beat the system had no file or memory for.
    limited: BTreeSet<&'static str>,
}

impl Ballast {
    /// Takes the blocks. On a disk that is full already the database opens all the same, and user
    /// writes are refused until they can be had. `tell` hears when they go and when they are back.
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
        // At an open it is there as a rule: nothing has changed that a sync could make durable.
        let is_there = self.file.len()? == self.bytes;
        let allocated = self.file.allocate(0, self.bytes);
        let taken = allocated.and_then(|()| if is_there { Ok(()) } else { self.file.sync() });
        if let Err(error) = taken {
            // Some of it may have been had.
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

    /// Refuses user writes and gives the blocks to whoever can use them.
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

    /// What a beat of an actor whose work is required found out about the disk and the system. An
    /// actor is stuck until it has nothing left to do.
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

    /// The system has no file or memory for an actor. Blocks of the disk are no help; users are
    /// refused if it happens twice in a row, for once is soon over.
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

    /// Asks the blocks back when nobody needs them any more; then users go on.
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
