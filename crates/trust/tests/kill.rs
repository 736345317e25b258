//! A process that writes is killed (SIGKILL) at random moments, again and again, in one directory:
//! while it recovers, builds and drops indexes, drops a table, flushes memtables and compacts runs.
//! After each kill every acknowledged commit exists, and every other commit exists as a whole or
//! not at all. Every index equals its table as multisets of (key, pk), in both directions,
//! index-only and through the table, at the newest and at three older snapshots while rows change.
//! The engine gives no row number twice. No run file is left that no index needs, and after the
//! last DROP nothing of the tables' space is left. `EVENKEEL_SEED` repeats the moments of a run,
//! `EVENKEEL_KILLS` is their number.

use evenkeel::ValueRef::Int;
use evenkeel::{Access, Database, Direction, Isolation, Options, Range, Row};
use evenkeel_format::catalog::{IndexState, PartEntry};
use evenkeel_io::Rng;
use evenkeel_trust::work::{self, GONE, GONE_ROWS, Kind, NARROW, Rows, SESSIONS, WIDE};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// The output of the child before it died.
#[derive(Debug, Default)]
struct Told {
    opened: bool,
    recovered_records: u64,
    acknowledged: [i64; SESSIONS as usize],
    /// The greatest number of a row whose commit was acknowledged.
    number: u64,
    in_build: bool,
    in_drop: bool,
    in_table_drop: bool,
    flushes: u64,
    compactions: u64,
    checkpoints: u64,
    /// Indexes whose build compacted its runs.
    built_compactions: u64,
}

impl Told {
    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let n = |i: usize| words[i].parse::<u64>().expect("a number");
        match words[0] {
            "R" => (self.opened, self.recovered_records) = (true, n(1)),
            "A" => {
                self.acknowledged[n(1) as usize] = n(2) as i64;
                self.number = self.number.max(n(3));
            }
            "B" => (self.in_build, self.in_drop) = (true, false),
            "V" => {
                (self.in_build, self.in_drop) = (false, true);
                (self.flushes, self.compactions, self.checkpoints) = (n(1), n(2), n(3));
                self.built_compactions = n(4);
            }
            "D" => self.in_drop = false,
            "T" => self.in_table_drop = true,
            "U" => self.in_table_drop = false,
            _ => panic!("the writing process failed: {line}"),
        }
    }
}

fn start(dir: &Path, kind: Kind) -> Child {
    Command::new(env!("CARGO_BIN_EXE_evenkeel-trust-child"))
        .args(["write", &dir.display().to_string(), kind.name])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts")
}

/// Lets a child write and kills it `wait` after its start, or `wait` after it has printed a word.
fn kill_after(dir: &Path, kind: Kind, wait: Duration, word: Option<&str>) -> Told {
    let mut child = start(dir, kind);
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    let (tell, told) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in out.lines() {
            // No line is cut, not even the last one: writes to the pipe are atomic.
            let _ = tell.send(line.expect("text"));
        }
    });
    let mut all = Told::default();
    while let Some(word) = word {
        let line =
            told.recv_timeout(Duration::from_secs(300)).expect("it comes to that in minutes");
        all.line(&line);
        if line.starts_with(word) {
            break;
        }
    }
    std::thread::sleep(wait);
    child.kill().expect("killed");
    child.wait().expect("gone");
    reader.join().expect("the pipe is read to its end");
    told.iter().for_each(|line| all.line(&line));
    all
}

/// These columns of all rows in the order of a scan of the table or of an index (index-only, or
/// through the table).
fn scanned(
    txn: &mut evenkeel::Txn,
    index: Option<(&str, bool)>,
    columns: &[String],
    direction: Direction,
) -> Vec<String> {
    let (mut row, mut all) = (Row::new(), Vec::new());
    let take = |row: &Row| {
        let value = |name: &String| row.value(name).expect("a column");
        format!("{:?}", columns.iter().map(value).collect::<Vec<_>>())
    };
    let table = txn.table("t").expect("table");
    match index {
        None => {
            let mut scan = table.scan(Range::ALL, direction).expect("scan");
            while scan.next(&mut row).expect("row") {
                all.push(take(&row));
            }
        }
        Some((name, alone)) => {
            let mut index = table.index(name).expect("index");
            if alone {
                index = index.keys_only();
            }
            let mut scan = index.scan(Range::ALL, direction).expect("scan");
            while scan.next(&mut row).expect("row") {
                all.push(take(&row));
            }
        }
    }
    all
}

/// The rows of a scan as a multiset; a backward scan must give the same rows in the opposite order.
fn both_ways(
    txn: &mut evenkeel::Txn,
    index: Option<(&str, bool)>,
    columns: &[String],
) -> Vec<String> {
    let mut rows = scanned(txn, index, columns, Direction::Forward);
    let back = scanned(txn, index, columns, Direction::Backward);
    assert!(rows.iter().eq(back.iter().rev()), "{index:?}: another way back");
    rows.sort_unstable();
    rows
}

/// Checks in this transaction's snapshot that every index equals the table, as multisets of (key,
/// pk) by index-only scans and of whole rows through the table, in both directions. Returns the
/// rows: id, n, value.
fn agree(txn: &mut evenkeel::Txn) -> Vec<(i64, i64, i64)> {
    let def = txn.table("t").expect("table").definition();
    let all: Vec<String> = def.live_columns().iter().map(|c| c.name.clone()).collect();
    let table = both_ways(txn, None, &all);
    for index in &def.indexes {
        if !matches!(index.entry.state, IndexState::Valid(_)) {
            continue;
        }
        let column = |part: &PartEntry| def.column_by_id(part.column).expect("there").name.clone();
        let mut key: Vec<String> = index.entry.parts.iter().map(column).collect();
        key.push("id".to_string());
        let name = index.name.as_str();
        assert!(both_ways(txn, Some((name, false)), &all) == table, "{name} through the table");
        let (alone, wanted) =
            (both_ways(txn, Some((name, true)), &key), both_ways(txn, None, &key));
        assert!(alone == wanted, "{name} alone: {} for {}", alone.len(), wanted.len());
    }
    let (mut row, mut rows) = (Row::new(), Vec::new());
    let table = txn.table("t").expect("table");
    let mut scan = table.scan(Range::ALL, Direction::Forward).expect("scan");
    let int = |row: &Row, name: &str| match row.value(name).expect("a column") {
        Int(n) => n,
        other => panic!("not a number: {other:?}"),
    };
    while scan.next(&mut row).expect("row") {
        rows.push((int(&row, "id"), int(&row, "n"), int(&row, "value")));
    }
    rows
}

/// Checks that the rows are those of `known` after the further commits that each session's marker
/// counts.
fn verify(db: &Database, kind: Kind, known: &mut [(i64, Rows)], told: &Told) {
    let problems = db.check().expect("check").problems;
    assert!(problems.is_empty(), "{problems:#?}");
    if db.definition("t").is_err() {
        assert_eq!(told.acknowledged, [0; SESSIONS as usize]);
        return;
    }
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begin");
    let mut found: Vec<Rows> = vec![Rows::new(); SESSIONS as usize];
    for (id, n, value) in agree(&mut txn) {
        found[(id % SESSIONS) as usize].insert(id, (n, value));
    }
    for (session, ((at, rows), found)) in known.iter_mut().zip(found).enumerate() {
        let session = session as i64;
        let acknowledged = told.acknowledged[session as usize].max(*at);
        let reached = found.get(&session).map_or(0, |(n, _)| *n);
        assert!(reached >= acknowledged, "session {session}: {acknowledged} told, {reached} there");
        assert!(reached <= acknowledged + 1, "session {session}: {reached} was never made");
        while *at < reached {
            *at += 1;
            work::foretell(kind, rows, session, *at);
        }
        assert!(*rows == found, "session {session}: the rows are not those of commit {reached}");
    }
}

/// Checks that the next row number exceeds all numbers given so far.
fn next_number(db: &Database, given: &mut u64) {
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let next = work::renumber(&mut txn, -1).expect("a number");
    txn.commit().expect("commit");
    assert!(next > *given, "{next} is given after {given}");
    *given = next;
}

/// Writes between snapshots. Each snapshot must still read, by every access path, what it read at
/// first.
fn older_snapshots(db: &Database) {
    let mut held = Vec::new();
    for round in 0..4 {
        let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begin");
        let rows = agree(&mut txn);
        held.push((txn, rows));
        let writer = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
        for id in (0..60).map(|i| 5_000_000 + i * (round + 1)) {
            let row = [Int(id), Int(9), Int(round), Int(id % 97), evenkeel::ValueRef::Bytes(b"x")];
            writer.table("t").expect("table").put(&row).expect("upsert");
        }
        writer.commit().expect("commit");
    }
    for (txn, rows) in &mut held {
        assert_eq!(agree(txn), *rows);
    }
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
    let table = txn.table("t").expect("table");
    for id in 5_000_000..5_000_300 {
        table.delete(&[Int(id)]).expect("delete");
    }
    txn.commit().expect("commit");
    drop(held);
}

/// Checks that write to the database. They run in the directory itself or in a copy; after a copy,
/// the next child continues with the files that the kill has left.
fn verify_writing(dir: &Path, kind: Kind, known: &mut [(i64, Rows)], told: &Told, given: &mut u64) {
    let db = Database::open_with(dir, work::options(kind)).expect("reopens");
    verify(&db, kind, known, told);
    gone_whole(&db, told);
    no_orphans(&db, dir);
    // A child that died early has created none or one of the tables.
    if db.definition("t").is_ok() {
        next_number(&db, given);
        older_snapshots(&db);
    }
    db.close().expect("closes");
}

/// Checks that the table whose drop was cut exists with all its rows, or not at all.
fn gone_whole(db: &Database, told: &Told) {
    if told.in_table_drop && db.definition(GONE).is_ok() {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begin");
        let table = txn.table(GONE).expect("table");
        let (mut row, mut rows) = (Row::new(), 0);
        let mut scan = table.scan(Range::ALL, Direction::Forward).expect("scan");
        while scan.next(&mut row).expect("row") {
            rows += 1;
        }
        assert_eq!(rows, GONE_ROWS, "rows of a table whose drop was cut");
    }
}

/// How long unneeded files and space may remain, because the background removes them.
const SPACE_BACK: Duration = Duration::from_secs(60);

/// Waits until `look` returns true. The error is what it found last.
fn comes_true<T>(look: impl Fn() -> (bool, T)) -> Result<(), T> {
    let start = std::time::Instant::now();
    loop {
        match look() {
            (true, _) => return Ok(()),
            (false, found) if start.elapsed() > SPACE_BACK => return Err(found),
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Checks that an index needs each run file.
fn no_orphans(db: &Database, dir: &Path) {
    let look = || {
        let stats = db.table_stats().expect("statistics");
        let runs: u64 = stats.iter().flat_map(|t| &t.indexes).map(|index| index.runs).sum();
        let files = std::fs::read_dir(dir.join("runs")).map_or(0, |files| files.count() as u64);
        (files <= runs, (files, runs))
    };
    if let Err((files, runs)) = comes_true(look) {
        panic!("{files} files of {runs} runs");
    }
}

/// Checks that a database without tables takes no more space than an empty one.
fn space_back(dir: &Path, kind: Kind) {
    let taken = || {
        let pages = work::allocated_kib(&dir.join("pages"));
        (pages, pages + work::allocated_kib(&dir.join("runs")))
    };
    let db = Database::open_with(dir, work::options(kind)).expect("reopens");
    let (bar, before) = (work::empty_kib(taken().0), taken().1);
    for table in db.tables() {
        db.drop_table(&table).expect("dropped");
    }
    if let Err(left) = comes_true(|| (taken().1 <= bar, taken().1)) {
        panic!("{left} KiB of {before} are left of nothing, more than {bar}");
    }
    println!("{} KiB of {before} are left of no tables, of {bar} at most", taken().1);
    no_orphans(&db, dir);
    db.close().expect("closes");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("read") {
        let path = entry.expect("an entry").path();
        let to = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(std::fs::copy(&path, &to).expect("copied")),
        }
    }
}

/// Cuts the list of hot pages, which is written without a sync: a crash of the machine may leave
/// half of it.
fn cut_hot_pages(dir: &Path, rng: &mut Rng) {
    let path = dir.join("evenkeel.warm");
    if let Ok(list) = std::fs::read(&path)
        && rng.below(3) == 0
    {
        std::fs::write(&path, &list[..rng.below(list.len() as u64 + 1) as usize]).expect("cut");
    }
}

#[test]
fn acknowledged_commits_survive_repeated_kills() {
    run(WIDE, 56);
}

/// The process builds indexes while transactions and savepoints over the same few rows are rolled
/// back.
#[test]
fn indexes_built_among_rollbacks_survive_kills() {
    run(NARROW, 24);
}

/// Runs take turns: between fork and exec, a child of one run holds the lock file that the parent
/// has open in the directory of the other run.
static TURN: Mutex<()> = Mutex::new(());

fn run(kind: Kind, kills: u64) {
    let _turn = TURN.lock();
    let seed = number("EVENKEEL_SEED", 7);
    let kills = number("EVENKEEL_KILLS", kills);
    println!("EVENKEEL_SEED={seed} EVENKEEL_KILLS={kills} {}", kind.name);
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().expect("directory");
    let mut known: Vec<(i64, Rows)> = vec![(0, Rows::new()); SESSIONS as usize];
    let (mut in_recovery, mut in_build, mut in_drop, mut in_table_drop) = (0, 0, 0, 0);
    let (mut replayed, mut flushes, mut compactions, mut checkpoints) = (0, 0, 0, 0);
    let mut built_compactions = 0;
    let mut given = 0;
    for round in 0..kills {
        let (word, most) = match round % 8 {
            3 | 7 => (None, 60_000),
            // A drop is so short that a random moment hardly ever falls into one.
            1 => (Some("V"), 1_000),
            5 => (Some("T"), 1_000),
            _ => (Some("R"), 700_000),
        };
        cut_hot_pages(dir.path(), &mut rng);
        let told = kill_after(dir.path(), kind, Duration::from_micros(rng.below(most)), word);
        in_recovery += u64::from(!told.opened);
        in_build += u64::from(told.in_build);
        in_drop += u64::from(told.in_drop);
        in_table_drop += u64::from(told.in_table_drop);
        replayed += u64::from(told.recovered_records > 0);
        flushes += told.flushes;
        compactions += told.compactions;
        checkpoints += told.checkpoints;
        built_compactions += told.built_compactions;
        given = given.max(told.number);
        if round % 4 == 0 {
            // The parent continues in the same directory and closes the database.
            verify_writing(dir.path(), kind, &mut known, &told, &mut given);
        } else if dir.path().join("evenkeel.super").exists() {
            let options = Options { read_only: true, ..work::options(kind) };
            let db = Database::open_with(dir.path(), options).expect("opens");
            verify(&db, kind, &mut known, &told);
            drop(db);
            let other = tempfile::tempdir().expect("directory");
            copy(dir.path(), other.path());
            verify_writing(other.path(), kind, &mut known, &told, &mut given.clone());
        }
    }
    space_back(dir.path(), kind);
    let commits: i64 = known.iter().map(|(n, _)| n).sum();
    println!(
        "{kills} kills: {in_recovery} before it had opened, {in_build} in ADD INDEX, {in_drop} in \
         DROP INDEX, {in_table_drop} in DROP TABLE; {replayed} recoveries read log; {commits} \
         commits, none lost; {flushes} flushes, {compactions} compactions, {checkpoints} \
         checkpoints; the runs of {built_compactions} indexes compacted by ADD INDEX"
    );
    let reached = in_recovery > 0 && in_build > 0 && flushes > 0 && compactions > 0 && replayed > 0;
    let reached = reached && checkpoints > 0 && built_compactions > 0;
    let reached = reached && in_drop > 0 && in_table_drop > 0;
    assert!(kills < 20 || reached, "not every kind of moment was met");
}
