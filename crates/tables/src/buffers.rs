//! The buffers in which a row change is prepared. A thread keeps them from one transaction to the
//! next, so that a short transaction of a single change does not allocate all of them.
//!
//! A transaction takes the thread's buffers with its first change and gives them back when it is
//! dropped, to whatever thread that is. Only memory is kept: the content is cleared before. Called
//! by `transaction` and `write`.

use crate::batch::Batch;
use crate::large::{Given, ValueChain};
use crate::row_op::Entries;
use evenkeel_base::PageNo;
use evenkeel_format::overflow::ChainEdit;
use std::cell::Cell;

/// Larger buffers go back to the allocator, so that a long row does not pin memory for ever.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// Buffers of one session, reused from row to row.
#[derive(Default)]
pub(crate) struct Buffers {
    pub key: Vec<u8>,
    pub row: Vec<u8>,
    pub old_row: Vec<u8>,
    /// The leaf where the row was, if that is known.
    pub leaf: Option<PageNo>,
    pub entries: Entries,
    pub part: Vec<u8>,
    pub old_part: Vec<u8>,
    /// Values stored in entries beside their keys.
    pub stored: Vec<u8>,
    pub old_stored: Vec<u8>,
    pub logical: Vec<u8>,
    /// Unique keys to check: (position of the index, key bytes).
    pub unique: Vec<(usize, Vec<u8>)>,
    /// Overflow chains written for the prepared row.
    pub chains: Vec<ValueChain>,
    /// Long values of the statement, written ahead.
    pub given: Vec<Given>,
    /// Chains that the prepared row adopts or supersedes.
    pub edits: Vec<ChainEdit>,
    /// Rows that are inserted together.
    pub batch: Batch,
}

impl Buffers {
    /// Clears the content and keeps the memory.
    fn clear(&mut self) {
        self.key.clear();
        self.unique.clear();
        self.chains.clear();
        self.given.clear();
        self.edits.clear();
    }

    /// Bytes of memory held, without lists of a few items.
    fn bytes(&self) -> usize {
        let parts = [
            &self.key,
            &self.row,
            &self.old_row,
            &self.part,
            &self.old_part,
            &self.stored,
            &self.old_stored,
            &self.logical,
        ];
        let parts: usize = parts.iter().map(|part| part.capacity()).sum();
        parts + self.entries.capacity_bytes() + self.batch.capacity_bytes()
    }
}

thread_local! {
    static KEPT: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// The thread's buffers, or new ones; a thread that ends keeps none.
fn of_thread() -> Box<Buffers> {
    KEPT.try_with(Cell::take).ok().flatten().unwrap_or_default()
}

/// The buffers of a transaction: none before its first change and during a change.
#[derive(Default)]
pub(crate) struct Held(Option<Box<Buffers>>);

impl Held {
    /// Takes the buffers for a change; `put` gives them back.
    pub fn take(&mut self) -> Box<Buffers> {
        let mut buffers = self.0.take().unwrap_or_else(of_thread);
        buffers.leaf = None;
        buffers
    }

    pub fn put(&mut self, buffers: Box<Buffers>) {
        self.0 = Some(buffers);
    }

    /// Access to the buffers between changes.
    pub fn get(&mut self) -> &mut Buffers {
        self.0.get_or_insert_with(of_thread)
    }

    /// The key of the row that was prepared last; empty before.
    pub fn key(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |buffers| &buffers.key)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(mut buffers) = self.0.take() else { return };
        buffers.clear();
        if buffers.bytes() <= KEPT_BYTES_MAX {
            // A thread that ends has no place for them any more.
            let _ = KEPT.try_with(|kept| kept.set(Some(buffers)));
        }
    }
}
