"""The scorer `numeric`, and how numbers are read."""

import asyncio
import os
import signal
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.items import ItemContent, Outcome, ScorerSpec
from app.scorers import NotScored, Scored, build
from app.scorers.confined import _sandbox
from app.scorers.numbers import numbers_in, prepare, whole_number
from tests.scorers.claims import pairs
from tests.scorers.scoring import result_of, score_of
from tests.values import not_none, of_kind
from tests.waiting import waiting

SCORER = build(ScorerSpec("numeric"))


RIGHT = {
    "25": r"""
25 | 25. | 25.0 | +25 | The answer is 25! | **25** | The answer is **25** apples | `25`
Answer: 25 km/h | 25km | $25.00 | 25 € | \boxed{25} | Maybe 30. \(\boxed{25}\) of 40
12 + 13 is it\n#### 25 | The answer is 12 + 13 = 25 | The answer is 30. No: the answer is 25.
The answer is 25 (5 per box, 5 boxes) | It comes to 25 (5 per box) | The answer is not 30 but 25
x = 25 | Antwort: 25 | \boxed{25\text{ apples}} | \boxed{25^\circ}
For $5 a day and $5 it is $25 | It costs $7 (in A$), $9 or US$25
The final answer is $25$. I hope it is correct. | 1. Add\n2. Subtract\n3. The total is 25
The answer is 25 m² | {"answer": 25} | The answer is 25, not 30 | ２５
The answer is **25** 3-inch nails
""",
    "-25": "-$25",
    "1000": "1,000 | The answer is 1 000. | 1'000 | 1_000 | 1{,}000",
    "1000000": "1,000,000.00 | It costs 1 000 000. | 1 000 000",
    "3000": "Approx. 3 000 people",
    "5000.5": "5 000,50",
    "100000": "1,00,000",
    "1234.5": "1.234,5",
    "1.5": "1,5",
    "0.5": ".5 | 1/2 | ½ | 50% | 0,500",
    "0.125": "0,125 | The answer is 0,125",
    "2.5": "2½ | 2 1/2",
    "0.75": r"\frac{3}{4}",
    "-0.75": r"-\dfrac{3}{4} | $\frac{-3}{4}$ | So we get -\frac{3}{4}",
    "45": r"$45^\circ$ | So x = 45^\circ | \boxed{\color{blue}{45}} | \bf{45} | $\underline{45}$",
    "1/3": "2/6",
    "30": "The answer is 6 cars with 5 seats = 30",
    "50": "50%",
    "50%": "0.5 | 50 percent",
    "1500000": "1.5 million",
    "-3": r"""
−3 | The temperature is -3 degrees | minus 3 | It is **negative 3** | Answer: minus 3
\boxed{\text{minus } 3}
""",
    "3": r"x-3 has the root 3 | Apples: 25\n- 3",
    "1e6": "10⁶ | 10^6",
    "6.02e23": r"6.02 \times 10^{23}",
    "0.0012": "1.2e-3 | 1.2 × 10⁻³",
    "1024": "2^10 | 2**10 | 2 ** 10 | 2^{10}",
    "101": "101₂",
    "1.2": "1,2",
    "7": r"""
**§ 5** has 7 parts | **5 of 9** came in 7 cars | Hm.\n**(7)** of 9 | Hm.\n**a 9** of 7
""",
}
RIGHT["1000"] += " | " + "1\u202f000"
WRONG = {
    "25": "5 | 125 | 2.5 | -25 | 25.001 | It was 25 and is 30 now",
    "4": r"\boxed{\frac{\pi}{4}} | \boxed{e^{-4}} | \boxed{\ln(4)} | Of 4 000",
    r"\frac{\pi}{4}": r"4 | \boxed{4}",
    r"\frac{x}{2}": r"2 | \boxed{\frac{2x}{2}}",
    r"\frac{x + \sqrt{3} + \sqrt{5} + \sqrt{7} + \sqrt{11}}{2}": "2",
    "ln(2)": "2 | 0.7",
    "5!": "5 | 24",
    "e^{-2}": "2 | -2",
    "|-2|": "-2",
    "x < 2": "2 | x > 2",
    r"(-\infty, 2)": r"2 | \boxed{(2, \infty)} | \boxed{(-\infty, 2]}",
    "1000": "1,00",
    "50%": "0.5%",
    "1e6": "106",
    "0.5": "1/20",
    "7": "minus 7",
}
NOTHING = r"""
No idea. | between 20-30 | at 3:25 | on 2024-05-25 | on 25/05/2024 | version 1.2.25 | in room B25
1,2,25 | (2,5) | at [2,5] | {2,5} | \boxed{x | The answer is between 20 and 30
The answer is 25 or 26 | The answer is many
"""
FORMULAS = {
    "2\\sqrt{3}": r"""
The answer is $\sqrt{12}$. | The answer is 2*sqrt(3) | So we get $2\sqrt{3}$ as the length.
First $2\sqrt{5}$ m, then $2\sqrt{3}$ comes out. | For $5 and $6 it is $2\sqrt{3}$ in all
\boxed{√12} | \boxed{√(12)}
""",
    "2x": "It is $2x$ then",
    "\\frac{\\pi}{2}": r"\boxed{0.5\pi} | \boxed{π/2} | \boxed{pi / 2}",
    "512": r"\boxed{2^3^2} | \boxed{2 ** 3 ** 2}",  # from the right: 2 to the ninth
    "x^2+1": "The answer is $1+x^2$.",
    "25": r"The answer is \sqrt{625} | The answer is 5 * 5 | So $x = 5^{2}$ | \boxed{5×5} | 5·5",
    "\\{1,2\\}": r"\boxed{\{2,1\}}",
    r"\frac{\pi}{4}": r"\boxed{\frac{\pi}{4}} | π/4 | 0.7853981633974483",
    r"\frac{x}{2}": r"\boxed{x/2}",
    "ln(2)": r"ln(2) | \boxed{\ln 2} | 0.69314718056",
    "5!": r"120 | \boxed{5!}",
    "|-2|": "2",
    "x < 2": r"x < 2 | \boxed{x<2}",
    r"(-\infty, 2)": r"\boxed{(-\infty,2)}",
    "2": r"\sqrt{4} | $\sqrt{4}$",
    "12": r"3 \times 4 | It is $3 \times 4$",
    "4": r"(-2)^2 | So we get \sqrt{16} | So x = \sqrt{16}. | It follows: \frac{8}{2}",
}
OTHER_FORMULAS = {
    "2\\sqrt{3}": r"\boxed{\sqrt{13}}",
    "x^2+1": r"\boxed{x^2-1}",
    "25": "The answer is 5 * 6",
}


@pytest.mark.parametrize(
    ("table", "score"),
    [
        *((RIGHT, 1.0), (WRONG, 0.0), ({"25": NOTHING}, "unparsed")),
        *((FORMULAS, 1.0), (OTHER_FORMULAS, 0.0)),
    ],
)
async def test_a_value_counts_in_whatever_form(table: dict[str, str], score: float | str) -> None:
    told = pairs(table)
    assert [pair for pair in told if await score_of("numeric", pair[1], pair[0]) != score] == []


async def test_the_extractor_is_recorded() -> None:
    for text, extractor in [
        (r"\boxed{25}", "boxed"),
        ("#### 25", "hash"),
        ("The answer is 25", "statement"),
        ("So:\n**25**", "emphasis"),
        ("It is 25", "last_number"),
    ]:
        result = await result_of("numeric", text, "25")
        assert result == Scored(score=1.0, extracted="25", extractor=extractor)


@pytest.mark.parametrize(
    ("params", "text", "targets", "score"),
    [
        ({"abs_tol": 0.5}, "25.5", "25", 1.0),
        ({"abs_tol": 0.5}, "25.51", "25", 0.0),
        ({"rel_tol": 0.01}, "25.25", "25", 1.0),
        ({"rel_tol": 0.01}, "25.26", "25", 0.0),
        ({"abs_tol": 1.0, "rel_tol": 0.0}, "24", "25", 1.0),
        ({"rel_tol": 0.0}, "25", "25", 1.0),
        ({"abs_tol": 0.001}, r"\boxed{\pi}", "3.1416", 1.0),
        ({"abs_tol": 0.001}, "The answer is 3.4641", r"2\sqrt{3}", 1.0),
        ({}, r"First $\sqrt{5}$, then $\sqrt{12}$ comes out", r"2\sqrt{3}", 1.0),  # the last
        ({}, "-2", "2|-2", 1.0),
        ({}, r"\boxed{" + "1+" * 400 + "1}", "25", "unparsed"),  # too long
        ({}, r"\boxed{x^2 + y}", "25", "unparsed"),  # words that look like variables
        ({}, "I'm sorry, I can't show my work. The answer is 25.", "25", 1.0),
    ],
)
async def test_the_larger_tolerance_holds_for_any_target(
    params: dict[str, float], text: str, targets: str, score: float | str
) -> None:
    assert await score_of("numeric", text, *targets.split("|"), **params) == score


@pytest.mark.parametrize("target", ["two", "N/A", "", "see the text (page B)", "nan"])
async def test_a_target_without_a_number_gives_no_score(target: str) -> None:
    result = of_kind(await result_of("numeric", "The answer is 2.", target), NotScored)
    assert result.outcome is Outcome.ERROR
    assert result.reason == "The item's targets hold no number or formula to compare with."


@pytest.mark.parametrize("name", ["numeric", "closeness"])
def test_an_item_is_unmarkable_if_no_target_is_of_the_kind(name: str) -> None:
    params = {"rel_limit": 0.5} if name == "closeness" else {}
    scorer, kind = build(ScorerSpec(name, params)), {"numeric": "a number or a formula"}
    for targets, fault in [
        ((), None),
        (("two",), kind.get(name, "a number")),
        (("word " * 100,), kind.get(name, "a number")),
        (("two", "N/A"), kind.get(name, "a number")),
        (("two", "2"), None),
    ]:
        assert scorer.unmarkable(ItemContent(prompt="How much?", target=targets)) == fault


@pytest.mark.parametrize("target", ["X-1", "3 of 4", "2x", "word " * 101])
def test_a_formula_or_a_long_text_may_be_markable(target: str) -> None:
    assert SCORER.unmarkable(ItemContent(prompt="How much?", target=(target, "two"))) is None


@pytest.mark.parametrize(
    ("name", "params", "targets"),
    [
        ("numeric", {}, ("25",)),
        ("numeric", {"rel_tol": 0.9}, ("-25", "1e300", "two")),
        ("numeric", {"abs_tol": 1e300}, ("0.5",)),
        ("numeric", {"rel_tol": 0.9}, ("25M", "3 trillion")),
        ("numeric", {"rel_tol": 0.9}, ("25 dozen",)),
        ("closeness", {"rel_limit": 2.0}, ("-25", "1000")),
        ("closeness", {"abs_limit": 0.01, "rel_limit": 0.5}, ("0.001", "-3")),
    ],
)
async def test_simulated_answers_are_right_and_wrong_by_any_tolerance(
    name: str, params: dict[str, float], targets: tuple[str, ...]
) -> None:
    for seed in range(5):
        made = build(ScorerSpec(name, params)).examples(
            ItemContent(target=targets), np.random.default_rng(seed)
        )
        assert [await score_of(name, text, *targets, **params) for text in made] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        *(("-3", [-3]), ("- 3", [-3]), ("a - 3", [-3]), ("a -3", [-3]), ("a\n-3", [-3])),
        *(("a-3", [3]), ("a\n- 3", [3]), ("5 - 3", [5, 3]), ("5 -3", [5, 3]), ("5-3 ", [])),
        *(("(2)-3", [2, 3]), ("(2) -3", [2, 3]), ("[2] -3", [2, 3]), ("{2} -3", [2, 3])),
        ("of the remaining and uneaten green apples -3", [-3]),
        ("of the remaining and uneaten green apples-3", [3]),
        *(("ten minus 3", [3]), ("5 minus 3", [5, 3]), ("is 5 minus 3", [5, 3])),
    ],
)
def test_a_minus_is_a_sign_unless_it_joins_or_lists(text: str, values: list[int]) -> None:
    assert [int(number.value) for number in numbers_in(prepare(text))] == values


def test_a_long_answer_may_take_longer_than_its_formula() -> None:
    for timeout_s in (0.01, 60.0):
        scorer = build(ScorerSpec("numeric", {"timeout_s": timeout_s}))
        assert scorer.work_s > timeout_s


async def test_a_killed_helper_process_is_not_an_unparsed_answer() -> None:
    marking = asyncio.create_task(result_of("numeric", "9**9**9**9", "25", timeout_s=60))
    async with waiting() as pause:
        while not marking.done():
            helper = _sandbox(("app.scorers.libraries.algebra",)).helper_pid
            if helper is not None:
                os.kill(helper, signal.SIGKILL)
            await pause()
    result = of_kind(marking.result(), NotScored)
    assert (result.outcome, result.code) == (Outcome.ERROR, "scorer_gave_up")


INTEGERS = st.integers(-(10**12), 10**12)
DECIMALS = st.decimals(-(10**6), 10**6, places=4, allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(n=INTEGERS, form=st.sampled_from(["{}", "{:,}", "{:_}", "${:,}", "**{}**", "{} km", "({})"]))
def test_a_whole_number_is_read_in_any_form(n: int, form: str) -> None:
    number = not_none(whole_number(form.format(n)))
    assert number.value == n


@settings(deadline=None)
@given(x=DECIMALS)
def test_a_decimal_is_read_exactly(x: Decimal) -> None:
    number = not_none(whole_number(f"{x:f}"))
    assert number.value == x


@settings(deadline=None)
@given(x=DECIMALS, places=st.integers(0, 12))
def test_scientific_notation_means_the_same(x: Decimal, places: int) -> None:
    plain, scientific = map(not_none, map(whole_number, (f"{x:f}", f"{x:.{places + 12}e}")))
    assert plain.equals(scientific, abs_tol=0.0, rel_tol=1e-9)


@settings(deadline=None)
@given(m=INTEGERS, n=INTEGERS)
def test_different_whole_numbers_are_never_equal(m: int, n: int) -> None:
    assume(m != n)
    first, second = not_none(whole_number(str(m))), not_none(whole_number(str(n)))
    assert not first.equals(second, abs_tol=0.0, rel_tol=0.0)


@settings(deadline=None)
@given(numbers=st.lists(INTEGERS, max_size=8))
def test_a_spaced_list_is_read_number_by_number(numbers: list[int]) -> None:
    found = [int(number.value) for number in numbers_in(prepare("; ".join(map(str, numbers))))]
    assert found == numbers


@settings(deadline=None)
@given(text=st.text(alphabet="0123456789.,/^*+-e%() x{}\\frac\n½²", max_size=60))
def test_any_string_of_number_signs_is_read_without_error(text: str) -> None:
    assert all(number.value.is_finite() for number in numbers_in(prepare(text)))
