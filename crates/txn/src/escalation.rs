//! Escalation: the row locks of a transaction with many locks become ranges, one for each stretch
//! of keys in which no other transaction holds or waits for a lock (RFC 39).
//!
//! One transaction may use half of the table's memory, so a transaction at its limit leaves memory
//! to the others. It escalates at three quarters of its limit, or at an eighth if the table is
//! full. Locks that did not become ranges are tried again after it has taken a sixteenth more.
//!
//! The escalating thread holds the mutexes of all shards, in their order; every other thread holds
//! at most one. Therefore no request arrives at a key or leaves one meanwhile. If another
//! transaction's range arrives first, the new range sees it and is given up; a range that arrives
//! later sees the new one. The range is entered before its keys are removed. A writer that reads
//! only the counts, those of keys before those of ranges, finds one of the two.

use crate::intervals::{KeySpan, behind};
use crate::lock_table::{LOCK_BYTES, LockTable, Points, bounds};
use crate::owner::{Mode, Owner, Prefix};
use crate::range_locks::{Covers, RangeLock, range_bytes, space_of};
use crate::sync::atomic::Ordering;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A shorter stretch saves no memory.
const STRETCH_MIN: usize = 4;

type Key = Arc<[u8]>;

/// The keys of a stretch, and how they are held.
struct Stretch<'a> {
    keys: Vec<&'a Key>,
    mode: Mode,
    covers: Covers,
}

impl Stretch<'_> {
    fn span(&self) -> Option<KeySpan> {
        let (first, last) = (self.keys.first()?, self.keys.last()?);
        Some(KeySpan { low: first.to_vec(), high: behind(last) })
    }
}

impl<T: Owner> LockTable<T> {
    /// Makes sure that `owner` may take one more lock, by escalation if it is needed. The error
    /// holds the bytes in use and the limit.
    pub fn make_room(&self, owner: &Arc<T>) -> Result<(), (usize, usize)> {
        let (total_max, own_max) = (self.bytes_max(), self.bytes_max() / 2);
        let (own, next) = {
            let held = owner.held().lock();
            (held.bytes, held.escalates_at)
        };
        let is_full = self.bytes() >= total_max;
        let from = match is_full {
            true => own_max / 8,
            false => own_max / 4 * 3,
        };
        if own >= from.max(next) && own > 0 {
            self.escalate(owner);
            let mut held = owner.held().lock();
            held.escalates_at = held.bytes + own_max / 16;
        } else if !is_full && own < own_max {
            return Ok(());
        }
        let (own, total) = (owner.held().lock().bytes, self.bytes());
        match (own >= own_max, total >= total_max) {
            (true, _) => Err((own, own_max)),
            (_, true) => Err((total, total_max)),
            _ => Ok(()),
        }
    }

    /// Makes ranges of the keys that `owner` has requested.
    pub fn escalate(&self, owner: &Arc<T>) {
        let mut keys = owner.held().lock().keys().to_vec();
        keys.sort_unstable();
        keys.dedup();
        for keys in keys.chunk_by(|a, b| space_of(a) == space_of(b)) {
            self.escalate_space(owner, keys, None);
        }
        drop(keys);
        owner.held().lock().tidy();
    }

    /// Makes ranges of sorted keys of one space, of those that it holds in `mode` if that is given;
    /// returns their tickets.
    pub(crate) fn escalate_space(
        &self,
        owner: &Arc<T>,
        keys: &[Key],
        mode: Option<Mode>,
    ) -> Vec<u64> {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Vec::new() };
        let Some(space) = first.first_chunk::<5>() else { return Vec::new() };
        let whole = KeySpan { low: first.to_vec(), high: behind(last) };
        let mut shards: Vec<_> = self.shards().iter().map(|shard| shard.points.lock()).collect();
        let mut others = Vec::new();
        for points in &shards {
            let of_others = points
                .range::<[u8], _>(bounds(&whole))
                .filter(|(_, point)| !point.is_held_alone(owner));
            others.extend(of_others.map(|(k, _)| KeySpan { low: k.to_vec(), high: behind(k) }));
        }
        self.ranges().of_others(owner, &whole, &mut |span| others.push(span.clone()));
        let holds = |key: &Key| {
            let point = shards[self.number_of(key)].get(key)?;
            let holder = point.holder(owner)?;
            let asked = holder.asked.filter(|asked| mode.is_none_or(|mode| mode == *asked))?;
            Some((asked, if holder.row { Covers::Rows } else { Covers::All }))
        };
        let (mut stretches, mut tickets) = (stretches(keys, others, &holds), Vec::new());
        stretches.retain(|stretch| {
            let made = self.make_range(owner, space, stretch);
            tickets.extend(made);
            made.is_some()
        });
        for key in stretches.iter().flat_map(|stretch| &stretch.keys) {
            let number = self.number_of(key);
            let points: &mut Points<T> = &mut shards[number];
            points.remove(&key[..]);
            self.shards()[number].count.fetch_sub(1, Ordering::SeqCst);
        }
        tickets
    }

    /// Enters a range in place of a stretch of keys and returns its ticket; none if another
    /// transaction's range has come.
    fn make_range(&self, owner: &Arc<T>, space: &Prefix, stretch: &Stretch<'_>) -> Option<u64> {
        let span = stretch.span()?;
        let range_bytes = range_bytes(&span);
        let bytes: usize = stretch.keys.iter().map(|key| key.len() + LOCK_BYTES).sum();
        let count = stretch.keys.len();
        let ticket = self.tickets.fetch_add(1, Ordering::SeqCst);
        let range = RangeLock::new(owner, span, stretch.mode);
        let range = RangeLock { covers: stretch.covers, stands_for: count, ..range };
        if !self.ranges().add_granted(space, ticket, range) {
            return None;
        }
        {
            let mut held = owner.held().lock();
            held.ranges.push((*space, ticket));
            held.remove_asked(count);
            held.bytes = held.bytes + range_bytes - bytes;
        }
        self.bytes.fetch_add(range_bytes, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
        Some(ticket)
    }
}

/// The stretches of sorted keys that contain no span of `others`. `holds` returns how the
/// transaction holds a key, if it does.
fn stretches<'a>(
    keys: &'a [Key],
    mut others: Vec<KeySpan>,
    holds: &dyn Fn(&Key) -> Option<(Mode, Covers)>,
) -> Vec<Stretch<'a>> {
    others.sort_unstable_by(|a, b| a.low.cmp(&b.low));
    let mut others = others.into_iter().peekable();
    let mut found: Vec<Stretch<'a>> = Vec::new();
    // The highest end of the others' spans that begin at or before the key.
    let (mut reaches, mut is_parted) = (Vec::new(), true);
    for key in keys {
        while let Some(other) = others.next_if(|other| other.low[..] <= key[..]) {
            reaches = other.high.max(reaches);
            is_parted = true;
        }
        if reaches[..] > key[..] {
            continue;
        }
        let Some((mode, covers)) = holds(key) else { continue };
        match found.last_mut().filter(|_| !is_parted) {
            Some(stretch) => {
                stretch.keys.push(key);
                stretch.mode = stretch.mode.max(mode);
                stretch.covers = stretch.covers.max(covers);
            }
            None => found.push(Stretch { keys: vec![key], mode, covers }),
        }
        is_parted = false;
    }
    found.retain(|stretch| stretch.keys.len() >= STRETCH_MIN);
    found
}
