"""Webhooks: told when something of a project has ended."""

from typing import Annotated

from app.api.parameters import Paging, id_path, list_of
from app.api.routing import allow, allow_once, make_router
from app.api.schemas.webhooks import WebhookCreate, WebhookRead
from app.deps import AllServices
from app.errors import BlockedAddressError, InvalidStateError, NotFoundError, SecretsError
from app.records.webhooks import Delivery
from app.shapes import ListRead

router = make_router("/webhooks", tag="webhooks")

WebhookId = Annotated[str, id_path("whk")]
DeliveryId = Annotated[str, id_path("whd")]


@router.post(
    "", status_code=201, **allow_once("admin", InvalidStateError, BlockedAddressError, SecretsError)
)
async def create_webhook(body: WebhookCreate, opened: AllServices) -> WebhookRead:
    """Send the project's events to a URL, signed as in Standard Webhooks.

    The first event is `webhook.created`. An event that is not answered with 2xx within 15 s is sent
    again over a day, with the same `webhook-id`.
    """
    secret = body.secret.get_secret_value()
    return WebhookRead.read(await opened.webhooks.create(body.url, secret, body.events))


@router.get("", **allow("admin", NotFoundError))
async def list_webhooks(page: Paging, opened: AllServices) -> ListRead[WebhookRead]:
    """List the webhooks of the project, the newest first."""
    async with opened.database.reading() as uow:
        return list_of(await uow.webhooks.page(page), WebhookRead.read)


@router.delete("/{webhook_id}", status_code=204, **allow("admin"))
async def delete_webhook(webhook_id: WebhookId, opened: AllServices) -> None:
    """Delete a webhook with its deliveries, including pending ones."""
    async with opened.database.unit_of_work() as uow:
        await uow.webhooks.delete(webhook_id)


@router.get("/{webhook_id}/deliveries", **allow("admin", NotFoundError))
async def list_deliveries(
    webhook_id: WebhookId, page: Paging, opened: AllServices
) -> ListRead[Delivery]:
    """List deliveries, past and pending, the newest first. They are kept for 30 days."""
    async with opened.database.reading() as uow:
        return list_of(await uow.webhooks.deliveries(webhook_id, page))


@router.post("/{webhook_id}/deliveries/{delivery_id}:send", **allow("admin", InvalidStateError))
async def send_delivery(
    webhook_id: WebhookId, delivery_id: DeliveryId, opened: AllServices
) -> Delivery:
    """Send a delivery once more now, with the same id, whatever its status."""
    async with opened.database.unit_of_work() as uow:
        return await uow.webhooks.queue_again(webhook_id, delivery_id)
