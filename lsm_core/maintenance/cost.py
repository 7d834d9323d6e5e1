"""Cost of compactions in seconds: one forecast for plans, decisions and simulations, calibrated by a table's runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from lsm_core.errors import DredgeError
from lsm_core.maintenance.ledger import DONE, LedgerEntry, iterate_ledger
from lsm_core.metadata.store import TableStore

# File bytes that one core decodes, merges and encodes a second (kernels.md, zstd level 1).
_BYTES_PER_SECOND: Final = 25_000_000
_SECONDS_PER_TASK: Final = 0.1
_RUNS: Final = 20
"""Number of newest ledger entries that calibrate the forecast; few, as hardware, runners and data change."""
_COMPACT: Final = "compact"


def compaction_seconds(size: int, tasks: int) -> float:
    """Return the forecast time of one core in seconds, before any calibration.

    Args:
        size: file bytes to read.
        tasks: number of buckets.
    """
    return size / _BYTES_PER_SECOND + _SECONDS_PER_TASK * tasks


@dataclass(frozen=True)
class Calibration:
    """Comparison of a table's own compactions with their forecasts.

    Attributes:
        runs: number of compared runs; with 0 the forecast is used unchanged.
        seconds: median of measured over forecast seconds.
        bytes_out: median of file bytes written over those read; a plan forecasts 1.
    """

    runs: int = 0
    seconds: float = 1.0
    bytes_out: float = 1.0

    def predicted_seconds(self, forecast: float) -> float:
        """Return the calibrated seconds for a plan that forecasts ``forecast``."""
        return forecast * self.seconds

    def text(self) -> str:
        """Return a sentence for people."""
        if not self.runs:
            return "the ledger has no run to calibrate with: the forecast for one core is used unchanged"
        noun = "run" if self.runs == 1 else "runs"
        return (
            f"{self.runs} {noun} took {self.seconds:.2f} times the forecast for one core, "
            f"and wrote {self.bytes_out:.0%} of the bytes read"
        )


def calibrate(entries: Iterable[LedgerEntry]) -> Calibration:
    """Compute the medians over the successful compactions that rewrote files and have forecast and measurement.

    Args:
        entries: ledger entries; those of other actions are skipped.
    """
    seconds: list[float] = []
    sizes: list[float] = []
    for entry in entries:
        read, written = entry.report.get("bytes_in"), entry.report.get("bytes_out")
        if entry.action != _COMPACT or entry.outcome != DONE or not _is_amount(read) or not read:
            continue  # upgrades alone take too little time to compare
        if entry.predicted_seconds and entry.seconds is not None:
            seconds.append(entry.seconds / entry.predicted_seconds)
            sizes.append(written / read if _is_amount(written) else 1.0)
    return Calibration(len(seconds), median(seconds), median(sizes)) if seconds else Calibration()


def _is_amount(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def calibration_of(store: TableStore, but_for: str = "") -> Calibration:
    """Return the calibration from the newest 20 entries of the table's ledger; unreadable entries are skipped.

    Args:
        store: the table.
        but_for: hash of a plan whose own runs are left out, so that its forecast can be judged.
    """
    entries = iterate_ledger(store, _RUNS, heads=True)
    try:
        return calibrate(entry for entry in entries if not but_for or entry.plan_hash != but_for)
    except (DredgeError, OSError):  # without a ledger the forecast is used unchanged
        return Calibration()
