//! The policies that find the pages of a build in a flush list, as reported. Each has the loop of
//! the original, and holds and releases the mutex where the original does.

use super::list::{Fix, Stop};
use super::setup::Setup;
use super::world::World;

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Restarts at the tail after each page, because the adjacent page may have left meanwhile.
    Restart,
    /// One pass with a hazard pointer: a thread that removes the page where the scan continues
    /// moves the pointer.
    Hazard,
    /// One pass that pins the page where it continues, then `Restart` for the pages that it missed.
    /// `latched`: the state of a page is read under the page's own lock, as in the second version
    /// of that patch.
    Optimistic {
        /// See above.
        latched: bool,
    },
}

/// The cost of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pages of the list that were visited.
    pub steps: u64,
    /// Pages of the build that were flushed.
    pub flushed: u64,
    /// Scans that began at the tail.
    pub scans: u64,
    /// Pages that the optimistic pass left to the next pass.
    pub missed: u64,
    /// Locks of single pages taken.
    pub page_locks: u64,
    /// Number of times that the page where the pass should continue had left the list.
    pub lost: u64,
}

impl Tally {
    /// Adds the tally of another list.
    pub fn add(&mut self, other: &Tally) {
        self.steps += other.steps;
        self.flushed += other.flushed;
        self.scans += other.scans;
        self.missed += other.missed;
        self.page_locks += other.page_locks;
        self.lost += other.lost;
    }
}

/// One scan of one list.
pub struct Scanner<'a, 'w> {
    setup: &'a Setup,
    /// The list and the threads around it.
    pub world: &'w mut World<'a>,
    /// The cost up to now.
    pub tally: Tally,
    /// Steps since the mutexes were taken.
    processed: u64,
}

impl<'a, 'w> Scanner<'a, 'w> {
    /// A scan that holds the mutexes.
    pub fn new(setup: &'a Setup, world: &'w mut World<'a>) -> Scanner<'a, 'w> {
        Scanner { setup, world, tally: Tally::default(), processed: 0 }
    }

    /// Flushes every page of the build; false if the time ran out.
    pub fn run(mut self, scan: Scan) -> (Tally, bool) {
        let whole = match scan {
            Scan::Restart => self.restart(),
            Scan::Hazard => self.hazard(),
            Scan::Optimistic { latched } => self.optimistic(latched) && self.restart(),
        };
        self.world.let_go(0);
        (self.tally, whole)
    }

    fn is_late(&self) -> bool {
        self.world.now >= self.setup.limit_s * 1_000_000_000
    }

    /// Visits pages from `from` on until one belongs to the build. Releases the mutexes after every
    /// section, unless the current page is fixed for I/O: such a page may leave the list meanwhile.
    fn find(&mut self, from: Option<u32>) -> Option<u32> {
        let mut at = from;
        while let Some(page) = at {
            let budget = self.setup.section_steps.saturating_sub(self.processed).max(1);
            let (looked, stop) = self.world.list.walk(page, budget);
            self.tally.steps += looked;
            self.processed += looked;
            self.world.held(looked * self.setup.step_ns);
            match stop {
                Stop::Own(own) => return Some(own),
                Stop::End => return None,
                Stop::Budget(last) => {
                    if self.world.list.fix(last) == Fix::Free {
                        self.world.list.set_fix(last, Fix::Sticky);
                        self.world.let_go(self.setup.gap_ns);
                        self.world.list.set_fix(last, Fix::Free);
                        self.processed = 0;
                        if self.is_late() {
                            return None;
                        }
                    }
                    at = self.world.list.newer(last);
                }
            }
        }
        None
    }

    /// Writes a page with the mutexes released, and removes it from the list.
    fn flush(&mut self, page: u32) {
        self.world.list.set_fix(page, Fix::Io);
        self.world.let_go(self.setup.io_ns);
        self.world.drop_page(page);
        self.tally.flushed += 1;
        self.processed = 0;
    }

    fn may_flush(&self, page: u32) -> bool {
        self.world.list.fix(page) == Fix::Free && !self.world.list.is_pinned(page)
    }

    fn restart(&mut self) -> bool {
        'scan: loop {
            if self.is_late() {
                return false;
            }
            self.tally.scans += 1;
            let mut from = self.world.list.tail();
            while let Some(own) = self.find(from) {
                if self.may_flush(own) {
                    self.flush(own);
                    continue 'scan;
                }
                from = self.world.list.newer(own);
            }
            if self.world.list.own() == 0 {
                return true;
            }
            // The rest of the pages is in use: retry after a while.
            self.world.let_go(self.setup.io_ns);
            self.processed = 0;
        }
    }

    fn hazard(&mut self) -> bool {
        while self.world.list.own() > 0 {
            if self.is_late() {
                return false;
            }
            self.tally.scans += 1;
            let mut from = self.world.list.tail();
            while let Some(own) = self.find(from) {
                from = self.world.list.newer(own);
                if self.may_flush(own) {
                    self.world.hazard = from;
                    self.flush(own);
                    from = self.world.hazard.take();
                }
            }
            self.world.let_go(self.setup.gap_ns);
            self.processed = 0;
        }
        true
    }

    fn optimistic(&mut self, latched: bool) -> bool {
        self.tally.scans += 1;
        let mut from = self.world.list.tail();
        while let Some(own) = self.find(from) {
            if self.is_late() {
                return false;
            }
            let next = self.world.list.newer(own);
            if self.may_flush(own) && next.is_none_or(|next| self.pin(next, latched)) {
                self.flush(own);
                from = next;
                if let Some(next) = next {
                    if !self.world.list.is_listed(next) {
                        // The page was being written and has left the list: the pass has lost its
                        // position.
                        self.tally.lost += 1;
                        return true;
                    }
                    self.world.list.set_fix(next, Fix::Free);
                }
            } else {
                self.tally.missed += 1;
                from = next;
            }
        }
        !self.is_late()
    }

    /// Makes the page sticky unless it is fixed or in use. Without the page lock the state may be
    /// outdated: a page whose write has just begun appears free.
    fn pin(&mut self, page: u32, latched: bool) -> bool {
        if latched {
            self.tally.page_locks += 2;
            self.world.held(2 * self.setup.hold_ns);
            if !self.may_flush(page) {
                return false;
            }
            self.world.list.set_fix(page, Fix::Sticky);
        } else if self.world.list.fix(page) == Fix::Free {
            self.world.list.set_fix(page, Fix::Sticky);
        }
        true
    }
}
