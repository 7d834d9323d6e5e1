"""State of one table (or branch) for all operations: paths, FileIO, schema, options and clock.

The module also lists, reads and creates schema files; an existing schema file is never replaced.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, Self, runtime_checkable

from lsm_core.clock import Clock, clock_from
from lsm_core.errors import CorruptFile, SnapshotNotFound, StorageRefused, TableNotFound, UnsupportedFeature
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.partitions import newer_partition_dir, partition_dir
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.json_text import parse_json
from lsm_core.metadata import paimon_version
from lsm_core.metadata.external_paths import EXTERNAL_PATHS, SPECIFIC_FS, STRATEGY, WEIGHTS, ExternalPaths
from lsm_core.options import (
    ALLOWED_PLACES,
    EXTERNAL_ROOTS,
    EXTERNAL_ROOTS_OPTION,
    TableOptions,
    parse_external_roots,
)
from lsm_core.options.table_options import PAIMON_VERSION
from lsm_core.storage import (
    FileIO,
    Kept,
    KeySource,
    PathBelow,
    check_name,
    file_io_for,
    inside,
    is_link,
    key_source,
    place_of,
    storage_options,
)
from lsm_core.types import TypeRoot

# A schema of 10,000 columns takes 2 MB. A file above this limit is not a schema and is not read into memory.
_MAX_BYTES = 64 << 20
_NAME = re.compile(r"schema-(0|[1-9][0-9]{0,18})")
_DECODED_SIZE = 10  # decoded bytes for each byte of JSON
# Every operation reads its schema again (`require_same`). The bytes belong to the key, so a changed file is decoded.
_decoded = Kept(32 << 20)


def metadata_root(root: str, branch: str = "main") -> str:
    """Return the directory that contains the schemas, snapshots, tags and consumers of a branch."""
    return root if branch == "main" else f"{root}/branch/branch-{branch}"


def schema_path(root: str, schema_id: int, branch: str = "main") -> str:
    """Return the path of a schema file."""
    return f"{metadata_root(root, branch)}/schema/schema-{schema_id}"


def list_schema_ids(file_io: FileIO, root: str, branch: str = "main") -> list[int]:
    """Return the ids of all schema files, ascending; empty if the table does not exist."""
    matches = (
        _NAME.fullmatch(status.name)
        for status in file_io.list_dir(f"{metadata_root(root, branch)}/schema")
        if not status.is_dir
    )
    return sorted(int(match.group(1)) for match in matches if match)


def load_schema(file_io: FileIO, root: str, schema_id: int, branch: str = "main") -> TableSchema:
    """Return the schema ``schema_id``.

    Raises:
        CorruptFile: the file is missing, too large, truncated or contains a different id; the message names the file.
    """
    path = schema_path(root, schema_id, branch)
    try:
        with file_io.open_input(path) as source:
            if source.size() > _MAX_BYTES:
                raise CorruptFile(path, f"a schema of {source.size()} bytes")
            data = source.read()
    except FileNotFoundError as error:
        raise CorruptFile(path, "the schema file is missing") from error
    schema: TableSchema | None = _decoded.get((path, data))
    if schema is None:
        schema = TableSchema.from_json(data, path)
        _decoded.put((path, data), schema, _DECODED_SIZE * len(data))
    if schema.id != schema_id:
        raise CorruptFile(path, f"holds schema id {schema.id}")
    return schema


def require_same(file_io: FileIO, root: str, name: str, opened: TableSchema, branch: str = "main") -> None:
    """Check that a folder still contains the table that was opened.

    The identity of a table is the content of the schema with which the table was opened; the schema contains its
    creation time. Paimon never changes a schema file.

    Args:
        file_io: access to the files.
        root: the table's directory.
        name: the table's name, for the message.
        opened: the schema that was read when the table was opened.
        branch: the branch.

    Raises:
        TableNotFound: the table was dropped or renamed, or the folder now contains a different table or history.
        CorruptFile: the schema file is damaged.
    """
    try:
        current = load_schema(file_io, root, opened.id, branch)
    except CorruptFile:
        ids = list_schema_ids(file_io, root, branch)
        if opened.id in ids:
            raise
        if not ids:
            which = f"table {name}" if branch == "main" else f"branch {branch} of table {name}"
            reason = "was dropped or renamed since it was opened: it does not exist any more"
            raise TableNotFound(f"{which} {reason}") from None
        current = None
    if current != opened:
        raise TableNotFound(replaced_text(name))


def replaced_text(name: str) -> str:
    """Return the error message for a folder that now contains a different table than when it was opened."""
    reason = "it was dropped and created again, or has another history, as after a fast-forward"
    return f"table {name} was replaced since it was opened: {reason}; open it again"


def latest_schema(file_io: FileIO, root: str, branch: str = "main") -> TableSchema | None:
    """Return the newest schema.

    Returns:
        The schema, or None if the directory is not a table.

    Raises:
        CorruptFile: the schema file is damaged.
    """
    ids = list_schema_ids(file_io, root, branch)
    return load_schema(file_io, root, ids[-1], branch) if ids else None


def write_schema(file_io: FileIO, root: str, schema: TableSchema, branch: str = "main") -> bool:
    """Create the file of a new schema; an existing file is not replaced.

    Returns:
        Whether the file was created; False if another writer has already used the schema id.
    """
    path = schema_path(root, schema.id, branch)
    return file_io.write_exclusive(path, schema.to_json())


POSTPONE_BUCKET = -2


class BucketMode(StrEnum):
    """How rows are assigned to buckets (Java `BucketMode`)."""

    FIXED = "fixed"
    """The bucket function selects one of a fixed number of buckets (`bucket` > 0)."""
    DYNAMIC = "dynamic"
    """An index of key hashes selects the bucket (`bucket` = -1, the primary key contains all partition columns)."""
    CROSS_PARTITION = "cross-partition"
    """A lookup in all partitions finds a key's bucket (`bucket` = -1, the primary key lacks a partition column)."""
    UNAWARE = "unaware"
    """All rows of a partition are in bucket 0 (`bucket` = -1 without a primary key)."""
    POSTPONE = "postpone"
    """A later compaction assigns the bucket (`bucket` = -2)."""


class TableRegistry(Protocol):
    """List of a warehouse's tables in addition to its folders, for example in a JDBC catalog's database.

    Attributes:
        root: path of the warehouse.
        takes_folders: whether a table's folder that a client has written can be entered.
    """

    root: str
    takes_folders: bool

    def accepts_folder(self, name: str, folder: str) -> bool:
        """Return whether a table is to be entered: its folder is in the warehouse.

        Args:
            name: "db.table".
            folder: folder of the table.

        Raises:
            InvalidSchema: the list cannot hold the name.
            MetastoreFailed: the registry cannot be used.
        """
        ...

    def enter_table(self, name: str, schema: TableSchema) -> None:
        """Enter a table whose folder exists, and its database; a table that is listed already stays.

        Args:
            name: "db.table".
            schema: newest schema of the table.

        Raises:
            MetastoreFailed: the registry cannot be used.
        """
        ...


class PartitionList(Protocol):
    """Partitions of one table that a Hive metastore lists for Hive's readers, in addition to the table's snapshots."""

    def add(self, partitions: Sequence[tuple[Mapping[str, str], str]]) -> None:
        """Add partitions; those that are listed stay as they are.

        Args:
            partitions: for each partition, the texts of its values by column, and its directory below the table.

        Raises:
            TableNotFound: the table was dropped or renamed.
            MetastoreFailed: the metastore cannot be used, or refuses the request.
        """
        ...

    def remove(self, partitions: Sequence[Mapping[str, str]]) -> None:
        """Remove partitions from the list, not their files.

        Args:
            partitions: texts of each partition's values by column.

        Raises:
            MetastoreFailed: the metastore cannot be used, or refuses the request.
        """
        ...

    def mark_partitions_done(self, partitions: Sequence[Mapping[str, str]], branch: str) -> None:
        """Mark partitions as done for readers.

        Args:
            partitions: texts of each partition's values by column.
            branch: branch of the table.

        Raises:
            MetastoreFailed: the metastore cannot be used, or refuses the request.
        """
        ...


@runtime_checkable
class FolderGiver(Protocol):
    """Catalog server that creates tables, and decides about their folders.

    Attributes:
        root: address of the warehouse, for messages.
    """

    root: str

    def find_folder(self, name: str) -> tuple[FileIO, str, SnapshotPublisher | None] | None:
        """Return access to the files of a table, its folder and its publisher, or None if there is no such table.

        Args:
            name: "db.table".

        Raises:
            CorruptFile: the server names a folder that is not the table's.
            MetastoreFailed: the server cannot be used.
        """
        ...

    def add_table(self, name: str, schema: TableSchema) -> None:
        """Create a table, and its database if that does not exist; a table of this name stays.

        Args:
            name: "db.table".
            schema: definition of the table.

        Raises:
            InvalidSchema: the server refuses the definition.
            MetastoreFailed: the server cannot be used.
        """
        ...


class SnapshotPublisher(Protocol):
    """Catalog server that publishes the snapshots of one table; clients of such a table do not create snapshot files.

    Attributes:
        address: address of the server, for messages.
    """

    address: str

    def publish(
        self, snapshot: Snapshot, base: Snapshot | None, branch: str, changes: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Publish a snapshot.

        Args:
            snapshot: the new snapshot; its id is one more than that of ``base``.
            base: snapshot on which it was built, or None.
            branch: branch of the table.
            changes: change of each partition's counts (`partition_changes`).

        Returns:
            Whether the snapshot was published. False if another snapshot has its id.

        Raises:
            OutcomeUnknown: the server may have published the snapshot.
            TableNotFound: the table was dropped or replaced.
            MetastoreFailed: the server refused or cannot be reached; nothing was published.
        """
        ...

    def roll_back(self, target: int, newest: int, branch: str) -> None:
        """Make an older snapshot the newest snapshot; the server deletes the newer snapshots and their files.

        Args:
            target: id of the snapshot to return to.
            newest: id of the newest snapshot; the server refuses if a newer snapshot exists.
            branch: branch of the table.

        Raises:
            OutcomeUnknown: the server may have rolled the table back.
            SnapshotNotFound: the server does not have the target.
            MetastoreFailed: the server refused or cannot be reached; nothing was changed.
        """
        ...

    def create_branch(self, branch: str, from_tag: str | None) -> None:
        """Create a branch.

        Args:
            branch: name of the new branch.
            from_tag: tag that the branch begins with, or None for an empty branch.

        Raises:
            OutcomeUnknown: the server may have created the branch.
            TableExists: the branch exists.
            SnapshotNotFound: the tag does not exist.
            MetastoreFailed: the server refused or cannot be reached; nothing was changed.
        """
        ...

    def drop_branch(self, branch: str) -> None:
        """Delete a branch; the server keeps the data files that only this branch needed.

        Args:
            branch: name of the branch.

        Raises:
            OutcomeUnknown: the server may have deleted the branch.
            TableNotFound: the branch does not exist.
            MetastoreFailed: the server refused or cannot be reached; nothing was changed.
        """
        ...

    def forward_branch(self, branch: str) -> None:
        """Replace the table's newer snapshots by those of a branch; the server keeps the files of the old snapshots.

        Args:
            branch: name of the branch.

        Raises:
            OutcomeUnknown: the server may have replaced the snapshots.
            TableNotFound: the branch does not exist.
            MetastoreFailed: the server refused or cannot be reached; nothing was changed.
        """
        ...

    def list_partitions(self, branch: str) -> Iterator[Mapping[str, Any]]:
        """Yield the partitions that the server lists, page by page, in the form of Paimon's `Partition`.

        The member `spec` has the values of the partition columns as texts; all other members are unchecked. A server
        that keeps no partitions of this table yields none.

        Args:
            branch: branch of the table.

        Raises:
            TableNotFound: the table was dropped or renamed.
            MetastoreFailed: the server refused or cannot be reached.
        """
        ...

    def mark_partitions_done(self, specs: Sequence[Mapping[str, str]], branch: str) -> None:
        """Mark partitions as done on the server; marking them again changes nothing.

        Args:
            specs: values of the partition columns as texts.
            branch: branch of the table.

        Raises:
            UnsupportedFeature: the server keeps no partitions of this table.
            TableNotFound: the table was dropped or renamed.
            MetastoreFailed: the server refused or cannot be reached.
        """
        ...


class OutcomeUnknown(Exception):
    """A request that changes something was sent, and it is unknown whether the server carried it out."""


_METADATA_FOLDERS: Final = (
    *("snapshot", "schema", "manifest", "index", "statistics", "tag", "tag/tag-success-file"),
    *("changelog", "consumer", "branch"),
    *("dredge", "dredge/trash", "dredge/plans", "dredge/ledger", "dredge/lock", "dredge/staged", "dredge/deep-check"),
)
_BRANCH_FOLDERS: Final = ("", "/snapshot", "/schema", "/tag", "/changelog", "/consumer")
"""Metadata folders of a branch, relative to its own folder."""


def _require_no_links(root: str, branch: str, name: str) -> None:
    """Refuse a table with symbolic links as metadata folders: they may lead into another table's metadata.

    Args:
        root: the table's folder.
        branch: the branch whose folders are checked in addition to those of the table.
        name: the table's name, for the error.

    Raises:
        StorageRefused: a folder below ``root`` is a symbolic link.
    """
    if place_of(root):
        return
    own = [] if branch == "main" else [f"branch/branch-{branch}{folder}" for folder in _BRANCH_FOLDERS]
    for folder in (*_METADATA_FOLDERS, *own):
        if is_link(f"{root}/{folder}"):
            reason = f"it is a symbolic link, so table {name} would read and write metadata elsewhere; make it a folder"
            raise StorageRefused(f"{root}/{folder}", reason, "use")


class NewFile(NamedTuple):
    """Place of a new file.

    Attributes:
        path: absolute path of the file.
        external_path: path to record in the manifest entry; None for a file in the table's folder.
    """

    path: str
    external_path: str | None


class TableStore:
    """One table with one schema.

    A store is immutable except for the counter of file names. A store can be pickled; a copy generates its own file
    names. Metadata of a branch is in a separate directory, whereas manifests, index files and data files are shared
    with main.

    The Paimon version to follow (`dredge.paimon-version`) is determined once, when the table is opened, so that no
    operation mixes two versions.

    Attributes:
        file_io: access to the files.
        root: the table's directory.
        name: the table's name, for messages.
        schema: the schema.
        options: options of the schema, overridden by ``dynamic_options``.
        dynamic_options: options that apply to this object only.
        clock: source of the current time.
        branch: the branch, ``main`` by default.
        identity: schema that was read when the table was opened; :meth:`require_same` compares it with the file.
        kept: cache of immutable files (footers, indexes).
        registry: list that must also name new tables of the warehouse; None if the folders alone are the catalog.
        publisher: catalog server that publishes this table's snapshots; None if clients create the snapshot files.
        partition_list: the metastore's list of the table's partitions; None without such a list.
        external_roots: folders outside the table's own in which the catalog allows data files, as text
            (`lsm_core.options.external_roots`), in addition to those of the environment.

    Source: ``FileStorePathFactory``, ``AbstractFileStore``.
    """

    def __init__(
        self,
        file_io: FileIO,
        root: str,
        name: str,
        schema: TableSchema,
        options: TableOptions | Mapping[str, str] | None = None,
        clock: Clock | str | None = None,
        branch: str = "main",
        dynamic_options: Mapping[str, str | None] | None = None,
        identity: TableSchema | None = None,
    ) -> None:
        self.file_io, self.root, self.name, self.schema = file_io, root.rstrip("/"), name, schema
        if not isinstance(options, TableOptions):
            options = TableOptions(schema.options if options is None else options, name, stored=options is None)
        self.dynamic_options = dict(dynamic_options or {})
        self.options = options.copy(self.dynamic_options) if self.dynamic_options else options
        self.clock: Clock = clock_from(clock)
        self.branch = check_name(branch, name, "branch name")
        self._schemas = {schema.id: schema}
        self.identity = schema if identity is None else identity
        self._family = ""
        self._own_uuid = _make_uuid("")
        self._numbers = itertools.count()
        self._dirs: dict[tuple[bytes, int], tuple[str, ...]] = {}
        self.kept = Kept()
        self._detected_options: dict[str, str] = {}
        self.registry: TableRegistry | None = None
        self.publisher: SnapshotPublisher | None = None
        self.partition_list: PartitionList | None = None
        self.external_roots = ""
        self._external: tuple[tuple[object, ...], ExternalPaths] | None = None

    @classmethod
    def open(
        cls,
        file_io: FileIO,
        root: str,
        name: str,
        clock: Clock | str | None = None,
        dynamic_options: Mapping[str, str | None] | None = None,
        branch: str = "main",
        schema_id: int | None = None,
    ) -> TableStore:
        """Open a table with its newest schema.

        Args:
            file_io: access to the files.
            root: the table's directory.
            name: the table's name, for messages.
            clock: the clock or its specification, or None for the system clock.
            dynamic_options: options on top of the stored ones, or None.
            branch: the branch to open.
            schema_id: the schema to use, or None for the newest.

        Returns:
            The opened table.

        Raises:
            TableNotFound: the table or branch does not exist; the message names it.
            CorruptFile: the schema is damaged.
            InvalidOption: an option has an invalid value.
        """
        root = root.rstrip("/")
        check_name(branch, name, "branch name")
        _require_no_links(root, branch, name)
        if schema_id is None:
            schema = latest_schema(file_io, root, branch)
        else:
            try:
                schema = load_schema(file_io, root, schema_id, branch)
            except CorruptFile:
                if list_schema_ids(file_io, root, branch):
                    raise
                schema = None
        if schema is None:
            suffix = "" if branch == "main" else f", branch {branch}"
            raise TableNotFound(f"table {name}{suffix} does not exist (no schema under {root})")
        options = dict(dynamic_options or {})
        # Merges differ between versions; so do the choice of files for incremental clustering, and statistics of bytes.
        has_versions = (
            schema.primary_keys
            or schema.options.get("clustering.incremental", "").lower() == "true"
            or any(field.type.root in (TypeRoot.BINARY, TypeRoot.VARBINARY) for field in schema.fields)
        )
        if not has_versions or PAIMON_VERSION in schema.options or PAIMON_VERSION in options:
            return cls(file_io, root, name, schema, None, clock, branch, options)
        kept = Kept()
        version = paimon_version.of_snapshots(file_io, f"{metadata_root(root, branch)}/snapshot", kept)
        detected_options = {} if version is None else {PAIMON_VERSION: str(version)}
        store = cls(file_io, root, name, schema, None, clock, branch, {**options, **detected_options})
        store._detected_options, store.kept = detected_options, kept
        return store

    # -- other views of the same table -----------------------------------------------------------------------------

    def copy(self, dynamic: Mapping[str, str | None]) -> TableStore:
        """Return this table with additional dynamic options (Java `FileStoreTable.copy`).

        Args:
            dynamic: option values; None removes an option, even a stored one.

        Returns:
            The table with the combined options.

        Raises:
            InvalidOption: an option is immutable.
        """
        additions = {str(key): None if value is None else str(value) for key, value in dynamic.items()}
        options = {**self.dynamic_options, **additions}
        store = TableStore(
            self.file_io, self.root, self.name, self.schema, None, self.clock, self.branch, options, self.identity
        )
        store._detected_options = {} if PAIMON_VERSION in dynamic else self._detected_options
        return store.naming_files_as(self).in_catalog_of(self)

    def with_schema(self, schema: TableSchema) -> TableStore:
        """Return this table with ``schema`` in place of its own schema; both stores share their caches."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)  # both take file names from one counter
        other.schema = schema
        other._schemas = {schema.id: schema}
        return other

    def in_family(self, family: str) -> TableStore:
        """Return this table with ``family`` as prefix of the UUID in new file names, also in other processes.

        The prefix identifies the files that the writers of one job wrote and did not commit.

        Args:
            family: the prefix of a UUID.

        Returns:
            The table with new file names.
        """
        other = self.with_schema(self.schema)
        other._family, other._own_uuid, other._numbers = family, _make_uuid(family), itertools.count()  # noqa: SLF001
        return other

    def naming_files_as(self, other: TableStore) -> TableStore:
        """Use the UUID and counter of ``other`` for names of new files; return this object."""
        self._family, self._own_uuid, self._numbers = other._family, other._own_uuid, other._numbers
        return self

    def registered_in(self, registry: TableRegistry | None) -> Self:
        """Use ``registry`` for new tables of the warehouse; return this object."""
        self.registry = registry
        return self

    def published_by(self, publisher: SnapshotPublisher | None) -> Self:
        """Use ``publisher`` for new snapshots of the table; return this object."""
        self.publisher = publisher
        return self

    def listing_partitions(self, partition_list: PartitionList | None) -> Self:
        """Use ``partition_list`` for the partitions of commits; return this object."""
        self.partition_list = partition_list
        return self

    def allowing_roots(self, roots: str) -> Self:
        """Allow data files in the external roots of a catalog (`dredge.external-roots`); return this object."""
        self.external_roots = roots
        return self

    def in_catalog_of(self, other: TableStore) -> Self:
        """Use what the catalog gave ``other``, the same table: registry, publisher, lists; return this object."""
        self.registry, self.publisher, self.external_roots = other.registry, other.publisher, other.external_roots
        self.partition_list = other.partition_list
        return self

    def require_own_snapshots(self, work: str) -> None:
        """Check that clients, not a catalog server, create and delete the snapshot files of the table.

        Args:
            work: work that rewrites snapshot files, for the error, such as "a fast-forward".

        Raises:
            UnsupportedFeature: a catalog server publishes the snapshots, and would not learn of the change.
        """
        if self.publisher is not None:
            reason = f"{work} of a table whose snapshots the catalog server {self.publisher.address} publishes"
            raise UnsupportedFeature(f"{reason}; use the server, or an engine that it serves", self.name)

    @property
    def own_uuid(self) -> str:
        """The UUID in the names of all files created with this object and its copies in this process."""
        return self._own_uuid

    def with_buckets(self, count: int) -> TableStore:
        """Return this table with ``count`` as option `bucket`, for writers that assign rows to this many buckets."""
        schema = replace(self.schema, options={**self.schema.options, "bucket": str(count)})
        options = self.dynamic_options
        store = TableStore(
            self.file_io, self.root, self.name, schema, None, self.clock, self.branch, options, self.identity
        )
        return store.in_catalog_of(self)

    def require_same(self) -> None:
        """Check that the table's folder still holds the table that was opened.

        Raises:
            TableNotFound: the table was dropped or renamed, or another table is in its place.
            CorruptFile: the schema that the table was opened with is damaged.
        """
        require_same(self.file_io, self.root, self.name, self.identity, self.branch)

    def require_folder(self) -> None:
        """Check, before a file is created, that the folder still holds the table that was opened.

        A new file would recreate the folder of a dropped table. Object stores have no folders: for them the check
        before a commit is sufficient, so this method sends no request.
        """
        if not place_of(self.root):
            self.require_same()

    @contextmanager
    def naming_lost_table(self) -> Iterator[None]:
        """Context that replaces the error of a missing file by TableNotFound if the table itself is missing.

        Raises:
            TableNotFound: a file is missing because the table was dropped, renamed or replaced.
        """
        try:
            yield
        except (CorruptFile, SnapshotNotFound, FileNotFoundError) as error:
            try:
                self.require_same()
            except CorruptFile:
                raise error from None
            raise

    def refresh(self) -> TableStore:
        """Return this table with its newest schema."""
        store = TableStore.open(self.file_io, self.root, self.name, self.clock, self.given_options, self.branch)
        return store.in_catalog_of(self)

    @property
    def given_options(self) -> dict[str, str | None]:
        """The dynamic options that the caller set; None is the value of an option that the caller removed.

        Options that were detected when the table was opened (the Paimon version) are left out.
        """
        return {key: value for key, value in self.dynamic_options.items() if key not in self._detected_options}

    @property
    def version_found(self) -> bool:
        """Whether the Paimon version comes from a snapshot's writer, not from an option."""
        return bool(self._detected_options)

    def schema_of(self, schema_id: int) -> TableSchema:
        """Return the schema ``schema_id``.

        Raises:
            CorruptFile: the schema file is missing or damaged.
        """
        schema = self._schemas.get(schema_id)
        if schema is None:
            schema = load_schema(self.file_io, self.root, schema_id, self.branch)
            self._schemas[schema_id] = schema
        return schema

    @property
    def has_primary_key(self) -> bool:
        """Whether the table has a primary key (otherwise it is an append table)."""
        return bool(self.schema.primary_keys)

    @property
    def bucket_mode(self) -> BucketMode:
        """Bucket mode: how rows are assigned to buckets (fixed, dynamic, none, postponed ...)."""
        bucket = self.options.bucket
        if bucket > 0:
            return BucketMode.FIXED
        if not self.has_primary_key:
            return BucketMode.UNAWARE
        if bucket == POSTPONE_BUCKET:
            return BucketMode.POSTPONE
        return BucketMode.CROSS_PARTITION if self.schema.cross_partition else BucketMode.DYNAMIC

    # -- metadata paths --------------------------------------------------------------------------------------------

    @property
    def metadata_root(self) -> str:
        """Directory that contains the schema, snapshot, tag, consumer and changelog folders of this branch."""
        return metadata_root(self.root, self.branch)

    @property
    def snapshot_dir(self) -> str:
        """Directory of the snapshots and their hints."""
        return f"{self.metadata_root}/snapshot"

    @property
    def manifest_dir(self) -> str:
        """Directory of manifests, manifest lists and index manifests (shared by all branches)."""
        return f"{self.root}/manifest"

    @property
    def trash_dir(self) -> str:
        """Directory of the deletion records: lists of files that are marked for deletion and can still be restored."""
        return f"{self.root}/dredge/trash"

    @property
    def ledger_dir(self) -> str:
        """Directory of the ledger, which records the maintenance runs of the table."""
        return f"{self.root}/dredge/ledger"

    def snapshot_path(self, snapshot_id: int) -> str:
        """Return the path of a snapshot file."""
        return f"{self.snapshot_dir}/snapshot-{int(snapshot_id)}"

    def schema_path(self, schema_id: int) -> str:
        """Return the path of a schema file."""
        return schema_path(self.root, int(schema_id), self.branch)

    def delete(self, path: str) -> bool:
        """Delete one file of the table without following symbolic links below its root or external path.

        Args:
            path: absolute path of the file.

        Returns:
            Whether the file existed.

        Raises:
            StorageRefused: a folder on the path is a symbolic link.
            CorruptFile: a file outside the table's folder is in another table's folder, or behind a symbolic link.
            UnsupportedFeature: a file is outside the table's folder, and the operator allows no deletion there.
        """
        return self.file_io.delete(self.own_path(path))

    def own_path(self, path: str) -> str:
        """Return the path of a file of the table as it may be deleted; symbolic links are not followed then.

        Args:
            path: absolute path of the file.

        Raises:
            CorruptFile: a file outside the table's folder is in another table's folder, or behind a symbolic link.
            UnsupportedFeature: a file is outside the table's folder, and the operator allows no deletion there.
        """
        if path.startswith(f"{self.root}/"):
            return PathBelow.of(self.root, path)
        return self.external_paths.deletable(path, self.file_io)

    def delete_dir(self, path: str) -> bool:
        """Delete a folder of the table with its content, without following symbolic links below its root.

        Args:
            path: absolute path of the folder.

        Returns:
            Whether the folder existed.

        Raises:
            StorageRefused: a folder on the path is a symbolic link.
        """
        return self.file_io.delete_dir(PathBelow.of(self.root, path))

    def manifest_path(self, name: str) -> str:
        """Return the path of a manifest, manifest list or index manifest.

        Raises:
            InvalidData: the name would lead out of the directory.
        """
        return f"{self.manifest_dir}/{check_name(name, self.name)}"

    def index_path(self, name: str) -> str:
        """Return the path of an index file.

        Raises:
            InvalidData: the name would lead out of the directory.
        """
        return f"{self.root}/index/{check_name(name, self.name)}"

    def statistics_path(self, name: str) -> str:
        """Return the path of a statistics file.

        Raises:
            InvalidData: the name would lead out of the directory.
        """
        return f"{self.root}/statistics/{check_name(name, self.name)}"

    # -- data paths ------------------------------------------------------------------------------------------------

    def bucket_dir(self, partition: bytes, bucket: int) -> str:
        """Return the directory for new files of a bucket."""
        return self.bucket_dirs(partition, bucket)[0]

    def bucket_dirs(self, partition: bytes, bucket: int) -> tuple[str, ...]:
        """Return the directories of a bucket's files, the one for new files first.

        Usually there is one directory. JDKs before 19 print some floating-point partition values differently than later
        JDKs. For such a value the existing directories are returned, or both names if none exists.

        Args:
            partition: the partition as a serialised row.
            bucket: the bucket.

        Returns:
            Absolute paths.

        Raises:
            UnsupportedFeature: option `data-file.path-directory` is an absolute path.
        """
        directories = self._dirs.get((partition, bucket))
        if directories is not None:
            return directories
        data_directory = self.options.get("data-file.path-directory")
        if str(data_directory or "").startswith("/"):  # Java uses an absolute path as it is, outside the table
            raise UnsupportedFeature(f"data-file.path-directory outside the table ('{data_directory}')", self.name)
        base = f"{self.root}/{str(data_directory).strip('/')}" if data_directory else self.root
        name = partition_dir(self.schema, partition, self.options)
        bucket_name = "bucket-postpone" if bucket == POSTPONE_BUCKET else f"bucket-{int(bucket)}"
        newer = newer_partition_dir(self.schema, partition, self.options)
        names = [name]
        if newer is not None:
            existing = [
                partition_name
                for partition_name in (name, newer)
                if self.file_io.exists(inside(self.root, f"{base}/{partition_name}"))
            ]
            names = existing or names
        directories = tuple(
            inside(self.root, "/".join(filter(None, (base, partition_name, bucket_name)))) for partition_name in names
        )
        if newer is not None and not existing:
            return directories  # not cached: the first writer, which may be another engine, decides
        if len(self._dirs) > 100_000:  # the cache is bounded
            self._dirs.clear()
        self._dirs[(partition, bucket)] = directories
        return directories

    def data_path(
        self, partition: bytes, bucket: int, file: DataFileMeta | str, external_path: str | None = None
    ) -> str:
        """Return the path of a data file or of an extra file in the same directory.

        An external path must be below a folder that the operator allows (`lsm_core.options.external_roots`).

        Args:
            partition: the partition as a serialised row.
            bucket: the bucket.
            file: the file or its name.
            external_path: recorded external path, or None to use the external path of ``file``.

        Returns:
            The absolute path.

        Raises:
            InvalidData: the name would lead out of the directory.
            CorruptFile: the external path leads out of the allowed folder, or is not a path that the table declares.
            UnsupportedFeature: the operator does not allow the folder, or it is on another kind of storage than the
                table.
        """
        name = file if isinstance(file, str) else file.file_name
        if external_path is None and not isinstance(file, str):
            external_path = file.external_path
        check_name(name, self.name)
        if external_path is None:
            first, *alternatives = (f"{folder}/{name}" for folder in self.bucket_dirs(partition, bucket))
            if not alternatives or self.file_io.exists(first):
                return first
            return alternatives[0] if self.file_io.exists(alternatives[0]) else first
        return self.external_paths.locate(external_path, name)

    @property
    def external_paths(self) -> ExternalPaths:
        """External data paths of the table, with the permissions of the catalog and of the environment.

        Raises:
            InvalidOption: the permissions cannot be parsed.
        """
        environment = (os.environ.get(EXTERNAL_ROOTS, ""), os.environ.get(ALLOWED_PLACES, ""))
        options = (EXTERNAL_PATHS, STRATEGY, SPECIFIC_FS, WEIGHTS)
        key = (*environment, self.root, self.external_roots, *(self.options.text(option) for option in options))
        if self._external is None or self._external[0] != key:
            roots = (*parse_external_roots(self.external_roots, EXTERNAL_ROOTS_OPTION), *parse_external_roots(key[0]))
            self._external = (key, ExternalPaths(self.name, self.root, self.options, roots))
        return self._external[1]

    def new_data_file(self, partition: bytes, bucket: int, name: str) -> NewFile:
        """Return the place of a new file of a bucket: in the table's folder, or in an external path.

        Args:
            partition: the partition as a serialised row.
            bucket: the bucket.
            name: name of the file.

        Raises:
            InvalidData: the name would lead out of the directory.
            UnsupportedFeature: the operator does not allow the external path.
            InvalidOption: the options of external paths contradict each other.
            CorruptFile: the external path is in another table's folder, or behind a symbolic link.
        """
        check_name(name, self.name)
        external = self.external_paths
        if not external.takes_new_files:
            return NewFile(self.data_path(partition, bucket, name), None)
        folder = self.bucket_dir(partition, bucket).removeprefix(f"{self.root}/")
        return NewFile(*external.choose(folder, name, self.file_io))

    def write_dirs(self, partition: bytes, bucket: int) -> tuple[str, ...]:
        """Return all directories in which new files of a bucket may be created, external ones included.

        With the strategy `entropy-inject`, files are in folders below the external directories.

        Args:
            partition: the partition as a serialised row.
            bucket: the bucket.
        """
        own, external = self.bucket_dir(partition, bucket), self.external_paths
        if not external.takes_new_files:
            return (own,)
        return (own, *external.bucket_folders(own.removeprefix(f"{self.root}/")))

    def data_paths(self, partition: bytes, bucket: int, file: DataFileMeta) -> list[str]:
        """Return the paths of a data file and of its extra files (file index)."""
        extra_paths = [self.data_path(partition, bucket, name, file.external_path) for name in file.extra_files]
        return [self.data_path(partition, bucket, file), *extra_paths]

    def new_file_name(self, prefix: str, extension: str = "") -> str:
        """Return a unique file name: ``prefix``, this object's UUID, a counter and, if set, ``.extension``."""
        tail = f".{extension}" if extension else ""
        return f"{prefix}{self._own_uuid}-{next(self._numbers)}{tail}"

    # -- transfer to other processes -------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Serialise the table as JSON, so that another process can open it with the same schema, options and clock.

        The text has no keys of the table's store; the other process gets them from the environment or fetches its own.
        """
        keys = key_source(self.file_io)
        return json.dumps(
            {
                "root": self.root,
                "storage": storage_options(self.file_io),
                "keys": None if keys is None else keys.to_spec(),
                "name": self.name,
                "branch": self.branch,
                "schema_id": self.schema.id,
                "schema_ms": self.schema.time_millis,
                "clock": self.clock.to_spec(),
                "dynamic_options": self.dynamic_options,
                "external_roots": self.external_paths.permissions,
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(
        cls,
        text: str,
        file_io: FileIO | None = None,
        keys_from_spec: Callable[[Mapping[str, Any]], KeySource] | None = None,
    ) -> TableStore:
        """Open the table that ``to_json`` described.

        Args:
            text: output of ``to_json``.
            file_io: access to the files, or None to create it from the text.
            keys_from_spec: creates the source of the table's keys from `KeySource.to_spec`.

        Returns:
            The opened table.

        Raises:
            TableNotFound: the table does not exist, or was dropped and created again since ``to_json``.
            DredgeError: the other errors of ``open``.
        """
        spec: dict[str, Any] = parse_json(text)
        if file_io is None:
            keys = None if spec["keys"] is None or keys_from_spec is None else keys_from_spec(spec["keys"])
            file_io, _ = file_io_for(spec["root"], spec["storage"], keys=keys)
        arguments = (spec["clock"], spec["dynamic_options"], spec["branch"], spec["schema_id"])
        store = cls.open(file_io, spec["root"], spec["name"], *arguments)
        if store.schema.time_millis != spec["schema_ms"]:
            raise TableNotFound(replaced_text(store.name))
        return store.allowing_roots(str(spec.get("external_roots", "")))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        del state["_numbers"], state["_own_uuid"], state["_dirs"], state["kept"]
        state["_external"] = None  # a copy in another process chooses external paths by its own counter
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Two processes must never generate the same file name.
        self._own_uuid, self._numbers, self._dirs = _make_uuid(self._family), itertools.count(), {}
        self.kept = Kept()

    def __repr__(self) -> str:
        return f"TableStore({self.name!r}, root={self.root!r}, branch={self.branch!r}, schema={self.schema.id})"


def _make_uuid(family: str) -> str:
    """Return a random UUID that begins with ``family``."""
    return family + str(uuid.uuid4())[len(family) :]
