//! A flush list: dirty pages ordered by the time of their first change, the newest at the head. The
//! links are real. A tree of counts next to them tells how many pages lie between two, so a walk
//! over millions of pages can be counted without visiting them. Both ways give the same numbers.
//!
//! Invariant: page numbers ascend from the tail to the head, because a page that becomes dirty goes
//! to the head and a number is never reused.

use std::collections::BTreeSet;

/// No page.
const NONE: u32 = u32::MAX;

/// Whether a page is being read or written, or held in its position by a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Neither.
    Free,
    /// Being written.
    Io,
    /// Held by a scan.
    Sticky,
}

#[derive(Clone, Copy)]
struct Page {
    older: u32,
    newer: u32,
    fix: Fix,
    pins: u16,
    own: bool,
    listed: bool,
}

/// The end of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At a page of the build.
    Own(u32),
    /// The budget is used up; this page was the last one visited.
    Budget(u32),
    /// The walk has passed the head.
    End,
}

/// Counts of listed pages by number (a Fenwick tree).
#[derive(Default)]
struct Counts {
    sums: Vec<u32>,
}

impl Counts {
    fn with(listed: impl Iterator<Item = bool>, capacity: usize) -> Counts {
        let mut sums = vec![0; capacity + 1];
        for (number, is) in listed.enumerate() {
            sums[number + 1] = u32::from(is);
        }
        for at in 1..=capacity {
            let above = at + (at & at.wrapping_neg());
            if above <= capacity {
                sums[above] += sums[at];
            }
        }
        Counts { sums }
    }

    fn add(&mut self, number: u32, by: i32) {
        let mut at = number as usize + 1;
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add_signed(by);
            at += at & at.wrapping_neg();
        }
    }

    /// Listed pages with a lower number.
    fn below(&self, number: u32) -> u64 {
        let (mut at, mut sum) = (number as usize, 0u64);
        while at > 0 {
            sum += u64::from(self.sums[at]);
            at -= at & at.wrapping_neg();
        }
        sum
    }

    /// The page with exactly `rank` listed ones below it.
    fn select(&self, rank: u64) -> u32 {
        let (mut at, mut left) = (0usize, rank);
        let mut step = (self.sums.len() - 1).next_power_of_two();
        while step > 0 {
            let next = at + step;
            if next < self.sums.len() && u64::from(self.sums[next]) <= left {
                at = next;
                left -= u64::from(self.sums[next]);
            }
            step /= 2;
        }
        at as u32
    }
}

/// The list.
pub struct FlushList {
    pages: Vec<Page>,
    counts: Counts,
    own: BTreeSet<u32>,
    head: u32,
    tail: u32,
    len: u64,
    /// Walks are counted instead of following the links.
    jumps: bool,
    ops: Vec<Op>,
}

/// The operations on a list, for a count by hand in a test.
#[cfg_attr(not(test), allow(dead_code))]
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A page joined at the head.
    Push,
    /// This page left.
    Remove(u32),
    /// Pages were visited from this one on, with this budget: this many.
    Walk(u32, u64, u64),
}

impl FlushList {
    /// A list of pages from the oldest to the newest; true: it belongs to the build.
    pub fn new(own: impl IntoIterator<Item = bool>, jumps: bool) -> FlushList {
        let mut list = FlushList {
            pages: Vec::new(),
            counts: Counts::default(),
            own: BTreeSet::new(),
            head: NONE,
            tail: NONE,
            len: 0,
            jumps,
            ops: Vec::new(),
        };
        for own in own {
            list.link(own);
        }
        list.recount();
        list
    }

    fn recount(&mut self) {
        let capacity = (self.pages.len() * 5 / 4).max(64);
        self.counts = Counts::with(self.pages.iter().map(|p| p.listed), capacity);
    }

    fn link(&mut self, own: bool) -> u32 {
        let number = self.pages.len() as u32;
        let (older, newer) = (self.head, NONE);
        self.pages.push(Page { older, newer, fix: Fix::Free, pins: 0, own, listed: true });
        match older {
            NONE => self.tail = number,
            older => self.pages[older as usize].newer = number,
        }
        self.head = number;
        self.len += 1;
        if own {
            self.own.insert(number);
        }
        number
    }

    fn note(&mut self, op: Op) {
        if cfg!(test) {
            self.ops.push(op);
        }
    }

    /// The operations since the list was created.
    #[cfg(test)]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// A page becomes dirty and joins the list.
    pub fn push(&mut self) -> u32 {
        self.note(Op::Push);
        let number = self.link(false);
        if number as usize + 1 >= self.counts.sums.len() {
            self.recount();
        } else {
            self.counts.add(number, 1);
        }
        number
    }

    /// A page becomes clean and leaves the list.
    pub fn remove(&mut self, number: u32) {
        let Page { older, newer, listed, own, .. } = self.pages[number as usize];
        if !listed {
            return;
        }
        self.note(Op::Remove(number));
        match older {
            NONE => self.tail = newer,
            older => self.pages[older as usize].newer = newer,
        }
        match newer {
            NONE => self.head = older,
            newer => self.pages[newer as usize].older = older,
        }
        self.pages[number as usize].listed = false;
        self.len -= 1;
        self.counts.add(number, -1);
        if own {
            self.own.remove(&number);
        }
    }

    /// Number of pages in the list.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Number of pages of the build in the list.
    pub fn own(&self) -> usize {
        self.own.len()
    }

    /// The oldest page.
    pub fn tail(&self) -> Option<u32> {
        Some(self.tail).filter(|p| *p != NONE)
    }

    /// The adjacent page towards the head (InnoDB's `prev`).
    pub fn newer(&self, number: u32) -> Option<u32> {
        Some(self.pages[number as usize].newer).filter(|p| *p != NONE)
    }

    /// True if the page is in the list.
    pub fn is_listed(&self, number: u32) -> bool {
        self.pages[number as usize].listed
    }

    /// True if the page is the build's.
    pub fn is_own(&self, number: u32) -> bool {
        self.pages[number as usize].own
    }

    /// The I/O-fix state of a page.
    pub fn fix(&self, number: u32) -> Fix {
        self.pages[number as usize].fix
    }

    /// Sets the I/O-fix state of a page.
    pub fn set_fix(&mut self, number: u32, fix: Fix) {
        self.pages[number as usize].fix = fix;
    }

    /// True if a thread uses the page.
    pub fn is_pinned(&self, number: u32) -> bool {
        self.pages[number as usize].pins > 0
    }

    /// A thread begins (or ends) to use the page.
    pub fn pin(&mut self, number: u32, by: i16) {
        let pins = &mut self.pages[number as usize].pins;
        *pins = pins.wrapping_add_signed(by);
    }

    /// The page at this rank, counted from the tail.
    pub fn at(&self, rank: u64) -> Option<u32> {
        (rank < self.len).then(|| self.counts.select(rank))
    }

    /// Visits pages from `from` on towards the head, until one belongs to the build or `budget`
    /// pages are visited. Returns the number visited.
    pub fn walk(&mut self, from: u32, budget: u64) -> (u64, Stop) {
        let found = if self.jumps { self.jump(from, budget) } else { self.step(from, budget) };
        self.note(Op::Walk(from, budget, found.0));
        found
    }

    fn step(&self, from: u32, budget: u64) -> (u64, Stop) {
        let (mut at, mut looked) = (from, 0);
        loop {
            looked += 1;
            let page = &self.pages[at as usize];
            if page.own {
                return (looked, Stop::Own(at));
            }
            if looked >= budget {
                return (looked, Stop::Budget(at));
            }
            if page.newer == NONE {
                return (looked, Stop::End);
            }
            at = page.newer;
        }
    }

    fn jump(&self, from: u32, budget: u64) -> (u64, Stop) {
        let rank = self.counts.below(from);
        if let Some(own) = self.own.range(from..).next() {
            let looked = self.counts.below(*own) - rank + 1;
            if looked <= budget {
                return (looked, Stop::Own(*own));
            }
        }
        let left = self.len - rank;
        if left >= budget {
            return (budget, Stop::Budget(self.counts.select(rank + budget - 1)));
        }
        (left, Stop::End)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_io::Rng;

    #[test]
    fn counting_is_the_same_as_walking_and_as_a_model() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let first: Vec<bool> = (0..300).map(|_| rng.one_in(40)).collect();
            let mut list = FlushList::new(first.iter().copied(), true);
            let mut model: Vec<(u32, bool)> = (0..).zip(first).collect();
            for _ in 0..600 {
                match rng.below(3) {
                    0 => model.push((list.push(), false)),
                    1 if !model.is_empty() => {
                        let (number, _) = model.remove(rng.below(model.len() as u64) as usize);
                        list.remove(number);
                        assert!(!list.is_listed(number));
                    }
                    _ if !model.is_empty() => {
                        let place = rng.below(model.len() as u64) as usize;
                        let budget = 1 + rng.below(40);
                        let from = model[place].0;
                        assert_eq!(list.at(place as u64), Some(from), "seed {seed}");
                        let found = list.jump(from, budget);
                        assert_eq!(found, list.step(from, budget), "seed {seed}");
                        let rest = &model[place..];
                        let most = rest.len().min(budget as usize);
                        let wanted = match rest[..most].iter().position(|p| p.1) {
                            Some(own) => (own as u64 + 1, Stop::Own(rest[own].0)),
                            None if most as u64 == budget => {
                                (budget, Stop::Budget(rest[most - 1].0))
                            }
                            None => (most as u64, Stop::End),
                        };
                        assert_eq!(found, wanted, "seed {seed}");
                    }
                    _ => {}
                }
                assert_eq!(list.len(), model.len() as u64);
                assert_eq!(list.tail(), model.first().map(|p| p.0));
                assert_eq!(list.own(), model.iter().filter(|p| p.1).count());
            }
        }
    }
}
