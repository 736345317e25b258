//! "Dead since" in inner nodes: visited pages are counted, and a model of versions gives the rows
//! that a reader of each snapshot must see, over trees that long keys make tall.

use super::*;
use evenkeel_base::metrics::Metric;
use evenkeel_format::node::Node;
use evenkeel_io::{MemEnv, Woken};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

const DELETED: u8 = cell_flags::DELETED;

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Pages that a reader at `at` visits until it finds a live row, from either end.
fn visits_to_first(tree: &Tree, at: Lsn, direction: Direction) -> (Option<u64>, u64) {
    let before = evenkeel_pages::visits();
    let mut cursor = tree.cursor();
    cursor.set_snapshot(Some(at));
    cursor.seek(Bound::Unbounded, direction).unwrap();
    let mut first = None;
    while let Some((key, row)) = cursor.next().unwrap() {
        if row.flags & DELETED == 0 {
            first = Some(u64::from_be_bytes(key.try_into().unwrap()));
            break;
        }
    }
    (first, evenkeel_pages::visits() - before)
}

/// Rows that a reader at `at` gets, deleted ones included.
fn rows_for(tree: &Tree, at: Lsn, direction: Direction) -> u64 {
    let mut cursor = tree.cursor();
    cursor.set_snapshot(Some(at));
    cursor.seek(Bound::Unbounded, direction).unwrap();
    let mut rows = 0;
    while cursor.next().unwrap().is_some() {
        rows += 1;
    }
    rows
}

fn load_rows(db: &Db, rows: u64) -> Tree {
    let tree = db.tree();
    let mut load = tree.bulk_load().unwrap();
    for n in 0..rows {
        let row = LeafRow { flags: 0, stamp: Stamp::default(), row: &[7; 60] };
        load.push(&key(n), row).unwrap();
    }
    assert_eq!(load.finish(&|| Ok(())).unwrap(), rows);
    tree
}

/// Deletes `rows` rows from one end while a snapshot at 50 exists; returns the largest number of
/// pages that a younger reader visited to find the first live row.
fn delete_beside_a_snapshot(db: &Db, tree: &Tree, rows: u64, direction: Direction) -> u64 {
    const BATCH: u64 = 2_000;
    db.commits.horizon.store(50, Ordering::SeqCst);
    let mut most = 0;
    for batch in 0..(rows - 1000) / BATCH {
        let (txn, cts) = (10 + batch, Lsn(100 + batch));
        db.commits.states.lock().insert(TxnId(txn), TxnState::Committed(cts));
        for n in batch * BATCH..(batch + 1) * BATCH {
            let n = if direction == Direction::Forward { n } else { rows - 1 - n };
            db.put(tree, &key(n), Put { flags: DELETED, txn, row: &[7; 60] });
        }
        db.reclaim();
        let (first, visits) = visits_to_first(tree, cts, direction);
        let gone = (batch + 1) * BATCH;
        let expected = if direction == Direction::Forward { gone } else { rows - 1 - gone };
        assert_eq!(first, Some(expected));
        most = visits.max(most);
    }
    most
}

/// Any number of deletes, from either end; the old snapshot reads every row.
#[test]
fn a_search_visits_few_pages_of_deletes_kept_by_an_old_snapshot() {
    for direction in [Direction::Forward, Direction::Backward] {
        let most = [20_000u64, 80_000, 320_000].map(|rows| {
            let db = Db::create(Arc::new(MemEnv::new()), 16_384);
            let tree = load_rows(&db, rows);
            let most = delete_beside_a_snapshot(&db, &tree, rows, direction);
            check(&tree);
            assert_eq!(rows_for(&tree, Lsn(99), direction), rows);
            assert!(rows_for(&tree, Lsn(1_000), direction) < 4_000);
            most
        });
        println!("{direction:?}: {most:?} pages");
        assert!(most.iter().all(|most| *most <= 16), "{most:?} pages visited");
    }
}

/// Inner nodes hold a handful of these: neighbours differ at the beginning or at the end.
fn long_key(n: u64) -> Vec<u8> {
    let mut key = format!("{:05}", n / 5).into_bytes();
    key.resize(700, b'.');
    key.push(b'0' + (n % 5) as u8);
    key
}

/// The first row that a young reader finds, which is live, and the pages that it visits.
fn long_to_first(tree: &Tree, at: Lsn) -> (Option<Vec<u8>>, u64) {
    let before = evenkeel_pages::visits();
    let mut cursor = tree.cursor();
    cursor.set_snapshot(Some(at));
    cursor.seek(Bound::Unbounded, Direction::Forward).unwrap();
    let mut found = None;
    while let Some((key, row)) = cursor.next().unwrap() {
        if row.flags & DELETED == 0 {
            found = Some(key.to_vec());
            break;
        }
    }
    (found, evenkeel_pages::visits() - before)
}

#[derive(Clone, Debug)]
enum Change {
    /// Inserts rows, or gives them another version.
    Put,
    Delete,
    /// A transaction deletes the rows, the background examines them, and the transaction rolls
    /// back.
    DeleteAndRevert,
    /// The same with rows that it inserts.
    PutAndRevert,
}

#[derive(Clone, Debug)]
enum Step {
    /// Changes a range of rows, in one transaction or in one each.
    Rows(Change, u64, u64),
    Reclaim,
    /// The horizon advances by a fraction of the commits behind which it lags.
    Horizon(u64),
    /// A read at a snapshot, given as a fraction of the way from the horizon to now.
    Read(u64, Direction),
    Reopen,
}

const KEYS: u64 = 240;

fn step() -> impl Strategy<Value = Step> {
    let change = prop_oneof![
        3 => Just(Change::Put),
        8 => Just(Change::Delete),
        1 => Just(Change::DeleteAndRevert),
        1 => Just(Change::PutAndRevert),
    ];
    let direction = prop_oneof![Just(Direction::Forward), Just(Direction::Backward)];
    prop_oneof![
        8 => (change, 0..KEYS, 1..60u64).prop_map(|(c, from, n)| Step::Rows(c, from, n)),
        5 => Just(Step::Reclaim),
        1 => (0..=4u64).prop_map(Step::Horizon),
        4 => (0..=4u64, direction).prop_map(|(at, dir)| Step::Read(at, dir)),
        1 => Just(Step::Reopen),
    ]
}

/// Versions of a row: commit timestamp, transaction, and whether it exists.
type History = Vec<(u64, u64, bool)>;

/// True if a reader at `at` that seeks the row from below or above sees it.
fn sees(tree: &Tree, n: u64, at: Lsn) -> bool {
    let key = long_key(n);
    let mut cursor = tree.cursor();
    cursor.set_snapshot(Some(at));
    let found = [Direction::Forward, Direction::Backward].map(|direction| {
        cursor.seek(Bound::Included(&key), direction).unwrap();
        let found = cursor.next().unwrap();
        found.is_some_and(|(found, row)| found == key && row.flags & DELETED == 0)
    });
    assert_eq!(found[0], found[1], "row {n}");
    found[0]
}

struct Versions {
    env: Arc<dyn Env>,
    db: Db,
    tree: Tree,
    rows: BTreeMap<u64, History>,
    now: u64,
    next_txn: u64,
    /// Inner nodes noted as dead, in all lives.
    inner: u64,
}

const ROW: [u8; 120] = [7; 120];

impl Versions {
    fn new() -> Versions {
        let env: Arc<dyn Env> = Arc::new(MemEnv::new());
        let db = Db::create(env.clone(), 512);
        let tree = db.tree();
        let mut all =
            Versions { env, db, tree, rows: BTreeMap::new(), now: 100, next_txn: 10, inner: 0 };
        all.set_horizon(100);
        (0..KEYS).for_each(|n| all.commit(n, true));
        all
    }

    fn set_horizon(&self, to: u64) {
        self.db.commits.horizon.store(to, Ordering::SeqCst);
    }

    fn horizon(&self) -> u64 {
        self.db.commits.horizon.load(Ordering::SeqCst)
    }

    fn state(&self, txn: u64, state: TxnState) {
        self.db.commits.states.lock().insert(TxnId(txn), state);
    }

    fn put(&self, n: u64, txn: u64, live: bool) {
        let flags = if live { 0 } else { DELETED };
        self.db.put(&self.tree, &long_key(n), Put { flags, txn, row: &ROW });
    }

    /// The transaction that made the newest version, and whether the row exists; `None`: the tree
    /// may have no cell.
    fn newest(&self, n: u64) -> Option<(u64, bool)> {
        self.rows.get(&n).and_then(|h| h.last()).map(|(_, txn, live)| (*txn, *live))
    }

    fn is_live(&self, n: u64) -> bool {
        self.newest(n).is_some_and(|(_, live)| live)
    }

    fn commit(&mut self, n: u64, live: bool) {
        if !live && !self.is_live(n) {
            return;
        }
        (self.now, self.next_txn) = (self.now + 1, self.next_txn + 1);
        self.state(self.next_txn, TxnState::Active);
        self.put(n, self.next_txn, live);
        self.state(self.next_txn, TxnState::Committed(Lsn(self.now)));
        self.rows.entry(n).or_default().push((self.now, self.next_txn, live));
        // A reader that starts now must see the row, whatever the nodes above it say.
        assert_eq!(sees(&self.tree, n, Lsn(self.now)), live, "row {n}");
    }

    fn change(&mut self, change: &Change, from: u64, count: u64) {
        let range = from..(from + count).min(KEYS);
        match change {
            Change::Put => range.for_each(|n| self.commit(n, true)),
            Change::Delete => range.for_each(|n| self.commit(n, false)),
            Change::DeleteAndRevert => self.revert(range, false),
            Change::PutAndRevert => self.revert(range, true),
        }
    }

    fn revert(&mut self, range: std::ops::Range<u64>, live: bool) {
        self.next_txn += 1;
        let txn = self.next_txn;
        self.state(txn, TxnState::Active);
        let changed: Vec<_> = range.filter(|n| live || self.is_live(*n)).collect();
        changed.iter().for_each(|n| self.put(*n, txn, live));
        self.db.reclaim();
        for n in changed {
            match self.newest(n) {
                Some((by, live)) => self.put(n, by, live),
                None => _ = self.db.remove(&self.tree, &long_key(n)),
            }
        }
        self.state(txn, TxnState::Aborted);
    }

    fn read(&self, at: u64, direction: Direction) {
        let mut cursor = self.tree.cursor();
        cursor.set_snapshot(Some(Lsn(at)));
        cursor.seek(Bound::Unbounded, direction).unwrap();
        let mut given = BTreeSet::new();
        while let Some((key, _)) = cursor.next().unwrap() {
            given.insert(key.to_vec());
        }
        for (n, history) in &self.rows {
            let seen = history.iter().rev().find(|(cts, ..)| *cts <= at);
            if seen.is_some_and(|(.., live)| *live) {
                // A version behind it is found by a reader that is given the key.
                assert!(given.contains(&long_key(*n)), "row {n} is missing at {at}: {history:?}");
            }
        }
    }

    fn reopen(&mut self) {
        self.db.log.wait_durable(Lsn(self.db.log.end().0 - 1)).unwrap();
        let (horizon, root) = (self.horizon(), self.tree.root());
        let states = self.db.commits.states.lock().clone();
        self.inner += self.db.rt.metrics.get(Metric::DeadInnerNoted);
        self.tree = self.db.trees.open(TreeId(0), root);
        self.db.end_threads();
        self.db = Db::open(self.env.clone(), 512);
        *self.db.commits.states.lock() = states;
        self.set_horizon(horizon);
        self.tree = self.db.trees.open(TREE, root);
    }

    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Rows(change, from, count) => self.change(change, *from, *count),
                Step::Reclaim => self.db.reclaim(),
                Step::Horizon(share) => {
                    self.set_horizon(self.horizon() + (self.now - self.horizon()) * share / 4);
                }
                Step::Read(share, direction) => {
                    let (low, high) = (self.horizon(), self.now);
                    self.read(low + (high - low) * share / 4, *direction);
                }
                Step::Reopen => self.reopen(),
            }
            check(&self.tree);
        }
        for at in [self.horizon(), self.now] {
            self.read(at, Direction::Forward);
            self.read(at, Direction::Backward);
        }
        // No reader needs the deleted rows: they are removed.
        self.set_horizon(self.now);
        for _ in 0..KEYS {
            self.read(self.now, Direction::Forward);
            self.db.reclaim();
        }
        let live = (0..KEYS).filter(|n| self.is_live(*n)).count() as u64;
        let report = check(&self.tree);
        assert_eq!(report.rows - report.rows_deleted, live);
        assert!(report.rows_deleted <= 16 * report.leaf_pages / 2, "{report:?}");
        self.inner += self.db.rt.metrics.get(Metric::DeadInnerNoted);
        assert!(!self.db.rt.health.is_failed());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 6))]
    #[test]
    fn no_reader_misses_a_row(steps in proptest::collection::vec(step(), 1..40)) {
        Versions::new().run(&steps);
    }
}

/// An inner node with a single child gets another one from a neighbour that has two.
#[test]
fn sharing_of_children_ends() {
    let mut all = Versions::new();
    all.change(&Change::Delete, 229, 10);
    all.change(&Change::Delete, 189, 24);
    all.run(&[]);
}

/// The steps above must reach inner nodes that are noted as dead, and rows that arrive below them.
#[test]
fn rows_arrive_below_dead_inner_nodes() {
    let mut all = Versions::new();
    assert!(check(&all.tree).levels >= 4, "{:?}", check(&all.tree));
    all.change(&Change::Delete, 0, KEYS - 3);
    all.db.reclaim();
    let noted = all.db.rt.metrics.get(Metric::DeadInnerNoted);
    assert!(noted >= 10, "{noted} inner nodes");
    check(&all.tree);
    let mut steps = Vec::new();
    for from in [0, 100, 57, 200, 201, 3, 56, KEYS - 4] {
        steps.extend([
            Step::Rows(Change::Put, from, 1),
            Step::Read(4, Direction::Forward),
            Step::Rows(Change::PutAndRevert, from + 1, 40),
            Step::Rows(Change::Delete, from, 1),
            Step::Reclaim,
            Step::Reopen,
            Step::Read(0, Direction::Backward),
        ]);
    }
    all.run(&steps);
}

/// Leaves are removed one by one as the horizon rises: a node that inner nodes are merged with
/// stays noted, and the root takes over the last one.
#[test]
fn leaves_emptied_by_a_rising_horizon_are_noted_as_dead() {
    for live in [3, 0] {
        let mut all = Versions::new();
        all.change(&Change::Delete, 0, KEYS - live);
        all.db.reclaim();
        let (from, to) = (all.horizon(), all.now);
        for horizon in (from..=to).step_by(5) {
            all.set_horizon(horizon);
            all.db.reclaim();
            check(&all.tree);
            let (first, visits) = long_to_first(&all.tree, Lsn(to));
            assert_eq!(first, (live > 0).then(|| long_key(KEYS - live)));
            assert!(visits <= 40, "{visits} pages visited");
        }
        all.run(&[]);
    }
}

/// The minimum of inner nodes noted as dead while rows are inserted and deleted.
const NOTED: u64 = 10;

/// Changes rows in one thread and looks for each inserted row, whatever the nodes above it say.
fn change_and_look(db: &Db, tree: &Tree, thread: u64) -> BTreeSet<u64> {
    let (mut rand, mut live) = (Rand(thread), BTreeSet::new());
    // Longer if the background gets little of a busy machine.
    let (start, noted) = (std::time::Instant::now(), || db.rt.metrics.get(Metric::DeadInnerNoted));
    for round in 0.. {
        if round >= 400 && (noted() > NOTED || start.elapsed().as_secs() >= 120) {
            break;
        }
        let (from, delete) = (rand.below(KEYS), rand.below(3) > 0);
        for n in (from..(from + 40).min(KEYS)).filter(|n| n % 2 == thread) {
            if delete && live.remove(&n) {
                db.put(tree, &long_key(n), Put { flags: DELETED, txn: 5, row: &ROW });
            } else if !delete && live.insert(n) {
                db.put(tree, &long_key(n), Put { flags: 0, txn: 5, row: &ROW });
                assert!(sees(tree, n, Lsn(100)), "row {n} of thread {thread}");
            }
        }
    }
    live
}

/// Rows are inserted and deleted below nodes that the background notes as dead, splits and merges.
#[test]
fn writers_see_their_rows_below_nodes_noted_as_dead() {
    let db = Arc::new(Db::create(Arc::new(MemEnv::new()), 1_024));
    let tree = db.tree();
    db.commits.horizon.store(50, Ordering::SeqCst);
    db.commits.states.lock().insert(TxnId(5), TxnState::Committed(Lsn(100)));
    let stop = Arc::new(AtomicBool::new(false));
    let (reclaimer, stopped) = (db.clone(), stop.clone());
    let background = std::thread::spawn(move || {
        while !stopped.load(Ordering::SeqCst) {
            reclaimer.reclaim();
            std::thread::yield_now();
        }
    });
    let writers = [0, 1].map(|thread| {
        let (db, tree) = (db.clone(), tree.clone());
        std::thread::spawn(move || change_and_look(&db, &tree, thread))
    });
    let live: BTreeSet<u64> = writers.into_iter().flat_map(|w| w.join().unwrap()).collect();
    stop.store(true, Ordering::SeqCst);
    background.join().unwrap();
    check(&tree);
    let inner = db.rt.metrics.get(Metric::DeadInnerNoted);
    assert!(inner > NOTED, "{inner} inner nodes were noted as dead");
    assert!((0..KEYS).all(|n| sees(&tree, n, Lsn(100)) == live.contains(&n)));
}

type AtStep = Mutex<Option<Box<dyn FnOnce() + Send>>>;

thread_local! {
    static HAS_STEPS: Cell<bool> = const { Cell::new(false) };
}

/// Memory, and an action to run at the next step of a thread that `HAS_STEPS`.
#[derive(Default)]
struct Stepped {
    memory: MemEnv,
    at_step: Arc<AtStep>,
}

impl Env for Stepped {
    evenkeel_io::delegate_env! {
        memory: open, list, remove, rename, create_dir, sync_dir, now_ns, random, spawn
    }
    fn wait(&self, event: &Arc<Event>, seen: u64, time: Option<Duration>, cause: Cause) -> Woken {
        if time == Some(Duration::ZERO) && HAS_STEPS.get() {
            let act = self.at_step.lock().take();
            act.into_iter().for_each(|act| act());
        }
        self.memory.wait(event, seen, time, cause)
    }
}

/// The first live row that a locking scan reaches when it continues behind a deleted one.
fn live_behind(tree: &Tree, n: u64) -> Option<u64> {
    let mut cursor = tree.cursor();
    cursor.set_snapshot(Some(Lsn::MAX));
    cursor.seek(Bound::Excluded(&key(n)), Direction::Forward).unwrap();
    while let Some((key, row)) = cursor.next().unwrap() {
        if row.flags & DELETED == 0 {
            return Some(u64::from_be_bytes(key.try_into().unwrap()));
        }
    }
    None
}

/// A scan skips a dead leaf; before it reads the next leaf, that one is merged into the dead one.
#[test]
fn a_scan_returns_the_first_row_merged_into_a_skipped_leaf() {
    let env = Stepped::default();
    let at_step = env.at_step.clone();
    let db = Arc::new(Db::create(Arc::new(env), 512));
    let tree = db.tree();
    db.commits.horizon.store(50, Ordering::SeqCst);
    db.commits.states.lock().insert(TxnId(10), TxnState::Committed(Lsn(100)));
    let rows = (0..).find(|n| {
        db.put(&tree, &key(*n), plain(&[7; 60]));
        check(&tree).leaf_pages == 2
    });
    let rows = rows.unwrap() + 10;
    (0..rows).for_each(|n| _ = db.put(&tree, &key(n), plain(&[7; 60])));
    let left =
        tree.find(crate::tree::DescentGoal::At(b""), 0, evenkeel_pages::Access::Normal).unwrap();
    let high = Node::parse(&left).unwrap().high().unwrap().to_vec();
    drop(left);
    let first = (0..rows).find(|n| key(*n).as_slice() >= high.as_slice()).unwrap();
    (0..first).for_each(|n| _ = db.put(&tree, &key(n), Put { flags: DELETED, txn: 10, row: b"" }));
    db.reclaim();
    let counted = |metric| db.rt.metrics.get(metric);
    let skips = counted(Metric::DeadSkips);
    assert_eq!(live_behind(&tree, 3), Some(first));
    assert!(counted(Metric::DeadSkips) > skips && check(&tree).leaf_pages == 2);
    // Rows that no reader sees are removed, and then the leaf.
    db.put(&tree, &key(rows - 1), Put { flags: DELETED, txn: 5, row: b"" });
    let (reclaimer, skips) = (db.clone(), counted(Metric::DeadSkips));
    *at_step.lock() = Some(Box::new(move || {
        HAS_STEPS.set(false);
        reclaimer.reclaim();
    }));
    HAS_STEPS.set(true);
    assert_eq!(live_behind(&tree, 3), Some(first));
    assert!(counted(Metric::DeadSkips) > skips && at_step.lock().is_none());
    assert_eq!(check(&tree).leaf_pages, 1);
}
