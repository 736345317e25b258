//! Figures that the design promises: fill after appends, storage reads of a cold update; and, on
//! request, times.

use super::*;
use evenkeel_base::metrics::Metric;
use evenkeel_io::{MemEnv, RealEnv};

#[test]
fn appends_leave_full_leaves() {
    let db = Db::create(Arc::new(MemEnv::new()), 4_096);
    let tree = db.tree();
    (0..50_000u64).for_each(|n| _ = db.put(&tree, &n.to_be_bytes(), plain(&[7; 60])));
    let report = check(&tree);
    assert_eq!(report.rows, 50_000);
    assert!(report.fill_percent() >= 97.0, "{report:?}");
}

/// Many writers append, each at a place of its own, as at the right edge.
#[test]
fn appends_in_many_places_leave_full_leaves() {
    let fill = |settles: bool, mut key: Box<dyn FnMut(u64) -> u64>| {
        let db = Db::create(Arc::new(MemEnv::new()), 4_096);
        let tree = db.tree();
        for n in 0..40_000u64 {
            let txn = 1 + n;
            if !settles {
                // A snapshot does not see it, so its stamp stays.
                db.commits.states.lock().insert(TxnId(txn), TxnState::Committed(Lsn(1)));
            }
            let put = Put { flags: cell_flags::FIRST, txn, row: &[7; 60] };
            db.put(&tree, &key(n).to_be_bytes(), put);
        }
        let report = check(&tree);
        assert!(report.rows > 39_000);
        report.fill_percent()
    };
    for settles in [true, false] {
        let places = fill(settles, Box::new(|n| (n % 20) << 32 | n));
        let mut rand = Rand(5);
        let random = fill(settles, Box::new(move |_| rand.below(1 << 40)));
        println!("{places:.1} % full where 20 append, {random:.1} where keys are random");
        assert!(places >= 90.0 && random >= 66.0, "{places} and {random}");
    }
}

#[test]
fn leaf_figures_are_exact_for_few_leaves_and_close_for_many() {
    for (rows, exact) in [(3u64, true), (2_000, true), (60_000, false)] {
        let db = Db::create(Arc::new(MemEnv::new()), 16_384);
        let tree = db.tree();
        (0..rows).for_each(|n| _ = db.put(&tree, &n.to_be_bytes(), plain(&[7; 100])));
        let all = check(&tree);
        let reads = db.rt.metrics.get(Metric::PageReads);
        let mut rand = Rand(3);
        let seen = tree.leaf_figures(&mut |n| rand.below(n as u64) as usize).unwrap();
        assert_eq!(db.rt.metrics.get(Metric::PageReads), reads);
        let off = seen.leaves / all.leaf_pages as f64 - 1.0;
        let fill = 100.0 * seen.used_bytes / seen.bytes - all.fill_percent();
        println!("{rows} rows: {off:+.3} of {} leaves, {fill:+.2} % full", all.leaf_pages);
        assert_eq!(exact, all.leaf_pages <= 256);
        let most = if exact { 1e-9 } else { 0.15 };
        assert!(off.abs() <= most && fill.abs() <= most.max(0.5), "{off} {fill}");
    }
}

#[test]
fn an_estimate_descends_once_for_each_bound() {
    let db = Db::create(Arc::new(MemEnv::new()), 4_096);
    let tree = db.tree();
    (0..50_000u64).for_each(|n| _ = db.put(&tree, &n.to_be_bytes(), plain(&[7; 60])));
    let (low, high) = (20_000u64.to_be_bytes(), 20_099u64.to_be_bytes());
    let before = evenkeel_pages::visits();
    assert!(get(&tree, &low).is_some());
    let path = evenkeel_pages::visits() - before;
    assert!(path >= 3, "{path} levels");
    let before = evenkeel_pages::visits();
    let rows = tree.estimate(Bound::Included(&low), Bound::Included(&high)).unwrap();
    assert_eq!(evenkeel_pages::visits() - before, 2 * path);
    assert!((50..=200).contains(&rows), "{rows} rows of 100");
}

/// A writer that changes the root waits for one look at it, not for all of them: each look latches
/// the root, and together they could hold up the writer forever.
#[test]
fn leaf_figures_do_not_hold_up_a_change_of_the_root() {
    let db = Arc::new(Db::create(Arc::new(MemEnv::new()), 4_096));
    let tree = db.tree();
    (0..2_000u64).for_each(|n| _ = db.put(&tree, &n.to_be_bytes(), plain(&[7; 100])));
    let root = tree.root();
    let (done, is_done) = std::sync::mpsc::channel();
    let (of_reader, over) = (db.clone(), Arc::new(AtomicBool::new(false)));
    let is_over = over.clone();
    let looked = Arc::new(AtomicU64::new(0));
    let steps = looked.clone();
    std::thread::spawn(move || {
        let tree = of_reader.trees.open(TREE, root);
        for _ in 0..300 {
            tree.leaf_figures(&mut |n| n / 2).unwrap();
            steps.fetch_add(1, Ordering::SeqCst);
        }
        is_over.store(true, Ordering::SeqCst);
        done.send(()).unwrap();
    });
    let writer = std::thread::spawn(move || {
        while !over.load(Ordering::SeqCst) {
            let mut mtr = db.pages.begin(1).unwrap();
            mtr.write(root).unwrap();
        }
    });
    // Even on a slow machine one look ends within two minutes.
    let mut seen = 0;
    while is_done.recv_timeout(Duration::from_secs(120)).is_err() {
        let now = looked.load(Ordering::SeqCst);
        assert!(now > seen, "a look waits for the writer: {now} of 300 ended");
        seen = now;
    }
    writer.join().unwrap();
}

/// Ascending keys leave a first leaf that is half full, and others that are full.
#[test]
fn row_estimates_are_near_for_ascending_keys() {
    for row_bytes in [0, 16, 120, 900] {
        let db = Db::create(Arc::new(MemEnv::new()), 16_384);
        let tree = db.tree();
        let mut rows = 0u64;
        for until in [1, 30, 150, 300, 500, 1_000, 3_000, 10_000, 40_000] {
            for n in rows..until {
                db.put(&tree, &n.to_be_bytes(), plain(&vec![7; row_bytes]));
            }
            rows = until;
            let before = evenkeel_pages::visits();
            let Size { rows: about, leaves, .. } = tree.estimate_all().unwrap();
            let visited = evenkeel_pages::visits() - before;
            let off = about as f64 / rows as f64 - 1.0;
            println!("{rows} rows of {row_bytes}: {off:+.3}, {visited} pages");
            assert!(off.abs() <= 0.05, "{rows} rows of {row_bytes} bytes: {about}");
            assert!(visited <= 160, "{visited} pages");
            // The figures are exact if there are no more leaves than are examined.
            let there = tree.leaf_figures(&mut |_| 0).unwrap().leaves;
            if there <= 250.0 {
                let off = leaves as f64 - there;
                assert!(off.abs() <= 1.0 + there / 20.0, "{rows} rows: {leaves} of {there} leaves");
            }
        }
    }
}

/// The leaf after the last starts with a guess at the prefix of its keys: the guess is wrong where
/// a byte turns over, when the leaf has no, one or many rows.
#[test]
fn appends_continue_after_a_wrong_guess_of_the_prefix() {
    for (step, row_bytes) in [(1, 250), (1, 0), (60, 900), (255, 300), (4_099, 500)] {
        let db = Db::create(Arc::new(MemEnv::new()), 4_096);
        let tree = db.tree();
        let key = |n: u32| (n * step).to_be_bytes();
        for n in 0..12_000u32 {
            db.put(&tree, &key(n), plain(&vec![7; row_bytes * n as usize % 997]));
        }
        assert_eq!(check(&tree).rows, 12_000, "step {step}");
        let mut low = 0..12_000;
        assert!(low.all(|n| get(&tree, &key(n)).is_some()), "step {step}");
    }
}

#[test]
fn a_cold_random_update_reads_one_leaf() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new(dir.path()));
    let db = Db::create(env.clone(), 4_096);
    let tree = db.tree();
    const ROWS: u64 = 200_000;
    const UPDATES: u64 = 3_000;
    (0..ROWS).for_each(|n| _ = db.put(&tree, &n.to_be_bytes(), plain(&[7; 60])));
    let root = tree.root();
    let leaves = check(&tree).leaf_pages;
    drop(tree);
    db.pages.flush_all().unwrap();
    db.stop();
    // Inner nodes fit the pool well, leaves do not.
    let db = Db::open(env, 1_024);
    let tree = db.trees.open(TREE, root);
    (0..ROWS).step_by(2_000).for_each(|n| _ = get(&tree, &n.to_be_bytes()));
    let mut rand = Rand(5);
    let mut reads = [0u64; 3];
    for i in 0..UPDATES {
        if i % 100 == 0 {
            // A cleaner that keeps up: among dirty leaves the clean inner nodes would be victims.
            db.pages.flush_all().unwrap();
        }
        let before = db.rt.metrics.get(Metric::PageReads);
        db.put(&tree, &rand.below(ROWS).to_be_bytes(), plain(&[8; 60]));
        let read = db.rt.metrics.get(Metric::PageReads) - before;
        reads[read.min(2) as usize] += 1;
    }
    // Some leaves are found in the pool; an inner node may leave it now and then.
    assert!(leaves > 3_000 && reads[1] > UPDATES / 2, "{reads:?} of {leaves} leaves");
    assert!(reads[2] * 50 <= UPDATES, "{reads:?}");
}

/// A tree of rows `0..rows`, with only the pages above the leaves in memory.
fn cold(dir: &std::path::Path, rows: u64) -> (Db, Tree) {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new(dir));
    let db = Db::create(env.clone(), 4_096);
    let tree = db.tree();
    (0..rows).for_each(|n| _ = db.put(&tree, &n.to_be_bytes(), plain(&[7; 200])));
    let root = tree.root();
    drop(tree);
    db.pages.flush_all().unwrap();
    db.stop();
    let db = Db::open(env, 128);
    let tree = db.trees.open(TREE, root);
    (0..rows).step_by(997).for_each(|n| _ = tree.leaf_no(&n.to_be_bytes()).unwrap());
    (db, tree)
}

/// File reads, pages read and rows found from `low` to below `high`.
fn range(db: &Db, tree: &Tree, direction: Direction, low: u64, high: u64) -> (u64, u64, u64) {
    let figures = || [Metric::FileReads, Metric::PageReads].map(|m| db.rt.metrics.get(m));
    let before = figures();
    let (low, high) = (low.to_be_bytes(), high.to_be_bytes());
    let (begin, end) = match direction {
        Direction::Forward => (Bound::Included(&low[..]), Bound::Excluded(&high[..])),
        Direction::Backward => (Bound::Excluded(&high[..]), Bound::Included(&low[..])),
    };
    let mut cursor = tree.cursor();
    let (Bound::Included(key) | Bound::Excluded(key)) = end else { unreachable!() };
    cursor.set_end(Some(key));
    cursor.seek(begin, direction).unwrap();
    let mut rows = 0;
    while let Some(key) = cursor.next().unwrap().map(|(key, _)| key.to_vec()) {
        if cursor.is_past(&key, end) {
            break;
        }
        rows += 1;
    }
    let after = figures();
    (after[0] - before[0], after[1] - before[1], rows)
}

#[test]
fn leaves_of_a_short_range_are_read_together() {
    let dir = tempfile::tempdir().unwrap();
    let (db, tree) = cold(dir.path(), 20_000);
    // Six or seven leaves of 18 rows: one read of them all, and two if they have two parents;
    // sometimes a node above the leaves has been evicted from the small pool.
    let (mut all, mut most) = (0, 0);
    for (i, low) in (1_000..19_000u64).step_by(500).enumerate() {
        let direction = [Direction::Forward, Direction::Backward][i % 2];
        let (reads, pages, rows) = range(&db, &tree, direction, low, low + 100);
        assert_eq!(rows, 100);
        assert!((6..=9).contains(&pages), "{pages} pages of rows from {low}");
        (all, most) = (all + reads, most.max(reads));
    }
    assert!(all <= 36 * 2 && most <= 5, "{all} reads for 36 ranges, {most} at most");
    // Pages in the pool are not read again.
    let again = range(&db, &tree, Direction::Forward, 18_500, 18_600);
    assert_eq!(again, (0, 0, 100));
}

#[test]
fn an_estimate_of_a_short_range_reads_its_leaves_together() {
    let dir = tempfile::tempdir().unwrap();
    let (db, tree) = cold(dir.path(), 20_000);
    let mut reads = 0;
    for low in (1_000..19_000u64).step_by(500) {
        let before = db.rt.metrics.get(Metric::FileReads);
        let (low_key, high_key) = (low.to_be_bytes(), (low + 99).to_be_bytes());
        let rows = tree.estimate(Bound::Included(&low_key), Bound::Included(&high_key)).unwrap();
        assert!((80..=120).contains(&rows), "{rows} rows of 100");
        reads += db.rt.metrics.get(Metric::FileReads) - before;
        // Where the range continues below another node above leaves, the scan reads its leaves
        // together; one at a time they would take seven reads each.
        let (left, _, rows) = range(&db, &tree, Direction::Forward, low, low + 100);
        assert_eq!(rows, 100);
        reads += left;
    }
    assert!(reads <= 36 * 2, "{reads} reads for 36 estimates and scans");
    // A long range reads no more pages than the paths to its two ends.
    let before = db.rt.metrics.get(Metric::PageReads);
    let (low_key, high_key) = (1_250u64.to_be_bytes(), 18_250u64.to_be_bytes());
    tree.estimate(Bound::Included(&low_key), Bound::Included(&high_key)).unwrap();
    let pages = db.rt.metrics.get(Metric::PageReads) - before;
    assert!(pages <= 5, "{pages} pages of two paths");
}

/// The read-ahead of a scan ends where the scan ends.
#[test]
fn read_ahead_ends_with_its_range() {
    let dir = tempfile::tempdir().unwrap();
    let (db, tree) = cold(dir.path(), 20_000);
    for (low, high) in [(2_000u64, 2_400u64), (6_000, 6_250), (9_000, 9_030)] {
        db.pages.take_asked_bytes();
        let rows = range(&db, &tree, Direction::Forward, low, high).2;
        assert_eq!(rows, high - low);
        let asked = db.pages.take_asked_bytes() / db.pages.page_size() as u64;
        // Some pages are requested ahead and then read by the scan itself, which counts twice.
        let leaves = (high - low) / 16 + 2;
        assert!(asked <= 2 * leaves, "{asked} pages for {rows} rows");
    }
}

/// Processor time of this thread: other load does not count.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// Times, for `cargo test --release -- --ignored --nocapture times`.
#[test]
#[ignore = "prints times"]
fn times() {
    let dir =
        tempfile::tempdir_in(std::env::var("TREE_BENCH_DIR").unwrap_or("/tmp".into())).unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new(dir.path()));
    let db = Db::create_sized(env, 60_000, 1 << 30);
    let tree = db.tree();
    const ROWS: u64 = 1_000_000;
    let start = cpu_ns();
    for n in 0..ROWS {
        db.put(&tree, &n.to_be_bytes(), Put { flags: 0, txn: 5, row: &[7; 60] });
    }
    println!("append insert: {} ns", (cpu_ns() - start) / ROWS);
    let mut rand = Rand(1);
    let mut found = 0u64;
    let start = cpu_ns();
    for _ in 0..ROWS {
        let key = rand.below(ROWS).to_be_bytes();
        tree.get(&key, &mut |row| found += u64::from(row.is_some())).unwrap();
    }
    println!("cached get:    {} ns", (cpu_ns() - start) / ROWS);
    assert_eq!(found, ROWS);
    let start = cpu_ns();
    for _ in 0..ROWS {
        db.put(&tree, &rand.below(ROWS).to_be_bytes(), Put { flags: 0, txn: 5, row: &[8; 60] });
    }
    println!("cached update: {} ns", (cpu_ns() - start) / ROWS);
    let start = cpu_ns();
    let mut cursor = tree.cursor();
    cursor.seek(Bound::Unbounded, Direction::Forward).unwrap();
    let mut rows = 0;
    while cursor.next().unwrap().is_some() {
        rows += 1;
    }
    println!("scan:          {} ns per row", (cpu_ns() - start) / rows);
    let report = check(&tree);
    println!("fill {:.1}%, {} levels", report.fill_percent(), report.levels);
}

/// A writer takes the frame for its leaf after the descent: otherwise as many writers as there are
/// frames would each hold one and wait for another forever.
#[test]
fn a_write_needs_one_frame_at_a_time() {
    const FRAMES: usize = 64;
    let db = Arc::new(Db::create(Arc::new(MemEnv::new()), FRAMES));
    let tree = db.tree();
    (0..8_000u64).for_each(|n| _ = db.put(&tree, &n.to_be_bytes(), plain(&[7; 100])));
    assert!(check(&tree).leaf_pages > 3 * FRAMES as u64);
    // All other frames are in use, as by writers that have not read their leaves yet.
    let held: Vec<_> = (1..FRAMES).map(|_| db.pages.begin(1).unwrap()).collect();
    let (done, is_done) = std::sync::mpsc::channel();
    let (writer, root) = (db.clone(), tree.root());
    std::thread::spawn(move || {
        let tree = writer.trees.open(TREE, root);
        for n in [1_000u64, 4_000, 7_000] {
            writer.put(&tree, &n.to_be_bytes(), plain(&[8; 100]));
        }
        done.send(()).unwrap();
    });
    let result = is_done.recv_timeout(Duration::from_secs(60));
    drop(held);
    assert!(result.is_ok(), "the writer waits for a second frame");
}
