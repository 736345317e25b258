#!/bin/bash
# A plugin that was compiled with other classes than the server has does not load, says what
# differs, and the server goes on: the self-test of plugin/mariadb/layout.cc, compiled with copies of
# the headers in which one member or one virtual function is more, and linked with the rest of the
# plugin that `make plugin` built. Loaded at startup, and by INSTALL into the same server that then
# loads the real one. plugin/mariadb/tests/test_layout.py [whole | NAME...]: `whole` compiles all of the
# plugin with one such copy; NAMEs are those of the table below (all of them). Prints "N refused, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."
plugin=${EVENKEEL_PLUGIN_DIR:-$PWD/target/plugin}
headers=$(bash scripts/mariadb.sh headers) || exit $?
[ -f "$plugin/ha_evenkeel.so" ] || { echo "make plugin first" >&2; exit 3; }
mariadbd --version
# Hundreds of megabytes, beside the headers that are linked to; a socket's path may not be long.
files=${CARGO_TARGET_DIR:-$PWD/target}/tmp
mkdir -p "$files"
dir=$(mktemp -d -p "$files") && sockets=$(mktemp -d) || exit 1
server=
trap '[ -n "$server" ] && kill "$server"; wait; rm -rf "$dir" "$sockets"' EXIT
user=()
[ "$(id -u)" -eq 0 ] && user=(--user=root)

# NAME|header|line, from its beginning, that the new one comes after|new line, or @ and the beginning of
# one that is there and goes away from its place|what the log says. Any blanks are one.
altered="
handler-function|handler.h|  virtual int rnd_end()|virtual int inserted() { return 0; }|the number of virtual functions of handler is
handler-order|handler.h|  virtual int close(void)=0;|@  virtual int rnd_end()|virtual functions of handler have another order
handler-first|handler.h|  TABLE_SHARE *table_share;   /*|void *inserted;|handler::table or TABLE::reginfo lies elsewhere
handler-last|handler.h|  int m_lock_type;|void *inserted;|handler::ha_share lies elsewhere
handlerton-first|handler.h|   uint savepoint_offset;|void *inserted;|a member of handlerton lies elsewhere
handlerton-last|handler.h|  void (*pre_shutdown)(void);|void *inserted;|the size of handlerton is
thd-first|sql_class.h|  LEX *lex;   |void *inserted;|lies elsewhere
thd-middle|sql_class.h|  Ha_data ha_data[MAX_HA];|void *inserted;|lies elsewhere
thd-last|sql_class.h|  enum_tx_isolation tx_isolation;|void *inserted;|THD's diagnostics area lies elsewhere
variables|sql_class.h|  ulonglong option_bits; ///<|ulonglong inserted;|the size of system_variables is
lex|sql_lex.h|  enum_sql_command sql_command;|void *inserted;|LEX::create_info lies elsewhere
table-first|table.h|  TABLE_SHARE	*s;|void *inserted;|lies elsewhere
table-last|table.h|  GRANT_INFO grant;|void *inserted;|TABLE::spl_opt_info lies elsewhere
share|table.h|  PSI_table_share *m_psi;|void *inserted;|the size of TABLE_SHARE is
create-info|handler.h|  LEX_CSTRING connect_string;|void *inserted;|a member of HA_CREATE_INFO
key|structs.h|typedef struct st_key {|void *inserted;|a member of KEY
key-part|structs.h|  field_index_t fieldnr;|void *inserted;|a member of KEY
field|field.h|class Field: public Value_source|void *inserted;|lies elsewhere
blob|field.h|  uint packlength;|void *inserted;|the size of a class of Field is
schema-table|sql_i_s.h|typedef struct st_schema_table|void *inserted;|the size of ST_SCHEMA_TABLE is
field-function|field.h|  virtual uint size_of() const =0;|virtual int inserted() { return 0; }|the number of virtual functions of Field is
"
line_of() { grep "^$1|" <<<"$altered"; }

# Links to the headers, and hard links to those of the folder in which one gets the line: the compiler
# looks for what a header includes where another link leads.
alter() {
    local name file before line says
    IFS='|' read -r name file before line says <<<"$(line_of "$1")"
    mkdir "$dir/$name"
    ln -s "$headers"/* "$dir/$name/"
    rm "$dir/$name/sql"
    cp -rl "$headers/sql" "$dir/$name/sql" 2>/dev/null || cp -r "$headers/sql" "$dir/$name/" || return 1
    # Written through the link the server's own header would change.
    rm -f "$dir/$name/sql/$file"
    # Read twice: what moves may be below its new place.
    awk -v before="$before" -v line="$line" '
        function begins(text, with) {
            gsub(/[ \t]+/, " ", text)
            gsub(/[ \t]+/, " ", with)
            return index(text, with) == 1
        }
        BEGIN { if (line ~ /^@/) moved = substr(line, 2) }
        NR == FNR { if (moved && !gone && begins($0, moved)) { gone = FNR; line = $0 } next }
        moved && FNR == gone { next }
        { print }
        !done && begins($0, before) { found = 1 }
        found && !done && (/[;{}][ \t]*$/ || /;[ \t]*\/[\/*]/) { print line; done = 1 }
        END { exit !(done && (gone || !moved)) }' \
        "$headers/sql/$file" "$headers/sql/$file" >"$dir/$name/sql/$file" \
        || { echo "$name: no such line in $file" >&2; return 1; }
}

source plugin/mariadb/stale.sh
# False if more than the self-test would be compiled again: with wrong headers, for each NAME.
only_the_self_test() {
    local file object objects
    objects=$plugin/obj-$(mariadbd --version | sed -E 's/.*Ver ([^ ]+) .*/\1/')
    for file in plugin/mariadb/*.cc; do
        object=$objects/$(basename "$file" .cc).o
        ! is_stale "$object" || { echo "make plugin first: $file is not compiled as it is now" >&2; return 1; }
    done
}

# The objects of the plugin are newer than its sources: only the self-test's is compiled again.
build() {
    local out=$dir/out-$1
    mkdir "$out"
    if [ "${2:-}" != whole ]; then
        cp -rp "$plugin"/obj-* "$out/"
        rm "$out"/obj-*/layout.o
    fi
    EVENKEEL_PLUGIN_DIR=$out EVENKEEL_HEADERS=$dir/$1 bash plugin/mariadb/build.sh >"$out/log" 2>&1 \
        || { echo "$1 does not build: $(tail -5 "$out/log")" >&2; return 1; }
    strip --strip-debug -o "$dir/plugins/ha_evenkeel_$1.so" "$out/ha_evenkeel.so" || return 1
    rm -rf "$out"
}

start() {
    mariadbd --no-defaults "${user[@]}" --datadir="$dir/data" --tmpdir="$dir" --socket="$sockets/socket" \
        --skip-networking --plugin-dir="$dir/plugins" --pid-file="$dir/pid" \
        --innodb-buffer-pool-size=16M --ignore-db-dirs='#evenkeel' --log-error="$dir/error.log" \
        "$@" 2>/dev/null &
    server=$!
    for _ in $(seq 3000); do
        sql 'select 1' >/dev/null 2>&1 && return 0
        kill -0 "$server" 2>/dev/null || { wait "$server"; server=; return 1; }
        sleep 0.1
    done
    return 1
}
sql() { mariadb --no-defaults --socket="$sockets/socket" -uroot -N -e "$1" 2>&1 | grep -v max_open_files; }
stop() { kill "$server"; wait "$server"; server=; }
none_loaded() {
    [ "$(sql "select count(*) from information_schema.plugins where plugin_name like 'evenkeel%'")" = 0 ]
}

# Each of these says what is wrong, or nothing.
at_startup() {
    : >"$dir/error.log"
    start --plugin-load-add="ha_evenkeel_$1.so" || { echo "the server does not start"; return; }
    grep -q "EVENKEEL: not loaded: .*$2.*: rebuild the plugin for this server" "$dir/error.log" \
        || echo "the log says: $(grep -h EVENKEEL: "$dir/error.log")"
    none_loaded || echo "something of it is loaded"
    stop
}
by_install() {
    local said
    said=$(sql "install soname 'ha_evenkeel_$1'")
    grep -q "ERROR.*EVENKEEL: not loaded: .*$2.*: rebuild the plugin for this server" <<<"$said" \
        || echo "INSTALL says: ${said:-nothing}"
    none_loaded || echo "something of it is loaded by INSTALL"
    [ "$(sql 'select count(*) from mysql.plugin')" = 0 ] || echo "it is to be loaded at the next start"
}

names=("$@") whole=
[ "${1:-}" = whole ] && whole=whole names=(handler-function)
[ ${#names[@]} -gt 0 ] || mapfile -t names < <(sed -n 's/^\([^|]*\)|.*/\1/p' <<<"$altered")
[ -n "$whole" ] || only_the_self_test || exit 3
refused=0 failed=0
judge() {
    if [ -z "$2" ]; then refused=$((refused + 1)); else failed=$((failed + 1)) && echo "$1: $2" >&2; fi
}
mkdir "$dir/plugins"
cp "$plugin/ha_evenkeel.so" "$dir/plugins/"
# Another version of the server may lack a line: the others are tried all the same.
pids=()
for name in "${names[@]}"; do
    alter "$name" || continue
    [ ${#pids[@]} -lt "$(nproc)" ] || { wait "${pids[0]}"; pids=("${pids[@]:1}"); }
    build "$name" "$whole" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
built=()
for name in "${names[@]}"; do
    if [ -f "$dir/plugins/ha_evenkeel_$name.so" ]; then
        built+=("$name")
    else
        judge "$name" "there is no such plugin"
    fi
done
names=("${built[@]}")
[ ${#names[@]} -gt 0 ] || exit 1

mariadb-install-db --no-defaults "${user[@]}" --datadir="$dir/data" --skip-test-db \
    --auth-root-authentication-method=normal >"$dir/log" 2>&1 || { tail -3 "$dir/log" >&2; exit 1; }
for name in "${names[@]}"; do
    judge "$name at startup" "$(at_startup "$name" "$(line_of "$name" | cut -d'|' -f5)")"
done
# As the installed config file has it: no server without the engine.
: >"$dir/error.log"
if start --plugin-load-add="ha_evenkeel_${names[0]}.so" --evenkeel=FORCE_PLUS_PERMANENT; then
    judge "${names[0]} with FORCE_PLUS_PERMANENT" "the server starts"
    stop
else
    judge "${names[0]} with FORCE_PLUS_PERMANENT" \
        "$(grep -q 'EVENKEEL: not loaded: ' "$dir/error.log" || echo "the log does not say why")"
fi
# All of them in a server that then has the real one, and its tables, whatever it calls itself.
start --version=10.11.1-other || { echo "the server does not start" >&2; exit 1; }
for name in "${names[@]}"; do
    judge "$name by INSTALL" "$(by_install "$name" "$(line_of "$name" | cut -d'|' -f5)")"
done
[ "$(sql "install soname 'ha_evenkeel'; create database d; create table d.t (a int primary key)
    engine=evenkeel; insert into d.t values (7); select a from d.t")" = 7 ] \
    || { failed=$((failed + 1)); echo "the right one does not load after them" >&2; }
stop
echo "$refused refused, $failed failed"
[ "$failed" -eq 0 ] && [ "$refused" -gt 0 ]
