//! The queue of one key: who holds it, and who wants it, in the order in which they came.
//!
//! 1. Nobody who came later goes before a request that conflicts with his, but for one who holds
//!    the key (or a range over it) already: he stands in front. Two of those are a deadlock.
//! 2. A transaction whose stamp is on the row is a holder from the moment somebody waits for it.
//! 3. Who may go on is told by those who leave; he is a holder by then.

use crate::owner::{Mode, Owner};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a request becomes when it is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// A lock that was asked for.
    Asked,
    /// The hold of who writes the row: its stamp says the same.
    Writes,
    /// Nothing: it only waits until nobody is in its way.
    Nothing,
}

pub(crate) struct Holder<T> {
    pub owner: Arc<T>,
    /// What it asked for.
    pub asked: Option<Mode>,
    /// There is a row: it did not lock a key that is absent.
    pub row: bool,
    /// The statement in which it asked first.
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
    /// It wants a key without a row.
    pub absent: bool,
    /// It stands in front of those who hold nothing.
    pub in_front: bool,
}

pub(crate) struct Point<T> {
    pub holders: SmallVec<[Holder<T>; 1]>,
    pub queue: VecDeque<Request<T>>,
    /// Tickets of ranges that look again when something here has gone.
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

    /// How it holds the key.
    pub fn held_by(&self, owner: &T) -> Option<Mode> {
        self.holder(owner).map(Holder::mode)
    }

    pub fn holder_mut(&mut self, owner: &T) -> Option<&mut Holder<T>> {
        self.holders.iter_mut().find(|h| h.owner.id() == owner.id())
    }

    /// Holders in the way of a request.
    pub fn holders_against<'a>(
        &'a self,
        owner: &'a T,
        mode: Mode,
    ) -> impl Iterator<Item = &'a Arc<T>> {
        let against = move |h: &&Holder<T>| h.owner.id() != owner.id() && mode.conflicts(h.mode());
        self.holders.iter().filter(against).map(|h| &h.owner)
    }

    /// Requests in the way of one at this place of the queue, the nearest first.
    pub fn requests_against<'a>(
        &'a self,
        owner: &'a T,
        mode: Mode,
        at: usize,
    ) -> impl Iterator<Item = &'a Request<T>> {
        let against = move |r: &&Request<T>| r.owner.id() != owner.id() && mode.conflicts(r.mode);
        self.queue.iter().take(at).rev().filter(against)
    }

    /// Where in the queue a request that comes now stands.
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

    /// True if nobody but `owner`, who has asked for it and does not write it, has to do with it.
    pub fn is_held_alone(&self, owner: &T) -> bool {
        let mine = |h: &Holder<T>| h.owner.id() == owner.id() && !h.writes && h.asked.is_some();
        self.holders.iter().all(mine) && !self.holders.is_empty() && !self.is_awaited()
    }

    /// True if somebody waits here who would not hear of it if the last holder went unnoticed.
    pub fn is_awaited(&self) -> bool {
        !self.queue.is_empty() || !self.ranges.is_empty()
    }
}
