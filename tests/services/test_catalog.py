"""Installing a bank by name from a folder: completely or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.errors import ConflictError, InvalidInputError
from app.records.banks import BankSpec, BankVersion
from app.services.container import Services
from app.settings import Settings
from app.storage.paging import PageRequest
from tests.services.catalog import (
    PARAMETERS,
    QUESTIONS,
    ROWS,
    agents_entry,
    sha256,
    solved,
    write_entry,
    write_files,
)


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return settings.model_copy(update={"catalog": write_entry(tmp_path / "catalog")})


Installed = tuple[BankVersion, Mapping[str, Any]]


async def install(
    services: Services, folder: Path, name: str = "small", phases: list[str] | None = None
) -> Installed:
    """Install an entry from the files of a folder, and note the phases that it tells."""
    told = [] if phases is None else phases
    return await services.catalog.install_now(
        name, lambda progress: told.append(str(progress["phase"])), folder
    )


async def banks(services: Services) -> list[str]:
    page = await services.banks.list_banks(PageRequest(limit=10))
    return [overview.bank.name for overview in page.items]


async def test_a_bank_is_made_of_the_files_in_a_folder(services: Services, tmp_path: Path) -> None:
    phases: list[str] = []
    version, result = await install(services, write_files(tmp_path / "from"), phases=phases)
    assert phases == ["fetching", "joining", "writing"]
    assert result["items"] == {"active": 5, "quarantined": 1, "pretest": 0}
    assert result["few_shot"]["from"] == "rows_without_parameters"
    assert {file["checked_by"] for file in result["files"].values()} == {"sha256"}
    loaded = await services.versions.load(version.id)
    assert loaded.default_scorer.name == "numeric"
    assert loaded.unparsed_policy == "wrong"
    assert version.knowledge["asked"]["shots"] == 2
    examples = [turn.content for turn in loaded.prompt_style.prefix]
    assert len(examples) == 4
    items = await services.versions.items_at(loaded, range(6))
    asked = {item.content.prompt for item in items.values()}
    assert asked | set(examples[::2]) == {row["q"] for row in ROWS}
    assert not asked & set(examples)


async def test_an_installed_bank_is_left_unchanged(services: Services, tmp_path: Path) -> None:
    folder = write_files(tmp_path / "from")
    first, _ = await install(services, folder)
    again, result = await install(services, folder)
    assert result["was_there"]
    assert again.id == first.id
    entry = tmp_path / "catalog" / "small.toml"
    for changed in ("seed = 43", 'prompt = "Q: {q}"'):
        name = changed.partition(" ")[0]
        lines = entry.read_text().splitlines()
        kept = [changed if line.startswith(f"{name} =") else line for line in lines]
        entry.write_text("\n".join(kept))
        with pytest.raises(ConflictError, match="not what the catalogue would install"):
            await install(services, folder)
        entry.write_text("\n".join(lines))


async def test_another_bank_of_that_name_is_not_touched(services: Services, tmp_path: Path) -> None:
    await services.banks.create_bank(BankSpec(name="small"))
    with pytest.raises(ConflictError, match="There is a bank 'small' already"):
        await install(services, write_files(tmp_path / "from"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("no folder", r"There is no folder .* put test\.jsonl"),
        ("no file", r"There is no test\.jsonl \(from test\.jsonl\) in "),
        ("another file", r"test\.jsonl is not the file .* entry names: expected sha256"),
    ],
)
async def test_missing_or_changed_files_give_one_sentence_and_no_bank(
    services: Services, tmp_path: Path, change: str, said: str
) -> None:
    folder = tmp_path / "from"
    if change != "no folder":
        write_files(folder)
    if change == "no file":
        (folder / "test.jsonl").unlink()
    if change == "another file":
        (folder / "test.jsonl").write_bytes(QUESTIONS + b"\n")
    with pytest.raises(InvalidInputError, match=said) as fault:
        await install(services, folder)
    assert "\n" not in fault.value.detail
    assert await banks(services) == ["demo"]


async def test_answers_of_the_entry_refuse_a_wrong_join(services: Services, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    names = [f"X{n}" for n in range(1, 81)]
    b = np.linspace(-2.5, 2.5, 80)
    rows = [{"q": f"What is {n}?", "a": f"= {n}"} for n in range(80)]
    table = "X,a1,d,g,u\n" + "".join(
        f"{name},2,{-2 * difficulty},0,1\n" for name, difficulty in zip(names, b, strict=True)
    )
    right = rng.random((4, 80)) < 1 / (1 + np.exp(-2 * (np.array([[-1], [0], [0.5], [1]]) - b)))
    folder = write_entry(tmp_path / "catalog", answers=True)
    entry = (folder / "small.toml").read_text().replace("rows = 8", "rows = 80")
    questions = "".join(json.dumps(row) + "\n" for row in rows).encode()
    entry = entry.replace("items = 6", "items = 80").replace(sha256(QUESTIONS), sha256(questions))
    entry = entry.replace(sha256(PARAMETERS), sha256(table.encode()))
    (folder / "small.toml").write_text(entry)
    brought = tmp_path / "from"
    brought.mkdir()
    (brought / "test.jsonl").write_bytes(questions)
    (brought / "irt.csv").write_text(table)
    for order, verdict in ((rng.permutation(80), "broken"), (np.arange(80), "holds")):
        lines = ["model," + ",".join(names)]
        lines += [
            f"m{n}," + ",".join(str(int(x)) for x in row[order]) for n, row in enumerate(right)
        ]
        (brought / "answers.csv").write_text("\n".join(lines))
        if verdict == "broken":
            with pytest.raises(InvalidInputError, match="belong to these questions") as fault:
                await install(services, brought)
            assert "\n" not in fault.value.detail
            assert await banks(services) == ["demo"]
        else:
            _, result = await install(services, brought)
            assert result["join_check"]["verdict"] == "holds"


async def test_agents_come_from_folders_of_a_checkout(services: Services, tmp_path: Path) -> None:
    place = 'github = "someone/agents", path = "data/ours/responses.jsonl"'
    source = f'{{{place}, revision = "{"0" * 40}"}}'
    (tmp_path / "catalog/agents.toml").write_text(agents_entry(source, agents=18))
    folder = tmp_path / "from/data/ours"
    folder.mkdir(parents=True)
    (folder / "responses.jsonl").write_bytes(solved())  # one more than expected
    phases: list[str] = []
    first, result = await install(services, folder, "agents", phases)
    assert list(dict.fromkeys(phases)) == ["fetching", "calibrating", "testing", "writing"]
    assert result["files"]["responses"]["origin"] == "responses.jsonl of a folder"
    bank = (await services.banks.get_bank("agents")).bank
    assert (bank.licence, bank.source) == ("MIT", "https://tasks.example")
    assert first.knowledge["reference_agents"][0] == {
        "name": "20260101_loop_gpt-0",
        "score": pytest.approx(0.3, abs=0.3),
        "day": "2026-01-01",
        "model": "gpt-0",
        "scaffold": "loop",
    }
    for above in (tmp_path / "from/data", tmp_path / "from"):
        again, result = await install(services, above, "agents")
        assert (again.id, result["was_there"]) == (first.id, True)
    (folder / "responses.jsonl").write_bytes(solved(20))
    with pytest.raises(ConflictError, match="not what the catalogue would install"):
        await install(services, folder, "agents")
