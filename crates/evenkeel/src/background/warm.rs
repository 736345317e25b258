//! Hot pages over a restart: a file keeps the list of pages in use. It is written at a clean close
//! and periodically after a checkpoint, and a thread of the next open reads the pages in. The list
//! is only a hint: a missing or damaged list, or one that cannot be written, changes nothing else,
//! and a database with next to no pages in use has neither file nor thread.

use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Code, Error, PageNo, Result, metrics::Metric};
use evenkeel_format::warm::{self, FILE_BYTES_MAX, PAGES_MAX};
use evenkeel_io::{OpenMode, Runtime};
use evenkeel_pages::Pages;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Name of the file.
pub(crate) const WARM_FILE: &str = "evenkeel.warm";
/// Its name while it is written.
pub(crate) const NEW_FILE: &str = "evenkeel.warm.new";
/// The least age of a list before the next one is written while the database is open.
const SAVE_AGAIN_NS: u64 = 60_000_000_000;
/// With fewer pages in use no file is written.
const PAGES_MIN: usize = 16;

/// The state of the reading.
enum Left {
    /// The file was not read yet.
    Unread,
    /// These pages are left, from an index on.
    Pages(Vec<PageNo>, usize),
    /// Nothing is left.
    Nothing,
}

/// Keeps the list, and reads its pages in.
pub(crate) struct Warm {
    rt: Arc<Runtime>,
    pages: Arc<Pages>,
    left: Mutex<Left>,
    saved_ns: AtomicU64,
}

impl Warm {
    /// `exists`: a list lies in the directory.
    pub(crate) fn new(rt: &Arc<Runtime>, pages: &Arc<Pages>, exists: bool) -> Warm {
        let left = if exists { Left::Unread } else { Left::Nothing };
        let saved_ns = AtomicU64::new(rt.env.now_ns());
        Warm { rt: rt.clone(), pages: pages.clone(), left: Mutex::new(left), saved_ns }
    }

    /// True while there are pages to read in.
    pub(crate) fn is_due(&self) -> bool {
        !matches!(*self.left.lock(), Left::Nothing)
    }

    /// Reads some pages in. One caller.
    ///
    /// # Errors
    /// None: pages that cannot be read are left to their users.
    pub(crate) fn beat(&self) -> Result<Beat> {
        let left = std::mem::replace(&mut *self.left.lock(), Left::Nothing);
        let (list, at) = match left {
            Left::Nothing => return Ok(Beat::Idle),
            Left::Pages(list, at) => (list, at),
            Left::Unread => match self.read() {
                Ok(list) => (list, 0),
                Err(error) => {
                    log::info!("{WARM_FILE}: nothing is read ahead: {error}");
                    return Ok(Beat::Idle);
                }
            },
        };
        // Put the list back before the beat: a save meanwhile then finds that the reading is not
        // done.
        self.rt.metrics.set(Metric::WarmPagesLeft, (list.len() - at) as u64);
        let ahead: Vec<PageNo> = list[at..].iter().take(64).copied().collect();
        *self.left.lock() = Left::Pages(list, at);
        let looked = self.pages.warm(&ahead);
        let mut left = self.left.lock();
        let more = match (&mut *left, looked) {
            (Left::Pages(list, at), Some(looked)) => {
                *at += looked;
                list.len() - *at
            }
            _ => 0,
        };
        self.rt.metrics.set(Metric::WarmPagesLeft, more as u64);
        if more == 0 {
            *left = Left::Nothing;
            return Ok(Beat::Idle);
        }
        Ok(Beat::More)
    }

    fn read(&self) -> Result<Vec<PageNo>> {
        let file = self.rt.env.open(WARM_FILE, OpenMode::READ)?;
        let len = file.len()?;
        if len > FILE_BYTES_MAX as u64 {
            return Err(Error::new(Code::BadEncoding).with("bytes", len));
        }
        let mut bytes = vec![0; len as usize];
        file.read_at(&mut bytes, 0)?;
        warm::decode(&bytes, self.rt.database())
    }

    /// Writes the list if the last one is old.
    pub(crate) fn save_if_old(&self) {
        let now = self.rt.env.now_ns();
        if now.saturating_sub(self.saved_ns.load(Relaxed)) >= SAVE_AGAIN_NS {
            self.save();
        }
    }

    /// Writes the list, unless the pages of the last one were not all read in yet.
    pub(crate) fn save(&self) {
        self.saved_ns.store(self.rt.env.now_ns(), Relaxed);
        let hot = if self.is_due() { Vec::new() } else { self.pages.hot_pages(PAGES_MAX) };
        if hot.len() < PAGES_MIN {
            return;
        }
        if let Err(error) = self.write(&warm::encode(&hot, self.rt.database())) {
            log::debug!("{WARM_FILE}: not written: {error}");
        }
    }

    /// Not synced: a list that a crash has damaged does not verify.
    fn write(&self, bytes: &[u8]) -> Result<()> {
        let file = self.rt.env.open(NEW_FILE, OpenMode::READ_WRITE)?;
        file.set_len(0)?;
        file.write_at(bytes, 0)?;
        self.rt.env.rename(NEW_FILE, WARM_FILE)
    }
}
