//! Opening a directory (protocol B6): superblock, doublewrite, checkpoint, two passes over the log.
//! Every step is idempotent: recovery may be killed at any point and begun again.
//!
//! Order: 1. Doublewrite copies are restored and synced (by `Pages::open`).
//! 2. First pass from the redo position: the parts of the checkpoint, page formats and frees, edits
//!    of the run list, commits.
//! 3. The checkpoint's sections and the edits behind them are applied. The log that was read is
//!    synced, because the pool may have to write pages from here on.
//! 4. Second pass (`redo_pass`): page redo, memtable entries of generations that were not flushed,
//!    undo of transactions that have not committed, and outcomes. Meanwhile a thread inspects what
//!    lies behind the end of the log, which may be damage and no end; no file is changed before
//!    that is known.
//! 5. A new log epoch begins behind the last record. Transactions without an outcome are aborted
//!    and rolled back in the background.

use crate::background::checkpoint::{
    SECTION_CHAIN_LISTS, SECTION_CHAINS, SECTION_RUNS, SECTION_TXNS,
};
use crate::open::redo_pass;
use crate::open::superfile::SUPER_FILE;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, Code, Error, Lsn, Result};
use evenkeel_format::record::RecordKind;
use evenkeel_format::superblock::{Superblock, decode_part, decode_sections};
use evenkeel_io::{Event, Runtime, Task};
use evenkeel_log::{Behind, LogEnd, Replay, replay_to_end, sync_segments};
use evenkeel_pages::{PageRedo, Pages};
use evenkeel_runs::Runs;
use evenkeel_tables::Chains;
use evenkeel_tree::TreeRedo;
use evenkeel_txn::{CommittedIds, Txns};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// During the first pass a helper backs frames with memory if at least this many will be taken.
const FRAMES_MIN: usize = 4096;
/// Records between two looks at that number.
const RECORDS_PER_LOOK: u64 = 1024;

/// A thread of its own inspects what lies behind the end of the log if that is at least this long.
const LOOK_BYTES_MIN: u64 = 1 << 20;

/// What recovery did, for the log and for tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Log records read.
    pub records: u64,
    /// Bytes of log between the redo position and its end.
    pub log_bytes: u64,
    /// Row operations replayed.
    pub rows: u64,
    /// Pages read from storage.
    pub page_reads: u64,
    /// Bytes read from all files.
    pub read_bytes: u64,
    /// Transactions that ended without an outcome; their rows are rolled back after the open.
    pub losers: u64,
    /// True if the database had been closed.
    pub clean: bool,
    /// Nanoseconds from open to ready.
    pub ns: u64,
    /// Part of `ns`: the first pass over the log.
    pub scan_ns: u64,
    /// Part of `ns`: making the log that was read durable.
    pub sync_ns: u64,
    /// Part of `ns`: the second pass, in which pages are redone, and the concurrent look behind the
    /// end of the log.
    pub redo_ns: u64,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecoveryReport { records, log_bytes, rows, clean, ns, .. } = self;
        let in_ms = |ns: &u64| ns / 1_000_000;
        let ms = in_ms(ns);
        match (clean, log_bytes) {
            (_, 0) => write!(f, "open after {ms} ms, nothing to recover"),
            (true, _) => write!(f, "open after {ms} ms, closed cleanly before"),
            (false, _) => write!(
                f,
                "open after {ms} ms, recovered from {log_bytes} bytes of log: {records} records, \
                 {rows} row operations; read in {} ms, synced in {} ms, redone in {} ms",
                in_ms(&self.scan_ns),
                in_ms(&self.sync_ns),
                in_ms(&self.redo_ns)
            ),
        }
    }
}

/// The components that recovery fills.
pub(crate) struct Recovery<'a> {
    pub rt: &'a Arc<Runtime>,
    pub pages: &'a Arc<Pages>,
    pub runs: &'a Arc<Runs>,
    pub txns: &'a Arc<Txns>,
    pub chains: &'a Arc<Chains>,
    pub superblock: Superblock,
    /// All memory of the database; a part of it holds records while they are redone.
    pub memory_size: u64,
}

/// During the first pass, backs the frames that the second pass will take with memory.
struct Frames<'a> {
    rt: &'a Arc<Runtime>,
    pages: &'a Arc<Pages>,
    changed: Arc<Event>,
    stopped: Arc<AtomicBool>,
    helper: Option<Box<dyn Task>>,
}

impl<'a> Frames<'a> {
    fn new(rt: &'a Arc<Runtime>, pages: &'a Arc<Pages>) -> Frames<'a> {
        Frames { rt, pages, changed: Arc::default(), stopped: Arc::default(), helper: None }
    }

    /// This many frames will be taken. A few are not worth a thread.
    fn expect(&mut self, frames: usize) -> Result<()> {
        if frames < FRAMES_MIN || !self.pages.expect_frames(frames) {
            return Ok(());
        }
        if self.helper.is_none() {
            let (rt, pages) = (self.rt.clone(), self.pages.clone());
            let (changed, stopped) = (self.changed.clone(), self.stopped.clone());
            self.helper = Some(self.rt.spawn_needed("ek-redo-frames", move || {
                loop {
                    let seen = changed.now();
                    if stopped.load(Ordering::Acquire) {
                        break;
                    }
                    if !pages.back_frames() {
                        rt.wait(&changed, seen, None, Cause::Idle);
                    }
                }
            })?);
        }
        self.changed.notify();
        Ok(())
    }

    /// Ends the helper, also after an error.
    fn stop(&mut self) -> Result<()> {
        self.stopped.store(true, Ordering::Release);
        self.changed.notify();
        self.helper.take().map_or(Ok(()), Task::join)
    }
}

/// Ends the helper also where the pass panics: no thread is left waiting.
impl Drop for Frames<'_> {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// The look at what lies behind the end of the log, on a thread of its own where that is long. No
/// file is changed while the look is under way, or after it has found damage: redo of a log with a
/// hole may produce wrong pages (it knows too little of a page that was written without redo).
struct Look {
    said: Arc<Mutex<Result<()>>>,
    helper: Option<Box<dyn Task>>,
}

/// The result of the look, for the threads that wait for it. It is given also if the look panics.
struct Answer {
    rt: Arc<Runtime>,
    said: Arc<Mutex<Result<()>>>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        let said = self.said.lock().clone();
        match said {
            Ok(()) => self.rt.allow_changes(),
            Err(error) => self.rt.refuse_changes(error),
        }
    }
}

impl Look {
    fn begin(rt: &Arc<Runtime>, behind: Behind) -> Result<Look> {
        if behind.bytes() < LOOK_BYTES_MIN {
            behind.check()?;
            return Ok(Look { said: Arc::new(Mutex::new(Ok(()))), helper: None });
        }
        let unknown = Error::internal("the look behind the log has not ended");
        let said = Arc::new(Mutex::new(Err(unknown)));
        let mut look = Look { said: said.clone(), helper: None };
        rt.hold_changes();
        let answer = Answer { rt: rt.clone(), said };
        look.helper = Some(rt.spawn_needed("ek-log-behind", move || {
            let found = behind.check();
            *answer.said.lock() = found;
        })?);
        Ok(look)
    }

    /// Waits for the result. If the look has found damage the gate stays closed, because helpers of
    /// a second pass that panicked may still run. # Errors: those of `Behind::check`.
    fn end(&mut self) -> Result<()> {
        self.helper.take().map_or(Ok(()), Task::join)?;
        self.said.lock().clone()
    }
}

/// Waits also where the second pass fails: nothing reads the log after the open has ended.
impl Drop for Look {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

struct FirstPass<'a> {
    redo: PageRedo<'a>,
    frames: Frames<'a>,
    checkpoint: Lsn,
    parts: Vec<Vec<u8>>,
    parts_expected: u64,
    manifests: Vec<Vec<u8>>,
    committed: CommittedIds,
    records: u64,
    /// The record read last belongs to the checkpoint that the superblock names.
    is_at_checkpoint: bool,
}

impl Replay for FirstPass<'_> {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        self.records += 1;
        let parts = self.parts.len();
        match kind {
            RecordKind::Checkpoint => self.checkpoint_part(lsn, body)?,
            RecordKind::Manifest => self.manifests.push(body.to_vec()),
            _ => {}
        }
        self.is_at_checkpoint = self.parts.len() > parts;
        self.committed.scan(kind, body)?;
        if self.records.is_multiple_of(RECORDS_PER_LOOK) {
            self.frames.expect(self.redo.touched())?;
        }
        self.redo.scan(lsn, kind, body)
    }
}

/// The error names the file in which the checkpoint should be.
fn checkpoint_missing(at: Lsn) -> Error {
    Error::new(Code::CheckpointMissing).with("file", SUPER_FILE).with("lsn", at)
}

impl FirstPass<'_> {
    /// Takes the parts of the checkpoint that the superblock names, which begin exactly at its LSN.
    /// An earlier checkpoint belongs to another redo position; later ones were not in effect yet.
    fn checkpoint_part(&mut self, lsn: Lsn, body: &[u8]) -> Result<()> {
        let next = self.parts.len() as u64;
        let begun = self.parts_expected != 0;
        if (!begun && lsn != self.checkpoint) || (begun && next == self.parts_expected) {
            return Ok(());
        }
        let (part, parts, bytes) = decode_part(body)?;
        if part != next {
            let error = checkpoint_missing(self.checkpoint).with("part", part).with("of", parts);
            return Err(error);
        }
        self.parts_expected = parts;
        self.parts.push(bytes.to_vec());
        Ok(())
    }
}

impl Recovery<'_> {
    /// Runs both passes and returns the log's end, from which a new epoch begins.
    ///
    /// # Errors
    /// Those of the log, pages, runs and transactions; `CheckpointMissing`.
    pub(crate) fn run(&self, report: &mut RecoveryReport) -> Result<LogEnd> {
        let (redo_from, checkpoint) = (self.superblock.redo, self.superblock.checkpoint);
        let mut first = FirstPass {
            redo: PageRedo::new(self.pages, &TreeRedo).from(self.superblock.page_redo),
            frames: Frames::new(self.rt, self.pages),
            checkpoint,
            parts: Vec::new(),
            parts_expected: 0,
            manifests: Vec::new(),
            committed: CommittedIds::default(),
            records: 0,
            is_at_checkpoint: false,
        };
        let now_ns = || self.rt.env.now_ns();
        let begun = now_ns();
        let replayed = replay_to_end(self.rt, redo_from, &mut first);
        let stopped = first.frames.stop();
        let (end, behind) = replayed?;
        stopped?;
        report.records = first.records;
        report.scan_ns = now_ns().saturating_sub(begun);
        report.log_bytes = end.end.0.saturating_sub(redo_from.0);
        behind.check_epoch(self.superblock.epoch)?;
        let mut look = Look::begin(self.rt, behind)?;
        let redone = self.redo(first, end.end, report);
        // If the log is damaged, other failures may follow from that; its error names the place.
        let begun = now_ns();
        look.end()?;
        report.redo_ns += now_ns().saturating_sub(begun);
        redone?;
        Ok(end)
    }

    /// Applies what the first pass has found.
    fn redo(&self, first: FirstPass<'_>, end: Lsn, report: &mut RecoveryReport) -> Result<()> {
        let now_ns = || self.rt.env.now_ns();
        self.restore_checkpoint(&first)?;
        for body in &first.manifests {
            self.runs.apply_manifest(body)?;
        }
        self.txns.expect_committed(first.committed);
        let lives = first.redo.into_lives();
        let redo_from = self.superblock.redo;
        // If redo has more pages than the pool holds it writes some, and none of them may be newer
        // than the durable log. The checkpoint of a clean close is durable. The log behind it need
        // not be: a process may have written after the close, or an open that changed something may
        // have ended before it updated the superblock.
        if !(self.superblock.clean && first.is_at_checkpoint) {
            let begun = now_ns();
            sync_segments(self.rt, redo_from, end)?;
            report.sync_ns = now_ns().saturating_sub(begun);
        }
        let begun = now_ns();
        report.rows = redo_pass::run(self, redo_from, end, &lives)?;
        report.redo_ns = now_ns().saturating_sub(begun);
        Ok(())
    }

    fn restore_checkpoint(&self, first: &FirstPass<'_>) -> Result<()> {
        if first.parts_expected == 0 || first.parts.len() as u64 != first.parts_expected {
            return Err(checkpoint_missing(first.checkpoint));
        }
        let bytes = first.parts.concat();
        let sections = decode_sections(&bytes)?;
        // The restore of the transactions removes chains that nothing names.
        if let Some((_, lists)) = sections.iter().find(|(id, _)| *id == SECTION_CHAIN_LISTS) {
            self.chains.restore_lists(lists, self.txns)?;
        }
        for (id, section) in sections {
            match id {
                SECTION_CHAIN_LISTS => {}
                SECTION_RUNS => self.runs.restore(section)?,
                SECTION_TXNS => self.txns.restore(section)?,
                SECTION_CHAINS => self.chains.restore(section)?,
                _ => {
                    let error = Error::new(Code::NewerFormat).with("part", "checkpoint");
                    return Err(error.with("section", id));
                }
            }
        }
        Ok(())
    }
}
