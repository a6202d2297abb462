#!/usr/bin/env python3
"""Writes docs/what_we_learned.md from lab/experiments/what_we_learned.md.in and the experiments' recipes and results.

    python3 scripts/figures/learned.py            writes the page
    python3 scripts/figures/learned.py --check    fails if the page in the tree is another

The source has {{expressions}} in place of figures. SET is EXPERIMENT:CELL, with patterns and commas in CELL and +
between several. Trials that failed have no error. Errors are in percent and differences in points; `ahead` is positive
where the first SET has the smaller error.

    error SET                 mean and standard deviation of the last epoch's test error
    error-of SET SEED         the error of one trial
    paper EXPERIMENT:CELL     the same of the paper; paper-success: its share of trials that succeeded
    paper-ahead CELLS CELLS   `ahead` of the paper's means
    success SET, failed SET   "3 of 15"
    steps SET                 at which steps trials failed: "1 to 74"
    runs SET                  epochs x trials: "6 x 15"
    ahead SET SET             difference of the means, with its interval of 95 % (Welch's test)
    paired SET SET            the same, paired by the seed and by pattern: what the first leaves open, or lists first,
                              with what the second does (Student's test)
    slope SET                 of the error over the cells' x, with its interval
    verdict OPERATION ...     of these: "holds" or "the reverse", if so after Holm's correction over all
                              differences and slopes of the page; "points that way" or "points the other way", if
                              only without it; otherwise "inconclusive"
    gradient SET              the largest finite gradient norm that was recorded
    rise SET                  the largest rise of the training loss from one record to the next, after the first tenth
    noise SET...              standard deviation of trials of one seed, pooled over the seeds of each SET
    trials EPOCHS             how many trials have so many epochs; paper-cells EPOCHS: of how many of the paper's
    row EXPERIMENT LIST FIELD FORMAT NAME=VALUE...   of the rows of a measurement, the field of those that fit; the
                              smallest and the largest if there are several
"""

import json
import math
import re
import sys
import tomllib
from collections import defaultdict, namedtuple
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean, stdev

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS, PAGE = ROOT / "lab/experiments", ROOT / "docs/what_we_learned.md"
HEAD = (
    "<!-- Written by scripts/figures/learned.py from lab/experiments/what_we_learned.md.in and the results: "
    "change those. -->\n"
)

# A difference, its interval of 95 %, and how unlikely it would be if there were none. Without an interval: NaN, p = 1.
Difference = namedtuple("Difference", "mean low high p")
Chosen = namedtuple("Chosen", "experiment cell trial open")  # open: which pattern it fits, and what the star stands for


class Wrong(Exception):
    """An expression that cannot be read, or has no trials."""


def require(holds, what):
    if not holds:
        raise Wrong(what)


def student_p(t, freedom):
    """The probability that Student's t with that many degrees of freedom is at least |t| from 0."""
    a, b, x = freedom / 2, 0.5, freedom / (freedom + t * t)

    def fraction(a, b, x):  # of the incomplete beta function, by Lentz's method
        def safe(y):
            return y if abs(y) > 1e-300 else 1e-300

        c, d = 1.0, 1 / safe(1 - (a + b) * x / (a + 1))
        value = d
        for m in range(1, 1000):
            two = a + 2 * m
            for term in (m * (b - m) * x / ((two - 1) * two), -(a + m) * (a + b + m) * x / (two * (two + 1))):
                d, c = 1 / safe(1 + term * d), safe(1 + term / c)
                value *= c * d
            if abs(c * d - 1) < 1e-15:
                break
        return value

    if x >= 1:
        return 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * fraction(a, b, x) / a
    return 1 - front * fraction(b, a, 1 - x) / b


def student_t95(freedom):
    """The t that student_p says 0.05 of."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if student_p(middle, freedom) > 0.05 else (low, middle)
    return (low + high) / 2


def with_interval(mean, error, freedom):
    side = student_t95(freedom) * error
    return Difference(mean, mean - side, mean + side, student_p(mean / error, freedom))


def welch(a, b):
    """mean(b) - mean(a)."""
    require(a and b, "every trial failed")
    mean = fmean(b) - fmean(a)
    if min(len(a), len(b)) < 2:
        return Difference(mean, math.nan, math.nan, 1)
    va, vb = (stdev(x) ** 2 / len(x) for x in (a, b))
    return with_interval(mean, math.sqrt(va + vb), (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1)))


def paired(differences):
    require(len(differences) > 1, "expected two pairs or more")
    return with_interval(fmean(differences), stdev(differences) / math.sqrt(len(differences)), len(differences) - 1)


def holm(p):
    """Holm's correction: how unlikely each is among all of them."""
    corrected, before = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        corrected[i] = before = max(before, min(1.0, (len(p) - rank) * p[i]))
    return corrected


def fits(patterns, name):
    return any(fnmatchcase(name, pattern) for pattern in patterns.split(","))


def place_of(patterns, name):
    for i, pattern in enumerate(patterns.split(",")):
        if fnmatchcase(name, pattern):
            star = pattern.find("*")
            return i, "" if star < 0 else name[star : len(name) - len(pattern) + star + 1]


def mean_text(errors):
    return f"{fmean(errors):.2f}" + (f" ± {stdev(errors):.2f}" if len(errors) > 1 else "")


def range_text(values, text=str):
    least, most = text(min(values)), text(max(values))
    return least if least == most else f"{least} to {most}"


class Experiment:
    def __init__(self, recipe, results):
        self.cells, self.draws_others = recipe.get("cells", {}), bool(recipe.get("results_of"))
        self.epochs, self.trials = results.get("options", {}).get("epochs", 0), results.get("trials", [])
        self.measured = results.get("measured")

    def of(self, cell):
        name = self.cells[cell].get("same_as", cell)
        return sorted((trial for trial in self.trials if trial["cell"] == name), key=lambda trial: trial["seed"])


def read_experiments(folder=EXPERIMENTS):
    experiments = {}
    for file in folder.glob("*/recipe.toml"):
        recipe = tomllib.loads(file.read_text())
        results = folder / recipe.get("results_of", file.parent.name) / "results.json"
        experiments[file.parent.name] = Experiment(recipe, json.loads(results.read_text()) if results.exists() else {})
    return experiments


def error_of(trial):
    """In percent; None if the trial failed."""
    return None if "failure" in trial else 100 * trial["error"]


class Figures:
    """An expression's name is that of a method, with underscores for dashes."""

    COMPARISONS = ("ahead", "paired", "slope")

    def __init__(self, experiments, expressions):
        self.experiments = experiments
        compared = {tuple(words[words[0] == "verdict" :]) for words in expressions if words}
        found = {words: self.compare(words) for words in sorted(compared) if words[0] in self.COMPARISONS}
        counted = {words: one.p for words, one in found.items() if not math.isnan(one.low)}
        self.compared, self.corrected = found, dict(zip(counted, holm(list(counted.values()))))

    def value(self, words):
        if words[0] in self.COMPARISONS:
            return self.comparison(words)
        method = getattr(self, words[0].replace("-", "_"), None)
        require(method, "no such figure")
        return method(*words[1:])

    def compare(self, words):
        try:
            return getattr(self, "compare_" + words[0])(*words[1:])
        except (Wrong, TypeError) as error:
            raise Wrong("{{" + " ".join(words) + "}}: " + str(error)) from error

    def comparison(self, words):
        mean, low, high, _ = self.compared[tuple(words)]
        if words[0] == "slope":  # of the error itself: it falls where the difference is positive
            return f"{-mean:.3f} points each (95 %: {-high:.3f} to {-low:.3f})"
        return f"{mean:.2f} (no interval)" if math.isnan(low) else f"{mean:.2f} ({low:.2f} to {high:.2f})"

    def compare_ahead(self, a, b):
        return welch(self.errors(a), self.errors(b))

    def compare_paired(self, a, b):
        others = self.chosen(b)
        return paired([
            error_of(other.trial) - error_of(one.trial)
            for one in self.chosen(a)
            for other in others
            if (one.open, one.trial["seed"]) == (other.open, other.trial["seed"])
            and error_of(one.trial) is not None
            and error_of(other.trial) is not None
        ])

    def compare_slope(self, where):
        """Negative of the slope: positive where the error falls."""
        trials = [one for one in self.chosen(where) if error_of(one.trial) is not None]
        require(len(trials) > 2, "expected three trials or more")
        x = [one.experiment.cells[one.cell]["x"] for one in trials]
        y = [error_of(one.trial) for one in trials]
        mx, my, freedom = fmean(x), fmean(y), len(x) - 2
        sxx = sum((a - mx) ** 2 for a in x)
        slope = sum((a - mx) * (b - my) for a, b in zip(x, y)) / sxx
        rest = sum((b - my - slope * (a - mx)) ** 2 for a, b in zip(x, y))
        return with_interval(-slope, math.sqrt(rest / freedom / sxx), freedom)

    def experiment(self, place):
        name, colon, cells = place.partition(":")
        require(colon, f"expected EXPERIMENT:CELL, got {place}")
        require(name in self.experiments, f"no experiment {name}")
        return self.experiments[name], cells

    def chosen(self, where):
        all_found = []
        for part in where.split("+"):
            experiment, patterns = self.experiment(part)
            found = [
                Chosen(experiment, cell, trial, place_of(patterns, cell))
                for cell in experiment.cells
                if fits(patterns, cell)
                for trial in experiment.of(cell)
            ]
            require(found, f"{part} has no trials")
            all_found += found
        return all_found

    def errors(self, where):
        return [error_of(one.trial) for one in self.chosen(where) if error_of(one.trial) is not None]

    def error(self, where):
        found = self.errors(where)
        require(found, "every trial failed")
        return mean_text(found)

    def error_of(self, where, seed):
        found = [error_of(one.trial) for one in self.chosen(where) if one.trial["seed"] == int(seed)]
        require(found and found[0] is not None, "no such trial")
        return f"{found[0]:.2f}"

    def of_the_paper(self, place, figure):
        experiment, patterns = self.experiment(place)
        found = [cell["paper"] for name, cell in experiment.cells.items() if fits(patterns, name) and "paper" in cell]
        found = [paper for paper in found if figure in paper]
        require(found, "the paper has no such figure")
        return found

    def paper(self, place):
        paper = self.of_the_paper(place, "mean")[0]
        return f"{paper['mean']:.2f}" + (f" ± {paper['std']:.2f}" if "std" in paper else "")

    def paper_success(self, place):
        return f"{self.of_the_paper(place, 'success')[0]['success']:g} %"

    def paper_ahead(self, a, b):
        means = [fmean(paper["mean"] for paper in self.of_the_paper(place, "mean")) for place in (a, b)]
        return f"{means[1] - means[0]:.2f}"

    def count(self, where, failed):
        trials = self.chosen(where)
        return f"{sum(('failure' in one.trial) == failed for one in trials)} of {len(trials)}"

    def success(self, where):
        return self.count(where, False)

    def failed(self, where):
        return self.count(where, True)

    def steps(self, where):
        found = [one.trial["failure"]["step"] for one in self.chosen(where) if "failure" in one.trial]
        require(found, "no trial failed")
        return range_text(found)

    def runs(self, where):
        by_epochs = defaultdict(int)
        for one in self.chosen(where):
            by_epochs[one.experiment.epochs] += 1
        return ", ".join(f"{epochs:g} x {trials}" for epochs, trials in sorted(by_epochs.items()))

    def gradient(self, where):
        most = max(norm for one in self.chosen(where) for norm in one.trial["gradient"] if norm is not None)
        return f"{most:.1f}" if most < 100 else f"{most:,.0f}"

    def rise(self, where):
        losses = [one.trial["loss"] for one in self.chosen(where)]
        rises = [b - a for loss in losses for a, b in zip(loss[len(loss) // 10 :], loss[len(loss) // 10 + 1 :])
                 if a is not None and b is not None]
        return f"{max(rises):.2f}"

    def noise(self, *sets):
        squares = freedom = 0
        for where in sets:
            by_seed = defaultdict(list)
            for one in self.chosen(where):
                if error_of(one.trial) is not None:
                    by_seed[one.trial["seed"]].append(error_of(one.trial))
            for errors in by_seed.values():
                if len(errors) > 1:
                    squares += stdev(errors) ** 2 * (len(errors) - 1)
                    freedom += len(errors) - 1
        require(freedom, "no seed was run twice")
        return f"{math.sqrt(squares / freedom):.2f}"

    def of_epochs(self, epochs):
        return [one for one in self.experiments.values() if not one.draws_others and one.epochs == int(epochs)]

    def trials(self, epochs):
        return str(sum(len(one.trials) for one in self.of_epochs(epochs)))

    def paper_cells(self, epochs):
        return str(sum(
            "same_as" not in cell and bool(cell.get("paper")) and bool(one.of(name))
            for one in self.of_epochs(epochs)
            for name, cell in one.cells.items()
        ))

    def row(self, name, rows, field, form, *wanted):
        def text(value):
            return (value if isinstance(value, str) else json.dumps(value)).replace(" ", "_")

        experiment, _ = self.experiment(name + ":")
        wanted = [one.split("=", 1) for one in wanted]
        found = [
            row[field]
            for row in experiment.measured[rows]
            if row[field] is not None and all(text(row[name]) == value for name, value in wanted)
        ]
        require(found, "no such row")
        return range_text(found, form.format)

    def verdict(self, *words):
        require(words in self.compared, "expected ahead, paired or slope")
        found, claimed = self.compared[words], self.compared[words].mean > 0
        if self.corrected.get(words, 1) < 0.05:
            return "holds" if claimed else "the reverse"
        if found.p < 0.05:
            return "points that way" if claimed else "points the other way"
        return "inconclusive"


def with_figures(text, experiments):
    """The text with each {{expression}} replaced. Raises Wrong, with the expression."""
    pieces = re.split(r"\{\{(.*?)\}\}", text)
    require(not any("{{" in piece for piece in pieces[::2]), "expected }} after each {{")
    expressions = [piece.split() for piece in pieces[1::2]]
    figures = Figures(experiments, expressions)
    for i, words in enumerate(expressions):
        try:
            pieces[2 * i + 1] = figures.value(words)
        except (Wrong, TypeError, ValueError, IndexError) as error:
            raise Wrong("{{" + " ".join(words) + "}}: " + str(error)) from error
    return "".join(pieces)


def main():
    page = HEAD + with_figures((EXPERIMENTS / "what_we_learned.md.in").read_text(), read_experiments())
    if "--check" not in sys.argv:
        PAGE.write_text(page)
    elif PAGE.read_text() != page:
        sys.exit(f"{PAGE.relative_to(ROOT)} is not what scripts/figures/learned.py writes")


if __name__ == "__main__":
    main()
