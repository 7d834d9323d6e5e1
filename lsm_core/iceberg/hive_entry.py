"""Entry of a table's Iceberg metadata in a Hive metastore (`metadata.iceberg.storage` = hive-catalog).

Iceberg readers with a Hive catalog find the current metadata file through this entry. The metastore is the operator's:
an address in the table's own options is contacted only if the operator allows it. The metastore's entries are
untrusted, and an entry is changed only if it is that of this table.

Source: ``IcebergHiveMetadataCommitter``.
"""

from __future__ import annotations

import copy
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lsm_core.errors import DredgeError, InvalidOption, MetastoreFailed
from lsm_core.format.schema import TableSchema
from lsm_core.iceberg.state import catalog_folder, table_folder, version_path
from lsm_core.locks.hive_client import CallUnknown, HiveClient, HiveRefusal
from lsm_core.locks.hive_lock import lock_client
from lsm_core.locks.hive_settings import (
    HADOOP_CONF_DIR,
    HIVE_CONF_DIR,
    address_text,
    hive_settings,
    parse_addresses,
    require_thrift,
)
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore, latest_schema
from lsm_core.options import ALLOWED_PLACES, is_allowed_place
from lsm_core.storage import place_of

if TYPE_CHECKING:
    from pymetastore.hive_metastore.ttypes import FieldSchema, Table

URI: Final = "metadata.iceberg.uri"
DATABASE: Final = "metadata.iceberg.database"
TABLE: Final = "metadata.iceberg.table"
_SKIP_STATISTICS: Final = "metadata.iceberg.hive-skip-update-stats"
_FOLDERS: Final = {
    "metadata.iceberg.hive-conf-dir": HIVE_CONF_DIR,
    "metadata.iceberg.hadoop-conf-dir": HADOOP_CONF_DIR,
}
_TABLE_TYPE, _ICEBERG, _EXTERNAL_TABLE = "table_type", "ICEBERG", "EXTERNAL_TABLE"
_LOCATION, _PREVIOUS, _PAIMON_LOCATION = "metadata_location", "previous_metadata_location", "paimon_location"
_PAIMON_FORMATS: Final = "org.apache.paimon."
_INPUT_FORMAT: Final = "org.apache.hadoop.mapred.FileInputFormat"
_OUTPUT_FORMAT: Final = "org.apache.hadoop.mapred.FileOutputFormat"
_SERDE: Final = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
_NAME: Final = re.compile(r"\w{1,128}", re.ASCII)
_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(//)?")
_MAX_INT: Final = 2**31 - 1
_MOST_DATABASES: Final = 16
_ATTEMPTS: Final = 3
_ROUNDS: Final = 5
_MEMORY_SECONDS: Final = 60.0
_failures: dict[str, tuple[float, str]] = {}
"""Time until which a failed metastore is not asked for a status again (monotonic s), and its error, by address."""


def enter_table(store: TableStore, folder: str) -> None:
    """Let the metastore name the Iceberg metadata of the newest snapshot; create the entry if it is missing.

    A commit that takes place meanwhile may be entered earlier, so the newest snapshot is compared again afterwards.

    Args:
        store: the table.
        folder: folder of its Iceberg metadata.

    Raises:
        DredgeError: the metastore is not allowed or cannot be used, or an entry of something else has the name.
    """
    client = metastore_client(store)
    names = entry_names(store)
    for _ in range(_ROUNDS):
        latest = snapshots.latest_id(store)
        if latest is None or not store.file_io.exists(version_path(folder, latest)):
            return  # a newer commit, which writes and enters its own metadata
        failures = []
        for database, table in names:
            try:
                _Entry(store, client, folder, database, table).put(latest)
            except DredgeError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        if snapshots.latest_id(store) == latest:
            return


def entry_problem(store: TableStore, folder: str, version: int) -> str:
    """Return why Iceberg readers of the metastore do not see a version of the metadata, or "" if they do.

    A metastore that did not answer is not asked again for a minute, so that a status of many tables ends.

    Args:
        store: the table.
        folder: folder of its Iceberg metadata.
        version: version of the metadata, which is the id of a snapshot.
    """
    try:
        client = metastore_client(store)
        until, failure = _failures.get(client.address, (0.0, ""))
        if time.monotonic() < until:
            return failure
        for database, table in entry_names(store):
            problem = _Entry(store, client, folder, database, table).problem(version)
            if problem:
                return problem
    except DredgeError as error:
        return str(error)
    return ""


def entry_names(store: TableStore) -> list[tuple[str, str]]:
    """Return the pairs (database, table) under which the table is entered, in lower case as Hive stores them.

    Raises:
        InvalidOption: a name is missing or cannot be that of a Hive table.
    """
    own_database, _, own_table = store.name.partition(".")
    databases = str(store.options.get(DATABASE) or "").strip() or own_database
    table = str(store.options.get(TABLE) or "").strip() or own_table
    accepted = "letters, digits and underscores, at most 128"
    if not _NAME.fullmatch(table):
        raise InvalidOption(TABLE, f"{table:.200}", f"a table name of {accepted}", store.name)
    names = [name.strip() for name in databases.split(";")]
    if len(names) > _MOST_DATABASES or not all(_NAME.fullmatch(name) for name in names):
        expectation = f"at most {_MOST_DATABASES} database names of {accepted}, separated by semicolons"
        raise InvalidOption(DATABASE, f"{databases:.200}", expectation, store.name)
    return [(name.lower(), table.lower()) for name in dict.fromkeys(names)]


def metastore_client(store: TableStore) -> HiveClient:
    """Return the client of the metastore that has the entry.

    It is the one of `metadata.iceberg.uri`, else that of the table's catalog, else that of a hive-site.xml.

    Raises:
        InvalidOption: no address is known, or the operator does not allow the table's own.
        UnsupportedFeature: the Thrift client is not installed, or the metastore needs a login that is not offered.
    """
    require_thrift()
    options = store.options
    folders = {}
    for option, name in _FOLDERS.items():
        text = str(options.get(option) or "").strip()
        # A folder of the table's own choice is not read.
        if text and (not options.is_tables_own(option) or is_allowed_place(text)):
            folders[name] = text
    uri = str(options.get(URI) or "").strip()
    of_catalog = str(getattr(store.registry, "address", ""))
    of_catalog = of_catalog if of_catalog.startswith("thrift://") else ""
    if not uri:
        return lock_client(of_catalog or _address_of_files(folders, store.name), folders)
    if options.is_tables_own(URI):
        known = set(parse_addresses(of_catalog)) if of_catalog else set()
        for address in parse_addresses(uri):
            if address in known or is_allowed_place(address_text(address)):
                continue
            if address not in _known_addresses(folders):
                raise InvalidOption(
                    URI,
                    address_text(address),
                    "an address that the operator allows: that of the catalog (metastore = hive, uri), that in the "
                    f"hive-site.xml of HIVE_CONF_DIR, or one in {ALLOWED_PLACES}",
                    store.name,
                )
    return lock_client(uri, folders)


def _known_addresses(folders: dict[str, str]) -> set[tuple[str, int]]:
    try:
        return set(hive_settings(folders).addresses)
    except InvalidOption:
        return set()  # no file names a metastore


def _address_of_files(folders: dict[str, str], name: str) -> str:
    try:
        return hive_settings(folders).address
    except InvalidOption as error:
        expectation = "the address of a Hive metastore, here, in the catalog, or in the hive-site.xml of HIVE_CONF_DIR"
        raise InvalidOption(URI, "", f"{expectation} ({error})", name) from error


@dataclass(frozen=True)
class _Entry:
    """Entry of a table under one name.

    Attributes:
        store: the table.
        client: client of the metastore.
        folder: folder of the Iceberg metadata.
        database: name of the database in the metastore.
        table: name of the table in the metastore.
    """

    store: TableStore
    client: HiveClient
    folder: str
    database: str
    table: str

    def put(self, version: int) -> None:
        """Let the entry name a version of the metadata. Raises DredgeError."""
        location = _text(version_path(self.folder, version))
        reason = ""
        for attempt in range(1, _ATTEMPTS + 1):
            entry = self._find()
            if entry is not None:
                self._require_own(entry)
                if _names(entry, location):
                    return
            if attempt == _ATTEMPTS:
                break
            try:
                if entry is None:
                    self._require_database()
                    self.client.change("create_table", self._new(location))
                else:
                    context = self._context()
                    self.client.change(
                        "alter_table_with_environment_context",
                        self.database,
                        self.table,
                        self._changed(entry, location),
                        context,
                    )
                return
            except HiveRefusal as refusal:
                if not (entry is None and refusal.is_presence):  # another process has created it
                    raise self._failed(f"it answered {refusal}") from refusal
                reason = str(refusal)
            except CallUnknown as error:  # the next look at the entry says whether it was carried out
                reason = str(error)
        raise self._failed(f"the outcome is unknown, or another client has changed it ({reason})")

    def problem(self, version: int) -> str:
        """Return why the entry does not name a version of the metadata, or "". Raises DredgeError."""
        entry = self._find()
        where = f"{self.database}.{self.table} in {self.client.address}"
        if entry is None:
            return f"there is no table {where}"
        self._require_own(entry)
        if _names(entry, _text(version_path(self.folder, version))):
            return ""
        if snapshots.latest_id(self.store) != version:
            return ""  # a commit has taken place since the metadata was read
        shown = _parameters(entry).get(_LOCATION, "").rpartition("/")[2]
        return f"table {where} names {shown[:200] or 'no metadata'} in place of version {version}"

    # -- details -----------------------------------------------------------------------------------------------------

    def _failed(self, reason: str) -> MetastoreFailed:
        return MetastoreFailed(self.client.address, f"Iceberg table {self.database}.{self.table}: {reason}")

    def _find(self) -> Table | None:
        from pymetastore.hive_metastore.ttypes import GetTableRequest, Table

        try:
            answer = self.client.read("get_table_req", GetTableRequest(self.database, self.table))
        except HiveRefusal as refusal:
            if refusal.is_absence:
                return None
            raise self._failed(f"it answered {refusal}") from refusal
        except MetastoreFailed as error:
            _failures[self.client.address] = time.monotonic() + _MEMORY_SECONDS, str(error)
            raise
        _failures.pop(self.client.address, None)
        entry = getattr(answer, "table", None)
        if not isinstance(entry, Table) or (entry.dbName, entry.tableName) != (self.database, self.table):
            raise self._failed("its description is empty or that of another table")
        return entry

    def _require_own(self, entry: Table) -> None:
        """Raise MetastoreFailed if an entry is neither the Iceberg table of this folder nor this Paimon table."""
        root = self.store.root
        parameters = _parameters(entry)
        stored = entry.sd.location if entry.sd is not None and isinstance(entry.sd.location, str) else ""
        if _is_paimon(entry) and _plain(root) in map(_plain, (stored, parameters.get(_PAIMON_LOCATION, ""))):
            return
        if parameters.get(_TABLE_TYPE, "").strip().upper() == _ICEBERG and not _is_paimon(entry):
            named = parameters.get(_LOCATION, "")
            folders = {_plain(folder) for folder in (self.folder, table_folder(root), catalog_folder(root)) if folder}
            place = named.rpartition("/")[0] if named else f"{stored.rstrip('/')}/metadata"
            if _plain(place) in folders:
                return
        raise self._failed(
            f"an entry of this name exists and is not that of the metadata in {self.folder}; drop it with the engine "
            f"that made it, or set {DATABASE} or {TABLE}"
        )

    def _require_database(self) -> None:
        from pymetastore.hive_metastore.ttypes import Database

        try:
            self.client.read("get_database", self.database)
        except HiveRefusal as refusal:
            if not refusal.is_absence:
                raise
            location = _text(_parent(_parent(self.folder)))
            try:
                self.client.change("create_database", Database(self.database, None, location, {}))
            except HiveRefusal as second:
                if not second.is_presence:
                    raise

    def _new(self, location: str) -> Table:
        from pymetastore.hive_metastore.ttypes import SerDeInfo, StorageDescriptor, Table

        from lsm_core.locks.hive_connection import system_user

        seconds = self.store.clock.now_ms() // 1000
        storage = StorageDescriptor(
            cols=self._columns(),
            location=_text(_parent(self.folder)),
            inputFormat=_INPUT_FORMAT,
            outputFormat=_OUTPUT_FORMAT,
            serdeInfo=SerDeInfo(serializationLib=_SERDE, parameters={}),
        )
        parameters = {
            "DO_NOT_UPDATE_STATS": self._skips_statistics(),
            "EXTERNAL": "TRUE",
            _TABLE_TYPE: _ICEBERG,
            _LOCATION: location,
        }
        return Table(
            tableName=self.table,
            dbName=self.database,
            owner=system_user(),
            createTime=seconds,
            lastAccessTime=seconds,
            retention=_MAX_INT,
            sd=storage,
            partitionKeys=[],
            parameters=parameters,
            tableType=_EXTERNAL_TABLE,
        )

    def _changed(self, entry: Table, location: str) -> Table:
        entry, parameters = copy.deepcopy(entry), _parameters(entry)
        previous = parameters.get(_LOCATION, "")
        entry.parameters = {**parameters, _TABLE_TYPE: _ICEBERG, _LOCATION: location}
        if _parent(_plain(previous)) == _plain(self.folder) and _plain(previous) != _plain(location):
            entry.parameters[_PREVIOUS] = previous
        keys = {column.name for column in entry.partitionKeys or []}
        entry.sd.cols = [column for column in self._columns() if column.name.lower() not in keys]
        return entry

    def _context(self) -> object:
        from pymetastore.hive_metastore.ttypes import EnvironmentContext

        statistics = self._skips_statistics()
        return EnvironmentContext({"CASCADE": "true", "skipAWSGlueArchive": "false", "DO_NOT_UPDATE_STATS": statistics})

    def _skips_statistics(self) -> str:
        return str(bool(self.store.options.get(_SKIP_STATISTICS))).lower()

    def _columns(self) -> list[FieldSchema]:
        from lsm_core.locks.hive_columns import has_local_timestamps, hive_column

        store = self.store
        schema: TableSchema = latest_schema(store.file_io, store.root, store.branch) or store.schema
        known = has_local_timestamps(schema) and self._knows_local_timestamps()
        return [hive_column(field, has_local_timestamps=known) for field in schema.fields]

    def _knows_local_timestamps(self) -> bool:
        """Return whether the metastore knows "timestamp with local time zone" (Hive 3)."""
        try:
            return bool(self.client.read("get_catalogs"))
        except (HiveRefusal, MetastoreFailed):
            return False


def _parameters(entry: Table) -> dict[str, str]:
    parameters = entry.parameters if isinstance(entry.parameters, dict) else {}
    return {key: value for key, value in parameters.items() if isinstance(key, str) and isinstance(value, str)}


def _names(entry: Table, location: str) -> bool:
    """Return whether an entry is an Iceberg table whose metadata file is at a location."""
    parameters = _parameters(entry)
    is_iceberg = parameters.get(_TABLE_TYPE, "").strip().upper() == _ICEBERG
    return is_iceberg and _plain(parameters.get(_LOCATION, "")) == _plain(location)


def _is_paimon(entry: Table) -> bool:
    return entry.sd is not None and str(entry.sd.inputFormat).startswith(_PAIMON_FORMATS)


def _plain(location: str) -> str:
    """Return a location without its scheme, because engines reach one store by several, such as s3 and s3a."""
    return _SCHEME.sub("", location).rstrip("/")


def _text(path: str) -> str:
    """Return a path as the text that a metastore stores; a local path gets the scheme ``file:``, as in Java."""
    return path if place_of(path) else f"file:{path}"


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
