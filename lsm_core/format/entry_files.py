"""Data files of manifest entries as columns, and their bytes for other processes.

A driver that only plans and ships the files of a large table creates no object per file. The bytes are a line of JSON
and an Arrow record batch without its schema, because most tasks have few files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, overload

import pyarrow as pa

from lsm_core.arrays import one_array
from lsm_core.errors import CorruptFile
from lsm_core.format.manifest import ADD, ENTRY_SCHEMA, DataFileMeta, ManifestEntry, columns_to_files, entries_to_table
from lsm_core.json_text import parse_json

_ABSENT: Final = "absent"
_PLACE: Final = frozenset({"kind", "partition", "bucket", "total_buckets"})
_FILE_FIELDS: Final = [field for field in ENTRY_SCHEMA if field.name not in _PLACE]
_REQUIRED: Final = frozenset(field.name for field in _FILE_FIELDS if not field.nullable)
_NULLABLE: Final = frozenset(field.name for field in _FILE_FIELDS if field.nullable)


class EntryFiles(Sequence[DataFileMeta]):
    """Files of manifest entries as a sequence that stays columns until a file is asked for.

    The files of a bucket are made into objects together, on first use, and kept.

    Attributes:
        columns: the entries, one per file: the columns of `ENTRY_SCHEMA`, of which those of the place (partition,
            bucket) and nullable ones may be absent.
    """

    def __init__(self, columns: pa.Table | pa.RecordBatch) -> None:
        """Wrap the columns of manifest entries (:attr:`columns`)."""
        self.columns = columns

    @cached_property
    def _files(self) -> tuple[DataFileMeta, ...]:
        return tuple(columns_to_files(self.columns))

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    @overload
    def __getitem__(self, place: int) -> DataFileMeta: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[DataFileMeta, ...]: ...

    def __getitem__(self, place: int | slice) -> DataFileMeta | tuple[DataFileMeta, ...]:
        return self._files[place]

    def __iter__(self) -> Iterator[DataFileMeta]:
        return iter(self._files)

    def __eq__(self, other: object) -> bool:
        return self._files == tuple(other) if isinstance(other, tuple | EntryFiles) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._files)

    def __repr__(self) -> str:
        return repr(self._files)


def file_sizes(files: Sequence[DataFileMeta]) -> list[tuple[str, int, int]]:
    """Return (name, bytes, rows) of each file; the files of `EntryFiles` are not made into objects."""
    if not isinstance(files, EntryFiles):
        return [(file.file_name, file.file_size, file.row_count) for file in files]
    columns = (files.columns.column(name).to_pylist() for name in ("file_name", "file_size", "row_count"))
    return list(zip(*columns, strict=True))


def shipped_columns(columns: pa.Table) -> pa.RecordBatch:
    """Return the columns of files that other processes need: all but those of the place and those that are null.

    Args:
        columns: manifest entries (`ENTRY_SCHEMA`).
    """
    shipped_fields, arrays = [], []
    for field in _FILE_FIELDS:
        column = columns.column(field.name)
        if not field.nullable or column.null_count < len(column):
            shipped_fields.append(field)
            arrays.append(one_array(column))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(shipped_fields))


def files_to_bytes(files: Sequence[DataFileMeta], settings: Mapping[str, Any]) -> bytes:
    """Return files and settings as bytes: a line of JSON, then the files' columns as an Arrow record batch.

    Args:
        files: the files; those of `EntryFiles` are not made into objects.
        settings: JSON values by name. The name "absent" is taken: it lists the columns that are left out.
    """
    if not isinstance(files, EntryFiles):
        files = EntryFiles(entries_to_table([ManifestEntry(ADD, b"", 0, 0, file) for file in files]))
    batch = files.columns
    if isinstance(batch, pa.Table):
        batch = shipped_columns(batch)
    absent = sorted(_NULLABLE.difference(batch.schema.names))
    head = json.dumps({**settings, _ABSENT: absent}, separators=(",", ":"))
    return b"%b\n%b" % (head.encode(), batch.serialize())


def files_from_bytes(data: bytes, label: str) -> tuple[EntryFiles, dict[str, Any]]:
    """Return the files and the settings from the bytes of :func:`files_to_bytes`.

    Args:
        data: the bytes.
        label: name of the bytes in errors, such as "<split>".

    Raises:
        CorruptFile: the bytes have another form.
    """
    head, _, body = data.partition(b"\n")
    try:
        settings = parse_json(head, unique=True)
        absent = set(settings.pop(_ABSENT))
        if not absent <= _NULLABLE:
            raise ValueError(f"absent columns {sorted(absent)}")
        fields = [field for field in _FILE_FIELDS if field.name not in absent]
        batch = pa.ipc.read_record_batch(pa.py_buffer(body), pa.schema(fields))
        batch.validate(full=True)
        if any(batch.column(name).null_count for name in _REQUIRED):
            raise ValueError("nulls in a column that has none")
        return EntryFiles(batch), settings
    except (pa.ArrowException, AttributeError, EOFError, KeyError, OSError, TypeError, ValueError) as error:
        raise CorruptFile(label, f"unreadable: {error!r}") from error
