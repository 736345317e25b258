#!/bin/bash
# The server's own test suites on ENGINE=EVENKEEL: scripts/test-mtr.sh [quick | all | engines | innodb | as-innodb |
# TEST...], as plugin/mariadb/tests/test_mtr.py says.
exec python3 -B "$(dirname "$0")/../plugin/mariadb/tests/test_mtr.py" "$@"
