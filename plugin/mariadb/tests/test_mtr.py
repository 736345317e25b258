#!/usr/bin/env python3
"""The server's own test suites on ENGINE=EVENKEEL, through the overlay in plugin/mariadb/mysql-test.

test_mtr.py [quick | all | engines | innodb | as-innodb | TEST...]; prints what failed, then the sums.
quick: our own suite; all: storage_engine too; engines: engines/funcs and engines/iuds with EVENKEEL as default
(engines.def has the tests left out, and why), and the one that needs larger pages with those; innodb: storage_engine
as InnoDB runs it, to compare; as-innodb: InnoDB with those results of ours that are accepted because they are
InnoDB's. TEST is a name as MTR has it: storage_engine-evenkeel.1st.

What overlay and README may leave out, and how much must pass, mtr_overlay.py says. EVENKEEL_MTR_ARGS adds options,
EVENKEEL_MTR_JOBS (2) is how many servers' workers there are. The servers' files are in memory (/dev/shm) if there is
room, else in EVENKEEL_MTR_DIR (target/mtr), where what the servers have logged stays.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import mtr_overlay
from servers import ROOT, Missing, folder_in_memory, plugin_folder, remove_but_logs

OVERLAY = mtr_overlay.OVERLAY
OURS = "storage_engine-evenkeel,storage_engine/trx-evenkeel,storage_engine/parts-evenkeel"
INNODBS = OURS.replace("evenkeel", "innobase")
DEFAULT = ["--combination=--default-storage-engine=evenkeel", "--mysqld=--plugin-load-add=ha_evenkeel.so",
           "--mysqld=--ignore-db-dirs=#evenkeel", "--mysqld=--loose-enable-partition"]
# InnoDB's count of a table's rows is one too high for a while where a recalculation in the background meets an
# insert; none is needed here.
AS_INNODB = ["--mysqld=--innodb", "--mysqld=--innodb-stats-auto-recalc=0"]
# Of a failure what MTR says of it too: who reads this may not have the log.
LINES_OF_FAILURE = 60


def suite_of_server():
    said = subprocess.run(["bash", ROOT / "scripts/mariadb.sh", "suite"], stdout=subprocess.PIPE, text=True)
    if said.returncode:
        raise Missing("the server's suite is missing")
    return pathlib.Path(said.stdout.strip())


def link_all(source, target, without=()):
    target.mkdir(parents=True, exist_ok=True)
    for part in source.iterdir():
        if part.name not in without:
            (target / part.name).symlink_to(part)


def make_tree(suite, folder):
    """A tree of links of our own, so that runs of several working copies do not meet; returns MTR's folder in it."""
    tree = folder / "usr"
    shutil.rmtree(tree, ignore_errors=True)
    plugins, mtr = tree / "lib/mysql/plugin", tree / "share/mysql/mysql-test"
    server = suite / "usr"
    tests = server / "share/mysql/mysql-test"
    link_all(server / "lib/mysql/plugin", plugins, without=["ha_evenkeel.so"])
    shutil.copy(plugin_folder() / "ha_evenkeel.so", plugins)
    for part in ("bin", "sbin"):
        (tree / part).symlink_to(server / part)
    link_all(server / "share/mysql", mtr.parent, without=["mysql-test"])
    link_all(tests, mtr, without=["plugin", "suite"])
    link_all(tests / "suite", mtr / "suite", without=["storage_engine"])
    # The server's results of storage_engine are older than the server.
    shutil.copytree(tests / "suite/storage_engine", mtr / "suite/storage_engine")
    results = list((mtr / "suite/storage_engine").rglob("*.result"))
    subprocess.run(["sed", "-i", "-f", OVERLAY / "storage_engine/server-text.sed", *results], check=True)
    link_all(tests / "plugin", mtr / "plugin", without=["evenkeel"])
    # A copy: MTR writes beside the results it compares.
    shutil.copytree(OVERLAY, mtr / "plugin/evenkeel")
    return mtr


def as_innodb(mtr):
    """The tests whose results are InnoDB's, with InnoDB."""
    define = mtr / "plugin/evenkeel/storage_engine/define_engine.inc"
    lines = define.read_text().split("\n")
    define.write_text("\n".join(line.replace("EVENKEEL", "InnoDB", 1) for line in lines))
    names = [test for name, test in mtr_overlay.classes() if name == "I"]
    return AS_INNODB + [f"storage_engine/{test.split('/')[0]}-evenkeel.{test.split('/')[1]}" if "/" in test
                        else f"storage_engine-evenkeel.{test}" for test in names]


def runs_of(what, mtr):
    """MTR's arguments for each run, and what is held against the log."""
    if what == ["quick"] or not what:
        return [["--suite=evenkeel"]], None
    if what == ["all"]:
        return [[f"--suite={OURS},evenkeel", "--big-test"]], mtr_overlay.storage_engine
    if what == ["innodb"]:
        return [[f"--suite={INNODBS}"]], None
    if what == ["as-innodb"]:
        return [as_innodb(mtr)], None
    if what == ["engines"]:
        large = ["--suite=engines/funcs", *DEFAULT, "--mysqld=--evenkeel-page-size=16384",
                 "engines/funcs.crash_manycolumns_number"]
        return [["--suite=engines/funcs,engines/iuds", *DEFAULT, f"--skip-test-list={OVERLAY}/engines.def"],
                large], mtr_overlay.engines
    return [what], None


def run_mtr(mtr, folder, arguments):
    """Servers of two workers; a failure is not tried again. Returns what MTR has said, and whether all passed."""
    var = folder_in_memory("mtr-") or folder / "var"
    command = ["perl", "mtr", f"--vardir={var}", "--force", "--max-test-fail=0", "--retry=0",
               f"--parallel={os.environ.get('EVENKEEL_MTR_JOBS') or 2}", "--testcase-timeout=15",
               "--suite-timeout=120", *os.environ.get("EVENKEEL_MTR_ARGS", "").split(), *arguments]
    log = folder / "log.run"
    try:
        with open(log, "w") as file:
            code = subprocess.run(command, cwd=mtr, stdout=file, stderr=subprocess.STDOUT).returncode
    finally:
        if var != folder / "var":
            remove_but_logs(var, folder / "var")
    text = log.read_text(errors="replace")
    log.unlink()
    # MTR's own verdict also counts the server's remark that the plugin is not stable.
    return text, code == 0 or re.search("^Completed: All", text, re.M) is not None


def tell_failures(text):
    left = 0
    for line in text.splitlines():
        if re.search(r"\[ (disabled|skipped) \]", line):
            print(line)
        if re.search(r"\[ ([0-9]+ )?fail \]", line):
            left = LINES_OF_FAILURE
        elif re.search(r"\[ ([0-9]+ )?pass \]", line):
            left = 0
        if left:
            print(line)
            left -= 1


def test(what):
    suite = suite_of_server()
    plugin_folder()
    folder = pathlib.Path(ROOT, os.environ.get("EVENKEEL_MTR_DIR") or "target/mtr")
    folder.mkdir(parents=True, exist_ok=True)
    if not mtr_overlay.holds(mtr_overlay.papers):
        return False
    mtr = make_tree(suite, folder)
    runs, threshold = runs_of(what, mtr)
    said = [run_mtr(mtr, folder, arguments) for arguments in runs]
    text, is_right = "".join(text for text, _ in said), all(is_right for _, is_right in said)
    log = folder / "log"
    log.write_text(text)
    if runs == [what]:
        print(text)
        return is_right
    tell_failures(text)
    passed, failed, disabled = [text.count(f"[ {word} ]") for word in ("pass", "fail", "disabled")]
    print(f"{passed} passed, {failed} failed, {disabled} disabled: {log}", flush=True)
    if threshold and not mtr_overlay.holds(threshold, log, suite / "usr/share/mysql/mysql-test/suite"):
        is_right = False
    return is_right and failed == 0 and passed > 0


def main():
    try:
        return 0 if test(sys.argv[1:]) else 1
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
