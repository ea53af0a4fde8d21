"""Several abilities end to end: calibrated, published, measured on endpoints of two profiles."""

import numpy as np

from app.calibration.filters import FilterSettings
from app.engine.bank import FloatArray, ItemBank
from app.engine.responses import ResponseTable
from app.exchange.item_record import ItemRecord
from app.exchange.matrices import write_csv
from app.items import ItemContent
from app.services.bank_import import BankImport
from app.services.bank_spec import BankSpec
from app.services.calibration_plan import CalibrationPlan
from app.services.calibrations import Publication
from app.services.container import Services
from tests.services.calibrations import ended, imported
from tests.services.sessions import scripted, spec, until

TASKS = ("law", "maths")
KEYS = tuple(f"{TASKS[i % 2]}/{i}" for i in range(60))


def records(n: int = 200) -> tuple[FloatArray, FloatArray]:
    """Answers with a general ability and one for each task; and the items' difficulties."""
    rng = np.random.default_rng(4)
    difficulty, task = rng.normal(size=len(KEYS)), np.arange(len(KEYS)) % 2
    theta = rng.normal(size=(n, 1)) + 0.9 * rng.normal(size=(n, 2))[:, task]
    logit = 1.5 * (theta - difficulty)
    return (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float), difficulty


async def test_profiles_of_two_endpoints_are_recovered(working: Services) -> None:
    scores, difficulty = records()
    table = ResponseTable(tuple(f"m{i}" for i in range(len(scores))), KEYS, scores)
    await imported(working, b"".join(write_csv(table)).decode())
    items = [
        ItemRecord(
            key=key, content=ItemContent(prompt=f"What is {key}?", target=(key,)), tags=(task,)
        )
        for key, task in zip(KEYS, TASKS * 30, strict=True)
    ]
    plain = ItemBank.from_difficulties(a=np.full(len(KEYS), 1.5), b=difficulty, item_ids=KEYS)
    await working.banks.import_bank(
        BankSpec(name="tasks"), BankImport(items=items, parameters=plain)
    )
    plan = CalibrationPlan(model="nested", dimensions=2, filters=FilterSettings.none())
    made = await working.calibrations.create("answers", plan)
    record = await ended(working, made.id, "completed")
    assert record.result is not None
    assert record.result["dimensionality"]["names"] == ["general", "dimension_1", "dimension_2"]
    version = await working.calibrations.publish(record.id, Publication(bank="tasks"))

    stopping = {"se": None, "min_items": 10, "max_items": 40, "prediction_width": 0.2}
    design = {"selection": {"criterion": "v_optimal"}, "stopping": stopping}
    found = {}
    for good, bad in (TASKS, TASKS[::-1]):
        endpoint = scripted(seed=5, skills={good: 1.5, bad: -1.5})
        created = await working.sessions.create(
            spec(bank=None, bank_version_id=version.id, plan=design, endpoint=endpoint)
        )
        session = await until(working, created.id)
        assert session.status == "completed", session.failure
        assert session.summary["accuracy"]["method"] == "score-model"
        again = await working.sessions.replay(
            created.id, {"prediction": {"method": "p-irt"}}, bank_version_id=None, metadata={}
        )
        assert again.summary["accuracy"]["method"] == "p-irt"
        assert again.summary["accuracy"]["value"] != session.summary["accuracy"]["value"]
        assert again.summary["estimate"]["theta"] == session.summary["estimate"]["theta"]
        found[good] = {task["tag"]: task for task in session.summary["profile"]["tasks"]}
        names = [ability["name"] for ability in session.summary["profile"]["abilities"]]
        assert names == ["general", "dimension_1", "dimension_2"]
        assert all(ability["se"] < 1 for ability in session.summary["profile"]["abilities"])
    for good, bad in (TASKS, TASKS[::-1]):
        of_task = difficulty[TASKS.index(good) :: 2]
        expected = float(np.mean(1 / (1 + np.exp(-1.5 * (1.5 - of_task)))))
        assert found[good][good]["lo"] - 0.05 <= expected <= found[good][good]["hi"] + 0.05
        assert found[good][good]["lo"] > found[good][bad]["hi"]
