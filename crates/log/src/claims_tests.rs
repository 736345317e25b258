//! What lies behind the end of the log (B1, RFC 37): damage is told from the end, and segments that
//! lie prepared are not read for it.

use crate::log_tests::{Rng, append, quiet, read};
use crate::replay::{CLAIM_BLOCKS_ALL, CLAIM_BLOCKS_FIRST, CLAIM_STRETCH_BLOCKS};
use crate::segments::{DIR, read_headers};
use crate::{Log, LogOptions};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Code, Lsn, Result};
use evenkeel_format::wal::{
    BLOCK, BlockHeader, SEGMENT_HEADER, SegmentHeader, block_of, lsn_of, segment_path,
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
        wipe(&disk, &segments, from..behind);
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
    assert!(refused > 1000 && ends > 50 && missed > 10, "{refused} {ends} {missed}");
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
    let used = block_of(end.end);
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

/// Wipes blocks.
fn wipe(disk: &SimDisk, segments: &[SegmentHeader], blocks: std::ops::Range<u64>) {
    for segment in segments {
        let own = blocks.start.max(segment.first_block)..blocks.end.min(segment.end_block());
        for number in own {
            disk.corrupt(&segment_path(segment.number), segment.offset_of(number), &[0; BLOCK]);
        }
    }
}

/// Where the stretch begins that a block lies in.
fn stretch_of(segments: &[SegmentHeader], block: u64) -> u64 {
    let segment = segments.iter().find(|s| (s.first_block..s.end_block()).contains(&block));
    let first = segment.expect("a segment").first_block;
    first + (block - first) / CLAIM_STRETCH_BLOCKS * CLAIM_STRETCH_BLOCKS
}

/// Many blocks that were on their way together state nothing of the first of them; the one that
/// does lies far behind, in a stretch whose head is torn.
#[test]
fn what_is_stated_only_behind_a_large_group_is_seen() -> Result<()> {
    let sim = quiet(SimDisk::new(8), 8);
    let rt = sim.runtime();
    let options = LogOptions { log_bytes: 1 << 20, buffer_bytes: 128 << 10, epoch: 1 };
    let log = Log::create(rt.clone(), options, Lsn(0))?;
    let early = append(&log, b"early")?;
    log.wait_durable(early)?;
    let first = append(&log, b"first of many")?;
    let mut last = first;
    while block_of(last) < block_of(first) + 3 * CLAIM_BLOCKS_ALL {
        last = append(&log, &[7; 300])?;
    }
    log.wait_durable(last)?;
    // In the middle of a stretch.
    let mut stated = block_of(last);
    let segments = read_headers(&rt, None)?;
    while stated < stretch_of(&segments, stated) + CLAIM_BLOCKS_FIRST + 1 {
        let lsn = append(&log, b"behind")?;
        stated = block_of(lsn);
    }
    log.wait_durable(log.end())?;
    let disk = sim.disk().crash(CrashPolicy::KeepAll, 1);
    let whole = quiet(disk.crash(CrashPolicy::KeepAll, 1), 1).runtime();
    assert_eq!(read(&whole, Lsn(0))?.0.len() as u64, rt.metrics.get(Metric::WalRecords));
    let broken = block_of(first);
    wipe(&disk, &segments, broken..broken + 1);
    let head = stretch_of(&segments, stated);
    wipe(&disk, &segments, head..head + CLAIM_BLOCKS_FIRST);
    let rt = quiet(disk, 1).runtime();
    let left = all_blocks(&rt, &segments)?;
    let states = |(_, header): &&(u64, BlockHeader)| header.durable > lsn_of(broken);
    let stating: Vec<u64> = left.iter().filter(states).map(|(number, _)| *number).collect();
    assert!(!stating.is_empty() && stating.iter().all(|at| *at >= head), "{stating:?} from {head}");
    assert!(head > broken + CLAIM_BLOCKS_ALL);
    assert_eq!(read(&rt, Lsn(0)).map(drop).map_err(|e| e.code()), Err(Code::LogDamaged));
    Ok(())
}

/// A remnant of the epoch before, which states what that one knew, is no damage of the one that
/// took over in front of it, wherever that ends.
#[test]
fn a_remnant_of_an_older_epoch_is_no_damage() -> Result<()> {
    let sim = quiet(SimDisk::new(9), 9);
    let rt = sim.runtime();
    let options = LogOptions { log_bytes: 1 << 20, buffer_bytes: 128 << 10, epoch: 1 };
    let log = Log::create(rt.clone(), options, Lsn(0))?;
    for _ in 0..200 {
        let lsn = append(&log, &[5; 700])?;
        log.wait_durable(lsn)?;
        while log.beat()? == Beat::More {}
    }
    let segments = read_headers(&rt, None)?;
    let whole = all_blocks(&rt, &segments)?;
    let last = whole[whole.len() - 1].0;
    drop(log);
    let disk = sim.disk().crash(CrashPolicy::KeepAll, 1);
    let hole = whole[0].0 + 20..last - 1;
    assert!(stretch_of(&segments, last) < hole.end, "{last}: a remnant without the head");
    wipe(&disk, &segments, hole.clone());
    let rt = quiet(disk, 1).runtime();
    let (mut records, mut end) = read(&rt, Lsn(0))?;
    assert!(records.len() < 30 && block_of(end.end) <= hole.start + 1);
    let (mut epochs, mut refused) = (1, 0);
    while block_of(end.end) + 8 < last {
        epochs += 1;
        let log = Log::create(rt.clone(), LogOptions { epoch: epochs, ..options }, end.end)?;
        let body = vec![epochs as u8; 2000];
        let lsn = append(&log, &body)?;
        log.wait_durable(lsn)?;
        records.push((lsn, body));
        drop(log);
        match read(&rt, Lsn(0)) {
            Ok((found, at)) => {
                assert_eq!(found, records, "epoch {epochs}");
                end = at;
            }
            Err(_) => refused += 1,
        }
        assert_eq!(refused, 0, "epoch {epochs}, which ends at {end:?}");
    }
    assert!(epochs > 10, "{epochs}");
    Ok(())
}
