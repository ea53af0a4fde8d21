"""Scores answers: handles answers that no scorer needs to see, and sends long work to a child.

Scorers read texts that anybody may have written. Even the most hostile short text takes only
milliseconds; longer texts are read in a child process, see `confined`.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import asdict
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np
from pydantic import JsonValue, TypeAdapter

from app.errors import ExamineeError, FieldProblem, InvalidInputError, ScorerBudgetError
from app.items import Answer, FinishReason, ItemContent, Outcome, ScorerSpec
from app.sandbox.pool import SMALL_MEMORY
from app.scorers.base import Mark, NotScored, Scored, Scorer
from app.scorers.calling import CallingScorer, Tools
from app.scorers.confined import Failed, confined
from app.scorers.registry import build, default_registry
from app.scorers.text import is_blank

T = TypeVar("T")
#: A scorer, an item, an answer or a mark, in the form that is sent to a helper process.
Sent = dict[str, JsonValue]

#: Most characters of the texts that are read in this process.
MAX_CHARS_HERE = 1_500
#: Seconds that the check of a scorer's parameters may take.
CHECK_TIMEOUT_S = 5.0


async def mark(
    scorer: Scorer, item: ItemContent, answer: Answer, tools: Tools | None = None
) -> Mark:
    """Score `answer` to `item` with `scorer`; a scorer that calls out needs `tools`.

    Cut-off, filtered and empty answers get no score, because they say nothing about ability.

    Raises:
        BusyError: The helper processes have too much to do.
    """
    name = default_registry().name_of(type(scorer))
    if name is None or isinstance(scorer, CallingScorer):
        return await mark_here(scorer, item, answer, tools)
    spec = ScorerSpec(name, scorer.model_dump(mode="json"))
    inner = scorer.inner
    if inner.memory <= SMALL_MEMORY and _size(spec, item, answer) <= MAX_CHARS_HERE:
        return await mark_here(scorer, item, answer)
    result = await confined(
        partial(mark_sent, spec=asdict(spec), item=asdict(item), answer=asdict(answer)),
        timeout_s=inner.work_s,
        libraries=inner.libraries,
        memory=inner.memory,
    )
    return scorer.unmarked(result) if isinstance(result, Failed) else _mark_of(result)


async def mark_here(
    scorer: Scorer, item: ItemContent, answer: Answer, tools: Tools | None = None
) -> Mark:
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
    if not isinstance(scorer, CallingScorer) or tools is None:
        return await scorer.score(item, answer)
    try:
        return await scorer.score_with(tools, item, answer)
    except (ExamineeError, ScorerBudgetError) as error:  # a failure to call out is no mark
        return scorer.failed(error)


async def examples(spec: ScorerSpec, item: ItemContent, seed: Sequence[int]) -> tuple[str, str]:
    """A right and a wrong answer to `item` by its scorer; `seed` determines all random choices.

    Raises:
        InvalidInputError: The item has no accepted answer, or none that its scorer accepts.
        UnknownNameError: No scorer of that name is installed.
        BusyError: The helper processes have too much to do.
    """
    scorer = build(spec)
    if not scorer.searches and _size(spec, item) <= MAX_CHARS_HERE:
        return scorer.examples(item, np.random.default_rng(seed))
    result = await confined(
        partial(examples_sent, spec=asdict(spec), item=asdict(item), seed=list(seed)),
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
    scorer = build(spec)
    fault = None
    if _size(spec) <= MAX_CHARS_HERE or scorer.searches:
        try:
            await scorer.check()
        except ValueError as error:
            fault = str(error)
    else:
        result = await confined(partial(check_sent, spec=asdict(spec)), timeout_s=CHECK_TIMEOUT_S)
        fault = result.reason if isinstance(result, Failed) else result
    if fault is not None:
        raise InvalidInputError(
            f"Wrong parameters for scorer {spec.name!r}: {fault}.",
            problems=[FieldProblem("/params", fault)],
        )


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


_SCORER, _ITEM, _ANSWER = TypeAdapter(ScorerSpec), TypeAdapter(ItemContent), TypeAdapter(Answer)
_SCORED, _NOT_SCORED = TypeAdapter(Scored), TypeAdapter(NotScored)


def _mark_of(reply: Sent) -> Mark:
    return (_SCORED if "score" in reply else _NOT_SCORED).validate_python(reply)


# The functions below run in helper processes.


def mark_sent(*, spec: Sent, item: Sent, answer: Sent) -> Sent:
    """Score an answer."""
    scorer = build(_SCORER.validate_python(spec))
    told = _ITEM.validate_python(item), _ANSWER.validate_python(answer)
    return asdict(_run(mark_here(scorer, *told)))


def examples_sent(*, spec: Sent, item: Sent, seed: list[int]) -> str | tuple[str, str]:
    """A right and a wrong answer, or the reason why there are none."""
    try:
        scorer = build(_SCORER.validate_python(spec))
        return scorer.examples(_ITEM.validate_python(item), np.random.default_rng(seed))
    except InvalidInputError as error:
        return error.detail


def check_sent(*, spec: Sent) -> str | None:
    """The fault of a scorer's parameters; None if they are valid."""
    try:
        _run(build(_SCORER.validate_python(spec)).check())
    except ValueError as error:
        return str(error)
    return None


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _run(work: Coroutine[Any, Any, T]) -> T:
    return _loop().run_until_complete(work)
