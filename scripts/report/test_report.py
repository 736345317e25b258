"""The HTML reports in a real browser. Of the benchmark, with runs of the control engine, of Evenkeel
and two invented ones: each step has a verdict with the figures of the JSON, one chart has the whole
run with its steps, and in folds, closed at first, every second of the JSON is a mark in every chart
of its step, every cause is there by name. Two runs share a page. Of the lab: every policy and every point is drawn.
Every page makes no request and no error, and fits 1280 and 400 px.

Usage: test_report.py EVENKEEL_BINARY OUTPUT_DIRECTORY"""

import json
import math
import random
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from browser import Browser  # noqa: E402

CAUSES = ("log_sync log_space free_frame page_read page_latch memtable_full compaction_debt governor "
          "row_lock schema device_slow backup processor unexplained").split()
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
    for kind in ["wal", "page", "doublewrite", "run_flush", "compaction_read", "compaction_written"]:
        expect(f"bytes of {kind}", load["bytes"][kind] > 0, True)
    expect("bytes of build_written", steps["l.x"]["bytes"]["build_written"] > 0, True)
    for event in ["memtable_flushes", "compactions"]:
        expect(f"events: {event}", load["events"][event] > 0, True)
    expect("pages flushed and asked for", min(load["flush_done"], load["flush_requested"]) > 0, True)
    details = load["per_second_details"]
    for name in ["wal", "page", "run_flush"]:
        expect(f"{name} by second", sum(details["bytes"][name]) > 0, True)
    expect("flush_reasons", sum(map(sum, details["flush_reasons"].values())) > 0, True)
    for law in ["flush", "compaction"]:
        expect(f"decisions of {law}", len(load["decisions"][law]["made"]) > 0, True)


def invented_run(run, length):
    """The same with so many seconds of everything that an engine can report, from a fixed seed."""
    rng = random.Random(5)
    run = json.loads(json.dumps(run))
    step = next(s for s in run["steps"] if s["name"] == "l.i1")
    seconds = range(length)
    part = lambda begin, end: range(length * begin // 300, length * end // 300)
    wave = [1 - 0.3 * (math.sin(i / 9) > 0.9) for i in seconds]
    step["per_second"] = [
        [50000 * w * rng.uniform(.95, 1), 50000 * w, 0, 900 / w * rng.uniform(1, 30), 2000, 0,
         rng.uniform(0, .03), int(2e5 / w)] for w in wave]
    step["seconds"] = length + .5
    counted = sorted(second[0] for second in step["per_second"][5:-1])
    step["worst_second_ratio"] = counted[0] / statistics.median(counted)
    step["per_second_details"] = {
        "bytes": {name: [int(b * w * rng.uniform(.5, 1)) for w in wave] for name, b in [
            ("wal", 2e7), ("page", 8e6), ("doublewrite", 8e6), ("run_flush", 6e6),
            ("compaction_read", 9e6), ("compaction_written", 8e6), ("foreground_read", 1e6)]},
        "waits": {c: [int(2e4 * (i + 1) * rng.random() ** 3) for _ in seconds]
                   for i, c in enumerate(CAUSES)},
        "flush_requested": [int(2000 / w) for w in wave],
        "flush_done": [int(1900 / w * rng.uniform(.9, 1)) for w in wave],
        "flush_reasons": {"age": [900] * length, "next": [int(800 / w) for w in wave],
                      "supply": [200] * length},
    }
    names = ["dirty_pages", "over_pages", "age_bytes", "age_trigger_bytes"]
    step["decisions"] = {
        "flush": {"inputs": names, "outputs": ["pages_per_sec"], "made": [
            [i, [9000, int(3000 / w), int(2e8 / w), int(3.2e8)], [int(2000 / w)]]
            for i, w in enumerate(wave) for _ in range(10)]},
        "compaction": {"inputs": ["may_rest", "runs"], "outputs": ["first", "end", "required"], "made": [
            [i, [1, 2e7, 2e7, 2e7, 2e7, 9e8], [0, 4, i % 2]] for i in range(0, length, 7)]},
    }
    names = ["required_checkpoint", "surplus_compaction", "surplus_ddl", "users_waited_permille",
             "bytes_per_sec", "ddl_left"]
    step["decisions"] |= {
        "governor": {"inputs": names[:4], "outputs": names[4:], "made": [
            [i, [int(8e6 * w), int(6e6 / w), int(3e6), int(200 / w)],
             [2**64 - 1 if w > .8 else int(4e7 * w), int(4e6 * w)]]
            for i, w in enumerate(wave) for _ in range(5)]},
        "handover": {"inputs": ["active_bytes"], "outputs": ["what", "delay_ns"], "made": [
            [i, [int(3e7)], [1 if i % 10 else 4, 0]] for i in range(0, length, 5)]},
        "credit": {"inputs": ["inputs"], "outputs": ["credit_bytes"], "made": [
            [i, [4], [int(1e6 * wave[i])]] for i in part(100, 200)]},
        "log_space": {"inputs": ["limit_bytes", "age_bytes"], "outputs": ["delay_ns", "waits"],
                      "made": [[i, [int(4e8), int(3.5e8)], [400_000, 0]] for i in part(150, 170)]},
        "debt": {"inputs": ["credit_bytes", "wanted_bytes"], "outputs": ["granted", "left_bytes"],
                 "made": [[i, [4000, 300], [1 - (i % 3 == 0), 3700]] for i in part(100, 200)]},
        "pace": {"inputs": ["runs"], "outputs": ["ns_per_kib"], "made": [
            [i, [8], [int(1.5e6 / wave[i])]] for i in part(120, 220)]},
    }
    step["decisions"]["compaction"]["made"] = [
        [i, [int(n) for n in ins], outs] for i, ins, outs in step["decisions"]["compaction"]["made"]]
    run["waits"] = {c: sum(v) for c, v in step["per_second_details"]["waits"].items()}
    bound_by(run)
    return run


BOUND = {"l.i0": ("cpu", "the CPU"), "l.x": ("page_read", "the device"),
         "l.i1": ("compaction_debt", "the engine"), "q100.1": ("free_frame", "the engine")}


def bound_by(run):
    """Gives each step the waits and the CPU time of something else that bounds it."""
    run["machine"]["cores"], run["settings"]["clients"] = 2, 1
    for step in run["steps"]:
        seconds, counted = step["seconds"], step["op"]["query"]["n"] or step["rows"]
        step["rate_target"], step["rows_deleted"] = None, 0
        busy, waits = .2, {BOUND[step["name"]][0]: .6, "processor": .1}
        if step["name"] == "l.i0":
            busy, waits = 1.9, {"log_sync": .9}
        if step["name"].startswith("q"):
            # For what only its writer waits bounds no query.
            waits["log_sync"] = .95
        step["cpu_us_per_row"] = busy * seconds * 1e6 / counted
        step["waits"] = {c: int(waits.get(c, 0) * seconds * 1e6) for c in CAUSES}
        for second in step["per_second"]:
            second[6] = min(second[6], .03)


def wanted_charts(run, name):
    """The charts that a step must have: of what it is for, by its name, and of what it did."""
    step = next(s for s in run["steps"] if s["name"] == name)
    kinds = {"insert"} if name.startswith("l.i") else {"query"} if name.startswith("q") else set()
    for i, kind in enumerate(["insert", "delete", "query"]):
        if any(second[i] > 0 or second[i + 3] > 0 for second in step["per_second"]):
            kinds.add(kind)
    charts = {f"{of}-{kind}" for kind in kinds for of in ("rate", "worst")}
    return charts | {"bytes", "waits", "flush", "why"}


def check(browser, run, html):
    """Opens a report at both widths and compares it with its JSON."""
    for width in (1280, 400):
        name = f"{html.stem} at {width}"
        browser.open(html.resolve().as_uri(), width)
        seconds = {s["name"]: len(s["per_second"]) for s in run["steps"]}
        check_verdicts(browser, name, [run])
        check_overview(browser, name, [run])
        check_folds(browser, name, html, width)
        charts = browser.value("""[...document.querySelectorAll('details.step figure')].map(f => [
            f.closest('details').dataset.step, f.dataset.chart,
            f.querySelectorAll('[data-second]').length,
            [...f.querySelectorAll('[data-points]')].map(l => +l.dataset.points),
            f.querySelector('svg').dataset.texts.split('|').length])""")
        for step, chart, bars, lines, texts in charts:
            of = seconds[step]
            expect(f"{name}: texts of {step} {chart}", texts, of)
            expect(f"{name}: bars of {step} {chart}", bars, 0 if of > 120 else of)
            expect(f"{name}: lines of {step} {chart}", set(lines), {of} if of > 120 else set())
        for step in seconds:
            ids = {chart for of, chart, *_ in charts if of == step}
            missing = wanted_charts(run, step) - ids
            expect(f"{name}: charts missing of {step}", missing, set())
        for step in (s for s in run["steps"] if len(s["per_second"]) <= 120):
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
            laws = [("compaction", "merges", 1)]
            if html.stem == "bars":
                laws += [("governor", "governor", 3), ("governor", "build", 2),
                         ("governor", "build-waits", 1), ("handover", "handovers", 1),
                         ("credit", "credit", 1), ("log_space", "log-space", 2),
                         ("log_space", "delays", 1), ("debt", "debt", 1),
                         ("pace", "ingest-pace", 1)]
            for law, chart, seen in laws:
                made = step.get("decisions", {}).get(law, {}).get("made", [])
                # What was decided while the last second was being closed has no place.
                made = [d for d in made if d[0] < seconds[step["name"]]]
                kinds = {(d[0], d[2][-1] if law == "compaction" else 0) for d in made}
                bars = browser.value(f"""document.querySelectorAll(
                    '[data-step="{step["name"]}"] [data-chart={chart}] rect').length""")
                expect(f"{name}: {chart} of {step['name']}", bars, seen * len(kinds))
        named = browser.value(
            "[...document.querySelectorAll('[data-cause]')].map(c => c.innerText.split(' ')[0])")
        expect(f"{name}: causes by name", named, CAUSES)
        waited = {c for s in run["steps"] for c, v in s["per_second_details"]["waits"].items()
                  if sum(v) > 0}
        drawn = set(browser.value("""[...document.querySelectorAll(
            '[data-chart=waits] [data-series]')].map(s => s.innerText.trim())"""))
        expect(f"{name}: causes drawn", drawn, waited)
        point = browser.value("""(() => {
            const chart = document.querySelector(
                'details[data-step="l.i1"] [data-chart=rate-insert]');
            const svg = chart.querySelector('svg'), box = svg.getBoundingClientRect();
            svg.dispatchEvent(new PointerEvent('pointermove',
                {clientX: box.left + 1, clientY: box.top + 9}));
            return chart.querySelector('output').textContent})()""")
        expect(f"{name}: second under the pointer", point.startswith("second 1: "), True)
        check_page(browser, f"{name}, unfolded")
        browser.screenshot(html.with_name(f"{html.stem}-{width}-unfolded.png"))


def check_verdicts(browser, name, runs):
    """One line a step of each run, with the rate, the worst second and what bounded it."""
    found = browser.value("""[...document.querySelectorAll('.verdict[data-step-name]')].map(v => [
        v.dataset.stepName, +v.dataset.rate, v.dataset.worst, v.dataset.bound, v.innerText,
        v.getBoundingClientRect().height > 0])""")
    steps = [next((s for s in run["steps"] if s["name"] == of), None)
             for of in names_of(runs) for run in runs]
    steps = [step for step in steps if step]
    expect(f"{name}: a verdict a step", [v[0] for v in found], [s["name"] for s in steps])
    for (of, rate, worst, bound, text, seen), step in zip(found, steps):
        queries = step["op"]["query"]["n"] > 0
        wanted = step["queries_per_s" if queries else "rows_per_s"]
        expect(f"{name}: rate of {of}", abs(rate - wanted) <= 1e-9 * wanted, True)
        ratio = step["worst_second_ratio"]
        expect(f"{name}: worst second of {of}", float(worst) if worst else None, ratio)
        said = "not known" if bound == "unknown" else "bounded by"
        expect(f"{name}: words of {of}", (seen, said in text,
               ("queries/s" if queries else "rows/s") in text,
               ("too short" if ratio is None else f"({ratio:.2f} of the median") in text), (True,) * 4)
        if bound in CAUSES:
            only_writers = {"log_sync", "log_space", "memtable_full", "compaction_debt"}
            waits = {c: us for c, us in step["waits"].items()
                     if not queries or c not in only_writers}
            expect(f"{name}: {of} is bounded by its longest wait",
                   waits.get(bound), max(waits.values()))
        if name.startswith(("bars", "lines")):
            key, words = BOUND[of]
            expect(f"{name}: what bounded {of}", (bound, f"bounded by {words}:" in text), (key, True))


def names_of(runs):
    """The steps of all runs, each once."""
    return list(dict.fromkeys(s["name"] for run in runs for s in run["steps"]))


def check_overview(browser, name, runs):
    """One chart of the whole run: rate, response and waits, with every step marked in each."""
    names = names_of(runs)
    lengths = [max(max(len(s["per_second"]) for run in runs for s in run["steps"]
                       if s["name"] == of), 1) for of in names]
    expect(f"{name}: charts of the whole", browser.value(
        "document.querySelectorAll('[data-chart=overview]').length"), 1)
    drawings = browser.value("""[...document.querySelectorAll('.overview [data-drawing]')].map(d => [
        d.dataset.drawing, [...d.querySelectorAll('rect[data-band]')].map(r => r.dataset.band),
        d.querySelector('svg')?.dataset.texts.split('|').length])""")
    kinds = ["rate", "response", *["waits"] * len(runs)]
    expect(f"{name}: drawings", [d[0] for d in drawings], kinds)
    for kind, bands, texts in drawings:
        if texts is not None:
            expect(f"{name}: steps marked in {kind}", (bands, texts), (names, sum(lengths)))
    links = browser.value("""[...document.querySelectorAll('.bands a')].map(a => [a.dataset.band,
        document.querySelector(a.getAttribute('href')).dataset.step])""")
    expect(f"{name}: steps lead to their charts", links, [[of, of] for of in names])
    lines = browser.value("""[...document.querySelectorAll('[data-drawing=rate] .line')].map(l => [
        l.dataset.band, +l.dataset.points, l.getAttribute('d')])""")
    wanted = [(s, len(s["per_second"])) for of in names for run in runs for s in run["steps"]
              if s["name"] == of]
    expect(f"{name}: points of rates", [l[:2] for l in lines],
           [[s["name"], n] for s, n in wanted])
    for (of, _, data), (step, n) in zip(lines, wanted):
        # The line has one point more at each end of its band.
        heights = [float(point.split()[1]) for point in data[1:].split("L")][1:-1]
        column = 2 if step["op"]["query"]["n"] else 0
        rates = [second[column] for second in step["per_second"]]
        least, most = (rates.index(of(rates)) for of in (min, max)) if n else (0, 0)
        expect(f"{name}: lowest and highest rate of {of}", n == 0 or
               (heights[least] == max(heights) and heights[most] == min(heights)), True)


def check_folds(browser, name, html, width):
    """All folds are closed at first, and open by the keyboard; leaves all open."""
    count = lambda which: browser.value(f"document.querySelectorAll('{which}').length")
    expect(f"{name}: folds", (count("details.step") > 0, count("details[open]")), (True, 0))
    hidden = browser.value("""[...document.querySelectorAll('details figure')].every(
        f => !f.checkVisibility())""")
    expect(f"{name}: details are hidden", hidden, True)
    check_page(browser, name)
    browser.screenshot(html.with_name(f"{html.stem}-{width}.png"))
    browser.value("document.querySelector('details.step summary').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter",
                     windowsVirtualKeyCode=13, text="\r" if kind == "keyDown" else "")
    expect(f"{name}: a fold opened by Enter", count("details.step[open]"), 1)
    browser.value("document.querySelector('.bands a:last-child').click()")
    last = browser.value("[...document.querySelectorAll('details.step')].at(-1).open")
    expect(f"{name}: a step's link opens its fold", last, True)
    browser.value("document.querySelectorAll('details').forEach(d => d.open = true)")


def check_pair(browser, files, html, binary):
    """Two runs on one page: verdicts of both, ratios, one overview, charts with the same axes."""
    subprocess.run([binary, "bench", "diff", *map(str, files), "--report", str(html)], check=True,
                   stdout=subprocess.DEVNULL)
    runs = [json.loads(file.read_text()) for file in files]
    rate = lambda s: s["queries_per_s"] if s["op"]["query"]["n"] else s["rows_per_s"]
    a, b = ({s["name"]: s for s in run["steps"]} for run in runs)
    for width in (1280, 400):
        name = f"{html.stem} at {width}"
        browser.open(html.resolve().as_uri(), width)
        check_verdicts(browser, name, runs)
        check_overview(browser, name, runs)
        shown = browser.value(
            "[...document.querySelectorAll('[data-ratio]')].map(r => +r.dataset.ratio)")
        wanted = [rate(b[of]) / rate(a[of]) for of in a if of in b and rate(a[of])]
        close = len(shown) == len(wanted) and all(
            abs(x - y) <= 1e-9 * y for x, y in zip(shown, wanted))
        expect(f"{name}: ratios", close, True)
        text = browser.value("document.body.innerText")
        expect(f"{name}: both files are named", [f.name in text for f in files], [True, True])
        check_folds(browser, name, html, width)
        axes = browser.value("""[...document.querySelectorAll('details.step')].map(d => {
            const of = run => Object.fromEntries([...d.querySelectorAll(`[data-run=${run}] figure`)]
                .map(f => [f.dataset.chart, f.querySelector('svg').getAttribute('viewBox') + ' ' +
                    [...f.querySelectorAll('.mark')].map(m => m.textContent)]));
            return [d.dataset.step, of('a'), of('b')]})""")
        expect(f"{name}: steps", [step for step, *_ in axes], names_of(runs))
        for step, of_a, of_b in axes:
            both = of_a.keys() & of_b.keys()
            expect(f"{name}: charts of both in {step}", len(both) >= 4, step in a and step in b)
            expect(f"{name}: same axes in {step}", {c: of_a[c] for c in both},
                   {c: of_b[c] for c in both})
        check_page(browser, f"{name}, unfolded")
        browser.screenshot(html.with_name(f"{html.stem}-{width}-unfolded.png"))


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
    invented = {}
    for name, length in (("bars", 110), ("lines", 300)):
        invented[name] = invented_run(null, length)
        (out / f"{name}.json").write_text(json.dumps(invented[name]))
        convert = [binary, "bench", "report", str(out / f"{name}.json"), str(out / f"{name}.html")]
        subprocess.run(convert, check=True)
    labs = [lab_run(binary, out, experiment) for experiment in EXPERIMENTS]
    browser = Browser()
    try:
        check(browser, null, null_html)
        check(browser, run, html)
        for name, of in invented.items():
            check(browser, of, out / f"{name}.html")
        pair = [out / "evenkeel.json", out / "lines.json"]
        check_pair(browser, pair, out / "pair.html", binary)
        for run, html in labs:
            check_lab(browser, run, html)
    finally:
        browser.close()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
