# Put at the head of each of the package's scripts by scripts/deb.sh.
loads=/etc/mysql/mariadb.conf.d/evenkeel-load.cnf

# The server takes up or puts down the engine only at its start. Under systemd one that runs is started
# again. Without systemd the trigger of mariadb-server on /etc/mysql does it, once dpkg is done.
restart_server() {
    if [ -d /run/systemd/system ]; then
        deb-systemd-invoke try-restart mariadb.service || {
            echo "mariadb-plugin-evenkeel: the server did not start again: journalctl -u mariadb" >&2
            return 1
        }
    else
        dpkg-trigger --no-await /etc/mysql
    fi
}
