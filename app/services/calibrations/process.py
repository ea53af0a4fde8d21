"""A calibration in a process of its own, and the program that this process runs.

A process, not a thread: the numbers hold the interpreter lock between their array operations, so
a thread would hold up the event loop, its heartbeats and its sessions; nor can a thread be ended
when the calibration is cancelled, or its memory be taken back. The process is nicer than its
parent, which kills it when it is no longer wanted; it ends by itself when its parent does.

Down its input go one JSON line (names, plan) and the matrix as bytes, and then nothing, so that its
end means that the parent is gone. Up come JSON lines: any number of `progress`, then one of
`failed`, `done`.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, TextIO

import numpy as np

from app.calibration.logistic.beliefs import ItemBeliefs
from app.calibration.matrix import ScoreMatrix
from app.calibration.pipeline.card import with_card
from app.calibration.pipeline.fit import CALIBRATORS
from app.calibration.pipeline.fitted import ExamineeAbilities, Fitted, Report
from app.calibration.pipeline.parts import FittedPart, fit_joined, fit_part
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import ItemBank
from app.engine.models.base import FloatArray
from app.engine.responses import ResponseTable
from app.errors import CalibrationError, FieldProblem, SextantError

#: Seconds between two lines of progress within one phase.
REPORT_S = 1.0
#: A third of the time that a process of usual niceness gets where both want the same core.
_NICENESS = 5
#: OpenBLAS's threads wait for each other in busy loops: on cores that sessions use as well, or with
#: a lower priority, two of them take ten times as long as one.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
#: The last line has some twenty bytes for each number of an item, of which a part has thirty.
_LONGEST_LINE = 1 << 28


async def fit_in_process(
    matrix: ScoreMatrix | ResponseTable,
    plan: CalibrationPlan,
    report: Callable[[dict[str, Any]], Awaitable[None]],
    *,
    part: int | None = None,
    parts: Sequence[FittedPart] = (),
) -> Fitted:
    """Calibrate there; cancelling the task, or an error of `report`, kills the process.

    Args:
        matrix: Answers.
        plan: How; decided.
        report: Takes the progress.
        part: Do what `fit_part` does: this part, whose answers alone are given.
        parts: Do what `fit_joined` does.

    Raises:
        CalibrationError: A matrix without information.
        SextantError: The process ended without a result.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        __name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LONGEST_LINE,
        # What the operator has set for itself goes on to the process.
        env={**_ONE_THREAD, **os.environ},  # noqa: TID251 (passed on, not read)
    )
    try:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a process without pipes")
        with contextlib.suppress(ConnectionError):  # it ended: its output says so
            process.stdin.write(header(matrix, plan, part, parts))
            process.stdin.write(matrix.scores.tobytes())
            await process.stdin.drain()
        async for line in process.stdout:
            if (fitted := await taken(line, report)) is not None:
                return fitted
        raise SextantError(
            f"The process that calibrates ended without a result (exit {await process.wait()}). "
            "It may have been out of memory: see the worker's log."
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def taken(
    line: bytes | str, report: Callable[[dict[str, Any]], Awaitable[None]]
) -> Fitted | None:
    """What one line of the process brings: the result, or None after progress was reported."""
    match json.loads(line):
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
    """The first line of what goes down to the process; the scores' bytes follow."""
    described = {
        "examinees": matrix.examinees,
        "items": matrix.items,
        "plan": plan.to_dict(),
        "target": plan.target and _bank_to_json(plan.target),
        "beliefs": plan.beliefs and plan.beliefs.to_dict(),
        "part": part,
        "parts": [[fitted.keys, fitted.figures, _lists(fitted.columns)] for fitted in parts],
        "target_se": None if plan.target_se is None else plan.target_se.tolist(),
    }
    return json.dumps(described).encode() + b"\n"


def _bank_to_json(bank: ItemBank) -> dict[str, Any]:
    columns = {name: getattr(bank, name).tolist() for name in ("a", "intercept", "c", "d")}
    return {"item_ids": bank.item_ids, "scale": bank.scale, **columns}


def main() -> None:
    """Fit what comes in, and end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; parent decides
    os.nice(_NICENESS)
    try:
        with os.fdopen(os.dup(1), "w") as replies:
            os.dup2(2, 1)  # whatever a library prints must not look like a reply
            work = read(sys.stdin.buffer)
            threading.Thread(target=_end_with_parent, daemon=True).start()
            answer(work, replies)
    except (BrokenPipeError, EOFError):
        os._exit(1)  # the parent is gone: there is nobody to tell


def answer(work: Callable[[Report], Fitted], replies: TextIO) -> None:
    """Write all lines that go up for a piece of work."""
    try:
        fitted = work(_Reporter(replies))
    except SextantError as error:
        problems = [(problem.pointer, problem.detail) for problem in error.problems]
        _send(replies, {"failed": error.detail, "problems": problems})
    else:
        columns = _lists(fitted.columns)
        abilities = fitted.abilities and [column.tolist() for column in fitted.abilities]
        done = {"done": fitted.figures, "columns": columns, "knowledge": fitted.knowledge}
        _send(replies, {**done, "abilities": abilities})


def _lists(columns: Mapping[str, FloatArray]) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in columns.items()}


def _arrays(columns: Mapping[str, list[float]]) -> dict[str, FloatArray]:
    return {name: np.array(values) for name, values in columns.items()}


def read(stream: BinaryIO) -> Callable[[Report], Fitted]:
    """The work that went down.

    Raises:
        EOFError: Not all of it came: the parent is gone.
    """
    first = stream.readline()
    if not first.endswith(b"\n"):
        raise EOFError
    given = json.loads(first)
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
    return lambda report: _with_card(matrix, plan, whole(report), report)


_with_card = partial(with_card, clock=time.perf_counter)


def _end_with_parent() -> None:
    # Not through sys.stdin, whose lock the interpreter wants when it ends.
    while os.read(0, 1):
        pass
    os._exit(1)


class _Reporter:
    """Sends the beginning of each phase, and within it what is new every `REPORT_S`."""

    def __init__(self, replies: TextIO) -> None:
        self._replies = replies
        self._phase = ""
        self._sent_at = 0.0

    def __call__(self, progress: dict[str, Any]) -> None:
        now = time.monotonic()
        if progress["phase"] == self._phase and now - self._sent_at < REPORT_S:
            return
        self._phase, self._sent_at = progress["phase"], now
        _send(self._replies, {"progress": progress})


def _send(replies: TextIO, message: dict[str, Any]) -> None:
    print(json.dumps(message), file=replies, flush=True)


if __name__ == "__main__":
    main()
