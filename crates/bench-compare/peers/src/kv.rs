//! The benchmark's tables on any ordered key-value store: per client one space for the rows and
//! three for the indexes, written together in one transaction of the store.

use crate::keys::{Columns, DATA_AT, KEY_BYTES, pk_of, write_row};
use crate::sort::Sorter;
use evenkeel_bench::engine::{Deleted, Held};
use evenkeel_bench::rows::{Query, RANGE_LIMIT, Row};
use evenkeel_bench::{BenchError, Counters, Engine, Failure, Options, Session};
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// Spaces per client: rows, then the indexes.
pub const SPACES: usize = 4;
/// The share of the memory budget that an index build sorts in, as in Evenkeel.
const SORT_SHARE: u64 = 4;

/// A transaction of a store.
pub trait Batch {
    /// Sets a key.
    fn put(&mut self, space: usize, key: &[u8], value: &[u8]) -> Result<(), BenchError>;
    /// Removes a key.
    fn delete(&mut self, space: usize, key: &[u8]) -> Result<(), BenchError>;
}

/// Fills a transaction.
pub type Fill<'a> = dyn FnMut(&mut dyn Batch) -> Result<(), BenchError> + 'a;
/// Takes a key and value; false ends a scan.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;
/// Gives every key of an index in order to its argument.
pub type Sorted<'a> =
    dyn FnOnce(&mut dyn FnMut(&[u8]) -> Result<(), BenchError>) -> Result<(), BenchError> + 'a;

/// An ordered key-value store.
pub trait Store: Send + Sync {
    /// Version.
    fn version(&self) -> String;
    /// Options in force and statistics.
    fn details(&self) -> serde_json::Value;
    /// Counters.
    fn counters(&self) -> Counters;
    /// Fills and commits a transaction at the durability asked for.
    fn write(&self, fill: &mut Fill<'_>) -> Result<(), BenchError>;
    /// Visits keys of a space from `from` on, at one snapshot.
    fn scan(&self, space: usize, from: &[u8], visit: &mut Visit<'_>) -> Result<(), BenchError>;
    /// Reads several values; returns how many were found.
    fn get_many(&self, space: usize, keys: &[[u8; 8]]) -> Result<u64, BenchError> {
        let mut found = 0;
        self.get_each(space, &mut keys.iter().copied(), &mut |_| found += 1)?;
        Ok(found)
    }
    /// Reads values one after the other, in one transaction where the store has them, and shows
    /// each that is there.
    fn get_each(
        &self,
        space: usize,
        keys: &mut dyn Iterator<Item = [u8; 8]>,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<(), BenchError>;
    /// Loads an empty space from its sorted keys, durably.
    fn load(&self, space: usize, keys: Box<Sorted<'_>>) -> Result<(), BenchError>;
    /// Holds a snapshot.
    fn snapshot<'a>(&'a self) -> Result<Box<dyn Held + 'a>, BenchError>;
    /// Clean shutdown.
    fn close(self) -> Result<(), BenchError>;
}

/// A store under the benchmark.
pub struct KvEngine<S> {
    store: S,
    tables: Vec<Table>,
    dir: PathBuf,
    memory: u64,
    rows_indexed: AtomicU64,
    spilled: AtomicU64,
}

#[derive(Default)]
struct Table {
    next_pk: AtomicI64,
    indexed: AtomicBool,
}

impl<S: Store> KvEngine<S> {
    /// The tables of an opened store, empty or loaded.
    pub fn new(store: S, options: &Options) -> Result<KvEngine<S>, BenchError> {
        let mut tables = Vec::new();
        for client in 0..options.clients {
            let table = Table { next_pk: AtomicI64::new(1), ..Table::default() };
            store.scan(client * SPACES + 1, &[0], &mut |_, _| {
                table.indexed.store(true, Relaxed);
                false
            })?;
            // The highest key by halving: a store need not scan backwards.
            let (mut low, mut high) = (1i64, i64::MAX);
            while low < high {
                let middle = low + (high - low) / 2;
                let mut found = false;
                store.scan(client * SPACES, &middle.to_be_bytes(), &mut |_, _| {
                    found = true;
                    false
                })?;
                if found { low = middle + 1 } else { high = middle }
            }
            table.next_pk.store(low, Relaxed);
            tables.push(table);
        }
        Ok(KvEngine {
            store,
            tables,
            dir: options.dir.clone(),
            memory: options.memory,
            rows_indexed: AtomicU64::new(0),
            spilled: AtomicU64::new(0),
        })
    }
}

impl<S: Store> Engine for KvEngine<S> {
    fn version(&self) -> String {
        self.store.version()
    }

    fn details(&self) -> serde_json::Value {
        self.store.details()
    }

    fn create_table(&self, _client: usize) -> Result<(), BenchError> {
        Ok(())
    }

    fn create_indexes(&self, client: usize) -> Result<(), BenchError> {
        let budget = (self.memory / SORT_SHARE / 3) as usize;
        let sorter = |i| Sorter::new(&self.dir, &format!("index-{client}-{i}"), budget);
        let mut sorters: [Sorter; 3] = std::array::from_fn(sorter);
        let mut failed = Ok(());
        self.store.scan(client * SPACES, &[], &mut |key, value| {
            let (columns, pk) = (Columns::read(value), pk_of(key));
            for (i, sorter) in sorters.iter_mut().enumerate() {
                if let Err(error) = sorter.add(columns.index_key(i, pk)) {
                    failed = Err(error);
                }
            }
            self.rows_indexed.fetch_add(1, Relaxed);
            failed.is_ok()
        })?;
        failed?;
        self.spilled.fetch_add(sorters.iter().map(|s| s.spilled_bytes).sum(), Relaxed);
        std::thread::scope(|scope| {
            let workers: Vec<_> = sorters
                .into_iter()
                .enumerate()
                .map(|(i, sorter)| {
                    scope.spawn(move || {
                        let keys: Box<Sorted<'_>> =
                            Box::new(move |each| sorter.finish(|key| each(&key[..KEY_BYTES[i]])));
                        self.store.load(client * SPACES + 1 + i, keys)
                    })
                })
                .collect();
            let panicked = |_| Err(BenchError::Failed("an index build panicked".into()));
            workers.into_iter().try_for_each(|w| w.join().unwrap_or_else(panicked))
        })?;
        self.tables[client].indexed.store(true, Relaxed);
        Ok(())
    }

    fn session<'a>(&'a self, client: usize) -> Result<Box<dyn Session + 'a>, BenchError> {
        let table = &self.tables[client];
        Ok(Box::new(KvSession {
            store: &self.store,
            table,
            base: client * SPACES,
            row: Vec::new(),
        }))
    }

    fn snapshot<'a>(&'a self, _client: usize) -> Result<Box<dyn Held + 'a>, BenchError> {
        self.store.snapshot()
    }

    fn counters(&self) -> Counters {
        let mut counters = self.store.counters();
        counters.rows_indexed = self.rows_indexed.load(Relaxed);
        counters.bytes.build_written += self.spilled.load(Relaxed);
        counters
    }

    fn close(self: Box<Self>) -> Result<(), BenchError> {
        self.store.close()
    }
}

struct KvSession<'a, S> {
    store: &'a S,
    table: &'a Table,
    base: usize,
    row: Vec<u8>,
}

impl<S: Store> Session for KvSession<'_, S> {
    fn insert(&mut self, rows: &[Row]) -> Result<(), Failure> {
        let (base, value) = (self.base, &mut self.row);
        let first = self.table.next_pk.fetch_add(rows.len() as i64, Relaxed);
        let indexes = if self.table.indexed.load(Relaxed) { 3 } else { 0 };
        Ok(self.store.write(&mut |batch| {
            for (row, next) in rows.iter().zip(first..) {
                let pk = row.transactionid.unwrap_or(next);
                write_row(row, value);
                batch.put(base, &pk.to_be_bytes(), value)?;
                let columns = Columns::of(row);
                for (i, length) in KEY_BYTES.iter().enumerate().take(indexes) {
                    batch.put(base + 1 + i, &columns.index_key(i, pk)[..*length], &[])?;
                }
            }
            Ok(())
        })?)
    }

    fn min_pk(&mut self) -> Result<Option<i64>, Failure> {
        let mut found = None;
        self.store.scan(self.base, &0i64.to_be_bytes(), &mut |key, _| {
            found = Some(pk_of(key));
            false
        })?;
        Ok(found)
    }

    fn delete_from(&mut self, from: i64, rows: usize) -> Result<Deleted, Failure> {
        let mut victims = Vec::with_capacity(rows);
        self.store.scan(self.base, &from.to_be_bytes(), &mut |key, value| {
            victims.push((pk_of(key), Columns::read(value)));
            victims.len() < rows
        })?;
        let indexes = if self.table.indexed.load(Relaxed) { 3 } else { 0 };
        let base = self.base;
        self.store.write(&mut |batch| {
            for (pk, columns) in &victims {
                batch.delete(base, &pk.to_be_bytes())?;
                for (i, length) in KEY_BYTES.iter().enumerate().take(indexes) {
                    batch.delete(base + 1 + i, &columns.index_key(i, *pk)[..*length])?;
                }
            }
            Ok(())
        })?;
        Ok(Deleted { rows: victims.len() as u64, last: victims.last().map(|v| v.0) })
    }

    fn query(&mut self, query: &Query) -> Result<u64, Failure> {
        match query {
            Query::Points(ids) => Ok(self.store.get_many(self.base, &ids.map(i64::to_be_bytes))?),
            Query::Range(index, value) => {
                let mut found = 0;
                self.store.scan(self.base + 1 + index, &value.to_be_bytes(), &mut |key, _| {
                    // Reads the columns that the query selects.
                    black_box(i32::from_be_bytes([key[0], key[1], key[2], key[3]]));
                    black_box(pk_of(key));
                    found += 1;
                    found < RANGE_LIMIT as u64
                })?;
                Ok(found)
            }
        }
    }

    fn update(&mut self, ids: &[i64], data: &str) -> Result<(), Failure> {
        let mut rows = Vec::with_capacity(ids.len());
        let mut keys = ids.iter().map(|id| id.to_be_bytes());
        self.store.get_each(self.base, &mut keys, &mut |value| rows.push(value.to_vec()))?;
        if rows.len() < ids.len() {
            return Err(BenchError::Failed("a row to update is not there".into()).into());
        }
        Ok(self.store.write(&mut |batch| {
            for (id, row) in ids.iter().zip(&mut rows) {
                row.truncate(DATA_AT);
                row.extend_from_slice(data.as_bytes());
                batch.put(self.base, &id.to_be_bytes(), row)?;
            }
            Ok(())
        })?)
    }

    fn read(&mut self, ids: &[i64]) -> Result<u64, Failure> {
        let mut found = 0;
        let mut keys = ids.iter().map(|id| id.to_be_bytes());
        self.store.get_each(self.base, &mut keys, &mut |value| {
            black_box(Columns::read(value).price);
            found += 1;
        })?;
        Ok(found)
    }
}
