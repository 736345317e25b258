//! The adaptive flushing law that was reported (P3), and its suggested repair, as pure functions.
//! It knows the redo rate only as an average over 30 intervals of a second.

/// Seconds that the averages run over.
pub const AVERAGING_LOOPS: u64 = 30;
/// The target of the scan is this many times the log of one second.
pub const SCAN_FACTOR: u64 = 3;
/// Below this share of the log, in percent, the age requests no pages.
const LOW_WATER_PCT: u64 = 10;
/// From this percentage on, each instance gets a share according to its old pages.
const SHARES_ABOVE_PCT: u64 = 30;

/// The inputs of the law.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// Age of the oldest change, bytes of log.
    pub age: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Average redo rate, bytes per second; 0 until the first averaging is over.
    pub lsn_avg_rate: u64,
    /// Average pages flushed per second.
    pub avg_page_rate: u64,
    /// Pages per second for ordinary work.
    pub io_capacity: u64,
    /// Greatest number of pages per second.
    pub io_capacity_max: u64,
}

/// The output of the law.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The number shown as requested: the whole budget; in the repaired law, the sum of the slots.
    pub pages: u64,
    /// The number of pages that each instance's cleaner must flush.
    pub slots: Vec<u64>,
}

/// The percentage of `io_capacity` that the age requests.
pub fn pct_for_lsn(state: &State) -> u64 {
    let most = state.log_bytes / 8 * 7;
    if state.age < state.log_bytes * LOW_WATER_PCT / 100 {
        return 0;
    }
    let factor = (state.age * 100 / most.max(1)) as f64;
    let ratio = state.io_capacity_max as f64 / state.io_capacity.max(1) as f64;
    (ratio * factor * factor.sqrt() / 7.5) as u64
}

/// The request for a second. `older(instance)` counts the instance's pages older than the target
/// `oldest + lsn_avg_rate x scan factor`. `repaired`: without an average, the budget is divided
/// evenly, and the sum of the slots is shown.
pub fn request(state: &State, older: &[u64], repaired: bool) -> Request {
    let instances = older.len() as u64;
    let pct = pct_for_lsn(state);
    let parts: Vec<u64> = older.iter().map(|pages| pages / SCAN_FACTOR + 1).collect();
    let sum = (older.iter().sum::<u64>() / SCAN_FACTOR).max(1);
    let by_age = sum.min(2 * state.io_capacity_max);
    let by_pct = state.io_capacity * pct / 100;
    let pages = ((by_pct + state.avg_page_rate + by_age) / 3).min(state.io_capacity_max);
    let even = || vec![pages / instances + 1; older.len()];
    let slots = if pct <= SHARES_ABOVE_PCT || (repaired && state.lsn_avg_rate == 0) {
        even()
    } else {
        parts.iter().map(|part| part * pages / sum + 1).collect()
    };
    Request { pages: if repaired { slots.iter().sum() } else { pages }, slots }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_a_crash() -> State {
        State {
            age: 600 << 20,
            log_bytes: 1 << 30,
            io_capacity: 10_000,
            io_capacity_max: 20_000,
            ..State::default()
        }
    }

    #[test]
    fn without_an_average_every_cleaner_gets_the_whole_budget() {
        for instances in [1, 2, 8, 64] {
            // The target is the oldest change itself, so no page is older.
            let older = vec![0; instances];
            let told = |repaired| {
                let request = request(&after_a_crash(), &older, repaired);
                (request.pages, request.slots.iter().sum::<u64>())
            };
            let (pages, sum) = told(false);
            assert_eq!(sum, instances as u64 * (pages + 1), "{instances} cleaners");
            let (shown, sum) = told(true);
            assert_eq!(shown, sum, "{instances} cleaners");
            assert!(sum <= pages + instances as u64, "{instances} cleaners: {sum} of {pages}");
        }
    }

    #[test]
    fn with_an_average_the_slots_are_the_budget() {
        let state = State { lsn_avg_rate: 30 << 20, ..after_a_crash() };
        let older = [9_000, 3_000, 0, 6_000];
        for repaired in [false, true] {
            let request = request(&state, &older, repaired);
            let sum: u64 = request.slots.iter().sum();
            assert!(sum.abs_diff(request.pages) <= request.pages / 100 + 8, "{request:?}");
            assert!(request.slots[0] > 2 * request.slots[1], "{request:?}");
        }
        assert_eq!(pct_for_lsn(&State { age: 1 << 20, ..state }), 0);
    }
}
