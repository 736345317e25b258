//! Manifest: appending edits, the checkpoint's part, recovery.
//!
//! Edits are sets: applying a record again that a checkpoint already contains changes nothing in
//! the end, because every later record is applied again too.

use crate::Runs;
use crate::memtable::leaves::NewEntry;
use crate::run::damage::{DamagedFile, READ_TRIES, is_damage};
use crate::run::file::{Run, RunFile, RunPlace, RunSegment, number_of, path};
use crate::state::{LiveFile, RunsState};
use evenkeel_base::{
    Cause, Code, Error, Generation, IndexId, Lsn, Result, Stamp, TxnId, metrics::Metric,
};
use evenkeel_format::record::Entry;
use evenkeel_format::run::{
    ENTRY_BYTES_MAX, ManifestOp, SliceInfo, decode_manifest, encode_manifest,
};
use evenkeel_io::IO_ALIGN;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The list of runs while it is being restored.
#[derive(Default)]
pub(crate) struct Restoring {
    files: BTreeSet<u64>,
    removed: HashSet<(IndexId, u64)>,
    /// Runs that the slice of an index in a file was placed in.
    placed: HashMap<(IndexId, u64), Vec<RunPlace>>,
    trimmed: HashMap<(IndexId, u64), Vec<u8>>,
    dropped: HashSet<IndexId>,
    flushed: Generation,
    next_file: u64,
}

impl Restoring {
    fn take(&mut self, op: ManifestOp) {
        let later = |number: u64| number.saturating_add(1);
        match op {
            ManifestOp::AddFile(file) => {
                self.files.insert(file);
                self.next_file = self.next_file.max(later(file));
            }
            ManifestOp::RemoveFile(file) => {
                self.files.remove(&file);
            }
            ManifestOp::RemoveRun(index, run) => {
                self.removed.insert((index, run));
                self.next_file = self.next_file.max(later(run));
            }
            ManifestOp::Flushed(g) => self.flushed = self.flushed.max(g),
            ManifestOp::DropIndex(index) => {
                self.dropped.insert(index);
            }
            ManifestOp::NextFile(file) => self.next_file = self.next_file.max(file),
            ManifestOp::Place { index, file, run, age_low, age_high } => {
                let places = self.placed.entry((index, file)).or_default();
                places.push(RunPlace { run, age_low, age_high });
                self.next_file = self.next_file.max(later(run));
            }
            ManifestOp::Trim(index, run, low) => {
                let known = self.trimmed.entry((index, run)).or_default();
                if low > *known {
                    *known = low;
                }
            }
        }
    }

    /// True if the slice may belong to this run.
    fn is_live(&self, info: &SliceInfo, run: u64) -> bool {
        let name = (info.index, run);
        let above = |low: &Vec<u8>| info.max_key >= *low;
        !self.dropped.contains(&info.index)
            && !self.removed.contains(&name)
            && self.trimmed.get(&name).is_none_or(above)
    }

    /// Indexes without a live slice in a file, as far as known without reading it: a slice next to
    /// those of other indexes is a run with the file's number, and other slices are alone in their
    /// files.
    fn gone_from(&self, file: u64) -> HashSet<IndexId> {
        let is_placed = |index: IndexId| {
            let places = self.placed.get(&(index, file)).into_iter().flatten();
            places.into_iter().any(|place| !self.removed.contains(&(index, place.run)))
        };
        let removed = self.removed.iter().filter(|(index, run)| *run == file && !is_placed(*index));
        removed.map(|(index, _)| *index).collect()
    }

    /// The segment of a slice, if it is live.
    fn segment(&self, slice: &Arc<RunSegment>) -> Option<Arc<RunSegment>> {
        let info = &slice.info;
        let places = self.placed.get(&(info.index, slice.file.number));
        let place = places.into_iter().flatten().find(|place| self.is_live(info, place.run));
        match place {
            Some(place) => Some(Arc::new(slice.placed(*place))),
            None => self.is_live(info, info.run).then(|| slice.clone()),
        }
    }
}

impl Runs {
    /// Appends edits and waits until they are durable. The caller holds the manifest latch, applies
    /// the edits and calls `manifest_done`. Without a log (tests, tools) they are only in memory.
    pub(crate) fn append_manifest(&self, ops: &[ManifestOp]) -> Result<Lsn> {
        let Some(log) = self.log.get() else { return Ok(Lsn::ZERO) };
        self.manifest_low.store(log.end().0, Ordering::SeqCst);
        let damage = self.state.read().edits_of_damage();
        let body = encode_manifest(&[&damage, ops].concat());
        let appended = log.append_manifest(&body);
        if appended.is_err() {
            self.manifest_done();
        }
        appended
    }

    /// The last appended edits are in the view, and so is the flush that they record.
    pub(crate) fn manifest_done(&self) {
        self.manifest_low.store(u64::MAX, Ordering::SeqCst);
        if let Some(log) = self.log.get() {
            log.low_lsn_moved();
        }
    }

    /// The list of runs, for a checkpoint. The checkpoint reads the log end first, then `low_lsn`,
    /// then this: an edit that is in neither lies behind that log end.
    pub fn snapshot_blob(&self) -> Vec<u8> {
        encode_manifest(&self.state.read().edits(self.next_file.load(Ordering::SeqCst)))
    }

    /// Restores the list of runs from a checkpoint.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn restore(&self, blob: &[u8]) -> Result<()> {
        self.apply_manifest(blob)
    }

    /// Applies a manifest record found in the log. All of them come before the first `replay_row`.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn apply_manifest(&self, body: &[u8]) -> Result<()> {
        let ops = decode_manifest(body)?;
        let flushed = {
            let mut restoring = self.restoring.lock();
            ops.into_iter().for_each(|op| restoring.take(op));
            restoring.flushed
        };
        let mut state = self.state.write();
        state.flushed = flushed;
        state.memtables[0].raise_number(Generation(flushed.0.saturating_add(1)));
        Ok(())
    }

    /// The newest flushed generation: its entries and those of older ones are not taken again.
    pub fn flushed(&self) -> Generation {
        self.state.read().flushed
    }

    /// Recovery: takes the entries of a row record unless their generation was flushed. They are
    /// sorted and readable after `finish_restore`.
    ///
    /// # Errors
    /// `EntryTooLong` for entries beyond the limits.
    pub fn replay_row(
        &self,
        lsn: Lsn,
        generation: Generation,
        stamp: Stamp,
        pk: &[u8],
        entries: &[Entry<'_>],
    ) -> Result<()> {
        let (memtable, flushed) = {
            let state = self.state.read();
            (state.memtables[0].clone(), state.flushed)
        };
        let planted = evenkeel_base::fault_injection::is(
            evenkeel_base::fault_injection::Fault::MemtableNotRebuilt,
        );
        if generation <= flushed || entries.is_empty() || planted {
            return Ok(());
        }
        memtable.raise_number(generation);
        memtable.lower(lsn);
        for e in entries {
            let (index, op, key, value) = (e.index, e.op, e.key, e.value);
            if key.len() + pk.len() + value.len() > ENTRY_BYTES_MAX {
                return Err(Error::new(Code::EntryTooLong).with("index", index));
            }
            let bytes = memtable.restore(&NewEntry { index, op, stamp, lsn, key, pk, value });
            self.rt.metrics.add(Metric::MemtableBytes, bytes as u64);
        }
        Ok(())
    }

    /// Ends recovery: opens the files of all runs and removes the others; sorts the replayed
    /// entries into a packed generation, which is flushed if it exceeds its size (B6). Called once,
    /// also in a new directory, before the first flush. A file with an unreadable list damages only
    /// its indexes (`damage`).
    ///
    /// # Errors
    /// Of files that cannot be opened; `RunVersionUnknown`.
    pub fn finish_restore(&self) -> Result<()> {
        let restoring = std::mem::take(&mut *self.restoring.lock());
        let mut runs: BTreeMap<(IndexId, u64), Vec<Arc<RunSegment>>> = BTreeMap::new();
        let (mut files, mut doomed_bytes) = (BTreeMap::new(), Vec::new());
        let (mut damaged, mut dead_files) = (BTreeMap::new(), Vec::new());
        for number in &restoring.files {
            let (file, slices) = match self.open_file(*number, &restoring)? {
                Ok(opened) => opened,
                Err(file) => {
                    damaged.insert(*number, file);
                    continue;
                }
            };
            let mut live = LiveFile::new(file.clone(), 0);
            let mut dead = Vec::new();
            for info in slices {
                let (index, home) = (info.index, (info.index, info.run));
                let slice = Arc::new(RunSegment::new(file.clone(), info));
                let Some(segment) = restoring.segment(&slice) else {
                    live.dead.push(home);
                    dead.push(slice);
                    continue;
                };
                live.live += 1;
                if let Some(place) = segment.place() {
                    live.dead.push(home);
                    live.placed.insert(index, place);
                }
                runs.entry((index, segment.info.run)).or_default().push(segment);
            }
            if live.live == 0 {
                dead_files.push(*number);
            } else {
                files.insert(*number, live);
                doomed_bytes.extend(dead.into_iter().map(|slice| {
                    let start = slice.info.position;
                    let end = start + slice.info.bytes();
                    (slice, start..end)
                }));
            }
        }
        let above = self.remove_files_but(&restoring.files)?;
        self.next_file.store(restoring.next_file.max(above), Ordering::SeqCst);
        let mut state = self.state.write();
        state.files = files;
        (state.damaged, state.dead_files) = (damaged, dead_files);
        state.lost = restoring.dropped;
        state.doomed_bytes = doomed_bytes;
        for (name, segments) in runs {
            let Some(mut run) = Run::new(segments) else { continue };
            if let Some(low) = restoring.trimmed.get(&name) {
                run.low.clone_from(low);
                state.trimmed.insert(name);
            }
            state.indexes.entry(name.0).or_default();
            state.add_runs(name.0, [Arc::new(run)]);
        }
        state.find_damaged();
        let active = state.memtables[0].clone();
        self.changed(&state);
        drop(state);
        self.filter_cache.prune();
        active.pack_by_threads(&self.rt)?;
        if active.bytes() >= self.generation_bytes() {
            self.seal_active();
        }
        Ok(())
    }

    /// Removes the files that the manifest does not name; returns a number above all of them.
    fn remove_files_but(&self, named: &BTreeSet<u64>) -> Result<u64> {
        let mut next_file = 1;
        for name in self.rt.env.list("runs")? {
            let Some(number) = number_of(&name) else { continue };
            next_file = next_file.max(number.saturating_add(1));
            if !named.contains(&number) {
                log::info!("{}: of no run, removed", path(number));
                self.rt.remove_file(&path(number))?;
            }
        }
        Ok(next_file)
    }

    /// Opens a file of runs; the outer error is not damage. A failed read is tried again, because
    /// the manifest will record damaged indexes as dropped.
    #[allow(clippy::type_complexity)] // Both sides are named where it is called.
    fn open_file(
        &self,
        number: u64,
        restoring: &Restoring,
    ) -> Result<std::result::Result<(Arc<RunFile>, Vec<SliceInfo>), DamagedFile>> {
        let mut tried = 0;
        loop {
            tried += 1;
            let opened = RunFile::open(&self.rt, &self.filter_cache, number);
            let file = opened.as_ref().ok().cloned();
            let read = opened.and_then(|file| file.slices().map(|slices| (file, slices)));
            match read {
                Ok(opened) => return Ok(Ok(opened)),
                Err(error) if error.code() == Code::ReadFailed && tried < READ_TRIES => {
                    log::warn!("again: {error}");
                }
                Err(error) if is_damage(&error) => {
                    let gone = restoring.gone_from(number);
                    return Ok(Err(DamagedFile::new(number, file.as_deref(), &error, gone)));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Called after the catalog was read and `add_index` was called for each of its indexes. Finds
    /// the damaged ones, and drops the runs of indexes that do not exist: a crash may lie between a
    /// DROP and the removal of its runs.
    ///
    /// # Errors
    /// Of writing the manifest record.
    pub fn drop_unknown(&self) -> Result<()> {
        let (unknown, unneeded) = {
            let mut state = self.state.write();
            let RunsState { lost, indexes, .. } = &mut *state;
            lost.retain(|index| indexes.get(index).is_some_and(|i| i.known));
            state.find_damaged();
            let mut unneeded = state.forget_unneeded();
            // The manifest names them, and another open may be able to read what this one could
            // not.
            unneeded.append(&mut state.dead_files);
            self.changed(&state);
            let unknown = state.indexes.iter().filter(|(_, i)| !i.known).map(|(id, _)| *id);
            (unknown.collect::<Vec<IndexId>>(), unneeded)
        };
        if !unneeded.is_empty() {
            let _edit = self.manifest.lock(&self.rt, Cause::Schema);
            let ops: Vec<ManifestOp> =
                unneeded.iter().map(|file| ManifestOp::RemoveFile(*file)).collect();
            self.append_manifest(&ops)?;
            self.manifest_done();
            self.remove_files(unneeded);
        }
        unknown.into_iter().try_for_each(|index| self.drop_index(index))
    }

    /// Removes an index and its runs, durably, in O(files). Readers that have its files open
    /// finish.
    ///
    /// # Errors
    /// Of writing the manifest record: the index is gone from memory all the same, and
    /// `drop_unknown` removes its runs at the next open.
    pub fn drop_index(&self, index: IndexId) -> Result<()> {
        // Warm it so that its bytes can be freed; it can be dropped without that.
        if let Err(error) = self.warm(index)
            && error.code() != Code::IndexGone
        {
            log::warn!("index {index}: {error}");
        }
        let _edit = self.manifest.lock(&self.rt, Cause::Schema);
        let mut ops = vec![ManifestOp::DropIndex(index)];
        let (is_empty, damaged) = {
            let state = self.state.read();
            let Some(known) = state.indexes.get(&index) else { return Ok(()) };
            let empty = state.files_left_empty(known.files());
            ops.extend(empty.into_iter().map(ManifestOp::RemoveFile));
            (known.count() == 0, known.is_damaged())
        };
        let unneeded = if damaged { self.state.read().damaged_left_empty(index) } else { vec![] };
        ops.extend(unneeded.iter().copied().map(ManifestOp::RemoveFile));
        if !is_empty || damaged {
            self.append_manifest(&ops)?;
        }
        let mut state = self.state.write();
        state.drop_index(index);
        self.changed(&state);
        drop(state);
        self.manifest_done();
        self.remove_files(unneeded);
        self.compaction_event.notify();
        Ok(())
    }

    /// True while a run has pending entries of the transaction: its id must stay in the commit
    /// table (A5).
    pub fn is_pending(&self, txn: TxnId) -> bool {
        self.state.read().is_pending(txn)
    }

    /// Removes files, and frees bytes of others, that no view holds any more.
    pub(crate) fn remove_doomed(&self) {
        let bytes: Vec<(Arc<RunSegment>, Range<u64>)> = {
            let RunsState { files, doomed_bytes, .. } = &mut *self.state.write();
            doomed_bytes.retain(|(segment, _)| files.contains_key(&segment.file.number));
            doomed_bytes.extract_if(.., |one| Arc::strong_count(&one.0) == 1).collect()
        };
        for (segment, range) in bytes {
            if let Err(error) = self.punch(segment.file.number, range) {
                log::warn!("{}: no bytes given back: {error}", path(segment.file.number));
            }
        }
        let free: Vec<Arc<RunFile>> = {
            let RunsState { doomed, .. } = &mut *self.state.write();
            doomed.extract_if(.., |file| Arc::strong_count(file) == 1).collect()
        };
        for file in free {
            let path = path(file.number);
            drop(file);
            if let Err(error) = self.rt.remove_file(&path) {
                log::warn!("{path}: cannot be removed, goes at the next start: {error}");
            }
        }
    }

    /// Frees the whole blocks of a range of a file.
    fn punch(&self, file: u64, range: Range<u64>) -> Result<()> {
        let align = IO_ALIGN as u64;
        let (start, end) = (range.start.next_multiple_of(align), range.end / align * align);
        if start >= end {
            return Ok(());
        }
        self.rt.punch_file(&path(file), start..end)?;
        self.rt.metrics.add(Metric::RunPunchedBytes, end - start);
        Ok(())
    }
}
