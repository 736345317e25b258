#!/usr/bin/env python3
"""Lists all committed rows and index entries of a cleanly closed Evenkeel directory: decode.py DIRECTORY

A second decoder of at most 400 lines, written from docs/format alone, so that the pages are known to be
complete. Standard library only; it never writes. Lines: row TABLE, the columns' values; entry TABLE INDEX, the
index's values, "/", those of the primary key; with tabs between. Values: NULL, true, false, numbers, f64:BITS,
dec:UNSCALED, date:DAYS, time:MICROSECONDS, x:HEX, t:HEX."""
import os, struct, sys
from struct import unpack_from as at
CRC_TABLE = range(256)
for _ in range(8):
    CRC_TABLE = [(n >> 1) ^ (0x82F63B78 if n & 1 else 0) for n in CRC_TABLE]
def crc32c(*pieces):
    crc = 0xFFFFFFFF
    for byte in crc32c.database + b"".join(pieces): crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
crc32c.database = b""  # its id: all checksums but those of the superblock begin with it
def read(path, name, start=0, length=-1):
    with open(os.path.join(path, name), "rb") as file:
        file.seek(start)
        return file.read(length)
def need(condition, what):
    if not condition: raise SystemExit(f"decode: {what}")

class Reader:
    def __init__(self, data, start=0): self.data, self.at = data, start
    def take(self, n):
        need(self.at + n <= len(self.data), "bytes end too early")
        self.at += n
        return self.data[self.at - n : self.at]
    def number(self, n): return int.from_bytes(self.take(n), "little")
    def varint(self):
        value, shift, byte = 0, 0, 0x80
        while byte & 0x80:
            byte = self.number(1)
            value, shift = value | (byte & 0x7F) << shift, shift + 7
        return value
    def varints(self, n): return tuple(self.varint() for _ in range(n))
    def bytes(self): return self.take(self.varint())
    def rest(self): return self.take(self.left())
    def left(self): return len(self.data) - self.at

def lz4(data, raw_len):
    """An LZ4 block: sequences of literals and matches."""
    out, r = bytearray(), Reader(data)
    def length(n):
        byte = 255 if n == 15 else 0
        while byte == 255:
            byte = r.number(1)
            n += byte
        return n
    while r.left():
        out += r.take(length((token := r.number(1)) >> 4))
        if r.left():
            offset = r.number(2)
            for _ in range(length(token & 15) + 4): out.append(out[-offset])
    need(len(out) == raw_len, "lz4 length")
    return bytes(out)

# ---- superblock and log: superblock.md, wal.md
def superblock(path):
    """Page size, database id, LSN of the checkpoint, redo LSN, root of the catalog."""
    data, best = read(path, "evenkeel.super"), None
    for slot in (data[:4096], data[4096:8192]):
        if slot[:8] == b"EVENKEEL" and at("<I", slot, 8)[0] == crc32c(slot[12:]):
            *versions, features = at("<5H74xQ", slot, 12)
            need(versions in ([1, 1, 1, 1, 1], [1, 1, 2, 1, 1], [2, 1, 2, 1, 1]) and features in (0, 4), "version")
            flags, page_size, _, sequence, *rest = at("<HIIQ8sQQQ", slot, 22)
            best = max(best or (0,), (sequence, flags, page_size, *rest))
    need(best and best[1] & 1, "not a database, or not closed cleanly")
    return best[2:]
def log_blocks(path):
    """A function from a block's number to (epoch, durable, flags, data), or None; the last block + 1."""
    segments = []
    for name in filter(lambda name: name[:-4].isdigit(), os.listdir(os.path.join(path, "wal"))):
        head = read(path, f"wal/{name}", 0, 4096)
        magic, version, crc, _, first, count, own = at("<8sIIQQQ8s", head)
        right = own == crc32c.database and crc == crc32c(head[:12], b"\0" * 4, head[16:])
        need(magic == b"EVKNWAL\0" and version in (1, 2) and right, f"{name}: no log segment")
        segments.append((first, count, f"wal/{name}"))
    def get(block):
        for first, count, name in segments:
            if first <= block < first + count:
                data = read(path, name, 4096 + (block - first) * 512, 512)
                crc, epoch, number, durable, used, _, flags = at("<IIQQHHB", data)
                if number == block and crc == crc32c(data[4:]):
                    return epoch, durable, flags, data[32 : 32 + used]
    return get, max((first + count for first, count, _ in segments), default=0)
def log_records(path, start):
    """(LSN, kind, body) of each record from `start` to the end of the log."""
    get, last = log_blocks(path)
    block = max(1, start // 480)
    skip, pending, end, epoch = max(0, start - block * 480), b"", start, None
    takes_over = lambda found: found[0] > epoch and found[2] == 1 and found[1] >= end
    while True:
        here, found = block, get(block)
        if not found or not (epoch in (None, found[0]) or takes_over(found)):
            here = -(-block // 8) * 8
            found = get(here) if here != block else None
            if not found or not takes_over(found) or found[1] > block * 480:
                break
        pending = (pending if found[0] == epoch else b"") + found[3][skip:]
        epoch, skip = found[0], 0
        while len(pending) >= 5 and len(pending) >= 5 + at("<I", pending)[0]:
            size, kind = at("<IB", pending)
            # What is pending ends where this block's data ends, and no padding lies inside a record.
            end = here * 480 + len(found[3]) - len(pending) + 5 + size
            yield end - 5 - size, kind, pending[5 : 5 + size]
            pending = pending[5 + size :]
        block, end = here + 1, end if pending else (here + 1) * 480
    for behind in range(block + 1, last):
        found = get(behind)
        need(not found or found[1] <= block * 480, "the log is damaged")

class State:
    """What checkpoint and log say: outcomes, undo, index entries, live runs. undo.md, run.md"""
    def __init__(self, path, checkpoint, redo):
        self.path, self.outcome, self.listed, self.seen = path, {}, {}, set()
        self.reverted, self.ranges, self.before, self.extents = set(), {}, {}, {}
        self.edits, self.entries, parts, wanted = [], [], [], 1
        for lsn, kind, body in log_records(path, redo):
            r = Reader(body)
            if kind in (2, 3): self.row_record(lsn, kind, r)
            elif kind == 10: self.rows_record(lsn, r)
            elif kind in (4, 5): self.outcome[r.varint()] = 2 if kind == 4 else 3
            elif kind == 8: self.edits.append(body)
            elif kind == 9 and lsn >= checkpoint:
                part, count = r.varints(2)
                if part == len(parts): parts, wanted = parts + [r.rest()], count
        need(len(parts) == wanted, "no whole checkpoint in the log")
        r = Reader(b"".join(parts))
        sections = {r.number(1): r.bytes() for _ in range(2)}
        self.edits.insert(0, sections[1])
        self.transactions(Reader(sections[2]))
    def row_record(self, lsn, kind, r):
        _, _, _, stamp, key, new = r.varint(), r.varint(), r.number(1), r.varints(2), r.bytes(), r.bytes()
        if kind == 3: return self.reverted.add(r.varints(2))
        self.seen.add(stamp[0])
        _, generation, _, flags = r.varint(), r.varint(), r.number(1), r.number(1)
        old = r.varints(2) if flags & 0x40 else None
        shared = r.varints(2) if flags & 0x50 == 0x50 else (0, 0)
        self.before[stamp] = (flags & ~0x70, old, new[: shared[0]] + r.bytes() + new[len(new) - shared[1] :]) if old else None
        for _ in range((flags & 0x20 and r.bytes(), r.varint())[1]):  # 0x20: chains that changed hands
            index, op, columns, _ = r.varint(), r.number(1), r.bytes(), r.bytes()
            self.entries.append((lsn, generation, index, op, columns, key, stamp))
    def rows_record(self, lsn, r):
        _, _, txn, operation, _, generation = r.varints(6)
        heads, key = [(r.varint(), r.number(1)) for _ in range(r.varint())], b""
        self.seen.add(txn)
        while r.left():
            key, _ = key[: r.varint()] + r.bytes(), r.bytes()
            self.before[txn, operation] = None
            for index, op in heads:
                self.entries.append((lsn, generation, index, op, r.bytes(), key, (txn, operation)))
            operation += 1
    def transactions(self, r):
        need(r.number(1) == 3 and r.varints(2), "unknown list of transactions")
        for _ in range(r.varint()):
            txn = r.varint()
            self.listed[txn], _, _ = r.number(1), r.varints(4), r.bytes()
            self.ranges[txn] = [r.varints(2) for _ in range(r.varint())]
            self.extents[txn] = [r.varints(5) for _ in range((r.varints(r.varint()), r.varint())[1])]
    def counts(self, stamp):
        """True if the operation is committed and was not reverted."""
        txn, operation = stamp
        outcome = self.outcome.get(txn, self.listed.get(txn, 0 if txn in self.seen else 2))
        dead = any(low <= operation < below for low, below in self.ranges.get(txn, []))
        return outcome == 2 and stamp not in self.reverted and not dead
    def version_before(self, stamp):
        for first, last, segment, offset, length in self.extents.get(stamp[0], []):
            found = stamp in self.before or not first <= stamp[1] <= last
            data = b"" if found else read(self.path, f"undo/{segment:08}.undo", offset, length)
            while data:
                crc, size = at("<II", data)
                need(crc == crc32c(struct.pack("<QQ", segment, offset), data[4 : 24 + size]), "undo frame")
                frame, data, offset = Reader(data[24 : 24 + size]), data[24 + size :], offset + 24 + size
                while frame.left():
                    r = Reader(frame.bytes())
                    number, _, flags, _, _ = r.varint(), r.number(1), r.number(1), r.varint(), r.bytes()
                    self.before[stamp[0], number] = (flags & ~0x40, r.varints(2), r.bytes()) if flags & 0x40 else None
        need(stamp in self.before, f"no undo of operation {stamp}")
        return self.before[stamp]

# ---- pages and trees: page.md
class Pages:
    def __init__(self, path, page_size, state):
        self.path, self.page_size, self.state = path, page_size, state
    def payload(self, number):
        segment, place = divmod(number, (1 << 30) // self.page_size)
        page = read(self.path, f"pages/{segment:06}.pg", place * self.page_size, self.page_size)
        crc, version, _, _, own = at("<IBBHQ", page)
        need(crc == crc32c(page[4:]) and version == 1 and own == number, f"page {number}: damaged")
        return page[40:]
    def cells(self, number):
        """(key, flags, stamp, row bytes) of the leaves below a page, in order."""
        node = self.payload(number)
        kind, level, _, _, slots, _, _, _, low, high, prefix, _ = at("<4B8H", node)
        need(kind in (1, 2) and (kind == 1) == (level == 0), f"page {number}: no node")
        shared = node[len(node) - low - high :][:prefix]
        for i in range(slots):
            _, start, length = at("<IHH", node, 20 + 8 * i)
            r = Reader(node[start : start + length])
            flags = r.number(1)
            if kind == 2:
                yield from self.cells(r.number(8))
                continue
            suffix = r.number(2)
            stamp = (r.number(8), r.number(4)) if flags & 2 else (0, 0)
            yield shared + r.take(suffix), flags, stamp, r.rest()
    def rows(self, root):
        """(key, row bytes) of the committed rows of a tree."""
        for key, *version in self.cells(root):
            while version and version[0] & 2 and not self.state.counts(version[1]):
                version = self.state.version_before(version[1])
            if version and not version[0] & 1: yield key, version[2]
    def chain(self, reference):
        (number, length, *owner), data, position = struct.unpack("<QIQI", reference), b"", 0
        while number:
            page = self.payload(number)
            kind, here, number, *found = at("<B3xIQQII", page)
            need(kind == 3 and found == [*owner, position], "a page of another overflow chain")
            data, position = data + page[32 : 32 + here], position + 1
        need(len(data) == length, "length of an overflow chain")
        return data

# ---- rows, keys, catalog: row.md
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 2, 8: 4, 9: 8, 10: 4, 11: 8, 16: 4, 17: 8}
SIGNED, BYTES = (2, 3, 4, 5, 12, 16, 17), (13, 14, 15)
def fixed_len(ty):
    if ty[0] == 12:
        return next((size for digits, size in ((2, 1), (4, 2), (9, 4), (18, 8)) if ty[1] <= digits), 16)
    return ty[1] if ty[0] == 13 else SIZES.get(ty[0])
def show(ty, data):
    """A value as text, from its bytes (scalars: little-endian)."""
    if ty[0] in BYTES: return ("t:" if ty[0] == 15 else "x:") + data.hex()
    number = int.from_bytes(data, "little", signed=ty[0] in SIGNED)
    if ty[0] == 1: return "true" if number else "false"
    if ty[0] in (10, 11): return "f64:" + struct.pack(">d", *at("<f" if ty[0] == 10 else "<d", data)).hex()
    return {12: "dec:", 16: "date:", 17: "time:"}.get(ty[0], "") + str(number)
def key_part(r, ty, nullable, descending, lossy=False):
    """The first part of a key as text; of a prefix or of weights the bytes."""
    ty = (14, 0) if lossy else ty
    flip, size = 0xFF if descending else 0, fixed_len(ty)
    if nullable and r.number(1) ^ flip == 0: return "NULL"
    if size is None:
        data = bytearray()
        while (byte := r.number(1) ^ flip) or r.number(1) ^ flip:
            data.append(byte)
        return show(ty, bytes(data))
    data = bytes(byte ^ flip for byte in r.take(size))
    if ty[0] not in BYTES:
        number, sign = int.from_bytes(data, "big"), 1 << (8 * size - 1)
        if ty[0] in (10, 11) or ty[0] in SIGNED:
            number ^= sign if number & sign or ty[0] in SIGNED else 2 * sign - 1
        data = number.to_bytes(size, "little")
    return show(ty, data)

class Table:
    """Columns: id -> (position, type, nullable, default, added in, dropped in). Parts: (column, descending, prefix or weights)."""
    def __init__(self):
        self.name, self.root, self.primary, self.columns, self.indexes, self.chunks = "", 0, [], {}, [], []
    def key_values(self, parts, data):
        r = Reader(data)
        values = {c: key_part(r, self.columns[c][1], self.columns[c][2], d, lossy) for c, d, lossy in parts}
        need(not r.left(), "bytes behind a key")
        return values
    def values(self, key, row, pages):
        """Column id -> value, as text, of the columns of the row and the defaults of the others."""
        r = Reader(row)
        flags, version = r.number(1), r.varint()
        values = self.key_values(self.primary, key) if self.primary else {}
        values = {c: v for c, v in values.items() if self.columns[c][1][0] not in BYTES}
        held = [c for c in sorted(self.columns) if c not in values and self.columns[c][4] <= version
                and not 0 < self.columns[c][5] <= version]
        nullable = [c for c in held if self.columns[c][2]]
        bitmap = r.number((len(nullable) + 7) // 8)
        values |= {c: show(self.columns[c][1], r.take(fixed_len(self.columns[c][1])))
                   for c in held if fixed_len(self.columns[c][1]) is not None}
        variable = [c for c in held if fixed_len(self.columns[c][1]) is None]
        ends = [r.number(1 << (flags & 3)) for _ in variable]
        data, start = r.rest(), 0
        for column, end in zip(variable, ends):
            reference, end = (end >> 31, end & 0x7FFFFFFF) if flags & 4 else (0, end)
            piece, start = data[start:end], end
            values[column] = show(self.columns[column][1], pages.chain(piece) if reference else piece)
        values |= {c: "NULL" for i, c in enumerate(nullable) if bitmap >> i & 1}
        return {c: values.get(c, self.columns[c][3]) for c in self.columns}
def catalog(pages, root):
    """The tables, read through the catalog's own table."""
    system, tables = Table(), {}
    for i, ty in enumerate([(8,), (6,), (8,), (15, 255), (14, 2048)]):
        system.columns[i] = (i, ty, False, "NULL", 1, 0)
    system.primary = [(0, 0, False), (1, 0, False), (2, 0, False)]
    for key, row in pages.rows(root):
        table_id, kind, item, name, body = system.values(key, row, pages).values()
        name, r = bytes.fromhex(name[2:]).decode(), Reader(bytes.fromhex(body[2:]))
        table = tables.setdefault(int(table_id), Table())
        def part():
            column, flags = r.varint(), r.number(1)
            if flags & 2: r.varint()
            if flags & 4: r.varint(), r.number(4)
            return column, flags & 1, flags & 6 != 0
        parts = lambda: [part() for _ in range(r.varint())]
        need(r.varint() in ((1,) if kind in "245" else (1, 2)), "unknown layout of a catalog entry")
        if kind == "1":
            table.name, _, table.root, _, _, table.primary = name, r.varint(), r.varint(), r.number(1), r.varints(3), parts()
        elif kind == "2":
            position, ty, flags = r.varint(), (r.number(1), *r.varints(2)), r.number(1)
            added, dropped = r.varints(2)
            table.columns[int(item)] = (position, ty, flags & 1, key_part(Reader(r.bytes()), ty, True, False) if flags & 2 else "NULL", added, dropped)
        elif kind == "10": table.chunks.append((r.varint(), r.number(8), r.number(8), r.varint(), [r.varints(2) for _ in range(r.varint())]))
        elif kind == "3":
            _, state, _ = r.number(1), r.number(1), r.varint()
            table.indexes.append((int(item), name, state, parts()))
    return [table for table_id, table in tables.items() if table_id != 0]

# ---- runs: run.md
def envelope(data, position, kind, number):
    """What an envelope holds, and where it ends."""
    crc, found, codec, _, _, stored, raw, _, block, _ = at("<IBBBBIIIIQ", data, position)
    body = data[position + 32 : position + 32 + stored]
    right = crc == crc32c(struct.pack("<Q", position), data[position + 4 : position + 32], body)
    need(right and (found, block) == (kind, number), "damaged run")
    return lz4(body, raw) if codec == 1 else body, position + 32 + stored
def slice_entries(data, position, size, blocks, low):
    """(columns, primary key, op, stamp or None) of what of a slice is not below `low`; blocks wholly below may be gone."""
    r, key, fences, first = Reader(envelope(data, position + size, 2, 0)[0], 4), b"", [], 0
    for _ in range(blocks):
        key = key[: r.varint()] + r.bytes()
        fences.append((key, r.varint()))
    while first + 1 < blocks and fences[first + 1][0] <= low:
        position, first = position + fences[first][1], first + 1
    for number in range(first, blocks):
        raw, position = envelope(data, position, 1, number)
        r, key, pk_len = Reader(raw[: -4 - 4 * at("<I", raw, len(raw) - 4)[0]], 8), b"", 0
        while r.left():
            flags, (shared, suffix) = r.number(1), r.varints(2)
            pk_len = r.varint() if flags & 64 else pk_len
            key = key[:shared] + r.take(suffix)
            _, _ = r.bytes() if flags & 32 else b"", r.varint() if flags & 8 else 0
            split, stamp = len(key) - pk_len, r.varints(2) if flags & 16 else None
            if key >= low: yield key[:split], key[split:], flags, stamp
def slices(path, edits):
    """The largest flushed generation; (newest generation, run, index, file's bytes, position, size, blocks, low)."""
    named, places, lows = {op: set() for op in range(1, 7)}, {}, {}
    for r in map(Reader, edits):
        while r.left():
            op = r.number(1)
            if op == 7:
                index, file, run, _, newest = r.varints(5)
                places.setdefault((index, file), set()).add((newest, run))
            elif op == 8:
                name, low = r.varints(2), r.bytes()
                lows[name] = max(low, lows.get(name, b""))
            else:
                named[op].add(r.varints(2 if op == 3 else 1))
    live = []
    for (file,) in named[1] - named[2]:
        data = read(path, f"runs/{file:08}.run")
        tail = data[-40:]
        need(tail[:8] == b"EVKLRUN\x01" and at("<I", tail, 12)[0] == crc32c(tail[:12], tail[16:]), "run trailer")
        r = Reader(envelope(data, at("<Q", tail, 24)[0], 4, 0)[0])
        for _ in range(r.varint()):
            index, run, _, newest, position, size, blocks, *_ = r.varints(12)
            _, last, _ = r.bytes(), r.bytes(), r.varints(r.varint())
            for newest, run in places.get((index, file), set()) | {(newest, run)}:
                low = lows.get((index, run), b"")
                if (index, run) not in named[3] and (index,) not in named[5] and last >= low:
                    live.append((newest, run, index, data, position, size, blocks, low))
    return max(named[4], default=(0,))[0], live
def index_entries(path, state):
    """Index id -> sorted (columns, primary key) of the entries that exist."""
    decided = {}
    def meet(index, columns, pk, op, stamp):
        known = decided.setdefault(index, {})
        if (columns, pk) not in known and (stamp is None or state.counts(stamp)):
            known[columns, pk] = op & 1
    flushed, live = slices(path, state.edits)
    for _, generation, index, op, columns, pk, stamp in sorted(state.entries, reverse=True):
        if generation > flushed: meet(index, columns, pk, op, stamp)
    for _, _, index, *where in sorted(live, key=lambda s: s[:2], reverse=True):
        for entry in slice_entries(*where): meet(index, *entry)
    return {index: sorted(k for k, exists in known.items() if exists) for index, known in decided.items()}

def main(path):
    page_size, crc32c.database, checkpoint, redo, root = superblock(path)
    state = State(path, checkpoint, redo)
    pages, entries = Pages(path, page_size, state), index_entries(path, state)
    for table in catalog(pages, root):
        live = sorted((c for c, d in table.columns.items() if not d[5]), key=lambda c: table.columns[c][0])
        for key, row in (found for root in [table.root, *(c[0] for c in table.chunks)] for found in pages.rows(root)):
            print("row", table.name, *map(table.values(key, row, pages).get, live), sep="\t")
        for index, name, ready, parts in table.indexes:
            ids = [(index, index), *(pair for c in table.chunks for pair in c[4])] if ready == 2 else []
            for columns, pk in (found for of, own in ids if of == index for found in entries.get(own, [])):
                key = table.key_values(table.primary, pk).values() if table.primary else [int.from_bytes(pk)]
                print("entry", table.name, name, *table.key_values(parts, columns).values(), "/", *key, sep="\t")

if __name__ == "__main__":
    main(sys.argv[1])
