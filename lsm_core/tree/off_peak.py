"""Off-peak hours, in which compactions may merge more.

Source: ``OffPeakHours``.
"""

from __future__ import annotations

from dataclasses import dataclass

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class OffPeakHours:
    """Daily window in which the size ratio is increased.

    Attributes:
        start_hour: first hour (0..23); the window passes midnight if it is larger than the end.
        end_hour: first hour after the window (0..23).
        off_peak_ratio: percent to add to the size ratio.
        utc_offset_ms: offset of the hours' time zone from UTC (ms), which the caller passes because this package has no
            clock.
    """

    start_hour: int
    end_hour: int
    off_peak_ratio: int
    utc_offset_ms: int = 0

    @staticmethod
    def of(start_hour: int, end_hour: int, off_peak_ratio: int, utc_offset_ms: int = 0) -> OffPeakHours | None:
        """Return the window, or None if it is disabled (-1) or empty (start = end)."""
        if start_hour == -1 or end_hour in {-1, start_hour}:
            return None
        return OffPeakHours(start_hour, end_hour, off_peak_ratio, utc_offset_ms)

    def hour_of(self, now_ms: int) -> int:
        """Return the hour of the day at ``now_ms`` (epoch ms) in the window's time zone."""
        return ((now_ms + self.utc_offset_ms) // _HOUR_MS) % 24

    def ratio(self, hour: int) -> int:
        """Return the percentage to add at ``hour``; 0 outside the window."""
        if self.start_hour <= self.end_hour:
            inside = self.start_hour <= hour < self.end_hour
        else:
            inside = hour >= self.start_hour or hour < self.end_hour
        return self.off_peak_ratio if inside else 0
