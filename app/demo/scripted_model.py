"""Which questions the demo's model server answers right, and its replies, also as a judge.

The judge scores the words that the stated answer, without its working, shares with the nearest
reference. Like real judges, it sometimes replies with something that is not a judgement.
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
#: Most prompts that are cached with their replies: one for each item and prompt style in use.
_REMEMBERED = 4096
EMBEDDING_SIZE = 128

_SCALE = re.compile(r"whole number from (\d+) to (\d+)")
_ANSWER = re.compile(r"<answer>\n(.*)\n</answer>", re.DOTALL)
_REFERENCES = re.compile(r"Reference answers[^\n]*:\n((?:- [^\n]*\n)+)")
#: Replies of judges that cannot be read as a judgement.
_NO_JUDGEMENTS = (
    "The answer is decent, I would say.",
    '{"reason": "cut off in the midd',
    '{"reason": "No score", "score": null}',
    '{"reason": "Off the scale", "score": 4711}',
    "```json\n{'score': seven}\n```",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Script:
    """Reply to one item."""

    item: DemoItem
    answer: str
    style: float


class ScriptedModel:
    """A simulated model of ability `theta` that knows some items.

    Whether it answers an item correctly is drawn once, with the probability of the item's curve.
    The draw is a pure function of (seed, item), so that it gives the same answer every time.
    `skills` are abilities by the beginning of an item's key, for models that are better at one task
    than at another.
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
        """Answer to the last item in `prompt`, or `UNKNOWN` where it knows none of them."""
        asked = max(
            self._scripts, key=lambda script: prompt.rfind(script.item.content.prompt or "\0")
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
    """A judge that compares answers with the references, and sometimes writes invalid JSON.

    The seed decides which replies are no judgements; `fault_rate` is their share.
    """

    def __init__(self, *, seed: int, fault_rate: float) -> None:
        self._seed = seed
        self._fault_rate = fault_rate
        self._asked: Counter[str] = Counter()

    def reply(self, prompt: str) -> str:
        """The judgement of the answer that is quoted in `prompt`, or a faulty reply.

        A reply's fault depends on the seed, the prompt, and the number of times it was asked, so
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
    """Normalised vector of the text's trigrams: similar texts have similar vectors."""
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
    _, stated = stated_answer(answer[1])  # words around the answer do not lower its score
    words = squad_normal(stated).split()
    wanted = (line.removeprefix("- ") for line in references[1].splitlines())
    return max(f1(words, squad_normal(reference).split()) for reference in wanted)


def _two_uniforms(key: str) -> tuple[float, float]:
    digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:16]) / 2**64
