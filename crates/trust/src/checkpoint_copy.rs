//! The decoder of copies of checkpoint records, for the fuzz target of the superblock (`fuzz`).

use evenkeel_base::{DatabaseId, crc32c};
use evenkeel_format::checkpoint_copy::{CheckpointCopy, HEADER_BYTES, MAGIC};
use evenkeel_format::wal::BLOCK;

/// The copy of a checkpoint record, as it is and as one of one block with a right checksum.
pub fn decode(data: &[u8], database: DatabaseId) {
    let _ = CheckpointCopy::decode(data, database);
    let mut copy = data.to_vec();
    if copy.len() < HEADER_BYTES + BLOCK {
        return;
    }
    copy.truncate(HEADER_BYTES + BLOCK);
    copy[..8].copy_from_slice(MAGIC);
    copy[32..40].copy_from_slice(&1u64.to_le_bytes());
    let crc = crc32c(crc32c(database.crc32c(&copy[..12]), &[0; 4]), &copy[16..]);
    copy[12..16].copy_from_slice(&crc.to_le_bytes());
    if let Ok(Some(found)) = CheckpointCopy::decode(&copy, database) {
        assert_eq!(found.blocks.len(), BLOCK);
    }
}
