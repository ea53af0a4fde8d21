"""Webhooks and their deliveries: queued, due, given up, forgotten."""

from collections.abc import Collection
from datetime import timedelta
from functools import partial

from sqlalchemy import case, delete, func, null, select, text, update

from app.errors import InvalidStateError, NotFoundError
from app.records.fields import convert, shallow
from app.records.webhooks import Delivery, Webhook
from app.storage.paging import Page, PageRequest
from app.storage.rows.projects import DeliveryRow, ProjectRow, WebhookRow
from app.storage.scoping import Repository, of_opened

#: Largest number of webhooks of a project, since each makes its own calls in every worker.
_MOST = 20
#: Largest number of deliveries of one webhook that a worker claims at once.
_AT_ONCE = 10
#: An attempt without a result after this time, several times its time limit, was cut short.
_LOST_AFTER = timedelta(minutes=2)
#: How long deliveries are kept, to be viewed and sent again.
_KEPT = timedelta(days=30)

# Projects take turns: the first delivery of each, then the second, and so on.
_DUE = text("""
    SELECT id FROM (
        SELECT d.id, d.due_at,
            row_number() OVER (PARTITION BY w.project_id ORDER BY d.due_at) AS nth
        FROM webhooks w CROSS JOIN LATERAL (
            SELECT id, due_at FROM webhook_deliveries WHERE webhook_id = w.id AND due_at <= now()
            ORDER BY due_at LIMIT :most FOR UPDATE SKIP LOCKED
        ) AS d WHERE w.id <> ALL(:besides)
    ) AS due ORDER BY nth, due_at LIMIT :room
""").execution_options(**of_opened("all that is due, of all projects"))


class WebhookRepository(Repository):
    """Queries and changes of webhooks, within one transaction."""

    async def add(self, new: Webhook, greeting_id: str) -> None:
        """Store a webhook, and a first delivery that announces it.

        Raises:
            InvalidStateError: The project has the largest number of webhooks already.
        """
        of_project = select(ProjectRow.id).where(ProjectRow.id == new.project_id)
        await self._db.execute(of_project.with_for_update(key_share=True))  # additions take turns
        if (await self._db.scalar(select(func.count(WebhookRow.id))) or 0) >= _MOST:
            raise InvalidStateError(f"A project has at most {_MOST} webhooks: delete one first.")
        self._db.add(WebhookRow(**shallow(new)))
        await self._db.flush()
        greeting = {"type": "webhook.created", "data": {"id": new.id}}
        self._db.add(DeliveryRow(id=greeting_id, webhook_id=new.id, **greeting))

    async def page(self, request: PageRequest) -> Page[Webhook]:
        """One page of webhooks."""
        read = partial(convert, Webhook)
        return await self._page(select(WebhookRow), request, WebhookRow.id, "webhook", read)

    async def delete(self, webhook_id: str) -> None:
        """Remove a webhook with its deliveries."""
        await self._get(webhook_id)
        await self._db.execute(delete(WebhookRow).where(WebhookRow.id == webhook_id))

    async def disable(self, webhook_id: str) -> None:
        """Disable a webhook, and give up its waiting deliveries."""
        await self._set(WebhookRow, webhook_id, disabled_at=func.now())
        await self._db.execute(
            update(DeliveryRow)
            .where(DeliveryRow.webhook_id == webhook_id, DeliveryRow.due_at.is_not(None))
            .values(due_at=None, error="The webhook was disabled: its receiver answered 410.")
        )

    async def deliveries(self, webhook_id: str, request: PageRequest) -> Page[Delivery]:
        """One page of past and future deliveries to a webhook."""
        await self._get(webhook_id)
        query = select(DeliveryRow).where(DeliveryRow.webhook_id == webhook_id)
        read = partial(convert, Delivery)
        return await self._page(query, request, DeliveryRow.id, "delivery", read)

    async def queue_again(self, webhook_id: str, delivery_id: str) -> Delivery:
        """Queue a delivery to be sent once more at once, whatever its state.

        Raises:
            InvalidStateError: The webhook is disabled.
        """
        if (await self._get(webhook_id)).disabled_at is not None:
            raise InvalidStateError(
                f"Webhook {webhook_id} is disabled, because its receiver answered 410: make "
                "another."
            )
        row = await self._db.scalar(
            update(DeliveryRow)
            .where(DeliveryRow.id == delivery_id, DeliveryRow.webhook_id == webhook_id)
            .values(due_at=func.now(), delivered_at=null())
            .returning(DeliveryRow)
        )
        if row is None:
            raise NotFoundError("delivery", delivery_id)
        return convert(Delivery, row)

    async def claim(
        self, room: int, *, besides: Collection[str]
    ) -> list[tuple[Webhook, list[Delivery]]]:
        """Begin attempts of due deliveries for this worker, except to the webhooks `besides`."""
        given = {"most": _AT_ONCE, "besides": list(besides), "room": room}
        due = (await self._db.scalars(_DUE, given)).all()
        if not due:
            return []
        rows = await self._db.scalars(
            update(DeliveryRow)
            .where(DeliveryRow.id.in_(due))
            .values(attempts=DeliveryRow.attempts + 1, due_at=func.now() + _LOST_AFTER)
            .returning(DeliveryRow)
        )
        claimed: dict[str, list[Delivery]] = {}
        for row in rows:
            claimed.setdefault(row.webhook_id, []).append(convert(Delivery, row))
        return [(await self._get(one), of_it) for one, of_it in claimed.items()]

    async def record(
        self,
        attempted: Delivery,
        *,
        status_code: int | None,
        error: str | None,
        again_in: timedelta | None,
    ) -> None:
        """Write the result of an attempt, unless another attempt was begun since.

        Without an `error`, it succeeded. A delivery given up meanwhile ignores `again_in`.
        """
        is_pending = DeliveryRow.due_at.is_not(None)
        await self._db.execute(
            update(DeliveryRow)
            .where(DeliveryRow.id == attempted.id, DeliveryRow.attempts == attempted.attempts)
            .values(
                status_code=status_code,
                error=error,
                delivered_at=func.now() if error is None else None,
                due_at=None if again_in is None else case((is_pending, func.now() + again_in)),
            )
        )

    async def purge(self) -> None:
        """Remove old deliveries that succeeded or were given up."""
        is_old = DeliveryRow.created_at < func.now() - _KEPT
        await self._db.execute(delete(DeliveryRow).where(DeliveryRow.due_at.is_(None), is_old))

    async def _get(self, webhook_id: str) -> Webhook:
        return convert(Webhook, await self._by_id(WebhookRow, webhook_id, "webhook"))
