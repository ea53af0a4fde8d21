"""Predicted scores of sessions on versions that have score curves."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cachetools import LRUCache

from app.calibration.multidimensional.score_curves import fit_curves
from app.engine import ItemIndex, Response
from app.engine.inference.diagnostics import inversions, person_fit
from app.engine.prediction.learned_curves import LearnedCurves, ReferencePopulation
from app.records.sessions import Administration, Closing
from app.services.banks.loaded import LoadedVersion
from app.services.container import Services
from app.services.sessions.derived import moved, renumbered
from app.services.sessions.figures import SpareTime, person_fit_of, position_of
from app.services.sessions.plan import SessionPlan
from app.services.sessions.run import SessionRun
from tests.services.sessions import administration, length, played, run_of
from tests.values import not_none

FOR_SCORE = SessionPlan.from_dict(length(40, selection={"criterion": "v_optimal"}, concurrency=3))


@pytest.fixture
async def version(services: Services) -> LoadedVersion:
    """The demo bank, with curves of 60 examinees."""
    plain = await services.versions.load(bank="demo")
    rng = np.random.default_rng(1)
    thetas = rng.normal(size=60)
    chances = plain.bank.expected_score(thetas)
    curves = fit_curves((rng.random(chances.shape) < chances).astype(np.float64))
    return replace(plain, curves=LearnedCurves(curves=curves, n_reference=60), tests=LRUCache(8))


def asked_and_answered(version: LoadedVersion) -> list[Administration]:
    """Run a test of 40 items, three in flight, answered out of order, two without a score."""
    scores = [None if turn in (9, 33) else float(turn % 4 != 0) for turn in range(40)]
    closings = [
        Closing(outcome="error" if score is None else "scored", score=score, attempts=1)
        for score in scores
    ]
    run, stored = played(
        version, FOR_SCORE, closings, lambda steps, turn: steps[-1 if turn % 3 else 0], seed=4
    )
    assert run.state.usage.tokens == 0  # no answer reported any
    return stored


async def test_known_probabilities_are_kept_or_the_model_is_used(version: LoadedVersion) -> None:
    stored = asked_and_answered(version)
    chances = [item.probability for item in stored]
    assert all(chance is not None and 0 < chance <= 1 for chance in chances)
    assert 1.0 in chances
    assert min(chance for chance in chances if chance is not None) < 0.05

    older = [replace(item, probability=None) for item in stored]
    run, known = (
        run_of(version, FOR_SCORE, seed=4, administrations=some) for some in (older, stored)
    )
    accuracy, drawn = (not_none(one.summary(elapsed_s=9.0)["score"]) for one in (run, known))
    assert accuracy["method"] == drawn["method"] == "combined"
    assert accuracy["value"] != drawn["value"]

    assert moved(stored, version, version) == stored
    fewer = version.active.copy()
    fewer[-1] = False
    elsewhere = moved(stored, version, replace(version, active=fewer))
    assert {item.probability for item in elsewhere} == {None}

    some = [administration(step, 0, arrival=nth) for step, nth in ((9, 7), (2, 3), (5, 1))]
    assert [(each.step, each.arrival) for each in renumbered(some)] == [(1, 2), (2, 1), (3, 3)]


async def test_a_test_about_a_tag_places_by_curves_of_the_bank(version: LoadedVersion) -> None:
    learned = not_none(version.curves)
    n = version.bank.n_items
    known = ReferencePopulation(quantiles=(-2.0, 0.0, 2.0), mean=0.0, sd=1.0, n_items=n)
    version = replace(version, curves=replace(learned, population=known))
    run, _ = played(
        version,
        FOR_SCORE,
        [Closing(outcome="scored", score=float(turn % 3 > 0), attempts=1) for turn in range(20)],
        lambda steps, _: steps[0],
        seed=4,
    )
    by_test, of_all, of_tag = (
        position_of(version, run.test, run.state, target)
        for target in (None, {"all": 1.0}, {"choice": 1.0})
    )
    assert not_none(by_test) == of_all
    shown = not_none(run.test.predict(run.state))
    # The score's interval reaches farther to one side, so that of the position does, too.
    assert not_none(of_all)["interval"] == {
        "lo": pytest.approx(known.position(shown.lo)),
        "hi": pytest.approx(known.position(shown.hi)),
        "level": 0.95,
    }
    items = [int(response.item) for response in run.state.responses]
    scores = np.array([response.score for response in run.state.responses])
    curves = learned.curves
    at = curves.locate(np.array(items), scores)
    chances = curves.expected(at)
    left = np.full(n, 1 / n)
    left[items] = 0.0
    score = (scores.sum() + np.delete(chances, items).sum()) / n
    spread = curves.dispersion * (left**2 * chances * (1 - chances)).sum()
    reach = 1.96 * (spread + curves.doubt(at, left, chances)) ** 0.5
    lo, hi = (known.position(end) for end in (score - reach, score + reach))
    assert not_none(of_tag)["position"] == pytest.approx(known.position(score))
    assert not_none(of_tag)["sd"] == pytest.approx((hi - lo) / (2 * 1.96), rel=1e-4)


async def test_person_fit_names_questions_and_allows_for_errors_of_curves(
    version: LoadedVersion,
) -> None:
    responses = [Response(ItemIndex(at), float(at % 3 == 0)) for at in range(20)]
    exact, told = (
        person_fit_of(one, responses, 0.0) for one in (replace(version, curves=None), version)
    )
    about = version.bank, responses, 0.0, 60
    assert told["lz"] == pytest.approx(person_fit(*about).lz) != exact["lz"]
    found = inversions(*about)
    counts = {"observed": round(found.observed, 3), "expected": round(found.expected, 3)}
    assert told["inversions"] == counts
    named = [surprise["item_id"] for surprise in told["surprises"]]
    assert named == [version.key_at(surprise.item) for surprise in found.surprises] != []


def told(run: SessionRun, *, elapsed_s: float) -> Any:
    """Return the predicted score after one more right answer."""
    asked, _ = run.choose(elapsed_s=elapsed_s)
    closed = {one.step: Closing(outcome="scored", score=1.0, attempts=1) for one in asked}
    closed = {step: run.close(step, closing) for step, closing in closed.items()}
    return run.step_forward(closed=closed, asked=(), elapsed_s=elapsed_s).summary["score"]


async def test_each_step_has_a_score_computed_in_spare_time(version: LoadedVersion) -> None:
    now = 0.0

    def clock() -> float:  # each reading advances it by a second
        nonlocal now
        now += 1.0
        return now

    plan = SessionPlan.from_dict(length(40, preset="ability", concurrency=1))
    idle = SpareTime(share=1.0, most_s=1.0, clock=clock)
    run = run_of(version, plan, seed=4, spare=idle)
    scores = [told(run, elapsed_s=0.01 * step) for step in range(12)]
    values = [score["value"] for score in scores if score is not None]  # few answers give no score
    assert len(values) > 6
    assert len(set(values)) == len(values)
    assert values[-1] > values[0]

    busy = SpareTime(share=0.0, most_s=1.0, clock=clock)
    run = run_of(version, plan, seed=4, spare=busy)
    scores = [told(run, elapsed_s=step / 16) for step in range(12)]
    assert None not in scores[4:]  # the first result waits for no spare time
    assert told(run, elapsed_s=2.24) == scores[-1]  # that of the fifth answer, at 0.25 seconds
    assert told(run, elapsed_s=2.25) != scores[-1]
