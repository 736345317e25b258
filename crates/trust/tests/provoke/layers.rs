//! Provocations below the public API: calls of the layers that no caller makes, and files that only
//! an attacker makes, with right checksums and wrong content.

use super::{
    Provocation, begin, closed, column, database, failed, log_options, memory, open_and_read,
    small, spec, write,
};
use evenkeel::ValueRef::{Bytes, Int, Null, Text};
use evenkeel::{
    Access, Code, ColumnSpec, ColumnType, Database, Direction, Error, IndexSpec, Isolation,
    LockWait, Options, Range, Row, TableSpec,
};
use evenkeel_base::{IndexId, Lsn, Stamp, TreeId};
use evenkeel_format::catalog::entry_kind;
use evenkeel_format::node::{Node, NodeMut};
use evenkeel_format::overflow::KIND_OVERFLOW;
use evenkeel_format::page::{self, HEADER_BYTES};
use evenkeel_format::record::RecordKind;
use evenkeel_io::{MemEnv, Runtime};
use evenkeel_log::{Log, Share};
use evenkeel_pages::{Pages, PagesOptions, RedoApply as _};
use evenkeel_runs::{KeyRange, Runs, RunsOptions};
use evenkeel_sched::Scheduler;
use evenkeel_tree::{LeafDecision, LeafOp, LeafRow, OverflowWriter, Tree, TreeRedo, Trees};
use evenkeel_trust::faulty;
use evenkeel_txn::{TxnOptions, Txns};
use std::sync::Arc;

/// The layers of a new database without the public API.
struct Layers {
    rt: Arc<Runtime>,
    log: Arc<Log>,
    pages: Arc<Pages>,
    txns: Arc<Txns>,
    trees: Arc<Trees>,
}

fn layers() -> Layers {
    let rt = Runtime::new(Arc::new(MemEnv::new()));
    let (pool_bytes, log_bytes) = (1 << 20, 1 << 20);
    let options = PagesOptions { page_size: 4096, pool_bytes, doublewrite: true, log_bytes };
    let pages = Pages::create(Scheduler::new(rt.clone()), options).expect("pages");
    let log = Log::create(rt.clone(), log_options(), Lsn(0)).expect("a log");
    pages.attach_log(log.clone()).expect("attached");
    while pages.free_frames_beat().expect("frames") == evenkeel_base::Beat::More {}
    let txns = Txns::create(rt.clone(), TxnOptions::default());
    txns.attach_log(log.clone());
    let trees = Trees::new(rt.clone(), pages.clone(), log.clone(), txns.clone());
    Layers { rt, log, pages, txns, trees }
}

impl Layers {
    fn tree(&self) -> Tree {
        self.trees.create(TreeId(7)).expect("a tree")
    }

    fn put(&self, tree: &Tree, key: &[u8]) -> evenkeel::Result<bool> {
        let mut reserved = self.log.reserve(20_000, Share::User)?;
        tree.write(key, &mut reserved, &mut Put)
    }
}

/// Inserts an empty row.
struct Put;

impl LeafOp for Put {
    fn decide<'a>(&'a mut self, _: Option<LeafRow<'_>>) -> evenkeel::Result<LeafDecision<'a>> {
        let (kind, stamp) = (RecordKind::Row, Stamp::default());
        Ok(LeafDecision::Put { kind, flags: 0, stamp, row: b"" })
    }
    fn prepare(&mut self, _: Option<LeafRow<'_>>) -> &[u8] {
        b""
    }
    fn logged(&mut self, _: Lsn) {}
}

/// Rows of a bulk load.
fn load(keys: &[&[u8]]) -> Error {
    let layers = layers();
    let tree = layers.tree();
    let mut load = tree.bulk_load().expect("it is empty");
    let row = LeafRow { flags: 0, stamp: Stamp::default(), row: b"" };
    let pushed = keys.iter().try_for_each(|key| load.push(key, row));
    failed(pushed)
}

/// The error of reading a closed database whose tree pages were changed and got new checksums.
fn forged(env: Arc<MemEnv>, change: impl Fn(&mut [u8])) -> Error {
    let database = database(&*env);
    for path in faulty::paths(&*env).iter().filter(|p| p.starts_with("pages/")) {
        let mut bytes = faulty::content(&*env, path);
        for image in bytes.chunks_exact_mut(4096) {
            if page::kind(image) == Some(page::PageKind::Tree) {
                change(image);
                page::seal(image, database);
            }
        }
        faulty::replace(&*env, path, &bytes);
    }
    open_and_read(env)
}

/// Removes the column rows from every leaf that looks like one of the catalog.
fn without_columns(image: &mut [u8]) {
    let Ok(mut node) = NodeMut::parse(&mut image[HEADER_BYTES..]) else { return };
    if !node.node().is_leaf() {
        return;
    }
    for slot in (0..node.node().count()).rev() {
        let key = node.node().key(slot);
        // Key of a catalog row: table u32, kind u8, item u32.
        if key.len() == 9 && key[4] == entry_kind::COLUMN && key[..4] != [0; 4] {
            node.remove(slot);
        }
    }
}

/// A closed database with a long value.
fn closed_with_long_value() -> Arc<MemEnv> {
    let env = Arc::new(MemEnv::new());
    let db = Database::open_with("dir", small(env.clone())).expect("opens");
    let spec = TableSpec::new()
        .column(column("id"))
        .column(ColumnSpec::new("long", ColumnType::Bytes { max: 1 << 20 }))
        .primary_key(&["id"]);
    db.create_table("t", &spec).expect("creates");
    write(&db, |txn| txn.table("t")?.insert(&[Int(1), Bytes(&[7; 50_000])]).map(|_| ()));
    db.close().expect("closes");
    // Opens and closes twice, so that redo does not rebuild the pages from the log.
    let db = Database::open_with("dir", small(env.clone())).expect("opens");
    db.close().expect("closes");
    env
}

fn locks_full() -> Error {
    let options = Options { memory_size: 16 << 20, ..Options::in_memory() };
    let db = Database::open_with("dir", options).expect("opens");
    db.create_table("t", &spec()).expect("creates");
    write(&db, |txn| {
        let table = txn.table("t")?;
        (0..20_000).try_for_each(|id| table.insert(&[Int(id), Null, Text("x")]).map(|_| ()))
    });
    // Locks become ranges where no other transaction has locks; here another transaction shares
    // every row.
    let other = db.begin(Isolation::Serializable, Access::ReadWrite).expect("begins");
    let shared = other.table("t").expect("there");
    let mut scan = shared.scan(Range::ALL, Direction::Forward).expect("scans");
    assert!(scan.next(&mut Row::new()).expect("a row"));
    let txn = begin(&db);
    let (table, mut row) = (txn.table("t").expect("there"), Row::new());
    let lock = |id| table.get_for_share(&[Int(id)], LockWait::Wait, &mut row).map(|_| ());
    failed((0..20_000).try_for_each(lock))
}

/// Provocations by layer.
pub const ALL: &[Provocation] = &[
    (Code::KeyTooLong, &["tree=7", "bytes=900", "limit="], || {
        let layers = layers();
        failed(layers.put(&layers.tree(), &[b'k'; 900]))
    }),
    (Code::SpaceDamaged, &["page=", "why=free twice"], || {
        let layers = layers();
        let root = layers.tree().root();
        let mut reserved = layers.log.reserve(20_000, Share::User).expect("room");
        let mut mtr = layers.pages.begin(1).expect("a frame");
        let slot = mtr.write(root).expect("the root");
        mtr.free(slot).expect("freed");
        mtr.commit(&mut reserved);
        let mut mtr = layers.pages.begin(1).expect("a frame");
        let slot = mtr.write(root).expect("its frame is there still");
        failed(mtr.free(slot))
    }),
    (Code::ValueTooLong, &["bytes=4294967296", "limit=4294967295"], || {
        // Zero pages of the operating system; no code touches them.
        let zeros = vec![0; 1 << 32];
        let layers = layers();
        failed(OverflowWriter::new(&layers.tree(), Stamp::default()).write(&zeros))
    }),
    (Code::TreeDamaged, &["tree=", "why="], || {
        forged(closed(), |image| {
            if Node::parse(&image[HEADER_BYTES..]).is_ok_and(|node| node.is_leaf()) {
                image[24] ^= 0x40;
            }
        })
    }),
    (Code::TreeOpMismatch, &["why="], || {
        let layers = layers();
        let root = layers.tree().root();
        let mut image =
            layers.pages.read(root, evenkeel_pages::Access::Normal).expect("it").to_vec();
        failed(TreeRedo.apply(34, &[200, 1, 5, 0], &mut image))
    }),
    (Code::TreeGone, &["tree=7"], || {
        let layers = layers();
        let tree = layers.tree();
        tree.drop_all().expect("drops");
        // Another tree gets the page of its root.
        let _ = layers.trees.create(TreeId(8)).expect("another tree");
        failed(tree.get(b"key", &mut |_| {}))
    }),
    (Code::TreeNotEmpty, &["tree=7"], || {
        let layers = layers();
        let tree = layers.tree();
        layers.put(&tree, b"key").expect("puts");
        failed(tree.bulk_load().map(|_| ()))
    }),
    (Code::KeysNotAscending, &["tree=7"], || load(&[b"a", b"c", b"b"])),
    (Code::OverflowDamaged, &["page=", "why=a page of another chain"], || {
        forged(closed_with_long_value(), |image| {
            if image[HEADER_BYTES] == KIND_OVERFLOW {
                image[HEADER_BYTES + 16] ^= 1;
            }
        })
    }),
    (Code::IndexGone, &["index=9"], || {
        let layers = layers();
        let options = RunsOptions { generation_bytes: 1 << 20, cache_bytes: 1 << 20 };
        let runs = Runs::create(Scheduler::new(layers.rt.clone()), options, layers.txns.clone())
            .expect("runs");
        let snapshot = layers.txns.snapshot().committed();
        let direction = evenkeel_runs::Direction::Forward;
        failed(runs.cursor(IndexId(9), KeyRange::all(), direction, snapshot).map(|_| ()))
    }),
    (Code::TxnEnded, &["txn=", "state=committed"], || {
        let txns = layers().txns;
        let txn = txns.begin();
        txns.commit(&txn).expect("commits");
        failed(txns.commit(&txn))
    }),
    (Code::LocksFull, &["bytes=", "limit="], locks_full),
    (Code::CatalogDamaged, &["table=t", "what=a key names an unknown column"], || {
        forged(closed(), without_columns)
    }),
    (Code::TableTooNew, &["table=t"], || {
        let db = memory();
        let txn = begin(&db);
        txn.take_snapshot().expect("taken");
        db.truncate("t").expect("empties");
        failed(txn.table("t").expect("there").get(&[Int(1)]).map(|_| ()))
    }),
    (Code::IndexTooNew, &["index=later"], || {
        let db = memory();
        let txn = begin(&db);
        txn.take_snapshot().expect("taken");
        write(&db, |txn| txn.table("t")?.delete(&[Int(1)]).map(|_| ()));
        db.add_indexes("t", &[IndexSpec::new("later", &["name"])]).expect("builds");
        let index = txn.table("t").expect("there").index("later").expect("there");
        let all = evenkeel::Range::ALL;
        failed(index.scan(all, evenkeel::Direction::Forward).map(|_| ()))
    }),
];
