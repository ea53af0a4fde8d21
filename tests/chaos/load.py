"""Gives a fleet work over the API until it ends; calls without a response are repeated."""

import asyncio
import itertools
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2

from tests.chaos.fleet import Fleet
from tests.chaos.model_server import KEY_OF, N_ITEMS, bank_items, bank_parameters
from tests.services.calibrations import answers, csv_of

ENDED: Final = ("completed", "failed", "cancelled")
#: Seconds between polls of unfinished work, so that polling is a small part of the load.
_LOOK_S: Final = 2.0
#: Time limit of one call of the model, shorter than its late replies.
_MODEL_TIMEOUT_S: Final = 2.0
_HARDY: Final = {"max_consecutive": 1000, "max_share": 1.0}
_RETRY: Final = {"max_attempts": 100, "base_s": 0.2, "cap_s": 0.5, "max_wait_s": 600}


@dataclass(frozen=True, kw_only=True)
class Load:
    """Amount of work; `items` is the length of each test, `over_s` the time in which it starts."""

    sessions: int
    manual: int
    rankings: int
    calibrations: int = 0
    items: int
    over_s: float


@dataclass
class Client:
    """Calls one of several APIs, and the next one after each failure.

    Attributes:
        acknowledged: Manual answers that the API accepted: session, step, score.
        refused: Responses to calls that should not be refused.
    """

    fleet: Fleet
    http: httpx2.AsyncClient
    acknowledged: list[tuple[str, int, float]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    _nth: Iterator[int] = field(default_factory=itertools.count)

    async def call(
        self, method: str, path: str, body: Any = None, *, key: str = "", fine: Sequence[int] = ()
    ) -> tuple[int, Any]:
        """Call until a server responds; with `key`, a repeated call counts once."""
        headers = {"Authorization": f"Bearer {self.fleet.api_key}"}
        if key:
            headers["Idempotency-Key"] = key
        while True:
            url = self.fleet.api_urls[next(self._nth) % len(self.fleet.api_urls)]
            try:
                answer = await self.http.request(method, url + path, json=body, headers=headers)
            except httpx2.HTTPError:
                await asyncio.sleep(0.2)
                continue
            status = answer.status_code
            said = answer.json() if "json" in answer.headers.get("content-type", "") else {}
            if not said:  # a stopping server aborts its current work
                await asyncio.sleep(0.2)
                continue
            code = said["code"] if status >= 400 else ""
            if code == "idempotency_answer_lost" and not fine:
                made = re.search(r"\b(ses|rnk|cal)_\w{26}", answer.json()["detail"])
                return 200, {"id": made and made[0]}
            in_flight = code == "idempotency_in_flight"
            if status < 300 or (status in fine and not in_flight):
                return status, answer.json()
            if not in_flight and status not in {429, 503}:
                self.refused.append(f"{method} {path}: {status} {answer.text[:300]}")
            await asyncio.sleep(0.2)

    async def prepare(self, *, calibrates: bool) -> None:
        """Create the bank and, if needed, the answers to calibrate."""
        await self.call("POST", "/v1/banks", {"name": "chaos"}, fine=[409])
        rows = "\n".join(map(json.dumps, bank_items()))
        files = {"items": {"content": rows}, "parameters": {"content": bank_parameters()}}
        await self.call("POST", "/v1/banks/chaos/imports", files)
        if not calibrates:
            return
        await self.call("POST", "/v1/response-sets", {"name": "chaos"}, fine=[409])
        file = {"name": "scores.csv", "content": csv_of(answers(400, 30))}
        await self.call("POST", "/v1/response-sets/chaos/imports", {"files": [file]})

    async def ended(self, path: str) -> dict[str, Any]:
        """Return a resource once it has ended; resume it where possible."""
        while True:
            _, found = await self.call("GET", path)
            failure = found.get("failure") or {}
            if found["status"] == "failed" and failure.get("code") == "lease_lapsed":
                if not path.startswith("/v1/sessions"):
                    return dict(found)
                await self.call("POST", f"{path}:resume", fine=[409])
            elif found["status"] in ENDED:
                return dict(found)
            await asyncio.sleep(_LOOK_S)

    def _endpoint(self, model: str) -> dict[str, Any]:
        return {
            "kind": "openai_chat",
            "base_url": self.fleet.model_url,
            "model": model,
            "timeout_s": _MODEL_TIMEOUT_S,
            "retry": _RETRY,
        }

    async def _begun(self, kind: str, name: str, items: int, **more: Any) -> str:
        """Start a session or ranking of this length; return its path."""
        length = {"min_items": items, "max_items": items}
        body = {"bank": "chaos", "seed": int(name[1:]), "metadata": {"chaos": name}, **more}
        body |= length if kind == "rankings" else {"stopping": {"se": None, **length}}
        body |= {} if "mode" in more else {"failures": _HARDY}
        _, made = await self.call("POST", f"/v1/{kind}", body, key=name)
        return f"/v1/{kind}/{made['id']}"

    async def session(self, nth: int, items: int) -> dict[str, Any]:
        """Run a live session to its end."""
        body = {"endpoint": self._endpoint(f"s{nth}"), "concurrency": 1 + nth % 4}
        return await self.ended(await self._begun("sessions", f"s{nth}", items, **body))

    async def manual(self, nth: int, items: int) -> dict[str, Any]:
        """Run a manual session to its end."""
        path = await self._begun("sessions", f"m{nth}", items, mode="manual")
        while True:
            status, awaited = await self.call("GET", f"{path}/next-item", fine=[409])
            if status == 409:
                return await self.ended(path)
            item = awaited["item"]["id"]
            right = (nth + awaited["step"]) % 3 > 0
            said = KEY_OF[item] if right else "ABCD".replace(KEY_OF[item], "")[0]
            answer = {"step_token": awaited["step_token"], "response": f"The answer is {said}."}
            key = f"m{nth}-{awaited['step']}" if nth % 2 else ""
            status, _ = await self.call(
                "POST", f"{path}/responses", answer, key=key, fine=[409]
            )  # 409: it was accepted, but the response was lost
            self.acknowledged.append((path.rpartition("/")[2], awaited["step"], float(right)))
            await asyncio.sleep(0.2)

    async def ranking(self, nth: int, items: int) -> dict[str, Any]:
        """Run a ranking of three to its end."""
        members = [{"endpoint": self._endpoint(f"r{nth}-{one}")} for one in range(3)]
        body = {"endpoints": members, "budget": {"items": 3 * items}, "concurrency": 2}
        return await self.ended(await self._begun("rankings", f"r{nth}", items, **body))

    async def calibration(self, nth: int, _: int) -> dict[str, Any]:
        """Run a calibration to its end."""
        body = {"response_set": "chaos", "model": "2pl", "report_card": False, "seed": 1}
        for again in itertools.count():
            key = f"c{nth}-{again}"
            _, made = await self.call("POST", "/v1/calibrations", body, key=key)
            found = await self.ended(f"/v1/calibrations/{made['id']}")
            if "(exit -9)" not in str(found["failure"]):  # its process was not one of the killed
                return found
        raise AssertionError


async def work(client: Client, load: Load) -> list[dict[str, Any]]:
    """Start all work spread over a time; return how each ended, once all have."""
    items = load.items
    if items > N_ITEMS:
        raise ValueError(f"the bank has {N_ITEMS} items")
    begin = time.monotonic()

    async def later(nth: int, n: int, doing: Any) -> dict[str, Any]:
        await asyncio.sleep(max(0.0, begin + nth * load.over_s / n - time.monotonic()))
        return dict(await doing(nth, items))

    kinds = (
        (load.sessions, client.session),
        (load.manual, client.manual),
        (load.rankings, client.ranking),
        (load.calibrations, client.calibration),
    )
    jobs = [later(nth, n, doing) for n, doing in kinds for nth in range(n)]
    return list(await asyncio.gather(*jobs))
