//! `Row`: a buffer for one row handed to a caller, reused from row to row. It holds a table row
//! (columns are decoded on demand) or an index entry that covers the wanted columns.

use crate::large::LargeReader;
use crate::overflow::read_chain;
use crate::table_layout::Layout;
use crate::values::{ByColumn, Refusal};
use evenkeel_base::{Code, Error, PageNo, Result, Stamp, TreeId};
use evenkeel_format::{Field, Reader, Value, ValueRef};
use evenkeel_runs::EntryRef;
use evenkeel_tree::{OverflowRef, Tree};
use evenkeel_txn::SnapshotGuard;
use std::fmt;
use std::sync::{Arc, OnceLock};

#[derive(Clone, Default)]
enum Source {
    #[default]
    Empty,
    /// `key` and `row` hold a table row.
    Table,
    /// `row` holds an index entry, whose primary key begins at `pk_at`. Columns at fixed places are
    /// decoded on demand; other entries have them in `values`, by position.
    Index { index: usize, pk_at: usize },
}

/// A row buffer.
#[derive(Clone, Default)]
pub struct Row {
    layout: Option<Arc<Layout>>,
    source: Source,
    key: Vec<u8>,
    row: Vec<u8>,
    values: Vec<Option<Value>>,
    /// Where values are that were not read with the row.
    large: Option<Large>,
    /// Where a table row was found whose newest version was locked.
    place: Option<VersionPlace>,
}

/// The place and the identity of the newest version of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionPlace {
    pub tree: TreeId,
    pub leaf: PageNo,
    pub stamp: Stamp,
    /// `cell_flags`.
    pub flags: u8,
}

/// Long values that are read on demand.
#[derive(Clone)]
struct Large {
    tree: Tree,
    /// Keeps their chains.
    guard: Arc<SnapshotGuard>,
    read: Vec<(usize, OverflowRef, OnceLock<Value>)>,
}

/// The columns that it has, with the beginnings of their values.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.layout.iter().flat_map(|layout| &layout.columns).enumerate();
        let values = columns
            .filter_map(|(at, column)| Some((&column.name, self.value_at(at).ok()?.brief())));
        f.debug_map().entries(values).finish()
    }
}

impl Row {
    /// An empty buffer.
    pub fn new() -> Row {
        Row::default()
    }

    /// The clustered key bytes.
    pub fn key(&self) -> &[u8] {
        match self.source {
            Source::Index { pk_at, .. } => &self.row[pk_at..],
            _ => &self.key,
        }
    }

    /// Number of columns; 0 while empty.
    pub fn len(&self) -> usize {
        self.layout.as_ref().map_or(0, |s| s.columns.len())
    }

    /// True while no row was read into it.
    pub fn is_empty(&self) -> bool {
        matches!(self.source, Source::Empty)
    }

    /// The value of a column, given by its name or position, as a type that holds it exactly; an
    /// `Option` for a column that may be NULL.
    ///
    /// # Errors
    /// `ValueConversion` naming column, value and type; as `value`.
    pub fn get<'r, T>(&'r self, column: impl ByColumn) -> Result<T>
    where
        T: TryFrom<ValueRef<'r>>,
        T::Error: Refusal,
    {
        let position = self.position(column)?;
        T::try_from(self.value_at(position)?).map_err(|error| {
            let error = error.into_error();
            match self.layout.as_ref().and_then(|layout| layout.columns.get(position)) {
                Some(column) => error.with("column", &column.name),
                None => error,
            }
        })
    }

    /// The value of a column, given by its name or position, decoded on demand.
    ///
    /// # Errors
    /// `ColumnMissing` if there is no such column, or if an index-only read does not have it.
    #[inline]
    pub fn value(&self, column: impl ByColumn) -> Result<ValueRef<'_>> {
        self.value_at(self.position(column)?)
    }

    #[inline]
    fn position(&self, column: impl ByColumn) -> Result<usize> {
        match &self.layout {
            Some(layout) => column.position(&**layout),
            None => Err(Error::new(Code::ColumnMissing).with("why", "no row was read")),
        }
    }

    fn value_at(&self, position: usize) -> Result<ValueRef<'_>> {
        let missing = || Error::new(Code::ColumnMissing).with("position", position);
        match (&self.source, &self.layout) {
            (Source::Table, Some(layout)) => match self.values.get(position) {
                Some(Some(value)) => Ok(value.as_ref()),
                _ => match self.large(position) {
                    Some(large) => self.read_large(layout, large),
                    None => layout.view(&self.key, &self.row)?.value(position),
                },
            },
            (Source::Index { index, .. }, Some(layout)) => match &layout.indexes[*index].places {
                Some(places) => match places.get(position) {
                    Some(Some((at, part))) => part.decode_scalar(&self.row[*at..]),
                    _ => Err(missing()),
                },
                None => match self.values.get(position) {
                    Some(Some(value)) => Ok(value.as_ref()),
                    _ => Err(missing()),
                },
            },
            _ => Err(missing()),
        }
    }

    /// The values of some columns, in the order of `positions`; the row is opened once.
    ///
    /// # Errors
    /// As `value`.
    pub fn values_at<'r>(
        &'r self,
        positions: impl Iterator<Item = usize>,
        mut give: impl FnMut(ValueRef<'r>),
    ) -> Result<()> {
        let (Source::Table, Some(layout)) = (&self.source, &self.layout) else {
            return positions.map(|at| self.value(at)).try_for_each(|value| {
                give(value?);
                Ok(())
            });
        };
        let view = layout.view(&self.key, &self.row)?;
        // Some values do not lie in the row.
        let is_whole = self.values.is_empty() && self.large.is_none();
        for position in positions {
            give(if is_whole { view.value(position)? } else { self.value(position)? });
        }
        Ok(())
    }

    /// A table row whose values all lie in it: its layout, its key and its bytes.
    #[inline]
    pub(crate) fn whole(&self) -> Option<(&Arc<Layout>, &[u8], &[u8])> {
        match (&self.source, &self.layout) {
            (Source::Table, Some(layout)) if self.values.is_empty() && self.large.is_none() => {
                Some((layout, &self.key, &self.row))
            }
            _ => None,
        }
    }

    /// Records where the row was found.
    pub(crate) fn set_place(&mut self, place: VersionPlace) {
        self.place = Some(place);
    }

    /// The place and the bytes of the row of this key of a tree when it was locked, if this buffer
    /// holds that row.
    pub(crate) fn found(&self, tree: TreeId, key: &[u8]) -> Option<(VersionPlace, &[u8])> {
        let place = self.place.filter(|place| place.tree == tree && self.key == key)?;
        matches!(self.source, Source::Table).then_some((place, &self.row))
    }

    fn large(&self, position: usize) -> Option<&(usize, OverflowRef, OnceLock<Value>)> {
        self.large.as_ref()?.read.iter().find(|large| large.0 == position)
    }

    fn read_large<'r>(
        &'r self,
        layout: &Layout,
        large: &'r (usize, OverflowRef, OnceLock<Value>),
    ) -> Result<ValueRef<'r>> {
        let (position, reference, cell) = large;
        if let (None, Some(source)) = (cell.get(), &self.large) {
            let bytes = read_chain(&source.tree, *reference)?;
            let _ = cell.set(layout.columns[*position].entry.ty.from_own_bytes(bytes)?);
        }
        let value = cell.get().map(Value::as_ref);
        value.ok_or_else(|| Error::internal("a long value was not read"))
    }

    /// The value of a column of bytes or text as a stream, which holds one page of it at a time.
    /// The stream continues to give the value of this version, whatever happens to the row.
    ///
    /// # Errors
    /// `ColumnMissing`; `ValueType` for NULL and other types.
    pub fn open_large(&self, column: impl ByColumn) -> Result<LargeReader> {
        let position = self.position(column)?;
        if let (Some(source), Some((_, reference, _))) = (&self.large, self.large(position)) {
            return Ok(LargeReader::chain(&source.tree, *reference, source.guard.clone()));
        }
        match self.value_at(position)? {
            ValueRef::Bytes(bytes) => Ok(LargeReader::bytes(bytes)),
            ValueRef::Text(text) => Ok(LargeReader::bytes(text.as_bytes())),
            _ => Err(Error::new(Code::ValueType).with("position", position)),
        }
    }

    /// Moves a long value that was read on demand out of the buffer: its bytes stay where they are.
    /// A later request reads the value again.
    pub fn take_large(&mut self, position: usize) -> Option<Value> {
        let read = self.large.as_mut()?.read.iter_mut();
        read.filter(|large| large.0 == position).find_map(|large| large.2.take())
    }

    /// Records where the values are that were not loaded.
    pub(crate) fn keep_source(
        &mut self,
        tree: &Tree,
        guard: &dyn Fn() -> Arc<SnapshotGuard>,
    ) -> Result<()> {
        let Some(layout) = self.layout.clone() else { return Ok(()) };
        let view = layout.view(&self.key, &self.row)?;
        let mut read = Vec::new();
        for position in 0..layout.columns.len() {
            if let Field::Reference(reference) = view.field(position)?
                && !matches!(self.values.get(position), Some(Some(_)))
            {
                read.push((position, OverflowRef::decode(reference)?, OnceLock::new()));
            }
        }
        let any = !read.is_empty();
        self.large = any.then(|| Large { tree: tree.clone(), guard: guard(), read });
        Ok(())
    }

    /// All values, owned. # Errors: as `value`.
    pub fn values(&self) -> Result<Vec<Value>> {
        (0..self.len()).map(|i| Ok(self.value(i)?.to_owned())).collect()
    }

    /// The layout with which it was filled.
    pub(crate) fn layout(&self) -> Option<&Arc<Layout>> {
        self.layout.as_ref()
    }

    fn keep_layout(&mut self, layout: &Arc<Layout>) {
        if !self.layout.as_ref().is_some_and(|s| Arc::ptr_eq(s, layout)) {
            self.layout = Some(layout.clone());
        }
    }

    /// Empties the buffer: it then keeps no snapshot and no long value.
    #[inline]
    pub fn clear(&mut self) {
        self.source = Source::Empty;
        self.place = None;
        // Few rows have any.
        if self.large.is_some() {
            self.large = None;
        }
        if !self.values.is_empty() {
            self.values.clear();
        }
    }

    /// Sets the key alone: the buffer holds no row.
    pub(crate) fn set_key(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
    }

    /// Sets a table row.
    pub(crate) fn set_table(&mut self, layout: &Arc<Layout>, key: &[u8], row: &[u8]) {
        self.clear();
        self.keep_layout(layout);
        self.source = Source::Table;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.row.clear();
        self.row.extend_from_slice(row);
    }

    /// True if the row bytes refer to overflow pages.
    pub(crate) fn has_references(&self) -> bool {
        matches!(self.source, Source::Table) && evenkeel_format::row::has_references(&self.row)
    }

    /// The stored bytes of a table row.
    pub(crate) fn row_bytes(&self) -> &[u8] {
        &self.row
    }

    /// Sets the value of a column that lay in overflow pages.
    pub(crate) fn set_value(&mut self, position: usize, value: Value) {
        if self.values.len() < self.len() {
            self.values.resize(self.len(), None);
        }
        self.values[position] = Some(value);
    }

    /// Sets an index entry: the columns of the index and of the clustered key.
    pub(crate) fn set_index(
        &mut self,
        layout: &Arc<Layout>,
        index: usize,
        entry: &EntryRef<'_>,
    ) -> Result<()> {
        self.clear();
        self.keep_layout(layout);
        self.source = Source::Index { index, pk_at: entry.key.len() };
        self.row.clear();
        self.row.extend_from_slice(entry.key_and_pk);
        let parts = &layout.indexes[index].parts;
        if layout.indexes[index].places.is_some() {
            return Ok(());
        }
        self.values.resize(layout.columns.len(), None);
        for (parts, bytes) in [(parts, entry.key), (&layout.key, entry.pk)] {
            let mut rest = bytes;
            for part in parts {
                if part.part.form.is_lossy() {
                    rest = part.part.skip(rest)?;
                    continue;
                }
                let (value, tail) = part.part.decode(rest)?;
                self.values[part.column] = Some(value);
                rest = tail;
            }
        }
        let mut stored = Reader::new(entry.value, "index entry");
        for column in &layout.indexes[index].stored {
            let value = match stored.varint()?.checked_sub(1) {
                None => Value::Null,
                Some(len) => Value::Bytes(stored.take(len as usize)?.to_vec()),
            };
            self.values[*column] = Some(value);
        }
        stored.finish()
    }
}
