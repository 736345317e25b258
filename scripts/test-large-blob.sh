#!/bin/bash
# The longest value that the server lets through, 1 GiB (max_allowed_packet is no more): made in the server, sent by a
# client, read by MD5 there and by a client, changed and rolled back, deleted; then its space comes back. The most
# memory of the server is compared with that of the same on Aria: what the engine adds is bounded by what it may
# have (64 MiB), however long the value is.
#
# EVENKEEL_BLOB_BYTES (1 GiB) is the length.
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/private.sh
bytes=${EVENKEEL_BLOB_BYTES:-1073741824}
# A statement, and a row, is the value and some words; a client takes no longer ones than the server.
sent=$((bytes - 100))
private_begin
options=(--max-allowed-packet=1G --tmp-memory-table-size=16M --net-read-timeout=600 --net-write-timeout=600)
declare -A peak

fail() {
    echo "large blob test: $*" >&2
    tail -20 "$private_dir/$engine/error.log" >&2
    exit 1
}

# The limit keeps it from hanging.
ask() {
    timeout 900 mariadb --no-defaults --socket="$private_dir/$engine/socket" -uroot --max-allowed-packet=1G \
        --quick --raw --batch --skip-column-names --database=test "$@" || fail "client: $?"
}
is() { [ "$2" = "$3" ] || fail "$1: $2, not $3"; }

# No page or block has the length of the text's period: two of them that change places are seen.
cat >"$private_dir/text.py" <<'END'
import hashlib, sys
what, size = sys.argv[1], int(sys.argv[2])
period = "".join(hashlib.sha256(b"%d" % n).hexdigest() for n in range(128))[:8191].encode()

def pieces(left):
    while left > 0:
        yield (period * 128)[:min(left, 128 * len(period))]
        left -= 128 * len(period)

out = sys.stdout.buffer
if what == "period":
    out.write(period)
elif what == "md5":
    md5 = hashlib.md5()
    for piece in pieces(size):
        md5.update(piece)
    print(md5.hexdigest())
elif what == "md5-r":
    print(hashlib.md5(b"r" * size).hexdigest())
elif what == "insert":
    out.write(b"insert into b values (2, 2, '")
    for piece in pieces(size):
        out.write(piece)
    out.write(b"');\n")
else:  # What a client has got, with the end of its line.
    md5, left = hashlib.md5(), size
    while chunk := sys.stdin.buffer.read(1 << 20):
        md5.update(chunk[:left])
        left -= min(left, len(chunk))
    print(md5.hexdigest() if left == 0 else "%d bytes are missing" % left)
END
text() { python3 "$private_dir/text.py" "$@"; }
period=$(text period 0)
whole_md5=$(text md5 "$bytes")
sent_md5=$(text md5 "$sent")

# KiB that the engine's pages and runs take.
taken() { du -sk "$private_dir/$engine/data/#evenkeel/pages" "$private_dir/$engine/data/#evenkeel/runs" | awk '{s += $1} END {print s}'; }

# The most memory until now, MiB.
memory() {
    peak[$engine]=$(awk '/^VmHWM/ {print int($2 / 1024)}' "/proc/${private_pids[$engine]}/status")
    steps+=" $1 ${peak[$engine]}"
}

through() {
    local steps=""
    engine=$1
    private_start "$engine" "${options[@]}"
    private_sql "$engine" -e 'create database if not exists test'
    ask -e "create table b (id int primary key, n int, doc longblob, key (n)) engine=$engine"
    local before=0
    [ "$engine" != evenkeel ] || before=$(taken)
    # The parts together are no longer than a packet may be.
    ask -e "insert into b values (1, 1, concat(repeat('$period', $((bytes / 8191))), left('$period', $((bytes % 8191)))))"
    memory insert
    is "length" "$(ask -e 'select length(doc) from b where id = 1')" "$bytes"
    is "MD5 in the server" "$(ask -e 'select md5(doc) from b where n = 1')" "$whole_md5"
    memory reads
    text insert "$sent" | ask
    memory sent
    is "MD5 of what a client sent" "$(ask -e 'select md5(doc) from b where id = 2')" "$sent_md5"
    is "MD5 at a client" "$(ask -e 'select doc from b where id = 2' | text got "$sent")" "$sent_md5"
    memory "to a client"
    # A change of another column, and one that is taken back.
    ask -e "update b set n = n + 10"
    memory update
    local then="$whole_md5"
    # Aria does the same work and takes nothing back.
    [ "$engine" = evenkeel ] || then=$(python3 "$private_dir/text.py" md5-r "$bytes")
    is "in the transaction, and behind it" "$(ask -e "begin; update b set doc = repeat('r', $bytes) where id = 1;
        select left(doc, 3), length(doc) from b where id = 1; rollback;
        select md5(doc) from b where n = 11" | tr '\t\n' '  ')" "rrr $bytes $then "
    memory rollback
    is "check" "$(ask -e 'check table b' | awk '{print $NF}')" OK
    memory check
    echo "MiB on $engine, at most until then:$steps"
    ask -e 'delete from b'
    if [ "$engine" = evenkeel ]; then
        local most=$((before + 64 * 1024 + bytes / 1024 / 16)) held
        held=$(taken)
        for _ in $(seq 1200); do
            [ "$(taken)" -gt "$most" ] || break
            sleep 0.1
        done
        [ "$(taken)" -le "$most" ] || fail "$(taken) KiB are left of $held, more than $most"
        echo "space: $before KiB before, $held after DELETE, $(taken) soon"
    fi
    private_stop "$engine"
    rm -rf "$private_dir/$engine"
}

through aria
through evenkeel
added=$((peak[evenkeel] - peak[aria]))
echo "$bytes bytes through SQL; at most ${peak[evenkeel]} MiB of memory, ${peak[aria]} on Aria"
# Its memory, the log's buffer, what threads and the allocator have: no copy of a value.
most=192
[ "$added" -le "$most" ] || { echo "the engine adds $added MiB, more than $most" >&2; exit 1; }
