//! The progress of a build, as other threads see it.
//!
//! A build consists of four kinds of work: reading the table, writing runs, joining the runs of an
//! index that has too many, and the pass that proves an index unique. Which indexes need joining is
//! known only when all runs are written, but is foreseen from the first rows on. The reported share
//! never goes back: if the plan grows, the remaining share stands for more work than before and
//! grows more slowly.

use super::BuildPhase;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Code, Error, Result};
use evenkeel_io::{Event, Stop};
use evenkeel_txn::TxnRef;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// Joining runs reads and writes each entry.
const MERGE_WEIGHT: f64 = 2.0;
/// One thread proves, several write.
const PROOF_WEIGHT: f64 = 1.5;

/// Progress of a build, and a handle to cancel it from another thread. Clones are handles of the
/// same build.
#[derive(Clone, Default)]
pub struct BuildProgress {
    pub(super) inner: Arc<Progress>,
}

#[derive(Default)]
pub(super) struct Progress {
    phase: AtomicU8,
    /// Rows read, and rows of which all entries are written.
    read: Pace,
    written: Pace,
    /// Entries joined, and entries that the proof of uniqueness has passed.
    merged: Pace,
    checked: Pace,
    rows_total: AtomicU64,
    /// Rows and joined entries of the tables before the present one, and the estimated rows of the
    /// tables after it.
    rows_before: AtomicU64,
    merged_before: AtomicU64,
    rows_behind: AtomicU64,
    /// Indexes being built, those of them whose runs have to be joined as far as is known, and
    /// those proved unique.
    indexes: AtomicU64,
    to_merge: AtomicU64,
    to_check: AtomicU64,
    /// Entries that the proof meets beyond one for each row read, from rows that came meanwhile: in
    /// all, and in the tables before.
    came: AtomicU64,
    came_before: AtomicU64,
    told: Mutex<Told>,
    stop: Arc<Stop>,
    /// Clustered key of a row whose unique key another row has.
    pub(super) duplicate: Mutex<Vec<u8>>,
    /// The table of that row.
    pub(super) duplicate_in: Mutex<String>,
    /// The event that the build waits for; `cancel` notifies it.
    pub(super) waits_for: Mutex<Option<Arc<Event>>>,
    /// The transaction that inserts rows of a copy now; `cancel` ends its waits.
    inserter: Mutex<Option<TxnRef>>,
    /// Notified when another phase begins.
    pub(super) entered: Arc<Event>,
    /// Timeout of the wait for each transaction, if not the store's.
    pub(super) lock_wait: Mutex<Option<Duration>>,
}

/// Until a build is complete this much of the work may be left that the plan does not know: entries
/// that came during the proof, a join of runs that writers made.
const UNKNOWN: f64 = 1e-3;

/// The last report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Told {
    share: f64,
    /// What each kind of work had done then.
    done: [u64; 4],
}

impl Told {
    /// The share when each kind of work has done `done` (weighted by `weights`) and `left` remains
    /// of all. New work takes its part of the remaining share: for a plan that does not change the
    /// share is done / (done + left).
    fn tell(&mut self, done: [u64; 4], weights: [f64; 4], left: f64) -> f64 {
        let weigh = |counts: [u64; 4]| -> f64 {
            counts.iter().zip(weights).map(|(count, weight)| *count as f64 * weight).sum()
        };
        let more = weigh(done) - weigh(self.done);
        let left = left.max(UNKNOWN * (left + weigh(done)));
        if more > 0.0 {
            self.share += (1.0 - self.share) * more / (more + left);
        }
        // A thread that read the counters earlier may arrive later.
        self.done = std::array::from_fn(|kind| done[kind].max(self.done[kind]));
        self.share
    }
}

/// What a kind of work has done, in rows or entries, and the time for it.
#[derive(Default)]
struct Pace {
    done: AtomicU64,
    ns: AtomicU64,
    /// When the present step of this work began, and the time of earlier steps.
    begun_ns: AtomicU64,
    before_ns: AtomicU64,
}

impl Pace {
    fn begin(&self, now_ns: u64) {
        self.before_ns.store(self.ns.load(Ordering::Relaxed), Ordering::Relaxed);
        self.begun_ns.store(now_ns, Ordering::Relaxed);
    }

    fn add(&self, more: u64, now_ns: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
        let step = now_ns.saturating_sub(self.begun_ns.load(Ordering::Relaxed));
        self.ns.fetch_max(self.before_ns.load(Ordering::Relaxed) + step, Ordering::Relaxed);
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Nanoseconds for each row or entry; none before the first.
    fn ns_for_each(&self) -> Option<f64> {
        let done = self.done();
        (done > 0).then(|| self.ns.load(Ordering::Relaxed) as f64 / done as f64)
    }
}

/// A kind of work as planned: `weight` is the weight of one of its rows or entries.
struct Work<'p> {
    pace: &'p Pace,
    planned: f64,
    weight: f64,
}

impl Work<'_> {
    fn done(&self) -> f64 {
        (self.pace.done() as f64).min(self.planned)
    }
}

impl Progress {
    /// Reading, writing, merging, proving.
    fn work(&self) -> [Work<'_>; 4] {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed) as f64;
        // The total is an estimate.
        let rows = get(&self.rows_total).max(self.read.done() as f64);
        let entry = 1.0 / get(&self.indexes).max(1.0);
        let merged = get(&self.merged_before);
        let to_merge = (rows - get(&self.rows_before)) * get(&self.to_merge);
        let work = |pace, planned, weight| Work { pace, planned, weight };
        [
            work(&self.read, rows, 1.0),
            work(&self.written, rows, 1.0),
            work(&self.merged, merged + to_merge, MERGE_WEIGHT * entry),
            work(&self.checked, rows * get(&self.to_check) + get(&self.came), PROOF_WEIGHT * entry),
        ]
    }
}

impl BuildProgress {
    /// A row of this table has the unique key of another.
    pub(crate) fn tell_duplicate(&self, table: &str, key: &[u8]) {
        *self.inner.duplicate_in.lock() = table.to_string();
        *self.inner.duplicate.lock() = key.to_vec();
    }

    /// The present phase.
    pub fn phase(&self) -> BuildPhase {
        match self.inner.phase.load(Ordering::SeqCst) {
            0 => BuildPhase::Idle,
            1 => BuildPhase::Waiting,
            2 => BuildPhase::Scanning,
            3 => BuildPhase::Writing,
            4 => BuildPhase::Checking,
            _ => BuildPhase::Done,
        }
    }

    /// Sets how long the build waits for each transaction and for another schema change; otherwise
    /// as long as transactions wait for locks.
    pub fn set_lock_wait(&self, lock_wait: Duration) {
        *self.inner.lock_wait.lock() = Some(lock_wait);
    }

    /// Rows read so far.
    pub fn rows_done(&self) -> u64 {
        self.inner.read.done()
    }

    /// Rows whose entries are written so far.
    pub fn rows_written(&self) -> u64 {
        self.inner.written.done()
    }

    /// The share of the work that is done, from 0 to 1: reading, writing, joining runs and proving
    /// uniqueness. It never goes back.
    pub fn share(&self) -> f64 {
        let work = self.inner.work();
        let left = work.iter().map(|work| (work.planned - work.done()) * work.weight).sum::<f64>();
        let done = work.each_ref().map(|work| work.pace.done());
        let mut told = self.inner.told.lock();
        let share = told.tell(done, work.map(|work| work.weight), left);
        // A load of rows in order is complete with its last row.
        if self.phase() == BuildPhase::Done && left <= 0.0 && done[0] > 0 {
            told.share = 1.0;
            return 1.0;
        }
        share
    }

    /// The estimated time left, from the rows that were read, written, joined and proved so far and
    /// their time; none before the first row. (The wait for writers comes before.)
    pub fn time_left(&self) -> Option<Duration> {
        let work = self.inner.work();
        let read_ns = self.inner.read.ns_for_each()?;
        let took: u64 = work.iter().map(|work| work.pace.ns.load(Ordering::Relaxed)).sum();
        let done: f64 = work.iter().map(|work| work.done() * work.weight).sum();
        // Until something is written, writing counts as half the time of reading. Afterwards the
        // remaining work on each entry takes as long as writing it, by its weight, and no less than
        // all that is done: joins and proofs read data again that may have left memory.
        let each_to_come = match self.inner.written.ns_for_each() {
            Some(write_ns) => write_ns.max(took as f64 / done.max(1.0)),
            None => read_ns / 2.0,
        };
        let left = work.iter().map(|work| {
            let each = work.pace.ns_for_each().unwrap_or(each_to_come * work.weight);
            (work.planned - work.done()) * each
        });
        Some(Duration::from_nanos(left.sum::<f64>() as u64))
    }

    /// Rows of the tables: an estimate that improves as rows are read, and then the exact number.
    pub fn rows_total(&self) -> u64 {
        self.inner.rows_total.load(Ordering::Relaxed)
    }

    /// After `DuplicateInBuild`, the clustered key of one of the rows; empty if a concurrent change
    /// brought the duplicate.
    pub fn duplicate(&self) -> Vec<u8> {
        self.inner.duplicate.lock().clone()
    }

    /// After `DuplicateInBuild`, the table that has it.
    pub fn duplicate_in(&self) -> String {
        self.inner.duplicate_in.lock().clone()
    }

    /// Ends the build with `BuildCancelled`; nothing of it remains.
    pub fn cancel(&self) {
        self.inner.stop.ask();
        let event = self.inner.waits_for.lock().clone();
        if let Some(event) = event {
            event.notify();
        }
        let inserter = self.inner.inserter.lock().clone();
        if let Some(inserter) = inserter {
            inserter.cancel();
        }
    }

    /// From now on this transaction inserts rows; `cancel` ends its waits.
    ///
    /// # Errors
    /// `BuildCancelled`, if the build was cancelled before: then nothing would cancel the
    /// transaction.
    pub(crate) fn insert_by(&self, inserter: TxnRef) -> Result<()> {
        *self.inner.inserter.lock() = Some(inserter);
        self.check()
    }

    /// The request of `cancel`: threads of the build then no longer pause.
    pub(crate) fn stop(&self) -> Arc<Stop> {
        self.inner.stop.clone()
    }

    pub(crate) fn begin(&self, phase: BuildPhase, now_ns: u64) {
        self.enter(phase);
        match phase {
            BuildPhase::Scanning => self.inner.read.begin(now_ns),
            BuildPhase::Checking => self.inner.checked.begin(now_ns),
            _ => self.inner.written.begin(now_ns),
        }
    }

    pub(crate) fn add_rows(&self, rows: u64, now_ns: u64) {
        self.inner.read.add(rows, now_ns);
    }

    pub(crate) fn add_written(&self, rows: u64, now_ns: u64) {
        self.inner.written.add(rows, now_ns);
    }

    pub(crate) fn add_merged(&self, entries: u64, now_ns: u64) {
        self.inner.merged.add(entries, now_ns);
    }

    pub(crate) fn add_checked(&self, entries: u64, now_ns: u64) {
        self.inner.checked.add(entries, now_ns);
    }

    /// This many indexes of the present table are proved; writers may have reduced their entries.
    pub(crate) fn checked_all_of(&self, indexes: u64, now_ns: u64) {
        let of = self.inner.to_check.load(Ordering::Relaxed);
        let came_before = self.inner.came_before.load(Ordering::Relaxed);
        let came = self.inner.came.load(Ordering::Relaxed) - came_before;
        let before = self.rows_before() * of + came_before;
        let done = before + indexes * self.rows_total_here() + came * indexes / of.max(1);
        self.add_checked(done.saturating_sub(self.inner.checked.done()), now_ns);
    }

    /// A table begins; the tables after it have about `rows_behind` rows.
    pub(crate) fn begin_table(&self, rows_behind: u64) {
        let set = |to: &AtomicU64, value| to.store(value, Ordering::Relaxed);
        set(&self.inner.rows_before, self.rows_done());
        set(&self.inner.merged_before, self.inner.merged.done());
        set(&self.inner.came_before, self.inner.came.load(Ordering::Relaxed));
        set(&self.inner.rows_behind, rows_behind);
    }

    fn rows_before(&self) -> u64 {
        self.inner.rows_before.load(Ordering::Relaxed)
    }

    /// Rows of the present table read so far.
    pub(crate) fn rows_done_here(&self) -> u64 {
        self.rows_done() - self.rows_before()
    }

    /// Rows of the present table whose entries are written so far.
    pub(crate) fn rows_written_here(&self) -> u64 {
        self.rows_written().saturating_sub(self.rows_before())
    }

    /// Rows of the present table.
    pub(crate) fn rows_total_here(&self) -> u64 {
        let others = self.rows_before() + self.inner.rows_behind.load(Ordering::Relaxed);
        self.rows_total().saturating_sub(others)
    }

    /// Sets the plan: rows of the present table, indexes, and the unique ones of them.
    pub(crate) fn plan(&self, rows: u64, indexes: u64, unique: u64) {
        self.set_total_here(rows);
        self.inner.to_merge.store(0, Ordering::Relaxed);
        self.inner.indexes.store(indexes, Ordering::Relaxed);
        self.inner.to_check.store(unique, Ordering::Relaxed);
    }

    /// Sets the number of rows of the present table.
    pub(crate) fn set_total_here(&self, rows: u64) {
        let others = self.rows_before() + self.inner.rows_behind.load(Ordering::Relaxed);
        self.inner.rows_total.store(others + rows, Ordering::Relaxed);
    }

    /// Foresees that the runs of this many indexes will be joined. The forecast only grows: the
    /// runs of concurrent writers come and go, and a share reported while they are few could not be
    /// taken back.
    pub(crate) fn foresee_merges(&self, indexes: u64) {
        self.inner.to_merge.fetch_max(indexes, Ordering::Relaxed);
    }

    /// Foresees that the proof of the present table will meet this many entries of rows that came
    /// after they were read.
    pub(crate) fn foresee_came(&self, entries: u64) {
        let before = self.inner.came_before.load(Ordering::Relaxed);
        self.inner.came.store(before + entries, Ordering::Relaxed);
    }

    /// All rows of the present table are read and written; the runs of this many indexes are joined
    /// from now on.
    pub(crate) fn begin_merges(&self, indexes: u64, now_ns: u64) {
        self.set_total_here(self.rows_done_here());
        self.inner.to_merge.store(indexes, Ordering::Relaxed);
        self.inner.merged.begin(now_ns);
    }

    /// All is done.
    pub(crate) fn complete(&self) {
        self.inner.told.lock().share = 1.0;
    }

    /// Reports that the build has ended or never began. A build that ran reports its end itself.
    pub fn end(&self) {
        self.enter(BuildPhase::Done);
    }

    pub(crate) fn enter(&self, phase: BuildPhase) {
        self.inner.phase.store(phase as u8, Ordering::SeqCst);
        self.inner.entered.notify();
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.inner.stop.is_asked() {
            true => Err(Error::new(Code::BuildCancelled)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Told;
    use proptest::prelude::*;

    const WEIGHTS: [f64; 4] = [1.0, 2.0, 0.5, 0.25];

    /// `tell` for work of one kind, of weight 1.
    fn tell(told: &mut Told, done: u64, left: f64) -> f64 {
        told.tell([done, 0, 0, 0], WEIGHTS, left)
    }

    #[test]
    fn progress_follows_a_growing_plan() {
        let mut told = Told::default();
        let mut all =
            |steps: [(u64, f64); 2]| steps.map(|(done, left)| tell(&mut told, done, left));
        assert_eq!(all([(0, 10.0), (4, 6.0)]), [0.0, 0.4]);
        // Four times as much is left as was done: a quarter of that is a quarter of the remaining
        // share.
        assert_eq!(all([(4, 24.0), (10, 18.0)]), [0.4, 0.55]);
        // Less is left than was foreseen.
        assert_eq!(all([(10, 2.0), (11, 1.0)]), [0.55, 0.775]);
        // Nothing is left that is known.
        let [almost, more] = all([(12, 0.0), (13, 0.0)]);
        assert!(almost > 0.99 && more > almost && more < 1.0, "{almost} {more}");
        // Another table, in which the same work weighs more: earlier work does not count again.
        let mut told = Told::default();
        assert_eq!(told.tell([0, 4, 0, 0], [1.0; 4], 4.0), 0.5);
        assert_eq!(told.tell([0, 4, 0, 0], [3.0; 4], 12.0), 0.5);
        assert_eq!(told.tell([0, 5, 0, 0], [3.0; 4], 9.0), 0.625);
    }

    proptest! {
        /// The share never goes back, grows with all work done, and is the done part of the work
        /// while the plan does not change.
        #[test]
        fn progress_grows_with_the_work(
            steps in prop::collection::vec((0usize..4, 1u64..1000, 0u32..3000), 1..40)
        ) {
            let (mut told, mut planned) = (Told::default(), Told::default());
            let (mut done, mut before) = ([0; 4], 0.0);
            let all: f64 = steps.iter().map(|(kind, more, _)| *more as f64 * WEIGHTS[*kind]).sum();
            for (kind, more, left) in steps {
                done[kind] += more;
                let share = told.tell(done, WEIGHTS, f64::from(left));
                prop_assert!(share > before || before > 1.0 - 1e-9);
                before = share;
                let weighed: f64 = done.iter().zip(WEIGHTS).map(|(n, w)| *n as f64 * w).sum();
                let part = planned.tell(done, WEIGHTS, 2.0 * all - weighed);
                prop_assert!((part - weighed / (2.0 * all)).abs() < 1e-9);
            }
        }
    }
}
