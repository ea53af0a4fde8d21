"""What an output item of OpenAI Evals was asked: the turns of its sample, or its own fields."""

from collections.abc import Mapping
from typing import Any

from app.exchange.results.asked_item import (
    AskedItem,
    UnusableRowError,
    temperature_of,
    token_limit,
    tokens_of,
)
from app.exchange.results.lm_eval_items import turns_of
from app.exchange.results.openai_evals import item_in

#: Fields that hold the question, where the sample does not say what was sent.
_QUESTION = ("messages", "input", "prompt", "question")
#: Fields that hold the right answer; the first that is there counts.
_TARGET = (
    "ideal", "target", "answer", "expected", "expected_output", "reference", "ground_truth",
    "correct_answer", "correct_label", "label",
)  # fmt: skip


def asked_by(row: Mapping[str, Any]) -> AskedItem:
    """What a row says was sent.

    Raises:
        UnusableRowError: It does not say.
    """
    item, sample = item_in(row), row["sample"]
    found = next((item[name] for name in _TARGET if item.get(name) not in (None, "")), None)
    targets = tuple(map(str, found if isinstance(found, list) else [found] * (found is not None)))
    asked = sent(row)
    if isinstance(asked, str) and asked.strip():
        return AskedItem(prompt=asked, targets=targets, **_drawn(sample))
    if isinstance(asked, list) and asked:
        return AskedItem(messages=turns_of(asked), targets=targets, **_drawn(sample))
    raise UnusableRowError(
        f"neither its sample's input nor {' or '.join(_QUESTION)} says what was asked"
    )


def sent(row: Mapping[str, Any]) -> Any:
    """The turns that were sent, their parts of text joined, or the text of the question."""
    item = item_in(row)
    asked = row["sample"].get("input") or next(
        (item[name] for name in _QUESTION if item.get(name)), None
    )
    if not isinstance(asked, list):
        return asked
    return [_plain(turn) for turn in asked]


def written(row: Mapping[str, Any]) -> str | None:
    """The answer as the model wrote it."""
    sample = row["sample"]
    if isinstance(text := sample.get("output_text"), str):
        return text
    turns = sample.get("output")
    last = _plain(turns[-1]) if isinstance(turns, list) and turns else None
    text = last.get("content") if isinstance(last, Mapping) else None
    return text if isinstance(text, str) else None


def used(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """Tokens of prompt and answer, if the sample says it."""
    return tokens_of(row["sample"].get("usage"), "prompt_tokens", "completion_tokens")


def _plain(turn: Any) -> Any:
    """A turn whose content is one text, where it came in parts of text."""
    if not isinstance(turn, Mapping):
        return turn
    content = turn.get("content")
    if isinstance(content, list) and all(
        isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content
    ):
        content = "".join(part["text"] for part in content)
    role = turn.get("role")
    return {"role": "system" if role == "developer" else role, "content": content}


def _drawn(sample: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "max_tokens": token_limit(sample.get("max_completion_tokens")),
        "temperature": temperature_of(sample.get("temperature")),
    }
