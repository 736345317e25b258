//! Small stores for tests that change files without the engine. They are made under the simulator:
//! a seed always gives the same files, and another seed gives another order of background work.

use crate::{faulty, fuzz, linked, wide};
use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{Access, Database, Geometry, Isolation, Options};
use evenkeel_io::sim::{SimDisk, SimEnv};
use evenkeel_io::{Env, MemEnv};
use std::sync::{Arc, Mutex};

/// Number of rows of the last transaction of a store that was not closed.
pub const LAST_ROWS: i64 = 60;

/// The files of a small store, and its content.
pub struct Store {
    /// All files, as a close or a kill left them.
    pub files: Arc<MemEnv>,
    /// Its rows: id and value.
    pub rows: Vec<(i64, i64)>,
    /// The files as they were at earlier moments.
    pub older: Vec<Arc<MemEnv>>,
}

/// Memory and log are so small that runs, compactions, undo files and recycled log segments occur.
pub fn small_options(env: Arc<dyn Env>) -> Options {
    let geometry = Geometry {
        generation_bytes: Some(64 << 10),
        pool_bytes: Some(1 << 20),
        log_bytes: Some(512 << 10),
        undo_bytes: Some(16 << 10),
        ..Geometry::default()
    };
    let options = Options { memory_size: 16 << 20, ..Options::default() };
    options.env(env).geometry(geometry)
}

/// A small store with rows, runs, log and map pages. It was closed, or left as by a kill; in that
/// case it also has a prepared transaction and undo files.
pub fn store(seed: u64, closed: bool) -> Store {
    let sim = SimEnv::new(seed);
    let made = Arc::new(Mutex::new(None));
    let (env, disk, put) = (sim.env(), sim.disk().clone(), made.clone());
    sim.run(vec![Box::new(move || {
        let store = make(env, &disk, closed);
        *put.lock().expect("not poisoned") = Some(store);
    })]);
    sim.stop();
    let store = made.lock().expect("not poisoned").take();
    store.unwrap_or_else(|| panic!("seed {seed}: no store"))
}

fn make(env: Arc<dyn Env>, disk: &SimDisk, closed: bool) -> Store {
    let open = || Database::open_with("dir", small_options(env.clone())).expect("opens");
    let (mut db, mut rows, mut older) = (open(), Vec::new(), Vec::new());
    db.create_table("t", &fuzz::small_table()).expect("creates");
    wide::make(&db);
    linked::make(&db);
    for batch in 0..12 {
        let ids = batch * 100..batch * 100 + 100;
        insert(&db, &mut rows, ids.map(|id| (id, id * 7919 % 1009)));
        match batch {
            2 | 9 => db.checkpoint().expect("a checkpoint"),
            6 => {
                db.close().expect("closes");
                older.push(files(disk));
                db = open();
            }
            _ => {}
        }
        older.push(files(disk));
    }
    if closed {
        db.close().expect("closes");
        return Store { files: files(disk), rows, older };
    }
    prepare(&db);
    db.checkpoint().expect("a checkpoint");
    older.push(files(disk));
    assert!(disk.paths().iter().any(|path| path.starts_with("undo/")), "the checkpoint saves undo");
    insert(&db, &mut rows, (1200..1200 + LAST_ROWS).map(|id| (id, id)));
    Store { files: files(disk), rows, older }
}

/// Makes changes in a transaction that stays prepared, so that no reader may see them. Its undo is
/// in files after the next checkpoint.
fn prepare(db: &Database) {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    let table = txn.table("t").expect("there");
    for id in 100..400 {
        table.update(&[Int(id)], &[(1, Int(-id)), (2, Bytes(b"unseen"))]).expect("updates");
    }
    table.delete(&[Int(450)]).expect("deletes");
    table.insert(&[Int(5000), Int(5000), Bytes(b"unseen")]).expect("inserts");
    assert!(txn.prepare(b"undecided").expect("prepares"));
}

fn insert(db: &Database, rows: &mut Vec<(i64, i64)>, new: impl Iterator<Item = (i64, i64)>) {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    let table = txn.table("t").expect("there");
    for (id, value) in new {
        table.insert(&[Int(id), Int(value), Bytes(&[id as u8; 60])]).expect("inserts");
        rows.push((id, value));
    }
    txn.commit().expect("commits");
}

/// All files in their present state.
fn files(disk: &SimDisk) -> Arc<MemEnv> {
    let to = MemEnv::new();
    for path in disk.paths() {
        if let Some(bytes) = disk.content(&path) {
            faulty::replace(&to, &path, &bytes);
        }
    }
    Arc::new(to)
}
