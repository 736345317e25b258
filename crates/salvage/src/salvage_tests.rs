//! Salvage against a model: stores are made by random work, closed or killed, damaged in random
//! places and salvaged. Every undamaged row returns, nothing is invented, each missing row lies in
//! a range that is reported lost, and no range is reported that the damage does not explain.
//!
//! A failing seed: `SALVAGE_SEED=n cargo test -p evenkeel-salvage one_seed -- --ignored`.

use crate::leaves::{KeyRange, Piece};
use crate::log::Log;
use crate::picture::Picture;
use crate::report::Report;
use crate::salvage::salvage_into;
use crate::source::{Source, log_segments, read_file};
use crate::target::Target;
use evenkeel::ValueRef::{Int, Null, Text};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Direction, Durability, Geometry, IndexSpec,
    Isolation, Options, Range, Row, TableSpec, Txn, Value,
};
use evenkeel_base::{PageNo, TreeId};
use evenkeel_format::checkpoint_copy::{CheckpointCopy, FILES};
use evenkeel_format::page::{self, PageKind};
use evenkeel_format::record::RecordKind;
use evenkeel_format::wal::{BLOCK, segment_path};
use evenkeel_io::{Env, MemEnv, OpenMode, SharedRng as Rng};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

#[path = "family_tests.rs"]
pub(super) mod family;

const PAGE: u64 = 4096;

/// A row of the model: the values behind the key, all of which every table has.
pub(super) type Content = (i64, Option<String>, String);

/// A table of the model.
#[derive(Clone, Default)]
struct Model {
    rows: BTreeMap<i64, Content>,
    /// Columns added behind the others, with the default `EXTRA`.
    extra: usize,
}

const EXTRA: i64 = 7;

/// The tables, and every content that a key ever had by a commit.
#[derive(Default)]
pub(super) struct World {
    tables: BTreeMap<&'static str, Model>,
    pub ever: HashMap<(&'static str, i64), Vec<Content>>,
}

impl World {
    /// A commit that a crash may cut short makes the table so, or not at all.
    fn may_become(&mut self, name: &'static str, model: &Model) {
        for (key, content) in &model.rows {
            let ever = self.ever.entry((name, *key)).or_default();
            if ever.last() != Some(content) {
                ever.push(content.clone());
            }
        }
    }

    fn commit(&mut self, name: &'static str, model: Model) {
        self.may_become(name, &model);
        self.tables.insert(name, model);
    }
}

/// `up` ascends, `down` has a descending key, `long` has long values, `hidden` no primary key.
pub(super) const NAMES: [&str; 4] = ["up", "down", "long", "hidden"];

fn spec(name: &str) -> TableSpec {
    let max = if name == "long" { 200_000 } else { 300 };
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("n", ColumnType::Int64))
        .column(ColumnSpec::new("note", ColumnType::Text { max: 40 }).nullable())
        .column(ColumnSpec::new("body", ColumnType::Text { max }));
    match name {
        "hidden" => spec,
        "down" => spec.primary_key(&["id desc"]).index(IndexSpec::new("by_n", &["n"])),
        _ => spec.primary_key(&["id"]).index(IndexSpec::new("by_n", &["n", "note"])),
    }
}

fn content(rng: &Rng, name: &str) -> Content {
    let n = rng.below(1000) as i64;
    let note = (rng.below(3) > 0).then(|| format!("note {}", rng.below(50)));
    let len = match name {
        "long" if rng.below(3) == 0 => 3_000 + rng.below(30_000),
        _ => 20 + rng.below(200),
    };
    let letter = char::from(b'a' + rng.below(26) as u8);
    (n, note, letter.to_string().repeat(len as usize))
}

pub(super) fn options(env: Arc<dyn Env>) -> Options {
    let geometry = Geometry {
        generation_bytes: Some(64 << 10),
        log_bytes: Some(4 << 20),
        undo_bytes: Some(64 << 10),
        logged_value_bytes: Some(8 << 10),
        ..Geometry::default()
    };
    let durability = Durability::Sync;
    Options { page_size: Some(4096), durability, env: Some(env), geometry, ..Options::default() }
}

fn insert(txn: &mut Txn, name: &'static str, key: i64, row: &Content, extra: usize) {
    let note = row.1.as_deref().map_or(Null, Text);
    let mut values = vec![Int(key), Int(row.0), note, Text(&row.2)];
    values.resize(4 + extra, Int(EXTRA));
    txn.table(name).expect("there").insert(&values).expect("inserts");
}

/// Work on one table in one transaction; the model as it is if the transaction commits.
fn work(rng: &Rng, txn: &mut Txn, name: &'static str, model: &Model, next: &mut i64) -> Model {
    let mut after = model.clone();
    let begin = *next;
    let steps = 1 + rng.below(200);
    for step in 0..steps {
        let any = |after: &Model| {
            let nth = rng.below(after.rows.len().max(1) as u64) as usize;
            after.rows.keys().nth(nth).copied()
        };
        match rng.below(10) {
            0..=5 => {
                *next += 1;
                let key = match rng.below(3) {
                    0 => *next,
                    1 => -*next,
                    _ => begin + 1_000_000 - step as i64,
                };
                if after.rows.contains_key(&key) {
                    continue;
                }
                let row = content(rng, name);
                insert(txn, name, key, &row, after.extra);
                after.rows.insert(key, row);
            }
            6..=7 if name != "hidden" => {
                let Some(key) = any(&after) else { continue };
                let row = content(rng, name);
                let note = row.1.as_deref().map_or(Null, Text);
                let changes = [(1, Int(row.0)), (2, note), (3, Text(&row.2))];
                let done = txn.table(name).expect("there").update(&[Int(key)], &changes);
                assert!(done.expect("updates"));
                after.rows.insert(key, row);
            }
            8 if name != "hidden" => {
                // A range: leaves become empty and are merged.
                let Some(from) = any(&after) else { continue };
                let keys: Vec<i64> = after.rows.range(from..).map(|(k, _)| *k).take(40).collect();
                for key in keys {
                    let done = txn.table(name).expect("there").delete(&[Int(key)]);
                    assert!(done.expect("deletes"));
                    after.rows.remove(&key);
                }
            }
            _ => {}
        }
    }
    after
}

/// Loads an empty table without logging its pages.
fn load(rng: &Rng, db: &Database, name: &'static str, world: &mut World, next: &mut i64) {
    let mut model = world.tables[name].clone();
    for _ in 0..rng.below(800) {
        *next += 1;
        model.rows.insert(*next, content(rng, name));
    }
    let row = |(key, content): (&i64, &Content)| {
        let note = content.1.as_deref().map_or(Value::Null, Value::from);
        let body = Value::from(content.2.as_str());
        let mut values = vec![Value::Int(*key), Value::Int(content.0), note, body];
        values.resize(4 + model.extra, Value::Int(EXTRA));
        values
    };
    let mut rows: Vec<Vec<Value>> = model.rows.iter().map(row).collect();
    if name == "down" {
        rows.reverse();
    }
    world.may_become(name, &model);
    db.load_table(name, rows).expect("loads");
    world.commit(name, model);
}

/// Makes tables and changes them.
pub(super) fn fill(rng: &Rng, db: &Database, world: &mut World, next: &mut i64) {
    for _ in 0..(20 + rng.below(120)) {
        if rng.below(6) == 0 {
            family::step(rng, db, world, next);
            continue;
        }
        let name = NAMES[rng.below(4) as usize];
        if !world.tables.contains_key(name) {
            db.create_table(name, &spec(name)).expect("creates");
            world.tables.insert(name, Model::default());
        }
        match rng.below(24) {
            0 => {
                db.drop_table(name).expect("drops");
                world.tables.remove(name);
                continue;
            }
            1 => {
                db.truncate(name).expect("truncates");
                let extra = world.tables[name].extra;
                world.tables.insert(name, Model { extra, ..Model::default() });
                if rng.below(2) == 0 && matches!(name, "up" | "down") {
                    load(rng, db, name, world, next);
                }
                continue;
            }
            4 if world.tables[name].extra < 3 => {
                let mut model = world.tables[name].clone();
                let column = ColumnSpec::new(&format!("extra{}", model.extra), ColumnType::Int64);
                db.add_column(name, &column.default_value(EXTRA)).expect("adds");
                model.extra += 1;
                world.tables.insert(name, model);
            }
            2 | 3 => db.checkpoint().expect("a checkpoint"),
            _ => {}
        }
        let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        let after = work(rng, &mut txn, name, &world.tables[name], next);
        if rng.below(6) == 0 {
            txn.rollback().expect("rolls back");
        } else {
            world.may_become(name, &after);
            txn.commit().expect("commits");
            world.commit(name, after);
        }
    }
}

/// Makes a store and returns its files, with what it holds.
fn store(rng: &Rng) -> (MemEnv, World) {
    let env = Arc::new(MemEnv::new());
    let db = Database::open_with("unused", options(env.clone())).expect("opens");
    let (mut world, mut next) = (World::default(), 0);
    fill(rng, &db, &mut world, &mut next);
    let closes = rng.below(2) == 0;
    let files = match closes {
        true => {
            db.close().expect("closes");
            env.fork()
        }
        false => {
            // A transaction is open when the process is killed.
            let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
            let name = NAMES.into_iter().find(|name| world.tables.contains_key(name));
            if let Some(name) = name.filter(|_| rng.below(2) == 0) {
                work(rng, &mut txn, name, &world.tables[name], &mut next);
            }
            env.fork()
        }
    };
    (files, world)
}

/// What was done to the files.
#[derive(Default, Debug)]
struct Harm {
    pages: BTreeSet<u64>,
    /// Some of them describe which pages are in use.
    map: bool,
    log: bool,
    super_slots: u64,
}

pub(super) fn overwrite(env: &MemEnv, path: &str, offset: u64, bytes: &[u8]) {
    let mode = OpenMode { create: false, ..OpenMode::READ_WRITE };
    env.open(path, mode).and_then(|file| file.write_at(bytes, offset)).expect("overwrites");
}

fn harm(rng: &Rng, env: &MemEnv) -> Harm {
    let mut harm = Harm::default();
    let source = Source::open(Arc::new(env.fork())).expect("whole");
    let mut used = Vec::new();
    source
        .sweep(&mut |page, bytes, _| {
            used.push((page.0, page::kind(bytes) != Some(PageKind::Tree)));
            Ok(())
        })
        .expect("reads");
    for _ in 0..rng.below(12) {
        let (page, is_map) = used[rng.below(used.len() as u64) as usize];
        harm.map |= is_map;
        let bytes: Vec<u8> = match rng.below(3) {
            0 => vec![0; PAGE as usize],
            1 => (0..PAGE).map(|_| rng.below(256) as u8).collect(),
            _ => (0..512).map(|_| rng.below(256) as u8).collect(),
        };
        overwrite(env, "pages/000000.pg", page * PAGE, &bytes);
        harm.pages.insert(page);
    }
    if rng.below(4) == 0 {
        harm.super_slots = 1 + rng.below(2);
        for slot in 0..harm.super_slots {
            let slot = if harm.super_slots == 1 { rng.below(2) } else { slot };
            overwrite(env, "evenkeel.super", slot * 4096 + 100, &[7; 64]);
        }
    }
    if rng.below(4) == 0 {
        harm.log = true;
        for name in env.list("wal").expect("lists") {
            let path = format!("wal/{name}");
            match rng.below(3) {
                0 => {}
                1 => {
                    let len = env.open(&path, OpenMode::READ).and_then(|f| f.len()).expect("len");
                    let block = rng.below((len - 4096) / 512);
                    overwrite(env, &path, 4096 + block * 512, &[9; 512]);
                }
                _ => overwrite(env, &path, 0, &[0; 4096]),
            }
        }
    }
    harm
}

fn content_of(values: &[Value]) -> (i64, Content) {
    match values {
        [Value::Int(key), Value::Int(n), note, Value::Text(body), extra @ ..] => {
            assert!(extra.iter().all(|value| *value == Value::Int(EXTRA)), "{extra:?}");
            let note = match note {
                Value::Text(note) => Some(note.clone()),
                _ => None,
            };
            (*key, (*n, note, body.clone()))
        }
        other => panic!("values of other types: {other:?}"),
    }
}

/// The rows of a table of a database.
pub(super) fn rows_of(db: &Database, name: &str) -> BTreeMap<i64, Content> {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let mut scan =
        txn.table(name).expect("there").scan(Range::ALL, Direction::Forward).expect("scans");
    let (mut row, mut rows) = (Row::new(), BTreeMap::new());
    while scan.next(&mut row).expect("reads") {
        let (key, content) = content_of(&row.values().expect("values"));
        assert!(rows.insert(key, content).is_none(), "{name}: key {key} twice");
    }
    rows
}

/// Salvages into memory; the report and the new database.
fn salvaged(env: impl Env + 'static) -> evenkeel_base::Result<(Report, Database)> {
    salvaged_from(Arc::new(env))
}

/// As `salvaged`.
pub(super) fn salvaged_from(env: Arc<dyn Env>) -> evenkeel_base::Result<(Report, Database)> {
    let to = Arc::new(MemEnv::new());
    let target = Target::open(Path::new("unused"), options(to.clone())).expect("opens");
    let report = salvage_into(env, "a store", target)?;
    Ok((report, Database::open_with("unused", options(to)).expect("opens again")))
}

/// The clustered key of a table with a primary key.
fn key_bytes(name: &str, key: i64) -> Vec<u8> {
    let bytes = (key ^ i64::MIN).to_be_bytes();
    if name == "down" { bytes.map(|b| !b).to_vec() } else { bytes.to_vec() }
}

/// Ranges of the leaves of a tree that lie in these pages.
fn ranges_in(picture: &Picture, tree: TreeId, pages: &BTreeSet<u64>) -> Vec<KeyRange> {
    let pieces = picture.leaves.pieces(tree);
    let damaged = pieces.into_iter().filter_map(|piece| match piece {
        Piece::Of(leaf, keys) if pages.contains(&leaf.page.0) => Some(keys),
        _ => None,
    });
    damaged.collect()
}

/// Checks a salvage of a damaged store with a model, and returns the numbers of rows saved and
/// lost, and of orphans.
fn check(seed: u64, whole: MemEnv, damaged: MemEnv, world: &World, harm: &Harm) -> [u64; 3] {
    let (report, db) = match salvaged(damaged) {
        Ok(done) => done,
        // Nothing names the database any more.
        Err(error) if harm.super_slots == 2 && harm.log => {
            assert_eq!(error.code(), evenkeel::Code::NotADatabase, "seed {seed}: {error}");
            return [0; 3];
        }
        Err(error) => panic!("seed {seed}: {error}"),
    };
    let told = format!("seed {seed}: {harm:?}\n{}", report.text());
    assert!(db.check().expect("checks").problems.is_empty(), "{told}");
    let picture = Picture::read(Source::open(Arc::new(whole)).expect("whole")).expect("reads");
    // The older slot may name a position that the log no longer reaches back to.
    let has_log = report.log.is_some_and(|(.., lost)| lost.is_none());
    assert!(has_log || harm.log || harm.super_slots > 0, "{told}");
    let exact = !harm.log && has_log && harm.super_slots < 2;
    let has_map = !harm.map;
    let orphans = family::judge(&report, &db, exact, &told);
    let (mut saved, mut lost) = (0, 0);
    for (name, model) in &world.tables {
        let Some(table) = report.tables.iter().find(|t| t.name == *name) else {
            // Its definition is lost: the catalog says so.
            assert!(!report.catalog.is_empty() || !exact, "{name} is missing: {told}");
            continue;
        };
        if !db.tables().iter().any(|t| t == name) {
            assert!(!table.notes.is_empty(), "{name} is not made: {told}");
            continue;
        }
        let found = rows_of(&db, name);
        assert_eq!(found.len() as u64, table.rows, "{told}");
        saved += table.rows;
        for (key, content) in &found {
            let ever = world.ever.get(&(*name, *key));
            assert!(ever.is_some_and(|ever| ever.contains(content)), "{name} {key}: {told}");
            if exact && has_map {
                assert_eq!(model.rows.get(key), Some(content), "{name} {key}: {told}");
            }
        }
        if !exact {
            continue;
        }
        for key in model.rows.keys().filter(|key| !found.contains_key(key)) {
            lost += 1;
            let in_range = |low: &[u8], high: Option<&[u8]>| {
                let key = key_bytes(name, *key);
                low <= &key[..] && high.is_none_or(|high| &key[..] < high)
            };
            let is_told = table.lost.iter().any(|l| in_range(&l.low, l.high.as_deref()));
            assert!(
                if *name == "hidden" { !table.lost.is_empty() } else { is_told },
                "{name} {key} is missing untold: {told}"
            );
        }
        if has_map {
            let tree = tree_of(&picture, name);
            let ranges = tree.map(|tree| ranges_in(&picture, tree, &harm.pages));
            for lost in &table.lost {
                explained(name, lost, ranges.as_deref().unwrap_or_default(), &found, &told);
            }
        }
    }
    [saved, lost, orphans]
}

/// A range that is reported lost is that of damaged leaves, or one key whose long value is lost.
fn explained(
    name: &str,
    lost: &crate::report::LostRange,
    ranges: &[KeyRange],
    found: &BTreeMap<i64, Content>,
    told: &str,
) {
    if lost.high.as_deref().and_then(|high| high.strip_suffix(&[0])) == Some(&lost.low[..])
        && name == "long"
    {
        let is_found = found.keys().any(|key| key_bytes(name, *key) == lost.low);
        assert!(!is_found, "{name}: {} is there: {told}", lost.text);
        return;
    }
    // Neighbouring damaged leaves are one range.
    let mut at = lost.low.clone();
    loop {
        let next = ranges.iter().find(|range| range.contains(&at));
        let next = next.unwrap_or_else(|| panic!("{name}: {} is not damaged: {told}", lost.text));
        match (&next.high, &lost.high) {
            (None, _) => return,
            (Some(high), Some(end)) if high >= end => return,
            (Some(high), _) => at = high.clone(),
        }
    }
}

fn tree_of(picture: &Picture, name: &str) -> Option<TreeId> {
    let catalog = crate::catalog::Catalog::read(picture).expect("reads");
    catalog.tables.iter().find(|t| t.def.name == name).map(|t| t.def.entry.tree)
}

fn run(seed: u64) -> [u64; 3] {
    let rng = Rng::new(seed);
    let (files, world) = store(&rng);
    // An undamaged store comes back as a whole.
    let (report, db) = salvaged(files.fork()).expect("salvages");
    for (name, model) in &world.tables {
        assert_eq!(rows_of(&db, name), model.rows, "seed {seed}, {name}: {}", report.text());
    }
    let lost = report.tables.iter().map(|t| t.lost.len()).sum::<usize>();
    assert_eq!((lost, report.catalog.len()), (0, 0), "seed {seed}: {}", report.text());
    assert_eq!(report.tables.len(), world.tables.len(), "seed {seed}: {}", report.text());
    assert_eq!(family::judge(&report, &db, true, &report.text()), 0, "seed {seed}");
    drop(db);
    let damaged = files.fork();
    let harm = harm(&rng, &damaged);
    check(seed, files, damaged, &world, &harm)
}

fn run_all(seeds: std::ops::Range<u64>) {
    let mut sum = [0; 3];
    for seed in seeds.clone() {
        println!("seed {seed}");
        run(seed).into_iter().zip(&mut sum).for_each(|(found, sum)| *sum += found);
    }
    let [saved, lost, orphans] = sum;
    let told =
        format!("{saved} rows saved, {lost} rows lost in reported ranges, {orphans} orphans");
    println!("{} stores: {told}", seeds.count());
    assert!(saved > 5_000 && lost > 0 && orphans > 0, "{told}: too little damage");
}

#[test]
fn undamaged_rows_return_and_lost_ranges_are_exact() {
    run_all(0..24);
}

#[test]
#[ignore = "minutes"]
fn two_hundred_stores() {
    run_all(1000..1200);
}

#[test]
#[ignore = "for a seed that failed"]
fn one_seed() {
    let seed = std::env::var("SALVAGE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.expect("SALVAGE_SEED=n");
    println!("{:?}", run(seed));
}

/// Pages with any bytes and a right checksum end in a report or an error.
#[test]
fn hostile_pages_give_a_report_or_an_error() {
    for seed in 0..12 {
        let rng = Rng::new(seed);
        let (files, _) = store(&rng);
        let source = Source::open(Arc::new(files.fork())).expect("whole");
        let damaged = files.fork();
        let mut changes = Vec::new();
        source
            .sweep(&mut |number, bytes, _| {
                if rng.below(3) == 0 {
                    let mut bytes = bytes.to_vec();
                    for _ in 0..1 + rng.below(20) {
                        let at = 32 + rng.below(if rng.below(2) == 0 { 60 } else { PAGE - 32 });
                        bytes[at as usize] = rng.below(256) as u8;
                    }
                    page::seal(&mut bytes, source.database);
                    changes.push((number, bytes));
                }
                Ok(())
            })
            .expect("reads");
        for (number, bytes) in &changes {
            overwrite(&damaged, "pages/000000.pg", number.0 * PAGE, bytes);
        }
        let text = match salvaged(damaged) {
            Ok((report, _)) => report.text(),
            Err(error) => error.to_string(),
        };
        assert!(!text.is_empty(), "seed {seed}");
    }
}

/// A page number of the picture is that of the file.
#[test]
fn pages_have_their_place() {
    let (files, _) = store(&Rng::new(5));
    let source = Source::open(Arc::new(files)).expect("whole");
    let (bytes, _) = source.page(PageNo(0)).expect("the first map page");
    assert_eq!(source.raw_page(PageNo(0)).expect("reads"), bytes);
    assert!(source.end_page() * PAGE >= 1 << 20);
}

/// The records from the redo position on, how many of them are parts of checkpoints, and whether
/// the log was read to its end.
fn log_of(env: &MemEnv) -> (u64, u64, bool) {
    let source = Source::open(Arc::new(env.fork())).expect("opens");
    let from = source.superblock.as_ref().expect("valid").redo;
    let (log, mut parts) = (Log::open(&source).expect("opens"), 0);
    let reach = log.read(from, &mut |_, kind, _| {
        parts += u64::from(kind == RecordKind::Checkpoint);
        Ok(())
    });
    (reach.records, parts, reach.lost_to.is_none())
}

#[test]
fn a_checkpoint_record_that_the_log_has_lost_is_read_from_its_copy() {
    let (env, _) = store(&Rng::new(3));
    let whole = log_of(&env);
    assert!(whole.1 > 0 && whole.2, "{whole:?}");
    let source = Source::open(Arc::new(env.fork())).expect("opens");
    let checkpoint = source.superblock.as_ref().expect("valid").checkpoint;
    let copy = FILES.into_iter().find_map(|path| {
        let bytes = read_file(&env, path, 1 << 20).expect("reads");
        let copy = CheckpointCopy::decode(&bytes, source.database).expect("known")?;
        (copy.checkpoint == checkpoint).then_some(copy)
    });
    let copy = copy.expect("a copy");
    let blocks = copy.first_block..copy.first_block + (copy.blocks.len() / BLOCK) as u64;
    for segment in log_segments(&env).expect("lists").0 {
        let within = |block: &u64| (segment.first_block..segment.end_block()).contains(block);
        for block in blocks.clone().filter(within) {
            let path = segment_path(segment.number);
            overwrite(&env, &path, segment.offset_of(block), &[9; BLOCK]);
        }
    }
    assert_eq!(log_of(&env), whole);
    FILES.into_iter().for_each(|path| env.remove(path).expect("removes"));
    let without = log_of(&env);
    assert!(without.0 < whole.0, "the damage hits no record: {without:?} {whole:?}");
}
