"""Time and memory to import a whole leaderboard into a response set.

    .venv/bin/python benchmarks/response_sets.py

Each format of the same 3,467 x 5,600 answers is imported by a separate process into an embedded
Postgres, through the service that the API and the command line use, and read back as the matrix for
calibration. The file is sent as bytes, as over the API. Memory is the peak of that process and of
the child that reads the file, without Postgres.
"""

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from app.engine.responses import ResponseTable
from app.exchange.py_irt import write_py_irt
from app.exchange.response_files import write_csv, write_parquet
from app.exchange.results.recorded import SourceFile
from app.sandbox.pool import sandbox
from app.services.responses.imports import AnswerImport
from app.services.responses.service import ResponseSetService
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import upgrade

EXAMINEES, ITEMS = 3_467, 5_600
SHARE_MISSING = 0.02


def write_wide(table: ResponseTable, path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(write_csv(table))


def write_parquet_file(table: ResponseTable, path: Path) -> None:
    path.write_bytes(write_parquet(table))


def write_lines(table: ResponseTable, path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(write_py_irt(table))


def write_long(table: ResponseTable, path: Path) -> None:
    with path.open("w") as file:
        file.write("examinee,item,score\n")
        for examinee, scores in zip(table.examinees, table.scores, strict=True):
            file.writelines(
                f"{examinee},{item},{score:g}\n"
                for item, score in zip(table.items, scores, strict=True)
                if score == score
            )


FORMS: dict[str, Callable[[ResponseTable, Path], None]] = {
    "wide.csv": write_wide,
    "wide.parquet": write_parquet_file,
    "py-irt.jsonl": write_lines,
    "long.csv": write_long,
}


def make_table(n_examinees: int, n_items: int, *, continuous: bool) -> ResponseTable:
    rng = np.random.default_rng(7)
    shape = (n_examinees, n_items)
    drawn = rng.random(shape).round(3)
    scores = drawn if continuous else drawn.round()
    scores[rng.random(shape) < SHARE_MISSING] = np.nan
    return ResponseTable(
        tuple(f"organisation-{i % 97}/model-{i}" for i in range(n_examinees)),
        tuple(f"task-{j % 7}/item-{j}" for j in range(n_items)),
        scores,
    )


async def import_once(url: str, path: Path) -> str:
    """Import one file and read it back; return the figures as one line."""
    database = Database(url)
    sets = ResponseSetService(database)
    start = time.perf_counter()
    content = await asyncio.to_thread(path.read_bytes)
    files = [SourceFile.of_bytes(path.name, content)]
    report = await sets.import_set(path.name, AnswerImport(files=files))
    imported = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    sandbox().close()
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
    start = time.perf_counter()
    table = await sets.matrix(path.name)
    read = time.perf_counter() - start
    assert table.n_answers == report.accepted
    await database.dispose()
    return f"{report.accepted} {imported:.1f} {peak:.0f} {child:.0f} {read:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examinees", type=int, default=EXAMINEES)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--import-one", nargs=2, metavar=("URL", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.import_one:
        url, path = arguments.import_one
        print(asyncio.run(import_once(url, Path(path))))
        return
    shown = Table(title=f"{arguments.examinees:,} examinees x {arguments.items:,} items")
    for column in ("file", "MB", "answers", "import s", "peak MB", "child MB", "matrix s"):
        shown.add_column(column, justify="right")
    with tempfile.TemporaryDirectory(prefix="sextant-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)  # as root, Postgres runs as another user
        with EmbeddedPostgres(folder / "data", durable=False) as postgres:
            upgrade(postgres.url)
            forms = [(name, write, False) for name, write in FORMS.items()]
            for name, write, continuous in [*forms, ("continuous.csv", write_wide, True)]:
                path = folder / name
                size = (arguments.examinees, arguments.items)
                write(make_table(*size, continuous=continuous), path)
                command = [sys.executable, __file__, "--import-one", postgres.url, str(path)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                megabytes = path.stat().st_size / 2**20
                shown.add_row(name, f"{megabytes:.0f}", *done.stdout.split())
                path.unlink()
    Console().print(shown)


if __name__ == "__main__":
    main()
