"""The last result of each model and bank, and the place of results among reference models."""

from collections.abc import Sequence

from markupsafe import Markup

from app.api.schemas.sessions import SessionRead
from app.pages.rendering import who
from app.records.sessions import SessionRecord
from app.reports.reference_strip import Reference, strip, strip_position
from app.services.banks.loaded import LoadedVersion
from app.services.visibility import View

#: Most ended sessions that are searched for results.
LOOKED_AT = 60
_SHOWN = 10


def last_results(ended: Sequence[SessionRecord], view: View) -> dict[str, list[SessionRead]]:
    """The last result of each model by bank: banks by their newest result, results by score.

    Args:
        ended: Ended sessions, the newest first.
        view: What the visitor may see.
    """
    found: dict[str, dict[tuple[str, ...], SessionRead]] = {}
    for record in ended:
        if record.summary.get("score") is None:
            continue
        of_bank = found.setdefault(record.bank_id, {})
        named = record.examinee.name if record.examinee else record.endpoint_name
        asked = record.provenance["endpoint"] or {"model": record.id, "base_url": ""}
        key = (record.mode, named) if named else (record.mode, asked["model"], asked["base_url"])
        if key not in of_bank and len(of_bank) < _SHOWN:
            of_bank[key] = SessionRead.of(record, view)
    return {
        bank: sorted(models.values(), key=lambda one: -one.score["value"] if one.score else 0.0)
        for bank, models in list(found.items())[:_SHOWN]
    }


def strip_of(version: LoadedVersion, sessions: Sequence[SessionRead]) -> Markup | None:
    """Chart of a version's reference models and the sessions; None where none can be placed."""
    population = () if version.curves is None else version.curves.population
    reference = Reference.of(
        version.bank,
        population,
        version.reference_abilities,
        version.n_reference,
        source=version.asked_when_calibrated.get("source"),
    )
    placed = [
        (who(one), strip_position(one.estimate, reference))
        for one in sessions
        if one.headline is not None and one.bank.scale == version.bank.scale
    ]
    return strip(reference, placed)
