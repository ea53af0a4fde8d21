"""Scoring: calls refused before anything is spent, and long answers, which are shortened."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, ScorerSpec, sha256_of
from app.records.banks import BankSpec
from app.records.endpoints import Price
from app.records.sessions import Closing
from app.services.banks.loaded import BankItem
from app.services.container import Services
from app.services.scoring import MAX_CHARS, AnswerScorer, cut, is_cut
from tests.services.banks import question
from tests.services.judged import judged_bank, marker
from tests.services.sessions import administration, spec
from tests.values import not_none

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


async def test_a_bank_whose_scorer_has_no_fit_endpoint_is_refused(services: Services) -> None:
    await marker(services, NOWHERE, name="hook", kind="callback", model="", api_key="key")
    await marker(services, NOWHERE, name="free", price=Price())
    await marker(services, NOWHERE, name="tgi", kind="hf_tgi", model="")
    for scorer, params, words in REFUSED:
        bank = BankSpec(name="b", default_scorer=ScorerSpec(scorer, params))
        with pytest.raises(InvalidInputError, match=words):
            await services.banks.create_bank(bank)


async def test_an_item_or_a_session_whose_judge_is_not_there_is_refused(services: Services) -> None:
    await services.banks.create_bank(BankSpec(name="b"))
    item = question("q", scorer=ScorerSpec("judge", {"judges": ["gone"]}))
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
    usage = {"calls": 3, "tokens_in": 10, "tokens_out": 1, "usd": 0.1}
    spec_hash = sha256_of(["judge", dict(scorer.params)])
    marking: Any = {"scorer": "judge", "version": "1", "spec_hash": spec_hash}
    marking |= {"usage": usage, "judgements": [{"reason": "a secret"}]}
    record, opened = await services.sessions.create(spec()), services.endpoints
    closed = Closing(
        outcome="error",
        answer_text="a secret",
        marking=marking,
        method={"repeats": [{"answer_text": "a secret"}]},
    )
    assert "secret" not in str(closed.effort())
    extended = replace(record, provenance={**record.provenance, "dropped": [closed.effort()]})
    asked = [administration(1, 0, closing=closed), administration(2, 1)]
    item = BankItem(
        position=0, id="itm", key="q", content=ItemContent(prompt="?", target=("!",)), scorer=scorer
    )
    for session, rows in ((record, asked), (extended, [])):
        scores = AnswerScorer.of(session, rows, endpoints=opened, transport=services.transport)
        marked = await scores.close(item, Answer(text="!"))
        assert (marked.score, marked.error_code) == (None, "judge_budget_exhausted")
        assert not_none(marked.marking)["usage"]["calls"] == 0


@pytest.mark.parametrize(("policy", "score"), [("missing", None), ("wrong", 0.0)])
async def test_an_answer_without_a_number_counts_as_the_session_says(
    services: Services, policy: str, score: float | None
) -> None:
    session = await services.sessions.create(spec(unparsed_policy=policy))
    content = ItemContent(prompt="2 + 2?", target=("4",))
    item = BankItem(position=0, id="itm", key="q", content=content, scorer=ScorerSpec("numeric"))
    scores = AnswerScorer.of(
        session, (), endpoints=services.endpoints, transport=services.transport
    )
    closing = await scores.close(item, Answer(text="No idea."))
    assert (closing.outcome, closing.score) == ("unparsed", score)


def test_both_ends_and_the_hash_of_the_whole_stay() -> None:
    whole = "head" + "é" * 4_000_000 + "tail"
    kept = not_none(cut(whole))
    assert len(kept) < MAX_CHARS + 200
    assert kept.startswith("headé")
    assert kept.endswith("étail")
    assert hashlib.sha256(whole.encode()).hexdigest() in kept
    assert is_cut(kept)


def test_a_short_answer_stays_whole() -> None:
    for text in (None, "", "x" * MAX_CHARS):
        assert cut(text) == text
        assert not is_cut(text)
    assert not is_cut("y" * (MAX_CHARS + 50))
