//! The control: the same client writes the same bytes per commit to one preallocated file, with the
//! same syncs, and does nothing else. It shows the limits of the machine and the client.
//!
//! Commits of several threads are grouped: one of the threads writes and syncs for all waiting
//! threads.

use crate::engine::{Counters, Deleted, Engine, Failure, Held, Session};
use crate::error::BenchError;
use crate::options::Options;
use crate::rows::{Query, Row};
use evenkeel_base::Cause;
use evenkeel_io::{AlignedBuf, Env, File, IO_ALIGN, OpenMode, RealEnv, device_wait};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const FILE_BYTES: u64 = 256 << 20;
const FILE_NAME: &str = "null.log";
/// Bytes of a log record in addition to the row and its entries: frame, identity and page change.
const RECORD_BYTES: usize = 40;
/// An index entry in a log record: index, operation, lengths, primary key.
const ENTRY_BYTES: usize = 14;
/// Key bytes of the three indexes.
const KEY_BYTES: [usize; 3] = [12, 12, 16];
/// A logged delete, with the row before it.
const DELETE_BYTES: usize = RECORD_BYTES + 50;

/// The control engine.
pub struct NullEngine {
    shared: Arc<Shared>,
    syncer: Option<JoinHandle<()>>,
    tables: Vec<Table>,
    direct_io: bool,
}

#[derive(Default)]
struct Table {
    low: AtomicI64,
    high: AtomicI64,
    indexed: AtomicBool,
}

struct Shared {
    file: Arc<dyn File>,
    durability: u8,
    queue: Mutex<Queue>,
    written: Condvar,
    log_bytes: AtomicU64,
    sync_wait_ns: AtomicU64,
}

#[derive(Default)]
struct Queue {
    pending: usize,
    tickets: u64,
    done: u64,
    busy: bool,
    offset: u64,
    failed: Option<String>,
    closed: bool,
}

impl NullEngine {
    /// Opens the control in the options' directory.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn open(options: &Options) -> Result<NullEngine, BenchError> {
        let env = RealEnv::new(&options.dir);
        let mode = OpenMode::READ_WRITE;
        let file = env.open(FILE_NAME, if options.direct_io { mode.direct() } else { mode })?;
        if file.len()? < FILE_BYTES {
            let zeros = AlignedBuf::new(1 << 20);
            for at in (0..FILE_BYTES).step_by(zeros.len()) {
                file.write_at(&zeros, at)?;
            }
            file.sync()?;
        }
        let shared = Arc::new(Shared {
            file,
            durability: options.durability,
            queue: Mutex::new(Queue::default()),
            written: Condvar::new(),
            log_bytes: AtomicU64::new(0),
            sync_wait_ns: AtomicU64::new(0),
        });
        let syncer = (options.durability != 1).then(|| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.sync_each_second())
        });
        let tables = (0..options.clients).map(|_| Table::default()).collect();
        Ok(NullEngine { shared, syncer, tables, direct_io: options.direct_io })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit(&self, bytes: usize) -> Result<(), BenchError> {
        let start = Instant::now();
        let mut queue = self.lock();
        queue.pending += bytes;
        if self.durability == 0 {
            return queue.result();
        }
        queue.tickets += 1;
        let mine = queue.tickets;
        while queue.done < mine {
            if queue.busy {
                queue = self.written.wait(queue).unwrap_or_else(PoisonError::into_inner);
            } else {
                queue = self.write(queue, self.durability == 1);
            }
        }
        let waited = start.elapsed().as_nanos() as u64;
        self.sync_wait_ns.fetch_add(waited, Ordering::Relaxed);
        queue.result()
    }

    /// Writes the pending bytes for all waiting threads.
    fn write<'a>(&'a self, mut queue: MutexGuard<'a, Queue>, sync: bool) -> MutexGuard<'a, Queue> {
        let pending = std::mem::take(&mut queue.pending).min(FILE_BYTES as usize);
        let bytes = pending.next_multiple_of(IO_ALIGN);
        let upto = queue.tickets;
        if queue.offset + bytes as u64 > FILE_BYTES {
            queue.offset = 0;
        }
        let offset = queue.offset;
        queue.offset += bytes as u64;
        queue.busy = true;
        drop(queue);
        let mut buffer = AlignedBuf::new(bytes);
        buffer.fill(0xa5);
        let on_device = |work: &dyn Fn() -> evenkeel_base::Result<()>| {
            let start = Instant::now();
            let done = work();
            device_wait::note(start.elapsed().as_nanos() as u64);
            done
        };
        let done = on_device(&|| self.file.write_at(&buffer, offset));
        let done = done.and_then(|()| if sync { on_device(&|| self.file.sync()) } else { Ok(()) });
        self.log_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let mut queue = self.lock();
        if let Err(error) = done {
            queue.failed = Some(error.to_string());
        }
        queue.done = upto;
        queue.busy = false;
        self.written.notify_all();
        queue
    }

    fn sync_each_second(&self) {
        let mut queue = self.lock();
        while !queue.closed {
            let second = Duration::from_secs(1);
            (queue, _) =
                self.written.wait_timeout(queue, second).unwrap_or_else(PoisonError::into_inner);
            if !queue.busy && queue.pending > 0 {
                queue = self.write(queue, false);
            }
            drop(queue);
            let synced = self.file.sync();
            queue = self.lock();
            if let Err(error) = synced {
                queue.failed = Some(error.to_string());
            }
        }
    }
}

impl Queue {
    fn result(&self) -> Result<(), BenchError> {
        self.failed.clone().map_or(Ok(()), |text| Err(BenchError::Failed(text)))
    }
}

impl Engine for NullEngine {
    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_string()
    }

    fn details(&self) -> serde_json::Value {
        serde_json::json!({
            "file_bytes": FILE_BYTES, "direct_io": self.direct_io,
            "durability": self.shared.durability,
        })
    }

    fn create_table(&self, _client: usize) -> Result<(), BenchError> {
        Ok(())
    }

    fn create_indexes(&self, client: usize) -> Result<(), BenchError> {
        self.tables[client].indexed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn session<'a>(&'a self, client: usize) -> Result<Box<dyn Session + 'a>, BenchError> {
        Ok(Box::new(NullSession { shared: &self.shared, table: &self.tables[client] }))
    }

    fn snapshot<'a>(&'a self, _client: usize) -> Result<Box<dyn Held + 'a>, BenchError> {
        Ok(Box::new(()))
    }

    fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        counters.bytes.wal = self.shared.log_bytes.load(Ordering::Relaxed);
        let waited = self.shared.sync_wait_ns.load(Ordering::Relaxed);
        counters.waits.add(Cause::LogSync, waited / 1000);
        counters
    }

    fn close(mut self: Box<Self>) -> Result<(), BenchError> {
        self.shared.lock().closed = true;
        self.shared.written.notify_all();
        if let Some(syncer) = self.syncer.take() {
            let _ = syncer.join();
        }
        self.shared.file.sync()?;
        self.shared.lock().result()
    }
}

struct NullSession<'a> {
    shared: &'a Shared,
    table: &'a Table,
}

impl Session for NullSession<'_> {
    fn insert(&mut self, rows: &[Row]) -> Result<(), Failure> {
        let indexed = self.table.indexed.load(Ordering::Relaxed);
        let entries: usize =
            if indexed { KEY_BYTES.iter().map(|key| key + ENTRY_BYTES).sum() } else { 0 };
        // Primary key, date and time, four integers, length and bytes of the text.
        let row_bytes = |row: &Row| 8 + 8 + 4 * 4 + 2 + row.data().len();
        let bytes: usize = rows.iter().map(|row| RECORD_BYTES + row_bytes(row) + entries).sum();
        self.shared.commit(bytes)?;
        self.table.high.fetch_add(rows.len() as i64, Ordering::Relaxed);
        Ok(())
    }

    fn min_pk(&mut self) -> Result<Option<i64>, Failure> {
        let low = self.table.low.load(Ordering::Relaxed);
        Ok((low < self.table.high.load(Ordering::Relaxed)).then_some(low + 1))
    }

    fn delete_from(&mut self, from: i64, rows: usize) -> Result<Deleted, Failure> {
        let rows = (self.table.high.load(Ordering::Relaxed) - from + 1).clamp(0, rows as i64);
        if rows == 0 {
            return Ok(Deleted::default());
        }
        self.shared.commit(rows as usize * DELETE_BYTES)?;
        let last = from + rows - 1;
        self.table.low.store(last, Ordering::Relaxed);
        Ok(Deleted { rows: rows as u64, last: Some(last) })
    }

    fn query(&mut self, _query: &Query) -> Result<u64, Failure> {
        Ok(0)
    }

    fn update(&mut self, ids: &[i64], data: &str) -> Result<(), Failure> {
        // The values before and after.
        Ok(self.shared.commit(ids.len() * (RECORD_BYTES + 2 * data.len()))?)
    }

    fn read(&mut self, ids: &[i64]) -> Result<u64, Failure> {
        Ok(ids.len() as u64)
    }
}
