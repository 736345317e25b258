//! LMDB: memory-mapped copy-on-write B-trees, one per space. It has one writer at a time, no cache
//! of its own and no direct I/O.
#![allow(unsafe_code)]

use crate::kv::{Batch, Fill, SPACES, Sorted, Store, Visit};
use evenkeel_bench::engine::Held;
use evenkeel_bench::{BenchError, Counters, Options};
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags, RwTxn};

/// Address space of the map; the file grows as needed.
const MAP_BYTES: usize = 64 << 30;

type Space = Database<Bytes, Bytes>;

/// LMDB as a key-value store.
pub struct Lmdb {
    env: Env,
    spaces: Vec<Space>,
    durability: u8,
}

fn failed(error: heed::Error) -> BenchError {
    BenchError::Failed(format!("lmdb: {error}"))
}

impl Lmdb {
    /// Opens it in the options' directory.
    pub fn open(options: &Options) -> Result<Lmdb, BenchError> {
        let dir = options.dir.join("lmdb");
        std::fs::create_dir_all(&dir).map_err(|e| BenchError::file(&dir, e))?;
        let mut open = EnvOpenOptions::new();
        open.map_size(MAP_BYTES).max_dbs((options.clients * SPACES) as u32).max_readers(1000);
        if options.durability != 1 {
            // SAFETY: a crash of the machine may damage the file; it is a benchmark's.
            unsafe { open.flags(EnvFlags::NO_SYNC) };
        }
        // SAFETY: nothing else has this file open.
        let env = unsafe { open.open(&dir) }.map_err(failed)?;
        let mut write = env.write_txn().map_err(failed)?;
        let mut spaces = Vec::new();
        for space in 0..options.clients * SPACES {
            let made = env.create_database(&mut write, Some(&format!("{space}")));
            spaces.push(made.map_err(failed)?);
        }
        write.commit().map_err(failed)?;
        Ok(Lmdb { env, spaces, durability: options.durability })
    }
}

struct LmdbBatch<'a> {
    transaction: RwTxn<'a>,
    spaces: &'a [Space],
}

impl Batch for LmdbBatch<'_> {
    fn put(&mut self, space: usize, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.spaces[space].put(&mut self.transaction, key, value).map_err(failed)
    }

    fn delete(&mut self, space: usize, key: &[u8]) -> Result<(), BenchError> {
        self.spaces[space].delete(&mut self.transaction, key).map(|_| ()).map_err(failed)
    }
}

impl Store for Lmdb {
    fn version(&self) -> String {
        "0.9".into()
    }

    fn details(&self) -> serde_json::Value {
        serde_json::json!({
            "durability": self.durability, "direct_io": false, "cache": "the operating system's",
            "note": "modes 0 and 2 are not synced at all",
        })
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn write(&self, fill: &mut Fill<'_>) -> Result<(), BenchError> {
        let transaction = self.env.write_txn().map_err(failed)?;
        let mut batch = LmdbBatch { transaction, spaces: &self.spaces };
        fill(&mut batch)?;
        batch.transaction.commit().map_err(failed)
    }

    fn scan(&self, space: usize, from: &[u8], visit: &mut Visit<'_>) -> Result<(), BenchError> {
        let read = self.env.read_txn().map_err(failed)?;
        // LMDB knows no empty key.
        let from = if from.is_empty() { &[0] } else { from };
        let range = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        for entry in self.spaces[space].range(&read, &range).map_err(failed)? {
            let (key, value) = entry.map_err(failed)?;
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn get_each(
        &self,
        space: usize,
        keys: &mut dyn Iterator<Item = [u8; 8]>,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<(), BenchError> {
        let read = self.env.read_txn().map_err(failed)?;
        for key in keys {
            if let Some(value) = self.spaces[space].get(&read, &key).map_err(failed)? {
                show(value);
            }
        }
        Ok(())
    }

    fn load(&self, space: usize, keys: Box<Sorted<'_>>) -> Result<(), BenchError> {
        let mut write = self.env.write_txn().map_err(failed)?;
        keys(&mut |key| {
            let append = PutFlags::APPEND;
            self.spaces[space].put_with_flags(&mut write, append, key, &[]).map_err(failed)
        })?;
        write.commit().map_err(failed)
    }

    fn snapshot<'a>(&'a self) -> Result<Box<dyn Held + 'a>, BenchError> {
        Ok(Box::new(self.env.read_txn().map_err(failed)?))
    }

    fn close(self) -> Result<(), BenchError> {
        self.env.force_sync().map_err(failed)
    }
}
