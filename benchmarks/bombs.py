"""Small files that expand to large ones, to fill the memory or block the server.

Each has a name and a function that makes it. `BOMBS` gives the kind of route: `answers` (the body
of a response set's import, as base64), `items` and `parameters` (texts of a bank's import), `lines`
(the body of `items:batch`). Every file is below 4 MB.
"""

import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pa_parquet

MB = 2**20
_HEADER = b"examinee,item,score\n"


@dataclass(frozen=True, slots=True)
class Bomb:
    """A file of an attack.

    Attributes:
        route: `answers`, `items`, `parameters` or `lines`.
        filename: Name of the file.
        make: Returns its bytes.
    """

    route: str
    filename: str
    make: Callable[[], bytes]


def packed(piece: bytes, size: int, *, head: bytes = b"", tail: bytes = b"") -> bytes:
    """Return a gzip file of one repeated piece, of which only one block is really compressed."""
    block = piece * max(1, MB // len(piece))
    times = size // len(block)
    check = zlib.crc32(head)
    for _ in range(times):
        check = zlib.crc32(block, check)
    check = zlib.crc32(tail, check)
    body = _flushed(head) + _flushed(block) * times + _flushed(tail, last=True)
    length = len(head) + times * len(block) + len(tail)
    mark = b"\x1f\x8b\x08\x00" + bytes(6)
    return mark + body + struct.pack("<II", check, length % 2**32)


def _flushed(content: bytes, *, last: bool = False) -> bytes:
    # After a full flush nothing refers back, so blocks can be repeated.
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    return squeeze.compress(content) + squeeze.flush(zlib.Z_FINISH if last else zlib.Z_FULL_FLUSH)


def archive(entries: dict[str, bytes], *, times: int = 1) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for n in range(times):
            for name, content in entries.items():
                file.writestr(name.format(n), content)
    return out.getvalue()


def log(samples: dict[str, bytes], *, times: int = 1) -> bytes:
    header = json.dumps({"eval": {"task": "t", "model": "m"}}).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", header)
        for n in range(times):
            for name, content in samples.items():
                file.writestr(name.format(n), content)
    return out.getvalue()


def overlapping(entries: int, size: int) -> bytes:
    """Return an archive whose entries share the same bytes: the directory lists them many times."""
    header = json.dumps({"eval": {"task": "t", "model": "m"}}).encode()
    content = b'{"id": 1, "x": "' + b"a" * size + b'"}'
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = squeeze.compress(content) + squeeze.flush()
    out = io.BytesIO()
    directory = b""

    def entry(name: bytes, packed_: bytes, plain: bytes, at: int, method: int) -> bytes:
        common = struct.pack(
            "<HHHHHIIIHH", 20, 0, method, 0, 33, zlib.crc32(plain), len(packed_), len(plain),
            len(name), 0,
        )  # fmt: skip
        if at < 0:
            return b"PK\x03\x04" + common + name
        return (
            b"PK\x01\x02" + struct.pack("<H", 20) + common
            + struct.pack("<HHHII", 0, 0, 0, 0, at) + name
        )  # fmt: skip

    directory += entry(b"header.json", header, header, 0, 0)
    out.write(entry(b"header.json", header, header, -1, 0) + header)
    at = out.tell()
    out.write(entry(b"samples/00000.json", body, content, -1, 8) + body)
    names = [b"samples/%05d.json" % n for n in range(entries)]
    directory += b"".join(entry(name, body, content, at, 8) for name in names)
    start = out.tell()
    count = entries + 1
    out.write(directory + b"PK\x05\x06")
    out.write(struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), start, 0))
    return out.getvalue()


def lying() -> bytes:
    """Return an archive whose sizes say 10 bytes for an entry of 1 GB."""
    whole = log({"samples/1.json": b" " * 4 * MB})
    return whole.replace(struct.pack("<I", 4 * MB), struct.pack("<I", 10))


def parquet(rows: int, **columns: object) -> bytes:
    out = io.BytesIO()
    schema = pa.schema([(name, pa.array([value]).type) for name, value in columns.items()])
    with pa_parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        left = rows
        while left:
            n = min(left, 1_000_000)
            arrays = [pa.repeat(value, n) for value in columns.values()]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=n)
            left -= n
    return out.getvalue()


def wide_parquet(columns: int) -> bytes:
    out = io.BytesIO()
    names = ["examinee", *(f"q{n}" for n in range(columns))]
    arrays = [pa.array(["m"]), *([pa.array([1], pa.int8())] * columns)]
    pa_parquet.write_table(pa.Table.from_arrays(arrays, names=names), out)
    return out.getvalue()


def long_text_parquet(rows: int, length: int) -> bytes:
    out = io.BytesIO()
    names = pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()).fill_null(0), ["x" * length])
    table = pa.table({"examinee": names, "item": names, "score": pa.repeat(1.0, rows)})
    pa_parquet.write_table(table, out, compression="zstd")
    return out.getvalue()


def nested_parquet(depth: int) -> bytes:
    value: object = 1
    kind = pa.int64()
    for _ in range(depth):
        value, kind = [value], pa.list_(kind)
    out = io.BytesIO()
    pa_parquet.write_table(pa.table({"examinee": ["m"], "q": pa.array([value], kind)}), out)
    return out.getvalue()


def sparse(examinees: int, items: int) -> bytes:
    """Return a long file that names each examinee and item once: an almost empty matrix."""
    lines = [f"m{n % examinees},q{n % items},1" for n in range(max(examinees, items))]
    return gzip.compress(_HEADER + "\n".join(lines).encode() + b"\n", mtime=0)


def sparse_lines(examinees: int) -> bytes:
    """Return lines where each examinee answers one item of its own."""
    lines = (
        json.dumps({"subject_id": f"m{n}", "responses": {f"q{n}": 1}}) for n in range(examinees)
    )
    return gzip.compress("\n".join(lines).encode(), mtime=0)


def deep(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


_SAMPLE = {"doc_id": 0, "resps": [["x"]], "metrics": ["acc"], "acc": 1.0}

BOMBS: dict[str, Bomb] = {
    "rows without end": Bomb("answers", "a.csv.gz", lambda: packed(b"a,b,1\n", 512 * MB, head=_HEADER)),
    "rows of another length": Bomb("answers", "a.csv.gz", lambda: packed(b"a,b,1,2\n", 512 * MB, head=_HEADER)),
    "repeated rows below the ratio": Bomb("answers", "a.csv.gz", lambda: packed(b"a,b,1\n", 15 * MB, head=_HEADER)),
    "cells that are no scores": Bomb("answers", "a.csv.gz", lambda: packed(b"a,b,x\n", 15 * MB, head=_HEADER)),
    "scores out of range": Bomb("answers", "a.csv.gz", lambda: packed(b"a,b,7\n", 15 * MB, head=_HEADER)),
    "NaN without end": Bomb("answers", "a.csv.gz", lambda: packed(b"a,b,NaN\n", 15 * MB, head=_HEADER)),
    "a quoted cell of 1 GB": Bomb("answers", "a.csv.gz", lambda: packed(b"x", 1024 * MB, head=_HEADER + b'"', tail=b'",b,1\n')),
    "a quoted header of 1 GB": Bomb("answers", "a.csv.gz", lambda: packed(b"x\n", 1024 * MB, head=b'"')),
    "a line without end": Bomb("answers", "a.jsonl.gz", lambda: packed(b"x", 1024 * MB, head=b'{"subject_id": "')),
    "concatenated members": Bomb("answers", "a.csv.gz", lambda: gzip.compress(_HEADER, mtime=0) + packed(b"a,b,1\n", 64 * MB) * 40),
    "empty members": Bomb("answers", "a.csv.gz", lambda: gzip.compress(b"", mtime=0) * 100_000),
    "zeros": Bomb("answers", "a.csv.gz", lambda: packed(b"\x00", 1024 * MB)),
    "sparse long table": Bomb("answers", "a.csv.gz", lambda: sparse(10_000, 100_000)),
    "sparse lines": Bomb("answers", "a.jsonl.gz", lambda: sparse_lines(60_000)),
    "a hundred thousand columns": Bomb("answers", "a.csv.gz", lambda: gzip.compress(b"m," + b",".join(b"q%d" % n for n in range(200_000)) + b"\nm" + b",1" * 200_000 + b"\n", mtime=0)),
    "one column a hundred thousand times": Bomb("answers", "a.csv.gz", lambda: packed(b",q", MB, head=b"m", tail=b"\nm,1\n")),
    "names of 10 MB": Bomb("answers", "a.csv.gz", lambda: packed(b"x", 10 * MB, head=_HEADER, tail=b",b,1\n")),
    "numbers of a million digits": Bomb("answers", "a.csv.gz", lambda: packed(b"9", 4 * MB, head=_HEADER + b"a,b,", tail=b"\n")),
    "UTF-16": Bomb("answers", "a.csv", lambda: ("examinee,item,score\n" + "a,b,1\n" * 50_000).encode("utf-16")),
    "Parquet of run lengths": Bomb("answers", "a.parquet", lambda: parquet(200_000_000 // 10, examinee="m", item="q", score=1.0)),
    "Parquet of long texts": Bomb("answers", "a.parquet", lambda: long_text_parquet(2_000_000, 100_000)),
    "Parquet of many columns": Bomb("answers", "a.parquet", lambda: wide_parquet(20_000)),
    "Parquet of nested lists": Bomb("answers", "a.parquet", lambda: nested_parquet(60)),
    "Parquet cut off": Bomb("answers", "a.parquet", lambda: wide_parquet(100)[:-500] + b"\xff\xff\xff\x7fPAR1"),
    "samples of one log": Bomb("answers", "a.eval", lambda: log({"samples/{}.json": b'{"id": 1, "x": [' + b"[]," * (8 * MB) + b"[]]}"}, times=4)),
    "a log of spaces": Bomb("answers", "a.eval", lambda: log({"samples/{}.json": b" " * (60 * MB)}, times=10)),
    "overlapping entries": Bomb("answers", "a.eval", lambda: overlapping(20_000, 2 * MB)),
    "entries that lie about their size": Bomb("answers", "a.eval", lying),
    "archives in an archive": Bomb("answers", "a.eval", lambda: log({"samples/{}.json": archive({"{}.json": b" " * (4 * MB)}, times=10)}, times=10)),
    "empty entries": Bomb("answers", "a.eval", lambda: log({"samples/{}.json": b"{}"}, times=40_000)),
    "deep JSON": Bomb("answers", "a.json", lambda: b'{"version": 2, "eval": {"task": "t", "model": "m"}, "samples": ' + deep(MB)),
    "a list of lists": Bomb("answers", "a.json.gz", lambda: packed(b"[],", 200 * MB, head=b'{"version": 2, "eval": {"task": "t", "model": "m"}, "samples": [[', tail=b"[]]]}")),
    "a text of 100 MB in a line": Bomb("answers", "a.jsonl.gz", lambda: packed(b"x", 100 * MB, head=b'{"doc_id": 0, "resps": [["', tail=b'"]], "acc": 1}\n')),
    "rows that are none": Bomb("answers", "a.jsonl.gz", lambda: packed(b"{\n", 15 * MB, head=json.dumps(_SAMPLE).encode() + b"\n")),
    "metrics without end": Bomb("answers", "a.jsonl.gz", lambda: gzip.compress(json.dumps({"doc_id": 0, "resps": [["x"]]} | {f"m{n}": 1 for n in range(300_000)}).encode(), mtime=0)),
    "lines that are no items": Bomb("items", "i.jsonl", lambda: b"{\n" * MB),
    "unknown fields": Bomb("items", "i.jsonl", lambda: b"{" + b",".join(b'"f%d":1' % n for n in range(80_000)) + b"}"),
    "columns of items": Bomb("items", "i.csv", lambda: b"x," * 500_000 + b"key\n"),
    "deep items": Bomb("items", "i.jsonl", lambda: b'{"key": "q", "scorer": ' + deep(400_000) + b"}"),
    "rows that are no parameters": Bomb("parameters", "p.csv", lambda: b"item,a,b\n" + b"x,y,z\n" * 600_000),
    "parameters as a list of lists": Bomb("parameters", "p.json", lambda: b'{"irt_model": "2pl", "diff": [' + b"[]," * MB + b"[]]}"),
    "infinite parameters": Bomb("parameters", "p.json", lambda: json.dumps({"irt_model": "1pl", "diff": [float("nan")] * 200_000, "item_ids": {str(n): f"q{n}" for n in range(200_000)}}).encode()),
    "lines without end": Bomb("lines", "body", lambda: b"{}\n" * MB),
    "a line of fields": Bomb("lines", "body", lambda: b"{" + b",".join(b'"f%d":1' % n for n in range(80_000)) + b"}\n"),
}  # fmt: skip
