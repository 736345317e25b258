#!/bin/bash
# Longer than a change can wait for: run before a release, after `make test`.
cd "$(dirname "$0")/.."
source scripts/rungs.sh

# cargo-deny takes minutes to build, so only this ladder installs it; `make test` runs it where it
# is there, and its rules for licences and sources are also in `cargo xtask tidy`.
command -v cargo-deny >/dev/null || rung 0-cargo-deny cargo install --quiet --locked cargo-deny
rung 0-licences cargo deny --offline check licenses bans sources
# Known faults of dependencies: the database of them comes from GitHub.
if cargo deny fetch db >/dev/null 2>&1; then
    rung 0-advisories cargo deny check advisories
else
    echo "== rung 0-advisories skipped: the database of advisories cannot be fetched"
fi
# The crates with unsafe code, under sanitizers. Exit code 3: a component cannot be fetched.
for sanitizer in address thread miri; do
    fetched=0
    python3 scripts/sanitize.py --fetch $sanitizer || fetched=$?
    if [ $fetched = 3 ]; then
        echo "== rung 0-$sanitizer skipped: its toolchain cannot be fetched"
    else
        rung 0-$sanitizer python3 scripts/sanitize.py $sanitizer
    fi
done
# Other systems, and the oldest compiler: what rustup fetches.
if rustup target add aarch64-unknown-linux-gnu >/dev/null 2>&1; then
    rung 0-targets bash scripts/check-targets.sh
else
    echo "== rung 0-targets skipped: rustup cannot fetch other targets here"
fi
bash scripts/deps.sh compare
lib=$(dirname "$(find /usr/lib -name librocksdb.so | head -n 1)")
rung 1-peers env ROCKSDB_LIB_DIR="$lib" cargo test --quiet --target-dir target/peers \
    --manifest-path crates/bench-compare/peers/Cargo.toml \
    --features rocksdb,sqlite,lmdb,redb,fjall

# The flame graph that `make profile` draws.
rung 1-profile bash scripts/test-profile.sh

# As long as README.md says.
rung 1-bench bash scripts/test-bench.sh

# The acceptance figures, at a size that shows only that they can be had.
rung 1-bars python3 scripts/bars.py --rounds 1 --seconds 25 --scale 0.02 --out target/bars

source scripts/rungs-tests-release.sh
source scripts/rungs-plugin-release.sh
# Coverage-guided, a minute for each target; longer by EVENKEEL_FUZZ_SECONDS.
rung 4-cargo-fuzz bash scripts/fuzz.sh "${EVENKEEL_FUZZ_SECONDS:-60}"
rungs_done
