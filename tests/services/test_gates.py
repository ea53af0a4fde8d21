"""What a gate that decides nothing asks for."""

import pytest

from app.engine.inference.gate import GateOutcome
from app.errors import InvalidInputError
from app.records.fields import ends
from app.records.gates import BASELINE_LIMITS, Baseline, GateSpec
from app.records.sessions import SessionRecord
from app.services.container import Services
from tests.services.banks import make_bank, spread
from tests.services.sessions import answered, by_hand, length, spec
from tests.values import not_none

N_ITEMS = 12


async def asked(services: Services, n: int, right: int = 1) -> SessionRecord:
    """Return a session that asked `n` questions; steps like `right` modulo 2 are right."""
    begun = await by_hand(services, length(n), bank="small")
    return await answered(services, begun, lambda at: {"score": float(at.step % 2 == right)})


async def test_an_open_gate_asks_more_where_questions_are_left(services: Services) -> None:
    await make_bank(services, "small", spread(*(f"q{n}" for n in range(N_ITEMS))))
    whole, part = await asked(services, N_ITEMS), await asked(services, N_ITEMS - 4)
    other = await asked(services, N_ITEMS)

    async def advice(session: SessionRecord, before: SessionRecord | None = None) -> str:
        baseline: Baseline | None = None
        threshold = session.summary["estimate"]["theta"] or 0.0
        if before is not None:
            baseline, threshold = await services.baselines.of_session(before.id), -0.01
        wanted = GateSpec(metric="theta", threshold=threshold, baseline=baseline)
        gate = await services.gates.create(wanted, session.id)
        assert not_none(gate.result).outcome is GateOutcome.INCONCLUSIVE
        return gate.detail.partition("Ask more questions")[2]

    assert await advice(part) == " to decide."
    assert await advice(whole) == ""
    assert await advice(whole, other) == ""
    assert await advice(whole, part) == " of the baseline to decide."


async def test_a_bank_named_as_a_deleted_one_is_another_bank(services: Services) -> None:
    made = await make_bank(services, "small", spread(*(f"q{n}" for n in range(N_ITEMS))))
    baseline = await services.baselines.of_session((await asked(services, 8)).id)
    await services.banks.delete_bank(made.bank_id, 1)
    await make_bank(services, "small", spread(*(f"r{n}" for n in range(N_ITEMS))))
    wanted = GateSpec(metric="score", threshold=-0.1, baseline=baseline)
    begun = spec(mode="manual", endpoint=None, bank="small", plan=length(8))
    with pytest.raises(InvalidInputError, match="set the baseline to a session on this one"):
        await services.gates.create(wanted, begun)


async def test_the_same_questions_in_another_order_are_the_same(services: Services) -> None:
    keys = [f"q{n}" for n in range(N_ITEMS)]
    await make_bank(services, "small", spread(*keys), scale="one")
    before = await asked(services, N_ITEMS)
    await make_bank(services, "small", spread(*reversed(keys)), scale="one")
    after = await asked(services, N_ITEMS)
    assert after.bank_version == 2
    found = await services.comparisons.sessions(before.id, after.id, confidence=0.95)
    assert found.score is not None
    assert (await services.leaderboards.of_bank("small")).board.caution is None
    baseline = await services.baselines.of_session(before.id)
    wanted = GateSpec(metric="score", threshold=-0.5, baseline=baseline)
    assert (await services.gates.create(wanted, after.id)).result is not None


async def test_a_baseline_that_is_known_exactly_limits_no_gate(services: Services) -> None:
    await make_bank(services, "small", spread(*(f"q{n}" for n in range(N_ITEMS))))
    before, after = await asked(services, N_ITEMS), await asked(services, N_ITEMS)
    baseline = await services.baselines.of_session(before.id)
    wanted = GateSpec(metric="score", threshold=0.0, baseline=baseline)
    assert BASELINE_LIMITS not in (await services.gates.create(wanted, after.id)).detail


async def test_a_gate_says_when_the_baseline_alone_leaves_it_open(services: Services) -> None:
    """Its own error is then too large, however exactly the session is measured."""
    await make_bank(services, "small", spread(*(f"q{n}" for n in range(200))))
    rough, part, whole = [await asked(services, n) for n in (10, 40, 200)]
    near = await asked(services, 38, right=0)  # shares no errors with the session

    async def advice(metric: str, before: SessionRecord, tolerance: float) -> str:
        baseline = await services.baselines.of_session(before.id)
        wanted = GateSpec(metric=metric, threshold=-tolerance, baseline=baseline)
        gate = await services.gates.create(wanted, part.id)
        assert not_none(gate.result).outcome is GateOutcome.INCONCLUSIVE
        return gate.detail.partition("may pass. ")[2]

    limited = f"{BASELINE_LIMITS} Ask more questions of the baseline to decide."
    assert (await advice("score", rough, 0.1)).startswith(limited)
    assert (await advice("theta", rough, 0.1)).startswith(limited)
    of_all = await advice("theta", whole, 0.01)
    assert of_all.startswith(BASELINE_LIMITS)
    assert "Ask more" not in of_all
    # The whole baseline's score is known exactly: only answers of the session are missing.
    assert (await advice("score", whole, 0.01)).startswith("Ask more questions to decide.")
    known = near.summary["score"]
    assert known is not None
    assert known["interval"] is not None
    lo, hi = ends(known["interval"])
    both = await advice("score", near, 0.6 * ((hi or 0.0) - (lo or 0.0)))
    assert both.startswith("Ask more questions, of the baseline, too, to decide.")
