"""The reference of the API, from what the API says of itself, with every call to be tried."""

import asyncio
from typing import Annotated, Any

from fastapi import Path, Request, Response

from app.errors import NotFoundError
from app.pages.access import Visit
from app.pages.reference import fields_of, tags_of
from app.pages.rendering import page
from app.pages.routing import router as make_router

router = make_router()

Name = Annotated[str, Path(max_length=200)]


async def _document(request: Request) -> dict[str, Any]:
    # The first time it takes half a second to make.
    found: dict[str, Any] = await asyncio.to_thread(request.app.openapi)
    return found


@router.get("/docs")
async def contents(request: Request) -> Response:
    """All calls by what they are about; open to everybody, as `/openapi.json` is."""
    document = await _document(request)
    return await page(request, "docs.html", tags=tags_of(document), info=document["info"])


@router.get("/docs/models/{name}")
async def model_page(name: Name, request: Request) -> Response:
    """The fields of one model."""
    fields = fields_of(document := await _document(request), name)
    if fields is None:
        raise NotFoundError("model", name)
    schema = document["components"]["schemas"][name]
    return await page(
        request,
        "docs_model.html",
        name=name,
        fields=fields,
        told=schema.get("description", ""),
        schema=schema,
    )


@router.get("/docs/{tag}")
async def tag_page(tag: Name, request: Request, visit: Visit) -> Response:
    """The calls about one thing, each with a form that sends it."""
    tags = tags_of(await _document(request))
    if tag not in tags:
        raise NotFoundError("part of the API", tag)
    return await page(
        request, "docs_tag.html", tag=tag, operations=tags[tag], needs_key=visit.can_leave
    )
