"""Comparison of rows read from a table with the expected rows, key by key."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array
from lsm_core.errors import InvalidData
from lsm_core.format.hashing import hash_rows
from lsm_core.format.schema import TableSchema
from lsm_core.maintenance.checks.expected_rows import ExpectedRow, ExpectedRows, Values
from lsm_core.maintenance.reference import key_order
from lsm_core.maintenance.reference.comparison import ResultComparison
from lsm_core.maintenance.reference.values import plain_values
from lsm_core.metadata.store import TableStore

SHOWN_ROWS: Final = 20
"""Number of differing rows that a comparison names."""
_KEYS_AT_ONCE: Final = 20_000
_MAX_TEXT: Final = 120
COUNT_COLUMN: Final = "(rows)"
"""Name of the column in the table of `repeated_keys` that has the number of rows per key."""


class ReadRows(Protocol):
    """Rows read from a table, for example as an Arrow table or a Spark DataFrame.

    Attributes:
        nan_is_null: columns whose source cannot distinguish null and NaN.
    """

    nan_is_null: Collection[str]

    def with_keys(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return ``columns`` of the rows whose primary key is in ``keys``.

        Args:
            keys: primary keys.
            columns: names of the columns.

        Returns:
            The rows, typed as the table's columns.
        """

    def repeated_keys(self, limit: int) -> tuple[int, int, pa.Table]:
        """Find the primary keys that several rows have.

        Args:
            limit: number of keys to return.

        Returns:
            Number of rows, number of keys that several rows have, and a table of the first ``limit`` such keys, whose
                column `(rows)` is the number of rows per key.
        """


@dataclass(frozen=True)
class RowDifference:
    """Row that differs from the expected row of its key. Values are texts for people.

    Attributes:
        key: values of the primary key by column.
        reason: kind of the difference.
        expected: expected values of the columns that differ, None if no row of the key must be seen.
        observed: values of the same columns in the row that was read, None if no row of the key was read.
    """

    key: Mapping[str, str]
    reason: str
    expected: Mapping[str, str] | None = None
    observed: Mapping[str, str] | None = None

    def __str__(self) -> str:
        name = ", ".join(f"{column}={value}" for column, value in self.key.items())
        pairs = [
            f"{column} is {value}, expected {self.expected[column]}"
            for column, value in (self.observed or {}).items()
            if self.expected is not None
        ]
        return f"{name}: {'; '.join(pairs) or self.reason}"


@dataclass(frozen=True)
class RowComparison:
    """Result of comparing read rows with the expected rows.

    Attributes:
        basis: source of the expected rows, or the reason why nothing is compared.
        compared: number of compared keys, or of all rows in the result of `compare_keys`.
        differing: number of keys whose rows differ.
        differences: the first differing rows, 20 unless the caller wants another number.
    """

    basis: str
    compared: int
    differing: int
    differences: Sequence[RowDifference] = ()

    @property
    def ok(self) -> bool:
        """Whether no row differs."""
        return not self.differing


def compare_rows(store: TableStore, expected: ExpectedRows, rows: ReadRows, most: int = SHOWN_ROWS) -> RowComparison:
    """Compare read rows with the expected rows. Rows of keys that have no expected row are ignored.

    Memory holds the sample of one bucket, or 20,000 keys of small buckets.

    Args:
        store: the table.
        expected: rows that readers must see.
        rows: rows that were read.
        most: number of differing rows to name.
    """
    judge = _Judge(store, expected.columns, rows)
    compared = differing = 0
    differences: list[RowDifference] = []
    for part in _join_small_parts(expected):
        part_differences = judge.differences(part)
        compared += len(part)
        differing += len(part_differences)
        differences += part_differences[: most - len(differences)]
    return RowComparison(expected.basis, compared, differing, differences)


def compare_keys(store: TableStore, rows: ReadRows, most: int = SHOWN_ROWS) -> RowComparison:
    """Report the primary keys that more than one row has; every row is read.

    Args:
        store: the table.
        rows: rows that were read.
        most: number of such keys to name.
    """
    schema = store.schema
    count, repeated, keys = rows.repeated_keys(most)
    columns = _plain_rows(keys, schema.primary_keys)
    differences = [
        RowDifference(_key_texts(schema, key), f"there are {number} rows with this key")
        for key, number in zip(columns, keys.column(COUNT_COLUMN).to_pylist(), strict=True)
    ]
    return RowComparison("unique keys", count, repeated, differences)


def _join_small_parts(expected: ExpectedRows) -> Iterator[dict[Any, ExpectedRow]]:
    """Yield expected rows by key, those of several small buckets together, so that Spark runs fewer jobs."""
    gathered: dict[Any, ExpectedRow] = {}
    for part in expected.parts():
        gathered |= part
        if len(gathered) >= _KEYS_AT_ONCE:
            yield gathered
            gathered = {}
    if gathered:
        yield gathered


class _Judge:
    """Comparison of one table's rows in the compared columns."""

    def __init__(self, store: TableStore, columns: Sequence[str], rows: ReadRows) -> None:
        self._schema, self._rows = store.schema, rows
        self._columns = list(columns)
        self._answers = ResultComparison(store.schema, store.options.raw)
        self._places = [store.schema.field_names.index(name) for name in columns]
        self._lossy = [name in rows.nan_is_null for name in columns]

    def differences(self, expected: Mapping[Any, ExpectedRow]) -> list[RowDifference]:
        """Return the differing rows of the keys in ``expected``, by ascending key."""
        keys = self._schema.primary_keys
        expected_rows = pa.table(
            [_arrow(self._schema, name, [row.key[i] for row in expected.values()]) for i, name in enumerate(keys)],
            names=list(keys),
        )
        read = self._rows.with_keys(expected_rows, list(dict.fromkeys([*keys, *self._columns])))
        rows_by_key: dict[Any, list[Values]] = {}
        for key, values in zip(_plain_rows(read, keys), _plain_rows(read, self._columns), strict=True):
            rows_by_key.setdefault(key_order(key), []).append(values)
        compared = (self._difference(expected[order], rows_by_key.get(order, [])) for order in sorted(expected))
        return [difference for difference in compared if difference is not None]

    def _difference(self, expected: ExpectedRow, observed: Sequence[Values]) -> RowDifference | None:
        key = _key_texts(self._schema, expected.key)
        if expected.values is None:
            if not observed:
                return None
            return RowDifference(
                key, "the row should not be there", None, self._texts(observed[0], range(len(self._columns)))
            )
        values = tuple(
            None if lossy and isinstance(value, float) and value != value else value  # noqa: PLR0124  (only NaN)
            for value, lossy in zip(expected.values, self._lossy, strict=True)
        )
        if not observed:
            return RowDifference(key, "the row is missing", self._texts(values, range(len(values))), None)
        if len(observed) > 1:
            return RowDifference(key, f"there are {len(observed)} rows with this key")
        places = self._answers.differing(self._places, values, observed[0], expected.versions)
        if not places:
            return None
        at = [self._places.index(place) for place in places]
        return RowDifference(key, "another value", self._texts(values, at), self._texts(observed[0], at))

    def _texts(self, values: Values, at: Collection[int]) -> dict[str, str]:
        return {self._columns[i]: _text(self._schema, self._columns[i], values[i]) for i in at}


def _plain_rows(table: pa.Table, columns: Sequence[str]) -> list[Values]:
    """Return one tuple per row: the values of ``columns`` as plain Python values (a time is a number)."""
    return list(zip(*(plain_values(table.column(name)) for name in columns), strict=True))


def _key_texts(schema: TableSchema, key: Values) -> dict[str, str]:
    return {name: _text(schema, name, value) for name, value in zip(schema.primary_keys, key, strict=True)}


def _arrow(schema: TableSchema, name: str, values: Sequence[Any]) -> pa.Array:
    """Convert plain Python values of column ``name`` to an Arrow array of the column's type."""
    kind = schema.arrow_schema.field(name).type
    if pa.types.is_timestamp(kind):
        return arrow_array(values, pa.int64()).cast(kind)
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return arrow_array(values, pa.int32()).cast(kind)
    return pa.array(values, kind)


def _text(schema: TableSchema, name: str, value: Any) -> str:
    """Return a plain Python value of column ``name`` as text for people, shortened if it is long."""
    kind = schema.arrow_schema.field(name).type
    if value is not None and pa.types.is_temporal(kind):
        value = _arrow(schema, name, [value]).cast(pa.string())[0].as_py()
    text = "null" if value is None else value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... ({len(text):,} characters)"


class ArrowRows:
    """Rows in an Arrow table.

    Args:
        store: the table from which the rows were read.
        rows: the rows; columns that are not compared may be missing.
        nan_is_null: columns whose source cannot distinguish null and NaN.
    """

    def __init__(self, store: TableStore, rows: pa.Table, nan_is_null: Collection[str] = ()) -> None:
        self._store, self._table = store, rows
        self.nan_is_null = nan_is_null
        self._hashes: Any = None

    def with_keys(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return ``columns`` of the rows whose primary key is in ``keys`` (implements :meth:`ReadRows.with_keys`).

        Rows of further keys with the same hash may be included.

        Raises:
            InvalidData: the rows lack a column.
        """
        require_columns(self._store, self._table.column_names, columns)
        if self._hashes is None:
            self._hashes = self._hash(self._table)
        candidates = np.flatnonzero(np.isin(self._hashes, self._hash(keys)))
        return self._table.select(list(columns)).take(arrow_array(candidates))

    def repeated_keys(self, limit: int) -> tuple[int, int, pa.Table]:
        """Find the primary keys that several rows have (implements :meth:`ReadRows.repeated_keys`).

        Returns:
            Number of rows, number of keys that several rows have, and a table of the first ``limit`` such keys.

        Raises:
            InvalidData: the rows lack a key column.
        """
        keys = list(self._store.schema.primary_keys)
        require_columns(self._store, self._table.column_names, keys)
        counted = self._table.select(keys).group_by(keys, use_threads=False).aggregate([([], "count_all")])
        counted = counted.rename_columns([*keys, COUNT_COLUMN])
        repeated = counted.filter(pc.greater(counted.column(COUNT_COLUMN), 1))
        return self._table.num_rows, repeated.num_rows, repeated.slice(0, limit)

    def _hash(self, table: pa.Table) -> Any:
        schema = self._store.schema
        names = schema.primary_keys
        columns = [table.column(name).combine_chunks() for name in names]
        if not table.num_rows:
            return np.empty(0, np.int32)
        return np.asarray(hash_rows(columns, [schema.field(name).type for name in names]))


def require_columns(store: TableStore, present: Collection[str], columns: Sequence[str]) -> None:
    """Raise an error if a column is missing.

    Args:
        store: the table.
        present: names of the columns that the rows have.
        columns: names of the columns that are needed.

    Raises:
        InvalidData: a column is missing; the message names the column.
    """
    for name in columns:
        if name not in present:
            raise InvalidData(store.name, name, "the rows to compare lack this column: read all columns of the table")
