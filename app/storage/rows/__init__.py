"""Tables. Each table has one class `*Row`, used only in `app/storage`.

Importing one module imports all of them, as relations between tables require.
"""

from app.storage.rows import banks, projects, sessions

__all__ = ["banks", "projects", "sessions"]
