"""How a path names a bank and its version."""

from typing import Annotated

from fastapi import Path, Query

from app.validation import VERSION

BankRef = Annotated[
    str,
    Path(
        min_length=1,
        max_length=200,
        description="Id or name of the bank.",
        examples=["demo"],
    ),
]
VersionRef = Annotated[
    str,
    Path(
        pattern=VERSION,
        description="Number, id, or `latest`.",
        examples=["latest"],
    ),
]
Erase = Annotated[
    bool,
    Query(description="For good, now, with all that was stored of it, or 409 with what uses it."),
]
