#!/usr/bin/env python3
"""Stock mariadb-backup beside an armed backup (RFC 0045): one moment of both engines and of the binlog.

Writers update an InnoDB and an EVENKEEL table in each transaction. A backup is armed, mariadb-backup runs, both copies
are restored on a second server. There each writer's last transaction is the same in both tables, and no older than what
was acknowledged before. Then that server becomes a replica from the binlog position that the backup's manifest names,
and has every row of the source at the end. EVENKEEL names the command (target/release/evenkeel, else
target/debug/evenkeel). ROUNDS is the number of backups (EVENKEEL_ROUNDS, else 2).
"""
import os
import re
import subprocess
import sys

from servers import ROOT, Missing, Problem, free_port, on_port, run, wait_until
from test_backup import Writer, evenkeel

WRITERS, ROWS = 3, 20
TABLES = ("i", "e", "c")


class BothEngines(Writer):
    """Transaction n sets all rows of its number to n in both engines, and puts a long value into a third table."""

    pause_s = 0

    def changes(self, n):
        w = self.number
        return (f"update test.i set n = {n} where w = {w}",
                f"replace into test.c values ({w * 1000 + n % 20}, {n}, repeat('v', {n % 5} * 400000))",
                f"update test.e set n = {n} where w = {w}")


def tool():
    found = subprocess.run(["bash", ROOT / "scripts/mariadb.sh", "backup"], capture_output=True, text=True)
    if found.returncode:
        raise Missing(found.stderr.strip())
    return found.stdout.strip()


def mariadb_backup(*arguments, log):
    with open(log, "a") as out:
        code = subprocess.run([tool(), "--no-defaults", *map(str, arguments)], stdout=out, stderr=out).returncode
    if code:
        raise Problem(f"mariadb-backup {arguments[0]}: " + log.read_text(errors="replace")[-3000:])


def outcome(server):
    return server.sql("select variable_value from information_schema.global_status where variable_name = "
                      "'evenkeel_backup_last'")


def back_up(servers, main, number):
    """The folders of both copies, and the binlog's place."""
    folder = servers.folder / f"copy{number}"
    folder.mkdir()
    ours, theirs = folder / "evenkeel", folder / "server"
    main.sql(f"set global evenkeel_backup_armed_dir = '{ours}'")
    mariadb_backup("--backup", f"--socket={main.socket}", "--user=root", f"--target-dir={theirs}", log=folder / "log")
    main.sql("set global evenkeel_backup_armed_dir = ''")
    said = outcome(main)
    found = re.search(r"complete: .* binlog (\S+) (\d+), commits waited (\d+) ms", said)
    if not found:
        raise Problem(f"the outcome: {said}")
    file, position, waited = found[1], int(found[2]), int(found[3])
    info = next(path for path in theirs.iterdir() if path.name.endswith("binlog_info")).read_text().split()
    if info[:2] != [file, str(position)]:
        raise Problem(f"mariadb-backup has {info}, the engine {file} {position}")
    if f"note {file} {position}\n" not in (ours / "MANIFEST").read_text():
        raise Problem("the manifest does not name the place in the binlog")
    if waited >= 5000:
        raise Problem(f"commits waited {waited} ms")
    print(f"backup {number}: {said.split('complete: ')[1]}", flush=True)
    return ours, theirs, file, position


def restore(servers, ours, theirs, name):
    other = servers.server(name)
    other.folder.mkdir()
    log = theirs.parent / "log"
    mariadb_backup("--prepare", f"--target-dir={theirs}", log=log)
    mariadb_backup("--copy-back", f"--target-dir={theirs}", f"--datadir={other.data}", log=log)
    evenkeel("backup", "verify", ours)
    evenkeel("backup", "restore", ours, other.data / "#evenkeel")
    return other


def state(server):
    return server.sql("; ".join(f"checksum table test.{t}; select count(*), sum(n) from test.{t}" for t in TABLES))


def check(server, least, most):
    for t in ("e", "c"):
        found = server.sql(f"check table test.{t} extended")
        if not found.endswith("OK"):
            raise Problem(f"the copy: {found}")
    for w in range(WRITERS):
        i, e = (server.sql(f"select min(n), max(n), count(*) from test.{t} where w = {w}") for t in ("i", "e"))
        low, high, rows = map(int, i.split("\t"))
        if i != e or low != high or rows != ROWS:
            raise Problem(f"writer {w}: InnoDB has {i}, we have {e}")
        newest = server.sql(f"select max(n) from test.c where id div 1000 = {w}")
        if newest != str(low):
            raise Problem(f"writer {w}: long value of {newest}, not {low}")
        if not least[w] <= low <= most[w]:
            raise Problem(f"writer {w}: transaction {low}, not {least[w]} to {most[w]}")


def test(servers):
    tool()
    main, port = servers.server("main"), free_port()
    main.start("--max-allowed-packet=64M", "--log-bin=binlog", "--server-id=1", "--binlog-format=row", *on_port(port))
    columns = "(w int, id int, n int, pad varchar(255) default repeat('p', 200), primary key (w, id), key (n, w))"
    main.sql(f"create database if not exists test; use test; create table test.i {columns} engine=innodb;"
             f"create table test.e {columns} engine=evenkeel;"
             "create table test.c (id int primary key, n int, v longtext, key (n)) engine=evenkeel;"
             "create user replica@'%' identified by ''; grant replication slave on *.* to replica@'%';"
             f"insert into test.i (w, id, n) select w.seq, i.seq, 0 from seq_0_to_{WRITERS - 1} w, seq_1_to_{ROWS} i;"
             "insert into test.e select * from test.i")
    writers = [BothEngines(main, number) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    copies = []
    for number in range(int(os.environ.get("EVENKEEL_ROUNDS") or 2)):
        if not wait_until(lambda: all(w.done > 20 * (number + 1) or w.problem for w in writers), 300):
            raise Problem("the writers do not get on")
        least = [w.done for w in writers]
        copies.append((back_up(servers, main, number), least, [w.begun for w in writers]))
    for writer in writers:
        writer.stop = True
    for writer in writers:
        writer.join()
        if writer.problem:
            raise Problem(str(writer.problem))
    last = state(main)
    for number, ((ours, theirs, file, position), least, most) in enumerate(copies):
        other = restore(servers, ours, theirs, f"restored{number}")
        other.start("--max-allowed-packet=64M", f"--server-id={number + 2}", "--log-bin=binlog")
        check(other, least, most)
        other.sql(f"change master to master_host='127.0.0.1', master_port={port}, master_user='replica', "
                  f"master_log_file='{file}', master_log_pos={position}, master_use_gtid=no, "
                  "master_connect_retry=1; start slave")
        end = main.sql("show master status").split("\t")
        if other.sql(f"select master_pos_wait('{end[0]}', {end[1]}, 600)") in ("NULL", "-1"):
            raise Problem("the replica: " + other.sql("show slave status\\G"))
        if state(other) != last:
            raise Problem("the replica has other rows than its source")
        other.stop()
        print(f"backup {number}: writers at {least} to {most}, restored, compared, and a replica of its source")
    main.stop()
    return 0


if __name__ == "__main__":
    sys.exit(run("test_armed_backup", test))
