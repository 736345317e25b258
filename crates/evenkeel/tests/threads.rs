//! The threads of an open database in the system's list; this test runs alone in its process.

#![cfg(target_os = "linux")]

use evenkeel::{ColumnSpec, ColumnType, Database, Geometry, IndexSpec, Options, TableSpec};
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
    let geometry = Geometry { generation_bytes: Some(64 << 10), ..Geometry::default() };
    let db = Database::open_with(dir.path(), Options::new().geometry(geometry)).expect("opens");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Int64));
    let spec = spec.primary_key(&["id"]).index(IndexSpec::new("by_value", &["value"]));
    db.create_table("t", &spec).expect("creates");
    let own = nice().into_values().min().expect("this thread");
    let hangs = Instant::now() + Duration::from_secs(60);
    // Compactions begin when generations have been flushed; idle threads are not there.
    for id in 0i64.. {
        db.transact(|txn| txn.table("t")?.insert((id, -id)).map(drop)).expect("inserts");
        let all = nice();
        let of_engine = all.iter().filter(|(name, _)| name.starts_with("ek-"));
        // A thread without work may be of either priority.
        let of_engine = of_engine.filter(|(name, _)| !name.starts_with("ek-worker"));
        let (low, usual): (Vec<_>, Vec<_>) =
            of_engine.partition(|(name, _)| name.starts_with("ek-compact-low"));
        assert!(usual.iter().all(|(_, nice)| **nice == own), "{usual:?}");
        let compacts = usual.iter().any(|(name, _)| name.starts_with("ek-compact"));
        let are_behind = low.iter().all(|(_, nice)| **nice == (own + 10).min(19));
        assert!(are_behind, "{low:?}");
        if compacts && !low.is_empty() {
            break;
        }
        assert!(Instant::now() < hangs, "{low:?} {usual:?}");
    }
    db.close().expect("closes");
    let left: Vec<_> = nice().into_keys().filter(|name| name.starts_with("ek-")).collect();
    assert!(left.is_empty(), "{left:?}");
}
