//! The real environment, in a temporary directory.
use crate::errno::{self, OsCall};
use crate::real::os_error;
use crate::{ABOVE_ROOT, AlignedBuf, Env, OpenMode, RealEnv, probe};
use evenkeel_base::Code;
use evenkeel_base::sync::Mutex;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

fn env() -> (tempfile::TempDir, RealEnv) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let env = RealEnv::new(dir.path().join("db"));
    env.create_dir("").expect("create");
    (dir, env)
}

/// Keeps warnings, so that a test can count those about its own directory.
struct Warnings(Mutex<Vec<String>>);

static WARNINGS: Warnings = Warnings(Mutex::new(Vec::new()));

impl log::Log for Warnings {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().push(record.args().to_string());
    }
    fn flush(&self) {}
}

fn code<T>(result: evenkeel_base::Result<T>) -> Option<Code> {
    result.err().map(|e| e.code())
}

#[test]
fn names_and_permissions() {
    let (_dir, env) = env();
    env.create_dir("wal/deep").expect("create");
    env.create_dir("wal").expect("again");
    env.open("wal/b", OpenMode::READ_WRITE).expect("open");
    env.open("wal/a", OpenMode::READ_WRITE).expect("open");
    assert_eq!(env.list("wal").expect("list"), ["a", "b", "deep"]);
    assert!(env.list("none").expect("list").is_empty());
    env.rename("wal/a", "wal/b").expect("rename");
    env.sync_dir("wal").expect("sync");
    assert_eq!(env.list("wal").expect("list"), ["b", "deep"]);
    let mode = |path| std::fs::metadata(env.root().join(path)).expect("stat").mode() & 0o777;
    assert_eq!(mode(""), 0o700);
    assert_eq!(mode("wal"), 0o700);
    assert_eq!(mode("wal/b") & !0o640, 0);
    env.remove("wal/b").expect("remove");
    env.remove("wal/b").expect("gone already");
    assert_eq!(code(env.rename("wal/b", "wal/c")), Some(Code::FileMissing));
    assert_eq!(code(env.open("wal/b", OpenMode::READ)), Some(Code::FileMissing));
    assert_eq!(code(env.sync_dir("none")), Some(Code::FileMissing));
}

#[test]
fn a_directory_open_to_everybody_and_links_are_refused() {
    let (dir, env) = env();
    std::fs::set_permissions(env.root(), std::fs::Permissions::from_mode(0o777)).expect("chmod");
    assert_eq!(code(env.create_dir("")), Some(Code::DirectoryUnsafe));
    std::os::unix::fs::symlink(dir.path().join("x"), env.root().join("link")).expect("link");
    assert_eq!(code(env.open("link", OpenMode::READ_WRITE)), Some(Code::FileOpen));
    assert!(!dir.path().join("x").exists());
}

#[test]
fn system_errors_become_error_codes() {
    for (name, number, _) in errno::TABLE {
        for call in OsCall::ALL {
            let said = std::io::Error::from_raw_os_error(*number);
            let text = said.to_string();
            let error = os_error(call, Path::new("pages/1"), said);
            assert_eq!(error.code(), errno::code(call, *number), "{name} {call:?}");
            let told = (error.context("file"), error.context("os"));
            assert_eq!(told, (Some("pages/1"), Some(&*text)));
        }
    }
}

#[test]
fn a_second_opener_gets_the_pid_of_the_lock_holder() {
    let (_dir, env) = env();
    let mode = OpenMode { lock: true, ..OpenMode::READ_WRITE };
    let held = env.open("evenkeel.lock", mode).expect("open");
    let error = env.open("evenkeel.lock", mode).err().expect("busy");
    assert_eq!(error.code(), Code::DirectoryBusy);
    assert_eq!(error.context("pid"), Some(std::process::id().to_string().as_str()));
    drop(held);
    env.open("evenkeel.lock", mode).expect("free again");
}

#[test]
fn direct_io_falls_back_when_it_does_not_fit() {
    if log::set_logger(&WARNINGS).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
    let (_dir, env) = env();
    let file = env.open("a", OpenMode::READ_WRITE.direct()).expect("open");
    let other = env.open("b", OpenMode::READ_WRITE.direct()).expect("open");
    let mut buf = AlignedBuf::new(8192);
    buf.fill(7);
    file.write_at(&buf, 4096).expect("write");
    file.sync().expect("sync");
    let mut got = AlignedBuf::new(4096);
    file.read_at(&mut got, 8192).expect("read");
    assert!(got.iter().all(|b| *b == 7));
    assert_eq!(code(file.read_at(&mut buf, 8192)), Some(Code::ReadShort), "4 KiB are there");
    let strict = probe(env.root()).expect("probe").filesystem == "ext4";
    let warnings = || {
        let ours = env.root().display().to_string();
        WARNINGS.0.lock().iter().filter(|w| w.contains(&ours)).count()
    };
    // A write of less than a block is refused where the device takes whole blocks only, without a
    // warning about direct I/O: a log that asked for small writes learns it from the error.
    let odd = file.write_at(b"odd", 12_289);
    assert!(!strict || code(odd) == Some(Code::WriteFailed));
    let mut few = [0; 3];
    assert!(!strict || code(file.read_at(&mut few, 4096)) == Some(Code::ReadFailed));
    assert_eq!(warnings(), 0);
    // Unaligned memory: the first transfer gives EINVAL and continues buffered. Two at once.
    buf.fill(8);
    let odd = &buf[1..4097];
    let write = || file.write_at(odd, 12_288).expect("write");
    std::thread::scope(|s| {
        s.spawn(write);
        s.spawn(write);
    });
    file.read_at(&mut few, 12_289).expect("read");
    assert_eq!(few, [8; 3]);
    file.read_at(&mut buf, 4096).expect("the rest is unharmed");
    assert!(buf.iter().all(|b| *b == 7));
    other.write_at(&buf[1..4097], 0).expect("write");
    let warnings = warnings();
    // File systems that take any alignment never refuse.
    assert!(warnings <= 1 && (warnings == 1 || !strict), "{warnings} warnings");
}

#[test]
fn allocate_and_punch() {
    let (_dir, env) = env();
    let file = env.open("a", OpenMode::READ_WRITE).expect("open");
    file.allocate(0, 1 << 20).expect("allocate");
    assert_eq!(file.len().expect("len"), 1 << 20);
    let blocks = || std::fs::metadata(env.root().join("a")).expect("stat").blocks();
    assert!(blocks() >= 2048, "{}", blocks());
    file.write_at(&[3; 8192], 0).expect("write");
    match file.punch(0, 4096) {
        Ok(()) => {}
        // File systems without holes report it.
        Err(e) => return assert_eq!(e.code(), Code::WriteFailed),
    }
    let mut got = [1; 8192];
    file.read_at(&mut got, 0).expect("read");
    assert!(got[..4096].iter().all(|b| *b == 0) && got[4096..].iter().all(|b| *b == 3));
    file.punch(4096, (1 << 20) - 4096).expect("punch");
    assert!(blocks() < 2048, "{}", blocks());
    assert_eq!(file.len().expect("len"), 1 << 20);
    file.set_len(10).expect("cut");
    assert_eq!(code(file.read_at(&mut got[..11], 0)), Some(Code::ReadShort));
}

#[test]
fn a_reader_cannot_write() {
    let (_dir, env) = env();
    env.open("a", OpenMode::READ_WRITE).expect("open");
    let reader = env.open("a", OpenMode::READ).expect("open");
    assert_eq!(code(reader.write_at(b"x", 0)), Some(Code::WriteFailed));
    let exclusive = OpenMode { exclusive: true, ..OpenMode::READ_WRITE };
    assert_eq!(code(env.open("a", exclusive)), Some(Code::FileOpen));
}

/// A test cannot fill a disk without privileges; `/dev/full` answers every write with ENOSPC, which
/// has the same effect.
#[test]
fn a_full_disk_is_named() {
    let env = RealEnv::new("/dev");
    let full = env.open("full", OpenMode { create: false, ..OpenMode::READ_WRITE });
    let full = full.expect("Linux has /dev/full");
    let error = full.write_at(b"x", 0).expect_err("full");
    assert_eq!(error.code(), Code::DiskFull);
    assert!(error.to_string().contains("/dev/full"), "{error}");
}

/// The effect of a sync is visible only after a crash. A refused sync shows that the system was
/// called. A character device has nothing to sync, nor has a directory of `/proc`.
#[test]
fn a_sync_calls_the_system() {
    let mode = OpenMode { create: false, ..OpenMode::READ_WRITE };
    let null = RealEnv::new("/dev").open("null", mode).expect("opens");
    assert_eq!(code(null.sync()), Some(Code::SyncFailed));
    assert_eq!(code(RealEnv::new("/proc").sync_dir("self")), Some(Code::SyncFailed));
    assert_eq!(code(RealEnv::new("/proc/self").sync_dir(ABOVE_ROOT)), Some(Code::SyncFailed));
}

/// Set in the process that `a_short_write_is_continued_and_reports_its_error` starts.
const SHORT: &str = "EVENKEEL_TEST_SHORT_WRITE";

/// A limit on file sizes cuts a write short and refuses the next one. The limit concerns the whole
/// process, so a child process sets it.
#[test]
fn a_short_write_is_continued_and_reports_its_error() {
    if std::env::var_os(SHORT).is_none() {
        let test = std::env::current_exe().expect("a test");
        let mut child = std::process::Command::new(test);
        let name = "real_tests::a_short_write_is_continued_and_reports_its_error";
        let done = child.args(["--exact", name]).env(SHORT, "1").output().expect("runs");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        return assert!(done.status.success() && said.contains("1 passed"), "{said}");
    }
    let (_dir, env) = env();
    let file = env.open("a", OpenMode::READ_WRITE).expect("opens");
    limit_file_size(10_000);
    let refused = file.write_at(&[7; 16_384], 0);
    limit_file_size(libc::RLIM_INFINITY);
    assert_eq!(code(refused), Some(Code::DiskFull), "and not taken for whole");
    assert_eq!(file.len().expect("a length"), 10_000, "a part of it was written");
    file.write_at(&[7; 16_384], 0).expect("goes on");
}

#[allow(unsafe_code)]
fn limit_file_size(most: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: plain system calls; the structure is ours.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}

/// No more files can be opened: open files continue to work, their directory is still made durable,
/// and the error code allows a retry.
#[test]
fn directories_are_synced_when_no_file_can_be_opened() {
    const OWN: &str = "EVENKEEL_TEST_NO_FILES";
    if std::env::var_os(OWN).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().expect("a test"));
        let name = "real_tests::directories_are_synced_when_no_file_can_be_opened";
        let done = child.args(["--exact", name]).env(OWN, "1").output().expect("runs");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        return assert!(done.status.success() && said.contains("1 passed"), "{said}");
    }
    let (_dir, env) = env();
    env.create_dir("wal").expect("makes");
    let file = env.open("wal/1", OpenMode::READ_WRITE).expect("opens");
    let mut held = Vec::new();
    let error = loop {
        match env.open("wal/1", OpenMode::READ) {
            Ok(another) => held.push(another),
            Err(error) => break error,
        }
        assert!(held.len() < 1 << 21, "a limit of open files is needed here");
    };
    assert_eq!(error.code(), Code::SystemLimit, "{error}");
    assert_eq!(code(env.open("wal/2", OpenMode::READ_WRITE)), Some(Code::SystemLimit));
    env.rename("wal/1", "wal/3").expect("renames");
    env.create_dir("wal").expect("is there");
    env.sync_dir("wal").expect("syncs");
    file.write_at(b"x", 0).and_then(|()| file.sync()).expect("goes on");
}

#[test]
fn a_probe_measures_the_device() {
    let (_dir, env) = env();
    let found = probe(env.root()).expect("probe");
    eprintln!("{found:?}");
    assert!(!found.filesystem.is_empty() && found.sync_us_p50 <= found.sync_us_p99);
    assert!(env.list("").expect("list").is_empty(), "nothing is left behind");
}

#[test]
fn random_numbers_differ() {
    let (_dir, env) = env();
    let (_dir, other) = (tempfile::tempdir(), RealEnv::new("/"));
    let numbers = [env.random(), env.random(), other.random()];
    assert!(numbers[0] != numbers[1] && numbers[0] != numbers[2]);
}

/// The available memory is read, and is at most that of the machine.
#[test]
#[cfg(target_os = "linux")]
fn available_memory_is_a_part_of_the_machines() {
    let machine = crate::real::memory_bytes().expect("Linux tells");
    let available = crate::real::memory_available_bytes().expect("Linux tells");
    assert!((1 << 20..=machine).contains(&available), "{available} of {machine}");
}
