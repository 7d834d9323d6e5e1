"""Index manifests: the complete set of a snapshot's index files (format.md 10, Java `IndexManifestEntry`)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import fastavro
import pyarrow as pa

from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.format.avro.avro_schema import record_of
from lsm_core.format.avro.container import Container
from lsm_core.format.avro.metadata_file import Record, read_table, write_records
from lsm_core.format.manifest.manifest_schemas import INDEX_MANIFEST, INDEX_VERSION

HASH_INDEX: Final = "HASH"
"""Type of index files that list the key hashes of a dynamic bucket."""
VECTORS_INDEX: Final = "DELETION_VECTORS"
"""Type of index files that hold deletion vectors of data files."""


@dataclass(frozen=True)
class DeletionVectorRange:
    """Where in an index file the deletion vector of one data file lies (bytes); ``cardinality`` None when not recorded."""

    data_file: str
    offset: int
    length: int
    cardinality: int | None = None


@dataclass(frozen=True)
class IndexFileMeta:
    """One index file without its place (Java `IndexFileMeta`): sizes in bytes.

    ``row_count``: hashes of a `HASH` file, vectors of a `DELETION_VECTORS` file, whose places ``deletion_vectors`` tells.
    """

    index_type: str
    file_name: str
    file_size: int
    row_count: int
    deletion_vectors: tuple[DeletionVectorRange, ...] | None = None
    external_path: str | None = None

    def to_list(self) -> list[Any]:
        """The members in their order as JSON has them, a vector's place as a list of its own."""
        ranges = self.deletion_vectors
        vectors = (
            None if ranges is None else [[one.data_file, one.offset, one.length, one.cardinality] for one in ranges]
        )
        return [self.index_type, self.file_name, self.file_size, self.row_count, vectors, self.external_path]

    @staticmethod
    def of_list(value: Any) -> IndexFileMeta:
        """Inverse of :meth:`to_list`. Raises TypeError or ValueError for anything else."""
        kind, name, size, rows, vectors, external = value
        ranges = None if vectors is None else tuple(DeletionVectorRange(*one) for one in vectors)
        return IndexFileMeta(str(kind), str(name), int(size), int(rows), ranges, external)


@dataclass(frozen=True)
class IndexManifestEntry:
    """One index file: `HASH`, `DELETION_VECTORS` or a global index (then ``is_global``); sizes in bytes."""

    kind: int
    partition: bytes
    bucket: int
    index_type: str
    file_name: str
    file_size: int
    row_count: int
    deletion_vectors: tuple[DeletionVectorRange, ...] | None = None
    external_path: str | None = None
    is_global: bool = False

    @staticmethod
    def of(kind: int, partition: bytes, bucket: int, file: IndexFileMeta) -> IndexManifestEntry:
        """The entry of ``file`` in a bucket."""
        known = (file.index_type, file.file_name, file.file_size, file.row_count)
        return IndexManifestEntry(kind, partition, bucket, *known, file.deletion_vectors, file.external_path)

    @property
    def file(self) -> IndexFileMeta:
        """The index file without its place."""
        known = (self.index_type, self.file_name, self.file_size, self.row_count)
        return IndexFileMeta(*known, self.deletion_vectors, self.external_path)


_FIELDS = (
    ("_KIND", "kind", int),
    ("_PARTITION", "partition", bytes),
    ("_BUCKET", "bucket", int),
    ("_INDEX_TYPE", "index_type", str),
    ("_FILE_NAME", "file_name", str),
    ("_FILE_SIZE", "file_size", int),
    ("_ROW_COUNT", "row_count", int),
)
_RANGES: Final = "_DELETIONS_VECTORS_RANGES"


def decode_index_manifest(data: bytes, path: str) -> list[IndexManifestEntry]:
    """Entries of an index manifest file, in its order; raises :class:`CorruptFile` naming ``path``."""
    return [_entry(record, path) for record in read_table(data, path).to_pylist()]


def encode_index_manifest(entries: Sequence[IndexManifestEntry]) -> bytes:
    """Bytes of an index manifest: the complete set of index files that it shall list, as Java 1.3 writes it.

    Raises :class:`UnsupportedFeature` for a global index, of which more would have to be kept than we read.
    """
    return write_records(INDEX_MANIFEST, [_record(entry) for entry in entries])


def change_index_manifest(data: bytes, path: str, keep: Sequence[bool], added: Sequence[IndexManifestEntry]) -> bytes:
    """The index manifest that follows the one in ``data`` (read from ``path``): its entries where ``keep``, then ``added``.

    What is kept is written again with every field that it has, also those that this version does not know (global indexes,
    fields of later versions): the schema of ``data`` stays, and gets only what ``added`` needs beyond it. Raises
    :class:`CorruptFile` naming ``path``, and :class:`UnsupportedFeature` where a field would not come out as it went in.
    """
    container = Container(pa.BufferReader(data), path)
    records = read_table(data, path).to_pylist()
    if len(records) != len(keep):
        raise CorruptFile(path, f"{len(records)} entries, {len(keep)} were read before")
    theirs, _ = record_of(container.schema, path)
    kept = [record for record, stays in zip(records, keep, strict=True) if stays]
    try:
        again = io.BytesIO()
        known = fastavro.parse_schema(container.schema)
        for record in records:
            fastavro.schemaless_writer(again, known, record)
        if again.getvalue() != b"".join(container.plain(block) for block in container.blocks):
            raise UnsupportedFeature(f"rewriting the index manifest {path}: its fields would not stay as they are")
        return write_records(_with_fields(theirs, INDEX_MANIFEST), [*kept, *map(_record, added)])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnsupportedFeature(f"rewriting the index manifest {path}: {error!r}") from error


def _with_fields(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """The record ``theirs`` with the fields of ``ours`` that it lacks, those of the ranges inside included."""
    wanted = {field["name"]: field for field in ours["fields"]}
    fields = []
    for field in theirs["fields"]:
        mine = wanted.pop(field["name"], None)
        if field["name"] == _RANGES and mine is not None:
            known, missing = _record_inside(field["type"]), _record_inside(mine["type"])
            if known is not None and missing is not None:
                field = {**field, "type": ["null", {"type": "array", "items": ["null", _with_fields(known, missing)]}]}
        fields.append(field)
    return {**theirs, "fields": [*fields, *wanted.values()]}


def _record_inside(kind: Any) -> Mapping[str, Any] | None:
    """The record somewhere in a union or an array."""
    if isinstance(kind, list):
        return next(filter(None, map(_record_inside, kind)), None)
    if isinstance(kind, dict):
        return kind if kind.get("type") == "record" else _record_inside(kind.get("items"))
    return None


def _record(entry: IndexManifestEntry) -> Record:
    if entry.is_global:
        raise UnsupportedFeature(f"writing global indexes ({entry.file_name})")
    ranges = entry.deletion_vectors
    return {
        "_VERSION": INDEX_VERSION,
        **{avro: getattr(entry, name) for avro, name, _ in _FIELDS},
        _RANGES: None
        if ranges is None
        else [{"f0": r.data_file, "f1": r.offset, "f2": r.length, "_CARDINALITY": r.cardinality} for r in ranges],
        "_EXTERNAL_PATH": entry.external_path,
    }


def _entry(record: Record, path: str) -> IndexManifestEntry:
    if record.get("_VERSION") != INDEX_VERSION:
        raise UnsupportedFeature(
            f"index manifest of serializer version {record.get('_VERSION')} ({path}); known: {INDEX_VERSION}"
        )
    values: dict[str, Any] = {}
    for avro, name, kind in _FIELDS:
        value = record.get(avro)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise CorruptFile(path, f"index manifest field {avro} is {value!r}")
        values[name] = value
    ranges, external = record.get(_RANGES), record.get("_EXTERNAL_PATH")
    if not isinstance(ranges, list | None) or not isinstance(external, str | None):
        raise CorruptFile(
            path, f"index manifest entry of {values['file_name']} has ranges {ranges!r}, path {external!r}"
        )
    return IndexManifestEntry(
        deletion_vectors=None if ranges is None else tuple(_range(item, path) for item in ranges if item is not None),
        external_path=external,
        is_global=record.get("_GLOBAL_INDEX") is not None,
        **values,
    )


def _range(item: Record, path: str) -> DeletionVectorRange:
    try:
        found = DeletionVectorRange(item["f0"], item["f1"], item["f2"], item.get("_CARDINALITY"))
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(path, f"deletion vector range {item!r}") from error
    numbers = (found.offset, found.length, 0 if found.cardinality is None else found.cardinality)
    if not isinstance(found.data_file, str) or not all(type(number) is int for number in numbers):
        raise CorruptFile(path, f"deletion vector range {item!r}")
    return found
