//! Shared by the tests: a redo that supports one op (bytes at an offset), a page space with a log,
//! and its recovery.

use crate::{Changes, Mtr, PageRedo, Pages, PagesOptions, RedoApply};
use evenkeel_base::{Beat, Cause, Lsn, PageNo, Result};
use evenkeel_format::record::{LeafChange, RecordKind};
use evenkeel_io::{Event, Runtime};
use evenkeel_log::{Log, LogEnd, LogOptions, Replay, Share, replay, sync_segments};
use evenkeel_sched::Scheduler;
use std::sync::Arc;

/// Op of the tests: offset u16, then the bytes.
pub const WRITE: u8 = 32;

pub struct Bytes;

impl RedoApply for Bytes {
    fn apply(&self, op: u8, payload: &[u8], page: &mut [u8]) -> Result<()> {
        assert_eq!(op, WRITE);
        let at = usize::from(u16::from_le_bytes([payload[0], payload[1]]));
        page[at..at + payload.len() - 2].copy_from_slice(&payload[2..]);
        Ok(())
    }
    fn apply_row(&self, _: RecordKind, change: &LeafChange<'_>, page: &mut [u8]) -> Result<()> {
        self.apply(WRITE, change.row, page)
    }
}

/// Changes a page of a mini-transaction and queues the corresponding op.
pub fn put(mtr: &mut Mtr<'_>, slot: usize, at: u16, bytes: &[u8]) {
    let mut payload = at.to_le_bytes().to_vec();
    payload.extend_from_slice(bytes);
    mtr.op(slot, WRITE, &payload);
    let at = usize::from(at);
    mtr.page_mut(slot)[at..at + bytes.len()].copy_from_slice(bytes);
}

pub fn options(frames: usize) -> PagesOptions {
    let log_bytes = 1 << 20;
    PagesOptions { page_size: 4096, pool_bytes: frames * 4096, doublewrite: true, log_bytes }
}

pub fn log_options(log_bytes: u64, epoch: u32) -> LogOptions {
    LogOptions { log_bytes, buffer_bytes: 128 << 10, epoch }
}

pub struct Fixture {
    pub rt: Arc<Runtime>,
    pub pages: Arc<Pages>,
    pub log: Arc<Log>,
}

/// A new page space with a log.
pub fn create(rt: Arc<Runtime>, frames: usize, log_bytes: u64) -> Result<Fixture> {
    let pages = Pages::create(Scheduler::new(rt.clone()), options(frames))?;
    let log = Log::create(rt.clone(), log_options(log_bytes, 1), Lsn(0))?;
    pages.attach_log(log.clone())?;
    Ok(Fixture { rt, pages, log })
}

/// Records that the second pass takes at once.
const TOGETHER: usize = 200;

struct First<'a, 'b>(&'a mut PageRedo<'b>);

impl Replay for First<'_, '_> {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        self.0.scan(lsn, kind, body)
    }
}

struct Second<'a, 'b> {
    redo: &'a PageRedo<'b>,
    waiting: Vec<(Lsn, RecordKind, Vec<u8>)>,
}

impl Second<'_, '_> {
    fn apply(&mut self) -> Result<()> {
        let mut changes = Changes::default();
        for (lsn, kind, body) in &self.waiting {
            changes.add(*lsn, *kind, body, |_| true)?;
        }
        self.redo.apply_all(changes)?;
        self.waiting.clear();
        Ok(())
    }
}

impl Replay for Second<'_, '_> {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        self.waiting.push((lsn, kind, body.to_vec()));
        if self.waiting.len() == TOGETHER { self.apply() } else { Ok(()) }
    }
}

/// Opens and replays from `from`; the log begins a new epoch.
pub fn recover(
    rt: Arc<Runtime>,
    frames: usize,
    log_bytes: u64,
    from: Lsn,
    epoch: u32,
) -> Result<(Fixture, LogEnd)> {
    recover_with(rt, frames, log_bytes, from, epoch, |_| ())
}

/// As `recover`; `found` gets the end of the log before anything new is written to it.
pub fn recover_with(
    rt: Arc<Runtime>,
    frames: usize,
    log_bytes: u64,
    from: Lsn,
    epoch: u32,
    found: impl FnOnce(LogEnd),
) -> Result<(Fixture, LogEnd)> {
    let pages = Pages::open(Scheduler::new(rt.clone()), options(frames), from)?;
    let mut redo = PageRedo::new(&pages, &Bytes).from(Lsn::ZERO);
    let end = replay(&rt, from, None, &mut First(&mut redo))?;
    sync_segments(&rt, from, end.end)?;
    let redo = PageRedo::after(&pages, &Bytes, redo.into_lives()).ending_at(end.end);
    let mut second = Second { redo: &redo, waiting: Vec::new() };
    let end = replay(&rt, from, None, &mut second)?;
    second.apply()?;
    redo.sync_found()?;
    found(end);
    let log = Log::create(rt.clone(), log_options(log_bytes, end.epoch.max(epoch) + 1), end.end)?;
    log.set_checkpoint(from)?;
    pages.attach_log(log.clone())?;
    Ok((Fixture { rt, pages, log }, end))
}

impl Fixture {
    /// Runs `f` as one mini-transaction.
    pub fn mtr(&self, frames: usize, f: impl FnOnce(&mut Mtr<'_>) -> Result<()>) -> Result<Lsn> {
        let mut reserved = self.log.reserve(16 << 10, Share::User)?;
        let mut mtr = self.pages.begin(frames)?;
        f(&mut mtr)?;
        Ok(mtr.commit(&mut reserved))
    }

    /// Allocates a page for `tree` and fills it with `byte`.
    pub fn alloc(&self, tree: u32, near: Option<PageNo>, byte: u8) -> Result<(PageNo, Lsn)> {
        let mut page = PageNo(0);
        let lsn = self.mtr(2, |mtr| {
            let slot = mtr.alloc(tree.into(), near)?;
            page = mtr.page_no(slot);
            put(mtr, slot, 0, &[byte; 64]);
            Ok(())
        })?;
        Ok((page, lsn))
    }

    /// The work of a checkpointer; returns the position from which redo would start.
    pub fn checkpoint(&self) -> Result<Lsn> {
        let end = self.log.end();
        let from = self.pages.oldest_dirty_lsn().map_or(end, |oldest| oldest.min(end));
        // Redo may start at the first position of an epoch only after the epoch has a durable
        // record there: the checkpoint's own.
        let mut reserved = self.log.reserve(1, Share::Checkpoint)?;
        let lsn = self.log.append(&mut reserved, RecordKind::Checkpoint, &[b"-"]);
        self.log.wait_durable(lsn)?;
        Ok(from)
    }

    /// Threads that drive the beats until the environment ends them or `Stop` is dropped.
    pub fn background(&self) -> Stop {
        let stop = Arc::new(Stopper::default());
        type Work = fn(&Pages) -> Result<Beat>;
        let actors: [(&str, Arc<Event>, Work); 4] = [
            ("free frames", self.pages.free_frames_event(), Pages::free_frames_beat),
            ("clean", self.pages.clean_event(), Pages::clean_beat),
            ("clean 2", self.pages.clean_event(), Pages::clean_beat),
            ("reclaim", self.pages.reclaim_event(), Pages::reclaim_beat),
        ];
        let mut tasks = Vec::new();
        for (name, event, work) in actors {
            let (rt, pages, stop, wake) =
                (self.rt.clone(), self.pages.clone(), stop.clone(), event.clone());
            let body = move || {
                while !stop.stop.load(std::sync::atomic::Ordering::SeqCst) {
                    let seen = event.now();
                    if stop.stop.load(std::sync::atomic::Ordering::SeqCst) {
                        break;
                    }
                    match work(&pages) {
                        Ok(Beat::More) => {}
                        Ok(Beat::Idle) | Err(_) => {
                            rt.wait(&event, seen, None, Cause::Idle);
                        }
                    }
                }
            };
            tasks.push((self.rt.spawn(name, body).expect("a thread"), wake));
        }
        Stop { stop, tasks }
    }
}

#[derive(Default)]
struct Stopper {
    stop: std::sync::atomic::AtomicBool,
}

/// Ends the background threads when dropped.
pub struct Stop {
    stop: Arc<Stopper>,
    tasks: Vec<(Box<dyn evenkeel_io::Task>, Arc<Event>)>,
}

impl Stop {
    pub fn end(self) {
        self.stop.stop.store(true, std::sync::atomic::Ordering::SeqCst);
        for (_, event) in &self.tasks {
            event.notify();
        }
        for (task, _) in self.tasks {
            task.join().expect("no panic");
        }
    }
}
