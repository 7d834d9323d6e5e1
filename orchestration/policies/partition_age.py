"""How old a partition is, by the time that its values tell, else by its newest file; and when it expires."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

from lsm_core.errors import InvalidOption
from lsm_core.format.partition_time import NoTime, PartitionTimeExtractor
from lsm_core.options import TableOptions

_NANOS_PER_MS: Final = 1_000_000
_TOLD_BY: Final = (str, int, datetime.date)
"""Kinds of values whose texts can be times; a datetime is a date, too."""


def partition_age_ms(values: Mapping[str, Any], options: TableOptions, newest_file_ms: int, now_ms: int) -> int | None:
    """Return the age in ms of a partition of these values, which `partition.timestamp-pattern` and `-formatter` make a time of (UTC); dates tell theirs, too.

    Where they make none, its newest file tells (epoch ms; 0: none does). None: not known.
    """
    told = _told_ms(values, options)
    if told is not None:
        return now_ms - told
    return now_ms - newest_file_ms if newest_file_ms else None


def expires_ms(values: Mapping[str, Any], options: TableOptions, newest_file_ms: int, kept_ms: int) -> int | None:
    """Return when (epoch ms, UTC) a partition expires that is kept for ``kept_ms``, by the table's `partition.expiration-strategy`; None: it never does, or nobody here knows."""
    strategy = options.get("partition.expiration-strategy")
    told = _told_ms(values, options) if strategy == "values-time" else None
    if strategy == "update-time":
        told = newest_file_ms or None
    return None if told is None else told + kept_ms


def _told_ms(values: Mapping[str, Any], options: TableOptions) -> int | None:
    """The time that values tell (epoch ms, UTC), None where they tell none."""
    texts = [str(value) if isinstance(value, _TOLD_BY) else None for value in values.values()]
    pattern, formatter = options.get("partition.timestamp-pattern"), options.get("partition.timestamp-formatter")
    if not texts:
        return None
    try:
        return PartitionTimeExtractor(tuple(values), pattern, formatter, options.table).extract(texts) // _NANOS_PER_MS
    except (NoTime, InvalidOption):  # a form that Java would refuse makes no time of any partition
        return None


__all__ = ["expires_ms", "partition_age_ms"]
