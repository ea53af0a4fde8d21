"""Continuous scores, from a response set to a version and sessions on it, all with real parts."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI, Request

from app.engine.bank import ItemBank
from app.engine.simulation.simulate import draw_scores
from app.exchange.item_record import ItemRecord
from app.items import ItemContent, ScorerSpec
from app.records.banks import BankSpec
from app.records.endpoints import EndpointSettings
from app.services.banks.imports import BankImport
from app.services.container import Services
from app.services.endpoints.specs import EndpointSpec
from tests.servers import serving
from tests.services.sessions import figures_of
from tests.worker.sessions import run_session

pytestmark = pytest.mark.usefixtures("fits_here")

N_ITEMS, THETA, WORDS = 40, 0.8, 20
RNG = np.random.default_rng(1)
TRUE = ItemBank.from_difficulties(
    a=RNG.lognormal(0.0, 0.2, N_ITEMS),
    b=RNG.normal(0.0, 1.0, N_ITEMS),
    k=RNG.uniform(0.04, 0.15, N_ITEMS),
    item_ids=[f"q{number}" for number in range(N_ITEMS)],
)
PLAN: dict[str, Any] = {"stopping": {"se": None, "min_items": 1, "max_items": 15}}


@pytest.fixture
def model_url() -> Iterator[str]:
    """Serve a model that says as many words of a target as its ability allows."""
    app = FastAPI()
    (shares,) = draw_scores(TRUE, [THETA], np.random.default_rng(3))

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> dict[str, Any]:
        prompt = (await request.json())["messages"][-1]["content"]
        found = re.search(r"q\d+", prompt)
        assert found is not None
        right = round(WORDS * shares[TRUE.index_of(found[0])])
        words = [f"{found[0]}w{n}" for n in range(right)] + ["hm"] * (WORDS - right)
        message = {"role": "assistant", "content": " ".join(words)}
        return {
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": WORDS},
        }

    with serving(app) as url:
        yield url


def questions(*keys: str) -> list[ItemRecord]:
    return [
        ItemRecord(
            key=key,
            content=ItemContent(
                prompt=f"Describe {key}.", target=(" ".join(f"{key}w{n}" for n in range(WORDS)),)
            ),
        )
        for key in keys
    ]


@pytest.mark.parametrize("kind", ["continuous", "logistic"])
async def test_answers_marked_in_parts_measure_a_live_model_in_either_kind_of_bank(
    working: Services, model_url: str, kind: str
) -> None:
    logistic = ItemBank.from_difficulties(a=TRUE.a, b=TRUE.b, item_ids=TRUE.item_ids)
    await working.banks.import_bank(
        BankSpec(name="told", default_scorer=ScorerSpec("token_f1", {})),
        BankImport(
            items=questions(*TRUE.item_ids), parameters=TRUE if kind == "continuous" else logistic
        ),
    )
    endpoint = EndpointSpec(
        settings=EndpointSettings(kind="openai_chat", model="m", base_url=f"{model_url}/v1")
    )
    plan = {**PLAN, "concurrency": 3}
    record = await run_session(working, bank="told", endpoint=endpoint, plan=plan)

    assert record.status == "completed", record.failure
    assert figures_of(record)["outcomes"]["scored"] == 15
    rows = await working.sessions.responses(record.id)
    marks = [row.closing.score for row in rows if row.closing]
    assert any(mark is not None and 0 < mark < 1 for mark in marks)
    estimate = figures_of(record)["estimate"]
    assert abs(estimate["theta"] - THETA) < 4 * max(estimate["se"], 0.1)
    # A fraction counts as one answer where items are binary, and as 1 / k where they are graded.
    assert estimate["se"] < 0.2 if kind == "continuous" else estimate["se"] > 0.3
