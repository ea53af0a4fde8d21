"""Response sets as stored, and the sessions whose answers they collect."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import TypedDict

from app.acting import maker, owner
from app.items import JsonObject, Outcome

if TYPE_CHECKING:  # children that read files load no shapes of sessions
    from app.records.sessions import AskedJson, Provenance


class ImportedFile(TypedDict):
    """A file of an import."""

    name: str
    format: str
    rows_read: int


class ImportEntry(TypedDict):
    """An import into a response set; `files` holds only the first of its files."""

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
        n_sheets: Number of sheets: one for each trial of each examinee.
        outcomes: Number of answers by outcome.
        imports: Imports that the answers came from, the newest last.
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

    @property
    def n_answers(self) -> int:
        """Number of answers with a score."""
        return self.outcomes.get(Outcome.SCORED, 0)

    @property
    def density(self) -> float | None:
        """Answers as a share of those that all sheets could hold; None without any item."""
        n_possible = self.n_sheets * self.n_items
        return self.n_answers / n_possible if n_possible else None

    @property
    def unparsed_policy(self) -> str | None:
        """`wrong` or `missing`, from its imports; None where they differ or do not say."""
        known = {policy for entry in self.imports for policy in _of_import(entry)}
        return known.pop() if len(known) == 1 else None


@dataclass(frozen=True, slots=True)
class StoredSheet:
    """Answers of one examinee in one trial, as bytes.

    Attributes:
        codes: One byte for each item, by position; items beyond the end were not asked.
        fractions: Scores that no code stands for, float64 little-endian; `None` if there are none.
    """

    examinee: str
    trial: int
    codes: bytes
    fractions: bytes | None = None


_DIGITS = 12
_CALLED_BY = ("kind", "base_url", "model", "parameters_hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Selects the sessions whose answers to collect."""

    bank_id: str
    version_id: str | None = None
    since: datetime | None = None
    simulated: bool = False


class EndedSession(NamedTuple):
    """A session whose answers can be collected.

    Attributes:
        root_id: Session that it extends, over any number of extensions; otherwise its own id.
        examinee: Name of the examinee: the model, and a digest of it and its settings; None for
            answers given by hand.
        asked: How the answers were obtained; empty where this is not recorded.
    """

    id: str
    root_id: str
    examinee: str | None
    asked: "AskedJson"


def examinee_of(provenance: "Provenance") -> str | None:
    """Who answered a session: one kind and address, model, settings and prompt are one examinee.

    Another checkpoint at the same address is another examinee if its model has another name. Kind
    and name identify an examinee that answers by hand.

    Returns:
        A name, the same for all sessions of one examinee; None without an examinee.
    """
    from app.records.endpoints import SELF_REPORTED  # children that read files do not need it

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


class TakenTest(NamedTuple):
    """A test and who took it.

    Attributes:
        root_id: The session, or the one that it extends, over any number of extensions.
        model: The model's name, wherever and however it was asked; without one, the examinee's
            name; without either, `root_id`.
    """

    root_id: str
    model: str


class GivenAnswer(NamedTuple):
    """One closed item of a session."""

    session_id: str
    step: int
    item_key: str
    outcome: str
    score: float | None
    is_pretest: bool


#: Part of a bank version's knowledge: how unparseable answers counted in its calibration.
UNPARSED_POLICY = "unparsed_policy"
#: Format -> policy of tools that score every answer: wrong where nothing can be parsed.
_OF_FORMATS = {"lm-eval": "wrong", "inspect": "wrong", "helm": "wrong"}


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
    if choices.get("refused_no_answer"):  # inspect's N (no answer) was taken out
        return {"missing"}
    return {_OF_FORMATS.get(file["format"]) for file in entry["files"]}
