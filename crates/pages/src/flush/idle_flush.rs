//! Idle flush: while nobody writes, even recently dirtied pages are written, so that a start after
//! a crash has next to nothing to redo (RFC 33). A pure state machine; its user has the clock.
//!
//! The log is *idle* when it has hardly grown for a while ([`IDLE_NS`], [`idle_bytes`]). The
//! pages that are dirty then are to be written. Pages that a trickle of commits changes once more
//! join newer buckets, behind a cut, and follow when the log has not grown at all for as long.
//!
//! Invariants: two cuts are at least `IDLE_NS` apart, and between them the log has grown; a log
//! that grows faster than `idle_bytes` in `IDLE_NS` is never idle. Only the pacer may use it.

use evenkeel_base::Lsn;

/// How long the log must have hardly grown to be idle.
pub const IDLE_NS: u64 = 5_000_000_000;

/// While nobody writes at most two parts in this many of the log remain to be redone: one for a
/// generation that is not handed over, one for a checkpoint.
pub const REST_PARTS: u64 = 128;

/// Growth up to this counts as hardly any for a log of this capacity: a trickle of commits, and
/// records of the background.
pub fn idle_bytes(log_bytes: u64) -> u64 {
    (log_bytes / 16_384).max(64 << 10)
}

/// The pages that may be written while the log is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleWatch {
    /// Pages of buckets below this one.
    pub bucket: u64,
    /// Log end at the cut.
    pub cut: Lsn,
}

/// Observations of the log.
#[derive(Debug, Default)]
pub struct IdleFlush {
    /// The log has hardly grown since this time, and its end then; 0: never observed.
    since_ns: u64,
    since: Lsn,
    /// The log has not grown at all since this time, and its end.
    still_ns: u64,
    end: Lsn,
    watch: Option<IdleWatch>,
}

impl IdleFlush {
    /// Observes the end of the log. `cut` makes pages join other buckets from now on, and returns
    /// the first of those; it is called when pages may be written that could not be before.
    pub fn look(
        &mut self,
        now_ns: u64,
        end: Lsn,
        log_bytes: u64,
        cut: impl FnOnce() -> u64,
    ) -> Option<IdleWatch> {
        let grown = end.0.saturating_sub(self.since.0);
        if self.since_ns == 0 || grown > idle_bytes(log_bytes) {
            *self = IdleFlush { since_ns: now_ns.max(1), since: end, ..*self };
            self.watch = None;
        }
        if end != self.end {
            (self.still_ns, self.end) = (now_ns, end);
        }
        if now_ns.saturating_sub(self.since_ns) < IDLE_NS {
            return None;
        }
        let is_still = now_ns.saturating_sub(self.still_ns) >= IDLE_NS;
        if self.watch.is_none_or(|watch| is_still && watch.cut != end) {
            self.watch = Some(IdleWatch { bucket: cut(), cut: end });
        }
        self.watch
    }

    /// The result of the last observation, while the log has hardly grown since.
    pub fn is_idle(&self, end: Lsn, log_bytes: u64) -> Option<IdleWatch> {
        let grown = end.0.saturating_sub(self.since.0);
        self.watch.filter(|_| grown <= idle_bytes(log_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOG: u64 = 2 << 30;
    const TICK_NS: u64 = 100_000_000;
    const TICKS: u64 = IDLE_NS / TICK_NS;

    /// Observes at each tick a log that has grown by the given bytes; returns the buckets that may
    /// be written, each with its first tick.
    fn run(grown: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
        let (mut idle_flush, mut end, mut cuts) = (IdleFlush::default(), 1 << 30, 0);
        let mut found: Vec<(u64, u64)> = Vec::new();
        for (tick, bytes) in grown.into_iter().enumerate() {
            end += bytes;
            let cut = || {
                cuts += 1;
                cuts
            };
            let now = (tick as u64 + 1) * TICK_NS;
            let watch = idle_flush.look(now, Lsn(end), LOG, cut);
            if let Some(watch) = watch
                && found.last().is_none_or(|last| last.1 != watch.bucket)
            {
                found.push((tick as u64, watch.bucket));
            }
        }
        found
    }

    #[test]
    fn a_log_without_growth_becomes_idle() {
        assert_eq!(run([0; 3 * TICKS as usize]), [(TICKS, 1)], "and no page is written twice");
        assert_eq!(run([0; TICKS as usize]), [], "not yet");
        let load = [1 << 20; 100].into_iter().chain([0; 100]);
        assert_eq!(run(load), [(99 + TICKS, 1)], "once the load is over");
    }

    #[test]
    fn a_log_that_always_grows_is_not_idle() {
        // The least growth that is not idle: 128 KiB in five seconds.
        let bytes = idle_bytes(LOG) / TICKS + 1;
        assert_eq!(run([bytes; 1000]), []);
    }

    #[test]
    fn a_slow_writer_has_its_pages_written_occasionally() {
        // A commit of 200 bytes each second.
        let trickle = |tick| if tick % 10 == 0 { 200 } else { 0 };
        let found = run((0..20_000).map(trickle));
        // 400 KB in all: one cut, and one more for each 128 KiB.
        assert_eq!(found.len(), 4, "{found:?}");
        // When the trickle ends, its last changes follow.
        let found = run((0..1000).map(trickle).chain([0; 2 * TICKS as usize]));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].0 >= 990 + TICKS, "{found:?}");
    }

    #[test]
    fn an_idle_state_lasts_until_the_log_grows() {
        let mut idle_flush = IdleFlush::default();
        assert_eq!(idle_flush.is_idle(Lsn(0), LOG), None);
        idle_flush.look(1, Lsn(1 << 30), LOG, || 0);
        let watch = idle_flush.look(1 + IDLE_NS, Lsn(1 << 30), LOG, || 7);
        let expected = Some(IdleWatch { bucket: 7, cut: Lsn(1 << 30) });
        assert_eq!(watch, expected);
        let behind = |bytes| Lsn((1 << 30) + bytes);
        assert_eq!(idle_flush.is_idle(behind(idle_bytes(LOG)), LOG), expected);
        assert_eq!(idle_flush.is_idle(behind(idle_bytes(LOG) + 1), LOG), None);
    }

    proptest! {
        /// However the log grows, pages may be written only if the log grew by hardly anything in
        /// all observations of the time before; and there are no more cuts than pauses and pieces
        /// of log.
        #[test]
        fn a_log_is_idle_only_after_a_pause_in_its_growth(
            grown in prop::collection::vec(
                prop_oneof![5 => Just(0u64), 1 => 0..400u64, 1 => 0..1u64 << 18], 1..600),
        ) {
            let (mut idle_flush, mut end) = (IdleFlush::default(), 1u64 << 30);
            let (mut cuts, mut ends) = (0u64, Vec::new());
            for (tick, bytes) in grown.iter().enumerate() {
                end += bytes;
                ends.push(end);
                let cut = || {
                    cuts += 1;
                    cuts
                };
                let now = (tick as u64 + 1) * TICK_NS;
                let watch = idle_flush.look(now, Lsn(end), LOG, cut);
                let before = ends.len().checked_sub(TICKS as usize + 1);
                let was_idle =
                    before.is_some_and(|at| end - ends[at] <= idle_bytes(LOG));
                prop_assert!(watch.is_none() || was_idle);
                prop_assert!(watch.is_none_or(|watch| watch.cut.0 <= end));
                // A sufficiently long pause is always found.
                let is_still = ends.len() > 2 * TICKS as usize
                    && ends[ends.len() - 2 * TICKS as usize - 1] == end;
                prop_assert!(!is_still || watch.is_some_and(|watch| watch.cut.0 == end));
            }
            let pauses = grown.len() as u64 / TICKS;
            prop_assert!(cuts <= pauses + 1);
        }
    }
}
