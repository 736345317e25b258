//! Every byte on disk: encoders and checked decoders; no I/O, no threads. Little-endian, explicit
//! offsets, no `usize` and no struct memory on disk. A decoder never trusts a length, offset or
//! count before checking it, and never panics on any input.
#![forbid(unsafe_code)]

pub mod backup;
pub mod catalog;
pub mod checkpoint_copy;
pub mod chunks;
pub mod codec;
pub mod collation;
mod convert;
pub mod doublewrite;
mod gap;
pub mod head;
pub mod key;
pub mod limits;
pub mod node;
mod node_edit;
pub mod overflow;
pub mod page;
pub mod record;
pub mod row;
pub mod rows;
pub mod run;
pub mod scratch;
pub mod space;
pub mod superblock;
pub mod text;
pub mod tree_apply;
pub mod tree_op;
pub mod types;
pub mod undo;
pub mod wal;
pub mod warm;

pub use codec::{Reader, put_bytes, put_varint};
pub use collation::{Collations, Form, Weigher};
pub use key::{KeyPart, prefix_successor};
pub use row::{Field, FixedPlace, RowColumn, RowLayout, RowReader, row_version};
pub use types::{ColumnType, Value, ValueRef};
