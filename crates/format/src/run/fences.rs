//! Fences of a slice, raw: for each data block a key above every key of the blocks before it and at
//! or below every key of its own, and its length.
//!
//! ```text
//! block count u32; per block: shared varint, suffix bytes, envelope length varint
//! ```
//! Fences are prefix-coded against the fence before.

use crate::head::{count_below, head_of};
use crate::node::common_prefix;
use crate::{Reader, put_bytes, put_varint};
use evenkeel_base::Result;

/// Collects fences.
#[derive(Default)]
pub struct FencesBuilder {
    raw: Vec<u8>,
    last: Vec<u8>,
    count: u32,
}

impl FencesBuilder {
    /// Adds a block: the last key of the block before (if any), its first key, its length.
    pub fn push(&mut self, before: Option<&[u8]>, first: &[u8], envelope_len: u32) {
        // The shortest key above `before` and at or below `first`; `first` if both are equal.
        let fence = match before {
            None => &first[..0],
            Some(before) => {
                let shared = common_prefix(before, first);
                &first[..(shared + 1).min(first.len())]
            }
        };
        let shared = common_prefix(&self.last, fence);
        put_varint(&mut self.raw, shared as u64);
        put_bytes(&mut self.raw, &fence[shared..]);
        put_varint(&mut self.raw, u64::from(envelope_len));
        self.last.truncate(shared);
        self.last.extend_from_slice(&fence[shared..]);
        self.count += 1;
    }

    /// Blocks so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The raw bytes.
    pub fn finish(self) -> Vec<u8> {
        let mut raw = self.count.to_le_bytes().to_vec();
        raw.extend_from_slice(&self.raw);
        raw
    }
}

/// Fences in memory.
#[derive(Debug, Default)]
pub struct Fences {
    keys: Vec<u8>,
    ends: Vec<u32>,
    positions: Vec<u64>,
    heads: Vec<u128>,
}

impl Fences {
    /// Decodes; the first block is at `position` of the file. # Errors: `BadEncoding`.
    pub fn decode(raw: &[u8], position: u64, data_len: u64) -> Result<Fences> {
        let mut r = Reader::new(raw, "run fences");
        let count = r.u32()?;
        // Each block takes at least 3 bytes here.
        if count == 0 || count as usize > r.rest().len() / 3 {
            return Err(r.bad("block count"));
        }
        let mut fences = Fences { positions: vec![position], ..Fences::default() };
        let mut at = position;
        let mut last = 0..0;
        for _ in 0..count {
            let shared = r.varint()? as usize;
            let suffix = r.bytes()?;
            if shared > last.len() || fences.keys.len() + shared > super::limits::META_BYTES_MAX {
                return Err(r.bad("shared prefix"));
            }
            let start = fences.keys.len();
            // Repeated sharing could blow up memory: bounded by the longest key a run may hold.
            if shared + suffix.len() > super::limits::ENTRY_BYTES_MAX {
                return Err(r.bad("key length"));
            }
            fences.keys.extend_from_within(last.start..last.start + shared);
            fences.keys.extend_from_slice(suffix);
            last = start..fences.keys.len();
            fences.heads.push(head_of(&fences.keys[last.clone()]));
            fences.ends.push(fences.keys.len() as u32);
            at += u64::from(r.varint32()?);
            fences.positions.push(at);
        }
        if at != position + data_len {
            return Err(r.bad("lengths"));
        }
        r.finish()?;
        Ok(fences)
    }

    /// Number of blocks, at least 1.
    pub fn blocks(&self) -> u32 {
        self.ends.len() as u32
    }

    /// The fence of a block.
    pub fn key(&self, block: u32) -> &[u8] {
        let start = if block == 0 { 0 } else { self.ends[block as usize - 1] };
        &self.keys[start as usize..self.ends[block as usize] as usize]
    }

    /// Position and length of a block's envelope.
    pub fn place(&self, block: u32) -> (u64, u32) {
        let (from, to) = (self.positions[block as usize], self.positions[block as usize + 1]);
        (from, (to - from) as u32)
    }

    /// The last block whose fence is below `key` (0 if none): the first that may hold it.
    pub fn block_of(&self, key: &[u8]) -> u32 {
        let head = head_of(key);
        let mut below = count_below(&self.heads, head);
        // Equal heads: the keys decide.
        let mut high = below + self.heads[below..].partition_point(|h| *h == head);
        while below < high {
            let middle = below + (high - below) / 2;
            if self.key(middle as u32) < key {
                below = middle + 1;
            } else {
                high = middle;
            }
        }
        below.saturating_sub(1) as u32
    }

    /// Bytes it takes in memory.
    pub fn memory(&self) -> usize {
        let heads = size_of::<u128>() * self.heads.capacity();
        self.keys.capacity() + 4 * self.ends.capacity() + 8 * self.positions.capacity() + heads
    }
}
