"""Response sets as stored, and sessions whose answers they collect."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from app.acting import maker, owner
from app.items import JsonObject
from app.records.endpoints import SELF_REPORTED

if TYPE_CHECKING:  # children that read files load no shapes of sessions
    from app.records.sessions import AskedJson, Provenance


class ImportedFile(TypedDict):
    """A file of an import."""

    name: str
    format: str
    rows_read: int


class ImportEntry(TypedDict):
    """An import, as its set remembers it; `files` are the first of them."""

    at: str
    files: list[ImportedFile]
    n_files: int
    choices: JsonObject
    rows_read: int
    accepted: int
    skipped: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSet:
    """Recorded answers of many examinees to many items.

    Attributes:
        n_sheets: Examinees, each counted as often as it was tried.
        outcomes: Answers by outcome.
        imports: Where the answers come from, the newest last.
    """

    id: str
    name: str
    description: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    n_examinees: int = 0
    n_items: int = 0
    n_sheets: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    imports: Sequence[ImportEntry] = ()
    revision: int
    project_id: str = field(default_factory=owner)
    created_by: str | None = field(default_factory=maker)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class StoredSheet:
    """Answers of one examinee in one trial, as bytes.

    Attributes:
        codes: One byte an item, by position; items beyond the end were not asked.
        fractions: Scores that no code stands for, float64 little-endian; `None` without such.
    """

    examinee: str
    trial: int
    codes: bytes
    fractions: bytes | None = None


SIMULATED = "scripted"
"""Kind of the endpoints that no model stands behind."""

_DIGITS = 12
_CALLED_BY = ("kind", "base_url", "model", "parameters_hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Sessions whose answers are wanted."""

    bank_id: str
    version_id: str | None = None
    since: datetime | None = None
    simulated: bool = False


class EndedSession(NamedTuple):
    """A session whose answers can be taken over.

    Attributes:
        root_id: The session that it goes on from, over any number of extensions; else itself.
        examinee: Who answered: the model, and what tells it and its settings apart; None where
            answers were given by hand.
        asked: How its answers were obtained; empty where nobody noted it.
    """

    id: str
    root_id: str
    examinee: str | None
    asked: "AskedJson"


def examinee_of(provenance: "Provenance") -> str | None:
    """Who answered a session: one kind and address, model, settings and prompt are one examinee.

    Another checkpoint behind the same address is one of its own if its model has another name. Who
    answers by hand is known by name.

    Returns:
        A name, the same for all sessions of one examinee; None where nobody was named.
    """
    origin = provenance.get("endpoint")
    if not origin:
        return None
    if origin.get("kind") == SELF_REPORTED:
        who, called = ["kind", "name"], origin["name"]
    else:
        who, called = list(_CALLED_BY), origin.get("model") or origin.get("kind")
    told = [*(origin.get(name) for name in who), provenance.get("prompt_template_hash")]
    digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:_DIGITS]
    return f"{called}/{digest}"


class GivenAnswer(NamedTuple):
    """One closed item of a session."""

    session_id: str
    step: int
    item_key: str
    outcome: str
    score: float | None
    is_pretest: bool


#: Part of a bank version's knowledge: how they counted when its parameters were made.
UNPARSED_POLICY = "unparsed_policy"
#: What tools do that mark every answer: where nothing is found that could be marked, it is wrong.
_OF_FORMATS = {"lm-eval": "wrong", "inspect": "wrong", "helm": "wrong"}


def policy_of(imports: Sequence[ImportEntry]) -> str | None:
    """`wrong` or `missing`, by a set's imports; None where they differ or do not say."""
    known = {policy for entry in imports for policy in _of_import(entry)}
    return known.pop() if len(known) == 1 else None


def asked_in(imports: Sequence[ImportEntry]) -> "AskedJson":
    """How all answers of a response set were obtained, as far as its imports agree."""
    return in_common([entry["choices"].get("asked") or {} for entry in imports])


def in_common(ways: Sequence[Mapping[str, Any]]) -> "AskedJson":
    """What several ways of asking agree in."""
    if not ways:
        return {}
    first, *others = ways
    return {
        name: known
        for name, known in first.items()
        if all(other.get(name) == known for other in others)
    }


def _of_import(entry: ImportEntry) -> set[str | None]:
    choices = entry["choices"]
    if UNPARSED_POLICY in choices:
        return {choices[UNPARSED_POLICY]}
    if choices.get("refused_no_answer"):  # of inspect: its N was taken out
        return {"missing"}
    return {_OF_FORMATS.get(file["format"]) for file in entry["files"]}
