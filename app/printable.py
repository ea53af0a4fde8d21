"""Text made fit for people: that of others without what a terminal obeys, shares in percent."""

import re

#: Everything that a terminal obeys instead of showing it: control characters but tab and line feed
#: (C1 among them, which are escape sequences of one character), and what reverses the direction of
#: writing, so that a line reads as another than it is.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)


def percent(share: float, digits: int = 0) -> str:
    """A share in percent, as in 38 %."""
    return f"{100 * share:.{digits}f} %"


def percent_meant(came: float) -> str | None:
    """What to say in place of a number that should be a share and is surely meant as percent."""
    return f"for {came:g} % say {came / 100:g}" if 1 < came <= 100 else None


def printable(text: str) -> str:
    """`text` with U+FFFD for each character that a terminal would obey."""
    return _OBEYED.sub("\ufffd", text)


def printable_json(text: str) -> str:
    """JSON that means the same, with such characters written as escapes."""
    # Outside of strings JSON holds none of them but carriage returns, which nobody here writes.
    return _OBEYED.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
