"""Rows whose record-level lifetime is over at a compaction's clock, told in Spark SQL from the specification (features.md 4.4)."""

from __future__ import annotations

from typing import Final

from lsm_core.errors import UnsupportedFeature
from lsm_core.metadata.store import TableStore
from lsm_core.spark.jobs.columns import quoted
from lsm_core.types import TypeRoot

NEVER: Final = "false"
_MILLISECONDS_FROM: Final = 10**12
_EPOCH: Final = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


def over_at(store: TableStore, now_ms: int | None) -> str:
    """A condition that is true for rows which are over at epoch ms ``now_ms`` and never null; `NEVER` without a clock or a lifetime.

    Raises UnsupportedFeature for a time column whose values Spark cuts.
    """
    lifetime = store.options.get("record-level.expire-time")
    if lifetime is None or now_ms is None:
        return NEVER
    field = store.schema.field(str(store.options.get("record-level.time-field")))
    column, root = quoted(field.name), field.type.root
    if root is TypeRoot.INT:
        seconds = f"CAST({column} AS BIGINT)"
    elif root is TypeRoot.BIGINT:
        seconds = f"IF({column} >= {_MILLISECONDS_FROM}, {column} DIV 1000, {column})"
    elif (field.type.precision or 0) > 6:
        raise UnsupportedFeature(f"comparing rows that expire by a column of type {field.type} on Spark", store.name)
    elif root is TypeRoot.TIMESTAMP:
        seconds = f"floor(timestampdiff(MICROSECOND, {_EPOCH}, {column}) / 1000000)"
    else:
        seconds = f"floor(unix_micros({column}) / 1000000)"
    return f"coalesce({seconds} + {int(lifetime) // 1000} < {now_ms // 1000}, false)"


__all__ = ["NEVER", "over_at"]
