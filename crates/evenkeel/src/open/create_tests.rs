//! The creation of a database in a directory that does not exist, at every crash point: the machine
//! stops, and what survives is opened.

use crate::{
    Access, ColumnSpec, ColumnType, Database, Geometry, Isolation, Options, TableSpec, ValueRef,
};
use evenkeel_base::{Code, Result};
use evenkeel_io::sim::{CrashPolicy, SimDisk, SimEnv, SimOptions, catch_crash};
use evenkeel_io::{Env, SubEnv};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a crash does to names: it loses all, none, or some of those that were not synced.
const POLICIES: [CrashPolicy; 5] = [
    CrashPolicy::LoseAll,
    CrashPolicy::KeepAll,
    CrashPolicy::Reordered,
    CrashPolicy::OldNames,
    CrashPolicy::Killed,
];

/// Two levels that the creation makes.
const DIRECTORY: &str = "new/db";

fn open(sim: &SimEnv, create: bool) -> Result<Database> {
    let env: Arc<dyn Env> = Arc::new(SubEnv::new(sim.env(), DIRECTORY));
    let geometry = Geometry {
        log_bytes: Some(1 << 20),
        pool_bytes: Some(1 << 20),
        generation_bytes: Some(64 << 10),
        ..Geometry::default()
    };
    let options = Options { create, ..Options::new() }.env(env).geometry(geometry);
    Database::open_with(DIRECTORY, options)
}

/// Creates a database with one committed row; `done` says that the commit has returned.
fn create(sim: &SimEnv, done: &AtomicBool) -> Result<()> {
    let db = open(sim, true)?;
    let id = ColumnSpec::new("id", ColumnType::Int64);
    db.create_table("t", &TableSpec::new().column(id).primary_key(&["id"]))?;
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
    txn.table("t")?.insert(&[ValueRef::Int(7)])?;
    txn.commit()?;
    done.store(true, Ordering::SeqCst);
    std::mem::forget(db);
    Ok(())
}

fn has_row(db: &Database) -> bool {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly).expect("begins");
    let table = txn.table("t").expect("there");
    table.get(&[ValueRef::Int(7)]).expect("reads").is_some()
}

/// What a crash at this change leaves: true if the commit had returned.
fn check(change: u64, policy: CrashPolicy) -> (bool, bool) {
    let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
    sim.disk().crash_at_change(change);
    let done = AtomicBool::new(false);
    let ended = catch_crash(|| create(&sim, &done));
    let is_over = matches!(ended, Some(Ok(())));
    if is_over {
        // No call was left to crash in.
        sim.disk().crash_now();
    }
    let is_done = done.load(Ordering::SeqCst);
    let disk = sim.disk().crash(policy, change);
    sim.stop();
    let which = format!("change {change}, {policy:?}");
    let next = SimEnv::on(disk, SimOptions::quiet(1));
    match open(&next, false) {
        Ok(db) => {
            assert!(!is_done || has_row(&db), "{which}: the row is lost");
            db.close().expect("closes");
        }
        Err(error) => {
            assert_eq!(error.code(), Code::NotADatabase, "{which}: {error}");
            assert!(!is_done, "{which}: the database is lost: {error}");
            // A new database can be created over the files that the crash left.
            open(&next, true).expect(&which).close().expect("closes");
        }
    }
    next.stop();
    (is_done, is_over)
}

#[test]
fn a_new_database_is_there_after_a_crash_at_any_step() {
    let (mut change, mut lost, mut kept) = (1, 0, 0);
    loop {
        let mut is_over = false;
        for policy in POLICIES {
            let (is_done, over) = check(change, policy);
            (lost, kept) = (lost + u64::from(!is_done), kept + u64::from(is_done));
            is_over |= over;
        }
        if is_over {
            break;
        }
        change += 1;
    }
    println!("{change} steps: {lost} crashes before the first commit, {kept} behind it");
    assert!(change > 20 && lost > 0 && kept >= POLICIES.len() as u64, "{change} {kept}");
}
