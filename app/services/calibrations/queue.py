"""How calibrations reach the workers."""

from collections.abc import Awaitable
from typing import Protocol

from app.storage.unit_of_work import UnitOfWork


class CalibrationQueue(Protocol):
    """Whoever brings calibrations to the workers."""

    def enqueue(self, uow: UnitOfWork, calibration_id: str) -> Awaitable[None]:
        """Ask for a calibration to be run, within the given transaction."""
        ...
