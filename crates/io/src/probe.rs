//! The capabilities of a directory's storage: file system, direct I/O, time of a sync, atomic
//! writes. For benchmarks and for the choice of page writes at open.
#![allow(unsafe_code)]

use crate::errno::OsCall;
use crate::real::os_error;
use crate::{AlignedBuf, IO_ALIGN};
use evenkeel_base::Result;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

/// Syncs that are timed.
const SYNCS: usize = 100;

/// The capabilities of a directory's storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Name of the file system, or its number in hexadecimal.
    pub filesystem: String,
    /// Direct I/O works.
    pub direct_io: bool,
    /// Median time of writing 4 KiB in place and `fdatasync`, microseconds.
    pub sync_us_p50: u64,
    /// The 99th percentile of the same.
    pub sync_us_p99: u64,
    /// Largest write that the device applies entirely or not at all; 0: none is promised.
    pub atomic_write_bytes: u64,
}

/// Probes the storage of an existing directory with a small file that is removed again.
///
/// # Errors
/// If the file cannot be created, written or synced.
pub fn probe(dir: impl AsRef<Path>) -> Result<Probe> {
    let dir = dir.as_ref();
    let path = dir.join(format!("evenkeel.probe.{}", std::process::id()));
    let result = probe_file(&path);
    // Whatever the result, the file is ours to remove; a failure leaves a small stray file.
    let _ = fs::remove_file(&path);
    let (direct_io, mut us, atomic_write_bytes) = result?;
    us.sort_unstable();
    Ok(Probe {
        filesystem: filesystem(dir),
        direct_io,
        sync_us_p50: us[SYNCS / 2],
        sync_us_p99: us[SYNCS - 2],
        atomic_write_bytes,
    })
}

fn probe_file(path: &Path) -> Result<(bool, Vec<u64>, u64)> {
    let fail = |call| move |e| os_error(call, path, e);
    let open = |flags: i32| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | flags).open(path)
    };
    let mut buf = AlignedBuf::new(IO_ALIGN);
    buf.fill(0x5a);
    let buffered = open(0).map_err(fail(OsCall::Create))?;
    buffered.write_all_at(&vec![0; 64 * IO_ALIGN], 0).map_err(fail(OsCall::Write))?;
    buffered.sync_all().map_err(fail(OsCall::Sync))?;
    let direct = open(libc::O_DIRECT).ok().filter(|f| f.write_all_at(&buf, 0).is_ok());
    let file = direct.as_ref().unwrap_or(&buffered);
    let mut us = Vec::with_capacity(SYNCS);
    for i in 0..SYNCS {
        let start = Instant::now();
        file.write_all_at(&buf, ((i % 64) * IO_ALIGN) as u64).map_err(fail(OsCall::Write))?;
        file.sync_data().map_err(fail(OsCall::Sync))?;
        us.push(start.elapsed().as_micros() as u64);
    }
    Ok((direct.is_some(), us, atomic_write_bytes(file)))
}

/// Asks `statx` for STATX_WRITE_ATOMIC (Linux 6.11 and later); older kernels leave it out.
fn atomic_write_bytes(file: &File) -> u64 {
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

fn filesystem(dir: &Path) -> String {
    let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else { return String::new() };
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
