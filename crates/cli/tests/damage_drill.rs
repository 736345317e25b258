//! The drill of docs/guide/damage.md, run as it is written there; and the outputs of `dump`.

use evenkeel::ValueRef::{Int, Text};
use evenkeel::{Access, ColumnSpec, ColumnType, Database, IndexSpec, Isolation, TableSpec, Value};
use std::path::Path;
use std::process::{Command, Output};

const GUIDE: &str = include_str!("../../../docs/guide/damage.md");
const ROWS: i64 = 2_000;

fn fill(dir: &Path) {
    let db = Database::open(dir).expect("opens");
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("name", ColumnType::Text { max: 100 }).nullable())
        .primary_key(&["id"])
        .index(IndexSpec::new("by_name", &["name"]));
    db.create_table("t", &spec).expect("creates");
    // A loaded page is not in the log, from which salvage would make it again.
    let rows = (0..ROWS).map(|id| {
        let name = format!("name's {id}");
        [Value::Int(id), if id % 7 == 0 { Value::Null } else { Value::from(name.as_str()) }]
    });
    db.load_table("t", rows).expect("loads");
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadWrite).expect("begins");
    let table = txn.table("t").expect("there");
    assert!(table.update(&[Int(5)], &[(1, Text("name's new"))]).expect("updates"));
    txn.commit().expect("commits");
    db.close().expect("closes");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Runs a script in a directory, with the command in its path.
fn sh(dir: &Path, script: &str) -> Output {
    let command = Path::new(env!("CARGO_BIN_EXE_evenkeel"));
    let bin = command.parent().expect("a directory").display();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("bash");
    shell.args(["-eu", "-c", script]).env("PATH", path).current_dir(dir);
    shell.output().expect("bash starts")
}

#[test]
fn the_drill_saves_every_row_outside_the_lost_range() {
    let dir = tempfile::tempdir().expect("a directory");
    fill(&dir.path().join("data"));
    let (_, drill) = GUIDE.split_once("```sh\n").expect("a drill");
    let (drill, _) = drill.split_once("```").expect("its end");
    let done = sh(dir.path(), drill);
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{out}{err}");
    for expected in [
        "check: exit code 1",
        "evenkeel salvage",
        "salvage: exit code 1",
        "lost ranges of keys: 1, rows set aside: 0",
        "lost from (id = ",
        "clean",
    ] {
        assert!(out.contains(expected), "{expected}: {out}{err}");
    }
    let csv = std::fs::read_to_string(dir.path().join("t.csv")).expect("written");
    let ids: Vec<i64> = csv
        .lines()
        .skip(1)
        .map(|line| line.split(',').next().and_then(|id| id.parse().ok()).expect("an id"))
        .collect();
    // Exactly the keys of the reported range are missing.
    let range = out.split("lost from (id = ").nth(1).expect("a range");
    let bound = |text: &str| -> i64 {
        let digits = text.chars().take_while(char::is_ascii_digit).collect::<String>();
        digits.parse().expect("a number")
    };
    let (low, high) = (bound(range), bound(range.split("below (id = ").nth(1).expect("its end")));
    let expected: Vec<i64> = (0..ROWS).filter(|id| !(low..high).contains(id)).collect();
    assert!(high > low && ids == expected, "{low} to {high}: {} rows", ids.len());
}

#[test]
fn dump_writes_sql_csv_and_structures() {
    let dir = tempfile::tempdir().expect("a directory");
    fill(&dir.path().join("data"));
    let run = |line: &str| {
        let done = sh(dir.path(), &format!("evenkeel {line}"));
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    let (code, sql, err) = run("dump data");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(sql.contains("CREATE TABLE `t` (\n  `id` BIGINT NOT NULL,\n"), "{sql:.300}");
    assert!(sql.contains("  KEY `by_name` (`name`)\n) ENGINE=EVENKEEL"), "{sql:.400}");
    assert!(sql.contains("(0, NULL),\n(1, 'name\\'s 1')"), "{sql:.600}");
    assert_eq!(sql.matches("name\\'s").count() as i64, ROWS - (ROWS + 6) / 7);
    let (code, out, _) = run("dump data --format csv --to out");
    assert_eq!((code, out.as_str()), (Some(0), "t: 2000 rows, out/t.csv\n"));
    let csv = std::fs::read_to_string(dir.path().join("out/t.csv")).expect("written");
    assert!(csv.starts_with("id,name\n0,\\N\n1,name's 1\n"), "{csv:.60}");
    assert_eq!(csv.lines().count() as i64, ROWS + 1);
    for (line, part) in [
        ("dump data --pages 0..300", " leaf: level 0 slots "),
        ("dump data --log", " Commit transaction "),
        ("dump data --catalog", "column ColumnEntry"),
        ("dump data --runs", ""),
    ] {
        let (code, out, err) = run(line);
        assert!(code == Some(0) && out.contains(part), "{line}: {code:?} {err}\n{out}");
    }
    for (line, wanted, part) in [
        ("dump data --table none", 2, "table=none"),
        ("dump data --pages 9..1", 2, "9 is above 1"),
        ("dump nowhere", 2, "nowhere"),
        ("dump data --pages 99999999..99999999", 1, "page=99999999"),
        ("salvage data --to data/new", 2, "lies in the damaged directory"),
        ("salvage data", 2, "--to"),
        ("salvage out --to new", 2, "not an Evenkeel database"),
    ] {
        let (code, _, err) = run(line);
        assert!(code == Some(wanted) && err.contains(part), "{line}: {code:?} {err}");
    }
}

#[test]
fn salvage_writes_sql_of_a_whole_database() {
    let dir = tempfile::tempdir().expect("a directory");
    fill(&dir.path().join("data"));
    let done = sh(dir.path(), "evenkeel salvage data --sql s.sql && evenkeel dump data > d.sql");
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success() && out.contains("everything was saved"), "{out}{err}");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("written");
    assert_eq!(read("s.sql"), read("d.sql"));
}

#[test]
fn dump_ends_without_a_message_when_its_reader_has_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    fill(&dir.path().join("data"));
    let done = sh(
        dir.path(),
        "evenkeel dump data | head -n 1; evenkeel dump data --pages 0..511 | head -n 1",
    );
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert_eq!((out.lines().count(), err.as_str()), (2, ""));
}
