//! Page redo: two passes over the log (E2, B6). The first collects where each page's life begins
//! (its last format) or ends (its last free); the second applies what is newer than the page on
//! storage. Records of a former life are skipped unread, so a bad image before a format is no
//! error.
//!
//! Idempotent: a page is changed only by records above its LSN. The second pass may run in parts,
//! several threads each applying the pages of one part.

use crate::frames::ExclusiveGuard;
use crate::{Access, Pages};
use evenkeel_base::{Error, Lsn, PageNo, Result};
use evenkeel_format::page::{self, HEADER_BYTES};
use evenkeel_format::record::{LeafChange, PageOp, RecordKind, page_ops};
use evenkeel_format::rows::{each_row, rows_page};
use evenkeel_format::space::{self, op};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Frames kept free while redo runs.
const ROOM: i64 = 16;

/// Applies what belongs to the owner of a page; implemented by `tree`.
pub trait RedoApply: Send + Sync {
    /// Applies a page op (from 32 on) to a payload. # Errors: it does not fit the page.
    fn apply(&self, op: u8, payload: &[u8], page: &mut [u8]) -> Result<()>;
    /// Applies the change of one leaf cell (ROW, REVERT, each of ROWS).
    /// # Errors: it does not fit the page.
    fn apply_row(&self, kind: RecordKind, change: &LeafChange<'_>, page: &mut [u8]) -> Result<()>;
}

/// What redo did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedoStats {
    /// Ops applied.
    pub applied: u64,
    /// Ops whose page had them already, or of a former life of their page.
    pub skipped: u64,
}

/// What the first pass finds: where the present life of pages begins.
#[derive(Debug, Default)]
pub struct PageLives {
    /// The last format or free of a page.
    pages: HashMap<PageNo, Life>,
    /// The last free of an extent, and so of all its pages.
    extents_freed: HashMap<u32, Lsn>,
    /// Pages whose content is not in the log (E3): a bad image of one is an error.
    unlogged: HashSet<u64>,
}

/// The last that the log says of a page.
#[derive(Clone, Copy, Debug)]
struct Life {
    at: Lsn,
    /// It was freed. Whoever held its latch then, such as the revert of a row of a table that is
    /// dropped, may have written a record for it after that: nobody needs it.
    is_over: bool,
}

impl PageLives {
    /// The last that the log says of a page; none if it says nothing.
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
    applied: AtomicU64,
    skipped: AtomicU64,
}

/// Pages touched by one record: latched, or `None` if the record does not count for the page.
type Touched<'a> = Vec<(PageNo, Option<ExclusiveGuard<'a>>)>;

impl<'a> PageRedo<'a> {
    /// A redo of `pages` that leaves ops from 32 on to `apply`.
    pub fn new(pages: &'a Pages, apply: &'a dyn RedoApply) -> PageRedo<'a> {
        PageRedo::after(pages, apply, Arc::default())
    }

    /// For the second pass: one that knows what the first pass found. Several may work side by
    /// side, each on its own part of the pages.
    pub fn after(pages: &'a Pages, apply: &'a dyn RedoApply, lives: Arc<PageLives>) -> Self {
        let (applied, skipped) = (AtomicU64::new(0), AtomicU64::new(0));
        PageRedo { pages, apply, lives, applied, skipped }
    }

    /// What the first pass has found, once it is over.
    pub fn into_lives(self) -> Arc<PageLives> {
        self.lives
    }

    /// First pass: notes formats and frees. Records come in order of LSN.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn scan(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        if kind != RecordKind::Page {
            return Ok(());
        }
        let g = self.pages.geometry;
        let freed = Life { at: lsn, is_over: true };
        let begun = Life { at: lsn, is_over: false };
        let shared = || Error::internal("a first pass beside a second");
        let lives = Arc::get_mut(&mut self.lives).ok_or_else(shared)?;
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
        self.apply_part(lsn, kind, body, 0, 1)
    }

    /// Second pass, only pages whose number modulo `parts` is `part`.
    ///
    /// # Errors
    /// As `apply`.
    pub fn apply_part(
        &self,
        lsn: Lsn,
        kind: RecordKind,
        body: &[u8],
        part: u64,
        parts: u64,
    ) -> Result<()> {
        let mut touched: Touched<'_> = Vec::new();
        match kind {
            RecordKind::Page => {
                for item in page_ops(body) {
                    let item = item?;
                    if item.page.0 % parts == part {
                        self.apply_op(lsn, &item, &mut touched)?;
                    }
                }
            }
            RecordKind::Rows => {
                let page = rows_page(body)?;
                if page.0 % parts == part {
                    self.touch(lsn, page, false, &mut touched)?;
                    if let Some((_, Some(guard))) = touched.last_mut() {
                        let payload = &mut guard.bytes_mut()[HEADER_BYTES..];
                        each_row(kind, body, &mut |change, _| {
                            self.apply.apply_row(kind, change, payload)
                        })
                        .map_err(|e| e.with("page", page).with("lsn", lsn))?;
                    }
                }
            }
            RecordKind::Row | RecordKind::Revert => {
                let change = LeafChange::decode(body)?;
                if change.page.0 % parts == part {
                    self.touch(lsn, change.page, false, &mut touched)?;
                    if let Some((_, Some(guard))) = touched.last_mut() {
                        let payload = &mut guard.bytes_mut()[HEADER_BYTES..];
                        self.apply
                            .apply_row(kind, &change, payload)
                            .map_err(|e| e.with("page", change.page).with("lsn", lsn))?;
                    }
                }
            }
            _ => {}
        }
        for (_, guard) in &mut touched {
            if let Some(guard) = guard {
                page::set_lsn(guard.bytes_mut(), lsn);
                guard.facts().version.store(lsn.0, Release);
            }
        }
        Ok(())
    }

    /// What was done so far.
    pub fn stats(&self) -> RedoStats {
        RedoStats { applied: self.applied.load(Relaxed), skipped: self.skipped.load(Relaxed) }
    }

    fn apply_op(&self, lsn: Lsn, item: &PageOp<'_>, touched: &mut Touched<'a>) -> Result<()> {
        let PageOp { page, op, payload } = *item;
        let at = match touched.iter().position(|(p, _)| *p == page) {
            Some(at) => at,
            None => {
                self.touch(lsn, page, op == op::FORMAT, touched)?;
                touched.len() - 1
            }
        };
        let Some(guard) = &mut touched[at].1 else { return Ok(()) };
        let result = if op < 32 {
            let result = self.pages.geometry.apply(op, payload, page, guard.bytes_mut());
            if op == op::FORMAT {
                guard.facts().fresh.store(true, Relaxed);
            }
            result
        } else {
            self.apply.apply(op, payload, &mut guard.bytes_mut()[HEADER_BYTES..])
        };
        result.map_err(|e| e.with("page", page).with("op", op).with("lsn", lsn))
    }

    fn counts(&self, lsn: Lsn, page: PageNo) -> Result<bool> {
        let Some((extent, _)) = self.pages.geometry.extent_of(page) else {
            return Err(Error::new(evenkeel_base::Code::PageBeyond).with("page", page));
        };
        let life = self.lives.of(page, extent);
        Ok(life.is_none_or(|life| !life.is_over && lsn >= life.at))
    }

    /// Latches the page of a record, if the record counts for it, and marks it dirty.
    fn touch(&self, lsn: Lsn, page: PageNo, format: bool, touched: &mut Touched<'a>) -> Result<()> {
        let mut guard = None;
        if self.counts(lsn, page)? {
            let from_nothing = format && !self.lives.unlogged.contains(&page.0);
            guard = Some(self.latch(page, from_nothing)?);
        }
        let newer = |g: &ExclusiveGuard<'_>| page::lsn(g.bytes()) < lsn;
        if let Some(g) = guard.take_if(|g| newer(g)) {
            self.pages.join_dirty(g.facts(), g.index(), lsn, page::tree(g.bytes()));
            self.applied.fetch_add(1, Relaxed);
            touched.push((page, Some(g)));
        } else {
            self.skipped.fetch_add(1, Relaxed);
            touched.push((page, None));
        }
        Ok(())
    }

    fn latch(&self, page: PageNo, format: bool) -> Result<ExclusiveGuard<'a>> {
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
            match pages.load(page, &mut 0, Access::Normal) {
                Ok(Some(guard)) => return Ok(guard),
                Ok(None) => {}
                Err(error) if format && is_bad_image(&error) => {
                    if let Some(guard) = self.empty(page)? {
                        return Ok(guard);
                    }
                }
                Err(error) => return Err(error),
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

/// True if the page's bytes are to blame, not the device.
fn is_bad_image(error: &Error) -> bool {
    use evenkeel_base::Code::*;
    matches!(error.code(), PageChecksum | PageIdentity | PageUnwritten | PageVersion | PageBeyond)
}
