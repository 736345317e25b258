//! Rows that a build may skip: the build reads all rows that it needs, despite concurrent splits,
//! reorganizations and merges, and few others.

use super::*;
use evenkeel_io::MemEnv;
use std::collections::{BTreeMap, BTreeSet};

const FROM: u64 = 100;
const ROW: [u8; 60] = [7; 60];

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// The keys of rows that the build does not know to be younger than itself, and the number of rows
/// it met.
fn wanted(tree: &Tree) -> (BTreeSet<u64>, u64) {
    let mut met = 0;
    let mut cursor = tree.cursor();
    cursor.set_use_once(true);
    cursor.set_skip_concurrent_inserts();
    cursor.seek(Bound::Unbounded, Direction::Forward).unwrap();
    let mut found = BTreeSet::new();
    while let Some((key, cell)) = cursor.next().unwrap() {
        met += 1;
        if cell.flags & cell_flags::FIRST == 0 || cell.stamp.txn.0 < FROM {
            found.insert(u64::from_be_bytes(key.try_into().unwrap()));
        }
    }
    (found, met)
}

fn insert(db: &Db, tree: &Tree, n: u64, txn: u64) {
    db.put(tree, &key(n), Put { flags: cell_flags::FIRST, txn, row: &ROW });
}

/// Rows from before the build, then many rows behind each of some of them.
#[test]
fn a_build_skips_rows_appended_in_many_places() {
    let db = Db::create(Arc::new(MemEnv::new()), 4_096);
    let tree = db.tree();
    let place = |n: u64| (n / 200) << 32 | (n % 200);
    (0..2_000).for_each(|n| insert(&db, &tree, place(n), 9));
    let (all, _) = wanted(&tree);
    assert_eq!(all.len(), 2_000);
    let watch = tree.watch_concurrent_inserts(TxnId(FROM), 1 << 20);
    // Round and round, like one writer a place; all are settled, and full leaves are reorganized.
    for n in 200..3_000u64 {
        (0..10).for_each(|writer| insert(&db, &tree, writer << 32 | n, FROM + n));
    }
    let rows = check(&tree).rows;
    let (found, met) = wanted(&tree);
    println!("met {met} of {rows} rows");
    assert_eq!(found, all, "what was there, and nothing else");
    assert!(rows == 30_000 && met < 4_000, "met {met} of {rows} rows");
    // The watch knows at most the agreed number of leaves, and none behind the build.
    drop(watch);
    assert_eq!(wanted(&tree).1, rows);
    let watch = tree.watch_concurrent_inserts(TxnId(FROM), 5);
    (3_000..6_000).for_each(|n| insert(&db, &tree, n, FROM));
    assert_eq!(tree.concurrent_leaves_known(), 5);
    drop(watch);
    assert_eq!(tree.concurrent_leaves_known(), 0);
    check(&tree);
}

/// Against a model: inserts, changes and deletes during a build, with leaves reclaimed meanwhile.
#[test]
fn a_build_reads_every_row_older_than_itself() {
    let (mut passed, mut merges) = (0, 0);
    for seed in 0..8 {
        let db = Db::create(Arc::new(MemEnv::new()), 4_096);
        let tree = db.tree();
        let mut rand = Rand(seed);
        // Keys that have a cell: has it been there since before the build began?
        let mut model: BTreeMap<u64, bool> = BTreeMap::new();
        for _ in 0..rand.below(2_000) {
            let n = rand.below(8_000);
            if model.insert(n, true).is_none() {
                insert(&db, &tree, n, 9);
            }
        }
        let _watch = tree.watch_concurrent_inserts(TxnId(FROM), 1 << 20);
        for step in 0..40 {
            // Most operations of a step concern a part of the keys.
            let (from, len) = (rand.below(8_000), 1 + rand.below(2_000));
            let shrinks = rand.below(5) < 2;
            for _ in 0..400 {
                let (n, txn) = (from + rand.below(len), FROM + step);
                let is_there = get(&tree, &key(n)).is_some();
                let deletes = is_there && (shrinks || rand.below(8) == 0);
                if !shrinks || is_there {
                    let deleted = if deletes { cell_flags::DELETED } else { 0 };
                    let flags = cell_flags::FIRST | deleted;
                    db.put(&tree, &key(n), Put { flags, txn, row: &ROW });
                    // A deleted cell may have been removed just before.
                    let is_first = get(&tree, &key(n)).unwrap().0 & cell_flags::FIRST != 0;
                    if is_first {
                        model.insert(n, false);
                    }
                }
            }
            if rand.below(2) == 0 {
                db.reclaim();
            }
            let all = scan(&tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            let there: BTreeSet<Vec<u8>> = all.into_iter().map(|(key, _)| key).collect();
            model.retain(|n, _| there.contains(&key(*n)[..]));
            let (found, _) = wanted(&tree);
            for (n, was_there) in &model {
                assert!(!was_there || found.contains(n), "seed {seed}, step {step}: key {n}");
            }
            passed += model.keys().filter(|n| !found.contains(n)).count();
        }
        merges += db.rt.metrics.get(Metric::LeafMerges);
        check(&tree);
    }
    println!("{passed} rows passed, {merges} merges");
    assert!(passed > 10_000 && merges > 100);
}
