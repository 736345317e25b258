//! The pool with real threads: consistency under eviction, one read per page, frames and latches.

use crate::flush::doublewrite::REGIONS;
use crate::pool::free_list::{Clock, Provided};
use crate::test_support::{self, Fixture, WRITE, put};
use crate::{Access, Pages};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Cause, Code, Lsn, PageNo, Result, TreeId};
use evenkeel_format::record::{PageOp, RecordKind, put_page_op};
use evenkeel_io::{Env, MemEnv, OpenMode, Rng, Runtime};
use evenkeel_log::Share;
use evenkeel_sched::Scheduler;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LOG_BYTES: u64 = 64 << 20;

fn rig(frames: usize) -> (Arc<MemEnv>, Fixture) {
    let env = Arc::new(MemEnv::new());
    let rig = test_support::create(Runtime::new(env.clone()), frames, LOG_BYTES).expect("creates");
    (env, rig)
}

/// Does the checkpointer's work, so that the log does not fill.
fn checkpoint(rig: &Fixture) {
    let at = rig.checkpoint().expect("durable");
    rig.log.set_checkpoint(at).expect("moves");
}

fn count(page: &[u8]) -> u64 {
    let first = u64::from_le_bytes(page[..8].try_into().expect("8 bytes"));
    let all = page[..4000].chunks_exact(8).all(|w| w == &page[..8]);
    assert!(all, "a page seen half changed");
    first
}

#[test]
fn threads_on_few_frames_see_consistent_pages() -> Result<()> {
    const PAGES: u64 = 300;
    let (env, rig) = rig(96);
    let stop = rig.background();
    let mut pages = Vec::new();
    for _ in 0..PAGES {
        pages.push(rig.alloc(7, pages.last().copied(), 0)?.0);
    }
    let written = AtomicU64::new(0);
    let seed = 42;
    println!("seed {seed}");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (rig, pages, written) = (&rig, &pages, &written);
            scope.spawn(move || worker(rig, pages, written, seed + thread));
        }
    });
    let value = |p: &PageNo| count(&rig.pages.read(*p, Access::Normal).expect("reads"));
    let total: u64 = pages.iter().map(value).sum();
    assert_eq!(total, written.load(Ordering::Relaxed));
    assert!(rig.rt.metrics.get(Metric::Evictions) > PAGES);
    assert!(rig.pages.translation.leaves_in_use() <= 96);
    stop.end();
    rig.pages.flush_all()?;
    assert_eq!((rig.pages.dirty_pages(), rig.pages.oldest_dirty_lsn()), (0, None));
    let m = &rig.rt.metrics;
    assert!(m.get(Metric::FlushDone) <= m.get(Metric::FlushRequested) + 512);
    drop(rig);
    let again = Pages::open(Scheduler::new(Runtime::new(env)), test_support::options(96), Lsn(0))?;
    let value = |p: &PageNo| count(&again.read(*p, Access::Normal).expect("reads"));
    let total: u64 = pages.iter().map(value).sum();
    assert_eq!(total, written.load(Ordering::Relaxed));
    Ok(())
}

/// The clock waits for frames that the cleaner will free. If the cleaner frees none, it notifies
/// the provider: a thread that wants more frames than the low mark wakes no other thread.
#[test]
fn the_clock_waits_for_the_cleaner_until_it_has_nothing_to_free() -> Result<()> {
    let (_, rig) = rig(512);
    let free_list = &rig.pages.free_list;
    assert_eq!((free_list.low(), free_list.high()), (16, 32));
    assert_eq!(free_list.cold_wanted(0, 0), 0, "all are free");
    assert!(free_list.try_credits(free_list.available() - 20));
    assert_eq!(free_list.cold_wanted(0, 0), 44);
    assert_eq!((free_list.cold_wanted(40, 0), free_list.cold_wanted(20, 20)), (4, 4));
    assert_eq!((free_list.cold_wanted(44, 0), free_list.cold_wanted(0, 44)), (0, 0));
    free_list.cold.lock().extend(100..144);
    assert_eq!(rig.pages.free_frames_beat()?, Beat::Idle);
    assert_eq!(free_list.cold.lock().len(), 44);
    let seen = free_list.event.now();
    rig.pages.clean_beat()?;
    assert_eq!((free_list.cold.lock().len(), free_list.leaving.load(Ordering::Relaxed)), (0, 0));
    assert_ne!(free_list.event.now(), seen, "nothing was written, and nobody was told");
    Ok(())
}

#[test]
fn an_older_doublewrite_file_gets_its_third_region() -> Result<()> {
    let (env, rig) = rig(96);
    drop(rig);
    let file = env.open("dw", OpenMode::READ_WRITE.direct())?;
    let whole = file.len()?;
    file.set_len(whole / 3 * 2)?;
    let pages =
        Pages::open(Scheduler::new(Runtime::new(env.clone())), test_support::options(96), Lsn(0))?;
    assert_eq!((file.len()?, pages.doublewrite.regions()), (whole, REGIONS));
    Ok(())
}

/// The queue to the cleaner may be full when many frames are wanted: the clock still finds clean
/// frames.
#[test]
fn a_full_queue_does_not_stop_the_clock() {
    let free_list = crate::pool::free_list::FreeList::new(100_000);
    assert!(free_list.try_credits(free_list.available()));
    assert_eq!(free_list.cold_wanted(crate::pool::free_list::COLD_MAX, 0), 4);
    assert_eq!(free_list.cold_wanted(0, 0), crate::pool::free_list::BEAT_COLD);
}

/// A step of the provider on a clock whose last frames are clean.
#[test]
fn a_step_queues_no_more_dirty_frames_than_are_wanted() {
    let free_list = crate::pool::free_list::FreeList::new(1_024);
    assert!(free_list.try_credits(free_list.available()) && free_list.gives_up());
    let mut hand = 0;
    let mut step = || {
        hand += 1;
        match hand {
            1..=200 => {
                free_list.queue_cold(hand);
                Clock::Cold
            }
            _ => {
                free_list.return_credits(1);
                Clock::Freed
            }
        }
    };
    // 64 are wanted, plus a batch: that is as many.
    let did =
        |freed, cold, wakes_cleaner, goes_on| Provided { freed, cold, wakes_cleaner, goes_on };
    assert_eq!(free_list.provide(1_024, &mut step), did(0, 128, true, false));
    assert_eq!(free_list.provide(1_024, &mut step), did(0, 0, true, false), "it stands still");
    let taken = free_list.take_cold(100);
    assert_eq!((taken.len(), taken[0], free_list.queued()), (100, 29, 28), "the last ones first");
    assert_eq!(free_list.provide(1_024, &mut step), did(0, 0, true, false), "they are leaving");
    let seen = free_list.event().now();
    free_list.have_left(100);
    assert_ne!(free_list.event().now(), seen, "none of them was given up");
    assert_eq!(free_list.provide(1_024, &mut step), did(64, 72, true, false));
    assert_eq!(free_list.provide(1_024, &mut step), did(0, 0, true, false));
    assert!(!free_list.gives_up());
    let seen = free_list.event().now();
    free_list.have_left(free_list.take_cold(100).len());
    assert_eq!(free_list.event().now(), seen, "enough are free");
}

fn worker(rig: &Fixture, pages: &[PageNo], written: &AtomicU64, seed: u64) {
    let mut rng = Rng::new(seed);
    for i in 0..3000u64 {
        let page = pages[rng.below(pages.len() as u64) as usize];
        if rng.below(3) == 0 {
            let lsn = rig.mtr(1, |mtr| {
                let slot = mtr.write(page)?;
                let value = count(mtr.page(slot)) + 1;
                put(mtr, slot, 0, &value.to_le_bytes().repeat(500));
                Ok(())
            });
            lsn.expect("commits");
            written.fetch_add(1, Ordering::Relaxed);
        } else {
            let access = if rng.below(4) == 0 { Access::UseOnce } else { Access::Normal };
            let read = rig.pages.read(page, access).expect("reads");
            assert_eq!((read.page_no(), read.tree()), (page, TreeId(7)));
            count(&read);
        }
        if i % 256 == 0 {
            checkpoint(rig);
        }
    }
}

#[test]
fn the_provider_rests_only_when_every_frame_was_looked_at_twice() -> Result<()> {
    const FRAMES: usize = 4096;
    let (_, rig) = rig(FRAMES);
    let mut last = None;
    for _ in 0..FRAMES / 2 {
        last = Some(rig.alloc(7, last, 0)?.0);
        checkpoint(&rig);
    }
    rig.pages.flush_all()?;
    // All pages are clean and recently used, and no other thread will request a frame.
    for frame in 0..FRAMES as u32 {
        rig.pages.frames.facts(frame).touch();
    }
    let left = rig.pages.free_list.available();
    rig.pages.take_credits(left as usize)?;
    assert_eq!(rig.pages.free_list.available(), 0);
    let mut beats = 0;
    while rig.pages.free_frames_beat()? == Beat::More {
        beats += 1;
        assert!(beats < 100, "it ends");
    }
    assert!(rig.pages.free_list.available() >= rig.pages.free_list.high());
    Ok(())
}

#[test]
fn concurrent_readers_read_a_page_once() -> Result<()> {
    let (env, rig) = rig(64);
    let (page, _) = rig.alloc(1, None, 9)?;
    rig.pages.flush_all()?;
    let rt = Runtime::new(env);
    let again = Pages::open(Scheduler::new(rt.clone()), test_support::options(64), Lsn(0))?;
    let before = rt.metrics.get(Metric::PageReads);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(again.read(page, Access::Normal).expect("reads")[0], 9));
        }
    });
    assert_eq!(rt.metrics.get(Metric::PageReads), before + 1);
    Ok(())
}

/// A5: a page has one copy in memory. Scans read pages ahead from storage, and still see changes
/// that writers made since those pages were written.
#[test]
fn a_scan_sees_changes_made_after_its_read_ahead() -> Result<()> {
    const PAGES: usize = 32;
    let (env, rig) = rig(96);
    let mut pages = Vec::new();
    for _ in 0..PAGES {
        pages.push(rig.alloc(7, pages.last().copied(), 1)?.0);
    }
    rig.pages.flush_all()?;
    let from = rig.checkpoint()?;
    drop(rig);
    let (rig, _) = test_support::recover(Runtime::new(env), 96, LOG_BYTES, from, 1)?;
    let change = |page: PageNo, byte: u8| {
        rig.mtr(1, |mtr| {
            let slot = mtr.write(page)?;
            put(mtr, slot, 0, &[byte; 64]);
            Ok(())
        })
    };
    let scan = |page: PageNo| rig.pages.read(page, Access::UseOnce);
    // Requested, then changed before the scan arrives; and changed behind the scan.
    rig.pages.prefetch(&pages);
    pages.iter().step_by(2).try_for_each(|page| change(*page, 2).map(drop))?;
    for (i, page) in pages.iter().enumerate() {
        let seen = scan(*page)?;
        assert_eq!(seen[0], if i % 2 == 0 { 2 } else { 1 }, "page {i}");
        let other = rig.pages.read(*page, Access::Normal)?;
        assert_eq!(seen.as_ptr(), other.as_ptr(), "page {i} is in memory twice");
    }
    assert_eq!(rig.pages.dirty_pages_of(TreeId(7)), PAGES as u64 / 2);
    for page in &pages {
        change(*page, 3)?;
        assert_eq!(scan(*page)?[0], 3);
    }
    Ok(())
}

#[test]
fn a_dropped_mini_transaction_changes_nothing() -> Result<()> {
    let (_, rig) = rig(64);
    let (before, free) = (rig.pages.space_stats(), rig.pages.free_list.available());
    for _ in 0..3 {
        let mut mtr = rig.pages.begin(8)?;
        for _ in 0..6 {
            mtr.alloc(TreeId(3), None)?;
        }
        drop(mtr);
        let after = rig.pages.space_stats();
        assert_eq!((after.pages, after.trees), (before.pages, before.trees));
        assert_eq!((rig.pages.dirty_pages(), rig.pages.free_list.available()), (0, free));
    }
    assert!(!rig.rt.health.is_failed());
    Ok(())
}

#[test]
fn page_versions_never_decrease() -> Result<()> {
    let (_, rig) = rig(64);
    let (page, _) = rig.alloc(1, None, 1)?;
    let token = rig.pages.read(page, Access::Normal)?.token();
    assert!(rig.pages.is_current(&token));
    rig.mtr(1, |mtr| {
        let slot = mtr.write(page)?;
        assert!(!rig.pages.is_current(&token), "somebody may be changing it");
        mtr.free(slot)
    })?;
    assert!(!rig.pages.is_current(&token));
    let (again, _) = rig.alloc(2, None, 2)?;
    assert_eq!(again, page, "a freed page is used again");
    assert!(!rig.pages.is_current(&token));
    let newer = rig.pages.read(page, Access::Normal)?.token();
    rig.pages.flush_all()?;
    for round in 0..200 {
        rig.alloc(5, None, round as u8)?;
        rig.pages.make_room(8)?;
    }
    assert!(rig.pages.is_current(&newer), "unchanged, wherever its frame is");
    Ok(())
}

#[test]
fn a_read_latch_becomes_a_write_latch() -> Result<()> {
    let (_, rig) = rig(64);
    let (page, _) = rig.alloc(1, None, 1)?;
    let mut mtr = rig.pages.begin(0)?;
    let (slot, unchanged) = mtr.read_to_write(rig.pages.read(page, Access::Normal)?)?;
    assert!(unchanged);
    assert_eq!(mtr.write(page)?, slot, "the same slot");
    drop(mtr);
    assert_eq!(rig.pages.read(page, Access::Normal)?[0], 1);
    Ok(())
}

#[test]
fn dirty_counts_are_kept_up() -> Result<()> {
    let (_, rig) = rig(256);
    for i in 0..40u32 {
        rig.alloc(1 + i % 2, None, 1)?;
    }
    assert_eq!(rig.pages.dirty_pages_of(TreeId(1)), 20);
    assert_eq!(rig.pages.dirty_pages_of(TreeId(2)), 20);
    let sum: u64 = rig.pages.dirty.histogram().iter().map(|(_, n)| n).sum();
    assert_eq!(sum, rig.pages.dirty_pages());
    assert!(rig.pages.oldest_dirty_lsn().is_some_and(|lsn| lsn <= rig.log.end()));
    rig.pages.flush_all()?;
    assert_eq!(rig.pages.dirty_pages_of(TreeId(1)), 0);
    assert!(rig.pages.dirty.histogram().is_empty());
    Ok(())
}

#[test]
fn wrong_options_and_pages_are_refused() {
    let rt = Runtime::new(Arc::new(MemEnv::new()));
    let code = |options| Pages::create(Scheduler::new(rt.clone()), options).err().map(|e| e.code());
    let good = test_support::options(64);
    assert_eq!(code(crate::PagesOptions { page_size: 5000, ..good }), Some(Code::BadPageSize));
    assert_eq!(code(test_support::options(63)), Some(Code::PoolTooSmall));
    assert_eq!(
        Pages::open(Scheduler::new(rt.clone()), good, Lsn(0)).err().map(|e| e.code()),
        Some(Code::FileMissing)
    );
    let (_, rig) = rig(64);
    let free = rig.pages.free_list.available();
    for page in [10_000_000, u64::MAX] {
        let error = rig.pages.read(PageNo(page), Access::Normal).err().expect("beyond");
        assert_eq!(error.code(), Code::PageBeyond);
    }
    assert_eq!(rig.pages.free_list.available(), free, "no frame is lost");
}

#[test]
fn a_drop_gives_the_space_back() -> Result<()> {
    let (env, rig) = rig(1024);
    for _ in 0..700 {
        rig.alloc(9, None, 3)?;
    }
    rig.alloc(8, None, 4)?;
    rig.pages.flush_all()?;
    let (full, reads) = (env.used_bytes(), rig.rt.metrics.get(Metric::PageReads));
    rig.pages.free_tree(TreeId(9))?;
    assert_eq!(rig.pages.trees(), vec![TreeId(8)]);
    while rig.pages.reclaim_beat()? == evenkeel_base::Beat::More {}
    let stats = rig.pages.space_stats();
    assert_eq!((stats.pages, stats.pending_extents), (1, 0));
    assert!(stats.punched_extents >= 2);
    assert!(env.used_bytes() + (2 << 20) <= full + (1 << 16));
    assert_eq!(rig.rt.metrics.get(Metric::PageReads), reads, "no page of it was read");
    for _ in 0..700 {
        rig.alloc(9, None, 3)?;
    }
    assert_eq!(rig.pages.space_stats().extents, stats.extents, "the space is used again");
    assert_eq!(rig.rt.stalls.get(Cause::FreeFrame).count, 0);
    Ok(())
}

/// A crash between the free and the punching: no later operation would punch those blocks, however
/// many they are, except a reuse of the extent.
#[test]
fn extents_freed_before_a_crash_are_punched_after_it() -> Result<()> {
    let (env, rig) = rig(1024);
    for _ in 0..700 {
        rig.alloc(9, None, 3)?;
    }
    let kept = rig.alloc(8, None, 4)?.0;
    rig.pages.flush_all()?;
    let full = env.used_bytes();
    let from = rig.checkpoint()?;
    rig.pages.free_tree(TreeId(9))?;
    rig.log.wait_durable(rig.log.end())?;
    drop(rig);
    let (rig, _) = test_support::recover(Runtime::new(env.clone()), 1024, LOG_BYTES, from, 2)?;
    assert_eq!(rig.pages.space_stats().pending_extents, 0);
    while rig.pages.reclaim_beat()? == evenkeel_base::Beat::More {}
    assert!(env.used_bytes() + (2 << 20) <= full + (1 << 16), "of {full} {}", env.used_bytes());
    // They can be used again, and pages in use are unchanged.
    let extents = rig.pages.space_stats().extents;
    for _ in 0..700 {
        rig.alloc(9, None, 5)?;
    }
    assert_eq!(rig.pages.space_stats().extents, extents);
    assert_eq!(rig.pages.reclaim_beat()?, evenkeel_base::Beat::Idle);
    assert_eq!(rig.pages.read(kept, Access::Normal)?[..64], [4; 64]);
    Ok(())
}

/// The rollback of a row may hold the latch of a page while its table is dropped: its change comes
/// after the free and has no effect.
#[test]
fn a_redo_record_of_a_freed_page_is_no_damage() -> Result<()> {
    let (env, rig) = rig(1024);
    let mut last = PageNo(0);
    for _ in 0..700 {
        last = rig.alloc(9, None, 3)?.0;
    }
    rig.alloc(8, None, 4)?;
    rig.pages.flush_all()?;
    let from = rig.checkpoint()?;
    rig.pages.free_tree(TreeId(9))?;
    let mut body = Vec::new();
    put_page_op(&mut body, PageOp { page: last, op: WRITE, payload: &[0, 0, 7, 7] });
    let mut reserved = rig.log.reserve(body.len(), Share::User)?;
    let stray = rig.log.append(&mut reserved, RecordKind::Page, &[&body]);
    drop(reserved);
    rig.log.wait_durable(stray)?;
    while rig.pages.reclaim_beat()? == evenkeel_base::Beat::More {}
    assert!(rig.pages.space_stats().punched_extents >= 2);
    drop(rig);
    let (rig, _) = test_support::recover(Runtime::new(env), 1024, LOG_BYTES, from, 2)?;
    assert_eq!(rig.pages.trees(), vec![TreeId(8)]);
    Ok(())
}

/// A store whose log is redone from `from` on: each old page is changed twice, many records apart,
/// followed by as many new pages.
fn to_be_redone(old: &mut Vec<PageNo>, new: &mut Vec<PageNo>) -> Result<(Arc<MemEnv>, Lsn)> {
    let (env, rig) = rig(1024);
    for _ in 0..160 {
        old.push(rig.alloc(7, None, 1)?.0);
    }
    rig.pages.flush_all()?;
    let from = rig.checkpoint()?;
    for byte in [2, 3] {
        for page in old.iter() {
            rig.mtr(1, |mtr| {
                let slot = mtr.write(*page)?;
                put(mtr, slot, 0, &[byte; 64]);
                Ok(())
            })?;
        }
    }
    for _ in 0..160 {
        new.push(rig.alloc(7, None, 9)?.0);
    }
    rig.checkpoint()?;
    Ok((env, from))
}

/// Reads of redo: neighbours with one read, no read for pages that the log creates, and one read of
/// a page for all of its changes that are close together.
#[test]
fn redo_reads_neighbours_together_and_new_pages_not_at_all() -> Result<()> {
    for (frames, page_reads_max, reads_max) in [(1024, 180, 60), (96, 320, 100)] {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        let (env, from) = to_be_redone(&mut old, &mut new)?;
        let rt = Runtime::new(env);
        let rig = test_support::recover(rt.clone(), frames, LOG_BYTES, from, 1)?.0;
        let [pages, reads] = [Metric::PageReads, Metric::FileReads].map(|m| rt.metrics.get(m));
        println!("{frames} frames: {pages} pages read, {reads} reads of files");
        for (pages, byte) in [(&old, 3), (&new, 9)] {
            for page in pages {
                assert_eq!(rig.pages.read(*page, Access::Normal)?[..64], [byte; 64]);
            }
        }
        assert!(pages <= page_reads_max && reads <= reads_max);
    }
    Ok(())
}

/// Pages whose changes are far apart in the log are still read with their neighbours, unless the
/// pool has no room for them together.
#[test]
fn redo_reads_blocks_of_pages_however_the_log_mixes_them() -> Result<()> {
    let mut reads = Vec::new();
    for frames in [2048, 256] {
        let (env, rig) = rig(1024);
        let mut pages = Vec::new();
        for _ in 0..640 {
            pages.push(rig.alloc(7, None, 1)?.0);
        }
        rig.pages.flush_all()?;
        let from = rig.checkpoint()?;
        // Two of three pages, in the order of every 40th: few neighbours in 200 records.
        let changed = |i: &usize| i % 3 != 1;
        for i in (0..40).flat_map(|first| (first..640).step_by(40)).filter(changed) {
            rig.mtr(1, |mtr| {
                let slot = mtr.write(pages[i])?;
                put(mtr, slot, 0, &[2; 64]);
                Ok(())
            })?;
        }
        rig.checkpoint()?;
        drop(rig);
        let rt = Runtime::new(env);
        let rig = test_support::recover(rt.clone(), frames, LOG_BYTES, from, 1)?.0;
        reads.push(rt.metrics.get(Metric::FileReads));
        for (i, page) in pages.iter().enumerate() {
            let byte = if changed(&i) { 2 } else { 1 };
            assert_eq!(rig.pages.read(*page, Access::Normal)?[..64], [byte; 64], "page {i}");
        }
    }
    println!("{} reads of files; {} with too few frames", reads[0], reads[1]);
    assert!(reads[0] <= 60 && reads[1] > 120, "{reads:?}");
    Ok(())
}
