#!/bin/bash
# Builds target/deb/mariadb-plugin-evenkeel_VERSION_ARCHITECTURE.deb from what `make plugin` built for the
# server that is installed here and from target/release/evenkeel, and prints its path. No root is needed.
#   EVENKEEL_PLUGIN_DIR      the plugin's folder (target/plugin)
#   EVENKEEL_COMMAND         the command (target/release/evenkeel)
#   EVENKEEL_DEB_REVISION    the last part of the package's version (1)
#   EVENKEEL_DEB_MAINTAINER  who answers for the package: "NAME <ADDRESS>"
#   EVENKEEL_DEB_SOURCE      the folder of the package's scripts and config files (plugin/mariadb/debian)
#   EVENKEEL_DEB_OUT         where the package is written (target/deb)
# Exit codes: 0 built, 1 failed, 3 something is missing.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
name=mariadb-plugin-evenkeel
plugin=${EVENKEEL_PLUGIN_DIR:-$PWD/target/plugin}
command=${EVENKEEL_COMMAND:-$PWD/target/release/evenkeel}
from=${EVENKEEL_DEB_SOURCE:-$PWD/plugin/mariadb/debian}
out=${EVENKEEL_DEB_OUT:-$PWD/target/deb}
missing() { echo "deb: $*" >&2; exit 3; }
[ -f "$plugin/ha_evenkeel.so" ] && [ -x "$command" ] || missing "build the plugin and the command first: make deb"
server=$(bash scripts/mariadb.sh version)
command -v dpkg-shlibdeps >/dev/null && [ -n "$server" ] || missing "dpkg-dev or a server is missing: make deps-deb"
built_for=$(cat "$plugin/version")
[ "$built_for" = "$(mariadbd --version | sed -E 's/.*Ver ([^ ]+) .*/\1/')" ] \
    || missing "the plugin is for $built_for, the server is $server: make plugin"
upstream=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
version=$upstream+mariadb${built_for%%-*}-${EVENKEEL_DEB_REVISION:-1}
architecture=$(dpkg --print-architecture)
maintainer=${EVENKEEL_DEB_MAINTAINER:-The Evenkeel authors <packages@evenkeel.invalid>}
# The same files make the same package.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}

tree=$out/tree
rm -rf "$tree" && mkdir -p "$out/debian" "$tree"/{DEBIAN,usr/{bin,lib/mysql/plugin,share/{,doc/}$name}} \
    "$tree/etc/mysql/mariadb.conf.d" || exit 1
strip --strip-debug -o "$tree/usr/lib/mysql/plugin/ha_evenkeel.so" "$plugin/ha_evenkeel.so" \
    && strip --strip-debug -o "$tree/usr/bin/evenkeel" "$command" || exit 1
cp "$from/evenkeel.cnf" "$tree/etc/mysql/mariadb.conf.d/" && cp "$from/load.cnf" "$tree/usr/share/$name/" || exit 1
cp "$from/copyright" LICENSE-MIT LICENSE-APACHE "$tree/usr/share/doc/$name/" || exit 1
gzip -9n <CHANGELOG.md >"$tree/usr/share/doc/$name/changelog.gz" || exit 1
printf '%s (%s) unstable; urgency=medium\n\n  * For MariaDB %s.\n\n -- %s  %s\n' "$name" "$version" "$server" \
    "$maintainer" "$(date -uRd "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$tree/usr/share/doc/$name/changelog.Debian.gz"
echo /etc/mysql/mariadb.conf.d/evenkeel.cnf >"$tree/DEBIAN/conffiles"
for script in preinst postinst prerm postrm; do
    { printf '#!/bin/sh\nset -e\n' && cat "$from/functions.sh" "$from/$script"; } >"$tree/DEBIAN/$script" || exit 1
done
chmod -R u=rwX,go=rX "$tree" && find "$tree" -type f -exec chmod a-x {} + || exit 1
chmod 755 "$tree/usr/bin/evenkeel" "$tree"/DEBIAN/{preinst,postinst,prerm,postrm} || exit 1

# dpkg-shlibdeps reads the names of packages from such a file.
printf 'Source: evenkeel\n\nPackage: %s\nArchitecture: any\n' "$name" >"$out/debian/control"
libraries=$(cd "$out" && dpkg-shlibdeps -O --ignore-missing-info -e"tree/usr/bin/evenkeel" \
    -e"tree/usr/lib/mysql/plugin/ha_evenkeel.so" 2>"$out/shlibdeps.log" | sed -n 's/^shlibs:Depends=//p')
[ -n "$libraries" ] || { cat "$out/shlibdeps.log" >&2; exit 1; }
sed "s|@VERSION@|$version|; s|@ARCHITECTURE@|$architecture|; s|@SERVER@|$server|; s|@LIBRARIES@|$libraries|
    s|@SIZE@|$(du -sk --exclude=DEBIAN "$tree" | cut -f1)|
    s|@MAINTAINER@|$maintainer|" \
    "$from/control.in" >"$tree/DEBIAN/control" || exit 1
(cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums" || exit 1
package=$out/${name}_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$tree" "$package" >/dev/null && rm -rf "$tree" && echo "$package"
