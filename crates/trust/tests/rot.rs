//! Rot. A small store, closed or killed, is damaged behind the engine's back: bits are flipped;
//! pages and blocks are zeroed, swapped, duplicated, or replaced by those of an earlier state or of
//! another database; files are cut, removed or replaced by others. Then either an open or a read
//! fails and names the file and the damage, or reads return what was written. There is never a
//! wrong row or a panic.
//!
//! 1. Each checksummed unit alone (page, log block, superblock slot, envelope and trailer of a run
//!    file, frame and header of an undo segment): 100,000 mutations, each detected.
//! 2. A run file without its footer: the database opens, and one index is damaged.
//! 3. Whole stores: `EVENKEEL_ROT` (2,000) damaged copies of `EVENKEEL_ROT_STORES` (8) stores, from
//!    seed `EVENKEEL_ROT_FIRST` (0) on, opened, half of them read-only, and read.

use evenkeel::ValueRef::{Bytes, Int};
use evenkeel::{
    Access, Code, Database, Direction, IndexSpec, Isolation, Kind, Range, Row, TableRef,
};
use evenkeel_base::{DatabaseId, Error, IndexId, PageNo, Stamp, TreeId, TxnId, UndoNo};
use evenkeel_format::record::{Before, RowKind};
use evenkeel_format::{page, run, superblock, undo, wal};
use evenkeel_io::{Env, MemEnv, Rng};
use evenkeel_trust::mutate::mutate;
use evenkeel_trust::stores::{self, LAST_ROWS, Store};
use evenkeel_trust::{faulty, fuzz, panics};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Flips one to three bits, or puts in bytes from elsewhere.
fn spoil(rng: &mut Rng, unit: &[u8], other: &[u8]) -> Vec<u8> {
    let mut out = unit.to_vec();
    match rng.below(8) {
        0 => out.fill(0),
        1 => out = other.to_vec(),
        2 => {
            // A torn write: the first part is that of another unit.
            let cut = 512 * (1 + rng.below((unit.len() / 512) as u64 + 1) as usize);
            let cut = cut.min(unit.len()).min(other.len());
            out[..cut].copy_from_slice(&other[..cut]);
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

/// Whether the checks accept these bytes in the place of a unit.
type Passes = dyn Fn(&[u8]) -> bool;

/// A part of a file that has a checksum of its own.
struct Unit {
    bytes: Vec<u8>,
    passes: Box<Passes>,
}

impl Unit {
    fn new(bytes: &[u8], passes: impl Fn(&[u8]) -> bool + 'static) -> Unit {
        Unit { bytes: bytes.to_vec(), passes: Box::new(passes) }
    }
}

fn pages(env: &dyn Env, database: DatabaseId) -> Vec<Unit> {
    let content = faulty::content(env, "pages/000000.pg");
    let images = content.chunks_exact(4096).enumerate().map(|(i, image)| {
        let number = PageNo(i as u64);
        Unit::new(image, move |bytes| page::RawPage(bytes).verify(number, database).is_ok())
    });
    images.filter(|unit| (unit.passes)(&unit.bytes)).collect()
}

fn log_blocks(env: &dyn Env, database: DatabaseId) -> Vec<Unit> {
    let segments = faulty::paths(env).into_iter().filter(|p| p.starts_with("wal/"));
    let log: Vec<u8> = segments.flat_map(|path| faulty::content(env, &path)).collect();
    let number = move |b: &[u8]| wal::BlockHeader::decode(b, database).map(|h| h.block);
    // The number of a block shows that it belongs elsewhere.
    let unit =
        |b: &[u8]| number(b).map(|own| Unit::new(b, move |bytes| number(bytes) == Some(own)));
    log.chunks_exact(wal::BLOCK).filter_map(unit).collect()
}

const SLOT: &str = "superblock slot";

fn slots(env: &dyn Env) -> Vec<Unit> {
    let decodes = |bytes: &[u8]| matches!(superblock::Superblock::decode(bytes), Ok(Some(_)));
    let content = faulty::content(env, "evenkeel.super");
    // A slot that was never written is not a unit.
    let written = content.chunks_exact(superblock::SLOT_BYTES).filter(|slot| decodes(slot));
    written.map(|slot| Unit::new(slot, decodes)).collect()
}

/// Envelopes of data, fences, filters and footers, and the trailers.
fn run_units(env: &dyn Env, database: DatabaseId) -> (Vec<Unit>, Vec<Unit>) {
    let (mut envelopes, mut trailers) = (Vec::new(), Vec::new());
    for path in faulty::paths(env).into_iter().filter(|p| p.starts_with("runs/")) {
        let bytes = faulty::content(env, &path);
        let name = path.trim_start_matches("runs/").trim_end_matches(".run");
        let file: u64 = name.parse().expect("a number");
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let end = bytes.len() - run::Trailer::LEN;
        let mut at = 0;
        while at + run::ENVELOPE <= end {
            use run::EnvelopeKind::{Data, Fences, Filter, Footer};
            let Some(kind) =
                [Data, Fences, Filter, Footer].into_iter().find(|k| *k as u8 == bytes[at + 4])
            else {
                // Zeros between slices and footer.
                at = (at + 1).next_multiple_of(4096);
                continue;
            };
            let (position, index, number) = (at as u64, IndexId(word(at + 16)), word(at + 20));
            let id = run::EnvelopeId { database, kind, file, position, index, number };
            let next = at + run::ENVELOPE + word(at + 8) as usize;
            let opens = move |bytes: &[u8]| run::open(id, bytes).is_ok();
            envelopes.push(Unit::new(&bytes[at..next], opens));
            at = next;
        }
        let decodes = move |bytes: &[u8]| run::Trailer::decode(bytes, file, database).is_ok();
        trailers.push(Unit::new(&bytes[end..], decodes));
    }
    (envelopes, trailers)
}

/// Frames of undo and the headers of their segments, as the engine writes them.
fn undo_units(database: DatabaseId) -> (Vec<Unit>, Vec<Unit>) {
    let (mut frames, mut headers) = (Vec::new(), Vec::new());
    for segment in 1..9u64 {
        let header = undo::segment_header(segment, database);
        let checks = move |b: &[u8]| undo::check_segment_header(b, segment, database).is_ok();
        headers.push(Unit::new(&header, checks));
        let mut offset = header.len() as u64;
        for txn in 1..9u64 {
            let mut payload = Vec::new();
            let (first, last) = (UndoNo(0), UndoNo(10 * txn as u32));
            for undo_no in (first.0..=last.0).map(UndoNo) {
                let stamp = Stamp { txn: TxnId(3), undo_no };
                let before = Some(Before { flags: 0, stamp, row: &[7; 50] });
                let (kind, tree, key) = (RowKind::Update, TreeId(5), &undo_no.0.to_be_bytes());
                undo::UndoRecord { undo_no, kind, tree, key, before }.encode(&mut payload);
            }
            let id = undo::FrameId { database, segment, offset, txn: TxnId(txn), first, last };
            let frame = [&undo::frame_header(&id, &payload)[..], &payload].concat();
            offset += frame.len() as u64;
            frames.push(Unit::new(&frame, move |b| undo::check_frame(b, &id).is_ok()));
        }
    }
    (frames, headers)
}

/// The number of mutations that change bytes.
const MUTATIONS: u64 = 100_000;

#[test]
fn every_changed_unit_is_detected() {
    let env = stores::store(0, false).files;
    let slots_bytes = faulty::content(&*env, "evenkeel.super");
    let database = superblock::Superblock::choose(&slots_bytes).expect("valid").database_id;
    let ((envelopes, trailers), (frames, headers)) =
        (run_units(&*env, database), undo_units(database));
    let kinds = [
        ("page", pages(&*env, database)),
        ("log block", log_blocks(&*env, database)),
        (SLOT, slots(&*env)),
        ("envelope of a run", envelopes),
        ("trailer of a run", trailers),
        ("frame of undo", frames),
        ("header of undo", headers),
    ];
    for (name, units) in &kinds {
        assert!(!units.is_empty(), "no {name}");
        assert!(units.iter().all(|unit| (unit.passes)(&unit.bytes)), "a whole {name} is refused");
    }
    let (mut detected, mut seed) = ([0u64; 7], 0u64);
    // A mutation that changes nothing does not count.
    while detected.iter().sum::<u64>() < MUTATIONS {
        assert!(seed < 2 * MUTATIONS, "few of them change anything: {detected:?}");
        let mut rng = Rng::new(seed);
        let at = (seed % kinds.len() as u64) as usize;
        let (name, units) = &kinds[at];
        let any = |rng: &mut Rng| &units[rng.below(units.len() as u64) as usize];
        let (unit, other) = (any(&mut rng), any(&mut rng));
        let bad = spoil(&mut rng, &unit.bytes, &other.bytes);
        // A slot of the superblock is valid in both places.
        let is_whole = bad == unit.bytes || *name == SLOT && bad == other.bytes;
        if !is_whole {
            assert!(!(unit.passes)(&bad), "seed {seed}: a changed {name} passes its checks");
            detected[at] += 1;
        }
        seed += 1;
    }
    for ((name, units), n) in kinds.iter().zip(detected) {
        println!("{name}: {} units, {n} changes detected", units.len());
        assert!(n > MUTATIONS / 7 / 2, "{name}");
    }
    println!("{} changes detected of {seed} tried", detected.iter().sum::<u64>());
    assert_eq!(detected.iter().sum::<u64>(), MUTATIONS);
}

/// The outcomes of damaged stores.
#[derive(Default, Debug)]
struct Tally {
    same: u64,
    refused: u64,
    harmless: u64,
    shorter: u64,
}

/// Sources of bytes that do not belong where the test puts them.
struct Strangers<'a> {
    /// Another database of the same shape.
    foreign: &'a dyn Env,
    /// An earlier state of the same database.
    older: &'a dyn Env,
}

/// Damages a file of `env`. Returns which file and how, or `None` if nothing changed.
fn damage(rng: &mut Rng, env: &dyn Env, from: &Strangers<'_>) -> Option<String> {
    let paths: Vec<String> =
        faulty::paths(env).into_iter().filter(|p| p != "evenkeel.lock").collect();
    // Every third damage hits the superblock, because there are many other files.
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
            // 5, 6: a unit; 7, 8: the whole file. Both come from another database or from an
            // earlier state.
            let stranger = if what % 2 == 1 { from.foreign } else { from.older };
            // The engine does not claim to detect lost writes of pages (E7): an older version of a
            // page is a valid page.
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

/// True if the error names the file and the place in it, so that an operator can look there. Log
/// positions count as places. A missing file has no place, nor has a superblock whose slots are
/// both wrong.
fn names_its_place(error: &Error) -> bool {
    let has = |name| error.context(name).is_some();
    let is_gone = match error.code() {
        Code::FileMissing | Code::LogMissing => has("file"),
        Code::NotADatabase | Code::DirectoryNotEmpty => has("file") || has("directory"),
        Code::RunDamaged => error.context("why").is_some_and(|why| why.ends_with("is missing")),
        _ => false,
    };
    is_gone || has("file") && (has("offset") || has("page") || has("lsn"))
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

/// Damages a copy of a store, opens it and reads it. Returns the error of the open or the read.
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
    let read_only = rng.one_in(2);
    let read = || fuzz::open_as(copy, read_only);
    let (seen, read) = (panics::count(), catch_unwind(AssertUnwindSafe(read)));
    let Some(read) = read.ok().filter(|_| panics::count() == seen) else {
        panic!("{place}: panics");
    };
    match read {
        Ok(found) if found == store.rows => tally.harmless += 1,
        // Damage of the log's last records may look like a crash before they were durable. A crash
        // may leave a shorter history of whole transactions.
        Ok(found) if is_prefix(&found, &store.rows) => {
            tally.shorter += 1;
            assert!(what.starts_with("wal/"), "{place}: rows are missing");
        }
        Ok(found) => panic!("{place}: {} wrong rows", found.len()),
        Err(error) => {
            tally.refused += 1;
            assert!(error.code() != Code::Internal, "{place}: {error}");
            return Err(error);
        }
    }
    Ok(())
}

/// True if only the last transaction is missing.
fn is_prefix(found: &[(i64, i64)], rows: &[(i64, i64)]) -> bool {
    found.len() + LAST_ROWS as usize == rows.len() && rows.starts_with(found)
}

/// A database with a table whose index `by_pad` has a file of its own, closed.
fn with_a_built_index(env: &Arc<dyn Env>) -> String {
    let db = Database::open_with("dir", stores::small_options(env.clone())).expect("opens");
    db.create_table("t", &fuzz::small_table()).expect("creates");
    write(&db, |table| {
        (0..300).try_for_each(|id| {
            table.insert(&[Int(id), Int(-id), Bytes(&id.to_be_bytes())]).map(|_| ())
        })
    })
    .expect("fills");
    db.checkpoint().expect("a checkpoint");
    let before = faulty::paths(&**env);
    db.add_indexes("t", &[IndexSpec::new("by_pad", &["pad"]).unique()]).expect("builds");
    let new = faulty::paths(&**env).into_iter().filter(|p| !before.contains(p));
    let files: Vec<String> = new.filter(|p| p.starts_with("runs/")).collect();
    db.close().expect("closes");
    files.into_iter().next().expect("a file of the build")
}

fn write(
    db: &Database,
    f: impl FnOnce(&mut TableRef<'_>) -> evenkeel::Result<()>,
) -> evenkeel::Result<()> {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite)?;
    f(&mut txn.table("t")?)?;
    txn.commit().map(|_| ())
}

/// The number of entries of an index-only scan.
fn entries(db: &Database, index: &str) -> evenkeel::Result<usize> {
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    let index = txn.table("t")?.index(index)?;
    let mut scan = index.keys_only().scan(Range::ALL, Direction::Forward)?;
    let (mut row, mut count) = (Row::new(), 0);
    while scan.next(&mut row)? {
        count += 1;
    }
    Ok(count)
}

/// A run file that no longer states its contents damages its index and nothing else. The database
/// opens, and rows and the other index are read and written. An operation that needs the damaged
/// index gets an error that names table, index, file and next step. Dropping the index and adding
/// it again repairs the table.
#[test]
fn a_damaged_index_leaves_the_other_indexes_usable() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let path = with_a_built_index(&env);
    let mut bytes = faulty::content(&*env, &path);
    let end = bytes.len() - 4096;
    bytes[end..].fill(0);
    faulty::replace(&*env, &path, &bytes);
    let open = || Database::open_with("dir", stores::small_options(env.clone()));
    for _ in 0..2 {
        let db = open().expect("opens all the same");
        let error = entries(&db, "by_pad").expect_err("damaged");
        let said = error.to_string();
        for part in ["table=t", "index=by_pad", "file=runs/", "repair the table (REPAIR TABLE"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(error.kind(), Kind::Corrupt);
        // A change that needs a check of the unique key is refused; a change that leaves the key
        // alone succeeds.
        let insert =
            |t: &mut TableRef<'_>| t.insert(&[Int(900), Int(1), Bytes(b"new")]).map(|_| ());
        let refused = write(&db, insert).expect_err("its key may be there");
        assert_eq!(refused.context("index"), Some("by_pad"));
        write(&db, |t| t.update(&[Int(7)], &[(1, Int(1_000))]).map(|_| ())).expect("updates");
        write(&db, |t| t.delete(&[Int(8)]).map(|_| ())).expect("deletes");
        write(&db, |t| t.insert(&[Int(8), Int(-8), Bytes(b"")]).map(|_| ())).expect_err("refused");
        let found = db.check_table("t").expect("checks").problems;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("by_pad") && found[0].contains(&path), "{found:?}");
        assert_eq!(entries(&db, "by_value").expect("whole"), 299);
        db.close().expect("closes");
    }
    let db = open().expect("opens");
    db.drop_index("t", "by_pad").expect("drops");
    assert!(!faulty::paths(&*env).contains(&path), "its file is gone");
    db.add_indexes("t", &[IndexSpec::new("by_pad", &["pad"]).unique()]).expect("builds");
    db.close().expect("closes");
    let db = open().expect("opens");
    assert_eq!(entries(&db, "by_pad").expect("whole"), 299);
    assert_eq!(db.check_table("t").expect("checks").problems, Vec::<String>::new());
    write(&db, |t| t.insert(&[Int(900), Int(1), Bytes(b"new")]).map(|_| ())).expect("inserts");
}

/// Each page of the catalog and of the space map is damaged in turn, in a closed store and in a
/// killed one. An open that fails has changed no byte of the existing files. Undo that did not fit
/// in memory lies in a new file, which nothing refers to and the next open removes.
#[test]
fn an_open_that_fails_writes_nothing() {
    let (mut of_closed, mut of_killed) = (0, 0);
    for closed in [true, false] {
        let store = stores::store(3, closed);
        let slots = faulty::content(&*store.files, "evenkeel.super");
        let superblock = superblock::Superblock::choose(&slots).expect("valid");
        let pages = faulty::content(&*store.files, "pages/000000.pg");
        for at in (0..pages.len() / 4096).map(|page| page * 4096) {
            let (image, number) = (&pages[at..at + 4096], PageNo(at as u64 / 4096));
            let is_whole = page::RawPage(image).verify(number, superblock.database_id).is_ok();
            if !is_whole || page::tree(image) > evenkeel_tables::catalog::TREE {
                continue;
            }
            let env: Arc<dyn Env> = faulty::copy(&*store.files);
            let mut bytes = pages.clone();
            bytes[at + 100] ^= 1;
            faulty::replace(&*env, "pages/000000.pg", &bytes);
            let files = || {
                let paths = faulty::paths(&*env).into_iter().filter(|p| p != "evenkeel.lock");
                paths.map(|p| (faulty::content(&*env, &p), p)).collect::<Vec<_>>()
            };
            let before = files();
            if let Err(error) = Database::open_with("dir", stores::small_options(env.clone())) {
                *if closed { &mut of_closed } else { &mut of_killed } += 1;
                assert!(names_its_place(&error), "{error}");
                let now = files();
                let changed = before.iter().find(|file| !now.contains(file)).map(|(_, path)| path);
                assert_eq!(changed, None, "page {}: {error}", at / 4096);
                let new = now.iter().find(|(_, path)| before.iter().all(|(_, old)| old != path));
                let is_undo = new.is_none_or(|(_, path)| path.starts_with("undo/"));
                assert!(is_undo, "page {}: {error}", at / 4096);
            }
        }
    }
    println!("{of_closed} pages of a closed store, {of_killed} of a killed one");
    assert!(of_closed > 1 && of_killed > 0);
}
