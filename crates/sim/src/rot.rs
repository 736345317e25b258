//! Damage to the files behind the engine's back, after the last life of a seed: the store must
//! refuse what it cannot read, naming it, or give right rows. Of a damaged log a shorter history is
//! right as well: its last blocks cannot be told from the end.
//!
//! What a lost write leaves is taken where the engine can know of it: in files written once.

use crate::events::Events;
use crate::model::{Model, Phase};
use crate::verify::{Trouble, check_recovered};
use evenkeel::{Database, Error, Kind, Options};
use evenkeel_base::sync::Mutex;
use evenkeel_io::{Rng, SimDisk, SimEnv};
use std::sync::Arc;

const BLOCK: u64 = 4096;

/// Damages one file by chance; the path and the event if it is refused.
pub fn damage(disk: &SimDisk, rng: &mut Rng) -> Option<(String, &'static str)> {
    let mut paths = disk.paths();
    paths.retain(|p| !p.ends_with(".lock") && disk.content(p).is_some_and(|c| !c.is_empty()));
    let path = paths.get(rng.below(paths.len() as u64) as usize)?.clone();
    let content = disk.content(&path)?;
    let len = content.len() as u64;
    let blocks = len / BLOCK;
    let block = rng.below(blocks.max(1)) * BLOCK;
    let part = |at: u64| &content[at as usize..(at + BLOCK).min(len) as usize];
    let once = path.contains("runs/");
    match rng.below(4) {
        0 => {
            disk.truncate(&path, rng.below(len) / 512 * 512);
            Some((path, "truncated file refused"))
        }
        1 if blocks > 1 => {
            let from = rng.below(blocks) * BLOCK;
            disk.corrupt(&path, block, part(from));
            (part(from) != part(block)).then_some((path, "misdirected write refused"))
        }
        2 if once => {
            let zeros = vec![0; part(block).len()];
            disk.corrupt(&path, block, &zeros);
            (zeros != part(block)).then_some((path, "lost write refused"))
        }
        _ => {
            disk.flip_bit(&path, rng.below(len), rng.below(8) as u8);
            Some((path, "rotten block refused"))
        }
    }
}

/// Opens the damaged store and checks that it refuses or is right.
///
/// # Panics
/// If it gives wrong rows, or an error that does not say what is wrong.
pub fn check(
    sim: &SimEnv,
    options: Options,
    (model, events): (&Mutex<Model>, &Arc<Events>),
    (path, refused): &(String, &'static str),
) {
    let mut model = model.lock().clone();
    if path.contains("wal/") {
        model.acked = 0;
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
