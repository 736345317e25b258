#!/bin/bash
# The MariaDB server that the plugin is built for: its packages and the headers of the very same
# version. Sourced by other scripts, or run: scripts/mariadb.sh install | headers | suite | version
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

# Source lists of this machine's own Debian mirrors, in a place of our own: nothing of the system's
# is changed, and no root is needed to read them.
source_lists() {
    local lists=$mariadb_dir/apt code
    mkdir -p "$lists/state/partial" "$lists/cache/archives/partial" "$lists/parts"
    code=$(. /etc/os-release && echo "$VERSION_CODENAME")
    : >"$lists/sources.list"
    local file
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$file" ] && sed -n "s/^deb \(.*\b$code\)/deb-src \1/p" "$file" >>"$lists/sources.list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -f "$file" ] && grep -q "^Suites:.*\b$code" "$file" \
            && sed 's/^Types:.*/Types: deb-src/' "$file" >"$lists/parts/$(basename "$file")"
    done
    apt_source=(apt-get -q -o "Dir::Etc::sourcelist=$lists/sources.list"
        -o "Dir::Etc::sourceparts=$lists/parts" -o "Dir::State::lists=$lists/state"
        -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User= -o Acquire::Retries=2)
    [ -n "$(ls "$lists/state" | grep Sources)" ] || "${apt_source[@]}" update >"$lists/log" 2>&1
}

# Headers of one version (Debian's number), unpacked into $mariadb_dir/VERSION; false if its source
# cannot be had.
headers_of() {
    local version=$1 upstream=${1#*:} out
    upstream=${upstream%%-*}
    out=$mariadb_dir/$upstream
    [ -f "$out/VERSION" ] && return 0
    source_lists
    local fetched=$mariadb_dir/fetched
    mkdir -p "$fetched"
    (cd "$fetched" && "${apt_source[@]}" --download-only source "mariadb=$version") \
        >>"$mariadb_dir/apt/log" 2>&1 || return 1
    rm -rf "$out.new" && mkdir -p "$out.new"
    tar -xzf "$fetched/mariadb_$upstream.orig.tar.gz" -C "$out.new" --strip-components=1 \
        --wildcards '*/VERSION' '*/include/*' '*/sql/*.h' '*/wsrep-API/v26/*' '*/tpool/*.h' || return 1
    # Debian's own changes, where they touch a header.
    rm -rf "$out.debian" && mkdir -p "$out.debian"
    tar -xJf "$fetched/mariadb_$upstream-"*.debian.tar.xz -C "$out.debian" || return 1
    if grep -qE '^\+\+\+ .*(include|sql)/.*\.h' "$out.debian"/debian/patches/*.patch 2>/dev/null; then
        say "Debian patches headers of $version: they are not applied, so it is refused"
        return 1
    fi
    rm -rf "$out.debian" "$out" "$fetched"
    mv "$out.new" "$out"
}

installed_version() {
    dpkg-query -W -f='${Status} ${Version}' mariadb-server-core 2>/dev/null \
        | sed -n 's/^install ok installed //p'
}

# The newest version that has packages and source.
newest_version() {
    local version
    for version in $(apt-cache madison mariadb-server-core 2>/dev/null | awk '{print $3}' \
        | sort -u -V -r); do
        headers_of "$version" && echo "$version" && return 0
    done
    return 1
}

# Installs the packages of one version, all pinned to it.
install_version() {
    local version=$1 package pinned=() run=()
    for package in "${mariadb_packages[@]}"; do pinned+=("$package=$version"); done
    if [ -n "${only_tell:-}" ]; then
        echo "${pinned[*]}"
        return
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            say "run this once: sudo apt-get install -y --allow-downgrades ${pinned[*]}"
            return 3
        fi
        run=(sudo -n)
    fi
    say "installing version $version"
    DEBIAN_FRONTEND=noninteractive "${run[@]}" apt-get install -y -qq --no-install-recommends \
        --allow-downgrades "${pinned[@]}" >/dev/null || return 1
}

mariadb_install() {
    local have want package
    have=$(installed_version)
    if [ -n "$have" ] && headers_of "$have"; then
        for package in "${mariadb_packages[@]}"; do
            [ "$(dpkg-query -W -f='${Version}' "$package" 2>/dev/null)" = "$have" ] \
                || { install_version "$have"; return; }
        done
        return 0
    fi
    apt-cache madison mariadb-server-core 2>/dev/null | grep -q . \
        || { [ "$(id -u)" -eq 0 ] && apt-get update -qq >&2; }
    want=$(newest_version) || { say "no version has both packages and source"; return 3; }
    if [ -n "$have" ] && [ "${CI:-}" != true ]; then
        say "the server here is $have, whose source cannot be had; $want has packages and source."
        say "With CI=true this would replace it; else install $want yourself."
        return 3
    fi
    install_version "$want"
}

# Prints the folder of the headers of the installed server.
mariadb_headers() {
    local have
    have=$(installed_version)
    [ -n "$have" ] || { say "no server is installed: run make deps"; return 3; }
    headers_of "$have" || {
        say "the source of $have cannot be had; the newest version that has packages and source: $(newest_version)"
        return 3
    }
    have=${have#*:}
    echo "$mariadb_dir/${have%%-*}"
}

# Prints the folder of the server's own test suite, of the installed version: packages unpacked into
# a place of our own, for installed they would bring a service and its accounts with them.
mariadb_suite() {
    local have upstream out package packages
    have=$(installed_version)
    [ -n "$have" ] || { say "no server is installed: run make deps"; return 3; }
    upstream=${have#*:}
    out=$mariadb_dir/suite-${upstream%%-*}
    if [ ! -d "$out/usr/share/mysql/mysql-test" ]; then
        packages=()
        for package in mariadb-{server,client}{-core,} mariadb-test{,-data}; do
            packages+=("$package=$have")
        done
        rm -rf "$out.new" && unpacked "$out.new" "${packages[@]}" || return $?
        rm -rf "$out" && mv "$out.new" "$out"
    fi
    echo "$out"
}

# Prints the folder of MyRocks (ha_rocksdb.so in usr/lib/mysql/plugin) for the installed server, as
# scripts/compare loads it: its package, and those of the libraries that this machine lacks, unpacked
# into a place of our own, for installed it would change the system's server. Its libraries are in
# usr/lib/TRIPLET and lib/TRIPLET there.
mariadb_rocksdb() {
    local have upstream out library
    have=$(installed_version)
    [ -n "$have" ] || { say "no server is installed: run make deps"; return 3; }
    upstream=${have#*:}
    out=$mariadb_dir/rocksdb-${upstream%%-*}
    library=usr/lib/mysql/plugin/ha_rocksdb.so
    if [ ! -f "$out/$library" ]; then
        rm -rf "$out.new" && mkdir -p "$out.new"
        unpacked "$out.new" "mariadb-plugin-rocksdb=$have" || return $?
        if ldd "$out.new/$library" | grep -q 'not found'; then
            unpacked "$out.new" liblz4-1 libsnappy1v5 libzstd1 zlib1g || return $?
        fi
        rm -rf "$out" && mv "$out.new" "$out"
    fi
    echo "$out"
}

# Packages, fetched and unpacked into a folder.
unpacked() {
    local out=$1 package
    shift
    mkdir -p "$out/deb"
    for package in "$@"; do
        (cd "$out/deb" && apt-get -q download "$package") >>"$mariadb_dir/unpacked.log" 2>&1 || {
            say "package $package cannot be had: $(grep ^E: "$mariadb_dir/unpacked.log" | tail -1)"
            return 3
        }
    done
    for package in "$out"/deb/*.deb; do dpkg-deb -x "$package" "$out" || return 1; done
    rm -rf "$out/deb"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    case "${1:-}" in
        install) mariadb_install ;;
        needs) only_tell=yes mariadb_install ;;
        headers) mariadb_headers ;;
        suite) mariadb_suite ;;
        rocksdb) mariadb_rocksdb ;;
        version) installed_version ;;
        *) sed -n '2,4p' "$0" >&2; exit 2 ;;
    esac
fi
