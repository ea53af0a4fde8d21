import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    ("unit", "tags"),
    [
        *((unit, THINK) for unit in ("<think></think>", "<think>", "</think>", "a")),
        *((unit, ("a", "b")) for unit in ("ab", "a")),
        *((unit, ("a", "a")) for unit in ("ab", "a")),
        *((unit, ("aa", "aab")) for unit in ("a", "aab")),
    ],
)
def test_four_megabytes_of_marks_are_separated_in_a_moment(
    unit: str, tags: tuple[str, str]
) -> None:
    began = time.process_time()
    split_reasoning(unit * (4_000_000 // len(unit)), given=None, tags=tags, finish=STOP)
    assert time.process_time() - began < 5  # half a second at most; repeated cutting takes 30 s
