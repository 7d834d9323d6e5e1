"""The state of one table (or branch) that everything works on: paths, FileIO, schema, options and clock."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from lsm_core.clock import Clock, clock_from
from lsm_core.errors import CorruptFile, StorageRefused, TableNotFound, UnsupportedFeature
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.partition_path import newer_partition_dir, partition_dir
from lsm_core.format.schema import TableSchema
from lsm_core.json_reader import parse_json
from lsm_core.metadata import paimon_version, schemas
from lsm_core.options import TableOptions
from lsm_core.options.paimon_version import KEY as PAIMON_VERSION
from lsm_core.storage import (
    FileIO,
    Kept,
    PathBelow,
    check_name,
    file_io_for,
    inside,
    is_link,
    place_of,
    storage_options,
)

POSTPONE_BUCKET = -2


class BucketMode(StrEnum):
    """How rows get their bucket (Java `BucketMode`)."""

    FIXED = "fixed"
    """By the bucket function, of a number of buckets (`bucket` > 0)."""
    DYNAMIC = "dynamic"
    """By an index of key hashes (`bucket` = -1 with a primary key that holds the partition columns)."""
    CROSS_PARTITION = "cross-partition"
    """By where the key lives, in whichever partition (`bucket` = -1, the primary key lacks a partition column)."""
    UNAWARE = "unaware"
    """All rows of a partition are in bucket 0 (`bucket` = -1 without a primary key)."""
    POSTPONE = "postpone"
    """A compaction finds one later (`bucket` = -2)."""


_METADATA_FOLDERS: Final = (
    *("snapshot", "schema", "manifest", "index", "statistics", "tag", "tag/tag-success-file"),
    *("changelog", "consumer", "branch"),
    *("dredge", "dredge/trash", "dredge/plans", "dredge/ledger", "dredge/lock", "dredge/staged", "dredge/deep-check"),
)
_BRANCH_FOLDERS: Final = ("", "/snapshot", "/schema", "/tag", "/changelog", "/consumer")
"""Folders of a branch that hold metadata, below its own."""


def _require_no_links(root: str, branch: str, name: str) -> None:
    """Refuse a table whose metadata folders are symbolic links: they may lead into another table's metadata.

    Args:
        root: the table's folder.
        branch: the branch whose folders are looked at beside those of the table.
        name: the table's name, for the error.

    Raises:
        StorageRefused: a folder below ``root`` is a symbolic link.
    """
    if place_of(root):
        return
    own = [] if branch == "main" else [f"branch/branch-{branch}{folder}" for folder in _BRANCH_FOLDERS]
    for folder in (*_METADATA_FOLDERS, *own):
        if is_link(f"{root}/{folder}"):
            reason = (
                f"it is a symbolic link, and table {name} would read and write metadata elsewhere; make it a folder"
            )
            raise StorageRefused(f"{root}/{folder}", reason, "use")


class TableStore:
    """One table as of one schema. Immutable but for the counter of file names; pickles (a copy draws names of its own).

    ``root``: the table's directory; ``options``: the schema's with ``dynamic_options`` on top; ``branch``: metadata of a
    branch lies in its own directory, while manifests, index and data files are shared with main. ``kept``: what reads remember
    of immutable files (footers, indexes). The version of Paimon that it follows (`dredge.paimon-version`) is settled once, when
    it is opened, so that nothing made with it mixes two. Source class:
    ``FileStorePathFactory`` and ``AbstractFileStore``.
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
    ) -> None:
        self.file_io, self.root, self.name, self.schema = file_io, root.rstrip("/"), name, schema
        if not isinstance(options, TableOptions):
            options = TableOptions(schema.options if options is None else options, name, stored=options is None)
        self.dynamic_options = dict(dynamic_options or {})
        self.options = options.copy(self.dynamic_options) if self.dynamic_options else options
        self.clock: Clock = clock_from(clock)
        self.branch = check_name(branch, name, "branch name")
        self._schemas = {schema.id: schema}
        self._family = ""
        self._names_of_mine = _uuid_of("")
        self._numbers = itertools.count()
        self._dirs: dict[tuple[bytes, int], tuple[str, ...]] = {}
        self.kept = Kept()
        self._found: dict[str, str] = {}

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
        """Open with the newest schema (or ``schema_id``). Raises TableNotFound naming the table, CorruptFile, InvalidOption."""
        root = root.rstrip("/")
        check_name(branch, name, "branch name")
        _require_no_links(root, branch, name)
        if schema_id is not None:
            found: TableSchema | None = schemas.load_schema(file_io, root, schema_id, branch)
        else:
            found = schemas.latest_schema(file_io, root, branch)
        if found is None:
            of = "" if branch == "main" else f", branch {branch}"
            raise TableNotFound(f"table {name}{of} does not exist (no schema under {root})")
        given = dict(dynamic_options or {})
        if not found.primary_keys or PAIMON_VERSION in found.options or PAIMON_VERSION in given:
            return cls(file_io, root, name, found, None, clock, branch, given)
        kept = Kept()
        written = paimon_version.of_snapshots(file_io, f"{schemas.metadata_root(root, branch)}/snapshot", kept)
        settled = {} if written is None else {PAIMON_VERSION: str(written)}
        store = cls(file_io, root, name, found, None, clock, branch, {**given, **settled})
        store._found, store.kept = settled, kept
        return store

    # -- other views of the same table -----------------------------------------------------------------------------

    def copy(self, dynamic: Mapping[str, str | None]) -> TableStore:
        """Return this table with more dynamic options; None takes an option away, also a stored one (Java `FileStoreTable.copy`).

        Raises InvalidOption for an immutable one.
        """
        given = {str(key): None if value is None else str(value) for key, value in dynamic.items()}
        together = {**self.dynamic_options, **given}
        made = TableStore(self.file_io, self.root, self.name, self.schema, None, self.clock, self.branch, together)
        made._found = {} if PAIMON_VERSION in dynamic else self._found
        return made.naming_files_as(self)

    def with_schema(self, schema: TableSchema) -> TableStore:
        """Return this table as of ``schema``, for reading and writing files of it; what is remembered of files is shared."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)  # both draw file names from one counter
        other.schema = schema
        other._schemas = {schema.id: schema}
        return other

    def in_family(self, family: str) -> TableStore:
        """Return this table; the UUID in the names of its new files begins with ``family`` (the beginning of one), wherever it is sent to.

        What the writers of one job left can so be told from all else.
        """
        other = self.with_schema(self.schema)
        other._family, other._names_of_mine, other._numbers = family, _uuid_of(family), itertools.count()
        return other

    def naming_files_as(self, other: TableStore) -> TableStore:
        """Have this view of the table draw the names of new files as ``other`` does; returns it."""
        self._family, self._names_of_mine, self._numbers = other._family, other._names_of_mine, other._numbers
        return self

    @property
    def own_uuid(self) -> str:
        """The UUID in the names of all files that are made with this store, and with copies of it in this process."""
        return self._names_of_mine

    def with_buckets(self, count: int) -> TableStore:
        """Return this table as writers of ``count`` buckets see it."""
        schema = replace(self.schema, options={**self.schema.options, "bucket": str(count)})
        return TableStore(
            self.file_io, self.root, self.name, schema, None, self.clock, self.branch, self.dynamic_options
        )

    def refresh(self) -> TableStore:
        """Return this table with its newest schema."""
        return TableStore.open(self.file_io, self.root, self.name, self.clock, self.given_options, self.branch)

    @property
    def given_options(self) -> dict[str, str | None]:
        """The dynamic options but for what opening the table found out."""
        return {key: value for key, value in self.dynamic_options.items() if key not in self._found}

    @property
    def version_found(self) -> bool:
        """Whether the version of Paimon that is followed is that of a snapshot's writer, not one that was set."""
        return bool(self._found)

    def schema_of(self, schema_id: int) -> TableSchema:
        """Return the schema of that id. Raises CorruptFile when its file is missing or unreadable."""
        found = self._schemas.get(schema_id)
        if found is None:
            found = schemas.load_schema(self.file_io, self.root, schema_id, self.branch)
            self._schemas[schema_id] = found
        return found

    @property
    def has_primary_key(self) -> bool:
        """Whether rows have a key (otherwise the table only appends)."""
        return bool(self.schema.primary_keys)

    @property
    def bucket_mode(self) -> BucketMode:
        """How rows get their bucket."""
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
        """Directory of schema, snapshot, tag, consumer and changelog of this branch."""
        return schemas.metadata_root(self.root, self.branch)

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
        """Directory of deletion records."""
        return f"{self.root}/dredge/trash"

    @property
    def ledger_dir(self) -> str:
        """Directory of the record of what maintenance did."""
        return f"{self.root}/dredge/ledger"

    def snapshot_path(self, snapshot_id: int) -> str:
        """Return the path of a snapshot."""
        return f"{self.snapshot_dir}/snapshot-{int(snapshot_id)}"

    def schema_path(self, schema_id: int) -> str:
        """Return the path of a schema."""
        return schemas.schema_path(self.root, int(schema_id), self.branch)

    def delete(self, path: str) -> bool:
        """Delete one file of the table, through no symbolic link below its root.

        Args:
            path: absolute path of the file.

        Returns:
            Whether the file existed.

        Raises:
            StorageRefused: a folder on the way is a symbolic link.
        """
        return self.file_io.delete(PathBelow.of(self.root, path))

    def delete_dir(self, path: str) -> bool:
        """Delete a folder of the table with everything in it, through no symbolic link below its root.

        Args:
            path: absolute path of the folder.

        Returns:
            Whether the folder existed.

        Raises:
            StorageRefused: a folder on the way is a symbolic link.
        """
        return self.file_io.delete_dir(PathBelow.of(self.root, path))

    def manifest_path(self, name: str) -> str:
        """Return the path of a manifest, manifest list or index manifest. Raises InvalidData for a hostile name."""
        return f"{self.manifest_dir}/{check_name(name, self.name)}"

    def index_path(self, name: str) -> str:
        """Return the path of an index file. Raises InvalidData for a hostile name."""
        return f"{self.root}/index/{check_name(name, self.name)}"

    def statistics_path(self, name: str) -> str:
        """Return the path of a statistics file. Raises InvalidData for a hostile name."""
        return f"{self.root}/statistics/{check_name(name, self.name)}"

    # -- data paths ------------------------------------------------------------------------------------------------

    def bucket_dir(self, partition: bytes, bucket: int) -> str:
        """Return the directory of a bucket's files: where new ones go."""
        return self.bucket_dirs(partition, bucket)[0]

    def bucket_dirs(self, partition: bytes, bucket: int) -> tuple[str, ...]:
        """Return the directories that hold a bucket's files, the one for new files first.

        There is one, but for a partition of floating-point numbers that JDKs before and since 19 print differently: its
        directory is the one that is there. Where both are, each holds the files of its writers.
        """
        found = self._dirs.get((partition, bucket))
        if found is not None:
            return found
        below = self.options.get("data-file.path-directory")
        if str(below or "").startswith("/"):  # Java takes such a path as it is, so the files lie outside the table
            raise UnsupportedFeature(f"data-file.path-directory outside the table ('{below}')", self.name)
        base = f"{self.root}/{str(below).strip('/')}" if below else self.root
        name = partition_dir(self.schema, partition, self.options)
        last = "bucket-postpone" if bucket == POSTPONE_BUCKET else f"bucket-{int(bucket)}"
        newer = newer_partition_dir(self.schema, partition, self.options)
        names = [name]
        if newer is not None:
            there = [one for one in (name, newer) if self.file_io.exists(inside(self.root, f"{base}/{one}"))]
            names = there or names
        found = tuple(inside(self.root, "/".join(filter(None, (base, one, last)))) for one in names)
        if newer is not None and not there:
            return found  # the first writer, maybe another engine, decides: asked again
        if len(self._dirs) > 100_000:  # a cache, not a memory of the whole table
            self._dirs.clear()
        self._dirs[(partition, bucket)] = found
        return found

    def data_path(
        self, partition: bytes, bucket: int, file: DataFileMeta | str, external_path: str | None = None
    ) -> str:
        """Return the path of a data file (or of an extra file beside it).

        An external path must lie inside one that ``data-file.external-paths`` declares. Raises InvalidData or CorruptFile
        for names that would lead elsewhere.
        """
        name = file if isinstance(file, str) else file.file_name
        if external_path is None and not isinstance(file, str):
            external_path = file.external_path
        check_name(name, self.name)
        if external_path is None:
            first, *others = (f"{folder}/{name}" for folder in self.bucket_dirs(partition, bucket))
            if not others or self.file_io.exists(first):
                return first
            return others[0] if self.file_io.exists(others[0]) else first
        declared = str(self.options.get("data-file.external-paths") or "").split(",")
        for place in filter(None, (p.strip() for p in declared)):
            _, base = file_io_for(place, escaped=False)
            _, local = file_io_for(external_path, escaped=False)
            if bool(place_of(base)) != bool(place_of(self.root)):
                raise UnsupportedFeature(
                    f"external paths on another kind of storage than the table's ({place})", self.name
                )
            try:
                # Files beside it (its index) share the directory, not the name.
                return inside(base, f"{local.rpartition('/')[0]}/{name}")
            except CorruptFile:
                continue
        if not any(place.strip() for place in declared):
            outside = (
                f"data files outside its folder, which 'data-file.external-paths' does not declare ({external_path})"
            )
            raise UnsupportedFeature(outside, self.name)
        raise CorruptFile(external_path, "an external path that data-file.external-paths does not declare")

    def data_paths(self, partition: bytes, bucket: int, file: DataFileMeta) -> list[str]:
        """Return the paths of a data file and of everything beside it (its index)."""
        beside = [self.data_path(partition, bucket, name, file.external_path) for name in file.extra_files]
        return [self.data_path(partition, bucket, file), *beside]

    def new_file_name(self, prefix: str, extension: str = "") -> str:
        """Return a file name nobody else has: ``prefix`` + this store's UUID + a counter (+ ``.extension``)."""
        tail = f".{extension}" if extension else ""
        return f"{prefix}{self._names_of_mine}-{next(self._numbers)}{tail}"

    # -- shipping --------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return text from which another process opens the same table (same schema, options, clock)."""
        return json.dumps(
            {
                "root": self.root,
                "storage": storage_options(self.file_io),
                "name": self.name,
                "branch": self.branch,
                "schema_id": self.schema.id,
                "clock": self.clock.to_spec(),
                "dynamic_options": self.dynamic_options,
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str, file_io: FileIO | None = None) -> TableStore:
        """Open what ``to_json`` described. Raises what ``open`` raises."""
        spec: dict[str, Any] = parse_json(text)
        if file_io is None:
            file_io, _ = file_io_for(spec["root"], spec["storage"])
        return cls.open(
            file_io,
            spec["root"],
            spec["name"],
            spec["clock"],
            spec["dynamic_options"],
            spec["branch"],
            spec["schema_id"],
        )

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        del state["_numbers"], state["_names_of_mine"], state["_dirs"], state["kept"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Two processes must never draw the same file name.
        self._names_of_mine, self._numbers, self._dirs = _uuid_of(self._family), itertools.count(), {}
        self.kept = Kept()

    def __repr__(self) -> str:
        return f"TableStore({self.name!r}, root={self.root!r}, branch={self.branch!r}, schema={self.schema.id})"


def _uuid_of(family: str) -> str:
    """A random UUID that begins with ``family``."""
    return family + str(uuid.uuid4())[len(family) :]
