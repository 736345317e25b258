//! Whole bytes of a newer version are refused as such. For each layout of `docs/format` this test
//! walks the documented fields. It sets every bit of a reserved field and every flag, kind, codec
//! and version that this version does not know, makes the checksum right again, and demands an
//! error of `Kind::Version` from the decoder. A documented field of which the test does not know
//! what it may hold fails it.

mod documented;

use documented::{name, table};
use evenkeel_base::{DatabaseId, Generation, IndexId, Kind, Lsn, PageNo, Result};
use evenkeel_base::{Stamp, TableId, TreeId, TxnId, UndoNo, crc32c};
use evenkeel_format::checkpoint_copy::CheckpointCopy;
use evenkeel_format::chunks;
use evenkeel_format::node::{self, InnerCell, LeafCell, NodeMut};
use evenkeel_format::overflow::OverflowPage;
use evenkeel_format::page::{self, PageHeader, PageKind, RawPage};
use evenkeel_format::record::{
    Before, Entry, LeafChange, RowKind, RowLogical, cell_flags, entry_op,
};
use evenkeel_format::run::{self, Envelope, EnvelopeId, EnvelopeKind, RunVersion, Trailer};
use evenkeel_format::space::{ExtentState, Geometry, encode_extent, op};
use evenkeel_format::superblock::{Features, Superblock, Timeline};
use evenkeel_format::tree_op::TreeOp;
use evenkeel_format::undo::{self, UndoRecord};
use evenkeel_format::wal::{self, BlockHeader, SegmentHeader};
use evenkeel_format::{ColumnType, RowColumn, RowLayout, Value, catalog, doublewrite, row_version};
use evenkeel_format::{Field, ValueRef, record::RecordKind, rows, warm};
use std::ops::Range;

const DB: DatabaseId = DatabaseId(0x1112_1314_1516_1718);

/// What a documented field may hold.
#[derive(Clone, Copy)]
enum Known<'a> {
    /// Any number, or another check tells.
    Any,
    /// Only these bits.
    Bits(u64),
    /// Only these values.
    Values(&'a [u64]),
}
use Known::{Any, Bits, Values};

impl Known<'_> {
    fn holds(self, value: u64) -> bool {
        match self {
            Any => true,
            Bits(bits) => value & !bits == 0,
            Values(values) => values.contains(&value),
        }
    }
}

/// Bytes of a documented structure, and what decodes them.
struct Sample<'a> {
    bytes: Vec<u8>,
    /// Where the structure begins in them.
    at: usize,
    /// Makes the checksum right.
    seal: &'a dyn Fn(&mut [u8]),
    decode: &'a dyn Fn(&[u8]) -> Result<()>,
}

impl Sample<'_> {
    /// The sample with some bytes changed must be refused as newer.
    fn refuses(&self, what: &str, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.bytes.clone();
        change(&mut bytes);
        (self.seal)(&mut bytes);
        let error = (self.decode)(&bytes).err().unwrap_or_else(|| panic!("{what}: taken"));
        assert_eq!(error.kind(), Kind::Version, "{what}: {error}");
    }

    fn refuses_any_bit_of(&self, what: &str, range: Range<usize>) {
        for at in range {
            for bit in 0..8 {
                let what = format!("{what}: bit {bit} of byte {at}");
                self.refuses(&what, |bytes| bytes[at] |= 1 << bit);
            }
        }
    }

    /// Walks the fields of a layout; `known` classes those that are not reserved.
    fn walk(&self, document: &str, structure: &str, known: &[(&str, Known<'_>)]) -> usize {
        (self.decode)(&self.bytes).unwrap_or_else(|e| panic!("{structure}: {e}"));
        let (mut refused, mut end) = (0, 0);
        for row in table(document, &format!("layout: {structure}")) {
            let number = |cell: &str| cell.parse::<usize>().expect("a number");
            let (offset, len, field) = (number(&row[0]), number(&row[1]), name(&row[2]));
            end = self.at + offset + len;
            let range = self.at + offset..end;
            let what = format!("{document}, {structure}, {field}");
            if ["reserved", "zero", "zero2", "unused"].contains(&field) {
                self.refuses_any_bit_of(&what, range);
                refused += len * 8;
                continue;
            }
            let class = known.iter().find(|(name, _)| *name == field);
            let (_, class) = class.unwrap_or_else(|| panic!("{what}: say what it may hold"));
            refused += self.walk_field(&what, range, *class);
        }
        println!("{document}, {structure}: {refused} changes refused");
        end
    }

    fn walk_field(&self, what: &str, range: Range<usize>, class: Known<'_>) -> usize {
        let le = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
        let present = le(&self.bytes[range.clone()]);
        let len = range.len();
        // All values of a byte; of a longer field each single bit flipped.
        let values: Vec<u64> = match len {
            _ if matches!(class, Any) => return 0,
            1 => (0..=255).collect(),
            _ => (0..len * 8).map(|bit| present ^ 1 << bit).collect(),
        };
        let mut refused = 0;
        for value in values.into_iter().filter(|value| !class.holds(*value)) {
            self.refuses(&format!("{what} = {value}"), |bytes| {
                bytes[range.clone()].copy_from_slice(&value.to_le_bytes()[..len]);
            });
            refused += 1;
        }
        assert!(refused > 0, "{what}: nothing is unknown");
        refused
    }
}

fn put_crc(bytes: &mut [u8], at: usize, crc: u32) {
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// As many names for fields that may hold any number.
fn any<'a>(names: &[&'a str]) -> Vec<(&'a str, Known<'a>)> {
    names.iter().map(|name| (*name, Any)).collect()
}

#[test]
fn superblocks_of_newer_versions_are_refused() {
    let slot = Superblock {
        version: 2,
        sequence: 5,
        database_id: DB,
        page_size: 8192,
        epoch: 3,
        clean: true,
        checkpoint: Lsn(900),
        redo: Lsn(480),
        catalog_root: PageNo(5),
        page_redo: Lsn(700),
        features: Features { compatible: 0x8001, ..Features::default() },
        timeline: Timeline { id: 7, parent: 5, fork: Lsn(400) },
    };
    let sample = Sample {
        bytes: slot.encode(),
        at: 0,
        seal: &|bytes| {
            let crc = crc32c(0, &bytes[12..]);
            put_crc(bytes, 8, crc);
        },
        decode: &|bytes| Superblock::decode(bytes).map(|slot| assert!(slot.is_some())),
    };
    let mut known = any(&["magic", "crc", "page size", "log epoch", "sequence", "database id"]);
    known.extend(any(&["checkpoint", "redo", "catalog root", "page redo"]));
    known.extend(any(&[
        "compatible features",
        "read-only features",
        "timeline",
        "parent timeline",
    ]));
    // An unknown bit of the others is for the caller, or kept.
    known.extend([("incompatible features", Bits(5)), ("fork", Any)]);
    for part in ["page version", "run version", "catalog version"] {
        known.push((part, Values(&[1])));
    }
    known.extend([("log version", Values(&[1, 2])), ("flags", Bits(1))]);
    // A slot of version 1 has no features: they are reserved bytes there.
    known.push(("superblock version", Values(&[1, 2])));
    let end = sample.walk("superblock.md", "superblock", &known);
    sample.refuses_any_bit_of("superblock, rest", end..4096);
    sample.refuses("the fields of version 2 in version 1", |bytes| bytes[12] = 1);
    let first = Superblock {
        version: 1,
        features: Features::default(),
        timeline: Timeline::default(),
        ..slot
    };
    let first = Sample { bytes: first.encode(), ..sample };
    (first.decode)(&first.bytes).expect("version 1");
    first.refuses_any_bit_of("superblock of version 1, rest", 80..4096);
}

#[test]
fn logs_of_newer_versions_are_refused() {
    let mut bytes = vec![0; wal::SEGMENT_HEADER];
    SegmentHeader { number: 7, first_block: 0x1000, blocks: 0x2000, database: DB }
        .encode(&mut bytes);
    let sample = Sample {
        bytes,
        at: 0,
        seal: &|bytes| {
            put_crc(bytes, 12, 0);
            let crc = DB.crc32c(bytes);
            put_crc(bytes, 12, crc);
        },
        decode: &|bytes| SegmentHeader::decode(bytes).map(|_| ()),
    };
    let mut known = any(&["magic", "crc", "number", "first block", "blocks", "database id"]);
    known.push(("version", Values(&[1, 2])));
    let end = sample.walk("wal.md", "segment", &known);
    sample.refuses_any_bit_of("segment, rest", end..wal::SEGMENT_HEADER);

    let mut bytes = vec![0xab; wal::BLOCK];
    let header = BlockHeader {
        epoch: 3,
        block: 9,
        durable: Lsn(80),
        data_len: 0,
        first_record: wal::NO_RECORD,
        flags: 0,
    };
    header.seal(&mut bytes, DB);
    let sample = Sample {
        bytes,
        at: 0,
        seal: &|bytes| {
            let crc = DB.crc32c(&bytes[4..]);
            put_crc(bytes, 0, crc);
        },
        decode: &|bytes| {
            BlockHeader::check_known(bytes, DB)?;
            assert!(BlockHeader::decode(bytes, DB).is_some());
            Ok(())
        },
    };
    let mut known = any(&["crc", "epoch", "block", "durable", "data len", "first record"]);
    known.push(("flags", Bits(1)));
    assert_eq!(sample.walk("wal.md", "block", &known), wal::BLOCK_HEADER);
    // A torn block is none, whatever its flags.
    let mut torn = sample.bytes.clone();
    torn[28] = 2;
    BlockHeader::check_known(&torn, DB).expect("not whole");

    let kinds: Vec<u64> = table("wal.md", "numbers: kinds")
        .iter()
        .map(|row| row[1].parse().expect("a number"))
        .collect();
    let mut bytes = wal::frame(RecordKind::Row, 2).to_vec();
    bytes.extend([0; 2]);
    let decode = |bytes: &[u8]| wal::split_record(bytes).map(|_| ());
    let sample = Sample { bytes, at: 0, seal: &|_| (), decode: &decode };
    sample.walk("wal.md", "frame", &[("length", Any), ("kind", Values(&kinds))]);
}

fn of_page(bytes: Vec<u8>, at: usize) -> Sample<'static> {
    Sample {
        bytes,
        at,
        seal: &|bytes| page::seal(bytes, DB),
        decode: &|bytes| {
            let page = RawPage(bytes).verify(page::page_no(bytes), DB)?;
            match page.header().kind {
                PageKind::Tree => node::check_page(page.payload()),
                _ => Ok(()),
            }
        },
    }
}

fn sealed(kind: PageKind, page_no: PageNo, fill: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let header = PageHeader { kind, page_no, lsn: Lsn(50), tree: TreeId(6), incarnation: 7 };
    page::format(&mut bytes, &header);
    fill(&mut bytes[page::HEADER_BYTES..]);
    page::seal(&mut bytes, DB);
    bytes
}

#[test]
fn page_heads_and_maps_of_newer_versions_are_refused() {
    let sample = of_page(sealed(PageKind::Tree, PageNo(5), |_| ()), 0);
    let mut known = any(&["crc", "page", "lsn", "tree", "incarnation"]);
    known.extend([("version", Values(&[1])), ("kind", Values(&[1, 2, 3]))]);
    assert_eq!(sample.walk("page.md", "page", &known), page::HEADER_BYTES);

    let geometry = Geometry::new(4096).expect("a size");
    let payload = page::HEADER_BYTES;
    for (segment, reserved) in [(0, 4), (1, 0)] {
        let (page_no, mut bytes) = geometry.new_segment(segment).swap_remove(0);
        let extent = encode_extent(1, ExtentState::Tree, TreeId(8), 3);
        geometry.apply(op::EXTENT, &extent, page_no, &mut bytes).expect("applies");
        page::seal(&mut bytes, DB);
        let second = payload + 16 + 12 + 256 / 8;
        let sample = of_page(bytes, second);
        let known = [("tree", Any), ("incarnation", Any), ("state", Values(&[0, 1, 2]))];
        sample.walk("page.md", "descriptor", &known);
        sample.refuses_any_bit_of("map page, reserved", payload + reserved..payload + 16);
        let behind = payload + 16 + geometry.map_slots() as usize * (12 + 256 / 8);
        sample.refuses_any_bit_of("map page, rest", behind..4096);
    }
    let sample = of_page(sealed(PageKind::Owners, PageNo(256), |_| ()), payload);
    (sample.decode)(&sample.bytes).expect("known");
    sample.refuses_any_bit_of("owners page, rest", payload + 4 * 256..4096);
}

const STAMP: Stamp = Stamp { txn: TxnId(0x0102_0304), undo_no: UndoNo(0x1112) };

#[test]
fn nodes_of_newer_versions_are_refused() {
    let at = page::HEADER_BYTES;
    let names = ["level", "slots", "dead cells", "cells start", "holes", "low fence", "high fence"];
    let mut known = any(&names);
    known.extend([("prefix", Any), ("kind", Values(&[0, 1, 2, 3])), ("flags", Bits(3))]);
    let leaf = sealed(PageKind::Tree, PageNo(5), |payload| {
        let mut leaf = NodeMut::format(payload, 0, b"a", None).expect("fits");
        let cell = LeafCell { flags: cell_flags::STAMPED, stamp: STAMP, row: b"row" };
        (0..3u8).for_each(|i| assert!(leaf.insert_leaf(usize::from(i), &[b'a', i], &cell)));
    });
    let inner = sealed(PageKind::Tree, PageNo(5), |payload| {
        let mut inner = NodeMut::format(payload, 2, b"a", Some(b"c")).expect("fits");
        let cell = InnerCell { child: PageNo(7), dead_since: None };
        assert!(inner.insert_inner(0, b"a", &cell) && inner.insert_inner(1, b"b", &cell));
    });
    let documented = table("page.md", "numbers: cell flags");
    let of_leaf = documented.iter().map(|row| row[1].parse::<u8>().expect("a number"));
    for (page, cells) in [(leaf, of_leaf.fold(0, |all, flag| all | flag)), (inner, 1)] {
        let sample = of_page(page, at);
        sample.walk("page.md", "node", &known);
        let node = node::Node::parse(&sample.bytes[at..]).expect("a node");
        node.check().expect("whole");
        let image = image_of(&sample.bytes[at..]);
        TreeOp::decode(32, &image).expect("known");
        for slot in 0..node.count() {
            let place = at + 20 + slot * 8 + 4;
            let offset = u16::from_le_bytes([sample.bytes[place], sample.bytes[place + 1]]);
            for bit in (0..8).filter(|bit| cells & 1 << bit == 0) {
                let what = format!("flag {} of cell {slot}", 1 << bit);
                sample.refuses(&what, |bytes| bytes[at + usize::from(offset)] |= 1 << bit);
                let mut payload = sample.bytes[at..].to_vec();
                payload[usize::from(offset)] |= 1 << bit;
                let error = TreeOp::decode(32, &image_of(&payload)).expect_err(&what);
                assert_eq!(error.kind(), Kind::Version, "{what} in an image: {error}");
            }
        }
    }
    let owner = STAMP;
    let overflow = sealed(PageKind::Tree, PageNo(5), |payload| {
        let mut bytes = Vec::new();
        OverflowPage { next: None, owner, position: 1, data: b"data" }.encode(&mut bytes);
        payload[..bytes.len()].copy_from_slice(&bytes);
    });
    let mut known = any(&["length", "next", "owner transaction", "owner operation", "position"]);
    known.push(("kind", Values(&[0, 1, 2, 3])));
    let sample = of_page(overflow, at);
    sample.walk("page.md", "overflow", &known);
    // The same bytes come from the log.
    let payload = Sample {
        bytes: sample.bytes[at..].to_vec(),
        at: 0,
        seal: &|_| (),
        decode: &|bytes| OverflowPage::parse(bytes).map(|_| ()),
    };
    payload.refuses_any_bit_of("overflow page", 1..4);
}

/// The payload of a page op that writes this node whole.
fn image_of(payload: &[u8]) -> Vec<u8> {
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([payload[at], payload[at + 1]]));
    [&payload[..20 + 8 * u16_at(4)], &payload[u16_at(8)..]].concat()
}

#[test]
fn doublewrite_heads_of_newer_versions_are_refused() {
    let mut bytes = vec![0; doublewrite::HEAD_BYTES];
    let pages = [Some(PageNo(5)), None, Some(PageNo(9))];
    doublewrite::encode_head(4096, pages.into_iter(), DB, &mut bytes);
    let sample = Sample {
        bytes,
        at: 0,
        seal: &|bytes| {
            let crc = DB.crc32c(&bytes[8..]);
            put_crc(bytes, 4, crc);
        },
        decode: &|bytes| {
            let head = doublewrite::decode_head(bytes, 4096, DB)?;
            assert_eq!(head.expect("whole"), pages);
            Ok(())
        },
    };
    let end = sample.walk("page.md", "doublewrite", &any(&["magic", "crc", "page size", "count"]));
    let behind = end + 8 * pages.len();
    sample.refuses_any_bit_of("doublewrite head, rest", behind..doublewrite::HEAD_BYTES);
}

#[test]
fn run_files_of_newer_versions_are_refused() {
    let trailer = Trailer { file: 3, footer_position: 4096, footer_len: 70 };
    let sample = Sample {
        bytes: trailer.encode(DB).to_vec(),
        at: 0,
        seal: &|bytes| {
            let crc = crc32c(DB.crc32c(&bytes[..12]), &bytes[16..]);
            put_crc(bytes, 12, crc);
        },
        decode: &|bytes| Trailer::decode(bytes, 3, DB).map(|_| ()),
    };
    let mut known = any(&["magic", "crc", "file", "footer position", "footer length"]);
    known.push(("version", Values(&[1])));
    assert_eq!(sample.walk("run.md", "trailer", &known), Trailer::LEN);

    let (kind, index, number) = (EnvelopeKind::Data, IndexId(5), 6);
    let id = EnvelopeId { database: DB, kind, file: 3, position: 512, index, number };
    let envelope = Envelope { is_lz4: true, has_pending: false, raw_len: 9, stored: b"stored" };
    let mut bytes = run::seal(id, &envelope).to_vec();
    bytes.extend(b"stored");
    let sample = Sample {
        bytes,
        at: 0,
        seal: &|bytes| {
            let crc = crc32c(DB.crc32c(&id.position.to_le_bytes()), &bytes[4..]);
            put_crc(bytes, 0, crc);
        },
        decode: &|bytes| run::open(id, bytes).map(|_| ()),
    };
    let mut known = any(&["crc", "stored length", "raw length", "index", "number", "file"]);
    known.extend([("kind", Values(&[1, 2, 3, 4])), ("codec", Values(&[0, 1]))]);
    known.push(("flags", Bits(1)));
    assert_eq!(sample.walk("run.md", "envelope", &known), run::ENVELOPE);

    // The head of a filter, which has no table: hash, probes, zero.
    let filter = run::FilterBuilder::default().finish();
    for (at, known) in [(0, 1u8), (1, 6), (2, 0), (3, 0)] {
        for value in (0..=255u8).filter(|value| *value != known) {
            let mut bytes = filter.clone();
            bytes[at] = value;
            let error = run::Filter::decode(bytes.into()).expect_err("is refused");
            assert_eq!(error.kind(), Kind::Version, "byte {at} = {value}: {error}");
        }
    }
}

#[test]
fn run_entries_and_edits_of_newer_versions_are_refused() {
    let documented: Vec<u8> = table("run.md", "numbers: entry flags")
        .iter()
        .map(|row| row[1].parse().expect("a number"))
        .collect();
    let all = documented.iter().fold(0, |all, flag| all | flag);
    let mut taken = 0;
    for flags in 0..=255u8 {
        let mut builder = run::BlockBuilder::new(Lsn(5));
        builder.push(b"keypk", 2, entry_op::INS, RunVersion::Committed(Lsn::ZERO), b"");
        let mut raw = builder.finish().to_vec();
        // Flags, and what the longest entry needs behind its key.
        raw.splice(8 + 4..8 + 4, []);
        raw[8] = flags;
        let end = raw.len() - 8;
        raw.splice(end..end, [0; 4]);
        let block = run::DataBlock::parse(raw).expect("a block");
        let (op, version) = (flags & 7, flags & (8 | 16));
        let is_known = flags & !all == 0 && [1, 2, 5].contains(&op) && version != 8 | 16;
        match block.decode(block.start(), &mut Vec::new(), 0) {
            Ok(_) => taken += usize::from(is_known),
            Err(error) => assert_eq!(error.kind() == Kind::Version, !is_known, "{flags}: {error}"),
        }
        assert!(is_known || block.decode(block.start(), &mut Vec::new(), 0).is_err(), "{flags}");
    }
    assert!(taken > 0);
    let edits: Vec<u8> = table("run.md", "numbers: edits")
        .iter()
        .map(|row| row[1].parse().expect("a number"))
        .collect();
    for edit in (0..=255u8).filter(|edit| !edits.contains(edit)) {
        let error = run::decode_manifest(&[edit, 1, 1, 1, 1, 1]).expect_err("is refused");
        assert_eq!(error.kind(), Kind::Version, "edit {edit}: {error}");
    }
}

#[test]
fn undo_of_newer_versions_is_refused() {
    let sample = Sample {
        bytes: undo::segment_header(7, DB).to_vec(),
        at: 0,
        seal: &|bytes| {
            let crc = DB.crc32c(&bytes[..28]);
            put_crc(bytes, 28, crc);
        },
        decode: &|bytes| undo::check_segment_header(bytes, 7, DB),
    };
    let known = [("magic", Any), ("version", Values(&[1])), ("segment", Any), ("crc", Any)];
    assert_eq!(sample.walk("undo.md", "undo segment", &known), undo::SEGMENT_HEADER_LEN);

    for before in [None, Some(Before { flags: 2, stamp: STAMP, row: b"old" })] {
        let is_present = before.is_some();
        let (undo_no, kind, tree) = (UndoNo(1), RowKind::Update, TreeId(3));
        let mut bytes = Vec::new();
        UndoRecord { undo_no, kind, tree, key: b"key", before }.encode(&mut bytes);
        let decode = |bytes: &[u8]| undo::records(bytes).next().expect("one").map(|_| ());
        decode(&bytes).expect("known");
        let sample = Sample { bytes, at: 0, seal: &|_| (), decode: &decode };
        sample.walk_field("kind of undo", 2..3, Values(&[1, 2, 3]));
        // Without the version before nothing else may be said of it.
        let known = if is_present { 0x4f } else { 0x40 };
        for bit in (0..8).filter(|bit| known & 1 << bit == 0) {
            sample.refuses(&format!("before flag {}", 1 << bit), |bytes| bytes[3] |= 1 << bit);
        }
    }
}

#[test]
fn row_records_of_newer_versions_are_refused() {
    let entries = vec![Entry { index: IndexId(4), op: entry_op::INS, key: b"k", value: b"" }];
    let entries_at = |logical: &[u8]| logical.len() - 4;
    for before in [None, Some(Before { flags: 2, stamp: STAMP, row: b"old" })] {
        let is_present = before.is_some();
        let logical = RowLogical {
            table: TableId(5),
            generation: Generation(1),
            kind: RowKind::Update,
            before,
            chains: &[],
            entries: entries.clone(),
        };
        let mut half = Vec::new();
        logical.encode(b"new", &mut half);
        let (page, tree) = (PageNo(8), TreeId(2));
        let decode = |half: &[u8]| {
            let change = LeafChange {
                page,
                tree,
                flags: 2,
                stamp: STAMP,
                key: b"k",
                row: b"new",
                logical: half,
            };
            RowLogical::decode(&change, &mut Vec::new()).map(|_| ())
        };
        decode(&half).expect("known");
        let op_at = entries_at(&half);
        let sample = Sample { bytes: half, at: 0, seal: &|_| (), decode: &decode };
        sample.walk_field("kind of row record", 2..3, Values(&[1, 2, 3]));
        sample.walk_field("op of an entry", op_at..op_at + 1, Values(&[1, 2, 5]));
        let known = if is_present { 0x7f } else { 0x60 };
        for bit in (0..8).filter(|bit| known & 1 << bit == 0) {
            sample.refuses(&format!("before flag {}", 1 << bit), |bytes| bytes[3] |= 1 << bit);
        }
        let mut body = Vec::new();
        LeafChange { page, tree, flags: 2, stamp: STAMP, key: b"k", row: b"new", logical: b"" }
            .encode(&mut body);
        let decode = |body: &[u8]| LeafChange::decode(body).map(|_| ());
        let sample = Sample { bytes: body, at: 0, seal: &|_| (), decode: &decode };
        sample.walk_field("flags of a leaf change", 2..3, Bits(0x8f));
    }
    let mut body = Vec::new();
    let place = rows::RowsPlace { page: PageNo(3), tree: TreeId(2) };
    let head = rows::RowsHead {
        first: Stamp { txn: TxnId(1), undo_no: UndoNo(1) },
        table: TableId(7),
        generation: Generation(3),
        entries: &[(IndexId(9), 1)],
    };
    rows::begin_rows(&mut body, place, &head);
    let op_at = body.len() - 1;
    let decode = |body: &[u8]| rows::each_row(RecordKind::Rows, body, &mut |_, _| Ok(()));
    let sample = Sample { bytes: body, at: 0, seal: &|_| (), decode: &decode };
    sample.walk_field("op of an entry of ROWS", op_at..op_at + 1, Values(&[1, 2, 5]));
}

#[test]
fn page_ops_of_newer_versions_are_refused() {
    let geometry = Geometry::new(4096).expect("a size");
    let (page_no, image) = geometry.new_segment(0).swap_remove(0);
    for number in (6..32).chain(43..=255) {
        let error = match number {
            ..32 => geometry.apply(number, &[0; 4], page_no, &mut image.clone()).err(),
            _ => TreeOp::decode(number, &[0; 4]).err(),
        };
        let error = error.unwrap_or_else(|| panic!("op {number}: taken"));
        assert_eq!(error.kind(), Kind::Version, "op {number}: {error}");
    }
    for value in 2..=255 {
        let error = TreeOp::decode(39, &[value]).expect_err("is refused");
        assert_eq!(error.kind(), Kind::Version, "mark dead {value}: {error}");
        let used = [5, 0, 1, 0, value];
        let error = geometry.apply(op::USED, &used, page_no, &mut image.clone()).expect_err("used");
        assert_eq!(error.kind(), Kind::Version, "used {value}: {error}");
    }
}

/// Bodies of the catalog: a name, bytes, and their decoder.
type Body = (&'static str, Vec<u8>, fn(&[u8]) -> Result<()>);

fn bodies() -> [Body; 10] {
    let parts = vec![catalog::PartEntry::whole(3, true)];
    let mut bytes = [const { Vec::new() }; 10];
    let [table, column, index, counter, statistics, foreign, foreign_column, rest @ ..] =
        &mut bytes;
    let [foreign_parent, chunking, chunk] = rest;
    let primary = parts.clone();
    let entry = catalog::TableEntry {
        tree: TreeId(5),
        root: PageNo(9),
        hidden_key: false,
        row_version: 2,
        next_column: 9,
        auto_increment: None,
        primary,
    };
    entry.encode(table);
    let entry = catalog::ColumnEntry {
        position: 4,
        ty: ColumnType::Text { max: 9 },
        nullable: true,
        default: Some(Value::Null),
        added_in: 1,
        dropped_in: 0,
    };
    entry.encode(column).expect("encodes");
    let state = catalog::IndexState::Checking;
    catalog::IndexEntry { unique: true, primary: false, state, parts }.encode(index);
    catalog::encode_counter(7, counter);
    catalog::StatisticsEntry { rows: 5, distinct: vec![1] }.encode(statistics);
    let (on_delete, on_update) = (catalog::ReferenceAction::Restrict, Default::default());
    let parent = TableId(5);
    catalog::ForeignKeyEntry { parent, on_delete, on_update, columns: 2 }.encode(foreign);
    catalog::ForeignKeyColumnEntry { column: 4, parent_column: 6 }.encode(foreign_column);
    catalog::ForeignKeyParentEntry.encode(foreign_parent);
    let unit = chunks::TimeUnit::Seconds;
    let (time, width, from, to, space, slots, retain) = (3, 60, -1, 1, Some(0), 2, 7);
    chunks::ChunkingEntry { time, unit, width, from, to, space, slots, retain }.encode(chunking);
    let indexes = vec![(IndexId(16), IndexId(19))];
    chunks::ChunkEntry { root: PageNo(9), lo: -1, hi: 1, slot: 1, indexes }.encode(chunk);
    let [table, column, index, counter, statistics, foreign, foreign_column, rest @ ..] = bytes;
    let [foreign_parent, chunking, chunk] = rest;
    [
        ("table", table, |b| catalog::TableEntry::decode(b).map(|_| ())),
        ("column", column, |b| catalog::ColumnEntry::decode(b).map(|_| ())),
        ("index", index, |b| catalog::IndexEntry::decode(b).map(|_| ())),
        ("counter", counter, |b| catalog::decode_counter(b).map(|_| ())),
        ("statistics", statistics, |b| catalog::StatisticsEntry::decode(b).map(|_| ())),
        ("foreign key", foreign, |b| catalog::ForeignKeyEntry::decode(b).map(|_| ())),
        ("foreign key column", foreign_column, |b| {
            catalog::ForeignKeyColumnEntry::decode(b).map(|_| ())
        }),
        ("foreign key parent", foreign_parent, |b| {
            catalog::ForeignKeyParentEntry::decode(b).map(|_| ())
        }),
        ("chunking", chunking, |b| chunks::ChunkingEntry::decode(b).map(|_| ())),
        ("chunk", chunk, |b| chunks::ChunkEntry::decode(b).map(|_| ())),
    ]
}

#[test]
fn catalog_bodies_of_newer_versions_are_refused() {
    let types: Vec<u64> = table("row.md", "numbers: types")
        .iter()
        .map(|row| row[1].parse().expect("a code"))
        .collect();
    for (name, bytes, decode) in bodies() {
        decode(&bytes).expect("known");
        // The flags of the only key part are the last byte.
        let last = bytes.len() - 1;
        let (layouts, fields): (&[u8], &[_]) = match name {
            "table" => (&[1, 2], &[("flags", 3, Bits(1)), ("part flags", last, Bits(7))]),
            "column" => (&[1], &[("type", 2, Values(&types)), ("flags", 5, Bits(3))]),
            "index" => (
                &[1, 2],
                &[
                    ("flags", 1, Bits(3)),
                    ("state", 2, Values(&[0, 1, 2])),
                    ("part flags", last, Bits(7)),
                ],
            ),
            "foreign key" => {
                let actions = Values(&[0, 1, 2, 3]);
                (&[1], &[("on delete", 2, actions), ("on update", 3, actions)])
            }
            "chunking" => (&[1], &[("unit", 2, Values(&[0, 1, 2, 3, 4, 5, 6, 7]))]),
            _ => (&[1], &[]),
        };
        let sample = Sample { bytes, at: 0, seal: &|_| (), decode: &decode };
        // A layout is a varint; here of one byte.
        for layout in (0..128).filter(|layout| !layouts.contains(layout)) {
            sample.refuses(&format!("{name}: layout {layout}"), |bytes| bytes[0] = layout);
        }
        for (field, at, known) in fields {
            sample.walk_field(&format!("{name}: {field}"), *at..*at + 1, *known);
        }
    }
}

#[test]
fn rows_and_hot_pages_of_newer_versions_are_refused() {
    let column = RowColumn { id: 1, ty: ColumnType::Text { max: 9 }, nullable: false };
    let layout = RowLayout::new(3, vec![column]);
    let mut row = Vec::new();
    layout.encode(|_| Field::Value(ValueRef::Text("text")), &mut row).expect("encodes");
    let decode = |row: &[u8]| {
        let both = (row_version(row).map(|_| ()), layout.read(row).map(|_| ()));
        assert_eq!(both.0.is_err(), both.1.is_err());
        both.1
    };
    let sample = Sample { bytes: row, at: 0, seal: &|_| (), decode: &decode };
    for bit in 3..8 {
        sample.refuses(&format!("row flag {}", 1 << bit), |row| row[0] |= 1 << bit);
    }
    let sample = Sample {
        bytes: warm::encode(&[PageNo(5)], DB),
        at: 0,
        seal: &|bytes| {
            let crc = crc32c(crc32c(DB.crc32c(&bytes[..12]), &[0; 4]), &bytes[16..]);
            put_crc(bytes, 12, crc);
        },
        decode: &|bytes| warm::decode(bytes, DB).map(|_| ()),
    };
    let known = [("magic", Any), ("version", Values(&[1])), ("crc", Any), ("pages", Any)];
    sample.walk("warm.md", "warm", &known);
}

#[test]
fn checkpoint_copies_of_newer_versions_are_refused() {
    let copy = CheckpointCopy { checkpoint: Lsn(900), first_block: 1, blocks: vec![7; 1024] };
    let sample = Sample {
        bytes: copy.encode(DB),
        at: 0,
        seal: &|bytes| {
            let crc = crc32c(crc32c(DB.crc32c(&bytes[..12]), &[0; 4]), &bytes[16..]);
            put_crc(bytes, 12, crc);
        },
        decode: &|bytes| CheckpointCopy::decode(bytes, DB).map(|copy| assert!(copy.is_some())),
    };
    let mut known = any(&["magic", "crc", "checkpoint", "first block", "blocks", "database id"]);
    known.push(("version", Values(&[1])));
    let end = sample.walk("superblock.md", "checkpoint copy", &known);
    assert_eq!(end, 512, "the blocks follow");
}

#[test]
#[ignore = "prints times"]
fn the_check_of_a_page_beside_its_checksum() {
    for row in [&[7; 20][..], &[7; 100]] {
        let mut rows = 0u16;
        let page = sealed(PageKind::Tree, PageNo(5), |payload| {
            let mut leaf = NodeMut::format(payload, 0, b"a", None).expect("fits");
            let cell = LeafCell { flags: cell_flags::STAMPED, stamp: STAMP, row };
            let key = |i: u16| [&b"a"[..], &i.to_be_bytes()].concat();
            while leaf.insert_leaf(usize::from(rows), &key(rows), &cell) {
                rows += 1;
            }
        });
        let times = 200_000u32;
        let time = |f: &dyn Fn()| {
            let begun = std::time::Instant::now();
            (0..times).for_each(|_| f());
            begun.elapsed().as_nanos() / u128::from(times)
        };
        let page = std::hint::black_box(&page);
        let verify = time(&|| {
            std::hint::black_box(RawPage(page).verify(PageNo(5), DB).expect("whole"));
        });
        let payload = &page[page::HEADER_BYTES..];
        let check = time(&|| node::check_page(std::hint::black_box(payload)).expect("known"));
        println!("{rows} rows: verify {verify} ns, check of the payload {check} ns");
    }
}
