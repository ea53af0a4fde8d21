"""Several abilities over real HTTP: calibrated, published, measured on servers of two profiles."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi import FastAPI
from scipy.special import bdtr
from starlette.routing import Mount

from app.cli.servers.server import serving as serving_sextant
from app.demo.bank import DemoItem, item_bank
from app.demo.model_server import create_model_server
from app.demo.scripted_model import ScriptedModel
from app.engine.models.multidimensional import estimate_profile
from app.engine.responses import ResponseTable
from app.exchange.matrices import write_csv
from app.items import ItemContent, ScorerSpec
from app.records.api_keys import Scope
from app.services.container import Services
from app.settings import Settings
from tests.servers import serving
from tests.waiting import waiting

pytestmark = pytest.mark.usefixtures("fits_here")

TASKS = ("law", "maths")
STRONG, WEAK = 1.0, -1.0
SEEDS = range(5)
N_MODELS = 250
RNG = np.random.default_rng(12)
ITEMS = tuple(
    DemoItem(
        key=f"{task}/{number:02}",
        content=ItemContent(prompt=f"What is the word for {task}-{number:02}?", target=("yes",)),
        scorer=ScorerSpec("exact"),
        tags=(task,),
        wrong_answers=("no",),
        expected_tokens_in=10,
        expected_tokens_out=1,
        a=float(RNG.uniform(1.0, 2.0)),
        b=float(RNG.normal()),
        c=0.0,
        d=1.0,
    )
    for task in TASKS
    for number in range(30)
)
STOPPING = {"se": None, "min_items": 10, "max_items": 40, "score_margin": 0.085}


@dataclass(frozen=True, slots=True)
class Api:
    """A Sextant server, over HTTP."""

    http: httpx2.AsyncClient
    services: Services

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.http.post(path, json=body)
        assert answer.is_success, answer.text
        document: dict[str, Any] = answer.json()
        return document

    async def ended(self, path: str) -> dict[str, Any]:
        """The resource once its work is completed."""
        async with waiting(240) as pause:
            while True:
                found: dict[str, Any] = (await self.http.get(path)).json()
                if found["status"] in ("completed", "failed", "cancelled"):
                    assert found["status"] == "completed", found["failure"]
                    return found
                await pause()


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[Api]:
    own = settings.model_copy(update={"host": "127.0.0.1", "port": 0, "log_level": "warning"})
    async with serving_sextant(own) as local:
        _, secret = await local.services.api_keys.create(name="test", scopes=[Scope.ADMIN])
        headers = {"Authorization": f"Bearer {secret}"}
        async with httpx2.AsyncClient(
            base_url=f"{local.base_url}/v1", headers=headers, timeout=60, trust_env=False
        ) as http:
            yield Api(http, local.services)


def skills(good: str) -> dict[str, float]:
    return {task: STRONG if task == good else WEAK for task in TASKS}


@pytest.fixture(scope="module")
def model_urls() -> Iterator[dict[str, str]]:
    """A server for each profile; `/SEED/v1` on it is a model of that profile."""
    with ExitStack() as stack:
        yield {
            good: stack.enter_context(
                serving(
                    FastAPI(
                        routes=[
                            Mount(
                                f"/{seed}",
                                create_model_server(
                                    theta=0.0, seed=seed, items=ITEMS, skills=skills(good)
                                ),
                            )
                            for seed in SEEDS
                        ]
                    )
                )
            )
            for good in TASKS
        }


def recorded() -> str:
    """Answers of models with a general ability and one beside it for each task, as a table."""
    rng = np.random.default_rng(4)
    bank = item_bank(ITEMS, scale="true")
    task = np.array([TASKS.index(item.tags[0]) for item in ITEMS])
    theta = 0.8 * rng.normal(size=(N_MODELS, 1)) + 0.8 * rng.normal(size=(N_MODELS, 2))
    chance = bank.model.expected_score(bank.parameters, theta[:, task])
    scores = (rng.random(chance.shape) < chance).astype(float)
    table = ResponseTable(tuple(f"m{i}" for i in range(N_MODELS)), bank.item_ids, scores)
    return b"".join(write_csv(table)).decode()


async def published(api: Api) -> str:
    """Id of a version of the bank `tasks`, calibrated nested."""
    await api.post("/response-sets", {"name": "answers"})
    files = [{"name": "scores.csv", "content": recorded()}]
    await api.post("/response-sets/answers/imports", {"files": files})
    await api.post("/banks", {"name": "tasks"})
    lines = [
        json.dumps(
            {
                "key": item.key,
                "prompt": item.content.prompt,
                "target": "yes",
                "tags": list(item.tags),
            }
        )
        for item in ITEMS
    ]
    stored = await api.http.post(
        "/banks/tasks/items:batch",
        content="\n".join(lines),
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert stored.is_success, stored.text
    made = await api.post(
        "/calibrations",
        {"response_set": "answers", "model": "nested", "dimensions": 2, "report_card": False},
    )
    await api.ended(f"/calibrations/{made['id']}")
    version = await api.post(f"/calibrations/{made['id']}:publish", {"bank": "tasks"})
    return str(version["id"])


def truth(good: str, seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """What the model answers to every item."""
    model = ScriptedModel(theta=0.0, seed=seed, items=ITEMS, skills=skills(good))
    return np.array([float(model.right[item.key]) for item in ITEMS])


@pytest.mark.slow
async def test_profiles_are_recovered_within_their_intervals_and_told_in_words(
    api: Api, model_urls: dict[str, str]
) -> None:
    version_id = await published(api)
    loaded = await api.services.versions.load(version_id)
    abilities = loaded.bank.abilities
    assert abilities is not None
    order = [loaded.bank.item_ids.index(item.key) for item in ITEMS]

    async def measure(good: str, seed: int) -> dict[str, Any]:
        created = await api.post(
            "/sessions",
            {
                "bank_version_id": version_id,
                "endpoint": {
                    "kind": "openai_chat",
                    "base_url": f"{model_urls[good]}/{seed}/v1",
                    "model": f"good-at-{good}",
                },
                "selection": {"criterion": "v_optimal"},
                "stopping": STOPPING,
                "seed": seed,
            },
        )
        await api.ended(f"/sessions/{created['id']}")
        report = (await api.http.get(f"/sessions/{created['id']}/report")).json()
        page = await api.http.get(
            f"/sessions/{created['id']}/report", headers={"Accept": "text/html"}
        )
        return {**report, "page": page.text}

    runs = [(good, seed) for good in TASKS for seed in SEEDS]
    reports = await asyncio.gather(*(measure(*run) for run in runs))

    held: dict[str, list[bool]] = {}
    apart, told = 0, 0
    for (good, seed), report in zip(runs, reports, strict=True):
        right = truth(good, seed)
        scores = {
            "all": right.mean(),
            **{task: right[[item.tags == (task,) for item in ITEMS]].mean() for task in TASKS},
        }
        whole = estimate_profile(abilities.items, abilities.population, np.array(order), right)
        said = {"all": report["score"], **{task["tag"]: task for task in report["tasks"]}}
        for name, score in scores.items():
            held.setdefault(name, []).append(said[name]["lo"] <= score <= said[name]["hi"])
        for ability, value in zip(report["abilities"], whole.mean.tolist(), strict=True):
            inside = ability["lo"] <= value <= ability["hi"]
            held.setdefault(ability["name"], []).append(inside)
        bad = TASKS[1 - TASKS.index(good)]
        apart += said[good]["lo"] > said[bad]["hi"]
        standing = {task["tag"]: task["standing"] for task in report["tasks"]}
        assert standing[good] in ("stronger", None)
        assert standing[bad] in ("weaker", None)
        told += standing == {good: "stronger", bad: "weaker"}
        sentence = f"stronger than expected at {good}"
        assert (sentence in report["page"]) == (standing[good] == "stronger")
        assert f"good-at-{good} on " in report["page"]

    assert set(held) == {"all", *TASKS, "general", "dimension_1", "dimension_2"}
    # With intervals that hold 95 times in 100, fewer than this would be a chance of 1 in 100.
    chances = bdtr(np.arange(len(runs) + 1), len(runs), 0.95)
    least = np.searchsorted(chances, 0.01)
    assert all(sum(found) >= least for found in held.values()), held
    assert apart >= least
    assert told >= least
