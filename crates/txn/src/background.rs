//! Background work that keeps the memory of transactions inside its share: spilling undo, freeing
//! undo that no snapshot needs, trimming the commit table. It also does the checkpoint's part (C2).

use crate::commit_table::Trim;
use crate::txns::Txns;
use crate::undo::{Body, TxnUndo};
use crate::undo_files::SpillTurn;
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, CommitTable, Error, Lsn, Result, TxnId};
use evenkeel_sched::laws::target;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes written in one go.
const WRITE_BYTES: usize = 1 << 20;
/// Transactions freed in one beat.
const BEAT_TXNS: usize = 1024;

impl Txns {
    /// Above this size undo is spilled.
    pub(crate) fn spill_trigger(&self) -> usize {
        target(self.undo_bytes_max() as u64) as usize
    }

    /// Memory of undo now.
    pub fn undo_bytes(&self) -> usize {
        self.undo_used.load(Ordering::Relaxed)
    }

    /// Sets the gauges of its memory to the present values. Readers of the metrics call this first,
    /// because otherwise the values are those of the last beat.
    pub fn tell_memory(&self) {
        self.rt.metrics.set(Metric::UndoBytes, self.undo_bytes() as u64);
        self.rt.metrics.set(Metric::CommitTableBytes, self.states.bytes() as u64);
    }

    /// Writes undo of the largest transactions to files while it exceeds its share, or while the
    /// first of the waiting operations lacks room.
    ///
    /// # Errors
    /// `DiskFull` (the next beat tries again); any other failed write stops writes.
    pub fn spill_beat(&self) -> Result<Beat> {
        let used = self.undo_bytes();
        let lacks = |wanted: u64| used as u64 + wanted > self.undo_bytes_max() as u64;
        if used <= self.spill_trigger() && !self.undo_room.first_wanted().is_some_and(lacks) {
            return Ok(Beat::Idle);
        }
        let turn = self.files.turn();
        let spilled = match self.pack_some(&turn) {
            Ok(0) => self.spill_largest(&turn),
            packed => packed,
        };
        drop(turn);
        let result = match spilled {
            Ok(gained) => {
                self.spill_stuck.store(gained == 0, Ordering::SeqCst);
                *self.spill_error.lock() = None;
                Ok(if gained == 0 { Beat::Idle } else { Beat::More })
            }
            Err(error) => {
                let error = self.judge(error);
                *self.spill_error.lock() = Some(error.clone());
                Err(error)
            }
        };
        self.undo_room.wake_first();
        result
    }

    /// A shortage is no reason to stop writes: nothing acknowledged is lost.
    pub(crate) fn judge(&self, error: Error) -> Error {
        match error.code().is_shortage() {
            true => error,
            false => self.rt.health.fail(error),
        }
    }

    fn pack_some(&self, turn: &SpillTurn<'_>) -> Result<usize> {
        let mut gained = 0;
        while gained < WRITE_BYTES {
            match self.pack_history(turn)? {
                0 => break,
                more => gained += more,
            }
        }
        Ok(gained)
    }

    fn spill_largest(&self, turn: &SpillTurn<'_>) -> Result<usize> {
        let mut largest: Vec<(usize, Arc<TxnUndo>)> = self
            .all_undos()
            .into_iter()
            .filter(|undo| undo.has_records_in_memory())
            .map(|undo| (undo.memory(), undo))
            .collect();
        largest.sort_by_key(|(memory, _)| std::cmp::Reverse(*memory));
        let mut gained = 0;
        let mut batch: Vec<(Arc<TxnUndo>, Vec<Arc<Body>>)> = Vec::new();
        let mut bytes = 0;
        for (_, undo) in largest {
            gained += undo.drop_saved_memory(&self.undo_used);
            if bytes + gained >= WRITE_BYTES {
                break;
            }
            let bodies = undo.unsaved(WRITE_BYTES - bytes, &self.undo_used);
            bytes += bodies.iter().map(|b| b.bytes.len()).sum::<usize>();
            batch.push((undo, bodies));
        }
        self.save(turn, &batch)?;
        for (undo, _) in &batch {
            gained += undo.drop_saved_memory(&self.undo_used);
        }
        Ok(gained)
    }

    fn save(&self, turn: &SpillTurn<'_>, batch: &[(Arc<TxnUndo>, Vec<Arc<Body>>)]) -> Result<()> {
        let flat: Vec<(TxnId, Arc<Body>)> = batch
            .iter()
            .flat_map(|(undo, bodies)| bodies.iter().map(|b| (undo.id, b.clone())))
            .collect();
        if flat.is_empty() {
            return Ok(());
        }
        let places = self.files.append(turn, &flat)?;
        let mut rest = places.as_slice();
        for (undo, bodies) in batch {
            let (mine, others) = rest.split_at(bodies.len());
            undo.saved(mine);
            rest = others;
        }
        Ok(())
    }

    /// Before a checkpoint passes `below`: saves and syncs the undo of every transaction that began
    /// before it and is undecided or not fully rolled back (C2). Each record is written once.
    ///
    /// # Errors
    /// `DiskFull`: the checkpoint must not pass; any other failure stops writes.
    pub fn checkpoint_undo(&self, below: Lsn) -> Result<()> {
        let mut old: Vec<Arc<TxnUndo>> = self
            .all_active()
            .into_iter()
            .filter(|t| t.first_lsn().is_some_and(|lsn| lsn < below))
            .filter_map(|t| t.undo.get().cloned())
            .collect();
        let reverting = self.reverting.lock();
        old.extend(reverting.values().filter(|r| r.first_lsn < below).map(|r| r.undo.clone()));
        drop(reverting);
        if old.is_empty()
            || evenkeel_base::fault_injection::is(
                evenkeel_base::fault_injection::Fault::UndoNotSaved,
            )
        {
            return Ok(());
        }
        self.rt.step();
        let turn = self.files.turn();
        self.save_all(&turn, &old).and_then(|()| self.files.sync(&turn)).map_err(|e| self.judge(e))
    }

    fn save_all(&self, turn: &SpillTurn<'_>, undos: &[Arc<TxnUndo>]) -> Result<()> {
        for undo in undos {
            let bodies = undo.unsaved(usize::MAX, &self.undo_used);
            let mut rest = bodies.as_slice();
            while !rest.is_empty() {
                let mut bytes = 0;
                let fits = rest.iter().take_while(|b| {
                    bytes += b.bytes.len();
                    bytes <= WRITE_BYTES
                });
                let n = fits.count().max(1);
                let (now, later) = rest.split_at(n);
                self.save(turn, &[(undo.clone(), now.to_vec())])?;
                rest = later;
            }
        }
        Ok(())
    }

    /// The lowest LSN that a record of an undecided or not fully rolled back transaction may have.
    pub fn oldest_undecided_lsn(&self) -> Option<Lsn> {
        let active = self.all_active().into_iter().filter_map(|t| t.first_lsn()).min();
        let reverting = self.reverting.lock().values().map(|r| r.first_lsn).min();
        active.into_iter().chain(reverting).min()
    }

    /// Frees undo that no snapshot needs and lets ids leave the commit table. `generation_low` is
    /// the low LSN of the oldest memtable generation not flushed yet.
    ///
    /// # Errors
    /// Those of removing a file: the next beat tries again.
    pub fn purge_beat(&self, generation_low: Option<Lsn>) -> Result<Beat> {
        self.purge_beat_but(generation_low, &|_| false)
    }

    /// As `purge_beat`, but keeps the outcome of ids for which `keep` is true, because runs have
    /// pending entries of theirs (A5, D1).
    ///
    /// # Errors
    /// As `purge_beat`.
    pub fn purge_beat_but(
        &self,
        generation_low: Option<Lsn>,
        keep: &dyn Fn(TxnId) -> bool,
    ) -> Result<Beat> {
        let horizon = self.horizon();
        let freed = self.free_history(horizon);
        let after_horizon = Lsn(horizon.0.saturating_add(1));
        let flushed = generation_low.unwrap_or(Lsn::MAX);
        let separators = &self.snapshots.separators();
        let gone = after_horizon.min(flushed);
        let trimmed = self.states.trim(&Trim { gone, flushed, separators, keep });
        let removed = self.files.remove_unused()?;
        let more = freed >= BEAT_TXNS;
        Ok(if more || trimmed || removed { Beat::More } else { Beat::Idle })
    }

    /// A crash may undo an outcome that is not durable, and then needs the undo files. So undo is
    /// freed only after the outcome is durable.
    fn free_history(&self, horizon: Lsn) -> usize {
        let durable = self.log().map(|log| log.durable()).unwrap_or_default();
        let gone = |lsn: Lsn| lsn <= horizon && lsn < durable;
        let mut freed = self.packs.free(gone);
        for queue in [&self.history, &self.kept] {
            let ids: Vec<TxnId> = {
                let mut queue = queue.lock();
                let ready = queue.iter().take(BEAT_TXNS).take_while(|(lsn, _)| gone(*lsn));
                let n = ready.count();
                queue.drain(..n).map(|(_, id)| id).collect()
            };
            ids.iter().for_each(|id| self.free_undo(*id));
            freed += ids.len();
        }
        freed
    }

    /// Ended transactions whose undo is kept for snapshots, without packed ones.
    pub fn history_len(&self) -> usize {
        self.history.lock().len() + self.kept.lock().len()
    }
}
