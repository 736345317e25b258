//! What became of each row operation, and the version before it: docs/format/undo.md without the
//! engine. Filled by one pass over the log; then read only.
//!
//! The checkpoint's list may be lost, and the log may end too early. An outcome that is then not
//! known is `Unknown`, never a guess.

use crate::source::{Source, read_file};
use evenkeel_base::{Lsn, Result, Stamp, TxnId, UndoNo};
use evenkeel_format::Reader;
use evenkeel_format::record::{
    LeafChange, RecordKind, RowLogical, cell_flags, decode_revert, decode_txn,
};
use evenkeel_format::rows::each_row;
use evenkeel_format::superblock::{decode_part, decode_sections};
use evenkeel_format::undo::{FRAME_HEADER_LEN, FrameId, check_frame, find_record, frame_claims};
use std::collections::{HashMap, HashSet};

/// Section of a checkpoint that lists transactions.
const SECTION_TXNS: u8 = 2;
/// Version of that list.
const LIST_VERSION: u8 = 3;
/// Largest undo segment read.
const UNDO_BYTES_MAX: u64 = 8 << 30;

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It counts.
    Committed,
    /// It was taken back: the version before counts.
    Reverted,
    /// Its transaction had neither committed nor aborted where the log ends.
    Undecided,
    /// The records that would tell are lost.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Committed,
    Aborted,
}

/// A transaction of the checkpoint's list.
struct Listed {
    state: State,
    dead: Vec<(u32, u32)>,
    /// First and last operation, segment, offset, length.
    extents: Vec<(u32, u32, u64, u64, u32)>,
}

/// The version of a row before an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Cell flags.
    pub flags: u8,
    /// Stamp, if the flags say so.
    pub stamp: Stamp,
    /// Row bytes.
    pub row: Vec<u8>,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Outcomes {
    /// Where the checkpoint record begins, if the superblock says so.
    checkpoint: Option<Lsn>,
    parts: Vec<Vec<u8>>,
    parts_wanted: u64,
    decided: HashMap<TxnId, State>,
    seen: HashSet<TxnId>,
    reverted: HashSet<Stamp>,
    listed: HashMap<TxnId, Listed>,
    /// Ids from here on were given out behind the checkpoint; none if its list is lost.
    next_id: Option<TxnId>,
    before: HashMap<Stamp, Option<Version>>,
    /// Records before the checkpoint are lost: what a transaction that ended there did, and what
    /// became of it, is not known.
    has_hole: bool,
}

impl Outcomes {
    /// For a log whose checkpoint record begins here.
    pub fn new(checkpoint: Option<Lsn>) -> Outcomes {
        Outcomes { checkpoint, ..Outcomes::default() }
    }

    /// First pass: outcomes, and the checkpoint's list.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn scan(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        match kind {
            RecordKind::Commit => {
                self.decided.insert(decode_txn(body)?.0, State::Committed);
            }
            RecordKind::Abort | RecordKind::End => {
                self.decided.insert(decode_txn(body)?.0, State::Aborted);
            }
            RecordKind::Revert => {
                self.reverted.insert(decode_revert(LeafChange::decode(body)?.logical)?);
            }
            RecordKind::Row | RecordKind::Rows => each_row(kind, body, &mut |change, _| {
                self.seen.insert(change.stamp.txn);
                Ok(())
            })?,
            RecordKind::Checkpoint if self.checkpoint.is_none_or(|at| lsn >= at) => {
                self.part(body)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A part of a checkpoint: the newest complete one counts, each adds to what the log says.
    fn part(&mut self, body: &[u8]) -> Result<()> {
        let (part, parts, bytes) = decode_part(body)?;
        if part == 0 {
            (self.parts, self.parts_wanted) = (Vec::new(), parts);
        }
        if part != self.parts.len() as u64 || parts != self.parts_wanted {
            self.parts.clear();
            return Ok(());
        }
        self.parts.push(bytes.to_vec());
        if self.parts.len() as u64 == parts {
            let joined = self.parts.concat();
            for (id, section) in decode_sections(&joined)? {
                if id == SECTION_TXNS {
                    self.list(section)?;
                }
            }
        }
        Ok(())
    }

    fn list(&mut self, section: &[u8]) -> Result<()> {
        let mut r = Reader::new(section, "transactions of the checkpoint");
        if r.u8()? != LIST_VERSION {
            return Err(r.bad("another version"));
        }
        let next_id = TxnId(r.varint()?);
        r.varint()?;
        let mut listed = HashMap::new();
        for _ in 0..r.varint()? {
            let id = TxnId(r.varint()?);
            let state = match r.u8()? {
                0 | 1 => State::Open,
                2 => State::Committed,
                3 => State::Aborted,
                _ => return Err(r.bad("unknown transaction state")),
            };
            // Timestamp, first LSN, "revert below", operations, xid.
            for _ in 0..4 {
                r.varint()?;
            }
            r.bytes()?;
            let (mut dead, mut extents) = (Vec::new(), Vec::new());
            for _ in 0..r.varint()? {
                dead.push((r.varint32()?, r.varint32()?));
            }
            for _ in 0..r.varint()? {
                r.varint32()?;
            }
            for _ in 0..r.varint()? {
                let (first, last) = (r.varint32()?, r.varint32()?);
                extents.push((first, last, r.varint()?, r.varint()?, r.varint32()?));
            }
            listed.insert(id, Listed { state, dead, extents });
        }
        (self.listed, self.next_id) = (listed, Some(next_id));
        Ok(())
    }

    /// True if the checkpoint's list of transactions was read.
    pub fn has_list(&self) -> bool {
        self.next_id.is_some()
    }

    /// Records before the checkpoint are lost.
    pub fn set_hole(&mut self) {
        self.has_hole = true;
    }

    /// Second pass: the versions before operations that may not count.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn collect(&mut self, kind: RecordKind, body: &[u8]) -> Result<()> {
        let mut found = Vec::new();
        each_row(kind, body, &mut |change: &LeafChange<'_>, logical: &RowLogical<'_>| {
            let before = logical.before.as_ref().map(|before| Version {
                flags: before.flags,
                stamp: before.stamp,
                row: before.row.to_vec(),
            });
            found.push((change.stamp, before));
            Ok(())
        })?;
        for (stamp, before) in found {
            if self.of(stamp) != Outcome::Committed {
                self.before.insert(stamp, before);
            }
        }
        Ok(())
    }

    /// What became of an operation.
    pub fn of(&self, stamp: Stamp) -> Outcome {
        let listed = self.listed.get(&stamp.txn);
        let number = stamp.undo_no.0;
        let dead = listed.is_some_and(|l| l.dead.iter().any(|(a, b)| (*a..*b).contains(&number)));
        if dead || self.reverted.contains(&stamp) {
            return Outcome::Reverted;
        }
        let state = self.decided.get(&stamp.txn).copied().or(listed.map(|l| l.state));
        match (state, self.next_id) {
            (Some(State::Committed), _) => Outcome::Committed,
            (Some(State::Aborted), _) => Outcome::Reverted,
            (Some(State::Open), _) => Outcome::Undecided,
            (None, _) if self.seen.contains(&stamp.txn) => Outcome::Undecided,
            // It had ended when the checkpoint was taken, or it would be in the list.
            (None, Some(next)) if stamp.txn < next && !self.has_hole => Outcome::Committed,
            (None, _) => Outcome::Unknown,
        }
    }

    /// The version before an operation; `None` if no undo of it is readable.
    pub fn before(&self, source: &Source, stamp: Stamp) -> Option<Option<Version>> {
        if let Some(before) = self.before.get(&stamp) {
            return Some(before.clone());
        }
        let extents = &self.listed.get(&stamp.txn)?.extents;
        let number = stamp.undo_no.0;
        let (_, _, segment, offset, len) =
            *extents.iter().find(|(first, last, ..)| (*first..=*last).contains(&number))?;
        saved(source, stamp, segment, offset, u64::from(len))
    }
}

/// The version before an operation, from adjacent frames of an undo segment.
fn saved(
    source: &Source,
    stamp: Stamp,
    segment: u64,
    offset: u64,
    len: u64,
) -> Option<Option<Version>> {
    let name = format!("undo/{segment:08}.undo");
    let bytes =
        read_file(source.env(), &name, UNDO_BYTES_MAX.min(offset.checked_add(len)?)).ok()?;
    let mut at = usize::try_from(offset).ok()?;
    let end = usize::try_from(offset + len).ok()?;
    while at + FRAME_HEADER_LEN <= end {
        let head: &[u8; FRAME_HEADER_LEN] = bytes.get(at..)?.first_chunk()?;
        let (txn, first, last, payload) = frame_claims(head).ok()?;
        let frame = bytes.get(at..at + FRAME_HEADER_LEN + payload)?;
        let database = source.database;
        let id = FrameId { database, segment, offset: at as u64, txn, first, last };
        let payload = check_frame(frame, &id).ok()?;
        if txn == stamp.txn && (first..=last).contains(&UndoNo(stamp.undo_no.0)) {
            let record = find_record(payload, stamp.undo_no).ok()??;
            return Some(record.before.map(|before| Version {
                flags: before.flags & !cell_flags::PRESENT,
                stamp: before.stamp,
                row: before.row.to_vec(),
            }));
        }
        at += frame.len();
    }
    None
}
