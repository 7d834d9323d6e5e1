"""Periods of automatic tags: conversion between the time of a period and the name of its tag. No I/O, no clock.

Times are local times in ms, encoded as if they were UTC (Java's `LocalDateTime`).

Source: ``TagPeriodHandler``.
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
    """Periods of automatic tags.

    Attributes:
        length: length of a period (ms).
        pattern: `strftime` pattern of the tag names.
    """

    length: int
    pattern: str

    @staticmethod
    def of(period: str, formatter: str, length: int | None = None) -> TagPeriods:
        """Return the periods for a table's options.

        Args:
            period: `tag.creation-period`.
            formatter: `tag.period-formatter`.
            length: `tag.creation-period-duration` (ms), which takes precedence, or None.

        Returns:
            The periods.
        """
        formatter = formatter.replace("_", "-")
        day = "%Y-%m-%d" if formatter == "with-dashes" else "%Y%m%d"
        if length is not None:
            return TagPeriods(length, "%Y%m%d%H%M")
        if period == "daily":
            return TagPeriods(DAY, day)
        if period == "two-hours":  # Java always uses dashes here
            return TagPeriods(2 * HOUR, "%Y-%m-%d %H")
        return TagPeriods(HOUR, f"{day}%H" if formatter == "without-dashes-and-spaces" else f"{day} %H")

    def name_of(self, moment: int) -> str:
        """Return the name of the period that begins at ``moment`` (ms)."""
        start = _EPOCH + timedelta(milliseconds=moment)
        return start.strftime(self.pattern.replace("%Y", str(start.year)))

    def time_of(self, name: str) -> int | None:
        """Return the time in a tag's name (ms), or None if ``name`` is not the name of an automatic tag.

        As in Java, months, days and hours beyond the calendar roll over, and a daily name ends at the first blank.
        """
        match = self._form.fullmatch(name.partition(" ")[0] if self.pattern.endswith("%d") else name)
        if match is None:
            return None
        year, month, day, hour, minute = [*map(int, match.groups()), 0, 0][:5]
        months = 12 * year + month - 1
        try:
            first = datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)
            moment = first + timedelta(days=day - 1, hours=hour, minutes=minute)
        except (ValueError, OverflowError):  # a year outside Python's calendar
            return None
        return (moment - _EPOCH) // timedelta(milliseconds=1)

    @cached_property
    def _form(self) -> re.Pattern[str]:
        form = self.pattern
        for part, digits in _PARTS.items():
            form = form.replace(part, digits)
        return re.compile(form, re.ASCII)

    def previous(self, moment: int) -> int:
        """Return the start (ms) of the last period that was complete at ``moment`` (ms)."""
        return moment // self.length * self.length - self.length
