"""Files that a careless importer misreads, with the expected result of each.

The tests of readers use the same functions; the API imports one file of each kind.
"""

import io
import json
import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

SAMPLES = "model/samples_gsm8k_2026-11-20T10-00-00.123456.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """Files of one import.

    Attributes:
        outcomes: Number of accepted answers by outcome.
        skipped: Number of skipped answers by reason.
        refusal: Part of the message if the import is refused; otherwise the counts hold.
        choices: Choices that the files require, as fields of the API.
    """

    name: str
    files: Mapping[str, bytes]
    outcomes: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    refusal: str | None = None
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)


def lines(*rows: Any) -> bytes:
    """Return JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def sample(doc_id: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a row of lm-eval."""
    return {
        "doc_id": doc_id,
        "doc": {"question": f"q{doc_id}"},
        "resps": [["an answer"]],
        "filter": "none",
        "metrics": ["exact_match"],
        "doc_hash": f"h{doc_id}",
        "exact_match": 1.0,
    } | fields


def log(*samples: Any) -> bytes:
    """Return a log of inspect."""
    header = {"version": 2, "status": "success", "eval": {"task": "arc", "model": "openai/gpt-5"}}
    return json.dumps(header | {"samples": samples}, indent=2).encode()


def scored(value: Any, identifier: int | str = 1, **fields: Any) -> dict[str, Any]:
    """Return a sample of inspect."""
    return {"id": identifier, "epoch": 1, "scores": {"match": {"value": value}}} | fields


def archive(
    entries: Mapping[str, Any], *, zstd: Collection[str] = (), broken: bool = False
) -> bytes:
    """Return a ZIP archive; entries in `zstd` use method 93, as newer versions of inspect do."""
    out = io.BytesIO()
    directory = bytearray()
    for name, value in entries.items():
        content = json.dumps(value).encode()
        if name in zstd:
            method, packed = 93, pa.compress(content, codec="zstd", asbytes=True)
        else:
            method, packed = 0, content
        crc = zlib.crc32(content) ^ broken
        at, encoded = out.tell(), name.encode()
        common = struct.pack("<HHHHHIIIHH", 20, 0, method, 0, 33, crc, len(packed), len(content),
                             len(encoded), 0)  # fmt: skip
        out.write(b"PK\x03\x04" + common + encoded + packed)
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + common
        directory += struct.pack("<HHHII", 0, 0, 0, 0, at) + encoded
    start, n_entries = out.tell(), len(entries)
    out.write(directory + b"PK\x05\x06")
    out.write(struct.pack("<HHHHIIH", 0, 0, n_entries, n_entries, len(directory), start, 0))
    return out.getvalue()


def helm(*entries: Any) -> dict[str, bytes]:
    """Return a run directory of HELM."""
    spec = {"name": "mmlu:subject=x,model=org_m", "adapter_spec": {"model": "org/m"}}
    return {
        "run/per_instance_stats.json": json.dumps(entries, indent=1).encode(),
        "run/run_spec.json": json.dumps(spec).encode(),
    }


def stat(name: str, mean: float | None, **fields: Any) -> dict[str, Any]:
    """Return a metric of an instance."""
    return {"name": {"name": name, "split": "test"}, "count": 1, "mean": mean} | fields


def instance(name: str, *stats: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return an instance of HELM."""
    return {"instance_id": name, "train_trial_index": 0, "stats": list(stats)} | fields


_TWO_FILTERS = {
    SAMPLES: lines(
        sample(filter="strict-match", exact_match=0.0), sample(filter="flexible-extract")
    )
}
HEADER = {"eval": {"task": "arc", "model": "m"}}
_RIGHT = stat("exact_match", 1.0)
_PACKED = {"header.json": HEADER, "samples/1_epoch_1.json": scored("C")}

TRAPS = (
    Trap(
        name="two filters for a document",
        files=_TWO_FILTERS,
        refusal="2 filters, and each would count: 'flexible-extract', 'strict-match'. Choose one",
    ),
    Trap(
        name="duplicate row",
        files={SAMPLES: lines(sample(), sample(), sample(exact_match=0.0))},
        outcomes={"scored": 1},
        skipped={"duplicate": 1, "conflict": 1},
    ),
    Trap(
        name="inspect values and failures",
        files={
            "log.json": log(
                scored("C"),
                scored(float("nan"), 2),
                scored("I", 3, error={"message": "boom"}),
                scored("I", 4, limit={"type": "token"}),
                scored("P", 5),
            )
        },
        outcomes={"scored": 2, "error": 1, "truncated": 1},
        skipped={"not_scored": 1},
    ),
    Trap(
        name="zstd entry",
        files={"log.eval": archive(_PACKED, zstd=_PACKED)},
        outcomes={"scored": 1},
    ),
    Trap(
        name="perturbed HELM row",
        files=helm(
            instance("id1", _RIGHT),
            instance("id1", _RIGHT, perturbation={"name": "typos"}),
            instance("id1", _RIGHT, train_trial_index=1),
            instance("id2", stat("exact_match", None, count=0)),
        ),
        outcomes={"scored": 2},
        skipped={"perturbed": 1, "not_scored": 1},
    ),
    Trap(
        name="examinees of py-irt",
        files={
            "answers.jsonl": lines(
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
