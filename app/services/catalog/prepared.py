"""A bank that is ready to be written, whatever kind of entry it is of."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.records.banks import BankVersion
from app.services.banks.spec import BankSpec
from app.storage.unit_of_work import UnitOfWork

#: Part of what a version knows: where it was installed from.
INSTALLED = "installed"
#: Told of each phase, with what is known of it: `fetching`; `joining`, or `calibrating` and
#: `testing`; `writing`.
Report = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A bank that is ready to be written.

    Attributes:
        spec: Of the bank.
        knowledge: Of its version, `INSTALLED` among it.
        facts: What the result says beside them.
        publish: Makes bank and version within the caller's transaction.
    """

    spec: BankSpec
    knowledge: Mapping[str, Any]
    facts: Mapping[str, Any]
    publish: Callable[[UnitOfWork], Awaitable[BankVersion]]
