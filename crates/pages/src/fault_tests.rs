//! Interleavings under the seeded scheduler, rot, failed writes and syncs, full disks.

use crate::flush::cleaner::Need;
use crate::flush::doublewrite::REGIONS;
use crate::test_support::{self, Fixture, put};
use crate::{Access, Mtr, PageRedo};
use evenkeel_base::metrics::Metric;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, Code, Error, Kind, Lsn, PageNo, Result, TreeId};
use evenkeel_format::page::HEADER_BYTES;
use evenkeel_format::record::{PageOp, RecordKind, put_page_op};
use evenkeel_format::space::ranges_of;
use evenkeel_io::sim::{
    CrashPolicy, Fault, FaultKind, Session, SimDisk, SimEnv, SimOptions, When, catch_crash,
};
use evenkeel_io::{Event, Rng, Runtime};
use evenkeel_log::Share;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const FRAMES: usize = 64;
const LOG_BYTES: u64 = 1 << 20;

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

/// Content of a page in the sessions test: one number, repeated.
fn number(page: &[u8]) -> u64 {
    let first = u64::from_le_bytes(page[..8].try_into().expect("8 bytes"));
    assert!(page[..4000].chunks_exact(8).all(|w| w == &page[..8]), "seen half changed");
    first
}

/// Moves 1 from one page to another in one mini-transaction, so the sum stays.
fn transfer(rig: &Fixture, a: PageNo, b: PageNo) -> Result<Lsn> {
    let mut reserved = rig.log.reserve(10 << 10, Share::User)?;
    let mut mtr = rig.pages.begin(2)?;
    // Latches are taken in order of page number.
    let low = mtr.write(a.min(b))?;
    let high = mtr.write(a.max(b))?;
    let (from, to) = if a < b { (low, high) } else { (high, low) };
    let (x, y) = (number(mtr.page(from)), number(mtr.page(to)));
    put(&mut mtr, from, 0, &x.wrapping_sub(1).to_le_bytes().repeat(500));
    put(&mut mtr, to, 0, &y.wrapping_add(1).to_le_bytes().repeat(500));
    Ok(mtr.commit(&mut reserved))
}

/// The log has lost its last blocks without a trace (B1).
#[test]
fn a_page_newer_than_the_end_of_the_log_is_refused() {
    let sim = quiet(SimDisk::new(1), 1);
    let rig = test_support::create(sim.runtime(), FRAMES, LOG_BYTES).expect("creates");
    let (page, lsn) = rig.alloc(7, None, 1).expect("allocates");
    let mut body = Vec::new();
    put_page_op(&mut body, PageOp { page, op: 40, payload: b"old" });
    let redo = |end| {
        let redo = PageRedo::new(&rig.pages, &test_support::Bytes).ending_at(end);
        redo.apply(Lsn(1), RecordKind::Page, &body)
    };
    let error = redo(lsn).expect_err("it has a change from behind the end");
    assert_eq!(error.code(), Code::LogDamaged, "{error}");
    redo(Lsn(lsn.0 + 1)).expect("its last change is the last of the log");
}

#[derive(Default)]
struct Known {
    redo_from: Lsn,
    transfers: u64,
    /// Pages that sessions own in addition, each in a tree of its own.
    owned: BTreeSet<PageNo>,
    drops: u64,
}

/// Takes checkpoints so that the log does not fill: its buckets are wider than this small log, so
/// the pacing law alone would not prevent that.
fn checkpointer(rig: &Arc<Fixture>, known: &Arc<Mutex<Known>>) {
    let (rt, rig, known) = (rig.rt.clone(), rig.clone(), known.clone());
    let body = move || {
        let pressure = rig.log.pressure();
        while !rig.rt.health.is_failed() {
            let seen = pressure.now();
            if rig.log.beat().is_err() {
                return;
            }
            if rig.log.age() > rig.log.age_target() / 2 {
                let Ok(_) = rig.pages.flush_batch(Vec::new(), 100, Need::Required) else { return };
                let Ok(from) = rig.checkpoint() else { return };
                let Ok(()) = rig.log.set_checkpoint(from) else { return };
                let mut known = known.lock();
                known.redo_from = known.redo_from.max(from);
                continue;
            }
            let time = Some(std::time::Duration::from_millis(5));
            rig.rt.wait(&pressure, seen, time, Cause::Idle);
        }
    };
    rt.spawn("checkpoint", body).expect("a thread");
}

/// 150 pages with 1,000 each, durable.
fn prepare(rt: Arc<Runtime>) -> Result<(Fixture, Vec<PageNo>)> {
    let rig = test_support::create(rt, FRAMES, LOG_BYTES)?;
    let mut pages = Vec::new();
    for _ in 0..150 {
        rig.pages.make_room(8)?;
        pages.push(rig.alloc(1, pages.last().copied(), 0)?.0);
        rig.mtr(1, |mtr| {
            let slot = mtr.write(pages[pages.len() - 1])?;
            put(mtr, slot, 0, &1000u64.to_le_bytes().repeat(500));
            Ok(())
        })?;
    }
    rig.log.wait_durable(rig.log.end())?;
    let from = rig.checkpoint()?;
    rig.log.set_checkpoint(from)?;
    Ok((rig, pages))
}

/// Sessions on few frames with all background threads; half of the runs end in a crash.
fn sessions(seed: u64) -> (u64, u64) {
    let sim = SimEnv::new(seed);
    let rt = sim.runtime();
    let setup = catch_crash(|| prepare(rt.clone()));
    let (rig, pages) = match setup {
        Some(Ok(done)) => (Arc::new(done.0), Arc::new(done.1)),
        other => panic!("seed {seed}: {:?}", other.map(|r| r.err())),
    };
    let known =
        Arc::new(Mutex::new(Known { redo_from: rig.log.checkpoint_lsn(), ..Known::default() }));
    let mut rng = Rng::new(seed);
    if seed.is_multiple_of(2) {
        sim.disk().crash_at(sim.disk().calls() + 20 + rng.below(600));
    }
    let stop = rig.background();
    checkpointer(&rig, &known);
    let bodies: Vec<Session> = (0..4)
        .map(|i| {
            let (rig, pages, known) = (rig.clone(), pages.clone(), known.clone());
            let mut rng = Rng::new(seed * 8 + i + 1);
            Box::new(move || session(&rig, &pages, &known, &mut rng, 10 + i as u32)) as Session
        })
        .collect();
    sim.run(bodies);
    assert!(
        !rt.health.is_failed() || sim.is_crashed(),
        "seed {seed}: {:?}",
        rt.health.first_error()
    );
    if !sim.is_crashed() {
        let owned = known.lock().owned.len() as u64;
        assert_eq!(rig.pages.space_stats().pages, 150 + owned, "seed {seed}");
    }
    let evictions = rt.metrics.get(Metric::Evictions);
    assert!(rt.metrics.get(Metric::FlushDone) <= rt.metrics.get(Metric::FlushRequested) + 600);
    drop(stop);
    let after = sim.crash(CrashPolicy::ALL[(seed % 9) as usize], seed);
    let survivor = quiet(after.disk().clone(), seed);
    let from = known.lock().redo_from;
    let recovered = test_support::recover(survivor.runtime(), FRAMES, LOG_BYTES, from, 1);
    let (again, _) = recovered.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let values = pages.iter().map(|p| {
        let page = again.pages.read(*p, Access::Normal);
        number(&page.unwrap_or_else(|e| panic!("seed {seed}: {e}")))
    });
    assert_eq!(values.sum::<u64>(), 150 * 1000, "seed {seed}: half a mini-transaction");
    again.pages.flush_all().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let at = again.checkpoint().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    again.log.set_checkpoint(at).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let orphans: Vec<TreeId> = again.pages.trees().into_iter().filter(|t| t.0 != 1).collect();
    for tree in orphans {
        again.pages.free_tree(tree).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    assert_eq!(again.pages.space_stats().pages, 150, "seed {seed}: pages of nobody");
    (known.lock().transfers, evictions)
}

/// Allocates or frees pages of the session's own tree, or drops the tree.
fn own_pages(
    rig: &Fixture,
    known: &Mutex<Known>,
    rng: &mut Rng,
    tree: u32,
    mine: &mut Vec<PageNo>,
) -> Result<()> {
    match rng.below(8) {
        0 => {
            known.lock().owned.retain(|page| !mine.contains(page));
            known.lock().drops += 1;
            mine.clear();
            rig.pages.free_tree(TreeId(tree))
        }
        1 | 2 if !mine.is_empty() => {
            let page = mine.swap_remove(rng.below(mine.len() as u64) as usize);
            let mut reserved = rig.log.reserve(4096, Share::User)?;
            let mut mtr = rig.pages.begin(2)?;
            let slot = mtr.write(page)?;
            assert_eq!((mtr.tree(slot), mtr.page(slot)[0]), (TreeId(tree), tree as u8));
            mtr.free(slot)?;
            known.lock().owned.remove(&page);
            mtr.commit(&mut reserved);
            Ok(())
        }
        _ => {
            let mut reserved = rig.log.reserve(8192, Share::User)?;
            let count = 1 + rng.below(12) as usize;
            let mut mtr = rig.pages.begin(count)?;
            let mut taken = Vec::new();
            for _ in 0..count {
                let slot = mtr.alloc(TreeId(tree), mine.last().copied())?;
                put(&mut mtr, slot, 0, &[tree as u8; 8]);
                taken.push(mtr.page_no(slot));
            }
            if rng.below(4) == 0 {
                return Ok(()); // Dropped: nothing happened.
            }
            mtr.commit(&mut reserved);
            for page in taken {
                assert!(known.lock().owned.insert(page), "{page} has two owners");
                mine.push(page);
            }
            Ok(())
        }
    }
}

fn session(rig: &Fixture, pages: &[PageNo], known: &Mutex<Known>, rng: &mut Rng, tree: u32) {
    let mut mine = Vec::new();
    for _ in 0..40 {
        let mut any = || pages[rng.below(pages.len() as u64) as usize];
        let (a, b) = (any(), any());
        let kind = rng.below(8);
        if kind < 4 && a != b {
            let Ok(lsn) = transfer(rig, a, b) else { return };
            known.lock().transfers += 1;
            if kind == 0 && rig.log.wait_durable(lsn).is_err() {
                return;
            }
        } else if kind == 5 {
            if own_pages(rig, known, rng, tree, &mut mine).is_err() {
                return;
            }
        } else if kind == 7 && rng.below(4) == 0 {
            let Ok(from) = rig.checkpoint() else { return };
            if rig.log.set_checkpoint(from).is_err() {
                return;
            }
            let mut known = known.lock();
            known.redo_from = known.redo_from.max(from);
        } else {
            match rig.pages.read(a, Access::Normal) {
                Ok(page) => drop(number(&page)),
                Err(_) => return,
            }
        }
    }
}

#[test]
fn sessions_keep_the_sum_under_seeded_schedules() {
    let (mut transfers, mut evictions) = (0, 0);
    for seed in 0..150 {
        let (t, e) = sessions(seed);
        transfers += t;
        evictions += e;
    }
    println!("{transfers} transfers, {evictions} evictions");
    assert!(transfers > 1000 && evictions > 1000);
}

/// A closed page space of 60 pages of tree 1, each full of its ordinal.
fn closed() -> Result<(SimDisk, Vec<PageNo>, Lsn)> {
    let sim = quiet(SimDisk::new(3), 3);
    let rig = test_support::create(sim.runtime(), 128, LOG_BYTES)?;
    let mut pages = Vec::new();
    for i in 0..60 {
        pages.push(rig.alloc(1, None, i)?.0);
    }
    rig.pages.flush_all()?;
    let from = rig.checkpoint()?;
    let disk = sim.disk().crash(CrashPolicy::KeepAll, 1);
    Ok((disk, pages, from))
}

#[test]
fn rot_is_found_and_named() -> Result<()> {
    let (disk, pages, from) = closed()?;
    let mut rng = Rng::new(11);
    for round in 0..300u64 {
        let page = pages[rng.below(60) as usize];
        let disk = disk.crash(CrashPolicy::KeepAll, round);
        let offset = page.0 * 4096 + rng.below(4096);
        assert!(disk.flip_bit("pages/000000.pg", offset, rng.below(8) as u8));
        let sim = quiet(disk, round);
        let (rig, _) = test_support::recover(sim.runtime(), 128, LOG_BYTES, from, 1)?;
        for wanted in &pages {
            let checked = rig.pages.check_page(*wanted);
            let read = rig.pages.read(*wanted, Access::Normal);
            if *wanted != page {
                assert!(checked?.is_some() && read.is_ok());
                continue;
            }
            for error in [checked.err(), read.err()] {
                let error = error.expect("found");
                assert_eq!(error.kind(), Kind::Corrupt, "{error}");
                assert_eq!(error.context("file"), Some("pages/000000.pg"));
                assert_eq!(error.context("page"), Some(&*page.to_string()));
                assert_eq!(error.context("offset"), Some(&*(page.0 * 4096).to_string()));
            }
        }
        assert_eq!(rig.rt.metrics.get(Metric::TornPagesRepaired), 0, "no copy is young enough");
    }
    Ok(())
}

#[test]
fn misplaced_pages_are_found() -> Result<()> {
    let (disk, pages, from) = closed()?;
    let content = disk.content("pages/000000.pg").expect("there");
    let at = |page: PageNo| page.0 as usize * 4096;
    let image = content[at(pages[5])..at(pages[5]) + 4096].to_vec();
    assert!(disk.corrupt("pages/000000.pg", at(pages[9]) as u64, &image));
    let sim = quiet(disk, 1);
    let (rig, _) = test_support::recover(sim.runtime(), 128, LOG_BYTES, from, 1)?;
    let error = rig.pages.read(pages[9], Access::Normal).err().expect("misdirected");
    assert_eq!(error.code(), Code::PageIdentity);
    assert!(rig.pages.read(pages[5], Access::Normal).is_ok());
    Ok(())
}

fn dirty(sim: &SimEnv, rt: &Arc<Runtime>) -> Result<(Fixture, PageNo)> {
    let rig = test_support::create(rt.clone(), 128, LOG_BYTES)?;
    let (page, _) = rig.alloc(1, None, 1)?;
    rig.pages.flush_all()?;
    rig.mtr(1, |mtr| {
        let slot = mtr.write(page)?;
        put(mtr, slot, 0, &[2; 64]);
        Ok(())
    })?;
    sim.disk().clear_faults();
    Ok((rig, page))
}

#[test]
fn a_failed_write_or_sync_stops_writes_and_loses_nothing() -> Result<()> {
    for (file, kind) in [
        ("pages/", FaultKind::WriteError),
        ("pages/", FaultKind::ShortWrite),
        ("pages/", FaultKind::SyncError),
        ("dw", FaultKind::WriteError),
        ("dw", FaultKind::SyncError),
    ] {
        let sim = quiet(SimDisk::new(5), 5);
        let rt = sim.runtime();
        let (rig, page) = dirty(&sim, &rt)?;
        sim.disk().inject(Fault::on(file, kind, When::Nth(1)));
        assert!(rig.pages.flush_all().is_err(), "{file} {kind:?}");
        assert!(rt.health.is_failed());
        assert_eq!(rig.pages.begin(1).err().map(|e| e.kind()), Some(Kind::ReadOnly));
        assert_eq!(rig.pages.clean_beat()?, evenkeel_base::Beat::Idle);
        // The page stays readable and counted: no checkpoint can pass it.
        assert_eq!(rig.pages.read(page, Access::Normal)?[0], 2);
        let oldest = rig.pages.oldest_dirty_lsn().expect("is dirty");
        rig.log.wait_durable(rig.log.end())?;
        let disk = sim.disk().crash(CrashPolicy::RandomSectors, 7);
        let again = quiet(disk, 6);
        let (rig, _) = test_support::recover(again.runtime(), 128, LOG_BYTES, oldest, 1)?;
        assert_eq!(rig.pages.read(page, Access::Normal)?[0], 2, "{file} {kind:?}");
    }
    Ok(())
}

/// Every frame holds a page that can no longer be written: reads continue in further frames and
/// find the changes. The pool no longer shrinks.
#[test]
fn reads_continue_in_an_all_dirty_pool_after_writes_stop() -> Result<()> {
    const FRAMES: usize = 96;
    let sim = quiet(SimDisk::new(5), 5);
    let rig = test_support::create(sim.runtime(), FRAMES, LOG_BYTES)?;
    rig.pages.free_frames_beat()?;
    let mut pages = Vec::new();
    for _ in 0..3 * FRAMES {
        if rig.pages.free_list.available() < 8 {
            rig.pages.flush_all()?;
            for frame in 0..FRAMES as u32 / 2 {
                rig.pages.evict(frame);
            }
        }
        pages.push(rig.alloc(7, pages.last().copied(), 0)?.0);
    }
    let is_there = |page: &&PageNo| rig.pages.translation.get(**page).is_some();
    let changed: Vec<PageNo> = pages.iter().filter(is_there).copied().collect();
    for page in &changed {
        rig.mtr(1, |mtr| {
            let slot = mtr.write(*page)?;
            put(mtr, slot, 0, &[9]);
            Ok(())
        })?;
    }
    for frame in 0..FRAMES as u32 {
        rig.pages.evict(frame);
    }
    rig.pages.take_credits(rig.pages.free_list.available() as usize)?;
    rig.rt.health.fail(Error::new(Code::WriteFailed));
    rig.pages.free_frames_beat()?;
    for round in 0..3 {
        for page in &pages {
            let first = rig.pages.read(*page, Access::Normal)?[0];
            assert_eq!(first == 9, changed.contains(page), "{page:?} in round {round}");
        }
        rig.pages.resize(64 * 4096)?;
        while rig.pages.free_frames_beat()? == evenkeel_base::Beat::More {}
    }
    let frames = rig.pages.frames.count();
    assert!((FRAMES + 1..=FRAMES + 128).contains(&frames), "{frames} frames");
    Ok(())
}

/// A transaction that outlives the close has no provider of frames. It takes any frame that can be
/// evicted, even if all were used recently, and gets an error if there is none.
#[test]
fn no_thread_waits_for_a_frame_after_close() -> Result<()> {
    const FRAMES: usize = 512;
    let sim = quiet(SimDisk::new(5), 5);
    let rig = test_support::create(sim.runtime(), FRAMES, LOG_BYTES)?;
    let mut last = None;
    for _ in 0..FRAMES / 2 {
        last = Some(rig.alloc(7, last, 0)?.0);
    }
    rig.pages.flush_all()?;
    rig.pages.free_frames_beat()?;
    for frame in 0..FRAMES as u32 {
        rig.pages.frames.facts(frame).touch();
    }
    rig.pages.take_credits(rig.pages.free_list.available() as usize)?;
    rig.rt.health.close();
    let mut found = 0;
    let error = loop {
        match rig.pages.take_credits(1) {
            Ok(()) => found += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), Code::DatabaseClosed);
    assert!(found >= FRAMES / 2, "{found} found");
    assert_eq!(rig.rt.stalls.get(Cause::FreeFrame).count, 0);
    Ok(())
}

/// Redo threads free frames for themselves; another thread may take such a frame before the credit
/// is taken.
#[test]
fn a_thread_frees_frames_itself_when_there_is_no_provider() -> Result<()> {
    let sim = quiet(SimDisk::new(5), 5);
    let rig = test_support::create(sim.runtime(), FRAMES, LOG_BYTES)?;
    // Some space map pages are dirty too.
    while rig.pages.free_list.available() > 8 {
        rig.alloc(7, None, 0)?;
    }
    let dirty = rig.pages.dirty_pages();
    rig.pages.take_credits(FRAMES / 2)?;
    assert!(rig.pages.dirty_pages() < dirty && rig.pages.free_list.available() >= 0);
    Ok(())
}

/// A pool so short of frames that every beat has a batch of cold pages; the pages that hold up the
/// checkpoint are in use, so they are never cold.
#[test]
fn cold_pages_do_not_keep_the_log_full() -> Result<()> {
    let sim = quiet(SimDisk::new(5), 5);
    let rig = test_support::create(sim.runtime(), 1024, LOG_BYTES)?;
    for _ in 0..20 {
        rig.alloc(1, None, 0)?;
    }
    let mut young = Vec::new();
    for _ in 0..600 {
        young.push(rig.alloc(2, None, 0)?.0);
    }
    let frames: Vec<u32> = young.iter().filter_map(|p| rig.pages.translation.get(*p)).collect();
    while rig.pages.required_pages() == 0 {
        rig.mtr(1, |mtr| {
            let slot = mtr.write(young[0])?;
            put(mtr, slot, 0, &[1; 3000]);
            Ok(())
        })?;
    }
    for beat in 0..2 {
        *rig.pages.free_list.cold.lock() = frames.iter().copied().skip(beat).step_by(2).collect();
        rig.pages.clean_beat()?;
    }
    assert_eq!((rig.pages.required_pages(), rig.pages.dirty_pages_of(TreeId(1))), (0, 0));
    // The rest of each batch went to the requested pages.
    assert!(rig.rt.metrics.get(Metric::FlushDone) > 400);
    Ok(())
}

/// A freed page is still dirty when another tree gets it. The flush must not take a batch without
/// room for it as a sign that no page is left to write.
#[test]
fn a_flush_of_a_tree_waits_for_a_page_that_another_tree_freed() -> Result<()> {
    let sim = SimEnv::new(5);
    let rig = Arc::new(test_support::create(sim.runtime(), 128, LOG_BYTES)?);
    let (page, _) = rig.alloc(1, None, 1)?;
    rig.mtr(1, |mtr| {
        let slot = mtr.write(page)?;
        mtr.free(slot)?;
        mtr.page_mut(slot)[0] = 0;
        Ok(())
    })?;
    assert_eq!(rig.alloc(2, None, 2)?.0, page, "the same page");
    let mut spaces = Vec::new();
    while let Some(space) = rig.pages.cleaner.workspace(4096, REGIONS) {
        spaces.push(space);
    }
    let is_done = Arc::new(AtomicBool::new(false));
    let (flusher, done) = (rig.clone(), is_done.clone());
    let flush = move || {
        flusher.pages.flush_pages(&ranges_of(&[page])).expect("flushes");
        done.store(true, SeqCst);
    };
    let giver = rig.clone();
    let give = move || {
        giver.rt.delay(std::time::Duration::from_millis(100), Cause::Idle);
        assert!(!is_done.load(SeqCst), "it is not durable yet");
        giver.pages.cleaner.spare.lock().idle.append(&mut spaces);
    };
    sim.run(vec![Box::new(flush), Box::new(give)]);
    let content = sim.disk().crash(CrashPolicy::LoseAll, 5).content("pages/000000.pg");
    let at = page.0 as usize * 4096 + HEADER_BYTES;
    assert_eq!(content.expect("there")[at..at + 64], [2; 64]);
    Ok(())
}

/// A thread that waits for pages which another thread is flushing sleeps: the speed of the device
/// does not determine how often it checks.
#[test]
fn a_flush_sleeps_while_another_thread_writes_its_pages() -> Result<()> {
    let sim = SimEnv::new(5);
    let rig = Arc::new(test_support::create(sim.runtime(), 128, LOG_BYTES)?);
    let (page, _) = rig.alloc(1, None, 1)?;
    let frame = rig.pages.translation.get(page).expect("resident");
    rig.log.wait_durable(rig.log.end())?;
    // Writing the page and its copy takes seconds.
    sim.set_device(1_000);
    let (writer, flusher, before) = (rig.clone(), rig.clone(), sim.switches());
    let write = move || {
        assert_eq!(writer.pages.flush_batch(vec![frame], 0, Need::Required).expect("writes"), 1);
    };
    let flush = move || {
        flusher.rt.delay(std::time::Duration::from_millis(50), Cause::Idle);
        let start = flusher.rt.env.now_ns();
        flusher.pages.flush_pages(&ranges_of(&[page])).expect("flushes");
        assert!(flusher.rt.env.now_ns() - start > 1_000_000_000, "it was being written");
    };
    sim.run(vec![Box::new(write), Box::new(flush)]);
    assert!(sim.switches() - before < 10_000, "{} hand-overs", sim.switches() - before);
    Ok(())
}

/// A flush of all pages covers the pages that are dirty when it begins: other threads may continue
/// to write.
#[test]
fn a_flush_of_all_pages_ends_while_writers_continue() -> Result<()> {
    const LIMIT_NS: u64 = 10_000_000_000;
    for seed in 0..20 {
        let sim = SimEnv::new(seed);
        let rig = Arc::new(test_support::create(sim.runtime(), 128, 64 << 20)?);
        let pages = [rig.alloc(1, None, 1)?.0, rig.alloc(2, None, 1)?.0];
        let end = rig.log.end();
        let left = Arc::new(std::sync::atomic::AtomicUsize::new(1));
        let mut sessions: Vec<Session> = Vec::new();
        for page in pages {
            let (rig, left) = (rig.clone(), left.clone());
            sessions.push(Box::new(move || {
                while left.load(SeqCst) > 0 {
                    assert!(rig.rt.env.now_ns() < LIMIT_NS, "seed {seed}: it goes on and on");
                    let change = |mtr: &mut Mtr<'_>| {
                        let slot = mtr.write(page)?;
                        put(mtr, slot, 0, &[2; 64]);
                        Ok(())
                    };
                    let lsn = rig.mtr(1, change).expect("changes");
                    rig.log.wait_durable(lsn).expect("syncs");
                }
            }));
        }
        let flusher = rig.clone();
        sessions.push(Box::new(move || {
            flusher.pages.flush_all().expect("flushes");
            assert!(flusher.pages.oldest_dirty_lsn().is_none_or(|oldest| oldest >= end));
            left.store(0, SeqCst);
        }));
        sim.run(sessions);
        rig.pages.flush_all()?;
        assert_eq!((rig.pages.dirty_pages(), rig.pages.oldest_dirty_lsn()), (0, None));
    }
    Ok(())
}

/// The system reports lost bytes to one sync, which may not be the sync of the writer.
#[test]
fn a_write_is_durable_only_if_no_concurrent_sync_failed() -> Result<()> {
    let mut counted = 0;
    for seed in 0..60 {
        let sim = SimEnv::new(seed);
        let rig = Arc::new(test_support::create(sim.runtime(), 128, LOG_BYTES)?);
        let mut pages = Vec::new();
        for tree in [1, 2] {
            pages.push(rig.alloc(tree, None, 1)?.0);
        }
        rig.pages.flush_all()?;
        for page in &pages {
            rig.mtr(1, |mtr| {
                let slot = mtr.write(*page)?;
                put(mtr, slot, 0, &[2; 64]);
                Ok(())
            })?;
        }
        sim.disk().inject(Fault::on("pages/", FaultKind::SyncError, When::Nth(1)));
        let written = Arc::new(Mutex::new(Vec::new()));
        let sessions = pages.iter().map(|page| {
            let (rig, page, written) = (rig.clone(), *page, written.clone());
            let body = move || {
                if rig.pages.flush_pages(&ranges_of(&[page])).is_ok() {
                    written.lock().push(page);
                }
            };
            Box::new(body) as Session
        });
        sim.run(sessions.collect());
        assert!(rig.rt.health.is_failed());
        let content = sim.disk().crash(CrashPolicy::LoseAll, seed).content("pages/000000.pg");
        for page in written.lock().iter() {
            let at = page.0 as usize * 4096 + HEADER_BYTES;
            let content = content.as_ref().expect("there");
            assert_eq!(content[at..at + 64], [2; 64], "seed {seed}: page {page} is lost");
            counted += 1;
        }
    }
    println!("{counted} writes counted");
    Ok(())
}

#[test]
fn a_full_disk_is_an_error_of_the_statement_and_passes() -> Result<()> {
    let sim = quiet(SimDisk::new(5), 5);
    let rig = test_support::create(sim.runtime(), 1024, LOG_BYTES)?;
    sim.disk().set_capacity(Some(sim.disk().used_bytes() + (2 << 20)));
    let mut made = 0;
    let error = loop {
        rig.pages.make_room(16)?;
        match rig.alloc(1, None, 1) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        assert!(made < 2000);
    };
    assert_eq!(error.code(), Code::DiskFull);
    assert!(!rig.rt.health.is_failed());
    let stats = rig.pages.space_stats();
    assert_eq!(stats.pages, made);
    sim.disk().set_capacity(None);
    rig.alloc(1, None, 1)?;
    rig.pages.flush_all()?;
    assert_eq!(rig.pages.space_stats().pages, made + 1);
    Ok(())
}

/// The holder of a latch may wait for a frame, which the cleaner is to free.
#[test]
fn a_cleaner_on_a_full_disk_waits_for_no_latch() -> Result<()> {
    let sim = SimEnv::new(5);
    let rt = sim.runtime();
    let (rig, page) = dirty(&sim, &rt)?;
    let oldest = rig.pages.oldest_dirty_lsn();
    sim.disk().inject(Fault::on("pages/", FaultKind::NoSpace, When::From(1)));
    let (rig, done) = (Arc::new(rig), Arc::new((Arc::new(Event::new()), AtomicBool::new(false))));
    let (cleaner, end) = (rig.clone(), done.clone());
    let clean = move || {
        assert_eq!(cleaner.pages.flush_all().err().map(|e| e.code()), Some(Code::DiskFull));
        end.1.store(true, SeqCst);
        end.0.notify();
    };
    let (writer, until) = (rig.clone(), done);
    let write = move || {
        let frame = writer.pages.translation.get(page).expect("is dirty");
        while !writer.pages.frames.facts(frame).writing.load(SeqCst) {
            let soon = Some(std::time::Duration::from_micros(1));
            writer.rt.wait(&until.0, until.0.now(), soon, Cause::Idle);
        }
        let guard = writer.pages.frames.exclusive(frame);
        writer.rt.wait_until(&until.0, Cause::FreeFrame, || until.1.load(SeqCst));
        drop(guard);
    };
    sim.run(vec![Box::new(clean), Box::new(write)]);
    assert_eq!(rig.pages.oldest_dirty_lsn(), oldest);
    sim.disk().clear_faults();
    rig.pages.flush_all()?;
    assert_eq!((rig.pages.dirty_pages(), rig.pages.oldest_dirty_lsn()), (0, None));
    Ok(())
}

#[test]
fn the_cleaner_waits_out_a_full_disk() -> Result<()> {
    for file in ["pages/", "dw"] {
        let sim = quiet(SimDisk::new(5), 5);
        let rt = sim.runtime();
        let (rig, page) = dirty(&sim, &rt)?;
        let (before, oldest) = (rig.pages.dirty_pages(), rig.pages.oldest_dirty_lsn());
        sim.disk().inject(Fault::on(file, FaultKind::NoSpace, When::From(1)));
        assert_eq!(rig.pages.flush_all().err().map(|e| e.code()), Some(Code::DiskFull));
        assert!(!rt.health.is_failed());
        assert_eq!((rig.pages.dirty_pages(), rig.pages.oldest_dirty_lsn()), (before, oldest));
        sim.disk().clear_faults();
        rig.mtr(1, |mtr| {
            let slot = mtr.write(page)?;
            put(mtr, slot, 0, &[3; 64]);
            Ok(())
        })?;
        rig.pages.flush_all()?;
        assert_eq!(rig.pages.dirty_pages_of(TreeId(1)), 0);
        assert_eq!(rig.pages.oldest_dirty_lsn(), None);
    }
    Ok(())
}
