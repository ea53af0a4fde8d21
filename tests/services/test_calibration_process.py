"""The process of a calibration after its parent has gone."""

import subprocess
import sys
from io import BytesIO

import pytest

from app.calibration.pipeline.plan import CalibrationPlan
from app.services.calibrations import process
from tests.services.calibrations import answers

_MATRIX = answers(60, 6).matrix
_SENT = process.header(_MATRIX, CalibrationPlan(), None, ()) + _MATRIX.scores.tobytes()


def test_it_ends_silently_once_its_output_is_closed() -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", process.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        child.stdin.write(_SENT)
        child.stdin.flush()  # stays open: it learns from its output alone
        told = child.stderr.read()
    assert child.returncode == 1
    assert told == b""


@pytest.mark.parametrize("sent", [_SENT[:10], _SENT[:-10]])
def test_it_distinguishes_a_lost_parent_from_invalid_answers(sent: bytes) -> None:
    with pytest.raises(EOFError):
        process.read(BytesIO(sent))
