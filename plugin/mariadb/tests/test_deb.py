#!/usr/bin/env python3
"""The Debian package in a clean root with the server's own packages and a server that runs: it is installed, upgraded,
removed, installed again and purged by apt; tables stay through all of it. Prints one line.

test_deb.py [contents | planted | needs]: with `contents` only what is in the package, without a clean root; with
`planted` the same with faults in the package's files, each of which the test must find; with `needs` only the base of
clean roots is made.
"""
import os
import pathlib
import shutil
import subprocess
import sys

from clean_root import CleanRoot, enter, make_base, server_version
from servers import ROOT, Missing, Problem, run, wait_until

NAME = "mariadb-plugin-evenkeel"
SOURCE = ROOT / "plugin/mariadb/debian"
CONFIG = "/etc/mysql/mariadb.conf.d/evenkeel.cnf"
LOADS = "/etc/mysql/mariadb.conf.d/evenkeel-load.cnf"
LIBRARY = "/usr/lib/mysql/plugin/ha_evenkeel.so"
TABLES = "/var/lib/mysql/#evenkeel"
ENGINE = "select count(*) from information_schema.engines where engine = 'EVENKEEL' and support = 'YES'"
DOCS = ["changelog.gz", "changelog.Debian.gz", "copyright", "LICENSE-MIT", "LICENSE-APACHE"]
FILES = {CONFIG, LIBRARY, "/usr/bin/evenkeel", f"/usr/share/{NAME}/load.cnf",
         *(f"/usr/share/doc/{NAME}/{name}" for name in DOCS)}
# Faults of the package's files: file, text, what stands in its place, and a part of what the test then says.
PLANTS = [
    ("prerm", 'rm -f "$loads"', "true", "something is left that loads it"),
    ("functions.sh", "dpkg-trigger --no-await /etc/mysql", "true", "the engine is still there"),
    ("functions.sh", "try-restart", "status", "asked of systemd"),
    ("load.cnf", "FORCE_PLUS_PERMANENT", "FORCE", "taken away from under"),
    ("evenkeel.cnf", "ignore_db_dirs", "#ignore_db_dirs", "shown as a database"),
    ("control.in", "mariadb-server-core (= @SERVER@)", "mariadb-server-core", "depends on"),
    ("preinst", "exit 1", "true", "installed over the plugin"),
    ("postrm", "restart_server", 'restart_server; rm -rf "/var/lib/mysql/#evenkeel"', "does not say where the tables"),
]


def wants(is_right, what):
    if not is_right:
        raise Problem(what)


def package(folder, revision, source=SOURCE):
    """The package as `make deb` makes it, of one revision."""
    # Packed with less work than a package for users.
    environment = {**os.environ, "EVENKEEL_DEB_OUT": str(folder), "EVENKEEL_DEB_REVISION": str(revision),
                   "EVENKEEL_DEB_SOURCE": str(source), "DPKG_DEB_COMPRESSOR_TYPE": "gzip",
                   "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
    made = subprocess.run(["bash", ROOT / "scripts/deb.sh"], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if made.returncode == 3:
        raise Missing(made.stderr.strip())
    wants(made.returncode == 0, f"no package: {made.stderr}")
    return pathlib.Path(made.stdout.strip())


def field(deb, name):
    return subprocess.run(["dpkg-deb", "--field", deb, name], stdout=subprocess.PIPE, text=True).stdout.strip()


def check_contents(deb):
    wants(f"mariadb-server-core (= {server_version()})" in field(deb, "Depends").split(", "),
          f"depends on {field(deb, 'Depends')}")
    wants("libc6" in field(deb, "Depends"), "the libraries are not among what it depends on")
    listed = subprocess.run(["dpkg-deb", "--contents", deb], stdout=subprocess.PIPE, text=True).stdout.splitlines()
    files = {}
    for line in listed:
        mode, owner, _, _, _, path = line.split(maxsplit=5)
        wants(owner == "root/root", f"{path} belongs to {owner}")
        if not mode.startswith("d"):
            files[path.removeprefix(".")] = mode
    wants(set(files) == FILES, f"differs by {set(files) ^ FILES}")
    wants({path for path, mode in files.items() if mode != "-rw-r--r--"} == {"/usr/bin/evenkeel"}, f"modes: {files}")


class Machine:
    """A clean root in which the server's service runs, and what the test does to it."""

    def __init__(self, folder):
        self.root = CleanRoot(folder)
        self.root.run("service", "mariadb", "start")

    def put(self, deb):
        shutil.copy(deb, self.root.file("/root"))
        return f"/root/{deb.name}"

    def apt(self, *arguments):
        output = self.root.run("apt-get", "-q", "-y", *arguments)
        wants(self.answers(), f"the server does not run after apt-get {arguments}: {output}")
        return output

    def answers(self):
        return wait_until(lambda: self.root.tried("mariadb", "-e", "select 1")[0] == 0, 60)

    def has_engine(self):
        return self.root.sql(ENGINE) == "1"

    def process(self):
        return self.root.sql("select variable_value from information_schema.global_status where variable_name ="
                             " 'uptime'"), self.root.file("/run/mysqld/mysqld.pid").read_text()


def install(machine, deb):
    root = machine.root
    root.sql("create database d; create table d.i (a int primary key); insert into d.i values (1)")
    output = machine.apt("install", machine.put(deb))
    wants(machine.has_engine(), f"the engine is not there after the installation: {output}")
    root.sql("create table d.t (a int primary key, b varchar(20), key (b)) engine=evenkeel;"
             "use d; insert into d.t select seq, concat('row ', seq) from seq_1_to_1000")
    wants("evenkeel" not in root.sql("show databases"), "the directory of the tables is shown as a database")
    wants(root.tried("mariadb", "-e", "uninstall soname 'ha_evenkeel'")[0], "it can be taken away from under tables")
    wants("0." in root.run("evenkeel", "--version"), "the command does not run")
    changed = root.run("dpkg", "--verify", NAME)
    wants(not changed, f"files are not as they were packed: {changed}")


def rows(machine):
    return machine.root.sql("select count(*), sum(a), max(b) from d.t")


def upgrade(machine, deb):
    """A running server takes up the new file; what the administrator changed in the config stays."""
    root = machine.root
    config = root.file(CONFIG)
    setting = "loose_evenkeel_memory_size = "
    config.write_text(config.read_text().replace(f"#{setting}4G", f"{setting}48M"))
    before, process = rows(machine), machine.process()
    machine.apt("install", machine.put(deb))
    wants(machine.process()[1] != process[1], "the server still runs with the old file")
    wants(machine.has_engine(), "the engine is not there after the upgrade")
    wants(rows(machine) == before == "1000\t500500\trow 999", f"rows: {before}, then {rows(machine)}")
    wants(root.sql("select @@evenkeel_memory_size") == str(48 << 20), "the administrator's setting is gone")
    root.sql("insert into d.t values (1001, 'row 1001')")
    wants(root.run("dpkg-query", "-W", "-f", "${Version}", NAME).endswith("-2"), "it is not the new package")


def keeps_server(machine):
    """Says whether a newer server is in the archive. An upgrade must leave the server alone then; one that may remove
    packages, too, if the administrator holds the plugin."""
    root = machine.root
    policy = root.run("apt-cache", "policy", "mariadb-server-core").split()
    newer = policy[policy.index("Candidate:") + 1] != server_version()
    root.run("apt-mark", "hold", NAME)
    held = root.run("apt-get", "-s", "-q", "dist-upgrade")
    root.run("apt-mark", "unhold", NAME)
    for how, planned in (("upgrade", root.run("apt-get", "-s", "-q", "upgrade")), ("held, dist-upgrade", held)):
        wants("Inst mariadb-server-core" not in planned and f"Remv {NAME}" not in planned,
              f"{how} takes the server from under the plugin: {planned}")
        wants(not newer or "kept back" in planned, f"{how} does not say that the server is kept back: {planned}")
    if newer:
        root.run("apt-mark", "hold", NAME)
        wants(root.tried("apt-get", "-s", "-q", "install", "mariadb-server")[0], "a new server replaces a held plugin")
        root.run("apt-mark", "unhold", NAME)
    return newer


def remove(machine):
    """The server runs without the engine; its files stay."""
    root = machine.root
    output = machine.apt("remove", NAME)
    wants("tables stay in" in output, f"does not say where the tables are: {output}")
    wants(not root.file(LIBRARY).exists() and not root.file(LOADS).is_symlink(), "something is left that loads it")
    wants(not machine.has_engine(), "the engine is still there")
    wants(root.sql("select a from d.i") == "1", "a table of InnoDB is gone")
    code, output = root.tried("mariadb", "-e", "select * from d.t")
    wants(code and "Unknown storage engine 'EVENKEEL'" in output, f"a table of the engine without it: {output}")
    wants("evenkeel" not in root.sql("show databases"), "the directory of the tables is shown as a database")
    wants(any(root.file(TABLES).iterdir()), "the tables' files are gone")


def install_again(machine, deb):
    machine.apt("install", machine.put(deb))
    wants(rows(machine).startswith("1001\t501501"), f"rows after it was removed and installed: {rows(machine)}")


def purge(machine):
    root = machine.root
    machine.apt("purge", NAME)
    left = [path for path in (CONFIG, LOADS, LIBRARY, f"/usr/share/{NAME}") if root.file(path).exists()]
    wants(not left, f"left after a purge: {left}")
    wants(any(root.file(TABLES).iterdir()), "a purge removed the tables")


def refuses_other_installation(machine, deb):
    """`make install` has its own hook for apt: both together would overwrite each other."""
    root = machine.root
    program = root.file("/usr/lib/evenkeel/install.sh")
    program.parent.mkdir()
    program.touch()
    code, output = root.tried("apt-get", "-q", "-y", "install", machine.put(deb))
    wants(code and "'make install'" in output, f"is installed over the plugin of make install: {output}")
    shutil.rmtree(program.parent)
    machine.apt("install", "-f")


def tells_systemd(machine, deb):
    """With systemd the scripts ask it to start the server again. Stand-ins note what is asked."""
    root = machine.root
    root.file("/run/systemd/system").mkdir(parents=True)
    for name, body in (("deb-systemd-invoke", 'echo "$@" >>/root/asked'), ("systemctl", "exit 0")):
        stand_in = root.file(f"/usr/local/sbin/{name}")
        stand_in.write_text(f"#!/bin/sh\n{body}\n")
        stand_in.chmod(0o755)
    path = "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
    for arguments in (["--install", machine.put(deb)], ["--remove", NAME]):
        root.run("env", f"PATH={path}", "dpkg", *arguments)
    # The server's own package asks as well, to start it.
    asked = root.file("/root/asked").read_text().splitlines()
    wants(asked.count("try-restart mariadb.service") == 2, f"asked of systemd: {asked}")


def whole_life(machine, first, second):
    install(machine, first)
    upgrade(machine, second)
    newer = keeps_server(machine)
    remove(machine)
    install_again(machine, second)
    purge(machine)
    refuses_other_installation(machine, first)
    tells_systemd(machine, first)
    return newer


def tried(folder, source=SOURCE):
    """Whether the archive has a newer server; raises what is wrong with the package."""
    first, second = package(folder / "first", 1, source), package(folder / "second", 2, source)
    check_contents(first)
    machine = Machine(folder)
    try:
        return whole_life(machine, first, second)
    finally:
        machine.root.leave()


def caught(folder, number, plant):
    """Whether the test of a package with a fault says what it should."""
    file, text, instead, says = plant
    shutil.copytree(SOURCE, folder / "source")
    planted = folder / "source" / file
    wants(text in planted.read_text(), f"{file} has no {text}")
    planted.write_text(planted.read_text().replace(text, instead, 1))
    try:
        tried(folder, folder / "source")
        found = "nothing"
    except Problem as problem:
        found = str(problem)
    is_caught = says in found
    print(f"deb: {number}. {file}: {text} -> {instead}: {'caught' if is_caught else 'NOT caught: ' + found[:500]}")
    return is_caught


def test(servers):
    if sys.argv[1:] == ["contents"]:
        first = package(servers.folder / "first", 1)
        check_contents(first)
        print(f"deb: {first.name} has its {len(FILES)} files and depends on mariadb-server-core (= {server_version()})")
    elif sys.argv[1:] == ["planted"]:
        all_caught = [caught(servers.folder / str(n), n, plant) for n, plant in enumerate(PLANTS, 1)]
        print(f"deb: {all_caught.count(True)} caught, {all_caught.count(False)} not caught")
        return int(not all(all_caught))
    else:
        newer = tried(servers.folder)
        kept = "stays although a newer one is there" if newer else "stays (none newer is in the archive)"
        print(f"deb: installed, upgraded, removed, installed again and purged beside a running server, which {kept}")
    return 0


def main():
    try:
        if sys.argv[1:] == ["needs"]:
            return make_base()
        if sys.argv[1:] != ["contents"]:
            enter()
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 3
    return run("deb", test)


if __name__ == "__main__":
    sys.exit(main())
