"""New values of columns: literals, or Arrow expressions over the old row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.errors import ColumnNotFound, InvalidData
from lsm_core.metadata.store import TableStore
from lsm_core.read.predicate import ComputedPredicate, Predicate
from lsm_core.write.incoming_rows import conform

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def evaluate(batch: pa.RecordBatch, expressions: Sequence[pc.Expression]) -> list[pa.ChunkedArray]:
    """Return the values of expressions for every row of a batch, in row order."""
    from pyarrow import acero  # it loads pandas

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
    names = [str(place) for place in range(len(expressions))]
    project = acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), names))
    return list(acero.Declaration.from_sequence([source, project]).to_table(use_threads=False).columns)


def matches(batch: pa.RecordBatch, expression: pc.Expression) -> Mask:
    """Return a mask of the rows for which an expression is true; null is false."""
    (truth,) = evaluate(batch, [expression])
    return np.asarray(one_array(pc.fill_null(truth, fill_value=False)))


def matching_rows(batch: pa.RecordBatch, predicate: Predicate) -> Mask:
    """Return a mask of the rows for which a filter is true; null is false."""
    if isinstance(predicate, ComputedPredicate):
        return np.asarray(one_array(pa.chunked_array([pc.fill_null(predicate.compute(batch), fill_value=False)])))
    return matches(batch, predicate.expression)


@dataclass(frozen=True)
class ComputedValues(Mapping[str, Any]):
    """New column values that a function computes from batches of old rows; it may also delete some of these rows.

    Attributes:
        names: columns that get new values.
        compute: returns the new values by column, for a batch with all columns of the table.
        deleted: returns a mask of the rows of a batch to delete instead; None if the change deletes no rows.
        needed: columns of the old rows that the functions read; None for all.
    """

    names: tuple[str, ...]
    compute: Callable[[pa.RecordBatch], Mapping[str, pa.Array]]
    deleted: Callable[[pa.RecordBatch], Mask] | None = None
    needed: tuple[str, ...] | None = None

    def __getitem__(self, name: str) -> Any:
        if name not in self.names:
            raise KeyError(name)
        return self.compute

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def deleted_rows(values: Mapping[str, Any] | None, batch: pa.RecordBatch) -> Mask | None:
    """Return a mask of the rows that a change deletes instead of updating them.

    Args:
        values: new values by column; only a `ComputedValues` can delete rows. None for a DELETE.
        batch: old rows that the change selected.

    Returns:
        The mask, or None if ``values`` deletes no rows.
    """
    if not isinstance(values, ComputedValues) or values.deleted is None or not batch.num_rows:
        return None
    mask = values.deleted(batch)
    return mask if mask.any() else None


class Assignments:
    """New column values of an UPDATE: literals, or expressions that read the old row.

    Raises:
        InvalidData: Arrow does not understand a literal, or an expression does not fit the table.
    """

    def __init__(self, store: TableStore, values: Mapping[str, Any]) -> None:
        self._store, self._values = store, values
        self._literals: dict[str, pa.Scalar] = {}
        self._expressions: dict[str, pc.Expression] = {}
        for name, value in () if isinstance(values, ComputedValues) else values.items():
            if isinstance(value, pc.Expression):
                self._expressions[name] = value
            else:
                self._literals[name] = self._literal(name, value)
        # Whether the expressions fit the table's columns is found out before anything is written.
        schema = store.schema
        nothing = pa.RecordBatch.from_arrays(
            [pa.array([], f.type) for f in schema.arrow_schema], schema.arrow_schema.names
        )
        for name, expression in self._expressions.items():
            try:
                evaluate(nothing, [expression])
            except (pa.ArrowException, KeyError, TypeError) as error:
                first = str(error).splitlines()[0]
                missing = first.partition("FieldRef.Name(")[2].partition(")")[0]
                if missing and not schema.has_field(missing):
                    raise ColumnNotFound(store.name, missing, schema.field_names) from error
                raise InvalidData(store.name, name, f"the new value cannot be computed: {first}") from error

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch (all columns of the table) with the new values, cast to the columns' types.

        Raises InvalidData if a value does not fit its column; the error names both.
        """
        try:
            new_values = dict(zip(self._expressions, evaluate(batch, list(self._expressions.values())), strict=True))
        except pa.ArrowException as error:  # an overflow, a division by zero
            names = ", ".join(self._expressions)
            raise InvalidData(self._store.name, names, f"the new value cannot be computed: {error}") from error
        if isinstance(self._values, ComputedValues) and batch.num_rows:
            new_values |= {n: pa.chunked_array([value]) for n, value in self._values.compute(batch).items()}
        new_values |= {n: pa.chunked_array([pa.repeat(value, batch.num_rows)]) for n, value in self._literals.items()}
        data = pa.table({name: new_values.get(name, batch.column(name)) for name in self._store.schema.field_names})
        fitted = conform(data, self._store.schema, self._store.name)
        columns = [
            one_array(fitted.column(name)) if name in new_values else batch.column(name) for name in fitted.column_names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=fitted.schema)

    def apply_where(self, batch: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
        """Return all rows of a batch, with the new values in the rows that ``mask`` marks."""
        changed = self.apply(batch.filter(pa.array(mask)))
        place = np.arange(batch.num_rows)
        place[mask] = batch.num_rows + np.arange(changed.num_rows)
        index = pa.array(place)
        columns = []
        for name in changed.schema.names:
            old = batch.column(name)
            if name in self._values:
                old = pa.concat_arrays([old, changed.column(name)]).take(index)
            columns.append(old)
        return pa.RecordBatch.from_arrays(columns, schema=changed.schema)

    def _literal(self, name: str, value: object) -> pa.Scalar:
        if isinstance(value, pa.Scalar):
            return value
        try:
            return pa.scalar(value, self._store.schema.arrow_schema.field(name).type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass  # not a value of the type as it stands, but perhaps one that casts to it, as in writes
        try:
            return pa.scalar(value)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidData(self._store.name, name, f"{value!r} cannot be a value of this column: {error}") from error
