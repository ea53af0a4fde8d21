"""Scorers that call models: what is refused before anything is spent."""

from dataclasses import replace
from typing import Any, cast

import pytest

from app.errors import InvalidInputError
from app.exchange.item_record import ItemRecord
from app.items import Answer, ItemContent, ScorerSpec
from app.records.banks import BankSpec
from app.records.endpoints import Price
from app.records.figures import CallsFigures, Marking
from app.records.sessions import Closing
from app.scorers import NotScored
from app.services.banks.loaded import BankItem
from app.services.container import Services
from app.services.scoring import AnswerScorer, hash_of
from tests.services.judged import judged_bank, marker
from tests.services.sessions import administration, spec

NOWHERE = "http://127.0.0.1:9/v1"  # no server listens there: a call would fail


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("judge", {}, "judges: Field required"),
    ("judge", {"judges": ["nobody"]}, "calls endpoint 'nobody', which is not there"),
    ("judge", {"judges": ["end_00000000000000000000000000"]}, "which is not there"),
    ("judge", {"judges": ["hook"]}, "needs an endpoint for completions"),
    ("judge", {"judges": ["free"], "budget": {"usd": 1.0}}, "has no price"),
    ("embedding", {"endpoint": "tgi"}, "'embedding' needs an endpoint for"),
    ("callback", {"endpoint": "tgi"}, "'callback' needs an endpoint for"),
]


async def test_a_bank_whose_scorer_has_no_endpoint_that_serves_it_is_refused(
    services: Services,
) -> None:
    await marker(services, NOWHERE, name="hook", kind="callback", model="", api_key="key")
    await marker(services, NOWHERE, name="free", price=Price())
    await marker(services, NOWHERE, name="tgi", kind="hf_tgi", model="")
    for scorer, params, words in REFUSED:
        bank = BankSpec(name="b", default_scorer=ScorerSpec(scorer, params))
        with pytest.raises(InvalidInputError, match=words):
            await services.banks.create_bank(bank)


async def test_an_item_or_a_session_whose_judge_is_not_there_is_refused(
    services: Services,
) -> None:
    await services.banks.create_bank(BankSpec(name="b"))
    content = ItemContent(prompt="?", target=("!",))
    item = ItemRecord(key="q", content=content, scorer=ScorerSpec("judge", {"judges": ["gone"]}))
    with pytest.raises(InvalidInputError, match="'gone', which is not there"):
        await services.items.add("b", item)
    judge = await marker(services, NOWHERE)
    await judged_bank(services, "judge", judges=["judge"])
    await services.endpoints.delete(judge.id, expected_revision=judge.revision)
    with pytest.raises(InvalidInputError, match="'judge', which is not there"):
        await services.sessions.create(spec(bank="judged"))


async def test_a_callback_needs_a_key_and_cannot_be_tested(services: Services) -> None:
    with pytest.raises(InvalidInputError, match="the key that signs"):
        await marker(services, NOWHERE, kind="callback", model="")
    hook = await marker(services, NOWHERE, kind="callback", model="", api_key="key")
    with pytest.raises(InvalidInputError, match="cannot be asked items"):
        await services.sessions.create(spec(endpoint=None, endpoint_id=hook.id))


async def test_what_a_lost_worker_spent_counts_against_the_budget(services: Services) -> None:
    judge = await marker(services, NOWHERE)
    scorer = ScorerSpec("judge", {"judges": [judge.id], "budget": {"calls": 3}})
    usage: CallsFigures = {"calls": 3, "tokens_in": 10, "tokens_out": 1, "usd": 0.1}
    marking: Marking = {
        "scorer": "judge",
        "version": "1",
        "spec_hash": hash_of(scorer),
        "usage": usage,
    }
    record, opened = await services.sessions.create(spec()), services.endpoints
    closed = Closing(
        outcome="error",
        answer_text="a secret",
        marking=cast(Marking, {**marking, "judgements": [{"reason": "a secret"}]}),
        method={"repeats": [{"answer_text": "a secret"}]},
    )
    assert "secret" not in str(closed.effort())
    extended = replace(record, provenance={**record.provenance, "dropped": [closed.effort()]})
    asked = [administration(1, 0, closing=closed), administration(2, 1)]
    for session, known in ((record, asked), (extended, [])):
        await _exhausted(
            scorer,
            AnswerScorer.of(session, known, endpoints=opened, transport=services.transport),
        )


async def _exhausted(scorer: ScorerSpec, answer_marker: AnswerScorer) -> None:
    content = ItemContent(prompt="?", target=("!",))
    item = BankItem(position=0, id="itm", key="q", content=content, scorer=scorer)

    marked = await answer_marker.mark(item, Answer(text="!"))

    assert isinstance(marked.mark, NotScored)
    assert marked.mark.code == "judge_budget_exhausted"
    assert marked.marking is not None
    assert marked.marking["usage"]["calls"] == 0
