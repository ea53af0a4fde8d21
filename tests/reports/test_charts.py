"""Charts of results: positions of their shapes."""

import re

import pytest

from app.reports.charts import Line, course_charts, interval_bar, line_chart


def _shapes(svg: str) -> dict[str, tuple[float, float]]:
    """Return left and right end of each shape, by class."""
    found = re.findall(r'class="(bar-[a-z]+)"(?: x="([0-9.]+)")?[^>]* width="([0-9.]+)"', svg)
    return {name: (float(x or 0), float(x or 0) + float(wide)) for name, x, wide in found}


def test_an_interval_bar_shows_value_interval_and_threshold_on_its_line() -> None:
    shapes = _shapes(interval_bar(0.5, 0.4, 0.7, "50 %", mark=0.9))
    assert shapes["bar-in"] == (40.0, 70.0)
    assert shapes["bar-at"][0] < 50.0 < shapes["bar-at"][1]
    assert shapes["bar-mark"][0] < 90.0 < shapes["bar-mark"][1]


def test_values_outside_the_range_of_a_bar_are_clipped() -> None:
    shapes = _shapes(interval_bar(5.0, -1.0, 9.0, "+5", ends=(-4.0, 4.0)))
    assert shapes["bar-in"] == (37.5, 100.0)
    assert shapes["bar-at"][1] <= 100.0


def test_a_known_value_has_no_interval_and_its_words_are_escaped() -> None:
    svg = interval_bar(1.0, None, None, '"<b>')
    assert "bar-in" not in _shapes(svg)
    assert 'aria-label="&#34;&lt;b&gt;"' in svg


def test_the_ticks_of_an_axis_are_round_and_span_all_values() -> None:
    line = Line(values=[0.0, 12.1, 3.0])
    svg = line_chart((-1.0, 0.0, 1.0), [line], title="t", description="d", y_label="information")
    marks = re.findall(r'class="end">([0-9.]+)</text>', svg)
    assert marks == ["0", "2.5", "5", "7.5", "10", "12.5"]


def test_a_trace_is_drawn_from_two_known_answers_on() -> None:
    theta = [0.0, -1.0, 1.0]
    score, ability = course_charts([[0, *theta, *[None] * 3], [4, *theta, 0.5, 0.4, 0.6]])
    assert score is None
    assert ability is not None
    assert "0.00 after 4 answers, 95\u00a0% interval −1.00 to +1.00." in ability
    assert course_charts([]) == (None, None)


def test_a_trace_that_begins_later_starts_at_its_answers() -> None:
    unknown = [None] * 3
    _, ability = course_charts([[5, 0.0, -1.0, 1.0, *unknown], [10, 0.5, 0.0, 1.0, *unknown]])
    assert ability is not None
    (begin, end) = re.findall(r'class="line one" points="([0-9.]+),\S+ ([0-9.]+),', ability)[0]
    marks = dict(re.findall(r'<text x="([0-9.]+)"[^>]*>([0-9]+)</text>', ability))
    of_mark = {int(text): float(x) for x, text in marks.items()}
    assert float(end) == of_mark[10]
    assert float(begin) == pytest.approx((of_mark[0] + of_mark[10]) / 2, abs=0.1)


@pytest.mark.parametrize("n", [3, 60, 61, 500])
def test_a_trace_shows_figures_under_the_cursor_at_limited_density(n: int) -> None:
    rows = [[k, None, None, None, 0.5, 0.4, 0.6 + k / 2000] for k in range(1, n + 1)]
    score, _ = course_charts(rows)
    assert score is not None
    columns = re.findall(r'<path d="M(\S+) 14H(\S+?)V[^>]*><title>answer (\d+): ([^<]*)<', score)
    assert n / 10 <= len(columns) <= 60
    last = f"score 50\u00a0%, 95\u00a0% interval 40\u00a0% to {60 + n / 20:.0f}\u00a0%"
    assert columns[-1][2:] == (str(n), last)
    edges = [(float(left), float(right)) for left, right, *_ in columns]
    assert all(left < right for left, right in edges)
    assert [right for _, right in edges[:-1]] == [left for left, _ in edges[1:]]
