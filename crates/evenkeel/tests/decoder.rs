//! The second decoder, `tools/decode.py`, is written from `docs/format` alone. It must list the
//! same rows and index entries of a closed directory as the library did before it was closed.
//! Needs `python3`.

use evenkeel::ValueRef::{
    self, Bool, Bytes, Date, DateTime, Decimal, Float, Int, Null, Text, UInt,
};
use evenkeel::{
    Access, Chunking, ColumnSpec, ColumnType, Database, Direction, Geometry, IndexSpec, Isolation,
    Metric, Options, Range, Row, SchemaWait, TableSpec, Txn,
};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn begin(db: &Database) -> Txn {
    db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin")
}

fn show(value: ValueRef<'_>, out: &mut String) {
    let hex = |bytes: &[u8], out: &mut String| {
        bytes.iter().for_each(|b| write!(out, "{b:02x}").expect("a string"));
    };
    out.push('\t');
    match value {
        Null => out.push_str("NULL"),
        Bool(v) => out.push_str(if v { "true" } else { "false" }),
        Int(v) => out.push_str(&v.to_string()),
        UInt(v) => out.push_str(&v.to_string()),
        Float(v) => write!(out, "f64:{:016x}", v.to_bits()).expect("a string"),
        Decimal(v, _) => write!(out, "dec:{v}").expect("a string"),
        Date(v) => write!(out, "date:{v}").expect("a string"),
        DateTime(v) => write!(out, "time:{v}").expect("a string"),
        Bytes(v) => {
            out.push_str("x:");
            hex(v, out);
        }
        Text(v) => {
            out.push_str("t:");
            hex(v.as_bytes(), out);
        }
    }
}

/// The library's rows and entries in the format of the decoder, sorted.
fn listing(db: &Database) -> Vec<String> {
    let mut lines = Vec::new();
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begin");
    for name in db.tables() {
        let def = db.definition(&name).expect("table");
        let live = def.live_columns();
        let at = |id: u16| live.iter().position(|c| c.id == id).expect("a live column");
        let table = txn.table(&name).expect("table");
        let mut scan = table.scan(Range::ALL, Direction::Forward).expect("scan");
        let mut row = Row::new();
        while scan.next(&mut row).expect("row") {
            let mut line = format!("row\t{name}");
            (0..row.len()).for_each(|i| show(row.value(i).expect("value"), &mut line));
            lines.push(line);
        }
        for index in &def.indexes {
            let table = txn.table(&name).expect("table");
            let entries = table.index(&index.name).expect("index").keys_only();
            let mut scan = entries.scan(Range::ALL, Direction::Forward).expect("scan");
            while scan.next(&mut row).expect("entry") {
                let mut line = format!("entry\t{name}\t{}", index.name);
                let parts = index.entry.parts.iter();
                parts.for_each(|p| show(row.value(at(p.column)).expect("part"), &mut line));
                line.push_str("\t/");
                let primary = def.entry.primary.iter();
                primary.for_each(|p| show(row.value(at(p.column)).expect("part"), &mut line));
                if def.entry.hidden_key {
                    let id = row.key().try_into().map(u64::from_be_bytes).expect("8 bytes");
                    show(UInt(id), &mut line);
                }
                lines.push(line);
            }
        }
    }
    lines.sort();
    lines
}

fn decoded(dir: &Path) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/decode.py");
    let output = Command::new("python3").arg(script).arg(dir).output().expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    lines.sort();
    lines
}

fn compare(db: Database, dir: &Path, lines: usize) {
    let expected = listing(&db);
    db.close().expect("close");
    let found = decoded(dir);
    for (a, b) in expected.iter().zip(&found) {
        assert_eq!(a, b, "library, decoder");
    }
    assert_eq!(expected.len(), found.len(), "lines");
    assert!(found.len() >= lines, "{} lines", found.len());
}

/// A value for each type of `every_type`.
const HIGH: [ValueRef<'static>; 14] = [
    Bool(true),
    Int(127),
    UInt(65_535),
    Int(i32::MAX as i64),
    UInt(u64::MAX),
    Float(1.5),
    Float(f64::MAX),
    Decimal(99, 1),
    Decimal(10_i128.pow(29), 6),
    Bytes(&[255, 0, 1]),
    Bytes(&[0, 255, 0, 0]),
    Text("n\u{e4}h\0e"),
    Date(20_000),
    DateTime(1 << 50),
];
/// Another value for each.
const LOW: [ValueRef<'static>; 14] = [
    Bool(false),
    Int(-128),
    UInt(0),
    Int(i32::MIN as i64),
    UInt(0),
    Float(-1.5),
    Float(f64::NEG_INFINITY),
    Decimal(-99, 1),
    Decimal(-(10_i128.pow(29)), 6),
    Bytes(&[0, 0, 0]),
    Bytes(&[]),
    Text(""),
    Date(-20_000),
    DateTime(-(1 << 50)),
];

/// Every type, as a column and as a key part in both directions, NULL and not NULL.
fn every_type(db: &Database) {
    let types = [
        ColumnType::Bool,
        ColumnType::Int8,
        ColumnType::UInt16,
        ColumnType::Int32,
        ColumnType::UInt64,
        ColumnType::Float32,
        ColumnType::Float64,
        ColumnType::Decimal { precision: 2, scale: 1 },
        ColumnType::Decimal { precision: 30, scale: 6 },
        ColumnType::FixedBytes { len: 3 },
        ColumnType::Bytes { max: 50 },
        ColumnType::Text { max: 50 },
        ColumnType::Date,
        ColumnType::DateTime,
    ];
    let mut spec = TableSpec::new()
        .column(ColumnSpec::new("name", ColumnType::Text { max: 20 }))
        .column(ColumnSpec::new("number", ColumnType::Int16));
    for (i, ty) in types.into_iter().enumerate() {
        let name = format!("c{i}");
        spec = spec.column(ColumnSpec::new(&name, ty).nullable());
        let part = if i % 2 == 0 { name.clone() } else { format!("{name} desc") };
        spec = spec.index(IndexSpec::new(&format!("by_{name}"), &[&part]));
    }
    let spec = spec.primary_key(&["name desc", "number"]);
    db.create_table("types", &spec).expect("create");
    let txn = begin(db);
    let table = txn.table("types").expect("table");
    for (number, values) in [(-1, HIGH), (0, LOW), (1, [Null; 14])] {
        for name in ["", "a\0b", "zz"] {
            let mut row = vec![Text(name), Int(number)];
            row.extend(values);
            table.insert(&row).expect("insert");
        }
    }
    txn.commit().expect("commit");
}

/// A table without primary key, long values, and a schema that changed under its rows.
fn long_values(db: &Database) {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("title", ColumnType::Text { max: 100 }))
        .column(ColumnSpec::new("gone", ColumnType::Int32))
        .column(ColumnSpec::new("body", ColumnType::Bytes { max: 1 << 20 }).nullable())
        .index(IndexSpec::new("by_title", &["title"]).unique());
    db.create_table("documents", &spec).expect("create");
    let txn = begin(db);
    let table = txn.table("documents").expect("table");
    for i in 0..12_u8 {
        let body: Vec<u8> = (0..usize::from(i) * 9_000).map(|n| (n % 251) as u8 ^ i).collect();
        let body = if i == 5 { Null } else { Bytes(&body) };
        table.insert(&[Text(&format!("title {i}")), Int(i.into()), body]).expect("insert");
    }
    txn.commit().expect("commit");
    db.drop_column("documents", "gone").expect("drop column");
    let added = ColumnSpec::new("state", ColumnType::Text { max: 10 }).default_value("new");
    db.add_column("documents", &added).expect("add column");
    let txn = begin(db);
    let table = txn.table("documents").expect("table");
    table.insert(&[Text("later"), Bytes(b"short"), Text("done")]).expect("insert");
    txn.commit().expect("commit");
}

/// A chunked table, with rows in several chunks and a dropped chunk.
fn chunked(db: &Database) {
    let by_hour = Chunking::by("at", Duration::from_secs(3600)).space("device", 2);
    let spec = TableSpec::new()
        .column(ColumnSpec::new("device", ColumnType::Text { max: 20 }))
        .column(ColumnSpec::new("at", ColumnType::DateTime))
        .column(ColumnSpec::new("value", ColumnType::Float64).nullable())
        .primary_key(&["device", "at desc"])
        .index(IndexSpec::new("by_value", &["value"]))
        .chunked(by_hour);
    db.create_table("readings", &spec).expect("create");
    let txn = begin(db);
    let start = 1_704_067_200_000_000;
    for n in 0..40 {
        let device = ["a", "b", "c"][n as usize % 3];
        let at = start + n * 1_000_000_000;
        let row = [Text(device), DateTime(at), Float(n as f64)];
        txn.table("readings").expect("table").insert(&row).expect("insert");
    }
    txn.table("readings").expect("table").insert(&[Text("a"), DateTime(7), Null]).expect("insert");
    txn.commit().expect("commit");
    let done = db.drop_chunks("readings", start + 3_600_000_000, &SchemaWait::default());
    assert!(!done.expect("drops").dropped.is_empty());
}

/// Inserts, updates, deletes, rollbacks of all sizes, so that runs are flushed and merged.
fn churn(db: &Database, from: i64, to: i64) {
    for batch in (from..to).step_by(100) {
        let txn = begin(db);
        let table = txn.table("churn").expect("table");
        for id in batch..batch + 100 {
            table.insert(&[Int(id), Int(id * 7919 % 1009), Text(&"x".repeat(60))]).expect("insert");
        }
        for id in (from..batch).step_by(37) {
            table.update(&[Int(id)], &[(1, Int(batch))]).expect("update");
        }
        for id in (batch..batch + 100).step_by(5) {
            table.delete(&[Int(id)]).expect("delete");
        }
        if batch % 300 == 0 {
            txn.savepoint("s").expect("savepoint");
            let table = txn.table("churn").expect("table");
            table.update(&[Int(batch + 1)], &[(1, Int(-1))]).expect("update");
            table.delete(&[Int(batch + 2)]).expect("delete");
            txn.rollback_to("s").expect("rollback");
        }
        if batch % 700 == 0 { txn.rollback().expect("rollback") } else { drop(txn.commit()) }
    }
}

/// A long decoder would mean a complicated format.
#[test]
fn the_second_decoder_has_at_most_400_lines() {
    let lines = include_str!("../../../tools/decode.py").lines().count();
    assert!(lines <= 400, "{lines} lines");
}

/// The table `doublewrite` of `docs/format/page.md`, read at the documented places.
fn doublewrite_file(dir: &Path) {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format/page.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let (_, table) = page.split_once("<!-- layout: doublewrite -->").expect("the table is there");
    let file = std::fs::read(dir.join("dw")).expect("the file is there");
    let fields: Vec<u64> = table
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let at: usize = cells[1].parse().expect("offset");
            let len: usize = cells[2].parse().expect("bytes");
            file[at..at + len].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
        })
        .collect();
    assert_eq!([fields[0], fields[2]], [u64::from(u32::from_le_bytes(*b"EKDW")), 4096]);
    assert!((1..=256).contains(&fields[3]), "{} images", fields[3]);
    let first = u64::from_le_bytes(file[16..24].try_into().expect("8 bytes"));
    let image = &file[4096..8192];
    assert!(first == u64::MAX || image[8..16] == first.to_le_bytes());
}

#[test]
fn the_second_decoder_lists_the_same_rows_as_the_library() {
    let dir = tempfile::tempdir().expect("dir");
    let geometry = Geometry { generation_bytes: Some(64 << 10), ..Geometry::default() };
    let options = || Options::new().geometry(geometry);
    let db = Database::open_with(dir.path(), options()).expect("open");
    every_type(&db);
    long_values(&db);
    chunked(&db);
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Int64))
        .column(ColumnSpec::new("filler", ColumnType::Text { max: 100 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_value", &["value"]));
    db.create_table("churn", &spec).expect("create");
    db.create_table("dropped", &spec).expect("create");
    churn(&db, 0, 8_000);
    let built = [IndexSpec::new("built", &["filler", "value desc"])];
    db.add_indexes("churn", &built).expect("add index");
    churn(&db, 8_000, 10_000);
    db.drop_table("dropped").expect("drop");
    assert!(db.stats().get(Metric::RunFlushBytes) > 0, "no run was flushed");
    compare(db, dir.path(), 10_000);
    doublewrite_file(dir.path());

    // Opened again: a new epoch of the log, and a transaction that stays undecided.
    let db = Database::open_with(dir.path(), options()).expect("reopen");
    churn(&db, 20_000, 20_500);
    db.drop_index("churn", "by_value").expect("drop index");
    let txn = begin(&db);
    let table = txn.table("churn").expect("table");
    table.update(&[Int(1)], &[(1, Int(-5))]).expect("update");
    table.delete(&[Int(2)]).expect("delete");
    table.insert(&[Int(-1), Int(0), Text("undecided")]).expect("insert");
    txn.prepare(b"xid").expect("prepare");
    compare(db, dir.path(), 10_000);
}

/// The kinds of edits in the run list of a closed directory.
fn edits(dir: &Path) -> String {
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools");
    let script = "
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import decode as d
_, d.crc32c.database, checkpoint, redo, _ = d.superblock(sys.argv[2])
kinds = set()
for r in map(d.Reader, d.State(sys.argv[2], checkpoint, redo).edits):
    while r.left():
        op = r.number(1)
        kinds.add(op)
        r.varints({3: 2, 7: 5, 8: 2}.get(op, 1))
        op == 8 and r.bytes()
print(*sorted(kinds))";
    let output = Command::new("python3").args(["-c", script, tools]).arg(dir).output();
    let output = output.expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().into()
}

/// Slices that compactions moved, and compactions that a close interrupted between two pieces.
#[test]
fn the_second_decoder_reads_moved_slices_and_cut_compactions() {
    let dir = tempfile::tempdir().expect("dir");
    let geometry = Geometry { generation_bytes: Some(64 << 10), ..Geometry::default() };
    let options = || Options::new().geometry(geometry);
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("noise", ColumnType::Bytes { max: 200 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_noise", &["noise"]))
        .index(IndexSpec::new("by_time", &["id", "noise"]));
    let mut db = Database::open_with(dir.path(), options()).expect("open");
    db.create_table("t", &spec).expect("create");
    let (mut x, mut id) = (1u64, 0);
    for _ in 0..60 {
        for _ in 0..5 {
            let txn = begin(&db);
            let table = txn.table("t").expect("table");
            for _ in 0..50 {
                let noise: Vec<u8> = (0..120)
                    .map(|_| {
                        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        (x >> 56) as u8
                    })
                    .collect();
                table.insert(&[Int(id), Bytes(&noise)]).expect("insert");
                id += 1;
            }
            txn.commit().expect("commit");
        }
        db.close().expect("close");
        let kinds = edits(dir.path());
        if kinds.contains('7') && kinds.contains('8') {
            let read_only = Options { read_only: true, ..options() };
            let db = Database::open_with(dir.path(), read_only).expect("reopen");
            let expected = listing(&db);
            drop(db);
            assert_eq!(decoded(dir.path()), expected);
            return;
        }
        db = Database::open_with(dir.path(), options()).expect("reopen");
    }
    panic!("no close came between two pieces");
}

#[test]
fn the_second_decoder_reads_replaced_rows_from_saved_undo() {
    let dir = tempfile::tempdir().expect("dir");
    let geometry = Geometry { generation_bytes: Some(64 << 10), ..Geometry::default() };
    let options = Options::new().geometry(geometry);
    let db = Database::open_with(dir.path(), options).expect("open");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("text", ColumnType::Text { max: 100 }))
        .primary_key(&["id"]);
    db.create_table("plain", &spec).expect("create");
    let txn = begin(&db);
    let table = txn.table("plain").expect("table");
    for id in 0..1000 {
        table.insert(&[Int(id), Text("first")]).expect("insert");
    }
    txn.commit().expect("commit");
    let txn = begin(&db);
    let table = txn.table("plain").expect("table");
    for id in 0..1000 {
        // Twice, so that the previous version has a stamp of its own.
        table.update(&[Int(id)], &[(1, Text("second"))]).expect("update");
        table.update(&[Int(id)], &[(1, Text("third"))]).expect("update");
        if id % 3 == 0 {
            table.delete(&[Int(id)]).expect("delete");
        }
        table.insert(&[Int(id + 5000), Text("new")]).expect("insert");
    }
    txn.prepare(b"xid").expect("prepare");
    // Later generations are flushed, so that the log behind the redo position begins after the
    // transaction: its undo must be in files.
    db.create_table("busy", &spec.index(IndexSpec::new("by_text", &["text"]))).expect("create");
    for batch in 0..40 {
        let txn = begin(&db);
        let table = txn.table("busy").expect("table");
        for id in batch * 100..batch * 100 + 100 {
            table
                .insert(&[Int(id), Text(&format!("text {}", id * 7919 % 10_007))])
                .expect("insert");
        }
        txn.commit().expect("commit");
    }
    compare(db, dir.path(), 9000);
    assert!(std::fs::read_dir(dir.path().join("undo")).expect("list").count() > 0);
}
