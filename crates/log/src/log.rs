//! The log: reservation, append, group commit.
//!
//! One short mutex orders appends: position, copy into the buffer, and the caller's closure.
//! Waiting for space is in `admission`, waiting for durability in `commit`.
//!
//! After the first failed write or sync the log is latched (`rt.health`): nothing more is written,
//! appends still succeed, waits fail.

use crate::buffer::Buffer;
use crate::commit::SyncGoal;
use crate::segments::{Activity, Segments};
use crate::shared::{LogState, Shared};
use crate::space::{FRAMES, Lack, Limits, LogSpace, Share, payload};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Cause, Error, Lsn, Result, sync::Mutex};
use evenkeel_format::record::RecordKind;
use evenkeel_format::wal::{self, BLOCK, BLOCKS_ALIGN, FRAME, PAYLOAD, lsn_of};
use evenkeel_io::{Cancellation, Event, Runtime};
use evenkeel_sched::laws::log_space::{Throttle, throttle};
use evenkeel_sched::laws::target;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How to start a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Cap on the bytes of all segments.
    pub log_bytes: u64,
    /// Memory for records not written yet; more than the largest reservation of users.
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

impl Log {
    /// Starts a new epoch at the first block boundary at or behind `start`: in a new directory
    /// (`Lsn(0)`) or after `replay` (exactly its `LogEnd::end`). Everything below is synced first,
    /// then the first block of the epoch. The checkpoint is assumed at the beginning of the oldest
    /// segment until `set_checkpoint` is called.
    ///
    /// # Errors
    /// Those of the environment; `LogMissing`, `LogDamaged`, `LogVersion`.
    pub fn create(rt: Arc<Runtime>, opts: LogOptions, start: Lsn) -> Result<Arc<Log>> {
        Log::create_aligned(rt, opts, start, 1)
    }

    /// As `create`, with writes through the system's page cache: if commits wait only for the write
    /// (mode 2), the write then costs a copy instead of an access to the device.
    ///
    /// # Errors
    /// As `create`.
    pub fn create_buffered(rt: Arc<Runtime>, opts: LogOptions, start: Lsn) -> Result<Arc<Log>> {
        Log::begin(rt, opts, start, 1, false)
    }

    /// As `create`, with writes padded to at least `align_blocks` blocks, to measure that cost.
    #[doc(hidden)]
    pub fn create_aligned(
        rt: Arc<Runtime>,
        opts: LogOptions,
        from: Lsn,
        align_blocks: u64,
    ) -> Result<Arc<Log>> {
        Log::begin(rt, opts, from, align_blocks, true)
    }

    fn begin(
        rt: Arc<Runtime>,
        opts: LogOptions,
        from: Lsn,
        align_blocks: u64,
        direct: bool,
    ) -> Result<Arc<Log>> {
        assert!(opts.epoch != 0, "epoch 0 means none");
        let (segments, oldest) = Segments::open(&rt, opts.log_bytes, from, align_blocks, direct)?;
        let align = segments.align();
        // Block 0 stays unused: LSN 0 means "none".
        let start = from.0.div_ceil(PAYLOAD as u64).max(1).next_multiple_of(align);
        let start_lsn = lsn_of(start);
        let limits = Limits::of_log(opts.log_bytes);
        let buffer_blocks = (opts.buffer_bytes / BLOCK) as u64;
        let chunk_blocks = (buffer_blocks / 16 / BLOCKS_ALIGN * BLOCKS_ALIGN).clamp(8, 512);
        let buffer_bytes = payload(buffer_blocks * BLOCK as u64).max(chunk_blocks * 4 * 480);
        let buffer = Buffer::new(chunk_blocks as usize, start);
        let mut space = LogSpace::new(limits, start_lsn, align * PAYLOAD as u64, buffer_bytes);
        space.found(oldest, start_lsn);
        let shared = Shared {
            rt,
            epoch: opts.epoch,
            start: (start, from),
            user_limit: AtomicU64::new(space.limits.user()),
            capacity: AtomicU64::new(space.capacity()),
            segments,
            state: Mutex::new(LogState::new(buffer, space)),
            queues: Default::default(),
            end: AtomicU64::new(start_lsn.0),
            written: AtomicU64::new(start_lsn.0),
            // Blocks of the first write must not state that the gap before them is durable.
            durable: AtomicU64::new(from.0),
            checkpoint: AtomicU64::new(oldest.0),
            lazy_since: AtomicU64::new(0),
            watch: Mutex::default(),
            work: Arc::default(),
            pressure: Arc::default(),
            pressure_at: AtomicU64::new(0),
            group_done: Default::default(),
            lead_next: Arc::default(),
            sync_free: Arc::default(),
        };
        shared.prepare_first()?;
        // The epoch is on disk before anything relies on it: old blocks behind never count again.
        shared.state.lock().buffer.put_empty_block();
        shared.try_lead(true)?;
        let shared = Arc::new(shared);
        let weak = Arc::downgrade(&shared);
        shared.rt.health.on_failure(move || {
            if let Some(shared) = weak.upgrade() {
                shared.wake_all();
            }
        });
        Ok(Arc::new(Log { shared }))
    }

    /// Reserves space for records whose bodies have `bytes` together. May wait (`log_space`); the
    /// caller holds no latch. Users that free space (`Runtime::freeing`) use the system's share.
    ///
    /// # Errors
    /// `WritesStopped`; `DiskFull` if no segment can be prepared, or users are refused for that;
    /// `LogTooLarge`; `LogFull`; `DatabaseClosed` if it would have to wait.
    pub fn reserve(&self, bytes: usize, share: Share) -> Result<Reserved> {
        self.reserve_with(bytes, share, None)
    }

    /// As `reserve`, for a statement: a cancellation ends its wait.
    ///
    /// # Errors
    /// As `reserve`; `StatementCancelled`.
    pub fn reserve_cancellable(
        &self,
        bytes: usize,
        share: Share,
        cancellation: &Cancellation,
    ) -> Result<Reserved> {
        self.reserve_with(bytes, share, Some(cancellation))
    }

    fn reserve_with(
        &self,
        bytes: usize,
        share: Share,
        cancellation: Option<&Cancellation>,
    ) -> Result<Reserved> {
        let s = &self.shared;
        let share = match share {
            Share::User | Share::Within if s.rt.is_freeing() => Share::System,
            share => share,
        };
        match share {
            Share::User | Share::Within => s.rt.check_write()?,
            Share::System | Share::Checkpoint => s.rt.health.check_writable()?,
        }
        let n = bytes as u64 + FRAMES;
        if share == Share::User {
            // Reservations of others matter only to a reservation that waits.
            let inputs = [s.user_limit.load(Ordering::Acquire), self.age(), 0, n];
            let said = throttle(inputs);
            if said.delay_ns > 0 {
                s.note_throttle(inputs, said);
                s.rt.delay(Duration::from_nanos(said.delay_ns), Cause::LogSpace);
            }
        }
        let (admitted, refused) = {
            let mut state = s.state.lock();
            state.check_size(share, n)?;
            let is_first = s.queues[share as usize].is_empty();
            let lack = if is_first { state.admit(share, n) } else { None };
            let waits = lack.and_then(Lack::of_age).filter(|_| share == Share::User);
            let inputs = || state.space.numbers(state.buffer.end(), n);
            (is_first && lack.is_none(), waits.map(|waits| (waits, inputs())))
        };
        if !admitted {
            if let Some((waits, inputs)) = refused {
                s.note_throttle(inputs, Throttle { waits, ..throttle(inputs) });
            }
            s.reserve_waiting(share, n, cancellation)?;
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
        let end = state.buffer.end().0;
        s.end.store(end, Ordering::Release);
        let result = f(lsn);
        drop(state);
        if end >= s.pressure_at.load(Ordering::Relaxed)
            && s.pressure_at.swap(u64::MAX, Ordering::SeqCst) != u64::MAX
        {
            s.pressure.notify();
        }
        s.rt.metrics.add(Metric::LogRecords, 1);
        (lsn, result)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
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
        self.shared.wait(lsn, SyncGoal::Durable)
    }

    /// Waits as long as durability `d` demands for a commit (or another outcome) whose record is at
    /// `lsn`.
    ///
    /// # Errors
    /// As `wait_durable`.
    pub fn wait_commit(&self, lsn: Lsn, d: Durability) -> Result<()> {
        let s = &self.shared;
        match d {
            Durability::Sync
                if evenkeel_base::fault_injection::is(
                    evenkeel_base::fault_injection::Fault::AcknowledgedEarly,
                ) =>
            {
                return Ok(());
            }
            Durability::Sync => return s.wait(lsn, SyncGoal::Durable),
            Durability::Write => s.wait(lsn, SyncGoal::Written)?,
            Durability::Lazy => s.rt.health.check_writable()?,
        }
        let now = s.rt.env.now_ns().max(1);
        if s.lazy_since.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            s.work.notify();
        }
        Ok(())
    }

    /// Panics if log space is reserved that no operation can hold any more; `has_prepared`:
    /// prepared transactions hold some. For a log without users, in debug builds.
    #[cfg(debug_assertions)]
    pub fn check_unused(&self, has_prepared: bool) {
        let (users, others) = self.shared.state.lock().space.reserved();
        assert_eq!(users, 0, "bytes of the log reserved for users");
        assert!(has_prepared || others == 0, "{others} bytes of the log are reserved");
    }

    /// Replay starts here after a crash.
    pub fn checkpoint_lsn(&self) -> Lsn {
        Lsn(self.shared.checkpoint.load(Ordering::Acquire))
    }

    /// Declares that replay will never need records below `lsn` again (the checkpoint is durable).
    /// Segments below may be recycled; waiting operations continue.
    ///
    /// # Errors
    /// `Internal` if `lsn` is not durable itself.
    pub fn set_checkpoint(&self, lsn: Lsn) -> Result<()> {
        if lsn > self.durable() {
            return Err(Error::internal("checkpoint ahead of the durable log").with("lsn", lsn));
        }
        let s = &self.shared;
        s.checkpoint.fetch_max(lsn.0, Ordering::AcqRel);
        {
            let mut state = s.state.lock();
            let end = state.buffer.end();
            state.space.move_checkpoint(lsn, end);
            s.note_limits(&state);
        }
        s.wake_first();
        // A segment that became recyclable may go in a minute (`rest`).
        if s.wants_segment() || s.has_surplus() || s.segments.has_recyclable(lsn) {
            s.work.notify();
        }
        Ok(())
    }

    /// Changes the limit of the bytes of all segments. A greater limit applies at once. A lower
    /// limit is reached as checkpoints advance: users continue meanwhile with half of the space
    /// that those free, and then `beat` removes the segments that are too many, or too large for
    /// this size. A waiting reservation that is now too large fails with `LogTooLarge`.
    pub fn set_log_bytes(&self, log_bytes: u64) {
        let s = &self.shared;
        s.segments.set_log_bytes(log_bytes);
        {
            let mut state = s.state.lock();
            let end = state.buffer.end();
            state.space.set_limits(Limits::of_log(log_bytes), end);
            s.note_limits(&state);
        }
        s.wake_waiting();
        s.work.notify();
        s.pressure.notify();
    }

    /// Removes all segments but those between the checkpoint and the end. Nothing is appended
    /// afterwards; the caller has stopped the thread that calls `beat`.
    ///
    /// # Errors
    /// Those of the environment. What is left is a log in order.
    pub fn shrink_for_close(&self) -> Result<()> {
        let s = &self.shared;
        s.segments.set_activity(Activity::Closing);
        s.segments.drop_growing()?;
        while s.has_surplus() && s.give_back()? {}
        Ok(())
    }

    /// Bytes from the checkpoint to the end.
    pub fn age(&self) -> u64 {
        self.end().0.saturating_sub(self.checkpoint_lsn().0)
    }

    /// The age at which user operations wait for checkpoints (G1: the trigger), once a log that is
    /// too old for its size has become younger.
    pub fn capacity(&self) -> u64 {
        self.shared.capacity.load(Ordering::Acquire)
    }

    /// The age below which nothing is delayed (G1): the checkpointer keeps below it.
    pub fn age_target(&self) -> u64 {
        target(self.capacity())
    }

    /// One step of background work: prepares segments ahead, removes excess ones, writes a filling
    /// buffer, syncs commits of modes 0 and 2 after a second. After `Idle` the caller waits for
    /// `event()`, at most `next_beat_in()`.
    ///
    /// # Errors
    /// `DiskFull`: call again when space may be available. `WritesStopped` after a failure.
    pub fn beat(&self) -> Result<Beat> {
        let s = &self.shared;
        s.rt.health.check_writable()?;
        s.watch_rest();
        if s.buffer_fills() && s.try_lead(false)? {
            return Ok(Beat::More);
        }
        if s.lazy_sync_in() == Some(Duration::ZERO) {
            s.lazy_sync()?;
            return Ok(Beat::More);
        }
        if s.wants_segment() && s.prepare()? {
            return Ok(Beat::More);
        }
        if s.has_surplus() && s.give_back()? {
            return Ok(Beat::More);
        }
        Ok(Beat::Idle)
    }

    /// Notified when `beat` has work.
    pub fn event(&self) -> Arc<Event> {
        self.shared.work.clone()
    }

    /// How long the thread that calls `beat` may wait for the event after `Idle`; `None`: for ever
    /// (nothing is unsynced, and a log at rest has nothing to give back).
    pub fn next_beat_in(&self) -> Option<Duration> {
        let s = &self.shared;
        [s.lazy_sync_in(), s.rest_in()].into_iter().flatten().min()
    }

    /// The event of the checkpointer. Notified when the end passes the position of `wake_at`, when
    /// an operation waits for log space, and whenever the actors that hold the checkpoint up (dirty
    /// pages, generations) have advanced.
    pub fn pressure(&self) -> Arc<Event> {
        self.shared.pressure.clone()
    }

    /// Wakes the checkpointer when the end of the log passes `lsn`.
    pub fn wake_at(&self, lsn: Lsn) {
        self.shared.pressure_at.store(lsn.0, Ordering::SeqCst);
        if self.end() >= lsn && self.shared.pressure_at.swap(u64::MAX, Ordering::SeqCst) != u64::MAX
        {
            self.shared.pressure.notify();
        }
    }

    /// The checkpoint that operations waiting for log space need now; `None` if none waits for
    /// that.
    pub fn needed(&self) -> Option<Lsn> {
        self.shared.needed()
    }
}
impl Drop for Reserved {
    fn drop(&mut self) {
        self.shared.state.lock().space.give_back(self.share, self.left);
        self.shared.wake_first();
    }
}
