"""Lazy scans: a table as a pyarrow dataset, into which Polars and DuckDB push the columns and filters of a query."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from lsm_core.errors import UnsupportedFeature
from lsm_core.table.read_request import ReadRequest, RequestReader
from lsm_core.table.typed_errors import with_typed_errors

if TYPE_CHECKING:
    import duckdb
    import polars as pl

_INEXACT: Final = re.compile(r"\bnan\b|\bis_in\(", re.IGNORECASE)
"""Float conditions with another result in Arrow than in Polars: NaN is unordered in Arrow, and 0.0 is not in [-0.0]."""


@with_typed_errors
class TableScan(pads.FileSystemDataset):
    """One version of a table, read when a query runs.

    Libraries that call the methods of a pyarrow dataset can read it: ``polars.scan_pyarrow_dataset(scan)``, or a DuckDB
    query that names the Python variable. Each run of a query reads the same version; the query fails once this version
    has expired. Arrow operations that read in C++ without the methods of this class (`join`, `sort_by`, a dataset of
    several scans) are refused; call these operations on the result of :meth:`to_table`.

    Attributes:
        name: name of the table.
        schema: Arrow schema of the rows that the scan offers.
    """

    def __init__(
        self,
        name: str,
        reader: RequestReader,
        schema: pa.Schema,
        filter: pc.Expression | None = None,  # noqa: A002
    ) -> None:
        """Prepare a scan.

        Args:
            name: name of the table.
            reader: function that reads the version.
            schema: Arrow schema of the columns that the scan offers.
            filter: expression that is true for all rows of the scan, or None.
        """
        # Without a file Arrow's part of the dataset is a null pointer, and join, sort_by and others end the process.
        fragment = pads.IpcFileFormat().make_fragment(_NoFile(name))
        super().__init__([fragment], schema, pads.IpcFileFormat(), pafs.LocalFileSystem())
        self.name, self._read, self._schema, self._filter = name, reader, schema, filter

    def __reduce__(self) -> Any:
        raise TypeError(f"the scan of {self.name} cannot be pickled; open the table in the other process")

    def __repr__(self) -> str:
        return f"TableScan({self.name!r})"

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows that the scan offers."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  (pyarrow's own name)
        **_: Any,
    ) -> pads.Scanner:
        """Return a scanner that can be read once.

        Args:
            columns: names of the columns to read, None for all, or expressions by the names of their results.
            filter: Arrow expression that is true for the rows to read.

        Returns:
            A pyarrow scanner; options for the reading of files (batch sizes, fragments) have no effect.
        """
        by_name = columns is None or not isinstance(columns, Mapping)
        reader = self._reader(columns if by_name else None, filter)  # type: ignore[arg-type]
        return pads.Scanner.from_batches(reader, **({} if by_name else {"columns": columns}))

    def filter(self, expression: pc.Expression) -> TableScan:
        """Return a scan of the rows for which ``expression`` is true."""
        return TableScan(self.name, self._read, self._schema, _combine(self._filter, expression))

    def to_reader(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream; ``columns`` names the columns, ``filter`` is an Arrow expression."""
        return self._reader(columns, filter)

    def to_batches(self, columns: Any = None, filter: Any = None, **_: Any) -> Iterator[pa.RecordBatch]:  # noqa: A002
        """Return the rows as record batches; ``columns`` and ``filter`` as in :meth:`scanner`."""
        return iter(self.scanner(columns, filter).to_reader())

    def to_table(self, columns: Any = None, filter: Any = None, **_: Any) -> pa.Table:  # noqa: A002
        """Return the rows of :meth:`scanner` as one table."""
        return self.scanner(columns, filter).to_table()

    def head(self, num_rows: int, columns: Any = None, filter: Any = None, **_: Any) -> pa.Table:  # noqa: A002
        """Return the first ``num_rows`` rows of :meth:`scanner`."""
        return self.scanner(columns, filter).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:  # noqa: A002
        """Return the number of rows for which ``filter`` is true; without a filter, no column is read."""
        return sum(batch.num_rows for batch in self._reader((), filter))

    def to_polars(self) -> pl.LazyFrame:
        """Return a Polars lazy frame; each ``collect`` reads only the columns and rows that its query needs.

        Prefer this method to ``polars.scan_pyarrow_dataset(scan)``. That function drops NaN in conditions, but Polars
        treats NaN as the largest number.
        """
        import polars as pl
        from polars.io.plugins import register_io_source

        def read(
            columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
        ) -> Iterator[pl.DataFrame]:
            pushed = None if predicate is None or n_rows is not None else _pushed(self._schema, predicate)
            for batch in self._reader(columns, pushed):
                frame = pl.DataFrame(batch)
                if n_rows is not None:
                    frame = frame.head(n_rows)
                    n_rows -= frame.height
                yield frame if predicate is None else frame.filter(predicate)
                if n_rows == 0:
                    return

        return register_io_source(read, schema=dict(pl.DataFrame(self._schema.empty_table()).schema), is_pure=True)

    def to_duckdb(self, name: str, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyConnection:
        """Register the scan as a view of DuckDB.

        Args:
            name: name of the view.
            connection: DuckDB connection in which the view is registered; None for a new in-memory database.

        Returns:
            The connection that has the view.
        """
        import duckdb

        target = duckdb.connect() if connection is None else connection
        return target.register(name, self)

    def _reader(self, columns: Sequence[str] | None, pushed: pc.Expression | None) -> pa.RecordBatchReader:
        names = self._schema.names if columns is None else list(columns)
        schema, batches = self._read(ReadRequest(names, _combine(self._filter, pushed), None, {}))
        return pa.RecordBatchReader.from_batches(schema, batches)


def _combine(first: pc.Expression | None, second: pc.Expression | None) -> pc.Expression | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second


class _NoFile(io.RawIOBase):
    """Stand-in for the file that Arrow's own part of a :class:`TableScan` needs; reading it is an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, *_: Any) -> int:
        raise UnsupportedFeature(
            "reading a scan by Arrow's own code: take scan.to_table() or scan.to_reader() there", self._name
        )


class _Capture(pads.Dataset):
    """Dataset without rows that records the Arrow expression which Polars makes of a condition."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.filter: pc.Expression | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def to_batches(
        self,
        columns: list[str] | None = None,
        filter: Any = None,  # noqa: A002
        **_: Any,
    ) -> Iterator[pa.RecordBatch]:
        self.filter = filter
        names = self._schema.names if columns is None else columns
        return iter(pa.schema([self._schema.field(name) for name in names]).empty_table().to_batches())


def _pushed(schema: pa.Schema, predicate: pl.Expr) -> pc.Expression | None:
    """Return an Arrow expression that is true for all rows that may match a Polars condition; None if none exists.

    In Polars, NaN equals NaN and is greater than all numbers; in Arrow, both comparisons are false. So rows with NaN in
    a column of the condition are read too, and Polars filters these rows.
    """
    import polars as pl

    capture = _Capture(schema)
    pl.scan_pyarrow_dataset(capture).filter(predicate).collect()
    pushed = capture.filter
    if pushed is None:
        return None
    floating = [name for name in predicate.meta.root_names() if pa.types.is_floating(schema.field(name).type)]
    if floating and _INEXACT.search(str(pushed)):
        return None
    for name in floating:
        pushed |= pc.is_nan(pc.field(name))
    try:
        schema.empty_table().filter(pushed)
    except pa.ArrowException:  # Polars writes `&` of whole numbers as that of conditions
        return None
    return pushed
