"""What every system table is: a schema, and rows made of metadata only as far as a reader wants them."""

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
from lsm_core.types.nesting import refit_table


def table_schema(columns: Iterable[tuple[str, str]]) -> TableSchema:
    """A schema of (name, Paimon's SQL type), as Java's `TABLE_TYPE` lists them."""
    fields = tuple(DataField(number, name, parse(kind)) for number, (name, kind) in enumerate(columns))
    return TableSchema(id=0, fields=fields, highest_field_id=len(fields) - 1)


@dataclass(frozen=True)
class Version:
    """The version of a table that is looked at.

    ``store``: the table as of the version's schema; ``snapshot``: None when nothing was committed; ``pinned``: the version
    was asked for; ``named``: how it was asked for, as `plan_scan` takes it.
    """

    store: TableStore
    snapshot: Snapshot | None
    pinned: bool = False
    named: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """Columns that output and filter need, the parsed filter, and the filter as the caller passed it."""

    columns: frozenset[str]
    predicate: Predicate | None = None
    filter_argument: object = None

    def __contains__(self, column: str) -> bool:
        return column in self.columns


class View(ABC):
    """A system table of one table. Calling it gives the whole of it: ``view(store, snapshot_id) -> pa.Table``."""

    timeless = False
    """Whether it is the same at every version (tags, branches ...), so that naming one is an error."""

    columns: TableSchema
    """Its columns, where they are the same for every table; else :meth:`schema` tells them."""

    def schema(self, store: TableStore) -> TableSchema:
        """Its columns for a table as of one of its schemas."""
        return self.columns

    @abstractmethod
    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """Its rows in parts that fit in memory, with at least the wanted columns; the filter is applied by the caller."""

    def version(self, store: TableStore, named: Mapping[str, Any]) -> Version:
        """The version asked for. Raises SnapshotNotFound, and InvalidOption where no version can be asked for."""
        pinned = {name: value for name, value in named.items() if value is not None}
        if self.timeless:
            for name, value in pinned.items():
                raise InvalidOption(name, value, "nothing: this system table has no versions", store.name)
            return Version(store, None)
        resolved = resolve(store, **named)
        return Version(resolved.store, resolved.snapshot, bool(pinned), dict(named))

    def __call__(self, store: TableStore, snapshot_id: int | None = None) -> pa.Table:
        """All rows (of a snapshot). Raises SnapshotNotFound, CorruptFile."""
        version = self.version(store, {"snapshot_id": snapshot_id})
        schema = self.schema(version.store).arrow_schema
        parts = self.tables(version, Wanted(frozenset(schema.names)))
        return pa.concat_tables([empty_table(schema), *(shaped(part, schema) for part in parts)])


def shaped(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """``part`` with exactly the columns of ``schema``, in their types; a column that became NOT NULL may still hold nulls."""
    return refit_table(part.select(schema.names), schema)


def of_columns(schema: TableSchema, columns: Mapping[str, Iterable[Any]], path: str = "") -> pa.Table:
    """A table of Python values by column: for metadata of few rows. Columns without values are null.

    Raises CorruptFile naming ``path``, where the values were read, for one that no column of its type can hold.
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


__all__ = ["Version", "View", "Wanted", "of_columns", "shaped", "table_schema"]
