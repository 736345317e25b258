# Sourced by rungs.sh. `rungs_beside SCRIPT` starts another ladder beside the rungs that follow; each of its
# lines begins with a bar. It yields the cores to them: its rungs compute, theirs wait much of the time for
# servers and disks. `rungs_beside_done` waits for its end. If one of the two ladders fails, the other one
# ends, too: at once, or behind the rung that runs.
rungs_aside=

rungs_beside() {
    set -m
    nice -n 10 bash "$1" > >(sed -u 's/^/| /') 2>&1 &
    set +m
    rungs_aside=$!
    trap end_beside EXIT
}

# By its group: the rung that runs ends too.
end_beside() {
    [ -z "$rungs_aside" ] || kill -TERM -- "-$rungs_aside" 2>/dev/null || true
    rungs_aside=
}

rungs_beside_done() {
    local aside=$rungs_aside
    [ -n "$aside" ] || return 0
    rungs_aside=
    # What a signal tells that comes meanwhile.
    rung_now="beside, all others are done"
    wait "$aside" || { echo "== the rungs beside FAILED: lines above that begin with a bar"; exit 1; }
}

# Ends this ladder if the other one has failed, so that the end of the output tells of the failure.
rungs_beside_look() {
    if [ -n "$rungs_aside" ] && ! kill -0 "$rungs_aside" 2>/dev/null; then rungs_beside_done; fi
}
