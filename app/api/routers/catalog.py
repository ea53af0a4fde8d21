"""The catalogue: banks that can be installed by name, and their installations."""

from typing import Annotated

from fastapi import Path, Query, Response

from app.api.parameters import Paging, id_path, list_of
from app.api.routing import allow, allow_once, make_router
from app.api.schemas.catalog import CatalogEntryRead, InstallationRead
from app.deps import AllServices
from app.errors import InvalidStateError, NotFoundError
from app.shapes import Listed, ListRead, WorkStatus
from app.validation import ENTRY_NAME

router = make_router("", tag="catalog")

EntryName = Annotated[
    str, Path(pattern=ENTRY_NAME, examples=["gsm8k"], description="Name of the entry.")
]
InstallationId = Annotated[str, id_path("ins")]


@router.get("/catalog", **allow("read"))
async def list_catalog(opened: AllServices) -> Listed[CatalogEntryRead]:
    """List the banks that can be installed by name: their sources, and how they were asked."""
    return Listed(data=[CatalogEntryRead.of(offer) for offer in await opened.catalog.entries()])


@router.get("/catalog/{name}", **allow("read"))
async def get_catalog_entry(name: EntryName, opened: AllServices) -> CatalogEntryRead:
    """One bank that can be installed."""
    return CatalogEntryRead.of(await opened.catalog.entry(name))


@router.post("/catalog/{name}:install", status_code=202, **allow_once("banks:write"))
async def install(name: EntryName, response: Response, opened: AllServices) -> InstallationRead:
    """Install a bank: fetch its files, check and join them, and create the bank.

    A worker does it; poll the installation. Only the operator's catalogue decides where files come
    from. Fetched files stay in the cache, so the same call after a failure continues from there. If
    an installation of this entry is in progress, it is returned instead of a new one.
    """
    started = await opened.catalog.start(name)
    response.headers["Location"] = f"/v1/installations/{started.id}"
    return InstallationRead.of(started)


@router.get("/installations", **allow("read", NotFoundError))
async def list_installations(
    page: Paging, opened: AllServices, status: Annotated[WorkStatus | None, Query()] = None
) -> ListRead[InstallationRead]:
    """List installations, the newest first."""
    async with opened.database.reading() as uow:
        found = await uow.installations.list_page(page, status=status)
    return list_of(found, InstallationRead.of)


@router.get("/installations/{installation_id}", **allow("read"))
async def get_installation(
    installation_id: InstallationId, opened: AllServices
) -> InstallationRead:
    """State and result of an installation."""
    async with opened.database.reading() as uow:
        return InstallationRead.of(await uow.installations.get(installation_id))


@router.post("/installations/{installation_id}:cancel", **allow("banks:write", InvalidStateError))
async def cancel_installation(
    installation_id: InstallationId, opened: AllServices
) -> InstallationRead:
    """Cancel an installation. Its worker stops within seconds, and no bank is created."""
    async with opened.database.unit_of_work() as uow:
        return InstallationRead.of(await uow.installations.cancel(installation_id))
