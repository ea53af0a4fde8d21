"""Converts fields of forms to bodies for REST, and faults to sentences."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from app.errors import FieldProblem, InvalidInputError, SextantError
from app.items import Json
from app.validation import problems_of

#: Body of a REST request.
Body: TypeAlias = dict[str, Json]
M = TypeVar("M", bound=BaseModel)

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


def read_as(model: type[M], body: Body) -> M:
    """Validate a body with all the checks of REST."""
    return model.model_validate_json(json.dumps(body))


def texts_in(fields: Mapping[str, str], *names: str) -> dict[str, str]:
    """The fields of these names, as far as they were sent."""
    return {name: fields[name] for name in names if name in fields}


def numbers_in(fields: Mapping[str, str], *names: str) -> dict[str, float | int]:
    """The fields of these names as numbers, whole where they are written so, without empty ones.

    Raises:
        InvalidInputError: A field is not a number.
    """
    found: dict[str, float | int] = {}
    for name, text in texts_in(fields, *names).items():
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
    points = numbers_in(fields, "margin").get("margin")
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
