"""Copy of a table's newest snapshot into another table, for example as a backup in another warehouse.

All files are copied unchanged, so that the copy has the same layout and costs no merge. An interrupted copy is
continued: existing files that are equal to their source are not copied again. The new table becomes readable at the
end, by one snapshot file. History, tags, branches and changelogs are not copied.

In the warehouse of a catalog server, the server creates the new table, decides about its folder, and publishes its
first snapshot. It has one schema, so all files must have the newest columns.

Source: ``CopyFilesProcedure`` of Paimon. Unlike there, the copy ends with a commit of an ordinary snapshot.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array
from lsm_core.commit.attempt import PublishOutcome, Retries, partition_counts, publish
from lsm_core.errors import (
    CorruptFile,
    InvalidOption,
    PlanStale,
    StorageRefused,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
    VerificationFailed,
)
from lsm_core.format.manifest import IndexManifestEntry
from lsm_core.format.partitions import partition_names
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import BATCH_COMMIT_IDENTIFIER, MAX_SEQUENCE, CommitKind, Snapshot
from lsm_core.iceberg.catch_up import publish_history
from lsm_core.maintenance.action import (
    ActionWork,
    ApplyOutcome,
    BucketFilesItem,
    Declined,
    Fact,
    MaintenancePlan,
    PlanEstimate,
    PlanItem,
    Report,
    size_text,
)
from lsm_core.maintenance.actions.undo.undoing import COUNTS
from lsm_core.metadata import manifests, snapshots, tags
from lsm_core.metadata.external_paths import EXTERNAL_PATHS
from lsm_core.metadata.indexes import index_file_path
from lsm_core.metadata.live_files import totals
from lsm_core.metadata.store import FolderGiver, TableStore, list_schema_ids, load_schema, schema_path
from lsm_core.metadata.support import require_allowed_places, require_readable
from lsm_core.read.partition_choice import chosen_from_text, chosen_to_text, encode_chosen
from lsm_core.read.scan import usable_cores
from lsm_core.storage import file_io_for, storage_options
from lsm_core.storage.safe_paths import check_name, inside, is_link, place_of, same_place

_ACTION: Final = "copy_table"
_BYTES_PER_SECOND: Final = 100_000_000
_CHUNK: Final = 8 << 20
_SYSTEM: Final = "sys"
"""Database of system tables."""
COPY_PROPERTY: Final = "dredge.copy-of"
"""Property of a copy's first snapshot: table and snapshot that were copied, as "db.table@7"."""


@dataclass(frozen=True)
class CopyItem(BucketFilesItem):
    """Files of one bucket to copy."""

    item_kind: ClassVar[str] = "copy-bucket"
    title: ClassVar[str] = "would copy"


@dataclass(frozen=True)
class DefinitionItem(PlanItem):
    """Definition of a table without data files, which is all that its copy gets.

    Attributes:
        schemas: number of schema files.
        newest: id of the newest schema.
    """

    item_kind: ClassVar[str] = "copy-definition"
    title: ClassVar[str] = "would copy the definition alone, as the table has no files"
    columns: ClassVar[tuple[str, ...]] = ("schemas", "newest schema")

    schemas: int
    newest: int

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: number of schemas, and id of the newest."""
        return (self.schemas, self.newest)


@dataclass(frozen=True)
class CopyReport(Report):
    """Report of a copy.

    Attributes:
        plan_hash: hash of the plan.
        base_snapshot: id of the copied snapshot, None for an empty table.
        target: name of the new table, "" if the plan names none.
        root: folder of the new table, "" if nothing was copied.
        files: number of copied files, indexes included.
        size: bytes of the copied files.
        kept: number of files that an earlier, interrupted copy had copied.
        rows: number of rows of the new table, before merging.
        verification: "V1" if every copied file was read back and compared, else "V0".
        unlisted: whether the source is in a catalog with a list of tables, and the new table is outside its warehouse.
        declined: why nothing was copied, for example because the chosen partitions have no files.
    """

    plan_hash: str
    base_snapshot: int | None
    target: str = ""
    root: str = ""
    files: int = 0
    size: int = 0
    kept: int = 0
    rows: int = 0
    verification: str = "V0"
    unlisted: bool = False
    declined: tuple[Declined, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether a new table was created; the copied table itself never changes."""
        return bool(self.root)

    def lines(self, table: str) -> list[str]:
        """Return lines on the new table and the copied files."""
        if not self.root:
            reason = self.declined[0].text if self.declined else f"{self.target or 'the target'} has this copy already"
            return [f"{table} was not copied: {reason}"]
        if self.base_snapshot is None:
            first = f"{self.target} has the definition of {table}, which has no snapshot; in {self.root}"
            return [first, *self._hints()]
        kept = f", {self.kept} were there from an interrupted copy" if self.kept else ""
        return [
            f"{self.target} has the rows of snapshot {self.base_snapshot} of {table} ({self.rows:,} stored rows)",
            f"{self.files} files copied ({size_text(self.size)}){kept}; verified: {self.verification}; in {self.root}",
            *self._hints(),
        ]

    def _hints(self) -> list[str]:
        """Return the next step for a new table that a catalog may have to list."""
        if not self.unlisted:
            return []
        call = f"CALL sys.repair('{self.target}')"
        return [f"a JDBC or Hive catalog of the other warehouse lists {self.target} after {call} in that catalog"]


def plan_copy(
    store: TableStore,
    target: str,
    target_warehouse: str | None = None,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    where: str | None = None,
    now_ms: int | None = None,
) -> MaintenancePlan:
    """Plan to copy the newest snapshot, or some of its partitions, into a new table. Only metadata is read.

    Of a table without rows, the copy has the definition, and an empty snapshot if the table has snapshots.

    Args:
        store: the table.
        target: name of the new table, "db.table".
        target_warehouse: folder or address of the warehouse of the new table, None for the table's own warehouse.
        partitions: partitions to copy (typed values, None = null), None for all.
        where: condition on partition columns, in place of ``partitions``.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        InvalidOption: the target is no name of a table, or the table's own warehouse is unknown.
        TableExists: the target has snapshots, or another definition.
        StorageRefused: a file or symbolic link is in the place of the target's folder.
        InvalidFilter: a partition or the condition does not fit the table.
        UnsupportedFeature: the table cannot be read, or has files in a folder that the operator does not allow.
        CorruptFile: metadata cannot be read.
        PlanStale: the newest snapshot has a newer schema than the one with which the table was opened.
    """
    require_readable(store)
    root = _target_root(store, target, target_warehouse)
    chosen = encode_chosen(store, partitions, where)
    snapshot = snapshots.latest(store)
    if snapshot is not None and snapshot.schema_id > store.schema.id:
        reason = f"the table was altered (schema {snapshot.schema_id}) since it was opened; open it again"
        raise PlanStale(reason, store.name)
    arguments: dict[str, Fact] = {
        "target": target,
        "target_warehouse": None if target_warehouse is None else root.removesuffix(_place(target)),
        "root": root,
        "partitions": chosen_to_text(chosen),
    }
    plan = MaintenancePlan.begin(_ACTION, store, None if snapshot is None else snapshot.id, arguments, now_ms)
    giver = _folder_giver(store, target_warehouse)
    if giver is None:
        free = _open_target(store, plan)
        _is_unlisted(store, free)  # a name that the catalog cannot list is refused before files are copied
        _require_free(store, free, _origin(store, snapshot))
    else:
        _require_one_schema(store, snapshot, giver)
        opened = _open_served(store, giver, target)
        if opened is not None:
            _require_free_served(store, opened, _origin(store, snapshot))
    if snapshot is None and chosen is None:
        return replace(plan, items=(_definition_of(store),))
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "it has no snapshot, and so no partitions"),))
    sizes = totals(store, snapshot, ["partition", "bucket"], waiting=True)
    if chosen is not None and store.schema.partition_keys:
        sizes = sizes.filter(pc.is_in(sizes.column("partition"), arrow_array(chosen, pa.binary())))
    counts = sizes.select(["partition", "bucket", "file_count", "record_count", "file_size_in_bytes"])
    columns = [column.to_pylist() for column in counts.columns]
    names = partition_names(store.schema, columns[0], store.options)
    items = [CopyItem(partition, name, *each) for name, partition, *each in zip(names, *columns, strict=True)]
    items.sort(key=lambda item: (item.partition_text, item.bucket))
    size = sum(item.size for item in items)
    estimate = PlanEstimate(
        bytes_in=size,
        bytes_out=size,
        rows_in=sum(item.rows for item in items),
        files_in=sum(item.files for item in items),
        tasks=len(items),
        seconds=round(size / _BYTES_PER_SECOND, 2),
    )
    if not items and chosen is None:
        return replace(plan, items=(_definition_of(store),))
    if not items:
        return replace(plan, declined=(Declined("partitions", "empty", "the chosen partitions have no files"),))
    return replace(plan, items=tuple(items), estimate=estimate)


def _origin(store: TableStore, snapshot: Snapshot | None) -> str:
    """Return the text that names a copied table and its snapshot (0 for none), as in :data:`COPY_PROPERTY`."""
    return f"{store.name}@{0 if snapshot is None else snapshot.id}"


def _definition_of(store: TableStore) -> DefinitionItem:
    return DefinitionItem(len(_schema_ids(store)), store.schema.id)


def _schema_ids(store: TableStore) -> list[int]:
    """Return the ids of the schema files that are not newer than the opened schema, ascending."""
    return [number for number in list_schema_ids(store.file_io, store.root, store.branch) if number <= store.schema.id]


def _target_root(store: TableStore, target: str, warehouse: str | None) -> str:
    """Return the folder of the new table, in Paimon's layout of a warehouse.

    Raises:
        InvalidOption: ``target`` is no name of a table, or means the table itself; or the table's folder does not show
            its warehouse.
        UnsupportedFeature: the copy would be in the warehouse of a catalog server, which would not list it.
    """
    database, dot, name = target.partition(".")
    if not dot or not database or not name or set(target) & set("$/\\` ") or database == _SYSTEM:
        raise InvalidOption("target", target, 'a name such as "db.table"', store.name)
    check_name(name, store.name, "table name")
    check_name(f"{database}.db", store.name, "database name")
    giver = _folder_giver(store, warehouse)
    if giver is not None:
        if target == store.name.partition("$")[0]:
            raise InvalidOption("target", target, "the name of another table", store.name)
        return f"{giver.root}{_place(target)}"
    if warehouse is None and store.registry is not None and not store.registry.takes_folders:
        feature = f"a copy into the warehouse of the catalog server {store.registry.root}"
        raise UnsupportedFeature(f"{feature}; name another warehouse, or write CREATE TABLE ... AS SELECT", store.name)
    if warehouse is None:
        own_database, _, own_name = store.name.partition("$")[0].partition(".")
        place = _place(f"{own_database}.{own_name}")
        if not store.root.endswith(place):
            text = f"a warehouse, because the folder {store.root} of the table is not in one"
            raise InvalidOption("target_warehouse", None, text, store.name)
        root = store.root.removesuffix(place)
    else:
        _, root = file_io_for(warehouse, storage_options(store.file_io))
    database_place = f"/{store.name.partition('.')[0]}.db/"
    if store.registry is not None and not store.registry.takes_folders:
        own_warehouse, in_database, _ = store.root.rpartition(database_place)
        if in_database and same_place(root, own_warehouse):
            feature = f"a copy into a folder of the catalog server {store.registry.root}, {root}"
            raise UnsupportedFeature(f"{feature}; name another warehouse", store.name)
    root = f"{root.rstrip('/')}{_place(target)}"
    if f"{root}/".startswith(f"{store.root}/") or f"{store.root}/".startswith(f"{root}/"):
        raise InvalidOption("target", root, f"a folder outside of the copied table's, {store.root}", store.name)
    return root


def _folder_giver(store: TableStore, warehouse: str | None) -> FolderGiver | None:
    """Return the catalog server that creates the new table, or None if the copy needs no server."""
    return store.registry if warehouse is None and isinstance(store.registry, FolderGiver) else None


def _open_served(store: TableStore, giver: FolderGiver, target: str) -> TableStore | None:
    """Return the new table as the catalog server describes it, or None if the server has no such table.

    Raises:
        StorageRefused: the server names a folder inside the copied table's, or around it.
    """
    folder = giver.find_folder(target)
    if folder is None:
        return None
    file_io, root, publisher = folder
    if (
        same_place(root, store.root)
        or f"{root}/".startswith(f"{store.root}/")
        or f"{store.root}/".startswith(f"{root}/")
    ):
        raise StorageRefused(
            root, f"the catalog server says that table {target} is in the folder of {store.name}", "copy into"
        )
    opened = TableStore.open(file_io, root, target, store.clock)
    return opened.registered_in(store.registry).published_by(publisher)


def _require_one_schema(store: TableStore, snapshot: Snapshot | None, giver: FolderGiver) -> None:
    """Check that the copied files can belong to a table with one schema, whose first snapshot has id 1.

    Raises:
        UnsupportedFeature: a file has other columns than the newest schema, or rows with ids.
    """
    feature = f"a copy into the warehouse of the catalog server {giver.root}"
    advice = "name another warehouse, or write CREATE TABLE ... AS SELECT"
    if manifests.tracks_rows(store):
        raise UnsupportedFeature(
            f"{feature} with row tracking, whose numbers follow the snapshots; {advice}", store.name
        )
    numbers: set[int] = set()
    for entries in manifests.iter_live(store, snapshot) if snapshot is not None else ():
        numbers.update(pc.unique(entries.column("schema_id")).to_pylist())
    for number in sorted(numbers - {store.schema.id}):
        schema = load_schema(store.file_io, store.root, number, store.branch)
        if schema.fields != store.schema.fields:
            reason = f"with files of schema {number}, because the copy has one schema"
            raise UnsupportedFeature(f"{feature} {reason}; compact the table fully, or {advice}", store.name)


def _require_free_served(store: TableStore, target: TableStore, origin: str) -> bool:
    """Check that a table of a catalog server can receive the copy, and return whether it has this copy already.

    Raises:
        TableExists: the target has another history, or another definition than the copied table.
    """
    newest = snapshots.latest(target)
    if newest is not None and (newest.properties or {}).get(COPY_PROPERTY) != origin:
        raise TableExists(f"table {target.name} in {target.root} has snapshots; copy {store.name} to another name")
    parts = _different_parts(_without_external_paths(store.schema), target.schema)
    parts = [part for part in parts if part not in ("highest column id", "comment")]
    if parts:
        text = f"has another definition than {store.name} ({', '.join(parts)}); copy {store.name} to another name"
        raise TableExists(f"table {target.name} in {target.root} {text}")
    return newest is not None


def _place(target: str) -> str:
    """Return the path of a table below its warehouse."""
    database, _, name = target.partition(".")
    return f"/{database}.db/{name}"


def _open_target(store: TableStore, plan: MaintenancePlan) -> TableStore:
    """Return the new table with the copied table's schema; its folder may not exist yet."""
    warehouse, target = plan.arguments["target_warehouse"], str(plan.arguments["target"])
    root = _target_root(store, target, None if warehouse is None else str(warehouse))
    file_io = store.file_io if warehouse is None else file_io_for(str(warehouse), storage_options(store.file_io))[0]
    _require_folder(root)
    return TableStore(file_io, root, target, _without_external_paths(store.schema), None, store.clock)


def _without_external_paths(schema: TableSchema) -> TableSchema:
    """Return a schema without external paths: two tables that use the same paths could not be cleaned."""
    keys = [key for key in schema.options if key == EXTERNAL_PATHS or key.startswith(f"{EXTERNAL_PATHS}.")]
    if not keys:
        return schema
    return replace(schema, options={key: value for key, value in schema.options.items() if key not in keys})


def _require_folder(root: str) -> None:
    """Check that the folder of the new table, its database and its warehouse are folders, or can be created.

    Raises:
        StorageRefused: a file is in their place, or a symbolic link whose target is no folder. The table's own folder
            may not be a link at all, because all files would be written elsewhere.
    """
    if place_of(root):
        return
    database = os.path.dirname(root)
    for path in (os.path.dirname(database), database, root):
        if is_link(path) and (path == root or not os.path.isdir(path)):
            raise StorageRefused(path, "it is a symbolic link; remove it, or copy to another name", "copy into")
        if os.path.lexists(path) and not os.path.isdir(path):
            raise StorageRefused(path, "it is a file; remove it, or copy to another name", "copy into")


def target_exists(store: TableStore, target: str, target_warehouse: str | None = None) -> bool:
    """Return whether the target of a copy is a table already.

    Args:
        store: the table to copy.
        target: name of the new table, "db.table".
        target_warehouse: folder or address of the warehouse of the new table, None for the table's own warehouse.

    Raises:
        InvalidOption: the target is no name of a table, or the table's own warehouse is unknown.
        StorageRefused: a file or symbolic link is in the place of the target's folder.
    """
    giver = _folder_giver(store, target_warehouse)
    if giver is not None:
        _target_root(store, target, None)
        return giver.find_folder(target) is not None
    plan = MaintenancePlan.begin(_ACTION, store, None, {"target": target, "target_warehouse": target_warehouse})
    opened = _open_target(store, plan)
    return bool(list_schema_ids(opened.file_io, opened.root))


def _require_free(store: TableStore, target: TableStore, origin: str) -> bool:
    """Check that the target can receive the copy, and return whether it has this copy already.

    Args:
        store: the copied table.
        target: the new table.
        origin: text that names the copied table and snapshot (:func:`_origin`).

    Returns:
        Whether the target has the snapshot of this copy. If the copied table has no snapshot: whether the target has
            its definition.

    Raises:
        TableExists: the target has another history, or another definition than the copied table.
    """
    newest = snapshots.latest(target)
    if newest is not None and (newest.properties or {}).get(COPY_PROPERTY) != origin:
        raise TableExists(f"table {target.name} in {target.root} has snapshots; copy {store.name} to another name")
    known, present = _schema_ids(store), list_schema_ids(target.file_io, target.root)
    for number in present:
        theirs = load_schema(target.file_io, target.root, number)
        ours = load_schema(store.file_io, store.root, number, store.branch) if number in known else None
        ours = None if ours is None else _without_external_paths(ours)
        parts = [f"{store.name} has no such schema"] if ours is None else _different_parts(ours, theirs)
        if parts:
            text = f"has another definition than {store.name} (schema {number}: {', '.join(parts)})"
            raise TableExists(f"table {target.name} in {target.root} {text}; copy {store.name} to another name")
    return newest is not None or (origin == _origin(store, None) and present == known)


def _different_parts(ours: TableSchema, theirs: TableSchema) -> list[str]:
    """Return names of the parts in which two schemas differ; the time of creation does not count."""
    parts = {
        "columns": (ours.fields, theirs.fields),
        "highest column id": (ours.highest_field_id, theirs.highest_field_id),
        "partition keys": (ours.partition_keys, theirs.partition_keys),
        "primary key": (ours.primary_keys, theirs.primary_keys),
        "options": (dict(ours.options), dict(theirs.options)),
        "comment": (ours.comment or "", theirs.comment or ""),
    }
    return [name for name, (own, other) in parts.items() if own != other]


def apply_copy(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Copy the planned files, then write the new table's first snapshot, and enter the table in its catalog.

    A table without snapshots is copied as its definition alone. After an error the copied files stay; the same plan,
    or a new one, continues with them. Memory holds the entries of two manifests.

    Args:
        store: the copied table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a CopyReport.

    Raises:
        PlanStale: the planned snapshot has expired; tag it to keep it during a long copy.
        TableExists: the target has other snapshots or another definition.
        StorageRefused: a file or symbolic link is in the place of the target's folder.
        MetastoreFailed: the new table cannot be entered in the catalog; apply the plan again to enter it.
        CorruptFile: a file is missing or does not have its recorded size, or metadata cannot be read.
        VerificationFailed: a copied file differs from its source.
    """
    target_name = str(plan.arguments["target"])
    report = CopyReport(plan.hash, plan.base_snapshot, target_name, declined=plan.declined)
    if not plan.items:
        return ApplyOutcome(report)
    require_readable(store)
    snapshot = None if plan.base_snapshot is None else _read_planned(store, plan.base_snapshot)
    origin = _origin(store, snapshot)
    giver = _folder_giver(store, None if plan.arguments["target_warehouse"] is None else "")
    if giver is not None:
        return _apply_served(store, plan, giver, snapshot, report)
    target = _open_target(store, plan)
    if _require_free(store, target, origin):
        _enter_in_catalog(store, target)  # an earlier copy may have ended before
        return ApplyOutcome(report)
    copying = _Copying(store, target, chosen_from_text(plan.arguments["partitions"]))
    if snapshot is None:
        _copy_schemas(store, target)
        _enter_in_catalog(store, target)
        unlisted = _is_unlisted(store, target)
        return ApplyOutcome(replace(report, root=target.root, unlisted=unlisted), [_copied_line(target, copying)])
    first = _copied_snapshot(store, target, copying, snapshot)
    _copy_schemas(store, target)
    _enter_in_catalog(store, target)
    if _require_free(store, target, origin) or not target.file_io.write_exclusive(
        target.snapshot_path(first.id), first.to_json()
    ):
        return ApplyOutcome(report)  # another process made the same copy meanwhile
    snapshots.write_latest_hint(target, first.id)
    snapshots.write_earliest_hint(target, first.id)
    publish_history(target)  # its own Iceberg metadata, with the addresses of its own files
    return _outcome(store, target, copying, replace(report, unlisted=_is_unlisted(store, target)))


def _outcome(store: TableStore, target: TableStore, copying: _Copying, report: CopyReport) -> ApplyOutcome:
    """Return the outcome of a copy with files."""
    report = replace(
        report,
        root=target.root,
        files=copying.copied,
        size=copying.size,
        kept=copying.kept,
        rows=copying.rows,
        verification="V0" if store.options.verification == COUNTS else "V1",
    )
    return ApplyOutcome(report, [_copied_line(target, copying)])


def _copied_snapshot(store: TableStore, target: TableStore, copying: _Copying, snapshot: Snapshot) -> Snapshot:
    """Copy the files of a snapshot and write its manifests; return the first snapshot of the new table.

    Raises:
        PlanStale: the snapshot expired meanwhile.
    """
    try:
        metas = manifests.write_manifests(target, copying.entries(snapshot))
        index_entries = copying.copy_indexes(snapshot)
    except CorruptFile:
        _read_planned(store, snapshot.id)
        raise
    base_list, base_size = manifests.write_list(target, metas)
    delta_list, delta_size = manifests.write_list(target, [])
    kept = {key: value for key, value in (snapshot.properties or {}).items() if key == MAX_SEQUENCE}
    return replace(
        snapshot,  # with its id: numbers in the files must be below those of later snapshots
        base_manifest_list=base_list,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta_list,
        delta_manifest_list_size=delta_size,
        changelog_manifest_list=None,
        changelog_manifest_list_size=None,
        index_manifest=manifests.write_index_manifest(target, None, [], index_entries) if index_entries else None,
        commit_user="dredge-copy",
        commit_identifier=BATCH_COMMIT_IDENTIFIER,
        commit_kind=CommitKind.COMPACT,  # followers of the new table skip it: the rows are not its changes
        time_millis=store.clock.now_ms(),
        total_record_count=copying.rows,
        delta_record_count=0,
        changelog_record_count=None,
        statistics=None,
        properties={**kept, COPY_PROPERTY: _origin(store, snapshot)},
        uuid=None,
    )


def _apply_served(
    store: TableStore, plan: MaintenancePlan, giver: FolderGiver, snapshot: Snapshot | None, report: CopyReport
) -> ApplyOutcome:
    """Let a catalog server create the new table, copy the files into its folder, and let the server publish them."""
    origin, name = _origin(store, snapshot), str(plan.arguments["target"])
    _require_one_schema(store, snapshot, giver)
    is_new = giver.find_folder(name) is None
    if is_new:
        giver.add_table(name, _without_external_paths(store.schema))
    target = _open_served(store, giver, name)
    if target is None:
        raise TableNotFound(f"table {name} was dropped or renamed during the copy of {store.name}")
    if _require_free_served(store, target, origin):
        return ApplyOutcome(report)
    copying = _Copying(store, target, chosen_from_text(plan.arguments["partitions"]))
    if snapshot is None:
        return ApplyOutcome(replace(report, root=target.root if is_new else ""), [_copied_line(target, copying)])
    first = _copied_snapshot(store, target, copying, snapshot)
    first = replace(first, id=1, schema_id=target.schema.id, uuid=str(uuid.uuid4()))
    counts = totals(target, first, ["partition"])
    columns = ("record_count", "file_size_in_bytes", "file_count", "last_update_time", "total_buckets")
    published = publish(target, first, Retries.of(target.options), changes=partition_counts(target, counts, columns))
    if published is PublishOutcome.TAKEN:
        _require_free_served(store, target, origin)
        return ApplyOutcome(report)
    publish_history(target)
    return _outcome(store, target, copying, report)


def _copied_line(target: TableStore, copying: _Copying) -> dict[str, Any]:
    """Return the ledger's line on a copy."""
    counts = {"files": copying.copied, "bytes": copying.size}
    return {"event": "copied", "target": target.name, "root": target.root, **counts}


def _read_planned(store: TableStore, snapshot_id: int) -> Snapshot:
    """Return the planned snapshot, which a tag may keep after its expiry.

    Raises:
        PlanStale: the snapshot has expired, and no tag keeps it.
    """
    snapshot = snapshots.try_read(store, snapshot_id)
    tagged = tags.list_tags(store).values() if snapshot is None else ()
    snapshot = next((tag for tag in tagged if tag.id == snapshot_id), snapshot)
    if snapshot is None:
        raise PlanStale(f"snapshot {snapshot_id} has expired; tag a snapshot to keep it", store.name)
    return snapshot


def _enter_in_catalog(store: TableStore, target: TableStore) -> None:
    """Enter the new table in the catalog's list of tables, if it is in the warehouse of a catalog with such a list."""
    registry = store.registry
    if registry is not None and not _is_unlisted(store, target):
        registry.enter_table(target.name, target.schema)


def _is_unlisted(store: TableStore, target: TableStore) -> bool:
    """Return whether the source is in a catalog with a list of tables, and the new table is outside its warehouse."""
    registry = store.registry
    return registry is not None and not registry.accepts_folder(target.name, target.root)


def _copy_schemas(store: TableStore, target: TableStore) -> None:
    """Copy the schema files that are not newer than the opened schema; before them, the target is no table."""
    for number in _schema_ids(store):
        schema = load_schema(store.file_io, store.root, number, store.branch)
        own = _without_external_paths(schema)
        data = store.file_io.read_bytes(schema_path(store.root, number, store.branch))
        if own is not schema:
            data = own.to_json()
        target.file_io.write_exclusive(schema_path(target.root, number), data)


def _inside(entries: pa.Table) -> pa.Table:
    """Return manifest entries of files in the table's own folder, in place of external paths."""
    at = entries.schema.get_field_index("external_path")
    return entries.set_column(at, entries.schema.field(at), pa.nulls(entries.num_rows, pa.string()))


def _with_schema(entries: pa.Table, schema_id: int) -> pa.Table:
    """Return manifest entries of files with another schema of the same columns."""
    at = entries.schema.get_field_index("schema_id")
    field = entries.schema.field(at)
    return entries.set_column(at, field, pa.repeat(pa.scalar(schema_id, field.type), entries.num_rows))


class _Copying:
    """Copies files of one snapshot and counts them.

    Attributes:
        copied: number of copied files.
        size: bytes of the copied files.
        kept: number of files that the target had already.
        rows: number of rows in the data files, before merging.
    """

    def __init__(self, store: TableStore, target: TableStore, partitions: Sequence[bytes] | None) -> None:
        self._store, self._target = store, target
        self._partitions = partitions if store.schema.partition_keys else None
        self.copied = self.size = self.kept = self.rows = 0

    def entries(self, snapshot: Snapshot) -> Iterator[pa.Table]:
        """Yield the manifest entries of a snapshot after their files are copied, one manifest after another."""
        for entries in manifests.iter_live(self._store, snapshot):
            if self._partitions is not None:
                chosen = arrow_array(list(self._partitions), pa.binary())
                entries = entries.filter(pc.is_in(entries.column("partition"), chosen))
            require_allowed_places(self._store, entries)
            columns = ["partition", "bucket", "file_name", "file_size", "extra_files", "row_count", "external_path"]
            rows = entries.select(columns).to_pylist()  # one object per file of one manifest
            files = [
                ((row["partition"], row["bucket"], name), row["external_path"], size)
                for row in rows
                for name, size in ((row["file_name"], row["file_size"]), *((x, None) for x in row["extra_files"] or ()))
            ]
            store, target = self._store, self._target
            self._copy_all(
                [(store.data_path(*place, path), target.data_path(*place), size) for place, path, size in files]
            )
            self.rows += sum(row["row_count"] for row in rows)
            if entries.num_rows and self._target.publisher is not None:
                entries = _with_schema(entries, self._target.schema.id)
            if entries.num_rows:
                yield _inside(entries)

    def copy_indexes(self, snapshot: Snapshot) -> list[IndexManifestEntry]:
        """Copy the index files of a snapshot (deletion vectors, hashes of keys), and return their entries."""
        entries = [
            entry
            for entry in manifests.index_entries(self._store, snapshot)
            if self._partitions is None or entry.partition in self._partitions
        ]
        copies = [replace(entry, external_path=None) for entry in entries]
        self._copy_all(
            [
                (index_file_path(self._store, entry), index_file_path(self._target, copy), entry.file.file_size)
                for entry, copy in zip(entries, copies, strict=True)
            ]
        )
        return copies

    def _copy_all(self, files: Sequence[tuple[str, str, int | None]]) -> None:
        with ThreadPoolExecutor(usable_cores()) as threads:
            for size in threads.map(lambda file: self._copy(*file), files):
                self.kept += size is None
                self.copied += size is not None
                self.size += size or 0

    def _copy(self, source: str, target: str, size: int | None) -> int | None:
        """Copy one file in chunks, and return its bytes; None if the target has the file already.

        Raises:
            CorruptFile: the file is missing, or does not have ``size`` bytes.
            VerificationFailed: the copied file differs from its source.
        """
        inside(self._target.root, target)
        verified = self._store.options.verification != COUNTS
        try:
            size = self._store.file_io.size(source) if size is None else size
            if self._target.file_io.exists(target):
                if self._target.file_io.size(target) == size and (
                    not verified or _digest(self._store, source) == _digest(self._target, target)
                ):
                    return None
                self._target.delete(target)  # a part of the file, from an interrupted copy
            opened = self._store.file_io.open_input(source)
        except FileNotFoundError as error:
            text = f"the file is missing, but table {self._store.name} references it; `dredge doctor` lists remedies"
            raise CorruptFile(source, text) from error
        digest, count = hashlib.blake2b(), 0
        with opened, self._target.file_io.open_output(target) as sink:
            while part := opened.read(_CHUNK):
                sink.write(part)
                digest.update(part)
                count += len(part)
            if count != size:
                raise CorruptFile(source, f"{count} bytes, metadata record {size}")
        if verified and _digest(self._target, target) != digest.digest():
            raise VerificationFailed("V1", [f"{target} is not what was copied from {source}"])
        return count


def _digest(store: TableStore, path: str) -> bytes:
    digest = hashlib.blake2b()
    with store.file_io.open_input(path) as source:
        while part := source.read(_CHUNK):
            digest.update(part)
    return digest.digest()


WORK: Final = ActionWork(plan_copy, apply_copy, CopyReport, (CopyItem, DefinitionItem))
