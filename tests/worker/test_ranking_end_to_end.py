"""Four models over HTTP, a judge with occasional bad JSON, and a killed worker."""

import signal
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from fastapi import FastAPI, Request, Response
from starlette.middleware.base import RequestResponseEndpoint

from app.demo.bank import DemoItem, demo_bank
from app.demo.model_server import create_model_server
from app.engine.bank import ItemBank
from app.engine.ranking.rules import RankingBudget, RankingRules
from app.exchange.item_record import ItemRecord
from app.items import ScorerSpec
from app.records.banks import BankSpec
from app.services.banks.imports import BankImport
from app.services.container import Services
from app.settings import Settings
from tests.servers import serving
from tests.services.judged import marker
from tests.services.rankings import contest, ranked
from tests.services.sessions import figures_of
from tests.waiting import waiting
from tests.worker.test_live_sessions import model_at
from tests.worker.test_recovery import worker_process

#: Far enough apart for every pair to be decided long before the budget ends, in any order.
THETAS = {"weakest": -3.3, "weak": -1.1, "strong": 1.1, "strongest": 3.3}


@pytest.fixture
def calls() -> Counter[str]:
    """Record requests by path."""
    return Counter()


@pytest.fixture
def url(calls: Counter[str]) -> Iterator[str]:
    app = FastAPI()

    @app.middleware("http")
    async def count(request: Request, call_next: RequestResponseEndpoint) -> Response:
        calls[request.url.path.split("/")[1]] += 1
        return await call_next(request)

    for name, theta in THETAS.items():
        app.mount(f"/{name}", create_model_server(theta=theta, seed=3, latency_s=0.02))
    app.mount("/judge", create_model_server(theta=0.0, seed=1, judge_faults=0.2))
    with serving(app) as address:
        yield address


async def judged_questions(services: Services) -> None:
    """Create the demo bank's open questions, scored by a judge with one call per answer."""
    asked: list[DemoItem] = [item for item in demo_bank().items if not item.content.choices]
    parameters = ItemBank.from_difficulties(
        a=np.array([item.a for item in asked]),
        b=np.array([item.b for item in asked]),
        item_ids=[item.key for item in asked],
    )
    await services.banks.import_bank(
        BankSpec(
            name="judged", default_scorer=ScorerSpec("judge", {"judges": ["judge"], "attempts": 1})
        ),
        BankImport(
            items=[ItemRecord(key=item.key, content=item.content) for item in asked],
            parameters=parameters,
        ),
    )


@pytest.mark.slow
async def test_four_models_are_ranked_though_a_worker_is_killed_and_the_judge_fails_at_times(
    services: Services, settings: Settings, url: str, calls: Counter[str]
) -> None:
    await marker(services, f"{url}/judge/v1")
    await judged_questions(services)
    created = await services.rankings.create(
        contest(
            bank="judged",
            endpoints=[model_at(f"{url}/{name}/v1", model=name) for name in THETAS],
            rules=RankingRules(min_items=20, max_items=60, futility=0.0),
            budget=RankingBudget(items=240),
            # Five unparseable judgements in a row happen at this rate and must end no session.
            asking={"concurrency": 2, "failures": {"max_consecutive": 20}},
        )
    )
    with worker_process(settings) as process:
        async with waiting() as pause:
            # The warm-up alone takes more: an event reports at most eight answers.
            while (await services.rankings.get(created.id)).event_seq < 8:
                await pause()
        process.send_signal(signal.SIGKILL)
    with worker_process(settings):
        ended = await ranked(services, created.id)

    assert ended.status == "completed", ended.failure
    order = figures_of(ended)["order"]
    assert [entry["model"] for entry in order] == ["strongest", "strong", "weak", "weakest"]
    assert [(entry["rank_lo"], entry["rank_hi"]) for entry in order] == [
        (rank, rank) for rank in (1, 2, 3, 4)
    ]
    assert ended.stop_reason == "decision_reached"
    takeovers = ended.lease_epoch - 1
    assert takeovers >= 1
    missing = 0
    for entry in figures_of(ended)["order"]:
        rows = await services.sessions.responses(entry["session_id"])
        closings = [row.closing for row in rows]
        n_items = len(rows)
        # Nothing is lost or doubled: each step and each arrival exists once.
        assert [row.step for row in rows] == list(range(1, n_items + 1))
        assert sorted(row.arrival or 0 for row in rows) == list(range(1, n_items + 1))
        assert len({row.item_key for row in rows}) == n_items == entry["items"]
        unread = [c for c in closings if c is not None and c.outcome == "error"]
        assert {c.error_code for c in unread} <= {"judge_unreadable"}
        assert all(c.score is None and c.answer_text for c in unread)
        assert entry["scored"] == n_items - len(unread)
        missing += len(unread)
        # At most the calls in flight repeat after the kill, and whenever a lease of one second
        # expired because the machine was too busy for its worker.
        assert n_items <= calls[entry["model"]] <= n_items + 2 * takeovers
    total = figures_of(ended)["progress"]["items"]
    assert 0.05 * total < missing < 0.4 * total
    assert set(calls) == {*THETAS, "judge"}
