//! A whole run on real servers: a private MariaDB and a private Postgres, each in its own temporary
//! directory and reachable only by a socket. The test stops them.

use clap::Parser;
use evenkeel_bench::{BenchError, Flags, RunResult, open_engine, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tempfile::TempDir;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
}

fn go(dir: &Path, engine: &str, line: &str) -> Result<RunResult, BenchError> {
    let dir = dir.to_str().expect("plain path");
    let words = ["bench", "--engine", engine, "--dir", dir].into_iter();
    let line = Line::try_parse_from(words.chain(line.split_whitespace()));
    let options = line.expect("flags are known").flags.options().expect("flags are valid");
    run(&options, &open_engine, &AtomicBool::new(false))
}

/// A server that ends with the test.
struct Server {
    child: Child,
    url: String,
    dir: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        // Ends the server cleanly, or else by a kill.
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let until = Instant::now() + Duration::from_secs(20);
        while self.child.try_wait().is_ok_and(|done| done.is_none()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

fn done(command: &mut Command) {
    let output = command.output().expect("`make deps` installs it");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
}

impl Server {
    /// Starts a run as soon as the server answers.
    fn first_run(&mut self, store: &Path, line: &str) -> RunResult {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match go(store, &self.url, line) {
                Err(error) if error.exit_code() == 3 => {
                    let ended = self.child.try_wait().expect("is a child");
                    let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                    assert!(ended.is_none() && Instant::now() < until, "{error}: {log}");
                    std::thread::sleep(Duration::from_millis(100));
                }
                result => return result.expect("the run ends well"),
            }
        }
    }
}

fn log(dir: &TempDir) -> Stdio {
    Stdio::from(fs::File::create(dir.path().join("log")).expect("writable"))
}

fn mariadb() -> Server {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (data, socket) = (dir.path().join("data"), dir.path().join("socket"));
    let common = |command: &mut Command| {
        command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
        if root() {
            command.arg("--user=root");
        }
    };
    let mut install = Command::new("mariadb-install-db");
    common(&mut install);
    done(install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]));
    fs::create_dir(data.join("bench")).expect("a database is a directory");
    let mut command = Command::new("mariadbd");
    common(&mut command);
    command.arg(format!("--socket={}", socket.display()));
    command.args(["--skip-networking", "--innodb-buffer-pool-size=64M", "--skip-log-bin"]);
    let child = command.stdout(log(&dir)).stderr(log(&dir)).spawn().expect("starts");
    let url = format!("mariadb://root@localhost/bench?socket={}&engine=InnoDB", socket.display());
    Server { child, url, dir }
}

fn postgres() -> Server {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("data");
    let bin = newest_postgres();
    // Postgres does not run as root. If the test does, the server runs as its own user in a
    // directory of that user.
    let command = |program: &str| {
        let mut command = Command::new(if root() { "setpriv" } else { "env" });
        if root() {
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        }
        command.arg(bin.join(program)).arg("-D").arg(&data).current_dir("/");
        command
    };
    if root() {
        done(Command::new("chown").arg("postgres").arg(dir.path()));
    }
    done(command("initdb").args(["--auth=trust", "--username=bench", "--no-sync"]));
    let socket = dir.path().to_str().expect("plain path").to_string();
    let mut server = command("postgres");
    server.args(["-c", "listen_addresses=", "-c"]).arg(format!("unix_socket_directories={socket}"));
    let child = server.stdout(log(&dir)).stderr(log(&dir)).spawn().expect("starts");
    let url = format!("postgres://bench@/postgres?host={socket}");
    Server { child, url, dir }
}

fn newest_postgres() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("`make deps` installs postgresql");
    versions.flatten().map(|entry| entry.path().join("bin")).max().expect("a version")
}

/// Counts the rows of the first table that a statement finds.
const UPDATED: &str = "select count(*) from purchases1 where data like '____________________' \
                       and data not like '%x%'";

fn every_step_runs(mut server: Server, version: &str, updated: fn(&str) -> u64) {
    let line = "--rows 5k,1k --batch 100,50,5 --deletes --seconds 1 --snapshot-seconds 1 \
                --steps l.i0,l.x,l.i1,l.i2,u,p,q100.1";
    let store = server.dir.path().join("state");
    let result = server.first_run(&store, line);
    let rows: Vec<u64> = result.steps.iter().map(|s| s.rows).collect();
    assert_eq!(rows[..4], [5_000, 5_000, 1_000, 100]);
    assert_eq!((result.steps[2].rows_deleted, result.steps[3].rows_deleted), (1_000, 100));
    let (update, read) = (&result.steps[4], &result.steps[5]);
    assert_eq!((update.rows, update.op.insert.n), (1_000, 200));
    assert_eq!((read.queries_per_s * read.seconds).round() as u64, 100 * read.op.query.n);
    // Rows without an update contain an x; 1,000 random draws from 4,900 or more rows hit some rows
    // twice.
    let updated = updated(&server.url);
    assert!((700..=1_000).contains(&updated), "{updated}");
    let query = &result.steps[6];
    assert!(query.queries() && query.op.query.n > 0);
    // Two transactions of 50; the second may come too late on a busy machine.
    assert!((50..=100).contains(&query.rows), "{}", query.rows);
    assert_eq!(query.rate_met, query.rows_per_s >= 0.95 * 100.0);
    assert!(result.version.contains(version), "{}", result.version);
    assert!(result.peak_memory_bytes > 10 << 20 && result.space_bytes > 1 << 20);
    assert!(result.steps[0].cpu_us_per_row > 0.0 && result.steps[0].bytes_written > 100_000);
    // A run continues from a kept load, and never loads over an existing table.
    let points = "--rows 1k,1k --deletes --steps l.i1,q10.1 --seconds 1 --queries pk";
    let result = go(&store, &server.url, points).expect("goes on");
    assert_eq!((result.steps[0].rows, result.steps[1].queries()), (1_000, true));
    let error = go(&server.dir.path().join("other"), &server.url, line).expect_err("refused");
    assert!(error.exit_code() == 1 && error.to_string().contains("purchases1"), "{error}");
}

#[test]
fn mariadb_runs_every_step() {
    every_step_runs(mariadb(), "MariaDB", |url| {
        use mysql::prelude::Queryable;
        let url = url.replace("mariadb://", "mysql://");
        let url = url.split("&engine").next().expect("an address");
        let mut conn = mysql::Conn::new(mysql::Opts::from_url(url).expect("valid")).expect("there");
        conn.query_first(UPDATED).expect("runs").expect("a row")
    });
}

#[test]
fn postgres_runs_every_step() {
    every_step_runs(postgres(), ".", |url| {
        let mut client = postgres::Client::connect(url, postgres::NoTls).expect("there");
        let count: i64 = client.query_one(UPDATED, &[]).expect("runs").get(0);
        count as u64
    });
}

#[test]
fn an_absent_server_is_reported_missing_and_an_address_needs_a_database() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let to = |url: &str| go(&dir.path().join("x"), url, "--steps l.i0").expect_err("refused");
    let error = to("mariadb://root:secret@localhost/x?socket=/nowhere");
    assert!(error.exit_code() == 3 && !error.to_string().contains("secret"), "{error}");
    assert_eq!(to("postgres://u@/d?host=/nowhere").exit_code(), 3);
    assert_eq!(to("mariadb://root@localhost").exit_code(), 2);
    assert_eq!(to("mariadb://root@localhost/x?engine=a;b").exit_code(), 2);
}
