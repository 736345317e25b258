//! Runs Hermitage's ten anomalies (github.com/ept/hermitage) at four isolation levels through the
//! library, and compares the table of results with the promises of each level and with the page
//! `docs/guide/isolation.md`. Further tests check what Hermitage does not cover: the first updater
//! wins, at the statement; autocommit statements wait and never conflict; disjoint work never
//! waits; a deadlock is found by search, not by a timeout; NOWAIT and SKIP; phantoms at
//! SERIALIZABLE.

use evenkeel::ValueRef::Int;
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Direction, Error, IndexSpec, Isolation, Kind,
    LockWait, Metric, Options, Range, Result, Row, TableSpec, Txn,
};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

const LEVELS: [(&str, Isolation); 4] = [
    ("READ UNCOMMITTED", Isolation::ReadUncommitted),
    ("READ COMMITTED", Isolation::ReadCommitted),
    ("REPEATABLE READ", Isolation::RepeatableRead),
    ("SERIALIZABLE", Isolation::Serializable),
];

/// The outcome of an anomaly. A small lock timeout ends a statement that would wait for the other
/// session; the outcome is then "waits", and the anomaly does not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The anomaly happened.
    Allowed,
    /// No session waited or failed, and the results are those of running the transactions one after
    /// the other.
    Prevented,
    /// A statement had to wait for the other session.
    Waits,
    /// A statement failed with `RowChanged`.
    Conflict,
}

use Outcome::{Allowed, Conflict, Prevented, Waits};

fn database() -> Database {
    let options = Options { lock_wait_timeout: Duration::from_secs(50), ..Options::in_memory() };
    let db = Database::open_with("memory", options).expect("open");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("value", ColumnType::Int64))
        .primary_key(&["id"]);
    db.create_table("test", &spec).expect("create");
    let txn = begin(&db, Isolation::RepeatableRead);
    for (id, value) in [(1, 10), (2, 20)] {
        txn.table("test").expect("table").insert(&[Int(id), Int(value)]).expect("insert");
    }
    txn.commit().expect("commit");
    db
}

fn begin(db: &Database, level: Isolation) -> Txn {
    let mut txn = db.begin(level, Access::ReadWrite).expect("begin");
    txn.set_lock_wait(Duration::from_millis(15));
    txn
}

fn get(txn: &mut Txn, id: i64) -> Result<i64> {
    let row = txn.table("test")?.get(&[Int(id)])?;
    Ok(row.map_or(-1, |row| number(&row)))
}

fn number(row: &Row) -> i64 {
    match row.value(1) {
        Ok(Int(value)) => value,
        other => panic!("not a number: {other:?}"),
    }
}

fn put(txn: &mut Txn, id: i64, value: i64) -> Result<()> {
    txn.table("test")?.update(&[Int(id)], &[(1, Int(value))]).map(|_| ())
}

fn insert(txn: &mut Txn, id: i64, value: i64) -> Result<()> {
    txn.table("test")?.insert(&[Int(id), Int(value)]).map(|_| ())
}

/// Values of the rows for which `wanted` holds, by a plain scan.
fn select(txn: &mut Txn, wanted: impl Fn(i64) -> bool) -> Result<Vec<i64>> {
    let mut scan = txn.table("test")?.scan(Range::ALL, Direction::Forward)?;
    let (mut row, mut found) = (Row::new(), Vec::new());
    while scan.next(&mut row)? {
        found.extend(Some(number(&row)).filter(|v| wanted(*v)));
    }
    Ok(found)
}

/// UPDATE or DELETE of every row for which `wanted` holds, read under locks.
fn change_where(txn: &mut Txn, wanted: impl Fn(i64) -> bool, to: Option<i64>) -> Result<usize> {
    let table = txn.table("test")?;
    let mut ids = Vec::new();
    let forward = Direction::Forward;
    table.scan_for_update(Range::ALL, forward, LockWait::Wait, &mut |row| {
        if let (Int(id), true) = (row.value(0)?, wanted(number(row))) {
            ids.push(id);
        }
        Ok(true)
    })?;
    for id in &ids {
        match to {
            Some(add) => {
                let value = table.get(&[Int(*id)])?.map_or(0, |row| number(&row));
                table.update(&[Int(*id)], &[(1, Int(value + add))])?;
            }
            None => {
                table.delete(&[Int(*id)])?;
            }
        }
    }
    Ok(ids.len())
}

/// The outcome for the error of a statement. Any error but a lock timeout or a conflict fails the
/// test.
fn stopped(error: &Error) -> Outcome {
    match error.kind() {
        Kind::LockTimeout => Waits,
        Kind::Conflict => Conflict,
        _ => panic!("unexpected: {error}"),
    }
}

fn if_seen(seen: bool) -> Outcome {
    if seen { Allowed } else { Prevented }
}

type Play = fn(&Database, Isolation) -> Result<Outcome>;

/// Write cycles.
fn g0(db: &Database, level: Isolation) -> Result<Outcome> {
    let (mut a, mut b) = (begin(db, level), begin(db, level));
    put(&mut a, 1, 11)?;
    put(&mut b, 1, 12)?;
    put(&mut a, 2, 21)?;
    a.commit()?;
    put(&mut b, 2, 22)?;
    b.commit()?;
    Ok(Allowed)
}

/// Aborted reads.
fn g1a(db: &Database, level: Isolation) -> Result<Outcome> {
    let (mut a, mut b) = (begin(db, level), begin(db, level));
    put(&mut a, 1, 101)?;
    let seen = select(&mut b, |_| true)?;
    a.rollback()?;
    Ok(if_seen(seen.contains(&101) || select(&mut b, |_| true)?.contains(&101)))
}

/// Intermediate reads.
fn g1b(db: &Database, level: Isolation) -> Result<Outcome> {
    let (mut a, mut b) = (begin(db, level), begin(db, level));
    put(&mut a, 1, 101)?;
    let seen = select(&mut b, |_| true)?;
    put(&mut a, 1, 11)?;
    a.commit()?;
    Ok(if_seen(seen.contains(&101)))
}

/// Circular information flow.
fn g1c(db: &Database, level: Isolation) -> Result<Outcome> {
    let (mut a, mut b) = (begin(db, level), begin(db, level));
    put(&mut a, 1, 11)?;
    put(&mut b, 2, 22)?;
    let (by_a, by_b) = (get(&mut a, 2)?, get(&mut b, 1)?);
    a.commit()?;
    b.commit()?;
    Ok(if_seen(by_a == 22 && by_b == 11))
}

/// Observed transaction vanishes.
fn otv(db: &Database, level: Isolation) -> Result<Outcome> {
    let (mut a, mut b, mut c) = (begin(db, level), begin(db, level), begin(db, level));
    put(&mut a, 1, 11)?;
    put(&mut a, 2, 19)?;
    let blocked = put(&mut b, 1, 12).expect_err("the row is locked");
    assert_eq!(blocked.kind(), Kind::LockTimeout);
    a.commit()?;
    put(&mut b, 1, 12)?;
    let first = get(&mut c, 1)?;
    put(&mut b, 2, 18)?;
    let second = get(&mut c, 2)?;
    b.commit()?;
    let (third, fourth) = (get(&mut c, 2)?, get(&mut c, 1)?);
    // Seeing 12 of b and then not b's 18 (or a's value again) is the anomaly.
    Ok(if_seen(
        (first == 12 && second != 18)
            || (first == 11 && third == 18 && fourth == 11)
            || (first == 12 && fourth == 11)
            || (level == Isolation::ReadUncommitted && first == 12),
    ))
}

/// Predicate many preceders: a predicate read twice.
fn pmp(db: &Database, level: Isolation) -> Result<Outcome> {
    let (mut a, mut b) = (begin(db, level), begin(db, level));
    let before = select(&mut a, |v| v == 30)?;
    insert(&mut b, 3, 30)?;
    b.commit()?;
    Ok(if_seen(before.is_empty() && select(&mut a, |v| v % 3 == 0)?.contains(&30)))
}

/// Lost update.
fn p4(db: &Database, level: Isolation) -> Result<Outcome> {
    let (mut a, mut b) = (begin(db, level), begin(db, level));
    let (by_a, by_b) = (get(&mut a, 1)?, get(&mut b, 1)?);
    put(&mut a, 1, by_a + 1)?;
    a.commit()?;
    put(&mut b, 1, by_b + 1)?;
    b.commit()?;
    Ok(Allowed)
}

/// Single anti-dependency cycle (read skew).
fn g_single(db: &Database, level: Isolation) -> Result<Outcome> {
    let (mut a, mut b) = (begin(db, level), begin(db, level));
    let first = get(&mut a, 1)?;
    put(&mut b, 1, 12)?;
    put(&mut b, 2, 18)?;
    b.commit()?;
    Ok(if_seen(first == 10 && get(&mut a, 2)? == 18))
}

/// Write skew on rows.
fn g2_item(db: &Database, level: Isolation) -> Result<Outcome> {
    let (mut a, mut b) = (begin(db, level), begin(db, level));
    get(&mut a, 1)?;
    get(&mut a, 2)?;
    get(&mut b, 1)?;
    get(&mut b, 2)?;
    put(&mut a, 1, 11)?;
    put(&mut b, 2, 21)?;
    a.commit()?;
    b.commit()?;
    Ok(Allowed)
}

/// Write skew on a predicate.
fn g2(db: &Database, level: Isolation) -> Result<Outcome> {
    let (mut a, mut b) = (begin(db, level), begin(db, level));
    select(&mut a, |v| v % 3 == 0)?;
    select(&mut b, |v| v % 3 == 0)?;
    insert(&mut a, 3, 30)?;
    insert(&mut b, 4, 42)?;
    a.commit()?;
    b.commit()?;
    Ok(Allowed)
}

/// Name, description, function, and the outcomes at the four levels.
const ANOMALIES: [(&str, &str, Play, [Outcome; 4]); 10] = [
    ("G0", "write cycles", g0, [Waits, Waits, Waits, Waits]),
    ("G1a", "aborted reads", g1a, [Allowed, Prevented, Prevented, Waits]),
    ("G1b", "intermediate reads", g1b, [Allowed, Prevented, Prevented, Waits]),
    ("G1c", "circular information flow", g1c, [Allowed, Prevented, Prevented, Waits]),
    ("OTV", "observed transaction vanishes", otv, [Allowed, Prevented, Prevented, Waits]),
    ("PMP", "predicate many preceders", pmp, [Allowed, Allowed, Prevented, Waits]),
    ("P4", "lost update", p4, [Allowed, Allowed, Conflict, Waits]),
    ("G-single", "read skew", g_single, [Allowed, Allowed, Prevented, Waits]),
    ("G2-item", "write skew", g2_item, [Allowed, Allowed, Allowed, Waits]),
    ("G2", "write skew on a predicate", g2, [Allowed, Allowed, Allowed, Waits]),
];

fn table() -> (String, Vec<String>) {
    let mut text = String::from("| Anomaly |");
    let mut wrong = Vec::new();
    LEVELS.iter().for_each(|(name, _)| text += &format!(" {name} |"));
    text += "\n| --- | --- | --- | --- | --- |\n";
    for (name, what, play, wanted) in ANOMALIES {
        text += &format!("| {name}: {what} |");
        for ((level_name, level), wanted) in LEVELS.into_iter().zip(wanted) {
            let db = database();
            let found = play(&db, level).unwrap_or_else(|e| stopped(&e));
            if found != wanted {
                wrong.push(format!("{name} at {level_name}: {found:?}, not {wanted:?}"));
            }
            text += &format!(" {} |", format!("{found:?}").to_lowercase());
        }
        text.push('\n');
    }
    (text, wrong)
}

#[test]
fn hermitage_anomalies_appear_at_no_level_that_forbids_them() {
    let (text, wrong) = table();
    println!("{text}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/isolation.md");
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains(&text), "docs/guide/isolation.md does not hold this table:\n{text}");
}

#[test]
fn the_first_updater_wins_and_the_statement_says_so() {
    let db = database();
    let (mut a, mut b) =
        (begin(&db, Isolation::RepeatableRead), begin(&db, Isolation::RepeatableRead));
    assert_eq!(get(&mut a, 1).expect("read"), 10);
    put(&mut b, 1, 11).expect("update");
    b.commit().expect("commit");
    let error = put(&mut a, 1, 12).expect_err("changed since the snapshot");
    assert_eq!(error.code(), evenkeel::Code::RowChanged);
    let mut row = Row::new();
    let locked =
        a.table("test").expect("table").get_for_update(&[Int(1)], LockWait::Wait, &mut row);
    assert_eq!(locked.expect_err("so does a locking read").code(), evenkeel::Code::RowChanged);
    // The transaction continues: only the statement failed.
    put(&mut a, 2, 22).expect("another row");
    a.commit().expect("commit");
    // A transaction that has not read yet holds no snapshot and cannot conflict (A6).
    let (mut a, mut b) =
        (begin(&db, Isolation::RepeatableRead), begin(&db, Isolation::RepeatableRead));
    put(&mut b, 1, 13).expect("update");
    b.commit().expect("commit");
    put(&mut a, 1, 14).expect("no snapshot, no conflict");
}

#[test]
fn an_autocommit_update_waits_and_never_conflicts() {
    let db = database();
    let mut threads = Vec::new();
    for _ in 0..4 {
        let db = db.clone();
        threads.push(std::thread::spawn(move || {
            for _ in 0..50 {
                let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begin");
                let mut row = Row::new();
                let table = txn.table("test").expect("table");
                table.get_for_update(&[Int(1)], LockWait::Wait, &mut row).expect("waits");
                table.update(&[Int(1)], &[(1, Int(number(&row) + 1))]).expect("never conflicts");
                txn.commit().expect("commit");
            }
        }));
    }
    threads.into_iter().for_each(|t| t.join().expect("no panic"));
    let mut txn = begin(&db, Isolation::ReadCommitted);
    assert_eq!(get(&mut txn, 1).expect("read"), 10 + 4 * 50);
    assert_eq!(db.stats().get(Metric::Conflicts), 0);
}

#[test]
fn sessions_with_disjoint_ranges_never_wait() {
    const SESSIONS: i64 = 4;
    for (_, level) in LEVELS {
        let db = database();
        let int = |name| ColumnSpec::new(name, ColumnType::Int64);
        let spec = TableSpec::new().column(int("id")).column(int("a")).column(int("b"));
        let unique = IndexSpec::new("by_a", &["a"]).unique();
        let spec = spec.primary_key(&["id"]).index(unique).index(IndexSpec::new("by_b", &["b"]));
        db.create_table("keyed", &spec).expect("create");
        // In each round all sessions have changed rows before the first one reads, and before one
        // commits.
        let together = Arc::new(Barrier::new(SESSIONS as usize));
        let mut threads = Vec::new();
        for session in 0..SESSIONS {
            let (db, together) = (db.clone(), together.clone());
            threads.push(std::thread::spawn(move || {
                let (base, mut wrong) = (1000 * (session + 1), Vec::new());
                for round in 0..20 {
                    let mut txn = begin(&db, level);
                    let ids = base + round * 10..base + round * 10 + 10;
                    let changed = change_own(&mut txn, ids);
                    together.wait();
                    let read = scan_own(&mut txn, base, base + 500);
                    together.wait();
                    let all = [10 * (round as usize + 1); 3];
                    // Reported at the end, because the other sessions wait for this one at the
                    // barrier.
                    if changed.is_err() || !matches!(read, Ok(read) if read == all) {
                        wrong.push(format!("round {round}: {changed:?}, {read:?}"));
                    }
                    txn.commit().expect("commit");
                }
                wrong
            }));
        }
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), [""; 0], "{level:?}");
        }
        assert_eq!(db.stats().get(Metric::LockWaits), 0, "{level:?}");
    }
}

/// Inserts, updates and reads these rows, in both tables; the keys of all indexes change.
fn change_own(txn: &mut Txn, ids: std::ops::Range<i64>) -> Result<()> {
    for id in ids {
        insert(txn, id, id)?;
        put(txn, id, id + 1)?;
        get(txn, id)?;
        let keyed = txn.table("keyed")?;
        keyed.insert(&[Int(id), Int(id + 500_000), Int(id)])?;
        keyed.update(&[Int(id)], &[(1, Int(id)), (2, Int(-id))])?;
    }
    Ok(())
}

/// The numbers of rows of the range that a scan of the table, the primary key and the unique index
/// find.
fn scan_own(txn: &mut Txn, from: i64, to: i64) -> Result<[usize; 3]> {
    let (from, to) = ([Int(from)], [Int(to)]);
    let range = || Range {
        lower: std::ops::Bound::Included(&from[..]),
        upper: std::ops::Bound::Included(&to[..]),
    };
    let (mut row, mut found) = (Row::new(), [0; 3]);
    let mut scan = txn.table("test")?.scan(range(), Direction::Forward)?;
    while scan.next(&mut row)? {
        found[0] += 1;
    }
    let mut scan = txn.table("keyed")?.scan(range(), Direction::Forward)?;
    while scan.next(&mut row)? {
        found[1] += 1;
    }
    let mut scan = txn.table("keyed")?.index("by_a")?.scan(range(), Direction::Backward)?;
    while scan.next(&mut row)? {
        found[2] += 1;
    }
    Ok(found)
}

#[test]
fn a_deadlock_is_found_by_search() {
    let db = database();
    let start = Instant::now();
    for round in 0..10 {
        let (mut a, mut b) =
            (begin(&db, Isolation::ReadCommitted), begin(&db, Isolation::ReadCommitted));
        a.set_lock_wait(Duration::from_secs(50));
        b.set_lock_wait(Duration::from_secs(50));
        put(&mut a, 1, round).expect("update");
        put(&mut b, 2, round).expect("update");
        let (tell, told) = mpsc::channel();
        let other = std::thread::spawn(move || {
            let result = put(&mut b, 1, round);
            tell.send(result.as_ref().err().map(Error::kind)).expect("told");
            drop(b);
        });
        let mine = put(&mut a, 2, round).err().map(|e| e.kind());
        drop(a);
        other.join().expect("no panic");
        let theirs = told.recv().expect("told");
        let victims = [mine, theirs].iter().filter(|k| **k == Some(Kind::Deadlock)).count();
        assert_eq!(victims, 1, "{mine:?} {theirs:?}");
    }
    assert_eq!(db.stats().get(Metric::Deadlocks), 10);
    assert_eq!(db.stats().get(Metric::LockTimeouts), 0);
    assert!(start.elapsed() < Duration::from_secs(50), "found by a timeout");
}

#[test]
fn nowait_fails_and_skip_passes_locked_rows() {
    let db = database();
    let mut a = begin(&db, Isolation::ReadCommitted);
    put(&mut a, 1, 11).expect("update");
    let b = begin(&db, Isolation::ReadCommitted);
    let mut row = Row::new();
    let table = b.table("test").expect("table");
    let refused = table.get_for_update(&[Int(1)], LockWait::NoWait, &mut row);
    assert_eq!(refused.expect_err("locked").code(), evenkeel::Code::LockNotAvailable);
    assert!(!table.get_for_update(&[Int(1)], LockWait::Skip, &mut row).expect("left out"));
    assert!(!table.get_for_share(&[Int(1)], LockWait::Skip, &mut row).expect("left out"));
    let mut seen = Vec::new();
    let forward = Direction::Forward;
    let all = table.scan_for_update(Range::ALL, forward, LockWait::Skip, &mut |row| {
        seen.push(number(row));
        Ok(true)
    });
    all.expect("scan");
    assert_eq!(seen, [20]);
    assert_eq!(db.stats().get(Metric::LockWaits), 0);
    // Shared locks are compatible with each other and exclude writers.
    drop((a, b));
    let (mut a, mut b) =
        (begin(&db, Isolation::ReadCommitted), begin(&db, Isolation::ReadCommitted));
    for txn in [&mut a, &mut b] {
        let table = txn.table("test").expect("table");
        assert!(table.get_for_share(&[Int(1)], LockWait::NoWait, &mut row).expect("shared"));
    }
    let mut c = begin(&db, Isolation::ReadCommitted);
    assert_eq!(put(&mut c, 1, 5).expect_err("locked").kind(), Kind::LockTimeout);
    drop((a, b));
    put(&mut c, 1, 5).expect("free again");
}

#[test]
fn serializable_blocks_phantoms() {
    let db = database();
    let mut a = begin(&db, Isolation::Serializable);
    assert_eq!(select(&mut a, |v| v > 15).expect("scan"), [20]);
    for level in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let mut b = begin(&db, level);
        let error = insert(&mut b, 7, 70).expect_err("the range is locked");
        assert_eq!(error.kind(), Kind::LockTimeout);
        // Other transactions may read the range.
        let mut c = begin(&db, Isolation::RepeatableRead);
        assert_eq!(get(&mut c, 7).expect("read"), -1);
    }
    assert_eq!(select(&mut a, |v| v > 15).expect("scan"), [20]);
    a.commit().expect("commit");
    let mut b = begin(&db, Isolation::Serializable);
    insert(&mut b, 7, 70).expect("free again");
    assert_eq!(change_where(&mut b, |v| v == 70, Some(1)).expect("update"), 1);
    assert_eq!(change_where(&mut b, |v| v == 71, None).expect("delete"), 1);
}
