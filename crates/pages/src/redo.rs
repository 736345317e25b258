//! Page redo: two passes over the log (E2, B6). The first finds where each page's life begins (its
//! last format) or ends (its last free); the second applies the changes newer than the page on
//! storage. Records of a former life are skipped unread. A page whose life begins in the log is
//! made from the log and not read, so a bad image before a format is no error. But after a clean
//! close, which has written every page, such a page is read all the same: if it is up to date it
//! stays clean.
//!
//! The second pass takes many records at a time and applies them page by page, in the order of
//! their positions on storage; the effect of a record on one page does not depend on others.
//!
//! Idempotent: a page is changed only by records above its LSN. Several threads may run the second
//! pass, each for its own pages.

pub(crate) mod touched;

use crate::pool::frames::ExclusiveGuard;
use crate::redo::touched::{REDO_BLOCK_PAGES, Touched};
use crate::{Access, Pages, hint};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Code, Error, Lsn, PageNo, Result};
use evenkeel_format::page::{self, HEADER_BYTES};
use evenkeel_format::record::{LeafChange, PageOp, RecordKind, page_ops};
use evenkeel_format::rows::{each_row, rows_page};
use evenkeel_format::space::{self, op};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Frames kept free while redo runs.
const ROOM: i64 = 16;
/// Pages read in at once, at most; also at most a sixteenth of the pool.
const READ_PAGES: usize = REDO_BLOCK_PAGES as usize;
/// Pages between two wanted ones, at most, that are read in with them.
const GAP_PAGES: u64 = 8;
/// Prefetch the memory of groups this far ahead, and of this many bytes of a record.
const GROUPS_AHEAD: usize = 3;
const BODY_LINES: usize = 4;
/// Threads that may redo pages concurrently: each finds room for the pages that it reads in.
pub const REDO_THREADS: usize = 4;

/// Applies the ops that belong to the owner of a page; implemented by `tree`.
pub trait RedoApply: Send + Sync {
    /// Applies a page op (from 32 on) to a payload. # Errors: it does not fit the page.
    fn apply(&self, op: u8, payload: &[u8], page: &mut [u8]) -> Result<()>;
    /// Applies the change of one leaf cell (ROW, REVERT, each of ROWS).
    /// # Errors: it does not fit the page.
    fn apply_row(&self, kind: RecordKind, change: &LeafChange<'_>, page: &mut [u8]) -> Result<()>;
}

/// The results of redo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedoStats {
    /// Ops applied.
    pub applied: u64,
    /// Ops that their page contained already, or of a former life of their page.
    pub skipped: u64,
}

/// The results of the first pass: where the present life of pages begins.
#[derive(Debug, Default)]
pub struct PageLives {
    /// The last format or free of a page.
    pages: FxHashMap<PageNo, Life>,
    /// The last free of an extent, and so of all its pages.
    extents_freed: FxHashMap<u32, Lsn>,
    /// Pages whose content is not in the log (E3): a bad image of one is an error.
    unlogged: FxHashSet<u64>,
    /// Pages that the log changes.
    touched: Touched,
}

/// The last event of a page's life in the log.
#[derive(Clone, Copy, Debug)]
struct Life {
    at: Lsn,
    /// It was freed. A thread that held its latch then, such as the rollback of a row of a dropped
    /// table, may have written a record for it afterwards: that record is not needed.
    is_over: bool,
}

impl PageLives {
    /// The last event of a page in the log; none if there is none.
    fn of(&self, page: PageNo, extent: u32) -> Option<Life> {
        let own = self.pages.get(&page).copied();
        let freed = self.extents_freed.get(&extent).map(|at| Life { at: *at, is_over: true });
        match (own, freed) {
            (Some(own), Some(freed)) => Some(if freed.at >= own.at { freed } else { own }),
            (own, freed) => own.or(freed),
        }
    }
}

/// Replays the log onto pages, between `Pages::open` and `Pages::attach_log`.
pub struct PageRedo<'a> {
    pages: &'a Pages,
    apply: &'a dyn RedoApply,
    lives: Arc<PageLives>,
    /// Below this position all pages contain their changes.
    from: Lsn,
    /// Pages that the log could make are read, too.
    reads_first: bool,
    /// The end of the log.
    end: Lsn,
    applied: AtomicU64,
    skipped: AtomicU64,
    /// Segments with pages that contained some changes of the log already.
    found: Mutex<BTreeSet<u32>>,
}

/// The effect of a record on one page.
#[derive(Clone, Copy)]
struct Change<'r> {
    page: PageNo,
    lsn: Lsn,
    what: What<'r>,
}

#[derive(Clone, Copy)]
enum What<'r> {
    /// An op of a PAGE record and its payload.
    Op(u8, &'r [u8]),
    /// A ROW or REVERT record.
    Row(RecordKind, &'r [u8]),
    /// A ROWS record.
    Rows(&'r [u8]),
}

/// Calls `f` with the effect of a record on each of its pages, in order.
fn each_change<'r>(
    kind: RecordKind,
    body: &'r [u8],
    mut f: impl FnMut(PageNo, What<'r>),
) -> Result<()> {
    match kind {
        RecordKind::Page => {
            for item in page_ops(body) {
                let PageOp { page, op, payload } = item?;
                f(page, What::Op(op, payload));
            }
        }
        RecordKind::Rows => f(rows_page(body)?, What::Rows(body)),
        RecordKind::Row | RecordKind::Revert => {
            f(LeafChange::page_of(body)?, What::Row(kind, body));
        }
        _ => {}
    }
    Ok(())
}

/// Calls `f` with each page that a record changes; several times for a page that is changed in
/// several places.
///
/// # Errors
/// `BadEncoding`.
pub fn each_page(kind: RecordKind, body: &[u8], mut f: impl FnMut(PageNo)) -> Result<()> {
    each_change(kind, body, |page, _| f(page))
}

/// The effects of records on pages, in log order.
#[derive(Default)]
pub struct Changes<'r> {
    of: Vec<Change<'r>>,
}

impl<'r> Changes<'r> {
    /// With memory for this many.
    pub fn with_capacity(count: usize) -> Changes<'r> {
        Changes { of: Vec::with_capacity(count) }
    }

    /// Adds the effects of a record on the `wanted` pages.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn add(
        &mut self,
        lsn: Lsn,
        kind: RecordKind,
        body: &'r [u8],
        wanted: impl Fn(PageNo) -> bool,
    ) -> Result<()> {
        each_change(kind, body, |page, what| {
            if wanted(page) {
                self.of.push(Change { page, lsn, what });
            }
        })
    }

    /// The changes page by page, each page's in log order. The log mostly has many changes of a
    /// page in a row, so only these runs are sorted.
    fn by_page(&self) -> Vec<Change<'r>> {
        let runs = self.of.chunk_by(|a, b| a.page == b.page);
        let mut runs: Vec<(PageNo, &[Change<'r>])> = runs.map(|run| (run[0].page, run)).collect();
        // A stable sort: the runs of a page stay in order.
        runs.sort_by_key(|(page, _)| *page);
        let mut changes = Vec::with_capacity(self.of.len());
        runs.iter().for_each(|(_, run)| changes.extend_from_slice(run));
        changes
    }
}

impl<'a> PageRedo<'a> {
    /// A redo of `pages` that leaves ops from 32 on to `apply`.
    pub fn new(pages: &'a Pages, apply: &'a dyn RedoApply) -> PageRedo<'a> {
        PageRedo::after(pages, apply, Arc::default())
    }

    /// For the second pass: knows the results of the first pass. Several may work concurrently,
    /// each on its own part of the pages.
    pub fn after(pages: &'a Pages, apply: &'a dyn RedoApply, lives: Arc<PageLives>) -> Self {
        let (applied, skipped) = (AtomicU64::new(0), AtomicU64::new(0));
        let end = Lsn::MAX;
        let (from, found) = (Lsn::ZERO, Mutex::default());
        PageRedo { pages, apply, lives, from, reads_first: false, end, applied, skipped, found }
    }

    /// For the first pass: records which pages the log changes from a position on, so that the
    /// second pass can read neighbours in together.
    #[must_use]
    pub fn from(self, from: Lsn) -> Self {
        let touched = Touched::new(self.pages.frames.count());
        let lives = Arc::new(PageLives { touched, ..PageLives::default() });
        PageRedo { from, lives, ..self }
    }

    /// Whether to read a page whose life begins in the log, and to make it only if it has no image.
    #[must_use]
    pub fn reading_first(self, reads_first: bool) -> Self {
        PageRedo { reads_first, ..self }
    }

    /// Sets the end of the log. A page is written when its changes are durable, so a newer page
    /// shows that the log has lost its last blocks, which the log alone cannot distinguish from its
    /// end (B1).
    #[must_use]
    pub fn ending_at(self, end: Lsn) -> Self {
        PageRedo { end, ..self }
    }

    /// The results of the first pass, once it has ended.
    pub fn into_lives(mut self) -> Arc<PageLives> {
        if let Some(lives) = Arc::get_mut(&mut self.lives) {
            lives.touched.finish();
        }
        self.lives
    }

    /// First pass: the pages recorded so far, for which the second pass will need frames.
    pub fn touched(&self) -> usize {
        self.lives.touched.len()
    }

    /// First pass: records formats and frees, and pages. Records come in order of LSN.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn scan(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        let g = self.pages.geometry;
        let shared = || Error::internal("a first pass beside a second");
        let lives = Arc::get_mut(&mut self.lives).ok_or_else(shared)?;
        if lsn >= self.from {
            each_page(kind, body, |page| lives.touched.insert(page))?;
        }
        if kind != RecordKind::Page {
            return Ok(());
        }
        let freed = Life { at: lsn, is_over: true };
        let begun = Life { at: lsn, is_over: false };
        for item in page_ops(body) {
            let PageOp { page, op, payload } = item?;
            match op {
                op::FORMAT => {
                    lives.pages.insert(page, begun);
                    lives.unlogged.remove(&page.0);
                }
                op::UNLOGGED => {
                    for number in space::decode_unlogged(payload)?.into_iter().flatten() {
                        lives.unlogged.insert(number);
                        let page = PageNo(number);
                        let life = g.extent_of(page).and_then(|(e, _)| lives.of(page, e));
                        if life.is_some_and(|life| life.is_over) {
                            lives.pages.insert(page, begun);
                        }
                    }
                }
                op::EXTENT => {
                    let (slot, state) = space::decode_extent(payload)?;
                    if state == space::ExtentState::Free as u8 {
                        lives.extents_freed.insert(g.extent_in_map(page, slot)?, lsn);
                    }
                }
                op::USED => {
                    let (slot, index, used) = space::decode_used(payload)?;
                    if !used {
                        let extent = g.extent_in_map(page, slot)?;
                        lives.pages.insert(g.page_at(extent, u32::from(index)), freed);
                    }
                }
                op::OWNER => {
                    let (index, owner) = space::decode_owner(payload)?;
                    if owner.0 == 0
                        && let Some((extent, _)) = g.extent_of(page)
                    {
                        lives.pages.insert(g.page_at(extent, u32::from(index)), freed);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Second pass: applies a record. Records come in order of LSN.
    ///
    /// # Errors
    /// A page that is damaged on storage, or a record that does not fit its page.
    pub fn apply(&self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        let mut changes = Changes::default();
        changes.add(lsn, kind, body, |_| true)?;
        self.apply_all(changes)
    }

    /// Second pass: applies the effects of consecutive records page by page: each page is latched
    /// once, and neighbours are read in together.
    ///
    /// # Errors
    /// As `apply`.
    pub fn apply_all(&self, changes: Changes<'_>) -> Result<()> {
        let changes = changes.by_page();
        let groups: Vec<&[Change<'_>]> = changes.chunk_by(|a, b| a.page == b.page).collect();
        let mut read_until = 0;
        for (at, group) in groups.iter().enumerate() {
            if let Some(ahead) = groups.get(at + GROUPS_AHEAD) {
                self.hint(ahead);
            }
            let Some(begun) = self.begin_of_life(group)? else {
                self.skipped.fetch_add(group.len() as u64, Relaxed);
                continue;
            };
            self.skipped.fetch_add(begun as u64, Relaxed);
            if at >= read_until {
                read_until = at + self.read_ahead(&groups[at..])?;
            }
            self.apply_group(&group[begun..])?;
            self.pages.rt.step();
        }
        Ok(())
    }

    /// Prefetches what a group needs.
    fn hint(&self, group: &[Change<'_>]) {
        if let Some(index) = self.pages.translation.get(group[0].page) {
            self.pages.frames.prefetch(index);
        }
        match group[0].what {
            What::Op(_, bytes) | What::Row(_, bytes) | What::Rows(bytes) => {
                hint::bytes(bytes, BODY_LINES);
            }
        }
    }

    /// Syncs the segments of pages that contained changes of the log already. A killed process may
    /// have written them without a sync. These changes make no page dirty, and the next checkpoint
    /// releases their log.
    ///
    /// # Errors
    /// Those of the environment.
    pub fn sync_found(&self) -> Result<()> {
        let found = std::mem::take(&mut *self.found.lock());
        found.into_iter().try_for_each(|segment| self.pages.files.sync(segment))
    }

    /// The results so far.
    pub fn stats(&self) -> RedoStats {
        RedoStats { applied: self.applied.load(Relaxed), skipped: self.skipped.load(Relaxed) }
    }

    /// The first change of a page that belongs to its present life; none if it has none.
    fn begin_of_life(&self, group: &[Change<'_>]) -> Result<Option<usize>> {
        let page = group[0].page;
        let Some((extent, _)) = self.pages.geometry.extent_of(page) else {
            return Err(Error::new(Code::PageBeyond).with("page", page));
        };
        Ok(match self.lives.of(page, extent) {
            None => Some(0),
            Some(life) if life.is_over => None,
            Some(life) => Some(group.partition_point(|change| change.lsn < life.at))
                .filter(|at| *at < group.len()),
        })
    }

    /// True if a page can be made from its changes alone, without its image on storage.
    fn is_from_nothing(&self, first: &Change<'_>) -> bool {
        matches!(first.what, What::Op(op::FORMAT, _))
            && !self.lives.unlogged.contains(&first.page.0)
    }

    /// Reads in the missing neighbouring pages of the first groups, and those next to them that the
    /// log changes anywhere; returns the number of groups examined.
    fn read_ahead(&self, groups: &[&[Change<'_>]]) -> Result<usize> {
        let first = groups[0][0].page;
        if self.pages.translation.get(first).is_some() {
            return Ok(1);
        }
        if self.reads_block(first)? {
            return Ok(1);
        }
        let most = self.read_pages_max();
        let mut count = 0;
        for group in groups.iter().take(most) {
            let page = group[0].page;
            let is_next = page.0 == first.0 + count as u64
                && (count == 0 || !page.0.is_multiple_of(self.pages.geometry.segment_pages()));
            if !is_next || self.pages.translation.get(page).is_some() {
                break;
            }
            match self.begin_of_life(group)? {
                Some(at) if self.reads_first || !self.is_from_nothing(&group[at]) => count += 1,
                _ => break,
            }
        }
        if count > 1 {
            self.read_in(first, count)?;
        }
        Ok(count.max(1))
    }

    fn read_pages_max(&self) -> usize {
        READ_PAGES.min(self.pages.frames.count() / 16).max(1)
    }

    /// Reads in the pages of a page's block that the log changes, if these are known, and the small
    /// gaps between them, but not pages that the log makes. True if the page itself was among them.
    fn reads_block(&self, page: PageNo) -> Result<bool> {
        let pages = self.pages;
        let is_wanted = |page: PageNo| {
            let Some((extent, _)) = pages.geometry.extent_of(page) else { return false };
            let is_read = self.reads_first || self.lives.of(page, extent).is_none();
            is_read && pages.translation.get(page).is_none()
        };
        if !is_wanted(page) {
            return Ok(false);
        }
        let most = self.read_pages_max() as u64;
        let mut has_page = false;
        let mut run: Option<(PageNo, PageNo)> = None;
        let mut runs = Vec::new();
        for next in self.lives.touched.beside(page).filter(|next| is_wanted(*next)) {
            has_page |= next == page;
            match &mut run {
                Some((first, last))
                    if next.0 - last.0 <= GAP_PAGES
                        && next.0 - first.0 < most
                        && (last.0 + 1..next.0).all(|gap| is_wanted(PageNo(gap))) =>
                {
                    *last = next;
                }
                _ => runs.extend(run.replace((next, next))),
            }
        }
        runs.extend(run);
        if has_page {
            for (first, last) in runs {
                self.read_in(first, (last.0 - first.0 + 1) as usize)?;
            }
        }
        Ok(has_page)
    }

    /// Reads neighbours in, if they are missing and verify.
    fn read_in(&self, first: PageNo, count: usize) -> Result<()> {
        self.pages.make_room(ROOM + (REDO_THREADS * count) as i64)?;
        // The user of a page that was not read in reports the reason.
        if let Err(error) = self.pages.load_run(first, count) {
            log::debug!("pages {first} to {}: not read ahead: {error}", first.0 + count as u64);
        }
        Ok(())
    }

    /// Applies the changes of one page that are newer than it.
    fn apply_group(&self, group: &[Change<'_>]) -> Result<()> {
        let page = group[0].page;
        let mut guard = self.latch(page, self.is_from_nothing(&group[0]))?;
        let has = page::lsn(guard.bytes());
        if has >= self.end {
            return Err(Error::new(Code::LogDamaged)
                .with("why", "a page is newer than the end of the log")
                .with("page", page)
                .with("lsn", has)
                .with("end", self.end));
        }
        let newer = group.partition_point(|change| change.lsn <= has);
        self.skipped.fetch_add(newer as u64, Relaxed);
        if newer > 0 {
            // Also if more changes follow: the page becomes dirty at the first change that it
            // lacks.
            self.found.lock().insert(self.pages.files.place(page).0);
        }
        let group = &group[newer..];
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return Ok(()) };
        for change in group {
            self.apply_change(change, &mut guard)
                .map_err(|e| e.with("page", page).with("lsn", change.lsn))?;
        }
        page::set_lsn(guard.bytes_mut(), last.lsn);
        let facts = guard.facts();
        facts.version.store(last.lsn.0, Release);
        self.pages.join_dirty(facts, guard.index(), first.lsn, page::tree(guard.bytes()));
        self.applied.fetch_add(group.len() as u64, Relaxed);
        Ok(())
    }

    fn apply_change(&self, change: &Change<'_>, guard: &mut ExclusiveGuard<'_>) -> Result<()> {
        match change.what {
            What::Op(op, payload) if op < 32 => {
                let page = change.page;
                let applied = self.pages.geometry.apply(op, payload, page, guard.bytes_mut());
                if op == op::FORMAT {
                    guard.facts().fresh.store(true, Relaxed);
                }
                applied.map_err(|e| e.with("op", op))
            }
            What::Op(op, payload) => {
                let payload_of_page = &mut guard.bytes_mut()[HEADER_BYTES..];
                self.apply.apply(op, payload, payload_of_page).map_err(|e| e.with("op", op))
            }
            What::Rows(body) => {
                let payload = &mut guard.bytes_mut()[HEADER_BYTES..];
                each_row(RecordKind::Rows, body, &mut |change, _| {
                    self.apply.apply_row(RecordKind::Rows, change, payload)
                })
            }
            What::Row(kind, body) => {
                let payload = &mut guard.bytes_mut()[HEADER_BYTES..];
                self.apply.apply_row(kind, &LeafChange::decode(body)?, payload)
            }
        }
    }

    fn latch(&self, page: PageNo, from_nothing: bool) -> Result<ExclusiveGuard<'a>> {
        let pages = self.pages;
        loop {
            if let Some(index) = pages.translation.get(page) {
                let guard = pages.frames.exclusive(index);
                if guard.facts().holds(page) {
                    guard.facts().touch();
                    return Ok(guard);
                }
                continue;
            }
            pages.make_room(ROOM)?;
            let found = if from_nothing && !self.reads_first {
                self.empty(page)?
            } else {
                match pages.load(page, &mut 0, Access::Normal) {
                    Err(error) if from_nothing && is_bad_image(&error) => self.empty(page)?,
                    read => read?,
                }
            };
            if let Some(guard) = found {
                return Ok(guard);
            }
        }
    }

    /// A zeroed frame for a page that is about to be formatted.
    fn empty(&self, page: PageNo) -> Result<Option<ExclusiveGuard<'a>>> {
        let pages = self.pages;
        pages.take_credits(1)?;
        let mut guard = pages.take_frame()?;
        guard.set_page(Some(page));
        if pages.translation.install(page, guard.index()).is_err() {
            guard.set_page(None);
            pages.release_frame(guard);
            return Ok(None);
        }
        guard.bytes_mut().fill(0);
        Ok(Some(guard))
    }
}

/// True if the page's bytes are at fault, not the device.
fn is_bad_image(error: &Error) -> bool {
    use evenkeel_base::Code::*;
    matches!(error.code(), PageChecksum | PageIdentity | PageUnwritten | PageBeyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives the same order as a stable sort of each change, however the log mixes the pages.
    #[test]
    fn changes_by_page_are_in_log_order() {
        let mut random = evenkeel_io::Rng::new(1);
        let mut below = |n: u64| random.below(n);
        for round in 0..200 {
            let (mut changes, mut page) = (Changes::with_capacity(round), PageNo(0));
            for lsn in 1..=round as u64 {
                if below(4) == 0 {
                    page = PageNo(below(1 + round as u64 / 4));
                }
                changes.of.push(Change { page, lsn: Lsn(lsn), what: What::Op(1, &[]) });
            }
            let places = |of: &[Change<'_>]| -> Vec<(PageNo, Lsn)> {
                of.iter().map(|change| (change.page, change.lsn)).collect()
            };
            let mut expected = places(&changes.of);
            expected.sort_by_key(|(page, _)| *page);
            assert_eq!(places(&changes.by_page()), expected, "round {round}");
        }
    }
}
