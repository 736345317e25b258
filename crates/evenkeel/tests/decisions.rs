//! Inputs and outputs of the background's laws are recorded on request, and the laws give the same
//! outputs again: all of them, in a database whose log and memtables are far smaller than its data.

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, Cause, ColumnSpec, ColumnType, Database, Direction, Geometry, IndexSpec, Isolation,
    Law, Metric, Options, Range, Row, TableSpec, Value,
};
use evenkeel_io::sim::SimOptions;
use evenkeel_io::{SimDisk, SimEnv};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn every_decision_is_recorded_and_repeats() {
    let geometry = Geometry {
        generation_bytes: Some(64 << 10),
        pool_bytes: Some(1 << 20),
        log_bytes: Some(1 << 20),
        ..Geometry::default()
    };
    let db = Database::open_with("decisions", Options::in_memory().geometry(geometry));
    let db = db.expect("opens");
    db.keep_decisions(true);
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 100 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_value", &["value"]))
        .index(IndexSpec::new("by_pad", &["pad", "value"]));
    db.create_table("t", &spec).expect("creates");
    let mut made = BTreeMap::<&str, usize>::new();
    for batch in 0..400i64 {
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        let table = txn.table("t").expect("table");
        for i in 0..100 {
            let id = batch * 100 + i;
            let row = [Int(id), Int(id * 7_919 % 100_003), Bytes(&[id as u8; 60])];
            table.insert(&row).expect("inserts");
        }
        txn.commit().expect("commits");
        for decision in db.take_decisions() {
            let (inputs, outputs) = decision.law.fields();
            assert!(decision.inputs.len() >= inputs.len(), "{decision:?}");
            assert_eq!(decision.outputs.len(), outputs.len(), "{decision:?}");
            let again = evenkeel::decide(decision.law, &decision.inputs);
            assert_eq!(again.as_ref(), Some(&decision.outputs), "{decision:?}");
            *made.entry(decision.law.name()).or_default() += 1;
        }
    }
    println!("{made:?}");
    for law in [Law::Compaction, Law::Handover, Law::LogSpace] {
        assert!(made.contains_key(law.name()), "{law:?}: {made:?}");
    }
}

/// A device in virtual time that is so slow that compactions fall behind ingest: all laws decide,
/// except the law of log space, which must not come near its trigger (the test above requires it),
/// and the law of unhurried flushes (below).
#[test]
fn a_slow_device_makes_every_law_decide() {
    const OTHERS: [Law; 2] = [Law::LogSpace, Law::FlushRest];
    let required = || Law::ALL.into_iter().filter(|law| !OTHERS.contains(law));
    let sim = SimEnv::on(SimDisk::new(3), SimOptions { latency: true, ..SimOptions::quiet(3) });
    let geometry = Geometry {
        generation_bytes: Some(64 << 10),
        pool_bytes: Some(4 << 20),
        log_bytes: Some(1 << 20),
        ..Geometry::default()
    };
    let options = Options::new().env(sim.env()).geometry(geometry);
    let db = Arc::new(Database::open_with("decisions", options).expect("opens"));
    let int = |name| ColumnSpec::new(name, ColumnType::Int64);
    let spec = TableSpec::new().column(int("id")).column(int("value")).primary_key(&["id"]);
    // Each flush makes a run of every index, and the runs are compacted one after the other.
    let index = |i| IndexSpec::new(&format!("by_value_{i}"), &["value"]);
    let spec = (0..12).map(index).fold(spec, TableSpec::index);
    db.create_table("t", &spec).expect("creates");
    let rows = (0..100_000i64).map(|id| (id, id * 7_919 % 100_003));
    db.load_table("t", rows).expect("loads");
    sim.set_device(4_000_000);
    db.keep_decisions(true);
    let (writer, laws) = (db.clone(), Arc::new(Mutex::new(BTreeSet::new())));
    let seen = laws.clone();
    sim.run(vec![Box::new(move || {
        for batch in 0..1_000i64 {
            let begun = writer.begin(Isolation::ReadCommitted, Access::ReadWrite);
            let txn = begun.expect("begins");
            let table = txn.table("t").expect("table");
            for i in 0..200 {
                let id = 100_000 + batch * 200 + i;
                table.insert(&[Int(id), Int(id * 7_919 % 100_003)]).expect("inserts");
            }
            txn.commit().expect("commits");
            for decision in writer.take_decisions() {
                let again = evenkeel::decide(decision.law, &decision.inputs);
                assert_eq!(again.as_ref(), Some(&decision.outputs), "{decision:?}");
                seen.lock().expect("whole").insert(decision.law);
            }
            if required().all(|law| seen.lock().expect("whole").contains(&law)) {
                return;
            }
        }
    })]);
    sim.set_device(0);
    let laws = laws.lock().expect("whole").clone();
    assert!(required().all(|law| laws.contains(&law)), "each of them: {laws:?}");
    Arc::into_inner(db).expect("the session has ended").close().expect("closes");
    sim.stop();
}

/// Memtables that fill slowly: their flushes rest.
#[test]
fn unhurried_flushes_record_their_rests() {
    let sim = SimEnv::on(SimDisk::new(3), SimOptions::quiet(3));
    let geometry = Geometry {
        generation_bytes: Some(1 << 20),
        pool_bytes: Some(4 << 20),
        log_bytes: Some(64 << 20),
        ..Geometry::default()
    };
    let options = Options::new().env(sim.env()).geometry(geometry);
    let db = Arc::new(Database::open_with("flushes", options).expect("opens"));
    let int = |name| ColumnSpec::new(name, ColumnType::Int64);
    let spec = TableSpec::new().column(int("id")).column(int("value")).primary_key(&["id"]);
    let spec = spec.index(IndexSpec::new("by_value", &["value"]));
    db.create_table("t", &spec).expect("creates");
    db.keep_decisions(true);
    let (writer, rests) = (db.clone(), Arc::new(Mutex::new(BTreeSet::new())));
    let (seen, rt) = (rests.clone(), sim.runtime());
    sim.run(vec![Box::new(move || {
        for batch in 0..500i64 {
            let begun = writer.begin(Isolation::ReadCommitted, Access::ReadWrite);
            let txn = begun.expect("begins");
            let table = txn.table("t").expect("table");
            for id in batch * 100..(batch + 1) * 100 {
                table.insert(&[Int(id), Int(id * 7_919 % 100_003)]).expect("inserts");
            }
            txn.commit().expect("commits");
            rt.delay(Duration::from_millis(20), Cause::Idle);
            for decision in writer.take_decisions() {
                let again = evenkeel::decide(decision.law, &decision.inputs);
                assert_eq!(again.as_ref(), Some(&decision.outputs), "{decision:?}");
                if decision.law == Law::FlushRest {
                    seen.lock().expect("whole").insert(decision.outputs[0]);
                }
            }
        }
    })]);
    let longest = rests.lock().expect("whole").last().copied();
    assert!(longest > Some(10_000_000), "{longest:?} ns");
    Arc::into_inner(db).expect("the session has ended").close().expect("closes");
    sim.stop();
}

/// The storage reads of an index build are background I/O as well, those of the pass that proves an
/// index unique included: the governor counts them. The table is read once for any number of
/// indexes (P10), and the run blocks that users have cached stay in the cache.
#[test]
fn reads_of_an_index_build_go_through_the_governor() {
    let geometry = Geometry { pool_bytes: Some(1 << 20), ..Geometry::default() };
    let db = Database::open_with("builds", Options::in_memory().geometry(geometry));
    let db = db.expect("opens");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 100 }))
        .primary_key(&["id"]);
    db.create_table("t", &spec).expect("creates");
    let row = |id: i64| vec![id.into(), (id * 7_919 % 100_003).into(), Value::Bytes(vec![7; 80])];
    db.load_table("t", (0..60_000).map(row)).expect("loads");
    let grown = |work: &dyn Fn()| {
        let before = db.stats();
        work();
        let after = db.stats();
        move |metric| after.get(metric) - before.get(metric)
    };
    // One pass over the table by a reader.
    let once = grown(&|| {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
        let table = txn.table("t").expect("table");
        let mut scan = table.scan(Range::ALL, Direction::Forward).expect("scans");
        let (mut row, mut rows) = (Row::new(), 0);
        while scan.next(&mut row).expect("reads") {
            rows += 1;
        }
        assert_eq!(rows, 60_000);
    })(Metric::PageReadBytes);
    let build = |specs: &[IndexSpec]| {
        let of = grown(&|| db.add_indexes("t", specs).expect("builds"));
        let read = of(Metric::PageReadBytes);
        let (written, again) = (of(Metric::BuildWriteBytes), of(Metric::BuildReadBytes));
        let asked = of(Metric::GovernorRequestedDdl);
        println!(
            "{once} in all: read {read}, written {written}, read again {again}, asked {asked}"
        );
        assert!(read > 5 << 20, "the table does not fit the pool");
        // So small a pool loses some pages that were read ahead when the build has to wait.
        assert!(read <= once * 5 / 4, "the table is read once: {read} of {once}");
        let all = written + read + again;
        assert!(asked >= written + again + read / 10 * 9, "{asked} for {all}");
        assert!(asked <= all * 3 / 2, "{asked} for {all}");
        assert_eq!(of(Metric::RunBlockReads), 0, "past the cache of run blocks");
        again
    };
    let plain = |name: &str, columns: &[&str]| IndexSpec::new(name, columns);
    assert_eq!(build(&[plain("by_value", &["value"])]), 0, "one run, and nothing to prove");
    let unique = plain("unique", &["value", "id"]).unique();
    let again = build(&[plain("by_pad", &["pad"]), plain("both", &["pad", "id"]), unique]);
    let indexes = db.table_stats().expect("figures").remove(0).indexes;
    let bytes = indexes.iter().find(|i| i.name == "unique").expect("there").run_bytes;
    assert!((bytes / 10 * 9..bytes * 5 / 4).contains(&again), "{again} read of {bytes}");
}

/// A pool size set by a test stays as it is, whenever the memory arbiter runs.
#[test]
fn a_pool_of_fixed_size_borrows_no_memory() {
    let sim = SimEnv::on(SimDisk::new(5), SimOptions::quiet(5));
    let geometry = Geometry { pool_bytes: Some(1 << 20), ..Geometry::default() };
    let options = Options::new().env(sim.env()).geometry(geometry);
    let db = Arc::new(Database::open_with("said", options).expect("opens"));
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 100 }))
        .primary_key(&["id"]);
    db.create_table("t", &spec).expect("creates");
    let row = |id: i64| vec![id.into(), Value::Bytes(vec![7; 80])];
    db.load_table("t", (0..30_000).map(row)).expect("loads");
    let (own, rt) = (db.clone(), sim.runtime());
    sim.run(vec![Box::new(move || {
        let txn = own.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
        let table = txn.table("t").expect("table");
        let mut scan = table.scan(Range::ALL, Direction::Forward).expect("scans");
        let mut row = Row::new();
        while scan.next(&mut row).expect("reads") {}
        drop(scan);
        let memory_size = own.setting("memory_size").expect("a setting");
        own.set("memory_size", memory_size).expect("wakes the actor");
        rt.delay(Duration::from_secs(1), Cause::Idle);
    })]);
    let stats = db.stats();
    let (read, moves) = (stats.get(Metric::PageReadBytes), stats.get(Metric::MemoryMoves));
    assert!(read > 2 << 20, "the table fits the pool: {read} bytes read");
    assert_eq!(moves, 0);
    Arc::into_inner(db).expect("the session has ended").close().expect("closes");
    sim.stop();
}
