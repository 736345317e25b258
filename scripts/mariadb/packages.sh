# Sourced by scripts/mariadb.sh: the packages of the server, of the version that is installed or of the newest that has its source.
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
