//! Overflow chains that no current row names (E4): chains written ahead of their row, and chains
//! superseded by an update or delete. This module frees them, also after a crash.
//!
//! Life of a chain: *begun* (its first page is about to be logged) -> *adopted* by the first row
//! record that names it -> *superseded* by the row record that no longer names it -> freed. A begun
//! chain whose writer gives up is *abandoned* and freed too. The rollback of an operation frees the
//! chains that it adopted before its REVERT record; the chains that it superseded belong to the row
//! again.
//!
//! The log records each step: the op of the first page begins a chain, a ROW record lists the
//! chains that it adopts and supersedes, a REVERT names the operation that it undoes. The
//! checkpoint holds the begun and the superseded chains, or the places of lists of the latter
//! (`saved`). So after a crash the checkpoint's list and one scan from the redo position restore
//! this list; the writers of chains that are still begun then are gone.
//!
//! Invariants: an entry is made before the record that it stands for, or under the latch of the
//! page that the record changes, so a checkpoint whose redo position is behind the record lists the
//! entry. A superseded chain is freed when the operation's transaction is committed and every
//! snapshot sees that. Freeing is idempotent: a chain is identified by its head page, tree and
//! owner. An entry leaves after its chain is freed. Each waiting chain takes 64 bytes in memory.

mod saved;

use crate::store::Store;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{
    Beat, CommitTable, Kind, PageNo, Result, Stamp, TreeId, TxnId, TxnState, UndoNo,
};
use evenkeel_format::overflow::{ChainEdit, OVERFLOW_REF_BYTES, OverflowPage, edits};
use evenkeel_format::record::{LeafChange, RecordKind, RowLogical, decode_revert, page_ops};
use evenkeel_format::space::op;
use evenkeel_format::tree_op::TreeOp;
use evenkeel_format::{Reader, put_varint};
use evenkeel_tree::{OverflowRef, overflow};
use std::collections::BTreeMap;

/// Chains freed in one beat.
const BEAT_CHAINS: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Begun {
    tree: TreeId,
    owner: Stamp,
    /// Tells two chains apart that began at the same page.
    number: u64,
    abandoned: bool,
}

/// A chain that an operation superseded.
#[derive(Clone, Copy, Debug)]
struct Superseded {
    by: Stamp,
    tree: TreeId,
    chain: OverflowRef,
}

#[derive(Default)]
struct Book {
    begun: BTreeMap<PageNo, Begun>,
    abandoned: usize,
    next: u64,
    /// By the operation that superseded them.
    superseded: BTreeMap<(TxnId, UndoNo), Vec<(TreeId, OverflowRef)>>,
    /// The number of these chains.
    held: usize,
    lists: saved::Lists,
    /// Where the last beat stopped.
    looked: (TxnId, UndoNo),
}

/// The chains of one database that wait to be adopted or freed.
#[derive(Default)]
pub struct Chains {
    book: Mutex<Book>,
    needed: saved::Needed,
}

/// A begun chain, until it is adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BegunChain {
    head: PageNo,
    number: u64,
}

fn key(stamp: Stamp) -> (TxnId, UndoNo) {
    (stamp.txn, stamp.undo_no)
}

impl Book {
    fn begin(&mut self, head: PageNo, tree: TreeId, owner: Stamp) -> BegunChain {
        self.next += 1;
        let number = self.next;
        let new = Begun { tree, owner, number, abandoned: false };
        if self.begun.insert(head, new).is_some_and(|old| old.abandoned) {
            self.abandoned -= 1;
        }
        BegunChain { head, number }
    }

    fn take(&mut self, head: PageNo) {
        if self.begun.remove(&head).is_some_and(|begun| begun.abandoned) {
            self.abandoned -= 1;
        }
    }

    fn apply(&mut self, stamp: Stamp, tree: TreeId, edits: &[ChainEdit]) {
        for edit in edits {
            match edit {
                ChainEdit::Adopted(chain) => {
                    if self.begun.get(&chain.head).is_some_and(|b| b.owner == chain.owner) {
                        self.take(chain.head);
                    }
                }
                ChainEdit::Superseded(chain) => {
                    let list = self.superseded.entry(key(stamp)).or_default();
                    if !list.contains(&(tree, *chain)) {
                        list.push((tree, *chain));
                        self.held += 1;
                    }
                }
            }
        }
    }

    fn waiting(&self) -> usize {
        self.abandoned + self.held + self.lists.chains()
    }

    /// The chains that the operation superseded belong to the row again, are freed, or are in a
    /// list.
    fn forget(&mut self, by: (TxnId, UndoNo)) {
        self.held -= self.superseded.remove(&by).map_or(0, |chains| chains.len());
    }

    fn of_tree(&self, tree: TreeId) -> Vec<OverflowRef> {
        let begun = self.begun.iter().filter(|(_, b)| b.tree == tree);
        let begun =
            begun.map(|(head, b)| OverflowRef { head: *head, len: u32::MAX, owner: b.owner });
        let superseded = self.superseded.values().flatten().filter(|(t, _)| *t == tree);
        begun.chain(superseded.map(|(_, chain)| *chain)).collect()
    }
}

impl Chains {
    /// Records a chain whose first page is about to be logged.
    pub(crate) fn begin(&self, head: PageNo, tree: TreeId, owner: Stamp) -> BegunChain {
        self.book.lock().begin(head, tree, owner)
    }

    /// The writer gives up: the chain has to be freed. False if a row has adopted it.
    pub(crate) fn abandon(&self, chain: BegunChain) -> bool {
        let mut book = self.book.lock();
        let begun = book.begun.get_mut(&chain.head);
        let Some(begun) = begun.filter(|b| b.number == chain.number && !b.abandoned) else {
            return false;
        };
        begun.abandoned = true;
        book.abandoned += 1;
        true
    }

    /// The row record of `stamp` is appended and its leaf is still latched. True if no chain waited
    /// to be freed before and one does now: the driver of `chain_beat` sleeps until the first one
    /// and looks regularly from then on.
    pub(crate) fn logged(&self, stamp: Stamp, tree: TreeId, edits: &[ChainEdit]) -> bool {
        let mut book = self.book.lock();
        let before = book.waiting();
        book.apply(stamp, tree, edits);
        before == 0 && book.waiting() > 0
    }

    /// The REVERT record of `stamp` is appended; its leaf is still latched.
    pub(crate) fn reverted(&self, stamp: Stamp) {
        self.book.lock().forget(key(stamp));
    }

    /// Chains that wait to be freed.
    pub fn waiting(&self) -> usize {
        self.book.lock().waiting()
    }

    /// The checkpoint's section: `count varint, (tree varint, head u64, owner)...` of begun chains
    /// as references, then `txn varint, undo_no varint, tree varint, reference` of superseded ones.
    pub fn checkpoint_blob(&self) -> Vec<u8> {
        let book = self.book.lock();
        let mut out = Vec::new();
        put_varint(&mut out, book.begun.len() as u64);
        for (head, begun) in &book.begun {
            put_varint(&mut out, u64::from(begun.tree.0));
            OverflowRef { head: *head, len: 0, owner: begun.owner }.encode(&mut out);
        }
        for ((txn, undo_no), chains) in &book.superseded {
            let by = Stamp { txn: *txn, undo_no: *undo_no };
            for &(tree, chain) in chains {
                Superseded { by, tree, chain }.encode(&mut out);
            }
        }
        out
    }

    /// Restores a checkpoint's section; the log from the redo position on follows.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn restore(&self, blob: &[u8]) -> Result<()> {
        let mut book = self.book.lock();
        let mut r = Reader::new(blob, "overflow chains");
        for _ in 0..r.varint()? {
            let tree = TreeId(r.varint32()?);
            let chain = OverflowRef::decode(r.take(OVERFLOW_REF_BYTES)?)?;
            book.begin(chain.head, tree, chain.owner);
        }
        while !r.is_empty() {
            let Superseded { by, tree, chain } = Superseded::decode(&mut r)?;
            book.apply(by, tree, &[ChainEdit::Superseded(chain)]);
        }
        Ok(())
    }

    /// Applies a log record, in log order.
    ///
    /// # Errors
    /// `BadEncoding`.
    pub fn replay(&self, kind: RecordKind, body: &[u8]) -> Result<()> {
        match kind {
            RecordKind::Page => self.replay_page(body),
            RecordKind::Row => {
                let change = LeafChange::decode(body)?;
                self.replay_row(&change, &RowLogical::decode(&change, &mut Vec::new())?)
            }
            RecordKind::Revert => {
                let change = LeafChange::decode(body)?;
                self.reverted(decode_revert(change.logical)?);
                Ok(())
            }
            // A row with chains has a record of its own.
            _ => Ok(()),
        }
    }

    pub(crate) fn replay_row(
        &self,
        change: &LeafChange<'_>,
        logical: &RowLogical<'_>,
    ) -> Result<()> {
        if !logical.chains.is_empty() {
            self.logged(change.stamp, change.tree, &edits(logical.chains)?);
        }
        Ok(())
    }

    fn replay_page(&self, body: &[u8]) -> Result<()> {
        let overflow = TreeOp::Overflow(&[]).number();
        let mut formatted = (PageNo::ZERO, TreeId::ZERO);
        for item in page_ops(body) {
            let item = item?;
            if item.op == op::FORMAT
                && let Some(tree) = item.payload.get(1..5)
            {
                let tree = tree.iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte));
                formatted = (item.page, TreeId(tree));
            }
            if item.op == overflow && item.page == formatted.0 {
                let page = OverflowPage::parse(item.payload)?;
                if page.position == 0 {
                    self.book.lock().begin(item.page, formatted.1, page.owner);
                }
            }
        }
        Ok(())
    }

    /// After recovery, before anything is written: the writers of begun chains are gone.
    pub(crate) fn writers_are_gone(&self) {
        let mut book = self.book.lock();
        book.begun.values_mut().for_each(|begun| begun.abandoned = true);
        book.abandoned = book.begun.len();
    }

    fn next_abandoned(&self) -> Option<(BegunChain, TreeId, OverflowRef)> {
        let book = self.book.lock();
        if book.abandoned == 0 {
            return None;
        }
        let (head, begun) = book.begun.iter().find(|(_, b)| b.abandoned)?;
        let chain = OverflowRef { head: *head, len: 0, owner: begun.owner };
        Some((BegunChain { head: *head, number: begun.number }, begun.tree, chain))
    }

    fn abandoned_is_gone(&self, chain: BegunChain) {
        let mut book = self.book.lock();
        if book.begun.get(&chain.head).is_some_and(|b| b.number == chain.number) {
            book.take(chain.head);
        }
    }

    /// The next operation whose chains are `ready`, from where the last look ended; examines a
    /// bounded number of operations.
    fn next_superseded(
        &self,
        ready: &dyn Fn(Stamp) -> bool,
    ) -> Option<(Stamp, Vec<(TreeId, OverflowRef)>)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let mut book = self.book.lock();
        let from = book.looked;
        let stamp = |(txn, undo_no): (TxnId, UndoNo)| Stamp { txn, undo_no };
        let mut last = None;
        for (at, chains) in book.superseded.range((Excluded(from), Unbounded)).take(1024) {
            last = Some(*at);
            if ready(stamp(*at)) {
                let found = (stamp(*at), chains.clone());
                book.looked = *at;
                return Some(found);
            }
        }
        // After the end the next look begins at the oldest again.
        book.looked = last.filter(|_| book.superseded.len() > 1024).unwrap_or_default();
        None
    }
}

impl Store {
    /// Frees some chains that nothing needs any more, and trees that were in use when dropped.
    ///
    /// # Errors
    /// Of log and pages: the next beat tries again.
    pub fn chain_beat(&self) -> Result<Beat> {
        self.free_left_trees();
        self.free_dropped_chunks();
        let saved = self.free_saved();
        let mut freed = saved.as_ref().map_or(0, |freed| *freed);
        while freed < BEAT_CHAINS {
            let Some((begun, tree, chain)) = self.chains.next_abandoned() else { break };
            self.free_chain(tree, &chain)?;
            self.chains.abandoned_is_gone(begun);
            freed += 1;
        }
        let horizon = self.txns.horizon();
        let ready = |stamp: Stamp| match self.txns.state(stamp.txn) {
            TxnState::Committed(cts) => cts <= horizon && !self.txns.is_dead(stamp),
            _ => false,
        };
        while freed < BEAT_CHAINS {
            let Some((stamp, chains)) = self.chains.next_superseded(&ready) else { break };
            for (tree, chain) in chains {
                self.free_chain(tree, &chain)?;
                freed += 1;
            }
            self.chains.reverted(stamp);
        }
        saved?;
        Ok(if freed > 0 { Beat::More } else { Beat::Idle })
    }

    /// True while chains need the outcome of this transaction (A5).
    pub fn is_needed(&self, txn: TxnId) -> bool {
        self.chains.is_needed(txn)
    }

    /// Chains that `chain_beat` has to free.
    pub fn chains_waiting(&self) -> usize {
        self.chains.waiting()
    }

    /// True while chains or dropped chunks wait for snapshots to end.
    pub fn waits_for_snapshots(&self) -> bool {
        self.chains_waiting() > 0 || self.chunks_waiting() > 0
    }

    fn free_chain(&self, tree: TreeId, chain: &OverflowRef) -> Result<()> {
        // A missing tree was dropped together with its chains.
        let Some(tree) = self.open_trees.enter(tree) else { return Ok(()) };
        match overflow::free(&tree, chain) {
            Err(error) if error.kind() == Kind::Corrupt => {
                log::warn!("an overflow chain cannot be freed: {error}");
                Ok(())
            }
            other => other,
        }
    }
}
