//! A table handle: its present state (layout and tree), the schema epoch that row operations pin in
//! their final step (F1), and the transactions that use it.
//!
//! Only DDL publishes a new state, one statement at a time per database. A row operation loads the
//! state at its start and pins its epoch under the leaf latch; if the epoch has moved on meanwhile,
//! the operation starts again with the new state.

use crate::chunks::map::Chunked;
use crate::estimate::RowsKnown;
use crate::foreign::LinkList;
use crate::gate::SchemaGate;
use crate::rules::KeyRules;
use crate::schema::TableDef;
use crate::statistics::Statistics;
use crate::stats_refresh::Changes;
use crate::table_layout::Layout;
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::sync::{Mutex, RwLock};
use evenkeel_base::{Cause, Code, Error, IndexId, Lsn, Result, TableId, TreeId, TxnId};
use evenkeel_io::{Event, EventLatch, Runtime};
use evenkeel_tree::Tree;
use evenkeel_txn::{LockSpace, TxnRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// A schema change, or a use of a table, has waited in vain.
pub(crate) fn busy(waited: Duration) -> Error {
    Error::new(Code::TableBusy).with("waited_ms", waited.as_millis())
}

/// The thread that loads a table uses it otherwise.
fn used_by_loader() -> Error {
    let why = "the thread that loads the table uses it, or holds a transaction that does";
    Error::new(Code::TableBusy).with("why", why)
}

/// How a schema change waits for the transactions that use its table and for other schema changes,
/// and what it may leave behind.
#[derive(Clone, Copy, Default)]
pub struct SchemaWait<'a> {
    /// The user that is not waited for.
    pub(crate) own: Option<u64>,
    /// The timeout; `None`: the database's option.
    pub timeout: Option<Duration>,
    /// Ends the wait with `StatementCancelled` by returning true; called each tenth of a second.
    pub cancelled: Option<&'a dyn Fn() -> bool>,
    /// A table that foreign keys of other tables refer to may be dropped or emptied: keys to a
    /// dropped one wait for a table of its name.
    pub leaves_children: bool,
}

/// Interval at which a wait checks for cancellation.
const CANCEL_EVERY: Duration = Duration::from_millis(100);

impl SchemaWait<'_> {
    /// # Errors
    /// `StatementCancelled`.
    pub(crate) fn check_cancel(&self) -> Result<()> {
        match self.cancelled.is_some_and(|cancelled| cancelled()) {
            true => Err(Error::new(Code::StatementCancelled)),
            false => Ok(()),
        }
    }

    /// Calls `wait`, which waits for the given time, until it returns a value. `wait` is called at
    /// least once, so a change that need not wait succeeds even when cancelled.
    ///
    /// # Errors
    /// `TableBusy` after `timeout`, `StatementCancelled`.
    pub(crate) fn in_steps<T>(
        &self,
        timeout: Duration,
        mut wait: impl FnMut(Duration) -> Option<T>,
    ) -> Result<T> {
        let mut left = timeout;
        loop {
            let step = self.cancelled.map_or(left, |_| left.min(CANCEL_EVERY));
            if let Some(done) = wait(step) {
                return Ok(done);
            }
            left = left.saturating_sub(step);
            self.check_cancel()?;
            if left.is_zero() {
                return Err(busy(timeout));
            }
        }
    }
}

/// The state with which a row operation works.
pub struct TableState {
    /// The definition, compiled.
    pub layout: Arc<Layout>,
    /// The clustered tree.
    pub tree: Tree,
    /// The tree under whose id rows are locked: in a chunk that of its table.
    locks: TreeId,
}

impl TableState {
    /// The state of a table with this layout and tree.
    pub(crate) fn new(layout: Arc<Layout>, tree: Tree) -> TableState {
        let locks = tree.id();
        TableState { layout, tree, locks }
    }

    /// As the state of a chunk of the table that has this tree.
    pub(crate) fn locked_as(self, locks: TreeId) -> TableState {
        TableState { locks, ..self }
    }

    /// The next state, with another definition of the same columns and indexes.
    pub(crate) fn with_definition(&self, def: TableDef, rules: KeyRules) -> Result<TableState> {
        let layout = Layout::new(Arc::new(def), self.layout.epoch + 1, rules)?;
        let layout = Arc::new(layout.locked_as(self.layout.lock_ids().to_vec()));
        Ok(TableState { layout, tree: self.tree.clone(), locks: self.locks })
    }

    /// Where its rows are locked. The chunks of a table share one space, in which every key lies in
    /// at most one chunk.
    #[inline]
    pub(crate) fn lock_space(&self) -> LockSpace {
        LockSpace::Tree(self.locks)
    }
}

/// A number that is handed out and never goes back; its high-water mark is in the catalog.
#[derive(Default)]
pub(crate) struct Counter {
    /// The next number.
    pub next: AtomicU64,
    /// Numbers below this may be handed out; the catalog has this value.
    pub logged: AtomicU64,
    /// Held while `logged` is raised.
    pub raise: EventLatch,
}

impl Counter {
    /// A counter that continues at `high`, which must be the catalog's value (or the first number).
    pub fn new(high: u64) -> Counter {
        let high = AtomicU64::new(high.max(1));
        let logged = AtomicU64::new(high.load(Ordering::Relaxed));
        Counter { next: high, logged, raise: EventLatch::default() }
    }

    /// Continues at `high`.
    pub fn restart(&self, high: u64) {
        self.next.store(high, Ordering::SeqCst);
        self.logged.store(high, Ordering::SeqCst);
    }
}

/// How a transaction uses a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// The transaction reads.
    Read,
    /// The transaction may have changed rows.
    Write,
}

#[derive(Default)]
struct Users {
    /// A schema change keeps new transactions out.
    closed: bool,
    /// Dropped: no transaction may use it again.
    gone: bool,
    /// How each transaction uses it, and the thread that used it first.
    by_txn: BTreeMap<u64, (Use, ThreadMark)>,
    /// The thread that loads it and would wait for itself.
    loader: Option<ThreadMark>,
    /// Of a chunk: the transactions that may have changed or locked rows.
    writers: BTreeMap<u64, TxnRef>,
}

/// The present thread, among those that run.
type ThreadMark = usize;

fn this_thread() -> ThreadMark {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

const BUILD_OPEN: u8 = 0;
const BUILD_FAILED: u8 = 1;
const BUILD_DECIDED: u8 = 2;

/// A table of an open database.
pub struct Table {
    id: TableId,
    state: RwLock<Arc<TableState>>,
    gate: SchemaGate,
    pins_gone: Arc<Event>,
    users: Mutex<Users>,
    users_changed: Arc<Event>,
    /// Older snapshots do not see its rows, which were in another tree or in another table. Set
    /// while no transaction uses the table, or before it has a name.
    born: AtomicU64,
    pub(crate) auto: Counter,
    pub(crate) hidden: Counter,
    /// The mark of the table's last change, 0 for none (`TableChange::mark`).
    pub(crate) mark: AtomicU64,
    /// One schema change at a time.
    pub(crate) ddl: EventLatch,
    /// The state of a build in the table: `BUILD_*`.
    build: AtomicU8,
    /// The known statistics of its keys.
    pub(crate) statistics: Statistics,
    /// Changes since the statistics were made.
    pub(crate) changes: Changes,
    /// The last estimate of its rows.
    pub(crate) rows_known: RowsKnown,
    /// The last insert met a row with its key: the next one may, too.
    pub(crate) meets_rows: AtomicBool,
    /// The table need not survive a crash (`Store::create_temporary_table`). The mark is in memory
    /// only: after a start the table is an ordinary one until the server drops it by its name.
    temporary: AtomicBool,
    /// The foreign keys that concern it.
    pub(crate) links: LinkList,
    /// Of a chunked table: its chunks. Set before the table has a name.
    chunked: OnceLock<Box<Chunked>>,
    /// Of a chunk: its table. Set before any transaction uses it.
    chunk_of: OnceLock<Weak<Table>>,
}

impl Table {
    pub(crate) fn new(state: TableState, auto: u64, hidden: u64) -> Arc<Table> {
        Arc::new(Table {
            id: state.layout.def.id,
            gate: SchemaGate::new(state.layout.epoch),
            state: RwLock::new(Arc::new(state)),
            pins_gone: Arc::default(),
            users: Mutex::default(),
            users_changed: Arc::default(),
            born: AtomicU64::new(0),
            auto: Counter::new(auto),
            hidden: Counter::new(hidden),
            mark: AtomicU64::new(0),
            ddl: EventLatch::default(),
            build: AtomicU8::new(BUILD_OPEN),
            statistics: Statistics::default(),
            changes: Changes::default(),
            rows_known: RowsKnown::default(),
            meets_rows: AtomicBool::new(false),
            temporary: AtomicBool::new(false),
            links: LinkList::default(),
            chunked: OnceLock::new(),
            chunk_of: OnceLock::new(),
        })
    }

    /// Makes it a chunked table.
    pub(crate) fn set_chunked(&self, chunked: Chunked) {
        self.changes.ignore();
        assert!(self.chunked.set(Box::new(chunked)).is_ok(), "a table is chunked once");
    }

    /// Its chunks, if it is a chunked table.
    #[inline]
    pub(crate) fn chunked(&self) -> Option<&Chunked> {
        self.chunked.get().map(|chunked| &**chunked)
    }

    /// True if it is a chunked table.
    pub fn is_chunked(&self) -> bool {
        self.chunked.get().is_some()
    }

    /// The error of an operation that a chunked table does not have.
    pub(crate) fn refused_as_chunked(&self) -> Error {
        Error::new(Code::ChunkedTable).with("table", &self.layout().def.name)
    }

    /// The trees that hold its rows: its own, and those of its chunks. The caller keeps a snapshot,
    /// so that none is freed meanwhile.
    pub fn trees(&self) -> Vec<Tree> {
        let mut trees = vec![self.state().tree.clone()];
        if let Some(chunked) = self.chunked() {
            trees.extend(chunked.map().live().map(|chunk| chunk.tree.clone()));
        }
        trees
    }

    /// The ids under which the entries of an index are kept: its own, and those of the chunks.
    pub fn index_ids(&self, index: IndexId) -> Vec<IndexId> {
        let mut ids = vec![index];
        if let Some(chunked) = self.chunked() {
            let map = chunked.map();
            let all = map.live().flat_map(|chunk| &chunk.indexes);
            ids.extend(all.filter(|(of_table, _)| *of_table == index).map(|(_, own)| *own));
        }
        ids
    }

    /// Makes it a chunk of a table.
    pub(crate) fn set_chunk_of(&self, table: &Arc<Table>) {
        self.changes.ignore();
        assert!(self.chunk_of.set(Arc::downgrade(table)).is_ok(), "a chunk has one table");
    }

    /// True if it is a chunk.
    #[inline]
    pub(crate) fn is_chunk(&self) -> bool {
        self.chunk_of.get().is_some()
    }

    /// The table of a chunk.
    pub(crate) fn whole(&self) -> Option<Arc<Table>> {
        self.chunk_of.get().and_then(Weak::upgrade)
    }

    /// Its id.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// The mark of the table's last change, 0 for none (`TableChange::mark`).
    pub fn mark(&self) -> u64 {
        self.mark.load(Ordering::SeqCst)
    }

    /// True if the table need not survive a crash.
    pub(crate) fn is_temporary(&self) -> bool {
        self.temporary.load(Ordering::SeqCst)
    }

    /// Sets that; before the table has a name, or when it is to be kept after all.
    pub(crate) fn set_temporary(&self, is: bool) {
        self.temporary.store(is, Ordering::SeqCst);
    }

    /// Its present state.
    pub fn state(&self) -> Arc<TableState> {
        self.state.read().clone()
    }

    /// Its present layout.
    pub fn layout(&self) -> Arc<Layout> {
        self.state.read().layout.clone()
    }

    /// Only snapshots from `born` on may read it; zero: all snapshots.
    pub(crate) fn set_born(&self, born: Lsn) {
        self.born.store(born.0, Ordering::SeqCst);
    }

    /// Checks that a snapshot at `at` may read it. # Errors: `TableTooNew`.
    pub(crate) fn check_readable(&self, at: Lsn) -> Result<()> {
        match self.born.load(Ordering::SeqCst) <= at.0 {
            true => Ok(()),
            false => Err(Error::new(Code::TableTooNew).with("table", &self.layout().def.name)),
        }
    }

    /// True if recent inserts have met rows with their keys: then a look before the next row is
    /// prepared is worth it.
    pub(crate) fn expects_rows_there(&self) -> bool {
        self.meets_rows.load(Ordering::Relaxed)
    }

    /// Records whether the last insert met a row.
    pub(crate) fn expect_rows_there(&self, met: bool) {
        if self.expects_rows_there() != met {
            self.meets_rows.store(met, Ordering::Relaxed);
        }
    }

    /// True if a later state than this one is in force.
    pub(crate) fn has_moved_on(&self, from: &TableState) -> bool {
        !self.gate.is_open(from.layout.epoch)
    }

    /// Pins the epoch of a row operation's final step; `None` if the schema has changed.
    pub(crate) fn pin(&self, epoch: u64) -> Option<EpochPin<'_>> {
        let entered = self.gate.enter(epoch);
        let pin = EpochPin { table: self, epoch };
        entered.then_some(pin)
    }

    /// Publishes a new state and waits until no row operation is in its final step with the old
    /// one (F1: the barrier).
    pub(crate) fn publish(&self, rt: &Runtime, state: TableState) {
        let old = {
            let mut present = self.state.write();
            let old = present.layout.epoch;
            let epoch = state.layout.epoch;
            assert!(epoch == old + 1, "schema changes of a table are made one at a time");
            *present = Arc::new(state);
            self.gate.open(epoch);
            old
        };
        rt.wait_until(&self.pins_gone, Cause::Schema, || self.gate.is_empty(old));
    }

    /// Registers a transaction's use. While a schema change keeps the table closed, waits.
    ///
    /// # Errors
    /// `TableBusy` when that takes too long, `StatementCancelled`, `TableMissing` once it is
    /// dropped.
    pub(crate) fn enter(
        &self,
        rt: &Runtime,
        txn: u64,
        how: Use,
        timeout: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        let (mut gone, mut loads) = (false, false);
        let mut ready = || {
            let mut users = self.users.lock();
            gone = users.gone;
            let known = users.by_txn.contains_key(&txn);
            loads = users.loader.is_some_and(|loader| !known && loader == this_thread());
            if gone || loads || (users.closed && !known) {
                return gone || loads;
            }
            let (entry, _) = users.by_txn.entry(txn).or_insert_with(|| (how, this_thread()));
            *entry = (*entry).max(how);
            true
        };
        // Mostly nothing is in the way, and no clock is asked.
        let waited = match ready() {
            true => Ok(()),
            false => {
                let wait = SchemaWait { cancelled: Some(cancelled), ..SchemaWait::default() };
                wait.in_steps(timeout, |step| {
                    let event = &self.users_changed;
                    rt.wait_at_most(event, Cause::Schema, step, &mut ready).then_some(())
                })
            }
        };
        let named = |error: Error| error.with("table", &self.layout().def.name);
        match (gone, loads) {
            (true, _) => Err(named(Error::new(Code::TableMissing))),
            (_, true) => Err(named(used_by_loader())),
            _ => waited.map_err(named),
        }
    }

    fn busy(&self, waited: Duration) -> Error {
        busy(waited).with("table", &self.layout().def.name)
    }

    /// A transaction has ended.
    pub(crate) fn leave(&self, txn: u64) {
        let mut users = self.users.lock();
        users.by_txn.remove(&txn);
        users.writers.remove(&txn);
        drop(users);
        self.users_changed.notify();
    }

    /// Names a transaction that has entered this chunk to change or lock rows.
    pub(crate) fn name_writer(&self, txn: u64, named: TxnRef) {
        self.users.lock().writers.insert(txn, named);
    }

    /// Keeps new transactions out of a chunk, if none inside may have changed or locked rows;
    /// otherwise it stays open, and the result names one of them.
    pub(crate) fn close_unless_written(&self) -> Option<TxnId> {
        let mut users = self.users.lock();
        let writer = users.by_txn.iter().find(|(_, (how, _))| *how == Use::Write);
        let writer = writer.map(|(txn, _)| *txn);
        let Some(writer) = writer.filter(|_| !fault_injection::is(Fault::ChunkWritersIgnored))
        else {
            users.closed = !fault_injection::is(Fault::ChunkNotClosed);
            return None;
        };
        Some(users.writers.get(&writer).map_or(TxnId::ZERO, |txn| txn.id()))
    }

    /// As `close`, for a load by this thread, which calls the caller's code meanwhile. If that uses
    /// the table, it fails at once instead of waiting for itself.
    ///
    /// # Errors
    /// As `close`.
    pub(crate) fn close_for_load(
        &self,
        rt: &Runtime,
        timeout: Duration,
        wait: &SchemaWait<'_>,
    ) -> Result<()> {
        let here = this_thread();
        if self.users.lock().by_txn.values().any(|(_, thread)| *thread == here) {
            return Err(used_by_loader().with("table", &self.layout().def.name));
        }
        self.close(rt, timeout, wait)?;
        self.users.lock().loader = Some(here);
        Ok(())
    }

    /// # Errors
    /// `TableBusy` if this thread is loading the table: it would wait for itself.
    pub(crate) fn check_not_loading(&self) -> Result<()> {
        match self.users.lock().loader {
            Some(loader) if loader == this_thread() => {
                Err(used_by_loader().with("table", &self.layout().def.name))
            }
            _ => Ok(()),
        }
    }

    /// Keeps new transactions out and waits until those inside have ended.
    ///
    /// # Errors
    /// `TableBusy`, `StatementCancelled`: the table is open again.
    pub(crate) fn close(
        &self,
        rt: &Runtime,
        timeout: Duration,
        wait: &SchemaWait<'_>,
    ) -> Result<()> {
        let timeout = wait.timeout.unwrap_or(timeout);
        self.users.lock().closed = true;
        let alone = || self.users.lock().by_txn.keys().all(|txn| Some(*txn) == wait.own);
        let closed = wait.in_steps(timeout, |step| {
            rt.wait_at_most(&self.users_changed, Cause::Schema, step, alone).then_some(())
        });
        closed.map_err(|error| {
            self.reopen(false);
            error.with("table", &self.layout().def.name)
        })
    }

    /// True once it is dropped.
    pub(crate) fn is_gone(&self) -> bool {
        self.users.lock().gone
    }

    /// Lets transactions in again; with `gone`, each gets an error that the table is gone.
    pub(crate) fn reopen(&self, gone: bool) {
        let mut users = self.users.lock();
        users.closed = false;
        users.loader = None;
        users.gone = gone;
        drop(users);
        self.users_changed.notify();
    }

    /// Waits until every transaction that may have changed the table by now has ended; new ones do
    /// not wait (F1). Each is waited for as for a lock: `timeout` counts from the end of the last
    /// of them. `check` may end the wait with an error; it is called at each notification of
    /// `users_event`.
    ///
    /// # Errors
    /// `TableBusy`, or the error of `check`.
    pub(crate) fn wait_writers(
        &self,
        rt: &Runtime,
        timeout: Duration,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let left = |of: Option<&BTreeSet<u64>>| -> BTreeSet<u64> {
            let users = self.users.lock();
            let writers =
                users.by_txn.iter().filter(|(_, (how, _))| *how == Use::Write).map(|(t, _)| *t);
            writers.filter(|t| of.is_none_or(|of| of.contains(t))).collect()
        };
        let mut before = left(None);
        while !before.is_empty() {
            let (mut stopped, mut now) = (None, BTreeSet::new());
            let waited = rt.wait_at_most(&self.users_changed, Cause::Schema, timeout, || {
                stopped = check().err();
                now = left(Some(&before));
                stopped.is_some() || now.len() < before.len()
            });
            if let Some(error) = stopped {
                return Err(error);
            }
            if !waited {
                return Err(self.busy(timeout));
            }
            before = now;
        }
        check()
    }

    /// Notified when a transaction that used the table has ended.
    pub(crate) fn users_event(&self) -> Arc<Event> {
        self.users_changed.clone()
    }

    /// A change met a duplicate in a unique index that is being proved (F3): the build fails. False
    /// if it is already decided that the index becomes valid: then the change fails.
    pub(crate) fn fail_build(&self) -> bool {
        let open = BUILD_OPEN;
        let set = |to| self.build.compare_exchange(open, to, Ordering::SeqCst, Ordering::SeqCst);
        set(BUILD_FAILED).map_or_else(|now| now == BUILD_FAILED, |_| true)
    }

    /// True if a change met such a duplicate.
    pub(crate) fn build_failed(&self) -> bool {
        self.build.load(Ordering::SeqCst) == BUILD_FAILED
    }

    /// Decides that the build becomes valid; false if a change has met a duplicate.
    pub(crate) fn decide_build(&self) -> bool {
        let (open, decided) = (BUILD_OPEN, BUILD_DECIDED);
        self.build.compare_exchange(open, decided, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Clears the state for the next build.
    pub(crate) fn clear_build(&self) {
        self.build.store(BUILD_OPEN, Ordering::SeqCst);
    }
}

/// Holds a schema epoch during the final step of a row operation.
pub(crate) struct EpochPin<'a> {
    table: &'a Table,
    epoch: u64,
}

impl Drop for EpochPin<'_> {
    fn drop(&mut self) {
        if self.table.gate.leave(self.epoch) {
            self.table.pins_gone.notify();
        }
    }
}
