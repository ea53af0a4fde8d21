"""Numbers of hundreds of digits, valid JSON but too large for a float: refused with a message."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from tests.api.conftest import Client
from tests.demo_bank import install_demo_bank

ENDLESS = 10**400
DESIGN: dict[str, Any] = {
    "stopping": {"se": 0.3, "min_items": 1, "max_items": 5, "cut_score": 0.5, "theta_change": 0.1},
    "estimator": {"prior_mean": 0.0, "prior_sd": 1.0, "range": [-4.0, 4.0], "nodes": 61},
    "selection": {"top_k": 1, "exposure": {"max_rate": 0.5}, "cost_weight": 0.0},
    "failures": {"max_consecutive": 5, "max_share": 0.5},
    "pretest": {"items_per_session": 0},
    "concurrency": 1,
    "seed": 1,
}
ITEM = {"id": "q", "prompt": "?", "target": "4", "a": 1.0, "b": 0.5, "weight": 1.0}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/sessions": {"mode": "manual", "bank": "demo", **DESIGN},
    "/v1/simulations": {"bank": "demo", "n_examinees": 5, "theta": [0.0, 1.0], **DESIGN},
    "/v1/rankings": {
        "bank": "demo",
        "endpoints": [
            {"kind": "scripted", "model": name, "options": {"theta": 0.5, "seed": 1}}
            for name in "ab"
        ],
        "budget": {"items": 30, "usd": 1.0, "tokens": 100},
        "confidence": 0.95,
        "seed": 1,
    },
    "/v1/gates": {"bank": "demo", "name": "g", "theta": 0.5, "confidence": 0.9},
    "/v1/banks": {"name": "b", "items": [ITEM], "pretest": {"items_per_session": 3}},
    "/v1/scorers/numeric:test": {
        "params": {"abs_tol": 0.1, "rel_tol": 0.1}, "cases": [{"response": "4"}], "target": ["4"],
    },
    "/v1/scorers/closeness:test": {
        "params": {"abs_limit": 0.1, "x": {"y": 1}}, "cases": [{"response": "4"}], "target": ["4"],
    },
    "/v1/response-sets": {"name": "r", "metadata": {"a": 1}, "score_range": [0, 1]},
    "/v1/endpoints": {
        "name": "e", "kind": "scripted", "timeout_s": 1.0,
        "options": {"theta": 0.5, "seed": 1, "latency_ms": 3, "skills": {"a": 1.0}},
        "limits": {"rpm": 1.0, "tpm": 1.0, "concurrency": 1}, "price": {"input_per_1m": 1.0},
    },
}  # fmt: skip


def with_one_endless(value: Any) -> Iterator[Any]:
    """Yield copies of `value`, each with one of its numbers replaced by an infinite one."""
    if isinstance(value, bool) or not isinstance(value, dict | list | int | float):
        return
    if isinstance(value, int | float):
        yield ENDLESS
        yield -ENDLESS
        return
    for key in value if isinstance(value, dict) else range(len(value)):
        for changed in with_one_endless(value[key]):
            whole = copy.copy(value)
            whole[key] = changed
            yield whole


async def test_no_infinite_number_in_a_body_gives_a_500(app: FastAPI, client: Client) -> None:
    await install_demo_bank(app.state.services.database)
    seen = 0
    for path, body in BODIES.items():
        for changed in with_one_endless(body):
            answer = await client.post(
                path, content=json.dumps(changed), headers={"Content-Type": "application/json"}
            )
            assert answer.status_code < 500, (path, answer.text)
            seen += 1
    assert seen > 80


async def test_no_infinite_number_in_a_query_gives_a_500(client: Client) -> None:
    for path in ("/v1/endpoints", "/v1/sessions", "/v1/banks", "/v1/rankings", "/v1/api-keys"):
        for number in (str(ENDLESS), "9" * 5000, "1e400", "nan"):
            answer = await client.get(path, params={"limit": number})
            assert answer.status_code == 422, (path, answer.text)
