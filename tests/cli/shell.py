"""Commands as the shell calls them."""

from typer.testing import CliRunner, Result

from app.cli import build


def sextant(*words: object, given: str | None = None) -> Result:
    """What becomes of a command; `given` is typed in."""
    said = [str(word) for word in words]
    return CliRunner().invoke(build(said[0]), said, input=given)
