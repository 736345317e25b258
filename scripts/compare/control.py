"""The control (`evenkeel bench --engine null`): the same clients, as many rows and one sync to a
commit, and no engine. What is uneven with it is the machine's; it has a turn in every round."""

import json
import subprocess
from pathlib import Path

from evenness import ratios
from inserts import binary
from row import CONTROL

# A round in which it was less even than this, or had a longer operation, is begun again.
P5_MIN, LONGEST_MAX_MS = 0.70, 50
CLIENTS = 16


def steps(base, seconds, rows, *flags, clients=CLIENTS):
    """Its steps by name; `rows`: what a commit of the load changes."""
    out, files = Path(base) / "control.json", Path(base) / "control-files"
    subprocess.run([binary(), "bench", "--engine", "null", "--dir", files, "--clients", str(clients),
                    "--rows", "1000,1000", "--batch", f"100,{rows},1",
                    "--steps", f"l.i0,l.x,l.i1:{seconds}s", "--json", out, *flags],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run(["rm", "-rf", files], check=True)
    return {step["name"]: step for step in json.loads(out.read_text())["steps"]}


def figures(step, rows):
    """What a work on a server gives, of a step of the control; a rate counts so many rows as one."""
    per_second = [second[0] / rows for second in step["per_second"]]
    return {"tps": step["rows_per_s"] / rows, "longest": step["max_op_ms"], "per_second": per_second,
            **ratios(per_second)}


def run(base, seconds, rows, clients=CLIENTS):
    return figures(steps(base, seconds, rows, clients=clients)["l.i1"], rows)


def disturbed(found):
    return found["p5"] is not None and (found["p5"] < P5_MIN or found["longest"] > LONGEST_MAX_MS)


def rounds(plan, pair, what, work, control):
    """What `work(server)` gave by engine and `control()` as the control's, of each round. The
    control is first: a machine that disturbs it is found before the servers spend their time."""
    done, repeats = [], 0
    while len(done) < plan.rounds:
        found = control()
        told = "".join(f"{name} {found[key]:.2f}, " for name, key in (
            ("worst second", "worst"), ("5th percentile", "p5")) if found[key] is not None)
        again = disturbed(found) and repeats < plan.repeats
        pair.seen(f"{what} control: {found['tps']:.0f} a second, {told}longest "
                  f"{found['longest']:.1f} ms" + ", disturbed: once more" * again)
        repeats += again
        if not again:
            done.append(pair.each(what, work) | {CONTROL: found})
    return done
