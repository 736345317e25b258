//! Figures of the bars that the insert benchmark does not give: point reads (E5), recovery (E9),
//! deletes from the low end (E10), a long snapshot (E11), opening, closing and idling (E12).
//!
//! `cargo run --release -p evenkeel-bench --example bars -- DIR [e5 e9 e10 e11 e12] [--scale N]`
//! Sizes are those of a short run. The sizes of the bars: E5 `--scale 10`, E9 `--scale 11`, E10
//! `--scale 20`, E11 `--scale 30`.

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Direction, IndexSpec, Isolation, Metric, Options,
    Range, Result, Row, TableSpec,
};
use std::path::Path;
use std::time::{Duration, Instant};

const ROW: [u8; 60] = [7; 60];

fn spec() -> TableSpec {
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("n", ColumnType::Int64))
        .column(ColumnSpec::new("data", ColumnType::Bytes { max: 200 }))
        .primary_key(&["id"])
}

fn begin(db: &Database) -> Result<evenkeel::Txn> {
    db.begin(Isolation::RepeatableRead, Access::ReadWrite)
}

fn load(db: &Database, rows: i64) -> Result<()> {
    db.create_table("t", &spec())?;
    for first in (0..rows).step_by(1000) {
        let txn = begin(db)?;
        let table = txn.table("t")?;
        for id in first..(first + 1000).min(rows) {
            table.insert(&[Int(id), Int(id), Bytes(&ROW)])?;
        }
        txn.commit()?;
    }
    Ok(())
}

struct Rng(u64);
impl Rng {
    fn below(&mut self, n: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as i64
    }
}

fn lazy(memory: u64) -> Options {
    let mut options = Options::new();
    options.memory_size = memory;
    options.durability = evenkeel::Durability::Lazy;
    options
}

fn fresh(dir: &Path) -> std::io::Result<()> {
    if dir.exists() { std::fs::remove_dir_all(dir) } else { Ok(()) }
}

fn e5(dir: &Path, scale: i64) -> Result<()> {
    let rows = 400_000 * scale;
    let db = Database::open_with(dir, lazy((256 << 20) * (1 + scale as u64)))?;
    load(&db, rows)?;
    let (mut rng, mut row) = (Rng(42), Row::new());
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    let table = txn.table("t")?;
    let mut read = |n: u32| -> Result<f64> {
        let start = Instant::now();
        let mut sum = 0i64;
        for _ in 0..n {
            let id = rng.below(rows);
            if table.get_into(&[Int(id)], &mut row)?
                && let Int(v) = row.value(1)?
            {
                sum = sum.wrapping_add(v);
            }
        }
        std::hint::black_box(sum);
        Ok(start.elapsed().as_nanos() as f64 / f64::from(n))
    };
    read(rows as u32)?;
    let inside = read(1_000_000)?;
    let (mut rng, mut row) = (Rng(43), Row::new());
    let start = Instant::now();
    for _ in 0..500_000 {
        let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
        txn.table("t")?.get_into(&[Int(rng.below(rows))], &mut row)?;
        txn.commit()?;
    }
    let alone = start.elapsed().as_nanos() as f64 / 500_000.0;
    let miss = dependent_read_ns(rows as usize * ROW.len());
    println!(
        "E5 point read, {rows} rows cached: {inside:.0} ns, with begin and commit {alone:.0} ns; \
         control: a read that waits for the one before it, in as much memory, {miss:.0} ns"
    );
    Ok(())
}

/// What the memory of this machine takes for one cache line out of so many bytes where the address
/// comes from the line before: the unit in which a point read is paid.
fn dependent_read_ns(bytes: usize) -> f64 {
    let lines = bytes / 64;
    let mut next: Vec<[u64; 8]> = (0..lines as u64).map(|i| [i; 8]).collect();
    // Sattolo's shuffle: one cycle through all lines.
    let mut rng = Rng(44);
    for i in (1..lines).rev() {
        let j = rng.below(i as i64) as usize;
        next.swap(i, j);
    }
    let (reads, mut at, start) = (3_000_000, 0, Instant::now());
    for _ in 0..reads {
        at = next[at as usize][0];
    }
    std::hint::black_box(at);
    start.elapsed().as_nanos() as f64 / f64::from(reads)
}

/// The table of the insert benchmark with its three indexes.
fn indexed_spec() -> TableSpec {
    let int = |name| ColumnSpec::new(name, ColumnType::Int32);
    TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(int("register"))
        .column(int("customer"))
        .column(int("product"))
        .column(int("price"))
        .column(ColumnSpec::new("data", ColumnType::Bytes { max: 200 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("market", &["product", "customer", "price"]))
        .index(IndexSpec::new("register", &["register", "customer", "price"]))
        .index(IndexSpec::new("price", &["price", "customer"]))
}

/// Inserts 50 rows at a time from `first` on, until the rows or the time are over; returns the next
/// row and calls `each` after each commit.
fn insert_indexed(
    db: &Database,
    rng: &mut Rng,
    rows: std::ops::Range<i64>,
    mut each: impl FnMut(i64) -> bool,
) -> Result<i64> {
    let mut first = rows.start;
    while first < rows.end {
        let txn = begin(db)?;
        let table = txn.table("t")?;
        for id in first..first + 50 {
            let mut int = |below| Int(rng.below(below));
            let (register, customer) = (int(1000), int(100_000));
            let (product, price) = (int(10_000), int(500));
            table.insert(&[Int(id), register, customer, product, price, Bytes(&ROW[..15])])?;
        }
        txn.commit()?;
        first += 50;
        if !each(first) {
            break;
        }
    }
    Ok(first)
}

/// Memtables of this much memory hold a GiB of log and more.
fn e9_options(log_size: u64) -> Options {
    let mut options = lazy(2 << 30);
    options.log_size = log_size;
    options
}

/// A bit more than 1,024 MiB of log in all at scale 11.
const E9_ROWS: i64 = 930_000;
/// No checkpoint cuts it short.
const E9_LOG_BEFORE: u64 = 8 << 30;
/// A GiB of it is more than may be there for long: pages must be flushed from the first second on.
const E9_LOG_AFTER: u64 = 2 << 30;

/// Run as a child with the work to lose; the parent kills it and times the next open. Says how many
/// rows a second it inserted in its second half.
fn e9_child(dir: &Path, scale: i64) -> Result<()> {
    let db = Database::open_with(dir, e9_options(E9_LOG_BEFORE))?;
    db.create_table("t", &indexed_spec())?;
    let (rows, mut half) = (E9_ROWS * scale, None);
    insert_indexed(&db, &mut Rng(9), 0..rows, |next| {
        if next >= rows / 2 {
            half.get_or_insert_with(Instant::now);
        }
        true
    })?;
    let seconds = half.map_or(0.0, |at| at.elapsed().as_secs_f64());
    println!("{:.0}", (rows / 2) as f64 / seconds);
    std::thread::park();
    Ok(())
}

/// The same with updates of random rows, so that nearly every page has changes to redo.
fn e9_updates_child(dir: &Path, scale: i64) -> Result<()> {
    let rows = 500_000 * scale;
    let db = Database::open_with(dir, e9_options(E9_LOG_BEFORE))?;
    load(&db, rows)?;
    db.close()?;
    let db = Database::open_with(dir, e9_options(E9_LOG_BEFORE))?;
    let logged = || db.stats().get(Metric::LogBytes);
    let (mut rng, end) = (Rng(9), logged() + (100 << 20) * scale as u64);
    let (start, mut updates) = (Instant::now(), 0);
    while logged() < end {
        let txn = begin(&db)?;
        let table = txn.table("t")?;
        for _ in 0..50 {
            table.update(&[Int(rng.below(rows))], &[(1, Int(rng.below(rows)))])?;
        }
        txn.commit()?;
        updates += 50;
    }
    println!("{:.0}", f64::from(updates) / start.elapsed().as_secs_f64());
    std::thread::park();
    Ok(())
}

/// Runs this program as `child` until it says its rate, and kills it then.
fn killed(dir: &Path, child: &str, scale: i64) -> f64 {
    use std::io::{BufRead, BufReader};
    let exe = std::env::current_exe().expect("own path");
    let mut child = std::process::Command::new(exe)
        .args([&dir.display().to_string(), child, "--scale", &scale.to_string()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("start a child");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("the child's word");
    child.kill().expect("kill");
    child.wait().expect("wait");
    line.trim().parse().expect("the child's rate")
}

/// The open that recovers, and the time until its first query is answered.
fn recovered(dir: &Path) -> Result<(Database, Duration)> {
    let start = Instant::now();
    let db = Database::open_with(dir, e9_options(E9_LOG_AFTER))?;
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    assert!(txn.table("t")?.last()?.is_some(), "rows are there");
    let time = start.elapsed();
    drop(txn);
    Ok((db, time))
}

fn e9(dir: &Path, scale: i64) -> Result<()> {
    let own = dir.join("inserts");
    let before = killed(&own, "e9child", scale);
    let (db, time) = recovered(&own)?;
    let report = db.recovery();
    println!(
        "E9 kill -9, {} MiB of log, {} records: first query after {:.2} s",
        report.log_bytes >> 20,
        report.records,
        time.as_secs_f64()
    );
    e9_after(&db, E9_ROWS * scale, before)?;
    db.close()?;
    fresh(&own).expect("cleaning up");
    e9_updates(&dir.join("updates"), scale)
}

/// Each page with changes to redo may take one read of the device longer.
fn e9_updates(dir: &Path, scale: i64) -> Result<()> {
    let rate = killed(dir, "e9uchild", scale);
    let (db, time) = recovered(dir)?;
    let (report, pages) = (db.recovery(), db.recovery().page_reads);
    db.close()?;
    let reads = page_reads_per_s(dir)?;
    println!(
        "E9 kill -9, {} MiB of log of random updates ({rate:.0}/s): first query after {:.2} s; \
         {pages} pages, of which this device reads {reads:.0} a second: {:.2} s",
        report.log_bytes >> 20,
        time.as_secs_f64(),
        pages as f64 / reads
    );
    Ok(())
}

/// Reads of single pages, one after the other, at random places of the largest file.
fn page_reads_per_s(dir: &Path) -> Result<f64> {
    use evenkeel_io::{AlignedBuf, Env, OpenMode, RealEnv};
    const PAGE: usize = 4096;
    let env = RealEnv::new(dir);
    let mut files: Vec<(u64, String)> = Vec::new();
    for name in env.list("pages")?.into_iter().map(|name| format!("pages/{name}")) {
        files.push((env.open(&name, OpenMode::READ)?.len()?, name));
    }
    let (len, name) = files.into_iter().max().expect("a file of pages");
    let (file, mut page) = (env.open(&name, OpenMode::READ.direct())?, AlignedBuf::new(PAGE));
    let (mut rng, reads, start) = (Rng(45), 2000, Instant::now());
    for _ in 0..reads {
        file.read_at(&mut page, rng.below(len as i64 / PAGE as i64) as u64 * PAGE as u64)?;
    }
    Ok(f64::from(reads) / start.elapsed().as_secs_f64())
}

/// The open alone, of a copy of what a killed `e9child` left: then the process ends at once.
fn e9_open(dir: &Path) -> Result<()> {
    let (db, time) = recovered(dir)?;
    println!("first query after {:.3} s: {}", time.as_secs_f64(), db.recovery());
    std::process::exit(0)
}

/// Pages of the batches that a second may find under way: asked for before it, done in it.
const UNDER_WAY_PAGES: u64 = 2 * 256;

/// 20 seconds of the same work: rates after the fifth second, pages flushed and asked for, by the
/// law: what a checkpoint required beyond it is no excuse.
fn e9_after(db: &Database, rows: i64, before: f64) -> Result<()> {
    let flushed = |db: &Database| {
        let stats = db.stats();
        let required = stats.get(Metric::FlushReasonRequired);
        (stats.get(Metric::FlushRequested) - required, stats.get(Metric::FlushDone))
    };
    let (start, mut second, mut last) = (Instant::now(), 0, rows);
    let (mut rates, mut pages) = (Vec::new(), flushed(db));
    let (first, mut over) = (pages, Vec::new());
    insert_indexed(db, &mut Rng(10), rows..i64::MAX, |next| {
        if start.elapsed().as_secs() > second {
            second += 1;
            rates.push(next - last);
            last = next;
            let now = flushed(db);
            let (asked, done) = (now.0.saturating_sub(pages.0), now.1 - pages.1);
            let behind = pages.0.saturating_sub(first.0).saturating_sub(pages.1 - first.1);
            let asked = asked + behind.min(UNDER_WAY_PAGES);
            if done as f64 > 1.1 * asked as f64 + 64.0 {
                over.push((second, asked, done));
            }
            pages = now;
        }
        second < 20
    })?;
    let later = rates[5..].iter().sum::<i64>() as f64 / (rates.len() - 5) as f64;
    println!(
        "E9 inserts/s before {before:.0}, from the fifth second on {later:.0} ({:.2}); each second \
         {rates:?}; seconds that flushed more than 1.1 x asked + 64 pages: {over:?}",
        later / before
    );
    Ok(())
}

/// Deletes all rows but 1,000 from the low end; returns the slowest search for the lowest row.
fn delete_low_end(db: &Database, rows: i64) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    for first in (0..rows - 1000).step_by(1000) {
        let txn = begin(db)?;
        let table = txn.table("t")?;
        for id in first..first + 1000 {
            table.delete(&[Int(id)])?;
        }
        txn.commit()?;
        slowest = slowest.max(lowest(db, first + 1000)?);
    }
    Ok(slowest)
}

/// How long the search for the lowest row takes, which must be `expected`.
fn lowest(db: &Database, expected: i64) -> Result<Duration> {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    let start = Instant::now();
    let row = txn.table("t")?.first()?.expect("rows are left");
    let time = start.elapsed();
    assert_eq!(row.value("id")?, Int(expected));
    Ok(time)
}

fn slowest_in(db: &Database, expected: i64, seconds: u64) -> Result<Duration> {
    let (start, mut slowest) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < Duration::from_secs(seconds) {
        slowest = slowest.max(lowest(db, expected)?);
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(slowest)
}

fn e10(dir: &Path, scale: i64) -> Result<()> {
    let (rows, after_s) = (500_000 * scale, (3 * scale as u64).min(60));
    for held in [false, true] {
        let own = dir.join(if held { "held" } else { "free" });
        let db = Database::open_with(&own, lazy(64 << 20))?;
        load(&db, rows)?;
        let snapshot = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
        if held {
            snapshot.take_snapshot()?;
        }
        let (start, throughout) = (Instant::now(), delete_low_end(&db, rows)?);
        let rate = rows as f64 / start.elapsed().as_secs_f64();
        let after = slowest_in(&db, rows - 1000, after_s)?;
        println!(
            "E10 {rows} rows deleted from the low end ({rate:.0}/s){}: slowest min(pk) \
             {throughout:?}, in {after_s} s after {after:?}",
            if held { " beside an older snapshot" } else { "" }
        );
        if held {
            let row = snapshot.table("t")?.first()?.expect("its rows are left");
            assert_eq!(row.value("id")?, Int(0));
        }
        drop(snapshot);
        db.close()?;
        fresh(&own).expect("cleaning up");
    }
    Ok(())
}

/// Updates of random rows for `windows` times `seconds`; the rate of each window.
fn update_rates(
    db: &Database,
    rng: &mut Rng,
    rows: i64,
    windows: u64,
    seconds: u64,
) -> Result<Vec<f64>> {
    let (mut rates, mut n) = (Vec::new(), 0u64);
    for _ in 0..windows {
        let (start, before) = (Instant::now(), n);
        while start.elapsed() < Duration::from_secs(seconds) {
            let txn = begin(db)?;
            txn.table("t")?.update(&[Int(rng.below(rows))], &[(1, Int(n as i64))])?;
            txn.commit()?;
            n += 1;
        }
        rates.push((n - before) as f64 / start.elapsed().as_secs_f64());
    }
    Ok(rates)
}

fn e11(dir: &Path, scale: i64) -> Result<()> {
    let rows = 1_000_000;
    let mut options = lazy(256 << 20);
    options.durability = evenkeel::Durability::Write;
    let db = Database::open_with(dir, options)?;
    load(&db, rows)?;
    // Five windows, of a minute at scale 30; those after tell how far the machine varies by itself.
    let (mut rng, window_s) = (Rng(5), 2 * scale as u64);
    let without = update_rates(&db, &mut rng, rows, 5, window_s)?;
    let held = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    held.take_snapshot()?;
    let with = update_rates(&db, &mut rng, rows, 5, window_s)?;
    // Each row through all its versions since: some of them.
    const READ: u64 = 1000;
    let start = Instant::now();
    let mut scan = held.table("t")?.scan(Range::ALL, Direction::Forward)?;
    let (mut row, mut n) = (Row::new(), 0);
    while n < READ && scan.next(&mut row)? {
        n += 1;
    }
    let read = start.elapsed();
    drop(scan);
    drop(held);
    let after = update_rates(&db, &mut rng, rows, 5, window_s)?;
    println!(
        "E11 updates/s in the last fifth of {} s: {:.0} without, {:.0} with a snapshot held \
         ({:.2})",
        5 * window_s,
        without[4],
        with[4],
        with[4] / without[4]
    );
    for (what, rates) in [("without", without), ("with it", with), ("afterwards", after)] {
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        println!("E11 each fifth {what}: {rates:.0?}, mean {mean:.0}");
    }
    println!("E11 the snapshot reads {n} rows in {read:.1?}");
    Ok(())
}

fn e12(dir: &Path, scale: i64) -> Result<()> {
    let empty = dir.join("empty");
    let db = Database::open(&empty)?;
    db.close()?;
    let start = Instant::now();
    let db = Database::open(&empty)?;
    let opened = start.elapsed();
    std::thread::sleep(Duration::from_millis(1500));
    let (before, switches) = (db.stats(), voluntary_switches());
    std::thread::sleep(Duration::from_secs(3));
    let (after, woken) = (db.stats(), voluntary_switches() - switches);
    let writes = after.get(Metric::FileWrites) - before.get(Metric::FileWrites);
    let kib = allocated(&empty) / 1024;
    db.close()?;
    println!(
        "E12 open of an empty store {opened:?}, {kib} KiB; idle 3 s: {woken} wake-ups, {writes} \
         writes"
    );
    e12_close(&dir.join("full"), scale)
}

/// The close of a database with memtables, and with pages that changed at random since they were
/// written, as many as its memory holds; then the open.
fn e12_close(dir: &Path, scale: i64) -> Result<()> {
    let (rows, options) = (1_000_000 * scale, e9_options(E9_LOG_BEFORE));
    let db = Database::open_with(dir, options.clone())?;
    db.create_table("t", &indexed_spec())?;
    insert_indexed(&db, &mut Rng(12), 0..rows, |_| true)?;
    let mut rng = Rng(13);
    for _ in 0..rows / 50 {
        let txn = begin(&db)?;
        let table = txn.table("t")?;
        for _ in 0..10 {
            table.update(&[Int(rng.below(rows))], &[(4, Int(rng.below(500)))])?;
        }
        txn.commit()?;
    }
    let stats = db.stats();
    let (dirty, entries) = (stats.get(Metric::DirtyPages) / 256, stats.get(Metric::MemtableBytes));
    let start = Instant::now();
    db.close()?;
    let (closed, start) = (start.elapsed(), Instant::now());
    let db = Database::open_with(dir, options)?;
    println!(
        "E12 close with {dirty} MiB of dirty pages and {} MiB of memtables: {closed:?}; opened \
         again in {:?}, {} MiB of log read, {} pages",
        entries >> 20,
        start.elapsed(),
        db.recovery().log_bytes >> 20,
        db.recovery().page_reads,
    );
    db.close()
}

/// Voluntary context switches of all other threads.
fn voluntary_switches() -> u64 {
    let mut sum = 0;
    let own = std::process::id().to_string();
    for task in std::fs::read_dir("/proc/self/task").expect("threads").flatten() {
        if task.file_name().to_string_lossy() == own {
            continue;
        }
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        sum += line.and_then(|l| l.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    sum
}

fn allocated(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).expect("directory").flatten();
    entries
        .map(|e| match e.metadata() {
            Ok(m) if m.is_dir() => allocated(&e.path()),
            Ok(m) => m.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

fn main() -> Result<()> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut scale = 1;
    if let Some(i) = args.iter().position(|a| a == "--scale") {
        scale = args.get(i + 1).and_then(|s| s.parse().ok()).unwrap_or(1);
        args.truncate(i);
    }
    let Some(dir) = args.first().cloned() else {
        eprintln!("usage: bars DIR [e5 e9 e10 e11 e12] [--scale N]");
        std::process::exit(2);
    };
    let dir = Path::new(&dir);
    let all = ["e5", "e9", "e10", "e11", "e12"].map(String::from);
    let wanted = if args.len() > 1 { args[1..].to_vec() } else { all.to_vec() };
    for bar in wanted {
        let own = dir.join(&bar);
        match bar.as_str() {
            "e9child" => return e9_child(dir, scale),
            "e9uchild" => return e9_updates_child(dir, scale),
            "e9open" => return e9_open(dir),
            _ => fresh(&own).expect("an empty directory"),
        }
        std::fs::create_dir_all(&own).expect("a directory");
        match bar.as_str() {
            "e5" => e5(&own, scale)?,
            "e9" => e9(&own, scale)?,
            "e10" => e10(&own, scale)?,
            "e11" => e11(&own, scale)?,
            "e12" => e12(&own, scale)?,
            other => eprintln!("unknown bar {other}"),
        }
        fresh(&own).expect("cleaning up");
    }
    Ok(())
}
