//! Page ops of the tree in PAGE records (`record::PageOp` with op >= 32): their encoding. `tree`
//! applies them, with one function for forward processing and redo.
//!
//! ```text
//! 32 image         the node: its bytes up to the last slot, then its bytes from cells start on
//! 33 insert child  child varint, key bytes
//! 34 set child     slot varint, child varint, dead since varint + 1 (0: not dead)
//! 35 remove child  slot varint
//! 36 truncate      slots kept varint, new high fence bytes
//! 37 fences        low bytes, then nothing (no high fence) or high bytes
//! 38 compact       u16 each: slot, with 0x8000 to remove the cell, else its stamp is dropped
//! 39 mark dead     u8: the parent's slot says "dead since" (1) or no longer (0)
//! 40 overflow      the bytes of an overflow page up to the end of its data (see `overflow`)
//! 41 next          the page that follows this overflow page, varint
//! 42 prefix        length of the prefix of a leaf at the right edge, varint
//! ```
//!
//! "bytes" are a varint length and that many bytes. Slots count before the op.

use crate::{Reader, node, put_bytes, put_varint};
use evenkeel_base::{Lsn, PageNo, Result};

/// Bit of an item of op 38: the cell is removed; without it its stamp is dropped.
pub const COMPACT_REMOVE: u16 = 0x8000;

/// One op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeOp<'a> {
    /// The whole node.
    Image(&'a [u8]),
    /// A new child in an inner node.
    InsertChild {
        /// The child.
        child: PageNo,
        /// Its low fence.
        key: &'a [u8],
    },
    /// Another child, or another "dead since", in a slot of an inner node.
    SetChild {
        /// The slot.
        slot: usize,
        /// The child.
        child: PageNo,
        /// Snapshots at or above this see no row in it.
        dead_since: Option<Lsn>,
    },
    /// A slot of an inner node is removed; the child before it takes over its keys.
    RemoveChild {
        /// The slot.
        slot: usize,
    },
    /// The left half of a split.
    Truncate {
        /// Slots that stay.
        keep: usize,
        /// The new high fence.
        high: &'a [u8],
    },
    /// New fences, the same cells.
    Fences {
        /// Low fence.
        low: &'a [u8],
        /// High fence.
        high: Option<&'a [u8]>,
    },
    /// Stamps dropped and cells removed: u16 items (`COMPACT_REMOVE`), little-endian.
    Compact(&'a [u8]),
    /// Whether the parent's slot of this node has a "dead since".
    MarkDead(bool),
    /// An overflow page.
    Overflow(&'a [u8]),
    /// The next page of an overflow page.
    OverflowNext(PageNo),
    /// Length of the prefix of a leaf at the right edge.
    Prefix(usize),
}

impl<'a> TreeOp<'a> {
    /// The op number.
    pub fn number(&self) -> u8 {
        match self {
            TreeOp::Image(_) => 32,
            TreeOp::InsertChild { .. } => 33,
            TreeOp::SetChild { .. } => 34,
            TreeOp::RemoveChild { .. } => 35,
            TreeOp::Truncate { .. } => 36,
            TreeOp::Fences { .. } => 37,
            TreeOp::Compact(_) => 38,
            TreeOp::MarkDead(_) => 39,
            TreeOp::Overflow(_) => 40,
            TreeOp::OverflowNext(_) => 41,
            TreeOp::Prefix(_) => 42,
        }
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            TreeOp::Image(bytes) | TreeOp::Compact(bytes) | TreeOp::Overflow(bytes) => {
                out.extend_from_slice(bytes);
            }
            TreeOp::InsertChild { child, key } => {
                put_varint(out, child.0);
                put_bytes(out, key);
            }
            TreeOp::SetChild { slot, child, dead_since } => {
                put_varint(out, slot as u64);
                put_varint(out, child.0);
                put_varint(out, dead_since.map_or(0, |cts| cts.0.saturating_add(1)));
            }
            TreeOp::RemoveChild { slot } => put_varint(out, slot as u64),
            TreeOp::Truncate { keep, high } => {
                put_varint(out, keep as u64);
                put_bytes(out, high);
            }
            TreeOp::Fences { low, high } => {
                put_bytes(out, low);
                if let Some(high) = high {
                    put_bytes(out, high);
                }
            }
            TreeOp::MarkDead(dead) => out.push(u8::from(dead)),
            TreeOp::OverflowNext(next) => put_varint(out, next.0),
            TreeOp::Prefix(len) => put_varint(out, len as u64),
        }
    }

    /// Reads a payload. # Errors: `BadEncoding`; `NewerFormat` for an unknown op or flag.
    pub fn decode(number: u8, payload: &'a [u8]) -> Result<TreeOp<'a>> {
        let mut r = Reader::new(payload, "tree op");
        let op = match number {
            32 => {
                if let Err(unknown) = node::check_known_image(payload) {
                    return Err(r.newer(unknown.field, unknown.found));
                }
                return Ok(TreeOp::Image(payload));
            }
            38 => return Ok(TreeOp::Compact(payload)),
            40 => return Ok(TreeOp::Overflow(payload)),
            33 => TreeOp::InsertChild { child: PageNo(r.varint()?), key: r.bytes()? },
            34 => TreeOp::SetChild {
                slot: slot(&mut r)?,
                child: PageNo(r.varint()?),
                dead_since: r.varint()?.checked_sub(1).map(Lsn),
            },
            35 => TreeOp::RemoveChild { slot: slot(&mut r)? },
            36 => TreeOp::Truncate { keep: slot(&mut r)?, high: r.bytes()? },
            37 => {
                let low = r.bytes()?;
                let high = if r.is_empty() { None } else { Some(r.bytes()?) };
                TreeOp::Fences { low, high }
            }
            39 => TreeOp::MarkDead(r.flag("dead")?),
            41 => TreeOp::OverflowNext(PageNo(r.varint()?)),
            42 => TreeOp::Prefix(slot(&mut r)?),
            op => return Err(r.newer("op", op)),
        };
        r.finish()?;
        Ok(op)
    }
}

fn slot(r: &mut Reader<'_>) -> Result<usize> {
    Ok(r.varint32()? as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_round_trip_and_reject_cuts() {
        let ops = [
            TreeOp::InsertChild { child: PageNo(300), key: b"key" },
            TreeOp::SetChild { slot: 3, child: PageNo(9), dead_since: Some(Lsn(0)) },
            TreeOp::SetChild { slot: 3, child: PageNo(9), dead_since: None },
            TreeOp::RemoveChild { slot: 200 },
            TreeOp::Truncate { keep: 7, high: b"h" },
            TreeOp::Fences { low: b"", high: Some(b"h") },
            TreeOp::MarkDead(true),
            TreeOp::OverflowNext(PageNo(1 << 40)),
            TreeOp::Prefix(300),
        ];
        for op in ops {
            let mut bytes = Vec::new();
            op.encode(&mut bytes);
            assert_eq!(TreeOp::decode(op.number(), &bytes).expect("decodes"), op);
            for cut in 0..bytes.len() {
                // A cut behind the low fence reads as "no high fence".
                let result = TreeOp::decode(op.number(), &bytes[..cut]);
                assert!(result.is_err() || matches!(op, TreeOp::Fences { .. }) && cut == 1);
            }
        }
        for op in [TreeOp::Image(b"i"), TreeOp::Compact(b"c"), TreeOp::Overflow(b"o")] {
            let mut bytes = Vec::new();
            op.encode(&mut bytes);
            assert_eq!(TreeOp::decode(op.number(), &bytes).expect("decodes"), op);
        }
        assert!(TreeOp::decode(99, b"").is_err());
    }
}
