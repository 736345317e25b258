#!/bin/bash
# Each statement in each state of an XA transaction, on InnoDB and on EVENKEEL (plugin/mariadb/tests/xa_states.py): with the
# binlog on, and without one in a pool of threads. A part of a cell's name as argument runs only such cells.
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/private.sh
private_begin
fast=(--log-bin-trust-function-creators --innodb-flush-log-at-trx-commit=2 --evenkeel-flush-at-commit=2 --sync-binlog=0
    --evenkeel-lock-wait-timeout=10 --innodb-lock-wait-timeout=10)

states() {
    local server=$1
    shift
    private_start "$server" "${fast[@]}" "$@"
    private_sql "$server" -e 'create database if not exists test'
    local said
    said=$(python3 -B plugin/mariadb/tests/xa_states.py "$private_dir/$server/socket" "${cell:-}") \
        || { echo "xa states test: $server: $said" >&2; exit 1; }
    echo "$server: $said"
    private_stop "$server"
}

cell=${1:-}
states with-binlog --log-bin=binlog --server-id=1 --binlog-format=row
states pool-without-binlog --thread-handling=pool-of-threads --thread-pool-size=2
