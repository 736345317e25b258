# Private MariaDB servers with the engine loaded, each in a directory of its own on a socket of its
# own. Sourced by tests; everything ends and goes with the shell.
#
#   private_begin                     makes $private_dir
#   private_preload                   a library loaded into servers before their own, if it is set
#   private_start NAME [options...]   starts the server NAME (its data stays between starts)
#   private_sql NAME [client options] a client on it
#   private_kill NAME                 kill -9
#   private_stop NAME                 an orderly end
#   private_port                      a free port on loopback; for private_start: $private_tcp PORT
#   private_follow NAME PORT          NAME becomes a replica of the server on PORT, from its beginning
#   private_caught_up NAME SOURCE     waits until NAME has applied what SOURCE has
declare -A private_pids

private_begin() {
    private_plugin=${EVENKEEL_PLUGIN_DIR:-$PWD/target/plugin}
    [ -f "$private_plugin/ha_evenkeel.so" ] || { echo "make plugin first" >&2; exit 3; }
    private_dir=$(mktemp -d)
    private_user=()
    [ "$(id -u)" -eq 0 ] && private_user=(--user=root)
    trap private_end EXIT
    mkdir -p "$private_dir/plugins"
    ln -sf /usr/lib/mysql/plugin/*.so "$private_dir/plugins/" 2>/dev/null
    ln -sf "$private_plugin/ha_evenkeel.so" "$private_dir/plugins/"
}

private_end() {
    local name
    for name in "${!private_pids[@]}"; do private_kill "$name"; done
    rm -rf "$private_dir"
}

# Begins the start and does not wait for it.
private_launch() {
    local dir=$private_dir/$1
    shift
    mkdir -p "$dir/tmp"
    if [ ! -d "$dir/data/mysql" ]; then
        mariadb-install-db --no-defaults "${private_user[@]}" --datadir="$dir/data" --skip-test-db \
            --auth-root-authentication-method=normal >"$dir/install.log" 2>&1 \
            || { cat "$dir/install.log" >&2; exit 1; }
    fi
    LD_PRELOAD=${private_preload:-} mariadbd --no-defaults "${private_user[@]}" --datadir="$dir/data" --socket="$dir/socket" \
        --skip-networking --plugin-dir="$private_dir/plugins" \
        --plugin-load-add=ha_evenkeel.so --evenkeel-memory-size=64M --evenkeel-log-size=64M \
        --ignore-db-dirs='#evenkeel' --pid-file="$dir/pid" \
        --log-error="$dir/error.log" --tmpdir="$dir/tmp" --innodb-buffer-pool-size=32M "$@" \
        >"$dir/out" 2>&1 &
    private_pids[$(basename "$dir")]=$!
}

private_start() {
    local name=$1
    private_launch "$@"
    for _ in $(seq 3000); do
        private_sql "$name" -e 'select 1' >/dev/null 2>&1 && return 0
        kill -0 "${private_pids[$name]}" 2>/dev/null || break
        sleep 0.1
    done
    echo "server $name did not start" >&2
    tail -30 "$private_dir/$name/error.log" >&2
    exit 1
}

private_sql() {
    local name=$1
    shift
    mariadb --no-defaults --socket="$private_dir/$name/socket" -uroot "$@"
}

private_kill() {
    kill -9 "${private_pids[$1]}" 2>/dev/null
    wait "${private_pids[$1]}" 2>/dev/null
    unset "private_pids[$1]"
}

private_stop() {
    kill "${private_pids[$1]}" 2>/dev/null
    wait "${private_pids[$1]}" 2>/dev/null
    unset "private_pids[$1]"
}

private_tcp="--skip-networking=OFF --bind-address=127.0.0.1 --port"

# Below the ports that the system gives to outgoing connections: else one of those may have it when
# the server binds it, or binds it again after a restart.
private_port() {
    python3 - <<'END'
import random, socket
lowest = int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
for port in random.sample(range(max(lowest // 2, 1024), lowest), 100):
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            continue
        print(port)
        break
END
}

private_follow() {
    private_sql "$1" -e "change master to master_host='127.0.0.1', master_port=$2,
        master_user='root', master_use_gtid=slave_pos, master_connect_retry=1; start slave"
}

private_caught_up() {
    local position
    position=$(private_sql "$2" -N -e 'select @@gtid_binlog_pos')
    [ "$(private_sql "$1" -N -e "select master_gtid_wait('$position', 600)")" = 0 ] && return 0
    private_sql "$1" -e 'show slave status\G' | grep -E 'Running|Error|Gtid' >&2
    return 1
}
