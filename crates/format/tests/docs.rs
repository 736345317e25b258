//! The pages of `docs/format` against the code. A table behind `<!-- layout: NAME -->` must
//! describe without gaps the bytes that the encoder of that structure writes: every field is read
//! from them at the documented place and compared. Behind `<!-- numbers: NAME -->` each number must
//! be the constant it names. Both fail when either side changes alone.

use evenkeel_base::{DatabaseId, IndexId, Lsn, PageNo, Stamp, TreeId, TxnId, UndoNo, crc32c};
use evenkeel_format::catalog::entry_kind;
use evenkeel_format::checkpoint_copy::{self, CheckpointCopy};
use evenkeel_format::node::{self, InnerCell, NodeMut};
use evenkeel_format::overflow::{self, OverflowPage, OverflowRef};
use evenkeel_format::page::{self, PageHeader, PageKind};
use evenkeel_format::record::{RecordKind, cell_flags, entry_op};
use evenkeel_format::run::{self, Envelope, EnvelopeId, EnvelopeKind, Trailer};
use evenkeel_format::space::{self, ExtentState, Geometry, op};
use evenkeel_format::superblock::{self, Features, Superblock, Timeline};
use evenkeel_format::undo::{self, FrameId};
use evenkeel_format::wal::{self, BlockHeader, SegmentHeader};
use evenkeel_format::warm;
use evenkeel_format::{ColumnType, run::ManifestOp, run::encode_manifest};
use std::collections::BTreeSet;

mod documented;
use documented::{name, table};

/// Reads the documented fields from `bytes`, which may continue behind the last of them.
fn layout(page: &str, structure: &str, bytes: &[u8], expected: &[(&str, u64)]) {
    let (mut end, mut fields) = (0, Vec::new());
    for row in table(page, &format!("layout: {structure}")) {
        let (offset, size): (usize, usize) =
            (row[0].parse().expect("offset"), row[1].parse().expect("bytes"));
        let field = name(&row[2]);
        assert_eq!(offset, end, "{page}, {structure}: {field} leaves a gap or overlaps");
        end = offset + size;
        // Longer fields hold small numbers here.
        let number = bytes[offset..end].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        fields.push((field.to_string(), number));
    }
    let expected: Vec<_> = expected.iter().map(|(f, n)| ((*f).to_string(), *n)).collect();
    assert_eq!(fields, expected, "{page}, {structure}: documented, written");
}

fn numbers(page: &str, what: &str, expected: &[(&str, u64)]) {
    let rows = table(page, &format!("numbers: {what}"));
    let found: Vec<(&str, u64)> =
        rows.iter().map(|r| (name(&r[0]), r[1].parse().expect("a number"))).collect();
    assert_eq!(found, expected, "{page}, {what}: documented, in the code");
}

fn text(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

const DB: DatabaseId = DatabaseId(0x1112_1314_1516_1718);
/// The first bytes that every checksum covers, except the superblock's.
const ID: [u8; 8] = DB.0.to_le_bytes();

fn crc(pieces: &[&[u8]]) -> u64 {
    u64::from(pieces.iter().fold(0, |crc, piece| crc32c(crc, piece)))
}

#[test]
fn superblocks_decode_as_documented() {
    let slot = Superblock {
        version: superblock::SUPERBLOCK_VERSION,
        sequence: 0x0102_0304_0506_0708,
        database_id: DB,
        page_size: 8192,
        epoch: 0x2122_2324,
        clean: true,
        checkpoint: Lsn(0x3132_3334),
        redo: Lsn(0x4142_4344),
        catalog_root: PageNo(0x5152_5354),
        page_redo: Lsn(0x6162_6364),
        features: Features { compatible: 0x71, read_only: 0x81, incompatible: 0 },
        timeline: Timeline { id: 0x9192, parent: 0xa1a2, fork: Lsn(0xb1b2_b3b4) },
    };
    let bytes = slot.encode();
    assert_eq!(bytes.len(), 4096);
    let fields = [
        ("magic", text(b"EVENKEEL")),
        ("crc", crc(&[&bytes[12..]])),
        ("superblock version", superblock::SUPERBLOCK_VERSION.into()),
        ("page version", superblock::PAGE_VERSION.into()),
        ("log version", superblock::LOG_VERSION.into()),
        ("run version", superblock::RUN_VERSION.into()),
        ("catalog version", superblock::CATALOG_VERSION.into()),
        ("flags", 1),
        ("page size", 8192),
        ("log epoch", slot.epoch.into()),
        ("sequence", slot.sequence),
        ("database id", DB.0),
        ("checkpoint", slot.checkpoint.0),
        ("redo", slot.redo.0),
        ("catalog root", slot.catalog_root.0),
        ("page redo", slot.page_redo.0),
        ("compatible features", 0x71),
        ("read-only features", 0x81),
        ("incompatible features", 0),
        ("timeline", 0x9192),
        ("parent timeline", 0xa1a2),
        ("fork", 0xb1b2_b3b4),
    ];
    layout("superblock.md", "superblock", &bytes, &fields);
}

#[test]
fn checkpoint_copies_decode_as_documented() {
    numbers("superblock.md", "checkpoint copy", &[("blocks", checkpoint_copy::BLOCKS_MAX)]);
    let blocks = vec![9; 2 * wal::BLOCK];
    let copy = CheckpointCopy { checkpoint: Lsn(0x3132), first_block: 0x21, blocks };
    let bytes = copy.encode(DB);
    let fields = [
        ("magic", text(b"EVKNCKPT")),
        ("version", checkpoint_copy::CHECKPOINT_COPY_VERSION.into()),
        ("crc", crc(&[&ID, &bytes[..12], &[0; 4], &bytes[16..]])),
        ("checkpoint", 0x3132),
        ("first block", 0x21),
        ("blocks", 2),
        ("database id", DB.0),
        ("reserved", 0),
    ];
    layout("superblock.md", "checkpoint copy", &bytes, &fields);
    assert_eq!(bytes[512..], [9; 1024]);
}

#[test]
fn hot_page_lists_decode_as_documented() {
    numbers("warm.md", "warm", &[("pages", warm::PAGES_MAX as u64)]);
    let bytes = warm::encode(&[PageNo(5), PageNo(5 + 300)], DB);
    let fields = [
        ("magic", text(b"EVKNWARM")),
        ("version", warm::WARM_VERSION.into()),
        ("crc", crc(&[&ID, &bytes[..12], &[0; 4], &bytes[16..]])),
        ("pages", 2),
    ];
    layout("warm.md", "warm", &bytes, &fields);
    // 300 is 0b10_0101100.
    assert_eq!(bytes[warm::HEADER_BYTES..], [5, 0x80 | 0b010_1100, 0b10]);
}

#[test]
fn logs_decode_as_documented() {
    let constants = [
        ("block", wal::BLOCK as u64),
        ("block header", wal::BLOCK_HEADER as u64),
        ("payload", wal::PAYLOAD as u64),
        ("segment header", wal::SEGMENT_HEADER as u64),
        ("blocks align", wal::BLOCKS_ALIGN),
        ("frame", wal::FRAME as u64),
        ("record body", wal::RECORD_BYTES_MAX as u64),
    ];
    numbers("wal.md", "wal", &constants);
    let mut bytes = vec![0; wal::SEGMENT_HEADER];
    let header =
        SegmentHeader { number: 0x0102_0304, first_block: 0x1000, blocks: 0x2000, database: DB };
    header.encode(&mut bytes);
    let fields = [
        ("magic", text(b"EVKNWAL\0")),
        ("version", wal::WAL_VERSION.into()),
        ("crc", crc(&[&ID, &bytes[..12], &[0; 4], &bytes[16..]])),
        ("number", header.number),
        ("first block", header.first_block),
        ("blocks", header.blocks),
        ("database id", DB.0),
    ];
    layout("wal.md", "segment", &bytes, &fields);
    let header = BlockHeader {
        epoch: 0x0102_0304,
        block: 0x1112_1314,
        durable: Lsn(0x2122_2324),
        data_len: 0x0132,
        first_record: 0x0041,
        flags: 1,
    };
    let mut bytes = vec![0xab; wal::BLOCK];
    header.seal(&mut bytes, DB);
    let fields = [
        ("crc", crc(&[&ID, &bytes[4..]])),
        ("epoch", header.epoch.into()),
        ("block", header.block),
        ("durable", header.durable.0),
        ("data len", header.data_len.into()),
        ("first record", header.first_record.into()),
        ("flags", header.flags.into()),
        ("zero", 0),
    ];
    layout("wal.md", "block", &bytes, &fields);
    let frame = wal::frame(RecordKind::Row, 0x0102_0304);
    let kind = u64::from(RecordKind::Row as u8);
    layout("wal.md", "frame", &frame, &[("length", 0x0102_0304), ("kind", kind)]);
    let kinds = table("wal.md", "numbers: kinds");
    for row in &kinds {
        let value = row[1].parse().expect("a number");
        let kind = RecordKind::from_u8(value).expect("a documented kind exists");
        assert_eq!(name(&row[0]), format!("{kind:?}"));
    }
    assert_eq!(kinds.len(), (0..=u8::MAX).filter_map(RecordKind::from_u8).count());
}

#[test]
fn pages_decode_as_documented() {
    let constants = [
        ("header", page::HEADER_BYTES as u64),
        ("segment", space::SEGMENT_BYTES),
        ("extent", space::EXTENT_BYTES),
        ("node header", node::HEADER_BYTES as u64),
        ("slot", node::SLOT_BYTES as u64),
        ("overflow header", overflow::OVERFLOW_HEADER_BYTES as u64),
        ("overflow reference", overflow::OVERFLOW_REF_BYTES as u64),
        ("tree fragments", space::TREE_FRAGMENTS as u64),
        ("segments", space::MAX_SEGMENTS.into()),
    ];
    numbers("page.md", "page", &constants);
    let header = PageHeader {
        kind: PageKind::Owners,
        page_no: PageNo(0x0102_0304),
        lsn: Lsn(0x1112_1314),
        tree: TreeId(0x2122_2324),
        incarnation: 0x3132_3334,
    };
    let mut bytes = vec![0xab; 4096];
    page::format(&mut bytes, &header);
    page::seal(&mut bytes, DB);
    let fields = [
        ("crc", crc(&[&ID, &bytes[4..]])),
        ("version", page::PAGE_VERSION.into()),
        ("kind", 3),
        ("reserved", 0),
        ("page", header.page_no.0),
        ("lsn", header.lsn.0),
        ("tree", header.tree.0.into()),
        ("incarnation", header.incarnation.into()),
        ("unused", 0),
    ];
    layout("page.md", "page", &bytes, &fields);

    let geometry = Geometry::new(4096).expect("a page size");
    let header = PageHeader { kind: PageKind::SpaceMap, ..header };
    page::format(&mut bytes, &header);
    let mut change = vec![1, 0, ExtentState::Tree as u8];
    change.extend([4, 3, 2, 1, 8, 7, 6, 5]);
    geometry.apply(op::EXTENT, &change, header.page_no, &mut bytes).expect("applies");
    let second = &bytes[page::HEADER_BYTES + 16 + 12 + 256 / 8..];
    let fields =
        [("tree", 0x0102_0304), ("incarnation", 0x0506_0708), ("state", 1), ("reserved", 0)];
    layout("page.md", "descriptor", second, &fields);
}

#[test]
fn nodes_decode_as_documented() {
    let mut bytes = vec![0; 4096 - page::HEADER_BYTES];
    let mut inner = NodeMut::format(&mut bytes, 2, b"common-a", Some(b"common-z")).expect("fits");
    let cell = InnerCell { child: PageNo(7), dead_since: None };
    assert!(inner.insert_inner(0, b"common-a", &cell));
    assert!(inner.insert_inner(1, b"common-cd", &cell));
    // Sizes of an inner cell: its fixed bytes and the suffix.
    let (first, second) = (9 + 1, 9 + 2);
    let start = bytes.len() as u64 - 16 - first - second;
    let fields = [
        ("kind", node::KIND_INNER.into()),
        ("level", 2),
        ("flags", 0),
        ("zero", 0),
        ("slots", 2),
        ("dead cells", 0),
        ("cells start", start),
        ("holes", 0),
        ("low fence", 8),
        ("high fence", 8),
        ("prefix", 7),
        ("zero2", 0),
    ];
    layout("page.md", "node", &bytes, &fields);
    let slot = &bytes[node::HEADER_BYTES + node::SLOT_BYTES..];
    let head = u64::from(u32::from_be_bytes(*b"cd\0\0"));
    layout("page.md", "slot", slot, &[("head", head), ("cell", start), ("length", second)]);
    let flags = [
        ("DELETED", cell_flags::DELETED.into()),
        ("STAMPED", cell_flags::STAMPED.into()),
        ("OVERFLOW", cell_flags::OVERFLOW.into()),
        ("FIRST", cell_flags::FIRST.into()),
    ];
    numbers("page.md", "cell flags", &flags);

    let owner = Stamp { txn: TxnId(0x0102_0304), undo_no: UndoNo(0x1112_1314) };
    let page = OverflowPage { next: Some(PageNo(9)), owner, position: 5, data: b"data" };
    let mut bytes = Vec::new();
    page.encode(&mut bytes);
    let fields = [
        ("kind", overflow::KIND_OVERFLOW.into()),
        ("zero", 0),
        ("length", 4),
        ("next", 9),
        ("owner transaction", owner.txn.0),
        ("owner operation", owner.undo_no.0.into()),
        ("position", 5),
    ];
    layout("page.md", "overflow", &bytes, &fields);
    bytes.clear();
    OverflowRef { head: PageNo(8), len: 77, owner }.encode(&mut bytes);
    assert_eq!(bytes.len(), overflow::OVERFLOW_REF_BYTES);
    let fields = [
        ("first", 8),
        ("length", 77),
        ("owner transaction", owner.txn.0),
        ("owner operation", owner.undo_no.0.into()),
    ];
    layout("page.md", "reference", &bytes, &fields);
}

#[test]
fn runs_decode_as_documented() {
    let constants = [
        ("envelope", run::ENVELOPE as u64),
        ("trailer", Trailer::LEN as u64),
        ("block", run::BLOCK_BYTES as u64),
        ("entry", run::ENTRY_BYTES_MAX as u64),
        ("meta", run::META_BYTES_MAX as u64),
    ];
    numbers("run.md", "run", &constants);
    let trailer = Trailer { file: 0x0102, footer_position: 0x0304_0506, footer_len: 0x0708 };
    let bytes = trailer.encode(DB);
    let fields = [
        ("magic", text(b"EVKLRUN\x01")),
        ("version", run::RUN_VERSION.into()),
        ("crc", crc(&[&ID, &bytes[..12], &bytes[16..]])),
        ("file", trailer.file),
        ("footer position", trailer.footer_position),
        ("footer length", trailer.footer_len.into()),
        ("zero", 0),
    ];
    layout("run.md", "trailer", &bytes, &fields);
    let kind = EnvelopeKind::Fences;
    let (index, number) = (IndexId(5), 6);
    let id = EnvelopeId { database: DB, kind, file: 0x0102, position: 0x0304, index, number };
    let envelope = Envelope { is_lz4: true, has_pending: true, raw_len: 99, stored: b"stored" };
    let bytes = run::seal(id, &envelope);
    let fields = [
        ("crc", crc(&[&ID, &id.position.to_le_bytes(), &bytes[4..], b"stored"])),
        ("kind", 2),
        ("codec", 1),
        ("flags", 1),
        ("zero", 0),
        ("stored length", 6),
        ("raw length", 99),
        ("index", 5),
        ("number", 6),
        ("file", id.file),
    ];
    layout("run.md", "envelope", &bytes, &fields);
    let flags: Vec<_> = table("run.md", "numbers: entry flags")
        .iter()
        .map(|r| (name(&r[0]).to_string(), r[1].parse::<u8>().expect("a number")))
        .collect();
    for (flag, value) in
        [("INS", entry_op::INS), ("DEL", entry_op::DEL), ("FRESH", entry_op::FRESH)]
    {
        assert!(flags.contains(&(flag.to_string(), value)), "run.md, entry flags: {flag}");
    }
    let all: BTreeSet<u8> = flags.iter().map(|f| f.1).collect();
    assert_eq!(all.into_iter().collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64]);
    let (age_low, age_high) = (evenkeel_base::Generation(1), evenkeel_base::Generation(1));
    let place = ManifestOp::Place { index: IndexId(1), file: 1, run: 1, age_low, age_high };
    let edits = [
        ("ADD_FILE", ManifestOp::AddFile(1)),
        ("REMOVE_FILE", ManifestOp::RemoveFile(1)),
        ("REMOVE_RUN", ManifestOp::RemoveRun(IndexId(1), 1)),
        ("FLUSHED", ManifestOp::Flushed(evenkeel_base::Generation(1))),
        ("DROP_INDEX", ManifestOp::DropIndex(IndexId(1))),
        ("NEXT_FILE", ManifestOp::NextFile(1)),
        ("PLACE", place),
        ("TRIM", ManifestOp::Trim(IndexId(1), 1, Vec::new())),
    ];
    let edits = edits.map(|(name, op)| (name, u64::from(encode_manifest(&[op])[0])));
    numbers("run.md", "edits", &edits);
}

#[test]
fn undo_segments_decode_as_documented() {
    let constants = [
        ("segment header", undo::SEGMENT_HEADER_LEN as u64),
        ("frame header", undo::FRAME_HEADER_LEN as u64),
        ("frame payload", undo::FRAME_PAYLOAD_MAX as u64),
    ];
    numbers("undo.md", "undo", &constants);
    let bytes = undo::segment_header(0x0102_0304, DB);
    let fields = [
        ("magic", text(&undo::SEGMENT_MAGIC)),
        ("version", undo::SEGMENT_VERSION.into()),
        ("segment", 0x0102_0304),
        ("zero", 0),
        ("crc", crc(&[&ID, &bytes[..28]])),
    ];
    layout("undo.md", "undo segment", &bytes, &fields);
    let (first, last) = (UndoNo(0x0304), UndoNo(0x0506));
    let txn = TxnId(0x0102);
    let id = FrameId { database: DB, segment: 7, offset: 32, txn, first, last };
    let bytes = undo::frame_header(&id, b"payload");
    let place = [id.segment.to_le_bytes(), id.offset.to_le_bytes()].concat();
    let fields = [
        ("crc", crc(&[&ID, &place, &bytes[4..], b"payload"])),
        ("length", 7),
        ("transaction", id.txn.0),
        ("first", first.0.into()),
        ("last", last.0.into()),
    ];
    layout("undo.md", "undo frame", &bytes, &fields);
}

#[test]
fn types_and_catalog_decode_as_documented() {
    let rows = table("row.md", "numbers: types");
    for row in &rows {
        let code = row[1].parse().expect("a code");
        let (a, b) = if code == 12 { (30, 6) } else { (9, 0) };
        let ty = ColumnType::from_code(code, a, b).expect("a documented type exists");
        let shown = ty.to_string();
        assert_eq!(name(&row[0]), shown.split('(').next().expect("a name"));
        match row[3].parse::<usize>() {
            Ok(bytes) => assert_eq!(ty.fixed_len(), Some(bytes), "{shown}"),
            Err(_) => assert_eq!(row[3] == "variable", ty.fixed_len().is_none(), "{shown}"),
        }
    }
    let codes = (0..=u8::MAX).filter(|code| ColumnType::from_code(*code, 9, 0).is_some());
    assert_eq!(rows.len(), codes.count());
    let kinds = [
        ("table", entry_kind::TABLE.into()),
        ("column", entry_kind::COLUMN.into()),
        ("index", entry_kind::INDEX.into()),
        ("counter", entry_kind::COUNTER.into()),
        ("statistics", entry_kind::STATISTICS.into()),
        ("foreign key", entry_kind::FOREIGN_KEY.into()),
        ("foreign key column", entry_kind::FOREIGN_KEY_COLUMN.into()),
        ("foreign key parent", entry_kind::FOREIGN_KEY_PARENT.into()),
        ("chunking", entry_kind::CHUNKING.into()),
        ("chunk", entry_kind::CHUNK.into()),
    ];
    numbers("row.md", "catalog", &kinds);
}
