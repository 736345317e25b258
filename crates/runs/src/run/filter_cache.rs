//! The cache of fences and filters of segments and of footers of files, within a share of memory
//! (G3). They stay as long as there is room; then those that were not used for a round of a clock
//! are evicted (second chance). The slices that `lazy_metadata` keeps count as well. All but
//! filters may borrow a part of the memory of run blocks, which yield it (`beyond`): without fences
//! no block is found, and reading them costs as much as some ten blocks.
//!
//! Invariants: the memory held beyond the share and the loan is at most what is in use now, plus
//! one segment's fences and a footer that are needed at once. A filter is read only into free room
//! in the share: without it a reader looks into the run, which costs a block instead of the whole
//! filter. A reader that has got one keeps it as long as it needs it.

use evenkeel_base::metrics::{Metric, Metrics};
use evenkeel_base::sync::{Mutex, RwLock};
use evenkeel_format::run::{Fences, Filter, PackedFooter};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// Cells that the clock passes at a time.
const SWEEP: usize = 64;
/// One in this many wanted filters that found no room advances the clock.
const FILTERS_PER_SWEEP: u64 = 16;
/// At most this many times the share is borrowed.
const LOAN_SHARES: u64 = 3;

/// The fences, filters and footers of all segments.
pub(crate) struct FilterCache {
    limit: AtomicU64,
    /// The memory of run blocks that all but filters may borrow.
    loan: AtomicU64,
    bytes: AtomicU64,
    /// Bytes of slices of `lazy_metadata` in memory.
    slices: AtomicU64,
    /// Removed cells that still have a place in the ring, about.
    gone: AtomicU64,
    metrics: Arc<Metrics>,
    filters_refused: AtomicU64,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    cells: Vec<Weak<Cell>>,
    hand: usize,
}

/// The content of an evicted cell: freed outside the lock.
type Gone = (Option<Arc<Fences>>, Option<Arc<Filter>>, Option<Arc<PackedFooter>>);

/// The content of one segment or file.
pub(crate) struct Cell {
    all: Arc<FilterCache>,
    fences: RwLock<Option<Arc<Fences>>>,
    filter: RwLock<Option<Arc<Filter>>>,
    footer: RwLock<Option<Arc<PackedFooter>>>,
    used: AtomicBool,
}

impl FilterCache {
    /// A cache for this many bytes.
    pub(crate) fn new(limit: u64, metrics: Arc<Metrics>) -> Arc<FilterCache> {
        Arc::new(FilterCache {
            limit: AtomicU64::new(limit),
            loan: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            slices: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            metrics,
            filters_refused: AtomicU64::new(0),
            ring: Mutex::default(),
        })
    }

    /// Changes the loan; excess memory is freed by `shrink` or as others enter.
    pub(crate) fn set_loan(&self, bytes: u64) {
        self.loan.store(bytes, Relaxed);
    }

    /// Bytes held beyond the share: run blocks have that much less.
    pub(crate) fn beyond(&self) -> u64 {
        let held = self.bytes() + self.slices.load(Relaxed);
        held.saturating_sub(self.limit.load(Relaxed))
    }

    /// Changes the share; excess memory that was not used lately is freed.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Relaxed);
        self.shrink();
    }

    /// Frees the memory beyond share and loan, unless it is in use.
    pub(crate) fn shrink(&self) {
        if self.has_room(0) {
            return;
        }
        let rounds = 2 * self.ring.lock().cells.len().div_ceil(SWEEP);
        for _ in 0..rounds {
            if self.has_room(0) {
                break;
            }
            self.sweep(0, self.loan());
        }
    }

    /// Sets the bytes of slices in memory.
    pub(crate) fn set_slices(&self, bytes: u64) {
        self.slices.store(bytes, Relaxed);
    }

    /// Bytes held now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// A cell for a segment.
    pub(crate) fn cell(self: &Arc<Self>) -> Arc<Cell> {
        let cell = Arc::new(Cell {
            all: self.clone(),
            fences: RwLock::default(),
            filter: RwLock::default(),
            footer: RwLock::default(),
            used: AtomicBool::new(false),
        });
        self.ring.lock().cells.push(Arc::downgrade(&cell));
        self.prune();
        cell
    }

    /// Removes places from the ring once half of them belong to removed cells.
    pub(crate) fn prune(&self) {
        if self.gone.load(Relaxed) < SWEEP as u64 {
            return;
        }
        let mut ring = self.ring.lock();
        // It decreases only under this lock.
        let gone = self.gone.load(Relaxed);
        if 2 * gone >= ring.cells.len() as u64 {
            ring.cells.retain(|cell| cell.strong_count() > 0);
            ring.cells.shrink_to_fit();
            self.gone.fetch_sub(gone, Relaxed);
        }
    }

    /// True if this many bytes more fit the share and the loan.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.fits(bytes, self.loan())
    }

    fn loan(&self) -> u64 {
        let most = self.limit.load(Relaxed).saturating_mul(LOAN_SHARES);
        self.loan.load(Relaxed).min(most)
    }

    fn fits(&self, bytes: u64, loan: u64) -> bool {
        let most = self.limit.load(Relaxed).saturating_add(loan);
        self.bytes() + self.slices.load(Relaxed) + bytes <= most
    }

    /// True if no slice has to be evicted: slices take at most half of the share, because other
    /// content is evicted on demand and slices are not.
    pub(crate) fn has_room_for_slices(&self) -> bool {
        self.slices.load(Relaxed) <= self.limit.load(Relaxed) / 2 && self.has_room(0)
    }

    /// True if a filter of this many bytes may be read.
    pub(crate) fn admits_filter(&self, bytes: u64) -> bool {
        if self.fits(bytes, 0) {
            return true;
        }
        let is_turn = self.filters_refused.fetch_add(1, Relaxed).is_multiple_of(FILTERS_PER_SWEEP);
        // Fences that borrow memory are not evicted for a filter.
        if is_turn && self.beyond() == 0 {
            self.sweep(bytes, 0);
        }
        let has_room = self.fits(bytes, 0);
        if !has_room {
            self.metrics.add(Metric::FiltersNotInMemory, 1);
        }
        has_room
    }

    fn make_room(&self, bytes: u64) {
        if !self.has_room(bytes) {
            self.sweep(bytes, self.loan());
        }
    }

    /// Advances the clock until there is room for this many bytes, by a bounded number of cells.
    fn sweep(&self, bytes: u64, loan: u64) {
        let mut freed = Vec::new();
        let mut ring = self.ring.lock();
        let Ring { cells, hand, .. } = &mut *ring;
        for _ in 0..SWEEP.min(2 * cells.len()) {
            if self.fits(bytes, loan) || cells.is_empty() {
                break;
            }
            *hand %= cells.len();
            match cells[*hand].upgrade() {
                None => {
                    cells.swap_remove(*hand);
                    let one_less = |gone: u64| Some(gone.saturating_sub(1));
                    let _ = self.gone.fetch_update(Relaxed, Relaxed, one_less);
                    continue;
                }
                Some(cell) if cell.used.swap(false, Relaxed) => {}
                Some(cell) => freed.extend(cell.empty()),
            }
            *hand += 1;
        }
        drop(ring);
        self.metrics.add(Metric::FilterCacheEvictions, freed.len() as u64);
    }
}

impl Cell {
    /// The fences, if they are in memory.
    pub(crate) fn fences(&self) -> Option<Arc<Fences>> {
        let found = self.fences.read().clone();
        self.use_if(found.is_some());
        found
    }

    /// The filter, if it is in memory.
    pub(crate) fn filter(&self) -> Option<Arc<Filter>> {
        let found = self.filter.read().clone();
        self.use_if(found.is_some());
        found
    }

    /// A plain load if the bit is set already, so that cores do not take the cache line from each
    /// other.
    fn use_if(&self, found: bool) {
        if found && !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }

    /// Keeps fences that were read, unless another thread has done so; returns those that are kept.
    pub(crate) fn keep_fences(&self, fences: Fences) -> Arc<Fences> {
        let bytes = fences.memory() as u64;
        self.all.make_room(bytes);
        let mut place = self.fences.write();
        place.get_or_insert_with(|| self.counted(bytes, fences)).clone()
    }

    /// As `keep_fences`.
    pub(crate) fn keep_filter(&self, filter: Filter) -> Arc<Filter> {
        let bytes = filter.memory() as u64;
        let mut place = self.filter.write();
        place.get_or_insert_with(|| self.counted(bytes, filter)).clone()
    }

    /// The footer, if it is in memory.
    pub(crate) fn footer(&self) -> Option<Arc<PackedFooter>> {
        let found = self.footer.read().clone();
        self.use_if(found.is_some());
        found
    }

    /// As `keep_fences`.
    pub(crate) fn keep_footer(&self, footer: PackedFooter) -> Arc<PackedFooter> {
        let bytes = footer.memory() as u64;
        self.all.make_room(bytes);
        let mut place = self.footer.write();
        place.get_or_insert_with(|| self.counted(bytes, footer)).clone()
    }

    fn counted<T>(&self, bytes: u64, kept: T) -> Arc<T> {
        self.all.bytes.fetch_add(bytes, Relaxed);
        Arc::new(kept)
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        bytes_of(&(
            self.fences.read().clone(),
            self.filter.read().clone(),
            self.footer.read().clone(),
        ))
    }

    /// Removes its content; none if it is empty.
    fn empty(&self) -> Option<Gone> {
        let gone =
            (self.fences.write().take(), self.filter.write().take(), self.footer.write().take());
        let bytes = bytes_of(&gone);
        self.all.bytes.fetch_sub(bytes, Relaxed);
        (bytes > 0).then_some(gone)
    }
}

fn bytes_of((fences, filter, footer): &Gone) -> u64 {
    let fences = fences.as_ref().map_or(0, |f| f.memory());
    let filter = filter.as_ref().map_or(0, |f| f.memory());
    (fences + filter + footer.as_ref().map_or(0, |f| f.memory())) as u64
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.empty();
        self.all.gone.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_format::run::{FencesBuilder, FilterBuilder, hash_key};

    fn filter() -> Filter {
        let mut builder = FilterBuilder::default();
        (0..1_000u32).for_each(|n| builder.push(&n.to_be_bytes()));
        Filter::decode(builder.finish().into()).expect("decodes")
    }

    fn fences() -> Fences {
        let mut builder = FencesBuilder::default();
        let keys: Vec<[u8; 4]> = (0..10u32).map(u32::to_be_bytes).collect();
        for (n, key) in keys.iter().enumerate() {
            builder.push(n.checked_sub(1).map(|before| &keys[before][..]), key, 100);
        }
        Fences::decode(&builder.finish(), 0, 1_000).expect("decodes")
    }

    /// 100 segments in turn, and one that is used in between: memory stays within its limit and the
    /// fences needed at the moment, and the used one stays. Held content stays usable.
    #[test]
    fn the_filter_cache_keeps_its_limit_and_its_used_filters() {
        let (one, piece) = (filter().memory() as u64, fences().memory() as u64);
        let metrics = Arc::new(Metrics::default());
        let all = FilterCache::new(20 * (one + piece), metrics.clone());
        let cells: Vec<Arc<Cell>> = (0..100).map(|_| all.cell()).collect();
        let held = cells[1].keep_fences(fences());
        let mut kept = 0;
        for (round, cell) in (0..30).flat_map(|n| cells.iter().map(move |c| (n, c))) {
            if cell.fences().is_none() {
                cell.keep_fences(fences());
            }
            if cell.filter().is_none() && all.admits_filter(one) {
                cell.keep_filter(filter());
            }
            if cells[0].filter().is_some() {
                kept += 1;
            } else if all.admits_filter(one) {
                cells[0].keep_filter(filter());
            }
            assert!(all.bytes() <= 20 * (one + piece) + piece, "round {round}: {}", all.bytes());
        }
        assert!(kept > 2_900, "what is used all the time was there {kept} times of 3,000");
        assert!(metrics.get(Metric::FilterCacheEvictions) > 100);
        assert_eq!(held.blocks(), 10);
        assert!(cells[0].filter().expect("kept").may_contain(hash_key(&7u32.to_be_bytes())));
        all.set_limit(0);
        (0..10).for_each(|_| all.sweep(1, 0));
        assert_eq!(all.bytes(), 0, "it can all be given back");
        drop(cells);
        assert!(all.ring.lock().cells.iter().all(|cell| cell.strong_count() == 0));
        (0..1_000).for_each(|_| drop(all.cell()));
        assert!(all.ring.lock().cells.len() <= 200, "places of segments that are gone go too");
    }

    /// Fences borrow beyond the share, but no more than the loan; a filter then finds no room, and
    /// evicts none of them. The lender is told the bytes held beyond the share.
    #[test]
    fn fences_borrow_memory_and_filters_do_not() {
        let (one, piece) = (filter().memory() as u64, fences().memory() as u64);
        let all = FilterCache::new(one + 2 * piece, Arc::default());
        all.set_loan(4 * piece);
        let cells: Vec<Arc<Cell>> = (0..20).map(|_| all.cell()).collect();
        assert!(all.admits_filter(one));
        cells[0].keep_filter(filter());
        for cell in &cells[..6] {
            cell.keep_fences(fences());
        }
        assert_eq!((all.bytes(), all.beyond()), (one + 6 * piece, 4 * piece));
        for _ in 0..10 * FILTERS_PER_SWEEP {
            assert!(!all.admits_filter(one));
        }
        assert!(cells[..6].iter().all(|cell| cell.fences().is_some()), "none went for it");
        for cell in &cells[6..] {
            cell.keep_fences(fences());
            assert!(all.beyond() <= 4 * piece, "{} of {piece}", all.beyond());
        }
        // The loan ends: excess memory is freed as others enter.
        all.set_loan(0);
        cells.iter().filter(|c| c.fences().is_none()).take(9).for_each(|c| {
            c.keep_fences(fences());
        });
        assert!(all.beyond() <= piece, "{}", all.beyond());
        // However much can be lent, at most three shares are borrowed.
        all.set_loan(u64::MAX);
        all.set_limit(2 * piece);
        let most = LOAN_SHARES * 2 * piece;
        for cell in &cells {
            cell.keep_fences(fences());
            assert!(all.beyond() <= most, "{} of {most}", all.beyond());
        }
        assert!(all.beyond() > 2 * piece, "{} borrowed", all.beyond());
    }

    /// If two threads both find enough to evict, the second finds nothing left: evicted bytes are
    /// not subtracted twice, and no other cell loses its place.
    #[test]
    fn two_threads_prune_the_filter_cache_at_once() {
        let all = FilterCache::new(u64::MAX, Arc::default());
        let kept: Vec<Arc<Cell>> = (0..10).map(|_| all.cell()).collect();
        kept.iter().for_each(|cell| drop(cell.keep_fences(fences())));
        for round in 0..200 {
            drop((0..2 * SWEEP).map(|_| all.cell()).collect::<Vec<_>>());
            assert_eq!(all.gone.load(Relaxed), 2 * SWEEP as u64);
            let (ring, begun) = (all.ring.lock(), AtomicU64::new(0));
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        begun.fetch_add(1, Relaxed);
                        all.prune();
                    });
                }
                // Both have usually looked before the first gets the ring.
                while begun.load(Relaxed) < 2 {
                    std::thread::yield_now();
                }
                (0..100).for_each(|_| std::thread::yield_now());
                drop(ring);
            });
            assert_eq!((all.gone.load(Relaxed), all.ring.lock().cells.len()), (0, 10), "{round}");
        }
        all.set_limit(0);
        (0..4).for_each(|_| all.sweep(1, 0));
        assert_eq!(all.bytes(), 0, "each is in the ring still");
    }
}
