//! A session copies the open database beside the others, restores the copy and compares it with the
//! model at the copy's end. Copies are kept in memory, apart from the simulated disk. A copy builds
//! on the one before, which may have been made in an earlier life of the database.

use crate::session::{Session, Step};
use crate::verify::{Trouble, check_at};
use evenkeel::{
    Access, BackupProgress, BackupReport, Code, Database, Error, Isolation, Options,
    restore_backup_in, verify_backup_in,
};
use evenkeel_io::{Env, MemEnv};
use std::sync::Arc;

/// A backup is a full one, or builds on others; a chain has at most so many members.
const CHAIN: usize = 3;

/// Memory of the restored database.
const MEMORY_BYTES: u64 = 16 << 20;

impl Session {
    /// Takes a backup.
    pub fn back_up(&mut self) -> Step {
        let copy: Arc<dyn Env> = Arc::new(MemEnv::new());
        let mut bases = self.world.copies.lock().clone();
        bases.truncate(if bases.len() < CHAIN { CHAIN } else { 0 });
        let (db, progress) = (&self.world.db, BackupProgress::default());
        let taken = match bases.last() {
            Some(base) => {
                let base = (base.clone(), "base".to_string());
                db.backup_onto_in(base, copy.clone(), "copy", &progress)
            }
            None => db.backup_in(copy.clone(), "copy", &progress),
        };
        match taken {
            Ok(report) => {
                self.compare(&copy, &bases, &report);
                self.world.events.hit(match bases.len() {
                    0 => "backup compared",
                    _ => "incremental backup compared",
                });
                bases.push(copy);
                // A file that the disk has damaged is copied as it is.
                bases.truncate(if self.world.damage.is_none() { bases.len() } else { 0 });
                *self.world.copies.lock() = bases;
                Ok(())
            }
            // Another session takes one; or there is no space for another segment of the log.
            Err(error) if matches!(error.code(), Code::BackupRunning | Code::BackupBehindLog) => {
                Ok(())
            }
            Err(error) => self.failed("backup", &error),
        }
    }

    /// The copy has every commit before its end, and no other.
    fn compare(&self, copy: &Arc<dyn Env>, bases: &[Arc<dyn Env>], report: &BackupReport) {
        let checked = self.restored(copy, bases).and_then(|db| {
            let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
            let model = self.world.model.lock().clone();
            let checked = check_at(&mut txn, &db, &model, report.end.0.saturating_sub(1), true);
            drop(txn);
            db.close()?;
            Ok(checked)
        });
        match checked {
            Ok(Ok(())) => {}
            // What the disk damages in this life is found by the copy or by its reader.
            Err(error) | Ok(Err(Trouble::Error(error))) if self.world.is_damage(&error) => {}
            Ok(Err(Trouble::Differs(what))) => panic!("a backup up to {}: {what}", report.end),
            Err(error) | Ok(Err(Trouble::Error(error))) => panic!("a backup: {error}"),
        }
    }

    fn restored(&self, copy: &Arc<dyn Env>, bases: &[Arc<dyn Env>]) -> Result<Database, Error> {
        let problems = verify_backup_in(copy.clone(), "copy", bases)?.problems;
        assert!(problems.is_empty(), "a backup: {problems:?}");
        let to = Arc::new(MemEnv::new());
        restore_backup_in(copy.clone(), to.clone(), bases)?;
        let options = Options { memory_size: MEMORY_BYTES, ..Options::new().env(to) };
        Database::open_with("restored", options)
    }
}
