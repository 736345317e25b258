//! redb: copy-on-write B-trees, one per space. It has one writer at a time and no direct I/O.

use crate::kv::{Batch, Fill, SPACES, Sorted, Store, Visit};
use evenkeel_bench::engine::Held;
use evenkeel_bench::{BenchError, Counters, Options};
use redb::{Database, Durability, Table, TableDefinition, WriteTransaction};

/// redb as a key-value store.
pub struct Redb {
    db: Database,
    durability: u8,
    memory: u64,
}

fn failed(error: impl Into<redb::Error>) -> BenchError {
    BenchError::Failed(format!("redb: {}", error.into()))
}

fn name(space: usize) -> String {
    format!("{space}")
}

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

impl Redb {
    /// Opens it in the options' directory.
    pub fn open(options: &Options) -> Result<Redb, BenchError> {
        let mut builder = Database::builder();
        builder.set_cache_size(options.memory as usize);
        let db = builder.create(options.dir.join("redb.db")).map_err(failed)?;
        let write = db.begin_write().map_err(failed)?;
        for space in 0..options.clients * SPACES {
            write.open_table(Definition::new(&name(space))).map_err(failed)?;
        }
        write.commit().map_err(failed)?;
        Ok(Redb { db, durability: options.durability, memory: options.memory })
    }
}

struct RedbBatch<'t> {
    transaction: &'t WriteTransaction,
    tables: [Option<(usize, Table<'t, &'static [u8], &'static [u8]>)>; SPACES],
}

impl<'t> RedbBatch<'t> {
    fn table(
        &mut self,
        space: usize,
    ) -> Result<&mut Table<'t, &'static [u8], &'static [u8]>, BenchError> {
        let slot = &mut self.tables[space % SPACES];
        if slot.as_ref().is_none_or(|(of, _)| *of != space) {
            let table = self.transaction.open_table(Definition::new(&name(space)));
            *slot = Some((space, table.map_err(failed)?));
        }
        match slot {
            Some((_, table)) => Ok(table),
            None => Err(BenchError::Failed("redb: no table".into())),
        }
    }
}

impl Batch for RedbBatch<'_> {
    fn put(&mut self, space: usize, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.table(space)?.insert(key, value).map_err(failed)?;
        Ok(())
    }

    fn delete(&mut self, space: usize, key: &[u8]) -> Result<(), BenchError> {
        self.table(space)?.remove(key).map_err(failed)?;
        Ok(())
    }
}

impl Store for Redb {
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
        let mut transaction = self.db.begin_write().map_err(failed)?;
        // Eventual: durable soon, in the background; the nearest to "written".
        let durability =
            if self.durability == 1 { Durability::Immediate } else { Durability::Eventual };
        transaction.set_durability(durability);
        {
            let tables = std::array::from_fn(|_| None);
            fill(&mut RedbBatch { transaction: &transaction, tables })?;
        }
        transaction.commit().map_err(failed)
    }

    fn scan(&self, space: usize, from: &[u8], visit: &mut Visit<'_>) -> Result<(), BenchError> {
        let read = self.db.begin_read().map_err(failed)?;
        let table = read.open_table(Definition::new(&name(space))).map_err(failed)?;
        for entry in table.range(from..).map_err(failed)? {
            let (key, value) = entry.map_err(failed)?;
            if !visit(key.value(), value.value()) {
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
        let read = self.db.begin_read().map_err(failed)?;
        let table = read.open_table(Definition::new(&name(space))).map_err(failed)?;
        for key in keys {
            if let Some(value) = table.get(key.as_slice()).map_err(failed)? {
                show(value.value());
            }
        }
        Ok(())
    }

    fn load(&self, space: usize, keys: Box<Sorted<'_>>) -> Result<(), BenchError> {
        let transaction = self.db.begin_write().map_err(failed)?;
        {
            let definition = name(space);
            let table = transaction.open_table(Definition::new(&definition));
            let mut table = table.map_err(failed)?;
            keys(&mut |key| table.insert(key, [].as_slice()).map(|_| ()).map_err(failed))?;
        }
        transaction.commit().map_err(failed)
    }

    fn snapshot<'a>(&'a self) -> Result<Box<dyn Held + 'a>, BenchError> {
        Ok(Box::new(self.db.begin_read().map_err(failed)?))
    }

    fn close(self) -> Result<(), BenchError> {
        Ok(())
    }
}
