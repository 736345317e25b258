#!/usr/bin/env python3
"""The insert benchmark in a container of 512 MiB, with data beyond that: the system must kill nobody.

scripts/container_memory.py BINARY [BYTES [ROWS [DIR]]]: BINARY is the command `evenkeel`, with the automatic memory
size; BYTES is the limit (512M), ROWS how many rows are loaded (6M), DIR where the store lies (a directory on a disk: a
file system in memory counts against the limit). It makes a control group (version 1 or 2), which needs root, and says
so (exit code 3) where that is refused. Prints the most memory that the group had, how often it reached its limit, and
the rates. Exit code 1: a process was killed, the benchmark failed, or the data were smaller than the limit.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ONE, TWO = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")
NAME = f"evenkeel-memory-{os.getpid()}"


def make(limit):
    """A group with this limit of memory: its directory, and the files with its most and its count of kills."""
    if (ONE / "cgroup.procs").exists():
        group = ONE / NAME
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit))
        # Swapped memory would hide what a container without swap does.
        try:
            (group / "memory.swappiness").write_text("0")
        except OSError:
            pass
        return group, group / "memory.max_usage_in_bytes", group / "memory.oom_control"
    group = TWO / NAME
    group.mkdir()
    (group / "memory.max").write_text(str(limit))
    if (group / "memory.swap.max").exists():
        (group / "memory.swap.max").write_text("0")
    return group, group / "memory.peak", group / "memory.events"


def kills(path):
    """How many processes of the group the system has killed; none if it does not tell."""
    counts = dict(line.split() for line in path.read_text().splitlines() if len(line.split()) == 2)
    return int(counts["oom_kill"]) if "oom_kill" in counts else None


def run(binary, limit, rows, where):
    try:
        group, most, events = make(limit)
    except OSError as error:
        print(f"no control group can be made here: {error}")
        return 3
    store = pathlib.Path(tempfile.mkdtemp(dir=where))
    try:
        command = [binary, "bench", "--dir", str(store / "db"), "--memory", "0", "--rows", f"{rows},200k",
                   "--durability", "2", "--steps", "l.i0,l.x,l.i1,q200.1", "--json", str(store / "run.json")]
        enter = lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
        done = subprocess.run(command, preexec_fn=enter, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        data = sum(file.stat().st_blocks * 512 for file in (store / "db").rglob("*") if file.is_file())
        peak = most.read_text().strip() if most.exists() else "?"
        killed = kills(events)
        print(f"exit code {done.returncode}, killed {killed}, most {int(peak) >> 20} MiB of {limit >> 20}, "
              f"files {data >> 20} MiB")
        if done.returncode:
            print(done.stderr[-2000:])
            return 1
        for step in json.loads((store / "run.json").read_text())["steps"]:
            print(f"  {step['name']}: {step['seconds']:.1f} s")
        if killed or data < limit:
            return 1
        return 0
    finally:
        shutil.rmtree(store)
        group.rmdir()


def size(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1]] if text[-1] in units else int(text)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    args = dict(enumerate(sys.argv))
    sys.exit(run(args[1], size(args.get(2, "512M")), args.get(3, "6M"), args.get(4)))
