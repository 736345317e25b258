//! Lists of other modules that are kept beside the log, in undo segments: a checkpoint names their
//! places instead of containing them. They are frames like those of undo, of transaction 0.

use crate::txns::Txns;
use crate::undo::Body;
use crate::undo_files::SavedAt;
use evenkeel_base::{Result, TxnId, UndoNo};
use evenkeel_format::undo::{FRAME_HEADER_LEN, FRAME_PAYLOAD_MAX};
use evenkeel_format::{Reader, put_varint};
use std::sync::Arc;

/// The place of a list. Its space in the files is freed when the last copy of this is dropped.
#[derive(Clone)]
pub struct SideLists(SavedAt);

impl SideLists {
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
    pub fn keep_side_lists(&self, lists: Vec<Vec<u8>>) -> Result<Vec<SideLists>> {
        let none = UndoNo::ZERO;
        let frame = |bytes| (TxnId::ZERO, Arc::new(Body::from_saved(bytes, none, none)));
        let frames: Vec<_> = lists.into_iter().map(frame).collect();
        self.rt.step();
        let turn = self.files.turn();
        let places = self.files.append(&turn, &frames);
        let kept = places.and_then(|places| self.files.sync(&turn).map(|()| places));
        Ok(kept.map_err(|e| self.judge(e))?.into_iter().map(SideLists).collect())
    }

    /// Reads a list. `None`: its file was removed after its user had released it.
    ///
    /// # Errors
    /// `BadEncoding`, of the file.
    pub fn read_side_lists(&self, SideLists(at): &SideLists) -> Result<Option<Vec<u8>>> {
        self.files.read_list(at)
    }

    /// Restores the place that a checkpoint names. Called before `restore`, which removes the files
    /// that are not named.
    ///
    /// # Errors
    /// `BadEncoding`, of the environment.
    pub fn restore_side_lists(&self, r: &mut Reader<'_>) -> Result<SideLists> {
        let (number, offset, len) = (r.varint()?, r.varint()?, r.varint32()?);
        let lens = FRAME_HEADER_LEN..=FRAME_HEADER_LEN + FRAME_PAYLOAD_MAX;
        if !lens.contains(&(len as usize)) || offset.checked_add(u64::from(len)).is_none() {
            return Err(r.bad("a list of no place"));
        }
        Ok(SideLists(SavedAt { segment: self.files.open(number)?, offset, len }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TxnOptions;
    use evenkeel_base::Code;
    use evenkeel_io::{MemEnv, Runtime};

    /// The lengths that a checkpoint names are accepted only within the limits of a frame, so
    /// nothing is allocated for an impossible length.
    #[test]
    fn side_lists_at_impossible_places_are_refused() {
        let txns = Txns::create(Runtime::new(Arc::new(MemEnv::new())), TxnOptions::default());
        let place = |offset: u64, len: usize| {
            let mut out = Vec::new();
            [1, offset, len as u64].iter().for_each(|n| put_varint(&mut out, *n));
            let at = txns.restore_side_lists(&mut Reader::new(&out, "a list"));
            at.map(|at| at.0.len as usize).map_err(|e| e.code())
        };
        let most = FRAME_HEADER_LEN + FRAME_PAYLOAD_MAX;
        for len in [0, FRAME_HEADER_LEN - 1, most + 1, u32::MAX as usize] {
            assert_eq!(place(0, len), Err(Code::BadEncoding), "{len}");
        }
        assert_eq!(place(u64::MAX, FRAME_HEADER_LEN), Err(Code::BadEncoding));
        assert_eq!(place(0, most), Ok(most));
    }
}
