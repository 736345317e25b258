//! Runs the command as a user does: exit codes, output on stdout, and files left behind.

use evenkeel::ValueRef::{Int, Text};
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Geometry, IndexSpec, Isolation, Options, TableSpec,
};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn evenkeel(dir: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.current_dir(dir).args(line.split_whitespace());
    command
}

fn run(dir: &Path, line: &str) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = evenkeel(dir, line).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_run_prints_seconds_and_removes_the_default_directory() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let line = "bench --engine null --rows 1k,1k --durability 0 --seconds 1 --steps l.i0,l.x,q9.1 \
                --json a.json --report a.html";
    let (code, out, err) = run(dir.path(), line);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let lines: Vec<&str> = out.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines[0].starts_with("i_sec\tt_sec\t") && lines.len() >= 4);
    assert!(lines.iter().all(|line| line.split('\t').count() == 17), "{out}");
    assert_eq!(out.matches("i_sec").count(), 1);
    assert!(!dir.path().join("evenkeel-bench").exists());
    let (code, out, _) = run(dir.path(), "bench diff a.json a.json");
    assert!(code == Some(0) && out.contains("rows/s") && out.contains("1.00"), "{out}");
    assert_eq!(run(dir.path(), "bench report a.json b.html").0, Some(0));
    let pages = ["a.html", "b.html"].map(|f| std::fs::read(dir.path().join(f)).expect("written"));
    assert!(pages[0] == pages[1] && pages[0].len() > 1000);
}

#[test]
fn errors_have_their_exit_code_and_say_what_to_do() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(dir.path().join("full")).expect("writable");
    std::fs::write(dir.path().join("full/x"), "mine").expect("writable");
    let cases = [
        ("bench --rows x,y", 2, "--rows"),
        ("bench --nonsense", 2, "--nonsense"),
        ("bench --engine other", 2, "--engine"),
        ("bench --engine null --dir full", 2, "not empty"),
        ("bench --engine mariadb://127.0.0.1:1/test", 3, "mariadb://127.0.0.1:1/test"),
        ("bench --engine null --dir full/x/y", 1, "full/x/y"),
        ("bench --engine null --steps l.i0:60s --json full/x/y", 1, "full/x/y"),
        ("bench --engine null --steps l.i0:60s --report none/a.html", 1, "none/a.html"),
        ("bench diff missing.json missing.json", 1, "missing.json"),
        ("bench diff full/x full/x", 1, "full/x"),
        ("lab flush-scan --scale 0", 2, "--scale"),
        ("lab flush-scan --scale 10000 --json full/x/y", 1, "full/x/y"),
        ("", 2, "Usage"),
    ];
    for (line, wanted, part) in cases {
        let (code, out, err) = run(dir.path(), line);
        assert!(code == Some(wanted) && err.contains(part), "{line}: {code:?} {err}");
        assert!(!out.contains("i_sec"), "{line}: told after the work\n{out}");
    }
    assert_eq!(std::fs::read(dir.path().join("full/x")).expect("kept"), b"mine");
}

#[test]
fn ctrl_c_ends_the_run_with_130_and_the_json() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let line = "bench --engine null --steps l.i0:60s --durability 0 --json c.json";
    let child = evenkeel(dir.path(), line).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut child = child;
    let out = child.stdout.take().expect("piped");
    // At the second line of numbers the step is running.
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(out));
    let seconds = lines.by_ref().filter(|l| l.as_ref().is_ok_and(|l| !l.starts_with('#')));
    assert_eq!(seconds.take(2).count(), 2);
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill is there").success());
    lines.for_each(drop);
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let json = std::fs::read_to_string(dir.path().join("c.json")).expect("written");
    assert!(json.contains("\"interrupted\":true") && json.contains("\"name\":\"l.i0\""));
    assert!(!dir.path().join("evenkeel-bench").exists());
}

#[test]
fn help_tells_defaults_and_units() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (code, out, _) = run(dir.path(), "bench --help");
    assert_eq!(code, Some(0));
    let parts = ["[default: 2M,500k]", "[default: 256M]", "1024-based", "seconds", "130", "l.i0"];
    for part in parts {
        assert!(out.contains(part), "{part} in\n{out}");
    }
    assert!(run(dir.path(), "--help").1.contains("check"));
}

#[test]
fn an_experiment_prints_its_table_and_writes_the_requested_files() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let line = "lab flush-scan --scale 2000 --seed 9 --json a.json --report a.html";
    let (code, out, err) = run(dir.path(), line);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let parts = ["seed 9", "restart", "hazard pointer", "optimistic", "evenkeel", "longest hold"];
    for part in parts {
        assert!(out.contains(part), "{part} in\n{out}");
    }
    let json = std::fs::read_to_string(dir.path().join("a.json")).expect("written");
    assert!(json.contains("\"experiment\":\"flush-scan\"") && json.contains("\"seed\":9"));
    let page = std::fs::read_to_string(dir.path().join("a.html")).expect("written");
    assert!(page.contains("data-chart=\"throughput\"") && !page.contains("http://"));
    assert_eq!(run(dir.path(), &line.replace(" --json a.json --report a.html", "")).1, out);
}

/// Creates the database `store` with a table of 3,000 rows, whose index has runs; one row holds
/// `NEEDLE`.
fn fill(dir: &Path) -> Database {
    let geometry = Geometry { generation_bytes: Some(64 << 10), ..Geometry::default() };
    let options = Options::new().geometry(geometry);
    let db = Database::open_with(dir.join("store"), options).expect("opens");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("name", ColumnType::Text { max: 100 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_name", &["name"]));
    db.create_table("t", &spec).expect("creates");
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    let table = txn.table("t").expect("there");
    for id in 0..3_000 {
        let name = if id == 1_500 { NEEDLE.to_string() } else { format!("row {id}") };
        table.insert(&[Int(id), Text(&name)]).expect("inserts");
    }
    txn.commit().expect("commits");
    db
}

const NEEDLE: &str = "this is the one that will be damaged";

/// Flips a bit of a file, at `at` or in the needle.
fn flip(path: &Path, at: Option<usize>) -> usize {
    let mut bytes = std::fs::read(path).expect("it is there");
    let find = || bytes.windows(NEEDLE.len()).position(|part| part == NEEDLE.as_bytes());
    let at = at.or_else(find).expect("it is in there");
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).expect("writes");
    at
}

/// Runs a command with and without `--json`. Both must have the same exit code. Returns both
/// outputs.
fn both(dir: &Path, line: &str, wanted: i32) -> (String, Value) {
    let (code, text, err) = run(dir, line);
    assert_eq!((code, err.as_str()), (Some(wanted), ""), "{line}: {text}");
    let (code, json, err) = run(dir, &format!("{line} --json"));
    assert_eq!((code, err.as_str()), (Some(wanted), ""), "{line} --json: {json}");
    (text, serde_json::from_str(&json).expect("JSON"))
}

#[test]
fn check_and_stat_read_a_clean_database_and_refuse_an_absent_one() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let dir = temporary.path();
    let db = fill(dir);
    // This process has the database open.
    for command in ["check", "stat"] {
        let (text, json) = both(dir, &format!("{command} store"), 2);
        assert!(text.contains("[DirectoryBusy]"), "{text}");
        assert_eq!(json["checked"], false, "{json}");
    }
    db.close().expect("closes");
    let (text, json) = both(dir, "check store", 0);
    assert!(text.contains("1 tables, 3000 rows, 3000 index entries") && text.ends_with("clean\n"));
    assert_eq!((&json["clean"], &json["checked"]), (&Value::from(true), &Value::from(true)));
    assert_eq!((&json["rows"], &json["entries"]), (&Value::from(3000), &Value::from(3000)));
    let (text, json) = both(dir, "stat store", 0);
    assert!(text.contains("table t: ~") && text.contains("  index by_name: ~"), "{text}");
    assert_eq!((&json["tables"][0]["name"], &json["page_size"]), (&"t".into(), &4096.into()));
    assert!(json["tables"][0]["indexes"][0]["runs"].as_u64() > Some(0), "{json}");
    assert!(json["space_bytes"]["pages"].as_u64() > Some(0), "{json}");
    for command in ["check", "stat"] {
        let (text, json) = both(dir, &format!("{command} none"), 2);
        assert!(text.contains("none: ") && text.contains("[NotADatabase]"), "{text}");
        assert_eq!((&json["clean"], &json["checked"]), (&false.into(), &false.into()), "{json}");
    }
    assert!(!dir.join("none").exists());
}

#[test]
fn check_finds_a_flipped_bit_and_names_its_place() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let dir = temporary.path();
    fill(dir).close().expect("closes");
    let pages = dir.join("store/pages/000000.pg");
    let at = flip(&pages, None);
    let (text, json) = both(dir, "check store", 1);
    let last = text.lines().last().expect("a line");
    assert!(last.starts_with("DAMAGED: restore from a backup, repair"), "{text}");
    assert!(last.ends_with("`evenkeel salvage DIR --to NEW`"), "{text}");
    let place = ["file=pages/000000.pg".to_string(), format!("page={}", at / 4096)];
    let problems = json["problems"].as_array().expect("a list");
    let named = |text: &str| place.iter().all(|part| text.contains(part));
    assert!(named(&text) && problems.iter().any(|p| named(p.as_str().expect("text"))), "{json}");
    assert_eq!((&json["clean"], &json["checked"]), (&false.into(), &true.into()));
    // The page is repaired; now a bit of an index is flipped.
    flip(&pages, Some(at));
    both(dir, "check store", 0);
    let runs = std::fs::read_dir(dir.join("store/runs")).expect("there").flatten();
    let run = runs.map(|entry| entry.path()).max_by_key(|p| p.metadata().map_or(0, |m| m.len()));
    let run = run.expect("a run");
    flip(&run, Some(100));
    let (text, json) = both(dir, "check store", 1);
    let place = format!("file=runs/{}", run.file_name().expect("a name").display());
    assert!(text.contains(&place) && text.contains("index=by_name"), "{place} in\n{text}");
    assert!(json["problems"].to_string().contains(&place), "{json}");
}
