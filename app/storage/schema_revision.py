"""Which revision of the tables this version of the code needs."""

import re
from functools import cache
from pathlib import Path

import app

#: Beside the package, in a checkout and in an installed wheel alike.
MIGRATIONS = Path(next(iter(app.__path__))).resolve().parent / "migrations"
_NAMED = re.compile(
    r"""^(?P<name>revision|down_revision)\b[^=\n]*= *["'](?P<value>\w+)["']""", re.MULTILINE
)


#: Of the lock that whoever changes tables holds. Any fixed number: the lock is Sextant's own.
MIGRATION_LOCK = 7_839_200_611


def newest_revision() -> str:
    """The last of the migrations."""
    (newest,) = _revisions()["revision"] - _revisions()["down_revision"]
    return newest


def is_known(revision: str) -> bool:
    """Whether tables at this revision can be read or migrated by this version of the code."""
    return revision in _revisions()["revision"]


@cache
def _revisions() -> dict[str, set[str]]:
    """Read from the migrations' files: Alembic takes half a second to load."""
    found: dict[str, set[str]] = {"revision": set(), "down_revision": set()}
    for file in (MIGRATIONS / "versions").glob("*.py"):
        for match in _NAMED.finditer(file.read_text(encoding="utf-8")):
            found[match["name"]].add(match["value"])
    return found
