"""Tests computed in a child process give the same results as here."""

import io
import itertools
import json
import time
from typing import Any

import numpy as np
import pytest

from app.engine.design.design import Design
from app.engine.prediction.correction import IntervalCorrection, IntervalFactor
from app.engine.simulation.forecast import calls_of, forecast
from app.errors import LimitExceededError
from app.services.banks import confined_tests
from app.services.banks.confined_tests import Materials, forecast_confined
from tests.engine.random_banks import KINDS, Kind, clean_bank

TWICE = IntervalFactor(answers=(1,), factor=(2.0,), usual=(1.0,), power=0.0)
KNOWLEDGE = {"interval_correction": IntervalCorrection(theta=TWICE, n_examinees=99).to_dict()}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_child_forecasts_the_same(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = clean_bank(3, 40, kind=kind)
    rng = np.random.default_rng(4)
    design = Design.from_dict(
        {
            "selection": {
                "exposure": {"max_rate": 0.4},
                "content": {"targets": {"even": 0.5, "odd": 0.5}},
                "cost_weight": 0.5,
            },
            "stopping": {"se": 0.4, "max_items": 9},
            "concurrency": 2,
        }
    )
    materials = Materials(
        bank=bank,
        active=rng.random(40) < 0.9,
        tags=[("even",) if i % 2 else ("odd",) for i in range(40)],
        costs=rng.uniform(1, 9, 40),
        acceptance=rng.uniform(0.2, 1, 40),
        knowledge=KNOWLEDGE,
    )
    tokens = rng.integers(5, 50, 40).astype(np.float64)
    calls = calls_of(40, tokens_in=tokens, tokens_out=3, price_in=2.0, pace_s=0.5)
    thetas = [-1.0, 0.0, 2.0]
    here = forecast(
        materials.test(design), thetas, seed=5, concurrency=2, se_target=0.4, calls=calls
    )
    monkeypatch.setattr(confined_tests, "processes", _Here)
    assert await forecast_confined(materials, design, thetas, seed=5, calls=calls) == here


async def test_a_forecast_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    materials = Materials(
        bank=clean_bank(3, 40), active=np.ones(40, dtype=np.bool_), tags=[()] * 40
    )
    design = Design.from_dict({"stopping": {"max_items": 9}})
    monkeypatch.setattr(confined_tests, "processes", _Here)
    now = itertools.count(step=2.0)
    monkeypatch.setattr(time, "process_time", lambda: next(now))
    with pytest.raises(LimitExceededError, match="set n_examinees to 30 or fewer") as fault:
        await forecast_confined(materials, design, np.zeros(100), seed=5, calls=calls_of(40))
    assert "takes about 200 s, and may take 60 s" in fault.value.detail
    assert next(now) == 12.0  # the start and five tests
    await forecast_confined(materials, design, np.zeros(20), seed=5, calls=calls_of(40))


class _Here:
    """Runs confined work in this process; all data still pass through JSON."""

    async def run(self, work: Any, argument: Any, attachments: list[bytes], **_: object) -> object:
        value = work(json.loads(json.dumps(argument)), attachments, io.BytesIO())
        return json.loads(json.dumps(value))
