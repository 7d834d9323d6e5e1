"""Content of a stream of rows, independent of order and layout.

Counts and digests of its live and of its deleted rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lsm_core.format.kv_layout import SEQUENCE_NUMBER, SEQUENCE_NUMBER_ID, VALUE_KIND, VALUE_KIND_ID
from lsm_core.format.schema import TableSchema
from lsm_core.merge import Digest
from lsm_core.merge.digest import digest
from lsm_core.types import is_retract

_NOTHING = Digest(0, 0)


@dataclass(frozen=True)
class Content:
    """Digests over all table columns, without levels and file layout.

    Sequence numbers are included only where they are exact.

    Attributes:
        live: digest of the live rows.
        dead: digest of the deleted rows.
    """

    live: Digest = _NOTHING
    dead: Digest = _NOTHING

    @property
    def rows(self) -> int:
        """Number of rows of both kinds."""
        return self.live.rows + self.dead.rows

    def plus(self, other: Content) -> Content:
        """Return the content of both streams together."""
        return Content(self.live.add(other.live), self.dead.add(other.dead))

    def text(self) -> str:
        """Return the hex digest of the live rows, as reports show it."""
        return f"{self.live.value:032x}"


def counts_of(batch: pa.RecordBatch) -> Content:
    """Return the number of rows of each kind, without digests.

    A stronger proof covers such rows (`compact.streams`).
    """
    if VALUE_KIND not in batch.schema.names:
        return Content(live=Digest(batch.num_rows, 0))
    delete_count = int(is_retract(batch.column(VALUE_KIND)).sum())
    return Content(Digest(batch.num_rows - delete_count, 0), Digest(delete_count, 0))


def content_of(batch: pa.RecordBatch, schema: TableSchema, *, exact: bool = False) -> Content:
    """Return the content of one batch.

    Args:
        batch: rows with all table columns; without `_VALUE_KIND` every row is live.
        schema: schema of the table.
        exact: whether sequence numbers and kinds are included.
    """
    columns = [(field.id, field.name) for field in schema.fields]
    if exact:
        columns += [(SEQUENCE_NUMBER_ID, SEQUENCE_NUMBER), (VALUE_KIND_ID, VALUE_KIND)]
    if VALUE_KIND not in batch.schema.names:
        return Content(live=digest(batch, columns))
    is_delete = is_retract(batch.column(VALUE_KIND))
    if not is_delete.any():
        return Content(live=digest(batch, columns))
    return Content(
        digest(batch.filter(pa.array(~is_delete)), columns), digest(batch.filter(pa.array(is_delete)), columns)
    )
