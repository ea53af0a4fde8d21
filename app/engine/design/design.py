"""A test design: presets, defaults, limits; read from JSON, and built into a test.

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

Everything is optional. If no preset is named, a goal, a criterion or a prediction by theta means
`ability`, and anything else means `score`. Missing keys come from the preset, one by one; `null`
removes the preset's value. A given SE or margin of the score replaces the preset's. An estimator
with another method than the preset's takes nothing from the preset, because a standard error
belongs to its estimator. Entries of `any_of` and `all_of` are stopping objects.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.facts import BankFacts
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
from app.engine.design.selection import (
    OF_SCORES,
    CriterionName,
    SelectionDesign,
)
from app.engine.information_index import index_of
from app.engine.lint import lint, quarantine
from app.engine.models.base import BoolArray
from app.engine.multidimensional import ProfileMap
from app.engine.prediction.correction import KNOTS, IntervalCorrection
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.p_irt import BY_THETA
from app.engine.prediction.score_model import Target
from app.engine.selection.base import Pool
from app.engine.state import Estimator
from app.errors import InvalidInputError
from app.printable import plain
from app.validation import problems_of

MAX_CONCURRENCY = 256


class Preset(StrEnum):
    """Designs to start from: for the score, for theta, and as published."""

    SCORE = "score"
    ABILITY = "ability"
    ATLAS = "atlas"
    ATLAS_TRACES = "atlas-traces"


#: Number of items that a server keeps in flight.
CONCURRENCY = 4

PRESETS: Mapping[Preset, Mapping[str, Any]] = {
    # The usual goal: the mean score over the whole bank, to four points.
    Preset.SCORE: {
        "estimator": {"method": "eap"},
        "selection": {"criterion": "v_optimal", "quarantine": False},
        "stopping": {"score_margin": 0.04, "min_items": 20, "max_items": 60},
        "prediction": {"method": "combined"},
        "concurrency": CONCURRENCY,
    },
    # Published slopes overstate precision: a lucky streak on steep items must not end a test early.
    # A test takes 50 items unless SE falls below 0.05. On a complete matrix of 160 real models, the
    # only one available, this did as well as the best of some ninety variants. Differences among
    # the better variants were within the error of the comparison.
    Preset.ABILITY: {
        "estimator": {"method": "eap"},
        "selection": {"criterion": "maximum_information", "top_k": 1, "quarantine": True},
        "stopping": {"se": 0.05, "min_items": 20, "max_items": 50},
        "concurrency": CONCURRENCY,
    },
    # ATLAS, Algorithm 1, as printed: first the item whose difficulty is nearest to 0, then one of
    # the five most informative items of the whole bank, at least 30 and at most 500 items.
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
    # ATLAS as its published traces show it: the first item is random, EAP uses catR's grid, and the
    # standard error includes the prior.
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

#: Goals and criteria that mark a design for theta.
_OF_THETA = ("se", "cut_score", "theta_change", "min_information")
_BY_THETA = frozenset(CriterionName) - OF_SCORES - {CriterionName.RANDOM}
#: Goals of precision; each preset has exactly one of them.
_PRECISION = ("se", "score_margin")


class Design(Part):
    """One way to test, on any bank. Made by `from_dict`; `from_dict({})` is a test for the score.

    Attributes:
        concurrency: Number of items that the caller keeps in flight; the test does not use it.
    """

    preset: FromJson[Preset]
    estimator: EstimatorDesign = EstimatorDesign()
    selection: SelectionDesign = SelectionDesign()
    stopping: StoppingDesign = StoppingDesign()
    prediction: PredictionDesign = PredictionDesign()
    budget: BudgetDesign = BudgetDesign()
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] = 1

    @model_validator(mode="before")
    @classmethod
    def _on_preset(cls, document: Any) -> Any:
        """Fill in missing values from the preset, section by section."""
        if not isinstance(document, Mapping):
            return document
        named = document.get("preset")
        preset = next((one for one in Preset if one == named), None) or implied_preset(document)
        merged = {**document, "preset": preset if named is None else named}
        for name, defaults in PRESETS[preset].items():
            given = document.get(name)
            if given is None:
                merged[name] = defaults
            elif isinstance(given, Mapping):
                merged[name] = _inherited(name, given, defaults) | dict(given)
        return merged

    @classmethod
    def from_dict(cls, document: object) -> Self:
        """Read a design in the form that the module describes; the inverse of `to_dict`.

        Raises:
            InvalidInputError: The design has faults; each is a problem with a JSON pointer.
        """
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            problems = problems_of(error.errors(include_url=False), cls)
            others = error.error_count() - 1
        first = problems[0]
        end = f" (and {others} more)." if others else "" if first.detail.endswith("?") else "."
        raise InvalidInputError(
            f"The test design cannot be used: {first.pointer or '/'}: {first.detail}{end}",
            problems=problems,
        )

    def open_ended(self, n_items: int) -> Self:
        """The design with the same selection, whose tests end only by the number of items.

        A design whose selection depends on the planned length keeps that length.
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
        """The test on a bank, whose index is shared by all tests on it.

        The facts about the bank are those of `BankFacts`; `exposure` comes from
        `app.engine.simulation.simulate.fit_acceptance`, and the correction was learned for this
        bank. Without `active`, a design that quarantines leaves out the quarantined items. Targets,
        by tag ("all" is the whole bank), predict the score in place of p-IRT, unless the design
        names it. Curves predict it unless the design names another method; without any, the bank's
        parameters do, as if there were no reference models.

        Raises:
            InvalidInputError: The design needs something that is not given, or no item is left.
        """
        if bank.abilities is not None:
            self.stopping.require_one_ability()
        if active is None and self.selection.quarantine:
            active = ~quarantined(bank)
        facts = BankFacts(
            bank=bank,
            method=self.prediction.method,
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
        target = self.selection.target
        predictor = facts.predictor(target)
        if correction is not None and curves is not None:
            correction = replace(correction, curves=curves)
        return AdaptiveTest(
            # A query of the index is a little faster without a mask.
            pool=Pool(index=index_of(bank), active=None if facts.all_active else active),
            estimator=estimator,
            selector=self.selection.build(
                facts, predictor, self.stopping.max_items, self.estimator.information
            ),
            stopping=self.stopping.build(estimator, predictor, correction, self.budget.build()),
            predictor=predictor,
            tasks=facts.predictors_of_tags(),
            correction=correction,
            weights=None if target is None else facts.weights_of(target),
        )


def stops_when(
    design: Design, reachable_se: float | None = None, n_items: int | None = None
) -> str:
    """Sentences that say when a test by this design ends.

    `reachable_se` is the smallest SE, reached by all items of the bank together, and `n_items` the
    number of items that may be asked; None if unknown.
    """
    stopping, budget = design.stopping, design.budget
    goals = _goals(stopping)
    most = stopping.max_items
    if n_items is not None and (most is None or n_items < most):
        most = n_items
    limits = [
        f"{plain(cap)} {unit}"
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
    few = "" if most is None or most >= KNOTS[0] else f" A result needs {KNOTS[0]} scored answers."
    if not goals:
        return f"Stops at {latest}.{few}"
    least = stopping.min_items or 0
    if n_items is not None and least > n_items:
        return (
            f"Stops at {latest}: no goal ends a test of fewer than {least} scored answers "
            f"(min_items).{few}"
        )
    waits = f", with at least {least} scored answers (min_items)" if least > 1 else ""
    text = f"Stops when {' or '.join(goals)}{waits}; at the latest at {latest}.{few}"
    target = stopping.se
    if target is not None and reachable_se is not None and target < reachable_se:
        text += (
            f" SE {target:g} cannot be reached: all items of the bank together reach "
            f"{reachable_se:.3g} at best."
        )
    return text


def _goals(stopping: StoppingDesign) -> list[str]:
    goals = []
    if stopping.se is not None:
        goals.append(f"SE <= {stopping.se:g}")
    if (cut := stopping.cut_score) is not None:
        goals.append(f"theta is above or below {cut.theta:g} with confidence {cut.confidence:g}")
    if stopping.score_margin is not None:
        goals.append(f"the score is known to ±{100 * stopping.score_margin:g} points")
    goals += [_nested(rule) for rule in stopping.any_of]
    if stopping.all_of:
        goals.append(f"({' and '.join(_nested(rule) for rule in stopping.all_of)})")
    if stopping.theta_change is not None:
        goals.append(f"answers move theta by less than {stopping.theta_change:g}")
    if stopping.min_information is not None:
        goals.append(f"no item left has information {stopping.min_information:g}")
    return goals


def _nested(stopping: StoppingDesign) -> str:
    """Words for one of several combined rules, with its own limits and minimum."""
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

    In a bank of several abilities a curve may fall with one of them; only items whose slopes are
    all 0 are left out there.
    """
    if bank.abilities is None:
        left_out = quarantine(lint(bank))
        mask = np.array([item_id in left_out for item_id in bank.item_ids], dtype=np.bool_)
    else:
        mask = np.asarray(~bank.abilities.items.slopes.any(axis=1))
    mask.flags.writeable = False
    return mask


def implied_preset(document: Mapping[str, Any]) -> Preset:
    """Preset of a design that names none, by its goals, criterion and prediction."""
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
    """Names of all rules of a stopping object, including the rules in its lists."""
    if not isinstance(stopping, Mapping) or depth > MAX_DEPTH:
        return
    for name, value in stopping.items():
        if name in ("any_of", "all_of"):
            for inner in value if isinstance(value, list | tuple) else ():
                yield from _goals_in(inner, depth + 1)
        elif value is not None:
            yield name


def _inherited(
    section: str, given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """What a section takes over from the preset beside the given values.

    An estimator of another method takes over nothing, a test with another goal of precision no
    such goal. Numbers of items move where they contradict the given ones.
    """
    if section == "estimator" and given.get("method", defaults["method"]) != defaults["method"]:
        return {}
    inherited = dict(defaults)
    if section == "stopping":
        if not set(_goals_in(given)).isdisjoint(_PRECISION):
            inherited = {name: inherited[name] for name in inherited if name not in _PRECISION}
        least, most = given.get("min_items"), given.get("max_items")
        if type(most) is int and most < defaults["min_items"]:
            inherited["min_items"] = max(most, 0)  # a negative `most` is to be reported only once
        if type(least) is int and least > defaults["max_items"]:
            inherited["max_items"] = least
    return inherited
