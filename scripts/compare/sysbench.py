"""sysbench on one server: a run counts only without ignored errors and reconnects."""

import re
import subprocess
import threading
import time

from evenness import ratios
from server import Failed


# Of a cache that is called mostly dirty.
DIRTY_SHARE = 0.6


def command(server, test, sizes, extra):
    """`test`: one of sysbench's own, or a script; what this takes besides is in `sizes["flags"]`."""
    script = test if test.endswith(".lua") else f"oltp_{test}"
    return ["sysbench", script, "--db-driver=mysql", f"--mysql-socket={server.socket}",
            "--mysql-user=root", "--mysql-db=sbtest", f"--mysql_storage_engine={server.engine}",
            f"--tables={sizes['tables']}", f"--table-size={sizes['rows']}", "--rand-type=uniform",
            *sizes.get("flags", ()), *extra]


def prepare(server, sizes):
    server.sql("create database if not exists sbtest")
    made = subprocess.run(command(server, "read_write", sizes, ["--threads=2", "prepare"]),
                          capture_output=True, text=True)
    if made.returncode != 0:
        raise Failed(f"sysbench prepare on {server.engine}: {made.stdout[-2000:]}{made.stderr}")


class Run:
    """A run under way; `result` waits for its end."""

    def __init__(self, server, test, sizes, seconds, threads, rate=None):
        """`rate`: transactions per second, begun at random times; they count from those times."""
        self.server, self.test = server, test
        paced = [f"--rate={max(int(rate), 1)}", "--histogram=on"] if rate else []
        self.written = server.written_bytes()
        self.process = subprocess.Popen(
            command(server, test, sizes, [f"--threads={threads}", f"--time={seconds}",
                                          "--report-interval=1", *paced,
                                          "--percentile=99", "run"]),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        server.clients.append(self.process)
        # When its first second began; known from the first report on.
        self.begun, self.lines = None, []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if self.begun is None and line.startswith("[ 1s ]"):
                self.begun = time.monotonic() - 1
            self.lines.append(line)

    def age(self):
        """Seconds since its beginning."""
        return time.monotonic() - self.begun if self.begun else 0

    def wait(self, seconds):
        """Until so long after its beginning; false if it has ended before."""
        while self.process.poll() is None:
            left = (self.begun + seconds if self.begun else time.monotonic() + 1) - time.monotonic()
            if left <= 0:
                return True
            time.sleep(min(left, 0.1))
        return False

    def end(self):
        """Cuts it off."""
        self.process.terminate()
        return self.result(may_fail=True)

    def result(self, may_fail=False):
        self.process.wait()
        self.reader.join()
        text = "".join(self.lines)
        found = re.search(r"transactions:\s+(\d+)\s+\(([\d.]+) per sec", text)
        if not found:
            if may_fail:
                return {"per_second": seconds_of(text)}
            raise Failed(f"sysbench {self.test} on {self.server.engine}:\n{text[-3000:]}")
        number = lambda pattern: float(re.search(pattern, text)[1])
        per_second = seconds_of(text)
        transactions = int(found[1])
        even = ratios(per_second)
        return {
            "tps": float(found[2]),
            "errors": int(number(r"ignored errors:\s+(\d+)") + number(r"reconnects:\s+(\d+)")),
            "p99_ms": number(r"99th percentile:\s+([\d.]+)"),
            "p99_9_ms": in_histogram(text, 0.999),
            "longest": number(r"max:\s+([\d.]+)"),
            "worst": even["worst"],
            "p5": even["p5"],
            "written_bytes_per_tx":
                (self.server.written_bytes() - self.written) / max(transactions, 1),
            "per_second": per_second,
        }


def in_histogram(text, share):
    """The bucket that holds a share of a paced run's transactions."""
    buckets = [(float(value), int(count))
               for value, count in re.findall(r"^\s*([\d.]+) \|\**\s+(\d+)$", text, re.M)]
    left = sum(count for _, count in buckets) * share
    for value, count in buckets:
        left -= count
        if left <= 0:
            return value
    return None


def seconds_of(text):
    return [float(tps) for tps in re.findall(r"^\[ \d+s \].*? tps: ([\d.]+)", text, re.M)]


def fill(server, sizes, seconds):
    """Reads all tables and updates random rows until most of the cache is dirty, so long at most."""
    server.sql("".join(f"select max(length(pad)) from sbtest{n};"
                       for n in range(1, sizes["tables"] + 1)), "sbtest")
    load = Run(server, "update_non_index", sizes, seconds, 16)
    while load.wait(load.age() + 1) and (server.dirty_share() or 0) < DIRTY_SHARE:
        pass
    load.end()


def run(server, test, sizes, seconds, threads=16, rate=None):
    return Run(server, test, sizes, seconds, threads, rate).result()
