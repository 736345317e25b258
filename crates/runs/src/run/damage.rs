//! Files of runs whose list of slices cannot be read, and the indexes that they damage.
//!
//! Such a file has no readable list, but its envelopes name their indexes, and their checksums bind
//! them to file and position. Slices are stored in the order of ids. So where the bytes between two
//! envelopes are unreadable, the indexes with ids between theirs may have had a slice there; where
//! bytes at the end are unreadable, those behind the last. An index that may have lost a slice is
//! damaged: nothing is read through it (a part of an index is useless), its entries are not flushed
//! and its runs not compacted, because it can only be dropped. The file is removed with the last
//! damaged index.
//!
//! Lifecycle: 1. `finish_restore` finds the files. 2. `find_damaged` finds the indexes, when the
//! catalog has named them. 3. From the next manifest record or checkpoint on, which may be that of
//! a flush without their entries, the manifest says that they are dropped. An index that is in the
//! catalog and dropped in the manifest is damaged at the next open too, even if its file is whole
//! again. 4. They are dropped. If a compaction cannot read a block of an index, the index becomes
//! damaged at that time (`ruin`) and continues at 3; otherwise it would be compacted in vain for
//! ever and gather runs without bound.

use crate::Runs;
use crate::run::file::{RunFile, path};
use crate::state::{Index, RunsState};
use evenkeel_base::{Code, Error, IndexId, Kind};
use evenkeel_format::run::{ENVELOPE, EnvelopeHead, EnvelopeId, EnvelopeKind, ManifestOp, open};
use evenkeel_io::IO_ALIGN;
use std::collections::{BTreeSet, HashSet};
use std::ops::RangeInclusive;

/// Consecutive failed reads after which the data counts as damaged: a damaged index stays so, and a
/// device may fail once.
pub(crate) const READ_TRIES: u32 = 4;
/// Bytes searched at a time for the next envelope.
const WINDOW: usize = 64 << 10;

/// A file whose list of slices cannot be read.
pub(crate) struct DamagedFile {
    /// The error of reading its list.
    error: Error,
    /// Ids of indexes that may have a slice in it.
    ids: Vec<RangeInclusive<u32>>,
    /// Indexes among them whose slice is known to be dead.
    gone: HashSet<IndexId>,
    /// Indexes that it damages.
    holders: BTreeSet<IndexId>,
}

/// True if a file that fails in this way at open is damaged; other failures may be temporary.
pub(crate) fn is_damage(error: &Error) -> bool {
    error.kind() == Kind::Corrupt || matches!(error.code(), Code::FileMissing | Code::ReadFailed)
}

impl DamagedFile {
    /// `file`: none if it is missing.
    pub(crate) fn new(
        number: u64,
        file: Option<&RunFile>,
        cause: &Error,
        gone: HashSet<IndexId>,
    ) -> DamagedFile {
        let mut error = Error::new(Code::RunDamaged).with("file", path(number));
        if let Some(offset) = cause.context("offset") {
            error = error.with("offset", offset);
        }
        let why = cause.context("why").unwrap_or(cause.code().text());
        let error = error.with("why", format_args!("list of its parts: {why}"));
        let ids = file.map_or_else(|| vec![0..=u32::MAX], |file| Envelopes::of(file).ids());
        DamagedFile { error, ids, gone, holders: BTreeSet::new() }
    }

    fn may_hold(&self, index: IndexId) -> bool {
        !self.gone.contains(&index) && self.ids.iter().any(|ids| ids.contains(&index.0))
    }
}

impl RunsState {
    /// Finds the indexes that damaged files damage, among those known now.
    pub(crate) fn find_damaged(&mut self) {
        let known: Vec<IndexId> = self
            .indexes
            .iter()
            .filter(|(_, i)| i.known && !i.is_damaged())
            .map(|(id, _)| *id)
            .collect();
        for id in known {
            let mut is_damaged = self.lost.contains(&id);
            for file in self.damaged.values_mut().filter(|file| file.may_hold(id)) {
                log::error!("index {id} is damaged: {}", file.error);
                file.holders.insert(id);
                is_damaged = true;
            }
            if is_damaged {
                self.set_damaged(id);
            }
        }
    }

    /// The error for readers of a damaged index.
    pub(crate) fn damage_of(&self, index: IndexId) -> Error {
        if let Some(error) = self.ruined.get(&index) {
            return error.clone();
        }
        let file = self.damaged.values().find(|file| file.holders.contains(&index));
        let earlier = || {
            let why = "a file of it could not be read at an earlier start";
            Error::new(Code::RunDamaged).with("why", why)
        };
        file.map_or_else(earlier, |file| file.error.clone()).with("index", index)
    }

    /// Damaged files that no index needs once this one is gone.
    pub(crate) fn damaged_left_empty(&self, index: IndexId) -> Vec<u64> {
        let only = |file: &DamagedFile| file.holders.iter().all(|holder| *holder == index);
        self.damaged.iter().filter(|(_, file)| only(file)).map(|(number, _)| *number).collect()
    }

    /// An index was dropped.
    pub(crate) fn forget_damage(&mut self, index: IndexId) {
        self.lost.remove(&index);
        self.ruined.remove(&index);
        self.damaged.retain(|_, file| {
            file.holders.remove(&index);
            !file.holders.is_empty()
        });
    }

    /// Removes and returns damaged files that damage no index.
    pub(crate) fn forget_unneeded(&mut self) -> Vec<u64> {
        self.damaged.extract_if(.., |_, file| file.holders.is_empty()).map(|(n, _)| n).collect()
    }

    /// Edits that tell a restart which indexes are damaged, and that these files damage no others.
    /// They say that damaged indexes are dropped, and that others have no slice in such a file;
    /// slices of a flush are runs with its number.
    pub(crate) fn edits_of_damage(&self) -> Vec<ManifestOp> {
        if self.damaged.is_empty() && self.lost.is_empty() {
            return Vec::new();
        }
        let damaged = self.indexes.iter().filter(|(_, i)| i.is_damaged()).map(|(id, _)| *id);
        let mut ops: Vec<ManifestOp> = damaged.map(ManifestOp::DropIndex).collect();
        for (number, file) in &self.damaged {
            ops.push(ManifestOp::AddFile(*number));
            let others = self.indexes.keys().filter(|id| !file.holders.contains(id));
            ops.extend(others.map(|id| ManifestOp::RemoveRun(*id, *number)));
        }
        ops
    }
}

impl Runs {
    /// A run of the index turned out to be unreadable while it is open: it is damaged as if an open
    /// had found it. The manifest records this before anything that relies on it.
    pub(crate) fn ruin(&self, index: IndexId, error: &Error) {
        let mut state = self.state.write();
        if state.indexes.get(&index).is_none_or(Index::is_damaged) {
            return;
        }
        log::error!("index {index} is damaged: {error}");
        let is_named = error.context("index").is_some();
        let error = if is_named { error.clone() } else { error.clone().with("index", index) };
        state.lost.insert(index);
        state.ruined.insert(index, error);
        state.set_damaged(index);
        self.changed(&state);
        drop(state);
        // No insert waits for its compactions.
        self.space.notify();
    }
}

/// The envelopes of a file that are whole.
struct Envelopes<'f> {
    file: &'f RunFile,
    /// Bytes that can be read in whole blocks.
    len: u64,
}

impl<'f> Envelopes<'f> {
    fn of(file: &'f RunFile) -> Envelopes<'f> {
        let len = file.len().unwrap_or(0) / IO_ALIGN as u64 * IO_ALIGN as u64;
        Envelopes { file, len }
    }

    /// Ids of indexes that may have a slice in the file.
    fn ids(&self) -> Vec<RangeInclusive<u32>> {
        let (mut ids, mut at, mut last) = (Vec::new(), 0, 0);
        loop {
            let (from, found) = match self.at(at) {
                Some(found) => (found.0, found),
                None => match self.behind(at) {
                    Some(found) => (last, found),
                    None => break,
                },
            };
            ids.push(from..=found.0);
            (last, at) = found;
        }
        if !self.is_end(at) {
            ids.push(last..=u32::MAX);
        }
        ids
    }

    /// The envelope of a slice at a position, if it is whole: its index and its end.
    fn at(&self, position: u64) -> Option<(u32, u64)> {
        let fits = |len: u64| position.checked_add(len).is_some_and(|end| end <= self.len);
        if !fits(ENVELOPE as u64) {
            return None;
        }
        let (buf, at) = self.file.read(position, ENVELOPE).ok()?;
        let head = EnvelopeHead::decode(&buf[at..])?;
        let len = ENVELOPE + head.stored_len;
        if head.kind == EnvelopeKind::Footer || head.file != self.file.number || !fits(len as u64) {
            return None;
        }
        let (buf, at) = self.file.read(position, len).ok()?;
        let EnvelopeHead { kind, file, index, number, .. } = head;
        let id = EnvelopeId { database: self.file.database(), kind, file, position, index, number };
        open(id, &buf[at..at + len]).ok()?;
        Some((index.0, position + len as u64))
    }

    /// The next whole envelope behind a position.
    fn behind(&self, position: u64) -> Option<(u32, u64)> {
        let mut start = position + 1;
        while start + ENVELOPE as u64 <= self.len {
            let len = (WINDOW as u64).min(self.len - start) as usize;
            if let Ok((buf, at)) = self.file.read(start, len) {
                let heads = buf[at..at + len].windows(ENVELOPE).enumerate();
                let of_file = |head: &[u8]| {
                    EnvelopeHead::decode(head).is_some_and(|head| head.file == self.file.number)
                };
                let mut places = heads.filter(|(_, head)| of_file(head)).map(|(i, _)| i as u64);
                if let Some(found) = places.find_map(|i| self.at(start + i)) {
                    return Some(found);
                }
            }
            start += (len - (ENVELOPE - 1)) as u64;
        }
        None
    }

    /// True if slices end here: zeros follow up to the next block, where the head of an envelope,
    /// which has no zeros, would begin.
    fn is_end(&self, at: u64) -> bool {
        let rest = at.next_multiple_of(IO_ALIGN as u64) - at;
        if rest < ENVELOPE as u64 || at + rest > self.len {
            return self.file.footer_position().is_some_and(|footer| footer == at + rest);
        }
        self.file
            .read(at, rest as usize)
            .is_ok_and(|(buf, from)| buf[from..from + rest as usize].iter().all(|byte| *byte == 0))
    }
}
