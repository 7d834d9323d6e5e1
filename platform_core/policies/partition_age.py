"""Age and expiry time of a partition, computed from the partition values or from the newest file."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

from lsm_core.errors import InvalidOption
from lsm_core.format.partitions import NoTime, PartitionTimeExtractor
from lsm_core.options import TableOptions

_NANOS_PER_MS: Final = 1_000_000
_TIME_TYPES: Final = (str, int, datetime.date)
"""Types of partition values that can express a time; `datetime.datetime` is included as a subclass of `date`."""


def partition_age_ms(values: Mapping[str, Any], options: TableOptions, newest_file_ms: int, now_ms: int) -> int | None:
    """Return the age of a partition in ms.

    The time comes from the partition values: `partition.timestamp-pattern` and `partition.timestamp-formatter` turn
    them into a time in UTC. Values of type DATE need no such option. If the values give no time, the time
    of the newest file is used.

    Args:
        values: partition values by column.
        options: options of the table.
        newest_file_ms: epoch ms of the newest file, or 0 if the partition has none.
        now_ms: current time, epoch ms.

    Returns:
        The age in ms, or None if neither values nor files give a time.
    """
    time_ms = _parse_time_ms(values, options)
    if time_ms is not None:
        return now_ms - time_ms
    return now_ms - newest_file_ms if newest_file_ms else None


def expires_ms(values: Mapping[str, Any], options: TableOptions, newest_file_ms: int, kept_ms: int) -> int | None:
    """Return the time at which a partition expires under the table's `partition.expiration-strategy`.

    Args:
        values: partition values by column.
        options: options of the table.
        newest_file_ms: epoch ms of the newest file, or 0 if the partition has none.
        kept_ms: time that a partition is kept, in ms.

    Returns:
        Epoch ms in UTC, or None if the partition never expires or the time of the partition is unknown.
    """
    strategy = options.get("partition.expiration-strategy")
    time_ms = _parse_time_ms(values, options) if strategy == "values-time" else None
    if strategy == "update-time":
        time_ms = newest_file_ms or None
    return None if time_ms is None else time_ms + kept_ms


def _parse_time_ms(values: Mapping[str, Any], options: TableOptions) -> int | None:
    """Return the time (epoch ms, UTC) that partition values express, or None if they express none."""
    texts = [str(value) if isinstance(value, _TIME_TYPES) else None for value in values.values()]
    pattern, formatter = options.get("partition.timestamp-pattern"), options.get("partition.timestamp-formatter")
    if not texts:
        return None
    try:
        return PartitionTimeExtractor(tuple(values), pattern, formatter, options.table).extract(texts) // _NANOS_PER_MS
    except (NoTime, InvalidOption):  # Java refuses this pattern too, so no partition of the table has a time
        return None
