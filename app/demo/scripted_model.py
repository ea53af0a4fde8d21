"""What the demo's model server writes: as a model, as a judge, and as a maker of embeddings.

The judge scores by the words that the answer, as far as it is stated apart from the working, shares
with the nearest reference, and now and then replies with something that is no judgement, as real
ones do.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from app.demo.bank import DemoItem, demo_bank, item_bank
from app.printable import percent
from app.scorers.exact import stated_answer
from app.scorers.overlap import f1, squad_normal

MODEL_NAME, JUDGE_NAME = "sextant-demo", "sextant-judge"

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
EMBEDDING_SIZE = 128

_SCALE = re.compile(r"whole number from (\d+) to (\d+)")
_ANSWER = re.compile(r"<answer>\n(.*)\n</answer>", re.DOTALL)
_REFERENCES = re.compile(r"Reference answers[^\n]*:\n((?:- [^\n]*\n)+)")
#: What judges write instead of a judgement; none of it can be read as one.
_NO_JUDGEMENTS = (
    "The answer is decent, I would say.",
    '{"reason": "cut off in the midd',
    '{"reason": "No score", "score": null}',
    '{"reason": "Off the scale", "score": 4711}',
    "```json\n{'score': seven}\n```",
)


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


class ScriptedJudge:
    """A judge that knows the references and, at times, not how to write JSON.

    Args:
        seed: Decides which replies are no judgements.
        fault_rate: Share of them.
    """

    def __init__(self, *, seed: int, fault_rate: float) -> None:
        self._seed = seed
        self._fault_rate = fault_rate
        self._asked: Counter[str] = Counter()

    def reply(self, prompt: str) -> str:
        """The judgement of the answer that is quoted in `prompt`, or a faulty reply.

        Which replies are faulty depends on the seed, the prompt, and how often it was asked, so
        that callers in any order see the same faults.
        """
        self._asked[prompt] += 1
        where, which = _two_uniforms(f"{self._seed}:{self._asked[prompt]}:{prompt}")
        if where < self._fault_rate:
            return _NO_JUDGEMENTS[int(which * len(_NO_JUDGEMENTS))]
        scale = _SCALE.search(prompt)
        lowest, highest = (int(scale[1]), int(scale[2])) if scale else (1, 10)
        likeness = _likeness(prompt)
        score = lowest + round(likeness * (highest - lowest))
        return json.dumps(
            {"reason": f"It shares {percent(likeness)} of the words.", "score": score}
        )


def embedding(text: str) -> list[float]:
    """A vector of the text's trigrams: like texts have like vectors."""
    vector = [0.0] * EMBEDDING_SIZE
    normal = f"  {squad_normal(text)}  "
    for start in range(len(normal) - 2):
        digest = hashlib.sha256(normal[start : start + 3].encode("utf-8", "replace")).digest()
        vector[digest[0] % EMBEDDING_SIZE] += 1.0
    length = math.hypot(*vector)
    return [value / length for value in vector]


def _likeness(prompt: str) -> float:
    answer, references = _ANSWER.search(prompt), _REFERENCES.search(prompt)
    if answer is None or references is None:
        return 0.5
    _, stated = stated_answer(answer[1])  # an answer is not worse for the words around it
    words = squad_normal(stated).split()
    wanted = (line.removeprefix("- ") for line in references[1].splitlines())
    return max(f1(words, squad_normal(reference).split()) for reference in wanted)


def _two_uniforms(key: str) -> tuple[float, float]:
    digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:16]) / 2**64
