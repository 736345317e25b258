//! The background threads of a database. Each drives one actor's beats in a loop and sleeps on the
//! actor's event between them. A beat that fails for want of space is repeated when space may have
//! returned; any other error has latched `Health` already and ends the actor's writing.

use evenkeel_base::{Beat, Cause, Code, Kind, Result, sync::Mutex};
use evenkeel_io::{Event, Runtime, Task};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long an actor rests after the disk was found full.
const FULL_DISK_REST: Duration = Duration::from_millis(200);

/// Starts and stops the background threads.
pub(crate) struct Supervisor {
    rt: Arc<Runtime>,
    tasks: Mutex<Vec<Running>>,
}

/// A thread, how it is told to stop, and what wakes it.
struct Running {
    stop: Arc<AtomicBool>,
    event: Arc<Event>,
    task: Box<dyn Task>,
}

impl Supervisor {
    pub(crate) fn new(rt: Arc<Runtime>) -> Supervisor {
        Supervisor { rt, tasks: Mutex::new(Vec::new()) }
    }

    /// Runs `beat` in a thread of its own, woken by `event`.
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
        mut beat: impl FnMut() -> Result<Beat> + Send + 'static,
        rest: impl Fn() -> Option<Duration> + Send + 'static,
    ) -> Result<()> {
        let stopped = Arc::new(AtomicBool::new(false));
        let (rt, stop, wake) = (Arc::clone(&self.rt), Arc::clone(&stopped), Arc::clone(&event));
        let task = self.rt.spawn_needed(name, move || {
            let mut reported: Option<Code> = None;
            while !stop.load(Ordering::Acquire) {
                let seen = wake.now();
                if stop.load(Ordering::Acquire) {
                    break;
                }
                match beat() {
                    Ok(Beat::More) => {
                        reported = None;
                        rt.step();
                    }
                    Ok(Beat::Idle) => {
                        reported = None;
                        rt.wait(&wake, seen, rest(), Cause::Idle);
                    }
                    Err(error) => {
                        if reported != Some(error.code()) {
                            log::error!("{name}: {error}");
                            reported = Some(error.code());
                        }
                        let rest = (error.kind() == Kind::Full).then_some(FULL_DISK_REST);
                        rt.wait(&wake, seen, rest, Cause::Idle);
                    }
                }
            }
        })?;
        self.tasks.lock().push(Running { stop: stopped, event, task });
        Ok(())
    }

    /// Ends every thread after its present beat, the one started last first. A beat may wait for
    /// resources that threads started before it provide (log space, frames), so those threads run
    /// until the beat has ended.
    ///
    /// # Errors
    /// `Internal` if one of them panicked.
    pub(crate) fn stop(&self) -> Result<()> {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        let mut result = Ok(());
        for Running { stop, event, task } in tasks.into_iter().rev() {
            stop.store(true, Ordering::Release);
            event.notify();
            if let Err(error) = task.join() {
                result = Err(error);
            }
        }
        result
    }
}
