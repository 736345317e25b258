//! Enumerates crash points: a script runs once without a crash to count its changes, then once for
//! each change with the crash in it, and every surviving disk, one per policy and round, is handed
//! to a check. For tests of every layer that writes files.

use super::{CrashPolicy, SimDisk, SimEnv, SimOptions, catch_crash, panic_text};
use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Which crash points and survivors to try.
#[derive(Clone, Copy, Debug)]
pub struct Explore {
    /// Decides the schedule of the script and the survivors.
    pub seed: u64,
    /// The first crash point (from 1).
    pub first: u64,
    /// From there on one crash point in this many (1: each). As many runs of one seed as this says,
    /// each beginning one further, try every one.
    pub stride: u64,
    /// Survivors per crash point and policy.
    pub rounds: u64,
}

/// One surviving disk, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Seed of the run.
    pub seed: u64,
    /// The change in which the machine crashed; the number after the last: none.
    pub change: u64,
    /// What survived.
    pub policy: CrashPolicy,
    /// Which of the survivors of this policy.
    pub round: u64,
}

impl fmt::Display for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Survivor { seed, change, policy, round } = self;
        write!(f, "seed {seed}, crash in change {change}, {policy:?}, round {round}")
    }
}

/// What was tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Crash points.
    pub points: u64,
    /// Surviving disks checked.
    pub survivors: u64,
    /// Different ones among them, by hash.
    pub states: BTreeSet<u64>,
}

impl Explore {
    /// Every crash point, one survivor per policy.
    pub fn new(seed: u64) -> Explore {
        Explore { seed, first: 1, stride: 1, rounds: 1 }
    }

    /// The `n`-th of a series (from 0) that tries every crash point of one schedule after the
    /// other, one in `stride` at a time.
    pub fn nth(n: u64, stride: u64) -> Explore {
        Explore { first: 1 + n % stride, stride, ..Explore::new(1 + n / stride) }
    }

    /// Runs `script` on a copy of `start` for each crash point. It notes in `T` what was promised
    /// (acknowledged commits) as it goes, since the crash may unwind it at any wait. `check` opens
    /// each different survivor and compares it with those notes; it panics if they do not fit.
    pub fn run<T: Default>(
        &self,
        start: &SimDisk,
        script: impl Fn(&SimEnv, &Arc<T>),
        check: impl Fn(&SimEnv, &T, Survivor),
    ) -> Explored {
        let mut explored = Explored::default();
        let mut change = self.first;
        loop {
            // A copy, with what a killed process has left there unsynced.
            let disk = start.crash(CrashPolicy::Killed, self.seed);
            disk.crash_at_change(change);
            let sim = SimEnv::on(disk, SimOptions::new(self.seed));
            let notes = Arc::new(T::default());
            let run = catch_unwind(AssertUnwindSafe(|| catch_crash(|| script(&sim, &notes))));
            if let Err(payload) = run {
                let text = panic_text(&*payload).unwrap_or_default();
                panic!("seed {}, crash in change {change}, the script: {text}", self.seed);
            }
            let crashed = sim.is_crashed();
            sim.disk().crash_now();
            sim.stop();
            explored.points += 1;
            // The notes differ from point to point: the same disk is checked again for each.
            let mut checked = BTreeSet::new();
            for policy in CrashPolicy::ALL {
                for round in 0..self.rounds {
                    let which = Survivor { seed: self.seed, change, policy: *policy, round };
                    let after = sim.disk().crash(*policy, self.seed ^ round.rotate_left(32));
                    let hash = after.hash();
                    explored.states.insert(hash);
                    // What was killed has the content of others, and not all of it durable.
                    if checked.insert(hash) || *policy == CrashPolicy::Killed {
                        explored.survivors += 1;
                        let after = SimEnv::on(after, SimOptions::new(self.seed));
                        check(&after, &notes, which);
                        after.stop();
                    }
                }
            }
            if !crashed {
                break;
            }
            change += self.stride.max(1);
        }
        explored
    }
}
