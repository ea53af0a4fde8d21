"""Work of scorers as a helper process does it, and as it is sent there and back in JSON."""

import asyncio
from collections.abc import Coroutine
from dataclasses import asdict
from functools import cache
from typing import Any, TypeVar

import numpy as np

from app.errors import InvalidInputError
from app.items import Answer, FinishReason, ItemContent, Message, Outcome, ScorerSpec
from app.scorers.base import Mark, NotScored, Scored
from app.scorers.registry import default_registry

T = TypeVar("T")
Json = dict[str, Any]


def sent(spec: ScorerSpec, item: ItemContent | None = None, answer: Answer | None = None) -> Json:
    """A job's arguments."""
    arguments: Json = {"scorer": spec.name, "params": dict(spec.params)}
    if item is not None:
        arguments["item"] = asdict(item)
    if answer is not None:
        arguments["answer"] = {"text": answer.text, "finish": answer.finish.value}
    return arguments


def mark_of(reply: Json) -> Mark:
    """The mark that a helper process made."""
    if "score" in reply:
        return Scored(**reply)
    return NotScored(**{**reply, "outcome": Outcome(reply["outcome"])})


def mark(job: Json) -> Json:
    """Mark an answer."""
    from app.scorers.marking import mark_here

    answer = Answer(text=job["answer"]["text"], finish=FinishReason(job["answer"]["finish"]))
    made = _run(mark_here(default_registry().build(_spec(job)), _item(job), answer))
    return asdict(made)


def examples(job: Json) -> Json:
    """A right and a wrong answer, or why there are none."""
    try:
        scorer = default_registry().build(_spec(job))
        return {"examples": scorer.examples(_item(job), np.random.default_rng(job["seed"]))}
    except InvalidInputError as error:
        return {"fault": error.detail}


def check(job: Json) -> Json:
    """What is wrong with a scorer's parameters, if anything is."""
    try:
        _run(default_registry().build_plain(_spec(job)).check())
    except ValueError as error:
        return {"fault": str(error)}
    return {}


def _spec(job: Json) -> ScorerSpec:
    return ScorerSpec(job["scorer"], job["params"])


def _item(job: Json) -> ItemContent:
    item = job["item"]
    return ItemContent(
        prompt=item["prompt"],
        messages=tuple(Message(**message) for message in item["messages"]),
        choices=tuple(item["choices"]),
        target=tuple(item["target"]),
    )


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def _run(work: Coroutine[Any, Any, T]) -> T:
    return _loop().run_until_complete(work)
