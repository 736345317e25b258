#!/usr/bin/env python3
"""`make install` into a directory of its own: a server starts with the config file and has the engine; a plugin for
another version is built again. Prints one line.
"""
import os
import pwd
import shutil
import subprocess
import sys

from servers import AS_ROOT, ROOT, Problem, Server, make_data, plugin_folder, run

INSTALL = ROOT / "scripts/install.sh"
OTHER_VERSION = "10.11.1\n"


class Installed(Server):
    """A server that has the config file that was installed, and nothing else of the tests' servers."""

    def __init__(self, servers, root):
        super().__init__(servers, "installed")
        self.root = root
        self.folder.mkdir()
        make_data(self.data, self.folder / "install.log")

    def launch(self):
        command = ["mariadbd", f"--defaults-file={self.root}/etc/mysql/mariadb.conf.d/evenkeel.cnf", *AS_ROOT,
                   f"--datadir={self.data}", f"--tmpdir={self.folder}", f"--socket={self.socket}", "--skip-networking",
                   f"--plugin-dir={self.root}/usr/lib/mysql/plugin", f"--pid-file={self.folder}/pid",
                   f"--log-error={self.error_log}"]
        with open(self.folder / "out", "w") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def done(command, environment, **how):
    """The exit code of a script, and what it has said."""
    ended = subprocess.run(list(map(str, command)), env=dict(os.environ, **environment), stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, **how)
    return ended.returncode, ended.stdout


def wants(is_right, what):
    if not is_right:
        raise Problem(what)


def loads_engine(server, plugin):
    server.start()
    server.sql("create database d; create table d.t (a int primary key) engine=evenkeel; insert into d.t values (7)")
    wants("evenkeel" not in server.sql("show databases"), "its directory is shown as a database")
    wants(server.try_sql("uninstall soname 'ha_evenkeel'").returncode, "it can be taken away from under its tables")
    server.stop()
    # Without the plugin the server must not start: tables would be missing.
    plugin.rename(server.root / "away")
    server.launch()
    wants(not server.comes_up(), "it starts without the engine")
    (server.root / "away").rename(plugin)
    server.start()
    wants(server.sql("select a from d.t") == "7", "the row is gone")
    server.stop()


def rebuilds(root, environment, plugin):
    """Another version of the server: the hook builds and installs. What it runs as root nobody else can change."""
    hook = (root / "etc/apt/apt.conf.d/90evenkeel").read_text()
    program, version = root / "usr/lib/evenkeel/install.sh", root / "usr/lib/evenkeel/version"
    wants("'/usr/lib/evenkeel/install.sh' rebuild" in hook, f"the hook: {hook}")
    wants(str(ROOT) not in hook, "the hook runs what is in the working copy")
    status = program.stat()
    owner = pwd.getpwuid(os.getuid()).pw_name
    wants((pwd.getpwuid(status.st_uid).pw_name, status.st_mode & 0o7777) == (owner, 0o755),
          "who may change the hook's program")
    code, said = done(["bash", program, "rebuild"], environment)
    wants(code == 0, f"rebuild: {said}")
    wants(not said, f"it builds for the same version: {said}")
    version.write_text(OTHER_VERSION)
    plugin.unlink()
    code, said = done(["bash", program, "rebuild"], environment)
    wants(code == 0, said)
    wants(plugin.is_file(), "it was not built again")
    # The server was taken away: nothing to build, no complaint.
    tools = root / "bin"
    tools.mkdir()
    for tool in ("bash", "dirname", "realpath", "cat"):
        (tools / tool).symlink_to(shutil.which(tool))
    version.write_text(OTHER_VERSION)
    code, said = done([tools / "bash", program, "rebuild"], {**environment, "PATH": str(tools)})
    wants(code == 0 and not said, f"rebuild without a server: {said}")
    return program


def refuses_other_version(root, environment):
    """A plugin that was built for another server is not installed."""
    other = root / "other"
    shutil.copytree(plugin_folder(), other)
    (other / "version").write_text(OTHER_VERSION)
    code, said = done(["bash", INSTALL, "install"], {**environment, "EVENKEEL_PLUGIN_DIR": str(other)})
    wants(code, "a plugin for another server is installed")
    wants(OTHER_VERSION.strip() in said, f"does not say what it is built for: {said}")


def refuses_package(root, environment):
    """The Debian package has the same files."""
    package = root / "usr/share/mariadb-plugin-evenkeel"
    package.mkdir(parents=True)
    code, said = done(["bash", INSTALL, "install"], environment)
    wants(code, "is installed over the package")
    wants(package.name in said, f"does not name the package: {said}")
    package.rmdir()


def refuses_nobody(root, environment):
    """Who may not remove it is told so."""
    for folder in (root.parent, root):
        folder.chmod(0o755)
    with open(INSTALL) as script:
        code, said = done(["runuser", "-u", "nobody", "--", "env", f"DESTDIR={root}", "bash", "-s", "remove"],
                          environment, stdin=script, cwd="/")
    wants(code, "says that it is removed")
    wants("root" in said, f"does not say who may remove it: {said}")


def test(servers):
    root = servers.folder / "root"
    root.mkdir()
    environment = {"DESTDIR": str(root)}
    plugin = root / "usr/lib/mysql/plugin/ha_evenkeel.so"
    code, said = done(["bash", INSTALL, "install"], environment)
    wants(code == 0, f"does not install: {said}")
    server = servers.all["installed"] = Installed(servers, root)
    loads_engine(server, plugin)
    program = rebuilds(root, environment, plugin)
    refuses_other_version(root, environment)
    refuses_package(root, environment)
    if os.getuid() == 0:
        refuses_nobody(root, environment)
    done(["bash", INSTALL, "remove"], environment)
    wants(done(["bash", program, "rebuild"], environment)[0], "the hook's program is left")
    left = [path for part in ("etc", "usr") for path in (root / part).rglob("*") if path.is_file()]
    wants(not left, f"something is left: {left}")
    print("install: the server loads the engine, refuses to start without it, and it is built again")


if __name__ == "__main__":
    sys.exit(run("install", test))
