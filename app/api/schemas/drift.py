"""Items of a version under new answers, as JSON."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Self

from pydantic import TypeAdapter

from app.api.schemas.versions import DriftFigures
from app.calibration.pipeline.drift import drift_figures, drift_message
from app.records.fields import finite
from app.services.calibrations.drift import DriftLook
from app.shapes import Output

#: Of an item; null where too few answered it.
_NUMBERS = ("new_b", "se", "z", "p_value", "distance", "easier")
#: Items of which JSON is made in one go, which takes some milliseconds.
_AT_ONCE = 500


class DriftItemRead(Output):
    """One item: its curve in the version, and its curve by the new answers."""

    key: str
    answers: int
    """Number of new answers."""
    old_b: float
    """Difficulty in the version."""
    new_b: float | None
    """Difficulty by the new answers, on the version's scale. With too few answers it is null, as
    are the following fields."""
    se: float | None
    """Standard error of `new_b`."""
    z: float | None
    """`p_value` as a standard normal deviate: above 0 if the item became easier, below 0 if harder.
    Beyond 3 chance is very unlikely."""
    p_value: float | None
    """Probability of at least such a deviation if the old curve still holds."""
    distance: float | None
    """Distance of the two curves, as a probability."""
    easier: float | None
    """Change of the mean probability of a right answer; above 0: easier."""
    drifted: bool
    """Whether `p_value` < 0.001 and `distance` >= 0.1."""
    possibly_leaked: bool
    """Whether the item drifted and became easier."""
    explanation: str | None


class DriftRead(Output):
    """Items of a version whose curves have changed since it was published."""

    object: Literal["drift"] = "drift"
    version_id: str
    scale: str
    response_set_id: str
    response_set_revision: int
    verdict: str
    figures: DriftFigures
    n_items: int
    """Number of active items with new answers."""
    data: list[DriftItemRead]
    """At most `limit` items, drifted ones first."""

    @classmethod
    def of(cls, look: DriftLook, data: Sequence[DriftItemRead] = ()) -> Self:
        """The outgoing shape, with some of the items."""
        return cls(
            version_id=look.version.id,
            scale=look.version.scale,
            response_set_id=look.response_set.id,
            response_set_revision=look.response_set.revision,
            verdict=look.verdict,
            figures=DriftFigures.model_validate(drift_figures(look.drift)),
            n_items=len(look.drift.keys),
            data=list(data),
        )


_ITEMS = TypeAdapter(list[DriftItemRead])


async def drift_json(look: DriftLook, *, limit: int) -> AsyncGenerator[bytes]:
    """A `DriftRead` as JSON in blocks: there may be as many items as a version has.

    Made in one go, that of 100,000 items would hold up whatever else this process does.
    """
    yield DriftRead.of(look).model_dump_json().removesuffix("]}").encode()  # `data` is the last
    order = look.order[:limit]

    def some(start: int) -> bytes:
        items = [_item(look, j) for j in order[start : start + _AT_ONCE]]
        return b"," * (start > 0) + _ITEMS.dump_json(items)[1:-1]

    for start in range(0, len(order), _AT_ONCE):
        yield await asyncio.to_thread(some, start)
    yield b"]}"


def _item(look: DriftLook, j: int) -> DriftItemRead:
    drift = look.drift

    key, drifted = drift.keys[j], bool(drift.drifted[j])
    return DriftItemRead(
        key=key,
        answers=int(drift.n_answers[j]),
        old_b=float(drift.old_b[j]),
        **{name: finite(getattr(drift, name)[j]) for name in _NUMBERS},
        drifted=drifted,
        possibly_leaked=drifted and bool(drift.easier[j] > 0),
        explanation=drift_message(
            key,
            old_b=float(drift.old_b[j]),
            new_b=float(drift.new_b[j]),
            z=float(drift.z[j]),
            easier=float(drift.easier[j]),
            n_answers=int(drift.n_answers[j]),
        )
        if drifted
        else None,
    )
