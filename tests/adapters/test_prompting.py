"""The turns of an item, and the texts of its options."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.likelihood import OptionText, option_texts
from app.adapters.prompting import (
    CHOICE_INSTRUCTION,
    FREE_INSTRUCTION,
    Layout,
    PromptStyle,
    build_messages,
    flatten,
)
from app.errors import InvalidInputError
from app.items import ItemContent, Message

COLOURS = ItemContent(
    prompt="Which is a colour?", choices=("seven", "red", "loud"), target=("red",)
)
SUM = ItemContent(prompt="What is 2 + 2?", target=("4",))
PLAIN = PromptStyle()


def test_a_multiple_choice_item_lists_its_options_by_letter_and_asks_for_one() -> None:
    assert build_messages(COLOURS, PLAIN) == (
        Message("user", "Which is a colour?\n\nA. seven\nB. red\nC. loud\n\n" + CHOICE_INSTRUCTION),
    )


def test_a_free_answer_item_asks_for_a_last_line() -> None:
    (turn,) = build_messages(SUM, PLAIN)
    assert turn == Message("user", "What is 2 + 2?\n\n" + FREE_INSTRUCTION)


def test_system_prompt_and_few_shot_turns_stand_before_the_item() -> None:
    shots = (Message("user", "What is 1 + 1?"), Message("assistant", "Answer: 2"))
    style = PromptStyle(system="Be brief.", prefix=shots, free_instruction="")
    assert build_messages(SUM, style) == (
        Message("system", "Be brief."),
        *shots,
        Message("user", "What is 2 + 2?"),
    )


def test_an_item_with_messages_of_its_own_passes_through() -> None:
    turns = (
        Message("system", "You are a poet."),
        Message("user", "A word?"),
        Message("assistant", "Yes?"),
        Message("user", "Rhyme with moon."),
    )
    item = ItemContent(messages=turns, target=("June",))
    style = PromptStyle(system="Be brief.")
    assert build_messages(item, style) == turns
    assert build_messages(ItemContent(messages=turns[1:], target=("June",)), style) == (
        Message("system", "Be brief."),
        *turns[1:],
    )


def test_options_join_the_last_user_turn_of_an_item_with_messages() -> None:
    turns = (Message("user", "Look."), Message("assistant", "I see."), Message("user", "Which?"))
    item = ItemContent(messages=turns, choices=("x", "y"), target=("y",))
    style = PromptStyle(choice_instruction="Pick one.")
    assert build_messages(item, style) == (
        *turns[:2],
        Message("user", "Which?\n\nA. x\nB. y\n\nPick one."),
    )


def test_flattened_turns_are_labelled_and_end_with_an_open_answer() -> None:
    turns = (
        Message("system", "Be brief."),
        Message("user", "1 + 1?"),
        Message("assistant", "2"),
        Message("user", "2 + 2?"),
    )
    assert flatten(turns) == (
        "Be brief.\n\nQuestion: 1 + 1?\n\nAnswer: 2\n\nQuestion: 2 + 2?\n\nAnswer:"
    )


def texts(most: int, *, least: int = 0) -> st.SearchStrategy[str]:
    storable = st.characters(codec="utf-8", exclude_characters="\0")
    return st.text(storable, min_size=least, max_size=most)


STYLES = st.builds(
    PromptStyle,
    system=texts(5),
    prefix=st.lists(
        st.builds(Message, st.sampled_from(["user", "assistant"]), texts(5)), max_size=3
    ).map(tuple),
    choice_instruction=texts(5),
    free_instruction=texts(5),
    mode=st.sampled_from(["generate", "loglikelihood"]),
    blank=texts(1),
    stop=st.lists(texts(2, least=1), max_size=2).map(tuple),
    layout=st.builds(Layout, question=texts(2)),
)


@given(STYLES, STYLES)
def test_two_styles_share_a_template_hash_only_if_they_are_equal(
    first: PromptStyle, second: PromptStyle
) -> None:
    assert (first.template_hash == second.template_hash) == (first == second)


@given(STYLES)
def test_a_style_survives_json(style: PromptStyle) -> None:
    assert PromptStyle.from_dict(style.to_dict()) == style


def test_an_empty_object_is_the_default_style() -> None:
    assert PromptStyle.from_dict({}) == PLAIN


@pytest.mark.parametrize(
    ("data", "pointer"),
    [
        ({"sytem": "x"}, "/sytem"),
        ({"system": None}, "/system"),
        ({"choice_instruction": 3}, "/choice_instruction"),
        ({"prefix": "Q: A"}, "/prefix"),
        (
            {"prefix": [{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}]},
            "/prefix/1/role",
        ),
        ({"prefix": [{"role": "user"}]}, "/prefix/0/content"),
        ({"mode": "guess"}, "/mode"),
        ({"normalise": ["bytes"]}, "/normalise"),
        ({"stop": "."}, "/stop"),
        ({"stop": [""]}, "/stop/0"),
        ({"layout": "plain"}, "/layout"),
        ({"layout": {"label": ""}}, "/layout/label"),
        ({"layout": {"gap": 1}}, "/layout/gap"),
    ],
)
def test_a_style_that_cannot_be_used_names_the_place(data: dict[str, object], pointer: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        PromptStyle.from_dict(data)
    assert [problem.pointer for problem in caught.value.problems] == [pointer]


def test_default_fields_of_a_style_do_not_change_its_hash() -> None:
    """Hashes of sessions and versions stored before a field existed stay comparable."""
    first = "0b4867f9"
    assert PLAIN.template_hash.startswith(first)


SHOTS = (
    Message("user", "1 + 1?"),
    Message("assistant", "2"),
    Message("user", "1 + 2?"),
    Message("assistant", "3"),
)


def test_fewer_examples_are_the_first_ones_and_more_than_there_are_is_refused() -> None:
    style = PromptStyle(prefix=SHOTS)
    assert style.shots == 2
    assert style.with_shots(1).prefix == SHOTS[:2]
    assert style.with_shots(0).prefix == ()
    assert style.with_shots(2) == style
    with pytest.raises(InvalidInputError, match="at most the 2 examples"):
        style.with_shots(3)


def test_a_plain_layout_adds_nothing_to_what_was_asked() -> None:
    layout = Layout(question="", answer="", gap=" ", separator="\n\n")
    turns = (*SHOTS[:2], Message("user", "A cat sat on"))
    assert flatten(turns, layout) == "1 + 1? 2\n\nA cat sat on"
    assert layout.stop == ()


PAIR = ItemContent(prompt="Which is a colour?", choices=("seven", "größer"), target=("seven",))
SHOT = (Message("user", "Which is a number?"), Message("assistant", "two"))
TELLING = PromptStyle(mode="loglikelihood")


def test_options_follow_the_open_answer_and_are_not_listed() -> None:
    style = PromptStyle(
        mode="loglikelihood", prefix=SHOT, layout=Layout(answer="\nAnswer:"), system="Think."
    )
    context = (
        "Think.\n\nQuestion: Which is a number?\nAnswer: two\n\n"
        "Question: Which is a colour?\nAnswer:"
    )
    assert option_texts(PAIR, style) == (
        OptionText(context, " seven", "seven"),
        OptionText(context, " größer", "größer"),
    )


def test_an_option_in_the_blank_makes_the_rest_of_the_sentence_more_or_less_likely() -> None:
    item = ItemContent(
        prompt="The cup did not fit the box, for the _ was too big.",
        choices=("cup", "box"),
        target=("cup",),
    )
    style = PromptStyle(
        mode="loglikelihood",
        blank="_",
        layout=Layout(question="", answer="", gap=" "),
        prefix=(Message("user", "He ate the _ with joy."), Message("assistant", "pie")),
    )
    start = "He ate the pie with joy.\n\nThe cup did not fit the box, for the "
    assert option_texts(item, style) == (
        OptionText(f"{start}cup", " was too big.", "was too big."),
        OptionText(f"{start}box", " was too big.", "was too big."),
    )


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (("a", "b", "a"), "Options A and C of the item are the same text"),
        (("a", "  "), "Option B of the item is empty"),
        ((), "no options to compare"),
    ],
)
def test_options_with_equal_likelihood_are_reported(choices: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        option_texts(ItemContent(prompt="?", choices=choices, target=("a",)), TELLING)


@pytest.mark.parametrize("prompt", ["No blank here.", "The blank ends it: _"])
def test_a_question_without_its_blank_is_reported(prompt: str) -> None:
    item = ItemContent(prompt=prompt, choices=("a", "b"), target=("a",))
    with pytest.raises(InvalidInputError, match="a blank '_' in the question, with text after it"):
        option_texts(item, PromptStyle(mode="loglikelihood", blank="_"))
