//! Reading hot pages at open: which pages are listed, that no page is evicted for them, and that an
//! arbitrary list is harmless.

use crate::test_support::{self, Fixture};
use crate::{Access, Pages};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Lsn, PageNo, Result};
use evenkeel_io::{MemEnv, Runtime};
use evenkeel_sched::Scheduler;
use std::sync::Arc;

const PAGES: usize = 150;

/// A space of some pages, all on storage.
fn written() -> Result<(Arc<MemEnv>, Fixture, Vec<PageNo>)> {
    let env = Arc::new(MemEnv::new());
    let rig = test_support::create(Runtime::new(env.clone()), 256, 64 << 20)?;
    let mut pages: Vec<PageNo> = Vec::new();
    for i in 0..PAGES {
        pages.push(rig.alloc(7, pages.last().copied(), i as u8)?.0);
    }
    rig.pages.flush_all()?;
    Ok((env, rig, pages))
}

fn warm_all(pages: &Pages, list: &[PageNo]) -> usize {
    let mut done = 0;
    while let Some(more) = pages.warm(&list[done..]) {
        done += more;
    }
    done
}

#[test]
fn warmed_pages_are_read_once_and_then_hit_the_pool() -> Result<()> {
    let (env, rig, pages) = written()?;
    let hot = rig.pages.hot_pages(1000);
    assert!(hot.is_sorted() && pages.iter().all(|page| hot.contains(page)));
    let rt = Runtime::new(env);
    let again = Pages::open(Scheduler::new(rt.clone()), test_support::options(256), Lsn(0))?;
    assert!(again.hot_pages(1000).is_empty());
    assert_eq!(warm_all(&again, &hot), hot.len());
    assert_eq!(rt.metrics.get(Metric::WarmPagesRead), hot.len() as u64);
    assert_eq!(again.hot_pages(1000), hot, "what was read in is hot for the next open");
    let reads = rt.metrics.get(Metric::PageReads);
    for (i, page) in pages.iter().enumerate() {
        assert_eq!(again.read(*page, Access::Normal)?[0], i as u8);
    }
    assert_eq!(rt.metrics.get(Metric::PageReads), reads, "every page was there");
    // A page listed twice is read once.
    assert_eq!(warm_all(&again, &hot), hot.len());
    assert_eq!(rt.metrics.get(Metric::PageReads), reads);
    Ok(())
}

#[test]
fn warming_stops_at_a_full_pool_and_evicts_nothing() -> Result<()> {
    let (env, rig, _) = written()?;
    let hot = rig.pages.hot_pages(1000);
    let rt = Runtime::new(env);
    let small = Pages::open(Scheduler::new(rt.clone()), test_support::options(64), Lsn(0))?;
    let first = hot[hot.len() - 1];
    drop(small.read(first, Access::Normal)?);
    let done = warm_all(&small, &hot);
    assert!(done > 0 && done < hot.len(), "{done} of {}", hot.len());
    assert_eq!(rt.metrics.get(Metric::Evictions), 0);
    assert!(
        small.free_list.available() >= small.free_list.low(),
        "the last frames are left to readers"
    );
    let reads = rt.metrics.get(Metric::PageReads);
    drop(small.read(first, Access::Normal)?);
    assert_eq!(rt.metrics.get(Metric::PageReads), reads, "what was there stays there");
    Ok(())
}

#[test]
fn the_hot_page_list_starts_behind_the_clock_hand() -> Result<()> {
    let (_, rig, pages) = written()?;
    // The clock clears every mark; then some pages are used again.
    rig.pages.search(i64::MAX, usize::MAX);
    let again: Vec<PageNo> = pages.iter().copied().step_by(10).collect();
    for page in &again {
        drop(rig.pages.read(*page, Access::Normal)?);
    }
    assert!(rig.pages.hot_pages(5).iter().all(|page| again.contains(page)));
    assert_eq!(rig.pages.hot_pages(5).len(), 5);
    Ok(())
}

#[test]
fn a_hot_page_list_of_arbitrary_pages_is_harmless() -> Result<()> {
    let (env, _, pages) = written()?;
    let rt = Runtime::new(env);
    let again = Pages::open(Scheduler::new(rt.clone()), test_support::options(256), Lsn(0))?;
    let mut list: Vec<PageNo> =
        [1, 9, 100_000, 1 << 30, 1 << 50, u64::MAX - 1, u64::MAX].into_iter().map(PageNo).collect();
    list.extend(&pages);
    list.sort_unstable();
    assert_eq!(warm_all(&again, &list), list.len());
    for (i, page) in pages.iter().enumerate() {
        assert_eq!(again.read(*page, Access::Normal)?[0], i as u8);
    }
    let free = again.free_list.available() as usize;
    assert_eq!(free + again.hot_pages(1000).len(), 256, "no frame is lost");
    Ok(())
}
