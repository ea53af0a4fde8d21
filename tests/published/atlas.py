"""Readers of the published ATLAS tests."""

import csv
import gzip
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from app.engine.bank import ItemBank
from app.engine.state import Response
from app.exchange.parameters import read_parameters

BENCHMARKS = ("arc", "gsm8k")


@dataclass(frozen=True, slots=True)
class Step:
    """One administered item of a published test, and the theta and SE published after it."""

    item_id: str
    score: float
    theta: float
    se: float


@dataclass(frozen=True, slots=True)
class End:
    """Published results at the end of a test."""

    theta: float
    pirt_accuracy: float
    actual_accuracy: float


def read_bank(data: Path, benchmark: str) -> ItemBank:
    """Read the published bank."""
    return read_parameters((data / "atlas" / benchmark / "bank.csv").read_bytes())


def read_traces(data: Path, benchmark: str) -> dict[str, list[Step]]:
    """Read the steps of every test in order, by examinee and stopping rule."""
    traces: dict[str, list[Step]] = defaultdict(list)
    with gzip.open(data / "atlas" / benchmark / "traces.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            step = Step(row["item_id"], float(row["score"]), float(row["theta"]), float(row["se"]))
            traces[_name(row)].append(step)
            assert int(row["order"]) == len(traces[_name(row)])
    return dict(traces)


def read_ends(data: Path, benchmark: str) -> dict[str, End]:
    """Read the results at the end of the same tests."""
    with (data / "atlas" / benchmark / "expected.csv").open() as lines:
        return {
            _name(row): End(
                float(row["theta"]), float(row["pirt_accuracy"]), float(row["actual_accuracy"])
            )
            for row in csv.DictReader(lines)
        }


def responses_of(bank: ItemBank, steps: list[Step]) -> list[Response]:
    """Return the responses of a test."""
    return [Response(bank.index_of(step.item_id), step.score) for step in steps]


def _name(row: dict[str, str]) -> str:
    return f"{row['model']} to SE {row['se_threshold']}"
