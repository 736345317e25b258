//! The embedding program's collations in the form that the engine needs.

use crate::value::EkBytes;
use evenkeel::{Code, Collations, Error, Result};

/// Memory for weights at the first attempt, per byte of the value.
const ROOM_PER_BYTE: usize = 4;

/// Functions of the embedding program, called from any thread, also from the engine's own. They
/// stay valid until the process ends.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EkCollations {
    /// Writes the weights of the first `chars` characters (0: all) to `out` if they fit `room`;
    /// returns their number of bytes, -1 if there is no such collation, -2 if memory is lacking.
    pub weights: unsafe extern "C" fn(
        collation: u16,
        chars: u32,
        value: EkBytes,
        out: *mut u8,
        room: usize,
    ) -> i64,
    /// The most bytes of weights of a value of `bytes` bytes, with 0 counted as two bytes.
    pub bytes_max: unsafe extern "C" fn(collation: u16, chars: u32, bytes: u32) -> u64,
    /// A number that changes when weights change; -1 if there is no such collation.
    pub checksum: unsafe extern "C" fn(collation: u16) -> i64,
}

/// The functions as the engine's trait.
pub(crate) struct EmbeddedCollations(EkCollations);

impl EmbeddedCollations {
    pub(crate) fn new(functions: EkCollations) -> EmbeddedCollations {
        EmbeddedCollations(functions)
    }
}

impl Collations for EmbeddedCollations {
    fn weights(&self, collation: u16, chars: u32, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let mut room = ROOM_PER_BYTE * bytes.len() + 16;
        loop {
            out.resize(start + room, 0);
            let to = out[start..].as_mut_ptr();
            // SAFETY: by contract of the embedding program; `to` has `room` bytes.
            let written =
                unsafe { (self.0.weights)(collation, chars, EkBytes::of(bytes), to, room) };
            let Ok(len) = usize::try_from(written) else {
                out.truncate(start);
                return Err(match written {
                    -2 => Error::internal("no memory for the weights of a collation"),
                    _ => Error::new(Code::CollationMissing).with("collation", collation),
                });
            };
            if len <= room {
                out.truncate(start + len);
                return Ok(());
            }
            room = len;
        }
    }

    fn bytes_max(&self, collation: u16, chars: u32, bytes: u32) -> usize {
        // SAFETY: by contract of the embedding program.
        let bytes = unsafe { (self.0.bytes_max)(collation, chars, bytes) };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    fn checksum(&self, collation: u16) -> Option<u32> {
        // SAFETY: by contract of the embedding program.
        u32::try_from(unsafe { (self.0.checksum)(collation) }).ok()
    }
}
