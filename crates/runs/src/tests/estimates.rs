//! How near estimates are: for even and uneven keys, one run or many and memtables, and with
//! entries that others have taken the place of.

use super::rig::{Random, Rig, spec};
use crate::KeyRange;
use evenkeel_base::IndexId;
use evenkeel_format::record::entry_op::{DEL, FRESH, INS};
use std::collections::BTreeSet;
use std::ops::Bound;

const ROWS: u64 = 48_000;
/// Ranges hold this part of all rows at least, and so a block of each run.
const LEAST_PART: u64 = 4;

/// An index, and the keys it holds.
struct Bed {
    rig: Rig,
    keys: BTreeSet<u64>,
    /// Keys of deletes in runs and memtables.
    dead: BTreeSet<u64>,
}

/// Of bytes that do not compress, so that a block has few.
fn pk(key: u64) -> [u8; 16] {
    let mut random = Random(key);
    (u128::from(random.next()) << 64 | u128::from(random.next())).to_be_bytes()
}

impl Bed {
    fn new() -> Bed {
        let rig = Rig::new(16 << 20);
        rig.runs.add_index(spec(1, false, false));
        Bed { rig, keys: BTreeSet::new(), dead: BTreeSet::new() }
    }

    fn insert(&mut self, key: u64) {
        if self.keys.insert(key) {
            self.rig.put(1, INS | FRESH, &key.to_be_bytes(), &pk(key));
        }
    }

    fn delete(&mut self, key: u64) {
        if self.keys.remove(&key) {
            self.dead.insert(key);
            self.rig.put(1, DEL, &key.to_be_bytes(), &pk(key));
        }
    }

    /// Each key `step` further.
    fn move_on(&mut self, keys: Vec<u64>, step: u64) {
        for key in keys {
            self.delete(key);
            self.insert(key + step);
        }
    }

    fn said(&self, from: u64, to: u64) -> u64 {
        let (from, to) = (from.to_be_bytes().to_vec(), to.to_be_bytes().to_vec());
        let range = KeyRange { lower: Bound::Included(from), upper: Bound::Excluded(to) };
        self.rig.runs.estimate(IndexId(1), &range).expect("estimates")
    }

    /// Ranges from one key to another: by `times` too few at most; so many times the rows and what
    /// is dead at most.
    fn compare(&self, what: &str, times: u64) {
        let least = self.keys.len() as u64 / LEAST_PART;
        let keys: Vec<u64> = self.keys.iter().copied().collect();
        let mut random = Random(7);
        for round in 0..40 {
            let wide = least + random.below(keys.len() as u64 - least);
            let from = random.below(keys.len() as u64 - wide);
            let (from, to) = match round {
                0 => (0, u64::MAX),
                _ => (keys[from as usize], keys[(from + wide) as usize]),
            };
            let rows = self.keys.range(from..to).count() as u64;
            let (dead, said) = (self.dead.range(from..to).count() as u64, self.said(from, to));
            assert!(rows <= times * said, "{what}: {said} of {rows} rows, {dead} dead");
            assert!(
                said <= times.max(2) * (rows + dead),
                "{what}: {said} of {rows} rows, {dead} dead"
            );
        }
    }

    fn merge(&mut self) {
        self.rig.runs.merge_to_rest().expect("merges");
        assert_eq!(self.rig.runs.stats(IndexId(1)).runs, 1);
        self.dead.clear();
    }
}

/// The key of the nth row.
type Maker = fn(u64, &mut Random) -> u64;

/// In the memtable alone, then in one run.
#[test]
fn of_even_and_uneven_keys() {
    let mut random = Random(3);
    let makers: [(&str, Maker); 3] = [
        ("in order", |n, _| n),
        ("even", |_, random| random.next() >> 1),
        // Most have much in common with others; a few are anywhere.
        ("uneven", |n, random| match n % 10 {
            0 => random.next() >> 1,
            digit => digit << 40 | random.below(1 << (4 * digit)),
        }),
    ];
    for (what, make) in makers {
        let mut bed = Bed::new();
        (0..ROWS).for_each(|n| bed.insert(make(n, &mut random)));
        bed.compare(&format!("{what}, in memory"), 2);
        bed.rig.flush();
        bed.compare(&format!("{what}, in a run"), 2);
    }
}

/// Some in each of many runs, some in memory. A run has few blocks, of which only whole ones count.
#[test]
fn of_many_runs() {
    let (mut random, mut bed) = (Random(4), Bed::new());
    for _ in 0..5 {
        (0..ROWS / 10).for_each(|_| bed.insert(random.below(1 << 40)));
        bed.rig.flush();
        bed.compare(&format!("{} runs", bed.rig.runs.stats(IndexId(1)).runs), 3);
    }
    (0..ROWS / 16).for_each(|_| bed.insert(random.below(1 << 30)));
    bed.compare("and in memory", 3);
    assert!(bed.rig.runs.stats(IndexId(1)).runs >= 4);
}

/// The rows that changed last are behind all others, as those of a column of times: the runs that
/// have them delete as much elsewhere.
#[test]
fn of_rows_that_have_moved() {
    for flushes in [1, 4] {
        let mut bed = Bed::new();
        (0..ROWS).for_each(|n| bed.insert(n));
        bed.rig.flush();
        let keys: Vec<u64> = (0..ROWS).collect();
        for some in keys.chunks(ROWS as usize / flushes) {
            bed.move_on(some.to_vec(), 1 << 40);
            bed.rig.flush();
        }
        // Nothing tells where a run deletes: it is taken to do so everywhere.
        bed.compare(&format!("moved in {flushes} runs"), if flushes == 1 { 2 } else { 3 });
        bed.merge();
        bed.compare("moved and merged", 2);
    }
}

/// Every second row is deleted; or all but the last quarter.
#[test]
fn of_deleted_rows() {
    for (what, is_dead) in
        [("every second", (|n| n % 2 == 1) as fn(u64) -> bool), ("most", |n| n < ROWS / 4 * 3)]
    {
        let mut bed = Bed::new();
        (0..ROWS).for_each(|n| bed.insert(n));
        bed.rig.flush();
        (0..ROWS).filter(|n| is_dead(*n)).for_each(|n| bed.delete(n));
        bed.compare(&format!("{what} deleted in memory"), 2);
        bed.rig.flush();
        bed.compare(&format!("{what} deleted"), 2);
        bed.merge();
        bed.compare(&format!("{what} deleted and merged"), 2);
    }
}
