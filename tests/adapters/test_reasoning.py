import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.reasoning import split_reasoning
from app.items import FinishReason

THINK = ("<think>", "</think>")
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


@pytest.mark.parametrize(
    ("raw", "text", "reasoning"),
    [
        ("B", "B", None),
        ("<think>Is it A?</think>\n\nB", "B", "Is it A?"),
        ("<think>\n\n</think>\n\nB", "B", None),
        ("Is it A? No.\n</think>\nB", "B", "Is it A? No."),
        ("<think>one</think>So:<think>two</think> B", "So: B", "one\n\ntwo"),
        ("rest of one</think>So <think>two</think>B", "So B", "rest of one\n\ntwo"),
        ("  B  ", "  B  ", None),
    ],
)
def test_marked_thoughts_are_taken_out_of_the_answer(
    raw: str, text: str, reasoning: str | None
) -> None:
    split = split_reasoning(raw, given=None, tags=THINK, finish=STOP)
    assert (split.text, split.reasoning, split.finish) == (text, reasoning, STOP)


@pytest.mark.parametrize("finish", [STOP, LENGTH, FinishReason.UNKNOWN])
@pytest.mark.parametrize("raw", ["<think>Could be A", "<think>a</think>Then <think>B, or"])
def test_an_unfinished_thought_is_a_cut_off_answer_whatever_the_endpoint_said(
    raw: str, finish: FinishReason
) -> None:
    split = split_reasoning(raw, given=None, tags=THINK, finish=finish)
    assert (split.text, split.finish) == ("", LENGTH)
    assert split.reasoning


def test_a_reasoning_field_is_kept_beside_the_answer() -> None:
    split = split_reasoning("B", given="It is not A.", tags=THINK, finish=STOP)
    assert (split.text, split.reasoning) == ("B", "It is not A.")


def test_marks_are_configurable() -> None:
    split = split_reasoning(
        "[THINK]a[/THINK]B", given=None, tags=("[THINK]", "[/THINK]"), finish=STOP
    )
    assert (split.text, split.reasoning) == ("B", "a")


def test_empty_marks_leave_the_text_alone() -> None:
    split = split_reasoning("<think>B", given=None, tags=("", ""), finish=STOP)
    assert (split.text, split.reasoning, split.finish) == ("<think>B", None, STOP)


@given(st.lists(st.sampled_from(["<think>", "</think>", "B", " so ", "\n"]), max_size=9))
def test_no_mark_survives_in_a_finished_answer_unless_stray(parts: list[str]) -> None:
    split = split_reasoning("".join(parts), given=None, tags=THINK, finish=STOP)
    assert "<think>" not in split.text
    if split.finish is LENGTH:
        assert split.text == ""
