"""How recorded answers were obtained, by the first row of each file that says it."""

from collections.abc import Mapping
from typing import Any

from app.exchange.results import inspect_items, openai_items
from app.exchange.results.asked_item import Seen, UnusableRowError
from app.exchange.results.lm_eval_items import BY_METRIC, asked_by, config_of


class Methods:
    """Looks at one row of each file."""

    def __init__(self) -> None:
        self._by_file: dict[tuple[str, str], dict[str, Any]] = {}

    def saw(self, seen: Seen) -> None:
        """Take in a row; all but the first of a file's task are passed over."""
        known = (seen.source.name, seen.task)
        if known not in self._by_file:
            self._by_file[known] = _way(seen)

    @property
    def all(self) -> list[Mapping[str, Any]]:
        """Of each file."""
        return list(self._by_file.values())


def _way(seen: Seen) -> dict[str, Any]:
    name = seen.row.get("filter")
    after = f" behind filter {name}" if isinstance(name, str) and name != "none" else ""
    way: dict[str, Any] = {"source": f"{seen.tool} results of {seen.task}, {seen.metric}{after}"}
    if seen.tool == "inspect":
        return {**way, "mode": "generate", **inspect_items.drawn(seen.header)}
    try:
        if seen.tool == "openai-evals":
            return {**way, "mode": "generate", **openai_items.asked_by(seen.row).drawn}
        asked = asked_by(seen.row)
    except UnusableRowError:
        return way
    shots = config_of(seen.source, seen.task).shots
    way["mode"] = "loglikelihood" if asked.options else "generate"
    if asked.options and seen.metric in BY_METRIC:
        way["normalise"] = BY_METRIC[seen.metric]
    way |= asked.drawn
    return way if shots is None else {**way, "shots": shots}
