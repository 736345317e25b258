//! The superblock file: read at open, one slot rewritten at each checkpoint and at open and close.
//! Invariants: the slot that is not being written is whole and names a checkpoint that is still in
//! the log. The sequences of the two slots differ by one, and an even sequence is in the first
//! slot.
//!
//! A directory of superblock version 1 is converted by the first update after an open for writing,
//! which is a write of one slot like any other: until it is whole, the other slot of version 1
//! counts, and the next open converts again. From then on the newest slot is of version 2, and
//! builds that know only version 1 refuse the directory. An open for reading converts nothing.

use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::{Error, Result, sync::Mutex};
use evenkeel_format::superblock::{SLOT_BYTES, Superblock};
use evenkeel_io::{AlignedBuf, File, OpenMode, Runtime};
use std::sync::Arc;

/// Name of the superblock file.
pub(crate) const SUPER_FILE: &str = "evenkeel.super";

/// The name of the file while it is being made.
const NEW_SUPER_FILE: &str = "evenkeel.super.new";

/// The superblock and its file.
pub(crate) struct SuperFile {
    file: Arc<dyn File>,
    state: Mutex<Superblock>,
    /// Problems of a slot when the file was read; the first update writes the slot anew.
    found: Vec<String>,
}

impl SuperFile {
    /// Writes a new file with both slots and makes it durable. It gets its name only when it is
    /// whole, because a name may survive a crash that the content does not.
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
        Ok(SuperFile { file, state: Mutex::new(first), found: Vec::new() })
    }

    /// Reads the file.
    ///
    /// # Errors
    /// `NotADatabase`, `NewerFormat`, those of the environment.
    pub(crate) fn open(rt: &Runtime, write: bool) -> Result<SuperFile> {
        let mode = if write { OpenMode::READ_WRITE } else { OpenMode::READ };
        let file = rt.env.open(SUPER_FILE, OpenMode { create: false, ..mode })?;
        let bytes = read(&*file)?;
        let state = Superblock::choose(&bytes).map_err(|e| e.with("file", SUPER_FILE))?;
        if write {
            // A process that was killed may have written the file without a sync. All work from now
            // on relies on it: the log before it is reused, and the other slot is written.
            file.sync()?;
        }
        let found = slot_problems(&bytes, &state);
        found.iter().for_each(|problem| log::warn!("{problem}"));
        Ok(SuperFile { file, state: Mutex::new(state), found })
    }

    /// The present superblock.
    pub(crate) fn get(&self) -> Superblock {
        self.state.lock().clone()
    }

    /// Problems found when the file was read.
    pub(crate) fn found(&self) -> &[String] {
        &self.found
    }

    /// Problems of its slots now; the caller prevents updates meanwhile.
    ///
    /// # Errors
    /// Those of the environment.
    pub(crate) fn problems(&self) -> Result<Vec<String>> {
        Ok(slot_problems(&read(&*self.file)?, &self.get()))
    }

    /// Refuses to write to a directory that a newer version lets others only read.
    ///
    /// # Errors
    /// `NewerFormat` naming the features.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.get().check_writable().map_err(|e| e.with("file", SUPER_FILE))
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
            Err(error) if error.code().is_shortage() => return Err(error),
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

/// A number for a new timeline; zero means that there is none.
///
/// A restore gives its copy a timeline of its own: with `Superblock::leave_timeline` and this, on
/// the superblock that it took from the backup, before `SuperFile::create` writes it as the last
/// file of the copy. `fork` is the end of the log that was restored. `create` writes both slots, so
/// no fallback to the older slot returns to the parent.
pub(crate) fn draw_timeline(rt: &Runtime) -> u128 {
    let half = || u128::from(rt.env.random());
    (half() << 64 | half()).max(1)
}

fn read(file: &dyn File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; file.len()?.min(2 * SLOT_BYTES as u64) as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Problems of the two slots of a file whose newest superblock is this one. A crash may tear the
/// slot that is being written; a torn slot looks like a damaged one, and the other slot is valid.
fn slot_problems(bytes: &[u8], newest: &Superblock) -> Vec<String> {
    let own = (newest.sequence % 2) as usize;
    let problem = |slot: usize| {
        let at = slot * SLOT_BYTES;
        // Number 0 has no other: it was the older one when the file was made, and 1 the newest.
        let wanted = newest.sequence.checked_sub(u64::from(slot != own));
        let what = match bytes.get(at..at + SLOT_BYTES).map(Superblock::decode) {
            Some(Ok(Some(found))) if Some(found.sequence) == wanted => return None,
            Some(Ok(Some(found))) => {
                format!("holds number {}, the other one {}", found.sequence, newest.sequence)
            }
            _ => "is damaged, or its write was cut short by a crash".to_string(),
        };
        Some(format!("{SUPER_FILE}: slot {slot} {what}; the other slot counts"))
    };
    (0..2).filter_map(problem).collect()
}

fn write_slot(file: &dyn File, slot: &Superblock) -> Result<()> {
    let mut buf = AlignedBuf::new(SLOT_BYTES);
    buf.copy_from_slice(&slot.encode());
    let place = if fault_injection::is(Fault::FirstSlotOnly) { 0 } else { slot.sequence % 2 };
    file.write_at(&buf, place * SLOT_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_base::{Code, DatabaseId, Lsn, PageNo};
    use evenkeel_format::superblock::{Features, SUPERBLOCK_VERSION, Timeline};
    use evenkeel_io::sim::{CrashPolicy, SimDisk, SimEnv, SimOptions, catch_crash};

    fn first() -> Superblock {
        Superblock {
            version: SUPERBLOCK_VERSION,
            sequence: 1,
            database_id: DatabaseId(7),
            page_size: 4096,
            epoch: 1,
            clean: false,
            checkpoint: Lsn(100),
            redo: Lsn(100),
            catalog_root: PageNo(3),
            page_redo: Lsn(100),
            features: Features { compatible: 4, ..Features::default() },
            timeline: Timeline { id: 17, ..Timeline::default() },
        }
    }

    fn of_version_1() -> Superblock {
        let (features, timeline) = (Features::default(), Timeline::default());
        Superblock { version: 1, features, timeline, ..first() }
    }

    /// The file is of version 1 or 2 wherever the machine stops, and the next open ends with 2.
    #[test]
    fn a_conversion_that_is_cut_short_is_made_again() {
        let cuts = (1..=4).flat_map(|n| CrashPolicy::ALL.iter().map(move |policy| (n, *policy)));
        let (mut old, mut new) = (0, 0);
        for (cut, policy) in cuts {
            let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
            let rt = sim.runtime();
            drop(SuperFile::create(&rt, of_version_1()).expect("creates"));
            sim.disk().crash_at_change(sim.disk().changes() + cut);
            let convert = |rt: &Runtime| -> Result<Superblock> {
                let file = SuperFile::open(rt, true)?;
                file.update(rt, |slot| slot.convert(|| draw_timeline(rt)))?;
                Ok(file.get())
            };
            let done = catch_crash(|| convert(&rt));
            for seed in 1..20 {
                let after = SimEnv::on(sim.disk().crash(policy, seed), SimOptions::quiet(1));
                let rt = after.runtime();
                let found = SuperFile::open(&rt, false).expect("opens").get();
                match (found.version, &done) {
                    (1, Some(Ok(_))) => panic!("{cut} {policy:?} {seed}: the conversion is lost"),
                    (1, _) => {
                        assert_eq!(found, of_version_1());
                        old += 1;
                    }
                    _ => {
                        assert_eq!((found.version, found.sequence), (2, 2));
                        assert!(found.timeline.id != 0 && found.timeline.parent == 0);
                        new += 1;
                    }
                }
                let converted = convert(&rt).expect("converts");
                assert_eq!(converted.version, 2);
                if found.version == 2 {
                    assert_eq!(converted.timeline, found.timeline, "drawn once");
                }
                let again = SuperFile::open(&rt, true).expect("opens").get();
                assert_eq!(again, converted, "{cut} {policy:?} {seed}");
            }
        }
        assert!(old > 0 && new > 0, "{old} {new}");
    }

    #[test]
    fn a_restored_directory_has_a_timeline_of_its_own_in_both_slots() {
        for superblock in [first(), of_version_1()] {
            let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
            let rt = sim.runtime();
            let mut new = superblock.clone();
            new.leave_timeline(|| draw_timeline(&rt), Lsn(90));
            drop(SuperFile::create(&rt, new).expect("creates"));
            let opened = SuperFile::open(&rt, true).expect("opens").get();
            let Timeline { id, parent, fork } = opened.timeline;
            assert_eq!((opened.version, fork), (SUPERBLOCK_VERSION, Lsn(90)));
            assert!(id != 0 && parent != 0 && id != parent);
            assert_eq!(opened.features, superblock.features, "unknown compatible features stay");
            if superblock.version > 1 {
                assert_eq!(parent, superblock.timeline.id);
            }
            let file = rt.env.open(SUPER_FILE, OpenMode::READ).expect("opens");
            for slot in read(&*file).expect("reads").chunks(SLOT_BYTES) {
                let slot = Superblock::decode(slot).expect("known").expect("whole");
                assert_eq!(slot.timeline, opened.timeline);
            }
        }
    }

    #[test]
    fn a_directory_that_may_only_be_read_is_not_written() {
        let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
        let features = Features { read_only: 1 << 5, ..Features::default() };
        let rt = sim.runtime();
        drop(SuperFile::create(&rt, Superblock { features, ..first() }).expect("creates"));
        let file = SuperFile::open(&rt, false).expect("may be read");
        let error = file.check_writable().expect_err("may only be read");
        assert_eq!(error.code(), Code::NewerFormat, "{error}");
        assert_eq!(error.context("file"), Some(SUPER_FILE));
        assert_eq!(error.context("found"), Some("0x20"));
    }

    /// A write of a slot that is cut short anywhere leaves the superblock before it.
    #[test]
    fn a_torn_slot_leaves_the_other_one() {
        let cuts = (1..=4).flat_map(|n| CrashPolicy::ALL.iter().map(move |policy| (n, *policy)));
        for (cut, policy) in cuts {
            let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
            let file = SuperFile::create(&sim.runtime(), first()).expect("creates");
            assert_eq!(file.problems().expect("reads"), [""; 0]);
            sim.disk().crash_at_change(sim.disk().changes() + cut);
            let mut written = first().sequence;
            while let Some(Ok(())) = catch_crash(|| file.update(&sim.runtime(), |_| ())) {
                written += 1;
            }
            for seed in 1..20 {
                let after = SimEnv::on(sim.disk().crash(policy, seed), SimOptions::quiet(1));
                let opened = SuperFile::open(&after.runtime(), true);
                let file = opened.unwrap_or_else(|e| panic!("{cut} {policy:?} {seed}: {e}"));
                let sequence = file.get().sequence;
                assert!(sequence == written || sequence == written + 1, "{cut} {policy:?} {seed}");
                file.update(&after.runtime(), |_| ()).expect("updates");
                assert_eq!(file.problems().expect("reads"), [""; 0]);
            }
        }
    }

    #[test]
    fn a_damaged_slot_is_reported_and_rewritten() {
        for slot in 0..2 {
            let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
            let rt = sim.runtime();
            drop(SuperFile::create(&rt, first()).expect("creates"));
            let file = rt.env.open(SUPER_FILE, OpenMode::READ_WRITE).expect("opens");
            file.write_at(&[0xff; 8], (slot * SLOT_BYTES + 40) as u64).expect("writes");
            let opened = SuperFile::open(&rt, true).expect("opens");
            let told = opened.found().join("; ");
            assert!(told.contains("evenkeel.super: slot"), "{slot}: {told}");
            assert_eq!(opened.found(), opened.problems().expect("reads"));
            opened.update(&rt, |_| ()).expect("updates");
            assert_eq!(opened.problems().expect("reads"), [""; 0], "{slot}");
        }
    }

    #[test]
    fn a_slot_written_by_a_killed_process_is_synced_by_the_next() {
        let sim = SimEnv::on(SimDisk::new(1), SimOptions::quiet(1));
        let file = SuperFile::create(&sim.runtime(), first()).expect("creates");
        // During the sync, after the write of the slot.
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
