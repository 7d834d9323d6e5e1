"""Clock of the replay: the commits that have arrived at each tick, and the time then."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from dredge.assets.demo.source import LAST_BATCH

_START: Final = datetime.datetime(2013, 10, 1, 6, tzinfo=datetime.UTC)
_DAY_MS: Final = 86_400_000
BACKFILL: Final = -1


@dataclass(frozen=True)
class Tick:
    """Point at which the replay waits until the sensors have ticked and the runs that they requested have finished.

    Attributes:
        name: name of the tick, like ``T0``.
        number: position among the ticks, from 0.
        last_batch: number of the last batch that arrives before the tick.
    """

    name: str
    number: int
    last_batch: int

    @property
    def clock_ms(self) -> int:
        """Replay time in epoch ms."""
        return batch_clock_ms(self.last_batch)


TICKS: Final = (Tick("T0", 0, BACKFILL), Tick("T1", 1, 4), Tick("T2", 2, 9), Tick("T3", 3, LAST_BATCH))
RETENTION_MS: Final = int(datetime.datetime(2014, 1, 5, 8, tzinfo=datetime.UTC).timestamp() * 1000)
"""T4: time of the second retention run, after the grace period of the first."""


def batch_clock_ms(batch: int) -> int:
    """Return the replay time (epoch ms) when a batch has arrived; the backfill is batch -1."""
    return int(_START.timestamp() * 1000) + 6 * (batch + 1) * _DAY_MS


def batch_of_commit(table: str, commit: int) -> int:
    """Return the number of a commit's six-day batch; -1 for the backfill, which has nine commits (one in `planes`)."""
    if table == "planes":
        return (BACKFILL, 4, 9, LAST_BATCH)[commit]
    if commit < 9:
        return BACKFILL
    return (commit - 9) // (3 if table == "flight_status" else 1)


def commits_at(table: str, events: pa.Table, tick: Tick) -> list[int]:
    """Return the numbers of a table's commits that arrive between the previous tick and this one, in order.

    Args:
        table: name of the table.
        events: all events of the table, with column `_commit`.
        tick: the tick.
    """
    before = BACKFILL - 1 if tick.number == 0 else TICKS[tick.number - 1].last_batch
    numbers = np.unique(events["_commit"].to_numpy()).tolist()
    return [n for n in numbers if before < batch_of_commit(table, n) <= tick.last_batch]
