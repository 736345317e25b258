//! Transactions as users see them: a transaction gives table handles, and these give rows.
//!
//! Dropping a [`Txn`] rolls it back. Errors of kind `Conflict`, `Deadlock` and `LockTimeout` are
//! raised by the statement, never by `commit`; after the first two the transaction should be rolled
//! back and repeated.

use crate::api::index_ref::IndexRef;
use crate::api::options::Durability;
use crate::api::scan::{Rows, SHARED, Scan};
use crate::engine::Engine;
use evenkeel_base::{Code, Error, Lsn, Result};
use evenkeel_tables::{
    Direction, Insertion, LargeValue, LockWait, LockedScan, Locking, Mode, Range, Row, SchemaWait,
    Table, TableTxn, Value, ValueRef, ValueWriter,
};
use evenkeel_txn::TxnRef;
use std::sync::Arc;

/// Runs an operation and accounts for its time (G6).
fn timed<R>(txn: &mut TableTxn, f: impl FnOnce(&mut TableTxn) -> R) -> R {
    let operation = txn.store().runtime().operation();
    let result = f(txn);
    txn.store().runtime().operation_ends(operation);
    result
}

/// A transaction. `Send`, used by one thread at a time.
pub struct Txn {
    inner: TableTxn,
    engine: Arc<Engine>,
}

impl Txn {
    pub(crate) fn new(inner: TableTxn, engine: Arc<Engine>) -> Txn {
        Txn { inner, engine }
    }

    /// A handle of a table for this transaction.
    ///
    /// # Errors
    /// `TableMissing`; `DatabaseClosed`.
    pub fn table(&mut self, name: &str) -> Result<TableRef<'_>> {
        self.engine.check_open()?;
        let table = self.engine.store.table(name)?;
        let reads_lock = self.inner.reads_lock();
        Ok(TableRef { txn: &mut self.inner, table, reads_lock })
    }

    /// Drops a table that this transaction may have used itself; it must have no open scan of the
    /// table. The call waits for other transactions only. The drop is not part of the transaction:
    /// it stays even after a rollback.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    /// txn.table("people")?.delete(&[Int(1)])?;
    /// txn.drop_table("people", &SchemaWait::default())?;
    /// txn.rollback()?;
    /// assert!(db.tables().is_empty());
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `Database::drop_table_with`.
    pub fn drop_table(&mut self, name: &str, wait: &SchemaWait<'_>) -> Result<()> {
        self.engine.check_open()?;
        check_writable(&self.engine)?;
        self.engine.rt.health.check_writable()?;
        self.inner.drop_table(name, wait)
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
        let committed = self.inner.commit(durability);
        self.engine.rt.operation_ends(operation);
        committed
    }

    /// The ordered half of a commit: the transaction is in effect, visible to others and
    /// timestamped, but not yet durable. [`Database::wait_durable`](crate::Database::wait_durable)
    /// is the other half; between the two the caller may order the commit in a log of its own.
    ///
    /// # Errors
    /// `TransactionEnded`; `DatabaseClosed`.
    pub fn commit_ordered(mut self) -> Result<Lsn> {
        self.engine.check_open()?;
        self.inner.commit_ordered()
    }

    /// Rolls back, as dropping the transaction does.
    ///
    /// # Errors
    /// `TransactionEnded`.
    pub fn rollback(self) -> Result<()> {
        self.inner.rollback()
    }

    /// Off: a statement that changes or locks a row newer than the snapshot acts on the newest
    /// committed version, as InnoDB does without `innodb_snapshot_isolation`, and gets no conflict.
    /// Plain reads keep the snapshot and see the transaction's own changes.
    pub fn set_snapshot_isolation(&mut self, on: bool) {
        self.inner.set_snapshot_isolation(on);
    }

    /// From now on plain reads of a SERIALIZABLE transaction use a snapshot and lock nothing; the
    /// caller says for each read whether it locks.
    pub fn set_reads_plain(&mut self) {
        self.inner.set_reads_plain();
    }

    /// From now on reads by key that take a lock (at SERIALIZABLE) take an exclusive one.
    pub(crate) fn set_gets_exclusive(&mut self) {
        self.inner.set_gets_exclusive();
    }

    /// Takes the snapshot now instead of at the first read.
    ///
    /// # Errors
    /// `TransactionEnded`.
    pub fn take_snapshot(&mut self) -> Result<Lsn> {
        self.inner.take_snapshot()
    }

    /// Sets a savepoint; one of the same name is replaced.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    /// txn.savepoint("before")?;
    /// txn.table("people")?.delete(&[Int(1)])?;
    /// txn.rollback_to("before")?;
    /// assert!(txn.table("people")?.get(&[Int(1)])?.is_some());
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TransactionEnded`.
    pub fn savepoint(&mut self, name: &str) -> Result<()> {
        self.inner.savepoint(name)
    }

    /// Undoes everything since a savepoint, which stays.
    ///
    /// # Errors
    /// `SavepointMissing`.
    pub fn rollback_to(&mut self, name: &str) -> Result<()> {
        timed(&mut self.inner, |txn| txn.rollback_to(name))
    }

    /// Forgets a savepoint and those set after it; their changes stay.
    ///
    /// # Errors
    /// `SavepointMissing`.
    pub fn release_savepoint(&mut self, name: &str) -> Result<()> {
        self.inner.release_savepoint(name)
    }

    /// Leaves the tables that the transaction has used, if it has neither changed nor locked
    /// anything. Schema changes then no longer wait for it until it uses the tables again. Its
    /// snapshot stays. The transaction must have no open scan. False if it keeps using the tables.
    pub fn leave_tables(&mut self) -> bool {
        self.inner.leave_tables()
    }

    /// Leaves one table, if this transaction has neither changed nor locked anything in it. Schema
    /// changes then no longer wait for it until it uses the table again. It must have no open scan
    /// of the table.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn leave_table(&mut self, name: &str) -> Result<()> {
        let table = self.engine.store.table(name)?;
        self.inner.leave_table(&table);
        Ok(())
    }

    /// First phase of a two-phase commit: the transaction is durable when this returns. Finish it
    /// with [`Database::commit_prepared`](crate::Database::commit_prepared) or `rollback_prepared`.
    /// It keeps its locks until then, but after a restart only those of rows and unique keys that
    /// it has changed. False: it changed nothing and has ended.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
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
    pub fn prepare_with(mut self, xid: &[u8], durability: Durability) -> Result<bool> {
        self.engine.check_open()?;
        self.inner.prepare_with(xid, durability)
    }

    /// Sets how long this transaction waits for locks.
    pub fn set_lock_wait(&mut self, time: std::time::Duration) {
        self.inner.set_lock_wait(time);
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
    /// let mut people = txn.table("people")?;
    /// assert!(people.get(&[Int(1)])?.is_none() && people.get(&[Int(2)])?.is_some());
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    pub fn begin_statement(&mut self) {
        self.inner.begin_statement();
    }

    /// Undoes everything since `begin_statement`, and forgets savepoints set since then.
    ///
    /// # Errors
    /// As `rollback_to`, except the one for the name.
    pub fn rollback_statement(&mut self) -> Result<()> {
        timed(&mut self.inner, TableTxn::rollback_statement)
    }

    /// Ends the statement begun by `begin_statement`.
    pub fn end_statement(&mut self) {
        self.inner.end_statement();
    }

    /// True once the transaction was rolled back: by a deadlock, or because the changes of a failed
    /// statement could not be undone alone or that undo was cancelled.
    pub fn is_ended(&self) -> bool {
        self.inner.is_ended()
    }

    /// True if `prepare` would prepare the transaction: it has changed something, or has taken
    /// changes back.
    pub fn has_changes(&self) -> bool {
        self.inner.handle().undo_count() > 0
    }

    /// Sets the number by which [`Database::watch_waits`](crate::Database::watch_waits) names it.
    pub fn set_tag(&self, tag: u64) {
        self.inner.handle().set_tag(tag);
    }

    /// The present clustered key bytes of the row that was inserted or updated last. They are
    /// unspecified after any other change.
    pub fn last_key(&self) -> &[u8] {
        self.inner.last_key()
    }

    /// A handle that cancels the transaction's waits from another thread: its statement fails with
    /// `Cancelled`, and so do later ones that wait or insert many rows, until `begin_statement`.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.inner.handle())
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

/// A table in a transaction. Keys are the values of the primary key's columns, rows the values of
/// all columns in order.
///
/// A tour, on a table of people with their towns and an index on the towns:
///
/// ```
#[doc = include_str!("people.md")]
/// // 1 Oslo, 2 Bergen, 3 Oslo.
/// let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
/// let mut people = txn.table("people")?;
/// assert!(!people.insert_or_ignore(&[Int(1), Text("Hamar")])?); // 1 is there, and stays
/// assert!(people.insert_or_ignore(&[Int(4), Text("Hamar")])?);
/// assert!(!people.upsert(&[Int(2), Text("Voss")], &[])?); // there: takes the values of the row
/// assert!(!people.upsert(&[Int(2), Text("?")], &[(1, Text("Bodø"))])?); // or just these
/// assert!(people.upsert(&[Int(5), Text("Bodø")], &[(1, Text("?"))])?); // inserted
///
/// let mut towns = vec![Value::Null; 3];
/// people.get_many(&[&[Int(5)], &[Int(17)], &[Int(1)]], &mut |position, row| {
///     towns[position] = row.get("town")?.to_owned();
///     Ok(())
/// })?;
/// assert_eq!(towns, ["Bodø".into(), Value::Null, "Oslo".into()]); // nobody has key 17
///
/// let mut row = Row::new();
/// assert!(people.get_for_share(&[Int(3)], LockWait::NoWait, &mut row)?);
/// assert_eq!(row.get("town")?, Text("Oslo")); // and so it stays until this transaction ends
///
/// let id = |row: Option<Row>| row.map(|row| row.get("id").map(|id| id.to_owned())).transpose();
/// assert_eq!(id(people.first()?)?, Some(Value::Int(1)));
/// assert_eq!(id(people.last()?)?, Some(Value::Int(5)));
///
/// // An index takes ranges of its columns.
/// let (from, to) = ([Text("C")], [Text("P")]);
/// let range = Range { lower: Bound::Included(&from), upper: Bound::Excluded(&to) };
/// let mut scan = people.index("by_town")?.scan(range, Direction::Forward)?;
/// let mut ids = Vec::new();
/// while scan.next(&mut row)? {
///     ids.push(row.get("id")?.to_owned());
/// }
/// assert_eq!(ids, [4, 1, 3].map(Value::Int)); // Hamar, Oslo, Oslo
/// assert_eq!(id(txn.table("people")?.index("by_town")?.last(Range::ALL)?)?, Some(Value::Int(3)));
/// txn.commit()?;
/// # use std::ops::Bound;
/// # Ok::<(), evenkeel::Error>(())
/// ```
pub struct TableRef<'t> {
    txn: &'t mut TableTxn,
    table: Arc<Table>,
    reads_lock: bool,
}

impl<'t> TableRef<'t> {
    /// Inserts a row; returns the number of its auto-increment column, if it has one.
    ///
    /// # Errors
    /// `DuplicateKey` naming the index; `ValueType`, `ValueRange`, `NullNotAllowed`; lock errors.
    pub fn insert(&mut self, row: &[ValueRef<'_>]) -> Result<Option<u64>> {
        timed(self.txn, |txn| txn.insert(&self.table, row))
    }

    /// Inserts a row, or returns which of its keys exists already. Cheaper than `insert` where many
    /// rows exist.
    ///
    /// # Errors
    /// As `insert`, duplicates excepted.
    pub fn insert_or_tell(&mut self, row: &[ValueRef<'_>]) -> Result<Insertion> {
        timed(self.txn, |txn| txn.insert_or_tell(&self.table, row))
    }

    /// Inserts rows as one statement: all or, on an error, none. Returns the auto-increment number
    /// of the first row, if there is one.
    ///
    /// # Errors
    /// As `insert`.
    pub fn insert_many<'v>(
        &mut self,
        rows: impl ExactSizeIterator<Item = &'v [ValueRef<'v>]>,
    ) -> Result<Option<u64>> {
        timed(self.txn, |txn| txn.insert_many(&self.table, rows))
    }

    /// Inserts rows in ascending order of the primary key as one statement and returns their
    /// number. They are appended at the right edge of the tree, whose leaves are left full, and are
    /// not buffered here. The rows are part of the transaction like any others.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    /// let rows = (10..1000i64).map(|id| [Value::Int(id), Value::from("Oslo")]);
    /// assert_eq!(txn.table("people")?.bulk_load(rows)?, 990);
    /// txn.commit()?;
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `RowsNotSorted` naming the row; those of `insert`. None of the rows is left then.
    pub fn bulk_load<R: AsRef<[Value]>>(
        &mut self,
        rows: impl IntoIterator<Item = R>,
    ) -> Result<u64> {
        let table = &self.table;
        self.txn.undone_by_panic(|txn| {
            let mark = txn.statement_mark();
            let loaded = load_sorted(txn, table, rows);
            // A deadlock has rolled all of it back.
            if loaded.is_err() && !txn.is_ended() {
                txn.rollback_to_mark(mark)?;
            }
            loaded
        })
    }

    /// Inserts a row unless one of its unique keys exists; true if it was inserted.
    ///
    /// # Errors
    /// As `insert`, except `DuplicateKey`.
    pub fn insert_or_ignore(&mut self, row: &[ValueRef<'_>]) -> Result<bool> {
        timed(self.txn, |txn| txn.insert_or_ignore(&self.table, row))
    }

    /// Inserts a row, or changes the row that has its key: by `changes`, or to `row` if there are
    /// none. True if it was inserted.
    ///
    /// # Errors
    /// As `insert` and `update`.
    pub fn upsert(
        &mut self,
        row: &[ValueRef<'_>],
        changes: &[(usize, ValueRef<'_>)],
    ) -> Result<bool> {
        timed(self.txn, |txn| txn.upsert(&self.table, row, changes))
    }

    /// Changes columns (position, value) of a row; false if there is none.
    ///
    /// # Errors
    /// `DuplicateKey`; `RowChanged` (kind `Conflict`); lock errors; faults of the values.
    pub fn update(
        &mut self,
        key: &[ValueRef<'_>],
        changes: &[(usize, ValueRef<'_>)],
    ) -> Result<bool> {
        timed(self.txn, |txn| txn.update(&self.table, key, changes))
    }

    /// Begins a long value for a column of bytes or text, written as a stream before its row, for
    /// [`insert_large`](TableRef::insert_large) or [`update_large`](TableRef::update_large). The
    /// whole value is never in memory. A value that no row takes is freed.
    ///
    /// ```
    /// # use evenkeel::{Access, ColumnSpec, ColumnType, Database, Isolation, Options, TableSpec};
    /// # use std::io::{Read, Write};
    /// # let db = Database::open_with("/large", Options::in_memory())?;
    /// # let spec = TableSpec::new()
    /// #     .column(ColumnSpec::new("id", ColumnType::Int64))
    /// #     .column(ColumnSpec::new("film", ColumnType::Bytes { max: u32::MAX }).nullable())
    /// #     .primary_key(&["id"]);
    /// # db.create_table("films", &spec)?;
    /// let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
    /// let mut films = txn.table("films")?;
    /// let mut film = films.large_value()?;
    /// for part in 0..100u8 {
    ///     film.write_all(&[part; 10_000])?;
    /// }
    /// let film = film.finish()?;
    /// films.insert_large(&[7i64.into(), evenkeel::ValueRef::Null], vec![(1, film)])?;
    /// let row = films.get(&[7i64.into()])?.expect("it was inserted");
    /// let mut first = [0; 4];
    /// row.open_large(1)?.read_exact(&mut first)?;
    /// txn.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `TransactionEnded`; those of storage.
    pub fn large_value(&mut self) -> Result<ValueWriter> {
        self.txn.large_value(&self.table)
    }

    /// As `insert`, with long values for columns (position, value); the values of these columns in
    /// `row` are ignored. On an error the long values are freed.
    ///
    /// # Errors
    /// As `insert`; `EntryTooLong` for a column of a key or index.
    pub fn insert_large(
        &mut self,
        row: &[ValueRef<'_>],
        large: Vec<(usize, LargeValue)>,
    ) -> Result<Option<u64>> {
        timed(self.txn, |txn| txn.insert_large(&self.table, row, large))
    }

    /// As `update`, with long values for columns (position, value). On an error they are freed.
    ///
    /// # Errors
    /// As `update`; `EntryTooLong` for a column of a key or index.
    pub fn update_large(
        &mut self,
        key: &[ValueRef<'_>],
        changes: &[(usize, ValueRef<'_>)],
        large: Vec<(usize, LargeValue)>,
    ) -> Result<bool> {
        timed(self.txn, |txn| txn.update_large(&self.table, key, changes, large))
    }

    /// Deletes a row; false if there is none.
    ///
    /// # Errors
    /// `RowChanged` (kind `Conflict`); lock errors.
    pub fn delete(&mut self, key: &[ValueRef<'_>]) -> Result<bool> {
        timed(self.txn, |txn| txn.delete(&self.table, key))
    }

    /// Reads a row.
    ///
    /// # Errors
    /// `TableTooNew` for a snapshot older than the table or its `truncate`; faults of the key.
    pub fn get(&mut self, key: &[ValueRef<'_>]) -> Result<Option<Row>> {
        let mut row = Row::new();
        Ok(timed(self.txn, |txn| txn.get(&self.table, key, &mut row))?.then_some(row))
    }

    /// Reads a row into a reused buffer; false if there is none.
    ///
    /// # Errors
    /// As `get`.
    pub fn get_into(&mut self, key: &[ValueRef<'_>], row: &mut Row) -> Result<bool> {
        timed(self.txn, |txn| txn.get(&self.table, key, row))
    }

    /// Reads many rows, in the order of their keys; `f` gets each key's position and row.
    ///
    /// # Errors
    /// As `get`, and what `f` returns.
    pub fn get_many(
        &mut self,
        keys: &[&[ValueRef<'_>]],
        f: &mut dyn FnMut(usize, &Row) -> Result<()>,
    ) -> Result<()> {
        timed(self.txn, |txn| txn.get_many(&self.table, keys, f))
    }

    /// Locks a row for writing and reads its newest version.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    /// let (mut people, mut row) = (txn.table("people")?, Row::new());
    /// if people.get_for_update(&[Int(2)], LockWait::Wait, &mut row)? {
    ///     // Nobody else changes it before this transaction ends.
    ///     people.update(&[Int(2)], &[(1, Text("Oslo"))])?;
    /// }
    /// txn.commit()?;
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `RowChanged`; lock errors.
    pub fn get_for_update(
        &mut self,
        key: &[ValueRef<'_>],
        wait: LockWait,
        row: &mut Row,
    ) -> Result<bool> {
        timed(self.txn, |txn| txn.get_locked(&self.table, key, Mode::Exclusive, wait, row))
    }

    /// Locks a row against changes and reads its newest version.
    ///
    /// # Errors
    /// As `get_for_update`.
    pub fn get_for_share(
        &mut self,
        key: &[ValueRef<'_>],
        wait: LockWait,
        row: &mut Row,
    ) -> Result<bool> {
        timed(self.txn, |txn| txn.get_locked(&self.table, key, Mode::Shared, wait, row))
    }

    /// Reads the row with these clustered key bytes ([`Row::key`]) into `row`; false if there is
    /// none.
    ///
    /// # Errors
    /// As `get`.
    pub fn get_by_key(&mut self, key: &[u8], row: &mut Row) -> Result<bool> {
        timed(self.txn, |txn| txn.get_by_key(&self.table, key, row))
    }

    /// As `get_for_update`, by clustered key bytes.
    ///
    /// # Errors
    /// As `get_for_update`.
    pub fn lock_by_key(&mut self, key: &[u8], wait: LockWait, row: &mut Row) -> Result<bool> {
        timed(self.txn, |txn| txn.lock_by_key(&self.table, key, Mode::Exclusive, wait, row))
    }

    /// As `get_for_share`, by clustered key bytes.
    ///
    /// # Errors
    /// As `get_for_share`.
    pub fn share_by_key(&mut self, key: &[u8], wait: LockWait, row: &mut Row) -> Result<bool> {
        timed(self.txn, |txn| txn.lock_by_key(&self.table, key, Mode::Shared, wait, row))
    }

    /// As `update`, by clustered key bytes.
    ///
    /// # Errors
    /// As `update`.
    pub fn update_by_key(&mut self, key: &[u8], changes: &[(usize, ValueRef<'_>)]) -> Result<bool> {
        timed(self.txn, |txn| txn.update_by_key(&self.table, key, changes))
    }

    /// As `update`, for the row that `row` holds. The row is not searched again if it was locked
    /// when it was read (`get_for_update`, a scan that locks) and has not changed since.
    ///
    /// # Errors
    /// As `update`.
    pub fn update_read(&mut self, row: &Row, changes: &[(usize, ValueRef<'_>)]) -> Result<bool> {
        timed(self.txn, |txn| txn.update_read(&self.table, row, changes))
    }

    /// As `delete`, by clustered key bytes.
    ///
    /// # Errors
    /// As `delete`.
    pub fn delete_by_key(&mut self, key: &[u8]) -> Result<bool> {
        timed(self.txn, |txn| txn.delete_by_key(&self.table, key))
    }

    /// As `delete`, for the row that `row` holds; it is searched again as in `update_read`.
    ///
    /// # Errors
    /// As `delete`.
    pub fn delete_read(&mut self, row: &Row) -> Result<bool> {
        timed(self.txn, |txn| txn.delete_read(&self.table, row))
    }

    /// The rows of a range of the primary key, in order.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    /// let mut scan = txn.table("people")?.scan(Range::from(&[Int(2)]), Direction::Backward)?;
    /// let (mut row, mut found) = (Row::new(), Vec::new());
    /// while scan.next(&mut row)? {
    ///     found.push(row.get("id")?.to_owned());
    /// }
    /// assert_eq!(found, [Value::Int(3), Value::Int(2)]);
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TableTooNew` for a snapshot older than the table or its `truncate`; faults of the range.
    pub fn scan(&mut self, range: Range<'_>, direction: Direction) -> Result<Scan> {
        if !self.reads_lock {
            let scan = self.txn.scan(&self.table, range, direction)?;
            return Ok(Scan::new(Rows::Snapshot(scan), self.txn.liveness()));
        }
        let scan = self.txn.locked_scan(&self.table, range, direction, SHARED)?;
        Ok(Scan::new(Rows::Locked(Box::new(scan)), self.txn.liveness()))
    }

    /// Locks and reads the newest version of each row of a range; `f` returns false to stop.
    ///
    /// # Errors
    /// `RowChanged`, lock errors, what `f` returns.
    pub fn scan_for_update(
        &mut self,
        range: Range<'_>,
        direction: Direction,
        wait: LockWait,
        f: &mut dyn FnMut(&Row) -> Result<bool>,
    ) -> Result<()> {
        let locking = Locking { mode: Mode::Exclusive, wait };
        self.txn.locked_scan(&self.table, range, direction, locking)?.each(f)
    }

    /// Locks a range of the primary key exclusively, at every isolation level: no other transaction
    /// writes a row there until this one ends.
    ///
    /// # Errors
    /// Lock errors, faults of the range.
    pub fn lock_range(&mut self, range: Range<'_>) -> Result<()> {
        self.txn.lock_range(&self.table, None, range)
    }

    /// A scan that locks each row of a range and returns its newest version.
    ///
    /// # Errors
    /// Lock errors, faults of the range.
    pub fn locked_scan(
        &mut self,
        range: Range<'_>,
        direction: Direction,
        locking: Locking,
    ) -> Result<LockedScan> {
        self.txn.locked_scan(&self.table, range, direction, locking)
    }

    /// The first row by primary key.
    ///
    /// # Errors
    /// Of storage.
    pub fn first(&mut self) -> Result<Option<Row>> {
        self.end(Direction::Forward)
    }

    /// The last row by primary key.
    ///
    /// # Errors
    /// Of storage.
    pub fn last(&mut self) -> Result<Option<Row>> {
        self.end(Direction::Backward)
    }

    fn end(&mut self, direction: Direction) -> Result<Option<Row>> {
        let mut row = Row::new();
        let mut scan = self.scan(Range::ALL, direction)?;
        Ok(scan.next(&mut row)?.then_some(row))
    }

    /// About how many rows a range of the primary key holds; never 0 unless certain.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let mut txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly)?;
    /// assert!(txn.table("people")?.count_estimate(Range::from(&[Int(2)]))? > 0);
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`; of storage; faults of the range.
    pub fn count_estimate(&mut self, range: Range<'_>) -> Result<u64> {
        self.txn.key_estimate(&self.table, range)
    }

    /// An index of the table.
    ///
    /// # Errors
    /// `IndexMissing`, `TableBusy` while a schema change takes too long.
    pub fn index(self, name: &str) -> Result<IndexRef<'t>> {
        // First use the table: a schema change must not move the index between here and the scan.
        self.txn.use_table(&self.table)?;
        let position = self.table.layout().index(name)?;
        let (table, reads_lock) = (self.table, self.reads_lock);
        Ok(IndexRef::new(self.txn, table, position, reads_lock))
    }

    /// The definition of the table.
    pub fn definition(&self) -> Arc<evenkeel_tables::TableDef> {
        self.table.layout().def.clone()
    }
}

/// Inserts rows that come in ascending order of the primary key; how many.
fn load_sorted<R: AsRef<[Value]>>(
    txn: &mut TableTxn,
    table: &Arc<Table>,
    rows: impl IntoIterator<Item = R>,
) -> Result<u64> {
    let layout = table.layout();
    let (mut last, mut key, mut count) = (Vec::new(), Vec::new(), 0);
    for row in rows {
        let values: Vec<ValueRef<'_>> = row.as_ref().iter().map(Value::as_ref).collect();
        layout.check_values(&values)?;
        key.clear();
        layout.encode_key(&|column| Ok(values[column]), &mut key)?;
        if count > 0 && !layout.key.is_empty() && key <= last {
            let error = Error::new(Code::RowsNotSorted).with("table", &layout.def.name);
            return Err(error.with("row", count));
        }
        std::mem::swap(&mut last, &mut key);
        txn.insert(table, &values)?;
        count += 1;
    }
    Ok(count)
}

/// # Errors
/// `OpenedReadOnly`.
pub(crate) fn check_writable(engine: &Engine) -> Result<()> {
    if engine.options.read_only {
        return Err(Error::new(Code::OpenedReadOnly).with("what", "database"));
    }
    Ok(())
}
