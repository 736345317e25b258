//! Invariants of the page pool, for debug builds. They hold whenever no thread is inside a call
//! that neither waits nor steps: at every point where the simulator switches threads, and when a
//! database has no users. The simulator and the close of a database check them.
#![cfg(debug_assertions)]

use crate::Pages;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

impl Pages {
    /// Panics if a frame is in two places or none, if a page is not where the page table has it, or
    /// if counts of dirty pages differ from each other.
    pub fn check_invariants(&self) {
        let (made, mut resident, mut taken, mut dirty) = (self.frames.made(), 0, 0, 0);
        for index in 0..made as u32 {
            let facts = self.frames.facts(index);
            match facts.page() {
                Some(page) => {
                    resident += 1;
                    assert_eq!(self.translation.get(page), Some(index), "the frame of page {page}");
                    dirty += u64::from(facts.dirty.load(Relaxed) != 0);
                }
                None => {
                    taken += usize::from(facts.is_write_latched());
                    assert_eq!(facts.dirty.load(Relaxed), 0, "frame {index} is empty and dirty");
                    assert_eq!(facts.pins.load(Relaxed), 0, "frame {index} is empty and pinned");
                }
            }
        }
        let mut lists = self.free_list.lists.lock();
        lists.list_unused();
        let empty: BTreeSet<u32> = lists.free.iter().chain(&lists.retired).copied().collect();
        assert_eq!(empty.len(), lists.free.len() + lists.retired.len(), "a frame is free twice");
        for index in &empty {
            assert_eq!(self.frames.facts(*index).page(), None, "frame {index} is free");
        }
        let found = resident + empty.len();
        // A thread that has taken a frame holds its latch, and so does one that looks at an empty
        // frame.
        assert!(found <= made && found + taken >= made, "{resident} + {} of {made}", empty.len());
        let available = self.free_list.available();
        assert!(available <= lists.free.len() as i64, "{available} credits");
        drop(lists);
        assert!(dirty <= self.dirty.check_sums(), "{dirty} frames are dirty");
    }

    /// Panics if a frame is pinned, latched, being read or being written, or if a credit is
    /// missing. For a pool without users.
    pub fn check_unused(&self) {
        self.check_invariants();
        for index in 0..self.frames.made() as u32 {
            let facts = self.frames.facts(index);
            assert_eq!(facts.pins.load(Relaxed), 0, "pins of frame {index}");
            assert!(!facts.is_latched(), "frame {index} is latched");
            assert!(!facts.loading.load(Relaxed), "frame {index} is being read");
            assert!(!facts.writing.load(Relaxed), "frame {index} is being written");
        }
        let free = self.free_list.lists.lock().free_count();
        assert_eq!(self.free_list.available(), free as i64, "credits for {free} free frames");
    }
}
