"""Entries of tables, databases and partitions in a Hive metastore, built from Paimon's schemas as Java builds them.

The functions are pure: they return new entries of the generated Thrift types, and read the untrusted entries of a
server.

Source: Paimon `HiveCatalog`, `HiveTypeUtils`, `HiveTableUtils`, `LocationHelper`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pymetastore.hive_metastore.ttypes import (
    Database,
    EnvironmentContext,
    Partition,
    SerDeInfo,
    StorageDescriptor,
    Table,
)

from lsm_core.format.schema import TableSchema
from lsm_core.locks.hive_columns import hive_column

LOCATION_PROPERTY: Final = "paimon_location"
"""Property that holds the location of a table, database or partition with `location-in-properties` = true."""
INPUT_FORMAT: Final = "org.apache.paimon.hive.mapred.PaimonInputFormat"
OUTPUT_FORMAT: Final = "org.apache.paimon.hive.mapred.PaimonOutputFormat"
_SERDE: Final = "org.apache.paimon.hive.PaimonSerDe"
_STORAGE_HANDLER: Final = "org.apache.paimon.hive.PaimonStorageHandler"
PAIMON_FILTER: Final = f'hive_filter_field_params__storage_handler = "{_STORAGE_HANDLER}"'
"""Condition by which a metastore selects Paimon's tables; Hive's own DDL sets this property, but not `table_type`."""
_TABLE_TYPE, _PAIMON, _EXTERNAL, _COMMENT = "table_type", "PAIMON", "EXTERNAL", "comment"
_EXTERNAL_TABLE, _MANAGED_TABLE, _VIEW = "EXTERNAL_TABLE", "MANAGED_TABLE", "VIRTUAL_VIEW"
_HIVE_PREFIX: Final = "hive."
_KEPT_WITHOUT_SYNC: Final = ("partition.expiration-time", "data-file.path-directory")
_MAX_INT: Final = 2**31 - 1


def is_paimon(entry: Table) -> bool:
    """Return whether an entry is a Paimon table, by its formats, as in Java."""
    storage = entry.sd
    return storage is not None and (storage.inputFormat, storage.outputFormat) == (INPUT_FORMAT, OUTPUT_FORMAT)


def kind_of(entry: Table) -> str:
    """Return the kind of an entry, for messages: "paimon", "view", "iceberg", or the class of its format."""
    if is_paimon(entry):
        return _PAIMON.lower()
    if entry.tableType == _VIEW:
        return "view"
    named = parameters_of(entry).get(_TABLE_TYPE, "").strip().lower()
    if named:
        return f"{named:.100}"
    return str(entry.sd.inputFormat if entry.sd is not None else "hive").rpartition(".")[2][:100] or "hive"


def is_external(entry: Table) -> bool:
    """Return whether the files of a table stay when the table is dropped."""
    return entry.tableType == _EXTERNAL_TABLE or parameters_of(entry).get(_EXTERNAL, "").upper() == "TRUE"


def parameters_of(entry: Table | Database) -> dict[str, str]:
    """Return the properties of an entry, without those that are no texts."""
    parameters = entry.parameters if isinstance(entry.parameters, dict) else {}
    return {key: value for key, value in parameters.items() if isinstance(key, str) and isinstance(value, str)}


def location_of(entry: Table | Database, *, in_properties: bool) -> str:
    """Return the location of a table or database as stored, or "".

    Args:
        entry: the table or database.
        in_properties: whether a property comes before the location of the storage (`location-in-properties`).
    """
    named = parameters_of(entry).get(LOCATION_PROPERTY, "") if in_properties else ""
    stored = entry.locationUri if isinstance(entry, Database) else entry.sd.location if entry.sd is not None else ""
    return named or (stored if isinstance(stored, str) else "")


def new_database(name: str, location: str, *, in_properties: bool) -> Database:
    """Return the entry of a new database; without a location, the metastore chooses one."""
    if in_properties and location:
        return Database(name, None, None, {LOCATION_PROPERTY: location})
    return Database(name, None, location or None, {})


def wants_external(options: Mapping[str, str], *, default: bool) -> bool:
    """Return whether a new table is external: option ``external`` or ``EXTERNAL``, or the catalog's `table.type`."""
    return default or str(options.get("external", options.get("EXTERNAL", ""))).strip().upper() == "TRUE"


def new_table(
    database: str,
    table: str,
    schema: TableSchema,
    location: str,
    *,
    owner: str,
    now_ms: int,
    external: bool,
    in_properties: bool,
    sync: bool,
    has_local_timestamps: bool,
) -> Table:
    """Return the entry of a new table.

    Args:
        database: name of the database.
        table: name of the table.
        schema: its schema.
        location: location of its folder, as text for Hive.
        owner: name of the user.
        now_ms: current time in epoch ms.
        external: whether the files stay when the table is dropped.
        in_properties: whether the location is a property.
        sync: whether all options become properties (`sync-all-properties`).
        has_local_timestamps: whether the metastore knows "timestamp with local time zone" (Hive 3).

    Raises:
        UnsupportedFeature: Hive has no type for a column.
    """
    seconds = now_ms // 1000
    entry = Table(
        table,
        database,
        owner,
        seconds,
        seconds,
        _MAX_INT,
        None,
        [],
        _own_properties(schema, sync=sync),
        None,
        None,
        _EXTERNAL_TABLE if external else _MANAGED_TABLE,
    )
    if external:
        entry.parameters[_EXTERNAL] = "TRUE"
    return _with_columns(
        entry, schema, location, in_properties=in_properties, has_local_timestamps=has_local_timestamps
    )


def altered_table(
    entry: Table,
    before: TableSchema,
    after: TableSchema,
    location: str,
    *,
    in_properties: bool,
    sync: bool,
    has_local_timestamps: bool,
) -> Table:
    """Return the entry of a table after a change of its schema.

    Args:
        entry: the present entry.
        before: schema before the change.
        after: schema after the change.
        location: location of the table as stored.
        in_properties: see :func:`new_table`.
        sync: see :func:`new_table`.
        has_local_timestamps: see :func:`new_table`.

    Raises:
        UnsupportedFeature: Hive has no type for a column.
    """
    entry = copy.deepcopy(entry)
    removed = set(before.options) - set(after.options)
    if before.comment is not None and after.comment is None:
        removed.add(_COMMENT)
    kept = {key: value for key, value in parameters_of(entry).items() if key not in removed}
    entry.parameters = {**kept, **_own_properties(after, sync=sync)}
    return _with_columns(entry, after, location, in_properties=in_properties, has_local_timestamps=has_local_timestamps)


def renamed_table(entry: Table, database: str, table: str) -> Table:
    """Return the entry of a table under another name."""
    entry = copy.copy(entry)
    entry.dbName, entry.tableName = database, table
    return entry


def change_context(*, cascade: bool, skips_statistics: bool) -> EnvironmentContext:
    """Return the context of a change: partitions follow the columns, and statistics may stay."""
    properties = {"DO_NOT_UPDATE_STATS": "true" if skips_statistics else "false"}
    return EnvironmentContext({**properties, "CASCADE": "true"} if cascade else properties)


def is_partitioned(schema: TableSchema) -> bool:
    """Return whether the metastore lists the partitions of a table (`metastore.partitioned-table`)."""
    named = schema.options.get("metastore.partitioned-table", "")
    return bool(schema.partition_keys) and named.strip().lower() == "true"


def new_partition(entry: Table, values: Sequence[str], location: str, now_ms: int, *, in_properties: bool) -> Partition:
    """Return the entry of a partition.

    Args:
        entry: the table.
        values: values of the partition columns as text.
        location: location of the partition's folder.
        now_ms: current time in epoch ms.
        in_properties: whether the location is a property.
    """
    seconds, storage = now_ms // 1000, copy.copy(entry.sd)
    parameters = {}
    if in_properties:
        parameters[LOCATION_PROPERTY] = location
    else:
        storage.location = location
    return Partition(list(values), entry.dbName, entry.tableName, seconds, seconds, storage, parameters)


def _own_properties(schema: TableSchema, *, sync: bool) -> dict[str, str]:
    """Return the properties that a table has because of its schema."""
    if sync:
        keys = {
            "primary-key": schema.primary_keys,
            "partition": schema.partition_keys,
            "bucket-key": schema.bucket_keys,
        }
        properties = {**schema.options, **{key: ",".join(names) for key, names in keys.items() if names}}
    else:
        start = len(_HIVE_PREFIX)
        properties = {key[start:]: value for key, value in schema.options.items() if key.startswith(_HIVE_PREFIX)}
        properties |= {key: schema.options[key] for key in _KEPT_WITHOUT_SYNC if key in schema.options}
    if schema.comment is not None:
        properties[_COMMENT] = schema.comment
    return {**properties, _TABLE_TYPE: _PAIMON, "storage_handler": _STORAGE_HANDLER}


def _with_columns(
    entry: Table, schema: TableSchema, location: str, *, in_properties: bool, has_local_timestamps: bool
) -> Table:
    storage = entry.sd if entry.sd is not None else StorageDescriptor()
    storage.inputFormat, storage.outputFormat = INPUT_FORMAT, OUTPUT_FORMAT
    serde = storage.serdeInfo if storage.serdeInfo is not None else SerDeInfo()
    serde.parameters, serde.serializationLib = {}, _SERDE
    storage.serdeInfo = serde
    keys = schema.partition_keys if is_partitioned(schema) else ()
    known = has_local_timestamps
    if keys:
        partition = [hive_column(schema.field(name), has_local_timestamps=known, shortens=False) for name in keys]
        entry.partitionKeys = partition
    fields = [field for field in schema.fields if field.name not in keys]
    storage.cols = [hive_column(field, has_local_timestamps=known, shortens=True) for field in fields]
    entry.sd = storage
    _set_location(entry, location, in_properties=in_properties)
    return entry


def _set_location(entry: Any, location: str, *, in_properties: bool) -> None:
    if in_properties:
        entry.parameters[LOCATION_PROPERTY] = location
    else:
        entry.sd.location = location
