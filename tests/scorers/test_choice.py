import pytest

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome, ScorerSpec
from app.scorers import NotScored, Scored, build, mark

CITIES = ItemContent(
    prompt="Where does the Thames end?",
    choices=("Paris", "London", "New York", "York"),
    target=("London",),
)
NUMBERS = ItemContent(prompt="5 x 5?", choices=("5", "25", "2.5", "125", "-25"), target=("25",))
CATS = ItemContent(
    prompt="What sat on the mat?",
    choices=("A cat", "The dog", "I did", "Nobody"),
    target=("A cat",),
)
SCORER = build(ScorerSpec("choice"))


async def _read(text: str, item: ItemContent = CITIES) -> tuple[str | None, str | None]:
    """The letter that was read, or the outcome, and the extractor."""
    result = await mark(SCORER, item, Answer(text=text))
    if isinstance(result, NotScored):
        return result.outcome.value, None
    return result.extracted, result.extractor


@pytest.mark.parametrize(
    ("text", "letter", "extractor"),
    [
        pytest.param("The answer is (B).", "B", "statement", id="answer is, in brackets"),
        pytest.param("Answer: B", "B", "statement", id="answer with a colon"),
        pytest.param("answer: b", "B", "statement", id="lower case after a colon"),
        pytest.param("ANSWER IS B", "B", "statement", id="shouted"),
        pytest.param("**Answer: B**", "B", "statement", id="statement in bold"),
        pytest.param("**Answer:** B", "B", "statement", id="bold heading before the letter"),
        pytest.param(
            "The correct answer is **B) London**.", "B", "statement", id="letter and text"
        ),
        pytest.param("The correct option is B", "B", "statement", id="correct option is"),
        pytest.param("The right choice is: B", "B", "statement", id="right choice is, colon"),
        pytest.param("The answer is option B.", "B", "statement", id="answer is option"),
        pytest.param("The answer is clearly B", "B", "statement", id="adverb between"),
        pytest.param("The answer to the question is B", "B", "statement", id="answer to the"),
        pytest.param("Final answer:\n\n**B**", "B", "statement", id="letter on the next line"),
        pytest.param("The answer is London.", "B", "statement", id="statement by text"),
        pytest.param("The answer is New York.", "C", "statement", id="longer option wins"),
        pytest.param("B is correct, A is wrong", "B", "statement", id="verdict"),
        pytest.param("So option B is the right answer", "B", "statement", id="verdict on option"),
        pytest.param("<answer>B</answer>", "B", "statement", id="answer tag"),
        pytest.param('The answer is "B".', "B", "statement", id="letter in quotes, stated"),
        pytest.param("The answer is “B”", "B", "statement", id="typographic quotes"),
        pytest.param("Thus the answer is $B$.", "B", "statement", id="letter in dollars, stated"),
        pytest.param('{"answer": "B"}', "B", "statement", id="JSON"),
        pytest.param("Answer - B", "B", "statement", id="answer with a dash"),
        pytest.param("The answer I choose is B", "B", "statement", id="answer I choose"),
        pytest.param("The answer is not A but B", "B", "statement", id="not A but B, stated"),
        pytest.param("Antwort: B", "B", "statement", id="German"),
        pytest.param("Die Antwort ist B.", "B", "statement", id="German sentence"),
        pytest.param("La respuesta correcta es B", "B", "statement", id="Spanish"),
        pytest.param("La réponse est (B)", "B", "statement", id="French"),
        pytest.param("答案：B", "B", "statement", id="Chinese"),
        pytest.param("答案是B。", "B", "statement", id="Chinese sentence"),
        pytest.param("答えはBです", "B", "statement", id="Japanese"),
        pytest.param("Ответ: B", "B", "statement", id="Russian"),
        pytest.param(r"\boxed{B}", "B", "boxed", id="boxed letter"),
        pytest.param(r"$\boxed{\text{B}}$", "B", "boxed", id="boxed text"),
        pytest.param(r"\boxed{b}", "B", "boxed", id="boxed lower case"),
        pytest.param(r"\boxed{London}", "B", "boxed", id="boxed option text"),
        pytest.param(r"\boxed{A} no: \boxed{B}", "B", "boxed", id="last box"),
        pytest.param("B", "B", "line", id="lone letter"),
        pytest.param("b", "B", "line", id="lone lower case letter"),
        pytest.param("B.", "B", "line", id="letter and point"),
        pytest.param("B)", "B", "line", id="letter and bracket"),
        pytest.param("(B)", "B", "line", id="letter in brackets"),
        pytest.param("`B`", "B", "line", id="letter in code"),
        pytest.param("**B**", "B", "line", id="letter in bold"),
        pytest.param("***B***", "B", "line", id="letter in bold italics"),
        pytest.param('"B"', "B", "line", id="letter in quotes"),
        pytest.param("$B$", "B", "line", id="letter in dollars"),
        pytest.param("### B", "B", "line", id="letter as a heading"),
        pytest.param("Ｂ", "B", "line", id="full-width letter"),
        pytest.param("𝐁", "B", "line", id="mathematical bold letter"),
        pytest.param("\u200bB\u200b", "B", "line", id="invisible characters around"),
        pytest.param("London", "B", "line", id="option text alone"),
        pytest.param("london.", "B", "line", id="option text in lower case"),
        pytest.param("B) London", "B", "line", id="label and text"),
        pytest.param("B. It flows through it.", "B", "line", id="label and reason"),
        pytest.param("Think of England.\nB", "B", "line", id="letter on the last line"),
        pytest.param("B\n\nThe Thames is in England.", "B", "line", id="letter on the first line"),
        pytest.param("B because A is in France", "B", "line", id="letter and because"),
        pytest.param("A) no\nB) yes\n\nB", "B", "line", id="list, then the letter"),
        pytest.param("I'd go with B", "B", "preference", id="go with"),
        pytest.param("It must be B!", "B", "preference", id="must be"),
        pytest.param("A is wrong, C is wrong, so B.", "B", "preference", id="so B"),
        pytest.param("Hence, B.", "B", "preference", id="hence B"),
        pytest.param("Answer B", "B", "preference", id="answer without a colon"),
        pytest.param("It's not A, so it must be B", "B", "preference", id="not A but B"),
        pytest.param("I think (B) fits best here", "B", "mention", id="only bracketed letter"),
        pytest.param("I think **B** fits best here", "B", "mention", id="only bold letter"),
        pytest.param("It ends near London, of course", "B", "text", id="only option mentioned"),
        pytest.param("It's London, not Paris", "B", "text", id="negated other option"),
        pytest.param("It flows to New York, I believe", "C", "text", id="York in New York"),
    ],
)
async def test_the_option_is_read_from(text: str, letter: str, extractor: str) -> None:
    assert await _read(text) == (letter, extractor)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        pytest.param("The answer is A. No wait, the answer is B.", "B", id="last statement wins"),
        pytest.param("It could be A or C. The answer is B.", "B", id="statement beats musing"),
        pytest.param("Option A looks good. Answer: B", "B", id="statement beats preference"),
        pytest.param(
            "The answer is B. Option A is a distractor.", "B", id="a later mention is none"
        ),
        pytest.param("The answer is B, not A.", "B", id="negated afterthought"),
        pytest.param("The answer is B and A is wrong", "B", id="verdict on another"),
        pytest.param("The answer is not A. The answer is B.", "B", id="negated statement first"),
        pytest.param("A is incorrect. B is correct.", "B", id="incorrect is not correct"),
        pytest.param("Sure! The answer is B", "B", id="S of Sure"),
        pytest.param("The answer is a letter: B", "B", id="article after is"),
    ],
)
async def test_the_explicit_claim_counts(text: str, letter: str) -> None:
    assert (await _read(text))[0] == letter


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Sure, happy to help.", id="first letter of a word"),
        pytest.param("A river ends in the sea.", id="A as an article"),
        pytest.param("The answer is a city", id="a as an article after is"),
        pytest.param("Answer: A city in England", id="A as an article after a colon"),
        pytest.param("I think so", id="I as a pronoun"),
        pytest.param("Vitamin C is good for you", id="letter as part of a name"),
        pytest.param("I would write it in C++", id="programming language"),
        pytest.param("It was 20 °C there", id="degrees Celsius"),
        pytest.param("See the U.S.A. first", id="abbreviation"),
        pytest.param("B's mother", id="possessive"),
        pytest.param("E", id="letter beyond the options"),
        pytest.param("The answer is E", id="stated letter beyond the options"),
        pytest.param("(Z)", id="bracketed letter beyond the options"),
        pytest.param("not B", id="negated letter"),
        pytest.param("The answer is not B", id="negated statement"),
        pytest.param("It isn't B.", id="contracted negation"),
        pytest.param("B is incorrect.", id="letter called incorrect"),
        pytest.param("Definitely not London", id="negated text"),
        pytest.param("A or B", id="two bare letters"),
        pytest.param("A, B", id="list of letters"),
        pytest.param("The answer is A or B", id="two letters stated"),
        pytest.param("The answer is either A or B", id="either or"),
        pytest.param("Answer: A and C", id="two letters joined"),
        pytest.param("It is (A) or perhaps (B)", id="two bracketed letters"),
        pytest.param("B) Paris", id="letter of one option, text of another"),
        pytest.param("The answer is London or Paris", id="two texts stated"),
        pytest.param("A) Paris\nB) London\nC) New York\nD) York", id="options repeated"),
        pytest.param("A\nB\nC\nD", id="letters repeated"),
        pytest.param("A: no. B: yes. C: no. D: no.", id="verdicts on all options in one line"),
        pytest.param("Thus C is the speed of light", id="letter as a symbol after thus"),
        pytest.param("Both A and B are correct.", id="both"),
        pytest.param("BB", id="doubled letter"),
        pytest.param("I don't know.", id="no idea"),
        pytest.param("🤷", id="emoji"),
        pytest.param(r"\boxed{}", id="empty box"),
        pytest.param(r"\boxed{B", id="box that never closes"),
    ],
)
async def test_nothing_is_guessed_from(text: str) -> None:
    assert await _read(text) == (Outcome.UNPARSED.value, None)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        pytest.param("25", "B", id="whole number"),
        pytest.param("The answer is 25.", "B", id="number before a full stop"),
        pytest.param("The answer is 2.5", "C", id="decimal is not its parts"),
        pytest.param("The answer is 125", "D", id="longer number is not its tail"),
        pytest.param("The answer is -25", "E", id="sign counts"),
        pytest.param("It comes to 25 in all", "B", id="only number mentioned"),
        pytest.param("It comes to 1250 in all", "unparsed", id="number inside a longer one"),
        pytest.param("5 * 5 makes 25", "unparsed", id="two options mentioned"),
    ],
)
async def test_numbers_as_options_are_read_whole(text: str, letter: str) -> None:
    assert (await _read(text, NUMBERS))[0] == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        pytest.param("A cat", "A", id="text that begins with an article"),
        pytest.param("Answer: The dog", "B", id="stated text"),
        pytest.param("I did", "C", id="text that begins with I"),
        pytest.param("The answer is A", "A", id="letter A at the end"),
        pytest.param("The answer is A because it purrs", "A", id="letter A and because"),
        pytest.param("A cat sat there", "A", id="text within a sentence"),
    ],
)
async def test_articles_in_option_texts_do_not_confuse(text: str, letter: str) -> None:
    assert (await _read(text, CATS))[0] == letter


async def test_a_right_letter_scores_one() -> None:
    result = await mark(SCORER, CITIES, Answer(text="B"))
    assert result == Scored(score=1.0, extracted="B", extractor="line")


async def test_a_wrong_letter_scores_zero() -> None:
    result = await mark(SCORER, CITIES, Answer(text="C"))
    assert result == Scored(score=0.0, extracted="C", extractor="line")


async def test_any_of_several_right_options_scores_one() -> None:
    item = ItemContent(prompt="Even?", choices=("1", "2", "4"), target=("2", "4"))
    result = await mark(SCORER, item, Answer(text="C"))
    assert result == Scored(score=1.0, extracted="C", extractor="line")


async def test_a_refusal_that_names_an_option_is_scored() -> None:
    text = "I'm sorry, but I can't browse maps. The answer is B."
    result = await mark(SCORER, CITIES, Answer(text=text))
    assert result == Scored(score=1.0, extracted="B", extractor="statement")


async def test_only_the_chosen_extractors_run() -> None:
    strict = build(ScorerSpec("choice", {"extractors": ["boxed"]}))
    result = await mark(strict, CITIES, Answer(text="Answer: B"))
    assert isinstance(result, NotScored)


async def test_the_order_of_extractors_is_the_order_of_trust() -> None:
    text = "The answer is A.\nB"
    line_first = build(ScorerSpec("choice", {"extractors": ["line", "statement"]}))
    result = await mark(line_first, CITIES, Answer(text=text))
    assert isinstance(result, Scored)
    assert (result.extracted, result.extractor) == ("B", "line")
    assert (await _read(text))[0] == "A"


@pytest.mark.parametrize("extractors", [[], ["nose"], ["line", "line"], "line"])
def test_wrong_extractors_are_refused(extractors: object) -> None:
    with pytest.raises(InvalidInputError, match="extractors"):
        build(ScorerSpec("choice", {"extractors": extractors}))


async def test_a_target_that_is_no_option_is_an_error_of_the_item() -> None:
    item = ItemContent(prompt="?", choices=("1", "2"), target=("3",))
    result = await mark(SCORER, item, Answer(text="A"))
    assert isinstance(result, NotScored)
    assert result.outcome is Outcome.ERROR
