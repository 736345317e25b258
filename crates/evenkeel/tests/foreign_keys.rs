//! Foreign keys through the library: after crashes, under every interleaving of a simulation, with
//! cascades, beside the addition of a key, in the check, and in the superblock.

use evenkeel::ValueRef::{Int, Null};
use evenkeel::{
    Access, BuildProgress, Code, ColumnSpec, ColumnType, Database, Direction, Durability, Error,
    ForeignKeySpec, IndexSpec, Isolation, Kind, Metric, Options, Range, ReferenceAction, Row,
    TableChange, TableSpec, Value, exactly,
};
use evenkeel_io::Env;
use evenkeel_io::sim::{CrashPolicy, SimEnv};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

const KEYS: i64 = 4;
/// Sessions use this many of the newest parents: so few that they meet at them.
const NEWEST: u64 = 2;

fn parents() -> TableSpec {
    TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64)).primary_key(&["id"])
}

fn strangers() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("parent", ColumnType::Int64).nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_parent", &["parent"]))
}

fn key_to(parent: &str) -> ForeignKeySpec {
    ForeignKeySpec::new("parent", &["parent"], parent, &["id"])
}

fn children() -> TableSpec {
    strangers().foreign_key(key_to("p"))
}

fn open(env: Arc<dyn Env>) -> Database {
    Database::open_with("db", Options::new().env(env)).expect("opens")
}

/// Commits wait for no sync: most of the time sessions would wait there, and not meet at rows.
fn open_lazy(env: Arc<dyn Env>) -> Database {
    let options = Options { durability: Durability::Lazy, ..Options::new() };
    Database::open_with("db", options.env(env)).expect("opens")
}

/// Runs a statement in a transaction of its own.
fn run(
    db: &Database,
    isolation: Isolation,
    statement: impl FnOnce(&evenkeel::Txn) -> Result<(), Error>,
) -> Result<(), Error> {
    let txn = db.begin(isolation, Access::ReadWrite)?;
    statement(&txn)?;
    txn.commit().map(|_| ())
}

/// Values of a column of all rows, read by a scan of the table.
fn column(db: &Database, table: &str, at: usize) -> Vec<Value> {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let mut scan =
        txn.table(table).expect("there").scan(Range::ALL, Direction::Forward).expect("scans");
    let (mut row, mut found) = (Row::new(), Vec::new());
    while scan.next(&mut row).expect("reads") {
        found.push(row.values().expect("values")[at].clone());
    }
    found
}

fn orphans(db: &Database, child: &str) -> Vec<Value> {
    orphans_of(db, child, "p")
}

fn orphans_of(db: &Database, child: &str, parent: &str) -> Vec<Value> {
    let there: BTreeSet<String> =
        column(db, parent, 0).iter().map(|id| format!("{id:?}")).collect();
    let refers = column(db, child, 1).into_iter().filter(|value| *value != Value::Null);
    refers.filter(|value| !there.contains(&format!("{value:?}"))).collect()
}

/// What sessions met: committed, no parent, children, waits and deadlocks.
#[derive(Default)]
struct Met([AtomicU64; 4]);

impl Met {
    fn note(&self, done: &Result<(), Error>) {
        let at = match done {
            Ok(()) => 0,
            Err(error) => match (error.code(), error.kind()) {
                (Code::ParentRowMissing, _) => 1,
                (Code::RowReferenced, _) => 2,
                (Code::DuplicateKey, _) => return,
                (_, Kind::Deadlock | Kind::LockTimeout | Kind::Conflict) => 3,
                _ => panic!("{error}"),
            },
        };
        self.0[at].fetch_add(1, Ordering::Relaxed);
    }
}

/// What a session does in a transaction.
#[derive(Clone, Copy)]
enum Does {
    InsertParent,
    DeleteParent,
    InsertChild,
    DeleteChild,
}

/// Sessions that insert and delete parents and children, a power cut in the middle, and then a scan
/// of all rows; returns the orphans.
fn life(seed: u64, met: &Arc<Met>) -> Vec<Value> {
    let sim = SimEnv::new(seed);
    let db = if !seed.is_multiple_of(3) { open_lazy(sim.env()) } else { open(sim.env()) };
    db.create_table("p", &parents()).expect("creates");
    db.create_table("c", &children()).expect("creates");
    let made = Arc::new(AtomicI64::new(0));
    let session = |n: u64| {
        let made = made.clone();
        let (db, met, rt, disk) = (db.clone(), met.clone(), sim.runtime(), sim.disk().clone());
        let mut rng = evenkeel_io::Rng::new(seed * 10 + n);
        let work = move || {
            let levels = [Isolation::ReadCommitted, Isolation::RepeatableRead];
            // Children of this session.
            let mut own = Vec::new();
            for step in 0..40 {
                // No parent comes back: a row that lost its parent is found at the end.
                let newest = made.load(Ordering::Relaxed);
                let parent = Int(newest - rng.below(NEWEST) as i64);
                let level = levels[rng.below(2) as usize];
                let does = match rng.below(8) {
                    0 | 1 => Does::InsertParent,
                    2..=4 => Does::DeleteParent,
                    5 if !own.is_empty() => Does::DeleteChild,
                    _ => Does::InsertChild,
                };
                let id = n as i64 * 1000 + step;
                let done = run(&db, level, |txn| {
                    let (p, c) = (txn.table("p")?, txn.table("c")?);
                    match does {
                        Does::InsertParent => {
                            let id = made.fetch_add(1, Ordering::Relaxed) + 1;
                            p.insert(&[Int(id)]).map(drop)
                        }
                        Does::DeleteParent => p.delete(&[parent]).map(drop),
                        Does::InsertChild => c.insert(&[Int(id), parent]).map(drop),
                        Does::DeleteChild => c.delete(&[Int(own[own.len() - 1])]).map(drop),
                    }?;
                    rt.step();
                    Ok(())
                });
                match does {
                    Does::InsertChild if done.is_ok() => own.push(id),
                    Does::DeleteChild if done.is_ok() => drop(own.pop()),
                    _ => {}
                }
                if disk.is_crashed() {
                    return;
                }
                met.note(&done);
                if n == 0 && step == 20 && seed.is_multiple_of(2) {
                    disk.crash_now();
                    return;
                }
            }
        };
        Box::new(work) as Box<dyn FnOnce() + Send>
    };
    sim.run((0..3).map(session).collect());
    left_by(sim, db, seed, |db| orphans(db, "c"))
}

/// What `wrong` finds in the database; if the power was cut, it looks behind a recovery.
fn left_by(
    sim: SimEnv,
    db: Database,
    seed: u64,
    wrong: impl Fn(&Database) -> Vec<Value> + Send + 'static,
) -> Vec<Value> {
    match sim.disk().is_crashed() {
        false => wrong(&db),
        true => {
            std::mem::forget(db);
            let sim = sim.crash(CrashPolicy::LoseAll, seed);
            let (send, end) = std::sync::mpsc::channel();
            let after = sim.env();
            sim.run(vec![Box::new(move || {
                let db = open(after);
                let _ = send.send((wrong(&db), db.check().expect("checks").problems));
            })]);
            let (left, problems) = end.try_recv().expect("the check after the crash ran");
            assert_eq!(left.is_empty(), problems.is_empty(), "seed {seed}: {problems:?}");
            left
        }
    }
}

#[test]
fn no_interleaving_and_no_crash_leaves_an_orphan() {
    let met = Arc::new(Met::default());
    for seed in 1..=150 {
        let left = life(seed, &met);
        assert!(left.is_empty(), "seed {seed}: children of {left:?} have no parent");
    }
    let met = met.0.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("committed, without parent, with children, waits and deadlocks: {met:?}");
    assert!(met[..3].iter().all(|count| *count > 300), "{met:?}");
}

/// Parents (id, v, w), of which several have one `v`: an index or the primary key begins with it.
fn equal_parents(seed: u64) -> TableSpec {
    let columns = ["id", "v", "w"].map(|name| ColumnSpec::new(name, ColumnType::Int64));
    let spec = columns.into_iter().fold(TableSpec::new(), TableSpec::column);
    let by_v = |columns: &[&str]| IndexSpec::new("by_v", columns);
    match seed % 4 {
        0 => spec.primary_key(&["id"]).index(by_v(&["v"])),
        1 => spec.primary_key(&["id"]).index(by_v(&["v", "w"])),
        2 => spec.primary_key(&["id"]).index(by_v(&["v desc", "w", "id"]).unique()),
        _ => spec.primary_key(&["v", "id"]),
    }
}

/// The primary key of such a parent.
fn equal_parent(seed: u64, id: i64, v: i64) -> Vec<evenkeel::ValueRef<'static>> {
    match seed % 4 {
        3 => vec![Int(v), Int(id)],
        _ => vec![Int(id)],
    }
}

/// Children (id, parent, w) of such parents; entries of their index move with `w`.
fn children_of_equals() -> TableSpec {
    let key = ForeignKeySpec::new("parent", &["parent"], "p", &["v"]);
    let columns = ["id", "parent", "w"].map(|name| ColumnSpec::new(name, ColumnType::Int64));
    let spec = columns.into_iter().fold(TableSpec::new(), TableSpec::column);
    spec.primary_key(&["id"]).index(IndexSpec::new("by_parent", &["parent", "w"])).foreign_key(key)
}

fn orphans_of_equals(db: &Database) -> Vec<Value> {
    let there: BTreeSet<String> = column(db, "p", 1).iter().map(|v| format!("{v:?}")).collect();
    let refers = column(db, "c", 1).into_iter();
    refers.filter(|value| !there.contains(&format!("{value:?}"))).collect()
}

/// Sessions that insert, move and delete parents with equal values and their children, a power cut
/// in the middle; returns the orphans.
fn life_of_equals(seed: u64, met: &Arc<Met>) -> Vec<Value> {
    let sim = SimEnv::new(seed);
    let db = if !seed.is_multiple_of(3) { open_lazy(sim.env()) } else { open(sim.env()) };
    db.create_table("p", &equal_parents(seed)).expect("creates");
    db.create_table("c", &children_of_equals()).expect("creates");
    let newest = Arc::new(AtomicI64::new(0));
    let session = |n: u64| {
        let newest = newest.clone();
        let (db, met, rt, disk) = (db.clone(), met.clone(), sim.runtime(), sim.disk().clone());
        let mut rng = evenkeel_io::Rng::new(seed * 10 + n);
        let work = move || {
            let levels = [Isolation::ReadCommitted, Isolation::RepeatableRead];
            for step in 0..40 {
                // Values that are no longer among the newest do not come back.
                let v = newest.load(Ordering::Relaxed) - rng.below(NEWEST) as i64;
                let (id, w) = (v * 3 + rng.below(3) as i64, Int(rng.below(4) as i64));
                let at = equal_parent(seed, id, v);
                let child = Int(n as i64 * 1000 + step);
                let earlier = Int(rng.below(3) as i64 * 1000 + rng.below(step as u64 + 1) as i64);
                let level = levels[rng.below(2) as usize];
                let done = run(&db, level, |txn| {
                    let (p, c) = (txn.table("p")?, txn.table("c")?);
                    match rng.below(10) {
                        0 => {
                            let v = newest.fetch_add(1, Ordering::Relaxed) + 1;
                            p.insert(&[Int(v * 3), Int(v), w])?;
                            p.insert(&[Int(v * 3 + 1), Int(v), w]).map(drop)
                        }
                        1 => p.insert(&[Int(id), Int(v), w]).map(drop),
                        2 => p.update(&at, &[(2, w)]).map(drop),
                        3..=5 => p.delete(&at).map(drop),
                        6 => c.update(&[earlier], &[(2, w)]).map(drop),
                        7 => c.delete(&[earlier]).map(drop),
                        _ => c.insert(&[child, Int(v), w]).map(drop),
                    }?;
                    rt.step();
                    Ok(())
                });
                if disk.is_crashed() {
                    return;
                }
                met.note(&done);
                if n == 0 && step == 20 && seed.is_multiple_of(2) {
                    disk.crash_now();
                    return;
                }
            }
        };
        Box::new(work) as Box<dyn FnOnce() + Send>
    };
    sim.run((0..3).map(session).collect());
    left_by(sim, db, seed, orphans_of_equals)
}

#[test]
fn no_interleaving_and_no_crash_leaves_an_orphan_of_equal_parents() {
    let met = Arc::new(Met::default());
    for seed in 1..=200 {
        let left = life_of_equals(seed, &met);
        assert!(left.is_empty(), "seed {seed}: children of {left:?} have no parent");
    }
    let met = met.0.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("committed, without parent, with children, waits and deadlocks: {met:?}");
    assert!(met[..3].iter().all(|count| *count > 300), "{met:?}");
}

/// The one parent of a value moves to and fro in its index while children are inserted, and so does
/// its one child while the parent is deleted: neither is ever missed.
#[test]
fn a_look_meets_rows_that_move_meanwhile() {
    let (moved, looked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for seed in 1..=100 {
        let sim = SimEnv::new(seed);
        let db = open_lazy(sim.env());
        db.create_table("p", &equal_parents(1)).expect("creates");
        db.create_table("c", &children_of_equals()).expect("creates");
        run(&db, Isolation::ReadCommitted, |txn| {
            (1..=2)
                .try_for_each(|v| txn.table("p")?.insert(&[Int(v), Int(v), Int(0)]).map(drop))?;
            txn.table("c")?.insert(&[Int(1), Int(1), Int(0)]).map(drop)
        })
        .expect("inserts");
        let moves = |table: &'static str, id: i64| {
            let (db, moved) = (db.clone(), moved.clone());
            let mut rng = evenkeel_io::Rng::new(seed * 10 + id as u64);
            Box::new(move || {
                for _ in 0..150 {
                    // Each key that it leaves is one more that a look passes.
                    let w = Int(rng.below(24) as i64);
                    run(&db, Isolation::ReadCommitted, |txn| {
                        txn.table(table)?.update(&[Int(id)], &[(2, w)]).map(drop)
                    })
                    .expect("nobody else changes the row");
                    moved.fetch_add(1, Ordering::Relaxed);
                }
            }) as Box<dyn FnOnce() + Send>
        };
        let (looks, looked) = (db.clone(), looked.clone());
        let look = move || {
            for n in 0..30 {
                let read_committed = Isolation::ReadCommitted;
                let child = run(&looks, read_committed, |txn| {
                    txn.table("c")?.insert(&[Int(10 + n), Int(2), Int(0)]).map(drop)
                });
                assert!(child.is_ok(), "seed {seed}: {child:?}");
                let parent =
                    run(&looks, read_committed, |txn| txn.table("p")?.delete(&[Int(1)]).map(drop));
                let code = parent.expect_err("it has a child").code();
                assert_eq!(code, Code::RowReferenced, "seed {seed}");
                looked.fetch_add(2, Ordering::Relaxed);
            }
        };
        sim.run(vec![moves("p", 2), moves("c", 1), Box::new(look)]);
    }
    let [moved, looked] = [moved, looked].map(|count| count.load(Ordering::Relaxed));
    println!("rows moved: {moved}, looks: {looked}");
    assert_eq!((moved, looked), (30_000, 6_000));
}

/// Children move in their index while their parent is deleted, which cascades: none is left.
#[test]
fn a_cascade_meets_rows_that_move_meanwhile() {
    let cascaded = AtomicU64::new(0);
    for seed in 1..=100 {
        let sim = SimEnv::new(seed);
        let db = open_lazy(sim.env());
        db.create_table("p", &equal_parents(seed)).expect("creates");
        let mut children = children_of_equals();
        children.foreign_keys[0].on_delete = ReferenceAction::Cascade;
        db.create_table("c", &children).expect("creates");
        run(&db, Isolation::ReadCommitted, |txn| {
            let (p, c) = (txn.table("p")?, txn.table("c")?);
            (0..4).try_for_each(|v| p.insert(&[Int(v), Int(v), Int(0)]).map(drop))?;
            (0..16).try_for_each(|id| c.insert(&[Int(id), Int(id / 4), Int(id % 4)]).map(drop))
        })
        .expect("inserts");
        let (moves, deletes) = (db.clone(), db.clone());
        let mut rng = evenkeel_io::Rng::new(seed);
        let moving = move || {
            for _ in 0..100 {
                let (id, w) = (Int(rng.below(16) as i64), Int(rng.below(6) as i64));
                // It may be the victim of a deadlock, or find no row.
                let _ = run(&moves, Isolation::ReadCommitted, |txn| {
                    txn.table("c")?.update(&[id], &[(2, w)]).map(drop)
                });
            }
        };
        let deleting = move || {
            for v in 0..4 {
                let parent = equal_parent(seed, v, v);
                let done = run(&deletes, Isolation::ReadCommitted, |txn| {
                    txn.table("p")?.delete(&parent).map(drop)
                });
                assert!(done.is_ok(), "seed {seed}: {done:?}");
            }
        };
        sim.run(vec![Box::new(moving), Box::new(deleting)]);
        assert_eq!(column(&db, "c", 1), [], "seed {seed}: children without parents");
        cascaded.fetch_add(db.stats().get(Metric::RowsCascaded), Ordering::Relaxed);
    }
    assert_eq!(cascaded.load(Ordering::Relaxed), 1600);
}

/// F1: a delete that began before a foreign key was made has written its stamp before the first row
/// of the new table.
#[test]
fn a_new_foreign_key_waits_for_deletes_that_do_not_know_it() {
    let refused = Arc::new(AtomicU64::new(0));
    for seed in 1..=600 {
        let sim = SimEnv::new(seed);
        let db = if seed.is_multiple_of(2) { open_lazy(sim.env()) } else { open(sim.env()) };
        db.create_table("p", &parents()).expect("creates");
        db.create_table("first", &children()).expect("creates");
        run(&db, Isolation::ReadCommitted, |txn| {
            (0..KEYS).try_for_each(|id| txn.table("p")?.insert(&[Int(id)]).map(|_| ()))
        })
        .expect("inserts");
        let (deletes, makes, count) = (db.clone(), db.clone(), refused.clone());
        let delete = move || {
            for id in 0..KEYS {
                let done = run(&deletes, Isolation::ReadCommitted, |txn| {
                    txn.table("p")?.delete(&[Int(id)]).map(|_| ())
                });
                count.fetch_add(u64::from(done.is_err()), Ordering::Relaxed);
            }
        };
        let make = move || {
            makes.create_table("c", &children()).expect("creates");
            for id in 0..KEYS {
                // It may be gone.
                let _ = run(&makes, Isolation::ReadCommitted, |txn| {
                    txn.table("c")?.insert(&[Int(id), Int(id)]).map(|_| ())
                });
            }
        };
        sim.run(vec![Box::new(delete), Box::new(make)]);
        let left = orphans(&db, "c");
        assert!(left.is_empty(), "seed {seed}: children of {left:?} have no parent");
    }
    println!("deletes refused: {}", refused.load(Ordering::Relaxed));
}

/// The tables of the cascades: `c` and `n` refer to `p`, `g` refers to `c`.
fn create_cascading(db: &Database) {
    use ReferenceAction::{Cascade, SetNull};
    let key = |parent, on_delete| key_to(parent).on_delete(on_delete).on_update(Cascade);
    db.create_table("p", &parents()).expect("creates");
    for (name, key) in
        [("c", key("p", Cascade)), ("n", key("p", SetNull)), ("g", key("c", Cascade))]
    {
        db.create_table(name, &strangers().foreign_key(key)).expect("creates");
    }
}

fn orphans_of_cascades(db: &Database) -> Vec<Value> {
    let of = [("c", "p"), ("n", "p"), ("g", "c")];
    of.into_iter().flat_map(|(child, parent)| orphans_of(db, child, parent)).collect()
}

/// Sessions whose deletes and updates of parents cascade, while others insert children; a power cut
/// in the middle. Returns the orphans.
fn life_of_cascades(seed: u64, met: &Arc<Met>, cascaded: &AtomicU64) -> Vec<Value> {
    let sim = SimEnv::new(seed);
    let db = if !seed.is_multiple_of(3) { open_lazy(sim.env()) } else { open(sim.env()) };
    create_cascading(&db);
    let (made, made_child) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let session = |n: u64| {
        let (made, made_child) = (made.clone(), made_child.clone());
        let (db, met, rt, disk) = (db.clone(), met.clone(), sim.runtime(), sim.disk().clone());
        let mut rng = evenkeel_io::Rng::new(seed * 10 + n);
        let work = move || {
            let levels = [Isolation::ReadCommitted, Isolation::RepeatableRead];
            for step in 0..40 {
                let next = |of: &AtomicI64| of.fetch_add(1, Ordering::Relaxed) + 1;
                let parent = Int(made.load(Ordering::Relaxed) - rng.below(NEWEST) as i64);
                let child = Int(made_child.load(Ordering::Relaxed) - rng.below(NEWEST) as i64);
                let level = levels[rng.below(2) as usize];
                let id = n as i64 * 1000 + step;
                let done = run(&db, level, |txn| {
                    match rng.below(10) {
                        0 | 1 => txn.table("p")?.insert(&[Int(next(&made))]).map(drop),
                        2 | 3 => txn.table("p")?.delete(&[parent]).map(drop),
                        4 => {
                            let to = Int(next(&made));
                            txn.table("p")?.update(&[parent], &[(0, to)]).map(drop)
                        }
                        5 | 6 => {
                            txn.table("c")?.insert(&[Int(next(&made_child)), parent]).map(drop)
                        }
                        7 => txn.table("n")?.insert(&[Int(id), parent]).map(drop),
                        8 => txn.table("g")?.insert(&[Int(id), child]).map(drop),
                        _ => txn.table("c")?.delete(&[child]).map(drop),
                    }?;
                    rt.step();
                    Ok(())
                });
                if disk.is_crashed() {
                    return;
                }
                met.note(&done);
                if n == 0 && step == 25 && seed.is_multiple_of(2) {
                    disk.crash_now();
                    return;
                }
            }
        };
        Box::new(work) as Box<dyn FnOnce() + Send>
    };
    sim.run((0..3).map(session).collect());
    cascaded.fetch_add(db.stats().get(Metric::RowsCascaded), Ordering::Relaxed);
    left_by(sim, db, seed, orphans_of_cascades)
}

#[test]
fn no_interleaving_and_no_crash_of_a_cascade_leaves_an_orphan() {
    let (met, cascaded) = (Arc::new(Met::default()), AtomicU64::new(0));
    for seed in 1..=150 {
        let left = life_of_cascades(seed, &met, &cascaded);
        assert!(left.is_empty(), "seed {seed}: rows with the parents {left:?} have none");
    }
    let met = met.0.each_ref().map(|count| count.load(Ordering::Relaxed));
    let cascaded = cascaded.load(Ordering::Relaxed);
    println!("committed, without parent, with children, waits and deadlocks: {met:?}");
    println!("rows cascaded: {cascaded}");
    assert!(met[0] > 3000 && met[1] > 300 && met[2] == 0 && cascaded > 1000, "{met:?} {cascaded}");
}

/// A session that keeps the rule by reading only: it deletes parents without children, and inserts
/// children of parents.
fn by_reading(db: &Database, sim: &SimEnv, seed: u64, n: u64) -> Box<dyn FnOnce() + Send> {
    let (db, rt, disk) = (db.clone(), sim.runtime(), sim.disk().clone());
    let mut rng = evenkeel_io::Rng::new(seed * 10 + n);
    Box::new(move || {
        for step in 0..20 {
            let parent = Int(20 + step - rng.below(3) as i64);
            let deletes = rng.below(3) == 0;
            let done = run(&db, Isolation::ReadCommitted, |txn| {
                let (p, c) = (txn.table("p")?, txn.table("c")?);
                if deletes {
                    if c.index("by_parent")?.first(exactly(parent))?.is_none() {
                        rt.step();
                        p.delete(&[parent])?;
                    }
                } else if p.get(&[parent])?.is_some() {
                    rt.step();
                    c.insert(&[Int(n as i64 * 1000 + step), parent])?;
                }
                rt.step();
                Ok(())
            });
            if disk.is_crashed() {
                return;
            }
            Met::default().note(&done);
        }
    })
}

/// Such sessions, while the key is added; returns the orphans if the key is there in the end,
/// behind a recovery if the power was cut. Counts keys added, refused, and there in the end.
fn life_beside_an_addition(seed: u64, outcomes: &Arc<[AtomicU64; 3]>) -> Vec<Value> {
    let sim = SimEnv::new(seed);
    let db = if !seed.is_multiple_of(3) { open_lazy(sim.env()) } else { open(sim.env()) };
    db.create_table("p", &parents()).expect("creates");
    db.create_table("c", &strangers()).expect("creates");
    run(&db, Isolation::ReadCommitted, |txn| {
        (0..40).try_for_each(|id| txn.table("p")?.insert(&[Int(id)]).map(drop))
    })
    .expect("inserts");
    let mut sessions: Vec<_> = (0..2).map(|n| by_reading(&db, &sim, seed, n)).collect();
    let (adds, counts, disk) = (db.clone(), outcomes.clone(), sim.disk().clone());
    sessions.push(Box::new(move || {
        let progress = BuildProgress::default();
        let done = adds.add_foreign_keys("c", &[key_to("p")], true, &progress);
        if disk.is_crashed() {
            return;
        }
        let at = match &done {
            Ok(()) => 0,
            Err(error) if error.code() == Code::ParentRowMissing => 1,
            Err(error) => panic!("{error}"),
        };
        counts[at].fetch_add(1, Ordering::Relaxed);
    }));
    if seed.is_multiple_of(2) {
        let (disk, rt) = (sim.disk().clone(), sim.runtime());
        let mut rng = evenkeel_io::Rng::new(seed);
        sessions.push(Box::new(move || {
            (0..rng.below(200)).for_each(|_| rt.step());
            disk.crash_now();
        }));
    }
    sim.run(sessions);
    let counts = outcomes.clone();
    left_by(sim, db, seed, move |db| {
        match db.definition("c").expect("there").foreign_keys.is_empty() {
            true => Vec::new(),
            false => {
                counts[2].fetch_add(1, Ordering::Relaxed);
                orphans(db, "c")
            }
        }
    })
}

#[test]
fn a_key_that_is_added_beside_writers_leaves_no_orphan() {
    let outcomes = Arc::new([0; 3].map(AtomicU64::new));
    for seed in 1..=600 {
        let left = life_beside_an_addition(seed, &outcomes);
        assert!(left.is_empty(), "seed {seed}: children of {left:?} have no parent");
    }
    let [added, refused, kept] = outcomes.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("keys added: {added}, refused: {refused}, there in the end: {kept}");
    assert!(added > 50 && refused > 10 && kept >= added / 2, "{added} {refused} {kept}");
}

/// Operations that have met the key look for nothing that went with it.
#[test]
fn a_key_is_dropped_with_its_index_beside_writers() {
    let (met, dropped) = (Arc::new(Met::default()), Arc::new(AtomicU64::new(0)));
    for seed in 1..=200 {
        let sim = SimEnv::new(seed);
        let db = open_lazy(sim.env());
        db.create_table("p", &parents()).expect("creates");
        db.create_table("c", &children()).expect("creates");
        let session = |n: u64| {
            let (db, met) = (db.clone(), met.clone());
            let mut rng = evenkeel_io::Rng::new(seed * 10 + n);
            let work = move || {
                for step in 0..30 {
                    let parent = Int(rng.below(3) as i64);
                    met.note(&run(&db, Isolation::ReadCommitted, |txn| match rng.below(3) {
                        0 => txn.table("p")?.insert_or_ignore(&[parent]).map(drop),
                        1 => txn.table("p")?.delete(&[parent]).map(drop),
                        _ => {
                            let id = n as i64 * 1000 + step;
                            txn.table("c")?.insert(&[Int(id), parent]).map(drop)
                        }
                    }));
                }
            };
            Box::new(work) as Box<dyn FnOnce() + Send>
        };
        let mut sessions: Vec<_> = (0..3).map(session).collect();
        let (drops, rt, count) = (db.clone(), sim.runtime(), dropped.clone());
        sessions.push(Box::new(move || {
            (0..seed % 40).for_each(|_| rt.step());
            let change = TableChange {
                drop_foreign_keys: vec!["parent".into()],
                drop_indexes: vec!["by_parent".into()],
                ..TableChange::default()
            };
            drops.alter_table("c", &change).expect("drops");
            count.fetch_add(1, Ordering::Relaxed);
        }));
        sim.run(sessions);
    }
    let met = met.0.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("committed, without parent, with children, waits and deadlocks: {met:?}");
    assert!(met[..3].iter().all(|count| *count > 100), "{met:?}");
    assert_eq!(dropped.load(Ordering::Relaxed), 200);
}

#[test]
fn foreign_keys_outlive_a_crash_and_older_builds_are_kept_out() {
    let sim = SimEnv::new(3);
    let db = open(sim.env());
    db.create_table("p", &parents()).expect("creates");
    assert_eq!(db.info().features[2], 0);
    db.create_table("c", &children()).expect("creates");
    assert_eq!(db.info().features[2], 1);
    run(&db, Isolation::RepeatableRead, |txn| {
        txn.table("p")?.insert(&[Int(1)])?;
        txn.table("c")?.insert(&[Int(1), Int(1)])?;
        txn.table("c")?.insert(&[Int(2), Null]).map(|_| ())
    })
    .expect("inserts");
    sim.disk().crash_now();
    std::mem::forget(db);
    let sim = sim.crash(CrashPolicy::LoseAll, 1);
    let db = open(sim.env());
    assert_eq!(db.info().features[2], 1);
    let keys = &db.definition("c").expect("there").foreign_keys;
    assert_eq!((keys.len(), keys[0].name.as_str()), (1, "parent"));
    let delete = |txn: &evenkeel::Txn| txn.table("p")?.delete(&[Int(1)]).map(|_| ());
    let error = run(&db, Isolation::RepeatableRead, delete).expect_err("is referenced");
    assert_eq!(error.code(), Code::RowReferenced);
    assert_eq!(db.drop_table("p").expect_err("is needed").code(), Code::ForeignKeyNeeds);
    let report = db.check_table("c").expect("checks");
    assert_eq!((report.problems.len(), report.rows_without_parent), (0, 0));
    // Without checks rows lose their parents, and the check says so.
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    txn.set_foreign_key_checks(false);
    txn.table("p").expect("there").delete(&[Int(1)]).expect("deletes");
    (10..30).for_each(|id| {
        txn.table("c").expect("there").insert(&[Int(id), Int(id)]).expect("inserts");
    });
    txn.commit().expect("commits");
    let report = db.check_table("c").expect("checks");
    assert_eq!(report.rows_without_parent, 21);
    assert_eq!(report.problems.len(), 11, "{:?}", report.problems);
    assert!(report.problems[0].contains("foreign key parent: row of pk"));
    db.drop_table("c").expect("drops");
    db.drop_table("p").expect("drops");
    assert_eq!(db.info().features[2], 1);
}
