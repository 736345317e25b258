//! Every byte on disk: encoders and checked decoders; no I/O, no threads. Little-endian, explicit
//! offsets, no `usize` and no struct memory on disk. A decoder never trusts a length, offset or
//! count before checking it, and never panics on any input.
#![forbid(unsafe_code)]

pub mod codec;
pub mod record;
pub mod superblock;

pub use codec::{Reader, put_bytes, put_varint};
