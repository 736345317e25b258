//! `Pages`: the page space with its pool, and the guard for reading.

use crate::flush::cleaner::Cleaner;
use crate::flush::dirty::Dirty;
use crate::flush::doublewrite::Doublewrite;
use crate::pool::backing::Backing;
use crate::pool::frames::{Frames, SharedGuard, check_pool};
use crate::pool::free_list::FreeList;
use crate::pool::page_table::PageTable;
use crate::pool::resize::Resizing;
use crate::pool::scratch::PageScratch;
use crate::space::PageSpace;
use crate::space::files::{DIRECTORY, Files};
use evenkeel_base::{Error, Lsn, PageNo, Result, TreeId, sync::Mutex};
use evenkeel_format::page::{self, HEADER_BYTES, PageHeader};
use evenkeel_format::space::Geometry;
use evenkeel_io::{AlignedBuf, Event, Runtime};
use evenkeel_log::Log;
use evenkeel_sched::{GhostCache, Scheduler};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, OnceLock};

/// Pages waiting to be prefetched, at most; also at most an eighth of the pool.
const PREFETCH_MAX: usize = 512;
/// Pages read at once by a prefetch, at most; also at most a sixteenth of the pool.
const PREFETCH_RUN: usize = 32;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// This thread reads this many bytes of pages, or has them prefetched.
pub(crate) fn note_asked(bytes: usize) {
    ASKED.set(ASKED.get().wrapping_add(bytes as u64));
}

/// How to open a page space.
#[derive(Clone, Copy, Debug)]
pub struct PagesOptions {
    /// Bytes of a page: 4096, 8192 or 16384, fixed at creation.
    pub page_size: usize,
    /// Memory for frames.
    pub pool_bytes: usize,
    /// Protects pages against torn writes by writing them twice; off if the device writes a page
    /// atomically.
    pub doublewrite: bool,
    /// Limit of the log; it determines how finely the age of dirty pages is tracked.
    pub log_bytes: u64,
}

/// How a page is going to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Likely to be used again.
    Normal,
    /// By a scan or a build: its frame is the next to be reused.
    UseOnce,
}

/// The page space.
pub struct Pages {
    pub(crate) rt: Arc<Runtime>,
    pub(crate) sched: Arc<Scheduler>,
    pub(crate) geometry: Geometry,
    pub(crate) frames: Frames,
    pub(crate) translation: PageTable,
    pub(crate) free_list: FreeList,
    pub(crate) scratch: PageScratch,
    pub(crate) backing: Backing,
    pub(crate) resizing: Resizing,
    pub(crate) ghosts: GhostCache,
    pub(crate) files: Files,
    pub(crate) space: PageSpace,
    pub(crate) dirty: Dirty,
    pub(crate) doublewrite: Doublewrite,
    pub(crate) cleaner: Cleaner,
    pub(crate) clean_event: Arc<Event>,
    log: OnceLock<Arc<Log>>,
    pub(crate) space_loaded: OnceLock<()>,
    prefetch: Mutex<VecDeque<PageNo>>,
    prefetch_event: Arc<Event>,
}

impl Pages {
    fn new(sched: Arc<Scheduler>, options: PagesOptions) -> Result<Pages> {
        let rt = sched.runtime().clone();
        let geometry = Geometry::new(options.page_size)?;
        let count = options.pool_bytes / options.page_size;
        check_pool(options.pool_bytes, options.page_size)?;
        let free_list = FreeList::new(count);
        let freed = free_list.freed.clone();
        rt.health.on_failure(move || freed.notify());
        let pages = Pages {
            frames: Frames::new(rt.clone(), count, options.page_size),
            translation: PageTable::new(geometry, count),
            free_list,
            scratch: PageScratch::default(),
            backing: Backing::new(count, options.page_size),
            resizing: Resizing::default(),
            ghosts: GhostCache::default(),
            files: Files::new(rt.clone(), geometry),
            space: PageSpace::new(geometry),
            dirty: Dirty::new(options.log_bytes),
            doublewrite: Doublewrite::new(rt.clone(), geometry, options.doublewrite),
            cleaner: Cleaner::default(),
            clean_event: Arc::new(Event::new()),
            log: OnceLock::new(),
            space_loaded: OnceLock::new(),
            prefetch: Mutex::new(VecDeque::new()),
            prefetch_event: Arc::new(Event::new()),
            geometry,
            rt,
            sched,
        };
        pages.note_frames();
        Ok(pages)
    }

    /// Makes an empty page space (durable when this returns). `attach_log` comes next.
    ///
    /// # Errors
    /// `BadPageSize`, `PoolTooSmall`, and those of file creation.
    pub fn create(sched: Arc<Scheduler>, options: PagesOptions) -> Result<Arc<Pages>> {
        let pages = Pages::new(sched, options)?;
        pages.rt.env.create_dir(DIRECTORY)?;
        pages.doublewrite.create()?;
        pages.create_segment(0)?;
        pages.rt.env.sync_dir("")?;
        Ok(Arc::new(pages))
    }

    /// Opens a page space: restores torn pages from the doublewrite file first and syncs them
    /// (B6), considering only copies at or after `redo_from`, where log replay begins: older copies
    /// are stale. Page redo and then `attach_log` come next.
    ///
    /// # Errors
    /// `BadPageSize`, `PoolTooSmall`, `FileMissing` and those of reading and writing files.
    pub fn open(
        sched: Arc<Scheduler>,
        options: PagesOptions,
        redo_from: Lsn,
    ) -> Result<Arc<Pages>> {
        let pages = Pages::new(sched, options)?;
        pages.open_segments()?;
        pages.doublewrite.restore(&pages.files, redo_from)?;
        Ok(Arc::new(pages))
    }

    /// Connects the log after page redo: reads the space map and opens the space for changes.
    ///
    /// # Errors
    /// `SpaceDamaged` and those of reading pages.
    pub fn attach_log(&self, log: Arc<Log>) -> Result<()> {
        if self.log.set(log).is_err() {
            return Err(Error::internal("the log is attached already"));
        }
        self.load_space()
    }

    /// The log, once it is attached.
    pub(crate) fn log(&self) -> Result<&Arc<Log>> {
        self.log.get().ok_or_else(|| Error::internal("pages have no log yet"))
    }

    /// The log, if it is attached.
    pub(crate) fn log_if_attached(&self) -> Option<&Arc<Log>> {
        self.log.get()
    }

    /// Gives the payload of every tree page that is read from now on to this check, which refuses
    /// what a newer version wrote (`evenkeel_format::node::check_page`).
    pub fn check_payloads_with(&self, check: fn(&[u8]) -> Result<()>) {
        self.files.check_payloads_with(check);
    }

    /// Latches a page for reading, reading it in if need be.
    ///
    /// # Errors
    /// `PageChecksum`, `PageIdentity`, `PageUnwritten`, `PageVersion`, `PageBeyond` (each with
    /// file, offset and page), `ReadFailed`. A reader that got the number from a page it no longer
    /// holds validates that page's version before it believes in damage: the page may be freed.
    pub fn read(&self, page: PageNo, access: Access) -> Result<PageRead<'_>> {
        crate::pool::visits::count();
        let mut credits = 0;
        loop {
            if let Some(index) = self.translation.get(page) {
                let guard = self.frames.shared(index);
                if guard.facts().holds(page) {
                    if access == Access::Normal {
                        guard.facts().touch();
                    }
                    return Ok(PageRead { guard });
                }
                continue;
            }
            if access == Access::UseOnce && self.read_queued(page) {
                continue;
            }
            if let Some(guard) = self.load(page, &mut credits, access)? {
                return Ok(PageRead { guard: guard.downgrade() });
            }
        }
    }

    /// A scan that has caught up with its prefetch reads the run itself. False if the page was not
    /// requested, or cannot be read in this way.
    fn read_queued(&self, page: PageNo) -> bool {
        let run = {
            let mut queue = self.prefetch.lock();
            let at = queue.iter().position(|p| *p == page);
            at.map(|at| self.take_run(&mut queue, at))
        };
        run.is_some_and(|(first, count)| self.load_run(first, count).is_ok())
    }

    /// Takes neighbouring pages of one segment from a position of the queue on, as many as one read
    /// should bring.
    fn take_run(&self, queue: &mut VecDeque<PageNo>, at: usize) -> (PageNo, usize) {
        let limit = PREFETCH_RUN.min(self.frames.count() / 16).max(1);
        let first = queue[at];
        let mut count = 1;
        while count < limit
            && !(first.0 + count as u64).is_multiple_of(self.geometry.segment_pages())
            && queue.get(at + count) == Some(&PageNo(first.0 + count as u64))
        {
            count += 1;
        }
        queue.drain(at..at + count);
        (first, count)
    }

    /// True if the page of `token` is unchanged since (its version is the same) and no thread is
    /// changing it now. Takes no latch.
    pub fn is_current(&self, token: &PageToken) -> bool {
        let facts = self.frames.facts(token.frame);
        if facts.holds(token.page) {
            return facts.version.load(Acquire) == token.version && !facts.is_write_latched();
        }
        // It may be in another frame, unchanged.
        self.read(token.page, Access::Normal).is_ok_and(|p| p.version() == token.version)
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> usize {
        self.geometry.page_size()
    }

    /// Bytes of a page that belong to its owner.
    pub fn payload_size(&self) -> usize {
        self.geometry.page_size() - HEADER_BYTES
    }

    /// Dirty pages of a tree, from a counter.
    pub fn dirty_pages_of(&self, tree: TreeId) -> u64 {
        self.dirty.of_tree(tree)
    }

    /// Dirty pages, from a counter.
    pub fn dirty_pages(&self) -> u64 {
        self.dirty.total()
    }

    /// Lower bound of the changes that pages on storage lack, a position where a record begins;
    /// `None`: they lack none. A checkpointer reads the log end first (B3).
    pub fn oldest_dirty_lsn(&self) -> Option<Lsn> {
        self.dirty.oldest()
    }

    /// Bytes of pages that this thread has read, or had prefetched, since its last call. Background
    /// work reports them to the governor afterwards, because it cannot know before which pages are
    /// in memory.
    pub fn take_asked_bytes(&self) -> u64 {
        ASKED.take()
    }

    /// The present result of `take_asked_bytes`, without clearing it.
    #[inline]
    pub fn asked_bytes(&self) -> u64 {
        ASKED.get()
    }

    /// True if the page is in memory, or being read in, now.
    pub fn is_cached(&self, page: PageNo) -> bool {
        self.translation.get(page).is_some()
    }

    /// Reads several wanted pages in at once, neighbours by one read. Pages that cannot be read,
    /// and pages without missing neighbours, are left to their users. The caller holds no latch.
    pub fn read_together(&self, pages: &[PageNo]) {
        let follows = |a: &PageNo, b: &PageNo| {
            a.0 + 1 == b.0 && !b.0.is_multiple_of(self.geometry.segment_pages())
        };
        for run in pages.chunk_by(follows) {
            let is_missing = |page: &PageNo| !self.is_cached(*page);
            let (Some(from), Some(to)) =
                (run.iter().position(is_missing), run.iter().rposition(is_missing))
            else {
                continue;
            };
            let run = &run[from..=to];
            if run.len() < 2 {
                continue;
            }
            run.iter().filter(|page| is_missing(page)).for_each(|page| self.ghosts.missed(page.0));
            note_asked(run.len() * self.page_size());
            let read = self
                .take_credits(run.len())
                .and_then(|()| self.load_run_as(Access::Normal, run[0], run.len()));
            if let Err(error) = read {
                log::debug!("{} pages from {}: not read together: {error}", run.len(), run[0]);
            }
        }
    }

    /// Requests pages to be read in ahead of use; a full queue drops the hint.
    pub fn prefetch(&self, pages: &[PageNo]) {
        let limit = PREFETCH_MAX.min(self.frames.count() / 8);
        let mut queue = self.prefetch.lock();
        let before = queue.len();
        for page in pages {
            if queue.len() < limit && self.translation.get(*page).is_none() {
                queue.push_back(*page);
            }
        }
        let grown = queue.len() - before;
        drop(queue);
        note_asked(grown * self.page_size());
        if grown > 0 {
            self.prefetch_event.notify();
        }
    }

    /// Reads in one run of neighbouring requested pages.
    ///
    /// # Errors
    /// None: an unreadable page is left to its users.
    pub fn prefetch_beat(&self) -> Result<evenkeel_base::Beat> {
        let (first, count) = {
            let mut queue = self.prefetch.lock();
            if queue.is_empty() {
                return Ok(evenkeel_base::Beat::Idle);
            }
            self.take_run(&mut queue, 0)
        };
        if let Err(error) = self.load_run(first, count) {
            log::debug!("pages {first} to {}: not read ahead: {error}", first.0 + count as u64);
        }
        Ok(evenkeel_base::Beat::More)
    }

    /// Wakes the threads that drive `prefetch_beat`.
    pub fn prefetch_event(&self) -> Arc<Event> {
        self.prefetch_event.clone()
    }

    /// Reads a page's image from storage, bypassing the pool, and verifies it. A page with
    /// unwritten changes is verified in memory only: `None`.
    ///
    /// # Errors
    /// As `read`.
    pub fn check_page(&self, page: PageNo) -> Result<Option<PageHeader>> {
        if self.is_being_changed(page) {
            return Ok(None);
        }
        let mut image = AlignedBuf::new(self.page_size());
        match self.files.read(page, &mut image) {
            Ok(seen) => Ok(Some(*seen.header())),
            // A write may have begun since; then the image was read in the middle of it.
            Err(_) if self.is_being_changed(page) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_being_changed(&self, page: PageNo) -> bool {
        let Some(index) = self.translation.get(page) else { return false };
        let guard = self.frames.shared(index);
        let facts = guard.facts();
        let changed = facts.dirty.load(Acquire) != 0 || facts.writing.load(Acquire);
        facts.holds(page) && changed
    }
}

/// A page latched for reading; derefs to the payload.
pub struct PageRead<'a> {
    pub(crate) guard: SharedGuard<'a>,
}

/// A page's version, by which a later change is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageToken {
    page: PageNo,
    frame: u32,
    version: u64,
}

impl PageToken {
    /// The page.
    pub fn page_no(&self) -> PageNo {
        self.page
    }
}

impl PageRead<'_> {
    /// Its number.
    pub fn page_no(&self) -> PageNo {
        page::page_no(self.guard.bytes())
    }
    /// LSN of the last record applied to it.
    pub fn lsn(&self) -> Lsn {
        page::lsn(self.guard.bytes())
    }
    /// The tree that owns it.
    pub fn tree(&self) -> TreeId {
        page::tree(self.guard.bytes())
    }
    /// Changes with every change of the page and never goes back, also when the page leaves the
    /// pool and returns.
    pub fn version(&self) -> u64 {
        self.guard.facts().version.load(Acquire)
    }
    /// The argument of `Pages::is_current`.
    pub fn token(&self) -> PageToken {
        PageToken { page: self.page_no(), frame: self.guard.index(), version: self.version() }
    }
}

impl Deref for PageRead<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.guard.bytes()[HEADER_BYTES..]
    }
}
