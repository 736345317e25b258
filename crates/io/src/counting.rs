//! Counts the I/O of an environment in the metrics of one database. `Runtime::new` puts it around
//! the environment it is given. Calls that succeeded count, with the bytes they moved.

use crate::{Env, Event, File, OpenMode, Task, Woken};
use evenkeel_base::metrics::{Metric, Metrics};
use evenkeel_base::{Cause, Result};
use std::sync::Arc;
use std::time::Duration;

/// An environment whose files are counted.
pub(crate) struct CountingEnv {
    inner: Arc<dyn Env>,
    metrics: Arc<Metrics>,
}

impl CountingEnv {
    pub fn new(inner: Arc<dyn Env>, metrics: Arc<Metrics>) -> CountingEnv {
        CountingEnv { inner, metrics }
    }
}

struct CountingFile {
    inner: Arc<dyn File>,
    metrics: Arc<Metrics>,
}

impl File for CountingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)?;
        self.metrics.add(Metric::FileReads, 1);
        self.metrics.add(Metric::FileReadBytes, buf.len() as u64);
        Ok(())
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)?;
        self.metrics.add(Metric::FileWrites, 1);
        self.metrics.add(Metric::FileWriteBytes, buf.len() as u64);
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()?;
        self.metrics.add(Metric::FileSyncs, 1);
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.allocate(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.punch(offset, len)
    }
}

impl Env for CountingEnv {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(CountingFile { inner, metrics: self.metrics.clone() }))
    }
    fn list(&self, dir: &str) -> Result<Vec<String>> {
        self.inner.list(dir)
    }
    fn remove(&self, path: &str) -> Result<()> {
        self.inner.remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn create_dir(&self, dir: &str) -> Result<()> {
        self.inner.create_dir(dir)
    }
    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.inner.sync_dir(dir)?;
        self.metrics.add(Metric::FileSyncs, 1);
        Ok(())
    }
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }
    fn random(&self) -> u64 {
        self.inner.random()
    }
    fn wait(
        &self,
        event: &Arc<Event>,
        seen: u64,
        timeout: Option<Duration>,
        cause: Cause,
    ) -> Woken {
        self.inner.wait(event, seen, timeout, cause)
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Task>> {
        self.inner.spawn(name, body)
    }
}
