"""Calibrations in a thread of the tests, computed once for the same answers and plan.

Replies of a separate process depend only on its input, so they can be reused.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from io import BytesIO
from typing import Any

from app.calibration.matrix import ScoreMatrix
from app.calibration.pipeline.calibrator import Fitted
from app.calibration.pipeline.logistic import FittedPart
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.responses import ResponseTable
from app.services.calibrations import process

_known: dict[bytes, list[str]] = {}


async def fit_here(
    matrix: ScoreMatrix | ResponseTable,
    plan: CalibrationPlan,
    report: Callable[[dict[str, Any]], Awaitable[None]],
    *,
    part: int | None = None,
    parts: Sequence[FittedPart] = (),
) -> Fitted:
    """Fit like `fit_in_process`, but without a way to end it before it has its result."""
    sent = process.header(matrix, plan, part, parts) + matrix.scores.tobytes()
    key = hashlib.sha256(sent).digest()
    if key not in _known:
        _known[key] = await asyncio.to_thread(_replies, sent)
    for line in _known[key]:
        if (fitted := await process.taken(json.loads(line), report)) is not None:
            return fitted
    raise AssertionError("no result")


def _replies(sent: bytes) -> list[str]:
    replies: list[str] = []
    process.answer(process.read(BytesIO(sent)), lambda message: replies.append(json.dumps(message)))
    return replies
