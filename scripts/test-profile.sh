#!/bin/bash
# `make profile` on a small run: the flame graph holds the engine's own functions by name, from the
# statement down to the log, and those of the background.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -f out/flame.svg
bash scripts/profile.sh --rows 500k,200k --steps l.i0,l.x,l.i1 --durability 2
stacks=$(wc -l <out/stacks.txt)
[ "$stacks" -ge 100 ] || { echo "$stacks stacks only"; exit 1; }
for frame in evenkeel_bench:: evenkeel_tables:: evenkeel_tree:: evenkeel_log:: evenkeel_runs::; do
    grep -q "<title>.*$frame" out/flame.svg || { echo "no $frame in out/flame.svg"; exit 1; }
done
echo "$stacks different stacks"
