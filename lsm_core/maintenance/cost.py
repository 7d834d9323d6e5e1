"""What compactions cost in seconds: one forecast for plans, decisions and simulations, and how far a table's own runs were from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from lsm_core.errors import DredgeError
from lsm_core.maintenance.record import DONE, LedgerEntry, iterate_ledger
from lsm_core.metadata.store import TableStore

# File bytes that one core decodes, merges and encodes a second (kernels.md, zstd level 1).
_BYTES_PER_SECOND: Final = 25_000_000
_SECONDS_PER_TASK: Final = 0.1
_RUNS: Final = 20
"""How many of a table's newest ledger entries calibrate the forecast: hardware, runners and data change."""
_COMPACT: Final = "compact"


def compaction_seconds(size: int, tasks: int) -> float:
    """Return the seconds that one core is expected to take for ``tasks`` buckets of together ``size`` file bytes, before any calibration."""
    return size / _BYTES_PER_SECOND + _SECONDS_PER_TASK * tasks


@dataclass(frozen=True)
class Calibration:
    """How a table's own compactions compare with what was forecast for them.

    ``runs``: how many were compared (0: none, and the forecast stands as it is). ``seconds``: the median of measured over forecast seconds;
    ``bytes_out``: the median of file bytes written over those read, for which a plan forecasts 1.
    """

    runs: int = 0
    seconds: float = 1.0
    bytes_out: float = 1.0

    def predicted_seconds(self, forecast: float) -> float:
        """Return the seconds to expect where a plan forecasts ``forecast``."""
        return forecast * self.seconds

    def text(self) -> str:
        """One sentence for people."""
        if not self.runs:
            return "no run of the ledger to learn from: the forecast for one core stands as it is"
        noun = "run" if self.runs == 1 else "runs"
        return f"{self.runs} {noun} took {self.seconds:.2f} times what was forecast for one core, and wrote {self.bytes_out:.0%} of what they read"


def calibrate(entries: Iterable[LedgerEntry]) -> Calibration:
    """Return the medians over the compactions among ``entries`` that were done, rewrote files, and tell forecast and measurement."""
    seconds: list[float] = []
    sizes: list[float] = []
    for entry in entries:
        read, written = entry.report.get("bytes_in"), entry.report.get("bytes_out")
        if entry.action != _COMPACT or entry.outcome != DONE or not _is_amount(read) or not read:
            continue  # what was upgraded alone took no time worth comparing
        if entry.predicted_seconds and entry.seconds is not None:
            seconds.append(entry.seconds / entry.predicted_seconds)
            sizes.append(written / read if _is_amount(written) else 1.0)
    return Calibration(len(seconds), median(seconds), median(sizes)) if seconds else Calibration()


def _is_amount(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def calibration_of(store: TableStore, but_for: str = "") -> Calibration:
    """Return the calibration from the newest 20 entries of the table's ledger; entries, and a ledger, that cannot be read teach nothing.

    ``but_for``: the hash of a plan whose own runs are left out, where its forecast is to be judged.
    """
    entries = iterate_ledger(store, _RUNS, heads=True)
    try:
        return calibrate(entry for entry in entries if not but_for or entry.plan_hash != but_for)
    except (DredgeError, OSError):  # without a ledger the forecast stands as it is
        return Calibration()
