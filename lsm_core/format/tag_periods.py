"""Names of automatic tags: which period of time a name stands for, and which name a moment gets. No file, no clock.

Times are wall-clock milliseconds encoded as if they were UTC (Java's `LocalDateTime`). Source class: ``TagPeriodHandler``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PARTS: Final = {"%Y": r"(-?\d{1,10})", "%m": r"(\d\d)", "%d": r"(\d\d)", "%H": r"(\d\d)", "%M": r"(\d\d)"}


@dataclass(frozen=True)
class TagPeriods:
    """Periods of ``length`` ms; their tags are called as ``pattern`` says (of `strftime`)."""

    length: int
    pattern: str

    @staticmethod
    def of(period: str, formatter: str, length: int | None = None) -> TagPeriods:
        """Periods as options say: `tag.creation-period`, `tag.period-formatter`, `tag.creation-period-duration` (ms; it wins)."""
        formatter = formatter.replace("_", "-")
        day = "%Y-%m-%d" if formatter == "with-dashes" else "%Y%m%d"
        if length is not None:
            return TagPeriods(length, "%Y%m%d%H%M")
        if period == "daily":
            return TagPeriods(DAY, day)
        if period == "two-hours":  # in Java always with dashes
            return TagPeriods(2 * HOUR, "%Y-%m-%d %H")
        return TagPeriods(HOUR, f"{day}%H" if formatter == "without-dashes-and-spaces" else f"{day} %H")

    def name_of(self, moment: int) -> str:
        """The name of the period that begins at ``moment``."""
        then = _EPOCH + timedelta(milliseconds=moment)
        return then.strftime(self.pattern.replace("%Y", str(then.year)))

    def time_of(self, name: str) -> int | None:
        """The moment that a tag's name says; None for the name of no automatic tag.

        As in Java months, days and hours beyond the calendar roll over, and of a daily name the part before a blank counts.
        """
        found = self._form.fullmatch(name.partition(" ")[0] if self.pattern.endswith("%d") else name)
        if found is None:
            return None
        year, month, day, hour, minute = [*map(int, found.groups()), 0, 0][:5]
        months = 12 * year + month - 1
        try:
            first = datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)
            moment = first + timedelta(days=day - 1, hours=hour, minutes=minute)
        except (ValueError, OverflowError):  # a year that Python's calendar does not have
            return None
        return (moment - _EPOCH) // timedelta(milliseconds=1)

    @cached_property
    def _form(self) -> re.Pattern[str]:
        form = self.pattern
        for part, digits in _PARTS.items():
            form = form.replace(part, digits)
        return re.compile(form, re.ASCII)

    def previous(self, moment: int) -> int:
        """The beginning of the last period that was complete at ``moment``."""
        return moment // self.length * self.length - self.length


__all__ = ["DAY", "HOUR", "TagPeriods"]
