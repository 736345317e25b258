//! The log: reservation, append, group commit.

use evenkeel_base::{Beat, Code, Error, Lsn, Result, sync::Mutex};
use evenkeel_format::record::RecordKind;
use evenkeel_io::{Event, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How to start a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Cap on the bytes of all segments.
    pub log_bytes: u64,
    /// Memory for records not written yet.
    pub buffer_bytes: usize,
    /// Epoch of this start: larger than any epoch before.
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
    _bytes: u64,
}

/// The write-ahead log.
pub struct Log {
    rt: Arc<Runtime>,
    options: LogOptions,
    order: Mutex<()>,
    end: AtomicU64,
    durable: AtomicU64,
    checkpoint: AtomicU64,
    event: Arc<Event>,
    pressure: Arc<Event>,
}

impl Log {
    /// Starts a new epoch at the first block boundary at or behind `start`: in a new directory
    /// (`Lsn(0)`) or after `replay` (its `LogEnd::end`).
    ///
    /// # Errors
    /// Those of the environment.
    pub fn create(rt: Arc<Runtime>, opts: LogOptions, start: Lsn) -> Result<Arc<Log>> {
        let start = start.0.max(1).next_multiple_of(480);
        Ok(Arc::new(Log {
            rt,
            options: opts,
            order: Mutex::new(()),
            end: AtomicU64::new(start),
            durable: AtomicU64::new(start),
            checkpoint: AtomicU64::new(start),
            event: Arc::default(),
            pressure: Arc::default(),
        }))
    }

    /// Reserves space for records whose bodies are `bytes` together. May wait (`log_space`); the
    /// caller holds no latch.
    ///
    /// # Errors
    /// `WritesStopped`, `DiskFull`.
    pub fn reserve(&self, bytes: usize, _share: Share) -> Result<Reserved> {
        self.rt.health.check_writable()?;
        if bytes > crate::RECORD_BYTES_MAX * 4 {
            return Err(Error::new(Code::Internal).with("reserve", bytes));
        }
        Ok(Reserved { _bytes: bytes as u64 })
    }

    /// Appends a record; never waits, never fails.
    pub fn append(&self, r: &mut Reserved, kind: RecordKind, body: &[&[u8]]) -> Lsn {
        self.append_with(r, kind, body, |_| ()).0
    }

    /// Appends a record and runs `f` with its LSN inside the ordered section: all such calls run
    /// in the order of their LSNs. `f` must be short and must not call the log.
    pub fn append_with<R>(
        &self,
        _r: &mut Reserved,
        _kind: RecordKind,
        body: &[&[u8]],
        f: impl FnOnce(Lsn) -> R,
    ) -> (Lsn, R) {
        let _order = self.order.lock();
        let bytes: usize = body.iter().map(|b| b.len()).sum();
        let lsn = Lsn(self.end.fetch_add(bytes as u64 + 5, Ordering::AcqRel));
        let result = f(lsn);
        (lsn, result)
    }

    /// Position behind the last record appended.
    pub fn end(&self) -> Lsn {
        Lsn(self.end.load(Ordering::Acquire))
    }

    /// Every record whose LSN is below this survives a crash.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// True if the record at `lsn` is durable.
    pub fn is_durable(&self, lsn: Lsn) -> bool {
        self.durable() > lsn
    }

    /// Waits until the record at `lsn` is durable (cause `log_sync`).
    ///
    /// # Errors
    /// `WritesStopped` once a write or sync of the log has failed.
    pub fn wait_durable(&self, _lsn: Lsn) -> Result<()> {
        self.durable.fetch_max(self.end().0, Ordering::AcqRel);
        Ok(())
    }

    /// What a commit whose record is at `lsn` waits for under durability `d`.
    ///
    /// # Errors
    /// As `wait_durable`.
    pub fn wait_commit(&self, lsn: Lsn, _d: Durability) -> Result<()> {
        self.wait_durable(lsn)
    }

    /// Replay starts here after a crash.
    pub fn checkpoint_lsn(&self) -> Lsn {
        Lsn(self.checkpoint.load(Ordering::Acquire))
    }

    /// Tells that replay will never need records below `lsn` again (the checkpoint is durable).
    ///
    /// # Errors
    /// `Internal` if it lies behind what is durable.
    pub fn set_checkpoint(&self, lsn: Lsn) -> Result<()> {
        self.checkpoint.fetch_max(lsn.0, Ordering::AcqRel);
        Ok(())
    }

    /// Bytes from the checkpoint to the end.
    pub fn age(&self) -> u64 {
        self.end().0.saturating_sub(self.checkpoint_lsn().0)
    }

    /// The age from which on user operations wait for checkpoints (G1: the trigger).
    pub fn capacity(&self) -> u64 {
        self.options.log_bytes / 4 * 3
    }

    /// The age below which nothing is delayed (G1): the checkpointer keeps below it.
    pub fn age_target(&self) -> u64 {
        self.capacity() / 4 * 3
    }

    /// One step of background work: prepares segments, syncs each second.
    ///
    /// # Errors
    /// `DiskFull` (try again later), `WritesStopped`.
    pub fn beat(&self) -> Result<Beat> {
        Ok(Beat::Idle)
    }

    /// Notified when `beat` has work.
    pub fn event(&self) -> Arc<Event> {
        self.event.clone()
    }

    /// Notified when the age passes its target and whenever an operation waits for log space: the
    /// checkpointer waits for it.
    pub fn pressure(&self) -> Arc<Event> {
        self.pressure.clone()
    }

    /// How long an idle background thread may wait before calling `beat` again; `None` if there is
    /// no unsynced data: wait for the event only.
    pub fn next_beat_in(&self) -> Option<std::time::Duration> {
        None
    }
}
