//! The ballast (protocol G4): a file whose blocks are kept for background work that must go on when
//! the disk is full: flushing a generation, merges that ingest needs (in small pieces, each of
//! which gives back what it read), saving undo for a checkpoint, reverting.
//!
//! Held: users' writes fail for want of space by themselves, before these blocks are touched. When
//! required background work finds the disk full, user writes are refused first, then the blocks go
//! back to the file system, and the work is tried again. Indexes full of garbage are merged then
//! (`Runs::set_short`), and nothing that frees none. Once all of it is done and the blocks can be
//! had again, users go on. A merge may have hours of work left when there is space again: while
//! only merges are not done it is enough that the blocks can be had twice. (Two log segments are
//! kept back in the same way by the log itself.)

use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Code, Error, Result};
use evenkeel_io::{Event, File, OpenMode, Runtime};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The name under which all threads that merge tell of a full disk.
pub(crate) const MERGE: &str = "merge";
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
}

impl State {
    /// Nobody needs the blocks but perhaps merges.
    fn may_take(&self) -> bool {
        self.stuck.iter().all(|actor| *actor == MERGE)
    }
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
            if error.code() != Code::DiskFull {
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
        // Merges under way must find as much beside it, or they would soon ask for it again.
        let has_merges = !self.state.lock().stuck.is_empty();
        let beside = if has_merges { self.bytes } else { 0 };
        let allocated = self.file.allocate(0, self.bytes + beside);
        let allocated = allocated.and_then(|()| match beside {
            0 => Ok(()),
            _ => self.file.set_len(self.bytes),
        });
        let taken = allocated.and_then(|()| if is_there { Ok(()) } else { self.file.sync() });
        if let Err(error) = taken {
            // Some of it may have been had.
            self.file.set_len(0)?;
            return Err(error);
        }
        let gone = {
            let mut state = self.state.lock();
            state.held = state.may_take();
            if state.held {
                state.stuck.clear();
            }
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

    /// What a beat of an actor whose work is required found out about the disk. An actor is stuck
    /// until it has nothing left to do, and merges also no longer than until the blocks are had.
    pub(crate) fn note(&self, actor: &'static str, result: &Result<Beat>) {
        match result {
            Err(error) if error.code() == Code::DiskFull => {
                self.state.lock().stuck.insert(actor);
                self.give(error);
            }
            Ok(Beat::Idle) if self.state.lock().stuck.remove(actor) => self.event.notify(),
            _ => {}
        }
    }

    /// Asks the blocks back when nobody needs them any more but perhaps merges; then users go on.
    ///
    /// # Errors
    /// Those of the environment but `DiskFull`.
    pub(crate) fn beat(&self) -> Result<Beat> {
        let wanted = {
            let state = self.state.lock();
            !state.held && state.may_take()
        };
        if !wanted || self.rt.health.is_failed() {
            return Ok(Beat::Idle);
        }
        match self.take() {
            Err(error) if error.code() != Code::DiskFull => return Err(error),
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

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_io::sim::SimEnv;
    use std::sync::atomic::{AtomicBool, Ordering};

    const BYTES: u64 = 256 << 10;

    struct Bed {
        sim: SimEnv,
        ballast: Arc<Ballast>,
        is_gone: Arc<AtomicBool>,
    }

    impl Bed {
        fn new() -> Bed {
            let sim = SimEnv::new(1);
            let is_gone = Arc::new(AtomicBool::new(false));
            let told = is_gone.clone();
            let tell = move |gone| told.store(gone, Ordering::SeqCst);
            let ballast = Ballast::open(&sim.runtime(), BYTES, tell).expect("opens");
            Bed { sim, ballast, is_gone }
        }

        /// So many bytes beside what the disk holds.
        fn leave(&self, bytes: u64) {
            let disk = self.sim.disk();
            disk.set_capacity(Some(disk.used_bytes() + bytes));
        }

        fn fails(&self, actor: &'static str) {
            self.ballast.note(actor, &Err(Error::new(Code::DiskFull)));
        }

        /// Whether users may write, once it has asked for the blocks.
        fn beat(&self) -> bool {
            assert_eq!(self.ballast.beat().expect("asks"), Beat::Idle);
            let may_write = self.ballast.rt.health.check_user().is_ok();
            assert_eq!(self.is_gone.load(Ordering::SeqCst), !may_write);
            let bytes = if may_write { BYTES } else { 0 };
            assert_eq!(self.ballast.file.len().expect("is there"), bytes);
            may_write
        }
    }

    /// G4: a merge that found the disk full has much left to do; users need not wait for its end.
    #[test]
    fn users_go_on_while_a_merge_goes_on() {
        let bed = Bed::new();
        assert!(bed.beat());
        for _ in 0..2 {
            bed.leave(0);
            bed.fails(MERGE);
            assert!(!bed.beat());
            bed.ballast.note(MERGE, &Ok(Beat::More));
            // There is only just room for it, and the merge needs some.
            bed.leave(BYTES);
            assert!(!bed.beat());
            bed.leave(2 * BYTES);
            bed.fails("flush");
            assert!(!bed.beat(), "others end their work first");
            bed.ballast.note("flush", &Ok(Beat::Idle));
            assert!(bed.beat());
            // And again: a merge that finds the disk full has the blocks at once.
        }
    }

    #[test]
    fn once_the_merge_is_done_the_blocks_alone_are_enough() {
        let bed = Bed::new();
        bed.fails(MERGE);
        bed.leave(BYTES);
        assert!(!bed.beat());
        bed.ballast.note(MERGE, &Ok(Beat::Idle));
        assert!(bed.beat());
    }
}
