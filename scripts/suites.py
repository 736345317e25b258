#!/usr/bin/env python3
"""The server's own suites with one engine in the place of InnoDB, MyISAM and Aria, on InnoDB and on EVENKEEL.

    suites.py run [--out DIR] [--jobs N] [--seconds N] SUITE | SUITE.TEST ...
    suites.py compare [--out DIR]

`run` makes a copy of the suites for each engine, in which every CREATE, ALTER, option and variable that names
InnoDB, MyISAM or Aria names that engine, and keeps what each test prints. `compare` holds the outputs against
each other, statement by statement, sorts the differences into classes and prints those that no class
explains; it exits with 1 if there is one. `run` compares too.

A statement that fails does not end a test: the rest of it is compared too.

Classes (closed): `name` (the engine's name alone), `explain` (output of EXPLAIN, ANALYZE and of what shows
estimates), `order` (the same rows in another order, where nothing orders them), `variables` (InnoDB's own settings,
status variables, tables and files), `refused` (a feature that EVENKEEL refuses by name, and statements about a table
that exists on one side only since then). Tests that InnoDB itself cannot run in this way, and those skipped, are
counted."""
import argparse
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENGINES = ("InnoDB", "EVENKEEL")
REPLACED = r"(?:innodb|myisam|aria|maria)\b"
SUBSTITUTIONS = [
    # ENGINE=x, default_storage_engine=x, STORAGE ENGINE x; SHOW ENGINE x STATUS is InnoDB's own.
    (re.compile(rf"(?<!show )(engine\s*=\s*['\"`]?){REPLACED}", re.I), r"\g<1>{}"),
    (re.compile(rf"(storage engine\s+['\"`]?){REPLACED}", re.I), r"\g<1>{}"),
    (re.compile(rf"(let\s+\$?\w*(?:engine|type)\w*\s*=\s*['\"]?){REPLACED}", re.I), r"\g<1>{}"),
]
TEXTS = {".test", ".inc", ".opt", ".cnf", ".combinations", ".sql"}
# Errors for features that EVENKEEL refuses by name (docs/user/mariadb.md).
REFUSED = re.compile(r"doesn't support (SPATIAL|FULLTEXT)|does not support foreign keys|DELAYED option not supported|"
                     r"InnoDB: .*(foreign key|DATA DIRECTORY)|ALGORITHM=(INPLACE|INSTANT|NOCOPY) is not supported|"
                     r"BINLOG_FORMAT = STATEMENT", re.I)
# Errors about a table that is not there, or is as it was, because a statement before was refused.
FOLLOWS = re.compile(r"doesn't exist|Unknown table|already exists|Unknown column|Can't DROP|Duplicate (column|key) name")
NAMES = re.compile(r"(?:table|from|into|update|join|on|handler)\s+(?:if\s+(?:not\s+)?exists\s+)?[`'\"]?([\w.#$]+)", re.I)
ESTIMATES = re.compile(r"^\s*(explain|analyze|desc(ribe)?\s+(select|extended|update|delete|insert|replace)"
                       r"|show\s+(table status|index|indexes|keys|profile|explain)|.*\binformation_schema\.(tables|"
                       r"statistics|optimizer_trace|partitions)\b|.*last_query_cost|show\s+(global |session )?status)", re.I)


def suite_root():
    """The suites of the installed server's version."""
    found = subprocess.run(["bash", "scripts/mariadb.sh", "suite"], cwd=ROOT, capture_output=True, text=True)
    if found.returncode:
        sys.exit(found.stderr)
    return pathlib.Path(found.stdout.strip())


def with_engine(text, engine):
    for pattern, to in SUBSTITUTIONS:
        text = pattern.sub(to.format(engine), text)
    return text


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
            text = path.read_bytes().decode("latin1")
            target.write_bytes(with_engine(text, engine).encode("latin1"))
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
        if path.name not in ("suite", "main", "include", "mariadb-test-run.pl", "mtr"):
            (tests / path.name).symlink_to(path)
    for name in ("main", "include"):
        copy_suite(source / "share/mysql/mysql-test" / name, tests / name, engine)
    for path in (source / "share/mysql/mysql-test/suite").iterdir():
        if path.name in suites:
            copy_suite(path, tests / "suite" / path.name, engine)
        else:
            (tests / "suite" / path.name).symlink_to(path)
    # MTR records with one worker only, since it would write one file from two tests: here none is written twice.
    runner = (source / "share/mysql/mysql-test/mariadb-test-run.pl").read_text()
    alone = r"if \( \$opt_record \) \{\s*# Use only one worker[^}]*\}"
    (tests / "mariadb-test-run.pl").write_text(re.sub(alone, "", runner))
    return tests


def tests_of(tests, names):
    """The names of all tests of the suites, or those named one by one."""
    found = []
    for name in names:
        if "." in name:
            found.append(name)
            continue
        folder = tests / "main" if name == "main" else tests / "suite" / name
        folder = folder / "t" if (folder / "t").is_dir() else folder
        found += [f"{name}.{path.stem}" for path in sorted(folder.glob("*.test"))]
    return found


def result_of(tests, name):
    """Where MTR keeps what a test printed."""
    suite, test = name.split(".", 1)
    folder = tests / "main" if suite == "main" else tests / "suite" / suite
    folder = folder / "r" if (folder / "t").is_dir() else folder
    folder.mkdir(exist_ok=True)
    return folder / f"{test}.result"


def told_of(name, log):
    """What MTR says of a test that failed: up to the line of the next test."""
    found = re.search(rf"^{re.escape(name)} .*\[ (?:\d+ )?fail \](?:.*\n)(?:(?!\S+\.\S+ .*\[ |---|The servers ).*\n)*", log, re.M)
    return found.group(0) if found else ""


def run_engine(options, engine):
    out = options.out
    suites = {name.split(".")[0] for name in options.tests}
    tests = make_tree(out, engine, suites)
    names = tests_of(tests, options.tests)
    for name in names:
        result_of(tests, name).write_text("")
    default = [f"--mysqld=--default-storage-engine={engine}", "--mysqld=--plugin-load-add=ha_evenkeel.so",
               "--mysqld=--ignore-db-dirs=#evenkeel", "--mysqld=--loose-enable-partition",
               "--mysqld=--evenkeel-memory-size=32M", "--mysqld=--evenkeel-log-size=64M",
               "--mysqld=--loose-innodb"]
    log = out / engine / "log"
    with log.open("w") as to:
        subprocess.run(["perl", "mariadb-test-run.pl", f"--vardir={out / engine / 'var'}", "--record", "--force", "--force", "--max-test-fail=0",
                        "--retry=0", f"--parallel={options.jobs}", "--testcase-timeout=5", "--suite-timeout=600",
                        "--max-save-core=0", "--max-save-datadir=0", "--nowarnings", *default, *names],
                       cwd=tests, stdout=to, stderr=subprocess.STDOUT, check=False)
    kept = out / engine / "printed"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    states = dict(re.findall(r"^(\S+\.\S+)(?: '[^']*')?(?:\s+w\d+)?\s+\[ (?:\d+ )?(\w+)", log.read_text("latin1"), re.M))
    for name in names:
        printed = result_of(tests, name)
        state = states.get(name, "missing")
        if state == "fail":
            (kept / f"{name}.fail").write_text(told_of(name, log.read_text("latin1")))
        elif state == "pass":
            (kept / f"{name}.pass").write_bytes(printed.read_bytes())
        else:
            (kept / f"{name}.{state}").write_text("")


def statements(lines):
    """Blocks of a printed test: a statement, then what it gave. A statement's lines are those that the test file
    could hold; MTR prints them as they stand, so they are told by what both outputs have in common."""
    block, blocks = [], []
    starts = re.compile(r"^\s*(select|insert|update|delete|replace|create|drop|alter|explain|analyze|set|show|begin|commit|"
                        r"rollback|handler|flush|lock|unlock|prepare|execute|deallocate|connect|disconnect|connection|call|"
                        r"truncate|desc|describe|use|do|with|xa|savepoint|release|check|optimize|rename|load|start|"
                        r"(#|--|\()|values|table|grant|revoke|kill|change|stop|reset|include/)", re.I)
    for line in lines:
        if starts.match(line) and block:
            blocks.append(block)
            block = []
        block.append(line)
    if block:
        blocks.append(block)
    return blocks


def same_name(text):
    text = re.sub(r"\bevenkeel\b", "InnoDB", text, flags=re.I)
    return re.sub(r"\binnodb\b", "InnoDB", text, flags=re.I)


def classify(ours, theirs, refused):
    """The class of a differing block, '' if none explains it. `refused`: tables that are not what they are with
    the other engine, since a statement about them was refused."""
    said = ours[0] if ours else theirs[0]
    both = " ".join(ours + theirs)
    names = {name.split(".")[-1].lower() for name in NAMES.findall(both)}
    if REFUSED.search(" ".join(ours)):
        refused |= names
        return "refused"
    if names & refused or (refused and FOLLOWS.search(both)):
        return "refused"
    if sorted(ours) == sorted(theirs) and not re.search(r"order\s+by", both, re.I):
        return "order"
    if any(ESTIMATES.match(line) for line in (said, theirs[0] if theirs else "")):
        return "explain"
    if re.search(r"\binnodb_\w+", both, re.I) or "ENGINE INNODB STATUS" in both.upper():
        return "variables"
    return ""


def lines_of(text):
    """What a test printed, without the remarks of its runner and the files of InnoDB."""
    left = re.sub(r"^(mysqltest: |.*\.ibd$|included from ).*\n?", "", same_name(text), flags=re.M)
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
                left.append("\n".join(difflib.unified_diff(other, mine, "InnoDB", "EVENKEEL", lineterm="", n=2)))
    return met, left


def compare(options):
    kept = {engine: {p.stem: p for p in (options.out / engine / "printed").iterdir()} for engine in ENGINES}
    counts, wrong = {}, []
    report = (options.out / "differences").open("w")
    for name in sorted(kept["InnoDB"]):
        base, ours = kept["InnoDB"][name], kept["EVENKEEL"].get(name)
        if base.suffix != ".pass":
            kinds = {f"{base.suffix[1:]} on InnoDB"}
        elif ours is None or ours.suffix != ".pass":
            text = ours.read_text("latin1") if ours else ""
            refused = REFUSED.search(text)
            kinds = {"refused"} if refused else {"wrong"}
            if not refused:
                report.write(f"==== {name}: {ours.suffix if ours else 'missing'}\n{text}\n")
        else:
            met, left = compare_test(ours.read_text("latin1"), base.read_text("latin1"))
            kinds = {"wrong"} if left else (met or {"same"})
            if left:
                report.write(f"==== {name}\n" + "\n".join(left) + "\n")
        if "wrong" in kinds:
            wrong.append(name)
        for kind in kinds:
            counts[kind] = counts.get(kind, 0) + 1
    for kind, count in sorted(counts.items()):
        print(f"{count:5}  {kind}")
    for name in wrong:
        print(f"differs: {name}")
    good = sum(1 for name in kept["InnoDB"]) - len(wrong)
    print(f"{good} passed, {len(wrong)} failed; {options.out / 'differences'}")
    return 1 if wrong or not good else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "compare"])
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/suites")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=ENGINES)
    options = parser.parse_intermixed_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what == "run":
        for engine in [options.only] if options.only else ENGINES:
            run_engine(options, engine)
    return compare(options) if all((options.out / e / "printed").is_dir() for e in ENGINES) else 0


if __name__ == "__main__":
    sys.exit(main())
