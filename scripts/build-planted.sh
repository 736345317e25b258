#!/bin/bash
# Builds the plugin with planted faults (plugin/mariadb/fault_injection.h, fault.h) into target/plugin-planted, once for all
# the tests that want it: only the plugin's own objects differ from those of users. The engine's library is the
# one that is there, unless a source is newer.
set -uo pipefail
cd "$(dirname "$0")/.."
library=${CARGO_TARGET_DIR:-$PWD/target}/release/libevenkeel_capi.a
if [ -f "$library" ] && [ -z "$(find crates Cargo.toml Cargo.lock -type f -newer "$library" -print -quit)" ]; then
    # build.sh does not ask cargo where the headers are named.
    EVENKEEL_HEADERS=$(bash scripts/mariadb.sh headers) || exit $?
    export EVENKEEL_HEADERS
fi
EVENKEEL_PLANTS=1 EVENKEEL_PLUGIN_DIR=$PWD/target/plugin-planted exec bash plugin/mariadb/build.sh
