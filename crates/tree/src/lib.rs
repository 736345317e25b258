//! The clustered B+tree over mini-transactions (protocols B2, B4, E1, E4-E6).
//!
//! # Shape
//! The root is a fixed inner page from the start: its page number never changes, and growing and
//! shrinking move its content. Leaves have no links to each other: fences say where a neighbour
//! begins, and the parent has its page number. Values too long for a leaf are in overflow pages.
//!
//! # Latch order
//! 1. A reader holds one latch at a time. It accepts a page only if kind, tree, level and fences
//!    fit its search, and starts again at the root if they do not.
//! 2. A row change latches its leaf only (exclusively).
//! 3. A structure change latches from the root's side to the leaves' side, left to right on one
//!    level, then pages it has just allocated, which no other thread can reach.
//!
//! So no two threads deadlock. Rule 1 is enough without validating the parent again, because a page
//! that left the tree is marked as no node before its latch is released, and a new page becomes
//! visible together with its parent's slot. So a node of this tree whose level and fences fit *is*
//! the node that the tree has there.
//!
//! # Changes
//! A row change is one log record and changes one leaf; several inserts into one leaf may share one
//! (`insert`). If the row does not fit, room is made first by separate mini-transactions (leaf
//! reorganization, split), which hold nothing of the row change; then the row change starts again.
//! Everything is reserved (log, frames) before the first latch.
#![forbid(unsafe_code)]

mod bulk;
mod check;
mod concurrent_inserts;
mod cursor;
mod dead;
mod estimate;
mod insert;
mod merge;
pub mod overflow;
pub mod readable;
mod reclaim;
mod redo;
mod reorganize;
mod rows;
mod split;
mod together;
mod tree;
mod unlogged_gate;
mod write;

pub use bulk::BulkLoad;
pub use check::{Problem, TreeReport, read_nodes};
pub use concurrent_inserts::ConcurrentInsertWatch;
pub use cursor::{Cursor, Direction, Passed};
pub use estimate::{LeafFigures, Size};
pub use insert::{LeafInserts, NewRow, RowsCommon};
pub use overflow::{OverflowReader, OverflowRef, OverflowWriter};
pub use redo::TreeRedo;
pub use tree::{Tree, Trees};
pub use unlogged_gate::{HeldGate, Patience, UnloggedGate};
pub use write::{LeafDecision, LeafOp, LeafRow};

#[cfg(test)]
mod tests;
