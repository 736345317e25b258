//! The pages in use, and reading them in again after an open. Nothing is evicted for them and no
//! thread waits for them: they go into frames that are free beyond the low-water mark, in the class
//! of background I/O that yields to every other. When no frame is left the rest is skipped.

use crate::{Access, Pages};
use evenkeel_base::{PageNo, metrics::Metric};
use evenkeel_sched::Class;
use std::sync::atomic::Ordering::*;

/// Neighbouring pages read at once, at most.
const RUN: usize = 32;

impl Pages {
    /// Pages that were touched since the clock last passed, at most `most`, ascending. If there are
    /// more, those that the clock has passed last: they were used again soonest.
    pub fn hot_pages(&self, most: usize) -> Vec<PageNo> {
        let frames = self.frames.count();
        let hand = self.free_list.hand.load(Relaxed);
        let mut pages: Vec<PageNo> = (1..=frames)
            .map(|back| self.frames.facts(((hand % frames + frames - back) % frames) as u32))
            .filter(|facts| facts.referenced.load(Relaxed) != 0)
            .filter_map(|facts| facts.page())
            .take(most)
            .collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Reads in the neighbouring pages at the beginning of an ascending list; returns the number of
    /// pages examined. `None`: the list is empty, or no frame is free. Pages that cannot be read
    /// are left to their users.
    pub fn warm(&self, list: &[PageNo]) -> Option<usize> {
        let first = *list.first()?;
        if self.geometry.extent_of(first).is_none() {
            return Some(1);
        }
        let follows = |(i, page): &(usize, &PageNo)| {
            page.0.wrapping_sub(first.0) == *i as u64
                && (*i == 0 || !page.0.is_multiple_of(self.geometry.segment_pages()))
        };
        let count = list.iter().enumerate().take(RUN).take_while(follows).count();
        if list[..count].iter().all(|page| self.translation.get(*page).is_some()) {
            return Some(count);
        }
        let bytes = (count * self.page_size()) as u64;
        self.sched.ask(Class::Maintenance, bytes, false);
        let taken = self.free_list.take_spare(count as i64) as usize;
        if taken < count {
            self.free_list.return_credits(taken);
            return None;
        }
        let start = self.rt.env.now_ns();
        match self.load_run_as(Access::Normal, first, count) {
            Ok(brought) => {
                let ns = self.rt.env.now_ns().saturating_sub(start);
                self.sched.governor.report(Class::Maintenance, 1, bytes, ns);
                self.rt.metrics.add(Metric::WarmPagesRead, brought as u64);
            }
            Err(error) => log::debug!("{count} pages from {first}: not read in: {error}"),
        }
        Some(count)
    }
}

#[cfg(test)]
#[path = "warm_tests.rs"]
mod warm_tests;
