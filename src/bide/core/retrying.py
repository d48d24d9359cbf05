"""What an error leads to: another try later, or the end (M5, F16)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from bide.core.durations import Duration, parse_duration


@dataclass(frozen=True)
class RetryPolicy:
    """How often, and after what pause, something that failed is tried again.

    >>> RetryPolicy(attempts=3, first="1s", factor=2).pause(2, jitter=0.0)
    datetime.timedelta(seconds=2)
    """

    attempts: int = 4  # tries in all, the first one included
    first: Duration = "1s"
    factor: float = 2.0
    most: Duration = "5m"
    give_up_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts={self.attempts}: there must be at least one try")
        if self.factor < 1:
            raise ValueError(f"factor={self.factor}: a pause must not shrink; give 1 or more")
        parse_duration(self.first)
        parse_duration(self.most)

    def pause(self, failures: int, jitter: float) -> timedelta:
        """The pause after this many failures. *jitter* from 0 to 1 lengthens it by up to a tenth; never past `most`."""
        first, most = parse_duration(self.first), parse_duration(self.most)
        growth = min(self.factor ** (failures - 1), 1e9)
        seconds = min(first.total_seconds() * growth * (1 + jitter / 10), most.total_seconds())
        return timedelta(seconds=seconds)

    def gives_up(self, failures: int, error: BaseException) -> bool:
        return failures >= self.attempts or self.is_final(error)

    def is_final(self, error: BaseException) -> bool:
        """Whether no further try helps against this error, however few there were.

        >>> policy = RetryPolicy(attempts=2, give_up_on=(LookupError,))
        >>> [policy.is_final(error) for error in (KeyError(), NonRetryable(), OSError())]
        [True, True, False]
        """
        return isinstance(error, (NonRetryable, *self.give_up_on))


class NonRetryable(Exception):
    """Raise it in a step to fail at once, whatever the retry policy says.

    >>> raise NonRetryable("the card was stolen")
    Traceback (most recent call last):
    bide.core.retrying.NonRetryable: the card was stolen
    """
