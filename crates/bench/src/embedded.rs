//! Runs the embedded engine in the benchmark, through its public API.

use crate::buffered::Buffered;
use crate::engine::{Counters, Deleted, Engine, Failure, Held, Session};
use crate::error::BenchError;
use crate::options::Options;
use crate::rows::{Query, RANGE_LIMIT, Row};
use evenkeel::{
    Access, BuildProgress, Cause, ColumnSpec, ColumnType, Database, Direction, Durability,
    IndexSpec, Isolation, Kind, Metric, Range, Stats, TableSpec, Txn, ValueRef,
};
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};

/// Names and columns of the secondary indexes, in the order in which queries number them.
const INDEXES: [(&str, [&str; 3]); 3] = [
    ("marketsegment", ["productid", "customerid", "price"]),
    ("registersegment", ["cashregisterid", "customerid", "price"]),
    ("pdc", ["price", "dateandtime", "customerid"]),
];
/// The positions of their columns in the table.
const POSITIONS: [[usize; 3]; 3] = [[4, 3, 5], [2, 3, 5], [5, 1, 3]];
const COLUMNS: usize = 7;
/// The position of `price`.
const PRICE: usize = 5;

/// Evenkeel.
pub struct Embedded {
    db: Database,
    builds: Mutex<Vec<Arc<BuildProgress>>>,
    settings: serde_json::Value,
}

/// Opens the engine in the options' directory.
///
/// # Errors
/// Those of the engine.
pub fn open(options: &Options) -> Result<Box<dyn Engine>, BenchError> {
    let mut chosen = evenkeel::Options::new();
    chosen.memory_size = options.memory;
    chosen.page_size = Some(options.page_size);
    chosen.durability = match options.durability {
        0 => Durability::Lazy,
        1 => Durability::Sync,
        _ => Durability::Write,
    };
    let settings = serde_json::json!({
        "memory_size": chosen.memory_size, "log_size": chosen.log_size,
        "page_size": options.page_size, "durability": options.durability,
        "doublewrite": chosen.doublewrite, "direct_io": options.direct_io,
    });
    if !options.direct_io {
        chosen = chosen.env(Arc::new(Buffered::new(&options.dir)));
    }
    let db = Database::open_with(&options.dir, chosen)?;
    db.keep_decisions(true);
    Ok(Box::new(Embedded { db, builds: Mutex::new(Vec::new()), settings }))
}

fn table(client: usize) -> String {
    format!("purchases{}", client + 1)
}

fn definition() -> TableSpec {
    let int = |name| ColumnSpec::new(name, ColumnType::Int32);
    TableSpec::new()
        .column(ColumnSpec::new("transactionid", ColumnType::Int64).auto_increment())
        .column(ColumnSpec::new("dateandtime", ColumnType::DateTime))
        .column(int("cashregisterid"))
        .column(int("customerid"))
        .column(int("productid"))
        .column(int("price"))
        .column(ColumnSpec::new("data", ColumnType::Text { max: 4000 }))
        .primary_key(&["transactionid"])
}

fn values(row: &Row) -> [ValueRef<'_>; COLUMNS] {
    let int = |n: i32| ValueRef::Int(i64::from(n));
    [
        row.transactionid.map_or(ValueRef::Null, ValueRef::Int),
        ValueRef::DateTime(row.dateandtime * 1_000_000),
        int(row.cashregisterid),
        int(row.customerid),
        int(row.productid),
        int(row.price),
        ValueRef::Text(row.text()),
    ]
}

/// Conflicts are retried; every other error ends the run.
fn failure(error: evenkeel::Error) -> Failure {
    match error.kind() {
        Kind::Conflict | Kind::Deadlock | Kind::LockTimeout => Failure::Retry,
        _ => Failure::Fatal(error.into()),
    }
}

/// Converts the engine's counters to those of the benchmark.
fn counters(stats: &Stats) -> Counters {
    let mut counters = Counters::default();
    let bytes = &mut counters.bytes;
    bytes.wal = stats.get(Metric::LogBytes);
    bytes.page = stats.get(Metric::PageWriteBytes);
    bytes.doublewrite = stats.get(Metric::DoublewriteBytes);
    bytes.run_flush = stats.get(Metric::RunFlushBytes);
    bytes.compaction_read = stats.get(Metric::CompactionReadBytes);
    bytes.compaction_written = stats.get(Metric::CompactionWriteBytes);
    bytes.build_read = stats.get(Metric::BuildReadBytes);
    bytes.build_written = stats.get(Metric::BuildWriteBytes);
    bytes.foreground_read = stats.get(Metric::PageReadBytes) + stats.get(Metric::RunBlockReadBytes);
    bytes.wal_prepared = stats.get(Metric::LogPreparedBytes);
    bytes.undo = stats.get(Metric::UndoSpilledBytes);
    // Reads that belong to no class above: the engine counts all bytes of files where it reads or
    // writes them.
    let read = bytes.foreground_read + bytes.compaction_read + bytes.build_read;
    bytes.other_read = stats.get(Metric::FileReadBytes).saturating_sub(read);
    let run_written = bytes.run_flush + bytes.compaction_written + bytes.build_written;
    let written = bytes.wal + bytes.wal_prepared + bytes.page + bytes.doublewrite + bytes.undo;
    bytes.other_written = stats.get(Metric::FileWriteBytes).saturating_sub(written + run_written);
    let events = &mut counters.events;
    events.memtable_flushes = stats.get(Metric::MemtableFlushes);
    events.compactions = stats.get(Metric::CompactionsFinished);
    events.compactions_bottom = stats.get(Metric::CompactionsBottom);
    events.checkpoints = stats.get(Metric::Checkpoints);
    events.log_rotations = stats.get(Metric::LogRotations);
    counters.flush_requested = stats.get(Metric::FlushRequested);
    counters.flush_done = stats.get(Metric::FlushDone);
    let why = [
        ("age", Metric::FlushReasonAge),
        ("dirty share", Metric::FlushReasonShare),
        ("log ahead", Metric::FlushReasonNext),
        ("free frames", Metric::FlushReasonFreeFrames),
        ("nobody writes", Metric::FlushReasonIdle),
        ("required", Metric::FlushReasonRequired),
    ];
    counters.flush_reasons = why.map(|(name, m)| (name.to_string(), stats.get(m))).into();
    for (name, figures) in &stats.stalls {
        if let Some(cause) = Cause::ALL.iter().find(|cause| cause.name() == *name) {
            counters.waits.add(*cause, figures.us);
        }
    }
    counters
}

impl Engine for Embedded {
    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_string()
    }

    fn details(&self) -> serde_json::Value {
        let mut details = self.settings.clone();
        let stats = self.db.stats();
        for (name, _, value) in &stats.metrics {
            details["metrics"][*name] = (*value).into();
        }
        for table in self.db.table_stats().unwrap_or_default() {
            for index in table.indexes {
                details["runs"][&table.name][&index.name] = index.runs.into();
            }
        }
        details
    }

    fn create_table(&self, client: usize) -> Result<(), BenchError> {
        Ok(self.db.create_table(&table(client), &definition())?)
    }

    fn create_indexes(&self, client: usize) -> Result<(), BenchError> {
        let progress = Arc::new(BuildProgress::default());
        self.builds.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&progress));
        let indexes = INDEXES.map(|(name, columns)| IndexSpec::new(name, &columns));
        Ok(self.db.add_indexes_with(&table(client), &indexes, &progress)?)
    }

    fn session<'a>(&'a self, client: usize) -> Result<Box<dyn Session + 'a>, BenchError> {
        Ok(Box::new(EmbeddedSession {
            db: &self.db,
            table: table(client),
            row: evenkeel::Row::new(),
        }))
    }

    fn snapshot<'a>(&'a self, client: usize) -> Result<Box<dyn Held + 'a>, BenchError> {
        let txn = self.db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
        txn.table(&table(client))?;
        txn.take_snapshot()?;
        Ok(Box::new(txn))
    }

    fn counters(&self) -> Counters {
        let mut counters = counters(&self.db.stats());
        let builds = self.builds.lock().unwrap_or_else(PoisonError::into_inner);
        counters.rows_indexed = builds.iter().map(|build| build.rows_done()).sum();
        counters
    }

    fn decisions(&self) -> Vec<evenkeel::Decision> {
        self.db.take_decisions()
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        Ok(self.db.close()?)
    }
}

struct EmbeddedSession<'a> {
    db: &'a Database,
    table: String,
    row: evenkeel::Row,
}

impl EmbeddedSession<'_> {
    fn begin(&self, access: Access) -> Result<Txn, Failure> {
        self.db.begin(Isolation::RepeatableRead, access).map_err(failure)
    }
}

impl Session for EmbeddedSession<'_> {
    fn insert(&mut self, rows: &[Row]) -> Result<(), Failure> {
        let txn = self.begin(Access::ReadWrite)?;
        let rows: Vec<[ValueRef<'_>; COLUMNS]> = rows.iter().map(values).collect();
        let table = txn.table(&self.table).map_err(failure)?;
        table.insert_many(rows.iter().map(|row| row.as_slice())).map_err(failure)?;
        txn.commit().map_err(failure)?;
        Ok(())
    }

    fn min_pk(&mut self) -> Result<Option<i64>, Failure> {
        let txn = self.begin(Access::ReadOnly)?;
        let table = txn.table(&self.table).map_err(failure)?;
        let mut scan = table.scan(Range::ALL, Direction::Forward).map_err(failure)?;
        let found = scan.next(&mut self.row).map_err(failure)?;
        if found { Ok(Some(pk(&self.row)?)) } else { Ok(None) }
    }

    fn delete_from(&mut self, from: i64, rows: usize) -> Result<Deleted, Failure> {
        let txn = self.begin(Access::ReadWrite)?;
        let table = txn.table(&self.table).map_err(failure)?;
        let mut victims = Vec::with_capacity(rows);
        let from = [ValueRef::Int(from)];
        let mut scan = table.scan(Range::from(&from), Direction::Forward).map_err(failure)?;
        while victims.len() < rows && scan.next(&mut self.row).map_err(failure)? {
            victims.push(pk(&self.row)?);
        }
        drop(scan);
        let mut deleted = Deleted { rows: 0, last: victims.last().copied() };
        for victim in victims {
            deleted.rows += u64::from(table.delete(&[ValueRef::Int(victim)]).map_err(failure)?);
        }
        txn.commit().map_err(failure)?;
        Ok(deleted)
    }

    fn query(&mut self, query: &Query) -> Result<u64, Failure> {
        let txn = self.begin(Access::ReadOnly)?;
        let table = txn.table(&self.table).map_err(failure)?;
        let mut found = 0;
        match query {
            Query::Points(ids) => {
                for id in ids {
                    let key = [ValueRef::Int(*id)];
                    if table.get_into(&key, &mut self.row).map_err(failure)? {
                        black_box(self.row.value(COLUMNS - 1).map_err(failure)?);
                        found += 1;
                    }
                }
            }
            Query::Range(index, value) => {
                let from = [ValueRef::Int(i64::from(*value))];
                let name = INDEXES[*index].0;
                let index_ref = table.index(name).map_err(failure)?.keys_only();
                let range = Range::from(&from);
                let mut scan = index_ref.scan(range, Direction::Forward).map_err(failure)?;
                while found < RANGE_LIMIT as u64 && scan.next(&mut self.row).map_err(failure)? {
                    for position in POSITIONS[*index] {
                        black_box(self.row.value(position).map_err(failure)?);
                    }
                    found += 1;
                }
            }
        }
        Ok(found)
    }

    fn update(&mut self, ids: &[i64], data: &str) -> Result<(), Failure> {
        let txn = self.begin(Access::ReadWrite)?;
        let table = txn.table(&self.table).map_err(failure)?;
        for id in ids {
            let changes = [(COLUMNS - 1, ValueRef::Text(data))];
            if !table.update(&[ValueRef::Int(*id)], &changes).map_err(failure)? {
                return Err(BenchError::Failed(format!("row {id} to update is not there")).into());
            }
        }
        txn.commit().map_err(failure)?;
        Ok(())
    }

    fn read(&mut self, ids: &[i64]) -> Result<u64, Failure> {
        let txn = self.begin(Access::ReadOnly)?;
        let table = txn.table(&self.table).map_err(failure)?;
        let mut found = 0;
        for id in ids {
            if table.get_into(&[ValueRef::Int(*id)], &mut self.row).map_err(failure)? {
                black_box(self.row.value(PRICE).map_err(failure)?);
                found += 1;
            }
        }
        Ok(found)
    }
}

fn pk(row: &evenkeel::Row) -> Result<i64, Failure> {
    match row.value(0).map_err(failure)? {
        ValueRef::Int(id) => Ok(id),
        other => Err(Failure::Fatal(BenchError::Failed(format!("transactionid is {other:?}")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_the_columns() {
        let definition = definition();
        for ((name, columns), positions) in INDEXES.iter().zip(POSITIONS) {
            for (column, position) in columns.iter().zip(positions) {
                assert_eq!(definition.columns[position].name, *column, "{name}");
            }
        }
        assert_eq!(definition.columns.len(), COLUMNS);
    }
}
