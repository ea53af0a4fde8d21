"""What sections of the page are made of: tables, words, numbers."""

from collections.abc import Iterable, Mapping, Sequence

from app.reports.markup import Markup, Node, el

NOT_COMPUTED = "Not computed for this bank."


def section(title: str, *parts: Node) -> Markup:
    """One part of the page."""
    return el("section", el("h2", title), *parts)


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[Node]],
    *,
    names: bool = False,
) -> Markup:
    """A table whose rows begin with their head; it scrolls by itself where the page is narrow."""
    row_head = "name" if names else None
    body = [
        el(
            "tr",
            el("th", row[0], scope="row", class_=row_head),
            *(el("td", cell) for cell in row[1:]),
        )
        for row in rows
    ]
    table = el(
        "table",
        el("caption", caption),
        el("thead", el("tr", *(el("th", head, scope="col") for head in heads))),
        el("tbody", *body),
    )
    return el("div", table, class_="wide", role="region", aria_label=caption, tabindex=0)


def in_numbers(*tables: Node) -> Markup:
    """What pictures show, folded away below them."""
    return el("details", el("summary", "The same in numbers"), *tables)


def capped(shown: int, total: int, what: str) -> Markup | None:
    """Says that a table does not show all, where it does not."""
    if total <= shown:
        return None
    return el("p", f"The first {shown:,} of {total:,} {what}.", class_="note")


def with_error(value: float | None, error: float | None) -> str:
    """An estimate with its standard error."""
    if value is None:
        return "-"
    return f"{value:.2f}" + ("" if error is None else f" ± {error:.2f}")


def number(value: object, digits: int) -> str:
    """A number, or a dash where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-"
    return f"{value:,.{digits}f}"


def reasons(counts: Mapping[str, int]) -> str:
    """Counts by reason in one line."""
    if not counts:
        return "none"
    return ", ".join(f"{n:,} {str(reason).replace('_', ' ')}" for reason, n in counts.items())


def signed(value: float, digits: int) -> str:
    """A number with its sign, and 0 without one."""
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text[1:] if not float(f"{value:.{digits}f}") else text


def count(n: int, what: str) -> str:
    """So many of something."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def percent(share: float, digits: int | None = None) -> str:
    """A share in percent; by default in whole ones, but near 0 and 100, where they say too much."""
    value = 100 * share
    if digits is None:
        digits = 0 if 1 <= value <= 99 or value in (0, 100) else 1
    return f"{value:.{digits}f}\u00a0%"
