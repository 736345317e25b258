//! A data block, raw.
//!
//! ```text
//! base timestamp u64; entries; restart offsets (u32 each); restart count u32
//! entry: flags u8, shared varint, suffix length varint, [pk length varint], suffix,
//!        [value bytes], [timestamp - base, wrapping, varint], [txn varint, undo_no varint]
//! flags: 1 INS, 2 DEL, 4 FRESH, 8 timestamp, 16 pending stamp, 32 value, 64 pk length
//! ```
//! A key is column bytes and pk; it repeats the first `shared` bytes of the key before. At a
//! restart (every 16th entry) `shared` is 0 and the pk length is given; elsewhere a missing pk
//! length is that of the entry before. Equal keys stand newest first. An entry with neither
//! timestamp nor stamp is visible to everyone.

use super::limits::{BLOCK_BYTES_MAX, ENTRY_BYTES_MAX};
use crate::head::{count_below, head_of};
use crate::node::common_prefix;
use crate::{Reader, put_bytes, put_varint, record::entry_op};
use evenkeel_base::{Lsn, Result, Stamp, TxnId, UndoNo};
use std::sync::OnceLock;

const RESTART_EVERY: u32 = 16;
/// Most keys fit this.
const KEY_BYTES: usize = 64;
const HEAD: usize = 8;
const INS_FRESH: u8 = entry_op::INS | entry_op::FRESH;
const OPS: u8 = entry_op::INS | entry_op::DEL | entry_op::FRESH;
const TIMESTAMP: u8 = 8;
const PENDING: u8 = 16;
const VALUE: u8 = 32;
const PK_LEN: u8 = 64;

/// The timestamp of an entry in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunVersion {
    /// Committed at this timestamp; zero: visible to everyone.
    Committed(Lsn),
    /// Undecided when it was written.
    Pending(Stamp),
}

/// An entry's parts except its key, which the reader keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEntry {
    /// `entry_op` bits.
    pub op: u8,
    /// Its timestamp.
    pub version: RunVersion,
    /// Position of its value in the block.
    pub value_at: u32,
    /// Length of its value.
    pub value_len: u32,
    /// Length of its pk.
    pub pk_len: u32,
    /// Position of the next entry.
    pub next: u32,
    /// It has the key of the entry before: an older version.
    pub repeats: bool,
}

/// Builds a data block.
pub struct BlockBuilder {
    base: Lsn,
    raw: Vec<u8>,
    restarts: Vec<u32>,
    last_key: Vec<u8>,
    last_pk_len: usize,
    count: u32,
    has_pending: bool,
}

impl BlockBuilder {
    /// An empty block; timestamps should not lie below `base`.
    pub fn new(base: Lsn) -> BlockBuilder {
        let mut builder = BlockBuilder {
            base,
            raw: Vec::new(),
            restarts: Vec::new(),
            last_key: Vec::new(),
            last_pk_len: 0,
            count: 0,
            has_pending: false,
        };
        builder.clear();
        builder
    }

    /// Empties it for the next block.
    pub fn clear(&mut self) {
        self.raw.clear();
        self.raw.extend_from_slice(&self.base.0.to_le_bytes());
        self.restarts.clear();
        self.last_key.clear();
        self.count = 0;
        self.has_pending = false;
    }

    /// Appends an entry; `key` is column bytes and pk.
    pub fn push(&mut self, key: &[u8], pk_len: usize, op: u8, version: RunVersion, value: &[u8]) {
        let restart = self.count.is_multiple_of(RESTART_EVERY);
        let shared = if restart { 0 } else { common_prefix(key, &self.last_key) };
        if restart {
            self.restarts.push(self.raw.len() as u32);
        }
        let mut flags = op & OPS;
        flags |= match version {
            RunVersion::Committed(Lsn::ZERO) => 0,
            RunVersion::Committed(_) => TIMESTAMP,
            RunVersion::Pending(_) => PENDING,
        };
        if !value.is_empty() {
            flags |= VALUE;
        }
        if restart || pk_len != self.last_pk_len {
            flags |= PK_LEN;
        }
        if (shared | key.len()) < 0x80 {
            // One byte each is the common case.
            self.raw.extend_from_slice(&[flags, shared as u8, (key.len() - shared) as u8]);
        } else {
            self.raw.push(flags);
            put_varint(&mut self.raw, shared as u64);
            put_varint(&mut self.raw, (key.len() - shared) as u64);
        }
        if flags & PK_LEN != 0 {
            put_varint(&mut self.raw, pk_len as u64);
        }
        self.raw.extend_from_slice(&key[shared..]);
        if flags & VALUE != 0 {
            put_bytes(&mut self.raw, value);
        }
        match version {
            RunVersion::Committed(Lsn::ZERO) => {}
            RunVersion::Committed(cts) => {
                put_varint(&mut self.raw, cts.0.wrapping_sub(self.base.0));
            }
            RunVersion::Pending(stamp) => {
                put_varint(&mut self.raw, stamp.txn.0);
                put_varint(&mut self.raw, u64::from(stamp.undo_no.0));
                self.has_pending = true;
            }
        }
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.last_pk_len = pk_len;
        self.count += 1;
    }

    /// Entries so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Raw bytes so far.
    pub fn len(&self) -> usize {
        self.raw.len() + 4 * self.restarts.len() + 4
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// True if an entry is pending.
    pub fn has_pending(&self) -> bool {
        self.has_pending
    }

    /// The last pushed key.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Closes the block and returns its bytes; call `clear` before the next.
    pub fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.raw.extend_from_slice(&restart.to_le_bytes());
        }
        self.raw.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        &self.raw
    }
}

/// Keeps the first `shared` bytes of `key` and appends `suffix`; true if the key is unchanged.
#[inline]
fn replace_end(key: &mut Vec<u8>, shared: usize, suffix: &[u8]) -> bool {
    let end = &key[shared..];
    let repeats = end.len() == suffix.len() && end.first() == suffix.first() && end == suffix;
    key.truncate(shared);
    key.extend_from_slice(suffix);
    repeats
}

/// A data block to read. Restart offsets are checked when it is parsed, entries when decoded.
#[derive(Debug)]
pub struct DataBlock {
    raw: Vec<u8>,
    base: u64,
    entries_end: u32,
    restarts: u32,
    /// Heads of the restarts' keys, stored together; made when a key is first searched.
    heads: OnceLock<Box<[u128]>>,
}

impl DataBlock {
    /// Takes raw bytes. # Errors: `BadEncoding`.
    pub fn parse(raw: Vec<u8>) -> Result<DataBlock> {
        let mut r = Reader::new(&raw, "run block");
        if raw.len() > BLOCK_BYTES_MAX {
            return Err(r.bad("too long"));
        }
        let base = r.u64()?;
        let tail = raw.len().checked_sub(4).filter(|at| *at >= HEAD);
        let Some(tail) = tail else { return Err(r.bad("no restart count")) };
        let restarts = Reader::new(&raw[tail..], "run block").u32()?;
        let table = (restarts as usize).checked_mul(4).filter(|n| *n <= tail - HEAD);
        let Some(table) = table.filter(|n| *n > 0) else { return Err(r.bad("restart count")) };
        let entries_end = tail - table;
        let mut last = 0;
        for (i, bytes) in raw[entries_end..tail].chunks_exact(4).enumerate() {
            let at = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let first = i == 0 && at as usize == HEAD;
            if (at as usize) >= entries_end || !(first || i > 0 && at > last) {
                return Err(r.bad("restart offset"));
            }
            last = at;
        }
        let entries_end = entries_end as u32;
        Ok(DataBlock { raw, base, entries_end, restarts, heads: OnceLock::new() })
    }

    /// Upper bound of its memory.
    pub fn memory(&self) -> usize {
        self.raw.capacity() + size_of::<DataBlock>() + self.restarts as usize * size_of::<u128>()
    }

    /// The memory of the raw bytes, for use by another block.
    pub fn into_raw(self) -> Vec<u8> {
        self.raw
    }

    /// Number of restarts, at least 1.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Start of the entries of restart `i`; the end of the entries for `i == restarts()`.
    pub fn restart(&self, i: u32) -> u32 {
        if i >= self.restarts {
            return self.entries_end;
        }
        let at = self.entries_end as usize + 4 * i as usize;
        let b = &self.raw[at..at + 4];
        u32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }

    /// Start of the first entry.
    pub fn start(&self) -> u32 {
        HEAD as u32
    }

    /// End of the entries.
    pub fn end(&self) -> u32 {
        self.entries_end
    }

    /// The value of an entry of this block.
    pub fn value(&self, entry: &RunEntry) -> &[u8] {
        let at = entry.value_at as usize;
        self.raw.get(at..at + entry.value_len as usize).unwrap_or(&[])
    }

    /// The whole key at restart `i`. # Errors: `BadEncoding`.
    pub fn restart_key(&self, i: u32) -> Result<&[u8]> {
        let at = self.restart(i) as usize;
        let mut r = Reader::new(&self.raw[at..self.entries_end as usize], "run block");
        let flags = r.u8()?;
        if r.varint()? != 0 || flags & PK_LEN == 0 {
            return Err(r.bad("no restart"));
        }
        let len = r.varint32()?;
        r.varint()?;
        r.take(len as usize)
    }

    /// Decodes the entry at `at` (below `end`). `key` and `pk_len` hold those of the entry before
    /// and are set to this one's; an error leaves them unchanged. # Errors: `BadEncoding`.
    #[inline]
    pub fn decode(&self, at: u32, key: &mut Vec<u8>, pk_len: u32) -> Result<RunEntry> {
        let entries = &self.raw[..self.entries_end as usize];
        let bytes = entries.get(at as usize..).unwrap_or(&[]);
        // The common entry of a bottom run: short, with nothing but its key.
        if let [flags, shared, suffix, rest @ ..] = bytes
            && matches!(*flags & !TIMESTAMP, entry_op::INS | entry_op::DEL | INS_FRESH)
            && (*shared | *suffix) < 0x80
            && let (shared, suffix) = (usize::from(*shared), usize::from(*suffix))
            && shared <= key.len()
            && shared + suffix >= pk_len as usize
            && let Some((suffix, behind)) = rest.split_at_checked(suffix)
        {
            let value_at = at + 3 + suffix.len() as u32;
            let (cts, next) = match *flags & TIMESTAMP {
                0 => (Lsn::ZERO, value_at),
                _ => {
                    let mut r = Reader::new(behind, "run block");
                    let cts = Lsn(self.base.wrapping_add(r.varint()?));
                    (cts, (entries.len() - r.rest().len()) as u32)
                }
            };
            let repeats = replace_end(key, shared, suffix);
            let version = RunVersion::Committed(cts);
            let (op, value_len) = (*flags & OPS, 0);
            return Ok(RunEntry { op, version, value_at, value_len, pk_len, next, repeats });
        }
        self.decode_any(at, key, pk_len)
    }

    fn decode_any(&self, at: u32, key: &mut Vec<u8>, pk_len: u32) -> Result<RunEntry> {
        let entries = &self.raw[..self.entries_end as usize];
        let mut r = Reader::new(entries.get(at as usize..).unwrap_or(&[]), "run block");
        let flags = r.u8()?;
        let op = flags & OPS;
        let both = TIMESTAMP | PENDING;
        if !entry_op::is_known(op) || flags & both == both || flags & 0x80 != 0 {
            return Err(r.newer("flags", format_args!("{flags:#04x}")));
        }
        let shared = r.varint()? as usize;
        let suffix = r.varint()? as usize;
        let pk_len = if flags & PK_LEN != 0 { r.varint32()? } else { pk_len };
        if shared > key.len() || suffix > ENTRY_BYTES_MAX || shared + suffix < pk_len as usize {
            return Err(r.bad("key length"));
        }
        let suffix = r.take(suffix)?;
        let value = if flags & VALUE != 0 { r.bytes()? } else { &[] };
        let value_at = (entries.len() - r.rest().len() - value.len()) as u32;
        let version = if flags & TIMESTAMP != 0 {
            RunVersion::Committed(Lsn(self.base.wrapping_add(r.varint()?)))
        } else if flags & PENDING != 0 {
            RunVersion::Pending(Stamp { txn: TxnId(r.varint()?), undo_no: UndoNo(r.varint32()?) })
        } else {
            RunVersion::Committed(Lsn::ZERO)
        };
        let next = (entries.len() - r.rest().len()) as u32;
        let repeats = replace_end(key, shared, suffix);
        let value_len = value.len() as u32;
        Ok(RunEntry { op, version, value_at, value_len, pk_len, next, repeats })
    }

    fn heads(&self) -> Result<&[u128]> {
        if let Some(heads) = self.heads.get() {
            return Ok(heads);
        }
        let heads: Result<Box<[u128]>> =
            (0..self.restarts).map(|i| Ok(head_of(self.restart_key(i)?))).collect();
        let heads = heads?;
        Ok(self.heads.get_or_init(|| heads))
    }

    /// The number of entries below `key`; of all entries if `key` is `None`. At most the entries of
    /// one restart are decoded. # Errors: `BadEncoding`.
    pub fn entries_below(&self, key: Option<&[u8]>) -> Result<u64> {
        let restart = match key {
            Some(key) => self.restart_before(key)?,
            None => self.restarts - 1,
        };
        let (mut at, mut pk_len) = (self.restart(restart), 0);
        let (mut present, mut below) = (Vec::with_capacity(KEY_BYTES), 0);
        while at < self.entries_end {
            let entry = self.decode(at, &mut present, pk_len)?;
            if key.is_some_and(|key| &present[..] >= key) {
                break;
            }
            (at, pk_len) = (entry.next, entry.pk_len);
            below += 1;
        }
        Ok(u64::from(restart * RESTART_EVERY) + below)
    }

    /// The last restart whose key is below `key`, 0 if none is. # Errors: `BadEncoding`.
    pub fn restart_before(&self, key: &[u8]) -> Result<u32> {
        let (heads, head) = (self.heads()?, head_of(key));
        let mut below = count_below(heads, head);
        // Equal heads: the keys decide.
        let mut high = below + heads[below..].iter().take_while(|h| **h == head).count();
        while below < high {
            let middle = below + (high - below) / 2;
            if self.restart_key(middle as u32)? < key {
                below = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(below.saturating_sub(1) as u32)
    }
}
