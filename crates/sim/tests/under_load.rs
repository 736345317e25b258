//! Builds of indexes beside writers that never rest, on a device of which they could use all, in
//! virtual time: nothing that the background does stops all writers, a build gets its part and no
//! more, and a cancelled one ends at once.

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
const MS: u64 = 1_000_000;
const BYTES_PER_SEC: u64 = 40_000_000;

/// What sessions share.
struct World {
    sim: SimEnv,
    db: Database,
    over: AtomicBool,
    /// When commits returned.
    commits: Mutex<Vec<u64>>,
}

impl World {
    /// A table that has an index, so that ingest meets flushes and merges of runs; the log is so
    /// short that checkpoints are taken all the time.
    fn new() -> Arc<World> {
        let options = SimOptions { latency: true, ..SimOptions::quiet(11) };
        let sim = SimEnv::on(SimDisk::new(11), options);
        sim.set_device(BYTES_PER_SEC);
        let geometry = Geometry {
            generation_bytes: Some(256 << 10),
            log_bytes: Some(8 << 20),
            ..Geometry::default()
        };
        let options = Options { memory_size: 16 << 20, ..Options::new() };
        let options = options.env(sim.env()).geometry(geometry);
        let db = Database::open_with("db", options).expect("creates");
        let int = |name| ColumnSpec::new(name, ColumnType::Int64);
        let spec = TableSpec::new().column(int("id")).column(int("a")).column(int("b"));
        let spec = spec.primary_key(&["id"]).index(IndexSpec::new("had", &["b"]));
        db.create_table("t", &spec).expect("table");
        let mut rng = Rng::new(4);
        let mut number = move || Value::Int(rng.next_u64() as i64 >> 2);
        let rows = (0..ROWS).map(|id| vec![Value::Int(id as i64), number(), number()]);
        assert_eq!(db.load_table("t", rows).expect("loads"), ROWS);
        let (over, commits) = (AtomicBool::new(false), Mutex::default());
        Arc::new(World { sim, db, over, commits })
    }

    fn now_ns(&self) -> u64 {
        self.sim.now_ns()
    }

    fn pause(&self, ms: u64) {
        let never = Arc::new(Event::new());
        self.sim.wait(&never, 0, Some(Duration::from_millis(ms)), Cause::Idle);
    }

    /// Inserts rows and changes old ones until it is over.
    fn write(&self, writer: u64) {
        let mut rng = Rng::new(100 + writer);
        let mut id = (writer + 1) << 32;
        while !self.over.load(SeqCst) {
            let mut txn =
                self.db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
            let mut table = txn.table("t").expect("table");
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
            self.commits.lock().push(self.now_ns());
        }
    }

    fn build(&self, progress: &BuildProgress) -> Result<()> {
        let plain = ["a", "b"].map(|column| IndexSpec::new(&format!("by_{column}"), &[column]));
        let unique = IndexSpec::new("unique", &["a", "b"]).unique();
        let indexes: Vec<IndexSpec> = plain.into_iter().chain([unique]).collect();
        self.db.add_indexes_with("t", &indexes, progress)
    }

    /// Runs the writers beside another session; it is over when that ends.
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

#[test]
fn nothing_stops_all_writers() {
    let world = World::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let out = seen.clone();
    world.run(move |world| {
        let stats = || {
            let stats = world.db.stats();
            let of = [
                Metric::MemtableFlushes,
                Metric::Merges,
                Metric::Checkpoints,
                Metric::GovernorGrantedDdl,
                Metric::GovernorAskedDdl,
            ];
            (world.now_ns(), of.map(|metric| stats.get(metric)))
        };
        world.pause(2_000);
        out.lock().push(stats());
        world.build(&BuildProgress::default()).expect("builds");
        out.lock().push(stats());
        world.pause(1_000);
        out.lock().push(stats());
    });
    let seen = std::mem::take(&mut *seen.lock());
    let [(begun, before), (ended, after), (_, last)] = seen[..] else { panic!("{seen:?}") };
    let commits = std::mem::take(&mut *world.commits.lock());
    let gap = commits.windows(2).map(|pair| (pair[1] - pair[0], pair[0])).max().expect("some");
    let rate = |from: u64, to: u64| {
        let n = commits.iter().filter(|at| (from..to).contains(at)).count() as u64;
        n * 1_000 * MS / (to - from)
    };
    let (alone, beside) = (rate(begun - 1_000 * MS, begun), rate(begun, ended));
    println!(
        "{} ms; commits a second before {alone}, beside the build {beside}, after {}; longest gap \
         {} ms, at {} ms; flushes, merges, checkpoints, ddl granted and asked: {before:?} \
         {after:?} {last:?}",
        (ended - begun) / MS,
        rate(ended, ended + 1_000 * MS),
        gap.0 / MS,
        gap.1 / MS,
    );
    assert!(gap.0 < 100 * MS, "nobody commits for {} ms", gap.0 / MS);
    // All of the background was at work, the build among it.
    assert!(last[0] > 10 && last[1] > 5 && last[2] > 5, "{last:?}");
    assert!(after[0] > before[0] && after[1] > before[1] && after[2] > before[2], "{after:?}");
    // The build has its part of the device, and users theirs.
    let (granted, all) = (after[3] - before[3], BYTES_PER_SEC * ((ended - begun) / MS) / 1_000);
    assert!(granted < all / 10 * 9, "{granted} bytes of {all}");
    assert!(beside > alone / 10, "{beside} commits a second, {alone} without the build");
    world.end();
}

#[test]
fn a_cancelled_build_ends_at_once_beside_writers() {
    let world = World::new();
    let slowest = Arc::new(Mutex::new(Vec::new()));
    let out = slowest.clone();
    world.run(move |world| {
        world.pause(500);
        let phases = [BuildPhase::Scanning, BuildPhase::Writing, BuildPhase::Checking];
        for (phase, after_ms) in phases.into_iter().flat_map(|p| [(p, 0), (p, 50), (p, 200)]) {
            let progress = BuildProgress::default();
            let (builder, told) = (world.clone(), progress.clone());
            let ended = Arc::new(Mutex::new(None));
            let of_build = ended.clone();
            let work = move || {
                let built = builder.build(&told);
                *of_build.lock() = Some((built.map_err(|e| e.code()), builder.now_ns()));
            };
            let task = world.sim.spawn("build", Box::new(work)).expect("spawns");
            let mut now = BuildPhase::Idle;
            while now != phase && now != BuildPhase::Done {
                now = world.db.wait_build(&progress, now, Duration::from_secs(600));
            }
            assert_eq!(now, phase, "it is seen");
            world.pause(after_ms);
            let (was, cancelled) = (progress.phase(), world.now_ns());
            progress.cancel();
            task.join().expect("joins");
            let (built, at) = ended.lock().take().expect("it has ended");
            assert_eq!(built, Err(Code::BuildCancelled), "{was:?}");
            out.lock().push(((at - cancelled) / MS, phase, after_ms, was));
        }
    });
    let slowest = std::mem::take(&mut *slowest.lock());
    println!("milliseconds until the end: {slowest:?}");
    assert!(slowest.iter().all(|end| end.0 < 1_000), "{slowest:?}");
    world.end();
}
