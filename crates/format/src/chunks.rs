//! Catalog entries of chunked tables: how a table is cut into chunks, and one entry for each chunk.
//! The bodies are those of two kinds of `catalog`; docs/format/row.md has them.
//!
//! ```text
//! chunking: 1, time column id varint, unit u8, width varint, from u64, to u64 (signed),
//!           space column id + 1 varint, slots varint, retain varint (0: for ever)
//! chunk:    1, root page varint, lo u64, hi u64 (signed), slot varint, count varint,
//!           (index id of the table varint, index id of the chunk varint)
//! ```

use crate::{Reader, limits, put_varint};
use evenkeel_base::{IndexId, PageNo, Result};

const VERSION: u64 = 1;

/// The unit of a time column's values, which count from 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TimeUnit {
    /// Days.
    Days = 0,
    /// Seconds.
    Seconds = 1,
    /// Milliseconds.
    Milliseconds = 2,
    /// Microseconds.
    Microseconds = 3,
    /// Nanoseconds.
    Nanoseconds = 4,
    /// Days; the column is MariaDB's DATE, as that server keeps it (docs/format/row.md).
    PackedDays = 5,
    /// Seconds; the column is MariaDB's DATETIME, without a zone.
    PackedSeconds = 6,
    /// Seconds; the column is MariaDB's TIMESTAMP, in UTC.
    Timestamp = 7,
}

impl TimeUnit {
    fn decode(r: &mut Reader<'_>) -> Result<TimeUnit> {
        Ok(match r.u8()? {
            0 => TimeUnit::Days,
            1 => TimeUnit::Seconds,
            2 => TimeUnit::Milliseconds,
            3 => TimeUnit::Microseconds,
            4 => TimeUnit::Nanoseconds,
            5 => TimeUnit::PackedDays,
            6 => TimeUnit::PackedSeconds,
            7 => TimeUnit::Timestamp,
            code => return Err(r.newer("unit", code)),
        })
    }
}

/// How a table is cut into chunks. Times and widths are in the unit of the time column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkingEntry {
    /// The id of the time column.
    pub time: u16,
    /// The unit of its values.
    pub unit: TimeUnit,
    /// The times that one chunk spans.
    pub width: u64,
    /// Times before this one go to the early catch-all chunk.
    pub from: i64,
    /// Times from this one on go to the late catch-all chunk.
    pub to: i64,
    /// The column whose hash chooses the slot.
    pub space: Option<u16>,
    /// Slots for each span of times.
    pub slots: u32,
    /// How long rows are kept, 0 for ever.
    pub retain: u64,
}

fn put_time(out: &mut Vec<u8>, time: i64) {
    out.extend_from_slice(&time.to_le_bytes());
}

fn time(r: &mut Reader<'_>) -> Result<i64> {
    Ok(i64::from_le_bytes(r.u64()?.to_le_bytes()))
}

fn column(r: &Reader<'_>, id: u64) -> Result<u16> {
    u16::try_from(id).map_err(|_| r.bad("number beyond 16 bits"))
}

fn version(r: &mut Reader<'_>) -> Result<()> {
    match r.varint()? {
        VERSION => Ok(()),
        found => Err(r.newer("layout", found)),
    }
}

impl ChunkingEntry {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, VERSION);
        put_varint(out, u64::from(self.time));
        out.push(self.unit as u8);
        put_varint(out, self.width);
        put_time(out, self.from);
        put_time(out, self.to);
        put_varint(out, self.space.map_or(0, |id| u64::from(id) + 1));
        put_varint(out, u64::from(self.slots));
        put_varint(out, self.retain);
    }

    /// Decodes. # Errors: `BadEncoding`, `NewerFormat`.
    pub fn decode(body: &[u8]) -> Result<ChunkingEntry> {
        let mut r = Reader::new(body, "catalog chunking");
        version(&mut r)?;
        let time_column = r.varint()?;
        let (time_column, unit, width) =
            (column(&r, time_column)?, TimeUnit::decode(&mut r)?, r.varint()?);
        let (from, to) = (time(&mut r)?, time(&mut r)?);
        let space = match r.varint()? {
            0 => None,
            id => Some(column(&r, id - 1)?),
        };
        let (slots, retain) = (r.varint32()?, r.varint()?);
        let entry =
            ChunkingEntry { time: time_column, unit, width, from, to, space, slots, retain };
        if let Some(why) = entry.fault() {
            return Err(r.bad(why));
        }
        r.finish()?;
        Ok(entry)
    }

    /// What is impossible about it.
    pub fn fault(&self) -> Option<&'static str> {
        let slots = 1..=limits::CHUNK_SLOTS_MAX;
        match self {
            _ if self.width == 0 => Some("the width of chunks is zero"),
            _ if self.from == i64::MIN || self.to == i64::MAX || self.from >= self.to => {
                Some("chunks end before they begin")
            }
            _ if !slots.contains(&self.slots) => Some("number of slots"),
            _ if self.slots > 1 && self.space.is_none() => Some("slots without a column"),
            _ => None,
        }
    }
}

/// A chunk. Its number, which is never used again, is the id of its tree; the catalog's key has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// The root of its tree.
    pub root: PageNo,
    /// Its first time; the least of all in the early catch-all chunk.
    pub lo: i64,
    /// The time behind its last one; the greatest of all, included, in the late catch-all chunk.
    pub hi: i64,
    /// Its slot; 0 in both catch-all chunks.
    pub slot: u32,
    /// For each index of the table, in ascending order, the index of the chunk.
    pub indexes: Vec<(IndexId, IndexId)>,
}

impl ChunkEntry {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, VERSION);
        put_varint(out, self.root.0);
        put_time(out, self.lo);
        put_time(out, self.hi);
        put_varint(out, u64::from(self.slot));
        put_varint(out, self.indexes.len() as u64);
        for (of_table, own) in &self.indexes {
            put_varint(out, u64::from(of_table.0));
            put_varint(out, u64::from(own.0));
        }
    }

    /// Decodes. # Errors: `BadEncoding`, `NewerFormat`.
    pub fn decode(body: &[u8]) -> Result<ChunkEntry> {
        let mut r = Reader::new(body, "catalog chunk");
        version(&mut r)?;
        let (root, lo, hi) = (PageNo(r.varint()?), time(&mut r)?, time(&mut r)?);
        let (slot, count) = (r.varint32()?, r.varint()?);
        if lo >= hi || (lo == i64::MIN && hi == i64::MAX) {
            return Err(r.bad("times of a chunk"));
        }
        let is_catch_all = lo == i64::MIN || hi == i64::MAX;
        if slot >= limits::CHUNK_SLOTS_MAX || (is_catch_all && slot != 0) {
            return Err(r.bad("slot of a chunk"));
        }
        if count > limits::INDEXES_MAX as u64 {
            return Err(r.bad("too many indexes of a chunk"));
        }
        let mut indexes: Vec<(IndexId, IndexId)> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let pair = (IndexId(r.varint32()?), IndexId(r.varint32()?));
            if indexes.last().is_some_and(|last| last.0 >= pair.0) {
                return Err(r.bad("order of the indexes of a chunk"));
            }
            indexes.push(pair);
        }
        r.finish()?;
        Ok(ChunkEntry { root, lo, hi, slot, indexes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKING: ChunkingEntry = ChunkingEntry {
        time: 700,
        unit: TimeUnit::Milliseconds,
        width: 86_400_000,
        from: -5,
        to: 1 << 40,
        space: Some(0),
        slots: 4,
        retain: 0,
    };

    #[test]
    fn chunkings_round_trip_and_impossible_ones_are_refused() {
        let mut body = Vec::new();
        CHUNKING.encode(&mut body);
        assert_eq!(ChunkingEntry::decode(&body).expect("decodes"), CHUNKING);
        (0..body.len()).for_each(|n| assert!(ChunkingEntry::decode(&body[..n]).is_err()));
        for wrong in [
            ChunkingEntry { width: 0, ..CHUNKING },
            ChunkingEntry { from: i64::MIN, ..CHUNKING },
            ChunkingEntry { to: i64::MAX, ..CHUNKING },
            ChunkingEntry { from: 9, to: 9, ..CHUNKING },
            ChunkingEntry { slots: 0, ..CHUNKING },
            ChunkingEntry { slots: limits::CHUNK_SLOTS_MAX + 1, ..CHUNKING },
            ChunkingEntry { space: None, ..CHUNKING },
        ] {
            body.clear();
            wrong.encode(&mut body);
            assert!(wrong.fault().is_some());
            assert!(ChunkingEntry::decode(&body).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn chunks_round_trip_and_impossible_ones_are_refused() {
        let (a, b) = (IndexId(16), IndexId(300));
        let indexes = vec![(a, IndexId(400)), (b, IndexId(401))];
        let chunk = ChunkEntry { root: PageNo(900), lo: -9, hi: 9, slot: 3, indexes };
        let early = ChunkEntry { lo: i64::MIN, slot: 0, ..chunk.clone() };
        let late = ChunkEntry { hi: i64::MAX, slot: 0, ..chunk.clone() };
        let mut body = Vec::new();
        for chunk in [&chunk, &early, &late] {
            body.clear();
            chunk.encode(&mut body);
            assert_eq!(ChunkEntry::decode(&body).expect("decodes"), *chunk);
            (0..body.len()).for_each(|n| assert!(ChunkEntry::decode(&body[..n]).is_err()));
        }
        for wrong in [
            ChunkEntry { lo: 9, ..chunk.clone() },
            ChunkEntry { lo: i64::MIN, hi: i64::MAX, ..early.clone() },
            ChunkEntry { slot: 1, ..late.clone() },
            ChunkEntry { slot: limits::CHUNK_SLOTS_MAX, ..chunk.clone() },
            ChunkEntry { indexes: vec![(b, a), (a, b)], ..chunk.clone() },
            ChunkEntry { indexes: vec![(a, b), (a, b)], ..chunk.clone() },
            ChunkEntry { indexes: (0..65).map(|n| (IndexId(n), a)).collect(), ..chunk.clone() },
        ] {
            body.clear();
            wrong.encode(&mut body);
            assert!(ChunkEntry::decode(&body).is_err(), "{wrong:?}");
        }
    }
}
