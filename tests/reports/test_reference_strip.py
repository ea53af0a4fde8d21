"""The position of results among the reference models."""

from dataclasses import replace
from typing import Any

import pytest

from app.reports.reference_strip import Reference, StripPosition, strip, strip_position
from tests.reports.pages import Page
from tests.values import not_none

QUARTERS = (-2.0, -1.0, 0.0, 1.0, 2.0)
BY_POSITION = Reference(population=QUARTERS, thetas=(9.0, 10.0), n=40)
BY_THETA = Reference(thetas=QUARTERS, n=4_000)


def _estimate(**stands: Any) -> dict[str, Any]:
    return {"theta": 0.5, "interval": {"lo": 0.1, "hi": 0.9}, "extrapolation": stands or None}


def test_a_result_is_placed_by_its_general_ability_if_known() -> None:
    found = strip_position(_estimate(standing="within", position=1.0, sd=0.5), BY_POSITION)
    assert found is not None
    assert found.value == 1.0
    assert found.hi - found.lo == pytest.approx(2 * 1.959964 * 0.5)
    known = {"lo": 0.5, "hi": 2.0, "level": 0.95}
    uneven = _estimate(standing="within", position=1.0, sd=0.5, interval=known)
    at = StripPosition(value=1.0, lo=0.5, hi=2.0)
    assert strip_position(uneven, BY_POSITION) == at
    assert strip_position(_estimate(), BY_THETA) == StripPosition(value=0.5, lo=0.1, hi=0.9)


@pytest.mark.parametrize(
    ("estimate", "reference"),
    [
        (_estimate(standing="unknown", position=1.0, sd=3.0), BY_POSITION),
        (_estimate(standing="within", position=1.0, sd=None), BY_POSITION),
        (_estimate(), BY_POSITION),
        (_estimate() | {"theta": None}, BY_THETA),
        (_estimate() | {"interval": {"lo": None, "hi": 0.9}}, BY_THETA),
        (_estimate(), Reference()),
    ],
)
def test_an_unplaced_result_has_no_position(estimate: dict[str, Any], reference: Reference) -> None:
    assert strip_position(estimate, reference) is None
    assert strip(reference, [("m", None)]) is None


def test_the_strip_has_a_dot_per_model_and_counts_weaker_ones() -> None:
    at = StripPosition(value=1.5, lo=1.0, hi=2.0)
    picture = not_none(strip(BY_POSITION, [("<b>m</b>", at), ("unknown", None)]))
    page = Page(picture)
    dots = [one for tag, one in page.elements if tag == "circle" and one["class"] == "dot among"]
    assert len(dots) == 40
    assert "better than 88\u00a0%" in page.text
    assert "<b>" in page.text
    # The score's own interval is shown beside it.
    assert "Place among 40 reference models, by score" in page.text
    assert "interval" not in page.text
    assert "unknown" not in page.text
    assert "Their answers" not in page.text
    named = not_none(strip(replace(BY_POSITION, source="40 <i>simulated</i> models"), [("m", at)]))
    assert "Their answers: 40 <i>simulated</i> models." in Page(named).text
    many = not_none(strip(BY_THETA, [("m", at)]))
    assert many.count("dot among") == 100 + 1
    assert "reference models, by ability: " in many
    assert "place by ability, " in many
    assert "each dot stands for about 40 models" in many
