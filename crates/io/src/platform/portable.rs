//! The standard library's calls, for every system but Linux: the same files with the same bytes,
//! through the page cache, without holes, and without hints about memory and processors. The tests
//! of this crate compile and try them on Linux too.

use crate::platform::error_numbers as numbers;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

#[cfg(unix)]
pub(crate) use std::os::unix::fs::FileExt;

/// Transfers at a position, by the names of other systems.
#[cfg(windows)]
pub(crate) trait FileExt {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;
    fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.write_at(buf, offset)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                n => (buf, offset) = (&buf[n..], offset + n as u64),
            }
        }
        Ok(())
    }
}

#[cfg(windows)]
impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(self, buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(self, buf, offset)
    }
}

// -- Processors and threads.

/// The CPU that this thread runs on is not known.
pub(crate) fn current_cpu() -> usize {
    0
}

/// Runs `spawn`.
pub(crate) fn spawn_on<R>(_cpu: usize, spawn: impl FnOnce() -> R) -> R {
    spawn()
}

/// Threads are not bound.
pub(crate) fn stay_on_nth(_n: usize) {}

/// Priorities of threads are not changed.
pub(crate) fn lower_priority(_more: i32) -> bool {
    false
}

/// Threads keep the names with which they were started.
pub(crate) fn name_thread(_name: &str) {}

/// Processor time of a thread is not known.
pub(crate) fn thread_cpu_ns() -> u64 {
    0
}

/// Has `in_child` called in each child of this process.
pub(crate) fn watch_forks(in_child: extern "C" fn()) {
    #[cfg(unix)]
    #[allow(unsafe_code)]
    // SAFETY: the handler changes an atomic number and calls nothing.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    #[cfg(not(unix))]
    let _ = in_child;
}

// -- Memory.

/// The memory of the machine is not known.
pub(crate) fn machine_bytes() -> Option<u64> {
    None
}

/// The heap is left to its allocator.
pub(crate) fn bound_heaps(_most: usize) {}

/// The heap is left to its allocator.
pub(crate) fn trim_heap() {}

/// Memory stays with the process; it reads as zeros from now on.
pub(crate) fn give_back(pages: &mut [u8]) {
    pages.fill(0);
}

/// Large pages are left to the system.
pub(crate) fn request_large_pages(_base: *mut u8, _len: usize) {}

// -- Files.

/// No file bypasses the page cache.
pub(crate) const HAS_DIRECT_IO: bool = false;

/// The free space of a file system is not known.
pub(crate) fn free_bytes(_path: &Path) -> Option<u64> {
    None
}

/// Options for a file with this mode, where files have one; it never bypasses the page cache.
pub(crate) fn prepare(options: &mut OpenOptions, mode: u32, _direct: bool) {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, mode);
    #[cfg(not(unix))]
    let _ = (options, mode);
}

/// Makes a directory and its parents, with this mode, where directories have one.
pub(crate) fn create_dir(path: &Path, mode: u32) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, mode);
    #[cfg(not(unix))]
    let _ = mode;
    builder.recursive(true).create(path)
}

/// The permission bits of a path; none are set where paths have none.
pub(crate) fn mode_of(path: &Path) -> io::Result<u32> {
    let metadata = std::fs::metadata(path)?;
    #[cfg(unix)]
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o7777;
    #[cfg(not(unix))]
    let mode = {
        let _ = metadata;
        0
    };
    Ok(mode)
}

/// Makes the names in a directory durable. Windows has no call for that.
pub(crate) fn sync_dir(directory: &File) -> io::Result<()> {
    if cfg!(unix) { directory.sync_all() } else { Ok(()) }
}

/// Opens a directory, to sync it.
pub(crate) fn open_dir(path: &Path) -> io::Result<File> {
    #[cfg(not(windows))]
    return File::open(path);
    #[cfg(windows)]
    {
        /// `FILE_FLAG_BACKUP_SEMANTICS`, without which a directory cannot be opened.
        const BACKUP_SEMANTICS: u32 = 0x0200_0000;
        let mut options = OpenOptions::new();
        options.read(true);
        std::os::windows::fs::OpenOptionsExt::custom_flags(&mut options, BACKUP_SEMANTICS);
        options.open(path)
    }
}

/// The POSIX number of an error, by its kind where the system's numbers are others.
pub(crate) fn error_number(error: &io::Error) -> Option<i32> {
    if cfg!(unix) {
        return error.raw_os_error();
    }
    error.raw_os_error()?;
    Some(match error.kind() {
        ErrorKind::StorageFull => numbers::ENOSPC,
        ErrorKind::QuotaExceeded => numbers::EDQUOT,
        ErrorKind::FileTooLarge => numbers::EFBIG,
        ErrorKind::OutOfMemory => numbers::ENOMEM,
        ErrorKind::PermissionDenied => numbers::EACCES,
        ErrorKind::ReadOnlyFilesystem => numbers::EROFS,
        ErrorKind::NotFound => numbers::ENOENT,
        ErrorKind::WouldBlock => numbers::EAGAIN,
        ErrorKind::InvalidInput => numbers::EINVAL,
        _ => numbers::EIO,
    })
}

/// No file bypasses the page cache.
pub(crate) fn leave_direct(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Blocks are reserved by writing.
pub(crate) fn reserve(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Writes zeros into the range, which keeps its blocks. The file does not become longer.
pub(crate) fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let zeros = [0; 1 << 16];
    let end = file.metadata()?.len().min(offset.saturating_add(len));
    let mut at = offset;
    while at < end {
        let count = (end - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..count as usize], at)?;
        at += count;
    }
    Ok(())
}

/// The page cache is left to the system.
pub(crate) fn have_cached(_file: &File, _offset: u64, _len: u64) {}

/// No device promises atomic writes.
pub(crate) fn atomic_write_bytes(_file: &File) -> u64 {
    0
}

/// The name of a file system is not known.
pub(crate) fn filesystem(_dir: &Path) -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A punched range reads as zeros, the rest stays, and the file keeps its length, also where
    /// the range goes beyond it.
    #[test]
    fn a_punched_range_reads_as_zeros() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        prepare(&mut options, 0o640, true);
        let file = options.open(&path).expect("opens");
        let bytes = vec![7; 200_000];
        file.write_all_at(&bytes, 0).expect("writes");
        punch(&file, 10, 100_000).expect("punches");
        punch(&file, 199_999, 5).expect("punches");
        punch(&file, 300_000, 5).expect("nothing there");
        let read = std::fs::read(&path).expect("reads");
        let is_zero = |at: usize| (10..100_010).contains(&at) || at == 199_999;
        let expected: Vec<u8> = (0..200_000).map(|at| if is_zero(at) { 0 } else { 7 }).collect();
        assert!(read == expected);
    }

    /// A file system that cannot reserve blocks has them written (`RealFile::allocate`).
    #[test]
    fn blocks_are_not_reserved_and_directories_sync() {
        let dir = tempfile::tempdir().expect("a directory");
        create_dir(&dir.path().join("a/b"), 0o700).expect("creates");
        assert_eq!(mode_of(&dir.path().join("a/b")).expect("there") & 0o002, 0);
        sync_dir(&open_dir(dir.path()).expect("opens")).expect("syncs");
        let file = File::create(dir.path().join("file")).expect("creates");
        let error = reserve(&file, 0, 4096).expect_err("no call for it");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(leave_direct(&file).is_ok() && !HAS_DIRECT_IO);
    }

    #[test]
    fn memory_that_is_given_back_reads_as_zeros() {
        let mut pages = [1; 100];
        give_back(&mut pages);
        assert_eq!(pages, [0; 100]);
    }
}
