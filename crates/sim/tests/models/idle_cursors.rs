//! (e) Views of idle cursors (D6), and changes of the runs that take them away: two cursors with
//! fewer slots than they need, and a thread that makes new versions. The slots are the engine's
//! (`runs/src/read/idle_cursor_views.rs`). A version is made and the views are cleared as in
//! `Runs::changed`; a cursor takes a view, becomes idle and continues as in
//! `runs/src/read/cursor.rs`.

use crate::idle_cursor_views::IdleCursorViews;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::{model, start};
use evenkeel_sim::interleave::Thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// The cursor compares the version of its view before it has taken the slot.
    AskedTooEarly,
    /// The change clears the slots before it makes the new version.
    ClearedTooEarly,
    /// The cursor uses its idle view without comparing the version.
    VersionNotCompared,
}

/// A view: the version that it pins, and its cursor.
struct View {
    version: u64,
    of: u64,
    users: Arc<Users>,
}

/// The number of views of each version.
#[derive(Default)]
struct Users(Mutex<[u64; 4]>);

impl Drop for View {
    fn drop(&mut self) {
        // A step of a schedule that has ended.
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

    /// Three calls of a client; its view is idle between them.
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
        // Every client is now idle in the middle of its scan.
        let users = *engine.users.0.lock();
        assert_eq!(users[..2], [0, 0], "an idle cursor keeps an old view");
    });
}

#[test]
fn idle_cursors_pin_nothing_and_use_no_old_view() {
    run(Planted::Nothing, 1);
    run(Planted::Nothing, 2);
}

#[test]
#[should_panic(expected = "keeps an old view")]
fn a_version_compared_before_the_slot_is_taken_is_found() {
    run(Planted::AskedTooEarly, 2);
}

#[test]
#[should_panic(expected = "keeps an old view")]
fn slots_cleared_before_the_new_version_are_found() {
    run(Planted::ClearedTooEarly, 2);
}

/// The fault shows although the slots are right: the version may change between taking the view
/// back and using it.
#[test]
#[should_panic(expected = "a view older than the call")]
fn a_view_used_without_comparing_its_version_is_found() {
    run(Planted::VersionNotCompared, 2);
}
