//! Postgres as `--engine postgres://user:password@host:port/database` (a socket as
//! `postgres:///database?host=/directory`). Inserts are sent as text, queries as text without a
//! round trip to prepare them. `--durability`, `--memory` and `--page-size` have no effect: the
//! server has its own settings, which the JSON shows.

use super::{Dialect, failed, table, unreachable};
use crate::engine::{Counters, Deleted, Engine, Failure, Held, Session};
use crate::error::BenchError;
use crate::machine::Server;
use crate::options::Options;
use crate::rows::{Query, Row};
use postgres::{Client, Config, NoTls, SimpleQueryMessage, SimpleQueryRow};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

const DIALECT: Dialect = Dialect::Postgres;
/// Serialization failure, deadlock, lock not available: the transaction may be retried.
const RETRY: [&str; 3] = ["40001", "40P01", "55P03"];
const SETTINGS: [&str; 9] = [
    "server_version",
    "shared_buffers",
    "synchronous_commit",
    "fsync",
    "full_page_writes",
    "max_wal_size",
    "maintenance_work_mem",
    "max_parallel_maintenance_workers",
    "autovacuum",
];

/// A Postgres server.
pub struct Postgres {
    config: Config,
    tables_dropped_at_close: bool,
    clients: usize,
    /// A connection for settings, whose time is not measured.
    aside: Mutex<Client>,
    server: Server,
}

impl Postgres {
    /// Connects to the server that the options' engine names.
    ///
    /// # Errors
    /// `Usage` for an address that cannot be parsed, `Missing` if no server answers there.
    pub fn open(options: &Options) -> Result<Postgres, BenchError> {
        let config: Config = options
            .engine
            .parse()
            .map_err(|error| BenchError::Usage(format!("--engine: {error}")))?;
        let mut client =
            config.connect(NoTls).map_err(|error| unreachable(&options.engine, &error))?;
        // Ordinary users may not read the data directory: then the process is not measured.
        let dir = value(&mut client, "show data_directory").unwrap_or_default();
        let pid_file = Path::new(&dir).join("postmaster.pid");
        Ok(Postgres {
            config,
            tables_dropped_at_close: options.temporary,
            clients: options.clients,
            aside: Mutex::new(client),
            server: Server::new(&dir, &pid_file),
        })
    }

    fn connect(&self) -> Result<Client, BenchError> {
        self.config.connect(NoTls).map_err(|error| failed("connect", &error))
    }

    fn aside(&self) -> MutexGuard<'_, Client> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn value(client: &mut Client, statement: &str) -> Option<String> {
    let rows = client.simple_query(statement).ok()?;
    rows.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_string),
        _ => None,
    })
}

fn run(client: &mut Client, statement: &str) -> Result<(), BenchError> {
    client.batch_execute(statement).map_err(|error| failed(statement, &error))
}

fn failure(statement: &str, error: &postgres::Error) -> Failure {
    match error.code() {
        Some(state) if RETRY.contains(&state.code()) => Failure::Retry,
        _ => Failure::Fatal(failed(statement, error)),
    }
}

impl Engine for Postgres {
    fn version(&self) -> String {
        value(&mut self.aside(), "show server_version").unwrap_or_default()
    }

    fn details(&self) -> serde_json::Value {
        let mut client = self.aside();
        let settings = SETTINGS.map(|name| (name, value(&mut client, &format!("show {name}"))));
        serde_json::json!({
            "server": BTreeMap::from(settings),
            "figures_of_server_process": self.server.pid.is_some(),
        })
    }

    fn server(&self) -> Option<Server> {
        Some(self.server.clone())
    }

    fn create_table(&self, client: usize) -> Result<(), BenchError> {
        run(&mut self.aside(), &DIALECT.create_table(&table(client), None))
    }

    fn create_indexes(&self, client: usize) -> Result<(), BenchError> {
        let mut connection = self.connect()?;
        DIALECT.create_indexes(&table(client)).iter().try_for_each(|s| run(&mut connection, s))
    }

    fn session<'a>(&'a self, client: usize) -> Result<Box<dyn Session + 'a>, BenchError> {
        let client_connection = self.connect()?;
        let (table, text) = (table(client), String::new());
        Ok(Box::new(PostgresSession { client: client_connection, table, text }))
    }

    fn snapshot<'a>(&'a self, client: usize) -> Result<Box<dyn Held + 'a>, BenchError> {
        let mut connection = self.connect()?;
        run(&mut connection, "begin isolation level repeatable read")?;
        run(&mut connection, &format!("select transactionid from {} limit 1", table(client)))?;
        Ok(Box::new(connection))
    }

    /// The server's bytes are counted only by its processes.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        if self.tables_dropped_at_close {
            let mut client = self.aside();
            for number in 0..self.clients {
                run(&mut client, &format!("drop table if exists {}", table(number)))?;
            }
        }
        Ok(())
    }
}

struct PostgresSession {
    client: Client,
    table: String,
    /// The statement's text; each statement reuses the memory.
    text: String,
}

impl PostgresSession {
    /// Sends the text and reads every row of the answer.
    fn rows(&mut self, mut each: impl FnMut(&SimpleQueryRow)) -> Result<u64, Failure> {
        let answer = self.client.simple_query(&self.text);
        let mut found = 0;
        for message in answer.map_err(|error| failure(&self.text, &error))? {
            if let SimpleQueryMessage::Row(row) = message {
                each(&row);
                found += 1;
            }
        }
        Ok(found)
    }
}

fn id(row: &SimpleQueryRow) -> Option<i64> {
    row.get(0)?.parse().ok()
}

impl Session for PostgresSession {
    fn insert(&mut self, rows: &[Row]) -> Result<(), Failure> {
        DIALECT.insert(&mut self.text, &self.table, rows);
        self.client.batch_execute(&self.text).map_err(|error| failure(&self.text, &error))
    }

    fn min_pk(&mut self) -> Result<Option<i64>, Failure> {
        self.text = DIALECT.min_pk(&self.table);
        let mut lowest = None;
        self.rows(|row| lowest = id(row))?;
        Ok(lowest)
    }

    fn delete_from(&mut self, from: i64, rows: usize) -> Result<Deleted, Failure> {
        self.text = DIALECT.delete_from(&self.table, from, rows);
        let mut last = None;
        let gone = self.rows(|row| last = last.max(id(row)))?;
        Ok(Deleted { rows: gone, last })
    }

    fn update(&mut self, ids: &[i64], data: &str) -> Result<(), Failure> {
        DIALECT.update(&mut self.text, &self.table, ids, data);
        self.client.batch_execute(&self.text).map_err(|error| failure(&self.text, &error))
    }

    fn read(&mut self, ids: &[i64]) -> Result<u64, Failure> {
        let mut found = 0;
        for id in ids {
            DIALECT.read(&mut self.text, &self.table, *id);
            found += self.rows(|row| {
                black_box(row.get(0));
            })?;
        }
        Ok(found)
    }

    fn query(&mut self, query: &Query) -> Result<u64, Failure> {
        DIALECT.query(&mut self.text, &self.table, query);
        self.rows(|row| {
            for column in 0..row.len() {
                black_box(row.get(column));
            }
        })
    }
}
