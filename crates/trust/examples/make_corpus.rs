//! Makes the directories of the corpus with the library it is linked with, which must be that of a
//! release: see `crates/trust/corpus/README.md`. The listing of the rows comes from a model that
//! this program keeps beside the engine, never from what the engine reads.
//!
//! `make_corpus OUT RELEASE` writes `OUT/RELEASE-*.corpus` and `OUT/RELEASE.rows`, the listing of
//! all of them. `make_corpus --child DIR CASE` fills a directory; for a case that ends in a kill
//! the child then waits for its end.

#[allow(dead_code)] // Its other half is for the test.
#[path = "../src/corpus.rs"]
mod corpus;

use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Geometry, IndexSpec, Isolation, Options, TableChange,
    TableSpec, Txn, Value,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// A directory of the corpus: its name, its page size, whether its process is killed.
const CASES: &[(&str, u32, bool)] =
    &[("killed-4k", 4096, true), ("closed-8k", 8192, false), ("killed-16k", 16384, true)];

/// The prepared transaction of which the checkpoint tells, and the one that is in the log only.
const FIRST: &str = "corpus early";
const SECOND: &str = "corpus late";

/// Rows by table and by a key that gives the order of the listing.
#[derive(Default)]
struct Model(BTreeMap<&'static str, BTreeMap<String, Vec<Value>>>);

impl Model {
    fn put(&mut self, table: &'static str, key: String, row: Vec<Value>) {
        self.0.entry(table).or_default().insert(key, row);
    }

    fn remove(&mut self, table: &'static str, key: &str) {
        self.0.get_mut(table).expect("a table").remove(key).expect("a row");
    }

    fn row(&mut self, table: &'static str, key: &str) -> &mut Vec<Value> {
        self.0.get_mut(table).expect("a table").get_mut(key).expect("a row")
    }

    fn listing(&self) -> String {
        let mut out = String::new();
        for (table, rows) in &self.0 {
            let mut lines: Vec<_> = rows
                .values()
                .map(|row| corpus::show_row(&row.iter().map(Value::as_ref).collect::<Vec<_>>()))
                .collect();
            lines.sort();
            out += &format!("table {table}: {} rows\n", lines.len());
            for line in lines {
                out += &format!("{line}\n");
            }
        }
        out
    }
}

fn begin(db: &Database) -> Txn {
    db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins")
}

fn insert(txn: &mut Txn, table: &str, row: &[Value]) {
    let row: Vec<_> = row.iter().map(Value::as_ref).collect();
    txn.table(table).expect("there").insert(&row).expect("inserts");
}

fn key(number: i64) -> String {
    format!("{number:020}")
}

fn column(name: &str, ty: ColumnType) -> ColumnSpec {
    ColumnSpec::new(name, ty)
}

fn tables(db: &Database) {
    use ColumnType::*;
    let people = TableSpec::new()
        .column(column("id", Int64).auto_increment())
        .column(column("name", Text { max: 60 }))
        .column(column("town", Text { max: 40 }).nullable())
        .column(column("gone", Int32))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_name", &["name"]).unique())
        .index(IndexSpec::new("by_town", &["town desc", "id"]));
    db.create_table("people", &people).expect("creates");
    let documents = TableSpec::new()
        .column(column("name", Text { max: 40 }))
        .column(column("body", Bytes { max: 1 << 20 }))
        .column(column("size", UInt32))
        .primary_key(&["name desc"])
        .index(IndexSpec::new("by_size", &["size"]));
    db.create_table("documents", &documents).expect("creates");
    let types = TableSpec::new()
        .column(column("k", FixedBytes { len: 4 }))
        .column(column("b", Bool).nullable())
        .column(column("i8", Int8).nullable())
        .column(column("u16", UInt16).nullable())
        .column(column("u64", UInt64).nullable())
        .column(column("f32", Float32).nullable())
        .column(column("f64", Float64).nullable())
        .column(column("d", Decimal { precision: 30, scale: 6 }).nullable())
        .column(column("date", Date).nullable())
        .column(column("time", DateTime).nullable())
        .column(column("bytes", Bytes { max: 300 }).nullable())
        .primary_key(&["k"])
        .index(IndexSpec::new("by_all", &["b", "i8 desc", "u16", "d desc", "date", "bytes"]));
    db.create_table("types", &types).expect("creates");
    let hidden = TableSpec::new()
        .column(column("a", Int64))
        .column(column("b", Text { max: 20 }).nullable())
        .index(IndexSpec::new("by_a", &["a"]));
    db.create_table("hidden", &hidden).expect("creates");
    let loaded = TableSpec::new()
        .column(column("id", Int64))
        .column(column("half", Int64))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_half", &["half"]));
    db.create_table("loaded", &loaded).expect("creates");
    let dropped = TableSpec::new().column(column("id", Int64)).primary_key(&["id"]);
    db.create_table("dropped", &dropped).expect("creates");
}

fn person(id: i64) -> Vec<Value> {
    let town = ["Bergen", "Oslo", "Tromso"][id as usize % 3];
    let town = if id % 7 == 0 { Value::Null } else { Value::from(town) };
    vec![Value::Int(id), Value::from(&*format!("person number {id}")), town, Value::Int(id * 3)]
}

/// The same without the column that `alter` drops, with the one that it adds.
fn altered(mut row: Vec<Value>, age: i64) -> Vec<Value> {
    row.truncate(3);
    row.push(Value::Int(age));
    row
}

fn body(seed: usize, len: usize) -> Value {
    // Easy to compress, and no two pages of it are equal.
    let piece = |at: usize| format!("{seed:>6}{at:>10}{:>48}", "a long value");
    let text: String = (0..len.div_ceil(64)).map(piece).collect();
    Value::from(&text.as_bytes()[..len])
}

fn document(number: usize) -> (String, Vec<Value>) {
    let len = [10, 900, 3_000, 9_000, 40_000, 120_000][number % 6];
    let name = format!("document {number:03}");
    let row = vec![Value::from(&*name), body(number, len), Value::UInt(len as u64)];
    (name, row)
}

fn of_types(number: i64) -> Vec<Value> {
    let n = number;
    if n % 5 == 4 {
        let mut row = vec![Value::Null; 11];
        row[0] = Value::from(&(n as u32).to_be_bytes()[..]);
        return row;
    }
    vec![
        Value::from(&(n as u32).to_be_bytes()[..]),
        Value::Bool(n % 2 == 0),
        Value::Int(n % 256 - 128),
        Value::UInt((n * 257 % 65_536) as u64),
        Value::UInt(u64::MAX - n as u64),
        Value::Float(f64::from(n as f32 / 4.0)),
        // Not -0, which is stored as 0.
        Value::Float(0.0 - 1.5 * n as f64),
        Value::Decimal(i128::from(n - 50) * 1_000_000_007_000_000_009, 6),
        Value::Date(n as i32 * 100 - 5_000),
        Value::DateTime(n * 1_000_000_007 - 40_000_000_000),
        Value::from(&vec![n as u8; (n % 90) as usize][..]),
    ]
}

fn fill(db: &Database, model: &mut Model) {
    for batch in 0..10 {
        let mut txn = begin(db);
        for id in batch * 100 + 1..=batch * 100 + 100 {
            insert(&mut txn, "people", &person(id));
            model.put("people", key(id), person(id));
        }
        for number in batch * 8..batch * 8 + 8 {
            insert(&mut txn, "types", &of_types(number));
            model.put("types", key(number), of_types(number));
            let row = vec![Value::Int(number % 10), Value::from(&*format!("row {number}"))];
            insert(&mut txn, "hidden", &row);
            model.put("hidden", key(number), row);
        }
        let (name, row) = document(batch as usize);
        insert(&mut txn, "documents", &row);
        model.put("documents", name, row);
        txn.commit().expect("commits");
    }
    let rows: Vec<_> = (0..1000).map(|id| [Value::Int(id), Value::Int(id / 2)]).collect();
    for [id, half] in &rows {
        let Value::Int(number) = id else { unreachable!() };
        model.put("loaded", key(*number), vec![id.clone(), half.clone()]);
    }
    db.load_table("loaded", rows).expect("loads");
    let mut txn = begin(db);
    (0..200).for_each(|id| insert(&mut txn, "dropped", &[Value::Int(id)]));
    txn.commit().expect("commits");
    db.drop_table("dropped").expect("drops");
}

/// Rows of several formats, an index built over rows, an index dropped.
fn alter(db: &Database, model: &mut Model) {
    let change = TableChange {
        drop_columns: vec!["gone".into()],
        add_columns: vec![column("age", ColumnType::Int32).default_value(30)],
        mark: 77,
        ..TableChange::default()
    };
    db.alter_table("people", &change).expect("alters");
    for row in model.0.get_mut("people").expect("a table").values_mut() {
        *row = altered(std::mem::take(row), 30);
    }
    db.add_indexes("people", &[IndexSpec::new("by_age", &["age", "town"])]).expect("adds");
    db.drop_index("hidden", "by_a").expect("drops");
    db.add_indexes("hidden", &[IndexSpec::new("by_b", &["b"])]).expect("adds");
    db.analyze_table("people").expect("analyzes");
}

fn change(db: &Database, model: &mut Model, from: i64) {
    for step in 0..10 {
        let txn = begin(db);
        for id in (from + step * 10..from + step * 10 + 10).filter(|id| id % 3 != 0) {
            let people = txn.table("people").expect("there");
            if id % 2 == 0 {
                assert!(people.delete(&[evenkeel::ValueRef::Int(id)]).expect("deletes"));
                model.remove("people", &key(id));
            } else {
                let age = Value::Int(id % 90);
                let done = people.update(&[evenkeel::ValueRef::Int(id)], &[(3, age.as_ref())]);
                assert!(done.expect("updates"));
                model.row("people", &key(id))[3] = age;
            }
        }
        // A long value replaced: its old chain is freed.
        let (name, _) = document(step as usize);
        let value = body(1000 + step as usize, 20_000);
        let documents = txn.table("documents").expect("there");
        let name_ref = evenkeel::ValueRef::Text(&name);
        assert!(documents.update(&[name_ref], &[(1, value.as_ref())]).expect("updates"));
        model.row("documents", &name)[1] = value;
        txn.commit().expect("commits");
        if step % 4 == 3 {
            let mut txn = begin(db);
            insert(&mut txn, "people", &altered(person(90_000 + step), 1));
            txn.rollback().expect("rolls back");
        }
    }
}

/// A transaction that changes rows of two tables and is left undecided.
fn undecided(db: &Database, from: i64) -> Txn {
    let mut txn = begin(db);
    for id in from..from + 60 {
        insert(&mut txn, "people", &altered(person(id), 5));
    }
    let loaded = txn.table("loaded").expect("there");
    for id in from % 1000..from % 1000 + 20 {
        let id = [evenkeel::ValueRef::Int(id)];
        assert!(loaded.delete(&id).expect("deletes"));
    }
    txn
}

/// What a prepared transaction has done, once it is committed.
fn decided(model: &mut Model, from: i64) {
    for id in from..from + 60 {
        model.put("people", key(id), altered(person(id), 5));
    }
    for id in from % 1000..from % 1000 + 20 {
        model.remove("loaded", &key(id));
    }
}

fn child(dir: &Path, page_size: u32, is_killed: bool) {
    let geometry = Geometry {
        generation_bytes: Some(96 << 10),
        logged_value_bytes: Some(16 << 10),
        ..Geometry::default()
    };
    let options = Options {
        page_size: Some(page_size),
        log_size: 32 << 20,
        memory_size: 32 << 20,
        ..Options::default()
    };
    let db = Database::open_with(dir, options.geometry(geometry)).expect("opens");
    let mut model = Model::default();
    tables(&db);
    fill(&db, &mut model);
    alter(&db, &mut model);
    let (early, late) = (undecided(&db, 10_000), undecided(&db, 20_100));
    assert!(early.prepare(FIRST.as_bytes()).expect("prepares"));
    change(&db, &mut model, 100);
    db.checkpoint().expect("checkpoints");
    // From here on everything is in the log only.
    change(&db, &mut model, 300);
    let open = undecided(&db, 30_200);
    let mut after = undecided(&db, 40_300);
    after.savepoint("s").expect("sets");
    insert(&mut after, "people", &altered(person(77_777), 5));
    after.rollback_to("s").expect("rolls back");
    assert!(after.prepare(SECOND.as_bytes()).expect("prepares"));
    change(&db, &mut model, 500);
    let before = model.listing();
    print!("{before}");
    println!("changed by the transaction that is prepared as {FIRST:?}, when it commits:");
    decided(&mut model, 10_000);
    let (before, after): (BTreeSet<_>, _) = (before.lines().collect(), model.listing());
    let after: BTreeSet<_> = after.lines().collect();
    before.difference(&after).for_each(|line| println!("- {line}"));
    after.difference(&before).for_each(|line| println!("+ {line}"));
    println!("end");
    std::io::stdout().flush().expect("prints");
    if is_killed {
        loop {
            std::thread::park();
        }
    }
    drop((late, open));
    db.close().expect("closes");
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--child", dir, case] => {
            let case = CASES.iter().find(|(name, ..)| name == case).expect("a case");
            child(Path::new(dir), case.1, case.2);
        }
        [out, release] => {
            let made = CASES.iter().map(|(name, _, is_killed)| {
                make(Path::new(out), &format!("{release}-{name}"), name, *is_killed)
            });
            let listings: Vec<String> = made.collect();
            assert!(listings.windows(2).all(|pair| pair[0] == pair[1]), "they have the same rows");
            let path = Path::new(out).join(format!("{release}.rows"));
            std::fs::write(path, &listings[0]).expect("writes");
        }
        _ => panic!("make_corpus OUT RELEASE"),
    }
}

fn make(out: &Path, file: &str, case: &str, is_killed: bool) -> String {
    let dir = out.join(format!("{file}.dir"));
    let mut child = Command::new(std::env::current_exe().expect("a program"))
        .args(["--child", &dir.display().to_string(), case])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut listing = String::new();
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("reads");
        if line == "end" {
            break;
        }
        listing += &format!("{line}\n");
    }
    if is_killed {
        child.kill().expect("kills");
    }
    assert_eq!(child.wait().expect("ends").success(), !is_killed, "{case}");
    let archive = corpus::pack(&corpus::read_directory(&dir).expect("reads"));
    println!("{file}: {} bytes, {} lines", archive.len(), listing.lines().count());
    std::fs::write(out.join(format!("{file}.corpus")), archive).expect("writes");
    std::fs::remove_dir_all(dir).expect("removes");
    listing
}
