"""`sextant simulate --selector v-optimal` and its kin: simulate tests of several abilities."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from app.calibration.continuous.scores import ScoreScale
from app.calibration.multidimensional.settings import FitMethod, MultidimensionalSettings
from app.calibration.pipeline.abilities import learn_abilities
from app.cli.lab.inputs import load_scores, without
from app.cli.terminal.console import JsonObject
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.design.parts import PredictionMethod
from app.engine.design.selection import CriterionName
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.models.base import BoolArray
from app.engine.prediction.correction import LONGEST
from app.engine.prediction.p_irt import BY_THETA
from app.engine.prediction.targets import WHOLE_BANK, tags_in_ids, target_weights
from app.engine.selection.design import Optimality
from app.engine.simulation.simulate import Taken, judge, take
from app.engine.state import CatState
from app.errors import InvalidInputError
from app.exchange.item_facts import read_costs, read_tags
from app.exchange.names import align

SELECTORS = tuple(optimality.value for optimality in Optimality)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetedItems:
    """Items of a benchmark, for the prediction of a score.

    Attributes:
        plain: The items without parameters.
        tags: Tags of each item, from a file or from the item ids.
        weights: Weight of each item in the score, shape (n_items,).
        active: Mask of the items that may be asked, shape (n_items,).
        costs: Cost of each item, shape (n_items,); None where no file gives costs.
    """

    plain: ItemBank
    tags: tuple[frozenset[str], ...]
    weights: FloatArray
    active: BoolArray
    costs: FloatArray | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Targeting:
    """Options of commands that predict the score of some items."""

    target: str
    ask: str | None
    tags: Path | None
    item_costs: Path | None

    def of(self, item_ids: tuple[str, ...]) -> TargetedItems:
        """The items of a benchmark by these options.

        Raises:
            InvalidInputError: A target without items, an unknown tag, an item without a cost, ...
        """
        n_items, costs = len(item_ids), None
        plain = ItemBank.from_intercepts(
            a=np.ones(n_items), intercept=np.zeros(n_items), item_ids=item_ids
        )
        of = (
            tags_in_ids(item_ids)
            if self.tags is None
            else read_tags(self.tags.read_bytes(), item_ids, self.tags.name)
        )
        weights = target_weights(plain, {self.target: 1.0}, of)
        active = np.ones(n_items, dtype=np.bool_)
        if self.ask is not None:
            wanted = {name.strip(): 1.0 for name in self.ask.split(",")}
            known = sorted({name for item in of for name in item} | {WHOLE_BANK})
            for name in wanted:
                if name not in known:
                    raise InvalidInputError(
                        f"--ask: no item has the tag {name!r}; known tags: {', '.join(known[:20])}."
                    )
            active = np.asarray(target_weights(plain, wanted, of) > 0.0)
        if (path := self.item_costs) is not None:
            costs = read_costs(path.read_bytes(), item_ids, path.name)
        return TargetedItems(plain=plain, tags=of, weights=weights, active=active, costs=costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignOptions(Targeting):
    """Options of `sextant simulate` that apply to tests of several abilities."""

    train: Path | None
    dimensions: int | None
    scale: ScoreScale
    seed: int

    def takes_several(self, design: Design) -> bool:
        """Whether a test takes several abilities, learned from `--train`."""
        criterion = design.selection.criterion
        if criterion is not CriterionName.V_OPTIMAL:
            return criterion.value in SELECTORS
        by_scores = design.prediction.method is PredictionMethod.SCORE_MODEL
        return by_scores or any(value is not None for value in self._given().values())

    def refuse(self) -> None:
        """Refuse these options for a selector of one ability."""
        for name, value in self._given().items():
            if value is not None:
                known = ", ".join(name.replace("_", "-") for name in SELECTORS)
                raise InvalidInputError(f"{name} belongs to the selectors {known}.")

    def _given(self) -> dict[str, Path | str | int | None]:
        return {
            "--dimensions": self.dimensions,
            "--ask": self.ask,
            "--tags": self.tags,
            "--item-costs": self.item_costs,
            "--target": None if self.target == WHOLE_BANK else self.target,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulated:
    """Simulated tests.

    Attributes:
        examinees: Names of the examinees.
        taken: Test of each examinee; the predicted score is that of the target.
        references: Theta of each examinee from all its answers.
        test: The test for an examinee with answers to all items.
        seconds: Seconds spent on asking and updating.
        figures: Further figures for the summary.
        facts: Further fields for the JSON document.
    """

    examinees: Sequence[str]
    taken: list[Taken]
    references: FloatArray
    test: AdaptiveTest
    seconds: float
    figures: Mapping[str, float | int | None] = field(default_factory=dict)
    facts: JsonObject


def take_all(
    test: AdaptiveTest, rows: FloatArray, *, seed: int, concurrency: int
) -> tuple[list[Taken], float]:
    """Simulate a test of each row; return the tests and the seconds of asking and updating."""
    started = time.perf_counter()
    runs = [take(test, row, seed=[seed, i], concurrency=concurrency) for i, row in enumerate(rows)]
    seconds = time.perf_counter() - started
    return [judge(test, row, *run) for row, run in zip(rows, runs, strict=True)], seconds


def simulate_design(
    design: Design, bank: ItemBank | None, responses: Path, options: DesignOptions
) -> Simulated:
    """Learn from `--train`, then test every examinee of `--responses`.

    Of `bank` only the items are used; None takes all items of the training records.

    Raises:
        InvalidInputError: Not a criterion of optimal design, no training records, a target without
            items, an item without cost, ...
    """
    if design.selection.criterion.value not in SELECTORS:
        raise InvalidInputError("This selector needs --bank with the parameters of the items.")
    if options.train is None:
        raise InvalidInputError(
            "This test needs --train, the scores of other examinees to learn several abilities "
            "from; a test of one ability needs --bank."
        )
    train = load_scores(options.train, options.scale)
    item_ids = train.items if bank is None else bank.item_ids
    items = options.of(item_ids)
    costs, weights = items.costs, items.weights
    tested = load_scores(responses, options.scale)
    known = without(train, tested.examinees)
    learned = learn_abilities(
        align(known, items.plain).scores,
        item_ids,
        # Comparing fit methods would triple the time, and predicted scores do not depend on it.
        MultidimensionalSettings(dimensions=options.dimensions, method=FitMethod.JOINT),
        {options.target: weights},
        np.random.default_rng(options.seed),
        askable=items.active,
        costs=costs,
    )
    scores = None if learned.scores is None else learned.scores.targets[options.target]

    def built(of: Design, costs: FloatArray | None) -> AdaptiveTest:
        wanted = {"target": {options.target: 1.0}, "cost_weight": float(costs is not None)}
        selection = of.selection.model_copy(update=wanted)
        return of.model_copy(update={"selection": selection}).build(
            learned.bank,
            active=items.active,
            tags=items.tags,
            costs=costs,
            targets={} if scores is None else {WHOLE_BANK: scores, options.target: scores},
            curves=learned.curves,
        )

    test = built(design, costs)
    records = align(tested, items.plain).scores
    answered = ~np.isnan(records[:, items.active]).all(axis=1)
    answered &= ~np.isnan(records[:, weights > 0.0]).all(axis=1)  # else the score is unknown
    rows, names = records[answered], np.array(tested.examinees)[answered]
    if not len(rows):
        raise InvalidInputError(
            f"{responses.name}: no examinee answered both an item that may be asked and an item "
            "of the target."
        )
    # The actual score is over the answered items of the target.
    actual = np.nansum(weights * rows, axis=1) / (~np.isnan(rows) @ weights)
    runs, seconds = take_all(test, rows, seed=options.seed, concurrency=design.concurrency)
    taken = [replace(one, accuracy=score) for one, score in zip(runs, actual.tolist(), strict=True)]
    figures: dict[str, float | int | None] = {}
    if costs is not None:
        spent = float(np.mean([float(costs[one.items].sum()) for one in taken]))
        figures["cost_mean"] = spent
        if taken[0].prediction.method not in BY_THETA:
            error = float(np.abs(actual - [one.prediction.value for one in taken]).mean())
            longest = design.open_ended(min(int(items.active.sum()), LONGEST))
            ignoring = built(longest, None)
            as_good = _as_good(ignoring, rows, actual, costs, error, options.seed)
            cost, n_items = as_good or (None, None)
            figures |= {
                "cost_mean_ignoring_costs": cost,
                "items_ignoring_costs": n_items,
                "cost_saved": 1.0 - spent / cost if cost else None,
            }
    known_models = {
        "n_examinees": len(learned.fit.abilities),
        "degenerate_items": int(learned.fit.degenerate.sum()),
    }
    return Simulated(
        examinees=names.tolist(),
        taken=taken,
        references=whole_bank_abilities(learned.bank, rows)[0],
        test=test,
        seconds=seconds,
        figures=figures,
        facts={"model": {**learned.to_dict(), **known_models}},
    )


def _as_good(
    test: AdaptiveTest,
    records: FloatArray,
    truth: FloatArray,
    costs: FloatArray,
    error: float,
    seed: int,
) -> tuple[float, int] | None:
    """Mean cost and number of items at which the test first reaches `error`; None if it never does.

    A test that has ended keeps its last prediction.
    """
    n_steps = test.pool.n_active
    missed, spent = np.zeros((2, len(records), n_steps))
    for i, row in enumerate(records):

        def look(state: CatState, i: int = i) -> None:
            at = state.n_scored - 1
            missed[i, at:] = abs(test.predict(state).value - truth[i])
            spent[i, at:] = costs[[one.item for one in state.responses]].sum()

        take(test, row, seed=[seed, i], watch=look)
    good = np.flatnonzero(missed.mean(axis=0) <= error)
    if not good.size:
        return None
    return float(spent[:, good[0]].mean()), int(good[0]) + 1
