//! A child that the process forks can neither use nor harm the databases of its parent.
#![allow(unsafe_code)]

use evenkeel::ValueRef::Int;
use evenkeel::{Access, Code, ColumnSpec, ColumnType, Database, Isolation, TableSpec};

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn alarm(seconds: u32) -> u32;
    fn _exit(status: i32) -> !;
}

fn insert(db: &Database, id: i64) -> evenkeel::Result<()> {
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    txn.table("t")?.insert(&[Int(id)])?;
    txn.commit().map(|_| ())
}

/// Uses and then drops the handles that its parent has opened. Returns the number of the step that
/// went wrong.
fn child(db: Database, open: evenkeel::Txn) -> i32 {
    let code = |error: Option<evenkeel::Error>| error.map(|error| error.code());
    if code(open.table("t").err()) != Some(Code::Forked) {
        return 1;
    }
    drop(open);
    if code(insert(&db, 100).err()) != Some(Code::Forked) {
        return 2;
    }
    if code(db.clone().close().err()) != Some(Code::Forked) {
        return 3;
    }
    drop(db);
    0
}

#[test]
fn a_forked_child_is_refused_and_its_parent_goes_on() {
    let directory = std::env::temp_dir().join(format!("evenkeel-fork-{}", std::process::id()));
    let db = Database::open(&directory).expect("opens");
    let spec = TableSpec::new().column(ColumnSpec::new("a", ColumnType::Int64)).primary_key(&["a"]);
    db.create_table("t", &spec).expect("creates");
    insert(&db, 1).expect("inserts");
    let open = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    open.table("t").and_then(|t| t.insert(&[Int(2)])).expect("inserts");

    // SAFETY: the child calls no function that a lock of another thread could block, and ends by
    // `_exit`; if it does block, the alarm ends it.
    let pid = unsafe { fork() };
    if pid == 0 {
        unsafe { alarm(60) };
        let status = child(db, open);
        unsafe { _exit(status) };
    }
    let mut status = -1;
    // SAFETY: a plain call; `status` outlives it.
    assert_eq!(unsafe { waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child's status; 256 x the step that went wrong, or a signal");

    open.commit().expect("commits");
    insert(&db, 3).expect("inserts");
    db.close().expect("closes");
    let db = Database::open(&directory).expect("opens again");
    let report = db.check().expect("checks");
    assert_eq!((report.rows, report.problems.len()), (3, 0));
    db.close().expect("closes");
    std::fs::remove_dir_all(directory).expect("removes");
}
