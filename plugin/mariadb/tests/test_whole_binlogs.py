"""Binlogs that a kill may leave, cut at each of their bytes."""

import os
import tempfile
import unittest

import whole_binlogs
from whole_binlogs import GTID, HEAD, MAGIC, QUERY, XID, whole_bytes

FORMAT, ROTATE, TABLE_MAP, WRITE_ROWS = 15, 4, 19, 23


def event(kind, body=b""):
    size = (HEAD + len(body)).to_bytes(4, "little")
    return bytes(4) + bytes([kind]) + bytes(4) + size + bytes(6) + body


def gtid(standalone):
    return event(GTID, bytes(12) + bytes([standalone]) + bytes(6))


def query(text):
    return event(QUERY, bytes(13) + b"test\0" + text)


GROUPS = [
    [event(FORMAT, bytes(228))],
    [gtid(1), query(b"create table a (i int)")],
    # A word of an end within a group of rows is none: it does not begin the statement.
    [gtid(0), event(TABLE_MAP, b"a"), event(WRITE_ROWS, b"rows: COMMIT"), event(XID, bytes(8))],
    [gtid(0), event(TABLE_MAP, b"b"), event(WRITE_ROWS, bytes(300)), query(b"COMMIT")],
    [gtid(0), query(b"savepoint s"), event(WRITE_ROWS, b"rows"), query(b"ROLLBACK")],
    [event(ROTATE, b"binlog.000002")],
]


class WholeBinlogs(unittest.TestCase):
    def test_each_byte(self):
        log, ends = MAGIC, [len(MAGIC)]
        for group in GROUPS:
            log += b"".join(group)
            ends.append(len(log))
        self.assertEqual(whole_bytes(log), len(log))
        for cut in range(len(MAGIC), len(log)):
            self.assertEqual(whole_bytes(log[:cut]), max(end for end in ends if end <= cut), cut)

    def test_files(self):
        whole = MAGIC + b"".join(GROUPS[0] + GROUPS[2])
        with tempfile.TemporaryDirectory() as folder:
            half = gtid(0) + event(TABLE_MAP)
            paths = [os.path.join(folder, f"binlog.00000{number}") for number in (1, 2, 3)]
            for path, more in zip(paths, (half, b"", half)):
                with open(path, "wb") as file:
                    file.write(whole + more)
            whole_binlogs.main(paths)
            for path, more in zip(paths, (b"", b"", half)):
                with open(path, "rb") as file:
                    self.assertEqual(file.read(), whole + more)


if __name__ == "__main__":
    unittest.main()
