//! SQLite in WAL mode, with its own SQL: a rowid table, covering queries, three `CREATE INDEX`. It
//! has one writer at a time and no direct I/O.

use evenkeel_bench::engine::{Deleted, Held};
use evenkeel_bench::rows::{Query, RANGE_LIMIT, Row};
use evenkeel_bench::{BenchError, Counters, Engine, Failure, Options, Session};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use std::path::PathBuf;
use std::time::Duration;

const INDEXES: [(&str, &str, &str); 3] = [
    ("marketsegment", "productid", "productid, customerid, price"),
    ("registersegment", "cashregisterid", "cashregisterid, customerid, price"),
    ("pdc", "price", "price, dateandtime, customerid"),
];

/// SQLite.
pub struct Sqlite {
    path: PathBuf,
    memory: u64,
    durability: u8,
}

fn failed(error: rusqlite::Error) -> BenchError {
    BenchError::Failed(format!("sqlite: {error}"))
}

fn failure(error: rusqlite::Error) -> Failure {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Failure::Retry,
        _ => Failure::Fatal(failed(error)),
    }
}

impl Sqlite {
    /// Opens it in the options' directory.
    pub fn open(options: &Options) -> Result<Sqlite, BenchError> {
        let path = options.dir.join("sqlite.db");
        let new = Sqlite { path, memory: options.memory, durability: options.durability };
        let connection = new.connect()?;
        connection.pragma_update(None, "page_size", options.page_size).map_err(failed)?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
        Ok(new)
    }

    fn connect(&self) -> Result<Connection, BenchError> {
        let connection = Connection::open(&self.path).map_err(failed)?;
        connection.busy_timeout(Duration::from_secs(50)).map_err(failed)?;
        let synchronous = match self.durability {
            1 => "FULL",
            2 => "NORMAL",
            _ => "OFF",
        };
        let set =
            |name: &str, value: &str| connection.pragma_update(None, name, value).map_err(failed);
        set("synchronous", synchronous)?;
        connection
            .pragma_update(None, "cache_size", -((self.memory / 1024) as i64))
            .map_err(failed)?;
        set("threads", "2")?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }
}

impl Engine for Sqlite {
    fn version(&self) -> String {
        rusqlite::version().to_string()
    }

    fn details(&self) -> serde_json::Value {
        serde_json::json!({
            "journal_mode": "WAL", "synchronous_of_durability": self.durability,
            "cache_bytes": self.memory, "threads": 2, "direct_io": false,
        })
    }

    fn create_table(&self, client: usize) -> Result<(), BenchError> {
        let sql = format!(
            "CREATE TABLE t{client} (transactionid INTEGER PRIMARY KEY AUTOINCREMENT, dateandtime \
             INTEGER NOT NULL, cashregisterid INTEGER NOT NULL, customerid INTEGER NOT NULL, \
             productid INTEGER NOT NULL, price INTEGER NOT NULL, data TEXT NOT NULL)"
        );
        self.connect()?.execute_batch(&sql).map_err(failed)
    }

    fn create_indexes(&self, client: usize) -> Result<(), BenchError> {
        let all = INDEXES.map(|(name, _, columns)| {
            format!("CREATE INDEX {name}{client} ON t{client} ({columns});")
        });
        let sql = format!("BEGIN; {} COMMIT;", all.join(" "));
        self.connect()?.execute_batch(&sql).map_err(failed)
    }

    fn session<'a>(&'a self, client: usize) -> Result<Box<dyn Session + 'a>, BenchError> {
        Ok(Box::new(SqliteSession { connection: self.connect()?, client }))
    }

    fn snapshot<'a>(&'a self, client: usize) -> Result<Box<dyn Held + 'a>, BenchError> {
        let connection = self.connect()?;
        connection.execute_batch("BEGIN").map_err(failed)?;
        let sql = format!("SELECT min(transactionid) FROM t{client}");
        connection.query_row(&sql, [], |_| Ok(())).map_err(failed)?;
        Ok(Box::new(connection))
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        let done = self.connect()?.pragma_update(None, "wal_checkpoint", "TRUNCATE");
        done.or_else(|e| if e == rusqlite::Error::ExecuteReturnedResults { Ok(()) } else { Err(e) })
            .map_err(failed)
    }
}

struct SqliteSession {
    connection: Connection,
    client: usize,
}

impl SqliteSession {
    fn transaction(
        &mut self,
        work: impl FnOnce(&Connection, usize) -> rusqlite::Result<()>,
    ) -> Result<(), Failure> {
        let client = self.client;
        let immediate = rusqlite::TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(immediate).map_err(failure)?;
        work(&transaction, client).map_err(failure)?;
        transaction.commit().map_err(failure)
    }
}

impl Session for SqliteSession {
    fn insert(&mut self, rows: &[Row]) -> Result<(), Failure> {
        self.transaction(|connection, client| {
            let sql = format!("INSERT INTO t{client} VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)");
            let mut insert = connection.prepare_cached(&sql)?;
            for row in rows {
                insert.execute(params![
                    row.transactionid,
                    row.dateandtime,
                    row.cashregisterid,
                    row.customerid,
                    row.productid,
                    row.price,
                    row.text(),
                ])?;
            }
            Ok(())
        })
    }

    fn min_pk(&mut self) -> Result<Option<i64>, Failure> {
        let sql = format!("SELECT min(transactionid) FROM t{}", self.client);
        let mut select = self.connection.prepare_cached(&sql).map_err(failure)?;
        select.query_row([], |row| row.get(0)).map_err(failure)
    }

    fn delete_from(&mut self, from: i64, rows: usize) -> Result<Deleted, Failure> {
        let mut deleted = Deleted::default();
        self.transaction(|connection, client| {
            let sql = format!(
                "SELECT max(transactionid) FROM (SELECT transactionid FROM t{client} WHERE \
                 transactionid >= ?1 ORDER BY transactionid LIMIT ?2)"
            );
            let last = connection.prepare_cached(&sql)?.query_row((from, rows), |r| r.get(0))?;
            let sql = format!("DELETE FROM t{client} WHERE transactionid BETWEEN ?1 AND ?2");
            if let Some(last) = last {
                let n: i64 = last;
                let count = connection.prepare_cached(&sql)?.execute((from, n))?;
                deleted = Deleted { rows: count as u64, last: Some(n) };
            }
            Ok(())
        })?;
        Ok(deleted)
    }

    fn update(&mut self, ids: &[i64], data: &str) -> Result<(), Failure> {
        self.transaction(|connection, client| {
            let sql = format!("UPDATE t{client} SET data = ?1 WHERE transactionid = ?2");
            let mut update = connection.prepare_cached(&sql)?;
            ids.iter().try_for_each(|id| update.execute(params![data, id]).map(|_| ()))
        })
    }

    fn read(&mut self, ids: &[i64]) -> Result<u64, Failure> {
        let sql = format!("SELECT price FROM t{} WHERE transactionid = ?1", self.client);
        let transaction = self.connection.transaction().map_err(failure)?;
        let mut select = transaction.prepare_cached(&sql).map_err(failure)?;
        let mut found = 0;
        for id in ids {
            let price: Option<i64> =
                select.query_row([id], |r| r.get(0)).optional().map_err(failure)?;
            found += u64::from(std::hint::black_box(price).is_some());
        }
        Ok(found)
    }

    fn query(&mut self, query: &Query) -> Result<u64, Failure> {
        let client = self.client;
        match query {
            Query::Points(ids) => {
                let sql = format!("SELECT data FROM t{client} WHERE transactionid = ?1");
                let mut select = self.connection.prepare_cached(&sql).map_err(failure)?;
                let mut found = 0;
                for id in ids {
                    let row: Option<String> =
                        select.query_row([id], |r| r.get(0)).optional().map_err(failure)?;
                    found += u64::from(row.is_some());
                }
                Ok(found)
            }
            Query::Range(index, value) => {
                let (_, leading, columns) = INDEXES[*index];
                let sql = format!(
                    "SELECT {columns} FROM t{client} WHERE {leading} >= ?1 ORDER BY {columns} \
                     LIMIT {RANGE_LIMIT}"
                );
                let mut select = self.connection.prepare_cached(&sql).map_err(failure)?;
                let mut rows = select.query([value]).map_err(failure)?;
                let mut found = 0;
                while let Some(row) = rows.next().map_err(failure)? {
                    for column in 0..3 {
                        std::hint::black_box(row.get::<_, i64>(column).map_err(failure)?);
                    }
                    found += 1;
                }
                Ok(found)
            }
        }
    }
}
