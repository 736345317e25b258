//! Indexes that have only their entry in memory (D2). If an index has a single run, in a file with
//! slices of other indexes, its slice is left in the footer of that file and read on first use.
//!
//! Lifecycle of such a slice: 1. It is cold from its creation (a flush, a compaction, an open),
//! unless its index was read lately. 2. A reader or a compaction of the index first reads its run
//! into memory (`warm`): the whole footer is read, and stays packed in memory while there is room
//! (`filter_cache`). 3. If there is no room for more, slices that were not used for a round of a
//! clock are evicted (second chance).
//!
//! Invariants: a run that is left in its file has the number of the file, as its footer says. It is
//! not in memory, so there are never two segments of one slice of which one may be freed while the
//! other is read. Other runs of the index may be added: a flush reads no footer. Checkpoints and
//! the log do not contain slices, so cold and warm slices look the same to them.

use crate::Runs;
use crate::run::damage::{READ_TRIES, is_damage};
use crate::run::file::{Run, RunFile, RunSegment};
use crate::state::{Index, RunsState, USED};
use evenkeel_base::{Code, Error, IndexId, Result};
use evenkeel_format::run::SliceInfo;
use std::num::NonZeroU32;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

/// Indexes that the clock passes at a time.
const SWEEP: usize = 64;
/// Approximate memory of a run beside its keys; `tests/many_indexes.rs` measures it.
const RUN_BYTES: usize = 600;

/// The file of a run, if the run may be left in it because the footer has all its facts.
fn left_in(run: &Arc<Run>) -> Option<NonZeroU32> {
    let [segment] = &run.segments[..] else { return None };
    let number = segment.file.number;
    let is_alike = run.number == number && segment.home().1 == number;
    let is_whole = run.low.is_empty() && !run.growing && segment.info.pending.is_empty();
    let is_free = Arc::strong_count(run) == 1 && Arc::strong_count(segment) == 1;
    if !is_alike || !is_whole || !is_free {
        return None;
    }
    u32::try_from(number).ok().and_then(NonZeroU32::new)
}

impl RunsState {
    /// The runs of an index have changed: its only run stays in memory while it is used.
    pub(crate) fn note_cold(&mut self, index: IndexId) {
        match self.indexes.get(&index) {
            Some(known) if known.cold.is_none() && known.runs.len() == 1 => {
                if !known.is(USED) && self.cool(index) {
                    return;
                }
                let run = &self.indexes[&index].runs[0];
                let keys = run.segments.iter().map(|s| s.info.min_key.len() + s.info.max_key.len());
                let bytes = (RUN_BYTES + keys.sum::<usize>()).min(u32::MAX as usize);
                self.warm_bytes += bytes as u64;
                let before = self.warm.insert(index, bytes as u32);
                self.warm_bytes -= u64::from(before.unwrap_or(0));
            }
            _ => self.warm_bytes -= u64::from(self.warm.remove(&index).unwrap_or(0)),
        }
    }

    /// Leaves the only run of an index in its file; false if it has to stay in memory.
    fn cool(&mut self, index: IndexId) -> bool {
        let Some(known) = self.indexes.get_mut(&index) else { return false };
        let [run] = &known.runs[..] else { return false };
        let Some(file) = left_in(run).filter(|_| Arc::strong_count(&known.runs) == 1) else {
            return false;
        };
        // The memory of a file of its own is used anyway. A run to be compacted for its garbage
        // stays.
        let is_shared = self.files.get(&run.number).is_some_and(|file| file.live > 1);
        if !is_shared || self.merging.contains_key(&index) || self.due.unrest.contains(&index) {
            return false;
        }
        known.leave_in(file);
        self.warm_bytes -= u64::from(self.warm.remove(&index).unwrap_or(0));
        true
    }

    /// Advances the clock over single runs in memory, by one round at most, while there are too
    /// many. `but`: skips this index.
    fn sweep_warm(&mut self, but: Option<IndexId>, is_enough: impl Fn(u64) -> bool) {
        for _ in 0..SWEEP.min(self.warm.len()) {
            if is_enough(self.warm_bytes) {
                break;
            }
            let after = self.warm.range((Excluded(self.hand), Unbounded)).next();
            let Some((index, _)) = after.or_else(|| self.warm.first_key_value()) else { break };
            self.hand = *index;
            if but == Some(self.hand) {
                continue;
            }
            let was_used = self.indexes.get(&self.hand).is_some_and(|i| i.take(USED));
            if !was_used {
                self.cool(self.hand);
            }
        }
    }

    /// The file in which a run of an index is left.
    fn file_of_cold(&self, index: IndexId) -> Result<Option<Arc<RunFile>>> {
        let gone = || Error::new(Code::IndexGone).with("index", index);
        let Some(cold) = self.indexes.get(&index).ok_or_else(gone)?.cold else { return Ok(None) };
        let lost = || Error::internal("a run is left in a file that is not there");
        let file = self.files.get(&u64::from(cold.get())).ok_or_else(lost)?;
        Ok(Some(file.file.clone()))
    }

    /// Its slice is in memory again.
    fn set_warm(&mut self, index: IndexId, file: &Arc<RunFile>, info: SliceInfo) {
        let Some(known) = self.indexes.get_mut(&index) else { return };
        if known.cold.is_none_or(|cold| u64::from(cold.get()) != file.number) {
            return;
        }
        known.cold = None;
        known.set(USED);
        let run = Run::new(vec![Arc::new(RunSegment::new(file.clone(), info))]);
        self.add_runs(index, run.map(Arc::new));
    }
}

impl Index {
    /// Number of its runs: those in memory, and one that is not.
    pub(crate) fn count(&self) -> usize {
        self.runs.len() + usize::from(self.cold.is_some())
    }
}

impl Runs {
    /// All runs of an index are in memory from now on, until they are unused.
    ///
    /// # Errors
    /// `IndexGone`; of reading a footer.
    pub(crate) fn warm(&self, index: IndexId) -> Result<()> {
        if !self.warm_one(index)? {
            return Ok(());
        }
        let mut state = self.state.write();
        let has_room = |bytes| {
            self.filter_cache.set_slices(bytes);
            self.filter_cache.has_room_for_slices()
        };
        if !has_room(state.warm_bytes) {
            // Otherwise the caller would find it evicted again.
            state.sweep_warm(Some(index), has_room);
            has_room(state.warm_bytes);
            drop(state);
            self.filter_cache.prune();
        }
        Ok(())
    }

    /// As `warm`, without evicting others; false if it is in memory already.
    fn warm_one(&self, index: IndexId) -> Result<bool> {
        let file = self.state.read().file_of_cold(index)?;
        let Some(file) = file else { return Ok(false) };
        let info = file.slice_of(index)?;
        self.state.write().set_warm(index, &file, info);
        Ok(true)
    }

    /// As `warm_one`; a single failure of the device is no damage yet.
    fn warm_surely(&self, index: IndexId) -> Result<bool> {
        for _ in 1..READ_TRIES {
            match self.warm_one(index) {
                Err(error) if error.code() == Code::ReadFailed => log::warn!("again: {error}"),
                read => return read,
            }
        }
        self.warm_one(index)
    }

    /// The same for compactions, which take the runs before they call `cool_down`. An unreadable
    /// footer damages its index, as at an open, so that no insert waits for its compactions.
    pub(crate) fn warm_all(&self, indexes: Vec<IndexId>) {
        for index in indexes {
            match self.warm_surely(index) {
                Err(error) if is_damage(&error) => self.ruin(index, &error),
                Err(error) if error.code() != Code::IndexGone => {
                    log::warn!("index {index} is not merged: {error}");
                }
                _ => {}
            }
        }
    }

    /// Evicts slices that were not used lately, as far as there is no room for them.
    pub(crate) fn cool_down(&self) {
        let rounds = 2 * self.state.read().warm.len().div_ceil(SWEEP);
        let has_room = |bytes| {
            self.filter_cache.set_slices(bytes);
            self.filter_cache.has_room_for_slices()
        };
        for _ in 0..rounds {
            let mut state = self.state.write();
            if has_room(state.warm_bytes) {
                break;
            }
            state.sweep_warm(None, has_room);
            has_room(state.warm_bytes);
        }
        self.filter_cache.prune();
    }
}
