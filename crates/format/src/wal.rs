//! Log segments, blocks and record frames.
//!
//! The log is one stream of payload bytes; an LSN is a position in it. Payload lies in blocks of
//! 512 bytes, 480 of them payload: LSN `l` is in block `l / 480` at payload offset `l % 480`.
//! Blocks lie in segment files `wal/NNNNNNNN.wal` (decimal number). A block is written once (B1).
//!
//! ```text
//! segment    0..4096 header, then its blocks: block b at 4096 + (b - first_block) * 512
//! header     0 magic "EVKNWAL\0"  8 version u32   12 crc32c u32 of 0..4096, itself as zero
//!           16 number u64        24 first_block u64, a multiple of 8
//!           32 blocks u64, a multiple of 8         40 database id u64   48..4096 zero
//! block      0 crc32c u32 (below)     4 epoch u32   8 block u64   16 durable u64
//!           24 data_len u16: payload bytes in use, below 480 only where a flush padded
//!           26 first_record u16: payload offset of the first record that begins here, 0xffff: none
//!           28 flags u8: 1 = first block of its epoch, which holds no data   29..32 zero
//!           32..512 payload
//! record     len u32 (body bytes), kind u8, body; runs on through as many blocks as it needs
//! ```
//!
//! Checksums begin with the database id; a block's goes on with its bytes 4..512. `durable`: every
//! record below it was known to be durable when the block was written; in the first block of an
//! epoch, the position from which that epoch took over. Behind `data_len` nothing follows in the
//! block: the next record begins in the next block. All numbers are little-endian.

use crate::record::RecordKind;
use evenkeel_base::{Code, DatabaseId, Error, Lsn, Result, crc32c};

/// Bytes of a block.
pub const BLOCK: usize = 512;
/// Bytes of a block header.
pub const BLOCK_HEADER: usize = 32;
/// Payload bytes of a block.
pub const PAYLOAD: usize = BLOCK - BLOCK_HEADER;
/// Bytes of a segment header.
pub const SEGMENT_HEADER: usize = 4096;
/// First blocks and counts of blocks of segments are multiples of this (4 KiB).
pub const BLOCKS_ALIGN: u64 = (SEGMENT_HEADER / BLOCK) as u64;
/// Bytes of a record frame in front of the body.
pub const FRAME: usize = 5;
/// Longest body of one record (E4).
pub const RECORD_BYTES_MAX: usize = 2 << 20;
/// Version of the log format.
pub const WAL_VERSION: u32 = 2;
/// `first_record`: no record begins in the block.
pub const NO_RECORD: u16 = u16::MAX;
/// Flag: first block of its epoch.
pub const EPOCH_START: u8 = 1;

const MAGIC: [u8; 8] = *b"EVKNWAL\0";
const _: () = assert!(SEGMENT_HEADER.is_multiple_of(BLOCK) && PAYLOAD == 480);

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}
fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}

/// The block that holds an LSN.
pub fn block_of(lsn: Lsn) -> u64 {
    lsn.0 / PAYLOAD as u64
}

/// LSN of the first payload byte of a block (saturating: no block has such a number).
pub fn lsn_of(block: u64) -> Lsn {
    Lsn(block.saturating_mul(PAYLOAD as u64))
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The epoch of the database start that wrote it.
    pub epoch: u32,
    /// Its number, which is its place in the log.
    pub block: u64,
    /// Records below were known to be durable.
    pub durable: Lsn,
    /// Payload bytes in use.
    pub data_len: u16,
    /// Payload offset of the first record that begins here, or `NO_RECORD`.
    pub first_record: u16,
    /// `EPOCH_START` (then the block is empty) or 0.
    pub flags: u8,
}

impl BlockHeader {
    /// Writes the header and the checksum into a block whose payload is final.
    /// Panics if `block` is not of `BLOCK` bytes.
    pub fn seal(&self, block: &mut [u8], database: DatabaseId) {
        assert!(block.len() == BLOCK && usize::from(self.data_len) <= PAYLOAD);
        block[4..8].copy_from_slice(&self.epoch.to_le_bytes());
        block[8..16].copy_from_slice(&self.block.to_le_bytes());
        block[16..24].copy_from_slice(&self.durable.0.to_le_bytes());
        block[24..26].copy_from_slice(&self.data_len.to_le_bytes());
        block[26..28].copy_from_slice(&self.first_record.to_le_bytes());
        block[28] = self.flags;
        block[29..32].fill(0);
        let crc = database.crc32c(&block[4..]);
        block[0..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Ok if the flags and reserved bytes of a block are known; a block with a wrong checksum has
    /// none.
    ///
    /// # Errors
    /// `LogVersion` for a whole block of a newer version. `decode` takes such a block for none, and
    /// the log would seem to end in front of it.
    pub fn check_known(block: &[u8], database: DatabaseId) -> Result<()> {
        if block.len() != BLOCK || (block[28] <= EPOCH_START && block[29..32] == [0; 3]) {
            return Ok(());
        }
        if database.crc32c(&block[4..]) != u32_at(block, 0) {
            return Ok(());
        }
        let error = Error::new(Code::LogVersion).with("block", u64_at(block, 8));
        Err(match block[28] {
            0 | EPOCH_START => error.with("reserved", u32_at(block, 28) >> 8),
            flags => error.with("flags", flags),
        })
    }

    /// The header of a block, if length, checksum and every field are valid.
    pub fn decode(block: &[u8], database: DatabaseId) -> Option<BlockHeader> {
        if block.len() != BLOCK || database.crc32c(&block[4..]) != u32_at(block, 0) {
            return None;
        }
        let header = BlockHeader {
            epoch: u32_at(block, 4),
            block: u64_at(block, 8),
            durable: Lsn(u64_at(block, 16)),
            data_len: u16_at(block, 24),
            first_record: u16_at(block, 26),
            flags: block[28],
        };
        let record_ok = header.first_record == NO_RECORD || header.first_record < header.data_len;
        let is_empty = header.first_record == NO_RECORD && header.data_len == 0;
        let first_ok = header.flags == 0 || (header.flags == EPOCH_START && is_empty);
        let ok = usize::from(header.data_len) <= PAYLOAD
            && header.epoch != 0
            && record_ok
            && first_ok
            && block[29..32] == [0; 3];
        ok.then_some(header)
    }
}

/// The number in a block's header, unverified.
pub fn block_number(block: &[u8]) -> Option<u64> {
    (block.len() == BLOCK).then(|| u64_at(block, 8))
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Its number, as in its name.
    pub number: u64,
    /// Number of its first block.
    pub first_block: u64,
    /// The number of its blocks.
    pub blocks: u64,
    /// The database of the log.
    pub database: DatabaseId,
}

impl SegmentHeader {
    /// The block behind the last one.
    pub fn end_block(&self) -> u64 {
        self.first_block + self.blocks
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        SEGMENT_HEADER as u64 + self.blocks * BLOCK as u64
    }

    /// File offset of a block, which must lie in this segment.
    pub fn offset_of(&self, block: u64) -> u64 {
        assert!((self.first_block..self.end_block()).contains(&block));
        SEGMENT_HEADER as u64 + (block - self.first_block) * BLOCK as u64
    }

    /// Writes the header over `out` (`SEGMENT_HEADER` bytes, else it panics).
    pub fn encode(&self, out: &mut [u8]) {
        assert!(out.len() == SEGMENT_HEADER);
        out.fill(0);
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&WAL_VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..32].copy_from_slice(&self.first_block.to_le_bytes());
        out[32..40].copy_from_slice(&self.blocks.to_le_bytes());
        out[40..48].copy_from_slice(&self.database.0.to_le_bytes());
        let crc = self.database.crc32c(out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
    }

    /// Decodes. # Errors: `BadEncoding`; `LogVersion` for an intact header of another version, or
    /// with reserved bytes that are not zero.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader> {
        let bad = |why| Error::new(Code::BadEncoding).with("what", "log segment").with("why", why);
        if bytes.len() != SEGMENT_HEADER || bytes[0..8] != MAGIC {
            return Err(bad("no log segment"));
        }
        let database = DatabaseId(u64_at(bytes, 40));
        let crc = crc32c(crc32c(database.crc32c(&bytes[..12]), &[0; 4]), &bytes[16..]);
        if crc != u32_at(bytes, 12) {
            return Err(bad("checksum"));
        }
        let version = u32_at(bytes, 8);
        if !(1..=WAL_VERSION).contains(&version) {
            return Err(Error::new(Code::LogVersion).with("version", version));
        }
        if let Some(at) = bytes[48..].iter().position(|byte| *byte != 0) {
            return Err(Error::new(Code::LogVersion).with("reserved_byte", 48 + at));
        }
        let header = SegmentHeader {
            number: u64_at(bytes, 16),
            first_block: u64_at(bytes, 24),
            blocks: u64_at(bytes, 32),
            database,
        };
        let aligned = header.first_block.is_multiple_of(BLOCKS_ALIGN)
            && header.blocks.is_multiple_of(BLOCKS_ALIGN);
        let sane = header.blocks > 0 && header.blocks < 1 << 32 && header.first_block < 1 << 54;
        if aligned && sane { Ok(header) } else { Err(bad("geometry")) }
    }
}

/// Path of a segment.
pub fn segment_path(number: u64) -> String {
    format!("wal/{number:08}.wal")
}

/// The number in a segment's file name (without its directory).
pub fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".wal")?;
    let number: u64 = digits.parse().ok()?;
    (segment_path(number).strip_prefix("wal/") == Some(name)).then_some(number)
}

/// The frame in front of a body of `len` bytes.
pub fn frame(kind: RecordKind, len: u32) -> [u8; FRAME] {
    let [a, b, c, d] = len.to_le_bytes();
    [a, b, c, d, kind as u8]
}

/// Kind and body of the record at the start of `bytes`; `None` if more bytes are needed.
/// # Errors: `NewerFormat` for an unknown kind; `BadEncoding` for a length beyond
/// `RECORD_BYTES_MAX`.
pub fn split_record(bytes: &[u8]) -> Result<Option<(RecordKind, &[u8])>> {
    let Some((head, rest)) = bytes.split_at_checked(FRAME) else { return Ok(None) };
    let bad = |why| Error::new(Code::BadEncoding).with("what", "log record").with("why", why);
    let len = u32_at(head, 0) as usize;
    let kind = RecordKind::from_u8(head[4])
        .ok_or_else(|| crate::codec::newer("log record", "kind", head[4]))?;
    if len > RECORD_BYTES_MAX {
        return Err(bad("too long"));
    }
    Ok(rest.get(..len).map(|body| (kind, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DB: DatabaseId = DatabaseId(5);

    fn next(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    #[test]
    fn segment_names_have_eight_digits_or_more() {
        assert_eq!(segment_path(7), "wal/00000007.wal");
        assert_eq!(segment_number("00000007.wal"), Some(7));
        assert_eq!(segment_number("123456789.wal"), Some(123_456_789));
        for bad in ["7.wal", "00000007", "0000000x.wal", "000000007.wal", "+0000007.wal"] {
            assert_eq!(segment_number(bad), None, "{bad}");
        }
    }

    /// Golden bytes: a changed layout must change the version.
    #[test]
    fn layout_is_as_documented() {
        let header = BlockHeader {
            epoch: 0x0102_0304,
            block: 9,
            durable: Lsn(0x55),
            data_len: 0,
            first_record: NO_RECORD,
            flags: EPOCH_START,
        };
        let mut block = vec![0xabu8; BLOCK];
        header.seal(&mut block, DB);
        assert_eq!(
            block[4..29],
            [4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0x55, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1]
        );
        assert_eq!(BlockHeader::decode(&block, DB), Some(header));
        let segment = SegmentHeader { number: 3, first_block: 16, blocks: 8, database: DB };
        let mut bytes = vec![0xcd; SEGMENT_HEADER];
        segment.encode(&mut bytes);
        assert_eq!(&bytes[..12], b"EVKNWAL\0\x02\0\0\0");
        assert_eq!((bytes[16], bytes[24], bytes[32], bytes[40], bytes[48]), (3, 16, 8, 5, 0));
        assert_eq!(SegmentHeader::decode(&bytes).expect("decodes"), segment);
        bytes[8] = 1;
        let crc = crc32c(crc32c(DB.crc32c(&bytes[..12]), &[0; 4]), &bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes).expect("of the version before"), segment);
        assert_eq!(segment.offset_of(17), 4096 + 512);
    }

    /// No input makes a decoder panic; flipped bits never verify.
    #[test]
    fn mutations_are_found() {
        let mut seed = 0x1234_5678_9abc_def1u64;
        let mut block = vec![7u8; BLOCK];
        let header = BlockHeader {
            epoch: 5,
            block: 77,
            durable: Lsn(400),
            data_len: 100,
            first_record: 3,
            flags: 0,
        };
        header.seal(&mut block, DB);
        let mut segment = vec![0; SEGMENT_HEADER];
        SegmentHeader { number: 1, first_block: 8, blocks: 800, database: DB }.encode(&mut segment);
        let mut record = frame(RecordKind::Row, 20).to_vec();
        record.extend([1; 20]);
        for _ in 0..20_000 {
            let (mut b, mut s, mut r) = (block.clone(), segment.clone(), record.clone());
            for _ in 0..1 + next(&mut seed) % 4 {
                let bit = 1 << (next(&mut seed) % 8);
                let (bl, sl, rl) = (b.len(), s.len(), r.len());
                b[next(&mut seed) as usize % bl] ^= bit;
                s[next(&mut seed) as usize % sl] ^= bit;
                r[next(&mut seed) as usize % rl] ^= bit;
            }
            let cut = next(&mut seed) as usize;
            assert!(b == block || BlockHeader::decode(&b, DB).is_none());
            assert!(BlockHeader::decode(&b[..cut % BLOCK], DB).is_none());
            assert!(s == segment || SegmentHeader::decode(&s).is_err());
            assert!(SegmentHeader::decode(&s[..cut % SEGMENT_HEADER]).is_err());
            let _ = split_record(&r[..cut % (record.len() + 1)]);
            // A right checksum over wrong fields does no harm, either.
            let crc = DB.crc32c(&b[4..]);
            b[..4].copy_from_slice(&crc.to_le_bytes());
            if let Some(h) = BlockHeader::decode(&b, DB) {
                assert!(usize::from(h.data_len) <= PAYLOAD);
            }
        }
    }
}
