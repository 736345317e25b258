"""Clients whose transactions change tables of two engines, InnoDB's and EVENKEEL's, on a server that is killed.

    work(SOCKET, DIR, ROUND, SEED, CLIENTS, MODE)   until the server is gone, or DIR/stop is there
    check(SOCKET, DIR, MODE)                        after the restart of that server
    replica(SOCKET, DIR, DECIDES)                   after the restart of its replica
    syncs(SOCKET)                                   syncs of EVENKEEL's log for a hundred commits

MODE is binlog, tc-log (there is no binlog) or unlogged (sql_log_bin=0).
Each client notes in DIR, in a file of its own, what it is about to commit, and that the server has said OK.

`check` wants in our tables all that was acknowledged, whatever the mode, and nothing that nobody has begun.
With the binlog both engines agree about every transaction. Without it the server decides nothing after a crash:
what InnoDB has lost and what is in one engine only is counted. `replica` wants what its position says, and no
more: in both engines if what it applies is in its binlog (DECIDES: binlog), else (nobody) in ours. Both return
their counts.
"""
import collections
import os
import random

from client_process import Connection, Gone
from servers import Problem, beside

# How a transaction uses the two engines. A server takes them in the opposite order of their first use.
WAYS = ("innodb first", "ours first", "trigger", "ours alone", "one phase")
ROUND_IDS = 10_000_000


def statements(way, row, n):
    insert = "insert into %s values (%d, %d, repeat('x', %d))"
    pad = n % 300
    innodb, ours = [insert % (table, row, n, pad) for table in ("i", "e")]
    if way == "innodb first":
        return ["begin", innodb, ours, "commit"]
    if way == "ours first":
        return ["begin", ours, innodb, "commit"]
    if way == "trigger":
        return [insert % ("et", row, n, pad)]
    if way == "ours alone":
        return [ours]
    xid = "'x%d'" % row
    return ["xa start " + xid, innodb, ours, "xa end " + xid, "xa commit %s one phase" % xid]


class Client:
    def __init__(self, socket, directory, round_number, number, seed, mode):
        self.base = round_number * ROUND_IDS + number * (ROUND_IDS // 10)
        self.random = random.Random("%s-%d" % (seed, self.base))
        self.stop = os.path.join(directory, "stop")
        self.notes = open(os.path.join(directory, "%d-%d" % (round_number, number)), "w", buffering=1)
        self.socket, self.mode = socket, mode

    def run(self):
        try:
            with Connection(self.socket) as connection, self.notes:
                self.use(connection)
        except Gone:
            pass

    def use(self, connection):
        if self.mode == "unlogged":
            connection.do("set sql_log_bin = 0")
        for n in range(1, ROUND_IDS // 10):
            if os.path.exists(self.stop):
                break
            way = self.random.choice(WAYS)
            print(self.base + n, "begun", way.replace(" ", "-"), file=self.notes)
            lines = connection.run(";\n".join(statements(way, self.base + n, n)) + ";\nselect @@last_gtid")
            if len(lines) > 1:
                raise Problem("%s: %s" % (way, lines))
            # Without a binlog the answer is an empty line.
            print(self.base + n, "acknowledged", *lines, file=self.notes)


def work(socket, directory, round_number, seed, clients, mode):
    clients = [Client(socket, directory, round_number, number, seed, mode) for number in range(clients)]
    for running in [beside(client.run) for client in clients]:
        running.result()


class Record:
    """What the clients have noted: how each transaction was begun, its place in the binlog if it was
    acknowledged."""

    def __init__(self, directory):
        self.ways, self.places = {}, {}
        for name in os.listdir(directory):
            if name == "stop":
                continue
            for line in open(os.path.join(directory, name)):
                # The last one may be cut off.
                words = line.split(" ") if line.endswith("\n") else []
                if words[1:2] == ["begun"]:
                    self.ways[int(words[0])] = words[2].strip()
                elif words[1:2] == ["acknowledged"]:
                    place = words[2].strip() if len(words) > 2 else ""
                    self.places[int(words[0])] = int(place.split("-")[2]) if place else 0


def some(rows):
    return "%d, of them %s" % (len(rows), sorted(rows)[:10])


def rows_of(connection, tables):
    """Ids in tables, by their primary key and by an index."""
    found = set()
    for table in tables:
        by_index = [set(map(int, connection.run("select id from %s force index (%s) where id >= 0 and n >= 0"
                                                % (table, index)))) for index in ("primary", "by_n")]
        if by_index[0] != by_index[1]:
            raise Problem("indexes of %s differ: %s" % (table, some(by_index[0] ^ by_index[1])))
        found |= by_index[0]
    bad = [line for line in connection.run("check table " + ", ".join(tables)) if not line.endswith("\tOK")]
    if bad:
        raise Problem("check table: %s" % bad)
    return found


def check(socket, directory, mode):
    record = Record(directory)
    with Connection(socket) as connection:
        count = collections.Counter()
        # XA COMMIT ... ONE PHASE in two engines is two phases under the user's XID, who may decide it.
        for line in connection.run("xa recover"):
            connection.do("xa commit '%s'" % line.split("\t")[3])
            count["prepared"] += 1
        ours, innodb = rows_of(connection, ("e", "et")), rows_of(connection, ("i",))
        begun, acknowledged = set(record.ways), set(record.places)
        both = {row for row, way in record.ways.items() if way != "ours-alone"}
        if (ours | innodb) - begun:
            raise Problem("rows that nobody has begun: %s" % some((ours | innodb) - begun))
        if acknowledged - ours:
            raise Problem("acknowledged and lost in EVENKEEL: " + some(acknowledged - ours))
        in_one = (ours ^ innodb) & both
        if mode == "binlog":
            # Of XA's, one engine may have been prepared and the other one not, which no recovery decides.
            wrong = {row for row in in_one if row in acknowledged or record.ways[row] != "one-phase"}
            if wrong:
                raise Problem("in one engine only: " + some(wrong))
        count.update({"acknowledged": len(acknowledged), "in-doubt": len(begun - acknowledged),
                      "in-doubt-kept": len((begun - acknowledged) & ours),
                      "lost-in-evenkeel": 0, "lost-in-innodb": len((acknowledged & both) - innodb),
                      "in-one-engine": len(in_one)})
        return count


def replica(socket, directory, decides):
    record = Record(directory)
    with Connection(socket) as connection:
        position = connection.run("select @@gtid_slave_pos")[0]
        place = int(position.split("-")[2]) if position else 0
        ours, innodb = rows_of(connection, ("e", "et")), rows_of(connection, ("i",))
        # The source was not killed, and its clients have ended: all is acknowledged.
        applied = {row for row, at in record.places.items() if at <= place}
        applied_in_both = {row for row in applied if record.ways[row] != "ours-alone"}
        wrong = applied ^ ours
        if decides == "binlog":
            wrong |= applied_in_both ^ innodb
        if wrong:
            raise Problem("position %s, but the rows are not those: %s" % (position, some(wrong)))
        return {"applied": len(applied), "lost-in-evenkeel": len(applied - ours),
                "lost-in-innodb": len(applied_in_both - innodb), "ahead-in-innodb": len(innodb - applied)}


def syncs(socket):
    """Two-engine transactions of one client: how often the log was synced for a hundred of them."""
    with Connection(socket) as connection:
        query = ("select variable_value from information_schema.global_status "
                 "where variable_name = 'evenkeel_log_syncs'")
        before = int(connection.run(query)[0])
        for n in range(200):
            connection.do(";\n".join(statements(WAYS[n % 2], n + 1, n)))
        after = int(connection.run(query)[0])
        connection.do("delete from e where id <= 200; delete from i where id <= 200")
        return (after - before) // 2
