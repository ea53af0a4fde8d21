"""When failures end a session."""

from dataclasses import dataclass

from scipy.special import bdtrc

from app.errors import InvalidInputError

#: The share of failures is watched from so many closed items on: among fewer, nine in ten happen.
FIRST_ITEMS_FOR_SHARE = 10
#: From so many on it is taken as it is. Before, it must surely be too large: the lower end of its
#: 95 % interval (Clopper and Pearson) has to lie at the limit or above.
MIN_ITEMS_FOR_SHARE = 50
_TAIL = 0.025


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLimits:
    """When failures end a session.

    Attributes:
        max_consecutive: So many calls in a row without any answer (outcome `error`): the endpoint
            is down. Answers that came and that the scorer could not mark are not the endpoint's
            failures: twice as many of them in a row end the session, and the scorer is named.
        max_share: Share of closed items without a score, whatever the reason, that is too much.
    """

    max_consecutive: int = 5
    max_share: float = 0.5

    def __post_init__(self) -> None:
        if self.max_consecutive < 1 or not 0 < self.max_share <= 1:
            raise InvalidInputError(
                "failures: max_consecutive is at least 1 and max_share in (0, 1], got "
                f"{self.max_consecutive} and {self.max_share:g}."
            )

    def exceeded(self, failed: int, closed: int) -> bool:
        """Whether more of the closed items ended without a score than is allowed.

        A session whose share is within the limit is hardly ever ended by bad luck: of ten items
        nine must have failed where half may, seven where a third may.
        """
        if closed < FIRST_ITEMS_FOR_SHARE or failed <= self.max_share * closed:
            return False
        if closed >= MIN_ITEMS_FOR_SHARE:
            return True
        # P(as many failures or more), were the true share the limit.
        return bool(bdtrc(failed - 1, closed, self.max_share) <= _TAIL)
