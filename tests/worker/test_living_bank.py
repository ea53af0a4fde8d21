"""The life of a bank with live models over HTTP: pretest, collection, the next version."""

from collections.abc import Iterator

import numpy as np
import pytest
from fastapi import FastAPI

from app.calibration.pipeline.plan import CalibrationPlan, LinkPlan
from app.demo.bank import demo_bank
from app.demo.model_server import create_model_server
from app.services.banks.imports import BankImport, demo_import
from app.services.banks.spec import BankSpec
from app.services.calibrations.publication import Publication
from app.services.container import Services
from app.services.responses.collection import Collection
from app.storage.paging import PageRequest
from tests.servers import serving
from tests.services.calibrations import ended
from tests.services.living import some_of
from tests.services.sessions import spec, until
from tests.worker.test_live_sessions import model_at

pytestmark = pytest.mark.usefixtures("fits_here")

N_MODELS = 60
N_ITEMS = 60
#: Free-form items of middling difficulty.
NEW = (19, 23, 29, 33, 39, 43)
PLAN = {
    "stopping": {"se": None, "min_items": 12, "max_items": 12},
    "pretest": {"items_per_session": len(NEW)},
    "concurrency": 6,
}


@pytest.fixture
def models_url() -> Iterator[str]:
    """A model for each examinee, of abilities from -2 to 2, behind one address."""
    app = FastAPI()
    for number, theta in enumerate(np.linspace(-2, 2, N_MODELS).tolist()):
        app.mount(f"/{number}", create_model_server(theta=theta, seed=number))
    with serving(app) as url:
        yield url


@pytest.mark.slow
async def test_items_asked_in_pretest_have_their_parameters_in_the_next_version(
    working: Services, models_url: str
) -> None:
    demo = demo_bank()
    chosen = list(range(N_ITEMS))
    known = some_of(demo.item_bank(), [row for row in chosen if row not in NEW])
    request = BankImport(
        items=[demo_import(demo).items[row] for row in chosen], parameters=known, scale="old"
    )
    old = (await working.banks.import_bank(BankSpec(name="live"), request)).version
    assert old is not None
    sessions = [
        await working.sessions.create(
            spec(
                bank="live",
                plan=PLAN,
                endpoint=model_at(f"{models_url}/{number}/v1", model=f"m{number}"),
                seed=number,
            )
        )
        for number in range(N_MODELS)
    ]
    for session in sessions:
        assert (await until(working, session.id)).status == "completed"

    collected = await working.collector.collect("answers", Collection(bank="live"), make=True)
    link = LinkPlan(method="fixed_anchor", bank_version_id=old.id, check_drift=True)
    plan = CalibrationPlan(model="2pl", link=link)
    made = await working.calibrations.create("answers", plan)
    record = await ended(working, made.id)
    assert record.status == "completed", record.failure
    version = await working.calibrations.publish(record.id, Publication(bank="live"))

    assert collected.sessions == N_MODELS
    assert collected.pretest_answers == N_MODELS * len(NEW)
    assert (record.result or {})["drift"]["drifted"] == 0
    assert (version.number, version.scale) == (2, "old")
    items = await working.versions.items("live", version.id, PageRequest(limit=100))
    found = {
        item.key: -item.intercept / item.a
        for item in items.items
        if item.a is not None and item.intercept is not None
    }
    true = [demo.items[row].b for row in NEW]
    estimated = [found[demo.items[row].key] for row in NEW]
    assert np.corrcoef(true, estimated)[0, 1] > 0.9
    assert np.abs(np.array(estimated) - true).mean() < 0.7
    columns = {row.key: row.columns for row in await working.calibrations.items(record.id)}
    for row, b in zip(NEW, estimated, strict=True):
        assert abs(b - demo.items[row].b) < 4 * columns[demo.items[row].key]["se_b"]
