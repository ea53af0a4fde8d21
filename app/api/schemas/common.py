"""Parameters that several routes take, and the health of the process as JSON."""

from typing import Annotated, Any, Literal

from fastapi import Path, Query

from app.engine.ranking.rules import Metric
from app.shapes import Output, ShownAs
from app.validation import VERSION

MetricName = Annotated[Literal["score", "theta"], ShownAs(Metric)]


class HealthRead(Output):
    """The process answers requests."""

    status: Literal["ok"]
    version: str


class ReadinessRead(Output):
    """The process can work: its database answers and has the tables of this version."""

    status: Literal["ready"]
    database: Literal["ok"]
    migrations: str
    """Revision of the database's tables."""
    secrets: Literal["ok", "unreadable"]
    """Whether the present secret key can decrypt the stored endpoint keys. If not, only calls that
    need such a key fail."""


def id_path(prefix: str) -> Any:
    """A path parameter that takes ids with this prefix."""
    example = f"{prefix}_01jd0000000000000000000000"
    return Path(pattern=rf"^{prefix}_[0-9a-z]{{26}}$", examples=[example])


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
        description="Number or id of the version, or `latest`.",
        examples=["latest"],
    ),
]
Erase = Annotated[
    bool,
    Query(
        description="Delete permanently and at once, with everything stored about it. Answers 409, "
        "and says what uses it, if anything still does."
    ),
]
