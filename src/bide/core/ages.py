"""Ages and distances in time, as people say them.

>>> from datetime import UTC, datetime, timedelta
>>> noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
>>> relative(noon - timedelta(minutes=3), noon)
'3m ago'
>>> relative(noon + timedelta(hours=2, minutes=5), noon)
'in 2h 5m'
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bide.core.durations import LATEST

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def spoken(duration: timedelta) -> str:
    """A length of time in its two largest units, from minutes down in one: nobody asks for the seconds of an hour.

    >>> spoken(timedelta(days=4, hours=3, minutes=59)), spoken(timedelta(minutes=3, seconds=40))
    ('4d 3h', '3m')
    """
    seconds = int(abs(duration).total_seconds())
    for at, (unit, size) in enumerate(_UNITS):
        count, rest = divmod(seconds, size)
        if not count:
            continue
        smaller, smaller_size = _UNITS[at + 1] if at + 1 < len(_UNITS) else ("", 1)
        if size >= 3_600 and rest // smaller_size:
            return f"{count}{unit} {rest // smaller_size}{smaller}"
        return f"{count}{unit}"
    return "0s"


def relative(moment: datetime, now: datetime) -> str:
    """How far *moment* lies from *now*: `3m ago`, `in 2h 5m`, `now`."""
    if moment >= LATEST:
        return "never"
    if abs(moment - now) < timedelta(seconds=1):
        return "now"
    return f"{spoken(now - moment)} ago" if moment < now else f"in {spoken(moment - now)}"


def stamp(moment: datetime) -> str:
    """The moment itself, to the second.

    >>> stamp(datetime(2030, 1, 1, 12, tzinfo=UTC))
    '2030-01-01 12:00:00 UTC'
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
