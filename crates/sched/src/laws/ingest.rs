//! The laws between ingest, memtables and compactions (G1): the result of a reservation of memtable
//! bytes, when a generation is handed over, the credit that compactions pay and the credit that
//! ingest spends, the rates of ingest. The crate `runs` evaluates them and carries them out.

use crate::UNLIMITED;
use crate::laws::depths::{Depth, GENERATIONS_MAX, RUNS_HIGH, RUNS_LIMIT, Stage, TIER_RUNS};
use evenkeel_base::journal::Law;

/// When debt begins, one part in this many of a generation is credit.
pub const ADVANCE_PART: u64 = 8;
/// The longest time of a KiB: it has four rows or more, at 1 ms each.
const PACE_NS_MAX: u64 = 4_000_000;
/// Compactions are measured over this time.
pub const WINDOW_NS: u64 = 500_000_000;
/// The weight of a new measurement in the average: one part in this many.
pub const PART: u64 = 4;
const DELAY_NS_MAX: u64 = 1_000_000;
/// The longest time to flush a KiB of a generation: 100 KB/s.
const FLUSH_NS_MAX: u64 = 10_000_000;
/// A flush that is not urgent takes this part of the time in which its generation was filled,
const FLUSH_PART: u64 = 4;
/// and at most this time.
const FLUSH_NS_LONGEST: u64 = 10_000_000_000;
/// Its longest rest after one beat.
const FLUSH_REST_NS_MAX: u64 = 100_000_000;
/// A low guess of the flush rate, for delays: 100 MB/s.
const NS_PER_BYTE: u64 = 10;
/// With less room than this part of a generation, ingest is not slowed further; credit stops it.
const ROOM_PART: u64 = 4;
/// Of the last generation, these bytes and a part are free at once, and a part at the end of a
/// flush.
const FREE_BYTES: u64 = 1 << 20;
const PART_AT_ONCE: u64 = 8;
const PART_AT_END: u64 = 4;

/// What a reservation, or the checkpointer, sees of the generations in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generations {
    /// Requested bytes; 0: the checkpointer asks.
    pub wanted: u64,
    /// Bytes of the active generation.
    pub active: u64,
    /// Bytes reserved in it by other operations.
    pub reserved: u64,
    /// The number of generations.
    pub count: u64,
    /// Bytes at which a generation is full.
    pub limit: u64,
    /// The log position that the active generation holds, and the one that the checkpoint must
    /// reach.
    pub low_lsn: u64,
    /// See `low_lsn`.
    pub needed_lsn: u64,
    /// The part of the oldest generation that is flushed, in thousandths.
    pub flushed_permille: u64,
    /// The rate of a flush, nanoseconds for a KiB; 0: unknown.
    pub flush_ns_per_kib: u64,
}

/// The result of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is room.
    Taken,
    /// The active generation is handed over because it is full; then there is room.
    HandOver,
    /// The limit of sealed generations is reached: wait until more of the oldest is flushed.
    Full,
    /// There is room, after a delay of this many nanoseconds.
    Tight(u64),
    /// There is room, at the rate of a flush: after the time of its bytes, in the shared queue.
    RateLimiter,
    /// The active generation is handed over because it holds the log.
    HandOverForLog,
}

/// The law of the generations: see [`Room`].
pub fn room(g: &Generations) -> Room {
    let may_grow = g.count < GENERATIONS_MAX as u64;
    if g.low_lsn < g.needed_lsn && may_grow {
        return Room::HandOverForLog;
    }
    let used = g.active.saturating_add(g.reserved).saturating_add(g.wanted);
    let most = if may_grow { g.limit } else { allowed_bytes(g.limit, g.flushed_permille) };
    // One operation may exceed a generation of its own.
    if used > most && g.active > 0 {
        return if may_grow { Room::HandOver } else { Room::Full };
    }
    if may_grow {
        return Room::Taken;
    }
    if g.flush_ns_per_kib > 0 {
        return Room::RateLimiter;
    }
    Room::Tight(tight_ns(g.wanted, used, g.limit))
}

/// Bytes that the active generation may hold while the limit of sealed generations is reached: some
/// at once, more as the entries of the oldest one are written, and the rest when all of them are
/// written, because the end of a flush takes time. So inserts proceed at the rate of the flush, and
/// none waits for a whole flush.
pub fn allowed_bytes(limit: u64, flushed_permille: u64) -> u64 {
    if flushed_permille >= 1000 {
        return limit;
    }
    let most = limit - limit / PART_AT_END;
    let free = (limit / PART_AT_ONCE).saturating_add(FREE_BYTES).min(most);
    free + (u128::from(most - free) * u128::from(flushed_permille) / 1000) as u64
}

/// The delay in nanoseconds of an operation of `wanted` bytes that makes the active generation hold
/// `used` of `limit` bytes while the limit of sealed generations is reached.
pub fn tight_ns(wanted: u64, used: u64, limit: u64) -> u64 {
    let whole = wanted.saturating_mul(NS_PER_BYTE);
    let ns = whole.saturating_mul(used.saturating_mul(2)) / limit.max(1);
    ns.clamp(1, DELAY_NS_MAX)
}

/// The payment of a beat of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paid {
    /// Credit for ingest.
    pub credit: u64,
    /// What the compaction still has to pay.
    pub unpaid: u64,
}

/// The law of credit: `done` of the bytes that a compaction had `left` pay their part of the unpaid
/// amount, divided among the indexes in debt. Together with the credit `before` it never exceeds
/// `room`.
pub fn credit(unpaid: u64, done: u64, left: u64, debtors: u64, room: u64, before: u64) -> Paid {
    let (pays, debtors) = (credit_bytes(unpaid, done, left), debtors.max(1));
    let credit = (pays / debtors).min(room.saturating_sub(before));
    Paid { credit, unpaid: unpaid.saturating_sub(pays.min(credit.saturating_mul(debtors))) }
}

/// The work that compactions owe, and the ingest that has room until it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// Bytes that compactions have to move.
    pub bytes: u64,
    /// Memtable bytes that have room meanwhile.
    pub room: u64,
}

/// Bytes that compactions have to move to remove a run of an index, where the compaction that ends
/// first has `left` bytes. A long compaction counts as none: until it ends, smaller ones of later
/// runs continue beside it ([`crate::laws::compaction`]).
pub fn owed_bytes(left: u64, newest_run_bytes: u64) -> u64 {
    let most = newest_run_bytes.saturating_mul(2 * TIER_RUNS as u64);
    if left <= most { left } else { 0 }
}

/// The tightest work that compactions owe. `indexes` are those being compacted, with their runs and
/// the bytes that they owe (`owed_bytes`). Each index with at least the urgent number of runs must
/// lose a run before ingest has filled its last place (`generation_bytes` each, of which `sealed`
/// are filled and `active` bytes of one more).
pub fn tightest(
    mut indexes: Vec<(u64, u64)>,
    sealed: usize,
    active: u64,
    generation_bytes: u64,
) -> Owed {
    indexes.sort_unstable_by_key(|(runs, _)| std::cmp::Reverse(*runs));
    let (mut tightest, mut bytes) = (Owed::default(), 0u64);
    for (runs, left) in indexes.into_iter().filter(|(runs, _)| *runs >= RUNS_HIGH as u64) {
        bytes = bytes.saturating_add(left);
        let room = room_bytes(runs as usize, sealed, active, generation_bytes);
        let room = if room > 0 { room.max(generation_bytes / ROOM_PART) } else { 0 };
        let ratio = |a: u64, b: u64| u128::from(a) * u128::from(b.max(1));
        // Without room only credit counts.
        if room > 0 && ratio(bytes, tightest.room) >= ratio(tightest.bytes, room) {
            tightest = Owed { bytes, room };
        }
    }
    tightest
}

/// Nanoseconds for a KiB of memtable bytes; 0: unlimited. `runs`: the most runs of an index that is
/// being compacted. The other parameters are the bytes that compactions move per second, and the
/// bytes that they will have to move for the KiB. With ten runs ingest gets a little less than
/// compactions can sustain; and never more than fits until they have done the work that they owe
/// (`tightest`).
pub fn pace_ns(
    runs: u64,
    compaction_bytes_per_sec: u64,
    compaction_bytes_per_kib: u64,
    owed: Owed,
) -> u64 {
    let depth = Depth::of(runs);
    if depth.stage == Stage::Free || compaction_bytes_per_sec == 0 {
        return 0;
    }
    let takes =
        |bytes: u64| u128::from(bytes) * 1_000_000_000 / u128::from(compaction_bytes_per_sec);
    let for_ever = takes(compaction_bytes_per_kib) * 100 / u128::from(depth.ingest_percent);
    let until_done = takes(owed.bytes) * 1024 / u128::from(owed.room.max(1));
    for_ever.max(until_done).min(u128::from(PACE_NS_MAX)) as u64
}

/// Bytes per second that compactions move, averaged from the `known` value and a measurement of
/// `bytes` in `ns`. None: the time is too short for a measurement.
pub fn compaction_rate(known: u64, bytes: u64, ns: u64) -> Option<u64> {
    if ns < WINDOW_NS {
        return None;
    }
    let rate = (u128::from(bytes) * 1_000_000_000 / u128::from(ns)) as u64;
    let average = if known == 0 { rate } else { (known * (PART - 1) + rate) / PART };
    Some(average.max(1))
}

/// Nanoseconds to flush a KiB of a generation: the average of the last few flushes, from the
/// `known` value and a flush of `bytes` that took `took_ns`.
pub fn flush_ns_per_kib(known: u64, bytes: u64, took_ns: u64) -> u64 {
    let new = u128::from(took_ns) * 1024 / u128::from(bytes.max(1));
    let new = u64::try_from(new).unwrap_or(u64::MAX).clamp(1, FLUSH_NS_MAX);
    if known == 0 { new } else { (known.min(FLUSH_NS_MAX) * 3 + new) / 4 }
}

/// The rate limit of ingest during a flush, nanoseconds for a KiB; 0: unknown. Flushes took
/// `whole_ns` for one KiB, of which `entries_ns` until all entries were written; this one has
/// written `done` bytes in `took_ns`. If it is slower than the others, its end is taken to be as
/// much slower.
pub fn flush_pace_ns(whole_ns: u64, entries_ns: u64, done: u64, took_ns: u64) -> u64 {
    if done == 0 {
        return whole_ns;
    }
    let now = u128::from(flush_ns_per_kib(0, done, took_ns));
    if entries_ns == 0 {
        // The first flush: its end may take as long as a part of it.
        return (now * 4 / 3) as u64;
    }
    let slower = u128::from(whole_ns) * now / u128::from(entries_ns);
    whole_ns.max(slower.min(u128::from(FLUSH_NS_MAX)) as u64)
}

/// How long a flush rests that has done `done_permille` since it began `took_ns` ago (rests
/// included), if the generation was filled in `fill_ns` (0: unknown) and no other waits. It takes a
/// quarter of that time, or 10 s, whichever is less: at full speed it would take a part of a
/// processor from users for a second, for no benefit.
pub fn flush_rest_ns(done_permille: u64, took_ns: u64, fill_ns: u64) -> u64 {
    let whole = (fill_ns / FLUSH_PART).min(FLUSH_NS_LONGEST);
    let due = whole / 1000 * done_permille.min(1000);
    due.saturating_sub(took_ns).min(FLUSH_REST_NS_MAX)
}

/// The credit left after `bytes`; none: ingest must wait for more.
pub fn spend(credit: u64, bytes: u64) -> Option<u64> {
    credit.checked_sub(bytes)
}

impl Generations {
    /// The inverse of `numbers`.
    fn from_numbers(numbers: &[u64]) -> Option<Generations> {
        let &[wanted, active, reserved, count, limit, low_lsn, needed_lsn, part, pace] = numbers
        else {
            return None;
        };
        let (flushed_permille, flush_ns_per_kib) = (part, pace);
        Some(Generations {
            wanted,
            active,
            reserved,
            count,
            limit,
            low_lsn,
            needed_lsn,
            flushed_permille,
            flush_ns_per_kib,
        })
    }

    /// In the form of the journal.
    pub fn numbers(&self) -> Vec<u64> {
        let g = *self;
        let of_log = [g.low_lsn, g.needed_lsn];
        let of_flush = [g.flushed_permille, g.flush_ns_per_kib];
        [&[g.wanted, g.active, g.reserved, g.count, g.limit][..], &of_log, &of_flush].concat()
    }
}

impl Room {
    /// In the form of the journal.
    pub fn numbers(self) -> Vec<u64> {
        match self {
            Room::Taken => vec![0, 0],
            Room::HandOver => vec![1, 0],
            Room::Full => vec![2, 0],
            Room::Tight(ns) => vec![3, ns],
            Room::HandOverForLog => vec![4, 0],
            Room::RateLimiter => vec![5, 0],
        }
    }
}

/// Bytes per second that are enough for compactions if ingest gives them `need` to move in the long
/// run; `UNLIMITED`: ingest needs them at once. `runs`: the most runs of an index that is being
/// compacted. The surplus over the need covers compactions that take longer than others, and
/// growing needs; it grows by steps, so that compactions seldom take the whole device.
pub fn enough_for_compactions(runs: u64, need_bytes_per_sec: u64) -> u64 {
    let depth = Depth::of(runs);
    if depth.stage >= Stage::Urgent {
        return UNLIMITED;
    }
    let enough = u128::from(need_bytes_per_sec) * u128::from(depth.compaction_percent) / 100;
    u64::try_from(enough).unwrap_or(UNLIMITED)
}

/// The result of a law of this file for these inputs. None: they are not inputs of the law.
pub fn decide(law: Law, inputs: &[u64]) -> Option<Vec<u64>> {
    match (law, inputs) {
        (Law::Handover, numbers) => Some(room(&Generations::from_numbers(numbers)?).numbers()),
        (Law::Credit, &[unpaid, done, left, debtors, room, before]) => {
            let Paid { credit, unpaid } = credit(unpaid, done, left, debtors, room, before);
            Some(vec![credit, unpaid])
        }
        (Law::Pace, &[runs, per_sec, per_kib, need, bytes, room]) => {
            let pace = pace_ns(runs, per_sec, per_kib, Owed { bytes, room });
            Some(vec![pace, enough_for_compactions(runs, need)])
        }
        (Law::FlushPace, &[whole, entries, done, took]) => {
            Some(vec![flush_pace_ns(whole, entries, done, took)])
        }
        (Law::FlushRest, &[done, took, fill]) => Some(vec![flush_rest_ns(done, took, fill)]),
        (Law::Debt, &[credit, bytes]) => Some(match spend(credit, bytes) {
            Some(left) => vec![1, left],
            None => vec![0, credit],
        }),
        _ => None,
    }
}

/// Bytes of ingest that a compaction of so many runs pays for in all.
pub fn pays_bytes(inputs: usize, generation_bytes: u64) -> u64 {
    (inputs as u64).saturating_sub(1) * generation_bytes / 10 * 9
}

/// Of `unpaid` bytes for what a compaction has left, those that `done` of it pay for.
pub fn credit_bytes(unpaid: u64, done: u64, left: u64) -> u64 {
    (u128::from(unpaid) * u128::from(done.min(left)) / u128::from(left.max(1))) as u64
}

/// Credit at most: what fits into runs up to the limit while an index has so many, so many
/// generations are sealed and the active one holds `active` bytes.
pub fn room_bytes(runs: usize, sealed: usize, active: u64, generation_bytes: u64) -> u64 {
    let more = RUNS_LIMIT.saturating_sub(runs + sealed) as u64;
    (more * generation_bytes).saturating_sub(active)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::depths;
    use evenkeel_io::Rng;

    const RUNS_PACED: u64 = depths::RUNS_PACED as u64;
    const RUNS_URGENT: u64 = RUNS_HIGH as u64;

    const LIMIT: u64 = 1 << 20;

    /// With all entries of the oldest generation written.
    fn at(wanted: u64, active: u64, count: u64) -> Room {
        let g = Generations { wanted, active, count, limit: LIMIT, ..Generations::default() };
        room(&Generations { flushed_permille: 1000, ..g })
    }

    #[test]
    fn memtable_room_by_bytes_wanted_and_generations() {
        // Wanted bytes, active bytes, generations.
        assert_eq!(at(100, 0, 1), Room::Taken);
        assert_eq!(at(100, LIMIT - 100, 2), Room::Taken);
        assert_eq!(at(101, LIMIT - 100, 1), Room::HandOver);
        assert_eq!(at(101, LIMIT - 100, 2), Room::HandOver);
        assert_eq!(at(101, LIMIT - 100, 3), Room::Full);
        assert_eq!(at(LIMIT * 2, 0, 3), Room::Tight(1_000_000), "larger than a generation, alone");
        assert_eq!(at(100, 100, 3), Room::Tight(1), "hardly anything");
        assert_eq!(at(1000, LIMIT - 1000, 3), Room::Tight(20_000), "twice its flush, when full");
        // Of 64 MiB 9 at once, up to 48 as the oldest is flushed; those before it are whole.
        let large = |active_mib: u64, count, flushed_permille| {
            let (active, limit) = (active_mib << 20, 64 << 20);
            let g = Generations { active, count, limit, flushed_permille, ..Default::default() };
            room(&Generations { wanted: 100, ..g })
        };
        assert!(matches!(large(8, 3, 0), Room::Tight(_)));
        assert_eq!((large(9, 3, 0), large(9, 2, 0)), (Room::Full, Room::Taken));
        assert!(matches!(large(28, 3, 500), Room::Tight(_)));
        assert_eq!((large(29, 3, 500), large(48, 3, 999)), (Room::Full, Room::Full));
        assert!(matches!(large(63, 3, 1000), Room::Tight(_)));
        assert_eq!((large(64, 3, 2000), large(64, 2, 0)), (Room::Full, Room::HandOver));
        // A measured flush rate replaces the guess, and nothing else.
        let known = |g: Generations| room(&Generations { flush_ns_per_kib: 9, limit: LIMIT, ..g });
        let of =
            |wanted, active, count| Generations { wanted, active, count, ..Default::default() };
        assert_eq!(known(of(100, 100, 3)), Room::RateLimiter);
        assert_eq!((known(of(100, LIMIT, 3)), known(of(1, 1, 2))), (Room::Full, Room::Taken));
        let old = Generations { count: 2, low_lsn: 5, needed_lsn: 6, ..Generations::default() };
        assert_eq!(room(&old), Room::HandOverForLog);
        assert_ne!(room(&Generations { count: 3, ..old }), Room::HandOverForLog);
        assert_ne!(room(&Generations { low_lsn: 6, ..old }), Room::HandOverForLog);
        // Half of the rest pays half of the unpaid amount, to each index in debt.
        assert_eq!(credit(900, 50, 100, 1, 5000, 0), Paid { credit: 450, unpaid: 450 });
        assert_eq!(credit(900, 100, 100, 2, 5000, 0), Paid { credit: 450, unpaid: 0 });
        // A payment without room is made later.
        assert_eq!(credit(900, 100, 100, 1, 500, 300), Paid { credit: 200, unpaid: 700 });
        assert_eq!(credit(900, 1, 0, 0, 300, 500), Paid { credit: 0, unpaid: 900 });
        // Unlimited; the sustainable rate; 1 ms a row at most.
        let free = Owed::default();
        let pace = |runs| pace_ns(runs, 1_000_000, 2_000, free);
        assert_eq!([6, 7, 8, 9].map(pace), [0, 1_250_000, 1_538_461, 1_818_181]);
        assert_eq!([10, 11, 12].map(pace), [2_105_263, 3_333_333, 3_333_333]);
        assert_eq!(pace_ns(12, 1_000_000, 3_000, free), PACE_NS_MAX);
        assert_eq!(pace_ns(9, 0, 2_000, free), 0);
        assert_eq!(pace_ns(9, 1, u64::MAX, free), PACE_NS_MAX);
        assert_eq!((spend(10, 10), spend(10, 11)), (Some(0), None));
        // 1 MiB in 1 s; then in 5; then an impossible value.
        assert_eq!(flush_ns_per_kib(0, 1 << 20, 1_024_000_000), 1_000_000);
        assert_eq!(flush_ns_per_kib(1_000_000, 1 << 20, 5 * 1_024_000_000), 2_000_000);
        assert_eq!((flush_ns_per_kib(0, 0, 0), flush_ns_per_kib(0, 0, 9)), (1, 9_216));
        assert_eq!(flush_ns_per_kib(u64::MAX, 1, u64::MAX), FLUSH_NS_MAX);
        // Filled in 8 s: half of it done in 1 s, where it looks again after 100 ms.
        let rest = |permille, took_ms: u64, fill_s: u64| {
            flush_rest_ns(permille, took_ms * 1_000_000, fill_s * 1_000_000_000) / 1_000_000
        };
        assert_eq!([rest(500, 950, 8), rest(500, 100, 8), rest(500, 1000, 8)], [50, 100, 0]);
        assert_eq!([rest(500, 0, 0), rest(0, 0, 8), rest(2000, 1950, 8)], [0, 0, 50]);
        assert_eq!([rest(1000, 9_950, 60), rest(1000, 10_000, 1 << 30)], [50, 0], "10 s at most");
        // As fast as the others, or faster; half as fast; nothing is known.
        let beside = |done_kib: u64, took| flush_pace_ns(1_000_000, 800_000, done_kib << 10, took);
        assert_eq!([(0, 9), (10, 8_000_000), (10, 1)].map(|(d, t)| beside(d, t)), [1_000_000; 3]);
        assert_eq!(beside(10, 16_000_000), 2_000_000);
        assert_eq!((flush_pace_ns(0, 0, 0, 9), beside(1, u64::MAX)), (0, FLUSH_NS_MAX));
        assert_eq!(flush_pace_ns(0, 0, 10 << 10, 9_000_000), 1_200_000);
    }

    #[test]
    fn owed_bytes_of_several_indexes_add_up() {
        // Compactions whose places are used up together; a long one owes nothing.
        let owed = |indexes: &[(u64, u64)], sealed, active| {
            let Owed { bytes, room } = tightest(indexes.to_vec(), sealed, active, 1000);
            (bytes, room)
        };
        assert_eq!(owed(&[], 0, 0), (0, 0));
        assert_eq!(owed(&[(8, 900)], 0, 0), (0, 0), "there are places");
        assert_eq!(owed(&[(9, 900), (9, 700)], 0, 0), (1600, 3000));
        assert_eq!(owed(&[(9, 900), (9, 700)], 1, 600), (1600, 1400));
        assert_eq!(owed(&[(9, 900), (11, 700), (10, 1)], 0, 0), (700, 1000), "the deepest");
        assert_eq!(owed(&[(9, 9000), (11, 700)], 0, 0), (9700, 3000), "all of them");
        assert_eq!(owed(&[(11, 700)], 0, 900), (700, 250));
        assert_eq!(owed(&[(11, 700), (9, 10)], 1, 900), (710, 1100), "credit alone");
        assert_eq!([801, 800, 90].map(|left| owed_bytes(left, 100)), [0, 800, 90]);
        let pace = |bytes, room| pace_ns(9, 1_000_000, 2_000, Owed { bytes, room });
        assert_eq!([(1, 1), (1_000_000, 1 << 20)].map(|(b, r)| pace(b, r)), [1_818_181; 2]);
        assert_eq!(pace(3_000_000, 1 << 20), 2_929_687);
    }

    #[test]
    fn memtable_room_keeps_its_bounds_for_random_loads() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let mut draw = |below: u64| rng.below(below);
            let (wanted, active, reserved) = (1 + draw(LIMIT / 2), draw(LIMIT * 2), draw(LIMIT));
            let count = 1 + draw(3);
            let (flushed_permille, flush_ns_per_kib) = (draw(1001), draw(2) * draw(FLUSH_NS_MAX));
            let (low_lsn, needed_lsn) = (draw(9), draw(3));
            let g = Generations {
                flushed_permille,
                wanted,
                active,
                reserved,
                count,
                limit: LIMIT,
                low_lsn,
                needed_lsn,
                flush_ns_per_kib,
            };
            let is_full =
                active > 0 && active + reserved + wanted > allowed_bytes(LIMIT, flushed_permille);
            match room(&g) {
                // Below the target no delay; up to the limit at most 1 ms, growing with the used
                // and the requested bytes.
                Room::Taken => assert!(count < 3),
                Room::RateLimiter => assert!(count == 3 && flush_ns_per_kib > 0 && !is_full),
                Room::Tight(ns) => {
                    assert!(count == 3 && flush_ns_per_kib == 0 && !is_full);
                    assert!((1..=DELAY_NS_MAX).contains(&ns));
                    let more = room(&Generations { active: active + 1000, ..g });
                    assert!(
                        matches!(more, Room::Full) || matches!(more, Room::Tight(n) if n >= ns)
                    );
                    let less = room(&Generations { wanted: wanted / 2 + 1, ..g });
                    assert!(matches!(less, Room::Tight(n) if n <= ns));
                }
                Room::Full => {
                    assert!(count == 3 && is_full);
                    // More progress of the flush never takes room away, and a complete flush gives
                    // a generation's.
                    let whole = room(&Generations { flushed_permille: 1000, ..g });
                    assert!(whole != Room::Full || active + reserved + wanted > LIMIT);
                    let allowed = [0, 1, 500, 999, 1000].map(|part| allowed_bytes(active, part));
                    assert!(allowed.is_sorted() && allowed[4] == active);
                }
                Room::HandOver => assert!(count < 3 && active + reserved + wanted > LIMIT),
                Room::HandOverForLog => assert!(count < 3 && low_lsn < needed_lsn),
            }
            // No more than is unpaid, never beyond the room, and nothing is lost except what does
            // not divide evenly among the indexes in debt.
            let (unpaid, left, debtors) = (draw(1 << 30), 1 + draw(1 << 30), 1 + draw(5));
            let (done, room, before) = (draw(left + 1), draw(1 << 30), draw(1 << 30));
            let paid = credit(unpaid, done, left, debtors, room, before);
            assert_eq!(paid.unpaid + paid.credit * debtors, unpaid);
            assert!(paid.credit <= room.saturating_sub(before));
            let more = credit(unpaid, (done + 1000).min(left), left, debtors, room, before);
            assert!(more.credit >= paid.credit);
        }
    }

    #[test]
    fn slower_flushes_slow_ingest_no_less_and_rests_stay_in_their_part() {
        let mut rng = Rng::new(3);
        for _ in 0..20_000 {
            let mut number = |bits: u64| {
                let bits = rng.below(bits);
                rng.below(1 << bits)
            };
            let (known, bytes, took, more) = (number(50), number(40), number(50), number(40));
            let learnt = flush_ns_per_kib(known, bytes, took);
            assert!((1..=FLUSH_NS_MAX).contains(&learnt));
            assert!(flush_ns_per_kib(known, bytes, took + more) >= learnt);
            assert!(flush_ns_per_kib(known, bytes + more, took) <= learnt);
            // Never faster than flushes were, and never faster for taking longer or writing less.
            let (whole, entries) = (number(24).min(FLUSH_NS_MAX), 1 + number(24));
            let pace = flush_pace_ns(whole, entries, bytes, took);
            assert!(pace >= whole.min(FLUSH_NS_MAX) && pace <= FLUSH_NS_MAX * 4 / 3);
            assert!(flush_pace_ns(whole, entries, bytes, took + more) >= pace);
            assert!(bytes == 0 || flush_pace_ns(whole, entries, bytes + more, took) <= pace);
            // At the end of its part of the time there is no rest, whatever is done; before, the
            // work is never ahead of the time by more than a rest.
            let (permille, fill) = (number(11), number(40));
            let rest = flush_rest_ns(permille, took, fill);
            let part = (fill / FLUSH_PART).min(FLUSH_NS_LONGEST);
            assert!(rest <= FLUSH_REST_NS_MAX && (rest == 0 || took + rest <= part));
            assert!(flush_rest_ns(permille, took + more, fill) <= rest);
            assert!(flush_rest_ns(permille + 1, took, fill) >= rest);
            assert!(flush_rest_ns(permille, took, fill + more) >= rest);
        }
    }

    #[test]
    fn owed_bytes_grow_with_the_remaining_compaction() {
        const GENERATION: u64 = 1000;
        let mut rng = Rng::new(4);
        for _ in 0..20_000 {
            let mut draw = |below: u64| rng.below(below);
            let (sealed, active) = (draw(3) as usize, draw(GENERATION));
            let count = draw(5);
            let mut indexes: Vec<(u64, u64)> =
                (0..count).map(|_| (6 + draw(7), draw(9000))).collect();
            let owed = |of: &[(u64, u64)]| tightest(of.to_vec(), sealed, active, GENERATION);
            let before = owed(&indexes);
            // Nothing without an index that needs its compaction at once, and never without room.
            let urgent = indexes.iter().filter(|(runs, _)| *runs >= RUNS_URGENT);
            let all: u64 = urgent.map(|(_, left)| left).sum();
            assert!(before.bytes <= all && (before.bytes == 0 || before.room > 0));
            // The rate limit follows the ratio: one more index to compact never lowers it.
            indexes.push((6 + draw(7), draw(9000)));
            let after = owed(&indexes);
            let (a, b) = (before.bytes * after.room.max(1), after.bytes * before.room.max(1));
            assert!(a <= b, "{before:?} {after:?} {indexes:?}");
            // A long compaction is not waited for; any other in full.
            let (left, run) = (draw(9000), draw(1000));
            let owes = owed_bytes(left, run);
            assert!(owes == left || (owes == 0 && left > run * 2 * TIER_RUNS as u64));
        }
    }

    #[test]
    fn the_pace_grows_with_runs_and_credit_is_exact() {
        let mut rng = Rng::new(2);
        for _ in 0..20_000 {
            let mut number = |bits: u64| {
                let bits = rng.below(bits);
                1 + rng.below(1 << bits)
            };
            let (per_sec, per_kib, more) = (number(34), number(24), number(24));
            let owed = Owed { bytes: number(40), room: number(40) };
            let pace = |runs| pace_ns(runs, per_sec, per_kib, owed);
            for runs in 0..2 * RUNS_PACED {
                let ns = pace(runs);
                // A KiB that costs compactions a microsecond or more always takes time.
                assert!(ns > 0 || runs < RUNS_PACED || per_kib * 1_000_000 < per_sec);
                assert!(ns <= PACE_NS_MAX);
                // One more run makes it slower, but at most twice; so do more bytes to compact, and
                // slower compactions.
                assert!(pace(runs + 1) >= ns);
                assert!(runs < RUNS_PACED || pace(runs + 1) <= 2 * ns + 2);
                // The owed work is done before ingest at this rate finds no room.
                let until_done = u128::from(owed.bytes) * 1_000_000_000 / u128::from(per_sec);
                let until_full = u128::from(owed.room) * u128::from(ns + 1) / 1024;
                assert!(runs < RUNS_PACED || until_full >= until_done || ns == PACE_NS_MAX);
                assert!(pace_ns(runs, per_sec, per_kib + more, owed) >= ns);
                assert!(pace_ns(runs, per_sec + more, per_kib, owed) <= ns);
                // Compactions have enough to follow, more with each run, and everything if ingest
                // waits.
                let enough = enough_for_compactions(runs, per_sec);
                assert!(
                    enough >= per_sec + per_sec / 2
                        && enough <= enough_for_compactions(runs + 1, per_sec)
                );
                assert_eq!(enough == UNLIMITED, runs >= RUNS_URGENT);
                assert!(enough <= enough_for_compactions(runs, per_sec + more));
            }
            let (credit, bytes) = (number(40), number(40));
            match spend(credit, bytes) {
                Some(left) => assert_eq!(left + bytes, credit),
                None => assert!(bytes > credit),
            }
            assert!(spend(credit, bytes).is_none() || spend(credit + more, bytes).is_some());
        }
    }
}
