#!/usr/bin/env python3
"""ALTER TABLE that copies, EVENKEEL beside InnoDB: a table with three secondary indexes is copied in the
order of its primary key (`ENGINE=...`), and into another primary key whose order is not that of the old.

    python3 scripts/compare/alter_copy.py [--rows N] [--repeats N] [--cache SIZE] [--dir DIR]

Prints the seconds of each run, the medians and their ratio. The servers are set as `server.py` says;
one of them runs at a time."""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from server import Server  # noqa: E402

TABLE = """create table t (id int primary key, a int not null, b bigint not null, c varchar(60) not null,
    d datetime not null, key (a), key (d, a), key (c)) engine={engine}"""
# As many at a time as a careful user would load.
ROWS = """insert into t select seq, (seq * 7919) % 1000003, (seq * 104729) % 2147483647,
    concat('customer ', (seq * 31337) % 2000003, ' of somewhere'),
    '2020-01-01' + interval (seq * 613) % 94608000 second from seq_{first}_to_{last}"""
CHANGES = [("same", "the order of the key is kept", "alter table t engine={engine}, algorithm=copy"),
           ("other", "another primary key",
            "alter table t drop primary key, add primary key (b, id), algorithm=copy")]


def measured(engine, options):
    """Seconds of each change, run by run."""
    found = {name: [] for name, *_ in CHANGES}
    with tempfile.TemporaryDirectory(dir=options.dir) as base:
        server = Server(base, engine, options.cache, log="1G")
        try:
            server.start()
            for _ in range(options.repeats):
                server.sql("create or replace database x")
                server.sql(TABLE.format(engine=engine), "x")
                for first in range(1, options.rows + 1, 100_000):
                    last = min(first + 99_999, options.rows)
                    server.sql(ROWS.format(first=first, last=last), "x")
                for name, _, change in CHANGES:
                    begun = time.monotonic()
                    server.sql(change.format(engine=engine), "x")
                    took = time.monotonic() - begun
                    found[name].append(took)
                    count = int(server.sql("select count(*) from t force index (a)", "x")[0][0])
                    assert count == options.rows, count
                    print(f"{engine} {name}: {took:.2f} s", flush=True)
        finally:
            server.stop()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cache", default="256M")
    parser.add_argument("--engines", default="EVENKEEL,InnoDB")
    parser.add_argument("--dir", default=os.environ.get("TMPDIR", "/tmp"))
    options = parser.parse_args()
    all_ = {engine: measured(engine, options) for engine in options.engines.split(",")}
    for name, what, _ in CHANGES:
        medians = {engine: statistics.median(found[name]) for engine, found in all_.items()}
        line = ", ".join(f"{engine} {median:.2f} s" for engine, median in medians.items())
        if len(medians) == 2:
            ours, theirs = medians.values()
            line += f"; {theirs / ours:.2f} times as fast"
        print(f"{what}: {line}")


if __name__ == "__main__":
    main()
