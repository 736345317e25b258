# Sourced by test.sh and test-release.sh: `rung NAME COMMAND...` runs one rung of the ladder, tells
# the minutes of the ladder before it, and stops at the first failure; `rungs_done` prints the minutes
# that each took, and says so where they are more in all than `budget_minutes`, if that is set. The first
# and the last tell the commit: with that and the seed that a test prints, a failure is had again. What a rung
# printed stays in `target/rungs/LADDER`. A signal that ends the ladder is told with the rung and its
# seconds.
set -euo pipefail
source scripts/rungs-beside.sh
rung_names=()
rung_seconds=()
rung_now=none rung_start=0
rung_logs=target/rungs/$(basename "$0" .sh)

ended_by() {
    trap - "$1"
    end_beside
    echo "== ended by SIG$1 in rung $rung_now after $((SECONDS - rung_start)) s, $(minutes "$SECONDS")" \
        "min of the ladder, at commit $(commit)"
    kill -s "$1" $$
}
for signal in HUP INT TERM; do
    # shellcheck disable=SC2064
    trap "ended_by $signal" "$signal"
done

minutes() { awk -v s="$1" 'BEGIN {printf "%.1f", s / 60}'; }

# With a + where the tree is not what was committed.
commit() {
    local changed
    changed=$(git status --porcelain 2>/dev/null | head -n 1)
    echo "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)${changed:++}"
}

rung() {
    local name=$1 start=$SECONDS
    local log=$rung_logs/$name.log pid shown
    shift
    mkdir -p "$rung_logs"
    rung_now=$name rung_start=$start
    echo "== rung $name, after $(minutes "$start") min: $*"
    # The shell hears signals while it waits, not while a command has the foreground. Commands in the
    # background ignore Ctrl-C, unless they are told not to. A file, not a pipe: a process that a script
    # left behind would keep a pipe open, and the ladder waiting.
    : > "$log"
    ( trap - INT; "$@" ) >> "$log" 2>&1 &
    pid=$!
    tail -n +1 -s 0.2 -f --pid="$pid" "$log" &
    shown=$!
    local failed=0
    wait "$pid" || failed=1
    wait "$shown" || true
    if [ "$failed" = 1 ]; then
        # A rung may print thousands of lines, of which the first that matter are found by words.
        echo "== rung $name FAILED after $((SECONDS - start)) s, at commit $(commit); of what it printed:"
        grep -nE 'panicked at|FAILED|failed|[Ee]rror|expected' "$log" | grep -vE '[^0-9]0 failed' | head -n 20 | cut -c 1-300 || true
        echo "== its last lines:"
        tail -n 30 "$log" | cut -c 1-300
        exit 1
    fi
    rung_names+=("$name")
    rung_seconds+=($((SECONDS - start)))
    rungs_beside_look
}

rungs_done() {
    rungs_beside_done
    echo "== minutes per rung, at commit $(commit)"
    local i
    for i in "${!rung_names[@]}"; do
        awk -v s="${rung_seconds[$i]}" -v n="${rung_names[$i]}" 'BEGIN {printf "%6.1f  %s\n", s / 60, n}'
    done
    awk -v s="$SECONDS" 'BEGIN {printf "%6.1f  in all\n", s / 60}'
    if [ -n "${budget_minutes:-}" ] && [ "$SECONDS" -gt $((budget_minutes * 60)) ]; then
        echo "== WARNING: more than the budget of $budget_minutes minutes"
    fi
}
