#!/usr/bin/env python3
"""Several sessions of one server, driven by a script, so that what they print can be compared.

usage: sessions.py SOCKET ENGINE SCRIPT

Lines of a script, for sessions of any name:
  a: statement;      runs it and prints what it gives; it must end within LIMIT seconds
  a> statement;      begins it; it must still be waiting after a moment (`still_waits` says which)
  a~ statement;      begins it; it may wait or not, which is printed
  a<                 what that gave, within LIMIT seconds; nothing if it did not wait
  each NAME x|y|z    the rest of the script, once for each, with @NAME@ replaced
  kill query a       KILL QUERY, or KILL CONNECTION with `kill connection a`
  quit a             the session's client ends
  sleep SECONDS
  # comment
@ENGINE@ in a statement is the engine. Each session is a client of its own in a pipe, with the
database `x` and the engine as its default; errors are printed by number.
"""
import os
import re
import select
import subprocess
import sys
import time

LIMIT = 120.0
WAITS = 0.4


class Session:
    def __init__(self, name, socket, engine):
        self.name, self.count, self.waiting = name, 0, None
        command = ["mariadb", "--no-defaults", "--socket=" + socket, "-uroot", "--batch",
                   "--unbuffered", "--force", "--skip-reconnect", "--database=x"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, bufsize=0)
        self.buffer = b""
        self.run("set default_storage_engine=%s" % engine)
        self.id = self.run("select connection_id() as ''").strip().split()[-1]

    def begin(self, statement):
        self.count += 1
        self.waiting = b"--done %d--" % self.count
        text = "%s;\nselect '%s' as '';\n" % (statement.rstrip("; \n"), self.waiting.decode())
        try:
            self.process.stdin.write(text.encode())
        except BrokenPipeError:
            pass

    def poll(self, seconds):
        """What the statement gave, or None if it has not ended."""
        end = time.monotonic() + seconds
        while self.waiting not in self.buffer:
            left = end - time.monotonic()
            if left <= 0:
                return None
            if not select.select([self.process.stdout], [], [], left)[0]:
                return None
            some = os.read(self.process.stdout.fileno(), 1 << 16)
            if not some:
                break
            self.buffer += some
        text, _, rest = self.buffer.partition(self.waiting)
        self.buffer, self.waiting = rest.lstrip(b"\n"), None
        return text.decode(errors="replace").strip("\n")

    def still_waits(self, control):
        """What a statement gave that was begun, or None if it waits. On a slow or busy machine one
        that does not wait takes its time too: until `control` has done what takes longer than any
        of the scripts' statements, 100 ms of computing and 20 commits where the machine is quick."""
        text = self.poll(WAITS)
        if text is None:
            control.run("do benchmark(400000, md5('x'))")
            for n in range(20):
                control.run("replace into control.yardstick values (1, %d)" % n)
            text = self.poll(0)
        return text

    def run(self, statement):
        self.begin(statement)
        text = self.poll(LIMIT)
        if text is None:
            raise SystemExit("%s hangs: %s" % (self.name, statement))
        return text


def show(name, text):
    for line in text.splitlines():
        line = re.sub(r"^ERROR (\d+).*", r"error \1", line)
        if line.strip() and not line.startswith(("--------------", "Connection id")):
            print("%s= %s" % (name, line))


def lines_of(script):
    lines = [line.strip() for line in open(script, encoding="utf-8")]
    lines = [line for line in lines if line and not line.startswith("#")]
    for at, line in enumerate(lines):
        if line.startswith("each "):
            _, name, values = line.split(None, 2)
            for value in values.split("|"):
                yield "== " + value
                for rest in lines[at + 1:]:
                    yield rest.replace("@%s@" % name, value)
            return
        yield line


def main():
    socket, engine, script = sys.argv[1:4]
    sessions = {}

    def session(name):
        if name not in sessions:
            sessions[name] = Session(name, socket, engine)
        return sessions[name]

    control = Session("control", socket, engine)
    control.run("create database if not exists control")
    control.run("create or replace table control.yardstick (id int primary key, n int)")
    for line in lines_of(script):
        line = line.replace("@ENGINE@", engine)
        if not line.startswith(("sleep", "kill")):
            print(line.replace(engine, "@ENGINE@"))
        words = line.split()
        if words[0] == "==":
            pass
        elif words[0] == "sleep":
            time.sleep(float(words[1]))
        elif words[0] == "kill":
            began = time.monotonic()
            victim = session(words[2])
            control.run("kill %s %s" % (words[1], victim.id))
            if victim.waiting is not None:
                text = victim.poll(LIMIT)
                if text is None:
                    raise SystemExit("%s hangs after KILL" % victim.name)
                show(victim.name, text)
                print("%s: ended %s" % (line, "soon" if time.monotonic() - began < 10 else "late"))
        elif words[0] == "quit":
            victim = sessions.pop(words[1])
            victim.process.stdin.close()
            victim.process.wait(LIMIT)
        elif line[1:2] == "<":
            one = session(line[0])
            text = one.poll(LIMIT) if one.waiting is not None else ""
            if text is None:
                raise SystemExit("%s hangs" % one.name)
            show(one.name, text)
        else:
            name, how, statement = re.match(r"(\w+)([:>~])\s*(.*)", line).groups()
            one = session(name)
            if one.waiting is not None:
                # In a session that waits a statement comes after what it waits for.
                text = one.poll(0 if how == "~" else LIMIT)
                if text is None and how == "~":
                    print("%s still waits, left out" % name)
                    continue
                if text is None:
                    raise SystemExit("%s hangs" % name)
                show(name, text)
            if how == ":":
                show(name, one.run(statement))
            else:
                one.begin(statement)
                text = one.still_waits(control)
                if text is None and how == "~":
                    print("%s waits" % name)
                elif text is not None:
                    show(name, text)
                    if how == ">":
                        print("%s did not wait" % name)
        sys.stdout.flush()
    for one in list(sessions.values()) + [control]:
        one.process.stdin.close()
        try:
            one.process.wait(5)
        except subprocess.TimeoutExpired:
            one.process.kill()


main()
