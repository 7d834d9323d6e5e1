"""Gates: what a table uses that Dredge cannot keep up is refused, by name, before any file is written.

Compacting or writing such a table blindly would lose its changelog, resurrect deleted rows or leave an index behind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import IntEnum

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import UnsupportedFeature, WriterStale
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.locks import table_lock
from lsm_core.metadata import manifests, paimon_version, schemas, snapshots
from lsm_core.metadata.store import POSTPONE_BUCKET, BucketMode, TableStore
from lsm_core.options import REGISTRY, canonical
from lsm_core.types import TypeRoot

_UNREAD_TYPES = frozenset({TypeRoot.VARIANT, TypeRoot.GEOMETRY, TypeRoot.GEOGRAPHY, TypeRoot.UNKNOWN})
"""Types of columns that a read may leave out."""
_REFUSED_TYPES = _UNREAD_TYPES | {TypeRoot.BLOB, TypeRoot.VECTOR}
"""Those, and types whose values have files of their own."""
_FORMATS = frozenset({"parquet", "orc", "avro"})
_FILE_INDEXES = frozenset({"bloom-filter", "bitmap", "bsi", "range-bitmap"})
_HASH, _VECTORS = "HASH", "DELETION_VECTORS"
_NAMES_OF_INDEXES = {_HASH: "hash index", _VECTORS: "deletion vectors"}

# Boolean options that change what rows mean or what must be written, and what they are called.
_SWITCHES_READ = {
    "data-evolution.enabled": "data evolution",
    "chain-table.enabled": "chain tables",
    "pk-clustering-override": "primary-key tables clustered by other columns",
    "primary-key.nullable": "nullable primary keys",
    "sequence.snapshot-ordering": "ordering by snapshot",
    "query-auth.enabled": "query authorisation",
}
_SWITCHES_WRITE = {
    "clustering.incremental": "incremental clustering",
}
# Options whose mere presence matters.
_SET_READ = {
    "scan.fallback-branch": "fallback branches",
    "scan.fallback-snapshot-branch": "fallback branches",
    "scan.fallback-delta-branch": "fallback branches",
    "scan.primary-branch": "fallback branches",
}
_EXTERNAL = "data-file.external-paths"
_SET_WRITE = {
    _EXTERNAL: "external data paths",
    "commit.callbacks": "commit callbacks",
    "tag.callbacks": "tag callbacks",
}

# Besides those that cannot change: what decides which of two rows stays.
_MERGING = frozenset({"ignore-delete", "sequence.field", "sequence.field.sort-order"})


class Purpose(IntEnum):
    """What is about to be done; each purpose refuses what the ones before it refuse, and more."""

    READ = 0
    WRITE = 1
    COMPACT = 2


def require_readable(
    store: TableStore, snapshot: Snapshot | None = None, columns: Collection[str] | None = None
) -> None:
    """Raise UnsupportedFeature naming feature and table when its rows (at ``snapshot``) cannot be read truthfully.

    Reads metadata only.

    Args:
        store: The table.
        snapshot: The version, None for the newest.
        columns: What is read of the rows, filters included (None: all columns). A column of a type that cannot be read is in the
            way only where it is among them, or where a merge looks at it.
    """
    for feature in _declared(store, Purpose.READ, columns):
        raise UnsupportedFeature(feature, store.name)
    require_supported(store, Purpose.READ, snapshots.latest(store) if snapshot is None else snapshot)


def require_plain_files(store: TableStore, snapshot: Snapshot, entries: pa.Table) -> None:
    """Raise UnsupportedFeature when readers of Parquet files by column name would see other rows in ``entries`` than we do.

    That is so with deletion vectors, other formats, and files written with other columns than today's.
    """
    if any(entry.index_type.upper() == _VECTORS for entry in manifests.index_entries(store, snapshot)):
        raise UnsupportedFeature("deletion vectors in another engine's reader", store.name)
    if not pc.all(pc.ends_with(entries.column("file_name"), ".parquet"), min_count=0).as_py():
        raise UnsupportedFeature("files of another format than Parquet in another engine's reader", store.name)
    today = [(field.id, field.name, field.type.with_nullable(nullable=True)) for field in store.schema.fields]
    for found in pc.unique(entries.column("schema_id")).to_pylist():
        written = store.schema_of(found)
        if [(field.id, field.name, field.type.with_nullable(nullable=True)) for field in written.fields] != today:
            older = f"files written with an older schema (id {written.id}, now {store.schema.id})"
            raise UnsupportedFeature(f"{older} in another engine's reader", store.name)


def require_declared_places(store: TableStore, entries: pa.Table) -> None:
    """Refuse to open data files outside the table's folder, or to rewrite them, where the table declares no place for such files.

    Java's `import_files` leaves entries of this kind.

    Args:
        store: The table.
        entries: Manifest entries, with their `external_path`.

    Raises:
        UnsupportedFeature: There is such a file; the message names it.
    """
    outside = _undeclared(store, entries)
    if outside is not None:
        raise UnsupportedFeature(outside, store.name)


def _undeclared(store: TableStore, entries: pa.Table) -> str | None:
    """What is said of the first data file outside the table's folder on a table that declares no external paths."""
    if store.options.get(_EXTERNAL):
        return None
    outside = entries.column("external_path").drop_null()
    if not len(outside):
        return None
    return f"data files outside its folder, which '{_EXTERNAL}' does not declare ({len(outside):,}, such as {outside[0].as_py()})"


def require_writable(store: TableStore) -> None:
    """Raise UnsupportedFeature naming feature and table when rows cannot be added without breaking it.

    Raises LockRequired and InvalidOption too, where its commits could be lost for want of a lock, or the lock that it names cannot be.
    """
    require_possible(store, Purpose.WRITE)
    require_supported(store, Purpose.WRITE, snapshots.latest(store))


def require_possible(store: TableStore, purpose: Purpose) -> None:
    """As :func:`require_writable` and :func:`require_compactable`, by what schema and options tell: no snapshot is looked at."""
    for feature in _declared(store, purpose):
        raise UnsupportedFeature(feature, store.name)
    if purpose is Purpose.WRITE:
        table_lock(store.file_io, store.root, store.name, store.options, store.clock)


def require_supported(store: TableStore, purpose: Purpose, snapshot: Snapshot | None) -> None:
    """Raise UnsupportedFeature for what the files of ``snapshot`` need; asked again it reads nothing, unless schema or indexes changed."""
    if snapshot is None:
        return
    # No index manifest's name is given twice, and no file is of a newer schema than its snapshot.
    asked = ("supported", purpose, store.schema.id, snapshot.schema_id, snapshot.index_manifest)
    if purpose is Purpose.COMPACT and (doubt := _doubted_version(store, snapshot)):
        raise UnsupportedFeature(doubt, store.name)
    if store.kept.get(asked):
        return
    for feature in _in_use(store, purpose, snapshot):
        raise UnsupportedFeature(feature, store.name)
    if not _other_formats(store):
        store.kept.put(asked, "yes", len(snapshot.index_manifest or ""))


def require_compactable(store: TableStore, snapshot: Snapshot | None = None) -> None:
    """Raise UnsupportedFeature naming feature and table when a compaction could change answers or lose a side product.

    ``snapshot``: the newest, where it has just been read.
    """
    require_possible(store, Purpose.COMPACT)
    require_supported(store, Purpose.COMPACT, snapshots.latest(store) if snapshot is None else snapshot)


def require_current(store: TableStore, entries: pa.Table, what: str) -> None:
    """Raise WriterStale when rewriting ``entries`` with the schema of ``store`` could lose something.

    A table opened before a column was added would rewrite newer files without it, one opened before the sequence field
    changed would keep the wrong row. ``entries``: manifest entries, with their schema_id.
    """
    require_schema(store, pc.max(entries.column("schema_id")).as_py(), what)


def require_schema(store: TableStore, newest: int | None, what: str) -> None:
    """:func:`require_current` of rows whose ``newest`` schema is known (None: there are no rows)."""
    known = store.schema.id
    now = max(schemas.list_schema_ids(store.file_io, store.root, store.branch), default=known)
    newer = newest is not None and newest > known
    if newer or (now > known and _meaning(store.schema_of(now)) != _meaning(store.schema)):
        raise WriterStale(
            f"table {store.name} was opened with schema {known} and has schema {now} now: open it again before {what}"
        )


def _meaning(schema: TableSchema) -> tuple[object, ...]:
    """What decides how rows are rewritten: columns, primary key, and the options that cannot change or say which row stays."""
    decisive = {
        name: value
        for name, value in canonical(schema.options).items()
        if name in _MERGING or name.startswith("fields.") or (name in REGISTRY and REGISTRY[name].immutable)
    }
    return [(f.id, f.name, f.type) for f in schema.fields], schema.primary_keys, decisive


def unsupported(store: TableStore, purpose: Purpose) -> list[str]:
    """Return everything that stands in the way of ``purpose``, most telling first; empty when it is fine."""
    snapshot = snapshots.latest(store)
    used = [] if snapshot is None else list(_in_use(store, purpose, snapshot))
    if snapshot is not None and purpose is Purpose.COMPACT:
        outside = _undeclared(store, manifests.live_entries(store, snapshot, columns=["external_path"]))
        used += [reason for reason in (_doubted_version(store, snapshot), outside) if reason is not None]
    return list(dict.fromkeys([*_declared(store, purpose), *used]))


def _doubted_version(store: TableStore, snapshot: Snapshot) -> str | None:
    """Why a merge that is written down might follow the wrong version of Paimon; tables without keys merge nothing."""
    if not store.has_primary_key:
        return None
    judged = paimon_version.read_evidence(store.file_io, store.snapshot_dir, store.kept, snapshot)
    return paimon_version.find_contradiction(store.options, store.version_found, judged)


def _declared(store: TableStore, purpose: Purpose, columns: Collection[str] | None = None) -> Iterator[str]:
    """What schema and options ask for; ``columns``: what is read of the rows (None: all)."""
    yield from _options(store, purpose)
    for field in store.schema.fields:
        left_out = columns is not None and field.name not in columns and not _merged_by(store, field.name)
        refused = _REFUSED_TYPES - _UNREAD_TYPES if left_out else _REFUSED_TYPES
        if any(kind.root in refused for kind in field.type.with_inner()):
            yield f"column '{field.name}' of type {field.type.with_nullable(nullable=True)}"
    if purpose >= Purpose.WRITE:
        yield from _buckets(store)
        yield from _indexes_by_option(store)


def _merged_by(store: TableStore, column: str) -> bool:
    """Whether a merge looks at ``column`` whatever is read: keys, the order of versions, groups of columns."""
    decisive = {*store.schema.primary_keys, *store.schema.partition_keys, *store.options.sequence_field}
    for key in store.options.raw:
        if key.startswith("fields.") and key.endswith(".sequence-group"):
            decisive |= {name.strip() for name in key[len("fields.") : -len(".sequence-group")].split(",")}
    return column in decisive


def _in_use(store: TableStore, purpose: Purpose, snapshot: Snapshot) -> Iterator[str]:
    """What the files of a snapshot need."""
    if purpose >= Purpose.WRITE:
        # An option may have been switched off while files still depend on the index.
        kinds = {entry.index_type.upper() for entry in manifests.index_entries(store, snapshot)}
        if store.bucket_mode is BucketMode.DYNAMIC:
            kinds.discard(_HASH)
        if _keeps_vectors(store):
            kinds.discard(_VECTORS)
        yield from (_NAMES_OF_INDEXES.get(kind, f"index '{kind}'") for kind in sorted(kinds))
    yield from _files_in_use(store, snapshot)


def _keeps_vectors(store: TableStore) -> bool:
    """Whether writes and compactions keep deletion vectors up; where the option is off Java sees the deleted rows again."""
    return store.options.deletion_vectors_enabled


def _options(store: TableStore, purpose: Purpose) -> Iterator[str]:
    options = store.options
    kind = str(options.get("type")).lower()
    if kind != "table":
        yield f"tables of type '{kind}'"
    if options.is_set("branch") and options.get("branch") != store.branch:
        yield f"another branch by option ('branch' = '{options.get('branch')}')"
    switches = _SWITCHES_READ if purpose < Purpose.WRITE else {**_SWITCHES_READ, **_SWITCHES_WRITE}
    present = _SET_READ if purpose < Purpose.WRITE else {**_SET_READ, **_SET_WRITE}
    yield from (what for key, what in switches.items() if options.get(key))
    yield from (what for key, what in present.items() if options.get(key))
    formats = {options.file_format, *(str(f).lower() for f in options.get("file.format.per.level").values())}
    told = str(options.get("changelog-file.format") or "").lower()
    if purpose >= Purpose.WRITE and told:
        formats.add(told)
    yield from (f"file format '{name}'" for name in sorted(formats - _FORMATS))
    if str(options.get("manifest.format")).lower() != "avro":
        yield f"manifests of format '{options.get('manifest.format')}'"
    if purpose >= Purpose.WRITE and options.raw.get("metadata.iceberg.storage", "disabled").lower() != "disabled":
        yield "Iceberg metadata (metadata.iceberg.storage)"


def _buckets(store: TableStore) -> Iterator[str]:
    bucket = store.options.bucket
    if store.schema.cross_partition and bucket == POSTPONE_BUCKET:
        yield "primary keys that do not hold all partition keys (cross-partition updates) with postponed buckets"
    elif store.has_primary_key and bucket == POSTPONE_BUCKET:
        options = store.options
        if options.changelog_producer != "none" or options.deletion_vectors_enabled:
            yield "postponed buckets (bucket = -2) with a changelog producer or deletion vectors"
    elif bucket > 0 and not store.schema.bucket_key_types:
        yield "append tables with buckets and no bucket-key"


def _indexes_by_option(store: TableStore) -> Iterator[str]:
    kinds = {
        key.split(".")[1] for key in store.options.raw if key.startswith("file-index.") and key.endswith(".columns")
    }
    yield from (f"file index '{kind}'" for kind in sorted(kinds - _FILE_INDEXES))
    for key in sorted(store.options.raw):
        if key.endswith(".index.columns") and key.startswith("pk-"):
            yield f"index '{key}'"


def _files_in_use(store: TableStore, snapshot: Snapshot) -> Iterator[str]:
    """Files of a format that was once allowed; entries are only read when the table's history makes that possible."""
    once = _other_formats(store)
    if not once:
        return
    live = manifests.live_entries(store, snapshot, columns=["file_name"]).column("file_name")
    for name in sorted(once):
        if pc.any(pc.ends_with(live, f".{name}"), min_count=0).as_py():
            yield f"file format '{name}'"


def _other_formats(store: TableStore) -> set[str]:
    """Formats that files of the table may have had by one of its schemas, of those that are not read here."""
    ids = schemas.list_schema_ids(store.file_io, store.root, store.branch)
    return {str(store.schema_of(i).options.get("file.format", "parquet")).strip().lower() for i in ids} - _FORMATS
