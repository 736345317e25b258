#!/usr/bin/env python3
"""The series of servers that compat.h accepts are those that docs/guide/versions.md lists as compiled and run; others
do not compile, unless a port asks for it. No other file of the plugin asks for the server's version. Prints one line.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

PLUGIN = pathlib.Path(__file__).resolve().parents[1]
PAGE = PLUGIN.parents[1] / "docs/guide/versions.md"
NAMES = re.compile(r"\b(MYSQL_VERSION_ID|MARIADB_VERSION_ID|TT_FORCE)\b")
SERIES = ["10.6", "10.11", "11.4", "11.8", "12.3"]


def compiles(version, *flags):
    """Whether compat.h compiles for a server of this version."""
    with tempfile.TemporaryDirectory() as folder:
        major, minor, patch = map(int, version.split("."))
        header = pathlib.Path(folder, "mysql_version.h")
        header.write_text(f"#define MYSQL_VERSION_ID {major * 10000 + minor * 100 + patch}\n")
        done = subprocess.run(["g++", "-std=c++17", "-fsyntax-only", f"-I{folder}", *flags, "-x", "c++",
                               PLUGIN / "compat.h"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode and "docs/guide/versions.md" not in done.stdout:
            sys.exit(f"compat: does not say where the servers are listed: {done.stdout}")
        return done.returncode == 0


def main():
    rows = re.findall(r"^\| (\d+\.\d+)[^|]*\| yes \| [^|]*`make test`", PAGE.read_text(), re.M)
    wrong = [f"{series}: {'accepted' if compiles(f'{series}.5') else 'refused'}, on the page: {series in rows}"
             for series in SERIES if compiles(f"{series}.5") != (series in rows)]
    if not compiles("11.8.5", "-DEVENKEEL_UNTRIED_SERVER"):
        wrong.append("a port is refused")
    sources = [path for path in PLUGIN.iterdir() if path.suffix in (".cc", ".h") and path.name != "compat.h"]
    wrong += [f"{path.name}: {name} belongs into compat.h"
              for path in sources for name in NAMES.findall(path.read_text())]
    for line in wrong:
        print(f"compat: {line}", file=sys.stderr)
    if not wrong:
        print(f"compat: series {', '.join(rows)} accepted, {len(SERIES) - len(rows)} others refused")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
