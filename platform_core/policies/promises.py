"""Promises about tables (service level objectives): whether each was kept in the last week, and a text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dredge.platform_core.policies.policy import DAY_MS, HOUR_MS, SloTargets
from lsm_core.maintenance.promise_history import FRESHNESS, SORTED_RUNS, TimeWithin

WINDOW_MS: Final = 7 * DAY_MS
"""Length of the window (ms) in which promises are judged."""
_MINUTE_MS: Final = 60_000


class PromiseVerdict(StrEnum):
    """Whether a promise was kept over the window of measurement."""

    KEPT = "kept"
    """Kept for the promised share, even if it was broken in all of the unknown time."""
    BROKEN = "broken"
    """Broken for too long, even if it was kept in all of the unknown time."""
    UNKNOWN = "unknown"
    """Undecided: snapshots of a part of the window have expired, and this unknown time could change the verdict."""


@dataclass(frozen=True)
class Promise:
    """A promise and the time in which it was kept.

    Attributes:
        name: name of the promise in the policy file.
        limit: limit as text.
        target: promised share of the window, in percent.
        measured: time in which the value was within the limit, and the time that is known.
    """

    name: str
    limit: str
    target: float
    measured: TimeWithin

    @property
    def verdict(self) -> PromiseVerdict:
        """Whether the promise was kept over the window; UNKNOWN if the time without snapshots could change this."""
        window, unknown = self.measured.window_ms, self.measured.window_ms - self.measured.known_ms
        target = self.target / 100 * window
        if window > 0 and self.measured.within_ms >= target:
            return PromiseVerdict.KEPT
        return PromiseVerdict.BROKEN if self.measured.within_ms + unknown < target else PromiseVerdict.UNKNOWN

    def text(self) -> str:
        """Return the promise as one line: whether it was kept, percent of the time, known time and current value."""
        measured = self.measured
        if measured.share is None:
            share = "no snapshot of the week says whether it was kept"
        else:
            known = f"{_span_text(measured.known_ms)} of {_span_text(measured.window_ms)}"
            gap = "" if measured.known_ms >= measured.window_ms else "; the snapshots of the rest have expired"
            share = f"within it for {measured.share:.2%} of the known time ({known} known{gap})"
        latest = ""
        if measured.latest is not None:
            value = f"{measured.latest:,}" if self.name == SORTED_RUNS else _span_text(measured.latest)
            latest = f"; now {value}"
        return f"{self.name} <= {self.limit} for {self.target:g} % of the week: {self.verdict}: {share}{latest}"


def judge_promises(slo: SloTargets, measured: Mapping[str, TimeWithin]) -> list[Promise]:
    """Return the promises of a table that were measured.

    Args:
        slo: promises of the policy.
        measured: measured time by name of the promise (`measure_promises`).
    """
    limits = {
        SORTED_RUNS: "" if slo.sorted_runs_p95 is None else f"{slo.sorted_runs_p95:,}",
        FRESHNESS: "" if slo.freshness_ms is None else _span_text(slo.freshness_ms),
    }
    return [Promise(name, limits[name], slo.within, result) for name, result in measured.items()]


def _span_text(span_ms: int) -> str:
    """Return a time with one decimal at most: "45 s", "12 min", "3.5 h", "6.9 d"."""
    for unit, size in (("d", DAY_MS), ("h", HOUR_MS), ("min", _MINUTE_MS)):
        if span_ms >= size:
            return f"{round(span_ms / size, 1):g} {unit}"
    return f"{round(span_ms / 1000, 1):g} s"
