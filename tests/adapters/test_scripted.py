import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.base import CompletionRequest, SimulationHints
from app.adapters.scripted import Scripted
from app.errors import EndpointRejectedError
from app.items import Message


def request(key: str, difficulty: float = 0.0) -> CompletionRequest:
    hints = SimulationHints(
        right="right",
        wrong="wrong",
        probability_right=lambda theta: 1 / (1 + math.exp(difficulty - theta)),
        key=key,
    )
    return CompletionRequest(messages=(Message("user", "x" * 9),), hints=hints)


@given(st.integers(), st.text(), st.floats(-4, 4))
def test_an_answer_depends_on_ability_seed_and_item(seed: int, key: str, theta: float) -> None:
    def answer() -> str:
        examinee = Scripted(theta=theta, seed=seed)
        return asyncio.run(examinee.complete(request(key))).text

    assert answer() == answer()


async def test_the_share_of_right_answers_follows_the_items_curve() -> None:
    examinee = Scripted(theta=0.5, seed=11)
    n = 4000
    answers = [(await examinee.complete(request(f"item {i}", -0.3))).text for i in range(n)]
    expected = 1 / (1 + math.exp(-0.8))
    standard_error = math.sqrt(expected * (1 - expected) / n)
    assert answers.count("right") / n == pytest.approx(expected, abs=4 * standard_error)


async def test_another_seed_is_another_examinee() -> None:
    keys = [f"item {i}" for i in range(64)]
    rows = {
        "".join([(await Scripted(seed=seed).complete(request(key))).text[0] for key in keys])
        for seed in range(5)
    }
    assert len(rows) == 5


async def test_higher_ability_never_turns_a_right_answer_wrong() -> None:
    for i in range(200):
        weak, strong = [
            (await Scripted(theta=theta, seed=2).complete(request(f"{i}"))).text
            for theta in (-1.0, 1.0)
        ]
        assert (weak, strong) != ("right", "wrong")


async def test_tokens_are_estimated_so_that_budgets_work_in_a_dry_run() -> None:
    completion = await Scripted().complete(request("a"))
    assert completion.tokens_in == 3
    assert completion.tokens_out == 2


async def test_a_request_without_item_parameters_is_a_clear_error() -> None:
    with pytest.raises(EndpointRejectedError, match="item's parameters"):
        await Scripted().complete(CompletionRequest(messages=(Message("user", "x"),)))


async def test_skills_apply_to_items_by_the_prefix_of_their_key() -> None:
    examinee = Scripted(theta=-30.0, skills={"law/": 30.0})
    answers = [(await examinee.complete(request(key))).text for key in ("law/1", "maths/1", "law")]
    assert answers == ["right", "wrong", "wrong"]
