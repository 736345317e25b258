//! Values too long for a leaf: written to overflow chains before the row, read back when a row is
//! handed out or an index entry needs them (E4).
//!
//! A chain belongs to the operation that wrote it and is named only by row versions. A row that
//! keeps a value in an update keeps its chain.

use crate::row::Row;
use crate::shape::Shape;
use crate::store::Store;
use crate::table::TableState;
use crate::transaction::Transaction;
use crate::write::Buffers;
use evenkeel_base::{Code, Error, Result, Stamp};
use evenkeel_format::undo::UndoRecord;
use evenkeel_format::{Field, Value, row};
use evenkeel_tree::{OverflowReader, OverflowRef, OverflowWriter, Tree, overflow};

/// A value shorter than this stays in the row.
const SHORT_BYTES: usize = 64;

fn read_chain(tree: &Tree, reference: &[u8]) -> Result<Vec<u8>> {
    let reference = OverflowRef::decode(reference)?;
    let mut bytes = Vec::with_capacity((reference.len as usize).min(1 << 20));
    OverflowReader::new(tree, reference).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The values of a stored row that lie in overflow pages: (position, value).
pub(crate) fn load(
    tree: &Tree,
    shape: &Shape,
    key: &[u8],
    bytes: &[u8],
) -> Result<Vec<(usize, Value)>> {
    let mut loaded = Vec::new();
    if !row::has_references(bytes) {
        return Ok(loaded);
    }
    let view = shape.view(key, bytes)?;
    for position in 0..shape.columns.len() {
        if let Field::Reference(reference) = view.field(position)? {
            let chain = read_chain(tree, reference)?;
            let ty = shape.columns[position].entry.ty;
            loaded.push((position, ty.from_bytes(&chain)?.to_owned()));
        }
    }
    Ok(loaded)
}

impl Store {
    /// Reads values that lie in overflow pages into the row.
    pub(crate) fn load_references(&self, state: &TableState, row: &mut Row) -> Result<()> {
        if row.has_references() {
            let loaded = load(&state.tree, &state.shape, row.key(), row.row_bytes())?;
            for (position, value) in loaded {
                row.set_value(position, value);
            }
        }
        Ok(())
    }

    /// Frees the chains that an operation which was reverted had written: those of its row whose
    /// owner it is.
    pub(crate) fn free_chains(&self, tree: &Tree, row: &[u8], owner: Stamp) -> Result<()> {
        if !row::has_references(row) {
            return Ok(());
        }
        let Some(table) = self.catalog.by_tree(tree.id()) else { return Ok(()) };
        let state = table.state();
        // The key is not needed to find references.
        let view = state.shape.view(&[], row)?;
        for position in 0..state.shape.columns.len() {
            let stored = state.shape.columns[position].from_key.is_none();
            if stored && let Field::Reference(reference) = view.field(position)? {
                let reference = OverflowRef::decode(reference)?;
                if reference.owner == owner {
                    overflow::free(tree, &reference)?;
                }
            }
        }
        Ok(())
    }
}

impl Transaction {
    /// Encodes the row; if it is too long for a leaf, its longest values go to overflow chains,
    /// noted in `b.chains`.
    pub(crate) fn encode_row<'v>(
        &mut self,
        state: &TableState,
        field: &impl Fn(usize) -> Result<Field<'v>>,
        b: &mut Buffers,
    ) -> Result<()> {
        b.row.clear();
        b.chains.clear();
        let limit = state.tree.row_bytes_max();
        let shape = &state.shape;
        let too_long = match shape.encode_row(field, &mut b.row) {
            Ok(()) if b.row.len() <= limit => return Ok(()),
            Ok(()) => b.row.len(),
            Err(error) if error.code() == Code::RowTooLong => usize::MAX,
            Err(error) => return Err(error),
        };
        let mut long = Vec::new();
        for (position, column) in shape.columns.iter().enumerate() {
            if column.entry.ty.fixed_len().is_some() || column.from_key.is_some() {
                continue;
            }
            if let Field::Value(value) = field(position)?
                && !value.is_null()
            {
                let len = column.entry.ty.to_bytes(value)?.len();
                if len >= SHORT_BYTES {
                    long.push((len, position));
                }
            }
        }
        long.sort_unstable();
        // The chains carry the operation's stamp, so it needs its id now.
        let undo = UndoRecord::encoded_len_max(b.key.len(), 0);
        self.store.txns.reserve_undo(&self.inner, undo)?;
        let mut moved: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut left = too_long;
        while left > limit {
            let Some((len, position)) = long.pop() else { break };
            if let Field::Value(value) = field(position)? {
                let bytes = shape.columns[position].entry.ty.to_bytes(value)?;
                let reference = self.write_chain(&state.tree, bytes, b)?;
                moved.push((position, reference));
            }
            left = if left == usize::MAX { usize::MAX } else { left - len + 32 };
            if left == usize::MAX && long.iter().map(|l| l.0).sum::<usize>() < limit / 2 {
                left = 0;
            }
        }
        b.row.clear();
        let field = |i: usize| match moved.iter().find(|m| m.0 == i) {
            Some((_, reference)) => Ok(Field::Reference(reference)),
            None => field(i),
        };
        let encoded = shape.encode_row(&field, &mut b.row);
        if encoded.is_ok() && b.row.len() <= limit {
            return Ok(());
        }
        self.drop_chains(&state.tree, b)?;
        encoded?;
        Err(Error::new(Code::RowTooLong)
            .with("table", &shape.def.name)
            .with("bytes", b.row.len())
            .with("limit", limit))
    }

    fn write_chain(&mut self, tree: &Tree, bytes: &[u8], b: &mut Buffers) -> Result<Vec<u8>> {
        let mut writer = OverflowWriter::new(tree, self.inner.next_stamp());
        if let Err(error) = writer.write(bytes) {
            if let Err(second) = writer.abandon() {
                log::warn!("overflow chain not freed: {second}");
            }
            self.drop_chains(tree, b)?;
            return Err(error);
        }
        let chain = writer.finish()?;
        let mut reference = Vec::new();
        chain.encode(&mut reference);
        b.chains.push(chain);
        Ok(reference)
    }

    /// Frees the chains of a change that was not applied.
    pub(crate) fn drop_chains(&mut self, tree: &Tree, b: &mut Buffers) -> Result<()> {
        for chain in b.chains.drain(..) {
            overflow::free(tree, &chain)?;
        }
        Ok(())
    }
}
