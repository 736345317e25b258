"""What plugin/mariadb/mysql-test/README.md says of the server's suites, held against the files and the
log of a run. `papers`: each accepted difference stands once in the table, with its class; each disabled
test has a reason; each test of our own is described; none is more than was agreed on. `storage_engine`
and `engines`: as many passed as was agreed on, of the tests that the server's folder has. `holds` prints
what is wrong, or one line."""
import pathlib
import re
import sys

OVERLAY = pathlib.Path(__file__).resolve().parent.parent / "mysql-test"
# storage_engine: what passes at least of the tests that the server enables, what may differ or be left out.
PASSED_LEAST, DIFFERENCES_MOST, DISABLED_MOST = 101, 24, 7
# engines/funcs and engines/iuds together, of those that the server enables.
PASSED_PERCENT = 95

def sections():
    """README's text by the headings of its parts."""
    parts = re.split(r"^## (.*)$", (OVERLAY / "README.md").read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))

def classes():
    """(class, test) for each test named in the table, as often as it is named."""
    rows = re.findall(r"^\| (\w+) \| (.*) \|$", sections()["storage_engine"], flags=re.M)
    return [(row[0], test) for row in rows for test in re.findall(r"`([a-z_/]+)`", row[1])
            if row[0] != "class"]

def disabled(path):
    return [line.partition(":")[::2] for line in path.read_text().splitlines()
            if line.strip() and not line.startswith("#")]

def papers():
    wrong = []
    table = classes()
    folder = OVERLAY / "storage_engine"
    files = [str(path.relative_to(folder))[:-len(".rdiff")] for path in sorted(folder.rglob("*.rdiff"))]
    for test in sorted(set(files) | {test for _, test in table}):
        named = [name for name, other in table if other == test]
        if test not in files:
            wrong.append(f"README.md has {test} in class {named[0]}, without a .rdiff")
        elif len(named) != 1 or named[0] not in ("T", "I", "U"):
            wrong.append(f"{test}.rdiff stands {len(named)} times in README.md's table of the classes T, I, U")
    if len(files) > DIFFERENCES_MOST:
        wrong.append(f"{len(files)} accepted differences, more than {DIFFERENCES_MOST}")
    lists = {path: disabled(path) for path in [folder / "disabled.def", OVERLAY / "engines.def"]}
    for path, tests in lists.items():
        wrong += [f"{path.name}: no reason for {test.strip()}" for test, why in tests if len(why.split()) < 3]
    most = len(lists[folder / "disabled.def"])
    if most > DISABLED_MOST:
        wrong.append(f"disabled.def: {most} tests of storage_engine, more than {DISABLED_MOST}")
    own = sections()["evenkeel"]
    for test in sorted(path.stem for path in (OVERLAY / "evenkeel").glob("*.test")):
        if own.count(f"`{test}` (") != 1:
            wrong.append(f"README.md does not say once what {test} tests")
    for test in re.findall(r"`([a-z_]+)` \(", own):
        if not (OVERLAY / f"evenkeel/{test}.test").exists():
            wrong.append(f"README.md has {test}, which is no test of ours")
    return wrong, f"{len(files)} accepted differences and {most} disabled tests of storage_engine, all described"

def tests_of(suite, parts):
    """Names of the tests that the server's folder has and enables."""
    names = {}
    for part in parts:
        folder = suite / part
        off = folder / "disabled.def"
        without = {test.strip() for test, _ in disabled(off)} if off.exists() else set()
        here = {path.stem for where in (folder, folder / "t") for path in where.glob("*.test")}
        names[part] = here, without
    return names

def passed_in(log):
    return re.findall(r"^(\S+)\s.*\[ pass \]", log.read_text(errors="replace"), flags=re.M)

def storage_engine(log, suite):
    enabled = sum(len(here - without) for here, without in
                  tests_of(suite, ["storage_engine", "storage_engine/trx", "storage_engine/parts"]).values())
    passed = len({test.split()[0] for test in passed_in(log) if test.startswith("storage_engine")})
    said = f"{passed} of {enabled} tests of storage_engine passed"
    return ([said + f", fewer than {PASSED_LEAST}"] if passed < PASSED_LEAST or not enabled else []), said

def engines(log, suite):
    passed = enabled = 0
    for part, (here, without) in tests_of(suite, ["engines/funcs", "engines/iuds"]).items():
        passed += len({test for test in passed_in(log) if test.startswith(part + ".")})
        enabled += len(here - without)
    said = f"{passed} of {enabled} tests of engines/funcs and engines/iuds passed"
    few = not enabled or passed * 100 < enabled * PASSED_PERCENT
    return ([said + f", fewer than {PASSED_PERCENT} %"] if few else []), said

def holds(check, *arguments):
    """Whether one of the checks finds nothing."""
    wrong, said = check(*arguments)
    print("\n".join(wrong) if wrong else said, file=sys.stderr if wrong else sys.stdout, flush=True)
    return not wrong
