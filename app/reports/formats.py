"""Numbers and digests in the form that people read."""

import re

from markupsafe import Markup

_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")


def short_digests(text: str) -> str:
    """Shorten the digests in a text, such as an item's key, to their first characters."""
    return _DIGEST.sub(r"\1…", text)


def short(text: object, most: int = 80) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(str(text)[: 4 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"


def item_name(key: str) -> Markup | str:
    """Name of an item, with the whole key as title where the name is shortened."""
    line = short_digests(key)
    return line if line == key else Markup('<span title="{}">{}</span>').format(key, line)


def number(value: object, digits: int) -> str:
    """Format a number; a dash where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-"
    return f"{value:,.{digits}f}"


def signed(value: float | None, digits: int) -> str:
    """Format a number with its sign, and 0 without a sign; a dash where there is none."""
    if value is None:
        return "-"
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text[1:] if not float(f"{value:.{digits}f}") else text


def count(n: int, what: str) -> str:
    """Format a number of things, in the singular or plural."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def percent(share: float | None, digits: int | None = None) -> str:
    """Format a share in percent; a dash where there is none.

    By default without decimals, except near 0 and 100, where rounding would mislead.
    """
    if share is None:
        return "-"
    value = 100 * share
    if digits is None:
        digits = 0 if 1 <= value <= 99 or value in (0, 100) else 1
    return f"{value:.{digits}f}\u00a0%"


def duration(seconds: float) -> str:
    """Format a duration."""
    if seconds < 60:
        return f"{seconds:.1f} seconds" if seconds < 10 else f"{seconds:.0f} seconds"
    minutes = round(seconds / 60)
    return count(minutes, "minute") if minutes < 120 else f"{minutes / 60:.1f} hours"
