"""Statistics never exclude a value that is there: bounds hold, whatever the mode, the cut or the row groups."""

from __future__ import annotations

import io
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.errors import InvalidOption
from lsm_core.files.formats.parquet_footer import footer_values
from lsm_core.files.formats.stats_collector import ColumnStatsCollector
from lsm_core.format import EMPTY_STATS, DataField, TableSchema, decode_row, decode_rows
from lsm_core.format.schema import append_arrow_schema, kv_arrow_schema
from lsm_core.format.stats import (
    ColumnStats,
    StatsMode,
    key_stats,
    modes_of,
    stats_of_columns,
    truncate_max,
    truncate_min,
    value_stats,
)
from lsm_core.options import TableOptions
from lsm_core.types import DataType, TypeRoot, parse
from tests.format.strategies import SIMPLE_TYPES, values
from tests.format.test_binary_row import columns_of
from tests.support.parquet_files import footer_of
from tests.support.samples import examples

_UNBOUNDED = {TypeRoot.BINARY, TypeRoot.VARBINARY}


def schema_of(types: list[DataType], **options: str) -> TableSchema:
    fields = tuple(DataField(i, f"c{i}", kind) for i, kind in enumerate(types))
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return TableSchema(0, fields, len(fields), (), (), named)


def options_of(schema: TableSchema) -> TableOptions:
    return TableOptions(schema.options, "db.t")


def found_in(table: pa.Table, rows: int = 1024) -> dict[str, ColumnStats]:
    """What a Parquet writer knows of ``table``: its footer, and the floating point columns as they passed."""
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=rows, store_decimal_as_integer=True)
    seen = ColumnStatsCollector(field.name for field in table.schema if pa.types.is_floating(field.type))
    for start in range(0, table.num_rows, rows):
        seen.add(table.slice(start, rows))
    return {**footer_values(footer_of(sink.getvalue()), table.schema), **seen.values()}


@st.composite
def typed_rows(draw: st.DrawFn) -> tuple[list[DataType], list[list[Any]]]:
    kinds = draw(st.lists(SIMPLE_TYPES, min_size=1, max_size=3))
    rows = st.tuples(*(st.none() | values(kind) for kind in kinds)).map(list)
    return kinds, draw(st.lists(rows, min_size=1, max_size=8))


@settings(max_examples=examples(100))
@given(typed_rows(), st.integers(1, 4), st.sampled_from(["full", "truncate(3)", "counts"]))
def test_bounds_hold_over_row_groups_and_modes(
    case: tuple[list[DataType], list[list[Any]]], rows_per_group: int, mode: str
) -> None:
    kinds, rows = case
    schema = schema_of(kinds, metadata__stats_mode=mode)
    columns = columns_of(kinds, rows)
    table = pa.Table.from_arrays(columns, schema=append_arrow_schema(schema))
    stats, names = value_stats(found_in(table, rows_per_group), schema, options_of(schema))
    assert names is None
    assert stats.null_counts == tuple(column.null_count for column in columns)
    lows, highs = (decode_rows(pa.array([blob]), kinds) for blob in (stats.min_values, stats.max_values))
    for kind, column, low, high in zip(kinds, columns, lows, highs, strict=True):
        present = [value for value in column.to_pylist() if value is not None]
        if mode == "counts" or kind.root in _UNBOUNDED or not present:
            assert low.null_count == high.null_count == 1
            continue
        if low.null_count:
            assert mode != "full"
            assert high.null_count == 1
            continue
        assert low[0].as_py() <= min(present)
        assert high[0].as_py() >= max(present)
        if mode == "full":
            assert (low[0].as_py(), high[0].as_py()) == (min(present), max(present))


def test_full_statistics_of_columns_are_those_of_the_footer() -> None:
    kinds = [parse("DECIMAL(30, 2)"), parse("STRING"), parse("TIMESTAMP(6)"), parse("DATE"), parse("BYTES")]
    rows: list[list[Any]] = [
        [Decimal("-5.00"), "b", datetime(1950, 1, 1, 0, 0, 0, 1), date(2000, 1, 1), b"x"],
        [Decimal("1e20"), None, datetime(2050, 1, 1), None, None],
        [Decimal("-1e20"), "ä", None, date(1900, 1, 1), b"y"],
    ]
    schema = schema_of(kinds, metadata__stats_mode="full")
    columns = columns_of(kinds, rows)
    table = pa.Table.from_arrays(columns, schema=append_arrow_schema(schema))
    expected = stats_of_columns(columns, kinds)
    assert value_stats(found_in(table, 1), schema, options_of(schema))[0] == expected
    assert decode_row(expected.min_values, kinds)[0] == Decimal("-1e20")
    assert expected.null_counts == (0, 1, 1, 1, 1)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_HIGH = st.text(st.sampled_from("\U0010ffff\ud7ff\ue000a"), max_size=6).map(
    lambda t: t.encode("utf-8", "ignore").decode()
)


@given(_TEXT | _HIGH, st.integers(1, 6))
def test_cut_texts_enclose_the_text(text: str, length: int) -> None:
    low, high = truncate_min(text, length), truncate_max(text, length)
    assert len(low) <= length
    assert low.encode() <= text.encode()
    if high is not None:
        assert len(high) <= max(length, len(text) if len(text) <= length else 0)
        assert high.encode() >= text.encode()
    else:
        assert set(text[:length]) == {"\U0010ffff"}


def test_cutting_raises_the_last_code_point_that_can_be_raised() -> None:
    assert truncate_max("abcdef", 3) == "abd"
    assert truncate_max("ab\U0010ffffx", 3) == "ac"
    assert truncate_max("\U0010ffff\U0010ffff", 1) is None
    assert truncate_max("abc", 3) == "abc"
    assert truncate_max("\ud7ffx", 1) == "\ue000"


def test_a_text_whose_maximum_cannot_be_raised_has_no_bounds_at_all() -> None:
    schema = schema_of([parse("STRING")], metadata__stats_mode="truncate(1)")
    table = pa.table({"c0": ["a", "\U0010ffff\U0010ffff", None]})
    stats, _ = value_stats(found_in(table), schema, options_of(schema))
    assert (decode_row(stats.min_values, [parse("STRING")]), stats.null_counts) == ((None,), (1,))


def test_nan_is_the_greatest_and_zeros_keep_their_signs() -> None:
    kinds = [parse("DOUBLE"), parse("FLOAT"), parse("DOUBLE"), parse("DOUBLE")]
    schema = schema_of(kinds)
    nan = float("nan")
    table = pa.table(
        {
            "c0": [1.0, nan, None],
            "c1": pa.array([0.0, -0.0, 2.0], pa.float32()),
            "c2": [nan, nan, nan],
            "c3": [-1.0, -0.0, None],
        }
    )
    for rows in (1, 2, 3):
        stats, _ = value_stats(found_in(table, rows), schema, options_of(schema))
        low, high = decode_row(stats.min_values, kinds), decode_row(stats.max_values, kinds)
        assert repr(low) == "(1.0, -0.0, nan, -1.0)"
        assert repr(high) == "(nan, 2.0, nan, -0.0)"
        assert stats.null_counts == (1, 0, 0, 1)


@settings(max_examples=examples(60))
@given(typed_rows(), st.integers(1, 4))
def test_what_is_gathered_is_what_full_statistics_say(
    case: tuple[list[DataType], list[list[Any]]], rows_per_group: int
) -> None:
    kinds, rows = case
    schema = schema_of(kinds, metadata__stats_mode="full")
    columns = columns_of(kinds, rows)
    table = pa.Table.from_arrays(columns, schema=append_arrow_schema(schema))
    seen = ColumnStatsCollector(table.column_names)
    for start in range(0, table.num_rows, rows_per_group):
        seen.add(table.slice(start, rows_per_group))
    assert value_stats(seen.values(), schema, options_of(schema))[0] == stats_of_columns(columns, kinds)


def test_dense_statistics_name_the_columns_they_hold() -> None:
    kinds = [parse("INT"), parse({"type": "ARRAY", "element": "INT"}), parse("STRING"), parse("INT")]
    table = pa.table({"c0": pa.array([1], pa.int32()), "c1": [[1]], "c2": ["x"], "c3": pa.array([None], pa.int32())})
    schema = schema_of(kinds, fields__c2__stats_mode="none")
    stats, names = value_stats(found_in(table), schema, options_of(schema))
    assert names == ("c0", "c3")
    assert decode_row(stats.min_values, [kinds[0], kinds[3]]) == (1, None)
    none = schema_of(kinds, metadata__stats_mode="none")
    assert value_stats(found_in(table), none, options_of(none)) == (EMPTY_STATS, ())
    sparse = schema_of(kinds, fields__c2__stats_mode="none", metadata__stats_dense_store="false")
    stats, names = value_stats(found_in(table), sparse, options_of(sparse))
    assert names is None
    assert stats.null_counts == (0, None, None, 1)
    assert decode_row(stats.min_values, kinds) == (1, None, None, None)


def test_modes_by_level_by_field_and_by_position() -> None:
    kinds = [parse("INT")] * 3
    schema = schema_of(
        kinds,
        metadata__stats_mode__per__level="0:none,5:full",
        fields__c1__stats_mode="counts",
        metadata__stats_keep_first_n_columns="2",
    )
    none, counts, full = StatsMode.parse("none"), StatsMode.parse("counts"), StatsMode.parse("full")
    assert modes_of(schema, options_of(schema), 5) == [full, counts, none]
    assert modes_of(schema, options_of(schema), 0) == [none, counts, none]
    assert modes_of(schema, options_of(schema), 1)[0] == StatsMode(counts=True, bounds=True, length=16)
    for text in ("truncate(0)", "truncate()", "everything"):
        with pytest.raises(InvalidOption, match="truncate"):
            StatsMode.parse(text)


def test_key_statistics_come_from_either_place_and_are_cut_at_128() -> None:
    kinds = (parse("STRING NOT NULL"), parse("BIGINT"))
    fields = (DataField(0, "k", kinds[0]), DataField(1, "v", kinds[1]))
    schema = TableSchema(0, fields, 1, (), ("k",), {})
    long = "k" * 300
    base = {"_SEQUENCE_NUMBER": pa.array([0]), "_VALUE_KIND": pa.array([0], pa.int8())}
    rows = {"k": pa.array([long]), "v": pa.array([1])}
    fat = pa.table({"_KEY_k": pa.array([long]), **base, **rows}, schema=kv_arrow_schema(schema))
    thin = pa.table({**base, **rows}, schema=kv_arrow_schema(schema, thin=True))
    stats = key_stats(found_in(fat), schema)
    assert stats == key_stats(found_in(thin), schema)
    assert decode_row(stats.min_values, [kinds[0]]) == ("k" * 128,)
    assert decode_row(stats.max_values, [kinds[0]]) == ("k" * 127 + "l",)


def test_a_file_of_no_rows_has_no_bounds() -> None:
    schema = schema_of([parse("INT")])
    stats, _ = value_stats(found_in(pa.table({"c0": pa.array([], pa.int32())})), schema, options_of(schema))
    assert (decode_row(stats.min_values, [parse("INT")]), stats.null_counts) == ((None,), (0,))
