"""What is spent a day, where a budget is set."""

from datetime import date, datetime

from sqlalchemy import BigInteger
from sqlalchemy.orm import Mapped, mapped_column

from app.storage.rows.base import Base


class SpendRow(Base):
    """What calls of one day (UTC) took, of a project, an endpoint or a key."""

    __tablename__ = "spend"

    #: Of a project, an endpoint or a key. No foreign key: what is spent stays spent.
    owner_id: Mapped[str] = mapped_column(primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    usd: Mapped[float]
    tokens: Mapped[int] = mapped_column(BigInteger)


class ReservationRow(Base):
    """What a call under way may take at most; it lapses once the call must be over."""

    __tablename__ = "reservations"

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(index=True)
    endpoint_id: Mapped[str] = mapped_column(index=True)
    #: The key that began it, where it is one of the project.
    key_id: Mapped[str | None] = mapped_column(index=True)
    day: Mapped[date]
    usd: Mapped[float]
    tokens: Mapped[int] = mapped_column(BigInteger)
    lapses_at: Mapped[datetime]
