"""Avro schemas of manifest files, compatible with Java 1.3 to 2.1 (format.md 4, 10).

Source: ``AvroSchemaConverter``.
"""

from __future__ import annotations

from typing import Any, Final

_ROOT = "org.apache.paimon.avro.generated.record"

VERSION: Final = 2
"""Serializer version of manifest entries and lists."""
INDEX_VERSION: Final = 1
"""Serializer version of index manifests."""


def _nullable(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def _required(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def _array(item: Any) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _stats(name: str) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            _required("_MIN_VALUES", "bytes"),
            _required("_MAX_VALUES", "bytes"),
            _nullable("_NULL_COUNTS", _array(["null", "long"])),
        ],
    }


_FILE = {
    "type": "record",
    "name": f"{_ROOT}__FILE",
    "fields": [
        _required("_FILE_NAME", "string"),
        _required("_FILE_SIZE", "long"),
        _required("_ROW_COUNT", "long"),
        _required("_MIN_KEY", "bytes"),
        _required("_MAX_KEY", "bytes"),
        _required("_KEY_STATS", _stats(f"{_ROOT}__FILE__KEY_STATS")),
        _required("_VALUE_STATS", _stats(f"{_ROOT}__FILE__VALUE_STATS")),
        _required("_MIN_SEQUENCE_NUMBER", "long"),
        _required("_MAX_SEQUENCE_NUMBER", "long"),
        _required("_SCHEMA_ID", "long"),
        _required("_LEVEL", "int"),
        _required("_EXTRA_FILES", _array("string")),
        _nullable("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
        _nullable("_DELETE_ROW_COUNT", "long"),
        _nullable("_EMBEDDED_FILE_INDEX", "bytes"),
        _nullable("_FILE_SOURCE", "int"),
        _nullable("_VALUE_STATS_COLS", _array("string")),
        _nullable("_EXTERNAL_PATH", "string"),
        _nullable("_FIRST_ROW_ID", "long"),
        _nullable("_WRITE_COLS", _array("string")),
    ],
}

MANIFEST_ENTRY: Final[dict[str, Any]] = {
    "type": "record",
    "name": _ROOT,
    "fields": [
        _required("_VERSION", "int"),
        _required("_KIND", "int"),
        _required("_PARTITION", "bytes"),
        _required("_BUCKET", "int"),
        _required("_TOTAL_BUCKETS", "int"),
        _required("_FILE", _FILE),
    ],
}

_LIST_FIELDS = [
    _required("_VERSION", "int"),
    _required("_FILE_NAME", "string"),
    _required("_FILE_SIZE", "long"),
    _required("_NUM_ADDED_FILES", "long"),
    _required("_NUM_DELETED_FILES", "long"),
    _required("_PARTITION_STATS", _stats(f"{_ROOT}__PARTITION_STATS")),
    _required("_SCHEMA_ID", "long"),
    _nullable("_MIN_BUCKET", "int"),
    _nullable("_MAX_BUCKET", "int"),
    _nullable("_MIN_LEVEL", "int"),
    _nullable("_MAX_LEVEL", "int"),
]

MANIFEST_LIST: Final[dict[str, Any]] = {"type": "record", "name": _ROOT, "fields": _LIST_FIELDS}
"""Schema of manifest lists in 1.3."""

MANIFEST_LIST_WITH_ROW_IDS: Final[dict[str, Any]] = {
    "type": "record",
    "name": _ROOT,
    "fields": [*_LIST_FIELDS, _nullable("_MIN_ROW_ID", "long"), _nullable("_MAX_ROW_ID", "long")],
}
"""Schema of manifest lists in 1.4 and later, used only if a range of row ids must be kept."""

_RANGE = {
    "type": "record",
    "name": f"{_ROOT}__DELETIONS_VECTORS_RANGES",
    "fields": [
        _required("f0", "string"),
        _required("f1", "int"),
        _required("f2", "int"),
        _nullable("_CARDINALITY", "long"),
    ],
}

INDEX_MANIFEST: Final[dict[str, Any]] = {
    "type": "record",
    "name": _ROOT,
    "fields": [
        _required("_VERSION", "int"),
        _required("_KIND", "int"),
        _required("_PARTITION", "bytes"),
        _required("_BUCKET", "int"),
        _required("_INDEX_TYPE", "string"),
        _required("_FILE_NAME", "string"),
        _required("_FILE_SIZE", "long"),
        _required("_ROW_COUNT", "long"),
        _nullable("_DELETIONS_VECTORS_RANGES", _array(["null", _RANGE])),
        _nullable("_EXTERNAL_PATH", "string"),
    ],
}
"""Schema of index manifests in 1.3; 1.4 adds fields that only global indexes need."""
