//! Overflow pages: a value too long for a leaf, as a chain of pages; and the reference to a chain.
//!
//! ```text
//! page (payload)                          reference (24 bytes)
//!  0  u8   kind: 3                         0  u64  first page
//!  1  3 zeros                              8  u32  bytes of the value
//!  4  u32  bytes of data here             12  u64  owner: transaction
//!  8  u64  next page (0: the last)        20  u32  owner: undo number
//! 16  u64  owner: transaction
//! 24  u32  owner: undo number
//! 28  u32  position in the chain, from 0
//! 32  data
//! ```
//!
//! A row record lists the chains that it adopts or supersedes: edits of 25 bytes, each a tag (1:
//! the new row adopts the chain; 2: the new row no longer names it) and the reference.
//!
//! Owner and position are repeated in every page, so that a stale reference or a misdirected page
//! is detected instead of read.

use crate::Reader;
use evenkeel_base::{Code, Error, PageNo, Result, Stamp, TxnId, UndoNo};

/// Kind byte of an overflow page (`node` has the others).
pub const KIND_OVERFLOW: u8 = 3;
/// Bytes before the data.
pub const OVERFLOW_HEADER_BYTES: usize = 32;
/// Bytes of an encoded reference.
pub const OVERFLOW_REF_BYTES: usize = 24;

/// The place of a long value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverflowRef {
    /// First page of the chain.
    pub head: PageNo,
    /// Bytes of the value.
    pub len: u32,
    /// The operation that wrote it (E4).
    pub owner: Stamp,
}

impl OverflowRef {
    /// Appends the reference.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head.0.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.owner.txn.0.to_le_bytes());
        out.extend_from_slice(&self.owner.undo_no.0.to_le_bytes());
    }

    /// Reads a reference. # Errors: `BadEncoding`.
    pub fn decode(bytes: &[u8]) -> Result<OverflowRef> {
        let mut r = Reader::new(bytes, "overflow reference");
        let (head, len) = (PageNo(r.u64()?), r.u32()?);
        let owner = Stamp { txn: TxnId(r.u64()?), undo_no: UndoNo(r.u32()?) };
        r.finish()?;
        Ok(OverflowRef { head, len, owner })
    }
}

/// The effect of a row record on a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainEdit {
    /// The new row is the first to name the chain.
    Adopted(OverflowRef),
    /// The row before named the chain, and the new one does not.
    Superseded(OverflowRef),
}

impl ChainEdit {
    /// Appends the edit.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (tag, chain) = match self {
            ChainEdit::Adopted(chain) => (1, chain),
            ChainEdit::Superseded(chain) => (2, chain),
        };
        out.push(tag);
        chain.encode(out);
    }
}

/// The edits of a row record. # Errors: `BadEncoding`; `NewerFormat` for an unknown tag.
pub fn edits(bytes: &[u8]) -> Result<Vec<ChainEdit>> {
    let mut r = Reader::new(bytes, "chain edits");
    let mut edits = Vec::with_capacity(bytes.len() / (OVERFLOW_REF_BYTES + 1));
    while !r.is_empty() {
        let tag = r.u8()?;
        let chain = OverflowRef::decode(r.take(OVERFLOW_REF_BYTES)?)?;
        edits.push(match tag {
            1 => ChainEdit::Adopted(chain),
            2 => ChainEdit::Superseded(chain),
            tag => return Err(r.newer("tag", tag)),
        });
    }
    Ok(edits)
}

/// An overflow page for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverflowPage<'a> {
    /// The next page; `None` in the last one.
    pub next: Option<PageNo>,
    /// The operation that wrote the chain.
    pub owner: Stamp,
    /// Position in the chain, from 0.
    pub position: u32,
    /// The data.
    pub data: &'a [u8],
}

impl<'a> OverflowPage<'a> {
    /// Reads a page's payload. # Errors: `BadEncoding`; `NewerFormat` for a reserved byte.
    pub fn parse(payload: &'a [u8]) -> Result<OverflowPage<'a>> {
        let bad =
            |why| Error::new(Code::BadEncoding).with("what", "overflow page").with("why", why);
        let mut r = Reader::new(payload, "overflow page");
        let (kind, zero) = (r.u8()?, r.take(3)?);
        if kind != KIND_OVERFLOW {
            return Err(bad("kind"));
        }
        r.zero("zero", zero)?;
        let len = r.u32()? as usize;
        let next = Some(PageNo(r.u64()?)).filter(|next| *next != PageNo::ZERO);
        let owner = Stamp { txn: TxnId(r.u64()?), undo_no: UndoNo(r.u32()?) };
        let position = r.u32()?;
        let Some(data) = r.rest().get(..len) else { return Err(bad("length of the data")) };
        Ok(OverflowPage { next, owner, position, data })
    }

    /// Appends the page's bytes up to the end of its data.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[KIND_OVERFLOW, 0, 0, 0]);
        out.extend_from_slice(&(self.data.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.next.unwrap_or(PageNo::ZERO).0.to_le_bytes());
        out.extend_from_slice(&self.owner.txn.0.to_le_bytes());
        out.extend_from_slice(&self.owner.undo_no.0.to_le_bytes());
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(self.data);
    }
}

/// Sets the next page of an overflow page. # Errors: `BadEncoding` if it is none.
pub fn set_next(payload: &mut [u8], next: PageNo) -> Result<()> {
    OverflowPage::parse(payload)?;
    payload[8..16].copy_from_slice(&next.0.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_references_round_trip() {
        let owner = Stamp { txn: TxnId(7), undo_no: UndoNo(3) };
        let page = OverflowPage { next: Some(PageNo(5)), owner, position: 2, data: b"data" };
        let mut bytes = Vec::new();
        page.encode(&mut bytes);
        assert_eq!(bytes.len(), OVERFLOW_HEADER_BYTES + 4);
        assert_eq!(OverflowPage::parse(&bytes).expect("parses"), page);
        for cut in 0..bytes.len() {
            assert!(OverflowPage::parse(&bytes[..cut]).is_err());
        }
        set_next(&mut bytes, PageNo::ZERO).expect("an overflow page");
        assert_eq!(OverflowPage::parse(&bytes).expect("parses").next, None);
        let reference = OverflowRef { head: PageNo(9), len: u32::MAX, owner };
        let mut bytes = Vec::new();
        reference.encode(&mut bytes);
        assert_eq!(bytes.len(), OVERFLOW_REF_BYTES);
        assert_eq!(OverflowRef::decode(&bytes).expect("decodes"), reference);
        assert!(OverflowRef::decode(&bytes[1..]).is_err());
        let list = [ChainEdit::Adopted(reference), ChainEdit::Superseded(reference)];
        let mut bytes = Vec::new();
        list.iter().for_each(|edit| edit.encode(&mut bytes));
        assert_eq!(edits(&bytes).expect("decodes"), list);
        assert!(edits(&bytes[1..]).is_err());
    }
}
