"""Damages files of a database whose server has ended, for test_failures.py. PLACE is the engine's directory."""
import os

from servers import Problem

MARK = b"DAMAGE"


def overwrite(path, places):
    """Writes the mark at places of a file; how many of them the file has."""
    size, hit = path.stat().st_size, 0
    with open(path, "r+b") as file:
        for at in places:
            if at < size:
                file.seek(at)
                file.write(MARK)
                hit += 1
    return hit


def places_of(path, text):
    image = path.read_bytes()
    at = image.find(text)
    while at >= 0:
        yield at
        at = image.find(text, at + 1)


def done(hit, what):
    if not hit:
        raise Problem(f"nothing is damaged: {what}")


def rows(place, text):
    """Rows with this text; the log is not read again after a clean end."""
    files = [path for path in place.rglob("*") if path.is_file() and "log" not in path.name and "wal" not in path.parts]
    done(sum(overwrite(path, list(places_of(path, text))) for path in files), text)


def database(place, what):
    """So that it cannot be opened."""
    if what in ("missing", "unreadable"):
        path = sorted((place / "pages").iterdir())[0]
        path.unlink()
        if what == "unreadable":
            os.symlink(path.name, path)  # to itself
    elif what == "superblock":
        done(overwrite(place / "evenkeel.super", range(0, 65536, 512)), what)
    elif what == "log":
        done(sum(overwrite(path, range(0, 1 << 20, 512)) for path in (place / "wal").iterdir()), what)
    else:
        # Pages that name the tables.
        done(sum(overwrite(path, list(places_of(path, b"test/u"))) for path in (place / "pages").iterdir()), what)


def slot(place):
    """The first slot of the superblock."""
    done(overwrite(place / "evenkeel.super", [48]), "slot")


def footer(path):
    """The last block of a file."""
    with open(path, "r+b") as file:
        file.seek((path.stat().st_size // 4096 - 1) * 4096)
        file.write(bytes(4096))
