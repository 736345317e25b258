//! Crashes at every call to the disk, under every crash policy, and recovery from each: every
//! durable mini-transaction is recovered in full, and no other has an effect.
//!
//! Model: the effects of mini-transactions by LSN. After a crash the end of the log is known; the
//! pages must equal the effects below that position.

use crate::flush::cleaner::Need;
use crate::test_support::{self, Bytes, Fixture, WRITE, put};
use crate::{Access, Changes, PageRedo, Pages, PagesOptions};
use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Error, Lsn, PageNo, Result, TreeId};
use evenkeel_format::record::{PageOp, RecordKind, put_page_op};
use evenkeel_io::sim::{CrashPolicy, SimDisk, SimEnv, SimOptions, catch_crash};
use evenkeel_io::{AlignedBuf, IO_ALIGN, Rng};
use evenkeel_log::{Log, LogEnd, Replay, Share, replay};
use evenkeel_sched::Scheduler;
use std::collections::BTreeMap;

const FRAMES: usize = 96;
const LOG_BYTES: u64 = 1 << 20;

/// The change of one page by a mini-transaction: the content begins with this byte, or the page is
/// freed.
type Effect = (PageNo, Option<(u32, u8)>);

/// The state known outside of the simulated machine.
#[derive(Default, Clone)]
struct Outside {
    created: bool,
    /// Effects in order of LSN.
    effects: Vec<(Lsn, Vec<Effect>)>,
    /// Everything at or below this is durable.
    acked: Lsn,
    /// Where redo starts.
    redo_from: Lsn,
    /// A tree whose drop has begun and is not known to be complete and durable.
    dropping: Option<u32>,
    torn_repaired: u64,
}

impl Outside {
    fn pages(&self) -> BTreeMap<PageNo, (u32, u8)> {
        let mut pages = BTreeMap::new();
        for (page, state) in self.effects.iter().flat_map(|(_, effects)| effects) {
            match state {
                Some(state) => pages.insert(*page, *state),
                None => pages.remove(page),
            };
        }
        pages
    }
}

/// A machine that the test's own thread drives.
fn quiet(disk: SimDisk, seed: u64) -> SimEnv {
    let options = SimOptions {
        seed,
        step_switch: 0,
        wait_switch: 1 << 40,
        io_switch: 1 << 40,
        latency: false,
    };
    SimEnv::on(disk, options)
}

/// One random mini-transaction; `effects` records its changes.
fn mutate(
    rig: &Fixture,
    rng: &mut Rng,
    known: &BTreeMap<PageNo, (u32, u8)>,
    effects: &mut Vec<Effect>,
) -> Result<Lsn> {
    let any = |rng: &mut Rng| {
        let nth = rng.below(known.len().max(1) as u64) as usize;
        known.iter().nth(nth).map(|(page, state)| (*page, state.0))
    };
    let byte = rng.below(255) as u8 + 1;
    rig.pages.make_room(24)?;
    let mut reserved = rig.log.reserve(32 << 10, Share::User)?;
    match (rng.below(10), any(rng)) {
        (0..4, Some((page, tree))) => {
            let mut mtr = rig.pages.begin(1)?;
            let slot = mtr.write(page)?;
            put(&mut mtr, slot, 0, &[byte; 4000]);
            effects.push((page, Some((tree, byte))));
            Ok(mtr.commit(&mut reserved))
        }
        (4, Some((page, _))) => {
            let mut mtr = rig.pages.begin(2)?;
            let slot = mtr.write(page)?;
            mtr.free(slot)?;
            effects.push((page, None));
            Ok(mtr.commit(&mut reserved))
        }
        (5, Some((page, _))) => {
            let tree = rng.below(3) as u32 + 1;
            let mut mtr = rig.pages.begin(8)?;
            for i in 0..rng.below(6) as u8 + 1 {
                let slot = mtr.alloc(TreeId(tree), Some(page))?;
                put(&mut mtr, slot, 0, &[byte.wrapping_add(i); 4000]);
                effects.push((mtr.page_no(slot), Some((tree, byte.wrapping_add(i)))));
            }
            Ok(mtr.commit(&mut reserved))
        }
        _ => {
            let tree = rng.below(3) as u32 + 1;
            let mut mtr = rig.pages.begin(2)?;
            let slot = mtr.alloc(TreeId(tree), None)?;
            put(&mut mtr, slot, 0, &[byte; 4000]);
            effects.push((mtr.page_no(slot), Some((tree, byte))));
            Ok(mtr.commit(&mut reserved))
        }
    }
}

/// Works until the script ends or the machine crashes; `out` is correct at every moment.
fn work(rig: &Fixture, out: &Mutex<Outside>, rng: &mut Rng, steps: u64) -> Result<()> {
    for _ in 0..steps {
        match rng.below(16) {
            0 => {
                // Writes a part of the dirty pages.
                rig.pages.flush_batch(Vec::new(), 1 + rng.below(40) as usize, Need::Required)?;
            }
            1 => {
                let from = rig.checkpoint()?;
                rig.log.set_checkpoint(from)?;
                let mut out = out.lock();
                out.redo_from = out.redo_from.max(from);
            }
            2 => {
                let end = rig.log.end();
                rig.log.wait_durable(end)?;
                let mut out = out.lock();
                out.acked = out.effects.last().map_or(Lsn(0), |(lsn, _)| *lsn);
            }
            3 if rng.below(4) == 0 => {
                let tree = 1 + rng.below(3) as u32;
                out.lock().dropping = Some(tree);
                finish_drop(rig, out, tree)?;
            }
            4 => {
                rig.pages.reclaim_beat()?;
            }
            _ => {
                let known = out.lock().pages();
                let mut effects = Vec::new();
                let lsn = mutate(rig, rng, &known, &mut effects)?;
                out.lock().effects.push((lsn, effects));
            }
        }
    }
    Ok(())
}

/// Drops a tree (again, after a crash) and makes it durable: a drop is several mini-transactions.
fn finish_drop(rig: &Fixture, out: &Mutex<Outside>, tree: u32) -> Result<()> {
    rig.pages.free_tree(TreeId(tree))?;
    let end = rig.log.end();
    rig.log.wait_durable(end)?;
    let mut out = out.lock();
    let gone = out.pages().into_iter().filter(|(_, state)| state.0 == tree);
    let gone = gone.map(|(page, _)| (page, None)).collect();
    let last = out.effects.last().map_or(Lsn(0), |(lsn, _)| *lsn);
    out.effects.push((last, gone));
    (out.acked, out.dropping) = (last, None);
    Ok(())
}

/// Recovers the surviving files and compares.
fn recover(sim: &SimEnv, out: &Mutex<Outside>, epoch: u32, what: &str) -> Result<Fixture> {
    let rt = sim.runtime();
    // Changes that the log does not hold are lost for good as soon as a new epoch may begin.
    let found = |end: LogEnd| {
        let mut out = out.lock();
        let nothing_lost = out.acked == Lsn(0) || out.acked < end.end;
        assert!(nothing_lost, "{what}: acknowledged records lost");
        out.effects.retain(|(lsn, _)| *lsn < end.end);
    };
    let from = out.lock().redo_from;
    let (rig, _) = test_support::recover_with(rt.clone(), FRAMES, LOG_BYTES, from, epoch, found)?;
    let known = {
        let mut out = out.lock();
        out.torn_repaired += rt.metrics.get(Metric::TornPagesRepaired);
        out.clone()
    };
    let pages = known.pages();
    let certain = pages.iter().filter(|(_, (tree, _))| Some(*tree) != known.dropping);
    for (page, (tree, byte)) in certain {
        let read = rig.pages.read(*page, Access::UseOnce)?;
        let (seen, wanted) = ((read.tree(), read[0]), (TreeId(*tree), *byte));
        assert_eq!(seen, wanted, "{what}: page {page} at {}", read.lsn());
        assert!(read[..4000].iter().all(|b| b == byte), "{what}: page {page} is half changed");
    }
    if known.dropping.is_none() {
        assert_eq!(rig.pages.space_stats().pages, pages.len() as u64, "{what}: pages in use");
    }
    Ok(rig)
}

/// Lives until the script ends or a crash.
fn live(sim: &SimEnv, out: &Mutex<Outside>, rng: &mut Rng, epoch: u32, what: &str) -> Result<()> {
    let Outside { created, dropping, .. } = out.lock().clone();
    let rig = match created {
        true => recover(sim, out, epoch, what)?,
        false => test_support::create(sim.runtime(), FRAMES, LOG_BYTES)?,
    };
    out.lock().created = true;
    if let Some(tree) = dropping {
        finish_drop(&rig, out, tree)?;
    }
    work(&rig, out, rng, 150)
}

/// Three lives: a crash at call `call` of the first, at a random call of the second (which may be
/// in the middle of recovery), and a last recovery that nothing disturbs.
fn lives(seed: u64, call: u64, policy: CrashPolicy, torn: &mut u64) -> bool {
    let mut rng = Rng::new(seed);
    let out = Mutex::new(Outside::default());
    let mut disk = SimDisk::new(seed);
    let mut crashed = false;
    for life in 0..2u32 {
        let what = format!("seed {seed} call {call} life {life} {policy:?}");
        let sim = quiet(disk.clone(), seed + u64::from(life));
        let at = if life == 0 { call } else { 1 + rng.below(150) };
        sim.disk().crash_at(sim.disk().calls() + at);
        let result = catch_crash(|| live(&sim, &out, &mut rng, life, &what));
        if let Some(Err(error)) = &result {
            assert!(sim.is_crashed(), "{what}: {error}");
        }
        crashed |= life == 0 && sim.is_crashed();
        sim.disk().crash_now();
        // A later crash of the machine loses the writes that a killed process has not synced.
        let last = life > 0 && policy == CrashPolicy::Killed;
        let of = if last { CrashPolicy::ALL[rng.below(9) as usize] } else { policy };
        disk = sim.disk().crash(of, rng.below(1 << 40));
        if !out.lock().created {
            return crashed;
        }
    }
    let what = format!("seed {seed} call {call} last life {policy:?}");
    let sim = quiet(disk, seed);
    if let Err(error) = recover(&sim, &out, 5, &what) {
        panic!("{what}: {error}");
    }
    *torn += out.lock().torn_repaired;
    crashed
}

#[test]
fn crash_at_every_call() {
    let (mut states, mut torn) = (0, 0);
    for call in 1.. {
        let mut crashed = false;
        for (i, policy) in CrashPolicy::ALL.iter().enumerate() {
            crashed |= lives(call * 100 + i as u64, call, *policy, &mut torn);
            states += 2;
        }
        if !crashed {
            println!("{call} calls, {states} surviving disks, {torn} torn pages repaired");
            assert!(call > 100 && torn > 4);
            return;
        }
    }
}

/// The files of a process that was killed after it had written pages and their copies, and before
/// it synced them. Returns one of the pages and the start of redo.
fn killed_before_sync(options: PagesOptions) -> Result<(SimDisk, PageNo, Lsn)> {
    let mut last = None;
    for change in 1.. {
        let sim = quiet(SimDisk::new(1), 1);
        let rt = sim.runtime();
        let pages = Pages::create(Scheduler::new(rt.clone()), options)?;
        let log = Log::create(rt.clone(), test_support::log_options(LOG_BYTES, 1), Lsn(0))?;
        pages.attach_log(log.clone())?;
        let rig = Fixture { rt, pages, log };
        let mut all = Vec::new();
        for byte in 0..20 {
            all.push(rig.alloc(1, all.last().copied(), byte)?.0);
        }
        rig.pages.flush_all()?;
        let from = rig.checkpoint()?;
        for page in &all {
            rig.mtr(1, |mtr| {
                let slot = mtr.write(*page)?;
                put(mtr, slot, 0, &[99; 64]);
                Ok(())
            })?;
        }
        sim.disk().crash_at_change(sim.disk().changes() + change);
        if let Some(Ok(())) = catch_crash(|| rig.pages.flush_all()) {
            break;
        }
        // The last crash happens in the sync, when all pages are written.
        let disk = sim.disk().crash(CrashPolicy::Killed, 1);
        if disk.unsynced_of_killed("pages/") > 0 {
            last = Some((disk, all[0], from));
        }
    }
    last.ok_or_else(|| Error::internal("no page was written"))
}

/// Pages that a killed process has written and not synced are synced before the first batch of the
/// next process overwrites their copies.
#[test]
fn pages_are_synced_before_their_copies_go() -> Result<()> {
    let (disk, _, from) = killed_before_sync(test_support::options(FRAMES))?;
    let sim = quiet(disk, 2);
    Pages::open(Scheduler::new(sim.runtime()), test_support::options(FRAMES), from)?;
    assert_eq!(sim.disk().unsynced_of_killed("pages/"), 0);
    Ok(())
}

/// A copy of a page without its file is no error: the space map tells whether the file is missing.
#[test]
fn a_copy_without_a_file_is_left_alone() -> Result<()> {
    let sim = quiet(SimDisk::new(1), 1);
    let rt = sim.runtime();
    let pages = Pages::create(Scheduler::new(rt.clone()), test_support::options(FRAMES))?;
    let (page, bytes) = pages.geometry.new_segment(1).swap_remove(0);
    let mut image = AlignedBuf::new(bytes.len());
    image.copy_from_slice(&bytes);
    evenkeel_format::page::seal(&mut image, rt.database());
    let mut head = AlignedBuf::new(IO_ALIGN);
    pages.doublewrite.write(0, &mut head, &image, &[(page, true)])?;
    pages.doublewrite.restore(&pages.files, Lsn(0))
}

#[derive(Default)]
struct Records(Vec<(Lsn, RecordKind, Vec<u8>)>);

impl Replay for Records {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        self.0.push((lsn, kind, body.to_vec()));
        Ok(())
    }
}

/// Redo finds a page with a change that was never synced and adds a later one, from which on the
/// page is dirty: both must be durable when a checkpoint begins there.
#[test]
fn pages_that_redo_finds_in_part_are_synced() -> Result<()> {
    // Without copies: otherwise the open syncs the pages.
    let options = PagesOptions { doublewrite: false, ..test_support::options(FRAMES) };
    let (disk, page, from) = killed_before_sync(options)?;
    let sim = quiet(disk, 2);
    let (rt, mut records) = (sim.runtime(), Records::default());
    let pages = Pages::open(Scheduler::new(rt.clone()), options, from)?;
    let end = replay(&rt, from, None, &mut records)?.end;
    let mut body = Vec::new();
    put_page_op(&mut body, PageOp { page, op: WRITE, payload: &[0, 0, 7] });
    records.0.push((end, RecordKind::Page, body));
    let mut changes = Changes::default();
    for (lsn, kind, body) in &records.0 {
        changes.add(*lsn, *kind, body, |of| of == page)?;
    }
    let redo = PageRedo::new(&pages, &Bytes);
    redo.apply_all(changes)?;
    assert_eq!(redo.stats().applied, 1);
    assert!(sim.disk().unsynced_of_killed("pages/") > 0);
    redo.sync_found()?;
    assert_eq!(sim.disk().unsynced_of_killed("pages/"), 0);
    Ok(())
}
