//! Chains of backups: a full one, and incremental ones that build on it. Each member is restored
//! and compared with what the database held at its end.

use crate::backup::backup_tests::{
    Rows, hooked, options, pad, put, restored, restored_onto, rows, runs_of, source, source_in,
    until,
};
use crate::backup::restore::{BackupSource, restore_backup_in, verify_backup_in};
use crate::{
    Access, BackupProgress, BackupReport, Code, Database, Error, IndexSpec, Isolation, Metric,
    Options, Result, Value,
};
use evenkeel_format::backup::Piece;
use evenkeel_format::space::EXTENT_BYTES;
use evenkeel_io::{Env, MemEnv, OpenMode};
use std::sync::Arc;

type Copy = Arc<dyn Env>;

fn full(db: &Database) -> (Copy, BackupReport) {
    let to: Copy = Arc::new(MemEnv::new());
    let report = db.backup_in(to.clone(), "full", &BackupProgress::default());
    (to, report.expect("backs up"))
}

fn onto(db: &Database, base: &Copy) -> Result<(Copy, BackupReport)> {
    let to: Copy = Arc::new(MemEnv::new());
    let base = (base.clone(), "base".to_string());
    let report = db.backup_onto_in(base, to.clone(), "onto", &BackupProgress::default())?;
    Ok((to, report))
}

/// Pieces of files that begin so: those that the backup stores, and those of its base.
fn pieces(backup: &Copy, prefix: &str) -> (usize, usize) {
    let manifest = BackupSource::open(backup.clone(), "backup").expect("opens").manifest;
    let files = manifest.files.iter().filter(|file| file.path.starts_with(prefix));
    let all: Vec<Piece> = files.flat_map(|file| file.pieces.clone()).collect();
    let count = |of: fn(&&Piece) -> bool| all.iter().filter(of).count();
    (count(|p| matches!(p, Piece::Stored(_))), count(|p| **p == Piece::OfBase))
}

#[test]
fn each_member_of_a_chain_is_the_database_at_its_end() {
    let db = source();
    put(&db, 0..20_000, 300);
    until("a flush", || runs_of(&db, 0) > 0);
    db.checkpoint().expect("flushes");
    let (first, whole) = full(&db);
    let mut members: Vec<(Copy, Rows)> = vec![(first, rows(&db))];
    for round in 1..5i64 {
        put(&db, round * 1_000..round * 1_000 + 60, 280);
        put(&db, 30_000 + round * 3..30_003 + round * 3, 40_000);
        match round {
            2 => db.drop_index("t", "by_a_too").expect("drops"),
            3 => db.add_indexes("t", &[IndexSpec::new("again", &["a"])]).expect("builds"),
            _ => {}
        }
        if round != 1 {
            // The log no longer makes the pages: recovery needs the images.
            db.checkpoint().expect("flushes");
        }
        let (next, report) = onto(&db, &members[round as usize - 1].0).expect("backs up");
        let (stored, of_base) = pieces(&next, "pages/");
        println!("round {round}: {stored} pieces of pages, {of_base} of the base, {report:?}");
        assert!(of_base > stored && stored > 0, "round {round}: {stored} {of_base}");
        assert!(report.bytes < whole.bytes, "round {round}: {report:?} {whole:?}");
        members.push((next, rows(&db)));
    }
    let envs: Vec<Copy> = members.iter().map(|(env, _)| env.clone()).collect();
    for (n, (env, at_end)) in members.iter().enumerate() {
        let again = restored_onto(env.clone(), &envs).expect("restores");
        assert!(rows(&again) == *at_end, "other rows in member {n}");
        put(&again, 0..10, 20);
    }
}

/// A change that the image of the base lacks, because it came behind the copy of the page; only the
/// log of the base has it.
#[test]
fn a_change_between_the_redo_and_the_end_of_the_base_is_copied() {
    let db = source();
    put(&db, 0..8_000, 300);
    until("a flush", || runs_of(&db, 0) > 0);
    db.checkpoint().expect("flushes");
    let writing = db.clone();
    let base = hooked("runs/", move || put(&writing, 4_000..4_010, 250));
    db.backup_in(base.clone(), "base", &BackupProgress::default()).expect("backs up");
    db.checkpoint().expect("flushes");
    let base: Copy = base;
    let (next, _) = onto(&db, &base).expect("backs up");
    let again = restored_onto(next, &[base]).expect("restores");
    assert!(rows(&again) == rows(&db), "other rows");
}

#[test]
fn runs_of_the_base_are_not_copied_again_and_are_restored() {
    let db = source();
    put(&db, 0..4_000, 60);
    until("flushes", || runs_of(&db, 0) > 0 && runs_of(&db, 1) > 0);
    let (base, _) = full(&db);
    put(&db, 10..12, 60);
    let (next, _) = onto(&db, &base).expect("backs up");
    let (_, of_base) = pieces(&next, "runs/");
    assert!(of_base > 0, "every run was copied again");
    let left = next.list("runs").expect("lists").len();
    let whole = base.list("runs").expect("lists").len();
    assert!(left < whole, "{left} files of {whole}");
    let again = restored_onto(next, &[base]).expect("restores");
    assert!(rows(&again) == rows(&db), "other rows");
}

fn is_base_error(result: Result<impl Sized>, what: &str) -> Error {
    let error = result.err().unwrap_or_else(|| panic!("{what}: taken"));
    assert_eq!(error.code(), Code::BackupBase, "{what}: {error}");
    error
}

/// An armed backup onto a base: what comes while it follows the log, and what the base has.
#[test]
fn an_armed_backup_onto_a_base_has_what_was_committed_before_its_end() {
    let db = source();
    put(&db, 0..20_000, 300);
    until("a flush", || runs_of(&db, 0) > 0);
    db.checkpoint().expect("flushes");
    let (base, whole) = full(&db);
    let (to, progress): (Copy, _) = (Arc::new(MemEnv::new()), BackupProgress::armed());
    let (report, at_end) = std::thread::scope(|scope| {
        let named = (base.clone(), "base".to_string());
        let backup = scope.spawn(|| db.backup_onto_in(named, to.clone(), "onto", &progress));
        let is_near = || progress.left_bytes() < 64 << 10;
        until("the following", || is_near() || backup.is_finished());
        let before = db.stats().get(Metric::MemtableFlushes);
        // Rows of an extent that was left to the base, new ones, and long values past the log.
        put(&db, 5_000..5_010, 200);
        put(&db, 30_000..34_000, 60);
        put(&db, 40_000..40_010, 100_000);
        until("a flush", || db.stats().get(Metric::MemtableFlushes) > before);
        until("the copy", || is_near() || backup.is_finished());
        let at_end = rows(&db);
        progress.end("binlog.000007 42");
        until("the end", || progress.end_lsn().is_some() || backup.is_finished());
        put(&db, 50_000..50_100, 1_000);
        (backup.join().expect("no panic"), at_end)
    });
    let report = report.expect("backs up");
    let (stored, of_base) = pieces(&to, "pages/");
    println!("{stored} pieces of pages, {of_base} of the base, {report:?} of {whole:?}");
    assert!(of_base > 0 && report.bytes < whole.bytes, "{of_base} {report:?} {whole:?}");
    assert!(progress.bytes_of_base() >= of_base as u64 * EXTENT_BYTES, "{of_base}");
    let manifest = BackupSource::open(to.clone(), "onto").expect("opens").manifest;
    assert_eq!(manifest.note.as_deref(), Some("binlog.000007 42"));
    assert!(rows(&restored_onto(to, &[base]).expect("restores")) == at_end, "other rows");
}

/// The bytes that an increment reports: those that it copies, and those that it leaves to its base.
#[test]
fn an_increment_tells_what_it_has_left_to_its_base() {
    let db = source();
    put(&db, 0..20_000, 300);
    until("a flush", || runs_of(&db, 0) > 0);
    db.checkpoint().expect("flushes");
    let (base, _) = full(&db);
    put(&db, 7..9, 300);
    let before = db.stats().get(Metric::BackupBytes);
    let (to, progress): (Copy, _) = (Arc::new(MemEnv::new()), BackupProgress::default());
    db.backup_onto_in((base, "base".to_string()), to.clone(), "onto", &progress).expect("backs up");
    let (_, of_base) = pieces(&to, "pages/");
    let left = progress.bytes_of_base();
    assert!(left > of_base as u64 * EXTENT_BYTES && of_base > 3, "{left} {of_base}");
    let copied = db.stats().get(Metric::BackupBytes) - before;
    assert_eq!(copied, progress.bytes() - left);
    assert!(copied < left && progress.bytes_expected() == progress.bytes(), "{copied} {left}");
}

/// Another backup of the same database, a missing one, and a chain with a hole.
#[test]
fn a_missing_or_wrong_base_is_refused_by_verify_and_restore() {
    let db = source();
    put(&db, 0..3_000, 300);
    let (wrong, _) = full(&db);
    put(&db, 0..50, 200);
    let (base, report) = full(&db);
    put(&db, 100..150, 200);
    let (middle, _) = onto(&db, &base).expect("backs up");
    put(&db, 200..250, 200);
    let (last, _) = onto(&db, &middle).expect("backs up");
    let refused: [(&str, &Copy, Vec<Copy>); 4] = [
        ("no base", &middle, vec![]),
        ("another backup", &middle, vec![wrong.clone()]),
        ("a hole", &last, vec![base.clone(), wrong.clone()]),
        ("no full backup", &last, vec![middle.clone(), wrong.clone()]),
    ];
    for (what, backup, bases) in refused {
        let error = is_base_error(verify_backup_in(backup.clone(), "backup", &bases), what);
        assert!(error.context("base").is_some() && error.context("end").is_some(), "{error}");
        let to: Copy = Arc::new(MemEnv::new());
        is_base_error(restore_backup_in(backup.clone(), to.clone(), &bases), what);
        assert!(to.list("").expect("lists").is_empty(), "{what}: something was written");
    }
    let wanted = is_base_error(verify_backup_in(middle.clone(), "backup", &[]), "no base");
    assert_eq!(wanted.context("end"), Some(&*report.end.to_string()));
    let again = restored_onto(last, &[wrong, middle, base]).expect("restores");
    assert!(rows(&again) == rows(&db), "other rows");
}

/// A backup of another database, and of a line of history that the database has left.
#[test]
fn a_base_of_another_database_or_timeline_is_refused() {
    let db = source();
    put(&db, 0..500, 100);
    let (base, _) = full(&db);
    let (other, _) = full(&source());
    is_base_error(onto(&db, &other), "of another database");
    let again = restored(base.clone()).expect("restores");
    put(&again, 0..10, 20);
    is_base_error(onto(&again, &base), "of the timeline before the restore");
    // A backup of the restored database is a base for it, and none for the first one.
    let (own, _) = full(&again);
    put(&again, 10..20, 20);
    let (next, _) = onto(&again, &own).expect("backs up");
    assert!(
        rows(&restored_onto(next, std::slice::from_ref(&own)).expect("restores")) == rows(&again)
    );
    is_base_error(onto(&db, &own), "of the restored copy");
    let unmarked: Copy = Arc::new(MemEnv::new());
    let refused = onto(&db, &unmarked).err().expect("empty");
    assert_eq!(refused.code(), Code::BackupIncomplete);
}

/// What is damaged in a base is named when the chain is verified, and stops its restore.
#[test]
fn damage_in_a_base_is_found_through_the_chain() {
    let db = source();
    put(&db, 0..6_000, 300);
    until("a flush", || runs_of(&db, 0) > 0);
    db.checkpoint().expect("flushes");
    let to = Arc::new(MemEnv::new());
    db.backup_in(to.clone(), "full", &BackupProgress::default()).expect("backs up");
    put(&db, 0..10, 100);
    let base: Copy = to.clone();
    let (next, _) = onto(&db, &base).expect("backs up");
    let manifest = BackupSource::open(base, "base").expect("opens").manifest;
    let used = manifest.files.iter().filter(|f| f.bytes > 0 && !f.path.starts_with("wal/"));
    let mut found = 0;
    for file in used.filter(|file| file.path != "superblock" && file.is_stored()) {
        let spoiled = Arc::new(to.fork());
        let at = file.pieces.iter().position(|p| *p != Piece::Zeros).expect("bytes") as u64;
        let open = spoiled.open(&file.path, OpenMode::READ_WRITE).expect("there");
        let mut byte = [0];
        open.read_at(&mut byte, at << 20).expect("reads");
        open.write_at(&[byte[0] ^ 4], at << 20).expect("writes");
        let bases: [Copy; 1] = [spoiled];
        let problems = verify_backup_in(next.clone(), "backup", &bases).expect("reads").problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(&file.path), "{problems:?}");
        found += 1;
    }
    assert!(found > 1, "{found} files");
}

/// Pages that bypass the log, in an extent that was left to the base before they were written.
#[test]
fn an_extent_left_to_the_base_is_copied_when_the_log_names_its_pages() {
    let db = source();
    put(&db, 0..6_000, 300);
    db.checkpoint().expect("flushes");
    // Long values leave their pages free in the midst of extents.
    put(&db, 7_000..7_030, 60_000);
    let (base, _) = full(&db);
    let mut named = 0;
    for round in 0..6 {
        put(&db, 7_000 + round..7_001 + round, 10);
        db.checkpoint().expect("flushes");
        let (writing, stats) = (db.clone(), db.clone());
        let before = stats.stats().get(Metric::UnloggedValueBytes);
        let to = hooked("pages/", move || put(&writing, 8_000 + round..8_002 + round, 50_000));
        let from = (base.clone(), "base".to_string());
        db.backup_onto_in(from, to.clone(), "onto", &BackupProgress::default()).expect("backs up");
        named += u64::from(stats.stats().get(Metric::UnloggedValueBytes) > before);
        let again = restored_onto(to, std::slice::from_ref(&base)).expect("restores");
        assert!(rows(&again) == rows(&db), "other rows in round {round}");
    }
    assert!(named > 0, "every value went through the log");
    assert_eq!(rows(&db)[&7_029].1, pad(7_029, 60_000));
}

/// A database that is open to read is a base by what its directory holds, not by what recovery has
/// changed in memory: the directory goes on in another way.
#[test]
fn a_backup_of_a_reader_is_a_base_only_as_far_as_the_directory_goes() {
    for is_killed in [false, true] {
        let files = Arc::new(MemEnv::new());
        let db = source_in(files.clone());
        put(&db, 0..6_000, 300);
        db.checkpoint().expect("flushes");
        put(&db, 3_000..3_010, 200);
        let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
        for id in 100..160 {
            let table = txn.table("t").expect("there");
            assert!(table.delete(&[Value::Int(id).as_ref()]).expect("deletes"));
        }
        let files = match is_killed {
            true => Arc::new(files.fork()),
            false => {
                drop(txn);
                db.close().expect("closes");
                files
            }
        };
        let reader = || {
            let options = Options { read_only: true, ..options() };
            Database::open_with("read", options.env(files.clone())).expect("opens")
        };
        let (base, _) = full(&reader());
        let at_base = rows(&reader());
        assert!(rows(&restored(base.clone()).expect("restores")) == at_base, "{is_killed}: base");
        // The directory goes on from its own end, at the positions that the reader has used.
        let db = Database::open_with("source", options().env(files.clone())).expect("opens");
        for round in 0..20 {
            put(&db, 100 + round..101 + round, 150);
        }
        db.checkpoint().expect("flushes");
        db.close().expect("closes");
        let (next, report) = match onto(&reader(), &base) {
            Err(error) if is_killed => {
                assert_eq!(error.code(), Code::BackupBase, "{error}");
                continue;
            }
            taken => taken.expect("backs up"),
        };
        println!("killed: {is_killed}, {report:?}, {:?}", pieces(&next, "pages/"));
        assert!(pieces(&next, "pages/").1 > 0, "{is_killed}: nothing is left to the base");
        let again = restored_onto(next, &[base]).expect("restores");
        assert!(rows(&again) == rows(&reader()), "{is_killed}: other rows");
    }
}
