//! The classes of bytes of a step add up to what the system counted for the process. This test is
//! alone in its file, because the system counts whole processes.

use clap::Parser;
use evenkeel_bench::{Bytes, Flags, RunResult, open_engine, run};
use std::sync::atomic::AtomicBool;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
}

fn go(durability: &str) -> RunResult {
    // Not below /tmp, which may be in memory: the system counts nothing there.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    let store = dir.path().join("store");
    let store = store.to_str().expect("plain path");
    let line = ["bench", "--memory", "16M", "--rows", "300k,100k", "--steps", "l.i0,l.x,l.i1"];
    let words = line.into_iter().chain(["--durability", durability, "--dir", store]);
    let line = Line::try_parse_from(words).expect("flags are known");
    let options = line.flags.options().expect("flags are valid");
    run(&options, &open_engine, &AtomicBool::new(false)).expect("the run ends well")
}

#[test]
fn classes_of_bytes_add_up_to_what_the_system_counted() {
    for durability in ["1", "2"] {
        let result = go(durability);
        let (is_direct, filesystem) = (result.machine.direct_io, &result.machine.filesystem);
        assert!(
            is_direct || !["ext4", "xfs", "btrfs"].contains(&&**filesystem),
            "{filesystem} has direct I/O, and the engine does not use it"
        );
        for step in &result.steps {
            let system = step.bytes_read + step.bytes_written;
            let ours: u64 = step.bytes.values().iter().sum();
            let name = &step.name;
            assert!(ours > 0, "{name}: the engine counts nothing");
            // The system counts only the writes of cached files, and nothing of files in memory.
            if !is_direct {
                assert!(system <= ours + ours / 20, "{name}: system {system}, classes {ours}");
                continue;
            }
            assert!(
                ours.abs_diff(system) <= system / 20,
                "{name}, durability {durability}: classes {ours}, system {system}: {:?}",
                Bytes::NAMES.iter().zip(step.bytes.values()).collect::<Vec<_>>()
            );
            let other = step.bytes.other_read + step.bytes.other_written;
            assert!(other <= system / 20, "{name}: {other} of {system} bytes are of no class");
        }
    }
}
