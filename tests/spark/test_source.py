"""The data source `dredge` and `read_table`: what they say is what a local read says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from lsm_core import Catalog, Table
from lsm_core.errors import ColumnNotFound, CorruptFile, DredgeError, SnapshotNotFound, UnsupportedFeature
from lsm_core.read import resolve
from lsm_core.spark import compact_table, expire_snapshots, read_table, write_table
from lsm_core.spark.data_source import TableSource
from lsm_core.spark.spark_columns import spark_arrow_schema
from lsm_core.types import to_sql
from tests.faults.kinds import strays
from tests.spark.tables import canonical, data_files, live_paths, make_table, rows, same
from tests.support.data import golden_names, unpack_golden
from tests.support.samples import one_in

pytestmark = pytest.mark.spark


def reader(spark: Any, root: Path, name: str = "db.t") -> Any:
    return spark.read.format("dredge").option("warehouse", str(root)).option("table", name)


def piled_up(root: Path, **more: Any) -> Any:
    """A table with three overlapping commits and some deletes."""
    table = make_table(root, **more)
    table.write(rows(list(range(300))))
    table.write(rows(list(range(100, 400)), "b"))
    table.write(rows(list(range(150, 170)), "c"), row_kinds=pa.array(["-D"] * 20))
    return table


def test_the_source_and_read_table_say_what_a_local_read_says(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    expected = table.to_arrow()
    assert expected.num_rows == 380
    assert same(expected, reader(spark, tmp_path).load().toArrow())
    assert same(expected, read_table(spark, table).toArrow())
    table.compact(full=True)
    assert same(expected, read_table(spark, table).toArrow())
    assert same(expected, reader(spark, tmp_path).load().toArrow())


def test_raw_files_go_to_sparks_own_reader_and_the_rest_through_the_merge(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    table.compact(full=True)
    only_raw = read_table(spark, table)
    assert len(only_raw.inputFiles()) == len(live_paths(table))
    table.write(rows([1, 2, 3], "new"))
    mixed = read_table(spark, table)
    assert 0 < len(mixed.inputFiles()) < len(live_paths(table))
    assert same(table.to_arrow(), mixed.toArrow())


def test_time_travel_and_chosen_columns(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    for snapshot in (1, 2, 3):
        expected = table.to_arrow(["s", "k"], snapshot_id=snapshot)
        assert same(expected, read_table(spark, table, columns=["s", "k"], snapshot_id=snapshot).toArrow())
    source = reader(spark, tmp_path).option("snapshot-id", "2").option("columns", "s, k").load()
    assert source.columns == ["s", "k"]
    assert same(table.to_arrow(["s", "k"], snapshot_id=2), source.toArrow())


READS = (
    {"scan.snapshot-id": "2"},
    {"incremental-between": "1,3"},
    {"incremental-between": "1,3", "incremental-between-scan-mode": "diff"},
    {"incremental-between": "2,2"},
)


def test_reading_options_of_the_table_are_obeyed(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    counts = set()
    for options in READS:
        expected = table.copy(options).to_arrow(["s", "k"])
        counts.add(expected.num_rows)
        source = reader(spark, tmp_path).options(**options).option("columns", "s,k").load()
        assert same(expected, source.toArrow()), options
        assert same(expected, read_table(spark, table.copy(options), columns=["s", "k"]).toArrow()), options
    assert counts == {400, 320, 280, 0}
    with pytest.raises(Exception, match="it is for reading"):
        frame = reader(spark, tmp_path).load()
        frame.write.format("dredge").option("warehouse", str(tmp_path)).option("table", "db.t").option(
            "scan.snapshot-id", "1"
        ).mode("append").save()


def test_level_0_of_a_table_with_vectors_is_seen_by_readers_that_merge(spark: Any, tmp_path: Path) -> None:
    option = "deletion-vectors.merge-on-read"
    table = make_table(tmp_path, options={"deletion-vectors.enabled": "true"})
    table.write(rows(list(range(300))))
    table.compact(full=True)
    table.write(rows(list(range(100, 120)), "b"))
    table.compact()
    table.write(rows(list(range(110, 130)), "c"), row_kinds=pa.array(["-D"] * 10 + ["+I"] * 10))
    merged = table.copy({option: "true"}).to_arrow()
    assert (table.to_arrow().num_rows, merged.num_rows) == (300, 290)
    assert same(table.to_arrow(), reader(spark, tmp_path).load().toArrow())
    assert same(merged, reader(spark, tmp_path).option(option, "true").load().toArrow())
    assert same(merged, reader(spark, tmp_path).option(option, "true").option("snapshot-id", "5").load().toArrow())
    assert same(merged, read_table(spark, table.copy({option: "true"})).toArrow())


CONDITIONS = (
    "k = 5",
    "s = 'a-1' OR k = 399",
    "d = double('NaN') OR d <= 0.0",
    "ts >= timestamp_ntz'2024-01-01 00:05:00' AND amount < 80.50",
)


def test_one_frame_answers_every_question_also_with_sparks_push_down_on(spark: Any, tmp_path: Path) -> None:
    piled_up(tmp_path)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = reader(spark, tmp_path).load()
        everything = spark.createDataFrame(frame.toArrow())
        for condition in CONDITIONS:
            found = canonical(frame.where(condition).toArrow())
            assert found == canonical(everything.where(condition).toArrow()), condition
            assert found, condition
        assert frame.count() == 380
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_filter_means_what_it_means_locally_and_prunes_buckets(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    for text in (
        '[["k", "=", 5]]',
        '[["k", ">", 100], ["s", "starts with", "b-1"]]',
        '[[["k", "=", 1]], [["s", "is null"]]]',
    ):
        plain = json.loads(text)
        local = [[tuple(c) for c in g] for g in plain] if isinstance(plain[0][0], list) else [tuple(c) for c in plain]
        expected = table.to_arrow(["k", "s"], filter=local)
        assert expected.num_rows
        source = reader(spark, tmp_path).option("filter", text).option("columns", "k,s").load()
        assert same(expected, source.toArrow())
        assert same(expected, read_table(spark, table, columns=["k", "s"], filter=local).toArrow())
    assert reader(spark, tmp_path).load().rdd.getNumPartitions() == 3
    assert reader(spark, tmp_path).option("filter", '[["k", "=", 5]]').load().rdd.getNumPartitions() == 1
    table.compact(full=True)
    assert same(table.to_arrow(filter=[("k", "<", 9)]), read_table(spark, table, filter=[("k", "<", 9)]).toArrow())


def test_sql_views_read_the_table(spark: Any, tmp_path: Path) -> None:
    piled_up(tmp_path)
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW seen USING dredge OPTIONS (warehouse '{tmp_path}', table 'db.t', columns 'k')"
    )
    assert spark.sql("SELECT count(*), max(k) FROM seen").collect()[0][:] == (380, 399)


def test_the_sink_appends_and_overwrites_as_one_commit_each(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path)
    frame = spark.createDataFrame(rows(list(range(100)))).repartition(3)
    write = frame.write.format("dredge").option("warehouse", str(tmp_path)).option("table", "db.t")
    write.mode("append").save()
    assert same(rows(list(range(100))), table.to_arrow())
    write.mode("append").save()
    assert same(rows(list(range(100))), table.to_arrow())
    small = spark.createDataFrame(rows([1, 2])).write.format("dredge")
    small.option("warehouse", str(tmp_path)).option("table", "db.t").mode("overwrite").save()
    assert same(rows([1, 2]), table.to_arrow())
    assert [s.id for s in table.snapshots()] == [1, 2, 3]


def test_tasks_of_the_sink_never_share_a_sequence_number(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]))
    frame = spark.range(0, 4000, 1, 4).selectExpr("id % 10 AS k", "id AS v")
    frame.write.format("dredge").option("warehouse", str(tmp_path)).option("table", "db.t").mode("append").save()
    expected = [3990 + k for k in range(10)]
    assert table.to_arrow().sort_by("k").column("v").to_pylist() == expected
    table.compact(full=True)
    assert table.to_arrow().sort_by("k").column("v").to_pylist() == expected


@pytest.mark.parametrize(
    "hiding", [{"deletion-vectors.enabled": "true"}, {"merge-engine": "first-row"}], ids=["vectors", "first-row"]
)
def test_an_overwrite_whose_tasks_share_buckets_is_seen_at_once(
    spark: Any, tmp_path: Path, hiding: dict[str, str]
) -> None:
    table = make_table(
        tmp_path,
        fields=pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]),
        options={**hiding, "bucket": "2"},
    )
    frame = spark.range(0, 4000, 1, 4).selectExpr("id % 1500 AS k", "id AS v")
    for scale in (1, 2):
        write = frame.selectExpr("k", f"v * {scale} AS v").write.format("dredge")
        write.options(warehouse=str(tmp_path), table="db.t").mode("overwrite").save()
        oldest = "first-row" in hiding.values()
        newest = {number % 1500: number * scale for number in (reversed(range(4000)) if oldest else range(4000))}
        assert {row["k"]: row["v"] for row in table.to_arrow().to_pylist()} == newest
    assert [snapshot.commit_kind.value for snapshot in table.snapshots()] == ["OVERWRITE", "OVERWRITE"]
    assert not strays(table.store)


def test_a_failed_sink_leaves_no_file_and_no_snapshot(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path)
    frame = spark.sql("SELECT IF(id = 350, NULL, id) k FROM range(0, 400, 1, 4)")
    with pytest.raises(Exception, match="null in a primary key column"):
        frame.write.format("dredge").option("warehouse", str(tmp_path)).option("table", "db.t").mode("append").save()
    assert table.latest_snapshot() is None
    assert data_files(tmp_path) == set()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"table": None}, "'warehouse' and 'table'"),
        ({"table": "db.none"}, "db.none"),
        ({"columns": "k,zz"}, "no column 'zz'"),
        ({"colums": "k"}, "'colums'"),
        ({"scan.snapshotid": "1"}, "'scan.snapshotid'"),
        ({"scan.snapshot-id": "1", "scan.tag-name": "x"}, "only one of scan.snapshot-id, scan.tag-name"),
        ({"snapshot-id": "1", "scan.tag-name": "x"}, "nothing beside snapshot-id"),
        ({"incremental-between": "1,1", "scan.snapshot-id": "1"}, "only one of"),
        ({"snapshot-id": "x"}, "'snapshot-id'"),
        ({"snapshot-id": "77"}, "77"),
        ({"filter": "k > > 3"}, "'filter'"),
        ({"filter": '[["k"'}, "'filter'"),
        ({"filter": '[["zz", "=", 1]]'}, "'zz'"),
    ],
)
def test_bad_options_are_named(tmp_path: Path, options: dict[str, str | None], part: str) -> None:
    table = make_table(tmp_path)
    table.write(rows([1]))
    # Spark hands over what `schema` said, parsed.
    own = from_arrow_schema(spark_arrow_schema(table.schema.fields, table.name), prefer_timestamp_ntz=True)
    chosen = {"warehouse": str(tmp_path), "table": "db.t", **options}
    source = TableSource({key: value for key, value in chosen.items() if value is not None})
    with pytest.raises(DredgeError, match=part):
        assert source.schema()
        source.reader(own).partitions()


def test_an_error_of_the_source_reaches_the_user_of_spark(spark: Any, tmp_path: Path) -> None:
    make_table(tmp_path)
    with pytest.raises(Exception, match="no column 'zz'; it has k, s"):
        reader(spark, tmp_path).option("columns", "zz").load()


def test_read_table_raises_typed_errors_before_any_job(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    with pytest.raises(SnapshotNotFound):
        read_table(spark, table, snapshot_id=77)
    with pytest.raises(ColumnNotFound):
        read_table(spark, table, columns=["zz"])
    table.compact(full=True)
    gone = live_paths(table)[0]
    gone.unlink()
    with pytest.raises(CorruptFile, match=gone.name):
        read_table(spark, table)


def test_an_empty_table_is_an_empty_frame(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path)
    assert read_table(spark, table).count() == 0
    assert reader(spark, tmp_path).load().count() == 0
    assert read_table(spark, table, columns=["s"]).columns == ["s"]


JAVA_TABLES = ("dv_append", "dv_pk", "evolve_pk", "evolve_append", "nested_orc", "formats_per_level", "index_external")


@pytest.mark.parametrize("name", one_in(7, [name for name in JAVA_TABLES if name in golden_names()]))
def test_tables_of_java_are_read_as_locally(spark: Any, tmp_path: Path, name: str) -> None:
    """Deletion vectors, older schemas, other formats: what Spark's own reader would miss goes through Dredge."""
    unpack_golden(name, tmp_path)
    table = Catalog(str(tmp_path / "warehouse")).table("db.t")
    for snapshot in [None, *(item.id for item in table.snapshots())][:3]:
        store = resolve(table.store, snapshot).store
        chosen = [f.name for f in store.schema.fields if "MULTISET" not in to_sql(f.type)]
        expected = table.to_arrow(chosen, snapshot_id=snapshot)
        frame = read_table(spark, table, columns=chosen, snapshot_id=snapshot)
        assert as_text(frame.toArrow()) == as_text(expected)


def as_text(rows: pa.Table) -> list[str]:
    return sorted(repr(sorted((name, repr(value)) for name, value in row.items())) for row in rows.to_pylist())


def test_a_type_that_spark_lacks_is_refused_with_its_column(spark: Any, tmp_path: Path) -> None:
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("at", pa.time32("ms"))])
    table = make_table(tmp_path, fields=fields)
    with pytest.raises(UnsupportedFeature, match=r"TIME\(3\) on Spark \(column 'at'\)"):
        read_table(spark, table)
    assert read_table(spark, table, columns=["k"]).count() == 0


def test_system_tables_are_read_as_such_and_nothing_writes_to_them(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    before = [snapshot.id for snapshot in table.snapshots()]
    catalog = Catalog(str(tmp_path))
    snapshots = catalog.table("db.t$snapshots")
    for name in ("db.t$snapshots", "db.t$options", "sys.tables"):
        expected = catalog.table(name).to_arrow()
        assert as_text(reader(spark, tmp_path, name).load().toArrow()) == as_text(expected), name
        assert as_text(read_table(spark, catalog.table(name)).toArrow()) == as_text(expected), name
    assert reader(spark, tmp_path, "db.t$ro").option("columns", "k,s").load().count() == 0  # nothing is compacted yet
    assert reader(spark, tmp_path, "db.t$files").option("snapshot-id", "1").load().count() == 3
    chosen = reader(spark, tmp_path, "db.t$snapshots").option("filter", '[["snapshot_id", ">", 1]]')
    assert chosen.option("columns", "snapshot_id").load().toArrow().to_pydict() == {"snapshot_id": [2, 3]}
    frame = spark.createDataFrame(rows([1, 2]))
    for mode in ("append", "overwrite"):
        for name in ("db.t$snapshots", "db.t$ro", "sys.tables"):
            target = frame.write.format("dredge").option("warehouse", str(tmp_path)).option("table", name)
            with pytest.raises(Exception, match=r"system table.*only be read"):
                target.mode(mode).save()
    for verb in (
        lambda: write_table(frame, snapshots),
        lambda: write_table(frame, snapshots, overwrite=True),
        lambda: compact_table(spark, snapshots, full=True),
        lambda: expire_snapshots(spark, catalog.table("db.t$ro"), retain_max=1, retain_min=1),
    ):
        with pytest.raises(UnsupportedFeature, match=r"system table, which can only be read \(table db\.t\$"):
            verb()
    assert [snapshot.id for snapshot in table.snapshots()] == before


def test_a_branch_is_written_and_replaced_alone(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    main = table.to_arrow()
    root = Path(table.store.root)
    for part, name in (
        ("schema", "schema-0"),
        ("snapshot", "snapshot-3"),
    ):  # a branch at snapshot 3, as Paimon lays it out
        (root / "branch" / "branch-x" / part).mkdir(parents=True)
        shutil.copy(root / part / name, root / "branch" / "branch-x" / part / name)
    name, frame = "db.t$branch_x", spark.createDataFrame(rows([1000, 1001], "branch"))
    into = frame.write.format("dredge").option("warehouse", str(tmp_path)).option("table", name)
    into.mode("append").save()
    branch = Catalog(str(tmp_path)).table(name)
    assert branch.to_arrow().num_rows == main.num_rows + 2
    write_table(frame, branch)
    into.mode("overwrite").save()
    assert same(rows([1000, 1001], "branch"), branch.to_arrow())
    assert same(rows([1000, 1001], "branch"), reader(spark, tmp_path, name).load().toArrow())
    write_table(frame, branch, overwrite=True)
    assert same(main, table.to_arrow())
    assert len(table.snapshots()) == 3


BY_PARTITION = pa.schema([pa.field("p", pa.int32(), nullable=False), pa.field("k", pa.int64(), nullable=False)])


def by_partition(root: Path, name: str, **options: str) -> Table:
    """A table with the partitions 1 and 2, of the keys 1 and 2."""
    values = {"bucket": "1", **options}
    keys, fields = ["p", "k"], BY_PARTITION
    table = make_table(root, name, fields=fields, primary_keys=keys, partition_keys=["p"], options=values)
    table.write(pa.table({"p": [1, 2], "k": [1, 2]}, schema=BY_PARTITION))
    return table


def test_the_writes_own_mode_decides_what_an_overwrite_replaces_then_the_sessions_then_the_tables(
    spark: Any, tmp_path: Path
) -> None:
    key = "dynamic-partition-overwrite"
    new = pa.table({"p": [2], "k": [20]}, schema=BY_PARTITION)
    frame = spark.createDataFrame(new)
    cases: list[tuple[str, str | None, str | None, dict[str, str], list[int]]] = [
        # how, the session's mode, the table's option, the write's options: the keys that are left
        ("save", None, "true", {}, [20]),
        ("save", None, None, {key: "true"}, [1, 20]),
        ("save", None, "false", {"partitionOverwriteMode": "dynamic", key: "false"}, [1, 20]),
        ("save", "dynamic", "true", {"partitionOverwriteMode": "static"}, [20]),
        ("save", "dynamic", "false", {}, [1, 20]),
        ("save", "static", "true", {}, [20]),
        ("save", "static", None, {key: "true"}, [1, 20]),
        ("sql", None, "true", {}, [20]),
        ("sql", "static", "true", {}, [20]),
        ("write_table", None, None, {}, [1, 20]),
        ("write_table", None, "false", {}, [20]),
        ("write_table", "static", "true", {}, [20]),
        ("write_table", "static", None, {key: "true"}, [1, 20]),
        ("write_table", "dynamic", "false", {}, [1, 20]),
        ("Table.write", "static", None, {}, [1, 20]),
        ("Table.write", "dynamic", "false", {}, [20]),
    ]
    frame.createOrReplaceTempView("new_rows")
    try:
        for case, (how, mode, option, options, expected) in enumerate(cases):
            name = f"db.t{case}"
            table = by_partition(tmp_path, name, **({} if option is None else {key: option}))
            if mode is not None:
                spark.conf.set("spark.sql.sources.partitionOverwriteMode", mode)
            place = {"warehouse": str(tmp_path), "table": name}
            if how == "save":
                frame.write.format("dredge").options(**place, **options).mode("overwrite").save()
            elif how == "sql":
                text = ", ".join(f"{item} '{value}'" for item, value in place.items())
                spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW replaced USING dredge OPTIONS ({text})")
                spark.sql("INSERT OVERWRITE replaced SELECT * FROM new_rows")
            elif how == "write_table":
                write_table(frame, table.copy(options), overwrite=True)
            else:
                table.write(new, overwrite=True)
            spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
            assert sorted(table.to_arrow().column("k").to_pylist()) == expected, cases[case]
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


def test_an_overwrite_by_no_row_empties_the_table_where_it_is_static_and_each_one_is_logged(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nothing = spark.createDataFrame(pa.table({"p": [], "k": []}, schema=BY_PARTITION))
    for mode, saved, expected in (("static", True, 0), ("dynamic", True, 2), ("static", False, 0)):
        table = by_partition(tmp_path, f"db.{mode}{saved}")
        place = {"warehouse": str(tmp_path), "table": table.name}
        if saved:
            target = nothing.write.format("dredge").options(**place, partitionOverwriteMode=mode)
            target.mode("overwrite").save()
        else:
            write_table(nothing, table.copy({"dynamic-partition-overwrite": "false"}), overwrite=True)
        assert table.to_arrow().num_rows == expected, (mode, saved)
    (warning,) = [record for record in caplog.records if "overwrite (" in record.getMessage()]
    assert (warning.levelname, warning.getMessage()) == (
        "WARNING",
        "table db.staticFalse: overwrite (snapshot 2) replaced the whole table: 2 files, 2 rows",
    )
    caplog.clear()
    with caplog.at_level("INFO", logger="lsm_core.commit"):
        table.write(pa.table({"p": [5], "k": [5]}, schema=BY_PARTITION))
        table.write(pa.table({"p": [5, 6], "k": [7, 7]}, schema=BY_PARTITION), overwrite=True)
    assert "overwrite (snapshot 4) replaced partitions p=5, p=6: 1 files, 1 rows" in caplog.text


def test_tables_of_sparks_own_catalog_are_refused_and_nothing_of_them_stays(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    options = f"OPTIONS (warehouse '{tmp_path}', table 'db.t')"
    frame = spark.createDataFrame(rows([7])).write.format("dredge").option("warehouse", str(tmp_path))
    advice = r"CREATE TEMPORARY VIEW name USING dredge"
    for attempt in (
        lambda: spark.sql(f"CREATE TABLE entry USING dredge {options}"),
        lambda: spark.sql(f"CREATE TABLE entry USING dredge {options} AS SELECT 1L k"),
        lambda: frame.option("table", "db.t").saveAsTable("entry"),
        lambda: frame.option("table", "db.t").mode("overwrite").saveAsTable("entry"),
    ):
        with pytest.raises(Exception, match=advice):
            attempt()
        assert not spark.catalog.tableExists("entry")
    spark.sql(f"CREATE TABLE entry (k BIGINT) USING dredge {options}")  # Spark asks no data source about this one
    try:
        for attempt in (lambda: spark.table("entry").count(), lambda: spark.sql("INSERT INTO entry SELECT 5L")):
            with pytest.raises(Exception, match=advice):
                attempt()
    finally:
        spark.sql("DROP TABLE entry")
    assert len(table.snapshots()) == 3
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW entry USING dredge {options}")
    spark.sql("INSERT INTO entry SELECT 5000L, 's', 1.5D, NULL, NULL, NULL, true, 1")
    assert table.to_arrow(filter=[("k", "=", 5000)]).num_rows == 1


def test_a_schema_that_is_not_the_tables_is_refused_by_name(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.write(rows([1]))
    own = reader(spark, tmp_path).load().schema
    assert same(table.to_arrow(), reader(spark, tmp_path).schema(own).load().toArrow())
    for wrong in ("k INT, w STRING", own.add("more", "string")):
        with pytest.raises(
            Exception, match=r"InvalidOption: option 'schema' of table db\.t cannot be .*; accepted: its own columns"
        ):
            reader(spark, tmp_path).schema(wrong).load().collect()
    with pytest.raises(Exception, match=r"option 'schema' of table db\.t\$snapshots cannot be 'a int'"):
        reader(spark, tmp_path, "db.t$snapshots").schema("a INT").load().collect()
