//! The real environment: files of the operating system below one directory, its threads and its
//! monotonic clock.
//!
//! Invariants: files are created 0640 and directories 0700; links are not followed; a directory
//! that every user may write to is refused; the lock file holds the pid of its owner. If direct I/O
//! is refused, at the opening or at the first transfer of whole `IO_ALIGN` blocks, the file
//! continues with buffered I/O and one warning is logged per environment. A smaller transfer that a
//! device refuses fails, which tells the caller what the device accepts.

use crate::cgroup::{memory_left, memory_limit};
use crate::errno::{self, OsCall};
use crate::os::Os;
use crate::platform::{self, FileExt, error_numbers};
use crate::{ABOVE_ROOT, Env, Event, File, IO_ALIGN, OpenMode, Task, Woken};
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::{Cause, Code, Error, Result, sync::Mutex};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const FILE_MODE: u32 = 0o640;
const DIR_MODE: u32 = 0o700;

/// Files below one directory.
pub struct RealEnv {
    root: PathBuf,
    os: Os,
    /// The refusal of direct I/O is in the log already.
    warned: Arc<AtomicBool>,
    /// Directories that were opened to sync them.
    directories: Mutex<BTreeMap<String, Arc<fs::File>>>,
}

/// Cores of this machine that the process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Bytes of memory of this machine, or of the container of the process, as far as known.
pub fn memory_bytes() -> Option<u64> {
    let container = memory_limit(|path| fs::read_to_string(path).ok());
    [platform::machine_bytes(), container].into_iter().flatten().min()
}

/// Bytes of memory that this process may take before the machine or its container has none left,
/// files that the system caches counted as free; none where the system does not tell.
pub fn memory_available_bytes() -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    });
    [machine, memory_left(read)].into_iter().flatten().min()
}

/// Bytes that this user may still write to the file system of a directory, or, if it does not
/// exist, of the nearest one above it; as far as known.
pub fn free_bytes(directory: &Path) -> Option<u64> {
    let full = std::path::absolute(directory).ok()?;
    let there = full.ancestors().find(|path| path.exists())?;
    platform::free_bytes(there)
}

impl RealEnv {
    /// An environment rooted at `root`, which need not exist yet (`create_dir("")` makes it).
    pub fn new(root: impl AsRef<Path>) -> RealEnv {
        RealEnv {
            root: root.as_ref().to_path_buf(),
            os: Os::new(),
            warned: Arc::default(),
            directories: Mutex::default(),
        }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    /// Makes the name of the root durable, and those of the directories above it. A directory that
    /// this user may not read cannot be synced: it ends the way upwards.
    fn sync_above(&self) -> Result<()> {
        let whole = std::path::absolute(&self.root).unwrap_or_else(|_| self.root.clone());
        for (distance, dir) in whole.ancestors().skip(1).enumerate() {
            let synced = match platform::open_dir(dir) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
                opened => opened.and_then(|opened| platform::sync_dir(&opened)),
            };
            match synced {
                Err(error) if distance == 0 => return Err(os_error(OsCall::Sync, dir, error)),
                // It is not new: this process could not make a directory in it.
                Err(_) => return Ok(()),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// A directory, opened once: its names can then be made durable without another open file, for
    /// which there may be no room at that time.
    fn directory(&self, dir: &str) -> Result<Arc<fs::File>> {
        let mut directories = self.directories.lock();
        if let Some(file) = directories.get(dir) {
            return Ok(file.clone());
        }
        let full = self.path(dir);
        let file = platform::open_dir(&full).map_err(|e| os_error(OsCall::Open, &full, e))?;
        let file = Arc::new(file);
        directories.insert(dir.to_string(), file.clone());
        Ok(file)
    }
}

pub(crate) fn os_error(call: OsCall, path: &Path, error: io::Error) -> Error {
    let code = match (platform::error_number(&error), error.kind()) {
        (Some(number), _) => errno::code(call, number),
        (None, ErrorKind::UnexpectedEof) => Code::ReadShort,
        (None, _) => errno::code(call, error_numbers::EIO),
    };
    Error::new(code).with("file", path.display()).with("os", &error).caused_by(error)
}

fn is_einval(error: &io::Error) -> bool {
    platform::error_number(error) == Some(error_numbers::EINVAL)
}

fn warn_buffered(warned: &AtomicBool, path: &Path) {
    if !warned.swap(true, Ordering::Relaxed) {
        log::warn!("{}: direct I/O refused, using buffered I/O", path.display());
    }
}

struct RealFile {
    file: fs::File,
    path: PathBuf,
    /// Opened for direct I/O.
    direct: bool,
    warned: Arc<AtomicBool>,
}

/// True if a refusal of this transfer concerns direct I/O as such.
fn is_aligned(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(IO_ALIGN as u64) && len.is_multiple_of(IO_ALIGN)
}

impl RealFile {
    /// Continues with buffered I/O. Threads that are refused at the same time all come here.
    fn fall_back(&self) -> io::Result<()> {
        platform::leave_direct(&self.file)?;
        warn_buffered(&self.warned, &self.path);
        Ok(())
    }

    /// One transfer, repeated when a signal interrupts it, and once if direct I/O is refused.
    fn transfer(
        &self,
        mut may_fall_back: bool,
        mut call: impl FnMut() -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            match call() {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if may_fall_back && is_einval(&e) => {
                    may_fall_back = false;
                    self.fall_back()?;
                }
                other => return other,
            }
        }
    }

    fn read_all(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let may_fall_back = self.direct && is_aligned(offset, buf.len());
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.transfer(may_fall_back, || self.file.read_at(&mut buf[done..], at))? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    fn write_all(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let may_fall_back = self.direct && is_aligned(offset, buf.len());
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.transfer(may_fall_back, || self.file.write_at(&buf[done..], at))? {
                0 => return Err(ErrorKind::WriteZero.into()),
                _ if fault_injection::is(Fault::ShortWriteTaken) => return Ok(()),
                n => done += n,
            }
        }
        Ok(())
    }

    /// Where blocks cannot be reserved: writes zeros beyond the end, which also takes the blocks.
    /// Ranges inside the file stay unchanged.
    fn allocate_by_writing(&self, end: u64) -> io::Result<()> {
        let mut at = self.file.metadata()?.len();
        let zeros = crate::AlignedBuf::new(1 << 20);
        while at < end {
            let count = (end - at).min(zeros.len() as u64 - at % IO_ALIGN as u64);
            self.write_all(&zeros[..count as usize], at)?;
            at += count;
        }
        Ok(())
    }

    /// Creates pages of the cache for a range that was just allocated, if writes go through the
    /// cache: commits into them then only copy, and need not wait until the system has made them. A
    /// hint.
    fn have_cached(&self, offset: u64, len: u64) {
        if !self.direct {
            platform::have_cached(&self.file, offset, len);
        }
    }

    fn fail(&self, call: OsCall, error: io::Error, offset: u64, len: usize) -> Error {
        os_error(call, &self.path, error).with("offset", offset).with("len", len)
    }
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let len = buf.len();
        self.read_all(buf, offset).map_err(|e| self.fail(OsCall::Read, e, offset, len))
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_all(buf, offset).map_err(|e| self.fail(OsCall::Write, e, offset, buf.len()))
    }
    fn sync(&self) -> Result<()> {
        if fault_injection::is(Fault::RealSyncSkipped) {
            return Ok(());
        }
        self.file.sync_data().map_err(|e| os_error(OsCall::Sync, &self.path, e))
    }
    fn len(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(|e| os_error(OsCall::Length, &self.path, e))?.len())
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|e| os_error(OsCall::Reserve, &self.path, e))
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let done = match platform::reserve(&self.file, offset, len) {
            Err(e) if e.kind() == ErrorKind::Unsupported => self.allocate_by_writing(offset + len),
            other => other,
        };
        done.map_err(|e| self.fail(OsCall::Reserve, e, offset, len as usize))?;
        self.have_cached(offset, len);
        Ok(())
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        platform::punch(&self.file, offset, len)
            .map_err(|e| self.fail(OsCall::Reserve, e, offset, len as usize))
    }
}

/// Takes the lock, or names its holder in the error.
fn lock(mut file: &fs::File, path: &Path, write: bool) -> Result<()> {
    match if write { file.try_lock() } else { file.try_lock_shared() } {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let error = Error::new(Code::DirectoryBusy).with("file", path.display());
            // The file holds the pid of the last writer. Readers leave no pid.
            if write && file.try_lock_shared().is_ok() {
                return Err(error.with("opened", "read-only"));
            }
            let owner = fs::read_to_string(path).unwrap_or_default();
            return Err(error.with("pid", owner.trim()));
        }
        Err(TryLockError::Error(error)) => return Err(os_error(OsCall::Open, path, error)),
    }
    if write {
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(|e| os_error(OsCall::Write, path, e))?;
    }
    Ok(())
}

impl Env for RealEnv {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let path = self.path(path);
        let mut options = OpenOptions::new();
        options.read(true).write(mode.write);
        options.create(mode.create && !mode.exclusive).create_new(mode.create && mode.exclusive);
        let mut direct = mode.direct;
        platform::prepare(&mut options, FILE_MODE, direct);
        let file = match options.open(&path) {
            Err(e) if direct && is_einval(&e) => {
                warn_buffered(&self.warned, &path);
                direct = false;
                // The refused call may have created the file already.
                platform::prepare(&mut options, FILE_MODE, direct);
                options.create(mode.create).create_new(false).open(&path)
            }
            other => other,
        }
        .map_err(|e| {
            let makes = mode.create && !path.exists();
            os_error(if makes { OsCall::Create } else { OsCall::Open }, &path, e)
        })?;
        if mode.lock {
            lock(&file, &path, mode.write)?;
        }
        Ok(Arc::new(RealFile { file, path, direct, warned: self.warned.clone() }))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        let full = self.path(dir);
        let entries = match fs::read_dir(&full) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|e| os_error(OsCall::List, &full, e))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| os_error(OsCall::List, &full, e))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn remove(&self, path: &str) -> Result<()> {
        let full = self.path(path);
        match fs::remove_file(&full) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(os_error(OsCall::Name, &full, e)),
            _ => Ok(()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let full = self.path(from);
        fs::rename(&full, self.path(to)).map_err(|e| os_error(OsCall::Name, &full, e))
    }

    fn create_dir(&self, dir: &str) -> Result<()> {
        let full = self.path(dir);
        let fail = |e| os_error(OsCall::Name, &full, e);
        platform::create_dir(&full, DIR_MODE).map_err(fail)?;
        let mode = platform::mode_of(&full).map_err(fail)?;
        if mode & 0o002 != 0 {
            let error = Error::new(Code::DirectoryUnsafe).with("file", full.display());
            return Err(error.with("mode", format_args!("{mode:o}")));
        }
        // Use the directory that exists now, not a removed one of this name.
        let known = self.directories.lock().remove(dir);
        match (self.directory(dir), known) {
            (Err(error), Some(known)) if error.code().is_shortage() => {
                self.directories.lock().insert(dir.to_string(), known);
                Ok(())
            }
            (opened, _) => opened.map(drop),
        }
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        if fault_injection::is(Fault::RealNamesNotSynced) {
            return Ok(());
        }
        if dir == ABOVE_ROOT {
            return self.sync_above();
        }
        let synced = platform::sync_dir(&*self.directory(dir)?);
        synced.map_err(|e| os_error(OsCall::Sync, &self.path(dir), e))
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
