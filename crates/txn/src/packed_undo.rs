//! Packed undo: the undo of many small ended transactions in one frame, so that a long snapshot
//! costs one directory entry per 64 KiB of undo, not one per transaction.
//!
//! A pack holds transactions of one window of ids, most of them neighbours. A lookup searches the
//! packs of the window whose bounds contain the id. A pack is freed when the newest of its
//! transactions may be.
//!
//! Payload: (txn varint, undo records as bytes)... by ascending id. The frame's header has the
//! smallest id and, as first and last number, the number of transactions.

use crate::txns::Txns;
use crate::undo::{Body, CHUNK_BYTES};
use crate::undo_files::{SavedAt, SpillTurn};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Lsn, Result, Stamp, TxnId, UndoNo};
use evenkeel_format::undo::find_record;
use evenkeel_format::{Reader, put_bytes, put_varint};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Ids of one window, whose packs are searched together.
const WINDOW_IDS: u64 = 1 << 16;
/// Larger undo of a transaction is spilled singly.
pub(crate) const SMALL_BYTES: usize = 4 << 10;
/// Fewer transactions are not packed.
const PACK_TXNS_MIN: usize = 16;

#[derive(Clone)]
struct UndoPack {
    low: TxnId,
    high: TxnId,
    count: u32,
    at: SavedAt,
}

#[derive(Default)]
struct Directory {
    /// By (window, number of the pack).
    packs: BTreeMap<(u64, u64), UndoPack>,
    /// By the LSN of the newest outcome in the pack.
    order: VecDeque<(Lsn, (u64, u64))>,
    next: u64,
}

#[derive(Default)]
pub(crate) struct PackedUndo {
    directory: Mutex<Directory>,
}

/// A small ended transaction on its way into a pack.
struct Small {
    id: TxnId,
    ended: Lsn,
    records: Vec<u8>,
}

impl PackedUndo {
    fn add(&self, pack: UndoPack, ended: Lsn) {
        let mut directory = self.directory.lock();
        let key = (pack.low.0 / WINDOW_IDS, directory.next);
        directory.next += 1;
        directory.packs.insert(key, pack);
        directory.order.push_back((ended, key));
    }

    fn holding(&self, id: TxnId) -> Vec<UndoPack> {
        let directory = self.directory.lock();
        let window = id.0 / WINDOW_IDS;
        let packs = directory.packs.range((window, 0)..=(window, u64::MAX));
        packs.map(|(_, p)| p).filter(|p| p.low <= id && id <= p.high).cloned().collect()
    }

    /// Frees the packs whose outcomes all satisfy `gone`; returns their number.
    pub fn free(&self, gone: impl Fn(Lsn) -> bool) -> usize {
        let mut directory = self.directory.lock();
        let n = directory.order.iter().take_while(|(ended, _)| gone(*ended)).count();
        let keys: Vec<_> = directory.order.drain(..n).map(|(_, key)| key).collect();
        for key in keys {
            directory.packs.remove(&key);
        }
        n
    }

    /// The present number of packs.
    pub fn len(&self) -> usize {
        self.directory.lock().packs.len()
    }
}

fn records_of(payload: &[u8], id: TxnId) -> Result<Option<&[u8]>> {
    let mut r = Reader::new(payload, "undo pack");
    while !r.is_empty() {
        let (txn, records) = (TxnId(r.varint()?), r.bytes()?);
        if txn >= id {
            return Ok((txn == id).then_some(records));
        }
    }
    Ok(None)
}

impl Txns {
    /// Copies the record of `stamp` from a pack. False if no pack has it.
    pub(crate) fn fetch_packed(&self, stamp: Stamp, out: &mut Vec<u8>) -> Result<bool> {
        for pack in self.packs.holding(stamp.txn) {
            let count = UndoNo(pack.count);
            let body = self.files.read(&pack.at, pack.low, count, count)?;
            let Some(records) = records_of(&body.bytes, stamp.txn)? else { continue };
            if let Some(record) = find_record(records, stamp.undo_no)? {
                out.clear();
                record.encode(out);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Packs small ended transactions from the oldest on; returns the memory gained.
    pub(crate) fn pack_history(&self, turn: &SpillTurn<'_>) -> Result<usize> {
        let mut batch = self.take_small();
        if batch.len() < PACK_TXNS_MIN {
            self.kept.lock().extend(batch.iter().map(|s| (s.ended, s.id)));
            return Ok(0);
        }
        batch.sort_by_key(|s| s.id);
        let mut payload = Vec::with_capacity(CHUNK_BYTES + SMALL_BYTES);
        for small in &batch {
            put_varint(&mut payload, small.id.0);
            put_bytes(&mut payload, &small.records);
        }
        let (low, high) = (batch[0].id, batch[batch.len() - 1].id);
        let count = batch.len() as u32;
        let body = Body::from_saved(payload, UndoNo(count), UndoNo(count));
        let places = match self.files.append(turn, &[(low, Arc::new(body))]) {
            Ok(places) => places,
            Err(error) => {
                let mut history = self.history.lock();
                batch.iter().for_each(|s| history.push_front((s.ended, s.id)));
                return Err(error);
            }
        };
        let ended = batch.iter().map(|s| s.ended).max().unwrap_or_default();
        for at in places {
            self.packs.add(UndoPack { low, high, count, at }, ended);
        }
        let before = self.undo_bytes();
        batch.iter().for_each(|s| self.free_undo(s.id));
        Ok(before.saturating_sub(self.undo_bytes()).max(1))
    }

    /// Takes the next small ended transactions of one window of ids off the history. Larger ones,
    /// and stragglers of an older window, go to the list of those kept singly.
    fn take_small(&self) -> Vec<Small> {
        let mut batch: Vec<Small> = Vec::new();
        let mut bytes = 0;
        while bytes < CHUNK_BYTES {
            let Some((ended, id)) = self.history.lock().pop_front() else { break };
            let window = batch.first().map_or(id.0, |s| s.id.0) / WINDOW_IDS;
            if id.0 / WINDOW_IDS > window {
                self.history.lock().push_front((ended, id));
                break;
            }
            let Some(undo) = self.undo_of_txn(id) else { continue };
            match undo.small_records().filter(|_| id.0 / WINDOW_IDS == window) {
                Some(records) => {
                    bytes += records.len() + 4;
                    batch.push(Small { id, ended, records });
                }
                None => self.kept.lock().push_back((ended, id)),
            }
        }
        batch
    }

    /// The present number of packs.
    pub fn pack_count(&self) -> usize {
        self.packs.len()
    }
}

#[cfg(test)]
#[path = "packed_undo_tests.rs"]
mod packed_undo_tests;
