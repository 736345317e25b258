//! Footer, raw, and trailer of a run file.
//!
//! ```text
//! footer: slice count varint; slices
//! slice:  index varint, run varint, oldest age varint, newest age varint, position varint,
//!         data length varint, blocks varint, fences length varint, filter length varint (0: none),
//!         entries varint, deletes varint, base timestamp varint, min key bytes, max key bytes,
//!         pending count varint, pending txn ids (varints, ascending)
//! ```
//! Slices of one (index, run) in all files are the segments of that run.

use super::limits::{META_BYTES_MAX, RUN_VERSION};
use crate::{Reader, put_bytes, put_varint};
use evenkeel_base::{Code, DatabaseId, Error, Generation, IndexId, Lsn, Result, TxnId, crc32c};

const MAGIC: u64 = u64::from_le_bytes(*b"EVKLRUN\x01");

/// The facts of a slice that are known without reading it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SliceInfo {
    /// Its index.
    pub index: IndexId,
    /// The run to which it belongs: the number of the run's first file.
    pub run: u64,
    /// Oldest generation in it; 0: an index build.
    pub age_low: Generation,
    /// Newest generation in it.
    pub age_high: Generation,
    /// Position of its first data envelope.
    pub position: u64,
    /// Bytes of its data envelopes.
    pub data_len: u64,
    /// Their number.
    pub blocks: u32,
    /// Length of the fence envelope, which follows the data.
    pub fences_len: u32,
    /// Length of the filter envelope, which follows the fences; 0 without.
    pub filter_len: u32,
    /// Entries.
    pub entries: u64,
    /// Entries that are DEL.
    pub deletes: u64,
    /// Lower bound of its timestamps.
    pub base_cts: Lsn,
    /// First key (column bytes and pk).
    pub min_key: Vec<u8>,
    /// Last key.
    pub max_key: Vec<u8>,
    /// Transactions with pending entries (D1), ascending.
    pub pending: Vec<TxnId>,
    /// Entries below a newer one of their key. Only the writer of the slice knows: footers do not
    /// contain it.
    pub superseded: u64,
    /// The newest timestamp in it; known in the same way.
    pub newest_cts: Lsn,
}

impl SliceInfo {
    /// Bytes of the slice in its file.
    pub fn bytes(&self) -> u64 {
        self.data_len + u64::from(self.fences_len) + u64::from(self.filter_len)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let numbers = [
            u64::from(self.index.0),
            self.run,
            self.age_low.0,
            self.age_high.0,
            self.position,
            self.data_len,
            u64::from(self.blocks),
            u64::from(self.fences_len),
            u64::from(self.filter_len),
            self.entries,
            self.deletes,
            self.base_cts.0,
        ];
        for number in numbers {
            put_varint(out, number);
        }
        put_bytes(out, &self.min_key);
        put_bytes(out, &self.max_key);
        put_varint(out, self.pending.len() as u64);
        for txn in &self.pending {
            put_varint(out, txn.0);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<SliceInfo> {
        let mut slice = SliceInfo {
            index: IndexId(r.varint32()?),
            run: r.varint()?,
            age_low: Generation(r.varint()?),
            age_high: Generation(r.varint()?),
            position: r.varint()?,
            data_len: r.varint()?,
            blocks: r.varint32()?,
            fences_len: r.varint32()?,
            filter_len: r.varint32()?,
            entries: r.varint()?,
            deletes: r.varint()?,
            base_cts: Lsn(r.varint()?),
            min_key: r.bytes()?.to_vec(),
            max_key: r.bytes()?.to_vec(),
            pending: Vec::new(),
            superseded: 0,
            newest_cts: Lsn::ZERO,
        };
        for _ in 0..r.varint()? {
            slice.pending.push(TxnId(r.varint()?));
        }
        let meta = u64::from(slice.fences_len).max(u64::from(slice.filter_len));
        let end = slice.position.checked_add(slice.data_len);
        if slice.blocks == 0 || meta > META_BYTES_MAX as u64 || end.is_none_or(|e| e > 1 << 60) {
            return Err(r.bad("slice"));
        }
        Ok(slice)
    }
}

/// Encodes a footer.
pub fn encode_footer(slices: &[SliceInfo]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, slices.len() as u64);
    for slice in slices {
        slice.encode(&mut out);
    }
    out
}

/// Decodes a footer. # Errors: `BadEncoding`.
pub fn decode_footer(raw: &[u8]) -> Result<Vec<SliceInfo>> {
    let mut r = Reader::new(raw, "run footer");
    let mut slices = Vec::new();
    for _ in 0..r.varint()? {
        slices.push(SliceInfo::decode(&mut r)?);
    }
    r.finish()?;
    Ok(slices)
}

/// A footer in its stored form, from which slices are decoded one by one: much smaller than all of
/// them decoded.
pub struct PackedFooter {
    raw: Box<[u8]>,
    /// Where each slice starts, by its index.
    places: Vec<(IndexId, u32)>,
}

impl PackedFooter {
    /// Checks a footer. # Errors: `BadEncoding` for any invalid byte.
    pub fn parse(raw: Box<[u8]>) -> Result<PackedFooter> {
        let mut r = Reader::new(&raw, "run footer");
        let mut places = Vec::new();
        for _ in 0..r.varint()? {
            let at = (raw.len() - r.rest().len()) as u32;
            places.push((SliceInfo::decode(&mut r)?.index, at));
        }
        r.finish()?;
        places.sort_unstable();
        places.shrink_to_fit();
        Ok(PackedFooter { raw, places })
    }

    /// The slice of an index, if there is one: a file has at most one per index. # Errors: none,
    /// because it was decoded before.
    pub fn slice(&self, index: IndexId) -> Result<Option<SliceInfo>> {
        let place = self.places.partition_point(|(of, _)| *of < index);
        match self.places.get(place) {
            Some((of, at)) if *of == index => {
                let rest = self.raw.get(*at as usize..).unwrap_or_default();
                SliceInfo::decode(&mut Reader::new(rest, "run footer")).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Bytes that it takes.
    pub fn memory(&self) -> usize {
        size_of::<PackedFooter>() + self.raw.len() + size_of_val(&self.places[..])
    }
}

/// The end of a run file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The file's number.
    pub file: u64,
    /// Position of the footer envelope.
    pub footer_position: u64,
    /// Its length.
    pub footer_len: u32,
}

impl Trailer {
    /// Its length.
    pub const LEN: usize = 40;

    /// Encodes.
    pub fn encode(&self, database: DatabaseId) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&MAGIC.to_le_bytes());
        out[8..12].copy_from_slice(&RUN_VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.file.to_le_bytes());
        out[24..32].copy_from_slice(&self.footer_position.to_le_bytes());
        out[32..36].copy_from_slice(&self.footer_len.to_le_bytes());
        let crc = crc32c(database.crc32c(&out[..12]), &out[16..]);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes. # Errors: `RunDamaged`, `RunVersionUnknown`.
    pub fn decode(bytes: &[u8], file: u64, database: DatabaseId) -> Result<Trailer> {
        let damaged = |why| {
            Error::new(Code::RunDamaged)
                .with("file", format_args!("runs/{file:08}.run"))
                .with("why", why)
        };
        let mut r = Reader::new(bytes, "run trailer");
        let (magic, version, crc) = (r.u64()?, r.u32()?, r.u32()?);
        let trailer = Trailer { file: r.u64()?, footer_position: r.u64()?, footer_len: r.u32()? };
        let zero = r.u32()?;
        r.finish()?;
        if magic != MAGIC || crc32c(database.crc32c(&bytes[..12]), &bytes[16..]) != crc {
            return Err(damaged("trailer checksum"));
        }
        if version != RUN_VERSION {
            return Err(Error::new(Code::RunVersionUnknown)
                .with("file", format_args!("runs/{file:08}.run"))
                .with("version", version));
        }
        if zero != 0 {
            return Err(Error::new(Code::RunVersionUnknown)
                .with("file", format_args!("runs/{file:08}.run"))
                .with("reserved", zero));
        }
        if trailer.file != file || trailer.footer_len as usize > META_BYTES_MAX {
            return Err(damaged("trailer identity"));
        }
        Ok(trailer)
    }
}
