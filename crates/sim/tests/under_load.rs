//! Index builds beside writers that never pause and could use the whole device, in virtual time. No
//! background work stops all writers, a build gets its share of the device and no more, and a
//! cancelled build ends at once.

use evenkeel::{
    Access, BuildPhase, BuildProgress, Cause, Code, ColumnSpec, ColumnType, Database, Geometry,
    IndexSpec, Isolation, Metric, Options, Result, TableSpec, Value, ValueRef,
};
use evenkeel_base::sync::Mutex;
use evenkeel_io::sim::{Session, SimOptions};
use evenkeel_io::{Env, Event, Rng, SimDisk, SimEnv};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

const ROWS: u64 = 200_000;
const WRITERS: u64 = 6;
const SEED: u64 = 11;
const MS: u64 = 1_000_000;
const BYTES_PER_SEC: u64 = 40_000_000;
/// Enough for the tables and for all entries of a build.
const MEMORY: u64 = 64 << 20;

/// The state that the sessions share.
struct World {
    sim: SimEnv,
    db: Database,
    over: AtomicBool,
    /// The pause of each writer after each commit.
    rest_ms: u64,
    /// The time at which each commit returned, and the nanoseconds of its transaction.
    commits: Mutex<Vec<(u64, u64)>>,
}

impl World {
    /// Two tables with an index each, so that inserts cause flushes and compactions. The log is so
    /// short that checkpoints are taken all the time.
    fn new(memory_size: u64) -> Arc<World> {
        World::resting(memory_size, 0, SEED)
    }

    /// The same with writers that pause after each commit.
    fn resting(memory_size: u64, rest_ms: u64, seed: u64) -> Arc<World> {
        let options = SimOptions { latency: true, ..SimOptions::quiet(seed) };
        let sim = SimEnv::on(SimDisk::new(seed), options);
        sim.set_device(BYTES_PER_SEC);
        let geometry = Geometry {
            generation_bytes: Some(256 << 10),
            log_bytes: Some(8 << 20),
            ..Geometry::default()
        };
        let options = Options { memory_size, ..Options::new() };
        let options = options.env(sim.env()).geometry(geometry);
        let db = Database::open_with("db", options).expect("creates");
        let int = |name| ColumnSpec::new(name, ColumnType::Int64);
        for table in ["t", "other"] {
            let spec = TableSpec::new().column(int("id")).column(int("a")).column(int("b"));
            let spec = spec.primary_key(&["id"]).index(IndexSpec::new("had", &["b"]));
            db.create_table(table, &spec).expect("table");
            let mut rng = Rng::new(4);
            let mut number = move || Value::Int(rng.next_u64() as i64 >> 2);
            let rows = (0..ROWS).map(|id| vec![Value::Int(id as i64), number(), number()]);
            assert_eq!(db.load_table(table, rows).expect("loads"), ROWS);
        }
        let (over, commits) = (AtomicBool::new(false), Mutex::default());
        Arc::new(World { sim, db, over, rest_ms, commits })
    }

    fn now_ns(&self) -> u64 {
        self.sim.now_ns()
    }

    fn pause(&self, ms: u64) {
        let never = Arc::new(Event::new());
        self.sim.wait(&never, 0, Some(Duration::from_millis(ms)), Cause::Idle);
    }

    /// Inserts rows and changes old ones until `over` is set.
    fn write(&self, writer: u64) {
        let mut rng = Rng::new(100 + writer);
        let mut id = (writer + 1) << 32;
        if self.rest_ms > 0 {
            // The writers take turns.
            self.pause(writer * self.rest_ms / WRITERS);
        }
        while !self.over.load(SeqCst) {
            let begun = self.now_ns();
            let txn = self.db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
            let table = txn.table("t").expect("table");
            for _ in 0..8 {
                id += 1;
                let mut number = || ValueRef::Int(rng.next_u64() as i64 >> 2);
                let row = [ValueRef::Int(id as i64), number(), number()];
                table.insert(&row).expect("inserts");
            }
            // Each writer has old rows of its own.
            let old = rng.below(ROWS / WRITERS) * WRITERS + writer;
            let value = ValueRef::Int(rng.next_u64() as i64 >> 2);
            table.update(&[ValueRef::Int(old as i64)], &[(2, value)]).expect("updates");
            txn.commit().expect("commits");
            let now = self.now_ns();
            self.commits.lock().push((now, now - begun));
            if self.rest_ms > 0 {
                self.pause(self.rest_ms);
            }
        }
    }

    /// Builds three indexes, each this many times.
    fn build(&self, table: &str, times: u64, progress: &BuildProgress) -> Result<()> {
        let mut indexes = Vec::new();
        for n in 0..times {
            let of = |column| IndexSpec::new(&format!("by_{column}_{n}"), &[column]);
            indexes.extend(["a", "b"].map(of));
            indexes.push(IndexSpec::new(&format!("unique_{n}"), &["a", "b"]).unique());
        }
        self.db.add_indexes_with(table, &indexes, progress)
    }

    /// Runs the writers beside another session, until that session ends.
    fn run(self: &Arc<World>, other: impl FnOnce(&Arc<World>) + Send + 'static) {
        let writers = (0..WRITERS).map(|writer| {
            let world = self.clone();
            Box::new(move || world.write(writer)) as Session
        });
        let world = self.clone();
        let other: Session = Box::new(move || {
            other(&world);
            world.over.store(true, SeqCst);
        });
        self.sim.run(writers.chain([other]).collect());
        self.sim.set_device(0);
        let check = self.db.check().expect("looks");
        assert!(check.problems.is_empty(), "{:?}", check.problems);
    }

    fn end(self: Arc<World>) {
        let world = Arc::into_inner(self).expect("the sessions have ended");
        world.db.close().expect("closes");
        world.sim.stop();
    }
}

/// Figures of writers beside a build of the indexes of a table; table "none": beside no build.
struct Seen {
    /// The times at which the build began and ended; the counters at the beginning, at the end, and
    /// a second later.
    begun: u64,
    ended: u64,
    counts: [[u64; 4]; 3],
    commits: Vec<(u64, u64)>,
}

impl Seen {
    fn of(table: &'static str, times: u64, rest_ms: u64) -> Seen {
        Seen::of_seed(table, times, rest_ms, SEED)
    }

    fn of_seed(table: &'static str, times: u64, rest_ms: u64, seed: u64) -> Seen {
        Seen::during(table, (times, 5_000), rest_ms, seed)
    }

    /// Without a build, the writers run for `none_ms` milliseconds.
    fn during(table: &'static str, (times, none_ms): (u64, u64), rest_ms: u64, seed: u64) -> Seen {
        let world = World::resting(MEMORY, rest_ms, seed);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let out = seen.clone();
        world.run(move |world| {
            let stats = || {
                let stats = world.db.stats();
                let of = [
                    Metric::MemtableFlushes,
                    Metric::CompactionsFinished,
                    Metric::Checkpoints,
                    Metric::GovernorGrantedDdl,
                ];
                (world.now_ns(), of.map(|metric| stats.get(metric)))
            };
            world.pause(3_000);
            out.lock().push(stats());
            match table {
                "none" => world.pause(none_ms),
                _ => world.build(table, times, &BuildProgress::default()).expect("builds"),
            }
            out.lock().push(stats());
            world.pause(1_000);
            out.lock().push(stats());
        });
        let found = std::mem::take(&mut *seen.lock());
        let [(begun, before), (ended, after), (_, last)] = found[..] else { panic!("{found:?}") };
        let commits = std::mem::take(&mut *world.commits.lock());
        world.end();
        let seen = Seen { begun, ended, counts: [before, after, last], commits };
        println!(
            "{table}, resting {rest_ms} ms: {} ms; a transaction took {} us; commits a second \
             before {}, beside the build {}, after {}; each half a second {:?}, {:?}; longest gap \
             {} ms; flushes, compactions, checkpoints, ddl granted: {:?}",
            (ended - begun) / MS,
            seen.took_us(),
            seen.rate(begun - 2_000 * MS, begun),
            seen.rate(begun, ended),
            seen.rate(ended, ended + 1_000 * MS),
            seen.halves(begun - 2_000 * MS, begun),
            seen.halves(begun, ended),
            seen.longest_gap_ms(),
            seen.counts,
        );
        seen
    }

    /// Commits a second.
    fn rate(&self, from: u64, to: u64) -> u64 {
        let n = self.commits.iter().filter(|(at, _)| (from..to).contains(at)).count() as u64;
        n * 1_000 * MS / (to - from)
    }

    /// The same for each half second.
    fn halves(&self, from: u64, to: u64) -> Vec<u64> {
        let half = 500 * MS;
        (0..(to - from) / half).map(|i| self.rate(from + i * half, from + (i + 1) * half)).collect()
    }

    /// The lowest rate of two consecutive half seconds during the build.
    fn worst_second(&self) -> u64 {
        let halves = self.halves(self.begun, self.ended);
        halves.windows(2).map(|two| two.iter().sum::<u64>() / 2).min().expect("a second")
    }

    fn longest_gap_ms(&self) -> u64 {
        self.commits.windows(2).map(|pair| pair[1].0 - pair[0].0).max().expect("some") / MS
    }

    /// The mean microseconds of a transaction during the build.
    fn took_us(&self) -> u64 {
        let of = self.commits.iter().filter(|(at, _)| (self.begun..self.ended).contains(at));
        let (sum, n) = of.fold((0, 0), |(sum, n), (_, took)| (sum + took, n + 1));
        sum / n.max(1) / 1_000
    }

    /// Bytes granted to the build, and the most that the device could have moved during it.
    fn granted(&self) -> (u64, u64) {
        let [before, after, _] = self.counts;
        (after[3] - before[3], BYTES_PER_SEC * ((self.ended - self.begun) / MS) / 1_000)
    }
}

#[test]
fn no_background_work_stops_all_writers() {
    // Chance decides in which second a large compaction runs, so the test sums several runs.
    let rates = [SEED, SEED + 1, SEED + 2].map(rates_of_writers_beside_their_own_build);
    let [beside, after] = [0, 1].map(|i| rates.iter().map(|rates| rates[i]).sum::<u64>());
    assert!(beside * 10 >= after * 8, "commits a second with a build and without: {rates:?}");
}

/// Commits in a build's first second, and in the first second after the build.
fn rates_of_writers_beside_their_own_build(seed: u64) -> [u64; 2] {
    let seen = Seen::of_seed("t", 1, 0, seed);
    assert!(seen.longest_gap_ms() < 100, "nobody commits for so long");
    let [before, after, last] = seen.counts;
    // All kinds of background work ran, also during the build.
    assert!(last[0] > 10 && last[1] > 5 && last[2] > 5, "{last:?}");
    assert!(after[0] > before[0] && after[1] > before[1] && after[2] > before[2], "{after:?}");
    let (granted, all) = seen.granted();
    assert!(granted < all / 10 * 9, "{granted} bytes of {all}");
    // From the beginning of the build on the writers maintain three more indexes, as they do
    // afterwards.
    [seen.begun, seen.ended].map(|at| seen.rate(at, at + 1_000 * MS))
}

/// A compaction, also a large one, proceeds at the rate that ingest needs and does not take the
/// device from writers.
#[test]
fn writers_keep_three_quarters_of_their_rate_beside_a_large_compaction() {
    for seed in [SEED, SEED + 1] {
        let seen = Seen::during("none", (1, 20_000), 0, seed);
        let (halves, mean) =
            (seen.halves(seen.begun, seen.ended), seen.rate(seen.begun, seen.ended));
        // The worst second, which begins with any half one.
        let seconds = halves.windows(2).map(|pair| (pair[0] + pair[1]) / 2);
        let least = seconds.min().expect("some");
        assert!(least * 4 >= mean * 3, "{least} of {mean} commits a second: {halves:?}");
        let [before, after, _] = seen.counts;
        assert!(after[1] - before[1] > 50, "compactions: {before:?} {after:?}");
    }
}

/// The bar of a build beside a full write load: users keep 0.8 of the rate that they have without a
/// build, also in the worst second (a checkpoint or a compaction of their own table costs them more
/// than that for half a second). The build proceeds meanwhile.
#[test]
fn writers_of_another_table_keep_their_rate_beside_an_index_build() {
    let (alone, seen) = (Seen::of("none", 1, 0), Seen::of("other", 1, 0));
    let rate = |of: &Seen| of.rate(of.begun, of.ended);
    let rates = [rate(&alone), rate(&seen)];
    assert!(rates[1] * 10 >= rates[0] * 8, "{rates:?} commits a second");
    let worst = [alone.worst_second(), seen.worst_second()];
    assert!(worst[1] * 10 >= worst[0] * 8, "{worst:?} commits in the worst second");
    let (granted, all) = seen.granted();
    assert!(granted >= all / 20 && granted <= all / 8, "{granted} bytes of {all}");
}

/// Users that commit ten times a second hardly wait for the device and leave most of it to a build.
/// Each commit takes a little longer, by one or two reads or writes of the build.
#[test]
fn a_build_gets_most_of_the_device_while_users_hardly_wait() {
    let rest_ms = WRITERS * 100;
    let (alone, seen) = (Seen::of("none", 4, rest_ms), Seen::of("other", 4, rest_ms));
    let (granted, all) = seen.granted();
    assert!(granted >= all / 2, "{granted} bytes of {all}");
    let took = [alone.took_us(), seen.took_us()];
    assert!(took[1] <= took[0] + 20_000, "microseconds of a transaction: {took:?}");
}

/// Beside writers that need all frames, a build uses less memory and writes a few runs. After the
/// writers have ended, it uses all its memory and writes fewer runs. Its entries never fit its
/// memory.
#[test]
fn a_build_takes_no_memory_that_writers_use() {
    let world = World::new(16 << 20);
    let build = |world: &World, name: &str| {
        let lent = || world.db.stats().get(Metric::BuildBorrowedBytes);
        let before = lent();
        world.db.add_indexes("other", &[IndexSpec::new(name, &["a"])]).expect("builds");
        let tables = world.db.table_stats().expect("reads");
        let other = tables.iter().find(|table| table.name == "other").expect("a table");
        let index = other.indexes.iter().find(|index| index.name == name).expect("an index");
        (lent() - before, index.runs)
    };
    let found = Arc::new(Mutex::new((0, 0)));
    let out = found.clone();
    world.run(move |world| {
        world.pause(1_000);
        *out.lock() = build(world, "beside");
    });
    let beside = *found.lock();
    // After this pause the reads of `table_stats`, which count as a user's waits, are long past as
    // well.
    world.pause(10_000);
    let alone = build(&world, "alone");
    println!("{beside:?} {alone:?}");
    assert!(beside.0 * 2 <= alone.0, "bytes lent, runs: {beside:?}, alone {alone:?}");
    assert!(beside.1 <= 6 && alone.1 < beside.1, "bytes lent, runs: {beside:?}, alone {alone:?}");
    world.end();
}

/// A sample of the progress that a build reports.
#[derive(Clone, Copy, Debug)]
struct Told {
    at_ns: u64,
    phase: BuildPhase,
    share: f64,
    left_ns: Option<u64>,
}

/// Runs a build beside writers. Returns its progress every 50 ms (the last sample after its end),
/// the number of rows that it read, and the numbers of commits before and during it.
fn told_beside_writers(table: &'static str, memory_size: u64) -> (Vec<Told>, u64, [usize; 2]) {
    let world = World::new(memory_size);
    let found = Arc::new(Mutex::new((Vec::new(), 0, [0; 2])));
    let out = found.clone();
    world.run(move |world| {
        world.pause(1_000);
        let (begun, before) = (world.now_ns(), world.commits.lock().len());
        let progress = BuildProgress::default();
        let (builder, told) = (world.clone(), progress.clone());
        let work = move || builder.build(table, 1, &told).expect("builds");
        let task = world.sim.spawn("build", Box::new(work)).expect("spawns");
        let mut seen: Vec<Told> = Vec::new();
        while seen.last().is_none_or(|last| last.phase != BuildPhase::Done) {
            let phase = progress.phase();
            seen.push(Told {
                at_ns: world.now_ns() - begun,
                phase,
                share: progress.share(),
                left_ns: progress.time_left().map(|left| left.as_nanos() as u64),
            });
            world.pause(50);
        }
        task.join().expect("joins");
        let beside = world.commits.lock().len() - before;
        *out.lock() = (seen, progress.rows_done(), [before, beside]);
    });
    world.end();
    std::mem::take(&mut *found.lock())
}

/// As without writers (`throttled.rs`), the share done never goes back and grows in each second,
/// and the estimate of the time left is right within a factor of two at half time. This holds with
/// memory for all entries, and with so little that the runs of each index are compacted. Six
/// writers append more rows to the same table than it had, each in its own range of keys; the build
/// does not read these rows.
#[test]
fn a_build_beside_writers_reports_its_progress() {
    for (table, memory_size) in [("t", MEMORY), ("other", 16 << 20), ("t", 16 << 20)] {
        let (seen, read, [before, commits]) = told_beside_writers(table, memory_size);
        let last = seen.last().expect("some");
        let (end, seconds) = (last.at_ns, last.at_ns / (1_000 * MS));
        let at = |ns: u64| seen.iter().find(|told| told.at_ns >= ns).expect("some");
        let half = at(end / 2);
        println!("{table}, {memory_size}: {end} ns, {commits} commits; half time {half:?}");
        let there = ROWS + if table == "t" { 8 * before as u64 } else { 0 };
        println!("{read} rows read of {there}, {} appended", 8 * commits);
        assert!((there..there + 200).contains(&read), "what was there, and begun transactions");
        assert!(seconds >= 4 && commits > 1_000, "a while, beside writers");
        assert!(seen.iter().any(|told| told.phase == BuildPhase::Checking), "it proves");
        assert!((last.share - 1.0).abs() < 1e-9, "all at the end: {last:?}");
        for pair in seen.windows(2) {
            assert!(pair[1].share >= pair[0].share, "never back: {pair:?}");
        }
        let (left, told) = (end - half.at_ns, half.left_ns.expect("known by then"));
        assert!(told <= 2 * left && left <= 2 * told, "told {told}, took {left}: {half:?}");
        // Also where the build foresees compactions and its plan grows.
        for second in 1..=seconds {
            let pair = [at((second - 1) * 1_000 * MS), at(second * 1_000 * MS)];
            assert!(pair[1].share > pair[0].share, "a step in a second: {pair:?}");
        }
    }
}

/// A build does not follow a writer that appends faster than the build reads: the writer itself has
/// written the entries of all rows behind the last row that existed when the build began.
#[test]
fn a_build_does_not_read_rows_appended_meanwhile() {
    const BATCH: u64 = 100;
    // The build reads the table in several rounds, and the writer appends while each round is
    // written.
    let (world, progress) = (World::new(16 << 20), BuildProgress::default());
    let (builder, told) = (world.clone(), progress.clone());
    let build: Session = Box::new(move || {
        builder.pause(500);
        builder.build("other", 1, &told).expect("builds");
        builder.over.store(true, SeqCst);
    });
    // Rows appended before the build read its first row, and in all.
    let appended = Arc::new(Mutex::new((0, 0)));
    let (out, appender, seen) = (appended.clone(), world.clone(), progress.clone());
    let append: Session = Box::new(move || {
        let (mut rows, mut before) = (0, 0);
        while !appender.over.load(SeqCst) {
            let begun = appender.db.begin(Isolation::ReadCommitted, Access::ReadWrite);
            let txn = begun.expect("begins");
            let table = txn.table("other").expect("table");
            for id in (ROWS + rows..).take(BATCH as usize) {
                let row = [id as i64, id as i64 * 7_919 % 1_000_003, id as i64].map(ValueRef::Int);
                table.insert(&row).expect("inserts");
            }
            txn.commit().expect("commits");
            rows += BATCH;
            if matches!(seen.phase(), BuildPhase::Idle | BuildPhase::Waiting) {
                before = rows;
            }
        }
        *out.lock() = (before, rows);
    });
    world.sim.run(vec![build, append]);
    world.sim.set_device(0);
    let (before, all) = *appended.lock();
    let read = progress.rows_done();
    println!("{ROWS} rows, {before} appended before it, {all} in all; it read {read}");
    assert!(all > before + 10_000, "{all} rows appended, {before} before the build");
    assert!(read <= ROWS + before + 2 * BATCH, "{read} rows read, {before} appended before");
    let check = world.db.check().expect("looks");
    assert!(check.problems.is_empty(), "{:?}", check.problems);
    world.end();
}

/// Begins a build and cancels it `after_ms` after it has reached a phase. Returns the milliseconds
/// from there to the end of the build, and its phase when it was cancelled.
fn cancelled(
    world: &Arc<World>,
    times: u64,
    reached: impl Fn(BuildPhase) -> bool,
    after_ms: u64,
) -> (u64, BuildPhase) {
    let progress = BuildProgress::default();
    let (builder, told) = (world.clone(), progress.clone());
    let ended = Arc::new(Mutex::new(None));
    let of_build = ended.clone();
    let work = move || {
        let built = builder.build("t", times, &told);
        *of_build.lock() = Some((built.map_err(|e| e.code()), builder.now_ns()));
    };
    let task = world.sim.spawn("build", Box::new(work)).expect("spawns");
    let mut now = BuildPhase::Idle;
    while !reached(now) {
        assert_ne!(now, BuildPhase::Done, "it is seen");
        now = world.db.wait_build(&progress, now, Duration::from_millis(10));
    }
    world.pause(after_ms);
    let (was, cancelled) = (progress.phase(), world.now_ns());
    progress.cancel();
    task.join().expect("joins");
    let (built, at) = ended.lock().take().expect("it has ended");
    assert_eq!(built, Err(Code::BuildCancelled), "{was:?}");
    ((at - cancelled) / MS, was)
}

#[test]
fn a_cancelled_build_ends_at_once_beside_writers() {
    let world = World::new(MEMORY);
    let slowest = Arc::new(Mutex::new(Vec::new()));
    let out = slowest.clone();
    world.run(move |world| {
        world.pause(500);
        let phases = [BuildPhase::Scanning, BuildPhase::Writing, BuildPhase::Checking];
        for (phase, after_ms) in phases.into_iter().flat_map(|p| [(p, 0), (p, 50), (p, 200)]) {
            let (took, was) = cancelled(world, 1, |now| now == phase, after_ms);
            out.lock().push((took, phase, after_ms, was));
        }
    });
    let slowest = std::mem::take(&mut *slowest.lock());
    println!("milliseconds until the end: {slowest:?}");
    assert!(slowest.iter().all(|end| end.0 < 1_000), "{slowest:?}");
    world.end();
}
