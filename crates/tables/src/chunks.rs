//! Chunked tables: a table that is cut by itself into chunks, by the times in one column and the
//! hash of another one (RFC 51). A chunk is a nameless table with a tree and indexes of its own and
//! the definition of its table, so every mechanism of tables works in it unchanged.
//!
//! Invariants:
//! - A live row is in exactly the chunk of its time and slot (`place`). Chunks of one slot never
//!   overlap. Primary and unique keys hold the time and the slot, so a key that is unique in its
//!   chunk is unique in the table.
//! - The tree of the table itself is always empty. It stands for the times that have no chunk: an
//!   operation that finds no chunk runs there (`rest`).
//! - Keys of all chunks are locked under the ids of the table's own tree and indexes. So a locked
//!   range also covers chunks that are made later.
//! - The map is replaced, never changed. A chunk is made in a transaction of its own, before its
//!   first row. It is dropped in one commit, while no transaction is inside that may have written
//!   or locked rows; snapshots from before that commit read it as long as they live (`drop`).
//! - Who reads or writes chunks uses the table meanwhile, so schema changes wait for it.

mod calendar;
mod definition;
mod drop;
pub(crate) mod loading;
mod make;
pub(crate) mod map;
mod place;
mod prune;
mod route;
mod scan;
pub(crate) mod spec;

pub use drop::{ChunkInfo, ChunkKept, ChunksDropped};
pub use scan::ChunkScan;
pub use spec::Chunking;
