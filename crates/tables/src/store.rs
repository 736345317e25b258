//! `Store`: all tables of one open database over the layers below. The facade makes the layers,
//! recovers them, and gives them to `Store::create` (a new database) or `Store::open`.
//!
//! Order at open, for the facade:
//! 1. `Txns::restore`, `Runs::restore`; one scan of the log for page redo, `Runs::apply_manifest`
//!    and `Txns::replay_record`;
//! 2. the log of the new epoch, `attach_log` everywhere, `Txns::finish_recovery`;
//! 3. `Store::open`: reads the catalog through undo and makes its indexes known to `runs`;
//! 4. a second scan: [`crate::replay_entries`] of every record; then `Runs::finish_restore`.

use crate::catalog::{self, Catalog};
use crate::chains::Chains;
use crate::open_trees::OpenTrees;
use crate::row_op::RevertOp;
use crate::rules::KeyRules;
use crate::stats_refresh::StatsRefresh;
use crate::table::{Counter, Table, TableState, Use};
use crate::table_layout::Layout;
use crate::transaction::{Access, Isolation, TableTxn};
use evenkeel_base::fault_injection::{Fault, is};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{
    Beat, Cause, Code, CommitTable, Error, Lsn, PageNo, Result, Stamp, TreeId, TxnId, TxnState,
    metrics::Metric,
};
use evenkeel_format::Collations;
use evenkeel_format::record::cell_flags;
use evenkeel_format::undo::UndoRecord;
use evenkeel_io::{EventLatch, Runtime};
use evenkeel_log::{Durability, Log, Share};
use evenkeel_pages::Pages;
use evenkeel_runs::Runs;
use evenkeel_sched::Scheduler;
use evenkeel_tree::{Tree, Trees};
use evenkeel_txn::{Phase, RollbackRow, TxnRef, Txns};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The layers of one database.
#[derive(Clone)]
pub struct StoreParts {
    /// Schedules background work; it has the runtime that all share.
    pub sched: Arc<Scheduler>,
    /// The log.
    pub log: Arc<Log>,
    /// The page space.
    pub pages: Arc<Pages>,
    /// The secondary indexes.
    pub runs: Arc<Runs>,
    /// The transactions.
    pub txns: Arc<Txns>,
    /// Overflow chains that wait to be adopted or freed.
    pub chains: Arc<Chains>,
}

/// Settings.
#[derive(Clone, Copy)]
pub struct StoreOptions {
    /// How long a statement waits for a lock, and a schema change for transactions.
    pub lock_wait: Duration,
    /// Memory of one index build (F4).
    pub build_arena_bytes: usize,
    /// Threads of one index build, its caller included.
    pub build_threads: usize,
    /// Bytes of a long value that go through the log; the rest goes only to its pages (E4).
    pub logged_value_bytes: Option<u64>,
    /// Least interval between automatic refreshes of a table's statistics.
    pub refresh_every: Duration,
    /// The collations of the embedding program.
    pub collations: Option<&'static dyn Collations>,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            lock_wait: Duration::from_secs(50),
            build_arena_bytes: 64 << 20,
            build_threads: 2,
            logged_value_bytes: None,
            refresh_every: Duration::from_secs(10),
            collations: None,
        }
    }
}

/// A user's number and the tables it uses.
type PreparedUse = (u64, Vec<Arc<Table>>);

/// All tables of one database.
pub struct Store {
    pub(crate) rt: Arc<Runtime>,
    pub(crate) sched: Arc<Scheduler>,
    pub(crate) log: Arc<Log>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) txns: Arc<Txns>,
    pub(crate) chains: Arc<Chains>,
    pub(crate) trees: Arc<Trees>,
    lock_wait_ns: AtomicU64,
    build_arena_bytes: AtomicU64,
    pub(crate) build_threads: usize,
    pub(crate) stats_refresh: StatsRefresh,
    pub(crate) refresh_every: Duration,
    pub(crate) rules: KeyRules,
    pub(crate) catalog: Catalog,
    /// Held while a table name is created.
    pub(crate) names: EventLatch,
    pub(crate) open_trees: OpenTrees,
    /// Tables that prepared transactions use, and the user number of each.
    prepared_use: Mutex<HashMap<TxnId, PreparedUse>>,
    next_user: AtomicU64,
    /// Trees made since the start have ids from this one on.
    pub(crate) new_trees_from: AtomicU64,
    /// Called before the catalog gets a table with features that older versions do not know.
    pub(crate) feature_hook: OnceLock<FeatureHook>,
}

/// Records durably that the files may hold these features.
type FeatureHook = Box<dyn Fn(u64) -> Result<()> + Send + Sync>;

impl Store {
    /// A new database: makes the catalog's tree.
    ///
    /// # Errors
    /// Of log and pages.
    pub fn create(parts: StoreParts, options: StoreOptions) -> Result<Arc<Store>> {
        let trees = trees(&parts, &options);
        let tree = trees.create(catalog::TREE)?;
        Store::assemble(parts, trees, options, tree)
    }

    /// Opens an existing database after redo: reads the catalog and makes its indexes known to
    /// `runs`. Transactions may be undecided or not rolled back yet; readers resolve them through
    /// undo.
    ///
    /// # Errors
    /// `CatalogDamaged`, of storage.
    pub fn open(
        parts: StoreParts,
        options: StoreOptions,
        catalog_root: PageNo,
    ) -> Result<Arc<Store>> {
        let trees = trees(&parts, &options);
        let tree = trees.open(catalog::TREE, catalog_root);
        let store = Store::assemble(parts, trees, options, tree)?;
        store.chains.writers_are_gone();
        store.load_catalog()?;
        store.adopt_prepared()?;
        Ok(store)
    }

    /// Transactions found prepared use the tables that they have changed until they are decided:
    /// schema changes wait for them (E2, F1). Rows need nothing: a row's stamp is its lock (D5).
    fn adopt_prepared(&self) -> Result<()> {
        for xid in self.txns.prepared_xids() {
            let txn = self.txns.prepared(&xid)?;
            let user = self.next_user.fetch_add(1, Ordering::Relaxed);
            let trees: HashSet<TreeId> = self.txns.changed_trees(&txn).into_iter().collect();
            let mut used = self.catalog.by_trees(&trees);
            for tree in trees {
                let whole = self.catalog.whole_of(tree);
                if let Some(whole) = whole.filter(|_| !is(Fault::ChunkPreparedIgnored)) {
                    used.extend(self.catalog.by_tree(tree));
                    used.push(whole);
                }
            }
            for table in &used {
                table.enter(&self.rt, user, Use::Write, self.lock_wait(), &|| false)?;
                if table.is_chunk() {
                    table.name_writer(user, txn.clone());
                }
            }
            self.keep_in_use(&txn, user, used);
        }
        Ok(())
    }

    fn assemble(
        parts: StoreParts,
        trees: Arc<Trees>,
        options: StoreOptions,
        tree: Tree,
    ) -> Result<Arc<Store>> {
        let rules = KeyRules::new(parts.pages.page_size(), options.collations);
        let catalog = Catalog::new(tree.clone(), parts.pages.page_size())?;
        let open_trees = OpenTrees::default();
        open_trees.insert(tree);
        let StoreParts { sched, log, pages, runs, txns, chains } = parts;
        let (names, next_user) = (EventLatch::default(), AtomicU64::new(1));
        Ok(Arc::new(Store {
            rt: sched.runtime().clone(),
            sched,
            log,
            pages,
            runs,
            txns,
            chains,
            trees,
            lock_wait_ns: AtomicU64::new(nanos(options.lock_wait)),
            build_arena_bytes: AtomicU64::new(options.build_arena_bytes as u64),
            build_threads: options.build_threads,
            stats_refresh: StatsRefresh::default(),
            refresh_every: options.refresh_every,
            rules,
            catalog,
            names,
            open_trees,
            prepared_use: Mutex::default(),
            next_user,
            new_trees_from: AtomicU64::new(0),
            feature_hook: OnceLock::new(),
        }))
    }

    /// How long statements and schema changes wait, if their transaction says nothing else.
    pub fn lock_wait(&self) -> Duration {
        Duration::from_nanos(self.lock_wait_ns.load(Ordering::Relaxed))
    }

    /// Changes that time for transactions and schema changes that begin from now on.
    pub fn set_lock_wait(&self, time: Duration) {
        self.lock_wait_ns.store(nanos(time), Ordering::Relaxed);
    }

    pub(crate) fn build_arena_bytes(&self) -> usize {
        self.build_arena_bytes.load(Ordering::Relaxed) as usize
    }

    /// Changes the memory of index builds that begin from now on.
    pub fn set_build_arena(&self, bytes: usize) {
        self.build_arena_bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// The environment, metrics and waits it shares with all others.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.rt
    }

    /// Root page of the catalog's tree: the superblock keeps it.
    pub fn catalog_root(&self) -> PageNo {
        self.catalog.table.state().tree.root()
    }

    /// Begins a transaction.
    pub fn begin(self: &Arc<Self>, isolation: Isolation, access: Access) -> TableTxn {
        let number = self.next_user.fetch_add(1, Ordering::Relaxed);
        TableTxn::new(self.clone(), isolation, access, number)
    }

    /// A table by name.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn table(&self, name: &str) -> Result<Arc<Table>> {
        self.catalog.find(name).ok_or_else(|| Error::new(Code::TableMissing).with("table", name))
    }

    /// Names of all tables, sorted.
    pub fn table_names(&self) -> Vec<String> {
        self.catalog.names()
    }

    /// The trees, for their background beats.
    pub fn trees(&self) -> &Arc<Trees> {
        &self.trees
    }

    /// Frees trees that no table owns, left by a crash during a schema change. Called once after
    /// `open`, when the background runs (it takes log space). Returns their number.
    ///
    /// # Errors
    /// Of log and pages; the next start tries again.
    pub fn remove_orphans(&self) -> Result<usize> {
        let below = self.new_trees_from.load(Ordering::SeqCst);
        let mut removed = 0;
        for tree in self.pages.trees() {
            // Trees made since the start have greater ids: ids are logged as used before that.
            if u64::from(tree.0) < below && !self.open_trees.is_known(tree) {
                self.pages.free_tree(tree)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Rolls back some rows of aborted transactions.
    ///
    /// # Errors
    /// Tried again by the next beat.
    pub fn rollback_beat(&self) -> Result<Beat> {
        self.txns.rollback_beat(self)
    }

    /// Commits a prepared transaction.
    ///
    /// # Errors
    /// `XidUnknown`.
    pub fn commit_prepared(&self, xid: &[u8], durability: Durability) -> Result<()> {
        match self.commit_prepared_ordered(xid)? {
            Lsn::ZERO => Ok(()),
            lsn => self.log.wait_commit(lsn, durability),
        }
    }

    /// The ordered part of `commit_prepared` (B5): in effect, not yet durable. Returns its
    /// timestamp.
    ///
    /// # Errors
    /// `XidUnknown`.
    pub fn commit_prepared_ordered(&self, xid: &[u8]) -> Result<Lsn> {
        let txn = self.txns.prepared(xid)?;
        let cts = self.txns.commit(&txn)?;
        self.end_use(txn.id());
        Ok(cts.unwrap_or(Lsn::ZERO))
    }

    /// Rolls a prepared transaction back, as durably as `durability` says: its coordinator then
    /// forgets it, so it must not come back.
    ///
    /// # Errors
    /// `XidUnknown`, `WritesStopped`.
    pub fn rollback_prepared(&self, xid: &[u8], durability: Durability) -> Result<()> {
        match self.rollback_prepared_ordered(xid)? {
            Lsn::ZERO => Ok(()),
            lsn => self.log.wait_commit(lsn, durability),
        }
    }

    /// As `rollback_prepared` without the wait; returns the log position to wait for.
    ///
    /// # Errors
    /// `XidUnknown`.
    pub fn rollback_prepared_ordered(&self, xid: &[u8]) -> Result<Lsn> {
        let txn = self.txns.prepared(xid)?;
        let lsn = self.txns.abort_prepared(&txn)?;
        self.end_use(txn.id());
        Ok(lsn.unwrap_or(Lsn::ZERO))
    }

    /// Keeps tables in use by a prepared transaction until it is decided. It may be decided
    /// already: then the decision has found no use to end. A transaction that has changed nothing
    /// has ended, possibly without an id.
    pub(crate) fn keep_in_use(&self, txn: &TxnRef, user: u64, tables: Vec<Arc<Table>>) {
        if txn.phase() != Phase::Prepared {
            return tables.iter().for_each(|table| table.leave(user));
        }
        self.prepared_use.lock().insert(txn.id(), (user, tables));
        if txn.phase() != Phase::Prepared {
            self.end_use(txn.id());
        }
    }

    /// The tables that a prepared transaction uses; for one found by recovery, those it has
    /// changed.
    ///
    /// # Errors
    /// `XidUnknown`.
    pub fn prepared_tables(&self, xid: &[u8]) -> Result<Vec<String>> {
        let txn = self.txns.prepared(xid)?;
        let uses = self.prepared_use.lock();
        let tables = uses.get(&txn.id()).map_or(&[][..], |(_, tables)| &tables[..]);
        let whole = tables.iter().filter(|table| !table.is_chunk());
        Ok(whole.map(|table| table.state().layout.def.name.clone()).collect())
    }

    fn end_use(&self, txn: TxnId) {
        let Some((user, tables)) = self.prepared_use.lock().remove(&txn) else { return };
        for table in tables {
            table.leave(user);
        }
    }

    /// The layout to read a stored row with. A reader of the newest version, rather than a
    /// snapshot's, may meet a row in a newer format than its state of the table has; the state that
    /// introduced the format was published before any row was written in it.
    #[inline]
    pub(crate) fn layout_for<'s>(&self, state: &'s TableState, row: &[u8]) -> Cow<'s, Arc<Layout>> {
        if !state.layout.is_as_new_as(row)
            && let Some(table) = self.catalog.by_tree(state.tree.id())
        {
            return Cow::Owned(table.layout());
        }
        Cow::Borrowed(&state.layout)
    }

    /// A writer met an aborted change on a row: rolls it back now (B6).
    pub(crate) fn roll_back_on_touch(&self, tree: &Tree, key: &[u8], stamp: Stamp) -> Result<()> {
        // The snapshot keeps the undo of all transactions aborted by now (A5).
        let _guard = self.txns.snapshot();
        let mut still = false;
        tree.get(key, &mut |cell| {
            still = cell.is_some_and(|c| {
                let stamped = c.flags & cell_flags::STAMPED != 0 && c.stamp == stamp;
                stamped
                    && (self.txns.is_dead(stamp) || self.txns.state(stamp.txn) == TxnState::Aborted)
            });
        })?;
        if !still {
            return Ok(());
        }
        self.rt.metrics.add(Metric::RollbacksOnTouch, 1);
        let copy = self.txns.undo_copy(stamp)?;
        self.roll_back_in(tree, stamp, &copy.record()?)
    }

    fn roll_back_in(&self, tree: &Tree, stamp: Stamp, record: &UndoRecord<'_>) -> Result<()> {
        self.free_adopted(tree, stamp, record)?;
        let before = record.before.as_ref().map(|b| (b.flags, b.stamp, b.row));
        let bytes = record.key.len() + before.map_or(0, |b| b.2.len()) + 128;
        let mut reserved = self.log.reserve(bytes, Share::System)?;
        let (logical, chains) = (Vec::new(), &*self.chains);
        let mut op = RevertOp { stamp, before, logical, chains, txns: &self.txns };
        tree.write(record.key, &mut reserved, &mut op)?;
        Ok(())
    }

    /// The next number of a counter, whose high-water mark in the catalog is raised in steps. The
    /// largest possible number means that none is left, because no mark lies above it.
    pub(crate) fn next_number(
        &self,
        counter: &Counter,
        raise: &dyn Fn(u64) -> Result<()>,
    ) -> Result<u64> {
        let next = |number: u64| number.checked_add(1);
        match counter.next.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next) {
            Ok(number) => self.raise_above(counter, number, raise).map(|()| number),
            Err(spent) => Ok(spent),
        }
    }

    /// Ensures that `number` lies below the logged high-water mark.
    pub(crate) fn raise_above(
        &self,
        counter: &Counter,
        number: u64,
        raise: &dyn Fn(u64) -> Result<()>,
    ) -> Result<()> {
        while number >= counter.logged.load(Ordering::SeqCst) {
            let _raising = counter.raise.lock(&self.rt, Cause::Schema);
            let logged = counter.logged.load(Ordering::SeqCst);
            if number < logged {
                break;
            }
            let step = (number / 4).clamp(64, 1 << 16);
            let high = number.saturating_add(step);
            raise(high)?;
            counter.logged.store(high, Ordering::SeqCst);
        }
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn trees(parts: &StoreParts, options: &StoreOptions) -> Arc<Trees> {
    let StoreParts { sched, log, pages, txns, .. } = parts.clone();
    let trees = Trees::new(sched.runtime().clone(), pages, log, txns);
    options.logged_value_bytes.inspect(|bytes| trees.set_logged_value_bytes(*bytes));
    trees
}

impl RollbackRow for Store {
    fn revert(&self, stamp: Stamp, record: &UndoRecord<'_>) -> Result<()> {
        match self.open_trees.enter(record.tree) {
            Some(_)
                if evenkeel_base::fault_injection::is(
                    evenkeel_base::fault_injection::Fault::UndoStepSkipped,
                ) =>
            {
                Ok(())
            }
            Some(tree) => self.roll_back_in(&tree, stamp, record),
            // The table was dropped.
            None => Ok(()),
        }
    }

    fn lock_tree(&self, tree: TreeId) -> TreeId {
        self.catalog.whole_of(tree).map_or(tree, |whole| whole.state().tree.id())
    }
}
