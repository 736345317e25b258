#!/usr/bin/env python3
"""The server's own suites with one engine in the place of InnoDB, MyISAM and Aria, on InnoDB and on EVENKEEL.

    suites.py run [--out DIR] [--jobs N] [--only ENGINE | --both] SUITE | SUITE.TEST | quick | foreign ...
    suites.py compare [--out DIR]

`run` makes a copy of the suites for each engine, in which every CREATE, ALTER, option and variable that names
InnoDB, MyISAM or Aria names that engine, and keeps what each test prints. EVENKEEL runs first: a test that prints
what the server's own result file holds, but for the engine's name, is `as shipped` and needs no InnoDB; only the others
run with InnoDB too (all with --both). `compare` holds the outputs against each other, statement by statement, sorts
the differences into classes and prints those that no class explains and suites.expected does not list; it
exits with 1 if there is one, or if one that is listed did not come. `run` compares too. The servers' files are in
memory (/dev/shm) if there is room.

A statement that fails does not end a test: the rest of it is compared too.

Classes (closed): `alter` (an ALTER's count of rows, which tells whether it copied the table), `name` (the engine's
name alone), `explain` (output of EXPLAIN, ANALYZE and of what shows estimates), `order` (the same rows in another
order, where nothing orders them), `variables` (InnoDB's own settings, status variables, tables and files), `refused` (a
feature that one of the two refuses by name, and statements about a table that exists on one side only since then),
`expected` (listed). Tests that InnoDB itself cannot run in this way, those skipped and those that suites.expected leaves
out by their names are counted."""
import argparse
import difflib
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys

from servers import folder_in_memory, remove_but_logs

ROOT = pathlib.Path(__file__).resolve().parents[3]
ENGINES = ("InnoDB", "EVENKEEL")
REPLACED = r"(?:innodb|myisam|aria|maria)\b"
SUBSTITUTIONS = [
    # ENGINE=x, default_storage_engine=x, STORAGE ENGINE x; SHOW ENGINE x STATUS is InnoDB's own.
    (re.compile(rf"(?<!show )(engine\s*=\s*['\"`]?){REPLACED}", re.I), r"\g<1>{}"),
    (re.compile(rf"(storage engine\s+['\"`]?){REPLACED}", re.I), r"\g<1>{}"),
    (re.compile(rf"(let\s+\$?\w*(?:engine|type)\w*\s*=\s*['\"]?){REPLACED}", re.I), r"\g<1>{}"),
]
# The settings that both engines have.
BOTH_HAVE = r"(?=[_-](?:lock[_-]wait[_-]timeout|snapshot[_-]isolation)\b)"
# The tests of `quick`, less than three minutes: those that found faults, and what our own suite has least of.
QUICK = """
gcol.gcol_bugfixes gcol.gcol_keys_innodb gcol.gcol_partition_innodb
gcol.innodb_virtual_index gcol.innodb_virtual_purge handler.aria handler.innodb handler.interface handler.ps
json.json_table period.alter period.delete period.overlaps period.update sql_sequence.create
sql_sequence.lock sql_sequence.next vcol.index vcol.vcol_keys_innodb vcol.vcol_misc versioning.create
versioning.delete versioning.partition versioning.replace versioning.select
""".split()
# InnoDB's own tests of foreign keys, a minute. Of the others innodb.foreign-keys and innodb.truncate_foreign need a debug
# build of the server, gcol.innodb_virtual_fk is disabled there, storage_engine.foreign_keys is among scripts/test-mtr.sh.
FOREIGN = """
innodb.add_foreign_key innodb.fk_col_alter innodb.fk_drop_alter innodb.foreign_key innodb.foreign_null
innodb.foreign_sql_mode innodb.innodb-fk main.foreign_key rpl.rpl_foreign_key_innodb versioning.foreign
""".split()
LISTS = {"quick": QUICK, "foreign": FOREIGN}
TEXTS = {".test", ".inc", ".opt", ".cnf", ".combinations", ".sql"}
# Errors for features that EVENKEEL refuses by name (docs/user/mariadb.md).
REFUSED = re.compile(r"doesn't support (SPATIAL|FULLTEXT)|DELAYED option not supported|"
                     r"<(DATA|INDEX) DIRECTORY> option ignored|Unknown option '|ALGORITHM=(INPLACE|INSTANT|NOCOPY) is not supported|LOCK=NONE is not supported|"
                     r"BINLOG_FORMAT = STATEMENT|must be of type TIMESTAMP\(6\) for system-versioned|"
                     r"Change to/from native system versioning engine|doesn't have this option|"
                     r"Table storage engine '\w+' does not support", re.I)
# Errors of InnoDB for what EVENKEEL does.
REFUSED_THERE = re.compile(r"\"Wrong create options\"|InnoDB: assuming |"
                           r"(ALGORITHM|LOCK)=\w+ is not supported|Specified key was too long|Index column size too large|"
                           r"Tablespace is missing|engine for the table doesn't support repair")
# What MTR says of a statement that failed or did not fail, over several lines if the statement has them.
REMARK = re.compile(r"^(?:mysqltest: )?(?:In included file.*\n(?:included from.*\n)*)?At line \d+: query '"
                    r"(?:.|\n)*?' (?:failed(: .*)?|failed .*|(succeeded) .*)\n?", re.M)
# Whether an ALTER copied the table shows in its count of rows.
COUNTS = re.compile(r"^(affected rows: \d+|info: Records: .*)$")
# Queries of FULLTEXT indexes, which are not there.
AGAINST = re.compile(r"\bmatch\s*\(.*\bagainst\b", re.I)
# Errors about a table that is not there, or is as it was, because a statement before was refused.
FOLLOWS = re.compile(r"doesn't exist|Unknown table|already exists|Unknown column|Can't DROP|Duplicate (column|key) name|Unknown VIEW|"
                     r"Unknown prepared statement")
NAMES = re.compile(r"(?:\b(?:table|from|(?:insert|replace)(?:\s+ignore)?(?:\s+into)?|into|update|join|on|handler)\s+"
                   r"|\btable_name\s*=\s*)(?:if\s+(?:not\s+)?exists\s+)?[`'\"]?([\w.#$]+)", re.I)
CREATED = re.compile(r"\s*create\s+(?:or\s+replace\s+)?(?:temporary\s+)?table\s+[`'\"]?([\w.#$]+)", re.I)
ESTIMATES = re.compile(r"^\s*(explain|analyze|desc(ribe)?\s+(select|extended|update|delete|insert|replace)"
                       r"|show\s+(table status|index|indexes|keys|profile|explain)|.*\binformation_schema\.(tables|"
                       r"statistics|optimizer_trace|partitions)\b|.*last_query_cost|show\s+(global |session )?status)", re.I)

# A plan, behind the last line of a long statement, and how a table is kept.
PLAN = re.compile(r"\bid\tselect_type\t|\"query_block\": \{|\bROW_FORMAT\b|\tRow_format\t|\bData_length: |"
                  r"\"access_type\": |\"cost\": |Handler_read_|\bpages_accessed|<options Name=")


def suite_root():
    """The suites of the installed server's version."""
    found = subprocess.run(["bash", "scripts/mariadb.sh", "suite"], cwd=ROOT, capture_output=True, text=True)
    if found.returncode:
        sys.exit(found.stderr)
    return pathlib.Path(found.stdout.strip())


def with_engine(text, engine):
    for pattern, to in SUBSTITUTIONS:
        text = pattern.sub(to.format(engine), text)
    # What both have: so that tests that wait for locks wait as long, and those of snapshot isolation have it.
    return re.sub(rf"\binnodb{BOTH_HAVE}", engine.lower(), text, flags=re.I)


def combinations(text):
    """The combinations of a file that differ once one engine stands for all, with row-based binary logs: one of
    those that only change InnoDB's own options, one of those that only differ in the engine."""
    head, *sections = re.split(r"^(?=\[)", text, flags=re.M)
    kept, bodies = [], set()
    for section in sorted(sections, key=lambda section: not section.startswith("[16k]")):
        options = section.split("\n", 1)[1].split()
        if re.match(r"\[(stmt|mix)\]", section):
            continue
        own = bool(options) and all(re.match(r"(--)?(loose-|skip-)*(innodb|evenkeel)[-_]", option) for option in options)
        body = "innodb" if own else " ".join(options)
        if not options or body not in bodies:
            kept.append(section)
        bodies.add(body)
    return head + "".join(kept)


def copy_suite(source, to, engine):
    """A folder of tests in which `engine` stands for the others; results are left out."""
    for path in source.rglob("*"):
        target = to / path.relative_to(source)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif path.suffix in (".result", ".rdiff"):
            continue
        elif path.suffix in TEXTS:
            target.parent.mkdir(parents=True, exist_ok=True)
            text = with_engine(path.read_bytes().decode("latin1"), engine)
            target.write_bytes((combinations(text) if path.suffix == ".combinations" else text).encode("latin1"))
            if os.access(path, os.X_OK):
                target.chmod(0o755)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path.resolve())


def make_tree(out, engine, suites):
    """The server's tree, made of links but for the tests themselves: where MTR runs."""
    source, tree = suite_root() / "usr", out / engine / "usr"
    shutil.rmtree(tree, ignore_errors=True)
    tests = tree / "share/mysql/mysql-test"
    (tree / "lib/mysql/plugin").mkdir(parents=True)
    (tests / "suite").mkdir(parents=True)
    for name in ("bin", "sbin"):
        (tree / name).symlink_to(source / name)
    for path in (source / "lib/mysql/plugin").iterdir():
        (tree / "lib/mysql/plugin" / path.name).symlink_to(path)
    plugin = pathlib.Path(os.environ.get("EVENKEEL_PLUGIN_DIR", ROOT / "target/plugin")) / "ha_evenkeel.so"
    if not plugin.exists():
        sys.exit("make plugin first")
    shutil.copy(plugin, tree / "lib/mysql/plugin")
    for path in (source / "share/mysql").iterdir():
        if path.name != "mysql-test":
            (tree / "share/mysql" / path.name).symlink_to(path)
    for path in (source / "share/mysql/mysql-test").iterdir():
        if path.name not in ("suite", "main", "include", "lib", "mariadb-test-run.pl", "mtr"):
            (tests / path.name).symlink_to(path)
    for name in ("main", "include"):
        copy_suite(source / "share/mysql/mysql-test" / name, tests / name, engine)
    for path in (source / "share/mysql/mysql-test/suite").iterdir():
        if path.name in suites:
            copy_suite(path, tests / "suite" / path.name, engine)
        else:
            (tests / "suite" / path.name).symlink_to(path)
    # MTR records with one worker only, since it would write one file from two tests: here none is written twice.
    shutil.copytree(source / "share/mysql/mysql-test/lib", tests / "lib")
    cases = tests / "lib/mtr_cases.pm"
    # Each combination of a test records a file of its own.
    one, own = '"/$tname.result"', '"/" . join(",", $tname, sort @{$tinfo->{combinations} || []}) . ".result"'
    assert one in cases.read_text()
    cases.write_text(cases.read_text().replace(one, own))
    runner = (source / "share/mysql/mysql-test/mariadb-test-run.pl").read_text()
    alone = r"if \( \$opt_record \) \{\s*# Use only one worker[^}]*\}"
    (tests / "mariadb-test-run.pl").write_text(re.sub(alone, "", runner))
    return tests


def tests_of(names):
    """The names of all tests of the suites, or those named one by one."""
    tests, found = suite_root() / "usr/share/mysql/mysql-test", []
    for name in (test for name in names for test in LISTS.get(name, [name])):
        if "." in name:
            found.append(name)
            continue
        folder = tests / "main" if name == "main" else tests / "suite" / name
        folder = folder / "t" if (folder / "t").is_dir() else folder
        found += [f"{name}.{path.stem}" for path in sorted(folder.glob("*.test"))]
    left_out = Expected().left_out(found)
    if left_out:
        print(f"{len(left_out):5}  left out by name")
    return [name for name in found if name not in left_out]


def as_shipped(name, kept):
    """Whether a test printed what the server's own result file of it holds, but for the names of engines."""
    shipped = result_of(suite_root() / "usr/share/mysql/mysql-test", name.split(",")[0])
    if kept.suffix != ".pass" or not shipped.exists():
        return False
    ours, theirs = (re.sub(rf"\b{REPLACED}", "InnoDB", same_name(path.read_text("latin1")), flags=re.I)
                    for path in (kept, shipped))
    return ours == theirs


def result_of(tests, name):
    """Where MTR keeps what a test printed."""
    suite, test = name.split(".", 1)
    folder = tests / "main" if suite == "main" else tests / "suite" / suite
    folder = folder / "r" if (folder / "t").is_dir() else folder
    return folder / f"{test}.result"


def told_of(name, log):
    """What MTR says of a test that failed: up to the line of the next test."""
    test, *parts = name.split(",")
    start = re.escape(test) + (f" '(?:{'|'.join(map(re.escape, parts))}|,)+'" if parts else "")
    found = re.search(rf"^{start} .*\[ (?:\d+ )?fail \](?:.*\n)(?:(?!\S+\.\S+ .*\[ |---|The servers ).*\n)*", log, re.M)
    return found.group(0) if found else ""


def run_mtr(options, engine, tests, names):
    """Runs the tests in the tree `tests`; the log is left beside it, and the servers' own logs."""
    default = [f"--default-storage-engine={engine}", "--plugin-load-add=ha_evenkeel.so", "--ignore-db-dirs=#evenkeel",
               "--loose-enable-partition", "--evenkeel-memory-size=512M", "--evenkeel-log-size=64M", "--loose-innodb",
               # A test that waits for a metadata lock that is never given ends in a minute.
               "--binlog-format=row", "--lock-wait-timeout=60"]
    place = options.out / engine
    var = folder_in_memory("suites-") or place / "var"
    try:
        with (place / "log").open("w") as to:
            subprocess.run(["perl", "mariadb-test-run.pl", f"--vardir={var}", "--record", "--force", "--force",
                            "--max-test-fail=0", "--retry=0", f"--parallel={options.jobs}", "--testcase-timeout=5",
                            "--suite-timeout=600", "--max-save-core=0", "--max-save-datadir=0", "--nowarnings",
                            *(f"--mysqld={option}" for option in default), *names],
                           cwd=tests, stdout=to, stderr=subprocess.STDOUT, check=False)
    finally:
        if var != place / "var":
            remove_but_logs(var, place / "var")


def run_engine(options, engine, names):
    out = options.out
    tests = make_tree(out, engine, {name.split(".")[0] for name in names})
    run_mtr(options, engine, tests, names)
    kept = out / engine / "printed"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    text = (out / engine / "log").read_text("latin1")
    found = re.findall(r"^(\S+\.\S+)(?: '([^']*)')?(?:\s+w\d+)?\s+\[ (?:\d+ )?(\w+)", text, re.M)
    states = {",".join([name, *sorted(filter(None, combination.split(",")))]): state for name, combination, state in found}
    for name in set(names) - {name for name, _, _ in found}:
        states[name] = "missing"
    for name, state in states.items():
        told = told_of(name, text).encode() if state == "fail" else b""
        if state == "pass":
            told = result_of(tests, name).read_bytes()
        (kept / f"{name}.{state}").write_bytes(told)


def statements(lines):
    """Blocks of a printed test: a statement, then what it gave. A statement's lines are those that the test file
    could hold; MTR prints them as they stand, so they are told by what both outputs have in common."""
    block, blocks = [], []
    starts = re.compile(r"^\s*(select|insert|update|delete|replace|create|drop|alter|explain|analyze|set|show|begin|commit|"
                        r"rollback|handler|flush|lock|unlock|prepare|execute|deallocate|connect|disconnect|connection|call|"
                        r"truncate|desc|describe|use|do|with|xa|savepoint|release|check|optimize|rename|load|start|"
                        r"values|table|grant|revoke|kill|change|stop|reset)\b(?!\t)|^\s*(#|--|\(|include/)", re.I)
    for line in lines:
        if starts.match(line) and block:
            blocks.append(block)
            block = []
        block.append(line)
    if block:
        blocks.append(block)
    return blocks


def same_name(text):
    text = re.sub(r"\bevenkeel\b|(?<=_)EVENKEEL\b|(?<=ENGINE=)(DEFAULT_|NON_DEFAULT_)?ENGINE\b", "InnoDB", text, flags=re.I)
    text = re.sub(rf"\bevenkeel{BOTH_HAVE}", "innodb", text, flags=re.I)
    return re.sub(r"\binnodb\b", "InnoDB", text, flags=re.I)


def classify(ours, theirs, refused):
    """The class of a differing block, '' if none explains it. `refused`: tables that are not what they are with
    the other engine, since a statement about them was refused."""
    said = ours[0] if ours else theirs[0]
    both = " ".join(ours + theirs)
    names = {name.split(".")[-1].lower() for name in NAMES.findall(both)}
    if REFUSED.search(" ".join(ours)) or REFUSED_THERE.search(" ".join(theirs)) or AGAINST.search(said) or "BINLOG_FORMAT = STATEMENT" in both:
        refused |= names
        return "refused"
    if names & refused or (refused and FOLLOWS.search(both)):
        return "refused"
    if sorted(ours) == sorted(theirs) and not re.search(r"order\s+by", both, re.I):
        return "order"
    if any(ESTIMATES.match(line) for line in (said, theirs[0] if theirs else "")) or PLAN.search(both):
        return "explain"
    if re.match(r"\s*(alter|create|drop|optimize|change|add)\b", said, re.I) and (
            [line for line in ours if not COUNTS.match(line)] == [line for line in theirs if not COUNTS.match(line)]):
        return "alter"
    if re.search(r"\binnodb_\w+|\bpage_compressed\b|\bencrypted\b", both, re.I) or "ENGINE INNODB STATUS" in both.upper():
        return "variables"
    return ""


def lines_of(text):
    """What a test printed, without the remarks of its runner, the files of InnoDB, and the events that a thread of the
    server writes to the binary log when it comes to it."""
    # An error that the test does not expect is told in no other line, nor one that does not come where the test prints
    # nothing.
    left = REMARK.sub(lambda remark: f"ERROR{remark[1]}\n" if remark[1] else "SUCCEEDED\n" if remark[2] else "",
                      same_name(text))
    # What a wait that timed out shows: the numbers and ports of connections, and what they did so far.
    left = re.sub(r"^(\d+\t(root|system user|event_scheduler|mysqltest_\w+)\t|WHERE ID = \d+$).*\n?", "", left, flags=re.M)
    left = re.sub(r"^(# at .*\n)?.*\tBinlog[_ ]checkpoint\b.*\n?", "", left, flags=re.M)
    # The number of a transaction in the binary log counts the statements that the server ran so far.
    left = re.sub(r"(?<=\tXid = )\d+$", "#", left, flags=re.M)
    left = re.sub(r"^(mysqltest: |.*\.ibd$|included from |exec of '|Output from before failure:).*\n?", "", left, flags=re.M)
    return left.splitlines()


def compare_test(ours, theirs):
    """(classes met, differences that none explains)."""
    met, left, refused = set(), [], set()
    if same_name(ours) == same_name(theirs):
        return ({"name"} if ours != theirs else set()), []
    a, b = (statements(lines_of(text)) for text in (theirs, ours))
    matcher = difflib.SequenceMatcher(None, ["\n".join(x) for x in a], ["\n".join(x) for x in b], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            # A table that both have made anew is the same again.
            refused -= {match[1].split(".")[-1].lower() for block in b[j1:j2] if (match := CREATED.match(block[0]))
                        and not any(line.startswith("ERROR") for line in block)}
            continue
        if tag == "replace" and i2 - i1 == j2 - j1:
            pairs = [(b[j], a[i]) for i, j in zip(range(i1, i2), range(j1, j2))]
        else:
            pairs = [([l for x in b[j1:j2] for l in x], [l for x in a[i1:i2] for l in x])]
        for mine, other in pairs:
            kind = classify(mine, other, refused)
            if kind:
                met.add(kind)
            else:
                text = "\n".join(difflib.unified_diff(other, mine, "InnoDB", "EVENKEEL", lineterm="", n=2))
                left.append((other + mine, text))
    return met, left


class Expected:
    """suites.expected: the differences that are meant, by test and the beginning of a line of the statement, and the
    tests that do not run, by patterns of their names."""

    def __init__(self):
        lines = (ROOT / "plugin/mariadb/tests/suites.expected").read_text().splitlines()
        rows = [[cell.strip() for cell in line.split(" | ")] for line in lines if line and not line.startswith("#")]
        for row in rows:
            assert len(row) == 3 and all(row) and len(row[2].split()) > 2, f"no test, statement and reason: {row}"
        self.patterns = [test for test, start, _ in rows if start == "left out"]
        self.rows = {(test, start): reason for test, start, reason in rows if start != "left out"}
        self.met = set()

    def left_out(self, names):
        """Those of the tests that a pattern leaves out; one that the list says more of runs."""
        listed = {test for test, _ in self.rows}
        return {name for name in names if name not in listed
                and any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)}

    def has(self, name, block):
        """Whether this test may differ in a block with a line that begins so; `*` stands for all of a test."""
        rows = {(test, start) for test, start in self.rows if test == name.split(",")[0] and (
            start == "*" or any(line.strip().startswith(same_name(start)) for line in block))}
        self.met |= rows
        return bool(rows)

    def not_met(self, names):
        """Those of the tests that ran which did not come: the list says what is, not what was."""
        ran = {name.split(",")[0] for name in names}
        return [f"{test} | {start}" for (test, start), reason in self.rows.items()
                if test in ran and (test, start) not in self.met and not reason.startswith("at times: ")]


def kinds_of(name, base, ours, expected, report):
    """The classes of one test's differences; `wrong` if there is one that none explains, which goes to the report."""
    if base.suffix != ".pass":
        return {f"{base.suffix[1:]} on InnoDB"}
    if ours is None or ours.suffix != ".pass":
        text = ours.read_text("latin1") if ours else ""
        state = ours.suffix[1:] if ours else "missing"
        if REFUSED.search(text):
            return {"refused"}
        if expected.has(name, [state]):
            return {"expected"}
        report.write(f"==== {name}: {state}\n{text}\n")
        return {"wrong"}
    met, left = compare_test(ours.read_text("latin1"), base.read_text("latin1"))
    new = [text for block, text in left if not expected.has(name, block)]
    if new:
        report.write(f"==== {name}\n" + "\n".join(new) + "\n")
        return {"wrong"}
    return met | ({"expected"} if left else set()) or {"same"}


def compare(options):
    kept = {engine: {p.stem: p for p in (options.out / engine / "printed").glob("*")} for engine in ENGINES}
    counts, wrong, ran, expected = {}, [], [], Expected()
    with (options.out / "differences").open("w") as report:
        for name in sorted(kept["EVENKEEL"].keys() | kept["InnoDB"].keys()):
            ours, base = kept["EVENKEEL"].get(name), kept["InnoDB"].get(name)
            if base is None and ours.suffix == ".pass" and as_shipped(name, ours):
                kinds = {"as shipped"}
            elif base is None:
                # A combination that InnoDB's copy does not have, or a test that did not run with it.
                kinds = {"wrong"}
                report.write(f"==== {name}: {ours.suffix[1:]}, and not run with InnoDB\n")
            else:
                kinds = kinds_of(name, base, ours, expected, report)
            if "wrong" in kinds:
                wrong.append(name)
            if "as shipped" in kinds or base and base.suffix == ".pass":
                ran.append(name)
            for kind in kinds:
                counts[kind] = counts.get(kind, 0) + 1
    for kind, count in sorted(counts.items()):
        print(f"{count:5}  {kind}")
    for name in wrong:
        print(f"differs: {name}")
    spent = expected.not_met(ran)
    for row in spent:
        print(f"suites.expected has what did not differ: {row}")
    print(f"{len(set(ran) - set(wrong))} passed, {len(wrong)} failed; {options.out / 'differences'}")
    return 1 if wrong or spent or not ran else 0


def run(options):
    """Each engine's run, of InnoDB only the tests that need it."""
    names = tests_of(options.tests)
    if options.only:
        return run_engine(options, options.only, names)
    run_engine(options, "EVENKEEL", names)
    kept = (options.out / "EVENKEEL/printed").iterdir()
    rest = names if options.both else sorted({p.stem.split(",")[0] for p in kept if not as_shipped(p.stem, p)})
    shutil.rmtree(options.out / "InnoDB", ignore_errors=True)
    if rest:
        run_engine(options, "InnoDB", rest)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "compare"])
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/suites")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=ENGINES)
    parser.add_argument("--both", action="store_true")
    options = parser.parse_intermixed_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what == "run":
        run(options)
    return 0 if options.only else compare(options)


if __name__ == "__main__":
    sys.exit(main())
