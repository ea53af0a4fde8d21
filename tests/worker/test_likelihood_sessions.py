"""Sessions that compare options by likelihood, and sessions on banks that require it."""

from typing import Any

import pytest

from app.engine.ranking.rules import RankingBudget, RankingRules
from app.errors import InvalidInputError
from app.exchange.item_record import ItemRecord
from app.items import ItemContent
from app.records.banks import BankSpec
from app.records.endpoints import Price
from app.records.sessions import AskedJson, SessionRecord
from app.reports.figures import asked_caution
from app.services.container import Services
from tests.services.banks import alike, make_bank
from tests.services.rankings import contest, members_of
from tests.services.sessions import failure_of, spec
from tests.values import not_none
from tests.worker.models import Faults
from tests.worker.sessions import closings, model_at, rescored, run_session

CALIBRATED: AskedJson = {"mode": "loglikelihood", "normalise": "none", "shots": 0}
PLAN = {
    "stopping": {"se": None, "min_items": 1, "max_items": 4},
    "failures": {"max_share": 1.0},
    "concurrency": 1,
}
NOWHERE = "http://127.0.0.1:9/v1"


def record(key: str, *choices: str) -> ItemRecord:
    return ItemRecord(
        key=key, content=ItemContent(prompt=f"{key}?", choices=choices, target=choices[-1:])
    )


async def install(services: Services, *items: ItemRecord, **prompt: Any) -> None:
    """Create a bank that requires likelihoods; the fault server prefers the fewest words."""
    style = {"mode": "loglikelihood", "normalise": "none", **prompt}
    bank = BankSpec(name="choices", prompt=style)
    await make_bank(services, bank, alike(*(i.key for i in items)), items, asked=CALIBRATED)


def said_of(session: SessionRecord) -> str | None:
    """Return the caution where a session asks otherwise than its bank was calibrated."""
    told = session.provenance
    return asked_caution(told["asked"], told["asked_when_calibrated"])


async def test_the_likeliest_option_is_the_answer(working: Services, faults: Faults) -> None:
    await install(
        working, record("right", "two words", "one"), record("wrong", "one", "two words"),
        record("tie", "one", "two"), record("twice", "a b", "a b", "c"),
    )  # fmt: skip
    endpoint = faults.model("ok", kind="openai_completions", price=Price(input_per_1m=1e6))
    ended = await run_session(working, bank="choices", plan=PLAN, endpoint=endpoint)

    found = await closings(working, ended)
    assert {key: (c.outcome, c.score, c.answer_text) for key, c in found.items()} == {
        "right": ("scored", 1.0, "B"),
        "wrong": ("scored", 0.0, "A"),
        "tie": ("unparsed", None, "A or B"),
        "twice": ("error", None, None),
    }
    assert found["twice"].reason == (
        "Options A and B of the item are the same text: no likelihood tells them apart."
    )
    right = found["right"]
    first, second = not_none(right.method)["options"]
    assert (first["tokens"], second["tokens"]) == (2, 1)
    assert first["logprob"] == pytest.approx(2 * second["logprob"])
    assert (first["bytes"], second["bytes"]) == (9, 3)
    # Two calls per item; each has "Question:", "right?", "Answer:" and the option's words.
    assert right.attempts == 2
    assert right.tokens_in == right.usd == (3 + 2) + (3 + 1)
    assert ended.summary["usage"]["calls"] == len(faults.calls) == 6
    assert {call.body["max_tokens"] for call in faults.calls} == {1}
    assert ended.provenance["asked"]["mode"] == "loglikelihood"
    assert said_of(ended) is None

    assert (await rescored(working, ended.id)).summary["rescore"]["changed"] == 0


async def test_a_chat_endpoint_is_asked_for_the_letter(working: Services, faults: Faults) -> None:
    await install(working, record("one", "a", "b"))
    ended = await run_session(working, bank="choices", plan=PLAN, endpoint=faults.model("ok"))

    assert "Answer with the letter" in faults.calls[0].body["messages"][-1]["content"]
    asked = ended.provenance["asked"]
    assert (asked["mode"], asked["wanted"]) == ("generate", "loglikelihood")
    said = said_of(ended) or ""
    assert said.startswith("When the bank was calibrated, its options were compared by how likely")
    assert "here the answer is asked for" in said
    assert asked_caution(asked, {}) is not None  # also where the calibration is unknown
    report = await working.session_reports.report(ended.id, reveal=True)
    assert "asked_otherwise" in [caution.code for caution in report.warnings]


async def test_an_endpoint_without_likelihoods_fails(working: Services, faults: Faults) -> None:
    await install(working, record("one", "a", "b"), record("two", "a", "b"))
    faults.canned("mute", {"choices": [{"text": "A"}], "usage": {"prompt_tokens": 3}})
    endpoint = faults.model("mute", kind="openai_completions")
    ended = await run_session(working, bank="choices", plan=PLAN, endpoint=endpoint)

    assert ended.status == "failed"
    assert failure_of(ended)["code"] == "endpoint_no_likelihoods"
    assert "returns no log-probabilities of a prompt" in failure_of(ended)["detail"]
    assert ended.summary["progress"]["items"] == 1


async def test_banks_unfit_for_likelihoods_are_refused_before_any_call(services: Services) -> None:
    await install(services, record("one", "a", "b"))
    for kind, bank, says in (
        ("openai_chat", "choices", "kind 'openai_chat' gives no likelihoods"),
        ("openai_completions", "demo", "no options to compare by log-likelihood"),
    ):
        endpoint, prompt = model_at(NOWHERE, kind=kind), {"mode": "loglikelihood"}
        with pytest.raises(InvalidInputError, match=says):
            await services.sessions.create(spec(bank=bank, endpoint=endpoint, prompt=prompt))


async def test_a_session_says_that_it_takes_fewer_examples(services: Services) -> None:
    turns = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "a"}]
    await install(services, record("one", "a", "b"), prefix=turns * 2)
    prompt = {"shots": 1, "system": "Think."}
    created = await services.sessions.create(spec(bank="choices", prompt=prompt))

    asking = created.provenance["asking"]["prompt"]
    assert (len(asking["prefix"]), asking["system"]) == (2, "Think.")
    said = said_of(created) or ""
    assert "0 examples stood before each question" in said
    assert "and 1 stand here" in said
    with pytest.raises(InvalidInputError, match="at most the 2 examples"):
        await services.sessions.create(spec(bank="choices", prompt={"shots": 3}))


@pytest.mark.parametrize(
    ("kinds", "mode"),
    [
        (("openai_completions", "openai_chat"), "generate"),
        (("openai_completions", "hf_tgi"), "loglikelihood"),
    ],
)
async def test_all_members_of_a_ranking_are_asked_alike(
    services: Services, kinds: tuple[str, str], mode: str
) -> None:
    await install(services, *(record(f"item {number}", "a", "b") for number in range(4)))
    created = await services.rankings.create(
        contest(
            bank="choices",
            endpoints=[model_at(NOWHERE, kind=kind) for kind in kinds],
            rules=RankingRules(min_items=1, max_items=4),
            budget=RankingBudget(items=8),
        )
    )
    members = await members_of(services, created.id)
    assert [member.provenance["asked"]["mode"] for member in members] == [mode, mode]
