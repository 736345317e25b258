//! Files in memory whose calls can be made to fail, with real threads and real time, for errors
//! that an intact machine does not return. Also functions with which tests change files without the
//! engine.

use evenkeel_base::{Code, Error, Result};
use evenkeel_io::{Env, File, MemEnv, OpenMode, Task};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// The calls that may fail, on paths with a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Opens and creations.
    Open,
    /// Reads.
    Read,
    /// Writes and changes of length.
    Write,
    /// Syncs.
    Sync,
}

/// The faults of an environment; all are off at first.
#[derive(Default)]
pub struct Faults {
    /// Calls on paths with this prefix fail with this code.
    failing: Mutex<Option<(Op, String, Code)>>,
    /// All changes are dropped, as if the process had been killed.
    pub frozen: AtomicBool,
    /// New threads are refused.
    pub no_threads: AtomicBool,
    /// Limit of the bytes that files take; 0: no limit.
    pub capacity: AtomicU64,
    /// Number of calls that failed because of this limit.
    pub full: AtomicU64,
}

impl Faults {
    /// Makes calls on paths with this prefix fail; `None` ends the fault.
    pub fn fail(&self, fault: Option<(Op, &str, Code)>) {
        let fault = fault.map(|(op, path, code)| (op, path.to_string(), code));
        *self.failing.lock().expect("not poisoned") = fault;
    }

    fn frozen(&self, path: &str) -> Result<()> {
        if self.frozen.load(SeqCst) {
            return Err(Error::new(Code::WriteFailed).with("file", path).with("os", "frozen"));
        }
        Ok(())
    }

    fn check(&self, op: Op, path: &str) -> Result<()> {
        if !matches!(op, Op::Read | Op::Open) {
            self.frozen(path)?;
        }
        match &*self.failing.lock().expect("not poisoned") {
            Some((bad, prefix, code)) if *bad == op && path.starts_with(prefix) => {
                Err(Error::new(*code).with("file", path).with("os", "made to fail"))
            }
            _ => Ok(()),
        }
    }
}

/// An environment with files in memory and faults.
#[derive(Clone)]
pub struct FaultyEnv {
    inner: Arc<MemEnv>,
    faults: Arc<Faults>,
}

impl FaultyEnv {
    /// An environment without files or faults.
    pub fn new() -> (Arc<FaultyEnv>, Arc<Faults>) {
        let faults = Arc::new(Faults::default());
        let env = FaultyEnv { inner: Arc::new(MemEnv::new()), faults: faults.clone() };
        (Arc::new(env), faults)
    }

    /// Bytes that the files take.
    pub fn used_bytes(&self) -> u64 {
        self.inner.used_bytes()
    }

    /// A copy of all files, in an environment without faults.
    pub fn copy(&self) -> Arc<MemEnv> {
        copy(&*self.inner)
    }
}

/// The paths of all files of the database.
pub fn paths(env: &dyn Env) -> Vec<String> {
    let mut all = Vec::new();
    for dir in ["", "pages", "runs", "undo", "wal"] {
        for name in env.list(dir).unwrap_or_default() {
            let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
            if env.open(&path, OpenMode::READ).is_ok() {
                all.push(path);
            }
        }
    }
    all
}

/// The bytes of a file. Panics if it cannot be read.
pub fn content(env: &dyn Env, path: &str) -> Vec<u8> {
    let file = env.open(path, OpenMode::READ).expect("the file is there");
    let mut bytes = vec![0; file.len().expect("a length") as usize];
    file.read_at(&mut bytes, 0).expect("it can be read");
    bytes
}

/// Replaces the content of a file. Panics if it cannot be written.
pub fn replace(env: &dyn Env, path: &str, bytes: &[u8]) {
    let file = env.open(path, OpenMode::READ_WRITE).expect("the file opens");
    file.set_len(bytes.len() as u64).expect("its length is set");
    // Zero blocks are skipped, so that a sparse file stays sparse.
    for (i, block) in bytes.chunks(4096).enumerate() {
        file.write_at(block, i as u64 * 4096).expect("it is written");
    }
}

/// A copy of all files.
pub fn copy(env: &dyn Env) -> Arc<MemEnv> {
    let to = MemEnv::new();
    for path in paths(env) {
        replace(&to, &path, &content(env, &path));
    }
    Arc::new(to)
}

struct FaultyFile {
    inner: Arc<dyn File>,
    env: FaultyEnv,
    path: String,
}

impl FaultyFile {
    /// Refuses writes that would grow the files beyond the capacity.
    fn space(&self, offset: u64, len: u64) -> Result<()> {
        let capacity = self.env.faults.capacity.load(SeqCst);
        if capacity == 0 {
            return Ok(());
        }
        // Overwriting takes no space, writes beyond the present length do.
        let grows = (offset + len).saturating_sub(self.inner.len()?);
        if grows > 0 && self.env.used_bytes() + grows > capacity {
            self.env.faults.full.fetch_add(1, SeqCst);
            return Err(Error::new(Code::DiskFull).with("file", &self.path));
        }
        Ok(())
    }
}

impl File for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.env.faults.check(Op::Read, &self.path)?;
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.env.faults.check(Op::Write, &self.path)?;
        self.space(offset, buf.len() as u64)?;
        self.inner.write_at(buf, offset)
    }
    fn sync(&self) -> Result<()> {
        self.env.faults.check(Op::Sync, &self.path)?;
        self.inner.sync()
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.env.faults.check(Op::Write, &self.path)?;
        self.inner.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.env.faults.check(Op::Write, &self.path)?;
        self.space(offset, len)?;
        self.inner.allocate(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.env.faults.frozen(&self.path)?;
        self.inner.punch(offset, len)
    }
}

impl Env for FaultyEnv {
    evenkeel_io::delegate_env!(inner: list, create_dir, now_ns, random, wait);
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.faults.check(Op::Open, path)?;
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(FaultyFile { inner, env: self.clone(), path: path.to_string() }))
    }
    fn remove(&self, path: &str) -> Result<()> {
        self.faults.frozen(path)?;
        self.inner.remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.faults.frozen(from)?;
        self.inner.rename(from, to)
    }
    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.faults.check(Op::Sync, dir)?;
        self.inner.sync_dir(dir)
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Task>> {
        if self.faults.no_threads.load(SeqCst) {
            return Err(Error::new(Code::ThreadSpawn).with("thread", name));
        }
        self.inner.spawn(name, body)
    }
}
