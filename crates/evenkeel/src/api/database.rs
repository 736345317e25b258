//! The database as users see it.

use crate::api::options::{Durability, Options};
use crate::api::txn::{Txn, check_writable};
use crate::background::checkpoint::Checkpoint;
use crate::engine::Engine;
use crate::open::recovery::RecoveryReport;
use evenkeel_base::{Lsn, Result};
use evenkeel_io::ThreadWatch;
use evenkeel_tables::{
    Access, BuildPhase, BuildProgress, ColumnSpec, ForeignKeySpec, IndexSpec, Isolation,
    SchemaWait, TableChange, TableCopy, TableDef, TableSpec, Values, WaitWatch,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An open database. Cheap to clone; the last clone closes it.
///
/// One process owns a directory. All methods may be called from any thread.
///
/// A tour of schema changes and figures, on a table of people with their towns:
///
/// ```
#[doc = include_str!("people.md")]
/// // While others read and write, and without rewriting a row:
/// db.add_indexes("people", &[IndexSpec::new("by_both", &["town", "id"])])?;
/// db.drop_index("people", "by_town")?;
/// db.add_column("people", &ColumnSpec::new("age", ColumnType::Int32).nullable())?;
/// db.drop_column("people", "age")?;
///
/// db.rename_table("people", "neighbours")?;
/// assert_eq!(db.tables(), ["neighbours"]);
/// let missing = db.definition("people").err().map(|error| (error.kind(), error.code()));
/// assert_eq!(missing, Some((Kind::NotFound, Code::TableMissing)));
///
/// let report = db.check()?; // everything against everything
/// assert_eq!((report.rows, report.entries), (3, 3));
/// assert!(report.problems.is_empty());
///
/// let stats = db.stats();
/// assert!(stats.get(Metric::Commits) > 0);
/// for (name, unit, value) in &stats.metrics {
///     println!("{name}: {value} {unit}");
/// }
///
/// db.truncate("neighbours")?; // its definition and indexes stay
/// let txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly)?;
/// assert!(txn.table("neighbours")?.first()?.is_none());
/// drop(txn);
/// db.drop_table("neighbours")?;
/// db.close()?;
/// # Ok::<(), evenkeel::Error>(())
/// ```
#[derive(Clone)]
pub struct Database {
    pub(crate) engine: Arc<Engine>,
}

impl Database {
    /// Opens the database in a directory, which is created if it is missing or empty.
    ///
    /// # Errors
    /// `DirectoryBusy`, `NotADatabase`, `DirectoryNotEmpty`, `NewerFormat`, damage found by
    /// recovery, and those of the file system.
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Database::open_with(path, Options::default())
    }

    /// Opens the database with options, here to read it without changing a byte, as others may at
    /// the same time:
    ///
    /// ```
    /// # use evenkeel::{Access, Code, Database, Isolation, Options};
    /// # let directory = std::env::temp_dir().join(format!("read-only-{}", std::process::id()));
    /// # Database::open(&directory)?.close()?;
    /// let db = Database::open_with(&directory, Options { read_only: true, ..Options::new() })?;
    /// let refused = db.begin(Isolation::ReadCommitted, Access::ReadWrite).err();
    /// assert_eq!(refused.map(|error| error.code()), Some(Code::OpenedReadOnly));
    /// # drop(db);
    /// # std::fs::remove_dir_all(directory).expect("removes");
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `open`, and `OptionOutOfRange`, `PageSizeMismatch`.
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Database> {
        Ok(Database { engine: Engine::open(path.as_ref(), options)? })
    }

    /// Begins a transaction.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
    /// let people = txn.table("people")?;
    /// people.insert(&[Int(4), Text("Oslo")])?;
    /// people.delete(&[Int(2)])?;
    /// txn.commit()?; // dropping it instead rolls back
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DatabaseClosed`; `OpenedReadOnly`; `WritesStopped` for one that writes.
    pub fn begin(&self, isolation: Isolation, access: Access) -> Result<Txn> {
        self.check_open()?;
        if access == Access::ReadWrite {
            check_writable(&self.engine)?;
        }
        let inner = self.engine.store.begin(isolation, access);
        Ok(Txn::new(inner, self.engine.clone()))
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        self.engine.check_open()
    }

    fn check_changeable(&self) -> Result<()> {
        self.check_open()?;
        check_writable(&self.engine)
    }

    pub(crate) fn check_ddl(&self) -> Result<()> {
        self.check_changeable()?;
        self.engine.rt.health.check_writable()
    }

    /// Makes a table. If its primary key may be longer than a fifth of a page, the key is kept in
    /// an index, and each read by it takes two steps; the log says so, and
    /// [`TableInfo::hidden_key`](crate::TableInfo).
    ///
    /// # Errors
    /// `TableExists`, and faults of the definition (each names the column or limit).
    pub fn create_table(&self, name: &str, spec: &TableSpec) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.create_table(name, spec).map(|_| ())
    }

    /// Makes a table that is not needed after a crash. Creating, changing and dropping it do not
    /// wait for storage. A transaction that also changes other tables is as durable as any. After a
    /// crash the table may exist, as intact as other tables; the caller then drops it. Renamed, it
    /// becomes an ordinary table.
    ///
    /// # Errors
    /// As `create_table`.
    pub fn create_temporary_table(&self, name: &str, spec: &TableSpec) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.create_temporary_table(name, spec).map(|_| ())
    }

    /// Removes a table; its space goes back to the file system in the background.
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.drop_table(name)
    }

    /// As `drop_table`, with the caller's wait.
    ///
    /// # Errors
    /// As `drop_table`; `StatementCancelled`.
    pub fn drop_table_with(&self, name: &str, wait: &SchemaWait<'_>) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.drop_table_with(name, wait)
    }

    /// Renames a table.
    ///
    /// # Errors
    /// `TableMissing`, `TableExists`, `TableBusy`.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.rename_table(from, to)
    }

    /// As `rename_table`, with the caller's wait for other schema changes of the table.
    ///
    /// # Errors
    /// As `rename_table`; `StatementCancelled`.
    pub fn rename_table_with(&self, from: &str, to: &str, wait: &SchemaWait<'_>) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.rename_table_with(from, to, wait)
    }

    /// Removes all rows of a table at once. A transaction with an older snapshot gets
    /// `TableTooNew` when it reads the table without locks.
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`.
    pub fn truncate(&self, name: &str) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.truncate_table(name)
    }

    /// As `truncate`, with the caller's wait.
    ///
    /// # Errors
    /// As `truncate`; `StatementCancelled`.
    pub fn truncate_with(&self, name: &str, wait: &SchemaWait<'_>) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.truncate_table_with(name, wait)
    }

    /// As `truncate_with`; the numbers of the auto-increment column also begin at 1 again. A crash
    /// leaves both done or neither.
    ///
    /// # Errors
    /// As `truncate_with`.
    pub fn truncate_and_restart(&self, name: &str, wait: &SchemaWait<'_>) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.truncate_and_restart(name, wait)
    }

    /// Declares that the rows of a table were copied into it from another table that it replaces.
    /// Snapshots from now on may read it; a plain read at an older one fails with `TableTooNew`, as
    /// for a table created or emptied since.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn readable_from_now(&self, name: &str) -> Result<()> {
        self.engine.store.readable_from_now(name)
    }

    /// Lets every snapshot read a table however new it is, as for a table that belongs to one
    /// session.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn readable_always(&self, name: &str) -> Result<()> {
        self.engine.store.readable_always(name)
    }

    /// Fills an empty table with rows in ascending order of the primary key and returns their
    /// number. This is the fastest way to load rows: leaves are built directly and full, and the
    /// indexes of the table in one pass over them. On an error the table stays empty; on success
    /// all rows are durable. The call waits for transactions that use the table, and others wait
    /// for it; a transaction with an older snapshot gets `TableTooNew`, as after `truncate`.
    ///
    /// ```
    /// # use evenkeel::{ColumnSpec, ColumnType, Database, Options, TableSpec, Value};
    /// # let db = Database::open_with("/load", Options::in_memory())?;
    /// let spec = TableSpec::new()
    ///     .column(ColumnSpec::new("id", ColumnType::Int64))
    ///     .column(ColumnSpec::new("name", ColumnType::Text { max: 20 }))
    ///     .primary_key(&["id"]);
    /// db.create_table("people", &spec)?;
    /// let rows = (0..1000i64).map(|id| [Value::Int(id), Value::from("somebody")]);
    /// assert_eq!(db.load_table("people", rows)?, 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `TreeNotEmpty`; `RowsNotSorted` naming the row; `DuplicateInBuild`; `RowTooLong` for a row
    /// that does not fit a page: insert it; faults of the values; `TableMissing`, `TableBusy`.
    pub fn load_table<R: Values>(
        &self,
        table: &str,
        rows: impl IntoIterator<Item = R>,
    ) -> Result<u64> {
        self.check_ddl()?;
        self.engine.store.load_table(table, rows, &BuildProgress::default())
    }

    /// Begins to copy rows into an empty table that nobody else uses. Rows that arrive in the order
    /// of the primary key are loaded as by `load_table`; rows in another order are sorted first; if
    /// one row does not fit a page, rows are inserted by transactions of a few rows each.
    /// `TableCopy::finish` builds the indexes; `progress` shows and cancels the copy. A copy that
    /// is dropped before leaves a part of the rows and index entries in the table. Duplicates are
    /// found at the end or, if the copy `leaves_out` such rows, as they arrive.
    ///
    /// ```
    /// # use evenkeel::{BuildProgress, ColumnSpec, ColumnType, Database, Options, TableSpec};
    /// # use evenkeel::ValueRef::{Int, Text};
    /// # let db = Database::open_with("/copy", Options::in_memory())?;
    /// let spec = TableSpec::new()
    ///     .column(ColumnSpec::new("id", ColumnType::Int64))
    ///     .column(ColumnSpec::new("name", ColumnType::Text { max: 20 }))
    ///     .primary_key(&["id"]);
    /// db.create_table("people", &spec)?;
    /// let mut copy = db.copy_into("people", false, &BuildProgress::default())?;
    /// copy.push(&[Int(1), Text("Ada")])?;
    /// copy.push(&[Int(2), Text("Bo")])?;
    /// copy.finish()?;
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TreeNotEmpty`, `TableMissing`; those of storage.
    pub fn copy_into(
        &self,
        table: &str,
        leaves_out: bool,
        progress: &BuildProgress,
    ) -> Result<TableCopy> {
        self.check_ddl()?;
        self.engine.store.copy_into(table, leaves_out, progress)
    }

    /// Adds indexes to a table in one pass over it, while others read and write.
    ///
    /// # Errors
    /// `TableMissing`, `IndexExists`, `DuplicateInBuild`, `TableBusy`.
    pub fn add_indexes(&self, table: &str, specs: &[IndexSpec]) -> Result<()> {
        self.add_indexes_with(table, specs, &BuildProgress::default())
    }

    /// As `add_indexes`; `progress` shows the progress of the build and cancels it from another
    /// thread.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let progress = BuildProgress::default();
    /// let shown = progress.clone(); // for a thread that looks at `share` and `time_left`
    /// db.add_indexes_with("people", &[IndexSpec::new("by_both", &["town", "id"])], &progress)?;
    /// assert_eq!((shown.phase(), shown.share()), (BuildPhase::Done, 1.0));
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `add_indexes`, and `BuildCancelled`; nothing is left behind then.
    pub fn add_indexes_with(
        &self,
        table: &str,
        specs: &[IndexSpec],
        progress: &BuildProgress,
    ) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.add_indexes(table, specs, progress)
    }

    /// Adds indexes to several tables, each named once, as one change: all become usable at once,
    /// or none. Writers of all the tables maintain the indexes from the beginning; the tables are
    /// read one after the other.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let spec = TableSpec::new()
    ///     .column(ColumnSpec::new("town", ColumnType::Text { max: 50 }))
    ///     .primary_key(&["town"]);
    /// db.create_table("towns", &spec)?;
    /// let people = [IndexSpec::new("short", &["town"])];
    /// let towns = [IndexSpec::new("t", &["town"])];
    /// db.add_indexes_to(&[("people", &people), ("towns", &towns)], &BuildProgress::default())?;
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `add_indexes_with`; `DefinitionInvalid` if a table is named twice. Nothing is left behind
    /// in any table then.
    pub fn add_indexes_to(
        &self,
        tables: &[(&str, &[IndexSpec])],
        progress: &BuildProgress,
    ) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.add_indexes_to(tables, progress)
    }

    /// Waits at most `timeout` until a build is in a phase other than `known`; returns the phase.
    pub fn wait_build(
        &self,
        progress: &BuildProgress,
        known: BuildPhase,
        timeout: Duration,
    ) -> BuildPhase {
        self.engine.store.wait_build(progress, known, timeout)
    }

    /// Removes an index.
    ///
    /// # Errors
    /// `TableMissing`, `IndexMissing`, `TableBusy`.
    pub fn drop_index(&self, table: &str, index: &str) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.drop_index(table, index)
    }

    /// Adds a foreign key to a table, while others read and write. New rows keep the key from the
    /// beginning; then the rows that are there are looked up by one pass over the table's index.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let towns = TableSpec::new().column(ColumnSpec::new("name", ColumnType::Text { max: 50 }));
    /// db.create_table("towns", &towns.primary_key(&["name"]))?;
    /// let key = ForeignKeySpec::new("lives_in", &["town"], "towns", &["name"]);
    /// let error = db.add_foreign_key("people", &key).expect_err("no town is there");
    /// assert_eq!(error.code(), Code::ParentRowMissing);
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `add_foreign_keys`.
    pub fn add_foreign_key(&self, table: &str, key: &ForeignKeySpec) -> Result<()> {
        self.add_foreign_keys(table, std::slice::from_ref(key), true, &BuildProgress::default())
    }

    /// Adds foreign keys to a table, all or none. `progress` shows the progress and cancels the
    /// addition from another thread. If `validates` is false the rows that are there are not looked
    /// up; a check of the table then finds those that refer to nothing.
    ///
    /// # Errors
    /// `TableMissing`, `ForeignKeyInvalid` and other faults of the definition; `ParentRowMissing`
    /// names a row that refers to nothing; `TableBusy`, `BuildCancelled`. Nothing is left behind
    /// then.
    pub fn add_foreign_keys(
        &self,
        table: &str,
        keys: &[ForeignKeySpec],
        validates: bool,
        progress: &BuildProgress,
    ) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.add_foreign_keys(table, keys, validates, progress)
    }

    /// The first half of `add_foreign_keys`: the keys are enforced and proved, and exist in memory
    /// only. `TableChange::add_foreign_keys` makes them permanent, in one change with others;
    /// `forget_foreign_keys` removes them, and so does a crash.
    ///
    /// # Errors
    /// As `add_foreign_keys`.
    pub fn prove_foreign_keys(
        &self,
        table: &str,
        keys: &[ForeignKeySpec],
        validates: bool,
        progress: &BuildProgress,
    ) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.prove_foreign_keys(table, keys, validates, progress)
    }

    /// Removes the keys of a table that were proved and not made permanent.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn forget_foreign_keys(&self, table: &str) -> Result<()> {
        self.engine.store.forget_foreign_keys(table)
    }

    /// Drops a foreign key: one change of the catalog, which waits for nobody.
    ///
    /// # Errors
    /// `TableMissing`, `ForeignKeyMissing`, `TableBusy`.
    pub fn drop_foreign_key(&self, table: &str, key: &str) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.drop_foreign_key(table, key)
    }

    /// Adds a column at the end, without rewriting rows.
    ///
    /// # Errors
    /// `TableMissing`, `ColumnExists`, faults of the definition.
    pub fn add_column(&self, table: &str, column: &ColumnSpec) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.add_column(table, column)
    }

    /// Removes a column, without rewriting rows. The call waits for transactions that use the
    /// table, because the positions of columns change.
    ///
    /// # Errors
    /// `TableMissing`, `ColumnMissing`, `TableBusy`, and if a key uses it.
    pub fn drop_column(&self, table: &str, column: &str) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.drop_column(table, column)
    }

    /// Renames a column.
    ///
    /// # Errors
    /// `TableMissing`, `ColumnMissing`, `ColumnExists`.
    pub fn rename_column(&self, table: &str, from: &str, to: &str) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.rename_column(table, from, to)
    }

    /// Changes columns and indexes of a table, all or nothing, without rewriting rows.
    ///
    /// ```
    /// # use evenkeel::{ColumnSpec, ColumnType, Database, Options, TableChange, TableSpec};
    /// # let db = Database::open_with("/alter", Options::in_memory())?;
    /// let spec = TableSpec::new()
    ///     .column(ColumnSpec::new("id", ColumnType::Int64))
    ///     .column(ColumnSpec::new("name", ColumnType::Bytes { max: 20 }).nullable())
    ///     .primary_key(&["id"]);
    /// db.create_table("people", &spec)?;
    /// let change = TableChange {
    ///     rename_columns: vec![("name".into(), "called".into())],
    ///     widen_columns: vec![("called".into(), 100)],
    ///     add_columns: vec![ColumnSpec::new("age", ColumnType::Int32).nullable()],
    ///     ..TableChange::default()
    /// };
    /// db.alter_table("people", &change)?;
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`, and faults of the change, each by its own code.
    pub fn alter_table(&self, table: &str, change: &TableChange) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.alter_table(table, change)
    }

    /// As `alter_table`, with the caller's wait.
    ///
    /// # Errors
    /// As `alter_table`; `StatementCancelled`.
    pub fn alter_table_with(
        &self,
        table: &str,
        change: &TableChange,
        wait: &SchemaWait<'_>,
    ) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.alter_table_with(table, change, wait)
    }

    /// Changes several tables, each named once, as one change: all or none, also after a crash.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let spec = TableSpec::new().column(ColumnSpec::new("town", ColumnType::Int64));
    /// db.create_table("towns", &spec)?;
    /// let rename_columns = vec![("town".into(), "place".into())];
    /// let change = TableChange { rename_columns, mark: 7, ..TableChange::default() };
    /// db.alter_tables(&[("people", &change), ("towns", &change)], &SchemaWait::default())?;
    /// assert_eq!(db.table_info("towns")?.mark, 7);
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `alter_table_with`; `DefinitionInvalid` if a table is named twice. No table is changed
    /// then.
    pub fn alter_tables(
        &self,
        changes: &[(&str, &TableChange)],
        wait: &SchemaWait<'_>,
    ) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.alter_tables(changes, wait)
    }

    /// Waits until no transaction uses a table, prepared ones included. Transactions that begin
    /// meanwhile wait, as for a change of the table. If the caller then starts a rule that all rows
    /// must obey from now on, no earlier transaction is left that could break it.
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`; `StatementCancelled`.
    pub fn wait_unused(&self, table: &str, wait: &SchemaWait<'_>) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.wait_unused(table, wait)
    }

    /// Waits until every transaction that may have changed a table by now has ended, prepared ones
    /// included. A snapshot taken afterwards sees all their changes, as long as the caller keeps
    /// others from writing by other means.
    ///
    /// # Errors
    /// `TableMissing`, `TableBusy`; `StatementCancelled`.
    pub fn wait_unchanged(&self, table: &str, wait: &SchemaWait<'_>) -> Result<()> {
        self.check_open()?;
        self.engine.store.wait_unchanged(table, wait)
    }

    /// True if these columns of bytes or text may grow to these lengths
    /// (`TableChange::widen_columns`). Columns of a clustered primary key may grow only as long as
    /// its longest key fits a fifth of a page.
    ///
    /// # Errors
    /// `TableMissing`, `ColumnMissing`.
    pub fn may_widen(&self, table: &str, columns: &[(String, u32)]) -> Result<bool> {
        self.engine.store.may_widen(table, columns)
    }

    /// Forgets the mark of the last change of a table (`TableChange::mark`), durably with the next
    /// durable commit.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn forget_mark(&self, table: &str) -> Result<()> {
        self.check_ddl()?;
        self.engine.store.forget_mark(table)
    }

    /// Names of all tables, sorted.
    pub fn tables(&self) -> Vec<String> {
        self.engine.store.table_names()
    }

    /// The definition of a table.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn definition(&self, table: &str) -> Result<Arc<TableDef>> {
        Ok(self.engine.store.table(table)?.layout().def.clone())
    }

    /// True if some key of a table cannot be encoded because its collation is missing or has
    /// changed. The table has to be copied (ALTER TABLE ... FORCE in MariaDB).
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn needs_rebuild(&self, table: &str) -> Result<bool> {
        Ok(self.engine.store.table(table)?.layout().needs_rebuild())
    }

    /// Ids of prepared transactions, those found by recovery included.
    pub fn prepared(&self) -> Vec<Vec<u8>> {
        self.engine.txns.prepared_xids()
    }

    /// The tables that a prepared transaction uses; for one found by recovery, those it has
    /// changed.
    ///
    /// # Errors
    /// `XidUnknown`.
    pub fn prepared_tables(&self, xid: &[u8]) -> Result<Vec<String>> {
        self.engine.store.prepared_tables(xid)
    }

    /// Commits a prepared transaction.
    ///
    /// # Errors
    /// `XidUnknown`; `DatabaseClosed`, `OpenedReadOnly`.
    pub fn commit_prepared(&self, xid: &[u8]) -> Result<()> {
        self.check_changeable()?;
        self.engine.store.commit_prepared(xid, self.engine.present.durability())
    }

    /// The ordered half of `commit_prepared`, as [`Txn::commit_ordered`]; returns its timestamp.
    ///
    /// # Errors
    /// As `commit_prepared`.
    pub fn commit_prepared_ordered(&self, xid: &[u8]) -> Result<Lsn> {
        self.check_changeable()?;
        self.engine.store.commit_prepared_ordered(xid)
    }

    /// Waits until the commit with this timestamp, and so every earlier one, is as durable as
    /// `durability` says.
    ///
    /// # Errors
    /// `WritesStopped`: the next open decides whether it is committed.
    pub fn wait_durable(&self, commit: Lsn, durability: Durability) -> Result<()> {
        match commit {
            Lsn::ZERO => Ok(()),
            lsn => self.engine.log.wait_commit(lsn, durability),
        }
    }

    /// Rolls a prepared transaction back, as durably as a commit.
    ///
    /// # Errors
    /// As `commit_prepared`.
    pub fn rollback_prepared(&self, xid: &[u8]) -> Result<()> {
        self.check_changeable()?;
        self.engine.store.rollback_prepared(xid, self.engine.present.durability())
    }

    /// As `rollback_prepared` without the wait; returns the argument for
    /// [`Database::wait_durable`]. A crash before that wait ends brings the transaction back,
    /// prepared.
    ///
    /// # Errors
    /// As `commit_prepared`.
    pub fn rollback_prepared_ordered(&self, xid: &[u8]) -> Result<Lsn> {
        self.check_changeable()?;
        self.engine.store.rollback_prepared_ordered(xid)
    }

    /// Calls `watch` before every wait of a transaction for others. Once per database.
    pub fn watch_waits(&self, watch: Box<dyn WaitWatch>) {
        self.engine.txns.watch_waits(watch);
    }

    /// Calls `watch` around every wait of a user's thread within a call of the database. Once per
    /// database.
    pub fn watch_threads(&self, watch: Box<dyn ThreadWatch>) {
        self.engine.rt.watch_threads(watch);
    }

    /// Reserves `wanted` auto-increment numbers of the series `offset`, `offset + increment`, ...
    /// of a table, for a caller that fills in the column itself; returns the first.
    ///
    /// # Errors
    /// `TableMissing`, `AutoIncrementExhausted`; `DatabaseClosed`, `OpenedReadOnly`.
    pub fn reserve_numbers(
        &self,
        table: &str,
        offset: u64,
        increment: u64,
        wanted: u64,
    ) -> Result<u64> {
        self.check_changeable()?;
        let store = &self.engine.store;
        store.reserve_numbers(&store.table(table)?, (offset, increment), wanted)
    }

    /// Moves the table's next number from `from` to `to`, for a caller that computes a series of
    /// its own; returns whether it was still `from`. A `to` below `from` gives back numbers that
    /// were not handed out.
    ///
    /// # Errors
    /// `TableMissing`; `DatabaseClosed`, `OpenedReadOnly`.
    pub fn move_numbers(&self, table: &str, from: u64, to: u64) -> Result<bool> {
        self.check_changeable()?;
        let store = &self.engine.store;
        store.move_numbers(&store.table(table)?, (from, to))
    }

    /// The table's numbers continue above this one.
    ///
    /// # Errors
    /// `TableMissing`; `DatabaseClosed`, `OpenedReadOnly`.
    pub fn pass_number(&self, table: &str, number: u64) -> Result<()> {
        self.check_changeable()?;
        let store = &self.engine.store;
        store.pass_number(&store.table(table)?, number)
    }

    /// The number that the table would hand out next.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn next_number(&self, table: &str) -> Result<u64> {
        let table = self.engine.store.table(table)?;
        Ok(self.engine.store.next_auto(&table))
    }

    /// The table's numbers continue at this one, which may be lower than before.
    ///
    /// # Errors
    /// `TableMissing`.
    pub fn restart_numbers(&self, table: &str, next: u64) -> Result<()> {
        self.check_ddl()?;
        let store = &self.engine.store;
        store.restart_numbers(&store.table(table)?, next)
    }

    /// What recovery did when the database was opened.
    pub fn recovery(&self) -> RecoveryReport {
        self.engine.recovery
    }

    /// Takes a checkpoint now: the log before it is not needed for recovery.
    ///
    /// # Errors
    /// `WritesStopped`, `Full`.
    pub fn checkpoint(&self) -> Result<()> {
        self.check_ddl()?;
        self.engine.pages.flush_all()?;
        self.engine.checkpointer.take(Checkpoint::Running)
    }

    /// Closes the database: writes dirty pages for up to three seconds and takes a last checkpoint.
    /// The next open fills memtables again and redoes the pages that were left. Dropping the last
    /// clone does the same but can only log an error.
    ///
    /// # Errors
    /// The error that stopped writes. No acknowledged commit is lost; the next open recovers.
    pub fn close(self) -> Result<()> {
        self.engine.close()
    }

    /// Changes a setting while the database is open; `docs/reference/settings.md` says which may
    /// change (`online`) and in which unit. It holds until the database is closed.
    ///
    /// `memory_size` may grow and shrink: memory that is no longer allowed is given back in the
    /// background. So may `log_size`: less is reached as checkpoints move, and until then writers
    /// go on with half of what those free. `durability` is that of commits from now on,
    /// `lock_wait_timeout` that of transactions that begin from now on.
    ///
    /// ```
    /// # use evenkeel::{Database, Options};
    /// # let db = Database::open_with("/set", Options::in_memory())?;
    /// db.set("memory_size", 64 << 20)?;
    /// db.set("durability", 2)?;
    /// assert_eq!(db.setting("memory_size")?, 64 << 20);
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `SettingUnknown`, `SettingFixed` for one that may not change, `OptionOutOfRange`,
    /// `DatabaseClosed`.
    pub fn set(&self, name: &str, value: u64) -> Result<()> {
        self.check_open()?;
        self.engine.set(name, value)
    }

    /// The present value of a setting.
    ///
    /// # Errors
    /// `SettingUnknown`.
    pub fn setting(&self, name: &str) -> Result<u64> {
        self.engine.setting(name)
    }
}
