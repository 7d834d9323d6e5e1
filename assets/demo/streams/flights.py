"""Scenario rules for every flight: its times, its batch, and the errors planted in its reports."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dredge.assets.demo.events import hash_numbers, select_percent
from dredge.assets.demo.source import LAST_BATCH, Days, Integers, batches, flights, local_dates

Flags = npt.NDArray[np.bool_]
MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
_BLIZZARD: Final = np.array(["2013-02-08", "2013-02-09"], dtype="datetime64[D]")


@dataclass(frozen=True, eq=False)
class Flights:
    """All flights in file order, one array element per flight.

    A missing delay is 0.

    Attributes:
        source: table of the flights as read from the file.
        rn: row number in the file, from 0.
        month: month of the flight, 1 to 12.
        dates: local date of the flight.
        batch: number of the date's six-day batch, from 0 at 2013-10-01; negative before October.
        scheduled: scheduled departure (epoch ms, UTC).
        departure: departure, or one hour after the scheduled departure if cancelled (epoch ms, UTC).
        arrival: arrival computed from departure delay and air time (epoch ms, UTC).
        dep_delay: departure delay (minutes).
        arr_delay: arrival delay (minutes).
        live: whether the flight is in October or later, so that its events arrive in batches after the backfill.
        cancelled: whether the flight has no departure time.
        landed: whether the flight has an arrival time.
        delay_known: whether the arrival delay is known.
    """

    source: pa.Table
    rn: Integers
    month: Integers
    dates: Days
    batch: Integers
    scheduled: Integers
    departure: Integers
    arrival: Integers
    dep_delay: Integers
    arr_delay: Integers
    live: Flags
    cancelled: Flags
    landed: Flags
    delay_known: Flags

    def column(self, name: str) -> pa.Array:
        """Return a column of the flights' source file."""
        return self.source[name].combine_chunks()

    def clipped(self, batch: Integers) -> Integers:
        """Return batch numbers, limited to the last batch."""
        return np.asarray(np.minimum(batch, LAST_BATCH))

    @property
    def diverted(self) -> Flags:
        """Mask of the flights that landed with an unknown delay."""
        return np.asarray(self.landed & ~self.delay_known)

    @property
    def blizzard(self) -> Flags:
        """Mask of the cancelled flights of the February blizzard, whose departure report arrives months later."""
        return np.asarray(self.cancelled & np.isin(self.dates, _BLIZZARD))

    @property
    def audited(self) -> Flags:
        """Mask of the September flights whose arrival an audit corrects."""
        return np.asarray((self.month == 9) & self.delay_known & select_percent(self.rn, 18, 1))

    @property
    def swapped(self) -> Flags:
        """Mask of the flights that were first filed with the aircraft of the carrier's previous flight."""
        return np.asarray(self.live & not_null(self.column("tailnum")) & select_percent(self.rn, 1, 6))

    @property
    def departure_fixed(self) -> Flags:
        """Mask of the flights whose first departure report is wrong."""
        return np.asarray(self.live & ~self.cancelled & select_percent(self.rn, 7, 4))

    @property
    def falsely_departed(self) -> Flags:
        """Mask of the cancelled flights that were reported as departed on time."""
        return np.asarray(self.live & self.cancelled & select_percent(self.rn, 10, 1, of=10))

    @property
    def arrival_fixed(self) -> Flags:
        """Mask of the flights whose first arrival report is wrong."""
        return np.asarray(self.live & self.delay_known & select_percent(self.rn, 16, 3))

    @property
    def departure_batch(self) -> Integers:
        """Number of the batch in which the first departure report of each flight arrives."""
        late = np.where(select_percent(self.rn, 5, 3), self.batch + 1 + hash_numbers(self.rn, 6) % 3, self.batch)
        after_fix = np.where(hash_numbers(self.rn, 9) % 3 == 0, self.batch + 1, self.batch)
        return self.clipped(
            np.where(self.departure_fixed, after_fix, np.where(self.falsely_departed, self.batch, late))
        )

    @property
    def arrival_batch(self) -> Integers:
        """Number of the batch in which the first arrival report of each flight arrives."""
        late = np.where(select_percent(self.rn, 13, 5), self.batch + 1 + hash_numbers(self.rn, 14) % 3, self.batch)
        return self.clipped(np.where(self.arrival_fixed, self.batch, late))

    @property
    def wrong_dep_delay(self) -> Integers:
        """Departure delay of a wrong first report."""
        return np.asarray(self.dep_delay + 1 + hash_numbers(self.rn, 8) % 15)

    @property
    def wrong_arr_delay(self) -> Integers:
        """Arrival delay of a wrong first report."""
        return np.asarray(self.arr_delay + 5 + hash_numbers(self.rn, 17) % 20)

    def tail_number_before(self) -> pa.Array:
        """Return the tail number of the same carrier's flight with the next lower row number."""
        carrier = self.column("carrier").dictionary_encode().indices.to_numpy()
        order = np.argsort(carrier, kind="stable")
        before = np.full(len(order), -1)
        same = carrier[order[1:]] == carrier[order[:-1]]
        before[order[1:][same]] = order[:-1][same]
        return self.column("tailnum").take(pa.array(before, mask=before < 0))


@functools.cache
def all_flights() -> Flights:
    """Return all flights, read and computed once per process."""
    source = flights()
    dates = local_dates(source)
    month = source["month"].to_numpy().astype(np.int64)
    cancelled = ~not_null(source["dep_time"].combine_chunks())
    hours = source["time_hour"].cast(pa.int64()).to_numpy() * 1000
    scheduled = hours + source["minute"].to_numpy().astype(np.int64) * MINUTE
    dep_delay, air_time = integer_column(source, "dep_delay"), integer_column(source, "air_time", missing=120)
    return Flights(
        source=source,
        rn=source["rn"].to_numpy(),
        month=month,
        dates=dates,
        batch=batches(dates),
        scheduled=scheduled,
        departure=scheduled + np.where(cancelled, 60, dep_delay) * MINUTE,
        arrival=scheduled + (dep_delay + air_time + 30) * MINUTE,
        dep_delay=dep_delay,
        arr_delay=integer_column(source, "arr_delay"),
        live=month >= 10,
        cancelled=cancelled,
        landed=not_null(source["arr_time"].combine_chunks()),
        delay_known=not_null(source["arr_delay"].combine_chunks()),
    )


def not_null(column: pa.Array) -> Flags:
    """Return a mask of the values that are not null."""
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False))


def integer_column(source: pa.Table, name: str, missing: int = 0) -> Integers:
    """Return the column `name` of a table as integers, with the value `missing` in place of nulls."""
    return np.asarray(pc.fill_null(source[name], missing).to_numpy().astype(np.int64))


def timestamps(values: Integers, selected: Flags | None = None) -> pa.Array:
    """Return TIMESTAMP(3) values of epoch ms; values are null where the mask ``selected`` is false."""
    return pa.array(values.astype(np.int64), mask=None if selected is None else ~selected).cast(pa.timestamp("ms"))


def choose(selected: Flags, value: pa.Array, other: pa.Array | None = None) -> pa.Array:
    """Return ``value`` where the mask ``selected`` is true, else ``other`` (default: null)."""
    return pc.if_else(pa.array(selected), value, pa.scalar(None, value.type) if other is None else other)
