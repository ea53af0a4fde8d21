"""A live session with a real model server: llama.cpp with a tiny random model."""

from app.services.container import Services
from tests.servers import spawned
from tests.services.sessions import spec, until
from tests.worker.test_live_sessions import model_at


async def test_forty_items_are_asked_of_a_real_model_and_outcomes_are_counted(
    working: Services,
) -> None:
    plan = {
        "stopping": {"se": None, "min_items": 1, "max_items": 40},
        # A fixed set of items: with other items no answer might be parseable.
        "selection": {"criterion": "random"},
        "concurrency": 4,
        # A random model: chance decides how many of its answers can be parsed.
        "failures": {"max_share": 1.0},
    }
    with spawned("tests.servers.tiny_llama") as url:
        endpoint = model_at(f"{url}/v1", timeout_s=30.0)
        created = await working.sessions.create(spec(plan=plan, endpoint=endpoint))
        ended = await until(working, created.id)
        rows = await working.sessions.responses(created.id)

    outcomes = ended.summary["outcomes"]
    assert ended.status == "completed", ended.stop_detail
    assert len(rows) == 40
    assert outcomes["error"] == 0
    answered = (outcomes[name] for name in ("scored", "unparsed", "truncated", "refused"))
    assert sum(answered) == len(rows)
    for row in rows:
        closing = row.closing
        assert closing is not None
        assert (closing.score is None) == (closing.outcome != "scored")
        assert closing.tokens_out is not None
