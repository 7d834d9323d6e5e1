"""Hours of the day in which compaction may be greedier (Java `OffPeakHours`)."""

from __future__ import annotations

from dataclasses import dataclass

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class OffPeakHours:
    """From ``start_hour`` to before ``end_hour`` (0..23; past midnight if start > end), add ``ratio`` % to the size ratio.

    Hours are those of the clock ``utc_offset_ms`` ahead of UTC: the caller passes its zone, this room knows no clock.
    """

    start_hour: int
    end_hour: int
    off_peak_ratio: int
    utc_offset_ms: int = 0

    @staticmethod
    def of(start_hour: int, end_hour: int, off_peak_ratio: int, utc_offset_ms: int = 0) -> OffPeakHours | None:
        """The window, or None where it is switched off (-1) or empty (start = end)."""
        if start_hour == -1 or end_hour in {-1, start_hour}:
            return None
        return OffPeakHours(start_hour, end_hour, off_peak_ratio, utc_offset_ms)

    def hour_of(self, now_ms: int) -> int:
        """Hour of the day at epoch ms ``now_ms`` in this window's zone."""
        return ((now_ms + self.utc_offset_ms) // _HOUR_MS) % 24

    def ratio(self, hour: int) -> int:
        """Percentage to add at ``hour``; 0 outside the window."""
        if self.start_hour <= self.end_hour:
            inside = self.start_hour <= hour < self.end_hour
        else:
            inside = hour >= self.start_hour or hour < self.end_hour
        return self.off_peak_ratio if inside else 0
