#!/usr/bin/env python3
"""Plants one fault after another and runs the test named for it, which must fail with the fault and pass without it.
Of the faults of the simulator crates/sim/tests/planted.rs is in charge.

scripts/test_planted.py [crates | plugin]; prints a line for each and "N caught, N not caught".
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Faults that a test of a crate catches.
OF_CRATES = [
    ("DurableAtSyncEnd", "evenkeel-log", "a_sync_acknowledges_what_was_written_before_it"),
    ("LogEndReadLate", "evenkeel", "no_dirty_page_is_older_than_where_page_redo_begins"),
    ("FirstSlotOnly", "evenkeel", "a_torn_slot_leaves_the_other_one"),
    ("PinsIgnored", "evenkeel-runs", "a_generation_is_flushed_only_when_it_is_unpinned"),
    ("RealSyncSkipped", "evenkeel-io", "a_sync_calls_the_system"),
    ("RealNamesNotSynced", "evenkeel-io", "a_sync_calls_the_system"),
    ("ShortWriteTaken", "evenkeel-io", "a_short_write_is_continued_and_reports_its_error"),
]
PLANTED = ROOT / "target/plugin-planted"
# A statement that a fault has go on for ever is a test that fails after a minute.
MTR = {"EVENKEEL_MTR_ARGS": "--testcase-timeout=1", "EVENKEEL_MTR_JOBS": "1", "EVENKEEL_PLUGIN_DIR": str(PLANTED),
       "EVENKEEL_MTR_DIR": str(ROOT / "target/mtr-planted")}


def ended(command, environment):
    """The exit code of a test, and what it printed."""
    base = {name: value for name, value in os.environ.items() if name != "EVENKEEL_PLANTED"}
    done = subprocess.run(command, cwd=ROOT, env={**base, **environment}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.returncode, done.stdout


def tried(fault, rung, command, environment):
    """Whether the command fails with the fault, by what it tests and by nothing else, and passes without."""
    code, out = ended(command, environment)
    if code:
        outcome = "fails without it too"
    else:
        code, out = ended(command, {**environment, "EVENKEEL_PLANTED": fault})
        # What failed is a test.
        is_test = re.search(r"panicked at|\[ ([0-9]+ )?fail \]", out)
        outcome = "not caught" if not code else "caught" if is_test else "was not run"
    print(f"{fault:<22} {rung:<58} {outcome}", flush=True)
    if outcome in ("fails without it too", "was not run"):
        print("\n".join(out.splitlines()[-20:]), flush=True)
    return outcome == "caught"


def of_crates():
    return [tried(fault, f"{crate} {test}", ["cargo", "test", "--quiet", "-p", crate, "--lib", test], {})
            for fault, crate, test in OF_CRATES]


def holds(plugin, name):
    return name.encode() in (plugin / "ha_evenkeel.so").read_bytes()


def of_plugin():
    """Faults of the plugin, each of which a test of our suite of the server catches."""
    release = pathlib.Path(os.environ.get("EVENKEEL_PLUGIN_DIR") or ROOT / "target/plugin")
    if subprocess.run(["bash", ROOT / "scripts/build-planted.sh"], stdout=subprocess.DEVNULL).returncode:
        raise SystemExit("the plugin with planted faults does not build")
    sources = [file.read_text() for file in sorted((ROOT / "plugin/mariadb").glob("*.cc"))]
    faults = sorted(fault for text in sources for fault in re.findall(r'plant\("([A-Za-z]+)"\)', text))
    caught = []
    # No other build has anything of it, by the same look that finds it in the planted one.
    for name in ["EVENKEEL_PLANTED", *faults]:
        if not holds(PLANTED, name) or holds(release, name):
            print(f"{name}: not in the planted plugin, or in that of users")
            caught.append(False)
    command = ["bash", "scripts/test-mtr.sh", "evenkeel.small_things"]
    return caught + [tried(fault, "mtr evenkeel.small_things", command, MTR) for fault in faults]


def main():
    what = sys.argv[1:] or ["crates", "plugin"]
    caught = (of_crates() if "crates" in what else []) + (of_plugin() if "plugin" in what else [])
    print(f"{sum(caught)} caught, {caught.count(False)} not caught")
    return 0 if caught and all(caught) else 1


if __name__ == "__main__":
    sys.exit(main())
