//! Tests of `leaves` and `arena`: against a model, with keys that differ late, long version lists,
//! ordered arrival at every place, and readers beside writers.

use crate::memtable::arena::{Arena, ArenaNode};
use crate::memtable::leaves::{Leaves, NewEntry, NodeRef, charge};
use crate::memtable::{MemIter, Memtable};
use crate::tests::Random;
use evenkeel_base::{Generation, IndexId, Lsn, Stamp, TxnId, UndoNo};
use evenkeel_io::{MemEnv, Runtime};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Default)]
struct Bed {
    arena: Arena,
    leaves: Leaves,
    /// (key, reversed LSN).
    model: BTreeSet<(Vec<u8>, u64)>,
}

fn insert(arena: &Arena, leaves: &Leaves, key: &[u8], lsn: u64) {
    leaves.insert(arena, entry(arena, key, lsn));
}

fn entry(arena: &Arena, key: &[u8], lsn: u64) -> ArenaNode {
    let (key, pk) = key.split_at(key.len() / 2);
    let entry = NewEntry {
        index: IndexId(1),
        op: 3,
        stamp: Stamp { txn: TxnId(lsn + 1), undo_no: UndoNo(7) },
        lsn: Lsn(lsn),
        key,
        pk,
        value: &lsn.to_le_bytes()[..(lsn % 5) as usize],
    };
    entry.write(arena)
}

fn version(arena: &Arena, node: ArenaNode) -> (Vec<u8>, u64) {
    let entry = NodeRef::read(arena, node);
    let lsn = entry.lsn.0;
    assert_eq!((entry.op, entry.stamp.txn.0, entry.stamp.undo_no.0), (3, lsn + 1, 7));
    assert_eq!(entry.pk_len, entry.key.len().div_ceil(2));
    assert_eq!(entry.value, &lsn.to_le_bytes()[..(lsn % 5) as usize]);
    (entry.key.to_vec(), u64::MAX - lsn)
}

fn forward(arena: &Arena, leaves: &Leaves, from: &[u8]) -> Vec<(Vec<u8>, u64)> {
    let (mut found, mut stretch) = (Vec::new(), Vec::new());
    leaves.copy_at_least(arena, from, &mut stretch);
    while let Some(last) = stretch.last().copied() {
        found.extend(stretch.iter().map(|node| version(arena, *node)));
        leaves.copy_after(arena, last, &mut stretch);
    }
    found
}

fn reverse(arena: &Arena, leaves: &Leaves, below: Option<&[u8]>) -> Vec<(Vec<u8>, u64)> {
    let (mut found, mut stretch) = (Vec::new(), Vec::new());
    leaves.copy_below(arena, below, &mut stretch);
    while let Some(first) = stretch.first().copied() {
        found.extend(stretch.iter().rev().map(|node| version(arena, *node)));
        leaves.copy_before(arena, first, &mut stretch);
    }
    found
}

impl Bed {
    fn insert(&mut self, key: &[u8], lsn: u64) {
        insert(&self.arena, &self.leaves, key, lsn);
        self.model.insert((key.to_vec(), u64::MAX - lsn));
    }

    /// Removes every other entry, or all of them, from a key on.
    fn remove_some(&mut self, from: &[u8], count: usize) {
        let mut stretch = Vec::new();
        let mut doomed: Vec<ArenaNode> = Vec::new();
        self.leaves.copy_at_least(&self.arena, from, &mut stretch);
        while let Some(last) = stretch.last().copied().filter(|_| doomed.len() < count) {
            doomed.extend(stretch.iter().step_by(1 + count % 2));
            self.leaves.copy_after(&self.arena, last, &mut stretch);
        }
        doomed.truncate(count);
        doomed.iter().for_each(|n| assert!(self.model.remove(&version(&self.arena, *n))));
        assert_eq!(self.leaves.remove(&self.arena, &doomed), doomed.len());
        assert_eq!(self.leaves.remove(&self.arena, &doomed), 0, "they are gone");
    }

    /// Compares all entries, and ranges from and below `probes`.
    fn check(&self, probes: &[Vec<u8>]) {
        let (arena, leaves) = (&self.arena, &self.leaves);
        assert!(forward(arena, leaves, b"").iter().eq(self.model.iter()));
        assert!(reverse(arena, leaves, None).iter().eq(self.model.iter().rev()));
        for probe in probes {
            let bound = (probe.clone(), 0);
            let above = self.model.range(bound.clone()..);
            assert!(forward(arena, leaves, probe).iter().eq(above), "from {probe:?}");
            let below = self.model.range(..bound).rev();
            assert!(reverse(arena, leaves, Some(probe)).iter().eq(below), "below {probe:?}");
        }
        let full = self.model.len() * charge(0, 0, 0);
        assert!(self.leaves.bytes() <= 8192 + full * 3 / 2, "leaves are half full");
    }
}

/// Few bytes, lengths on both sides of a head's, common beginnings.
fn random_key(random: &mut Random) -> Vec<u8> {
    let common = [0, 3, 15, 16, 17, 40][random.below(6) as usize];
    let mut key = vec![[0, 7, 0xff][random.below(3) as usize]; common];
    key.extend((0..random.below(6)).map(|_| [0, 1, 0x80, 0xff][random.below(4) as usize]));
    key
}

/// B6: entries packed all at once lie in the same order, in full leaves; more entries may follow.
#[test]
fn entries_taken_at_once_are_packed() {
    for (seed, count) in [(0, 0), (1, 1), (2, 256), (3, 257), (4, 5000), (5, 5000)] {
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut bed = Bed::default();
        let mut nodes = Vec::new();
        for lsn in 1..=count {
            let key = match seed {
                4 => random_key(&mut random),
                _ => random.below(1 << 40).to_be_bytes().repeat(2),
            };
            nodes.push(entry(&bed.arena, &key, lsn ^ 3));
            bed.model.insert((key, u64::MAX - (lsn ^ 3)));
        }
        bed.leaves.fill(&bed.arena, nodes);
        let probes: Vec<_> = (0..20).map(|_| random_key(&mut random)).collect();
        bed.check(&probes);
        let leaf = Leaves::default().bytes();
        assert_eq!(bed.leaves.bytes(), leaf * (count as usize).div_ceil(256).max(1));
        for lsn in 10_000..11_000 {
            bed.insert(&random_key(&mut random), lsn);
        }
        bed.check(&probes);
    }
}

/// B6: the indexes that recovery refills are sorted in parallel, with the same result as single
/// inserts.
#[test]
fn parallel_packing_equals_single_inserts() {
    let rt = Runtime::new(Arc::new(MemEnv::new()));
    for seed in 0..8u64 {
        println!("seed {seed}");
        let mut random = Random(seed + 1);
        let taken = Arc::new(Memtable::restoring(Generation(1), Arc::default()));
        let inserted = Arc::new(Memtable::new(Generation(1), Arc::default()));
        let indexes = 1 + seed % 6;
        for lsn in 1..=1000 * indexes {
            let key = random.below(1 << 12).to_be_bytes();
            let index = IndexId(random.below(indexes) as u32);
            let stamp = Stamp { txn: TxnId(lsn), undo_no: UndoNo(1) };
            let entry =
                NewEntry { index, op: 3, stamp, lsn: Lsn(lsn), key: &key, pk: b"p", value: b"" };
            assert_eq!(taken.restore(&entry), inserted.insert(&entry));
        }
        let threads = taken.pack_by_threads(&rt).expect("packs");
        assert_eq!(threads as u64, indexes.min(4), "seed {seed}");
        let all = |memtable: &Arc<Memtable>| {
            let mut iter = MemIter::of_all(memtable.clone());
            let mut found = Vec::new();
            while let Some(entry) = iter.get() {
                found.push((iter.index(), entry.key.to_vec(), entry.lsn));
                iter.next();
            }
            found
        };
        let found = all(&taken);
        assert_eq!(found.len() as u64, 1000 * indexes);
        assert_eq!(found, all(&inserted));
    }
}

#[test]
fn agrees_with_a_model() {
    // Miri takes a minute for these few.
    let (seeds, changes) = if cfg!(miri) { (2, 80) } else { (12, 4000) };
    for seed in 0..seeds {
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut bed = Bed::default();
        let mut probes = vec![Vec::new(), vec![0xff; 60]];
        for lsn in 1..changes {
            let key = match seed % 2 {
                0 => random_key(&mut random),
                _ => random.below(1 << 40).to_be_bytes().repeat(2 + (seed % 3) as usize),
            };
            // Versions of a key do not arrive in order.
            bed.insert(&key, lsn ^ 3);
            if random.below(changes / 20) == 0 {
                let count = random.below(150) as usize;
                bed.remove_some(&key, count);
            }
            if random.below(400) == 0 {
                probes.push(key);
                probes.push(random_key(&mut random));
            }
        }
        bed.check(&probes);
    }
}

#[test]
fn versions_of_one_key_fill_leaves() {
    let mut bed = Bed::default();
    let key = [b'k'; 30];
    for lsn in 0..1500 {
        bed.insert(&key, lsn);
        bed.insert(&[b'k'; 31], 5000 - lsn);
    }
    bed.check(&[key.to_vec(), vec![b'k'; 31], vec![b'k'; 29]]);
}

#[test]
fn equal_versions_are_all_met_youngest_first() {
    let (arena, leaves) = (Arena::default(), Leaves::default());
    (0..1000).for_each(|_| insert(&arena, &leaves, b"same key", 9));
    let (mut found, mut stretch) = (Vec::new(), Vec::new());
    leaves.copy_at_least(&arena, b"", &mut stretch);
    while let Some(last) = stretch.last().copied() {
        found.extend_from_slice(&stretch);
        leaves.copy_after(&arena, last, &mut stretch);
    }
    assert_eq!(found.len(), 1000);
    assert!(found.is_sorted_by(|a, b| a > b));
}

/// Ascending and descending arrival, at the ends and between entries, keeps leaves at least half
/// full (ascending: full).
#[test]
fn ordered_arrival_keeps_leaves_full() {
    let key = |part: u64, n: u64| [part.to_be_bytes(), n.to_be_bytes(), [1; 8]].concat();
    let mut ascending = Bed::default();
    for n in 0..10_240 {
        ascending.insert(&key(n % 4, n), n);
    }
    ascending.check(&[key(1, 300), key(2, 0), key(9, 0)]);
    let slot = 20 * 10_240;
    assert!(ascending.leaves.bytes() <= slot + slot / 10, "{}", ascending.leaves.bytes());
    for parts in [1, 4] {
        let mut descending = Bed::default();
        for n in 0..10_240 {
            descending.insert(&key(n % parts, 20_000 - n), n);
        }
        descending.check(&[key(1, 15_000), key(0, 0), key(9, 0)]);
    }
    let mut mixed = Bed::default();
    for n in 0..10_240 {
        mixed.insert(&key(5, if n % 2 == 0 { 50_000 + n } else { 50_000 - n }), n);
    }
    for n in 0..5000 {
        mixed.insert(&key(4, 90_000 - n), n);
    }
    mixed.check(&[key(5, 50_000), key(4, 86_000), key(5, 0)]);
}

#[test]
fn large_entries_are_found_and_ordered() {
    let mut bed = Bed::default();
    for n in 0..6u8 {
        bed.insert(&vec![n; 3 << 20], u64::from(n));
        bed.insert(&[n; 20], 90);
    }
    bed.check(&[vec![3; 4 << 20], vec![3; 21]]);
}

/// Writers publish the number of their inserted keys; a reader that starts then finds all of these,
/// in order, in both directions.
#[test]
fn readers_miss_nothing_that_was_there() {
    const EACH: u64 = 12_000;
    let (arena, leaves) = (Arena::default(), Leaves::default());
    let done: [AtomicU64; 3] = Default::default();
    let running = AtomicBool::new(true);
    // Writer 0: scattered keys; 1: ascending; 2: descending, with a long common beginning.
    let key = |writer: u64, n: u64| -> Vec<u8> {
        match writer {
            0 => (n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes().to_vec(),
            1 => [(1u64 << 63).to_be_bytes(), n.to_be_bytes()].concat(),
            _ => [[0x40; 24].as_slice(), &(EACH - n).to_be_bytes()].concat(),
        }
    };
    let read = |is_reverse: bool| {
        let seen: Vec<u64> = done.iter().map(|d| d.load(Ordering::Acquire)).collect();
        let mut found = match is_reverse {
            true => reverse(&arena, &leaves, None),
            false => forward(&arena, &leaves, b""),
        };
        if is_reverse {
            found.reverse();
        }
        assert!(found.is_sorted_by(|a, b| a < b));
        for (writer, count) in seen.iter().enumerate() {
            for n in 0..*count {
                let lsn = 3 * n + writer as u64;
                let version = (key(writer as u64, n), u64::MAX - lsn);
                assert!(found.binary_search(&version).is_ok(), "writer {writer}, {n} of {count}");
            }
        }
    };
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (arena, leaves, done) = (&arena, &leaves, &done);
                s.spawn(move || {
                    for n in 0..EACH {
                        insert(arena, leaves, &key(writer, n), 3 * n + writer);
                        done[writer as usize].store(n + 1, Ordering::Release);
                    }
                })
            })
            .collect();
        for is_reverse in [false, true] {
            let (read, running) = (&read, &running);
            s.spawn(move || {
                while running.load(Ordering::Acquire) {
                    read(is_reverse);
                }
            });
        }
        writers.into_iter().for_each(|w| w.join().expect("writes"));
        running.store(false, Ordering::Release);
    });
    read(false);
    read(true);
    assert_eq!(forward(&arena, &leaves, b"").len(), 3 * EACH as usize);
}

/// The estimate is exact if few leaves lie between its ends; otherwise it samples some of them,
/// evenly spread: half of these are full, like leaves of ordered keys, and half are not.
#[test]
fn an_estimate_visits_few_leaves() {
    let mut bed = Bed::default();
    (0..20_000u32).for_each(|n| bed.insert(&n.to_be_bytes(), u64::from(n)));
    let mut random = Random(3);
    for lsn in 20_000..40_000 {
        let n = 20_000 + random.below(1 << 30) as u32;
        bed.insert(&n.to_be_bytes(), lsn);
    }
    let exactly = |low: u32, high: u32| {
        let key = |n: u32| (n.to_be_bytes().to_vec(), 0);
        bed.model.range(key(low)..key(high)).count() as u64
    };
    let said = |low: u32, high: u32| {
        bed.leaves.estimate(&bed.arena, &low.to_be_bytes(), Some(&high.to_be_bytes()))
    };
    for (low, high) in [(0, 1), (100, 1_700), (19_000, 19_500), (20_000, 40_000_000)] {
        assert_eq!(said(low, high), exactly(low, high), "{low} to {high}");
    }
    for (low, high) in [(0, 15_000), (5_000, 500_000_000), (30_000, 1 << 30), (0, 1 << 30)] {
        let (said, rows) = (said(low, high), exactly(low, high));
        assert!(said.abs_diff(rows) <= rows / 4, "{said} of {rows}, {low} to {high}");
    }
    assert!(bed.leaves.estimate(&bed.arena, &[], None).abs_diff(40_000) <= 10_000);
}
