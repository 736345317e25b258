//! The manifest of a backup: a text that names the files, with their sizes and checksums, and the
//! range of the log. `docs/format/backup.md` describes the directory.
//!
//! ```text
//! evenkeel backup 1                      version of this text; 2 if it has a note, 3 a base
//! database 0123456789abcdef              id of the database
//! versions 2 1 2 1 1                     superblock, page, log, run, catalog
//! page_size 4096
//! redo 480                               recovery begins here
//! checkpoint 900                         the checkpoint record
//! end 1234                               behind the last whole record
//! note mariadb-bin.000002 4711            only in version 2 or 3: the caller's text about the end
//! base 0a1b2c3d 240 720                  only in version 3: crc32c of the manifest of the earlier
//!                                        backup on which this one builds, its redo and its end
//! file 1048577 pages/000000.pg 1a2b3c4d -    one line a file: bytes, path, pieces
//! crc32c 89abcdef                        of everything before this line
//! ```
//!
//! A piece is 1 MiB of the file, the last one shorter. Its word is the CRC-32C of its bytes, or `-`
//! if it holds only zeros and need not be stored, or `=` if it is the piece of the same file and
//! number of the base, where its word is not `-`. Paths are those of the database's directory; the
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
/// The version of a text with a `base`, and perhaps a note.
const VERSION_BASED: &str = "3";
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
    /// Its pieces.
    pub pieces: Vec<Piece>,
}

/// True if a backup stores a file of these pieces: it leaves out files of which the base has all
/// pieces that are not zeros.
pub fn is_stored(pieces: &[Piece]) -> bool {
    let has = |wanted: fn(&Piece) -> bool| pieces.iter().any(wanted);
    has(|piece| matches!(piece, Piece::Stored(_))) || !has(|piece| *piece == Piece::OfBase)
}

/// A piece of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Piece {
    /// It holds only zeros and is not stored.
    #[default]
    Zeros,
    /// It is stored here, with this checksum.
    Stored(u32),
    /// It is that of the base.
    OfBase,
}

/// The earlier backup on which an incremental one builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupBase {
    /// CRC-32C of its manifest, as in its marker.
    pub manifest: u32,
    /// Where its recovery begins.
    pub redo: Lsn,
    /// Its end.
    pub end: Lsn,
}

impl BackupFile {
    /// Bytes of the pieces that are stored.
    pub fn stored_bytes(&self) -> u64 {
        self.bytes_of(|piece| matches!(piece, Piece::Stored(_)))
    }

    /// True if the directory of the backup has the file.
    pub fn is_stored(&self) -> bool {
        is_stored(&self.pieces)
    }

    /// Bytes that a restore writes: those of all pieces but the ones of zeros. A piece of the base
    /// may be one of zeros, so a restore may write less.
    pub fn restored_bytes(&self) -> u64 {
        self.bytes_of(|piece| *piece != Piece::Zeros)
    }

    fn bytes_of(&self, counts: impl Fn(&Piece) -> bool) -> u64 {
        let whole = self.pieces.iter().filter(|piece| counts(piece)).count() as u64 * PIECE_BYTES;
        let is_last_stored = self.pieces.last().is_some_and(counts);
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
    /// The earlier backup that has the pieces which are not here.
    pub base: Option<BackupBase>,
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
        let version = match (&self.base, &self.note) {
            (Some(_), _) => VERSION_BASED,
            (None, Some(_)) => VERSION_NOTED,
            (None, None) => VERSION,
        };
        let mut out = format!(
            "evenkeel backup {version}\ndatabase {:016x}\nversions {s} {p} {l} {r} {c}\n\
             page_size {page_size}\nredo {}\ncheckpoint {}\nend {}\n",
            database.0, self.redo.0, self.checkpoint.0, self.end.0
        );
        if let Some(note) = &self.note {
            // Writing to a string does not fail.
            let _ = writeln!(out, "note {note}");
        }
        if let Some(BackupBase { manifest, redo, end }) = self.base {
            let _ = writeln!(out, "base {manifest:08x} {} {}", redo.0, end.0);
        }
        for file in &self.files {
            let _ = write!(out, "file {} {}", file.bytes, file.path);
            for piece in &file.pieces {
                let _ = match piece {
                    Piece::Stored(crc) => write!(out, " {crc:08x}"),
                    Piece::Zeros => write!(out, " -"),
                    Piece::OfBase => write!(out, " ="),
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
        let first = text.split('\n').next().unwrap_or_default();
        let (may_be_noted, is_based) = match first.strip_prefix("evenkeel backup ") {
            Some(VERSION) => (false, false),
            Some(VERSION_NOTED) => (true, false),
            Some(VERSION_BASED) => (true, true),
            Some(found) => return Err(newer("backup", found, VERSION_BASED)),
            None => return Err(bad(1, "no backup manifest")),
        };
        let body = checked_body(text)?;
        let mut lines = Lines { body, next: 1 };
        let (at, database) = lines.field("database")?;
        let database = DatabaseId(hex(database, 16).ok_or_else(|| bad(at, "database"))?);
        let versions = lines.versions()?;
        let page_size = lines.number("page_size")?;
        let page_size = u32::try_from(page_size).map_err(|_| bad(4, "page_size"))?;
        let (redo, checkpoint) = (Lsn(lines.number("redo")?), Lsn(lines.number("checkpoint")?));
        let end = Lsn(lines.number("end")?);
        if redo > checkpoint || checkpoint >= end {
            return Err(bad(7, "redo <= checkpoint < end does not hold"));
        }
        // Version 2 always has a note, version 3 may have one.
        let is_noted = may_be_noted && (!is_based || lines.is_at("note"));
        let note = is_noted.then(|| lines.note()).transpose()?;
        let base = is_based.then(|| lines.base(end)).transpose()?;
        let rest = body.split_terminator('\n').enumerate().skip(lines.next);
        let files =
            rest.map(|(at, line)| file(at + 1, line, is_based)).collect::<Result<Vec<_>>>()?;
        Ok(BackupManifest {
            database,
            versions,
            page_size,
            redo,
            checkpoint,
            end,
            note,
            base,
            files,
        })
    }

    /// The content of the marker for a manifest of this text.
    pub fn marker(text: &[u8]) -> String {
        format!("{:08x}\n", crc32c(0, text))
    }
}

fn newer(part: &str, found: &str, known: &str) -> Error {
    let error = Error::new(Code::NewerFormat).with("part", part);
    error.with("found", found).with("known", known)
}

/// The text in front of its last line, which is the checksum of it.
fn checked_body(text: &str) -> Result<&str> {
    let cut = text.trim_end_matches('\n').rfind('\n').ok_or_else(|| bad(1, "too short"))?;
    let (body, last) = text.split_at(cut + 1);
    let crc = last.strip_prefix("crc32c ").and_then(|word| hex(word.strip_suffix('\n')?, 8));
    let lines = body.split_terminator('\n').count();
    match crc {
        Some(crc) if crc == u64::from(crc32c(0, body.as_bytes())) => Ok(body),
        Some(_) => Err(bad(lines + 1, "checksum")),
        None => Err(bad(lines + 1, "no checksum")),
    }
}

/// The lines before those of files, read one by one.
struct Lines<'a> {
    body: &'a str,
    /// The lines before this one were read.
    next: usize,
}

impl<'a> Lines<'a> {
    fn line(&self) -> Option<&'a str> {
        self.body.split_terminator('\n').nth(self.next)
    }

    fn is_at(&self, name: &str) -> bool {
        self.line().is_some_and(|line| line.starts_with(name))
    }

    /// The number of the line, and what follows its name.
    fn field(&mut self, name: &'static str) -> Result<(usize, &'a str)> {
        let line = self.line().ok_or_else(|| bad(8, "ends too early"))?;
        self.next += 1;
        let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' '));
        value.map(|value| (self.next, value)).ok_or_else(|| bad(self.next, name))
    }

    fn number(&mut self, name: &'static str) -> Result<u64> {
        let (at, value) = self.field(name)?;
        number(value).ok_or_else(|| bad(at, name))
    }

    fn versions(&mut self) -> Result<[u16; 5]> {
        let (at, found) = self.field("versions")?;
        let found: Option<Vec<u16>> = found.split(' ').map(number).collect();
        let versions: Option<[u16; 5]> = found.and_then(|found| found.try_into().ok());
        let versions = versions.ok_or_else(|| bad(at, "versions"))?;
        for ((part, found), known) in PARTS.iter().zip(versions).zip(VERSIONS) {
            if !(1..=known).contains(&found) {
                return Err(newer(part, &found.to_string(), &known.to_string()));
            }
        }
        Ok(versions)
    }

    fn note(&mut self) -> Result<String> {
        let (at, text) = self.field("note")?;
        is_note(text).then(|| text.to_string()).ok_or_else(|| bad(at, "note"))
    }

    /// The base of a backup with this end.
    fn base(&mut self, end: Lsn) -> Result<BackupBase> {
        let (at, text) = self.field("base")?;
        let words: Vec<&str> = text.split(' ').collect();
        let [manifest, redo, base_end] = words[..] else { return Err(bad(at, "base")) };
        let base = || {
            let manifest = hex(manifest, 8)? as u32;
            let (redo, end) = (Lsn(number(redo)?), Lsn(number(base_end)?));
            Some(BackupBase { manifest, redo, end })
        };
        let base = base().ok_or_else(|| bad(at, "base"))?;
        if base.redo >= base.end || base.end > end {
            return Err(bad(at, "redo of base < end of base <= end does not hold"));
        }
        Ok(base)
    }
}

fn file(at: usize, line: &str, is_based: bool) -> Result<BackupFile> {
    let mut words = line.strip_prefix("file ").ok_or_else(|| bad(at, "file"))?.split(' ');
    let bytes: u64 = words.next().and_then(number).ok_or_else(|| bad(at, "bytes"))?;
    let path = words.next().filter(|path| is_path(path)).ok_or_else(|| bad(at, "path"))?;
    let piece = |word: &str| match word {
        "-" => Ok(Piece::Zeros),
        "=" if is_based => Ok(Piece::OfBase),
        word => hex(word, 8).map(|crc| Piece::Stored(crc as u32)).ok_or_else(|| bad(at, "a piece")),
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
    use super::Piece::{OfBase, Stored, Zeros};
    use super::*;

    /// An incremental backup.
    fn based(note: Option<&str>) -> BackupManifest {
        let base = BackupBase { manifest: 0xa1b2, redo: Lsn(240), end: Lsn(720) };
        let mut files = sample().files;
        files[1].pieces = vec![OfBase, Zeros, Stored(5)];
        BackupManifest { note: note.map(str::to_string), base: Some(base), files, ..sample() }
    }

    #[test]
    fn a_base_is_one_line_of_version_3() {
        for note in [None, Some("mariadb-bin.000002 4711")] {
            let text = based(note).encode();
            assert!(text.starts_with("evenkeel backup 3\n"), "{text}");
            assert!(text.contains("\nbase 0000a1b2 240 720\nfile "), "{text}");
            assert_eq!(BackupManifest::decode(text.as_bytes()).expect("decodes"), based(note));
            let body = &text[..text.rfind("crc32c").expect("there")];
            for (from, to) in [
                ("base 0000a1b2 240 720\n", ""),
                ("base 0000a1b2 240 720", "base a1b2 240 720"),
                ("base 0000a1b2 240 720", "base 0000a1b2 240"),
                ("base 0000a1b2 240 720", "base 0000a1b2 240 0720"),
                ("base 0000a1b2 240 720", "base 0000a1b2 720 720"),
                ("base 0000a1b2 240 720", "base 0000a1b2 240 1235"),
                ("backup 3", "backup 1"),
                ("backup 3", "backup 2"),
                (" = ", " == "),
            ] {
                let changed = body.replace(from, to);
                assert_ne!(changed, body, "{from}");
                let error = BackupManifest::decode(&sealed(&changed)).expect_err(to);
                assert_eq!(error.code(), Code::BadEncoding, "{from} {to}");
            }
        }
        // A full backup has no piece of a base.
        let error = BackupManifest::decode(&sealed(&body().replace(" - ", " = ")));
        assert_eq!(error.expect_err("refused").context("why"), Some("a piece"));
    }

    fn sample() -> BackupManifest {
        let file = |path: &str, bytes, pieces: &[Piece]| BackupFile {
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
            base: None,
            files: vec![
                file(SUPERBLOCK_FILE, 4096, &[Stored(7)]),
                file("pages/000000.pg", 2 * PIECE_BYTES + 1, &[Stored(1), Zeros, Stored(u32::MAX)]),
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
            ("evenkeel backup 1", "evenkeel backup 4", "backup"),
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
        let files = based(None).files;
        assert_eq!((files[1].stored_bytes(), files[1].restored_bytes()), (1, PIECE_BYTES + 1));
    }
}
