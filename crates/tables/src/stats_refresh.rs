//! Statistics that refresh themselves. Each table counts the rows that were changed since its keys
//! were last analyzed. Beyond a tenth of its rows at that time, and a minimum, it goes on a list,
//! and background beats of a few samples each analyze it again. Nothing is scanned to detect this:
//! an operation adds to one counter. Nothing waits for a refresh, and nothing wakes up while
//! nothing changes.
//!
//! A table is on the list at most once. A table that was analyzed a short time ago stays on the
//! list until enough time has passed; a table that a schema change keeps closed leaves the list and
//! returns after as many changes again.

use crate::statistics::{Drawing, ROWS_DRAWN};
use crate::store::Store;
use crate::table::{SchemaWait, Table};
use crate::transaction::{Access, Isolation};
use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Code, Result};
use evenkeel_sched::Class;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Fewer changes are never worth an analysis, however small the table is.
pub(crate) const CHANGES_MIN: u64 = 2_000;
/// A table is analyzed again after this part of its rows has changed: one in this many.
const SHARE: u64 = 10;
/// Rows sampled in a beat.
const BEAT_DRAWS: usize = 4;
/// The part of the time between two analyses over which the samples of one are spread.
const SPREAD: u32 = 2;

/// What has happened to a table since its keys were analyzed.
pub(crate) struct Changes {
    since: AtomicU64,
    /// The number of changes at which the table is analyzed again.
    due_at: AtomicU64,
    listed: AtomicBool,
    /// When it was last analyzed since the open; 0: not yet.
    looked_ns: AtomicU64,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes {
            since: AtomicU64::new(0),
            due_at: AtomicU64::new(CHANGES_MIN),
            listed: AtomicBool::new(false),
            looked_ns: AtomicU64::new(0),
        }
    }
}

impl Changes {
    /// The table had this many rows when it was analyzed.
    pub fn expect_rows(&self, rows: u64) {
        self.due_at.store((rows / SHARE).max(CHANGES_MIN), Ordering::Relaxed);
    }

    /// No statistics are ever wanted.
    pub fn ignore(&self) {
        self.due_at.store(u64::MAX, Ordering::Relaxed);
    }

    /// All rows are gone.
    pub fn restart(&self) {
        self.since.store(0, Ordering::Relaxed);
        self.expect_rows(0);
    }

    /// Rows changed since the last analysis.
    pub fn count(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    /// The table was analyzed when `before` rows had been changed, and had `rows` rows.
    pub fn looked(&self, before: u64, rows: u64, now_ns: u64) {
        let rest = |since: u64| Some(since.saturating_sub(before));
        let _ = self.since.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        self.expect_rows(rows);
        self.looked_ns.store(now_ns.max(1), Ordering::Relaxed);
    }

    /// The table cannot be analyzed now: the next attempt comes after as many changes again.
    fn put_off(&self) {
        let step = self.due_at.load(Ordering::Relaxed);
        self.due_at.store(self.count().saturating_add(step), Ordering::Relaxed);
    }

    /// Time since the last analysis, if there was one since the open.
    pub fn age_ns(&self, now_ns: u64) -> Option<u64> {
        match self.looked_ns.load(Ordering::Relaxed) {
            0 => None,
            then => Some(now_ns.saturating_sub(then)),
        }
    }
}

impl Table {
    /// Rows inserted, updated and deleted since the statistics of its keys were refreshed, those of
    /// aborted transactions included; counted since the open.
    pub fn changes(&self) -> u64 {
        self.changes.count()
    }
}

/// The list, and the present work of the background.
#[derive(Default)]
pub(crate) struct StatsRefresh {
    listed: Mutex<VecDeque<Arc<Table>>>,
    present: Mutex<Option<Present>>,
}

/// The table that is being analyzed.
struct Present {
    table: Arc<Table>,
    drawing: Drawing,
    /// Not before this time.
    next_ns: u64,
}

impl Store {
    /// Notes that `rows` rows of a table were changed.
    pub(crate) fn note_changes(&self, table: &Arc<Table>, rows: u64) {
        let changes = &table.changes;
        let since = changes.since.fetch_add(rows, Ordering::Relaxed) + rows;
        if since < changes.due_at.load(Ordering::Relaxed)
            || changes.listed.load(Ordering::Relaxed)
            || changes.listed.swap(true, Ordering::AcqRel)
        {
            return;
        }
        self.stats_refresh.listed.lock().push_back(table.clone());
        self.statistics_event().notify();
    }

    /// Time since the statistics of a table's keys were refreshed; none if not since the open.
    pub fn analyzed_ns_ago(&self, table: &Table) -> Option<u64> {
        table.changes.age_ns(self.rt.env.now_ns())
    }

    /// Notified when `statistics_beat` has work: the event of leaf reclamation, whose thread does
    /// it.
    fn statistics_event(&self) -> Arc<evenkeel_io::Event> {
        self.trees.reclaim_event()
    }

    /// How long until the first table on the list is due; none if there is none, or if writes are
    /// not possible.
    pub fn next_statistics_in(&self) -> Option<Duration> {
        self.rt.health.check_user().ok()?;
        if let Some(present) = &*self.stats_refresh.present.lock() {
            let ns = present.next_ns.saturating_sub(self.rt.env.now_ns());
            return Some(Duration::from_nanos(ns));
        }
        let listed = self.stats_refresh.listed.lock();
        listed.iter().map(|table| self.too_early_by(table)).min()
    }

    /// How long to rest between samples. A table that is analyzed again and again is written all
    /// the time, so the load on writers is spread over many seconds. A table without statistics, or
    /// other waiting tables, are worth more haste.
    fn draws_apart(&self, table: &Table) -> Duration {
        let is_first = table.changes.age_ns(self.rt.env.now_ns()).is_none();
        if is_first || !self.stats_refresh.listed.lock().is_empty() {
            return Duration::ZERO;
        }
        self.refresh_every / SPREAD / (ROWS_DRAWN / BEAT_DRAWS) as u32
    }

    fn too_early_by(&self, table: &Table) -> Duration {
        let age = table.changes.age_ns(self.rt.env.now_ns());
        age.map_or(Duration::ZERO, |ns| self.refresh_every.saturating_sub(Duration::from_nanos(ns)))
    }

    /// Samples some rows of a table whose statistics are old.
    ///
    /// # Errors
    /// Of storage; the table is analyzed again after as many changes.
    pub fn statistics_beat(self: &Arc<Self>) -> Result<Beat> {
        if self.rt.health.check_user().is_err() {
            return Ok(Beat::Idle);
        }
        let Some((table, drawing)) = self.take_refresh() else { return Ok(Beat::Idle) };
        let before = evenkeel_runs::block_read_bytes();
        let done = self.refresh_some(&table, drawing);
        let read = evenkeel_runs::block_read_bytes().wrapping_sub(before);
        self.rt.metrics.add(Metric::StatisticsBlockReadBytes, read);
        // Holds neither latch nor snapshot here.
        match self.pages.take_asked_bytes() {
            0 => {}
            bytes => self.sched.ask(Class::Ddl, bytes, false),
        }
        match done {
            Ok(Some(drawing)) => {
                let rest = self.draws_apart(&table).as_nanos() as u64;
                let next_ns = self.rt.env.now_ns() + rest;
                *self.stats_refresh.present.lock() = Some(Present { table, drawing, next_ns });
                return Ok(Beat::More);
            }
            Ok(None) => {}
            Err(_) => table.changes.put_off(),
        }
        table.changes.listed.store(false, Ordering::Release);
        // Changes made meanwhile may make the table due already.
        self.note_changes(&table, 0);
        match done {
            Err(e) if !matches!(e.code(), Code::TableMissing | Code::TableBusy) => Err(e),
            _ => Ok(Beat::More),
        }
    }

    /// The table that is being analyzed, or the next one; none if nothing is due yet.
    fn take_refresh(&self) -> Option<(Arc<Table>, Drawing)> {
        let mut present = self.stats_refresh.present.lock();
        if present.as_ref().is_some_and(|p| p.next_ns > self.rt.env.now_ns()) {
            return None;
        }
        let taken = present.take().map(|p| (p.table, p.drawing));
        drop(present);
        taken.or_else(|| self.begin_refresh())
    }

    fn begin_refresh(&self) -> Option<(Arc<Table>, Drawing)> {
        let mut listed = self.stats_refresh.listed.lock();
        let at = listed.iter().position(|table| self.too_early_by(table).is_zero())?;
        let table = listed.remove(at)?;
        let drawing = Drawing::new(&table);
        Some((table, drawing))
    }

    /// Takes some samples; `None` once the results are kept.
    fn refresh_some(
        self: &Arc<Self>,
        table: &Arc<Table>,
        mut drawing: Drawing,
    ) -> Result<Option<Drawing>> {
        if table.has_moved_on(drawing.state()) {
            drawing = Drawing::new(table);
        }
        let mut txn = self.begin(Isolation::ReadCommitted, Access::ReadOnly);
        txn.set_lock_wait(Duration::ZERO);
        txn.use_table(table)?;
        if txn.draw(table, &mut drawing, BEAT_DRAWS)? {
            return Ok(Some(drawing));
        }
        drop(txn);
        let wait = SchemaWait { timeout: Some(Duration::ZERO), ..SchemaWait::default() };
        self.keep_statistics(table, &drawing, &wait)?;
        self.rt.metrics.add(Metric::StatisticsRefreshed, 1);
        Ok(None)
    }
}
