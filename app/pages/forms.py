"""Converts fields of forms to bodies for REST, and faults to sentences."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import ValidationError

from app.errors import FieldProblem, InvalidInputError, SextantError
from app.items import Json
from app.validation import problems_of

#: Body of a REST request.
Body: TypeAlias = dict[str, Json]

_MOST_FAULTS = 10
#: Goals of a session -> their labels in forms.
_LABELS = {
    "max_items": "Questions at most",
    "score_margin": "Score known to ±",
    "se": "Standard error to reach",
}


@dataclass(frozen=True, slots=True)
class Faults:
    """Why a form was refused.

    Attributes:
        detail: The reason in a sentence.
        problems: Faults by field, where there are several.
    """

    detail: str
    problems: tuple[FieldProblem, ...] = ()


def numbers_in(fields: Mapping[str, str]) -> dict[str, float | int]:
    """The fields as numbers, whole where they are written so; empty fields are left out.

    Raises:
        InvalidInputError: A field is not a number.
    """
    found: dict[str, float | int] = {}
    for name, text in fields.items():
        plain = text.strip().replace("\u00a0", "")
        if not plain:
            continue
        try:
            found[name] = int(plain[:40]) if plain.isdigit() else float(plain[:40])
        except ValueError as error:
            raise InvalidInputError(
                f"{name.replace('_', ' ')}: expected a number, got {text!r:.60}."
            ) from error
    return found


def margin_in(fields: Mapping[str, str]) -> dict[str, float]:
    """The margin of the score, given in a form in points, as a share for the design.

    Raises:
        InvalidInputError: The margin is not a number.
    """
    points = numbers_in({"margin": fields.get("margin", "")}).get("margin")
    return {} if points is None else {"score_margin": points / 100}


def labelled(text: str) -> str:
    """The sentence with the labels of forms in place of the fields of REST."""
    fields = rf"/?\bstopping[./]({'|'.join(_LABELS)})\b"
    return re.sub(fields, lambda found: f"“{_LABELS[found[1]]}”", text)


def faults_in(error: ValidationError | SextantError) -> Faults:
    """The message of a form about a refusal."""
    if isinstance(error, SextantError):
        several = error.problems if len(error.problems) > 1 else ()
        return Faults(labelled(error.detail), several[:_MOST_FAULTS])
    problems = problems_of(error.errors(include_url=False))
    if len(problems) == 1:
        one = problems[0]
        place = one.pointer.strip("/").replace("/", ", ").replace("_", " ")
        return Faults(f"{place}: {one.detail}." if place else f"{one.detail}.")
    return Faults("Some fields cannot be used.", tuple(problems[:_MOST_FAULTS]))


def sections(**given: Json) -> Body:
    """The sections that are not empty; the server's defaults apply to the others."""
    return {name: value for name, value in given.items() if value not in (None, {}, "")}
