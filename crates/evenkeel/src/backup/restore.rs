//! A backup that is read: checked against its manifest, and made a database again.
//!
//! A restore checks the manifest, the versions, the page size and the free space before it writes a
//! byte, and the checksum of each piece before it writes the piece. The superblock comes last, when
//! all other files are durable: a directory without it is no database. The open that follows is
//! ordinary recovery.

use crate::backup::chain::Places;
use crate::backup::destination::check_empty;
use crate::backup::progress::BackupReport;
use crate::open::superfile::{SuperFile, draw_timeline};
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::{Code, Error, Result, crc32c};
use evenkeel_format::backup::{
    BackupBase, BackupFile, BackupManifest, DIRECTORIES, MANIFEST_FILE, MARKER_FILE, PIECE_BYTES,
    Piece, SUPERBLOCK_FILE,
};
use evenkeel_format::space::Geometry;
use evenkeel_format::superblock::{SLOT_BYTES, Superblock};
use evenkeel_io::{ABOVE_ROOT, AlignedBuf, Env, File, IO_ALIGN, OpenMode, RealEnv, Runtime, real};
use std::collections::BTreeMap;
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

/// Compares a backup with its manifest: the size and the checksum of every file. Of an incremental
/// backup the whole chain is compared; its bases are looked for beside it.
///
/// # Errors
/// `BackupIncomplete`, `BackupDamaged` for a damaged manifest, `NewerFormat`; `BackupBase` if a
/// base is missing; those of the file system. Files that are missing or differ are no error but
/// `BackupCheck::problems`.
pub fn verify_backup(path: impl AsRef<Path>) -> Result<BackupCheck> {
    verify_backup_with(path, &[])
}

/// As `verify_backup`; bases are looked for in the directories that lie in `places`, too.
///
/// # Errors
/// As `verify_backup`.
pub fn verify_backup_with(path: impl AsRef<Path>, places: &[&Path]) -> Result<BackupCheck> {
    verify(&open_chain(path.as_ref(), places)?)
}

fn open_chain(path: &Path, places: &[&Path]) -> Result<BackupSource> {
    let source = BackupSource::open(Arc::new(RealEnv::new(path)), &path.display().to_string())?;
    source.with_bases(&Places::beside(path, places))
}

/// Makes a database of a backup, in a directory that is empty or absent. The bases of an
/// incremental backup are looked for beside it.
///
/// # Errors
/// Those of `verify_backup`; `BackupDamaged` naming the file; `DirectoryNotEmpty`; `DiskFull`
/// naming the bytes needed and those free. The directory holds no database then.
pub fn restore_backup(backup: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<BackupReport> {
    restore_backup_with(backup, to, &[])
}

/// As `restore_backup`; bases are looked for in the directories that lie in `places`, too.
///
/// # Errors
/// As `restore_backup`.
pub fn restore_backup_with(
    backup: impl AsRef<Path>,
    to: impl AsRef<Path>,
    places: &[&Path],
) -> Result<BackupReport> {
    let (from, to) = (open_chain(backup.as_ref(), places)?, to.as_ref());
    let free = real::free_bytes(to);
    restore_from(&from, Arc::new(RealEnv::new(to)), &to.display().to_string(), free)
}

/// As `verify_backup`, at the root of an environment; bases are at the roots of others. For the
/// simulator.
///
/// # Errors
/// As `verify_backup`.
#[doc(hidden)]
pub fn verify_backup_in(
    env: Arc<dyn Env>,
    name: &str,
    bases: &[Arc<dyn Env>],
) -> Result<BackupCheck> {
    verify(&BackupSource::open(env, name)?.with_bases(&Places::Envs(bases))?)
}

fn verify(from: &BackupSource) -> Result<BackupCheck> {
    let mut piece = AlignedBuf::new(PIECE_BYTES as usize);
    let mut problems = Vec::new();
    let mut member = Some(from);
    while let Some(source) = member {
        for file in &source.manifest.files {
            let checked = source.open_stored(file).and_then(|open| {
                let Some(open) = open else { return Ok(()) };
                (0..file.pieces.len() as u64).try_for_each(|number| {
                    source.read_piece(file, &*open, number, &mut piece).map(drop)
                })
            });
            if let Err(error) = checked {
                problems.push(error.to_string());
            }
        }
        member = source.base.as_deref();
    }
    Ok(BackupCheck { report: from.report(), problems })
}

/// A complete backup.
pub(crate) struct BackupSource {
    env: Arc<dyn Env>,
    name: String,
    pub manifest: BackupManifest,
    /// CRC-32C of the manifest.
    crc: u32,
    /// Places in the manifest.
    by_path: BTreeMap<String, usize>,
    /// None until `open` has read it.
    superblock: Option<Superblock>,
    /// Of an incremental backup, as soon as `with_bases` has found it.
    pub base: Option<Box<BackupSource>>,
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
        let slot = slot.filter(|file| {
            file.bytes == SLOT_BYTES as u64 && matches!(file.pieces[0], Piece::Stored(_))
        });
        let Some(slot) = slot.cloned() else {
            return Err(damaged(MANIFEST_FILE, "it names no superblock"));
        };
        let database = manifest.database;
        let files = manifest.files.iter().enumerate();
        let by_path = files.map(|(place, file)| (file.path.clone(), place)).collect();
        let mut source = BackupSource {
            env,
            name: name.to_string(),
            manifest,
            crc: crc32c(0, &text),
            by_path,
            superblock: None,
            base: None,
        };
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

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// # Errors
    /// `Internal` before `open` has read it.
    pub(crate) fn superblock(&self) -> Result<&Superblock> {
        let read = self.superblock.as_ref();
        read.ok_or_else(|| Error::internal("a backup without a superblock"))
    }

    /// How an incremental backup names this one as its base.
    pub(crate) fn as_base(&self) -> BackupBase {
        let BackupManifest { redo, end, .. } = self.manifest;
        BackupBase { manifest: self.crc, redo, end }
    }

    fn file(&self, path: &str) -> Option<&BackupFile> {
        self.by_path.get(path).map(|place| &self.manifest.files[*place])
    }

    /// The piece of a file, unless it holds only zeros or is not there.
    pub(crate) fn piece(&self, path: &str, number: u64) -> Option<Piece> {
        let piece = *self.file(path)?.pieces.get(number as usize)?;
        (piece != Piece::Zeros).then_some(piece)
    }

    fn report(&self) -> BackupReport {
        let files = &self.manifest.files;
        let bytes = files.iter().map(BackupFile::stored_bytes).sum();
        BackupReport { end: self.manifest.end, bytes, files: files.len() as u64 }
    }

    pub(crate) fn damaged(&self, file: &BackupFile, why: &str) -> Error {
        let error = Error::new(Code::BackupDamaged).with("file", &file.path);
        error.with("why", why).with("backup", &self.name)
    }

    /// Opens a file, unless all that it has is in the base: such a file is not stored.
    fn open_stored(&self, file: &BackupFile) -> Result<Option<Arc<dyn File>>> {
        let is_stored = file.is_stored();
        is_stored.then(|| self.open_file(file)).transpose()
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

    /// Reads a piece from here or from the base that has it; returns its bytes, none for zeros.
    fn read_through(
        &self,
        file: &BackupFile,
        open: Option<&dyn File>,
        number: u64,
        piece: &mut AlignedBuf,
    ) -> Result<Option<usize>> {
        match (file.pieces[number as usize], open) {
            (Piece::Zeros, _) => Ok(None),
            (Piece::Stored(_), Some(open)) => self.read_piece(file, open, number, piece),
            (Piece::Stored(_), None) => {
                let open = self.open_file(file)?;
                self.read_piece(file, &*open, number, piece)
            }
            (Piece::OfBase, _) => {
                if file.path.starts_with("runs/")
                    && fault_injection::is(Fault::RunOfBaseNotRestored)
                {
                    return Ok(None);
                }
                let base = self.base.as_deref();
                let of_base = base.and_then(|base| Some((base, base.file(&file.path)?)));
                let (base, of_base) =
                    of_base.ok_or_else(|| self.damaged(file, "its base lacks a piece"))?;
                base.read_through(of_base, None, number, piece)
            }
        }
    }

    /// Reads a piece that is stored here and compares its checksum; returns its bytes, none for
    /// another one.
    fn read_piece(
        &self,
        file: &BackupFile,
        open: &dyn File,
        number: u64,
        piece: &mut AlignedBuf,
    ) -> Result<Option<usize>> {
        let Piece::Stored(crc) = file.pieces[number as usize] else { return Ok(None) };
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
    let mut superblock = from.superblock()?.clone();
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
pub fn restore_backup_in(
    backup: Arc<dyn Env>,
    to: Arc<dyn Env>,
    bases: &[Arc<dyn Env>],
) -> Result<BackupReport> {
    let source = BackupSource::open(backup, "backup")?.with_bases(&Places::Envs(bases))?;
    restore_from(&source, to, "restored", None)
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
    let bytes: u64 = from.manifest.files.iter().map(BackupFile::restored_bytes).sum();
    if let Some(free) = free.filter(|free| *free < bytes) {
        return Err(at(Error::new(Code::DiskFull).with("bytes", bytes).with("free", free)));
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
        let open = from.open_stored(file)?;
        let to = env.open(&file.path, OpenMode::READ_WRITE.direct())?;
        for number in 0..file.pieces.len() as u64 {
            let read = from.read_through(file, open.as_deref(), number, &mut piece)?;
            let Some(len) = read else { continue };
            let whole = len.next_multiple_of(IO_ALIGN);
            piece[len..whole].fill(0);
            to.write_at(&piece[..whole], number * PIECE_BYTES)
                .map_err(|error| error.with("bytes", whole))?;
        }
        to.set_len(file.bytes)?;
        to.sync()?;
    }
    DIRECTORIES.into_iter().chain([ABOVE_ROOT]).try_for_each(|dir| env.sync_dir(dir))
}
