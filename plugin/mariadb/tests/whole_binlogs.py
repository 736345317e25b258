"""Cuts off what stands behind the last whole group of events of each binlog but the last one, which a
server is writing: `whole_binlogs.py FILE ...`, in their order.

A kill in the middle of a write leaves the beginning of a group at the end of a binlog. The server goes on
in the next file and leaves this one, which no replica reads over (10.11, with any engine: "binlog truncated
in the middle of event" from the source, or "Unexpected break of being relay-logged GTID", with which the
replica's I/O thread ends). The transaction was never acknowledged; cut off, the replica does not have it,
and nor may the tables.

It knows groups of rows, statements and DDL, and those that a ROLLBACK ends; not prepared XA transactions."""

import os
import sys

MAGIC = b"\xfebin"
GTID, QUERY, XID = 162, 2, 16
# An event's head: when, kind at 4, server, size at 9, end, flags.
HEAD = 19
# Behind it, of a GTID event: number and domain, then flags, of which the lowest says that a statement
# stands alone.
GTID_FLAGS = HEAD + 12


def ends_group(event, standalone):
    """XID, or a statement: the only one of its group, or the word that ends a transaction."""
    return event[4] == XID or event[4] == QUERY and (standalone or any(
        word in event[HEAD:] for word in (b"\0COMMIT", b"\0ROLLBACK")))


def whole_bytes(log):
    """How many bytes of a binlog are whole groups, or events outside groups."""
    at = whole = len(MAGIC)
    # The flag of the group under way.
    standalone = None
    while at + HEAD <= len(log):
        size = int.from_bytes(log[at + 9:at + 13], "little")
        if size < HEAD or at + size > len(log):
            break
        event = log[at:at + size]
        at += size
        if event[4] == GTID:
            standalone = event[GTID_FLAGS] & 1
        elif standalone is not None and ends_group(event, standalone):
            standalone = None
        if standalone is None:
            whole = at
    return whole


def main(paths):
    for path in paths[:-1]:
        with open(path, "rb") as file:
            log = file.read()
        whole = whole_bytes(log)
        if whole < len(log):
            print(f"{os.path.basename(path)}: {len(log) - whole} bytes of a group cut off at {whole}")
            os.truncate(path, whole)


if __name__ == "__main__":
    main(sys.argv[1:])
