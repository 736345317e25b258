"""The rules by which figures are met or missed, of scripts/compare and scripts/bars.py."""

import math
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import alter  # noqa: E402
import bars  # noqa: E402
import churn  # noqa: E402
import control  # noqa: E402
from evenness import below, even, longest, middle, ratios  # noqa: E402
from row import CONTROL, OURS, row  # noqa: E402
from watch import DONE, REQUESTED, REQUIRED, WAITS, Watch, of_device  # noqa: E402


def rounds(*worst, own=0.0, control=0.75):
    return [{OURS: {"worst": ours, "own": own}, CONTROL: {"worst": control}} for ours in worst]


def met(*arguments, seconds=300, **more):
    return even("M8", "", 0.80, rounds(*arguments, **more), seconds)["met"]


class Evenness(unittest.TestCase):
    def test_the_first_seconds_and_the_last_do_not_count(self):
        seconds = [1] * 5 + [100] * 24 + [1]
        self.assertEqual(ratios(seconds), {"worst": 1, "p5": 1})
        seconds[10], seconds[12] = 40, 70
        self.assertEqual(ratios(seconds), {"worst": 0.4, "p5": 0.7})
        self.assertEqual(below(seconds, 0.5), [10])
        self.assertEqual(ratios(seconds[:19]), {"worst": None, "p5": None})

    def test_a_worst_second_is_met_by_itself_or_by_the_control(self):
        self.assertIs(met(0.80, 0.85, 0.80, own=0.5), True)
        self.assertIs(met(0.72, 0.72, 0.10), True)
        self.assertIs(met(0.70, 0.70, 0.99), False)
        self.assertIs(met(0.72, 0.72, 0.72, own=0.06), False)
        # An even control excuses nothing.
        self.assertIs(met(0.79, 0.79, 0.79, control=1.0), False)

    def test_short_runs_do_not_count(self):
        self.assertIsNone(met(0.9, 0.9, 0.9, seconds=299))
        self.assertIsNone(met(0.9, 0.9))

    def test_a_long_operation_of_a_slow_device_does_not_count(self):
        found = lambda ms, device: longest("M8", "", 100, [{OURS: {
            "longest": ms, "device_ms": device}}])["met"]
        self.assertEqual([found(99, 90), found(150, 70), found(150, 80)], [True, False, None])

    def test_figures_are_medians_and_errors_do_not_count(self):
        self.assertEqual(middle([{"a": {"x": 1}}, {"a": {"x": None}}, {}, {"a": {"x": 4}}], "x"),
                         {"a": 2.5})
        self.assertIsNone(row("M1", "", "", {OURS: 2, "InnoDB": 1}, 1.0, errors={OURS: 1})["met"])
        self.assertIs(row("M1", "", "", {OURS: 2, "InnoDB": 1}, 1.0)["met"], True)


class Control(unittest.TestCase):
    def test_disturbed_rounds_are_begun_again(self):
        found = [{"tps": 1, "worst": 0.5, "p5": p5, "longest": ms}
                 for p5, ms in ((0.69, 1), (0.9, 51), (0.7, 50), (0.9, 1))]
        given, plan = iter(found), type("Plan", (), {"rounds": 2, "repeats": 5})
        pair = type("Pair", (), {"seen": print, "each": lambda *_: {OURS: {}}})
        pair.seen = staticmethod(lambda line: None)
        done = control.rounds(plan, pair(), "M8", None, lambda: next(given))
        self.assertEqual([of[CONTROL] for of in done], found[2:])


class Alter(unittest.TestCase):
    def test_an_alter_is_set_beside_the_seconds_before_it(self):
        seconds = [50, 100, 100, 100, 100, 100, 60, 80, 100]
        numbers, before, rates = alter.during((6.5, 7.2), seconds)
        self.assertEqual((list(numbers), before, rates), ([6, 7], 100, [60, 80]))
        self.assertEqual(alter.worst([(6.5, 7.2)], seconds), 0.6)


class Queue(unittest.TestCase):
    def verdicts(self, length=300, replaced=1.0, errors=0, **figures):
        of = {key: 1.0 for key in ("tps", "delete", "min", "min_median", "space_most", "space",
                                   "delete_grown", "min_grown", "min_median_grown")}
        of |= {"replaced": replaced, "errors": errors, "deletes": [1.0], "searches": [2.0],
               "per_second": [3.0]} | figures
        rows = churn.rows_of("queue", [{OURS: of, "InnoDB": of | {"delete_grown": 9, "replaced": 0}}],
                             length)
        return [found["met"] for found in rows if found["limit"] is not None]

    def test_what_grows_or_takes_too_much_space_is_missed(self):
        self.assertEqual(self.verdicts(), [True] * 4)
        self.assertEqual(self.verdicts(delete_grown=1.25, min_grown=1.26), [True, False, True, True])
        self.assertEqual(self.verdicts(min_median_grown=1.3, space=1.31), [True, True, False, False])
        self.assertEqual(self.verdicts(space=1.3, space_most=9), [True] * 4)

    def test_a_short_run_or_one_that_replaced_too_few_does_not_count(self):
        self.assertEqual(self.verdicts(length=299), [None] * 4)
        self.assertEqual(self.verdicts(replaced=0.9), [None] * 4)
        # Errors are of what was timed, not of the space.
        self.assertEqual(self.verdicts(errors=1), [None, None, None, True])

    def test_the_last_tenth_is_set_beside_the_first(self):
        bucket = lambda ms: round(math.log(ms * 1000, churn.STEP))
        seconds = {s: Counter({bucket(1): 99, bucket(50): 1}) for s in range(7, 26)}
        self.assertAlmostEqual(churn.growth(seconds, 0.99), 1.0, 2)
        # Of 19 seconds a tenth is one; that nothing ended in one is no time of it.
        seconds[25] = Counter({bucket(1): 98, bucket(2): 1, bucket(50): 1})
        del seconds[9]
        self.assertAlmostEqual(churn.growth(seconds, 0.99), 2.0, 1)
        self.assertAlmostEqual(churn.growth(seconds, 0.5), 1.0, 2)

    def test_seconds_are_of_all_clients(self):
        found = churn.seconds_of(["5 delete 10 1 12 3\n5 min 3 1\n", "5 delete 12 1\n6 delete 9 2\n"])
        self.assertEqual(found["delete"], {5: {10: 1, 12: 4}, 6: {9: 2}})
        self.assertEqual(found["min"], {5: {3: 1}})

    def test_space_is_without_the_log(self):
        with tempfile.TemporaryDirectory() as data:
            for name in ("pages/a", "wal/b", "c.log"):
                file = Path(data) / "#evenkeel" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(b"x" * 4096)
            pages = (Path(data) / "#evenkeel" / "pages" / "a").stat().st_blocks * 512
            self.assertEqual(churn.space(data, OURS), pages)


class Watched(unittest.TestCase):
    def watch(self, *samples):
        watch = Watch(None)
        watch.samples = [(at, cpu, written, status) for at, cpu, written, status in samples]
        return watch

    def test_waits_are_those_of_the_seconds_asked_for(self):
        waits = lambda us: {WAITS[0]: us // 2, WAITS[1]: us // 2}
        watch = self.watch((10, 0, 0, waits(0)), (11, 0, 0, waits(0)), (12, 0, 0, waits(400_000)),
                           (13, 0, 0, waits(400_000)))
        self.assertEqual(watch.own_share(10.0, [1], 4), 0.1)
        self.assertEqual(watch.own_share(10.0, [2], 4), 0.0)

    def test_seconds_that_flush_more_than_asked_are_found(self):
        pages = lambda asked, done: {REQUESTED: asked, DONE: done}
        watch = self.watch((0, 0, 0, pages(0, 0)), (1, 0, 0, pages(1000, 400)),
                           (2, 0, 0, pages(1100, 1010)), (3, 0, 0, pages(1100, 1160)))
        # The second one had 512 under way from before; the third 90.
        self.assertEqual(watch.flushed_too_much(), [])
        watch.samples.append((4, 0, 0, pages(1100, 1230)))
        self.assertEqual(watch.flushed_too_much(), [(0, 70)])
        # What a checkpoint required beyond the law is no excuse.
        forced = {REQUESTED: 1300, REQUIRED: 200, DONE: 1430}
        watch.samples.append((5, 0, 0, forced))
        self.assertEqual(watch.flushed_too_much(), [(0, 70), (0, 200)])

    def test_what_a_row_costs_at_the_end_and_at_the_beginning(self):
        watch = self.watch((0, 0, 0, {}), (1, 10, 100, {}), (2, 40, 200, {}))
        self.assertEqual(watch.per_row([10, 20], 1), [1.5, 0.5])

    def test_a_wait_from_before_is_not_of_this_run(self):
        self.assertEqual(of_device({"log_sync": 90.0}, {"log_sync": 90.0, "page_read": 3.0}), 3.0)


class Single(unittest.TestCase):
    LINES = (
        ("E5 4 rows cached: 900 ns, with begin and commit 1501 ns; control: 90 ns", "MISSED"),
        ("E9 kill -9, 1023 MiB of log, 1 records: first query after 2.99 s", "-"),
        ("E9 kill -9, 1024 MiB of log, 1 records: first query after 2.99 s", "met"),
        ("E9 kill -9, 1024 MiB of log of random updates (5/s): first query after 4.20 s; 9 pages, of "
         "which this device reads 7 a second: 1.10 s", "MISSED"),
        ("E9 inserts/s before 9, from the fifth second on 8 (0.89); each second [8]; seconds that "
         "flushed more than 1.1 x asked + 64 pages: [(1, 2, 70)]", "MISSED"),
        ("E10 9 rows deleted from the low end (9/s): slowest min(pk) 1.2ms, in 3 s after 10.1ms",
         "MISSED"),
        ("E10 9 rows deleted from the low end (9/s) beside an older snapshot: slowest min(pk) "
         "49ms, in 3 s after 87µs", "met"),
        ("E11 updates/s in the last fifth of 10 s: 9 without, 8 with a snapshot held (0.89)", "met"),
        ("E11 the snapshot reads 1000 rows in 2.1ms", "-"),
        ("E12 open of an empty store 9.1ms, 40960 KiB; idle 3 s: 0 wake-ups, 1 writes", "MISSED"),
        ("E12 close with 8 MiB of dirty pages and 3 MiB of memtables: 5.1s; opened again in 1.3s, 9 "
         "MiB of log read, 4 pages", "MISSED"),
    )

    def test_what_the_example_prints_is_judged(self):
        found = []
        lines = type("Lines", (), {"add": lambda _, bar, text, asked, met=None: found.append(
            {True: "met", False: "MISSED", None: "-"}[met])})()
        for line, _ in self.LINES:
            bars.judge(lines, line)
        self.assertEqual(found, [wanted for _, wanted in self.LINES])


if __name__ == "__main__":
    unittest.main()
