//! The environment of in-memory databases: files are memory and vanish with it; time and threads
//! are real. Calls fail only for want of memory or by misuse.

use crate::blocks::Blocks;
use crate::os::Os;
use crate::{Env, Event, File, OpenMode, Task, Woken};
use evenkeel_base::sync::{Mutex, RwLock};
use evenkeel_base::{Cause, Code, Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Files in memory, real threads.
pub struct MemEnv {
    os: Os,
    files: Mutex<BTreeMap<String, Arc<MemFile>>>,
}

/// The value of `locked` while a writer holds the lock, which it shares with nobody.
const WRITER: u32 = u32::MAX;

#[derive(Default)]
struct MemFile {
    content: RwLock<Blocks>,
    /// Readers that hold the lock, or `WRITER`.
    locked: AtomicU32,
}

impl MemFile {
    fn take_lock(&self, write: bool) -> bool {
        let taken = |held: u32| match write {
            true => (held == 0).then_some(WRITER),
            false => (held < WRITER - 1).then_some(held + 1),
        };
        self.locked.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken).is_ok()
    }
}

struct Handle {
    file: Arc<MemFile>,
    path: String,
    mode: OpenMode,
}

impl Default for MemEnv {
    fn default() -> Self {
        MemEnv::new()
    }
}

impl MemEnv {
    /// An environment without files.
    pub fn new() -> MemEnv {
        MemEnv { os: Os::new(), files: Mutex::default() }
    }

    /// A copy of all files, which shares their blocks until one of the two changes them.
    pub fn fork(&self) -> MemEnv {
        let copy = |(path, file): (&String, &Arc<MemFile>)| {
            let content = RwLock::new(file.content.read().clone());
            (path.clone(), Arc::new(MemFile { content, locked: AtomicU32::new(0) }))
        };
        let files = self.files.lock().iter().map(copy).collect();
        MemEnv { os: Os::new(), files: Mutex::new(files) }
    }

    /// Bytes of memory that the files take.
    pub fn used_bytes(&self) -> u64 {
        let files = self.files.lock();
        files.values().map(|f| f.content.read().allocated() * crate::blocks::BLOCK as u64).sum()
    }
}

impl Handle {
    fn change(&self, f: impl FnOnce(&mut Blocks)) -> Result<()> {
        if !self.mode.write {
            let error = Error::new(Code::WriteFailed).with("file", &self.path);
            return Err(error.with("os", "the file is open for reading only"));
        }
        f(&mut self.file.content.write());
        Ok(())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.mode.lock {
            let held = if self.mode.write { WRITER } else { 1 };
            self.file.locked.fetch_sub(held, Ordering::Release);
        }
    }
}

impl File for Handle {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let content = self.file.content.read();
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > content.len()) {
            let error = Error::new(Code::ReadShort).with("file", &self.path);
            return Err(error.with("offset", offset).with("len", buf.len()));
        }
        content.read(buf, offset);
        Ok(())
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.change(|content| content.write(buf, offset))
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(self.file.content.read().len())
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.change(|content| content.set_len(len))
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.change(|content| content.allocate(offset, len))
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.change(|content| content.punch(offset, len))
    }
}

impl Env for MemEnv {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut files = self.files.lock();
        let file = match files.get(path) {
            Some(_) if mode.create && mode.exclusive => {
                let error = Error::new(Code::FileOpen).with("file", path);
                return Err(error.with("os", "file exists"));
            }
            Some(file) => file.clone(),
            None if !mode.create => return Err(Error::new(Code::FileMissing).with("file", path)),
            None => files.entry(path.to_string()).or_default().clone(),
        };
        if mode.lock && !file.take_lock(mode.write) {
            return Err(Error::new(Code::DirectoryBusy).with("file", path));
        }
        Ok(Arc::new(Handle { file, path: path.to_string(), mode }))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let files = self.files.lock();
        let inside = files.keys().filter_map(|path| path.strip_prefix(&prefix));
        let mut names: Vec<String> =
            inside.map(|rest| rest.split('/').next().unwrap_or(rest).to_string()).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.files.lock().remove(path);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut files = self.files.lock();
        let Some(file) = files.remove(from) else {
            return Err(Error::new(Code::FileMissing).with("file", from));
        };
        files.insert(to.to_string(), file);
        Ok(())
    }

    fn create_dir(&self, _dir: &str) -> Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &str) -> Result<()> {
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.os.now_ns()
    }

    fn random(&self) -> u64 {
        self.os.random()
    }

    fn wait(
        &self,
        event: &Arc<Event>,
        seen: u64,
        timeout: Option<Duration>,
        _cause: Cause,
    ) -> Woken {
        self.os.wait(event, seen, timeout)
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Task>> {
        self.os.spawn(name, body)
    }
}
