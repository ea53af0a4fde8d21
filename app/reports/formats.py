"""Numbers, and digests, as people read them."""

import re

from markupsafe import Markup

_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")


def short_digests(text: str) -> str:
    """A text of whose digests, such as an item may be called by, only the beginnings are left."""
    return _DIGEST.sub(r"\1…", text)


def item_name(key: str) -> Markup | str:
    """What an item is called, with its whole key as title where that is shortened."""
    line = short_digests(key)
    return line if line == key else Markup('<span title="{}">{}</span>').format(key, line)


def number(value: object, digits: int) -> str:
    """A number, or a dash where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-"
    return f"{value:,.{digits}f}"


def signed(value: float | None, digits: int) -> str:
    """A number with its sign, and 0 without one; a dash where there is none."""
    if value is None:
        return "-"
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text[1:] if not float(f"{value:.{digits}f}") else text


def count(n: int, what: str) -> str:
    """So many of something."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def percent(share: float | None, digits: int | None = None) -> str:
    """A share in percent, or a dash where there is none.

    By default in whole ones, but near 0 and 100, where they say too much.
    """
    if share is None:
        return "-"
    value = 100 * share
    if digits is None:
        digits = 0 if 1 <= value <= 99 or value in (0, 100) else 1
    return f"{value:.{digits}f}\u00a0%"


def duration(seconds: float) -> str:
    """How long something took."""
    if seconds < 60:
        return f"{seconds:.1f} seconds" if seconds < 10 else f"{seconds:.0f} seconds"
    minutes = round(seconds / 60)
    return count(minutes, "minute") if minutes < 120 else f"{minutes / 60:.1f} hours"
