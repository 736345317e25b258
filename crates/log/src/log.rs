//! The log: reservation, append, group commit.
//!
//! One short mutex orders appends: position, copy into the buffer, and the caller's closure. Two
//! roles are held without a mutex: the *leader* takes the buffer, writes it and syncs (one at a
//! time; meanwhile the next group gathers); the *syncer* syncs files (the leader, or the beat of
//! each second). Waiters of a group are woken together when it is done; the first waiter of the
//! next group, and only he, is woken to lead it. No timer takes part.
//!
//! After the first failed write or sync the log is latched (`rt.health`): nothing is written any
//! more, appends still succeed, waits fail.

use crate::buffer::{Buffer, Chunk};
use crate::segments::{Segments, segment_bytes};
use crate::space::{Lack, Limits, Space};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Cause, Code, Error, Lsn, Result, sync::Mutex};
use evenkeel_format::record::RecordKind;
use evenkeel_format::wal::{self, BLOCK, BLOCKS_ALIGN, FRAME, PAYLOAD, SEGMENT_HEADER, lsn_of};
use evenkeel_io::{Event, Runtime};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Records that one reservation may frame beyond the bytes asked for.
const RECORDS_PER_TOKEN: u64 = 16;
/// Modes 0 and 2 are synced this long after the first commit that is not.
const LAZY: Duration = Duration::from_secs(1);
/// A thread that waits for log space looks this often whether writes have stopped.
const HEALTH_CHECK: Duration = Duration::from_millis(100);

/// How to start a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Cap on the bytes of all segments.
    pub log_bytes: u64,
    /// Memory for records not written yet.
    pub buffer_bytes: usize,
    /// Epoch of this start: larger than any epoch before, and not 0.
    pub epoch: u32,
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Synced (1).
    Sync,
    /// Written; synced within a second (2).
    Write,
    /// Nothing; written and synced within a second (0).
    Lazy,
}

/// Which part of the log a reservation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Row operations and their pages: delayed and held back by G1.
    User,
    /// Commit, abort, end, prepare and revert records: have a part that users cannot take.
    System,
    /// Manifest and checkpoint records, which make log space free again: the last part; never
    /// waits for log space.
    Checkpoint,
}

/// Log space that `append` consumes; dropping it returns the rest.
pub struct Reserved {
    shared: Arc<Shared>,
    share: Share,
    left: u64,
}

/// The write-ahead log.
pub struct Log {
    shared: Arc<Shared>,
}

struct Shared {
    rt: Arc<Runtime>,
    epoch: u32,
    /// First block of the epoch, and the position it took over from.
    start: (u64, Lsn),
    limits: Limits,
    segments: Segments,
    state: Mutex<State>,
    end: AtomicU64,
    written: AtomicU64,
    durable: AtomicU64,
    checkpoint: AtomicU64,
    /// When the oldest commit of modes 0 and 2 not synced yet was made; 0: there is none.
    lazy_since: AtomicU64,
    /// Background work.
    work: Arc<Event>,
    /// The checkpointer.
    pressure: Arc<Event>,
    /// Groups, by the parity of their number.
    group_done: [Arc<Event>; 2],
    /// The designated leader of the next group.
    lead_next: Arc<Event>,
    /// The syncer role has become free.
    sync_free: Arc<Event>,
}

struct State {
    buffer: Buffer,
    space: Space,
    /// Waiting reservations of User, System and Checkpoint, first come first served.
    queues: [VecDeque<Waiting>; 3],
    next_ticket: u64,
    /// There is a leader; his group has this number, ends here, and will be synced.
    leading: bool,
    group: u64,
    group_end: Lsn,
    group_syncs: bool,
    next_leader: bool,
    syncing: bool,
    preparing: bool,
    /// An empty list with room for a group.
    spare: Vec<Chunk>,
}

struct Waiting {
    ticket: u64,
    event: Arc<Event>,
}

/// How far a waiter wants his record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    Written,
    Durable,
}

/// What a waiter does next.
enum Turn {
    Lead,
    Wait { event: Arc<Event>, seen: u64, designated: bool },
}

impl Log {
    /// Starts a new epoch at the first block boundary at or behind `start`: in a new directory
    /// (`Lsn(0)`) or after `replay` (exactly its `LogEnd::end`). Everything below is synced first,
    /// then the first block of the epoch is. The checkpoint is taken to be where the oldest segment begins: call `set_checkpoint`.
    ///
    /// # Errors
    /// Those of the environment; `LogMissing`, `LogDamaged`, `LogVersion`.
    pub fn create(rt: Arc<Runtime>, opts: LogOptions, start: Lsn) -> Result<Arc<Log>> {
        Log::create_aligned(rt, opts, start, 1)
    }

    /// `create` with writes padded to at least `align_blocks` blocks: to measure what it costs.
    #[doc(hidden)]
    pub fn create_aligned(
        rt: Arc<Runtime>,
        opts: LogOptions,
        from: Lsn,
        align_blocks: u64,
    ) -> Result<Arc<Log>> {
        assert!(opts.epoch != 0, "epoch 0 means none");
        let (segments, oldest) = Segments::open(&rt, opts.log_bytes, from, align_blocks)?;
        let align = segments.align();
        // Block 0 stays unused: LSN 0 means "none".
        let start = from.0.div_ceil(PAYLOAD as u64).max(1).next_multiple_of(align);
        let start_lsn = lsn_of(start);
        let payload = |bytes: u64| bytes / BLOCK as u64 * PAYLOAD as u64;
        let segment = payload(segment_bytes(opts.log_bytes) - SEGMENT_HEADER as u64);
        let limits = Limits::new(payload(opts.log_bytes).max(8 * segment), segment);
        let buffer_blocks = (opts.buffer_bytes / BLOCK) as u64;
        let chunk_blocks = (buffer_blocks / 16 / BLOCKS_ALIGN * BLOCKS_ALIGN).clamp(8, 512);
        let buffer_bytes = payload(buffer_blocks * BLOCK as u64).max(chunk_blocks * 4 * 480);
        let buffer = Buffer::new(buffer_bytes, chunk_blocks as usize, start);
        let mut space = Space::new(limits, start_lsn, align * PAYLOAD as u64, buffer_bytes);
        space.checkpoint = oldest;
        let shared = Shared {
            rt,
            epoch: opts.epoch,
            start: (start, from),
            limits,
            segments,
            state: Mutex::new(State::new(buffer, space)),
            end: AtomicU64::new(start_lsn.0),
            written: AtomicU64::new(start_lsn.0),
            durable: AtomicU64::new(start_lsn.0),
            checkpoint: AtomicU64::new(oldest.0),
            lazy_since: AtomicU64::new(0),
            work: Arc::default(),
            pressure: Arc::default(),
            group_done: Default::default(),
            lead_next: Arc::default(),
            sync_free: Arc::default(),
        };
        shared.prepare_first()?;
        // The epoch is on disk before anything relies on it: old blocks behind never count again.
        shared.state.lock().buffer.put_empty_block();
        shared.try_lead(true)?;
        Ok(Arc::new(Log { shared: Arc::new(shared) }))
    }

    /// Reserves space for records whose bodies are `bytes` together. May wait (`log_space`); the
    /// caller holds no latch.
    ///
    /// # Errors
    /// `WritesStopped`; `DiskFull` if no segment can be prepared; `LogTooLarge`; `LogFull`.
    pub fn reserve(&self, bytes: usize, share: Share) -> Result<Reserved> {
        let s = &self.shared;
        s.rt.health.check_writable()?;
        let n = bytes as u64 + RECORDS_PER_TOKEN * FRAME as u64;
        if share == Share::User && self.age() > s.limits.target() {
            s.pressure.notify();
            if let Some(delay) = s.limits.delay(self.age(), n) {
                s.rt.delay(delay, Cause::LogSpace);
            }
        }
        let admitted = {
            let mut state = s.state.lock();
            let largest = state.space.largest();
            if n > largest {
                return Err(Error::new(Code::LogTooLarge)
                    .with("bytes", bytes)
                    .with("limit", largest));
            }
            state.queues[share as usize].is_empty() && state.admit(share, n).is_none()
        };
        if !admitted {
            s.reserve_waiting(share, n)?;
        }
        Ok(Reserved { shared: s.clone(), share, left: n })
    }

    /// Appends a record; never waits, never fails.
    pub fn append(&self, r: &mut Reserved, kind: RecordKind, body: &[&[u8]]) -> Lsn {
        self.append_with(r, kind, body, |_| ()).0
    }

    /// Appends a record and runs `f` with its LSN inside the ordered section: all such calls run
    /// in the order of their LSNs. `f` must be short and must not append, reserve or drop a
    /// `Reserved`. Panics if the body is longer than `RECORD_BYTES_MAX`.
    pub fn append_with<R>(
        &self,
        r: &mut Reserved,
        kind: RecordKind,
        body: &[&[u8]],
        f: impl FnOnce(Lsn) -> R,
    ) -> (Lsn, R) {
        let s = &self.shared;
        let len: usize = body.iter().map(|part| part.len()).sum();
        assert!(len <= wal::RECORD_BYTES_MAX, "log record of {len} bytes");
        let used = r.left.min((len + FRAME) as u64);
        debug_assert!(used == (len + FRAME) as u64, "{len} bytes appended, {} reserved", r.left);
        let frame = wal::frame(kind, len as u32);
        let mut state = s.state.lock();
        let lsn = state.buffer.begin_record();
        state.buffer.put(&frame);
        for part in body {
            state.buffer.put(part);
        }
        state.space.consume(r.share, used);
        r.left -= used;
        s.end.store(state.buffer.end().0, Ordering::Release);
        let result = f(lsn);
        drop(state);
        s.rt.metrics.add(Metric::WalRecords, 1);
        (lsn, result)
    }

    /// Position behind the last record appended.
    pub fn end(&self) -> Lsn {
        Lsn(self.shared.end.load(Ordering::Acquire))
    }

    /// Every record whose LSN is below this survives a crash.
    pub fn durable(&self) -> Lsn {
        Lsn(self.shared.durable.load(Ordering::Acquire))
    }

    /// True if the record at `lsn` is durable.
    pub fn is_durable(&self, lsn: Lsn) -> bool {
        self.durable() > lsn
    }

    /// Waits until the record at `lsn` is durable (cause `log_sync`). A position at or behind the
    /// end means all records appended so far.
    ///
    /// # Errors
    /// `WritesStopped` once a write or sync of the log has failed.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        self.shared.wait(lsn, Goal::Durable)
    }

    /// What a commit whose record is at `lsn` waits for under durability `d`.
    ///
    /// # Errors
    /// As `wait_durable`.
    pub fn wait_commit(&self, lsn: Lsn, d: Durability) -> Result<()> {
        let s = &self.shared;
        match d {
            Durability::Sync => return s.wait(lsn, Goal::Durable),
            Durability::Write => s.wait(lsn, Goal::Written)?,
            Durability::Lazy => s.rt.health.check_writable()?,
        }
        let now = s.rt.env.now_ns().max(1);
        if s.lazy_since.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            s.work.notify();
        }
        Ok(())
    }

    /// Replay starts here after a crash.
    pub fn checkpoint_lsn(&self) -> Lsn {
        Lsn(self.shared.checkpoint.load(Ordering::Acquire))
    }

    /// Tells that replay will never need records below `lsn` again (the checkpoint is durable).
    /// Segments below may be recycled; waiting operations go on.
    ///
    /// # Errors
    /// `Internal` if `lsn` is not durable itself.
    pub fn set_checkpoint(&self, lsn: Lsn) -> Result<()> {
        if lsn > self.durable() {
            return Err(Error::internal("checkpoint ahead of the durable log").with("lsn", lsn));
        }
        let s = &self.shared;
        s.checkpoint.fetch_max(lsn.0, Ordering::AcqRel);
        let fronts = {
            let mut state = s.state.lock();
            state.space.checkpoint = state.space.checkpoint.max(lsn);
            state.fronts()
        };
        notify(fronts);
        if s.wants_segment() {
            s.work.notify();
        }
        Ok(())
    }

    /// Bytes from the checkpoint to the end.
    pub fn age(&self) -> u64 {
        self.end().0.saturating_sub(self.checkpoint_lsn().0)
    }

    /// The age from which on user operations wait for checkpoints (G1: the trigger).
    pub fn capacity(&self) -> u64 {
        self.shared.limits.user
    }

    /// The age below which nothing is delayed (G1): the checkpointer keeps below it.
    pub fn age_target(&self) -> u64 {
        self.shared.limits.target()
    }

    /// One step of background work: prepares segments ahead, writes what fills the buffer, syncs
    /// commits of modes 0 and 2 after a second. With `Idle`, wait for `event()`, at most
    /// `next_beat_in()`.
    ///
    /// # Errors
    /// `DiskFull`: call again when space may be free. `WritesStopped` after a failure.
    pub fn beat(&self) -> Result<Beat> {
        let s = &self.shared;
        s.rt.health.check_writable()?;
        if s.buffer_fills() && s.try_lead(false)? {
            return Ok(Beat::More);
        }
        if self.next_beat_in() == Some(Duration::ZERO) {
            s.lazy_sync()?;
            return Ok(Beat::More);
        }
        if s.wants_segment() && s.prepare()? {
            return Ok(Beat::More);
        }
        Ok(Beat::Idle)
    }

    /// Notified when `beat` has work.
    pub fn event(&self) -> Arc<Event> {
        self.shared.work.clone()
    }

    /// How long the thread that calls `beat` may wait for the event after `Idle`; `None`: until it
    /// comes (nothing is unsynced).
    pub fn next_beat_in(&self) -> Option<Duration> {
        let s = &self.shared;
        let since = s.lazy_since.load(Ordering::Acquire);
        let waited = Duration::from_nanos(s.rt.env.now_ns().saturating_sub(since));
        (since != 0).then(|| LAZY.saturating_sub(waited))
    }

    /// Notified when the age passes its target and whenever an operation waits for log space: the
    /// checkpointer waits for it.
    pub fn pressure(&self) -> Arc<Event> {
        self.shared.pressure.clone()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let fronts = {
            let mut state = self.shared.state.lock();
            state.space.give_back(self.share, self.left);
            state.fronts()
        };
        notify(fronts);
    }
}

fn notify(events: [Option<Arc<Event>>; 3]) {
    events.into_iter().flatten().for_each(|event| event.notify());
}

impl State {
    fn new(buffer: Buffer, space: Space) -> State {
        State {
            group_end: buffer.end(),
            buffer,
            space,
            queues: Default::default(),
            next_ticket: 0,
            leading: false,
            group: 0,
            group_syncs: false,
            next_leader: false,
            syncing: false,
            preparing: false,
            spare: Vec::with_capacity(128),
        }
    }

    /// Counts a reservation if nothing is missing.
    fn admit(&mut self, share: Share, n: u64) -> Option<Lack> {
        let end = self.buffer.end();
        let lack = self.space.lack(end, share, n);
        if lack.is_none() {
            let need = self.space.buffer_need(end, n);
            self.buffer.grow(need);
            self.space.take(share, n);
        }
        lack
    }

    /// The events of those first in their queues.
    fn fronts(&self) -> [Option<Arc<Event>>; 3] {
        self.queues.each_ref().map(|q| q.front().map(|w| w.event.clone()))
    }

    fn leave(&mut self, share: Share, ticket: u64) {
        self.queues[share as usize].retain(|w| w.ticket != ticket);
    }

    /// Becomes leader if there is none.
    fn take_lead(&mut self) -> bool {
        if self.leading {
            return false;
        }
        self.leading = true;
        self.group += 1;
        true
    }
}

impl Shared {
    /// Prepares the first segments: one to write to and two ahead. On a full disk the first one
    /// is enough to open; users cannot write then.
    fn prepare_first(&self) -> Result<()> {
        self.note_prepared();
        let end = Lsn(self.end.load(Ordering::Acquire));
        while self.segments.wants_first(end) {
            match self.prepare() {
                Err(e) if e.code() == Code::DiskFull && self.segments.prepared().end > end => {
                    log::warn!("no space to prepare log segments: {e}");
                    break;
                }
                other => other?,
            };
        }
        Ok(())
    }

    /// Admission learns where the segments end.
    fn note_prepared(&self) {
        let prepared = self.segments.prepared();
        let mut state = self.state.lock();
        state.space.prepared = prepared.end;
        state.space.prepared_user = prepared.user;
    }

    fn checkpoint_lsn(&self) -> Lsn {
        Lsn(self.checkpoint.load(Ordering::Acquire))
    }

    fn wants_segment(&self) -> bool {
        let reach = {
            let state = self.state.lock();
            state.space.reach(state.buffer.end(), 0)
        };
        self.segments.wants_more(reach, self.checkpoint_lsn())
    }

    /// One step of preparing a segment; false if somebody else is at it.
    fn prepare(&self) -> Result<bool> {
        if std::mem::replace(&mut self.state.lock().preparing, true) {
            return Ok(false);
        }
        let start = lsn_of(self.start.0);
        let result = self.segments.prepare_step(start, self.checkpoint_lsn());
        self.note_prepared();
        let fronts = {
            let mut state = self.state.lock();
            state.preparing = false;
            state.fronts()
        };
        notify(fronts);
        match result {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Code::DiskFull => Err(error),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Latches and wakes everybody.
    fn fail(&self, error: Error) -> Error {
        let error = self.rt.health.fail(error);
        let all: Vec<Arc<Event>> = {
            let state = self.state.lock();
            state.queues.iter().flatten().map(|w| w.event.clone()).collect()
        };
        all.iter().for_each(|event| event.notify());
        self.group_done.iter().for_each(|event| event.notify());
        self.lead_next.notify();
        self.sync_free.notify();
        error
    }

    /// The slow path of `reserve`: first come, first served in each share.
    fn reserve_waiting(&self, share: Share, n: u64) -> Result<()> {
        let event = Arc::new(Event::new());
        let ticket = {
            let mut state = self.state.lock();
            state.next_ticket += 1;
            let ticket = state.next_ticket;
            state.queues[share as usize].push_back(Waiting { ticket, event: event.clone() });
            ticket
        };
        let result = self.wait_for_space(share, n, ticket, &event);
        let fronts = {
            let mut state = self.state.lock();
            state.leave(share, ticket);
            state.fronts()
        };
        notify(fronts);
        result
    }

    fn wait_for_space(&self, share: Share, n: u64, ticket: u64, event: &Arc<Event>) -> Result<()> {
        loop {
            let seen = event.now();
            self.rt.health.check_writable()?;
            let (lack, reach) = {
                let mut state = self.state.lock();
                let front = state.queues[share as usize].front().map(|w| w.ticket);
                let lack = if front == Some(ticket) { state.admit(share, n) } else { None };
                if front == Some(ticket) && lack.is_none() {
                    return Ok(());
                }
                (lack, state.space.reach(state.buffer.end(), n))
            };
            match lack {
                Some(Lack::Buffer) if self.try_lead(false)? => continue,
                Some(Lack::Segments)
                    if self.segments.wants_more(reach, self.checkpoint_lsn())
                        && self.prepare()? =>
                {
                    continue;
                }
                Some(Lack::Age | Lack::Segments) if share == Share::Checkpoint => {
                    return Err(Error::new(Code::LogFull).with("bytes", n));
                }
                Some(Lack::Age | Lack::Segments) => self.pressure.notify(),
                Some(Lack::Buffer) | None => {}
            }
            self.rt.wait(event, seen, Some(HEALTH_CHECK), Cause::LogSpace);
        }
    }

    fn reached(&self, lsn: Lsn, goal: Goal) -> bool {
        let position = match goal {
            Goal::Written => &self.written,
            Goal::Durable => &self.durable,
        };
        position.load(Ordering::Acquire) > lsn.0
    }

    /// Waits, or leads the group that takes the record there.
    fn wait(&self, lsn: Lsn, goal: Goal) -> Result<()> {
        let end = self.end.load(Ordering::Acquire);
        let lsn = lsn.min(Lsn(end.saturating_sub(1)));
        let mut designated = false;
        loop {
            if self.reached(lsn, goal) {
                if designated {
                    self.hand_over_lead();
                }
                return Ok(());
            }
            self.rt.health.check_writable()?;
            match self.next_turn(lsn, goal, designated) {
                Turn::Lead => {
                    designated = false;
                    self.lead(goal == Goal::Durable)?;
                }
                Turn::Wait { event, seen, designated: now } => {
                    designated = now;
                    if !self.reached(lsn, goal) && !self.rt.health.is_failed() {
                        self.rt.wait(&event, seen, None, Cause::LogSync);
                    }
                }
            }
        }
    }

    fn next_turn(&self, lsn: Lsn, goal: Goal, designated: bool) -> Turn {
        let mut state = self.state.lock();
        let covered = lsn < state.group_end && (state.group_syncs || goal == Goal::Written);
        if (designated || !state.next_leader) && state.take_lead() {
            state.next_leader = false;
            return Turn::Lead;
        }
        if state.leading && covered && !designated {
            let event = self.group_done[(state.group % 2) as usize].clone();
            return Turn::Wait { seen: event.now(), event, designated: false };
        }
        if designated || !state.next_leader {
            state.next_leader = true;
            let event = self.lead_next.clone();
            return Turn::Wait { seen: event.now(), event, designated: true };
        }
        let event = self.group_done[((state.group + 1) % 2) as usize].clone();
        Turn::Wait { seen: event.now(), event, designated: false }
    }

    /// The designated leader needs nothing any more: the group chooses another one.
    fn hand_over_lead(&self) {
        self.state.lock().next_leader = false;
        self.group_done.iter().for_each(|event| event.notify());
    }

    /// Leads one group if nobody does; false if somebody does.
    fn try_lead(&self, sync: bool) -> Result<bool> {
        let lead = self.state.lock().take_lead();
        if lead {
            self.lead(sync)?;
        }
        Ok(lead)
    }

    /// The leader's work: take the buffer, write, sync, wake.
    fn lead(&self, sync: bool) -> Result<()> {
        self.rt.step();
        let (group, end) = {
            let mut state = self.state.lock();
            let mut group = std::mem::take(&mut state.spare);
            let align = self.segments.align();
            state.buffer.seal(align, &mut group);
            state.group_end = state.buffer.end();
            state.group_syncs = sync;
            self.end.store(state.group_end.0, Ordering::Release);
            (group, state.group_end)
        };
        let result = self.write_group(group, end).and_then(|()| match sync {
            true => self.sync_written(),
            false => Ok(()),
        });
        let (done, fronts, next) = {
            let mut state = self.state.lock();
            state.leading = false;
            let done = self.group_done[(state.group % 2) as usize].clone();
            (done, state.fronts(), state.next_leader)
        };
        done.notify();
        if next {
            self.lead_next.notify();
        }
        notify(fronts);
        result
    }

    /// Writes a group and gives its chunks back.
    fn write_group(&self, mut group: Vec<Chunk>, end: Lsn) -> Result<()> {
        let durable = Lsn(self.durable.load(Ordering::Acquire));
        let mut result = self.rt.health.check_writable();
        for chunk in &mut group {
            if result.is_ok() {
                chunk.finish(self.epoch, durable, self.start);
                result = self
                    .segments
                    .write(chunk.first_block(), chunk.used())
                    .map_err(|error| self.fail(error));
            }
        }
        let mut state = self.state.lock();
        state.buffer.give_back(&mut group);
        state.spare = group;
        if result.is_ok() {
            state.space.written = end;
            self.written.store(end.0, Ordering::Release);
        }
        result
    }

    /// Syncs what is written; one thread at a time, so that an error is never missed.
    fn sync_written(&self) -> Result<()> {
        self.rt.wait_until(&self.sync_free, Cause::LogSync, || {
            !std::mem::replace(&mut self.state.lock().syncing, true)
        });
        let from = self.durable.load(Ordering::Acquire);
        let to = self.written.load(Ordering::Acquire);
        let result = self.rt.health.check_writable().and_then(|()| {
            self.rt.step();
            self.segments.sync(Lsn(from), Lsn(to)).map_err(|error| self.fail(error))
        });
        if result.is_ok() {
            self.durable.fetch_max(to, Ordering::AcqRel);
        }
        self.state.lock().syncing = false;
        self.sync_free.notify();
        result
    }

    /// The sync of modes 0 and 2.
    fn lazy_sync(&self) -> Result<()> {
        // Commits from here on start a second of their own.
        self.lazy_since.store(0, Ordering::Release);
        let end = self.end.load(Ordering::Acquire);
        self.wait(Lsn(end.saturating_sub(1)), Goal::Written)?;
        self.sync_written()?;
        self.group_done.iter().for_each(|event| event.notify());
        self.lead_next.notify();
        Ok(())
    }

    /// True if half of the buffer waits to be written and nobody writes.
    fn buffer_fills(&self) -> bool {
        let state = self.state.lock();
        let unwritten = state.buffer.end().0 - state.space.written.0;
        !state.leading && unwritten > state.space.buffer / 2
    }
}
