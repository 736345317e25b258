#!/usr/bin/env python3
"""What clients are told of every code of an error, and what comes of a plugin that gets no memory, at each of its
allocations in turn (faults.py, with a test build of the plugin); then the plugin is uninstalled and installed beside
those who use it (uninstall.py, with the plugin as it is delivered).

test_faults.py [codes | news | uninstall]...; EVENKEEL_ROUNDS: of the last, 150. EVENKEEL_BUILT: the test build is
there already.
"""
import os
import subprocess
import sys

from servers import ROOT, TESTS, Problem, plugin_folder, run

PLANTED = ROOT / "target/plugin-planted/ha_evenkeel.so"
ROUNDS = os.environ.get("EVENKEEL_ROUNDS", "150")
PARTS = ("codes", "news", "uninstall")


def succeeds(server, script, *arguments, seconds):
    command = [sys.executable, "-B", TESTS / script, server.socket, *map(str, arguments)]
    try:
        is_right = subprocess.run(command, timeout=seconds).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"{script}: not done after {seconds} s", file=sys.stderr)
        is_right = False
    if server.answers():
        return is_right
    print("\n".join(server.log().splitlines()[-80:]), file=sys.stderr)
    return False


def part(servers, what, delivered):
    server = servers.server(what)
    if what == "uninstall":
        servers.use_plugin(delivered)
        server.start("--evenkeel-lock-wait-timeout=1", "--lock-wait-timeout=2")
        return succeeds(server, "uninstall.py", ROUNDS, seconds=1200)
    servers.use_plugin(PLANTED)
    server.start("--evenkeel-lock-wait-timeout=1")
    is_right = succeeds(server, "faults.py", ROOT / "plugin/mariadb/errors.def", what, seconds=3000)
    server.stop()
    return is_right


def test(servers):
    parts = sys.argv[1:] or PARTS
    delivered = plugin_folder() / "ha_evenkeel.so"
    # Nothing of a fault is in what is delivered.
    if b"fault_new" in delivered.read_bytes():
        raise Problem(f"{delivered} holds planted faults")
    is_build_wanted = {"codes", "news"} & set(parts) and not os.environ.get("EVENKEEL_BUILT")
    if is_build_wanted and subprocess.run(["bash", ROOT / "scripts/build-planted.sh"]).returncode:
        raise Problem("the test build fails")
    # Each of them, though one before has failed.
    failed = [what for what in parts if not part(servers, what, delivered)]
    if failed:
        raise Problem(f"failed: {' '.join(failed)}")


if __name__ == "__main__":
    sys.exit(run("faults", test))
