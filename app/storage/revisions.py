"""Changes that are refused when somebody else was faster."""

from app.errors import PreconditionFailedError


def require_revision(what: str, actual: int, expected: int) -> None:
    """Let a change through only if it is based on the present state.

    Args:
        what: Whose revision it is, as a sentence begins: `Bank 'sums'`.
        actual: The present revision.
        expected: The one that If-Match names.

    Raises:
        PreconditionFailedError: They differ.
    """
    if actual != expected:
        raise PreconditionFailedError(
            f"{what} is at revision {actual}, If-Match names {expected}: read it again."
        )
