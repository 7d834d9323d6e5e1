"""What a stream of rows says, independent of order and layout: counts and digests of its live and of its deleted rows."""

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
    """Digests over all table columns; levels and file layout are not in them, nor sequence numbers where they are not exact."""

    live: Digest = _NOTHING
    dead: Digest = _NOTHING

    @property
    def rows(self) -> int:
        """Rows of both kinds."""
        return self.live.rows + self.dead.rows

    def plus(self, other: Content) -> Content:
        """Both streams together."""
        return Content(self.live.add(other.live), self.dead.add(other.dead))

    def text(self) -> str:
        """Hex digest of the live rows, as reports show it."""
        return f"{self.live.value:032x}"


def counts_of(batch: pa.RecordBatch) -> Content:
    """How many rows of either kind; nothing is digested. For rows that a stronger proof covers (`compact.streams`)."""
    if VALUE_KIND not in batch.schema.names:
        return Content(live=Digest(batch.num_rows, 0))
    gone = int(is_retract(batch.column(VALUE_KIND)).sum())
    return Content(Digest(batch.num_rows - gone, 0), Digest(gone, 0))


def content_of(batch: pa.RecordBatch, schema: TableSchema, *, exact: bool = False) -> Content:
    """The content of one batch that holds all table columns; without `_VALUE_KIND` every row is live. ``exact``: sequence numbers and kinds are in it."""
    columns = [(field.id, field.name) for field in schema.fields]
    if exact:
        columns += [(SEQUENCE_NUMBER_ID, SEQUENCE_NUMBER), (VALUE_KIND_ID, VALUE_KIND)]
    if VALUE_KIND not in batch.schema.names:
        return Content(live=digest(batch, columns))
    gone = is_retract(batch.column(VALUE_KIND))
    if not gone.any():
        return Content(live=digest(batch, columns))
    return Content(digest(batch.filter(pa.array(~gone)), columns), digest(batch.filter(pa.array(gone)), columns))
