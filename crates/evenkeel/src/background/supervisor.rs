//! The actors of a database: starts them, and stops them in the opposite order. Actors of the
//! operating system's environment share the threads of the process ([`Workers`]); in a given
//! environment, which may schedule threads itself, each has a thread of its own.

use crate::background::actor::{Actor, Job};
use crate::background::workers::{HelperSeats, Workers};
use evenkeel_base::{Beat, Error, Result, sync::Mutex};
use evenkeel_io::{Event, Runtime, Task};
use std::sync::Arc;
use std::time::Duration;

/// Starts and stops the actors.
pub(crate) struct Supervisor {
    rt: Arc<Runtime>,
    /// None: each actor has a thread of its own. Given back when the actors have stopped.
    workers: Mutex<Option<Arc<Workers>>>,
    running: Mutex<Vec<Running>>,
}

/// An actor, and its thread if that is its own.
struct Running {
    actor: Arc<Actor>,
    task: Option<Box<dyn Task>>,
}

impl Supervisor {
    pub(crate) fn new(rt: Arc<Runtime>, workers: Option<Arc<Workers>>) -> Supervisor {
        Supervisor { rt, workers: Mutex::new(workers), running: Mutex::default() }
    }

    /// Starts an actor that is woken by `event`.
    ///
    /// # Errors
    /// `ThreadSpawn`.
    pub(crate) fn start(
        &self,
        name: &'static str,
        event: Arc<Event>,
        beat: impl FnMut() -> Result<Beat> + Send + 'static,
    ) -> Result<()> {
        self.start_timed(name, event, beat, || None)
    }

    /// As `start`; an idle actor sleeps at most as long as `rest` says (`None`: until its event).
    ///
    /// # Errors
    /// `ThreadSpawn`.
    pub(crate) fn start_timed(
        &self,
        name: &'static str,
        event: Arc<Event>,
        beat: impl FnMut() -> Result<Beat> + Send + 'static,
        rest: impl Fn() -> Option<Duration> + Send + 'static,
    ) -> Result<()> {
        self.start_at(false, name, event, beat, rest)
    }

    /// As `start_timed`; `is_low`: on a thread of a lower priority, where the system allows that
    /// and actors share threads.
    ///
    /// # Errors
    /// `ThreadSpawn`.
    pub(crate) fn start_at(
        &self,
        is_low: bool,
        name: &'static str,
        event: Arc<Event>,
        beat: impl FnMut() -> Result<Beat> + Send + 'static,
        rest: impl Fn() -> Option<Duration> + Send + 'static,
    ) -> Result<()> {
        let actor = Actor::new(name, &self.rt, event, is_low);
        let job = Job::new(actor.clone(), beat, rest);
        let workers = self.workers.lock().clone();
        let task = match workers {
            Some(workers) => {
                workers.add(job)?;
                None
            }
            None => Some(self.rt.spawn_needed(actor.name, move || job.drive())?),
        };
        self.running.lock().push(Running { actor, task });
        Ok(())
    }

    /// Seats for threads that help compactions, where databases share threads.
    pub(crate) fn helper_seats(&self) -> Option<Arc<HelperSeats>> {
        self.workers.lock().as_ref().map(|workers| workers.helper_seats())
    }

    /// Ends every actor after its present beat, the one started last first. A beat may wait for
    /// resources that actors started before it provide (log space, frames), so those go on until
    /// the beat has ended.
    ///
    /// # Errors
    /// `Internal` if one of them panicked.
    pub(crate) fn stop(&self) -> Result<()> {
        let running = std::mem::take(&mut *self.running.lock());
        let workers = self.workers.lock().take();
        let mut result = Ok(());
        for Running { actor, task } in running.into_iter().rev() {
            actor.stop();
            let ended = match (task, &workers) {
                (Some(task), _) => task.join(),
                (None, Some(workers)) => workers.remove(&actor),
                (None, None) => Err(Error::internal("an actor without threads")),
            };
            if let Err(error) = ended {
                result = Err(error);
            }
        }
        result
    }
}
