//! fjall: an LSM tree per space. Index builds write sorted batches; it has no direct I/O.

use crate::kv::{Batch, Fill, SPACES, Sorted, Store, Visit};
use evenkeel_bench::engine::Held;
use evenkeel_bench::{BenchError, Counters, Options};
use fjall::{Config, Keyspace, PartitionCreateOptions, PartitionHandle, PersistMode};

/// Keys per batch of an index build.
const LOAD_BATCH: usize = 1000;

/// fjall as a key-value store.
pub struct Fjall {
    keyspace: Keyspace,
    spaces: Vec<PartitionHandle>,
    durability: u8,
    memory: u64,
}

fn failed(error: impl Into<fjall::Error>) -> BenchError {
    BenchError::Failed(format!("fjall: {}", error.into()))
}

impl Fjall {
    /// Opens it in the options' directory.
    pub fn open(options: &Options) -> Result<Fjall, BenchError> {
        let config = Config::new(options.dir.join("fjall")).cache_size(options.memory);
        let fsync_ms = (options.durability != 1).then_some(1000);
        let keyspace = config.fsync_ms(fsync_ms).open().map_err(failed)?;
        let open = |space: usize| {
            let name = format!("space{space}");
            keyspace.open_partition(&name, PartitionCreateOptions::default()).map_err(failed)
        };
        let spaces = (0..options.clients * SPACES).map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(Fjall { keyspace, spaces, durability: options.durability, memory: options.memory })
    }
}

struct FjallBatch<'a> {
    batch: fjall::Batch,
    spaces: &'a [PartitionHandle],
}

impl Batch for FjallBatch<'_> {
    fn put(&mut self, space: usize, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.batch.insert(&self.spaces[space], key, value);
        Ok(())
    }

    fn delete(&mut self, space: usize, key: &[u8]) -> Result<(), BenchError> {
        self.batch.remove(&self.spaces[space], key);
        Ok(())
    }
}

impl Store for Fjall {
    fn version(&self) -> String {
        "2".into()
    }

    fn details(&self) -> serde_json::Value {
        serde_json::json!({
            "cache_bytes": self.memory, "durability": self.durability, "direct_io": false,
        })
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn write(&self, fill: &mut Fill<'_>) -> Result<(), BenchError> {
        let mut batch = FjallBatch { batch: self.keyspace.batch(), spaces: &self.spaces };
        fill(&mut batch)?;
        let mode = match self.durability {
            1 => Some(PersistMode::SyncData),
            2 => Some(PersistMode::Buffer),
            _ => None,
        };
        batch.batch.durability(mode).commit().map_err(failed)
    }

    fn scan(&self, space: usize, from: &[u8], visit: &mut Visit<'_>) -> Result<(), BenchError> {
        for entry in self.spaces[space].range(from..) {
            let (key, value) = entry.map_err(failed)?;
            if !visit(&key, &value) {
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
        for key in keys {
            if let Some(value) = self.spaces[space].get(key).map_err(failed)? {
                show(&value);
            }
        }
        Ok(())
    }

    fn load(&self, space: usize, keys: Box<Sorted<'_>>) -> Result<(), BenchError> {
        let mut batch = self.keyspace.batch();
        let mut pending = 0;
        keys(&mut |key| {
            batch.insert(&self.spaces[space], key, []);
            pending += 1;
            if pending == LOAD_BATCH {
                pending = 0;
                std::mem::replace(&mut batch, self.keyspace.batch()).commit().map_err(failed)?;
            }
            Ok(())
        })?;
        batch.commit().map_err(failed)?;
        self.keyspace.persist(PersistMode::SyncAll).map_err(failed)
    }

    fn snapshot<'a>(&'a self) -> Result<Box<dyn Held + 'a>, BenchError> {
        let snapshots: Vec<_> = self.spaces.iter().map(PartitionHandle::snapshot).collect();
        Ok(Box::new(snapshots))
    }

    fn close(self) -> Result<(), BenchError> {
        self.keyspace.persist(PersistMode::SyncAll).map_err(failed)
    }
}
