//! Recovery above pages (B6): passes the records of the log, in log order, to the transactions and
//! to the list of overflow chains, and their index entries to the memtable.
//!
//! Most operations need no work: their transaction has committed and their generation was flushed.
//! Only the fields that show this are decoded. Only recovery may call this.

use crate::Chains;
use evenkeel_base::{Generation, Lsn, Result, TxnId};
use evenkeel_format::record::{LeafChange, RecordKind, RowLogical};
use evenkeel_format::rows::each_row;
use evenkeel_runs::Runs;
use evenkeel_txn::Txns;

/// Gives the index entries of a log record to the memtable, in log order.
///
/// # Errors
/// `BadEncoding`.
pub fn replay_entries(runs: &Runs, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
    each_row(kind, body, &mut |change, logical| {
        if logical.entries.is_empty() {
            return Ok(());
        }
        runs.replay_row(lsn, logical.generation, change.stamp, change.key, &logical.entries)
    })
}

/// Takes the records of the second pass over the log, which comes after all manifests and after
/// `Txns::expect_committed`.
pub struct Replayer<'a> {
    runs: &'a Runs,
    txns: &'a Txns,
    chains: &'a Chains,
    flushed: Generation,
    /// The last transaction that needed nothing.
    settled: TxnId,
    rows: u64,
    /// Memory for the row before a change.
    old: Vec<u8>,
}

impl<'a> Replayer<'a> {
    /// Before the first record.
    pub fn new(runs: &'a Runs, txns: &'a Txns, chains: &'a Chains) -> Replayer<'a> {
        let flushed = runs.flushed();
        let (settled, old) = (TxnId::ZERO, Vec::new());
        Replayer { runs, txns, chains, flushed, settled, rows: 0, old }
    }

    /// Row operations met so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes a record, in log order.
    ///
    /// # Errors
    /// `BadEncoding`; those of spilling undo.
    pub fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        match kind {
            RecordKind::Row => {
                let change = LeafChange::decode(body)?;
                let (generation, has_chains) = RowLogical::head(change.logical)?;
                let is_flushed = generation <= self.flushed && !has_chains;
                if is_flushed && self.is_settled(change.stamp.txn) {
                    self.rows += 1;
                    return Ok(());
                }
                let mut old = std::mem::take(&mut self.old);
                self.row(lsn, &change, &RowLogical::decode(&change, &mut old)?)?;
                self.old = old;
                Ok(())
            }
            RecordKind::Rows => {
                each_row(kind, body, &mut |change, logical| self.row(lsn, change, logical))
            }
            _ => {
                self.chains.replay(kind, body)?;
                self.txns.replay_record(lsn, kind, body)
            }
        }
    }

    fn row(&mut self, lsn: Lsn, change: &LeafChange<'_>, logical: &RowLogical<'_>) -> Result<()> {
        self.rows += 1;
        let RowLogical { generation, entries, .. } = logical;
        if *generation > self.flushed && !entries.is_empty() {
            self.runs.replay_row(lsn, *generation, change.stamp, change.key, entries)?;
        }
        self.chains.replay_row(change, logical)?;
        match self.is_settled(change.stamp.txn) {
            true => Ok(()),
            false => self.txns.replay_row(lsn, change, logical),
        }
    }

    /// True if nothing of this transaction's operations is needed.
    fn is_settled(&mut self, id: TxnId) -> bool {
        let is_settled = id == self.settled || self.txns.is_settled(id);
        if is_settled {
            self.settled = id;
        }
        is_settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_base::{IndexId, PageNo, Stamp, TableId, TreeId, UndoNo};
    use evenkeel_format::record::{Entry, RowKind, encode_txn, entry_op};
    use evenkeel_format::run::{ManifestOp, encode_manifest};
    use evenkeel_io::{MemEnv, Runtime};
    use evenkeel_runs::RunsOptions;
    use evenkeel_txn::{CommittedIds, TxnOptions};
    use std::sync::Arc;

    /// A ROW record of a transaction, with an entry in a generation.
    fn row(txn: TxnId, generation: u64) -> Vec<u8> {
        let (index, op) = (IndexId(1), entry_op::INS);
        let entries = vec![Entry { index, op, key: b"k", value: b"" }];
        let (table, generation, kind) = (TableId(3), Generation(generation), RowKind::Insert);
        let logical = RowLogical { table, generation, kind, before: None, chains: &[], entries };
        let mut half = Vec::new();
        logical.encode(b"row", &mut half);
        let stamp = Stamp { txn, undo_no: UndoNo(1) };
        let (page, tree, key, row) = (PageNo(300), TreeId(2), &b"key"[..], &b"row"[..]);
        let mut body = Vec::new();
        LeafChange { page, tree, flags: 2, stamp, key, row, logical: &half }.encode(&mut body);
        body
    }

    #[test]
    fn replay_skips_settled_and_flushed_records() {
        let rt = Runtime::new(Arc::new(MemEnv::new()));
        let txns = Txns::create(rt.clone(), TxnOptions::default());
        let options = RunsOptions { generation_bytes: 1 << 20, cache_bytes: 1 << 20 };
        let runs =
            Runs::create(evenkeel_sched::Scheduler::new(rt), options, txns.clone()).expect("runs");
        runs.apply_manifest(&encode_manifest(&[ManifestOp::Flushed(Generation(5))])).expect("ops");
        let (committed, other) = (TxnId(70), TxnId(71));
        let (mut ids, mut commit) = (CommittedIds::default(), Vec::new());
        encode_txn(&mut commit, committed);
        ids.scan(RecordKind::Commit, &commit).expect("a commit");
        txns.expect_committed(ids);
        let chains = Chains::default();
        let mut replayer = Replayer::new(&runs, &txns, &chains);
        let cases = [(committed, 5), (committed, 6), (other, 5), (other, 6)];
        for (n, (txn, generation)) in cases.into_iter().enumerate() {
            let mut body = row(txn, generation);
            replayer.record(Lsn(n as u64 + 1), RecordKind::Row, &body).expect("a row");
            // The entries are not decoded if nothing needs them.
            body.truncate(body.len() - 1);
            let cut = replayer.record(Lsn(10), RecordKind::Row, &body);
            assert_eq!(cut.is_ok(), (txn, generation) == (committed, 5), "{txn} {generation}");
        }
        assert_eq!(replayer.rows(), 5);
        let stats = runs.stats(IndexId(1));
        assert_eq!(stats.memtable_entries, 2);
        assert!(txns.is_settled(committed) && !txns.is_settled(other));
    }
}
