"""The item bank of the runs, defined here so that the checker knows all right answers."""

import math
from typing import Any, Final

N_ITEMS: Final = 120
#: Finds an item's key in a prompt.
ITEM_IN_PROMPT: Final = r"\bq\d{3}\b"
_NAMES: Final = [f"q{nth:03d}" for nth in range(N_ITEMS)]
KEY_OF: Final = {name: "ABCD"[(7 * nth) % 4] for nth, name in enumerate(_NAMES)}
#: Slope and difficulty.
PARAMETERS: Final = {
    name: (0.8 + 0.1 * (nth % 9), -2.0 + 4.0 * nth / N_ITEMS) for nth, name in enumerate(_NAMES)
}


def p_right(item: str, theta: float) -> float:
    """Return the probability that an examinee of ability `theta` answers an item right."""
    a, b = PARAMETERS[item]
    return 1 / (1 + math.exp(-a * (theta - b)))


def bank_items() -> list[dict[str, Any]]:
    """Return the items as they are imported."""
    options = ["north", "east", "south", "west"]
    return [
        {"key": name, "prompt": f"Question {name}: whence?", "choices": options, "target": key}
        for name, key in KEY_OF.items()
    ]


def bank_parameters() -> str:
    """Return their parameters as CSV."""
    rows = [f"{name},{a},{b},0,1" for name, (a, b) in PARAMETERS.items()]
    return "\n".join(["item,a,b,c,d", *rows])
