//! Which runs to merge: pure functions of the sizes of the runs, newest first.
//!
//! Under ingest, size-tiered: four or more neighbours of like size become one (three where places
//! are short); the oldest tier goes into the bottom run (the oldest of all) when it holds half of
//! its bytes. At rest: until at most 3 runs are left and the tiers hold at most 1/8 of the bottom
//! (D3).
//!
//! A merge into a large bottom takes as long as many generations take to come, and its inputs are
//! runs until its end. So it has two of them, there are places left beside it, and in these,
//! small merges go on (`docs/rfcs/0012-long-merges-take-few-places.md`):
//! - tiers <= `TIERS_MAX` while nothing is merged into the bottom, so that many places are free
//!   when such a merge begins;
//! - no merge begins while another that is under way frees a place for fewer bytes: what is locked
//!   early cannot be merged with what comes later.

use std::ops::Range;

/// Neighbours of like size that are merged.
const TIER_RUNS: usize = 4;
/// Where places are short: beside a merge into the bottom, or from `TIERS_MANY` tiers on.
const TIER_RUNS_SHORT: usize = 3;
const TIERS_MANY: usize = 5;
/// Tiers that are left while nothing is merged into the bottom.
const TIERS_MAX: usize = 6;
/// A neighbour is of like size if it is at most this many times the largest before it.
const LIKE: u64 = 2;
/// Runs beyond which anything cheap is merged.
pub(crate) const RUNS_HIGH: usize = 9;
/// Runs from which on ingest needs credit: with two sealed generations waiting, the limit is 12.
pub const RUNS_TRIGGER: usize = 10;
/// Runs that an index never has more of (D3).
pub const RUNS_LIMIT: usize = 12;
/// No merge is under way that frees a place.
pub const FREES_NOTHING: u64 = u64::MAX;
const RUNS_AT_REST: usize = 3;

/// Ingest is slow if a generation takes this long to fill, or below `SLOW_BYTES_PER_SEC`.
const SLOW_GENERATION_SEC: u64 = 16;
const SLOW_BYTES_PER_SEC: u64 = 256 << 10;

/// Which indexes may be merged further than ingest asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spare {
    /// None: ingest needs what there is.
    None,
    /// Those that were read since they were last merged: ingest is slow.
    Read,
    /// All: there is no ingest.
    All,
}

/// What may be merged to rest while entries come in at this rate.
pub(crate) fn spare_beside(bytes_per_sec: u64, generation_bytes: u64) -> Spare {
    match bytes_per_sec {
        0 => Spare::All,
        rate if rate <= SLOW_BYTES_PER_SEC.max(generation_bytes / SLOW_GENERATION_SEC) => {
            Spare::Read
        }
        _ => Spare::None,
    }
}

/// What is known of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub bytes: u64,
    /// Being merged.
    pub busy: bool,
    /// The output of that merge: it counts as no run.
    pub growing: bool,
    /// What is left of an input of a merge that was cut; its output stands before.
    pub left: bool,
}

/// The next merge of an index: which of its runs (newest first), and whether ingest needs it (G2).
/// Only neighbours that are not being merged are joined; a merge that was cut is finished first.
/// `freeing`: the fewest bytes that a merge of this index that ingest needs has left for each run
/// that goes.
pub(crate) fn choose(runs: &[Facts], may_rest: bool, freeing: u64) -> Option<(Range<usize>, bool)> {
    let sizes = |runs: &[Facts]| runs.iter().map(|r| r.bytes).collect::<Vec<u64>>();
    let total = runs.iter().filter(|r| !r.growing).count();
    let bottom_busy = runs.last().is_some_and(|r| r.busy);
    let mut start = 0;
    while start < runs.len() {
        let end = start + runs[start..].iter().take_while(|r| !r.busy).count();
        let free = &runs[start..end];
        let place = Place { has_bottom: end == runs.len(), bottom_busy, total };
        let found = unfinished(free).or_else(|| pick_ingest(&sizes(free), place, freeing));
        if let Some(range) = found {
            return Some((start + range.start..start + range.end, true));
        }
        start = end + 1;
    }
    let is_free = runs.iter().all(|r| !r.busy);
    let rest = if may_rest && is_free { pick_rest(&sizes(runs)) } else { None };
    rest.map(|range| (range, false))
}

/// Bytes for each run that goes when so many become one.
pub fn bytes_per_run(bytes: u64, inputs: usize) -> u64 {
    bytes / (inputs as u64).saturating_sub(1).max(1)
}

/// Which merge has the next beat: of (ingest needs it, bytes left) the one with the least left, as
/// runs go soonest then (Luo and Carey 2019); `only_required`: others have no seat.
pub fn next_merge(jobs: impl Iterator<Item = (bool, u64)>, only_required: bool) -> Option<usize> {
    let least = jobs.enumerate().min_by_key(|(_, (required, left))| {
        let must_wait = only_required && !required;
        (must_wait, *left)
    });
    least.map(|(i, _)| i)
}

/// The output of a merge that was cut and what is left of its inputs.
fn unfinished(runs: &[Facts]) -> Option<Range<usize>> {
    let first = runs.iter().position(|r| r.left)?;
    let count = runs[first..].iter().take_while(|r| r.left).count();
    let start = first.saturating_sub(1);
    Some(start..first + count).filter(|range| range.len() > 1)
}

/// What `choose` was given, as numbers.
pub(crate) fn numbers(runs: &[Facts], may_rest: bool, freeing: u64) -> Vec<u64> {
    let flags = |r: &Facts| u64::from(r.busy) | u64::from(r.growing) << 1 | u64::from(r.left) << 2;
    let runs = runs.iter().map(|r| r.bytes * 8 + flags(r));
    [u64::from(may_rest), freeing].into_iter().chain(runs).collect()
}

/// What `choose` says to such numbers: first run, end, whether ingest needs it; nothing if nothing
/// is to be merged. None: these are not its inputs.
pub fn decide_merge(inputs: &[u64]) -> Option<Vec<u64>> {
    let [may_rest, freeing, runs @ ..] = inputs else { return None };
    let is = |n: &u64, flag| n & flag != 0;
    let fact = |n| Facts { bytes: n / 8, busy: is(n, 1), growing: is(n, 2), left: is(n, 4) };
    let runs: Vec<Facts> = runs.iter().map(fact).collect();
    let chosen = choose(&runs, *may_rest != 0, *freeing);
    Some(chosen.map_or(Vec::new(), |(range, required)| {
        vec![range.start as u64, range.end as u64, u64::from(required)]
    }))
}

/// Where neighbours lie that are not being merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The last of them is the oldest run of the index.
    pub has_bottom: bool,
    /// That one is being merged.
    pub bottom_busy: bool,
    /// All runs of the index.
    pub total: usize,
}

/// The merge to begin under ingest among neighbours `sizes` (newest first, none being merged).
pub(crate) fn pick_ingest(sizes: &[u64], place: Place, freeing: u64) -> Option<Range<usize>> {
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

/// The first window of at least so many runs, each at most `LIKE` times the largest before.
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

/// The window that costs least.
fn cheapest(sizes: &[u64]) -> Option<Range<usize>> {
    let starts = 0..sizes.len();
    let windows = starts.flat_map(|start| (start + 2..=sizes.len()).map(move |end| start..end));
    windows.min_by_key(|window| cost(&sizes[window.clone()]))
}

/// What a merge costs, squared: its bytes for each run that goes, times the root of how often it
/// writes each byte that gets into a larger run by it. By the bytes alone the two youngest would be
/// joined each time, and the older of them written again for each generation that comes; by how
/// often alone, a merge would be begun that lasts longer than there are places for.
fn cost(window: &[u64]) -> u128 {
    let bytes: u128 = window.iter().map(|size| u128::from(*size)).sum();
    let largest = window.iter().copied().max().map_or(0, u128::from);
    let per_run = bytes / (window.len() as u128).saturating_sub(1).max(1);
    per_run.saturating_mul(per_run).saturating_mul(bytes) / (bytes - largest).max(1)
}

/// The merge to begin at rest; no run of the index is being merged.
pub(crate) fn pick_rest(sizes: &[u64]) -> Option<Range<usize>> {
    let (bottom, tiers) = sizes.split_last()?;
    let above: u64 = tiers.iter().sum();
    if !tiers.is_empty() && above.saturating_mul(8) > *bottom {
        return Some(0..sizes.len());
    }
    if sizes.len() <= RUNS_AT_REST {
        return None;
    }
    // The oldest tier stays as it is while it is much larger: small runs come one by one.
    let younger = tiers.len() - 1;
    let small: u64 = tiers[..younger].iter().sum();
    let end = if small.saturating_mul(2) >= tiers[younger] { tiers.len() } else { younger };
    Some(0..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All runs of an index, or neighbours above its bottom, which is free.
    fn ingest_of(sizes: &[u64], has_bottom: bool, total: usize) -> Option<Range<usize>> {
        pick_ingest(sizes, Place { has_bottom, bottom_busy: false, total }, FREES_NOTHING)
    }

    #[test]
    fn table() {
        let all = |sizes: &[u64]| ingest_of(sizes, true, sizes.len());
        assert_eq!(all(&[]), None);
        assert_eq!(all(&[1, 1, 1, 100]), None);
        assert_eq!(all(&[1, 1, 1, 1, 100]), Some(0..4));
        assert_eq!(all(&[1, 4, 4, 4, 4, 100]), Some(1..5));
        assert_eq!(all(&[1, 1, 1, 1, 4]), Some(0..4));
        assert_eq!(all(&[1, 1, 1, 1]), Some(0..4), "a bottom of like size goes along");
        // Two inputs alone, and not in an index of next to nothing.
        assert_eq!(all(&[1, 4, 12, 50, 100]), Some(3..5));
        assert_eq!(all(&[1, 4, 12, 49, 100]), None);
        assert_eq!(all(&[1, 2, 4]), None);
        // Places: three of like size from five tiers on, never more than six tiers.
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
    fn beside_a_merge_into_the_bottom() {
        let run = |bytes| Facts { bytes, ..Facts::default() };
        let busy = |bytes| Facts { busy: true, ..run(bytes) };
        let long = |young: &[u64]| -> Vec<Facts> {
            young.iter().map(|b| run(*b)).chain([busy(500), busy(1000)]).collect()
        };
        let next = |young: &[u64], freeing| choose(&long(young), false, freeing);
        assert_eq!(next(&[1, 1], 1500), None);
        assert_eq!(next(&[1, 1, 1], 1500), Some((0..3, true)));
        // Seven places are free for tiers; the cheapest where there are more.
        assert_eq!(next(&[1, 3, 9, 27, 81, 243, 486], 1500), None);
        assert_eq!(next(&[1, 3, 7, 15, 31, 63, 127, 255], 1500), Some((0..2, true)));
        // Not the same run again and again for each one that comes.
        assert_eq!(next(&[1, 6, 13, 40, 81, 163, 327, 655], 1500), Some((0..3, true)));
        assert_eq!(next(&[1, 20, 30, 80, 161, 323, 647, 900], 1500), Some((0..3, true)));
        // The long one is nearly done: it frees its place for less.
        assert_eq!(next(&[1, 3, 7, 15, 31, 63, 127, 255], 4), None);
        assert_eq!(next(&[1, 1, 1], 1), None);
    }

    #[test]
    fn the_least_left_is_next_and_what_ingest_needs_where_there_is_no_seat() {
        let jobs = [(true, 9), (false, 3), (true, 5)];
        assert_eq!(next_merge(jobs.into_iter(), false), Some(1));
        assert_eq!(next_merge(jobs.into_iter(), true), Some(2));
        assert_eq!(next_merge(jobs[1..2].iter().copied(), true), Some(0), "it waits for its seat");
        assert_eq!(next_merge([].into_iter(), false), None);
    }

    #[test]
    fn a_merge_that_was_cut_is_finished_first() {
        let run = |bytes| Facts { bytes, ..Facts::default() };
        let left = |bytes| Facts { left: true, ..run(bytes) };
        let cut = [run(1), run(50), left(10), left(30), run(100)];
        assert_eq!(choose(&cut, false, FREES_NOTHING), Some((1..4, true)));
        let numbers = numbers(&cut, false, FREES_NOTHING);
        assert_eq!(decide_merge(&numbers), Some(vec![1, 4, 1]));
        // Under way: output and inputs are busy, and the output is no run more.
        let busy = |fact| Facts { busy: true, ..fact };
        let growing = Facts { growing: true, ..busy(run(50)) };
        let mut runs = vec![run(1); 3];
        runs.extend([growing, busy(left(10)), busy(left(30))]);
        runs.extend([run(100), run(1000), run(10_000), run(100_000)]);
        assert_eq!((runs.len(), choose(&runs, true, FREES_NOTHING)), (10, None));
        runs[3].growing = false;
        assert_eq!(choose(&runs, true, FREES_NOTHING), Some((0..3, true)), "ten runs are many");
    }

    #[test]
    fn spare_depends_on_ingest() {
        assert_eq!(spare_beside(0, 32 << 20), Spare::All);
        assert_eq!(spare_beside(2 << 20, 32 << 20), Spare::Read);
        assert_eq!(spare_beside(3 << 20, 32 << 20), Spare::None);
        assert_eq!(spare_beside(200 << 10, 2 << 20), Spare::Read);
        assert_eq!(spare_beside(300 << 10, 2 << 20), Spare::None);
    }

    /// Flushes of one unit each, every merge done at once.
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
        fn rest_comes_to_rest(mut sizes in prop::collection::vec(1u64..1_000_000, 1..20)) {
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
