"""What a gate that decides nothing asks for."""

import numpy as np

from app.engine.bank import ItemBank
from app.engine.inference.gate import GateOutcome
from app.records.banks import BankSpec
from app.records.fields import ends
from app.records.gates import BASELINE_LIMITS, Baseline, GateSpec
from app.records.sessions import SessionRecord
from app.services.banks.imports import BankImport
from app.services.container import Services
from tests.services.sessions import answered, spec

N_ITEMS = 12


async def asked(services: Services, n: int, right: int = 1) -> SessionRecord:
    """Return a session that asked `n` questions; steps like `right` modulo 2 are right."""
    plan = {"stopping": {"se": None, "min_items": n, "max_items": n}}
    session = await services.sessions.create(
        spec(mode="manual", bank="small", endpoint=None, plan=plan)
    )
    return await answered(services, session, lambda at: {"score": float(at.step % 2 == right)})


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


async def test_a_gate_says_when_the_baseline_alone_leaves_it_open(services: Services) -> None:
    """Its own error is then too large, however exactly the session is measured."""
    parameters = ItemBank.from_difficulties(
        a=np.ones(200), b=np.linspace(-2, 2, 200), item_ids=[f"q{n}" for n in range(200)]
    )
    await services.banks.import_bank(BankSpec(name="small"), BankImport(parameters=parameters))
    rough, part, whole = [await asked(services, n) for n in (10, 40, 200)]
    near = await asked(services, 38, right=0)  # shares no errors with the session

    async def advice(metric: str, before: SessionRecord, tolerance: float) -> str:
        baseline = await services.baselines.of_session(before.id)
        wanted = GateSpec(metric=metric, threshold=-tolerance, baseline=baseline)
        gate = await services.gates.create(wanted, part.id)
        assert gate.result is not None
        assert gate.result.outcome is GateOutcome.INCONCLUSIVE
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
