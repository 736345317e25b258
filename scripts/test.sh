#!/bin/bash
# The ladder that every change must pass: what is quick first, then the plugin's rungs with those of the crates
# (test-crates.sh) beside them.
cd "$(dirname "$0")/.."
source scripts/rungs.sh
# On 2 cores, builds included.
budget_minutes=40

# Peers of the comparison are built only by `cargo run -p evenkeel-bench-compare`.
rung 0-style bash -c 'cargo fmt --all --check && cargo xtask tidy'
rung 0-lints cargo clippy --quiet --workspace --all-targets -- -D warnings
if command -v cargo-deny >/dev/null; then
    rung 0-licences cargo deny --offline check licenses bans sources
else
    echo "== rung 0-licences skipped: cargo-deny is not installed; tidy has checked licences and sources"
fi
# All tests at once: `--quiet` of the later rungs says nothing while it builds.
rung 0-build cargo test --quiet --workspace --no-run
rungs_beside scripts/test-crates.sh
rung 1-binary cargo build --quiet --release -p evenkeel-cli
rung 1-examples bash scripts/test-examples.sh
rung 1-report bash scripts/test-report.sh
# The rule by which a figure meets its bar; the rule by which a binlog is cut after a kill.
rung 1-verdicts bash -c 'python3 -B scripts/compare/test_verdicts.py && python3 -B plugin/mariadb/tests/test_whole_binlogs.py'
source scripts/rungs-plugin.sh
rungs_done
