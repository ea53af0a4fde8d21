"""HTML and SVG as values: text is escaped unless it is markup already."""

from html import escape

#: Elements without an end.
_VOID = frozenset({"meta", "br", "hr"})


class Markup(str):
    """Text that is HTML and stays as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        """The same, for whoever asks what is markup already, as Jinja does."""
        return self


Node = str | int | None


def el(name: str, /, *children: Node, **attributes: str | int | float | None) -> Markup:
    """One element.

    Args:
        name: Its tag.
        children: Texts, which are escaped, and markup, which is not; None is left out.
        attributes: Attributes, which are escaped; `class_` is `class`, `_` in a name is `-`.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(*children)}</{name}>")


def join(*children: Node) -> Markup:
    """Markup of several parts."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else escape(str(child))
            for child in children
            if child is not None
        )
    )
