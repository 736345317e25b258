//! For the model of group commit: what the log's `commit` needs of a buffer.

use evenkeel_base::Lsn;

/// Bytes of a group, up to a position.
pub(crate) struct Chunk(u64);

impl Chunk {
    pub(crate) fn finish<T>(&mut self, _: u64, _: u32, _: Lsn, _: T) {}

    /// Stands for its end.
    pub(crate) fn first_block(&self) -> u64 {
        self.0
    }

    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.0)
    }

    /// Records have one byte: none is cut by the end of a chunk.
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

    /// In two chunks, if it has several records.
    pub(crate) fn seal(&mut self, _: usize, group: &mut Vec<Chunk>) {
        if self.end > self.taken + 1 {
            group.push(Chunk(self.taken + 1));
        }
        group.push(Chunk(self.end));
        self.taken = self.end;
    }

    /// The first of its records, if it has several.
    pub(crate) fn take_full(&mut self, group: &mut Vec<Chunk>) {
        if self.end > self.taken + 1 {
            self.taken += 1;
            group.push(Chunk(self.taken));
        }
    }

    pub(crate) fn give_back(&mut self, _: Chunk) {}
}
