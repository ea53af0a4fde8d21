"""The project and API key that the present task acts for; storage separates projects by it.

The value belongs to the context, which `asyncio` passes from task to task, so that no call can
forget it: a request reads and writes the data of its caller's project and no other. A request
begins as `NOBODY`, who sees nothing, until its key is known. A terminal command acts for the
default project. A worker looks after all projects (`EVERYBODY`), and runs each piece of work for
the project that owns it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Final

#: The project that always exists; installations with one project need no other.
DEFAULT_PROJECT: Final = "prj_00000000000000000000000000"


@dataclass(slots=True)
class AuditEntry:
    """Entry of the audit trail for the present request or command.

    Attributes:
        action: Returns the request's operation or the command; a request finds its route late.
        path: Path of the request.
        request_id: Id of the request.
        address: Address that the request came from, or `command line`.
        is_noted: Whether the first change has been noted in the trail, or none is to be noted.
        audit_id: Id of the row in the trail, where it must be known beforehand; otherwise random.
    """

    action: Callable[[], str]
    path: str
    request_id: str | None
    address: str
    is_noted: bool = False
    audit_id: str | None = None


@dataclass(frozen=True, slots=True)
class Acting:
    """The project whose data are visible, and the API key that sees them.

    Attributes:
        project_id: Id of the project; None: all projects. No project has the empty id.
        key_id: Id of the API key; `local` where authentication is off, None for the command line.
        is_from_elsewhere: Whether the request came from another machine or through a proxy;
            private addresses are not called for it.
        audit_entry: Entry of the audit trail under which the first change is noted; None: changes
            are not noted.
    """

    project_id: str | None
    key_id: str | None = None
    is_from_elsewhere: bool = False
    audit_entry: AuditEntry | None = field(default=None, compare=False)


NOBODY: Final = Acting("")
EVERYBODY: Final = Acting(None)

_BY_DEFAULT: Final = Acting(DEFAULT_PROJECT)
_present: ContextVar[Acting] = ContextVar("acting", default=_BY_DEFAULT)


def present() -> Acting:
    """What the present task acts for."""
    return _present.get()


@contextmanager
def acting_for(acting: Acting) -> Iterator[None]:
    """Act for `acting` until the block ends."""
    token = _present.set(acting)
    try:
        yield
    finally:
        _present.reset(token)


def seeing(project_id: str) -> AbstractContextManager[None]:
    """See the data of a project until the block ends, while the API key stays the same.

    For data of the lender that belong to a lent bank, such as what its versions were made from:
    whoever may see the bank may see them.
    """
    return acting_for(replace(_present.get(), project_id=project_id))


def become(project_id: str, key_id: str) -> None:
    """Act for a key in a project until the enclosing `acting_for` ends, as requests do.

    Call it inside such a block only.
    """
    _present.set(replace(_present.get(), project_id=project_id, key_id=key_id))


def owner() -> str:
    """Id of the project that owns what is created now.

    Raises:
        RuntimeError: No project is set, which is a fault in the code.
    """
    project_id = _present.get().project_id
    if not project_id:
        raise RuntimeError("what is made belongs to a project: act for one")
    return project_id


def maker() -> str | None:
    """Id of the API key that creates something now; None for the command line."""
    return _present.get().key_id


def request_id() -> str | None:
    """Id of the present request; None for the command line and for workers."""
    entry = _present.get().audit_entry
    return None if entry is None else entry.request_id
