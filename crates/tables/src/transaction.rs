//! A transaction of one session: isolation, statement marks, savepoints, commit and rollback.
//! Dropping it rolls back. Row work is in `write`, `read` and `scan`.

use crate::buffers::Held;
use crate::chunks::map::TimeChunk;
use crate::foreign::CascadeStep;
use crate::liveness::Liveness;
use crate::locker::{Growing, Locker};
use crate::read::ReadView;
use crate::savepoints::Savepoints;
use crate::store::Store;
use crate::table::{SchemaWait, Table, Use};
use evenkeel_base::{
    Code, CommitTable, Error, Kind, Lsn, Result, Snapshot, Stamp, TxnId, TxnState, UndoNo,
};
use evenkeel_log::Durability;
use evenkeel_runs::Sees;
use evenkeel_txn::{Deadline, LockSpace, Mode, Phase, RolledBack, SnapshotGuard, TxnRef};
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Isolation level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Reads the newest versions, decided or not.
    ReadUncommitted,
    /// A snapshot per statement.
    ReadCommitted,
    /// One snapshot, taken at the first plain read; first updater wins, unless
    /// `set_snapshot_isolation` says otherwise.
    #[default]
    RepeatableRead,
    /// Reads lock what they read.
    Serializable,
}

/// Whether the transaction may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The transaction may write.
    #[default]
    ReadWrite,
    /// Locking reads and changes fail.
    ReadOnly,
}

/// A transaction.
pub struct TableTxn {
    pub(crate) store: Arc<Store>,
    pub(crate) inner: TxnRef,
    pub(crate) isolation: Isolation,
    access: Access,
    /// Plain reads lock: those of a SERIALIZABLE transaction that may write.
    reads_lock: bool,
    /// The lock that a read by key takes then.
    get_mode: Mode,
    /// Names it among the users of tables.
    number: u64,
    snapshot: Option<Arc<SnapshotGuard>>,
    /// READ COMMITTED, between `begin_statement` and `end_statement`: the snapshot of the
    /// statement, from its first plain read on. Conflicts are not judged by it.
    statement: Option<Option<Arc<SnapshotGuard>>>,
    /// Where the statement of `begin_statement` began.
    statement_at: UndoNo,
    used: SmallVec<[(Arc<Table>, Use); 2]>,
    pub(crate) buffers: Held,
    savepoints: Savepoints,
    /// Rows that the operation under way has waited for, and holds.
    pub(crate) waited: SmallVec<[(LockSpace, Vec<u8>); 1]>,
    /// Rows that it has changed, if locks are held.
    pub(crate) changed: SmallVec<[(LockSpace, Vec<u8>); 1]>,
    lock_wait: Duration,
    /// Rows newer than its snapshot are conflicts (A6).
    judges_conflicts: bool,
    /// Rows that break a foreign key are refused.
    pub(crate) checks_foreign_keys: bool,
    /// The operations above the present one, of a cascade.
    pub(crate) cascade: Vec<CascadeStep>,
    /// The chunk entered last, with its table.
    pub(crate) last_chunk: Option<(Arc<Table>, Arc<TimeChunk>, Arc<Table>)>,
    /// Chunks that the statement has made.
    pub(crate) new_chunks: usize,
    /// A statement may make only so many.
    pub(crate) limits_chunks: bool,
    /// Shared with its scans, once it has had one.
    liveness: Option<Liveness>,
    ended: bool,
}

impl TableTxn {
    /// The present clustered key bytes of the row that was inserted or updated last.
    pub fn last_key(&self) -> &[u8] {
        self.buffers.key()
    }

    pub(crate) fn new(
        store: Arc<Store>,
        isolation: Isolation,
        access: Access,
        number: u64,
    ) -> TableTxn {
        let inner = store.txns.begin();
        let lock_wait = store.lock_wait();
        TableTxn {
            store,
            inner,
            isolation,
            access,
            reads_lock: isolation == Isolation::Serializable && access == Access::ReadWrite,
            get_mode: Mode::Shared,
            number,
            snapshot: None,
            statement: None,
            statement_at: UndoNo::ZERO,
            used: SmallVec::new(),
            buffers: Held::default(),
            savepoints: Savepoints::default(),
            waited: SmallVec::new(),
            changed: SmallVec::new(),
            lock_wait,
            judges_conflicts: true,
            checks_foreign_keys: true,
            cascade: Vec::new(),
            last_chunk: None,
            new_chunks: 0,
            limits_chunks: true,
            liveness: None,
            ended: false,
        }
    }

    /// Its id; zero before its first write or lock.
    pub fn id(&self) -> TxnId {
        self.inner.id()
    }

    /// The shared part, for cancelling it from another thread.
    pub fn handle(&self) -> TxnRef {
        self.inner.clone()
    }

    /// The store it works in.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Sets how long it waits for locks.
    pub fn set_lock_wait(&mut self, lock_wait: Duration) {
        self.lock_wait = lock_wait;
    }

    /// Off: changing or locking a row newer than the snapshot is no conflict. The newest committed
    /// version is changed or locked, and visible once it was changed. Plain reads keep their
    /// snapshot otherwise. On at first (A6).
    pub fn set_snapshot_isolation(&mut self, on: bool) {
        self.judges_conflicts = on;
    }

    /// Off: rows are written and deleted without a look at foreign keys. A check of the table finds
    /// the rows that then refer to nothing. On at first.
    pub fn set_foreign_key_checks(&mut self, on: bool) {
        self.checks_foreign_keys = on;
    }

    /// Off: a statement may make any number of chunks, because it copies a whole table. On at
    /// first.
    pub fn set_chunk_limit(&mut self, on: bool) {
        self.limits_chunks = on;
    }

    /// True once it was committed or rolled back.
    pub fn is_ended(&self) -> bool {
        self.check_open().is_err()
    }

    pub(crate) fn lock_wait(&self) -> Duration {
        self.lock_wait
    }

    pub(crate) fn deadline(&self) -> Deadline {
        self.store.txns.deadline(self.lock_wait)
    }

    fn check_open(&self) -> Result<()> {
        // A scan of the transaction may have met a deadlock.
        match self.ended || self.inner.phase() != Phase::Open {
            true => Err(Error::new(Code::TransactionEnded)),
            false => Ok(()),
        }
    }

    /// Records that it uses a table; waits while a schema change keeps the table closed.
    /// A chunked table is refused: what it can do is sent to its chunks before (`chunks`).
    pub(crate) fn enter(&mut self, table: &Arc<Table>, how: Use) -> Result<()> {
        if table.is_chunked() {
            return Err(table.refused_as_chunked());
        }
        // The table of the chunk is in use, and the reader's snapshot keeps the chunk.
        if how == Use::Read && table.is_chunk() {
            return self.check_open();
        }
        self.enter_with(table, how, &SchemaWait::default())
    }

    /// As `enter`, for a caller that sends the operation to chunks.
    pub(crate) fn enter_chunked(&mut self, table: &Arc<Table>, how: Use) -> Result<()> {
        self.enter_with(table, how, &SchemaWait::default())
    }

    fn enter_with(&mut self, table: &Arc<Table>, how: Use, wait: &SchemaWait<'_>) -> Result<()> {
        if how == Use::Write && self.access == Access::ReadOnly {
            return Err(Error::new(Code::OpenedReadOnly).with("what", "transaction"));
        }
        self.check_open()?;
        let known = self.used.iter_mut().find(|(t, _)| Arc::ptr_eq(t, table));
        if known.as_ref().is_some_and(|(_, have)| *have >= how) {
            return Ok(());
        }
        let cancelled = || self.inner.check_cancel().and_then(|()| wait.check_cancel()).is_err();
        let timeout = wait.timeout.unwrap_or(self.lock_wait);
        table.enter(&self.store.rt, self.number, how, timeout, &cancelled)?;
        if table.is_chunk() {
            table.name_writer(self.number, self.inner.clone());
        }
        match known {
            Some((_, have)) => *have = how,
            None => self.used.push((table.clone(), how)),
        }
        Ok(())
    }

    /// Uses a table from now on: until the transaction ends, no schema change moves or removes its
    /// indexes or columns, so positions found in its layout stay right.
    ///
    /// # Errors
    /// `TableBusy`, `TableMissing`, `TransactionEnded`.
    pub fn use_table(&mut self, table: &Arc<Table>) -> Result<()> {
        self.enter_chunked(table, Use::Read)
    }

    /// As `use_table`, with the caller's wait.
    ///
    /// # Errors
    /// As `use_table`; `StatementCancelled`.
    pub(crate) fn use_table_with(
        &mut self,
        table: &Arc<Table>,
        wait: &SchemaWait<'_>,
    ) -> Result<()> {
        self.enter_with(table, Use::Read, wait)
    }

    /// Leaves the tables that it has used, if it has neither changed nor locked anything: no schema
    /// change waits for it until it uses them again. Its snapshot stays. It must have no open scan.
    /// False if it keeps using them.
    pub fn leave_tables(&mut self) -> bool {
        if self.inner.id() != TxnId(0) {
            return false;
        }
        self.last_chunk = None;
        for (table, _) in self.used.drain(..) {
            table.leave(self.number);
        }
        true
    }

    /// Leaves one table, if it has neither changed nor locked anything in it: schema changes no
    /// longer wait for it until it uses the table again. It must have no open scan of the table.
    pub fn leave_table(&mut self, table: &Arc<Table>) {
        let is_read =
            |(used, how): &(Arc<Table>, Use)| Arc::ptr_eq(used, table) && *how == Use::Read;
        if self.used.iter().any(is_read) {
            self.used.retain(|used| !is_read(used));
            table.leave(self.number);
        }
    }

    /// Drops a table that it may have used itself; it must have no open scan of the table. The call
    /// waits for other transactions only. The drop is not part of the transaction: it stays even
    /// after a rollback, and all changes in the table are lost. A transaction that a deadlock has
    /// ended may still drop tables.
    ///
    /// # Errors
    /// As `Store::drop_table_with`.
    pub fn drop_table(&mut self, name: &str, wait: &SchemaWait<'_>) -> Result<()> {
        if self.is_ended() {
            // If a scan met the deadlock, the transaction uses its tables until it notices.
            self.end_aborted()?;
            return self.store.drop_table_with(name, wait);
        }
        let table = self.store.table(name)?;
        let wait = SchemaWait { own: Some(self.number), ..*wait };
        self.store.drop_table_with(name, &wait)?;
        // Users that still hold the table are told that it is gone.
        table.leave(self.number);
        self.used.retain(|(used, _)| !Arc::ptr_eq(used, &table));
        Ok(())
    }

    /// Takes its snapshot now (WITH CONSISTENT SNAPSHOT) rather than at the first plain read.
    ///
    /// # Errors
    /// `TransactionEnded`.
    pub fn take_snapshot(&mut self) -> Result<Lsn> {
        self.check_open()?;
        let txns = &self.store.txns;
        let taken = || match evenkeel_base::fault_injection::is(
            evenkeel_base::fault_injection::Fault::ReadTooOld,
        ) {
            true => txns.oldest_snapshot(),
            false => txns.snapshot(),
        };
        Ok(self.snapshot.get_or_insert_with(|| Arc::new(taken())).at())
    }

    /// Begins a statement of several reads: with READ COMMITTED they share one snapshot. Clears the
    /// cancellation of an earlier statement.
    pub fn begin_statement(&mut self) {
        self.inner.clear_cancel();
        self.inner.begin_statement();
        self.statement = Some(None);
        self.statement_at = self.inner.mark();
        self.new_chunks = 0;
    }

    /// Ends the statement.
    pub fn end_statement(&mut self) {
        self.statement = None;
    }

    fn statement_snapshot(&mut self) -> Arc<SnapshotGuard> {
        let new = || Arc::new(self.store.txns.snapshot());
        match &mut self.statement {
            Some(of_statement) => of_statement.get_or_insert_with(new).clone(),
            None => new(),
        }
    }

    /// The snapshot by which conflicts are judged (A6); none if they are not.
    pub(crate) fn snapshot_at(&self) -> Option<Lsn> {
        self.snapshot.as_ref().filter(|_| self.judges_conflicts).map(|s| s.at())
    }

    /// The oldest snapshot that it reads by: its own, or that of the statement.
    pub(crate) fn oldest_view(&self) -> Option<Lsn> {
        let of_statement = self.statement.as_ref().and_then(|of_statement| of_statement.as_ref());
        self.snapshot.as_ref().or(of_statement).map(|snapshot| snapshot.at())
    }

    /// True between `begin_statement` and `end_statement`.
    pub(crate) fn is_in_statement(&self) -> bool {
        self.statement.is_some()
    }

    /// True if its snapshot shows an older version than the one that `stamp` made, and the
    /// transaction may change that one because conflicts are not judged.
    pub(crate) fn passes_over(&self, stamp: Stamp) -> bool {
        let Some(snapshot) = self.snapshot.as_ref().filter(|_| !self.judges_conflicts) else {
            return false;
        };
        stamp.txn != self.inner.id()
            && matches!(self.store.txns.state(stamp.txn),
                TxnState::Committed(cts) if cts > snapshot.at())
    }

    /// True if plain reads lock.
    pub fn reads_lock(&self) -> bool {
        self.reads_lock
    }

    /// From now on reads by key that take a lock take an exclusive one.
    pub fn set_gets_exclusive(&mut self) {
        self.get_mode = Mode::Exclusive;
    }

    /// The lock that a read by key takes, if it takes one.
    pub(crate) fn get_mode(&self) -> Mode {
        self.get_mode
    }

    /// Plain reads of a SERIALIZABLE transaction take a snapshot and lock nothing from now on: the
    /// caller says of each read whether it locks.
    pub fn set_reads_plain(&mut self) {
        self.reads_lock = false;
    }

    /// The flag by which the scans of this transaction learn that it has ended.
    pub fn liveness(&mut self) -> Liveness {
        self.liveness.get_or_insert_default().clone()
    }

    /// What a plain read sees now.
    pub(crate) fn view(&mut self) -> Result<ReadView> {
        self.check_open()?;
        let guard = match self.isolation {
            Isolation::ReadUncommitted | Isolation::ReadCommitted => match &self.snapshot {
                Some(guard) => guard.clone(),
                None => self.statement_snapshot(),
            },
            Isolation::RepeatableRead | Isolation::Serializable => {
                self.take_snapshot()?;
                match &self.snapshot {
                    Some(guard) => guard.clone(),
                    None => return Err(Error::internal("a snapshot was taken and is gone")),
                }
            }
        };
        let dirty = self.isolation == Isolation::ReadUncommitted;
        let at = if dirty { Lsn::MAX } else { guard.at() };
        let snapshot = Snapshot { at, own: self.inner.id(), own_below: self.inner.mark() };
        // Rows that it changed may have been newer than the snapshot, whose entries belong to an
        // older version; the change wrote all entries anew (`passes_over`). READ COMMITTED writes
        // only the entries that it changes: others may have made the rest of them since the
        // statement's snapshot was taken.
        let in_statement = self.isolation == Isolation::ReadCommitted
            && self.statement.is_some()
            && snapshot.own_below > self.statement_at;
        let changed = snapshot.own.0 != 0 && (!self.judges_conflicts || in_statement);
        let rechecks = dirty || changed;
        let planted = evenkeel_base::fault_injection::is(
            evenkeel_base::fault_injection::Fault::UncommittedBySnapshot,
        );
        let entries = match (dirty && !planted, in_statement) {
            (true, _) => Sees::Newest,
            (false, true) => Sees::SnapshotOrLater,
            (false, false) => Sees::Snapshot,
        };
        Ok(ReadView { snapshot, dirty, rechecks, entries, guard: Some(guard) })
    }

    /// The view of a plain read of a table that it has entered.
    ///
    /// # Errors
    /// `TableTooNew`.
    pub(crate) fn view_of(&mut self, table: &Table) -> Result<ReadView> {
        let view = self.view()?;
        table.check_readable(view.snapshot.at)?;
        Ok(view)
    }

    /// Waits for another transaction to be decided.
    pub(crate) fn wait_txn(&mut self, other: TxnId) -> Result<()> {
        self.store.txns.wait_for(&self.inner, other, self.deadline())
    }

    /// A locker of rows for this transaction.
    pub(crate) fn locker(&self) -> Locker {
        let (store, inner) = (self.store.clone(), self.inner.clone());
        let (isolation, snapshot) = (self.isolation, self.snapshot_at());
        let (lock_wait, covered, own_below) = (self.lock_wait, false, UndoNo(u32::MAX));
        let growing = Growing::default();
        Locker { store, inner, isolation, snapshot, lock_wait, covered, growing, own_below }
    }

    /// Runs a statement: if it fails, the rows that it changed are as before.
    pub(crate) fn statement<R>(
        &mut self,
        body: impl FnOnce(&mut TableTxn) -> Result<R>,
    ) -> Result<R> {
        self.check_open()?;
        let mark = self.inner.mark();
        let done = body(self);
        let Err(error) = done else { return done };
        if error.kind() == Kind::Deadlock || self.inner.phase() != Phase::Open {
            // Others wait for its locks: release everything.
            self.end_aborted()?;
        } else if self.inner.mark() > mark {
            self.revert_to(mark)?;
        }
        Err(error)
    }

    /// Runs what calls a caller's code. If that panics, the rows that were changed meanwhile are as
    /// before, and the panic goes on.
    pub fn undone_by_panic<R>(&mut self, body: impl FnOnce(&mut TableTxn) -> R) -> R {
        let mark = self.statement_mark();
        catch_unwind(AssertUnwindSafe(|| body(self))).unwrap_or_else(|panic| {
            if !self.ended
                && let Err(error) = self.revert_to(mark)
            {
                log::warn!("rollback of a statement whose caller panicked: {error}");
            }
            resume_unwind(panic)
        })
    }

    /// Begins a statement made of several calls; `rollback_statement` undoes them.
    pub fn statement_mark(&self) -> UndoNo {
        self.inner.begin_statement();
        self.inner.mark()
    }

    /// Undoes everything since `begin_statement`.
    ///
    /// # Errors
    /// As `rollback_to_mark`.
    pub fn rollback_statement(&mut self) -> Result<()> {
        let at = self.statement_at;
        self.savepoints.forget_behind(at);
        self.rollback_to_mark(at)
    }

    /// Undoes everything since `statement_mark`.
    ///
    /// # Errors
    /// If rows cannot be rolled back the whole transaction is rolled back.
    pub fn rollback_to_mark(&mut self, mark: UndoNo) -> Result<()> {
        self.check_open()?;
        self.revert_to(mark)
    }

    fn revert_to(&mut self, mark: UndoNo) -> Result<()> {
        let store = self.store.clone();
        match store.txns.rollback_to(&self.inner, mark, &*store) {
            Ok(RolledBack::ToMark) => Ok(()),
            // The statement was all that the transaction had done, and large: the background undoes
            // it (B6). For the session it is still the same transaction: its snapshot and its
            // tables stay.
            Ok(RolledBack::Aborted) => {
                self.inner = self.inner.successor();
                let first = self.inner.mark();
                self.statement_at = first;
                self.savepoints.move_all_to(first);
                Ok(())
            }
            // The rows cannot be rolled back now, or a KILL came: the background does it.
            Err(error) => {
                self.finish();
                Err(error)
            }
        }
    }

    /// Sets a savepoint; one of the same name is replaced.
    ///
    /// # Errors
    /// `TransactionEnded`.
    pub fn savepoint(&mut self, name: &str) -> Result<()> {
        self.check_open()?;
        self.savepoints.set(name, self.inner.mark());
        self.inner.begin_statement();
        Ok(())
    }

    /// Undoes everything since a savepoint, which stays.
    ///
    /// # Errors
    /// `SavepointMissing`.
    pub fn rollback_to(&mut self, name: &str) -> Result<()> {
        self.check_open()?;
        let mark = self.savepoints.roll_back_to(name)?;
        self.revert_to(mark)
    }

    /// Forgets a savepoint and those after it; its changes stay.
    ///
    /// # Errors
    /// `SavepointMissing`.
    pub fn release_savepoint(&mut self, name: &str) -> Result<()> {
        self.check_open()?;
        self.savepoints.release(name)
    }

    /// Commits and waits until the commit is as durable as requested. Returns the commit timestamp;
    /// zero if it changed nothing or only temporary tables.
    ///
    /// # Errors
    /// `WritesStopped`: it may or may not be committed after a restart.
    pub fn commit(mut self, durability: Durability) -> Result<Lsn> {
        let cts = self.commit_ordered()?;
        if cts != Lsn::ZERO {
            self.store.log.wait_commit(cts, durability)?;
        }
        Ok(cts)
    }

    /// The ordered part of commit (A2, B5): it is in effect, not yet durable. Zero also if it
    /// changed only temporary tables, for which nothing has to be waited for.
    ///
    /// # Errors
    /// `TransactionEnded`.
    pub fn commit_ordered(&mut self) -> Result<Lsn> {
        self.check_open()?;
        let waits = !self.wrote_only_temporary();
        let cts = self.store.txns.commit(&self.inner)?;
        self.finish();
        Ok(cts.filter(|_| waits).unwrap_or(Lsn::ZERO))
    }

    /// True if all tables that it may have changed are temporary.
    fn wrote_only_temporary(&self) -> bool {
        let mut written = self.used.iter().filter(|(_, how)| *how == Use::Write).peekable();
        written.peek().is_some() && written.all(|(table, _)| table.is_temporary())
    }

    /// Rolls back.
    ///
    /// # Errors
    /// `TransactionEnded`.
    pub fn rollback(mut self) -> Result<()> {
        self.check_open()?;
        self.end_aborted()
    }

    /// Prepares it for two-phase commit: durable when this returns; then commit it by its id
    /// through `Store::commit_prepared` or roll it back. False: it changed nothing and has ended.
    ///
    /// # Errors
    /// `TransactionEnded`, those of the log.
    pub fn prepare(&mut self, xid: &[u8]) -> Result<bool> {
        self.prepare_with(xid, Durability::Sync)
    }

    /// As `prepare`, as durable as `durability` says.
    ///
    /// # Errors
    /// As `prepare`.
    pub fn prepare_with(&mut self, xid: &[u8], durability: Durability) -> Result<bool> {
        self.check_open()?;
        let durability = match self.wrote_only_temporary() {
            true => Durability::Lazy,
            false => durability,
        };
        let done = self.store.txns.prepare_with(&self.inner, xid, durability);
        if self.inner.phase() != Phase::Open {
            // The transaction and its use of tables outlive this object (E2).
            let used = self.used.drain(..).map(|(table, _)| table).collect();
            self.store.keep_in_use(&self.inner, self.number, used);
            self.finish();
        }
        done
    }

    fn end_aborted(&mut self) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        let open = self.inner.phase() == Phase::Open;
        let aborted = if open { self.store.txns.abort(&self.inner) } else { Ok(()) };
        self.finish();
        aborted
    }

    /// Releases everything that it holds except rows and locks.
    fn finish(&mut self) {
        self.ended = true;
        if let Some(liveness) = self.liveness.take() {
            liveness.end();
        }
        (self.snapshot, self.statement, self.last_chunk) = (None, None, None);
        for (table, _) in self.used.drain(..) {
            table.leave(self.number);
        }
    }
}

impl Drop for TableTxn {
    fn drop(&mut self) {
        // A forked child has no part in it.
        if !self.ended
            && !self.store.rt.is_forked()
            && let Err(error) = self.end_aborted()
        {
            log::warn!("rollback: {error}");
        }
    }
}
