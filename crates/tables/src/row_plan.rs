//! `RowPlan`: where rows hold some columns. Properties common to all rows of a format are looked up
//! once per scan, not for each row (`Row::values_by`).

use crate::row::Row;
use crate::scan::counted;
use crate::table_layout::{KeyColumn, Layout};
use evenkeel_base::Result;
use evenkeel_format::row::{VariablePlace, scalar};
use evenkeel_format::{ColumnType, FixedPlace, KeyPart, Reader, ValueRef, row_version};
use evenkeel_runs::EntryRef;
use std::sync::Arc;

/// Some columns that are wanted of many rows.
#[derive(Default)]
pub struct RowPlan {
    columns: Vec<usize>,
    made: Option<Made>,
    entries: Option<MadeEntries>,
    /// The bytes of a value that an entry holds in another form.
    scratch: Vec<u8>,
}

/// The plan for rows of one format of one definition.
struct Made {
    layout: Arc<Layout>,
    version: u16,
    /// None if some column has no fixed place.
    places: Option<Vec<Place>>,
}

/// For entries of one index of one definition.
struct MadeEntries {
    layout: Arc<Layout>,
    index: usize,
    fixed: Option<FixedParts>,
    parts: Parts,
}

/// Where the columns lie in an entry of numbers none of which is NULL.
struct FixedParts {
    /// The bytes that say so of parts that may be NULL: their places in order, and their values.
    not_null: Vec<(usize, u8)>,
    /// For each column its place, its length and its part.
    places: Vec<(usize, usize, KeyPart)>,
}

/// The columns of any entry.
enum Parts {
    /// Parts one behind the other, then stored values, and which of the columns they are.
    Varying { parts: Vec<(KeyPart, Option<usize>)>, stored: Vec<Option<usize>> },
    /// Some column is in no entry, or is wanted twice.
    Missing,
}

enum Place {
    /// A number in the clustered key, between two fixed places in it, that is never NULL.
    Number {
        at: usize,
        end: usize,
        part: KeyPart,
    },
    /// A part of the clustered key that begins at a fixed place in it.
    Key {
        at: usize,
        part: KeyPart,
    },
    Fixed {
        place: FixedPlace,
        ty: ColumnType,
    },
    Variable {
        place: VariablePlace,
        ty: ColumnType,
    },
}

impl RowPlan {
    /// For the columns at these positions.
    pub fn new(columns: Vec<usize>) -> RowPlan {
        RowPlan { columns, ..RowPlan::default() }
    }

    /// The positions.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Passes on the values of the row in `key` and `row`. False, after some values, if it cannot:
    /// some are not in the row, or have no common place in all rows.
    #[inline]
    pub(crate) fn give<'r>(
        &mut self,
        layout: &Arc<Layout>,
        (key, row): (&'r [u8], &'r [u8]),
        give: &mut impl FnMut(usize, ValueRef<'r>),
    ) -> Result<bool> {
        let version = row_version(row)?;
        let is_made = |made: &&Made| made.version == version && Arc::ptr_eq(&made.layout, layout);
        let made = match self.made.as_ref().filter(is_made) {
            Some(made) => made,
            None => self.made.insert(Made::new(layout, version, &self.columns)),
        };
        let Some(places) = &made.places else { return Ok(false) };
        for (at, place) in places.iter().enumerate() {
            if !place.give(key, row, &mut |value| give(at, value))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same of an entry of an index; false where it does not hold some column.
    #[inline]
    pub(crate) fn give_entry(
        &mut self,
        layout: &Arc<Layout>,
        index: usize,
        entry: &EntryRef<'_>,
        give: &mut impl FnMut(usize, ValueRef<'_>),
    ) -> Result<bool> {
        let is_made = |m: &&MadeEntries| m.index == index && Arc::ptr_eq(&m.layout, layout);
        let made = match self.entries.as_ref().filter(is_made) {
            Some(made) => made,
            None => self.entries.insert(MadeEntries::new(layout, index, &self.columns)),
        };
        if let Some(fixed) = &made.fixed
            && fixed.give(entry.key_and_pk, give)
        {
            return Ok(true);
        }
        match &made.parts {
            Parts::Varying { parts, stored } => {
                let mut rest = entry.key_and_pk;
                for (part, to) in parts {
                    let Some(to) = to else {
                        rest = part.skip(rest)?;
                        continue;
                    };
                    let (value, tail) = part.decode_in(rest, &mut self.scratch)?;
                    give(*to, value);
                    rest = tail;
                }
                let mut reader = Reader::new(entry.value, "index entry");
                for to in stored {
                    let value = match reader.varint()?.checked_sub(1) {
                        None => ValueRef::Null,
                        Some(len) => ValueRef::Bytes(reader.take(len as usize)?),
                    };
                    if let Some(to) = to {
                        give(*to, value);
                    }
                }
                reader.finish()?;
            }
            Parts::Missing => return Ok(false),
        }
        Ok(true)
    }
}

impl MadeEntries {
    #[cold]
    fn new(layout: &Arc<Layout>, index: usize, columns: &[usize]) -> MadeEntries {
        let fixed = FixedParts::new(layout, index, columns);
        let parts = Parts::new(layout, index, columns).unwrap_or(Parts::Missing);
        MadeEntries { layout: layout.clone(), index, fixed, parts }
    }
}

impl FixedParts {
    /// `None` if some part has no fixed length, or some column is in no part.
    fn new(layout: &Layout, index: usize, columns: &[usize]) -> Option<FixedParts> {
        let parts = layout.indexes.get(index)?.parts.iter().chain(&layout.key);
        let (mut not_null, mut found, mut at) = (Vec::new(), Vec::new(), 0);
        for KeyColumn { column, part } in parts {
            if let Some(byte) = part.not_null_byte() {
                not_null.push((at, byte));
                at += 1;
            }
            let len = part.number_len()?;
            found.push((*column, (at, len, *part)));
            at += len;
        }
        let place = |column: &usize| found.iter().find(|(of, _)| of == column).map(|of| of.1);
        let places = columns.iter().map(place).collect::<Option<_>>()?;
        Some(FixedParts { not_null, places })
    }

    /// Passes on the values. False, before the first, if some part is NULL.
    #[inline]
    fn give(&self, entry: &[u8], give: &mut impl FnMut(usize, ValueRef<'_>)) -> bool {
        if !self.not_null.iter().all(|(at, byte)| entry.get(*at) == Some(byte)) {
            return false;
        }
        if self.places.iter().any(|(at, len, _)| at + len > entry.len()) {
            return false;
        }
        for (to, (at, len, part)) in self.places.iter().enumerate() {
            give(to, part.number(&entry[*at..at + len]));
        }
        true
    }
}

impl Parts {
    fn new(layout: &Layout, index: usize, columns: &[usize]) -> Option<Parts> {
        let index = layout.indexes.get(index)?;
        let is_twice = |(at, column): (usize, &usize)| columns[..at].contains(column);
        if columns.iter().enumerate().any(is_twice) {
            return None;
        }
        let mut missing = columns.to_vec();
        let mut to = |column: usize, is_given: bool| {
            missing.retain(|m| !is_given || *m != column);
            columns.iter().position(|c| *c == column).filter(|_| is_given)
        };
        let parts = index.parts.iter().chain(&layout.key);
        let parts = parts.map(|k| (k.part, to(k.column, !k.part.form.is_lossy()))).collect();
        let stored = index.stored.iter().map(|column| to(*column, true)).collect();
        missing.is_empty().then_some(Parts::Varying { parts, stored })
    }
}

impl Made {
    #[cold]
    fn new(layout: &Arc<Layout>, version: u16, columns: &[usize]) -> Made {
        let places = columns.iter().map(|at| Place::of(layout, version, *at)).collect();
        Made { layout: layout.clone(), version, places }
    }
}

impl Place {
    fn of(layout: &Layout, version: u16, position: usize) -> Option<Place> {
        let column = layout.columns.get(position)?;
        if let Some(nth) = column.from_key {
            let len = |part: &KeyPart| part.ty.fixed_len().filter(|_| part.has_fixed_place());
            let before = layout.key[..nth].iter().map(|key| len(&key.part));
            let (at, part) = (before.sum::<Option<usize>>()?, layout.key[nth].part);
            return Some(match len(&part) {
                Some(len) => Place::Number { at, end: at + len, part },
                None => Place::Key { at, part },
            });
        }
        let ty = column.entry.ty;
        match layout.fixed_place(version, position) {
            Some(place) => Some(Place::Fixed { place, ty }),
            None => Some(Place::Variable { place: layout.variable_place(version, position)?, ty }),
        }
    }

    /// Each value goes to `give` where it is decoded: returning it first would cost as much again.
    #[inline]
    fn give<'r>(
        &self,
        key: &'r [u8],
        row: &'r [u8],
        give: &mut impl FnMut(ValueRef<'r>),
    ) -> Result<bool> {
        let is_null = |null: Option<(usize, u8)>| {
            null.is_some_and(|(at, bit)| row.get(at).is_some_and(|byte| byte & bit != 0))
        };
        match self {
            Place::Number { at, end, part } => {
                let Some(bytes) = key.get(*at..*end) else { return Ok(false) };
                give(part.number(bytes));
            }
            Place::Key { at, part } => {
                let Some(key) = key.get(*at..) else { return Ok(false) };
                give(part.decode_scalar(key)?);
            }
            Place::Fixed { place: FixedPlace { null, .. }, .. }
            | Place::Variable { place: VariablePlace { null, .. }, .. }
                if is_null(*null) =>
            {
                give(ValueRef::Null);
            }
            Place::Fixed { place, ty } => {
                let bytes = row.get(place.at..place.at + place.len);
                match (ty, bytes) {
                    (_, None) => return Ok(false),
                    (ColumnType::Int32, Some(&[a, b, c, d])) => {
                        give(ValueRef::Int(i64::from(i32::from_le_bytes([a, b, c, d]))));
                    }
                    (ty, Some(bytes)) if ty.is_scalar() => give(scalar(*ty, bytes)),
                    (_, Some(bytes)) => give(ValueRef::Bytes(bytes)),
                }
            }
            Place::Variable { place, ty } => {
                let Some(bytes) = place.bytes(row) else { return Ok(false) };
                match ty {
                    ColumnType::Bytes { .. } => give(ValueRef::Bytes(bytes)),
                    ty => give(ty.from_bytes(bytes)?),
                }
            }
        }
        Ok(true)
    }
}

impl Row {
    /// The values of the columns of a plan, in its order: as `values_at`, for many rows.
    ///
    /// # Errors
    /// As `value`.
    #[inline]
    pub fn values_by<'r>(
        &'r self,
        plan: &mut RowPlan,
        mut give: impl FnMut(usize, ValueRef<'r>),
    ) -> Result<()> {
        if let Some((layout, key, row)) = self.whole()
            && plan.give(layout, (key, row), &mut give)?
        {
            return Ok(());
        }
        // From the first one on.
        self.values_at(plan.columns.iter().copied(), counted(give))
    }
}
