//! The log record of several inserts into one leaf (ROWS): rows that one transaction inserts
//! together, by ascending key, where no cell was. It has the content of as many ROW records: the
//! operations have consecutive numbers, and each has its own stamp, key, row and index entries.
//! Fields common to all, and bytes that a key shares with the one before it, are written once.
//!
//! ```text
//! ROWS:  page varint, tree varint, stamp of the first operation (txn varint, undo_no varint),
//!        table varint, generation varint, entry count varint, each entry's index varint and op u8,
//!        then the rows to the end
//! row:   bytes shared with the key before varint, rest of the key bytes, row bytes,
//!        the key of each entry bytes
//! ```
//!
//! Each is an insert (`RowKind::Insert`) without a version before it, STAMPED and with no other
//! flag; its entries have no value.

use crate::record::{
    Entry, LeafChange, RecordKind, RowKind, RowLogical, cell_flags, read_entry_op,
};
use crate::{Reader, put_bytes, put_varint};
use evenkeel_base::{Generation, IndexId, PageNo, Result, Stamp, TableId, TreeId, TxnId, UndoNo};

/// Bytes of a ROWS record without its rows and its list of entries, at most.
pub const ROWS_HEAD_BYTES: usize = 64;
/// Bytes of a row in it without key, row and keys of entries, at most.
pub const ROWS_ROW_BYTES: usize = 16;

/// The place of the rows of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsPlace {
    /// The leaf.
    pub page: PageNo,
    /// Its tree.
    pub tree: TreeId,
}

/// The common fields of the rows of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsHead<'a> {
    /// Stamp of the first operation.
    pub first: Stamp,
    /// The table.
    pub table: TableId,
    /// The memtable generation the entries went to (B3).
    pub generation: Generation,
    /// Index and op of each row's entries.
    pub entries: &'a [(IndexId, u8)],
}

/// Begins a record.
pub fn begin_rows(out: &mut Vec<u8>, place: RowsPlace, head: &RowsHead<'_>) {
    put_varint(out, place.page.0);
    put_varint(out, u64::from(place.tree.0));
    put_varint(out, head.first.txn.0);
    put_varint(out, u64::from(head.first.undo_no.0));
    put_varint(out, u64::from(head.table.0));
    put_varint(out, head.generation.0);
    put_varint(out, head.entries.len() as u64);
    for (index, op) in head.entries {
        put_varint(out, u64::from(index.0));
        out.push(*op);
    }
}

/// Appends a row. `tail` is the key of each entry as "bytes", one after the other.
pub fn put_row(out: &mut Vec<u8>, before: &[u8], key: &[u8], row: &[u8], tail: &[u8]) {
    let shared = crate::node::common_prefix(before, key);
    put_varint(out, shared as u64);
    put_bytes(out, &key[shared..]);
    put_bytes(out, row);
    out.extend_from_slice(tail);
}

/// Calls `f` with each operation of a ROW or ROWS record, in order; other kinds have none.
///
/// # Errors
/// `BadEncoding`; those of `f`.
pub fn each_row(
    kind: RecordKind,
    body: &[u8],
    f: &mut dyn FnMut(&LeafChange<'_>, &RowLogical<'_>) -> Result<()>,
) -> Result<()> {
    match kind {
        RecordKind::Row => {
            let change = LeafChange::decode(body)?;
            f(&change, &RowLogical::decode(&change, &mut Vec::new())?)
        }
        RecordKind::Rows => decode_rows(body, f),
        _ => Ok(()),
    }
}

/// The page of a ROWS record. # Errors: `BadEncoding`.
pub fn rows_page(body: &[u8]) -> Result<PageNo> {
    Ok(PageNo(Reader::new(body, "rows record").varint()?))
}

fn decode_rows(
    body: &[u8],
    f: &mut dyn FnMut(&LeafChange<'_>, &RowLogical<'_>) -> Result<()>,
) -> Result<()> {
    let mut r = Reader::new(body, "rows record");
    let (page, tree) = (PageNo(r.varint()?), TreeId(r.varint32()?));
    let mut stamp = Stamp { txn: TxnId(r.varint()?), undo_no: UndoNo(r.varint32()?) };
    let (table, generation) = (TableId(r.varint32()?), Generation(r.varint()?));
    let mut heads = Vec::new();
    for _ in 0..r.varint()? {
        heads.push((IndexId(r.varint32()?), read_entry_op(&mut r)?));
    }
    let mut key = Vec::new();
    let mut logical = RowLogical {
        table,
        generation,
        kind: RowKind::Insert,
        before: None,
        chains: &[],
        entries: Vec::with_capacity(heads.len()),
    };
    while !r.is_empty() {
        let shared = r.varint()?;
        match usize::try_from(shared) {
            Ok(shared) if shared <= key.len() => key.truncate(shared),
            _ => return Err(r.bad("a key shares more than there is")),
        }
        key.extend_from_slice(r.bytes()?);
        let row = r.bytes()?;
        logical.entries.clear();
        for (index, op) in &heads {
            logical.entries.push(Entry { index: *index, op: *op, key: r.bytes()?, value: &[] });
        }
        let flags = cell_flags::STAMPED | cell_flags::FIRST;
        f(&LeafChange { page, tree, flags, stamp, key: &key, row, logical: &[] }, &logical)?;
        match stamp.undo_no.0.checked_add(1) {
            Some(next) => stamp.undo_no = UndoNo(next),
            None => return Err(r.bad("more operations than a transaction has")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_many_rows_equals_records_of_single_rows() {
        let place = RowsPlace { page: PageNo(300), tree: TreeId(2) };
        let entries = [(IndexId(9), 5), (IndexId(200), 1)];
        let first = Stamp { txn: TxnId(1000), undo_no: UndoNo(41) };
        let (table, generation) = (TableId(7), Generation(3));
        let mut body = Vec::new();
        begin_rows(&mut body, place, &RowsHead { first, table, generation, entries: &entries });
        let rows: [(&[u8], &[u8]); 3] = [(b"key1", b"row"), (b"key2", b""), (b"l", b"third")];
        let mut before: &[u8] = &[];
        for (key, row) in rows {
            let mut tail = Vec::new();
            put_bytes(&mut tail, key);
            put_bytes(&mut tail, b"e");
            put_row(&mut body, before, key, row, &tail);
            before = key;
        }
        let mut seen = 0;
        let mut check = |change: &LeafChange<'_>, logical: &RowLogical<'_>| {
            let (key, row) = rows[seen];
            let flags = cell_flags::STAMPED | cell_flags::FIRST;
            assert_eq!((change.page, change.tree, change.flags), (PageNo(300), TreeId(2), flags));
            assert_eq!((change.key, change.row), (key, row));
            assert_eq!(change.stamp.undo_no.0, 41 + seen as u32);
            assert_eq!((logical.table, logical.generation, logical.kind), {
                (table, generation, RowKind::Insert)
            });
            assert_eq!(logical.before, None);
            let found: Vec<_> = logical.entries.iter().map(|e| (e.index, e.op, e.key)).collect();
            assert_eq!(found, [(IndexId(9), 5, key), (IndexId(200), 1, b"e")]);
            seen += 1;
            Ok(())
        };
        each_row(RecordKind::Rows, &body, &mut check).expect("decodes");
        assert_eq!(seen, 3);
        assert_eq!(rows_page(&body).expect("decodes"), PageNo(300));
        for cut in 0..body.len() {
            let mut rows = 0;
            let done = each_row(RecordKind::Rows, &body[..cut], &mut |_, _| {
                rows += 1;
                Ok(())
            });
            assert!(done.is_err() || rows < 3, "cut at {cut}");
        }
    }
}
