//! An index build on a slow device, in virtual time. The governor slows the build while others use
//! the device, and the build reports its progress and the time left.

use evenkeel::{
    BuildPhase, BuildProgress, Cause, ColumnSpec, ColumnType, Database, IndexSpec, Law, Metric,
    Options, TableSpec, Value,
};
use evenkeel_base::sync::Mutex;
use evenkeel_io::sim::{Session, SimOptions};
use evenkeel_io::{Env, Event, Rng, SimDisk, SimEnv};
use std::sync::Arc;
use std::time::Duration;

const ROWS: u64 = 600_000;
const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// What is built, and on which device.
struct Setup {
    bytes_per_sec: u64,
    /// The milliseconds between which the device has a tenth of its speed.
    slow: (u64, u64),
    memory_size: u64,
    indexes: Vec<IndexSpec>,
}

/// Two indexes, with memory enough that each is one run.
fn two(bytes_per_sec: u64, slow: (u64, u64)) -> Setup {
    let indexes = vec![IndexSpec::new("a", &["a"]), IndexSpec::new("b", &["b"])];
    Setup { bytes_per_sec, slow, memory_size: Options::new().memory_size, indexes }
}

/// Creates and loads a table of random numbers on such a device, so that the governor has seen the
/// device's best rate.
fn table(sim: &SimEnv, setup: &Setup) -> Database {
    sim.set_device(setup.bytes_per_sec);
    let options = Options { memory_size: setup.memory_size, ..Options::new() }.env(sim.env());
    let db = Database::open_with("db", options).expect("creates");
    let int = |name| ColumnSpec::new(name, ColumnType::Int64);
    let spec = TableSpec::new().column(int("id")).column(int("a")).column(int("b"));
    db.create_table("t", &spec.primary_key(&["id"])).expect("table");
    let mut rng = Rng::new(4);
    let mut number = move || Value::Int(rng.next_u64() as i64 >> 2);
    let rows = (0..ROWS).map(|id| vec![Value::Int(id as i64), number(), number()]);
    assert_eq!(db.load_table("t", rows).expect("loads"), ROWS);
    db
}

/// A sample of a build's progress.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at_ns: u64,
    phase: BuildPhase,
    share: f64,
    left_ns: Option<u64>,
    granted: u64,
}

/// Builds the indexes. Returns samples of the progress and the decisions of the governor.
fn build(setup: Setup) -> (Vec<Seen>, Vec<Vec<u64>>) {
    let sim = SimEnv::on(SimDisk::new(7), SimOptions::quiet(7));
    let db = Arc::new(table(&sim, &setup));
    let Setup { bytes_per_sec, slow, indexes, .. } = setup;
    db.keep_decisions(true);
    let progress = BuildProgress::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let ended = Arc::new(Event::new());
    let (builder, told, over) = (db.clone(), progress.clone(), ended.clone());
    let work: Session = Box::new(move || {
        builder.add_indexes_with("t", &indexes, &told).expect("builds");
        over.notify();
    });
    let (watched, out, env) = (db.clone(), seen.clone(), sim.clone());
    let watch: Session = Box::new(move || {
        let start = env.now_ns();
        loop {
            let at_ns = env.now_ns() - start;
            let is_slow = (slow.0 * MS..slow.1 * MS).contains(&at_ns);
            env.set_device(if is_slow { bytes_per_sec / 10 } else { bytes_per_sec });
            out.lock().push(Seen {
                at_ns,
                phase: progress.phase(),
                share: progress.share(),
                left_ns: progress.time_left().map(|left| left.as_nanos() as u64),
                granted: watched.stats().get(Metric::GovernorGrantedDdl),
            });
            if ended.now() > 0 {
                return;
            }
            env.wait(&ended, 0, Some(Duration::from_millis(50)), Cause::Idle);
        }
    });
    sim.run(vec![work, watch]);
    sim.set_device(0);
    let decisions = db.take_decisions().into_iter().filter(|d| d.law == Law::Governor);
    let decisions: Vec<_> = decisions.collect();
    // Only the build waits for the device. Its waits, and those of the load before, are no reason
    // to slow it.
    let (names, _) = Law::Governor.fields();
    let waited = names.iter().position(|name| *name == "users_waited_permille").expect("a field");
    assert!(!decisions.is_empty() && decisions.iter().all(|d| d.inputs[waited] == 0));
    let decisions = decisions.into_iter().map(|d| d.outputs).collect();
    let check = db.check().expect("looks");
    assert!(check.problems.is_empty() && check.rows == ROWS, "{:?}", check.problems);
    let db = Arc::into_inner(db).expect("the sessions have ended");
    db.close().expect("closes");
    sim.stop();
    let seen = seen.lock().clone();
    (seen, decisions)
}

/// Asserts that the build takes more than five seconds, that the share done grows in each of them
/// and never goes back, and that the estimate of the time left is right within a factor of two at
/// half time.
fn assert_progress(seen: &[Seen]) {
    let end = seen.last().expect("some").at_ns;
    assert!(end > 5 * SECOND, "it takes a while: {end}");
    for pair in seen.windows(2) {
        assert!(pair[1].share >= pair[0].share, "never back: {pair:?}");
    }
    assert!((seen.last().expect("some").share - 1.0).abs() < 1e-9, "{seen:?}");
    // The share grows in each second.
    for second in 1..end / SECOND {
        let at =
            |s: u64| seen.iter().rev().find(|x| x.at_ns <= s * SECOND + 9_999).expect("some").share;
        assert!(at(second + 1) > at(second), "second {second}: {seen:?}");
    }
    assert_estimate_is_right(seen, end / 2);
}

fn assert_estimate_is_right(seen: &[Seen], at_ns: u64) {
    let end = seen.last().expect("some").at_ns;
    let at = seen.iter().find(|x| x.at_ns >= at_ns).expect("some");
    let (left, told) = (end - at.at_ns, at.left_ns.expect("known by then"));
    assert!(told <= 2 * left && left <= 2 * told, "told {told}, took {left}: {at:?} {seen:?}");
}

#[test]
fn a_build_reports_its_progress_and_time_left() {
    assert_progress(&build(two(3_000_000, (0, 0))).0);
}

/// The memory holds an eighth of the entries, so the runs of each index are compacted. One index is
/// proved unique.
#[test]
fn a_build_reports_progress_while_it_compacts_and_proves() {
    let indexes = ["a", "b"].map(|name| IndexSpec::new(name, &[name]));
    let unique = IndexSpec::new("u", &["b", "a"]).unique();
    let indexes = indexes.into_iter().chain([unique]).collect();
    let setup = Setup { memory_size: 16 << 20, indexes, ..two(3_000_000, (0, 0)) };
    let (seen, _) = build(setup);
    assert_progress(&seen);
    let last = |phase| seen.iter().rev().find(|x| x.phase == phase).expect("some").at_ns;
    let (read, written) = (last(BuildPhase::Scanning), last(BuildPhase::Writing));
    let proved = last(BuildPhase::Checking);
    assert!(written > read + SECOND && proved > written + SECOND, "{read} {written} {proved}");
    // Halfway through the compaction, and through the proof.
    assert_estimate_is_right(&seen, read.midpoint(written));
    assert_estimate_is_right(&seen, written.midpoint(proved));
}

#[test]
fn the_governor_slows_a_build_while_the_device_is_slow() {
    // A disk of 60 MB/s, of which others leave 6 MB/s for two seconds.
    let (seen, decisions) = build(two(60_000_000, (100, 2_100)));
    let at =
        |ms: u64| seen.iter().rev().find(|x| x.at_ns <= ms * MS + 9_999).expect("some").granted;
    println!("{:?}", (0..=24).map(|n| at(n * 100)).collect::<Vec<_>>());
    // The build could take all that others leave, and gets a part of it. It gets more than nothing,
    // so it continues.
    let slow = at(2_000) - at(1_000);
    assert!(slow > 0 && slow < 4_500_000, "{slow}: {seen:?}");
    assert!(at(2_000) < seen.last().expect("some").granted, "it was not done before");
    let budgets: Vec<u64> = decisions.iter().map(|d| d[0]).collect();
    println!("{slow} bytes in a second; budgets {budgets:?}");
    assert!(budgets.iter().any(|budget| *budget < 6_000_000), "{budgets:?}");
    // The law removes the bound again by doubling it.
    let least = budgets.iter().copied().enumerate().min_by_key(|b| b.1).expect("some");
    assert!(budgets[least.0..].iter().any(|budget| *budget >= 2 * least.1), "{budgets:?}");
}
