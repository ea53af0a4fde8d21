"""Parser of report pages."""

import re
from html.parser import HTMLParser

from typing_extensions import override

#: Void elements.
_VOID = {"meta", "link", "input", "img", "br", "hr"}


class Page(HTMLParser):
    """Parses a page, and fails on an element that is not closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        #: Names of the fields and buttons of each form, by its action.
        self.forms: dict[str, set[str]] = {}
        self._action = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.elements.append((tag, given))
        if tag == "form":
            self._action = given["action"] or ""
            self.forms.setdefault(self._action, set())
        elif tag in {"input", "select", "textarea", "button"} and "form" in self._open:
            self.forms[self._action].add(given.get("name") or "")
        if tag not in _VOID:
            self._open.append(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    @override
    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.texts.append(data)

    def require_safe_and_accessible(self) -> None:
        """Assert that no script runs, and that tables and charts have descriptions."""
        policies = [a["content"] for _, a in self.elements if "http-equiv" in a]
        assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
        for tag, attributes in self.elements:
            assert tag not in {"script", "link", "img", "iframe", "object", "a", "b>"}
            assert not any(name.startswith("on") for name in attributes)
            if tag == "th":
                assert attributes["scope"] in {"row", "col"}
            if tag == "svg":
                assert attributes["role"] == "img"
                assert attributes["aria-label"]
        tags = [tag for tag, _ in self.elements]
        assert tags.count("svg") == tags.count("desc")
        assert tags.count("table") == tags.count("caption")

    @property
    def text(self) -> str:
        return re.sub(r"[ \n]+", " ", " ".join(self.texts))
