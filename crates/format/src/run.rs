//! Run files (`runs/NNNNNNNN.run`): sorted slices of secondary indexes, written once, front to
//! back.
//!
//! ```text
//! file:    slices, one after the other; footer envelope at a multiple of 4096; zeros; trailer in
//!          the last 40 bytes of the last multiple of 4096
//! slice:   data envelopes, 1 fence envelope, 0 or 1 filter envelope
//! trailer: magic u64, version u32, crc32c u32 (of database id, bytes 0..12 and 16..40),
//!          file number u64, footer offset u64, footer length u32, zero u32
//!
//! envelope (32 bytes, then the stored bytes)
//!  0  crc32c u32, of (database id u64, position u64, bytes 4..32, stored bytes): bound to
//!                 database, file, place and identity
//!  4  kind u8         1 data, 2 fences, 3 filter, 4 footer
//!  5  codec u8        0 as it is, 1 LZ4 block
//!  6  flags u8        1: has pending entries (D1)
//!  7  zero u8
//!  8  stored length u32
//! 12  raw length u32
//! 16  index id u32    (0 in a footer)
//! 20  block number in its slice u32
//! 24  file number u64
//! ```
//! The raw layouts: `block` (data), `fences`, `filter`, `footer`; the list of live files and runs
//! in manifest records: `manifest`.

mod block;
mod fences;
mod filter;
mod footer;
mod limits;
mod manifest;
#[cfg(test)]
mod tests;

pub use block::{BlockBuilder, DataBlock, RunEntry, RunVersion};
pub use fences::{Fences, FencesBuilder};
pub use filter::{Filter, FilterBuilder, hash_key};
pub use footer::{PackedFooter, SliceInfo, Trailer, decode_footer, encode_footer};
pub use limits::{BLOCK_BYTES, BLOCK_BYTES_MAX, ENTRY_BYTES_MAX, META_BYTES_MAX, RUN_VERSION};
pub use manifest::{ManifestOp, decode_manifest, encode_manifest};

use crate::Reader;
use evenkeel_base::{Code, DatabaseId, Error, IndexId, Result, crc32c};

/// Length of an envelope's head.
pub const ENVELOPE: usize = 32;
/// What an envelope holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EnvelopeKind {
    /// Entries.
    Data = 1,
    /// First keys of the blocks of a slice.
    Fences = 2,
    /// Bloom filter of a slice.
    Filter = 3,
    /// Descriptions of all slices.
    Footer = 4,
}

/// Identity of an envelope: its place and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvelopeId {
    /// Its database.
    pub database: DatabaseId,
    /// Its content.
    pub kind: EnvelopeKind,
    /// Its file.
    pub file: u64,
    /// Its position in the file.
    pub position: u64,
    /// Its index.
    pub index: IndexId,
    /// Its number in the slice.
    pub number: u32,
}

/// The fields of the head of an envelope, not verified by its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvelopeHead {
    /// Its content.
    pub kind: EnvelopeKind,
    /// Length of the stored bytes.
    pub stored_len: usize,
    /// Its index.
    pub index: IndexId,
    /// Its number in the slice.
    pub number: u32,
    /// Its file.
    pub file: u64,
}

impl EnvelopeHead {
    /// Reads the head at the start of `bytes`; none if it is invalid. Only [`open`] verifies that
    /// the envelope is whole.
    pub fn decode(bytes: &[u8]) -> Option<EnvelopeHead> {
        use EnvelopeKind::{Data, Fences, Filter, Footer};
        let mut r = Reader::new(bytes.get(4..ENVELOPE)?, "run envelope");
        let (kind, codec, flags, zero) = (r.u8().ok()?, r.u8().ok()?, r.u8().ok()?, r.u8().ok()?);
        let kind = [Data, Fences, Filter, Footer].into_iter().find(|known| *known as u8 == kind)?;
        let (stored_len, _raw_len) = (r.u32().ok()? as usize, r.u32().ok()?);
        let (index, number, file) = (IndexId(r.u32().ok()?), r.u32().ok()?, r.u64().ok()?);
        let head = EnvelopeHead { kind, stored_len, index, number, file };
        (codec <= 1 && flags <= 1 && zero == 0).then_some(head)
    }
}

/// An opened envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// True if `stored` is an LZ4 block.
    pub is_lz4: bool,
    /// True if entries are pending.
    pub has_pending: bool,
    /// Length when decompressed, checked against the limit of its kind.
    pub raw_len: usize,
    /// Stored bytes.
    pub stored: &'a [u8],
}

/// Builds the head of an envelope.
pub fn seal(id: EnvelopeId, envelope: &Envelope<'_>) -> [u8; ENVELOPE] {
    let mut head = [0; ENVELOPE];
    head[4] = id.kind as u8;
    head[5] = u8::from(envelope.is_lz4);
    head[6] = u8::from(envelope.has_pending);
    head[8..12].copy_from_slice(&(envelope.stored.len() as u32).to_le_bytes());
    head[12..16].copy_from_slice(&(envelope.raw_len as u32).to_le_bytes());
    head[16..20].copy_from_slice(&id.index.0.to_le_bytes());
    head[20..24].copy_from_slice(&id.number.to_le_bytes());
    head[24..32].copy_from_slice(&id.file.to_le_bytes());
    let crc = envelope_crc(id, &head[4..], envelope.stored);
    head[..4].copy_from_slice(&crc.to_le_bytes());
    head
}

fn envelope_crc(id: EnvelopeId, head: &[u8], stored: &[u8]) -> u32 {
    crc32c(crc32c(id.database.crc32c(&id.position.to_le_bytes()), head), stored)
}

/// Checks and opens an envelope at the start of `bytes` (more may follow).
///
/// # Errors
/// `RunDamaged` if checksum, identity or lengths are wrong; `RunVersionUnknown` if the envelope is
/// whole and has a kind, codec, flag or reserved byte that this version does not know.
pub fn open(id: EnvelopeId, bytes: &[u8]) -> Result<Envelope<'_>> {
    let damaged = |why: &str| {
        let error = Error::new(Code::RunDamaged)
            .with("file", format_args!("runs/{:08}.run", id.file))
            .with("offset", id.position);
        match id.kind {
            // The footer belongs to all indexes in the file.
            EnvelopeKind::Footer => error.with("why", why),
            EnvelopeKind::Data => {
                error.with("index", id.index).with("block", id.number).with("why", why)
            }
            _ => error.with("index", id.index).with("why", why),
        }
    };
    let (head, rest) =
        bytes.split_at_checked(ENVELOPE).ok_or_else(|| damaged("ends in an envelope"))?;
    let mut r = Reader::new(head, "run envelope");
    let (crc, kind, codec, flags, zero) = (r.u32()?, r.u8()?, r.u8()?, r.u8()?, r.u8()?);
    let (stored_len, raw_len) = (r.u32()? as usize, r.u32()? as usize);
    let (index, number, file) = (r.u32()?, r.u32()?, r.u64()?);
    let stored = rest.get(..stored_len).ok_or_else(|| damaged("ends in stored bytes"))?;
    if envelope_crc(id, &head[4..], stored) != crc {
        return Err(damaged("checksum"));
    }
    let known = 1..=EnvelopeKind::Footer as u8;
    for (field, found, is_known) in [
        ("kind", kind, known.contains(&kind)),
        ("codec", codec, codec <= 1),
        ("flags", flags, flags <= 1),
        ("zero", zero, zero == 0),
    ] {
        if !is_known {
            return Err(Error::new(Code::RunVersionUnknown)
                .with("file", format_args!("runs/{:08}.run", id.file))
                .with("offset", id.position)
                .with(field, found));
        }
    }
    let same = kind == id.kind as u8 && file == id.file && index == id.index.0;
    if !same || number != id.number {
        return Err(damaged("identity"));
    }
    let max = if id.kind == EnvelopeKind::Data { BLOCK_BYTES_MAX } else { META_BYTES_MAX };
    if raw_len > max || (codec == 0 && raw_len != stored_len) {
        return Err(damaged("length"));
    }
    Ok(Envelope { is_lz4: codec == 1, has_pending: flags == 1, raw_len, stored })
}
