"""How answers that nobody can read counted where recorded answers come from."""

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


def _of_import(entry: Mapping[str, Any]) -> set[str | None]:
    choices = entry["choices"]
    if UNPARSED_POLICY in choices:
        return {choices[UNPARSED_POLICY]}
    if choices.get("refused_no_answer"):  # of inspect: its N was taken out
        return {"missing"}
    return {_OF_FORMATS.get(file["format"]) for file in entry["files"]}
