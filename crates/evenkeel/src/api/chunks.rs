//! Chunked tables: the list of chunks, and their drop.

use crate::api::database::Database;
use evenkeel_base::Result;
use evenkeel_tables::{ChunkInfo, ChunksDropped, SchemaWait};

impl Database {
    /// The chunks of a chunked table, by slot and time: first times, rows and bytes.
    ///
    /// # Errors
    /// `TableMissing`; `ChunkingInvalid` if the table is not chunked; of storage.
    pub fn chunks(&self, table: &str) -> Result<Vec<ChunkInfo>> {
        self.engine.store.chunks(table)
    }

    /// Drops the chunks of a table that hold only times before `before`, which is given in the unit
    /// of the time column, all in one commit. Nobody waits for anybody: chunks in which a
    /// transaction has changed or locked rows are kept, and the result names the transaction.
    /// Snapshots from before the drop continue to see the rows; their space is given back when the
    /// last of these snapshots has ended.
    ///
    /// ```
    /// # use evenkeel::*;
    /// # use std::time::Duration;
    /// # let db = Database::open_with("/chunks", Options::in_memory())?;
    /// let by_day = Chunking::by("at", Duration::from_secs(86_400)).unit(TimeUnit::Seconds);
    /// let spec = TableSpec::new()
    ///     .column(ColumnSpec::new("device", ColumnType::Int32))
    ///     .column(ColumnSpec::new("at", ColumnType::Int64))
    ///     .column(ColumnSpec::new("value", ColumnType::Float64))
    ///     .primary_key(&["device", "at"])
    ///     .chunked(by_day);
    /// db.create_table("readings", &spec)?;
    /// let day = |n: i64| 1_700_006_400 + 86_400 * n;
    /// let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
    /// for n in 0..5 {
    ///     txn.table("readings")?.insert((7, day(n), 20.5))?;
    /// }
    /// txn.commit()?;
    /// assert_eq!(db.chunks("readings")?.len(), 5);
    /// let done = db.drop_chunks("readings", day(3), &SchemaWait::default())?;
    /// assert!(done.dropped.len() == 3 && done.kept.is_empty());
    /// let txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly)?;
    /// assert_eq!(txn.table("readings")?.scan(.., Direction::Forward)?.count()?, 2);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `TableMissing`; `ChunkingInvalid` if the table is not chunked; `TableBusy` if another schema
    /// change of the table takes too long.
    pub fn drop_chunks(
        &self,
        table: &str,
        before: i64,
        wait: &SchemaWait<'_>,
    ) -> Result<ChunksDropped> {
        self.check_ddl()?;
        self.engine.store.drop_chunks(table, before, wait)
    }

    /// Drops the chunks that are older than the table's `retain` at the time `now`, in the unit of
    /// the time column. The engine has no clock of the day: the program calls this, once an hour
    /// for example.
    ///
    /// # Errors
    /// As `drop_chunks`; `ChunkingInvalid` also if the table was made without `retain`.
    pub fn expire_chunks(
        &self,
        table: &str,
        now: i64,
        wait: &SchemaWait<'_>,
    ) -> Result<ChunksDropped> {
        self.check_ddl()?;
        self.engine.store.expire_chunks(table, now, wait)
    }
}
