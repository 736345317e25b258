//! The law of lending by tables and by properties.

use super::*;
use crate::memory::memory_budget::MemoryBudget;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const REST: Division =
    Division { frames: 56 * MIB, blocks: 80 * MIB, generation: 32 * MIB, on_call: 0 };

fn lendable() -> Lendable {
    Lendable::new(REST, MIB)
}

fn seen(frame_hits: u64, block_hits: u64) -> Seen {
    Seen { frame_hits, block_hits, hits_per_step: 100, ..Seen::default() }
}

/// Applies the law `times` times with the same observations.
fn often(now: Division, seen: &Seen, times: usize) -> Division {
    (0..times).fold(now, |now, _| lendable().next(now, seen))
}

#[test]
fn memory_moves_only_on_need() {
    let law = lendable();
    for idle in [seen(0, 0), seen(99, 0), seen(0, 99), seen(150, 100), seen(100, 199)] {
        assert_eq!(law.next(REST, &idle), REST, "{idle:?}");
    }
    let busy = Seen { full_generations: 3, ..seen(150, 140) };
    assert_eq!(law.next(REST, &busy), REST, "a generation at its size has nothing to get back");
}

#[test]
fn readers_get_memory_in_steps_up_to_all_that_may_be_lent() {
    let law = lendable();
    let one = law.next(REST, &seen(100, 50));
    assert_eq!(one.frames, REST.frames + law.step);
    assert_eq!(one.sum(), law.total);
    // Patience: memtables lend after more reads than blocks do.
    let some = often(REST, &seen(100, 0), 100);
    assert_eq!((some.blocks, some.generation), (law.blocks_min, REST.generation));
    let all = often(REST, &seen(400, 0), 100);
    assert_eq!((all.blocks, all.generation), (law.blocks_min, law.generation_min));
    assert_eq!(all.sum(), law.total);
    let back = often(all, &seen(0, 400), 100);
    assert_eq!((back.frames, back.generation), (law.frames_min, law.generation_min));
    assert_eq!(back.sum(), law.total);
}

#[test]
fn frames_and_blocks_share_the_memory_that_memtables_lend() {
    let all = often(REST, &seen(410, 400), 100);
    assert_eq!(all.blocks, REST.blocks);
    assert_eq!(all.generation, lendable().generation_min);
    let full = Seen { memtable_bytes: 20 * MIB, ..seen(410, 400) };
    assert_eq!(
        lendable().next(REST, &full),
        REST,
        "half a generation would not hold what is there"
    );
}

#[test]
fn a_full_memtable_gets_its_size_back_at_once() {
    let all = often(REST, &seen(400, 0), 100);
    let next = lendable().next(all, &Seen { full_generations: 1, ..seen(10_000, 0) });
    assert_eq!(next.generation, REST.generation);
    assert_eq!(next.sum(), lendable().total);
    assert_eq!(next.blocks, lendable().blocks_min, "frames give back what they had of memtables");
}

#[test]
fn a_build_keeps_the_memory_lent_to_it() {
    let law = lendable();
    let all = often(REST, &seen(400, 0), 100);
    let lent = Seen { lent_to_builds: 60 * MIB, ..seen(0, 0) };
    let next = law.next(all, &lent);
    assert_eq!(next.blocks, law.blocks_min / 2 + 60 * MIB);
    assert_eq!(next.sum(), law.total);
    // Half of the blocks' minimum comes from blocks alone.
    let few = Seen { lent_to_builds: law.blocks_min / 2, ..seen(0, 0) };
    assert_eq!(law.next(all, &few), all);
    // Unless a third generation has some of it.
    for (has, least) in [(1, law.blocks_min / 2 + 1), (REST.generation, law.blocks_min)] {
        let third = Seen { lent_to_memtables: has, ..lent };
        assert_eq!(law.next(all, &third).blocks, least + 60 * MIB);
    }
    // While that generation has it, frames cannot take it, however much they read.
    assert_eq!(
        often(next, &Seen { lent_to_builds: 60 * MIB, ..seen(4000, 0) }, 50).blocks,
        next.blocks
    );
}

/// Frames are full, and blocks leave this many bytes unused.
fn idle(blocks_unused: u64) -> Seen {
    let (frames_are_full, blocks_are_idle) = (true, true);
    Seen { frames_are_full, blocks_are_idle, blocks_unused, ..seen(0, 0) }
}

#[test]
fn full_frames_take_all_but_a_step_of_the_unused_block_memory() {
    let law = lendable();
    let loaded = law.next(REST, &idle(50 * MIB));
    assert_eq!(loaded.frames, REST.frames + 50 * MIB - law.step);
    assert_eq!((loaded.sum(), loaded.generation), (law.total, REST.generation));
    assert_eq!(law.next(REST, &idle(REST.blocks)).blocks, law.blocks_min, "they keep their least");
    // The reserve of blocks, and a remainder that is not worth a move.
    for unused in [0, law.step, law.step * 5 / 4] {
        assert_eq!(law.next(REST, &idle(unused)), REST);
    }
    let fits = Seen { frames_are_full: false, ..idle(50 * MIB) };
    assert_eq!(law.next(REST, &fits), REST, "who lets nothing go needs nothing");
    let not_long = Seen { blocks_are_idle: false, ..idle(50 * MIB) };
    assert_eq!(law.next(REST, &not_long), REST, "they wanted it a short time ago");
    // Memory lent to a build is in use.
    let lent = Seen { lent_to_builds: 50 * MIB, ..idle(60 * MIB) };
    assert_eq!(law.next(REST, &lent).blocks, law.blocks_min / 2 + 50 * MIB);
}

#[test]
fn blocks_get_back_their_unused_memory_and_no_more() {
    let law = lendable();
    let loaded = law.next(REST, &idle(50 * MIB));
    let wanted = Seen { blocks_want: true, blocks_are_idle: false, ..idle(0) };
    let one = law.next(loaded, &wanted);
    assert_eq!((one.blocks, one.sum()), (loaded.blocks + law.step, law.total));
    assert_eq!(often(loaded, &wanted, 100), REST);
    assert_eq!(law.next(REST, &wanted), REST, "at rest they have their share");
    // Memory that frames miss is not on call.
    let read = often(loaded, &seen(100, 0), 100);
    assert_eq!(read.blocks, law.blocks_min);
    assert_eq!(often(read, &wanted, 100).blocks, read.blocks + read.on_call);
    assert!(read.on_call < loaded.on_call);
    // Blocks that are read again get back what they lost, counted once.
    let back = often(loaded, &seen(0, 100), 100);
    assert_eq!((back.frames, back.on_call), (law.frames_min, 0));
}

proptest! {
    /// After any observations in any order no part is below its minimum, the sum is never above the
    /// total, and no memory is left over.
    #[test]
    fn parts_add_up_and_keep_their_minimums(
        rest in (64u64..4000, 64u64..4000, 1u64..1000),
        steps in prop::collection::vec(
            (0u64..500, 0u64..500, 0u64..2, 0u64..40, 0u64..3, (0u64..5, 0u64..3)),
            1..60,
        ),
    ) {
        let [frames, blocks, generation] = [rest.0 << 16, rest.1 << 16, rest.2 << 16];
        let base = Division { frames, blocks, generation, on_call: 0 };
        let law = Lendable::new(base, 1 << 20);
        let mut now = base;
        for (frame_hits, block_hits, full_generations, filled, lent, unused) in steps {
            let seen = Seen {
                frame_hits,
                block_hits,
                frames_are_full: unused.0 > 1,
                blocks_want: unused.1 == 2,
                blocks_are_idle: unused.1 == 0,
                blocks_unused: now.blocks / 4 * unused.0,
                hits_per_step: 50,
                full_generations,
                memtable_bytes: filled * now.generation / 20,
                lent_to_builds: lent * base.blocks / 3,
                lent_to_memtables: full_generations * generation,
            };
            let next = law.next(now, &seen);
            prop_assert_eq!(next.sum(), law.total, "{:?} {:?} -> {:?}", now, seen, next);
            prop_assert!(next.frames >= law.frames_min && next.blocks >= law.blocks_min);
            prop_assert!(next.generation >= law.generation_min);
            prop_assert!(next.generation <= base.generation);
            prop_assert!(next.on_call <= next.frames.saturating_sub(base.frames));
            let with_build = law.blocks_min / 2 + seen.lent_to_builds;
            let blocks_least = law.blocks_min.max(with_build).min(base.blocks);
            prop_assert!(next.blocks >= blocks_least, "{:?} {:?}", next, blocks_least);
            now = next;
        }
    }
}

#[test]
fn redo_borrows_the_memory_of_run_blocks_until_they_are_read() {
    let law = lendable();
    let redo = law.at_recovery();
    assert_eq!((redo.sum(), redo.blocks), (law.total, law.blocks_min));
    assert_eq!(redo.generation, REST.generation);
    let back = often(redo, &seen(0, 100), 100);
    assert!(back.blocks >= REST.blocks, "{back:?}");
}

#[test]
fn a_new_size_keeps_what_is_lent() {
    let law = lendable();
    let all = often(REST, &seen(400, 0), 100);
    let more = MemoryBudget::of(law.total * 2 / 26 * 32).lendable(MIB);
    let next = more.in_proportion(all);
    assert!(next.frames > all.frames * 3 / 2, "{next:?}");
    assert_eq!(next.sum(), more.total);
}

proptest! {
    /// A change of the size from any division to any size keeps the sum and each minimum.
    #[test]
    fn a_new_size_is_divided_whole(
        before in 16..20_000u64, after in 16..20_000u64, frame_hits in 0..1000u64,
        block_hits in 0..1000u64, times in 0..100usize,
    ) {
        let lendable = |mib: u64| MemoryBudget::of(mib * MIB).lendable(MIB);
        let (old, new) = (lendable(before), lendable(after));
        let seen = seen(frame_hits, block_hits);
        let now = (0..times).fold(old.base, |now, _| old.next(now, &seen));
        let next = new.in_proportion(now);
        prop_assert_eq!(next.sum(), new.total);
        prop_assert!(next.frames >= new.frames_min && next.blocks >= new.blocks_min);
        prop_assert!((new.generation_min..=new.base.generation).contains(&next.generation));
        prop_assert!(next.on_call <= next.frames.saturating_sub(new.base.frames));
        prop_assert_eq!(new.in_proportion(new.base).sum(), new.total);
    }
}
