//! RocksDB, tuned for this work: direct reads, flushes and compactions, LZ4, Bloom filters of 10
//! bits, partitioned index and filters in the block cache, dynamic level sizes, write buffers of
//! 64 MiB, 2 background jobs; a column family per index; plain `WriteBatch`, no transactions. An
//! index is built by iterator, external sort, `SstFileWriter` and ingestion.

use crate::kv::{Batch, Fill, SPACES, Sorted, Store, Visit};
use evenkeel_base::Cause;
use evenkeel_bench::engine::Held;
use evenkeel_bench::{BenchError, Counters, Options};
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB,
    DBCompressionType, IngestExternalFileOptions, ReadOptions, SstFileWriter, WriteBatch,
    WriteOptions,
};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const WRITE_BUFFER: usize = 64 << 20;
const SST_BYTES: u64 = 64 << 20;

/// RocksDB as a key-value store.
pub struct Rocks {
    db: Arc<DB>,
    options: rocksdb::Options,
    durability: u8,
    dir: PathBuf,
    build_written: AtomicU64,
    syncer: Option<(Arc<Stop>, JoinHandle<()>)>,
    settings: serde_json::Value,
}

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    signal: Condvar,
}

fn failed(error: rocksdb::Error) -> BenchError {
    BenchError::Failed(format!("rocksdb: {error}"))
}

fn name(space: usize) -> String {
    format!("t{}-{}", space / SPACES, ["rows", "market", "register", "pdc"][space % SPACES])
}

fn tuned(options: &Options) -> Result<rocksdb::Options, BenchError> {
    let mut table = BlockBasedOptions::default();
    let cache = Cache::new_lru_cache(options.memory as usize).map_err(failed)?;
    table.set_block_cache(&cache);
    table.set_bloom_filter(10.0, false);
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(4096);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_pin_top_level_index_and_filter(true);
    table.set_block_size(16 << 10);
    table.set_format_version(5);
    let mut tuned = rocksdb::Options::default();
    tuned.set_block_based_table_factory(&table);
    tuned.create_if_missing(true);
    tuned.create_missing_column_families(true);
    tuned.set_use_direct_reads(options.direct_io);
    tuned.set_use_direct_io_for_flush_and_compaction(options.direct_io);
    tuned.set_compression_type(DBCompressionType::Lz4);
    tuned.set_optimize_filters_for_hits(true);
    tuned.set_level_compaction_dynamic_level_bytes(true);
    tuned.set_write_buffer_size(WRITE_BUFFER);
    tuned.set_max_background_jobs(2);
    tuned.set_manual_wal_flush(options.durability == 0);
    tuned.enable_statistics();
    Ok(tuned)
}

impl Rocks {
    /// Opens it in the options' directory.
    pub fn open(options: &Options) -> Result<Rocks, BenchError> {
        let tuned = tuned(options)?;
        let path = options.dir.join("rocksdb");
        let spaces = (0..options.clients * SPACES).map(name);
        let spaces = spaces.map(|name| ColumnFamilyDescriptor::new(name, tuned.clone()));
        let db = Arc::new(DB::open_cf_descriptors(&tuned, &path, spaces).map_err(failed)?);
        let syncer = (options.durability != 1).then(|| {
            let (stop, db) = (Arc::new(Stop::default()), Arc::clone(&db));
            let told = Arc::clone(&stop);
            (stop, std::thread::spawn(move || sync_each_second(&db, &told)))
        });
        let settings = serde_json::json!({
            "block_cache_bytes": options.memory, "write_buffer_size": WRITE_BUFFER,
            "compression": "lz4", "bloom_bits": 10, "partitioned_index_and_filters": true,
            "optimize_filters_for_hits": true, "level_compaction_dynamic_level_bytes": true,
            "max_background_jobs": 2, "block_size": 16384, "direct_io": options.direct_io,
            "column_families": options.clients * SPACES, "write": "WriteBatch",
            "index_build": "iterator, external sort in memory/4, SstFileWriter, ingest",
        });
        Ok(Rocks {
            db,
            options: tuned,
            durability: options.durability,
            dir: options.dir.clone(),
            build_written: AtomicU64::new(0),
            syncer,
            settings,
        })
    }

    fn space(&self, space: usize) -> Result<&ColumnFamily, BenchError> {
        let missing = || BenchError::Failed(format!("rocksdb: no column family {}", name(space)));
        self.db.cf_handle(&name(space)).ok_or_else(missing)
    }

    fn options_file(&self) -> String {
        let newest = std::fs::read_dir(self.dir.join("rocksdb"))
            .into_iter()
            .flatten()
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with("OPTIONS-"))
            .max_by_key(std::fs::DirEntry::file_name);
        newest.and_then(|e| std::fs::read_to_string(e.path()).ok()).unwrap_or_default()
    }
}

fn sync_each_second(db: &DB, stop: &Stop) {
    let mut stopped = stop.stopped.lock().unwrap_or_else(PoisonError::into_inner);
    while !*stopped {
        let waited = stop.signal.wait_timeout(stopped, Duration::from_secs(1));
        (stopped, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = db.flush_wal(true) {
            eprintln!("rocksdb: {error}");
        }
    }
}

/// The handles of the spaces that a batch has used: looked up once each.
struct RocksBatch<'a> {
    batch: WriteBatch,
    store: &'a Rocks,
    handles: [Option<(usize, &'a ColumnFamily)>; SPACES],
}

impl<'a> RocksBatch<'a> {
    fn handle(&mut self, space: usize) -> Result<&'a ColumnFamily, BenchError> {
        match self.handles[space % SPACES] {
            Some((of, handle)) if of == space => Ok(handle),
            _ => {
                let handle = self.store.space(space)?;
                self.handles[space % SPACES] = Some((space, handle));
                Ok(handle)
            }
        }
    }
}

impl Batch for RocksBatch<'_> {
    fn put(&mut self, space: usize, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        let handle = self.handle(space)?;
        self.batch.put_cf(handle, key, value);
        Ok(())
    }

    fn delete(&mut self, space: usize, key: &[u8]) -> Result<(), BenchError> {
        let handle = self.handle(space)?;
        self.batch.delete_cf(handle, key);
        Ok(())
    }
}

impl Store for Rocks {
    fn version(&self) -> String {
        // The library has no version call in this binding; the package names it.
        let found = std::fs::read_dir("/usr/lib/x86_64-linux-gnu").into_iter().flatten().flatten();
        let names = found.map(|e| e.file_name().to_string_lossy().into_owned());
        let versions = names.filter_map(|n| n.strip_prefix("librocksdb.so.").map(str::to_string));
        versions.max_by_key(String::len).unwrap_or_else(|| "unknown".into())
    }

    fn details(&self) -> serde_json::Value {
        let statistics = self.options.get_statistics().unwrap_or_default();
        let used: Vec<&str> = statistics.lines().filter(|l| !l.ends_with(" : 0")).collect();
        let mut details = self.settings.clone();
        details["options_file"] = self.options_file().into();
        details["statistics"] = used.join("\n").into();
        details
    }

    fn counters(&self) -> Counters {
        let text = self.options.get_statistics().unwrap_or_default();
        let number = |name: &str, field: &str| -> u64 {
            text.lines()
                .filter(|line| line.strip_prefix(name).is_some_and(|r| r.starts_with(' ')))
                .find_map(|line| {
                    let mut words = line.split_whitespace().skip_while(|w| *w != field).skip(2);
                    words.next()?.parse().ok()
                })
                .unwrap_or(0)
        };
        let count = |name: &str| number(name, "COUNT");
        let mut counters = Counters::default();
        counters.bytes.wal = count("rocksdb.wal.bytes");
        counters.bytes.run_flush = count("rocksdb.flush.write.bytes");
        counters.bytes.compaction_read = count("rocksdb.compact.read.bytes");
        counters.bytes.compaction_written = count("rocksdb.compact.write.bytes");
        counters.bytes.build_written = self.build_written.load(Relaxed);
        counters.bytes.foreground_read = count("rocksdb.block.cache.bytes.write");
        counters.events.memtable_flushes = count("rocksdb.db.flush.micros");
        counters.events.compactions = count("rocksdb.compaction.times.micros");
        let stalled = count("rocksdb.stall.micros");
        counters.waits.add(Cause::CompactionDebt, stalled);
        counters.waits.add(Cause::LogSync, number("rocksdb.wal.file.sync.micros", "SUM"));
        counters
    }

    fn write(&self, fill: &mut Fill<'_>) -> Result<(), BenchError> {
        let batch = WriteBatch::default();
        let mut batch = RocksBatch { batch, store: self, handles: [None; SPACES] };
        fill(&mut batch)?;
        let mut options = WriteOptions::default();
        options.set_sync(self.durability == 1);
        self.db.write_opt(batch.batch, &options).map_err(failed)
    }

    fn scan(&self, space: usize, from: &[u8], visit: &mut Visit<'_>) -> Result<(), BenchError> {
        let mut options = ReadOptions::default();
        if from.is_empty() {
            // A scan of everything: read ahead, and keep the cache for others.
            options.set_readahead_size(2 << 20);
            options.fill_cache(false);
        }
        let mut iterator = self.db.raw_iterator_cf_opt(self.space(space)?, options);
        if from.is_empty() {
            iterator.seek_to_first()
        } else {
            iterator.seek(from)
        }
        while let Some((key, value)) = iterator.item() {
            if !visit(key, value) {
                return Ok(());
            }
            iterator.next();
        }
        iterator.status().map_err(failed)
    }

    fn get_many(&self, space: usize, keys: &[[u8; 8]]) -> Result<u64, BenchError> {
        let found = self.db.batched_multi_get_cf(self.space(space)?, keys, false);
        let mut count = 0;
        for value in found {
            count += u64::from(value.map_err(failed)?.is_some_and(|v| !v.is_empty()));
        }
        Ok(count)
    }

    fn get_each(
        &self,
        space: usize,
        keys: &mut dyn Iterator<Item = [u8; 8]>,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<(), BenchError> {
        let handle = self.space(space)?;
        for key in keys {
            if let Some(value) = self.db.get_pinned_cf(handle, key).map_err(failed)? {
                show(&value);
            }
        }
        Ok(())
    }

    fn load(&self, space: usize, keys: Box<Sorted<'_>>) -> Result<(), BenchError> {
        let mut paths = Vec::new();
        let mut writer: Option<(SstFileWriter<'_>, u64)> = None;
        keys(&mut |key| {
            if writer.as_ref().is_none_or(|(_, n)| *n >= SST_BYTES) {
                if let Some((mut full, _)) = writer.take() {
                    full.finish().map_err(failed)?;
                    self.build_written.fetch_add(full.file_size(), Relaxed);
                }
                let path = self.dir.join(format!("build-{space}-{}.sst", paths.len()));
                let new = SstFileWriter::create(&self.options);
                new.open(&path).map_err(failed)?;
                paths.push(path);
                writer = Some((new, 0));
            }
            let Some((writer, bytes)) = writer.as_mut() else { return Ok(()) };
            *bytes += key.len() as u64;
            writer.put(key, []).map_err(failed)
        })?;
        let Some((mut last, _)) = writer else { return Ok(()) };
        last.finish().map_err(failed)?;
        self.build_written.fetch_add(last.file_size(), Relaxed);
        drop(last);
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        let handle = self.space(space)?;
        self.db.ingest_external_file_cf_opts(handle, &options, paths).map_err(failed)
    }

    fn snapshot<'a>(&'a self) -> Result<Box<dyn Held + 'a>, BenchError> {
        Ok(Box::new(self.db.snapshot()))
    }

    fn close(mut self) -> Result<(), BenchError> {
        if let Some((stop, syncer)) = self.syncer.take() {
            *stop.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
            stop.signal.notify_all();
            let _ = syncer.join();
        }
        self.db.flush_wal(true).map_err(failed)?;
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}
