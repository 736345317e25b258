"""What is told of a failure: the fewest rows that show it, the statements, both answers, and a file that
replays it by one command."""
import json
import os

from plans.sides import ENGINES, Failed, attempt

REBUILDS = 60  # at most, for fewer rows
SHOWN_ROWS = 12

class Failure:
    """An answer that is not what it should be. `again` asks once more: (right, EVENKEEL's by the plan);
    `theirs` asks InnoDB by the plan."""
    def __init__(self, what, runner, wanted, got, asked, reference, again, theirs=None):
        self.what, self.runner, self.wanted, self.got = what, runner, wanted, got
        self.asked, self.reference, self.again, self.theirs = asked, reference, again, theirs
        self.alike = False  # whether InnoDB gives the same with the fewest rows
        self.mode, self.level, self.changes = runner.mode, runner.level, list(runner.changes)
        self.rows = dict(runner.table.made)

    def signature(self):
        """The kind of failure it is."""
        return f"{self.what.split(' (')[0]}, {outcome(self.got)}"

    def fails_with(self, rows):
        """Whether it is seen with these rows alone."""
        runner = self.runner
        runner.table.made = rows
        try:
            for sql in runner.table.setup():
                runner.sides.both(sql)
        except Exception:  # a table that refuses the rows shows nothing
            return False
        runner.mode, runner.level, runner.changes, runner.totals = self.mode, self.level, [], {}
        sessions = (runner.sides.writers if self.mode == "beside" else runner.sides.readers).values()
        for sql in ["begin", *self.changes] if self.mode != "calm" else []:
            for session in sessions:
                attempt(session, [sql])
        wanted, got = self.again()
        alike = bool(self.theirs) and self.theirs() == got
        runner.sides.both("rollback", writer=self.mode == "beside")
        if wanted == got or outcome(got) != outcome(self.got):
            return False
        self.wanted, self.got, self.rows, self.alike = wanted, got, rows, alike
        return True

    def reduce(self):
        """Leaves out rows as long as it still fails."""
        left, size = REBUILDS, max(len(self.rows["t"]) // 2, 1)
        if not self.fails_with(self.rows):
            self.what += " [not seen again with the same rows]"
            return
        while size and left > 0:
            at, less = 0, False
            while at < len(self.rows["t"]) and left > 0:
                left -= 1
                gone = set(self.rows["t"][at:at + size])
                rows = {name: [row for row in these if row not in gone] for name, these in self.rows.items()}
                if self.fails_with(rows):
                    less = True
                else:
                    at += size
            size = size // 2 if not less or size == 1 else min(size, len(self.rows["t"]) // 2)
            if size == 0 or size == 1 and not less:
                break

    def replay(self):
        """What a replay needs."""
        table = self.runner.table
        table.made = self.rows
        return {"what": self.what, "setup": table.setup(), "mode": self.mode, "changes": self.changes,
                "reference": self.reference, "asked": self.asked}

    def show(self, path, command):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        made = self.replay()
        with open(path, "w") as out:
            json.dump(made, out, indent=1, ensure_ascii=False)
        print(f"\n-- {self.what}\n-- replay: {command} --replay {path}")
        for sql in made["setup"]:
            print(f"{sql[:3000]};")
        if self.mode != "calm":
            print(f"-- {'in another session, which stays open' if self.mode == 'beside' else 'in this session'}:")
            print("".join(f"{sql};\n" for sql in ["begin", *self.changes]), end="")
        print("-- then:")
        print("".join(f"{sql};\n" for sql in self.asked), end="")
        print(f"-- right:    {shown(self.wanted)}\n-- EVENKEEL: {shown(self.got)}", flush=True)

def outcome(answer):
    """An error's number, or what else came."""
    if isinstance(answer, Failed):
        return f"error {answer.number}"
    errors = sorted({a.number for a in (answer[0], *answer[1]) if isinstance(a, Failed)}) if isinstance(answer, tuple) else []
    return f"errors {errors}" if errors else "rows"

def shown(answer):
    if not isinstance(answer, list):
        return str(answer)
    some = ", ".join(str(tuple(f if f is None else f.decode(errors="replace") for f in row)) for row in answer[:SHOWN_ROWS])
    return f"{len(answer)} rows: {some}{', ...' if len(answer) > SHOWN_ROWS else ''}"

def replay(path, sides):
    """Runs a file that `show` wrote and prints what each engine answers to each way of asking."""
    made = json.load(open(path))
    print(made["what"])
    for sql in made["setup"]:
        sides.both(sql)
    for sql in ["begin", *made["changes"]] if made["mode"] != "calm" else []:
        sides.both(sql, writer=made["mode"] == "beside")
    answers = []
    for name in ("reference", "asked"):
        for engine in ENGINES:
            out = [attempt(sides.readers[engine], [sql]) for sql in made[name]]
            rows = [a for a in out if not isinstance(a, int)]
            print(f"{name} on {engine}: {'; '.join(shown(sorted(a) if isinstance(a, list) else a) for a in rows)}")
            answers.append(rows)
            attempt(sides.readers[engine], ["rollback"] if made["mode"] == "calm" else [])
    return answers
