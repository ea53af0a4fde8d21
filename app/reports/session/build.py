"""From a stored test and what its bank knows to the figures of its page."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from app.engine import AdaptiveTest, ItemBank, ItemIndex, Response
from app.engine.bank import FloatArray
from app.engine.inference import contrasts
from app.engine.inference.contrasts import Contrast
from app.engine.inference.join import JoinCheck
from app.engine.prediction.learned_curves import share_below
from app.engine.prediction.p_irt import BY_THETA, SCORE_MODEL
from app.engine.prediction.score_estimate import ScoreEstimator
from app.engine.prediction.score_model import BlendedScore, ScorePredictor, Target
from app.engine.prediction.targets import WHOLE_BANK
from app.engine.state import Draw
from app.records.fields import Interval, convert, ends
from app.reports.figures import Headline, as_exact_as, begins_alike
from app.reports.formats import short
from app.reports.reference_strip import Reference, strip_position
from app.reports.session.facts import (
    Ability,
    AskedItem,
    Ended,
    Score,
    SessionIdentity,
    SessionReport,
    Share,
    TaskResult,
    TracePoint,
)
from app.reports.session.words import cautions_of

#: Items in the report; the rest is counted. The page shows fewer.
MAX_ITEMS = 5_000
#: Tasks of the page; the rest is counted.
MAX_TASKS = 50
_POINTS = 60  # of the trace, at most
_MAX_TRACED_ITEMS = 10_000  # of a bank whose score is predicted again after each of them
_NAMED = 3  # tasks that tell what an ability is about
_SHORT = 160  # characters of a question or an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the bank version knows.

    Attributes:
        bank: Parameters of the calibrated items.
        tags: Of each calibrated item.
        targets: Scores that a score model predicts, by tag.
        reference: The reference models.
        test: The test as it was designed, for what was known after each answer.
        join: Whether parameters and questions belong together, by all answers to the version so
            far.
    """

    bank: ItemBank
    tags: Sequence[Collection[str]]
    targets: Mapping[str, Target] = field(default_factory=dict)
    reference: Reference = field(default_factory=Reference)
    test: AdaptiveTest
    join: JoinCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One stored item of the test.

    Attributes:
        position: In the version; in pretest behind those of the bank.
        arrival: Order in which answers came; None while it is awaited.
        probability: With which it was sampled; None where nobody noted it.
    """

    step: int
    position: int
    item_id: str
    tags: tuple[str, ...]
    pretest: bool
    arrival: int | None
    probability: float | None = None
    outcome: str | None = None
    score: float | None = None
    question: str | None = None
    target: str | None = None
    answer: str | None = None
    reason: str | None = None
    theta: float | None = None
    se: float | None = None


def session_report(
    identity: SessionIdentity,
    figures: Mapping[str, Any],
    asked: Sequence[Asked],
    ended: Ended,
    known: Known,
    headline: Headline | None = None,
) -> SessionReport:
    """The report of a test, by its stored figures and its items in order of asking."""
    scored = sorted(
        (
            item
            for item in asked
            if item.score is not None and item.arrival is not None and not item.pretest
        ),
        key=lambda item: item.arrival or 0,
    )
    positions = [item.position for item in scored]
    scores = np.array([item.score for item in scored], dtype=np.float64)
    profile = figures.get("profile")
    score = _score(identity, figures, known) if scored else None
    tasks = (
        _predicted_tasks(profile["tasks"], positions, scores, known)
        if profile
        else _answered_tasks(figures["estimate"]["theta"], positions, scores, known)
    )
    named = {task.tag for task in tasks}
    n_tasks = len(known.test.tasks) - 1 if profile else len(tasks)
    return convert(
        SessionReport,
        ended,
        identity=identity,
        score=score,
        estimate=figures["estimate"],
        abilities=_abilities(profile, known),
        tasks=tuple(tasks[:MAX_TASKS]),
        n_tasks=max(n_tasks, len(tasks)),
        tasks_overlap=any(len(named.intersection(tags)) > 1 for tags in known.tags),
        trace=() if figures["estimate"].get("reason") else _trace(asked, known, figures),
        figures={
            name: figures.get(name)
            for name in ("progress", "usage", "outcomes", "pretest", "person_fit", "rescore")
        },
        warnings=cautions_of(identity, figures, score, ended, known.join, headline),
        items=_items(asked, figures, known),
        n_asked=len(asked),
        join=known.join,
        headline=headline,
        reference=known.reference,
        standing=None if score is None else strip_position(figures["estimate"], known.reference),
    )


def _score(identity: SessionIdentity, figures: Mapping[str, Any], known: Known) -> Score | None:
    predicted = figures.get("score")
    if predicted is None:
        return None
    of = predicted.get("target") or (identity.design.get("selection") or {}).get("target") or {}
    of = {} if set(of) == {WHOLE_BANK} else of
    known_to, random_items = predicted["interval"], predicted.get("equivalent_random_items")
    return Score(
        value=predicted["value"],
        interval=known_to,
        method=predicted["method"],
        exactness=as_exact_as(random_items, is_known=known_to is None),
        equivalent_random_items=random_items,
        of=of,
        checked=bool(predicted.get("interval_raw")) or predicted["method"] not in BY_THETA,
        below=None if identity.provisional else _below(figures, known),
    )


def _below(figures: Mapping[str, Any], known: Known) -> Share | None:
    """The share of reference models below: by a score model, by the position, or by theta."""
    predicted, estimate, predictor = figures["score"], figures["estimate"], known.test.predictor
    reference = known.reference
    if isinstance(predictor, ScorePredictor) and predicted["method"] == SCORE_MODEL:
        target = predictor.target
        mean = float(target.weights @ target.model.mean)
        if not target.variance > 0.0:
            return None
        models = NormalDist(mean, math.sqrt(target.variance))
        lo, hi = ends(predicted["interval"])
        return _share(*map(models.cdf, (predicted["value"], lo, hi)))
    if (estimate.get("extrapolation") or {}).get("sd") is None:  # older sessions have none
        reference = replace(reference, population=())
    if (place := strip_position(estimate, reference)) is None:
        return None  # cautions say where nobody can tell
    quantiles = reference.quantiles
    return _share(*(share_below(at, quantiles) for at in (place.value, place.lo, place.hi)))


def _share(value: float, lo: float, hi: float) -> Share:
    return Share(value=value, interval=Interval(lo=lo, hi=hi, level=0.95))


def _abilities(profile: Mapping[str, Any] | None, known: Known) -> tuple[Ability, ...]:
    if profile is None:
        return ()
    about = _about(known)
    found = []
    for ability in profile["abilities"]:
        tasks, against = about.get(ability["name"], ((), ()))
        found.append(Ability(**ability, tasks=tasks, against=against))
    return tuple(found)


def _about(known: Known) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Which tasks rise and fall with each dimension, by the mean slope of their items."""
    abilities = known.bank.abilities
    members = _members(known)
    if abilities is None or len(members) < 2:
        return {}
    items = abilities.items
    found: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for k in range(int(items.nested), items.n_abilities):
        slopes = {
            tag: float(items.slopes[positions, k].mean()) for tag, positions in members.items()
        }
        most = max(map(abs, slopes.values()))
        ordered = sorted(slopes, key=lambda tag: -abs(slopes[tag]))
        clear = [tag for tag in ordered if 2 * abs(slopes[tag]) >= most > 0.0]
        found[items.names[k]] = (
            tuple(tag for tag in clear if slopes[tag] > 0)[:_NAMED],
            tuple(tag for tag in clear if slopes[tag] < 0)[:_NAMED],
        )
    return found


#: Predictors that learned from records what models that are as good overall score on a task.
_FROM_RECORDS = (ScorePredictor, ScoreEstimator, BlendedScore)


def _members(known: Known) -> dict[str, list[int]]:
    """Positions of the items of each tag; what all items carry is no task."""
    found: dict[str, list[int]] = {}
    for position, tags in enumerate(known.tags):
        for tag in tags:
            found.setdefault(tag, []).append(position)
    return {
        tag: positions
        for tag, positions in found.items()
        if len(positions) < known.bank.n_items and tag != WHOLE_BANK
    }


def _predicted_tasks(
    tasks: Sequence[Mapping[str, Any]], items: Sequence[int], scores: FloatArray, known: Known
) -> list[TaskResult]:
    """Tasks with predicted scores, beside those of models with the same overall score."""
    whole, members = known.targets.get(WHOLE_BANK), _members(known)
    results = []
    for task in tasks:
        tag, contrast = task["tag"], None
        if whole is not None and items and isinstance(known.test.tasks.get(tag), _FROM_RECORDS):
            contrast = contrasts.of_scores(
                known.targets[tag], whole, items, scores, among=len(tasks)
            )
        mine = np.isin(items, members.get(tag, []))
        results.append(
            TaskResult(
                **task,
                observed=float(scores[mine].mean()) if mine.any() else None,
                typical=None
                if contrast is None
                else min(max(task["value"] - contrast.value, 0.0), 1.0),
                standing=_strength(contrast),
            )
        )
    return sorted(results, key=lambda task: -task.n_items)


def _answered_tasks(
    theta: float | None, items: Sequence[int], scores: FloatArray, known: Known
) -> list[TaskResult]:
    """Tasks of a bank of one ability: how their answers were, and how they were to be expected."""
    places: dict[str, list[int]] = {}
    for place, position in enumerate(items):
        for tag in known.tags[position]:
            places.setdefault(tag, []).append(place)
    members = _members(known)
    places = {tag: at for tag, at in places.items() if tag in members}
    if theta is None or len(places) < 2:
        return []
    results = []
    for tag, at in places.items():
        mine = [items[place] for place in at]
        contrast = contrasts.of_answers(known.bank, theta, mine, scores[at], among=len(places))
        observed = float(scores[at].mean())
        results.append(
            TaskResult(
                tag=tag,
                n_items=len(members[tag]),
                n_asked=len(at),
                observed=observed,
                typical=observed - contrast.value,
                standing=_strength(contrast),
            )
        )
    return sorted(results, key=lambda task: (-task.n_asked, task.tag))


def _strength(contrast: Contrast | None) -> str | None:
    if contrast is None:
        return None
    return {1: "stronger", -1: "weaker"}.get(contrast.sign)


def _trace(
    asked: Sequence[Asked], known: Known, figures: Mapping[str, Any]
) -> tuple[TracePoint, ...]:
    """What was known after each marked answer, or after some of very many, and at the end."""
    test, points = known.test, []
    predicts = known.bank.n_items <= _MAX_TRACED_ITEMS
    closed = sorted(
        (item for item in asked if item.arrival is not None and not item.pretest),
        key=lambda item: item.arrival or 0,
    )
    marked = [place for place, item in enumerate(closed, 1) if item.score is not None]
    if marked:  # what had no mark behind the last answer belongs to the end
        marked[-1] = len(closed)
    looks = np.array([0, *marked])
    chosen = np.unique(np.linspace(0, len(marked), _POINTS).round().astype(int))
    shown = set(looks[chosen].tolist())
    state = test.start()
    for place in range(len(closed) + 1):
        if place:
            one = closed[place - 1]
            item, mark = ItemIndex(one.position), one.score
            # Here items come in order of arrival; what was sampled goes by that of asking.
            draw = Draw(one.step, one.probability or 1.0)
            state = state.with_pending(item, draw.probability)
            state = (
                state.with_unscored(item)
                if mark is None
                else test.tell(state, Response(item, mark, draw=draw))
            )
        if place not in shown:
            continue
        answers = state.n_scored
        estimate = test.estimate(state)
        if not all(map(math.isfinite, (estimate.theta, estimate.lo, estimate.hi))):
            continue
        score = test.predict(state) if predicts else None
        points.append(
            TracePoint(
                answers=answers,
                theta=estimate.theta,
                interval=Interval(lo=estimate.lo, hi=estimate.hi, level=0.95),
                score=None if score is None else score.value,
                score_interval=None
                if score is None
                else Interval(lo=score.lo, hi=score.hi, level=0.95),
            )
        )
    # The end is the stored result: it allows for missing scores, and older rules may have made it.
    estimate, predicted = figures["estimate"], figures.get("score")
    if points and None not in ends(estimate["interval"]):
        points[-1] = replace(points[-1], theta=estimate["theta"], interval=estimate["interval"])
        if predicts and predicted and predicted["interval"] is not None:
            told = {"score": predicted["value"], "score_interval": predicted["interval"]}
            points[-1] = replace(points[-1], **told)
    return tuple(points)


def _items(
    asked: Sequence[Asked], figures: Mapping[str, Any], known: Known
) -> tuple[AskedItem, ...]:
    shown = asked[:MAX_ITEMS]
    told = figures["estimate"].get("reason") is None
    positions = [item.position for item in shown if not item.pretest]
    expected = dict(zip(positions, expected_scores(positions, figures, known.bank), strict=True))
    begins = begins_alike([item.question for item in shown if item.question])
    return tuple(
        convert(
            AskedItem,
            item,
            question=item.question and short(item.question[begins:], _SHORT),
            expected=expected.get(item.position),
            target=item.target and short(item.target, _SHORT),
            answer=item.answer and short(item.answer, _SHORT),
            reason=item.reason and short(item.reason, _SHORT),
            theta=item.theta if told else None,
            se=item.se if told else None,
        )
        for item in shown
    )


def expected_scores(
    positions: Sequence[int], figures: Mapping[str, Any], bank: ItemBank
) -> list[float | None]:
    """Mean scores on these items of models of the abilities that a session estimated."""
    profile, abilities = figures.get("profile"), bank.abilities
    if profile and profile["abilities"] and abilities is not None:
        at = np.array([ability["value"] for ability in profile["abilities"]])
        several: list[float | None] = abilities.items.expected_score(at)[list(positions)].tolist()
        return several
    theta = figures["estimate"]["theta"]
    if theta is None or not positions:
        return [None] * len(positions)
    expected: list[float | None] = bank.expected_score(theta, positions).tolist()
    return expected
