"""Files that a careless importer reads wrongly, with what has to become of each.

The tests of each reader name all of them; the API brings one of each kind in.
"""

import io
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

_SAMPLES = "model/samples_gsm8k_2026-11-20T10-00-00.123456.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """Files of one import.

    Attributes:
        outcomes: Outcome to number of accepted answers.
        skipped: Reason to number of answers left out.
        refusal: Part of the message, where nothing can be taken; else the counts hold.
        choices: What the files need chosen, as fields of the API.
    """

    name: str
    files: Mapping[str, bytes]
    outcomes: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    refusal: str | None = None
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)


def _lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _sample(doc_id: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "doc_id": doc_id,
        "doc": {"question": f"q{doc_id}"},
        "resps": [["an answer"]],
        "filter": "none",
        "metrics": ["exact_match"],
        "doc_hash": f"h{doc_id}",
        "exact_match": 1.0,
    } | fields


def _log(*samples: Any) -> bytes:
    header = {"version": 2, "status": "success", "eval": {"task": "arc", "model": "m"}}
    return json.dumps(header | {"samples": samples}).encode()


def _scored(value: Any, identifier: int = 1, **fields: Any) -> dict[str, Any]:
    return {"id": identifier, "epoch": 1, "scores": {"match": {"value": value}}} | fields


def _zstd_archive(entries: Mapping[str, Any]) -> bytes:
    """A ZIP archive whose entries are packed by method 93, which the standard library lacks."""
    out = io.BytesIO()
    directory = bytearray()
    for name, value in entries.items():
        content = json.dumps(value).encode()
        packed = pa.compress(content, codec="zstd", asbytes=True)
        at, encoded = out.tell(), name.encode()
        common = struct.pack("<HHHHHIIIHH", 20, 0, 93, 0, 33, zlib.crc32(content), len(packed),
                             len(content), len(encoded), 0)  # fmt: skip
        out.write(b"PK\x03\x04" + common + encoded + packed)
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + common
        directory += struct.pack("<HHHII", 0, 0, 0, 0, at) + encoded
    start, n_entries = out.tell(), len(entries)
    out.write(directory + b"PK\x05\x06")
    out.write(struct.pack("<HHHHIIH", 0, 0, n_entries, n_entries, len(directory), start, 0))
    return out.getvalue()


def _helm(*entries: Any) -> dict[str, bytes]:
    spec = {"name": "mmlu:subject=x,model=org_m", "adapter_spec": {"model": "org/m"}}
    return {
        "run/per_instance_stats.json": json.dumps(entries).encode(),
        "run/run_spec.json": json.dumps(spec).encode(),
    }


def _instance(name: str, **fields: Any) -> dict[str, Any]:
    stats = [{"name": {"name": "exact_match", "split": "test"}, "count": 1, "mean": 1.0}]
    return {"instance_id": name, "train_trial_index": 0, "stats": stats} | fields


_TWO_FILTERS = {
    _SAMPLES: _lines(
        _sample(filter="strict-match", exact_match=0.0), _sample(filter="flexible-extract")
    )
}
_HEADER = {"eval": {"task": "arc", "model": "m"}}

TRAPS = (
    Trap(
        name="two filters for a document",
        files=_TWO_FILTERS,
        refusal="2 filters, and each would count: flexible-extract, strict-match. Choose one",
    ),
    Trap(
        name="duplicate row",
        files={_SAMPLES: _lines(_sample(), _sample(), _sample(exact_match=0.0))},
        outcomes={"scored": 1},
        skipped={"duplicate": 1, "conflict": 1},
    ),
    Trap(
        name="inspect values and failures",
        files={
            "log.json": _log(
                _scored("C"),
                _scored(float("nan"), 2),
                _scored("I", 3, error={"message": "boom"}),
                _scored("I", 4, limit={"type": "token"}),
                _scored("P", 5),
            )
        },
        outcomes={"scored": 2, "error": 1, "truncated": 1},
        skipped={"not_scored": 1},
    ),
    Trap(
        name="zstd entry",
        files={
            "log.eval": _zstd_archive(
                {"header.json": _HEADER, "samples/1_epoch_1.json": _scored("C")}
            )
        },
        outcomes={"scored": 1},
    ),
    Trap(
        name="perturbed HELM row",
        files=_helm(
            _instance("id1"),
            _instance("id1", perturbation={"name": "typos"}),
            _instance("id1", train_trial_index=1),
            _instance("id2", stats=[{"name": {"name": "exact_match"}, "count": 0, "mean": None}]),
        ),
        outcomes={"scored": 2},
        skipped={"perturbed": 1, "not_scored": 1},
    ),
    Trap(
        name="examinees of py-irt",
        files={
            "answers.jsonl": _lines(
                {"subject_id": "m1", "responses": {"q1": 1, "q2": None}},
                {"subject_id": "m2", "responses": {}},
                {"subject_id": "m1", "responses": {"q1": 0}},
            )
        },
        outcomes={"scored": 1},
        skipped={"not_scored": 1, "no_answers": 1, "conflict": 1},
    ),
    Trap(
        name="text in a cell",
        files={"wide.csv": b"model,q1,q2\nm1,1,yes\n"},
        refusal="wide.csv:2:q2: expected a score, got 'yes'",
    ),
    Trap(
        name="pickle",
        files={"scores.pkl": b"\x80\x04K\x01."},
        refusal="",  # never opened: its bytes are no text of any format
    ),
)
