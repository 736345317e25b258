#!/bin/bash
# Longer than a change can wait for: run before a release, after `make test`.
cd "$(dirname "$0")/.."
source scripts/rungs.sh

# cargo-deny takes minutes to build, so only this ladder installs it; `make test` runs it where it
# is there, and its licence rule is also in `cargo xtask tidy`.
command -v cargo-deny >/dev/null || rung 0-cargo-deny cargo install --quiet --locked cargo-deny
rung 0-licences cargo deny --offline check licenses bans sources
bash scripts/deps.sh compare
lib=$(dirname "$(find /usr/lib -name librocksdb.so | head -n 1)")
rung 1-peers env ROCKSDB_LIB_DIR="$lib" cargo test --quiet --target-dir target/peers \
    --manifest-path crates/bench-compare/peers/Cargo.toml \
    --features rocksdb,sqlite,lmdb,redb,fjall
rungs_done
