from decimal import Decimal

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.scorers.numbers import numbers_in, prepare, whole_number

INTEGERS = st.integers(-(10**12), 10**12)
DECIMALS = st.decimals(-(10**6), 10**6, places=4, allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(n=INTEGERS, form=st.sampled_from(["{}", "{:,}", "{:_}", "${:,}", "**{}**", "{} km", "({})"]))
def test_a_whole_number_is_read_in_any_form(n: int, form: str) -> None:
    number = whole_number(form.format(n))
    assert number is not None
    assert number.value == n


@settings(deadline=None)
@given(x=DECIMALS)
def test_a_decimal_is_read_exactly(x: Decimal) -> None:
    number = whole_number(f"{x:f}")
    assert number is not None
    assert number.value == x


@settings(deadline=None)
@given(x=DECIMALS, places=st.integers(0, 12))
def test_scientific_notation_means_the_same(x: Decimal, places: int) -> None:
    plain, scientific = whole_number(f"{x:f}"), whole_number(f"{x:.{places + 12}e}")
    assert plain is not None
    assert scientific is not None
    assert plain.equals(scientific, abs_tol=0.0, rel_tol=1e-9)


@settings(deadline=None)
@given(m=INTEGERS, n=INTEGERS)
def test_different_whole_numbers_are_never_equal(m: int, n: int) -> None:
    assume(m != n)
    first, second = whole_number(str(m)), whole_number(str(n))
    assert first is not None
    assert second is not None
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
