from typing import Any

import pytest

from app.items import Answer, ItemContent, ScorerSpec
from app.scorers import NotScored, Scored, build, mark
from tests.scorers.claims import texts

CITIES = ItemContent(
    prompt="Where does the Thames end?",
    choices=("Paris", "London", "New York", "York"),
    target=("London",),
)
NUMBERS = ItemContent(prompt="5 x 5?", choices=("5", "25", "2.5", "125", "-25"), target=("25",))
CATS = ItemContent(
    prompt="What sat on the mat?",
    choices=("A cat", "The dog", "I did", "A cat and a dog"),
    target=("A cat",),
)
GRADES = ItemContent(prompt="Which grade?", choices=("B", "A-", "C"), target=("A-",))
MARKS = ItemContent(prompt="Which mark?", choices=("?", "a full stop"), target=("?",))
GENES = ItemContent(prompt="Which genotype?", choices=("TT", "Tt", "tt", "None"), target=("Tt",))
TWICE = ItemContent(prompt="Is it?", choices=("Yes", "Yes.", "No"), target=("No",))
SCORER = build(ScorerSpec("choice"))


async def _read(text: str, item: ItemContent = CITIES) -> tuple[str | None, str | None]:
    """Return the letter read, or the outcome, and the extractor."""
    result = await mark(SCORER, item, Answer(text=text))
    if isinstance(result, NotScored):
        return result.outcome.value, None
    return result.extracted, result.extractor


@pytest.mark.parametrize(
    ("letter", "extractor", "block"),
    [
        (
            "B",
            "statement",
            r"""
The answer is (B). | Answer: B | answer: b | ANSWER IS B | **Answer: B** | **Answer:** B
The correct answer is **B) London**. | The correct option is B | The right choice is: B
The answer is option B. | The answer is clearly B | The answer to the question is B
Final answer:\n\n**B** | The answer is London. | B is correct, A is wrong
So option B is the right answer | <answer>B</answer> | The answer is "B". | The answer is “B”
Thus the answer is $B$. | {"answer": "B"} | Answer - B | The answer I choose is B
The answer is not A but B | Antwort: B | Die Antwort ist B. | La respuesta correcta es B
La réponse est (B) | 答案：B | 答案是B。 | 答えはBです | Ответ: B
""",
        ),
        ("C", "statement", "The answer is New York."),
        (
            "B",
            "boxed",
            r"""
\boxed{B} | $\boxed{\text{B}}$ | \boxed{b} | \boxed{London} | \boxed{A} no: \boxed{B}
""",
        ),
        (
            "B",
            "line",
            r"""
B | b | B. | B) | (B) | `B` | **B** | ***B*** | "B" | $B$ | ### B | Ｂ | 𝐁 | London | london.
B) London | B. It flows through it. | Think of England.\nB | B\n\nThe Thames is in England.
B because A is in France | A) no\nB) yes\n\nB
""",
        ),
        ("B", "line", "\u200bB\u200b"),
        (
            "B",
            "preference",
            """
I'd go with B | It must be B! | A is wrong, C is wrong, so B. | Hence, B. | Answer B
It's not A, so it must be B
""",
        ),
        (
            "B",
            "mention",
            "I think (B) fits best here | I think **B** fits best here | I think B) fits best",
        ),
        ("A", "preference", "I'd go with (A) first"),
        ("B", "text", "It ends near London, of course | It's London, not Paris"),
        ("C", "text", "It flows to New York, I believe"),
    ],
)
async def test_the_option_is_read_from(letter: str, extractor: str, block: str) -> None:
    assert [text for text in texts(block) if await _read(text) != (letter, extractor)] == []


EXPLICIT = """
The answer is A. No wait, the answer is B. | It could be A or C. The answer is B.
Option A looks good. Answer: B | The answer is B. Option A is a distractor.
The answer is B, not A. | The answer is B and A is wrong | The answer is not A. The answer is B.
A is incorrect. B is correct. | Sure! The answer is B | The answer is a letter: B
"""

NOTHING = r"""
Sure, happy to help. | A river ends in the sea. | The answer is a city | Answer: A city in England
I think so | Vitamin C is good for you | I would write it in C++ | It was 20 °C there
See the U.S.A. first | B's mother | E | The answer is E | (Z) | not B | The answer is not B
It isn't B. | B is incorrect. | Definitely not London | A or B | A, B | The answer is A or B
The answer is either A or B | Answer: A and C | It is (A) or perhaps (B) | B) Paris
The answer is London or Paris | A) Paris\nB) London\nC) New York\nD) York | A\nB\nC\nD
A: no. B: yes. C: no. D: no. | Thus C is the speed of light | Both A and B are correct. | BB
I don't know. | 🤷 | \boxed{} | \boxed{B | I doubt B is correct. | Hm.\nb | Hence b.
I'd say A city in England | I think (B) doesn't fit | Surely not (B)
"""


@pytest.mark.parametrize(
    ("item", "letter", "block"),
    [
        (CITIES, "unparsed", NOTHING),
        (CITIES, "B", EXPLICIT),
        (CITIES, "B", "Hm.\\n(b) | B. Plan b is wrong."),
        (NUMBERS, "B", "25 | The answer is 25. | It comes to 25 in all"),
        (NUMBERS, "C", "The answer is 2.5"),
        (NUMBERS, "D", "The answer is 125"),
        (NUMBERS, "E", "The answer is -25"),
        (NUMBERS, "unparsed", "It comes to 1250 in all | 5 * 5 makes 25"),
        (CATS, "A", "A cat | The answer is A | The answer is A because it purrs | A cat sat there"),
        (CATS, "B", "Answer: The dog"),
        (CATS, "C", "I did"),
        (CATS, "D", "A cat and a dog sat there | The answer is a cat and a dog"),
        (GRADES, "B", "The answer is A-. | The answer is B"),
        (MARKS, "unparsed", "The answer is ..."),
        (GENES, "B", "The answer is Tt | Tt | It must be Tt, I think"),
        (GENES, "D", "None | The answer is NONE | It must be NONE, I think"),
        (GENES, "unparsed", "The answer is tT | It must be tT, I think"),
        (TWICE, "unparsed", "The answer is yes | Yes | It is yes, I think"),
        (TWICE, "C", "The answer is NO | no"),
    ],
)
async def test_the_explicit_claim_counts_whatever_the_options_are(
    item: ItemContent, letter: str, block: str
) -> None:
    assert [text for text in texts(block) if (await _read(text, item))[0] != letter] == []


ROOMS = tuple(f"room {number}" for number in range(27))
EVEN = ItemContent(prompt="Even?", choices=("1", "2", "4"), target=("2", "4"))
REFUSING = "I'm sorry, but I can't browse maps. The answer is B."


@pytest.mark.parametrize(
    ("item", "text", "params", "score", "extracted", "extractor"),
    [
        (CITIES, "B", {}, 1.0, "B", "line"),
        (CITIES, "C", {}, 0.0, "C", "line"),
        (EVEN, "C", {}, 1.0, "C", "line"),
        (CITIES, REFUSING, {}, 1.0, "B", "statement"),
        (CITIES, "The answer is B.\nC", {}, 1.0, "B", "statement"),
        (CITIES, "The answer is B.\nC", {"extractors": ["line", "statement"]}, 0.0, "C", "line"),
    ],
)
async def test_the_letter_of_the_first_extractor_is_scored(
    item: ItemContent,
    text: str,
    params: dict[str, Any],
    score: float,
    extracted: str,
    extractor: str,
) -> None:
    result = await mark(build(ScorerSpec("choice", params)), item, Answer(text=text))
    assert result == Scored(score=score, extracted=extracted, extractor=extractor)


@pytest.mark.parametrize(
    ("extractor", "text"), [("line", "Hm.\nB. London\nOr so."), ("boxed", "Answer: B")]
)
async def test_only_the_chosen_extractors_run(extractor: str, text: str) -> None:
    strict = build(ScorerSpec("choice", {"extractors": [extractor]}))
    assert isinstance(await mark(strict, CITIES, Answer(text=text)), NotScored)


@pytest.mark.parametrize(
    ("choices", "target", "letter"),
    [(("1", "2"), "3", "error"), (ROOMS[:26], "room 25", "Z"), (ROOMS, "room 25", "error")],
)
async def test_an_item_without_a_target_or_with_too_many_options_is_an_error(
    choices: tuple[str, ...], target: str, letter: str
) -> None:
    item = ItemContent(prompt="?", choices=choices, target=(target,))
    assert (await _read("The answer is Z", item))[0] == letter
