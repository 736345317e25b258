# Sourced by scripts/mariadb.sh: the headers of a version, from Debian's source package.
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
