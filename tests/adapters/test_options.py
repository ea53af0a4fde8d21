import pytest

from app.adapters.likelihood import OptionText, option_texts
from app.adapters.prompting import Layout, PromptStyle
from app.errors import InvalidInputError
from app.items import ItemContent, Message

COLOURS = ItemContent(prompt="Which is a colour?", choices=("seven", "größer"), target=("seven",))
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
    assert option_texts(COLOURS, style) == (
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
