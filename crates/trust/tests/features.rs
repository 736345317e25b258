//! Directories with feature bits that this version does not know, as a newer version would set
//! them: kept, opened for reading only, or refused, each with every row as it was.

use evenkeel::ValueRef::Int;
use evenkeel::{
    Access, Code, ColumnSpec, ColumnType, Database, Error, Isolation, Options, TableSpec,
};
use evenkeel_format::superblock::{CHECKPOINT_COPY, SLOT_BYTES, Superblock};
use evenkeel_io::{Env, MemEnv};
use evenkeel_trust::faulty;
use std::sync::Arc;

/// Compatible features of a newer version.
const UNKNOWN: u64 = 1 << 9 | 1 << 60;
const SUPER: &str = "evenkeel.super";

fn options(env: &Arc<MemEnv>, read_only: bool) -> Options {
    let env: Arc<dyn Env> = env.clone();
    Options { read_only, ..Options::default() }.env(env)
}

fn open(env: &Arc<MemEnv>, read_only: bool) -> Result<Database, Error> {
    Database::open_with("dir", options(env, read_only))
}

fn insert(db: &Database, id: i64) {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    txn.table("t").expect("there").insert(&[Int(id)]).expect("inserts");
    txn.commit().expect("commits");
}

fn rows(db: &Database) -> usize {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let table = txn.table("t").expect("there");
    (0..10).filter(|id| table.get(&[Int(*id)]).expect("reads").is_some()).count()
}

fn slots(env: &MemEnv) -> Vec<Superblock> {
    let bytes = faulty::content(env, SUPER);
    let slots = bytes.chunks(SLOT_BYTES).map(Superblock::decode);
    slots.map(|slot| slot.expect("known").expect("whole")).collect()
}

/// A closed database with one row, whose superblock a newer version has changed.
fn changed(change: impl Fn(&mut Superblock)) -> Arc<MemEnv> {
    let env = Arc::new(MemEnv::new());
    let db = open(&env, false).expect("creates");
    let spec = TableSpec::new().column(ColumnSpec::new("id", ColumnType::Int64));
    db.create_table("t", &spec.primary_key(&["id"])).expect("creates");
    insert(&db, 0);
    db.close().expect("closes");
    let changed = slots(&env).into_iter().flat_map(|mut slot| {
        change(&mut slot);
        slot.encode()
    });
    faulty::replace(&*env, SUPER, &changed.collect::<Vec<u8>>());
    env
}

/// Every file without the lock, which each process writes.
fn files(env: &MemEnv) -> Vec<(String, Vec<u8>)> {
    let paths = faulty::paths(env).into_iter().filter(|path| path != "evenkeel.lock");
    paths.map(|path| (path.clone(), faulty::content(env, &path))).collect()
}

#[test]
fn an_unknown_compatible_feature_is_kept_by_a_writer() {
    let env = changed(|slot| slot.features.compatible |= UNKNOWN);
    for id in 1..4 {
        let db = open(&env, false).expect("opens");
        assert_eq!(db.info().features, [UNKNOWN | CHECKPOINT_COPY, 0, 0]);
        insert(&db, id);
        db.checkpoint().expect("checkpoints");
        assert_eq!(rows(&db), id as usize + 1);
        db.close().expect("closes");
    }
    for slot in slots(&env) {
        assert_eq!(slot.features.compatible, UNKNOWN | CHECKPOINT_COPY);
    }
}

#[test]
fn an_unknown_read_only_feature_allows_readers_only() {
    let env = changed(|slot| slot.features.read_only = 1 << 5);
    let before = files(&env);
    let error = open(&env, false).err().expect("is refused");
    assert_eq!(error.code(), Code::NewerFormat);
    for part in ["file=evenkeel.super", "field=read_only_features", "found=0x20", "read-only"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let db = open(&env, true).expect("may be read");
    assert_eq!((rows(&db), db.info().features), (1, [CHECKPOINT_COPY, 1 << 5, 0]));
    drop(db);
    assert!(files(&env) == before, "nothing was written");
}

#[test]
fn an_unknown_incompatible_feature_is_refused_and_named() {
    let env = Arc::new(MemEnv::new());
    open(&env, false).expect("creates").close().expect("closes");
    for bit in [1, 50, 63] {
        let mut newer = slots(&env);
        newer.iter_mut().for_each(|slot| slot.features.incompatible = 1 << bit);
        let bytes: Vec<u8> = newer.iter().flat_map(Superblock::encode).collect();
        let copy = faulty::copy(&*env);
        faulty::replace(&*copy, SUPER, &bytes);
        let before = files(&copy);
        for read_only in [false, true] {
            let error = open(&copy, read_only).err().expect("is refused");
            assert_eq!(error.code(), Code::NewerFormat);
            let found = format!("found={:#x}", 1u64 << bit);
            for part in ["file=evenkeel.super", "field=incompatible_features", &found] {
                assert!(error.to_string().contains(part), "{part}: {error}");
            }
        }
        assert!(files(&copy) == before, "nothing was written");
    }
}

/// The timeline stays over opens and closes, and differs between two databases.
#[test]
fn a_database_keeps_the_timeline_of_its_creation() {
    let (one, other) = (changed(|_| ()), changed(|_| ()));
    let timeline = |env: &Arc<MemEnv>| {
        let db = open(env, false).expect("opens");
        let info = db.info();
        db.close().expect("closes");
        assert_eq!((info.parent_timeline, info.fork_lsn), (0, 0));
        info.timeline
    };
    let first = timeline(&one);
    assert!(first != 0 && first == timeline(&one));
    assert_ne!(first, timeline(&other));
}
