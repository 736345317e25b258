"""Clients of a server that is killed, with transactions of their own in two phases (XA).

    work(SOCKET, DIR, ROUND)          until the server is gone; returns what each client was in then
    check(SOCKET, DIR, DECIDE_ALL)    after the restart; returns how many were prepared, in doubt and left so

Each client notes in DIR, a file of its own, what it is about to do and what the server has said. It
changes rows of its own in two tables, `one` and `two`, alike: a new row, and a change of an older one,
which no undecided transaction has. Most are decided in the connection that has prepared them, some by a
later one, some without being prepared.

`check` compares XA RECOVER with what was said: there are all that were said to be prepared and not said
to be decided, none that was said to be decided or not asked to be prepared; what the server was asked and
has not answered may be either. Then it commits and rolls back what is there, but leaves some (not with
DECIDE_ALL) prepared for the next round, and compares the rows by each index.
"""
import os
import random
import time

from client_process import Connection, Gone
from servers import Problem, beside

CLIENTS = 5
ROUND_IDS = 1_000_000
# What a client is in when the server is killed: the words of its notes.
ASKED = {"prepare": "prepared", "commit": "committed", "rollback": "rolled-back", "one-phase": "committed"}
# No such XID: the connection that has prepared it is not gone yet.
NOT_YET = "ERROR 1397"


class Client:
    def __init__(self, socket, directory, number, round_number):
        self.socket, self.name = socket, "%d-%d" % (round_number, number)
        self.base = round_number * ROUND_IDS + number * (ROUND_IDS // 10)
        self.random = random.Random(self.base)
        self.notes = open(os.path.join(directory, self.name), "w", buffering=1)
        self.state = "idle"
        # Rows that are committed and of no undecided transaction; transactions for a later connection.
        self.settled, self.waiting = [], []

    def note(self, xid, word, *rest):
        self.state = word
        print(xid, word, *rest, file=self.notes)

    def decide(self, connection, xid, row, commit, later=False):
        word = "commit" if commit else "rollback"
        self.note(xid, word)
        for _ in range(600):
            lines = connection.run("xa %s '%s'" % (word, xid))
            if not lines:
                break
            if not (later and lines[0].startswith(NOT_YET)):
                raise Problem("%s: %s" % (xid, lines))
            time.sleep(0.02)
        else:
            raise Problem("%s is unknown" % xid)
        self.note(xid, ASKED[word])
        if commit:
            self.settled.append(row)

    def transaction(self, connection, n):
        """One transaction; true: the connection is to go, another one decides."""
        row, xid = self.base + n, "x%s-%d" % (self.name, n)
        older = self.settled.pop(0) if n % 3 == 0 and self.settled else None
        work = ["xa start '%s'" % xid]
        for table in ("one", "two"):
            work.append("insert into %s values (%d, %d, repeat('x', %d))" % (table, row, n, n % 200))
            if older and n % 4 == 0:
                work.append("delete from %s where id = %d" % (table, older))
            elif older:
                work.append("update %s set k = %d where id = %d" % (table, n, older))
        change = "-" if not older else "%s%d" % ("-" if n % 4 == 0 else "+", older)
        self.note(xid, "active", row, n, change)
        connection.do(";\n".join(work))
        connection.do("xa end '%s'" % xid)
        way = self.random.randrange(8)
        if way == 0:
            self.note(xid, "rollback")
            connection.do("xa rollback '%s'" % xid)
            self.note(xid, "rolled-back")
            return False
        if way == 1:
            self.note(xid, "one-phase")
            connection.do("xa commit '%s' one phase" % xid)
            self.note(xid, "committed")
            self.settled.append(row)
            return False
        self.note(xid, "prepare")
        connection.do("xa prepare '%s'" % xid)
        self.note(xid, "prepared")
        if way == 2:
            self.waiting.append((xid, row))
            return True
        self.decide(connection, xid, row, way != 3)
        return False

    def run(self):
        connection = Connection(self.socket)
        try:
            for n in range(1, 50_000):
                if self.transaction(connection, n):
                    connection.end()
                    connection = Connection(self.socket)
                elif len(self.waiting) > 2:
                    xid, row = self.waiting.pop(0)
                    self.decide(connection, xid, row, self.random.randrange(3) > 0, later=True)
        except Gone:
            pass
        finally:
            connection.end()
            self.notes.close()


def work(socket, directory, round_number):
    clients = [Client(socket, directory, number, round_number) for number in range(CLIENTS)]
    for running in [beside(client.run) for client in clients]:
        running.result()
    # And what waits for a later connection.
    return [client.state for client in clients] + ["prepared" for client in clients for _ in client.waiting]


def notes(directory):
    """What was said of each transaction, in the order of each client: its last word and its work."""
    known = {}
    names = sorted(os.listdir(directory), key=lambda name: [int(n) for n in name.split("-")])
    for name in names:
        for line in open(os.path.join(directory, name)):
            xid, word, *rest = line.split()
            known.setdefault(xid, {"file": name, "work": rest})["word"] = word
    return known


def expected(known, decided_at):
    """The rows that all committed ones have left, in the order in which they were decided."""
    rows = {}
    committed = [xid for xid in sorted(decided_at, key=decided_at.get) if known[xid]["word"] == "committed"]
    for xid in committed:
        row, n, change = known[xid]["work"]
        rows[int(row)] = int(n)
        if change.startswith("+"):
            rows[int(change[1:])] = int(n)
        elif change != "-":
            del rows[int(change[1:])]
    return rows


def order(directory, known):
    """When each was decided; rows are each of one client, whose notes are in order."""
    at = {}
    for name in sorted({entry["file"] for entry in known.values()},
                       key=lambda name: [int(n) for n in name.split("-")]):
        for line in open(os.path.join(directory, name)):
            xid, word = line.split()[:2]
            if word in ("committed", "rolled-back"):
                at[xid] = len(at)
    return at


def rows_of(connection, table, index):
    lines = connection.run("select id, k from %s force index (%s) where id >= 0 and k >= 0" % (table, index))
    pairs = [tuple(int(n) for n in line.split("\t")) for line in lines]
    if len(dict(pairs)) != len(pairs):
        raise Problem("%s has a row twice in index %s" % (table, index))
    return dict(pairs)


def check(socket, directory, decide_all):
    with Connection(socket) as connection:
        return check_over(connection, directory, decide_all)


def check_over(connection, directory, decide_all):
    known = notes(directory)
    found = [line.split("\t")[3] for line in connection.run("xa recover")]
    if len(set(found)) != len(found):
        raise Problem("XA RECOVER has one twice")
    found = set(found)
    count = {"found": len(found), "in doubt": 0, "left": 0}
    # With the binlog, COMMIT ONE PHASE is two phases within the server, under the user's XID (any engine).
    within = "one-phase" if connection.run("select @@log_bin") == ["1"] else None
    present = rows_of(connection, "one", "primary")
    for xid, entry in known.items():
        word = entry["word"]
        must = word == "prepared"
        may = must or word in ("prepare", "commit", "rollback", within)
        if must and xid not in found:
            raise Problem("%s is lost; it was said to be prepared" % xid)
        if xid in found and not may:
            raise Problem("%s is prepared; the last that was said of it is %s" % (xid, word))
        if word in ("prepare", "commit", "rollback", "one-phase"):
            count["in doubt"] += 1
        # What was not answered and is not prepared has ended; how, its own row says.
        if word in ("active", *ASKED) and xid not in found:
            ended = "committed" if int(entry["work"][0]) in present else "rolled-back"
            if ended == "committed" and word not in ("commit", "one-phase"):
                raise Problem("%s is committed; it was at %s" % (xid, word))
            if ended == "rolled-back" and word == "commit":
                raise Problem("%s is gone; it was prepared and to be committed" % xid)
            say(directory, entry, xid, ended)
    if found - set(known):
        raise Problem("prepared, and nobody's: %s" % (found - set(known)))
    for n, xid in enumerate(sorted(found)):
        if n % 3 == 2 and not decide_all:
            count["left"] += 1
            say(directory, known[xid], xid, "prepared")
            continue
        word = "rollback" if n % 3 == 1 else "commit"
        connection.do("xa %s '%s'" % (word, xid))
        say(directory, known[xid], xid, ASKED[word])
    rows = expected(known, order(directory, known))
    for table in ("one", "two"):
        for index in ("primary", "by_k"):
            there = rows_of(connection, table, index)
            wrong = sorted(set(there.items()) ^ set(rows.items()))
            if wrong:
                raise Problem("%s by %s: %d rows for %d, differ: %s"
                        % (table, index, len(there), len(rows), wrong[:10]))
    return {**count, "rows": len(rows)}


def say(directory, entry, xid, word):
    entry["word"] = word
    with open(os.path.join(directory, entry["file"]), "a") as file:
        print(xid, word, file=file)
