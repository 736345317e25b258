//! What empty and idle databases cost: threads and memory of the process, from the system's lists.
//! The tests take turns, because they count for the whole process.

#![cfg(target_os = "linux")]

use evenkeel::{ColumnSpec, ColumnType, Database, Options, TableSpec};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

static TURN: Mutex<()> = Mutex::new(());

const KIB: i64 = 1 << 10;

/// The first database of the process was opened and closed: what the process has for good is there.
fn turn() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    drop(open(&directory(), 0));
    assert_eq!(threads(), Vec::<String>::new());
    turn
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("temporary directory")
}

fn open(dir: &TempDir, memory_size: u64) -> Database {
    Database::open_with(dir.path(), Options { memory_size, ..Options::new() }).expect("opens")
}

/// Names of the engine's threads.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("lists").flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    let names = tasks.filter_map(name).map(|name| name.trim().to_string());
    names.filter(|name| name.starts_with("ek-")).collect()
}

/// Waits until the databases need no thread but the dispatcher: they have written their pages and
/// their checkpoint.
fn wait_for_rest() {
    let hangs = Instant::now() + Duration::from_secs(120);
    while threads() != ["ek-dispatch"] {
        assert!(Instant::now() < hangs, "{:?}", threads());
        std::thread::yield_now();
    }
}

/// KiB of memory of the process that is not a file's.
fn memory_kib() -> i64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("reads");
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Memory of so many empty databases, KiB for each.
fn memory_of(count: usize, memory_size: u64) -> i64 {
    let dirs: Vec<TempDir> = (0..count).map(|_| directory()).collect();
    let before = memory_kib();
    let all: Vec<Database> = dirs.iter().map(|dir| open(dir, memory_size)).collect();
    wait_for_rest();
    let memory = (memory_kib() - before) / count as i64;
    println!("{count} of memory_size {memory_size}: {memory} KiB each");
    drop(all);
    assert_eq!(threads(), Vec::<String>::new(), "the last close ends the threads");
    memory
}

#[test]
fn empty_databases_share_one_thread_and_take_little_memory() {
    let _turn = turn();
    let each = [memory_of(1, 0), memory_of(20, 0), memory_of(1, 1 << 30)];
    // The first one also pays for the heaps of the threads.
    assert!(each[0] <= 6 * KIB && each[1] <= 3 * KIB && each[2] <= 4 * KIB, "{each:?} KiB");
}

#[test]
fn a_close_leaves_the_threads_to_the_other_databases() {
    let _turn = turn();
    let dirs = [directory(), directory()];
    let [one, other] = [open(&dirs[0], 0), open(&dirs[1], 0)];
    wait_for_rest();
    one.close().expect("closes");
    assert!(threads().contains(&"ek-dispatch".to_string()), "{:?}", threads());
    let spec = TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64));
    other.create_table("t", &spec.primary_key(&["id"])).expect("creates");
    for id in 0..100i64 {
        other.transact(|txn| txn.table("t")?.insert(id).map(drop)).expect("inserts");
    }
    wait_for_rest();
    assert_eq!(other.check().expect("checks").rows, 100);
    other.close().expect("closes");
    assert_eq!(threads(), Vec::<String>::new());
    let again = open(&dirs[1], 0);
    assert!(again.recovery().clean, "the idle database had taken its checkpoint");
    assert_eq!(again.check().expect("checks").rows, 100);
}
