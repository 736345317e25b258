//! What a page costs when it is cached: reading, changing, reading in. Prints nanoseconds each.
//! `cargo run --release -p evenkeel-pages --example fix_cost`

use evenkeel_base::{Beat, Cause, Lsn, PageNo, Result, TreeId};
use evenkeel_format::record::RecordKind;
use evenkeel_io::{MemEnv, Rng, Runtime};
use evenkeel_log::{Log, LogOptions, Share};
use evenkeel_pages::{Access, Pages, PagesOptions};
use evenkeel_sched::Scheduler;
use std::sync::Arc;
use std::time::Instant;

fn time(what: &str, count: u64, mut f: impl FnMut(u64)) {
    let start = Instant::now();
    (0..count).for_each(&mut f);
    println!("{what}: {:.1} ns", start.elapsed().as_nanos() as f64 / count as f64);
}

fn main() -> Result<()> {
    let rt = Runtime::new(Arc::new(MemEnv::new()));
    let log_bytes = 512 << 20;
    let options =
        PagesOptions { page_size: 4096, pool_bytes: 64 << 20, doublewrite: true, log_bytes };
    let pages = Pages::create(Scheduler::new(rt.clone()), options)?;
    let log_options = LogOptions { log_bytes: 512 << 20, buffer_bytes: 16 << 20, epoch: 1 };
    let log = Log::create(rt.clone(), log_options, Lsn(0))?;
    pages.attach_log(log.clone())?;
    let mut known: Vec<PageNo> = Vec::new();
    for _ in 0..10_000 {
        let mut reserved = log.reserve(4096, Share::User)?;
        let mut mtr = pages.begin(2)?;
        let slot = mtr.alloc(TreeId(1), known.last().copied())?;
        known.push(mtr.page_no(slot));
        mtr.commit(&mut reserved);
    }
    time("cached read, one page", 20_000_000, |_| {
        drop(pages.read(known[5], Access::Normal));
    });
    let mut rng = Rng::new(1);
    let order: Vec<PageNo> = (0..1 << 20).map(|_| known[rng.below(10_000) as usize]).collect();
    time("cached read, 10,000 pages at random", 10_000_000, |i| {
        drop(pages.read(order[i as usize & 0xf_ffff], Access::Normal));
    });
    time("the log's part of a change", 1_000_000, |i| {
        let Ok(mut reserved) = log.reserve(128, Share::User) else { return };
        let lsn = log.append(&mut reserved, RecordKind::Row, &[&[0; 70]]);
        if i % 10_000 == 0 {
            drop(log.wait_durable(lsn));
            drop(log.set_checkpoint(lsn));
        }
    });
    time("change of a cached page, committed (64-byte op)", 1_000_000, |i| {
        let Ok(mut reserved) = log.reserve(128, Share::User) else { return };
        let Ok(mut mtr) = pages.begin(1) else { return };
        let Ok(slot) = mtr.write(order[i as usize & 0xf_ffff]) else { return };
        mtr.page_mut(slot)[..8].copy_from_slice(&i.to_le_bytes());
        mtr.op(slot, 32, &[0; 64]);
        let lsn = mtr.commit(&mut reserved);
        if i % 10_000 == 0 {
            drop(log.wait_durable(lsn));
            drop(log.set_checkpoint(lsn));
        }
    });
    pages.flush_all()?;
    provider(&rt, &pages)?;
    misses(&rt, &pages, &log, known)
}

/// Starts the thread that keeps frames free.
fn provider(rt: &Arc<Runtime>, pages: &Arc<Pages>) -> Result<()> {
    let event = pages.free_frames_event();
    let provider = pages.clone();
    let background = rt.clone();
    rt.spawn("free-frames", move || {
        loop {
            let seen = event.now();
            if provider.free_frames_beat().is_ok_and(|beat| beat == Beat::Idle) {
                background.wait(&event, seen, None, Cause::Idle);
            }
        }
    })?;
    Ok(())
}

/// Reads pages of which the pool holds a part.
fn misses(rt: &Runtime, pages: &Pages, log: &Log, known: Vec<PageNo>) -> Result<()> {
    let mut rng = Rng::new(2);
    let mut more = Vec::new();
    for _ in 0..16_000 {
        let mut reserved = log.reserve(4096, Share::User)?;
        let mut mtr = pages.begin(2)?;
        let slot = mtr.alloc(TreeId(2), more.last().copied())?;
        more.push(mtr.page_no(slot));
        mtr.commit(&mut reserved);
        if more.len() % 1000 == 0 {
            pages.flush_all()?;
        }
    }
    let all: Vec<PageNo> = known.into_iter().chain(more).collect();
    let before = rt.metrics.get(evenkeel_base::metrics::Metric::PageReads);
    time("read of a page from memory files, 62% cached", 300_000, |_| {
        drop(pages.read(all[rng.below(all.len() as u64) as usize], Access::Normal));
    });
    let reads = rt.metrics.get(evenkeel_base::metrics::Metric::PageReads) - before;
    let waits = rt.stalls.get(Cause::FreeFrame);
    println!("{reads} pages read, {} waits for a frame of {} us in all", waits.count, waits.us);
    Ok(())
}
