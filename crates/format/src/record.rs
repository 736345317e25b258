//! Log records: kinds and bodies. The log frames them (`wal`); a body is one of the layouts here.
//!
//! A row operation is one record: its physical part changes one cell of one leaf (page redo); its
//! logical part serves undo after a crash and rebuilding the memtable.
//!
//! ```text
//! leaf change (ROW, REVERT): page varint, tree varint, flags u8, stamp (txn varint,
//!                            undo_no varint), key bytes, row bytes, logical...
//! ROW logical:    table varint, generation varint, kind u8, before_flags u8,
//!                 [before stamp, before row]        if before_flags has PRESENT
//!                 [chains bytes]                    if before_flags has CHAINS (`overflow`)
//!                 entry count varint, entries: index varint, op u8, key bytes, value bytes
//! before row:     bytes; if before_flags has SHARED: bytes shared with the new row at its begin
//!                 varint, at its end varint, what lies between bytes
//! REVERT logical: reverted stamp (txn varint, undo_no varint)
//! ROWS:           several inserts into one leaf, see `rows`
//! PAGE:           page ops: page varint, op u8, payload bytes ...
//! COMMIT, ABORT, END: txn varint
//! PREPARE:        txn varint, xid bytes
//! ```

use crate::node::common_prefix;
use crate::{Reader, put_bytes, put_varint};
use evenkeel_base::{Generation, IndexId, PageNo, Result, Stamp, TableId, TreeId, TxnId, UndoNo};
use std::ops::Range;

/// Bytes compared at once: most of a changed row stays the same.
const WORD: usize = 16;

/// If the row before shares fewer bytes with the new one it is written whole: the lengths would
/// take as many bytes.
const SHARED_BYTES_MIN: usize = 16;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// A mini-transaction: page ops only.
    Page = 1,
    /// A row operation.
    Row = 2,
    /// Compensation: a row operation was undone.
    Revert = 3,
    /// A transaction committed; its LSN is the commit timestamp.
    Commit = 4,
    /// A transaction aborted; its rows are rolled back afterwards.
    Abort = 5,
    /// An aborted transaction is fully rolled back.
    End = 6,
    /// A transaction is prepared.
    Prepare = 7,
    /// An edit of the list of runs (`runs` owns the body).
    Manifest = 8,
    /// A part of a checkpoint (`evenkeel` owns the body).
    Checkpoint = 9,
    /// Several inserts of one transaction into one leaf (`rows`).
    Rows = 10,
}

impl RecordKind {
    /// Decodes a kind; `None` if it is unknown.
    pub fn from_u8(value: u8) -> Option<RecordKind> {
        use RecordKind::*;
        [Page, Row, Revert, Commit, Abort, End, Prepare, Manifest, Checkpoint, Rows]
            .into_iter()
            .find(|k| *k as u8 == value)
    }
}

/// Flags of a leaf cell and of a leaf change.
pub mod cell_flags {
    /// The row is deleted (its bytes stay until no snapshot needs them).
    pub const DELETED: u8 = 1;
    /// The cell carries a stamp.
    pub const STAMPED: u8 = 2;
    /// The row's bytes refer to overflow pages.
    pub const OVERFLOW: u8 = 4;
    /// With a stamp: there was no cell before, and the operation wrote an entry into each index.
    pub const FIRST: u8 = 8;
    /// Those of a cell in a leaf. 0x40 of a cell, and 0x80 of before flags, are reserved: a second
    /// byte of flags will follow.
    pub const IN_LEAF: u8 = DELETED | STAMPED | OVERFLOW | FIRST;
    /// Only in a leaf change: remove the cell.
    pub const REMOVE: u8 = 0x80;
    /// Only in `before_flags`: there was a cell.
    pub const PRESENT: u8 = 0x40;
    /// Only in `before_flags` of a ROW record: the record adopts or supersedes overflow chains.
    pub const CHAINS: u8 = 0x20;
    /// Only in `before_flags` of a ROW record: the bytes that the old row shares with the new one
    /// are left out.
    pub const SHARED: u8 = 0x10;
}

/// The physical part of a ROW or REVERT record: the new content of one leaf cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafChange<'a> {
    /// The leaf.
    pub page: PageNo,
    /// Its tree.
    pub tree: TreeId,
    /// `cell_flags` of the new cell, or `REMOVE`.
    pub flags: u8,
    /// Stamp of the new cell (zero if not `STAMPED`).
    pub stamp: Stamp,
    /// Clustered key.
    pub key: &'a [u8],
    /// Row bytes (empty with `REMOVE`).
    pub row: &'a [u8],
    /// The logical part, undecoded.
    pub logical: &'a [u8],
}

fn put_stamp(out: &mut Vec<u8>, stamp: Stamp) {
    put_varint(out, stamp.txn.0);
    put_varint(out, u64::from(stamp.undo_no.0));
}

#[inline]
fn stamp(r: &mut Reader<'_>) -> Result<Stamp> {
    Ok(Stamp { txn: TxnId(r.varint()?), undo_no: UndoNo(r.varint32()?) })
}

impl<'a> LeafChange<'a> {
    /// Appends the encoded change.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.page.0);
        put_varint(out, u64::from(self.tree.0));
        out.push(self.flags);
        put_stamp(out, self.stamp);
        put_bytes(out, self.key);
        put_bytes(out, self.row);
        out.extend_from_slice(self.logical);
    }

    /// The page of an encoded change. # Errors: `BadEncoding`.
    pub fn page_of(body: &[u8]) -> Result<PageNo> {
        Ok(PageNo(Reader::new(body, "leaf change").varint()?))
    }

    /// Decodes. # Errors: `BadEncoding`; `NewerFormat` for an unknown flag.
    pub fn decode(body: &'a [u8]) -> Result<LeafChange<'a>> {
        let mut r = Reader::new(body, "leaf change");
        let (page, tree, flags) = (PageNo(r.varint()?), TreeId(r.varint32()?), r.u8()?);
        r.known("flags", flags, cell_flags::IN_LEAF | cell_flags::REMOVE)?;
        Ok(LeafChange {
            page,
            tree,
            flags,
            stamp: stamp(&mut r)?,
            key: r.bytes()?,
            row: r.bytes()?,
            logical: r.rest(),
        })
    }
}

/// The kind of a row operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RowKind {
    /// The key had no live row.
    Insert = 1,
    /// The row changed, its key did not.
    Update = 2,
    /// The row was marked deleted.
    Delete = 3,
}

impl RowKind {
    /// Reads a kind. # Errors: `BadEncoding`; `NewerFormat` for an unknown one.
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<RowKind> {
        match r.u8()? {
            1 => Ok(RowKind::Insert),
            2 => Ok(RowKind::Update),
            3 => Ok(RowKind::Delete),
            kind => Err(r.newer("kind", kind)),
        }
    }
}

/// The version a row operation replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before<'a> {
    /// `cell_flags` of the old cell.
    pub flags: u8,
    /// Stamp of the old cell.
    pub stamp: Stamp,
    /// Its row bytes.
    pub row: &'a [u8],
}

/// Operations of an index entry.
pub mod entry_op {
    /// The (key, pk) exists from here on; replaces an entry with equal key and other stored bytes.
    pub const INS: u8 = 1;
    /// The (key, pk) does not exist from here on.
    pub const DEL: u8 = 2;
    /// With INS: the (key, pk) was not live before (D4).
    pub const FRESH: u8 = 4;

    /// True for the three that exist: INS, DEL, INS with FRESH.
    #[inline]
    pub const fn is_known(op: u8) -> bool {
        matches!(op, INS | DEL) || op == INS | FRESH
    }
}

/// Reads an entry's op. # Errors: `BadEncoding`; `NewerFormat` for an unknown one.
pub(crate) fn read_entry_op(r: &mut Reader<'_>) -> Result<u8> {
    let op = r.u8()?;
    if entry_op::is_known(op) { Ok(op) } else { Err(r.newer("op", op)) }
}

/// An index entry of a row operation; its pk is the clustered key of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The index.
    pub index: IndexId,
    /// `entry_op` bits.
    pub op: u8,
    /// Memcomparable column bytes.
    pub key: &'a [u8],
    /// Stored bytes that the key alone does not give back.
    pub value: &'a [u8],
}

impl Entry<'_> {
    /// Appends the encoded entry; where its key and its value lie in `out`.
    fn encode(&self, out: &mut Vec<u8>) -> (Range<usize>, Range<usize>) {
        put_varint(out, u64::from(self.index.0));
        out.push(self.op);
        let mut put = |bytes: &[u8]| {
            put_bytes(out, bytes);
            out.len() - bytes.len()..out.len()
        };
        (put(self.key), put(self.value))
    }
}

/// Index entries of one row operation, encoded once: the memtable and the record are filled from
/// the same bytes.
#[derive(Clone, Debug, Default)]
pub struct EntryList {
    bytes: Vec<u8>,
    places: Vec<EntryPlace>,
}

/// Where an entry lies in the encoded list.
#[derive(Clone, Debug)]
struct EntryPlace {
    index: IndexId,
    op: u8,
    key: Range<usize>,
    value: Range<usize>,
}

impl EntryList {
    /// Bytes in front of the entries, at most.
    pub const COUNT_BYTES_MAX: usize = 4;

    /// Forgets all entries; the memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    /// Adds an entry.
    pub fn push(&mut self, entry: Entry<'_>) {
        let (key, value) = entry.encode(&mut self.bytes);
        self.places.push(EntryPlace { index: entry.index, op: entry.op, key, value });
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.places.iter().map(|EntryPlace { index, op, key, value }| Entry {
            index: *index,
            op: *op,
            key: &self.bytes[key.clone()],
            value: &self.bytes[value.clone()],
        })
    }

    /// Bytes of the encoded entries.
    pub fn encoded_len(&self) -> usize {
        self.bytes.len()
    }

    /// Memory that the list holds.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity() + self.places.capacity() * size_of::<EntryPlace>()
    }

    /// Appends the end of the logical half of a ROW record.
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.places.len() as u64);
        out.extend_from_slice(&self.bytes);
    }
}

/// The logical half of a ROW record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLogical<'a> {
    /// The table.
    pub table: TableId,
    /// The memtable generation the entries went to (B3).
    pub generation: Generation,
    /// The kind of the operation.
    pub kind: RowKind,
    /// The cell it replaced, if there was one.
    pub before: Option<Before<'a>>,
    /// Overflow chains that the new row adopts or supersedes (`overflow::edits`).
    pub chains: &'a [u8],
    /// Its index entries.
    pub entries: Vec<Entry<'a>>,
}

impl<'a> RowLogical<'a> {
    /// Appends the encoded part for the record of a change to `row`.
    pub fn encode(&self, row: &[u8], out: &mut Vec<u8>) {
        let mut entries = EntryList::default();
        self.entries.iter().for_each(|entry| entries.push(*entry));
        self.encode_with(&entries, row, out);
    }

    /// The same with entries that are encoded already, in the place of its own.
    pub fn encode_with(&self, entries: &EntryList, row: &[u8], out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.table.0));
        put_varint(out, self.generation.0);
        out.push(self.kind as u8);
        let chains = if self.chains.is_empty() { 0 } else { cell_flags::CHAINS };
        match &self.before {
            None => out.push(chains),
            Some(before) => {
                let shared = shared(before.row, row);
                let shares = if shared.is_some() { cell_flags::SHARED } else { 0 };
                out.push(before.flags | cell_flags::PRESENT | chains | shares);
                put_stamp(out, before.stamp);
                match shared {
                    None => put_bytes(out, before.row),
                    Some((begin, end)) => {
                        put_varint(out, begin as u64);
                        put_varint(out, end as u64);
                        put_bytes(out, &before.row[begin..before.row.len() - end]);
                    }
                }
            }
        }
        if chains != 0 {
            put_bytes(out, self.chains);
        }
        entries.encode(out);
    }

    /// Generation, and whether there are chains, without decoding the rest.
    /// # Errors: `BadEncoding`.
    pub fn head(logical: &[u8]) -> Result<(Generation, bool)> {
        let mut r = Reader::new(logical, "row record");
        r.varint32()?;
        let generation = Generation(r.varint()?);
        r.u8()?;
        Ok((generation, r.u8()? & cell_flags::CHAINS != 0))
    }

    /// Decodes the logical part of a change; `old` is memory for the row before.
    /// # Errors: `BadEncoding`; `NewerFormat` for an unknown kind, flag or op.
    pub fn decode(change: &LeafChange<'a>, old: &'a mut Vec<u8>) -> Result<RowLogical<'a>> {
        let mut r = Reader::new(change.logical, "row record");
        let table = TableId(r.varint32()?);
        let generation = Generation(r.varint()?);
        let kind = RowKind::read(&mut r)?;
        let flags = r.u8()?;
        r.known("before_flags", flags, known_before(flags))?;
        let before = if flags & cell_flags::PRESENT != 0 {
            let stamp = stamp(&mut r)?;
            let row = match flags & cell_flags::SHARED {
                0 => r.bytes()?,
                _ => {
                    row_before(&mut r, change.row, old)?;
                    old
                }
            };
            let logged = cell_flags::PRESENT | cell_flags::CHAINS | cell_flags::SHARED;
            Some(Before { flags: flags & !logged, stamp, row })
        } else {
            None
        };
        let chains = if flags & cell_flags::CHAINS != 0 { r.bytes()? } else { &[] };
        let count = r.varint()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let index = IndexId(r.varint32()?);
            let op = read_entry_op(&mut r)?;
            entries.push(Entry { index, op, key: r.bytes()?, value: r.bytes()? });
        }
        r.finish()?;
        Ok(RowLogical { table, generation, kind, before, chains, entries })
    }
}

/// The bits that these before flags may have: without a cell before there is none to describe.
fn known_before(flags: u8) -> u8 {
    if flags & cell_flags::PRESENT == 0 {
        return cell_flags::CHAINS;
    }
    cell_flags::PRESENT | cell_flags::CHAINS | cell_flags::SHARED | cell_flags::IN_LEAF
}

/// The lengths that a row shares with the one that replaces it, at its beginning and at its end, if
/// sharing is worth it.
fn shared(old: &[u8], new: &[u8]) -> Option<(usize, usize)> {
    let begin = common_prefix(old, new);
    let end = common_suffix(&old[begin..], &new[begin..]);
    (begin + end >= SHARED_BYTES_MIN).then_some((begin, end))
}

/// Length of the longest common suffix.
fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let words = a.rchunks_exact(WORD).zip(b.rchunks_exact(WORD));
    let end = words.take_while(|(x, y)| x == y).count() * WORD;
    let (a, b) = (&a[..a.len() - end], &b[..b.len() - end]);
    end + a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count()
}

fn row_before(r: &mut Reader<'_>, new: &[u8], old: &mut Vec<u8>) -> Result<()> {
    let (begin, end) = (r.varint()?, r.varint()?);
    let between = r.bytes()?;
    if begin.checked_add(end).is_none_or(|shared| shared > new.len() as u64) {
        return Err(r.bad("a row before shares more than there is"));
    }
    old.clear();
    old.extend_from_slice(&new[..begin as usize]);
    old.extend_from_slice(between);
    old.extend_from_slice(&new[new.len() - end as usize..]);
    Ok(())
}

/// Appends the logical part of a REVERT record: the operation that it undoes.
pub fn encode_revert(out: &mut Vec<u8>, reverted: Stamp) {
    put_stamp(out, reverted);
}

/// The operation that a REVERT record undoes. # Errors: `BadEncoding`.
pub fn decode_revert(logical: &[u8]) -> Result<Stamp> {
    let mut r = Reader::new(logical, "revert record");
    let reverted = stamp(&mut r)?;
    r.finish()?;
    Ok(reverted)
}

/// One page op of a PAGE record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOp<'a> {
    /// The page it changes.
    pub page: PageNo,
    /// Below 32: `pages` applies it; from 32 on: `tree` does.
    pub op: u8,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Appends a page op.
pub fn put_page_op(out: &mut Vec<u8>, op: PageOp<'_>) {
    put_varint(out, op.page.0);
    out.push(op.op);
    put_bytes(out, op.payload);
}

/// The page ops of a PAGE record. # Errors: `BadEncoding` in an item.
pub fn page_ops(body: &[u8]) -> impl Iterator<Item = Result<PageOp<'_>>> {
    let mut r = Reader::new(body, "page record");
    std::iter::from_fn(move || {
        if r.is_empty() {
            return None;
        }
        let mut next =
            || Ok(PageOp { page: PageNo(r.varint()?), op: r.u8()?, payload: r.bytes()? });
        let item: Result<PageOp<'_>> = next();
        if item.is_err() {
            r = Reader::new(&[], "page record");
        }
        Some(item)
    })
}

/// Appends the body of COMMIT, ABORT and END.
pub fn encode_txn(out: &mut Vec<u8>, txn: TxnId) {
    put_varint(out, txn.0);
}

/// The transaction of COMMIT, ABORT, END, PREPARE, and the xid of PREPARE. # Errors: `BadEncoding`.
pub fn decode_txn(body: &[u8]) -> Result<(TxnId, &[u8])> {
    let mut r = Reader::new(body, "transaction record");
    let txn = TxnId(r.varint()?);
    let xid = if r.is_empty() { &[][..] } else { r.bytes()? };
    r.finish()?;
    Ok((txn, xid))
}

/// Appends the body of PREPARE.
pub fn encode_prepare(out: &mut Vec<u8>, txn: TxnId, xid: &[u8]) {
    put_varint(out, txn.0);
    put_bytes(out, xid);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update_of(old: &[u8]) -> RowLogical<'_> {
        RowLogical {
            table: TableId(7),
            generation: Generation(3),
            kind: RowKind::Update,
            before: Some(Before { flags: 2, stamp: Stamp::default(), row: old }),
            chains: b"edits",
            entries: vec![Entry { index: IndexId(9), op: 5, key: b"k", value: b"" }],
        }
    }

    fn change_to<'a>(row: &'a [u8], logical: &'a [u8]) -> LeafChange<'a> {
        LeafChange {
            page: PageNo(300),
            tree: TreeId(2),
            flags: cell_flags::STAMPED,
            stamp: Stamp { txn: TxnId(8), undo_no: UndoNo(1) },
            key: b"key",
            row,
            logical,
        }
    }

    type Given = (u32, u8, Vec<u8>, Vec<u8>);

    /// Entries of lengths on both sides of a varint's first byte.
    fn given() -> impl proptest::strategy::Strategy<Value = Vec<Given>> {
        let bytes = || proptest::collection::vec(0u8..3, 0..200);
        let op = proptest::sample::select(
            &[entry_op::INS, entry_op::DEL, entry_op::INS | entry_op::FRESH][..],
        );
        proptest::collection::vec((0..u32::MAX, op, bytes(), bytes()), 0..5)
    }

    fn entry_of((index, op, key, value): &Given) -> Entry<'_> {
        Entry { index: IndexId(*index), op: *op, key, value }
    }

    #[test]
    fn row_record_round_trip() {
        let (long, longer) =
            (b"a row that did not change", b"a row that did, but not much, change");
        for (old, new) in [(&b"old"[..], &b"new"[..]), (long, longer), (longer, long), (long, long)]
        {
            let (logical, mut half, mut body) = (update_of(old), Vec::new(), Vec::new());
            logical.encode(new, &mut half);
            let mut whole = Vec::new();
            logical.encode(b"", &mut whole);
            assert_eq!(half.len() < whole.len(), old.len() > 3, "{old:?} {new:?}");
            let change = change_to(new, &half);
            let mut memory = Vec::new();
            assert_eq!(RowLogical::decode(&change, &mut memory).expect("decodes"), logical);
            change.encode(&mut body);
            assert_eq!(LeafChange::decode(&body).expect("decodes"), change);
            for cut in 0..half.len() {
                let cut = change_to(new, &half[..cut]);
                assert!(RowLogical::decode(&cut, &mut Vec::new()).is_err());
            }
            // A row for which it was not written.
            if old.len() > 3 {
                let other = change_to(&new[..15], &half);
                assert!(RowLogical::decode(&other, &mut Vec::new()).is_err());
            }
        }
    }

    proptest::proptest! {
        /// The list gives back what was added, and so does the record, also after `clear`.
        #[test]
        fn index_entries_round_trip_through_a_list_and_its_record(
            before in given(), entries in given(), row in proptest::collection::vec(0u8..3, 0..40),
        ) {
            let mut list = EntryList::default();
            before.iter().for_each(|entry| list.push(entry_of(entry)));
            list.clear();
            entries.iter().for_each(|entry| list.push(entry_of(entry)));
            let wanted: Vec<Entry<'_>> = entries.iter().map(entry_of).collect();
            proptest::prop_assert_eq!(list.iter().collect::<Vec<_>>(), wanted.clone());
            let (mut half, mut memory, mut alone) = (Vec::new(), Vec::new(), Vec::new());
            update_of(b"before").encode_with(&list, &row, &mut half);
            let logical = RowLogical { entries: wanted, ..update_of(b"before") };
            logical.encode(&row, &mut alone);
            proptest::prop_assert_eq!(&half, &alone);
            let count = half.len() - list.encoded_len();
            let none = RowLogical { entries: Vec::new(), ..logical.clone() };
            let mut without = Vec::new();
            none.encode(&row, &mut without);
            proptest::prop_assert!(count < without.len() + EntryList::COUNT_BYTES_MAX);
            let change = change_to(&row, &half);
            proptest::prop_assert_eq!(RowLogical::decode(&change, &mut memory).unwrap(), logical);
        }

        /// Whatever the two have in common, at whatever places.
        #[test]
        fn an_update_record_restores_the_previous_row(
            begin in proptest::collection::vec(0u8..2, 0..40),
            old in proptest::collection::vec(0u8..2, 0..40),
            new in proptest::collection::vec(0u8..2, 0..40),
            end in proptest::collection::vec(0u8..2, 0..40),
        ) {
            let (old, new) = ([&begin, &old, &end].map(|b| &b[..]), [&begin, &new, &end]);
            let (old, new) = (old.concat(), new.map(|b| &b[..]).concat());
            let (logical, mut half, mut memory) = (update_of(&old), Vec::new(), Vec::new());
            logical.encode(&new, &mut half);
            let change = change_to(&new, &half);
            let decoded = RowLogical::decode(&change, &mut memory);
            proptest::prop_assert_eq!(decoded.expect("decodes"), logical);
        }
    }
}
