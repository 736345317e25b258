//! A backup to another directory of the same disk, while the background flushes and compacts, and
//! an armed one beside sessions, and a chain of backups that build on each other. A crash at any of
//! its steps leaves the database as it was, and the copy without a marker, or complete.

use super::common::{T, rest};
use super::seen::Seen;
use crate::actor::Actor;
use evenkeel::io::SubEnv;
use evenkeel::{
    Access, BackupPhase, BackupProgress, BackupReport, Code, Database, Direction, Error, Isolation,
    Options, Result, Row, ValueRef, restore_backup_in, verify_backup_in,
};
use evenkeel_base::sync::Mutex;
use evenkeel_io::{Env, MemEnv, SimEnv};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The directory of the copy, and what makes it complete.
const COPY: &str = "copy";
const MARKER: &str = "copy/COMPLETE";
/// Rows at the beginning, and those that the script adds before the backup.
const ROWS: i64 = 20;
const ADDED: i64 = 60;
/// One row in this many is deleted.
const DELETED: i64 = 9;

fn copy(sim: &SimEnv) -> Arc<dyn Env> {
    Arc::new(SubEnv::new(sim.env(), COPY))
}

/// The phases of an armed backup that a crash must hit.
pub const PHASES: &[&str] = &["before it", "copying", "following", "ending", "behind its end"];
/// Rows that are added while an armed backup follows the log, and those of a session whose change
/// is open at its end.
const FOLLOWED: i64 = 40;
const OPEN: i64 = 6;
/// So long that the value bypasses the log.
const LONG: usize = 20_000;
/// Number of waits within which an armed backup must go on.
const PATIENCE: usize = 2_000;

/// Changes rows, takes a backup while another session has changed some without a commit, and goes
/// on.
pub fn script(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    fill(a)?;
    let mut open = a.beside();
    open.put(T, 3, 5, 40, Some(90_003))?;
    open.delete(T, 4)?;
    let done = a.db.backup_in(copy(sim), COPY, &BackupProgress::default());
    may_lose_log(sim, done)?;
    open.rollback()?;
    a.put(T, 5, 1, 60, Some(90_005))?;
    a.commit()?;
    a.db.checkpoint()
}

/// The directories of the members of a chain.
const CHAIN: [&str; 3] = ["copy", "copy2", "copy3"];
/// Rows that each further member of the chain adds.
const MORE: i64 = 12;

fn member(sim: &SimEnv, n: usize) -> Arc<dyn Env> {
    Arc::new(SubEnv::new(sim.env(), CHAIN[n]))
}

/// Takes a full backup, and then backups that build on it. Rows of the first one change and go
/// between them, some while a backup copies pages, and long values are written past the log.
pub fn chain(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    fill(a)?;
    a.db.checkpoint()?;
    let progress = BackupProgress::default();
    let done = a.db.backup_in(member(sim, 0), CHAIN[0], &progress);
    let mut is_there = done.is_ok();
    may_lose_log(sim, done)?;
    for n in 1..CHAIN.len() {
        let first = 200 * n as i64;
        for id in first..first + MORE {
            let len = if id % 5 == 0 { LONG } else { 200 };
            a.put(T, id, n as i64, len, Some(id))?;
        }
        a.put(T, n as i64, 70 + n as i64, 90, Some(80_000 + n as i64))?;
        a.delete(T, 10 + n as i64)?;
        a.commit()?;
        if n == 1 {
            // The log no longer makes the pages: recovery needs the images.
            a.db.checkpoint()?;
        }
        if is_there {
            let base = (member(sim, n - 1), CHAIN[n - 1].to_string());
            let progress = BackupProgress::default();
            let done = a.db.backup_onto_in(base, member(sim, n), CHAIN[n], &progress);
            is_there = done.is_ok();
            may_lose_log(sim, done)?;
        }
    }
    a.put(T, 5, 1, 60, Some(90_005))?;
    a.commit()?;
    a.db.checkpoint()
}

/// The numbers of the rows that a member of the chain must hold, by id.
fn expected_of(member: usize) -> BTreeMap<i64, i64> {
    let mut rows = expected(false);
    for n in 1..=member as i64 {
        rows.extend((200 * n..200 * n + MORE).map(|id| (id, n)));
        rows.insert(n, 70 + n);
        rows.remove(&(10 + n));
    }
    rows
}

/// Checks each member of the chain that has its marker.
pub fn check_chain(sim: &SimEnv) -> std::result::Result<(), String> {
    let bases: Vec<Arc<dyn Env>> = (0..CHAIN.len()).map(|n| member(sim, n)).collect();
    for (n, name) in CHAIN.iter().enumerate() {
        if !sim.disk().paths().contains(&format!("{name}/COMPLETE")) {
            continue;
        }
        check_copy(member(sim, n), &bases[..n], &expected_of(n))
            .map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

/// Adds and deletes rows.
fn fill(a: &mut Actor<'_>) -> Result<()> {
    for id in ROWS..ROWS + ADDED {
        // Some values are so long that they bypass the log.
        let len = if id % 10 == 0 { LONG } else { 300 };
        a.put(T, id, id % 7, len, Some(id))?;
        if id % DELETED == 0 {
            a.delete(T, id)?;
        }
        if id % 6 == 5 {
            a.commit()?;
        }
    }
    a.commit()
}

/// Takes an armed backup in a thread of its own: rows are added while it follows the log, and until
/// its end is fixed another session writes long values, without a commit.
pub fn armed(sim: &SimEnv, a: &mut Actor<'_>, seen: &Arc<Seen>) -> Result<()> {
    fill(a)?;
    let progress = BackupProgress::armed();
    watch(seen, sim, &progress);
    let ended = Arc::new(Mutex::new(None));
    let (db, to, shown, ended_as) = (a.db.clone(), copy(sim), progress.clone(), ended.clone());
    let work = move || {
        let done = db.backup_in(to, COPY, &shown);
        *ended_as.lock() = Some(done);
    };
    let backup = sim.spawn("backup", Box::new(work))?;
    let done = beside_armed(sim, a, &progress, &ended);
    if done.is_err() {
        progress.cancel();
    }
    backup.join()?;
    match (ended.lock().take(), done) {
        (Some(Ok(report)), Ok(())) => {
            let is_as_told = progress.end_lsn() == Some(report.end);
            if is_as_told { Ok(()) } else { Err(Error::internal("another end than was told")) }
        }
        // The backup was cancelled for it.
        (Some(Err(error)), Err(why)) if error.code() == Code::StatementCancelled => Err(why),
        (Some(Err(error)), done) => may_lose_log(sim, Err(error)).and(done),
        (Some(Ok(_)), Err(error)) => Err(error),
        // The crash has unwound the thread.
        (None, _) => Err(Error::internal("the backup has no end")),
    }
}

/// Where there is no space for another segment, a backup gives up the log that it keeps.
fn may_lose_log(sim: &SimEnv, done: Result<BackupReport>) -> Result<()> {
    match done {
        Err(error) if error.code() == Code::BackupBehindLog && sim.disk().is_disturbed() => Ok(()),
        done => done.map(drop),
    }
}

/// From now on each crash is counted with the phase of this backup.
fn watch(seen: &Arc<Seen>, sim: &SimEnv, progress: &BackupProgress) {
    let (seen, progress) = (seen.clone(), progress.clone());
    let phase = move || match (progress.phase(), progress.end_lsn()) {
        (_, Some(_)) => "behind its end",
        (BackupPhase::Pages | BackupPhase::Runs, _) => "copying",
        (BackupPhase::Follow, _) => "following",
        (BackupPhase::Log, _) => "ending",
        _ => "before it",
    };
    sim.disk().at_crash(move |_| seen.note(phase()));
}

/// What sessions do beside the armed backup.
fn beside_armed(
    sim: &SimEnv,
    a: &mut Actor<'_>,
    progress: &BackupProgress,
    ended: &Arc<Mutex<Option<Result<BackupReport>>>>,
) -> Result<()> {
    // False if the backup has ended, whose error tells why.
    let until = |what: &dyn Fn() -> bool| {
        (0..PATIENCE).any(|_| {
            rest(sim, 5);
            what() || ended.lock().is_some()
        }) && ended.lock().is_none()
    };
    if !until(&|| progress.phase() == BackupPhase::Follow) {
        return Ok(());
    }
    for id in ROWS + ADDED..ROWS + ADDED + FOLLOWED {
        let len = if id % 8 == 0 { LONG } else { 200 };
        a.put(T, id, id % 7, len, Some(id))?;
        if id % 5 == 0 {
            a.commit()?;
            rest(sim, 10);
        }
    }
    a.commit()?;
    let mut open = a.beside();
    open.put(T, 3, 5, LONG, Some(90_003))?;
    progress.end("");
    for id in 500..500 + OPEN {
        open.put(T, id, 1, LONG, Some(90_000 + id))?;
    }
    (0..PATIENCE).any(|_| {
        rest(sim, 5);
        progress.end_lsn().is_some() || ended.lock().is_some()
    });
    open.commit()?;
    a.delete(T, 7)?;
    a.commit()?;
    a.db.checkpoint()
}

/// The numbers of the rows that the copy must hold, by id.
fn expected(is_armed: bool) -> BTreeMap<i64, i64> {
    let added = ROWS + ADDED;
    let is_there = |id: &i64| *id < ROWS || *id >= added || id % DELETED != 0;
    let end = if is_armed { added + FOLLOWED } else { added };
    (0..end).filter(is_there).map(|id| (id, id % 7)).collect()
}

/// Checks the copy, if it has its marker.
pub fn check(sim: &SimEnv, is_armed: bool) -> std::result::Result<(), String> {
    if !sim.disk().paths().iter().any(|path| path == MARKER) {
        return Ok(());
    }
    check_copy(copy(sim), &[], &expected(is_armed))
}

/// Restores a complete copy, which must hold these rows.
fn check_copy(
    copy: Arc<dyn Env>,
    bases: &[Arc<dyn Env>],
    expected: &BTreeMap<i64, i64>,
) -> std::result::Result<(), String> {
    let checked = verify_backup_in(copy.clone(), COPY, bases).map_err(|e| e.to_string())?;
    let problems = checked.problems;
    if !problems.is_empty() {
        return Err(format!("a copy with its marker: {problems:?}"));
    }
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    restore_backup_in(copy, env.clone(), bases).map_err(|e| e.to_string())?;
    let found = Database::open_with("restored", Options::new().env(env)).and_then(|db| read(&db));
    match found.map_err(|e| e.to_string())? {
        (found, problems) if found == *expected && problems.is_empty() => Ok(()),
        (found, problems) => Err(format!("the copy holds {found:?}, problems {problems:?}")),
    }
}

fn read(db: &Database) -> Result<(BTreeMap<i64, i64>, Vec<String>)> {
    let problems = db.check()?.problems;
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    let mut scan = txn.table(T)?.scan(.., Direction::Forward)?;
    let (mut rows, mut row) = (BTreeMap::new(), Row::new());
    while scan.next(&mut row)? {
        let int = |value| match value {
            ValueRef::Int(value) => value,
            _ => i64::MIN,
        };
        rows.insert(int(row.value(0)?), int(row.get("a")?));
    }
    Ok((rows, problems))
}
