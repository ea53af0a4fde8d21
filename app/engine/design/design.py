"""The description of a test: JSON in, JSON out, and the test itself from it.

    {"preset": "score" | "ability" | "atlas" | "atlas-traces",
     "estimator": {"method", "prior_mean", "prior_sd", "se", "nodes", "range", "rule",
                   "information"},
     "selection": {"criterion", "top_k", "random_start", "nearest_start", "strata", "cost_weight",
                   "quarantine",
                   "content": {"targets": {tag: share}}, "exposure": {"max_rate"},
                   "target": {tag: share}},
     "stopping": {"se", "min_items", "max_items", "theta_change", "min_information",
                  "cut_score": {"theta", "method", "confidence", "indifference"},
                  "score_margin", "any_of": [...], "all_of": [...]},
     "prediction": {"method"},
     "budget": {"usd", "tokens", "seconds"},
     "concurrency": 4}

Everything is optional. What one wants to know decides the preset where none is named: a goal, a
criterion or a prediction by theta means `ability`, anything else `score`. What is not given comes
from the preset, key by key; `null` takes a preset's value away. An SE or a margin of the score that
is asked for takes the place of the preset's. An estimator with another method than the preset's
takes nothing from it, for a standard error belongs to its estimator. Entries of `any_of` and
`all_of` are stopping objects.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.parts import (
    CATR_NODES,
    CATR_RANGE,
    MAX_DEPTH,
    BudgetDesign,
    EstimatorDesign,
    FromJson,
    Part,
    PredictionDesign,
    StoppingDesign,
)
from app.engine.design.prediction import Predictors
from app.engine.design.selection import (
    OF_SCORES,
    BankFacts,
    CriterionName,
    SelectionDesign,
    weights_of,
)
from app.engine.information_index import index_of
from app.engine.lint import lint, quarantine
from app.engine.models.base import BoolArray
from app.engine.multidimensional.belief import ProfileMap
from app.engine.prediction.correction import KNOTS, IntervalCorrection
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.p_irt import BY_THETA
from app.engine.prediction.score_model import Target
from app.engine.selection.base import Pool
from app.engine.state import Estimator
from app.errors import InvalidInputError
from app.validation import problems_of

MAX_CONCURRENCY = 256


class Preset(StrEnum):
    """Designs to start from: for the score, for theta, and as published."""

    SCORE = "score"
    ABILITY = "ability"
    ATLAS = "atlas"
    ATLAS_TRACES = "atlas-traces"


#: Items in flight at once, where a server asks.
CONCURRENCY = 4

PRESETS: Mapping[Preset, Mapping[str, Any]] = {
    # What people ask for: the mean over the whole bank, to four points.
    Preset.SCORE: {
        "estimator": {"method": "eap"},
        "selection": {"criterion": "v_optimal", "quarantine": False},
        "stopping": {"score_margin": 0.04, "min_items": 20, "max_items": 60},
        "prediction": {"method": "combined"},
        "concurrency": CONCURRENCY,
    },
    # Published slopes promise more than they keep, so a lucky streak of steep items must not end a
    # test early: 50 items unless SE falls below 0.05. On one complete matrix of 160 real models,
    # the only one at hand, this did as well as the best of some ninety variants; differences among
    # the better ones were within the error of the comparison.
    Preset.ABILITY: {
        "estimator": {"method": "eap"},
        "selection": {"criterion": "maximum_information", "top_k": 1, "quarantine": True},
        "stopping": {"se": 0.05, "min_items": 20, "max_items": 50},
        "concurrency": CONCURRENCY,
    },
    # ATLAS, Algorithm 1, as it is printed: first the item nearest in difficulty to 0, then one of
    # the five most informative of the whole bank, at least 30 and at most 500 items.
    Preset.ATLAS: {
        "estimator": {"method": "eap", "se": "information"},
        "selection": {
            "criterion": "maximum_information",
            "top_k": 5,
            "nearest_start": True,
            "quarantine": False,
        },
        "stopping": {"se": 0.1, "min_items": 30, "max_items": 500},
        "prediction": {"method": "p-irt"},
        "concurrency": 1,
    },
    # The same as its published traces show it: the first item at random, EAP on catR's grid, the
    # prior counted in the standard error.
    Preset.ATLAS_TRACES: {
        "estimator": {
            "method": "eap",
            "se": "information-with-prior",
            "nodes": CATR_NODES,
            "range": list(CATR_RANGE),
            "rule": "trapezoid",
        },
        "selection": {
            "criterion": "maximum_information",
            "top_k": 5,
            "random_start": 1,
            "quarantine": False,
        },
        "stopping": {"se": 0.1, "min_items": 30, "max_items": 500},
        "prediction": {"method": "p-irt"},
        "concurrency": 1,
    },
}

#: Goals and criteria of a design that asks for theta.
_OF_THETA = ("se", "cut_score", "theta_change", "min_information")
_BY_THETA = frozenset(CriterionName) - OF_SCORES - {CriterionName.RANDOM}
#: How exactly: of these a preset has one.
_PRECISION = ("se", "score_margin")


class Design(Part):
    """One way to test, on any bank. Made by `from_dict`; `from_dict({})` is a test for the score.

    Attributes:
        concurrency: How many items the caller keeps in flight; the test itself does not use it.
    """

    preset: FromJson[Preset]
    estimator: EstimatorDesign = EstimatorDesign()
    selection: SelectionDesign = SelectionDesign()
    stopping: StoppingDesign = StoppingDesign()
    prediction: PredictionDesign = PredictionDesign()
    budget: BudgetDesign = BudgetDesign()
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] = 1

    @classmethod
    def from_dict(cls, document: object) -> "Design":
        """Read a design; see the module for its form. What `to_dict` made gives it back.

        Raises:
            InvalidInputError: With one problem and JSON pointer for each fault.
        """
        whole = _on_preset(document) if isinstance(document, Mapping) else document
        try:
            return cls.model_validate(whole)
        except ValidationError as error:
            problems = problems_of(error.errors(include_url=False), cls)
            others = error.error_count() - 1
        more = f" (and {others} more)" if others else ""
        raise InvalidInputError(
            f"The test design cannot be used: {problems[0].pointer or '/'}: "
            f"{problems[0].detail}{more}.",
            problems=problems,
        )

    def open_ended(self, n_items: int) -> "Design":
        """The same choice of items, ended by nothing but their number.

        A design whose selection is planned by its length keeps that length.
        """
        planned = self.selection.criterion is CriterionName.A_STRATIFIED
        most = (planned and self.stopping.max_items) or n_items
        ends = {"stopping": StoppingDesign(max_items=most), "budget": BudgetDesign()}
        return self.model_copy(update=ends)

    def build(
        self,
        bank: ItemBank,
        *,
        active: BoolArray | None = None,
        tags: Sequence[Collection[str]] | None = None,
        costs: FloatArray | None = None,
        exposure: FloatArray | None = None,
        correction: IntervalCorrection | None = None,
        targets: Mapping[str, Target] | None = None,
        curves: LearnedCurves | None = None,
    ) -> AdaptiveTest:
        """The test on a bank.

        Args:
            bank: Any bank; its index is shared by all tests on it.
            active: Mask of the items that may be asked, shape (n_items,); None means all, without
                the quarantined ones if the design says so.
            tags: Tags of each item, for content balancing.
            costs: Expected cost of each item in one unit (tokens, usd), above 0, for information
                per cost, shape (n_items,).
            exposure: Sympson-Hetter acceptance probabilities, shape (n_items,), for exposure
                control; see `app.engine.simulation.simulate.fit_acceptance`.
            correction: What other examinees taught about the intervals of theta on this bank.
            targets: Scores that a score model predicts, by tag ("all" is the whole bank). It then
                predicts the score that the design is about, in place of p-IRT, unless the design
                wants that.
            curves: What reference models taught about scores; None takes the bank's parameters,
                and no reference models. It predicts the score, unless the design wants another
                method.

        Raises:
            InvalidInputError: The design needs something that is not given, or no item is left.
        """
        if bank.abilities is not None:
            self.stopping.require_one_ability()
        if active is None and self.selection.quarantine:
            active = ~quarantined(bank)
        facts = BankFacts(
            bank=bank,
            active=active,
            tags=tags,
            costs=costs,
            acceptance=exposure,
            targets=targets or {},
            curves=curves or LearnedCurves.of_parameters(bank),
        )
        estimator: Estimator[Any] = (
            self.estimator.build() if bank.abilities is None else ProfileMap()
        )
        predictors = Predictors(facts, self.prediction.method)
        target = self.selection.target
        predictor = predictors.of_target(target)
        if correction is not None and curves is not None:
            correction = replace(correction, placing=curves.placing)
        return AdaptiveTest(
            # Without a mask a query of the index is a little cheaper.
            pool=Pool(index=index_of(bank), active=None if facts.all_active else active),
            estimator=estimator,
            selector=self.selection.build(
                facts,
                predictor,
                self.stopping.max_items,
                self.prediction.method,
                self.estimator.information,
            ),
            stopping=self.stopping.build(estimator, predictor, correction, self.budget.build()),
            predictor=predictor,
            tasks=predictors.of_tags(),
            correction=correction,
            weights=None if target is None else weights_of(facts, target),
        )


def stops_when(
    design: Design, reachable_se: float | None = None, n_items: int | None = None
) -> str:
    """What will end a test by this design, in a sentence or two.

    Args:
        design: Of the test.
        reachable_se: Least SE that all items of the bank reach together; None where unknown.
        n_items: That may be asked; None where unknown.
    """
    stopping, budget = design.stopping, design.budget
    goals = _goals(stopping)
    most = stopping.max_items
    if n_items is not None and (most is None or n_items < most):
        most = n_items
    limits = [
        f"{cap:g} {unit}"
        for cap, unit in (
            (
                most,
                "items asked" if most == stopping.max_items else "items asked (all of the bank)",
            ),
            (budget.usd, "USD"),
            (budget.tokens, "tokens"),
            (budget.seconds, "seconds"),
        )
        if cap is not None
    ]
    latest = " or ".join(limits) or "every item of the bank asked"
    few = "" if most is None or most >= KNOTS[0] else f" A result takes {KNOTS[0]} scored answers."
    if not goals:
        return f"Stops at {latest}.{few}"
    least = stopping.min_items or 0
    if n_items is not None and least > n_items:
        return (
            f"Stops at {latest}: no goal ends a test of fewer than {least} scored answers "
            f"(min_items).{few}"
        )
    waits = f", with at least {least} scored answers (min_items)" if least > 1 else ""
    said = f"Stops when {' or '.join(goals)}{waits}; at the latest at {latest}.{few}"
    target = stopping.se
    if target is not None and reachable_se is not None and target < reachable_se:
        said += (
            f" SE {target:g} cannot be reached: all items of the bank together reach "
            f"{reachable_se:.3g} at best."
        )
    return said


def _goals(stopping: StoppingDesign) -> list[str]:
    goals = []
    if stopping.se is not None:
        goals.append(f"SE <= {stopping.se:g}")
    if (cut := stopping.cut_score) is not None:
        goals.append(f"theta is above or below {cut.theta:g} with confidence {cut.confidence:g}")
    if stopping.score_margin is not None:
        goals.append(f"the score is known to +-{100 * stopping.score_margin:g} points")
    goals += [_nested(rule) for rule in stopping.any_of]
    if stopping.all_of:
        goals.append(f"({' and '.join(_nested(rule) for rule in stopping.all_of)})")
    if stopping.theta_change is not None:
        goals.append(f"answers move theta by less than {stopping.theta_change:g}")
    if stopping.min_information is not None:
        goals.append(f"no item left has information {stopping.min_information:g}")
    return goals


def _nested(stopping: StoppingDesign) -> str:
    """One of several rules that are combined, with limits and a minimum of its own."""
    parts = _goals(stopping)
    if parts and stopping.min_items:
        parts = [f"{' or '.join(parts)} with at least {stopping.min_items} scored answers"]
    if stopping.max_items is not None:
        parts.append(f"{stopping.max_items} items are asked")
    text = " or ".join(parts)
    return f"({text})" if len(parts) > 1 else text


@lru_cache(maxsize=16)
def quarantined(bank: ItemBank) -> BoolArray:
    """Mask of the items that lint keeps out of selection, shape (n_items,), read-only.

    In a bank of several abilities an item may well fall with one of them; what is left out there
    tells nothing about any.
    """
    if bank.abilities is None:
        left_out = quarantine(lint(bank))
        mask = np.array([item_id in left_out for item_id in bank.item_ids], dtype=np.bool_)
    else:
        mask = np.asarray(~bank.abilities.items.slopes.any(axis=1))
    mask.flags.writeable = False
    return mask


def implied_preset(document: Mapping[str, Any]) -> Preset:
    """What a design starts from that names no preset: by what it wants to know."""
    selection = document.get("selection")
    criterion = selection.get("criterion") if isinstance(selection, Mapping) else None
    if isinstance(criterion, str) and criterion in _BY_THETA:
        return Preset.ABILITY
    prediction = document.get("prediction")
    if isinstance(prediction, Mapping) and prediction.get("method") in BY_THETA:
        return Preset.ABILITY
    goals = set(_goals_in(document.get("stopping")))
    return Preset.SCORE if goals.isdisjoint(_OF_THETA) else Preset.ABILITY


def _goals_in(stopping: object, depth: int = 0) -> Iterator[str]:
    """Names of all rules that a stopping object gives, those of its lists among them."""
    if not isinstance(stopping, Mapping) or depth > MAX_DEPTH:
        return
    for name, value in stopping.items():
        if name in ("any_of", "all_of"):
            for inner in value if isinstance(value, list | tuple) else ():
                yield from _goals_in(inner, depth + 1)
        elif value is not None:
            yield name


def _on_preset(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with what it does not say filled in from the preset, section by section."""
    named = document.get("preset")
    preset = next((one for one in Preset if one == named), None) or implied_preset(document)
    merged = {**document, "preset": preset if named is None else named}
    for name, defaults in PRESETS[preset].items():
        said = document.get(name)
        if said is None:
            merged[name] = defaults
        elif isinstance(said, Mapping):
            inherited = dict(defaults)
            if (
                name == "estimator"
                and said.get("method", inherited["method"]) != inherited["method"]
            ):
                inherited = {}
            if name == "stopping":
                if not set(_goals_in(said)).isdisjoint(_PRECISION):
                    inherited = {key: inherited[key] for key in inherited if key not in _PRECISION}
                inherited |= _moved_limits(said, inherited)
            merged[name] = inherited | dict(said)
    return merged


def _moved_limits(said: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    """The preset's numbers of items, moved where they contradict what was said."""
    least, most = said.get("min_items"), said.get("max_items")
    moved = {}
    if isinstance(most, int) and most < preset["min_items"]:
        moved["min_items"] = max(most, 0)  # what is wrong with `most` is said of it alone
    if isinstance(least, int) and least > preset["max_items"]:
        moved["max_items"] = least
    return moved
