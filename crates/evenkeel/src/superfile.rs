//! The superblock file: read at open, one slot rewritten at each checkpoint and at open and close.
//! Invariant: the slot not being written is whole and names a checkpoint that is still in the log.

use evenkeel_base::{Code, Error, Result, sync::Mutex};
use evenkeel_format::superblock::{SLOT_BYTES, Superblock};
use evenkeel_io::{AlignedBuf, File, OpenMode, Runtime};
use std::sync::Arc;

/// Name of the superblock file.
pub(crate) const SUPER_FILE: &str = "evenkeel.super";

/// Its name while it is being made.
const NEW_SUPER_FILE: &str = "evenkeel.super.new";

/// The superblock and its file.
pub(crate) struct SuperFile {
    file: Arc<dyn File>,
    state: Mutex<Superblock>,
}

impl SuperFile {
    /// Writes a new file with both slots and makes it durable. It gets its name when it is whole: a
    /// name may survive a crash that its content does not.
    ///
    /// # Errors
    /// Those of the environment.
    pub(crate) fn create(rt: &Runtime, first: Superblock) -> Result<SuperFile> {
        let file = rt.env.open(NEW_SUPER_FILE, OpenMode::READ_WRITE)?;
        file.allocate(0, 2 * SLOT_BYTES as u64)?;
        let mut older = first.clone();
        older.sequence = first.sequence.saturating_sub(1);
        for slot in [older, first.clone()] {
            write_slot(&*file, &slot)?;
        }
        file.sync()?;
        rt.env.rename(NEW_SUPER_FILE, SUPER_FILE)?;
        rt.env.sync_dir("")?;
        let file = rt.env.open(SUPER_FILE, OpenMode::READ_WRITE)?;
        Ok(SuperFile { file, state: Mutex::new(first) })
    }

    /// Reads the file.
    ///
    /// # Errors
    /// `NotADatabase`, `NewerFormat`, those of the environment.
    pub(crate) fn open(rt: &Runtime, write: bool) -> Result<SuperFile> {
        let mode = if write { OpenMode::READ_WRITE } else { OpenMode::READ };
        let file = rt.env.open(SUPER_FILE, OpenMode { create: false, ..mode })?;
        let len = file.len()?.min(2 * SLOT_BYTES as u64) as usize;
        let mut bytes = vec![0; len];
        file.read_at(&mut bytes, 0)?;
        let state = Superblock::choose(&bytes).map_err(|e| e.with("file", SUPER_FILE))?;
        if write {
            // A process that was killed may have written it and not synced it. What is done from
            // now on rests on it: the log before it is used again, the other slot is written.
            file.sync()?;
        }
        Ok(SuperFile { file, state: Mutex::new(state) })
    }

    /// The present superblock.
    pub(crate) fn get(&self) -> Superblock {
        self.state.lock().clone()
    }

    /// Changes the superblock and makes it durable. One caller at a time (the checkpointer, or open
    /// and close when it does not run).
    ///
    /// # Errors
    /// Those of the environment; a failed write or sync latches `rt.health`.
    pub(crate) fn update(&self, rt: &Runtime, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut next = self.get();
        change(&mut next);
        next.sequence += 1;
        if next.redo > next.page_redo || next.page_redo > next.checkpoint {
            return Err(Error::internal("redo position beyond the checkpoint"));
        }
        match write_slot(&*self.file, &next) {
            // The slot is written again when there is space.
            Err(error) if error.code() == Code::DiskFull => return Err(error),
            written => written.and_then(|()| self.file.sync()).map_err(|e| rt.health.fail(e))?,
        }
        let mut state = self.state.lock();
        if state.sequence + 1 != next.sequence {
            return Err(rt.health.fail(Error::internal("two checkpoints at a time")));
        }
        *state = next;
        Ok(())
    }
}

fn write_slot(file: &dyn File, slot: &Superblock) -> Result<()> {
    let mut buf = AlignedBuf::new(SLOT_BYTES);
    buf.copy_from_slice(&slot.encode());
    file.write_at(&buf, (slot.sequence % 2) * SLOT_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_base::{DatabaseId, Lsn, PageNo};
    use evenkeel_io::sim::{CrashPolicy, SimDisk, SimEnv, SimOptions, catch_crash};

    fn first() -> Superblock {
        Superblock {
            sequence: 1,
            database_id: DatabaseId(7),
            page_size: 4096,
            epoch: 1,
            clean: false,
            checkpoint: Lsn(100),
            redo: Lsn(100),
            catalog_root: PageNo(3),
            page_redo: Lsn(100),
        }
    }

    #[test]
    fn a_slot_that_a_killed_process_wrote_is_synced_by_the_next() {
        let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
        let file = SuperFile::create(&sim.runtime(), first()).expect("creates");
        // In the sync, behind the write of the slot.
        sim.disk().crash_at_change(sim.disk().changes() + 2);
        let written = catch_crash(|| file.update(&sim.runtime(), |_| ()));
        assert!(!matches!(written, Some(Ok(()))), "it is killed");
        let killed = SimEnv::on(sim.disk().crash(CrashPolicy::Killed, 1), SimOptions::quiet(1));
        assert_eq!(killed.disk().unsynced_of_killed(SUPER_FILE), 1);
        let next = SuperFile::open(&killed.runtime(), true).expect("opens").get();
        assert_eq!(next.sequence, first().sequence + 1);
        assert_eq!(killed.disk().unsynced_of_killed(SUPER_FILE), 0);
    }
}
