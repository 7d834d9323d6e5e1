"""Casts between dates, times, timestamps and seconds.

As in Java, instants are milliseconds plus nanoseconds of a millisecond.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.types.arrow import to_arrow
from lsm_core.types.casts.cast_errors import refuse
from lsm_core.types.casts.numbers import filled_values, with_nulls_of
from lsm_core.types.data_type import DataType, TypeRoot

DAY_MILLIS: Final = 86_400_000
_PER_MILLI: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}

I64 = npt.NDArray[np.int64]


def _parts(array: pa.Array) -> tuple[I64, I64]:
    """Return (milliseconds since the epoch, rounded down; remaining nanoseconds) of each timestamp."""
    values = filled_values(array.cast(pa.timestamp(array.type.unit)).cast(pa.int64()))
    per = _PER_MILLI[array.type.unit]
    return np.floor_divide(values, per), np.mod(values, per) * (1_000_000 // per)


def instants(array: pa.Array, millis: I64, nanos: I64, target: DataType) -> pa.Array:
    """Return timestamps, truncated to the precision of ``target``.

    Args:
        array: the source values, for nulls and messages.
        millis: milliseconds since the epoch.
        nanos: nanoseconds of the millisecond.
        target: the timestamp type.

    Returns:
        The timestamps.

    Raises:
        CastError: Arrow cannot represent a value in nanoseconds.
    """
    precision = target.precision or 0
    if precision < 3:
        # Digits of milliseconds are truncated towards 1970, others downwards.
        millis = millis - np.fmod(millis, 10 ** (3 - precision))
    if precision > 3:
        # Java keeps a fraction that is smaller than 10^precision as a number, for example 999 ns with precision 6.
        of_second = np.mod(millis, 1000) * 1_000_000 + nanos
        nanos = np.where(of_second < 10**precision, nanos, nanos - nanos % 10 ** (9 - precision))
    return uncut(array, millis, nanos, target)


def uncut(array: pa.Array, millis: I64, nanos: I64, target: DataType) -> pa.Array:
    """Return timestamps with the full resolution of the Arrow unit of ``target``, not truncated to its precision.

    Args:
        array: the source values, for nulls and messages.
        millis: milliseconds since the epoch.
        nanos: nanoseconds of the millisecond.
        target: the timestamp type.

    Returns:
        The timestamps.

    Raises:
        CastError: Arrow cannot represent a value in nanoseconds; the message names the value.
    """
    kind = to_arrow(target)
    units_per_milli = _PER_MILLI[kind.unit]
    parts = nanos // (1_000_000 // units_per_milli)
    max_millis, max_parts = divmod(np.iinfo(np.int64).max, units_per_milli)
    refuse(
        array, (millis > max_millis) | ((millis == max_millis) & (parts > max_parts)) | (millis < -max_millis), target
    )
    values = millis if units_per_milli == 1 else millis * units_per_milli + parts
    return with_nulls_of(values, array, pa.int64()).cast(pa.timestamp(kind.unit)).cast(kind)


def between_timestamps(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Convert timestamps to another precision, or between TIMESTAMP and TIMESTAMP_LTZ.

    Raises:
        CastError: Arrow cannot represent a value in nanoseconds.
    """
    return instants(array, *_parts(array), target)


def from_seconds(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Convert whole seconds since the epoch to timestamps; like Java, without overflow checks.

    Raises:
        CastError: Arrow cannot represent a value in nanoseconds.
    """
    with np.errstate(over="ignore"):
        millis = filled_values(array.cast(pa.int64())) * np.int64(1000)
    return instants(array, millis, np.zeros_like(millis), target)


def to_seconds(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Convert timestamps to whole seconds since the epoch, truncated towards the epoch; INT wraps around."""
    millis = _parts(array)[0]
    seconds = (millis - np.fmod(millis, 1000)) // 1000
    return with_nulls_of(seconds.astype(np.int32 if target.root is TypeRoot.INT else np.int64), array, to_arrow(target))


def to_date(array: pa.Array, source: DataType, _target: DataType) -> pa.Array:
    """Convert timestamps to dates; as in Java, a TIMESTAMP before 1970 is rounded up to the next day, an LTZ down."""
    millis = _parts(array)[0]
    if source.root is TypeRoot.TIMESTAMP:
        days = (millis - np.fmod(millis, DAY_MILLIS)) // DAY_MILLIS
    else:
        days = np.floor_divide(millis, DAY_MILLIS)
    return with_nulls_of(days.astype(np.int32), array, pa.int32()).cast(pa.date32())


def to_time(array: pa.Array, _source: DataType, _target: DataType) -> pa.Array:
    """Convert timestamps to times of day (ms); before 1970, Java returns negative numbers, which are no valid times."""
    millis = np.mod(_parts(array)[0], DAY_MILLIS)
    return with_nulls_of(millis.astype(np.int32), array, pa.int32()).cast(pa.time32("ms"))


def from_date(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Convert dates to timestamps at midnight.

    Raises:
        CastError: Arrow cannot represent a value in nanoseconds.
    """
    millis = filled_values(array.cast(pa.int32())).astype(np.int64) * DAY_MILLIS
    return instants(array, millis, np.zeros_like(millis), target)


def from_time(array: pa.Array, _source: DataType, target: DataType) -> pa.Array:
    """Convert a time of day to a timestamp on 1970-01-01; the milliseconds are kept for every precision."""
    millis = filled_values(array.cast(pa.int32())).astype(np.int64)
    return uncut(array, millis, np.zeros_like(millis), target)
