#!/bin/bash
# Records the benchmark with perf and writes out/flame.svg. Arguments go to `evenkeel bench`.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/deps.sh profile
cargo build --release -p evenkeel-cli
command -v inferno-flamegraph >/dev/null || cargo install --quiet --locked inferno
mkdir -p out
target=${CARGO_TARGET_DIR:-target}
args=("$@")
[ ${#args[@]} -gt 0 ] || args=(--rows 2M,500k --steps l.i0,l.x,l.i1 --durability 2)
# cpu-clock works where the machine gives no hardware counters.
perf record -F 499 -e cpu-clock -g --call-graph dwarf,16384 -o out/perf.data -- \
    "$target/release/evenkeel" bench "${args[@]}"
perf script -i out/perf.data 2>/dev/null | inferno-collapse-perf >out/stacks.txt
inferno-flamegraph out/stacks.txt >out/flame.svg
echo "out/flame.svg; widest leaves:"
awk '{n=$NF; $NF=""; k=split($0, f, ";"); s[f[k]]+=n; t+=n}
     END {for (name in s) printf "%5.1f%% %s\n", 100*s[name]/t, name}' out/stacks.txt | sort -rn | head -25
