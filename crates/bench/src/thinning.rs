//! Selects the decisions of a law that a result keeps. A short run keeps all. A longer run keeps
//! every second decision, then every fourth, and so on, so that each of its seconds has some and
//! the file stays small.

use crate::result::{Decisions, Made};
use evenkeel::Law;

/// Limit of the decisions of a law in the JSON of a step: half an hour with ten per second.
/// Hand-overs of generations are kept in addition.
const DECISIONS_MAX: usize = 18_000;
/// In the law `handover`: a generation was handed over because it was full or held back the log.
const HANDED_OVER: [u64; 2] = [1, 4];

/// The decisions of one law in the order in which they are made.
#[derive(Debug)]
pub struct Thinning {
    law: Law,
    seen: u64,
    thinned: usize,
}

impl Thinning {
    /// No decisions yet.
    pub fn new(law: Law) -> Thinning {
        Thinning { law, seen: 0, thinned: 0 }
    }

    /// True for a decision that is always kept: it is rare, and the others only lead to it.
    fn is_kept(law: Law, (_, _, outputs): &Made) -> bool {
        law == Law::Handover && outputs.first().is_some_and(|what| HANDED_OVER.contains(what))
    }

    /// Keeps a decision, or drops it.
    pub fn add(&mut self, of: &mut Decisions, made: Made) {
        of.one_in = of.one_in.max(1);
        if Thinning::is_kept(self.law, &made) {
            of.made.push(made);
            return;
        }
        let is_wanted = self.seen.is_multiple_of(of.one_in);
        self.seen += 1;
        if !is_wanted {
            return;
        }
        of.made.push(made);
        self.thinned += 1;
        if self.thinned > DECISIONS_MAX {
            let (law, mut number) = (self.law, 0u64);
            of.made.retain(|made| {
                number += u64::from(!Thinning::is_kept(law, made));
                Thinning::is_kept(law, made) || number % 2 == 1
            });
            of.one_in *= 2;
            self.thinned = self.thinned.div_ceil(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_is_kept_evenly() {
        const EACH_SECOND: usize = 100;
        for seconds in [10, 180, 181, 1000, 3600] {
            let (mut thinning, mut of) = (Thinning::new(Law::Debt), Decisions::default());
            for number in 0..seconds * EACH_SECOND {
                thinning.add(&mut of, (number / EACH_SECOND, vec![number as u64], vec![1, 0]));
            }
            let (kept, one_in) = (of.made.len(), of.one_in as usize);
            assert!(kept <= DECISIONS_MAX && kept * 2 > DECISIONS_MAX.min(seconds * EACH_SECOND));
            assert_eq!(
                (one_in == 1, kept),
                (seconds <= 180, (seconds * EACH_SECOND).div_ceil(one_in))
            );
            for (at, (second, inputs, _)) in of.made.iter().enumerate() {
                assert_eq!((*second, inputs[0]), (at * one_in / EACH_SECOND, (at * one_in) as u64));
            }
        }
    }

    #[test]
    fn hand_overs_are_all_kept() {
        let (mut thinning, mut of) = (Thinning::new(Law::Handover), Decisions::default());
        for number in 0..200_000u64 {
            let what = if number % 1000 == 7 { 1 + number / 1000 % 2 * 3 } else { 3 };
            thinning.add(&mut of, (0, vec![number], vec![what, 0]));
        }
        let handed: Vec<u64> =
            of.made.iter().filter(|made| made.2[0] != 3).map(|made| made.1[0]).collect();
        assert_eq!(handed, (0..200).map(|n| n * 1000 + 7).collect::<Vec<u64>>());
        assert!(of.made.len() <= DECISIONS_MAX + 200 && of.one_in == 16, "{}", of.made.len());
        assert!(of.made.is_sorted_by_key(|made| made.1[0]));
    }
}
