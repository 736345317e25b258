//! The progress and the result of a backup, and the backup of a database that runs.

use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, Code, Error, Lsn, Result};
use evenkeel_format::backup::is_note;
use evenkeel_io::{Event, Runtime, Stop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// What a backup has copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// Commits with a timestamp below this are in the backup, and no others.
    pub end: Lsn,
    /// Bytes of the files that the backup stores.
    pub bytes: u64,
    /// Its files.
    pub files: u64,
}

/// What a backup is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum BackupPhase {
    /// It has not begun, or takes its checkpoint.
    #[default]
    Begin = 0,
    /// It copies undo and pages, and the log as it is written.
    Pages,
    /// It copies the files of indexes.
    Runs,
    /// It copies new log, pages and runs until its end is asked for (`BackupProgress::armed`).
    Follow,
    /// It copies the end of the log, and what that names.
    Log,
    /// It makes the copy durable.
    Sync,
    /// It has ended.
    Done,
}

impl BackupPhase {
    const ALL: [BackupPhase; 7] = [
        BackupPhase::Begin,
        BackupPhase::Pages,
        BackupPhase::Runs,
        BackupPhase::Follow,
        BackupPhase::Log,
        BackupPhase::Sync,
        BackupPhase::Done,
    ];

    /// A short name.
    pub const fn name(self) -> &'static str {
        match self {
            BackupPhase::Begin => "begin",
            BackupPhase::Pages => "pages",
            BackupPhase::Runs => "runs",
            BackupPhase::Follow => "follow",
            BackupPhase::Log => "log",
            BackupPhase::Sync => "sync",
            BackupPhase::Done => "done",
        }
    }
}

/// Progress of a backup, and a handle to cancel it from another thread. Clones are handles of the
/// same backup.
#[derive(Clone, Default)]
pub struct BackupProgress {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    phase: AtomicU8,
    bytes: AtomicU64,
    /// Of `bytes`, those that the base of an incremental backup has.
    of_base: AtomicU64,
    expected: AtomicU64,
    stop: Arc<Stop>,
    armed: Option<Armed>,
}

/// The requests to an armed backup, and its answers.
struct Armed {
    is_hurried: AtomicBool,
    /// Bytes to copy; `u64::MAX` before it follows the log.
    left: AtomicU64,
    end: Mutex<End>,
    changed: Arc<Event>,
}

/// The end of an armed backup.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    NotAsked,
    Asked { note: String },
    GivenUp,
    Fixed { lsn: Lsn, note: String },
}

impl BackupProgress {
    /// For a backup that follows the log when it has copied everything, until `end` asks for its
    /// end. A caller may hold commits off from `end` until `end_lsn` answers: no commit then comes
    /// between the request and the end.
    pub fn armed() -> BackupProgress {
        let armed = Armed {
            is_hurried: AtomicBool::new(false),
            left: AtomicU64::new(u64::MAX),
            end: Mutex::new(End::NotAsked),
            changed: Arc::default(),
        };
        BackupProgress { inner: Arc::new(Inner { armed: Some(armed), ..Inner::default() }) }
    }

    /// An armed backup no longer gives way to users: its end is near.
    pub fn hurry(&self) {
        if let Some(armed) = &self.inner.armed {
            armed.is_hurried.store(true, Ordering::SeqCst);
            armed.changed.notify();
        }
    }

    /// Bytes that an armed backup has still to copy; `u64::MAX` before it has copied everything
    /// once.
    pub fn left_bytes(&self) -> u64 {
        self.inner.armed.as_ref().map_or(0, |armed| armed.left.load(Ordering::SeqCst))
    }

    /// Asks an armed backup for its end. The manifest will have the note: one line of printable
    /// characters, or nothing.
    pub fn end(&self, note: &str) {
        let Some(armed) = &self.inner.armed else { return };
        {
            let mut end = armed.end.lock();
            if *end == End::NotAsked {
                *end = End::Asked { note: note.to_string() };
            }
        }
        self.hurry();
    }

    /// The end of an armed backup, as soon as it is fixed: commits with a timestamp below are in
    /// it. Files that no longer change are copied behind it.
    pub fn end_lsn(&self) -> Option<Lsn> {
        match &*self.inner.armed.as_ref()?.end.lock() {
            End::Fixed { lsn, .. } => Some(*lsn),
            _ => None,
        }
    }

    /// Takes the request for the end back, and cancels the backup; false if the end is fixed.
    pub fn give_up(&self) -> bool {
        let Some(armed) = &self.inner.armed else { return false };
        {
            let mut end = armed.end.lock();
            if matches!(*end, End::Fixed { .. }) {
                return false;
            }
            *end = End::GivenUp;
        }
        self.cancel();
        true
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.inner.armed.is_some()
    }

    pub(crate) fn is_hurried(&self) -> bool {
        self.inner.armed.as_ref().is_some_and(|armed| armed.is_hurried.load(Ordering::SeqCst))
    }

    pub(crate) fn is_asked_for_end(&self) -> bool {
        let is_asked = |armed: &Armed| *armed.end.lock() != End::NotAsked;
        self.inner.armed.as_ref().is_some_and(is_asked)
    }

    pub(crate) fn leave(&self, bytes: u64) {
        if let Some(armed) = &self.inner.armed {
            armed.left.store(bytes, Ordering::SeqCst);
        }
    }

    /// `hurry`, `end`, `give_up` and `cancel` notify this event.
    pub(crate) fn changed(&self) -> Option<&Arc<Event>> {
        self.inner.armed.as_ref().map(|armed| &armed.changed)
    }

    /// Fixes the end of an armed backup.
    ///
    /// # Errors
    /// `StatementCancelled` if the request was taken back.
    pub(crate) fn fix(&self, lsn: Lsn) -> Result<()> {
        let Some(armed) = &self.inner.armed else { return Ok(()) };
        let mut end = armed.end.lock();
        match &*end {
            End::Asked { note } => {
                *end = End::Fixed { lsn, note: note.clone() };
                Ok(())
            }
            _ => Err(Error::new(Code::StatementCancelled)),
        }
    }

    /// The note that belongs to the end.
    pub(crate) fn note(&self) -> Option<String> {
        match &*self.inner.armed.as_ref()?.end.lock() {
            End::Fixed { note, .. } => Some(note.clone()).filter(|note| is_note(note)),
            _ => None,
        }
    }

    /// What it is doing.
    pub fn phase(&self) -> BackupPhase {
        BackupPhase::ALL[usize::from(self.inner.phase.load(Ordering::Relaxed))]
    }

    /// Bytes copied so far; of an incremental backup also those that it has left to its base.
    pub fn bytes(&self) -> u64 {
        self.inner.bytes.load(Ordering::Relaxed)
    }

    /// Of `bytes`, those that an incremental backup has left to its base, because they have not
    /// changed.
    pub fn bytes_of_base(&self) -> u64 {
        self.inner.of_base.load(Ordering::Relaxed)
    }

    /// Bytes of pages and indexes to copy, estimated at the beginning; the log comes on top.
    pub fn bytes_expected(&self) -> u64 {
        self.inner.expected.load(Ordering::Relaxed).max(self.bytes())
    }

    /// Asks the backup to end: it ends within a second, with `StatementCancelled`.
    pub fn cancel(&self) {
        self.inner.stop.ask();
        if let Some(armed) = &self.inner.armed {
            armed.changed.notify();
        }
    }

    /// True after `cancel`.
    pub fn is_cancelled(&self) -> bool {
        self.inner.stop.is_asked()
    }

    pub(crate) fn stop(&self) -> Arc<Stop> {
        self.inner.stop.clone()
    }

    pub(crate) fn enter(&self, phase: BackupPhase) {
        self.inner.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.inner.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn leave_to_base(&self, bytes: u64) {
        self.inner.of_base.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn expect(&self, bytes: u64) {
        self.inner.expected.store(bytes, Ordering::Relaxed);
    }

    /// # Errors
    /// `StatementCancelled` after `cancel`.
    pub(crate) fn check(&self) -> Result<()> {
        match self.is_cancelled() {
            true => Err(Error::new(Code::StatementCancelled)),
            false => Ok(()),
        }
    }
}

#[derive(Default)]
struct State {
    /// The destination and the progress.
    running: Option<(String, BackupProgress)>,
    /// The database closes: no further backup begins.
    is_closing: bool,
}

/// The backups of an open database.
#[derive(Default)]
pub(crate) struct Backups {
    state: Mutex<State>,
    ended: Arc<Event>,
}

/// A backup runs until this is dropped.
pub(crate) struct Running<'a> {
    backups: &'a Backups,
    rt: &'a Runtime,
    progress: &'a BackupProgress,
    is_complete: bool,
}

impl Running<'_> {
    /// It has succeeded.
    pub(crate) fn complete(&mut self) {
        self.is_complete = true;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let outcome = match self.is_complete {
            true => Metric::BackupsCompleted,
            false => Metric::BackupsFailed,
        };
        self.rt.metrics.add(outcome, 1);
        self.rt.metrics.set(Metric::BackupsRunning, 0);
        let copied = self.progress.bytes().saturating_sub(self.progress.bytes_of_base());
        self.rt.metrics.add(Metric::BackupBytes, copied);
        self.progress.enter(BackupPhase::Done);
        self.backups.state.lock().running = None;
        self.backups.ended.notify();
    }
}

impl Backups {
    /// Begins a backup.
    ///
    /// # Errors
    /// `BackupRunning` naming the destination of the other one; `DatabaseClosed`.
    pub(crate) fn begin<'a>(
        &'a self,
        rt: &'a Runtime,
        name: &str,
        progress: &'a BackupProgress,
    ) -> Result<Running<'a>> {
        rt.step();
        let mut state = self.state.lock();
        if state.is_closing {
            return Err(Error::new(Code::DatabaseClosed));
        }
        if let Some((other, _)) = &state.running {
            return Err(Error::new(Code::BackupRunning).with("destination", other));
        }
        state.running = Some((name.to_string(), progress.clone()));
        rt.metrics.set(Metric::BackupsRunning, 1);
        Ok(Running { backups: self, rt, progress, is_complete: false })
    }

    /// Cancels the running backup and waits for its end; no other one begins.
    pub(crate) fn close(&self, rt: &Runtime) {
        {
            let mut state = self.state.lock();
            state.is_closing = true;
            if let Some((_, progress)) = &state.running {
                progress.cancel();
            }
        }
        rt.wait_until(&self.ended, Cause::Idle, || self.state.lock().running.is_none());
    }
}
