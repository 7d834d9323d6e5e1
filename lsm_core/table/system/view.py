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
    """Return the schema of a system table.

    Args:
        columns: names and Paimon SQL types of the columns, as in Java's `TABLE_TYPE`.
    """
    fields = tuple(DataField(number, name, parse(kind)) for number, (name, kind) in enumerate(columns))
    return TableSchema(id=0, fields=fields, highest_field_id=len(fields) - 1)


@dataclass(frozen=True)
class Version:
    """Version of a table that a system table shows.

    Attributes:
        store: the table with the schema of the version.
        snapshot: the snapshot, or None for an empty table.
        pinned: True if the caller chose the version, False for the newest version.
        named: the caller's arguments that choose the version, by name, such as `snapshot_id` or `tag`.
    """

    store: TableStore
    snapshot: Snapshot | None
    pinned: bool = False
    named: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """Columns and filter of a read of a system table.

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
    """Kind of system table: its schema, and its rows for one table.

    A call returns all rows for one table: ``view(store, snapshot_id) -> pa.Table``.
    """

    timeless = False
    """Whether the rows are the same at every version (tags, branches ...), so that choosing a version is an error."""

    columns: TableSchema
    """Columns of a view whose columns are the same for every table; all other views override :meth:`schema`."""

    def schema(self, store: TableStore) -> TableSchema:
        """Return the columns of the system table.

        Args:
            store: the table that the system table describes, at the schema of the version to read.
        """
        return self.columns

    @abstractmethod
    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield the rows of the system table in parts that fit in memory, without applying the filter of ``selection``.

        Args:
            version: the table and the version to read.
            selection: columns that the parts must have (more are allowed), and the filter that the caller applies. The
                filter may be used to skip rows that cannot match.

        Raises:
            DredgeError: a metadata file of the table is damaged, or an error of a read of the table's rows.
        """

    def version(self, store: TableStore, named: Mapping[str, Any]) -> Version:
        """Return the version of the table that the arguments of a read choose.

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
        """Return all rows of the system table for one table.

        Args:
            store: the table.
            snapshot_id: id of the snapshot to read; None for the newest version.

        Raises:
            SnapshotNotFound: the snapshot does not exist.
            CorruptFile: a metadata file is damaged.
        """
        version = self.version(store, {"snapshot_id": snapshot_id})
        schema = self.schema(version.store).arrow_schema
        parts = self.read_parts(version, Selection(frozenset(schema.names)))
        return pa.concat_tables([empty_table(schema), *(fit_schema(part, schema) for part in parts)])


def fit_schema(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with exactly the columns and types of a schema.

    Nulls are kept also in columns that are NOT NULL, because a column may have become NOT NULL after its rows were
    written.

    Args:
        part: rows with at least the columns of ``schema``.
        schema: the result's schema.
    """
    return refit_table(part.select(schema.names), schema)


def table_of_columns(schema: TableSchema, columns: Mapping[str, Iterable[Any]], path: str = "") -> pa.Table:
    """Return an Arrow table made of Python values by column. Columns without values are null.

    Args:
        schema: schema of the result.
        columns: values by column name, all columns equally long.
        path: file from which the values were read, for errors.

    Raises:
        CorruptFile: a value does not fit its column.
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
