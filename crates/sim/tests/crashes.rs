//! Rung 2 of the ladder: scripts that crash at each change of the disk in turn, and for each crash
//! the disks that may survive it; each is opened and verified in full. After a kill of the process
//! the machine crashes as well, once the next process has opened and closed the database.

use evenkeel::{Access, Database, Error, Geometry, Isolation, Metric, Options, Result, Txn};
use evenkeel_base::Cause;
use evenkeel_base::sync::Mutex;
use evenkeel_io::sim::{
    CrashPolicy, Explore, Explored, SimOptions, Survivor, catch_crash, drive_beside_others,
};
use evenkeel_io::{Event, SimDisk, SimEnv};
use evenkeel_sim::actor::{Actor, SMALL, open};
use evenkeel_sim::model::Model;
use evenkeel_sim::verify::{Trouble, check_recovered};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[path = "crashes/add_index.rs"]
mod add_index;
#[path = "crashes/below_sync.rs"]
mod below_sync;
#[path = "crashes/closing.rs"]
mod closing;
#[path = "crashes/seen.rs"]
mod seen;

use seen::Seen;

const T: &str = "num0";
const NUMBERED: &str = "heap0";

/// Seeds of each script, more where its stride is longer, and disks that all together must leave,
/// different in their bytes.
const ROUNDS: u64 = 6;
const STATES: usize = 10_000;
/// Rows that a loser has changed.
const LOST: i64 = 40;
/// Moments at which a process is killed.
const KILLS: u64 = 48;

/// What is run, and what it must reach: without that no crash strikes what it is named for.
struct Script {
    name: &'static str,
    /// One crash point in this many: as many seeds try every one of one schedule.
    stride: u64,
    geometry: Geometry,
    /// Rows at the beginning, and the length of their texts.
    rows: i64,
    text: usize,
    body: Body,
    /// Counters at the end of each run without a crash, at least.
    reaches: &'static [(Metric, u64)],
    /// What crashes struck, or what they left.
    seen: Arc<Seen>,
    /// Sessions and builds go on side by side: each seed has a schedule of its own, of which it
    /// tries one crash point in `stride`.
    is_scheduled: bool,
}

type Body = Box<dyn Fn(&SimEnv, &mut Actor<'_>) -> Result<()> + Send + Sync>;
/// Work before a crash, of a session and of one that stays open, beside so many rows.
type Cut = fn(&SimEnv, &mut Actor<'_>, &mut Actor<'_>, i64) -> Result<()>;

fn rest(sim: &SimEnv, ms: u64) {
    let never = Arc::new(Event::new());
    sim.env().wait(&never, never.now(), Some(Duration::from_millis(ms)), Cause::Idle);
}

/// What ends the life before a script.
#[derive(Clone, Copy)]
enum Before {
    Close,
    /// Work, and a crash that keeps all of it.
    Crash(Cut),
    /// The same, with a close that leaves pages.
    SlowClose,
    /// Work in which the process is killed at this change; what it has not synced is
    /// unsynced still.
    Kill(Cut, u64),
}

/// A disk and its model after such a life, and how many changes it has made.
fn base(rows: i64, text: usize, geometry: Geometry, before: Before) -> (SimDisk, Model, u64) {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    let model = Mutex::new(Model::default());
    let page_size = (text == closing::TEXT).then_some(closing::PAGE);
    let options = Options { page_size, ..Options::new() }.env(sim.env()).geometry(geometry);
    let db = Database::open_with("db", options).expect("create");
    let mut actor = Actor::new(db, &model);
    actor.create(T).expect("table");
    for id in 0..rows {
        actor.put(T, id, id % 7, text, Some(id)).expect("put");
        if id % 10 == 9 {
            actor.commit().expect("commit");
        }
    }
    actor.commit().expect("commit");
    let db = actor.db.clone();
    let mut loser = Actor::new(db.clone(), &model);
    let begun = sim.disk().changes();
    match before {
        Before::Close => db.clone().close().expect("close"),
        Before::Crash(work) => work(&sim, &mut actor, &mut loser, rows).expect("work"),
        Before::SlowClose => closing::slowly(&sim, &mut actor, &mut loser).expect("closes"),
        Before::Kill(work, change) => {
            sim.disk().crash_at_change(begun.saturating_add(change));
            let done = catch_crash(|| work(&sim, &mut actor, &mut loser, rows));
            assert!(sim.is_crashed() || matches!(done, Some(Ok(()))), "{done:?}");
        }
    }
    let made = sim.disk().changes() - begun;
    sim.disk().crash_now();
    let is_killed = matches!(before, Before::Kill(..));
    let policy = if is_killed { CrashPolicy::Killed } else { CrashPolicy::KeepAll };
    let disk = sim.disk().crash(policy, 1);
    sim.stop();
    let _ = catch_crash(|| drop((actor, loser)));
    let _ = catch_crash(|| drop(db));
    let model = model.into_inner();
    (disk, model, made)
}

/// The disks that a script begins with, one for each seed in turn.
fn starts(script: &Script) -> Vec<(SimDisk, Model)> {
    let &Script { name, geometry, rows, text, .. } = script;
    let based = |before| {
        let (disk, model, _) = base(rows, text, geometry, before);
        (disk, model)
    };
    let before = match name {
        "recovery" => Before::Crash(lose),
        "chains in lists found" => Before::Crash(|sim, a, _, _| give_up(sim, a)),
        "chains in lists freed" => Before::Crash(|sim, a, _, _| give_up_some(sim, a).map(drop)),
        "left by a close" => Before::SlowClose,
        "killed" => {
            let (.., changes) = base(rows, text, geometry, Before::Kill(rewrite, u64::MAX));
            // Half of them at the end, each change of a checkpoint.
            let (half, last) = (KILLS / 2, changes - KILLS / 2);
            let moments = (1..=half).map(|n| last * n / half).chain(last + 1..=changes);
            let mut starts: Vec<_> =
                moments.map(|change| based(Before::Kill(rewrite, change))).collect();
            // Else the next process finds what any crash leaves.
            let left = |of: &SimDisk, path| of.unsynced_of_killed(path) > 0;
            starts.retain(|(of, _)| left(of, "pages/") || left(of, "evenkeel.super"));
            let all = starts.len();
            let (supers, others): (Vec<_>, Vec<_>) =
                starts.into_iter().partition(|(of, _)| left(of, "evenkeel.super"));
            let few = supers.len().min(others.len());
            assert!(few > 0 && all > 3, "{all} of {KILLS} kills, {} in a superblock", supers.len());
            // By turns, so that few seeds begin with some of either.
            let (mut supers, mut others) = (supers.into_iter(), others.into_iter());
            let turns = (0..all).flat_map(|_| [supers.next(), others.next()]);
            return turns.flatten().collect();
        }
        _ => Before::Close,
    };
    let (disk, model) = based(before);
    vec![(if script.is_scheduled { cold(disk) } else { disk }, model)]
}

/// The disk without the list of hot pages: those of the table are read when they are needed, and
/// others go on meanwhile.
fn cold(disk: SimDisk) -> SimDisk {
    let sim = SimEnv::on(disk, SimOptions::quiet(1));
    sim.env().remove("evenkeel.warm").expect("removed");
    sim.env().sync_dir("").expect("synced");
    sim.stop();
    sim.disk().clone()
}

/// Rows become longer: pages are written by checkpoints and for want of frames.
fn rewrite(_: &SimEnv, a: &mut Actor<'_>, loser: &mut Actor<'_>, rows: i64) -> Result<()> {
    for round in 1..=2 {
        for n in 0..rows {
            // All over the table, so that redo has more pages than the pool holds.
            let id = n * 37 % rows;
            a.put(T, id, round, 150 * round as usize, Some(10_000 * round + id))?;
            if n % 20 == 19 {
                a.commit()?;
            }
        }
        a.commit()?;
        loser.put(T, rows + round, 1, 30, None)?;
        a.db.checkpoint()?;
    }
    Ok(())
}

/// What a killed process wrote is found; the log that says so is let go; more is written.
fn killed(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    // What is there now is there for good.
    let mut model = a.model.lock().clone();
    match check_recovered(&a.db, &mut model) {
        Ok(_) => *a.model.lock() = model,
        Err(Trouble::Error(error)) => return Err(error),
        Err(Trouble::Differs(what)) => return Err(Error::internal(what)),
    }
    a.db.checkpoint()?;
    a.put(T, 1, 1, 60, Some(1))?;
    a.commit()?;
    rest(sim, 20);
    a.db.checkpoint()
}

/// A crash leaves a transaction without an outcome, whose undo a checkpoint has saved in part, and
/// a prepared one.
fn lose(_: &SimEnv, a: &mut Actor<'_>, loser: &mut Actor<'_>, rows: i64) -> Result<()> {
    for id in 0..LOST {
        loser.put(T, id, 8, 700, Some(rows + id))?;
        if id == LOST / 2 {
            a.db.checkpoint()?;
        }
    }
    a.put(T, rows - 1, 8, 30, Some(7_777))?;
    a.delete(T, rows - 2)?;
    // Durable, and so is everything before.
    a.prepare("base")
}

/// The script has done what it is for.
fn check_reached(script: &Script, db: &Database) {
    let stats = db.stats();
    for (metric, least) in script.reaches {
        let (name, n) = (metric.name(), stats.get(*metric));
        assert!(n >= *least, "{name} is {n}: the script does not reach {least}");
    }
}

fn explore(seed: u64, script: &Script, starts: &[(SimDisk, Model)]) -> Explored {
    let Script { name, stride, geometry, body, .. } = script;
    let start = &starts[(seed - 1) as usize % starts.len()];
    let nth = Explore::nth(seed - 1, *stride);
    let schedule = if script.is_scheduled { seed } else { nth.seed };
    Explore { rounds: 2, seed: schedule, ..nth }.run(
        &start.0,
        |sim, notes: &Arc<Mutex<Model>>| {
            *notes.lock() = start.1.clone();
            let run = || -> Result<()> {
                let mut actor = Actor::new(open(sim, *geometry)?, notes);
                body(sim, &mut actor)?;
                if !sim.is_crashed() {
                    check_reached(script, &actor.db);
                }
                actor.db.close()
            };
            match run() {
                Err(error) if !sim.is_crashed() => panic!("{name}: {error}"),
                _ => {}
            }
        },
        |sim, notes, which| {
            let model = notes.lock().clone();
            let mut done = check(sim, script, model.clone(), Some(which));
            if which.policy == CrashPolicy::Killed {
                done = done.and_then(|()| check_lost(sim, script, model, which));
            }
            if let Err(why) = done {
                panic!(
                    "script {name}, {which}: {why}\nreplay: EVENKEEL_SIM_SCRIPT='{name}' \
                     EVENKEEL_SIM_FROM={seed} cargo test -p evenkeel-sim --test crashes"
                );
            }
        },
    )
}

/// Opens what has survived a crash, verifies it in full and closes it.
fn check(
    sim: &SimEnv,
    script: &Script,
    mut model: Model,
    which: Option<Survivor>,
) -> std::result::Result<(), String> {
    let db = open(sim, script.geometry).map_err(|e: Error| e.to_string())?;
    if which.is_some_and(|which| which.policy == CrashPolicy::Killed) {
        model.killed();
    }
    let loose = below_sync::loose(&model);
    check_recovered(&db, &mut model).map_err(|t| format!("{t:?}"))?;
    if script.name.starts_with("chains in") {
        check_freed(sim, &db, &mut model)?;
    }
    if script.name.starts_with("add index") {
        add_index::check(sim, &db, script.name, which)?;
    }
    // What a killed process has left is looked at once more.
    if script.name == "below sync" && which.is_none_or(|w| w.policy != CrashPolicy::Killed) {
        below_sync::check(&script.seen, &db, &loose, &mut model)?;
    }
    check_next_number(db, model).map_err(|e| e.to_string())
}

/// After a kill and a life that ended with a close the machine crashes: what the killed process had
/// not synced and the other has found may be lost only now.
fn check_lost(
    sim: &SimEnv,
    script: &Script,
    mut model: Model,
    which: Survivor,
) -> std::result::Result<(), String> {
    // What was found is durable; in the life before it was written at least.
    model.killed();
    sim.disk().crash_now();
    sim.stop();
    let mut policies = CrashPolicy::ALL.iter().filter(|p| **p != CrashPolicy::Killed).cycle();
    let nth = which.change + 4 * which.round;
    let policy = *policies.nth(nth as usize).unwrap_or(&CrashPolicy::LoseAll);
    let lost = sim.disk().crash(policy, which.change);
    let after = SimEnv::on(lost, SimOptions::new(which.seed));
    let done = check(&after, script, model, None);
    after.stop();
    done.map_err(|why| format!("opened, closed, {policy:?}: {why}"))
}

/// A new row of a table that is numbered gets a number above all that survived.
fn check_next_number(db: Database, model: Model) -> Result<()> {
    if db.definition(NUMBERED).is_err() {
        return Ok(());
    }
    let model = Mutex::new(model);
    let mut actor = Actor::new(db, &model);
    actor.insert(NUMBERED, 1_000)?;
    actor.rollback()
}

/// When what nobody needs is freed, all that is needed is there, and nothing else.
fn check_freed(sim: &SimEnv, db: &Database, model: &mut Model) -> std::result::Result<(), String> {
    rest(sim, 1_100);
    check_recovered(db, model).map_err(|t| format!("{t:?}"))?;
    let problems = db.check().map_err(|e| e.to_string())?.problems;
    if problems.is_empty() { Ok(()) } else { Err(format!("{problems:?}")) }
}

/// Crash points and states of a script under these seeds, on every core.
fn explore_all(seeds: Range<u64>, script: &Script) -> (u64, BTreeSet<u64>) {
    let (starts, next) = (starts(script), AtomicU64::new(seeds.start));
    let found = Mutex::new((0, BTreeSet::new()));
    std::thread::scope(|scope| {
        for n in 0..std::thread::available_parallelism().map_or(2, |n| n.get().min(8)) {
            let (starts, next, found, seeds) = (&starts, &next, &found, &seeds);
            scope.spawn(move || {
                drive_beside_others(n);
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    let mut explored = explore(seed, script, starts);
                    let mut found = found.lock();
                    found.0 += explored.points;
                    found.1.append(&mut explored.states);
                }
            });
        }
    });
    found.into_inner()
}

fn inserts(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    for id in 100..112 {
        a.put(T, id, 1, 50, Some(id))?;
        a.commit()?;
    }
    Ok(())
}

fn bulk(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    a.load(T, 100..400, 100)?;
    a.commit()?;
    for id in 400..500 {
        a.put(T, id, id, 100, Some(id))?;
    }
    a.commit()
}

/// Long values: written with their rows and as streams, replaced, reverted, deleted.
fn chains(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    a.put(T, 1, 1, 30_000, Some(1))?;
    a.put(T, 2, 1, 9_000, Some(2))?;
    a.commit()?;
    a.stream(T, 1, 50_000)?;
    a.commit()?;
    a.savepoint()?;
    a.stream(T, 2, 20_000)?;
    a.put(T, 3, 1, 12_000, Some(3))?;
    a.back()?;
    a.put(T, 4, 4, 7_000, None)?;
    a.commit()?;
    a.db.checkpoint()?;
    a.delete(T, 1)?;
    a.stream(T, 4, 15_000)?;
    a.rollback()?;
    a.delete(T, 1)?;
    a.put(T, 2, 2, 5, None)?;
    a.commit()?;
    rest(sim, 50);
    Ok(())
}

/// A checkpoint behind a flush: the log that is left does not say who gave up what before.
fn forget(sim: &SimEnv, a: &Actor<'_>, round: i64) -> Result<()> {
    let mut other = Actor::new(a.db.clone(), a.model);
    for id in 0..30 {
        other.put(T, id % 20, round, 10, Some((round + 1) * 100_000 + id))?;
    }
    other.commit()?;
    rest(sim, 10);
    a.db.checkpoint()
}

fn put_all(a: &mut Actor<'_>, mut ids: Range<i64>, len: usize) -> Result<()> {
    ids.try_for_each(|id| a.put(T, id, id, len, None))
}

/// Long values given up under a snapshot, in a list that a checkpoint names.
fn give_up_some(sim: &SimEnv, a: &mut Actor<'_>) -> Result<Txn> {
    put_all(a, 100..112, 1_500)?;
    a.commit()?;
    let mut old = a.db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    old.take_snapshot()?;
    put_all(a, 100..104, 1_700)?;
    a.commit()?;
    forget(sim, a, 1)?;
    Ok(old)
}

/// The same by open, reverted and prepared transactions.
fn give_up(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    let _old = give_up_some(sim, a)?;
    put_all(a, 104..106, 5)?;
    a.savepoint()?;
    put_all(a, 106..108, 1_600)?;
    a.delete(T, 108)?;
    forget(sim, a, 2)?;
    a.back()?;
    put_all(a, 107..108, 1_800)?;
    a.commit()?;
    put_all(a, 103..106, 1_900)?;
    a.delete(T, 109)?;
    forget(sim, a, 3)?;
    a.rollback()?;
    put_all(a, 110..112, 7)?;
    a.delete(T, 100)?;
    a.prepare("x")?;
    forget(sim, a, 4)?;
    let saved = a.db.stats().get(Metric::ChainsSaved);
    assert!(sim.is_crashed() || saved > 12, "{saved} chains in lists");
    Ok(())
}

fn chain_lists(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    give_up(sim, a)?;
    a.decide("x", true)?;
    rest(sim, 1_100);
    forget(sim, a, 5)
}

/// Lists that an open finds, and the end of the transaction that some wait for.
fn chain_lists_found(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    a.decide("x", false)?;
    chains_freed(sim, a)
}

/// The file of a list goes, and nobody commits meanwhile.
fn chains_freed(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    rest(sim, 3_300);
    a.put(T, 1, 1, 5, None)?;
    a.commit()
}

fn updates_and_deletes(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    for id in 0..20 {
        a.put(T, id, 9, 120, Some(1000 + id))?;
        a.delete(T, 20 + id)?;
        a.commit()?;
    }
    a.put(T, 3, 3, 3, None)?;
    a.rollback()
}

fn checkpoints(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    for round in 0..3 {
        for id in 0..20 {
            a.put(T, id * 5, round, 200, Some(10_000 + 100 * round + id))?;
        }
        a.commit()?;
        a.db.checkpoint()?;
    }
    Ok(())
}

fn fill(sim: &SimEnv, a: &mut Actor<'_>, batches: i64) -> Result<()> {
    for batch in 0..batches {
        for id in 0..30 {
            a.put(T, (batch * 37 + id * 13) % 700, batch, 10, Some((batch + 1) * 100_000 + id))?;
        }
        a.commit()?;
        rest(sim, 5);
    }
    Ok(())
}

fn flush(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    fill(sim, a, 8)
}

fn merge(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    fill(sim, a, 24)?;
    rest(sim, 500);
    Ok(())
}

fn rotation(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    for id in 0..300 {
        a.put(T, id, 1, 900, None)?;
        a.commit()?;
    }
    // Long values: more log in one operation than any of the bounds looks ahead.
    for id in 0..40 {
        a.put(T, id, 1, 12_000, None)?;
        a.commit()?;
    }
    Ok(())
}

fn drops(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    a.schema(T, |db| db.drop_index(T, "by_a"))?;
    a.create("num1")?;
    a.put("num1", 1, 1, 10, Some(1))?;
    a.commit()?;
    a.schema(T, |db| db.truncate(T))?;
    a.put(T, 1, 1, 10, Some(1))?;
    a.commit()?;
    a.schema("num1", |db| db.drop_table("num1"))?;
    rest(sim, 20);
    a.schema(T, |db| db.drop_table(T))
}

/// More numbers than the mark in the catalog is raised by at a time.
fn numbers(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    a.create(NUMBERED)?;
    for batch in 0..9 {
        for id in 0..25 {
            a.insert(NUMBERED, batch * 25 + id)?;
        }
        match batch % 3 {
            0 => a.rollback()?,
            _ => a.commit()?,
        }
        if batch == 5 {
            a.db.checkpoint()?;
        }
    }
    Ok(())
}

fn large_transaction(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    for id in 0..60 {
        a.put(T, id, 4, 900, Some(id))?;
    }
    a.savepoint()?;
    for id in 0..30 {
        a.put(T, id, 5, 30, Some(5_000 + id))?;
        a.delete(T, 60 + id)?;
    }
    a.back()?;
    a.put(T, 99, 6, 6, None)?;
    a.commit()?;
    for id in 0..60 {
        a.put(T, id, 7, 700, Some(id))?;
    }
    a.rollback()
}

fn two_phases(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    for (round, commit) in [(0, true), (1, false), (2, true)] {
        let xid = format!("x{round}");
        a.put(T, round, 8, 80, Some(8_000 + round))?;
        a.delete(T, 50 + round)?;
        a.prepare(&xid)?;
        a.put(T, 80 + round, 1, 1, None)?;
        a.commit()?;
        if round == 1 {
            a.db.checkpoint()?;
        }
        a.decide(&xid, commit)?;
    }
    a.put(T, 10, 8, 80, Some(9_999))?;
    a.prepare("left")
}

/// The loser is reverted, the prepared transaction is still there and is decided.
fn recovery(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    let report = a.db.recovery();
    assert!(report.losers == 1 && report.rows > 0 && !report.clean, "{report:?}");
    rest(sim, 20);
    a.decide("base", true)
}

fn script(
    name: &'static str,
    stride: u64,
    geometry: Geometry,
    rows: i64,
    body: impl Fn(&SimEnv, &mut Actor<'_>) -> Result<()> + Send + Sync + 'static,
    reaches: &'static [(Metric, u64)],
) -> Script {
    let seen = Arc::default();
    Script {
        name,
        stride,
        geometry,
        rows,
        text: 20,
        body: Box::new(body),
        reaches,
        seen,
        is_scheduled: false,
    }
}

/// One that builds indexes beside sessions. A value of a long text is read for each row, so that
/// others get their turns while the table is read.
fn builds(
    name: &'static str,
    stride: u64,
    arena: u64,
    body: fn(&SimEnv, &mut Actor<'_>, &Arc<Seen>) -> Result<()>,
    reaches: &'static [(Metric, u64)],
) -> Script {
    let small = Geometry { generation_bytes: Some(8 << 10), build_bytes: Some(arena), ..SMALL };
    let seen = Arc::new(Seen::of(&add_index::PHASES));
    let of = seen.clone();
    let run = move |sim: &SimEnv, a: &mut Actor<'_>| body(sim, a, &of);
    Script {
        seen,
        text: 1_500,
        is_scheduled: true,
        ..script(name, stride, small, 60, run, reaches)
    }
}

/// A close that leaves pages.
fn close() -> Script {
    let seen = Arc::new(Seen::of(closing::FILES));
    let of = seen.clone();
    let run = move |sim: &SimEnv, a: &mut Actor<'_>| closing::leaving(sim, a, &of);
    let text = closing::TEXT;
    Script { seen, text, ..script("close", 6, closing::GEOMETRY, closing::ROWS, run, &[]) }
}

fn scripts() -> Vec<Script> {
    use Metric::*;
    let tiny = Geometry { generation_bytes: Some(16 << 10), ..SMALL };
    let undo = Geometry { undo_bytes: Some(16 << 10), ..SMALL };
    let unlogged = Geometry { logged_value_bytes: Some(8 << 10), ..SMALL };
    let listed = Geometry { generation_bytes: Some(1 << 10), listed_chains: Some(1), ..SMALL };
    vec![
        script("insert", 1, SMALL, 40, inserts, &[(Commits, 12)]),
        script("bulk", 1, SMALL, 40, bulk, &[(RowsInserted, 400), (Splits, 1)]),
        script("update and delete", 1, SMALL, 60, updates_and_deletes, &[(RowsDeleted, 20)]),
        script("page flush and checkpoint", 1, SMALL, 100, checkpoints, &[(Checkpoints, 3)]),
        script("memtable flush", 2, tiny, 50, flush, &[(MemtableFlushes, 2)]),
        script("merge", 6, tiny, 50, merge, &[(Merges, 1)]),
        script("log rotation", 12, SMALL, 20, rotation, &[(WalRotations, 2), (WalRecycled, 1)]),
        script("add index", 1, SMALL, 100, add_index::alone, &[(BuildWriteBytes, 1)]),
        builds(
            "add index beside writers",
            6,
            10_000,
            add_index::beside_writers,
            &[(BuildMerges, 3)],
        ),
        builds("add index refused", 6, 9_000, add_index::refused, &[(BuildMerges, 2)]),
        script("drop", 1, SMALL, 100, drops, &[(Commits, 2)]),
        script("numbers", 1, SMALL, 20, numbers, &[(RowsInserted, 225)]),
        script("large transaction", 1, undo, 100, large_transaction, &[(UndoSpilledBytes, 1)]),
        script("overflow chains", 2, SMALL, 20, chains, &[(WalBytes, 100_000)]),
        script("values not logged", 2, unlogged, 20, chains, &[(UnloggedValueBytes, 50_000)]),
        script("chains in lists", 6, listed, 20, chain_lists, &[(ChainsSaved, 12)]),
        script("chains in lists found", 1, listed, 20, chain_lists_found, &[]),
        script("chains in lists freed", 1, listed, 20, chains_freed, &[]),
        script("two-phase commit", 1, SMALL, 100, two_phases, &[(Rollbacks, 1)]),
        script("recovery", 1, SMALL, 300, recovery, &[(RowsReverted, LOST as u64)]),
        script("killed", 1, SMALL, 300, killed, &[(Checkpoints, 2)]),
        close(),
        Script {
            text: closing::TEXT,
            ..script("left by a close", 6, closing::GEOMETRY, closing::ROWS, closing::found, &[])
        },
        Script {
            seen: Arc::new(Seen::of(below_sync::LEFT)),
            ..script("below sync", 1, SMALL, 100, below_sync::script, &[(Commits, 9)])
        },
    ]
}

#[test]
fn scripts_at_every_change() {
    let scripts = scripts();
    let var = |name: &str| std::env::var(name).ok();
    let only = var("EVENKEEL_SIM_SCRIPT").unwrap_or_default();
    let number = |name: &str| var(name).and_then(|v| v.parse::<u64>().ok());
    let from = number("EVENKEEL_SIM_FROM").unwrap_or(1);
    let rounds = number("EVENKEEL_SIM_ROUNDS").unwrap_or(if only.is_empty() { ROUNDS } else { 1 });
    // At least so many that the seeds together try every point, of one schedule or several.
    let of = |script: &Script| if only.is_empty() { rounds.max(script.stride) } else { rounds };
    assert!(scripts.iter().all(|script| ROUNDS.max(script.stride).is_multiple_of(script.stride)));
    let (mut all, mut points) = (BTreeSet::new(), 0);
    for script in scripts.iter().filter(|s| s.name.contains(&only)) {
        let (tried, mut states) = explore_all(from..from + of(script), script);
        println!("{tried:>6} points {:>6} states  {}", states.len(), script.name);
        script.seen.tell(of(script) >= script.stride);
        points += tried;
        all.append(&mut states);
    }
    println!("{points:>6} points {:>6} different states in all", all.len());
    let whole = only.is_empty() && rounds >= ROUNDS;
    assert!(!whole || all.len() >= STATES, "{} states, fewer than {STATES}", all.len());
}
