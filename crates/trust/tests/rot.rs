//! Rot. A small store, closed or as a kill leaves it, is damaged behind the engine's back: bits
//! flipped; pages and blocks zeroed, swapped, duplicated, as they were before or those of another
//! database; files cut, removed or put in another's place. Then either opening or reading says what
//! is damaged, naming the file, or what is read is what was written: never a wrong row or a panic.
//!
//! 1. Each checksummed unit alone (page, log block, run file): 100,000 mutations, each detected.
//! 2. Whole stores: `EVENKEEL_ROT` (2,000) damaged copies of `EVENKEEL_ROT_STORES` (8) stores, from
//!    seed `EVENKEEL_ROT_FIRST` (0) on, opened read-only and read.

use evenkeel_base::{Error, PageNo};
use evenkeel_format::{page, superblock, wal};
use evenkeel_io::{Env, Rng};
use evenkeel_trust::mutate::mutate;
use evenkeel_trust::stores::{self, LAST_ROWS, Store};
use evenkeel_trust::{faulty, fuzz, panics};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Flips one to three bits, or swaps in what lies elsewhere.
fn spoil(rng: &mut Rng, unit: &[u8], other: &[u8]) -> Vec<u8> {
    let mut out = unit.to_vec();
    match rng.below(8) {
        0 => out.fill(0),
        1 => out = other.to_vec(),
        2 => {
            // A torn write: the first part is another's.
            let cut = 512 * (1 + rng.below((unit.len() / 512) as u64) as usize);
            out[..cut.min(unit.len())].copy_from_slice(&other[..cut.min(unit.len())]);
        }
        _ => {
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(out.len() as u64) as usize;
                out[at] ^= 1 << rng.below(8);
            }
        }
    }
    out
}

#[test]
fn every_changed_unit_is_detected() {
    let env = stores::store(0, false).files;
    let slots = faulty::content(&*env, "evenkeel.super");
    let database = superblock::Superblock::choose(&slots).expect("valid").database_id;
    let pages = faulty::content(&*env, "pages/000000.pg");
    let images: Vec<(u64, &[u8])> = pages
        .chunks_exact(4096)
        .enumerate()
        .map(|(i, image)| (i as u64, image))
        .filter(|(i, image)| page::RawPage(image).verify(PageNo(*i), database).is_ok())
        .collect();
    let segments = faulty::paths(&*env).into_iter().filter(|p| p.starts_with("wal/"));
    let log: Vec<u8> = segments.flat_map(|path| faulty::content(&*env, &path)).collect();
    let blocks: Vec<&[u8]> = log
        .chunks_exact(wal::BLOCK)
        .filter(|b| wal::BlockHeader::decode(b, database).is_some())
        .collect();
    let slots: Vec<&[u8]> = slots.chunks_exact(superblock::SLOT_BYTES).collect();
    let (mut detected, mut same) = (0u64, 0u64);
    for seed in 0..100_000u64 {
        let mut rng = Rng::new(seed);
        let any = |rng: &mut Rng, n: usize| rng.below(n as u64) as usize;
        let found = match seed % 3 {
            0 | 1 if seed % 2 == 0 => {
                let (number, image) = images[any(&mut rng, images.len())];
                let other = images[any(&mut rng, images.len())].1;
                let bad = spoil(&mut rng, image, other);
                if bad == image {
                    None
                } else {
                    Some(page::RawPage(&bad).verify(PageNo(number), database).is_err())
                }
            }
            2 => {
                let (slot, other) = (slots[0], slots[1]);
                let bad = spoil(&mut rng, slot, other);
                let is_whole = bad == slot || bad == other;
                let decoded = superblock::Superblock::decode(&bad);
                (!is_whole).then_some(!matches!(decoded, Ok(Some(_))))
            }
            _ => {
                let at = any(&mut rng, blocks.len());
                let other = blocks[any(&mut rng, blocks.len())];
                let bad = spoil(&mut rng, blocks[at], other);
                let wanted = wal::BlockHeader::decode(blocks[at], database).expect("valid").block;
                // A block of another place is told by its number.
                let header = wal::BlockHeader::decode(&bad, database).filter(|h| h.block == wanted);
                (bad != blocks[at]).then_some(header.is_none())
            }
        };
        match found {
            None => same += 1,
            Some(true) => detected += 1,
            Some(false) => panic!("seed {seed}: a changed unit passes its checks"),
        }
    }
    println!("units: {detected} detected, {same} left as they were, of 100000");
}

/// What damaged stores did.
#[derive(Default, Debug)]
struct Tally {
    same: u64,
    refused: u64,
    harmless: u64,
    shorter: u64,
}

/// Where bytes come from that do not belong where they are put.
struct Strangers<'a> {
    /// Another database of the same shape.
    foreign: &'a dyn Env,
    /// An earlier state of the same database.
    older: &'a dyn Env,
}

/// Damages a file of `env`; says which one, and how. `None` if it stays as it was.
fn damage(rng: &mut Rng, env: &dyn Env, from: &Strangers<'_>) -> Option<String> {
    let paths: Vec<String> =
        faulty::paths(env).into_iter().filter(|p| p != "evenkeel.lock").collect();
    // Every third damage is to the superblock: there are many other files.
    let path = match rng.below(3) {
        0 => "evenkeel.super",
        _ => &paths[rng.below(paths.len() as u64) as usize],
    };
    let what = rng.below(11);
    if what == 0 {
        env.remove(path).expect("removes");
        return Some(format!("{path} removed"));
    }
    let before = faulty::content(env, path);
    let mut bytes = before.clone();
    let unit = if path.starts_with("wal/") { 512 } else { 4096 };
    let units = (bytes.len() / unit) as u64;
    let pick = |rng: &mut Rng| rng.below(units.max(1)) as usize * unit;
    match what {
        1 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
        2 if units > 0 => {
            let at = pick(rng);
            bytes[at..at + unit].fill(0);
        }
        3 if units > 1 => {
            let (a, b) = (pick(rng), pick(rng));
            let first = bytes[a..a + unit].to_vec();
            bytes.copy_within(b..b + unit, a);
            bytes[b..b + unit].copy_from_slice(&first);
        }
        4 if units > 1 => {
            let (a, b) = (pick(rng), pick(rng));
            bytes.copy_within(b..b + unit, a);
        }
        5..=8 => {
            // 5, 6: a unit, 7, 8: the whole file, of another database or as it was.
            let stranger = if what % 2 == 1 { from.foreign } else { from.older };
            // Lost writes of pages are not claimed (E7): the log does not tell them from others.
            let is_claimed = what % 2 == 1 || !path.starts_with("pages/");
            if is_claimed && faulty::paths(stranger).iter().any(|p| p == path) {
                let other = faulty::content(stranger, path);
                let at = pick(rng);
                if what >= 7 {
                    bytes = other;
                } else if at + unit <= other.len() {
                    bytes[at..at + unit].copy_from_slice(&other[at..at + unit]);
                }
            }
        }
        9 => bytes = mutate(rng, &bytes, &[]),
        _ => {
            for _ in 0..1 + rng.below(3) {
                if !bytes.is_empty() {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << rng.below(8);
                }
            }
        }
    }
    faulty::replace(env, path, &bytes);
    (bytes != before).then(|| format!("{path}, damage {what}"))
}

fn names_its_place(error: &Error) -> bool {
    let named = ["file", "lsn", "page", "directory", "part", "what", "table", "index"];
    named.iter().any(|name| error.context(name).is_some())
}

#[test]
fn damaged_stores_are_refused_or_read_right() {
    let (stores, count) = (number("EVENKEEL_ROT_STORES", 8).max(2), number("EVENKEEL_ROT", 2000));
    let first = number("EVENKEEL_ROT_FIRST", 0);
    let mut tally = Tally::default();
    let mut unnamed = Vec::new();
    let mut foreign = stores::store(first + stores, false);
    for seed in first..first + stores {
        let store = stores::store(seed, seed % 2 == 0);
        for round in 0..count / stores {
            let place = format!("store {seed}, round {round}");
            if let Err(error) = one_damage(&store, &foreign, seed << 32 | round, &mut tally)
                && !names_its_place(&error)
            {
                unnamed.push(format!("{place}: {error}"));
            }
        }
        foreign = store;
    }
    println!("{stores} stores, {count} damages: {tally:?}");
    assert!(unnamed.is_empty(), "{unnamed:#?}");
    assert!(tally.refused > count / 10 && tally.harmless > count / 10);
}

/// Damages a copy of a store, opens it and reads it. # Errors: what opening or reading said.
fn one_damage(store: &Store, foreign: &Store, seed: u64, tally: &mut Tally) -> Result<(), Error> {
    let mut rng = Rng::new(seed);
    let older = &store.older[rng.below(store.older.len() as u64) as usize];
    let from = Strangers { foreign: &*foreign.files, older: &**older };
    let copy: Arc<dyn Env> = faulty::copy(&*store.files);
    let Some(what) = damage(&mut rng, &*copy, &from) else {
        tally.same += 1;
        return Ok(());
    };
    let place = format!("store {}, round {}: {what}", seed >> 32, seed as u32);
    let (seen, read) = (panics::count(), catch_unwind(AssertUnwindSafe(|| fuzz::open(copy))));
    let Some(read) = read.ok().filter(|_| panics::count() == seen) else {
        panic!("{place}: panics");
    };
    match read {
        Ok(found) if found == store.rows => tally.harmless += 1,
        // The log's last records may look like a crash before they were durable: a shorter
        // history, whole transactions of it, is what a crash may leave.
        Ok(found) if is_prefix(&found, &store.rows) => {
            tally.shorter += 1;
            assert!(what.starts_with("wal/"), "{place}: rows are missing");
        }
        Ok(found) => panic!("{place}: {} wrong rows", found.len()),
        Err(error) => {
            tally.refused += 1;
            assert!(error.code() != evenkeel::Code::Internal, "{place}: {error}");
            return Err(error);
        }
    }
    Ok(())
}

/// The last transaction is missing.
fn is_prefix(found: &[(i64, i64)], rows: &[(i64, i64)]) -> bool {
    found.len() + LAST_ROWS as usize == rows.len() && rows.starts_with(found)
}
