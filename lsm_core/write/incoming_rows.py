"""Conversion of incoming rows to the table's columns, types and defaults; errors name column and row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import ColumnNotFound, InvalidData, InvalidOption
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.types import MAX_LENGTH, DataType, TypeRoot, kinds_from_text, to_arrow, to_sql
from lsm_core.types.arrow import compact, find_misfit, list_of, map_of, one_nan, refit_table, struct_of
from lsm_core.types.casts import CastError, cast_values
from lsm_core.types.casts.cast_errors import shown

_TEXT: Final = DataType(TypeRoot.VARCHAR, length=MAX_LENGTH)
_COUNT: Final = DataType(TypeRoot.INT, nullable=False)
_SHOWN: Final = 120
_MISSING: Final = "the column is NOT NULL and has no default, but the rows lack it"
_WIDE: Final = pa.decimal256(76, 0)
CHUNK_BYTES: Final = 64 << 20
"""Size (bytes) of the pieces in which input is converted, so that memory never holds a large table twice."""


class ArrowStream(Protocol):
    """Object with the Arrow C stream interface: from Polars, DuckDB, pandas, or a `Table` of this engine."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


Rows: TypeAlias = (
    pa.RecordBatch | pa.Table | pa.RecordBatchReader | Mapping[str, Any] | Sequence[Mapping[str, Any]] | ArrowStream
)
"""Rows that a caller may pass: Arrow data, columns by name, a list of dicts, a data frame, or an Arrow stream."""


@dataclass(frozen=True)
class RowNumbering:
    """Numbering of the input's rows, for error messages; the input is converted in pieces.

    Attributes:
        first: number of the current piece's first row in the whole input, from 0.
        source: description of the input, for example a file name.
    """

    first: int = 0
    source: str = "the rows given"

    def row(self, place: int) -> str:
        """Return the text that identifies the row at position ``place`` of the current piece of the input."""
        return f"row {self.first + place} (from 0) of {self.source}"

    def rows(self, count: int) -> str:
        """Return the text that identifies the first ``count`` rows of the current piece of the input."""
        return f"rows {self.first} to {self.first + count - 1} (from 0) of {self.source}"

    def after(self, rows: int) -> RowNumbering:
        """Return the numbering for the next piece of the input, if the current piece has ``rows`` rows."""
        return replace(self, first=self.first + rows)


ALL: Final = RowNumbering()
"""Numbering for input that is passed as one piece: the first row is row 0."""


def as_rows(data: Rows, table: str) -> pa.Table | pa.RecordBatchReader:
    """Convert rows to Arrow.

    Args:
        data: Arrow data, columns by name, a list of dicts by column name, a pandas or Polars frame, a Polars lazy
            frame, or an object with ``__arrow_c_stream__``. Named levels of a pandas index become columns; an index
            without names is dropped.
        table: name of the table, for errors.

    Returns:
        A table, or a reader if ``data`` is a Polars frame, a dataset, a scanner or a stream. Lazy frames, datasets and
            streams are never in memory as a whole.

    Raises:
        InvalidData: ``data`` is of none of these types, or Arrow cannot represent its values.
    """
    if isinstance(data, (pa.Table, pa.RecordBatchReader)):
        return data
    kind = type(data)
    try:
        if isinstance(data, pa.RecordBatch):
            return pa.Table.from_batches([data])
        if _is_of(kind, "pandas", "DataFrame"):
            return _rows_of_pandas(data)
        lazy = _is_of(kind, "polars", "LazyFrame")
        if lazy or _is_of(kind, "polars", "DataFrame"):
            frame: Any = data
            _require_no_objects(frame.collect_schema())
            return _rows_of_lazy_frame(frame) if lazy else pa.RecordBatchReader.from_stream(frame)
        if isinstance(data, (list, tuple)):
            return _rows_of_list(data)
        if _is_of(kind, "pyarrow", "Dataset") or _is_of(kind, "pyarrow", "Scanner"):
            dataset: Any = data
            return (dataset if hasattr(dataset, "to_reader") else dataset.scanner()).to_reader()
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        return pa.table(data)
    except (OverflowError, TypeError, ValueError, pa.ArrowException) as error:
        reason = (
            f"rows of type {kind.__name__} cannot be read as a table: {error}. Write an Arrow table, a pandas or "
            "Polars frame, a dictionary of columns or a list of dictionaries"
        )
        raise InvalidData(table, "", reason) from error


def _is_of(kind: type, package: str, name: str) -> bool:
    """Return whether ``kind`` is class ``name`` of ``package`` or a subclass, without importing the package."""
    return any(base.__name__ == name and base.__module__.partition(".")[0] == package for base in kind.__mro__)


def _rows_of_pandas(frame: Any) -> pa.Table:
    levels = [name for name in frame.index.names if name is not None and name not in frame.columns]
    unnamed = [place for place, name in enumerate(frame.index.names) if name not in levels]
    if levels:
        frame = (frame.reset_index(level=unnamed, drop=True) if unnamed else frame).reset_index()
    return pa.Table.from_pandas(frame, preserve_index=False)


def _require_no_objects(schema: Mapping[str, Any]) -> None:
    """Raise TypeError for a column of Python objects, because Polars would export their memory addresses."""
    for name, kind in schema.items():
        if str(kind) == "Object":
            raise TypeError(f"column {name!r} has Python objects; convert it to a type of Arrow")


def _rows_of_lazy_frame(frame: Any) -> pa.RecordBatchReader:
    schema = frame.collect_schema().to_frame().to_arrow().schema

    def batches() -> Iterator[pa.RecordBatch]:
        # Before Polars 1.34 a lazy frame is collected whole.
        parts = frame.collect_batches() if hasattr(frame, "collect_batches") else (frame.collect(),)
        for part in parts:
            yield from part.to_arrow().cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _rows_of_list(rows: Sequence[Any]) -> pa.Table:
    """Convert a list of dicts, Arrow batches or tables to one table; columns missing in a row or batch are null."""
    if rows and all(isinstance(part, (pa.RecordBatch, pa.Table)) for part in rows):
        return pa.concat_tables([pa.table(part) for part in rows], promote_options="default")
    strangers = {type(row).__name__ for row in rows if not isinstance(row, Mapping)}
    if strangers:
        raise TypeError(f"a list of rows must have dictionaries by column name, not {', '.join(sorted(strangers))}")
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


def pieces(data: pa.RecordBatch | pa.Table | pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield the input as tables of about :data:`CHUNK_BYTES` decoded bytes, in order."""
    if isinstance(data, pa.RecordBatchReader):
        for batch in data:
            yield from pieces(batch)
        return
    table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
    rows = max(1, int(CHUNK_BYTES / max(1.0, table.nbytes / max(1, table.num_rows))))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def conform(data: pa.Table, schema: TableSchema, table: str, numbering: RowNumbering = ALL) -> pa.Table:
    """Return rows with exactly the table's columns (`TableSchema.arrow_schema`), cast without loss.

    Missing columns, and nulls in nullable columns, become the column's default or null, as in Java.

    Args:
        data: incoming rows.
        schema: schema of the table.
        table: name of the table, for errors.
        numbering: gives the rows the numbers that errors name, if ``data`` is a piece of a larger input.

    Raises:
        ColumnNotFound: the table does not have a column of ``data``.
        InvalidData: a value does not fit its type (length, precision, digits), or is null in a NOT NULL column, also
            inside nested values.
    """
    _require_names(data.column_names, schema, table)
    names = frozenset(data.column_names)  # Arrow makes the list anew at each use
    columns = [_column(data, names, field, table, numbering) for field in schema.fields]
    placing = {*schema.primary_keys, *schema.partition_keys, *schema.bucket_keys}
    for place, (field, column) in enumerate(zip(schema.fields, columns, strict=True)):
        if field.name in placing and pa.types.is_floating(column.type):
            columns[place] = pa.chunked_array(list(map(one_nan, column.chunks)), column.type)
        is_key = field.name in schema.primary_keys and not schema.nullable_key
        if column.null_count and (is_key or not field.type.nullable):
            row = numbering.row(_first(pc.is_null(column)))
            raise InvalidData(table, field.name, f"{row}: null in a {'primary key' if is_key else 'NOT NULL'} column")
    return pa.table(columns, schema=schema.arrow_schema)


def require_columns(incoming: pa.Schema, schema: TableSchema, table: str) -> None:
    """Check the incoming schema before any row is read: raise an error if no row with these columns can be written.

    Raises:
        ColumnNotFound: the table does not have an incoming column.
        InvalidData: a column occurs twice, has a type that can never be cast, or is missing although NOT NULL.
    """
    _require_names(incoming.names, schema, table)
    for field in schema.fields:
        if field.name not in incoming.names and field.default is None and not field.type.nullable:
            raise InvalidData(table, field.name, _MISSING)
    require_castable(incoming, schema, table)


def require_castable(incoming: pa.Schema, schema: TableSchema, table: str) -> None:
    """Raise InvalidData for an incoming column whose type can never be cast to the type of the table's column."""
    for column in incoming:
        if not schema.has_field(column.name):
            continue
        own, kind = schema.field(column.name).type, column.type
        try:
            if _nesting(kind) != _nesting(to_arrow(own)) and not pa.types.is_null(kind):
                raise pa.ArrowNotImplementedError("one of them is nested in another way")
            _shaped(pa.nulls(0, kind), own)
        except pa.ArrowException as error:
            reason = f"values of type {kind} do not fit {to_sql(own)}: {str(error).splitlines()[0]}"
            raise InvalidData(table, column.name, reason) from error


def _nesting(kind: pa.DataType) -> str:
    if pa.types.is_map(kind) or pa.types.is_struct(kind):
        return str(kind).partition("<")[0]
    return "list" if pa.types.is_nested(kind) else ""


def _require_names(names: Sequence[str], schema: TableSchema, table: str) -> None:
    unknown = [name for name in names if not schema.has_field(name)]
    if unknown:
        raise ColumnNotFound(table, unknown[0], schema.field_names)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidData(table, twice[0], f"the rows have the column twice: {', '.join(names)}")


def conform_stored(data: pa.Table, schema: TableSchema) -> pa.Table:
    """Return rows read from the table with the columns and types of ``schema``.

    Nulls are kept, also in NOT NULL columns, because merging can produce them. Raises pyarrow.ArrowException for a
    column that cannot be cast.
    """
    return refit_table(data.select(schema.field_names), schema.arrow_schema)


def conform_kinds(
    row_kinds: pa.Array | pa.ChunkedArray | Sequence[Any] | str | int | None, rows: int, table: str
) -> pa.Array | None:
    """Return row kinds as int8; None stays None (all inserts).

    Args:
        row_kinds: row kinds as texts ("+I" ...) or numbers: one per row, or one for all rows.
        rows: number of rows.
        table: name of the table, for errors.

    Raises:
        InvalidData: the kinds are neither texts nor numbers, a kind is unknown, or their count is not ``rows``.
    """
    if row_kinds is None:
        return None
    if isinstance(row_kinds, (str, int)):
        return pa.repeat(kinds_from_text(pa.array([row_kinds]), table, row_name="every row".format)[0], rows)
    kinds: Any = row_kinds
    if not isinstance(row_kinds, (pa.Array, pa.ChunkedArray)):
        try:
            kinds = pa.array(row_kinds)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise InvalidData(table, "row_kinds", f"the row kinds cannot be read: {error}") from error
    if len(kinds) != rows:
        raise InvalidData(table, "row_kinds", f"{len(kinds)} row kinds for {rows} rows")
    return kinds_from_text(kinds, table, row_name=ALL.row)


def kinds_of_column(table: pa.Table, name: str, where: str, numbering: RowNumbering) -> pa.Array:
    """Return row kinds (int8) from a text column with "+I", "-U", "+U" or "-D", in upper or lower case.

    Args:
        table: incoming rows.
        name: name of the column, the value of the option `rowkind.field`.
        where: name of the table, for errors.
        numbering: names of the rows in errors.

    Raises:
        InvalidData: a value is null or not a row kind.
        InvalidOption: the column does not exist or does not hold text.

    Source: Paimon `RowKindGenerator`.
    """
    if name not in table.column_names:
        raise InvalidOption("rowkind.field", name, f"one of the columns {', '.join(table.column_names)}", where)
    column = table.column(name)
    if not pa.types.is_string(column.type):
        raise InvalidOption("rowkind.field", name, f"a text column, and this one is {column.type}", where)
    if column.null_count:
        raise InvalidData(where, name, f"{numbering.row(_first(pc.is_null(column)))}: null is not a row kind")
    return kinds_from_text(column, where, name, numbering.row, any_case=True)


_COUNTED: Final = re.compile(r"dredge\.fields\.(.+)\.count-inputs")


def counted_columns(schema: TableSchema) -> tuple[str, ...]:
    """Return the columns with aggregate function `count`; other Paimon engines read and merge them as sums."""
    flags = ((_COUNTED.fullmatch(key), value) for key, value in schema.options.items())
    return tuple(name.group(1) for name, value in flags if name is not None and value.strip().lower() == "true")


def counted(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return a table whose ``columns`` (aggregate function `count`) have 1 for each value and 0 for each null.

    Retract rows have the same numbers, which the merge subtracts.
    """
    for name in columns:
        place = table.schema.get_field_index(name)
        kind = table.schema.field(name).type
        table = table.set_column(place, table.schema.field(name), pc.is_valid(table.column(name)).cast(kind))
    return table


def _column(
    data: pa.Table, names: frozenset[str], field: DataField, table: str, numbering: RowNumbering
) -> pa.ChunkedArray:
    target = to_arrow(field.type)
    if field.name in names:
        column = fit_column(data.column(field.name), field, table, numbering)
        if field.default is None or not field.type.nullable or not column.null_count:
            return column
        return pc.if_else(pc.is_null(column), default_value(field, table), column)
    if field.default is not None:
        return pa.chunked_array([pa.repeat(default_value(field, table), data.num_rows)])
    if not field.type.nullable:
        raise InvalidData(table, field.name, _MISSING)
    return pa.chunked_array([pa.nulls(data.num_rows, target)])


def default_value(field: DataField, table: str) -> pa.Scalar:
    """Return a column's default value in the column's type; the schema stores it as text."""
    try:
        return cast_values(pa.array([field.default], pa.string()), _TEXT, field.type)[0]
    except CastError as error:
        raise InvalidData(table, field.name, f"the column's default cannot be used: {error}") from error


def fit_column(column: pa.ChunkedArray, field: DataField, table: str, numbering: RowNumbering) -> pa.ChunkedArray:
    """Return the values of an incoming column cast to the table's type without loss; nulls are kept.

    Raises InvalidData, which names the column and the first row that does not fit.
    """
    kind, chunks = to_arrow(field.type), []
    for chunk in column.chunks:
        try:
            fitted = chunk if chunk.type.equals(kind) else _shaped(chunk, field.type)
        except pa.ArrowException as error:
            row, reason = _first_failure(chunk, field.type, error)
            try:
                chunk.validate(full=True)
                value = shown(chunk[row].as_py(), _SHOWN)
            except pa.ArrowException:  # numbers outside of a dictionary, say: such a value must not be looked at
                value = "a broken value"
            reason_text = f"{numbering.row(row)}: {value} does not fit {to_sql(field.type)}: {reason}"
            raise InvalidData(table, field.name, reason_text) from error
        # Arrow arrays from buffers can hold text that is no UTF-8 or a time after midnight: no reader would
        # take the file.
        # A nested slice's children are whole: without a copy each piece would check all of them.
        nested = pa.types.is_nested(fitted.type)
        try:
            (fitted.take(pa.array(np.arange(len(fitted)))) if nested else fitted).validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidData(table, field.name, f"{numbering.rows(len(fitted))}: broken value: {error}") from error
        misfit = find_misfit(fitted, field.type)
        if misfit is not None:
            reason_text = f"{shown(misfit.value, _SHOWN)} does not fit {to_sql(misfit.kind)}: {misfit.reason}"
            raise InvalidData(table, field.name + misfit.path, f"{numbering.row(misfit.row)}: {reason_text}")
        chunks.append(fitted)
        numbering = numbering.after(len(chunk))
    return pa.chunked_array(chunks, kind)


def _shaped(array: pa.Array, kind: DataType) -> pa.Array:
    """Return an array cast to ``kind``; fields of ROW values are matched by name, and missing fields become null.

    Raises ArrowException for values that do not fit.
    """
    target = to_arrow(kind)
    if array.type.equals(target):
        return array
    if pa.types.is_struct(array.type) and kind.root is TypeRoot.ROW:
        unknown = {field.name for field in array.type} - {field.name for field in kind.fields}
        if unknown:
            raise pa.ArrowInvalid(f"the row has no field '{min(unknown)}'")
        places = {field.name: at for at, field in enumerate(array.type)}
        fields = [
            _shaped(array.field(places[f.name]), f.type) if f.name in places else pa.nulls(len(array), to_arrow(f.type))
            for f in kind.fields
        ]
        return struct_of(array, fields, target)
    if kind.root is TypeRoot.VARIANT:
        return _shape_variants(array, target)
    if pa.types.is_map(array.type) and pa.types.is_map(target):
        key, value = (kind.key, kind.value) if kind.key is not None else (kind.element, _COUNT)
        if key is not None and value is not None:
            array = compact(array)
            return map_of(array, _shaped(array.keys, key), _shaped(array.items, value), target)
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        if pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        if pa.types.is_list(array.type):
            array = compact(array)
            return list_of(array, _shaped(array.values, kind.element), target)
    return _cast(array, target)


def _shape_variants(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return variants with the fields of ``target``, which are matched by name.

    Raises ArrowInvalid for values other than a struct of the binary fields value and metadata.
    """
    if array.null_count == len(array) and not pa.types.is_nested(array.type):
        return pa.nulls(len(array), target)
    if isinstance(array, pa.ExtensionArray):  # Arrow's canonical type `arrow.parquet.variant`
        array = array.storage
    kind = array.type
    if not pa.types.is_struct(kind) or sorted(field.name for field in kind) != ["metadata", "value"]:
        raise pa.ArrowInvalid(
            "a VARIANT is a struct of the binary fields value and metadata in Parquet's variant encoding; Spark's "
            "parse_json encodes JSON text"
        )
    return struct_of(array, [_cast(array.field(field.name), field.type) for field in target], target)


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast values that are not nested. Raises ArrowException also where Arrow would change a value silently."""
    if pa.types.is_dictionary(array.type) and array.type.value_type in (pa.string_view(), pa.binary_view()):
        plain = pa.string() if array.type.value_type == pa.string_view() else pa.binary()
        array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(plain))  # Arrow decodes no views
    if pa.types.is_floating(target) and (pa.types.is_floating(array.type) or pa.types.is_decimal(array.type)):
        # Decimals by their digits: Arrow's own cast of them is not the nearest number.
        cast = (array.cast(pa.string()) if pa.types.is_decimal(array.type) else array).cast(target)
        if _any(pc.and_(pc.is_inf(cast), _is_finite(array))):  # Arrow rounds to infinity without a word
            raise pa.ArrowInvalid("the number is too large")
        return cast
    if pa.types.is_timestamp(array.type) and pa.types.is_date(target):
        cast = array.cast(target)
        if _any(pc.not_equal(cast.cast(array.type), array)):  # Arrow cuts the time of day off without a word
            raise pa.ArrowInvalid("it has a time of day")
        return cast
    if pa.types.is_integer(array.type) and pa.types.is_decimal(target):
        # Arrow would refuse by the type alone; only values decide.
        return array.cast(_WIDE).cast(target)
    return array.cast(target)


def _is_finite(array: pa.Array) -> pa.Array:
    return pc.is_valid(array) if pa.types.is_decimal(array.type) else pc.is_finite(array)


def _any(mask: pa.Array) -> bool:
    return bool(np.asarray(mask.fill_null(False), bool).any())  # noqa: FBT003


def _first_failure(array: pa.Array, kind: DataType, error: Exception) -> tuple[int, str]:
    """Return the position of the first row that cannot be cast, and the reason.

    The row is found by bisection: log2(n) casts instead of a loop over rows.
    """
    start, length = 0, len(array)
    while length > 1:
        half = length // 2
        try:
            _shaped(array.slice(start, half), kind)
            start, length = start + half, length - half
        except pa.ArrowException as inner:
            length, error = half, inner
    return start, str(error).splitlines()[0]


def _first(mask: pa.Array | pa.ChunkedArray) -> int:
    return int(np.argmax(np.asarray(mask)))
