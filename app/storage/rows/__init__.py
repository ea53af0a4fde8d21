"""Tables. One class a table, `*Row`; only `app/storage` sees them.

Whoever imports one knows them all, as relations between them need.
"""

from app.storage.rows import banks, calibrations, endpoints, projects, sessions

__all__ = ["banks", "calibrations", "endpoints", "projects", "sessions"]
