"""Off-peak windows: the hours of the week, in a time zone, in which maintenance may start compactions."""

from __future__ import annotations

import datetime
import re
from itertools import pairwise
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MINUTE_MS: Final = 60_000
_DAY_MINUTES: Final = 24 * 60
_TIME: Final = re.compile(r"([01]?[0-9]|2[0-4]):([0-5][0-9])")


class Window(BaseModel):
    """Hours of a day; `days` are the days on which the window starts.

    If the end is not after the start, the window ends on the next day.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    start: str = Field(alias="from", description="start of the window, like '22:00'")
    end: str = Field(
        alias="to", description="end of the window, like '24:00' or '06:00' (on the next day if it is not after 'from')"
    )
    days: list[Day] | None = Field(
        None, min_length=1, description="days on which the window starts, like [sat, sun]; default: every day"
    )

    @field_validator("start", "end", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Convert an integer to a time, because YAML 1.1 reads 22:00 without quotes as the integer 22 * 60."""
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _DAY_MINUTES:
            return f"{value // 60:02d}:{value % 60:02d}"
        return value

    @field_validator("start", "end")
    @classmethod
    def _is_time(cls, value: str) -> str:
        if _TIME.fullmatch(value) is None or _minutes(value) > _DAY_MINUTES:
            raise ValueError("expected a time of the day like '22:00', at most '24:00'")
        return value

    @model_validator(mode="after")
    def _has_length(self) -> Window:
        if _minutes(self.start) % _DAY_MINUTES == _minutes(self.end) % _DAY_MINUTES and not self._whole_day:
            raise ValueError(
                f"the window from {self.start} to {self.end} has no length; the whole day is 00:00 to 24:00"
            )
        return self

    @property
    def _whole_day(self) -> bool:
        return _minutes(self.start) == 0 and _minutes(self.end) == _DAY_MINUTES

    def holds(self, local: datetime.datetime) -> bool:
        """Return whether a local time is inside the window."""
        start, end = _minutes(self.start), _minutes(self.end)
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if start < end:
            return start <= minute < end and self._begins_on(day)
        return (minute >= start and self._begins_on(day)) or (minute < end and self._begins_on((day - 1) % 7))

    def _begins_on(self, day: int) -> bool:
        return self.days is None or DAYS[day] in self.days

    def text(self) -> str:
        """Return the window as text for ticks, like ``22:00-06:00 on sat, sun``."""
        days = f" on {', '.join(self.days)}" if self.days else ""
        return f"{self.start}-{self.end}{days}"


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)


class OffPeak(BaseModel):
    """Windows in which sensors may start compactions, in local time of a time zone, so daylight saving time applies.

    A window that falls into an hour skipped by the clock change does not open on that day. A window in a repeated
    hour opens twice.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    time_zone: str = Field(description="time zone of the windows, like 'Europe/Berlin' or 'UTC'")
    windows: list[Window] = Field(min_length=1, description="windows in which compactions may start")

    @field_validator("time_zone")
    @classmethod
    def _is_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError) as error:  # also a path, or a folder of the time zone database
            raise ValueError(f"unknown time zone {value!r}; use a name like 'Europe/Berlin' or 'UTC'") from error
        return value

    def is_open(self, now_ms: int) -> bool:
        """Return whether a time (epoch ms) is inside a window."""
        local = datetime.datetime.fromtimestamp(now_ms // 1000, ZoneInfo(self.time_zone))
        return any(window.holds(local) for window in self.windows)

    def next_open(self, now_ms: int) -> int | None:
        """Return the next time at which a window is open.

        Args:
            now_ms: first time to consider, epoch ms.

        Returns:
            `now_ms` if a window is open, else the start (epoch ms) of the next window. None if no window opens within
            eight days because a clock change skips the window.
        """
        if self.is_open(now_ms):
            return now_ms
        zone = ZoneInfo(self.time_zone)
        today = datetime.datetime.fromtimestamp(now_ms // 1000, zone).date()
        openings = [change for change in _clock_changes(zone, now_ms) if change > now_ms and self.is_open(change)]
        for window in self.windows:
            hours, minutes = divmod(_minutes(window.start) % _DAY_MINUTES, 60)
            for ahead in range(-1, 9):
                for fold in (0, 1):  # a time that the clocks show twice
                    begins = datetime.datetime.combine(
                        today + datetime.timedelta(days=ahead), datetime.time(hours, minutes, fold=fold), zone
                    )
                    start = int(begins.timestamp()) * 1000
                    openings += [start] if start > now_ms and self.is_open(start) else []
        return min(openings, default=None)

    def text(self) -> str:
        """Return the windows as text for ticks, like ``22:00-06:00 (Europe/Berlin)``."""
        return f"{', '.join(window.text() for window in self.windows)} ({self.time_zone})"


def _clock_changes(zone: ZoneInfo, now_ms: int) -> list[int]:
    """Return the times (epoch ms) of the next nine days at which the clocks change.

    A clock change can open a window: it may jump forward over the window's start, or back into the window.
    """

    def offset(minute: int) -> datetime.timedelta | None:
        return datetime.datetime.fromtimestamp(minute * 60, zone).utcoffset()

    changes, now = [], now_ms // MINUTE_MS
    for before, after in pairwise(now + day * _DAY_MINUTES for day in range(10)):
        if offset(before) == offset(after):
            continue
        old, new = before, after
        while new - old > 1:
            middle = (old + new) // 2
            old, new = (old, middle) if offset(middle) == offset(after) else (middle, new)
        changes.append(new * MINUTE_MS)
    return changes
