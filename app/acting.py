"""For whom the present task works: the one value by which storage tells projects apart.

It belongs to the context, as `asyncio` hands it on from task to task, so that no call can forget
to pass it: whatever is read or written in a request is its caller's project's and no other's. A
request begins as `NOBODY`, who sees nothing, until its key is known; a command of the terminal is
the default project's; a worker looks after all projects (`EVERYBODY`), and runs each piece of work
as the project that it belongs to.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final

#: The project that always exists, and all there is to know of projects where one is enough.
DEFAULT_PROJECT: Final = "prj_00000000000000000000000000"


@dataclass(frozen=True, slots=True)
class Acting:
    """Whose data are seen, and who sees them.

    Attributes:
        project_id: The project; None: all of them. No project has the empty id.
        key_id: The API key; `local` where authentication is off, None for the command line.
        is_from_elsewhere: The request came from another machine, or through a proxy: private
            addresses are not called for it.
    """

    project_id: str | None
    key_id: str | None = None
    is_from_elsewhere: bool = False


NOBODY: Final = Acting("")
EVERYBODY: Final = Acting(None)

_BY_DEFAULT: Final = Acting(DEFAULT_PROJECT)
_present: ContextVar[Acting] = ContextVar("acting", default=_BY_DEFAULT)


def present() -> Acting:
    """For whom this task works."""
    return _present.get()


@contextmanager
def acting_for(acting: Acting) -> Iterator[None]:
    """Work for somebody until the block ends."""
    token = _present.set(acting)
    try:
        yield
    finally:
        _present.reset(token)


def seeing(project_id: str) -> AbstractContextManager[None]:
    """See the data of a project until the block ends, on behalf of whoever acts.

    For what belongs to a bank that they may look at, and lies beside it: what a lent bank's
    versions were made of. It is its lender's.
    """
    return acting_for(replace(_present.get(), project_id=project_id))


def become(acting: Acting) -> None:
    """Work for somebody until the enclosing `acting_for` ends, as a request once its key is known.

    Only for what runs inside such a block.
    """
    _present.set(acting)


def seen_project() -> str | None:
    """Id of the project whose data are seen, for statements; None where all are."""
    return _present.get().project_id


def owner() -> str:
    """Id of the project to which belongs what is made now.

    Raises:
        RuntimeError: Nobody said whose it is: a fault in the code.
    """
    project_id = _present.get().project_id
    if not project_id:
        raise RuntimeError("what is made belongs to a project: act for one")
    return project_id


def maker() -> str | None:
    """Id of the API key that makes what is made now; None for the command line."""
    return _present.get().key_id


@dataclass(slots=True)
class AuditEntry:
    """What the present request or command is about to change, for the audit trail.

    Attributes:
        action: What is done: a request's operation, or the command. A request finds its route late.
        path: Of a request.
        request_id: Of a request.
        address: Where it came from; `command line`.
        is_noted: It stands in the trail, with the first that it changed, or is not to stand there.
        audit_id: Id of its row there, where somebody has to know that before; else it is drawn.
    """

    action: Callable[[], str]
    path: str
    request_id: str | None
    address: str
    is_noted: bool = False
    audit_id: str | None = None


_audit_entry: ContextVar[AuditEntry | None] = ContextVar("audit_entry", default=None)


def audit_entry() -> AuditEntry | None:
    """What is being done, where changes are to be noted."""
    return _audit_entry.get()


def request_id() -> str | None:
    """Id of the request in which this is done; None for the command line and for workers."""
    what = _audit_entry.get()
    return None if what is None else what.request_id


@contextmanager
def doing(what: AuditEntry | None) -> Iterator[None]:
    """Note the first change until the block ends, or none."""
    token = _audit_entry.set(what)
    try:
        yield
    finally:
        _audit_entry.reset(token)
