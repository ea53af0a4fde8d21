"""Write results for Every Eval Ever: one JSON object per test, and one line per scored item.

Source: its `eval.schema.json` and `instance_level_eval.schema.json`, version 0.2.2.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from app.items import ItemContent, JsonValue
from app.records.sessions import Closing, SessionRecord

SCHEMA_VERSION = "0.2.2"
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A figure with its uncertainty, and reasons to trust it less, in words."""

    value: float
    se: float | None
    lo: float | None
    hi: float | None
    method: str
    caution: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedTest:
    """One adaptive test that has ended.

    Attributes:
        model: Model name that the endpoint was called with.
        score: Score on the whole bank; None if too few answers are scored.
        scored_on: Description of what the score refers to.
        not_scored: Outcome to number of items without a score.
    """

    session: SessionRecord
    ended_at: datetime
    model: str
    theta: Measured | None
    score: Measured | None
    scored_on: str
    not_scored: Mapping[str, int]

    @property
    def evaluation_id(self) -> str:
        """Id of the test, to which the lines of its items refer."""
        return f"{self.session.bank_name}/{self.model}/{self.timestamp}/{self.session.id}"

    @property
    def timestamp(self) -> str:
        """Time of the test in seconds since 1970, as text."""
        return str(int(self.ended_at.timestamp()))


class EvaluatedItem(NamedTuple):
    """One scored item of a test; `content` is None if it is withheld or unknown."""

    key: str
    step: int
    content: ItemContent | None
    closing: Closing


def aggregate(test: EvaluatedTest, lines: bytes | None = None) -> bytes:
    """Write the object of a test, which refers to the items that `instance_lines` wrote."""
    accuracy: dict[str, JsonValue] = {
        "evaluation_description": f"Predicted mean score on {test.scored_on}.",
        "metric_id": "accuracy",
        "metric_kind": "accuracy",
        "metric_unit": "proportion",
        "score_type": "continuous",
        "min_score": 0.0,
        "max_score": 1.0,
    }
    theta: dict[str, JsonValue] = {
        "evaluation_description": "Ability on the bank's scale, in logits.",
        "metric_id": "sextant.theta",
        "metric_unit": "logits",
    }
    measured = (("accuracy", test.score, accuracy), ("theta", test.theta, theta))
    document: dict[str, JsonValue] = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": test.evaluation_id,
        "evaluation_timestamp": test.timestamp,
        "retrieved_timestamp": test.timestamp,
        "source_metadata": {
            "source_name": "Sextant",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {
            "name": "sextant",
            "version": str(test.session.provenance["code_version"]),
        },
        "model_info": {"name": test.model, "id": test.model},
        "evaluation_results": [
            _result(test, name, figure, metric)
            for name, figure, metric in measured
            if figure is not None
        ],
    }
    if lines is not None:
        document["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": f"{test.session.id}.eee.jsonl",
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(lines).hexdigest(),
            "total_rows": lines.count(b"\n"),
        }
    return _json(document)


def instance_lines(test: EvaluatedTest, items: list[EvaluatedItem]) -> bytes:
    """Write a line for each scored item; other items have no line, as a line needs a score."""
    return b"".join(_json(_instance(test, item)) for item in items)


def _result(
    test: EvaluatedTest, name: str, figure: Measured, metric: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    session = test.session
    uncertainty: dict[str, JsonValue] = {"num_samples": session.summary["progress"]["scored"]}
    if figure.se is not None:
        uncertainty["standard_error"] = {"value": figure.se, "method": figure.method}
    if figure.lo is not None and figure.hi is not None:
        uncertainty["confidence_interval"] = {
            "lower": figure.lo,
            "upper": figure.hi,
            "confidence_level": _CONFIDENCE,
            "method": figure.method,
        }
    caution = {} if figure.caution is None else {"caution": figure.caution}
    not_scored = {f"not_scored_{outcome}": str(n) for outcome, n in test.not_scored.items() if n}
    return {
        "evaluation_result_id": f"{test.evaluation_id}#{name}",
        "evaluation_name": session.bank_name,
        "source_data": {
            "dataset_name": session.bank_name,
            "source_type": "other",
            "source_id": session.bank_version_id,
            "source_version": str(session.bank_version),
        },
        "metric_config": {"metric_name": name, "lower_is_better": False, **metric},
        "score_details": {
            "score": figure.value,
            "details": {
                "stop_reason": session.stop_reason or "",
                "seed": str(session.seed),
                **not_scored,
                **caution,
            },
            "uncertainty": uncertainty,
        },
    }


def _instance(test: EvaluatedTest, item: EvaluatedItem) -> dict[str, JsonValue]:
    content, closing = item.content, item.closing
    raw = closing.answer_text if closing.raw_text is None else closing.raw_text
    asked: dict[str, JsonValue] = {"raw": "", "reference": []}
    sample_hash = None
    if content is not None:
        turns = "\n\n".join(f"{turn.role}: {turn.content}" for turn in content.messages)
        asked = {"raw": content.prompt or turns, "reference": list(content.target)}
        text = json.dumps(asked, sort_keys=True)
        sample_hash = hashlib.sha256(text.encode()).hexdigest()
        asked["choices"] = list(content.choices) or None
    line: dict[str, JsonValue] = {
        "schema_version": f"instance_level_eval_{SCHEMA_VERSION}",
        "evaluation_id": test.evaluation_id,
        "model_id": test.model,
        "evaluation_name": test.session.bank_name,
        "sample_id": item.key,
        "sample_hash": sample_hash,
        "interaction_type": "single_turn",
        "input": asked,
        "output": {
            "raw": [] if raw is None else [raw],
            "reasoning_trace": None if closing.reasoning is None else [closing.reasoning],
        },
        "answer_attribution": [],
        "evaluation": {"score": closing.score, "is_correct": closing.score == 1.0},
        "metadata": {"step": str(item.step)},
    }
    if test.score is not None:
        line["evaluation_result_id"] = f"{test.evaluation_id}#accuracy"
    if closing.extracted is not None:
        line["answer_attribution"] = [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": closing.extracted,
                "extraction_method": closing.extractor or "custom",
                "is_terminal": True,
            }
        ]
    if closing.tokens_in is not None and closing.tokens_out is not None:
        line["token_usage"] = {
            "input_tokens": closing.tokens_in,
            "output_tokens": closing.tokens_out,
            "total_tokens": closing.tokens_in + closing.tokens_out,
        }
    if closing.latency_ms is not None:
        line["performance"] = {"latency_ms": closing.latency_ms}
    return line


def _json(value: Mapping[str, JsonValue]) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n"
