"""Continuous scores, from a response set to a version and sessions on it, all with real parts."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI, Request

from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import ItemBank
from app.engine.responses import ResponseTable
from app.engine.simulation.simulate import draw_scores
from app.exchange.item_record import ItemRecord
from app.exchange.response_files import write_csv
from app.items import ItemContent, ScorerSpec
from app.records.banks import BankSpec, BankVersion
from app.records.endpoints import EndpointSettings
from app.services.banks.imports import BankImport
from app.services.calibrations.publication import Publication
from app.services.container import Services
from app.services.endpoints.specs import EndpointSpec
from app.services.sessions.manual import ManualAnswer
from tests.servers import serving
from tests.services.calibrations import ended, imported
from tests.services.sessions import figures_of, spec, until

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


async def published(services: Services, name: str = "graded") -> BankVersion:
    """Publish a version calibrated from a response set of continuous scores."""
    thetas = RNG.normal(size=150)
    scores = np.array(list(draw_scores(TRUE, thetas, RNG)))
    table = ResponseTable(tuple(f"m{i}" for i in range(150)), TRUE.item_ids, scores)
    await imported(services, b"".join(write_csv(table)).decode())
    made = await services.calibrations.create(
        "answers", CalibrationPlan(model="continuous", report_card=False)
    )
    record = await ended(services, made.id, "completed")
    assert record.result is not None
    assert record.result["converged"]
    assert record.result["fit"]["variance_r2"] > 0.8
    return await services.calibrations.publish(record.id, Publication(bank=name))


async def test_scores_become_a_version_and_a_manual_session_an_interval(working: Services) -> None:
    version = await published(working)
    assert version.response_model == "continuous"
    loaded = await working.versions.load(version.id)
    assert loaded.bank.model.name == "continuous"
    assert np.corrcoef(loaded.bank.k, TRUE.k)[0, 1] > 0.8

    (scores,) = draw_scores(TRUE, [THETA], np.random.default_rng(2))
    record = await working.sessions.create(
        spec(mode="manual", endpoint=None, bank=None, bank_version_id=version.id, plan=PLAN)
    )
    while record.status == "awaiting_response":
        awaited = await working.manual_sessions.next_item(record.id)
        score = float(scores[TRUE.index_of(awaited.item.key)])
        answer = ManualAnswer(step_token=awaited.step_token, score=score)
        record = (await working.manual_sessions.answer(record.id, answer)).record

    assert (record.status, record.stop_reason) == ("completed", "max_items")
    estimate, score = figures_of(record)["estimate"], figures_of(record)["score"]
    assert estimate["se"] < 0.2
    assert abs(estimate["theta"] - THETA) < 4 * estimate["se"]
    assert score["interval"]["lo"] <= score["value"] <= score["interval"]["hi"]
    assert score["value"] == pytest.approx(scores.mean(), abs=0.08)


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
    created = await working.sessions.create(spec(bank="told", endpoint=endpoint, plan=plan))
    record = await until(working, created.id)

    assert record.status == "completed", record.failure
    assert figures_of(record)["outcomes"]["scored"] == 15
    rows = await working.sessions.responses(created.id)
    marks = [row.closing.score for row in rows if row.closing]
    assert any(mark is not None and 0 < mark < 1 for mark in marks)
    estimate = figures_of(record)["estimate"]
    assert abs(estimate["theta"] - THETA) < 4 * max(estimate["se"], 0.1)
    # A fraction counts as one answer where items are binary, and as 1 / k where they are graded.
    assert estimate["se"] < 0.2 if kind == "continuous" else estimate["se"] > 0.3
