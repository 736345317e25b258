//! The delete scheduler: returns unneeded storage to the file system a piece at a time, both
//! removed files and dead parts of other files.
//!
//! If the file system reports free blocks to the device at once (ext4 with `discard`), or frees
//! them slowly, the removal of a large file occupies the device for about a millisecond per MiB,
//! during which no commit is synced. So the name is removed at once, and the bytes from the end, a
//! piece at a time; after each piece the thread rests for twice as long as it took. It does not
//! rest while much is waiting, or while the disk is full.
//!
//! Invariants: only storage without readers is passed here. A file is cut only after its name is
//! removed durably, so after a crash it is whole or gone, and the file system then frees it by
//! itself. Without a thread that empties the queue (tools, tests of single layers) everything is
//! freed at once. No lock is held across I/O. Any thread may remove files; one thread drives
//! `delete_beat`. While a [`RemovalHold`] exists, files of its directories keep their names and all
//! their bytes: what is removed or freed meanwhile is done when the hold ends (or, after a crash,
//! by the next open, which removes the files that nothing names).

use crate::{Env, File, OpenMode, Runtime};
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Cause, Code, Result, metrics::Metric};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

/// Bytes freed at once; a file of at most this size is removed at once.
pub(crate) const PIECE_BYTES: u64 = 2 << 20;
/// While more than this waits the thread does not rest.
const WAITING_BYTES_MAX: u64 = 256 << 20;
/// Removed files that are kept open, at most; further ones are removed at once.
pub(crate) const FILES_MAX: usize = 64;
/// After a piece the thread rests this many times as long as it took, up to the limit.
const REST: u32 = 2;
const REST_MAX: Duration = Duration::from_millis(100);

/// Bytes of a file to free, from the end.
struct Item {
    what: What,
    range: Range<u64>,
}

enum What {
    /// A part of a file that keeps its name and its length, unless the file is removed meanwhile.
    Part(String),
    /// A file whose name was removed from this directory, possibly not durably yet.
    Unnamed(Arc<dyn File>, String),
    /// One whose name is gone: it is cut.
    Gone(Arc<dyn File>),
}

impl Item {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Gives the last piece back.
    fn give_piece(&mut self, env: &dyn Env) -> Result<()> {
        let piece = self.bytes().min(PIECE_BYTES);
        let from = self.range.end - piece;
        match &self.what {
            What::Part(path) => open(env, path)?.punch(from, piece)?,
            What::Unnamed(file, _) | What::Gone(file) => file.set_len(from)?,
        }
        self.range.end = from;
        Ok(())
    }
}

fn open(env: &dyn Env, path: &str) -> Result<Arc<dyn File>> {
    env.open(path, OpenMode { write: true, ..OpenMode::READ })
}

/// A removal that waits for the end of a hold.
enum Held {
    File(String),
    Part(String, Range<u64>),
}

impl Held {
    fn path(&self) -> &str {
        match self {
            Held::File(path) | Held::Part(path, _) => path,
        }
    }
}

/// The directories of a hold, and what waits for its end.
struct Holding {
    dirs: &'static [&'static str],
    held: Vec<Held>,
}

/// Keeps the files of some directories as they are until it is dropped.
pub struct RemovalHold(Arc<Runtime>);

impl Drop for RemovalHold {
    fn drop(&mut self) {
        let held = self.0.trash.holding.lock().take().map_or(Vec::new(), |holding| holding.held);
        // After a failed write the next open decides what is needed.
        for one in held.into_iter().take_while(|_| !self.0.health.is_failed()) {
            let path = one.path().to_string();
            let done = match one {
                Held::File(path) => self.0.remove_file(&path),
                Held::Part(path, range) => self.0.punch_file(&path, range),
            };
            // The file of a part may be removed by now.
            if let Err(error) = done
                && error.code() != Code::FileMissing
            {
                log::warn!("{path}: not removed after a backup, goes at the next start: {error}");
            }
        }
    }
}

/// What waits to be given back.
#[derive(Default)]
pub(crate) struct DeleteScheduler {
    items: Mutex<VecDeque<Item>>,
    /// A reader of whole files keeps them.
    holding: Mutex<Option<Holding>>,
    /// A thread empties the queue.
    has_thread: AtomicBool,
    event: Arc<crate::Event>,
}

impl Runtime {
    /// Keeps the files of these directories until the result is dropped; none if they are kept
    /// already.
    pub fn hold_removals(
        self: &Arc<Runtime>,
        dirs: &'static [&'static str],
    ) -> Option<RemovalHold> {
        let mut holding = self.trash.holding.lock();
        if holding.is_some() {
            return None;
        }
        *holding = Some(Holding { dirs, held: Vec::new() });
        Some(RemovalHold(self.clone()))
    }

    /// Passes a removal to the hold, if there is one for its directory.
    fn hold(&self, removal: Held) -> Option<Held> {
        if fault_injection::is(Fault::RemovalNotHeld) {
            return Some(removal);
        }
        match &mut *self.trash.holding.lock() {
            Some(holding)
                if removal
                    .path()
                    .rsplit_once('/')
                    .is_some_and(|(dir, _)| holding.dirs.contains(&dir)) =>
            {
                holding.held.push(removal);
                None
            }
            _ => Some(removal),
        }
    }

    /// Removes a file without future readers: its name at once, its bytes in pieces if a thread
    /// does that.
    ///
    /// # Errors
    /// As `Env::remove`.
    pub fn remove_file(&self, path: &str) -> Result<()> {
        if self.hold(Held::File(path.to_string())).is_none() {
            return Ok(());
        }
        if !self.trash.has_thread.load(Acquire) {
            return self.env.remove(path);
        }
        // Removed at once if it cannot be opened, is small, or many are open already.
        let opened = open(&*self.env, path).and_then(|file| file.len().map(|len| (file, len)));
        self.env.remove(path)?;
        let is_unnamed = |item: &&Item| !matches!(item.what, What::Part(_));
        if let Ok((file, len)) = opened
            && len > PIECE_BYTES
            && self.trash.items.lock().iter().filter(is_unnamed).count() < FILES_MAX
        {
            let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
            let what = What::Unnamed(file, dir.to_string());
            self.throw_away(Item { what, range: 0..len });
        }
        Ok(())
    }

    /// Frees a part of a file without future readers, in pieces as `remove_file`.
    ///
    /// # Errors
    /// As `Env::open` and `File::punch`, if no thread does it.
    pub fn punch_file(&self, path: &str, range: Range<u64>) -> Result<()> {
        if self.hold(Held::Part(path.to_string(), range.clone())).is_none() {
            return Ok(());
        }
        if !self.trash.has_thread.load(Acquire) {
            return open(&*self.env, path)?.punch(range.start, range.end - range.start);
        }
        if !range.is_empty() {
            self.throw_away(Item { what: What::Part(path.to_string()), range });
        }
        Ok(())
    }

    fn throw_away(&self, item: Item) {
        self.metrics.add(Metric::PendingDeleteBytes, item.bytes());
        self.trash.items.lock().push_back(item);
        self.trash.event.notify();
    }

    /// From now on a thread calls `delete_beat` on this event, until `stop_deletes`.
    pub fn start_deletes(&self) -> Arc<crate::Event> {
        self.trash.has_thread.store(true, Release);
        self.trash.event.clone()
    }

    /// The thread has ended: everything waiting is freed at once, because after the next open
    /// nothing would free the dead parts of living files.
    pub fn stop_deletes(&self) {
        self.trash.has_thread.store(false, Release);
        let left = std::mem::take(&mut *self.trash.items.lock());
        self.metrics.sub(Metric::PendingDeleteBytes, left.iter().map(Item::bytes).sum());
        for mut item in left {
            let is_part = matches!(item.what, What::Part(_)) && !self.health.is_failed();
            while is_part && item.bytes() > 0 && item.give_piece(&*self.env).is_ok() {}
        }
    }

    /// Frees one piece, and rests. Pieces that cannot be freed are left to the file system.
    ///
    /// # Errors
    /// Of a directory that cannot be synced (writes have then stopped). `SystemLimit`: call again.
    pub fn delete_beat(&self) -> Result<Beat> {
        if self.health.is_failed() {
            return Ok(Beat::Idle);
        }
        let Some(mut item) = self.trash.items.lock().pop_front() else { return Ok(Beat::Idle) };
        let before = item.bytes();
        if let What::Unnamed(file, dir) = &item.what {
            if let Err(error) = self.env.sync_dir(dir) {
                self.metrics.sub(Metric::PendingDeleteBytes, before);
                return Err(self.health.fail(error));
            }
            item.what = What::Gone(file.clone());
        }
        let left = match self.give_back(|| item.give_piece(&*self.env)) {
            Ok(()) => item.bytes(),
            Err(error) if error.code().is_shortage() => {
                self.trash.items.lock().push_front(item);
                return Err(error);
            }
            Err(error) => {
                // A file that was removed meanwhile has no dead parts any more.
                if error.code() != Code::FileMissing {
                    log::warn!("bytes are not given back: {error}");
                }
                0
            }
        };
        self.metrics.sub(Metric::PendingDeleteBytes, before - left);
        if left > 0 {
            self.trash.items.lock().push_front(item);
        }
        Ok(Beat::More)
    }

    /// Runs work that frees storage, and rests afterwards.
    pub fn give_back<R>(&self, work: impl FnOnce() -> R) -> R {
        let start = self.env.now_ns();
        let done = work();
        let took = Duration::from_nanos(self.env.now_ns().saturating_sub(start));
        let is_much = self.metrics.get(Metric::PendingDeleteBytes) > WAITING_BYTES_MAX;
        if !is_much && self.health.check_user().is_ok() {
            self.delay((took * REST).min(REST_MAX), Cause::Idle);
        }
        done
    }
}
