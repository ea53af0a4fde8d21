"""One word for one thing in all that users read: pages, reports, terminal, errors."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Words with a standard synonym, and phrases that readers would not understand.
_OTHER_WORDS = re.compile(
    r"""\b(?:
        (?:un)?marked(?!\ with) | marks?\ (?:it|them|again|answers) | unreadable | abler
        | whoever | whom | by\ lot | told\ apart
        | awaited | out\ of\ reach | nobody\ (?:can|could)\ (?:read|tell) | worth\ while
        | the\ other\ way\ round | those\ calibrated | calibrated\ models | calibrated\ on
        | (?:full|predicted)\ scores? | boards? | tried\ out | counts\ as\ right | make\ it
        | the\ same\ in\ numbers | go\ on\ where | end\ it\ here | order\ by\ now
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_CODE = re.compile(r"\{[{%#].*?[}%#]\}", re.DOTALL)
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
    for code in _CODE.findall(text):
        yield from _QUOTED.findall(code)
    yield _TAG.sub(" ", _CODE.sub(" ", text))


def test_messages_use_standard_words() -> None:
    app = ROOT / "app"
    found = [
        f"{file.relative_to(ROOT)}: {word[0]!r} in {text[max(word.start() - 40, 0) :][:100]!r}"
        for pattern, texts in (("*.py", texts_of_code), ("*.html", texts_of_template))
        for file in sorted(app.rglob(pattern))
        for text in texts(file)
        for word in _OTHER_WORDS.finditer(text)
    ]
    assert not found, "\n".join(found)


def test_percent_stands_apart_from_its_number() -> None:
    close = re.compile(r":[+,]?\.\d%\}|(?<!\\u00a)\d%[ ,.;:)]")
    files = sorted((ROOT / "app").rglob("*.py"))
    found = [file.name for file in files if close.search(file.read_text(encoding="utf-8"))]
    assert not found, "write 38 %, as app.printable.percent does"
