"""What the demo's model server writes as a judge, and how it embeds texts.

The judge scores by the words that the answer, as far as it is stated apart from the working, shares
with the nearest reference, and now and then replies with something that is no judgement, as real
ones do.
"""

import hashlib
import json
import math
import re
from collections import Counter

from app.printable import percent
from app.scorers.exact import stated_answer
from app.scorers.overlap import f1, squad_normal

MODEL_NAME = "sextant-judge"
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
