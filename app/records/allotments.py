"""How much one may take of what several share: three quarters of what the others leave.

However much somebody has taken, something is left for the next one, who takes of that in turn.
"""

from dataclasses import dataclass

#: What one may take of what others leave.
SHARE = 0.75


def share_of(left: int) -> int:
    """Of the places that others leave, how many one may take; one at least."""
    return max(int(SHARE * left), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotment:
    """How many of something a project, and the key of it that asks, may have at a time.

    Attributes:
        limit: Its name among the project's limits.
        project: Name of the project.
        most: So many the project; None: any.
        own_most: So many the key by a limit of its own; None: as many as the project leaves it.
        are_shared: Keys of the project other than the one that asks are in force: they may come.
    """

    limit: str
    project: str
    most: int | None
    own_most: int | None = None
    are_shared: bool

    def refusal(self, what: str, *, own: int, taken: int) -> str | None:
        """Why there may not be one more, in words; None: there may.

        Args:
            what: There are so many of them, in the plural.
            own: Of the key that asks.
            taken: Of the whole project.
        """
        if self.most is not None and taken >= self.most:
            return (
                f"Project {self.project!r} has {taken} {what}, as many as it may have by its limit "
                f"{self.limit}: {self.most}."
            )
        if self.own_most is not None and own >= self.own_most:
            return (
                f"This key has {own} {what}, as many as it may have by its own limit {self.limit}: "
                f"{self.own_most}."
            )
        if self.most is None:
            return None
        others = taken - own
        if (self.are_shared or others) and own >= share_of(self.most - others):
            return (
                f"This key has {own} {what}, as many as one key may have now: three quarters of "
                f"what the other keys of project {self.project!r} leave of its limit {self.limit}: "
                f"{self.most}."
            )
        return None
