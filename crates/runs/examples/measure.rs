//! Measures the index layer alone: memtable inserts, short range scans over several runs,
//! compactions, bytes written per row, builds. `cargo run --release -p evenkeel-runs --example
//! measure -- DIR`.

use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, CommitTable, IndexId, Lsn, Result, Snapshot, Stamp, TxnId, TxnState};
use evenkeel_format::record::{Entry, entry_op};
use evenkeel_io::{Env, RealEnv, Runtime};
use evenkeel_runs::{
    BuiltPart, Direction, IndexSpec, KeyRange, ManifestLog, Runs, RunsOptions, Unsorted,
    entry_bytes,
};
use evenkeel_sched::Scheduler;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Every transaction is committed at ten times its id; no snapshots.
struct Commits;
impl CommitTable for Commits {
    fn state(&self, txn: TxnId) -> TxnState {
        TxnState::Committed(Lsn(txn.0 * 10))
    }
    fn is_dead(&self, _stamp: Stamp) -> bool {
        false
    }
    fn horizon(&self) -> Lsn {
        Lsn::MAX
    }
    fn snapshot_between(&self, _low: Lsn, _high: Lsn) -> bool {
        false
    }
}

struct NoLog(AtomicU64);
impl ManifestLog for NoLog {
    fn end(&self) -> Lsn {
        Lsn(self.0.load(Ordering::Relaxed))
    }
    fn capacity(&self) -> u64 {
        u64::MAX
    }
    fn append_manifest(&self, _body: &[u8]) -> Result<Lsn> {
        Ok(self.end())
    }
}

struct Bed {
    rt: Arc<Runtime>,
    log: Arc<NoLog>,
    runs: Arc<Runs>,
    random: u64,
}

impl Bed {
    fn new(dir: &str, generation_bytes: u64, cache_bytes: u64) -> Result<Bed> {
        let _ = std::fs::remove_dir_all(dir);
        let rt = Runtime::new(Arc::new(RealEnv::new(dir)) as Arc<dyn Env>);
        rt.env.create_dir("")?;
        let options = RunsOptions { generation_bytes, cache_bytes };
        let runs = Runs::create(Scheduler::new(rt.clone()), options, Arc::new(Commits))?;
        let log = Arc::new(NoLog(AtomicU64::new(1 << 30)));
        runs.attach_log(log.clone());
        runs.finish_restore()?;
        for id in 1..=3 {
            let id = IndexId(id);
            let valid_from = Lsn::ZERO;
            runs.add_index(IndexSpec { id, unique_key: false, building: false, valid_from });
        }
        Ok(Bed { rt, log, runs, random: 88172645463325252 })
    }

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Keys of the insert benchmark: (price, customer), (register, price, customer), (price, date,
    /// customer): 10 to 18 bytes with their null bytes.
    fn key(&mut self, index: u32, out: &mut Vec<u8>) {
        out.clear();
        let (price, customer) = (self.next() % 10_000_000, self.next() % 100_000);
        let (register, date) = (self.next() % 1000, self.next() >> 20);
        let mut put = |n: u64, bytes: usize| {
            out.push(1);
            out.extend_from_slice(&n.to_be_bytes()[8 - bytes..]);
        };
        match index {
            1 => put(register, 4),
            2 => put(price, 4),
            _ => {
                put(price, 4);
                put(date, 8);
            }
        }
        put(customer, 4);
    }

    fn insert_row(&mut self, row: u64, indexes: u32) -> Result<()> {
        let mut reserved = self.runs.reserve(indexes as usize * entry_bytes(19, 8, 0))?;
        let pin = self.runs.pin();
        let lsn = Lsn(self.log.0.fetch_add(300, Ordering::Relaxed));
        let stamp = Stamp { txn: TxnId(lsn.0 / 10 / 15_000 * 15_000), undo_no: Default::default() };
        let mut key = Vec::with_capacity(24);
        for index in 1..=indexes {
            self.key(index, &mut key);
            let op = entry_op::INS | entry_op::FRESH;
            let entry = Entry { index: IndexId(index), op, key: &key, value: b"" };
            self.runs.insert(&pin, &mut reserved, &entry, &row.to_be_bytes(), stamp, lsn);
        }
        Ok(())
    }

    fn get(&self, metric: Metric) -> u64 {
        self.rt.metrics.get(metric)
    }

    fn ns(&self) -> u64 {
        self.rt.env.now_ns()
    }
}

/// CPU time of this thread: wall time says little on a busy machine.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default()
}

/// Inserts until `bytes` of memory are in use: the number of entries, and the CPU time per entry,
/// in all and of the last quarter.
fn fill(bed: &mut Bed, bytes: u64) -> Result<(u64, f64, f64)> {
    let start = cpu_ns();
    let (mut row, mut mark) = (0, (0, start));
    while bed.runs.memory().0 < bytes {
        for _ in 0..1000 {
            bed.insert_row(row, 3)?;
            row += 1;
        }
        if bed.runs.memory().0 < bytes / 4 * 3 {
            mark = (row, cpu_ns());
        }
    }
    let end = cpu_ns();
    let per = |ns: u64, rows: u64| ns as f64 / (rows * 3) as f64;
    Ok((row * 3, per(end - start, row), per(end - mark.1, row - mark.0)))
}

fn inserts(dir: &str) -> Result<()> {
    for mib in [8, 32, 128] {
        let mut bed = Bed::new(dir, 1 << 30, 64 << 20)?;
        let (entries, all, last) = fill(&mut bed, mib << 20)?;
        println!(
            "memtable insert, 3 indexes, to {mib} MiB: {all:.0} ns CPU/entry, last quarter \
             {last:.0}; {:.0} bytes/entry",
            bed.runs.memory().0 as f64 / entries as f64
        );
        let start = cpu_ns();
        bed.runs.seal_active();
        while bed.runs.flush_beat()? == Beat::More {}
        let ns = (cpu_ns() - start) as f64 / entries as f64;
        let bytes = bed.get(Metric::RunFlushBytes) as f64 / entries as f64;
        println!("flush: {ns:.0} ns CPU/entry, {bytes:.1} bytes/entry");
    }
    let bed = Bed::new(dir, 1 << 30, 64 << 20)?;
    let results = std::thread::scope(|s| {
        let bed = &bed;
        let fill = |i: u64| {
            let (rt, log, runs) = (bed.rt.clone(), bed.log.clone(), bed.runs.clone());
            fill(&mut Bed { rt, log, runs, random: bed.random + i }, 32 << 20)
        };
        let threads = [1, 2].map(|i| s.spawn(move || fill(i)));
        threads.map(|thread| thread.join().expect("inserts"))
    });
    for result in results {
        let (entries, all, last) = result?;
        println!(
            "one of two threads, together to 32 MiB: {all:.0} ns CPU/entry, last quarter \
             {last:.0}; {entries} entries"
        );
    }
    Ok(())
}

fn scans(dir: &str) -> Result<()> {
    for count in [1, 3, 8, 9] {
        let mut bed = Bed::new(dir, 1 << 30, 512 << 20)?;
        for row in 0..600_000 {
            bed.insert_row(row, 1)?;
            if (row + 1) % (600_000 / count) == 0 {
                bed.runs.seal_active();
                while bed.runs.flush_beat()? == Beat::More {}
            }
        }
        let mut entries = 0;
        let mut best = f64::MAX;
        for _ in 0..4 {
            let start = cpu_ns();
            for _ in 0..20_000 {
                let mut low = Vec::new();
                bed.key(1, &mut low);
                let range = KeyRange { lower: Bound::Included(low), upper: Bound::Unbounded };
                let snapshot = Snapshot::committed_at(Lsn::MAX);
                let mut cursor =
                    bed.runs.cursor(IndexId(1), range, Direction::Forward, snapshot)?;
                for _ in 0..10 {
                    entries += usize::from(cursor.next()?.is_some());
                }
            }
            best = best.min((cpu_ns() - start) as f64 / 20_000.0);
        }
        println!("scan of 10, cached, {count} runs: {best:.0} ns CPU ({entries} entries)");
    }
    Ok(())
}

fn ingest(dir: &str, rows: u64, generation_bytes: u64) -> Result<()> {
    let mut bed = Bed::new(dir, generation_bytes, 16 << 20)?;
    let (mut merging, start) = (0, bed.ns());
    let mut most = 0;
    for row in 0..rows {
        bed.insert_row(row, 3)?;
        if row % 1000 == 0 {
            while bed.runs.flush_beat()? == Beat::More {}
            let before = bed.ns();
            while bed.runs.compaction_beat()? == Beat::More {}
            merging += bed.ns() - before;
            most = most.max(bed.runs.runs_max());
        }
    }
    let entries: u64 = (1..=3).map(|i| bed.runs.stats(IndexId(i)).run_entries).sum();
    let bytes: u64 = (1..=3).map(|i| bed.runs.stats(IndexId(i)).run_bytes).sum();
    let (flushed, merged) = (bed.get(Metric::RunFlushBytes), bed.get(Metric::CompactionWriteBytes));
    let read = bed.get(Metric::CompactionReadBytes);
    println!(
        "ingest {rows} rows, generation {} MiB, {} flushes, {} merges ({} bottom), at most \
         {most} runs:",
        generation_bytes >> 20,
        bed.get(Metric::MemtableFlushes),
        bed.get(Metric::CompactionsFinished),
        bed.get(Metric::CompactionsBottom),
    );
    println!(
        "  {:.0} bytes/row flushed, {:.0} merged; {:.1} bytes/entry at the end; {:.1} s in all",
        flushed as f64 / rows as f64,
        merged as f64 / rows as f64,
        bytes as f64 / entries as f64,
        (bed.ns() - start) as f64 / 1e9,
    );
    let seconds = merging as f64 / 1e9;
    println!(
        "  merges: {:.0} MB/s read, {:.0} MB/s written, {:.2}M entries/s, one thread",
        read as f64 / seconds / 1e6,
        merged as f64 / seconds / 1e6,
        merged as f64 / (bytes as f64 / entries as f64) / seconds / 1e6,
    );
    Ok(())
}

fn build(dir: &str, rows: u64) -> Result<()> {
    let mut bed = Bed::new(dir, 32 << 20, 16 << 20)?;
    let start = bed.ns();
    let mut pieces: Vec<_> = (1..=3).map(|i| (Unsorted::new(IndexId(i)), Vec::new())).collect();
    let mut built: Vec<Vec<BuiltPart>> = (1..=3).map(|_| Vec::new()).collect();
    let mut key = Vec::new();
    for row in 0..rows {
        for index in 1..=3u32 {
            bed.key(index, &mut key);
            let (piece, sorted) = &mut pieces[index as usize - 1];
            piece.push(&key, &row.to_be_bytes(), b"")?;
            if piece.bytes() >= 1 << 20 {
                sorted.push(piece.sort()?);
            }
            let full = sorted.len() == 36;
            if full || row + 1 == rows {
                sorted.push(piece.sort()?);
                let plan = bed.runs.plan_run(IndexId(index), std::mem::take(sorted), 1)?;
                plan.write(0, &|| Ok(()))?;
                built[index as usize - 1].push(plan.finish());
            }
        }
    }
    for (index, parts) in (1..).zip(built) {
        bed.runs.install(IndexId(index), parts, &|_| Ok(()))?;
    }
    let seconds = (bed.ns() - start) as f64 / 1e9;
    println!(
        "build of 3 indexes in one thread, arenas of 24 MiB: {:.0}k rows/s, {:.1} bytes/entry",
        rows as f64 / seconds / 1e3,
        bed.get(Metric::BuildWriteBytes) as f64 / (3 * rows) as f64
    );
    Ok(())
}

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "measure.tmp".to_string());
    let only = std::env::args().nth(2).unwrap_or_default();
    let asked = |name: &str| only.is_empty() || only == name;
    if asked("inserts") {
        inserts(&dir)?;
    }
    if asked("scans") {
        scans(&dir)?;
    }
    if asked("ingest") {
        ingest(&dir, 4_000_000, 2 << 20)?;
    }
    if asked("build") {
        build(&dir, 3_000_000)?;
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
