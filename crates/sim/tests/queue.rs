//! A queue beside an old snapshot (E6), crashed at changes of the disk. Rows are deleted at the low
//! end, and now and then a row is inserted below a node that is marked as dead. Keys are long, so
//! the tree is tall.

use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Direction, Error, Isolation, Metric, Range, Result,
    Row, TableSpec, Txn, Value, ValueRef,
};
use evenkeel_base::sync::Mutex;
use evenkeel_io::sim::{CrashPolicy, Explore, SimOptions};
use evenkeel_io::{SimDisk, SimEnv};
use evenkeel_sim::actor::{SMALL, open};
use std::collections::BTreeSet;
use std::sync::Arc;

const T: &str = "queue";
const ROWS: u64 = 200;
const BATCH: u64 = 10;

/// Five neighbours differ in their last byte only; a NUL takes two bytes.
fn key(n: u64) -> String {
    format!("{:05}{}{}", n / 5, "\0".repeat(370), n % 5)
}

fn number(key: ValueRef<'_>) -> u64 {
    let ValueRef::Text(text) = key else { panic!("a key of another type") };
    let digits = text.replace('\0', "").parse::<u64>().expect("digits");
    digits / 10 * 5 + digits % 10
}

fn begin(db: &Database, access: Access) -> Result<Txn> {
    db.begin(Isolation::RepeatableRead, access)
}

/// A full queue on a disk.
fn base() -> SimDisk {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let db = open(&sim, SMALL).expect("create");
    let id = ColumnSpec::new("id", ColumnType::Text { max: 400 });
    db.create_table(T, &TableSpec::new().column(id).primary_key(&["id"])).expect("table");
    db.load_table(T, (0..ROWS).map(|n| vec![Value::Text(key(n))])).expect("rows");
    db.close().expect("close");
    let disk = sim.disk().crash(CrashPolicy::KeepAll, 1);
    sim.disk().crash_now();
    sim.stop();
    disk
}

/// The numbers that a transaction reads from one end.
fn numbers(txn: &mut Txn, most: usize) -> Result<Vec<u64>> {
    let (mut found, mut row) = (Vec::new(), Row::new());
    let mut scan = txn.table(T)?.scan(Range::ALL, Direction::Forward)?;
    while found.len() < most && scan.next(&mut row)? {
        found.push(number(row.value("id")?));
    }
    Ok(found)
}

/// What the queue must hold: rows that are certainly there, and rows that a commit with an unknown
/// outcome inserts or deletes.
#[derive(Clone, Default)]
struct Promised {
    rows: BTreeSet<u64>,
    doubtful: BTreeSet<u64>,
}

struct Queue<'a> {
    db: &'a Database,
    promised: &'a Mutex<Promised>,
}

impl Queue<'_> {
    /// Inserts or deletes rows in one commit.
    fn change(&self, rows: impl Iterator<Item = u64> + Clone, put: bool) -> Result<()> {
        self.promised.lock().doubtful = rows.clone().collect();
        let txn = begin(self.db, Access::ReadWrite)?;
        for n in rows.clone() {
            let key = key(n);
            match put {
                true => _ = txn.table(T)?.insert(&[ValueRef::Text(&key)])?,
                false => assert!(txn.table(T)?.delete(&[ValueRef::Text(&key)])?),
            }
        }
        txn.commit()?;
        let mut promised = self.promised.lock();
        promised.doubtful.clear();
        rows.for_each(|n| match put {
            true => _ = promised.rows.insert(n),
            false => _ = promised.rows.remove(&n),
        });
        Ok(())
    }

    /// A reader with a new snapshot finds the lowest rows.
    fn look(&self) -> Result<()> {
        let found = numbers(&mut begin(self.db, Access::ReadOnly)?, 3)?;
        let expected: Vec<u64> = self.promised.lock().rows.iter().take(3).copied().collect();
        assert_eq!(found, expected);
        Ok(())
    }

    fn run(&self) -> Result<()> {
        let mut old = begin(self.db, Access::ReadOnly)?;
        old.take_snapshot()?;
        for first in (0..ROWS - BATCH).step_by(BATCH as usize) {
            self.change(first..first + BATCH, false)?;
            self.look()?;
            // A row in the dead part of the tree.
            let back = first * 7 / 10;
            self.change(back..back + 1, true)?;
            self.look()?;
            self.change(back..back + 1, false)?;
        }
        assert_eq!(numbers(&mut old, usize::MAX)?.len() as u64, ROWS);
        drop(old);
        self.look()
    }
}

#[test]
fn rows_inserted_below_dead_nodes_are_found() {
    let start = base();
    let (inner, skips) = (Mutex::new(0), Mutex::new(0));
    let note = |db: &Database| {
        let stats = db.stats();
        *inner.lock() += stats.get(Metric::DeadInnerNoted);
        *skips.lock() += stats.get(Metric::DeadSkips);
    };
    for seed in [5, 6] {
        let explored = Explore { stride: 7, first: 1 + seed % 7, ..Explore::new(seed) }.run(
            &start,
            |sim: &SimEnv, promised: &Arc<Mutex<Promised>>| {
                let run = || -> Result<()> {
                    promised.lock().rows = (0..ROWS).collect();
                    let db = open(sim, SMALL)?;
                    Queue { db: &db, promised }.run()?;
                    note(&db);
                    db.close()
                };
                match run() {
                    Err(error) if !sim.is_crashed() => panic!("{error}"),
                    _ => {}
                }
            },
            |sim, promised, which| {
                let look = || -> Result<()> {
                    let db = open(sim, SMALL)?;
                    let found = numbers(&mut begin(&db, Access::ReadOnly)?, usize::MAX)?;
                    let found: BTreeSet<u64> = found.into_iter().collect();
                    let mut promised = promised.lock().clone();
                    let differ = found.symmetric_difference(&promised.rows).copied();
                    let differ: BTreeSet<u64> = differ.collect();
                    assert!(
                        differ.is_empty() || differ == promised.doubtful,
                        "{which}: {differ:?}"
                    );
                    let check = db.check()?;
                    assert!(check.problems.is_empty(), "{which}: {:?}", check.problems);
                    // Rows that are inserted after the crash are found as well.
                    promised.rows = found;
                    let free = (0..ROWS).find(|n| !promised.rows.contains(n));
                    let promised = Mutex::new(promised);
                    let queue = Queue { db: &db, promised: &promised };
                    queue.change(free.into_iter(), true)?;
                    queue.look()?;
                    note(&db);
                    db.close()
                };
                look().unwrap_or_else(|error: Error| panic!("{which}: {error}"));
            },
        );
        println!("{} points, {} states", explored.points, explored.states.len());
        assert!(explored.points > 10);
    }
    let (inner, skips) = (*inner.lock(), *skips.lock());
    println!("{inner} inner pages noted as dead, {skips} skips");
    assert!(inner > 10 && skips > 10, "{inner} inner pages noted as dead, {skips} skips");
}
