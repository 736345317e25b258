//! The queue of one key: its holders, and the requests for it in the order in which they came.
//!
//! 1. No later request overtakes a conflicting earlier one, unless its transaction holds the key
//!    (or a range that contains it) already: such a request goes to the front. Two of these are a
//!    deadlock.
//! 2. A transaction whose stamp is on the row is a holder from the moment that another one waits
//!    for it.
//! 3. A request that leaves tells the granted ones, which are holders by then.

use crate::owner::{Mode, Owner};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// The result of granting a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// A requested lock.
    Asked,
    /// The hold of the row's writer, equal to its stamp.
    Writes,
    /// Nothing: the request only waits until its way is free.
    Nothing,
}

pub(crate) struct Holder<T> {
    pub owner: Arc<T>,
    /// The requested mode.
    pub asked: Option<Mode>,
    /// The key had a row; false: the lock is of an absent key.
    pub row: bool,
    /// The statement that requested it first.
    pub since: u32,
    /// Its stamp is on the row, or will be.
    pub writes: bool,
}

impl<T: Owner> Holder<T> {
    pub fn new(owner: &Arc<T>, writes: bool) -> Self {
        Holder { owner: owner.clone(), asked: None, row: false, since: 0, writes }
    }

    pub fn mode(&self) -> Mode {
        match self.writes {
            true => Mode::Exclusive,
            false => self.asked.unwrap_or(Mode::Shared),
        }
    }
}

pub(crate) struct Request<T> {
    pub owner: Arc<T>,
    pub mode: Mode,
    pub keep: Keep,
    pub ticket: u64,
    /// The requested key has no row.
    pub absent: bool,
    /// It stands in front of requests of transactions that hold nothing.
    pub in_front: bool,
}

pub(crate) struct Point<T> {
    pub holders: SmallVec<[Holder<T>; 1]>,
    pub queue: VecDeque<Request<T>>,
    /// Tickets of ranges to examine again when a hold or request here has gone.
    pub ranges: Vec<u64>,
}

impl<T> Default for Point<T> {
    fn default() -> Self {
        Point { holders: SmallVec::new(), queue: VecDeque::new(), ranges: Vec::new() }
    }
}

impl<T: Owner> Point<T> {
    pub fn holder(&self, owner: &T) -> Option<&Holder<T>> {
        self.holders.iter().find(|h| h.owner.id() == owner.id())
    }

    /// How `owner` holds the key.
    pub fn held_by(&self, owner: &T) -> Option<Mode> {
        self.holder(owner).map(Holder::mode)
    }

    pub fn holder_mut(&mut self, owner: &T) -> Option<&mut Holder<T>> {
        self.holders.iter_mut().find(|h| h.owner.id() == owner.id())
    }

    /// Holders that block a request.
    pub fn holders_against<'a>(
        &'a self,
        owner: &'a T,
        mode: Mode,
    ) -> impl Iterator<Item = &'a Arc<T>> {
        let against = move |h: &&Holder<T>| h.owner.id() != owner.id() && mode.conflicts(h.mode());
        self.holders.iter().filter(against).map(|h| &h.owner)
    }

    /// Requests that block the one at this place of the queue, the nearest first.
    pub fn requests_against<'a>(
        &'a self,
        owner: &'a T,
        mode: Mode,
        at: usize,
    ) -> impl Iterator<Item = &'a Request<T>> {
        let against = move |r: &&Request<T>| r.owner.id() != owner.id() && mode.conflicts(r.mode);
        self.queue.iter().take(at).rev().filter(against)
    }

    /// The place in the queue of a request that comes now.
    pub fn place_of(&self, in_front: bool) -> usize {
        match in_front {
            true => self.queue.iter().take_while(|r| r.in_front).count(),
            false => self.queue.len(),
        }
    }

    pub fn position(&self, ticket: u64) -> Option<usize> {
        self.queue.iter().position(|r| r.ticket == ticket)
    }

    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    /// True if only `owner` is concerned, and it has requested the key and does not write it.
    pub fn is_held_alone(&self, owner: &T) -> bool {
        let mine = |h: &Holder<T>| h.owner.id() == owner.id() && !h.writes && h.asked.is_some();
        self.holders.iter().all(mine) && !self.holders.is_empty() && !self.is_awaited()
    }

    /// True if a request waits here that would not notice an unreported release by the last holder.
    pub fn is_awaited(&self) -> bool {
        !self.queue.is_empty() || !self.ranges.is_empty()
    }
}
