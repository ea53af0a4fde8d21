"""Answers that are files: how they are named, and what OpenAPI says of them."""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote


def attachment(name: str) -> str:
    """`Content-Disposition` of a file of that name, whatever characters it has (RFC 6266)."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    encoded = quote(name, safe="")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"


def file_responses(media_types: Iterable[str]) -> dict[int | str, dict[str, Any]]:
    """OpenAPI `responses` of a route that answers with a file of one of these types."""
    return {
        200: {
            "description": "The file.",
            "headers": {
                "Content-Disposition": {
                    "description": "`attachment` with a name for the file.",
                    "schema": {"type": "string"},
                }
            },
            "content": {
                media_type: {"schema": {"type": "string", "format": "binary"}}
                for media_type in dict.fromkeys(media_types)
            },
        }
    }
