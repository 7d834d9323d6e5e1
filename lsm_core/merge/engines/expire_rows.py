"""Record-level expiry: expired rows are left out before they are merged.

Only compactions drop expired rows; a row is expired if it is so at the time of the compaction's plan. If the newest
version of a key is expired and an older version with a later time is not, the older version becomes the result.

Source: ``RecordLevelExpire``.
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
from lsm_core.merge.keys import (
    Mask,
    numbers,
)
from lsm_core.options import TableOptions
from lsm_core.types import TypeRoot

_TIME: Final = "record-level.expire-time"
_FIELD: Final = "record-level.time-field"
_MILLISECONDS_FROM: Final = 10**12
"""Smallest BIGINT value that is read as milliseconds since the epoch; smaller values are seconds."""
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_ROOTS: Final = (TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


@dataclass(frozen=True)
class RowExpiry:
    """Rule by which rows expire.

    Attributes:
        field: name of the time column.
        after: seconds from the time in ``field`` until a row expires.
    """

    field: str
    after: int

    @staticmethod
    def of(schema: TableSchema, options: Mapping[str, str], table: str = "") -> RowExpiry | None:
        """Return the expiry that the table's options set, or None without `record-level.expire-time`.

        Raises:
            InvalidOption: the time field is missing or of another type.
        """
        table_options = TableOptions(options, table, stored=True)
        duration = table_options.get(_TIME)
        if duration is None:
            return None
        name = table_options.get(_FIELD)
        if not name:
            raise InvalidOption(_FIELD, "", f"a column, as {_TIME} is set", table)
        if not schema.has_field(name):
            raise InvalidOption(_FIELD, name, f"a column: {', '.join(schema.field_names)}", table)
        if schema.field(name).type.root not in _ROOTS:
            accepted = "a column of type INT, BIGINT, TIMESTAMP or TIMESTAMP_LTZ"
            raise InvalidOption(_FIELD, f"{name} {schema.field(name).type}", accepted, table)
        return RowExpiry(str(name), int(duration) // 1000)

    def expired(self, times: pa.Array, now_ms: int) -> Mask:
        """Return a mask of the rows that are expired at a time.

        Args:
            times: values of the time column; null never expires.
            now_ms: the time (epoch ms).
        """
        seconds = numbers(times)  # since the epoch, rounded down
        if pa.types.is_timestamp(times.type):
            seconds = seconds // _PER_SECOND[times.type.unit]
        elif pa.types.is_int64(times.type):
            seconds = np.where(seconds >= _MILLISECONDS_FROM, seconds // 1000, seconds)
        is_expired = seconds + self.after < now_ms // 1000
        valid = valid_mask(times)
        return np.asarray(is_expired if valid is None else is_expired & valid, np.bool_)

    def living(self, now_ms: int) -> Living:
        """Return a function that removes the expired rows of a batch, whether they are adds or deletes.

        Args:
            now_ms: time of the check (epoch ms).
        """

        def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
            expired = self.expired(batch.column(self.field), now_ms)
            return batch.filter(pa.array(~expired)) if expired.any() else batch

        return keep


Living = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Returns the rows of a batch that are not expired; the batch has the table's columns."""
