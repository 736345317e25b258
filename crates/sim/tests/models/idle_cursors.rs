//! (e) Views that idle cursors leave behind (D6), and flushes that take them away: two cursors with
//! fewer slots than they need, and somebody who makes new versions. The slots are the engine's
//! (`runs/src/read/idle_cursor_views.rs`); a version is made and its views are cleared as in
//! `Runs::changed`, a cursor takes a view, parks and goes on as `runs/src/read/cursor.rs` does.

use crate::idle_cursor_views::IdleCursorViews;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::{model, start};
use evenkeel_sim::interleave::Thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// The cursor asks whether its view is old before it has the slot.
    AskedTooEarly,
    /// Who makes a version clears the slots first.
    ClearedTooEarly,
    /// A view that was left is used without a look at the version.
    VersionNotCompared,
}

/// A view: the generation it pins, and whose it is.
struct View {
    version: u64,
    of: u64,
    users: Arc<Users>,
}

/// Views of each version that somebody has.
#[derive(Default)]
struct Users(Mutex<[u64; 4]>);

impl Drop for View {
    fn drop(&mut self) {
        // A step of a run that is over.
        if !std::thread::panicking() {
            self.users.0.lock()[self.version as usize] -= 1;
        }
    }
}

struct Engine {
    version: AtomicU64,
    idle_cursor_views: IdleCursorViews<View>,
    users: Arc<Users>,
    planted: Planted,
}

impl Engine {
    fn view(&self, of: u64) -> View {
        let version = self.version.load(SeqCst);
        self.users.0.lock()[version as usize] += 1;
        View { version, of, users: self.users.clone() }
    }

    /// Three calls of a client; its view is parked in between.
    fn cursor(&self, of: u64) {
        let mut ticket = None;
        for _ in 0..3 {
            let began = self.version.load(SeqCst);
            let kept = ticket.take().and_then(|ticket| self.idle_cursor_views.take(&ticket));
            let is_new = |v: &View| {
                self.planted == Planted::VersionNotCompared
                    || v.version == self.version.load(SeqCst)
            };
            let view = kept.filter(is_new).unwrap_or_else(|| self.view(of));
            assert_eq!(view.of, of, "the view of another cursor");
            assert!(view.version >= began, "a view older than the call");
            let version = view.version;
            let asked = self.version.load(SeqCst) != version;
            ticket = self.idle_cursor_views.put(view, || match self.planted {
                Planted::AskedTooEarly => asked,
                _ => self.version.load(SeqCst) != version,
            });
        }
    }

    fn change(&self) {
        if self.planted == Planted::ClearedTooEarly {
            self.idle_cursor_views.clear();
            self.version.fetch_add(1, SeqCst);
        } else {
            self.version.fetch_add(1, SeqCst);
            self.idle_cursor_views.clear();
        }
    }
}

fn run(planted: Planted, slots: usize) {
    model("idle cursors", 3, || {
        let engine = Arc::new(Engine {
            version: AtomicU64::new(0),
            idle_cursor_views: IdleCursorViews::new(slots),
            users: Arc::default(),
            planted,
        });
        let threads = [
            start(&engine, |engine| engine.cursor(1)),
            start(&engine, |engine| engine.cursor(2)),
            start(&engine, |engine| {
                engine.change();
                engine.change();
            }),
        ];
        threads.into_iter().for_each(Thread::join);
        // Every client is idle now, in the middle of its scan.
        let users = *engine.users.0.lock();
        assert_eq!(users[..2], [0, 0], "an idle cursor keeps an old view");
    });
}

#[test]
fn cursors_in_one_slot_and_in_two() {
    run(Planted::Nothing, 1);
    run(Planted::Nothing, 2);
}

#[test]
#[should_panic(expected = "keeps an old view")]
fn a_question_asked_too_early_is_found() {
    run(Planted::AskedTooEarly, 2);
}

#[test]
#[should_panic(expected = "keeps an old view")]
fn slots_cleared_too_early_are_found() {
    run(Planted::ClearedTooEarly, 2);
}

/// Also with slots as they should be: between taking it back and using it the version may change.
#[test]
#[should_panic(expected = "a view older than the call")]
fn a_version_not_compared_is_found() {
    run(Planted::VersionNotCompared, 2);
}
