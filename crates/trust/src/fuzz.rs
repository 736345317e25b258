//! The fuzz targets as plain functions. Each takes bytes that an attacker may have written, and
//! must return without a panic, in bounded memory and time. Checksums detect accidental damage but
//! not attacks, so a target whose decoder is guarded by a checksum also runs with that checksum
//! corrected.

use crate::catalog_rows::TYPES;
use crate::faulty;
use crate::stores::small_options;
use crate::{linked, wide};
use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{Access, Database, Direction, Isolation, Options, Range, Row};
use evenkeel_base::{
    DatabaseId, Generation, IndexId, Lsn, PageNo, Result, Stamp, TreeId, TxnId, UndoNo, crc32c,
};
use evenkeel_format::record::{self, LeafChange, RecordKind, RowLogical};
use evenkeel_format::rows;
use evenkeel_format::{
    ColumnType, Form, KeyPart, RowColumn, RowLayout, doublewrite, node, overflow, page, run, space,
    superblock, tree_op, types, undo, wal, warm,
};
use evenkeel_io::{Env, MemEnv, Rng, Runtime};
use evenkeel_log::Replay;
use evenkeel_pages::RedoApply as _;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A target: its name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// The targets that use a database each time; one run of them costs a thousand times as much.
pub const DATABASES: &[Target] = &[("open", crate::hostile::open), ("operations", programs)];

/// The other targets.
pub const DECODERS: &[Target] = &[
    ("superblock", superblock),
    ("catalog_row", crate::catalog_rows::decode),
    ("page", page_image),
    ("wal_record", wal_record),
    ("wal_segment", wal_segment),
    ("run_block", run_block),
    ("run_footer", run_footer),
    ("row", row),
    ("key", key),
    ("undo_segment", undo_segment),
    ("hot_pages", hot_pages),
    ("backup_manifest", crate::manifest::decode),
    ("doublewrite_head", doublewrite_head),
];

/// The database id of inputs that are not a whole directory; also that of a runtime which has not
/// been told its id.
const DB: DatabaseId = DatabaseId::ZERO;

fn fix_crc(bytes: &mut [u8], at: usize, from: usize) {
    if bytes.len() >= from.max(at + 4) {
        let crc = crc32c(0, &bytes[from..]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Both slots of the superblock file, a checkpoint's sections, and its copy.
pub fn superblock(data: &[u8]) {
    crate::checkpoint_copy::decode(data, DB);
    let _ = superblock::Superblock::choose(data);
    let mut fixed = data.to_vec();
    for slot in fixed.chunks_mut(superblock::SLOT_BYTES) {
        fix_crc(slot, 8, 12);
    }
    let _ = superblock::Superblock::choose(&fixed);
    let _ = (superblock::decode_sections(data), superblock::decode_part(data));
}

/// The list of hot pages.
pub fn hot_pages(data: &[u8]) {
    let _ = warm::decode(data, DB);
    let mut fixed = data.to_vec();
    if fixed.len() >= warm::HEADER_BYTES {
        fixed[..8].copy_from_slice(warm::MAGIC);
        fixed[8..12].copy_from_slice(&warm::WARM_VERSION.to_le_bytes());
        let crc = crc32c(crc32c(DB.crc32c(&fixed[..12]), &[0; 4]), &fixed[16..]);
        fixed[12..16].copy_from_slice(&crc.to_le_bytes());
        if let Ok(pages) = warm::decode(&fixed, DB) {
            assert!(pages.len() <= warm::PAGES_MAX && pages.is_sorted());
        }
    }
}

/// The head of a region of the doublewrite file.
pub fn doublewrite_head(data: &[u8]) {
    let mut head = data.to_vec();
    head.resize(doublewrite::HEAD_BYTES, 0);
    let _ = doublewrite::decode_head(&head, 4096, DB);
    head[..4].copy_from_slice(b"EKDW");
    let crc = DB.crc32c(&head[8..]);
    head[4..8].copy_from_slice(&crc.to_le_bytes());
    if let Ok(Some(pages)) = doublewrite::decode_head(&head, 4096, DB) {
        assert!(pages.len() <= doublewrite::IMAGES_MAX);
    }
}

/// A page: its image, tree node and space map.
pub fn page_image(data: &[u8]) {
    let _ = page::RawPage(data).verify(PageNo(0), DB);
    let mut fixed = data.to_vec();
    if fixed.len() >= page::HEADER_BYTES {
        page::seal(&mut fixed, DB);
        let _ = page::RawPage(&fixed).verify(page::page_no(&fixed), DB);
        node_payload(&fixed[page::HEADER_BYTES..]);
        if let Ok(geometry) = space::Geometry::new(4096) {
            for slot in 0..geometry.map_slots() as u16 + 2 {
                let _ = geometry.descriptor(&fixed[page::HEADER_BYTES..], slot);
            }
            let _ = geometry.segments(&fixed[page::HEADER_BYTES..]);
            let _ = geometry.owner(&fixed[page::HEADER_BYTES..], 300);
        }
    }
    let _ = overflow::OverflowRef::decode(data);
}

/// Does everything that a reader does with a node, whether or not the check of the node succeeds.
fn node_payload(payload: &[u8]) {
    let Ok(node) = node::Node::parse(payload) else { return };
    let _ = node.check();
    let probe = [0x80, 0, 0, 0, 0, 0, 1, 7];
    let mut key = Vec::new();
    for i in 0..node.count() {
        key.clear();
        node.key_to(i, &mut key);
        let _ = (node.cmp_key(i, &probe), node.cell_len(i));
        let _ = if node.is_leaf() {
            node.leaf_cell(i).map(|_| ())
        } else {
            node.inner_cell(i).map(|_| ())
        };
    }
    let _ = (node.lower_bound(&probe), node.lower_bound_append(&probe), node.covers(&probe));
    let _ = (node.free_bytes(), node.used_bytes(), node.dead_count());
    if !node.is_leaf() && node.count() > 0 {
        let _ = (node.child_slot(&probe), node.child_slot_before(&probe));
    }
}

/// A record body, decoded as each kind; page operations are applied to an empty leaf and to the
/// results of earlier ones.
pub fn wal_record(data: &[u8]) {
    if let Ok(change) = LeafChange::decode(data) {
        let _ = RowLogical::head(change.logical);
        let _ = RowLogical::decode(&change, &mut Vec::new());
        let _ = record::decode_revert(change.logical);
        let mut image = empty_leaf();
        for kind in [RecordKind::Row, RecordKind::Revert] {
            let _ = evenkeel_tree::TreeRedo.apply_row(kind, &change, &mut image);
        }
        node_payload(&image);
    }
    let mut image = empty_leaf();
    let _ = rows::rows_page(data);
    let _ = rows::each_row(RecordKind::Rows, data, &mut |change, _| {
        evenkeel_tree::TreeRedo.apply_row(RecordKind::Rows, change, &mut image)
    });
    node_payload(&image);
    let Ok(geometry) = space::Geometry::new(4096) else { return };
    let mut map = geometry.new_segment(0).swap_remove(0).1;
    for op in record::page_ops(data).take(1000) {
        let Ok(op) = op else { break };
        if op.op < 32 {
            let _ = geometry.apply(op.op, op.payload, PageNo(0), &mut map);
        } else {
            let _ = tree_op::TreeOp::decode(op.op, op.payload);
            let _ = evenkeel_tree::TreeRedo.apply(op.op, op.payload, &mut image);
            node_payload(&image);
        }
    }
    let _ = record::decode_txn(data);
    let _ = run::decode_manifest(data);
    let _ = superblock::decode_part(data);
}

/// The payload of a leaf without rows, as its format operation makes it from zeros.
fn empty_leaf() -> Vec<u8> {
    vec![0; 4096 - page::HEADER_BYTES]
}

struct Ignore(u64);

impl Replay for Ignore {
    fn record(&mut self, _: Lsn, _: RecordKind, body: &[u8]) -> Result<()> {
        self.0 += body.len() as u64;
        Ok(())
    }
}

/// A segment file as the whole log, with corrected checksums.
pub fn wal_segment(data: &[u8]) {
    let mut fixed = data.to_vec();
    if fixed.len() >= wal::SEGMENT_HEADER {
        let _ = wal::SegmentHeader::decode(&fixed[..wal::SEGMENT_HEADER]);
        let (header, blocks) = fixed.split_at_mut(wal::SEGMENT_HEADER);
        header[12..16].fill(0);
        header[40..48].copy_from_slice(&DB.0.to_le_bytes());
        let crc = DB.crc32c(header);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        for block in blocks.chunks_exact_mut(wal::BLOCK) {
            let crc = DB.crc32c(&block[4..]);
            block[..4].copy_from_slice(&crc.to_le_bytes());
            let _ = wal::block_number(block);
            let _ = wal::BlockHeader::decode(block, DB);
        }
    }
    for bytes in [data, &fixed[..]] {
        let env = MemEnv::new();
        faulty::replace(&env, "wal/00000001.wal", bytes);
        let rt = Runtime::new(Arc::new(env));
        let _ = evenkeel_log::replay(&rt, Lsn(960), None, &mut Ignore(0));
    }
}

/// A data block, decompressed, and its envelope.
pub fn run_block(data: &[u8]) {
    if let Ok(block) = run::DataBlock::parse(data.to_vec()) {
        let (mut at, mut key, mut pk_len) = (block.start(), Vec::new(), 0);
        while at < block.end() {
            let Ok(entry) = block.decode(at, &mut key, pk_len) else { break };
            let _ = block.value(&entry);
            assert!(entry.next > at, "a decoder must move on");
            (at, pk_len) = (entry.next, entry.pk_len);
        }
        for i in 0..block.restarts().min(2000) {
            let _ = (block.restart(i), block.restart_key(i).is_ok());
        }
        let _ = block.restart_before(b"middle");
    }
}

/// The footer, trailer, fences, filter and manifest of a run.
pub fn run_footer(data: &[u8]) {
    let slices = run::decode_footer(data);
    let packed = run::PackedFooter::parse(data.into());
    assert_eq!(slices.is_ok(), packed.is_ok(), "both ways to read a footer say the same");
    for slice in slices.iter().flatten() {
        let packed = packed.as_ref().ok().and_then(|packed| packed.slice(slice.index).ok());
        assert!(packed.flatten().is_some_and(|packed| packed.index == slice.index));
    }
    if let Some(head) = run::EnvelopeHead::decode(data) {
        assert!(data.len() >= run::ENVELOPE && head.kind as u8 == data[4], "{head:?}");
    }
    let _ = run::Trailer::decode(data, 1, DB);
    if data.len() == run::Trailer::LEN {
        let mut fixed = data.to_vec();
        let crc = crc32c(DB.crc32c(&fixed[..12]), &fixed[16..]);
        fixed[12..16].copy_from_slice(&crc.to_le_bytes());
        let _ = run::Trailer::decode(&fixed, 1, DB);
    }
    if let Ok(fences) = run::Fences::decode(data, 0, 1 << 20) {
        for block in 0..fences.blocks().min(2000) {
            let _ = (fences.key(block), fences.place(block));
        }
        let _ = fences.block_of(b"middle");
    }
    if let Ok(filter) = run::Filter::decode(data.to_vec().into()) {
        let hits =
            (0..50).filter(|i: &u64| filter.may_contain(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        assert!(hits.count() <= 50);
    }
    let _ = run::decode_manifest(data);
}

/// One column of each type.
pub fn layout() -> RowLayout {
    let columns = TYPES.iter().enumerate().map(|(i, ty)| {
        let (id, nullable) = (i as u16, i % 2 == 0);
        RowColumn { id, ty: *ty, nullable }
    });
    RowLayout::new(1, columns.collect())
}

/// A row.
pub fn row(data: &[u8]) {
    let _ = evenkeel_format::row_version(data);
    let layout = layout();
    if let Ok(reader) = layout.read(data) {
        for i in 0..TYPES.len() + 1 {
            if let Ok(evenkeel_format::Field::Reference(bytes)) = reader.field(i) {
                let _ = overflow::OverflowRef::decode(bytes);
            }
        }
    }
}

/// A key of every type, ascending and descending.
pub fn key(data: &[u8]) {
    for ty in TYPES {
        for (nullable, desc) in [(false, false), (true, false), (true, true)] {
            let prefix = KeyPart { form: Form::Prefix(3), ..KeyPart::whole(ty, nullable, desc) };
            if let (false, Ok((_, rest))) = (ty.is_scalar(), prefix.decode(data)) {
                assert!(rest.len() < data.len() && prefix.skip(data).is_ok());
            }
            let part = KeyPart::whole(ty, nullable, desc);
            if let Ok((value, rest)) = part.decode(data) {
                // A decoded value must encode to a key that decodes to the same value.
                let mut again = Vec::new();
                if part.encode(value.as_ref(), &mut again).is_ok() {
                    let (same, _) = part.decode(&again).unwrap_or((types::Value::Null, &[]));
                    let is_nan = matches!(value, types::Value::Float(f) if f.is_nan());
                    assert!(is_nan || same == value, "{value:?} is {same:?}");
                }
                assert!(rest.len() <= data.len());
            }
            let _ = (part.skip(data).is_ok(), part.is_null(data), part.decode_scalar(data));
        }
    }
}

/// The frame that the undo segment belongs to.
const FRAME: undo::FrameId = undo::FrameId {
    database: DB,
    segment: 1,
    offset: 0,
    txn: TxnId(7),
    first: UndoNo(0),
    last: UndoNo(9),
};

/// An undo segment: its header, frame and records.
pub fn undo_segment(data: &[u8]) {
    let _ = undo::check_segment_header(data, 1, DB);
    let _ = undo::check_frame(data, &FRAME);
    let _ = data.first_chunk().map(undo::frame_claims);
    // As an attacker would write it: the bytes behind the header are taken as this frame.
    if let Some((_, payload)) = data.split_first_chunk::<{ undo::FRAME_HEADER_LEN }>() {
        let fixed = [&undo::frame_header(&FRAME, payload)[..], payload].concat();
        if let Ok(payload) = undo::check_frame(&fixed, &FRAME) {
            let _ = undo::find_record(payload, UndoNo(3));
            assert!(undo::records(payload).take(10_000).count() <= payload.len().max(1));
        }
    }
    let _ = undo::find_record(data, UndoNo(3));
    for record in undo::records(data).take(10_000) {
        if record.is_err() {
            break;
        }
    }
}

/// Opens a directory of arbitrary bytes, and reads everything if the open succeeds.
///
/// # Errors
/// The first error. Any other failure, such as a panic, is a bug.
pub fn open(env: Arc<dyn Env>) -> Result<Vec<(i64, i64)>> {
    open_as(env, true)
}

/// The same, read-only or not. If not, the directory is recovered, written to and closed.
///
/// # Errors
/// As those of `open`.
pub fn open_as(env: Arc<dyn Env>, read_only: bool) -> Result<Vec<(i64, i64)>> {
    let options = Options { read_only, ..small_options(env) };
    let db = Database::open_with("dir", options)?;
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    let (mut rows, mut row) = (Vec::new(), Row::new());
    let int = |row: &Row, at| match row.value(at) {
        Ok(Int(n)) => Ok(n),
        Ok(_) => Ok(i64::MIN),
        Err(error) => Err(error),
    };
    let mut scan = txn.table("t")?.scan(Range::ALL, Direction::Forward)?;
    while scan.next(&mut row)? {
        rows.push((int(&row, 0)?, int(&row, 1)?));
        row.value(2)?;
    }
    let mut by_index = Vec::new();
    let mut scan =
        txn.table("t")?.index("by_value")?.keys_only().scan(Range::ALL, Direction::Backward)?;
    while scan.next(&mut row)? {
        by_index.push((int(&row, 0)?, int(&row, 1)?));
    }
    by_index.sort_unstable();
    let mut sorted = rows.clone();
    sorted.sort_unstable();
    if by_index != sorted {
        return Err(evenkeel_base::Error::internal("index and table differ"));
    }
    wide::read(&db, &mut txn)?;
    linked::read(&db, &mut txn)?;
    drop(txn);
    if !read_only {
        linked::write(&db);
    }
    // The close of damaged files may fail: no wrong rows were read.
    let _ = db.close();
    Ok(rows)
}

/// Number of programs that run on one database: the deletes of earlier ones make later scans
/// longer.
const PROGRAMS: u32 = 64;

/// Runs `operations` on a database in memory that stays open for several inputs; each thread has
/// its own.
fn programs(data: &[u8]) {
    thread_local! {
        static OPEN: RefCell<Option<(Database, u32)>> = const { RefCell::new(None) };
    }
    let open = OPEN.take().filter(|(_, left)| *left > 0);
    let (db, left) = open.unwrap_or_else(|| {
        let db = Database::open_with("dir", evenkeel::Options::in_memory()).expect("opens");
        db.create_table("t", &small_table()).expect("creates");
        (db, PROGRAMS)
    });
    operations(&db, data);
    OPEN.set(Some((db, left - 1)));
}

/// Initial programs of 10 to 60 steps; each prefers some of the operations.
fn some_programs() -> Vec<Vec<u8>> {
    let one = |seed| {
        let mut rng = Rng::new(seed);
        let favourites = [(); 4].map(|()| rng.next_u64() as u8);
        let mut step = || {
            let op = match rng.below(3) {
                0 => rng.next_u64() as u8,
                n => favourites[(n + rng.below(2)) as usize],
            };
            [op, rng.next_u64() as u8, rng.next_u64() as u8]
        };
        let steps = 10 + seed as usize * 50 / 31;
        (0..steps).flat_map(|_| step()).collect()
    };
    (0..32).map(one).collect()
}

/// Deletes the rows that an earlier program left.
fn delete_all(db: &Database) {
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    for id in by_index(&mut txn).into_keys() {
        txn.table("t").expect("there").delete(&[Int(id)]).expect("deletes");
    }
    txn.commit().expect("commits");
}

/// The rows as their index returns them: id to value.
fn by_index(txn: &mut evenkeel::Txn) -> BTreeMap<i64, i64> {
    let mut found = BTreeMap::new();
    let mut row = Row::new();
    let index = txn.table("t").and_then(|t| t.index("by_value"));
    let scan = index.and_then(|i| i.keys_only().scan(Range::ALL, Direction::Forward));
    let mut scan = scan.expect("a scan");
    while scan.next(&mut row).expect("a row") {
        if let (Ok(Int(id)), Ok(Int(value))) = (row.value(0), row.value(1)) {
            found.insert(id, value);
        }
    }
    found
}

/// Takes bytes as a program of row operations, transactions and savepoints, and compares the
/// results with a map.
pub fn operations(db: &Database, data: &[u8]) {
    let mut model: BTreeMap<i64, i64> = BTreeMap::new();
    delete_all(db);
    let begin = || db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    let mut txn = begin();
    let (mut own, mut saved) = (model.clone(), model.clone());
    txn.savepoint("s").expect("set");
    for step in data.chunks(3).take(200) {
        let at = |i| step.get(i).copied().unwrap_or(0);
        let (id, value) = (i64::from(at(1) % 32), i64::from(at(2)));
        let row = [Int(id), Int(value), Bytes(&step[..1])];
        match at(0) % 12 {
            0..=2 => {
                let done = txn.table("t").expect("there").insert(&row);
                assert_eq!(done.is_ok(), !own.contains_key(&id), "{done:?}");
                own.entry(id).or_insert(value);
            }
            3 | 4 => {
                txn.table("t").expect("there").put(&row).expect("upserts");
                own.insert(id, value);
            }
            5 => {
                let table = txn.table("t").expect("there");
                let done = table.update(&[Int(id)], &[(1, Int(value))]).expect("updates");
                assert_eq!(done, own.contains_key(&id));
                own.entry(id).and_modify(|v| *v = value);
            }
            6 | 7 => {
                let done = txn.table("t").expect("there").delete(&[Int(id)]).expect("deletes");
                assert_eq!(done, own.remove(&id).is_some());
            }
            8 => {
                txn.savepoint("s").expect("set");
                saved = own.clone();
            }
            9 => {
                txn.rollback_to("s").expect("set before");
                own = saved.clone();
            }
            10 => {
                txn.commit().expect("commits");
                model = own.clone();
                txn = begin();
                txn.savepoint("s").expect("set");
                saved = own.clone();
            }
            _ => {
                txn.rollback().expect("rolls back");
                own = model.clone();
                txn = begin();
                txn.savepoint("s").expect("set");
                saved = own.clone();
            }
        }
    }
    let found = by_index(&mut txn);
    assert_eq!(found, own, "the index is not what the operations made");
}

/// The table of the stores and of `operations`.
pub fn small_table() -> evenkeel::TableSpec {
    let column = evenkeel::ColumnSpec::new;
    evenkeel::TableSpec::new()
        .column(column("id", ColumnType::Int64))
        .column(column("value", ColumnType::Int64))
        .column(column("pad", ColumnType::Bytes { max: 100 }))
        .primary_key(&["id"])
        .index(evenkeel::IndexSpec::new("by_value", &["value"]))
}

struct Bodies(Vec<Vec<u8>>);

impl Replay for Bodies {
    fn record(&mut self, _: Lsn, _: RecordKind, body: &[u8]) -> Result<()> {
        if self.0.len() < 600 {
            self.0.push(body.to_vec());
        }
        Ok(())
    }
}

/// Initial inputs of a target: parts of a real store.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let env = crate::stores::store(0, false).files;
    let read = |path: &str| faulty::content(&*env, path);
    let paths = faulty::paths(&*env);
    let of = |prefix: &str| paths.iter().filter(|p| p.starts_with(prefix)).cloned().collect();
    match target {
        "open" => crate::hostile::corpus(),
        "operations" => some_programs(),
        "superblock" => vec![read("evenkeel.super"), read("evenkeel.checkpoint.0")],
        "backup_manifest" => crate::manifest::corpus(),
        "doublewrite_head" => vec![[&[0; 8][..], &[0, 16, 0, 0, 2, 0, 0, 0, 7]].concat()],
        "hot_pages" => [&[][..], &[3, 4, 5, 70, 1 << 30]].map(hot_page_list).to_vec(),
        "page" => read("pages/000000.pg").chunks(4096).map(<[u8]>::to_vec).collect(),
        "wal_segment" => {
            let mut bytes = first_segment();
            bytes.truncate(4096 + 24 * 512);
            vec![bytes]
        }
        "run_block" => vec![block(40, false), block(300, true)],
        "run_footer" => {
            let runs: Vec<String> = of("runs/");
            let mut all = run_parts();
            for bytes in runs.iter().map(|path| read(path)) {
                all.extend(
                    bytes.len().checked_sub(run::Trailer::LEN).map(|at| bytes[at..].to_vec()),
                );
            }
            all
        }
        "catalog_row" => crate::catalog_rows::corpus(),
        "undo_segment" => undo_parts(),
        "wal_record" | "row" | "key" => {
            let rt = Runtime::new(env.clone());
            let super_bytes = read("evenkeel.super");
            let chosen = superblock::Superblock::choose(&super_bytes);
            let (from, database) = chosen.map_or((Lsn(960), DB), |s| (s.redo, s.database_id));
            rt.set_database(database);
            let mut bodies = Bodies(Vec::new());
            let _ = evenkeel_log::replay(&rt, from, None, &mut bodies);
            let mut all = bodies.0;
            all.extend(parts());
            all
        }
        _ => vec![(0..=255).collect()],
    }
}

fn hot_page_list(pages: &[u64]) -> Vec<u8> {
    warm::encode(&pages.iter().copied().map(PageNo).collect::<Vec<_>>(), DB)
}

fn block(entries: u64, pending: bool) -> Vec<u8> {
    let mut builder = run::BlockBuilder::new(Lsn(1000));
    for i in 0..entries {
        let key = [&i.to_be_bytes()[..], b"column", &(i * 3).to_be_bytes()].concat();
        let stamp = evenkeel_base::Stamp { txn: TxnId(i + 1), undo_no: UndoNo(2) };
        let version = match pending && i % 5 == 0 {
            true => run::RunVersion::Pending(stamp),
            false => run::RunVersion::Committed(Lsn(1000 + i)),
        };
        builder.push(&key, 8, record::entry_op::INS, version, &key[..(i % 9) as usize]);
    }
    builder.finish().to_vec()
}

/// The first log segment of a new database.
fn first_segment() -> Vec<u8> {
    let env = Arc::new(MemEnv::new());
    let options = Options::default().env(env.clone());
    let db = Database::open_with("dir", options).expect("opens");
    db.create_table("t", &small_table()).expect("creates");
    faulty::content(&*env, "wal/00000001.wal")
}

/// A footer, fences, a filter, a manifest.
fn run_parts() -> Vec<Vec<u8>> {
    let (mut fences, mut filter) = (run::FencesBuilder::default(), run::FilterBuilder::default());
    let keys: Vec<[u8; 8]> = (0..200u64).map(|i| (i * 977).to_be_bytes()).collect();
    for (i, key) in keys.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| &keys[i][..]);
        fences.push(before, key, 4000 + i as u32);
        filter.push(key);
    }
    let (index, age_low, age_high) = (IndexId(1), Generation(3), Generation(5));
    let edits = [
        run::ManifestOp::AddFile(7),
        run::ManifestOp::RemoveFile(300),
        run::ManifestOp::Place { index, file: 7, run: 9, age_low, age_high },
        run::ManifestOp::Trim(index, 4, b"low".to_vec()),
    ];
    let slice = run::SliceInfo {
        blocks: 3,
        data_len: 9000,
        min_key: b"a".to_vec(),
        max_key: b"z".to_vec(),
        pending: vec![TxnId(4), TxnId(9)],
        ..run::SliceInfo::default()
    };
    let footer = run::encode_footer(&[slice.clone(), slice]);
    vec![footer, fences.finish(), filter.finish(), run::encode_manifest(&edits)]
}

/// The header of an undo segment, records, and a whole frame.
fn undo_parts() -> Vec<Vec<u8>> {
    let row = [9; 300];
    let stamp = Stamp { txn: TxnId(1 << 40), undo_no: UndoNo(70_000) };
    let before = |len: usize| Some(record::Before { flags: 0, stamp, row: &row[..len] });
    let kinds = [record::RowKind::Insert, record::RowKind::Update, record::RowKind::Delete];
    let mut records = Vec::new();
    for no in 0..10 {
        let kind = kinds[no % 3];
        let undo = undo::UndoRecord {
            undo_no: UndoNo(no as u32),
            kind,
            tree: TreeId(no as u32 * 100),
            key: &row[..no * 20],
            before: before(no * 30).filter(|_| kind != record::RowKind::Insert),
        };
        undo.encode(&mut records);
    }
    let frame = [&undo::frame_header(&FRAME, &records)[..], &records].concat();
    vec![undo::segment_header(1, DB).to_vec(), records, frame]
}

/// Encoded rows and keys.
fn parts() -> Vec<Vec<u8>> {
    use evenkeel_format::{Field, ValueRef};
    let mut all = Vec::new();
    let values = [
        ValueRef::Bool(true),
        Int(-3),
        Int(9),
        Int(70_000),
        Int(-1 << 40),
        ValueRef::Float(1.5),
        ValueRef::Decimal(123_456, 3),
        Bytes(b"fixed"),
        Bytes(b"a\0b"),
        ValueRef::Text("text"),
        ValueRef::Date(9000),
        ValueRef::DateTime(1 << 50),
    ];
    let mut row = Vec::new();
    if layout().encode(|i| Field::Value(values[i]), &mut row).is_ok() {
        all.push(row);
    }
    for (ty, value) in TYPES.into_iter().zip(values) {
        for desc in [false, true] {
            let mut key = Vec::new();
            if (KeyPart::whole(ty, desc, desc)).encode(value, &mut key).is_ok() {
                all.push(key);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the initial inputs decode: mutations of an input that does not decode reach only
    /// the first bytes of the decoder.
    #[test]
    fn decoders_accept_the_first_inputs_of_their_corpus() {
        let [header, records, frame] = &undo_parts()[..] else { panic!("three parts") };
        undo::check_segment_header(header, 1, DB).expect("a header");
        assert_eq!(undo::records(records).filter(Result::is_ok).count(), 10);
        let header = frame.first_chunk().expect("a header");
        let (txn, first, last, len) = undo::frame_claims(header).expect("a frame");
        assert_eq!((txn, first, last, len), (TxnId(7), UndoNo(0), UndoNo(9), records.len()));
    }
}
