"""The reference of the API: Swagger UI, which reads what the API says of itself."""

from fastapi import Request, Response

from app.pages.rendering import page
from app.pages.routing import router as make_router

router = make_router()


@router.get("/docs")
async def reference(request: Request) -> Response:
    """Every call, to be tried; open to everybody, as `/openapi.json` is."""
    return await page(request, "docs.html")
