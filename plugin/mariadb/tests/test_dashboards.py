#!/usr/bin/env python3
"""The board and the alert rules in dashboards/ beside a real scrape: a server with the engine, mysqld_exporter on it.
Each metric that they name is in the scrape, promtool accepts the rules, and each rule fires when dashboards/
alerts_test.yml says so. A wrong name, a wrong limit and a rule that is missing are each found. Prints one line.

The exporter and promtool are Debian's packages, unpacked below target/mariadb; test_dashboards.py needs only fetches
them.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request

from servers import ROOT, Missing, Problem, free_port, on_port, run, wait_until

BOARDS = ROOT / "dashboards"
TOOLS = ROOT / "target/mariadb/monitoring"
NAME = re.compile(r"mysql_[a-z_0-9]+")
PACKAGES = {"prometheus-mysqld-exporter": "usr/bin/prometheus-mysqld-exporter", "prometheus": "usr/bin/promtool"}


def tool(package):
    """The program of a package; fetched if it is not there."""
    path = TOOLS / package / PACKAGES[package]
    if not path.exists():
        (TOOLS / "deb").mkdir(parents=True, exist_ok=True)
        fetched = subprocess.run(["apt-get", "-q", "download", package], cwd=TOOLS / "deb", stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
        if fetched.returncode:
            raise Missing(f"package {package} cannot be had: {fetched.stdout.strip()[-300:]}")
        deb = next((TOOLS / "deb").glob(f"{package}_*.deb"))
        subprocess.run(["dpkg-deb", "-x", deb, TOOLS / package], check=True)
    return path


def scrape(exporter, port, folder):
    """The names of all metrics of a scrape."""
    page_port = free_port()
    environment = {**os.environ, "DATA_SOURCE_NAME": f"scraper:secret@(127.0.0.1:{port})/"}
    with open(folder / "exporter.log", "w") as log:
        process = subprocess.Popen([exporter, f"--web.listen-address=127.0.0.1:{page_port}"], env=environment,
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        def page():
            with urllib.request.urlopen(f"http://127.0.0.1:{page_port}/metrics", timeout=30) as answer:
                return answer.read().decode()

        def answers():
            try:
                return "mysql_up 1" in page()
            except OSError:
                return False
        if not wait_until(answers, 60):
            raise Problem("no scrape: " + (folder / "exporter.log").read_text()[-1000:])
        return set(re.findall(r"^([a-z_0-9]+)[ {]", page(), re.M))
    finally:
        process.kill()
        process.wait()


def unknown(names, folder):
    """What the files of a folder name and the scrape does not have."""
    named = {file: set(NAME.findall((folder / file).read_text())) for file in ("grafana.json", "alerts.yml")}
    for file, found in named.items():
        if len(found) < 10:
            raise Problem(f"{file} names {len(found)} metrics")
    return sorted(set().union(*named.values()) - names), len(set().union(*named.values()))


def rules_pass(promtool, folder):
    """Whether the rules are valid and fire when they should, and what promtool says."""
    outputs = [subprocess.run([promtool, *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True) for command in (["check", "rules", "alerts.yml"],
                                                         ["test", "rules", "alerts_test.yml"])]
    return not any(output.returncode for output in outputs), "".join(output.stdout for output in outputs)


def changed(folder, file, before, after):
    """A copy of the files with one change."""
    copy = folder / "changed"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(BOARDS, copy)
    text = (copy / file).read_text()
    if before not in text:
        raise Problem(f"{file} has no {before}")
    (copy / file).write_text(text.replace(before, after, 1))
    return copy


def test(servers):
    exporter, promtool = tool("prometheus-mysqld-exporter"), tool("prometheus")
    if sys.argv[1:] == ["needs"]:
        return
    json.loads((BOARDS / "grafana.json").read_text())
    port = free_port()
    server = servers.server("scraped")
    server.start(*on_port(port))
    server.sql("create user scraper@127.0.0.1 identified by 'secret'; grant process, replication client, select on *.*"
               " to scraper@127.0.0.1; create database d; create table d.t (a int primary key) engine=evenkeel")
    names = scrape(exporter, port, servers.folder)
    wrong, count = unknown(names, BOARDS)
    if wrong:
        raise Problem(f"not in the scrape: {wrong}")
    if unknown(names, changed(servers.folder, "grafana.json", "evenkeel_commits{", "evenkee1_commits{"))[0] \
            != ["mysql_global_status_evenkee1_commits"]:
        raise Problem("a wrong name is not found")
    passed, said = rules_pass(promtool, BOARDS)
    if not passed:
        raise Problem(said)
    rules = re.findall(r"alert: (\w+)", (BOARDS / "alerts.yml").read_text())
    tested = re.findall(r"name: (\w+) (fires|is quiet)$", (BOARDS / "alerts_test.yml").read_text(), re.M)
    if sorted(tested) != sorted((rule, how) for rule in rules for how in ("fires", "is quiet")):
        raise Problem(f"rules {rules}, tested {tested}")
    for before, after in ((" > 0.75 *", " > 0.85 *"), ("writes_stopped == 1", "writes_stopped == 0")):
        if rules_pass(promtool, changed(servers.folder, "alerts.yml", before, after))[0]:
            raise Problem(f"a wrong rule is not found: {after}")
    print(f"dashboards: {count} metrics are in the scrape, {len(rules)} rules fire when they should")


if __name__ == "__main__":
    sys.exit(run("dashboards", test))
