//! The real environment: files of the operating system, threads, the monotonic clock.
#![allow(unsafe_code)]

use crate::{Env, Event, File, OpenMode, Task, Woken};
use evenkeel_base::{Cause, Code, Error, Result};
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Files below one directory.
pub struct RealEnv {
    root: PathBuf,
    start: Instant,
    seed: AtomicU64,
}

impl RealEnv {
    /// An environment rooted at `root`, which need not exist yet.
    pub fn new(root: impl AsRef<Path>) -> RealEnv {
        let seed = std::process::id() as u64 ^ (std::ptr::from_ref(&root) as *const () as u64);
        RealEnv {
            root: root.as_ref().to_path_buf(),
            start: Instant::now(),
            seed: AtomicU64::new(seed),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }
}

fn os_error(code: Code, path: &Path, error: std::io::Error) -> Error {
    let code = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::DiskFull,
        ErrorKind::NotFound => Code::FileMissing,
        ErrorKind::PermissionDenied => Code::NoPermission,
        ErrorKind::UnexpectedEof => Code::ReadShort,
        _ => code,
    };
    Error::new(code).with("file", path.display()).with("os", &error).caused_by(error)
}

struct RealFile {
    file: fs::File,
    path: PathBuf,
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|e| {
            os_error(Code::ReadFailed, &self.path, e).with("offset", offset).with("len", buf.len())
        })
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(buf, offset).map_err(|e| {
            os_error(Code::WriteFailed, &self.path, e).with("offset", offset).with("len", buf.len())
        })
    }
    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| os_error(Code::SyncFailed, &self.path, e))
    }
    fn len(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(|e| os_error(Code::ReadFailed, &self.path, e))?.len())
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|e| os_error(Code::WriteFailed, &self.path, e))
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        // SAFETY: plain system call on an open descriptor.
        let rc = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, offset as i64, len as i64) };
        if rc == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::EOPNOTSUPP) {
            let now = self.len()?;
            return if now < offset + len { self.set_len(offset + len) } else { Ok(()) };
        }
        Err(os_error(Code::WriteFailed, &self.path, error))
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: plain system call on an open descriptor.
        let rc = unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset as i64, len as i64) };
        if rc == 0 {
            return Ok(());
        }
        Err(os_error(Code::WriteFailed, &self.path, std::io::Error::last_os_error()))
    }
}

struct Thread(std::thread::JoinHandle<()>);
impl Task for Thread {
    fn join(self: Box<Self>) -> Result<()> {
        self.0.join().map_err(|_| Error::internal("a background thread panicked"))
    }
}

impl Env for RealEnv {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let full = self.path(path);
        let mut options = OpenOptions::new();
        options.read(true).write(mode.write).mode(0o640);
        options.create(mode.create && !mode.exclusive).create_new(mode.create && mode.exclusive);
        let mut flags = libc::O_CLOEXEC;
        if mode.direct {
            flags |= libc::O_DIRECT;
        }
        options.custom_flags(flags);
        let file = match options.open(&full) {
            Err(e) if mode.direct && e.raw_os_error() == Some(libc::EINVAL) => {
                log::warn!("{}: direct I/O refused, using buffered I/O", full.display());
                options.custom_flags(libc::O_CLOEXEC);
                options.open(&full)
            }
            other => other,
        }
        .map_err(|e| os_error(Code::FileOpen, &full, e))?;
        if mode.lock {
            // SAFETY: plain system call on an open descriptor.
            let rc = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
            if rc != 0 {
                return Err(Error::new(Code::DirectoryBusy).with("file", full.display()));
            }
        }
        Ok(Arc::new(RealFile { file, path: full }))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        let full = self.path(dir);
        let entries = match fs::read_dir(&full) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|e| os_error(Code::FileOpen, &full, e))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| os_error(Code::ReadFailed, &full, e))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn remove(&self, path: &str) -> Result<()> {
        let full = self.path(path);
        match fs::remove_file(&full) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(os_error(Code::WriteFailed, &full, e)),
            _ => Ok(()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let full = self.path(from);
        fs::rename(&full, self.path(to)).map_err(|e| os_error(Code::WriteFailed, &full, e))
    }

    fn create_dir(&self, dir: &str) -> Result<()> {
        let full = self.path(dir);
        fs::create_dir_all(&full).map_err(|e| os_error(Code::FileOpen, &full, e))
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        let full = self.path(dir);
        let file = fs::File::open(&full).map_err(|e| os_error(Code::FileOpen, &full, e))?;
        file.sync_all().map_err(|e| os_error(Code::SyncFailed, &full, e))
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014).
        let mut z = self.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn wait(
        &self,
        event: &Arc<Event>,
        seen: u64,
        timeout: Option<Duration>,
        _cause: Cause,
    ) -> Woken {
        if timeout == Some(Duration::ZERO) || event.now() != seen {
            return Woken::Event;
        }
        if event.block(seen, timeout) { Woken::Event } else { Woken::Timeout }
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Task>> {
        std::thread::Builder::new()
            .name(name.to_string())
            .spawn(body)
            .map(|handle| Box::new(Thread(handle)) as Box<dyn Task>)
            .map_err(|e| Error::new(Code::ThreadSpawn).with("thread", name).caused_by(e))
    }
}
