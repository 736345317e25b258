//! Pages as of the end of the readable log: the images of the files with the changes of the log, in
//! memory. Page redo without the engine.
//!
//! Invariants: a page is changed only by records above its LSN, in log order. A page that is
//! damaged in the files, or that a record does not fit, is lost until the log formats it anew.
//! Changes of single rows in a lost page are kept as `RowFact`s, the newest of each key.

use crate::source::{From, Source};
use evenkeel_base::{Lsn, PageNo, Result, Stamp, TreeId};
use evenkeel_format::page::{self, HEADER_BYTES};
use evenkeel_format::record::{LeafChange, PageOp, RecordKind, cell_flags, page_ops};
use evenkeel_format::rows::each_row;
use evenkeel_format::space::{decode_unlogged, op};
use evenkeel_format::tree_apply;
use evenkeel_format::tree_op::TreeOp;
use std::collections::{BTreeMap, HashMap};

/// Page ops from this number on are a tree's.
const TREE_OPS: u8 = 32;

/// The newest version of a row of a lost page.
#[derive(Clone, Debug)]
pub struct RowFact {
    /// The record.
    pub lsn: Lsn,
    /// The page that it changed.
    pub page: PageNo,
    /// Cell flags.
    pub flags: u8,
    /// Stamp, if the flags say so.
    pub stamp: Stamp,
    /// Row bytes.
    pub row: Vec<u8>,
}

/// A page that the log changes.
enum Redone {
    /// Its bytes, and whether the log alone made them.
    Is { bytes: Vec<u8>, from: From, made: bool },
    /// It cannot be made.
    Lost,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Redo {
    pages: HashMap<u64, Redone>,
    /// Tree -> key -> the newest change in a lost page; `None` if the cell was removed.
    facts: HashMap<TreeId, BTreeMap<Vec<u8>, Option<RowFact>>>,
    /// Changes applied.
    pub applied: u64,
    /// Pages that a record did not fit.
    pub misfits: u64,
}

impl Redo {
    /// Applies a record; records come in log order.
    ///
    /// # Errors
    /// `BadEncoding` if the record does not decode.
    pub fn apply(
        &mut self,
        source: &Source,
        lsn: Lsn,
        kind: RecordKind,
        body: &[u8],
    ) -> Result<()> {
        // Whether the record is above the LSN that each of its pages had before it.
        let mut newer: Vec<(PageNo, bool)> = Vec::new();
        match kind {
            RecordKind::Page => {
                for item in page_ops(body) {
                    let PageOp { page, op, payload } = item?;
                    if op == op::UNLOGGED {
                        self.unlogged(payload)?;
                    } else if self.is_newer(source, lsn, page, &mut newer) {
                        self.op(source, page, op, payload);
                    }
                }
            }
            RecordKind::Row | RecordKind::Revert => {
                let change = LeafChange::decode(body)?;
                let is_newer = self.is_newer(source, lsn, change.page, &mut newer);
                self.row(lsn, &change, is_newer);
            }
            RecordKind::Rows => each_row(kind, body, &mut |change, _| {
                let is_newer = self.is_newer(source, lsn, change.page, &mut newer);
                self.row(lsn, change, is_newer);
                Ok(())
            })?,
            _ => {}
        }
        for (number, _) in newer.into_iter().filter(|(_, newer)| *newer) {
            if let Some(Redone::Is { bytes, .. }) = self.pages.get_mut(&number.0) {
                page::set_lsn(bytes, lsn);
                self.applied += 1;
            }
        }
        Ok(())
    }

    /// The content of these pages was never in the log: what the log alone made is not that.
    fn unlogged(&mut self, payload: &[u8]) -> Result<()> {
        for number in decode_unlogged(payload)?.into_iter().flatten() {
            if let Some(Redone::Is { made: true, .. }) = self.pages.get(&number) {
                self.pages.insert(number, Redone::Lost);
            }
        }
        Ok(())
    }

    /// Brings a page into memory; true if the record is above its LSN, or the page is lost.
    fn is_newer(
        &mut self,
        source: &Source,
        lsn: Lsn,
        number: PageNo,
        known: &mut Vec<(PageNo, bool)>,
    ) -> bool {
        if let Some((_, newer)) = known.iter().find(|(page, _)| *page == number) {
            return *newer;
        }
        let entry = self.pages.entry(number.0).or_insert_with(|| match source.page(number) {
            Some((bytes, from)) => Redone::Is { bytes, from, made: false },
            None => Redone::Lost,
        });
        let newer = match entry {
            Redone::Is { bytes, .. } => page::lsn(bytes) < lsn,
            Redone::Lost => true,
        };
        known.push((number, newer));
        newer
    }

    fn op(&mut self, source: &Source, number: PageNo, op: u8, payload: &[u8]) {
        if op == op::FORMAT {
            let bytes = vec![0; source.geometry.page_size()];
            self.pages.insert(number.0, Redone::Is { bytes, from: From::Place, made: true });
        }
        let Some(Redone::Is { bytes, .. }) = self.pages.get_mut(&number.0) else { return };
        let applied = if op < TREE_OPS {
            source.geometry.apply(op, payload, number, bytes)
        } else {
            let page = &mut bytes[HEADER_BYTES..];
            TreeOp::decode(op, payload).and_then(|op| tree_apply::apply(&op, page))
        };
        if applied.is_err() {
            self.misfits += 1;
            self.pages.insert(number.0, Redone::Lost);
        }
    }

    /// Applies the change of a row to its page, if the record is above the page's LSN, and keeps it
    /// as a fact.
    fn row(&mut self, lsn: Lsn, change: &LeafChange<'_>, is_newer: bool) {
        let number = change.page.0;
        let mut is_lost = true;
        match self.pages.get_mut(&number) {
            Some(Redone::Is { .. }) if !is_newer => is_lost = false,
            Some(Redone::Is { bytes, .. }) => {
                is_lost = tree_apply::apply_row(change, &mut bytes[HEADER_BYTES..]).is_err();
                if is_lost {
                    self.misfits += 1;
                    self.pages.insert(number, Redone::Lost);
                }
            }
            Some(Redone::Lost) => {}
            None => return,
        }
        let facts = self.facts.entry(change.tree).or_default();
        // A split may have moved a key out of a lost page, and a merge may move it back: its fact
        // stays the newest, also where the image of the other page has the change already.
        if !is_lost && !facts.contains_key(change.key) {
            return;
        }
        let fact = (change.flags & cell_flags::REMOVE == 0).then(|| RowFact {
            lsn,
            page: change.page,
            flags: change.flags,
            stamp: change.stamp,
            row: change.row.to_vec(),
        });
        facts.insert(change.key.to_vec(), fact);
    }

    /// A page that the log changes: its bytes (its checksum is not valid any more), or `None` if it
    /// is lost. Nothing if the log does not change it.
    pub fn page(&self, number: PageNo) -> Option<Option<(&[u8], From)>> {
        self.pages.get(&number.0).map(|redone| match redone {
            Redone::Is { bytes, from, .. } => Some((&bytes[..], *from)),
            Redone::Lost => None,
        })
    }

    /// All pages that the log changes and that are not lost.
    pub fn pages(&self) -> impl Iterator<Item = (PageNo, &[u8], From)> {
        self.pages.iter().filter_map(|(number, redone)| match redone {
            Redone::Is { bytes, from, .. } => Some((PageNo(*number), &bytes[..], *from)),
            Redone::Lost => None,
        })
    }

    /// The newest versions of rows of lost pages of a tree, by key.
    pub fn facts(&self, tree: TreeId) -> Option<&BTreeMap<Vec<u8>, Option<RowFact>>> {
        self.facts.get(&tree)
    }
}
