"""Record-level expiry: rows whose time is over are left out before they are merged (Java `RecordLevelExpire`).

Only compactions do this, at their plan's clock. An older version of a key with a later time survives a newer one that expired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import valid_mask
from lsm_core.errors import InvalidOption
from lsm_core.format.schema import TableSchema
from lsm_core.merge.comparable import (
    Mask,
    numbers,
)
from lsm_core.options import TableOptions
from lsm_core.types import TypeRoot

_TIME: Final = "record-level.expire-time"
_FIELD: Final = "record-level.time-field"
_MILLISECONDS_FROM: Final = 10**12
"""A BIGINT from here on counts milliseconds, below it seconds."""
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_ROOTS: Final = (TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


@dataclass(frozen=True)
class RowExpiry:
    """Rows expire ``after`` seconds, counted from the time in column ``field``."""

    field: str
    after: int

    @staticmethod
    def of(schema: TableSchema, options: Mapping[str, str], table: str = "") -> RowExpiry | None:
        """The expiry that the table's options set; None without `record-level.expire-time`. Raises InvalidOption."""
        typed = TableOptions(options, table, stored=True)
        duration = typed.get(_TIME)
        if duration is None:
            return None
        name = typed.get(_FIELD)
        if not name:
            raise InvalidOption(_FIELD, "", f"a column, as {_TIME} is set", table)
        if not schema.has_field(name):
            raise InvalidOption(_FIELD, name, f"a column: {', '.join(schema.field_names)}", table)
        if schema.field(name).type.root not in _ROOTS:
            accepted = "a column of type INT, BIGINT, TIMESTAMP or TIMESTAMP_LTZ"
            raise InvalidOption(_FIELD, f"{name} {schema.field(name).type}", accepted, table)
        return RowExpiry(str(name), int(duration) // 1000)

    def expired(self, times: pa.Array, now_ms: int) -> Mask:
        """Which rows are over at epoch ms ``now_ms``, by their values of the time column; null never is."""
        seconds = numbers(times)  # since the epoch, fractions cut off towards the past
        if pa.types.is_timestamp(times.type):
            seconds = seconds // _PER_SECOND[times.type.unit]
        elif pa.types.is_int64(times.type):
            seconds = np.where(seconds >= _MILLISECONDS_FROM, seconds // 1000, seconds)
        over = seconds + self.after < now_ms // 1000
        valid = valid_mask(times)
        return np.asarray(over if valid is None else over & valid, np.bool_)

    def living(self, now_ms: int) -> Living:
        """A filter of batches that leaves out what is over at epoch ms ``now_ms``, deletes like all others."""

        def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
            over = self.expired(batch.column(self.field), now_ms)
            return batch.filter(pa.array(~over)) if over.any() else batch

        return keep


Living = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Takes a batch with the table's columns and gives back those of its rows that are not over."""
