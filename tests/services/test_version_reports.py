"""Reports of stored versions, built from their published calibration."""

import pytest

from app.calibration.pipeline.plan import CalibrationPlan
from app.reports.version.page import render
from app.services.calibrations.publication import Publication
from app.services.container import Services
from tests.services.calibrations import completed

pytestmark = pytest.mark.usefixtures("fits_here")


async def test_the_report_includes_the_published_calibration(services: Services) -> None:
    made = await completed(services, CalibrationPlan(compare=("1pl", "2pl")))
    version = await services.calibrations.publish(made.id, Publication(bank="arc", notes="first"))
    report = await services.version_reports.report("arc")
    assert (report.identity.bank, report.identity.version) == ("arc", 1)
    assert report.identity.parameters_hash == version.parameters_hash
    facts = report.calibration
    assert facts is not None
    assert (facts.n_examinees, facts.n_items, facts.model) == (300, 12, "2pl")
    assert facts.fit["verdict"] == (version.calibration or {})["fit"]["verdict"]
    assert {other["model"] for other in facts.comparison} == {"1pl", "2pl"}
    assert sum(facts.item_verdicts.values()) == len(facts.worst_items) == 12
    text = render(report)
    assert "calibrated by the answers of 300 models" in text
    assert "Other models on the same answers" in text
