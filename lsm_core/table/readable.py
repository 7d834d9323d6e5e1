"""How rows are asked for, of tables and of system tables alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa


class Question(NamedTuple):
    """What a caller asks for: ``version`` holds at most one of the four ways to name one (None: not given)."""

    columns: Sequence[str] | None
    filter: object
    limit: int | None
    version: Mapping[str, Any]
    dictionaries: bool


class Readable(ABC):
    """Rows that can be read as one Arrow table or as a stream of batches."""

    @abstractmethod
    def _answer_table(self, question: Question) -> pa.Table: ...

    @abstractmethod
    def _answer_batches(self, question: Question) -> Iterator[pa.RecordBatch]: ...

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
        dictionaries: bool = False,
    ) -> pa.Table:
        """Merged rows of the newest version, or of the one that arguments or options name, with the schema of its time.

        Options that ask for changes (`incremental-between` ...) are answered with those, without their kinds: see `incremental`.
        ``timestamp_ms``: the newest snapshot committed then or before (epoch ms); ``watermark``: the oldest that reached it.
        ``dictionaries``: STRING columns come as `dictionary<int32, string>`, batch by batch: quick where texts repeat.
        Raises SnapshotNotFound, ColumnNotFound, InvalidFilter, InvalidOption, CorruptFile, UnsupportedFeature.
        """
        version = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
        return self._answer_table(Question(columns, filter, limit, version, dictionaries))

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
        dictionaries: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """As :meth:`to_arrow`, streaming, in bounded memory; errors in the arguments are raised at once."""
        version = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
        return self._answer_batches(Question(columns, filter, limit, version, dictionaries))


__all__ = ["Question", "Readable"]
