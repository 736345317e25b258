//! A file of the simulated disk: its content as reads see it, its durable content, and the unsynced
//! changes between them.

use crate::blocks::{Blocks, is_zero};

/// Bytes that a device writes atomically.
pub const SECTOR: usize = 512;

/// Written bytes; zeros (fresh log segments) cost no memory.
#[derive(Clone)]
pub(super) enum Data {
    Bytes(Box<[u8]>),
    Zeros(usize),
}

impl Data {
    pub fn new(bytes: &[u8]) -> Data {
        if is_zero(bytes) { Data::Zeros(bytes.len()) } else { Data::Bytes(bytes.into()) }
    }

    pub fn len(&self) -> usize {
        match self {
            Data::Bytes(b) => b.len(),
            Data::Zeros(n) => *n,
        }
    }

    /// Keeps the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        match self {
            Data::Bytes(bytes) => *bytes = bytes[..len].into(),
            Data::Zeros(n) => *n = len,
        }
    }
}

/// A change of a file's content.
#[derive(Clone)]
pub(super) enum DataOp {
    Write { offset: u64, data: Data },
    SetLen(u64),
    Allocate { offset: u64, len: u64 },
    Punch { offset: u64, len: u64 },
}

impl DataOp {
    pub fn apply(&self, to: &mut Blocks) {
        match self {
            DataOp::Write { offset, data } => write_part(to, *offset, data, 0, data.len()),
            DataOp::SetLen(len) => to.set_len(*len),
            DataOp::Allocate { offset, len } => to.allocate(*offset, *len),
            DataOp::Punch { offset, len } => to.punch(*offset, *len),
        }
    }

    /// Blocks that applying it would newly occupy.
    pub fn needs(&self, to: &Blocks) -> u64 {
        match self {
            DataOp::Write { offset, data } => to.missing(*offset, data.len() as u64),
            DataOp::Allocate { offset, len } => to.missing(*offset, *len),
            DataOp::SetLen(_) | DataOp::Punch { .. } => 0,
        }
    }

    /// The first sectors of a write, as many as `part` selects, if they need at most `free` blocks.
    pub fn part_within(&self, to: &Blocks, free: u64, part: u64) -> Option<DataOp> {
        let DataOp::Write { offset, data } = self else { return None };
        let len = (part % (data.len().div_ceil(SECTOR) as u64)) as usize * SECTOR;
        if len == 0 || to.missing(*offset, len as u64) > free {
            return None;
        }
        let data = match data {
            Data::Bytes(bytes) => Data::Bytes(bytes[..len].into()),
            Data::Zeros(_) => Data::Zeros(len),
        };
        Some(DataOp::Write { offset: *offset, data })
    }
}

/// Applies bytes `from..end` of a write.
pub(super) fn write_part(to: &mut Blocks, offset: u64, data: &Data, from: usize, end: usize) {
    let at = offset + from as u64;
    match data {
        Data::Bytes(bytes) => to.write(&bytes[from..end], at),
        Data::Zeros(_) => to.write_zeros(at, (end - from) as u64),
    }
}

/// A file.
#[derive(Default)]
pub(super) struct Inode {
    /// The content that reads see.
    pub live: Blocks,
    /// The content that certainly survives a crash.
    pub durable: Blocks,
    /// Changes since the last sync, each with its number in the order of all changes of the disk.
    pub unsynced: Vec<(u64, DataOp)>,
    /// Some live name leads to it.
    pub linked: bool,
    /// Open handles.
    pub handles: u32,
    /// An open handle holds the lock.
    pub locked: bool,
}

impl Inode {
    /// A file of a surviving disk.
    pub fn survivor(content: Blocks) -> Inode {
        Inode { live: content.clone(), durable: content, linked: true, ..Inode::default() }
    }

    /// A file left by a killed process: it is not open, and these changes are unsynced.
    pub fn left(durable: &Blocks, unsynced: Vec<(u64, DataOp)>, linked: bool) -> Inode {
        let mut live = durable.clone();
        unsynced.iter().for_each(|(_, op)| op.apply(&mut live));
        Inode { live, durable: durable.clone(), unsynced, linked, ..Inode::default() }
    }

    /// Applies a change and records it as unsynced.
    pub fn apply(&mut self, seq: u64, op: DataOp) {
        op.apply(&mut self.live);
        self.unsynced.push((seq, op));
    }

    /// Makes unsynced changes durable: all, or the `chosen` ones, while the others never become
    /// durable.
    pub fn sync(&mut self, mut chosen: impl FnMut() -> bool) {
        for (_, op) in std::mem::take(&mut self.unsynced) {
            if chosen() {
                op.apply(&mut self.durable);
            }
        }
    }

    /// As `sync` for all changes, sharing whole blocks with the live content: the last change of
    /// each byte becomes durable.
    pub fn sync_all(&mut self) {
        for (_, op) in std::mem::take(&mut self.unsynced) {
            match op {
                DataOp::Write { offset, data } => {
                    self.durable.share(&self.live, offset, data.len() as u64);
                }
                other => other.apply(&mut self.durable),
            }
        }
    }

    /// True if neither a live name nor a handle needs its space.
    pub fn is_released(&self) -> bool {
        !self.linked && self.handles == 0
    }
}
