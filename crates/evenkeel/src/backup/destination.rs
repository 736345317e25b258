//! The directory of a backup while it is written: pieces of files with their checksums, then the
//! manifest, and last the marker.
//!
//! Invariants: the checksum of a piece is that of the bytes last written there. The marker gets its
//! name when the manifest, all files and the directory's own name are durable; a directory without
//! it is no backup. Errors name the destination and never touch the health of the database.

use crate::backup::progress::BackupReport;
use evenkeel_base::{Code, Error, Result, crc32c};
use evenkeel_format::backup::{
    BackupFile, BackupManifest, DIRECTORIES, MANIFEST_FILE, MARKER_FILE, PIECE_BYTES, Piece,
    SUPERBLOCK_FILE,
};
use evenkeel_format::superblock::{SLOT_BYTES, Superblock};
use evenkeel_io::{ABOVE_ROOT, AlignedBuf, Env, File, IO_ALIGN, OpenMode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Files that are open at a time, at most.
const OPEN_MAX: usize = 32;
/// The marker before it is durable.
const NEW_MARKER: &str = "COMPLETE.new";

struct Written {
    /// None while too many others are open, and after `close`.
    file: Option<Arc<dyn File>>,
    /// It has its length and is durable.
    is_closed: bool,
    bytes: u64,
    pieces: Vec<Piece>,
}

impl Written {
    fn new() -> Written {
        Written { file: None, is_closed: false, bytes: 0, pieces: Vec::new() }
    }

    fn set(&mut self, number: u64, piece: Piece) {
        let number = number as usize;
        self.pieces.resize(self.pieces.len().max(number + 1), Piece::Zeros);
        self.pieces[number] = piece;
        self.is_closed = false;
    }
}

/// The directory.
pub(crate) struct Destination {
    env: Arc<dyn Env>,
    name: String,
    files: BTreeMap<String, Written>,
}

/// Adds the destination to an error.
fn at(name: &str) -> impl Fn(Error) -> Error {
    move |error| error.with("destination", name)
}

/// # Errors
/// `DirectoryNotEmpty` naming a file, for a directory that holds more than empty directories of a
/// backup.
pub(crate) fn check_empty(env: &dyn Env, name: &str) -> Result<()> {
    let full = |found: &str| {
        Error::new(Code::DirectoryNotEmpty).with("directory", name).with("found", found)
    };
    for found in env.list("").map_err(at(name))? {
        // A backup that failed leaves these.
        let is_left = DIRECTORIES.contains(&&*found) && env.list(&found)?.is_empty();
        if !is_left {
            return Err(full(&found));
        }
    }
    Ok(())
}

impl Destination {
    /// Makes the directories.
    ///
    /// # Errors
    /// `DirectoryNotEmpty`; those of the environment.
    pub(crate) fn begin(env: Arc<dyn Env>, name: &str) -> Result<Destination> {
        check_empty(&*env, name)?;
        let dirs = [""].into_iter().chain(DIRECTORIES);
        dirs.into_iter().try_for_each(|dir| env.create_dir(dir)).map_err(at(name))?;
        Ok(Destination { env, name: name.to_string(), files: BTreeMap::new() })
    }

    fn fail(&self, path: &str, bytes: u64) -> impl Fn(Error) -> Error {
        let (name, path) = (self.name.clone(), path.to_string());
        move |error| {
            let error = match error.context("file") {
                Some(_) => error,
                None => error.with("file", &path),
            };
            error.with("bytes", bytes).with("destination", &name)
        }
    }

    fn file(&mut self, path: &str) -> Result<Arc<dyn File>> {
        let known = self.files.get(path).and_then(|written| written.file.clone());
        if let Some(file) = known {
            return Ok(file);
        }
        if self.files.values().filter(|written| written.file.is_some()).count() >= OPEN_MAX {
            self.files.values_mut().for_each(|written| written.file = None);
        }
        let opened = self.env.open(path, OpenMode::READ_WRITE.direct());
        let file = opened.map_err(self.fail(path, 0))?;
        self.files.entry(path.to_string()).or_insert_with(Written::new).file = Some(file.clone());
        Ok(file)
    }

    /// Writes the first `len` bytes of `piece` as piece `number` of a file. What is behind them up
    /// to a whole block is written as zeros.
    ///
    /// # Errors
    /// Those of the environment, naming the file and the bytes.
    pub(crate) fn write(
        &mut self,
        path: &str,
        number: u64,
        piece: &mut AlignedBuf,
        len: usize,
    ) -> Result<()> {
        let file = self.file(path)?;
        let (start, whole) = (number * PIECE_BYTES, len.next_multiple_of(IO_ALIGN));
        piece[len..whole].fill(0);
        file.write_at(&piece[..whole], start).map_err(self.fail(path, whole as u64))?;
        let crc = crc32c(0, &piece[..len]);
        if let Some(written) = self.files.get_mut(path) {
            written.set(number, Piece::Stored(crc));
            written.bytes = written.bytes.max(start + len as u64);
        }
        Ok(())
    }

    /// Notes that piece `number` of a file is that of the base.
    pub(crate) fn leave_to_base(&mut self, path: &str, number: u64) {
        let written = self.files.entry(path.to_string()).or_insert_with(Written::new);
        written.set(number, Piece::OfBase);
    }

    /// Notes a whole file of the base, which is not written.
    pub(crate) fn leave_file_to_base(&mut self, path: &str, bytes: u64, pieces: Vec<Piece>) {
        let written = Written { is_closed: true, bytes, pieces, ..Written::new() };
        self.files.insert(path.to_string(), written);
    }

    /// True if piece `number` of a file is that of the base.
    pub(crate) fn is_of_base(&self, path: &str, number: u64) -> bool {
        let written = self.files.get(path);
        let piece = written.and_then(|written| written.pieces.get(number as usize));
        piece == Some(&Piece::OfBase)
    }

    /// Reads piece `number` of a file; zeros if it was not written.
    ///
    /// # Errors
    /// Those of the environment.
    pub(crate) fn read(&mut self, path: &str, number: u64, piece: &mut [u8]) -> Result<()> {
        let written = self.files.get(path);
        let is_there = written.is_some_and(|written| {
            matches!(written.pieces.get(number as usize), Some(Piece::Stored(_)))
        });
        if !is_there {
            piece.fill(0);
            return Ok(());
        }
        let file = self.file(path)?;
        file.read_at(piece, number * PIECE_BYTES).map_err(self.fail(path, piece.len() as u64))
    }

    /// True if the file was written as a whole.
    pub(crate) fn has_whole(&self, path: &str) -> bool {
        self.files.get(path).is_some_and(|written| written.is_closed)
    }

    /// Removes the files whose paths begin with `prefix` and for which `wanted` is false.
    ///
    /// # Errors
    /// Those of the environment.
    pub(crate) fn retain(&mut self, prefix: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
        let is_left = |path: &&String| path.starts_with(prefix) && !wanted(path);
        let left: Vec<String> = self.files.keys().filter(is_left).cloned().collect();
        for path in left {
            self.files.remove(&path);
            self.env.remove(&path).map_err(self.fail(&path, 0))?;
        }
        Ok(())
    }

    /// True if something of the file was written.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Gives a file its length, and makes it durable; what was not written is zeros.
    ///
    /// # Errors
    /// Those of the environment.
    pub(crate) fn close(&mut self, path: &str, bytes: u64) -> Result<()> {
        let is_of_base = |written: &Written| !evenkeel_format::backup::is_stored(&written.pieces);
        // Nothing of the file is here.
        if !self.files.get(path).is_some_and(is_of_base) {
            let file = self.file(path)?;
            file.set_len(bytes).and_then(|()| file.sync()).map_err(self.fail(path, bytes))?;
        }
        if let Some(written) = self.files.get_mut(path) {
            let pieces = bytes.div_ceil(PIECE_BYTES) as usize;
            let is_cut = written.bytes > bytes;
            written.pieces.resize(pieces, Piece::Zeros);
            (written.bytes, written.file, written.is_closed) = (bytes, None, true);
            if is_cut {
                return Err(Error::internal("a file of a backup was cut").with("file", path));
            }
        }
        Ok(())
    }

    /// Writes the superblock.
    ///
    /// # Errors
    /// Those of the environment.
    pub(crate) fn write_superblock(&mut self, superblock: &Superblock) -> Result<()> {
        let mut slot = AlignedBuf::new(SLOT_BYTES);
        slot.copy_from_slice(&superblock.encode());
        self.write(SUPERBLOCK_FILE, 0, &mut slot, SLOT_BYTES)?;
        self.close(SUPERBLOCK_FILE, SLOT_BYTES as u64)
    }

    /// The files, for the manifest.
    pub(crate) fn files(&self) -> Vec<BackupFile> {
        let file = |(path, written): (&String, &Written)| BackupFile {
            path: path.clone(),
            bytes: written.bytes,
            pieces: written.pieces.clone(),
        };
        self.files.iter().map(file).collect()
    }

    /// Writes the manifest and then the marker, each durable before the next. All files are closed.
    ///
    /// # Errors
    /// Those of the environment.
    pub(crate) fn finish(mut self, manifest: &BackupManifest) -> Result<BackupReport> {
        let text = manifest.encode();
        let done = self.seal(text.as_bytes());
        if let Err(error) = done {
            self.abandon();
            return Err(error);
        }
        self.files.clear();
        let bytes = manifest.files.iter().map(BackupFile::stored_bytes).sum();
        Ok(BackupReport { end: manifest.end, bytes, files: manifest.files.len() as u64 })
    }

    fn seal(&self, text: &[u8]) -> Result<()> {
        let sync = |dir: &str| self.env.sync_dir(dir).map_err(at(&self.name));
        if let Some((path, _)) = self.files.iter().find(|(_, written)| !written.is_closed) {
            return Err(Error::internal("a file of a backup is open").with("file", path));
        }
        DIRECTORIES.into_iter().chain([ABOVE_ROOT]).try_for_each(sync)?;
        self.write_text(MANIFEST_FILE, text)?;
        sync("")?;
        self.write_text(NEW_MARKER, BackupManifest::marker(text).as_bytes())?;
        self.env.rename(NEW_MARKER, MARKER_FILE).map_err(at(&self.name))?;
        sync("")
    }

    fn write_text(&self, path: &str, text: &[u8]) -> Result<()> {
        let write = || {
            let file = self.env.open(path, OpenMode::READ_WRITE)?;
            file.write_at(text, 0)?;
            file.sync()
        };
        write().map_err(self.fail(path, text.len() as u64))
    }

    /// Removes what was written. What cannot be removed stays, without a marker.
    pub(crate) fn abandon(&mut self) {
        let files = std::mem::take(&mut self.files);
        let names = [NEW_MARKER, MANIFEST_FILE].into_iter();
        let removed = self.remove_marker().and_then(|()| {
            let mut paths = names.chain(files.keys().map(String::as_str));
            paths.try_for_each(|path| self.env.remove(path))
        });
        if let Err(error) = removed {
            log::warn!("{}: the remains of a failed backup stay: {error}", self.name);
        }
    }

    /// Removes the marker, durably before any file that the marker vouches for. It is there if only
    /// the sync of its name failed.
    fn remove_marker(&self) -> Result<()> {
        if !self.env.list("")?.iter().any(|name| name == MARKER_FILE) {
            return Ok(());
        }
        self.env.remove(MARKER_FILE)?;
        self.env.sync_dir("")
    }
}
