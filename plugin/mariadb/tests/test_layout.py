#!/usr/bin/env python3
"""A plugin that was compiled with other classes than the server has does not load, says what differs, and the server
goes on: the self-test of layout.cc, compiled with copies of the headers in which one member or one virtual function
is more (altered_headers.py), and linked with the rest of the plugin that `make plugin` built. Loaded at startup, and
by INSTALL into the same server that then loads the real one.

test_layout.py [whole | NAME...]: `whole` compiles all of the plugin with one such copy; NAMEs are those of
altered_headers.py (all of them). Prints "N refused, N failed".
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import altered_headers
from servers import ROOT, Missing, Problem, plugin_folder, run

REFUSED = "EVENKEEL: not loaded: .*{}.*: rebuild the plugin for this server"
BUILD = ROOT / "plugin/mariadb/build.sh"


def headers_of_server():
    said = subprocess.run(["bash", ROOT / "scripts/mariadb.sh", "headers"], stdout=subprocess.PIPE, text=True)
    if said.returncode:
        raise Missing("the server's headers are missing")
    return pathlib.Path(said.stdout.strip())


def only_the_self_test(plugin):
    """Else more than the self-test would be compiled again: with wrong headers, for each NAME."""
    version = subprocess.run(["mariadbd", "--version"], stdout=subprocess.PIPE, text=True).stdout
    objects = plugin / ("obj-" + re.search(r"Ver (\S+) ", version)[1])
    for file in sorted((ROOT / "plugin/mariadb").glob("*.cc")):
        is_stale = subprocess.run(["bash", "-c", 'source plugin/mariadb/stale.sh; is_stale "$1"', "bash",
                                   objects / f"{file.stem}.o"], cwd=ROOT).returncode == 0
        if is_stale:
            raise Missing(f"make plugin first: {file.name} is not compiled as it is now")


def build(plugin, headers, folder, alteration, is_whole):
    """The plugin with altered headers. Its objects are newer than its sources: only the self-test's is compiled
    again."""
    altered_headers.write(headers, folder / alteration.name, alteration)
    out = folder / f"out-{alteration.name}"
    out.mkdir()
    if not is_whole:
        for objects in plugin.glob("obj-*"):
            shutil.copytree(objects, out / objects.name)
            (out / objects.name / "layout.o").unlink()
    done = subprocess.run(["bash", BUILD], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(
        os.environ, EVENKEEL_PLUGIN_DIR=str(out), EVENKEEL_HEADERS=str(folder / alteration.name)))
    if done.returncode:
        raise Problem(f"{alteration.name} does not build: {done.stdout[-1000:]}")
    library = folder / "plugins" / f"ha_evenkeel_{alteration.name}.so"
    subprocess.run(["strip", "--strip-debug", "-o", library, out / "ha_evenkeel.so"], check=True)
    shutil.rmtree(out)
    return library


class Test:
    def __init__(self, servers):
        self.server = servers.server("main")
        servers.options = ["--innodb-buffer-pool-size=16M"]
        self.refused = self.failed = 0

    def judge(self, what, wrong):
        if wrong:
            self.failed += 1
            print(f"{what}: {wrong}", file=sys.stderr, flush=True)
        else:
            self.refused += 1

    def starts(self, *options):
        self.server.error_log.unlink(missing_ok=True)
        self.server.launch(*options)
        return self.server.comes_up()

    def is_none_loaded(self):
        return self.server.sql("select count(*) from information_schema.plugins "
                               "where plugin_name like 'evenkeel%'") == "0"

    def at_startup(self, alteration):
        """What is wrong, or nothing."""
        if not self.starts(f"--plugin-load-add=ha_evenkeel_{alteration.name}.so"):
            return "the server does not start"
        wrong = []
        if not re.search(REFUSED.format(re.escape(alteration.says)), self.server.log()):
            wrong.append("the log says: " + "".join(re.findall(r".*EVENKEEL:.*\n", self.server.log())))
        if not self.is_none_loaded():
            wrong.append("something of it is loaded")
        self.server.stop()
        return "; ".join(wrong)

    def by_install(self, alteration):
        said, wrong = self.server.said(f"install soname 'ha_evenkeel_{alteration.name}'"), []
        if not re.search("ERROR.*" + REFUSED.format(re.escape(alteration.says)), said):
            wrong.append(f"INSTALL says: {said or 'nothing'}")
        if not self.is_none_loaded():
            wrong.append("something of it is loaded by INSTALL")
        if self.server.sql("select count(*) from mysql.plugin") != "0":
            wrong.append("it is to be loaded at the next start")
        return "; ".join(wrong)

    def forced(self, alteration):
        """As the installed config file has it: no server without the engine."""
        name = alteration.name
        if self.starts(f"--plugin-load-add=ha_evenkeel_{name}.so", "--evenkeel=FORCE_PLUS_PERMANENT"):
            wrong = "the server starts"
            self.server.stop()
        else:
            wrong = "" if "EVENKEEL: not loaded: " in self.server.log() else "the log does not say why"
        self.judge(f"{name} with FORCE_PLUS_PERMANENT", wrong)

    def all(self, alterations):
        for alteration in alterations:
            self.judge(f"{alteration.name} at startup", self.at_startup(alteration))
        self.forced(alterations[0])
        # All of them in a server that then has the real one, and its tables, whatever it calls itself.
        if not self.starts("--version=10.11.1-other"):
            raise Problem("the server does not start")
        for alteration in alterations:
            self.judge(f"{alteration.name} by INSTALL", self.by_install(alteration))
        rows = self.server.said("install soname 'ha_evenkeel'; create database d; create table d.t (a int primary key) "
                                "engine=evenkeel; insert into d.t values (7); select a from d.t")
        if rows != "7":
            self.failed += 1
            print(f"the right one does not load after them: {rows}", file=sys.stderr)
        self.server.stop()


def wanted():
    """The alterations, and whether all of the plugin is compiled with them."""
    names = sys.argv[1:]
    if names == ["whole"]:
        return altered_headers.ALL[:1], True
    unknown = set(names) - {alteration.name for alteration in altered_headers.ALL}
    if unknown:
        raise Problem(f"there is no {unknown}")
    return [alteration for alteration in altered_headers.ALL if not names or alteration.name in names], False


def built(servers, folder, test):
    """The alterations with which a plugin was built. Another version of the server may lack a line: the others are
    tried all the same."""
    plugin, headers = plugin_folder(), headers_of_server()
    (alterations, is_whole), there = wanted(), []
    if not is_whole:
        only_the_self_test(plugin)
    (folder / "plugins").mkdir()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        building = [pool.submit(build, plugin, headers, folder, one, is_whole) for one in alterations]
    for alteration, future in zip(alterations, building):
        try:
            library = future.result()
            (servers.plugins / library.name).symlink_to(library)
            there.append(alteration)
        except Problem as problem:
            test.judge(alteration.name, f"there is no such plugin: {problem}")
    return there


def all_alterations(servers):
    test = Test(servers)
    # Hundreds of megabytes, beside the headers that are linked to; a socket's path may not be long.
    files = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "tmp"
    files.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=files) as folder:
        there = built(servers, pathlib.Path(folder), test)
        if not there:
            return 1
        test.all(there)
    print(f"{test.refused} refused, {test.failed} failed")
    return test.failed > 0 or test.refused == 0


if __name__ == "__main__":
    sys.exit(run("layout", all_alterations))
