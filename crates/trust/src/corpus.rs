//! Archives of the corpus: small directories that earlier releases wrote (`crates/trust/corpus`),
//! and the listing of the rows that each must show. `examples/make_corpus.rs` writes them with the
//! library of a release; `tests/corpus.rs` opens them with this one.
//!
//! ```text
//! archive: "EKCORP1\n", then one LZ4 block behind its length u32; raw, for each file:
//!          length of the path u32, path, bytes of the file u64, count of blocks u32, for each:
//!          number u32 and its bytes (4,096; fewer at the end of the file)
//! ```
//! Blocks of zeros are left out: files of the engine have their blocks before they have content.
//! An archive holds neither the lock file nor the ballast.

use evenkeel::ValueRef;
use std::path::Path;
use std::{fs, io};

const MAGIC: &[u8; 8] = b"EKCORP1\n";
const BLOCK: usize = 4096;
/// Files that say nothing about the database.
const LEFT_OUT: &[&str] = &["evenkeel.lock", "evenkeel.ballast"];
/// Longer values are shown by length and hash.
const SHOWN_BYTES: usize = 60;

/// A file of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Path below the directory.
    pub path: String,
    /// Content.
    pub bytes: Vec<u8>,
}

/// Reads the files of a directory, without those that say nothing.
///
/// # Errors
/// Those of the file system.
pub fn read_directory(dir: &Path) -> io::Result<Vec<Member>> {
    let mut members = Vec::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next)? {
            let path = entry?.path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let name = path.strip_prefix(dir).map_err(io::Error::other)?;
            let name = name.to_string_lossy().into_owned();
            if !LEFT_OUT.contains(&name.as_str()) {
                members.push(Member { path: name, bytes: fs::read(path)? });
            }
        }
    }
    members.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(members)
}

/// Writes files into a directory, which is made.
///
/// # Errors
/// Those of the file system.
pub fn write_directory(dir: &Path, members: &[Member]) -> io::Result<()> {
    for member in members {
        let path = dir.join(&member.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, &member.bytes)?;
    }
    // Directories that held no file.
    for name in ["wal", "pages", "runs", "undo"] {
        fs::create_dir_all(dir.join(name))?;
    }
    Ok(())
}

/// Encodes an archive.
pub fn pack(members: &[Member]) -> Vec<u8> {
    let mut raw = Vec::new();
    for Member { path, bytes } in members {
        raw.extend((path.len() as u32).to_le_bytes());
        raw.extend(path.as_bytes());
        raw.extend((bytes.len() as u64).to_le_bytes());
        let blocks = bytes.chunks(BLOCK).enumerate().filter(|(_, b)| b.iter().any(|b| *b != 0));
        let blocks: Vec<_> = blocks.collect();
        raw.extend((blocks.len() as u32).to_le_bytes());
        for (number, block) in blocks {
            raw.extend((number as u32).to_le_bytes());
            raw.extend(block);
        }
    }
    let mut out = MAGIC.to_vec();
    out.extend(lz4_flex::compress_prepend_size(&raw));
    out
}

/// Decodes an archive; `None` if it is none.
pub fn unpack(archive: &[u8]) -> Option<Vec<Member>> {
    let raw = lz4_flex::decompress_size_prepended(archive.strip_prefix(MAGIC)?).ok()?;
    let mut rest = &raw[..];
    let mut take = |n: usize| {
        let (head, tail) = rest.split_at_checked(n)?;
        rest = tail;
        Some(head)
    };
    let mut members = Vec::new();
    while let Some(head) = take(4) {
        let path = take(u32::from_le_bytes(head.try_into().ok()?) as usize)?;
        let path = String::from_utf8(path.to_vec()).ok()?;
        let len = u64::from_le_bytes(take(8)?.try_into().ok()?) as usize;
        let mut bytes = vec![0; len];
        for _ in 0..u32::from_le_bytes(take(4)?.try_into().ok()?) {
            let at = u32::from_le_bytes(take(4)?.try_into().ok()?) as usize * BLOCK;
            let block = take(len.checked_sub(at)?.min(BLOCK))?;
            bytes[at..at + block.len()].copy_from_slice(block);
        }
        members.push(Member { path, bytes });
    }
    Some(members)
}

/// A row of a listing: its values in the order of the columns. The text does not depend on how the
/// engine prints values.
pub fn show_row(row: &[ValueRef<'_>]) -> String {
    row.iter().map(|value| show(*value)).collect::<Vec<_>>().join(" | ")
}

fn show(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Bool(b) => format!("bool {b}"),
        ValueRef::Int(i) => format!("int {i}"),
        ValueRef::UInt(u) => format!("uint {u}"),
        ValueRef::Float(f) => format!("float {:016x}", f.to_bits()),
        ValueRef::Decimal(unscaled, scale) => format!("decimal {unscaled} {scale}"),
        ValueRef::Date(days) => format!("date {days}"),
        ValueRef::DateTime(us) => format!("datetime {us}"),
        ValueRef::Bytes(b) => format!("bytes {}", show_bytes(b)),
        ValueRef::Text(t) => format!("text {}", show_bytes(t.as_bytes())),
    }
}

fn show_bytes(bytes: &[u8]) -> String {
    if bytes.len() > SHOWN_BYTES {
        // FNV-1a: the listing must not depend on a checksum of the engine.
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        return format!("of {} bytes, fnv {hash:016x}", bytes.len());
    }
    let mut out = String::from("\"");
    for byte in bytes {
        match byte {
            b' '..=b'~' if !b"\"\\".contains(byte) => out.push(char::from(*byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_gives_back_its_files() {
        let mut bytes = vec![0; 3 * BLOCK + 100];
        bytes[BLOCK + 5] = 7;
        bytes[3 * BLOCK + 99] = 8;
        let members = [
            Member { path: "evenkeel.super".into(), bytes: b"short".to_vec() },
            Member { path: "pages/000000.pg".into(), bytes },
            Member { path: "wal/empty".into(), bytes: Vec::new() },
        ];
        let archive = pack(&members);
        assert_eq!(unpack(&archive).expect("an archive"), members);
        assert_eq!(unpack(&archive[1..]), None);
        assert_eq!(unpack(&archive[..archive.len() - 1]), None);
    }

    #[test]
    fn values_are_shown_by_content() {
        let row = [ValueRef::Int(-1), ValueRef::Text("a\"b\0"), ValueRef::Null];
        assert_eq!(show_row(&row), "int -1 | text \"a\\x22b\\x00\" | NULL");
        assert_ne!(show_row(&[ValueRef::Bytes(&[1; 61])]), show_row(&[ValueRef::Bytes(&[2; 61])]));
    }
}
