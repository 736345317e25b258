"""Private MariaDB servers with the engine loaded, for tests: each in a directory of its own, on a socket of its own.

    def test(servers):
        main = servers.server("main")
        main.start("--log-bin=binlog")
        if main.sql("select 1") != "1": raise Problem("no answer")
    run("name of the test", test)

`run` makes the directory, ends the servers that the test has started and no others, removes the directory and
returns the exit code: 0, or 1 with the problem and the ends of the servers' logs on stderr, or 3 if something is
missing on the machine. EVENKEEL_PLUGIN_DIR names the folder of the plugin (target/plugin).
"""
import concurrent.futures
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from client import Client, Failed

ROOT = pathlib.Path(__file__).resolve().parents[3]
TESTS = ROOT / "plugin/mariadb/tests"
PLUGINS = pathlib.Path("/usr/lib/mysql/plugin")
# On a machine that others load a start may take long.
START_SECONDS = 300
# With less memory free than this, in bytes, the servers' files are on disk.
MEMORY_LEFT = 6 << 30
AS_ROOT = ["--user=root"] if os.getuid() == 0 else []


class Problem(Exception):
    """What a test has found: it fails."""


class Missing(Exception):
    """What a test needs and this machine does not have."""


def plugin_folder():
    folder = pathlib.Path(os.environ.get("EVENKEEL_PLUGIN_DIR") or ROOT / "target/plugin")
    if not (folder / "ha_evenkeel.so").exists():
        raise Missing("make plugin first")
    return folder


def folder_in_memory(prefix):
    """A new folder for servers' files in memory, which saves the waits of every sync; None if there is no room."""
    free = re.search(r"^MemAvailable:\s+(\d+) kB", pathlib.Path("/proc/meminfo").read_text(), re.M)
    memory = os.statvfs("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    if memory and free and min(memory.f_bavail * memory.f_frsize, int(free[1]) << 10) > MEMORY_LEFT:
        return pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir="/dev/shm"))
    return None


def remove_but_logs(var, kept):
    """Removes a folder of MTR's; the servers' logs in it stay below `kept`."""
    shutil.rmtree(kept, ignore_errors=True)
    for log in [path for path in var.glob("**/log/**/*") if path.suffix in (".err", ".log") and path.is_file()]:
        to = kept / log.relative_to(var)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, to)
    shutil.rmtree(var, ignore_errors=True)


def make_data(data, log):
    """A new data directory, whose root user has no password."""
    with open(log, "w") as file:
        command = ["mariadb-install-db", "--no-defaults", *AS_ROOT, f"--datadir={data}", "--skip-test-db",
                   "--auth-root-authentication-method=normal"]
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
    if code:
        raise Problem("no data directory: " + pathlib.Path(log).read_text())


def wait_until(condition, seconds, pause=0.1):
    """True as soon as the condition is; false if it is not after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def beside(work, *arguments):
    """Runs `work` in a thread; result() of what comes back waits for it and raises what it has raised."""
    future = concurrent.futures.Future()

    def run_it():
        try:
            future.set_result(work(*arguments))
        except BaseException as error:
            future.set_exception(error)
    threading.Thread(target=run_it, daemon=True).start()
    return future


def free_port():
    """A port below those that the system gives to outgoing connections: else one of those may have it when the
    server binds it, or binds it again after a restart."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(max(lowest // 2, 1024), lowest), 100):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Missing("no port is free")


def on_port(port):
    """Options of a server that replicas reach."""
    return ["--skip-networking=OFF", "--bind-address=127.0.0.1", f"--port={port}"]


def compile_failing(out):
    """The library that makes calls of a server fail (failing.c)."""
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", out, TESTS / "failing.c", "-ldl"], check=True)
    return out


def seed_of(name, drawn=None):
    """The seed of a test, which is printed: EVENKEEL_SEED, else `drawn`, else a random one."""
    seed = os.environ.get("EVENKEEL_SEED") or drawn or random.SystemRandom().randrange(1 << 30)
    print(f"{name}: seed {seed}", flush=True)
    return str(seed)


class Server:
    """A server; its data stays between its starts."""

    def __init__(self, servers, name):
        self.servers, self.name, self.process = servers, name, None
        self.folder = servers.folder / name
        self.data, self.error_log = self.folder / "data", self.folder / "error.log"
        self.socket = str(self.folder / "socket")

    def launch(self, *options, preload="", environment=None):
        """Begins the start and does not wait for it. `preload` is a library loaded before the server's own."""
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        if not (self.data / "mysql").is_dir():
            make_data(self.data, self.folder / "install.log")
        command = ["mariadbd", "--no-defaults", *AS_ROOT, f"--datadir={self.data}", f"--socket={self.socket}",
                   "--skip-networking", f"--plugin-dir={self.servers.plugins}", *self.servers.options,
                   "--ignore-db-dirs=#evenkeel", f"--pid-file={self.folder}/pid", f"--log-error={self.error_log}",
                   f"--tmpdir={self.folder}/tmp", *options]
        self.servers.last = self
        with open(self.folder / "out", "w") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            env=dict(os.environ, LD_PRELOAD=str(preload), **(environment or {})))

    def start(self, *options, **how):
        self.launch(*options, **how)
        if not self.comes_up():
            raise Problem(f"server {self.name} did not start")

    def comes_up(self):
        """Waits until it answers; false if it ends instead."""
        return wait_until(lambda: self.answers() or not self.is_alive(), START_SECONDS) and self.answers()

    def answers(self):
        try:
            client = Client(self.socket)
        except Failed:
            return False
        try:
            return client.number("select 1") == 0
        finally:
            client.close()

    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self, seconds=600):
        """An orderly end; false if it is not there in so many seconds."""
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self.process = None
        return True

    def client(self, *options, database=None):
        """The command of a client."""
        return ["mariadb", "--no-defaults", f"--socket={self.socket}", "-uroot", *options,
                *([f"--database={database}"] if database else [])]

    def sql(self, statements, *options, database=None):
        """What statements print, a row a line; an error of one of them is a problem of the test."""
        done = self.try_sql(statements, *options, database=database)
        if done.returncode:
            raise Problem(f"{self.name}: {statements[:300]}: {done.stderr.strip()}")
        return done.stdout.rstrip("\n")

    def try_sql(self, statements, *options, database=None, timeout=None):
        """The client's process when it has ended: stdout, stderr and returncode."""
        return subprocess.run(self.client("--batch", "--skip-column-names", *options, database=database),
                              input=statements, capture_output=True, text=True, timeout=timeout)

    def said(self, statements, *options, database=None):
        """What statements print, errors too."""
        done = self.try_sql(statements, *options, database=database)
        return (done.stdout + done.stderr).rstrip("\n")

    def follow(self, port):
        """Becomes a replica of the server on this port, from its beginning."""
        self.sql(f"change master to master_host='127.0.0.1', master_port={port}, master_user='root', "
                 "master_use_gtid=slave_pos, master_connect_retry=1; start slave")

    def catches_up(self, source):
        """Waits until it has applied what the source has; false if it does not."""
        position = source.sql("select @@gtid_binlog_pos")
        if self.sql(f"select master_gtid_wait('{position}', 600)") == "0":
            return True
        for line in self.sql("show slave status\\G").splitlines():
            if re.search("Running|Error|Gtid", line):
                print(line, file=sys.stderr)
        return False

    def status(self, name):
        return int(self.sql("select variable_value from information_schema.global_status "
                            f"where variable_name = '{name}'"))

    def memory(self, field):
        """KiB: VmRSS, or VmHWM."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+)", text, re.M)[1])

    def log(self):
        return self.error_log.read_text(errors="replace") if self.error_log.exists() else ""


class Servers:
    """The servers of a test. `options` are those of all; a test may change them."""

    def __init__(self):
        plugin = plugin_folder()
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.plugins = self.folder / "plugins"
        self.plugins.mkdir()
        for library in PLUGINS.glob("*.so"):
            (self.plugins / library.name).symlink_to(library)
        self.use_plugin(plugin / "ha_evenkeel.so")
        self.options = ["--plugin-load-add=ha_evenkeel.so", "--evenkeel-memory-size=64M", "--evenkeel-log-size=64M",
                        "--innodb-buffer-pool-size=32M"]
        self.all, self.last = {}, None

    def use_plugin(self, library):
        place = self.plugins / "ha_evenkeel.so"
        place.unlink(missing_ok=True)
        place.symlink_to(library)

    def server(self, name):
        """The server of this name, the same one each time."""
        return self.all.setdefault(name, Server(self, name))

    def copy(self, server, name):
        """A new server with the data of one that is stopped."""
        other = self.server(name)
        other.folder.mkdir()
        shutil.copytree(server.data, other.data)
        return other

    def end(self):
        for server in self.all.values():
            server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def tell_logs(self):
        """Of each server's log the errors, and the end if it is alive or the last one that was started."""
        for server in self.all.values():
            lines = server.log().splitlines()
            ends = lines[-20:] if server.is_alive() or server is self.last else []
            told = [line for line in lines[:len(lines) - len(ends)] if re.search("ERROR|panic|EVENKEEL:", line)][-10:]
            print(f"== {server.name}, error.log", file=sys.stderr)
            for line in told + ends:
                print(line[:400], file=sys.stderr)


def end_by_signal(number, _frame):
    raise SystemExit(128 + number)


def run(name, test):
    """Runs a test over servers of its own, and returns the exit code: its own if it is a number."""
    # Who watches the test through a file sees each line when it is printed.
    sys.stdout.reconfigure(line_buffering=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_by_signal)
    servers = None
    try:
        servers = Servers()
        return int(test(servers) or 0)
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 3
    except Problem as problem:
        print(f"{name}: {problem}", file=sys.stderr)
        servers.tell_logs()
        return 1
    except Exception:
        if servers:
            servers.tell_logs()
        raise
    finally:
        if servers:
            servers.end()
