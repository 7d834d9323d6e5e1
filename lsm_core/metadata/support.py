"""Gates: what a table uses that Dredge cannot keep up is refused, by name, before any file is written.

Compacting or writing such a table blindly would lose its changelog, resurrect deleted rows or leave an index behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import pyarrow.compute as pc

from lsm_core.errors import UnsupportedFeature
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests, schemas, snapshots
from lsm_core.metadata.store import POSTPONE_BUCKET, TableStore
from lsm_core.types import DataType, TypeRoot

_TYPES = frozenset(
    {
        TypeRoot.CHAR,
        TypeRoot.VARCHAR,
        TypeRoot.BOOLEAN,
        TypeRoot.DECIMAL,
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DATE,
        TypeRoot.TIMESTAMP,
    }
)
_MOST_FRACTION_DIGITS = 6
_HASH, _VECTORS = "HASH", "DELETION_VECTORS"

# Boolean options that change what rows mean or what must be written, and what they are called.
_SWITCHES_READ = {
    "deletion-vectors.enabled": "deletion vectors",
    "deletion-vectors.merge-on-read": "deletion vectors merged on read",
    "data-evolution.enabled": "data evolution",
    "row-tracking.enabled": "row tracking",
    "chain-table.enabled": "chain tables",
    "pk-clustering-override": "primary-key tables clustered by other columns",
    "primary-key.nullable": "nullable primary keys",
    "sequence.snapshot-ordering": "ordering by snapshot",
    "query-auth.enabled": "query authorisation",
}
_SWITCHES_WRITE = {"clustering.incremental": "incremental clustering"}
# Options whose mere presence matters.
_SET_READ = {
    "scan.fallback-branch": "fallback branches",
    "scan.fallback-snapshot-branch": "fallback branches",
    "scan.fallback-delta-branch": "fallback branches",
    "scan.primary-branch": "fallback branches",
}
_SET_WRITE = {
    "rowkind.field": "row kinds from a column (rowkind.field)",
    "data-file.external-paths": "external data paths",
    "record-level.expire-time": "record-level expiry",
    "commit.callbacks": "commit callbacks",
}


class Purpose(IntEnum):
    """What is about to be done; each purpose refuses what the ones before it refuse, and more."""

    READ = 0
    EXPIRE = 1
    WRITE = 2
    COMPACT = 3


def require_readable(store: TableStore, snapshot: Snapshot | None = None) -> None:
    """Raise UnsupportedFeature naming feature and table when its rows (at ``snapshot``) cannot be read truthfully.

    Reads metadata only.
    """
    _require(store, Purpose.READ)


def require_expirable(store: TableStore) -> None:
    """Raise UnsupportedFeature when expiring snapshots would lose something (a changelog that outlives them)."""
    for feature in _decoupled_changelog(store):
        raise UnsupportedFeature(feature, store.name)


def require_writable(store: TableStore) -> None:
    """Raise UnsupportedFeature naming feature and table when rows cannot be added without breaking it."""
    _require(store, Purpose.WRITE)


def require_compactable(store: TableStore) -> None:
    """Raise UnsupportedFeature naming feature and table when a compaction could change answers or lose a side product."""
    _require(store, Purpose.COMPACT)


def unsupported(store: TableStore, purpose: Purpose) -> list[str]:
    """Return everything that stands in the way of ``purpose``, most telling first; empty when it is fine."""
    return list(dict.fromkeys(_features(store, purpose)))


def _require(store: TableStore, purpose: Purpose) -> None:
    for feature in _features(store, purpose):
        raise UnsupportedFeature(feature, store.name)


def _features(store: TableStore, purpose: Purpose) -> Iterator[str]:
    yield from _kind_of_table(store)
    yield from _options(store, purpose)
    yield from _types(store.schema)
    if purpose >= Purpose.WRITE:
        yield from _buckets(store)
        yield from _indexes_by_option(store)
    snapshot = snapshots.latest(store)
    if snapshot is not None:
        yield from _indexes_in_use(store, snapshot, purpose)
        yield from _files_in_use(store, snapshot)


def _kind_of_table(store: TableStore) -> Iterator[str]:
    kind = str(store.options.get("type")).lower()
    if kind != "table":
        yield f"tables of type '{kind}'"
    engine = store.options.merge_engine
    if store.has_primary_key and engine != "deduplicate":
        yield f"merge engine '{engine}'"
    if store.has_primary_key and store.options.bucket == POSTPONE_BUCKET:
        yield "postponed buckets (bucket = -2)"


def _options(store: TableStore, purpose: Purpose) -> Iterator[str]:
    options = store.options
    if options.is_set("branch") and options.get("branch") != store.branch:
        yield f"another branch by option ('branch' = '{options.get('branch')}')"
    switches = _SWITCHES_READ if purpose < Purpose.WRITE else {**_SWITCHES_READ, **_SWITCHES_WRITE}
    present = _SET_READ if purpose < Purpose.WRITE else {**_SET_READ, **_SET_WRITE}
    yield from (what for key, what in switches.items() if options.get(key))
    yield from (what for key, what in present.items() if options.get(key))
    formats = {options.file_format, *(str(f).lower() for f in options.get("file.format.per.level").values())}
    yield from (f"file format '{name}'" for name in sorted(formats - {"parquet"}))
    if str(options.get("manifest.format")).lower() != "avro":
        yield f"manifests of format '{options.get('manifest.format')}'"
    if purpose >= Purpose.WRITE and store.has_primary_key and options.changelog_producer != "none":
        yield f"changelog producer '{options.changelog_producer}'"
    if purpose >= Purpose.WRITE and options.raw.get("metadata.iceberg.storage", "disabled").lower() != "disabled":
        yield "Iceberg metadata (metadata.iceberg.storage)"


def _buckets(store: TableStore) -> Iterator[str]:
    bucket = store.options.bucket
    if not store.has_primary_key and bucket != -1:
        yield "append tables with buckets"
    if store.schema.cross_partition:
        yield "primary keys that do not hold all partition keys (cross-partition updates)"
    elif store.has_primary_key and bucket == -1:
        yield "dynamic buckets (bucket = -1 with a primary key)"


def _indexes_by_option(store: TableStore) -> Iterator[str]:
    kinds = {
        key.split(".")[1] for key in store.options.raw if key.startswith("file-index.") and key.endswith(".columns")
    }
    yield from (f"file index '{kind}'" for kind in sorted(kinds))
    for key in sorted(store.options.raw):
        if key.endswith(".index.columns") and key.startswith("pk-"):
            yield f"index '{key}'"


def _types(schema: TableSchema) -> Iterator[str]:
    for field in schema.fields:
        if not _known(field.type):
            yield f"column '{field.name}' of type {field.type.with_nullable(nullable=True)}"


def _known(kind: DataType) -> bool:
    return kind.root in _TYPES and (
        kind.root is not TypeRoot.TIMESTAMP or (kind.precision or 0) <= _MOST_FRACTION_DIGITS
    )


def _indexes_in_use(store: TableStore, snapshot: Snapshot, purpose: Purpose) -> Iterator[str]:
    """An option may have been switched off while files still depend on the index."""
    kinds = {entry.index_type.upper() for entry in manifests.index_entries(store, snapshot)}
    if _VECTORS in kinds:
        yield "deletion vectors"
    if purpose >= Purpose.WRITE:
        yield from ("hash index" if kind == _HASH else f"index '{kind}'" for kind in sorted(kinds - {_VECTORS}))


def _files_in_use(store: TableStore, snapshot: Snapshot) -> Iterator[str]:
    """Files written under another schema or format; entries are only read when the table's history makes that possible."""
    ids = schemas.list_schema_ids(store.file_io, store.root, store.branch)
    known = [store.schema_of(i) for i in ids]
    other = {s.id for s in known if not _same_columns(s, store.schema)}
    formats = {str(s.options.get("file.format", "parquet")).lower() for s in known} - {"parquet"}
    if not other and not formats:
        return
    live = manifests.live_entries(store, snapshot, columns=["schema_id", "file_name"])
    used = set(pc.unique(live.column("schema_id")).to_pylist()) & other
    if used:
        yield f"files written with an older schema (id {min(used)}, now {store.schema.id})"
    if formats and not pc.all(pc.ends_with(live.column("file_name"), ".parquet"), min_count=0).as_py():
        yield f"file format '{min(formats)}'"


def _same_columns(a: TableSchema, b: TableSchema) -> bool:
    """Whether files of both read alike: same ids, names and types in the same order (nullability may differ)."""
    first, second = ([(f.id, f.name, f.type.with_nullable(nullable=True)) for f in s.fields] for s in (a, b))
    return first == second


def _decoupled_changelog(store: TableStore) -> Iterator[str]:
    """Changelogs that live longer than their snapshots (`ExpireChangelogImpl`): expiry would have to write them."""
    options = store.options
    pairs = (
        (options.get("changelog.num-retained.max"), options.get("snapshot.num-retained.max")),
        (options.get("changelog.time-retained"), options.time_retained),
        (options.get("changelog.num-retained.min"), options.retained_min),
    )
    if any(longer is not None and longer > base for longer, base in pairs):
        yield "changelogs that outlive their snapshots (changelog.*-retained)"
