"""py-irt's JSON lines: `{"subject_id": "m1", "responses": {"q1": 1, "q2": 0}}`, a line an examinee.

An item that a line does not name was not answered.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from app.engine.responses import ResponseTable
from app.errors import InvalidInputError
from app.exchange.json_text import json_lines
from app.exchange.results.recorded import (
    FIRST_TRIAL,
    Choices,
    LeftOut,
    Source,
    TrialTable,
    score_or_reason,
    text_of,
)


def is_examinee(row: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a line of such a file."""
    return "subject_id" in row and "responses" in row


def read_py_irt(source: Source, choices: Choices) -> Iterator[TrialTable | LeftOut]:
    """Answers of a file; null is an answer that was not given."""
    for row, line in json_lines(source.file):
        if isinstance(line, LeftOut):
            yield line
            continue
        examinee = text_of(line, "subject_id")
        responses = line.get("responses")
        if examinee is None or not isinstance(responses, dict):
            yield LeftOut(row, "unreadable", "expected subject_id and an object responses")
            continue
        if not responses:
            yield LeftOut(row, "no_answers", f"{examinee!r} answered nothing")
        scores: dict[str, float] = {}
        for item, value in responses.items():
            score = (
                LeftOut(row, "not_scored", f"{item!r} is null")
                if value is None
                else score_or_reason(value, row, choices)
            )
            if isinstance(score, LeftOut):
                yield score
            else:
                scores[item] = score
        if scores:
            given = np.array([list(scores.values())])
            table = ResponseTable((examinee,), tuple(scores), given)
            yield TrialTable(FIRST_TRIAL, table, row)


def write_py_irt(table: ResponseTable) -> Iterator[bytes]:
    """The lines of a file; py-irt's models take right and wrong only.

    Raises:
        InvalidInputError: A score between 0 and 1, before the first line.
    """
    between = ~(np.isnan(table.scores) | (table.scores == 0) | (table.scores == 1))
    if between.any():
        i, j = np.argwhere(between)[0]
        raise InvalidInputError(
            "py-irt takes the scores 0 and 1; "
            f"{table.examinees[i]!r} has {table.scores[i, j]:g} on {table.items[j]!r}. "
            "Export csv or parquet."
        )
    return _lines(table)


def _lines(table: ResponseTable) -> Iterator[bytes]:
    for examinee, scores in zip(table.examinees, table.scores, strict=True):
        given = np.flatnonzero(~np.isnan(scores))
        responses = {table.items[j]: int(scores[j]) for j in given.tolist()}
        line = {"subject_id": examinee, "responses": responses}
        yield json.dumps(line, ensure_ascii=False).encode() + b"\n"
