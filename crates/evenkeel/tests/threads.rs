//! The threads of an open database in the system's list; this test runs alone in its process.

#![cfg(target_os = "linux")]

use evenkeel::Database;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The nice value of each thread by its name, relative to others.
fn nice() -> BTreeMap<String, i64> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("lists");
    let of = |stat: String| {
        let (head, fields) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_string();
        Some((name, fields.split_whitespace().nth(16)?.parse().ok()?))
    };
    let stat = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).ok();
    tasks.flatten().filter_map(stat).filter_map(of).collect()
}

/// RFC 0023. The twins get work only at low priority: their first step is to lower it.
#[test]
fn compaction_threads_have_low_priority_twins() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let db = Database::open(dir.path()).expect("opens");
    let own = nice().into_values().min().expect("this thread");
    let hangs = Instant::now() + Duration::from_secs(60);
    // Each thread sets its name when it first runs: until then fewer are found.
    loop {
        let all = nice();
        let of_engine = all.iter().filter(|(name, _)| name.starts_with("ek-"));
        let (low, usual): (Vec<_>, Vec<_>) =
            of_engine.partition(|(name, _)| name.starts_with("ek-compact-low"));
        let compaction = usual.iter().filter(|(name, _)| name.starts_with("ek-compact")).count();
        let are_behind = low.iter().all(|(_, nice)| **nice == (own + 10).min(19));
        assert!(usual.iter().all(|(_, nice)| **nice == own), "{usual:?}");
        if compaction > 0 && low.len() == compaction && are_behind {
            break;
        }
        assert!(Instant::now() < hangs, "{low:?} {usual:?}");
        std::thread::yield_now();
    }
    db.close().expect("closes");
    let left: Vec<_> = nice().into_keys().filter(|name| name.starts_with("ek-")).collect();
    assert!(left.is_empty(), "{left:?}");
}
