"""Index manifests: the complete set of a snapshot's index files (format.md 10, Java `IndexManifestEntry`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.format.manifest.avro_schemas import INDEX_VERSION
from lsm_core.format.manifest.container import Record, read_container


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
    _, records = read_container(data, path)
    return [_entry(record, path) for record in records]


def _entry(record: Record, path: str) -> IndexManifestEntry:
    if record.get("_VERSION") != INDEX_VERSION:
        raise UnsupportedFeature(
            f"index manifest of serializer version {record.get('_VERSION')} ({path}); known: {INDEX_VERSION}"
        )
    values: dict[str, Any] = {}
    for avro, name, kind in _FIELDS:
        value = record.get(avro)
        if not isinstance(value, kind):
            raise CorruptFile(path, f"index manifest field {avro} is {value!r}")
        values[name] = value
    ranges = record.get("_DELETIONS_VECTORS_RANGES")
    return IndexManifestEntry(
        deletion_vectors=None if ranges is None else tuple(_range(item, path) for item in ranges if item is not None),
        external_path=record.get("_EXTERNAL_PATH"),
        is_global=record.get("_GLOBAL_INDEX") is not None,
        **values,
    )


def _range(item: Record, path: str) -> DeletionVectorRange:
    try:
        return DeletionVectorRange(item["f0"], item["f1"], item["f2"], item.get("_CARDINALITY"))
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(path, f"deletion vector range {item!r}") from error
