"""Formats text for people: without characters that a terminal obeys, and shares in percent."""

import re

#: Characters that a terminal obeys instead of showing: control characters except tab and line feed
#: (with C1, whose characters are whole escape sequences), and those that reverse the direction of
#: writing, which make a line read as another.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)


def percent(share: float, digits: int = 0) -> str:
    """A share in percent, as in 38 %."""
    return f"{100 * share:.{digits}f} %"


def plain(number: float) -> str:
    """A number without an exponent, as in 1,000,000 tokens."""
    if abs(number) >= 99_999.5:
        return f"{number:,.0f}"
    digits = f"{number:g}"
    return f"{number:.12f}".rstrip("0") if "e" in digits else digits


def percent_meant(came: float) -> str | None:
    """Hint for a number that should be a share but is surely meant as percent; else None."""
    return f"for {came:g} % say {came / 100:g}" if 1 < came <= 100 else None


def printable(text: str) -> str:
    """`text` with U+FFFD for each character that a terminal would obey."""
    return _OBEYED.sub("\ufffd", text)


def printable_json(text: str) -> str:
    """JSON of the same meaning, with the characters that a terminal would obey as escapes."""
    # Outside of strings JSON allows only carriage returns of these, and Sextant writes none.
    return _OBEYED.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
