//! Armed backups: what comes while they follow the log, their end, and an end that was given up.

use crate::backup::backup_tests::{hooked, put, restored, rows, runs_of, source, until};
use crate::backup::gate_tests::followed;
use crate::backup::restore::BackupSource;
use crate::{BackupPhase, BackupProgress, BackupReport, Code, Database, Metric, Result};
use evenkeel_format::backup::MARKER_FILE;
use evenkeel_io::{Env, MemEnv, OpenMode};
use std::sync::Arc;

/// Records that are not durable yet may be left.
const NEAR_BYTES: u64 = 64 << 10;
const NOTE: &str = "mariadb-bin.000002 4711";

/// Runs `during` beside an armed backup that has copied everything once.
fn beside<R>(
    db: &Database,
    to: Arc<dyn Env>,
    progress: &BackupProgress,
    during: impl FnOnce() -> R,
) -> (Result<BackupReport>, R) {
    std::thread::scope(|scope| {
        let backup = scope.spawn(|| db.backup_in(to, "backup", progress));
        until("the following", || progress.left_bytes() < NEAR_BYTES || backup.is_finished());
        let found = during();
        (backup.join().expect("no panic"), found)
    })
}

#[test]
fn an_armed_backup_has_what_was_committed_before_its_end_was_asked_for() {
    let db = source();
    put(&db, 0..3_000, 300);
    let (to, progress) = (Arc::new(MemEnv::new()), BackupProgress::armed());
    let (report, (fixed, at_end)) = beside(&db, to.clone(), &progress, || {
        assert_eq!(progress.phase(), BackupPhase::Follow);
        // The backup follows rows, long values, flushes and the removal of an index.
        let before = db.stats().get(Metric::MemtableFlushes);
        put(&db, 3_000..9_000, 200);
        put(&db, 20_000..20_020, 100_000);
        until("a flush", || db.stats().get(Metric::MemtableFlushes) > before);
        db.drop_index("t", "by_a_too").expect("drops");
        until("the copy", || progress.left_bytes() < NEAR_BYTES);
        assert_eq!((progress.phase(), progress.end_lsn()), (BackupPhase::Follow, None));
        put(&db, 30_000..30_010, 100_000);
        let at_end = rows(&db);
        progress.end(NOTE);
        until("the end", || progress.end_lsn().is_some());
        put(&db, 40_000..40_300, 30_000);
        (progress.end_lsn(), at_end)
    });
    let report = report.expect("backs up");
    assert_eq!(fixed, Some(report.end));
    let manifest = BackupSource::open(to.clone(), "backup").expect("opens").manifest;
    assert_eq!(manifest.note.as_deref(), Some(NOTE));
    assert!(rows(&restored(to).expect("restores")) == at_end, "other rows");
}

/// After the request is taken back commits are no longer held off, so the copy may have some that
/// came later: it must not count.
#[test]
fn an_end_that_was_given_up_never_counts() {
    let db = source();
    put(&db, 0..2_000, 200);
    let progress = BackupProgress::armed();
    let (writing, asked) = (db.clone(), progress.clone());
    let to = followed(move || {
        match asked.phase() {
            BackupPhase::Follow => {
                // These are copied behind the question.
                put(&writing, 6_000..6_010, 100_000);
                asked.end("");
            }
            BackupPhase::Log => assert!(asked.give_up(), "it was fixed"),
            _ => {}
        }
        Ok(())
    });
    let (report, ()) = beside(&db, to.clone(), &progress, || put(&db, 5_000..5_010, 100_000));
    assert_eq!(report.expect_err("given up").code(), Code::StatementCancelled);
    assert!(to.open(MARKER_FILE, OpenMode::READ).is_err());
    assert_eq!(progress.end_lsn(), None);
}

/// The superblock is written when the end is fixed.
#[test]
fn an_end_that_is_fixed_is_not_given_up() {
    let db = source();
    put(&db, 0..500, 200);
    let progress = BackupProgress::armed();
    let giving_up = progress.clone();
    let to = hooked("superblock", move || assert!(!giving_up.give_up()));
    let (report, ()) = beside(&db, to, &progress, || progress.end(""));
    assert_eq!(Some(report.expect("backs up").end), progress.end_lsn());
}

/// Runs that are not listed any more leave the copy while it follows the log.
#[test]
fn the_copy_loses_runs_that_the_database_has_lost() {
    let db = source();
    put(&db, 0..4_000, 60);
    until("flushes", || runs_of(&db, 0) > 0 && runs_of(&db, 1) > 0);
    let (to, progress) = (Arc::new(MemEnv::new()), BackupProgress::armed());
    let (report, ()) = beside(&db, to.clone(), &progress, || {
        let copied = to.list("runs").expect("lists");
        assert!(!copied.is_empty());
        db.drop_index("t", "by_a").expect("drops");
        db.drop_index("t", "by_a_too").expect("drops");
        let left = || to.list("runs").expect("lists");
        until("the removal", || copied.iter().all(|run| !left().contains(run)));
        progress.end("");
    });
    report.expect("backs up");
    assert!(rows(&restored(to).expect("restores")) == rows(&db), "other rows");
}

#[test]
fn a_close_ends_an_armed_backup() {
    let db = source();
    put(&db, 0..100, 10);
    let progress = BackupProgress::armed();
    let (report, closed) = beside(&db, Arc::new(MemEnv::new()), &progress, || db.clone().close());
    closed.expect("closes");
    assert!(report.is_err());
}
