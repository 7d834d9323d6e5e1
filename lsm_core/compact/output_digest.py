"""Digests of the rows that the writer of a rewrite receives, so that V1 can compare the files with them afterwards.

Rows are digested by the writer's row groups: all of them, or one in eight with `dredge.verification` = sampled.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lsm_core.compact.content import Content, content_of, counts_of
from lsm_core.compact.streams import Streams, keeps_every_bit
from lsm_core.compact.task import COUNTS, FULL, SAMPLED, BucketTask
from lsm_core.files.formats import format_of
from lsm_core.metadata.store import TableStore

SAMPLED_GROUPS: Final = 8
"""With `dredge.verification` = sampled, one row group in this many is re-read."""
_MODULUS: Final = 1 << 128


@dataclass(frozen=True)
class RowGroupDigest:
    """Digest of one row group.

    Attributes:
        rows: number of rows.
        streams: hashes for a comparison of values to the bit and in order; None if V1 does not re-read the group.
        content: digest for types or formats that do not keep every bit; None for ``streams``.
    """

    rows: int
    streams: Streams | None = None
    content: Content | None = None

    @property
    def is_read_again(self) -> bool:
        """Whether V1 re-reads this row group."""
        return self.streams is not None or self.content is not None


class OutputDigest:
    """Digests of the rows of one writer.

    Call :meth:`add` before and :meth:`written` after writing, :meth:`finish` at the end. ``content`` counts all rows of
    either kind; it has digests too where :attr:`groups` is None.
    """

    def __init__(self, store: TableStore, task: BucketTask, level: int) -> None:
        self.content = Content()
        self.groups: list[RowGroupDigest] | None = None
        """Row groups in writing order; None where the format does not store them (ORC, Avro) or none is re-read."""
        self._schema = store.schema
        self._setting = task.verification
        self._exact = all(keeps_every_bit(field.type) for field in store.schema.arrow_schema)
        if self._setting != COUNTS and format_of(store.options, level) == "parquet":
            self.groups = []
        # A repeated task re-reads the same groups; another bucket or snapshot selects other ones.
        place = zlib.crc32(b"%b/%d/%d" % (task.partition, task.bucket, task.base_snapshot or 0))
        self._first = place % SAMPLED_GROUPS
        self._pending: list[pa.RecordBatch] = []
        self._unless_any: list[pa.RecordBatch] = []
        """Rows of the newest row group, as long as no group was selected."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows that will be written next."""
        if self.groups is None and self._setting != COUNTS:
            self.content = self.content.plus(content_of(batch, self._schema))
            return
        self.content = self.content.plus(counts_of(batch))
        if self.groups is not None:
            self._pending.append(batch)

    def written(self, group_rows: Sequence[int]) -> None:
        """Digest the rows of row groups that were written meanwhile.

        ``group_rows``: rows of all row groups so far.
        """
        if self.groups is None:
            return
        for rows in group_rows[len(self.groups) :]:
            batches = self._take(rows)
            if self._setting == FULL or len(self.groups) % SAMPLED_GROUPS == self._first:
                self.groups.append(self._digest_group(rows, batches))
                self._unless_any = []
            else:
                self._unless_any = [] if any(group.is_read_again for group in self.groups) else batches
                self.groups.append(RowGroupDigest(rows))

    def finish(self, group_rows: Sequence[int]) -> None:
        """Digest the last rows; if no row group was selected, select the last one, so that at least one is re-read."""
        self.written(group_rows)
        if self.groups and self._unless_any:
            self.groups[-1] = self._digest_group(self.groups[-1].rows, self._unless_any)
        self._pending, self._unless_any = [], []

    @property
    def digest(self) -> int | None:
        """128-bit digest of all rows; None where only a part of them was digested."""
        if self._setting in (COUNTS, SAMPLED):
            return None
        if self.groups is None:
            return self.content.live.value
        values = [group.streams.value for group in self.groups if group.streams is not None]
        values += [group.content.live.value for group in self.groups if group.content is not None]
        return sum(values) % _MODULUS

    def _take(self, rows: int) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        while rows and self._pending:
            batch = self._pending[0]
            batches.append(batch.slice(0, rows))
            if batch.num_rows > rows:
                self._pending[0] = batch.slice(rows)
            else:
                self._pending.pop(0)
            rows -= batches[-1].num_rows
        return batches

    def _digest_group(self, rows: int, batches: Sequence[pa.RecordBatch]) -> RowGroupDigest:
        if self._exact:
            streams = Streams(self._schema.field_names)
            for batch in batches:
                streams.add(batch)
            return RowGroupDigest(rows, streams=streams)
        content = Content()
        for batch in batches:
            content = content.plus(content_of(batch, self._schema))
        return RowGroupDigest(rows, content=content)
