//! Blocks behind the end of the log (B1, RFC 37): damage is distinguished from the end.

use crate::log_tests::{Collect, Rng, append, quiet, read};
use crate::segments::{DIR, read_headers};
use crate::{Behind, Log, LogEnd, LogOptions, replay_to_end};
use evenkeel_base::metrics::Metric;
use evenkeel_base::{Beat, Code, Lsn, Result};
use evenkeel_format::wal::{
    BLOCK, BlockHeader, NO_RECORD, SEGMENT_HEADER, SegmentHeader, block_of, lsn_of, segment_path,
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

/// A stretch of blocks of any length is wiped anywhere: the scan's verdict must follow from the
/// remaining blocks.
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
    let (mut refused, mut ends) = (0, 0);
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
            Ok(_) if is_damage => panic!("{from}..{behind} of {last}: silently cut"),
            Ok(_) => ends += 1,
        }
    }
    println!("{refused} refused, {ends} ends");
    assert!(refused > 1000 && ends > 50, "{refused} {ends}");
    Ok(())
}

/// The scan that finds the end reads little behind it; the search behind the end reads all of it,
/// once.
#[test]
fn the_end_search_leaves_prepared_segments_unread() -> Result<()> {
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
    let read_bytes = || rt.metrics.get(Metric::FileReadBytes);
    let before = read_bytes();
    let mut records = Collect::default();
    let (end, behind) = replay_to_end(&rt, Lsn(0), &mut records)?;
    assert_eq!(records.0.len(), 20);
    assert!(behind.bytes() > 16 << 20, "{} bytes behind the end", behind.bytes());
    // And the blocks that were being read ahead when the end was found.
    let headers = (rt.env.list(DIR)?.len() * SEGMENT_HEADER) as u64;
    let most = headers + block_of(end.end) * BLOCK as u64 + (6 << 19);
    let scanned = read_bytes() - before;
    assert!(scanned <= most, "{scanned} read, of {most}");
    behind.check()?;
    let looked = read_bytes() - before - scanned;
    let differs = looked.abs_diff(behind.bytes());
    assert!(differs <= SEGMENT_HEADER as u64, "{looked} looked at, of {}", behind.bytes());
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

/// Blocks that were written together state nothing about the first of them; the block that does is
/// far behind, alone in its segment.
#[test]
fn durability_stated_only_behind_a_large_group_is_found() -> Result<()> {
    let sim = quiet(SimDisk::new(8), 8);
    let rt = sim.runtime();
    let options = LogOptions { log_bytes: 1 << 20, buffer_bytes: 128 << 10, epoch: 1 };
    let log = Log::create(rt.clone(), options, Lsn(0))?;
    let early = append(&log, b"early")?;
    log.wait_durable(early)?;
    let first = append(&log, b"first of many")?;
    let segments = read_headers(&rt, None)?;
    let mut last = first;
    while block_of(last) + 2 < segments[0].end_block() {
        last = append(&log, &[7; 300])?;
    }
    log.wait_durable(last)?;
    let mut stated = block_of(last);
    while stated < segments[0].end_block() + 20 {
        stated = block_of(append(&log, b"behind")?);
        log.wait_durable(log.end())?;
    }
    let disk = sim.disk().crash(CrashPolicy::KeepAll, 1);
    let whole = quiet(disk.crash(CrashPolicy::KeepAll, 1), 1).runtime();
    assert_eq!(read(&whole, Lsn(0))?.0.len() as u64, rt.metrics.get(Metric::LogRecords));
    let broken = block_of(first);
    wipe(&disk, &segments, broken..stated);
    let rt = quiet(disk.crash(CrashPolicy::KeepAll, 1), 1).runtime();
    let left = all_blocks(&rt, &segments)?;
    let behind: Vec<u64> = left.iter().map(|(at, _)| *at).filter(|at| *at > broken).collect();
    assert_eq!(behind, [stated]);
    assert_eq!(read(&rt, Lsn(0)).map(drop).map_err(|e| e.code()), Err(Code::LogDamaged));
    wipe(&disk, &segments, stated..stated + 1);
    let rt = quiet(disk, 1).runtime();
    assert_eq!(read(&rt, Lsn(0))?.0.len(), 1, "nothing states that there was more");
    Ok(())
}

/// A remnant of an earlier epoch is no damage to the epoch that was started in front of it,
/// whatever it states; a remnant of the epoch that ends there, or of a later one, is damage.
#[test]
fn a_remnant_of_an_older_epoch_is_no_damage() -> Result<()> {
    let sim = quiet(SimDisk::new(9), 9);
    let options = LogOptions { log_bytes: 1 << 20, buffer_bytes: 128 << 10, epoch: 1 };
    let mut from = Lsn(0);
    for epoch in 1..=3 {
        let log = Log::create(sim.runtime(), LogOptions { epoch, ..options }, from)?;
        for _ in 0..20 {
            let lsn = append(&log, &[epoch as u8; 700])?;
            log.wait_durable(lsn)?;
        }
        from = log.end();
    }
    let (records, end) = read(&sim.runtime(), Lsn(0))?;
    assert_eq!((records.len(), end.epoch), (60, 3));
    let segments = read_headers(&sim.runtime(), None)?;
    let last = segments[segments.len() - 1];
    let broken = block_of(end.end);
    for epoch in 1..=4 {
        for at in [broken + 1, broken + 9, last.first_block, last.end_block() - 1] {
            for durable in [lsn_of(broken), lsn_of(broken + 1), lsn_of(at)] {
                let disk = sim.disk().crash(CrashPolicy::KeepAll, 1);
                let rt = quiet(disk.clone(), 1).runtime();
                let (first_record, data_len, flags) = (NO_RECORD, 0, 0);
                let header =
                    BlockHeader { epoch, block: at, durable, data_len, first_record, flags };
                let mut block = [0; BLOCK];
                header.seal(&mut block, rt.database());
                let segment = segments.iter().find(|s| at < s.end_block()).expect("a segment");
                let path = segment_path(segment.number);
                assert!(disk.corrupt(&path, segment.offset_of(at), &block));
                let found = read(&rt, Lsn(0)).map(|(records, _)| records.len());
                let is_damage = epoch >= 3 && durable > lsn_of(broken);
                let expected = if is_damage { Err(Code::LogDamaged) } else { Ok(60) };
                let what = format!("epoch {epoch}, block {at} behind {broken}, {durable:?}");
                assert_eq!(found.map_err(|e| e.code()), expected, "{what}");
            }
        }
    }
    Ok(())
}

/// The start of an epoch is lost together with the last blocks of the epoch before: no remaining
/// block states anything about it, but the superblock names the epoch.
#[test]
fn an_epoch_without_its_start_is_damage() -> Result<()> {
    let sim = quiet(SimDisk::new(10), 10);
    let options = LogOptions { log_bytes: 1 << 20, buffer_bytes: 128 << 10, epoch: 1 };
    let log = Log::create(sim.runtime(), options, Lsn(0))?;
    for _ in 0..20 {
        let lsn = append(&log, &[1; 700])?;
        log.wait_durable(lsn)?;
    }
    let end = log.end();
    drop(log);
    let log = Log::create(sim.runtime(), LogOptions { epoch: 2, ..options }, end)?;
    drop(log);
    let epoch_of = |rt: &Arc<Runtime>| -> Result<(LogEnd, Behind)> {
        let (end, behind) = replay_to_end(rt, Lsn(0), &mut Collect::default())?;
        behind.check()?;
        Ok((end, behind))
    };
    let (whole, behind) = epoch_of(&sim.runtime())?;
    assert_eq!(whole.epoch, 2);
    behind.check_epoch(2)?;
    let disk = sim.disk().crash(CrashPolicy::KeepAll, 1);
    let segments = read_headers(&sim.runtime(), None)?;
    wipe(&disk, &segments, block_of(end) - 3..block_of(whole.end));
    let (cut, behind) = epoch_of(&quiet(disk, 1).runtime())?;
    assert!(cut.epoch == 1 && cut.end < end, "{cut:?}");
    behind.check_epoch(1)?;
    assert_eq!(behind.check_epoch(2).map_err(|e| e.code()), Err(Code::LogDamaged));
    Ok(())
}
