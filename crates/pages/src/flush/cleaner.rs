//! The page cleaner: writes dirty pages, oldest bucket first and in order of page number, from
//! copied images, at the rate of [`pacing`]. Cold pages that the clock met come
//! first, but leave half of a batch to old ones that are due.
//!
//! Invariants: a page is written only when its last record is durable, and in place only when its
//! doublewrite copy is durable. At most one write per page is under way (`writing`). A page leaves
//! its bucket only when the write in place is synced. Workers draw from one quota, and no worker
//! writes required pages while another one does, so their total follows the law whatever their
//! number. A failed write latches (the pages stay in memory, never evicted). A full disk does not
//! latch: the pages are dirty again as before.

use crate::Pages;
use crate::flush::dirty::{Draining, Surroundings};
use crate::flush::doublewrite::BATCH_BYTES;
use crate::flush::idle_flush::REST_PARTS;
use crate::flush::pacer::Pacer;
use crate::flush::quota::{self, Quota};
use crate::pool::free_list::BEAT_COLD;
use evenkeel_base::journal::Law;
use evenkeel_base::{Beat, Cause, Lsn, PageNo, Result, TreeId, metrics::Metric, sync::Mutex};
use evenkeel_format::page;
use evenkeel_io::{AlignedBuf, Event, IO_ALIGN};
use evenkeel_sched::Class;
use evenkeel_sched::laws::pacing::{self, TICK_NS};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

/// Threads that drive `Pages::clean_beat`: while one waits for the device, the other continues.
pub const CLEANERS: usize = 2;
/// A required page that is latched is tried again after this time.
const RETRY_NS: u64 = 1_000_000;
/// A redo thread that finds nothing to write looks again after this time.
const ROOM_AGAIN: Duration = Duration::from_millis(1);

/// The buffers of a cleaner; the number names its doublewrite region.
pub(crate) struct Workspace {
    region: usize,
    head: AlignedBuf,
    images: AlignedBuf,
}

/// Whether a batch is needed, or may wait for a device that others keep busy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Required,
    Surplus,
}

/// Held until it is dropped.
struct Turn<'a>(&'a AtomicBool);

impl<'a> Turn<'a> {
    fn take(turn: &'a AtomicBool) -> Option<Turn<'a>> {
        (!turn.swap(true, AcqRel)).then_some(Turn(turn))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

#[derive(Default)]
pub(crate) struct Cleaner {
    pacer: Mutex<Pacer>,
    /// Pages that may be flushed until the next tick.
    quota: Quota,
    /// The pages of the last tick are surplus: only the idle flush asks for them, or the rate has
    /// not fallen yet.
    is_surplus: AtomicBool,
    /// Held by the worker that writes such pages; the other one stands by.
    turn: AtomicBool,
    /// No surplus page is written before this time: the pause that the governor demands.
    rests_until_ns: AtomicU64,
    /// Pages are written also while no page changes.
    rests: AtomicBool,
    /// Pages that are being written; they still count for their buckets.
    in_flight: AtomicU64,
    /// The bucket being drained.
    draining: Mutex<Draining>,
    /// Pages that were latched when a full disk refused them: to become dirty again.
    unwritten: Mutex<Vec<Item>>,
    pub(crate) spare: Mutex<SpareImages>,
}

#[derive(Default)]
pub(crate) struct SpareImages {
    made: usize,
    pub(crate) idle: Vec<Workspace>,
}

/// A page in a batch.
struct Item {
    frame: u32,
    page: PageNo,
    bucket: u64,
    tree: TreeId,
    fresh: bool,
}

impl Cleaner {
    /// The buffers for a batch; `None` while `regions` of them are in use.
    pub(crate) fn workspace(&self, page_bytes: usize, regions: usize) -> Option<Workspace> {
        let mut spare = self.spare.lock();
        if let Some(space) = spare.idle.pop() {
            return Some(space);
        }
        if spare.made >= regions {
            return None;
        }
        let region = spare.made;
        spare.made += 1;
        let images = AlignedBuf::new(BATCH_BYTES.next_multiple_of(page_bytes));
        Some(Workspace { region, head: AlignedBuf::new(IO_ALIGN), images })
    }
}

impl Pages {
    /// One step of the page cleaner: at most 1 MiB of pages. Waits inside for the next tick while
    /// the law asks for more than this tick allows; Idle when nothing is requested.
    ///
    /// # Errors
    /// A failed write or sync (writes have stopped then), once.
    pub fn clean_beat(&self) -> Result<Beat> {
        self.rt.step();
        let seen = self.clean_event.now();
        if self.rt.health.is_failed() {
            return Ok(Beat::Idle);
        }
        self.put_back();
        let batch = BATCH_BYTES / self.page_size();
        let (rate, mut next_tick_ns) = self.tick();
        let now = self.rt.env.now_ns();
        let in_flight = self.cleaner.in_flight.load(Relaxed);
        let hold_up = self.required_pages();
        let wanted = hold_up > 0 || self.free_list.queued() > 0;
        let turn = match self.cleaner.is_surplus.load(Relaxed) && !wanted {
            true => Some(Turn::take(&self.cleaner.turn)),
            false => None,
        };
        let (rests_ns, cause) = match &turn {
            // The other worker is writing. This one stands by for required pages.
            Some(None) => (next_tick_ns, Cause::Idle),
            Some(Some(_)) => (self.rests_for(now), Cause::Governor),
            None => (0, Cause::Idle),
        };
        if rate > 0 && rests_ns > 0 {
            let time = Some(Duration::from_nanos(rests_ns.min(next_tick_ns)));
            self.rt.wait(&self.clean_event, seen, time, cause);
            return Ok(Beat::More);
        }
        let is_rest = turn.is_some() && self.quiet_at().is_some();
        let batch = if is_rest { self.surplus_batch(now) } else { batch };
        let take_cold = |most| self.free_list.take_cold(most);
        let quota::CleanerBeat { cold, old, required } =
            quota::beat(&self.cleaner.quota, now, batch as u64, hold_up, in_flight, take_cold);
        if cold.is_empty() && old.pages == 0 {
            if rate == 0 {
                return Ok(Beat::Idle);
            }
            let more_in = self.cleaner.quota.next_in(batch as u64, now);
            let time = Duration::from_nanos(more_in.unwrap_or(next_tick_ns).min(next_tick_ns));
            self.rt.wait(&self.clean_event, seen, Some(time), Cause::Idle);
            return Ok(Beat::More);
        }
        self.rt.metrics.add(Metric::FlushRequested, cold.len() as u64);
        self.rt.metrics.add(Metric::FlushReasonFreeFrames, cold.len() as u64);
        self.note_required(old.beyond);
        if required > 0 {
            next_tick_ns = next_tick_ns.min(RETRY_NS);
        }
        let need = match turn.is_some() && cold.is_empty() && required == 0 {
            true => Need::Surplus,
            false => Need::Required,
        };
        match self.flush_beat(cold, old.pages as usize, need) {
            Ok(0) => {
                // All of the pages are latched or being written by another worker.
                let time = Some(Duration::from_nanos(next_tick_ns));
                self.rt.wait(&self.clean_event, seen, time, Cause::Idle);
                Ok(Beat::More)
            }
            Ok(_) => Ok(Beat::More),
            Err(error) if error.code().is_shortage() => {
                let seen = self.clean_event.now();
                let time = Some(Duration::from_nanos(TICK_NS));
                self.rt.wait(&self.clean_event, seen, time, Cause::Idle);
                Ok(Beat::More)
            }
            Err(error) => Err(error),
        }
    }

    /// `flush_cold`. For surplus pages the governor is told afterwards, when the duration is known,
    /// and says when the next ones may follow.
    fn flush_beat(&self, cold: Vec<u32>, count: usize, need: Need) -> Result<usize> {
        let begun_ns = self.rt.env.now_ns();
        let written = self.flush_cold(cold, count, need);
        if need == Need::Surplus {
            let bytes = written.as_ref().map_or(0, |pages| pages * self.page_size());
            let now = self.rt.env.now_ns();
            let took_ns = now.saturating_sub(begun_ns);
            let rests_ns = self.sched.note_pages(Class::Checkpoint, bytes as u64, took_ns);
            self.cleaner.rests_until_ns.store(now + rests_ns, Relaxed);
        }
        written
    }

    /// Nanoseconds until the governor lets surplus pages continue.
    fn rests_for(&self, now_ns: u64) -> u64 {
        self.cleaner.rests_until_ns.load(Relaxed).saturating_sub(now_ns)
    }

    /// Pages of a surplus batch: so few that readers hardly wait for the device because of them.
    fn surplus_batch(&self, now_ns: u64) -> usize {
        let governor = &self.sched.governor;
        // Nothing, so that it looks at what users wait for.
        governor.grant(Class::Checkpoint, 0, false, now_ns);
        let at_once = governor.at_once(Class::Checkpoint, false).min(BATCH_BYTES as u64);
        (at_once as usize / self.page_size()).max(1)
    }

    /// Pages that hold up a due checkpoint: operations wait for log space, or soon will. They are
    /// written batch after batch at the speed of the device, whatever the law says (G2), because
    /// the law is evaluated ten times a second and a small log fills within one evaluation.
    pub(crate) fn required_pages(&self) -> u64 {
        let Some(log) = self.log_if_attached() else { return 0 };
        let age = self.cleaner.pacer.lock().required_age(log.capacity());
        let aged = Lsn(log.end().0.saturating_sub(age));
        self.dirty.older_than(log.needed().map_or(aged, |needed| needed.max(aged)))
    }

    /// Makes the cleaner check now whether pages hold up the checkpoint.
    pub fn press(&self) {
        if self.required_pages() > 0 {
            self.clean_event.notify();
        }
    }

    /// The log end at which the log was last found idle, while nobody writes.
    pub fn quiet_at(&self) -> Option<Lsn> {
        let log = self.log_if_attached()?;
        let watch = self.cleaner.pacer.lock().idle_watch(log.end(), log.capacity())?;
        Some(watch.cut)
    }

    /// Pages are written also while no page changes; not where written data is lost.
    pub fn rest_when_quiet(&self) {
        self.cleaner.rests.store(true, Relaxed);
    }

    /// True if the log holds work that a start could be spared, and is not known to be idle at its
    /// present end.
    fn awaits_quiet(&self) -> bool {
        let Some(log) = self.log_if_attached() else { return false };
        self.cleaner.rests.load(Relaxed)
            && log.age() >= log.capacity() / REST_PARTS
            && self.quiet_at() != Some(log.end())
    }

    /// Wakes the threads that drive `clean_beat`.
    pub fn clean_event(&self) -> Arc<Event> {
        self.clean_event.clone()
    }

    /// How long the thread that drives `clean_beat` may sleep. Pages grow old without an event,
    /// when changes go to a bucket that has pages already, and no event reports that nobody writes.
    pub fn next_clean_in(&self) -> Option<Duration> {
        let goes_on = self.dirty.total() > 0 || self.awaits_quiet();
        goes_on.then_some(Duration::from_nanos(2 * TICK_NS))
    }

    /// Writes every page with a change from before the call, for a requested checkpoint and for
    /// tests. Others may continue to change pages; those changes are left out.
    ///
    /// # Errors
    /// As `clean_beat`; `DiskFull`.
    pub fn flush_all(&self) -> Result<()> {
        self.flush_until(u64::MAX).map(|_| ())
    }

    /// As `flush_all`, for as long as the clock is below `until_ns`, plus the batch that is under
    /// way then: true if all are written.
    ///
    /// # Errors
    /// As `flush_all`.
    pub fn flush_until(&self, until_ns: u64) -> Result<bool> {
        let batch = BATCH_BYTES / self.page_size();
        let end = self.log_if_attached().map_or(Lsn(u64::MAX), |log| log.end());
        let is_left = || self.dirty.oldest().is_some_and(|oldest| oldest < end);
        while is_left() {
            self.rt.health.check_writable()?;
            if self.rt.env.now_ns() >= until_ns {
                return Ok(false);
            }
            // A page that changes again then joins a bucket other than the remaining ones.
            // Repeated, because a page may enter late, with a log end that was read before.
            self.dirty.cut();
            let seen = self.free_list.freed.now();
            let done = self.flush_batch(Vec::new(), batch, Need::Required)?;
            self.note_required(done as u64);
            if done == 0 && is_left() {
                let time = Some(Duration::from_millis(10));
                self.rt.wait(&self.free_list.freed, seen, time, Cause::Idle);
            }
        }
        Ok(true)
    }

    /// Writes the dirty pages of some ranges, and waits until all of them are durable. No other
    /// thread may change them meanwhile.
    ///
    /// # Errors
    /// As `clean_beat`; `DiskFull`.
    pub fn flush_pages(&self, ranges: &[Range<u64>]) -> Result<()> {
        let batch = BATCH_BYTES / self.page_size();
        let mut pages = ranges.iter().cloned().flatten().map(PageNo);
        loop {
            let mut some: Vec<PageNo> = pages.by_ref().take(batch).collect();
            if some.is_empty() {
                return Ok(());
            }
            loop {
                self.rt.health.check_writable()?;
                let seen = self.free_list.freed.now();
                some.retain(|page| self.is_unwritten(*page));
                if some.is_empty() {
                    break;
                }
                let frames = some.iter().filter_map(|page| self.translation.get(*page));
                let done = self.flush_batch(frames.collect(), 0, Need::Required)?;
                self.note_required(done as u64);
                if done == 0 {
                    // Other workers are writing them.
                    let time = Some(Duration::from_millis(10));
                    self.rt.wait(&self.free_list.freed, seen, time, Cause::DeviceSlow);
                }
            }
        }
    }

    /// True while the last change of a page is not durable. Checked under the latch that a
    /// capturing worker also holds, because a page between its dirty mark and its write is seen as
    /// neither.
    fn is_unwritten(&self, page: PageNo) -> bool {
        let Some(frame) = self.translation.get(page) else { return false };
        let guard = self.frames.exclusive(frame);
        let facts = guard.facts();
        let volatile = facts.dirty.load(Acquire) != 0 || facts.writing.load(Acquire);
        facts.holds(page) && volatile
    }

    /// Evaluates the law if a tick has passed. Returns the rate and the time to the next tick.
    fn tick(&self) -> (u64, u64) {
        let Some(log) = self.log_if_attached() else { return (0, TICK_NS) };
        let now = self.rt.env.now_ns();
        let batch = BATCH_BYTES / self.page_size();
        let mut pacer = self.cleaner.pacer.lock();
        if let Some(next_ns) = pacer.next_in(now) {
            return (pacer.rate(), next_ns);
        }
        let around = Surroundings {
            end: log.end(),
            log_bytes: log.capacity(),
            frames: self.frames.count() as u64,
            // The next batch takes the others, outside the quota.
            free_frames_pages: self.free_list.queued().saturating_sub(batch) as u64,
            in_flight_pages: self.cleaner.in_flight.load(Relaxed),
            rests: self.cleaner.rests.load(Relaxed),
        };
        let tick = pacer.tick(now, around, &self.dirty, &self.cleaner.quota);
        self.rt.metrics.add(Metric::FlushRequested, tick.asked);
        let rate = pacer.rate();
        self.rt.journal.note(Law::Flush, now, || (tick.load.numbers(), vec![rate]));
        let terms = pacing::terms(&tick.load);
        self.cleaner.is_surplus.store(terms.is_surplus(), Relaxed);
        self.note_why(terms.divide(tick.asked));
        self.rt.metrics.set(Metric::DirtyPages, tick.load.dirty_pages);
        if tick.rests {
            log.pressure().notify();
        }
        (pacer.rate(), TICK_NS)
    }

    /// Counts pages written beyond the law's request because they were required.
    fn note_required(&self, pages: u64) {
        self.rt.metrics.add(Metric::FlushRequested, pages);
        self.rt.metrics.add(Metric::FlushReasonRequired, pages);
    }

    fn note_why(&self, why: pacing::Terms) {
        let metrics = &self.rt.metrics;
        metrics.add(Metric::FlushReasonAge, why.age);
        metrics.add(Metric::FlushReasonShare, why.share);
        metrics.add(Metric::FlushReasonNext, why.next);
        metrics.add(Metric::FlushReasonFreeFrames, why.free_frames);
        metrics.add(Metric::FlushReasonIdle, why.idle);
    }

    /// `flush_batch` for the result of `take_cold`.
    fn flush_cold(&self, cold: Vec<u32>, count: usize, need: Need) -> Result<usize> {
        let leaving = cold.len();
        let result = self.flush_batch(cold, count, need);
        self.free_list.have_left(leaving);
        result
    }

    /// Fills `out` up to `count` with frames of the oldest buckets. Frames that have left the
    /// bucket in which they were listed (written as cold ones, or holding another page by now) do
    /// not count.
    fn take_old(&self, count: usize, out: &mut Vec<u32>) {
        let count = count.saturating_sub(out.len());
        let page = |frame| self.frames.facts(frame).page();
        self.cleaner.draining.lock().take(&self.dirty, count, page, |bucket, frame| {
            let is_there = self.frames.facts(frame).dirty.load(Acquire) == bucket + 1;
            if is_there {
                out.push(frame);
            }
            is_there
        });
    }

    /// Writes `cold` frames and up to `count` others in one batch; returns how many pages.
    pub(crate) fn flush_batch(&self, cold: Vec<u32>, count: usize, need: Need) -> Result<usize> {
        self.put_back();
        let Some(mut space) = self.cleaner.workspace(self.page_size(), self.doublewrite.regions())
        else {
            for frame in cold {
                self.requeue(frame);
            }
            return Ok(0);
        };
        let class = if cold.len() > count { Class::FreeFrames } else { Class::Checkpoint };
        let mut frames = cold;
        let most = BATCH_BYTES / self.page_size();
        let wanted = (frames.len() + count).min(most);
        self.take_old(wanted, &mut frames);
        frames.sort_by_cached_key(|f| self.frames.facts(*f).page());
        frames.dedup();
        let mut newest = Lsn::ZERO;
        let mut items: Vec<Item> = Vec::with_capacity(frames.len());
        let size = self.page_size();
        for frame in frames {
            let at = items.len() * size;
            if let Some(item) = self.capture(frame, &mut space.images[at..at + size]) {
                newest = newest.max(page::lsn(&space.images[at..at + size]));
                items.push(item);
            }
        }
        let in_flight = items.len() as u64;
        self.cleaner.in_flight.fetch_add(in_flight, Relaxed);
        let result = match items.is_empty() {
            true => Ok(()),
            false => self.write_batch(&mut space, &items, newest, (class, need)),
        };
        self.cleaner.spare.lock().idle.push(space);
        let done = items.len();
        match &result {
            Ok(()) => self.written(items),
            Err(error) if error.code().is_shortage() => self.unwritten(items),
            Err(error) => {
                self.rt.health.fail(error.clone());
            }
        }
        self.cleaner.in_flight.fetch_sub(in_flight, Relaxed);
        // If nothing was written nothing has changed: a thread that waits for the writes of others
        // would only wake itself.
        if done > 0 {
            self.free_list.freed.notify();
        }
        if self.free_list.is_low() || self.is_shrinking() {
            self.free_list.event.notify();
        }
        result.map(|()| done)
    }

    /// Copies a dirty page for writing. A page that is being changed, or whose last write is still
    /// under way, is left for later: cleaning never waits for a latch.
    fn capture(&self, frame: u32, image: &mut [u8]) -> Option<Item> {
        let Some(guard) = self.frames.try_shared(frame) else {
            self.requeue(frame);
            return None;
        };
        let facts = guard.facts();
        let page = facts.page()?;
        if facts.writing.load(Acquire) {
            drop(guard);
            self.requeue(frame);
            return None;
        }
        let bucket = facts.dirty.swap(0, AcqRel).checked_sub(1)?;
        facts.writing.store(true, Release);
        let fresh = facts.fresh.swap(false, Relaxed);
        image.copy_from_slice(guard.bytes());
        Some(Item { frame, page, bucket, tree: TreeId(facts.tree.load(Relaxed)), fresh })
    }

    /// Puts a frame that was taken from a list back, if its page is still dirty.
    fn requeue(&self, frame: u32) {
        if let Some(bucket) = self.frames.facts(frame).dirty.load(Acquire).checked_sub(1) {
            self.dirty.requeue(bucket, frame);
        }
    }

    fn write_batch(
        &self,
        space: &mut Workspace,
        items: &[Item],
        newest: Lsn,
        (class, need): (Class, Need),
    ) -> Result<()> {
        if let Some(log) = self.log_if_attached()
            && !evenkeel_base::fault_injection::is(
                evenkeel_base::fault_injection::Fault::PageBeforeLog,
            )
        {
            log.wait_durable(newest)?;
        }
        self.rt.health.check_writable()?;
        let size = self.page_size();
        for image in space.images[..items.len() * size].chunks_exact_mut(size) {
            page::seal(image, self.rt.database());
        }
        let bytes = (items.len() * size) as u64;
        if need == Need::Required {
            self.sched.ask(class, bytes, true);
        }
        let start = self.rt.env.now_ns();
        let pages: Vec<(PageNo, bool)> = items.iter().map(|i| (i.page, !i.fresh)).collect();
        let Workspace { region, head, images } = space;
        if !evenkeel_base::fault_injection::is(
            evenkeel_base::fault_injection::Fault::DoublewriteSkipped,
        ) {
            self.doublewrite.write(*region, head, &images[..items.len() * size], &pages)?;
        }
        self.rt.step();
        let mut segments = BTreeSet::new();
        let (mut at, mut requests) = (0, 0);
        let joins = |a: &Item, b: &Item| {
            b.page.0 == a.page.0 + 1 && self.files.place(a.page).0 == self.files.place(b.page).0
        };
        let is_lost = evenkeel_base::fault_injection::is(
            evenkeel_base::fault_injection::Fault::StalePageServed,
        );
        for run in items.chunk_by(joins) {
            if !is_lost || run.iter().any(|item| item.fresh) {
                self.files.write(run[0].page, &images[at * size..(at + run.len()) * size])?;
            }
            segments.insert(self.files.place(run[0].page).0);
            at += run.len();
            requests += 1;
        }
        self.rt.step();
        for segment in segments {
            self.files.sync(segment)?;
        }
        let ns = self.rt.env.now_ns().saturating_sub(start);
        // The duration of a small part among the reads of others does not measure the device.
        if need == Need::Required || bytes >= BATCH_BYTES as u64 {
            self.sched.governor.report(class, requests, bytes, ns);
        }
        self.rt.metrics.add(Metric::FlushDone, items.len() as u64);
        Ok(())
    }

    /// While frames are wanted, written pages that are not in use are evicted at once.
    fn written(&self, items: Vec<Item>) {
        for item in items {
            self.left_bucket(item.bucket, item.tree);
            let facts = self.frames.facts(item.frame);
            facts.writing.store(false, Release);
            let is_unused = facts.referenced.load(Relaxed) == 0 && facts.dirty.load(Acquire) == 0;
            if is_unused && facts.holds(item.page) && self.free_list.gives_up() {
                self.evict(item.frame);
            }
        }
    }

    /// The disk is full: the pages are dirty as before, in their old bucket. A page that another
    /// thread has latched, which may be waiting for a frame, is put back later.
    fn unwritten(&self, items: Vec<Item>) {
        for item in items {
            let Some(guard) = self.frames.try_shared(item.frame) else {
                self.cleaner.unwritten.lock().push(item);
                continue;
            };
            let facts = guard.facts();
            if let Some(newer) = facts.dirty.swap(item.bucket + 1, AcqRel).checked_sub(1) {
                self.left_bucket(newer, TreeId(facts.tree.load(Relaxed)));
            }
            facts.tree.store(item.tree.0, Relaxed);
            facts.fresh.fetch_or(item.fresh, Relaxed);
            facts.writing.store(false, Release);
            self.dirty.requeue(item.bucket, item.frame);
        }
    }

    /// Puts back pages that were latched when the disk was full.
    fn put_back(&self) {
        let items = std::mem::take(&mut *self.cleaner.unwritten.lock());
        self.unwritten(items);
    }

    /// Makes room for redo, which runs without background threads: writes and evicts until some
    /// frames are free.
    pub(crate) fn make_room(&self, frames: i64) -> Result<()> {
        let batch = BATCH_BYTES / self.page_size();
        while self.free_list.available() < frames {
            self.rt.health.check_writable()?;
            self.search(frames, BEAT_COLD);
            if self.free_list.available() < frames {
                let cold = self.free_list.take_cold(batch);
                if self.flush_cold(cold, batch / 4, Need::Required)? == 0 {
                    // Other redo threads write the pages that can be written, or hold them.
                    let seen = self.free_list.freed.now();
                    let again = Some(ROOM_AGAIN);
                    self.rt.wait(&self.free_list.freed, seen, again, Cause::FreeFrame);
                }
            }
        }
        Ok(())
    }
}
