//! MariaDB (and MySQL) as `--engine mariadb://user:password@host:port/database`, with the
//! parameters `socket=/path` and `engine=NAME` (of the tables; otherwise the server's default).
//! Statements are sent as text, as ordinary clients send them. `--durability`, `--memory` and
//! `--page-size` have no effect: the server has its own settings, which the JSON shows.

use super::{Dialect, failed, table, take_parameter, unreachable};
use crate::engine::{Counters, Deleted, Engine, Failure, Held, Session};
use crate::error::BenchError;
use crate::machine::Server;
use crate::options::Options;
use crate::rows::{Query, Row};
use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

const DIALECT: Dialect = Dialect::MariaDb;
/// Conflict with a snapshot, lock timeout, deadlock: the transaction may be retried.
const RETRY: [u16; 3] = [1020, 1205, 1213];
/// Settings that a fair comparison needs; the JSON shows those that the server has.
const SETTINGS: &str = "'version', 'default_storage_engine', 'log_bin', 'sync_binlog', \
    'performance_schema', 'innodb_buffer_pool_size', 'innodb_log_file_size', \
    'innodb_flush_log_at_trx_commit', 'innodb_flush_method', 'innodb_io_capacity', \
    'innodb_io_capacity_max', 'innodb_max_dirty_pages_pct', 'innodb_snapshot_isolation', \
    'rocksdb_block_cache_size', 'rocksdb_flush_log_at_trx_commit', \
    'rocksdb_default_cf_options', 'evenkeel_memory_size', 'evenkeel_flush_at_commit', \
    'evenkeel_log_size'";

/// A MariaDB server.
pub struct MariaDb {
    opts: Opts,
    /// The engine of the tables, if the address names one.
    table_engine: Option<String>,
    tables_dropped_at_close: bool,
    clients: usize,
    /// A connection for counters and settings, whose time is not measured.
    aside: Mutex<Conn>,
    server: Server,
}

impl MariaDb {
    /// Connects to the server that the options' engine names.
    ///
    /// # Errors
    /// `Usage` for an address that cannot be parsed, `Missing` if no server answers there.
    pub fn open(options: &Options) -> Result<MariaDb, BenchError> {
        let url = options.engine.replacen("mariadb://", "mysql://", 1);
        let (url, table_engine) = take_parameter(&url, "engine");
        let parsed = Opts::from_url(&url)
            .map_err(|error| BenchError::Usage(format!("--engine: {error}")))?;
        if parsed.get_db_name().is_none() {
            return Err(BenchError::Usage("--engine: the address names no database".into()));
        }
        let unknown = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        if table_engine.as_ref().is_some_and(|name| name.contains(unknown)) {
            return Err(BenchError::Usage("--engine: engine=: letters, digits and _".into()));
        }
        let opts: Opts = OptsBuilder::from_opts(parsed).tcp_nodelay(true).into();
        let mut conn =
            Conn::new(opts.clone()).map_err(|error| unreachable(&options.engine, &error))?;
        let server = server(&mut conn)?;
        Ok(MariaDb {
            opts,
            table_engine,
            tables_dropped_at_close: options.temporary,
            clients: options.clients,
            aside: Mutex::new(conn),
            server,
        })
    }

    fn connect(&self) -> Result<Conn, BenchError> {
        Conn::new(self.opts.clone()).map_err(|error| failed("connect", &error))
    }

    fn aside(&self) -> MutexGuard<'_, Conn> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn server(conn: &mut Conn) -> Result<Server, BenchError> {
    let statement = "select @@datadir, @@pid_file";
    let row: Option<(String, String)> =
        conn.query_first(statement).map_err(|error| failed(statement, &error))?;
    let (dir, pid_file) = row.unwrap_or_default();
    // A relative path is in the data directory.
    let pid_file = Path::new(&dir).join(pid_file);
    Ok(Server::new(&dir, &pid_file))
}

fn run(conn: &mut Conn, statement: &str) -> Result<(), BenchError> {
    conn.query_drop(statement).map_err(|error| failed(statement, &error))
}

fn failure(statement: &str, error: &mysql::Error) -> Failure {
    match error {
        mysql::Error::MySqlError(e) if RETRY.contains(&e.code) => Failure::Retry,
        _ => Failure::Fatal(failed(statement, error)),
    }
}

impl Engine for MariaDb {
    fn version(&self) -> String {
        let version: Option<Option<String>> =
            self.aside().query_first("select version()").unwrap_or_default();
        version.flatten().unwrap_or_default()
    }

    fn details(&self) -> serde_json::Value {
        let statement = format!("show global variables where variable_name in ({SETTINGS})");
        let settings: Vec<(String, String)> = self.aside().query(statement).unwrap_or_default();
        let settings: BTreeMap<String, String> = settings.into_iter().collect();
        serde_json::json!({
            "table_engine": self.table_engine, "server": settings,
            "figures_of_server_process": self.server.pid.is_some(),
        })
    }

    fn server(&self) -> Option<Server> {
        Some(self.server.clone())
    }

    fn create_table(&self, client: usize) -> Result<(), BenchError> {
        let engine = self.table_engine.as_deref();
        run(&mut self.connect()?, &DIALECT.create_table(&table(client), engine))
    }

    fn create_indexes(&self, client: usize) -> Result<(), BenchError> {
        let mut conn = self.connect()?;
        DIALECT.create_indexes(&table(client)).iter().try_for_each(|s| run(&mut conn, s))
    }

    fn session<'a>(&'a self, client: usize) -> Result<Box<dyn Session + 'a>, BenchError> {
        let conn = self.connect()?;
        Ok(Box::new(MariaDbSession { conn, table: table(client), text: String::new() }))
    }

    fn snapshot<'a>(&'a self, client: usize) -> Result<Box<dyn Held + 'a>, BenchError> {
        let mut conn = self.connect()?;
        run(&mut conn, "set session transaction isolation level repeatable read")?;
        run(&mut conn, "start transaction with consistent snapshot")?;
        run(&mut conn, &format!("select transactionid from {} limit 1", table(client)))?;
        Ok(Box::new(conn))
    }

    fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        let like = "show global status where variable_name in ('Innodb_os_log_written', \
                    'Innodb_buffer_pool_pages_flushed', 'Innodb_dblwr_pages_written', \
                    'Innodb_page_size', 'Innodb_data_read')";
        let status: Vec<(String, String)> = self.aside().query(like).unwrap_or_default();
        let of = |name: &str| {
            let found = status.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
            found.and_then(|(_, v)| v.parse::<u64>().ok()).unwrap_or(0)
        };
        // These are counters of the default engine only; the bytes of the process are counted for
        // every engine.
        let page = of("Innodb_page_size");
        counters.bytes.wal = of("Innodb_os_log_written");
        counters.bytes.page = of("Innodb_buffer_pool_pages_flushed") * page;
        counters.bytes.doublewrite = of("Innodb_dblwr_pages_written") * page;
        counters.bytes.foreground_read = of("Innodb_data_read");
        counters.flush_done = of("Innodb_buffer_pool_pages_flushed");
        counters
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        if self.tables_dropped_at_close {
            let mut conn = self.aside();
            for client in 0..self.clients {
                run(&mut conn, &format!("drop table if exists {}", table(client)))?;
            }
        }
        Ok(())
    }
}

struct MariaDbSession {
    conn: Conn,
    table: String,
    /// The statement's text; each statement reuses the memory.
    text: String,
}

impl Session for MariaDbSession {
    fn insert(&mut self, rows: &[Row]) -> Result<(), Failure> {
        DIALECT.insert(&mut self.text, &self.table, rows);
        self.conn.query_drop(&self.text).map_err(|error| failure(&self.text, &error))
    }

    fn min_pk(&mut self) -> Result<Option<i64>, Failure> {
        let statement = DIALECT.min_pk(&self.table);
        let row: Option<Option<i64>> =
            self.conn.query_first(&statement).map_err(|error| failure(&statement, &error))?;
        Ok(row.flatten())
    }

    fn delete_from(&mut self, from: i64, rows: usize) -> Result<Deleted, Failure> {
        let statement = DIALECT.delete_from(&self.table, from, rows);
        let gone: Vec<i64> =
            self.conn.query(&statement).map_err(|error| failure(&statement, &error))?;
        Ok(Deleted { rows: gone.len() as u64, last: gone.into_iter().max() })
    }

    fn update(&mut self, ids: &[i64], data: &str) -> Result<(), Failure> {
        DIALECT.update(&mut self.text, &self.table, ids, data);
        self.conn.query_drop(&self.text).map_err(|error| failure(&self.text, &error))
    }

    fn read(&mut self, ids: &[i64]) -> Result<u64, Failure> {
        let mut found = 0;
        for id in ids {
            DIALECT.read(&mut self.text, &self.table, *id);
            let price: Option<i64> =
                self.conn.query_first(&self.text).map_err(|error| failure(&self.text, &error))?;
            found += u64::from(price.is_some());
        }
        Ok(found)
    }

    fn query(&mut self, query: &Query) -> Result<u64, Failure> {
        DIALECT.query(&mut self.text, &self.table, query);
        let rows = self.conn.query_iter(&self.text).map_err(|error| failure(&self.text, &error))?;
        let mut found = 0;
        for row in rows {
            black_box(row.map_err(|error| failure(&self.text, &error))?.unwrap());
            found += 1;
        }
        Ok(found)
    }
}
