#!/usr/bin/env python3
"""Plants one fault after another and runs the test named for it, which must fail with the fault and pass without it.
Of the faults of the simulator crates/sim/tests/planted.rs is in charge.

scripts/test_planted.py [crates | plugin]; prints a line for each and "N caught, N not caught".
"""
import os
import pathlib
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Faults that a test of a crate catches, of its library if no other target is named.
OF_CRATES = [
    ("DurableAtSyncEnd", "evenkeel-log", "a_sync_acknowledges_what_was_written_before_it"),
    ("LogEndReadLate", "evenkeel", "no_dirty_page_is_older_than_where_page_redo_begins"),
    ("FirstSlotOnly", "evenkeel", "a_torn_slot_leaves_the_other_one"),
    ("OneCheckpointCopy", "evenkeel", "either_home_of_the_checkpoint_record_may_be_lost_at_any_moment"),
    ("PinsIgnored", "evenkeel-runs", "a_generation_is_flushed_only_when_it_is_unpinned"),
    ("RealSyncSkipped", "evenkeel-io", "a_sync_calls_the_system"),
    ("RealNamesNotSynced", "evenkeel-io", "a_sync_calls_the_system"),
    ("RootNameNotSynced", "evenkeel", "a_new_database_is_there_after_a_crash_at_any_step"),
    ("ShortWriteTaken", "evenkeel-io", "a_short_write_is_continued_and_reports_its_error"),
    ("RemovalNotHeld", "evenkeel", "files_that_a_backup_copies_are_not_removed"),
    ("PagesCopiedAfterEnd", "evenkeel", "pages_are_copied_before_the_end_is_fixed"),
    ("StaleTableHandle", "evenkeel-tables", "a_handle_follows_the_name_when_tables_are_renamed"),
    ("EntriesTakenForRows", "evenkeel-runs", "short_ranges_are_near_after_changes"),
    ("UncommittedBySnapshot", "evenkeel-tables", "read_uncommitted_finds_each_changed_row_once_by_every_index"),
    ("ChangedBelowEndNotCopied", "evenkeel", "a_change_between_the_redo_and_the_end_of_the_base_is_copied"),
    ("RunOfBaseNotRestored", "evenkeel", "runs_of_the_base_are_not_copied_again_and_are_restored"),
    ("AnyBaseTaken", "evenkeel", "a_missing_or_wrong_base_is_refused_by_verify_and_restore"),
    ("ChildrenBeforeStamp", "evenkeel --test foreign_keys", "no_interleaving_and_no_crash_leaves_an_orphan"),
    ("ParentNotLocked", "evenkeel --test foreign_keys", "a_new_foreign_key_waits_for_deletes_that_do_not_know_it"),
    ("ParentBarrierSkipped", "evenkeel --test foreign_keys", "a_new_foreign_key_waits_for_deletes_that_do_not_know_it"),
    ("ParentWasThere", "evenkeel-tables", "random_changes_of_equal_parents_equal_the_model"),
    ("LookedOnce", "evenkeel --test foreign_keys", "a_cascade_meets_rows_that_move_meanwhile"),
    ("ParkedUnseen", "evenkeel", "a_request_just_before_an_actor_leaves_its_thread_is_seen"),
    ("KeyProvedEarly", "evenkeel-tables", "an_addition_waits_for_earlier_writers_and_is_cancelled"),
    ("CascadeSkipsLocked", "evenkeel-tables", "a_cascade_waits_for_rows_that_others_hold"),
    ("CascadeForgetsIndex", "evenkeel-tables", "random_cascades_equal_the_model"),
    ("OrphansOverlooked", "evenkeel-salvage", "undamaged_rows_return_and_lost_ranges_are_exact"),
    ("ChunkNotClosed", "evenkeel-tables", "rows_committed_behind_a_drop_are_there"),
    ("ChunkWritersIgnored", "evenkeel-tables", "a_drop_keeps_old_snapshots_and_names_who_is_in_the_way"),
    ("ChunkMadeTwice", "evenkeel-tables", "threads_that_need_one_chunk_make_one"),
    ("ChunkPreparedIgnored", "evenkeel-tables", "chunks_are_there_after_a_crash"),
    ("ChunkNumberReused", "evenkeel-tables", "a_drop_keeps_old_snapshots_and_names_who_is_in_the_way"),
    ("ChunkMadeMeanwhileMissed", "evenkeel-tables", "a_row_made_during_the_wait_for_its_key_is_found"),
    ("UnloggedNotCopied", "evenkeel", "pages_that_bypass_the_log_are_copied_when_the_log_names_them"),
]
# Faults of the plugin, and the test of our suite of the server that catches each.
OF_PLUGIN = {
    "AfterKeyInclusive": "small_things",
    "NumberOfUpdateForgotten": "small_things",
    "PrevKeepsLocking": "small_things",
    "UnlockedAtRepeatableRead": "small_things",
    "VirtualChangeIgnored": "small_things",
    "InnerStatementAsked": "small_things",
    "InnerSelectLocks": "small_things",
    "EndForgotten": "small_things",
    "CloneOfGivenName": "small_things",
    "PrefixTakenAsColumn": "prefix_text",
    "TurnRepeats": "prefix_text",
    "LogOfCoordinatorTrusted": "decisions_synced",
    "RollbackNotSynced": "decisions_synced",
    "RollbackByXidNotSynced": "decisions_synced",
    "UnloggedDecidedByBinlog": "decisions_synced_binlog",
    "OnePhaseDecidedByBinlog": "decisions_synced_binlog",
    "ReleaseBegins": "xa_prepared",
    "PreparedEnters": "xa_prepared",
    "PreparedNotLeft": "xa_reset",
    "ClosedHandlerHolds": "handler_ddl",
    "SequenceInPlace": "sequence_of_table",
    "NoFiller": "virtual_only",
    "ChunkOptionsLost": "chunked",
    "ChunksDroppedInTransaction": "chunked",
    "RetainForgotten": "chunked",
    "ChunkDropUnlogged": "chunked_replica",
    "LastColumnInPlace": "virtual_only",
    "CheckedAfterWrite": "unique_hash",
    "CheckedKeyUnlocked": "unique_hash",
    "FlagsOfOuterStatement": "unique_hash",
    "DoubleAsInteger": "autoinc_double",
    "NumberWithoutColumn": "autoinc_double",
    "LostTableUnnamed": "lost_frm",
    "LostTableUnnamedInRename": "lost_frm",
    "UsesNotAwaited": "uninstall_beside_query",
    "LaterOvertakes": "replica_order",
    "CascadeTakenAsSetNull": "foreign_keys",
    "SetNullTakenAsCascade": "foreign_keys",
    "ChecksOffForgotten": "foreign_keys",
    "ChecksOfFirstStatement": "foreign_keys",
    "ReferencedToldAsMissing": "foreign_keys",
    "KeysLostInCopy": "foreign_keys",
    "KeysLostInRename": "foreign_keys",
    "NamesKeptInRename": "foreign_keys",
    "NotNullBeneathSetNull": "foreign_keys",
    "NullOfCascadeTaken": "foreign_keys",
    "ComputedChangedBelow": "foreign_keys",
    "ChildElsewhereLeft": "foreign_keys",
    "ChildrenNotLocked": "foreign_metadata",
}
PLANTED = ROOT / "target/plugin-planted"
# A statement that a fault has go on for ever is a test that fails after a minute. One worker: of two, MTR ends the
# run when the other one is done, and loses the results of the worker whose test has timed out.
MTR = {"EVENKEEL_MTR_ARGS": "--testcase-timeout=1", "EVENKEEL_MTR_JOBS": "1", "EVENKEEL_PLUGIN_DIR": str(PLANTED)}


# A test of the crates takes seconds; its build may take minutes on a slow machine.
LIMIT_SECONDS = 600
NOT_ENDED = -1000


def ended(command, environment):
    """The exit code of a test, and what it printed. A test that does not end is killed with all that it began."""
    base = {name: value for name, value in os.environ.items() if name != "EVENKEEL_PLANTED"}
    test = subprocess.Popen(command, cwd=ROOT, env={**base, **environment}, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    try:
        out, _ = test.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(test.pid, signal.SIGKILL)
        out, _ = test.communicate()
        return NOT_ENDED, out
    return test.returncode, out


def tried(fault, rung, command, environment):
    """Whether the command fails with the fault, by what it tests and by nothing else, and passes without."""
    code, out = ended(command, environment)
    if code:
        outcome = "fails without it too"
    else:
        code, out = ended(command, {**environment, "EVENKEEL_PLANTED": fault})
        # What failed is a test.
        is_test = re.search(r"panicked at|\[ ([0-9]+ )?fail \]", out)
        outcome = ("not caught" if not code else f"did not end within {LIMIT_SECONDS} s" if code == NOT_ENDED
                   else "caught" if is_test else "was not run")
    print(f"{fault:<22} {rung:<58} {outcome}", flush=True)
    if outcome not in ("caught", "not caught"):
        print("\n".join(out.splitlines()[-20:]), flush=True)
    return outcome == "caught"


def of_crates():
    def command(crate, test):
        target = [] if " --test " in crate else ["--lib"]
        return ["cargo", "test", "--quiet", "-p", *crate.split(), *target, test]

    return [tried(fault, f"{crate} {test}", command(crate, test), {}) for fault, crate, test in OF_CRATES]


def holds(plugin, name):
    return name.encode() in (plugin / "ha_evenkeel.so").read_bytes()


def faults_of_sources():
    sources = [file.read_text() for file in sorted((ROOT / "plugin/mariadb").glob("*.cc"))]
    return sorted({fault for text in sources for fault in re.findall(r'plant\("([A-Za-z]+)"\)', text)})


def run_with_faults(tests):
    """Runs each test without a fault and with each of its own, in one run of the server's test program: the faults
    are combinations of the server's options. Returns what each has come to, by test and fault ("none": without)."""
    sys.path.insert(0, str(ROOT / "plugin/mariadb/tests"))
    import test_mtr
    os.environ.update(MTR)
    folder = ROOT / "target/mtr-planted"
    folder.mkdir(parents=True, exist_ok=True)
    mtr = test_mtr.make_tree(test_mtr.suite_of_server(), folder)
    for test, faults in tests.items():
        sections = ["[none]\nevenkeel-planted=\n"] + [f"[{fault}]\nevenkeel-planted={fault}\n" for fault in faults]
        (mtr / f"plugin/evenkeel/evenkeel/{test}.combinations").write_text("\n".join(sections))
    text, _ = test_mtr.run_mtr(mtr, folder, [f"evenkeel.{test}" for test in tests])
    (folder / "log").write_text(text)
    results = re.findall(r"^evenkeel\.(\w+) '([^']*)'.*\[ (?:[0-9]+ )?(pass|fail) \]", text, re.M)
    # A test may have combinations of its own beside: of an .inc of its name, or of the binlog's formats.
    return {(test, name): result for test, listed, result in results
            for name in set(listed.split(",")) & set(tests[test]) or {"none"}}


def of_plugin():
    """Faults of the plugin, each of which a test of our suite of the server catches."""
    release = pathlib.Path(os.environ.get("EVENKEEL_PLUGIN_DIR") or ROOT / "target/plugin")
    if subprocess.run(["bash", ROOT / "scripts/build-planted.sh"], stdout=subprocess.DEVNULL).returncode:
        raise SystemExit("the plugin with planted faults does not build")
    faults = faults_of_sources()
    if faults != sorted(OF_PLUGIN):
        raise SystemExit(f"faults of the plugin and OF_PLUGIN differ: {set(faults) ^ set(OF_PLUGIN) or faults}")
    caught = []
    # No other build has anything of it, by the same look that finds it in the planted one.
    for name in ["EVENKEEL_PLANTED", *faults]:
        if not holds(PLANTED, name) or holds(release, name):
            print(f"{name}: not in the planted plugin, or in that of users")
            caught.append(False)
    tests = {test: [fault for fault in faults if OF_PLUGIN[fault] == test] for test in sorted(set(OF_PLUGIN.values()))}
    results = run_with_faults(tests)
    for test in tests:
        for fault in tests[test]:
            without, with_it = results.get((test, "none")), results.get((test, fault))
            outcome = ("fails without it too" if without == "fail" else "was not run" if not without or not with_it
                       else "caught" if with_it == "fail" else "not caught")
            print(f"{fault:<28} mtr evenkeel.{test:<40} {outcome}", flush=True)
            caught.append(outcome == "caught")
    if not all(caught):
        print(ROOT / "target/mtr-planted/log")
    return caught


def main():
    what = sys.argv[1:] or ["crates", "plugin"]
    caught = (of_crates() if "crates" in what else []) + (of_plugin() if "plugin" in what else [])
    print(f"{sum(caught)} caught, {caught.count(False)} not caught")
    return 0 if caught and all(caught) else 1


if __name__ == "__main__":
    sys.exit(main())
