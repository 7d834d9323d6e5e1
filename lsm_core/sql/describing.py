"""Results of SHOW and DESCRIBE as Arrow tables with the columns of Spark SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from lsm_core.commit.overwrite import partition_matcher
from lsm_core.errors import ColumnNotFound, DatabaseNotFound, InvalidOption
from lsm_core.format.partitions import partition_specs
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.metadata import snapshots
from lsm_core.metadata.live_files import totals
from lsm_core.metadata.statistics import read_statistics
from lsm_core.metadata.store import TableStore
from lsm_core.sql.column_types import quoted_name, quoted_text, type_text
from lsm_core.sql.statements import Describe, PartitionSpec, Show
from lsm_core.table import Catalog
from lsm_core.table.names import TableName
from lsm_core.table.system.reader import ReadOnlyTable
from lsm_core.types import RowField


def shown(catalog: Catalog, statement: Show) -> pa.Table:
    """Return the rows of a SHOW statement.

    Raises:
        DatabaseNotFound: the database does not exist.
        TableNotFound: the table does not exist.
        InvalidOption: the partition spec is invalid, or SHOW PARTITIONS names a table without partitions.
    """
    subject, name = statement.subject, statement.name
    if subject == "databases":
        return _named("namespace", _match_names(catalog.list_databases(), statement.pattern))
    if subject == "tables":
        names = _match_names(catalog.list_tables(name), statement.pattern)
        return pa.table(
            {
                "namespace": [name] * len(names),
                "tableName": names,
                "isTemporary": pa.array([False] * len(names), pa.bool_()),
            },
            schema=pa.schema([("namespace", pa.string()), ("tableName", pa.string()), ("isTemporary", pa.bool_())]),
        )
    if subject == "table extended":
        return _show_extended(catalog, statement)
    if subject == "columns":
        return _named("col_name", catalog.table(name).schema.field_names)
    if subject == "partitions":
        return _named("partition", _partitions(catalog.store(name), statement.partition))
    if subject == "tags":
        return _named("tag", sorted(catalog.table(name).tags()))
    if subject == "tblproperties":
        return _properties(catalog, name, statement.key)
    return _named("createtab_stmt", [create_text(name, catalog.store_as_stored(name).schema)])


def _named(column: str, values: Sequence[str]) -> pa.Table:
    return pa.table({column: pa.array(list(values), pa.string())})


def _match_names(names: Sequence[str], pattern: str) -> list[str]:
    """Return the names that match a SHOW pattern: `*` is any text, `|` joins alternatives, case is ignored."""
    if not pattern:
        return list(names)
    parts = [re.escape(part.strip()).replace(r"\*", ".*") for part in pattern.split("|")]
    expression = re.compile("|".join(parts), re.IGNORECASE)
    return [name for name in names if expression.fullmatch(name)]


def _partitions(store: TableStore, spec: PartitionSpec | None) -> list[str]:
    """Return the newest snapshot's partitions that match a spec (None: all), as `dt=2024-01-01/h=1`, sorted."""
    if not store.schema.partition_keys:
        raise InvalidOption("SHOW PARTITIONS", store.name, "a table with partitions")
    snapshot = snapshots.latest(store)
    if snapshot is None:
        return []
    known = {key.lower(): key for key in store.schema.partition_keys}
    partitions = totals(store, snapshot, ("partition",)).column("partition").to_pylist()
    if spec is not None:
        matches = partition_matcher(store, [{known.get(key.lower(), key): value for key, value in spec.items()}])
        partitions = list(filter(matches, partitions))
    return sorted(partition_specs(store.schema, partitions, store.options))


def _show_extended(catalog: Catalog, statement: Show) -> pa.Table:
    names = _match_names(catalog.list_tables(statement.name), statement.pattern)
    texts = []
    for name in names:
        store = catalog.store(f"{statement.name}.{name}")
        lines = [f"{key}: {value}" for key, value in _list_details(store)]
        if statement.partition is not None:
            lines += [f"Partition: {partition}" for partition in _partitions(store, statement.partition)]
        texts.append("\n".join(lines))
    fields = [
        ("namespace", pa.string()),
        ("tableName", pa.string()),
        ("isTemporary", pa.bool_()),
        ("information", pa.string()),
    ]
    columns = [[statement.name] * len(names), names, [False] * len(names), texts]
    return pa.table(
        [pa.array(values, kind) for values, (_, kind) in zip(columns, fields, strict=True)], schema=pa.schema(fields)
    )


def _properties(catalog: Catalog, name: str, key: str) -> pa.Table:
    schema = catalog.store_as_stored(name).schema
    options = _list_options(schema)
    if schema.comment is not None:
        options["comment"] = schema.comment
    if key:
        options = {key: options.get(key, f"Table {name} does not have property: {key}")}
    return pa.table(
        {
            "key": pa.array(sorted(options), pa.string()),
            "value": pa.array([options[key] for key in sorted(options)], pa.string()),
        }
    )


def _list_options(schema: TableSchema) -> dict[str, str]:
    """Return the TBLPROPERTIES of a table: its options, and `primary-key` if it has one."""
    options = dict(schema.options)
    if schema.primary_keys:
        options["primary-key"] = ",".join(schema.primary_keys)
    return options


def describe(catalog: Catalog, statement: Describe) -> pa.Table:
    """Return the rows of a DESCRIBE statement.

    Raises:
        DatabaseNotFound: the database does not exist.
        TableNotFound: the table does not exist.
        ColumnNotFound: the column does not exist.
    """
    if statement.subject == "database":
        if statement.name not in catalog.list_databases():
            known = ", ".join(catalog.list_databases()) or "none"
            raise DatabaseNotFound(f"database {statement.name} is not in {catalog.place}; it has: {known}")
        return _pairs([("Catalog Name", "dredge"), ("Namespace Name", statement.name), ("Location", catalog.place)])
    if statement.subject == "history":
        parsed = TableName.parse(statement.name)
        return catalog.table(f"{parsed.on_branch}$snapshots").to_arrow().sort_by([("snapshot_id", "descending")])
    table = catalog.table(statement.name)
    if statement.subject == "column":
        return _of_column(statement.name, table.schema, statement.column)
    rows: list[tuple[str, str, str | None]] = [
        (field.name, _full_type(field), field.description) for field in table.schema.fields
    ]
    if isinstance(table, ReadOnlyTable):
        return _describe_columns(rows)
    schema = table.schema
    if schema.partition_keys:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        keys = (schema.field(name) for name in schema.partition_keys)
        rows += [(field.name, _full_type(field), field.description) for field in keys]
    if statement.subject == "extended":
        defaults = [(field.name, field.default) for field in schema.fields if field.default is not None]
        if defaults:
            rows += [("", "", ""), ("# Column Default Values", "", "")]
            rows += [(name, default, "") for name, default in defaults]
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [(key, value, "") for key, value in _list_details(table.store)]
    return _describe_columns(rows)


def _describe_columns(rows: Sequence[tuple[str, str, str | None]]) -> pa.Table:
    names = ("col_name", "data_type", "comment")
    return pa.table({name: pa.array([row[place] for row in rows], pa.string()) for place, name in enumerate(names)})


def _pairs(rows: Sequence[tuple[str, str]]) -> pa.Table:
    return pa.table({"info_name": [row[0] for row in rows], "info_value": [row[1] for row in rows]})


def _of_column(table: str, schema: TableSchema, path: tuple[str, ...]) -> pa.Table:
    fields: Sequence[DataField | RowField] = schema.fields
    column: DataField | RowField | None = None
    for name in path:
        column = next((field for field in fields if field.name.lower() == name.lower()), None)
        if column is None:
            raise ColumnNotFound(table, ".".join(path), tuple(field.name for field in fields))
        fields = column.type.fields
    assert column is not None
    rows = [("col_name", column.name), ("data_type", _full_type(column)), ("comment", column.description or "NULL")]
    return _pairs(rows + ([] if column.default is None else [("default", column.default)]))


def _full_type(field: DataField | RowField) -> str:
    return type_text(field.type) + ("" if field.type.nullable else " NOT NULL")


def _list_details(store: TableStore) -> list[tuple[str, str]]:
    """Return the rows (name, value) that DESCRIBE EXTENDED adds, from metadata alone."""
    schema = store.schema
    rows = [
        ("Name", store.name),
        ("Location", store.root),
        ("Provider", "paimon"),
        ("Comment", schema.comment or ""),
        ("Primary Key", ", ".join(schema.primary_keys)),
        ("Partitioned By", ", ".join(schema.partition_keys)),
        ("Table Properties", ", ".join(f"{key}={value}" for key, value in sorted(_list_options(schema).items()))),
        ("Schema", str(schema.id)),
    ]
    snapshot = snapshots.latest(store)
    if snapshot is None:
        return [*rows, ("Snapshot", "none")]
    rows += [("Snapshot", str(snapshot.id)), ("Records", str(snapshot.total_record_count))]
    analyzed = read_statistics(store, snapshot)
    if analyzed is not None:
        rows.append(("Statistics", f"{analyzed.merged_record_count} rows at snapshot {analyzed.snapshot_id}"))
    return rows


def create_text(name: str, schema: TableSchema) -> str:
    """Return the CREATE TABLE statement of a table definition; comments inside nested types are kept."""
    lines = [f"  {quoted_name(field.name)} {_full_type(field)}{_extras(field)}" for field in schema.fields]
    database, table = name.split(".", 1)
    text = f"CREATE TABLE {quoted_name(database)}.{quoted_name(table)} (\n" + ",\n".join(lines) + ")\nUSING paimon\n"
    if schema.partition_keys:
        text += f"PARTITIONED BY ({', '.join(map(quoted_name, schema.partition_keys))})\n"
    if schema.comment is not None:
        text += f"COMMENT {quoted_text(schema.comment)}\n"
    options = _list_options(schema)
    if options:
        pairs = (f"  {quoted_text(key)} = {quoted_text(value)}" for key, value in sorted(options.items()))
        text += "TBLPROPERTIES (\n" + ",\n".join(pairs) + ")\n"
    return text


def _extras(field: DataField) -> str:
    default = "" if field.default is None else f" DEFAULT {quoted_text(field.default)}"
    return default + ("" if field.description is None else f" COMMENT {quoted_text(field.description)}")
