//! Dirty tracking by age: a page joins the bucket of the log position at which it became dirty (LSN
//! / 4 MiB; a 128th of the log if that is less, so that a small log has as many steps of age as a
//! large one). Counters per bucket and per tree are maintained, so nothing walks the dirty pages
//! and there is no flush list. The number of dirty pages of a tree is one counter. The number of
//! pages older than a position is the sum of the buckets below it: at most 128 buckets, or one per
//! 4 MiB of log, plus the parts made by cuts. That number grows with the log, not with the pages.
//!
//! The mutex guards a few map operations per clean -> dirty transition and per finished write; a
//! page that is dirty already takes no lock. Invariant: a page is counted in a bucket from before
//! its record is appended until its write is durable (B3); a page that changes again while it is
//! being written is counted in a newer bucket too.

use evenkeel_base::{Lsn, TreeId, sync::Mutex};
use evenkeel_sched::laws::pacing::{DUE_HORIZONS_SEC, Load};
use std::collections::{BTreeMap, HashMap, btree_map, hash_map};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Bytes of log per bucket, at most.
const BUCKET_BYTES_MAX: u64 = 4 << 20;
/// At least.
const BUCKET_BYTES_MIN: u64 = 4 << 10;
/// Buckets in the whole log, at least.
const BUCKETS: u64 = 128;
/// Numbers for the parts of a bucket. Further cuts reuse them, which only joins two parts. No more
/// than the bytes of a bucket, so that the number of a part does not exceed its position.
const PARTS: u64 = BUCKET_BYTES_MIN;

/// A bucket, or the part of one that pages joined between two cuts.
struct Bucket {
    /// Pages that are counted here.
    pages: u64,
    /// A lower bound of the changes counted here: the least log end at which a page joined, and so
    /// a position where a record begins.
    low: Lsn,
    /// Frames that joined and were not handed to a cleaner; may include frames cleaned since.
    frames: Vec<u32>,
}

/// The cost of the counters: map entries examined under the mutex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// By all calls.
    pub all: u64,
    /// By the call that examined most.
    pub most: u64,
}

/// A map that counts the entries that it returns; there is no uncounted access.
#[derive(Default)]
struct Shown<M> {
    map: M,
    entries: u64,
}

impl Shown<BTreeMap<u64, Bucket>> {
    /// The number of the oldest bucket; examines no entry.
    fn first(&self) -> Option<u64> {
        self.map.keys().next().copied()
    }

    fn entry(&mut self, bucket: u64) -> btree_map::Entry<'_, u64, Bucket> {
        self.entries += 1;
        self.map.entry(bucket)
    }

    /// The entries of a range in order, counted one by one as the iterator returns them.
    fn range(&mut self, of: Range<u64>) -> impl Iterator<Item = (&u64, &mut Bucket)> {
        let entries = &mut self.entries;
        self.map.range_mut(of).inspect(|_| *entries += 1)
    }
}

impl Shown<HashMap<TreeId, u64>> {
    fn get(&mut self, tree: TreeId) -> Option<u64> {
        self.entries += 1;
        self.map.get(&tree).copied()
    }

    fn entry(&mut self, tree: TreeId) -> hash_map::Entry<'_, TreeId, u64> {
        self.entries += 1;
        self.map.entry(tree)
    }
}

#[derive(Default)]
struct Inner {
    buckets: Shown<BTreeMap<u64, Bucket>>,
    trees: Shown<HashMap<TreeId, u64>>,
    looks: Looks,
}

impl Inner {
    /// The numbers of the parts of the oldest bucket.
    fn oldest(&self) -> Range<u64> {
        let first = self.buckets.first().map_or(0, |bucket| bucket / PARTS * PARTS);
        first..first + PARTS
    }

    /// The end of a call: the entries that it saw are its cost.
    fn looked(&mut self) {
        let entries = std::mem::take(&mut self.buckets.entries);
        let entries = entries + std::mem::take(&mut self.trees.entries);
        self.looks.all += entries;
        self.looks.most = self.looks.most.max(entries);
    }
}

/// The inputs of the pacing law beside the dirty pages themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// End of the log.
    pub end: Lsn,
    /// Bytes the log may hold.
    pub log_bytes: u64,
    /// Frames of the pool.
    pub frames: u64,
    /// Cold dirty pages whose frames are needed.
    pub free_frames_pages: u64,
    /// Pages that are being written and still count as dirty.
    pub in_flight_pages: u64,
    /// Whether pages are written while no page changes.
    pub rests: bool,
}

/// The bucket that cleaners drain, and its remaining frames, last page first.
#[derive(Debug, Default)]
pub struct Draining {
    bucket: u64,
    frames: Vec<u32>,
}

impl Draining {
    /// Takes up to `count` frames of the oldest buckets, in order of `page`; returns their number.
    /// A frame that `accept` refuses does not count, because the law asks for as many pages as are
    /// old and must get them.
    pub fn take<K: Ord>(
        &mut self,
        dirty: &Dirty,
        count: usize,
        page: impl Fn(u32) -> K,
        mut accept: impl FnMut(u64, u32) -> bool,
    ) -> usize {
        let mut taken = 0;
        while taken < count {
            let older = match self.frames.is_empty() {
                true => dirty.take_below(u64::MAX),
                // The frames were put back there because they were latched.
                false => dirty.take_below(self.bucket),
            };
            if let Some((bucket, mut frames)) = older {
                // The keys are cached, because a frame may get another page while the list is
                // sorted.
                frames.sort_by_cached_key(|frame| std::cmp::Reverse(page(*frame)));
                let rest = std::mem::replace(self, Draining { bucket, frames });
                for frame in rest.frames {
                    dirty.requeue(rest.bucket, frame);
                }
            } else if self.frames.is_empty() {
                break;
            }
            while taken < count
                && let Some(frame) = self.frames.pop()
            {
                taken += usize::from(accept(self.bucket, frame));
            }
        }
        taken
    }
}

/// All dirty pages, as counters.
pub struct Dirty {
    bucket_bytes: u64,
    cuts: AtomicU64,
    inner: Mutex<Inner>,
    total: AtomicU64,
}

impl Dirty {
    /// No dirty pages yet; the log has at most this many bytes.
    pub fn new(log_bytes: u64) -> Dirty {
        Dirty {
            bucket_bytes: (log_bytes / BUCKETS).clamp(BUCKET_BYTES_MIN, BUCKET_BYTES_MAX),
            cuts: AtomicU64::new(0),
            inner: Mutex::default(),
            total: AtomicU64::new(0),
        }
    }

    /// The bucket that pages join at a log position now.
    pub fn bucket_of(&self, lsn: Lsn) -> u64 {
        lsn.0 / self.bucket_bytes * PARTS + self.cuts.load(Relaxed) % PARTS
    }

    /// Pages that become dirty from now on join other buckets than those that are dirty already,
    /// even at the same log position. So the old buckets empty, however fast pages change.
    pub fn cut(&self) {
        self.cuts.fetch_add(1, Relaxed);
    }

    /// A page became dirty at log end `end`. True if it is the first of its bucket.
    pub fn join(&self, end: Lsn, frame: u32, tree: TreeId) -> bool {
        self.join_bucket(self.bucket_of(end), end, frame, tree)
    }

    /// As `join`, for a caller that has determined the bucket of `end` before.
    pub(crate) fn join_bucket(&self, bucket: u64, end: Lsn, frame: u32, tree: TreeId) -> bool {
        let mut inner = self.inner.lock();
        let new = || Bucket { pages: 0, low: end, frames: Vec::new() };
        let entry = inner.buckets.entry(bucket).or_insert_with(new);
        entry.pages += 1;
        entry.low = entry.low.min(end);
        entry.frames.push(frame);
        let first = entry.pages == 1;
        *inner.trees.entry(tree).or_default() += 1;
        inner.looked();
        self.total.fetch_add(1, Relaxed);
        first
    }

    /// Makes a frame available again that was taken and not written.
    pub fn requeue(&self, bucket: u64, frame: u32) {
        let mut inner = self.inner.lock();
        if let btree_map::Entry::Occupied(mut entry) = inner.buckets.entry(bucket) {
            entry.get_mut().frames.push(frame);
        }
        inner.looked();
    }

    /// Its write is durable, or it was dropped. True if the oldest change may now be a newer one.
    pub fn leave(&self, bucket: u64, tree: TreeId) -> bool {
        let mut inner = self.inner.lock();
        let (mut was_oldest, oldest) = (false, inner.oldest());
        if let btree_map::Entry::Occupied(mut entry) = inner.buckets.entry(bucket) {
            entry.get_mut().pages -= 1;
            if entry.get().pages == 0 {
                was_oldest = oldest.contains(&bucket);
                entry.remove();
            }
        }
        if let hash_map::Entry::Occupied(mut count) = inner.trees.entry(tree) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        inner.looked();
        self.total.fetch_sub(1, Relaxed);
        was_oldest
    }

    /// Dirty pages.
    pub fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Dirty pages of a tree.
    pub fn of_tree(&self, tree: TreeId) -> u64 {
        let mut inner = self.inner.lock();
        let pages = inner.trees.get(tree).unwrap_or(0);
        inner.looked();
        pages
    }

    /// No dirty page has a change older than this.
    pub fn oldest(&self) -> Option<Lsn> {
        let mut inner = self.inner.lock();
        let oldest = inner.oldest();
        // A page may join a later part with a log end that was read before the cut.
        let low = inner.buckets.range(oldest).map(|(_, b)| b.low).min();
        inner.looked();
        low
    }

    /// Pages in buckets below one.
    pub fn below(&self, bucket: u64) -> u64 {
        let mut inner = self.inner.lock();
        let pages = inner.buckets.range(0..bucket).map(|(_, bucket)| bucket.pages).sum();
        inner.looked();
        pages
    }

    /// Pages in buckets that begin below `lsn`.
    pub fn older_than(&self, lsn: Lsn) -> u64 {
        self.below(lsn.0.div_ceil(self.bucket_bytes).saturating_mul(PARTS))
    }

    /// The frames of the oldest bucket below `limit` that has any to hand out.
    pub fn take_below(&self, limit: u64) -> Option<(u64, Vec<u32>)> {
        let mut inner = self.inner.lock();
        let taken = inner.buckets.range(0..limit).find_map(|(bucket, entry)| {
            let frames = std::mem::take(&mut entry.frames);
            (!frames.is_empty()).then_some((*bucket, frames))
        });
        inner.looked();
        taken
    }

    /// The cost so far.
    pub fn looks(&self) -> Looks {
        self.inner.lock().looks
    }

    /// The inputs of the pacing law, with the speed of the log and the rate of the last tick.
    /// `idle_below`: pages of buckets below this one are to be written because nobody writes.
    pub fn load(
        &self,
        around: &Surroundings,
        log_bytes_per_sec: u64,
        idle_below: Option<u64>,
        previous_pages_per_sec: u64,
    ) -> Load {
        let age_target_bytes = around.log_bytes / 8 * 3;
        let age_trigger_bytes = around.log_bytes / 8 * 5;
        let due_pages = DUE_HORIZONS_SEC.map(|sec| {
            let end = around.end.0.saturating_add(log_bytes_per_sec.saturating_mul(sec));
            self.older_than(Lsn(end.saturating_sub(age_trigger_bytes)))
        });
        let over_below = Lsn(around.end.0.saturating_sub(age_target_bytes));
        let next_below = Lsn(over_below.0.saturating_add(log_bytes_per_sec));
        let over_pages = self.older_than(over_below);
        let oldest = self.oldest().unwrap_or(around.end);
        Load {
            dirty_pages: self.total(),
            dirty_target_pages: around.frames / 4 * 3,
            dirty_trigger_pages: around.frames / 8 * 7,
            over_pages,
            // A page added meanwhile joins a new bucket; one may have left an old one.
            next_pages: self.older_than(next_below).saturating_sub(over_pages),
            age_bytes: around.end.0.saturating_sub(oldest.0),
            age_target_bytes,
            age_trigger_bytes,
            due_pages,
            free_frames_pages: around.free_frames_pages,
            idle_pages: idle_below
                .map_or(0, |bucket| self.below(bucket).saturating_sub(around.in_flight_pages)),
            previous_pages_per_sec,
        }
    }

    /// The number of dirty pages; panics if buckets or trees have another sum.
    #[cfg(debug_assertions)]
    pub fn check_sums(&self) -> u64 {
        let inner = self.inner.lock();
        let total = self.total();
        let of_buckets: u64 = inner.buckets.map.values().map(|bucket| bucket.pages).sum();
        let of_trees: u64 = inner.trees.map.values().sum();
        assert_eq!((of_buckets, of_trees), (total, total), "dirty pages by age and by tree");
        total
    }

    /// Pages of each bucket, oldest first, for tests.
    #[cfg(test)]
    pub fn histogram(&self) -> Vec<(u64, u64)> {
        self.inner.lock().buckets.map.iter().map(|(b, e)| (*b, e.pages)).collect()
    }
}
