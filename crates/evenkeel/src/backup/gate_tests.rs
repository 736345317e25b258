//! The gate for writers of pages that bypass the log (`UnloggedGate`): sessions that always write
//! more long values than a backup copies, the ends of their waits, and a backup that fails while
//! they wait.

use crate::backup::backup_tests::{options, pad, restored, rows, source, until};
use crate::backup::writers_tests::{Done, expected, spec};
use crate::{
    Access, BackupPhase, BackupProgress, BuildProgress, Code, Database, Error, Isolation, Metric,
    Result, Txn, Value,
};
use evenkeel_base::Cause;
use evenkeel_base::sync::Mutex;
use evenkeel_io::{Env, File, MemEnv, OpenMode, delegate_env};
use evenkeel_tree::UnloggedGate;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const WRITERS: i64 = 2;
const VALUE_BYTES: usize = 400_000;
/// More than the last round of a backup copies.
const AT_FIRST_BYTES: u64 = 20 << 20;
/// The sessions of a test write at most this much: twice as much as a backup lets them write before
/// it ends.
const AT_MOST_BYTES: u64 = 256 << 20;
const EXTENT_BYTES: u64 = 1 << 20;

type BeforeWrite = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// Calls a function before each write to a file of pages.
pub(super) struct Followed {
    inner: MemEnv,
    before: BeforeWrite,
}

struct FollowedFile {
    inner: Arc<dyn File>,
    before: BeforeWrite,
}

impl File for FollowedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        (self.before)()?;
        self.inner.write_at(buf, offset)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.allocate(offset, len)
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.punch(offset, len)
    }
}

impl Env for Followed {
    delegate_env!(inner: list, remove, rename, create_dir, sync_dir, now_ns, random, wait, spawn);

    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode)?;
        match path.starts_with("pages/") {
            true => Ok(Arc::new(FollowedFile { inner, before: self.before.clone() })),
            false => Ok(inner),
        }
    }
}

/// A destination that calls this before each write to a file of pages.
pub(super) fn followed(before: impl Fn() -> Result<()> + Send + Sync + 'static) -> Arc<Followed> {
    Arc::new(Followed { inner: MemEnv::new(), before: Arc::new(before) })
}

fn gate(db: &Database) -> &UnloggedGate {
    db.engine.store.trees().unlogged_gate()
}

fn unlogged_bytes(db: &Database) -> u64 {
    db.stats().get(Metric::UnloggedValueBytes)
}

/// The bytes of long values that the sessions have written, and those up to which they may.
#[derive(Default)]
struct Pace {
    wanted: AtomicU64,
    is_free: AtomicBool,
}

impl Pace {
    fn wait(&self, db: &Database) {
        let may = || unlogged_bytes(db) < self.wanted.load(Ordering::SeqCst);
        until("the backup", || self.is_free.load(Ordering::SeqCst) || may());
    }
}

/// Every write to a copied page waits until the sessions have written more than that since, or all
/// of them wait at the gate; then `at_gate` is asked.
fn behind_writers(
    db: &Database,
    progress: &BackupProgress,
    pace: &Arc<Pace>,
    at_gate: impl Fn() -> Result<()> + Send + Sync + 'static,
) -> Arc<Followed> {
    let (db, progress, pace) = (db.clone(), progress.clone(), pace.clone());
    let before = move || {
        let before = pace.wanted.load(Ordering::SeqCst);
        let more = match progress.phase() {
            BackupPhase::Log => EXTENT_BYTES + EXTENT_BYTES / 20,
            _ if before == 0 => AT_FIRST_BYTES,
            _ => return Ok(()),
        };
        if before + more > AT_MOST_BYTES {
            return Err(Error::internal("the backup does not end"));
        }
        pace.wanted.store(before + more, Ordering::SeqCst);
        let all_wait = || gate(&db).waiting() == WRITERS as u64;
        until("a long value", || unlogged_bytes(&db) >= before + more || all_wait());
        if all_wait() { at_gate() } else { Ok(()) }
    };
    followed(before)
}

/// Puts long values until it is stopped.
fn write(
    db: &Database,
    number: i64,
    pace: &Pace,
    stop: &AtomicBool,
    commits: &AtomicU64,
) -> Vec<Done> {
    let mut done = Vec::new();
    for round in 0i64.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        pace.wait(db);
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        let (id, value) = (number + WRITERS * (round % 3), pad(round, VALUE_BYTES));
        let row = [Value::Int(id), Value::Int(round), Value::Bytes(value.clone())];
        let row: Vec<_> = row.iter().map(Value::as_ref).collect();
        txn.table("t").expect("there").put(&row).expect("puts");
        let lsn = txn.commit().expect("commits");
        done.push((lsn, vec![(id, Some((round, value)))]));
        commits.fetch_add(1, Ordering::SeqCst);
    }
    done
}

/// Runs `during` beside sessions that put long values; they go on when it has ended.
fn beside_writers<R>(
    db: &Database,
    pace: &Pace,
    during: impl FnOnce() -> R,
) -> (R, Vec<Vec<Done>>) {
    // No page of a superseded value is used again: as many extents change as are written.
    let reader = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    reader.take_snapshot().expect("a snapshot");
    let (stop, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let done: Mutex<Vec<Vec<Done>>> = Mutex::default();
    let found = std::thread::scope(|scope| {
        for number in 0..WRITERS {
            let (done, stop, commits) = (&done, &stop, &commits);
            scope.spawn(move || {
                let own = write(db, number, pace, stop, commits);
                done.lock().push(own);
            });
        }
        let found = during();
        pace.is_free.store(true, Ordering::SeqCst);
        let before = commits.load(Ordering::SeqCst);
        until("a commit behind it", || commits.load(Ordering::SeqCst) > before);
        stop.store(true, Ordering::SeqCst);
        found
    });
    (found, done.into_inner())
}

fn database() -> Database {
    let db = Database::open_with("source", options().env(Arc::new(MemEnv::new()))).expect("opens");
    db.create_table("t", &spec()).expect("makes");
    db
}

#[test]
fn a_backup_ends_beside_sessions_that_always_write_more_than_it_copies() {
    let db = database();
    let (progress, pace) = (BackupProgress::default(), Arc::new(Pace::default()));
    let to = behind_writers(&db, &progress, &pace, || Ok(()));
    let (report, done) =
        beside_writers(&db, &pace, || db.backup_in(to.clone(), "backup", &progress));
    let end = report.expect("backs up").end;
    assert!(db.engine.rt.stalls.get(Cause::Backup).count > 0, "nobody has waited");
    let copy = restored(Arc::new(to.inner.fork())).expect("restores");
    assert!(rows(&copy) == expected(&done, end), "another table at {end}");
}

/// The gate opens when a backup ends that has failed, or was cancelled, while sessions wait there.
#[test]
fn a_backup_that_fails_while_sessions_wait_for_it_lets_them_go_on() {
    for code in [Code::DiskFull, Code::StatementCancelled] {
        let db = database();
        let (progress, pace) = (BackupProgress::default(), Arc::new(Pace::default()));
        let cancelling = progress.clone();
        let at_gate = move || match code {
            Code::DiskFull => Err(Error::new(Code::DiskFull)),
            _ => {
                cancelling.cancel();
                Ok(())
            }
        };
        let to = behind_writers(&db, &progress, &pace, at_gate);
        let (report, _) = beside_writers(&db, &pace, || db.backup_in(to, "backup", &progress));
        assert_eq!(report.expect_err("fails").code(), code);
        assert!(db.engine.rt.stalls.get(Cause::Backup).count > 0, "nobody has waited");
        let again = db.backup_in(Arc::new(MemEnv::new()), "backup", &BackupProgress::default());
        again.expect("backs up");
    }
}

/// A session that waits at the gate keeps neither a checkpoint nor logged commits back, and a
/// cancellation and the lock timeout end its wait.
#[test]
fn a_wait_for_a_backup_is_cancelled_and_has_a_timeout() {
    let db = source();
    let held = gate(&db).hold();
    let begin = |lock_wait: Duration| {
        let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        txn.set_lock_wait(lock_wait);
        txn
    };
    let put = |txn: &Txn, id: i64, len: usize| {
        let row = [Value::Int(id), Value::Int(0), Value::Bytes(pad(id, len))];
        let row: Vec<_> = row.iter().map(Value::as_ref).collect();
        txn.table("t").expect("there").put(&row).map(|_| ())
    };
    let long = Duration::from_secs(600);
    let (give, take) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let txn = begin(long);
            give.send(txn.canceller()).expect("is taken");
            put(&txn, 1, VALUE_BYTES)
        });
        let canceller = take.recv().expect("given");
        until("the wait", || gate(&db).waiting() == 1);
        let other = begin(long);
        put(&other, 2, 100).expect("puts");
        other.commit().expect("commits");
        db.checkpoint().expect("takes one");
        assert_eq!(gate(&db).waiting(), 1, "it has passed");
        canceller.cancel();
        let error = waiter.join().expect("no panic").expect_err("cancelled");
        assert_eq!(error.code(), Code::StatementCancelled);
    });
    let error = put(&begin(Duration::from_millis(300)), 3, VALUE_BYTES).expect_err("waits");
    assert_eq!(error.code(), Code::LockWaitTimeout);
    // A bulk load waits, too, and its progress cancels it.
    db.create_table("loaded", &spec()).expect("makes");
    let load = |progress: &BuildProgress| {
        let row = |id| [Value::Int(id), Value::Int(0), Value::from(pad(id, 500))];
        db.engine.store.load_table("loaded", (0..200).map(row), progress)
    };
    let progress = BuildProgress::default();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| load(&progress));
        until("the wait", || gate(&db).waiting() == 1);
        progress.cancel();
        let error = waiter.join().expect("no panic").expect_err("cancelled");
        assert_eq!(error.code(), Code::BuildCancelled);
    });
    drop(held);
    assert_eq!(load(&BuildProgress::default()).expect("loads"), 200);
    let txn = begin(long);
    put(&txn, 1, VALUE_BYTES).expect("puts");
    txn.commit().expect("commits");
    assert_eq!(rows(&db).len(), 2);
}
