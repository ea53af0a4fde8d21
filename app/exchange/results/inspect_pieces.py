"""A log of inspect in pieces: logs of the same run, each with some of its samples.

What reading answers and questions takes is kept; the events of a sample, mostly nine tenths of it,
are not.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from app.exchange.results.inspect_items import ATTACHED
from app.exchange.results.inspect_logs import log_members
from app.exchange.results.recorded import Source

_KEPT = (
    "id", "epoch", "input", "choices", "target", "messages", "output", "scores", "error", "limit",
)  # fmt: skip
_HEADER = ("version", "status", "eval", "plan")


def inspect_pieces(source: Source, most: int) -> Iterator[bytes]:
    """The pieces, as JSON; each has at most so many bytes, or one sample.

    Raises:
        FileFormatError: No such log, or one beyond a limit.
    """
    header: dict[str, Any] = {}
    piece: list[str] = []
    size = 0
    for key, value in log_members(source):
        if key in _HEADER:
            header[key] = value
        if key != "samples" or not isinstance(value, dict):
            continue
        text = json.dumps(_kept(value))
        if piece and size + len(text) > most:
            yield _log(header, piece)
            piece, size = [], 0
        piece.append(text)
        size += len(text)
    if piece:
        yield _log(header, piece)


def _log(header: Mapping[str, Any], samples: list[str]) -> bytes:
    head = json.dumps(header)
    return f'{head[:-1]}, "samples": [{", ".join(samples)}]}}'.encode()


def _kept(sample: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: sample[name] for name in _KEPT if name in sample}
    attached, turns = sample.get("attachments"), sample.get("messages")
    if isinstance(attached, Mapping) and isinstance(turns, list):
        texts = [turn.get("content") for turn in turns if isinstance(turn, Mapping)]
        named = {text.removeprefix(ATTACHED) for text in texts if isinstance(text, str)}
        kept["attachments"] = {key: attached[key] for key in named & attached.keys()}
    return kept
