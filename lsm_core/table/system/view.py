"""Base of all system tables: a schema, and rows from metadata that are computed only as far as a reader needs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lsm_core.arrays import empty_table
from lsm_core.errors import CorruptFile, InvalidOption
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata.store import TableStore
from lsm_core.read import resolve
from lsm_core.read.predicate import Predicate
from lsm_core.types import parse
from lsm_core.types.arrow import refit_table


def table_schema(columns: Iterable[tuple[str, str]]) -> TableSchema:
    """Return a schema of names and Paimon's SQL types, as Java's `TABLE_TYPE` lists them."""
    fields = tuple(DataField(number, name, parse(kind)) for number, (name, kind) in enumerate(columns))
    return TableSchema(id=0, fields=fields, highest_field_id=len(fields) - 1)


@dataclass(frozen=True)
class Version:
    """Version of a table that a system table shows.

    Attributes:
        store: the table with the schema of the version.
        snapshot: the snapshot, or None for an empty table.
        pinned: whether the caller chose the version.
        named: the caller's choice, as `plan_scan` takes it.
    """

    store: TableStore
    snapshot: Snapshot | None
    pinned: bool = False
    named: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """Columns and filter of a read.

    Attributes:
        columns: columns that output and filter need.
        predicate: the parsed filter, or None.
        filter_argument: the filter as the caller passed it.
    """

    columns: frozenset[str]
    predicate: Predicate | None = None
    filter_argument: object = None

    def __contains__(self, column: str) -> bool:
        return column in self.columns


class View(ABC):
    """System table of one table. Calling it returns all of its rows: ``view(store, snapshot_id) -> pa.Table``."""

    timeless = False
    """Whether it is the same at every version (tags, branches ...), so that naming one is an error."""

    columns: TableSchema
    """Its columns, where they are the same for every table; else :meth:`schema` tells them."""

    def schema(self, store: TableStore) -> TableSchema:
        """Return the columns for a table with one of its schemas."""
        return self.columns

    @abstractmethod
    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """Yield the rows in parts that fit in memory, with at least the wanted columns.

        The caller applies the filter.
        """

    def version(self, store: TableStore, named: Mapping[str, Any]) -> Version:
        """Return the chosen version.

        Raises:
            SnapshotNotFound: the version does not exist.
            InvalidOption: the system table has no versions.
        """
        pinned = {name: value for name, value in named.items() if value is not None}
        if self.timeless:
            for name, value in pinned.items():
                raise InvalidOption(name, value, "no value, because this system table has no versions", store.name)
            return Version(store, None)
        resolved = resolve(store, **named)
        return Version(resolved.store, resolved.snapshot, bool(pinned), dict(named))

    def __call__(self, store: TableStore, snapshot_id: int | None = None) -> pa.Table:
        """Return all rows, of a snapshot or the newest version. Raises SnapshotNotFound, CorruptFile."""
        version = self.version(store, {"snapshot_id": snapshot_id})
        schema = self.schema(version.store).arrow_schema
        parts = self.tables(version, Wanted(frozenset(schema.names)))
        return pa.concat_tables([empty_table(schema), *(shaped(part, schema) for part in parts)])


def shaped(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with exactly the columns of a schema, in their types.

    A column that became NOT NULL may still hold nulls.
    """
    return refit_table(part.select(schema.names), schema)


def of_columns(schema: TableSchema, columns: Mapping[str, Iterable[Any]], path: str = "") -> pa.Table:
    """Return a table of Python values by column, for metadata of few rows. Columns without values are null.

    Raises:
        CorruptFile: a value does not fit its column; the error names ``path``, where the values were read.
    """
    arrow = schema.arrow_schema
    values = {name: list(items) for name, items in columns.items()}
    count = len(next(iter(values.values())))
    try:
        arrays = [
            pa.array(values[column.name], column.type) if column.name in values else pa.nulls(count, column.type)
            for column in arrow
        ]
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise CorruptFile(path, f"a value that is out of bounds: {error}") from error
    return pa.Table.from_arrays(arrays, schema=arrow)
