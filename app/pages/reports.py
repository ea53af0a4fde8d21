"""The reports of ended sessions and of bank versions as parts of pages."""

import asyncio
from typing import Final

from cachetools import TTLCache
from markupsafe import Markup

from app.records.sessions import SessionRecord
from app.reports.session.page import sections as sections_of_session
from app.reports.version.page import sections as sections_of_version
from app.services.banks.report import VersionReports
from app.services.sessions.report import SessionReports

#: Most reports kept, and for how many seconds, since many people open a shared link.
_KEPT, _KEPT_S = 32, 30.0
_sessions: Final[TTLCache[tuple[str, int, bool, bool], Markup]] = TTLCache(_KEPT, _KEPT_S)
_versions: Final[TTLCache[tuple[str, str], Markup]] = TTLCache(_KEPT, _KEPT_S)


async def session_sections(
    reports: SessionReports, record: SessionRecord, *, reveal: bool
) -> Markup:
    """The report of an ended session, without its heading."""
    key = (record.id, record.revision, record.withheld, reveal)
    found = _sessions.get(key)
    if found is None:
        report = await reports.report(record.id, reveal=reveal)
        found = await asyncio.to_thread(sections_of_session, report)
        _sessions[key] = found
    return found


async def version_sections(
    reports: VersionReports, bank_id: str, version_id: str, *, seen_by: str
) -> Markup:
    """The report of a version, without its heading and without any item's text.

    Args:
        reports: Makes the report.
        bank_id: Id of the bank.
        version_id: Id of the version.
        seen_by: Id of the project whose sessions the report covers.
    """
    found = _versions.get((seen_by, version_id))
    if found is None:
        report = await reports.report(bank_id, version_id)
        found = await asyncio.to_thread(sections_of_version, report)
        _versions[seen_by, version_id] = found
    return found
