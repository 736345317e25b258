//! Undo: one record per row operation, chunks of consecutive records of one transaction, and the
//! append-only segment files `undo/NNNNNNNN.undo` that chunks are spilled to (protocols C1, C2).
//!
//! ```text
//! record:  len varint (of what follows), undo_no varint, kind u8, before_flags u8, tree varint,
//!          key bytes, [before stamp (txn varint, undo_no varint), before row bytes] if PRESENT
//! segment: header of 32 bytes, then frames one after the other
//! header:  magic 8, version u32, segment u64, zero u64, crc32c u32 of the database id and the 28
//!          bytes before it
//! frame:   crc32c u32 of (database id u64, segment u64, offset u64, the rest), len u32 (payload),
//!          txn u64, first undo_no u32, last undo_no u32, then the payload: records
//! ```
//! A frame's checksum is bound to its place and database, so a misdirected write is found.

use crate::record::{Before, RowKind, cell_flags};
use crate::{Reader, put_bytes, put_varint};
use evenkeel_base::{DatabaseId, Result, Stamp, TreeId, TxnId, UndoNo, crc32c};

/// First bytes of an undo segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"EVKLUNDO";
/// Version of the segment format.
pub const SEGMENT_VERSION: u32 = 1;
/// Bytes of the segment header.
pub const SEGMENT_HEADER_LEN: usize = 32;
/// Bytes of a frame header.
pub const FRAME_HEADER_LEN: usize = 24;
/// Largest payload of a frame that a reader accepts.
pub const FRAME_PAYLOAD_MAX: usize = 4 << 20;

/// The data that undoes one row operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoRecord<'a> {
    /// Number of the operation inside its transaction.
    pub undo_no: UndoNo,
    /// The kind of the operation.
    pub kind: RowKind,
    /// The tree it changed.
    pub tree: TreeId,
    /// The clustered key.
    pub key: &'a [u8],
    /// The cell it replaced; `None` if there was none.
    pub before: Option<Before<'a>>,
}

impl<'a> UndoRecord<'a> {
    /// An upper bound of the encoded length.
    pub fn encoded_len_max(key_len: usize, before_row_len: usize) -> usize {
        key_len + before_row_len + 64
    }

    /// Appends the encoded record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.body_len());
        put_varint(out, u64::from(self.undo_no.0));
        out.push(self.kind as u8);
        out.push(self.before.as_ref().map_or(0, |b| b.flags | cell_flags::PRESENT));
        put_varint(out, u64::from(self.tree.0));
        put_bytes(out, self.key);
        if let Some(before) = &self.before {
            put_varint(out, before.stamp.txn.0);
            put_varint(out, u64::from(before.stamp.undo_no.0));
            put_bytes(out, before.row);
        }
    }

    fn body_len(&self) -> u64 {
        let bytes_len = |b: &[u8]| varint_len(b.len() as u64) + b.len() as u64;
        let before = self.before.as_ref().map_or(0, |b| {
            varint_len(b.stamp.txn.0) + varint_len(u64::from(b.stamp.undo_no.0)) + bytes_len(b.row)
        });
        let head = varint_len(u64::from(self.undo_no.0)) + 2 + varint_len(u64::from(self.tree.0));
        head + bytes_len(self.key) + before
    }

    fn decode_body(body: &'a [u8]) -> Result<UndoRecord<'a>> {
        let mut r = Reader::new(body, "undo record");
        let undo_no = UndoNo(r.varint32()?);
        let kind = RowKind::read(&mut r)?;
        let flags = r.u8()?;
        let with_before = cell_flags::PRESENT | cell_flags::IN_LEAF;
        let is_present = flags & cell_flags::PRESENT != 0;
        r.known("before_flags", flags, if is_present { with_before } else { 0 })?;
        let tree = TreeId(r.varint32()?);
        let key = r.bytes()?;
        let before = if is_present {
            let stamp = Stamp { txn: TxnId(r.varint()?), undo_no: UndoNo(r.varint32()?) };
            Some(Before { flags: flags & !cell_flags::PRESENT, stamp, row: r.bytes()? })
        } else {
            None
        };
        r.finish()?;
        Ok(UndoRecord { undo_no, kind, tree, key, before })
    }
}

fn varint_len(value: u64) -> u64 {
    u64::from((64 - value.leading_zeros()).max(1).div_ceil(7))
}

/// Walks the records of a chunk from `bytes` on. # Errors: `BadEncoding` in an item, the last.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<UndoRecord<'_>>> {
    let mut r = Reader::new(bytes, "undo chunk");
    std::iter::from_fn(move || {
        if r.is_empty() {
            return None;
        }
        let item = r.bytes().and_then(UndoRecord::decode_body);
        if item.is_err() {
            r = Reader::new(&[], "undo chunk");
        }
        Some(item)
    })
}

/// Finds the record `wanted` in `bytes`, whose records have ascending undo_no; records before it
/// are skipped by their length. `Ok(None)` if it does not exist. # Errors: `BadEncoding`.
pub fn find_record(bytes: &[u8], wanted: UndoNo) -> Result<Option<UndoRecord<'_>>> {
    let mut r = Reader::new(bytes, "undo chunk");
    while !r.is_empty() {
        let body = r.bytes()?;
        let undo_no = UndoNo(Reader::new(body, "undo record").varint32()?);
        if undo_no >= wanted {
            return if undo_no == wanted {
                UndoRecord::decode_body(body).map(Some)
            } else {
                Ok(None)
            };
        }
    }
    Ok(None)
}

/// The header of a segment.
pub fn segment_header(segment: u64, database: DatabaseId) -> [u8; SEGMENT_HEADER_LEN] {
    let mut out = [0; SEGMENT_HEADER_LEN];
    out[..8].copy_from_slice(&SEGMENT_MAGIC);
    out[8..12].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
    out[12..20].copy_from_slice(&segment.to_le_bytes());
    let crc = database.crc32c(&out[..28]);
    out[28..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Checks the header of segment number `segment`. # Errors: `BadEncoding`, `NewerFormat`.
pub fn check_segment_header(bytes: &[u8], segment: u64, database: DatabaseId) -> Result<()> {
    let mut r = Reader::new(bytes, "undo segment header");
    let head = r.take(28)?;
    let crc = r.u32()?;
    let mut h = Reader::new(head, "undo segment header");
    if h.take(8)? != SEGMENT_MAGIC {
        return Err(h.bad("not an undo segment"));
    }
    if database.crc32c(head) != crc {
        return Err(h.bad("checksum"));
    }
    let version = h.u32()?;
    if version != SEGMENT_VERSION {
        return Err(h.newer("version", version));
    }
    if h.u64()? != segment {
        return Err(h.bad("another segment"));
    }
    h.zero("zero", h.rest())
}

/// The identity of a frame: its place and its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameId {
    /// The database of the undo.
    pub database: DatabaseId,
    /// Segment number.
    pub segment: u64,
    /// Offset of the frame header in the segment.
    pub offset: u64,
    /// The transaction.
    pub txn: TxnId,
    /// Its first record.
    pub first: UndoNo,
    /// Its last record.
    pub last: UndoNo,
}

fn frame_crc(id: &FrameId, rest: &[u8], payload: &[u8]) -> u32 {
    let place = crc32c(id.database.crc32c(&id.segment.to_le_bytes()), &id.offset.to_le_bytes());
    crc32c(crc32c(place, rest), payload)
}

/// The header of a frame with this payload (at most `FRAME_PAYLOAD_MAX` bytes).
pub fn frame_header(id: &FrameId, payload: &[u8]) -> [u8; FRAME_HEADER_LEN] {
    let mut out = [0; FRAME_HEADER_LEN];
    out[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    out[8..16].copy_from_slice(&id.txn.0.to_le_bytes());
    out[16..20].copy_from_slice(&id.first.0.to_le_bytes());
    out[20..24].copy_from_slice(&id.last.0.to_le_bytes());
    let crc = frame_crc(id, &out[4..], payload);
    out[..4].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The payload of the frame that `bytes` is expected to be. # Errors: `BadEncoding` if it is not
/// exactly that frame.
pub fn check_frame<'a>(bytes: &'a [u8], id: &FrameId) -> Result<&'a [u8]> {
    let mut r = Reader::new(bytes, "undo frame");
    let crc = r.u32()?;
    let rest = Reader::new(r.rest(), "undo frame").take(FRAME_HEADER_LEN - 4)?;
    let len = r.u32()? as usize;
    let (txn, first, last) = (TxnId(r.u64()?), UndoNo(r.u32()?), UndoNo(r.u32()?));
    if len > FRAME_PAYLOAD_MAX {
        return Err(r.bad("length beyond the limit"));
    }
    let payload = r.take(len)?;
    if frame_crc(id, rest, payload) != crc {
        return Err(r.bad("checksum"));
    }
    if (txn, first, last) != (id.txn, id.first, id.last) {
        return Err(r.bad("another transaction's frame"));
    }
    r.finish()?;
    Ok(payload)
}

/// The fields of a frame header: transaction, first and last record, bytes of the payload. They are
/// verified only with the whole frame (`check_frame`). # Errors: `BadEncoding`.
pub fn frame_claims(header: &[u8; FRAME_HEADER_LEN]) -> Result<(TxnId, UndoNo, UndoNo, usize)> {
    let mut r = Reader::new(&header[4..], "undo frame");
    let len = r.u32()? as usize;
    let (txn, first, last) = (TxnId(r.u64()?), UndoNo(r.u32()?), UndoNo(r.u32()?));
    if len > FRAME_PAYLOAD_MAX || last < first {
        return Err(r.bad("no header of a frame"));
    }
    Ok((txn, first, last, len))
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod undo_tests;
