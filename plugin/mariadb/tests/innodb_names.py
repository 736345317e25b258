"""Compares the names of "Coming from InnoDB" in docs/user/mariadb.md with those of a server that has both engines.

Every innodb_* setting and status variable of the server stands in the first column of its table, alone or by a
pattern with *; every name and pattern there is one of the server's; every evenkeel_* in the second column exists.
Every status variable of Evenkeel is in docs/reference/metrics.md, by its name or as a wait of a cause, and
every name there is a status variable.
"""
import fnmatch, pathlib, re

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"


def of_server(server, kind, like):
    lines = server.sql(f"show global {kind} like '{like}%'").splitlines()
    return {line.split("\t")[0].lower() for line in lines}


def table(page, head):
    """The two columns of the table behind a line that begins so: sets of the names in backticks."""
    rows = re.search(rf"^{head}[^|]*\| InnoDB \| here \|\n\|---\|---\|\n((?:\|.*\n)+)", page, flags=re.M)[1].splitlines()
    cells = [re.fullmatch(r"\|(.*?)\|(.*)\|", row).groups() for row in rows]
    names = lambda column: {name.lower() for row in cells for name in re.findall(r"`([^` ]*)`", row[column])}
    return names(0), names(1)


def drifted(status):
    """Where our status variables and the reference differ: a name of the page is one, or a cause with three."""
    rows = re.findall(r"^\| `(\w+)` \|", (DOCS / "reference/metrics.md").read_text(), flags=re.M)
    waits = {row: {f"evenkeel_wait_{row}_{what}" for what in ("count", "us", "max_us")} for row in rows}
    known = {f"evenkeel_{row}" for row in rows}.union(*waits.values())
    # Actors that wait for work are no stall, which the page says.
    absent = [row for row in rows if row != "idle" and f"evenkeel_{row}" not in status and not waits[row] <= status]
    return [f"docs/reference/metrics.md has no {name}" for name in sorted(status - known)] + [
        f"docs/reference/metrics.md: the server has no {row}" for row in absent]


def compare(server):
    """What does not agree, and how many settings and status variables InnoDB has."""
    page = (DOCS / "user/mariadb.md").read_text().split("\n## Coming from InnoDB\n")[1]
    status = of_server(server, "status", "evenkeel")
    ours = of_server(server, "variables", "evenkeel") | status
    wrong, counted = drifted(status), []
    for kind, head in (("variables", "Settings"), ("status", "Status variables")):
        theirs, (named, here) = of_server(server, kind, "innodb"), table(page, head)
        counted.append(len(theirs))
        wrong += [f"{kind}: {name} is not on the page" for name in sorted(theirs) if not any(fnmatch.fnmatchcase(name, n) for n in named)]
        wrong += [f"{kind}: the server has no {name}" for name in sorted(named) if not fnmatch.filter(theirs, name)]
        wrong += [f"{kind}: there is no {name}" for name in sorted(here) if name.startswith("evenkeel_") and name not in ours]
    return wrong, counted
