"""What the demo's model server writes: the answers of a simulated model to the demo's items."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from app.demo.bank import DemoItem, demo_bank, item_bank

UNKNOWN = (
    "Thank you for asking. This is a scripted demonstration model: it answers the questions of "
    "Sextant's demo bank and no others."
)

#: Ways in which models state an answer; `{}` is a letter, a number or a text.
CHOICE_STYLES = (
    "{}",
    "{}.",
    "**{}**",
    "The answer is {}.",
    "The correct answer is **{}**.",
    "Let me work through the options.\n\nAnswer: {}",
)
FREE_STYLES = (
    "Answer: {}",
    "Let me work this out step by step.\n\nAnswer: {}",
    "The answer is {}.",
    "Working it out gives the result.\n\n**Answer: {}**",
)

_OPTION = re.compile(r"(?m)^[ \t]*\(?([A-Z])[).:][ \t]*(.+?)[ \t]*$")
#: Prompts remembered with their replies: one per item and prompt style that is in use.
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class _Script:
    """What is said to one item."""

    item: DemoItem
    answer: str
    style: float


class ScriptedModel:
    """A simulated model of ability `theta` that knows some items.

    Whether it answers an item rightly is drawn once, with the probability that the item's curve
    gives, as a pure function of (seed, item): asked again, it answers the same.

    Args:
        theta: Ability, logits on the bank's scale.
        seed: Of the draws.
        items: The items it knows; the demo bank when left out.
        skills: Other abilities by the beginning of an item's key, for models that are better at
            one task than at another.
    """

    def __init__(
        self,
        *,
        theta: float,
        seed: int,
        items: Sequence[DemoItem] | None = None,
        skills: Mapping[str, float] | None = None,
    ) -> None:
        known = demo_bank().items if items is None else tuple(items)
        bank = item_bank(known, scale="scripted")
        thetas = np.array([_skill(item.key, skills or {}, theta) for item in known])
        chances = bank.model.expected_score(bank.parameters, thetas)
        self.right: dict[str, bool] = {}
        self._scripts: list[_Script] = []
        for item, chance in zip(known, chances, strict=True):
            digest = hashlib.sha256(item.key.encode()).digest()
            draws = np.random.default_rng([seed, int.from_bytes(digest[:8])]).random(3)
            self.right[item.key] = bool(draws[0] < chance)
            wrong = item.wrong_answers[int(draws[1] * len(item.wrong_answers))]
            answer = item.right_answer if self.right[item.key] else wrong
            self._scripts.append(_Script(item=item, answer=answer, style=float(draws[2])))
        self.reply = lru_cache(_REMEMBERED)(self._reply)

    def _reply(self, prompt: str) -> str:
        """The answer to the item that `prompt` puts last, or a polite word about knowing none."""
        asked = max(
            self._scripts,
            key=lambda script: prompt.rfind(script.item.content.prompt or "\0"),
        )
        position = prompt.rfind(asked.item.content.prompt or "\0")
        if position < 0:
            return UNKNOWN
        shown = {text: letter for letter, text in _OPTION.findall(prompt[position:])}
        if asked.item.content.choices and asked.answer in shown:
            return _styled(CHOICE_STYLES, asked.style, shown[asked.answer])
        return _styled(FREE_STYLES, asked.style, asked.answer)


def _skill(key: str, skills: Mapping[str, float], theta: float) -> float:
    return next((skill for start, skill in skills.items() if key.startswith(start)), theta)


def _styled(styles: tuple[str, ...], draw: float, answer: str) -> str:
    return styles[int(draw * len(styles))].format(answer)
