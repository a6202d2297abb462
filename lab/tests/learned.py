"""scripts/figures/learned.py: its statistics, its expressions, and the page in the tree.

  learned.py SCRIPT [unittest's options]
"""

import importlib.util
import math
import re
import subprocess
import sys
import unittest

SCRIPT = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location("learned", SCRIPT)
learned = importlib.util.module_from_spec(spec)
spec.loader.exec_module(learned)


def trial(cell, seed, error, **more):
    return {"cell": cell, "seed": seed, "error": error, "loss": [2, 1, 1.5], "gradient": [3, 1234.6, None], **more}


def experiments(trials=None):
    cells = {name: {"x": int(name[-1])} for name in ("a-d4", "a-d8", "b-d4", "b-d8")}
    cells["bn"] = {"paper": {"mean": 4.81}}
    cells["a-d4"]["paper"] = {"mean": 4.59, "std": 0.09, "success": 46.7}
    trials = trials or [
        trial("a-d4", 1, 0.10), trial("a-d4", 2, 0.12), trial("a-d8", 1, 0.11), trial("b-d4", 1, 0.13),
        trial("b-d4", 2, 0.14), trial("b-d8", 1, 0.12), trial("b-d8", 2, None, failure={"step": 33})]  # fmt: skip
    rows = [{"n": 4, "rule": "the one", "value": 0.5}, {"n": 8, "rule": "the one", "value": 1e-7},
            {"n": 4, "rule": "other", "value": 7}]  # fmt: skip
    results = {"options": {"epochs": 6}, "trials": trials, "measured": {"rows": rows}}
    return {"table": learned.Experiment({"cells": cells}, results)}


class Learned(unittest.TestCase):
    def test_students_t_is_that_of_the_tables(self):
        for freedom, t in ((1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)):
            self.assertAlmostEqual(learned.student_t95(freedom), t, delta=6e-4)
        self.assertAlmostEqual(learned.student_p(-7, 1), 1 - 2 * math.atan(7) / math.pi, 13)  # Cauchy
        self.assertAlmostEqual(learned.student_p(3, 2), 1 - 3 / math.sqrt(11), 13)  # 1 - t / sqrt(2 + t^2)
        self.assertEqual(learned.student_p(0, 4), 1)

    def test_differences_have_their_intervals(self):
        # Means 2 and 5, variances of the means 1/3 and 4/3: freedom (5/3)^2 / (1/18 + 16/18) = 50/17.
        found, side = learned.welch([1, 2, 3], [3, 5, 7]), learned.student_t95(50 / 17) * math.sqrt(5 / 3)
        for ours, truth in zip(found, (3, 3 - side, 3 + side, learned.student_p(3 / math.sqrt(5 / 3), 50 / 17))):
            self.assertAlmostEqual(ours, truth, 12)
        self.assertEqual(learned.welch([1], [3, 5]).p, 1)
        self.assertAlmostEqual(learned.paired([1, 2, 3]).high, 2 + 4.302652729749463 / math.sqrt(3), 9)
        self.assertEqual(learned.holm([0.01, 0.04, 0.03, 0.5]), [0.04, 0.09, 0.09, 0.5])

    def test_expressions_become_figures(self):
        for expression, text in {
            "error table:a-d4": "11.00 ± 1.41",
            "error table:a-d8": "11.00",
            "error table:a-d4+table:b-d8": "11.33 ± 1.15",
            "error-of table:b-d4 2": "14.00",
            "paper table:a-d4": "4.59 ± 0.09",
            "paper-success table:a-d4": "46.7 %",
            "paper-ahead table:a-d4 table:bn": "0.22",
            "success table:b-*": "3 of 4",
            "failed table:b-*,a-d8": "1 of 5",
            "steps table:b-*": "33",
            "runs table:b-*": "6 x 4",
            "gradient table:a-d4": "1,235",
            "rise table:a-d4": "0.50",
            "trials 6": "7",
            "trials 350": "0",
            "paper-cells 6": "1",  # the other has no trial
            "row table rows value {:.1f} n=4 rule=the_one": "0.5",
            "row table rows value {:.1g} rule=the_one": "1e-07 to 0.5",
            # Pairs of the same d and seed: 3, 2 and 1 points; the failed trial has none.
            "paired table:a-* table:b-*": "2.00 (-0.48 to 4.48)",
            "paired table:a-d4,a-d8 table:b-d4,b-d8": "2.00 (-0.48 to 4.48)",
            "ahead table:a-d8 table:b-d4": "2.50 (no interval)",
            "slope table:a-d4+table:a-d8": "0.000 points each (95 %: -5.502 to 5.502)",
            "noise table:a-*": "0.71",  # by seed: 10 and 11 (d = 4 and 8), and 12 alone
        }.items():
            self.assertEqual(learned.with_figures("<{{" + expression + "}}>", experiments()), f"<{text}>", expression)

    def test_verdicts_are_corrected_for_each_other(self):
        trials = [trial(cell, seed, error + 0.002 * seed) for cell, error in (("a-d4", 0.1), ("b-d4", 0.106))
                  for seed in (0, 1, 2)]  # fmt: skip
        # p = 0.021 alone, which two comparisons leave below 0.05 and three do not. The same one twice counts once.
        one, other = "{{verdict ahead table:a-d4 table:b-d4}}", "{{ahead table:a-d4,b-d4 table:b-d4}}"
        for text, begin in {
            one + one: "holdsholds",
            "{{verdict ahead table:b-d4 table:a-d4}}": "the reverse",
            one + other + "{{ahead table:b-d4 table:a-d4,b-d4}}": "points that way",
            other.replace("{{", "{{verdict "): "inconclusive",
        }.items():
            self.assertTrue(learned.with_figures(text, experiments(trials)).startswith(begin), text)

    def test_what_cannot_be_read_is_named(self):
        for expression, part in {
            "average table:a-d4": "no such figure",
            "error nothing:a-d4": "no experiment nothing",
            "error table:c-*": "table:c-* has no trials",
            "error a-d4": "expected EXPERIMENT:CELL, got a-d4",
            "error": "missing 1 required",
            "steps table:a-d4": "no trial failed",
            "row table rows value {:.1f} n=5": "no such row",
            "paper table:a-d8": "the paper has no such figure",
            "ahead table:a-d4 table:x": "table:x has no trials",
        }.items():
            with self.assertRaises(learned.Wrong) as caught:
                learned.with_figures("{{" + expression + "}}", experiments())
            self.assertIn("{{" + expression + "}}", str(caught.exception))
            self.assertIn(part, str(caught.exception))
        with self.assertRaises(learned.Wrong):
            learned.with_figures("{{error", experiments())

    def test_the_page_in_the_tree_is_up_to_date(self):
        subprocess.run([sys.executable, SCRIPT, "--check"], check=True)

    def test_no_figure_of_its_source_is_written_by_hand(self):
        text = re.sub(r"\{\{.*?\}\}", "", (learned.EXPERIMENTS / "what_we_learned.md.in").read_text())
        # What the paper states.
        text = re.sub(r"99\.9 %|99\.5 %|(85|90|95|99|100) %|0\.84 to 0\.86", "", text)
        self.assertEqual(re.findall(r"\d+\.\d+|\d+ %|\d+ of \d+|\d+ points", text), [])


if __name__ == "__main__":
    unittest.main()
