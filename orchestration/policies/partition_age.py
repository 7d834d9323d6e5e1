"""How old a partition is: by the time that its values tell, else by its newest file."""

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
    texts = [str(value) if isinstance(value, _TOLD_BY) else None for value in values.values()]
    pattern, formatter = options.get("partition.timestamp-pattern"), options.get("partition.timestamp-formatter")
    if texts:
        try:
            nanos = PartitionTimeExtractor(tuple(values), pattern, formatter, options.table).extract(texts)
        except (NoTime, InvalidOption):
            pass  # a form that Java would refuse makes no time of any partition
        else:
            return now_ms - nanos // _NANOS_PER_MS
    return now_ms - newest_file_ms if newest_file_ms else None


__all__ = ["partition_age_ms"]
