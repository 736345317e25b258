#!/bin/bash
# Random statements on tables of InnoDB and of EVENKEEL, in one private server: what a client sees must
# be the same (plugin/mariadb/tests/differential.py). plugin/mariadb/tests/test_differential.py [SEED [STATEMENTS]]
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/private.sh
private_begin
private_start main --innodb-buffer-pool-size=64M
timeout "${EVENKEEL_DIFFERENTIAL_SECONDS:-7200}" python3 plugin/mariadb/tests/differential.py \
    --socket "$private_dir/main/socket" --seed "${1:-1}" --statements "${2:-3000}"
