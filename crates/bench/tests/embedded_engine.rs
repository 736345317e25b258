//! A whole run on the embedded engine: the stored rows are those that the benchmark counted.

use clap::Parser;
use evenkeel::{Access, Database, Direction, Isolation, Range, Row, ValueRef};
use evenkeel_bench::{Flags, RunResult, open_engine, run};
use std::path::Path;
use std::sync::atomic::AtomicBool;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
}

fn go(dir: &Path, line: &str) -> RunResult {
    let dir = dir.to_str().expect("plain path");
    let lazy = if line.contains("--durability") { "" } else { "--durability 2" };
    let words = ["bench", "--memory", "16M", "--dir", dir].into_iter();
    let words = words.chain(lazy.split_whitespace()).chain(line.split_whitespace());
    let line = Line::try_parse_from(words);
    let options = line.expect("flags are known").flags.options().expect("flags are valid");
    run(&options, &open_engine, &AtomicBool::new(false)).expect("the run ends well")
}

/// The number of open files below `dir` that bypass the page cache.
fn direct_files(dir: &Path) -> usize {
    let flags = |fd: &std::ffi::OsStr| {
        let info = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(fd)).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        i32::from_str_radix(flags.trim(), 8).ok()
    };
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux").flatten();
    let ours = open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(dir)));
    ours.filter(|fd| flags(&fd.file_name()).is_some_and(|f| f & O_DIRECT != 0)).count()
}

/// The value on x86-64 and most other processors.
const O_DIRECT: i32 = 0o40000;

#[test]
fn files_use_direct_io_as_the_flag_says() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (word, wanted) in [("true", true), ("false", false)] {
        let store = dir.path().join(word);
        let words = ["bench", "--direct-io", word, "--dir", store.to_str().expect("plain path")];
        let options = Line::try_parse_from(words).expect("flags are known").flags.options();
        let options = options.expect("flags are valid");
        std::fs::create_dir(&store).expect("creates");
        let machine = evenkeel_bench::machine::describe(&store, options.direct_io).expect("looks");
        let engine = evenkeel_bench::embedded::open(&options).expect("opens");
        // The file system may not support direct I/O.
        assert!(wanted || !machine.direct_io);
        assert_eq!(direct_files(&store) > 0, machine.direct_io, "{word}");
        drop(engine);
    }
}

/// Counts the entries of the table and of each index.
fn counts(dir: &Path, table: &str) -> Vec<u64> {
    let db = Database::open(dir).expect("opens");
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let mut row = Row::new();
    let mut scan = txn.table(table).expect("there").scan(Range::ALL, Direction::Forward);
    let scan = scan.as_mut().expect("scans");
    let mut counts = vec![0];
    while scan.next(&mut row).expect("reads") {
        assert!(matches!(row.value("transactionid"), Ok(ValueRef::Int(id)) if id > 0));
        counts[0] += 1;
    }
    for name in ["marketsegment", "registersegment", "pdc"] {
        let index = txn.table(table).expect("there").index(name).expect("there");
        let mut scan = index.keys_only().scan(Range::ALL, Direction::Forward).expect("scans");
        let mut n = 0;
        while scan.next(&mut row).expect("reads") {
            n += 1;
        }
        counts.push(n);
    }
    counts
}

#[test]
fn every_counted_row_is_in_the_tables() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = dir.path().join("store");
    let line = "--rows 4k,1k --clients 2 --deletes --steps l.i0,l.x,l.i1,q100.1 --seconds 1 \
                --snapshot-seconds 1";
    let result = go(&store, line);
    let rows: Vec<u64> = result.steps.iter().map(|s| s.rows).collect();
    assert_eq!(rows[..3], [8000, 8000, 2000]);
    assert_eq!(result.steps[2].rows_deleted, 2000);
    assert!(result.steps[3].queries_per_s > 0.0 && result.steps[0].bytes.wal > 0);
    // One client may insert more in a second than the other.
    let left = 8000 + result.steps[3].rows - result.steps[3].rows_deleted;
    let found = ["purchases1", "purchases2"].map(|table| {
        let counts = counts(&store, table);
        assert!(counts.iter().all(|n| *n == counts[0]), "{counts:?}");
        counts[0]
    });
    assert_eq!(found[0] + found[1], left, "{found:?}");
    let result = go(&store, "--rows 4k,1k --clients 2 --steps l.i1,q10.1 --seconds 1 --queries pk");
    assert_eq!((result.steps[0].rows, result.steps[0].rows_deleted), (2000, 0));
    assert!(result.steps[1].op.query.n > 0);
}

#[test]
fn patterned_rows_are_in_the_tables() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let line = "--rows 3k,1k --steps l.i0,l.x,l.i1 --pattern pk=inf \
                --pattern marketsegment=nAsc:2,nDesc:1 --pattern pdc=inf";
    let result = go(&dir.path().join("store"), line);
    assert_eq!(result.patterns["pk"], "inf");
    assert_eq!(counts(&dir.path().join("store"), "purchases1"), [4000; 4]);
}

/// Values of `data` that updates leave: 20 hexadecimal digits.
fn updated(dir: &Path, table: &str) -> u64 {
    let db = Database::open(dir).expect("opens");
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let table = txn.table(table).expect("there");
    let mut scan = table.scan(Range::ALL, Direction::Forward).expect("scans");
    let (mut row, mut n) = (Row::new(), 0);
    while scan.next(&mut row).expect("reads") {
        let Ok(ValueRef::Text(data)) = row.value("data") else { panic!("a text") };
        n += u64::from(data.len() == 20 && data.bytes().all(|b| b.is_ascii_hexdigit()));
    }
    n
}

#[test]
fn updates_and_reads_reach_the_rows_they_name() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = dir.path().join("store");
    let result = go(&store, "--rows 1k,6k --steps l.i0,u,p:0.2s --batch 100,50,3");
    let [load, update, read] = &result.steps[..] else { panic!("three steps") };
    assert_eq!((load.rows, update.rows, read.rows), (1000, 6000, 0));
    assert!(update.bytes.wal > 0 && update.op.insert.n == 2000 && update.op.query.n == 0);
    // Every transaction of `p` found all the rows that it asked for.
    assert!(read.op.query.n > 0);
    assert_eq!((read.queries_per_s * read.seconds).round() as u64, 100 * read.op.query.n);
    // 6,000 random draws of 1,000 rows leave out e^-6 of them.
    let changed = updated(&store, "purchases1");
    assert!((980..=1000).contains(&changed), "{changed}");
}

/// Microseconds in which some thread of this machine waited for a processor; none if the system
/// does not report it.
fn short_of_processors_us() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    text.split_whitespace().find_map(|word| word.strip_prefix("total=")?.parse().ok())
}

/// G6: with far too little memory and a sync for each commit, named causes explain the waits of
/// clients, except for a twentieth and for waits for a processor.
#[test]
fn every_wait_has_a_cause() {
    const CLIENTS: u64 = 2;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let before = short_of_processors_us();
    let line = "--rows 40k,20k --clients 2 --durability 1 --steps l.i0,l.x,l.i1,q200.1 --seconds 2";
    let result = go(&dir.path().join("store"), line);
    let scarce = short_of_processors_us().zip(before).map(|(now, before)| now - before);
    for step in &result.steps {
        println!("{}: {:?} of {:?}", step.name, step.unexplained_share(), step.waits);
    }
    let all: u64 = result.waits.values().sum();
    let unexplained = result.waits["unexplained"];
    println!("{unexplained} us of {all} us unexplained; short of processors {scarce:?} us");
    assert!(result.steps[2].unexplained_share().is_some() && all > 100_000, "nobody has waited");
    let Some(scarce) = scarce else { return };
    assert!(unexplained <= all / 20 + CLIENTS * scarce, "{unexplained} us of {all} us");
}

/// The JSON of a run holds the decisions of background work, and the laws recompute the same
/// outputs.
#[test]
fn laws_repeat_the_decisions_in_the_json_of_a_run() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let line = "--rows 40k,40k --steps l.i0,l.x,l.i1,u:3s";
    let result = go(&dir.path().join("store"), line);
    let text = serde_json::to_string(&result).expect("plain data");
    let result: RunResult = serde_json::from_str(&text).expect("its own format");
    let mut made = std::collections::BTreeMap::<&str, usize>::new();
    for step in &result.steps {
        for law in evenkeel::Law::ALL {
            let Some(decisions) = step.decisions.get(law.name()) else { continue };
            assert_eq!(decisions.outputs.len(), law.fields().1.len());
            for (second, inputs, outputs) in &decisions.made {
                assert!(*second < step.per_second.len().max(1), "{}: {second}", step.name);
                assert_eq!(evenkeel::decide(law, inputs).as_ref(), Some(outputs), "{law:?}");
                *made.entry(law.name()).or_default() += 1;
            }
        }
    }
    // The law decides ten times a second while there are dirty pages. With changed inputs it
    // decides differently.
    assert!(made["flush"] >= 10 && made["compaction"] >= 1 && made["governor"] >= 1, "{made:?}");
    // Where the limit of the rate's change decides, other inputs give the same output; that must
    // not hold everywhere.
    let decisions = &result.steps[3].decisions["flush"];
    let differs = |inputs: &[u64], outputs: &Vec<u64>| {
        let mut other = inputs.to_vec();
        other[3] += 100_000;
        other[0] += 100_000;
        other[12] = 1 << 30;
        evenkeel::decide(evenkeel::Law::Flush, &other).as_ref() != Some(outputs)
    };
    assert!(decisions.made.iter().any(|(_, inputs, outputs)| differs(inputs, outputs)));
    let (_, inputs, _) = decisions.made.last().expect("some");
    assert_eq!(evenkeel::decide(evenkeel::Law::Flush, &inputs[1..]), None);
}
