#!/usr/bin/env python3
"""Runs the tests of the crates with unsafe code, and of some that use them, under a sanitizer.

scripts/sanitize.py [--fetch] [--crates NAME,...] address|thread|miri [FILTER...]

First the sanitizer must report the faults planted for it (crates/io/tests/planted_for_sanitizers.rs): one that lets a
fault pass looks at nothing. Then the tests of the crates must pass without a report. Prints a line for each planted
fault, the result of each crate and all reports; the whole output is in target/sanitize-NAME/output. With
--fetch it only sees that the toolchain is there. Exit code 3: that cannot be fetched. --crates names other crates
than those of CRATES: `--crates tree,tables` runs the tests of these two.

address, thread: the pinned compiler, whose unstable options RUSTC_BOOTSTRAP opens; the standard library is compiled
with the sanitizer too, from the component rust-src. `address` also finds leaks.

miri: the interpreter exists for nightly compilers only, so this is the nightly of the pinned version (NIGHTLY). It
is so slow that only the tests of MIRI_TESTS run: those of the modules with unsafe code, and of what these rest on, as
far as they take seconds there. Left out are simulations; tests of real files and futexes (the portable ways run in
their place); tests that measure processor time; and the tests of capi, since each opens a database, with which Miri
was not done after 50 seconds of processor time.
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = "x86_64-unknown-linux-gnu"
PLANTED = "planted_for_sanitizers"
NIGHTLY = "nightly-2026-02-27"
# Of each sanitizer, its planted faults with the words by which it reports them.
FAULTS = {
    "address": {
        "a_planted_use_after_free": "AddressSanitizer: heap-use-after-free",
        "a_planted_read_out_of_bounds_in_the_standard_library": "AddressSanitizer: heap-buffer-overflow",
        "a_planted_leak": "LeakSanitizer: detected memory leaks",
    },
    "thread": {
        "a_planted_data_race": "ThreadSanitizer: data race",
        "a_planted_data_race_in_the_standard_library": "ThreadSanitizer: data race",
    },
    "miri": {
        "a_planted_data_race": "Undefined Behavior: Data race detected",
        "a_planted_use_after_free": "Undefined Behavior: .*has been freed",
        "planted_undefined_behaviour": "Undefined Behavior: ",
    },
}
CRATES = {
    "address": ["io", "pages", "runs", "capi", "log", "txn"],
    "thread": ["io", "pages", "runs", "capi", "log", "txn"],
    "miri": ["io", "pages", "runs"],
}
# The tests that Miri runs, by parts of their names.
MIRI_TESTS = [
    "buf::", "mem_tests", "gate::", "latch::", "device_wait::", "errno::", "cgroup::", "sub::", "overlay::",
    "segmented_vec", "scratch", "agrees_with_a_model",
]
# What a sanitizer leaves out: one thread of this simulation runs at a time, so it has no race, and it takes minutes.
SKIPPED = {"thread": ["log_tests::crash_at_every_call"]}
# What a sanitizer says when it has found something.
REPORT = re.compile(r"(Address|Leak|Thread)Sanitizer|Undefined Behavior|unsupported operation|memory leaked")
# What is worth a line of the ladder.
SHOWN = re.compile(r"^\s+Running |^test result: |^test .* FAILED|panicked at|^error")


def has_component(toolchain, component):
    listed = subprocess.run(["rustup", "component", "list", "--installed", "--toolchain", toolchain],
                            capture_output=True, text=True)
    return any(line.startswith(component) for line in listed.stdout.splitlines())


def need(toolchain, *components):
    """Ends the script where a component of a toolchain is not there and cannot be fetched."""
    if all(has_component(toolchain, component) for component in components):
        return
    subprocess.run(["rustup", "toolchain", "install", toolchain, "--profile", "minimal", "--no-self-update",
                    "--component", ",".join(components)], capture_output=True)
    for component in components:
        if not has_component(toolchain, component):
            print(f"{component} of the toolchain {toolchain} cannot be had", file=sys.stderr)
            sys.exit(3)


def pinned():
    return re.search(r'channel = "([0-9.]+)"', (ROOT / "rust-toolchain.toml").read_text()).group(1)


def prepared(sanitizer):
    """The command that runs tests, and its environment."""
    folder = os.environ.get("EVENKEEL_SANITIZE_DIR", str(ROOT / f"target/sanitize-{sanitizer}"))
    environment = {**os.environ, "CARGO_TARGET_DIR": folder, "CARGO_TERM_COLOR": "never"}
    if sanitizer == "miri":
        need(NIGHTLY, "miri", "rust-src")
        version = subprocess.run(["rustc", f"+{NIGHTLY}", "--version"], capture_output=True, text=True).stdout
        if not version.startswith(f"rustc {pinned()}-nightly "):
            sys.exit(f"{NIGHTLY} is {version.strip()}, not of the pinned version {pinned()}: choose another nightly")
        environment["RUSTUP_TOOLCHAIN"] = NIGHTLY
        # The checksum in software would take most of the time; Miri knows the instruction.
        environment["RUSTFLAGS"] = "-Ctarget-feature=+sse4.2"
        environment["MIRIFLAGS"] = "-Zmiri-disable-isolation -Zmiri-permissive-provenance"
        return ["cargo", "miri", "test"], environment
    need(pinned(), "rust-src")
    environment["RUSTUP_TOOLCHAIN"] = pinned()
    environment["RUSTC_BOOTSTRAP"] = "1"
    environment["RUSTFLAGS"] = f"-Zsanitizer={sanitizer}"
    environment["ASAN_OPTIONS"] = "detect_stack_use_after_return=1:strict_string_checks=1"
    return ["cargo", "test", "-Zbuild-std", "--target", TARGET, "--profile", "release-tests"], environment


def run(command, environment, log, shown):
    """Runs a command, its output into the log and what matters of it to the terminal. Returns exit code and output."""
    lines = []
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace")
    is_report = False
    for line in process.stdout:
        log.write(line)
        lines.append(line)
        is_report = is_report or REPORT.search(line) is not None
        if shown and (is_report or SHOWN.search(line)):
            print(line, end="", flush=True)
        is_report = is_report and not line.startswith(("SUMMARY", "test result"))
    return process.wait(), "".join(lines)


def is_caught(sanitizer, fault, planted, environment, log):
    words = FAULTS[sanitizer][fault]
    code, out = run([*planted, "--test", PLANTED, "--", "--ignored", "--exact", fault], environment, log, False)
    found = re.search(words, out)
    outcome = "caught" if code and found else "NOT CAUGHT" if f"test {fault} " in out else "was not run"
    print(f"planted {fault}: {outcome}" + (f": {found.group(0)}" if found else ""), flush=True)
    if outcome != "caught":
        print("".join(out.splitlines(True)[-30:]), flush=True)
    return outcome == "caught"


def main():
    words = sys.argv[1:]
    is_fetch = "--fetch" in words
    crates = None
    if "--crates" in words:
        at = words.index("--crates")
        crates = [name for text in words[at + 1:at + 2] for name in text.split(",")]
        del words[at:at + 2]
    sanitizer, *filters = [word for word in words if word != "--fetch"] or [""]
    if sanitizer not in FAULTS:
        sys.exit(__doc__)
    command, environment = prepared(sanitizer)
    if is_fetch:
        return
    crates = crates or CRATES[sanitizer]
    # The planted faults are in io.
    planted = [*command, "-p", "evenkeel-io"]
    test = [*command, *(word for crate in crates for word in ("-p", f"evenkeel-{crate}"))]
    folder = pathlib.Path(environment["CARGO_TARGET_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "output", "w", buffering=1) as log:
        caught = [is_caught(sanitizer, fault, planted, environment, log) for fault in FAULTS[sanitizer]]
        if not all(caught):
            sys.exit(f"{sanitizer}: a planted fault was not caught")
        filters = filters or (MIRI_TESTS if sanitizer == "miri" else [])
        skipped = [word for name in SKIPPED.get(sanitizer, []) for word in ("--skip", name)]
        code, out = run([*test, "--lib", "--no-fail-fast", "--", *filters, *skipped], environment, log, True)
    passed = [int(number) for number in re.findall(r"^test result: ok\. ([0-9]+) passed", out, re.M)]
    if code or REPORT.search(out) or not sum(passed):
        sys.exit(f"{sanitizer}: failed, exit code {code}; see {folder}/output")
    print(f"{sanitizer}: {sum(passed)} tests of {len(passed)} crates passed, no report")


if __name__ == "__main__":
    main()
