"""Sends the queued deliveries of webhooks, and retries them with growing pauses over a day.

The transaction that stores an end queues its delivery. The delivery's row holds the time of the
next attempt and the outcome of the last one. An attempt moves that time before it calls, so that
an attempt whose worker is killed is repeated like a failed one.
"""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import Final

import structlog

from app.acting import Acting, acting_for
from app.adapters.signing import signature
from app.adapters.transport import json_bytes
from app.errors import DatabaseUnavailableError, NotFoundError, SextantError
from app.items import JsonObject, JsonValue
from app.observability import WEBHOOK_ATTEMPTS
from app.records.webhooks import Delivery, Webhook
from app.services.container import Services
from app.services.sessions.runner import Networks
from app.services.waiting import retry_outages
from app.services.webhooks import signing_key

logger = structlog.get_logger(__name__)

#: Seconds between two looks for due deliveries.
_LOOK_S: Final = 1.0
#: Seconds for one attempt, up to the status of the reply.
_TIMEOUT_S: Final = 15.0
#: Most calls of a worker at a time; calls of sessions need HTTP connections, too.
_MOST_CALLS: Final = 50
#: Pauses after failed attempts, seconds: a day in all.
PAUSES_S: Final = (5, 60, 300, 1800, 7200, 18_000, 28_800, 30_235)
_GONE: Final = 410


@dataclass(frozen=True, eq=False)
class WebhookSender:
    """Sends the due deliveries of all projects."""

    services: Services
    networks: Networks
    #: Id of a webhook -> number of deliveries in progress to it.
    _busy: dict[str, int] = field(init=False, default_factory=dict)

    async def run(self) -> None:
        """Send until cancelled. A receiver that hangs delays only its own webhook.

        Where as many receivers hang as there may be calls, others wait until those time out; then
        projects take turns.
        """
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    # Only as many are claimed as can be called at once: their lease is short.
                    room = _MOST_CALLS - sum(self._busy.values())
                    async with self.services.database.unit_of_work() as uow:
                        claimed = await uow.webhooks.claim(room, besides=self._busy)
                    for webhook, deliveries in claimed:
                        self._busy[webhook.id] = len(deliveries)
                        tasks.create_task(self._send_all(webhook, deliveries))
                except DatabaseUnavailableError:
                    logger.warning("webhooks_postponed")
                except Exception:  # no fault may end the worker
                    logger.exception("webhooks_failed")
                await asyncio.sleep(_LOOK_S)

    async def _send_all(self, webhook: Webhook, deliveries: list[Delivery]) -> None:
        try:
            await asyncio.gather(*(self._send(webhook, one) for one in deliveries))
        except Exception:  # no fault may end the worker; unrecorded deliveries are sent again
            logger.exception("webhooks_failed", webhook_id=webhook.id)
        finally:
            del self._busy[webhook.id]

    async def _send(self, webhook: Webhook, delivery: Delivery) -> None:
        """Make an attempt, and store its outcome."""
        status, error = await self._attempt(webhook, delivery)
        again_in = None
        if error is not None and status != _GONE and delivery.attempts <= len(PAUSES_S):
            again_in = timedelta(seconds=PAUSES_S[delivery.attempts - 1])
        outcome = "delivered" if error is None else "failed" if again_in else "given_up"
        WEBHOOK_ATTEMPTS.labels(outcome).inc()

        async def record() -> None:
            # Each statement is a transaction; if the second is lost, the next attempt disables it.
            async with self.services.database.reading() as uow:
                await uow.webhooks.record(
                    delivery, status_code=status, error=error, again_in=again_in
                )
                if status == _GONE:
                    await uow.webhooks.disable(webhook.id)

        await retry_outages(record)

    async def _attempt(self, webhook: Webhook, delivery: Delivery) -> tuple[int | None, str | None]:
        """Status of the receiver's reply, and the reason if the delivery failed."""
        may_private = webhook.calls_private and self.services.settings.calls_private
        network = self.networks.private if may_private else self.networks.public
        try:
            secret = self.services.secrets.decrypt(webhook.secret_cipher)
            payload: dict[str, JsonValue] = {
                "type": delivery.type,
                "timestamp": delivery.created_at.astimezone(UTC).isoformat(),
                "data": dict(await self._data(webhook, delivery)),
            }
            body = json_bytes(payload)
            signed = signature(signing_key(secret), delivery.id, int(time.time()), body)
            reply = await network.post_json(
                webhook.url, payload, credentials=signed, timeout_s=_TIMEOUT_S, reads=False
            )
        except SextantError as error:
            return None, error.detail
        except Exception:  # any fault must be stored, or it is tried forever
            logger.exception("webhook_failed", delivery_id=delivery.id)
            return None, "An unexpected fault; the server's log has it under this delivery's id."
        is_taken = 200 <= reply.status < 300
        return reply.status, None if is_taken else f"The receiver answered {reply.status}."

    async def _data(self, webhook: Webhook, delivery: Delivery) -> JsonObject:
        """Data of the event; for a gate, with the decision."""
        if delivery.type != "gate.decided":
            return delivery.data
        with acting_for(Acting(webhook.project_id)):
            try:
                gate = await self.services.gates.get(delivery.data["id"])
            except NotFoundError:  # it was deleted with its session
                return delivery.data
        return {
            **delivery.data,
            "outcome": gate.result and gate.result.outcome.value,
            "metric": gate.record.metric,
            "value": gate.value,
            "threshold": gate.record.threshold,
        }
