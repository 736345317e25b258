//! The law of the governor as tables and properties, and the governor over a simulated device.

use super::*;
use evenkeel_io::Rng;

fn demand(required: [u64; CLASSES], surplus: [u64; CLASSES]) -> [Demand; CLASSES] {
    std::array::from_fn(|i| Demand { required: required[i], surplus: surplus[i] })
}

#[test]
fn bandwidth_is_divided_by_demand_and_share() {
    let none = [0; CLASSES];
    let ask = |surplus| demand(none, surplus);
    // Below the budget every class gets its request, and at least its share of 100.
    assert_eq!(divide(1600, &ask([200, 0, 0, 300, 0, 0])), [200, 100, 100, 300, 100, 100]);
    // Above it: minimum shares, then by priority.
    assert_eq!(divide(1600, &ask([0, 0, 0, 9000, 9000, 0]))[3..], [1500, 100, 100]);
    assert_eq!(divide(1600, &ask([9000; 6])), [1100, 100, 100, 100, 100, 100]);
    // Required work has taken the budget: only the minimum shares are left.
    let full = demand([0, 5000, 0, 0, 0, 0], [0, 0, 0, 9000, 9000, 0]);
    assert_eq!(divide(1600, &full)[3..], [100, 100, 100]);
    assert_eq!(divide(UNLIMITED, &full), [UNLIMITED; CLASSES]);
}

#[test]
fn division_keeps_minimum_shares_and_priorities() {
    let seed = 7;
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    for _ in 0..20_000 {
        let mut number = || match rng.below(4) {
            0 => 0,
            1 => rng.below(1000),
            2 => rng.below(1 << 30),
            _ => rng.below(1 << 40),
        };
        let (budget, more) = (16 + number(), number());
        let required: [u64; CLASSES] = std::array::from_fn(|_| number());
        let surplus: [u64; CLASSES] = std::array::from_fn(|_| number());
        let demand = demand(required, surplus);
        let rates = divide(budget, &demand);
        let least = budget / MIN_SHARE;
        let useful: Vec<u64> = rates.iter().zip(surplus).map(|(r, s)| *r.min(&s)).collect();
        // No class is starved; a class that requests less than the minimum is not reduced.
        assert!(useful.iter().zip(surplus).all(|(u, s)| *u >= s.min(least)));
        // Together with the required work they stay within the budget, except for the minimum
        // shares.
        let sum: u64 = useful.iter().sum();
        let left = budget.saturating_sub(required.iter().sum());
        assert!(sum <= left.max(least * CLASSES as u64));
        // A class gets more than its minimum only if every more urgent class has its whole request.
        for low in 1..CLASSES {
            if useful[low] > least {
                assert!((0..low).all(|high| useful[high] == surplus[high]), "{demand:?}");
            }
        }
        // More budget takes nothing from anyone.
        let wider = divide(budget + more, &demand);
        assert!(rates.iter().zip(wider).all(|(r, w)| *r <= w));
    }
}

#[test]
fn the_budget_shrinks_as_latency_grows() {
    const MB: u64 = 1_000_000;
    let best = 400 * MB;
    assert_eq!(budget(UNLIMITED, best, 16), UNLIMITED, "as good as ever");
    assert_eq!(budget(UNLIMITED, best, 64), UNLIMITED, "four times slower is still its own load");
    assert_eq!(budget(UNLIMITED, best, 640), best, "down from no bound: the best rate first");
    assert_eq!(budget(best, best, 640), best / 2, "then at most half a tick");
    assert_eq!(
        budget(best / 16, best, 128),
        best / 16,
        "eight times slower: half of what it gives"
    );
    assert_eq!(budget(best / 16, best, 16), best / 8, "up again: twice a tick");
    assert_eq!(budget(best, best, 16), UNLIMITED);
    let mut down = best;
    for _ in 0..40 {
        down = budget(down, best, u64::MAX / 32);
    }
    assert_eq!(down, best / CUT_MAX, "never to nothing");
}

#[test]
fn the_budget_moves_in_steps_and_never_reaches_zero() {
    let seed = 8;
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    for _ in 0..20_000 {
        let mut number = |bits: u64| {
            let bits = rng.below(bits);
            1 + rng.below(1 << bits)
        };
        let (best, slower, more) = (number(40), number(30), number(30));
        // A previous budget that this device allows: unlimited, or below twice its best rate.
        let bounded = 1 + rng.below(2 * best);
        let previous = if rng.below(4) == 0 { UNLIMITED } else { bounded };
        let next = budget(previous, best, slower);
        let at = format!("{previous} {best} {slower}: {next}");
        assert!(next >= 1 && (next == UNLIMITED || next < 2 * best), "{at}");
        match (previous, next) {
            (UNLIMITED, _) => assert!(next == UNLIMITED || next == best, "{at}"),
            (_, UNLIMITED) => assert!(previous >= best && slower <= SLOWER * 16, "{at}"),
            _ => assert!(next >= previous / 2 && next <= 2 * previous, "{at}"),
        }
        // A slower device gives a smaller budget.
        assert!(budget(previous, best, slower + more) <= next, "{at}, {more} slower");
        // At the best latency the budget soon becomes unlimited, however low it was.
        let mut up = previous;
        (0..42).for_each(|_| up = budget(up, best, 16));
        assert_eq!(up, UNLIMITED, "{at}");
        // However slow the device, the budget stops falling at a fraction of the best rate.
        let mut down = previous;
        (0..60).for_each(|_| down = budget(down, best, u64::MAX / 32));
        assert_eq!(down, (best / CUT_MAX).max(1), "{at}");
    }
}

/// A device that another process occupies more and more, while background work requests all of it.
#[test]
fn compactions_yield_to_a_busy_device_and_required_work_does_not() {
    let governor = PriorityGovernor::default();
    let (mut now, mut merged, mut built) = (0u64, Vec::new(), Vec::new());
    for second in 0..30u64 {
        // Nanoseconds for 1 MiB: ten times as long in the seconds 10 to 19.
        let device = if (10..20).contains(&second) { 40_000_000 } else { 4_000_000 };
        let (end, mut merge, mut build) = ((second + 1) * 1_000_000_000, 0u64, 0u64);
        let (mut merge_at, mut build_at) = (now, now);
        while now < end {
            assert_eq!(governor.grant(Class::Checkpoint, 1 << 20, true, now), 0);
            governor.report(Class::Checkpoint, 1, 1 << 20, device);
            if merge_at <= now {
                merge_at = now + governor.grant(Class::Compaction, 1 << 20, false, now).max(1);
                governor.report(Class::Compaction, 1, 1 << 20, device);
                merge += 1;
            }
            if build_at <= now {
                build_at = now + governor.grant(Class::Ddl, 1 << 20, false, now).max(1);
                governor.report(Class::Ddl, 1, 1 << 20, device);
                build += 1;
            }
            now += device;
        }
        merged.push(merge);
        built.push(build);
    }
    println!("MiB a second: merges {merged:?}, builds {built:?}");
    assert_eq!(merged[5], 250, "alone on the device: nothing is cut");
    assert!(merged[15] < 25 && merged[15] >= 8, "cut, and not to nothing: {}", merged[15]);
    assert!((2..=8).contains(&built[15]), "held back, and not to nothing: {}", built[15]);
    assert!(merged[25] > 200, "all of it again");
}

/// The device keeps its speed; only the requests change from large writes to small ones, each with
/// a sync behind it.
#[test]
fn small_requests_are_not_a_slow_device() {
    let governor = PriorityGovernor::default();
    let mut now = 0u64;
    let device = |bytes: u64| 2_000_000 + bytes;
    let mut waited = 0;
    for tick in 0..400u64 {
        let bytes = if tick < 100 { 4 << 20 } else { (1 + tick % 5) << 14 };
        for _ in 0..8 {
            assert_eq!(governor.grant(Class::Checkpoint, bytes, true, now), 0);
            governor.report(Class::Checkpoint, 1, bytes, device(bytes));
            waited += governor.grant(Class::Ddl, 1 << 20, false, now);
            governor.report(Class::Ddl, 1, 1 << 20, device(1 << 20));
            now += device(bytes) + device(1 << 20);
        }
    }
    assert_eq!(waited, 0, "nanoseconds");
}

/// The latency of an unmeasured request shape is estimated from measured shapes, never too low.
#[test]
fn unmeasured_request_shapes_are_estimated_from_measured_ones() {
    let mut samples: [Sample; CLASSES] = Default::default();
    assert!(known(&samples).as_flattened().iter().all(|best| *best == 0));
    // Two requests of 64 KiB together in 1 ms, four times.
    (0..4).for_each(|_| samples[0].add(2, 64 << 10, 1_000_000));
    let none = known(&samples);
    assert_eq!(samples[0].slower(&none), Some(16), "nothing to compare with");
    let known = known(&samples);
    let (one, two, four) = (0, 1, 2);
    assert_eq!(known[two][16], 1_000_000);
    assert_eq!(known[two][20], 1_000_000, "no byte takes longer than in a smaller batch");
    assert_eq!(known[one][14], 4_000_000, "a quarter of the bytes: no longer in all");
    assert_eq!(known[four], [0; SIZES], "more requests take who knows how long");
    // Another class writes 1 MiB at once, at a tenth of that speed.
    samples[1].add(1, 1 << 20, 160_000_000);
    assert_eq!(samples[1].slower(&known), Some(160));
}

/// A tick in which no wait ended does not end the waiting; an hour without a request does.
#[test]
fn users_wait_until_two_ticks_have_passed() {
    const MS: u64 = 1_000_000;
    let stalls = Arc::new(WaitEvents::default());
    let governor = PriorityGovernor::new(stalls.clone(), Arc::default());
    let wait = || stalls.record(evenkeel_base::Cause::LogSync, 200 * MS);
    wait();
    assert!(!governor.users_wait(100 * MS), "nothing is known of the device");
    governor.report(Class::Ddl, 1, 1 << 20, 10 * MS);
    wait();
    let at = [200, 300, 310, 400].map(|ms| governor.users_wait(ms * MS));
    assert_eq!(at, [true, true, true, false]);
    wait();
    assert!(governor.users_wait(500 * MS));
    assert!(!governor.users_wait(3_600_000 * MS));
}

/// Users wait for the log all the time while an index is built, and the device keeps its speed.
#[test]
fn a_build_leaves_most_of_the_device_to_users_who_wait_for_it() {
    const MB: u64 = 1_000_000;
    let (stalls, journal) = (Arc::new(WaitEvents::default()), Arc::new(Journal::default()));
    journal.keep(true);
    let governor = PriorityGovernor::new(stalls.clone(), journal.clone());
    // Bytes that the build moves in each half second, on a disk of 40 MB/s.
    let (mut now, mut moved, mut at_once) = (0u64, Vec::new(), Vec::new());
    let mut users_wait = Vec::new();
    for half in 1..=8u64 {
        let mut bytes = 0;
        while now < half * 500_000_000 {
            let part = governor.at_once(Class::Ddl, false).min(512 << 10);
            let wait = governor.grant(Class::Ddl, part, false, now);
            let took = part * 1_000 / 40;
            if part == 512 << 10 {
                governor.report(Class::Ddl, 1, part, took);
            }
            bytes += part;
            now += wait + took;
            match half {
                1 | 2 => stalls.record(evenkeel_base::Cause::LogSync, wait + took),
                // The build's own waits and waits for a row are no reason to hold it back.
                3 | 4 => {
                    stalls.record(evenkeel_base::Cause::PageRead, took);
                    stalls.exclude(evenkeel_base::Cause::PageRead, took);
                    stalls.record(evenkeel_base::Cause::RowLock, wait + took);
                }
                _ => {}
            }
        }
        moved.push(bytes);
        at_once.push(governor.at_once(Class::Ddl, false));
        users_wait.push(governor.users_wait(now));
    }
    println!("{moved:?} {at_once:?}");
    assert!((MB..3 * MB).contains(&moved[1]), "a tenth: {moved:?}");
    assert_eq!(at_once[1], 64 << 10);
    assert_eq!(users_wait, [true, true, false, false, false, false, false, false]);
    assert!(moved[3..].iter().all(|bytes| *bytes > 19 * MB), "all of it: {moved:?}");
    assert_eq!(governor.at_once(Class::Compaction, false), UNLIMITED);
    // Reads of single pages cost more than their bytes.
    for _ in 0..5 {
        stalls.record(evenkeel_base::Cause::LogSync, 1_000_000_000);
        now += 200_000_000;
        assert_eq!(governor.grant_pages(Class::Ddl, 64 << 10, 6_400_000, now), 0);
    }
    let wait = governor.grant_pages(Class::Ddl, 64 << 10, 6_400_000, now);
    assert!((60_000_000..70_000_000).contains(&wait), "256 KB at 4 MB/s: {wait}");
    // Each decision follows from its recorded inputs and begins where the one before ended.
    let decisions = journal.take();
    let named = |names: &[&str], name| names.iter().position(|n| *n == name).expect("a field");
    let (inputs, outputs) = Law::Governor.fields();
    let (before, after) = (named(inputs, "ddl_left_before"), named(outputs, "ddl_left"));
    for decision in &decisions {
        assert_eq!((decision.inputs.len(), decision.outputs.len()), (inputs.len(), outputs.len()));
        assert_eq!(decide(&decision.inputs).as_ref(), Some(&decision.outputs), "{decision:?}");
    }
    for pair in decisions.windows(2) {
        assert_eq!(pair[0].outputs[after], pair[1].inputs[before], "{pair:?}");
    }
    let mut left: Vec<u64> = decisions.iter().map(|d| d.outputs[after]).collect();
    left.dedup();
    assert!(left.len() > 8, "down by steps, up by steps, and down again: {left:?}");
}

/// Users wait for the log all the time beside compactions that ingest needs.
#[test]
fn compactions_take_just_enough_until_they_are_required() {
    const MB: u64 = 1_000_000;
    let (stalls, journal) = (Arc::new(WaitEvents::default()), Arc::new(Journal::default()));
    journal.keep(true);
    let governor = PriorityGovernor::new(stalls.clone(), journal.clone());
    // Bytes that compactions move in a second, on a disk of 40 MB/s.
    let mut now = 0u64;
    let mut second = |enough: u64, users_wait: bool| {
        governor.set_enough_for_compactions(enough);
        let (end, mut bytes) = (now + 1_000_000_000, 0);
        while now < end {
            let wait = governor.grant(Class::Compaction, 256 << 10, true, now);
            let took = (256 << 10) * 1_000 / 40;
            governor.report(Class::Compaction, 1, 256 << 10, took);
            (now, bytes) = (now + wait + took, bytes + (256 << 10));
            if users_wait {
                stalls.record(evenkeel_base::Cause::LogSync, wait + took);
            }
        }
        bytes / MB
    };
    let all = 39..=41;
    assert!(all.contains(&second(UNLIMITED, true)), "needed at once");
    second(12 * MB, true);
    let paced = second(12 * MB, true);
    assert!((11..=14).contains(&paced), "{paced}");
    assert!(all.contains(&second(UNLIMITED, true)), "from now on");
    second(12 * MB, false);
    assert!(all.contains(&second(12 * MB, false)), "nobody waits");
    governor.set_crowded(true);
    second(12 * MB, false);
    assert!((11..=14).contains(&second(12 * MB, false)), "users want all processors");
    assert!(all.contains(&second(UNLIMITED, false)), "needed at once");
    governor.set_crowded(false);
    second(12 * MB, false);
    assert!(all.contains(&second(12 * MB, false)), "they no longer do");
    // Ingest waits for compactions: its waits while they were held back do not count.
    second(12 * MB, true);
    stalls.record(evenkeel_base::Cause::CompactionDebt, 100_000_000);
    second(12 * MB, true);
    assert!((11..=14).contains(&second(12 * MB, true)));
    stalls.record(evenkeel_base::Cause::CompactionDebt, 100_000_000);
    second(UNLIMITED, true);
    assert!(all.contains(&second(12 * MB, true)), "in debt");
    for _ in 0..60 {
        second(12 * MB, true);
    }
    assert!((11..=14).contains(&second(12 * MB, true)), "forgotten");
    for decision in journal.take() {
        assert_eq!(decide(&decision.inputs).as_ref(), Some(&decision.outputs), "{decision:?}");
    }
}

/// A build comes first in the bandwidth that waiting users leave; idle flushing has a little in any
/// case.
#[test]
fn idle_flushing_takes_the_bandwidth_that_a_build_leaves() {
    const MB: u64 = 1_000_000;
    let rate = |waited_permille: u64, build: u64| {
        let mut surplus = [0; CLASSES];
        surplus[Class::Checkpoint as usize] = 50 * MB;
        surplus[Class::Ddl as usize] = build;
        let inputs = [UNLIMITED, 100 * MB, 16].into_iter().chain([0; CLASSES]).chain(surplus);
        let inputs: Vec<u64> = inputs.chain([10 * MB, waited_permille, UNLIMITED, 0]).collect();
        decide(&inputs).expect("as many as there are")[1 + Class::Checkpoint as usize]
    };
    assert_eq!(rate(300, 0), 10 * MB);
    assert_eq!(rate(300, 4 * MB), 6 * MB);
    assert_eq!(rate(300, 40 * MB), 10 * MB / MIN_SHARE);
    assert_eq!(rate(0, 0), 20 * MB, "up by steps");
}
