//! One thread waits for several events (`io/src/event.rs`, `Event::watch`), as the dispatcher of
//! shared threads does for the actors that have left theirs (`evenkeel/src/background/workers.rs`).

use crate::event::Event;
use crate::{model, start};
use evenkeel_sim::interleave::Thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// The dispatcher looks at the events before it watches them, and not again.
    LookedBeforeWatch,
    /// It reads the counter of its own event after it has looked at the others.
    HubReadLate,
}

struct Watched {
    hub: Arc<Event>,
    events: [Event; 2],
    planted: Planted,
}

impl Watched {
    fn notified(&self) -> usize {
        self.events.iter().filter(|event| event.now() > 0).count()
    }

    fn dispatch(&self) {
        let mut before = None;
        if self.planted == Planted::LookedBeforeWatch {
            before = Some((self.hub.now(), self.notified()));
        }
        self.events.iter().for_each(|event| event.watch(&self.hub));
        loop {
            let (mut seen, notified) =
                before.take().unwrap_or_else(|| (self.hub.now(), self.notified()));
            if notified == self.events.len() {
                break;
            }
            if self.planted == Planted::HubReadLate {
                seen = self.hub.now();
            }
            self.hub.block(seen, None);
        }
        self.events.iter().for_each(Event::unwatch);
    }
}

fn run(planted: Planted) {
    model("watched events", 3, || {
        let watched = Watched { hub: Arc::default(), events: Default::default(), planted };
        let watched = Arc::new(watched);
        let threads = [
            start(&watched, Watched::dispatch),
            start(&watched, |watched| watched.events[0].notify()),
            start(&watched, |watched| watched.events[1].notify()),
        ];
        threads.into_iter().for_each(Thread::join);
        assert!(watched.hub.now() <= 2, "a notification for each event at most");
    });
}

#[test]
fn a_watcher_misses_no_notification() {
    run(Planted::Nothing);
}

#[test]
#[should_panic(expected = "nobody can go on")]
fn a_look_before_the_watch_is_found() {
    run(Planted::LookedBeforeWatch);
}

#[test]
#[should_panic(expected = "nobody can go on")]
fn a_counter_of_the_watcher_read_too_late_is_found() {
    run(Planted::HubReadLate);
}
