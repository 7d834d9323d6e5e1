"""Rows as people have them go in and out: pandas, Polars, DuckDB, lists of dictionaries, Arrow streams, lazy scans."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

from lsm_core import Catalog, SchemaChange, Table
from lsm_core.errors import (
    ColumnNotFound,
    InvalidData,
    InvalidFilter,
    InvalidOption,
    InvalidSchema,
    SnapshotNotFound,
    UnsupportedFeature,
)

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("s", pa.string())])
NAN = float("nan")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """An empty table with the key `id`."""
    return Catalog(tmp_path).create_table("d.t", COLUMNS, primary_keys=["id"], create_database=True)


@pytest.fixture
def filled(table: Table) -> Table:
    """Four rows, among them NaN and nulls."""
    table.write({"id": [1, 2, 3, 4], "v": [1.0, NAN, 3.0, None], "s": ["a", "b", "c", None]})
    return table


FRAME = pd.DataFrame({"id": [1, 2, 3], "v": [0.5, 1.5, 2.5], "s": ["x", "y", "z"]})


@pytest.mark.parametrize(
    ("rows", "ids"),
    [
        (FRAME, [1, 2, 3]),
        (FRAME[FRAME.v > 1], [2, 3]),
        (FRAME.set_index("id"), [1, 2, 3]),
        (FRAME.set_index("id", drop=False), [1, 2, 3]),
        (FRAME.set_index(["id", "s"]), [1, 2, 3]),
        (
            FRAME.set_index(pd.MultiIndex.from_arrays([FRAME.id, [7, 8, 9]], names=["id", None])).drop(columns="id"),
            [1, 2, 3],
        ),
        (pl.DataFrame(FRAME), [1, 2, 3]),
        (pl.LazyFrame(pl.DataFrame(FRAME)).filter(pl.col("v") > 1), [2, 3]),
        ([{"id": 5, "v": 1.0}, {"s": "late", "id": 6}], [5, 6]),
        (pa.Table.from_pandas(FRAME).to_batches(), [1, 2, 3]),
        (pads.dataset(pa.Table.from_pandas(FRAME)), [1, 2, 3]),
        ([], []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_rows_are_written_as_people_have_them(table: Table, rows: Any, ids: list[int]) -> None:
    assert (table.write(rows) is None) is (not ids)
    assert sorted(table.to_arrow(["id"])["id"].to_pylist()) == ids


def test_the_values_of_a_list_of_rows_arrive_and_missing_ones_are_null(table: Table) -> None:
    table.write([{"id": 1, "v": 2.5}, {"s": "x", "id": 2}])
    assert table.to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "v": 2.5, "s": None},
        {"id": 2, "v": None, "s": "x"},
    ]


@pytest.mark.parametrize(
    "rows", ["text", 5, None, [1], [{1: 2}], pl.Series([1]), iter([{"id": 1}]), [{"id": object()}]]
)
def test_what_is_no_table_is_one_error_that_says_what_to_write(table: Table, rows: Any) -> None:
    with pytest.raises(
        InvalidData, match=r"table d\.t: rows of type .* cannot be read as a table.*list of dictionaries"
    ):
        table.write(rows)
    assert table.latest_snapshot() is None


def test_a_table_and_a_scan_of_it_are_rows_for_another_one(filled: Table, tmp_path: Path) -> None:
    other = Catalog(tmp_path).create_table("d.copy", COLUMNS, primary_keys=["id"])
    other.write(filled)
    other.write(filled.scan(filter="id = 1"))
    assert other.to_arrow().num_rows == 4 and len(other.snapshots()) == 2


def test_a_table_is_an_arrow_stream_and_a_frame(filled: Table, tmp_path: Path) -> None:
    assert pa.table(filled).sort_by("id")["id"].to_pylist() == [1, 2, 3, 4]
    assert filled.to_polars(["id"], "v >= 1").to_dict(as_series=False) == {"id": [1, 3]}
    assert filled.to_pandas(["id", "s"], filter=[("id", ">", 2)]).s.tolist() == ["c", None]
    system = Catalog(tmp_path).table("d.t$snapshots")
    assert pa.table(system)["snapshot_id"].to_pylist() == system.to_pandas()["snapshot_id"].tolist() == [1]
    assert system.scan(["snapshot_id"]).to_polars().collect().item() == 1


def test_a_relation_of_duckdb_is_rows(table: Table) -> None:
    with duckdb.connect() as connection:
        table.write(connection.sql("select 9::bigint as id, 'duck' as s"))
    assert table.to_arrow(["id", "s"]).to_pylist() == [{"id": 9, "s": "duck"}]


def test_duckdb_reads_only_what_a_query_needs(filled: Table) -> None:
    with filled.to_duckdb() as connection:
        reads_only_what_a_query_needs(filled, connection)


def reads_only_what_a_query_needs(filled: Table, connection: duckdb.DuckDBPyConnection) -> None:
    assert connection.sql("select id from t where v > 2 order by id").fetchall() == [(2,), (3,)]  # NaN is large there
    assert connection.sql("select count(*), sum(id) from t").fetchall() == [(4, 10)]
    named = filled.to_duckdb("orders", connection)
    assert named is connection and connection.sql("select s from orders where id = 1").fetchall() == [("a",)]
    filled.scan(["id"]).to_duckdb("ids", connection)
    assert connection.sql("select max(id) from ids").fetchall() == [(4,)]


CONDITIONS = [
    pl.col("v") > 2,
    pl.col("v") != 3,
    pl.col("v") == NAN,
    pl.col("v") <= NAN,
    ~(pl.col("v") < 2),
    pl.col("v").is_nan(),
    pl.col("s").is_in(["a", "c"]) & (pl.col("id") < 3),
    pl.col("s").str.contains("b|c"),
    pl.col("s").is_null(),
    pl.col("v").is_in([1.0, NAN]),
    (pl.col("id") & 1) == 1,
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_polars_answers_as_it_does_over_a_frame_of_its_own(filled: Table, condition: pl.Expr) -> None:
    lazy, frame = filled.scan().to_polars(), pl.DataFrame(filled.to_arrow())
    assert lazy.filter(condition).collect().equals(frame.filter(condition))
    assert lazy.head(2).filter(condition).collect().equals(frame.head(2).filter(condition))


def test_columns_and_filters_of_polars_reach_the_read(filled: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from lsm_core.table.lazy_scan import TableScan

    seen: list[tuple[Any, str]] = []
    read = TableScan._reader

    def watched(scan: TableScan, columns: Any, pushed: Any) -> pa.RecordBatchReader:
        seen.append((columns, str(pushed)))
        return read(scan, columns, pushed)

    monkeypatch.setattr(TableScan, "_reader", watched)
    assert filled.scan().to_polars().filter(pl.col("id") > 2).select("s").collect().height == 2
    assert seen[0][0] is not None and set(seen[0][0]) == {"id", "s"} and seen[0][1] == "(id > 2)"


def test_a_scan_reads_the_version_of_the_call_and_the_columns_of_today(filled: Table, tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.alter_table("d.t", [SchemaChange.add_column("extra", "INT")])
    wide = filled.refresh()
    scan = wide.scan(["id", "extra"], "id < 3")
    wide.write([{"id": 1, "extra": 7}])
    assert scan.to_table().to_pydict() == {"id": [1, 2], "extra": [None, None]}
    assert scan.count_rows() == 2 and scan.head(1).num_rows == 1
    assert wide.scan(["extra"]).count_rows(pads.field("extra") == 7) == 1
    assert wide.scan(snapshot_id=1).schema.names == ["id", "v", "s"]
    with pytest.raises(SnapshotNotFound):
        wide.scan(snapshot_id=99)
    with pytest.raises(ColumnNotFound):
        wide.scan(["no"])
    with pytest.raises(InvalidFilter):
        wide.scan(filter="id ==== 1")
    with pytest.raises(TypeError, match="cannot be pickled"):
        import pickle

        pickle.dumps(scan)


def test_a_scan_of_a_scan_and_readers_of_arrow_itself(filled: Table) -> None:
    scan = filled.scan(["id", "v"], "id > 1")
    assert scan.filter(pads.field("id") < 4).to_table()["id"].to_pylist() == [2, 3]
    assert scan.filter(pads.field("id") < 4).filter(pads.field("v") > 0).count_rows() == 1
    readers = (lambda: scan.sort_by("id"), lambda: scan.join(scan, "id"), lambda: pads.dataset([scan, scan]).to_table())
    for read in readers:
        with pytest.raises(UnsupportedFeature, match=r"to_table\(\).*table d\.t"):
            read()


def test_new_columns_and_wider_types_are_merged_on_write_when_asked(table: Table, tmp_path: Path) -> None:
    with pytest.raises(ColumnNotFound):
        table.write([{"id": 1, "day": dt.date(2024, 1, 1)}])
    table.write([{"id": 1, "day": dt.date(2024, 1, 1)}], schema_mode="merge")
    assert "day" not in table.to_arrow().column_names
    assert table.refresh().to_arrow(["id", "day"]).to_pylist() == [{"id": 1, "day": dt.date(2024, 1, 1)}]
    with pytest.raises(InvalidSchema, match=r"'v' of type DOUBLE cannot be merged"):
        table.write([{"id": 1, "v": "text"}], schema_mode="merge")
    with pytest.raises(InvalidOption, match="schema_mode"):
        table.write([{"id": 1}], schema_mode="overwrite")
    with pytest.raises(UnsupportedFeature, match=r"Catalog\.table"):
        Table(table.store).write([{"id": 1}], schema_mode="merge")
    assert table.copy({"snapshot.num-retained.min": "3"}).write([{"id": 2, "more": "x"}], schema_mode="merge") == 2


def test_a_table_is_made_in_one_call_and_its_arguments_are_checked(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    made = catalog.create_table(
        "shop.orders", COLUMNS, primary_keys=["id"], options={"bucket": "2"}, comment="all", create_database=True
    )
    assert (made.primary_keys, made.options["bucket"], made.schema.comment) == (("id",), "2", "all")
    for arguments, words in (
        ({"primary_keys": "id"}, "primary_keys must be a list"),
        ({"partition_keys": "s"}, "partition_keys must be a list"),
        ({"options": "x"}, "options must be a mapping"),
    ):
        with pytest.raises(InvalidSchema, match=words):
            catalog.create_table("new.t", COLUMNS, create_database=True, **arguments)
    with pytest.raises(UnsupportedFeature):
        catalog.create_table("new.t", COLUMNS, options={"type": "object-table"}, create_database=True)
    with pytest.raises(InvalidSchema, match=r"must be a Schema or a pyarrow\.Schema, not dict"):
        catalog.create_table("new.t", {"id": "INT"}, create_database=True)  # type: ignore[arg-type]
    assert catalog.list_databases() == ["shop"]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("v > 1 and ID in (1, 2, 3)", [3]),
        ("(v > 1 or s = 'a') and not id = 3", [1]),
        ("s like 'a%'", [1]),
        ("s LIKE '%b%' OR v IS NULL", [2, 4]),
        ("s not like 'a%'", [2, 3]),
        ("not v < 2", [2, 3]),
        ("not (id < 2 or s is null)", [2, 3]),
        ("v between 1 and 3", [1, 3]),
        ("not (v between 1.5 and 3)", [1, 2]),
        ("id not between 2 and 3", [1, 4]),
        ("not id not between 2 and 3", [2, 3]),
        ("not s = null", []),
        ("not v > null", []),
        ("id <> 1 and (id = 2 or id = 3) and (s = 'b' or s = 'c')", [2, 3]),
    ],
)
def test_filters_are_sql_text_too(filled: Table, condition: str, ids: list[int]) -> None:
    assert filled.to_arrow(["id"], condition)["id"].to_pylist() == ids
    assert sum(batch.num_rows for batch in filled.to_batches(filter=condition)) == len(ids)
    assert filled.incremental(0, 1, filter=condition).num_rows == len(ids)


def test_text_filters_delete_and_update(filled: Table) -> None:
    filled.update("id = 3 or id = 1", {"s": "new"})
    filled.delete("s = 'new' and id < 2")
    assert filled.to_arrow(["id", "s"]).to_pylist() == [
        {"id": 2, "s": "b"},
        {"id": 3, "s": "new"},
        {"id": 4, "s": None},
    ]


def test_many_alternatives_are_an_expression_and_deep_ones_an_error(filled: Table) -> None:
    wide = " and ".join(f"(id = {number} or s = 'b' or v > 2)" for number in range(12))
    assert filled.to_arrow(["id"], wide)["id"].to_pylist() == [2, 3]
    unfit = ("v < 1e400", "v in (1e400, 1)", f"v > 1{'0' * 400}", f"id = 1{'0' * 5000}", f"id = 1E{'9' * 20}")
    for wrong in ("(" * 200 + "id = 1" + ")" * 200, "", "id = 1; drop", "v like 'x'", "id = 'x'", "id = other", *unfit):
        with pytest.raises(InvalidFilter, match=r"table d\.t"):
            filled.to_arrow(filter=wrong)


def test_values_that_arrow_would_spoil_without_a_word_are_refused(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("f", pa.float32()), ("d", pa.date32()), ("s", pa.string())])
    table = Catalog(tmp_path).create_table("d.t", columns, primary_keys=["id"], create_database=True)
    for rows, words in (
        ([{"id": 1, "f": 1e300}], r"column 'f'.*row 0 .*too large"),
        ([{"id": 1, "d": dt.datetime(2024, 1, 1, 5)}], r"column 'd'.*row 0 .*time of day"),
        ([{"id": 2**70}], "cannot be read as a table"),
        (pl.DataFrame({"id": [1], "s": [object()]}), "'s' has Python objects"),
    ):
        with pytest.raises(InvalidData, match=words):
            table.write(rows)
    with pytest.raises(InvalidSchema, match="has only nulls"):
        table.write([{"id": 1, "new": None}], schema_mode="merge")
    assert table.latest_snapshot() is None
    table.write([{"id": 1, "f": float("inf"), "d": dt.datetime(2024, 1, 1)}])
    table.write(pl.DataFrame({"id": [2], "s": pl.Series(["a"], dtype=pl.Enum(["a"]))}))
    assert table.to_arrow(["id", "s"]).to_pylist() == [{"id": 1, "s": None}, {"id": 2, "s": "a"}]
    for nothing in ([], {}, [{}], pd.DataFrame(), pl.DataFrame(), pa.table({})):
        assert table.write(nothing) is None


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"data": [{"more": 1}]}, InvalidData),
        ({"data": [{"id": 1, "more": 1}], "overwrite": "yes"}, InvalidOption),
        ({"data": [{"id": 1, "more": 1}], "watermark": "noon"}, InvalidOption),
        ({"data": [{"id": 1, "more": {"a": None}}]}, InvalidSchema),
    ],
)
def test_a_write_that_no_row_can_pass_leaves_the_schema_as_it_was(
    table: Table, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        table.write(**arguments, schema_mode="merge")
    assert table.refresh().schema.id == 0 and table.latest_snapshot() is None


def test_nested_values_of_unknown_type_change_no_column(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table(
        "d.t", pa.schema([("id", pa.int64()), ("r", pa.struct([("a", pa.int32())]))]), create_database=True
    )
    table.write([{"id": 1, "r": {"a": None, "b": 2}}, {"id": 2, "r": {"a": None, "b": None}}], schema_mode="merge")
    merged = table.refresh()
    assert merged.to_arrow().schema.field("r").type == pa.struct([("a", pa.int32()), ("b", pa.int64())])
    merged.write([{"id": 3, "r": {"a": None, "b": None}}], schema_mode="merge")
    assert merged.refresh().schema.id == 1
    assert merged.to_arrow(["r"])["r"].to_pylist()[::2] == [{"a": None, "b": 2}, {"a": None, "b": None}]


def test_derived_frames_and_scanners_are_rows(table: Table) -> None:
    class Derived(pd.DataFrame):
        pass

    table.write(Derived(FRAME[:1]))
    table.write(pads.dataset(pa.table(FRAME[1:2])).scanner())
    table.write(pads.dataset(pa.table(FRAME[2:])))
    assert table.to_arrow(["id"])["id"].to_pylist() == [1, 2, 3]
    unions = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array(["x"])])
    with pytest.raises(InvalidData, match="column 's'"):
        table.write(pa.table({"id": pa.array([4], pa.int64()), "s": unions}))
