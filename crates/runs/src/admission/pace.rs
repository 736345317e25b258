//! The rate limit of ingest (G1, `docs/rfcs/0014-ingest-rate-from-compaction.md`): while a
//! compaction of an index with many runs is under way, ingest gets at most the rate that
//! compactions can sustain. And the rate limit of compactions while no index has many more runs
//! (`docs/rfcs/0026-compaction-foreground-limit.md`): the governor is told the rate that is enough
//! to follow ingest.
//!
//! The sustainable rate is the bytes that compactions move per second, as measured while there are
//! compactions that ingest needs, divided by the bytes that they will have to move for each
//! ingested byte (`passes` of the sizes of the last flushes). It is also at most the rate that
//! fills the places that are left while the compactions of all indexes do the work that they owe
//! (`docs/rfcs/0030-ingest-rate-from-owed-compaction.md`). The law is [`ingest::pace_ns`]; all
//! inserts share one queue.

use crate::Runs;
use crate::state::{Index, RunsState};
use evenkeel_base::IndexId;
use evenkeel_base::journal::Law;
use evenkeel_base::sync::Mutex;
use evenkeel_sched::RateLimiter;
use evenkeel_sched::laws::compaction::passes;
use evenkeel_sched::laws::depths::RUNS_HELP;
use evenkeel_sched::laws::ingest::{self, PART, WINDOW_NS, compaction_rate};
use std::sync::atomic::{AtomicU64, Ordering};

/// A longer time between the first two flushes was a pause of ingest.
const FLUSH_NS_MAX: u64 = 60_000_000_000;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Pace {
    meter: Mutex<Meter>,
    pub(crate) line: RateLimiter,
    /// Bytes per second that are enough for compactions.
    enough: AtomicU64,
}

/// The bytes that compactions move, and those that they will have to move.
#[derive(Default)]
struct Meter {
    /// The end of the last beat, while there are compactions that ingest needs.
    last_ns: Option<u64>,
    ns: u64,
    bytes: u64,
    /// 0: unknown.
    bytes_per_sec: u64,
    /// The write rate of flushes, which is used instead while the rate of compactions is unknown
    /// and compactions are behind; 0: unknown.
    flush_bytes_per_sec: u64,
    /// Sums over the last flushes: memtable bytes, and bytes that compactions will have to move for
    /// them. Each flush counts less than the one after it, and a small one little.
    memtable_bytes: u64,
    compaction_bytes: u64,
    /// When the last flush ended, and the time that the flushes took, summed in the same way.
    flushed_ns: Option<u64>,
    took_ns: u64,
}

impl Meter {
    /// The rate of compactions, as far as known.
    fn rate(&self) -> u64 {
        if self.bytes_per_sec > 0 { self.bytes_per_sec } else { self.flush_bytes_per_sec }
    }

    /// Bytes per second, read and written, that ingest gives compactions to move in the long run;
    /// rather too high than too low after the first flushes and after a pause.
    fn need_bytes_per_sec(&self) -> u64 {
        let moved = 2 * u128::from(self.compaction_bytes) * 1_000_000_000;
        u64::try_from(moved / u128::from(self.took_ns.max(1))).unwrap_or(u64::MAX)
    }
}

impl Pace {
    /// A beat of a compaction that ingest needs has moved this many bytes since `start_ns`. A beat
    /// that was held back does not count, because it does not show how fast compactions could be.
    /// True: more is known.
    pub(crate) fn merged(&self, bytes: u64, start_ns: u64, now_ns: u64, is_held: bool) -> bool {
        let mut meter = self.meter.lock();
        let since = meter.last_ns.replace(now_ns).unwrap_or(start_ns);
        if is_held {
            return false;
        }
        meter.ns += now_ns.saturating_sub(since);
        meter.bytes += bytes;
        let Some(rate) = compaction_rate(meter.rate(), meter.bytes, meter.ns) else { return false };
        meter.bytes_per_sec = rate;
        (meter.ns, meter.bytes) = (0, 0);
        true
    }

    /// There is no compaction that ingest needs: the time until the next one does not count.
    pub(crate) fn rests(&self) {
        self.meter.lock().last_ns = None;
    }

    /// A flush wrote this many bytes in this time.
    fn flush_wrote(&self, bytes: u64, took_ns: u64) {
        let mut meter = self.meter.lock();
        if let Some(rate) =
            compaction_rate(meter.flush_bytes_per_sec, bytes, took_ns.max(WINDOW_NS))
        {
            meter.flush_bytes_per_sec = rate;
        }
    }

    /// A generation of this many memtable bytes was flushed, for which compactions will have to
    /// move `compaction_bytes`.
    fn flushed(&self, memtable_bytes: u64, compaction_bytes: u64, now_ns: u64) {
        let mut meter = self.meter.lock();
        let add = |known: u64, new: u64| known / PART * (PART - 1) + new;
        meter.memtable_bytes = add(meter.memtable_bytes, memtable_bytes);
        meter.compaction_bytes = add(meter.compaction_bytes, compaction_bytes);
        if let Some(before) = meter.flushed_ns.replace(now_ns) {
            // Four times as long as the others: a pause.
            let most = if meter.took_ns == 0 { FLUSH_NS_MAX } else { meter.took_ns };
            meter.took_ns = add(meter.took_ns, now_ns.saturating_sub(before).min(most));
        }
    }
}

impl Runs {
    /// Slices of a generation of this many memtable bytes have become runs, by a flush that began
    /// at that time: indexes and their bytes.
    pub(crate) fn note_flushed(
        &self,
        state: &RunsState,
        memtable_bytes: u64,
        begun_ns: u64,
        slices: &[(IndexId, u64)],
    ) {
        let merged = |(index, new): &(IndexId, u64)| {
            let all = state.indexes.get(index).map_or(0, Index::bytes);
            passes(all as f64 / (*new).max(1) as f64) * *new as f64
        };
        let compaction_bytes = slices.iter().map(merged).sum::<f64>() as u64;
        let now = self.now_ns();
        self.pace.flushed(memtable_bytes, compaction_bytes, now);
        let bytes = slices.iter().map(|(_, bytes)| bytes).sum();
        if memtable_bytes >= self.generation_bytes() / 2 {
            self.pace.flush_wrote(bytes, now.saturating_sub(begun_ns));
        }
    }

    /// Sets the rate limit by the present runs of the indexes and by their compactions.
    pub(crate) fn set_pace(&self, state: &RunsState) {
        // Held to the end: of two threads the one that saw the compactions later sets the final
        // value.
        let jobs = self.compaction_jobs.lock();
        let needed: Vec<(u64, u64)> = jobs
            .needed()
            .iter()
            .filter_map(|(id, left)| {
                let index = state.indexes.get(id)?;
                let owed = ingest::owed_bytes(*left, index.newest_bytes());
                Some((index.depth() as u64, owed))
            })
            .collect();
        let runs = needed.iter().map(|(runs, _)| *runs).max().unwrap_or(0);
        let (sealed, active) = (state.memtables.len() - 1, state.memtables[0].bytes());
        let owed = ingest::tightest(needed, sealed, active, self.generation_bytes());
        let (bytes_per_sec, bytes_per_kib, need) = {
            let meter = self.pace.meter.lock();
            let per_kib = meter.compaction_bytes.saturating_mul(1024) / meter.memtable_bytes.max(1);
            // With fewer runs compactions may be held back for users, and then flushes show nothing
            // about their rate.
            let are_behind = runs >= RUNS_HELP as u64;
            let rate = if are_behind { meter.rate() } else { meter.bytes_per_sec };
            (rate, per_kib, meter.need_bytes_per_sec())
        };
        let ns = ingest::pace_ns(runs, bytes_per_sec, bytes_per_kib, owed);
        let enough = ingest::enough_for_compactions(runs, need);
        let before = self.pace.line.set(ns);
        if self.pace.enough.swap(enough, Ordering::Relaxed) != enough {
            self.sched.governor.set_enough_for_compactions(enough);
        } else if before == ns {
            return;
        }
        self.rt.journal.note(Law::Pace, self.now_ns(), || {
            let of_compactions = [runs, bytes_per_sec, bytes_per_kib, need];
            ([&of_compactions[..], &[owed.bytes, owed.room]].concat(), vec![ns, enough])
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compactions_are_measured_while_there_are_some() {
        let pace = Pace::default();
        let rate = || pace.meter.lock().bytes_per_sec;
        pace.merged(1000, 0, WINDOW_NS / 2, false);
        assert_eq!(rate(), 0);
        pace.merged(1000, WINDOW_NS / 2, WINDOW_NS, false);
        assert_eq!(rate(), 4000);
        // Work after a pause is measured from its own start.
        pace.rests();
        pace.merged(4000, 9 * WINDOW_NS, 10 * WINDOW_NS, false);
        assert_eq!(rate(), (4000 * 3 + 8000) / 4);
        // Two threads at once: the time counts once.
        pace.merged(1000, 10 * WINDOW_NS, 11 * WINDOW_NS - 1, false);
        pace.merged(1500, 10 * WINDOW_NS, 11 * WINDOW_NS, false);
        assert_eq!(rate(), 5000);
    }

    #[test]
    fn compactions_that_are_held_back_are_not_measured() {
        let pace = Pace::default();
        let rate = || pace.meter.lock().bytes_per_sec;
        pace.merged(1000, 0, 5 * WINDOW_NS, true);
        assert_eq!(rate(), 0, "not known");
        pace.merged(1000, 5 * WINDOW_NS, 6 * WINDOW_NS, false);
        assert_eq!(rate(), 2000, "of its own time");
    }

    #[test]
    fn compactions_need_the_rate_at_which_flushes_bring_bytes() {
        let pace = Pace::default();
        let need = || pace.meter.lock().need_bytes_per_sec();
        let (sec, mb) = (1_000_000_000, 1_000_000);
        assert_eq!(need(), 0, "nothing came");
        pace.flushed(8 * mb, 20 * mb, 0);
        assert!(need() > 1 << 50, "no time is known: no bound");
        // Read and written.
        (1..60).for_each(|n| pace.flushed(8 * mb, 20 * mb, 2 * n * sec));
        assert!((19 * mb..21 * mb).contains(&need()), "{}", need());
        // A pause counts for at most its limit, and soon for nothing.
        pace.flushed(8 * mb, 20 * mb, 4_000 * sec);
        assert!((10 * mb..12 * mb).contains(&need()), "{}", need());
        (1..9).for_each(|n| pace.flushed(8 * mb, 20 * mb, (4_000 + n) * sec));
        assert!((30 * mb..40 * mb).contains(&need()), "{}", need());
        // A rate that falls steadily is followed.
        (1..99).for_each(|n| pace.flushed(8 * mb, 20 * mb, (5_000 + 50 * n) * sec));
        assert!((mb / 2..mb).contains(&need()), "{}", need());
    }

    #[test]
    fn a_small_flush_counts_little() {
        let pace = Pace::default();
        let per_kib = || {
            let meter = pace.meter.lock();
            meter.compaction_bytes * 1024 / meter.memtable_bytes
        };
        pace.flushed(8 << 20, 4 << 20, 0);
        assert_eq!(per_kib(), 512);
        (0..4).for_each(|_| pace.flushed(100, 100 * 50, 0));
        assert!(per_kib() < 530);
        (0..40).for_each(|_| pace.flushed(8 << 20, 8 << 20, 0));
        assert!((1020..=1024).contains(&per_kib()));
    }
}
