//! Lists that others keep beside the log, in undo segments: a checkpoint names where they are
//! instead of holding them. They are frames like those of undo, of transaction 0.

use crate::txns::Txns;
use crate::undo::Body;
use crate::undo_files::SavedAt;
use evenkeel_base::{Result, TxnId, UndoNo};
use evenkeel_format::undo::FRAME_HEADER_LEN;
use evenkeel_format::{Reader, put_varint};
use std::sync::Arc;

/// Where a list lies. Its space in the files is given back with the last copy of this.
#[derive(Clone)]
pub struct Aside(SavedAt);

impl Aside {
    /// Appends the place: `segment varint, offset varint, length varint`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.segment.number);
        put_varint(out, self.0.offset);
        put_varint(out, u64::from(self.0.len));
    }
}

impl Txns {
    /// Keeps lists of at most `FRAME_PAYLOAD_MAX` bytes each; durable when this returns.
    ///
    /// # Errors
    /// `DiskFull`: nothing is kept; any other failure stops writes.
    pub fn keep_aside(&self, lists: Vec<Vec<u8>>) -> Result<Vec<Aside>> {
        let none = UndoNo::ZERO;
        let frame = |bytes| (TxnId::ZERO, Arc::new(Body::from_saved(bytes, none, none)));
        let frames: Vec<_> = lists.into_iter().map(frame).collect();
        self.rt.step();
        let turn = self.files.turn();
        let places = self.files.append(&turn, &frames);
        let kept = places.and_then(|places| self.files.sync(&turn).map(|()| places));
        Ok(kept.map_err(|e| self.judge(e))?.into_iter().map(Aside).collect())
    }

    /// Reads a list. `None`: its file was removed, for its user had let go of it.
    ///
    /// # Errors
    /// `BadEncoding`, of the file.
    pub fn read_aside(&self, Aside(at): &Aside) -> Result<Option<Vec<u8>>> {
        self.files.read_list(at)
    }

    /// The place that a checkpoint names. Before `restore`, which removes the files that nobody has
    /// named.
    ///
    /// # Errors
    /// `BadEncoding`, of the environment.
    pub fn restore_aside(&self, r: &mut Reader<'_>) -> Result<Aside> {
        let (number, offset, len) = (r.varint()?, r.varint()?, r.varint32()?);
        if (len as usize) < FRAME_HEADER_LEN || offset.checked_add(u64::from(len)).is_none() {
            return Err(r.bad("a list of no place"));
        }
        Ok(Aside(SavedAt { segment: self.files.open(number)?, offset, len }))
    }
}
