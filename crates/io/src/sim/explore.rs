//! Enumerates crash points. A script runs once without a crash to count its changes, and then once
//! for each change with the crash in it; every surviving disk, one per policy and round, is passed
//! to a check. For tests of every layer that writes files.

use super::{CrashPolicy, SimDisk, SimEnv, SimOptions, catch_crash, panic_text};
use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Which crash points and survivors to try.
#[derive(Clone, Copy, Debug)]
pub struct Explore {
    /// Determines the schedule of the script and the survivors.
    pub seed: u64,
    /// The first crash point (from 1).
    pub first: u64,
    /// From there on one crash point in this many is tried (1: each). As many runs of one seed,
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
    /// The policy of survival.
    pub policy: CrashPolicy,
    /// The number of the survivor of this policy.
    pub round: u64,
}

impl fmt::Display for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Survivor { seed, change, policy, round } = self;
        write!(f, "seed {seed}, crash in change {change}, {policy:?}, round {round}")
    }
}

/// How many points and states an exploration has tried.
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

    /// The `n`-th of a series (from 0) that together tries every crash point of one schedule, one
    /// in `stride` at a time.
    pub fn nth(n: u64, stride: u64) -> Explore {
        Explore { first: 1 + n % stride, stride, ..Explore::new(1 + n / stride) }
    }

    /// Runs `script` on a copy of `start` for each crash point. The script records its promises
    /// (acknowledged commits) in `T` as it proceeds, because the crash may unwind it at any wait.
    /// `check` opens each different survivor and compares it with those notes; it panics if they
    /// disagree.
    pub fn run<T: Default>(
        &self,
        start: &SimDisk,
        script: impl Fn(&SimEnv, &Arc<T>),
        check: impl Fn(&SimEnv, &T, Survivor),
    ) -> Explored {
        let mut explored = Explored::default();
        let mut change = self.first;
        loop {
            // A copy, including unsynced changes that a killed process has left there.
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
            // The notes differ from point to point, so the same disk is checked again for each.
            let mut checked = BTreeSet::new();
            for policy in CrashPolicy::ALL {
                for round in 0..self.rounds {
                    let which = Survivor { seed: self.seed, change, policy: *policy, round };
                    let after = sim.disk().crash(*policy, self.seed ^ round.rotate_left(32));
                    let hash = after.hash();
                    explored.states.insert(hash);
                    // The survivor of a kill may equal another one in content, but is not all
                    // durable.
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
