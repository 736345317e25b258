//! The tree against a map: random changes, scans both ways, reopening, over a pool that is much
//! smaller than the tree.

use super::*;
use evenkeel_base::Code;
use evenkeel_format::limits;
use evenkeel_io::MemEnv;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Put(u64, usize),
    PutRun(u64, usize, usize),
    Remove(u64),
    RemoveRun(u64, usize),
    Scan(u64, u64, bool),
    Estimate(u64, u64),
    Reclaim,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..4_000u64;
    prop_oneof![
        8 => (key(), 0..900usize).prop_map(|(k, n)| Step::Put(k, n)),
        4 => (key(), 1..200usize, 0..200usize).prop_map(|(k, n, len)| Step::PutRun(k, n, len)),
        4 => key().prop_map(Step::Remove),
        2 => (key(), 1..600usize).prop_map(|(k, n)| Step::RemoveRun(k, n)),
        3 => (key(), key(), any::<bool>()).prop_map(|(a, b, dir)| Step::Scan(a, b, dir)),
        1 => (key(), key()).prop_map(|(a, b)| Step::Estimate(a, b)),
        2 => Just(Step::Reclaim),
        1 => Just(Step::Reopen),
    ]
}

/// Keys of many lengths that share prefixes; order is not the order of the numbers.
fn key(n: u64) -> Vec<u8> {
    let tail = (n * 7919 % 130) as usize;
    let mut key = format!("{:04}", n).into_bytes();
    key.extend(std::iter::repeat_n(
        b'a' + (n % 3) as u8,
        tail * usize::from(n.is_multiple_of(5)) * 6,
    ));
    key
}

fn bounds(a: u64, b: u64) -> (Vec<u8>, Vec<u8>) {
    let (a, b) = (key(a), key(b));
    if a <= b { (a, b) } else { (b, a) }
}

fn check_scan(tree: &Tree, model: &Model, a: u64, b: u64, forward: bool) {
    let (low, high) = bounds(a, b);
    let range = (Bound::Excluded(low.clone()), Bound::Included(high.clone()));
    let mut expected: Vec<_> = if low == high {
        Vec::new()
    } else {
        model.range(range).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    let found = if forward {
        scan(tree, Bound::Excluded(&low), Bound::Included(&high), Direction::Forward)
    } else {
        expected.reverse();
        scan(tree, Bound::Included(&high), Bound::Excluded(&low), Direction::Backward)
    };
    assert_eq!(found, expected);
}

/// Rows between two keys as `pass_leaf` shows them, where the reader refuses one row in `every`.
fn passed(tree: &Tree, low: &[u8], high: Option<&[u8]>, every: usize) -> Vec<Vec<u8>> {
    let mut cursor = tree.cursor();
    cursor.set_end(high);
    cursor.seek(Bound::Excluded(low), Direction::Forward).unwrap();
    let (mut rows, mut refused) = (Vec::new(), usize::MAX);
    loop {
        let passed = cursor.pass_leaf(|row| {
            if rows.len() % every == every - 1 && refused != rows.len() {
                refused = rows.len();
                return false;
            }
            rows.push(row.row.to_vec());
            true
        });
        match passed.unwrap() {
            Passed::Leaf => {}
            // Either way on from there.
            Passed::Refused if rows.len() % 2 == 0 => {}
            Passed::Refused => rows.push(cursor.next().unwrap().unwrap().1.row.to_vec()),
            Passed::End => break,
        }
    }
    assert_eq!(cursor.pass_leaf(|_| panic!("a row behind the end")).unwrap(), Passed::End);
    rows
}

fn check_passed(tree: &Tree, model: &Model, a: u64, b: u64) {
    let (low, high) = bounds(a, b);
    let from = Bound::Excluded(low.clone());
    let every = 2 + (a + b) as usize % 90;
    let all: Vec<_> = model.range((from.clone(), Bound::Unbounded)).map(|(_, v)| v).collect();
    assert!(passed(tree, &low, None, every).iter().eq(all), "all, refused every {every}");
    if low < high {
        let some = model.range((from, Bound::Excluded(high.clone()))).map(|(_, v)| v);
        assert!(passed(tree, &low, Some(&high), every).iter().eq(some), "refused every {every}");
    }
}

fn check_all(tree: &Tree, model: &Model) {
    let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut found = scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Backward);
    found.reverse();
    assert_eq!(found, expected);
    assert_eq!(scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward), expected);
    assert_eq!(check(tree).rows, model.len() as u64);
}

fn run(steps: Vec<Step>) {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let mut db = Db::create(env.clone(), 64);
    let mut tree = db.tree();
    let root = tree.root();
    let mut model = Model::new();
    for step in steps {
        match step {
            Step::Put(k, len) => put(&db, &tree, &mut model, key(k), len),
            Step::PutRun(k, n, len) => {
                (0..n as u64).for_each(|i| put(&db, &tree, &mut model, key(k + i), len));
            }
            Step::Remove(k) => remove(&db, &tree, &mut model, &key(k)),
            Step::RemoveRun(k, n) => {
                (0..n as u64).for_each(|i| remove(&db, &tree, &mut model, &key(k + i)));
            }
            Step::Scan(a, b, forward) => {
                check_scan(&tree, &model, a, b, forward);
                check_passed(&tree, &model, a, b);
            }
            Step::Estimate(a, b) => {
                let (low, high) = bounds(a, b);
                let rows = model.range(low.clone()..=high.clone()).count();
                let about = tree.estimate(Bound::Included(&low), Bound::Included(&high)).unwrap();
                assert!(about > 0 || rows == 0, "estimated 0 of {rows} rows");
            }
            Step::Reclaim => db.reclaim(),
            Step::Reopen => {
                db.log.wait_durable(Lsn(db.log.end().0 - 1)).unwrap();
                drop(tree);
                db.stop();
                db = Db::open(env.clone(), 64);
                tree = db.trees.open(TREE, root);
                check(&tree);
            }
        }
        for (k, row) in model.iter().take(3) {
            assert_eq!(get(&tree, k), Some((0, row.clone())));
        }
    }
    check_all(&tree, &model);
    assert!(!db.rt.health.is_failed());
}

fn put(db: &Db, tree: &Tree, model: &mut Model, key: Vec<u8>, len: usize) {
    let row = vec![len as u8; len];
    db.put(tree, &key, plain(&row));
    model.insert(key, row);
}

fn remove(db: &Db, tree: &Tree, model: &mut Model, key: &[u8]) {
    if model.remove(key).is_some() {
        db.remove(tree, key);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]
    #[test]
    fn agrees_with_a_map(steps in proptest::collection::vec(step(), 1..120)) {
        run(steps);
    }
}

/// A key of random length and beginning, up to the longest.
fn wide_key(n: u64, key_max: usize) -> Vec<u8> {
    let len = match n % 4 {
        0 => key_max,
        1 => key_max - n as usize % 9,
        2 => 12 + (n * 7919 % (key_max as u64 - 12)) as usize,
        _ => 12,
    };
    let mut key = vec![b'k'; len];
    let at = if n.is_multiple_of(3) { 0 } else { len - 8 };
    key[at..at + 8].copy_from_slice(&(n % 500).to_be_bytes());
    key[at / 2] = (n % 251) as u8;
    key
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 3 / 8))]
    /// Rows at and slightly below the size limit of their key, among short ones: each is stored
    /// wherever its leaf must be split, and can be grown and shrunk in place and removed.
    #[test]
    fn rows_near_the_size_limit_are_stored(
        steps in proptest::collection::vec((0..2_000u64, 0..8usize, 0..6u8), 1..250),
    ) {
        let db = Db::create(Arc::new(MemEnv::new()), 128);
        let tree = db.tree();
        let mut model = Model::new();
        for (n, short, what) in steps {
            let key = wide_key(n, tree.key_bytes_max());
            let longest = tree.row_bytes_max(key.len());
            match what {
                0 => remove(&db, &tree, &mut model, &key),
                1 => put(&db, &tree, &mut model, key, 8 * short),
                2 => put(&db, &tree, &mut model, key, longest / 2 + short),
                _ => put(&db, &tree, &mut model, key, longest - short),
            }
            if n.is_multiple_of(50) {
                db.reclaim();
            }
        }
        check_all(&tree, &model);
        prop_assert!(!db.rt.health.is_failed());
    }
}

#[test]
fn long_keys_and_rows_at_the_limit() {
    let db = Db::create(Arc::new(MemEnv::new()), 128);
    let tree = db.tree();
    let key_max = tree.key_bytes_max();
    let row_max = tree.row_bytes_max(key_max);
    let mut rand = Rand(3);
    let mut model = Model::new();
    for _ in 0..600 {
        let mut key = vec![b'k'; key_max];
        let n = rand.below(100_000);
        let at = if rand.below(2) == 0 { key_max - 8 } else { 0 };
        key[at..at + 8].copy_from_slice(&n.to_be_bytes());
        put(&db, &tree, &mut model, key, row_max);
    }
    check_all(&tree, &model);
    let long = vec![0; PAGE / limits::CLUSTERED_KEY_PAGE_SHARE + 1];
    assert_eq!(long.len(), key_max + 1);
    assert_eq!(db.write(&tree, &long, Some(plain(b""))).unwrap_err().code().name(), "KeyTooLong");
    let long = vec![0; tree.row_bytes_max(1) + 1];
    assert_eq!(db.write(&tree, b"k", Some(plain(&long))).unwrap_err().code().name(), "RowTooLong");
}

/// A bulk load writes its pages at the end; its waiter may cancel that.
#[test]
fn the_end_of_a_bulk_load_asks_whether_to_go_on() {
    use evenkeel_base::{Code, Error};
    let db = Db::create(Arc::new(MemEnv::new()), 4096);
    let load = |asked_most: u32| {
        let tree = db.trees.create(TreeId(100 + asked_most)).unwrap();
        let mut load = tree.bulk_load().unwrap();
        for n in 0..20_000u64 {
            let row = LeafRow { flags: 0, stamp: Stamp::default(), row: &[7; 300] };
            load.push(&n.to_be_bytes(), row).unwrap();
        }
        let asked = std::cell::Cell::new(0);
        let done = load.finish(&|| {
            asked.set(asked.get() + 1);
            let over = Error::new(Code::BuildCancelled);
            if asked.get() > asked_most { Err(over) } else { Ok(()) }
        });
        (done.map_err(|error| error.code()), asked.get(), tree)
    };
    let (done, asked, _) = load(u32::MAX - 100);
    assert!(done == Ok(20_000) && asked >= 3, "{done:?}, {asked} questions");
    let (done, asked, tree) = load(1);
    assert_eq!((done, asked), (Err(Code::BuildCancelled), 2));
    check_all(&tree, &Model::new());
}

#[test]
fn bulk_load_makes_the_same_tree() {
    let db = Db::create(Arc::new(MemEnv::new()), 256);
    for rows in [0u64, 1, 50, 20_000] {
        let tree = db.trees.create(TreeId(100 + rows as u32)).unwrap();
        let mut load = tree.bulk_load().unwrap();
        let mut model = Model::new();
        for n in 0..rows {
            let (key, row) = (n.to_be_bytes(), n.to_le_bytes());
            load.push(&key, LeafRow { flags: 0, stamp: Stamp::default(), row: &row }).unwrap();
            model.insert(key.to_vec(), row.to_vec());
        }
        assert_eq!(load.finish(&|| Ok(())).unwrap(), rows);
        check_all(&tree, &model);
        if rows > 1_000 {
            assert!(check(&tree).fill_percent() > 90.0);
            let about = tree.estimate(
                Bound::Included(&1_000u64.to_be_bytes()),
                Bound::Excluded(&3_000u64.to_be_bytes()),
            );
            assert!((1_500..2_500).contains(&about.unwrap()));
            assert!(tree.bulk_load().is_err());
        }
        put(&db, &tree, &mut model, b"z".to_vec(), 9);
        check_all(&tree, &model);
    }
}

#[test]
fn overflow_values_stream_in_and_out() {
    let db = Db::create(Arc::new(MemEnv::new()), 64);
    let tree = db.tree();
    let owner = Stamp { txn: TxnId(5), undo_no: UndoNo(2) };
    let mut values = Vec::new();
    for len in [0usize, 1, 4023, 4024, 4025, 100_000, 1 << 20] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
        let mut writer = OverflowWriter::new(&tree, owner);
        bytes.chunks(777).for_each(|part| writer.write(part).unwrap());
        values.push((writer.finish().unwrap(), bytes));
    }
    for (value, bytes) in &values {
        let mut out = Vec::new();
        let mut reader = OverflowReader::new(&tree, *value);
        let mut some = [0; 100];
        let n = reader.read(&mut some).unwrap();
        out.extend_from_slice(&some[..n]);
        reader.read_to_end(&mut out).unwrap();
        assert!(out == *bytes, "a value of {} bytes", bytes.len());
    }
    let (freed, _) = values[5];
    overflow::free(&tree, &freed).unwrap();
    overflow::free(&tree, &freed).unwrap();
    assert!(OverflowReader::new(&tree, freed).read(&mut [0; 9]).is_err());
    let mut writer = OverflowWriter::new(&tree, owner);
    writer.write(&[1; 9_000]).unwrap();
    writer.abandon().unwrap();
}

#[test]
fn a_value_ends_at_the_limit() {
    let limit = u64::from(limits::VALUE_BYTES_MAX);
    overflow::check_len(limit).unwrap();
    let beyond = overflow::check_len(limit + 1).unwrap_err();
    assert_eq!(beyond.code(), Code::ValueTooLong);
    assert_eq!(beyond.context("bytes"), Some("4294967296"), "limits::VALUE_BYTES_MAX + 1");
}
