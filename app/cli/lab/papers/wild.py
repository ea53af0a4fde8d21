"""WILD: predict a task's score from few items of this task, or of other tasks.

A partition splits the models into known and tested models and holds out a share of each task's
items, which are never asked. Each task in turn is the target, of which no item is asked. The tests
predict the held-out items of the asked tasks (interpolation) and of the target (extrapolation).
Items that all known models answered alike are predicted with that answer (appendix A.1), not asked.

The costs of items for figure 6 are in `FOLDER/tiny/costs.csv`; `read_costs` has the format.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from app.calibration.logistic.calibrate import CalibrationSettings, calibrate
from app.calibration.matrix import ScoreMatrix
from app.calibration.multidimensional.fit import fit_multidimensional
from app.calibration.multidimensional.score_curves import learn_curves
from app.calibration.multidimensional.score_model import learn_scores
from app.calibration.multidimensional.settings import FitMethod, MultidimensionalSettings
from app.cli.lab.inputs import load_responses
from app.cli.lab.papers import NOT_PRINTED, Cell, Exhibit, of_length
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.design.selection import OF_SCORES
from app.engine.models.base import BoolArray, IntArray
from app.engine.models.multidimensional import MultidimensionalModel
from app.engine.multidimensional import ProfileBelief, ProfileMap, abilities_of
from app.engine.prediction.targets import WHOLE_BANK
from app.engine.selection.base import Ask
from app.engine.simulation.baselines import anchors_of, ridge, shrunk
from app.engine.simulation.simulate import take
from app.engine.state import Belief, CatState, Response
from app.exchange.item_facts import read_costs

_COUNTS = (4, 16, 64)
_TOLD = 16  # number of items at which the tables compare tasks, and models
_HARDEST = 10  # number of models shown
_LEAST, _KNOWN, _TESTED, _PARTITIONS = 40, 65, 20, 3  # numbers of models; number of partitions
_HELD_OUT = 0.4
_TARGET = "target"

NESTED, TWO_PL, TODAY = "MIRT", "2PL", "Sextant's default"
MIRT_V, FISHER = f"{NESTED}, V-optimal, adaptive", f"{TWO_PL}, Fisher, adaptive"
#: MIRT without a general ability, by number of abilities K; "MIRT" in the study is nested.
_FLAT = {f"MIRT not nested, K = {k}": k for k in (1, 2, 3)}
_FLAT_V = "MIRT not nested, V-optimal, adaptive"
MIRT_V_COST, FISHER_COST = f"{MIRT_V}, by cost", f"{FISHER}, by cost"
MIRT_CHEAPEST, TWO_PL_CHEAPEST = f"{NESTED}, cheapest", f"{TWO_PL}, cheapest"
_BY_COST = (MIRT_CHEAPEST, MIRT_V, MIRT_V_COST, TWO_PL_CHEAPEST, FISHER, FISHER_COST)
_LARGEST = list(_FLAT)[-1]

_TITLES = (
    "Figures 2, 3, 10: MAE of tasks never asked",
    "Figure 4: MAE of items never asked, of tasks that are asked",
    "Figure 6: MAE of tasks never asked, and cost of an examinee",
    "Figure 8: MAE of tasks never asked by K, random items",
    "Figure 9: MAE of tasks never asked by model",
    "Figure 11: items asked of each task",
    f"Figures 12, 13: MAE of each task, never asked, after {_TOLD} items",
    f"Figures 14, 15: MAE of models, the hardest first, after {_TOLD} items",
)

#: Number of items asked -> predicted scores of the tested models, shape (n_tested, n_items).
Predicted = dict[int, FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Predictions of one method, and the items that it asks.

    Attributes:
        asked: Number of items -> bank positions of the items asked, one array for each tested
            model, or a single array where all models are asked the same items.
    """

    scores: Predicted
    asked: Mapping[int, Sequence[IntArray]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Responses of models that answered every item of several tasks.

    Attributes:
        names: Names of the tasks.
        scores: Responses, shape (n_models, n_items).
        tasks: Task of each item, as position in `names`.
        models: Names of the models.
        costs: Cost of each item; None where costs are unknown.
    """

    names: tuple[str, ...]
    scores: FloatArray
    tasks: IntArray
    models: tuple[str, ...]
    costs: FloatArray | None = None

    @classmethod
    def load(cls, folder: Path) -> "Joined | None":
        """Load a folder's response files; None with fewer than two tasks, or too few models."""
        files = sorted(folder.glob("*.csv.gz"))
        if len(files) < 2:
            return None
        tables = {path.name.split(".")[0]: load_responses(path) for path in files}
        shared = sorted(set.intersection(*(set(one.examinees) for one in tables.values())))
        parts = []
        for table in tables.values():
            row = {name: i for i, name in enumerate(table.examinees)}
            parts.append(table.scores[[row[name] for name in shared]])
        scores = np.hstack(parts)
        whole = np.flatnonzero(~np.isnan(scores).any(axis=1))
        if len(whole) < _LEAST:
            return None
        tasks = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
        items = [*chain.from_iterable(table.items for table in tables.values())]
        costs, path = None, folder / "costs.csv"
        if path.exists():
            costs = read_costs(path.read_bytes(), items, path.name)
        models = tuple(shared[row] for row in whole)
        return cls(tuple(tables), scores[whole], tasks, models, costs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """One partition of the models, with one task as the target that is not asked.

    Attributes:
        known: Responses of the known models, shape (n_known, n_items).
        tested: Responses of the tested models, shape (n_tested, n_items).
        tasks: Task of each item, shape (n_items,).
        target: The task that is not asked.
        extrapolated: Whether scores of the target are predicted, or of the tasks that are asked.
        held_out: Mask of the items that are never asked, shape (n_items,).
        models: Names of the tested models.
        costs: Cost of each item; None where costs are unknown.
    """

    known: FloatArray
    tested: FloatArray
    tasks: IntArray
    target: int
    extrapolated: bool
    held_out: BoolArray
    seed: int
    models: tuple[str, ...]
    costs: FloatArray | None

    @property
    def at(self) -> IntArray:
        """Positions of the items that the known models did not all answer alike."""
        return np.flatnonzero(self.known.std(axis=0) > 0.0)

    @property
    def askable(self) -> BoolArray:
        """Mask of the items of `at` that may be asked."""
        return np.asarray(~self.held_out & (self.tasks != self.target))[self.at]

    @property
    def wanted(self) -> dict[int, BoolArray]:
        """Task to the mask of its held-out items that are predicted."""
        mask = self.held_out & ((self.tasks == self.target) == self.extrapolated)
        return {task: mask & (self.tasks == task) for task in np.unique(self.tasks[mask]).tolist()}

    def errors(self, predicted: FloatArray) -> FloatArray:
        """Absolute errors of the task scores: all tested models on one task, then on the next."""
        missed = predicted - self.tested
        return np.concatenate([np.abs(missed[:, of].mean(axis=1)) for of in self.wanted.values()])


def splits(data: Joined, seed: int) -> Iterator[list[Split]]:
    """Yield each partition of the models, as splits by target task and by what is predicted."""
    for partition in range(_PARTITIONS):
        rng = np.random.default_rng([seed, partition])
        models = rng.permutation(len(data.scores))
        n_known = min(_KNOWN, len(models) * 3 // 4)
        held_out = rng.random(data.tasks.size) < _HELD_OUT
        tested = models[n_known : n_known + _TESTED]
        yield [
            Split(
                known=data.scores[models[:n_known]],
                tested=data.scores[tested],
                tasks=data.tasks,
                target=target,
                extrapolated=extrapolated,
                held_out=held_out,
                seed=seed + partition,
                models=tuple(data.models[row] for row in tested),
                costs=data.costs,
            )
            for target in range(len(data.names))
            for extrapolated in (True, False)
        ]


def fitted(split: Split) -> dict[str, ItemBank]:
    """Calibrate the items that vary with each response model; K counts the general ability."""
    known = split.known[:, split.at]
    ids = [str(item) for item in split.at]

    def several(dimensions: int, *, nested: bool) -> ItemBank:
        settings = MultidimensionalSettings(
            nested=nested, dimensions=dimensions - nested, method=FitMethod.JOINT
        )
        fit = fit_multidimensional(known, settings, np.random.default_rng(split.seed))
        return ItemBank.from_abilities(MultidimensionalModel(fit.items, fit.population), ids)

    matrix = ScoreMatrix.of(known, items=ids)
    return {
        NESTED: several(3, nested=True),
        **{name: several(k, nested=False) for name, k in _FLAT.items()},
        TWO_PL: calibrate(matrix, CalibrationSettings(with_errors=False)).bank(),
    }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assessor:
    """A calibrated response model, and tests that use it."""

    split: Split
    bank: ItemBank

    def test(self, criterion: str, **facts: Any) -> AdaptiveTest:
        """A test as long as the largest of `_COUNTS`; `facts` go to `Design.build`."""
        by_cost = float("costs" in facts)
        of = {"target": {_TARGET: 1.0}} if criterion in OF_SCORES else {}
        selection = {"criterion": criterion, "quarantine": False, "cost_weight": by_cost, **of}
        most = min(_COUNTS[-1], int(self.split.askable.sum()))
        design = {
            "selection": selection,
            "stopping": of_length(most),
            "prediction": {"method": "combined" if "curves" in facts else "p-irt"},
        }
        if "targets" not in facts:  # given targets already say which items count
            target = np.any([*self.split.wanted.values()], axis=0)[self.split.at]
            facts["tags"] = [frozenset({_TARGET} if one else ()) for one in target]
        return Design.from_dict(design).build(self.bank, active=self.split.askable, **facts)

    def states(self, test: AdaptiveTest) -> list[dict[int, CatState]]:
        """State of each tested model's test after each of `_COUNTS` items."""
        found = []
        for i, row in enumerate(self.split.tested[:, self.split.at]):
            seen: list[CatState] = []
            take(test, row, seed=[self.split.seed, i], watch=seen.append)
            found.append({n: seen[n - 1] for n in _COUNTS if n <= len(seen)})
        return found

    def adaptive(self, test: AdaptiveTest) -> Outcome:
        """Predictions of adaptive tests, where each model is asked its own items."""
        return _each(self.states(test), lambda state: self._expected(state.belief))

    def listed(self, test: AdaptiveTest, lists: Sequence[IntArray]) -> Outcome:
        """Predictions from the responses to fixed lists of items (positions in the bank)."""
        start, predicted = test.start().belief, {}
        for items in lists:
            rows = self.split.tested[:, self.split.at[items]].tolist()
            asked = [ItemIndex(item) for item in items.tolist()]
            beliefs = [
                test.estimator.update(self.bank, start, *map(Response, asked, row)) for row in rows
            ]
            predicted[len(items)] = np.array([self._expected(belief) for belief in beliefs])
        return Outcome(predicted, {len(items): [items] for items in lists})

    def combined(self, criterion: str) -> Outcome:
        """Predictions as sessions predict scores, learned from the known models' responses."""
        split, rng = self.split, np.random.default_rng(self.split.seed)
        tasks = {str(task): mask[split.at] for task, mask in split.wanted.items()}
        masks = {_TARGET: np.any([*tasks.values()], axis=0), **tasks}
        weights = {name: mask / mask.sum() for name, mask in masks.items()}
        known, askable = split.known[:, split.at], split.askable
        scores = learn_scores(known, weights, rng, askable=askable).targets
        curves = learn_curves(known, rng)
        targets = {WHOLE_BANK: scores[_TARGET], **scores}
        test = self.test(criterion, targets=targets, curves=curves)

        def scores_of(state: CatState) -> FloatArray:
            every: FloatArray = split.known[0].copy()
            for name, mask in tasks.items():
                found = test.tasks[name].predict(self.bank, state.responses, state.belief)
                every[split.at[mask]] = found.value
            return every

        return _each(self.states(test), scores_of)

    def _expected(self, belief: Belief) -> FloatArray:
        if isinstance(belief, ProfileBelief):
            items = [ItemIndex(item) for item in range(self.bank.n_items)]
            told = ProfileMap().expected_scores(self.bank, belief, items)
        else:
            told = belief.weights @ self.bank.expected_score(belief.nodes)
        every: FloatArray = self.split.known[0].copy()  # for items that they all answered alike
        every[self.split.at] = told
        return every


def _each(
    states: Sequence[Mapping[int, CatState]], told: Callable[[CatState], FloatArray]
) -> Outcome:
    def items(state: CatState) -> IntArray:
        return np.array([response.item for response in state.responses], dtype=np.intp)

    return Outcome(
        {n: np.array([told(of_model[n]) for of_model in states]) for n in states[0]},
        {n: [items(of_model[n]) for of_model in states] for n in states[0]},
    )


def at_once(test: AdaptiveTest) -> IntArray:
    """Items that a test asks, in order, if it never receives an answer."""
    state = test.start()
    while isinstance(step := test.ask(state, np.random.default_rng(0)), Ask):
        state = state.with_pending(step.item, step.probability)
    return np.array(state.pending, dtype=np.intp)


def first(items: IntArray) -> list[IntArray]:
    """The first n items, for each n of `_COUNTS`."""
    return [items[:n] for n in _COUNTS if n <= items.size]


def lists(split: Split, bank: ItemBank) -> dict[str, list[IntArray]]:
    """Lists of items that are chosen without a test, as positions in the bank."""
    rng = np.random.default_rng([split.seed, split.target])
    open_to = np.flatnonzero(split.askable)
    mixed = rng.permutation(open_to)
    of = split.tasks[split.at[mixed]]
    turn = [int(np.count_nonzero(of[:nth] == task)) for nth, task in enumerate(of)]
    items = abilities_of(bank).items
    points = {
        "anchors of answers": split.known[:, split.at[open_to]].T,
        "anchors of items": np.column_stack([items.slopes, items.intercept])[open_to],
    }
    return {
        "random": first(mixed),
        "uniform over tasks": first(mixed[np.argsort(turn, kind="stable")]),
        **{
            name: [open_to[anchors_of(each, len(some), rng).items] for some in first(open_to)]
            for name, each in points.items()
        },
    }


def without_a_model(split: Split, asked: Iterable[IntArray]) -> dict[str, Predicted]:
    """Baselines without a response model, which predict one number for all items of a task."""
    means = np.tile(split.known.mean(axis=0), (len(split.tested), 1))
    told: dict[str, Predicted] = {"ridge a task": {}, "task mean": {}, "task mean (EB)": {}}
    for some in asked:
        items, n = split.at[some], len(some)
        for by in told.values():
            by[n] = means.copy()
        for task in np.unique(split.tasks):
            inside = np.flatnonzero(split.tasks == task)
            held = inside[split.held_out[inside]]
            own = np.flatnonzero(np.isin(inside, items))
            regressed = ridge(split.known, split.known[:, held].mean(axis=1), items)
            drawn = shrunk(split.known[:, inside], [0] * len(inside), own)
            told["ridge a task"][n][:, held] = regressed.of(split.tested)[:, None]
            told["task mean (EB)"][n][:, held] = drawn.of(split.tested[:, inside])[:, None]
            if own.size:
                mean = split.tested[:, inside[own]].mean(axis=1)
                told["task mean"][n][:, held] = mean[:, None]
    return told


def methods(split: Split, banks: Mapping[str, ItemBank]) -> Iterator[tuple[str, Outcome]]:
    """Yield each method's predictions, with items selected for what is predicted."""
    by = {name: Assessor(split=split, bank=bank) for name, bank in banks.items()}
    nested, two_pl, flat = by[NESTED], by[TWO_PL], by[_LARGEST]
    asked = lists(split, nested.bank)
    loadings = nested.test("v_optimal_loadings")
    for name, items in asked.items():
        yield f"{NESTED}, {name}", nested.listed(loadings, items)
    yield f"{NESTED}, V-optimal, static", nested.listed(loadings, first(at_once(loadings)))
    yield MIRT_V, nested.adaptive(loadings)
    fisher = two_pl.test("maximum_information")
    yield f"{TWO_PL}, random", two_pl.listed(fisher, asked["random"])
    yield f"{TWO_PL}, Fisher, static", two_pl.listed(fisher, first(at_once(fisher)))
    yield FISHER, two_pl.adaptive(fisher)
    for name, scores in without_a_model(split, asked["random"]).items():
        yield name, Outcome(scores)
    yield "eq. 6, predicted by default", nested.combined("v_optimal_loadings")
    yield TODAY, nested.combined("v_optimal")
    for name in _FLAT:
        yield name, by[name].listed(by[name].test("trace"), asked["random"])
    yield _FLAT_V, flat.adaptive(flat.test("v_optimal_loadings"))
    if split.costs is not None:
        costs = split.costs[split.at]
        open_to = np.flatnonzero(split.askable)
        cheapest = first(open_to[np.argsort(costs[open_to], kind="stable")])
        yield MIRT_CHEAPEST, nested.listed(loadings, cheapest)
        yield TWO_PL_CHEAPEST, two_pl.listed(fisher, cheapest)
        by_cost = nested.test("v_optimal_loadings", costs=costs)
        yield MIRT_V_COST, nested.adaptive(by_cost)
        by_cost = two_pl.test("maximum_information", costs=costs)
        yield FISHER_COST, two_pl.adaptive(by_cost)


class Found:
    """Errors, costs and asked items of all methods, collected over the splits."""

    def __init__(self, data: Joined) -> None:
        self._tasks = range(len(data.names))
        self._errors: dict[tuple[str, bool, int, int], list[FloatArray]] = defaultdict(list)
        self._figures: dict[tuple[str, str, str | int], list[float]] = defaultdict(list)

    def add(self, split: Split, way: str, told: Outcome) -> None:
        """Add the results of one method on one split."""
        for n, scores in told.scores.items():
            missed = split.errors(scores)
            self._errors[way, split.extrapolated, n, split.target].append(missed)
            if split.extrapolated and n == _TOLD:
                for model, each in zip(split.models, missed.tolist(), strict=True):
                    self._figures["error", way, model].append(each)
        for n, asked in told.asked.items() if split.extrapolated else ():
            if split.costs is not None:
                spent = [float(split.costs[split.at[items]].sum()) for items in asked]
                self._figures["cost", way, n].append(float(np.mean(spent)))
            if n == max(told.asked):
                tasks = [split.tasks[split.at[items]] for items in asked]
                for task in set(self._tasks) - {split.target}:
                    counts = [np.count_nonzero(each == task) for each in tasks]
                    self._figures["asked", way, task].append(float(np.mean(counts)))

    @property
    def methods(self) -> list[str]:
        """Names of all methods, in order."""
        return list(dict.fromkeys(key[0] for key in self._errors))

    def mae(
        self, way: str, n: int, *, extrapolated: bool = True, task: int | None = None
    ) -> float | None:
        """MAE (eq. 11) over tasks, models and partitions; None where a split has fewer items."""
        tasks = self._tasks if task is None else (task,)
        found = [self._errors[way, extrapolated, n, one] for one in tasks]
        return float(np.concatenate([*chain(*found)]).mean()) if all(found) else None

    def mean(self, figure: str, way: str, of: int) -> float | None:
        """Mean of a figure of one method.

        It is the cost of testing one model with `of` items, or, as `asked`, the number of items of
        task `of` in the longest tests that may ask this task.
        """
        found = self._figures[figure, way, of]
        return float(np.mean(found)) if found else None

    def models(self, way: str) -> dict[str, float]:
        """MAE of each model, the largest first."""
        found = {
            str(name): float(np.mean(each))
            for (figure, of, name), each in self._figures.items()
            if (figure, of) == ("error", way)
        }
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def reproduce(folder: Path, seed: int) -> Iterator[Exhibit]:
    """Yield the study's figures as tables."""
    data = Joined.load(folder / "tiny")
    if data is None:
        needed = f"tiny/TASK.csv.gz of two tasks, answered by the same {_LEAST} models"
        yield from (Exhibit(title=title, missing=needed) for title in _TITLES)
        return
    found = Found(data)
    for partition in splits(data, seed):
        banks = fitted(partition[0])
        for split in partition:
            for way, told in methods(split, banks):
                found.add(split, way, told)

    note = (
        f"{_PARTITIONS} partitions of at most {_KNOWN} known and {_TESTED} tested models, "
        f"{len(data.names)} tasks, each in turn not asked; the study has 163 tasks, 112 not asked."
    )

    def exhibit(
        title: str, of: str, columns: Iterable[str], rows: Mapping[str, Iterable[Cell]]
    ) -> Exhibit:
        """A table of which the study prints at most one figure."""
        printed = {MIRT_V: "< 0.07 at 16"} if title in (extrapolation, adaptive) else {}
        return Exhibit(
            title=title,
            heads=(of, "published", *columns),
            rows=[(name, printed.get(name, NOT_PRINTED), *cells) for name, cells in rows.items()],
            note=note,
        )

    def by_length(title: str, ways: Iterable[str], *, extrapolated: bool = True) -> Exhibit:
        rows = {
            way: [found.mae(way, n, extrapolated=extrapolated) for n in _COUNTS] for way in ways
        }
        return exhibit(title, "model and choice", [f"{n} items" for n in _COUNTS], rows)

    main = [name for name in found.methods if name not in {*_FLAT, *_BY_COST} - {MIRT_V, FISHER}]
    extrapolation, interpolation, costs, ablation, adaptive, chosen, tasks, models = _TITLES
    yield by_length(extrapolation, main)
    yield by_length(interpolation, main, extrapolated=False)
    if data.costs is None:
        yield Exhibit(title=costs, missing="tiny/costs.csv, the expected tokens of the items")
    else:
        figures: dict[str, Callable[[str, int], float | None]] = {
            "MAE": found.mae,
            "cost": partial(found.mean, "cost"),
        }
        yield exhibit(
            costs,
            "model and choice",
            [f"{n}: {figure}" for figure in figures for n in _COUNTS],
            {way: [of(way, n) for of in figures.values() for n in _COUNTS] for way in _BY_COST},
        )
    yield by_length(ablation, _FLAT)
    yield by_length(adaptive, (FISHER, _FLAT_V, MIRT_V))
    choosing = (MIRT_V, *(() if data.costs is None else (MIRT_V_COST,)), TODAY)
    asked = {
        name: [found.mean("asked", way, task) for way in choosing]
        for task, name in enumerate(data.names)
    }
    where = f"In tests of {_COUNTS[-1]} items, where the task may be asked. {note}"
    yield replace(exhibit(chosen, "task", choosing, asked), note=where)
    shown = (FISHER, MIRT_V, TODAY)
    of_tasks = {
        name: [found.mae(way, _TOLD, task=task) for way in shown]
        for task, name in enumerate(data.names)
    }
    yield exhibit(tasks, "task", shown, of_tasks)
    of_models = [found.models(way) for way in shown]
    hardest = {
        name: [each[name] for each in of_models] for name in [*found.models(MIRT_V)][:_HARDEST]
    }
    yield exhibit(models, "model", shown, hardest)
