//! The catalog's entries of a chunked table while the catalog is read.

use evenkeel_base::Result;
use evenkeel_format::chunks::{ChunkEntry, ChunkingEntry};
use std::collections::BTreeMap;

/// The chunking and the chunks of one table while the catalog is read.
#[derive(Default)]
pub(crate) struct Loading {
    /// How the table is cut.
    pub chunking: Option<ChunkingEntry>,
    /// By number.
    pub chunks: BTreeMap<u32, ChunkEntry>,
}

impl Loading {
    pub fn take_chunking(&mut self, body: &[u8]) -> Result<()> {
        self.chunking = Some(ChunkingEntry::decode(body)?);
        Ok(())
    }

    pub fn take_chunk(&mut self, item: u32, body: &[u8]) -> Result<()> {
        self.chunks.insert(item, ChunkEntry::decode(body)?);
        Ok(())
    }
}
