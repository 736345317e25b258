//! A queue in a table: producers insert at one end, consumers take from the other. Consumers skip
//! messages that others hold, so they never wait for each other; a consumer that dies gives its
//! message back, because a transaction that ends without a commit is rolled back.
//!
//! `cargo run --example queue -- [DIRECTORY]` (without one, in memory)

use evenkeel::ValueRef::{Null, Text};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Direction, Isolation, LockWait, Options, Range,
    Result, TableSpec, Value,
};

fn create(db: &Database) -> Result<()> {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64).auto_increment())
        .column(ColumnSpec::new("message", ColumnType::Text { max: 1000 }))
        .primary_key(&["id"]);
    db.create_table("queue", &spec)
}

fn push(db: &Database, message: &str) -> Result<()> {
    let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    // NULL asks for the next number.
    txn.table("queue")?.insert(&[Null, Text(message)])?;
    txn.commit()?;
    Ok(())
}

/// Takes the oldest message that nobody holds and hands it to `work`. It is gone when `work`
/// succeeded and that is committed; otherwise it stays. False if there is none.
fn take(db: &Database, work: impl FnOnce(&str) -> Result<()>) -> Result<bool> {
    let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    let mut queue = txn.table("queue")?;
    let mut found = None;
    queue.scan_for_update(Range::ALL, Direction::Forward, LockWait::Skip, &mut |row| {
        found = Some((row.value(0)?.to_owned(), row.value(1)?.to_owned()));
        Ok(false) // one is enough
    })?;
    let Some((id, Value::Text(message))) = found else { return Ok(false) };
    queue.delete(&[id.as_ref()])?;
    work(&message)?;
    txn.commit()?;
    Ok(true)
}

fn main() -> Result<()> {
    let db = match std::env::args().nth(1) {
        Some(directory) => Database::open(directory)?,
        None => Database::open_with("unused", Options::in_memory())?,
    };
    if !db.tables().contains(&"queue".to_string()) {
        create(&db)?;
    }
    for i in 0..5 {
        push(&db, &format!("message {i}"))?;
    }
    while take(&db, |message| {
        println!("{message}");
        Ok(())
    })? {}
    db.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    #[test]
    fn every_message_is_taken_once() {
        let db = Database::open_with("unused", Options::in_memory()).expect("open");
        create(&db).expect("create");
        let taken = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for producer in 0..2 {
                let db = &db;
                scope.spawn(move || {
                    (0..100).for_each(|i| push(db, &format!("{producer}-{i}")).expect("push"));
                });
            }
            for _ in 0..2 {
                let (db, taken) = (&db, &taken);
                scope.spawn(move || {
                    while taken.lock().expect("lock").len() < 200 {
                        let keep = |message: &str| {
                            taken.lock().expect("lock").push(message.to_string());
                            Ok(())
                        };
                        take(db, keep).expect("take");
                    }
                });
            }
        });
        let taken = taken.into_inner().expect("lock");
        assert_eq!((taken.len(), taken.iter().collect::<BTreeSet<_>>().len()), (200, 200));
        assert!(!take(&db, |_| Ok(())).expect("take"), "the queue is empty");
    }

    #[test]
    fn a_message_stays_when_its_work_fails() {
        let db = Database::open_with("unused", Options::in_memory()).expect("open");
        create(&db).expect("create");
        push(&db, "first").expect("push");
        let failed = take(&db, |_| db.drop_table("no such table"));
        assert!(failed.is_err());
        let mut seen = String::new();
        let again = take(&db, |message| {
            seen = message.to_string();
            Ok(())
        });
        assert!(again.expect("take") && seen == "first");
    }
}
