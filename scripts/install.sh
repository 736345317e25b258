#!/bin/bash
# Puts the plugin into the system's MariaDB server. scripts/install.sh [install | rebuild | remove]
#   install  the plugin that `make plugin` built, a config file that loads it at startup, and a hook
#            for apt that builds it again after an upgrade of the server
#   rebuild  what the hook runs: builds and installs it if the server is another version
#   remove   all of it; tables stay in the server's data directory
# DESTDIR goes before every path, and then nothing outside of it is touched or restarted.
# Exit codes: 0 done, 1 failed, 3 something is missing (the message says what).
set -uo pipefail
# What apt's hook runs as root is a copy that root alone can change; beside it is written where the
# working copy is, in which its owner builds.
self=$(realpath "$0" 2>/dev/null || echo "$0")
here=$(dirname "$self")
working_copy=$(dirname "$here")
[ ! -f "$here/source" ] || working_copy=$(cat "$here/source")
root=${DESTDIR:-}
plugins=$root/usr/lib/mysql/plugin
config=$root/etc/mysql/mariadb.conf.d/evenkeel.cnf
hook=$root/etc/apt/apt.conf.d/90evenkeel
state=$root/usr/lib/evenkeel
# Of installations before this one.
old_state=$root/usr/local/lib/evenkeel
built=${EVENKEEL_PLUGIN_DIR:-$working_copy/target/plugin}/ha_evenkeel.so

# A user's PATH may lack where servers are.
[ -n "$root" ] || PATH=$PATH:/usr/sbin:/usr/local/sbin
server_version() { mariadbd --version | sed -E 's/.*Ver ([^ ]+) .*/\1/'; }

restart() {
    [ -z "$root" ] && command -v systemctl >/dev/null && systemctl is-enabled -q mariadb 2>/dev/null \
        && systemctl restart mariadb
}

enter() {
    cd "$working_copy" || { echo "evenkeel: the working copy is gone: $working_copy" >&2; return 1; }
}

# As who the working copy belongs to, with that user's compiler, away from root's terminal: nobody else
# could build over root's files, and what its owner puts there root does not read or run.
as_owner() {
    local owner home run=()
    owner=$(stat -c %U .) home=$(getent passwd "$(stat -c %u .)" | cut -d: -f6)
    [ "$(id -u)" -ne 0 ] || [ "$owner" = root ] || run=(setsid -w runuser -u "$owner" -- env HOME="$home")
    PATH=$PATH:$home/.cargo/bin "${run[@]}" "$@" </dev/null
}

install_all() {
    local built_for program=${state#"$root"}/install.sh
    [ ! -e "$root/usr/share/mariadb-plugin-evenkeel" ] || { echo "remove the package mariadb-plugin-evenkeel first" >&2; return 3; }
    built_for=$(as_owner cat "$(dirname "$built")/version" 2>/dev/null)
    if [ ! -f "$built" ] || [ "$built_for" != "$(server_version)" ]; then
        echo "make plugin first: it is built for ${built_for:-no server}, not $(server_version)" >&2
        return 3
    fi
    mkdir -p "$plugins" "$(dirname "$config")" "$(dirname "$hook")" "$state" 2>/dev/null \
        && [ -w "$plugins" ] || { echo "run this as root: sudo make install" >&2; return 3; }
    # Put in place at once: a server that runs has the old file open and keeps it.
    # Read as its owner may: what he has put there need not be a file of his.
    as_owner cat "$built" >"$plugins/.ha_evenkeel.so" && chmod 644 "$plugins/.ha_evenkeel.so" \
        && mv "$plugins/.ha_evenkeel.so" "$plugins/ha_evenkeel.so" || return 1
    # A config that is there was perhaps changed by its owner.
    [ -f "$config" ] || cat >"$config" <<'END'
# ENGINE=EVENKEEL. Settings and what they mean: SHOW VARIABLES LIKE 'evenkeel%', docs/user/mariadb.md.
[mariadbd]
plugin_load_add = ha_evenkeel.so
# The server does not start without the engine: its tables, and transactions that are prepared in
# it, would be missing.
evenkeel = FORCE_PLUS_PERMANENT
ignore_db_dirs = "#evenkeel"
#evenkeel_memory_size = 4G
#evenkeel_log_size = 2G
#evenkeel_flush_at_commit = 1
END
    cat >"$hook" <<END
// Builds the Evenkeel plugin again when the MariaDB server was upgraded: it loads only into the very
// version it was built for.
DPkg::Post-Invoke { "[ ! -x '$program' ] || '$program' rebuild || true"; };
END
    rm -f "$old_state/version" 2>/dev/null
    rmdir "$old_state" 2>/dev/null
    echo "$built_for" >"$state/version"
    echo "installed for MariaDB $built_for; restart the server to load it"
}

# For the hook. Not at a rebuild: root would take over what somebody else can write.
keep_program() {
    cp "$self" "$state/.install.sh" && chmod 755 "$state/.install.sh" && pwd >"$state/source" \
        && chmod 644 "$state/source" && mv "$state/.install.sh" "$state/install.sh"
}

rebuild() {
    [ -f "$state/version" ] || { echo "not installed" >&2; return 3; }
    # The server itself was taken away: there is nothing to build for.
    command -v mariadbd >/dev/null || return 0
    [ "$(server_version)" != "$(cat "$state/version")" ] || return 0
    enter || return 1
    echo "evenkeel: the server is $(server_version) now: building the plugin for it" >&2
    as_owner bash plugin/mariadb/build.sh >&2 && install_all >&2 || {
        echo "evenkeel: no plugin for this version of the server yet, which does not start without" \
            "it. Hold the server's packages back (apt-mark hold mariadb-server) or build it later" \
            "with: $state/install.sh rebuild" >&2
        return 1
    }
    restart || true
}

remove() {
    rm -f "$plugins/ha_evenkeel.so" "$config" "$hook" "$state"/{version,source,install.sh} \
        "$old_state/version" 2>/dev/null
    rmdir "$state" "$old_state" 2>/dev/null
    if [ -e "$plugins/ha_evenkeel.so" ] || [ -e "$config" ] || [ -e "$hook" ]; then
        echo "not removed: run this as root" >&2
        return 3
    fi
    echo "removed; tables are still in the server's data directory, in #evenkeel"
}

case "${1:-install}" in
    install) enter && install_all && keep_program ;;
    rebuild | remove) "$1" ;;
    *) sed -n '2,8p' "$0" >&2; exit 2 ;;
esac
