"""Base of all system tables: a schema, and rows that are computed from metadata only as far as a read needs them."""

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
        named: arguments by which the caller chose the version, such as `snapshot_id` or `tag` of `plan_scan`.
    """

    store: TableStore
    snapshot: Snapshot | None
    pinned: bool = False
    named: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """Columns and filter of a read.

    Attributes:
        columns: names of the columns that the result and the filter need.
        predicate: the parsed filter, or None.
        filter_argument: the filter as the caller passed it.
    """

    columns: frozenset[str]
    predicate: Predicate | None = None
    filter_argument: object = None

    def __contains__(self, column: str) -> bool:
        return column in self.columns


class View(ABC):
    """Kind of system table. A call returns all rows for one table: ``view(store, snapshot_id) -> pa.Table``."""

    timeless = False
    """Whether the rows are the same at every version (tags, branches ...), so that choosing a version is an error."""

    columns: TableSchema
    """Columns of a view whose columns are the same for every table; all other views override :meth:`schema`."""

    def schema(self, store: TableStore) -> TableSchema:
        """Return the columns of the system table for a table and its schema in ``store``."""
        return self.columns

    @abstractmethod
    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """Yield the rows in parts that fit in memory, with at least the columns of ``wanted``.

        The caller applies the filter.
        """

    def version(self, store: TableStore, named: Mapping[str, Any]) -> Version:
        """Return the chosen version.

        Args:
            store: the table.
            named: arguments that choose a version, such as `snapshot_id` or `tag`; None for absent ones.

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
        """Return all rows at a snapshot, or at the newest version for None. Raises SnapshotNotFound, CorruptFile."""
        version = self.version(store, {"snapshot_id": snapshot_id})
        schema = self.schema(version.store).arrow_schema
        parts = self.tables(version, Wanted(frozenset(schema.names)))
        return pa.concat_tables([empty_table(schema), *(shaped(part, schema) for part in parts)])


def shaped(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with exactly the columns and types of a schema.

    A column that became NOT NULL later may still hold nulls.
    """
    return refit_table(part.select(schema.names), schema)


def of_columns(schema: TableSchema, columns: Mapping[str, Iterable[Any]], path: str = "") -> pa.Table:
    """Return an Arrow table made of Python values by column. Columns without values are null.

    Raises:
        CorruptFile: a value does not fit its column; the error names ``path``, the file of the values.
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
