//! A backup that is read: checked against its manifest, and made a database again.
//!
//! A restore checks the manifest, the versions, the page size and the free space before it writes a
//! byte, and the checksum of each piece before it writes the piece. The superblock comes last, when
//! all other files are durable: a directory without it is no database. The open that follows is
//! ordinary recovery.

use crate::backup::destination::check_empty;
use crate::backup::progress::BackupReport;
use crate::open::superfile::{SuperFile, draw_timeline};
use evenkeel_base::{Code, Error, Result, crc32c};
use evenkeel_format::backup::{
    BackupFile, BackupManifest, DIRECTORIES, MANIFEST_FILE, MARKER_FILE, PIECE_BYTES,
    SUPERBLOCK_FILE,
};
use evenkeel_format::space::Geometry;
use evenkeel_format::superblock::{SLOT_BYTES, Superblock};
use evenkeel_io::{AlignedBuf, Env, File, IO_ALIGN, OpenMode, RealEnv, Runtime, real};
use std::path::Path;
use std::sync::Arc;

/// The longest manifest that is read: that of 16 TiB has a tenth of it.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// What a check of a backup has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupCheck {
    /// What the manifest says.
    pub report: BackupReport,
    /// Each missing or different file. The backup is intact if there is none.
    pub problems: Vec<String>,
}

/// Compares a backup with its manifest: the size and the checksum of every file.
///
/// # Errors
/// `BackupIncomplete`, `BackupDamaged` for a damaged manifest, `NewerFormat`; those of the file
/// system. Files that are missing or differ are no error but `BackupCheck::problems`.
pub fn verify_backup(path: impl AsRef<Path>) -> Result<BackupCheck> {
    let path = path.as_ref();
    verify_backup_in(Arc::new(RealEnv::new(path)), &path.display().to_string())
}

/// Makes a database of a backup, in a directory that is empty or absent.
///
/// # Errors
/// Those of `verify_backup`; `BackupDamaged` naming the file; `DirectoryNotEmpty`; `DiskFull`
/// naming the bytes needed and those free. The directory holds no database then.
pub fn restore_backup(backup: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<BackupReport> {
    let (backup, to) = (backup.as_ref(), to.as_ref());
    let from = BackupSource::open(Arc::new(RealEnv::new(backup)), &backup.display().to_string())?;
    let free = real::free_bytes(to);
    restore_from(&from, Arc::new(RealEnv::new(to)), &to.display().to_string(), free)
}

/// As `verify_backup`, at the root of an environment. For the simulator.
///
/// # Errors
/// As `verify_backup`.
#[doc(hidden)]
pub fn verify_backup_in(env: Arc<dyn Env>, name: &str) -> Result<BackupCheck> {
    let from = BackupSource::open(env, name)?;
    let mut piece = AlignedBuf::new(PIECE_BYTES as usize);
    let mut problems = Vec::new();
    for file in &from.manifest.files {
        let checked = from.open_file(file).and_then(|open| {
            (0..file.pieces.len() as u64)
                .try_for_each(|number| from.read_piece(file, &*open, number, &mut piece).map(drop))
        });
        if let Err(error) = checked {
            problems.push(error.to_string());
        }
    }
    Ok(BackupCheck { report: from.report(), problems })
}

/// A complete backup.
pub(crate) struct BackupSource {
    env: Arc<dyn Env>,
    name: String,
    pub manifest: BackupManifest,
    /// None until `open` has read it.
    superblock: Option<Superblock>,
}

impl BackupSource {
    /// Reads marker, manifest and superblock.
    ///
    /// # Errors
    /// As `verify_backup`.
    pub(crate) fn open(env: Arc<dyn Env>, name: &str) -> Result<BackupSource> {
        let at = |error: Error| error.with("backup", name);
        let damaged = |file: &str, why: &str| {
            at(Error::new(Code::BackupDamaged).with("file", file).with("why", why))
        };
        let marker = match read_text(&*env, MARKER_FILE) {
            Err(error) if error.code() == Code::FileMissing => {
                return Err(at(Error::new(Code::BackupIncomplete)));
            }
            other => other.map_err(at)?,
        };
        let text = match read_text(&*env, MANIFEST_FILE) {
            Err(error) if error.code() == Code::FileMissing => {
                return Err(damaged(MANIFEST_FILE, "missing"));
            }
            other => other.map_err(at)?,
        };
        if marker != BackupManifest::marker(&text).into_bytes() {
            return Err(damaged(MANIFEST_FILE, "not the manifest that the marker names"));
        }
        let manifest = BackupManifest::decode(&text).map_err(at)?;
        let slot = manifest.files.iter().find(|file| file.path == SUPERBLOCK_FILE);
        let slot = slot.filter(|file| file.bytes == SLOT_BYTES as u64 && file.pieces[0].is_some());
        let Some(slot) = slot.cloned() else {
            return Err(damaged(MANIFEST_FILE, "it names no superblock"));
        };
        let database = manifest.database;
        let mut source = BackupSource { env, name: name.to_string(), manifest, superblock: None };
        let mut bytes = AlignedBuf::new(PIECE_BYTES as usize);
        let file = source.open_file(&slot)?;
        source.read_piece(&slot, &*file, 0, &mut bytes)?;
        let found = Superblock::decode(&bytes[..SLOT_BYTES]).map_err(at)?;
        let manifest = &source.manifest;
        let fits = |s: &Superblock| {
            (s.database_id, s.page_size) == (database, manifest.page_size)
                && (s.redo, s.checkpoint) == (manifest.redo, manifest.checkpoint)
        };
        Geometry::new(manifest.page_size as usize).map_err(at)?;
        match found.filter(fits) {
            Some(superblock) => source.superblock = Some(superblock),
            None => return Err(damaged(SUPERBLOCK_FILE, "it does not fit the manifest")),
        }
        Ok(source)
    }

    fn report(&self) -> BackupReport {
        let files = &self.manifest.files;
        let bytes = files.iter().map(BackupFile::stored_bytes).sum();
        BackupReport { end: self.manifest.end, bytes, files: files.len() as u64 }
    }

    fn damaged(&self, file: &BackupFile, why: &str) -> Error {
        let error = Error::new(Code::BackupDamaged).with("file", &file.path);
        error.with("why", why).with("backup", &self.name)
    }

    fn open_file(&self, file: &BackupFile) -> Result<Arc<dyn File>> {
        let open = match self.env.open(&file.path, OpenMode::READ) {
            Err(error) if error.code() == Code::FileMissing => {
                return Err(self.damaged(file, "missing"));
            }
            other => other.map_err(|error| error.with("backup", &self.name))?,
        };
        let found = open.len()?;
        if found != file.bytes {
            let error = self.damaged(file, "another size");
            return Err(error.with("bytes", found).with("expected", file.bytes));
        }
        Ok(open)
    }

    /// Reads a piece and compares its checksum; returns its bytes, none for one of zeros.
    fn read_piece(
        &self,
        file: &BackupFile,
        open: &dyn File,
        number: u64,
        piece: &mut AlignedBuf,
    ) -> Result<Option<usize>> {
        let Some(crc) = file.pieces[number as usize] else { return Ok(None) };
        let start = number * PIECE_BYTES;
        let len = PIECE_BYTES.min(file.bytes - start) as usize;
        open.read_at(&mut piece[..len], start).map_err(|error| error.with("backup", &self.name))?;
        if crc32c(0, &piece[..len]) != crc {
            return Err(self.damaged(file, "checksum").with("offset", start));
        }
        Ok(Some(len))
    }
}

fn read_text(env: &dyn Env, path: &str) -> Result<Vec<u8>> {
    let file = env.open(path, OpenMode::READ)?;
    let bytes = file.len()?;
    if bytes > MANIFEST_BYTES_MAX {
        let error = Error::new(Code::BadEncoding).with("what", "backup manifest");
        return Err(error
            .with("file", path)
            .with("bytes", bytes)
            .with("limit", MANIFEST_BYTES_MAX));
    }
    let mut text = vec![0; bytes as usize];
    file.read_at(&mut text, 0)?;
    Ok(text)
}

/// The superblock of the new database. A restored copy is a database of its own from here on: its
/// timeline leaves that of the backup at the end of the backup.
fn restored(from: &BackupSource, rt: &Runtime) -> Result<Superblock> {
    let found = from.superblock.clone();
    let mut superblock = found.ok_or_else(|| Error::internal("a backup without a superblock"))?;
    superblock.leave_timeline(|| draw_timeline(rt), from.manifest.end);
    superblock.clean = false;
    // The first checkpoint makes it.
    superblock.set_checkpoint_copy(false);
    Ok(superblock)
}

/// As `restore_backup`, between the roots of environments. For the simulator.
///
/// # Errors
/// As `restore_backup`.
#[doc(hidden)]
pub fn restore_backup_in(backup: Arc<dyn Env>, to: Arc<dyn Env>) -> Result<BackupReport> {
    restore_from(&BackupSource::open(backup, "backup")?, to, "restored", None)
}

/// Restores into an environment with so many free bytes, as far as known.
///
/// # Errors
/// As `restore_backup`.
pub(crate) fn restore_from(
    from: &BackupSource,
    env: Arc<dyn Env>,
    name: &str,
    free: Option<u64>,
) -> Result<BackupReport> {
    let at = |error: Error| error.with("directory", name);
    check_empty(&*env, name)?;
    let report = from.report();
    if let Some(free) = free.filter(|free| *free < report.bytes) {
        let error = Error::new(Code::DiskFull).with("bytes", report.bytes).with("free", free);
        return Err(at(error));
    }
    let written = write_files(from, &env).and_then(|()| {
        let rt = Runtime::new(env.clone());
        rt.set_database(from.manifest.database);
        SuperFile::create(&rt, restored(from, &rt)?).map(drop)
    });
    if let Err(error) = written {
        for file in &from.manifest.files {
            if env.remove(&file.path).is_err() {
                break;
            }
        }
        return Err(if error.code() == Code::BackupDamaged { error } else { at(error) });
    }
    Ok(report)
}

fn write_files(from: &BackupSource, env: &Arc<dyn Env>) -> Result<()> {
    env.create_dir("")?;
    DIRECTORIES.into_iter().try_for_each(|dir| env.create_dir(dir))?;
    let mut piece = AlignedBuf::new(PIECE_BYTES as usize);
    for file in from.manifest.files.iter().filter(|file| file.path != SUPERBLOCK_FILE) {
        let open = from.open_file(file)?;
        let to = env.open(&file.path, OpenMode::READ_WRITE.direct())?;
        for number in 0..file.pieces.len() as u64 {
            let Some(len) = from.read_piece(file, &*open, number, &mut piece)? else { continue };
            let whole = len.next_multiple_of(IO_ALIGN);
            piece[len..whole].fill(0);
            to.write_at(&piece[..whole], number * PIECE_BYTES)
                .map_err(|error| error.with("bytes", whole))?;
        }
        to.set_len(file.bytes)?;
        to.sync()?;
    }
    DIRECTORIES.into_iter().try_for_each(|dir| env.sync_dir(dir))
}
