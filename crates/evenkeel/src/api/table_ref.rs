//! `TableRef`: a table, as a transaction sees it.

use crate::api::index_ref::IndexRef;
use crate::api::scan::{Rows, Scan};
use crate::api::txn::Txn;
use evenkeel_base::{Code, Error, Result};
use evenkeel_tables::{
    Changes, Direction, KeySet, LargeValue, LockWait, Locking, Mode, Row, ScanRange, Table,
    TableDef, TableTxn, ValueRef, ValueWriter, Values,
};
use std::sync::Arc;

/// A table in a transaction. Keys are the values of the primary key's columns, rows the values of
/// all columns in order; [`Values`] lists the forms in which they are given.
///
/// A tour, on a table of people with their towns and an index on the towns:
///
/// ```
#[doc = include_str!("people.md")]
/// // 1 Oslo, 2 Bergen, 3 Oslo.
/// let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
/// let people = txn.table("people")?;
/// assert!(!people.insert_or_ignore((1, "Hamar"))?); // 1 is there, and stays
/// assert!(people.insert_or_ignore((4, "Hamar"))?);
/// assert!(!people.put((2, "Voss"))?); // there: takes the values of the row
/// assert!(!people.upsert((2, "?"), &[("town", "Bodø")])?); // or just these
/// assert!(people.upsert((5, "Bodø"), &[("town", "?")])?); // inserted
///
/// let mut towns = vec![None; 3];
/// people.get_many(&[&[Int(5)], &[Int(17)], &[Int(1)]], &mut |position, row| {
///     towns[position] = row.get::<Option<String>>("town")?;
///     Ok(())
/// })?;
/// assert_eq!(towns, [Some("Bodø".to_string()), None, Some("Oslo".to_string())]); // no key 17
///
/// let mut row = Row::new();
/// assert!(people.get_for_share(3, LockWait::NoWait, &mut row)?);
/// assert_eq!(row.get::<&str>("town")?, "Oslo"); // and so it stays until this transaction ends
///
/// let id = |row: Option<Row>| row.map(|row| row.get::<i64>("id")).transpose();
/// assert_eq!(id(people.first()?)?, Some(1));
/// assert_eq!(id(people.last()?)?, Some(5));
///
/// // An index takes ranges of its columns.
/// let by_town = people.index("by_town")?;
/// let ids = |range: Scan| range.map(|row| row?.get("id")).collect::<Result<Vec<i64>>>();
/// assert_eq!(ids(by_town.scan("C".."P", Direction::Forward)?)?, [4, 1, 3]); // Hamar, Oslo, Oslo
/// assert_eq!(ids(by_town.scan(starting_with("O"), Direction::Backward)?)?, [3, 1]);
/// assert_eq!(id(by_town.last(..)?)?, Some(3));
/// txn.commit()?;
/// # Ok::<(), evenkeel::Error>(())
/// ```
#[derive(Clone)]
pub struct TableRef<'t> {
    txn: &'t Txn,
    table: Arc<Table>,
    /// Ranges are those of the clustered key.
    is_clustered: bool,
}

impl<'t> TableRef<'t> {
    pub(crate) fn new(txn: &'t Txn, table: Arc<Table>) -> TableRef<'t> {
        TableRef { txn, table, is_clustered: false }
    }

    fn run<R>(&self, f: impl FnOnce(&mut TableTxn) -> Result<R>) -> Result<R> {
        self.txn.run(f)
    }

    /// From now on ranges and scans of this handle are those of the clustered key, also where that
    /// is a hidden number: the rows of a table whose primary key may be too long to be clustered on
    /// ([`TableInfo::hidden_key`](crate::TableInfo)) come in the order of their insertion, without
    /// a visit to the primary key's index.
    #[must_use]
    pub fn by_clustered_key(mut self) -> Self {
        self.is_clustered = true;
        self
    }

    /// The index that holds the primary key, if the table is not clustered on it.
    fn primary_index(&self) -> Result<Option<IndexRef<'t>>> {
        if self.is_clustered || !self.table.layout().key.is_empty() {
            return Ok(None);
        }
        // First use the table: a schema change must not move the index between here and the scan.
        self.txn.call(|txn| txn.use_table(&self.table))?;
        let layout = self.table.layout();
        let position = layout.def.indexes.iter().position(|index| index.entry.primary);
        Ok(position.map(|at| IndexRef::new(self.txn, self.table.clone(), at)))
    }

    /// Inserts a row; returns the number of its auto-increment column, if it has one.
    ///
    /// # Errors
    /// `DuplicateKey` naming the index; `ValueType`, `ValueRange`, `NullNotAllowed`; lock errors.
    pub fn insert(&self, row: impl Values) -> Result<Option<u64>> {
        row.give(|row| self.run(|txn| txn.insert(&self.table, row)))
    }

    /// Inserts a row, or returns which of its keys exists already. Cheaper than `insert` where many
    /// rows exist.
    ///
    /// # Errors
    /// As `insert`, duplicates excepted.
    #[cfg(feature = "server")]
    pub fn insert_or_tell(&self, row: impl Values) -> Result<evenkeel_tables::Insertion> {
        row.give(|row| self.run(|txn| txn.insert_or_tell(&self.table, row)))
    }

    /// Inserts rows as one statement: all or, on an error, none. Returns the auto-increment number
    /// of the first row, if there is one.
    ///
    /// # Errors
    /// As `insert`.
    pub fn insert_many<'v>(
        &self,
        rows: impl IntoIterator<Item = &'v [ValueRef<'v>], IntoIter: ExactSizeIterator>,
    ) -> Result<Option<u64>> {
        self.run(|txn| txn.insert_many(&self.table, rows.into_iter()))
    }

    /// Inserts rows in ascending order of the primary key as one statement and returns their
    /// number. They are appended at the right edge of the tree, whose leaves are left full, and are
    /// not buffered here. The rows are part of the transaction like any others.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    /// let rows = (10..1000i64).map(|id| [Value::Int(id), Value::from("Oslo")]);
    /// assert_eq!(txn.table("people")?.bulk_load(rows)?, 990);
    /// txn.commit()?;
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `RowsNotSorted` naming the row; those of `insert`. None of the rows is left then.
    pub fn bulk_load<R: Values>(&self, rows: impl IntoIterator<Item = R>) -> Result<u64> {
        let load = |txn: &mut TableTxn| {
            let mark = txn.statement_mark();
            let loaded = load_sorted(txn, &self.table, rows);
            // A deadlock has rolled all of it back.
            if loaded.is_err() && !txn.is_ended() {
                txn.rollback_to_mark(mark)?;
            }
            loaded
        };
        self.txn.call(|txn| txn.undone_by_panic(load))
    }

    /// Inserts a row unless one of its unique keys exists; true if it was inserted.
    ///
    /// # Errors
    /// As `insert`, except `DuplicateKey`.
    pub fn insert_or_ignore(&self, row: impl Values) -> Result<bool> {
        row.give(|row| self.run(|txn| txn.insert_or_ignore(&self.table, row)))
    }

    /// Inserts a row, or replaces the row that has its key; true if it was inserted.
    ///
    /// # Errors
    /// As `insert` and `update`.
    pub fn put(&self, row: impl Values) -> Result<bool> {
        self.upsert(row, ())
    }

    /// Inserts a row, or changes the row that has its key: by `changes`, or to `row` if there are
    /// none. True if it was inserted.
    ///
    /// # Errors
    /// As `insert` and `update`.
    pub fn upsert(&self, row: impl Values, changes: impl Changes) -> Result<bool> {
        let layout = self.table.layout();
        row.give(|row| {
            changes.give(&*layout, |changes| self.run(|txn| txn.upsert(&self.table, row, changes)))
        })
    }

    /// Changes columns of a row, each given by its name or position; false if there is no such row.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    /// let people = txn.table("people")?;
    /// assert!(people.update(1, &[("town", "Hamar")])?);
    /// assert!(people.update(2, (("id", 7), ("town", "Hamar")))?); // values of different types
    /// assert!(!people.update(17, &[("town", "Hamar")])?);
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DuplicateKey`; `RowChanged` (kind `Conflict`); lock errors; faults of the values.
    pub fn update(&self, key: impl Values, changes: impl Changes) -> Result<bool> {
        let layout = self.table.layout();
        key.give(|key| {
            changes.give(&*layout, |changes| self.run(|txn| txn.update(&self.table, key, changes)))
        })
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
    /// let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
    /// let mut films = txn.table("films")?;
    /// let mut film = films.large_value()?;
    /// for part in 0..100u8 {
    ///     film.write_all(&[part; 10_000])?;
    /// }
    /// let film = film.finish()?;
    /// films.insert_large((7, None::<&[u8]>), vec![(1, film)])?;
    /// let row = films.get(7)?.expect("it was inserted");
    /// let mut first = [0; 4];
    /// row.open_large("film")?.read_exact(&mut first)?;
    /// txn.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `TransactionEnded`; those of storage.
    pub fn large_value(&self) -> Result<ValueWriter> {
        self.txn.call(|txn| txn.large_value(&self.table))
    }

    /// As `insert`, with long values for columns (position, value); the values of these columns in
    /// `row` are ignored. On an error the long values are freed.
    ///
    /// # Errors
    /// As `insert`; `EntryTooLong` for a column of a key or index.
    pub fn insert_large(
        &self,
        row: impl Values,
        large: Vec<(usize, LargeValue)>,
    ) -> Result<Option<u64>> {
        row.give(|row| self.run(|txn| txn.insert_large(&self.table, row, large)))
    }

    /// As `update`, with long values for columns (position, value). On an error they are freed.
    ///
    /// # Errors
    /// As `update`; `EntryTooLong` for a column of a key or index.
    pub fn update_large(
        &self,
        key: impl Values,
        changes: impl Changes,
        large: Vec<(usize, LargeValue)>,
    ) -> Result<bool> {
        let layout = self.table.layout();
        key.give(|key| {
            changes.give(&*layout, |changes| {
                self.run(|txn| txn.update_large(&self.table, key, changes, large))
            })
        })
    }

    /// Deletes a row; false if there is none.
    ///
    /// # Errors
    /// `RowChanged` (kind `Conflict`); lock errors.
    pub fn delete(&self, key: impl Values) -> Result<bool> {
        key.give(|key| self.run(|txn| txn.delete(&self.table, key)))
    }

    /// Reads a row.
    ///
    /// # Errors
    /// `TableTooNew` for a snapshot older than the table or its `truncate`; faults of the key.
    pub fn get(&self, key: impl Values) -> Result<Option<Row>> {
        let mut row = Row::new();
        Ok(self.get_into(key, &mut row)?.then_some(row))
    }

    /// Reads a row into a reused buffer; false if there is none.
    ///
    /// # Errors
    /// As `get`.
    pub fn get_into(&self, key: impl Values, row: &mut Row) -> Result<bool> {
        key.give(|key| self.run(|txn| txn.get(&self.table, key, row)))
    }

    /// As `get_into`, and gives the columns of a plan, where they lie if possible: without a copy
    /// of the row. `row` then has only [`Row::key`].
    ///
    /// # Errors
    /// As `get`.
    #[cfg(feature = "server")]
    pub fn get_by(
        &self,
        key: impl Values,
        plan: &mut evenkeel_tables::RowPlan,
        row: &mut Row,
        give: impl FnMut(usize, ValueRef<'_>),
    ) -> Result<bool> {
        key.give(|key| self.run(|txn| txn.get_by(&self.table, key, plan, row, give)))
    }

    /// Reads many rows, in the order of their keys; `f` gets each key's position and row.
    ///
    /// # Errors
    /// As `get`, and what `f` returns.
    pub fn get_many(
        &self,
        keys: &[&[ValueRef<'_>]],
        f: &mut dyn FnMut(usize, &Row) -> Result<()>,
    ) -> Result<()> {
        self.run(|txn| txn.get_many(&self.table, keys, f))
    }

    /// Locks a row for writing and reads its newest version.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
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
    pub fn get_for_update(&self, key: impl Values, wait: LockWait, row: &mut Row) -> Result<bool> {
        let mode = Mode::Exclusive;
        key.give(|key| self.run(|txn| txn.get_locked(&self.table, key, mode, wait, row)))
    }

    /// Locks a row against changes and reads its newest version.
    ///
    /// # Errors
    /// As `get_for_update`.
    pub fn get_for_share(&self, key: impl Values, wait: LockWait, row: &mut Row) -> Result<bool> {
        let mode = Mode::Shared;
        key.give(|key| self.run(|txn| txn.get_locked(&self.table, key, mode, wait, row)))
    }

    /// Reads the row with these clustered key bytes ([`Row::key`]) into `row`; false if there is
    /// none.
    ///
    /// # Errors
    /// As `get`.
    pub fn get_by_key(&self, key: &[u8], row: &mut Row) -> Result<bool> {
        self.run(|txn| txn.get_by_key(&self.table, key, row))
    }

    /// As `get_for_update`, by clustered key bytes.
    ///
    /// # Errors
    /// As `get_for_update`.
    #[cfg(feature = "server")]
    pub fn lock_by_key(&self, key: &[u8], wait: LockWait, row: &mut Row) -> Result<bool> {
        self.run(|txn| txn.lock_by_key(&self.table, key, Mode::Exclusive, wait, row))
    }

    /// As `get_for_share`, by clustered key bytes.
    ///
    /// # Errors
    /// As `get_for_share`.
    #[cfg(feature = "server")]
    pub fn share_by_key(&self, key: &[u8], wait: LockWait, row: &mut Row) -> Result<bool> {
        self.run(|txn| txn.lock_by_key(&self.table, key, Mode::Shared, wait, row))
    }

    /// As `update`, by clustered key bytes.
    ///
    /// # Errors
    /// As `update`.
    #[cfg(feature = "server")]
    pub fn update_by_key(&self, key: &[u8], changes: impl Changes) -> Result<bool> {
        let layout = self.table.layout();
        changes
            .give(&*layout, |changes| self.run(|txn| txn.update_by_key(&self.table, key, changes)))
    }

    /// As `update`, for the row that `row` holds. The row is not searched again if it was locked
    /// when it was read (`get_for_update`, a scan that locks) and has not changed since.
    ///
    /// # Errors
    /// As `update`.
    #[cfg(feature = "server")]
    pub fn update_read(&self, row: &Row, changes: impl Changes) -> Result<bool> {
        let layout = self.table.layout();
        changes.give(&*layout, |changes| self.run(|txn| txn.update_read(&self.table, row, changes)))
    }

    /// As `delete`, by clustered key bytes.
    ///
    /// # Errors
    /// As `delete`.
    #[cfg(feature = "server")]
    pub fn delete_by_key(&self, key: &[u8]) -> Result<bool> {
        self.run(|txn| txn.delete_by_key(&self.table, key))
    }

    /// As `delete`, for the row that `row` holds; it is searched again as in `update_read`.
    ///
    /// # Errors
    /// As `delete`.
    pub fn delete_read(&self, row: &Row) -> Result<bool> {
        self.run(|txn| txn.delete_read(&self.table, row))
    }

    /// The rows of a range of the primary key, in order.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    /// let mut scan = txn.table("people")?.scan(Range::from(&[Int(2)]), Direction::Backward)?;
    /// let (mut row, mut found) = (Row::new(), Vec::new());
    /// while scan.next(&mut row)? {
    ///     found.push(row.value("id")?.to_owned());
    /// }
    /// assert_eq!(found, [Value::Int(3), Value::Int(2)]);
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TableTooNew` for a snapshot older than the table or its `truncate`; faults of the range.
    pub fn scan(&self, range: impl ScanRange, direction: Direction) -> Result<Scan> {
        if let Some(index) = self.primary_index()? {
            return index.scan(range, direction);
        }
        let begin = |txn: &mut TableTxn, keys: KeySet<'_>| {
            let rows = match txn.reads_lock() {
                locks if self.table.is_chunked() => {
                    let locking = locks.then_some(Locking::SHARED);
                    Scan::of_chunks(txn, &self.table, (None, false), keys, direction, locking)?
                }
                true => {
                    let scan = txn.locked_scan(&self.table, keys, direction, Locking::SHARED)?;
                    Rows::Locked(Box::new(scan))
                }
                false => Rows::Table(Box::new(txn.scan(&self.table, keys, direction)?)),
            };
            Ok(Scan::new(rows, txn.liveness()))
        };
        range.give(|keys| self.txn.call(|txn| begin(txn, keys)))
    }

    /// Locks and reads the newest version of each row of a range; `f` returns false to stop.
    ///
    /// # Errors
    /// `RowChanged`, lock errors, what `f` returns.
    pub fn scan_for_update(
        &self,
        range: impl ScanRange,
        direction: Direction,
        wait: LockWait,
        f: &mut dyn FnMut(&Row) -> Result<bool>,
    ) -> Result<()> {
        let locking = Locking { mode: Mode::Exclusive, wait };
        self.locked_scan(range, direction, locking)?.each(f)
    }

    /// Locks a range of the primary key exclusively, at every isolation level: no other transaction
    /// writes a row there until this one ends.
    ///
    /// # Errors
    /// Lock errors, faults of the range.
    pub fn lock_range(&self, range: impl ScanRange) -> Result<()> {
        if let Some(index) = self.primary_index()? {
            return index.lock_range(range);
        }
        range.give(|keys| self.txn.call(|txn| txn.lock_range(&self.table, None, keys)))
    }

    /// A scan that locks each row of a range and returns its newest version.
    ///
    /// # Errors
    /// Lock errors, faults of the range.
    pub fn locked_scan(
        &self,
        range: impl ScanRange,
        direction: Direction,
        locking: Locking,
    ) -> Result<Scan> {
        if let Some(index) = self.primary_index()? {
            return index.locked_scan(range, direction, locking);
        }
        let begin = |txn: &mut TableTxn, keys: KeySet<'_>| {
            let rows = match self.table.is_chunked() {
                true => {
                    let (by, locking) = ((None, false), Some(locking));
                    Scan::of_chunks(txn, &self.table, by, keys, direction, locking)?
                }
                false => {
                    let scan = txn.locked_scan(&self.table, keys, direction, locking)?;
                    Rows::Locked(Box::new(scan))
                }
            };
            Ok(Scan::new(rows, txn.liveness()))
        };
        range.give(|keys| self.txn.call(|txn| begin(txn, keys)))
    }

    /// The first row by primary key.
    ///
    /// # Errors
    /// Of storage.
    pub fn first(&self) -> Result<Option<Row>> {
        self.end(Direction::Forward)
    }

    /// The last row by primary key.
    ///
    /// # Errors
    /// Of storage.
    pub fn last(&self) -> Result<Option<Row>> {
        self.end(Direction::Backward)
    }

    fn end(&self, direction: Direction) -> Result<Option<Row>> {
        let mut row = Row::new();
        let mut scan = self.scan(.., direction)?;
        Ok(scan.next(&mut row)?.then_some(row))
    }

    /// The exact number of rows that the transaction sees. A SERIALIZABLE transaction that may
    /// write locks them, as a scan does.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    /// assert_eq!(txn.table("people")?.count()?, 3);
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`TableRef::scan`]; `StatementCancelled`.
    pub fn count(&self) -> Result<u64> {
        let counted = |txn: &mut TableTxn| match txn.reads_lock() {
            true => Ok(None),
            false => txn.count(&self.table).map(Some),
        };
        match self.txn.call(counted)? {
            Some(count) => Ok(count),
            None => self.clone().by_clustered_key().scan(.., Direction::Forward)?.count(),
        }
    }

    /// About how many rows a range of the primary key holds; never 0 unless certain.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly)?;
    /// assert!(txn.table("people")?.count_estimate(Range::from(&[Int(2)]))? > 0);
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`; of storage; faults of the range.
    pub fn count_estimate(&self, range: impl ScanRange) -> Result<u64> {
        if let Some(index) = self.primary_index()? {
            return index.count_estimate(range);
        }
        range.give(|keys| self.txn.call(|txn| txn.key_estimate(&self.table, keys)))
    }

    /// An index of the table.
    ///
    /// # Errors
    /// `IndexMissing`, `TableBusy` while a schema change takes too long.
    pub fn index(&self, name: &str) -> Result<IndexRef<'t>> {
        // First use the table: a schema change must not move the index between here and the scan.
        self.txn.call(|txn| txn.use_table(&self.table))?;
        let position = self.table.layout().index(name)?;
        Ok(IndexRef::new(self.txn, self.table.clone(), position))
    }

    /// The definition of the table.
    pub fn definition(&self) -> Arc<TableDef> {
        self.table.layout().def.clone()
    }
}

/// Inserts rows that come in ascending order of the primary key; how many.
fn load_sorted<R: Values>(
    txn: &mut TableTxn,
    table: &Arc<Table>,
    rows: impl IntoIterator<Item = R>,
) -> Result<u64> {
    let layout = table.layout();
    let (mut last, mut key, mut count) = (Vec::new(), Vec::new(), 0);
    for row in rows {
        row.give(|values| {
            layout.check_values(values)?;
            key.clear();
            layout.encode_key(&|column| Ok(values[column]), &mut key)?;
            if count > 0 && !layout.key.is_empty() && key <= last {
                let error = Error::new(Code::RowsNotSorted).with("table", &layout.def.name);
                return Err(error.with("row", count));
            }
            std::mem::swap(&mut last, &mut key);
            txn.insert(table, values)
        })?;
        count += 1;
    }
    Ok(count)
}
