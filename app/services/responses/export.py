"""Response sets as files."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from app.engine.responses import ResponseTable
from app.exchange.py_irt import write_py_irt
from app.exchange.response_files import Trial, write_csv, write_long, write_parquet
from app.exchange.results.recorded import FIRST_TRIAL
from app.services.responses.service import ResponseSetService, Trials
from app.services.responses.sheets import Sheet, table_of

#: Size of a block of lines, bytes: each block is sent as one message.
_BLOCK_BYTES = 1 << 18


class MatrixFormat(StrEnum):
    """File formats of the scores of a response set."""

    CSV = "csv"
    LONG = "long"
    PARQUET = "parquet"
    PY_IRT = "py-irt"
    JSONL = "jsonl"

    @property
    def media_type(self) -> str:
        """Media type of the format in HTTP."""
        return _KINDS[self][0]

    @property
    def suffix(self) -> str:
        """Suffix of names of such files."""
        return _KINDS[self][1]


_KINDS = {
    MatrixFormat.CSV: ("text/csv; charset=utf-8", "csv"),
    MatrixFormat.LONG: ("text/csv; charset=utf-8", "long.csv"),
    MatrixFormat.PARQUET: ("application/vnd.apache.parquet", "parquet"),
    MatrixFormat.PY_IRT: ("application/x-ndjson", "jsonl"),
    MatrixFormat.JSONL: ("application/x-ndjson", "jsonl"),
}


@dataclass(frozen=True, slots=True)
class MatrixFile:
    """A response set as a file to send: a file name, and its bytes part by part."""

    name: str
    media_type: str
    blocks: Iterator[bytes]


async def export_answers(
    sets: ResponseSetService, response_set: str, file_format: MatrixFormat
) -> MatrixFile:
    """The scores of a set as a file; answers without a score are omitted.

    `long` contains each repeated answer with its trial; other formats contain their mean.

    Args:
        sets: Service of response sets.
        response_set: Id or name.
        file_format: `csv` and `parquet`: one row per examinee. `long`: one row per answer.
            `py-irt`, also called `jsonl`: one line per examinee.

    Raises:
        NotFoundError: No such set.
        InvalidInputError: More cells than fit into memory, or a score between 0 and 1 for py-irt.
    """
    found = await sets.trials(response_set)
    if file_format is MatrixFormat.LONG:
        blocks = _blocks(_long(found))
    else:
        table = await asyncio.to_thread(table_of, found.items, found.sheets)
        blocks = await asyncio.to_thread(_written, table, file_format)
    name = f"{found.response_set.name}.{file_format.suffix}"
    return MatrixFile(name, file_format.media_type, blocks)


def _written(table: ResponseTable, file_format: MatrixFormat) -> Iterator[bytes]:
    if file_format is MatrixFormat.PARQUET:
        return iter([write_parquet(table)])
    return _blocks(write_csv(table) if file_format is MatrixFormat.CSV else write_py_irt(table))


def _long(found: Trials) -> Iterator[bytes]:
    repeated = any(sheet.trial != FIRST_TRIAL for sheet in found.sheets)
    trials = (
        Trial(stored.examinee, stored.trial, Sheet.of_stored(stored).scores(len(found.items)))
        for stored in found.sheets
    )
    return write_long(found.items, trials, repeated=repeated)


def _blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    block = bytearray()
    for line in lines:
        block += line
        if len(block) >= _BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    yield bytes(block)
