//! Reads the log that a backup copies, as recovery will read it, for what recovery needs besides
//! pages: the files of runs that its end names, and pages whose content is not in the log.

use crate::background::checkpoint::SECTION_RUNS;
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_base::{Lsn, PageNo, Result};
use evenkeel_format::record::{PageOp, RecordKind, page_ops};
use evenkeel_format::run::{ManifestOp, decode_manifest};
use evenkeel_format::space::{Geometry, SEGMENT_EXTENTS, decode_unlogged, op};
use evenkeel_format::superblock::{decode_part, decode_sections};
use evenkeel_log::Replay;
use std::collections::BTreeSet;

pub(super) struct LogWatch {
    geometry: Geometry,
    /// LSN of the checkpoint of the backup.
    checkpoint: Lsn,
    parts: Vec<Vec<u8>>,
    parts_expected: u64,
    /// Files that records add or remove, in order.
    edits: Vec<ManifestOp>,
    /// Pages that records name as unlogged since they were last taken.
    unlogged: BTreeSet<PageNo>,
}

impl LogWatch {
    pub(super) fn new(geometry: Geometry, checkpoint: Lsn) -> LogWatch {
        LogWatch {
            geometry,
            checkpoint,
            parts: Vec::new(),
            parts_expected: 0,
            edits: Vec::new(),
            unlogged: BTreeSet::new(),
        }
    }

    /// The files of runs as of the last record: those of the checkpoint, and then all edits, also
    /// those before the checkpoint, as recovery applies them.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub(super) fn runs(&self) -> Result<BTreeSet<u64>> {
        let mut files = BTreeSet::new();
        let bytes = self.parts.concat();
        let mut listed = Vec::new();
        for (id, section) in decode_sections(&bytes)? {
            if id == SECTION_RUNS {
                listed = decode_manifest(section)?;
            }
        }
        for edit in listed.iter().chain(&self.edits) {
            match edit {
                ManifestOp::AddFile(file) => _ = files.insert(*file),
                ManifestOp::RemoveFile(file) => _ = files.remove(file),
                _ => {}
            }
        }
        Ok(files)
    }

    /// The checkpoint of the backup was read as a whole.
    pub(super) fn has_checkpoint(&self) -> bool {
        self.parts_expected != 0 && self.parts.len() as u64 == self.parts_expected
    }

    /// Takes the pages named since the last call.
    pub(super) fn take_unlogged(&mut self) -> BTreeSet<PageNo> {
        std::mem::take(&mut self.unlogged)
    }

    /// Gives pages back that were taken and not copied.
    pub(super) fn give_back(&mut self, pages: impl IntoIterator<Item = PageNo>) {
        self.unlogged.extend(pages);
    }

    /// Pages named and not taken yet.
    pub(super) fn unlogged_count(&self) -> usize {
        self.unlogged.len()
    }

    fn checkpoint_part(&mut self, lsn: Lsn, body: &[u8]) -> Result<()> {
        let next = self.parts.len() as u64;
        let is_begun = self.parts_expected != 0;
        if (!is_begun && lsn != self.checkpoint) || (is_begun && next == self.parts_expected) {
            return Ok(());
        }
        let (part, parts, bytes) = decode_part(body)?;
        if part == next {
            self.parts_expected = parts;
            self.parts.push(bytes.to_vec());
        }
        Ok(())
    }

    fn pages(&mut self, body: &[u8]) -> Result<()> {
        for item in page_ops(body) {
            let PageOp { op, payload, .. } = item?;
            match op {
                op::UNLOGGED if fault_injection::is(Fault::UnloggedNotCopied) => {}
                op::UNLOGGED => {
                    let pages = decode_unlogged(payload)?.into_iter().flatten();
                    self.unlogged.extend(pages.map(PageNo));
                }
                // The map pages of a new segment were written before the record that counts it.
                op::SEGMENTS => {
                    let mut r = evenkeel_format::Reader::new(payload, "number of segments");
                    let extent = r.u32()?.saturating_sub(1).saturating_mul(SEGMENT_EXTENTS);
                    let own = 0..=self.geometry.owners_index(extent);
                    self.unlogged.extend(own.map(|index| self.geometry.page_at(extent, index)));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Replay for LogWatch {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        match kind {
            RecordKind::Checkpoint => self.checkpoint_part(lsn, body),
            RecordKind::Manifest => {
                let is_of_files = |op: &ManifestOp| {
                    matches!(op, ManifestOp::AddFile(_) | ManifestOp::RemoveFile(_))
                };
                self.edits.extend(decode_manifest(body)?.into_iter().filter(is_of_files));
                Ok(())
            }
            RecordKind::Page => self.pages(body),
            _ => Ok(()),
        }
    }
}
