"""Index manifests: the complete set of a snapshot's index files (format.md 10, Java `IndexManifestEntry`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.format.avro.metadata_file import Record, read_table, write_records
from lsm_core.format.manifest.manifest_schemas import INDEX_MANIFEST, INDEX_VERSION


@dataclass(frozen=True)
class DeletionVectorRange:
    """Where in an index file the deletion vector of one data file lies (bytes); ``cardinality`` None when not recorded."""

    data_file: str
    offset: int
    length: int
    cardinality: int | None = None


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


_FIELDS = (
    ("_KIND", "kind", int),
    ("_PARTITION", "partition", bytes),
    ("_BUCKET", "bucket", int),
    ("_INDEX_TYPE", "index_type", str),
    ("_FILE_NAME", "file_name", str),
    ("_FILE_SIZE", "file_size", int),
    ("_ROW_COUNT", "row_count", int),
)


def decode_index_manifest(data: bytes, path: str) -> list[IndexManifestEntry]:
    """Entries of an index manifest file, in its order; raises :class:`CorruptFile` naming ``path``."""
    return [_entry(record, path) for record in read_table(data, path).to_pylist()]


def encode_index_manifest(entries: Sequence[IndexManifestEntry]) -> bytes:
    """Bytes of an index manifest: the complete set of index files that it shall list, as Java 1.3 writes it.

    Raises :class:`UnsupportedFeature` for a global index, of which more would have to be kept than we read.
    """
    records: list[Record] = []
    for entry in entries:
        if entry.is_global:
            raise UnsupportedFeature(f"writing global indexes ({entry.file_name})")
        record: Record = {"_VERSION": INDEX_VERSION, **{avro: getattr(entry, name) for avro, name, _ in _FIELDS}}
        ranges = entry.deletion_vectors
        record["_DELETIONS_VECTORS_RANGES"] = (
            None
            if ranges is None
            else [{"f0": r.data_file, "f1": r.offset, "f2": r.length, "_CARDINALITY": r.cardinality} for r in ranges]
        )
        record["_EXTERNAL_PATH"] = entry.external_path
        records.append(record)
    return write_records(INDEX_MANIFEST, records)


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
    ranges, external = record.get("_DELETIONS_VECTORS_RANGES"), record.get("_EXTERNAL_PATH")
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
