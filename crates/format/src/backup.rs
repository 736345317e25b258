//! The manifest of a backup: a text that names the files, with their sizes and checksums, and the
//! range of the log. `docs/format/backup.md` describes the directory.
//!
//! ```text
//! evenkeel backup 1                      version of this text; 2 if it has a note
//! database 0123456789abcdef              id of the database
//! versions 2 1 2 1 1                     superblock, page, log, run, catalog
//! page_size 4096
//! redo 480                               recovery begins here
//! checkpoint 900                         the checkpoint record
//! end 1234                               behind the last whole record
//! note mariadb-bin.000002 4711            only in version 2: the caller's text about the end
//! file 1048577 pages/000000.pg 1a2b3c4d -    one line a file: bytes, path, pieces
//! crc32c 89abcdef                        of everything before this line
//! ```
//!
//! A piece is 1 MiB of the file, the last one shorter. Its word is the CRC-32C of its bytes, or `-`
//! if it holds only zeros and need not be stored. Paths are those of the database's directory; the
//! superblock is in `superblock`.

use crate::superblock::{
    CATALOG_VERSION, LOG_VERSION, PAGE_VERSION, RUN_VERSION, SUPERBLOCK_VERSION,
};
use evenkeel_base::{Code, DatabaseId, Error, Lsn, Result, crc32c};
use std::fmt::Write;

/// Bytes of a piece of a file.
pub const PIECE_BYTES: u64 = 1 << 20;
/// The name of the manifest in the directory of a backup.
pub const MANIFEST_FILE: &str = "MANIFEST";
/// The name of the marker, which is written last. It holds the checksum of the manifest.
pub const MARKER_FILE: &str = "COMPLETE";
/// The name of the superblock, one slot.
pub const SUPERBLOCK_FILE: &str = "superblock";
/// The directories of a backup.
pub const DIRECTORIES: [&str; 4] = ["pages", "wal", "runs", "undo"];

const VERSION: &str = "1";
/// The version of a text with a `note`.
const VERSION_NOTED: &str = "2";
/// The longest note.
pub const NOTE_BYTES_MAX: usize = 1024;
const PARTS: [&str; 5] = ["superblock", "page", "log", "run", "catalog"];
/// The newest versions that this build reads.
pub const VERSIONS: [u16; 5] =
    [SUPERBLOCK_VERSION, PAGE_VERSION, LOG_VERSION, RUN_VERSION, CATALOG_VERSION];

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// Its path below the directory.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// The checksum of each piece; none for one of zeros.
    pub pieces: Vec<Option<u32>>,
}

impl BackupFile {
    /// Bytes of the pieces that are stored.
    pub fn stored_bytes(&self) -> u64 {
        let whole = self.pieces.iter().flatten().count() as u64 * PIECE_BYTES;
        let is_last_stored = self.pieces.last().is_some_and(Option::is_some);
        let short = (PIECE_BYTES - self.bytes % PIECE_BYTES) % PIECE_BYTES;
        whole - if is_last_stored { short } else { 0 }
    }
}

/// The content of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupManifest {
    /// The database.
    pub database: DatabaseId,
    /// Versions of superblock, page, log, run and catalog.
    pub versions: [u16; 5],
    /// Its page size.
    pub page_size: u32,
    /// Recovery begins here.
    pub redo: Lsn,
    /// The checkpoint record.
    pub checkpoint: Lsn,
    /// Behind the last whole record: commits below are in the backup, and no others.
    pub end: Lsn,
    /// The caller's text about the end: one line of printable characters.
    pub note: Option<String>,
    /// The files.
    pub files: Vec<BackupFile>,
}

/// True for a text that a manifest may have as its note.
pub fn is_note(note: &str) -> bool {
    (1..=NOTE_BYTES_MAX).contains(&note.len()) && !note.chars().any(char::is_control)
}

fn bad(line: usize, why: &'static str) -> Error {
    let error = Error::new(Code::BadEncoding).with("what", "backup manifest");
    error.with("line", line).with("why", why)
}

/// True for a path that a backup may contain: a restore writes nowhere else.
fn is_path(path: &str) -> bool {
    let is_name = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
    };
    match path.split_once('/') {
        None => path == SUPERBLOCK_FILE,
        Some((dir, name)) => DIRECTORIES.contains(&dir) && is_name(name),
    }
}

impl BackupManifest {
    /// The text.
    pub fn encode(&self) -> String {
        let BackupManifest { database, versions: [s, p, l, r, c], page_size, .. } = self;
        let version = if self.note.is_some() { VERSION_NOTED } else { VERSION };
        let mut out = format!(
            "evenkeel backup {version}\ndatabase {:016x}\nversions {s} {p} {l} {r} {c}\n\
             page_size {page_size}\nredo {}\ncheckpoint {}\nend {}\n",
            database.0, self.redo.0, self.checkpoint.0, self.end.0
        );
        if let Some(note) = &self.note {
            // Writing to a string does not fail.
            let _ = writeln!(out, "note {note}");
        }
        for file in &self.files {
            let _ = write!(out, "file {} {}", file.bytes, file.path);
            for piece in &file.pieces {
                let _ = match piece {
                    Some(crc) => write!(out, " {crc:08x}"),
                    None => write!(out, " -"),
                };
            }
            out.push('\n');
        }
        let crc = crc32c(0, out.as_bytes());
        let _ = writeln!(out, "crc32c {crc:08x}");
        out
    }

    /// Reads the text.
    ///
    /// # Errors
    /// `BadEncoding` naming the line; `NewerFormat` for a version unknown to this build, of the
    /// text or of a part of the database.
    pub fn decode(bytes: &[u8]) -> Result<BackupManifest> {
        let text = std::str::from_utf8(bytes).map_err(|_| bad(0, "not UTF-8"))?;
        let newer = |part: &str, found: &str, known: &str| {
            let error = Error::new(Code::NewerFormat).with("part", part);
            error.with("found", found).with("known", known)
        };
        let first = text.split('\n').next().unwrap_or_default();
        let is_noted = match first.strip_prefix("evenkeel backup ") {
            Some(VERSION) => false,
            Some(VERSION_NOTED) => true,
            Some(found) => return Err(newer("backup", found, VERSION_NOTED)),
            None => return Err(bad(1, "no backup manifest")),
        };
        let cut = text.trim_end_matches('\n').rfind('\n').ok_or_else(|| bad(1, "too short"))?;
        let (body, last) = text.split_at(cut + 1);
        let crc = last.strip_prefix("crc32c ").and_then(|word| hex(word.strip_suffix('\n')?, 8));
        let lines = body.split_terminator('\n').count();
        match crc {
            Some(crc) if crc == u64::from(crc32c(0, body.as_bytes())) => {}
            Some(_) => return Err(bad(lines + 1, "checksum")),
            None => return Err(bad(lines + 1, "no checksum")),
        }
        let mut lines = body.split_terminator('\n').enumerate().skip(1);
        let mut field = |name: &'static str| {
            let (at, line) = lines.next().ok_or_else(|| bad(8, "ends too early"))?;
            let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' '));
            value.map(|value| (at + 1, value)).ok_or_else(|| bad(at + 1, name))
        };
        let (at, database) = field("database")?;
        let database = hex(database, 16).ok_or_else(|| bad(at, "database"))?;
        let (at, found) = field("versions")?;
        let found: Option<Vec<u16>> = found.split(' ').map(number).collect();
        let versions: Option<[u16; 5]> = found.and_then(|found| found.try_into().ok());
        let versions = versions.ok_or_else(|| bad(at, "versions"))?;
        for ((part, found), known) in PARTS.iter().zip(versions).zip(VERSIONS) {
            if !(1..=known).contains(&found) {
                return Err(newer(part, &found.to_string(), &known.to_string()));
            }
        }
        let mut lsn = |name| {
            let (at, value) = field(name)?;
            number::<u64>(value).ok_or_else(|| bad(at, name))
        };
        let page_size = lsn("page_size")?;
        let (redo, checkpoint, end) = (lsn("redo")?, lsn("checkpoint")?, lsn("end")?);
        let page_size = u32::try_from(page_size).map_err(|_| bad(4, "page_size"))?;
        if redo > checkpoint || checkpoint >= end {
            return Err(bad(7, "redo <= checkpoint < end does not hold"));
        }
        let mut note = None;
        if is_noted {
            let (at, text) = field("note")?;
            note = Some(text.to_string());
            is_note(text).then_some(()).ok_or_else(|| bad(at, "note"))?;
        }
        let files = lines.map(|(at, line)| file(at + 1, line)).collect::<Result<Vec<_>>>()?;
        let (redo, checkpoint, end) = (Lsn(redo), Lsn(checkpoint), Lsn(end));
        let database = DatabaseId(database);
        Ok(BackupManifest { database, versions, page_size, redo, checkpoint, end, note, files })
    }

    /// The content of the marker for a manifest of this text.
    pub fn marker(text: &[u8]) -> String {
        format!("{:08x}\n", crc32c(0, text))
    }
}

fn file(at: usize, line: &str) -> Result<BackupFile> {
    let mut words = line.strip_prefix("file ").ok_or_else(|| bad(at, "file"))?.split(' ');
    let bytes: u64 = words.next().and_then(number).ok_or_else(|| bad(at, "bytes"))?;
    let path = words.next().filter(|path| is_path(path)).ok_or_else(|| bad(at, "path"))?;
    let piece = |word: &str| match word {
        "-" => Ok(None),
        word => hex(word, 8).map(|crc| Some(crc as u32)).ok_or_else(|| bad(at, "a piece")),
    };
    let pieces = words.map(piece).collect::<Result<Vec<_>>>()?;
    if pieces.len() as u64 != bytes.div_ceil(PIECE_BYTES) {
        return Err(bad(at, "the number of pieces does not fit the bytes"));
    }
    Ok(BackupFile { path: path.to_string(), bytes, pieces })
}

/// A decimal number as `encode` writes it.
fn number<T: std::str::FromStr>(word: &str) -> Option<T> {
    let is_plain =
        word.bytes().all(|b| b.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    word.parse().ok().filter(|_| is_plain)
}

/// A hexadecimal number of so many lower-case digits.
fn hex(word: &str, digits: usize) -> Option<u64> {
    let is_plain = word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    u64::from_str_radix(word, 16).ok().filter(|_| is_plain && word.len() == digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BackupManifest {
        let file = |path: &str, bytes, pieces: &[Option<u32>]| BackupFile {
            path: path.into(),
            bytes,
            pieces: pieces.to_vec(),
        };
        BackupManifest {
            database: DatabaseId(0xabc),
            versions: VERSIONS,
            page_size: 4096,
            redo: Lsn(480),
            checkpoint: Lsn(900),
            end: Lsn(1234),
            note: None,
            files: vec![
                file(SUPERBLOCK_FILE, 4096, &[Some(7)]),
                file("pages/000000.pg", 2 * PIECE_BYTES + 1, &[Some(1), None, Some(u32::MAX)]),
                file("runs/00000001.run", 0, &[]),
            ],
        }
    }

    /// A text with a body of one's own and the checksum that belongs to it.
    fn sealed(body: &str) -> Vec<u8> {
        format!("{body}crc32c {:08x}\n", crc32c(0, body.as_bytes())).into_bytes()
    }

    fn body() -> String {
        let text = sample().encode();
        text[..text.rfind("crc32c").expect("there")].to_string()
    }

    #[test]
    fn a_manifest_round_trips_and_every_changed_byte_is_noticed() {
        let text = sample().encode().into_bytes();
        assert_eq!(BackupManifest::decode(&text).expect("decodes"), sample());
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut changed = text.clone();
                changed[at] ^= 1 << bit;
                assert!(BackupManifest::decode(&changed).is_err(), "byte {at}, bit {bit}");
            }
            assert!(BackupManifest::decode(&text[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn paths_outside_the_directories_are_refused() {
        for path in [
            "../x",
            "/etc/passwd",
            "pages/../x",
            "pages/",
            "pages/.x",
            "wal/a/b",
            "other/x",
            "evenkeel.super",
        ] {
            let text = sealed(&body().replace("runs/00000001.run", path));
            let error = BackupManifest::decode(&text).expect_err(path);
            assert_eq!(error.context("why"), Some("path"), "{path}");
        }
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let newer = [
            ("evenkeel backup 1", "evenkeel backup 3", "backup"),
            (" 1 2 1 1\n", " 1 99 1 1\n", "log"),
        ];
        for (from, to, part) in newer {
            let changed = body().replace(from, to);
            assert_ne!(changed, body(), "{from}");
            let error = BackupManifest::decode(&sealed(&changed)).expect_err("newer");
            assert_eq!((error.code(), error.context("part")), (Code::NewerFormat, Some(part)));
        }
    }

    #[test]
    fn a_note_is_one_line_of_version_2() {
        let noted = |note: &str| BackupManifest { note: Some(note.into()), ..sample() };
        let text = noted("mariadb-bin.000002 4711").encode();
        assert!(text.starts_with("evenkeel backup 2\n"), "{text}");
        let found = BackupManifest::decode(text.as_bytes()).expect("decodes");
        assert_eq!(found, noted("mariadb-bin.000002 4711"));
        let body = &text[..text.rfind("crc32c").expect("there")];
        let too_long = "x".repeat(NOTE_BYTES_MAX + 1);
        for (from, to) in [
            ("note mariadb-bin.000002 4711\n", "".to_string()),
            ("backup 2", "backup 1".to_string()),
            ("mariadb-bin.000002 4711", "".to_string()),
            ("mariadb-bin.000002 4711", too_long),
            ("mariadb-bin.000002 4711", "a\tb".to_string()),
        ] {
            let changed = body.replace(from, &to);
            assert_ne!(changed, body, "{from}");
            let error = BackupManifest::decode(&sealed(&changed)).expect_err(from);
            assert_eq!(error.code(), Code::BadEncoding, "{from}");
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        for (from, to) in [
            ("redo 480", "redo 901"),
            ("end 1234", "end 900"),
            ("redo 480", "redo 0480"),
            ("redo 480", "redo +480"),
            ("redo 480", "redo 480\r"),
            ("versions ", "versions x "),
            ("file 2097153", "file 2097152"),
            ("file 0 ", "file 1 "),
            ("00000007", "7"),
            ("00000007", "0000000G"),
        ] {
            let changed = body().replace(from, to);
            assert_ne!(changed, body(), "{from}");
            let error = BackupManifest::decode(&sealed(&changed)).expect_err(to);
            assert_eq!(error.code(), Code::BadEncoding, "{to}");
        }
    }

    #[test]
    fn stored_bytes_leave_out_pieces_of_zeros() {
        let stored: Vec<u64> = sample().files.iter().map(BackupFile::stored_bytes).collect();
        assert_eq!(stored, [4096, PIECE_BYTES + 1, 0]);
    }
}
