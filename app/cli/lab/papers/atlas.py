"""ATLAS: adaptive tests on a 3PL bank, beside 100 random items and 100 anchors.

`FOLDER/BENCHMARK/bank.csv` and `responses.csv.gz` give the tests; `FOLDER/tiny/BENCHMARK.csv.gz`
gives the responses to calibrate. The default tests for theta and for the score ask as many items as
the published test does on average. Anchors and the default score learn from other models: each half
of the models learns from the other half.

Table 7 is about small banks. Each file of `tiny` is calibrated from nine tenths of its models; the
other tenth, drawn from ten strata of the mean score (section 3.2), is tested. The subjects of MMLU
are such files, too.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from app.calibration.filters import FilterSettings
from app.calibration.fit.goodness import MAX_M2_ITEMS, goodness_of_fit, m2_of
from app.calibration.logistic.calibrate import Calibration, calibrate
from app.calibration.matrix import ScoreMatrix
from app.calibration.multidimensional.score_curves import learn_curves
from app.calibration.pipeline.fit import prepared
from app.calibration.pipeline.plan import CalibrationPlan
from app.cli.lab.inputs import load_bank, load_responses
from app.cli.lab.papers import NOT_PRINTED, Cell, Exhibit, Scatter, of_length, read_printed
from app.cli.terminal.console import JsonObject
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.models.base import IntArray
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.responses import ResponseTable
from app.engine.simulation.baselines import anchors_of, p_irt
from app.engine.simulation.simulate import (
    Taken,
    judge,
    ranks_alike,
    summarise,
    take,
)
from app.engine.state import CatState
from app.engine.stopping import Situation
from app.errors import CalibrationError, InvalidInputError
from app.exchange.names import align

_STOPS = (0.1, 0.2, 0.3)
_ITEMS, _LEAST = 100, 4  # items of the baselines; least number of models
_STRATA, _QUARTERS = 10, 4
#: Small banks, 12 to 100 items: their published means cannot come from tests of 30 to 500 items.
_SHORT = {"min_items": 10, "max_items": 100}
_FIT, _SMALL = "Table 1: RMSEA of M2", "Table 7: small banks"
_EQUALS = "Figures 3, 7, 8: models of one mean score"
_THETA, _SCORE = "Table 2: error of theta", "Table 3: error of the score"
_USE = "Table 6: use of the bank"
_RANKS = "Figures 2, 4-6: theta beside the mean score"
_KINDS = ("MAE", "SE of the MAE", "items", "IES")
_USES = ("overlap", "mean exposure", "seconds a model")

#: Printed figures. `benchmarks` holds for each benchmark and row: MAE, its SE, items, IES of theta;
#: MAE, its SE, IES of the score; test overlap, mean exposure, seconds of selection (`arc_mixtral`:
#: from the study's repository). Fit: RMSEA of ATLAS, and by the study for the items of
#: TinyBenchmarks and MetaBench. Small banks: means of MMLU's 57 subjects: MAE of theta, items, test
#: overlap, exposure, seconds a model. Ranks: Spearman and Kendall of theta and the mean score.
_PUBLISHED = read_printed("atlas")


def published(name: str, row: str) -> dict[str, list[float | None]]:
    """Printed figures by table; a part of a benchmark takes missing ones from the whole."""
    every = _PUBLISHED["benchmarks"]
    whole = every.get(f"{name.split('_')[0]}, {row}", [None] * 10)
    return {
        _THETA: every.get(f"{name}, {row}", whole)[:4],
        _SCORE: [*whole[4:6], whole[2], whole[6]],
        _USE: whole[7:],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of one method over all models.

    Attributes:
        items: Mean number of items asked.
        theta: Absolute errors against the WLE on the whole bank, shape (n_models,).
        score: Absolute errors of the score.
        use: Test overlap, mean exposure, seconds of selection; None for a fixed list of items.
    """

    items: float
    theta: FloatArray
    score: FloatArray
    use: tuple[float | None, ...] = (None, None, None)

    def figures(self, random: "Outcome") -> dict[str, tuple[float | None, ...]]:
        """Figures for each table; the IES (eq. 4) compares with `random`, the random items."""

        def of(errors: FloatArray, beside: FloatArray) -> tuple[float | None, ...]:
            mae, se = float(errors.mean()), float(errors.std(ddof=1)) / len(errors) ** 0.5
            worst = float(beside.mean()) * random.items
            return mae, se, self.items, mae * self.items / worst if worst else None

        return {
            _THETA: of(self.theta, random.theta),
            _SCORE: of(self.score, random.score),
            _USE: self.use,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Benchmark:
    """A bank, and the responses of models to it."""

    name: str
    bank: ItemBank
    scores: FloatArray
    references: FloatArray
    seed: int

    @classmethod
    def load(cls, folder: Path, seed: int) -> "Benchmark":
        """Load `bank.csv` and `responses.csv.gz` of a folder; drops models without responses."""
        bank = load_bank(folder / "bank.csv")
        scores = align(load_responses(folder / "responses.csv.gz"), bank).scores
        scores = scores[~np.isnan(scores).all(axis=1)]
        if len(scores) < _LEAST:
            raise InvalidInputError(
                f"{folder.name}/responses.csv.gz: expected at least {_LEAST} models, got "
                f"{len(scores)}."
            )
        references, _ = whole_bank_abilities(bank, scores)
        return cls(name=folder.name, bank=bank, scores=scores, references=references, seed=seed)

    @property
    def halves(self) -> list[np.ndarray]:
        """Two random halves of the models."""
        order = np.random.default_rng(self.seed).permutation(len(self.scores))
        return [np.sort(order[::2]), np.sort(order[1::2])]

    @cached_property
    def _learned(self) -> list[LearnedCurves]:
        """Curves for each half of the models, learned from the other half."""
        return [
            learn_curves(self.scores[others], np.random.default_rng(self.seed))
            for others in self.halves[::-1]
        ]

    def of_designs(self, *designs: Design) -> list[Outcome]:
        """Results of adaptive tests that differ only in stopping rules; the first ends last."""
        tests = [design.build(self.bank) for design in designs]
        started = time.perf_counter()
        found = _together(tests, self.scores, self.seed)
        seconds = (time.perf_counter() - started) / sum(taken.state.n_asked for taken in found[0])
        return [
            self._outcome(test, taken, taken, seconds)
            for test, taken in zip(tests, found, strict=True)
        ]

    def of_lengths(self, lengths: Sequence[int]) -> list[Outcome]:
        """Results of default tests of these lengths, with separate tests for theta and the score.

        The first length must be the largest.
        """
        tests = [_design("ability", of_length(n)).build(self.bank) for n in lengths]
        started = time.perf_counter()
        for_theta = _together(tests, self.scores, self.seed)
        seconds = (time.perf_counter() - started) / len(self.scores) / lengths[0]
        for_score: list[list[Taken]] = [[] for _ in lengths]
        for mine, curves in zip(self.halves, self._learned, strict=True):
            designs = [_design("score", of_length(n)) for n in lengths]
            by_score = [design.build(self.bank, curves=curves) for design in designs]
            found = _together(by_score, self.scores[mine], self.seed)
            for taken, more in zip(for_score, found, strict=True):
                taken += more
        order = np.argsort(np.concatenate(self.halves))
        return [
            self._outcome(test, taken, [unsorted[model] for model in order], seconds)
            for test, taken, unsorted in zip(tests, for_theta, for_score, strict=True)
        ]

    def _outcome(
        self,
        test: AdaptiveTest,
        for_theta: Sequence[Taken],
        for_score: Sequence[Taken],
        seconds: float,
    ) -> Outcome:
        summary = summarise(for_theta, self.references, test)
        return Outcome(
            items=summary.items_mean,
            theta=np.abs([one.estimate.theta for one in for_theta] - self.references),
            score=np.array([abs(one.prediction.value - one.accuracy) for one in for_score]),
            use=(summary.overlap, summary.exposure_mean, seconds * summary.items_mean),
        )

    def of_anchors(self) -> Outcome:
        """Results of anchors from the other half's responses: theta by WLE, score by p-IRT."""
        theta, score = np.empty((2, len(self.scores)))
        known = np.flatnonzero(~np.isnan(self.scores).any(axis=0))
        n = min(_ITEMS, known.size)
        for mine, others in (self.halves, self.halves[::-1]):
            rng = np.random.default_rng(self.seed)
            anchors = known[anchors_of(self.scores[np.ix_(others, known)].T, n, rng).items]
            rows = np.full((len(mine), self.bank.n_items), np.nan)
            rows[:, anchors] = self.scores[np.ix_(mine, anchors)]
            thetas, _ = whole_bank_abilities(self.bank, rows)
            theta[mine] = np.abs(thetas - self.references[mine])
            whole = self.scores[np.ix_(mine, known)]
            told = p_irt(self.bank.take(known), np.flatnonzero(np.isin(known, anchors)), whole)
            score[mine] = np.abs(told - whole.mean(axis=1))
        return Outcome(items=float(n), theta=theta, score=score)


def _design(preset: str, stopping: JsonObject, **selection: str) -> Design:
    return Design.from_dict({"preset": preset, "stopping": stopping, "selection": selection})


def _together(tests: Sequence[AdaptiveTest], rows: FloatArray, seed: int) -> list[list[Taken]]:
    """Run all tests on each row at once: the first ends last, the others are its beginnings."""
    longest, *others = tests
    found: list[list[Taken]] = [[] for _ in tests]
    for i, row in enumerate(rows):
        passed: list[CatState] = []
        last = take(longest, row, seed=[seed, i], watch=passed.append)
        found[0].append(judge(longest, row, *last))
        for test, taken in zip(others, found[1:], strict=True):
            ended = (
                (state, stop)
                for state in passed
                if (stop := test.stopping.check(Situation(state, test.pool, 0.0)))
            )
            taken.append(judge(test, row, *next(ended, last)))
    return found


def _tables(benchmarks: list[Benchmark]) -> Iterator[Exhibit]:
    tables: dict[str, list[list[Cell]]] = {_THETA: [], _SCORE: [], _USE: []}
    for one in benchmarks:
        length = of_length(min(_ITEMS, one.bank.n_items))
        (random,) = one.of_designs(_design("atlas", length, criterion="random"))
        rows: dict[str, tuple[Outcome, Outcome | None]] = {
            "random": (random, None),
            "anchors": (one.of_anchors(), None),
        }
        theirs = one.of_designs(*(_design("atlas", {"se": se}) for se in _STOPS))
        ours = one.of_lengths([round(each.items) for each in theirs])
        pairs = zip(theirs, ours, strict=True)
        rows |= {f"SE-{se}": pair for se, pair in zip(_STOPS, pairs, strict=True)}
        for row, (method, default) in rows.items():
            here = method.figures(random)
            ours_here = {} if default is None else default.figures(random)
            for title, printed in published(one.name, row).items():
                kinds = _USES if title == _USE else _KINDS
                default_here = ours_here.get(title, (None,) * len(kinds))
                tables[title] += [
                    [f"{one.name}, {row}: {kind}", *cells]
                    for kind, *cells in zip(kinds, printed, here[title], default_here, strict=True)
                    if any(cell is not None for cell in cells)
                ]
    missing = "" if benchmarks else "BENCHMARK/bank.csv and BENCHMARK/responses.csv.gz"
    heads = ("", "published", "by their method", "by default")
    note = "Of Mixtral models the study's repository tells theta; the rest is of all of ARC."
    for title, table in tables.items():
        yield Exhibit(title=title, heads=heads, rows=table, missing=missing, note=note)


def stratified(scores: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a tenth of the models, at least one from each of ten strata of the mean score."""
    order = np.argsort(np.nanmean(scores, axis=1), kind="stable")
    chosen = [
        rng.choice(stratum, max(round(len(stratum) / _STRATA), 1), replace=False)
        for stratum in np.array_split(order, min(_STRATA, len(order)))
    ]
    return np.sort(np.concatenate(chosen))


def _of_small_bank(name: str, table: ResponseTable, seed: int) -> list[list[Cell]]:
    """Test a tenth of the models on a bank that is calibrated from the other models."""
    tested = stratified(table.scores, np.random.default_rng(seed))
    others = np.delete(np.arange(len(table.examinees)), tested)
    matrix, found = _fitted(table.select(examinees=others), "3pl")
    bank = found.bank()
    scores = align(table.select(examinees=tested), bank).scores
    references, _ = whole_bank_abilities(bank, scores)
    small = Benchmark(name=name, bank=bank, scores=scores, references=references, seed=seed)
    rows: list[list[Cell]] = []
    tests = small.of_designs(*(_design("atlas", {"se": stop, **_SHORT}) for stop in _STOPS))
    for stop, one in zip(_STOPS, tests, strict=True):
        here = (float(one.theta.mean()), one.items, *one.use)
        kinds = ("MAE", "items", *_USES)
        rows += [
            [f"{name}, {matrix.n_items} items, SE-{stop}: {kind}", printed, figure]
            for kind, printed, figure in zip(
                kinds, _PUBLISHED["small banks"][f"SE-{stop}"], here, strict=True
            )
        ]
    return rows


def _fitted(table: ResponseTable, model: str) -> tuple[ScoreMatrix, Calibration]:
    plan = CalibrationPlan(model=model, filters=FilterSettings(keep_for_score=False))
    matrix = prepared(table, plan).matrix
    return matrix, calibrate(matrix, plan.settings())


def mean_rmsea(matrix: ScoreMatrix, found: Calibration) -> float | None:
    """Mean RMSEA over parts of the items, each small enough for M2; None where a part has no M2."""
    n_parts = -(-matrix.n_items // MAX_M2_ITEMS)
    order = np.argsort(matrix.item_means(), kind="stable")
    each = []
    for part in (np.sort(order[nth::n_parts]) for nth in range(n_parts)):
        own = matrix.select(items=part)
        try:
            fit = m2_of(own, replace(found, items=found.items.take(part), item_ids=own.items))
        except CalibrationError:
            return None
        each.append(fit.rmsea)
    return float(np.mean(each))


def _of_one_score(
    name: str, table: ResponseTable, bank: ItemBank, thetas: FloatArray
) -> list[list[Cell]]:
    """Two models of equal mean score whose thetas differ most, and their scores by difficulty."""
    means = np.nanmean(table.scores, axis=1).round(9)
    groups = [np.flatnonzero(means == mean) for mean in np.unique(means)]
    rows = max(groups, key=lambda group: float(np.ptp(thetas[group])))
    scores = align(table, bank).scores
    quarters = np.array_split(np.argsort(bank.b, kind="stable"), _QUARTERS)
    return [
        [
            f"{name}: {table.examinees[row]}",
            NOT_PRINTED,
            float(means[row]),
            float(thetas[row]),
            *(float(np.nanmean(scores[row, quarter])) for quarter in quarters),
        ]
        for row in (rows[thetas[rows].argmin()], rows[thetas[rows].argmax()])
        if len(rows) > 1
    ]


def _calibrated(files: list[Path], seed: int) -> Iterator[Exhibit]:
    """Exhibits of fit, of the rank order by theta and by mean score, and of small banks."""
    fits: list[list[Cell]] = []
    ranks: list[list[Cell]] = []
    equals: list[list[Cell]] = []
    small: list[list[Cell]] = []
    scatter = None
    for path in files:
        name, table = path.name.split(".")[0], load_responses(path)
        fitted = [_fitted(table, model) for model in ("3pl", "2pl")]
        words: list[Cell] = []
        for matrix, found in fitted:
            fit = goodness_of_fit(matrix, found)
            words += [None if fit.m2 is None else fit.m2.rmsea, fit.verdict]
        matrix, found = fitted[0]
        bank = found.bank()
        rmsea, *others = _PUBLISHED["fit"].get(name, [None] * 3)
        fits.append([name, rmsea, *words, mean_rmsea(matrix, found), *others])
        known = np.flatnonzero(~np.isnan(align(table, bank).scores).all(axis=1))
        table = table.select(examinees=known)
        thetas = whole_bank_abilities(bank, align(table, bank).scores)[0]
        means = np.nanmean(table.scores, axis=1)
        kinds = ("Spearman", "Kendall", "moved more than ten ranks")
        said = (*_PUBLISHED["ranks"].get(name, [None] * 2), None)
        ranks += [
            [f"{name}: {kind}", each, here]
            for kind, each, here in zip(kinds, said, ranks_alike(thetas, means), strict=True)
        ]
        equals += _of_one_score(name, table, bank, thetas)
        small += _of_small_bank(name, table, seed)
        scatter = scatter or Scatter(thetas, means, "theta", f"mean score, {name}")
    missing = "" if files else "tiny/BENCHMARK.csv.gz"
    words_of = ("3PL", "in a word", "2PL, the default", "in a word", "3PL, mean of parts")
    yield Exhibit(
        title=_FIT,
        heads=("", "published", *words_of, "published: TinyBenchmarks", "published: MetaBench"),
        rows=fits,
        missing=missing,
        note="The words read SRMSR as well. Of MetaBench's items there is no data.",
    )
    yield Exhibit(
        title=_RANKS,
        heads=("", "published", "by their method"),
        rows=ranks,
        missing=missing,
        scatter=scatter,
    )
    quarters = ("right of the easiest quarter", "second", "third", "hardest")
    yield Exhibit(
        title=_EQUALS,
        heads=("", "published", "mean score", "theta", *quarters),
        rows=equals,
        missing=missing,
        note="The score is of all items, the quarters are of those that were calibrated.",
    )
    yield Exhibit(
        title=_SMALL,
        heads=("", "published, mean of MMLU's subjects", "by their method"),
        rows=small,
        missing=missing,
        note="A tenth of the models, of ten strata of the mean score, takes 10 to 100 items.",
    )


def reproduce(folder: Path, seed: int) -> Iterator[Exhibit]:
    """Yield the study's tables."""
    ready = sorted(path.parent for path in folder.glob("*/responses.csv.gz"))
    benchmarks = [Benchmark.load(one, seed) for one in ready if (one / "bank.csv").exists()]
    yield from _tables(benchmarks)
    yield from _calibrated(sorted((folder / "tiny").glob("*.csv.gz")), seed)
