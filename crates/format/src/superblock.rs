//! The superblock: file `evenkeel.super`, two slots of 4 KiB, written in turn; the valid one with
//! the larger sequence number counts. A slot is one write, so a crash tears at most the slot that
//! is being written and the other one stands.
//!
//! ```text
//! slot (4,096 bytes, rest zero)
//!   0  magic "EVENKEEL"            8
//!   8  crc32c of bytes 12..4096    4
//!  12  superblock version u16      2
//!  14  page version u16            2
//!  16  log version u16             2
//!  18  run version u16             2
//!  20  catalog version u16         2
//!  22  flags u16 (1 = clean)       2
//!  24  page size u32               4
//!  28  log epoch u32               4
//!  32  sequence u64                8
//!  40  database id u64             8
//!  48  checkpoint LSN u64          8   first part of the newest CHECKPOINT record
//!  56  redo LSN u64                8   replay starts here; redo <= checkpoint
//!  64  catalog root page u64       8
//!  72  page redo LSN u64           8   page redo starts here; redo <= page redo <= checkpoint
//! from version 2 on:
//!  80  compatible features u64     8
//!  88  read-only features u64      8
//!  96  incompatible features u64   8
//! 104  timeline u128              16
//! 120  parent timeline u128       16   zero: none
//! 136  fork LSN u64                8   where this timeline left its parent
//! ```
//!
//! Versions: 1 ends at byte 80. This build reads 1 and 2, and writes a slot in the version that it
//! has; `Superblock::convert` makes a 2 of a 1.
//!
//! Features: a bit says that the files hold something that a build which does not know the bit
//! cannot expect. An unknown *compatible* bit is kept when a slot is rewritten; with an unknown
//! *read-only* bit the directory may be read, not written; with an unknown *incompatible* bit it is
//! refused. Bits 48 to 63 of each word are for experiments, which no promise covers.
//!
//! The timeline is drawn at creation. A directory that is restored from a backup goes on from a
//! position in the past of another: it draws a new timeline and names its parent and the position,
//! so that backups of the two are never mixed.
//!
//! CHECKPOINT record body: part varint (from 0), parts varint, bytes. The joined bytes are
//! sections: id u8, bytes; each section belongs to one component.

use crate::codec::newer;
use crate::{Reader, put_bytes, put_varint};
use evenkeel_base::{Code, DatabaseId, Error, Lsn, PageNo, Result, crc32c};

/// Bytes of a slot.
pub const SLOT_BYTES: usize = 4096;
/// Magic at the start of a slot.
pub const MAGIC: &[u8; 8] = b"EVENKEEL";
/// Version of this layout.
pub const SUPERBLOCK_VERSION: u16 = 2;
/// Version of page layouts.
pub const PAGE_VERSION: u16 = 1;
/// Version of the log.
pub const LOG_VERSION: u16 = 2;
/// Version of runs.
pub const RUN_VERSION: u16 = 1;
/// Version of the catalog.
pub const CATALOG_VERSION: u16 = 1;
/// Largest chunk of a checkpoint in one record.
pub const CHECKPOINT_PART_BYTES: usize = 1 << 20;

const FLAG_CLEAN: u16 = 1;
/// Bytes of a slot of version 1 that have a meaning; the rest is zero.
const USED_BYTES_1: usize = 80;
/// The same of version 2.
const USED_BYTES: usize = 144;
/// Compatible feature: the checkpoint record that the slot names has a second home
/// (`checkpoint_copy`).
pub const CHECKPOINT_COPY: u64 = 1;
/// An incompatible feature: the catalog has or had foreign keys. A build that does not know them
/// would write rows that break them.
pub const FOREIGN_KEYS: u64 = 1;
/// An incompatible feature: the catalog has or had chunked tables. A build that does not know them
/// would take such a table for an empty one.
pub const CHUNKED_TABLES: u64 = 4;
/// Features that this build knows. It keeps all compatible ones.
const KNOWN: Features = Features {
    compatible: CHECKPOINT_COPY,
    read_only: 0,
    incompatible: FOREIGN_KEYS | CHUNKED_TABLES,
};
const SUPERBLOCK: &str = "superblock";
const VERSIONS: [(&str, usize, u16); 5] = [
    (SUPERBLOCK, 12, SUPERBLOCK_VERSION),
    ("page", 14, PAGE_VERSION),
    ("log", 16, LOG_VERSION),
    ("run", 18, RUN_VERSION),
    ("catalog", 20, CATALOG_VERSION),
];

/// What the files hold beside the formats of this version, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// A build that does not know these may read and write, and keeps the bits.
    pub compatible: u64,
    /// A build that does not know these may read.
    pub read_only: u64,
    /// A build that does not know these may not even read.
    pub incompatible: u64,
}

/// The line of history that a directory belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Drawn at creation, by a restore, and when a directory of version 1 is converted; zero in one
    /// of version 1.
    pub id: u128,
    /// The timeline from which a restore took the directory; zero if there was none.
    pub parent: u128,
    /// Where this one left its parent.
    pub fork: Lsn,
}

/// The content of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Version of the slot: 1, or 2.
    pub version: u16,
    /// Grows by one with each write.
    pub sequence: u64,
    /// Random number drawn at creation; binds all files of a database together.
    pub database_id: DatabaseId,
    /// Page size in bytes.
    pub page_size: u32,
    /// Epoch of the log that is being written.
    pub epoch: u32,
    /// True if the database was closed and nothing has been written since.
    pub clean: bool,
    /// First part of the newest checkpoint record.
    pub checkpoint: Lsn,
    /// The position at which replay starts.
    pub redo: Lsn,
    /// Root page of the catalog tree.
    pub catalog_root: PageNo,
    /// The position at which page redo starts: the log between `redo` and this is read only for
    /// memtables and transactions. Older slots have zero, which means `redo`.
    pub page_redo: Lsn,
    /// None in version 1.
    pub features: Features,
    /// None in version 1.
    pub timeline: Timeline,
}

impl Superblock {
    /// Makes a superblock of the present version of one of version 1; another one stays.
    pub fn convert(&mut self, timeline: impl FnOnce() -> u128) {
        if self.version == 1 {
            self.version = SUPERBLOCK_VERSION;
            self.timeline = Timeline { id: timeline(), ..Timeline::default() };
        }
    }

    /// Begins a timeline of its own, which leaves the present one at `fork`.
    pub fn leave_timeline(&mut self, timeline: impl Fn() -> u128, fork: Lsn) {
        self.convert(&timeline);
        self.timeline = Timeline { id: timeline(), parent: self.timeline.id, fork };
    }

    /// True if the checkpoint record has a second home.
    pub fn has_checkpoint_copy(&self) -> bool {
        self.features.compatible & CHECKPOINT_COPY != 0
    }

    /// Notes whether the checkpoint record has a second home. A slot of version 1 cannot say so.
    pub fn set_checkpoint_copy(&mut self, has: bool) {
        self.features.compatible &= !CHECKPOINT_COPY;
        if has && self.version > 1 {
            self.features.compatible |= CHECKPOINT_COPY;
        }
    }

    /// Ok if this build may write to the directory.
    ///
    /// # Errors
    /// `NewerFormat` naming the bits that it does not know.
    pub fn check_writable(&self) -> Result<()> {
        match self.features.read_only & !KNOWN.read_only {
            0 => Ok(()),
            unknown => Err(newer("superblock", "read_only_features", format_args!("{unknown:#x}"))
                .with("why", "the directory can be opened read-only")),
        }
    }

    /// Encodes a slot in the version that it has.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SLOT_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[0; 4]);
        for (name, _, version) in VERSIONS {
            let version = if name == SUPERBLOCK { self.version } else { version };
            out.extend_from_slice(&version.to_le_bytes());
        }
        out.extend_from_slice(&(if self.clean { FLAG_CLEAN } else { 0 }).to_le_bytes());
        out.extend_from_slice(&self.page_size.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        let (checkpoint, redo, page_redo) = (self.checkpoint.0, self.redo.0, self.page_redo.0);
        let (database, root) = (self.database_id.0, self.catalog_root.0);
        for value in [self.sequence, database, checkpoint, redo, root, page_redo] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        if self.version > 1 {
            let Features { compatible, read_only, incompatible } = self.features;
            for bits in [compatible, read_only, incompatible] {
                out.extend_from_slice(&bits.to_le_bytes());
            }
            out.extend_from_slice(&self.timeline.id.to_le_bytes());
            out.extend_from_slice(&self.timeline.parent.to_le_bytes());
            out.extend_from_slice(&self.timeline.fork.0.to_le_bytes());
        }
        out.resize(SLOT_BYTES, 0);
        let crc = crc32c(0, &out[12..]);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes one slot; `None` if it is torn or was never written (the other slot then counts).
    ///
    /// # Errors
    /// `NewerFormat` if the slot is whole but has a version, flag, incompatible feature or reserved
    /// byte unknown to this build.
    pub fn decode(slot: &[u8]) -> Result<Option<Superblock>> {
        if slot.len() != SLOT_BYTES || &slot[..8] != MAGIC {
            return Ok(None);
        }
        let mut r = Reader::new(&slot[8..], "superblock");
        if r.u32()? != crc32c(0, &slot[12..]) {
            return Ok(None);
        }
        for (name, at, known) in VERSIONS {
            let found = u16::from_le_bytes([slot[at], slot[at + 1]]);
            // All versions so far are readable.
            if !(1..=known).contains(&found) {
                return Err(Error::new(Code::NewerFormat)
                    .with("part", name)
                    .with("found", found)
                    .with("known", known));
            }
        }
        let version = r.u16()?;
        r.take(8)?;
        let flags = r.u16()?;
        if flags & !FLAG_CLEAN != 0 {
            return Err(r.newer("flags", format_args!("{flags:#06x}")));
        }
        let page_size = r.u32()?;
        let epoch = r.u32()?;
        let sequence = r.u64()?;
        let database_id = DatabaseId(r.u64()?);
        let (checkpoint, redo) = (Lsn(r.u64()?), Lsn(r.u64()?));
        let (catalog_root, page_redo) = (PageNo(r.u64()?), Lsn(r.u64()?).max(redo));
        let used = if version == 1 { USED_BYTES_1 } else { USED_BYTES };
        r.zero("reserved", &slot[used..])?;
        let (mut features, mut timeline) = (Features::default(), Timeline::default());
        if version > 1 {
            features =
                Features { compatible: r.u64()?, read_only: r.u64()?, incompatible: r.u64()? };
            timeline = Timeline { id: r.u128()?, parent: r.u128()?, fork: Lsn(r.u64()?) };
        }
        let unknown = features.incompatible & !KNOWN.incompatible;
        if unknown != 0 {
            return Err(r.newer("incompatible_features", format_args!("{unknown:#x}")));
        }
        Ok(Some(Superblock {
            version,
            sequence,
            database_id,
            page_size,
            epoch,
            clean: flags & FLAG_CLEAN != 0,
            checkpoint,
            redo,
            catalog_root,
            page_redo,
            features,
            timeline,
        }))
    }

    /// The slot to read: the valid one with the larger sequence.
    ///
    /// # Errors
    /// `NotADatabase` if neither slot is valid; `NewerFormat` as in `decode`.
    pub fn choose(file: &[u8]) -> Result<Superblock> {
        let mut best: Option<Superblock> = None;
        for slot in file.chunks(SLOT_BYTES).take(2) {
            if let Some(found) = Superblock::decode(slot)?
                && best.as_ref().is_none_or(|b| found.sequence > b.sequence)
            {
                best = Some(found);
            }
        }
        best.ok_or_else(|| Error::new(Code::NotADatabase))
    }
}

/// Joins sections into the bytes of a checkpoint.
pub fn encode_sections(sections: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (id, bytes) in sections {
        out.push(*id);
        put_bytes(&mut out, bytes);
    }
    out
}

/// Splits the bytes of a checkpoint into sections. # Errors: `BadEncoding`.
pub fn decode_sections(bytes: &[u8]) -> Result<Vec<(u8, &[u8])>> {
    let mut r = Reader::new(bytes, "checkpoint");
    let mut sections = Vec::new();
    while !r.is_empty() {
        sections.push((r.u8()?, r.bytes()?));
    }
    Ok(sections)
}

/// The head of a part of a checkpoint.
pub fn encode_part_head(part: usize, parts: usize) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, part as u64);
    put_varint(&mut out, parts as u64);
    out
}

/// Number of this part, of all parts, and its bytes. # Errors: `BadEncoding`.
pub fn decode_part(body: &[u8]) -> Result<(u64, u64, &[u8])> {
    let mut r = Reader::new(body, "checkpoint part");
    let (part, parts) = (r.varint()?, r.varint()?);
    if part >= parts {
        return Err(r.bad("part number beyond their count"));
    }
    Ok((part, parts, r.rest()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sequence: u64) -> Superblock {
        Superblock {
            version: SUPERBLOCK_VERSION,
            sequence,
            database_id: DatabaseId(77),
            page_size: 4096,
            epoch: 3,
            clean: true,
            checkpoint: Lsn(900),
            redo: Lsn(480),
            catalog_root: PageNo(5),
            page_redo: Lsn(700),
            features: Features::default(),
            timeline: Timeline { id: 1 << 100 | 7, parent: 9, fork: Lsn(800) },
        }
    }

    /// As a build of version 1 wrote it.
    fn of_version_1() -> Superblock {
        Superblock { version: 1, timeline: Timeline::default(), ..sample(1) }
    }

    #[test]
    fn a_slot_of_version_1_is_read_written_as_it_is_and_converted_once() {
        let slot = of_version_1().encode();
        assert_eq!((slot[12], &slot[80..]), (1, &[0; SLOT_BYTES - 80][..]));
        let mut found = Superblock::decode(&slot).expect("known").expect("whole");
        assert_eq!(found, of_version_1());
        assert_eq!(found.encode(), slot);
        found.convert(|| 5);
        found.convert(|| 6);
        let timeline = Timeline { id: 5, ..Timeline::default() };
        assert_eq!(found, Superblock { timeline, ..sample(1) });
        assert_eq!(Superblock::decode(&found.encode()).expect("known"), Some(found));
    }

    #[test]
    fn a_new_timeline_names_its_parent_also_in_a_converted_slot() {
        let drawn = std::cell::Cell::new(20);
        let draw = || {
            drawn.set(drawn.get() + 1);
            drawn.get()
        };
        let mut new = sample(1);
        new.leave_timeline(draw, Lsn(850));
        let parent = sample(1).timeline.id;
        assert_eq!(new.timeline, Timeline { id: 21, parent, fork: Lsn(850) });
        let mut old = of_version_1();
        old.leave_timeline(draw, Lsn(850));
        assert_eq!(old.timeline, Timeline { id: 23, parent: 22, fork: Lsn(850) });
        assert_eq!(old.version, SUPERBLOCK_VERSION);
    }

    #[test]
    fn unknown_features_are_kept_read_only_or_refused() {
        for bit in 0..64 {
            let features = Features { compatible: 1 << bit, ..Features::default() };
            let kept = Superblock { features, ..sample(1) };
            let found = Superblock::decode(&kept.encode()).expect("known").expect("whole");
            assert_eq!(found.features, features, "bit {bit}");
            found.check_writable().expect("may be written");
            assert_eq!(found.encode(), kept.encode(), "bit {bit}");

            let features = Features { read_only: 1 << bit, ..Features::default() };
            let read = Superblock { features, ..sample(1) };
            let found = Superblock::decode(&read.encode()).expect("may be read").expect("whole");
            let error = found.check_writable().expect_err("may not be written");
            assert_eq!(error.code(), Code::NewerFormat);
            assert_eq!(error.context("found"), Some(&*format!("{:#x}", 1u64 << bit)));

            let features = Features { incompatible: 1 << bit, ..Features::default() };
            let refused = Superblock { features, ..sample(1) };
            let decoded = Superblock::decode(&refused.encode());
            if KNOWN.incompatible & 1 << bit != 0 {
                assert_eq!(decoded.expect("known").expect("whole"), refused);
                continue;
            }
            let error = decoded.expect_err("is refused");
            assert_eq!(error.code(), Code::NewerFormat);
            assert_eq!(error.context("found"), Some(&*format!("{:#x}", 1u64 << bit)));
        }
    }

    #[test]
    fn the_newer_valid_slot_counts() {
        let mut file = sample(4).encode();
        file.extend(sample(5).encode());
        assert_eq!(Superblock::choose(&file).expect("valid"), sample(5));
        file[SLOT_BYTES + 40] ^= 1;
        assert_eq!(Superblock::choose(&file).expect("valid"), sample(4));
        file[40] ^= 1;
        assert_eq!(Superblock::choose(&file).expect_err("torn").code(), Code::NotADatabase);
    }

    #[test]
    fn a_slot_without_a_page_redo_position_uses_the_redo_position() {
        let older = Superblock { page_redo: Lsn::ZERO, ..sample(1) };
        let found = Superblock::decode(&older.encode()).expect("known").expect("whole");
        assert_eq!(found, Superblock { page_redo: Lsn(480), ..sample(1) });
    }

    fn of_log_version(version: u8) -> Vec<u8> {
        let mut slot = sample(1).encode();
        slot[16] = version;
        let crc = crc32c(0, &slot[12..]);
        slot[8..12].copy_from_slice(&crc.to_le_bytes());
        slot
    }

    #[test]
    fn an_older_version_is_read() {
        for version in 1..=LOG_VERSION as u8 {
            let found = Superblock::decode(&of_log_version(version)).expect("known");
            assert_eq!(found, Some(sample(1)));
        }
        assert!(Superblock::decode(&of_log_version(0)).is_err());
    }

    #[test]
    fn a_newer_version_is_refused() {
        let slot = of_log_version(9);
        let error = Superblock::decode(&slot).expect_err("newer");
        assert_eq!(error.code(), Code::NewerFormat);
        assert_eq!(error.context("part"), Some("log"));
    }

    #[test]
    fn sections_round_trip_and_reject_cuts() {
        let bytes = encode_sections(&[(1, b"abc".to_vec()), (2, Vec::new())]);
        let sections = decode_sections(&bytes).expect("whole");
        assert_eq!(sections, vec![(1, &b"abc"[..]), (2, &b""[..])]);
        assert!(decode_sections(&bytes[..3]).is_err());
    }
}
