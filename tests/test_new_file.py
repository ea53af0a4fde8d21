"""Files written for a user are complete or absent, and never replace another user's file."""

import stat
from pathlib import Path

import pytest

from app.errors import InvalidInputError
from app.new_file import new_file


def test_a_complete_file_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    with new_file(tmp_path / "export.zip") as file:
        file.write(b"all of it")
        assert not (tmp_path / "export.zip").exists()
    (made,) = tmp_path.iterdir()
    assert (made.name, made.read_bytes()) == ("export.zip", b"all of it")
    assert stat.S_IMODE(made.stat().st_mode) == 0o600


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> None:
        with new_file(tmp_path / "export.zip") as file:
            file.write(b"half")
            raise ValueError("it broke off")

    with pytest.raises(ValueError, match="it broke off"):
        broken()
    assert not [*tmp_path.iterdir()]


def test_a_foreign_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"

    def second() -> None:
        with new_file(path) as file:
            file.write(b"mine")
            path.write_bytes(b"theirs")  # during this write

    for _ in range(2):  # the second time it exists from the start
        with pytest.raises(InvalidInputError, match=r"export\.zip is there already"):
            second()
        assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [
            ("export.zip", b"theirs")
        ]


def test_an_invalid_path_is_reported(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidInputError, match="cannot be written: No such file or directory"),
        new_file(tmp_path / "missing" / "export.zip"),
    ):
        pass
