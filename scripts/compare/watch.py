"""What a server has used and waited for, looked at each second while it works."""

import os
import subprocess
import threading
import time
from pathlib import Path

# Waits that the engine makes itself; others are of the device, of locks, of the client.
OWN_CAUSES = ("log_space", "free_frame", "page_latch", "memtable_full", "compaction_debt", "governor")
OF_DEVICE = ("log_sync", "page_read", "device_slow")
REQUESTED, DONE = "Evenkeel_flush_requested_pages", "Evenkeel_flush_done_pages"
# Of the requested: what a checkpoint needed beyond the law, which may not excuse it.
REQUIRED = "Evenkeel_flush_reason_required_pages"
WAITS = [f"Evenkeel_wait_{cause}_us" for cause in OWN_CAUSES]
QUERY = ("show global status where variable_name in ("
         + ", ".join(f"'{name}'" for name in (REQUESTED, REQUIRED, DONE, *WAITS)) + ");\nselect 'end';\n")
TICKS = os.sysconf("SC_CLK_TCK")
# Pages of the batches that a second may find under way: asked for before it, done in it.
UNDER_WAY_PAGES = 2 * 256


class Watch(threading.Thread):
    """`with Watch(server) as watch:` keeps a sample of each second in `watch.samples`: the time,
    processor us, bytes written, and the status variables (none where the engine is not ours)."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.over, self.samples = server, threading.Event(), []

    def __enter__(self):
        # One client for all of them: to begin one costs the processor 10 ms.
        self.client = subprocess.Popen([*self.server.client(""), "--unbuffered"], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.server.clients.append(self.client)
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
        self.client.stdin.close()
        self.client.wait()

    def run(self):
        while True:
            self.samples.append(self.sample())
            if self.over.wait(1):
                return

    def sample(self):
        self.client.stdin.write(QUERY)
        self.client.stdin.flush()
        status = {}
        while (line := self.client.stdout.readline()) not in ("end\n", ""):
            name, value = line.split("\t")
            status[name] = int(value)
        fields = Path(f"/proc/{self.server.process.pid}/stat").read_text().rsplit(")", 1)[1]
        utime, stime = fields.split()[11:13]
        cpu = (int(utime) + int(stime)) / TICKS * 1e6
        return time.monotonic(), cpu, self.server.written_bytes(), status

    def grown(self):
        """What each interval between two samples added: (from, to, CPU us, bytes, variables)."""
        return [(a[0], b[0], b[1] - a[1], b[2] - a[2],
                 {name: b[3][name] - a[3].get(name, 0) for name in b[3]})
                for a, b in zip(self.samples, self.samples[1:])]

    def per_row(self, rows, window):
        """CPU and bytes for a row in the last `window` seconds / in the first."""
        found = []
        for which in (2, 3):
            used = [interval[which] for interval in self.grown()]
            first = sum(used[:window]) / max(sum(rows[:window]), 1)
            last = sum(used[-window:]) / max(sum(rows[-window:]), 1)
            found.append(last / first if first else None)
        return found

    def own_share(self, begun, seconds, clients):
        """The highest share of the clients' time that waits of our own causes took in any of these
        seconds, counted from `begun`."""
        shares = [sum(grown.get(name, 0) for name in WAITS) / ((end - start) * clients * 1e6)
                  for start, end, _, _, grown in self.grown()
                  if any(start < begun + i + 1 and end > begun + i for i in seconds)]
        return max(shares, default=0.0)

    def flushed_too_much(self):
        """(asked, done) of the seconds that flushed more than 1.1 x asked + 64 pages; asked: by the
        law, or for frames that are wanted."""
        found, behind = [], 0
        for *_, grown in self.grown():
            asked, done = grown.get(REQUESTED, 0) - grown.get(REQUIRED, 0), grown.get(DONE, 0)
            allowed = asked + min(behind, UNDER_WAY_PAGES)
            behind = max(behind + asked - done, 0)
            if done > 1.1 * allowed + 64:
                found.append((asked, done))
        return found


def longest_waits(server):
    """Milliseconds by cause since the server's start; nothing of an engine that is not ours."""
    if server.engine != "EVENKEEL":
        return {}
    return {cause: int(us) / 1000 for cause, us in server.sql(
        "select cause, longest_us from information_schema.evenkeel_waits")}


def of_device(before, after):
    """The longest single wait for the device between two looks at `longest_waits`: those that did
    not grow were of earlier."""
    return max((after[c] for c in OF_DEVICE if after.get(c, 0) > before.get(c, 0)), default=0.0)
