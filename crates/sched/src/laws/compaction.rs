//! The runs to compact: pure functions of the sizes of the runs, newest first.
//!
//! Under ingest, size-tiered: four or more neighbours of similar size become one (three where
//! places are short); the oldest tier is compacted into the bottom run (the oldest of all) when it
//! holds half of its bytes. At rest: until at most 3 runs are left and the tiers hold at most 1/8
//! of the bottom (D3). An index of which half is garbage is compacted even if it is one run; on a
//! full disk also one of which a sixteenth can be freed (G4).
//!
//! A compaction into a large bottom takes as long as many generations take to arrive, and its
//! inputs remain runs until its end. So it has two inputs, places are left beside it, and in these
//! places small compactions continue (`docs/rfcs/0012-compaction-picker-run-limits.md`):
//! - tiers <= `TIERS_MAX` while no compaction goes into the bottom, so that many places are free
//!   when one begins;
//! - no compaction begins while another one under way frees a place for fewer bytes: runs that are
//!   locked early cannot be compacted with later ones.

use crate::laws::depths::{
    RUNS_AT_REST, RUNS_HIGH, TIER_RUNS, TIER_RUNS_SHORT, TIERS_MANY, TIERS_MAX,
};
use std::cmp::Ordering;
use std::ops::Range;

/// A neighbour is of similar size if it is at most this many times the largest before it.
const LIKE: u64 = 2;
/// A run smaller than this part of a compaction's bytes is left out, and compacted with later runs.
const SMALL_PART: u128 = 64;
/// Threads that help the one that begins compactions, at most.
pub const COMPACTION_HELPERS_MAX: usize = 4;

/// Threads beside the one that begins compactions, half as many as cores. Even on a single core one
/// computes while the other waits for the disk.
pub fn compaction_helpers(cores: usize) -> usize {
    (cores / 2).clamp(1, COMPACTION_HELPERS_MAX)
}
/// No compaction is under way that frees a place.
pub const FREES_NOTHING: u64 = u64::MAX;
/// On a full disk a compaction frees at least this part of what it reads: more than the overhead of
/// the small files that it writes.
const FREEING_PART: u128 = 16;
/// At rest an index is compacted, even if it is one run, when this part of it is garbage.
const DEAD_PART: u128 = 2;

/// Ingest is slow if a generation takes this long to fill, or below `SLOW_BYTES_PER_SEC`.
const SLOW_GENERATION_SEC: u64 = 16;
const SLOW_BYTES_PER_SEC: u64 = 256 << 10;

/// The indexes that may be compacted beyond the needs of ingest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spare {
    /// None: ingest needs the capacity.
    None,
    /// Those that were read since their last compaction: ingest is slow.
    Read,
    /// All: there is no ingest.
    All,
}

/// Which compactions at rest are allowed while entries arrive at this rate.
pub fn spare_beside(bytes_per_sec: u64, generation_bytes: u64) -> Spare {
    match bytes_per_sec {
        0 => Spare::All,
        rate if rate <= SLOW_BYTES_PER_SEC.max(generation_bytes / SLOW_GENERATION_SEC) => {
            Spare::Read
        }
        _ => Spare::None,
    }
}

/// How far an index may be compacted beyond the needs of ingest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Not at all.
    No,
    /// Until it is at rest.
    Yes,
    /// The disk is full: only compactions that free space (G4).
    Freeing,
    /// Only indexes with much garbage.
    Dead,
}

/// The facts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its size on storage.
    pub bytes: u64,
    /// Bytes that a compaction of it down to the bottom frees: its DELs and as many hidden bytes.
    pub garbage: u64,
    /// Being compacted.
    pub busy: bool,
    /// The output of that compaction: it does not count as a run.
    pub growing: bool,
    /// The rest of an input of an interrupted compaction; its output precedes it.
    pub left: bool,
}

/// The next compaction of an index: its runs (newest first), and whether ingest needs it (G2). Only
/// neighbours that are not being compacted are joined; an interrupted compaction is finished first.
/// `freeing`: the fewest bytes that a compaction of this index that ingest needs has left per run
/// that it removes.
pub fn choose(runs: &[Facts], rest: Rest, freeing: u64) -> Option<(Range<usize>, bool)> {
    let sizes = |runs: &[Facts]| runs.iter().map(|r| r.bytes).collect::<Vec<u64>>();
    let total = runs.iter().filter(|r| !r.growing).count();
    let bottom_busy = runs.last().is_some_and(|r| r.busy);
    let mut start = 0;
    while start < runs.len() {
        let end = start + runs[start..].iter().take_while(|r| !r.busy).count();
        let free = &runs[start..end];
        let place = Neighbours { has_bottom: end == runs.len(), bottom_busy, total };
        let found = unfinished(free).or_else(|| pick_ingest(&sizes(free), place, freeing));
        if let Some(range) = found {
            return Some((start + range.start..start + range.end, true));
        }
        start = end + 1;
    }
    let is_free = runs.iter().all(|r| !r.busy);
    let found = match rest {
        Rest::Yes if is_free => pick_rest(&sizes(runs)),
        Rest::Freeing if is_free => pick_freeing(runs),
        Rest::Dead if is_free && is_dead(runs, DEAD_PART) => Some(0..runs.len()),
        _ => None,
    };
    found.map(|range| (range, false))
}

/// How often compactions move a byte that enters an index of `ratio` times the bytes that a
/// generation brings it: fitted to the behaviour of this picker (`docs/scale.md`).
pub fn passes(ratio: f64) -> f64 {
    let tiers = (ratio / 2.0).max(1.0).ln() / 4f64.ln();
    1.1 + 0.7 * tiers + 1.6 * (tiers - 2.6).max(0.0)
}

/// Bytes per removed run when `inputs` runs become one.
pub fn bytes_per_run(bytes: u64, inputs: usize) -> u64 {
    bytes / (inputs as u64).saturating_sub(1).max(1)
}

/// A compaction that waits for its next beat, or for its first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionTurn {
    /// Ingest needs it.
    pub required: bool,
    /// The runs of its index if ingest needs credit and the compaction is not a long one, else 0.
    pub owing_runs: usize,
    /// Bytes to read.
    pub left: u64,
    /// Its gain besides removing runs: entries of its inputs that readers passed over; on a full
    /// disk the bytes that it frees.
    pub gain: u64,
}

impl CompactionTurn {
    /// Of two compactions at rest the one with more gain per byte comes first (Smith's rule, a
    /// removed run counting as one entry): where reads skip most (D4).
    pub fn order(&self, other: &CompactionTurn) -> Ordering {
        let worth =
            |a: &CompactionTurn, b: &CompactionTurn| (u128::from(a.gain) + 1) * u128::from(b.left);
        (worth(other, self), self.left).cmp(&(worth(self, other), other.left))
    }

    /// The order of two that ingest needs.
    fn is_sooner(&self, other: &CompactionTurn) -> bool {
        (other.owing_runs, self.left) < (self.owing_runs, other.left)
    }

    fn precedes(&self, other: &CompactionTurn) -> bool {
        self.order(other) == Ordering::Less
    }
}

/// The compaction that has the next beat: the one with the least left, because runs are then
/// removed soonest (Luo and Carey 2019). But if ingest needs credit, one of the index with the most
/// runs, because that index limits all. Of those at rest only the first takes part.
/// `only_required`: others have no seat.
pub fn next_compaction(
    jobs: impl Iterator<Item = CompactionTurn>,
    only_required: bool,
) -> Option<usize> {
    let (mut required, mut rest) =
        (None::<(usize, CompactionTurn)>, None::<(usize, CompactionTurn)>);
    for (i, job) in jobs.enumerate() {
        let best = if job.required { &mut required } else { &mut rest };
        let is_better = |best: CompactionTurn| match job.required {
            true => job.is_sooner(&best),
            false => job.precedes(&best),
        };
        if best.is_none_or(|(_, best)| is_better(best)) {
            *best = Some((i, job));
        }
    }
    let first =
        |must: CompactionTurn, may: CompactionTurn| must.owing_runs > 0 || must.left <= may.left;
    let both = required.zip(rest).map(|(must, may)| only_required || first(must.1, may.1));
    let chosen = if both.unwrap_or(required.is_some()) { required } else { rest };
    chosen.map(|(i, _)| i)
}

/// The inputs of `next_compaction` as numbers.
pub fn turn_numbers(jobs: &[CompactionTurn], only_required: bool) -> Vec<u64> {
    let mut numbers = vec![u64::from(only_required)];
    for job in jobs {
        let kind = job.owing_runs as u64 * 2 + u64::from(job.required);
        numbers.extend([kind, job.left, job.gain]);
    }
    numbers
}

/// The answer of `next_compaction` to such numbers: the number of the compaction; empty if none has
/// a beat. None: these are not its inputs.
pub fn decide_turn(inputs: &[u64]) -> Option<Vec<u64>> {
    let (only_required, jobs) = inputs.split_first()?;
    let (jobs, []) = jobs.as_chunks::<3>() else { return None };
    let turn = |[kind, left, gain]: &[u64; 3]| CompactionTurn {
        required: kind % 2 == 1,
        owing_runs: (kind / 2) as usize,
        left: *left,
        gain: *gain,
    };
    let chosen = next_compaction(jobs.iter().map(turn), *only_required != 0);
    Some(chosen.into_iter().map(|at| at as u64).collect())
}

/// The compaction at rest to begin beside those under way: one that precedes all of them. So few
/// runs are locked at a time, and the index where reads skip most is first.
pub fn next_rest(
    wanted: impl Iterator<Item = CompactionTurn>,
    mut under_way: impl Iterator<Item = CompactionTurn>,
) -> Option<usize> {
    let mut best: Option<(usize, CompactionTurn)> = None;
    for (i, turn) in wanted.enumerate() {
        if best.is_none_or(|(_, best)| turn.precedes(&best)) {
            best = Some((i, turn));
        }
    }
    best.filter(|(_, best)| under_way.all(|job| job.required || best.precedes(&job))).map(|b| b.0)
}

/// The output of an interrupted compaction and the rest of its inputs.
fn unfinished(runs: &[Facts]) -> Option<Range<usize>> {
    let first = runs.iter().position(|r| r.left)?;
    let count = runs[first..].iter().take_while(|r| r.left).count();
    let start = first.saturating_sub(1);
    Some(start..first + count).filter(|range| range.len() > 1)
}

/// The inputs of `choose` as numbers, followed by the garbage of the runs where it counts.
pub fn numbers(runs: &[Facts], rest: Rest, freeing: u64) -> Vec<u64> {
    let flags = |r: &Facts| u64::from(r.busy) | u64::from(r.growing) << 1 | u64::from(r.left) << 2;
    let sizes = runs.iter().map(|r| r.bytes * 8 + flags(r));
    let counts = matches!(rest, Rest::Freeing | Rest::Dead);
    let garbage = if counts { runs } else { &[] }.iter().map(|r| r.garbage);
    [rest as u64, freeing].into_iter().chain(sizes).chain(garbage).collect()
}

/// The answer of `choose` to such numbers: first run, end, whether ingest needs it; empty if
/// nothing is to be compacted. None: these are not its inputs.
pub fn decide(inputs: &[u64]) -> Option<Vec<u64>> {
    let [rest, freeing, runs @ ..] = inputs else { return None };
    let (rest, (runs, garbage)) = match rest {
        0 => (Rest::No, (runs, &[][..])),
        2 => (Rest::Freeing, runs.split_at(runs.len() / 2)),
        3 => (Rest::Dead, runs.split_at(runs.len() / 2)),
        _ => (Rest::Yes, (runs, &[][..])),
    };
    let is = |n: &u64, flag| n & flag != 0;
    let fact = |(i, n): (usize, &u64)| Facts {
        bytes: n / 8,
        garbage: garbage.get(i).copied().unwrap_or(0),
        busy: is(n, 1),
        growing: is(n, 2),
        left: is(n, 4),
    };
    let runs: Vec<Facts> = runs.iter().enumerate().map(fact).collect();
    let chosen = choose(&runs, rest, *freeing);
    Some(chosen.map_or(Vec::new(), |(range, required)| {
        vec![range.start as u64, range.end as u64, u64::from(required)]
    }))
}

/// The position of neighbours that are not being compacted.
#[derive(Clone, Copy, Debug)]
pub struct Neighbours {
    /// The last of them is the bottom, the oldest run of the index.
    pub has_bottom: bool,
    /// The bottom is being compacted.
    pub bottom_busy: bool,
    /// All runs of the index.
    pub total: usize,
}

/// The compaction to begin under ingest among neighbours `sizes` (newest first, none being
/// compacted).
pub fn pick_ingest(sizes: &[u64], place: Neighbours, freeing: u64) -> Option<Range<usize>> {
    let tiers = if place.has_bottom { sizes.len().saturating_sub(1) } else { sizes.len() };
    if place.has_bottom && place.total >= TIER_RUNS {
        let like = like_neighbours(sizes, TIER_RUNS).filter(|range| range.end == sizes.len());
        if like.is_some() {
            return like;
        }
        if tiers > 0 && sizes[tiers - 1].saturating_mul(2) >= sizes[tiers] {
            return Some(tiers - 1..tiers + 1);
        }
    }
    let is_short = tiers >= TIERS_MANY || place.bottom_busy;
    let least = if is_short { TIER_RUNS_SHORT } else { TIER_RUNS };
    let others = place.total.saturating_sub(tiers);
    let free = RUNS_HIGH.saturating_sub(others);
    let most = if place.bottom_busy { free } else { free.min(TIERS_MAX) };
    let crowded = |sizes: &[u64]| if tiers > most { cheapest(sizes) } else { None };
    let tiers = &sizes[..tiers];
    let found = like_neighbours(tiers, least).or_else(|| crowded(tiers))?;
    let bytes = tiers[found.clone()].iter().sum();
    (bytes_per_run(bytes, found.len()) < freeing).then_some(found)
}

/// The first window of at least `least` runs, each at most `LIKE` times the largest before.
fn like_neighbours(sizes: &[u64], least: usize) -> Option<Range<usize>> {
    for start in 0..sizes.len() {
        let (mut end, mut largest) = (start + 1, sizes[start]);
        while end < sizes.len() && sizes[end] <= largest.saturating_mul(LIKE) {
            largest = largest.max(sizes[end]);
            end += 1;
        }
        if end - start >= least {
            return Some(start..end);
        }
    }
    None
}

/// The window with the least cost.
fn cheapest(sizes: &[u64]) -> Option<Range<usize>> {
    let starts = 0..sizes.len();
    let windows = starts.flat_map(|start| (start + 2..=sizes.len()).map(move |end| start..end));
    let windows = windows.filter(|window| !locks_a_small_run(&sizes[window.clone()]));
    windows.min_by_key(|window| cost(&sizes[window.clone()]))
}

/// The newest run is tiny compared with the others: it would be locked as long as the compaction
/// takes, together with the place in which later runs could be compacted cheaply.
fn locks_a_small_run(window: &[u64]) -> bool {
    let bytes: u128 = window.iter().map(|size| u128::from(*size)).sum();
    window.len() > 2 && u128::from(window[0]) * SMALL_PART < bytes
}

/// The cost of a compaction: its bytes per removed run, times how often it writes each byte that it
/// moves into a larger run. By the bytes alone the two newest runs would be joined each time, and
/// the older of them written again for each generation.
fn cost(window: &[u64]) -> u128 {
    let bytes: u128 = window.iter().map(|size| u128::from(*size)).sum();
    let largest = window.iter().copied().max().map_or(0, u128::from);
    let per_run = bytes / (window.len() as u128).saturating_sub(1).max(1);
    per_run.saturating_mul(bytes) / (bytes - largest).max(1)
}

/// The compaction to begin at rest; no run of the index is being compacted.
pub fn pick_rest(sizes: &[u64]) -> Option<Range<usize>> {
    let (bottom, tiers) = sizes.split_last()?;
    let above: u64 = tiers.iter().sum();
    if !tiers.is_empty() && above.saturating_mul(8) > *bottom {
        return Some(0..sizes.len());
    }
    if sizes.len() <= RUNS_AT_REST {
        return None;
    }
    // The oldest tier stays as it is while it is much larger, because small runs come one by one.
    let younger = tiers.len() - 1;
    let small: u64 = tiers[..younger].iter().sum();
    let end = if small.saturating_mul(2) >= tiers[younger] { tiers.len() } else { younger };
    Some(0..end)
}

/// True if this part of the bytes of runs is garbage.
fn is_dead(runs: &[Facts], part: u128) -> bool {
    let sum = |f: fn(&Facts) -> u64| runs.iter().map(|r| u128::from(f(r))).sum::<u128>();
    let garbage = sum(|r| r.garbage);
    garbage > 0 && garbage * part >= sum(|r| r.bytes)
}

/// True if a single run of this many bytes has enough garbage to be examined on a full disk.
pub fn is_worth_freeing(bytes: u64, garbage: u64) -> bool {
    is_dead(&[Facts { bytes, garbage, ..Facts::default() }], FREEING_PART)
}

/// True if the index is not at rest; none of the runs is being compacted.
pub fn is_restless(runs: &[Facts]) -> bool {
    let sizes: Vec<u64> = runs.iter().map(|r| r.bytes).collect();
    pick_rest(&sizes).is_some() || is_dead(runs, DEAD_PART)
}

/// Among runs that are not being compacted, those down to the bottom with the most garbage for
/// their size, if it is worth the pieces in which they are compacted on a full disk (G4).
fn pick_freeing(runs: &[Facts]) -> Option<Range<usize>> {
    let (mut bytes, mut all) = (0u128, 0u128);
    let mut best: Option<(u128, u128, usize)> = None;
    for (start, run) in runs.iter().enumerate().rev() {
        bytes += u128::from(run.bytes);
        all += u128::from(run.garbage);
        let garbage = all.min(bytes);
        let is_more = best.is_none_or(|(g, b, _)| garbage * b >= g * bytes);
        let is_some = runs.len() - start > 1 || runs.len() == 1;
        if is_some && garbage * FREEING_PART >= bytes && garbage > 0 && is_more {
            best = Some((garbage, bytes, start));
        }
    }
    best.map(|(_, _, start)| start..runs.len())
}

/// Bytes that a compaction of a run of `bytes` down to the bottom frees, there or beneath: a DEL is
/// removed with an entry that it hides, a superseded entry alone (if not by a DEL).
pub fn garbage(bytes: u64, entries: u64, deletes: u64, superseded: u64) -> u64 {
    let dead = (2 * u128::from(deletes.min(entries))).max(u128::from(superseded.min(entries)));
    (u128::from(bytes) * dead / u128::from(entries.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::depths::RUNS_TRIGGER;
    use proptest::prelude::*;

    /// All runs of an index, or neighbours above its bottom, which is not being compacted.
    fn ingest_of(sizes: &[u64], has_bottom: bool, total: usize) -> Option<Range<usize>> {
        pick_ingest(sizes, Neighbours { has_bottom, bottom_busy: false, total }, FREES_NOTHING)
    }

    #[test]
    fn ingest_compactions_pick_runs_of_like_size() {
        let all = |sizes: &[u64]| ingest_of(sizes, true, sizes.len());
        assert_eq!(all(&[]), None);
        assert_eq!(all(&[1, 1, 1, 100]), None);
        assert_eq!(all(&[1, 1, 1, 1, 100]), Some(0..4));
        assert_eq!(all(&[1, 4, 4, 4, 4, 100]), Some(1..5));
        assert_eq!(all(&[1, 1, 1, 1, 4]), Some(0..4));
        assert_eq!(all(&[1, 1, 1, 1]), Some(0..4), "a bottom of like size goes along");
        // Two inputs alone, and not in a tiny index.
        assert_eq!(all(&[1, 4, 12, 50, 100]), Some(3..5));
        assert_eq!(all(&[1, 4, 12, 49, 100]), None);
        assert_eq!(all(&[1, 2, 4]), None);
        // Places: three of similar size from five tiers on, never more than six tiers.
        assert_eq!(all(&[1, 1, 1, 9, 1000]), None);
        assert_eq!(all(&[1, 1, 1, 9, 50, 1000]), Some(0..3));
        assert_eq!(all(&[1, 3, 9, 27, 81, 243, 1000]), None);
        assert_eq!(all(&[1, 3, 9, 27, 81, 243, 729, 9999]), Some(0..2));
        assert_eq!(ingest_of(&[1, 1, 1, 1, 4, 16], false, 12), Some(0..4));
        assert_eq!(pick_rest(&[5]), None);
        assert_eq!(pick_rest(&[1, 1, 100]), None);
        assert_eq!(pick_rest(&[1, 1, 1, 100]), Some(0..3));
        assert_eq!(pick_rest(&[20, 100]), Some(0..2));
        assert_eq!(pick_rest(&[1, 1, 9, 100]), Some(0..2));
        assert_eq!(pick_rest(&[1, 4, 4, 100]), Some(0..3));
    }

    #[test]
    fn tiers_are_compacted_during_a_compaction_into_the_bottom() {
        let run = |bytes| Facts { bytes, ..Facts::default() };
        let busy = |bytes| Facts { busy: true, ..run(bytes) };
        let long = |young: &[u64]| -> Vec<Facts> {
            young.iter().map(|b| run(*b)).chain([busy(500), busy(1000)]).collect()
        };
        let next = |young: &[u64], freeing| choose(&long(young), Rest::No, freeing);
        assert_eq!(next(&[1, 1], 1500), None);
        assert_eq!(next(&[1, 1, 1], 1500), Some((0..3, true)));
        // Seven places are free for tiers; the cheapest window where there are more.
        assert_eq!(next(&[1, 3, 9, 27, 81, 243, 486], 1500), None);
        assert_eq!(next(&[1, 3, 9, 22, 46, 93, 187, 375], 1500), Some((0..2, true)));
        assert_eq!(next(&[1, 3, 7, 15, 31, 63, 127, 255], 1500), Some((0..3, true)));
        // Not the same run again for each one that comes.
        assert_eq!(next(&[1, 6, 13, 40, 81, 163, 327, 655], 1500), Some((0..3, true)));
        assert_eq!(next(&[1, 20, 30, 80, 161, 323, 647, 900], 1500), Some((0..3, true)));
        // The long one is nearly done: it frees its place for less.
        assert_eq!(next(&[1, 3, 7, 15, 31, 63, 127, 255], 4), None);
        assert_eq!(next(&[1, 1, 1], 1), None);
    }

    #[test]
    fn the_compaction_with_least_left_is_next_and_required_ones_need_no_seat() {
        let turn =
            |(required, left)| CompactionTurn { required, left, ..CompactionTurn::default() };
        let jobs = [(true, 9), (false, 3), (true, 5)].map(turn);
        assert_eq!(next_compaction(jobs.into_iter(), false), Some(1));
        assert_eq!(next_compaction(jobs.into_iter(), true), Some(2));
        assert_eq!(
            next_compaction(jobs[1..2].iter().copied(), true),
            Some(0),
            "it waits for its seat"
        );
        assert_eq!(next_compaction([].into_iter(), false), None);
        // The same for the numbers that are exported.
        for only_required in [false, true] {
            let said = next_compaction(jobs.into_iter(), only_required).map(|at| vec![at as u64]);
            assert_eq!(decide_turn(&turn_numbers(&jobs, only_required)), said);
        }
        assert_eq!(decide_turn(&[0]), Some(vec![]));
        assert_eq!((decide_turn(&[]), decide_turn(&[0, 1, 9])), (None, None));
        // If ingest needs credit, most runs first; among these the least left.
        let owing =
            |(owing_runs, left)| CompactionTurn { required: true, owing_runs, ..rest(left, 0) };
        let next = |jobs: &[CompactionTurn]| next_compaction(jobs.iter().copied(), false);
        let jobs = [(10, 5), (0, 1), (11, 900), (11, 800)].map(owing);
        assert_eq!(next(&jobs), Some(3));
        assert_eq!(next(&[rest(1, 9), jobs[0]]), Some(1), "before any that nobody needs");
        assert_eq!(next(&[rest(1, 0), jobs[1]]), Some(1));
    }

    /// G4.
    #[test]
    fn a_full_disk_compacts_the_run_with_the_highest_garbage_share() {
        let run = |(bytes, garbage)| Facts { bytes, garbage, ..Facts::default() };
        let next = |runs: &[(u64, u64)]| {
            let runs: Vec<Facts> = runs.iter().copied().map(run).collect();
            let chosen = choose(&runs, Rest::Freeing, FREES_NOTHING);
            let said = decide(&numbers(&runs, Rest::Freeing, FREES_NOTHING));
            let same =
                chosen.clone().map(|(r, must)| vec![r.start as u64, r.end as u64, u64::from(must)]);
            assert_eq!(said, Some(same.unwrap_or_default()));
            assert!(chosen.as_ref().is_none_or(|(_, required)| !required));
            chosen.map(|(range, _)| range)
        };
        assert_eq!(next(&[(10, 10)]), Some(0..1));
        assert_eq!(next(&[(32, 1)]), None, "not worth it");
        assert_eq!(next(&[(10, 0), (100, 0)]), None, "nothing is freed");
        assert_eq!(next(&[(20, 20), (100, 0)]), Some(0..2));
        assert_eq!(next(&[(5, 5), (100, 0)]), None, "not worth its pieces");
        assert_eq!(next(&[(30, 0), (5, 10), (3, 0)]), Some(1..3), "not more than there is");
        assert_eq!(next(&[(20, 0), (20, 20), (100, 0)]), Some(1..3));
        assert_eq!(next(&[(9, 9), (20, 20), (100, 0)]), Some(0..3));
        assert_eq!(next(&[(9, 0), (20, 0), (100, 90)]), Some(1..3), "what lies in the bottom too");
        let part = |deletes, superseded| garbage(100, 10, deletes, superseded);
        assert_eq!((part(0, 0), part(3, 0), part(9, 0)), (0, 60, 180));
        assert_eq!((part(3, 3), part(0, 3), part(1, 8)), (60, 30, 80));
        assert_eq!(garbage(0, 0, 0, 0), 0);
    }

    /// D4.
    #[test]
    fn runs_of_half_garbage_are_compacted_even_if_single() {
        let run = |(bytes, garbage)| Facts { bytes, garbage, ..Facts::default() };
        let next = |runs: &[(u64, u64)]| {
            let runs: Vec<Facts> = runs.iter().copied().map(run).collect();
            let chosen = choose(&runs, Rest::Dead, FREES_NOTHING);
            let said = decide(&numbers(&runs, Rest::Dead, FREES_NOTHING));
            let same = chosen.clone().map(|(r, _)| vec![r.start as u64, r.end as u64, 0]);
            assert_eq!(said, Some(same.unwrap_or_default()));
            assert_eq!(chosen.is_some(), is_restless(&runs));
            chosen.map(|(range, _)| range)
        };
        assert_eq!(next(&[(10, 5)]), Some(0..1));
        assert_eq!(next(&[(10, 4)]), None);
        assert_eq!(next(&[(1, 0), (100, 60)]), Some(0..2));
        assert_eq!(next(&[(0, 0)]), None);
        let busy = Facts { busy: true, ..run((10, 10)) };
        assert_eq!(choose(&[busy], Rest::Dead, FREES_NOTHING), None);
    }

    fn rest(left: u64, gain: u64) -> CompactionTurn {
        CompactionTurn { left, gain, ..CompactionTurn::default() }
    }

    /// D4.
    #[test]
    fn the_runs_whose_reads_skip_most_are_compacted_first() {
        let next = |jobs: &[CompactionTurn]| next_compaction(jobs.iter().copied(), false);
        assert_eq!(next(&[rest(100, 0), rest(100, 1)]), Some(1));
        assert_eq!(next(&[rest(100, 0), rest(1000, 1)]), Some(0), "for each byte");
        assert_eq!(next(&[rest(100, 0), rest(1000, 1000)]), Some(1));
        assert_eq!(next(&[rest(7, 0), rest(5, 0), rest(5, 0)]), Some(1), "the least left");
        // However much they skip, a required one with less left comes first.
        let must = CompactionTurn { required: true, ..rest(500, 0) };
        assert_eq!(next(&[rest(1000, 1 << 40), must]), Some(1));
        assert_eq!(next(&[rest(1000, 1 << 40), rest(10, 0), must]), Some(2));
        assert_eq!(next(&[rest(100, 1 << 40), rest(10, 0), must]), Some(0));
        let begin = |wanted: &[CompactionTurn], jobs: &[CompactionTurn]| {
            next_rest(wanted.iter().copied(), jobs.iter().copied())
        };
        assert_eq!(begin(&[rest(100, 0), rest(100, 9), rest(100, 3)], &[]), Some(1));
        assert_eq!(begin(&[rest(100, 9)], &[rest(100, 9)]), None, "one at a time");
        assert_eq!(begin(&[rest(100, 9)], &[rest(100, 8), must]), Some(0));
        assert_eq!(begin(&[], &[must]), None);
    }

    #[test]
    fn a_compaction_that_was_cut_is_finished_first() {
        let run = |bytes| Facts { bytes, ..Facts::default() };
        let left = |bytes| Facts { left: true, ..run(bytes) };
        let cut = [run(1), run(50), left(10), left(30), run(100)];
        assert_eq!(choose(&cut, Rest::No, FREES_NOTHING), Some((1..4, true)));
        let numbers = numbers(&cut, Rest::No, FREES_NOTHING);
        assert_eq!(decide(&numbers), Some(vec![1, 4, 1]));
        // Under way: output and inputs are busy, and the output does not count as a run.
        let busy = |fact| Facts { busy: true, ..fact };
        let growing = Facts { growing: true, ..busy(run(50)) };
        let mut runs = vec![run(1); 3];
        runs.extend([growing, busy(left(10)), busy(left(30))]);
        runs.extend([run(100), run(1000), run(10_000), run(100_000)]);
        assert_eq!((runs.len(), choose(&runs, Rest::Yes, FREES_NOTHING)), (10, None));
        runs[3].growing = false;
        assert_eq!(
            choose(&runs, Rest::Yes, FREES_NOTHING),
            Some((0..3, true)),
            "ten runs are many"
        );
    }

    #[test]
    fn spare_depends_on_ingest() {
        assert_eq!(spare_beside(0, 32 << 20), Spare::All);
        assert_eq!(spare_beside(2 << 20, 32 << 20), Spare::Read);
        assert_eq!(spare_beside(3 << 20, 32 << 20), Spare::None);
        assert_eq!(spare_beside(200 << 10, 2 << 20), Spare::Read);
        assert_eq!(spare_beside(300 << 10, 2 << 20), Spare::None);
    }

    /// Flushes of one unit each, every compaction done at once.
    fn ingest(flushes: usize) -> (usize, f64) {
        let (mut runs, mut written, mut most) = (Vec::<u64>::new(), 0u64, 0);
        for _ in 0..flushes {
            runs.insert(0, 1000);
            written += 1000;
            while let Some(range) = ingest_of(&runs, true, runs.len()) {
                let sum = runs[range.clone()].iter().sum();
                written += sum;
                runs.splice(range, [sum]);
            }
            most = most.max(runs.len());
        }
        (most, written as f64 / (flushes as f64 * 1000.0))
    }

    #[test]
    fn steady_ingest_is_bounded_in_runs_and_bytes() {
        for flushes in [10, 50, 128, 400, 1000] {
            let (most, passes) = ingest(flushes);
            assert!(most < RUNS_TRIGGER, "{flushes} flushes: {most} runs");
            assert!(passes <= 9.0, "{flushes} flushes: each byte written {passes} times");
        }
    }

    proptest! {
        #[test]
        fn picks_are_windows_of_two_or_more(
            sizes in prop::collection::vec(1u64..1_000_000, 0..20),
            bottom: bool,
        ) {
            let picks = [ingest_of(&sizes, bottom, sizes.len()), pick_rest(&sizes)];
            for range in picks.into_iter().flatten() {
                prop_assert!(range.len() >= 2 && range.end <= sizes.len());
            }
            if sizes.len() > RUNS_HIGH {
                prop_assert!(ingest_of(&sizes, bottom, sizes.len()).is_some());
            }
        }

        #[test]
        fn a_compaction_on_a_full_disk_frees_space_and_reaches_the_bottom(
            runs in prop::collection::vec((1u64..1 << 50, 0u64..9), 0..12),
        ) {
            let run = |(bytes, part): &(u64, u64)| {
                Facts { bytes: *bytes, garbage: bytes / 8 * part, ..Facts::default() }
            };
            let runs: Vec<Facts> = runs.iter().map(run).collect();
            if let Some(range) = pick_freeing(&runs) {
                prop_assert!((range.len() > 1 || runs.len() == 1) && range.end == runs.len());
                let sum = |f: fn(&Facts) -> u64| runs[range.clone()].iter().map(f).sum::<u64>();
                prop_assert!(sum(|r| r.garbage) >= sum(|r| r.bytes) / 16);
            }
        }

        #[test]
        fn optional_compactions_have_one_order(
            jobs in prop::collection::vec((1u64..u64::MAX, 0u64..u64::MAX), 1..9),
            gain in 0u64..u64::MAX,
        ) {
            let jobs: Vec<_> = jobs.into_iter().map(|(left, n)| rest(left, n)).collect();
            for (a, b) in jobs.iter().zip(jobs.iter().rev()) {
                prop_assert!(!(a.precedes(b) && b.precedes(a)));
                prop_assert!(a.precedes(b) || b.precedes(a) || a.left == b.left);
            }
            // The first precedes all others, and still does when readers skip more of it.
            let first = next_compaction(jobs.iter().copied(), false).expect("one");
            prop_assert!(jobs.iter().all(|job| !job.precedes(&jobs[first])));
            let mut more = jobs.clone();
            more[first].gain = more[first].gain.max(gain);
            prop_assert_eq!(next_compaction(more.into_iter(), false), Some(first));
            prop_assert!(next_rest(jobs.iter().copied(), jobs.iter().copied()).is_none());
        }

        #[test]
        fn optional_compactions_end(mut sizes in prop::collection::vec(1u64..1_000_000, 1..20)) {
            for _ in 0..3 {
                let Some(range) = pick_rest(&sizes) else { break };
                let sum = sizes[range.clone()].iter().sum();
                sizes.splice(range, [sum]);
            }
            prop_assert_eq!(pick_rest(&sizes), None);
            prop_assert!(sizes.len() <= 3);
        }
    }
}
