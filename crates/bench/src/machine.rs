//! Measures this machine and process from what Linux reports: memory, I/O, CPU, stolen time, the
//! file system, and the time of a sync. Figures that cannot be read are 0.

use crate::error::BenchError;
use crate::figures::quantile;
use crate::result::Machine;
use evenkeel_io::{AlignedBuf, Env, IO_ALIGN, OpenMode, RealEnv};
use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Writes and syncs that the sync probe makes at most, and the time it may take.
const PROBE_SYNCS: usize = 200;
const PROBE_TIME: Duration = Duration::from_millis(500);
/// Clock ticks per second of `/proc/PID/stat` on Linux.
const TICKS_PER_SECOND: f64 = 100.0;
const PROBE_FILE: &str = "sync-probe";

/// Describes the machine and measures a sync in `dir`, which must exist.
///
/// # Errors
/// If `dir` cannot be written.
pub fn describe(dir: &Path, direct_io: bool) -> Result<Machine, BenchError> {
    let syncs = probe_syncs(dir)?;
    let memory_kb = field(&read("/proc/meminfo"), "MemTotal:");
    Ok(Machine {
        cores: std::thread::available_parallelism().map_or(0, |n| n.get() as u64),
        memory_bytes: memory_kb * 1024,
        filesystem: filesystem(dir),
        direct_io: direct_io && direct_possible(dir),
        sync_us_p50: quantile(&syncs, 0.5),
        sync_us_p99: quantile(&syncs, 0.99),
        atomic_write_bytes: atomic_write_bytes(dir),
    })
}

fn probe_syncs(dir: &Path) -> Result<Vec<f64>, BenchError> {
    let env = RealEnv::new(dir);
    let file = env.open(PROBE_FILE, OpenMode::READ_WRITE.direct())?;
    let block = AlignedBuf::new(IO_ALIGN);
    for i in 0..PROBE_SYNCS {
        file.write_at(&block, (i * IO_ALIGN) as u64)?;
    }
    file.sync()?;
    let start = Instant::now();
    let mut times = Vec::new();
    for i in 0..PROBE_SYNCS {
        let one = Instant::now();
        file.write_at(&block, (i * IO_ALIGN) as u64)?;
        file.sync()?;
        times.push(one.elapsed().as_nanos() as f64 / 1000.0);
        if start.elapsed() > PROBE_TIME {
            break;
        }
    }
    drop(file);
    env.remove(PROBE_FILE)?;
    Ok(times)
}

fn direct_possible(dir: &Path) -> bool {
    let path = dir.join(PROBE_FILE);
    // O_DIRECT.
    let flag = if cfg!(target_arch = "aarch64") { 0o200_000 } else { 0o40_000 };
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(true).write(true).custom_flags(flag);
    let possible = options.open(&path).is_ok();
    let _ = fs::remove_file(&path);
    possible
}

fn filesystem(dir: &Path) -> String {
    let Ok(dir) = dir.canonicalize() else { return String::new() };
    let mut best = (0, String::new());
    for line in read("/proc/mounts").lines() {
        let mut words = line.split(' ').skip(1);
        if let (Some(point), Some(kind)) = (words.next(), words.next())
            && dir.starts_with(point)
            && point.len() >= best.0
        {
            best = (point.len(), kind.to_string());
        }
    }
    best.1
}

fn atomic_write_bytes(dir: &Path) -> u64 {
    let Ok(metadata) = fs::metadata(dir) else { return 0 };
    let dev = metadata.dev();
    let (major, minor) = ((dev >> 8) & 0xfff, (dev & 0xff) | ((dev >> 12) & 0xfff00));
    let base = format!("/sys/dev/block/{major}:{minor}");
    let name = "queue/atomic_write_unit_max_bytes";
    [format!("{base}/{name}"), format!("{base}/../{name}")]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
        .unwrap_or(0)
}

/// The use of resources up to now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Bytes read from storage.
    pub read_bytes: u64,
    /// Bytes written to storage.
    pub written_bytes: u64,
    /// CPU time in microseconds.
    pub cpu_us: f64,
}

/// A server's process and directory, if they are on this machine and readable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Its process; it may have child processes.
    pub pid: Option<u32>,
    /// The directory of its data.
    pub dir: Option<PathBuf>,
}

impl Server {
    /// Creates the server from its directory and the process named in the first line of a file.
    pub fn new(dir: &str, pid_file: &Path) -> Server {
        let text = fs::read_to_string(pid_file).unwrap_or_default();
        let pid = text.lines().next().and_then(|line| line.trim().parse().ok());
        let dir = Some(PathBuf::from(dir)).filter(|dir| fs::read_dir(dir).is_ok());
        Server { pid, dir }
    }
}

/// Measures the resources that the store has used: this process, or a server and its children. The
/// use of a child that has ended is counted with its parent.
#[derive(Clone, Debug)]
pub struct Meter {
    /// `None`: this process.
    server: Option<Server>,
    dir: PathBuf,
}

impl Meter {
    /// Creates the meter of a store in a directory, or of its server.
    pub fn new(server: Option<Server>, dir: &Path) -> Meter {
        let dir = match &server {
            Some(server) => server.dir.clone().unwrap_or_default(),
            None => dir.to_path_buf(),
        };
        Meter { server, dir }
    }

    /// Directories of the processes in `/proc`; none for a server on another machine.
    fn processes(&self) -> Vec<String> {
        let Some(server) = &self.server else { return vec!["/proc/self".to_string()] };
        let Some(pid) = server.pid else { return Vec::new() };
        let root = format!("/proc/{pid}");
        let children = read(&format!("{root}/task/{pid}/children"));
        let children = children.split_whitespace().map(|child| format!("/proc/{child}"));
        std::iter::once(root.clone()).chain(children).collect()
    }

    /// The use up to now.
    pub fn usage(&self) -> Usage {
        self.processes().iter().fold(Usage::default(), |sum, process| {
            let io = read(&format!("{process}/io"));
            Usage {
                read_bytes: sum.read_bytes + field(&io, "read_bytes:"),
                written_bytes: sum.written_bytes + field(&io, "write_bytes:"),
                cpu_us: sum.cpu_us + cpu_us(&read(&format!("{process}/stat"))),
            }
        })
    }

    /// Peak resident memory in bytes (VmHWM; of a server's processes the sum, with shared pages).
    pub fn peak_memory_bytes(&self) -> u64 {
        let peak = |process: &String| field(&read(&format!("{process}/status")), "VmHWM:") * 1024;
        self.processes().iter().map(peak).sum()
    }

    /// Allocated bytes of the store's directory.
    pub fn space_bytes(&self) -> u64 {
        space_bytes(&self.dir)
    }
}

fn cpu_us(stat: &str) -> f64 {
    // The command name may hold spaces; it ends with the last bracket. The fields utime and stime
    // follow, then those of children that have ended.
    let rest = stat.rsplit(')').next().unwrap_or("");
    let ticks: f64 =
        rest.split_whitespace().skip(11).take(4).filter_map(|n| n.parse::<f64>().ok()).sum();
    ticks * 1e6 / TICKS_PER_SECOND
}

/// CPU time of the whole machine up to now: (stolen by the host, all).
pub fn steal_ticks() -> (u64, u64) {
    steal(&read("/proc/stat"))
}

fn steal(stat: &str) -> (u64, u64) {
    let line = stat.lines().next().unwrap_or("");
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
    (ticks.get(7).copied().unwrap_or(0), ticks.iter().sum())
}

/// Allocated bytes below a directory.
pub fn space_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(m) if m.is_dir() => space_bytes(&entry.path()),
            Ok(m) => m.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_fields_of_proc_files() {
        assert_eq!(field("a: 1\nVmHWM:\t  12 kB\n", "VmHWM:"), 12);
        assert_eq!(field("a: 1", "b:"), 0);
        assert_eq!(steal("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1"), (8, 36));
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 30 20 0";
        assert_eq!(cpu_us(stat), 2.5e6);
    }

    #[test]
    fn measures_this_process_and_its_directory() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let machine = describe(dir.path(), true).expect("writable");
        assert!(machine.cores > 0 && machine.memory_bytes > 0 && machine.sync_us_p50 > 0.0);
        assert!(machine.sync_us_p99 >= machine.sync_us_p50 && !machine.filesystem.is_empty());
        assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 0);
        fs::write(dir.path().join("x"), vec![1u8; 100_000]).expect("writable");
        fs::File::open(dir.path().join("x")).expect("there").sync_all().expect("synced");
        assert!(space_bytes(dir.path()) >= 100_000);
        let meter = Meter::new(None, dir.path());
        assert!(meter.space_bytes() >= 100_000 && meter.peak_memory_bytes() > 1 << 20);
        let used = meter.usage();
        let itself = Server { pid: Some(std::process::id()), dir: None };
        let same = Meter::new(Some(itself), dir.path());
        assert!(same.usage().cpu_us >= used.cpu_us && same.peak_memory_bytes() > 1 << 20);
        let elsewhere = Meter::new(Some(Server::default()), dir.path());
        assert_eq!((elsewhere.space_bytes(), elsewhere.processes().len()), (0, 0));
    }
}
