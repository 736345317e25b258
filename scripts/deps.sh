#!/bin/bash
# Installs the Debian packages that the build and the tests need. As root or with `sudo -n`; else
# prints the one command and exits 3. Does nothing, and needs no network, when all are there.
set -u
cd "$(dirname "$0")/.." || exit 1
packages=(chromium python3 gcc libc6-dev ca-certificates
    g++ postgresql util-linux patch lsof perl libpcre2-posix3)
if [ "${1:-}" = compare ]; then
    packages+=(librocksdb-dev clang libclang-dev g++)
elif [ "${1:-}" = servers ]; then
    packages+=(sysbench)
elif [ "${1:-}" = profile ]; then
    packages+=(linux-perf)
fi

server() {
    bash scripts/mariadb.sh install || exit $?
    bash scripts/mariadb.sh suite >/dev/null
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
if [ ${#missing[@]} -eq 0 ]; then
    server
fi

run=()
if [ "$(id -u)" -ne 0 ]; then
    if sudo -n true 2>/dev/null; then
        run=(sudo -n)
    else
        echo "run this once, then try again:" >&2
        echo "  sudo apt-get update && sudo apt-get install -y ${missing[*]}" >&2
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
