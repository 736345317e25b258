//! Compares the formulas with the engine at small sizes, and with its compaction picker at large
//! ones.

use crate::scale::{
    FENCE_BYTES, FILTER_BYTES, Restart, RowBytes, debt, memory, passes, restart_sec, runs,
    written_per_row,
};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Direction, Geometry, IndexSpec, Isolation, Metric,
    Options, Range, Row, TableSpec, Value, ValueRef,
};
use evenkeel_io::sim::SimOptions;
use evenkeel_io::{OpenMode, Rng, SimDisk, SimEnv};
use evenkeel_sched::laws::compaction::{self, FREES_NOTHING};
use evenkeel_sched::laws::depths::RUNS_TRIGGER;

/// Flushes of one unit each into an index, with compactions done at once. Returns how often each
/// byte was written while the index grew from `from` to `to` units, the most runs, and the largest
/// compaction as a share of the index at that time.
fn policy(from: u64, to: u64) -> (f64, usize, f64) {
    let (mut sizes, mut written, mut most) = (vec![from * 1000], 0u64, 0);
    let mut largest = 0f64;
    for _ in from..to {
        sizes.insert(0, 1000);
        written += 1000;
        loop {
            let runs = sizes.iter().map(|size| size * 8);
            let numbers: Vec<u64> = [0, FREES_NOTHING].into_iter().chain(runs).collect();
            let chosen = compaction::decide(&numbers).expect("inputs");
            let [first, end, _] = chosen[..] else { break };
            let range = first as usize..end as usize;
            let sum = sizes[range.clone()].iter().sum();
            written += sum;
            largest = largest.max(sum as f64 / sizes.iter().sum::<u64>() as f64);
            sizes.splice(range, [sum]);
        }
        most = most.max(sizes.len());
    }
    (written as f64 / ((to - from) as f64 * 1000.0), most, largest)
}

#[test]
fn formula_passes_and_runs_equal_the_pickers() {
    for ratio in [4u64, 16, 64, 256, 1024, 4096] {
        // Over one growth of the index by 3/2 to 9/4: compactions into the bottom at both ends.
        let (measured, most, _) = policy(ratio, ratio * 9 / 4 + 1);
        let formula = passes(ratio as f64 * 1.5);
        let is_near = (measured / formula - 1.0).abs() < 0.15;
        assert!(is_near, "{ratio}: {measured} passes, formula {formula}");
        let formula = runs(ratio as f64 * 1.5);
        assert!(most as f64 <= formula + 1.0, "{ratio}: {most} runs, formula {formula}");
        assert!(most < RUNS_TRIGGER, "{ratio}: {most} runs");
        // What a compaction reads and writes, of an index of one byte, over growths to four times
        // the size.
        let owed = 2.0 * policy(ratio, ratio * 4).2;
        println!("{ratio}: {owed} owed");
        assert!(owed > 0.825 * debt(1.0), "{ratio}: {owed} owed");
    }
}

#[test]
fn the_formula_of_a_row_equals_the_bytes_written() {
    const ROWS: i64 = 60_000;
    let geometry = Geometry { generation_bytes: Some(256 << 10), ..Geometry::default() };
    let db = Database::open_with("db", Options::in_memory().geometry(geometry)).expect("opens");
    let int = |name| ColumnSpec::new(name, ColumnType::Int64);
    let spec = TableSpec::new().column(int("id")).column(int("a")).column(int("b"));
    let spec = spec.column(int("c")).column(ColumnSpec::new("d", ColumnType::Text { max: 200 }));
    db.create_table("t", &spec.primary_key(&["id"])).expect("table");
    let indexes = ["a", "b", "c"].map(|name| IndexSpec::new(name, &[name]));
    db.add_indexes("t", &indexes).expect("indexes");
    let (mut rng, text) = (Rng::new(3), "x".repeat(60));
    let before = db.stats();
    for batch in 0..ROWS / 50 {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
        let table = txn.table("t").expect("there");
        for id in batch * 50..batch * 50 + 50 {
            let mut number = || ValueRef::Int(i64::from(rng.next_u64() as i32));
            let row = [ValueRef::Int(id), number(), number(), number(), ValueRef::Text(&text)];
            table.insert(&row).expect("inserts");
        }
        drop(table);
        txn.commit().expect("commits");
    }
    let after = db.stats();
    let per_row = |metric| (after.get(metric) - before.get(metric)) as f64 / ROWS as f64;
    let typical = RowBytes::TYPICAL;
    let log = per_row(Metric::LogBytes);
    assert!((log / typical.log - 1.0).abs() < 0.1, "log: {log} bytes per row");
    let flushes = (after.get(Metric::MemtableFlushes) - before.get(Metric::MemtableFlushes)) as f64;
    assert!(flushes > 20.0, "{flushes} flushes");
    let entry = per_row(Metric::RunFlushBytes) / typical.indexes;
    assert!((entry / typical.entry_disk - 1.0).abs() < 0.1, "an entry on disk: {entry} bytes");
    let memory = flushes * f64::from(256 << 10) / ROWS as f64 / typical.indexes;
    assert!(
        (memory / typical.entry_memory - 1.0).abs() < 0.3,
        "an entry in memory: {memory} bytes"
    );
    // Compactions run in the background: the bytes are at most those of the formula for the size
    // reached.
    let compacted = per_row(Metric::CompactionWriteBytes) / typical.indexes / entry;
    assert!(compacted + 1.0 <= passes(flushes) * 1.15, "{compacted} passes of {}", passes(flushes));
    let stats = db.table_stats().expect("stats");
    for index in &stats[0].indexes {
        assert!(index.runs as f64 <= runs(flushes) + 2.0, "{}: {} runs", index.name, index.runs);
    }
}

/// Bytes of fences and filters in the engine's memory, for an index of numbers and a unique one.
#[test]
fn the_formula_of_memory_equals_what_the_engine_holds() {
    const ROWS: i64 = 400_000;
    let db = Database::open_with("db", Options::in_memory()).expect("opens");
    let int = |name| ColumnSpec::new(name, ColumnType::Int64);
    let spec = TableSpec::new().column(int("id")).column(int("a")).column(int("b"));
    db.create_table("t", &spec.primary_key(&["id"])).expect("table");
    let mut rng = Rng::new(3);
    let mut number = || Value::Int(i64::from(rng.next_u64() as i32));
    db.load_table("t", (0..ROWS).map(|id| vec![Value::Int(id), number(), Value::Int(2 * id)]))
        .expect("loads");
    let unique = IndexSpec::new("b", &["b"]).unique();
    db.add_indexes("t", &[IndexSpec::new("a", &["a"]), unique]).expect("builds");
    // The test needs all of both: each entry is looked up, and keys that must not exist twice.
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    for id in ROWS..ROWS + 400 {
        let between = (id - ROWS) * ROWS / 200 + 1;
        let row = [id, 1, between].map(ValueRef::Int);
        txn.table("t").expect("there").insert(&row).expect("inserts");
    }
    for name in ["a", "b"] {
        let index = txn.table("t").expect("there").index(name).expect("index").keys_only();
        let mut scan = index.scan(Range::ALL, Direction::Forward).expect("scan");
        let (mut row, mut found) = (Row::new(), 0);
        while scan.next(&mut row).expect("reads") {
            found += 1;
        }
        assert_eq!(found, ROWS + 400);
    }
    txn.commit().expect("commits");
    let stats = db.table_stats().expect("stats");
    let each = |at: usize| stats[0].indexes[at].resident_bytes as f64 / ROWS as f64;
    println!("{} and {} bytes for an entry", each(0), each(1));
    assert!((each(0) / FENCE_BYTES - 1.0).abs() < 0.15, "{} bytes of fences", each(0));
    let formula = FENCE_BYTES + FILTER_BYTES;
    assert!((each(1) / formula - 1.0).abs() < 0.05, "{} bytes with a filter", each(1));
    let large = memory(&RowBytes::TYPICAL, 7.1e9, 1e6);
    assert!((large.filter / 8.9e9 - 1.0).abs() < 0.01, "{large:?}");
}

#[test]
fn the_whole_equals_the_sum_of_its_parts() {
    let row = RowBytes { row: 100.0, log: 260.0, entry_disk: 20.0, ..RowBytes::TYPICAL };
    // One tier: 260 + 100 + 3 x 20 x (2.1 + 0.7).
    assert!((written_per_row(&row, 8.0) - 528.0).abs() < 1e-6);
    let of = Restart {
        log: 1e9,
        behind: 5e8,
        pages: 50_000.0,
        replayed_per_sec: 4e8,
        disk_bytes_per_sec: 1e9,
        disk_ios_per_sec: 1e4,
    };
    // The second pass waits for processors, then with a slower disk for the disk.
    assert!((restart_sec(&of) - 8.5).abs() < 0.01);
    assert!((restart_sec(&Restart { disk_bytes_per_sec: 1e8, ..of }) - 30.05).abs() < 0.01);
}

/// A database of 4 MiB of rows that was killed with this many random updates in its log.
fn killed(updates: i64) -> SimEnv {
    const ROWS: i64 = 20_000;
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = Database::open_with("db", Options::new().env(sim.env())).expect("creates");
    let text = ColumnSpec::new("text", ColumnType::Bytes { max: 200 });
    let spec = TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64)).column(text);
    db.create_table("t", &spec.primary_key(&["id"])).expect("table");
    let rows = (0..ROWS).map(|id| vec![Value::Int(id), Value::Bytes(vec![7; 200])]);
    db.load_table("t", rows).expect("loads");
    db.checkpoint().expect("checkpoint");
    let mut rng = Rng::new(3);
    for _ in 0..updates / 50 {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
        let table = txn.table("t").expect("there");
        for _ in 0..50 {
            let id = ValueRef::Int(rng.below(ROWS as u64) as i64);
            let text: [u8; 200] = std::array::from_fn(|_| rng.next_u64() as u8);
            assert!(table.update(&[id], &[(1, ValueRef::Bytes(&text))]).expect("updates"));
        }
        drop(table);
        txn.commit().expect("commits");
    }
    std::mem::forget(db);
    // The lock file of the killed process is removed.
    sim.env().remove("evenkeel.lock").expect("unlocks");
    sim
}

/// In virtual time computation takes no time, and the device has no limit of I/Os: pages are read
/// at its bandwidth.
#[test]
fn a_restart_takes_no_longer_than_the_formula_says() {
    for (updates, bytes_per_sec) in
        [(20_000, 20_000_000), (60_000, 20_000_000), (60_000, 100_000_000)]
    {
        let killed = killed(updates);
        let sim = SimEnv::on(killed.disk().clone(), SimOptions::quiet(2));
        sim.set_device(bytes_per_sec);
        let db = Database::open_with("db", Options::new().env(sim.env())).expect("recovers");
        let report = db.recovery();
        let env = killed.env();
        let segment = |name: &String| {
            let file = env.open(&format!("wal/{name}"), OpenMode::READ).expect("opens");
            file.len().expect("has a length")
        };
        let segments: u64 = env.list("wal").expect("lists").iter().map(segment).sum();
        assert!(report.rows >= updates as u64, "{report:?}: the log is gone, nothing is tested");
        let formula = restart_sec(&Restart {
            log: report.log_bytes as f64,
            behind: (segments - report.log_bytes) as f64,
            pages: report.page_reads as f64,
            replayed_per_sec: f64::INFINITY,
            disk_bytes_per_sec: bytes_per_sec as f64,
            disk_ios_per_sec: bytes_per_sec as f64 / 4096.0,
        });
        let took = report.ns as f64 / 1e9;
        println!("{updates} updates, {bytes_per_sec}: {took} s, formula {formula} s, {report:?}");
        assert!(
            took <= formula && took > 0.9 * formula,
            "{took} s, formula {formula} s: {report:?}"
        );
        drop(db);
        [&sim, &killed].into_iter().for_each(SimEnv::stop);
    }
}
