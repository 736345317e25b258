//! Crashes of the simulated machine: after replay the tree holds exactly the changes whose records
//! were durable, and is sound.

use super::*;
use evenkeel_io::sim::{CrashPolicy, SimEnv};
use std::collections::BTreeMap;
use std::sync::mpsc;

/// One change as it was made: its LSN and the new row (`None`: removed).
type Change = (Lsn, Vec<u8>, Option<Vec<u8>>);

/// Changes rows at random until the machine dies.
fn work(db: &Db, tree: &Tree, seed: u64, made: &mpsc::Sender<Change>) -> Result<()> {
    let mut rand = Rand(seed);
    let mut live = std::collections::BTreeSet::new();
    for i in 0..2_500u64 {
        let n = if rand.below(2) == 0 { i } else { rand.below(2_000) };
        let mut key = vec![b'k'; 1 + (n % 40) as usize];
        key.extend_from_slice(&n.to_be_bytes());
        let row = if rand.below(3) == 0 && live.remove(&key) {
            None
        } else {
            live.insert(key.clone());
            Some(vec![i as u8; rand.below(300) as usize])
        };
        let lsn = db.write(tree, &key, row.as_deref().map(plain))?;
        let _ = made.send((lsn, key, row));
        if rand.below(100) == 0 {
            db.log.wait_durable(lsn)?;
        }
        if rand.below(50) == 0 {
            while db.trees.reclaim_beat()? == Beat::More {}
        }
    }
    Ok(())
}

/// Returns the numbers of changes made and of changes that survived.
fn crash_once(seed: u64, policy: CrashPolicy) -> (usize, usize) {
    println!("seed {seed}");
    let sim = SimEnv::new(seed);
    let (send, made) = mpsc::channel();
    let (root_send, root) = mpsc::channel();
    let env = sim.env();
    let disk = sim.disk().clone();
    sim.run(vec![Box::new(move || {
        let db = Db::create(env, 64);
        let tree = db.tree();
        db.log.wait_durable(Lsn(db.log.end().0 - 1)).unwrap();
        let _ = root_send.send(tree.root());
        // The crash occurs somewhere in this work.
        disk.crash_at_change(disk.changes() + 1 + seed * 7919 % 900);
        let _ = work(&db, &tree, seed, &send);
    })]);
    let after = sim.crash(policy, seed);
    let Ok(root) = root.try_recv() else { return (0, 0) };
    let made: Vec<Change> = made.try_iter().collect();
    let (env, end, count) = (after.env(), mpsc::channel(), made.len());
    after.run(vec![Box::new(move || {
        let db = Db::open(env, 64);
        let tree = db.trees.open(TREE, root);
        check(&tree);
        let mut model = BTreeMap::new();
        // The new log begins at the end of the old one.
        let durable = db.replayed_to;
        let mut survived = 0;
        for (_, key, row) in made.into_iter().filter(|(lsn, _, _)| *lsn < durable) {
            survived += 1;
            match row {
                Some(row) => model.insert(key, row),
                None => model.remove(&key),
            };
        }
        let expected: Vec<_> = model.into_iter().collect();
        let found = scan(&tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        assert_eq!(found.len(), expected.len());
        assert!(found == expected);
        let _ = end.0.send(survived);
    })]);
    (count, end.1.try_recv().expect("the check after the crash ran"))
}

#[test]
fn replay_gives_the_durable_tree() {
    use CrashPolicy::{KeepAll, LoseAll, Mixed, RandomSectors, Reordered, Torn};
    let (mut made, mut survived) = (0, 0);
    for seed in 0..60 {
        let policy = [LoseAll, KeepAll, Mixed, RandomSectors, Reordered, Torn][seed as usize % 6];
        let (m, s) = crash_once(seed, policy);
        (made, survived) = (made + m, survived + s);
    }
    println!("{survived} of {made} changes survived");
    assert!(survived > 5_000 && made > survived);
}
