//! Rung 2 of the ladder: each script of the crash rung runs with one failing call of the disk, for
//! each of its calls or a sample of them. The same is done with the calls of an open after a crash
//! in the middle of the script. A call finds no space, or the disk is full from that call on, or a
//! sync finds no space, or a call has an I/O error (`life` has the required outcomes).
//!
//! `EVENKEEL_SIM_FROM` is the seed (1). `EVENKEEL_SIM_CALLS` is the greatest number of calls of
//! each kind and part that fail. `EVENKEEL_SIM_SCRIPT` and `EVENKEEL_SIM_CASE` replay one case;
//! `EVENKEEL_SIM_MATRIX` prints the outcomes by kind of call.

#[path = "failing_calls/life.rs"]
mod life;

use evenkeel::Code;
use evenkeel_base::sync::Mutex;
use evenkeel_io::errno::{self, Fate, OsCall};
use evenkeel_io::sim::{
    CrashPolicy, Fault, FaultKind, Noted, SimOptions, When, drive_beside_others,
};
use evenkeel_io::{Rng, SimDisk, SimEnv};
use evenkeel_sim::actor::open;
use evenkeel_sim::model::Model;
use evenkeel_sim::scripts::{Script, growing, scripts, starts};
use life::{Case, Failing, Lived, Part, Seen, live, next_life};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The greatest number of calls of each kind that fail in a part of a script.
const CALLS: usize = 80;

/// The system grants no more open files.
const LIMIT: Failing = Failing::Errno(libc::EMFILE);

/// Outcomes that the failing calls of all scripts together must have had.
const EXPECTED: &[(Part, Failing, &[Seen])] = &[
    (Part::Script, Failing::Space, &[Seen::Repeated, Seen::Told, Seen::Unnoticed]),
    (Part::Script, Failing::Full, &[Seen::Repeated, Seen::Told, Seen::Unnoticed]),
    (
        Part::Script,
        Failing::Sync,
        &[Seen::Repeated, Seen::Told, Seen::Stopped, Seen::Unnoticed, Seen::CloseRefused],
    ),
    (
        Part::Script,
        Failing::Error,
        &[Seen::Told, Seen::Stopped, Seen::Unnoticed, Seen::CloseRefused],
    ),
    (Part::Script, LIMIT, &[Seen::Repeated, Seen::Told, Seen::Unnoticed]),
    (Part::Open, LIMIT, &[Seen::OpenRefused]),
    (Part::Open, Failing::Space, &[Seen::Unnoticed]),
    (Part::Open, Failing::Full, &[Seen::OpenRefused, Seen::Unnoticed]),
    (Part::Open, Failing::Sync, &[Seen::OpenRefused]),
    (Part::Open, Failing::Error, &[Seen::OpenRefused, Seen::Unnoticed]),
];

/// Outcomes by part and kind of failure.
type Counts = BTreeMap<(Part, Failing, Seen), u64>;

/// The kind of a call.
fn what(noted: &Noted) -> &'static str {
    match noted.kinds.first() {
        Some(FaultKind::ReadError) => "read",
        Some(FaultKind::WriteError) => match noted.kinds.len() {
            1 => "cut or punch",
            2 => "allocation",
            _ => "write",
        },
        Some(FaultKind::SyncError) => "sync",
        Some(FaultKind::NameError) => "name",
        _ => "look",
    }
}

/// The directory or file of the call.
fn place(noted: &Noted) -> &str {
    match noted.path.split('/').next() {
        _ if noted.path.ends_with(".tmp") && !noted.path.ends_with("new.tmp") => "a trial",
        Some("") | None => "the directory",
        Some(place) => place,
    }
}

/// At most this many of the calls, evenly spread, with the first and the last.
fn sample(calls: &[u64], most: usize, rng: &mut Rng) -> Vec<u64> {
    if calls.len() <= most.max(2) {
        return calls.to_vec();
    }
    let inner = most.max(3) - 2;
    let edge = |n: usize| 1 + n * (calls.len() - 2) / inner;
    let drawn = (0..inner).map(|n| {
        let (from, end) = (edge(n), edge(n + 1));
        calls[from + rng.below((end - from) as u64) as usize]
    });
    std::iter::once(calls[0]).chain(drawn).chain([calls[calls.len() - 1]]).collect()
}

#[test]
fn samples_are_spread_from_the_first_to_the_last() {
    let calls: Vec<u64> = (0..1_000).map(|n| 3 * n).collect();
    for most in 3..200 {
        let drawn = sample(&calls, most, &mut Rng::new(most as u64));
        assert_eq!((drawn.len(), drawn[0], drawn[most - 1]), (most, 0, 2_997));
        let widest = drawn.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(0);
        assert!(drawn.is_sorted() && widest <= 3 * (2 * 998 / (most as u64 - 2) + 2), "{most}");
    }
    assert_eq!(sample(&calls[..7], 7, &mut Rng::new(1)), calls[..7]);
}

/// The cases of a part whose calls are known, and the number of calls from which they are chosen.
fn cases(clean: &Lived, part: Part, seed: u64, most: usize) -> (Vec<Case>, usize) {
    let range = match part {
        Part::Script => clean.opened_at + 1..=clean.ended_at,
        Part::Open | Part::Cut => 1..=clean.opened_at,
    };
    let mut rng = Rng::new(seed ^ part as u64);
    let (mut cases, mut all) = (Vec::new(), 0);
    for failing in Failing::ALL {
        let fits = |noted: &&Noted| match failing {
            Failing::Error => true,
            Failing::Space => noted.needs_space,
            // Names need no block here.
            Failing::Full => noted.needs_space && what(noted) != "name",
            Failing::Sync => what(noted) == "sync",
            Failing::Errno(number) => errno::fate(noted.of, number) == Fate::WaitedOut,
        };
        let noted = clean.noted.iter().filter(|noted| range.contains(&noted.call));
        let calls: Vec<u64> = noted.filter(fits).map(|noted| noted.call).collect();
        all += calls.len();
        let case = |call| Case { seed, part, failing: Some(failing), call };
        cases.extend(sample(&calls, most, &mut rng).into_iter().map(case));
    }
    (cases, all)
}

/// A failed write or sync of any file of the database must stop writes. Only the files of an index
/// build are discarded instead.
fn must_stop(script: &Script, case: Case, noted: &Noted) -> bool {
    let changes = matches!(what(noted), "write" | "sync");
    let place = place(noted);
    let builds = place == "runs" && script.name.starts_with("add index");
    let relied_on = ["wal", "pages", "dw", "evenkeel.super", "undo", "runs"].contains(&place)
        || place.starts_with("evenkeel.checkpoint");
    let is_final = match case.failing {
        // A new file whose sync finds no space is made again.
        Some(Failing::Errno(number)) => errno::fate(noted.of, number) == Fate::Final,
        failing => failing == Some(Failing::Error),
    };
    is_final && changes && relied_on && !builds
}

/// Writes must not stop, because the engine repeats the call.
fn must_go_on(case: Case, noted: &Noted) -> bool {
    match case.failing {
        Some(Failing::Errno(number)) => {
            noted.of != OsCall::Sync && errno::fate(noted.of, number) == Fate::WaitedOut
        }
        failing => matches!(failing, Some(Failing::Space | Failing::Full)),
    }
}

/// The results of the cases of a script.
#[derive(Default)]
struct Found {
    counts: Counts,
    /// Disks at the ends of lives, by hash.
    states: BTreeSet<u64>,
    matrix: BTreeMap<String, u64>,
    failures: Vec<String>,
}

impl Found {
    fn add(&mut self, other: Found) {
        for (key, n) in other.counts {
            *self.counts.entry(key).or_default() += n;
        }
        for (key, n) in other.matrix {
            *self.matrix.entry(key).or_default() += n;
        }
        self.states.extend(other.states);
        self.failures.extend(other.failures);
    }

    /// The outcomes of the calls of a part, as text.
    fn told(&self, part: Part) -> String {
        let mut text = String::new();
        for failing in Failing::ALL {
            let of = self.counts.iter().filter(|((p, f, _), _)| (*p, *f) == (part, failing));
            let seen: Vec<String> = of.map(|((.., s), n)| format!("{n} {}", s.name())).collect();
            if !seen.is_empty() {
                let _ = write!(text, "; {}: {}", failing.name(), seen.join(", "));
            }
        }
        text
    }

    fn check_expected(&self) {
        for (part, failing, expected) in EXPECTED {
            for seen in *expected {
                let n = self.counts.get(&(*part, *failing, *seen)).copied().unwrap_or(0);
                assert!(n > 0, "{part:?}: no call failing with {failing:?} was {seen:?}");
            }
        }
    }
}

/// Runs one case.
fn run(script: &Script, start: &(SimDisk, Model), clean: &Lived, case: Case, found: &Mutex<Found>) {
    let Some(noted) = clean.noted.iter().find(|noted| noted.call == case.call) else { return };
    let at = format!("{} of {}", what(noted), place(noted));
    let done = live(script, start, case).and_then(|lived| {
        let (Some(seen), Some(failing)) = (lived.seen, case.failing) else {
            return Err("the run is another one: nothing has failed".into());
        };
        let stops = [Seen::Stopped, Seen::OpenRefused, Seen::CloseRefused].contains(&seen);
        if must_stop(script, case, noted) && !stops {
            return Err(format!("writes have not stopped: {}", seen.name()));
        }
        if must_go_on(case, noted) && seen == Seen::Stopped {
            return Err("writes have stopped for what is waited out".into());
        }
        next_life(script, &lived, case)?;
        let told = lived.told.as_ref().map_or("", |error| error.code().name());
        let key = format!("{}, a {at}: {} {told}", failing.name(), seen.name());
        let mut found = found.lock();
        *found.matrix.entry(key).or_default() += 1;
        *found.counts.entry((case.part, failing, seen)).or_default() += 1;
        found.states.insert(lived.disk.hash());
        Ok(())
    });
    if let Err(why) = done {
        let why: String = why.chars().take(900).collect();
        found.lock().failures.push(format!(
            "{name}, a failing {at}: {why}\n    replay: EVENKEEL_SIM_SCRIPT='{name}' \
             EVENKEEL_SIM_FROM={} EVENKEEL_SIM_CALLS=100000 EVENKEEL_SIM_CASE='{case}' \
             cargo test -p evenkeel-sim --test failing_calls",
            case.seed,
            name = script.name
        ));
    }
}

/// Runs cases on every core.
fn run_all(script: &Script, start: &(SimDisk, Model), clean: &Lived, cases: &[Case]) -> Found {
    let (next, found) = (AtomicUsize::new(0), Mutex::default());
    std::thread::scope(|scope| {
        for n in 0..std::thread::available_parallelism().map_or(2, |n| n.get().min(8)) {
            let (next, found) = (&next, &found);
            scope.spawn(move || {
                drive_beside_others(n);
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(script, start, clean, *case, found);
                }
            });
        }
    });
    found.into_inner()
}

/// A life in which nothing fails.
fn clean(script: &Script, start: &(SimDisk, Model), case: Case) -> Lived {
    match live(script, start, case) {
        Ok(lived) => lived,
        Err(why) => panic!("{}, {:?}, nothing fails: {why}", script.name, case.part),
    }
}

/// Runs a script, and opens after it, with failing calls.
fn explore(script: &Script, seed: u64, most: usize, only: Option<&str>) -> Found {
    let starts = starts(script);
    let start = &starts[(seed - 1) as usize % starts.len()];
    let nothing = |part, call| Case { seed, part, failing: None, call };
    let whole = clean(script, start, nothing(Part::Script, 0));
    // The database to open has crashed anywhere in the script.
    let change = 1 + Rng::new(seed).below(whole.changes);
    let cut = clean(script, start, nothing(Part::Cut, change));
    let crashed = (cut.disk.crash(CrashPolicy::Mixed, seed), cut.model);
    let opened = clean(script, &crashed, nothing(Part::Open, 0));
    let mut found = Found::default();
    for (part, start, clean) in [(Part::Script, start, &whole), (Part::Open, &crashed, &opened)] {
        let (mut cases, calls) = cases(clean, part, seed, most);
        if let Some(only) = only {
            cases.retain(|case| case.to_string() == only);
        }
        found.add(run_all(script, start, clean, &cases));
        let of = if part == Part::Open { "  opened" } else { script.name };
        println!("{:>5} of {calls:>5} calls  {of}{}", cases.len(), found.told(part));
    }
    found
}

#[test]
fn scripts_survive_a_failure_of_any_call() {
    let var = |name: &str| std::env::var(name).ok();
    let number = |name: &str| var(name).and_then(|v| v.parse::<u64>().ok());
    let only = var("EVENKEEL_SIM_SCRIPT").unwrap_or_default();
    let seed = number("EVENKEEL_SIM_FROM").unwrap_or(1).max(1);
    let most = number("EVENKEEL_SIM_CALLS").map_or(CALLS, |n| n as usize);
    let case = var("EVENKEEL_SIM_CASE");
    println!("seed {seed}, at most {most} calls of each kind and part");
    let mut all = Found::default();
    for script in scripts().iter().chain([&growing()]).filter(|s| s.name.contains(&only)) {
        all.add(explore(script, seed, most, case.as_deref()));
    }
    if var("EVENKEEL_SIM_MATRIX").is_some() {
        all.matrix.iter().for_each(|(key, n)| println!("{n:>6} {key}"));
    }
    let tried: u64 = all.counts.values().sum();
    println!("{tried:>5} calls failed, {} different states", all.states.len());
    println!("of scripts{}", all.told(Part::Script));
    println!("of opens{}", all.told(Part::Open));
    let failures = &all.failures;
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    if only.is_empty() && case.is_none() && most >= CALLS {
        all.check_expected();
    }
}

/// Failing calls for each row and column of the table and each part.
const OF_EACH: usize = 2;

/// The table of `errno`, row by row: calls of scripts and opens fail with each error number.
#[test]
fn each_error_number_of_each_call_has_its_listed_outcome() {
    let (mut all, mut cells) = (Found::default(), BTreeMap::new());
    for script in [growing()].iter().chain(scripts().iter().take(2)) {
        let start = &starts(script)[0];
        for (part, seed) in [(Part::Script, 1), (Part::Open, 2)] {
            let clean = clean(script, start, Case { seed, part, failing: None, call: 0 });
            let mut cases = Vec::new();
            // A missing file is damage, which lasts.
            for (_, number, _) in errno::TABLE.iter().filter(|(_, n, _)| *n != libc::ENOENT) {
                for of in OsCall::ALL {
                    let fits = |noted: &&Noted| {
                        noted.of == of && (noted.call > clean.opened_at) == (part == Part::Script)
                    };
                    let calls: Vec<u64> =
                        clean.noted.iter().filter(fits).map(|noted| noted.call).collect();
                    *cells.entry((of, *number)).or_insert(0) += calls.len();
                    let failing = Some(Failing::Errno(*number));
                    let drawn = sample(&calls, OF_EACH, &mut Rng::new(seed));
                    cases.extend(drawn.into_iter().map(|call| Case { seed, part, failing, call }));
                }
            }
            all.add(run_all(script, start, &clean, &cases));
        }
    }
    let failures = &all.failures;
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    println!("{:>5} calls failed", all.counts.values().sum::<u64>());
    let missing: Vec<_> =
        cells.iter().filter(|((of, _), n)| *of != OsCall::Thread && **n == 0).collect();
    assert!(missing.is_empty(), "never called: {missing:?}");
}

/// If the system refuses a thread of an open once, the open requests that thread again. If the
/// system refuses it always, the open fails with that error and leaves nothing behind.
#[test]
fn an_open_requests_a_refused_thread_again() {
    let script = &scripts()[0];
    let start = &starts(script)[0].0;
    let tried = |when| {
        let disk = start.crash(CrashPolicy::Killed, 1);
        disk.inject(Fault::new(FaultKind::Os(OsCall::Thread, libc::EAGAIN), when));
        let sim = SimEnv::on(disk, SimOptions::quiet(1));
        let opened = open(&sim, script.geometry);
        let struck = sim.disk().faults_struck();
        let closed = opened.and_then(|db| {
            let problems = db.check()?.problems;
            assert!(problems.is_empty(), "{problems:?}");
            db.close()
        });
        sim.disk().crash_now();
        sim.stop();
        (closed, struck, sim.disk().crash(CrashPolicy::Killed, 1))
    };
    let mut threads = 0;
    loop {
        let (closed, struck, _) = tried(When::Nth(threads + 1));
        closed.unwrap_or_else(|error| panic!("thread {threads}: {error}"));
        if struck == 0 {
            break;
        }
        threads += 1;
    }
    assert!(threads > 3, "{threads}");
    for from in 1..=threads {
        let (closed, struck, left) = tried(When::From(from));
        // The open requested the thread more than once.
        assert!(struck > 1, "{from}: {struck}");
        assert_eq!(closed.map_err(|error| error.code()), Err(Code::ThreadSpawn), "{from}");
        let sim = SimEnv::on(left, SimOptions::quiet(1));
        open(&sim, script.geometry).and_then(|db| db.close()).expect("opens and closes");
        sim.stop();
    }
    println!("{threads:>5} threads of an open");
}
