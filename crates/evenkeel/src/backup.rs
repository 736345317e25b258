//! Hot backup: a copy of an open database from which recovery makes the state at one position of
//! the log, while others write.
//!
//! A backup is what a crash at its end would leave, read piece by piece. Order (`take`):
//! 1. `pins` keep the log and the files of runs and undo, then a checkpoint is taken; the
//!    superblock that names it belongs to the backup.
//! 2. Undo files, pages and runs are copied (`page_copy`, `file_copy`), while the log is copied as
//!    it is written (`log_copy`). `log_watch` reads it for what recovery will need besides: the
//!    list of runs, and pages whose content is not in the log.
//! 3. The end is fixed: a durable position of the log such that all pages that the log below names
//!    as unlogged were copied with no change at or behind the position (`fix_end`). From here on no
//!    page is copied.
//! 4. The runs of the list at the end are copied, then the rest of the log, the superblock, the
//!    manifest, and last the marker (`destination`).
//!
//! ```text
//! redo position of the superblock <= LSN of every change that an image lacks
//! LSN of every image < end of the copied log
//! ```
//!
//! An incremental backup leaves pieces of files out that its base has as they are (`base`); a
//! restore takes them from there (`chain`).
//!
//! An armed backup does not fix its end by itself: it follows the log (`follow`) until its caller,
//! which holds commits off meanwhile, asks for the end.
//!
//! A failed backup leaves no marker, removes what it has written, and never stops the database:
//! errors of the destination are the caller's alone. `restore` and `verify` are in `restore`; they
//! work on closed directories.

#[cfg(test)]
mod armed_tests;
#[cfg(test)]
mod backup_tests;
mod base;
pub(crate) mod chain;
#[cfg(test)]
mod chain_tests;
pub(crate) mod destination;
mod file_copy;
mod follow;
#[cfg(test)]
mod foreign_key_tests;
#[cfg(test)]
mod gate_tests;
mod log_copy;
mod log_watch;
mod page_copy;
mod pins;
pub(crate) mod progress;
pub(crate) mod restore;
#[cfg(test)]
mod writers_tests;

use crate::Database;
use crate::backup::base::Base;
use crate::backup::destination::Destination;
use crate::backup::file_copy::FileCopy;
use crate::backup::log_copy::LogCopy;
use crate::backup::page_copy::{Copied, PageCopy};
use crate::backup::pins::Pins;
use crate::backup::progress::{BackupPhase, BackupProgress, BackupReport};
use crate::backup::restore::BackupSource;
use crate::engine::Engine;
use crate::open::superfile::draw_timeline;
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::{Code, Error, Lsn, Result};
use evenkeel_format::backup::{BackupManifest, VERSIONS};
use evenkeel_format::space::EXTENT_BYTES;
use evenkeel_format::superblock::Superblock;
use evenkeel_io::{Env, OpenMode, RealEnv};
use evenkeel_sched::Class;
use evenkeel_tables::{Access, Isolation};
use evenkeel_tree::HeldGate;
use std::path::Path;
use std::sync::Arc;

/// Extents with unlogged pages that the last round copies at most.
const LAST_EXTENTS: usize = 16;

/// From this round on at the latest the copy of unlogged pages no longer gives way to users, and
/// their writers wait for it (`UnloggedGate`).
const HURRIED_ROUND: usize = 4;

/// The copy of unlogged pages is given up in this round.
const ROUNDS_MAX: usize = 30;

impl Database {
    /// Copies the database to a directory, which must be empty or absent, while others read and
    /// write. The copy is the database as of `BackupReport::end`; [`restore_backup`] makes a
    /// database of it again. One backup runs at a time.
    ///
    /// ```
    #[doc = include_str!("api/people.md")]
    /// # let place = std::env::temp_dir().join(format!("backup-{}", std::process::id()));
    /// let (copy, restored) = (place.join("copy"), place.join("restored"));
    /// db.backup(&copy)?;
    /// evenkeel::verify_backup(&copy)?;
    /// evenkeel::restore_backup(&copy, &restored)?;
    /// let again = evenkeel::Database::open(&restored)?;
    /// assert_eq!(again.tables(), ["people"]);
    /// # drop(again);
    /// # std::fs::remove_dir_all(place).expect("removes");
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DirectoryNotEmpty`; `DiskFull` and others of the destination, each naming it;
    /// `BackupRunning`; `BackupBehindLog` if the copy of the log could not keep up; `DiskFull` if
    /// the database itself has no space left; `PageChecksum` and others for damage in the database.
    /// The database goes on, and the destination holds no marker.
    pub fn backup(&self, destination: impl AsRef<Path>) -> Result<BackupReport> {
        self.backup_with(destination, &BackupProgress::default())
    }

    /// As `backup`; `progress` shows how far it is, and cancels it from another thread.
    ///
    /// # Errors
    /// As `backup`; `StatementCancelled`.
    pub fn backup_with(
        &self,
        destination: impl AsRef<Path>,
        progress: &BackupProgress,
    ) -> Result<BackupReport> {
        let (env, name) = place(destination.as_ref())?;
        self.backup_in(env, &name, progress)
    }

    /// As `backup`, but copies only what has changed since an earlier backup of this database, its
    /// *base*, which is full or itself builds on another one. The base is read and not changed; it
    /// is needed to restore the copy. Every page is read, and those that have changed are written,
    /// with new files of indexes, undo, and the log since the last checkpoint.
    ///
    /// ```
    #[doc = include_str!("api/people.md")]
    /// # let place = std::env::temp_dir().join(format!("onto-{}", std::process::id()));
    /// let (full, more, restored) = (place.join("mon"), place.join("tue"), place.join("new"));
    /// db.backup(&full)?;
    /// db.transact(|txn| txn.table("people")?.insert((4, "Oslo")))?;
    /// db.backup_onto(&full, &more)?;
    /// // Finds its base beside it.
    /// evenkeel::restore_backup(&more, &restored)?;
    /// let again = evenkeel::Database::open(&restored)?;
    /// assert!(again.transact(|txn| txn.table("people")?.get(4))?.is_some());
    /// # drop(again);
    /// # std::fs::remove_dir_all(place).expect("removes");
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `backup`; `BackupBase` if the base is of another database, or of this one before it was
    /// restored from a backup; those of reading the base.
    pub fn backup_onto(
        &self,
        base: impl AsRef<Path>,
        destination: impl AsRef<Path>,
    ) -> Result<BackupReport> {
        self.backup_onto_with(base, destination, &BackupProgress::default())
    }

    /// As `backup_onto`, with a progress as `backup_with` has it.
    ///
    /// # Errors
    /// As `backup_onto`; `StatementCancelled`.
    pub fn backup_onto_with(
        &self,
        base: impl AsRef<Path>,
        destination: impl AsRef<Path>,
        progress: &BackupProgress,
    ) -> Result<BackupReport> {
        let (env, name) = place(destination.as_ref())?;
        base::check_apart(base.as_ref(), destination.as_ref())?;
        self.backup_onto_in(place(base.as_ref())?, env, &name, progress)
    }

    /// As `backup_with`, to the root of an environment, which errors call `name`. For the
    /// simulator.
    ///
    /// # Errors
    /// As `backup_with`.
    #[doc(hidden)]
    pub fn backup_in(
        &self,
        env: Arc<dyn Env>,
        name: &str,
        progress: &BackupProgress,
    ) -> Result<BackupReport> {
        self.check_open()?;
        self.run_backup(None, env, name, progress)
    }

    /// As `backup_onto_with`, between the roots of environments. For the simulator.
    ///
    /// # Errors
    /// As `backup_onto_with`.
    #[doc(hidden)]
    pub fn backup_onto_in(
        &self,
        (base, base_name): (Arc<dyn Env>, String),
        env: Arc<dyn Env>,
        name: &str,
        progress: &BackupProgress,
    ) -> Result<BackupReport> {
        self.check_open()?;
        let base = Base::new(&self.engine, &BackupSource::open(base, &base_name)?)?;
        self.run_backup(Some(base), env, name, progress)
    }

    fn run_backup(
        &self,
        base: Option<Base>,
        env: Arc<dyn Env>,
        name: &str,
        progress: &BackupProgress,
    ) -> Result<BackupReport> {
        let engine = &self.engine;
        let mut running = engine.backups.begin(&engine.rt, name, progress)?;
        // Its reads and writes are not waits of a user, and a cancellation ends its pauses.
        let _background = engine.sched.building(progress.stop());
        let report = take(self, base, env, name, progress)?;
        running.complete();
        Ok(report)
    }
}

/// The environment of a directory, and its name in errors.
fn place(path: &Path) -> Result<(Arc<dyn Env>, String)> {
    if path.as_os_str().is_empty() {
        return Err(Error::new(Code::NotADatabase).with("path", "an empty text"));
    }
    Ok((Arc::new(RealEnv::new(path)), path.display().to_string()))
}

/// Takes a backup; on an error the destination is emptied again.
fn take(
    db: &Database,
    base: Option<Base>,
    env: Arc<dyn Env>,
    name: &str,
    progress: &BackupProgress,
) -> Result<BackupReport> {
    let mut to = Destination::begin(env, name)?;
    let outcome = Backup::new(db, base, progress, &mut to).and_then(|mut backup| backup.run());
    match outcome {
        Ok(manifest) => to.finish(&manifest),
        Err(error) => {
            to.abandon();
            Err(error)
        }
    }
}

/// The parts of a running backup.
struct Backup<'a> {
    db: &'a Database,
    engine: &'a Engine,
    progress: &'a BackupProgress,
    to: &'a mut Destination,
    /// What an incremental backup builds on.
    base: Option<Base>,
    pins: Pins,
    log: LogCopy,
    pages: PageCopy,
    /// No page and no log is copied any more.
    is_fixed: bool,
    /// The governor is not asked any more.
    is_hurried: bool,
}

impl<'a> Backup<'a> {
    fn new(
        db: &'a Database,
        base: Option<Base>,
        progress: &'a BackupProgress,
        to: &'a mut Destination,
    ) -> Result<Backup<'a>> {
        let engine = &*db.engine;
        let pins = Pins::take(engine)?;
        let superblock = &pins.superblock;
        let page_size = superblock.page_size as usize;
        let log = LogCopy::new(engine.rt.clone(), superblock, page_size)?;
        let pages = PageCopy::new(engine.pages.clone(), page_size)?;
        Ok(Backup {
            db,
            engine,
            progress,
            to,
            base,
            pins,
            log,
            pages,
            is_fixed: false,
            is_hurried: false,
        })
    }

    fn run(&mut self) -> Result<BackupManifest> {
        self.progress.enter(BackupPhase::Pages);
        self.moved(0)?;
        self.progress.expect(self.estimate()?);
        self.copy_files(file_copy::undo(&self.engine.rt)?)?;
        for extent in 0..self.engine.pages.extent_count() {
            let copied = self.pages.copy(extent, self.base.as_ref(), self.to)?;
            if copied == Copied::OfBase {
                self.progress.leave_to_base(EXTENT_BYTES);
            }
            self.moved(if copied == Copied::Nothing { 0 } else { EXTENT_BYTES })?;
        }
        self.progress.enter(BackupPhase::Runs);
        // What is not copied now is copied behind the end.
        self.copy_files(file_copy::runs(&self.log.watch.runs()?))?;
        if self.progress.is_armed() {
            self.progress.enter(BackupPhase::Follow);
            self.follow()?;
        }
        self.progress.enter(BackupPhase::Log);
        self.fix_end()?;
        self.copy_files(file_copy::runs(&self.log.watch.runs()?))?;
        self.progress.enter(BackupPhase::Sync);
        self.to.write_superblock(&self.superblock())?;
        if fault_injection::is(Fault::PagesCopiedAfterEnd) {
            let all = 0..self.engine.pages.extent_count();
            all.map(|extent| self.pages.copy(extent, None, self.to)).collect::<Result<Vec<_>>>()?;
        }
        self.pages.finish(self.to)?;
        Ok(self.manifest())
    }

    /// Copies the files that were not copied yet. An armed backup that follows the log stops when
    /// its end is asked for: the files that are left are copied behind the end.
    fn copy_files(&mut self, paths: Vec<String>) -> Result<()> {
        for path in paths {
            if self.to.has_whole(&path) || self.is_left_to_base(&path)? {
                continue;
            }
            let mut copy = FileCopy::begin(&self.engine.rt, path)?;
            while let Some(bytes) = copy.step(&self.engine.rt, self.to)? {
                self.moved(bytes)?;
                if self.leaves_following() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Leaves a file of runs to the base that has it.
    fn is_left_to_base(&mut self, path: &str) -> Result<bool> {
        let Some(base) = self.base.as_ref().filter(|_| path.starts_with("runs/")) else {
            return Ok(false);
        };
        let bytes = self.engine.rt.env.open(path, OpenMode::READ)?.len()?;
        let Some(pieces) = base.whole(path, bytes) else { return Ok(false) };
        self.to.leave_file_to_base(path, bytes, pieces);
        self.progress.add(bytes);
        self.progress.leave_to_base(bytes);
        Ok(true)
    }

    /// Fixes the end of the backup. Each round makes all records so far durable, reads them, and
    /// copies the pages that they name as unlogged. Such a page must be as it was at the end. If
    /// one was changed, or freed, behind the position of the round, the next round has the record
    /// of that: its position is behind all images copied so far. The log is not copied between the
    /// pages of the last round, so that has few of them. A snapshot is held meanwhile: no page of a
    /// long value that is superseded from now on is freed and written again.
    ///
    /// Writers may be faster than this copy. As soon as a round has more than half as many extents
    /// as the one before, the backup holds the gate that these writers pass, and lets them write
    /// half as many bytes as it copies. Each further round then has at most half as many pages as
    /// the one before, beside the pages of writers that had passed already. In the last round no
    /// writer passes.
    fn fix_end(&mut self) -> Result<()> {
        let reader = self.db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
        reader.take_snapshot()?;
        let (mut gate, mut before) = (None, usize::MAX);
        // A caller waits for the end of an armed backup, which has few pages left.
        let first = if self.progress.is_armed() { HURRIED_ROUND } else { 0 };
        for round in first.. {
            if round == ROUNDS_MAX {
                let error = Error::new(Code::BackupBehindLog).with("lsn", self.log.end());
                return Err(
                    error.with("why", "long values are written faster than they are copied")
                );
            }
            if round >= HURRIED_ROUND && gate.is_none() {
                gate = Some(self.hold_gate());
            }
            if let Some(gate) = &gate {
                gate.shut();
            }
            let last = self.engine.log.end();
            self.engine.log.wait_durable(last)?;
            self.moved(0)?;
            self.log.check_reached(last)?;
            let named = self.pages.by_extent(&self.log.watch.take_unlogged());
            let is_last = named.len() <= LAST_EXTENTS;
            let converges = is_last || named.len().saturating_mul(2) <= before;
            if !converges && gate.is_none() {
                gate = Some(self.hold_gate());
            }
            before = named.len();
            let mut newest = Lsn::ZERO;
            for pages in &named {
                newest = newest.max(self.pages.copy_again(pages, self.to)?);
                if !is_last {
                    self.moved(EXTENT_BYTES)?;
                    if let Some(gate) = &gate {
                        gate.grant(
                            (pages.len() as u64 * u64::from(self.pins.superblock.page_size)) / 2,
                        );
                    }
                }
            }
            if is_last && newest < self.log.end() {
                break;
            }
        }
        self.progress.fix(self.log.end())?;
        self.is_fixed = true;
        // The gate is open again from here on.
        drop(gate);
        self.log.finish(&self.pins.log, self.to)
    }

    /// From here on writers of unlogged pages wait for the backup, and it does not give way to
    /// users.
    fn hold_gate(&mut self) -> HeldGate<'a> {
        self.is_hurried = true;
        self.engine.store.trees().unlogged_gate().hold()
    }

    /// The superblock of the backup. A database that is open to read may have changed pages in
    /// memory behind the end of the directory's log, as recovery does. The directory will go on
    /// from there in another way, so a backup with such pages leaves its timeline: it is no base.
    ///
    /// The log behind the pinned superblock may have the first use of a feature: builds that do not
    /// know it must refuse the backup. The bit was durable before that use.
    fn superblock(&self) -> Superblock {
        let mut superblock = self.pins.superblock.clone();
        let present = self.engine.checkpointer.superblock().features;
        superblock.features.incompatible |= present.incompatible;
        superblock.features.read_only |= present.read_only;
        let log_end = Lsn(superblock.redo.0 + self.engine.recovery.log_bytes);
        if self.engine.options.read_only && self.pages.copied_to() >= log_end {
            superblock.leave_timeline(|| draw_timeline(&self.engine.rt), log_end);
        }
        superblock
    }

    /// What the backup will copy, as far as is known now.
    fn estimate(&self) -> Result<u64> {
        let space = self.engine.pages.space_stats();
        let used = space.extents.saturating_sub(space.free_extents + space.pending_extents);
        let mut bytes = u64::from(used) * EXTENT_BYTES;
        for path in file_copy::runs(&self.log.watch.runs()?) {
            let file = self.engine.rt.env.open(&path, OpenMode::READ);
            bytes += file.and_then(|file| file.len()).unwrap_or(0);
        }
        Ok(bytes)
    }

    /// So many bytes were copied. Lets the governor hold the backup up, then copies the log that
    /// became durable meanwhile.
    ///
    /// # Errors
    /// `StatementCancelled`; `DatabaseClosed`; if the database needs the space that the pins keep.
    fn moved(&mut self, bytes: u64) -> Result<()> {
        let (engine, progress) = (self.engine, self.progress);
        progress.add(bytes);
        engine.rt.step();
        let is_hurried = self.is_hurried || progress.is_hurried();
        if bytes > 0 && !is_hurried {
            engine.sched.ask(Class::Ddl, bytes, false);
        }
        progress.check()?;
        engine.check_open()?;
        engine.rt.health.check_user()?;
        if !self.is_fixed {
            let durable = engine.log.durable();
            let bytes = self.log.copy(durable, &self.pins.log, self.to)?;
            progress.add(bytes);
            if !is_hurried {
                engine.sched.ask(Class::Ddl, bytes, false);
            }
        }
        Ok(())
    }

    fn manifest(&self) -> BackupManifest {
        let superblock = &self.pins.superblock;
        BackupManifest {
            database: superblock.database_id,
            versions: VERSIONS,
            page_size: superblock.page_size,
            redo: superblock.redo,
            checkpoint: superblock.checkpoint,
            end: self.log.end(),
            note: self.progress.note(),
            base: self.base.as_ref().map(|base| base.named),
            files: self.to.files(),
        }
    }
}
