"""Tests of simulated examinees, as the stored figures from which a report is built."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np

from app.engine import Design, ItemBank, Stop, step_rng
from app.engine.bank import FloatArray
from app.engine.models.base import IntArray
from app.engine.models.multidimensional import Loadings, MultidimensionalModel, Population
from app.engine.prediction.score_model import ScoreModel, Target
from app.engine.prediction.targets import WHOLE_BANK, target_weights
from app.engine.state import Response
from app.records.fields import interval
from app.reports.session.build import Asked, Known, session_report
from app.reports.session.facts import Ended, SessionIdentity, SessionReport
from app.services.sessions.figures import profile_of

NASTY = "<script>alert(\"x\")</script> & 'q'\n{{7*7}}"
OUTCOMES = ("scored", "unparsed", "refused", "error", "truncated")


def known(bank: ItemBank, plan: dict[str, Any] | None = None, **fields: Any) -> Known:
    """Return the knowledge of a bank version; `tags` by item."""
    tags = fields.pop("tags", tuple((f"task-{i % 3}",) for i in range(bank.n_items)))
    targets = fields.get("targets", {})
    test = Design.from_dict(plan or {}).build(bank, tags=tags, targets=targets)
    return Known(bank=bank, tags=tags, test=test, **fields)


def score_model(task: IntArray) -> ScoreModel:
    """Return a score model with a general component and one component per task."""
    n_tasks = int(task.max()) + 1
    general = np.full((1, task.size), 0.25)
    own = np.where(task == np.arange(n_tasks)[:, None], 0.2, 0.0)
    return ScoreModel(
        np.full(task.size, 0.5), np.concatenate([general, own]), np.full(task.size, 0.15)
    )


def several(n_tasks: int = 3) -> Known:
    """Return a bank with a general ability and one ability per task of 15 items."""
    task = np.arange(15 * n_tasks) % n_tasks
    rng = np.random.default_rng(2)
    loadings = (task[:, None] == np.arange(n_tasks)).astype(float)
    items = Loadings(np.full(task.size, 1.2), rng.normal(size=task.size), loadings, nested=True)
    population = Population(np.zeros(n_tasks + 1), np.diag([1.0, *[0.8] * n_tasks]))
    bank = ItemBank.from_abilities(
        MultidimensionalModel(items, population), [f"task-{t}/{i}" for i, t in enumerate(task)]
    )
    tags = tuple((f"task-{t}",) for t in task)
    model = score_model(task)
    targets = {
        name: Target(model, target_weights(bank, {name: 1.0}, tags))
        for name in (WHOLE_BANK, *(f"task-{t}" for t in range(n_tasks)))
    }
    return known(bank, {"selection": {"criterion": "v_optimal"}}, tags=tags, targets=targets)


def taken(known: Known, chances: FloatArray, n: int, *, seed: int = 1) -> list[Asked]:
    """Return the items asked of an examinee with its own probability for each item."""
    rng = np.random.default_rng(seed)
    state = known.test.start()
    asked: list[Asked] = []
    while len(asked) < n and not isinstance(
        step := known.test.ask(state, step_rng(seed, state)), Stop
    ):
        score = float(rng.random() < chances[step.item])
        if known.bank.model.name == "continuous":
            score = float(np.clip(chances[step.item] + rng.normal(0, 0.1), 0, 1))
        state = known.test.tell(state.with_pending(step.item), Response(step.item, score))
        asked.append(
            Asked(
                step=len(asked) + 1,
                position=int(step.item),
                item_id=known.bank.item_ids[step.item],
                tags=tuple(known.tags[step.item]),
                pretest=False,
                arrival=len(asked) + 1,
                outcome="scored",
                score=score,
                theta=state.belief.theta,
                se=state.belief.se,
            )
        )
    return asked


def figures(known: Known, asked: list[Asked], **changes: Any) -> dict[str, Any]:
    """Return the figures that a session of these items stores."""
    scored = [item for item in asked if item.score is not None and not item.pretest]
    state = known.test.replay(
        Response(item.position, item.score or 0.0)  # type: ignore[arg-type]  # positions are indices here
        for item in scored
    )
    estimate, predicted = known.test.estimate(state), known.test.predict(state)
    closed = [item for item in asked if item.outcome is not None and not item.pretest]
    counts = Counter(tag for tags in known.tags for tag in tags)
    version: Any = SimpleNamespace(
        bank=known.bank,
        tags=known.tags,
        tag_counts=counts,
        reference_abilities=known.reference.thetas,
    )
    return {
        "estimate": {
            "theta": estimate.theta,
            "se": estimate.se,
            "interval": interval(estimate.lo, estimate.hi),
            "interval_raw": None,
            "method": estimate.method,
            "at_bound": estimate.at_bound,
        },
        "score": {
            "value": predicted.value,
            "interval": interval(predicted.lo, predicted.hi),
            "interval_raw": predicted.raw and interval(*predicted.raw),
            "method": predicted.method,
        },
        "profile": profile_of(version, known.test, state),
        "progress": {
            "items": len(closed),
            "scored": len(scored),
            "in_flight": sum(item.outcome is None for item in asked),
            "expected_items": None,
        },
        "usage": {
            "calls": len(closed),
            "tokens_in": 40 * len(closed),
            "tokens_out": 9 * len(closed),
            "usd": 0.00012 * len(closed),
            "seconds": 4.2,
            "judge": None,
        },
        "outcomes": {name: sum(item.outcome == name for item in closed) for name in OUTCOMES},
        "pretest": None,
        **changes,
    }


def identity(known: Known, **fields: Any) -> SessionIdentity:
    values: dict[str, Any] = {
        "id": "ses_01jd0000000000000000000000",
        "examinee": "my-model",
        "mode": "live",
        "status": "completed",
        "bank": "arc",
        "bank_version": 2,
        "bank_version_id": "bkv_01jd0000000000000000000000",
        "response_model": "2pl",
        "scale": "s",
        "provisional": False,
        "n_items": known.bank.n_items,
        "design": {"selection": {"criterion": "maximum_information"}, "stopping": {"se": 0.3}},
        "seed": 1,
        "created_at": "2026-11-22T01:00:00+00:00",
    }
    return SessionIdentity(**{**values, **fields})


def report(
    known: Known,
    asked: list[Asked],
    *,
    ended: Ended | None = None,
    changes: dict[str, Any] | None = None,
    **fields: Any,
) -> SessionReport:
    """Return the report of a session of these items."""
    return session_report(
        identity(known, **fields),
        figures(known, asked, **(changes or {})),
        asked,
        ended
        or Ended(stop_reason="se_target", stop_detail="SE 0.29 <= 0.3.", precision_reached=True),
        known,
    )
