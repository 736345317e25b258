"""The insert benchmark as iibench.py does it, on ENGINE=EVENKEEL: iibench.py SOCKET ENGINE [ROWS]. One table of purchases
with three secondary indexes; inserts of many rows, threads that query ranges of each index, from the middle on the
oldest rows deleted as fast as new ones come. At the end CHECK TABLE, and the same rows by every index."""

import random
import sys
import threading

import pymysql

SOCKET, ENGINE, ROWS = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 100_000
BATCH, KEPT = 500, ROWS // 2
INDEXES = {"marketsegment": "price, customerid", "registersegment": "cashregisterid, price, customerid",
           "pdc": "price, dateandtime, customerid"}


def connect():
    return pymysql.connect(unix_socket=SOCKET, user="root", database="iibench", autocommit=True).cursor()


def ask(cursor, sql):
    cursor.execute(sql)
    return cursor.fetchall()


def query(number, ended, counts):
    cursor, r = connect(), random.Random(number)
    while not ended.is_set():
        index, columns = r.choice(sorted(INDEXES.items()))
        first = columns.split(", ")[0]
        # A float that is shown with two digits is compared with two.
        low = round(r.random() * (500 if first == "price" else 1000), 2)
        # Index-only, as iibench.py has it.
        rows = ask(cursor, f"select {columns}, transactionid from purchases force index ({index}) "
                           f"where {first} >= {low} order by {columns} limit 10")
        ordered = [tuple(row[:-1]) for row in rows]
        if ordered != sorted(ordered) or any(row[0] < low for row in ordered):
            raise SystemExit(f"{index}: {rows}")
        counts[number] += 1


def guarded(*args):
    try:
        query(*args)
    except BaseException as error:
        args[2].append(error)


def main():
    pymysql.connect(unix_socket=SOCKET, user="root").cursor().execute("create or replace database iibench")
    cursor, r = connect(), random.Random(1)
    keys = ", ".join(f"key {name} ({columns})" for name, columns in INDEXES.items())
    cursor.execute("create table purchases (transactionid bigint not null auto_increment, dateandtime datetime, "
                   "cashregisterid int not null, customerid int not null, productid int not null, price float not null, "
                   f"data varchar(200), primary key (transactionid), {keys}) engine={ENGINE}")
    ended, counts = threading.Event(), [0, 0]
    threads = [threading.Thread(target=guarded, args=(i, ended, counts)) for i in range(2)]
    for thread in threads:
        thread.start()
    deleted = 0
    for done in range(BATCH, ROWS + 1, BATCH):
        rows = [f"('2026-01-01' + interval {done} second, {r.randrange(1000)}, {r.randrange(100_000)}, {r.randrange(10_000)}, "
                f"{r.randrange(50_000) / 100}, '{'x' * r.randrange(200)}')" for _ in range(BATCH)]
        cursor.execute("insert into purchases (dateandtime, cashregisterid, customerid, productid, price, data) values "
                       + ", ".join(rows))
        if done > KEPT:
            deleted += cursor.execute(f"delete from purchases order by transactionid limit {BATCH}")
    ended.set()
    for thread in threads:
        thread.join()
    sums = {ask(cursor, f"select count(*), sum(transactionid), sum(customerid), min(transactionid) from purchases force index ({index})")
            for index in ["primary", *INDEXES]}
    checked = ask(cursor, "check table purchases")[-1][2:]
    print(f"{ROWS} rows inserted, {deleted} deleted, {counts[:2]} queries, {sums}, {checked}, errors {counts[2:]}")
    ((count, _, _, oldest),), = sums
    good = not counts[2:] and count == ROWS - deleted == KEPT and oldest > deleted * 0.9 and checked == ("status", "OK")
    sys.exit(0 if good and min(counts) > 0 else 1)


main()
