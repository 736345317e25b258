//! The log, read without the engine, by the steps of docs/format/wal.md. A damaged block ends the
//! reading, and the end says whether the log was damaged there or simply ends.

use crate::source::{Source, log_segments, read_file};
use evenkeel_base::{Lsn, Result};
use evenkeel_format::checkpoint_copy::{BLOCKS_MAX, CheckpointCopy, FILES, HEADER_BYTES};
use evenkeel_format::record::RecordKind;
use evenkeel_format::wal::{
    BLOCK, BLOCKS_ALIGN, BlockHeader, EPOCH_START, FRAME, NO_RECORD, PAYLOAD, SegmentHeader,
    block_of, lsn_of, segment_path, split_record,
};
use evenkeel_io::{File, OpenMode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Takes a record: its position, kind and body.
pub type EachRecord<'f> = dyn FnMut(Lsn, RecordKind, &[u8]) -> Result<()> + 'f;

/// The segments of the log.
pub struct Log {
    segments: Vec<(SegmentHeader, Arc<dyn File>)>,
    database: evenkeel_base::DatabaseId,
    /// Blocks of the newest checkpoint records, which have a second home.
    copies: BTreeMap<u64, Vec<u8>>,
    /// What is wrong with segments, in sentences.
    pub problems: Vec<String>,
}

/// A block that counts.
struct Block {
    header: BlockHeader,
    payload: Vec<u8>,
}

/// How far the log was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Where reading began.
    pub from: Lsn,
    /// Behind the last complete record.
    pub end: Lsn,
    /// Epoch of the last block read; 0 if there was none.
    pub epoch: u32,
    /// Records read.
    pub records: u64,
    /// A position up to which the log was durable once although it cannot be read: the log is
    /// damaged behind `end`.
    pub lost_to: Option<Lsn>,
    /// Why the record at `end` could not be used.
    pub problem: Option<String>,
}

impl Log {
    /// Reads the headers of the segments of this database.
    ///
    /// # Errors
    /// Those of the environment.
    pub fn open(source: &Source) -> Result<Log> {
        let (headers, mut problems) = log_segments(source.env())?;
        let mut segments = Vec::new();
        for header in headers {
            let name = segment_path(header.number);
            if header.database != source.database {
                problems.push(format!("{name}: of another database"));
                continue;
            }
            segments.push((header, source.env().open(&name, OpenMode::READ)?));
        }
        let (database, mut copies) = (source.database, BTreeMap::new());
        for path in FILES {
            let limit = HEADER_BYTES as u64 + BLOCKS_MAX * BLOCK as u64;
            let bytes = read_file(source.env(), path, limit)?;
            if let Ok(Some(copy)) = CheckpointCopy::decode(&bytes, database)
                && copy.first_block == block_of(copy.checkpoint)
            {
                let blocks = copy.blocks.chunks_exact(BLOCK).map(<[u8]>::to_vec);
                copies.extend((copy.first_block..).zip(blocks));
            }
        }
        Ok(Log { segments, database, copies, problems })
    }

    /// The block in its place, or else its copy. Where a whole segment is lost a copy does not
    /// count: the records behind it are lost, too, and the log would seem to end with the copy.
    fn block(&self, number: u64) -> Option<Block> {
        let covers = |s: &&(SegmentHeader, _)| (s.0.first_block..s.0.end_block()).contains(&number);
        // A segment that was used again covers its new blocks only.
        let (header, file) = self.segments.iter().rev().find(covers)?;
        let mut bytes = vec![0; BLOCK];
        let read = file.read_at(&mut bytes, header.offset_of(number)).ok();
        let placed = read.and_then(|()| self.valid(number, &bytes));
        placed.or_else(|| self.valid(number, self.copies.get(&number)?))
    }

    fn valid(&self, number: u64, bytes: &[u8]) -> Option<Block> {
        let found = BlockHeader::decode(bytes, self.database)?;
        if found.block != number {
            return None;
        }
        let start = BLOCK - PAYLOAD;
        let payload = bytes[start..start + usize::from(found.data_len)].to_vec();
        Some(Block { header: found, payload })
    }

    /// The first position at which a record begins, for a log whose redo position is not known.
    pub fn first_record(&self) -> Option<Lsn> {
        let first = self.segments.first()?.0.first_block.max(1);
        let end = self.segments.last()?.0.end_block();
        (first..end).find_map(|number| {
            let header = self.block(number)?.header;
            let at = u64::from(header.first_record);
            (header.first_record != NO_RECORD).then(|| Lsn(lsn_of(number).0 + at))
        })
    }

    /// Calls `f` with each record from `from`, a record boundary, to the end of what can be read. A
    /// record that `f` refuses ends it, too.
    pub fn read(&self, from: Lsn, f: &mut EachRecord<'_>) -> Reach {
        let first = block_of(from).max(1);
        let mut reach =
            Reach { from, end: from, epoch: 0, records: 0, lost_to: None, problem: None };
        let mut skip = from.0.saturating_sub(lsn_of(first).0) as usize;
        let mut pending: Vec<u8> = Vec::new();
        let mut next = first;
        let missing = loop {
            let fits = |block: &Block| {
                let header = &block.header;
                let takes_over = header.epoch > reach.epoch
                    && header.flags == EPOCH_START
                    && header.durable >= reach.end;
                reach.epoch == 0 || header.epoch == reach.epoch || takes_over
            };
            let found = self.block(next).filter(fits).map(|block| (next, block));
            let found = found.or_else(|| {
                // An epoch may have had to begin at a multiple of 4 KiB.
                let start = next.next_multiple_of(BLOCKS_ALIGN);
                let block = (start != next).then(|| self.block(start)).flatten()?;
                let begins = block.header.epoch > reach.epoch
                    && block.header.flags == EPOCH_START
                    && block.header.durable >= reach.end
                    && block.header.durable <= lsn_of(next);
                begins.then_some((start, block))
            });
            let Some((number, block)) = found else { break next };
            if block.header.epoch != reach.epoch {
                pending.clear();
                reach.epoch = block.header.epoch;
            }
            pending.extend_from_slice(block.payload.get(skip..).unwrap_or_default());
            skip = 0;
            let behind = lsn_of(number).0 + block.payload.len() as u64;
            let taken = match records(&pending, behind, &mut reach, f) {
                Ok(taken) => taken,
                Err(error) => {
                    reach.problem = Some(error.to_string());
                    reach.lost_to = Some(Lsn(behind));
                    break number;
                }
            };
            pending.drain(..taken);
            if pending.is_empty() {
                reach.end = lsn_of(number + 1);
            }
            next = number + 1;
        };
        reach.lost_to = reach.lost_to.max(self.durable_behind(missing, reach.epoch));
        reach
    }

    /// The greatest position that a valid block behind a missing one states to be durable, if it
    /// lies beyond that block.
    fn durable_behind(&self, missing: u64, epoch: u32) -> Option<Lsn> {
        let end = self.segments.last()?.0.end_block();
        let blocks = (missing + 1..end).filter_map(|number| self.block(number));
        let younger = blocks.filter(|block| block.header.epoch >= epoch.max(1));
        let durable = younger.map(|block| block.header.durable).max()?;
        (durable > lsn_of(missing)).then_some(durable)
    }
}

/// Passes the complete records of `pending`, whose last byte lies before `behind`; returns the
/// bytes passed. # Errors: `BadEncoding` for a record that does not decode; those of `f`.
fn records(
    pending: &[u8],
    behind: u64,
    reach: &mut Reach,
    f: &mut EachRecord<'_>,
) -> Result<usize> {
    let mut taken = 0;
    // Every block is full while a record goes on, so positions follow from the end.
    let position = |taken: usize| Lsn(behind - (pending.len() - taken) as u64);
    while let Some((kind, body)) = split_record(&pending[taken..])? {
        f(position(taken), kind, body)?;
        taken += FRAME + body.len();
        reach.records += 1;
        reach.end = position(taken);
    }
    Ok(taken)
}
