#!/usr/bin/env python3
"""The longest value that the server lets through, 1 GiB (max_allowed_packet is no more): made in the server, sent by a
client, read by MD5 there and by a client, changed and rolled back, deleted; then its space comes back. The most
memory of the server is compared with that of the same on Aria: what the engine adds is bounded by what it may have
(64 MiB), however long the value is.

EVENKEEL_BLOB_BYTES (1 GiB) is the length.
"""
import hashlib
import os
import shutil
import subprocess
import sys

from servers import Problem, run, wait_until

BYTES = int(os.environ.get("EVENKEEL_BLOB_BYTES", "1073741824"))
# A statement, and a row, is the value and some words; a client takes no longer ones than the server.
SENT = BYTES - 100
OPTIONS = ["--max-allowed-packet=1G", "--tmp-memory-table-size=16M", "--net-read-timeout=600",
           "--net-write-timeout=600"]
# A step of a client.
SECONDS = 900
# Its memory, the log's buffer, what threads and the allocator have, in MiB: no copy of a value.
ADDED_MOST = 192
# No page or block has the length of the text's period: two of them that change places are seen.
PERIOD = "".join(hashlib.sha256(b"%d" % n).hexdigest() for n in range(128))[:8191].encode()


def text(left):
    while left > 0:
        yield (PERIOD * 128)[:min(left, 128 * len(PERIOD))]
        left -= 128 * len(PERIOD)


def md5(pieces):
    whole = hashlib.md5()
    for piece in pieces:
        whole.update(piece)
    return whole.hexdigest()


def equal(what, found, wanted):
    if found != wanted:
        raise Problem(f"{what}: {found}, not {wanted}")


class Through:
    """The value through one engine."""

    def __init__(self, servers, engine):
        self.engine, self.server = engine, servers.server(engine)
        self.peak, self.steps = 0, ""

    def client(self):
        return self.server.client("--max-allowed-packet=1G", "--quick", "--raw", "--batch", "--skip-column-names",
                                  database="test")

    def ask(self, statements):
        try:
            done = subprocess.run(self.client(), input=statements, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise Problem(f"no answer: {statements[:100]}") from None
        if done.returncode:
            raise Problem(f"client: {done.stderr}")
        return done.stdout.rstrip("\n")

    def send(self):
        """The value in a client's statement."""
        client = subprocess.Popen(["timeout", str(SECONDS), *self.client()], stdin=subprocess.PIPE)
        with client.stdin as pipe:
            pipe.write(b"insert into b values (2, 2, '")
            for piece in text(SENT):
                pipe.write(piece)
            pipe.write(b"');\n")
        if client.wait():
            raise Problem(f"client: {client.returncode}")

    def fetch(self):
        """The MD5 of the value at a client."""
        client = subprocess.Popen(["timeout", str(SECONDS), *self.client(), "-e", "select doc from b where id = 2"],
                                  stdout=subprocess.PIPE)
        whole, left = hashlib.md5(), SENT
        while chunk := client.stdout.read(1 << 20):
            # Behind it is the end of its line.
            whole.update(chunk[:left])
            left -= min(left, len(chunk))
        if client.wait():
            raise Problem(f"client: {client.returncode}")
        return whole.hexdigest() if left == 0 else f"{left} bytes are missing"

    def memory(self, step):
        """The most until now, MiB."""
        self.peak = self.server.memory("VmHWM") // 1024
        self.steps += f" {step} {self.peak}"

    def taken(self):
        """KiB that the engine's pages and runs take."""
        folders = [str(self.server.data / "#evenkeel" / part) for part in ("pages", "runs")]
        said = subprocess.run(["du", "-sk", *folders], capture_output=True, text=True).stdout
        return sum(int(line.split()[0]) for line in said.splitlines())

    def go(self):
        self.server.start(*OPTIONS)
        self.server.sql("create database if not exists test")
        self.ask(f"create table b (id int primary key, n int, doc longblob, key (n)) engine={self.engine}")
        before = self.taken() if self.engine == "evenkeel" else 0
        self.goes_in()
        self.changes()
        print(f"MiB on {self.engine}, at most until then:{self.steps}", flush=True)
        self.ask("delete from b")
        if self.engine == "evenkeel":
            self.gives_space_back(before)
        self.server.stop()
        shutil.rmtree(self.server.folder)

    def goes_in(self):
        # The parts together are no longer than a packet may be.
        period = PERIOD.decode()
        self.ask(f"insert into b values (1, 1, concat(repeat('{period}', {BYTES // len(PERIOD)}), "
                 f"left('{period}', {BYTES % len(PERIOD)})))")
        self.memory("insert")
        equal("length", self.ask("select length(doc) from b where id = 1"), str(BYTES))
        equal("MD5 in the server", self.ask("select md5(doc) from b where n = 1"), md5(text(BYTES)))
        self.memory("reads")
        self.send()
        self.memory("sent")
        sent = md5(text(SENT))
        equal("MD5 of what a client sent", self.ask("select md5(doc) from b where id = 2"), sent)
        equal("MD5 at a client", self.fetch(), sent)
        self.memory("to a client")

    def changes(self):
        """A change of another column, and one that is taken back."""
        self.ask("update b set n = n + 10")
        self.memory("update")
        # Aria does the same work and takes nothing back.
        then = md5(text(BYTES)) if self.engine == "evenkeel" else md5(b"r" * size for size in pieces(BYTES))
        equal("in the transaction, and behind it", self.ask(
            f"begin; update b set doc = repeat('r', {BYTES}) where id = 1; "
            "select left(doc, 3), length(doc) from b where id = 1; rollback; select md5(doc) from b where n = 11"),
              f"rrr\t{BYTES}\n{then}")
        self.memory("rollback")
        equal("check", self.ask("check table b").split("\t")[-1], "OK")
        self.memory("check")

    def gives_space_back(self, before):
        most, held = before + 64 * 1024 + BYTES // 1024 // 16, self.taken()
        wait_until(lambda: self.taken() <= most, 120)
        if self.taken() > most:
            raise Problem(f"{self.taken()} KiB are left of {held}, more than {most}")
        print(f"space: {before} KiB before, {held} after DELETE, {self.taken()} soon", flush=True)


def pieces(size):
    """Lengths of a mebibyte at most, `size` together."""
    return [1 << 20] * (size >> 20) + [size % (1 << 20)]


def test(servers):
    peaks = []
    for engine in ("aria", "evenkeel"):
        through = Through(servers, engine)
        through.go()
        peaks.append(through.peak)
    aria, ours = peaks
    print(f"{BYTES} bytes through SQL; at most {ours} MiB of memory, {aria} on Aria", flush=True)
    if ours - aria > ADDED_MOST:
        raise Problem(f"the engine adds {ours - aria} MiB, more than {ADDED_MOST}")


if __name__ == "__main__":
    sys.exit(run("large blob test", test))
