//! The parts of a row change that need no transaction: results, differences of entries and chains.

use crate::buffers::Buffers;
use crate::large::Given;
use crate::primary::FoundBy;
use crate::table_layout::{IndexLayout, Layout, RowView};
use crate::write::{Inserted, OnDuplicate};
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::ValueRef;
use evenkeel_format::overflow::ChainEdit;
use evenkeel_format::record::{cell_flags, entry_op};

/// The result of an insert that met a row with a key of the prepared one, of an index or primary.
pub(crate) fn met(
    on_duplicate: OnDuplicate,
    (layout, values): (&Layout, &[ValueRef<'_>]),
    index: Option<usize>,
    pk: Vec<u8>,
    b: &Buffers,
) -> Result<Inserted> {
    match on_duplicate {
        OnDuplicate::Keep => Ok(found(layout, index, pk, b)),
        OnDuplicate::Fail => Err(duplicate(layout, index, values)),
    }
}

/// The result of an insert that found a row by the prepared row's index key or primary key.
fn found(layout: &Layout, index: Option<usize>, pk: Vec<u8>, b: &Buffers) -> Inserted {
    let key = index.and_then(|index| b.unique.iter().find(|(at, _)| *at == index));
    Inserted::Found(pk, key.map(|(at, key)| (layout.indexes[*at].id, key.clone())))
}

/// True unless a row has another key by now than it was found by.
pub(crate) fn has_key(
    layout: &Layout,
    row: &RowView<'_>,
    pk_len: usize,
    found_by: FoundBy<'_>,
    b: &mut Buffers,
) -> Result<bool> {
    let Some((id, found)) = found_by else { return Ok(true) };
    let Some(index) = layout.indexes.iter().find(|i| i.id == id) else { return Ok(false) };
    b.part.clear();
    index.encode(&|i| row.value(i), pk_len, &mut b.part)?;
    Ok(b.part == found)
}

/// Lists the chains that the prepared row in `b` adopts, and those of `old` that it supersedes.
pub(crate) fn list_edits(
    layout: &Layout,
    old: Option<&[u8]>,
    given: &[Given],
    b: &mut Buffers,
) -> Result<()> {
    b.edits.clear();
    let old = layout.chains(old.unwrap_or_default())?;
    if old.is_empty() && given.is_empty() && b.chains.is_empty() {
        return Ok(());
    }
    let new = layout.chains(&b.row)?;
    let gone = old.iter().filter(|chain| !new.contains(chain));
    b.edits.extend(gone.map(|chain| ChainEdit::Superseded(*chain)));
    let adopted = new.iter().filter(|chain| !old.contains(chain));
    b.edits.extend(adopted.map(|chain| ChainEdit::Adopted(*chain)));
    Ok(())
}

/// Cell flags of row bytes.
pub(crate) fn row_flags(row: &[u8]) -> u8 {
    if evenkeel_format::row::has_references(row) { cell_flags::OVERFLOW } else { 0 }
}

/// How an attempt to apply a prepared change ended.
pub(crate) enum Applied {
    /// The change is applied.
    Done,
    /// An obstacle was removed: prepare the change again.
    Again,
    /// A row with this clustered key has the index key (at this position), or the primary key.
    Duplicate(Option<usize>, Vec<u8>),
}

/// Index entries for a changed key: DEL of the old one, INS of the new one. If only the stored
/// bytes differ, one INS replaces the entry (A4: by bytes).
pub(crate) fn diff_entry<'v>(
    index: &IndexLayout,
    at: usize,
    (old, renews): (&RowView<'v>, bool),
    value: &impl Fn(usize) -> Result<ValueRef<'v>>,
    b: &mut Buffers,
) -> Result<()> {
    b.part.clear();
    b.old_part.clear();
    b.stored.clear();
    b.old_stored.clear();
    index.encode(&|i| old.value(i), b.key.len(), &mut b.old_part)?;
    let full = index.encode(value, b.key.len(), &mut b.part)?;
    index.put_stored(&|i| old.value(i), &mut b.old_stored)?;
    index.encode_stored(value, b.part.len() + b.key.len(), &mut b.stored)?;
    if b.part == b.old_part {
        if renews || b.stored != b.old_stored {
            b.entries.push(index.id, entry_op::INS, &b.part, &b.stored, b.key.len());
        }
        return Ok(());
    }
    b.entries.push(index.id, entry_op::DEL, &b.old_part, &[], b.key.len());
    let op = entry_op::INS | entry_op::FRESH;
    b.entries.push(index.id, op, &b.part, &b.stored, b.key.len());
    if full && index.checks_unique() {
        b.unique.push((at, b.part.clone()));
    }
    Ok(())
}

#[cold]
pub(crate) fn duplicate(layout: &Layout, index: Option<usize>, values: &[ValueRef<'_>]) -> Error {
    let parts = index.map_or(&layout.key, |i| &layout.indexes[i].parts);
    let shown: Vec<String> = parts.iter().map(|p| values[p.column].brief()).collect();
    duplicate_key(layout, index).with("key", shown.join(", "))
}

#[cold]
pub(crate) fn duplicate_key(layout: &Layout, index: Option<usize>) -> Error {
    let name = index.map_or("primary", |i| &layout.indexes[i].name);
    Error::new(Code::DuplicateKey).with("table", &layout.def.name).with("index", name)
}
