//! Scripts that build indexes, crashed in every phase of a build (F1-F4). One build makes several
//! indexes in one pass, one of them unique, with so many runs that the build must compact them.
//! Meanwhile sessions commit and roll back changes that they made before the build, during it and
//! across its barriers.

use super::common::{T, rest};
use super::seen::Seen;
use crate::actor::Actor;
use crate::values::{UNIQUE, index_spec};
use evenkeel::{BuildPhase, BuildProgress, Code, Database, Error, IndexSpec, Result};
use evenkeel_base::sync::Mutex;
use evenkeel_io::sim::{CrashPolicy, Survivor};
use evenkeel_io::{Env, SimEnv};
use std::sync::Arc;
use std::time::Duration;

/// The states of a build that a crash must hit.
pub const PHASES: [&str; 5] = ["waiting", "scanning", "writing runs", "merging runs", "checking"];
/// Changes that a session makes while the build scans the table and writes runs.
const STEPS: i64 = 8;

/// From now on each crash is counted with the state of this build.
fn watch(seen: &Arc<Seen>, sim: &SimEnv, progress: &BuildProgress) {
    let (seen, progress) = (seen.clone(), progress.clone());
    sim.disk().at_crash(move |error| seen.note(now(&progress, error)));
}

/// The state of a build at the call that gets this error.
fn now(progress: &BuildProgress, error: &Error) -> &'static str {
    // The runs of the last round exist, so new runs are outputs of a compaction.
    let all_written = progress.rows_written() == progress.rows_total();
    // The error is one of creating or syncing a run file. (The files of a compaction's inputs are
    // only removed.)
    let is_made = matches!(error.code(), Code::FileOpen | Code::SyncFailed)
        && error.context("file").is_some_and(|path| path.contains("runs/"));
    match progress.phase() {
        BuildPhase::Waiting => "waiting",
        BuildPhase::Scanning => "scanning",
        BuildPhase::Writing if all_written && is_made => "merging runs",
        BuildPhase::Writing if all_written => "removing or installing runs",
        BuildPhase::Writing => "writing runs",
        BuildPhase::Checking => "checking",
        BuildPhase::Idle | BuildPhase::Done => "before it or after it",
    }
}

/// Builds without concurrent sessions.
pub fn alone(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    let specs = [index_spec("by_ba"), index_spec("by_u")];
    a.schema(T, |db| db.add_indexes(T, &specs))?;
    a.put(T, 1, 5, 5, Some(77_777))?;
    a.commit()?;
    a.schema(T, |db| db.drop_index(T, UNIQUE))?;
    a.schema(T, |db| db.add_indexes(T, &[index_spec(UNIQUE)]))
}

/// Builds indexes in a thread of its own while `beside` runs; the build must end as `expected`
/// says.
fn build(
    sim: &SimEnv,
    a: &mut Actor<'_>,
    (names, progress): (&[&str], &BuildProgress),
    expected: Option<Code>,
    beside: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let ended = Arc::new(Mutex::new(None));
    a.schema(T, |db| {
        let (db, progress, ended_as) = (db.clone(), progress.clone(), ended.clone());
        let specs: Vec<IndexSpec> = names.iter().map(|name| index_spec(name)).collect();
        let work = move || {
            let built = db.add_indexes_with(T, &specs, &progress);
            *ended_as.lock() = Some(built);
        };
        let task = sim.spawn("build", Box::new(work))?;
        if let Err(error) = beside() {
            // The build has failed; its error is the reason, not that of the session next to it.
            return Err(ended.lock().take().and_then(Result::err).unwrap_or(error));
        }
        task.join()?;
        match (ended.lock().take(), expected) {
            (Some(Err(error)), Some(code)) if error.code() == code => Ok(()),
            (Some(Ok(())), Some(code)) => Err(Error::internal(format!("built without {code:?}"))),
            (Some(built), _) => built,
            // The crash has unwound the thread.
            (None, _) => Err(Error::internal("the build has no end")),
        }
    })
}

/// Number of waits within which a concurrent build must progress.
const PATIENCE: u64 = 2_000;

/// Waits until the build waits for the transactions whose changes are open.
fn await_waiting(sim: &SimEnv, db: &Database, progress: &BuildProgress) {
    let mut phase = BuildPhase::Idle;
    for _ in 0..PATIENCE {
        if phase == BuildPhase::Idle {
            phase = db.wait_build(progress, phase, Duration::from_millis(10));
        }
    }
    assert!(
        phase == BuildPhase::Waiting || sim.disk().is_disturbed(),
        "it does not wait: {phase:?}"
    );
}

/// Gives the build time to progress, and checks that it waits.
fn waits(sim: &SimEnv, progress: &BuildProgress, phase: BuildPhase) {
    rest(sim, 50);
    let now = progress.phase();
    assert!(now == phase || sim.disk().is_disturbed(), "{phase:?} has not waited: {now:?}");
}

/// One transaction of a session next to a build, on rows of its own.
fn step(writer: &mut Actor<'_>, n: i64) -> Result<()> {
    match n % 4 {
        0 => {
            writer.put(T, 30 + n, 80 + n, 10 + 5 * n as usize, Some(2_000 + n))?;
            writer.commit()
        }
        1 => {
            writer.put(T, 40 + n, 80, 25, Some(2_000 + n))?;
            writer.delete(T, 50 + n)?;
            writer.rollback()
        }
        2 => {
            writer.delete(T, 60 + n)?;
            writer.put(T, 400 + n, 80 + n, 15, Some(2_000 + n))?;
            writer.commit()
        }
        _ => {
            writer.put(T, 70 + n, 80 + n, 30, None)?;
            writer.savepoint()?;
            writer.put(T, 70 + n, 81 + n, 30, Some(2_000 + n))?;
            writer.delete(T, 80 + n)?;
            writer.back()?;
            writer.put(T, 90 + n, 82, 5, Some(3_000 + n))?;
            writer.commit()
        }
    }
}

/// Runs from the end of the first barrier to the end of the build. `writer` commits and rolls back.
/// `late` has an open change, so the second barrier waits for it; it makes more changes and then
/// runs `end`. A checkpoint meanwhile discards the log of the build's beginning.
fn go_on(
    sim: &SimEnv,
    progress: &BuildProgress,
    writer: &mut Actor<'_>,
    mut late: Actor<'_>,
    end: fn(&mut Actor<'_>) -> Result<()>,
) -> Result<()> {
    let (db, crash) = (writer.db.clone(), sim.clone());
    let checkpoint = move || {
        let taken = db.checkpoint();
        assert!(taken.is_ok() || crash.disk().is_disturbed(), "{taken:?}");
    };
    let checkpoint = sim.spawn("checkpoint", Box::new(checkpoint))?;
    let (mut n, mut has_ended) = (0, false);
    for _ in 0..PATIENCE {
        match progress.phase() {
            BuildPhase::Done => return checkpoint.join(),
            BuildPhase::Checking if !has_ended => {
                writer.put(T, 22, 90, 20, Some(1_022))?;
                writer.commit()?;
                late.put(T, 23, 91, 20, Some(1_023))?;
                waits(sim, progress, BuildPhase::Checking);
                end(&mut late)?;
                has_ended = true;
            }
            BuildPhase::Scanning | BuildPhase::Writing if n < STEPS => {
                step(writer, n)?;
                n += 1;
            }
            phase => {
                writer.db.wait_build(progress, phase, Duration::from_millis(5));
            }
        }
    }
    Err(Error::internal("the build does not go on"))
}

/// One session commits the changes that it made before the build, another rolls them back. For a
/// while there are rows with equal keys.
pub fn beside_writers(sim: &SimEnv, a: &mut Actor<'_>, seen: &Arc<Seen>) -> Result<()> {
    a.schema(T, |db| db.drop_index(T, UNIQUE))?;
    let [mut kept, mut given_up, mut writer, mut late] = [(); 4].map(|()| a.beside());
    kept.put(T, 1, 70, 30, Some(1_001))?;
    kept.delete(T, 2)?;
    kept.put(T, 300, 70, 30, Some(1_300))?;
    given_up.put(T, 3, 71, 30, Some(4))?;
    given_up.delete(T, 5)?;
    given_up.put(T, 301, 71, 30, Some(7))?;
    let progress = BuildProgress::default();
    watch(seen, sim, &progress);
    build(sim, a, (&["by_ba", "by_b", UNIQUE], &progress), None, || {
        await_waiting(sim, &writer.db, &progress);
        writer.put(T, 10, 72, 40, Some(1_010))?;
        writer.commit()?;
        writer.put(T, 11, 72, 40, Some(12))?;
        writer.rollback()?;
        late.put(T, 20, 73, 20, Some(1_020))?;
        late.delete(T, 21)?;
        waits(sim, &progress, BuildPhase::Waiting);
        kept.commit()?;
        writer.delete(T, 13)?;
        writer.commit()?;
        waits(sim, &progress, BuildPhase::Waiting);
        given_up.rollback()?;
        go_on(sim, &progress, &mut writer, late, |late| late.commit())
    })?;
    a.put(T, 1, 5, 5, Some(77_777))?;
    a.commit()
}

/// One session prepares the changes that it made before the build and commits them, which gives a
/// row the unique key of another row. The build fails, also for the indexes that are not unique.
pub fn refused(sim: &SimEnv, a: &mut Actor<'_>, seen: &Arc<Seen>) -> Result<()> {
    a.schema(T, |db| db.drop_index(T, UNIQUE))?;
    let [mut kept, mut back, mut writer, mut late] = [(); 4].map(|()| a.beside());
    kept.put(T, 1, 70, 30, Some(1_001))?;
    kept.put(T, 300, 70, 30, Some(7))?;
    kept.prepare("kept")?;
    back.put(T, 3, 71, 30, Some(1_003))?;
    back.savepoint()?;
    back.put(T, 4, 71, 30, Some(5))?;
    back.back()?;
    let progress = BuildProgress::default();
    watch(seen, sim, &progress);
    let expected = Some(Code::DuplicateInBuild);
    build(sim, a, (&["by_b", UNIQUE], &progress), expected, || {
        await_waiting(sim, &writer.db, &progress);
        late.put(T, 20, 73, 20, Some(1_020))?;
        back.commit()?;
        writer.put(T, 10, 72, 40, Some(1_010))?;
        writer.commit()?;
        waits(sim, &progress, BuildPhase::Waiting);
        kept.decide("kept", true)?;
        go_on(sim, &progress, &mut writer, late, |late| late.rollback())
    })?;
    a.delete(T, 300)?;
    a.commit()
}

/// Either all indexes of a build exist or none; of a failed build none do. On a few of the
/// surviving disks the missing indexes are built, to check that the remains of an interrupted build
/// do not interfere. After all indexes are dropped, their runs must be deleted.
pub fn check(
    sim: &SimEnv,
    db: &Database,
    script: &str,
    which: Option<Survivor>,
) -> std::result::Result<(), String> {
    let def = db.definition(T).map_err(|e| e.to_string())?;
    let there = |name: &str| def.index(name).is_ok();
    let fits = match script {
        "add index" => there("by_ba") == there("by_u"),
        "add index refused" => !there("by_b"),
        _ => there("by_ba") == there("by_b") && (!there("by_ba") || there(UNIQUE)),
    };
    if !fits {
        let names: Vec<_> = def.indexes.iter().map(|index| index.name.as_str()).collect();
        return Err(format!("indexes of a build that was cut: {names:?}"));
    }
    // For a killed process this is not the last life.
    let policies: Vec<_> =
        CrashPolicy::ALL.iter().filter(|policy| **policy != CrashPolicy::Killed).collect();
    let nth = |which: Survivor| policies[(which.change / 2) as usize % policies.len()];
    if which.is_some_and(|which| which.change.is_multiple_of(2) && which.policy == *nth(which)) {
        return build_anew(sim, db).map_err(|e| e.to_string());
    }
    Ok(())
}

fn build_anew(sim: &SimEnv, db: &Database) -> Result<()> {
    for xid in db.prepared() {
        db.rollback_prepared(&xid)?;
    }
    let def = db.definition(T)?;
    let missing = ["by_ba", "by_b", "by_u"].into_iter().filter(|name| def.index(name).is_err());
    let specs: Vec<IndexSpec> = missing.map(index_spec).collect();
    db.add_indexes(T, &specs)?;
    let problems = db.check()?.problems;
    if !problems.is_empty() {
        return Err(Error::internal(format!("built anew: {problems:?}")));
    }
    for index in &db.definition(T)?.indexes {
        db.drop_index(T, &index.name)?;
    }
    let runs = || sim.disk().paths().into_iter().filter(|path| path.contains("runs/"));
    for _ in 0..200 {
        if runs().next().is_none() {
            return Ok(());
        }
        rest(sim, 10);
    }
    Err(Error::internal(format!("left behind: {:?}", runs().collect::<Vec<_>>())))
}
