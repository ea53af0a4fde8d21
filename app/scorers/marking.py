"""Scores answers: handles answers that no scorer needs to see, and sends long work to a child.

Scorers read texts that anybody may have written. Even the most hostile short text takes only
milliseconds; longer texts are read in a child process, see `confined`.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from app.errors import FieldProblem, InvalidInputError
from app.items import Answer, FinishReason, ItemContent, Outcome, ScorerSpec
from app.sandbox.pool import SMALL_MEMORY
from app.scorers import remote
from app.scorers.base import Mark, NotScored, Scorer, ScorerParams
from app.scorers.calling import CallingScorer, Equipped
from app.scorers.confined import Failed, confined
from app.scorers.registry import default_registry
from app.scorers.remote import mark_of, sent
from app.scorers.text import is_blank

#: Most characters of the texts that are read in this process.
MAX_CHARS_HERE = 1_500
#: Seconds that the check of a scorer's parameters may take.
CHECK_TIMEOUT_S = 5.0


async def mark(scorer: Scorer, item: ItemContent, answer: Answer) -> Mark:
    """Score `answer` to `item` with `scorer`.

    Cut-off, filtered and empty answers get no score, because they say nothing about ability.

    Raises:
        BusyError: The helper processes have too much to do.
    """
    spec = _spec_of(scorer)
    if spec is None or not isinstance(scorer, ScorerParams):
        return await mark_here(scorer, item, answer)
    inner = scorer.inner
    if inner.memory <= SMALL_MEMORY and _size(spec, item, answer) <= MAX_CHARS_HERE:
        return await mark_here(scorer, item, answer)
    result = await confined(
        partial(remote.mark, spec=sent(spec), item=sent(item), answer=sent(answer)),
        timeout_s=inner.work_s,
        libraries=inner.libraries,
        memory=inner.memory,
    )
    return scorer.unmarked(result) if isinstance(result, Failed) else mark_of(result)


async def mark_here(scorer: Scorer, item: ItemContent, answer: Answer) -> Mark:
    """Score an answer as `mark` does, but in this process whatever the size of the texts."""
    if answer.finish is FinishReason.LENGTH:
        return NotScored(
            outcome=Outcome.TRUNCATED, reason="The answer was cut off at the token limit."
        )
    if answer.finish is FinishReason.CONTENT_FILTER:
        return NotScored(
            outcome=Outcome.REFUSED, reason="The endpoint's content filter withheld the answer."
        )
    if is_blank(answer.text):
        return NotScored(outcome=Outcome.UNPARSED, reason="The answer is empty.")
    return await scorer.score(item, answer)


async def examples(spec: ScorerSpec, item: ItemContent, seed: Sequence[int]) -> tuple[str, str]:
    """A right and a wrong answer to `item` by its scorer; `seed` determines all random choices.

    Raises:
        InvalidInputError: The item has no accepted answer, or none that its scorer accepts.
        UnknownNameError: No scorer of that name is installed.
        BusyError: The helper processes have too much to do.
    """
    scorer = default_registry().build_plain(spec)
    if not scorer.searches and _size(spec, item) <= MAX_CHARS_HERE:
        return default_registry().build(spec).examples(item, np.random.default_rng(seed))
    result = await confined(
        partial(remote.examples, spec=sent(spec), item=sent(item), seed=list(seed)),
        timeout_s=min(scorer.work_s, CHECK_TIMEOUT_S),
    )
    if isinstance(result, Failed):
        raise InvalidInputError(
            f"Scorer {spec.name!r} gave no answers to simulate: {result.reason}."
        )
    if isinstance(result, str):
        raise InvalidInputError(result)
    right, wrong = result
    return right, wrong


async def check(spec: ScorerSpec) -> None:
    """Refuse a scorer that cannot be used, after all checks, including those that take computing.

    Raises:
        UnknownNameError: No scorer of that name is installed.
        InvalidInputError: A parameter is unknown or has a wrong value; each is a problem.
        BusyError: The helper processes have too much to do.
    """
    scorer = default_registry().build_plain(spec)
    fault = None
    if _size(spec) <= MAX_CHARS_HERE or scorer.searches:
        try:
            await scorer.check()
        except ValueError as error:
            fault = str(error)
    else:
        result = await confined(partial(remote.check, spec=sent(spec)), timeout_s=CHECK_TIMEOUT_S)
        fault = result.reason if isinstance(result, Failed) else result
    if fault is not None:
        raise InvalidInputError(
            f"Wrong parameters for scorer {spec.name!r}: {fault}.",
            problems=[FieldProblem("/params", fault)],
        )


def _spec_of(scorer: Scorer) -> ScorerSpec | None:
    """Spec to send to a helper process; None if the scorer calls out or is not registered."""
    if isinstance(scorer, CallingScorer | Equipped) or not isinstance(scorer, ScorerParams):
        return None
    name = default_registry().name_of(type(scorer))
    return None if name is None else ScorerSpec(name, scorer.model_dump(mode="json"))


def _size(spec: ScorerSpec, item: ItemContent | None = None, answer: Answer | None = None) -> int:
    """Number of characters that a scorer may read."""
    texts = [] if item is None else [*item.choices, *item.target]
    if answer is not None:
        texts.append(answer.text)
    return sum(map(len, texts)) + _size_of(spec.params)


def _size_of(value: object) -> int:
    match value:
        case str():
            return len(value)
        case dict():
            return sum(map(_size_of, (*value.keys(), *value.values())))
        case list() | tuple():
            return sum(map(_size_of, value))
        case _:
            return 1
