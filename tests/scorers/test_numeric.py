import asyncio
import os
import signal

import pytest

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome, ScorerSpec
from app.scorers import NotScored, Scored, build, mark
from app.scorers.base import Mark
from app.scorers.confined import _sandbox
from tests.waiting import waiting

SCORER = build(ScorerSpec("numeric"))


async def _mark(target: str, text: str, **params: float) -> Mark:
    item = ItemContent(prompt="How much?", target=(target,))
    return await mark(build(ScorerSpec("numeric", params)), item, Answer(text=text))


async def _score(target: str, text: str, **params: float) -> float | str:
    result = await _mark(target, text, **params)
    return result.score if isinstance(result, Scored) else result.outcome.value


@pytest.mark.parametrize(
    ("target", "text"),
    [
        pytest.param("25", "25", id="number alone"),
        pytest.param("25", "25.", id="full stop"),
        pytest.param("25", "25.0", id="trailing zero"),
        pytest.param("25", "+25", id="plus sign"),
        pytest.param("25", "The answer is 25!", id="exclamation mark is no factorial"),
        pytest.param("25", "**25**", id="bold"),
        pytest.param("25", "The answer is **25** apples", id="bold within a statement"),
        pytest.param("25", "`25`", id="code"),
        pytest.param("25", "Answer: 25 km/h", id="unit with a slash"),
        pytest.param("25", "25km", id="unit attached"),
        pytest.param("25", "$25.00", id="currency before"),
        pytest.param("25", "25 €", id="currency after"),
        pytest.param("-25", "-$25", id="sign before currency"),
        pytest.param("1000", "1,000", id="comma groups"),
        pytest.param("1000000", "1,000,000.00", id="several groups"),
        pytest.param("100000", "1,00,000", id="Indian groups"),
        pytest.param("1000", "The answer is 1 000.", id="blank groups"),
        pytest.param("1000", "1\u202f000", id="narrow blank groups"),
        pytest.param("1000", "1'000", id="apostrophe groups"),
        pytest.param("1000", "1_000", id="underscore groups"),
        pytest.param("1000", r"1{,}000", id="LaTeX groups"),
        pytest.param("1234.5", "1.234,5", id="point groups and decimal comma"),
        pytest.param("1.5", "1,5", id="decimal comma"),
        pytest.param("0.5", ".5", id="no leading zero"),
        pytest.param("0.5", "1/2", id="fraction"),
        pytest.param("0.5", "½", id="fraction sign"),
        pytest.param("2.5", "2½", id="mixed number with a sign"),
        pytest.param("2.5", "2 1/2", id="mixed number"),
        pytest.param("0.75", r"\frac{3}{4}", id="LaTeX fraction"),
        pytest.param("-0.75", r"-\dfrac{3}{4}", id="negative LaTeX fraction"),
        pytest.param("1/3", "2/6", id="unreduced fraction"),
        pytest.param("0.5", "50%", id="percent of a share"),
        pytest.param("50", "50%", id="percent asked for"),
        pytest.param("50%", "0.5", id="share of a percent"),
        pytest.param("50%", "50 percent", id="percent in words"),
        pytest.param("1500000", "1.5 million", id="million"),
        pytest.param("-3", "−3", id="unicode minus"),
        pytest.param("-3", "The temperature is -3 degrees", id="minus after a blank"),
        pytest.param("3", "x-3 has the root 3", id="minus inside an expression"),
        pytest.param("1e6", "10⁶", id="raised digits"),
        pytest.param("1e6", "10^6", id="power of ten"),
        pytest.param("6.02e23", r"6.02 \times 10^{23}", id="LaTeX scientific"),
        pytest.param("0.0012", "1.2e-3", id="scientific"),
        pytest.param("0.0012", "1.2 × 10⁻³", id="scientific with raised minus"),
        pytest.param("1024", "2^10", id="power"),
        pytest.param("25", r"\boxed{25}", id="boxed"),
        pytest.param("25", r"Maybe 30. \(\boxed{25}\) of 40", id="boxed beats the last number"),
        pytest.param("25", "12 + 13 is it\n#### 25", id="four hashes"),
        pytest.param("25", "The answer is 12 + 13 = 25", id="after the equals sign"),
        pytest.param("25", "The answer is 30. No: the answer is 25.", id="last statement wins"),
        pytest.param("25", "The answer is 25 (5 per box, 5 boxes)", id="aside after a statement"),
        pytest.param("25", "It comes to 25 (5 per box)", id="aside after the last number"),
        pytest.param("25", "The answer is not 30 but 25", id="negated statement"),
        pytest.param("25", "x = 25", id="variable"),
        pytest.param("3", "Apples: 25\n- 3", id="list mark is no minus"),
        pytest.param("25", "Antwort: 25", id="German"),
        pytest.param("25", r"\boxed{25\text{ apples}}", id="unit in LaTeX"),
        pytest.param("25", r"\boxed{25^\circ}", id="degrees in LaTeX"),
        pytest.param("25", "The final answer is $25$. I hope it is correct.", id="in dollars"),
        pytest.param("25", "1. Add\n2. Subtract\n3. The total is 25", id="numbered steps"),
        pytest.param("25", "The answer is 25 m²", id="raised digit of a unit"),
        pytest.param("25", '{"answer": 25}', id="JSON"),
        pytest.param("25", "The answer is 25, not 30", id="negated afterthought"),
        pytest.param("25", "２５", id="full-width digits"),
    ],
)
async def test_is_right(target: str, text: str) -> None:
    assert await _score(target, text) == 1.0


@pytest.mark.parametrize(
    ("target", "text"),
    [
        pytest.param("25", "5", id="last digit only"),
        pytest.param("25", "125", id="longer number"),
        pytest.param("25", "2.5", id="decimal point moved"),
        pytest.param("25", "-25", id="other sign"),
        pytest.param("25", "25.001", id="near but not equal"),
        pytest.param("1000", "1,00", id="hundred with decimals"),
        pytest.param("50%", "0.5%", id="half a percent"),
        pytest.param("1e6", "106", id="power read as digits"),
        pytest.param("0.5", "1/20", id="smaller fraction"),
        pytest.param("25", "It was 25 and is 30 now", id="earlier number"),
    ],
)
async def test_is_wrong(target: str, text: str) -> None:
    assert await _score(target, text) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("No idea.", id="no number"),
        pytest.param("between 20-30", id="range"),
        pytest.param("at 3:25", id="time of day"),
        pytest.param("on 2024-05-25", id="date"),
        pytest.param("on 25/05/2024", id="date with slashes"),
        pytest.param("version 1.2.25", id="version"),
        pytest.param("in room B25", id="number in a name"),
        pytest.param("1,2,25", id="list without blanks"),
        pytest.param(r"\boxed{x", id="box that never closes"),
        pytest.param("The answer is between 20 and 30", id="stated range"),
        pytest.param("The answer is 25 or 26", id="two numbers stated"),
        pytest.param("The answer is many", id="statement without a number"),
    ],
)
async def test_no_number_is_read_from(text: str) -> None:
    assert await _score("25", text) == Outcome.UNPARSED.value


async def test_the_extractor_is_recorded() -> None:
    for text, extractor in [
        (r"\boxed{25}", "boxed"),
        ("#### 25", "hash"),
        ("The answer is 25", "statement"),
        ("So:\n**25**", "emphasis"),
        ("It is 25", "last_number"),
    ]:
        result = await _mark("25", text)
        assert result == Scored(score=1.0, extracted="25", extractor=extractor)


@pytest.mark.parametrize(
    ("params", "text", "score"),
    [
        ({"abs_tol": 0.5}, "25.5", 1.0),
        ({"abs_tol": 0.5}, "25.51", 0.0),
        ({"rel_tol": 0.01}, "25.25", 1.0),
        ({"rel_tol": 0.01}, "25.26", 0.0),
        ({"abs_tol": 1.0, "rel_tol": 0.0}, "24", 1.0),
        ({"rel_tol": 0.0}, "25", 1.0),
    ],
)
async def test_the_larger_tolerance_holds(
    params: dict[str, float], text: str, score: float
) -> None:
    assert await _score("25", text, **params) == score


async def test_any_of_several_targets_is_right() -> None:
    item = ItemContent(prompt="A root of x^2 = 4?", target=("2", "-2"))
    result = await mark(SCORER, item, Answer(text="-2"))
    assert isinstance(result, Scored)
    assert result.score == 1.0


@pytest.mark.parametrize(
    ("target", "text"),
    [
        pytest.param(r"2\sqrt{3}", r"The answer is $\sqrt{12}$.", id="simplified root"),
        pytest.param(r"2\sqrt{3}", "The answer is 2*sqrt(3)", id="plain notation"),
        pytest.param(r"\frac{\pi}{2}", r"\boxed{0.5\pi}", id="multiple of pi"),
        pytest.param("x^2+1", "The answer is $1+x^2$.", id="terms in another order"),
        pytest.param("25", r"The answer is \sqrt{625}", id="root of a plain target"),
        pytest.param("25", "The answer is 5 * 5", id="product left standing"),
        pytest.param("25", r"So we get $x = 5^{2}$", id="power with braces"),
        pytest.param(r"\{1,2\}", r"\boxed{\{2,1\}}", id="set in another order"),
    ],
)
async def test_a_formula_of_the_same_value_is_right(target: str, text: str) -> None:
    assert await _score(target, text) == 1.0


@pytest.mark.parametrize(
    ("target", "text"),
    [
        pytest.param(r"2\sqrt{3}", r"\boxed{\sqrt{13}}", id="another root"),
        pytest.param("x^2+1", r"\boxed{x^2-1}", id="another polynomial"),
        pytest.param("25", "The answer is 5 * 6", id="another product"),
    ],
)
async def test_a_formula_of_another_value_is_wrong(target: str, text: str) -> None:
    assert await _score(target, text) == 0.0


@pytest.mark.parametrize("target", ["two", "N/A", "", "see the text (page B)", "nan"])
async def test_a_target_without_a_number_marks_nothing_wrong(target: str) -> None:
    result = await _mark(target, "The answer is 2.")
    assert isinstance(result, NotScored)
    assert result.outcome is Outcome.ERROR
    assert result.reason == "The item's targets hold no number or formula to compare with."


async def test_a_formula_is_compared_within_the_tolerance() -> None:
    assert await _score("3.1416", r"\boxed{\pi}", abs_tol=0.001) == 1.0


async def test_a_plain_number_is_compared_with_a_formula_within_the_tolerance() -> None:
    assert await _score(r"2\sqrt{3}", "The answer is 3.4641", abs_tol=0.001) == 1.0


async def test_a_power_tower_is_unparsed_and_the_reason_says_why() -> None:
    result = await _mark("25", "The answer is 9**9**9**9", timeout_s=0.5)
    assert isinstance(result, NotScored)
    assert result.outcome is Outcome.UNPARSED
    assert "it takes more than 0.5 s" in result.reason


async def test_a_formula_whose_helper_process_is_killed_is_no_unreadable_answer() -> None:
    marking = asyncio.create_task(_mark("25", "The answer is 9**9**9**9", timeout_s=60))
    async with waiting() as pause:
        while not marking.done():
            helper = _sandbox(("app.scorers.algebra",)).helper_pid
            if helper is not None:
                os.kill(helper, signal.SIGKILL)
            await pause()
    result = marking.result()
    assert isinstance(result, NotScored)
    assert (result.outcome, result.code) == (Outcome.ERROR, "scorer_gave_up")


async def test_a_very_long_formula_is_unparsed() -> None:
    assert await _score("25", r"\boxed{" + "1+" * 400 + "1}") == Outcome.UNPARSED.value


async def test_words_that_look_like_variables_are_not_a_wrong_number() -> None:
    assert await _score("25", r"\boxed{x^2 + y}") == Outcome.UNPARSED.value


async def test_a_refusal_with_a_number_is_scored() -> None:
    assert await _score("25", "I'm sorry, I can't show my work. The answer is 25.") == 1.0


@pytest.mark.parametrize(
    "params",
    [
        {"abs_tol": -1.0},
        {"abs_tol": float("nan")},
        {"abs_tol": "1"},
        {"rel_tol": 1.0},
        {"timeout_s": 0.0},
        {"tolerance": 1.0},
    ],
)
def test_a_wrong_parameter_is_named(params: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(params))) as caught:
        build(ScorerSpec("numeric", params))
    assert caught.value.problems[0].pointer == f"/params/{next(iter(params))}"
