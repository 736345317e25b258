#!/bin/bash
# Scripts of several sessions (plugin/mariadb/tests/sessions) on EVENKEEL and on InnoDB, in one
# private server: what they print must be the same, but where SCRIPT.evenkeel says what ours prints.
# Then connections that others kill while they end (tests/leaving.c). Prints "N passed, N failed". With
# arguments: those scripts only.
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/private.sh
private_begin
private_start main
passed=0 failed=0 leaving=$#
[ $# -gt 0 ] || set -- plugin/mariadb/tests/sessions/*.txt
for script in "$@"; do
    for engine in InnoDB EVENKEEL; do
        private_sql main -e 'create or replace database x'
        timeout 900 python3 plugin/mariadb/tests/sessions.py "$private_dir/main/socket" "$engine" "$script" \
            >"$private_dir/$engine.out" 2>&1 || echo "ended with $?" >>"$private_dir/$engine.out"
    done
    wanted=$private_dir/InnoDB.out
    [ -f "${script%.txt}.evenkeel" ] && wanted=${script%.txt}.evenkeel
    # A script that ended early ends so on both engines.
    if grep -E '^(ended with|Traceback)| hangs' "$private_dir"/{InnoDB,EVENKEEL}.out >&2; then
        echo "not to its end: $script" >&2
        failed=$((failed + 1))
    elif [ "$(wc -l <"$private_dir/InnoDB.out")" -gt 20 ] && diff "$wanted" "$private_dir/EVENKEEL.out"; then
        passed=$((passed + 1))
    else
        echo "differs: $script" >&2
        failed=$((failed + 1))
    fi
    [ -n "${EVENKEEL_KEEP:-}" ] && cp "$private_dir"/*.out "$EVENKEEL_KEEP"
done
if [ "$leaving" -eq 0 ]; then
    gcc -O1 -Wall -I/usr/include/mariadb -o "$private_dir/leaving" plugin/mariadb/tests/leaving.c \
        -lmariadb -lpthread || exit 1
    private_sql main -e 'create or replace database x; create table x.t (id int primary key)
        engine=evenkeel; insert into x.t values (1)'
    if "$private_dir/leaving" "$private_dir/main/socket" x.t 60000; then
        passed=$((passed + 1))
    else
        echo "connections that are killed while they end: failed" >&2
        failed=$((failed + 1))
    fi
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
