//! A session copies the open database beside the others, restores the copy and compares it with the
//! model at the copy's end. The copy is kept in memory, apart from the simulated disk.

use crate::session::{Session, Step};
use crate::verify::{Trouble, check_at};
use evenkeel::{
    Access, BackupProgress, BackupReport, Code, Database, Error, Isolation, Options,
    restore_backup_in, verify_backup_in,
};
use evenkeel_io::MemEnv;
use std::sync::Arc;

/// Memory of the restored database.
const MEMORY_BYTES: u64 = 16 << 20;

impl Session {
    /// Takes a backup.
    pub fn back_up(&mut self) -> Step {
        let copy = Arc::new(MemEnv::new());
        match self.world.db.backup_in(copy.clone(), "copy", &BackupProgress::default()) {
            Ok(report) => {
                self.compare(&copy, &report);
                self.world.events.hit("backup compared");
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
    fn compare(&self, copy: &Arc<MemEnv>, report: &BackupReport) {
        let checked = self.restored(copy).and_then(|db| {
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

    fn restored(&self, copy: &Arc<MemEnv>) -> Result<Database, Error> {
        let problems = verify_backup_in(copy.clone(), "copy")?.problems;
        assert!(problems.is_empty(), "a backup: {problems:?}");
        let to = Arc::new(MemEnv::new());
        restore_backup_in(copy.clone(), to.clone())?;
        let options = Options { memory_size: MEMORY_BYTES, ..Options::new().env(to) };
        Database::open_with("restored", options)
    }
}
