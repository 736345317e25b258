//! The gate for writers of pages that bypass the log (E3, E4). A backup copies such pages as the
//! log names them; writers that are faster than that copy would keep it from its end. While the
//! backup holds the gate, they write at most as many bytes as it grants, and none before that.
//!
//! A writer passes before each such page and before each record that names pages, holding no latch,
//! no frame and no reservation (B2). A writer that has passed writes one page or one record, so the
//! pages named after the last grant are bounded. No other work waits here: neither logged changes
//! nor commits nor background threads.

use evenkeel_base::{Cause, Result};
use evenkeel_io::{Event, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// The interval at which a waiting writer asks its patience.
const ASKS_EVERY: Duration = Duration::from_millis(100);

/// An error ends the wait of a writer that has waited for so long.
pub type Patience = Arc<dyn Fn(Duration) -> Result<()> + Send + Sync>;

/// The gate of one database. Open unless a backup holds it.
#[derive(Default)]
pub struct UnloggedGate {
    is_held: AtomicBool,
    /// Bytes that may be written yet, while it is held; negative if the last page was larger.
    credit: AtomicI64,
    waiting: AtomicU64,
    changed: Arc<Event>,
}

/// The gate while it is held; opened when this is dropped.
pub struct HeldGate<'a>(&'a UnloggedGate);

impl UnloggedGate {
    /// Holds the gate: no writer passes before `HeldGate::grant`. One holder at a time.
    pub fn hold(&self) -> HeldGate<'_> {
        self.credit.store(0, Ordering::SeqCst);
        self.is_held.store(true, Ordering::SeqCst);
        HeldGate(self)
    }

    /// Writers that wait.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Waits while the gate is held and no credit is left, then takes so many bytes of it.
    ///
    /// # Errors
    /// Those of `patience`; `WritesStopped`, `DiskFull`, `DatabaseClosed`.
    #[inline]
    pub(crate) fn pass(
        &self,
        rt: &Runtime,
        bytes: usize,
        patience: Option<&Patience>,
    ) -> Result<()> {
        match self.is_held.load(Ordering::SeqCst) {
            true => self.pass_held(rt, bytes as i64, patience),
            false => Ok(()),
        }
    }

    #[cold]
    fn pass_held(&self, rt: &Runtime, bytes: i64, patience: Option<&Patience>) -> Result<()> {
        let begun_ns = rt.env.now_ns();
        let _counted = Counted::begin(&self.waiting);
        loop {
            let seen = self.changed.now();
            let take = |credit: i64| (credit > 0).then_some(credit - bytes);
            let took = self.credit.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
            if took.is_ok() || !self.is_held.load(Ordering::SeqCst) {
                return Ok(());
            }
            rt.check_wait()?;
            if let Some(patience) = patience {
                let waited_ns = rt.env.now_ns().saturating_sub(begun_ns);
                patience(Duration::from_nanos(waited_ns))?;
            }
            rt.wait(&self.changed, seen, Some(ASKS_EVERY), Cause::Backup);
        }
    }
}

impl HeldGate<'_> {
    /// Lets writers write so many bytes more.
    pub fn grant(&self, bytes: u64) {
        self.0.credit.fetch_add(bytes as i64, Ordering::SeqCst);
        self.0.changed.notify();
    }

    /// Takes the unused part of grants back.
    pub fn shut(&self) {
        self.0.credit.fetch_min(0, Ordering::SeqCst);
    }
}

impl Drop for HeldGate<'_> {
    fn drop(&mut self) {
        self.0.is_held.store(false, Ordering::SeqCst);
        self.0.changed.notify();
    }
}

struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    fn begin(count: &'a AtomicU64) -> Counted<'a> {
        count.fetch_add(1, Ordering::SeqCst);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
