import numpy as np
import pytest

from app.adapters.prompting import PromptStyle, build_messages, flatten
from app.demo.bank import DemoItem, demo_bank
from app.demo.scripted_model import CHOICE_STYLES, FREE_STYLES, UNKNOWN, ScriptedModel
from app.items import Answer, Message
from app.scorers import Scored, build, mark

ITEMS = demo_bank().items
FEW_SHOT = PromptStyle(
    system="You are a careful examinee.",
    prefix=(Message("user", f"{ITEMS[0].content.prompt}\n\nA. 1\nB. 2"), Message("assistant", "A")),
)


def _put(item: DemoItem, style: PromptStyle) -> str:
    return build_messages(item.content, style)[-1].content


@pytest.mark.parametrize("seed", range(4))
async def test_every_reply_is_scored_as_the_draw_said(seed: int) -> None:
    model = ScriptedModel(theta=0.0, seed=seed)
    for item in ITEMS:
        reply = model.reply(_put(item, PromptStyle()))
        result = await mark(build(item.scorer), item.content, Answer(text=reply))
        assert isinstance(result, Scored), (item, reply, result)
        assert result.score == float(model.right[item.key]), (item, reply, result)


async def test_a_flat_prompt_with_examples_is_answered_for_its_last_question() -> None:
    model = ScriptedModel(theta=0.0, seed=1)
    for item in ITEMS[1:]:
        reply = model.reply(flatten(build_messages(item.content, FEW_SHOT)))
        result = await mark(build(item.scorer), item.content, Answer(text=reply))
        assert isinstance(result, Scored), (item, reply, result)
        assert result.score == float(model.right[item.key])


async def test_options_are_answered_in_the_order_they_are_shown() -> None:
    item = next(item for item in ITEMS if item.content.choices)
    model = ScriptedModel(theta=10.0, seed=1)
    backwards = item.content.choices[::-1]
    shown = "\n".join(f"{letter}) {text}" for letter, text in zip("ABCDE", backwards, strict=False))
    reply = model.reply(f"Answer this.\n{item.content.prompt}\n{shown}\nLetter only.")
    assert "ABCDE"[backwards.index(item.right_answer)] in reply


def test_the_share_of_right_answers_is_what_theta_predicts() -> None:
    expected = demo_bank().item_bank().expected_score(1.0)
    models = [ScriptedModel(theta=1.0, seed=seed, items=ITEMS) for seed in range(20)]
    share = np.mean([list(model.right.values()) for model in models])
    spread = np.sqrt(np.sum(expected * (1 - expected)) * 20) / (20 * len(expected))
    assert abs(share - expected.mean()) < 4 * spread


def test_the_draw_depends_on_seed_and_item_only() -> None:
    some = ScriptedModel(theta=0.3, seed=9, items=ITEMS[100:110])
    everything = ScriptedModel(theta=0.3, seed=9)
    assert some.right == {key: everything.right[key] for key in some.right}


def test_a_more_able_model_keeps_its_right_answers() -> None:
    less, more = ScriptedModel(theta=-1.0, seed=9), ScriptedModel(theta=1.0, seed=9)
    assert all(more.right[key] for key, right in less.right.items() if right)


def test_several_ways_of_answering_occur() -> None:
    model = ScriptedModel(theta=0.0, seed=1)
    replies = [model.reply(_put(item, PromptStyle())) for item in ITEMS]
    assert sum(reply.startswith("The ") for reply in replies) > 20
    assert sum(len(reply) == 1 for reply in replies) > 10
    assert len(CHOICE_STYLES) + len(FREE_STYLES) >= 8


def test_an_unknown_prompt_gets_a_polite_reply() -> None:
    assert ScriptedModel(theta=0.0, seed=1).reply("Say hello.") == UNKNOWN


def test_skills_apply_to_items_by_the_prefix_of_their_key() -> None:
    model = ScriptedModel(theta=-30.0, seed=1, skills={"dates": 30.0})
    plain = ScriptedModel(theta=-30.0, seed=1)
    of_dates = [item.key for item in ITEMS if item.key.startswith("dates")]
    assert of_dates
    assert all(model.right[key] for key in of_dates)
    assert all(
        model.right[item.key] == plain.right[item.key] for item in ITEMS if item.key not in of_dates
    )
