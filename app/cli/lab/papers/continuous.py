"""Continuous adaptive testing: rankings of held-out models by continuous scores.

Each `FOLDER/DATASET/judge_scores.csv.gz` is a matrix of models and items. A split holds out four
models, or whole families of models, and calibrates the items from the others. Rows named
`MODEL@TEMPERATURE` belong to one model: it is ranked by the row with its lowest temperature, and
none of its rows is used for calibration while it is held out. A pair that the ranking leaves
undecided is a tie; it is truly tied if the bootstrap over items cannot tell the full means apart.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from pathlib import Path

import numpy as np

from app.calibration.continuous.calibrate import calibrate_continuous
from app.calibration.continuous.moments import calibrate_by_moments
from app.calibration.filters import MEASURING
from app.calibration.pipeline.fit import prepared
from app.calibration.pipeline.plan import CONTINUOUS_SCORES, CalibrationPlan
from app.calibration.pipeline.ranking import bank_by_moments, bank_from
from app.cli.lab.inputs import load_responses
from app.cli.lab.papers import Exhibit, read_printed
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.ranking.ranking import Ranking
from app.engine.ranking.rules import (
    RANKING_PRESETS,
    RankingBudget,
    RankingPreset,
    RankingRules,
    usual_criterion,
)
from app.engine.ranking.simulation import kendall_tau, simulate_ranking
from app.engine.responses import ResponseTable
from app.errors import InvalidInputError

_HELD_OUT, _SPLITS, _BOOTSTRAPS = 4, 40, 1000
_BUDGET = RankingBudget(items=50 * _HELD_OUT)
_PUBLISHED = RANKING_PRESETS[RankingPreset.CONTINUOUS_PAPER]
#: Printed figures by table: of the study's LLM judge on TruthfulQA, and the mean over its nine
#: pairs of data set and metric.
_PRINTED = read_printed("continuous")
_HEADS = ("", "published, a judge", "published, mean", "by their method", "by default")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """Held-out models on a bank that was calibrated from the others.

    bank: Items calibrated from the other models.
    rows: Scores of the held-out models on the items of `bank`.
    full: All scores of the held-out models, from 0 to 1, shape (n_models, n_items).
    tied: Pairs of held-out models that the bootstrap cannot tell apart.
    """

    seed: int
    bank: ItemBank
    rows: FloatArray
    full: FloatArray
    tied: frozenset[tuple[int, int]]

    @property
    def means(self) -> FloatArray:
        """Mean scores of the held-out models, which give the true order."""
        return np.asarray(np.nanmean(self.full, axis=1))

    def ranking(
        self, rules: RankingRules, budget: RankingBudget = _BUDGET, **asking: object
    ) -> Ranking:
        """A ranking of the held-out models; each is only asked items that it has a score of."""
        test = Design.from_dict({"preset": "ability", **asking}).build(self.bank)
        tests = tuple(replace(test, pool=test.pool.narrowed(~np.isnan(row))) for row in self.rows)
        return Ranking(tests=tests, rules=rules, budget=budget)

    def of_one_length(self, length: int, criterion: str) -> Ranking:
        """A ranking that asks every model the same number of items, without early stopping."""
        n = min(length, *(int(np.count_nonzero(~np.isnan(row))) for row in self.rows))
        rules = RankingRules(min_items=n, max_items=n, shared_items=False)
        return self.ranking(rules, RankingBudget(), selection={"criterion": criterion})


def ties(full: FloatArray, rng: np.random.Generator) -> frozenset[tuple[int, int]]:
    """Pairs with zero in the 95 % bootstrap interval (over items) of their difference of means."""
    drawn = rng.integers(0, full.shape[1], (_BOOTSTRAPS, full.shape[1]))
    means = np.nanmean(full[:, drawn], axis=2)
    apart = {
        (one, other): np.quantile(means[one] - means[other], [0.025, 0.975])
        for one, other in permutations(range(len(full)), 2)
    }
    return frozenset(pair for pair, (lo, hi) in apart.items() if lo <= 0.0 <= hi)


def family(name: str) -> str:
    """The part of a model's name before the first digit, dash or slash, in lower case."""
    return re.split(r"[-/\d]", name, maxsplit=1)[0].lower()


def model_of(name: str) -> tuple[str, float]:
    """The model of a row, and its temperature; 0 where the name has none."""
    model, _, temperature = name.rpartition("@")
    try:
        return (model, float(temperature)) if model else (name, 0.0)
    except ValueError:
        return name, 0.0


def ranked(names: Sequence[str]) -> list[int]:
    """The row with the lowest temperature of each model, in order."""
    rows: dict[str, int] = {}
    for row in sorted(range(len(names)), key=lambda row: model_of(names[row])[1]):
        rows.setdefault(model_of(names[row])[0], row)
    return sorted(rows.values())


def held_out(names: Sequence[str]) -> list[tuple[int, ...]]:
    """Choose sets of four models to hold out, spread evenly over all combinations."""
    return _spread(list(combinations(ranked(names), _HELD_OUT)))


def held_out_families(names: Sequence[str]) -> list[tuple[int, ...]]:
    """Choose sets of at least two families, three or four models in all, to hold out."""
    of: dict[str, list[int]] = defaultdict(list)
    for row in ranked(names):
        of[family(names[row])].append(row)
    chosen = [
        tuple(sorted(row for members in some for row in members))
        for n in (2, 3, 4)
        for some in combinations(of.values(), n)
    ]
    return _spread([rows for rows in chosen if len(rows) in (3, 4)])


def _spread(sets: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """As many sets as there are splits, spread evenly over all."""
    return [sets[nth * len(sets) // _SPLITS] for nth in range(min(_SPLITS, len(sets)))]


def splits(
    table: ResponseTable, chosen: Sequence[tuple[int, ...]], seed: int
) -> Iterator[tuple[Split, Split]]:
    """Yield each set of held-out models on the published bank and on the default bank."""
    scores = table.scores
    at = {item: column for column, item in enumerate(table.items)}
    for nth, held in enumerate(chosen):
        models = [model_of(name)[0] for name in table.examinees]
        out = {models[row] for row in held}
        others = [row for row, model in enumerate(models) if model not in out]
        known = table.select(examinees=np.array(others))
        full = scores[list(held)]
        tied = ties(full, np.random.default_rng([seed, nth]))
        theirs, ours = (
            Split(
                seed=seed + nth,
                bank=bank,
                rows=full[:, [at[item] for item in bank.item_ids]],
                full=full,
                tied=tied,
            )
            for bank in (bank_by_moments(known), bank_from(known))
        )
        yield theirs, ours


class Counts:
    """Figures of rankings, collected over splits."""

    def __init__(self) -> None:
        self.means: dict[str, list[float]] = defaultdict(list)

    def add(self, split: Split, ranking: Ranking, criterion: str, prefix: str = "") -> None:
        """Run one ranking, and those that it is compared with."""
        state, _ = simulate_ranking(ranking, list(split.rows), seed=split.seed)
        asked = [member.n_asked for member in state.members]
        ranks = ranking.ranks(state)
        found = self.means
        found[f"{prefix}tau"].append(kendall_tau(ranks.order, split.means))
        random = split.of_one_length(sum(asked) // len(asked), "random")
        found[f"{prefix}tau, random items"].append(_tau(split, random))
        if prefix:
            return
        found["items"].append(sum(asked))
        found["share of the scores"].append(sum(asked) / np.count_nonzero(~np.isnan(split.full)))
        found["tau, one length"].append(_tau(split, split.of_one_length(max(asked), criterion)))
        found["items saved"].append(1 - sum(asked) / (len(asked) * max(asked)))
        for pair in ranks.pairs:
            is_tied = (pair.above, pair.below) in split.tied
            found["share of ties"].append(not pair.decided)
            found["share that is tied"].append(is_tied)
            if pair.decided:
                right = split.means[pair.above] > split.means[pair.below]
                found["accuracy of decided pairs"].append(bool(right))
            else:
                found["precision of ties"].append(is_tied)
            if is_tied:
                found["recall of ties"].append(not pair.decided)

    def of(self, name: str) -> float | None:
        """Mean of one figure; None where no split gave a value."""
        if name == "F1 of ties":
            precision, recall = self.of("precision of ties"), self.of("recall of ties")
            both = (precision or 0.0) + (recall or 0.0)
            return 2 * (precision or 0.0) * (recall or 0.0) / both if both else None
        return float(np.mean(self.means[name])) if self.means[name] else None


def _tau(split: Split, ranking: Ranking) -> float:
    state, _ = simulate_ranking(ranking, list(split.rows), seed=split.seed)
    return kendall_tau(ranking.ranks(state).order, split.means)


def reproduce(folder: Path, seed: int) -> Iterator[Exhibit]:
    """Yield the study's tables for each data set."""
    files = sorted(folder.glob("*/judge_scores.csv.gz"))
    if not files:
        needed = "DATASET/judge_scores.csv.gz"
        yield from (Exhibit(title=title, missing=needed) for title in _PRINTED)
    for path in files:
        table = load_responses(path, score_range=None)
        n_models = len(ranked(table.examinees))
        if n_models < _HELD_OUT + 2:
            raise InvalidInputError(
                f"{path.parent.name}/{path.name}: expected at least {_HELD_OUT + 2} models, "
                f"{_HELD_OUT} of them to be ranked, got {n_models}."
            )
        lo, hi = np.nanmin(table.scores), np.nanmax(table.scores)
        table = ResponseTable(table.examinees, table.items, (table.scores - lo) / (hi - lo))
        theirs, ours = _counted(table, seed)
        note = (
            f"{path.parent.name}: {n_models} models, {len(table.items)} items. No data "
            "for what models cost. Families are what names begin with."
        )
        for title, figures in _PRINTED.items():
            rows = [
                [name, *printed, theirs.of(name), ours.of(name)]
                for name, printed in figures.items()
            ]
            yield Exhibit(title=title, heads=_HEADS, rows=rows, note=note)


def _counted(table: ResponseTable, seed: int) -> tuple[Counts, Counts]:
    """Figures of the published method, and of the default method."""
    theirs, ours = Counts(), Counts()
    for prefix, chosen in (
        ("", held_out(table.examinees)),
        ("families: ", held_out_families(table.examinees)),
    ):
        for published, default in splits(table, chosen, seed):
            rules = RankingRules(**_PUBLISHED.rules)
            ranking = published.ranking(rules, **_PUBLISHED.asking)
            theirs.add(published, ranking, "maximum_information", prefix)
            usual = usual_criterion(default.bank).value
            ranking = default.ranking(RankingRules(), selection={"criterion": usual})
            ours.add(default, ranking, usual, prefix)
    measured = prepared(table, CalibrationPlan(model=CONTINUOUS_SCORES, filters=MEASURING)).matrix
    for counts, calibrated in (
        (theirs, calibrate_by_moments(measured)),
        (ours, calibrate_continuous(measured)),
    ):
        counts.means["discrimination"].append(calibrated.k_common**-0.5)
        if calibrated.conformance is not None:
            counts.means["R2 of the variance"].append(calibrated.conformance)
    return theirs, ours
