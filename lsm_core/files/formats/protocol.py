"""Interface of open data files of any format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from lsm_core.format.stats import ColumnValues


class FileSource(Protocol):
    """Data file that is open for reading; nothing is decoded before :meth:`batches` is called.

    Attributes:
        path: path of the file.
        schema: stored names and Arrow types; the caller converts them to the table's names and types.
        rows: rows of the file.
        group_rows: rows of each row group (Parquet); an ORC or Avro file is one group.
        by_column: whether columns are stored separately, so that reading few of them reads fewer bytes.
    """

    path: str
    schema: pa.Schema
    rows: int
    group_rows: list[int]
    by_column: bool

    def batches(
        self,
        columns: Sequence[str],
        batch_rows: int,
        row_groups: Sequence[int] | None = None,
        *,
        dictionaries: Sequence[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of rows in file order, decoded on the calling thread only.

        Args:
            columns: stored names.
            batch_rows: largest number of rows of a batch.
            row_groups: row groups to read; None for all.
            dictionaries: columns, of those that :meth:`repeating_texts` returned, to return as Arrow dictionaries.

        Raises:
            CorruptFile: the file is damaged.
            UnsupportedFeature: a value that Arrow cannot represent.
        """
        ...

    def value_bytes(self, names: Iterable[str]) -> dict[str, float]:
        """Return the average decoded size of a value, by column.

        Returns:
            Bytes per value, for those columns of ``names`` whose size the file's metadata shows.
        """
        ...

    def repeating_texts(self, names: Iterable[str]) -> list[str]:
        """Return the text columns that are stored as useful dictionaries.

        Returns:
            The columns, all from ``names``; empty for formats without dictionaries.
        """
        ...

    def group_bounds(self, name: str) -> tuple[pa.Array, pa.Array] | None:
        """Return the smallest and largest value of a stored column in every row group.

        Returns:
            Two arrays with one value for each row group, or None if the footer does not contain usable bounds.
        """
        ...

    def close(self) -> None:
        """Release the file handle."""
        ...


class WholeFileSource:
    """Common part of readers of Avro and ORC files: the file is one row group, without metadata of its values."""

    def value_bytes(self, names: Iterable[str]) -> dict[str, float]:
        """Return an empty mapping: the file's metadata does not contain the size of decoded values."""
        del names
        return {}

    def repeating_texts(self, names: Iterable[str]) -> list[str]:
        """Return an empty list: this format returns no text as Arrow dictionaries."""
        del names
        return []

    def group_bounds(self, name: str) -> tuple[pa.Array, pa.Array] | None:
        """Return None: the file's metadata contains no bounds."""
        del name
        return None


class FileSink(Protocol):
    """Data file that is being written.

    The sink never overwrites a file. The file is complete only after :meth:`close` has returned.

    Attributes:
        path: path of the file.
        rows: number of rows written so far.
    """

    path: str
    rows: int

    @property
    def position(self) -> int:
        """Bytes of the file so far, as exactly as the format knows them before it is finished."""
        ...

    def write(self, rows: pa.Table) -> None:
        """Append ``rows`` to the file, as one row group if the format has row groups.

        Raises:
            StorageFull: the disk is full.
            InvalidData: a value that the format cannot store.
        """
        ...

    def close(self) -> tuple[int, ColumnValues]:
        """Finish the file; return its exact size in bytes and the bounds and null counts of its columns.

        Raises:
            StorageFull: the disk is full.
        """
        ...

    def discard(self) -> None:
        """Close and remove the unfinished file after a failure."""
        ...


class FileFormat(NamedTuple):
    """Functions and settings of one format's module.

    Attributes:
        name: name in option `file.format` and extension of its files.
        open_source: function that opens a file for reading. Its arguments are (file_io, path), and the keywords size,
            rows, table, kept.
        open_sink: function that creates a file. Its arguments are (file_io, path, sample, options), and the keywords
            codec, dictionary, delta.
        codec_of: function from (value of option `file.compression`, name of the table) to the format's name of the
            codec; it raises InvalidOption if the format does not have the codec.
        sizes: options of the format that are sizes in bytes, at least 1.
        unwritable: returns a true value for rows that its writer cannot store; these become Parquet files.
    """

    name: str
    open_source: Callable[..., FileSource]
    open_sink: Callable[..., FileSink]
    codec_of: Callable[[str, str], str]
    sizes: tuple[str, ...] = ()
    unwritable: Callable[[pa.Table], object] = lambda _: None
