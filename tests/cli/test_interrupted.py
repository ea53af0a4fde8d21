"""A signal at the terminal also ends the work on the server."""

import os
import signal
from collections.abc import Iterator

import pytest
from starlette.types import Receive, Scope, Send

from app.cli.servers.connection import INTERRUPTED
from tests.cli.shell import sextant
from tests.servers import serving


async def _interrupting(scope: Scope, receive: Receive, send: Send) -> None:
    """Act as a model during whose first call the user presses Ctrl-C; it never answers."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    while (await receive())["type"] != "http.disconnect":
        pass


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    with serving(_interrupting) as url:
        yield f"{url}/v1"


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("run", "--endpoint", "{url}", "--model", "m"), "ses_"),
        (("rank", "--endpoint", "{url} m", "--endpoint", "{url} n"), "rnk_"),
    ],
)
@pytest.mark.usefixtures("own_database")
def test_ctrl_c_cancels_what_the_command_began(
    command: tuple[str, ...], what: str, model_url: str
) -> None:
    words = [word.replace("{url}", model_url) for word in command]

    left = sextant(*words, "--bank", "demo")

    assert left.exit_code == INTERRUPTED
    assert f"Cancelled {what}" in left.stderr
    listed = sextant("sessions", "list").stdout
    assert "cancelled" in listed
    assert "running" not in listed
    assert "queued" not in listed
