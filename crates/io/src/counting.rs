//! Counts the I/O of an environment in the metrics of one database, and the time of foreground
//! threads in it among their waits (G6). `Runtime::new` wraps it around the given environment.
//! Successful calls count, with their bytes. Calls that would change a file pass the gate (`gate`).

use crate::gate::ChangeGate;
use crate::thread_waits::count_wait;
use crate::waiting::Watched;
use crate::{Env, File, OpenMode};
use evenkeel_base::metrics::{Metric, Metrics};
use evenkeel_base::{Cause, Code, Result, WaitEvents};
use std::sync::Arc;

/// An environment whose files are counted.
pub(crate) struct CountingEnv {
    inner: Arc<dyn Env>,
    metrics: Arc<Metrics>,
    stalls: Arc<WaitEvents>,
    watched: Arc<Watched>,
    gate: Arc<ChangeGate>,
}

impl CountingEnv {
    pub fn new(
        inner: Arc<dyn Env>,
        metrics: Arc<Metrics>,
        stalls: Arc<WaitEvents>,
        watched: Arc<Watched>,
        gate: Arc<ChangeGate>,
    ) -> CountingEnv {
        CountingEnv { inner, metrics, stalls, watched, gate }
    }

    /// Opens a file; only the creation of one waits for the gate.
    fn open_inner(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        if mode.create && self.gate.is_closed() {
            if !mode.exclusive {
                match self.inner.open(path, OpenMode { create: false, ..mode }) {
                    Err(error) if error.code() == Code::FileMissing => {}
                    other => return other,
                }
            }
            self.gate.pass(&*self.inner)?;
        }
        self.inner.open(path, mode)
    }
}

/// Where time is counted, its watcher, and the clock.
struct Timed {
    stalls: Arc<WaitEvents>,
    watched: Arc<Watched>,
    clock: Arc<dyn Env>,
}

struct CountingFile {
    inner: Arc<dyn File>,
    metrics: Arc<Metrics>,
    /// None for the log: its waiters record the wait themselves, whichever thread writes and syncs.
    timed: Option<Timed>,
    gate: Arc<ChangeGate>,
    env: Arc<dyn Env>,
}

impl CountingFile {
    fn timed<R>(&self, cause: Cause, call: impl FnOnce(&dyn File) -> R) -> R {
        let Some(Timed { stalls, watched, clock }) = &self.timed else {
            return call(&*self.inner);
        };
        let start = clock.now_ns();
        let told = watched.begins(cause);
        let result = call(&*self.inner);
        drop(told);
        count_wait(stalls, cause, clock.now_ns().saturating_sub(start));
        result
    }
}

impl File for CountingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.timed(Cause::PageRead, |file| file.read_at(buf, offset))?;
        self.metrics.add(Metric::FileReads, 1);
        self.metrics.add(Metric::FileReadBytes, buf.len() as u64);
        Ok(())
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.gate.pass(&*self.env)?;
        self.timed(Cause::DeviceSlow, |file| file.write_at(buf, offset))?;
        self.metrics.add(Metric::FileWrites, 1);
        self.metrics.add(Metric::FileWriteBytes, buf.len() as u64);
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        self.timed(Cause::DeviceSlow, |file| file.sync())?;
        self.metrics.add(Metric::FileSyncs, 1);
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.gate.pass(&*self.env)?;
        self.inner.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.gate.pass(&*self.env)?;
        self.timed(Cause::DeviceSlow, |file| file.allocate(offset, len))
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.gate.pass(&*self.env)?;
        self.inner.punch(offset, len)
    }
}

impl Env for CountingEnv {
    crate::delegate_env!(inner: list, now_ns, random, wait, spawn);
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let inner = self.open_inner(path, mode)?;
        let is_log = path.starts_with("wal/");
        let timed = (!is_log).then(|| Timed {
            stalls: self.stalls.clone(),
            watched: self.watched.clone(),
            clock: self.inner.clone(),
        });
        let (metrics, gate, env) = (self.metrics.clone(), self.gate.clone(), self.inner.clone());
        Ok(Arc::new(CountingFile { inner, metrics, timed, gate, env }))
    }
    fn remove(&self, path: &str) -> Result<()> {
        self.gate.pass(&*self.inner)?;
        self.inner.remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.gate.pass(&*self.inner)?;
        self.inner.rename(from, to)
    }
    fn create_dir(&self, dir: &str) -> Result<()> {
        self.gate.pass(&*self.inner)?;
        self.inner.create_dir(dir)
    }
    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.inner.sync_dir(dir)?;
        self.metrics.add(Metric::FileSyncs, 1);
        Ok(())
    }
}
