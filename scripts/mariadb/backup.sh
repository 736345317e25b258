# Sourced by mariadb.sh: the server's own backup tool.

# Prints the command of mariadb-backup for the installed server, unpacked into a place of our own: another version of
# it would replace the packages that it shares with the server.
mariadb_backup() {
    local have upstream out
    have=$(installed_version)
    [ -n "$have" ] || { say "no server is installed: run make deps"; return 3; }
    upstream=${have#*:}
    out=$mariadb_dir/backup-${upstream%%-*}
    if [ ! -x "$out/usr/bin/mariadb-backup" ]; then
        rm -rf "$out.new" && unpacked "$out.new" "mariadb-backup=$have" || return $?
        rm -rf "$out" && mv "$out.new" "$out"
    fi
    echo "$out/usr/bin/mariadb-backup"
}
