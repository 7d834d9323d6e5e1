"""Reading methods that tables and system tables share: as Arrow, as data frames, and as lazy scans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lsm_core.table.read_request import ReadRequest, RequestReader
from lsm_core.table.typed_errors import with_typed_errors

if TYPE_CHECKING:  # the libraries of frames are the caller's own: nothing here needs them before a method is called
    import duckdb
    import pandas as pd
    import polars as pl

    from lsm_core.format.schema import TableSchema
    from lsm_core.table.lazy_scan import TableScan


@with_typed_errors
class ReadableTable(ABC):
    """Base of tables and system tables with their reading methods: Arrow, data frames, and scans of query engines."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the table, for error messages."""

    @abstractmethod
    def _read_table(self, request: ReadRequest) -> pa.Table:
        """Return the requested rows as one Arrow table."""

    @abstractmethod
    def _read_stream(self, request: ReadRequest) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the Arrow schema and the batches of the requested rows.

        Errors in the arguments are raised by the call, not by the first batch.
        """

    @abstractmethod
    def _pin_version(self, version: Mapping[str, Any]) -> tuple[TableSchema, RequestReader]:
        """Return the schema of the selected version, and a function that reads this version.

        The function reads the same version after later commits, also if no version was selected (the newest now).

        Args:
            version: values of `snapshot_id`, `tag`, `timestamp_ms` and `watermark`, at most one of them not None.
        """

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
        """Return the merged rows of one version, by default the newest version, with the schema of this version.

        With options for incremental reads (`incremental-between` ...), the changed rows are returned without their row
        kinds; see :meth:`Table.incremental`.

        Args:
            columns: names of the columns to read, in this order; None for all.
            filter: condition on the rows: tuples, SQL text or an Arrow expression (engine.md).
            limit: largest number of rows; None for all.
            snapshot_id: id of the snapshot to read.
            tag: name of the tag to read.
            timestamp_ms: read the newest snapshot committed at or before this time (epoch ms).
            watermark: read the oldest snapshot that reached this watermark (epoch ms).
            dictionaries: return STRING columns as `dictionary<int32, string>`, which is quicker where texts repeat.

        Returns:
            The rows as an Arrow table.

        Raises:
            SnapshotNotFound: the version does not exist.
            ColumnNotFound: a column of ``columns`` or ``filter`` does not exist.
            InvalidFilter: the filter is not understood.
            InvalidOption: an argument or option cannot be used.
            CorruptFile: a file of the table is damaged.
            UnsupportedFeature: the table needs a feature that is not offered.
        """
        version = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
        return self._read_table(ReadRequest(columns, filter, limit, version, dictionaries))

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
        """Return the rows as a stream of batches in bounded memory; arguments as :meth:`to_arrow`."""
        version = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
        return self._read_stream(ReadRequest(columns, filter, limit, version, dictionaries))[1]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows of the newest version as an Arrow C stream, for libraries that read the PyCapsule interface.

        Args:
            requested_schema: PyCapsule of the schema that the caller wants, or None.

        Returns:
            PyCapsule of an ArrowArrayStream.
        """
        schema, batches = self._read_stream(ReadRequest(None, None, None, {}))
        return pa.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__(requested_schema)

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002
        **more: Any,
    ) -> pd.DataFrame:
        """Return the rows as a pandas frame; arguments and errors as for :meth:`to_arrow`."""
        frame: pd.DataFrame = self.to_arrow(columns, filter, **more).to_pandas()
        return frame

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002
        **more: Any,
    ) -> pl.DataFrame:
        """Return the rows as a Polars frame; arguments and errors as for :meth:`to_arrow`. See also :meth:`scan`."""
        import polars as pl

        return pl.DataFrame(self.to_arrow(columns, filter, **more))

    def to_duckdb(
        self,
        name: str | None = None,
        connection: duckdb.DuckDBPyConnection | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp_ms: int | None = None,
        watermark: int | None = None,
    ) -> duckdb.DuckDBPyConnection:
        """Register the rows as a view of DuckDB, which reads only the columns and rows that a query needs.

        Args:
            name: name of the view; None for the table's own name without its database.
            connection: DuckDB connection in which the view is registered; None for a new in-memory database.
            snapshot_id: id of the snapshot to read, or None.
            tag: name of the tag to read, or None.
            timestamp_ms: read the newest snapshot committed until this time (epoch ms), or None.
            watermark: read the first snapshot with at least this watermark (epoch ms), or None.

        Returns:
            The connection that has the view.
        """
        scan = self.scan(snapshot_id=snapshot_id, tag=tag, timestamp_ms=timestamp_ms, watermark=watermark)
        return scan.to_duckdb(name or self.name.partition(".")[2] or self.name, connection)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  (the public name)
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        timestamp_ms: int | None = None,
        watermark: int | None = None,
    ) -> TableScan:
        """Return a lazy scan of one version for Polars, DuckDB and all libraries that read pyarrow datasets.

        This call fixes the version, so all queries over the scan read the same rows. No data is read before a query
        runs.

        Args:
            columns: names of the columns that the scan offers; None for all.
            filter: condition on the rows, combined by AND with the conditions that a query pushes down.
            snapshot_id: id of the snapshot to read, or None.
            tag: name of the tag to read, or None.
            timestamp_ms: read the newest snapshot committed until this time (epoch ms), or None.
            watermark: read the first snapshot with at least this watermark (epoch ms), or None.

        Returns:
            A pyarrow dataset that pushes columns and filters down into the table's own read.

        Raises:
            SnapshotNotFound: the version does not exist.
            ColumnNotFound: a column of ``columns`` or ``filter`` does not exist.
            InvalidFilter: the filter is not understood.
        """
        from lsm_core.read import parse_filter
        from lsm_core.table.lazy_scan import TableScan

        version = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
        table, reader = self._pin_version(version)
        predicate = parse_filter(filter, table, self.name)
        offered = reader(ReadRequest(columns, None, 0, {}))[0]
        return TableScan(self.name, reader, offered, None if predicate is None else predicate.expression)
