//! The content of a file in memory: a sparse list of 4 KiB blocks, shared until written (so that
//! copies of a disk are cheap). Used by the in-memory environment and the simulated disk.
//!
//! Invariants: bytes at or beyond `len` inside the last block are zero; a missing block reads as
//! zeros and costs nothing; `allocated` is the number of present blocks.

use std::sync::{Arc, LazyLock};

/// Bytes per block.
pub(crate) const BLOCK: usize = 4096;

type Block = [u8; BLOCK];

/// One block of zeros shared by all: preallocated and zero-written files cost no memory.
static ZEROS: LazyLock<Arc<Block>> = LazyLock::new(|| Arc::new([0; BLOCK]));

/// Sparse file content; a copy shares the list, too, until one of them changes.
#[derive(Clone, Default)]
pub(crate) struct Blocks {
    blocks: Arc<Vec<Option<Arc<Block>>>>,
    len: u64,
    allocated: u64,
}

/// The parts of `len` bytes at `offset` by block: (block, start in block, start in buffer, count).
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let (block, start) = ((at / BLOCK as u64) as usize, (at % BLOCK as u64) as usize);
        let count = (BLOCK - start).min(len - done);
        let part = (block, start, done, count);
        done += count;
        Some(part)
    })
}

/// True if every byte is zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}

impl Blocks {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Blocks that occupy space.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Blocks that a write of the range would newly occupy.
    pub fn missing(&self, offset: u64, len: u64) -> u64 {
        let (first, end) = Self::span(offset, len);
        (first..end).filter(|b| self.blocks.get(*b).is_none_or(Option::is_none)).count() as u64
    }

    fn span(offset: u64, len: u64) -> (usize, usize) {
        let first = offset / BLOCK as u64;
        let end = if len == 0 { first } else { (offset + len).div_ceil(BLOCK as u64) };
        (first as usize, end as usize)
    }

    /// Copies the range into `buf`; bytes beyond the end read as zeros.
    pub fn read(&self, buf: &mut [u8], offset: u64) {
        for (block, start, at, count) in parts(offset, buf.len()) {
            let to = &mut buf[at..at + count];
            match self.blocks.get(block).and_then(Option::as_ref) {
                Some(data) => to.copy_from_slice(&data[start..start + count]),
                None => to.fill(0),
            }
        }
    }

    /// Writes `buf` at `offset`, extending the file if needed.
    pub fn write(&mut self, buf: &[u8], offset: u64) {
        self.extend(offset + buf.len() as u64);
        let blocks = Arc::make_mut(&mut self.blocks);
        for (block, start, at, count) in parts(offset, buf.len()) {
            let from = &buf[at..at + count];
            let slot = &mut blocks[block];
            self.allocated += u64::from(slot.is_none());
            if count == BLOCK && is_zero(from) {
                *slot = Some(ZEROS.clone());
                continue;
            }
            let data = slot.get_or_insert_with(|| ZEROS.clone());
            Arc::make_mut(data)[start..start + count].copy_from_slice(from);
        }
    }

    /// Writes `len` zeros at `offset`, extending the file if needed.
    pub fn write_zeros(&mut self, offset: u64, len: u64) {
        self.allocate(offset, len);
        self.zero(offset, len);
    }

    /// Makes the range equal to that of `from`, sharing whole blocks; extends the file if needed.
    pub fn share(&mut self, from: &Blocks, offset: u64, len: u64) {
        self.extend(offset + len);
        let blocks = Arc::make_mut(&mut self.blocks);
        for (block, start, _, count) in parts(offset, len as usize) {
            let source = from.blocks.get(block).cloned().flatten();
            let slot = &mut blocks[block];
            self.allocated -= u64::from(slot.is_some());
            if count == BLOCK {
                *slot = source;
            } else {
                let source = source.unwrap_or_else(|| ZEROS.clone());
                let data = slot.get_or_insert_with(|| ZEROS.clone());
                Arc::make_mut(data)[start..start + count]
                    .copy_from_slice(&source[start..start + count]);
            }
            self.allocated += u64::from(slot.is_some());
        }
    }

    /// Cuts or extends (with a hole) to `len`.
    pub fn set_len(&mut self, len: u64) {
        if len >= self.len {
            self.extend(len);
            return;
        }
        self.zero(len, (len.next_multiple_of(BLOCK as u64) - len).min(self.len - len));
        let keep = len.div_ceil(BLOCK as u64) as usize;
        let cut = Arc::make_mut(&mut self.blocks).drain(keep..).filter(Option::is_some).count();
        self.allocated -= cut as u64;
        self.len = len;
    }

    /// Reserves space for the range, extending the file if needed; the content stays.
    pub fn allocate(&mut self, offset: u64, len: u64) {
        self.extend(offset + len);
        let (first, end) = Self::span(offset, len);
        for slot in &mut Arc::make_mut(&mut self.blocks)[first..end] {
            if slot.is_none() {
                *slot = Some(ZEROS.clone());
                self.allocated += 1;
            }
        }
    }

    /// Frees whole blocks of the range and zeros the rest of it; the length stays.
    pub fn punch(&mut self, offset: u64, len: u64) {
        let end = (offset + len).min(self.len);
        if offset >= end {
            return;
        }
        self.zero(offset, end - offset);
        let first = offset.div_ceil(BLOCK as u64) as usize;
        let last = if end == self.len { self.blocks.len() } else { (end / BLOCK as u64) as usize };
        for slot in Arc::make_mut(&mut self.blocks).iter_mut().take(last).skip(first) {
            self.allocated -= u64::from(slot.take().is_some());
        }
    }

    fn extend(&mut self, len: u64) {
        if len > self.len {
            let blocks = Arc::make_mut(&mut self.blocks);
            blocks.resize(len.div_ceil(BLOCK as u64) as usize, None);
            self.len = len;
        }
    }

    /// Zeros present blocks of the range; the reserved space stays the same.
    fn zero(&mut self, offset: u64, len: u64) {
        let blocks = Arc::make_mut(&mut self.blocks);
        for (block, start, _, count) in parts(offset, len as usize) {
            let Some(Some(data)) = blocks.get_mut(block) else { continue };
            if count == BLOCK {
                *data = ZEROS.clone();
            } else {
                Arc::make_mut(data)[start..start + count].fill(0);
            }
        }
    }

    /// A hash of length and content (holes and zeros are equal).
    pub fn hash(&self, seed: u64) -> u64 {
        let mut hash = crate::rng::mix(seed ^ self.len);
        for (i, block) in self.blocks.iter().enumerate() {
            let Some(data) = block else { continue };
            if Arc::ptr_eq(data, &ZEROS) || is_zero(&data[..]) {
                continue;
            }
            hash = crate::rng::mix(hash ^ i as u64);
            for word in data.chunks_exact(8) {
                let word = u64::from_le_bytes([
                    word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7],
                ]);
                hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
            }
        }
        crate::rng::mix(hash)
    }
}
