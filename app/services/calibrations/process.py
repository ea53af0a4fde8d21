"""Run a calibration in a child process, and the program of this process.

The child reads one JSON line (names, plan) and the matrix as bytes. It writes any number of
`progress` messages, then either `failed` or `done`.
"""

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from app.calibration.logistic.beliefs import ItemBeliefs
from app.calibration.matrix import ScoreMatrix
from app.calibration.pipeline.calibrator import ExamineeAbilities, Fitted, Report
from app.calibration.pipeline.fit import CALIBRATORS, with_card
from app.calibration.pipeline.logistic import FittedPart, fit_joined, fit_part
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import ItemBank
from app.engine.models.base import FloatArray
from app.engine.responses import ResponseTable
from app.errors import CalibrationError, FieldProblem, SextantError
from app.sandbox import programs
from app.sandbox.programs import Say

#: Seconds between two progress messages within one phase.
REPORT_S = 1.0
#: At this niceness, a process gets a third of the time of a normal one on the same core.
_NICENESS = 5
#: Threads of OpenBLAS wait for each other in busy loops. On cores shared with sessions, or at a
#: lower priority, two threads take ten times as long as one.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


async def fit_in_process(
    matrix: ScoreMatrix | ResponseTable,
    plan: CalibrationPlan,
    report: Callable[[dict[str, Any]], Awaitable[None]],
    *,
    part: int | None = None,
    parts: Sequence[FittedPart] = (),
) -> Fitted:
    """Calibrate in a child process; cancelling the task, or an error in `report`, kills it.

    `plan` has no open choices. A part is fitted by `fit_part` from a matrix of its answers alone;
    results of `parts` are joined by `fit_joined`.

    Raises:
        CalibrationError: A matrix without information.
        SextantError: The process ended without a result.
    """
    order = header(matrix, plan, part, parts), matrix.scores.tobytes()
    async with programs.running(__name__, order=order, environment=_ONE_THREAD) as program:
        async for message in program.messages():
            if (fitted := await taken(message, report)) is not None:
                return fitted
        raise SextantError(
            "The process that calibrates ended without a result (exit "
            f"{await program.exit_code()}). It may have been out of memory: see the worker's log."
        )


async def taken(message: Any, report: Callable[[dict[str, Any]], Awaitable[None]]) -> Fitted | None:
    """Handle a message of the process: return the result, or report progress and return None."""
    match message:
        case {"progress": progress}:
            await report(progress)
            return None
        case {"failed": detail, "problems": problems}:
            raise CalibrationError(detail, problems=[FieldProblem(*p) for p in problems])
        case {"done": figures, "columns": columns, "knowledge": knowledge, "abilities": of}:
            abilities = of and ExamineeAbilities(*(np.array(column) for column in of))
            return Fitted(figures, _arrays(columns), knowledge, abilities)
        case other:
            raise RuntimeError(f"a reply of another shape: {other!r:.80}")


def header(
    matrix: ScoreMatrix | ResponseTable,
    plan: CalibrationPlan,
    part: int | None,
    parts: Sequence[FittedPart],
) -> bytes:
    """The JSON line that the process reads first; the bytes of the scores follow."""
    onto = plan.target
    described = {
        "examinees": matrix.examinees,
        "items": matrix.items,
        "plan": plan.to_dict(),
        "target": onto and {"item_ids": onto.item_ids, "scale": onto.scale, **_lists(onto.columns)},
        "beliefs": plan.beliefs and plan.beliefs.to_dict(),
        "part": part,
        "parts": [[fitted.keys, fitted.figures, _lists(fitted.columns)] for fitted in parts],
        "target_se": None if plan.target_se is None else plan.target_se.tolist(),
    }
    return json.dumps(described).encode() + b"\n"


def answer(work: Callable[[Report], Fitted], say: Say) -> None:
    """Run a piece of work, and write its progress and result as messages."""
    try:
        fitted = work(_Reporter(say))
    except SextantError as error:
        problems = [(problem.pointer, problem.detail) for problem in error.problems]
        say({"failed": error.detail, "problems": problems})
    else:
        columns = _lists(fitted.columns)
        abilities = fitted.abilities and [column.tolist() for column in fitted.abilities]
        done = {"done": fitted.figures, "columns": columns, "knowledge": fitted.knowledge}
        say({**done, "abilities": abilities})


def _lists(columns: Mapping[str, FloatArray]) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in columns.items()}


def _arrays(columns: Mapping[str, list[float]]) -> dict[str, FloatArray]:
    return {name: np.array(values) for name, values in columns.items()}


def read(stream: BinaryIO) -> Callable[[Report], Fitted]:
    """Read the work that the parent sent.

    Raises:
        EOFError: The input is incomplete because the parent is gone.
    """
    given = programs.json_line(stream)
    shape = len(given["examinees"]), len(given["items"])
    target = given["target"] and ItemBank.from_intercepts(**given["target"])
    errors = given["target_se"]
    plan = replace(
        CalibrationPlan.from_dict(given["plan"]),
        target=target,
        target_se=None if errors is None else np.array(errors),
        beliefs=given["beliefs"] and ItemBeliefs.from_dict(given["beliefs"]),
    )
    calibrator = CALIBRATORS[plan.model]
    size = np.dtype(calibrator.dtype).itemsize * shape[0] * shape[1]
    sent = stream.read(size)
    if len(sent) < size:
        raise EOFError
    scores = np.frombuffer(sent, calibrator.dtype).reshape(shape)
    matrix = calibrator.matrix(scores, examinees=given["examinees"], items=given["items"])
    if given["part"] is not None:
        return partial(fit_part, matrix, plan, given["part"])
    whole = partial(calibrator.fit, matrix, plan)
    if given["parts"]:
        parts = [FittedPart(tuple(k), f, _arrays(columns)) for k, f, columns in given["parts"]]
        whole = partial(fit_joined, matrix, plan, parts)
    card = partial(with_card, matrix, plan, clock=time.perf_counter)
    return lambda report: card(whole(report), report)


class _Reporter:
    """Sends a message at the start of each phase, and within it new progress every `REPORT_S`."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._phase = ""
        self._sent_at = 0.0

    def __call__(self, progress: dict[str, Any]) -> None:
        now = time.monotonic()
        if progress["phase"] == self._phase and now - self._sent_at < REPORT_S:
            return
        self._phase, self._sent_at = progress["phase"], now
        self._say({"progress": progress})


if __name__ == "__main__":
    programs.serve(read, answer, niceness=_NICENESS)
