#!/bin/bash
# The MariaDB server that the plugin is built for: its packages and the headers of the very same
# version: scripts/mariadb.sh install | needs | headers | suite | rocksdb | backup | version
#
# A plugin loads only into the version it was built for, so packages and source must agree. Debian's
# archives do not always have the source of their newest package: the newest version that has both
# is taken. A server that is installed already is only replaced where CI=true.
#
# Exit codes: 0 done, 1 failed, 3 something is missing on the machine (the message says what to do).
set -uo pipefail
mariadb_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mariadb_dir=${CARGO_TARGET_DIR:-$mariadb_root/target}/mariadb
mariadb_packages=(mariadb-server-core mariadb-client-core mariadb-common libmariadb3 libmariadb-dev
    libmariadbd-dev libmariadbd19)

say() { echo "mariadb: $*" >&2; }

for part in headers packages unpacked backup; do
    # shellcheck disable=SC1090
    source "$mariadb_root/scripts/mariadb/$part.sh"
done
case "${1:-}" in
    install) mariadb_install ;;
    needs) only_tell=yes mariadb_install ;;
    headers) mariadb_headers ;;
    suite) mariadb_suite ;;
    rocksdb) mariadb_rocksdb ;;
    backup) mariadb_backup ;;
    version) installed_version ;;
    *) sed -n '2,3p' "$0" >&2; exit 2 ;;
esac
