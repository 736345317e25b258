//! (a) The latch of a frame and eviction: readers, a writer and the clock on one frame. The latch
//! is the engine's (`pages/src/pool/latch.rs`); threads wait as in `pages/src/pool/frames.rs` and
//! evict as in `pages/src/pool.rs`. A thread that has latched a frame for a page compares the page
//! number.

use crate::event::Event;
use crate::page_latch::{Attempt, PageLatch};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::{model, start};
use evenkeel_sim::interleave::Thread;
use std::sync::Arc;

#[derive(Clone, Copy, Default, PartialEq)]
enum Planted {
    #[default]
    Nothing,
    /// A thread reads the event's counter after it has announced its wait.
    SeenTooLate,
    /// A thread does not compare the page number after it has the latch.
    PageNotCompared,
    /// The clock takes dirty frames.
    DirtyEvicted,
}

/// The content of another page.
const OTHER: u64 = 100;

#[derive(Default)]
struct Frame {
    latch: PageLatch,
    event: Event,
    page: AtomicU64,
    dirty: AtomicBool,
    /// Both halves of the page; a thread that holds the latch finds them equal.
    halves: [AtomicU64; 2],
    planted: Planted,
}

impl Frame {
    fn wait(&self, announce: impl Fn(&PageLatch) -> bool) {
        let mut seen = self.event.now();
        if announce(&self.latch) {
            if self.planted == Planted::SeenTooLate {
                seen = self.event.now();
            }
            self.event.block(seen, None);
        }
    }

    fn shared(&self) {
        loop {
            match self.latch.shared() {
                Attempt::Taken => return,
                Attempt::Lost => {}
                Attempt::Blocked => self.wait(PageLatch::announce_reader),
            }
        }
    }

    fn exclusive(&self) {
        while !self.latch.exclusive() {
            self.wait(PageLatch::announce_writer);
        }
    }

    fn unlock_shared(&self) {
        if self.latch.unlock_shared() {
            self.event.notify();
        }
    }

    fn unlock_exclusive(&self, readers: u32) {
        if self.latch.unlock_exclusive(readers) {
            self.event.notify();
        }
    }

    fn is_page(&self, page: u64) -> bool {
        self.page.load(SeqCst) == page || self.planted == Planted::PageNotCompared
    }

    fn check(&self) -> u64 {
        let [a, b] = &self.halves;
        let (a, b) = (a.load(SeqCst), b.load(SeqCst));
        assert_eq!(a, b, "half a change was read");
        assert!(a < OTHER, "another page was read");
        a
    }
}

fn read(frame: &Frame) {
    frame.shared();
    if frame.is_page(0) {
        frame.check();
    }
    frame.unlock_shared();
}

fn write(frame: &Frame) {
    frame.exclusive();
    if frame.is_page(0) {
        let next = frame.check() + 1;
        frame.halves.iter().for_each(|half| half.store(next, SeqCst));
        frame.dirty.store(true, SeqCst);
    }
    frame.unlock_exclusive(0);
}

/// Reads; if it is the only reader, changes the page and remains a reader.
fn read_and_upgrade(frame: &Frame) {
    frame.shared();
    if frame.is_page(0) && frame.latch.upgrade() {
        let next = frame.check() + 1;
        frame.halves.iter().for_each(|half| half.store(next, SeqCst));
        frame.dirty.store(true, SeqCst);
        frame.unlock_exclusive(1);
        assert!(frame.check() >= next);
    }
    frame.unlock_shared();
}

/// A step of the clock: a clean frame gets another page, which is read in under the latch.
fn evict(frame: &Frame) {
    if frame.latch.is_used() || !frame.latch.exclusive() {
        return;
    }
    let dirty = frame.dirty.load(SeqCst);
    if !dirty || frame.planted == Planted::DirtyEvicted {
        assert!(!dirty, "a change was thrown away");
        frame.page.store(1, SeqCst);
        frame.halves.iter().for_each(|half| half.store(OTHER, SeqCst));
    }
    frame.unlock_exclusive(0);
}

fn run(threads: &'static [fn(&Frame)], planted: Planted) {
    model("latch and eviction", threads.len(), || {
        let frame = Arc::new(Frame { planted, ..Frame::default() });
        let all: Vec<Thread> = threads.iter().map(|f| start(&frame, f)).collect();
        all.into_iter().for_each(Thread::join);
        assert!(!frame.latch.is_used(), "the latch stays taken or announced");
    });
}

#[test]
fn readers_and_eviction_see_whole_pages() {
    run(&[read, write, evict], Planted::Nothing);
    run(&[read, write, write], Planted::Nothing);
    run(&[read_and_upgrade, write, read], Planted::Nothing);
    run(&[read_and_upgrade, read_and_upgrade, evict], Planted::Nothing);
}

#[test]
fn every_pair_of_frame_users_is_safe() {
    run(&[read, write], Planted::Nothing);
    run(&[read, evict], Planted::Nothing);
    run(&[write, write], Planted::Nothing);
    run(&[write, evict], Planted::Nothing);
    run(&[read_and_upgrade, write], Planted::Nothing);
    run(&[read_and_upgrade, evict], Planted::Nothing);
    run(&[read_and_upgrade, read_and_upgrade], Planted::Nothing);
}

#[test]
#[should_panic(expected = "nobody can go on")]
fn an_event_counter_read_after_announcing_is_found() {
    run(&[read, write, write], Planted::SeenTooLate);
}

#[test]
#[should_panic(expected = "another page was read")]
fn a_latch_without_comparing_the_page_is_found() {
    run(&[read, write, evict], Planted::PageNotCompared);
}

#[test]
#[should_panic(expected = "a change was thrown away")]
fn evicting_a_dirty_frame_is_found() {
    run(&[read, write, evict], Planted::DirtyEvicted);
}
