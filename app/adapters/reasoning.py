"""Separate a model's thoughts from its answer."""

from dataclasses import dataclass

from app.items import FinishReason


@dataclass(frozen=True, slots=True)
class Split:
    """Visible answer, thoughts, and whether a thought was left unfinished."""

    text: str
    reasoning: str | None
    finish: FinishReason


def split_reasoning(
    raw: str, *, given: str | None, tags: tuple[str, str], finish: FinishReason
) -> Split:
    """Cut every marked thought out of `raw`.

    A closing mark without an opening one ends a thought that began with the text: some chat
    templates put the opening mark into the prompt. An opening mark without a closing one means
    that the thought was cut off, whatever the endpoint said: nothing of it is an answer.

    Args:
        raw: The text as it came.
        given: Reasoning that came in a field of its own.
        tags: Opening and closing mark.
        finish: What the endpoint said.
    """
    opening, closing = tags
    thoughts = [given] if given else []
    visible = raw
    if opening and closing:
        head, mark, tail = visible.partition(closing)
        if mark and opening not in head:
            thoughts.append(head)
            visible = tail
        kept = []
        while True:
            before, mark, rest = visible.partition(opening)
            kept.append(before)
            if not mark:
                break
            thought, mark, visible = rest.partition(closing)
            thoughts.append(thought)
            if not mark:
                return Split("", _joined(thoughts), FinishReason.LENGTH)
        visible = "".join(kept)
    if not thoughts:
        return Split(raw, None, finish)
    return Split(visible.strip(), _joined(thoughts), finish)


def _joined(thoughts: list[str]) -> str | None:
    return "\n\n".join(stripped for thought in thoughts if (stripped := thought.strip())) or None
