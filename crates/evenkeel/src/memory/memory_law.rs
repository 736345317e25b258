//! The law of lending (protocol G3): memory moves between page frames, run blocks and memtables to
//! the side on which a little more of it saves the most reads. The law is pure: observations go in,
//! the next division comes out, and [`crate::memory_arbiter`] carries it out.
//!
//! Why: a table without secondary indexes uses no run blocks, a table that is read only through its
//! indexes uses few frames, and a database that is only read uses no memtables. Fixed shares left
//! such memory idle. A miss of an entry that left a short time ago (`io::GhostCache`) shows a read
//! that more memory would save (ARC: Megiddo and Modha 2003). Frames also take memory that run
//! blocks do not use at all before a page is evicted. No miss is needed for that, so a load larger
//! than the share of frames stays in memory for its first readers. This memory is on call: writers
//! of runs get it back for their blocks as soon as these have no room, unless frames were missed
//! meanwhile. Blocks take no memory from frames in this way, because a pool that shrinks evicts
//! pages in use, too.
//!
//! Invariants: the parts never add up to more than `total`, and no part falls below its minimum.
//! Memtables are whole again as soon as one fills, and builds keep what is lent to them: both are
//! required work (G2). The rest only affects speed.

/// A side asks for memory after one such miss for this many of the pages that a step holds.
pub(crate) const NAMES_PER_WAKE: u64 = 4;
/// One side takes from the other if it saves at least this many times as many reads.
const RATIO: u64 = 2;
/// Taking memory from idle memtables needs this many times as many misses.
const PATIENCE: u64 = 4;

/// The memory that the law divides, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lendable {
    pub total: u64,
    /// The division at rest.
    pub base: Division,
    pub frames_min: u64,
    pub blocks_min: u64,
    pub generation_min: u64,
    /// Bytes that move at a time.
    pub step: u64,
}

/// How much each part has, in bytes. There are two generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Page frames, with their overhead beside the page.
    pub frames: u64,
    pub blocks: u64,
    pub generation: u64,
    /// The part of `frames` that blocks did not use and get back on demand.
    pub on_call: u64,
}

/// Observations since memory last moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Missed pages that had left a short time ago.
    pub frame_hits: u64,
    /// Missed run blocks that had left a short time ago.
    pub block_hits: u64,
    /// Pages were evicted for want of frames.
    pub frames_are_full: bool,
    /// Blocks just written found no room.
    pub blocks_want: bool,
    /// Blocks found room while as many pages were evicted as there are.
    pub blocks_are_idle: bool,
    /// Bytes that blocks have and do not use now.
    pub blocks_unused: u64,
    /// Hits of one side that ask for a step.
    pub hits_per_step: u64,
    /// Generations that became full.
    pub full_generations: u64,
    /// Bytes in memtables now.
    pub memtable_bytes: u64,
    /// Bytes of run blocks lent to an index build now.
    pub lent_to_builds: u64,
    /// Bytes of run blocks lent to a third generation of memtables.
    pub lent_to_memtables: u64,
}

impl Seen {
    /// The observations are as old as the law ever waits for and have led to nothing: start again.
    pub(crate) fn is_old(&self) -> bool {
        self.frame_hits.max(self.block_hits) >= PATIENCE * self.hits_per_step.max(1)
    }
}

impl Division {
    pub(crate) fn sum(&self) -> u64 {
        self.frames + self.blocks + 2 * self.generation
    }
}

impl Lendable {
    /// For a division at rest whose frames may not fall below `frames_min`.
    pub(crate) fn new(base: Division, frames_min: u64) -> Lendable {
        let total = base.sum();
        Lendable {
            total,
            base,
            frames_min: (total / 6).max(frames_min).min(base.frames),
            blocks_min: (total / 12).min(base.blocks),
            generation_min: (base.generation / 8).max(2 << 20).min(base.generation),
            step: (total / 24).max(1),
        }
    }

    /// The division with which a log is redone. Redo reads pages back to memory and no runs, so
    /// blocks begin with their minimum.
    pub(crate) fn at_recovery(&self) -> Division {
        let blocks = self.blocks_min;
        Division { frames: self.base.frames + self.base.blocks - blocks, blocks, ..self.base }
    }

    /// The division of this memory in the proportions of `now`, a division of another total. Memory
    /// that is lent stays lent: a small change of the size does not evict pages that readers
    /// brought in.
    pub(crate) fn in_proportion(&self, now: Division) -> Division {
        let before = now.sum().max(1);
        let part =
            |bytes: u64| (u128::from(bytes) * u128::from(self.total) / u128::from(before)) as u64;
        let generation = part(now.generation).clamp(self.generation_min, self.base.generation);
        let left = self.total - 2 * generation;
        let blocks = part(now.blocks).max(self.blocks_min).min(left - self.frames_min);
        let frames = left - blocks;
        let on_call = part(now.on_call).min(frames.saturating_sub(self.base.frames));
        Division { frames, blocks, generation, on_call }
    }

    /// The next division after these observations; `now` itself if nothing moves.
    pub(crate) fn next(&self, now: Division, seen: &Seen) -> Division {
        let mut next = now;
        if seen.full_generations > 0 && now.generation < self.base.generation {
            next.generation = self.base.generation;
        } else if !self.use_what_is_idle(&mut next, seen) {
            self.follow_reads(&mut next, seen);
            let earned = next.frames.saturating_sub(now.frames);
            let given = next.blocks.saturating_sub(now.blocks);
            next.on_call = next.on_call.saturating_sub(earned + given);
        }
        let blocks_least = self.blocks_least(seen).min(self.base.blocks);
        self.fit(&mut next, blocks_least);
        next.on_call = next.on_call.min(next.frames.saturating_sub(self.base.frames));
        next
    }

    /// The minimum of blocks beside what is lent to builds. Builds take half of the blocks' own
    /// minimum, which frames then need not give, unless a third generation has some of it, too.
    fn blocks_least(&self, seen: &Seen) -> u64 {
        let half = self.blocks_min / 2;
        let own = half + seen.lent_to_memtables.min(self.blocks_min - half);
        self.blocks_min.max(own + seen.lent_to_builds)
    }

    /// Gives full frames the memory that blocks have beyond their use and one step, which blocks
    /// keep as a reserve. Less than half a step is not worth a move. Blocks that want it back get a
    /// step at a time. True if anything moves.
    fn use_what_is_idle(&self, next: &mut Division, seen: &Seen) -> bool {
        if seen.blocks_want && next.on_call > 0 {
            let moved = self.step.min(next.on_call);
            next.frames -= moved;
            next.blocks += moved;
            next.on_call -= moved;
            return true;
        }
        let blocks_least = self.blocks_least(seen);
        let idle = seen.blocks_unused.saturating_sub(self.step);
        let moved = idle.min(next.blocks.saturating_sub(blocks_least));
        let moves = seen.frames_are_full && seen.blocks_are_idle && moved >= self.step / 2;
        if moves {
            next.blocks -= moved;
            next.frames += moved;
            next.on_call += moved;
        }
        moves
    }

    fn follow_reads(&self, next: &mut Division, seen: &Seen) {
        let (frames, blocks) = (seen.frame_hits, seen.block_hits);
        let asked = frames.max(blocks);
        if asked < seen.hits_per_step.max(1) {
            return;
        }
        let for_frames = frames >= blocks;
        let (from, least, to) = match for_frames {
            true => (&mut next.blocks, self.blocks_min, &mut next.frames),
            false => (&mut next.frames, self.frames_min, &mut next.blocks),
        };
        if asked >= RATIO * frames.min(blocks) && *from > least {
            let moved = self.step.min(*from - least);
            *from -= moved;
            *to += moved;
            return;
        }
        // Neither side can give: take from memtables that were not full for long and would not be
        // full now.
        let half = (next.generation / 2).max(self.generation_min);
        let idle = seen.full_generations == 0 && seen.memtable_bytes <= half;
        if idle && half < next.generation && asked >= PATIENCE * seen.hits_per_step {
            *to += 2 * (next.generation - half);
            next.generation = half;
        }
    }

    /// Takes the excess from the parts that have more than at rest, and gives blocks their minimum.
    fn fit(&self, next: &mut Division, blocks_least: u64) {
        let over = |next: &Division| next.sum().saturating_sub(self.total);
        let take =
            |part: &mut u64, least: u64, bytes: u64| *part -= bytes.min(part.saturating_sub(least));
        let missing = blocks_least.saturating_sub(next.blocks);
        next.blocks += missing;
        let much = over(next);
        take(&mut next.frames, self.base.frames, much);
        let much = over(next);
        take(&mut next.blocks, blocks_least.max(self.base.blocks), much);
        // Blocks have their minimum and frames their size at rest. Either one of them has more than
        // at rest, or memtables have less, so this finds the remainder.
        let much = over(next);
        take(&mut next.frames, self.frames_min, much);
        let much = over(next);
        take(&mut next.blocks, blocks_least, much);
    }
}

#[cfg(test)]
#[path = "memory_law_tests.rs"]
mod tests;
