"""The IO manager with each library of frames, and partitioned assets."""

import datetime as dt
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dagster_paimon import PaimonIOManager
from dagster_paimon.partitions import condition_of, condition_text
from lsm_core import Catalog, Table

pytestmark = pytest.mark.filterwarnings("ignore:.*backfill_policy.*in beta")

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-05")


def manager(folder: Path, **settings: Any) -> PaimonIOManager:
    return PaimonIOManager(warehouse=str(folder), database="shop", **settings)


def run(folder: Path, *assets: Any, settings: dict[str, Any] | None = None, **more: Any) -> dg.ExecuteInProcessResult:
    return dg.materialize(list(assets), resources={"io_manager": manager(folder, **settings or {})}, **more)


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    found = Catalog(str(folder)).table(name).to_arrow()
    return found.sort_by([(column, "ascending") for column in found.column_names]).to_pylist()


ROWS = {"id": [1, 2], "name": ["ann", None]}
FRAMES = {
    "arrow": lambda: pa.table(ROWS),
    "batch": lambda: pa.record_batch(ROWS),
    "reader": lambda: pa.table(ROWS).to_reader(),
    "pandas": lambda: pd.DataFrame(ROWS),
    "polars": lambda: pl.DataFrame(ROWS),
    "lazy": lambda: pl.LazyFrame(ROWS),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_frame_is_written_and_written_again(tmp_path: Path, kind: str) -> None:
    @dg.asset
    def people() -> Any:
        return FRAMES[kind]()

    for _ in range(2):  # a second run replaces the rows of the first
        result = run(tmp_path, people)
        assert rows(tmp_path, "shop.people") == [{"id": 1, "name": "ann"}, {"id": 2, "name": None}]
    (event,) = result.asset_materializations_for_node("people")
    metadata = event.metadata
    assert metadata["dagster/table_name"].value == "shop.people"
    assert metadata["dagster/row_count"].value == 2
    assert [column.name for column in metadata["dagster/column_schema"].value.columns] == ["id", "name"]
    assert metadata["dagster/uri"].value.endswith("shop.db/people")
    assert metadata["paimon/snapshot_id"].value == 2


@pytest.mark.parametrize(
    ("annotation", "count"),
    [
        (pa.Table, lambda value: value.num_rows),
        (pa.RecordBatchReader, lambda value: value.read_all().num_rows),
        (pd.DataFrame, len),
        (pl.DataFrame, lambda value: value.height),
        (pl.LazyFrame, lambda value: value.collect().height),
        (Table, lambda value: value.to_arrow().num_rows),
        (Any, lambda value: value.num_rows),
    ],
)
def test_an_input_has_the_annotated_form(tmp_path: Path, annotation: Any, count: Any) -> None:
    @dg.asset
    def people() -> pa.Table:
        return pa.table(ROWS)

    def total(people: Any) -> pa.Table:
        kind = annotation if annotation is not Any else pa.Table
        assert isinstance(people, kind)
        return pa.table({"n": [count(people)]})

    total.__annotations__["people"] = annotation
    assert run(tmp_path, people, dg.asset(total)).success
    assert rows(tmp_path, "shop.total") == [{"n": 2}]


def test_an_unknown_annotation_names_the_known_ones(tmp_path: Path) -> None:
    @dg.asset
    def people() -> pa.Table:
        return pa.table(ROWS)

    @dg.asset
    def total(people: list) -> pa.Table:  # type: ignore[type-arg]
        return pa.table({"n": [len(people)]})

    with pytest.raises(TypeError) as caught:
        run(tmp_path, people, total)
    assert re.search(r"shop\.people cannot be read as .*[Ll]ist.*polars\.LazyFrame", str(caught.value))


def test_rows_that_are_no_frame_are_refused(tmp_path: Path) -> None:
    @dg.asset
    def people() -> Any:
        return 5

    with pytest.raises(TypeError, match=r"builtins\.int cannot be written"):
        run(tmp_path, people)
    assert not (tmp_path / "shop.db").exists()


def test_columns_of_an_input_and_key_prefix_as_database(tmp_path: Path) -> None:
    @dg.asset(key_prefix=["lake", "crm"])
    def people() -> pa.Table:
        return pa.table(ROWS)

    @dg.asset(
        ins={"people": dg.AssetIn(dg.AssetKey(["lake", "crm", "people"]), metadata={"columns": ["name"]})},
        metadata={"schema": "marts"},
    )
    def names(people: pa.Table) -> pa.Table:
        return people

    run(tmp_path, people, names)
    assert Catalog(str(tmp_path)).list_databases() == ["crm", "marts"]
    assert rows(tmp_path, "marts.names") == [{"name": "ann"}, {"name": None}]


def test_upsert_append_and_an_asset_that_writes_itself(tmp_path: Path) -> None:
    @dg.asset(metadata={"primary_keys": "id", "mode": "upsert", "table_options": {"bucket": 1}})
    def keyed() -> pa.Table:
        return pa.table(ROWS)

    @dg.asset(metadata={"mode": "append"})
    def log() -> pa.Table:
        return pa.table(ROWS)

    @dg.asset(deps=[keyed])
    def own() -> None:
        Catalog(str(tmp_path)).table("shop.keyed").write([{"id": 2, "name": "bob"}])

    for _ in range(2):
        run(tmp_path, keyed, log, own)
    assert rows(tmp_path, "shop.keyed") == [{"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}]
    assert Catalog(str(tmp_path)).table("shop.keyed").options["bucket"] == "1"
    assert len(rows(tmp_path, "shop.log")) == 4


@pytest.mark.parametrize(
    ("metadata", "message"),
    [({"mode": "upsert"}, "no primary key"), ({"mode": "replace"}, "must be one of overwrite, append, upsert")],
)
def test_modes_that_cannot_be_used(tmp_path: Path, metadata: dict[str, Any], message: str) -> None:
    @dg.asset(metadata=metadata)
    def people() -> pa.Table:
        return pa.table(ROWS)

    with pytest.raises(dg.DagsterInvalidDefinitionError, match=message):
        run(tmp_path, people)


def test_new_columns_need_merge_schema(tmp_path: Path) -> None:
    versions = [pa.table(ROWS), pa.table({**ROWS, "age": [1, 2]})]

    @dg.asset
    def people() -> pa.Table:
        return versions.pop(0)

    run(tmp_path, people)
    from lsm_core.errors import ColumnNotFound

    with pytest.raises(ColumnNotFound, match="age"):
        run(tmp_path, people)
    versions.append(pa.table({**ROWS, "age": [1, 2]}))
    run(tmp_path, people, settings={"merge_schema": True})
    assert [row["age"] for row in rows(tmp_path, "shop.people")] == [1, 2]


def daily(kind: pa.DataType) -> Any:
    """Return an asset whose partition column has a type; each run returns one row per partition."""

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    def visits(context: dg.AssetExecutionContext) -> pa.Table:
        days = [dt.date.fromisoformat(key) for key in context.partition_keys]
        return pa.table({"day": pa.array([str(day) for day in days]).cast(kind), "n": [day.day for day in days]})

    return visits


@pytest.mark.parametrize("kind", [pa.string(), pa.date32(), pa.timestamp("us")])
def test_a_partition_is_replaced_alone_and_read_alone(tmp_path: Path, kind: pa.DataType) -> None:
    visits = daily(kind)

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    def doubled(visits: pl.DataFrame) -> pl.DataFrame:
        return visits.with_columns(n=pl.col("n") * 2)

    for key in ("2024-01-01", "2024-01-02", "2024-01-01"):
        run(tmp_path, visits, doubled, partition_key=key)
    assert [row["n"] for row in rows(tmp_path, "shop.visits")] == [1, 2]
    assert [row["n"] for row in rows(tmp_path, "shop.doubled")] == [2, 4]


def test_rows_outside_the_partition_are_refused(tmp_path: Path) -> None:
    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
    def visits() -> pa.Table:
        return pa.table({"day": ["2024-01-01", "2024-01-02"], "n": [1, 2]})

    with pytest.raises(Exception, match="lie outside") as caught:
        run(tmp_path, visits, partition_key="2024-01-01")
    assert "2024-01-02" in str(caught.value)
    assert rows(tmp_path, "shop.visits") == []


class TestRanges:
    """One run of several partitions."""

    TAGS = {"dagster/asset_partition_range_start": "2024-01-01", "dagster/asset_partition_range_end": "2024-01-03"}

    def asset(self, days: list[str]) -> Any:
        @dg.asset(
            partitions_def=DAYS, metadata={"partition_expr": "day"}, backfill_policy=dg.BackfillPolicy.single_run()
        )
        def visits() -> pa.Table:
            return pa.table({"day": pa.array(days, pa.string()), "n": pa.array(range(len(days)), pa.int64())})

        return visits

    def test_partitions_without_new_rows_are_emptied(self, tmp_path: Path) -> None:
        run(tmp_path, self.asset(["2024-01-04"]), partition_key="2024-01-04")
        run(tmp_path, self.asset(["2024-01-01", "2024-01-02", "2024-01-03"]), tags=self.TAGS)
        run(tmp_path, self.asset(["2024-01-03", "2024-01-01"]), tags=self.TAGS)
        assert rows(tmp_path, "shop.visits") == [
            {"day": "2024-01-01", "n": 1},
            {"day": "2024-01-03", "n": 0},
            {"day": "2024-01-04", "n": 0},
        ]

    def test_rows_of_another_partition_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(dg.Failure, match=r"2024-01-04.*nothing is written"):
            run(tmp_path, self.asset(["2024-01-01", "2024-01-04"]), tags=self.TAGS)
        assert rows(tmp_path, "shop.visits") == []


def test_two_dimensions(tmp_path: Path) -> None:
    parts = dg.MultiPartitionsDefinition({"when": DAYS, "where": dg.StaticPartitionsDefinition(["it's", "b"])})

    @dg.asset(partitions_def=parts, metadata={"partition_expr": {"when": "day", "where": "city"}})
    def visits(context: dg.AssetExecutionContext) -> pa.Table:
        keys = context.partition_key.keys_by_dimension
        day = dt.date.fromisoformat(keys["when"])
        return pa.table({"day": pa.array([day]), "city": [keys["where"]], "n": [day.day]})

    @dg.asset(partitions_def=parts, metadata={"partition_expr": {"when": "day", "where": "city"}})
    def copied(visits: pa.Table) -> pa.Table:
        assert visits.num_rows == 1
        return visits

    for when, where in (("2024-01-01", "it's"), ("2024-01-02", "b"), ("2024-01-01", "it's")):
        run(tmp_path, visits, copied, partition_key=dg.MultiPartitionKey({"when": when, "where": where}))
    assert Catalog(str(tmp_path)).table("shop.copied").partition_keys == ("day", "city")
    assert [(row["city"], row["n"]) for row in rows(tmp_path, "shop.copied")] == [("it's", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [({}, "set it to '<column>'"), ({"partition_expr": {"a": "b"}}, "set it to '<column>'")],
)
def test_a_partitioned_asset_names_its_column(tmp_path: Path, metadata: dict[str, Any], message: str) -> None:
    @dg.asset(partitions_def=DAYS, metadata=metadata)
    def visits() -> pa.Table:
        return pa.table({"day": ["2024-01-01"]})

    with pytest.raises(dg.DagsterInvalidDefinitionError, match=message):
        run(tmp_path, visits, partition_key="2024-01-01")


def test_the_column_must_be_a_partition_column_of_an_existing_table(tmp_path: Path) -> None:
    Catalog(str(tmp_path)).create_table(
        "shop.visits", pa.schema([("day", pa.string()), ("n", pa.int64())]), create_database=True
    )
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=r"partitioned by \[\], not by \['day'\]"):
        run(tmp_path, daily(pa.string()), partition_key="2024-01-01")


def test_a_key_that_does_not_fit_its_column(tmp_path: Path) -> None:
    Catalog(str(tmp_path)).create_table(
        "shop.visits", pa.schema([("day", pa.int32()), ("n", pa.int64())]), partition_keys=["day"], create_database=True
    )
    with pytest.raises(ValueError, match="'2024-01-01' is no value of the column day of type int32"):
        run(tmp_path, daily(pa.string()), partition_key="2024-01-01")


def test_an_unpartitioned_asset_replaces_all_partitions_of_its_table(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "shop.people",
        pa.schema([("id", pa.int64()), ("name", pa.string())]),
        partition_keys=["id"],
        create_database=True,
    )
    table.write([{"id": 9, "name": "old"}])

    @dg.asset
    def people() -> pa.Table:
        return pa.table(ROWS)

    run(tmp_path, people)
    assert [row["id"] for row in rows(tmp_path, "shop.people")] == [1, 2]


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("reader", [False, True])
def test_no_mode_writes_rows_outside_the_partition(tmp_path: Path, mode: str, reader: bool) -> None:
    versions = [pa.table({"n": [1]}), pa.table({"day": ["2024-01-01", "2024-01-02"], "n": [1, 2]})]

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day", "mode": mode, "primary_keys": ["day", "n"]})
    def visits() -> Any:
        return versions[-1].to_reader(1) if reader else versions[-1]

    with pytest.raises(dg.Failure, match=r"2024-01-02.*nothing is written"):
        run(tmp_path, visits, partition_key="2024-01-01")
    assert rows(tmp_path, "shop.visits") == []
    versions.pop()
    with pytest.raises(dg.Failure, match=r"shop\.visits: .* no partition column day"):
        run(tmp_path, visits, partition_key="2024-01-01")


def test_an_asset_without_partitions_reads_all_of_years_of_hours(tmp_path: Path) -> None:
    hours = dg.HourlyPartitionsDefinition("2022-01-01-00:00", end_date="2023-01-01-00:00")

    @dg.asset(partitions_def=hours, metadata={"partition_expr": "hour"})
    def visits(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"hour": [context.partition_key], "n": [1]})

    @dg.asset
    def total(visits: pl.DataFrame | None) -> pa.Table:
        assert visits is not None
        return pa.table({"n": [visits["n"].sum()]})

    instance = dg.DagsterInstance.ephemeral()
    for key in ("2022-01-01-00:00", "2022-12-31-23:00"):
        run(tmp_path, visits, partition_key=key, instance=instance)
    run(tmp_path, visits, total, selection=[total], instance=instance)
    assert rows(tmp_path, "shop.total") == [{"n": 2}]


def test_the_first_partition_of_an_asset_that_depends_on_its_previous_one_reads_nothing(tmp_path: Path) -> None:
    previous = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    counts = []

    @dg.asset(
        partitions_def=DAYS,
        metadata={"partition_expr": "day"},
        ins={"before": dg.AssetIn(dg.AssetKey("balance"), partition_mapping=previous)},
    )
    def balance(context: dg.AssetExecutionContext, before: pa.Table | None) -> pa.Table:
        counts.append(None if before is None else before.num_rows)
        return pa.table({"day": [context.partition_key], "n": [1]})

    for key in ("2024-01-01", "2024-01-02", "2024-01-01"):
        run(tmp_path, balance, partition_key=key)
    assert counts == [None, 1, 0]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"mode": "upsert"}, "set the metadata 'primary_keys'"),
        ({"mode": "replace"}, "must be one of"),
        ({"primary_keys": 5}, "must be a list of names"),
        ({"table_options": "bucket=1"}, "must have values by option"),
    ],
)
def test_wrong_metadata_leaves_no_table_behind(tmp_path: Path, metadata: dict[str, Any], message: str) -> None:
    @dg.asset(metadata=metadata)
    def people() -> pa.Table:
        return pa.table(ROWS)

    with pytest.raises(dg.DagsterInvalidDefinitionError, match=message):
        run(tmp_path, people)
    assert not (tmp_path / "shop.db").exists(), "a table without a key could not be upserted later"


def test_conditions_select_exactly_the_partitions() -> None:
    grid = [{"day": day, "city": city} for day in (1, 2) for city in ("a", "it's")]
    assert condition_of(grid, ["day", "city"]) == [[("day", "in", [1, 2]), ("city", "in", ["a", "it's"])]]
    assert condition_text(grid) == "(`day` IN (1, 2) AND `city` IN ('a', 'it''s'))"
    assert condition_of(grid[:3], ["day", "city"]) == [
        [("city", "in", ["a"]), ("day", "in", [1, 2])],
        [("city", "in", ["it's"]), ("day", "in", [1])],
    ]
    assert condition_of([], ["day"]) == [[("day", "in", [])]]
