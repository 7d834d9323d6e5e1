"""Support checks: refuse tables with features that Dredge cannot maintain, before any file is written.

The errors name the feature. A compaction of or a write to such a table would lose its changelog, restore deleted rows
or leave an index outdated.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from enum import IntEnum

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import UnsupportedFeature, WriterStale
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import branches, manifests, paimon_version, snapshots
from lsm_core.metadata.store import POSTPONE_BUCKET, BucketMode, TableStore, list_schema_ids
from lsm_core.options import REGISTRY, TableOptions, canonical, inline_default
from lsm_core.types import DataType, TypeRoot

_UNREAD_TYPES = frozenset({TypeRoot.GEOMETRY, TypeRoot.GEOGRAPHY, TypeRoot.UNKNOWN})
"""Column types that cannot be read; a read is possible if it leaves these columns out."""
_REFUSED_TYPES = _UNREAD_TYPES | {TypeRoot.BLOB, TypeRoot.VECTOR}
"""Types of `_UNREAD_TYPES`, and types whose values are in separate files."""
_UNREAD_BLOBS = ("blob-external-storage-field", "blob-view-field")
_INLINE_BLOBS = (manifests.DESCRIPTORS, *_UNREAD_BLOBS)
"""Options that list BLOB columns whose data files hold references to other files."""
_UNORDERED_TYPES = _REFUSED_TYPES | {TypeRoot.VARIANT, TypeRoot.ARRAY, TypeRoot.MULTISET, TypeRoot.MAP, TypeRoot.ROW}
"""Types by which rows cannot be sorted."""
_FORMATS = frozenset({"parquet", "orc", "avro"})
_READ_ONLY = frozenset({"row", "csv", "json", "text"})
"""Formats of which files are read if the kind of table allows it; new files of their tables are Parquet files."""
_CONVERSION = "set 'file.format' = 'parquet' and write the rows again"
_WRONG_KEYED = (
    "Paimon 2.0 and 2.1 read such a table with values in the wrong columns, and their compaction stores these values"
)
_FILE_INDEXES = frozenset({"bloom-filter", "bitmap", "bsi", "range-bitmap"})
_HASH, _VECTORS = "HASH", "DELETION_VECTORS"
_SORTED_INDEXES = frozenset({"BTREE", "BITMAP", "MULTIVALUE"})
"""Types of indexes of primary-key tables without which Paimon's readers scan the data files.

A commit removes them when their data files change (`commit.message`).
"""
_INDEXED_COLUMNS = ".index.columns"
_INDEX_LOST = "searches read only files that it covers, and only Paimon's own compaction rebuilds it"
_NAMES_OF_INDEXES = {_HASH: "hash index", _VECTORS: "deletion vectors"}

# Boolean options that change the meaning of rows or the files to write, with their names for messages.
_SWITCHES_READ = {
    "chain-table.enabled": "chain tables",
    "query-auth.enabled": "query authorisation",
}
_WHY_CLUSTERED = (
    "primary-key tables clustered by other columns: their files are not sorted by key, so that only Paimon's own "
    "compaction finds the older row of a key"
)
_MERGES_BRANCHES = "branch-merge.enabled"
_NEW_ROW_IDS = "data-evolution.compaction.rewrite-row-ids"
# Options that matter as soon as they are set.
_SET_READ = {
    "scan.fallback-snapshot-branch": "fallback branches of chain tables",
    "scan.fallback-delta-branch": "fallback branches of chain tables",
}
_GLOBAL_INDEX_PATH = "global-index.external-path"
_ICEBERG = "metadata.iceberg.storage"
_ICEBERG_HIVE, _ICEBERG_REST = "hive-catalog", "rest-catalog"
_ICEBERG_CLIENT = "metadata.iceberg.hive-client-class"
_HIVE_CLIENT = "org.apache.hadoop.hive.metastore.HiveMetaStoreClient"
_ICEBERG_GLUE = "metadata.iceberg.glue.skip-archive"
_ICEBERG_TIMESTAMPS = (3, 6)
_ICEBERG_TIME = 3
_SET_WRITE = {
    _GLOBAL_INDEX_PATH: f"global indexes in another folder ('{_GLOBAL_INDEX_PATH}')",
    "commit.callbacks": "commit callbacks",
    "tag.callbacks": "tag callbacks",
}

# Mutable options that decide which of two rows a merge keeps.
_MERGING = frozenset({"ignore-delete", "sequence.field", "sequence.field.sort-order"})


class Purpose(IntEnum):
    """Purpose of an operation; each purpose refuses all features that the purposes before it refuse, and more."""

    READ = 0
    WRITE = 1
    COMPACT = 2


def require_readable(
    store: TableStore, snapshot: Snapshot | None = None, columns: Collection[str] | None = None
) -> None:
    """Check that the rows of a table can be read correctly; only metadata is read.

    Args:
        store: the table.
        snapshot: the snapshot to read, or None for the newest.
        columns: columns to read, including columns of filters, or None for all. A column of an unreadable type is
            refused only if ``columns`` contains it or a merge needs it.

    Raises:
        TableNotFound: the table was dropped, renamed or replaced since it was opened.
        UnsupportedFeature: the rows cannot be read; the message names feature and table.
    """
    store.require_same()
    for feature in _unsupported_by_schema(store, Purpose.READ, columns):
        raise UnsupportedFeature(feature, store.name)
    require_supported(store, Purpose.READ, snapshots.latest(store) if snapshot is None else snapshot)


def require_plain_files(store: TableStore, snapshot: Snapshot, entries: pa.Table) -> None:
    """Check that an engine that reads the Parquet files itself, by column name, sees the same rows as Dredge.

    Refused are tables with deletion vectors or data evolution, with files that are not Parquet, or with files whose
    schema has different columns than the table.

    Args:
        store: the table.
        snapshot: the snapshot to read.
        entries: manifest entries of the files to read.

    Raises:
        UnsupportedFeature: the engine could see different rows; the message names feature and table.
    """
    if any(entry.index_type.upper() == _VECTORS for entry in manifests.index_entries(store, snapshot)):
        raise UnsupportedFeature("deletion vectors in another engine's reader", store.name)
    if manifests.evolves(store):
        raise UnsupportedFeature("columns of several files (data evolution) in another engine's reader", store.name)
    if any(inner.root is TypeRoot.VARIANT for field in store.schema.fields for inner in field.type.with_inner()):
        raise UnsupportedFeature("columns of type VARIANT in another engine's reader", store.name)
    if not pc.all(pc.ends_with(entries.column("file_name"), ".parquet"), min_count=0).as_py():
        raise UnsupportedFeature("files of another format than Parquet in another engine's reader", store.name)
    current_fields = [(field.id, field.name, field.type.with_nullable(nullable=True)) for field in store.schema.fields]
    for schema_id in pc.unique(entries.column("schema_id")).to_pylist():
        file_schema = store.schema_of(schema_id)
        if [
            (field.id, field.name, field.type.with_nullable(nullable=True)) for field in file_schema.fields
        ] != current_fields:
            reason = f"files written with an older schema (id {file_schema.id}, now {store.schema.id})"
            raise UnsupportedFeature(f"{reason} in another engine's reader", store.name)


def require_allowed_places(store: TableStore, entries: pa.Table) -> None:
    """Refuse to open or rewrite data files in external paths that the operator does not allow.

    Args:
        store: the table.
        entries: manifest entries with their `external_path`.

    Raises:
        UnsupportedFeature: a file is in a folder that is not allowed; the message names the folder and the variable.
        CorruptFile: a path leads out of the allowed folder, for example by a symbolic link.
    """
    reason = describe_refused_places(store, entries)
    if reason is not None:
        raise UnsupportedFeature(reason, store.name)


def describe_refused_places(store: TableStore, entries: pa.Table) -> str | None:
    """Return a description of the external data files that the operator does not allow to read, or None.

    Args:
        store: the table.
        entries: manifest entries with their `external_path`.

    Raises:
        CorruptFile: a path leads out of the allowed folder, for example by a symbolic link.
    """
    outside = entries.column("external_path").drop_null()
    if not len(outside):
        return None
    if {"partition", "bucket", "file_name"} <= set(entries.column_names):
        named = entries.select(["partition", "bucket", "file_name"])
        if named.filter(pc.is_valid(entries.column("external_path"))).group_by(named.column_names).aggregate(
            []
        ).num_rows < len(outside):
            return "external files of one name in several folders: Dredge finds files of a bucket by their names"
    folders = pc.unique(pc.replace_substring_regex(outside, "/[^/]*$", "/-"))
    external = store.external_paths
    for folder in folders.to_pylist():  # one object per bucket folder
        try:
            external.locate(folder, "-")
        except UnsupportedFeature as error:
            return f"{error.feature} ({len(outside):,} files, such as {outside[0].as_py()})"
    return None


def require_writable(store: TableStore) -> None:
    """Check that rows can be added without damage to the table.

    Raises:
        TableNotFound: the table was dropped, renamed or replaced since it was opened.
        UnsupportedFeature: the table cannot be written; the message names feature and table.
        LockRequired: commits could be lost, because the storage needs a lock and no lock is configured.
        InvalidOption: the lock cannot be used.
    """
    store.require_same()
    require_possible(store, Purpose.WRITE)
    require_supported(store, Purpose.WRITE, snapshots.latest(store))


def require_possible(store: TableStore, purpose: Purpose) -> None:
    """Check that the schema and the options of a table allow an operation of a purpose; no snapshot is read.

    Raises:
        UnsupportedFeature: the purpose is not possible; the message names feature and table.
        LockRequired: (only for purpose WRITE) the storage needs a lock and no lock is configured.
        InvalidOption: (only for purpose WRITE) the lock or a default setting cannot be used.
    """
    for feature in _unsupported_by_schema(store, purpose):
        raise UnsupportedFeature(feature, store.name)
    if purpose is Purpose.WRITE:
        from lsm_core.locks import table_lock  # imported here: reads take no lock

        inline_default()  # a bad value is refused here, not when the rows are committed already
        table_lock(store.file_io, store.root, store.name, store.options, store.clock)


def require_supported(store: TableStore, purpose: Purpose, snapshot: Snapshot | None) -> None:
    """Check that Dredge supports all features that the files of a snapshot need.

    A passed check of formats and indexes is cached until the schema or the index manifest changes.

    Args:
        store: the table.
        purpose: purpose of the operation.
        snapshot: the snapshot, or None if the table is empty.

    Raises:
        UnsupportedFeature: the purpose is not possible; the message names feature and table.
    """
    if snapshot is None:
        return
    # Names of index manifests are never reused, and no file has a newer schema than its snapshot.
    cache_key = ("supported", purpose, store.schema.id, snapshot.schema_id, snapshot.index_manifest)
    if purpose is Purpose.COMPACT:
        for refuse in (_find_contradiction, _find_mergeable_history):
            if (reason := refuse(store, snapshot)) is not None:
                raise UnsupportedFeature(reason, store.name)
    if store.kept.get(cache_key):
        return
    for feature in _unsupported_files(store, purpose, snapshot):
        raise UnsupportedFeature(feature, store.name)
    if not _former_formats(store):
        store.kept.put(cache_key, "yes", len(snapshot.index_manifest or ""))


def require_compactable(store: TableStore, snapshot: Snapshot | None = None) -> None:
    """Check that a compaction cannot change the rows that reads return, and loses no changelog and no index.

    Args:
        store: the table.
        snapshot: the newest snapshot if the caller has just read it and has checked that the table exists; else None.

    Raises:
        TableNotFound: the table was dropped, renamed or replaced since it was opened.
        UnsupportedFeature: the table cannot be compacted; the message names feature and table.
    """
    if snapshot is None:
        store.require_same()
    require_possible(store, Purpose.COMPACT)
    require_supported(store, Purpose.COMPACT, snapshots.latest(store) if snapshot is None else snapshot)


def require_current(store: TableStore, entries: pa.Table, operation: str) -> None:
    """Check that the files of ``entries`` can be rewritten with the schema of ``store`` without loss of data.

    If the table was opened before a column was added, a rewrite of newer files would lose that column. If the table was
    opened before the sequence field changed, a merge would keep the wrong row.

    Args:
        store: the table.
        entries: manifest entries with their schema_id.
        operation: the operation in words, for the message.

    Raises:
        WriterStale: the table must be opened again.
    """
    require_schema(store, pc.max(entries.column("schema_id")).as_py(), operation)


def require_schema(store: TableStore, newest: int | None, operation: str) -> None:
    """Check that rows of schemas up to ``newest`` can be rewritten with the schema of ``store`` without loss of data.

    Args:
        store: the table.
        newest: largest schema id of the rows, or None without rows.
        operation: the operation in words, for the message.

    Raises:
        WriterStale: the table must be opened again.
    """
    own_id = store.schema.id
    current_id = max(list_schema_ids(store.file_io, store.root, store.branch), default=own_id)
    has_newer_rows = newest is not None and newest > own_id
    if has_newer_rows or (
        current_id > own_id and _rewrite_rules(store.schema_of(current_id)) != _rewrite_rules(store.schema)
    ):
        raise WriterStale(
            f"table {store.name} was opened with schema {own_id} and has schema {current_id} now: "
            f"open it again before {operation}"
        )


def _rewrite_rules(schema: TableSchema) -> tuple[object, ...]:
    """Return the settings that decide how rows are rewritten: columns, primary key, immutable and merge options."""
    decisive = {
        name: value
        for name, value in canonical(schema.options).items()
        if name in _MERGING or name.startswith("fields.") or (name in REGISTRY and REGISTRY[name].immutable)
    }
    return [(f.id, f.name, f.type) for f in schema.fields], schema.primary_keys, decisive


def unsupported(store: TableStore, purpose: Purpose) -> list[str]:
    """Return the reasons why the table allows no operation of ``purpose``, the most important first; empty if none."""
    snapshot = snapshots.latest(store)
    used = [] if snapshot is None else list(_unsupported_files(store, purpose, snapshot))
    if snapshot is not None and purpose is Purpose.COMPACT:
        outside = describe_refused_places(store, manifests.live_entries(store, snapshot, columns=["external_path"]))
        reasons = (_find_contradiction(store, snapshot), _find_mergeable_history(store, snapshot), outside)
        used += [reason for reason in reasons if reason is not None]
    return list(dict.fromkeys([*_unsupported_by_schema(store, purpose), *used]))


def _find_contradiction(store: TableStore, snapshot: Snapshot) -> str | None:
    """Return why a compaction or write might merge by the wrong Paimon version, or None if it cannot.

    Append tables do not merge rows, so their result is None.
    """
    if not store.has_primary_key:
        return None
    judged = paimon_version.read_evidence(store.file_io, store.snapshot_dir, store.kept, snapshot)
    return paimon_version.find_contradiction(store.options, store.version_found, judged)


def _find_mergeable_history(store: TableStore, snapshot: Snapshot) -> str | None:
    """Return why a compaction of an append table would prevent a later merge of its branches, or None.

    Paimon merges two branches only if both still have all snapshots from the first on, and all append or ANALYZE.

    Source: `FileSystemBranchManager.mergeBranch` (Paimon 2.0 and 2.1).
    """
    if store.has_primary_key or store.options.mergeable_branches != "closed" or snapshots.earliest_id(store) != 1:
        return None
    names = [name for name in branches.list_branches(store) if name != branches.MAIN]
    if not names:
        return None
    for number in range(snapshot.id, 0, -1):
        earlier = snapshot if number == snapshot.id else snapshots.try_read(store, number)
        if earlier is None or earlier.commit_kind not in (CommitKind.APPEND, CommitKind.ANALYZE):
            return None
    return (
        f"compaction of an append table whose branches ({', '.join(sorted(names)[:3])}) can still be merged: Paimon's "
        "merge_branch requires a history of appends; delete the branches, or set "
        "'dredge.compaction.mergeable-branches' = 'as-paimon'"
    )


def require_appends_only(store: TableStore, operation: str) -> None:
    """Refuse an operation that removes files from a table whose branches can be merged (`branch-merge.enabled`).

    Args:
        store: the table.
        operation: the operation, for the message.

    Raises:
        UnsupportedFeature: the table accepts only appends.
    """
    if store.options.get(_MERGES_BRANCHES):
        raise UnsupportedFeature(
            f"{operation} with '{_MERGES_BRANCHES}' = 'true': a merge of branches needs the files of every commit",
            store.name,
        )


def require_sorted_keys(store: TableStore, operation: str) -> None:
    """Refuse an operation that finds keys by the order of the rows of a file.

    Args:
        store: the table.
        operation: the operation, for the message.

    Raises:
        UnsupportedFeature: the files are sorted by other columns (`pk-clustering-override`).
    """
    if store.options.clusters_keys:
        raise UnsupportedFeature(f"{operation} of {_WHY_CLUSTERED}", store.name)


def require_whole_rows(store: TableStore, operation: str) -> None:
    """Refuse an operation that needs files with all columns of their rows.

    Args:
        store: the table.
        operation: the operation, for the message.

    Raises:
        UnsupportedFeature: the table has data evolution, so a file may have only some columns of its rows.
    """
    if manifests.evolves(store):
        reason = "a file may have only some columns of its rows"
        raise UnsupportedFeature(f"{operation} with 'data-evolution.enabled' = 'true': {reason}", store.name)


def _unsupported_by_schema(
    store: TableStore, purpose: Purpose, columns: Collection[str] | None = None
) -> Iterator[str]:
    """Yield the unsupported features of schema and options.

    Args:
        store: the table.
        purpose: the purpose of the operation.
        columns: columns that are read, or None for all.
    """
    yield from _unsupported_options(store, purpose)
    for field in store.schema.fields:
        is_left_out = columns is not None and field.name not in columns and not _is_merge_column(store, field.name)
        refused = _REFUSED_TYPES - _UNREAD_TYPES if is_left_out else _REFUSED_TYPES
        if field.type.root is TypeRoot.BLOB and manifests.evolves(store):
            keys = _UNREAD_BLOBS if purpose is not Purpose.WRITE else _INLINE_BLOBS
            inline = next((key for key in keys if field.name in manifests.names_in(store, key)), None)
            if inline is not None and not is_left_out:
                yield f"column '{field.name}' of '{inline}'"
        elif any(inner_type.root in refused for inner_type in field.type.with_inner()):
            yield f"column '{field.name}' of type {field.type.with_nullable(nullable=True)}"
    if purpose is Purpose.COMPACT and store.options.get(_MERGES_BRANCHES):
        yield f"compaction with '{_MERGES_BRANCHES}' = 'true': a merge of branches needs the files of every commit"
    if purpose >= Purpose.WRITE:
        yield from _unsupported_buckets(store)
        yield from _unsupported_indexes(store)
        yield from _unsupported_variants(store, purpose)
    if store.options.get("data-evolution.enabled") and not manifests.evolves(store):
        yield "data evolution without 'row-tracking.enabled', or with a primary key"
    if purpose is Purpose.COMPACT and manifests.evolves(store) and store.options.get(_NEW_ROW_IDS):
        yield f"compaction with '{_NEW_ROW_IDS}' = 'true', which Paimon 2.1 refuses: compactions keep row ids; unset"
    if purpose is Purpose.COMPACT and store.options.clusters_incrementally:
        yield from _unsupported_clustering(store)


def _unsupported_variants(store: TableStore, purpose: Purpose) -> Iterator[str]:
    """Yield why columns of type VARIANT cannot be written or compacted.

    Paimon stores them in Parquet files only.
    """
    names = [
        field.name
        for field in store.schema.fields
        if any(inner_type.root is TypeRoot.VARIANT for inner_type in field.type.with_inner())
    ]
    if not names:
        return
    others = sorted((_FORMATS & _formats_of(store.options, purpose)) - {"parquet"})
    yield from (f"column '{names[0]}' of type VARIANT in files of format '{name}'" for name in others)


def _unsupported_clustering(store: TableStore) -> Iterator[str]:
    """Yield why the files of a table with incremental clustering cannot be sorted."""
    options, schema = store.options, store.schema
    feature = "incremental clustering"
    if store.has_primary_key:
        yield f"{feature} of a table with a primary key: unset 'clustering.incremental'"
        return
    columns = [name for name in options.clustering_columns if name not in schema.partition_keys]
    if not columns:
        yield f"{feature} without a column to sort by: set 'clustering.columns'"
    for name in columns:
        if not schema.has_field(name):
            yield f"{feature} by column '{name}', which does not exist: set 'clustering.columns'"
        elif schema.field(name).type.root in _UNORDERED_TYPES:
            yield f"{feature} by column '{name}' of type {schema.field(name).type.with_nullable(nullable=True)}"
    if options.bucket > 0 and options.get("bucket-append-ordered"):
        yield f"{feature} of buckets whose rows keep their order: set 'bucket-append-ordered' = 'false'"
    if options.bucket > 0 and options.deletion_vectors_enabled:
        yield f"{feature} of buckets with deletion vectors"


def _is_merge_column(store: TableStore, column: str) -> bool:
    """Return whether every merge needs ``column``: a key, partition or sequence field, or a sequence group's field."""
    decisive = {*store.schema.primary_keys, *store.schema.partition_keys, *store.options.sequence_field}
    for key in store.options.raw:
        if key.startswith("fields.") and key.endswith(".sequence-group"):
            decisive |= {name.strip() for name in key[len("fields.") : -len(".sequence-group")].split(",")}
    return column in decisive


def _unsupported_files(store: TableStore, purpose: Purpose, snapshot: Snapshot) -> Iterator[str]:
    """Yield the unsupported features that the files of a snapshot need."""
    if purpose >= Purpose.WRITE:
        # Files may still depend on the index after the option was switched off.
        kinds = {entry.index_type.upper() for entry in manifests.index_entries(store, snapshot)}
        if store.bucket_mode is BucketMode.DYNAMIC:
            kinds.discard(_HASH)
        if _keeps_vectors(store):
            kinds.discard(_VECTORS)
        if store.has_primary_key:
            kinds -= _SORTED_INDEXES
        yield from (_NAMES_OF_INDEXES.get(kind, f"index '{kind}': {_INDEX_LOST}") for kind in sorted(kinds))
    yield from _unsupported_formats(store, snapshot)


def _keeps_vectors(store: TableStore) -> bool:
    """Return whether writes and compactions maintain deletion vectors (`deletion-vectors.enabled`).

    If the option is off, Java ignores the deletion vectors of existing files and returns the deleted rows again.
    """
    return store.options.deletion_vectors_enabled


def _unsupported_options(store: TableStore, purpose: Purpose) -> Iterator[str]:
    options = store.options
    table_type = str(options.get("type")).lower()
    if table_type != "table":
        yield f"tables of type '{table_type}'"
    if options.is_set("branch") and options.get("branch") != store.branch:
        yield f"another branch by option ('branch' = '{options.get('branch')}')"
    present = _SET_READ if purpose < Purpose.WRITE else {**_SET_READ, **_SET_WRITE}
    yield from (feature for key, feature in _SWITCHES_READ.items() if options.get(key))
    yield from (feature for key, feature in present.items() if options.get(key))
    if purpose >= Purpose.WRITE:
        yield from store.external_paths.refusals()
    for name in sorted(_formats_of(options, purpose) - _FORMATS):
        if (reason := _why_refused(store, name)) is not None:
            yield _refused_format(name, reason)
    if str(options.get("manifest.format")).lower() != "avro":
        yield f"manifests of format '{options.get('manifest.format')}'"
    if options.clusters_keys and (purpose >= Purpose.COMPACT or not options.batch_scan_skips_level0):
        yield _WHY_CLUSTERED
    if purpose >= Purpose.WRITE:
        yield from _unsupported_iceberg(store)


def _unsupported_iceberg(store: TableStore) -> Iterator[str]:
    """Yield why the Iceberg metadata of a table cannot be written; nothing if the table has none."""
    storage = str(store.options.get(_ICEBERG)).lower()
    if storage == "disabled":
        return
    if storage == _ICEBERG_REST:
        yield (
            f"'{_ICEBERG}' = '{storage}', for which the table must be entered in an Iceberg REST catalog after each "
            "commit; 'table-location', 'hadoop-catalog' and 'hive-catalog' are supported"
        )
        return
    if storage == _ICEBERG_HIVE:
        client = str(store.options.get(_ICEBERG_CLIENT) or _HIVE_CLIENT).strip()
        if client != _HIVE_CLIENT:
            yield f"the metastore client '{client:.200}' ({_ICEBERG_CLIENT})"
        if store.options.get(_ICEBERG_GLUE):
            yield f"AWS Glue as Hive metastore ({_ICEBERG_GLUE})"
    if manifests.evolves(store):
        yield "Iceberg metadata of a table with data evolution, whose files may have only some columns of their rows"
    for field in store.schema.fields:
        if any(_lacks_iceberg_type(kind) for kind in field.type.with_inner()):
            known = "timestamps of precision 3 to 6, times of precision 0 to 3, and no VARIANT, BLOB or VECTOR"
            yield (
                f"Iceberg metadata of column '{field.name}' of type {field.type.with_nullable(nullable=True)}: "
                f"it has {known}"
            )


def _lacks_iceberg_type(kind: DataType) -> bool:
    precision = kind.precision or 0
    if kind.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return not _ICEBERG_TIMESTAMPS[0] <= precision <= _ICEBERG_TIMESTAMPS[1]
    if kind.root is TypeRoot.TIME:
        return precision > _ICEBERG_TIME
    return kind.root in _REFUSED_TYPES or kind.root is TypeRoot.VARIANT


def _formats_of(options: TableOptions, purpose: Purpose) -> set[str]:
    """Return the formats of data files, and for writers those of changelog files, that the options name."""
    formats = {options.file_format, *(str(f).lower() for f in options.get("file.format.per.level").values())}
    changelog_format = str(options.get("changelog-file.format") or "").lower()
    if purpose >= Purpose.WRITE and changelog_format:
        formats.add(changelog_format)
    return formats


def _unsupported_buckets(store: TableStore) -> Iterator[str]:
    bucket = store.options.bucket
    if store.schema.cross_partition and bucket == POSTPONE_BUCKET:
        yield "primary keys that do not hold all partition keys (cross-partition updates) with postponed buckets"
    elif store.has_primary_key and bucket == POSTPONE_BUCKET:
        options = store.options
        if options.snapshot_ordering:
            yield "postponed buckets (bucket = -2) with 'sequence.snapshot-ordering'"
        elif options.changelog_producer != "none" or options.deletion_vectors_enabled:
            yield "postponed buckets (bucket = -2) with a changelog producer or deletion vectors"
    elif bucket > 0 and not store.schema.bucket_key_types:
        yield "append tables with buckets and no bucket-key"


def _unsupported_indexes(store: TableStore) -> Iterator[str]:
    kinds = {
        key.split(".")[1] for key in store.options.raw if key.startswith("file-index.") and key.endswith(".columns")
    }
    yield from (f"file index '{kind}'" for kind in sorted(kinds - _FILE_INDEXES))
    for key in sorted(store.options.raw):
        if key.endswith(_INDEXED_COLUMNS) and key.startswith("pk-"):
            kind = key.removeprefix("pk-").removesuffix(_INDEXED_COLUMNS)
            if not store.has_primary_key or kind.upper() not in _SORTED_INDEXES:
                yield f"index '{key}': {_INDEX_LOST}"


def _unsupported_formats(store: TableStore, snapshot: Snapshot) -> Iterator[str]:
    """Yield unsupported formats of live files; entries are read only if some schema allowed such a format."""
    formats = _former_formats(store)
    if not formats:
        return
    live = manifests.live_entries(store, snapshot, columns=["file_name"]).column("file_name")
    for name in sorted(formats):
        if pc.any(pc.match_substring_regex(live, rf"\.{re.escape(name)}(\.[a-z0-9]+)?$"), min_count=0).as_py():
            yield _refused_format(name, _why_refused(store, name) or "")


def _why_refused(store: TableStore, name: str) -> str | None:
    """Return why the table cannot have files of a format outside `_FORMATS`, or None if they are read.

    Returns:
        The reason and the remedy; "" for an unknown format.
    """
    if name not in _READ_ONLY:
        return ""
    if store.has_primary_key and name != "json":
        return f"in a table with a primary key: {_WRONG_KEYED}; {_CONVERSION}"
    if store.options.get("row-tracking.enabled"):
        return f"with 'row-tracking.enabled': its files do not name their columns; {_CONVERSION}"
    if name == "text" and [field.type.root for field in store.schema.fields] not in (
        [TypeRoot.VARCHAR],
        [TypeRoot.CHAR],
    ):
        return f"in a table with more than one text column: its files store one column; {_CONVERSION}"
    return None


def _refused_format(name: str, reason: str) -> str:
    """Return the name of an unsupported file format, with the reason if it is known."""
    return f"file format '{name}'" + (f" {reason}" if reason else "")


def _former_formats(store: TableStore) -> set[str]:
    """Return the refused file formats that any schema of the table has set; existing files may have them."""
    ids = list_schema_ids(store.file_io, store.root, store.branch)
    formats = {str(store.schema_of(i).options.get("file.format", "parquet")).strip().lower() for i in ids} - _FORMATS
    return {name for name in formats if _why_refused(store, name) is not None}
