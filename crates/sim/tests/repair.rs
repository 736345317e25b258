//! Repairs of damaged tables, alone and with a crash at each change of the disk. After a crash the
//! table is as before the repair or as after it, and the next repair completes it.

use evenkeel::{
    Access, BuildProgress, ColumnSpec, ColumnType, Database, Direction, IndexSpec, Isolation,
    Options, Range, RepairScope, Row, TableRepair, TableSpec, Value, ValueRef,
};
use evenkeel_format::node::Node;
use evenkeel_format::page;
use evenkeel_io::sim::{Explore, SimOptions};
use evenkeel_io::{SimDisk, SimEnv};
use evenkeel_sim::actor::{SMALL, open};
use std::collections::BTreeMap;

const PAGE: usize = 4096;
/// One row in this many has a long value.
const LONG_EVERY: i64 = 40;

type Rows = BTreeMap<i64, Vec<Value>>;

fn row(id: i64) -> Vec<Value> {
    let len = if id % LONG_EVERY == 7 { 9_000 } else { 300 };
    let text = format!("row {id} ").repeat(len / 8);
    vec![id.into(), (id % 13).into(), (id * 3).into(), Value::Text(text)]
}

/// A closed database with a table of these rows, of which some versions are deleted or replaced.
fn filled(rows: i64) -> (SimDisk, Rows) {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = open(&sim, SMALL).expect("opens");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64).auto_increment())
        .column(ColumnSpec::new("a", ColumnType::Int64))
        .column(ColumnSpec::new("u", ColumnType::Int64))
        .column(ColumnSpec::new("text", ColumnType::Text { max: 100_000 }))
        .primary_key(&["id"]);
    db.create_table("t", &spec).expect("creates");
    db.create_table("other", &spec).expect("creates");
    let mut all = Rows::new();
    for from in (1..=rows).step_by(10) {
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        for id in from..(from + 10).min(rows + 1) {
            let values = row(id);
            let given: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
            txn.table("t").expect("is there").insert(&given).expect("inserts");
            if id % 10 == 0 {
                txn.table("other").expect("is there").insert(&given).expect("inserts");
            }
            all.insert(id, values);
        }
        if from % 20 == 1 {
            txn.table("t").expect("is there").delete(&[ValueRef::Int(from)]).expect("deletes");
            all.remove(&from);
        }
        txn.commit().expect("commits");
    }
    // Built indexes have files.
    let indexes = [IndexSpec::new("by_a", &["a"]), IndexSpec::new("by_u", &["u"]).unique()];
    db.add_indexes("t", &indexes).expect("builds");
    db.close().expect("closes");
    let disk = sim.disk().crash(evenkeel_io::sim::CrashPolicy::KeepAll, 1);
    sim.stop();
    (disk, all)
}

fn read(db: &Database, table: &str) -> Rows {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let table = txn.table(table).expect("is there");
    let mut scan = table.scan(Range::ALL, Direction::Forward).expect("scans");
    let (mut row, mut rows) = (Row::new(), Rows::new());
    while scan.next(&mut row).expect("reads") {
        let values = row.values().expect("decodes");
        let Value::Int(id) = values[0] else { panic!("{values:?}") };
        rows.insert(id, values);
    }
    rows
}

fn repair(db: &Database, scope: RepairScope) -> evenkeel::Result<TableRepair> {
    db.repair_table("t", scope, &BuildProgress::default(), &|_| {})
}

fn pages_file(disk: &SimDisk) -> String {
    let mut paths = disk.paths().into_iter();
    paths.find(|path| path.ends_with("pages/000000.pg")).expect("is there")
}

/// Pages of the table's tree: (page, level), and those of long values, without a level.
fn pages_of(disk: &SimDisk) -> Vec<(u64, Option<u8>)> {
    let content = disk.content(&pages_file(disk)).expect("is there");
    let marked = |bytes: &[u8]| {
        let text = b"row ";
        bytes.windows(text.len()).any(|window| window == text)
    };
    // The table is the greater one of the two whose leaves hold such texts.
    let mut leaves: BTreeMap<u32, usize> = BTreeMap::new();
    let trees = content.chunks_exact(PAGE).map(|bytes| page::tree(bytes).0);
    let images = content.chunks_exact(PAGE).zip(trees);
    for (bytes, tree) in images.clone() {
        *leaves.entry(tree).or_default() += usize::from(marked(bytes));
    }
    let (tree, _) = leaves.iter().max_by_key(|(_, count)| **count).expect("a table");
    let mut pages = Vec::new();
    for (n, (bytes, of)) in (0u64..).zip(images) {
        if of != *tree {
            continue;
        }
        match Node::parse(&bytes[page::HEADER_BYTES..]) {
            Ok(node) => pages.push((n, Some(node.level()))),
            Err(_) if marked(bytes) => pages.push((n, None)),
            Err(_) => {}
        }
    }
    pages
}

fn damage(disk: &SimDisk, page: u64) {
    let at = page * PAGE as u64 + 200;
    assert!(disk.corrupt(&pages_file(disk), at, b"damage"), "page {page}");
}

fn on(disk: &SimDisk) -> SimEnv {
    let disk = disk.crash(evenkeel_io::sim::CrashPolicy::KeepAll, 1);
    SimEnv::on(disk, SimOptions::quiet(1))
}

/// Opens a database that is not to recover from its log.
fn opened(sim: &SimEnv) -> Database {
    let options = Options::new().env(sim.env()).geometry(SMALL);
    Database::open_with("db", options).expect("opens")
}

/// The table is sound, holds rows of `all` only, and numbers go on. Returns the rows.
fn sound(db: &Database, all: &Rows) -> Rows {
    let report = db.check_table("t").expect("checks");
    assert_eq!(report.problems, Vec::<String>::new());
    let rows = read(db, "t");
    for (id, row) in &rows {
        assert_eq!(Some(row), all.get(id), "row {id} is invented or changed");
    }
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    let new = [ValueRef::Null, ValueRef::Int(1), ValueRef::Int(-1), ValueRef::Text("new")];
    let number = txn.table("t").expect("is there").insert(&new).expect("inserts");
    assert!(number.is_some_and(|n| n > 400), "{number:?}");
    txn.rollback().expect("rolls back");
    rows
}

#[test]
fn a_repair_keeps_all_rows_of_pages_that_can_be_read() {
    let (disk, all) = filled(400);
    let pages = pages_of(&disk);
    let of_level = |level: Option<u8>| pages.iter().filter(move |p| p.1 == level).map(|p| p.0);
    assert!(of_level(Some(0)).count() > 20, "{pages:?}");
    let inner: Vec<u64> = of_level(Some(1)).collect();
    assert!(inner.len() > 1 || pages.iter().all(|p| p.1 <= Some(1)), "{pages:?}");
    let mut lost_ranges = 0;
    for &(page, level) in &pages {
        let sim = on(&disk);
        damage(sim.disk(), page);
        let db = opened(&sim);
        let checked = db.check_table("t").expect("checks");
        assert!(checked.rows_damaged, "page {page}: {:?}", checked.problems);
        let refused = repair(&db, RepairScope::Indexes).expect("reports");
        assert!(refused.rows_damaged && refused.rebuilt.is_empty(), "{refused:?}");
        let named = format!("page={page}");
        let names = |line: &String| line.contains(&named) && line.contains("pages/000000.pg");
        assert!(refused.problems.iter().any(names), "{:?}", refused.problems);

        let report = repair(&db, RepairScope::Rows).unwrap_or_else(|e| panic!("page {page}: {e}"));
        let rows = sound(&db, &all);
        assert_eq!(report.rows, rows.len() as u64);
        let entries: Vec<u64> = report.rebuilt.iter().map(|index| index.entries).collect();
        assert_eq!(entries, [report.rows; 2], "{report:?}");
        let lost = all.len() - rows.len();
        match level {
            // The leaves below are whole.
            Some(1..) => assert_eq!((lost, report.lost_ranges), (0, 0), "{report:?}"),
            Some(0) => assert!((1..=20).contains(&lost) && report.lost_ranges == 1, "{report:?}"),
            None => assert_eq!((lost, report.lost_ranges), (1, 1), "page {page}: {report:?}"),
        }
        // Rows are lost inside the reported range alone.
        let missing: Vec<i64> = all.keys().filter(|id| !rows.contains_key(id)).copied().collect();
        for range in &report.lost {
            lost_ranges += 1;
            let of = |text: &str| {
                let digits = text.rsplit("id = ").next().unwrap_or_default();
                digits.trim_end_matches(')').parse::<i64>().ok()
            };
            let from = of(&range.from).unwrap_or(i64::MIN);
            let below = match range.below.is_empty() {
                true => from + 1,
                false => of(&range.below).unwrap_or(i64::MAX),
            };
            assert!(missing.iter().all(|id| (from..below).contains(id)), "{range:?} {missing:?}");
            assert!(range.why.contains(&format!("page={page}")), "{range:?}");
        }
        assert_eq!(read(&db, "other").len(), 40, "others are as before");
        // The damaged page belongs to nobody any more, and all is durable.
        db.close().expect("closes");
        let db = opened(&sim);
        assert_eq!(sound(&db, &all), rows);
        assert_eq!(db.check().expect("checks").problems, Vec::<String>::new());
        let again = repair(&db, RepairScope::Rows).expect("has nothing to do");
        assert!(again.found.is_empty() && again.rebuilt.is_empty(), "{again:?}");
        drop(db);
        sim.stop();
    }
    assert!(lost_ranges > 20);
}

/// In a tree of three levels a damaged inner node hides the leaves below it. One of them is damaged
/// as well: only its rows are lost.
#[test]
fn a_repair_finds_the_leaves_below_damaged_inner_nodes() {
    let (disk, all) = filled(3_000);
    let pages = pages_of(&disk);
    let top = pages.iter().filter_map(|p| p.1).max().expect("levels");
    assert_eq!(top, 2, "{pages:?}");
    let leaves: Vec<u64> = pages.iter().filter(|p| p.1 == Some(0)).map(|p| p.0).collect();
    let inner: Vec<u64> = pages.iter().filter(|p| p.1 >= Some(1)).map(|p| p.0).collect();
    assert!(inner.len() >= 3, "{pages:?}");
    let mut all_inner: Vec<Vec<u64>> = inner.iter().map(|page| vec![*page]).collect();
    all_inner.push(inner.clone());
    for (n, damaged) in all_inner.iter().enumerate() {
        let sim = on(&disk);
        let leaf = leaves[leaves.len() / 2 + n];
        damaged.iter().for_each(|page| damage(sim.disk(), *page));
        damage(sim.disk(), leaf);
        let db = opened(&sim);
        let report = repair(&db, RepairScope::Rows).expect("repairs");
        let rows = sound(&db, &all);
        let lost: Vec<i64> = all.keys().filter(|id| !rows.contains_key(id)).copied().collect();
        assert!((1..=20).contains(&lost.len()), "{damaged:?} and {leaf}: {lost:?}");
        assert_eq!(report.lost_ranges, 1, "{report:?}");
        let between = |two: &[i64]| all.range(two[0] + 1..two[1]).count();
        let neighbours = lost.windows(2).all(|two| between(two) == 0);
        assert!(neighbours, "{lost:?}");
        drop(db);
        sim.stop();
    }
}

#[test]
fn a_repair_builds_damaged_indexes_anew() {
    let (disk, all) = filled(400);
    let runs: Vec<String> = disk.paths().into_iter().filter(|p| p.contains("runs/")).collect();
    assert!(!runs.is_empty());
    let (mut tried, mut repaired) = (0, 0);
    for path in &runs {
        let len = disk.content(path).expect("is there").len() as u64;
        for at in (0..len).step_by(PAGE / 2) {
            let sim = on(&disk);
            if !sim.disk().corrupt(path, at, b"damage") {
                continue;
            }
            tried += 1;
            let db = opened(&sim);
            let damaged = db.check_table("t").expect("checks").indexes_damaged;
            for scope in [RepairScope::Indexes, RepairScope::Rows] {
                let report = repair(&db, scope).expect("repairs");
                if scope == RepairScope::Indexes {
                    let names: Vec<_> = report.rebuilt.iter().map(|i| i.index.clone()).collect();
                    assert_eq!(names, damaged);
                    assert!(report.rebuilt.iter().all(|i| i.entries == all.len() as u64));
                    repaired += names.len();
                } else {
                    assert!(report.rebuilt.is_empty(), "{report:?}");
                }
                assert_eq!(sound(&db, &all), all);
            }
            drop(db);
            sim.stop();
        }
    }
    assert!(tried > 3 && repaired > 2, "{tried} {repaired}");
}

/// Repairs with a crash at each change, then checks what the crash left.
fn crash(disk: &SimDisk, scope: RepairScope, stride: u64, check: impl Fn(&Database, TableRepair)) {
    let mut points = 0;
    for n in 0..stride {
        let explored = Explore::nth(n, stride).run(
            disk,
            |sim, _: &std::sync::Arc<()>| {
                let run = || {
                    let db = open(sim, SMALL)?;
                    repair(&db, scope)?;
                    db.close()
                };
                match run() {
                    Err(error) if !sim.is_crashed() => panic!("{error}"),
                    _ => {}
                }
            },
            |sim, (), which| {
                let db = open(sim, SMALL).unwrap_or_else(|e| panic!("{which}: {e}"));
                let report = repair(&db, scope).unwrap_or_else(|e| panic!("{which}: {e}"));
                assert!(report.problems.is_empty(), "{which}: {report:?}");
                assert_eq!(db.definition("t").expect("is there").indexes.len(), 2, "{which}");
                check(&db, report);
            },
        );
        points += explored.points;
    }
    println!("{points} points");
    assert!(points > 20, "{points}");
}

#[test]
fn a_crash_leaves_the_old_index_or_the_new_one() {
    let (disk, all) = filled(60);
    let runs: Vec<String> = disk.paths().into_iter().filter(|p| p.contains("runs/")).collect();
    let path = runs.first().expect("a run");
    assert!(disk.corrupt(path, 100, b"damage"));
    crash(&disk, RepairScope::Indexes, 2, |db, _| {
        assert_eq!(db.check().expect("checks").problems, Vec::<String>::new());
        assert_eq!(read(db, "t"), all);
    });
}

#[test]
fn a_crash_leaves_the_damaged_rows_or_the_kept_ones() {
    let (disk, all) = filled(60);
    let pages = pages_of(&disk);
    let leaf = pages.iter().filter(|p| p.1 == Some(0)).nth(2).expect("a leaf").0;
    damage(&disk, leaf);
    let kept = {
        let sim = on(&disk);
        let db = opened(&sim);
        repair(&db, RepairScope::Rows).expect("repairs");
        let rows = read(&db, "t");
        drop(db);
        sim.stop();
        rows
    };
    assert!(kept.len() < all.len() && kept.len() + 20 > all.len());
    crash(&disk, RepairScope::Rows, 4, |db, _| {
        assert_eq!(db.check().expect("checks").problems, Vec::<String>::new());
        assert_eq!(read(db, "t"), kept);
    });
}
