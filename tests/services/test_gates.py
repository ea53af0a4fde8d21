"""What a gate that decides nothing asks for."""

import numpy as np

from app.engine.bank import ItemBank
from app.engine.inference.gate import GateOutcome
from app.records.banks import BankSpec
from app.records.gates import Baseline, GateSpec
from app.records.sessions import SessionRecord
from app.services.banks.imports import BankImport
from app.services.container import Services
from tests.services.sessions import answered, spec

N_ITEMS = 12


async def asked(services: Services, n: int) -> SessionRecord:
    """Return a session that asked `n` of the bank's questions; every second answer is right."""
    plan = {"stopping": {"se": None, "min_items": n, "max_items": n}}
    session = await services.sessions.create(
        spec(mode="manual", bank="small", endpoint=None, plan=plan)
    )
    return await answered(services, session, lambda at: {"score": float(at.step % 2)})


async def test_an_open_gate_asks_more_only_of_those_who_have_questions_left(
    services: Services,
) -> None:
    parameters = ItemBank.from_difficulties(
        a=np.ones(N_ITEMS), b=np.linspace(-2, 2, N_ITEMS), item_ids=[f"q{n}" for n in range(12)]
    )
    await services.banks.import_bank(BankSpec(name="small"), BankImport(parameters=parameters))
    whole, part = await asked(services, N_ITEMS), await asked(services, N_ITEMS - 4)
    other = await asked(services, N_ITEMS)

    async def advice(session: SessionRecord, before: SessionRecord | None = None) -> str:
        baseline: Baseline | None = None
        threshold = session.summary["estimate"]["theta"] or 0.0
        if before is not None:
            baseline, threshold = await services.baselines.of_session(before.id), -0.01
        wanted = GateSpec(metric="theta", threshold=threshold, baseline=baseline)
        gate = await services.gates.create(wanted, session.id)
        assert gate.result is not None
        assert gate.result.outcome is GateOutcome.INCONCLUSIVE
        return gate.detail.partition("Ask more questions")[2]

    assert await advice(part) == " to decide."
    assert await advice(whole) == ""
    assert await advice(whole, other) == ""
    assert await advice(whole, part) == " of the baseline to decide."
    assert await advice(part, whole) == " to decide."
