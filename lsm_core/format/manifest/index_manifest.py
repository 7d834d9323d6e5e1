"""Index manifests: the complete set of a snapshot's index files (format.md 10).

Source: ``IndexManifestEntry``.
"""

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
"""Type of index files with the key hashes of a dynamic bucket."""
VECTORS_INDEX: Final = "DELETION_VECTORS"
"""Type of index files with deletion vectors of data files."""


@dataclass(frozen=True)
class DeletionVectorRange:
    """Position of the deletion vector of one data file in an index file.

    Attributes:
        data_file: name of the data file.
        offset: start of the vector (bytes).
        length: size of the vector (bytes).
        cardinality: number of deleted rows, or None if not recorded.
    """

    data_file: str
    offset: int
    length: int
    cardinality: int | None = None


@dataclass(frozen=True)
class IndexFileMeta:
    """One index file without its partition and bucket (Java `IndexFileMeta`).

    Attributes:
        index_type: type of the index.
        file_name: name of the file.
        file_size: size in bytes.
        row_count: number of hashes of a `HASH` file, or of vectors of a `DELETION_VECTORS` file.
        deletion_vectors: positions of the vectors, or None.
        external_path: path outside the table's folder, or None.
    """

    index_type: str
    file_name: str
    file_size: int
    row_count: int
    deletion_vectors: tuple[DeletionVectorRange, ...] | None = None
    external_path: str | None = None

    def to_list(self) -> list[Any]:
        """Return the members as a JSON list, with each vector's position as a nested list."""
        ranges = self.deletion_vectors
        vectors = (
            None
            if ranges is None
            else [[vector.data_file, vector.offset, vector.length, vector.cardinality] for vector in ranges]
        )
        return [self.index_type, self.file_name, self.file_size, self.row_count, vectors, self.external_path]

    @staticmethod
    def of_list(value: Any) -> IndexFileMeta:
        """Reverse :meth:`to_list`.

        Raises:
            TypeError: the value has another form; ValueError is possible too.
        """
        kind, name, size, rows, vectors, external = value
        ranges = None if vectors is None else tuple(DeletionVectorRange(*vector) for vector in vectors)
        return IndexFileMeta(str(kind), str(name), int(size), int(rows), ranges, external)


@dataclass(frozen=True)
class IndexManifestEntry:
    """One index file: `HASH`, `DELETION_VECTORS` or a global index.

    Attributes:
        kind: 0 adds the file, 1 deletes it.
        partition: partition as a serialised BinaryRow.
        bucket: bucket of the file.
        index_type: type of the index.
        file_name: name of the file.
        file_size: size in bytes.
        row_count: number of hashes or vectors.
        deletion_vectors: positions of the vectors, or None.
        external_path: path outside the table's folder, or None.
        is_global: whether it is a global index.
    """

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
        """Return the entry of ``file`` in a bucket."""
        members = (file.index_type, file.file_name, file.file_size, file.row_count)
        return IndexManifestEntry(kind, partition, bucket, *members, file.deletion_vectors, file.external_path)

    @property
    def file(self) -> IndexFileMeta:
        """The index file without its partition and bucket."""
        members = (self.index_type, self.file_name, self.file_size, self.row_count)
        return IndexFileMeta(*members, self.deletion_vectors, self.external_path)


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
    """Return the entries of an index manifest, in file order.

    Raises:
        CorruptFile: the file is damaged; the message names ``path``.
    """
    return [_entry(record, path) for record in read_table(data, path).to_pylist()]


def encode_index_manifest(entries: Sequence[IndexManifestEntry]) -> bytes:
    """Return an index manifest with the complete set of index files, as Java 1.3 writes it.

    Raises:
        UnsupportedFeature: an entry is a global index, which has members that are not read.
    """
    return write_records(INDEX_MANIFEST, [_record(entry) for entry in entries])


def change_index_manifest(data: bytes, path: str, keep: Sequence[bool], added: Sequence[IndexManifestEntry]) -> bytes:
    """Return the index manifest that follows another one.

    Kept entries are written with all their fields, including unknown ones (global indexes, fields of later versions).
    The schema of ``data`` stays, extended by the fields that ``added`` needs.

    Args:
        data: the earlier index manifest.
        path: its path, for messages.
        keep: whether each of its entries stays.
        added: new entries.

    Returns:
        The new index manifest.

    Raises:
        CorruptFile: the earlier index manifest is damaged.
        UnsupportedFeature: a field cannot be written back unchanged.
    """
    container = Container(pa.BufferReader(data), path)
    records = read_table(data, path).to_pylist()
    if len(records) != len(keep):
        raise CorruptFile(path, f"{len(records)} entries, but {len(keep)} were read before")
    earlier_schema, _ = record_of(container.schema, path)
    kept = [record for record, stays in zip(records, keep, strict=True) if stays]
    try:
        rewritten = io.BytesIO()
        parsed_schema = fastavro.parse_schema(container.schema)
        for record in records:
            fastavro.schemaless_writer(rewritten, parsed_schema, record)
        if rewritten.getvalue() != b"".join(container.plain(block) for block in container.blocks):
            raise UnsupportedFeature(f"rewriting the index manifest {path}: its fields would not stay as they are")
        return write_records(_with_fields(earlier_schema, INDEX_MANIFEST), [*kept, *map(_record, added)])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnsupportedFeature(f"rewriting the index manifest {path}: {error!r}") from error


def _with_fields(earlier: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record ``theirs`` with the missing fields of ``ours``, including those of the ranges inside."""
    missing_fields = {field["name"]: field for field in current["fields"]}
    fields = []
    for field in earlier["fields"]:
        current_field = missing_fields.pop(field["name"], None)
        if field["name"] == _RANGES and current_field is not None:
            earlier_record, current_record = _record_inside(field["type"]), _record_inside(current_field["type"])
            if earlier_record is not None and current_record is not None:
                field = {
                    **field,
                    "type": [
                        "null",
                        {"type": "array", "items": ["null", _with_fields(earlier_record, current_record)]},
                    ],
                }
        fields.append(field)
    return {**earlier, "fields": [*fields, *missing_fields.values()]}


def _record_inside(kind: Any) -> Mapping[str, Any] | None:
    """Return the record inside a union or an array."""
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
        vector_range = DeletionVectorRange(item["f0"], item["f1"], item["f2"], item.get("_CARDINALITY"))
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(path, f"deletion vector range {item!r}") from error
    numbers = (
        vector_range.offset,
        vector_range.length,
        0 if vector_range.cardinality is None else vector_range.cardinality,
    )
    if not isinstance(vector_range.data_file, str) or not all(type(number) is int for number in numbers):
        raise CorruptFile(path, f"deletion vector range {item!r}")
    return vector_range
