//! Runs every fuzz target over its corpus and 20,000 seeded mutations, in one process for each
//! core. No thread panics, and each input takes at most one second of processor time and 64 MiB of
//! memory (`evenkeel_trust::drive`). The release ladder runs `EVENKEEL_FUZZ` times as many
//! mutations; of the targets that use a database (`open`, and `operations`: programs of up to 200
//! statements) 5 times as many.

use evenkeel_trust::fuzz::{self, Target};
use std::process::{Command, Stdio};

const MUTATIONS: u64 = 20_000;

fn times() -> u64 {
    std::env::var("EVENKEEL_FUZZ").ok().and_then(|v| v.parse().ok()).unwrap_or(1)
}

fn child(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel-trust-child"));
    command.args(args).env("MALLOC_ARENA_MAX", "1");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a target over the corpus of a target. Returns whether it succeeded, and its output.
fn run(target: &str, corpus: &str, count: u64) -> (bool, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let inputs = dir.path().to_str().expect("a plain path");
    let written = child(&["corpus", corpus, inputs]).status().expect("the child runs");
    assert!(written.success(), "{target}");
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let bound = |core: u64| (count * core / cores).to_string();
    let parts: Vec<_> = (0..cores)
        .map(|core| child(&["fuzz", target, inputs, &bound(core), &bound(core + 1)]).spawn())
        .collect();
    let (mut passed, mut said) = (true, String::new());
    for part in parts {
        let out = part.and_then(std::process::Child::wait_with_output).expect("the child runs");
        passed &= out.status.success();
        [out.stdout, out.stderr].iter().for_each(|text| said += &String::from_utf8_lossy(text));
    }
    (passed, said)
}

fn run_all(targets: &[Target], count: u64) {
    for (name, _) in targets {
        let (passed, said) = run(name, name, count);
        print!("{said}");
        assert!(passed, "{name}: {said}");
    }
}

#[test]
fn decoders_return_on_any_bytes() {
    run_all(fuzz::DECODERS, MUTATIONS * times());
}

#[test]
fn mutated_directories_and_programs_never_panic() {
    run_all(fuzz::DATABASES, MUTATIONS * times().min(5));
}

/// Tests the rung itself: it counts memory that is requested and never touched.
#[test]
fn an_input_that_requests_too_much_memory_is_caught() {
    let (passed, said) = run("greedy", "superblock", 2_000);
    assert!(!passed && said.contains("greedy: seed") && said.contains("KiB"), "{said}");
}
