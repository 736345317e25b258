//! The second home of the newest checkpoint record: a file holds the blocks of the log in which
//! that record lies, as they are there. Two files are written in turn, `evenkeel.checkpoint.0` and
//! `.1`, so that the copy of the checkpoint that the superblock names stands while the next one is
//! written.
//!
//! ```text
//!   0  magic "EVKNCKPT"                         8
//!   8  version u32                              4
//!  12  crc32c of the database id and the rest   4   (this field taken as zero)
//!  16  checkpoint LSN u64                       8
//!  24  first block u64                          8
//!  32  blocks u64                               8   at least one
//!  40  database id u64                          8
//!  48  zero                                   464
//! 512  the blocks
//! ```
//!
//! What follows the blocks is of an earlier copy and has no meaning.

use crate::codec::newer;
use crate::wal::BLOCK;
use evenkeel_base::{DatabaseId, Lsn, Result, crc32c};

/// Magic at the start of the file.
pub const MAGIC: &[u8; 8] = b"EVKNCKPT";
/// Version of this layout.
pub const CHECKPOINT_COPY_VERSION: u32 = 1;
/// Bytes before the blocks.
pub const HEADER_BYTES: usize = BLOCK;
/// The names of the two files.
pub const FILES: [&str; 2] = ["evenkeel.checkpoint.0", "evenkeel.checkpoint.1"];
/// Blocks of a copy, at most: a checkpoint record of more blocks has no copy.
pub const BLOCKS_MAX: u64 = (64 << 20) / BLOCK as u64;

const USED_BYTES: usize = 48;

/// The copy of a checkpoint record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointCopy {
    /// LSN of the first part of the record.
    pub checkpoint: Lsn,
    /// Number of the first block.
    pub first_block: u64,
    /// The blocks, one behind the other.
    pub blocks: Vec<u8>,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))
}

/// The checksum of a file of this length.
fn checksum(bytes: &[u8], database: DatabaseId) -> u32 {
    crc32c(crc32c(database.crc32c(&bytes[..12]), &[0; 4]), &bytes[16..])
}

impl CheckpointCopy {
    /// The bytes of the file.
    pub fn encode(&self, database: DatabaseId) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.blocks.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&CHECKPOINT_COPY_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let blocks = (self.blocks.len() / BLOCK) as u64;
        for value in [self.checkpoint.0, self.first_block, blocks, database.0] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.resize(HEADER_BYTES, 0);
        out.extend_from_slice(&self.blocks);
        let crc = checksum(&out, database);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a file of this database; none if it is damaged, was written in part, or belongs to
    /// another database.
    ///
    /// # Errors
    /// `NewerFormat` if it is whole and has another version, or a reserved byte that is not zero.
    pub fn decode(bytes: &[u8], database: DatabaseId) -> Result<Option<CheckpointCopy>> {
        if bytes.len() < HEADER_BYTES + BLOCK || &bytes[..8] != MAGIC {
            return Ok(None);
        }
        let blocks = u64_at(bytes, 32);
        let whole = (bytes.len() - HEADER_BYTES) / BLOCK;
        if blocks == 0 || blocks > BLOCKS_MAX || blocks > whole as u64 {
            return Ok(None);
        }
        let bytes = &bytes[..HEADER_BYTES + blocks as usize * BLOCK];
        if u32_at(bytes, 12) != checksum(bytes, database) {
            return Ok(None);
        }
        const PART: &str = "checkpoint copy";
        if u32_at(bytes, 8) != CHECKPOINT_COPY_VERSION {
            return Err(newer(PART, "version", u32_at(bytes, 8)));
        }
        if let Some(byte) = bytes[USED_BYTES..HEADER_BYTES].iter().find(|byte| **byte != 0) {
            return Err(newer(PART, "reserved", byte));
        }
        if u64_at(bytes, 40) != database.0 {
            return Ok(None);
        }
        Ok(Some(CheckpointCopy {
            checkpoint: Lsn(u64_at(bytes, 16)),
            first_block: u64_at(bytes, 24),
            blocks: bytes[HEADER_BYTES..].to_vec(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DB: DatabaseId = DatabaseId(7);

    fn sample(blocks: usize) -> CheckpointCopy {
        let blocks = (0..blocks * BLOCK).map(|at| at as u8).collect();
        CheckpointCopy { checkpoint: Lsn(9_700), first_block: 20, blocks }
    }

    #[test]
    fn a_copy_round_trips_and_damage_is_no_copy() {
        for blocks in [1, 2, 5] {
            let copy = sample(blocks);
            let bytes = copy.encode(DB);
            assert_eq!(CheckpointCopy::decode(&bytes, DB).expect("known"), Some(copy.clone()));
            assert_eq!(CheckpointCopy::decode(&bytes, DatabaseId(8)).expect("known"), None);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                assert_eq!(CheckpointCopy::decode(&damaged, DB).expect("damaged"), None, "{at}");
                assert_eq!(CheckpointCopy::decode(&bytes[..at], DB).expect("cut"), None, "{at}");
            }
            // The rest of an earlier, longer copy.
            let longer = [bytes, vec![3; 700]].concat();
            assert_eq!(CheckpointCopy::decode(&longer, DB).expect("known"), Some(copy));
        }
    }
}
