"""Files that a person asked for are whole or not there, and nobody else's is touched."""

import stat
from pathlib import Path

import pytest

from app.errors import InvalidInputError
from app.new_file import new_file


def test_a_whole_file_is_its_owners_alone(tmp_path: Path) -> None:
    with new_file(tmp_path / "export.zip") as file:
        file.write(b"all of it")
        assert not (tmp_path / "export.zip").exists()
    (made,) = tmp_path.iterdir()
    assert (made.name, made.read_bytes()) == ("export.zip", b"all of it")
    assert stat.S_IMODE(made.stat().st_mode) == 0o600


def test_what_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> None:
        with new_file(tmp_path / "export.zip") as file:
            file.write(b"half")
            raise ValueError("it broke off")

    with pytest.raises(ValueError, match="it broke off"):
        broken()
    assert not [*tmp_path.iterdir()]


def test_somebody_elses_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"

    def second() -> None:
        with new_file(path) as file:
            file.write(b"mine")
            path.write_bytes(b"theirs")  # while this one is written

    for _ in range(2):  # then it is there from the start
        with pytest.raises(InvalidInputError, match=r"export\.zip is there already"):
            second()
        assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [
            ("export.zip", b"theirs")
        ]


def test_a_place_that_is_none_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidInputError, match="cannot be written: No such file or directory"),
        new_file(tmp_path / "missing" / "export.zip"),
    ):
        pass
