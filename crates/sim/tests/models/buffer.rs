//! For the model of group commit: the part of the log's buffer that `commit` uses.

use evenkeel_base::Lsn;

/// Stands for the bytes of a group up to a position.
pub(crate) struct Chunk(u64);

impl Chunk {
    pub(crate) fn finish<T>(&mut self, _: u64, _: u32, _: Lsn, _: T) {}

    /// The end stands for the first block.
    pub(crate) fn first_block(&self) -> u64 {
        self.0
    }

    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.0)
    }

    /// Records have one byte, so the end of a chunk cuts no record.
    pub(crate) fn whole_end(&self) -> Lsn {
        self.end()
    }

    pub(crate) fn used(&self) -> &[u8] {
        &[]
    }
}

/// Records not written yet.
#[derive(Default)]
pub(crate) struct Buffer {
    end: u64,
    taken: u64,
}

impl Buffer {
    /// Appends a record.
    pub(crate) fn push(&mut self) -> Lsn {
        self.end += 1;
        Lsn(self.end - 1)
    }

    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.end)
    }

    /// Seals the records, in two chunks if there are several.
    pub(crate) fn seal(&mut self, _: usize, group: &mut Vec<Chunk>) {
        if self.end > self.taken + 1 {
            group.push(Chunk(self.taken + 1));
        }
        group.push(Chunk(self.end));
        self.taken = self.end;
    }

    /// Takes the first record if there are several.
    pub(crate) fn take_full(&mut self, group: &mut Vec<Chunk>) {
        if self.end > self.taken + 1 {
            self.taken += 1;
            group.push(Chunk(self.taken));
        }
    }

    pub(crate) fn give_back(&mut self, _: Chunk) {}
}
