"""How rows are asked for, of tables and of system tables alike: columns, filter, limit and version."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Asked:
    """What a reader asked for; ``named``: the version, as `plan_scan` takes it."""

    columns: Sequence[str] | None
    filter: object
    limit: int | None
    named: Mapping[str, Any]


class Answering(ABC):
    """Rows as one table or as a stream."""

    @abstractmethod
    def _table(self, asked: Asked) -> pa.Table:
        """All rows at once."""

    @abstractmethod
    def _batches(self, asked: Asked) -> Iterator[pa.RecordBatch]:
        """The rows as a stream; what is wrong with ``asked`` is raised before it is read from."""

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  (the public name)
        limit: int | None = None,
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        timestamp_ms: int | None = None,
        watermark: int | None = None,
    ) -> pa.Table:
        """Merged rows of the newest version, or of the one that arguments or options name, with the schema of its time.

        Options that ask for changes (`incremental-between` ...) are answered with those, without their kinds: see `incremental`.
        ``timestamp_ms``: the newest snapshot committed then or before (epoch ms); ``watermark``: the oldest that reached it.
        Raises SnapshotNotFound, ColumnNotFound, InvalidFilter, InvalidOption, CorruptFile, UnsupportedFeature.
        """
        named = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
        return self._table(Asked(columns, filter, limit, named))

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  (the public name)
        limit: int | None = None,
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        timestamp_ms: int | None = None,
        watermark: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """As :meth:`to_arrow`, streaming, in bounded memory; errors in the arguments are raised at once."""
        named = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
        return self._batches(Asked(columns, filter, limit, named))


__all__ = ["Answering", "Asked"]
