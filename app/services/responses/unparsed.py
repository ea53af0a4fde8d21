"""How recorded answers were obtained, and how those counted that nobody can read."""

from collections.abc import Mapping, Sequence
from typing import Any

#: Part of a bank version's knowledge: how they counted when its parameters were made.
UNPARSED_POLICY = "unparsed_policy"
#: What tools do that mark every answer: where nothing is found that could be marked, it is wrong.
_OF_FORMATS = {"lm-eval": "wrong", "inspect": "wrong", "helm": "wrong"}


def policy_of(imports: Sequence[Mapping[str, Any]]) -> str | None:
    """`wrong` or `missing`, by the imports of a response set; None where they differ or do not say.

    Args:
        imports: As a response set remembers them.
    """
    known = {policy for entry in imports for policy in _of_import(entry)}
    return known.pop() if len(known) == 1 else None


def asked_in(imports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How all answers of a response set were obtained, as far as its imports agree.

    Args:
        imports: As a response set remembers them.
    """
    return in_common([entry["choices"].get("asked") or {} for entry in imports])


def in_common(ways: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What several ways of asking agree in."""
    if not ways:
        return {}
    first, *others = ways
    return {
        name: known
        for name, known in first.items()
        if all(other.get(name) == known for other in others)
    }


def _of_import(entry: Mapping[str, Any]) -> set[str | None]:
    choices = entry["choices"]
    if UNPARSED_POLICY in choices:
        return {choices[UNPARSED_POLICY]}
    if choices.get("refused_no_answer"):  # of inspect: its N was taken out
        return {"missing"}
    return {_OF_FORMATS.get(file["format"]) for file in entry["files"]}
