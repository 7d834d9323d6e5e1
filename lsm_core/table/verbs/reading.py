"""Verbs that read a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import snapshots
from lsm_core.read import Split, lookup, plan_scan
from lsm_core.read.changes import Choice, StreamScan, answer_batches, answer_table, incremental_table, span_between
from lsm_core.table.verbs.answering import Answering, Asked
from lsm_core.table.verbs.on_table import OnTable


class Reading(Answering, OnTable):
    """Reads of the newest version or of another one."""

    def _table(self, asked: Asked) -> pa.Table:
        return answer_table(self.store, asked.columns, asked.filter, asked.limit, asked.named)

    def _batches(self, asked: Asked) -> Iterator[pa.RecordBatch]:
        return answer_batches(self.store, asked.columns, asked.filter, asked.limit, asked.named)

    def plan_scan(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  (the public name)
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        timestamp_ms: int | None = None,
        watermark: int | None = None,
    ) -> list[Split]:
        """The splits of a read, picklable, for engines; arguments as in :meth:`to_arrow`."""
        named = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
        return list(plan_scan(self.store, columns=columns, filter=filter, **named).splits)  # type: ignore[arg-type]

    def lookup(self, keys: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
        """The merged rows of some keys in the newest version, without reading the rest of the table.

        ``keys``: the primary key's columns (partition columns among them), in any order, repeated or not. One row per distinct
        key that is there, in the order in which the keys were first given; keys that are not there (or deleted) have none.
        ``columns`` (None: all) come in that order, behind the key columns that are not among them. Values are the same as
        Java compares them: NaN is NaN, -0.0 is not 0.0. Memory: the rows found, and about a row group of each file open.
        Raises UnsupportedFeature, ColumnNotFound, InvalidFilter for keys that do not fit, SnapshotNotFound, CorruptFile.
        """
        return lookup(self.store, keys, columns)

    def incremental(
        self,
        a: int | str,
        b: int | str,
        mode: str = "auto",
        *,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  (the public name)
    ) -> pa.Table:
        """What changed after ``a`` up to and with ``b`` (snapshot ids or names of tags): `_ROW_KIND`, then the columns.

        ``mode``: "delta", rows of data files of APPEND snapshots; "changelog", rows of changelog files of all but OVERWRITE
        snapshots (both as they were written, nothing merged); "diff", both versions compared key by key: `-D` with the old row for
        keys that are gone, the new row of changed ones; "auto", diff between tags, else changelog or, without changelog
        producer, delta. ``filter`` judges each changed row. Read with today's schema.
        Raises SnapshotNotFound, InvalidOption, ColumnNotFound, InvalidFilter, UnsupportedFeature, CorruptFile.
        """
        return incremental_table(Choice.of(self.store, columns, filter), span_between(self.store, a, b, mode))

    def new_stream_scan(
        self,
        consumer_id: str | None = None,
        from_snapshot: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  (the public name)
    ) -> StreamScan:
        """A stream of the table's changes, as a changelog producer, or else the writers, left them.

        It begins where the consumer stopped, else with the changes of ``from_snapshot`` (or the oldest snapshot kept), else as the
        options tell: `scan.mode` and its keys; by default with the newest version as a whole.
        Raises UnsupportedFeature, InvalidOption, ColumnNotFound, InvalidFilter, InvalidData.
        """
        return StreamScan(
            self.store, consumer_id=consumer_id, from_snapshot=from_snapshot, columns=columns, filter=filter
        )

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot, None when nothing was committed."""
        return snapshots.latest(self.store)

    def snapshots(self) -> list[Snapshot]:
        """All snapshots that can be read, oldest first."""
        return list(snapshots.iterate(self.store))
