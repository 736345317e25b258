//! Which chunks a range of keys may concern, and which part of the range each of them may hold.
//!
//! If all keys of the range agree in the parts before the time column, a chunk holds only keys
//! between two byte strings: those parts, followed by the chunk's first and last time. Chunks that
//! hold no key of the range are pruned, and chunks of ordered times need not be merged. Pruning may
//! keep too much, never too little: what cannot be encoded bounds nothing.

use crate::chunks::calendar;
use crate::chunks::map::TimeChunk;
use crate::chunks::place::Placing;
use crate::range::{ByteRange, KeySet};
use crate::table_layout::{KeyColumn, Layout};
use evenkeel_base::Result;
use evenkeel_format::chunks::TimeUnit;
use evenkeel_format::{ColumnType, Form, KeyPart, Value, ValueRef, prefix_successor};
use std::ops::Bound;

/// What a range of a key says about chunks.
pub(super) struct Pruning {
    /// The bytes before the time in all keys of the range, and the part that holds the time.
    time: Option<(Vec<u8>, KeyPart)>,
    /// The slot of all rows of the range.
    slot: Option<u32>,
    unit: TimeUnit,
}

/// The values that all keys of a set begin with.
fn common<'v>(keys: KeySet<'v>) -> &'v [ValueRef<'v>] {
    let values = |bound: Bound<&'v [ValueRef<'v>]>| match bound {
        Bound::Included(values) | Bound::Excluded(values) => values,
        Bound::Unbounded => &[],
    };
    match keys {
        KeySet::StartingWith(values) => values.split_last().map_or(&[], |(_, before)| before),
        KeySet::In(range) => {
            let (lower, upper) = (values(range.lower), values(range.upper));
            let same = lower.iter().zip(upper).take_while(|(a, b)| a == b).count();
            &lower[..same]
        }
    }
}

impl Pruning {
    /// For a range over a key of these parts.
    ///
    /// # Errors
    /// Faults of the values.
    pub fn new(
        layout: &Layout,
        placing: &Placing,
        parts: &[KeyColumn],
        keys: KeySet<'_>,
    ) -> Result<Pruning> {
        let common = common(keys);
        let common = &common[..common.len().min(parts.len())];
        let time_at = parts.iter().position(|part| part.column == placing.time);
        let time = match time_at.filter(|at| *at <= common.len()) {
            None => None,
            Some(at) => {
                let bytes = layout.encode_whole(&parts[..at], &common[..at])?;
                bytes.map(|bytes| (bytes, parts[at].part))
            }
        };
        let is_space = |part: &KeyColumn| {
            let space = placing.space.as_ref().map(|(column, _)| *column);
            Some(part.column) == space && matches!(part.part.form, Form::Whole)
        };
        let slot = parts.iter().zip(common).find(|(part, _)| is_space(part));
        let slot = slot.and_then(|(_, value)| placing.slot_of(*value).ok());
        Ok(Pruning { time, slot, unit: placing.entry.unit })
    }

    /// False if no row of the range has the slot of a chunk.
    pub fn has_slot(&self, chunk: &TimeChunk) -> bool {
        self.slot.is_none_or(|slot| chunk.may_have_slot(slot))
    }

    /// The part of the range in which keys of a chunk lie.
    pub fn part_of(&self, range: &ByteRange, chunk: &TimeChunk) -> ByteRange {
        let mut part = range.clone();
        let Some((before, time)) = &self.time else { return part };
        let value = |at: i64, is_last| match calendar::is_packed(self.unit) {
            true => calendar::bound(self.unit, time.ty, at, is_last),
            false => value_of(time.ty, at - i64::from(is_last)),
        };
        let first = (chunk.lo != i64::MIN).then(|| value(chunk.lo, false)).flatten();
        let last = (chunk.hi != i64::MAX).then(|| value(chunk.hi, true)).flatten();
        let (first, last) = if time.desc { (last, first) } else { (first, last) };
        let key = |at: Value| -> Option<Vec<u8>> {
            let mut key = before.clone();
            time.encode(at.as_ref(), &mut key).ok()?;
            Some(key)
        };
        if let Some(lower) = first.and_then(key)
            && lower > part.lower
        {
            part.lower = lower;
        }
        if let Some(mut upper) = last.and_then(key)
            && prefix_successor(&mut upper)
            && part.upper.as_ref().is_none_or(|now| upper < *now)
        {
            part.upper = Some(upper);
        }
        part
    }
}

/// A time as a value of its column; `None` if the column cannot hold it.
fn value_of(ty: ColumnType, at: i64) -> Option<Value> {
    match ty {
        ColumnType::Date => i32::try_from(at).ok().map(Value::Date),
        ColumnType::DateTime => Some(Value::DateTime(at)),
        _ => Some(Value::Int(at)),
    }
}
