"""What the rest of the engine asks of an open data file, whatever its format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from lsm_core.format.stats import ColumnValues


class FileSource(Protocol):
    """One data file open for reading; nothing is decoded before :meth:`batches` is asked for it."""

    path: str
    schema: pa.Schema
    """Stored names and Arrow types as the file has them; the reader above fits them to the table's."""
    rows: int
    group_rows: list[int]
    """Rows of every row group (Parquet); an ORC or Avro file is one group of all its rows."""
    by_column: bool
    """Whether columns are stored apart, so that reading few of them reads less."""

    def batches(
        self,
        columns: Sequence[str],
        batch_rows: int,
        row_groups: Sequence[int] | None = None,
        *,
        dictionaries: Sequence[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Batches of at most ``batch_rows`` rows of ``columns`` in file order, decoded on the calling thread only.

        ``dictionaries``: columns, of those that :meth:`repeating_texts` told, to give as Arrow dictionaries. Raises :class:`lsm_core.errors.CorruptFile`, and UnsupportedFeature for values that Arrow cannot hold.
        """
        ...

    def value_bytes(self, names: Iterable[str]) -> dict[str, float]:
        """Average decoded bytes of a value of those of ``names`` for which the file's metadata tells."""
        ...

    def repeating_texts(self, names: Iterable[str]) -> list[str]:
        """Those of ``names`` that are text and stored as dictionaries worth keeping; none for formats without them."""
        ...

    def group_bounds(self, name: str) -> tuple[pa.Array, pa.Array] | None:
        """Smallest and largest value of the stored column ``name`` in every row group; None where the footer does not tell."""
        ...

    def close(self) -> None:
        """Release the file handle."""
        ...


class WholeFileSource:
    """What readers of Avro and ORC files share: the file is one row group, and nothing is told of its values beforehand."""

    def value_bytes(self, names: Iterable[str]) -> dict[str, float]:
        """Nothing: metadata does not tell how large decoded values are."""
        del names
        return {}

    def repeating_texts(self, names: Iterable[str]) -> list[str]:
        """None: text comes plain."""
        del names
        return []

    def group_bounds(self, name: str) -> tuple[pa.Array, pa.Array] | None:
        """Not told."""
        del name
        return None


class FileSink(Protocol):
    """One data file being written. Never overwrites; nothing is published until :meth:`close` returned."""

    path: str
    rows: int

    @property
    def position(self) -> int:
        """Bytes of the file so far, as well as the format can tell before it is finished."""
        ...

    def write(self, rows: pa.Table) -> None:
        """Append ``rows`` (one row group, where the format has them). Raises StorageFull, and InvalidData for values the format cannot hold."""
        ...

    def close(self) -> tuple[int, ColumnValues]:
        """Finish the file; returns its exact size in bytes and what is known of each column's values."""
        ...

    def discard(self) -> None:
        """Give up after a failure: close the handle and remove the unfinished file."""
        ...


class FileFormat(NamedTuple):
    """One format: what :mod:`lsm_core.files.formats` asks of its module."""

    name: str
    """As option `file.format` and a file's extension have it."""
    open_source: Callable[..., FileSource]
    """(file_io, path, size, rows, table, kept) as :func:`lsm_core.files.formats.open_source` has them, the last four as keywords."""
    open_sink: Callable[..., FileSink]
    """(file_io, path, sample, options, codec, dictionary, delta), the last three as keywords; see :func:`lsm_core.files.formats.open_sink`."""
    codec_of: Callable[[str, str], str]
    """The format's name of the codec that option `file.compression` names, for the table named second; raises InvalidOption."""
    sizes: tuple[str, ...] = ()
    """Options of the format's own that are sizes in bytes, of at least 1."""
    unwritable: Callable[[pa.Table], object] = lambda _: None
    """Something true for rows with values that its writer cannot hold: these become Parquet files."""


__all__ = ["FileFormat", "FileSink", "FileSource", "WholeFileSource"]
