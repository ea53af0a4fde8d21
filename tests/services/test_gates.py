"""What a gate that decides nothing asks for."""

from app.engine.inference.gate import GateOutcome
from app.records.gates import Baseline, GateSpec
from app.records.sessions import SessionRecord
from app.services.container import Services
from tests.services.banks import make_bank, spread
from tests.services.sessions import answered, by_hand, length
from tests.values import not_none

N_ITEMS = 12


async def asked(services: Services, n: int) -> SessionRecord:
    """Return a session that asked `n` of the bank's questions; every second answer is right."""
    return await answered(services, await by_hand(services, length(n), bank="small"))


async def test_an_open_gate_asks_more_only_of_those_who_have_questions_left(
    services: Services,
) -> None:
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
    assert await advice(part, whole) == " to decide."
