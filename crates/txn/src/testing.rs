//! A transaction table over a real directory, and a table of rows in memory, for tests.

use crate::{RollbackRow, TxnOptions, TxnRef, Txns};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, CommitTable, Lsn, Result, Snapshot, Stamp, TreeId, TxnState};
use evenkeel_format::record::{
    Before, LeafChange, RecordKind, RowKind, RowLogical, cell_flags, encode_revert,
};
use evenkeel_format::undo::UndoRecord;
use evenkeel_io::{RealEnv, Runtime};
use evenkeel_log::{Log, LogOptions, Share};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const TREE: TreeId = TreeId(1);

pub struct World {
    _dir: Option<tempfile::TempDir>,
    pub rt: Arc<Runtime>,
    pub log: Arc<Log>,
    pub txns: Arc<Txns>,
}

pub fn small() -> TxnOptions {
    TxnOptions {
        undo_bytes: 1 << 20,
        lock_bytes: 1 << 20,
        eager_rollback_rows: 1000,
        ..TxnOptions::default()
    }
}

pub fn log_options(epoch: u32) -> LogOptions {
    LogOptions { log_bytes: 4 << 20, buffer_bytes: 256 << 10, epoch }
}

pub fn world(options: TxnOptions) -> World {
    let dir = tempfile::tempdir().expect("a directory");
    let rt = Runtime::new(Arc::new(RealEnv::new(dir.path())));
    let mut world = world_on(rt, options);
    world._dir = Some(dir);
    world
}

impl World {
    pub fn of(rt: Arc<Runtime>, log: Arc<Log>, txns: Arc<Txns>) -> World {
        World { _dir: None, rt, log, txns }
    }
}

/// A new database in any environment.
pub fn world_on(rt: Arc<Runtime>, options: TxnOptions) -> World {
    let log = Log::create(rt.clone(), log_options(1), Lsn(0)).expect("a log");
    let txns = Txns::create(rt.clone(), options);
    txns.attach_log(log.clone());
    World::of(rt, log, txns)
}

/// A cell: flags, stamp, row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub flags: u8,
    pub stamp: Stamp,
    pub row: Vec<u8>,
}

/// Rows in memory that behave like leaves: one cell per key, changed under a mutex together with
/// undo and the log.
pub struct Rows {
    pub txns: Arc<Txns>,
    pub log: Arc<Log>,
    pub cells: Mutex<BTreeMap<Vec<u8>, Cell>>,
}

impl Rows {
    pub fn new(w: &World) -> Rows {
        Rows::over(w.txns.clone(), w.log.clone(), BTreeMap::new())
    }

    pub fn over(txns: Arc<Txns>, log: Arc<Log>, cells: BTreeMap<Vec<u8>, Cell>) -> Rows {
        Rows { txns, log, cells: Mutex::new(cells) }
    }

    fn change(
        &self,
        kind: RecordKind,
        key: &[u8],
        cell: Option<&Cell>,
        logical: &[u8],
    ) -> Result<()> {
        let gone = Cell { flags: cell_flags::REMOVE, stamp: Stamp::default(), row: Vec::new() };
        let cell = cell.unwrap_or(&gone);
        let change = LeafChange {
            page: evenkeel_base::PageNo(1),
            tree: TREE,
            flags: cell.flags,
            stamp: cell.stamp,
            key,
            row: &cell.row,
            logical,
        };
        let mut body = Vec::new();
        change.encode(&mut body);
        let mut space = self.log.reserve(body.len(), Share::User)?;
        self.log.append(&mut space, kind, &[&body]);
        Ok(())
    }

    /// Writes `row` (None: deletes), or returns the transaction that holds the row.
    pub fn try_write(
        &self,
        t: &TxnRef,
        key: &[u8],
        row: Option<&[u8]>,
    ) -> Result<std::result::Result<Stamp, evenkeel_base::TxnId>> {
        self.txns.reserve_undo(t, UndoRecord::encoded_len_max(key.len(), 256))?;
        let mut cells = self.cells.lock();
        while let Some(cell) = cells.get(key).cloned() {
            let holder = cell.stamp.txn;
            match self.txns.state(holder) {
                state if state.is_undecided() && holder != t.id() => return Ok(Err(holder)),
                TxnState::Aborted => self.roll_back_in(&mut cells, cell.stamp)?,
                _ => break,
            }
        }
        let old = cells.get(key).cloned();
        let before = old.as_ref().map(|c| Before { flags: c.flags, stamp: c.stamp, row: &c.row });
        let kind = match row {
            Some(_) if old.is_none() => RowKind::Insert,
            Some(_) => RowKind::Update,
            None => RowKind::Delete,
        };
        let stamp = self.txns.push_undo(t, kind, TREE, key, before.clone());
        let deleted = if row.is_none() { cell_flags::DELETED } else { 0 };
        let flags = cell_flags::STAMPED | deleted;
        let cell = Cell { flags, stamp, row: row.unwrap_or_default().to_vec() };
        let mut logical = Vec::new();
        RowLogical {
            table: evenkeel_base::TableId(1),
            generation: evenkeel_base::Generation(1),
            kind,
            before,
            chains: &[],
            entries: Vec::new(),
        }
        .encode(&cell.row, &mut logical);
        self.change(RecordKind::Row, key, Some(&cell), &logical)?;
        cells.insert(key.to_vec(), cell);
        Ok(Ok(stamp))
    }

    pub fn write(&self, t: &TxnRef, key: &[u8], row: &[u8]) -> Stamp {
        self.try_write(t, key, Some(row)).expect("writes").expect("no other holder")
    }

    fn roll_back_in(&self, cells: &mut BTreeMap<Vec<u8>, Cell>, stamp: Stamp) -> Result<()> {
        let copy = self.txns.undo_copy(stamp)?;
        self.roll_back_record(cells, stamp, &copy.record()?)
    }

    fn roll_back_record(
        &self,
        cells: &mut BTreeMap<Vec<u8>, Cell>,
        stamp: Stamp,
        record: &UndoRecord<'_>,
    ) -> Result<()> {
        if cells.get(record.key).is_none_or(|c| c.stamp != stamp) {
            return Ok(());
        }
        let old = record.before.as_ref().map(|b| Cell {
            flags: b.flags,
            stamp: b.stamp,
            row: b.row.to_vec(),
        });
        let mut logical = Vec::new();
        encode_revert(&mut logical, stamp);
        self.change(RecordKind::Revert, record.key, old.as_ref(), &logical)?;
        match old {
            Some(cell) => cells.insert(record.key.to_vec(), cell),
            None => cells.remove(record.key),
        };
        Ok(())
    }

    /// The version of a key that `snapshot` sees.
    pub fn read(&self, key: &[u8], snapshot: &Snapshot) -> Option<Vec<u8>> {
        let cell = self.cells.lock().get(key).cloned()?;
        if snapshot.sees(cell.stamp, &*self.txns) {
            return (cell.flags & cell_flags::DELETED == 0).then_some(cell.row);
        }
        self.txns.visible_before(TREE, key, cell.stamp, snapshot).expect("undo is there").row
    }

    /// Undoes everything that is to be undone in the background.
    pub fn roll_back_all(&self) {
        while self.txns.rollback_beat(self).expect("reverts") == Beat::More {}
    }
}

impl RollbackRow for Rows {
    fn revert(&self, stamp: Stamp, record: &UndoRecord<'_>) -> Result<()> {
        self.roll_back_record(&mut self.cells.lock(), stamp, record)
    }
}

/// SplitMix64, for seeded loops.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A simulated machine that never switches threads: the test's own thread drives it.
pub fn quiet(seed: u64) -> evenkeel_io::sim::SimOptions {
    evenkeel_io::sim::SimOptions {
        seed,
        step_switch: 0,
        wait_switch: 1 << 40,
        io_switch: 1 << 40,
        latency: false,
    }
}
