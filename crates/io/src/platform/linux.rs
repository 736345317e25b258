//! Calls of Linux.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub(crate) use std::os::unix::fs::FileExt;

// -- Processors and threads.

/// The CPU that this thread runs on now.
pub(crate) fn current_cpu() -> usize {
    if cfg!(miri) {
        return 0; // Miri does not know the call.
    }
    // SAFETY: plain system call without arguments.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// The CPUs that this thread may run on; none if the system does not tell.
fn allowed() -> Option<libc::cpu_set_t> {
    // SAFETY: `cpu_set_t` is plain data, for which zeros are a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours and of the size given.
    let known = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } == 0;
    known.then_some(set)
}

fn allow(set: &libc::cpu_set_t) {
    // SAFETY: reads a set of the size given.
    unsafe { libc::sched_setaffinity(0, size_of_val(set), set) };
}

/// Restricts this thread to one CPU of those that it may run on.
fn allow_one(cpu: usize) {
    // SAFETY: `cpu_set_t` is plain data, for which zeros are a valid value.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu < size_of_val(&one) * 8 {
        // SAFETY: `cpu` is below the number of bits of the set, which is ours.
        unsafe { libc::CPU_SET(cpu, &mut one) };
        allow(&one);
    }
}

/// Runs `spawn` with this thread bound to one CPU: threads that it starts stay bound to it. The
/// threads of a simulation run one at a time, and on one CPU a hand-over costs a third of the time
/// between two CPUs. If binding is refused, `spawn` runs all the same.
pub(crate) fn spawn_on<R>(cpu: usize, spawn: impl FnOnce() -> R) -> R {
    let before = allowed();
    // SAFETY: reads a set of known size, which is ours.
    let rest = before.filter(|set| unsafe { libc::CPU_COUNT(set) } > 1);
    if rest.is_some() {
        allow_one(cpu);
    }
    let result = spawn();
    if let Some(rest) = rest {
        allow(&rest);
    }
    result
}

/// Binds this thread, and the threads that it starts from now on, to the `n`-th (modulo their
/// number) of the CPUs that it may run on. If that is refused nothing changes.
pub(crate) fn stay_on_nth(n: usize) {
    let Some(set) = allowed() else { return };
    // SAFETY: the CPUs asked for are below the number of bits of the set, which is ours.
    let is_in = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    let cpus: Vec<usize> = (0..size_of_val(&set) * 8).filter(is_in).collect();
    if !cpus.is_empty() {
        allow_one(cpus[n % cpus.len()]);
    }
}

/// Lowers the priority of this thread by `more`. False if that is refused.
pub(crate) fn lower_priority(more: i32) -> bool {
    // SAFETY: plain system calls. On Linux a priority is that of one thread.
    unsafe {
        let thread = libc::gettid() as libc::id_t;
        let own = libc::getpriority(libc::PRIO_PROCESS, thread);
        libc::setpriority(libc::PRIO_PROCESS, thread, own + more) == 0
    }
}

/// Names this thread in the system's lists. A hint; the name ends after 15 bytes.
pub(crate) fn name_thread(name: &str) {
    let mut text = [0u8; 16];
    let len = name.len().min(15);
    text[..len].copy_from_slice(&name.as_bytes()[..len]);
    if !cfg!(miri) {
        // SAFETY: the system copies the text, which ends with a NUL.
        unsafe { libc::prctl(libc::PR_SET_NAME, text.as_ptr()) };
    }
}

/// Processor time of this thread, nanoseconds; 0 if unknown.
pub(crate) fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    if done != 0 {
        return 0;
    }
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// Has `in_child` called in each child of this process.
pub(crate) fn watch_forks(in_child: extern "C" fn()) {
    // SAFETY: the handler changes an atomic number and calls nothing. It fails for want of memory
    // alone; forks go unnoticed then.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

// -- Memory.

/// Bytes of memory of this machine.
pub(crate) fn machine_bytes() -> Option<u64> {
    // Needs no `/proc`, which a server with a root of its own may lack.
    let number = |name| {
        // SAFETY: it only returns a number.
        u64::try_from(unsafe { libc::sysconf(name) }).ok()
    };
    number(libc::_SC_PHYS_PAGES)?.checked_mul(number(libc::_SC_PAGESIZE)?)
}

/// Limits the heap to this many arenas. A hint.
pub(crate) fn bound_heaps(most: usize) {
    #[cfg(all(target_env = "gnu", not(miri)))]
    // SAFETY: changes no allocation; the allocator takes its own locks.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, most as libc::c_int)
    };
    #[cfg(not(all(target_env = "gnu", not(miri))))]
    let _ = most;
}

/// Returns free memory of the heap to the system, if its allocator does not do so by itself.
pub(crate) fn trim_heap() {
    #[cfg(all(target_env = "gnu", not(miri)))]
    // SAFETY: changes no allocation; the allocator takes its own locks.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Returns whole pages of memory to the system: they read as zeros from now on.
pub(crate) fn give_back(pages: &mut [u8]) {
    if cfg!(miri) {
        pages.fill(0); // Miri does not know the call.
    } else if !pages.is_empty() {
        // SAFETY: the range is whole pages that we borrow exclusively; whatever they read as
        // afterwards is a valid value of `u8`.
        unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), libc::MADV_DONTNEED) };
    }
}

/// Requests large pages for whole pages of memory. A hint.
pub(crate) fn request_large_pages(base: *mut u8, len: usize) {
    // Miri does not know the call.
    if len > 0 && !cfg!(miri) {
        // SAFETY: advice changes no byte and is refused where nothing is mapped.
        unsafe { libc::madvise(base.cast(), len, libc::MADV_HUGEPAGE) };
    }
}

// -- Files.

/// Files can bypass the page cache.
pub(crate) const HAS_DIRECT_IO: bool = true;

/// Bytes that this user may still write to the file system of an existing path.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: plain numbers, for which zero is a value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `name` ends with a NUL, and `found` is written by the call only.
    let code = unsafe { libc::statvfs(name.as_ptr(), &mut found) };
    // The types differ from architecture to architecture.
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    (code == 0).then(|| (found.f_bavail as u64).saturating_mul(found.f_frsize as u64))
}

/// Options for a file with this mode that is not inherited, does not follow a link, and bypasses
/// the page cache if `direct`.
pub(crate) fn prepare(options: &mut OpenOptions, mode: u32, direct: bool) {
    let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW | if direct { libc::O_DIRECT } else { 0 };
    options.mode(mode).custom_flags(flags);
}

/// Makes a directory and its parents, with this mode.
pub(crate) fn create_dir(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(path)
}

/// The permission bits of a path.
pub(crate) fn mode_of(path: &Path) -> io::Result<u32> {
    Ok(std::fs::metadata(path)?.permissions().mode() & 0o7777)
}

/// Makes the names in an open directory durable.
pub(crate) fn sync_dir(directory: &File) -> io::Result<()> {
    directory.sync_all()
}

/// Opens a directory, to sync it.
pub(crate) fn open_dir(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// The POSIX number of an error.
pub(crate) fn error_number(error: &io::Error) -> Option<i32> {
    error.raw_os_error()
}

/// Has an open file use the page cache from now on.
pub(crate) fn leave_direct(file: &File) -> io::Result<()> {
    let fd = file.as_raw_fd();
    // SAFETY: plain system call on an open descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_DIRECT) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn fallocate(file: &File, mode: i32, offset: u64, len: u64) -> io::Result<()> {
    loop {
        // SAFETY: plain system call on an open descriptor.
        let rc = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, len as i64) };
        let error = io::Error::last_os_error();
        match rc {
            0 => return Ok(()),
            _ if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
    }
}

/// Reserves blocks, extending the file. Where the file system cannot, the error is of the kind
/// `Unsupported`.
pub(crate) fn reserve(file: &File, offset: u64, len: u64) -> io::Result<()> {
    match fallocate(file, 0, offset, len) {
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Err(io::ErrorKind::Unsupported.into())
        }
        other => other,
    }
}

/// Frees the blocks of a range; it reads as zeros afterwards.
pub(crate) fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, len)
}

/// Creates pages of the cache for a range, into which writes then only copy. A hint.
pub(crate) fn have_cached(file: &File, offset: u64, len: u64) {
    let [offset, len] = [offset, len].map(|bytes| bytes as libc::off_t);
    // SAFETY: plain system call on an open descriptor.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, len, libc::POSIX_FADV_WILLNEED) };
}

/// Asks `statx` for STATX_WRITE_ATOMIC (Linux 6.11 and later); older kernels leave it out.
pub(crate) fn atomic_write_bytes(file: &File) -> u64 {
    const STATX_WRITE_ATOMIC: u32 = 0x0001_0000;
    /// Place of `stx_atomic_write_unit_max` in `struct statx`, which is 256 bytes.
    const UNIT_MAX: usize = 0xac;
    let mut stat = [0u32; 64];
    // SAFETY: the path is an empty string, the buffer has the size of `struct statx`.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_statx,
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            STATX_WRITE_ATOMIC,
            stat.as_mut_ptr(),
        )
    };
    let answered = rc == 0 && stat[0] & STATX_WRITE_ATOMIC != 0;
    if answered { u64::from(stat[UNIT_MAX / 4]) } else { 0 }
}

/// Name of the file system of a directory, or its number in hexadecimal.
pub(crate) fn filesystem(dir: &Path) -> String {
    let Ok(path) = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes()) else {
        return String::new();
    };
    // SAFETY: `statfs` is plain data, for which zeros are a valid value.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero byte and `stat` is ours.
    if unsafe { libc::statfs(path.as_ptr(), &mut stat) } != 0 {
        return String::new();
    }
    let name = match stat.f_type as u64 {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x794c_7630 => "overlay",
        0x2fc1_2fc1 => "zfs",
        0x6969 => "nfs",
        0xf2f5_2010 => "f2fs",
        0xca45_1a4e => "bcachefs",
        0x0102_1997 => "9p",
        0x6573_5546 => "fuse",
        other => return format!("{other:#x}"),
    };
    name.to_string()
}
