//! The pool changes its size under readers and writers: no update and no frame is lost, and the
//! memory of removed frames is given back.

use crate::pool::free_list::FreeList;
use crate::test_support::{self, put};
use crate::{Access, Mtr};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Code, PageNo, Result};
use evenkeel_io::{MemEnv, Rng, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const PAGES: usize = 400;

fn value(page: &[u8]) -> u64 {
    let first = u64::from_le_bytes(page[..8].try_into().expect("8 bytes"));
    assert!(page[..4000].chunks_exact(8).all(|w| w == &page[..8]), "a page seen half changed");
    first
}

fn add_one(mtr: &mut Mtr<'_>, page: PageNo) -> Result<()> {
    let slot = mtr.write(page)?;
    let next = value(mtr.page(slot)) + 1;
    put(mtr, slot, 0, &next.to_le_bytes().repeat(500));
    Ok(())
}

#[test]
fn the_pool_changes_its_size_while_in_use() -> Result<()> {
    let rt = Runtime::new(Arc::new(MemEnv::new()));
    let rig = test_support::create(rt, 96, 64 << 20)?;
    assert_eq!(rig.rt.metrics.get(Metric::PoolFrames), 96);
    let stop = rig.background();
    let mut pages: Vec<PageNo> = Vec::new();
    for _ in 0..PAGES {
        pages.push(rig.alloc(7, pages.last().copied(), 0)?.0);
    }
    let (written, running) = (AtomicU64::new(0), AtomicU64::new(3));
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (rig, pages, written, running) = (&rig, &pages, &written, &running);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for i in 0..4000 {
                    let page = pages[rng.below(PAGES as u64) as usize];
                    if rng.below(3) == 0 {
                        rig.mtr(1, |mtr| add_one(mtr, page)).expect("commits");
                        written.fetch_add(1, SeqCst);
                    } else {
                        value(&rig.pages.read(page, Access::Normal).expect("reads"));
                    }
                    if i % 256 == 0 {
                        let at = rig.checkpoint().expect("durable");
                        rig.log.set_checkpoint(at).expect("moves");
                    }
                }
                running.fetch_sub(1, SeqCst);
            });
        }
        let mut rng = Rng::new(9);
        while running.load(SeqCst) > 0 {
            let frames = 64 + rng.below(900) as usize;
            rig.pages.resize(frames * 4096).expect("resizes");
            std::thread::yield_now();
        }
    });
    // No thread uses pages now: the pool shrinks to the requested size.
    let least = 64;
    let told = || rig.rt.metrics.get(Metric::PoolFrames);
    while rig.pages.frames_with_memory() > least || told() > least as u64 {
        rig.pages.resize(least * 4096)?;
        std::thread::yield_now();
    }
    assert_eq!(told(), least as u64);
    let read = |p: &PageNo| value(&rig.pages.read(*p, Access::Normal).expect("reads"));
    assert_eq!(pages.iter().map(read).sum::<u64>(), written.load(SeqCst));
    // The former size again: every page fits, so a second pass reads none.
    rig.pages.resize(600 * 4096)?;
    assert_eq!(pages.iter().map(read).sum::<u64>(), written.load(SeqCst));
    let before = rig.rt.metrics.get(Metric::PageReads);
    assert_eq!(pages.iter().map(read).sum::<u64>(), written.load(SeqCst));
    assert_eq!(rig.rt.metrics.get(Metric::PageReads), before);
    stop.end();
    rig.pages.flush_all()?;
    let resident = |p: &&PageNo| rig.pages.translation.get(**p).is_some();
    let held = pages.iter().filter(resident).count() as i64;
    assert!(rig.pages.free_list.available() + held <= 600, "no frame twice");
    assert_eq!(rig.pages.resize(4096).expect_err("too small").code(), Code::PoolTooSmall);
    Ok(())
}

#[test]
fn free_frames_give_back_their_memory_and_take_it_again() -> Result<()> {
    let rig = test_support::create(Runtime::new(Arc::new(MemEnv::new())), 4096, 64 << 20)?;
    rig.pages.resize(100 * 4096)?;
    while rig.pages.free_frames_beat()? == evenkeel_base::Beat::More {}
    assert_eq!(rig.pages.frames_with_memory(), 100, "all that was free went");
    let free = rig.pages.free_list.available();
    rig.pages.resize(4096 * 4096)?;
    assert_eq!(rig.pages.frames_with_memory(), 4096);
    assert_eq!(rig.pages.free_list.available(), free + 3996);
    rig.pages.resize(10_000 * 4096)?;
    assert!(rig.pages.free_list.available() >= free + 9900 - 4);
    Ok(())
}

/// The number of frames refilled at a time does not grow with the pool: otherwise no page is
/// written during a refill, and then nothing but pages is written.
#[test]
fn free_frames_are_refilled_in_small_parts() {
    for (frames, low, high) in
        [(96, 4, 8), (16_384, 512, 1024), (65_536, 2048, 2560), (1 << 22, 4096, 4608)]
    {
        let free_list = FreeList::new(frames);
        assert_eq!((free_list.low(), free_list.high()), (low, high), "{frames} frames");
        assert!(free_list.try_credits(frames as i64 - low));
        assert!(!free_list.is_low());
        assert!(free_list.try_credits(1));
        assert!(free_list.is_low() && free_list.gives_up());
        free_list.return_credits((high - low) as usize + 1);
        assert!(!free_list.gives_up());
    }
}
