//! Values far larger than memory go in and out as streams, and their space comes back.

use evenkeel::{Access, ColumnSpec, ColumnType, Database, Isolation, Options, TableSpec, ValueRef};
use std::io::{Read, Write};

const PART: usize = 64 << 10;

fn part(number: usize) -> Vec<u8> {
    (0..PART).map(|i| ((i * 31) ^ (number * 7)) as u8).collect()
}

/// The most memory the process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}

fn stream_through(parts: usize) {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path();
    let options = || {
        let mut options = Options::new();
        options.memory_size = 16 << 20;
        options.log_size = 32 << 20;
        options
    };
    let db = Database::open_with(path, options()).expect("open");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("film", ColumnType::Bytes { max: u32::MAX }).nullable())
        .primary_key(&["id"]);
    db.create_table("films", &spec).expect("table");
    let before = peak();

    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let mut films = txn.table("films").expect("table");
    let mut film = films.large_value().expect("value");
    (0..parts).for_each(|n| film.write_all(&part(n)).expect("write"));
    let film = film.finish().expect("finish");
    assert_eq!(film.len(), (parts * PART) as u64);
    films.insert_large(&[1i64.into(), ValueRef::Null], vec![(1, film)]).expect("insert");
    txn.commit().expect("commit");
    drop(db);

    let db = Database::open_with(path, options()).expect("open again");
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let mut films = txn.table("films").expect("table");
    let row = films.get(&[1i64.into()]).expect("get").expect("a row");
    let mut reader = row.open_large(1).expect("a stream");
    let mut bytes = vec![0; PART];
    for n in 0..parts {
        reader.read_exact(&mut bytes).expect("read");
        assert!(bytes == part(n), "part {n}");
    }
    assert_eq!(reader.read(&mut bytes).expect("the end"), 0);
    drop((reader, row));
    assert!(films.delete(&[1i64.into()]).expect("delete"));
    txn.commit().expect("commit");
    let grown = peak().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes of memory more");
    let report = db.check().expect("check");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn a_value_of_64_mib_streams_through_16_mib_of_memory() {
    stream_through((64 << 20) / PART);
}

/// Run by `scripts/test-release.sh`.
#[test]
#[ignore = "writes 1 GiB"]
fn a_value_of_1_gib_streams_through_16_mib_of_memory() {
    stream_through((1 << 30) / PART);
}
