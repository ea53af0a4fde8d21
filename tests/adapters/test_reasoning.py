from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from app.adapters.endpoint import split_reasoning
from app.items import FinishReason

THINK = ("<think>", "</think>")
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


@pytest.mark.parametrize(
    ("raw", "given", "tags", "text", "reasoning"),
    [
        ("B", None, THINK, "B", None),
        ("B", "It is not A.", THINK, "B", "It is not A."),
        ("<think>Is it A?</think>\n\nB", None, THINK, "B", "Is it A?"),
        ("<think>\n\n</think>\n\nB", None, THINK, "B", None),
        ("Is it A? No.\n</think>\nB", None, THINK, "B", "Is it A? No."),
        ("<think>one</think>So:<think>two</think> B", None, THINK, "So: B", "one\n\ntwo"),
        ("rest of one</think>So <think>two</think>B", None, THINK, "So B", "rest of one\n\ntwo"),
        ("  B  ", None, THINK, "  B  ", None),
        ("<think>B", None, ("", ""), "<think>B", None),
    ],
)
def test_marked_thoughts_are_taken_out_of_the_answer(
    raw: str, given: str | None, tags: tuple[str, str], text: str, reasoning: str | None
) -> None:
    split = split_reasoning(raw, given=given, tags=tags, finish=STOP)
    assert (split.text, split.reasoning, split.finish) == (text, reasoning, STOP)


@pytest.mark.parametrize("finish", [STOP, LENGTH, FinishReason.UNKNOWN])
@pytest.mark.parametrize("raw", ["<think>Could be A", "<think>a</think>Then <think>B, or"])
def test_an_unfinished_thought_is_a_cut_off_answer_whatever_the_endpoint_said(
    raw: str, finish: FinishReason
) -> None:
    split = split_reasoning(raw, given=None, tags=THINK, finish=finish)
    assert (split.text, split.finish) == ("", LENGTH)
    assert split.reasoning


def _reference(raw: str, opening: str, closing: str) -> tuple[str, list[str], bool]:
    """Return the visible text, the thoughts, and whether one is unfinished, by repeated cutting."""
    thoughts, kept, rest = [], [], raw
    head, mark, tail = rest.partition(closing)
    if mark and opening not in head:
        thoughts, rest = [head], tail
    while opening in rest:
        before, _, rest = rest.partition(opening)
        thought, mark, rest = rest.partition(closing)
        kept.append(before)
        thoughts.append(thought)
        if not mark:
            return "", thoughts, True
    return "".join([*kept, rest]), thoughts, False


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "a", "ab", "b", " ", "A"]), max_size=30),
    st.sampled_from([THINK, ("a", "b"), ("a", "a"), ("a", "ab"), ("aab", "aa"), ("<", "</think>")]),
)
def test_marks_in_any_spelling_separate_as_repeated_cutting_does(
    parts: list[str], tags: tuple[str, str]
) -> None:
    raw = "".join(parts)
    visible, thoughts, is_unfinished = _reference(raw, *tags)
    split = split_reasoning(raw, given=None, tags=tags, finish=STOP)
    assert split.text == (visible.strip() if thoughts else raw)
    assert (split.reasoning or "") == "\n\n".join(filter(None, map(str.strip, thoughts)))
    assert split.finish == (LENGTH if is_unfinished else STOP)


class _Text(str):
    """Text that counts the characters that are searched or copied."""

    n_read = 0

    @override
    def find(self, sought: str, begin: int = 0, end: int | None = None) -> int:  # type: ignore[override]  # as it is called here
        end = len(self) if end is None else end
        found = super().find(sought, begin, end)
        self.n_read += (end if found < 0 else found + len(sought)) - begin
        return found

    @override
    def __getitem__(self, part: Any) -> str:
        found = super().__getitem__(part)
        self.n_read += len(found)
        return found


@pytest.mark.parametrize(
    ("unit", "tags"),
    [
        *((unit, THINK) for unit in ("<think></think>", "<think>", "</think>", "a")),
        *((unit, ("a", "b")) for unit in ("ab", "a")),
        *((unit, ("a", "a")) for unit in ("ab", "a")),
        *((unit, ("aa", "aab")) for unit in ("a", "aab")),
    ],
)
def test_each_character_is_read_a_few_times_however_many_marks_there_are(
    unit: str, tags: tuple[str, str]
) -> None:
    raw = _Text(unit * (40_000 // len(unit)))
    split_reasoning(raw, given=None, tags=tags, finish=STOP)
    assert len(raw) / 2 < raw.n_read < 5 * len(raw)
