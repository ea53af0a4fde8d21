"""Projects."""

from datetime import datetime

from sqlalchemy import func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.storage.rows.base import EMPTY_OBJECT, Base, Json


class ProjectRow(Base):
    """Whose something is. One is always there, see `app.acting`."""

    __tablename__ = "projects"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str] = mapped_column(server_default="")
    #: What its keys may use, and how long what they made stays.
    limits: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    retention: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
