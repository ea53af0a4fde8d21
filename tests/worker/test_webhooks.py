"""Webhooks from the end of a session to the receiver, which checks the signature itself."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from prometheus_client import REGISTRY

from app.acting import EVERYBODY, Acting, acting_for
from app.adapters.signing import signature
from app.adapters.transport import MAX_BODY_BYTES
from app.api.schemas.webhooks import ALL_EVENTS
from app.errors import InvalidStateError
from app.records.gates import GateSpec
from app.records.webhooks import Delivery, Webhook
from app.services.container import Services
from app.services.webhooks import signing_key
from app.settings import Settings
from app.storage.paging import PageRequest
from app.worker import webhooks as sending
from app.worker.loop import purge, running_worker
from tests.databases import executed
from tests.servers import serving
from tests.services.calibrations import answers, queued
from tests.services.rankings import contest, members_of
from tests.services.sessions import by_hand, figures_of, spec, until
from tests.services.test_lock_order import waiting as somebody_waits
from tests.values import not_none
from tests.waiting import waiting
from tests.worker.sessions import model_at, run_session, worker_process

# From the test vectors of the specification.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PLANTED = "sk-planted-in-an-answer"


class Receiver:
    """A receiver of webhooks; the path decides how it responds."""

    def __init__(self) -> None:
        self.app = FastAPI()
        self.app.post("/{how:path}")(self._answer)
        self.ids: dict[str, list[str]] = {}
        self.bodies: list[dict[str, Any]] = []

    async def _answer(self, how: str, request: Request) -> Response:
        if how.startswith("model"):
            return JSONResponse({"error": {"message": f"no such model {PLANTED}"}}, 404)
        body, head = await request.body(), request.headers
        signed = b".".join([head["webhook-id"].encode(), head["webhook-timestamp"].encode(), body])
        key = base64.b64decode(SECRET.split("_")[1])
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        assert head["webhook-signature"] == f"v1,{expected}"
        seen = self.ids.setdefault(how, [])
        seen.append(head["webhook-id"])
        self.bodies.append(json.loads(body))
        if how == "redirects":
            return RedirectResponse("/inside", 307)
        if how == "hangs" and len(seen) < 3:
            await asyncio.sleep(600)
        if how == "floods":  # more than any reply may hold
            return Response(b" " * 2 * MAX_BODY_BYTES)
        if how == "fails" and len(seen) < 3:
            return Response(status_code=500)
        return Response(status_code={"down": 503, "gone": 410}.get(how, 204))


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def url(receiver: Receiver) -> Iterator[str]:
    with serving(receiver.app) as url:
        yield url


@pytest.fixture
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_LOOK_S", 0.05)
    monkeypatch.setattr(sending, "_TIMEOUT_S", 1.0)
    monkeypatch.setattr(sending, "PAUSES_S", (0.01, 0.01, 0.01))


async def hook(services: Services, url: str, *events: str) -> Webhook:
    return await services.webhooks.create(url, SECRET, events or ALL_EVENTS)


async def deliveries(services: Services, webhook: Webhook) -> list[Delivery]:
    async with services.database.reading() as uow:
        page = await uow.webhooks.deliveries(webhook.id, PageRequest(100, descending=False))
    return list(page.items)


def attempts_told(outcome: str) -> float:
    """Return the number of attempts with this outcome, from Prometheus metrics."""
    name = "sextant_webhook_attempts_total"
    return not_none(REGISTRY.get_sample_value(name, {"outcome": outcome}))


async def settled(services: Services, *webhooks: Webhook) -> list[list[Delivery]]:
    """Return the deliveries of each webhook, once none is left to send."""
    async with waiting() as pause:
        while True:
            found = [await deliveries(services, one) for one in webhooks]
            if all(one.status != "pending" for of_one in found for one in of_one):
                return found
            await pause()


def test_signatures_follow_the_specification() -> None:
    signed = signature(
        signing_key(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert signed["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_retries_span_a_day() -> None:
    assert sum(sending.PAUSES_S) == 24 * 3600
    assert list(sending.PAUSES_S) == sorted(sending.PAUSES_S)


async def test_projects_take_turns_where_few_can_be_sent(services: Services, url: str) -> None:
    for n in range(4):
        await hook(services, f"{url}/of-one-{n}")
    team = await services.projects.create("team")
    with acting_for(Acting(team.id)):
        theirs = await hook(services, f"{url}/of-another")
    with acting_for(EVERYBODY):
        async with services.database.unit_of_work() as uow:
            begun = await uow.webhooks.claim(2, besides=())
    assert theirs.id in {webhook.id for webhook, _ in begun}
    assert len(begun) == 2


@pytest.mark.usefixtures("_in_a_hurry")
async def test_each_end_is_sent_once_without_texts_or_secrets(
    services: Services, receiver: Receiver, url: str
) -> None:
    webhook = await hook(services, f"{url}/ok")
    done = await services.sessions.create(spec())
    gate = await services.gates.create(GateSpec(threshold=0.0), done.id)
    ranking = await services.rankings.create(contest())
    await services.rankings.cancel(ranking.id)
    members = await members_of(services, ranking.id)
    calibration = await queued(services, answers(40, 12))
    await services.calibrations.cancel(calibration.id)
    async with running_worker(services):
        ended = await until(services, done.id)
        endpoint = await services.endpoints.create(model_at(f"{url}/model", name="broken"))
        broken = {"endpoint": None, "endpoint_id": endpoint.id}
        failed = [await run_session(services, "failed", **broken) for _ in range(2)]
        late = await services.gates.create(GateSpec(threshold=1.0), done.id)
        (told,) = await settled(services, webhook)

    assert {one.status for one in told} == {"delivered"}
    assert len({one.id for one in told}) == len(told) == len(receiver.ids["ok"])
    expected = [
        ("webhook.created", webhook.id),
        ("session.completed", done.id),
        ("gate.decided", gate.record.id),
        ("gate.decided", late.record.id),
        ("ranking.cancelled", ranking.id),
        *(("session.cancelled", one.id) for one in members),
        ("calibration.cancelled", calibration.id),
        *(("session.failed", one.id) for one in failed),
        ("endpoint.failed", not_none(failed[0].endpoint_id)),  # once an hour
    ]
    assert sorted((one.type, one.data["id"]) for one in told) == sorted(expected)
    sent = {(body["type"], body["data"]["id"]): body["data"] for body in receiver.bodies}
    score = figures_of(ended)["score"]
    assert sent["session.completed", done.id] == {
        "id": done.id,
        "endpoint_id": done.endpoint_id,
        "ranking_id": None,
        "stop_reason": "max_items",
        "theta": figures_of(ended)["estimate"]["theta"],
        "se": figures_of(ended)["estimate"]["se"],
        "score": score["value"],
        "score_interval": score["interval"],
    }
    assert sent["gate.decided", gate.record.id] == {
        "id": gate.record.id,
        "session_id": done.id,
        "outcome": "go",
        "metric": "score",
        "value": score["value"],
        "threshold": 0.0,
    }
    assert sent["endpoint.failed", str(failed[0].endpoint_id)] == {
        "id": failed[0].endpoint_id,
        "session_id": failed[0].id,
        "code": "endpoint_rejected",
    }
    # Readers of the session see what its endpoint said.
    assert PLANTED in json.dumps(failed[0].failure)
    assert PLANTED not in json.dumps(receiver.bodies)


@pytest.mark.usefixtures("_in_a_hurry")
async def test_responses_of_receivers_decide_about_a_delivery(
    services: Services, receiver: Receiver, url: str
) -> None:
    names = ("ok", "fails", "hangs", "down", "gone", "redirects", "forbidden", "floods")
    webhooks = {name: await hook(services, f"{url}/{name}") for name in names}
    await services.secret_keys.rotate()
    # As on a public server, when a host name leads to an address of its own network.
    afar = "UPDATE webhooks SET calls_private = false WHERE url LIKE '%forbidden'"
    await executed(services.database, afar)
    outcomes = ("delivered", "failed", "given_up")
    before = [attempts_told(outcome) for outcome in outcomes]
    async with running_worker(services):
        found = await settled(services, *webhooks.values())
        one = {name: of_one[0] for name, of_one in zip(names, found, strict=True)}
        async with services.database.unit_of_work() as uow:
            await uow.webhooks.queue_again(webhooks["ok"].id, one["ok"].id)
        await settled(services, webhooks["ok"])

    assert [attempts_told(outcome) for outcome in outcomes] == [
        n + more for n, more in zip(before, (5, 13, 4), strict=True)
    ]
    told = {name: (sent.status, sent.attempts, sent.status_code) for name, sent in one.items()}
    assert told == {
        "ok": ("delivered", 1, 204),
        "fails": ("delivered", 3, 204),
        "hangs": ("delivered", 3, 204),
        "down": ("given_up", 4, 503),
        "gone": ("given_up", 1, 410),
        "redirects": ("given_up", 4, 307),  # /inside was not requested
        "forbidden": ("given_up", 4, None),
        "floods": ("delivered", 1, 200),  # only the status counts
    }
    assert "loopback address" in str(one.pop("forbidden").error)
    attempts = {name: sent.attempts for name, sent in one.items()} | {"ok": 2}
    assert receiver.ids == {name: [one[name].id] * times for name, times in attempts.items()}
    async with services.database.reading() as uow:
        listed = (await uow.webhooks.page(PageRequest())).items
    assert [one.id for one in listed if one.disabled_at] == [webhooks["gone"].id]
    async with services.database.unit_of_work() as uow:
        with pytest.raises(InvalidStateError, match="disabled, because its receiver answered 410"):
            await uow.webhooks.queue_again(webhooks["gone"].id, one["gone"].id)
    await services.sessions.cancel((await by_hand(services)).id)
    assert len(await deliveries(services, webhooks["ok"])) == 2
    assert len(await deliveries(services, webhooks["gone"])) == 1


async def test_old_deliveries_are_deleted_unless_pending(services: Services) -> None:
    webhook = await hook(services, "http://127.0.0.1:9/")
    await services.sessions.cancel((await by_hand(services)).id)
    waits, over = await deliveries(services, webhook)
    aged = (
        "UPDATE webhook_deliveries SET created_at = now() - interval '31 days', "
        "due_at = CASE WHEN id = %s THEN due_at END"
    )
    await executed(services.database, aged, [waits.id])
    await purge(services.database)
    assert [one.id for one in await deliveries(services, webhook)] == [waits.id] != [over.id]


async def test_a_session_ends_while_its_webhook_is_deleted(services: Services) -> None:
    webhook = await hook(services, "http://127.0.0.1:9/")
    manual = await by_hand(services)
    connect, url = psycopg.AsyncConnection.connect, services.database.conninfo
    async with await connect(url) as other, await connect(url, autocommit=True) as beside:
        await other.execute("DELETE FROM webhooks WHERE id = %s", [webhook.id])
        ending = asyncio.create_task(services.sessions.cancel(manual.id))
        await somebody_waits(ending, beside)
        await other.commit()
    assert (await ending).status == "cancelled"


@pytest.mark.slow
async def test_killed_workers_lose_no_event_and_give_none_two_ids(
    services: Services, settings: Settings, receiver: Receiver, url: str
) -> None:
    """One is killed just after a session ends, the next while a receiver does not respond."""
    webhook = await hook(services, f"{url}/ok", "session.completed")
    made = [await services.sessions.create(spec()) for _ in range(6)]
    with worker_process(settings):
        async with waiting() as pause:
            while len(await deliveries(services, webhook)) < 2:  # one of which is sent
                await pause()
    hanging = await hook(services, f"{url}/hangs", "ranking.completed")
    for n_calls in (1, 2):
        with worker_process(settings):
            async with waiting() as pause:
                while len(receiver.ids.get("hangs", ())) < n_calls:
                    await pause()
        # The interrupted attempt is repeated after two minutes: pretend they are over.
        over = "UPDATE webhook_deliveries SET due_at = now() WHERE due_at > now()"
        await executed(services.database, over)
    with worker_process(settings):
        for one in made:
            await until(services, one.id)
        told, hung = await settled(services, webhook, hanging)

    assert {one.status for one in (*told, *hung)} == {"delivered"}
    assert sorted(one.data["id"] for one in told) == sorted([webhook.id, *(one.id for one in made)])
    assert set(receiver.ids["ok"]) == {one.id for one in told}
    assert receiver.ids["hangs"] == [hung[0].id] * 3
