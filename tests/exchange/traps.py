"""Parts of files that a careless importer misreads."""

import io
import json
import struct
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

SAMPLES = "model/samples_gsm8k_2026-11-20T10-00-00.123456.jsonl"


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


HEADER = {"eval": {"task": "arc", "model": "m"}}
