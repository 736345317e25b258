"""A Debian of its own below a folder, with the MariaDB server's packages and its service, for the test of our package.

The base is made once for each version of the server, by debootstrap and apt, and kept in target/mariadb; what a test
changes lies in an overlay on top of it. `enter` gives the test's process mounts, processes and a network of its own:
nothing of it outlives the test, and no port of the machine is taken. Needs root.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from servers import ROOT, Missing, Problem

INSIDE = "EVENKEEL_INSIDE"
SOURCES = pathlib.Path("/etc/apt")
PACKAGES = ["mariadb-server", "mariadb-server-core", "mariadb-client", "mariadb-client-core", "mariadb-common",
            "libmariadb3"]
# Whether packages start services. Not while the base is made, which shares the machine's network. Without the file
# they do not either, for no init runs.
POLICY = "usr/sbin/policy-rc.d"
FORBIDS, ALLOWS = "#!/bin/sh\nexit 101\n", "#!/bin/sh\nexit 0\n"


def enter():
    """Runs the program again in namespaces of its own; in those it returns."""
    if os.environ.get(INSIDE):
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        return
    make_base()
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--mount", "--pid", "--net", "--uts", "--fork", "--kill-child", "--mount-proc",
                          sys.executable, "-B", *sys.argv])


def server_version():
    version = subprocess.run(["bash", ROOT / "scripts/mariadb.sh", "version"], stdout=subprocess.PIPE,
                             text=True).stdout.strip()
    if not version:
        raise Missing("no server is installed: make deps-plugin")
    return version


def base_folder():
    return ROOT / "target/mariadb" / f"root-{server_version().split(':')[-1].split('-')[0]}"


def said(command, log):
    with open(log, "a") as file:
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT).returncode:
            raise Missing(f"{command[0]} fails, see {log}")


def make_base():
    if os.getuid() != 0:
        raise Missing("a clean root needs root's rights")
    for tool in ("unshare", "debootstrap"):
        if not shutil.which(tool):
            raise Missing(f"{tool} is missing: make deps-deb")
    base, version = base_folder(), server_version()
    if base.is_dir():
        return
    new, log = base.with_suffix(".new"), base.with_suffix(".log")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    release = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines())
    said(["debootstrap", "--variant=minbase", "--include=ca-certificates", release["VERSION_CODENAME"], str(new)], log)
    (new / "etc/apt/sources.list").unlink(missing_ok=True)
    for name in ("sources.list", "sources.list.d"):
        if (SOURCES / name).is_dir():
            shutil.copytree(SOURCES / name, new / "etc/apt" / name, dirs_exist_ok=True)
        elif (SOURCES / name).is_file():
            shutil.copy(SOURCES / name, new / "etc/apt" / name)
    shutil.copy("/etc/resolv.conf", new / "etc/resolv.conf")
    policy = new / POLICY
    policy.write_text(FORBIDS)
    policy.chmod(0o755)
    said(["chroot", str(new), "apt-get", "update", "-q"], log)
    # Without services: mounts of its own so that /proc is gone with the process.
    script = f"mount -t proc proc {new}/proc && exec chroot {new} env DEBIAN_FRONTEND=noninteractive apt-get install" \
             f" -y -q --no-install-recommends {' '.join(f'{name}={version}' for name in PACKAGES)}"
    said(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script], log)
    policy.unlink()
    new.rename(base)


class CleanRoot:
    """The base with an overlay, entered by chroot. Paths are as they are inside of it."""

    def __init__(self, folder):
        self.path = folder / "root"
        upper, work = folder / "upper", folder / "work"
        for path in (self.path, upper, work):
            path.mkdir(parents=True)
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir={base_folder()},upperdir={upper},workdir={work}", self.path], check=True)
        subprocess.run(["mount", "-t", "proc", "proc", self.path / "proc"], check=True)
        self.run("ip", "link", "set", "lo", "up")
        (self.path / POLICY).write_text(ALLOWS)
        (self.path / POLICY).chmod(0o755)

    def leave(self):
        """Ends what runs in it and unmounts it."""
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(process / "root") == str(self.path):
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:
                continue  # it has ended meanwhile
        for mount in (self.path / "proc", self.path):
            subprocess.run(["umount", "--lazy", mount])

    def file(self, path):
        return self.path / path.lstrip("/")

    def tried(self, *command):
        """The exit code of a command, and what it said."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        # Into a file: a server that the command starts would keep a pipe open.
        output = self.path.parent / "output"
        with open(output, "w") as file:
            code = subprocess.run(["chroot", self.path, *command], stdin=subprocess.DEVNULL, stdout=file,
                                  stderr=subprocess.STDOUT, env=environment).returncode
        return code, output.read_text(errors="replace")

    def run(self, *command):
        code, output = self.tried(*command)
        if code:
            raise Problem(f"{' '.join(map(str, command))} ends with {code}: {output}")
        return output

    def sql(self, statements):
        return self.run("mariadb", "-N", "-B", "-e", statements).strip()
