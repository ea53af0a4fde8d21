"""Every command and code block of the README and the docs, run as a reader would; and their words.

The bash and Python blocks of one document run in order, in one shell and one empty directory. A
block that cannot run here gives the reason after its language: ```bash no-run: why
"""

import ast
import contextlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import upgrade
from tests.servers.forked import preloaded

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://)([^)#]*)(?:#([^)]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
#: Limits on the words in README.md and docs/, tables and code included, and in a sentence.
_MOST_WORDS, _MOST_WORDS_A_SENTENCE = 25_000, 16
_NO_PROSE = re.compile(r"^(?:    |\||#|!\[).*$", re.MULTILINE)
_CODE, _TARGET = re.compile(r"`[^`]*`"), re.compile(r"\]\([^)]*\)")
_SENTENCE_ENDS = re.compile(r"[.!?](?=\**(?:\s|$))|\n\n|\n *(?:[-*]|\d+\.) ")
_BOTH = r"""
    abler | whoever | whom | by\ lot | unreadable | boards? | (?:full|predicted)\ scores?
    | calibrated\ models | those\ calibrated | told\ apart | awaited | out\ of\ reach
    | nobody\ (?:can|could)\ (?:read|tell) | worth\ while | the\ other\ way\ round
"""
_IN_DOCS = r"""
    accuracy | expected\ scores? | examinees? | marks? | marked | marking | standings?
    | test\ runs? | who\ is\ ahead | quarantined? | pretest | (?:is|are)\ told | dear(?:er)?
"""
_IN_APP = r"""
    (?:un)?marked(?!\ with) | marks?\ (?:it|them|again|answers) | calibrated\ on | tried\ out
    | counts\ as\ right | make\ it | the\ same\ in\ numbers | go\ on\ where | end\ it\ here
    | order\ by\ now
"""
#: Words that have a standard synonym, and phrases that readers would not understand.
_OTHER_IN_DOCS, _OTHER_IN_APP = (
    re.compile(rf"\b(?:{_BOTH}|{more})\b", re.VERBOSE | re.IGNORECASE)
    for more in (_IN_DOCS, _IN_APP)
)
_TIMEOUT_S = 480
_MODEL_PORT = re.compile(r"\b808\d\b")


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def without_code(text: str) -> str:
    """Return a document without blocks and link targets; inline code becomes one word."""
    return _TARGET.sub("", _CODE.sub("it", _FENCE.sub("", text)))


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    body: str


def blocks(document: Path) -> list[Block]:
    """Return the blocks to run."""
    found = []
    for fence in _FENCE.finditer(document.read_text(encoding="utf-8")):
        language, _, note = fence["info"].partition(" ")
        if not note.startswith("no-run: "):
            assert not note, f"{document.name}: unknown note {note!r}"
            found.append(Block(language, fence["body"]))
    return found


def script(document: Path) -> str:
    """Return the document's commands as one shell script."""
    parts = ["set -euo pipefail"]
    for number, block in enumerate(blocks(document)):
        if block.language == "bash":
            parts.append(block.body)
        elif block.language == "python":
            parts.append(f"python - <<'END_OF_BLOCK_{number}'\n{block.body}END_OF_BLOCK_{number}\n")
    return "\n".join(parts)


def free_port() -> int:
    """Return a free port that no other test connects from before it is used."""
    while True:
        port = random.randrange(20_000, 32_000)  # below the ports that a system assigns
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """Put stand-ins on the PATH for programs that a test machine may lack."""
    directory = tmp_path / "bin"
    directory.mkdir()
    # uv made this environment; installing it again would change the machine.
    (directory / "pip").write_text('#!/bin/sh\n[ "$*" = "install uv" ] && exec uv --version\n')
    if shutil.which("curl") is None:
        curl = (Path(__file__).parent / "curl.py").read_text(encoding="utf-8")
        (directory / "curl").write_text(f"#!{sys.executable}\n{curl}")
    for command in directory.iterdir():
        command.chmod(0o755)
    return directory


@pytest.fixture
def quick_uv(commands: Path) -> None:
    """Provide a `uv` and a `sextant` that start without loading Sextant."""
    words = [sys.executable, "-IS", ROOT / "tests/docs/uv.py", preloaded(), shutil.which("uv")]
    for name, arguments in (("uv", ""), ("sextant", " run sextant")):
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))}{arguments} "$@"\n')
        command.chmod(0o755)


@pytest.fixture(scope="session")
def made_data() -> Iterator[Path]:
    """Return a data directory as after a first start, which takes longer than most commands."""
    with tempfile.TemporaryDirectory(prefix="sx-", dir="/tmp") as directory:
        Path(directory).chmod(0o755)  # for the server's unprivileged user
        with EmbeddedPostgres(Path(directory), durable=False) as server:
            upgrade(server.url)
        yield Path(directory)


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_command_of_a_document_works(
    document: Path, commands: Path, scratch: Path, request: pytest.FixtureRequest
) -> None:
    text = script(document)
    if text == "set -euo pipefail":
        pytest.skip("nothing to run in it")
    if shutil.which("uv") is None:
        pytest.skip("uv is not on the PATH: run the tests with `uv run pytest`")
    if document.name != "README.md":  # the commands start as a reader's do
        request.getfixturevalue("quick_uv")
        made = request.getfixturevalue("made_data")
        subprocess.run(["cp", "-a", made, scratch / "data"], check=True)
    served = free_port()
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{served}")
    # Other documents, run in parallel, use the same ports.
    ports = {port: str(free_port()) for port in _MODEL_PORT.findall(text)}
    text = _MODEL_PORT.sub(lambda found: ports[found[0]], text)
    work = scratch / "work"
    work.mkdir()
    venv = Path(sys.executable).parent
    said = scratch / "output.txt"
    # A file, not a pipe: servers left by the script would hold a pipe open, and an unread pipe is
    # full after 64 kB.
    with said.open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", text],
            cwd=work,
            env={
                **os.environ,
                "PATH": f"{commands}:{venv}:{os.environ['PATH']}",
                "UV_PROJECT": str(ROOT),
                "UV_NO_SYNC": "1",
                "SEXTANT_PORT": str(served),
                "SEXTANT_DATA_DIR": str(scratch / "data"),
                "XDG_CONFIG_HOME": str(scratch / "config"),
                "SEXTANT_LOG_LEVEL": "warning",
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        code = process.wait(_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        with contextlib.suppress(ProcessLookupError):  # it left nothing in the background
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()
    assert code == 0, f"{document.name} ended with {code}:\n{said.read_text()[-5000:]}"


def anchors(document: Path) -> set[str]:
    """Return the anchors of its headings."""
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(text)
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_json_blocks_are_json_and_links_lead_somewhere(document: Path) -> None:
    for block in blocks(document):
        if block.language == "json":
            json.loads(block.body)
    for target, anchor in _LINK.findall(document.read_text(encoding="utf-8")):
        linked = document.parent / target if target else document
        assert linked.exists(), f"{document.name} links to {target}"
        assert not anchor or anchor in anchors(linked), (
            f"{document.name} links to {target}#{anchor}"
        )


def test_the_docs_stay_short_and_use_one_word_for_one_thing() -> None:
    texts = {
        document: document.read_text(encoding="utf-8")
        for document in DOCUMENTS
        if document.name != "CONTRIBUTING.md"
    }
    assert sum(len(text.split()) for text in texts.values()) <= _MOST_WORDS
    lengths = []
    for document, text in texts.items():
        plain = without_code(text)
        found = _OTHER_IN_DOCS.findall(" ".join(plain.split()))
        assert not found, f"{name(document)} has words of which another stands for the same"
        for sentence in _SENTENCE_ENDS.split(_NO_PROSE.sub("\n\n", plain)):
            lengths += [length] if (length := len(re.findall(r"\w+", sentence))) else []
    assert sum(lengths) / len(lengths) <= _MOST_WORDS_A_SENTENCE
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


_TEMPLATE_CODE = re.compile(r"\{[{%#].*?[}%#]\}", re.DOTALL)
_QUOTED = re.compile(r'"([^"]* [^"]*)"')
_TAG = re.compile(r"<[^>]*>")


def texts_of_code(file: Path) -> Iterator[str]:
    """Return strings of several words that are no docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in alone and " " in text:
                yield text


def texts_of_template(file: Path) -> Iterator[str]:
    text = file.read_text(encoding="utf-8")
    for code in _TEMPLATE_CODE.findall(text):
        yield from _QUOTED.findall(code)
    yield _TAG.sub(" ", _TEMPLATE_CODE.sub(" ", text))


def test_messages_use_standard_words() -> None:
    app = ROOT / "app"
    found = [
        f"{file.relative_to(ROOT)}: {word[0]!r} in {text[max(word.start() - 40, 0) :][:100]!r}"
        for pattern, texts in (("*.py", texts_of_code), ("*.html", texts_of_template))
        for file in sorted(app.rglob(pattern))
        for text in texts(file)
        for word in _OTHER_IN_APP.finditer(text)
    ]
    assert not found, "\n".join(found)


def test_percent_stands_apart_from_its_number() -> None:
    close = re.compile(r":[+,]?\.\d%\}|(?<!\\u00a)\d%[ ,.;:)]")
    files = sorted((ROOT / "app").rglob("*.py"))
    found = [file.name for file in files if close.search(file.read_text(encoding="utf-8"))]
    assert not found, "write 38 %, as app.printable.percent does"
