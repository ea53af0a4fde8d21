"""Convert a sample that has run to an answer for Sextant."""

import math
from collections.abc import Mapping, Sequence
from functools import reduce

from inspect_ai.log import EvalSample
from inspect_ai.model import ModelUsage
from inspect_ai.scorer import NOANSWER, Score

from sextant_client import Answer

#: Inspect's letters and words; what is none of them must be a number.
_SCORES = {"C": 1.0, "P": 0.5, "I": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_UNSCORED = Score(value=math.nan)
_CUT_OFF = frozenset({"max_tokens", "model_length"})
_LONGEST_TEXT, _LONGEST_EXPLANATION = 1_000_000, 10_000


def answer_of(sample: EvalSample, scorer: str, *, is_agent: bool) -> Answer:
    """The answer of a sample, with its usage, by `scorer` or `scorer.key`.

    Errors, and answers that were cut off or filtered, do not count as wrong. The limits of an agent
    are part of it: if one of them ended the sample, its score counts, as in Inspect.

    Raises:
        ValueError: The score is not from 0 to 1.
    """
    stopped: str | None = sample.output.stop_reason if sample.output.choices else None
    if sample.limit is not None:
        stopped = f"{sample.limit.type}_limit"
    if sample.error is not None:
        answer = Answer(outcome="error", explanation=_text(sample.error.message))
    elif stopped == "content_filter":
        answer = Answer(outcome="refused", explanation=f"Ended by {stopped}.")
    elif not is_agent and (sample.limit is not None or stopped in _CUT_OFF):
        answer = Answer(outcome="truncated", explanation=f"Ended by {stopped}.")
    else:
        answer = scored(sample.id, sample.scores or {}, scorer)
    took: dict[str, object] = {
        "text": _text(sample.output.completion, _LONGEST_TEXT),
        "seconds": sample.total_time,
        "finish_reason": stopped,
    }
    if sample.model_usage:
        used = reduce(ModelUsage.__add__, sample.model_usage.values())
        # Read from a cache or not: together they are Inspect's total.
        took["tokens_in"] = max(0, used.total_tokens - used.output_tokens)
        took["tokens_out"] = used.output_tokens
        took["usd"] = getattr(used, "total_cost", None)  # unknown to older versions
    return answer.model_copy(update=took)


def scored(sample: int | str, scores: Mapping[str, Score], scorer: str) -> Answer:
    """The answer of a sample of which only the scores are known."""
    name, _, key = scorer.partition(".")
    score = scores.get(name, _UNSCORED)
    parts = _parts(score.value)
    value = parts.get(key) if key else score.value
    if value is None or value != value:
        given = list(parts) or score.value
        told = f" {key!r}, only {given!r:.80}" if key and key not in parts else ""
        return Answer(outcome="error", explanation=f"The scorer {name!r} gave no score{told}.")
    explanation = _text(score.explanation)
    if value == NOANSWER:
        return Answer(outcome="unparsed", explanation=explanation)
    try:
        number = _SCORES.get(str(value), _SCORES.get(str(value).lower()))
        number = float(value) if number is None else number  # type: ignore[arg-type]  # tried
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number <= 1:
        one = f" Name one of its values: scorer='{name}.{next(iter(parts))}'." if parts else ""
        raise ValueError(
            f"Sample {sample!r}, scorer {name!r}: expected C, P, I, N or a number from 0 to 1, got "
            f"{value!r:.80}.{one}"
        )
    return Answer(score=number, explanation=explanation)


def _parts(value: object) -> Mapping[str, object]:
    """The values of a score by name, or by number; none of a score that is one value."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {str(number): part for number, part in enumerate(value)}
    return value if isinstance(value, Mapping) else {}


def _text(value: str | None, most: int = _LONGEST_EXPLANATION) -> str | None:
    """The text without characters that JSON or the database refuse."""
    whole = (value or "")[:most].replace("\x00", "")
    return whole.encode(errors="replace").decode() or None
