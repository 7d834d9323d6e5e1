"""State of a table's Iceberg metadata: its folder, its current version, and the snapshots that Iceberg readers see.

The folder follows from the table's own location and options, never from the content of a metadata file. The content is
untrusted: locations in it are reduced to plain file names of the folder.

Source: ``IcebergCommitCallback.catalogTableMetadataPath``, ``IcebergPathFactory``, ``IcebergMetadata``; Iceberg's
``HadoopTableOperations`` for the choice of the current version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from lsm_core.errors import CorruptFile, InvalidData, InvalidOption
from lsm_core.format.snapshot import Snapshot
from lsm_core.json_text import ObjectReader, parse_object
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions
from lsm_core.storage import FileIO, check_name, place_of

STORAGE: Final = "metadata.iceberg.storage"
STORAGE_LOCATION: Final = "metadata.iceberg.storage-location"
VERSION_HINT: Final = "version-hint.text"
RETIRE_PENDING: Final = "retire-pending"
"""File by which a rollback says that metadata above the latest snapshot may be left; the next commit removes both."""
COMMIT_IDENTITY: Final = "paimon-commit-identity"
"""Member of an Iceberg snapshot's summary that identifies the Paimon commit; absent in metadata of Paimon 1."""
HOLDER_KIND: Final = "iceberg"
"""Kind of the hold of Iceberg metadata among the holders of a table's files."""
_VERSION_FILE = re.compile(r"v([1-9][0-9]{0,18})\.metadata\.json")
_HINT_TEXT = re.compile(rb"[1-9][0-9]{0,18}")
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(//)?")
_DATABASE_SUFFIX: Final = ".db"
_MAX_TEXT: Final = 4096
_MAIN: Final = "main"


class IcebergStorage(StrEnum):
    """Values of the table option `metadata.iceberg.storage`."""

    DISABLED = "disabled"
    TABLE_LOCATION = "table-location"
    HADOOP_CATALOG = "hadoop-catalog"
    HIVE_CATALOG = "hive-catalog"
    REST_CATALOG = "rest-catalog"


class IcebergLocation(StrEnum):
    """Values of the table option `metadata.iceberg.storage-location`."""

    TABLE_LOCATION = "table-location"
    CATALOG_LOCATION = "catalog-location"


@dataclass(frozen=True)
class IcebergSnapshot:
    """One snapshot of the Iceberg metadata.

    Attributes:
        snapshot_id: id of the snapshot, which is the id of the Paimon snapshot.
        timestamp_ms: time of the snapshot (epoch ms).
        manifest_list: plain file name of its manifest list, in the metadata folder.
        schema_id: id of its schema, or None.
        commit_identity: identity of the Paimon commit (`commit_identity`), or None in metadata of Paimon 1.
        summary: counts by name, as texts, and the operation.
    """

    snapshot_id: int
    timestamp_ms: int
    manifest_list: str
    schema_id: int | None = None
    commit_identity: str | None = None
    summary: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class IcebergState:
    """Content of one metadata file, as far as the table's maintenance needs it.

    Attributes:
        path: path of the metadata file.
        version: version in the file's name, which is the id of a Paimon snapshot.
        hint: version in the file `version-hint.text`, or None if the file is missing or invalid.
        format_version: version of the Iceberg format, 2 or 3.
        table_uuid: UUID of the Iceberg table.
        current_snapshot_id: id of the snapshot that Iceberg readers see, or None without one.
        snapshots: snapshots in the order of the file.
        refs: snapshot id of each ref (tag or branch), by name.
        last_updated_ms: time at which the file was written (epoch ms).
        location: address of the table's directory at that time, "" if the file has none. It is only compared.
    """

    path: str
    version: int
    hint: int | None
    format_version: int
    table_uuid: str
    current_snapshot_id: int | None
    snapshots: tuple[IcebergSnapshot, ...]
    refs: Mapping[str, int]
    last_updated_ms: int
    location: str = ""

    @property
    def snapshot_ids(self) -> frozenset[int]:
        """Ids of all snapshots that Iceberg readers can read: those listed, and those of refs."""
        return frozenset(snapshot.snapshot_id for snapshot in self.snapshots) | frozenset(self.refs.values())

    @property
    def current(self) -> IcebergSnapshot | None:
        """Snapshot that Iceberg readers see, or None without one."""
        matches = (snapshot for snapshot in self.snapshots if snapshot.snapshot_id == self.current_snapshot_id)
        return next(matches, None)

    @property
    def manifest_lists(self) -> frozenset[str]:
        """Plain file names of the manifest lists of all snapshots."""
        return frozenset(snapshot.manifest_list for snapshot in self.snapshots)


def storage_of(options: TableOptions) -> IcebergStorage:
    """Return where the table's Iceberg metadata is published.

    Raises:
        InvalidOption: the option has an unknown value.
    """
    return IcebergStorage(_choice(options, STORAGE, IcebergStorage, IcebergStorage.DISABLED))


def location_of(options: TableOptions) -> IcebergLocation:
    """Return in which of the two folders the table's Iceberg metadata is.

    Raises:
        InvalidOption: an option has an unknown value.
    """
    beside_table = storage_of(options) in (IcebergStorage.DISABLED, IcebergStorage.TABLE_LOCATION)
    default = IcebergLocation.TABLE_LOCATION if beside_table else IcebergLocation.CATALOG_LOCATION
    return IcebergLocation(_choice(options, STORAGE_LOCATION, IcebergLocation, default))


def _choice(options: TableOptions, key: str, choices: type[StrEnum], default: StrEnum) -> str:
    text = options.raw.get(key)
    if text is None:
        return default.value
    value = text.strip().lower()
    names = [choice.value for choice in choices]
    if value not in names:
        raise InvalidOption(key, text, f"one of {', '.join(names)}")
    return value


def metadata_folder(store: TableStore) -> str | None:
    """Return the folder of the table's Iceberg metadata.

    Returns:
        The folder, which may not exist yet, or None if the table has no Iceberg metadata.

    Raises:
        InvalidOption: an option has an unknown value, or asks for a folder that the database's location does not have.
    """
    if storage_of(store.options) is IcebergStorage.DISABLED:
        return None
    if location_of(store.options) is IcebergLocation.TABLE_LOCATION:
        return table_folder(store.root)
    folder = catalog_folder(store.root)
    if folder is None:
        raise InvalidOption(
            STORAGE_LOCATION,
            store.options.raw.get(STORAGE_LOCATION, f"(default of {storage_of(store.options)})"),
            "table-location, because the database's folder is not <database>.db",
            store.name,
        )
    return folder


def table_folder(root: str) -> str:
    """Return the folder of Iceberg metadata that is stored with the table whose directory is ``root``."""
    return f"{root.rstrip('/')}/metadata"


def catalog_folder(root: str) -> str | None:
    """Return the folder of a table's Iceberg metadata in the warehouse of an Iceberg Hadoop catalog.

    Args:
        root: the table's directory, ``<warehouse>/<database>.db/<table>``.

    Returns:
        ``<warehouse>/iceberg/<database>/<table>/metadata``, or None if the directory has another form.
    """
    parent, _, table = root.rstrip("/").rpartition("/")
    warehouse, _, database = parent.rpartition("/")
    name = database.removesuffix(_DATABASE_SUFFIX)
    if not warehouse or not table or not name or name == database or name in (".", ".."):
        return None
    if place_of(root) and not parent.startswith(f"{place_of(root)}/"):
        return None  # the database would be a bucket, and the folder in another bucket
    return f"{warehouse}/iceberg/{name}/{table}/metadata"


def warehouse_of(root: str) -> str | None:
    """Return the folder of the databases of a table, below which its `catalog_folder` is, or None without one.

    Args:
        root: the table's directory, ``<warehouse>/<database>.db/<table>``.
    """
    return None if catalog_folder(root) is None else root.rstrip("/").rpartition("/")[0].rpartition("/")[0]


def version_path(folder: str, version: int) -> str:
    """Return the path of the metadata file of a version, which is the id of a Paimon snapshot."""
    return f"{folder}/v{int(version)}.metadata.json"


def version_in(name: str) -> int | None:
    """Return the version in the name of a metadata file, or None for other files."""
    match = _VERSION_FILE.fullmatch(name)
    return int(match.group(1)) if match else None


def read_version_hint(file_io: FileIO, folder: str) -> int | None:
    """Return the version in `version-hint.text`, or None if the file is missing or holds no positive number."""
    try:
        text = file_io.read_bytes(f"{folder}/{VERSION_HINT}").strip()
    except FileNotFoundError:
        return None
    return int(text) if _HINT_TEXT.fullmatch(text) else None


def list_versions(file_io: FileIO, folder: str) -> list[int]:
    """Return the versions of the metadata files in a folder, ascending; empty if the folder does not exist."""
    versions = (version_in(status.name) for status in file_io.list_dir(folder) if not status.is_dir)
    return sorted(version for version in versions if version is not None)


def current_version(file_io: FileIO, folder: str) -> int | None:
    """Return the version that Iceberg readers of the folder choose.

    They begin with the hinted version and go on while the file of the next version exists. Without a valid hint they
    take the newest version of a listing.

    Returns:
        The version, or None if there is no metadata file.
    """
    version = read_version_hint(file_io, folder)
    if version is None or not file_io.exists(version_path(folder, version)):
        return max(list_versions(file_io, folder), default=None)
    while file_io.exists(version_path(folder, version + 1)):
        version += 1
    return version


def read_state(store: TableStore, folder: str | None = None) -> IcebergState | None:
    """Return the state of the table's Iceberg metadata.

    Args:
        store: the table.
        folder: folder of the metadata, or None for the folder that the table's options name.

    Returns:
        The current state, or None if the table has no Iceberg metadata.

    Raises:
        CorruptFile: the current metadata file is damaged; the message names it.
        InvalidOption: an option has an unknown value.
    """
    folder = metadata_folder(store) if folder is None else folder
    if folder is None:
        return None
    version = current_version(store.file_io, folder)
    if version is None:
        return None
    path = version_path(folder, version)
    try:
        data = store.file_io.read_bytes(path)
    except FileNotFoundError:  # a commit replaced it since; its successor exists
        version = max(list_versions(store.file_io, folder), default=None)
        if version is None:
            return None
        path = version_path(folder, version)
        data = store.file_io.read_bytes(path)
    return decode_state(data, path, version, read_version_hint(store.file_io, folder))


def decode_state(data: bytes, path: str, version: int, hint: int | None = None) -> IcebergState:
    """Parse a metadata file.

    Args:
        data: content of the file.
        path: path of the file, for messages.
        version: version in the file's name.
        hint: version in `version-hint.text`, or None.

    Raises:
        CorruptFile: the file is damaged; the message names it and the member.
    """
    members = parse_object(data, path)
    reader = ObjectReader(members, path)
    snapshots = tuple(_snapshot(item, path) for item in _optional_objects(reader, members, "snapshots"))
    current = reader.optional_integer("current-snapshot-id")
    return IcebergState(
        path=path,
        version=version,
        hint=hint,
        format_version=reader.integer("format-version"),
        table_uuid=_bounded(reader.text("table-uuid"), path, "table-uuid"),
        current_snapshot_id=None if current is None or current < 0 else current,
        snapshots=snapshots,
        refs=_refs(members, path),
        last_updated_ms=reader.integer("last-updated-ms"),
        location=_bounded(reader.optional_text("location") or "", path, "location"),
    )


def _optional_objects(reader: ObjectReader, members: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    return [] if members.get(key) is None else reader.objects(key)


def _snapshot(members: Mapping[str, Any], path: str) -> IcebergSnapshot:
    reader = ObjectReader(members, path)
    summary = reader.text_map("summary") or {}
    location = reader.text("manifest-list")
    try:
        manifest_list = check_name(location.rpartition("/")[2], subject="name of a manifest list")
    except InvalidData as error:
        raise CorruptFile(path, f'member "manifest-list" names no file: {location[:_MAX_TEXT]!r}') from error
    return IcebergSnapshot(
        snapshot_id=reader.integer("snapshot-id"),
        timestamp_ms=reader.integer("timestamp-ms"),
        manifest_list=manifest_list,
        schema_id=reader.optional_integer("schema-id"),
        commit_identity=summary.get(COMMIT_IDENTITY),
        summary=summary,
    )


def _refs(members: Mapping[str, Any], path: str) -> dict[str, int]:
    refs = members.get("refs")
    if refs is None:
        return {}
    if not isinstance(refs, dict) or any(not isinstance(ref, dict) for ref in refs.values()):
        raise ObjectReader(members, path).bad("refs", "an object of refs")
    return {_bounded(name, path, "refs"): ObjectReader(ref, path).integer("snapshot-id") for name, ref in refs.items()}


def _bounded(text: str, path: str, member: str) -> str:
    if len(text) > _MAX_TEXT:
        raise CorruptFile(path, f'a text in member "{member}" has more than {_MAX_TEXT:,} characters')
    return text


def commit_identity(snapshot: Snapshot) -> str:
    """Return the identity of a Paimon commit that Iceberg metadata records for its snapshot.

    Returns:
        The snapshot's UUID, or user, identifier and time (epoch ms) of a snapshot without one.
    """
    if snapshot.uuid is not None:
        return snapshot.uuid
    return f"{snapshot.commit_user}:{snapshot.commit_identifier}:{snapshot.time_millis}"


def is_moved(state: IcebergState, root: str) -> bool:
    """Return whether the metadata was written for a table in another directory, as before a rename.

    Schemes are ignored, because engines may reach one store by several, such as s3 and s3a.

    Args:
        state: the metadata.
        root: the table's directory.
    """
    before, now = (_SCHEME.sub("", place).rstrip("/") for place in (state.location, root))
    return bool(before) and before != now


def describes(state: IcebergState, snapshot: Snapshot) -> bool:
    """Return whether the current Iceberg snapshot was made of this Paimon snapshot.

    Metadata without an identity (Paimon 1) is trusted by its id alone.
    """
    current = state.current
    return (
        current is not None
        and current.snapshot_id == snapshot.id
        and current.commit_identity in (None, commit_identity(snapshot))
    )


@dataclass(frozen=True)
class IcebergHold:
    """Snapshots that stay because the current Iceberg metadata names them.

    Attributes:
        version: version of the metadata.
        first: id of the oldest snapshot that the metadata names and the table still has.
        last: id of the newest such snapshot.
        since_ms: time at which the metadata was written (epoch ms).
    """

    version: int
    first: int
    last: int
    since_ms: int

    @property
    def reason(self) -> str:
        """Reason why the snapshots stay, for people, with what ends it."""
        return (
            f"Iceberg metadata v{self.version} names snapshot {self.first}, which its readers may read; the next "
            "commit leaves out what snapshot.num-retained.min, .max and snapshot.time-retained let expire"
        )


def find_hold(store: TableStore, ids: Collection[int]) -> IcebergHold | None:
    """Return the snapshots that must not expire, because Iceberg readers can still read them.

    Metadata of a table whose option `metadata.iceberg.storage` is off holds nothing: no commit brings it up to date.
    Branches have no Iceberg metadata of their own.

    Args:
        store: the table.
        ids: ids of the table's snapshots.

    Returns:
        The hold, or None if no existing snapshot is named.

    Raises:
        CorruptFile: the current metadata file is damaged; the message names it.
        InvalidOption: an option has an unknown value.
    """
    if store.branch != _MAIN:
        return None
    state = read_state(store)
    named = [] if state is None else sorted(state.snapshot_ids.intersection(ids))
    if state is None or not named:
        return None
    return IcebergHold(state.version, named[0], named[-1], state.last_updated_ms)
