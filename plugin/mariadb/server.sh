# Sourced by the plugin's build: the server that is installed here, and the headers of the very same version. Ends the
# build with 3 if they are not.
headers=${EVENKEEL_HEADERS:-$(bash scripts/mariadb.sh headers)} || exit $?
# What a plugin is built for, as the server tells it.
built_for=$(mariadbd --version | sed -E 's/.*Ver ([^ ]+) .*/\1/')
library=$(dirname "$(find /usr/lib -name libmysqlservices.a | head -1)")
generated=/usr/include/mariadb/server
server=$(mariadbd --version | sed -E 's/.*Ver ([0-9.]+)-.*/\1/')
source=$(. "$headers/VERSION" && echo "$MYSQL_VERSION_MAJOR.$MYSQL_VERSION_MINOR.$MYSQL_VERSION_PATCH")
declared=$(sed -n 's/^#define MYSQL_SERVER_VERSION[^"]*"\([0-9.]*\).*/\1/p' \
    "$generated/mysql_version.h" 2>/dev/null)
configured=$(sed -n 's/^#define VERSION "\([0-9.]*\).*/\1/p' "$generated/my_config.h" 2>/dev/null)
if [ "$server" != "$source" ] || [ "$server" != "$declared" ] || [ "$server" != "$configured" ]; then
    echo "plugin: server $server, headers $source, $declared and $configured differ: run make deps" >&2
    exit 3
fi
