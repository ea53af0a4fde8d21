"""Functions that score in a helper process, and the JSON form of their arguments and results."""

import asyncio
from collections.abc import Coroutine
from dataclasses import asdict
from functools import cache
from typing import Any, TypeVar

import numpy as np
from pydantic import JsonValue, TypeAdapter

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, ScorerSpec
from app.scorers.base import Mark, NotScored, Scored
from app.scorers.registry import default_registry

T = TypeVar("T")
#: JSON form in which a scorer, an item, an answer or a mark is sent.
Sent = dict[str, JsonValue]

_SCORER, _ITEM, _ANSWER = TypeAdapter(ScorerSpec), TypeAdapter(ItemContent), TypeAdapter(Answer)
_SCORED, _NOT_SCORED = TypeAdapter(Scored), TypeAdapter(NotScored)


def sent(value: ScorerSpec | ItemContent | Answer) -> Sent:
    """The JSON form of a value, as an argument of `mark`, `examples` or `check`."""
    match value:
        case ScorerSpec():
            return {"name": value.name, "params": dict(value.params)}
        case ItemContent():
            return asdict(value)
        case Answer():
            return {"text": value.text, "finish": value.finish.value}


def mark_of(reply: Sent) -> Mark:
    """The mark in a helper process's reply."""
    return (_SCORED if "score" in reply else _NOT_SCORED).validate_python(reply)


def mark(*, spec: Sent, item: Sent, answer: Sent) -> Sent:
    """Score an answer."""
    from app.scorers.marking import mark_here

    scorer = default_registry().build(_SCORER.validate_python(spec))
    told = _ITEM.validate_python(item), _ANSWER.validate_python(answer)
    return asdict(_run(mark_here(scorer, *told)))


def examples(*, spec: Sent, item: Sent, seed: list[int]) -> str | tuple[str, str]:
    """A right and a wrong answer, or the reason why there are none."""
    try:
        scorer = default_registry().build(_SCORER.validate_python(spec))
        return scorer.examples(_ITEM.validate_python(item), np.random.default_rng(seed))
    except InvalidInputError as error:
        return error.detail


def check(*, spec: Sent) -> str | None:
    """What is wrong with a scorer's parameters; None if nothing is."""
    try:
        _run(default_registry().build_plain(_SCORER.validate_python(spec)).check())
    except ValueError as error:
        return str(error)
    return None


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _run(work: Coroutine[Any, Any, T]) -> T:
    return _loop().run_until_complete(work)
