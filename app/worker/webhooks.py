"""Sends what is queued for webhooks, and again after pauses that grow over a day.

A delivery is queued by the transaction that stores an end, and its row is all there is of it: when
the next attempt is due, and how the last one went. An attempt moves that moment before it calls, so
that one whose worker is killed is made again like one that failed.
"""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import Any, Final

import structlog

from app.acting import Acting, acting_for
from app.adapters.callback import signature
from app.adapters.transport import json_bytes
from app.errors import DatabaseUnavailableError, NotFoundError, SextantError
from app.items import JsonValue
from app.observability import WEBHOOK_ATTEMPTS
from app.records.webhooks import Delivery, Webhook
from app.services.container import Services
from app.services.outages import retry_outages
from app.services.sessions.runner import Networks
from app.services.webhooks import signing_key

logger = structlog.get_logger(__name__)

#: Seconds between two looks for what is due.
_LOOK_S: Final = 1.0
#: For one attempt, to the last byte of the answer.
_TIMEOUT_S: Final = 15.0
#: Calls of a worker at a time: those of sessions need the connections, too.
_MOST_CALLS: Final = 50
#: Pauses after failed attempts, seconds: a day in all.
PAUSES_S: Final = (5, 60, 300, 1800, 7200, 18_000, 28_800, 30_235)
_GONE: Final = 410


@dataclass(frozen=True, eq=False)
class WebhookSender:
    """Sends what is due, of all projects."""

    services: Services
    networks: Networks
    #: Webhook -> deliveries on their way to it.
    _busy: dict[str, int] = field(init=False, default_factory=dict)

    async def run(self) -> None:
        """Send until cancelled. A receiver that hangs holds up its own webhook alone.

        Where more hang than calls are open, others wait until those have timed out.
        """
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    # What is claimed is called at once: its lease is short.
                    room = _MOST_CALLS - sum(self._busy.values())
                    async with self.services.database.unit_of_work() as uow:
                        claimed = await uow.webhooks.claim(room, besides=self._busy)
                    for webhook, deliveries in claimed:
                        self._busy[webhook.id] = len(deliveries)
                        tasks.create_task(self._send_all(webhook, deliveries))
                except DatabaseUnavailableError:
                    logger.warning("webhooks_postponed")
                except Exception:  # it must not take the worker with it
                    logger.exception("webhooks_failed")
                await asyncio.sleep(_LOOK_S)

    async def _send_all(self, webhook: Webhook, deliveries: list[Delivery]) -> None:
        try:
            await asyncio.gather(*(self._send(webhook, one) for one in deliveries))
        except Exception:  # as above; what was not written is sent again
            logger.exception("webhooks_failed", webhook_id=webhook.id)
        finally:
            del self._busy[webhook.id]

    async def _send(self, webhook: Webhook, delivery: Delivery) -> None:
        """Make an attempt, and write how it went."""
        status, error = await self._attempt(webhook, delivery)
        again_in = None
        if error is not None and status != _GONE and delivery.attempts <= len(PAUSES_S):
            again_in = timedelta(seconds=PAUSES_S[delivery.attempts - 1])
        outcome = "delivered" if error is None else "failed" if again_in else "given_up"
        WEBHOOK_ATTEMPTS.labels(outcome).inc()

        async def record() -> None:
            # Each statement is a transaction: cut off between them, the next attempt disables it.
            async with self.services.database.reading() as uow:
                await uow.webhooks.record(
                    delivery, status_code=status, error=error, again_in=again_in
                )
                if status == _GONE:
                    await uow.webhooks.disable(webhook.id)

        await retry_outages(record)

    async def _attempt(self, webhook: Webhook, delivery: Delivery) -> tuple[int | None, str | None]:
        """What the receiver answered, and why that is no delivery."""
        may_private = webhook.calls_private and self.services.settings.calls_private
        network = self.networks.private if may_private else self.networks.public
        try:
            secret = self.services.secrets.decrypt(webhook.secret_cipher)
            payload: dict[str, JsonValue] = {
                "type": delivery.type,
                "timestamp": delivery.created_at.astimezone(UTC).isoformat(),
                "data": await self._data(webhook, delivery),
            }
            body = json_bytes(payload)
            signed = signature(signing_key(secret), delivery.id, int(time.time()), body)
            reply = await network.post_json(
                webhook.url, payload, credentials=signed, timeout_s=_TIMEOUT_S, follows=False
            )
        except SextantError as error:
            return None, error.detail
        except Exception:  # any fault must be written, or it is tried forever
            logger.exception("webhook_failed", delivery_id=delivery.id)
            return None, "An unexpected fault; the server's log has it under this delivery's id."
        is_taken = 200 <= reply.status < 300
        return reply.status, None if is_taken else f"The receiver answered {reply.status}."

    async def _data(self, webhook: Webhook, delivery: Delivery) -> dict[str, Any]:
        """What the event says; of a gate how its session has decided it."""
        if delivery.type != "gate.decided":
            return delivery.data
        with acting_for(Acting(webhook.project_id)):
            try:
                gate = await self.services.gates.get(delivery.data["id"])
            except NotFoundError:  # it went with its session
                return delivery.data
        return {
            **delivery.data,
            "outcome": gate.result and gate.result.outcome.value,
            "metric": gate.record.metric,
            "value": gate.value,
            "threshold": gate.record.threshold,
        }
