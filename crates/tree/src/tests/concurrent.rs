//! Several threads on one tree: appenders, random writers, scanners, reclaim.

use super::*;
use evenkeel_io::RealEnv;

fn key(group: u8, n: u64) -> Vec<u8> {
    let mut key = vec![group];
    key.extend_from_slice(&n.to_be_bytes());
    key
}

const GROUPS: u8 = 3;
const ROWS: u64 = 12_000;

/// Every thread owns the keys of its group and keeps its own model; scanners check the order of the
/// rows that they read. At the end the tree holds the union.
#[test]
fn writers_and_scanners_agree() {
    let dir = tempfile::tempdir().unwrap();
    let db = Arc::new(Db::create(Arc::new(RealEnv::new(dir.path())), 300));
    let tree = db.tree();
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for group in 0..GROUPS {
        let (db, tree) = (db.clone(), tree.clone());
        writers.push(std::thread::spawn(move || write(&db, &tree, group)));
    }
    let mut readers = Vec::new();
    for dir in [Direction::Forward, Direction::Backward] {
        let (tree, stop) = (tree.clone(), stop.clone());
        readers.push(std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                read(&tree, dir);
            }
        }));
    }
    let (reclaimer, stop2) = (db.clone(), stop.clone());
    readers.push(std::thread::spawn(move || {
        while !stop2.load(Ordering::SeqCst) {
            reclaimer.reclaim();
            std::thread::yield_now();
        }
    }));
    let live: u64 = writers.into_iter().map(|w| w.join().unwrap()).sum();
    stop.store(true, Ordering::SeqCst);
    readers.into_iter().for_each(|r| r.join().unwrap());
    db.reclaim();
    let report = check(&tree);
    assert_eq!(report.rows - report.rows_deleted, live);
    assert!(!db.rt.health.is_failed());
}

fn write(db: &Db, tree: &Tree, group: u8) -> u64 {
    let mut rand = Rand(u64::from(group) + 100);
    let mut live = std::collections::BTreeMap::new();
    for i in 0..ROWS {
        // Group 2 is at the right edge: an appender. The others write at random.
        let n = if group + 1 == GROUPS { i } else { rand.below(ROWS) };
        let row = vec![group; 20 + rand.below(200) as usize];
        db.put(tree, &key(group, n), plain(&row));
        live.insert(n, row);
        if i % 3 == 0 {
            let n = rand.below(i + 1);
            if live.remove(&n).is_some() {
                let put = Put { flags: cell_flags::DELETED, txn: 5, row: b"" };
                db.put(tree, &key(group, n), put);
            }
        }
        if i % 64 == 0 {
            for (n, row) in live.iter().take(1) {
                assert_eq!(get(tree, &key(group, *n)), Some((0, row.clone())));
            }
        }
    }
    for (n, row) in &live {
        assert_eq!(get(tree, &key(group, *n)), Some((0, row.clone())));
    }
    live.len() as u64
}

fn read(tree: &Tree, dir: Direction) {
    let mut cursor = tree.cursor();
    cursor.set_use_once(true);
    cursor.seek(Bound::Unbounded, dir).unwrap();
    let mut last: Option<Vec<u8>> = None;
    while let Some((key, _)) = cursor.next().unwrap() {
        if let Some(last) = &last {
            assert_eq!(last.as_slice() < key, dir == Direction::Forward, "keys out of order");
        }
        last = Some(key.to_vec());
    }
}
