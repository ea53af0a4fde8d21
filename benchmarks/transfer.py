"""Accuracy of predicted scores of models unlike the reference models, compared with baselines.

    uv run python benchmarks/transfer.py [--data ../shared/data/transfer] [--seeds 20]

Every response matrix of the folder (CSV, CSV.gz or Parquet; one row per model) is split in four
ways into reference models and tested models: at random; all but the strongest fifth and that fifth;
the weakest half and the strongest 30 %; all but the weakest fifth and that fifth. Every tested
model takes a test of 16, 50 and 100 items from each seed, answered from its own row, and its score
over all items is predicted. Figures are means over models and seeds, then over matrices.

| way | items | prediction |
|---|---|---|
| combined | chosen by the curves or, if these are doubtful, sampled | the default test's score |
| score-model | V-optimal for the covariance of the records | linear; before curves, the default |
| mean | random | mean of the items, interval by Wilson (by t where scores are not 0 or 1) |
| ridge | random | ridge regression from the asked items to all |
| aipw-ridge, aipw-logistic | random | a model of five folds plus the mean residual of each fold |
| p-irt | random | asked items, and a 2PL with a standard normal prior on the rest |

Widths are relative to those of the mean of as many random items; coverage is of 95 % intervals.
With --widths, tests by the first way also stop as soon as their interval is narrow enough: `until
0.2` counts those that get there within the longest test. With --counts 50 --models 20 it takes some
minutes: tests of one length, and that many models of each matrix, evenly by their scores.
"""

import argparse
import os
import time
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.special import expit
from scipy.stats import t as student

from app.calibration.multidimensional.score_curves import fit_curves, learn_curves
from app.calibration.multidimensional.score_model import LEAST_EXAMINEES, learn_scores
from app.engine.bank import ItemBank
from app.engine.design.design import Design
from app.engine.prediction.score_model import short_form
from app.engine.prediction.targets import WHOLE_BANK
from app.engine.simulation.simulate import take
from app.exchange.responses import read_responses

COUNTS = (16, 50, 100)
FOLDS, RIDGE = 5, 8.0
LEAST_ANSWERS = 5  # before a width counts
FEW_GAPS = 0.9  # share of items answered by all, from which on the others are dropped
Z = 1.959964
_DRAWS = 2000


def score_test(learned, length):
    """Return the default test of a bank with these curves, which ends after so many items."""
    intercept = learned.curves.intercept
    bank = ItemBank.from_intercepts(a=np.ones(intercept.size), intercept=intercept)
    stopping = {"score_margin": None, "max_items": length, "min_items": length}
    return Design.from_dict({"preset": "score", "stopping": stopping}).build(bank, curves=learned)


def splits(scores):
    order = np.argsort(scores.mean(axis=1), kind="stable")
    n = len(order)
    mixed = np.random.default_rng(1).permutation(order)
    return {
        "random three quarters -> the rest": (mixed[: int(0.75 * n)], mixed[int(0.75 * n) :]),
        "all but the strongest fifth -> that fifth": (order[: int(0.8 * n)], order[int(0.8 * n) :]),
        "weakest half -> strongest 30 %": (order[: n // 2], order[int(0.7 * n) :]),
        "all but the weakest fifth -> that fifth": (order[n - int(0.8 * n) :], order[: n // 5]),
    }


def random_interval(seen):
    """Return the interval of the mean of random items: Wilson, or Student's t for graded scores."""
    n, mean = seen.shape[1], seen.mean(axis=1)
    if np.isin(seen, (0.0, 1.0)).all():
        middle = (mean + Z**2 / (2 * n)) / (1 + Z**2 / n)
        half = Z / (1 + Z**2 / n) * np.sqrt(mean * (1 - mean) / n + Z**2 / (4 * n**2))
        return mean, middle - half, middle + half
    half = student.ppf(0.975, n - 1) * seen.std(axis=1, ddof=1) / np.sqrt(n)
    return mean, mean - half, mean + half


class Ridge:
    """Linear regression from the asked items to all."""

    def __init__(self, train):
        self.train = train

    def predict(self, seen, asked):
        x, y = self.train[:, asked], self.train
        mx, my = x.mean(axis=0), y.mean(axis=0)
        gain = np.linalg.solve((x - mx) @ (x - mx).T + RIDGE * np.eye(len(x)), y - my)
        return np.clip((seen - mx) @ ((x - mx).T @ gain) + my, 0.0, 1.0)


class Logistic:
    """One ability by the same curves, with a flat or standard normal prior; with ridge on top."""

    def __init__(self, train, *, precision=0.02, ridge=True):
        curves = fit_curves(train)
        self.slope, self.intercept, self.precision = curves.slopes[0], curves.intercept, precision
        theta = self.locate(train, np.arange(train.shape[1]))
        self.residuals = train - expit(np.outer(theta, self.slope) + self.intercept)
        self.ridge = ridge

    def locate(self, seen, asked):
        a, b = self.slope[asked], self.intercept[asked]
        theta = np.zeros(len(seen))
        for _ in range(40):
            p = expit(np.outer(theta, a) + b)
            up = (seen - p) @ a - self.precision * theta
            theta = theta + np.clip(up / ((p * (1 - p)) @ a**2 + self.precision), -1.0, 1.0)
        return theta

    def predict(self, seen, asked):
        base = expit(np.outer(self.locate(seen, asked), self.slope) + self.intercept)
        if not self.ridge:
            return base
        x = self.residuals[:, asked]
        gain = np.linalg.solve(x @ x.T + RIDGE * np.eye(len(x)), self.residuals)
        return np.clip(base + (seen - base[:, asked]) @ (x.T @ gain), 0.0, 1.0)


def whole(predicted, seen, asked):
    """Return the mean score: observed where asked, and predicted otherwise."""
    n_items = predicted.shape[1]
    return (predicted.sum(axis=1) - predicted[:, asked].sum(axis=1) + seen.sum(axis=1)) / n_items


def aipw(model, seen, asked, n_items, rng):
    """Return augmented inverse-propensity weighting with five folds: value, lo, hi."""
    residual, means = np.zeros(seen.shape), []
    for fold in np.array_split(rng.permutation(asked.size), FOLDS):
        rest = np.setdiff1d(np.arange(asked.size), fold)
        predicted = model.predict(seen[:, rest], asked[rest])
        residual[:, fold] = seen[:, fold] - predicted[:, asked[fold]]
        means.append(predicted.mean(axis=1))
    value = np.mean(means, axis=0) + residual.mean(axis=1)
    sd = np.sqrt(residual.var(axis=1, ddof=1) / asked.size * (1 - asked.size / n_items))
    return value, value - Z * sd, value + Z * sd


def simple_ways(train, tested, count, rng):
    """Return predictions from the same random items: by name value, lo, hi (lo, hi may be None)."""
    n_items = tested.shape[1]
    asked = rng.choice(n_items, count, replace=False)
    seen = tested[:, asked]
    found = {"mean": random_interval(seen)}
    ridge, logistic, normal = train
    found["ridge"] = (whole(ridge.predict(seen, asked), seen, asked), None, None)
    found["aipw-ridge"] = aipw(ridge, seen, asked, n_items, rng)
    found["aipw-logistic"] = aipw(logistic, seen, asked, n_items, rng)
    found["p-irt"] = (whole(normal.predict(seen, asked), seen, asked), None, None)
    return found


def by_curves(known, tested, counts, seeds, widths=()):
    """Return for every default test {(way, count): [(value, lo, hi) of each examinee] per seed}."""
    test = score_test(learn_curves(known, np.random.default_rng(0)), counts[-1])
    way = test.predictor
    found = defaultdict(list)
    for seed in range(seeds):
        rows = defaultdict(list)
        for i, row in enumerate(tested):
            passed = {}
            take(test, row, seed=[seed, i], watch=lambda s, p=passed: p.update({s.n_scored: s}))
            for width, told in stopped(way, passed, widths).items():
                rows[f"until {width:g}", 0].append(told)
            for count in counts:
                told = way.estimate(passed[count].responses)
                rows[way.method, count].append((told.value, told.lo, told.hi))
        for key, told in rows.items():
            found[key].append(np.array(told).T)
    return found


def stopped(way, passed, widths):
    """Return the result when the interval is narrow enough; NaN where it never is."""
    found = {}
    for count in sorted(passed) if widths else ():
        told = way.estimate(passed[count].responses) if count >= LEAST_ANSWERS else None
        for width in widths:
            if told is not None and told.hi - told.lo <= width:
                found.setdefault(width, (told.value, told.lo, told.hi))
        if len(found) == len(widths):
            break
    return {width: found.get(width, (np.nan,) * 3) for width in widths}


def before(known, tested, counts):
    """Return the linear score model by its own V-optimal items, the same for every seed."""
    n_items = known.shape[1]
    weights = np.full(n_items, 1.0 / n_items)
    learned = learn_scores(known, {WHOLE_BANK: weights}, np.random.default_rng(0))
    target = learned.targets[WHOLE_BANK]
    form = short_form(target, counts[-1])
    return {
        count: np.array([target.interval(form[:count], row[form[:count]]) for row in tested]).T
        for count in counts
    }


def figures(told, truth, usual_width):
    """Return mean absolute error, coverage, relative width."""
    value, lo, hi = told
    if np.isnan(value).any():
        reached = ~np.isnan(value)
        if not reached.any():
            return (np.nan,) * 3
        value, lo, hi, truth = value[reached], lo[reached], hi[reached], truth[reached]
    missed = float(np.abs(value - truth).mean())
    if lo is None:
        return missed, np.nan, np.nan
    held = float(np.mean((lo <= truth + 1e-12) & (truth - 1e-12 <= hi)))
    return missed, held, float((hi - lo).mean() / usual_width)


def one_split(known, tested, lengths, seeds, most, widths):
    """Return by (way, count): error, coverage, relative width."""
    tested = tested[np.linspace(0, len(tested) - 1, min(len(tested), most)).astype(int)]
    truth, n_items = tested.mean(axis=1), tested.shape[1]
    counts = [count for count in lengths if count < n_items]
    found = defaultdict(list)
    models = (Ridge(known), Logistic(known), Logistic(known, precision=1.0, ridge=False))
    usual = {}
    for count in counts:
        for seed in range(seeds):
            rng = np.random.default_rng([seed, count])
            told = simple_ways(models, tested, count, rng)
            usual.setdefault(count, []).append((told["mean"][2] - told["mean"][1]).mean())
            for way, prediction in told.items():
                found[way, count].append(figures(prediction, truth, usual[count][-1]))
    width = {count: float(np.mean(values)) for count, values in usual.items()}
    for (way, count), rows in by_curves(known, tested, counts, seeds, widths).items():
        if count == 0:  # few tests with some seeds may end by themselves: all count equally
            told, n_seeds = np.concatenate(rows, axis=1), len(rows)
            found[way, count].append(figures(told, np.tile(truth, n_seeds), np.nan))
        else:
            found[way, count] += [figures(told, truth, width[count]) for told in rows]
    if len(known) >= LEAST_EXAMINEES:
        for count, told in before(known, tested, counts).items():
            found["score-model", count].append(figures(told, truth, width[count]))
    means = {key: np.mean(rows, axis=0) for key, rows in found.items()}
    for count in counts:  # all models of a seed share its random items, so more draws are needed
        means["mean", count][0] = random_error(tested, count)
    return means


def random_error(scores, count):
    """Return the mean absolute error of the mean of random items."""
    truth, rng = scores.mean(axis=1), np.random.default_rng(0)
    draws = (rng.choice(scores.shape[1], count, replace=False) for _ in range(_DRAWS))
    return float(np.mean([np.abs(scores[:, one].mean(axis=1) - truth).mean() for one in draws]))


def matrices(folder, names):
    for path in sorted(folder.iterdir()):
        if names and path.name.split(".")[0] not in names:
            continue
        if not path.name.endswith((".csv", ".csv.gz", ".parquet")):
            continue
        data = path.read_bytes()
        scores = read_responses(data, score_range=None).scores
        if np.nanmax(scores) > 1.0 or np.nanmin(scores) < 0.0:
            scores = (scores - np.nanmin(scores)) / (np.nanmax(scores) - np.nanmin(scores))
        # Only complete records give the score: a few items with gaps are dropped, or else models.
        whole = ~np.isnan(scores).any(axis=0)
        if whole.mean() >= FEW_GAPS:
            scores = scores[:, whole]
        yield path.name.split(".")[0], scores[~np.isnan(scores).any(axis=1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/transfer"))
    parser.add_argument("--counts", nargs="*", type=int, default=COUNTS, help="numbers of items")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--models", type=int, default=1000, help="most models tested of a matrix")
    parser.add_argument("--only", nargs="*", default=(), help="names of matrices; all by default")
    parser.add_argument("--widths", nargs="*", type=float, default=(), help="to stop at")
    arguments = parser.parse_args()
    total = defaultdict(lambda: defaultdict(list))
    for name, scores in matrices(arguments.data, arguments.only):
        for split, (known, tested) in splits(scores).items():
            began = time.perf_counter()
            found = one_split(
                scores[known],
                scores[tested],
                sorted(arguments.counts),
                arguments.seeds,
                arguments.models,
                arguments.widths,
            )
            took = time.perf_counter() - began
            for key, row in found.items():
                total[split][key].append(row)
            counts = sorted(count for way, count in found if way == "mean")
            shown = counts[len(counts) // 2]
            told = ", ".join(
                "{} {:.3f} ({:.0%}, {:.2f})".format(way, *found[way, shown])
                for way in ("combined", "score-model", "mean")
                if (way, shown) in found
            )
            print(f"{name}, {split}: {told}; {took:.0f} s", flush=True)
    for split, by_key in total.items():
        print(f"\n{split}\n{'way':>14} items    MAE  of mean  worst  coverage  worst  width")
        for (way, count), rows in sorted(by_key.items(), key=lambda one: (one[0][1], one[0][0])):
            error, held, width = (np.nanmean if count == 0 else np.mean)(rows, axis=0)
            means = [row[0] for row in by_key.get(("mean", count), [(np.nan,) for _ in rows])]
            mean = np.mean(means)
            worst = max(row[0] / one for row, one in zip(rows, means, strict=True))
            print(
                f"{way:>14} {count:5d}  {error:.4f}   {error / mean:5.2f}   {worst:5.2f}     "
                f"{held:6.1%} {min(row[1] for row in rows):6.1%}   {width:.2f}"
            )


if __name__ == "__main__":
    main()
