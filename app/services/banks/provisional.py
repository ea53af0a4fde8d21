"""Parameters without a calibration: reused, or guessed until enough live answers replace them."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from app.adapters.prompting import PromptStyle
from app.calibration.logistic.beliefs import ItemBeliefs, without_answers
from app.engine.lint import OF_ANSWERS
from app.errors import ConflictError, InvalidInputError
from app.records.banks import (
    PROVISIONAL,
    Bank,
    BankSpec,
    BankVersion,
    ItemOutline,
    Provisional,
    provisional_words,
)
from app.records.response_sets import Source
from app.services.banks.imports import BankImport, parameters_of
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.shapes import Described
from app.storage.database import Database
from app.storage.unit_of_work import UnitOfWork


async def asking_as(uow: UnitOfWork, bank: Bank, spec: BankSpec) -> Bank:
    """The bank, changed to ask as `spec` says.

    Raises:
        ConflictError: The bank has questions and asks them in another way.
    """
    new, old = PromptStyle.from_dict(spec.prompt), PromptStyle.from_dict(bank.prompt)
    if new == old and bank.default_scorer == spec.default_scorer:
        return bank
    if any(item.has_content for item in await uow.items.outlines(bank.id)):
        what = "asks its questions in another way" if new != old else "scores by another scorer"
        raise ConflictError(
            f"Bank {bank.name!r} exists already and {what}: give the new one another name."
        )
    changes = {"prompt": dict(spec.prompt), "default_scorer": spec.default_scorer}
    return await uow.banks.update(bank.id, bank.revision, changes)


async def from_version(uow: UnitOfWork, bank: Bank, request: BankImport) -> BankImport:
    """The import with the parameters and knowledge of an existing version of the bank."""
    version = await uow.versions.find(bank, request.from_version)
    if parameters_of(request) is not None or request.scale or request.response_model:
        raise InvalidInputError(
            f"Version {version.number} has its own parameters, scale and response model: give "
            "from_version or these, not both."
        )
    columns = await uow.versions.columns(version.id)
    findings = await uow.versions.findings(version.id)
    loaded = await asyncio.to_thread(LoadedVersion.of, bank, version, columns)
    return replace(
        request,
        parameters=loaded.bank,
        scale=version.scale,
        response_model=version.response_model,
        provisional=request.provisional or version.provisional,
        allow={*request.allow, *version.lint["allow"]},
        keep={*request.keep, *version.lint["keep"]},
        # Lint finds faults of parameters and texts again, so only findings of answers are copied.
        findings=[finding for finding in findings if finding.code in OF_ANSWERS],
        calibration=version.calibration,
        knowledge=version.knowledge,
    )


Difficulty = Literal["given", "tags", "position", "none"]
"""Where guesses of difficulty come from: a field of each item, its tags, its place among the items
from easy to hard, or nowhere."""

_WORDS = {
    "trivial": 0.0,
    "very easy": 0.5,
    **dict.fromkeys(("easy", "beginner", "basic"), 1.0),
    **dict.fromkeys(("medium", "moderate", "intermediate"), 2.0),
    **dict.fromkeys(("hard", "difficult", "advanced"), 3.0),
    "very hard": 3.5,
    "expert": 4.0,
}
_LEVEL = re.compile(r"(?:level|difficulty|grade|tier)[ :=_-]{0,3}(\S.{0,30})", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")


def with_guesses(
    request: BankImport, items: Sequence[ItemOutline], before: Mapping[str, Any]
) -> BankImport:
    """The import with guessed parameters for all items that can be asked, and their uncertainty.

    `items` are all of the bank, those of the import included, oldest first. `before` is the
    knowledge of its latest version; guesses given for that are kept where the import gives no
    others.

    Raises:
        InvalidInputError: No items, or no guesses in the source that the request names.
    """
    asked = [item for item in items if item.has_content]
    if not asked:
        raise InvalidInputError("Expected items with questions to guess parameters for, got none.")
    given: dict[str, float] = {}
    if (known := before.get(PROVISIONAL)) is not None:
        earlier = ItemBeliefs.from_dict(known["beliefs"])
        pairs = zip(earlier.keys, earlier.given, strict=False)  # empty where none were given
        given = {key: guess for key, guess in pairs if guess is not None}
    given |= {r.key: r.difficulty for r in request.items if r.difficulty is not None}
    source, guesses = _guesses(request.difficulty, asked, given)
    beliefs = ItemBeliefs.guessed(
        [item.key for item in asked], [item.n_choices for item in asked], guesses
    )
    if source == "given":
        beliefs = replace(beliefs, given=tuple(guesses))
    table = beliefs.bank()
    told = {"difficulty": source, "n_guessed": sum(guess is not None for guess in guesses)}
    new = {**without_answers(beliefs, table), **told}
    return replace(request, parameters=table, knowledge={**request.knowledge, PROVISIONAL: new})


def level_in(tags: Sequence[str]) -> float | None:
    """Difficulty level in an item's tags; None where they name no level, or two different ones."""
    found = {level for tag in tags if (level := _level(tag)) is not None}
    return found.pop() if len(found) == 1 else None


def _guesses(
    source: str | None, items: Sequence[ItemOutline], given: Mapping[str, float]
) -> tuple[Difficulty, list[float | None]]:
    told: dict[Difficulty, list[float | None]] = {
        "given": [given.get(item.key) for item in items],
        "tags": [level_in(item.tags) for item in items],
        "position": [float(place) for place in range(len(items))],
    }
    lacks = {
        "given": "no item of the import has a field `difficulty`, and none had one before",
        "tags": "no item has one tag that tells a level, such as easy, hard or level-3",
    }
    wanted = ("given", "tags") if source is None else (source,)
    for name, guesses in told.items():
        if name in wanted and any(guess is not None for guess in guesses):
            return name, guesses
    if source in lacks:
        raise InvalidInputError(f"Expected difficulties from {source}, but {lacks[source]}.")
    return "none", [None] * len(items)


def _level(tag: str) -> float | None:
    text = " ".join(tag.lower().replace("_", " ").replace("-", " ").split())
    if text in _WORDS:
        return _WORDS[text]
    if (named := _LEVEL.fullmatch(text)) is None:
        return None
    level = named.group(1)
    return float(level) if _NUMBER.fullmatch(level) else _WORDS.get(level)


def describe_guesses(knowledge: Mapping[str, Any]) -> str:
    """Say where the guesses of a new provisional version come from, and which sources exist."""
    known = knowledge[PROVISIONAL]
    of = f"{known['n_guessed']} of {len(known['beliefs']['keys'])} items"
    n_choices = sum(c > 0 for c in known["beliefs"]["c"])
    return (
        f"guessed: difficulty from {known['difficulty']} ({of}; --difficulty given, tags, position "
        f"or none), guessing from the options of {n_choices} items"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalibration(Described):
    """Whether live answers are enough to calibrate a provisional version again."""

    object: Literal["recalibration"] = "recalibration"
    version_id: str
    provisional: Provisional | None
    """Null if the parameters are calibrated."""
    n_examinees: int
    """Number of examinees so far; each is one combination of address, model, settings and
    prompt."""
    wanted: int | None
    """Number of examinees after which to recalibrate."""
    due: bool
    explanation: str


@dataclass(frozen=True, eq=False)
class RecalibrationAdvice:
    """Examines versions; stores nothing."""

    database: Database
    versions: VersionService

    async def look(self, bank: str, version: str | None = None) -> Recalibration:
        """Examine a version."""
        found = await self.versions.get(bank, version)
        async with self.database.reading() as uow:
            of: Bank = await uow.banks.of_version(found.id)
        return await self.of_version(found, of.name)

    async def of_version(self, version: BankVersion, bank_name: str) -> Recalibration:
        """Examine a version that is loaded already."""
        known = Provisional.of(version.knowledge)
        if known is None:
            return Recalibration(
                version_id=version.id,
                provisional=None,
                n_examinees=0,
                wanted=None,
                due=False,
                explanation="The items' parameters are not guesses; `banks drift` says whether "
                "they still hold.",
            )
        async with self.database.unit_of_work() as uow:
            n = await uow.collected.n_examinees(Source(bank_id=version.bank_id))
        is_due = n >= known.next_examinees
        advice = (
            f": `sextant banks recalibrate {bank_name}` makes the next version from all their "
            "answers."
            if is_due
            else f". Recalibrate after {known.next_examinees} models."
        )
        return Recalibration(
            version_id=version.id,
            provisional=known,
            n_examinees=n,
            wanted=known.next_examinees,
            due=is_due,
            explanation=f"{provisional_words(known)} {n} models have answered by now{advice}",
        )
