//! Transactions as users see them: a transaction gives table handles, and these give rows.
//!
//! Dropping a [`Txn`] rolls it back. Errors of kind `Conflict`, `Deadlock` and `LockTimeout` are
//! raised by the statement, never by `commit`; after the first two the transaction should be rolled
//! back and repeated.

use crate::api::options::Durability;
use crate::api::table_ref::TableRef;
use crate::engine::Engine;
use evenkeel_base::{Code, Error, Lsn, Result};
use evenkeel_tables::{SchemaWait, TableTxn};
use evenkeel_txn::TxnRef;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// A transaction. It is `Send` and used by one thread at a time.
///
/// Any number of its tables may be held at once. Its calls run one after the other: a call that is
/// made while another one of the same transaction runs (by an iterator of rows that are being
/// inserted, for example) fails with `NestedCall`.
///
/// ```
#[doc = include_str!("people.md")]
/// # let towns = TableSpec::new().column(ColumnSpec::new("name", ColumnType::Text { max: 50 }));
/// # db.create_table("towns", &towns.primary_key(&["name"]))?;
/// let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
/// let (people, towns) = (txn.table("people")?, txn.table("towns")?);
/// for person in people.scan(Range::ALL, Direction::Forward)? {
///     towns.insert_or_ignore(person?.value("town")?)?;
/// }
/// txn.commit()?;
/// # Ok::<(), evenkeel::Error>(())
/// ```
pub struct Txn {
    /// Borrowed for as long as a call runs.
    inner: RefCell<TableTxn>,
    /// Cancels it, also while a call runs.
    canceller: TxnRef,
    engine: Arc<Engine>,
}

impl Txn {
    pub(crate) fn new(inner: TableTxn, engine: Arc<Engine>) -> Txn {
        let canceller = inner.handle();
        Txn { inner: RefCell::new(inner), canceller, engine }
    }

    /// Makes a call.
    ///
    /// # Errors
    /// `NestedCall`, and those of the call.
    pub(crate) fn call<R>(&self, f: impl FnOnce(&mut TableTxn) -> Result<R>) -> Result<R> {
        match self.inner.try_borrow_mut() {
            Ok(mut inner) => f(&mut inner),
            Err(_) => Err(Error::new(Code::NestedCall)),
        }
    }

    /// Makes a call and accounts for its time (G6).
    pub(crate) fn run<R>(&self, f: impl FnOnce(&mut TableTxn) -> Result<R>) -> Result<R> {
        self.call(|inner| {
            let operation = self.engine.rt.operation();
            let result = f(inner);
            self.engine.rt.operation_ends(operation);
            result
        })
    }

    /// A handle of a table for this transaction.
    ///
    /// # Errors
    /// `TableMissing`; `DatabaseClosed`.
    pub fn table(&self, name: &str) -> Result<TableRef<'_>> {
        self.engine.check_open()?;
        Ok(TableRef::new(self, self.engine.store.table(name)?))
    }

    /// As `table`, of the table that has a handle's name now. Cheaper than a lookup of the name.
    ///
    /// # Errors
    /// As `table`.
    #[cfg(feature = "server")]
    pub fn table_of(&self, handle: &mut evenkeel_tables::TableHandle) -> Result<TableRef<'_>> {
        self.engine.check_open()?;
        Ok(TableRef::new(self, self.engine.store.table_of(handle)?))
    }

    /// Drops a table that this transaction may have used itself; it must have no open scan of the
    /// table. The call waits for other transactions only. The drop is not part of the transaction:
    /// it stays even after a rollback.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    /// txn.table("people")?.delete(&[Int(1)])?;
    /// txn.drop_table("people", &SchemaWait::default())?;
    /// txn.rollback()?;
    /// assert!(db.tables().is_empty());
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `Database::drop_table_with`.
    pub fn drop_table(&self, name: &str, wait: &SchemaWait<'_>) -> Result<()> {
        self.engine.check_open()?;
        check_writable(&self.engine)?;
        self.engine.rt.health.check_writable()?;
        self.call(|inner| inner.drop_table(name, wait))
    }

    /// Commits and returns when the commit is as durable as the database's durability says. The
    /// result is the commit timestamp, zero if nothing was changed.
    ///
    /// # Errors
    /// `WritesStopped`: the next open decides whether it is committed; `DatabaseClosed`: it is not.
    pub fn commit(self) -> Result<Lsn> {
        self.engine.check_open()?;
        let durability = self.engine.present.durability();
        let operation = self.engine.rt.operation();
        let committed = self.inner.into_inner().commit(durability);
        self.engine.rt.operation_ends(operation);
        committed
    }

    /// The ordered half of a commit: the transaction is in effect, visible to others and
    /// timestamped, but not yet durable. [`Database::wait_durable`](crate::Database::wait_durable)
    /// is the other half; between the two the caller may order the commit in a log of its own.
    ///
    /// # Errors
    /// `TransactionEnded`; `DatabaseClosed`.
    pub fn commit_ordered(self) -> Result<Lsn> {
        self.engine.check_open()?;
        self.inner.into_inner().commit_ordered()
    }

    /// Rolls back, as dropping the transaction does.
    ///
    /// # Errors
    /// `TransactionEnded`.
    pub fn rollback(self) -> Result<()> {
        self.inner.into_inner().rollback()
    }

    /// Off: a statement that changes or locks a row newer than the snapshot acts on the newest
    /// committed version, as InnoDB does without `innodb_snapshot_isolation`, and gets no conflict.
    /// Plain reads keep the snapshot and see the transaction's own changes.
    pub fn set_snapshot_isolation(&mut self, on: bool) {
        self.inner.get_mut().set_snapshot_isolation(on);
    }

    /// Off: rows are written and deleted without a look at foreign keys, as when a dump is loaded.
    /// `Database::check` finds the rows that then refer to nothing.
    pub fn set_foreign_key_checks(&mut self, on: bool) {
        self.inner.get_mut().set_foreign_key_checks(on);
    }

    /// Off: a statement may make any number of chunks of a chunked table. For an owner that copies
    /// a whole table.
    #[cfg(feature = "server")]
    pub fn set_chunk_limit(&mut self, on: bool) {
        self.inner.get_mut().set_chunk_limit(on);
    }

    /// From now on plain reads of a SERIALIZABLE transaction use a snapshot and lock nothing; the
    /// caller says for each read whether it locks.
    #[cfg(feature = "server")]
    pub fn set_reads_plain(&mut self) {
        self.inner.get_mut().set_reads_plain();
    }

    /// From now on reads by key that take a lock (at SERIALIZABLE) take an exclusive one.
    pub(crate) fn set_gets_exclusive(&mut self) {
        self.inner.get_mut().set_gets_exclusive();
    }

    /// Takes the snapshot now instead of at the first read.
    ///
    /// # Errors
    /// `TransactionEnded`.
    pub fn take_snapshot(&self) -> Result<Lsn> {
        self.call(TableTxn::take_snapshot)
    }

    /// Sets a savepoint; one of the same name is replaced.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    /// txn.savepoint("before")?;
    /// txn.table("people")?.delete(&[Int(1)])?;
    /// txn.rollback_to("before")?;
    /// assert!(txn.table("people")?.get(&[Int(1)])?.is_some());
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TransactionEnded`.
    pub fn savepoint(&self, name: &str) -> Result<()> {
        self.call(|inner| inner.savepoint(name))
    }

    /// Undoes everything since a savepoint, which stays.
    ///
    /// # Errors
    /// `SavepointMissing`.
    pub fn rollback_to(&self, name: &str) -> Result<()> {
        self.run(|inner| inner.rollback_to(name))
    }

    /// Forgets a savepoint and those set after it; their changes stay.
    ///
    /// # Errors
    /// `SavepointMissing`.
    pub fn release_savepoint(&self, name: &str) -> Result<()> {
        self.call(|inner| inner.release_savepoint(name))
    }

    /// Leaves the tables that the transaction has used, if it has neither changed nor locked
    /// anything. Schema changes then no longer wait for it until it uses the tables again. Its
    /// snapshot stays. The transaction must have no open scan. False if it keeps using the tables.
    #[cfg(feature = "server")]
    pub fn leave_tables(&mut self) -> bool {
        self.inner.get_mut().leave_tables()
    }

    /// Leaves one table, if this transaction has neither changed nor locked anything in it. Schema
    /// changes then no longer wait for it until it uses the table again. It must have no open scan
    /// of the table.
    ///
    /// # Errors
    /// `TableMissing`.
    #[cfg(feature = "server")]
    pub fn leave_table(&mut self, name: &str) -> Result<()> {
        let table = self.engine.store.table(name)?;
        self.inner.get_mut().leave_table(&table);
        Ok(())
    }

    /// First phase of a two-phase commit: the transaction is durable when this returns. Finish it
    /// with [`Database::commit_prepared`](crate::Database::commit_prepared) or `rollback_prepared`.
    /// It keeps its locks until then, but after a restart only those of rows and unique keys that
    /// it has changed. False: it changed nothing and has ended.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    /// txn.table("people")?.delete(&[Int(3)])?;
    /// txn.prepare(b"transfer 17")?;
    /// // From here on it survives crashes, until somebody decides.
    /// assert_eq!(db.prepared(), [b"transfer 17"]);
    /// db.commit_prepared(b"transfer 17")?;
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `XidTooLong`, `XidInUse`, those of the log; `DatabaseClosed`.
    pub fn prepare(self, xid: &[u8]) -> Result<bool> {
        self.prepare_with(xid, Durability::Sync)
    }

    /// As `prepare`, as durable as `durability` says. With less than `Sync` a crash of the machine
    /// may lose a transaction that its coordinator believes prepared.
    ///
    /// # Errors
    /// As `prepare`.
    pub fn prepare_with(self, xid: &[u8], durability: Durability) -> Result<bool> {
        self.engine.check_open()?;
        self.inner.into_inner().prepare_with(xid, durability)
    }

    /// Sets how long this transaction waits for locks.
    pub fn set_lock_wait(&mut self, time: Duration) {
        self.inner.get_mut().set_lock_wait(time);
    }

    /// Begins a statement of several calls. It can be undone alone, its plain reads share one
    /// snapshot under READ COMMITTED, and it clears the cancellation of an earlier statement.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    /// txn.table("people")?.delete(&[Int(1)])?;
    /// txn.begin_statement();
    /// txn.table("people")?.delete(&[Int(2)])?;
    /// txn.rollback_statement()?;
    /// let people = txn.table("people")?;
    /// assert!(people.get(&[Int(1)])?.is_none() && people.get(&[Int(2)])?.is_some());
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    #[cfg(feature = "server")]
    pub fn begin_statement(&mut self) {
        self.inner.get_mut().begin_statement();
    }

    /// Undoes everything since `begin_statement`, and forgets savepoints set since then.
    ///
    /// # Errors
    /// As `rollback_to`, except the one for the name.
    #[cfg(feature = "server")]
    pub fn rollback_statement(&self) -> Result<()> {
        self.run(TableTxn::rollback_statement)
    }

    /// Ends the statement begun by `begin_statement`.
    #[cfg(feature = "server")]
    pub fn end_statement(&mut self) {
        self.inner.get_mut().end_statement();
    }

    /// True once the transaction was rolled back: by a deadlock, or because the changes of a failed
    /// statement could not be undone alone or that undo was cancelled.
    pub fn is_ended(&self) -> bool {
        // A call that runs has found it open.
        self.inner.try_borrow().is_ok_and(|inner| inner.is_ended())
    }

    /// True if `prepare` would prepare the transaction: it has changed something, or has taken
    /// changes back; also while one of its calls runs.
    pub fn has_changes(&self) -> bool {
        self.inner.try_borrow().map_or(true, |inner| inner.handle().undo_count() > 0)
    }

    /// Sets the number by which [`Database::watch_waits`](crate::Database::watch_waits) names it.
    #[cfg(feature = "server")]
    pub fn set_tag(&mut self, tag: u64) {
        self.inner.get_mut().handle().set_tag(tag);
    }

    /// The present clustered key bytes of the row that was inserted or updated last. They are
    /// unspecified after any other change.
    pub fn last_key(&mut self) -> &[u8] {
        self.inner.get_mut().last_key()
    }

    /// A handle that cancels the transaction's waits from another thread: its statement fails with
    /// `Cancelled`, and so do later ones that wait or insert many rows, until `begin_statement`.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.canceller.clone())
    }
}

/// Cancels the waits of a transaction, from any thread; see [`Txn::canceller`].
pub struct Canceller(TxnRef);

impl Canceller {
    /// Makes the statement fail with `Cancelled`. Does nothing once the transaction has ended.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

/// # Errors
/// `OpenedReadOnly`.
pub(crate) fn check_writable(engine: &Engine) -> Result<()> {
    if engine.options.read_only {
        return Err(Error::new(Code::OpenedReadOnly).with("what", "database"));
    }
    Ok(())
}
