//! The effects of a crash: from one crashed disk many surviving ones, by policy and seed.
//!
//! Most crashes are crashes of the machine: unsynced data is lost in part, and the survivors are
//! durable. `Killed` is a crash of the process only: the system continues and has every write,
//! synced or not. The next process reads them all, and those that are never synced may still be
//! lost with the machine.

use super::disk::SimDisk;
use super::inode::{DataOp, Inode, SECTOR, write_part};
use super::names::{Ino, Keep};
use crate::blocks::{BLOCK, Blocks};
use crate::rng::{Rng, mix};
use std::collections::{BTreeMap, BTreeSet};

/// Which unsynced changes survive a crash. Synced ones always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrashPolicy {
    /// None.
    LoseAll,
    /// All.
    KeepAll,
    /// Each written sector of 512 bytes by chance.
    RandomSectors,
    /// Each written piece of 4 KiB by chance.
    RandomBlocks,
    /// Each call as a whole by chance: later ones without earlier ones.
    Reordered,
    /// The first calls in order; the last of them torn at a sector.
    Torn,
    /// All content and names, but each file keeps its old length.
    OldSize,
    /// All content; creations, renames and removals are lost, or some of them.
    OldNames,
    /// For each file another of these.
    Mixed,
    /// All: the process was killed, not the machine. Unsynced changes stay unsynced, in their
    /// order, until they are synced; a write in flight survives up to the edge of a block.
    Killed,
}

impl CrashPolicy {
    /// Every policy.
    pub const ALL: &'static [CrashPolicy] = &[
        CrashPolicy::LoseAll,
        CrashPolicy::KeepAll,
        CrashPolicy::RandomSectors,
        CrashPolicy::RandomBlocks,
        CrashPolicy::Reordered,
        CrashPolicy::Torn,
        CrashPolicy::OldSize,
        CrashPolicy::OldNames,
        CrashPolicy::Mixed,
        CrashPolicy::Killed,
    ];

    /// The policies that `Mixed` draws from for a file's content.
    const OF_CONTENT: [CrashPolicy; 7] = [
        CrashPolicy::LoseAll,
        CrashPolicy::KeepAll,
        CrashPolicy::RandomSectors,
        CrashPolicy::RandomBlocks,
        CrashPolicy::Reordered,
        CrashPolicy::Torn,
        CrashPolicy::OldSize,
    ];

    fn names(self, rng: &mut Rng) -> Keep {
        match self {
            CrashPolicy::LoseAll => Keep::None,
            CrashPolicy::KeepAll | CrashPolicy::OldSize | CrashPolicy::Killed => Keep::All,
            CrashPolicy::Torn => Keep::Prefix,
            CrashPolicy::OldNames if rng.one_in(2) => Keep::None,
            _ => Keep::Subset,
        }
    }
}

impl SimDisk {
    /// A possible disk after a crash of this one at this moment. This disk stays unchanged, so many
    /// survivors can be made from one crash.
    pub fn crash(&self, policy: CrashPolicy, seed: u64) -> SimDisk {
        let mut rng = Rng::new(mix(seed) ^ policy as u64);
        if policy == CrashPolicy::Killed {
            return self.killed(&mut rng);
        }
        let capacity = self.capacity_blocks();
        self.with(|s| {
            let names = s.names.survivors(policy.names(&mut rng), &mut rng);
            let cut = Cut::choose(s.inodes.values(), &mut rng);
            let named: BTreeSet<_> = names.files.values().copied().collect();
            let mut inodes = BTreeMap::new();
            for (ino, inode) in s.inodes.iter().filter(|(ino, _)| named.contains(ino)) {
                let all = CrashPolicy::OF_CONTENT;
                let of_file = match policy {
                    CrashPolicy::Mixed => all[rng.below(all.len() as u64) as usize],
                    other => other,
                };
                let content = survivor(inode, of_file, cut, &mut rng);
                inodes.insert(*ino, Inode::survivor(content));
            }
            SimDisk::from_survivors(rng.next_u64(), names.into(), inodes, capacity)
        })
    }

    /// The disk that the next process finds if this one is killed.
    fn killed(&self, rng: &mut Rng) -> SimDisk {
        let capacity = self.capacity_blocks();
        self.with(|s| {
            let names = s.names.left(rng);
            // Includes files whose removal a crash of the machine may undo.
            let named = names.named();
            let linked: BTreeSet<_> = names.live.files.values().copied().collect();
            let kept = s.inodes.iter().filter(|(ino, _)| named.contains(ino));
            let of_killed = |(ino, inode): (&Ino, &Inode)| {
                let unsynced = left_by_killed(inode, s.in_flight_from, rng);
                (*ino, Inode::left(&inode.durable, unsynced, linked.contains(ino)))
            };
            let inodes = kept.map(of_killed).collect();
            SimDisk::from_survivors(rng.next_u64(), names, inodes, capacity)
        })
    }
}

/// The unsynced changes of a file whose process was killed. Half of the time a write in flight ends
/// at the edge of a block: the system checks between blocks whether to continue.
fn left_by_killed(inode: &Inode, in_flight: u64, rng: &mut Rng) -> Vec<(u64, DataOp)> {
    let mut unsynced = inode.unsynced.clone();
    if let Some((seq, DataOp::Write { offset, data })) = unsynced.last_mut()
        && *seq >= in_flight
        && rng.one_in(2)
    {
        let first = BLOCK - *offset as usize % BLOCK;
        let edges = data.len().saturating_sub(first).div_ceil(BLOCK) as u64;
        match rng.below(edges + 1) as usize {
            0 => drop(unsynced.pop()),
            blocks => data.truncate(first + (blocks - 1) * BLOCK),
        }
    }
    unsynced
}

/// Where `Torn` cuts the order of unsynced changes: earlier ones survive, the one at the cut in
/// part.
#[derive(Clone, Copy)]
struct Cut(u64);

impl Cut {
    fn choose<'a>(inodes: impl Iterator<Item = &'a Inode>, rng: &mut Rng) -> Cut {
        let mut all: Vec<u64> = inodes.flat_map(|i| i.unsynced.iter().map(|(n, _)| *n)).collect();
        all.sort_unstable();
        // Half of the time the last call, which was in flight.
        let last = all.len().saturating_sub(1);
        let place = if rng.one_in(2) { last } else { rng.below(all.len() as u64) as usize };
        Cut(all.get(place).copied().unwrap_or(0))
    }
}

/// The content of a file after the crash.
fn survivor(inode: &Inode, policy: CrashPolicy, cut: Cut, rng: &mut Rng) -> Blocks {
    let mut content = inode.durable.clone();
    for (seq, op) in &inode.unsynced {
        match policy {
            CrashPolicy::LoseAll => {}
            CrashPolicy::KeepAll
            | CrashPolicy::OldSize
            | CrashPolicy::OldNames
            | CrashPolicy::Mixed
            | CrashPolicy::Killed => op.apply(&mut content),
            CrashPolicy::RandomSectors => apply_pieces(op, &mut content, SECTOR, rng),
            CrashPolicy::RandomBlocks => apply_pieces(op, &mut content, BLOCK, rng),
            CrashPolicy::Reordered if rng.one_in(2) => op.apply(&mut content),
            CrashPolicy::Reordered => {}
            CrashPolicy::Torn if *seq < cut.0 => op.apply(&mut content),
            CrashPolicy::Torn if *seq == cut.0 => apply_torn(op, &mut content, rng),
            CrashPolicy::Torn => {}
        }
    }
    let sized = matches!(policy, CrashPolicy::RandomSectors | CrashPolicy::RandomBlocks);
    if policy == CrashPolicy::OldSize || (sized && rng.one_in(4)) {
        content.set_len(inode.durable.len());
    } else if sized && rng.one_in(4) {
        content.set_len(inode.live.len());
    }
    content
}

/// Applies each piece of a write, aligned to `piece` bytes in the file, by chance.
fn apply_pieces(op: &DataOp, content: &mut Blocks, piece: usize, rng: &mut Rng) {
    let DataOp::Write { offset, data } = op else {
        if rng.one_in(2) {
            op.apply(content);
        }
        return;
    };
    let mut from = 0;
    while from < data.len() {
        let to_edge = piece - ((*offset as usize + from) % piece);
        let end = (from + to_edge).min(data.len());
        if rng.one_in(2) {
            write_part(content, *offset, data, from, end);
        }
        from = end;
    }
}

/// Applies the first sectors of a write, sometimes only its last ones.
fn apply_torn(op: &DataOp, content: &mut Blocks, rng: &mut Rng) {
    let DataOp::Write { offset, data } = op else {
        if rng.one_in(2) {
            op.apply(content);
        }
        return;
    };
    let sectors = data.len().div_ceil(SECTOR) as u64;
    let at = (rng.below(sectors + 1) as usize * SECTOR).min(data.len());
    if rng.one_in(4) {
        write_part(content, *offset, data, at, data.len());
    } else {
        write_part(content, *offset, data, 0, at);
    }
}
