"""Whether a file is the one that was named."""

import hashlib
from dataclasses import dataclass

from app.errors import InvalidInputError
from app.exchange.catalog.entry import Source


@dataclass(frozen=True, slots=True)
class Checked:
    """What a file was found to be.

    Attributes:
        sha256: Of its content.
        by: What it was checked against: `git_blob`, `sha256`, or `nothing` where none is known.
    """

    sha256: str
    by: str


def git_blob(content: bytes) -> str:
    """The id that git gives a file of this content: SHA-1 over its length and it."""
    digest = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()


def check(content: bytes, source: Source, name: str) -> Checked:
    """Refuse a file that is not the one that the catalogue means.

    Raises:
        InvalidInputError: Another hash.
    """
    sha256 = hashlib.sha256(content).hexdigest()
    by = "nothing"
    for kind, expected, got in (
        ("sha256", source.sha256, sha256),
        ("git_blob", source.git_blob, git_blob(content) if source.git_blob else ""),
    ):
        if expected is None:
            continue
        if got != expected:
            raise InvalidInputError(
                f"{name} is not the file that the catalogue means: expected {kind} {expected}, got "
                f"{got} ({len(content)} bytes). Bring {source.origin}."
            )
        by = kind
    return Checked(sha256, by)
