//! The chunks of a table in memory: an immutable sorted map behind a pointer, which is replaced
//! when a chunk is made or dropped.
//!
//! A dropped chunk stays listed until no snapshot from before its drop is left. A reader takes its
//! snapshot first and the map afterwards. So a chunk that it finds live has not been dropped before
//! its snapshot, and a chunk that is missing was made or freed outside of it.

use crate::chunks::place::{Era, Place, Placing};
use crate::rules::KeyRules;
use crate::schema::TableDef;
use crate::table::{Table, TableState};
use crate::table_layout::Layout;
use evenkeel_base::sync::RwLock;
use evenkeel_base::{Cause, Error, IndexId, Lsn, Result, TreeId};
use evenkeel_io::{Event, EventLatch, Runtime};
use evenkeel_tree::Tree;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const LIVE: u64 = 0;
/// Its drop is being committed: nobody knows the timestamp yet.
const DROPPING: u64 = u64::MAX;

/// A chunk.
pub(crate) struct TimeChunk {
    pub lo: i64,
    pub hi: i64,
    pub slot: u32,
    /// For each index of the table the index of the chunk.
    pub indexes: Vec<(IndexId, IndexId)>,
    pub tree: Tree,
    /// Made when it is needed.
    table: OnceLock<Arc<Table>>,
    /// `LIVE`, `DROPPING`, or the timestamp of its drop.
    dropped: AtomicU64,
}

impl TimeChunk {
    pub fn new(
        (lo, hi, slot): (i64, i64, u32),
        tree: Tree,
        indexes: Vec<(IndexId, IndexId)>,
    ) -> Arc<TimeChunk> {
        let (table, dropped) = (OnceLock::new(), AtomicU64::new(LIVE));
        Arc::new(TimeChunk { lo, hi, slot, indexes, tree, table, dropped })
    }

    /// Its number, which is never used again.
    pub fn number(&self) -> TreeId {
        self.tree.id()
    }

    fn is_catch_all(&self) -> bool {
        self.lo == i64::MIN || self.hi == i64::MAX
    }

    /// True if the rows of a place are its rows.
    pub fn covers(&self, place: Place) -> bool {
        let in_time = self.lo <= place.time && (place.time < self.hi || self.hi == i64::MAX);
        in_time && (self.is_catch_all() || self.slot == place.slot)
    }

    /// True if rows of a slot may be its rows.
    pub fn may_have_slot(&self, slot: u32) -> bool {
        self.is_catch_all() || self.slot == slot
    }

    /// The table by which its rows are read and written. The caller uses `whole`.
    ///
    /// # Errors
    /// `CatalogDamaged`.
    pub fn table(&self, whole: &Arc<Table>) -> Result<Arc<Table>> {
        if let Some(table) = self.table.get() {
            return Ok(table.clone());
        }
        let rules = whole.chunked().ok_or_else(not_chunked)?.rules;
        let made = nameless(whole, self.tree.clone(), &self.indexes, rules)?;
        Ok(self.table.get_or_init(|| made).clone())
    }

    /// The table, if it was made.
    pub fn table_made(&self) -> Option<&Arc<Table>> {
        self.table.get()
    }

    /// True unless it is dropped or about to be.
    pub fn is_live(&self) -> bool {
        self.dropped.load(Ordering::SeqCst) == LIVE
    }

    /// Whether a snapshot at `at` sees it. Waits while its drop is being committed, which takes no
    /// longer than appending a record.
    pub fn is_seen(&self, rt: &Runtime, changed: &Arc<Event>, at: Lsn) -> bool {
        if self.dropped.load(Ordering::SeqCst) == DROPPING {
            let decided = || self.dropped.load(Ordering::SeqCst) != DROPPING;
            rt.wait_until(changed, Cause::Schema, decided);
        }
        match self.dropped.load(Ordering::SeqCst) {
            LIVE => true,
            at_drop => at_drop > at.0,
        }
    }

    /// The timestamp of its drop.
    pub fn dropped_at(&self) -> Option<Lsn> {
        match self.dropped.load(Ordering::SeqCst) {
            LIVE | DROPPING => None,
            at => Some(Lsn(at)),
        }
    }

    pub fn set_dropping(&self) {
        self.dropped.store(DROPPING, Ordering::SeqCst);
    }

    /// The drop was committed at this timestamp, or failed.
    pub fn set_dropped(&self, at: Option<Lsn>) {
        self.dropped.store(at.map_or(LIVE, |at| at.0), Ordering::SeqCst);
    }
}

fn not_chunked() -> Error {
    Error::internal("chunks of a table that has none")
}

/// A nameless table over a tree and indexes, with the definition of `whole`.
fn nameless(
    whole: &Arc<Table>,
    tree: Tree,
    indexes: &[(IndexId, IndexId)],
    rules: KeyRules,
) -> Result<Arc<Table>> {
    let state = whole.state();
    let def = nameless_def(&state.layout.def, &tree, indexes)?;
    let lock_ids = indexes.iter().map(|(table, own)| (*own, *table)).collect();
    let layout = Layout::new(Arc::new(def), 1, rules)?.locked_as(lock_ids);
    let state = TableState::new(Arc::new(layout), tree).locked_as(state.tree.id());
    let table = Table::new(state, 0, 0);
    table.set_chunk_of(whole);
    Ok(table)
}

fn nameless_def(whole: &TableDef, tree: &Tree, indexes: &[(IndexId, IndexId)]) -> Result<TableDef> {
    let mut def = whole.clone();
    (def.entry.tree, def.entry.root, def.chunking) = (tree.id(), tree.root(), None);
    for index in &mut def.indexes {
        let own = indexes.iter().find(|(table, _)| *table == index.id);
        let own = own.ok_or_else(|| Error::internal("a chunk lacks an index"))?;
        index.id = own.1;
    }
    Ok(def)
}

/// The chunks of a table at one moment.
#[derive(Clone, Default)]
pub(crate) struct ChunkMap {
    /// By slot and time.
    regular: Vec<Arc<TimeChunk>>,
    early: Option<Arc<TimeChunk>>,
    late: Option<Arc<TimeChunk>>,
    /// Dropped, and kept for older snapshots.
    pub dropped: Vec<Arc<TimeChunk>>,
}

impl ChunkMap {
    /// The live chunk of a place.
    pub fn find(&self, placing: &Placing, place: Place) -> Option<&Arc<TimeChunk>> {
        let found = match placing.era(place.time) {
            Era::Early => self.early.as_ref(),
            Era::Late => self.late.as_ref(),
            Era::Regular => {
                let at = (place.slot, place.time);
                let behind = self.regular.partition_point(|c| (c.slot, c.lo) <= at);
                behind.checked_sub(1).map(|at| &self.regular[at])
            }
        };
        found.filter(|chunk| chunk.covers(place))
    }

    /// The live chunks: the early one, the others by slot and time, the late one.
    pub fn live(&self) -> impl Iterator<Item = &Arc<TimeChunk>> {
        self.early.iter().chain(&self.regular).chain(&self.late)
    }

    /// With one more chunk.
    pub fn with(&self, chunk: Arc<TimeChunk>) -> ChunkMap {
        let mut map = self.clone();
        match &chunk {
            _ if chunk.lo == i64::MIN => map.early = Some(chunk),
            _ if chunk.hi == i64::MAX => map.late = Some(chunk),
            _ => {
                let at = map.regular.partition_point(|c| (c.slot, c.lo) < (chunk.slot, chunk.lo));
                map.regular.insert(at, chunk);
            }
        }
        map
    }

    /// With those that are dropped moved to their list.
    pub fn without_dropped(&self) -> ChunkMap {
        let mut map = self.clone();
        map.dropped.extend(self.live().filter(|c| c.dropped_at().is_some()).cloned());
        let is_left = |c: &Arc<TimeChunk>| c.dropped_at().is_none();
        map.regular.retain(is_left);
        map.early = map.early.filter(is_left);
        map.late = map.late.filter(is_left);
        map
    }
}

/// What a chunked table knows of its chunks.
pub(crate) struct Chunked {
    pub placing: Placing,
    pub rules: KeyRules,
    map: RwLock<Arc<ChunkMap>>,
    /// The table's own empty tree as a chunk.
    rest: OnceLock<Arc<Table>>,
    /// Held while a chunk is made.
    pub making: EventLatch,
    /// Notified when a drop is decided.
    pub changed: Arc<Event>,
}

impl Chunked {
    pub fn new(placing: Placing, rules: KeyRules, chunks: Vec<Arc<TimeChunk>>) -> Chunked {
        let map = chunks.into_iter().fold(ChunkMap::default(), |map, chunk| map.with(chunk));
        Chunked {
            placing,
            rules,
            map: RwLock::new(Arc::new(map)),
            rest: OnceLock::new(),
            making: EventLatch::default(),
            changed: Arc::default(),
        }
    }

    /// The chunks as they are now.
    pub fn map(&self) -> Arc<ChunkMap> {
        self.map.read().clone()
    }

    /// Replaces the map by one made from it.
    pub fn change_map(&self, change: impl FnOnce(&ChunkMap) -> ChunkMap) {
        let mut map = self.map.write();
        *map = Arc::new(change(&map));
    }

    /// The table's own tree, which has no rows, as a chunk: the place of keys that have no chunk.
    ///
    /// # Errors
    /// `CatalogDamaged`.
    pub fn rest(&self, whole: &Arc<Table>) -> Result<Arc<Table>> {
        if let Some(rest) = self.rest.get() {
            return Ok(rest.clone());
        }
        let state = whole.state();
        let indexes: Vec<_> = state.layout.def.indexes.iter().map(|i| (i.id, i.id)).collect();
        let made = nameless(whole, state.tree.clone(), &indexes, self.rules)?;
        Ok(self.rest.get_or_init(|| made).clone())
    }

    /// The tables that were made for chunks.
    pub fn tables_made(&self) -> Vec<Arc<Table>> {
        let map = self.map();
        let chunks = map.live().filter_map(|chunk| chunk.table_made());
        chunks.chain(self.rest.get()).cloned().collect()
    }
}
