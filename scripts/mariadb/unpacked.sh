# Sourced by scripts/mariadb.sh: what is unpacked into a place of our own and not installed.
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
