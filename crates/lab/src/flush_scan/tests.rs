//! Tests: scan steps against a brute-force count, their growth against theory, and the rules of the
//! optimistic pass that pins pages.

use super::list::{self, Fix, FlushList};
use super::ours::{self, Built, Op};
use super::policies::{Scan, Scanner, Tally};
use super::setup::Setup;
use super::world::World;
use super::{alone, layout, quiet_steps, run, run_scan};
use std::collections::{BTreeSet, VecDeque};

/// A thousandth of the reported pages, with enough of the build among them.
fn small(seed: u64) -> Setup {
    Setup { own: 40, ..Setup::new(1000, seed) }
}

/// Steps of a scan that restarts at the tail after each page, counted on a plain row of pages.
fn restart_by_hand(mut pages: Vec<bool>) -> u64 {
    let mut steps = 0;
    loop {
        let mut found = None;
        for (at, own) in pages.iter().enumerate() {
            steps += 1;
            if *own {
                found = Some(at);
                break;
            }
        }
        let Some(at) = found else { return steps };
        pages.remove(at);
    }
}

#[test]
fn brute_force_counts_the_same_steps() {
    for seed in 0..5 {
        let setup = small(seed);
        let (mut restart, mut once) = (0, 0);
        for instance in 0..setup.instances {
            let pages = layout(&setup, instance);
            once += pages.len() as u64;
            restart += restart_by_hand(pages);
        }
        assert_eq!(quiet_steps(&setup, Scan::Restart), restart, "seed {seed}");
        assert_eq!(quiet_steps(&setup, Scan::Hazard), once, "seed {seed}");
        // No page is missed, so the second pass visits every page that is left once.
        let twice = 2 * once - setup.own;
        assert_eq!(quiet_steps(&setup, Scan::Optimistic { latched: true }), twice, "seed {seed}");
    }
}

/// A list as a plain row of pages, with the operations of a run. Steps are counted by visiting one
/// page after the other. A walk begins at the tail, or behind the page that was visited last.
fn steps_by_hand(first: Vec<bool>, ops: &[list::Op]) -> u64 {
    let mut next = first.len() as u32;
    let mut row: Vec<(u32, bool)> = (0..).zip(first).collect();
    let (mut steps, mut last) = (0, None);
    for op in ops {
        match *op {
            list::Op::Push => {
                row.push((next, false));
                next += 1;
            }
            list::Op::Remove(number) => row.retain(|page| page.0 != number),
            list::Op::Walk(from, budget, looked) => {
                let behind = row.iter().position(|page| Some(page.0) > last);
                let goes_on = behind.is_some_and(|at| row[at].0 == from);
                assert!(goes_on || row[0].0 == from, "from {from}, behind {last:?}");
                let mut mine = 0;
                for page in row.iter().skip_while(|page| page.0 != from) {
                    mine += 1;
                    last = Some(page.0);
                    if page.1 || mine == budget {
                        break;
                    }
                }
                assert_eq!(mine, looked);
                steps += mine;
            }
        }
    }
    assert!(row.iter().all(|page| !page.1), "every page of the build has left");
    steps
}

/// At a thousandth of the reported pages, with active writers and cleaner, and with the first
/// version, which loses its position: each scan visits as many pages as the count by hand.
#[test]
fn brute_force_counts_the_same_steps_beside_writers() {
    let mut lost = 0;
    for seed in 0..8 {
        // One seed is enough for the scan that visits so many pages.
        let slow = |scan| scan == Scan::Restart && seed > 0;
        for (name, scan, _) in super::SCANS.into_iter().filter(|s| !slow(s.1)) {
            let setup = Setup { instances: 1, own: 200, recent: 2_000, ..Setup::new(1000, seed) };
            // Many pages next to those of the build are being written when a scan passes.
            let setup = Setup { io_ns: 2_000_000, free_frames: 256, neighbours_pct: 90, ..setup };
            let first = layout(&setup, 0);
            let mut world = World::new(&setup, FlushList::new(first.clone(), true));
            world.let_go(10_000_000);
            let (tally, whole) = Scanner::new(&setup, &mut world).run(scan);
            assert!(whole && tally.flushed > 150, "seed {seed} {name}: {tally:?}");
            assert!(world.done.iter().sum::<u64>() > 100, "seed {seed} {name}: {:?}", world.done);
            assert_eq!(steps_by_hand(first, world.list.ops()), tally.steps, "seed {seed} {name}");
            lost += tally.lost;
        }
    }
    assert!(lost > 0, "the first version lost its place");
}

#[test]
fn counted_walks_give_the_same_run_as_walks_on_the_links() {
    for (_, scan, _) in super::SCANS {
        let counted = Setup { own: 200, before_s: 0, shown_s: 2, ..Setup::new(100, 7) };
        let walked = Setup { jumps: false, ..counted.clone() };
        let (a, b) = (run_scan(&counted, scan), run_scan(&walked, scan));
        assert_eq!((a.tally, a.done, a.longest_ns), (b.tally, b.done, b.longest_ns), "{scan:?}");
        assert!(a.tally.flushed > counted.own / 2, "{scan:?}: {:?}", a.tally);
    }
}

#[test]
fn doubling_the_pages_doubles_the_steps_and_doubling_both_quadruples_those_of_restarting() {
    let one = Setup { own: 160, ..Setup::new(100, 3) };
    let two = Setup { pages: 2 * one.pages, ..one.clone() };
    let both = Setup { own: 2 * one.own, ..two.clone() };
    let grows = |scan, to: &Setup| quiet_steps(to, scan) as f64 / quiet_steps(&one, scan) as f64;
    for (scan, by_pages, by_both) in [
        (Scan::Restart, 2.0, 4.0),
        (Scan::Hazard, 2.0, 2.0),
        (Scan::Optimistic { latched: true }, 2.0, 2.0),
    ] {
        let (pages, both) = (grows(scan, &two), grows(scan, &both));
        assert!((pages - by_pages).abs() < 0.1, "{scan:?}: pages doubled: {pages}");
        assert!((both - by_both).abs() < 0.1, "{scan:?}: both doubled: {both}");
    }
}

#[test]
fn a_neighbour_in_use_or_under_io_is_left_to_the_second_pass() {
    let setup = alone(&small(1));
    for latched in [true, false] {
        // Two pages of the build; the page where the scan continues after the first is being
        // written.
        let mut list = FlushList::new([false, true, false, false, true, false], false);
        list.set_fix(2, Fix::Io);
        list.pin(5, 1);
        let mut world = World::new(&setup, list);
        world.held(1);
        // Its write ends while the page of the build is written, and it leaves the list.
        let tally = {
            let scanner = Scanner::new(&setup, &mut world);
            scanner.world.ends_io(2, setup.io_ns / 2);
            scanner.run(Scan::Optimistic { latched }).0
        };
        assert_eq!(tally.flushed, 2, "latched {latched}");
        if latched {
            assert_eq!((tally.missed, tally.lost), (2, 0));
        } else {
            assert_eq!(tally.lost, 1, "the state was read without its lock");
        }
    }
}

/// The pages of the build lie among the newest pages; some of those are in use and some are being
/// written.
#[test]
fn scans_meet_unpinnable_pages_while_writers_run() {
    let (mut first, mut second) = (Tally::default(), Tally::default());
    let mut own = 0;
    for seed in 0..8 {
        // A busy disk: writes under way when a page of the build is written end before that write.
        let setup = Setup { own: 600, recent: 6_600, io_ns: 2_000_000, ..Setup::new(50, seed) };
        let setup = Setup { before_s: 0, shown_s: 0, ..setup };
        first.add(&run_scan(&setup, Scan::Optimistic { latched: false }).tally);
        second.add(&run_scan(&setup, Scan::Optimistic { latched: true }).tally);
        own += setup.own;
    }
    // The skipped pages are few, as reported, and the second pass visits only those.
    assert!(second.missed > 0 && second.missed < own / 10, "{second:?}");
    assert_eq!(second.lost, 0, "{second:?}");
    assert!(second.scans <= 2 * 8 * 8 + second.missed, "{second:?}");
    // Without the lock the pass took a page under I/O for a free one. When that page left the list,
    // the pass lost its place and left the rest of the list to the restarting scan.
    assert!(first.lost > 0 && first.missed == 0 && first.page_locks == 0, "{first:?}");
    assert!(first.lost < second.missed && first.steps > second.steps, "{first:?} {second:?}");
    assert_eq!((first.flushed, second.flushed), (own, own));
}

#[test]
fn a_hazard_pointer_moves_on_with_the_page_that_leaves() {
    let setup = alone(&small(1));
    let list = FlushList::new([true, false, false, true], false);
    let mut world = World::new(&setup, list);
    world.held(1);
    world.ends_io(1, setup.io_ns / 2);
    let (tally, whole) = Scanner::new(&setup, &mut world).run(Scan::Hazard);
    assert!(whole);
    assert_eq!((tally.flushed, tally.scans, tally.steps), (2, 1, 3));
}

#[test]
fn writers_stop_under_the_restarting_scan_and_not_under_ours() {
    let mut setup = Setup::new(10, 11);
    setup.own = 900;
    setup.limit_s = 60;
    setup.shown_s = 8;
    let outcome = run(&setup).expect("the engine builds");
    let ratio = |name| outcome.value(name, "worst / before").expect("a ratio");
    assert!(ratio("restart") < 0.9 * ratio("evenkeel"), "{}", outcome.text());
    assert!(ratio("evenkeel") > 0.9, "{}", outcome.text());
    let looked = |name| outcome.value(name, "entries looked at").expect("counted");
    assert!(looked("evenkeel") * 1000.0 < looked("hazard pointer"), "{}", outcome.text());
    assert_eq!(run(&setup).expect("again").text(), outcome.text(), "it repeats");
}

#[test]
fn a_build_by_the_engine_writes_its_index_and_no_page_of_it() {
    let one = ours::build(1 << 20, 5).expect("built");
    let two = ours::build(2 << 20, 5).expect("built");
    assert!(one.bytes > 0 && one.pages < 64, "{one:?}");
    let (bytes, rows) = (two.bytes as f64 / one.bytes as f64, two.rows as f64 / one.rows as f64);
    assert!((bytes / rows - 1.0).abs() < 0.2, "{one:?} {two:?}");
    assert!(two.pages < one.pages + 16, "pages do not grow with the index: {one:?} {two:?}");
}

/// The scans are compared with a run in which the engine builds the index: its runs share the disk
/// with the cleaner, its pages join and leave, and the writers hardly slow down.
#[test]
fn our_build_shares_the_disk_with_the_cleaner() {
    let setup = Setup { before_s: 1, ..Setup::new(10, 2) };
    let quiet = ours::run(&setup, 4, &Built::default());
    // The cleaner needs three quarters of two seconds of this disk.
    let built = Built { rows: 0, bytes: setup.disk_bytes_per_sec / 2, pages: 3 };
    let built_in = ours::run(&setup, 4, &built);
    assert_eq!(built_in.build_looks, 2 * 2 * built.pages, "two counters, each page in and out");
    let alone = built.bytes as f64 / setup.disk_bytes_per_sec as f64;
    let took = built_in.ddl_s.expect("it ended");
    assert!(took > 1.5 * alone && took < 3.0, "{took} s for what takes {alone} s alone");
    assert_eq!(quiet.ddl_s.map(|s| s < 0.01), Some(true), "nothing to write");
    let (without, beside) = (quiet.flushed, built_in.flushed);
    assert!(without.abs_diff(beside) < without / 10, "the cleaner wrote {beside} of {without}");
    let least = |ours: &ours::Ours| ours.done[1..].iter().copied().min();
    assert!(least(&built_in) > least(&quiet).map(|n| n * 9 / 10), "{:?}", built_in.done);
}

/// Buckets as a plain row: the bucket of each dirty page, and of each frame that was not handed to
/// a cleaner. The entries of the engine's maps that are visited follow from an examination of every
/// page each time.
#[derive(Default)]
struct ByHand {
    bucket_bytes: u64,
    pages: Vec<u64>,
    frames: Vec<(u64, u32)>,
    joined: u32,
    /// Frames whose pages are clean again.
    left: BTreeSet<u32>,
    /// A bucket, with the frames that were taken together from it and are not yet handed to a
    /// cleaner.
    drained: (u64, VecDeque<u32>),
    last: Option<(u64, u64)>,
}

impl ByHand {
    /// Different buckets among some pages.
    fn buckets(&self, is: impl Fn(u64) -> bool) -> u64 {
        let mut all: Vec<u64> = self.pages.iter().copied().filter(|b| is(*b)).collect();
        all.sort_unstable();
        all.dedup();
        all.len() as u64
    }

    fn older(&self, lsn: u64) -> u64 {
        self.buckets(|bucket| bucket * self.bucket_bytes < lsn)
    }

    /// The numbers of entries that an operation visits each time it holds the mutex.
    fn looks(&mut self, op: Op) -> Vec<u64> {
        match op {
            Op::Join(end) => {
                self.pages.push(end.0 / self.bucket_bytes);
                self.frames.push((end.0 / self.bucket_bytes, self.joined));
                self.joined += 1;
                vec![2]
            }
            Op::Leave(number, frame) => {
                self.left.insert(frame);
                // Its number has room for parts.
                let bucket = number / 4096;
                let at = self.pages.iter().position(|p| *p == bucket);
                self.pages.remove(at.expect("the bucket has a page"));
                if !self.pages.contains(&bucket) {
                    self.frames.retain(|frame| frame.0 != bucket);
                }
                vec![2]
            }
            Op::Older(lsn) => vec![self.older(lsn.0)],
            Op::Take(pages) => self.take(pages),
            Op::Tick(now, around) => {
                let (at, before) = self.last.unwrap_or((0, around.end.0));
                let speed = (around.end.0 - before) * 1_000_000_000 / (now - at);
                self.last = Some((now, around.end.0));
                let (target, trigger) = (around.log_bytes / 8 * 3, around.log_bytes / 8 * 5);
                let end = around.end.0;
                let over = end.saturating_sub(target);
                let due = [10, 20, 40].map(|sec| (end + speed * sec).saturating_sub(trigger));
                let asked = due.into_iter().chain([over, over + speed]);
                let oldest = self.buckets(|_| true).min(1);
                asked.map(|lsn| self.older(lsn)).chain([oldest]).collect()
            }
        }
    }

    fn take(&mut self, pages: u64) -> Vec<u64> {
        let (mut looks, mut taken) = (Vec::new(), 0);
        while taken < pages {
            if self.drained.1.is_empty() {
                let Some(oldest) = self.frames.iter().map(|frame| frame.0).min() else {
                    looks.push(self.buckets(|_| true));
                    return looks;
                };
                // The buckets before it are empty except for pages that are being written.
                looks.push(self.buckets(|bucket| bucket <= oldest));
                let some = self.frames.iter().filter(|frame| frame.0 == oldest);
                self.drained = (oldest, some.map(|frame| frame.1).collect());
                self.frames.retain(|frame| frame.0 != oldest);
            } else {
                // A frame may have been put back into an older bucket; here none was.
                looks.push(self.buckets(|bucket| bucket < self.drained.0));
            }
            while taken < pages
                && let Some(frame) = self.drained.1.pop_front()
            {
                taken += u64::from(!self.left.contains(&frame));
            }
        }
        looks
    }
}

#[test]
fn bucket_visits_equal_a_count_by_hand() {
    for seed in 0..3 {
        let setup = Setup { before_s: 1, ..Setup::new(1000, seed) };
        let built = Built { rows: 0, bytes: 200 << 20, pages: 3 };
        let (ours, ops) = ours::run_noted(&setup, 3, &built);
        let bucket_bytes = ours::log_bytes(&setup) / 128;
        let mut by_hand = ByHand { bucket_bytes, ..ByHand::default() };
        let (first, rest) = ops.split_at(setup.pages as usize);
        let mut most = 0;
        let mut sum = |ops: &[Op]| {
            let mut sum = 0;
            for op in ops {
                let looks = by_hand.looks(*op);
                most = looks.iter().copied().fold(most, u64::max);
                sum += looks.iter().sum::<u64>();
            }
            sum
        };
        assert_eq!(sum(first), 2 * setup.pages, "seed {seed}");
        assert_eq!((sum(rest), most), (ours.looks, ours.looks_most), "seed {seed}");
        let joins = rest.iter().filter(|op| matches!(op, Op::Join(_))).count() as u64;
        let leaves = rest.iter().filter(|op| matches!(op, Op::Leave(..))).count() as u64;
        assert_eq!((joins, leaves), (ours.joined, ours.flushed), "seed {seed}");
        assert!(leaves > setup.pages, "seed {seed}: every bucket was met");
    }
}

#[test]
fn buckets_look_at_the_same_few_entries_however_many_pages_are_dirty() {
    let one = Setup { writers: 16, ..Setup::new(400, 2) };
    let two = Setup { pages: 2 * one.pages, ..one.clone() };
    let none = Built::default();
    let (one, two) = (ours::run(&one, 4, &none), ours::run(&two, 4, &none));
    assert!(one.flushed > 0 && two.flushed > 0, "{one:?}");
    let per_page = |o: &ours::Ours| o.looks as f64 / (o.joined + o.flushed) as f64;
    assert!(per_page(&one) < 3.0 && per_page(&two) < 3.0, "{} {}", per_page(&one), per_page(&two));
}
