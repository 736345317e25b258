//! Values far larger than memory are written and read as streams, and their space is freed.

use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Isolation, Metric, Options, TableSpec, ValueRef,
};
use std::io::{Read, Write};

const PART: usize = 64 << 10;
const MEMORY: u64 = 16 << 20;

/// The bytes of a value, starting at a multiple of `PART`.
fn part(from: u64, bytes: u64) -> Vec<u8> {
    let (number, len) = (from as usize / PART, (bytes - from).min(PART as u64) as usize);
    (0..len).map(|i| ((i * 31) ^ (number * 7)) as u8).collect()
}

/// The most memory the process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}

/// Bytes allocated to the files of a directory.
fn on_disk(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(dir).expect("a directory");
    files.map(|file| file.and_then(|f| f.metadata()).map_or(0, |m| m.blocks() * 512)).sum()
}

fn stream_through(bytes: u64) {
    let starts = || (0..bytes).step_by(PART);
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path();
    let options = || {
        let mut options = Options::new();
        options.memory_size = MEMORY;
        options.log_size = 32 << 20;
        options
    };
    let db = Database::open_with(path, options()).expect("open");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("film", ColumnType::Bytes { max: u32::MAX }).nullable())
        .primary_key(&["id"]);
    db.create_table("films", &spec).expect("table");

    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let films = txn.table("films").expect("table");
    let mut film = films.large_value().expect("value");
    starts().for_each(|from| film.write_all(&part(from, bytes)).expect("write"));
    if bytes == u64::from(u32::MAX) {
        let error = film.write_all(&[0]).expect_err("beyond the limit");
        assert!(error.to_string().contains("[ValueTooLong]"), "{error}");
    }
    let film = film.finish().expect("finish");
    assert_eq!(film.len(), bytes);
    // The data of the first MiB is logged, and of the rest only its place.
    let (logged, not) =
        (db.stats().get(Metric::LogBytes), db.stats().get(Metric::UnloggedValueBytes));
    assert!(not >= bytes - (2 << 20), "{not} bytes past the log");
    assert!(logged <= (2 << 20) + bytes / 20, "{logged} bytes of log for {bytes} of a value");
    films.insert_large(&[1i64.into(), ValueRef::Null], vec![(1, film)]).expect("insert");
    txn.commit().expect("commit");
    drop(db);

    let db = Database::open_with(path, options()).expect("open again");
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let films = txn.table("films").expect("table");
    let row = films.get(1).expect("get").expect("a row");
    let mut reader = row.open_large(1).expect("a stream");
    let mut found = vec![0; PART];
    for from in starts() {
        let wanted = part(from, bytes);
        reader.read_exact(&mut found[..wanted.len()]).expect("read");
        assert!(found[..wanted.len()] == wanted, "from byte {from}");
    }
    assert_eq!(reader.read(&mut found).expect("the end"), 0);
    drop((reader, row));
    let pages = || on_disk(&path.join("pages"));
    assert!(pages() >= bytes, "{} bytes hold the value", pages());
    assert!(films.delete(1).expect("delete"));
    txn.commit().expect("commit");
    // The value is freed, and its space punched, in the background; the limit guards against
    // hanging.
    let start = std::time::Instant::now();
    while pages() > (16 << 20) + bytes / 20 {
        assert!(start.elapsed().as_secs() < 120, "{} bytes have not come back", pages());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let bar = (MEMORY + MEMORY / 10) + (64 << 20);
    assert!(peak() <= bar, "{} bytes of memory, the bar is {bar}", peak());
    let report = db.check().expect("check");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn a_value_of_64_mib_streams_through_16_mib_of_memory() {
    stream_through(64 << 20);
}

/// Run by `scripts/test.sh`, in a rung of its own.
#[test]
#[ignore = "writes 1 GiB"]
fn a_value_of_1_gib_streams_through_16_mib_of_memory() {
    stream_through(1 << 30);
}

/// The longest allowed value, and one of a byte more; run like the test above.
#[test]
#[ignore = "writes 4 GiB"]
fn a_value_of_4_gib_less_a_byte_streams_through_16_mib_of_memory() {
    stream_through(u64::from(u32::MAX));
}

/// Small updates all over a table several times as large as the pool, with the smallest log: no
/// stretch of time may pass without any. `EVENKEEL_OPS` is their number (10M in the release
/// ladder).
#[test]
#[ignore = "runs for minutes"]
fn small_updates_never_stall_with_the_smallest_log() {
    const KEYS: u64 = 400_000;
    let ops: u64 = std::env::var("EVENKEEL_OPS").map_or(1_000_000, |v| v.parse().expect("number"));
    let dir = tempfile::tempdir().expect("dir");
    let mut options = Options::new();
    options.memory_size = MEMORY;
    options.log_size = 32 << 20;
    options.durability = evenkeel::Durability::Lazy;
    let db = Database::open_with(dir.path(), options).expect("open");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("n", ColumnType::Int64))
        .column(ColumnSpec::new("pad", ColumnType::Bytes { max: 100 }))
        .primary_key(&["id"])
        .index(evenkeel::IndexSpec::new("by_n", &["n"]));
    db.create_table("t", &spec).expect("table");
    let start = std::time::Instant::now();
    let mut per_second: Vec<u64> = Vec::new();
    for batch in 0..ops / 100 {
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begin");
        let t = txn.table("t").expect("table");
        for i in 0..100 {
            let op = batch * 100 + i;
            // The first pass inserts in order, the others update all over.
            let id = if op < KEYS { op } else { op.wrapping_mul(7_919_777) % KEYS };
            let row = [(id as i64).into(), (op as i64).into(), ValueRef::Bytes(&[op as u8; 60])];
            t.put(&row).expect("upsert");
        }
        txn.commit().expect("commit");
        let second = start.elapsed().as_secs() as usize;
        per_second.resize(per_second.len().max(second + 1), 0);
        per_second[second] += 100;
    }
    let seconds = start.elapsed().as_secs_f64();
    let least = per_second[..per_second.len() - 1].iter().min().copied().unwrap_or(0);
    let stats = db.stats();
    let (_, space) = stats.stalls.iter().find(|(name, _)| *name == "log_space").expect("cause");
    println!("{ops} operations in {seconds:.1} s, least in a second {least}, log_space {space:?}");
    assert!(per_second.len() < 3 || least > 0, "{per_second:?}");
    let report = db.check().expect("check");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
