#!/bin/bash
# Our own suite on a plugin in whose rows the columns that were not read hold nonsense (plugin/mariadb/poison.cc): a
# server that reads such a column, or an update that writes one back, fails a test. Then random statements beside InnoDB.
# plugin/mariadb/tests/test_poison.py [STATEMENTS [TEST...]]; without tests the suite is run, EVENKEEL_SEED is the seed.
set -uo pipefail
cd "$(dirname "$0")/.."
export EVENKEEL_POISON=1 EVENKEEL_PLUGIN_DIR=$PWD/target/poison EVENKEEL_MTR_DIR=${EVENKEEL_MTR_DIR:-$PWD/target/mtr-poison}
bash plugin/mariadb/build.sh || exit $?
statements=${1:-5000}
shift || true
bash scripts/test-mtr.sh "${@:-quick}" || exit 1
[ "$statements" = 0 ] || python3 -B plugin/mariadb/tests/test_differential.py "${EVENKEEL_SEED:-3}" "$statements"
