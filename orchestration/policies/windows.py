"""Off-peak windows: at which times of the week, by the wall clock of a time zone, maintenance may start something."""

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
    """Hours of a day. A window whose end is not after its beginning goes on past midnight; ``days`` are those on which it begins."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    start: str = Field(alias="from", description="when it begins, like '22:00'")
    end: str = Field(
        alias="to", description="when it ends, like '06:00' (of the next day, if that is not after 'from') or '24:00'"
    )
    days: list[Day] | None = Field(
        None, min_length=1, description="the days on which it begins, like [sat, sun]; default: every day"
    )

    @field_validator("start", "end", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """YAML reads 22:00 without quotes as the number 22 * 60."""
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _DAY_MINUTES:
            return f"{value // 60:02d}:{value % 60:02d}"
        return value

    @field_validator("start", "end")
    @classmethod
    def _is_time(cls, value: str) -> str:
        if _TIME.fullmatch(value) is None or _minutes(value) > _DAY_MINUTES:
            raise ValueError("a time of the day like '22:00' is wanted, '24:00' at most")
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
        """Whether the wall-clock time is inside."""
        start, end = _minutes(self.start), _minutes(self.end)
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if start < end:
            return start <= minute < end and self._begins_on(day)
        return (minute >= start and self._begins_on(day)) or (minute < end and self._begins_on((day - 1) % 7))

    def _begins_on(self, day: int) -> bool:
        return self.days is None or DAYS[day] in self.days

    def text(self) -> str:
        """As ticks say it: ``22:00-06:00 on sat, sun``."""
        days = f" on {', '.join(self.days)}" if self.days else ""
        return f"{self.start}-{self.end}{days}"


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)


class OffPeak(BaseModel):
    """The times at which sensors may start compactions, by the wall clock of a time zone: summer time moves them with the clocks.

    A window that the clocks skip does not take place that day, one that they repeat does twice.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    time_zone: str = Field(description="whose clocks the windows are read by, like 'Europe/Berlin' or 'UTC'")
    windows: list[Window] = Field(min_length=1, description="when compactions may start; inside any of them")

    @field_validator("time_zone")
    @classmethod
    def _is_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError) as error:  # also a path, or a folder of the time zone database
            raise ValueError(f"there is no time zone {value!r}; names are like 'Europe/Berlin' or 'UTC'") from error
        return value

    def is_open(self, now_ms: int) -> bool:
        """Whether the moment (epoch ms) is inside a window."""
        local = datetime.datetime.fromtimestamp(now_ms // 1000, ZoneInfo(self.time_zone))
        return any(window.holds(local) for window in self.windows)

    def next_open(self, now_ms: int) -> int | None:
        """Return the first whole minute (epoch ms) from ``now_ms`` on inside a window; None: none within eight days, for the clocks skip it."""
        if self.is_open(now_ms):
            return now_ms
        zone = ZoneInfo(self.time_zone)
        today = datetime.datetime.fromtimestamp(now_ms // 1000, zone).date()
        found = [change for change in _clock_changes(zone, now_ms) if change > now_ms and self.is_open(change)]
        for window in self.windows:
            hours, minutes = divmod(_minutes(window.start) % _DAY_MINUTES, 60)
            for ahead in range(-1, 9):
                for fold in (0, 1):  # a time that the clocks show twice
                    begins = datetime.datetime.combine(
                        today + datetime.timedelta(days=ahead), datetime.time(hours, minutes, fold=fold), zone
                    )
                    start = int(begins.timestamp()) * 1000
                    found += [start] if start > now_ms and self.is_open(start) else []
        return min(found, default=None)

    def text(self) -> str:
        """As ticks say it: ``22:00-06:00 (Europe/Berlin)``."""
        return f"{', '.join(window.text() for window in self.windows)} ({self.time_zone})"


def _clock_changes(zone: ZoneInfo, now_ms: int) -> list[int]:
    """Minutes (epoch ms) of the next nine days at which the clocks jump: perhaps into a window that begins at a time they skip, or back into one."""

    def offset(minute: int) -> datetime.timedelta | None:
        return datetime.datetime.fromtimestamp(minute * 60, zone).utcoffset()

    found, now = [], now_ms // MINUTE_MS
    for before, after in pairwise(now + day * _DAY_MINUTES for day in range(10)):
        if offset(before) == offset(after):
            continue
        old, new = before, after
        while new - old > 1:
            middle = (old + new) // 2
            old, new = (old, middle) if offset(middle) == offset(after) else (middle, new)
        found.append(new * MINUTE_MS)
    return found


__all__ = ["DAYS", "OffPeak", "Window"]
