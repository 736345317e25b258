//! Scans that read ahead: which blocks they read, how far ahead, and that they find the written
//! records.

use crate::ahead::{ScanAhead, ScannedBlocks, WINDOW};
use crate::log_tests::{Collect, Records, Rng, append, read};
use crate::{Log, LogOptions, replay};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Lsn, Result};
use evenkeel_format::wal::{BLOCK, PAYLOAD, SEGMENT_HEADER};
use evenkeel_io::{RealEnv, Runtime};
use std::sync::Arc;

/// A log of 4 MiB of records in segments of 4 MiB, and its records.
fn some_mib(rt: &Arc<Runtime>) -> Result<Records> {
    let options = LogOptions { log_bytes: 64 << 20, buffer_bytes: 1 << 20, epoch: 1 };
    let log = Log::create(rt.clone(), options, Lsn(0))?;
    let (mut rng, mut model) = (Rng(11), Records::new());
    while model.last().is_none_or(|(lsn, _)| lsn.0 < 4 << 20) {
        let body = rng.body();
        model.push((append(&log, &body)?, body));
        if model.len().is_multiple_of(100) {
            log.wait_durable(model[model.len() - 1].0)?;
        }
    }
    log.wait_durable(log.end())?;
    Ok(model)
}

/// A scan that ends at a position reads each block before it once, and no block behind it.
#[test]
fn a_scan_reads_up_to_its_end_and_no_further() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rt = Runtime::new(Arc::new(RealEnv::new(dir.path())));
    let model = some_mib(&rt)?;
    let (records, end) = read(&rt, Lsn(0))?;
    assert_eq!(records, model);
    let headers = rt.env.list("wal")?.len() * SEGMENT_HEADER;
    for until in [model[1].0, model[model.len() / 2].0, model[model.len() - 1].0, end.end] {
        let before = rt.metrics.get(Metric::FileReadBytes);
        let mut some = Collect::default();
        replay(&rt, Lsn(0), Some(until), &mut some)?;
        let below = model.partition_point(|(lsn, _)| *lsn < until);
        assert_eq!(some.0, model[..below]);
        let read_bytes = rt.metrics.get(Metric::FileReadBytes) - before;
        let blocks = until.0 as usize / PAYLOAD + 1;
        assert!(read_bytes as usize <= headers + blocks * BLOCK, "{read_bytes} until {until}");
    }
    Ok(())
}

/// Helpers read ahead before the scan takes its first block, as far as there is room.
#[test]
fn helpers_read_ahead_within_their_window() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rt = Runtime::new(Arc::new(RealEnv::new(dir.path())));
    some_mib(&rt)?;
    let segments: Arc<[_]> = crate::segments::read_headers(&rt, None)?.into();
    let end = segments[segments.len() - 1].end_block();
    let mut ahead = ScanAhead::start(&rt, &segments, 1..end)?;
    assert_eq!(ahead.await_window(), WINDOW);
    let (mut chunk, mut blocks) = (ScannedBlocks::default(), 0);
    for block in 1..end {
        if !chunk.holds(block) {
            assert!(ahead.take(block, &mut chunk)?, "block {block}");
            assert!(ahead.waiting() <= WINDOW);
        }
        blocks += u64::from(chunk.get(block).is_some());
    }
    assert!(blocks * BLOCK as u64 > 4 << 20);
    // Blocks that were passed are not returned again, nor blocks that do not exist.
    assert!(!ahead.take(1, &mut chunk)? && !ahead.take(end, &mut chunk)?);
    ahead.stop()
}

/// A scan that panics, and so never ends its helpers, leaves no helper waiting.
#[test]
fn helpers_end_without_their_scan() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rt = Runtime::new(Arc::new(RealEnv::new(dir.path())));
    some_mib(&rt)?;
    let segments: Arc<[_]> = crate::segments::read_headers(&rt, None)?.into();
    let end = segments[segments.len() - 1].end_block();
    // Helpers hold references to the runtime too.
    let users = Arc::strong_count(&rt);
    let ahead = ScanAhead::start(&rt, &segments, 1..end)?;
    assert!(ahead.await_window() == WINDOW && Arc::strong_count(&rt) > users);
    drop(ahead);
    let begun = std::time::Instant::now();
    while Arc::strong_count(&rt) > users {
        assert!(begun.elapsed().as_secs() < 60, "a helper waits");
        std::thread::yield_now();
    }
    Ok(())
}
