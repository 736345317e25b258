//! Damages files that the engine has closed. The store must report the damage and name the file, or
//! return correct rows. After damage to the log a shorter history is correct as well, since the
//! engine cannot tell the log's last blocks from its end. But a history that lacks a commit from
//! before the first damaged block is an error.
//!
//! Damage while the engine runs is done by the disk (`run`); its results are checked here.
//!
//! Lost writes are tested only where the engine can detect them: in files written once.

use crate::events::Events;
use crate::model::{Model, Phase};
use crate::verify::{Trouble, check_recovered};
use evenkeel::{Database, Error, Kind, Options};
use evenkeel_base::{Lsn, sync::Mutex};
use evenkeel_format::wal;
use evenkeel_io::{Rng, SimDisk, SimEnv};
use std::sync::Arc;

const BLOCK: u64 = 4096;
/// No commit record is longer than this.
const COMMIT_BYTES: u64 = 256;

/// The damage done to a file.
pub struct Damage {
    /// The file.
    pub path: String,
    /// The event to count if the engine refuses the file.
    refused: &'static str,
    /// In a log segment: the first damaged position of the log, if any block of the log is hit.
    log_from: Option<Lsn>,
}

impl Damage {
    /// Damage that the disk did to files at this path during writes or reads.
    pub fn met(path: &str, refused: &'static str) -> Damage {
        Damage { path: path.to_string(), refused, log_from: None }
    }
}

/// Damages one file, drawn at random.
pub fn damage(disk: &SimDisk, rng: &mut Rng) -> Option<Damage> {
    let mut paths = disk.paths();
    paths.retain(|p| !p.ends_with(".lock") && disk.content(p).is_some_and(|c| !c.is_empty()));
    let path = paths.get(rng.below(paths.len() as u64) as usize)?.clone();
    let content = disk.content(&path)?;
    let len = content.len() as u64;
    let blocks = len / BLOCK;
    let block = rng.below(blocks.max(1)) * BLOCK;
    let part = |at: u64| &content[at as usize..(at + BLOCK).min(len) as usize];
    let once = path.contains("runs/");
    let (refused, hit) = match rng.below(4) {
        0 => {
            let left = rng.below(len) / 512 * 512;
            disk.truncate(&path, left);
            ("truncated file refused", left..len)
        }
        1 if blocks > 1 => {
            let from = rng.below(blocks) * BLOCK;
            disk.corrupt(&path, block, part(from));
            if part(from) == part(block) {
                return None;
            }
            ("misdirected write refused", block..block + BLOCK)
        }
        2 if once => {
            let zeros = vec![0; part(block).len()];
            disk.corrupt(&path, block, &zeros);
            if zeros == part(block) {
                return None;
            }
            ("lost write refused", block..block + BLOCK)
        }
        _ => {
            let at = rng.below(len);
            disk.flip_bit(&path, at, rng.below(8) as u8);
            ("rotten block refused", at..at + 1)
        }
    };
    let log_from = if path.contains("wal/") { first_of_log(&content, hit) } else { None };
    Some(Damage { path, refused, log_from })
}

/// The first position of the log in these bytes of a segment. Only blocks that are valid and in
/// their place count. Damage to the header hits the whole segment.
fn first_of_log(segment: &[u8], hit: std::ops::Range<u64>) -> Option<Lsn> {
    let head = segment.get(..wal::SEGMENT_HEADER)?;
    let header = wal::SegmentHeader::decode(head).ok()?;
    if hit.start < wal::SEGMENT_HEADER as u64 {
        return Some(wal::lsn_of(header.first_block));
    }
    let is_live = |block: &u64| {
        let at = header.offset_of(*block) as usize;
        let bytes = segment.get(at..at + wal::BLOCK).unwrap_or_default();
        wal::BlockHeader::decode(bytes, header.database).is_some_and(|b| b.block == *block)
    };
    let place =
        |at: u64| header.first_block + (at - wal::SEGMENT_HEADER as u64) / wal::BLOCK as u64;
    let blocks = place(hit.start)..(place(hit.end - 1) + 1).min(header.end_block());
    blocks.into_iter().find(is_live).map(wal::lsn_of)
}

/// Opens the damaged store and checks that it refuses the damage or returns correct rows.
///
/// # Panics
/// If it returns wrong rows, or an error that does not name the damage.
pub fn check(
    sim: &SimEnv,
    options: Options,
    (model, events): (&Mutex<Model>, &Arc<Events>),
    damage: &Damage,
) {
    let mut model = model.lock().clone();
    let Damage { path, refused, log_from } = damage;
    if let Some(from) = log_from {
        // A commit record that begins before the damaged blocks may extend into them.
        model.doubt_above(from.0.saturating_sub(COMMIT_BYTES));
        model.tables.values_mut().for_each(|table| table.in_doubt = true);
        model.prepared.values_mut().for_each(|p| p.phase = Phase::Asked);
    }
    let opened = Database::open_with("db", options);
    let done = opened.map_err(Trouble::Error).and_then(|db| {
        let done = check_recovered(&db, &mut model);
        sim.disk().crash_now();
        done
    });
    match done {
        Ok(_) => events.hit("damage did no harm"),
        Err(Trouble::Error(error)) if is_refusal(&error) => events.hit(refused),
        Err(Trouble::Error(error)) => panic!("{path} is damaged: {error}"),
        Err(Trouble::Differs(what)) => panic!("{path} is damaged, unnoticed: {what}"),
    }
}

fn is_refusal(error: &Error) -> bool {
    let named = matches!(error.kind(), Kind::Corrupt | Kind::Version | Kind::NotFound);
    named || error.code().name() == "NotADatabase"
}
