//! The capabilities of a directory's storage: file system, direct I/O, time of a sync, atomic
//! writes. For benchmarks and for the choice of page writes at open.

use crate::errno::OsCall;
use crate::platform::{self, FileExt};
use crate::real::os_error;
use crate::{AlignedBuf, IO_ALIGN};
use evenkeel_base::Result;
use std::fs::{self, OpenOptions};
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
        filesystem: platform::filesystem(dir),
        direct_io,
        sync_us_p50: us[SYNCS / 2],
        sync_us_p99: us[SYNCS - 2],
        atomic_write_bytes,
    })
}

fn probe_file(path: &Path) -> Result<(bool, Vec<u64>, u64)> {
    let fail = |call| move |e| os_error(call, path, e);
    let open = |direct| {
        let mut options = OpenOptions::new();
        platform::prepare(&mut options, 0o600, direct);
        options.read(true).write(true).create(true).truncate(false).open(path)
    };
    let mut buf = AlignedBuf::new(IO_ALIGN);
    buf.fill(0x5a);
    let buffered = open(false).map_err(fail(OsCall::Create))?;
    buffered.write_all_at(&vec![0; 64 * IO_ALIGN], 0).map_err(fail(OsCall::Write))?;
    buffered.sync_all().map_err(fail(OsCall::Sync))?;
    let direct = platform::HAS_DIRECT_IO.then(|| open(true).ok()).flatten();
    let direct = direct.filter(|f| f.write_all_at(&buf, 0).is_ok());
    let file = direct.as_ref().unwrap_or(&buffered);
    let mut us = Vec::with_capacity(SYNCS);
    for i in 0..SYNCS {
        let start = Instant::now();
        file.write_all_at(&buf, ((i % 64) * IO_ALIGN) as u64).map_err(fail(OsCall::Write))?;
        file.sync_data().map_err(fail(OsCall::Sync))?;
        us.push(start.elapsed().as_micros() as u64);
    }
    Ok((direct.is_some(), us, platform::atomic_write_bytes(file)))
}
