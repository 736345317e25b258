#!/bin/bash
# The same queries and changes under many plans, on tables of InnoDB and of EVENKEEL in one private server: what
# comes of them must be the same (plugin/mariadb/tests/differential_plans.py).
# plugin/mariadb/tests/test_plans.py [--seed N] [--rounds N] [--variants N], or [--replay FILE] of a failure
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/private.sh
# Nothing here is to outlive the server, and thousands of views and functions are made: in memory where there is room.
if [ -w /dev/shm ] && [ "$(df --output=avail -k /dev/shm | tail -n 1)" -gt 2000000 ]; then
    export TMPDIR=/dev/shm
fi
private_begin
private_start main --innodb-buffer-pool-size=64M
timeout "${EVENKEEL_DIFFERENTIAL_SECONDS:-7200}" python3 -B plugin/mariadb/tests/differential_plans.py \
    --socket "$private_dir/main/socket" "$@"
