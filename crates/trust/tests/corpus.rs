//! Directories that earlier releases wrote are opened by this one: checked, read row by row against
//! the listing that was made with them, written to, closed and opened again. Their archives lie in
//! `crates/trust/corpus`; no test writes one.

use evenkeel::ValueRef::{Bytes, Int, Text, UInt};
use evenkeel::{
    Access, Code, Database, Direction, Isolation, LockWait, Options, Range, Row, Value,
};
use evenkeel_io::sim::{Explore, SimDisk, SimEnv, SimOptions};
use evenkeel_io::{AlignedBuf, OpenMode};
use evenkeel_trust::corpus::{self, Member};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories and listings must stay small enough for every checkout.
const CORPUS_BYTES_MAX: u64 = 2 << 20;
const FIRST: &[u8] = b"corpus early";
const SECOND: &[u8] = b"corpus late";

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Archives with the release that each is of, from the list of hashes.
fn archives() -> Vec<(String, String)> {
    let sums = fs::read_to_string(home().join("SHA256SUMS")).expect("a list of hashes");
    let names = sums.lines().filter_map(|line| line.split_whitespace().nth(1));
    let archives = names.filter_map(|name| name.strip_suffix(".corpus"));
    let release = |name: &str| name.split('-').next().expect("a release").to_string();
    archives.map(|name| (name.to_string(), release(name))).collect()
}

#[test]
fn the_corpus_is_small_and_as_it_was_made() {
    let sums = fs::read_to_string(home().join("SHA256SUMS")).expect("a list of hashes");
    let (mut listed, mut bytes) = (BTreeSet::new(), 0);
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").expect("a hash and a name");
        let content = fs::read(home().join(name)).expect("a file of the corpus");
        let found: String =
            Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, sum, "{name}");
        bytes += content.len() as u64;
        listed.insert(name.to_string());
    }
    for entry in fs::read_dir(home()).expect("the corpus").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(
            listed.contains(&name) || ["README.md", "SHA256SUMS"].contains(&&*name),
            "{name} is not in SHA256SUMS"
        );
    }
    assert!(bytes <= CORPUS_BYTES_MAX, "{bytes} bytes");
    assert!(archives().len() >= 3);
}

fn options() -> Options {
    Options { log_size: 32 << 20, memory_size: 32 << 20, create: false, ..Options::default() }
}

/// All rows, in the form of the listing.
fn listing(db: &Database) -> String {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let (mut tables, mut out) = (db.tables(), String::new());
    tables.sort();
    for table in tables {
        let mut scan =
            txn.table(&table).expect("there").scan(Range::ALL, Direction::Forward).expect("scans");
        let (mut row, mut lines) = (Row::new(), Vec::new());
        while scan.next(&mut row).expect("reads") {
            let values = row.values().expect("decodes");
            lines.push(corpus::show_row(&values.iter().map(Value::as_ref).collect::<Vec<_>>()));
        }
        lines.sort();
        out += &format!("table {table}: {} rows\n", lines.len());
        lines.iter().for_each(|line| out += &format!("{line}\n"));
    }
    out
}

/// The two listings of a release: before and after the first prepared transaction commits.
fn wanted(release: &str) -> (String, String) {
    let path = home().join(format!("{release}.rows"));
    let text = fs::read_to_string(path).expect("a listing");
    let at = text.find("changed by").expect("two parts");
    let (before, changes) = text.split_at(at);
    let lines = |sign: char| changes.lines().filter_map(move |line| line.strip_prefix(sign));
    let (gone, new): (BTreeSet<_>, BTreeSet<_>) =
        (lines('-').map(|l| &l[1..]).collect(), lines('+').map(|l| &l[1..]).collect());
    let mut after: Vec<&str> = before.lines().filter(|line| !gone.contains(line)).collect();
    after.extend(&new);
    (before.to_string(), sorted(after.iter().copied()))
}

/// Fails with the first line that differs.
fn same(found: &str, wanted: &str, what: &str) {
    let (mut found, mut wanted) = (found.lines(), wanted.lines());
    loop {
        let (found, wanted) = (found.next(), wanted.next());
        assert_eq!(found, wanted, "{what}: found, wanted");
        if found.is_none() {
            return;
        }
    }
}

/// The lines without their order: a changed listing is compared as a set.
fn sorted<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut lines: Vec<_> = lines.collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn check(db: &Database, what: &str) {
    let report = db.check().expect("checks");
    assert_eq!(report.problems, [""; 0], "{what}");
    assert!(report.rows > 0 && report.entries > 0, "{what}");
}

/// New rows, changed rows, long values, a new index and a new table beside the old ones.
fn write(db: &Database) {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    let people = txn.table("people").expect("there");
    for id in 200_000..200_300i64 {
        let name = format!("newcomer {id}");
        people.insert(&[Int(id), Text(&name), Text("Narvik"), Int(1)]).expect("inserts");
    }
    assert!(people.update(&[Int(1)], &[(3, Int(88))]).expect("updates"));
    assert!(people.delete(&[Int(2)]).expect("deletes"));
    let long = vec![7; 50_000];
    let documents = txn.table("documents").expect("there");
    documents.insert(&[Text("new"), Bytes(&long), UInt(50_000)]).expect("inserts");
    let changed = documents.update(&[Text("document 003")], &[(1, Bytes(&long))]);
    assert!(changed.expect("updates"));
    txn.commit().expect("commits");
    let index = evenkeel::IndexSpec::new("new_index", &["half desc"]);
    db.add_indexes("loaded", &[index]).expect("adds");
    let spec = evenkeel::TableSpec::new()
        .column(evenkeel::ColumnSpec::new("id", evenkeel::ColumnType::Int64))
        .primary_key(&["id"]);
    db.create_table("later", &spec).expect("creates");
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    txn.table("later").expect("there").insert(&[Int(5)]).expect("inserts");
    txn.commit().expect("commits");
}

fn has_written(db: &Database) {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let people = txn.table("people").expect("there");
    let row = people.get(&[Int(200_299)]).expect("reads").expect("a row");
    assert_eq!(row.value("name").expect("a name"), Text("newcomer 200299"));
    assert!(people.get(&[Int(2)]).expect("reads").is_none());
    let documents = txn.table("documents").expect("there");
    let row = documents.get(&[Text("document 003")]).expect("reads").expect("a row");
    assert_eq!(row.value(1).expect("a value"), Bytes(&vec![7; 50_000]));
    assert_eq!(txn.table("later").expect("there").last().expect("reads").expect("a row").len(), 1);
}

/// The prepared transactions are there, hold their rows, and are decided.
fn decide(db: &Database) {
    let prepared: BTreeSet<_> = db.prepared().into_iter().collect();
    assert_eq!(prepared, BTreeSet::from([FIRST.to_vec(), SECOND.to_vec()]));
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    let mut row = Row::new();
    for id in [10_000, 40_300] {
        let people = txn.table("people").expect("there");
        let locked = people.get_for_update(&[Int(id)], LockWait::NoWait, &mut row);
        assert_eq!(locked.expect_err("is locked").code(), Code::LockNotAvailable, "{id}");
    }
    drop(txn);
    db.commit_prepared(FIRST).expect("commits");
    db.rollback_prepared(SECOND).expect("rolls back");
}

fn members(name: &str) -> Vec<Member> {
    let archive = fs::read(home().join(format!("{name}.corpus"))).expect("an archive");
    corpus::unpack(&archive).expect("an archive")
}

/// A directory of superblock version 1 is converted when it is opened for writing. A crash at any
/// step of that open leaves a directory of version 1 or 2, and the next open has every row. Each
/// third step is tried.
#[test]
fn an_open_that_converts_may_crash_at_any_step() {
    let disk = SimDisk::new(1);
    let sim = SimEnv::on(disk.clone(), SimOptions::quiet(1));
    for Member { path, bytes } in members("0.1-killed-4k") {
        if let Some((dir, _)) = path.split_once('/') {
            sim.env().create_dir(dir).expect("makes");
        }
        let file = sim.env().open(&path, OpenMode::READ_WRITE).expect("opens");
        let mut buf = AlignedBuf::new(bytes.len().next_multiple_of(4096));
        buf[..bytes.len()].copy_from_slice(&bytes);
        file.write_at(&buf[..bytes.len()], 0).expect("writes");
        file.sync().expect("syncs");
    }
    for dir in ["", "wal", "pages", "runs", "undo"] {
        sim.env().create_dir(dir).expect("makes");
        sim.env().sync_dir(dir).expect("syncs");
    }
    let (before, _) = wanted("0.1");
    let open = |sim: &SimEnv| Database::open_with("unused", options().env(sim.env()));
    let (old, new) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let script = |sim: &SimEnv, _: &Arc<()>| drop(open(sim));
    let explored = Explore { stride: 3, ..Explore::new(1) }.run(&disk, script, |after, (), at| {
        let read_only = Options { read_only: true, ..options() };
        let shown = Database::open_with("unused", read_only.env(after.env()));
        let versions = shown.unwrap_or_else(|e| panic!("{at}: {e}")).info().versions;
        let count = if versions[0] == 1 { &old } else { &new };
        count.set(count.get() + 1);
        let db = open(after).unwrap_or_else(|e| panic!("{at}: {e}"));
        let info = db.info();
        assert!(info.versions[0] == 2 && info.timeline != 0, "{at}: {info:?}");
        same(&listing(&db), &before, &at.to_string());
    });
    println!("{explored:?}: {} of version 1, {} of version 2", old.get(), new.get());
    assert!(old.get() > 0 && new.get() > 0);
}

#[test]
fn directories_of_earlier_releases_open_with_every_row_and_are_written_to() {
    for (name, release) in archives() {
        let members = members(&name);
        let dir = tempfile::tempdir().expect("a directory");
        corpus::write_directory(dir.path(), &members).expect("writes");
        let (before, after) = wanted(&release);

        // Reading changes no file.
        let read_only = Options { read_only: true, ..options() };
        let db = Database::open_with(dir.path(), read_only).expect("opens to read");
        let info = db.info();
        assert_eq!((info.versions[0], info.timeline), (1, 0), "{name} stays as it is");
        check(&db, &name);
        same(&listing(&db), &before, &format!("{name}, opened to read"));
        drop(db);
        let unchanged = corpus::read_directory(dir.path()).expect("reads");
        assert_eq!(unchanged.len(), members.len(), "{name}");
        for (old, new) in members.iter().zip(&unchanged) {
            assert!(old == new, "{name}: {} was changed by a reader", old.path);
        }

        let db = Database::open_with(dir.path(), options()).expect("opens");
        assert_eq!(db.recovery().clean, name.contains("closed"), "{name}");
        let converted = db.info();
        assert!(converted.versions[0] == 2 && converted.timeline != 0, "{name}");
        check(&db, &name);
        same(&listing(&db), &before, &name);
        decide(&db);
        same(&sorted(listing(&db).lines()), &after, &format!("{name}, decided"));
        write(&db);
        check(&db, &name);
        db.close().expect("closes");

        let db = Database::open_with(dir.path(), options()).expect("opens again");
        assert!(db.recovery().clean, "{name}");
        check(&db, &name);
        has_written(&db);
        let info = db.info();
        assert_eq!((info.versions[0], info.timeline), (2, converted.timeline), "{name}");
        assert_eq!(db.table_info("people").expect("there").mark, 77, "{name}");
        db.close().expect("closes");
    }
}
