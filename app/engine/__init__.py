"""The measuring engine: item response theory and adaptive testing, pure and without I/O.

A test whose items are answered by a function `score_of`:
    from app.engine import Design, ItemBank, Response, Stop, step_rng
    test = Design.from_dict({"stopping": {"se": 0.3}}).build(bank)
    state = test.start()
    while not isinstance(step := test.ask(state, step_rng(seed, state)), Stop):
        state = state.with_pending(step.item, step.probability)
        state = test.tell(state, Response(step.item, score_of(step.item)))
    test.estimate(state), test.predict(state)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.engine.adaptive import AdaptiveTest, step_rng
    from app.engine.bank import ItemBank, ItemIndex
    from app.engine.design.design import Design
    from app.engine.selection.base import Ask
    from app.engine.state import CatState, Response, Usage
    from app.engine.stopping import Stop, StopReason

#: Module of each name. Names are loaded lazily: a caller that only reads a bank loads no tests.
_MODULES = {
    "adaptive": ("AdaptiveTest", "step_rng"),
    "bank": ("ItemBank", "ItemIndex"),
    "design.design": ("Design",),
    "selection.base": ("Ask",),
    "state": ("CatState", "Response", "Usage"),
    "stopping": ("Stop", "StopReason"),
}

__all__ = [
    "AdaptiveTest",
    "Ask",
    "CatState",
    "Design",
    "ItemBank",
    "ItemIndex",
    "Response",
    "Stop",
    "StopReason",
    "Usage",
    "step_rng",
]


def __getattr__(name: str) -> object:
    """Load a name of `__all__` at its first use."""
    for module, names in _MODULES.items():
        if name in names:
            found: object = getattr(import_module(f"app.engine.{module}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'app.engine' has no attribute {name!r}")
