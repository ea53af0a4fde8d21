"""Continuous scores, from a response set to a version and sessions on it, all with real parts."""

from collections.abc import Callable

import numpy as np
import pytest

from app.engine.bank import ItemBank
from app.engine.simulation.simulate import draw_scores
from app.items import ScorerSpec
from app.records.banks import BankSpec
from app.services.container import Services
from tests.servers import serving
from tests.services.banks import make_bank, question
from tests.services.sessions import figures_of, length
from tests.worker.models import Model
from tests.worker.sessions import model_at, run_session

pytestmark = pytest.mark.usefixtures("fits_here")

N_ITEMS, THETA, WORDS = 40, 0.8, 20
RNG = np.random.default_rng(1)
TRUE = ItemBank.from_difficulties(
    a=RNG.lognormal(0.0, 0.2, N_ITEMS),
    b=RNG.normal(0.0, 1.0, N_ITEMS),
    k=RNG.uniform(0.04, 0.15, N_ITEMS),
    item_ids=[f"q{number}" for number in range(N_ITEMS)],
)


def words(key: str) -> list[str]:
    return [f"{key}w{n}" for n in range(WORDS)]


def partly_right() -> Callable[[str], str]:
    """Return a model that says as many words of a target as its ability allows."""
    (shares,) = draw_scores(TRUE, [THETA], np.random.default_rng(3))

    def say(key: str) -> str:
        right = round(WORDS * shares[TRUE.index_of(key)])
        return " ".join([*words(key)[:right], *["hm"] * (WORDS - right)])

    return say


@pytest.mark.parametrize("kind", ["continuous", "logistic"])
async def test_answers_marked_in_parts_measure_a_live_model_in_either_kind_of_bank(
    working: Services, kind: str
) -> None:
    logistic = ItemBank.from_difficulties(a=TRUE.a, b=TRUE.b, item_ids=TRUE.item_ids)
    await make_bank(
        working,
        BankSpec(name="told", default_scorer=ScorerSpec("token_f1", {})),
        TRUE if kind == "continuous" else logistic,
        [question(key, " ".join(words(key))) for key in TRUE.item_ids],
    )
    with serving(Model(partly_right()).app) as url:
        record = await run_session(
            working, bank="told", endpoint=model_at(f"{url}/v1"), plan=length(15, concurrency=3)
        )

    assert record.status == "completed", record.failure
    assert figures_of(record)["outcomes"]["scored"] == 15
    rows = await working.sessions.responses(record.id)
    marks = [row.closing.score for row in rows if row.closing]
    assert any(mark is not None and 0 < mark < 1 for mark in marks)
    estimate = figures_of(record)["estimate"]
    assert abs(estimate["theta"] - THETA) < 4 * max(estimate["se"], 0.1)
    # A fraction counts as one answer where items are binary, and as 1 / k where they are graded.
    assert estimate["se"] < 0.2 if kind == "continuous" else estimate["se"] > 0.3
