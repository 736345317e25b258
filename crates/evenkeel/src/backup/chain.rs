//! The chain of an incremental backup: its base, the base of that, and so on to a full backup.
//!
//! A base is found by the checksum of its manifest, whatever its directory is called, and counts
//! only if its database, timeline and positions are those that the incremental backup names. Each
//! piece that one member of the chain takes from its base is one that the base has.

use crate::backup::restore::BackupSource;
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::{Code, Error, Result};
use evenkeel_format::backup::{BackupBase, MARKER_FILE, Piece};
use evenkeel_io::{Env, RealEnv};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Members of a chain, at most.
const MEMBERS_MAX: usize = 1_000;

/// Where bases are looked for.
pub(crate) enum Places<'a> {
    /// In the directories that lie in some places, and in those of the backup's own name one level
    /// deeper: `/backup/monday/evenkeel` is found from `/backup/tuesday/evenkeel`.
    Directories {
        /// The places.
        within: Vec<PathBuf>,
        /// Only directories of the backup's name, one level deeper, are looked for here.
        cousins: Option<PathBuf>,
        /// The name.
        name: OsString,
    },
    /// At the roots of these environments.
    Envs(&'a [Arc<dyn Env>]),
}

/// The directories that lie in one; one that cannot be read holds no base.
fn entries(of: &Path) -> impl Iterator<Item = PathBuf> {
    let names = RealEnv::new(of).list("").unwrap_or_default();
    names.into_iter().map(|name| of.join(name))
}

impl Places<'_> {
    /// Beside a backup, and in other directories.
    pub(crate) fn beside(backup: &Path, others: &[&Path]) -> Places<'static> {
        let whole = std::path::absolute(backup).unwrap_or_else(|_| backup.to_path_buf());
        let (parent, name) = (whole.parent(), whole.file_name().unwrap_or_default());
        let within = parent.into_iter().chain(others.iter().copied()).map(Path::to_path_buf);
        // The root of the file system holds other things than backups.
        let above = parent.and_then(Path::parent).filter(|above| above.parent().is_some());
        Places::Directories {
            within: within.collect(),
            cousins: above.map(Path::to_path_buf),
            name: name.to_os_string(),
        }
    }

    fn candidates(&self) -> Vec<(Arc<dyn Env>, String)> {
        match self {
            Places::Envs(envs) => {
                envs.iter().map(|env| (env.clone(), "base".to_string())).collect()
            }
            Places::Directories { within, cousins, name } => {
                let mut found: Vec<PathBuf> = within.iter().flat_map(|of| entries(of)).collect();
                let deeper = within.iter().chain(cousins).flat_map(|of| entries(of));
                found.extend(deeper.map(|of| of.join(name)));
                let place = |path: PathBuf| -> (Arc<dyn Env>, String) {
                    (Arc::new(RealEnv::new(&path)), path.display().to_string())
                };
                found.into_iter().map(place).collect()
            }
        }
    }

    fn names(&self) -> String {
        match self {
            Places::Envs(envs) => format!("{} environments", envs.len()),
            Places::Directories { within, cousins, name } => {
                let within = within.iter().map(|place| place.display().to_string());
                let deeper = cousins.iter().map(|of| of.join("*").join(name));
                let deeper = deeper.map(|place| place.display().to_string());
                within.chain(deeper).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

impl BackupSource {
    /// Finds the bases of an incremental backup; a full backup has none.
    ///
    /// # Errors
    /// `BackupBase` naming the backup whose base is missing; `BackupDamaged` if a base lacks a
    /// piece; those of `BackupSource::open`.
    pub(crate) fn with_bases(mut self, places: &Places<'_>) -> Result<BackupSource> {
        self.find_base(places, MEMBERS_MAX)?;
        Ok(self)
    }

    fn find_base(&mut self, places: &Places<'_>, members: usize) -> Result<()> {
        let Some(wanted) = self.manifest.base else { return Ok(()) };
        let missing = |why: &str| {
            Error::new(Code::BackupBase)
                .with("backup", self.name())
                .with("base", format_args!("{:08x}", wanted.manifest))
                .with("end", wanted.end)
                .with("searched", places.names())
                .with("why", why)
        };
        if members == 0 {
            return Err(missing("the chain is too long"));
        }
        let mut found = None;
        for (env, name) in places.candidates() {
            if found.is_none() && may_be(&*env, &wanted) {
                let base = BackupSource::open(env, &name)?;
                found = self.is_built_on(&base, &wanted)?.then_some(base);
            }
        }
        let mut base = found.ok_or_else(|| missing("no such backup is there"))?;
        base.find_base(places, members - 1)?;
        for file in &self.manifest.files {
            for (number, piece) in file.pieces.iter().enumerate() {
                if *piece == Piece::OfBase && base.piece(&file.path, number as u64).is_none() {
                    let error = self.damaged(file, "its base lacks a piece");
                    return Err(error.with("piece", number));
                }
            }
        }
        self.base = Some(Box::new(base));
        Ok(())
    }

    fn is_built_on(&self, base: &BackupSource, wanted: &BackupBase) -> Result<bool> {
        // A backup of a directory that was open to read may have left the timeline (`superblock`).
        let (own, timeline) = (self.superblock()?.timeline, base.superblock()?.timeline.id);
        let is_same = base.manifest.database == self.manifest.database
            && (timeline == own.id || timeline == own.parent);
        let is_named = base.as_base() == *wanted || fault_injection::is(Fault::AnyBaseTaken);
        Ok(is_same && is_named)
    }
}

/// True if the marker of a directory names the manifest that is looked for.
fn may_be(env: &dyn Env, wanted: &BackupBase) -> bool {
    let marker = format!("{:08x}\n", wanted.manifest);
    let read = env.open(MARKER_FILE, evenkeel_io::OpenMode::READ).and_then(|file| {
        let mut text = vec![0; file.len()?.min(16) as usize];
        file.read_at(&mut text, 0)?;
        Ok(text)
    });
    read.is_ok_and(|text| text == marker.as_bytes() || fault_injection::is(Fault::AnyBaseTaken))
}
