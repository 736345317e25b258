//! Both homes of the checkpoint record, at every crash point of a life that takes checkpoints: each
//! home is damaged in turn, and the database must open with its rows and tell of the damage.

use crate::{
    Access, ColumnSpec, ColumnType, Database, Geometry, Isolation, Options, TableSpec, ValueRef,
};
use evenkeel_base::Result;
use evenkeel_format::checkpoint_copy::{CheckpointCopy, FILES};
use evenkeel_format::superblock::{SLOT_BYTES, Superblock};
use evenkeel_format::wal::{BLOCK, SEGMENT_HEADER, SegmentHeader};
use evenkeel_io::sim::{CrashPolicy, SimDisk, SimEnv, SimOptions, catch_crash};
use std::sync::atomic::{AtomicI64, Ordering};

/// Rows of a transaction.
const BATCH: i64 = 10;
const SUPER: &str = "evenkeel.super";

fn on(disk: SimDisk) -> SimEnv {
    SimEnv::on(disk, SimOptions::quiet(1))
}

/// A copy of a disk on which nothing is under way.
fn fork(disk: &SimDisk) -> SimDisk {
    disk.crash(CrashPolicy::KeepAll, 1)
}

fn open(sim: &SimEnv, read_only: bool) -> Result<Database> {
    let geometry = Geometry {
        log_bytes: Some(1 << 20),
        pool_bytes: Some(1 << 20),
        generation_bytes: Some(64 << 10),
        ..Geometry::default()
    };
    Database::open_with(
        "db",
        Options { read_only, ..Options::new() }.env(sim.env()).geometry(geometry),
    )
}

/// A closed database without rows.
fn base() -> SimDisk {
    let sim = on(SimDisk::new(1));
    let db = open(&sim, false).expect("creates");
    let id = ColumnSpec::new("id", ColumnType::Int64);
    db.create_table("t", &TableSpec::new().column(id).primary_key(&["id"])).expect("creates");
    db.close().expect("closes");
    sim.stop();
    fork(sim.disk())
}

/// Commits batches and takes checkpoints; `done` counts the rows that are committed.
fn live(sim: &SimEnv, done: &AtomicI64) -> Result<()> {
    let db = open(sim, false)?;
    for _ in 0..4 {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
        let first = done.load(Ordering::SeqCst);
        for id in first..first + BATCH {
            txn.table("t")?.insert(&[ValueRef::Int(id)])?;
        }
        txn.commit()?;
        done.store(first + BATCH, Ordering::SeqCst);
        db.checkpoint()?;
    }
    std::mem::forget(db);
    Ok(())
}

/// The copy of the checkpoint that the superblock names, and its file.
fn copy_of(disk: &SimDisk) -> Option<(&'static str, CheckpointCopy)> {
    let slots = disk.content(SUPER).expect("there");
    let superblock = Superblock::choose(&slots).expect("valid");
    assert!(superblock.has_checkpoint_copy(), "no copy is promised");
    FILES.into_iter().find_map(|path| {
        let bytes = disk.content(path)?;
        let copy = CheckpointCopy::decode(&bytes, superblock.database_id).expect("known")?;
        (copy.checkpoint == superblock.checkpoint).then_some((path, copy))
    })
}

/// Changes bytes of each block of the record in the log.
fn damage_log(disk: &SimDisk, copy: &CheckpointCopy, bytes: &[u8]) {
    let blocks = copy.first_block..copy.first_block + (copy.blocks.len() / BLOCK) as u64;
    let mut hit = 0;
    for path in disk.paths().iter().filter(|path| path.starts_with("wal/")) {
        let content = disk.content(path).expect("there");
        let head = SegmentHeader::decode(&content[..SEGMENT_HEADER.min(content.len())]);
        let Ok(head) = head else { continue };
        for block in blocks.clone().filter(|b| (head.first_block..head.end_block()).contains(b)) {
            disk.corrupt(path, head.offset_of(block), bytes);
            hit += 1;
        }
    }
    assert_eq!(hit, copy.blocks.len() / BLOCK, "blocks of the record");
}

fn problems(db: &Database) -> Vec<String> {
    db.check().expect("checks").problems
}

/// The rows, which are the first ones.
fn rows(db: &Database) -> i64 {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let table = txn.table("t").expect("there");
    let has = |id: i64| table.get(&[ValueRef::Int(id)]).expect("reads").is_some();
    (0..).take_while(|id| has(*id)).count() as i64
}

/// Opens damaged files; they must hold these rows, and tell so.
fn check(disk: &SimDisk, rows_now: i64, told: &str, is_mended: bool, which: &str) {
    let reader = on(fork(disk));
    let db = open(&reader, true).unwrap_or_else(|error| panic!("{which}, to read: {error}"));
    let found = problems(&db);
    assert!(found.len() == 1 || is_mended, "{which}: {found:?}");
    assert!(found.iter().all(|problem| problem.contains(told)), "{which}: {found:?}");
    assert!(!found.is_empty() && rows(&db) == rows_now, "{which}: {found:?}");
    std::mem::forget(db);
    reader.stop();
    let writer = on(fork(disk));
    let db = open(&writer, false).unwrap_or_else(|error| panic!("{which}: {error}"));
    let found = problems(&db);
    assert_eq!(found.is_empty(), is_mended, "{which}: {found:?}");
    assert_eq!(rows(&db), rows_now, "{which}");
    db.checkpoint().expect("checkpoints");
    assert_eq!(problems(&db), [""; 0], "{which}, after a checkpoint");
    std::mem::forget(db);
    writer.stop();
}

#[test]
fn either_home_of_the_checkpoint_record_may_be_lost_at_any_moment() {
    let base = base();
    let whole = on(fork(&base));
    let before = whole.disk().changes();
    live(&whole, &AtomicI64::new(0)).expect("lives");
    let changes = whole.disk().changes() - before;
    whole.stop();
    let (mut in_copies, mut lives) = (0, 0);
    for change in 1..=changes {
        let sim = on(fork(&base));
        sim.disk().crash_at_change(sim.disk().changes() + change);
        let done = AtomicI64::new(0);
        let _ = catch_crash(|| live(&sim, &done));
        let path = sim.disk().crashed_in().unwrap_or_default();
        in_copies += u32::from(FILES.contains(&&*path));
        sim.stop();
        for (n, policy) in CrashPolicy::ALL.iter().enumerate() {
            let survivor = sim.disk().crash(*policy, change);
            let which = format!("change {change} in {path}, {policy:?}");
            let (file, copy) =
                copy_of(&survivor).unwrap_or_else(|| panic!("{which}: the copy is lost"));
            let found = on(fork(&survivor));
            let db = open(&found, false).unwrap_or_else(|error| panic!("{which}: {error}"));
            let rows_now = rows(&db);
            let acked = done.load(Ordering::SeqCst);
            assert!([acked, acked + BATCH].contains(&rows_now), "{which}: {rows_now} of {acked}");
            std::mem::forget(db);
            found.stop();
            // One damage of each home; the kinds take turns.
            let log = fork(&survivor);
            let is_zeroed = (n as u64 + change).is_multiple_of(2);
            damage_log(&log, &copy, if is_zeroed { &[0; BLOCK] } else { &[0xa5; 9] });
            check(&log, rows_now, "its copy in", true, &format!("{which}, log"));
            let second = fork(&survivor);
            match is_zeroed {
                true => assert!(second.truncate(file, 0)),
                false => assert!(second.flip_bit(file, 700, 3)),
            }
            check(&second, rows_now, "neither holds a copy", false, &format!("{which}, copy"));
            lives += 1;
        }
    }
    println!("{changes} crash points, {lives} survivors, {in_copies} crashes in a copy");
    assert!(in_copies >= 6, "{in_copies} crashes in a copy");
}

/// A directory of a version without copies opens as before, and gets them with its next checkpoint.
#[test]
fn a_directory_without_copies_opens_without_a_word() {
    let sim = on(fork(&base()));
    for path in FILES {
        sim.env().remove(path).expect("removes");
    }
    let slots = sim.disk().content(SUPER).expect("there");
    for (n, slot) in slots.chunks(SLOT_BYTES).enumerate() {
        let mut old = Superblock::decode(slot).expect("known").expect("whole");
        old.set_checkpoint_copy(false);
        sim.disk().corrupt(SUPER, (n * SLOT_BYTES) as u64, &old.encode());
    }
    let db = open(&sim, true).expect("opens");
    assert_eq!(problems(&db), [""; 0]);
    drop(db);
    let db = open(&sim, false).expect("opens");
    assert_eq!(problems(&db), [""; 0]);
    db.close().expect("closes");
    copy_of(sim.disk()).expect("a copy");
    sim.stop();
}
