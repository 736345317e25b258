#!/usr/bin/env python3
"""Each statement in each state of an XA transaction, on InnoDB and on EVENKEEL (xa_states.py): with the binlog on, and
without one in a pool of threads. A part of a cell's name as argument runs only such cells.
"""
import sys

import xa_states
from servers import run

FAST = ["--log-bin-trust-function-creators", "--innodb-flush-log-at-trx-commit=2", "--evenkeel-flush-at-commit=2",
        "--sync-binlog=0", "--evenkeel-lock-wait-timeout=10", "--innodb-lock-wait-timeout=10"]
SERVERS = {"with-binlog": ["--log-bin=binlog", "--server-id=1", "--binlog-format=row"],
           "pool-without-binlog": ["--thread-handling=pool-of-threads", "--thread-pool-size=2"]}


def test(servers):
    for name, options in SERVERS.items():
        server = servers.server(name)
        server.start(*FAST, *options)
        server.sql("create database if not exists test")
        said, wrong = xa_states.compare(server.socket, sys.argv[1] if len(sys.argv) > 1 else "")
        print(f"{name}: {said}", flush=True)
        if wrong:
            return 1
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(run("xa states test", test))
