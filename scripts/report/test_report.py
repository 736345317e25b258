"""The HTML reports in a real browser. Of the benchmark, with runs of the control engine, of Evenkeel
and an invented one: every second of the JSON is a mark in every chart of its step, every cause is
there by name. Of the lab: every policy and every point is drawn.
Every page makes no request and no error, and fits 1280 and 400 px.

Usage: test_report.py EVENKEEL_BINARY OUTPUT_DIRECTORY"""

import json
import math
import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from browser import Browser  # noqa: E402

CAUSES = ("log_sync log_space free_frame page_read page_latch memtable_full merge_debt governor "
          "row_lock schema device_slow processor unexplained").split()
EXPERIMENTS = ["flush-scan", "restart-flush", "free-pages", "dirty-count", "fan-out", "scale"]
passed, failed = 0, 0


def expect(what, found, wanted):
    global passed, failed
    if found == wanted:
        passed += 1
    else:
        failed += 1
        print(f"FAILED {what}: found {found!r}, wanted {wanted!r}")


def real_run(binary, out, engine, options):
    """A short run of an engine."""
    data, html = out / f"{engine}.json", out / f"{engine}.html"
    command = [binary, "bench", "--engine", engine, "--dir", str(out / f"store-{engine}"),
               "--json", str(data), "--report", str(html), *options.split()]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads(data.read_text()), html


def check_figures(run):
    """What only a run of the engine itself has: figures that come by the names of its metrics, and
    decisions by the names of its laws."""
    steps = {s["name"]: s for s in run["steps"]}
    load = steps["l.i1"]
    for kind in ["wal", "page", "doublewrite", "run_flush", "merge_read", "merge_written"]:
        expect(f"bytes of {kind}", load["bytes"][kind] > 0, True)
    expect("bytes of build_written", steps["l.x"]["bytes"]["build_written"] > 0, True)
    for event in ["memtable_flushes", "merges"]:
        expect(f"events: {event}", load["events"][event] > 0, True)
    expect("pages flushed and asked for", min(load["flush_done"], load["flush_requested"]) > 0, True)
    details = load["per_second_details"]
    for name in ["wal", "page", "run_flush"]:
        expect(f"{name} by second", sum(details["bytes"][name]) > 0, True)
    expect("flush_why", sum(map(sum, details["flush_why"].values())) > 0, True)
    for law in ["flush", "merge"]:
        expect(f"decisions of {law}", len(load["decisions"][law]["made"]) > 0, True)


def rich_run(run):
    """The same with 300 seconds of everything that an engine can report, from a fixed seed."""
    rng = random.Random(5)
    run = json.loads(json.dumps(run))
    step = next(s for s in run["steps"] if s["name"] == "l.i1")
    seconds = range(300)
    wave = [1 - 0.3 * (math.sin(i / 9) > 0.9) for i in seconds]
    step["per_second"] = [
        [50000 * w * rng.uniform(.95, 1), 50000 * w, 0, 900 / w * rng.uniform(1, 30), 2000, 0,
         rng.uniform(0, .03), int(2e5 / w)] for w in wave]
    step["per_second_details"] = {
        "bytes": {name: [int(b * w * rng.uniform(.5, 1)) for w in wave] for name, b in [
            ("wal", 2e7), ("page", 8e6), ("doublewrite", 8e6), ("run_flush", 6e6),
            ("merge_read", 9e6), ("merge_written", 8e6), ("foreground_read", 1e6)]},
        "stalls": {c: [int(2e4 * (i + 1) * rng.random() ** 3) for _ in seconds]
                   for i, c in enumerate(CAUSES)},
        "flush_requested": [int(2000 / w) for w in wave],
        "flush_done": [int(1900 / w * rng.uniform(.9, 1)) for w in wave],
        "flush_why": {"age": [900] * 300, "next": [int(800 / w) for w in wave],
                      "supply": [200] * 300},
    }
    names = ["dirty_pages", "over_pages", "age_bytes", "age_trigger_bytes"]
    step["decisions"] = {
        "flush": {"inputs": names, "outputs": ["pages_per_sec"], "made": [
            [i, [9000, int(3000 / w), int(2e8 / w), int(3.2e8)], [int(2000 / w)]]
            for i, w in enumerate(wave) for _ in range(10)]},
        "merge": {"inputs": ["may_rest", "runs"], "outputs": ["first", "end", "required"], "made": [
            [i, [1, 2e7, 2e7, 2e7, 2e7, 9e8], [0, 4, i % 2]] for i in range(0, 300, 7)]},
    }
    names = ["required_checkpoint", "surplus_merge", "surplus_ddl", "users_waited_permille",
             "bytes_per_sec", "ddl_left"]
    step["decisions"] |= {
        "governor": {"inputs": names[:4], "outputs": names[4:], "made": [
            [i, [int(8e6 * w), int(6e6 / w), int(3e6), int(200 / w)],
             [2**64 - 1 if w > .8 else int(4e7 * w), int(4e6 * w)]]
            for i, w in enumerate(wave) for _ in range(5)]},
        "handover": {"inputs": ["active_bytes"], "outputs": ["what", "delay_ns"], "made": [
            [i, [int(3e7)], [1 if i % 10 else 4, 0]] for i in range(0, 300, 5)]},
        "credit": {"inputs": ["inputs"], "outputs": ["credit_bytes"], "made": [
            [i, [4], [int(1e6 * wave[i])]] for i in range(100, 200)]},
        "log_space": {"inputs": ["limit_bytes", "age_bytes"], "outputs": ["delay_ns", "waits"],
                      "made": [[i, [int(4e8), int(3.5e8)], [400_000, 0]] for i in range(150, 170)]},
        "debt": {"inputs": ["credit_bytes", "wanted_bytes"], "outputs": ["granted", "left_bytes"],
                 "made": [[i, [4000, 300], [1 - (i % 3 == 0), 3700]] for i in range(100, 200)]},
        "pace": {"inputs": ["runs"], "outputs": ["ns_per_kib"], "made": [
            [i, [8], [int(1.5e6 / wave[i])]] for i in range(120, 220)]},
    }
    step["decisions"]["merge"]["made"] = [
        [i, [int(n) for n in ins], outs] for i, ins, outs in step["decisions"]["merge"]["made"]]
    run["stalls"] = {c: sum(v) for c, v in step["per_second_details"]["stalls"].items()}
    return run


def wanted_charts(run, name):
    """The charts that a step must have: of what it is for, by its name, and of what it did."""
    step = next(s for s in run["steps"] if s["name"] == name)
    kinds = {"insert"} if name.startswith("l.i") else {"query"} if name.startswith("q") else set()
    for i, kind in enumerate(["insert", "delete", "query"]):
        if any(second[i] > 0 or second[i + 3] > 0 for second in step["per_second"]):
            kinds.add(kind)
    charts = {f"{of}-{kind}" for kind in kinds for of in ("rate", "worst")}
    return charts | {"bytes", "stalls", "flush", "why"}


def check(browser, run, html):
    """Opens a report at both widths and compares it with its JSON."""
    for width in (1280, 400):
        name = f"{html.stem} at {width}"
        browser.open(html.resolve().as_uri(), width)
        seconds = {s["name"]: len(s["per_second"]) for s in run["steps"]}
        charts = browser.value("""[...document.querySelectorAll('figure')].map(f => [
            f.closest('section').dataset.step, f.dataset.chart,
            f.querySelectorAll('[data-second]').length])""")
        for step, chart, marks in charts:
            expect(f"{name}: marks of {step} {chart}", marks, seconds[step])
        for step in seconds:
            ids = {chart for of, chart, _ in charts if of == step}
            missing = wanted_charts(run, step) - ids
            expect(f"{name}: charts missing of {step}", missing, set())
        for step in run["steps"]:
            # Every second in which a law decided something has a bar in its chart: of flushing two
            # (age and trigger, and an age of zero has no bar: a checkpoint may just have caught up
            # with the log), of merges one each for those that ingest needs and for others.
            # Of the governor one for each class that asks, of log space two (age and limit).
            flush = step.get("decisions", {}).get("flush", {"inputs": [], "made": []})
            ages = [i for i, n in enumerate(flush["inputs"])
                    if n in ("age_bytes", "age_trigger_bytes")]
            drawn = {(second, i) for second, ins, _ in flush["made"] for i in ages
                     if ins[i] > 0 and second < seconds[step["name"]]}
            bars = browser.value(f"""document.querySelectorAll(
                '[data-step="{step["name"]}"] [data-chart=age] rect').length""")
            expect(f"{name}: age of {step['name']}", bars, len(drawn))
            laws = [("merge", "merges", 1)]
            if html.stem == "rich":
                laws += [("governor", "governor", 3), ("governor", "build", 2),
                         ("governor", "build-waits", 1), ("handover", "handovers", 1),
                         ("credit", "credit", 1), ("log_space", "log-space", 2),
                         ("log_space", "delays", 1), ("debt", "debt", 1),
                         ("pace", "ingest-pace", 1)]
            for law, chart, seen in laws:
                made = step.get("decisions", {}).get(law, {}).get("made", [])
                # What was decided while the last second was being closed has no place.
                made = [d for d in made if d[0] < seconds[step["name"]]]
                kinds = {(d[0], d[2][-1] if law == "merge" else 0) for d in made}
                bars = browser.value(f"""document.querySelectorAll(
                    '[data-step="{step["name"]}"] [data-chart={chart}] rect').length""")
                expect(f"{name}: {chart} of {step['name']}", bars, seen * len(kinds))
        named = browser.value(
            "[...document.querySelectorAll('[data-cause]')].map(c => c.innerText.split(' ')[0])")
        expect(f"{name}: causes by name", named, CAUSES)
        waited = {c for s in run["steps"] for c, v in s["per_second_details"]["stalls"].items()
                  if sum(v) > 0}
        drawn = set(browser.value("""[...document.querySelectorAll(
            '[data-chart=stalls] [data-series]')].map(s => s.innerText.trim())"""))
        expect(f"{name}: causes drawn", drawn, waited)
        point = browser.value("""(() => {
            const chart = document.querySelector('[data-step="l.i1"] [data-chart=rate-insert]');
            const svg = chart.querySelector('svg'), box = svg.getBoundingClientRect();
            svg.dispatchEvent(new PointerEvent('pointermove',
                {clientX: box.left + 1, clientY: box.top + 9}));
            return chart.querySelector('output').textContent})()""")
        expect(f"{name}: second under the pointer", point.startswith("second 1: "), True)
        check_page(browser, name)
        browser.screenshot(html.with_name(f"{html.stem}-{width}.png"))


def lab_run(binary, out, experiment):
    """A small run of an experiment, large enough to show what it is about."""
    scale = "3" if experiment == "flush-scan" else "100"
    data, html = out / f"lab-{experiment}.json", out / f"lab-{experiment}.html"
    command = [binary, "lab", experiment, "--scale", scale, "--json", str(data), "--report",
               str(html)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    run = json.loads(data.read_text())
    if experiment == "flush-scan":
        at = [column["name"] for column in run["columns"]].index("worst / before")
        kept = {policy["name"]: policy["values"][at] for policy in run["policies"]}
        expect("flush-scan: writers feel the restarting scan, and ours not",
               (kept["restart"] < 0.7, kept["evenkeel"] > 0.9), (True, True))
    return run, html


def check_page(browser, name):
    """What holds for every report: it fits, can be read, and asks for nothing."""
    overflow = browser.value(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth")
    expect(f"{name}: sideways scrolling", overflow, 0)
    small = browser.value("""[...document.querySelectorAll('body *')].filter(e =>
        e.innerText && parseFloat(getComputedStyle(e).fontSize) < 11).length""")
    expect(f"{name}: text below 11 px", small, 0)
    requests = [r["request"]["url"] for r in browser.seen("Network.requestWillBeSent")]
    outside = [u for u in requests if not u.startswith(("file:", "data:"))]
    expect(f"{name}: requests beyond the file", (outside, len(requests) <= 2), ([], True))
    errors = browser.seen("Runtime.exceptionThrown") + browser.seen("Log.entryAdded")
    errors += browser.seen("Runtime.consoleAPICalled")
    expect(f"{name}: console", errors, [])


def check_lab(browser, run, html):
    """Opens the report of an experiment at both widths and compares it with its JSON."""
    for width in (1280, 400):
        name = f"{html.stem} at {width}"
        browser.open(html.resolve().as_uri(), width)
        drawn = browser.value("""[...document.querySelectorAll('figure')].map(f => [
            f.dataset.chart, [...f.querySelectorAll('[data-line]')].map(l => l.innerText.trim()),
            [...f.querySelectorAll('[data-points]')].map(l => +l.dataset.points)])""")
        wanted = [[c["id"], [line["name"] for line in c["lines"]],
                   [len(line["points"]) for line in c["lines"]]] for c in run["charts"]]
        expect(f"{name}: charts", drawn, wanted)
        cells = browser.value("""[...document.querySelectorAll('table tr')].map(
            r => r.querySelectorAll('th, td').length)""")
        expect(f"{name}: table", cells, [1 + len(run["policies"])] * (1 + len(run["columns"])))
        inside = browser.value("""[...document.querySelectorAll('.plot')].every(p => {
            const box = p.getBoundingClientRect();
            return [...p.querySelectorAll('.line')].every(l => {
                const line = l.getBoundingClientRect();
                return line.top >= box.top - 4 && line.bottom <= box.bottom + 4 &&
                    line.left >= box.left - 4 && line.right <= box.right + 4})})""")
        expect(f"{name}: lines inside their charts", inside, True)
        check_page(browser, name)
        browser.screenshot(html.with_name(f"{html.stem}-{width}.png"))


def main():
    binary, out = sys.argv[1], Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    null, null_html = real_run(
        binary, out, "null",
        "--deletes --rows 20k,5k --steps l.i0:2s,l.x,l.i1:4s,q100.1 --seconds 3")
    # So little memory that pages are flushed and runs merged within seconds.
    run, html = real_run(
        binary, out, "evenkeel",
        "--memory 16M --durability 2 --rows 200k,50k --steps l.i0,l.x,l.i1:4s,q100.1 --seconds 3")
    check_figures(run)
    rich = rich_run(null)
    (out / "rich.json").write_text(json.dumps(rich))
    convert = [binary, "bench", "report", str(out / "rich.json"), str(out / "rich.html")]
    subprocess.run(convert, check=True)
    labs = [lab_run(binary, out, experiment) for experiment in EXPERIMENTS]
    browser = Browser()
    try:
        check(browser, null, null_html)
        check(browser, run, html)
        check(browser, rich, out / "rich.html")
        for run, html in labs:
            check_lab(browser, run, html)
    finally:
        browser.close()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
