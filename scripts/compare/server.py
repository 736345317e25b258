"""Private MariaDB servers, one per engine, set as `benchmarks.md` says for a fair comparison. A
server that is not being measured is paused, so that its background work disturbs nobody."""

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMON = ["--skip-networking", "--performance-schema=OFF", "--skip-log-bin", "--max-connections=300",
          "--table-open-cache=20000", "--open-files-limit=30000", "--innodb-snapshot-isolation=ON"]


# Of MyRocks' one column family, where sysbench and the insert benchmark keep their tables.
ROCKSDB_FAMILY = (
    "compression=kLZ4Compression;bottommost_compression=kLZ4Compression;write_buffer_size=64m;"
    "level_compaction_dynamic_level_bytes=true;optimize_filters_for_hits=true;"
    "block_based_table_factory={block_size=16384;filter_policy=bloomfilter:10:false;"
    "whole_key_filtering=1;index_type=kTwoLevelIndexSearch;partition_filters=true;"
    "metadata_block_size=4096;cache_index_and_filter_blocks=1;"
    "pin_l0_filter_and_index_blocks_in_cache=1;pin_top_level_index_and_filter=1;format_version=5}")


def options_of(engine, cache, log="2G"):
    """What a DBA gives an engine that has so much cache and log; the other engine has its least."""
    ours = ["--plugin-load-add=ha_evenkeel.so", "--ignore-db-dirs=#evenkeel"]
    if engine == "InnoDB":
        return [f"--innodb-buffer-pool-size={cache}", f"--innodb-log-file-size={log}",
                "--innodb-flush-method=O_DIRECT", "--innodb-max-dirty-pages-pct=90",
                "--innodb-io-capacity=4000", "--innodb-io-capacity-max=20000",
                "--innodb-flush-log-at-trx-commit=1", *ours, "--evenkeel-memory-size=16M",
                "--evenkeel-log-size=32M"]
    if engine == "ROCKSDB":
        # The last three make it as willing as the others: to wait for a lock, to index a text, to
        # insert a million rows in a statement.
        return ["--plugin-load-add=ha_rocksdb.so", "--ignore-db-dirs=#rocksdb",
                f"--rocksdb-block-cache-size={cache}", "--rocksdb-flush-log-at-trx-commit=1",
                "--rocksdb-use-direct-reads=ON",
                "--rocksdb-use-direct-io-for-flush-and-compaction=ON",
                "--rocksdb-max-background-jobs=2", f"--rocksdb-max-total-wal-size={log}",
                f"--rocksdb-default-cf-options={ROCKSDB_FAMILY}", "--innodb-buffer-pool-size=8M",
                "--rocksdb-lock-wait-timeout=50", "--rocksdb-strict-collation-check=OFF",
                "--rocksdb-max-row-locks=16777216"]
    return [*ours, f"--evenkeel-memory-size={cache}", f"--evenkeel-log-size={log}",
            "--evenkeel-flush-at-commit=1", "--innodb-buffer-pool-size=8M"]


class Failed(SystemExit):
    """A server, or a client of it, could not do what it was asked."""


def rocksdb_folder():
    """The folder of MyRocks for the server that is installed, or why there is none."""
    found = subprocess.run(["bash", ROOT / "scripts" / "mariadb.sh", "rocksdb"],
                           capture_output=True, text=True)
    if found.returncode == 0:
        return Path(found.stdout.strip()), None
    return None, (found.stderr.strip().splitlines() or ["scripts/mariadb.sh rocksdb failed"])[-1]


class Server:
    """One server in a directory of its own; `root` on a socket."""

    def __init__(self, base, engine, cache, folder=None, log="2G", extra=()):
        """`folder`: where the engine's library was unpacked, if not the system's."""
        self.engine, self.cache, self.folder, self.log = engine, cache, folder, log
        self.extra = extra
        self.dir = Path(base) / engine.lower()
        self.socket = self.dir / "socket"
        self.process, self.clients = None, []
        self.user = ["--user=root"] if os.getuid() == 0 else []

    def start(self):
        """Starts it and waits until it answers; the seconds that took."""
        plugins = self.dir / "plugins"
        if not (self.dir / "data" / "mysql").exists():
            plugins.mkdir(parents=True)
            subprocess.run(["mariadb-install-db", "--no-defaults", *self.user, "--skip-test-db",
                            f"--datadir={self.dir}/data", "--auth-root-authentication-method=normal"],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for library in Path("/usr/lib/mysql/plugin").glob("*.so"):
                (plugins / library.name).symlink_to(library)
            built = Path(os.environ.get("EVENKEEL_PLUGIN_DIR", ROOT / "target" / "plugin"))
            ours = plugins / "ha_evenkeel.so"
            ours.unlink(missing_ok=True)
            ours.symlink_to(built / "ha_evenkeel.so")
            for library in self.folder.glob("usr/lib/mysql/plugin/*.so") if self.folder else ():
                (plugins / library.name).unlink(missing_ok=True)
                (plugins / library.name).symlink_to(library)
        begun = time.monotonic()
        with open(self.dir / "out", "ab") as out:
            self.process = subprocess.Popen(
                ["mariadbd", "--no-defaults", *self.user, f"--datadir={self.dir}/data",
                 f"--socket={self.socket}", f"--plugin-dir={plugins}", f"--pid-file={self.dir}/pid",
                 f"--log-error={self.dir}/error.log", f"--tmpdir={self.dir}", *COMMON,
                 *options_of(self.engine, self.cache, self.log), *self.extra],
                stdout=out, stderr=out, env=self.environment())
        while not self.listens() or self.sql("select 1", check=False) is None:
            if self.process.poll() is not None:
                tail = (self.dir / "error.log").read_text(errors="replace").splitlines()[-20:]
                raise SystemExit(f"the server for {self.engine} did not start:\n" + "\n".join(tail))
            if time.monotonic() - begun > 300:
                raise SystemExit(f"the server for {self.engine} did not answer in 300 s")
            time.sleep(0.02)
        return time.monotonic() - begun

    def listens(self):
        """Asked before a client is begun: a client takes much of a processor from a server that
        recovers."""
        with socket.socket(socket.AF_UNIX) as found:
            return found.connect_ex(str(self.socket)) == 0

    def environment(self):
        """With the libraries that were unpacked beside the engine's."""
        found = os.environ.copy()
        if self.folder:
            libraries = {str(l.parent) for l in self.folder.glob("**/lib/*/lib*.so.*")}
            libraries |= {found.get("LD_LIBRARY_PATH")} - {None, ""}
            if libraries:
                found["LD_LIBRARY_PATH"] = ":".join(sorted(libraries))
        return found

    def client(self, database):
        return ["mariadb", "--no-defaults", f"--socket={self.socket}", "-uroot", "--batch",
                "--skip-column-names", f"--database={database}"]

    def sql(self, text, database="", check=True):
        """What the client prints, as rows of fields; None if it fails and `check` is off."""
        run = subprocess.run(self.client(database), input=text, text=True, capture_output=True)
        if run.returncode != 0:
            if check:
                raise Failed(f"{self.engine}: {text[:200]}: {run.stderr.strip()}")
            return None
        return [line.split("\t") for line in run.stdout.splitlines()]

    def sql_later(self, text, database=""):
        """A client at work: a process to wait for."""
        client = subprocess.Popen(self.client(database), stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.clients.append(client)
        client.stdin.write(text)
        client.stdin.close()
        return client

    def end_clients(self):
        """Those that a failure left at work."""
        for client in self.clients:
            if client.poll() is None:
                client.kill()
                client.wait()
        self.clients.clear()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def status(self, *names):
        """Status variables by name, as numbers; those that the engine lacks are left out."""
        listed = ", ".join(f"'{name}'" for name in names)
        rows = self.sql(f"show global status where variable_name in ({listed})")
        return {name: int(value) for name, value in rows}

    def dirty_share(self):
        """The part of the cache that is dirty; None of an engine without such pages."""
        dirty, all_ = {"InnoDB": ("Innodb_buffer_pool_pages_dirty", "Innodb_buffer_pool_pages_total"),
                       "EVENKEEL": ("Evenkeel_dirty_pages", "Evenkeel_pool_frames"),
                       }.get(self.engine, ("", ""))
        found = self.status(dirty, all_)
        return found[dirty] / found[all_] if found.get(all_) else None

    def written_bytes(self):
        """Bytes its process has written to storage."""
        io = Path(f"/proc/{self.process.pid}/io").read_text()
        return int(re.search(r"^write_bytes: (\d+)", io, re.M)[1])

    def peak_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"^VmHWM:\s+(\d+)", status, re.M)[1]) * 1024

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.go_on()
            self.process.terminate()
            try:
                self.process.wait(timeout=600)
            except subprocess.TimeoutExpired:
                self.kill()
