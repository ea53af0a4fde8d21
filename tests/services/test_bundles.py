"""Bundles: a bank as one file gives the same version in another database, or one error."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import ItemBank
from app.engine.knowledge import packed
from app.engine.lint import Finding
from app.errors import FileFormatError, InvalidInputError, InvalidStateError, NotFoundError
from app.exchange.bundles import line
from app.exchange.item_record import parse_item
from app.items import ScorerSpec
from app.records.banks import BankSpec, BankVersion
from app.services.calibrations.publication import Publication
from app.services.container import Services, open_services
from app.services.responses.confined_reading import SentFile
from app.settings import Settings
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.worker.queue import JobQueue
from tests.databases import new_database
from tests.services.banks import make_bank, spread
from tests.services.calibrations import answers, calibrated, imported
from tests.values import not_none

SPEC = BankSpec(
    name="whole",
    licence="CC0",
    source="made up",
    default_scorer=ScorerSpec("numeric", {"rel_tol": 0.01}),
    prompt={"system": "Be brief. Ω", "prefix": [{"role": "user", "content": "1 + 1?"}]},
    unparsed_policy="wrong",
    metadata={"team": "a"},
)
ITEMS = [
    parse_item({"key": "sum", "prompt": "2 + 2 = ?", "target": "4", "tags": ["maths"]}),
    parse_item(
        {
            "key": "choice",
            "messages": [{"role": "user", "content": "Pick."}],
            "choices": ["x", "y"],
            "target": "B",
            "scorer": "choice",
            "expected_tokens": {"in": 9, "out": 1},
        }
    ),
    parse_item({"key": "late", "prompt": "3 + 3 = ?", "target": "6"}),
]


async def made(services: Services) -> BankVersion:
    parameters = ItemBank.from_intercepts(
        a=[1.1, 1 / 3], intercept=[-0.2, 0.7], c=[0.0, 0.25], item_ids=("sum", "choice")
    )
    misfit = Finding(
        code="misfit",
        severity="warning",
        item_id="sum",
        field="s_x2",
        value=1.5,
        message="fits badly",
    )
    return await make_bank(
        services,
        SPEC,
        parameters,
        ITEMS,
        allow=["misfit"],
        notes="November",
        findings=[misfit],
        knowledge={"reference_abilities": {"quantiles": [-1.0, 0.0, 1.0]}},
        unparsed_policy="wrong",
    )


async def bundle_of(services: Services, name: str = "whole") -> bytes:
    file = await services.bundles.export(name)
    return b"".join([block async for block in file.blocks])


def documents_of(content: bytes) -> list[dict[str, Any]]:
    """Return all lines of a bundle but that of its hash."""
    return [json.loads(text) for text in content.splitlines()][:-1]


def hashed(content: bytes) -> bytes:
    """Return the content with its hash line renewed."""
    return content + line({"sha256": hashlib.sha256(content).hexdigest()})


async def moved_out(services: Services) -> bytes:
    """Return the bundle of a bank that is deleted then."""
    content = await bundle_of(services)
    await services.banks.delete_bank("whole", 1)
    return content


@pytest.fixture
async def content(services: Services) -> bytes:
    await made(services)
    return await moved_out(services)


async def sent(services: Services, content: bytes, name: str | None = None) -> BankVersion:
    report = await services.bundles.import_file(SentFile("whole.jsonl", content), name)
    assert report.bank.name == (name or "whole")
    return not_none(report.version)


async def test_a_bundle_makes_the_same_version_again(services: Services) -> None:
    before = await made(services)
    content = await moved_out(services)
    after = await sent(services, content)
    assert after.id != before.id
    assert after.parameters_hash == before.parameters_hash
    assert (after.scale, after.lint, after.notes) == (before.scale, before.lint, before.notes)
    assert after.knowledge == before.knowledge
    bank = (await services.banks.get_bank("whole")).bank
    for field in ("licence", "source", "default_scorer", "prompt", "metadata", "unparsed_policy"):
        assert getattr(bank, field) == getattr(SPEC, field)
    assert await bundle_of(services) == content


async def test_a_bundle_holds_prompts_as_long_as_a_bank_may_have_them(services: Services) -> None:
    prompt = {"system": "Be brief. " * 2_000}
    await make_bank(services, replace(SPEC, prompt=prompt), spread("a", "b", "c"))
    after = await sent(services, await bundle_of(services), "copy")
    assert (await services.banks.get_bank(after.bank_id)).bank.prompt == prompt


async def test_a_bank_of_parameters_only_has_a_bundle_too(services: Services) -> None:
    before = await make_bank(services, "whole", spread("a", "b", "c"))
    after = await sent(services, await moved_out(services), "other")
    assert after.parameters_hash == before.parameters_hash
    assert not after.has_content


async def test_a_bundle_hashed_again_is_checked(services: Services, content: bytes) -> None:
    for place, wrong in [
        (("bank", "name"), 5),
        (("bank", "prompt"), []),
        (("bank", "prompt", "stop"), ["x" * 1000]),
        (("bank", "metadata"), {"a": {"b": 1}}),
        (("version", "provisional"), "yes"),
        (("version", "notes"), 5),
        (("version", "allow"), 5),
        (("version", "knowledge", "asked"), {"mode": "evil"}),
        (("version", "knowledge", "unparsed_policy"), "evil"),
    ]:
        changed = documents_of(content)
        part = changed[1 if place[0] == "bank" else 2]
        for name in place[:-1]:
            part = part[name]
        part[place[-1]] = wrong
        at = "/" + "/".join(place)
        with pytest.raises(FileFormatError, match="not written by an export: " + at) as refused:
            await sent(services, hashed(b"".join(map(line, changed))))
        assert refused.value.problems[0].pointer.startswith(at)


async def test_knowledge_in_a_bundle_is_checked(services: Services, content: bytes) -> None:
    documents = documents_of(content)
    curves = {
        "items": ["sum", "choice"],
        "abilities": 1,
        "slopes": packed(np.ones(2)),
        "intercept": packed(np.zeros(2)),
        "dispersion": 1.0,
        "errors": {"all": {"within": 0.1, "above": 0.1, "below": 0.1}},
        "population": [-1.0, 1.0],
    }

    def with_curves(**changes: Any) -> bytes:
        documents[2]["version"]["knowledge"]["curves"] = curves | changes
        return hashed(b"".join(map(line, documents)))

    for wrong in (
        {"population": "abc"},
        {"intercept": packed(np.zeros(30_000_000))},
        {"slopes": packed(np.zeros(3))},
        {"abilities": 10**9},
        {"dispersion": None},
    ):
        with pytest.raises(FileFormatError, match="its facts about the version") as fault:
            await sent(services, with_curves(**wrong))
        assert "\n" not in fault.value.detail
    await sent(services, with_curves())


async def test_a_bundle_edited_by_hand_is_refused(services: Services, content: bytes) -> None:
    lines = content.splitlines(keepends=True)
    edited = content.replace(b"2 + 2 = ?", b"2 + 3 = ?")
    body = b"".join(lines[:-1])
    rehashed = hashed(body.replace(b'"a": 1.1', b'"a": 1.2'))
    strange = hashed(body.replace(b'"knowledge": {', b'"knowledge": {"abilities": 7, '))
    for wrong, said in [
        (strange, "its facts about the version cannot be read"),
        (edited, "whole.jsonl was changed or cut after it was written"),
        (content[: len(content) // 2], "is no bundle"),
        (b"".join([*lines[:3], lines[-1]]), "was changed or cut"),
        (rehashed, "expected parameters of the hash"),
        (b'{"format": "other"}\n', "is no bundle: expected a file that"),
        (b"X,a1,d\n", "is no bundle"),
    ]:
        with pytest.raises(InvalidInputError, match=said) as fault:
            await sent(services, wrong)
        assert "\n" not in fault.value.detail
    with pytest.raises(NotFoundError):
        await services.banks.get_bank("whole")


async def test_a_bundle_keeps_the_visibility_of_texts(services: Services, content: bytes) -> None:
    *lines, _ = content.splitlines(keepends=True)

    def with_setting(name: str) -> bytes:
        said = f'"bank": {{"{name}": "withheld", '.encode()
        return hashed(b"".join(lines).replace(b'"bank": {', said, 1))

    await sent(services, with_setting("visibility"), "hidden")
    assert (await services.banks.get_bank("hidden")).bank.visibility == "withheld"
    with pytest.raises(FileFormatError, match="the setting 'visible', which is not known"):
        await sent(services, with_setting("visible"), "strange")


async def test_a_withheld_bank_gives_no_bundle(services: Services) -> None:
    await made(services)
    await services.banks.update_bank("whole", 1, {"visibility": "withheld"})
    with pytest.raises(InvalidStateError, match="'whole' is withheld: a bundle would give"):
        await services.bundles.export("whole")


@pytest.mark.slow
@pytest.mark.usefixtures("fits_here")
async def test_another_server_gets_the_same_version_and_shows_its_report_card(
    services: Services, postgres_server: EmbeddedPostgres, template_url: str, tmp_path: Path
) -> None:
    await imported(services, answers(40))
    record = await calibrated(services, CalibrationPlan(report_card=True))
    before = await services.calibrations.publish(record.id, Publication(bank="whole"))
    shown = await services.version_reports.report("whole")
    content = await bundle_of(services)

    template = template_url.rpartition("/")[2].partition("?")[0]
    with new_database(postgres_server.url, template) as url:
        settings = Settings(database_url=url, data_dir=tmp_path)
        other = Database(url)
        async with open_services(settings, other, JobQueue(other)) as others:
            there = await sent(others, content)
            report = await others.version_reports.report("whole")
            again = await bundle_of(others)
        await other.dispose()

    assert there.parameters_hash == before.parameters_hash
    assert again == content
    assert report.simulated == not_none(shown.simulated)
    assert report.correction == shown.correction
    assert not_none(report.calibration).n_examinees == 40
    assert not_none(report.calibration).fit == not_none(shown.calibration).fit
