"""Writing of a table's Iceberg metadata after each commit.

A commit extends the metadata of the snapshot before it: manifests whose files stay are used again, and others are
written anew. If that metadata is missing, damaged or of another history, the metadata is built from the snapshot.

The Paimon commit is done before this work begins. A failure is therefore logged and not raised; the next commit of any
engine makes up for it.

Source: ``IcebergCommitCallback``.
"""

from __future__ import annotations

import logging
import re
import shlex
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, numpy_array, one_array
from lsm_core.errors import CorruptFile, DredgeError, StorageRefused, UnsupportedFeature
from lsm_core.format.avro import Container
from lsm_core.format.manifest import ADD, DELETE, VECTORS_INDEX
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.iceberg.entry_bytes import rewrite
from lsm_core.iceberg.manifest_damage import check_sizes
from lsm_core.iceberg.manifest_entries import (
    EntryStatus,
    data_entries,
    file_names,
    merged_into,
    partition_struct,
    vector_entries,
    with_row_ids,
    without_files,
)
from lsm_core.iceberg.manifest_files import (
    EncodedManifest,
    IcebergManifest,
    ManifestContent,
    ManifestForm,
    assign_row_ids,
    decode_manifest,
    decode_manifest_list,
    encode_manifest_list,
    encode_manifests,
    may_have_partitions,
    mentions,
)
from lsm_core.iceberg.schemas import (
    highest_field_id,
    iceberg_schema,
    is_same_schema,
    last_partition_id,
    partition_spec,
)
from lsm_core.iceberg.settings import IcebergSettings, settings_of, writes_metadata
from lsm_core.iceberg.state import (
    COMMIT_IDENTITY,
    RETIRE_PENDING,
    VERSION_HINT,
    IcebergStorage,
    commit_identity,
    metadata_folder,
    read_version_hint,
    storage_of,
    version_in,
    version_path,
)
from lsm_core.iceberg.table_metadata import (
    RetentionLimits,
    SnapshotEntry,
    TableMetadata,
    count_expired,
    decode_metadata,
)
from lsm_core.metadata import manifests, snapshots, tags
from lsm_core.metadata.indexes import index_file_path
from lsm_core.metadata.manifests import NO_ENTRIES
from lsm_core.metadata.store import TableStore, list_schema_ids, load_schema
from lsm_core.storage import is_link, place_of

_LOG = logging.getLogger(__name__)
_MOST_SEARCHED: Final = 200
"""File names that are searched in a manifest's bytes; with more names, manifests are decoded."""
_LISTINGS: Final = 5
_MOST_MISSED: Final = 64
"""Snapshots without Iceberg metadata that one commit adds to older metadata; after more, it is built anew."""
_OWN_FILE: Final = re.compile(
    r"v[0-9]{1,19}\.metadata\.json|version-hint\.text|retire-pending|snap-[0-9]+-[0-9a-f-]{36}\.avro"
    r"|[0-9a-f-]{36}-m[0-9]+\.avro"
)
_DAMAGED: Final = (
    *(CorruptFile, FileNotFoundError, pa.ArrowException),
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError),
)
"""Errors of files that the metadata names: it is then built from the snapshot, whatever their damage."""
_UUID: Final = re.compile(rb'"table-uuid"\s*:\s*"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"')
_BEGINNING: Final = 4096
"""Bytes of a metadata file, at its beginning, that have the UUID of the table."""
_SCHEME: Final = re.compile(r"^file:(?://)?(?=/)")


def publish_commit(store: TableStore, snapshot: Snapshot, entries: pa.Table | None) -> None:
    """Write the Iceberg metadata of a snapshot that was just committed; log a failure instead of raising it.

    Commits to branches do not change the metadata, which has one history, that of the main branch.

    Args:
        store: the table.
        snapshot: the published snapshot.
        entries: manifest entries of the commit in order, or None if the snapshot lost files without an entry.
    """
    try:
        write_metadata(store, snapshot, entries)
    except Exception as error:  # noqa: BLE001 - the commit is done, and must not be reported as failed
        _LOG.warning(
            "table %s: snapshot %d is committed, but its Iceberg metadata was not written, or not entered in its "
            "metastore (the next commit tries again, or `dredge refresh-iceberg %s`): %s",
            store.name,
            snapshot.id,
            shlex.quote(store.name),
            error,
        )


def publish_again(store: TableStore, snapshot_id: int) -> None:
    """Write the Iceberg metadata of an earlier commit that was repeated, if it is missing; log a failure.

    Args:
        store: the table.
        snapshot_id: id of the snapshot that the commit made.
    """
    try:
        snapshot = snapshots.try_read(store, snapshot_id)
        entries = None if snapshot is None else manifests.delta_entries(store, snapshot)
    except (OSError, DredgeError) as error:
        _LOG.warning("table %s: Iceberg metadata of snapshot %d: %s", store.name, snapshot_id, error)
        return
    if snapshot is not None:
        publish_commit(store, snapshot, entries)


def write_metadata(
    store: TableStore,
    snapshot: Snapshot,
    entries: pa.Table | None = None,
    *,
    keeps_table: bool = False,
    rebuilds: bool = False,
) -> bool:
    """Write the Iceberg metadata of a snapshot, unless it exists or a newer snapshot has metadata.

    Args:
        store: the table.
        snapshot: the snapshot.
        entries: manifest entries of the commit in order, or None to build the metadata from the snapshot.
        keeps_table: whether metadata that exists beside snapshot 1 is the table's own, as after a rollback, and not
            that of a dropped table of the same name.
        rebuilds: whether metadata of the snapshot is written anew although it exists, without older snapshots.

    Returns:
        Whether the table has Iceberg metadata of the snapshot now.

    Raises:
        DredgeError: the metadata cannot be written; files that were written for it are deleted.
        OSError: the storage failed.
    """
    if store.branch != "main" or not writes_metadata(store.options):
        return False
    folder = metadata_folder(store)
    assert folder is not None  # the option is set
    return _Publication(store, snapshot, folder).publish(entries, keeps_table=keeps_table, rebuilds=rebuilds)


@dataclass(frozen=True)
class _Identity:
    """What new metadata keeps of metadata that it replaces.

    Attributes:
        table_uuid: UUID of the Iceberg table, or None.
        last_column_id: lowest value of the new `last-column-id`.
        next_row_id: lowest value of the new `next-row-id`.
    """

    table_uuid: str | None = None
    last_column_id: int = 0
    next_row_id: int = 0

    def after(self, metadata: TableMetadata | None) -> _Identity:
        """Return the identity with that of more metadata, whose UUID is used if there is none yet."""
        if metadata is None:
            return self
        return _Identity(
            self.table_uuid or metadata.table_uuid,
            max(self.last_column_id, metadata.last_column_id),
            max(self.next_row_id, metadata.next_row_id or 0),
        )


@dataclass(frozen=True)
class _Changes:
    """Files that a commit adds to and removes from the Iceberg table.

    Attributes:
        added: entries of the added files (`ENTRY_SCHEMA`).
        removed: names of the removed files; Iceberg readers may not have known them.
        partitions: partitions of the removed files.
        only_adds: whether the commit deletes no file.
    """

    added: pa.Table
    removed: pa.Array
    partitions: pa.Array
    only_adds: bool


@dataclass
class _Counts:
    """Counts of a snapshot's summary: files, rows and bytes that the commit adds and removes."""

    added_files: int = 0
    added_rows: int = 0
    added_bytes: int = 0
    deleted_files: int = 0
    deleted_rows: int = 0
    deleted_bytes: int = 0
    partitions: int = 0


class _Publication:
    """Writing of the metadata of one snapshot."""

    def __init__(self, store: TableStore, snapshot: Snapshot, folder: str) -> None:
        self._store, self._snapshot, self._folder = store, snapshot, folder
        self._io = store.file_io
        self._settings: IcebergSettings = settings_of(store.options)
        self._uuid = str(uuid.uuid4())
        self._written: list[str] = []
        self._manifest_count = 0
        schema_id = max(list_schema_ids(self._io, store.root, store.branch), default=store.schema.id)
        self._schema = load_schema(self._io, store.root, schema_id, store.branch)
        self._form = ManifestForm(
            self._schema, self._settings.has_row_ids, self._settings.codec, store.options.manifest_target_size
        )
        self._address = store.root
        self._read: dict[int, TableMetadata | None] = {}
        self._vanished: set[int] = set()
        self._sizes: dict[str, int] = {}
        for part in _parts_below(folder, store.root):
            if not place_of(folder) and is_link(part):
                raise StorageRefused(part, "it is a symbolic link, so Iceberg metadata would lie elsewhere", "use")

    # -- the decision ------------------------------------------------------------------------------------------------

    def publish(self, entries: pa.Table | None, *, keeps_table: bool = False, rebuilds: bool = False) -> bool:
        store, snapshot = self._store, self._snapshot
        current = snapshots.try_read(store, snapshot.id)
        if current is None or commit_identity(current) != commit_identity(snapshot):
            # A catalog server may give the snapshot a UUID of its own.
            if current is None or not snapshots.is_same(current, snapshot):
                return False
            self._snapshot = snapshot = current
        names, versions = self._list_folder()
        own = self._metadata(snapshot.id) if snapshot.id in versions else None
        is_head = snapshots.latest_id(store) == snapshot.id
        newest = versions[-1] if versions else 0
        # Metadata that the snapshot had before a rollback may name files that expired since.
        goes_back = newest > snapshot.id and is_head
        is_current = own is not None and own.current is not None and own.current.is_of(snapshot)
        if is_current and not rebuilds and not goes_back:
            self._finish(versions, names)
            return True
        if not is_head and newest >= snapshot.id:
            return False  # metadata of a later snapshot has the changes of this one
        if snapshot.id == 1 and is_head and not keeps_table:
            # A table of this name existed before, and was dropped; only its metadata is elsewhere.
            self._delete([name for name in names if _OWN_FILE.fullmatch(name)])
            names, versions, own, newest = [], [], None, 0
        identity = _Identity().after(own)
        if newest > snapshot.id:
            identity = identity.after(self._metadata(newest))
        base = self._find_base(versions)
        if base is not None:
            identity = identity.after(base)
        elif identity.table_uuid is None and versions:
            earlier = [version for version in versions if version < snapshot.id]
            identity = identity.after(self._metadata(earlier[-1]) if earlier else None)
        if identity.table_uuid is None and versions:
            identity = replace(identity, table_uuid=self._uuid_of_damaged(versions[-1]))
        for earlier_metadata in (own, base, self._metadata(newest) if newest > snapshot.id else None):
            self._require_version(earlier_metadata)
        try:
            abandoned = self._metadata(newest) if newest > snapshot.id and is_head and not rebuilds else None
            returned = None if abandoned is None else self._returned(abandoned)
            metadata, expired = returned or self._content(base, identity, entries, is_head, versions)
            if metadata is None:
                return False
            self._put(metadata, rebuilds=rebuilds or goes_back)
        except BaseException:
            self._delete(self._written)
            raise
        if snapshots.latest_id(store) == snapshot.id:
            self._io.overwrite(f"{self._folder}/{VERSION_HINT}", str(snapshot.id).encode())
            self._finish([*versions, snapshot.id], names)
            self._delete(expired)
        return True

    def _list_folder(self) -> tuple[list[str], list[int]]:
        """Return the names of the files of the metadata folder, and the versions of its metadata, ascending.

        A concurrent commit deletes the metadata that it replaces, so the folder is listed again if the newest metadata
        below the snapshot is gone.
        """
        names: list[str] = []
        versions: list[int] = []
        for _ in range(_LISTINGS):
            self._sizes = {status.name: status.size for status in self._io.list_dir(self._folder) if not status.is_dir}
            names = list(self._sizes)
            versions = sorted(version for version in map(version_in, names) if version is not None)
            earlier = [version for version in versions if version < self._snapshot.id]
            if not earlier or self._metadata(earlier[-1]) is not None or earlier[-1] not in self._vanished:
                break
            self._read.clear()
            self._vanished.clear()
        return names, versions

    def _metadata(self, version: int) -> TableMetadata | None:
        """Return the metadata of a version, or None if it is missing or damaged."""
        if version not in self._read:
            self._read[version] = self._read_metadata(version)
        return self._read[version]

    def _read_metadata(self, version: int) -> TableMetadata | None:
        path = version_path(self._folder, version)
        try:
            return decode_metadata(self._io.read_bytes(path), path)
        except FileNotFoundError:
            self._vanished.add(version)
            return None
        except CorruptFile as error:
            self._warn_of_unused(error)
            return None

    def _warn_of_unused(self, error: CorruptFile | FileNotFoundError) -> None:
        finding = error.finding if isinstance(error, CorruptFile) else error
        _LOG.warning("table %s: earlier Iceberg metadata is not continued: %s", self._store.name, finding)

    def _uuid_of_damaged(self, version: int) -> str | None:
        """Return the UUID at the beginning of metadata that cannot be read, such as a half-written file, or None."""
        try:
            with self._io.open_input(version_path(self._folder, version)) as source:
                match = _UUID.search(source.read(_BEGINNING))
        except OSError:
            return None
        return match[1].decode() if match else None

    def _find_base(self, versions: Sequence[int]) -> TableMetadata | None:
        """Return the newest metadata below the snapshot that can be read."""
        for version in sorted((v for v in versions if v < self._snapshot.id), reverse=True)[:2]:
            metadata = self._metadata(version)
            if metadata is not None:
                return metadata
        return None

    def _content(
        self,
        base: TableMetadata | None,
        identity: _Identity,
        entries: pa.Table | None,
        is_head: bool,
        versions: Sequence[int],
    ) -> tuple[TableMetadata | None, list[str]]:
        """Return the new metadata, and the files that it replaces; None if only a newer snapshot may be published."""
        if base is not None and entries is not None:
            missed = self._missed_entries(base)
            reason = missed if isinstance(missed, str) else self._why_not_extended(base)
            if not isinstance(missed, str) and not reason:
                try:
                    return self._extended(base, identity, [*missed, entries])
                except _DAMAGED as error:
                    reason = f"{type(error).__name__}: {error}"
                    self._delete(self._written)
                    self._written.clear()
            _LOG.info(
                "table %s: Iceberg metadata is built from snapshot %d: %s", self._store.name, self._snapshot.id, reason
            )
        # A later commit may have replaced and deleted the base meanwhile; then its metadata has these changes, too.
        if not is_head or snapshots.latest_id(self._store) != self._snapshot.id:
            return None, []
        return self._rebuilt(identity), self._replaced_files(versions)

    def _returned(self, abandoned: TableMetadata) -> tuple[TableMetadata, list[str]] | None:
        """Return abandoned metadata as it was at the snapshot, after a rollback to it, and the files that it lost.

        Returns:
            None if the abandoned metadata does not list the snapshot, or cannot be continued.
        """
        kept = tuple(entry for entry in abandoned.snapshots if entry.snapshot_id <= self._snapshot.id)
        if not kept or not kept[-1].is_of(self._snapshot) or COMMIT_IDENTITY not in kept[-1].summary:
            return None
        metadata = replace(abandoned, snapshots=kept, current_snapshot_id=self._snapshot.id)
        if self._why_not_extended(metadata):
            return None
        self._address = abandoned.location.rstrip("/")
        files: set[str] = set()
        needed: set[str] = set()
        try:
            for entry in abandoned.snapshots:
                names = [entry.manifest_list, *(manifest.name for manifest in self._list(entry.manifest_list))]
                (needed if entry.snapshot_id <= self._snapshot.id else files).update(names)
        except (CorruptFile, FileNotFoundError) as error:
            self._warn_of_unused(error)
            return None
        return replace(metadata, refs=self._refs(kept, abandoned)), sorted(files - needed)

    def _missed_entries(self, base: TableMetadata) -> list[pa.Table] | str:
        """Return the changes of the snapshots between the base and the new one, or why they are unknown."""
        store, first = self._store, base.current_snapshot_id
        entry = base.current
        if entry is None or not first < self._snapshot.id:
            return f"version {first} does not name its own snapshot"
        of_base = snapshots.try_read(store, first)
        is_previous = first == self._snapshot.id - 1
        if of_base is not None and not entry.is_of(of_base):
            return f"version {first} was made of a snapshot that was rolled back"
        if of_base is None and not is_previous:
            return f"snapshot {first} has expired"
        if self._snapshot.id - first > _MOST_MISSED:
            return f"{self._snapshot.id - first - 1} snapshots have no Iceberg metadata"
        changes = []
        for number in range(first + 1, self._snapshot.id):
            missed = snapshots.try_read(store, number)
            if missed is None:
                return f"snapshot {number} has expired"
            delta = manifests.delta_entries(store, missed)
            signs = pc.if_else(pc.equal(delta.column("kind"), ADD), 1, -1)
            if (pc.sum(pc.multiply(delta.column("row_count"), signs)).as_py() or 0) != missed.delta_record_count:
                return f"snapshot {number} lost files"
            changes.append(delta)
        return changes

    def _require_version(self, metadata: TableMetadata | None) -> None:
        """Refuse to replace metadata by that of a lower format version, which Iceberg does not allow.

        Raises:
            UnsupportedFeature: the metadata has a higher format version than the options say.
        """
        version = self._settings.format_version
        if metadata is not None and metadata.format_version > version:
            raise UnsupportedFeature(
                f"Iceberg metadata of version {version} after version {metadata.format_version} "
                f"(set 'metadata.iceberg.format-version' = '{metadata.format_version}')",
                self._store.name,
            )

    def _why_not_extended(self, base: TableMetadata) -> str:
        """Return why new metadata cannot be made of a base, or ""."""
        settings = self._settings
        if base.format_version < settings.format_version:
            return f"the format version rises from {base.format_version}"
        if settings.has_row_ids and base.next_row_id is None:
            return "it has no row ids"
        if _plain(base.location) != self._store.root:
            return f"it was written for a table at {base.location[:200]}"
        if dict(base.partition_spec) != partition_spec(self._schema):
            return "it has another partition spec"
        for known in base.schemas:
            number = known["schema-id"]
            if number > self._schema.id:
                continue
            try:
                current = iceberg_schema(self._schema_of(number))
            except CorruptFile as error:
                return str(error)
            if not is_same_schema(known, current):
                return f"schema {number} was defined again"
        entry = base.current
        if self._schema.id < base.current_schema_id and entry is not None:
            previous = snapshots.try_read(self._store, entry.snapshot_id)
            if previous is None or previous.schema_id != entry.schema_id:
                return "its schema was rolled back"
        return ""

    def _schema_of(self, schema_id: int) -> TableSchema:
        store = self._store
        return self._schema if schema_id == self._schema.id else load_schema(self._io, store.root, schema_id)

    # -- content -----------------------------------------------------------------------------------------------------

    def _extended(
        self, base: TableMetadata, identity: _Identity, tables: Sequence[pa.Table]
    ) -> tuple[TableMetadata, list[str]]:
        """Return the metadata that continues a base, and the files that expire."""
        self._address = base.location.rstrip("/")
        entry = base.current
        assert entry is not None  # _missed_entries has checked it
        old = self._list(entry.manifest_list)
        check_sizes(self._io, self._folder, old, self._sizes)
        changes = self._changes(pa.concat_tables([NO_ENTRIES, *tables]))
        data = [manifest for manifest in old if manifest.content is ManifestContent.DATA]
        counts, operation = _Counts(), "append"
        if changes.only_adds:
            added = changes.added
        else:
            data, added, operation = self._without(data, changes, counts)
        data = data + self._write_data([added])
        counts.added_files, counts.added_rows, counts.added_bytes = _sizes(added)
        changed = pa.concat_arrays([one_array(added.column("partition"), pa.binary()), changes.partitions])
        counts.partitions = len(pc.unique(changed))
        deletes = self._vectors(entry, [m for m in old if m.content is ManifestContent.DELETES])
        data = self._merged(data)
        schemas = [*base.schemas]
        known = {schema["schema-id"] for schema in schemas}
        schemas += [
            iceberg_schema(self._schema_of(number))
            for number in range(base.current_schema_id + 1, self._schema.id + 1)
            if number not in known
        ]
        total_bytes = entry.count("total-files-size")
        if total_bytes is not None:
            total_bytes = max(total_bytes + counts.added_bytes - counts.deleted_bytes, 0)
        new, next_row_id = self._entry([*data, *deletes], counts, operation, identity, total_bytes)
        listed = (*base.snapshots, new)
        limits = RetentionLimits(*_retention(self._store))
        count = count_expired(listed, self._snapshot.id, limits, self._store.clock.now_ms())
        kept = listed[count:]
        metadata = replace(
            base,
            last_column_id=max(identity.last_column_id, highest_field_id(iceberg_schema(self._schema))),
            schemas=tuple(schemas),
            current_schema_id=self._schema.id,
            snapshots=kept,
            current_snapshot_id=self._snapshot.id,
            next_row_id=next_row_id,
            refs=self._refs(kept, base),
        )
        return metadata, self._expired_files(listed[: count + 1])

    def _rebuilt(self, identity: _Identity) -> TableMetadata:
        """Return the metadata of the snapshot alone, made of its live files, manifest by manifest."""
        counts = _Counts()
        parts: set[bytes] = set()

        def live() -> Iterator[pa.Table]:
            for table in manifests.iter_live(self._store, self._snapshot):
                added = table.filter(self._is_published(table))
                files, rows, size = _sizes(added)
                counts.added_files, counts.added_rows = counts.added_files + files, counts.added_rows + rows
                counts.added_bytes += size
                parts.update(pc.unique(added.column("partition")).to_pylist())
                yield added

        data = self._write_data(live())
        counts.partitions = len(parts)
        deletes = self._write_vectors() if self._settings.adds_vectors else []
        new, next_row_id = self._entry([*data, *deletes], counts, "append", identity, counts.added_bytes)
        ids = [number for number in list_schema_ids(self._io, self._store.root) if number <= self._schema.id]
        schemas = tuple(iceberg_schema(self._schema_of(number)) for number in ids)
        return TableMetadata(
            format_version=self._settings.format_version,
            table_uuid=identity.table_uuid or str(uuid.uuid4()),
            location=self._address,
            last_column_id=max(identity.last_column_id, *map(highest_field_id, schemas)),
            schemas=schemas,
            current_schema_id=self._schema.id,
            partition_spec=partition_spec(self._schema),
            last_partition_id=last_partition_id(self._schema),
            snapshots=(new,),
            current_snapshot_id=self._snapshot.id,
            next_row_id=next_row_id,
            refs=self._refs((new,), None),
        )

    def _entry(
        self,
        listed: Sequence[IcebergManifest],
        counts: _Counts,
        operation: str,
        identity: _Identity,
        total_bytes: int | None,
    ) -> tuple[SnapshotEntry, int | None]:
        """Write the manifest list; return the snapshot of the metadata, and the next free row id."""
        settings, snapshot = self._settings, self._snapshot
        next_row_id = first_row_id = identity.next_row_id if settings.has_row_ids else None
        rows = list(listed)
        if first_row_id is not None:
            rows, next_row_id = assign_row_ids(rows, first_row_id)
        name = f"snap-1-{self._uuid}.avro"
        data = encode_manifest_list(
            rows,
            self._folder_address(),
            legacy_names=settings.legacy_names,
            has_row_ids=settings.has_row_ids,
            codec=settings.codec,
        )
        self._write(name, data)
        files = [manifest for manifest in rows if manifest.content is ManifestContent.DATA]
        vectors = [manifest for manifest in rows if manifest.content is ManifestContent.DELETES]
        summary = {
            "operation": operation,
            "added-data-files": counts.added_files,
            "added-records": counts.added_rows,
            "added-files-size": counts.added_bytes,
            "deleted-data-files": counts.deleted_files,
            "deleted-records": counts.deleted_rows,
            "removed-files-size": counts.deleted_bytes,
            "changed-partition-count": counts.partitions,
            "total-records": sum(manifest.live_rows for manifest in files),
            "total-data-files": sum(manifest.live_files for manifest in files),
            **({} if total_bytes is None else {"total-files-size": total_bytes}),
            "total-delete-files": sum(manifest.live_files for manifest in vectors),
            "total-position-deletes": sum(manifest.live_rows for manifest in vectors),
            "total-equality-deletes": 0,
            **(snapshot.properties or {}),
            COMMIT_IDENTITY: commit_identity(snapshot),
        }
        entry = SnapshotEntry(
            snapshot_id=snapshot.id,
            timestamp_ms=snapshot.time_millis,
            manifest_list=name,
            schema_id=snapshot.schema_id,
            summary={key: str(value) for key, value in summary.items()},
            parent_id=None if snapshot.id == 1 else snapshot.id - 1,
            first_row_id=first_row_id,
            added_rows=None if first_row_id is None or next_row_id is None else next_row_id - first_row_id,
        )
        return entry, next_row_id

    def _refs(self, entries: Sequence[SnapshotEntry], base: TableMetadata | None) -> dict[str, int]:
        """Return the tags of the listed snapshots; readers refuse metadata with tags of other snapshots."""
        ids = {entry.snapshot_id for entry in entries}
        try:
            known = {name: snapshot.id for name, snapshot in tags.list_tags(self._store).items()}
        except CorruptFile as error:
            _LOG.warning("table %s: Iceberg metadata keeps its tags: %s", self._store.name, error)
            known = dict(base.refs) if base is not None else {}
        return {name: number for name, number in known.items() if number in ids}

    # -- changes of data files ---------------------------------------------------------------------------------------

    def _is_published(self, entries: pa.Table) -> pa.ChunkedArray | pa.Array:
        """Return whether Iceberg readers can read each file as it is, without a merge."""
        if not self._store.has_primary_key:
            return arrow_array(np.ones(entries.num_rows, np.bool_))
        level = one_array(entries.column("level"), pa.int32())
        if self._settings.adds_vectors:
            return pc.greater(level, 0)
        return pc.equal(level, self._store.options.num_levels - 1)

    def _changes(self, entries: pa.Table) -> _Changes:
        """Return the changes of some entries; the last entry of a file decides.

        A file whose level rises is deleted and added in one commit.
        """
        is_delete = numpy_array(pc.equal(entries.column("kind"), DELETE))
        counts = is_delete | numpy_array(self._is_published(entries))
        places = np.flatnonzero(counts)
        chosen = entries.take(arrow_array(places))
        codes = numpy_array(pc.dictionary_encode(one_array(chosen.column("file_name"), pa.string())).indices)
        _, last = np.unique(codes[::-1], return_index=True)
        final = chosen.take(arrow_array(np.sort(len(codes) - 1 - last)))
        added = final.filter(pc.equal(final.column("kind"), ADD))
        removed = final.filter(pc.equal(final.column("kind"), DELETE))
        return _Changes(
            added,
            one_array(removed.column("file_name"), pa.string()),
            one_array(removed.column("partition"), pa.binary()),
            only_adds=not is_delete.any(),
        )

    def _without(
        self, data: Sequence[IcebergManifest], changes: _Changes, counts: _Counts
    ) -> tuple[list[IcebergManifest], pa.Table, str]:
        """Return the manifests without the removed files, the files still to be added, and the operation."""
        operation, result = "append", []
        added_names = one_array(changes.added.column("file_name"), pa.string())
        names = pa.concat_arrays([added_names, changes.removed])
        searched = [name.encode() for name in names.to_pylist()] if len(names) <= _MOST_SEARCHED else None
        partitions = pc.unique(
            pa.concat_arrays([one_array(changes.added.column("partition"), pa.binary()), changes.partitions])
        )
        touched = partition_struct(partitions, self._schema, "manifest entry")
        present: list[pa.Array] = []
        for manifest in data:
            path = f"{self._folder}/{manifest.name}"
            if not len(names) or (
                self._schema.partition_keys and not may_have_partitions(manifest, touched, self._schema, path)
            ):
                result.append(manifest)
                continue
            content = self._io.read_bytes(path)
            if searched is not None and not mentions(content, path, searched):
                result.append(manifest)
                continue
            kept, known_names = self._without_removed(manifest, content, path, (added_names, changes.removed), counts)
            present.append(known_names)
            if kept is None:
                result.append(manifest)
                continue
            operation = "replace" if self._snapshot.commit_kind is CommitKind.COMPACT else "overwrite"
            result += kept
        known = pa.concat_arrays([*present, pa.array([], pa.string())])
        still = changes.added.filter(pc.invert(pc.is_in(added_names, known)))
        return result, still, operation

    def _without_removed(
        self,
        manifest: IcebergManifest,
        content: bytes,
        path: str,
        names: tuple[pa.Array, pa.Array],
        counts: _Counts,
    ) -> tuple[list[IcebergManifest] | None, pa.Array]:
        """Write a manifest without the removed files.

        Args:
            manifest: row of the manifest list.
            content: content of the manifest.
            path: path of the manifest, for messages.
            names: names of the added files, and of the removed files.
            counts: counts of the snapshot, which are increased by those of the removed files.

        Returns:
            The new manifests, or None if no file is removed; and the names of the added files that it has already.
        """
        added_names, removed_names = names
        if not self._settings.has_row_ids:  # row ids are written into entries that move
            container = Container(pa.BufferReader(content), path)
            rewriting = rewrite(container, manifest, self._address, names, self._snapshot.id)
            if rewriting is not None:
                self._count_removed(rewriting.removed, counts)
                if not rewriting.data:
                    return None, rewriting.known
                return [self._write_manifest(EncodedManifest(rewriting.data, rewriting.row))], rewriting.known
        entries = decode_manifest(content, path, self._schema, manifest)
        own = file_names(entries.column("file_path"))
        live = numpy_array(pc.less(entries.column("status"), EntryStatus.DELETED))
        known_names = own.filter(pc.and_(arrow_array(live), pc.is_in(own, added_names)))
        removed = live & numpy_array(pc.is_in(own, removed_names))
        if not removed.any():
            return None, known_names
        self._count_removed(entries.filter(arrow_array(removed)), counts)
        entries = with_row_ids(entries, manifest.first_row_id)
        changed = without_files(entries, removed, self._snapshot.id)
        return self._write_manifests([changed], ManifestContent.DATA), known_names

    def _count_removed(self, entries: pa.Table, counts: _Counts) -> None:
        rows, size = (pc.sum(entries.column(name)).as_py() or 0 for name in ("record_count", "file_size_in_bytes"))
        counts.deleted_files += entries.num_rows
        counts.deleted_rows += rows
        counts.deleted_bytes += size

    def _merged(self, data: Sequence[IcebergManifest]) -> list[IcebergManifest]:
        """Merge small manifests if there are many.

        Source: ``IcebergCommitCallback.compactMetadataIfNeeded``.
        """
        target, settings = self._form.target_bytes, self._settings
        small = [manifest for manifest in data if manifest.length < target * 2 // 3]
        size = sum(manifest.length for manifest in small)
        if len(small) < settings.fewest_merged or (len(small) < settings.most_small and size < target):
            return list(data)
        small = _worth_merging(small)

        def entries() -> Iterator[pa.Table]:
            for manifest in small:
                path = f"{self._folder}/{manifest.name}"
                content = self._io.read_bytes(path)
                table = decode_manifest(content, path, self._schema, manifest)
                yield merged_into(with_row_ids(table, manifest.first_row_id), self._snapshot.id)

        merged = self._write_manifests(entries(), ManifestContent.DATA)
        names = {manifest.name for manifest in small}
        replaced = [name for name in self._written if name in names]  # no metadata names them
        self._delete(replaced)
        self._written = [name for name in self._written if name not in replaced]
        return [manifest for manifest in data if manifest.name not in names] + merged

    # -- deletion vectors --------------------------------------------------------------------------------------------

    def _vectors(self, base: SnapshotEntry, old: Sequence[IcebergManifest]) -> list[IcebergManifest]:
        """Return the manifests of deletion vectors; those of the base if no vector has changed."""
        if not self._settings.adds_vectors:
            return []
        previous = snapshots.try_read(self._store, base.snapshot_id)
        if previous is not None and previous.index_manifest == self._snapshot.index_manifest:
            return list(old)
        return self._write_vectors()

    def _write_vectors(self) -> list[IcebergManifest]:
        columns: dict[str, list[object]] = {
            name: [] for name in ("partition", "path", "file_size", "data_path", "offset", "length", "cardinality")
        }
        for entry in manifests.index_entries(self._store, self._snapshot):
            if entry.index_type != VECTORS_INDEX:
                continue
            path = self._in_address(index_file_path(self._store, entry))
            folder = self._in_address(self._store.bucket_dir(entry.partition, entry.bucket))
            for vector in entry.deletion_vectors or ():
                if vector.cardinality is None:
                    raise UnsupportedFeature(
                        f"Iceberg metadata of a deletion vector without its number of rows (of {vector.data_file})",
                        self._store.name,
                    )
                values = (entry.partition, path, entry.file_size, f"{folder}/{vector.data_file}")
                for column, value in zip(
                    columns.values(), (*values, vector.offset, vector.length, vector.cardinality), strict=True
                ):
                    column.append(value)
        if not columns["path"]:
            return []
        kinds = (pa.binary(), pa.string(), pa.int64(), pa.string(), pa.int64(), pa.int64(), pa.int64())
        arrays = [pa.array(values, kind) for values, kind in zip(columns.values(), kinds, strict=True)]
        table = pa.Table.from_arrays(arrays, names=list(columns))
        return self._write_manifests([vector_entries(table, self._schema, self._snapshot.id)], ManifestContent.DELETES)

    # -- files -------------------------------------------------------------------------------------------------------

    def _write_data(self, tables: Iterable[pa.Table]) -> list[IcebergManifest]:
        """Write manifests that add data files (`ENTRY_SCHEMA`)."""

        def entries() -> Iterator[pa.Table]:
            for table in tables:
                if table.num_rows:
                    numbers = pc.unique(table.column("schema_id")).to_pylist()
                    schemas = {number: self._schema_of(number) for number in numbers}
                    yield data_entries(table, self._paths(table), self._schema, schemas, self._snapshot.id)

        return self._write_manifests(entries(), ManifestContent.DATA)

    def _paths(self, files: pa.Table) -> pa.Array:
        """Return the path of each data file, in the form of the table's address."""
        partitions = pc.dictionary_encode(one_array(files.column("partition"), pa.binary()))
        buckets = numpy_array(files.column("bucket")).astype(np.int64)
        codes = numpy_array(partitions.indices).astype(np.int64)
        places, first, group = np.unique(
            np.stack([codes, buckets], axis=1), axis=0, return_index=True, return_inverse=True
        )
        del first
        values = partitions.dictionary.to_pylist()
        folders = [self._store.bucket_dirs(values[code], bucket) for code, bucket in places.tolist()]
        names = one_array(files.column("file_name"), pa.string())
        texts = pa.array([self._in_address(chosen[0]) for chosen in folders], pa.string())
        paths = pc.binary_join_element_wise(texts.take(arrow_array(group.reshape(-1))), names, "/")
        several = {place for place, chosen in enumerate(folders) if len(chosen) > 1}
        if several:  # partitions whose folder depends on the JDK that wrote it
            rows = np.flatnonzero(np.isin(group.reshape(-1), list(several))).tolist()
            listed = paths.to_pylist()
            for row in rows:
                code, bucket = places[group.reshape(-1)[row]].tolist()
                listed[row] = self._in_address(self._store.data_path(values[code], bucket, names[row].as_py()))
            paths = pa.array(listed, pa.string())
        return pc.coalesce(one_array(files.column("external_path"), pa.string()), paths)

    def _in_address(self, path: str) -> str:
        """Return a path below the table's or the warehouse's folder in the form that the metadata uses."""
        return self._prefix() + path

    def _prefix(self) -> str:
        return self._address.removesuffix(self._store.root) if self._address.endswith(self._store.root) else ""

    def _folder_address(self) -> str:
        return self._in_address(self._folder)

    def _write_manifests(self, tables: Iterable[pa.Table], content: ManifestContent) -> list[IcebergManifest]:
        encoded = encode_manifests(tables, self._form, self._snapshot.id, content)
        return [self._write_manifest(manifest) for manifest in encoded]

    def _write_manifest(self, encoded: EncodedManifest) -> IcebergManifest:
        self._manifest_count += 1
        name = f"{self._uuid}-m{self._manifest_count}.avro"
        self._write(name, encoded.data)
        return replace(encoded.row, name=name)

    def _write(self, name: str, data: bytes) -> None:
        path = f"{self._folder}/{name}"
        self._written.append(name)
        if not self._io.write_exclusive(path, data):
            raise CorruptFile(path, "a file of this name exists, although its name is new")

    def _list(self, name: str) -> list[IcebergManifest]:
        path = f"{self._folder}/{name}"
        return decode_manifest_list(self._io.read_bytes(path), path)

    def _put(self, metadata: TableMetadata, *, rebuilds: bool) -> None:
        """Write the metadata file; replace one of a snapshot that was rolled back, or any if the metadata is rebuilt.

        Raises:
            CorruptFile: another writer has just written the file for a different snapshot.
        """
        path = version_path(self._folder, self._snapshot.id)
        data = metadata.to_json(self._folder_address(), self._store.clock.now_ms())
        if self._io.write_exclusive(path, data):
            return
        existing = None if rebuilds else self._read_metadata(self._snapshot.id)
        if existing is not None and existing.current is not None and existing.current.is_of(self._snapshot):
            self._delete(self._written)  # another engine has published the snapshot meanwhile
            return
        self._io.overwrite(path, data)

    def _finish(self, versions: Sequence[int], names: Sequence[str]) -> None:
        """Set the hint and the entry in a metastore, and delete metadata of older and of abandoned snapshots.

        Nothing is done if the snapshot is not the newest.
        """
        latest = snapshots.latest_id(self._store)
        if latest != self._snapshot.id:
            return
        if read_version_hint(self._io, self._folder) != latest:
            self._io.overwrite(f"{self._folder}/{VERSION_HINT}", str(latest).encode())
        if storage_of(self._store.options) is IcebergStorage.HIVE_CATALOG:
            from lsm_core.iceberg.hive_entry import enter_table

            enter_table(self._store, self._folder)  # before the metadata that the entry still names is deleted
        settings = self._settings
        old = [v for v in versions if settings.deletes_old_versions and v < latest - settings.kept_versions]
        abandoned = [version for version in versions if version > latest]
        self._delete([version_path("", version).lstrip("/") for version in (*old, *abandoned)])
        if RETIRE_PENDING in names:
            self._delete([RETIRE_PENDING])

    def _expired_files(self, expired: Sequence[SnapshotEntry]) -> list[str]:
        """Return the files that only expired snapshots need.

        Args:
            expired: the expired snapshots, oldest first, and the first snapshot that stays.
        """
        files: list[str] = []
        for entry, following in pairwise(expired):
            try:
                own, kept = self._list(entry.manifest_list), self._list(following.manifest_list)
            except (CorruptFile, FileNotFoundError) as error:
                self._warn_of_old_manifests(error)
                continue
            names = {manifest.name for manifest in kept}
            files += [manifest.name for manifest in own if manifest.name not in names]
            files.append(entry.manifest_list)
        return files

    def _replaced_files(self, versions: Sequence[int]) -> list[str]:
        """Return the manifests and lists that only existing metadata needs, all of which new metadata replaces."""
        files: set[str] = set()
        for version in versions:
            earlier = self._metadata(version)
            for entry in earlier.snapshots if earlier is not None else ():
                if entry.manifest_list in files:
                    continue
                files.add(entry.manifest_list)
                try:
                    files.update(manifest.name for manifest in self._list(entry.manifest_list))
                except FileNotFoundError:
                    continue  # of a snapshot that an older version names, and that expired since
                except CorruptFile as error:
                    self._warn_of_old_manifests(error)
        return sorted(files)

    def _warn_of_old_manifests(self, error: CorruptFile | FileNotFoundError) -> None:
        name = self._store.name
        _LOG.warning(
            "table %s: manifests of an old Iceberg snapshot stay, until `dredge orphans %s` removes them: %s",
            name,
            shlex.quote(name),
            error.finding if isinstance(error, CorruptFile) else error,
        )

    def _delete(self, names: Iterable[str]) -> None:
        """Delete files of the metadata folder; failures leave files that no metadata names."""
        for name in names:
            if not _OWN_FILE.fullmatch(name):
                continue
            try:
                self._io.delete(f"{self._folder}/{name}")
            except (OSError, DredgeError) as error:
                _LOG.warning("table %s: Iceberg file %s was not deleted: %s", self._store.name, name, error)


def _plain(location: str) -> str:
    """Return a location as a plain path, in the form of `TableStore.root`."""
    return _SCHEME.sub("", location).rstrip("/")


def _worth_merging(small: Sequence[IcebergManifest]) -> list[IcebergManifest]:
    """Return the manifests without those that are larger than all smaller ones together.

    Otherwise the entries of a manifest of 100,000 files would be decoded at every merge for a few new files.
    """
    by_length = sorted(small, key=lambda manifest: manifest.length)
    total = sum(manifest.length for manifest in by_length)
    while len(by_length) > 2 and by_length[-1].length > total - by_length[-1].length:
        total -= by_length.pop().length
    names = {manifest.name for manifest in by_length}
    return [manifest for manifest in small if manifest.name in names]


def _parts_below(folder: str, root: str) -> list[str]:
    """Return the folders of the metadata that the table's own folders do not contain."""
    common = root.rpartition("/")[0].rpartition("/")[0]
    base = root if folder.startswith(f"{root}/") else common
    below = folder.removeprefix(f"{base}/").split("/")
    return ["/".join([base, *below[: place + 1]]) for place in range(len(below))]


def _sizes(files: pa.Table) -> tuple[int, int, int]:
    """Return the number of files, rows and bytes of manifest entries."""
    rows, size = (pc.sum(files.column(name)).as_py() or 0 for name in ("row_count", "file_size"))
    return files.num_rows, rows, size


def _retention(store: TableStore) -> tuple[int, int | None, int]:
    options = store.options
    return options.retained_min, options.retained_max, options.time_retained
