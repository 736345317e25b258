//! A blocked Bloom filter over column bytes (without pk), raw.
//!
//! ```text
//! hash u8 (1 = `hash_key`), probes u8, zero u16, block count u32; blocks of 64 bytes
//! ```
//! A key with hash h belongs to block (h >> 32) * count >> 32. Probe i (from 0) sets bit
//! (low + i * step) mod 512 of it, low = h mod 2^32, step = (h >> 17 mod 2^32) | 1; bit b is bit
//! b mod 8 of byte b / 8. 10 bits per key and 6 probes let about 1.5% of absent keys through.

use crate::Reader;
use evenkeel_base::Result;

const PROBES: u8 = 6;
const BITS_PER_KEY: usize = 10;
const LINE: usize = 64;
const HEAD: usize = 8;

/// A stable 64-bit hash of a key: 8 bytes at a time, little-endian, the rest padded with zeros.
pub fn hash_key(key: &[u8]) -> u64 {
    const K: u64 = 0x9fb2_1c65_1e98_df25;
    let mut h = (key.len() as u64).wrapping_mul(K) ^ 0x2545_f491_4f6c_dd1d;
    let mut words = key.chunks_exact(8);
    for word in &mut words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        h = mix(h ^ u64::from_le_bytes(bytes)).wrapping_mul(K);
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    mix(mix(h ^ u64::from_le_bytes(last)).wrapping_mul(K))
}

fn mix(mut h: u64) -> u64 {
    h = (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    h ^ (h >> 29)
}

fn place(hash: u64, lines: u32) -> (usize, impl Iterator<Item = usize>) {
    let line = ((hash >> 32) * u64::from(lines)) >> 32;
    let (low, step) = (hash as u32, (hash >> 17) as u32 | 1);
    let bits = (0..u32::from(PROBES))
        .map(move |i| (low.wrapping_add(i.wrapping_mul(step)) % (LINE as u32 * 8)) as usize);
    (line as usize * LINE, bits)
}

/// Collects key hashes.
#[derive(Default)]
pub struct FilterBuilder {
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// Adds a key; repeating the last key costs nothing.
    pub fn push(&mut self, key: &[u8]) {
        let hash = hash_key(key);
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// The raw filter.
    pub fn finish(&self) -> Vec<u8> {
        let lines = (self.hashes.len() * BITS_PER_KEY).div_ceil(LINE * 8).max(1);
        let mut raw = vec![0; HEAD + lines * LINE];
        raw[0] = 1;
        raw[1] = PROBES;
        raw[4..8].copy_from_slice(&(lines as u32).to_le_bytes());
        for hash in &self.hashes {
            let (line, bits) = place(*hash, lines as u32);
            for bit in bits {
                raw[HEAD + line + bit / 8] |= 1 << (bit % 8);
            }
        }
        raw
    }
}

/// A filter to probe.
#[derive(Debug)]
pub struct Filter {
    raw: Box<[u8]>,
    lines: u32,
}

impl Filter {
    /// Takes raw bytes. # Errors: `BadEncoding`; `NewerFormat` for another hash.
    pub fn decode(raw: Box<[u8]>) -> Result<Filter> {
        let mut r = Reader::new(&raw, "run filter");
        let (hash, probes, zero, lines) = (r.u8()?, r.u8()?, r.u16()?, r.u32()?);
        let bytes = u64::from(lines) * LINE as u64;
        for (field, found, known) in [("hash", hash, 1), ("probes", probes, PROBES)] {
            if found != known {
                return Err(r.newer(field, found));
            }
        }
        r.zero("zero", &zero.to_le_bytes())?;
        if lines == 0 {
            return Err(r.bad("head"));
        }
        if bytes != r.rest().len() as u64 {
            return Err(r.bad("length"));
        }
        Ok(Filter { raw, lines })
    }

    /// False if no key with this hash is in the slice.
    pub fn may_contain(&self, hash: u64) -> bool {
        let (line, mut bits) = place(hash, self.lines);
        bits.all(|bit| self.raw[HEAD + line + bit / 8] & (1 << (bit % 8)) != 0)
    }

    /// Bytes it takes in memory.
    pub fn memory(&self) -> usize {
        self.raw.len()
    }
}
