//! Values too long for a leaf (E4): written to overflow chains before the row, and read back when a
//! row is returned or an index entry needs them.
//!
//! A chain belongs to the operation that wrote it and is named only by row versions. An update that
//! does not change a value keeps its chain.

use crate::buffers::Buffers;
use crate::large::ValueChain;
use crate::read::ReadView;
use crate::row::Row;
use crate::store::Store;
use crate::table::TableState;
use crate::table_layout::Layout;
use crate::transaction::TableTxn;
use evenkeel_base::{Cause, Code, Error, Kind, Result, Stamp};
use evenkeel_format::undo::UndoRecord;
use evenkeel_format::{Field, Value, row};
use evenkeel_tree::{OverflowReader, OverflowRef, Tree, overflow};
use evenkeel_txn::SnapshotGuard;
use std::sync::Arc;
use std::time::Duration;

/// How often a dirty read repeats the read of a long value that is being rolled back.
const DIRTY_TRIES: usize = 1_000;

/// Longer values are read on demand, not with their row.
pub(crate) const LOAD_BYTES_MAX: u32 = 1 << 20;
/// Bytes of a reference to a value in its row, about.
const REFERENCE_BYTES: usize = 32;

/// Buffer of a copy.
const COPY_BYTES: usize = 16 << 10;

/// A value shorter than this stays in the row.
const SHORT_BYTES: usize = 64;

pub(crate) fn read_chain(tree: &Tree, reference: OverflowRef) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity((reference.len as usize).min(1 << 20));
    OverflowReader::new(tree, reference).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The values of a stored row that lie in overflow pages, for the columns that `wanted` selects:
/// (position, value).
pub(crate) fn load(
    tree: &Tree,
    layout: &Layout,
    key: &[u8],
    bytes: &[u8],
    wanted: &dyn Fn(usize, u32) -> bool,
) -> Result<Vec<(usize, Value)>> {
    let mut loaded = Vec::new();
    if !row::has_references(bytes) {
        return Ok(loaded);
    }
    let view = layout.view(key, bytes)?;
    for position in 0..layout.columns.len() {
        if let Field::Reference(reference) = view.field(position)? {
            let reference = OverflowRef::decode(reference)?;
            if wanted(position, reference.len) {
                let chain = read_chain(tree, reference)?;
                let ty = layout.columns[position].entry.ty;
                loaded.push((position, ty.from_own_bytes(chain)?));
            }
        }
    }
    Ok(loaded)
}

impl Store {
    /// Reads the values that lie in overflow pages into the row. The longest ones are read on
    /// demand, protected by `guard`, the snapshot at which the row was read. Without a guard the
    /// caller has locked the row.
    pub(crate) fn load_references(
        &self,
        state: &TableState,
        row: &mut Row,
        guard: Option<&Arc<SnapshotGuard>>,
    ) -> Result<()> {
        if !row.has_references() {
            return Ok(());
        }
        let short = |_: usize, len: u32| len <= LOAD_BYTES_MAX;
        let layout = row.layout().unwrap_or(&state.layout).clone();
        let loaded = load(&state.tree, &layout, row.key(), row.row_bytes(), &short)?;
        for (position, value) in loaded {
            row.set_value(position, value);
        }
        let guard = || guard.cloned().unwrap_or_else(|| Arc::new(self.txns.snapshot()));
        row.keep_source(&state.tree, &guard)
    }

    /// As `load_references`, for a row that `view` has found; false if it is gone. A dirty read may
    /// meet a version whose chains are being freed by a rollback: it reads the row again after a
    /// moment.
    #[inline]
    pub(crate) fn load_in_view(
        &self,
        state: &TableState,
        view: &ReadView,
        row: &mut Row,
    ) -> Result<bool> {
        if row.has_references() { self.load_long(state, view, row) } else { Ok(true) }
    }

    fn load_long(&self, state: &TableState, view: &ReadView, row: &mut Row) -> Result<bool> {
        for _ in 0..DIRTY_TRIES {
            match self.load_references(state, row, view.guard.as_ref()) {
                Err(error) if view.dirty && error.kind() == Kind::Corrupt => {}
                done => return done.map(|()| true),
            }
            let key = row.key().to_vec();
            row.clear();
            if !self.read(state, &key, view, row)? {
                return Ok(false);
            }
            self.rt.delay(Duration::from_millis(1), Cause::RowLock);
        }
        self.load_references(state, row, view.guard.as_ref()).map(|()| true)
    }

    /// Frees the chains that an operation brought into its row, before the operation is undone. A
    /// crash or a failure in between does no harm: it is repeated, and no reader sees an undone
    /// version.
    pub(crate) fn free_adopted(
        &self,
        tree: &Tree,
        stamp: Stamp,
        record: &UndoRecord<'_>,
    ) -> Result<()> {
        let mut row = Vec::new();
        tree.get(record.key, &mut |cell| {
            if let Some(cell) = cell.filter(|c| c.stamp == stamp && row::has_references(c.row)) {
                row.extend_from_slice(cell.row);
            }
        })?;
        if row.is_empty() {
            return Ok(());
        }
        let Some(table) = self.catalog.by_tree(tree.id()) else { return Ok(()) };
        let layout = table.layout();
        let before = record.before.as_ref().map_or(&[][..], |before| before.row);
        let kept = layout.chains(before)?;
        for chain in layout.chains(&row)? {
            if !kept.contains(&chain) {
                overflow::free(tree, &chain)?;
            }
        }
        Ok(())
    }
}

impl TableTxn {
    /// Encodes the row of `b.key`; if it is long, its longest values go to overflow chains,
    /// noted in `b.chains`.
    pub(crate) fn encode_row<'v>(
        &mut self,
        state: &TableState,
        field: &impl Fn(usize) -> Result<Field<'v>>,
        b: &mut Buffers,
    ) -> Result<()> {
        b.row.clear();
        b.chains.clear();
        let limit = state.tree.row_bytes_whole();
        let layout = &state.layout;
        let known = match layout.encode_row(field, &mut b.row) {
            Ok(()) if b.row.len() <= limit => return Ok(()),
            Ok(()) => Some(b.row.len()),
            Err(error) if error.code() == Code::RowTooLong => None,
            Err(error) => return Err(error),
        };
        let (mut long, mut all) = (Vec::new(), layout.row_bytes_min()?);
        for (position, column) in layout.columns.iter().enumerate() {
            if column.entry.ty.fixed_len().is_some() || column.from_key.is_some() {
                continue;
            }
            if let Field::Value(value) = field(position)?
                && !value.is_null()
            {
                let len = column.entry.ty.to_bytes(value)?.len();
                all += len;
                if len >= SHORT_BYTES {
                    long.push((len, position));
                }
            }
        }
        long.sort_unstable();
        let mut moved: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut left = known.unwrap_or(all);
        while left > limit {
            let Some((len, position)) = long.pop() else { break };
            if let Field::Value(value) = field(position)? {
                let bytes = layout.columns[position].entry.ty.to_bytes(value)?;
                let reference = self.write_chain(&state.tree, bytes, b)?;
                moved.push((position, reference));
            }
            left = left - len + REFERENCE_BYTES;
        }
        b.row.clear();
        let field = |i: usize| match moved.iter().find(|m| m.0 == i) {
            Some((_, reference)) => Ok(Field::Reference(reference)),
            None => field(i),
        };
        let encoded = layout.encode_row(&field, &mut b.row);
        // Bytes that cannot leave the row may take more of the leaf.
        let limit = state.tree.row_bytes_max(b.key.len());
        if encoded.is_ok() && b.row.len() <= limit {
            return Ok(());
        }
        self.drop_chains(b);
        encoded?;
        Err(Error::new(Code::RowTooLong)
            .with("table", &layout.def.name)
            .with("bytes", b.row.len())
            .with("limit", limit))
    }

    fn write_chain(&mut self, tree: &Tree, bytes: &[u8], b: &mut Buffers) -> Result<Vec<u8>> {
        let mut writer = self.chain_writer(tree)?;
        let written = writer.write(bytes).and_then(|()| writer.finish());
        if written.is_err() {
            self.drop_chains(b);
        }
        let chain = written?;
        let mut reference = Vec::new();
        chain.reference().encode(&mut reference);
        b.chains.push(chain);
        Ok(reference)
    }

    /// Copies a chain, a page at a time.
    pub(crate) fn copy_chain(
        &mut self,
        from: &Tree,
        to: &Tree,
        reference: &[u8],
    ) -> Result<ValueChain> {
        let mut reader = OverflowReader::new(from, OverflowRef::decode(reference)?);
        let mut writer = self.chain_writer(to)?;
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            match reader.read(&mut buffer)? {
                0 => return writer.finish(),
                n => writer.write(&buffer[..n])?,
            }
        }
    }

    /// Abandons the chains of a change that was not applied.
    pub(crate) fn drop_chains(&mut self, b: &mut Buffers) {
        b.chains.clear();
    }
}
