//! The continuous fuzzy checkpoint (protocols B3, B4, C2). It writes no page: it finds the lowest
//! log position that is still needed, records the run list and the undecided transactions in the
//! log, and names that record in the superblock.
//!
//! ```text
//! redo position <= min(oldest dirty page, low LSN of the oldest unflushed generation)
//!               <= log end when the checkpoint began <= LSN of its record < durable
//! ```
//!
//! Generations usually need more of the log than pages do. The superblock therefore also names the
//! position at which page redo begins (`Superblock::page_redo`), so that recovery reads no page for
//! changes that the page has already. The blocks of the record are copied to a second home
//! (`checkpoint_copy`) before the superblock names it.

use crate::open::checkpoint_copy::{self, CheckpointCopies};
use crate::open::superfile::SuperFile;
use evenkeel_base::fault_injection::Fault;
use evenkeel_base::{Beat, Cause, Code, Error, Lsn, Result, metrics::Metric};
use evenkeel_format::record::RecordKind;
use evenkeel_format::superblock::{
    CHECKPOINT_PART_BYTES, Superblock, encode_part_head, encode_sections,
};
use evenkeel_format::wal::FRAME;
use evenkeel_io::{EventLatch, Runtime};
use evenkeel_log::{Log, Reserved, Share};
use evenkeel_pages::{Pages, idle_flush::REST_PARTS};
use evenkeel_runs::Runs;
use evenkeel_tables::Chains;
use evenkeel_txn::Txns;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Section of `Runs`.
pub(crate) const SECTION_RUNS: u8 = 1;
/// Section of `Txns`.
pub(crate) const SECTION_TXNS: u8 = 2;
/// Section of `Chains`.
pub(crate) const SECTION_CHAINS: u8 = 3;
/// Section of the lists of `Chains`; only if there are any: older builds do not know it.
pub(crate) const SECTION_CHAIN_LISTS: u8 = 4;

/// Number of superseded chains that a checkpoint lists one by one, in 32 bytes each, for a log of
/// this capacity. A checkpoint is written after at least 1/16 of the capacity.
fn listed_chains(capacity: u64) -> usize {
    (capacity / 8192).min(8192) as usize
}

/// A checkpoint that was recorded, for the superblock.
pub(crate) struct Recorded {
    pub redo: Lsn,
    pub page_redo: Lsn,
    /// LSN of the record.
    pub checkpoint: Lsn,
    /// Behind its last byte.
    pub behind: Lsn,
}

/// Writes checkpoint records.
pub(crate) struct Recorder {
    pub rt: Arc<Runtime>,
    pub log: Arc<Log>,
    pub pages: Arc<Pages>,
    pub runs: Arc<Runs>,
    pub txns: Arc<Txns>,
    pub chains: Arc<Chains>,
    /// More superseded chains than this go to lists beside the log; `None` derives the number from
    /// the log's size.
    pub listed_chains: Option<usize>,
}

impl Recorder {
    /// Writes a checkpoint into the log, durable.
    ///
    /// # Errors
    /// `Full` if there is no room even for system records, those of the log.
    pub(crate) fn record(&self) -> Result<Recorded> {
        // Read the log end first: pages dirtied and generations activated later start at or after
        // it.
        let (redo, page_redo) = self.redo_now();
        self.txns.checkpoint_undo(redo)?;
        let listed = self.listed_chains.unwrap_or_else(|| listed_chains(self.log.capacity()));
        let saved = self.chains.save_beyond(listed, &self.txns)?;
        self.rt.metrics.add(Metric::OverflowChainsSaved, saved);
        let mut sections = vec![
            (SECTION_RUNS, self.runs.snapshot_blob()),
            (SECTION_TXNS, self.txns.checkpoint_blob()),
            (SECTION_CHAINS, self.chains.checkpoint_blob()),
            // This section follows that of the transactions.
            (SECTION_CHAIN_LISTS, self.chains.lists_blob()),
        ];
        sections.retain(|(id, bytes)| *id != SECTION_CHAIN_LISTS || !bytes.is_empty());
        let Range { start: first, end: behind } = self.append(&encode_sections(&sections))?;
        self.log.wait_durable(Lsn(behind.0 - 1))?;
        let page_redo = page_redo.min(first);
        Ok(Recorded { redo: redo.min(first), page_redo, checkpoint: first, behind })
    }

    /// The lowest log position that pages or generations still need, and the lowest that pages
    /// need. The first never goes back. A page may enter the dirty list late, with a log end that
    /// was read before the last checkpoint; its record is appended after that, so it lies behind
    /// the position that the checkpoint found, and the log below that may be recycled by now.
    fn redo_now(&self) -> (Lsn, Lsn) {
        let (mut end, dirty) = (self.log.end(), self.pages.oldest_dirty_lsn());
        if evenkeel_base::fault_injection::is(Fault::LogEndReadLate) {
            self.rt.step();
            end = self.log.end();
        }
        let pages = dirty.map_or(end, |dirty| dirty.min(end));
        let redo = self.runs.low_lsn().map_or(pages, |low| low.min(pages));
        let redo = redo.max(self.log.checkpoint_lsn());
        (redo, pages.max(redo))
    }

    /// Appends the parts; returns the LSN of the first and the position behind the last. All their
    /// space is reserved first: a checkpoint that does not fit takes no space from a later one that
    /// may.
    fn append(&self, bytes: &[u8]) -> Result<Range<Lsn>> {
        let parts: Vec<&[u8]> = bytes.chunks(CHECKPOINT_PART_BYTES).collect();
        let heads: Vec<_> = (0..parts.len()).map(|i| encode_part_head(i, parts.len())).collect();
        let both = || heads.iter().zip(&parts);
        let space =
            both().map(|(head, part)| self.log.reserve(head.len() + part.len(), Share::Checkpoint));
        let space: Vec<Reserved> = space.collect::<Result<_>>()?;
        let mut range: Option<Range<Lsn>> = None;
        for ((head, part), mut reserved) in both().zip(space) {
            let lsn = self.log.append(&mut reserved, RecordKind::Checkpoint, &[head, part]);
            let behind = Lsn(lsn.0 + (FRAME + head.len() + part.len()) as u64);
            range = Some(range.map_or(lsn, |range| range.start)..behind);
        }
        range.ok_or_else(|| Error::internal("a checkpoint without parts"))
    }
}

/// The kind of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checkpoint {
    /// The database stays open.
    Running,
    /// Nothing is written after this checkpoint. `clean`: all pages are on disk.
    Last { clean: bool },
}

/// Takes checkpoints, one at a time: for the thread that calls `beat`, for users who request one,
/// and for the close of the database.
pub(crate) struct Checkpointer {
    recorder: Recorder,
    superfile: SuperFile,
    copies: CheckpointCopies,
    /// Held by the thread that is taking a checkpoint.
    turn: EventLatch,
    /// The last checkpoint was taken; another one would mark the database as open.
    is_closed: AtomicBool,
    /// Log end at the last checkpoint, so that an idle database takes none.
    last_end: AtomicU64,
}

impl Checkpointer {
    pub(crate) fn new(
        recorder: Recorder,
        superfile: SuperFile,
        copies: CheckpointCopies,
    ) -> Checkpointer {
        let last_end = AtomicU64::new(recorder.log.end().0);
        let (turn, is_closed) = (EventLatch::default(), AtomicBool::new(false));
        Checkpointer { recorder, superfile, copies, turn, is_closed, last_end }
    }

    /// The present superblock.
    pub(crate) fn superblock(&self) -> Superblock {
        self.superfile.get()
    }

    /// Sets incompatible feature bits in the superblock, durably.
    ///
    /// # Errors
    /// `WritesStopped`; those of the superblock.
    pub(crate) fn set_incompatible(&self, bits: u64) -> Result<()> {
        let rt = &self.recorder.rt;
        let _turn = self.turn.lock(rt, Cause::LogSync);
        if self.superfile.get().features.incompatible & bits == bits {
            return Ok(());
        }
        rt.health.check_writable()?;
        self.superfile.update(rt, |s| s.features.incompatible |= bits)
    }

    /// Problems of the superblock file, and of the homes of the checkpoint record, now. Neither is
    /// written meanwhile.
    ///
    /// # Errors
    /// Those of the environment.
    pub(crate) fn superblock_problems(&self) -> Result<Vec<String>> {
        let Recorder { rt, log, .. } = &self.recorder;
        let _turn = self.turn.lock(rt, Cause::LogSync);
        let mut problems = self.superfile.problems()?;
        problems.extend(checkpoint_copy::problems(rt, log, &self.superfile.get())?);
        Ok(problems)
    }

    /// Wakes the actors that hold the checkpoint up. Then takes a checkpoint in any of these cases:
    /// the log has grown by 1/16 of its capacity since the last one; a checkpoint would free as
    /// much (after recovery the log may be full, so that it does not grow); nobody writes and it
    /// would free an eighth of that; operations that wait for log space need it.
    ///
    /// # Errors
    /// Those of `take`.
    pub(crate) fn beat(&self) -> Result<Beat> {
        let Recorder { log, .. } = &self.recorder;
        self.press();
        let is_quiet = self.rest();
        let step = log.capacity() / 16;
        let (end, last) = (log.end(), Lsn(self.last_end.load(Ordering::Relaxed)));
        let (redo, _) = self.recorder.redo_now();
        let freed = redo.0.saturating_sub(log.checkpoint_lsn().0);
        let is_needed = freed > 0 && log.needed().is_some_and(|needed| redo >= needed);
        let worth = if is_quiet { log.capacity() / REST_PARTS } else { step };
        if end.0 >= last.0 + step || (log.age() >= worth && freed >= worth) || is_needed {
            self.take(Checkpoint::Running)?;
        }
        log.wake_at(Lsn(self.last_end.load(Ordering::Relaxed) + step));
        Ok(Beat::Idle)
    }

    /// True while nobody writes (RFC 33). The cleaner then writes the dirty pages and reports each
    /// bucket that becomes empty; an active generation that holds much of the log is handed over.
    fn rest(&self) -> bool {
        let Recorder { log, pages, runs, .. } = &self.recorder;
        let Some(end) = pages.quiet_at() else { return false };
        runs.hand_over_at_rest(Lsn(end.0.saturating_sub(log.capacity() / REST_PARTS)));
        true
    }

    /// Wakes the actors that hold the checkpoint below the position it should have reached: the
    /// active generation is handed over and the cleaner looks at its oldest pages. Each actor
    /// notifies the event of this thread when it has advanced. So for every operation that waits
    /// for log space an actor works, unless the operation itself is the one that the others wait
    /// for. (The checkpoint saves undo of open transactions, and lists or saves duties to free
    /// chains; neither holds it up.)
    fn press(&self) {
        let Recorder { log, pages, runs, .. } = &self.recorder;
        runs.hand_over_old();
        if let Some(needed) = log.needed() {
            runs.hand_over_below(needed);
        }
        pages.press();
    }

    /// Takes a checkpoint now; a checkpoint of the kind `Last` leaves the database closed.
    ///
    /// # Errors
    /// `WritesStopped`; `DatabaseClosed`; `Full`; those of the log and the superblock.
    pub(crate) fn take(&self, what: Checkpoint) -> Result<()> {
        // Two checkpoints at a time would write the same superblock slot. The one that stays there
        // might need log that the other has released.
        let Recorder { rt, log, .. } = &self.recorder;
        let _turn = self.turn.lock(rt, Cause::LogSync);
        rt.health.check_writable()?;
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::new(Code::DatabaseClosed));
        }
        let Recorded { redo, page_redo, checkpoint, behind } = self.recorder.record()?;
        let copy = self.copies.keep(rt, log, checkpoint, behind)?;
        self.superfile.update(rt, |s| {
            s.set_checkpoint_copy(copy.is_some());
            s.checkpoint = checkpoint;
            s.redo = redo;
            s.page_redo = page_redo;
            s.clean = what == Checkpoint::Last { clean: true };
        })?;
        self.copies.named(copy);
        self.is_closed.store(what != Checkpoint::Running, Ordering::Relaxed);
        log.set_checkpoint(redo)?;
        self.last_end.store(log.end().0, Ordering::Relaxed);
        rt.metrics.add(Metric::Checkpoints, 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Access, ColumnSpec, ColumnType, Database, Geometry, Isolation, Options, TableSpec, ValueRef,
    };
    use evenkeel_io::SimEnv;

    /// One session writes a table while another records checkpoints. Returns the number of
    /// checkpoints that met a page that was dirty already when the record was written.
    fn met(seed: u64) -> usize {
        let sim = SimEnv::new(seed);
        let geometry = Geometry { pool_bytes: Some(1 << 20), ..Geometry::default() };
        let options = Options::new().env(sim.env()).geometry(geometry);
        let db = Database::open_with("db", options).expect("opens");
        let id = ColumnSpec::new("id", ColumnType::Int64);
        let table = TableSpec::new().column(id).primary_key(&["id"]);
        db.create_table("t", &table).expect("makes");
        let met = Arc::new(AtomicU64::new(0));
        let (writes, records, count) = (db.clone(), db.clone(), met.clone());
        let rt = sim.runtime();
        let write = move || {
            for id in 0..200 {
                let txn =
                    writes.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
                txn.table("t").expect("there").insert(&[ValueRef::Int(id)]).expect("inserts");
                txn.commit().expect("commits");
                rt.step();
            }
        };
        let record = move || {
            let engine = &records.engine;
            for _ in 0..40 {
                engine.pages.flush_all().expect("writes pages");
                let recorded = engine.checkpointer.recorder.record().expect("records");
                if let Some(dirty) = engine.pages.oldest_dirty_lsn() {
                    count.fetch_add(1, Ordering::Relaxed);
                    let from = recorded.page_redo;
                    assert!(dirty >= from, "seed {seed}: dirty since {dirty}, redo from {from}");
                }
            }
        };
        sim.run(vec![Box::new(write), Box::new(record)]);
        sim.stop();
        met.load(Ordering::Relaxed) as usize
    }

    /// B4: pages dirtied while a checkpoint was recorded are redone from where they were dirtied.
    #[test]
    fn no_dirty_page_is_older_than_where_page_redo_begins() {
        let met: usize = (1..=200).map(met).sum();
        assert!(met > 200, "{met}");
    }
}
