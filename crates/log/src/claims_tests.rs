//! What lies behind the end of the log (B1, RFC 37): damage is told from the end, and segments that
//! lie prepared are not read for it.

use crate::log_tests::{Rng, append, quiet, read};
use crate::replay::{CLAIM_BLOCKS_ALL, CLAIM_BLOCKS_FIRST, CLAIM_STRETCH_BLOCKS};
use crate::segments::{DIR, read_headers};
use crate::{Log, LogOptions};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Code, Lsn, Result};
use evenkeel_format::wal::{
    BLOCK, BlockHeader, SEGMENT_HEADER, SegmentHeader, lsn_of, segment_path,
};
use evenkeel_io::sim::{CrashPolicy, SimDisk};
use evenkeel_io::{OpenMode, RealEnv, Runtime};
use std::sync::Arc;

/// Headers of all blocks of all segments, by block number: the model reads every one.
fn all_blocks(rt: &Runtime, segments: &[SegmentHeader]) -> Result<Vec<(u64, BlockHeader)>> {
    let mut found = Vec::new();
    for segment in segments {
        let file = rt.env.open(&segment_path(segment.number), OpenMode::READ)?;
        for number in segment.first_block..segment.end_block() {
            let mut bytes = [0; BLOCK];
            file.read_at(&mut bytes, segment.offset_of(number))?;
            if let Some(header) = BlockHeader::decode(&bytes, rt.database())
                && header.block == number
            {
                found.push((number, header));
            }
        }
    }
    Ok(found)
}

/// A stretch of blocks is wiped, of whatever length and wherever. What the scan says of it is what
/// a look at every block says, but where less than a stretch is left of the log, far behind and not
/// at the head of a segment.
#[test]
fn wiped_blocks_are_damage_and_not_the_end() -> Result<()> {
    let sim = quiet(SimDisk::new(6), 6);
    let rt = sim.runtime();
    let options = LogOptions { log_bytes: 1 << 20, buffer_bytes: 128 << 10, epoch: 1 };
    let log = Log::create(rt.clone(), options, Lsn(0))?;
    let mut rng = Rng(7);
    for _ in 0..270 {
        let mut body = rng.body();
        body.truncate(1500);
        let lsn = append(&log, &body)?;
        log.wait_durable(lsn)?;
        while log.beat()? == Beat::More {}
    }
    let segments = read_headers(&rt, None)?;
    let whole = all_blocks(&rt, &segments)?;
    let (first, last) = (whole[0].0, whole[whole.len() - 1].0);
    assert!(last - first > 4 * CLAIM_BLOCKS_ALL, "{first} to {last}");
    let heads: Vec<u64> = segments.iter().map(|s| s.first_block).collect();
    let (mut refused, mut ends, mut missed) = (0, 0, 0);
    for seed in 0..4000 {
        let from = first + rng.below(last - first + 1);
        let behind = from + 1 + rng.below(last - from + 1);
        let disk = sim.disk().crash(CrashPolicy::KeepAll, seed);
        for segment in &segments {
            for number in from.max(segment.first_block)..behind.min(segment.end_block()) {
                let path = segment_path(segment.number);
                disk.corrupt(&path, segment.offset_of(number), &[0; BLOCK]);
            }
        }
        let rt = quiet(disk, 1).runtime();
        let left = all_blocks(&rt, &segments)?;
        let is_behind = |(number, _): &&(u64, BlockHeader)| *number >= behind;
        let stated = left.iter().filter(is_behind).map(|(_, header)| header.durable).max();
        let is_damage = stated.is_some_and(|durable| durable > lsn_of(from));
        match read(&rt, Lsn(0)) {
            Err(error) => {
                assert_eq!(error.code(), Code::LogDamaged, "seed {seed}");
                assert!(is_damage, "{from}..{behind} of {last}: refused for nothing");
                refused += 1;
            }
            Ok(_) if is_damage => {
                let is_near = behind <= from + CLAIM_BLOCKS_ALL;
                let is_long = last + 1 - behind >= CLAIM_STRETCH_BLOCKS;
                let has_head = heads.iter().any(|head| (behind..=last).contains(head));
                let what = format!("{from}..{behind} of {last}: silently cut");
                assert!(!is_near && !is_long && !has_head, "{what}");
                missed += 1;
            }
            Ok(_) => ends += 1,
        }
    }
    println!("{refused} refused, {ends} ends, {missed} not told from an end");
    assert!(refused > 1000 && ends > 50, "{refused} {ends}");
    Ok(())
}

/// Of segments that lie prepared a scan reads a little of each stretch.
#[test]
fn prepared_segments_are_not_read_whole() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rt = Runtime::new(Arc::new(RealEnv::new(dir.path())));
    let options = LogOptions { log_bytes: 128 << 20, buffer_bytes: 1 << 20, epoch: 1 };
    let log = Log::create(rt.clone(), options, Lsn(0))?;
    for _ in 0..20 {
        let lsn = append(&log, &vec![1; 1 << 19])?;
        log.wait_durable(lsn)?;
        while log.beat()? == Beat::More {}
    }
    drop(log);
    let segments = read_headers(&rt, None)?;
    let before = rt.metrics.get(Metric::FileReadBytes);
    let (records, end) = read(&rt, Lsn(0))?;
    let read_bytes = (rt.metrics.get(Metric::FileReadBytes) - before) as usize;
    assert_eq!(records.len(), 20);
    let used = evenkeel_format::wal::block_of(end.end);
    let last = segments[segments.len() - 1].end_block();
    let behind = (last - used) as usize * BLOCK;
    assert!(behind > 16 << 20, "{behind} bytes behind the end");
    // What was being read ahead when the end was found; all near it; the first blocks farther on.
    let (ahead, near) = (6 << 19, 2 * (CLAIM_BLOCKS_ALL + CLAIM_STRETCH_BLOCKS) as usize * BLOCK);
    let first = behind / (CLAIM_STRETCH_BLOCKS as usize * BLOCK) + segments.len();
    let first = first * CLAIM_BLOCKS_FIRST as usize * BLOCK;
    let headers = rt.env.list(DIR)?.len() * SEGMENT_HEADER;
    let most = headers + used as usize * BLOCK + ahead + near + first;
    assert!(read_bytes <= most, "{read_bytes} read, of {most}; {behind} behind the end");
    Ok(())
}
