//! Where a row belongs: its time and its slot, from the values of a row or from its clustered key.

use crate::chunks::calendar;
use crate::table_layout::{KeyColumn, Layout};
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::chunks::ChunkingEntry;
use evenkeel_format::{KeyPart, Value, ValueRef};
use smallvec::SmallVec;

/// The time and the slot of a row. The slot says nothing if the time is a catch-all chunk's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub time: i64,
    pub slot: u32,
}

/// Which chunks have a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// The early catch-all chunk.
    Early,
    /// A chunk of its own.
    Regular,
    /// The late catch-all chunk.
    Late,
}

/// A chunking, compiled for the rows of a table. Columns are named by their positions.
pub(crate) struct Placing {
    pub entry: ChunkingEntry,
    pub time: usize,
    time_part: KeyPart,
    pub space: Option<(usize, KeyPart)>,
    /// The parts of the clustered key that hold them.
    key_time: usize,
    key_space: Option<usize>,
}

impl Placing {
    /// # Errors
    /// `CatalogDamaged` if the definition has not what a chunked table needs.
    pub fn new(layout: &Layout, entry: ChunkingEntry) -> Result<Placing> {
        let damaged = || {
            let error = Error::new(Code::CatalogDamaged).with("table", &layout.def.name);
            error.with("what", "a column of its chunking")
        };
        let column = |id: u16| layout.columns.iter().position(|c| c.id == id).ok_or_else(damaged);
        let in_key =
            |column: usize| layout.key.iter().position(|k| k.column == column).ok_or_else(damaged);
        let whole = |column: usize| KeyPart::whole(layout.columns[column].entry.ty, false, false);
        let time = column(entry.time)?;
        let space = entry.space.map(column).transpose()?;
        Ok(Placing {
            entry,
            time,
            time_part: whole(time),
            space: space.map(|space| (space, whole(space))),
            key_time: in_key(time)?,
            key_space: space.map(in_key).transpose()?,
        })
    }

    /// The time that a value of the time column says; beyond the numbers of 64 bits the nearest.
    ///
    /// # Errors
    /// `ValueType`, `ValueRange`, `NullNotAllowed`.
    pub fn time_of(&self, value: ValueRef<'_>) -> Result<i64> {
        let unit = self.entry.unit;
        let plain = |value: ValueRef<'_>| match value {
            _ if calendar::is_packed(unit) => calendar::time_of(unit, value),
            ValueRef::Int(time) | ValueRef::DateTime(time) => Some(time),
            ValueRef::UInt(time) => Some(i64::try_from(time).unwrap_or(i64::MAX)),
            ValueRef::Date(days) => Some(i64::from(days)),
            _ => None,
        };
        if let Some(time) = plain(value) {
            return Ok(time);
        }
        let mut bytes = Vec::new();
        self.time_part.encode(value, &mut bytes)?;
        plain(self.time_part.decode(&bytes)?.0.as_ref())
            .ok_or_else(|| Error::internal("a time column of another type"))
    }

    /// The slot that a value of the space column says.
    ///
    /// # Errors
    /// As `time_of`.
    pub fn slot_of(&self, value: ValueRef<'_>) -> Result<u32> {
        let Some((_, part)) = self.space.as_ref().filter(|_| self.entry.slots > 1) else {
            return Ok(0);
        };
        let mut bytes = Vec::with_capacity(32);
        part.encode(value, &mut bytes)?;
        Ok(slot(&bytes, self.entry.slots))
    }

    /// The place of a row with these values.
    ///
    /// # Errors
    /// As `time_of`, with the column.
    pub fn place<'v>(
        &self,
        layout: &Layout,
        value: &impl Fn(usize) -> Result<ValueRef<'v>>,
    ) -> Result<Place> {
        let named = |column: usize| {
            move |e: Error| {
                e.with("table", &layout.def.name).with("column", &layout.columns[column].name)
            }
        };
        let time = self.time_of(value(self.time)?).map_err(named(self.time))?;
        let slot = match &self.space {
            Some((space, _)) => self.slot_of(value(*space)?).map_err(named(*space))?,
            None => 0,
        };
        Ok(Place { time, slot })
    }

    /// The place of a row with this primary key; `None` if no row can have it.
    ///
    /// # Errors
    /// `WrongValueCount`, faults of the values.
    pub fn place_of_primary(&self, layout: &Layout, key: &[ValueRef<'_>]) -> Result<Option<Place>> {
        crate::read::check_full(layout, key.len(), layout.key.len())?;
        if layout.encode_whole(&layout.key, key)?.is_none() {
            return Ok(None);
        }
        let value = |column: usize| {
            let part = layout.key.iter().position(|k| k.column == column);
            part.map(|part| key[part]).ok_or_else(|| Error::internal("a column of no key"))
        };
        self.place(layout, &value).map(Some)
    }

    /// The place of the row with these clustered key bytes.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn place_of_key(&self, layout: &Layout, key: &[u8]) -> Result<Place> {
        let mut parts: SmallVec<[(usize, Value); 2]> = SmallVec::new();
        let mut rest = key;
        for (at, KeyColumn { column, part }) in layout.key.iter().enumerate() {
            if at == self.key_time || Some(at) == self.key_space {
                let (value, behind) = part.decode(rest)?;
                parts.push((*column, value));
                rest = behind;
            } else {
                rest = part.skip(rest)?;
            }
        }
        let value = |column: usize| {
            let found = parts.iter().find(|(at, _)| *at == column);
            found
                .map(|(_, value)| value.as_ref())
                .ok_or_else(|| Error::internal("a column of no key"))
        };
        self.place(layout, &value)
    }

    /// Which chunks have a time.
    pub fn era(&self, time: i64) -> Era {
        match time {
            _ if time < self.entry.from => Era::Early,
            _ if time >= self.entry.to => Era::Late,
            _ => Era::Regular,
        }
    }

    /// The times and the slot of a new chunk for a place.
    pub fn bounds(&self, place: Place) -> (i64, i64, u32) {
        let ChunkingEntry { width, from, to, .. } = self.entry;
        match self.era(place.time) {
            Era::Early => (i64::MIN, from, 0),
            Era::Late => (to, i64::MAX, 0),
            Era::Regular => {
                let (time, width) = (i128::from(place.time), i128::from(width));
                let lo = time.div_euclid(width) * width;
                let within = |time: i128| time.clamp(i128::from(from), i128::from(to)) as i64;
                (within(lo), within(lo + width), place.slot)
            }
        }
    }
}

/// The slot of an encoded value: its FNV-1a hash, folded (docs/format/row.md).
fn slot(bytes: &[u8], slots: u32) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    ((hash ^ (hash >> 32)) % u64::from(slots)) as u32
}

#[cfg(test)]
mod tests {
    use super::slot;

    /// The slots of existing rows must stay where they are.
    #[test]
    fn slots_are_those_of_the_format() {
        let slots = [&b""[..], b"a", b"foobar"].map(|b| slot(b, 256));
        // FNV-1a: cbf29ce484222325, af63dc4c8601ec8c, 85944171f73967e8.
        assert_eq!(slots, [193, 192, 153]);
    }
}
