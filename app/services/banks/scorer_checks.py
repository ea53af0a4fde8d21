"""Scorers as users describe them, checked with all that takes computing, within limits."""

import asyncio
import json
from collections.abc import Iterable

from app import scorers
from app.errors import FieldProblem, InvalidInputError, SextantError
from app.exchange.files import MAX_PROBLEMS
from app.exchange.item_record import ItemRecord
from app.items import BY_KIND, ScorerSpec
from app.services.banks.spec import item_scorer

#: Seconds for all scorers of one request.
_TIMEOUT_S = 30.0

#: What is wrong with the scorers of one request, by `name_of`.
Faults = dict[str, SextantError]


def name_of(spec: ScorerSpec) -> str:
    """Tells different scorers apart."""
    return json.dumps([spec.name, dict(spec.params)], sort_keys=True)


async def faults_of(specs: Iterable[ScorerSpec | None]) -> Faults:
    """What is wrong with some scorers; empty where all can be used.

    Raises:
        InvalidInputError: It takes too long to find out.
        BusyError: The helper processes have too much to do.
    """
    different = {name_of(spec): spec for spec in specs if spec is not None}
    found: Faults = {}
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            for name, spec in different.items():
                if spec.name == BY_KIND:
                    continue
                try:
                    await scorers.check(spec)
                except InvalidInputError as error:
                    found[name] = error
    except TimeoutError as error:
        raise InvalidInputError(
            f"The {len(different)} scorers of this request take more than {_TIMEOUT_S:g} s to "
            "check: use fewer or simpler ones."
        ) from error
    return found


async def require_usable(spec: ScorerSpec) -> None:
    """Refuse a scorer that cannot be used.

    Raises:
        InvalidInputError: It cannot, and why.
        UnknownNameError: No scorer of that name is installed.
        BusyError: The helper processes have too much to do.
    """
    for fault in (await faults_of([spec])).values():
        raise fault


def require_markable(records: Iterable[ItemRecord], default: ScorerSpec) -> None:
    """Refuse items that no answer could be right to, as a number that is none.

    Args:
        records: Items whose own scorers can be used.
        default: Marks those that have none.

    Raises:
        InvalidInputError: With the row and field of each, up to a limit.
    """
    built: dict[str, scorers.Scorer] = {}
    problems: list[FieldProblem] = []
    for record in records:
        spec = item_scorer(record.scorer, default, record.content)
        scorer = built.get(name := name_of(spec))
        if scorer is None:
            scorer = built[name] = scorers.build(spec)
        if not isinstance(scorer, scorers.ScorerParams):
            continue
        if (expected := scorer.unmarkable(record.content)) is not None:
            place = f"items:{record.row}:target" if record.row else "/target"
            got = f"{record.content.target[0]!r:.80} of item {record.key!r:.80}"
            detail = f"expected {expected}, with which `{spec.name}` compares answers, got {got}"
            problems.append(FieldProblem(place, detail))
            if len(problems) == MAX_PROBLEMS:
                break
    if problems:
        first = problems[0]
        raise InvalidInputError(f"{first.pointer}: {first.detail}.", problems=problems)
