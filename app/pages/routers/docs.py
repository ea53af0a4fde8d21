"""The reference of the API: Swagger UI, which reads the OpenAPI document."""

from fastapi import Request, Response

from app.pages.rendering import page
from app.pages.routing import router as make_router

router = make_router()


@router.get("/docs")
async def reference(request: Request) -> Response:
    """The reference of all calls, which can be tried; public, like `/openapi.json`."""
    return await page(request, "docs.html")
