//! An event store: events are appended to streams, each at the version that its writer has seen,
//! and are read by stream or, in the order of all, from a position on.
//!
//! `cargo run --example event_store -- [DIRECTORY]` (without one, in memory)

use evenkeel::{Code, Database, Direction, Options, Result, exactly, record};

record! {
    /// An event.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Event in "events" {
        position: Option<i64>,
        stream: String as Text { max: 100 },
        version: u32,
        body: String,
    }
    key(position)
    auto(position)
    unique by_stream(stream, version)
}

/// Appends events to a stream whose last version is `seen` (0: it is new), all or none; false if
/// another writer was there first.
fn append(db: &Database, stream: &str, seen: u32, bodies: &[&str]) -> Result<bool> {
    let appended = db.transact(|txn| {
        let events = txn.records::<Event>()?;
        let last =
            events.by("by_stream", exactly(stream), Direction::Backward)?.next().transpose()?;
        if last.map_or(0, |last| last.version) != seen {
            return Ok(false);
        }
        for (version, body) in (seen + 1..).zip(bodies) {
            let (stream, body) = (stream.to_string(), body.to_string());
            events.insert(&Event { position: None, stream, version, body })?;
        }
        Ok(true)
    });
    match appended {
        // Two writers have seen the same version, and the other one has committed it since.
        Err(error) if error.code() == Code::DuplicateKey => Ok(false),
        appended => appended,
    }
}

/// The events of a stream behind a version, in one snapshot.
fn stream(db: &Database, stream: &str, behind: u32) -> Result<Vec<Event>> {
    db.transact(|txn| {
        let events = txn.records::<Event>()?;
        events
            .by("by_stream", (stream, behind + 1)..=(stream, u32::MAX), Direction::Forward)?
            .collect()
    })
}

/// At most `count` events behind a position, for a reader that remembers how far it has come.
fn all(db: &Database, behind: i64, count: usize) -> Result<Vec<Event>> {
    db.transact(|txn| {
        txn.records::<Event>()?.scan(behind + 1.., Direction::Forward)?.take(count).collect()
    })
}

fn main() -> Result<()> {
    let db = match std::env::args().nth(1) {
        Some(directory) => Database::open(directory)?,
        None => Database::open_with("unused", Options::in_memory())?,
    };
    db.create_table_of::<Event>()?;
    append(&db, "order 1", 0, &["placed", "paid"])?;
    append(&db, "order 2", 0, &["placed"])?;
    append(&db, "order 1", 2, &["shipped"])?;
    assert!(!append(&db, "order 1", 2, &["cancelled"])?, "it has version 3");
    for event in stream(&db, "order 1", 0)? {
        println!("{} {}: {}", event.stream, event.version, event.body);
    }
    println!("{} events in all", all(&db, 0, 100)?.len());
    db.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> Database {
        let db = Database::open_with("unused", Options::in_memory()).expect("opens");
        db.create_table_of::<Event>().expect("creates");
        db
    }

    #[test]
    fn a_stream_has_the_events_of_the_writers_that_were_first() {
        let db = database();
        let (writers, events) = (4, 25);
        std::thread::scope(|scope| {
            for writer in 0..writers {
                let db = &db;
                scope.spawn(move || {
                    for event in 0..events {
                        let body = format!("{writer}-{event}");
                        let seen = || stream(db, "s", 0).expect("reads").len() as u32;
                        while !append(db, "s", seen(), &[&body]).expect("appends") {}
                    }
                });
            }
        });
        let found = stream(&db, "s", 0).expect("reads");
        assert_eq!(found.len(), writers * events);
        assert!(found.iter().zip(1..).all(|(event, version)| event.version == version));
        for writer in 0..writers {
            let of_it = found.iter().filter_map(|e| e.body.strip_prefix(&format!("{writer}-")));
            assert!(of_it.eq((0..events).map(|event| event.to_string())), "in its order");
        }
    }

    #[test]
    fn readers_continue_where_they_stopped() {
        let db = database();
        assert!(append(&db, "a", 0, &["1", "2"]).expect("appends"));
        assert!(append(&db, "b", 0, &["3"]).expect("appends"));
        assert!(!append(&db, "a", 1, &["?"]).expect("appends"));
        let first = all(&db, 0, 2).expect("reads");
        let behind = first[1].position.expect("it has one");
        let rest = all(&db, behind, 2).expect("reads");
        let bodies: Vec<_> = first.iter().chain(&rest).map(|event| &event.body[..]).collect();
        assert_eq!(bodies, ["1", "2", "3"]);
        assert_eq!(stream(&db, "a", 1).expect("reads").len(), 1);
    }
}
