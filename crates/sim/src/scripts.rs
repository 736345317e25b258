//! The crash scripts. Each does one kind of work on a small database, and a fault is injected at
//! every step of it: a crash (`tests/crashes.rs`), or a call that fails (`tests/failing_calls.rs`).
//!
//! `bodies` has the work of most scripts, `add_index` that of scripts which build indexes next to
//! sessions, `closing` a close on a slow device, `below_sync` commits that do not wait for a sync,
//! `temporary` the temporary tables that a restart drops, `cascades` rows with foreign keys, and
//! `backup` a copy of the database.

mod add_index;
mod backup;
mod below_sync;
mod bodies;
mod cascades;
mod closing;
mod common;
mod seen;
mod temporary;

use crate::actor::{Actor, SMALL, open};
use crate::model::Model;
use crate::verify::check_recovered;
use common::NUMBERED;
pub use common::{T, rest};
use evenkeel::{Database, Error, Geometry, Metric, Options, Result};
use evenkeel_base::sync::Mutex;
use evenkeel_io::sim::{CrashPolicy, SimOptions, Survivor, catch_crash};
use evenkeel_io::{SimDisk, SimEnv};
use seen::Seen;
use std::sync::Arc;

/// Moments at which a process is killed.
const KILLS: u64 = 48;

/// A script, and the counts that it must reach: without these its crashes do not test what its name
/// says.
pub struct Script {
    /// Its name, by which it is selected and replayed.
    pub name: &'static str,
    /// One crash point in this many is tried; with as many seeds, all points of one schedule are.
    pub stride: u64,
    /// The geometry of its database.
    pub geometry: Geometry,
    /// Number of rows at the beginning.
    pub rows: i64,
    /// Length of the texts of those rows.
    pub text: usize,
    /// Its work.
    pub body: Body,
    /// Metrics with the least values that each run without a crash must reach.
    pub reaches: &'static [(Metric, u64)],
    /// Counts the states at crashes, or after them.
    pub seen: Arc<Seen>,
    /// Sessions and builds run concurrently. Each seed has a schedule of its own, of which it tries
    /// one crash point in `stride`.
    pub is_scheduled: bool,
}

/// The work of a script.
pub type Body = Box<dyn Fn(&SimEnv, &mut Actor<'_>) -> Result<()> + Send + Sync>;

/// Work before a crash: by a session, by another one that stays open, with the number of rows.
type Cut = fn(&SimEnv, &mut Actor<'_>, &mut Actor<'_>, i64) -> Result<()>;

/// What ends the life before a script.
#[derive(Clone, Copy)]
enum Before {
    Close,
    /// Work, then a crash that keeps all of it.
    Crash(Cut),
    /// Work, then a close that leaves dirty pages.
    SlowClose,
    /// Work during which the process is killed at this change; its unsynced writes stay unsynced.
    Kill(Cut, u64),
}

/// The disk and the model after such a life, and the number of changes of the disk.
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

/// The disks that a script begins with; each seed takes the next one.
pub fn starts(script: &Script) -> Vec<(SimDisk, Model)> {
    let &Script { name, geometry, rows, text, .. } = script;
    let based = |before| {
        let (disk, model, _) = base(rows, text, geometry, before);
        (disk, model)
    };
    let before = match name {
        "recovery" => Before::Crash(bodies::lose),
        "chains in lists found" => Before::Crash(|sim, a, _, _| bodies::give_up(sim, a)),
        "chains in lists freed" => {
            Before::Crash(|sim, a, _, _| bodies::give_up_some(sim, a).map(drop))
        }
        "left by a close" => Before::SlowClose,
        "killed" => {
            let (.., changes) = base(rows, text, geometry, Before::Kill(bodies::rewrite, u64::MAX));
            // Half of the moments lie at the end, where they hit each change of a checkpoint.
            let (half, last) = (KILLS / 2, changes - KILLS / 2);
            let moments = (1..=half).map(|n| last * n / half).chain(last + 1..=changes);
            let mut starts: Vec<_> =
                moments.map(|change| based(Before::Kill(bodies::rewrite, change))).collect();
            // Without unsynced writes the next process finds the same as after any crash.
            let left = |of: &SimDisk, path| of.unsynced_of_killed(path) > 0;
            starts.retain(|(of, _)| left(of, "pages/") || left(of, "evenkeel.super"));
            let all = starts.len();
            let (supers, others): (Vec<_>, Vec<_>) =
                starts.into_iter().partition(|(of, _)| left(of, "evenkeel.super"));
            let few = supers.len().min(others.len());
            assert!(few > 0 && all > 3, "{all} of {KILLS} kills, {} in a superblock", supers.len());
            // The two kinds alternate, so that a few seeds begin with some of each.
            let (mut supers, mut others) = (supers.into_iter(), others.into_iter());
            let turns = (0..all).flat_map(|_| [supers.next(), others.next()]);
            return turns.flatten().collect();
        }
        _ => Before::Close,
    };
    let (disk, model) = based(before);
    vec![(if script.is_scheduled { cold(disk) } else { disk }, model)]
}

/// The disk without the list of hot pages. The table's pages are then read on demand, and other
/// threads run meanwhile.
fn cold(disk: SimDisk) -> SimDisk {
    let sim = SimEnv::on(disk, SimOptions::quiet(1));
    sim.env().remove("evenkeel.warm").expect("removed");
    sim.env().sync_dir("").expect("synced");
    sim.stop();
    sim.disk().clone()
}

/// Checks that the script has reached the metrics that it must.
pub fn check_reached(script: &Script, db: &Database) {
    let stats = db.stats();
    for (metric, least) in script.reaches {
        let (name, n) = (metric.name(), stats.get(*metric));
        assert!(n >= *least, "{name} is {n}: the script does not reach {least}");
    }
}

/// Opens the files that survived a crash, verifies them in full and closes them.
pub fn check(
    sim: &SimEnv,
    script: &Script,
    mut model: Model,
    which: Option<Survivor>,
) -> std::result::Result<(), String> {
    let db = open(sim, script.geometry).map_err(|e: Error| e.to_string())?;
    if which.is_some_and(|which| which.policy == CrashPolicy::Killed) {
        model.killed();
    }
    verify(sim, script, &db, &mut model, which)?;
    check_next_number(db, model).map_err(|e| e.to_string())
}

/// Verifies an open database in full, in the first life after a script.
pub fn verify(
    sim: &SimEnv,
    script: &Script,
    db: &Database,
    model: &mut Model,
    which: Option<Survivor>,
) -> std::result::Result<(), String> {
    let loose = below_sync::loose(model);
    temporary::drop_left(db)?;
    check_recovered(db, model).map_err(|t| format!("{t:?}"))?;
    if script.name.starts_with("chains in") {
        check_freed(sim, db, model)?;
    }
    if script.name == "cascades" {
        cascades::check(db)?;
    }
    if let "backup" | "armed backup" = script.name {
        backup::check(sim, script.name == "armed backup")?;
    }
    if script.name == "chain of backups" {
        backup::check_chain(sim)?;
    }
    if script.name.starts_with("add index") {
        add_index::check(sim, db, script.name, which)?;
    }
    // The files that a killed process left are checked once more.
    if script.name == "below sync" && which.is_none_or(|w| w.policy != CrashPolicy::Killed) {
        below_sync::check(&script.seen, db, &loose, model)?;
    }
    Ok(())
}

/// Checks that a new row of a numbered table gets a number above all that survived.
pub fn check_next_number(db: Database, model: Model) -> Result<()> {
    if db.definition(NUMBERED).is_err() {
        return Ok(());
    }
    let model = Mutex::new(model);
    let mut actor = Actor::new(db, &model);
    actor.insert(NUMBERED, 1_000)?;
    actor.rollback()
}

/// Lets the engine free what nothing references, then checks that the rest is complete and nothing
/// else is left.
fn check_freed(sim: &SimEnv, db: &Database, model: &mut Model) -> std::result::Result<(), String> {
    rest(sim, 1_100);
    check_recovered(db, model).map_err(|t| format!("{t:?}"))?;
    let problems = db.check().map_err(|e| e.to_string())?.problems;
    if problems.is_empty() { Ok(()) } else { Err(format!("{problems:?}")) }
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

/// A script that builds indexes next to sessions. The build reads a long text of each row from its
/// pages, so other threads run while it scans the table.
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

/// A script that takes an armed backup beside sessions.
fn armed_backup(geometry: Geometry) -> Script {
    let seen = Arc::new(Seen::of(backup::PHASES));
    let of = seen.clone();
    let run = move |sim: &SimEnv, a: &mut Actor<'_>| backup::armed(sim, a, &of);
    let reached = &[(Metric::BackupsCompleted, 1), (Metric::UnloggedValueBytes, 50_000)];
    Script { seen, is_scheduled: true, ..script("armed backup", 6, geometry, 20, run, reached) }
}

/// A script whose close leaves dirty pages.
fn close() -> Script {
    let seen = Arc::new(Seen::of(closing::FILES));
    let of = seen.clone();
    let run = move |sim: &SimEnv, a: &mut Actor<'_>| closing::leaving(sim, a, &of);
    let text = closing::TEXT;
    Script { seen, text, ..script("close", 6, closing::GEOMETRY, closing::ROWS, run, &[]) }
}

/// One more script, for failing calls only. The page space grows all the time, so leaves are split
/// and long values written when there may be no page for them.
pub fn growing() -> Script {
    let undo = Geometry { undo_bytes: Some(16 << 10), ..SMALL };
    script("growing", 1, undo, 40, bodies::growing, &[(Metric::Splits, 20)])
}

/// All scripts.
pub fn scripts() -> Vec<Script> {
    use Metric::*;
    use bodies::*;
    let tiny = Geometry { generation_bytes: Some(16 << 10), ..SMALL };
    // Sorted in more runs than one compaction takes.
    let built = Geometry { build_bytes: Some(256), ..SMALL };
    let undo = Geometry { undo_bytes: Some(16 << 10), ..SMALL };
    let unlogged = Geometry { logged_value_bytes: Some(8 << 10), ..SMALL };
    let copied = Geometry { logged_value_bytes: Some(4 << 10), ..tiny };
    let listed = Geometry { generation_bytes: Some(1 << 10), listed_chains: Some(1), ..SMALL };
    vec![
        script("insert", 1, SMALL, 40, inserts, &[(Commits, 12)]),
        script("bulk", 1, SMALL, 40, bulk, &[(RowsInserted, 400), (Splits, 1)]),
        script("update and delete", 1, SMALL, 60, updates_and_deletes, &[(RowsDeleted, 20)]),
        script("page flush and checkpoint", 1, SMALL, 100, checkpoints, &[(Checkpoints, 3)]),
        script("memtable flush", 2, tiny, 50, flush, &[(MemtableFlushes, 2)]),
        script("compaction", 6, tiny, 50, compaction, &[(CompactionsFinished, 1)]),
        script("log rotation", 12, SMALL, 20, rotation, &[(LogRotations, 2), (LogRecycled, 1)]),
        script("add index", 1, built, 100, add_index::alone, &[(BuildCompactions, 1)]),
        builds(
            "add index beside writers",
            6,
            10_000,
            add_index::beside_writers,
            &[(BuildCompactions, 3)],
        ),
        builds("add index refused", 6, 9_000, add_index::refused, &[(BuildCompactions, 2)]),
        script("drop", 1, SMALL, 100, drops, &[(Commits, 2)]),
        script("numbers", 1, SMALL, 20, numbers, &[(RowsInserted, 225)]),
        script("large transaction", 1, undo, 100, large_transaction, &[(UndoSpilledBytes, 1)]),
        script("overflow chains", 2, SMALL, 20, chains, &[(LogBytes, 100_000)]),
        script("values not logged", 2, unlogged, 20, chains, &[(UnloggedValueBytes, 50_000)]),
        script("chains in lists", 6, listed, 20, chain_lists, &[(OverflowChainsSaved, 12)]),
        script("chains in lists found", 1, listed, 20, chain_lists_found, &[]),
        script("chains in lists freed", 1, listed, 20, chains_freed, &[]),
        script("cascades", 2, SMALL, 20, cascades::script, &[(RowsCascaded, 30)]),
        script("temporary tables", 2, SMALL, 40, temporary::script, &[(Commits, 8)]),
        script(
            "backup",
            6,
            copied,
            20,
            backup::script,
            &[(BackupsCompleted, 1), (UnloggedValueBytes, 10_000)],
        ),
        armed_backup(copied),
        script(
            "chain of backups",
            12,
            copied,
            20,
            backup::chain,
            &[(BackupsCompleted, 3), (UnloggedValueBytes, 50_000)],
        ),
        script("two-phase commit", 1, SMALL, 100, two_phases, &[(Rollbacks, 1)]),
        script("recovery", 1, SMALL, 300, recovery, &[(RowsRolledBack, LOST as u64)]),
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
