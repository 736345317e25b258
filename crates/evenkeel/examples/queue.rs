//! A queue in a table: producers insert at one end, consumers take from the other. Consumers skip
//! messages that others hold, so they never wait for each other; a consumer that dies gives its
//! message back, because a transaction that ends without a commit is rolled back.
//!
//! `cargo run --example queue -- [DIRECTORY]` (without one, in memory)

use evenkeel::{Access, Database, Direction, Isolation, Locking, Options, Record, Result, record};

record! {
    /// A message.
    pub struct Message in "queue" {
        id: Option<i64>,
        text: String as Text { max: 1000 },
    }
    key(id)
    auto(id)
}

fn push(db: &Database, text: &str) -> Result<()> {
    let message = Message { id: None, text: text.to_string() };
    db.transact(|txn| txn.records()?.insert(&message).map(|_| ()))
}

/// Takes the oldest message that nobody holds and hands it to `work`. It is gone when `work`
/// succeeded and that is committed; otherwise it stays. False if there is none.
fn take(db: &Database, work: impl FnOnce(&str) -> Result<()>) -> Result<bool> {
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    let queue = txn.table(Message::TABLE)?;
    let free = Locking::EXCLUSIVE.skip_locked();
    let Some(row) = queue.locked_scan(.., Direction::Forward, free)?.next_row()? else {
        return Ok(false);
    };
    queue.delete_read(&row)?;
    work(row.get("text")?)?;
    txn.commit()?;
    Ok(true)
}

fn main() -> Result<()> {
    let db = match std::env::args().nth(1) {
        Some(directory) => Database::open(directory)?,
        None => Database::open_with("unused", Options::in_memory())?,
    };
    db.create_table_of::<Message>()?;
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

    fn database() -> Database {
        let db = Database::open_with("unused", Options::in_memory()).expect("opens");
        db.create_table_of::<Message>().expect("creates");
        db
    }

    #[test]
    fn every_message_is_taken_once() {
        let db = database();
        let taken = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for producer in 0..2 {
                let db = &db;
                scope.spawn(move || {
                    (0..100).for_each(|i| push(db, &format!("{producer}-{i}")).expect("pushes"));
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
                        take(db, keep).expect("takes");
                    }
                });
            }
        });
        let taken = taken.into_inner().expect("lock");
        assert_eq!((taken.len(), taken.iter().collect::<BTreeSet<_>>().len()), (200, 200));
        assert!(!take(&db, |_| Ok(())).expect("takes"), "the queue is empty");
    }

    #[test]
    fn a_message_stays_when_its_work_fails() {
        let db = database();
        push(&db, "first").expect("pushes");
        let failed = take(&db, |_| db.drop_table("no such table"));
        assert!(failed.is_err());
        let mut seen = String::new();
        let again = take(&db, |message| {
            seen = message.to_string();
            Ok(())
        });
        assert!(again.expect("takes") && seen == "first");
    }
}
