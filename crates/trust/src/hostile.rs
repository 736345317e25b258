//! The fuzz target `open`: a directory whose files an attacker wrote. The input describes the
//! files, either as edits of a valid store or as whole files. Checksums are corrected after each
//! edit, so that the edits reach the checks of the decoders and of recovery.
//!
//! ```text
//! input   how u8 (even: edits of a store, odd: files), then edits or files up to the end
//! edit    file u8, unit u16 (of those that are not all zero), offset in it u16, length u8, bytes
//! file    file u8 (which name), length u16, bytes (padded with zeros to whole units)
//! ```

use crate::{faulty, fuzz, stores};
use evenkeel_base::{DatabaseId, crc32c};
use evenkeel_format::superblock::{SLOT_BYTES, Superblock};
use evenkeel_format::{page, run, undo, wal, warm};
use evenkeel_io::MemEnv;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Names of whole files.
const NAMES: [&str; 8] = [
    "evenkeel.super",
    "wal/00000001.wal",
    "pages/000000.pg",
    "runs/00000001.run",
    "wal/00000002.wal",
    "undo/00000001.undo",
    "dw",
    "pages/000001.pg",
];

/// Size of the units of a file that are written and checked as a whole.
fn unit_of(path: &str) -> usize {
    if path.starts_with("wal/") { wal::BLOCK } else { 4096 }
}

struct Template {
    database: DatabaseId,
    env: Arc<MemEnv>,
    files: Vec<(String, Vec<u8>)>,
    /// By file, the offsets of the units that are not all zero.
    units: Vec<Vec<usize>>,
}

/// The store that is edited, as a kill left it, so recovery has log to replay.
static TEMPLATE: LazyLock<Template> = LazyLock::new(|| {
    let env = stores::store(0, false).files;
    let paths = faulty::paths(&*env).into_iter().filter(|path| path != "evenkeel.lock");
    let files: Vec<_> = paths.map(|path| (path.clone(), faulty::content(&*env, &path))).collect();
    let units = |(path, bytes): &(String, Vec<u8>)| {
        let size = unit_of(path);
        let full = bytes.chunks(size).enumerate().filter(|(_, u)| u.iter().any(|b| *b != 0));
        full.map(|(i, _)| i * size).collect()
    };
    let slots = &files.iter().find(|(path, _)| path == "evenkeel.super").expect("there").1;
    let database = Superblock::choose(slots).expect("valid").database_id;
    Template { database, env, units: files.iter().map(units).collect(), files }
});

/// Reads numbers from the front of the input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        front
    }

    fn number(&mut self, bytes: usize) -> usize {
        self.take(bytes).iter().rev().fold(0, |n, b| n << 8 | usize::from(*b))
    }
}

/// Opens the directory that the input describes, read-only or with recovery on disk, and reads all
/// of it.
pub fn open(data: &[u8]) {
    let mut input = Input(data);
    let how = input.number(1) % 8;
    let (env, files) = match how % 2 {
        0 => (TEMPLATE.env.fork(), edited(&mut input)),
        _ => (MemEnv::new(), written(&mut input)),
    };
    for (path, bytes) in &files {
        faulty::replace(&env, path, bytes);
    }
    // Any result is correct if it takes bounded time and memory.
    let _ = fuzz::open_as(Arc::new(env), how < 4);
}

/// The files that the edits have changed.
fn edited(input: &mut Input<'_>) -> BTreeMap<String, Vec<u8>> {
    let template = &*TEMPLATE;
    let mut files = BTreeMap::<String, Vec<u8>>::new();
    for _ in 0..16 {
        if input.0.is_empty() {
            break;
        }
        let file = input.number(1) % template.files.len();
        let ((path, before), units) = (&template.files[file], &template.units[file]);
        let (unit, offset, len) = (input.number(2), input.number(2), input.number(1));
        let new = input.take(len);
        let Some(at) = units.get(unit % units.len().max(1)) else { continue };
        let bytes = files.entry(path.clone()).or_insert_with(|| before.clone());
        let at = (at + offset % unit_of(path)).min(bytes.len());
        let end = (at + new.len()).min(bytes.len());
        bytes[at..end].copy_from_slice(&new[..end - at]);
        seal(path, bytes, at..end, template.database);
    }
    files
}

fn written(input: &mut Input<'_>) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    while !input.0.is_empty() && files.len() < NAMES.len() {
        let path = NAMES[input.number(1) % NAMES.len()];
        let len = input.number(2);
        let mut bytes = input.take(len).to_vec();
        bytes.resize(bytes.len().next_multiple_of(unit_of(path)), 0);
        files.insert(path.to_string(), bytes);
    }
    let super_bytes = files.get_mut(NAMES[0]);
    let database = super_bytes.map_or(DatabaseId::ZERO, |bytes| {
        seal(NAMES[0], bytes, 0..usize::MAX, DatabaseId::ZERO);
        Superblock::choose(bytes).map_or(DatabaseId::ZERO, |s| s.database_id)
    });
    for (path, bytes) in &mut files {
        seal(path, bytes, 0..usize::MAX, database);
    }
    files
}

/// Corrects the checksums of the units in `changed`.
fn seal(path: &str, bytes: &mut [u8], changed: std::ops::Range<usize>, database: DatabaseId) {
    match path.split('/').next() {
        Some("evenkeel.super") => {
            for slot in bytes.chunks_exact_mut(SLOT_BYTES) {
                let crc = crc32c(0, &slot[12..]);
                slot[8..12].copy_from_slice(&crc.to_le_bytes());
            }
        }
        Some("wal") => seal_log(bytes, changed, database),
        Some("pages") => {
            for (i, image) in bytes.chunks_exact_mut(4096).enumerate() {
                let overlaps = i * 4096 < changed.end && changed.start < (i + 1) * 4096;
                if overlaps && image.iter().any(|b| *b != 0) {
                    page::seal(image, database);
                }
            }
        }
        Some("dw") => seal_doublewrite(bytes, changed, database),
        Some("runs") => seal_run(bytes, database),
        Some("undo") => seal_undo(bytes, database),
        Some("evenkeel.warm") if bytes.len() >= warm::HEADER_BYTES => {
            let crc = crc32c(crc32c(database.crc32c(&bytes[..12]), &[0; 4]), &bytes[16..]);
            bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        }
        _ => {}
    }
}

fn seal_log(bytes: &mut [u8], changed: std::ops::Range<usize>, database: DatabaseId) {
    if bytes.len() < wal::SEGMENT_HEADER {
        return;
    }
    let (header, blocks) = bytes.split_at_mut(wal::SEGMENT_HEADER);
    header[12..16].fill(0);
    header[40..48].copy_from_slice(&database.0.to_le_bytes());
    let crc = database.crc32c(header);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    for (i, block) in blocks.chunks_exact_mut(wal::BLOCK).enumerate() {
        let start = wal::SEGMENT_HEADER + i * wal::BLOCK;
        if start < changed.end && changed.start < start + wal::BLOCK {
            let crc = database.crc32c(&block[4..]);
            block[..4].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// Each region holds a header, then 1 MiB of images.
fn seal_doublewrite(bytes: &mut [u8], changed: std::ops::Range<usize>, database: DatabaseId) {
    const REGION: usize = 4096 + (1 << 20);
    for (i, block) in bytes.chunks_exact_mut(4096).enumerate() {
        let overlaps = i * 4096 < changed.end && changed.start < (i + 1) * 4096;
        if i * 4096 % REGION == 0 {
            let crc = database.crc32c(&block[8..]);
            block[4..8].copy_from_slice(&crc.to_le_bytes());
        } else if overlaps && block.iter().any(|b| *b != 0) {
            page::seal(block, database);
        }
    }
}

/// The envelopes of a run file follow each other; zeros separate the slices from the footer.
fn seal_run(bytes: &mut [u8], database: DatabaseId) {
    let mut at = 0;
    while at + run::ENVELOPE <= bytes.len() {
        if bytes[at + 4] == 0 {
            at = (at + 1).next_multiple_of(4096);
            continue;
        }
        let stored = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().expect("four")) as usize;
        let Some(end) = at.checked_add(run::ENVELOPE + stored).filter(|end| *end <= bytes.len())
        else {
            break;
        };
        let place = database.crc32c(&(at as u64).to_le_bytes());
        let crc = crc32c(place, &bytes[at + 4..end]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        at = end;
    }
    if let Some(at) = bytes.len().checked_sub(run::Trailer::LEN) {
        let trailer = &mut bytes[at..];
        let crc = crc32c(database.crc32c(&trailer[..12]), &trailer[16..]);
        trailer[12..16].copy_from_slice(&crc.to_le_bytes());
    }
}

fn seal_undo(bytes: &mut [u8], database: DatabaseId) {
    if bytes.len() < undo::SEGMENT_HEADER_LEN {
        return;
    }
    let segment: [u8; 8] = bytes[12..20].try_into().expect("eight");
    let crc = database.crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    let mut at = undo::SEGMENT_HEADER_LEN;
    while at + undo::FRAME_HEADER_LEN <= bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().expect("four")) as usize;
        let end = (at + undo::FRAME_HEADER_LEN).saturating_add(len);
        if len == 0 || end > bytes.len() {
            break;
        }
        let place = crc32c(database.crc32c(&segment), &(at as u64).to_le_bytes());
        let crc = crc32c(place, &bytes[at + 4..end]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        at = end;
    }
}

/// Initial inputs: a few edits of each file, and the beginnings of the store's files as whole
/// files.
pub fn corpus() -> Vec<Vec<u8>> {
    let template = &*TEMPLATE;
    let mut all = vec![vec![0]];
    for (file, units) in template.units.iter().enumerate() {
        for unit in 0..units.len().min(40) {
            let mut edit = vec![0, file as u8];
            edit.extend((unit as u16).to_le_bytes());
            edit.extend((16 + unit as u16 * 7 % 400).to_le_bytes());
            edit.extend([4, 0xff, 0, 0xff, 0x7f]);
            all.push(edit);
        }
    }
    let mut whole = vec![1];
    for (i, name) in NAMES.iter().enumerate() {
        if let Some((_, bytes)) = template.files.iter().find(|(path, _)| path == name) {
            let part = &bytes[..bytes.len().min(20_000)];
            whole.push(i as u8);
            whole.extend((part.len() as u16).to_le_bytes());
            whole.extend_from_slice(part);
        }
    }
    all.push(whole);
    all
}
