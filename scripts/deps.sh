#!/bin/bash
# Installs the Debian packages that a task needs: deps.sh [TASK]. As root or with `sudo -n`; else
# prints the one command and exits 3. Does nothing, and needs no network, when all are there.
#   bench    the library, the command and the embedded benchmark: a C compiler
#   profile  the same and perf
#   fuzz     the same as bench, and a C++ compiler for libFuzzer
#   compare  the same and what the other embedded engines are built with
#   plugin   the same as bench, and the MariaDB server, with the headers of its version
#   servers  the same, sysbench, and MyRocks where it can be had (for make compare)
#   deb      the same as plugin, and what makes the Debian package and a clean root to try it in
#   docs     mdbook, from crates.io
#   test     everything that `make test` runs, the server's own suite too (without TASK: this)
set -u
cd "$(dirname "$0")/.." || exit 1
task=${1:-test}
packages=(gcc libc6-dev ca-certificates)
case "$task" in
    bench) ;;
    profile) packages+=(linux-perf) ;;
    compare) packages+=(librocksdb-dev clang libclang-dev g++) ;;
    fuzz | plugin) packages+=(g++) ;;
    deb) packages+=(g++ binutils dpkg-dev debootstrap) ;;
    docs) command -v mdbook >/dev/null || cargo install --quiet --locked mdbook || exit 1 ;;
    servers) packages+=(g++ python3 sysbench) ;;
    test) packages+=(g++ python3 sysbench chromium postgresql util-linux dpkg-dev patch lsof perl libpcre2-posix3) ;;
    *) sed -n '2,12p' "$0" >&2; exit 2 ;;
esac

server() {
    case "$task" in
        plugin | deb | servers | test) bash scripts/mariadb.sh install || exit $? ;;
    esac
    # Not there for every version: scripts/compare goes without and says so.
    [ "$task" != servers ] || bash scripts/mariadb.sh rocksdb >/dev/null || true
    [ "$task" != test ] || { bash scripts/mariadb.sh backup; bash scripts/mariadb.sh suite; } >/dev/null
    exit $?
}

command -v cargo >/dev/null || {
    echo "a Rust toolchain is missing: install rustup, then run this again" >&2
    exit 3
}
missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' \
        || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || server

run=()
if [ "$(id -u)" -ne 0 ]; then
    if sudo -n true 2>/dev/null; then
        run=(sudo -n)
    else
        # The server's too, so that there is one command to run and not another one after it.
        pinned=
        case "$task" in plugin | deb | servers | test) pinned=$(bash scripts/mariadb.sh needs) ;; esac
        echo "run this once, then try again:" >&2
        echo "  sudo apt-get update && sudo apt-get install -y" \
            "${pinned:+--allow-downgrades $pinned }${missing[*]}" >&2
        exit 3
    fi
fi
export DEBIAN_FRONTEND=noninteractive
echo "installing: ${missing[*]}" >&2
"${run[@]}" apt-get update -qq >&2 \
    && "${run[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null \
    || {
        echo "could not install: ${missing[*]}" >&2
        exit 3
    }
server
