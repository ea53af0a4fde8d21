"""Commands that talk to a server, and that serve: the choice of server and key, and the output."""

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
import structlog
from fastapi import FastAPI

import sextant_client
from app.cli.commands import serve
from app.cli.servers.connection import ended_with_us
from app.cli.servers.logins import Target, address, keep_login, target
from app.cli.servers.server import LocalServer, serving
from app.cli.terminal.console import JsonObject
from app.cli.terminal.watch import Progress, Updated, headline
from app.errors import InvalidInputError
from app.records.api_keys import Scope
from app.settings import Settings
from tests.cli.shell import done, refused, sextant, told
from tests.servers import serving as serving_app

KEY = "sxt_secret"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "sextant" / "login.json"


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a database that cannot be reached: a command that starts or reads it fails."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none?connect_timeout=1")
    monkeypatch.setenv("SEXTANT_DATA_DIR", "/proc/none")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://Sextant.example.org/", "https://sextant.example.org"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("https://example.org:443/sextant/", "https://example.org/sextant"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_an_address_is_kept_in_one_form(given: str, kept: str) -> None:
    assert address(given) == kept


@pytest.mark.parametrize(
    "given",
    ["", "localhost:8000", "ftp://x", "http://", "http://k@x", "http://x?k=1", "http://x:y"],
)
def test_an_invalid_address_is_refused(given: str) -> None:
    with pytest.raises(InvalidInputError, match="--server: expected an address"):
        address(given)


@pytest.mark.parametrize(
    ("server", "warns"),
    [
        ("http://localhost.invalid:1", True),
        ("http://127.0.0.1:1", False),
        ("http://[::1]:1", False),
    ],
)
def test_sending_a_key_unencrypted_to_another_machine_warns(
    home: Path, server: str, warns: bool
) -> None:
    entered = sextant("login", server, given="sxt_x\n")
    assert entered.exit_code == 2
    assert ("unencrypted" in entered.stderr) is warns


def test_an_invalid_address_names_its_argument(home: Path) -> None:
    assert "SERVER: expected an address" in sextant("login", "ftp://x", given="\n").stderr
    assert "--server: expected" in sextant("sessions", "list", "--server", "ftp://x").stderr


def test_a_saved_key_is_sent_only_to_its_server(home: Path) -> None:
    assert target(None, None) is None
    keep_login(Target("http://127.0.0.1:8000", KEY))
    assert stat.S_IMODE(home.stat().st_mode) == 0o600
    assert target(None, None) == Target("http://127.0.0.1:8000", KEY)
    assert target("http://127.0.0.1:8000/", None) == Target("http://127.0.0.1:8000", KEY)
    assert target("http://127.0.0.1:8001", None) == Target("http://127.0.0.1:8001", None)
    assert target("https://127.0.0.1:8000", None) == Target("https://127.0.0.1:8000", None)
    assert target("local", None) is None
    assert KEY not in repr(target(None, None))
    home.write_text("{}")
    assert "log in again" in sextant("sessions", "list").stderr
    assert sextant("logout").stdout == "Logged out.\n"
    assert sextant("logout").stdout == "You were not logged in.\n"


def test_commands_on_a_server_need_no_database(
    home: Path, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nowhere: None
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    settings = Settings(database_url=database_url, data_dir=tmp_path / "data", port=0)
    answers = tmp_path / "answers.csv"
    answers.write_text("model,q1,q2\na,1,0\nb,1,1\nc,,0\nd,0.5,0.5\n")

    async def with_server(use: Callable[[LocalServer, str], None]) -> None:
        async with serving(settings) as local:
            _, secret = await local.services.api_keys.create(name="t", scopes=[Scope.ADMIN])
            await asyncio.to_thread(use, local, secret)

    def use(local: LocalServer, secret: str) -> None:
        keyless = refused("sessions", "list", "--server", local.base_url)
        assert f"{local.base_url} asks for an API key. Set SEXTANT_API_KEY," in keyless
        first = refused("keys", "create", "mine", "--server", local.base_url)
        assert "On the server's machine `--server local` makes keys without one." in first
        wrong = sextant("login", local.base_url, given="sxt_wrong\n")
        assert wrong.exit_code == 2
        told_how = "Not logged in: The API key is not known here. Set SEXTANT_API_KEY, type the key"
        assert f"{told_how} at the prompt, or pipe it in." in " ".join(wrong.stderr.split())
        entered = sextant("login", local.base_url, given=f"{secret}\n")
        assert entered.exit_code == 0, entered.stderr
        assert secret not in entered.output
        assert f"Logged in at {local.base_url} (1 bank)" in entered.output
        monkeypatch.setenv("SEXTANT_API_KEY", "sxt_wrong")  # it goes before what is piped in
        wrong = sextant("login", local.base_url, given=f"{secret}\n")
        assert "Set SEXTANT_API_KEY, or unset it, and" in " ".join(wrong.stderr.split())
        monkeypatch.setenv("SEXTANT_API_KEY", secret)
        by = "by the key of --server-key or SEXTANT_API_KEY (1 bank)"
        assert by in " ".join(sextant("login", local.base_url).output.split())
        monkeypatch.delenv("SEXTANT_API_KEY")
        # Errors use the words of the command; for missing resources they say where to look.
        unknown = refused("banks", "show", "nope")
        assert "There is no bank 'nope'. `sextant banks list` lists" in unknown
        assert "There is no saved endpoint 'mien'" in refused("endpoints", "show", "mien")
        saved = ("endpoints", "save", "mine", "--endpoint", "http://127.0.0.1:9/v1", "--model", "m")
        assert "--temperature: " in refused(*saved, "--temperature", "-1")
        # Also where the server's sentence does not begin with the field.
        assert "--model: An endpoint of kind" in refused(*saved[:-1], "")
        for empty in ("", ".."):
            assert f"Expected a name or an id, got {empty!r}" in refused("banks", "show", empty)
        assert "Saved mine" in done(*saved).stdout
        taken = refused(*saved)
        assert "one with the name 'mine'. `sextant endpoints delete` frees it" in taken
        assert "Did you mean 'mine'?" in refused("endpoints", "show", "mien")
        assert "`sextant projects list`" in refused("projects", "delete", "nope", "--yes")
        assert [one["name"] for one in told("endpoints", "list")["data"]] == ["mine"]
        recorded = ("--responses", "recorded")
        anew = ("response-sets", "import", "recorded", "--from", answers)
        assert "7 answers read, 7 accepted" in done(*anew, "--dry-run").stdout
        assert "There is no response set" in refused("response-sets", "show", "recorded")
        brought = done(*anew)
        assert "7 answers read, 7 accepted" in brought.stdout
        for first, second, words in (
            ("a", "b", "on 2 common questions (95 % interval "),
            ("a", "c", "1 common question: too few to compare the answers"),
            ("b", "d", "on 2 common questions (too few for an interval, p = 0.5)"),
        ):
            assert words in done("compare", first, second, *recorded).stdout
        assert "Deleted recorded." in done("response-sets", "delete", "recorded", "--yes").stdout
        assert "recorded" not in done("response-sets", "list").stdout
        for noun in ("sessions", "calibrations", "gates"):
            assert done(noun, "list").stdout.split()[0] == "id"
        assert "There is no session 'ses_1'" in refused("sessions", "cancel", "ses_1")
        assert "is completed on this bank yet" in done("leaderboard", "demo").stderr
        beyond = refused("leaderboard", "demo", "--confidence", "95")
        assert "--confidence: expected a number < 1, got '95.0'; for 95 % say 0.95" in beyond
        items = tmp_path / "items.jsonl"
        items.write_text('{"id": "q1", "prompt": "1 + 1?", "target": "2"}')
        trial = done("banks", "import", "new", "--items", items, "--provisional", "--dry-run")
        assert "items: 1 read, 1 accepted" in trial.stdout
        nothing = refused("banks", "import", "demo")
        assert "Error: Give --items, --parameters or both" in nothing
        assert done("open").stdout == f"{local.base_url}/\n"

    with structlog.testing.capture_logs():  # logs of the server, which share this stdout
        asyncio.run(with_server(use))


def test_a_reply_of_another_version_gives_one_sentence(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [{"id": "bnk_1", "name": "sums", "latest_version": {"number": [1]}}]
    monkeypatch.setattr("app.cli.bank.bank_views.listed", lambda _: found)
    assert refused("banks", "list", "--server", "http://127.0.0.1:9") == (
        "Error: The reply of the Sextant server at http://127.0.0.1:9 cannot be read: /n_items of "
        "ListedBank: Field required. Server and command line may be of different versions: compare "
        "http://127.0.0.1:9/healthz with `sextant --version`."
    )
    server = FastAPI()
    server.get("/v1/sessions/ses_1/report")(lambda: {"n_asked": 8})
    with serving_app(server) as url:
        answers = ("sessions", "answers", "ses_1", "--server", url)
        assert refused(*answers) == (
            f"Error: The reply of the Sextant server at {url} cannot be read: /items: Field "
            "required. Server and command line may be of different versions: compare "
            f"{url}/healthz with `sextant --version`."
        )
        # A missing key in our own code is no error of the server.
        monkeypatch.setattr("app.cli.commands.sessions.request", Mock(side_effect=KeyError("ours")))
        assert isinstance(sextant(*answers).exception, KeyError)


@pytest.mark.parametrize(
    ("words", "path", "reply", "fault"),
    [
        ("endpoints show end_1", "endpoints/end_1", {"price": None}, "TypeError: 'NoneType'"),
        ("sessions answers ses_1", "sessions/ses_1/report", {"items": [7]}, "TypeError: 'int'"),
        (
            "response-sets show s",
            "response-sets/s",
            {"id": "rsp_1", "description": "", "n_examinees": 1, "n_items": 1, "outcomes": []},
            "AttributeError: 'list'",
        ),
    ],
)
def test_a_field_of_another_type_gives_one_sentence(
    home: Path, words: str, path: str, reply: JsonObject, fault: str
) -> None:
    server = FastAPI()
    server.get(f"/v1/{path}")(lambda: reply)
    with serving_app(server) as url:
        error = refused(*words.split(), "--server", url)
    said = f"Error: The reply of the Sextant server at {url} cannot be read: a field is null or of "
    assert error.startswith(f"{said}another type ({fault}")


@pytest.mark.parametrize(("verdict", "code"), [("holds", 0), ("broken", 1), (None, 1)])
def test_only_a_verdict_that_is_known_as_good_lets_a_join_pass(
    home: Path, verdict: str | None, code: int
) -> None:
    told = {"verdict": verdict, "explanation": "They go together.", "rank_correlation": None}
    server = FastAPI()
    server.get("/v1/banks/sums/versions/latest/join")(lambda: told)
    with serving_app(server) as url:
        result = sextant("banks", "check-join", "sums", "--server", url)
    assert (result.exit_code, result.stdout) == (code, "They go together.\n")


async def test_work_that_goes_on_without_the_command_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(sextant_client.UnreachableError):
        async with ended_with_us(Mock(), "sessions", "ses_1"):
            raise sextant_client.UnreachableError("No answer.")
    assert capsys.readouterr().err == "ses_1 was begun and may go on: the server gives no answer.\n"


async def test_work_ends_with_a_command_that_cannot_read_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = Mock(request=AsyncMock())
    with pytest.raises(TypeError):
        async with ended_with_us(client, "sessions", "ses_1"):
            raise TypeError("null has no fields")
    client.request.assert_awaited_once_with("POST", "/v1/sessions/ses_1:cancel")
    assert capsys.readouterr().err == "Cancelled ses_1.\n"


def test_lists_and_cancel_read_only_what_they_show(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {
        "id": "ses_1",
        "status": "cancelled",
        "bank": {"id": "bnk_1", "name": "sums", "version": 2},
        "endpoint": None,
        "examinee": {"name": "me"},
        "estimate": {"theta": 0.5, "se": 0.25, "interval": {"lo": 0.0, "hi": 1.0, "level": 0.95}},
        "score": {"value": 0.75, "interval": None},
        "progress": {"items": 7},
        "usage": {"usd": None},
        "headline": {"trust": {"level": "fair"}},
        "created_at": "2026-01-01T10:00:00+00:00",
    }
    monkeypatch.setattr("app.cli.commands.sessions.asked", lambda _: [found])
    monkeypatch.setattr("app.cli.commands.sessions.request", lambda *_: found)
    row = done("sessions", "list").stdout.splitlines()[1]
    assert " ".join(row.split()).startswith("ses_1 cancelled sums v2 me +0.50 0.25 75.0 % fair 7 ")
    called = {"id": None, "name": None, "model": "m"}
    alike = [
        {
            **found,
            "id": kind,
            "bank": {"id": f"bnk_{kind}", "name": "sums", "version": 2},
            "endpoint": called,
            "provenance": {"endpoint": {"model": "m", "base_url": "http://a/v1", "kind": kind}},
        }
        for kind in ("openai_chat", "openai_completions")
    ]
    monkeypatch.setattr("app.cli.commands.sessions.asked", lambda _: alike)
    one, two = done("sessions", "list").stdout.splitlines()[1:]
    assert "  m (openai chat)  " in one
    assert "  m (openai completions)  " in two
    assert "  sums (bnk_openai_chat) v2  " in one  # as after a deletion
    assert "  sums (bnk_openai_completions) v2  " in two
    assert "Cancelled ses_1 after 7 items: theta +0.50" in done("sessions", "cancel", "x").stdout
    model = {"endpoint": {"id": "end_1", "name": "m", "model": "m"}, "reason": "Theta is withheld."}
    board = {"scale": "s", "data": [], "unranked": [model] * 3, "other_scales": []}
    monkeypatch.setattr("app.cli.commands.leaderboard.request", lambda *_, **__: board)
    assert done("leaderboard", "sums").stderr == "Not ranked: 3 models. Theta is withheld.\n"


def test_a_leaderboard_shows_trust_and_tells_namesakes_apart(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry(name: str | None, model: str, **more: object) -> dict[str, object]:
        endpoint = {"id": "end_1", "name": name, "model": model}
        one = {
            "rank_lo": 1,
            "rank_hi": 3,
            "theta": 0.0,
            "items": 9,
            "usd": 0.5,
            "endpoint": endpoint,
        }
        flags = {"provisional": False, "self_reported": False, "finished_at": None}
        return {**one, **flags, **more}

    def told(number: int, level: str, host: str) -> dict[str, object]:
        trust = {"level": level, "reason": "why"}
        return {"session_id": f"ses_{number}", "trust": trust, "base_url": f"http://{host}/v1"}

    data = [
        entry(None, "m", **told(1, "good", "a:1")),
        entry("m", "m", **told(2, "poor", "b")),
        entry(None, "o", **told(3, "fair", "c"), provisional=True),
    ]
    board = {"scale": "s", "data": data, "unranked": [], "other_scales": []}
    monkeypatch.setattr("app.cli.commands.leaderboard.request", lambda *_, **__: board)
    rows = [" ".join(row.split()) for row in done("leaderboard", "sums").stdout.splitlines()]
    assert rows[1].startswith("1-3 m (a:1) - - good ")
    assert rows[2].startswith("1-3 m (b) - - poor ")
    assert rows[3].startswith("1-3 o (provisional) - - fair ")


def test_pages_are_named_by_ids() -> None:
    found = done("open", "ses_1", "--server", "http://sextant.example").stdout
    assert found == "http://sextant.example/sessions/ses_1\n"
    for wrong in ("x", "ses_../login", "key_1"):
        assert "expected an id" in refused("open", wrong)


def test_a_wait_is_shown_once_and_each_answer_is_a_line() -> None:
    progress = Progress(clock=lambda: 0.0)
    waits = {"reason": "http://x answered 500: oops", "until": "2026-01-01T10:00:00+00:00"}
    first = progress.take("session.waiting", waits)
    # `sessions watch` leaves a session running that Ctrl-C would end in `run`.
    assert first == "waiting: http://x answered 500: oops. Retrying."
    assert progress.take("session.waiting", waits) is None
    progress.take("response.received", {"outcome": "error", "item_id": "q0"})
    assert progress.take("session.waiting", waits) is None
    progress.take("response.received", {"outcome": "scored", "score": 1.0, "item_id": "q1"})
    figures: JsonObject = {
        "estimate": {"theta": 0.5, "se": 0.3, "interval": {"lo": -0.1, "hi": 1.1, "level": 0.95}},
        "score": {"value": 0.6, "interval": {"lo": 0.5, "hi": 0.7, "level": 0.95}},
        "progress": {"items": 2, "expected_items": 9},
        "usage": {"usd": None},
    }
    # Answers that came together have a line each; the figures are those after the last one.
    lines = progress.take("estimate.updated", figures)
    assert lines == (
        "1 of about 9  q0  no answer\n2 of about 9  q1  score 1  theta +0.50 SE 0.30  price unknown"
    )
    assert headline(Updated.model_validate(figures)) == (
        "score 60.0 % (95 %: 50.0 % to 70.0 %)   theta +0.50, SE 0.30 (95 %: -0.10 to +1.10)"
    )
    assert progress.take("session.waiting", waits) is not None


def test_a_quiet_command_tells_the_first_wait_alone() -> None:
    progress = Progress()
    waits = {"reason": "http://x cannot be reached", "until": "2026-01-01T10:00:00+00:00"}
    other = {**waits, "reason": "http://x answered 500"}
    answer = {"outcome": "scored", "score": 1.0, "item_id": "q1"}
    kinds = ("response.received", "session.waiting", "response.received", "session.waiting")
    data: list[JsonObject] = [answer, waits, answer, other]
    lines = [progress.first_wait(*event) for event in zip(kinds, data, strict=True)]
    assert lines == [None, "waiting: http://x cannot be reached. Retrying.", None, None]


def test_an_invalid_key_is_refused_in_one_line_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEXTANT_SECRET_KEY", "abc")
    assert "SEXTANT_SECRET_KEY is not base64" in refused("serve", "--port", "0")


def test_the_printed_key_command_uses_the_database_of_this_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert serve.key_command(Settings()) == "sextant keys create NAME"
    monkeypatch.setenv("SEXTANT_DATA_DIR", "/data of mine")
    assert serve.key_command(Settings()) == (
        "SEXTANT_DATA_DIR='/data of mine' sextant keys create NAME"
    )
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:secret@db/sextant")
    assert serve.key_command(Settings()) == "DATABASE_URL=... sextant keys create NAME"
    keep_login(Target("https://sextant.example.org", None))
    assert serve.key_command(Settings()).endswith(" --server local")
