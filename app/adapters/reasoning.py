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
    kept = []
    at = 0  # a place in `raw`: to cut off what was read would copy the rest for every mark
    if opening and closing:
        close = raw.find(closing)
        if close >= 0 and raw.find(opening, 0, close) < 0:
            thoughts.append(raw[:close])
            at = close + len(closing)
        while (begin := raw.find(opening, at)) >= 0:
            kept.append(raw[at:begin])
            begin += len(opening)
            close = raw.find(closing, begin)
            if close < 0:
                return Split("", _joined([*thoughts, raw[begin:]]), FinishReason.LENGTH)
            thoughts.append(raw[begin:close])
            at = close + len(closing)
    if not thoughts:
        return Split(raw, None, finish)
    return Split("".join([*kept, raw[at:]]).strip(), _joined(thoughts), finish)


def _joined(thoughts: list[str]) -> str | None:
    return "\n\n".join(stripped for thought in thoughts if (stripped := thought.strip())) or None
