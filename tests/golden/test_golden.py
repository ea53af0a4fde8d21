"""Compare output of commands and sessions with stored files, so that a change of code shows.

    SEXTANT_GOLDEN=write uv run pytest tests/golden -m ""

writes the files anew; do so in the commit that changes a number on purpose. Answers are drawn from
a seed. Numbers are compared to nine digits, and to five where an optimizer stops at a tolerance,
because processors add in different orders. Ids, times and very long values are masked.
"""

import json
import math
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.api.schemas.sessions import SessionRead
from app.demo.bank import demo_bank
from app.engine.bank import ItemBank
from app.engine.simulation.simulate import draw_scores
from app.records.gates import GateSpec
from app.records.sessions import SessionRecord
from app.services.banks.imports import BankImport
from app.services.container import Services
from app.services.visibility import View
from app.settings import Settings
from app.storage.database import Database
from tests.cli.shell import done, write_scores
from tests.services.sessions import answered, by_hand, opened

HERE = Path(__file__).parent
WRITES = os.environ.get("SEXTANT_GOLDEN") == "write"
#: Names of fields that differ from run to run.
_MASKED = re.compile(
    r"(^|_)(id|at|hash|seconds|seconds_per_step|peak_memory_mb|code_version|metadata)$"
)
_LONGEST = 200
N_ITEMS = 40


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a bank and answers of models: binary, graded, and of two tasks."""
    folder, rng = tmp_path_factory.mktemp("golden"), np.random.default_rng(7)
    bank = ItemBank.from_difficulties(
        a=rng.lognormal(0.2, 0.3, N_ITEMS),
        b=rng.normal(size=N_ITEMS),
        c=rng.uniform(0.0, 0.25, N_ITEMS),
    )
    items = [f"{'law' if j % 2 else 'maths'}/{j}" for j in range(N_ITEMS)]
    rows = [f"{k},{bank.a[j]},{bank.b[j]},{bank.c[j]},1" for j, k in enumerate(items)]
    (folder / "bank.csv").write_text("\n".join(["item,a,b,c,d", *rows]))
    for name, n in (("few", 6), ("others", 40), ("many", 250)):
        scores = np.array(list(draw_scores(bank, rng.normal(size=n), rng)))
        write_scores(folder / f"{name}.csv", scores, items, name)
    level = rng.normal(size=(80, 1)) + rng.normal(size=N_ITEMS)
    graded = 1.0 / (1.0 + np.exp(-level - rng.normal(size=level.shape)))
    write_scores(folder / "graded.csv", graded.round(3), items, "g")
    write_scores(folder / "ranked.csv", graded[:4].round(3), items, "r")
    return folder


_FILES = ("--bank", "bank.csv", "--responses", "few.csv")
_KNOWN = ("--train", "others.csv", "--seed", "3")
LAB = {
    "estimate-eap": ("estimate", *_FILES),
    "estimate-wle": ("estimate", *_FILES, "--estimator", "wle"),
    "simulate-score": ("simulate", *_FILES, *_KNOWN),
    "simulate-ability": ("simulate", *_FILES, *_KNOWN, "--preset", "ability"),
    "simulate-atlas": ("simulate", *_FILES, "--preset", "atlas", "--max-items", "30"),
    "simulate-random": ("simulate", *_FILES, "--selector", "random", "--max-items", "12"),
    "simulate-v-optimal": (
        *("simulate", "--responses", "few.csv", *_KNOWN, "--selector", "v-optimal"),
        *("--dimensions", "2", "--min-items", "10", "--max-items", "10"),
    ),
    "rank-simulate": ("rank-simulate", "--responses", "ranked.csv", "--train", "graded.csv"),
}
_FITTED = {
    **{f"calibrate-{n}pl": ("many.csv", f"{n}pl") for n in (1, 2, 3)},
    "calibrate-4pl": ("many.csv", "4pl", "--allow-few"),
    "calibrate-continuous": ("graded.csv", "continuous"),
    "calibrate-nested": ("others.csv", "nested", "--dimensions", "2"),
}
LAB |= {
    name: ("calibrate", "--responses", file, "--model", model, "--no-filters", *more)
    for name, (file, model, *more) in _FITTED.items()
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAB)
def test_the_output_of_a_command_is_unchanged(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)
    command, *words = LAB[name]
    written = tmp_path / "out.json"
    out = ("--out", tmp_path / "bank.csv") if command == "calibrate" else ()
    done(command, *words, *out, "--json", written)
    digits = 5 if command == "calibrate" or "--train" in words else 9
    compare(name, json.loads(written.read_text()), digits)


@pytest.fixture
async def services(settings: Settings, database: Database) -> AsyncIterator[Services]:
    """Start services where the demo bank has only parameters, and no reference models."""
    demo = demo_bank()
    async with opened(settings, database) as services:
        await services.banks.create_version(
            demo.name,
            BankImport(parameters=demo.item_bank(), scale=demo.scale, provisional=True),
        )
        yield services


async def answered_by_hand(services: Services, every: int) -> SessionRecord:
    """Answer twelve items of a session by hand; every `every`-th answer is wrong."""
    record = await by_hand(services, {"stopping": {"max_items": 12}})
    return await answered(services, record, lambda at: {"score": float(at.step % every != 0)})


async def test_sessions_comparison_and_gate_are_unchanged(services: Services) -> None:
    first, second = [await answered_by_hand(services, every) for every in (2, 5)]
    view = View(is_whole=True)
    compare("session", SessionRead.of(first, view).model_dump(mode="json"), 9)
    found = await services.comparisons.sessions(first.id, second.id, confidence=0.95)
    told = {
        name: vars_of(getattr(found, name)) for name in ("n_common", "score", "common", "theta")
    }
    compare("comparison", told, 9)
    gate = await services.gates.create(GateSpec(threshold=0.5), second.id)
    compare("gate", {"value": gate.value, "result": vars_of(gate.result)}, 9)


def vars_of(value: Any) -> Any:
    """Return a small object as JSON."""
    names = getattr(value, "__slots__", None)
    return value if names is None else {name: vars_of(getattr(value, name)) for name in names}


def compare(name: str, found: Any, digits: int) -> None:
    path = HERE / f"{name}.json"
    masked = json.loads(json.dumps(mask(found), default=str))
    if WRITES:
        path.write_text(json.dumps(masked, indent=1, sort_keys=True) + "\n")
    differing = list(differences(json.loads(path.read_text()), masked, "", 10.0**-digits))
    assert not differing, f"{len(differing)} differ, the first: {differing[:5]}"


def mask(value: Any) -> Any:
    """Mask what differs from run to run, and round floats to twelve digits."""
    if isinstance(value, dict):
        return {key: "-" if _MASKED.search(key) else mask(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [mask(entry) for entry in value]
    if isinstance(value, str) and len(value) > _LONGEST:
        return "long"
    if isinstance(value, float):
        return float(f"{value:.12g}") if math.isfinite(value) else str(value)
    return value


def differences(known: Any, found: Any, place: str, tolerance: float) -> Any:
    """Return the places where two values differ, with both values."""
    if isinstance(known, dict) and isinstance(found, dict):
        for key in sorted(known.keys() | found.keys()):
            if key not in known or key not in found:
                yield f"{place}/{key}", "only in one"
            else:
                yield from differences(known[key], found[key], f"{place}/{key}", tolerance)
    elif isinstance(known, list) and isinstance(found, list) and len(known) == len(found):
        for i, (one, other) in enumerate(zip(known, found, strict=True)):
            yield from differences(one, other, f"{place}/{i}", tolerance)
    elif isinstance(known, float) and isinstance(found, int | float):
        if not math.isclose(known, found, rel_tol=tolerance, abs_tol=tolerance):
            yield place, known, found
    elif known != found:
        yield place, known, found
