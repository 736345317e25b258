//! A whole run on the control engine: every step, its figures, its JSON, a run that continues from
//! a kept directory, and Ctrl-C.

use clap::Parser;
use evenkeel_bench::{BenchError, Flags, Options, RunResult, open_engine, report, run};
use std::path::Path;
use std::sync::atomic::AtomicBool;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
}

fn options(dir: &Path, line: &str) -> Options {
    let dir = dir.to_str().expect("plain path");
    let words = ["bench", "--engine", "null", "--dir", dir].into_iter();
    let line = Line::try_parse_from(words.chain(line.split_whitespace()));
    line.expect("flags are known").flags.options().expect("flags are valid")
}

fn go(dir: &Path, line: &str) -> Result<RunResult, BenchError> {
    run(&options(dir, line), &open_engine, &AtomicBool::new(false))
}

#[test]
fn every_step_counts_its_rows_and_seconds() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = dir.path().join("store");
    let line = "--rows 10k,2k --clients 2 --deletes --durability 2 --memory 16M --seconds 2 \
                --steps l.i0,l.x,l.i1,l.i2,u,p,q50.1 --open-loop 50 --snapshot-seconds 1";
    let result = go(&store, line).expect("the run ends well");
    let names: Vec<&str> = result.steps.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["l.i0", "l.x", "l.i1", "l.i1@50", "l.i2", "l.i2@50", "u", "p", "q50.1"]);
    let rows: Vec<u64> = result.steps.iter().map(|s| s.rows).collect();
    assert_eq!(rows[..6], [20_000, 20_000, 4_000, 4_000, 400, 400]);
    assert_eq!(result.steps[0].rows_deleted, 0);
    for step in &result.steps[2..6] {
        assert_eq!(step.rows_deleted, step.rows, "{}", step.name);
        assert_eq!(step.op.insert.n, step.op.insert.histogram.iter().sum::<u64>());
        assert!(step.op.insert_intended.is_some() == step.name.contains('@'), "{}", step.name);
    }
    assert_eq!(result.steps[2].op.insert.n, 80);
    let (update, read) = (&result.steps[6], &result.steps[7]);
    assert_eq!((update.rows, update.op.insert.n), (4_000, 800));
    assert!(read.queries() && read.rows == 0);
    let query = &result.steps[8];
    assert!(query.queries() && query.rate_target == Some(50.0));
    // Two clients, two transactions of 50 each; on a busy machine the last ones may come too late,
    // and so may the second reading of the seconds.
    assert!((100..=200).contains(&query.rows) && (1..=3).contains(&query.per_second.len()));
    assert_eq!(query.rate_met, query.rows_per_s >= 0.95 * 100.0);
    assert!(query.seconds >= 1.9 && query.queries_per_s > 0.0);
    assert!(result.space_bytes >= 256 << 20 && result.peak_memory_bytes > 0);
    assert!(report::page(&result).contains("data-step=\"l.i2@50\""));
}

#[test]
fn a_kept_directory_continues_and_is_never_overwritten() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let small = "--durability 0 --rows 1k,1k --steps";
    let usage = |result: Result<RunResult, BenchError>, part: &str| {
        let error = result.expect_err("refused");
        assert!(error.exit_code() == 2 && error.to_string().contains(part), "{error}");
    };
    usage(go(dir.path(), &format!("{small} l.i1")), "begin with step l.i0");
    go(dir.path(), &format!("{small} l.i0,l.x")).expect("loads");
    usage(go(dir.path(), &format!("{small} l.i0")), "not empty");
    usage(go(dir.path(), &format!("{small} l.x")), "there already");
    usage(go(dir.path(), &format!("{small} l.i1 --clients 2")), "--clients 1");
    usage(go(dir.path(), &format!("{small} l.i1 --pattern pk=inf")), "patterns");
    let result = go(dir.path(), &format!("{small} l.i1")).expect("goes on");
    assert_eq!(result.steps[0].rows, 1000);
    let state = std::fs::read_to_string(dir.path().join("bench-state.json")).expect("written");
    assert!(state.contains("\"next\":2000") && state.contains("\"indexed\":true"), "{state}");
}

#[test]
fn an_interrupted_run_ends_early_and_says_so() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = options(&dir.path().join("store"), "--steps l.i0:60s,l.x --durability 0");
    let begun = std::time::Instant::now();
    let result = run(&options, &open_engine, &AtomicBool::new(true)).expect("no error");
    assert!(result.interrupted && result.steps.is_empty());
    let flag = AtomicBool::new(false);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Options { dir: dir.path().join("store"), ..options };
    let result = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&options, &open_engine, &flag));
        while !options.dir.join("null.log").exists() {
            std::thread::yield_now();
        }
        flag.store(true, std::sync::atomic::Ordering::Relaxed);
        running.join().expect("no panic").expect("no error")
    });
    assert!(result.interrupted && result.steps.len() <= 1);
    assert!(begun.elapsed().as_secs() < 30);
}

#[test]
fn the_json_has_the_fields_that_others_rely_on() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let line = "--rows 1k,1k --steps l.i0,l.i1 --durability 0 --deletes";
    let result = go(&dir.path().join("store"), line).expect("the run ends well");
    let json = serde_json::to_value(&result).expect("plain data");
    let has = |value: &serde_json::Value, names: &str| {
        for name in names.split_whitespace() {
            assert!(value.get(name).is_some(), "{name} is missing");
        }
    };
    has(
        &json,
        "format engine version interrupted machine settings patterns steps space_bytes \
         peak_memory_bytes waits",
    );
    has(
        &json["machine"],
        "cores memory_bytes filesystem direct_io sync_us_p50 sync_us_p99 atomic_write_bytes",
    );
    let step = &json["steps"][1];
    has(
        step,
        "name rows seconds rows_per_s deletes_per_s queries_per_s rate_target rate_met \
         worst_second_ratio p5_second_ratio seconds_below_50 seconds_below_10 longest_gap_ms \
         max_op_ms max_op_own_ms device_slow p99_op_ms op bytes_read_per_row \
         bytes_written_per_row bytes events flush_requested flush_done cpu_us_per_row \
         space_bytes waits per_second",
    );
    for kind in ["insert", "delete", "query"] {
        has(&step["op"][kind], "n p50_us p99_us p999_us max_us histogram");
        assert_eq!(step["op"][kind]["histogram"].as_array().map(Vec::len), Some(10));
    }
    has(
        &step["bytes"],
        "wal page doublewrite \
         run_flush compaction_read compaction_written build_read build_written \
         foreground_read",
    );
    has(&step["events"], "memtable_flushes compactions checkpoints log_rotations");
    assert_eq!(step["per_second"][0].as_array().map(Vec::len), Some(8));
    assert_eq!(json["patterns"]["pdc"], "nAsc:500");
    assert_eq!((&json["format"], &step["rate_target"]), (&1.into(), &serde_json::Value::Null));
    for cause in "log_sync log_space free_frame page_read page_latch memtable_full compaction_debt \
                  governor row_lock schema device_slow backup processor unexplained"
        .split_whitespace()
    {
        assert!(step["waits"].get(cause).is_some() && json["waits"].get(cause).is_some());
    }
    let again: RunResult = serde_json::from_value(json.clone()).expect("reads its own");
    assert_eq!(serde_json::to_value(&again).expect("plain data"), json);
}
