//! The log buffer: chunks of whole blocks into which records are copied, and which a flush takes,
//! writes and returns. Nothing here waits, locks or does I/O; `Log` guards it with its mutex.
//!
//! Life of a chunk: free -> filling -> sealed (full) -> taken by a flush -> free. A flush pads the
//! block being filled and takes the filling chunk too, so at most two chunks are not full: the one
//! being filled and the last one of the flush under way. `room()` bytes of unwritten payload always
//! fit. A caller reserves the bytes before it appends them, and the buffer grows at the reservation
//! (B2). A buffer of full size would have to be cleared by each open, most of which are short.

use evenkeel_base::{DatabaseId, Lsn};
use evenkeel_format::wal::{
    BLOCK, BLOCK_HEADER, BlockHeader, NO_RECORD, PAYLOAD, block_of, lsn_of,
};
use evenkeel_io::AlignedBuf;

/// Adjacent blocks, in memory and in the log.
pub(crate) struct Chunk {
    bytes: AlignedBuf,
    first_block: u64,
    used_blocks: usize,
    /// Records below are complete once this chunk and those before it are written.
    whole_end: u64,
}

impl Chunk {
    fn new(blocks: usize) -> Chunk {
        let bytes = AlignedBuf::new(blocks * BLOCK);
        Chunk { bytes, first_block: 0, used_blocks: 0, whole_end: 0 }
    }

    /// Number of its first block.
    pub(crate) fn first_block(&self) -> u64 {
        self.first_block
    }

    /// Position behind its blocks.
    pub(crate) fn end(&self) -> Lsn {
        lsn_of(self.first_block + self.used_blocks as u64)
    }

    /// The end of the last record that is complete with this chunk: the chunk's own end, or the
    /// beginning of a record that continues in the next chunk.
    pub(crate) fn whole_end(&self) -> Lsn {
        Lsn(self.whole_end)
    }

    /// Its blocks in the form of the file.
    pub(crate) fn used(&self) -> &[u8] {
        &self.bytes[..self.used_blocks * BLOCK]
    }

    /// Fills in the fields that are known only now, and the checksums. `start` is the first block
    /// of the epoch and the position at which it took over.
    pub(crate) fn finish(
        &mut self,
        database: DatabaseId,
        epoch: u32,
        durable: Lsn,
        start: (u64, Lsn),
    ) {
        let blocks = self.bytes[..self.used_blocks * BLOCK].chunks_exact_mut(BLOCK);
        for (number, block) in (self.first_block..).zip(blocks) {
            let is_start = number == start.0;
            BlockHeader {
                epoch,
                block: number,
                durable: if is_start { start.1 } else { durable },
                data_len: u16::from_le_bytes([block[24], block[25]]),
                first_record: u16::from_le_bytes([block[26], block[27]]),
                flags: u8::from(is_start) * evenkeel_format::wal::EPOCH_START,
            }
            .seal(block, database);
        }
    }

    /// Begins block `at`: full of data, without the beginning of a record, unless set otherwise.
    fn open_block(&mut self, at: usize, data_len: u16) {
        self.used_blocks = at + 1;
        let header = &mut self.bytes[at * BLOCK..at * BLOCK + BLOCK_HEADER];
        header[24..26].copy_from_slice(&data_len.to_le_bytes());
        header[26..28].copy_from_slice(&NO_RECORD.to_le_bytes());
    }
}

/// The chunks and the position of the next record.
pub(crate) struct Buffer {
    end: u64,
    /// The beginning of the last record.
    record: u64,
    filling: Chunk,
    sealed: Vec<Chunk>,
    free: Vec<Chunk>,
    chunk_blocks: usize,
    chunks: usize,
}

impl Buffer {
    /// A small buffer, beginning at block `start`; it grows by chunks of this many blocks.
    pub(crate) fn new(chunk_blocks: usize, start: u64) -> Buffer {
        assert!(chunk_blocks > 0 && chunk_blocks.is_multiple_of(8));
        let mut filling = Chunk::new(chunk_blocks);
        filling.first_block = start;
        let mut buffer = Buffer {
            end: lsn_of(start).0,
            record: lsn_of(start).0,
            filling,
            sealed: Vec::new(),
            free: Vec::new(),
            chunk_blocks,
            chunks: 1,
        };
        buffer.grow(1);
        buffer
    }

    /// Payload bytes that certainly fit behind the unwritten ones.
    pub(crate) fn room(&self) -> u64 {
        (self.chunks.saturating_sub(3) * self.chunk_blocks * PAYLOAD) as u64
    }

    /// Adds chunks until `room() >= bytes`.
    pub(crate) fn grow(&mut self, bytes: u64) {
        if self.room() >= bytes {
            return;
        }
        while self.room() < bytes {
            self.free.push(Chunk::new(self.chunk_blocks));
            self.chunks += 1;
        }
        // Lists never allocate while appending.
        self.free.reserve(self.chunks);
        self.sealed.reserve(self.chunks);
    }

    /// Position of the next record.
    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.end)
    }

    /// Begins with a block without data: the first of an epoch.
    pub(crate) fn put_empty_block(&mut self) {
        assert!(self.filling.used_blocks == 0);
        self.filling.open_block(0, 0);
        self.filling.bytes[BLOCK_HEADER..BLOCK].fill(0);
    }

    /// Marks the position as the beginning of a record.
    pub(crate) fn begin_record(&mut self) -> Lsn {
        self.record = self.end;
        let block = self.room_in_block().0;
        let field = &mut self.filling.bytes[block * BLOCK + 26..block * BLOCK + 28];
        if u16::from_le_bytes([field[0], field[1]]) == NO_RECORD {
            field.copy_from_slice(&((self.end % PAYLOAD as u64) as u16).to_le_bytes());
        }
        Lsn(self.end)
    }

    /// Copies bytes to the end.
    pub(crate) fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (block, offset) = self.room_in_block();
            let n = bytes.len().min(PAYLOAD - offset);
            let at = block * BLOCK + BLOCK_HEADER + offset;
            self.filling.bytes[at..at + n].copy_from_slice(&bytes[..n]);
            self.end += n as u64;
            bytes = &bytes[n..];
        }
    }

    /// Index of the last block inside the filling chunk, and the offset in its payload; opens the
    /// block, and a new chunk, if needed.
    fn room_in_block(&mut self) -> (usize, usize) {
        let number = block_of(Lsn(self.end));
        let offset = (self.end % PAYLOAD as u64) as usize;
        let mut block = (number - self.filling.first_block) as usize;
        if block == self.chunk_blocks {
            let next = self.free_chunk(number);
            let mut full = std::mem::replace(&mut self.filling, next);
            // That is the end, if a new record needs the room.
            full.whole_end = self.record;
            self.sealed.push(full);
            block = 0;
        }
        if block == self.filling.used_blocks {
            self.filling.open_block(block, PAYLOAD as u16);
        }
        (block, offset)
    }

    fn free_chunk(&mut self, first_block: u64) -> Chunk {
        // An empty list means that a caller appended more than it reserved: this costs memory, not
        // log space.
        let mut chunk = self.free.pop().unwrap_or_else(|| {
            self.chunks += 1;
            Chunk::new(self.chunk_blocks)
        });
        chunk.first_block = first_block;
        chunk.used_blocks = 0;
        chunk
    }

    /// Pads to a multiple of `align` blocks and moves everything to `group` (which is empty). The
    /// end moves to the next block.
    pub(crate) fn seal(&mut self, align: u64, group: &mut Vec<Chunk>) {
        let offset = (self.end % PAYLOAD as u64) as usize;
        if offset > 0 {
            let last = self.filling.used_blocks - 1;
            let header = last * BLOCK;
            self.filling.bytes[header + 24..header + 26]
                .copy_from_slice(&(offset as u16).to_le_bytes());
            self.filling.bytes[header + BLOCK_HEADER + offset..header + BLOCK].fill(0);
        }
        if self.filling.used_blocks > 0 {
            while !(self.filling.used_blocks as u64 + self.filling.first_block)
                .is_multiple_of(align)
            {
                let at = self.filling.used_blocks;
                self.filling.open_block(at, 0);
                self.filling.bytes[at * BLOCK + BLOCK_HEADER..(at + 1) * BLOCK].fill(0);
            }
            let next = self.filling.first_block + self.filling.used_blocks as u64;
            self.end = lsn_of(next).0;
            let empty = self.free_chunk(next);
            let mut last = std::mem::replace(&mut self.filling, empty);
            last.whole_end = self.end;
            self.sealed.push(last);
        }
        debug_assert!(group.is_empty());
        std::mem::swap(&mut self.sealed, group);
    }

    /// Moves the oldest full chunk, if there is one, to `group` (which is empty).
    pub(crate) fn take_full(&mut self, group: &mut Vec<Chunk>) {
        if !self.sealed.is_empty() {
            group.push(self.sealed.remove(0));
        }
    }

    /// Takes a written chunk back.
    pub(crate) fn give_back(&mut self, chunk: Chunk) {
        self.free.push(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The written part never ends inside a record, whichever chunks are taken: no commit counts as
    /// written if only a part of it is.
    #[test]
    fn chunks_end_where_records_do() {
        let mut random = evenkeel_io::Rng::new(3);
        let mut buffer = Buffer::new(8, 8);
        let (mut ends, mut group) = (vec![buffer.end()], Vec::new());
        let (mut whole, mut inside) = (buffer.end(), 0);
        for _ in 0..5_000 {
            let chunks = if random.below(8) == 0 { 3 } else { 1 };
            let bytes = random.below(chunks * 8 * PAYLOAD as u64);
            buffer.grow(bytes);
            let begin = buffer.begin_record();
            assert!(begin >= ends[ends.len() - 1]);
            buffer.put(&vec![7; bytes as usize]);
            ends.push(buffer.end());
            match random.below(3) {
                0 => buffer.seal(1, &mut group),
                _ => buffer.take_full(&mut group),
            }
            for chunk in group.drain(..) {
                let last = ends.iter().rev().find(|end| **end <= chunk.end());
                let last = *last.expect("the first");
                // Behind padding, if the next one begins there.
                let at = chunk.whole_end();
                assert!(at >= last && at <= chunk.end() && at >= whole, "{at} of {last}");
                assert!(at == last || block_of(at) * PAYLOAD as u64 == at.0, "{at} of {last}");
                inside += u64::from(at < chunk.end());
                whole = at;
                buffer.give_back(chunk);
            }
        }
        assert!(inside > 1_000, "{inside}");
    }

    #[test]
    fn the_buffer_grows_for_reservations_and_never_while_appending() {
        let mut buffer = Buffer::new(8, 8);
        let mut group = Vec::new();
        for bytes in [1, 10 * PAYLOAD, 10 * PAYLOAD, 1 << 20, 10 * PAYLOAD, 1 << 20] {
            buffer.grow(bytes as u64);
            let (chunks, room) = (buffer.chunks, buffer.room());
            assert!(room >= bytes as u64 && (bytes == 1 << 20 || !(8..=200).contains(&chunks)));
            buffer.begin_record();
            buffer.put(&vec![7; bytes]);
            buffer.seal(1, &mut group);
            group.drain(..).for_each(|chunk| buffer.give_back(chunk));
            assert_eq!((buffer.chunks, buffer.room()), (chunks, room), "{bytes} bytes");
        }
    }
}
