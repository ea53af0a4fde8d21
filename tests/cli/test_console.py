"""What the terminal shows of an error."""

import pytest

from app.cli import console
from app.errors import FieldProblem, InvalidInputError


@pytest.mark.parametrize(
    ("detail", "problems", "lines"),
    [
        ("/seed: expected a number.", [("/seed", "expected a number")], 1),
        ("base_url is no URL.", [("/base_url", "base_url is no URL.")], 1),
        ("The ranking has it twice.", [("/endpoints/1", "expected each endpoint once")], 2),
        ("2 fields cannot be used.", [("/a", "not known"), ("/b", "not known")], 3),
    ],
)
def test_a_single_fault_is_told_once(
    detail: str,
    problems: list[tuple[str, str]],
    lines: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    console.show_error(
        InvalidInputError(detail, problems=[FieldProblem(*problem) for problem in problems])
    )
    assert len(capsys.readouterr().err.strip().splitlines()) == lines
