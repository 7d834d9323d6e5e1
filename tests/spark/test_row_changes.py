"""Upsert, delete and update through Spark say what they say in one process, on every kind of table, and lose nobody's rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Table
from lsm_core.errors import ColumnNotFound, CommitConflict, InvalidData, InvalidFilter, SparkFailed, UnsupportedFeature
from lsm_core.maintenance.checks.bucket_sample import check_input_at
from lsm_core.maintenance.checks.expected_rows import merge_by_rules
from lsm_core.maintenance.checks.row_comparison import compare_rows
from lsm_core.spark import SkippedKeys, delete_keys, delete_where, read_table, spark_changes, update_where, upsert
from lsm_core.spark.spark_verify import SparkRows
from lsm_core.write.row_changes.copy_on_write import Rewriting
from lsm_core.write.row_changes.vectors import Marking
from tests.spark.tables import canonical, data_files, dying, make_table
from tests.support.samples import one_in

pytestmark = pytest.mark.spark
FIELDS = pa.schema(
    [
        pa.field("p", pa.int32(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("ms"), nullable=False),
        ("v", pa.string()),
        ("n", pa.int64()),
    ]
)


def rows(keys: range, tag: str) -> pa.Table:
    numbers = list(keys)
    times = pa.array(numbers, pa.int64()).cast(pa.timestamp("ms"))
    texts = [f"{tag}{k}" for k in numbers]
    return pa.table([[k % 2 for k in numbers], numbers, times, texts, numbers], schema=FIELDS)


def made(root: Path, keys: tuple[str, ...], options: Mapping[str, str], *, partitioned: bool = True) -> Table:
    table = make_table(
        root, fields=FIELDS, primary_keys=keys, partition_keys=["p"] if partitioned else [], options=dict(options)
    )
    table.write(rows(range(40), "a"))
    table.write(rows(range(20, 60), "b"))
    if table.options.get("deletion-vectors.enabled") == "true" and keys:
        table.compact(full=True)
    return table


LAYOUTS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "fixed": (("p", "k"), {"bucket": "2", "changelog-producer": "input"}),
    "dynamic": (("p", "k"), {"bucket": "-1"}),
    "cross-partition": (("k",), {"bucket": "-1"}),
    "vectors": (("p", "k"), {"bucket": "1", "deletion-vectors.enabled": "true"}),
    "sequence": (("p", "k"), {"bucket": "2", "sequence.field": "n"}),
    "append": ((), {}),
    "append with vectors": ((), {"deletion-vectors.enabled": "true"}),
    "append in buckets with vectors": ((), {"bucket": "2", "bucket-key": "k", "deletion-vectors.enabled": "true"}),
    "append that tracks rows with vectors": ((), {"row-tracking.enabled": "true", "deletion-vectors.enabled": "true"}),
}


@pytest.mark.parametrize("layout", one_in(6, LAYOUTS))
def test_changes_by_filter_are_those_of_one_process(
    spark: Any, tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, options = LAYOUTS[layout]
    mine, local = made(tmp_path / "a", keys, options), made(tmp_path / "b", keys, options)
    fewer, more = [("v", "in", ["a3", "b25", "b42"])], [("k", ">=", 50)]
    values = {"v": "new", "n": pc.add(pc.field("n"), 1000)}
    local.delete(fewer)
    with monkeypatch.context() as patched:
        for change in (Rewriting, Marking):  # workers have it, the driver is to touch no row
            patched.setattr(change, "apply_to", None)
        assert delete_where(spark, mine, fewer) is not None
    if keys and "vectors" in layout:
        mine.compact(full=True)
        local.compact(full=True)
    assert update_where(spark, mine, more, values) is not None
    local.update(more, values)
    if layout == "fixed" or not keys:
        assert delete_where(spark, mine, [("k", "=", 1234)]) is None
    assert canonical(mine.to_arrow()) == canonical(local.to_arrow())
    if "tracks" in layout:
        tracked = ["k", "_ROW_ID", "_SEQUENCE_NUMBER"]
        assert canonical(mine.to_arrow(tracked)) == canonical(local.to_arrow(tracked))
    assert [s.commit_kind for s in mine.snapshots()] == [s.commit_kind for s in local.snapshots()]
    if options.get("changelog-producer"):
        changes = {"incremental-between": "2,4", "incremental-between-scan-mode": "changelog"}
        assert canonical(mine.copy(changes).to_arrow()) == canonical(local.copy(changes).to_arrow())
    assert not list(tmp_path.rglob("dredge/staged/*"))


@pytest.mark.soak
def test_a_killed_task_leaves_an_append_table_as_it_was(spark: Any, tmp_path: Path) -> None:
    table = made(tmp_path, (), {})
    files = data_files(tmp_path)
    with pytest.raises(SparkFailed, match=r"changing rows of table db\.t: Python worker exited"):
        delete_where(spark, dying(table, "/p=0/bucket-0/"), [("k", ">", 10)])
    assert data_files(tmp_path) == files and len(table.snapshots()) == 2
    assert not list(tmp_path.rglob("dredge/staged/*"))


@pytest.mark.parametrize("layout", one_in(3, ["fixed", "sequence", "cross-partition"]))
def test_keys_of_a_frame_are_deleted(spark: Any, tmp_path: Path, layout: str) -> None:
    keys, options = LAYOUTS[layout]
    table = made(tmp_path, keys, options)
    wanted = [k for k in table.to_arrow(["k"]).column("k").to_pylist() if k % 10]
    named = "k" if keys == ("k",) else "k, int(k % 2) p"
    frame = spark.sql(f"SELECT {named} FROM (SELECT explode(array(0L, 10L, 20L, 30L, 40L, 50L, 50L, 777L)) k)")
    before = table.latest_snapshot()
    records: list[SkippedKeys] = []
    assert before is not None and delete_keys(frame, table, on_skipped=records.append) == before.id + 1
    assert sorted(table.to_arrow(["k"]).column("k").to_pylist()) == sorted(wanted)
    assert (records[0].keys, records[0].nulls, records[0].absent) == (7, 0, 7 - records[0].deleted)
    assert records[0].deleted == 60 - len(wanted) or layout != "fixed"


def test_delete_keys_says_what_it_skipped(spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = made(tmp_path, ("p", "k"), {"bucket": "2"})
    records: list[SkippedKeys] = []
    keys = pa.table({"k": [1, 2, 2, None, 777], "p": pa.array([1, 0, 0, 1, 1], pa.int32())})
    delete_keys(keys, table, on_skipped=records.append)
    assert records == [SkippedKeys(keys=4, deleted=2, nulls=1)] and records[0].absent == 1
    message = "table db.t: delete_keys skipped 2 of 4 keys: 1 that the table does not have, 1 with a null"
    assert message in [record.getMessage() for record in caplog.records]
    assert delete_keys(keys, table) is None


def test_null_keys_are_deleted_and_compared_where_keys_may_be_null(spark: Any, tmp_path: Path) -> None:
    fields = pa.schema([("k", pa.int64()), ("j", pa.string()), ("v", pa.int64())])
    options = {"bucket": "2", "primary-key.nullable": "true", "write-only": "true"}
    table = make_table(tmp_path, fields=fields, primary_keys=("k", "j"), options=options)
    keys = [(k, j) for k in (None, 1, 2) for j in (None, "a")]
    for version in range(2):
        table.write(pa.Table.from_pylist([{"k": k, "j": j, "v": version} for k, j in keys], schema=fields))
    whole = SparkRows(table.store, read_table(spark, table))
    compared = compare_rows(table.store, merge_by_rules(check_input_at(table.store, rows=100, keys=100)), whole)
    assert (compared.differing, compared.compared) == (0, len(keys))
    records: list[SkippedKeys] = []
    chosen = spark.sql("SELECT * FROM VALUES (CAST(NULL AS BIGINT), 'a'), (1L, NULL), (1L, 'b') AS (k, j)")
    assert delete_keys(chosen, table, on_skipped=records.append) is not None
    assert records == [SkippedKeys(keys=3, deleted=2, nulls=0)]
    left = [(row["k"], row["j"]) for row in table.refresh().to_arrow().to_pylist()]
    assert sorted(left, key=repr) == sorted(set(keys) - {(None, "a"), (1, None)}, key=repr)


def test_upserts_replace_rows_of_their_key(spark: Any, tmp_path: Path) -> None:
    table = made(tmp_path, ("p", "k"), {"bucket": "2"})
    assert upsert(spark.createDataFrame(rows(range(50, 70), "c")), table) == 3
    found = dict(zip(*(table.to_arrow(["k", "v"]).column(name).to_pylist() for name in ("k", "v")), strict=True))
    assert (found[49], found[50], found[69], len(found)) == ("b49", "c50", "c69", 70)
    upsert(spark.sql("SELECT 1 p, 49L k, timestamp_ntz'2024-01-01' at"), table)
    assert [row["v"] for row in table.to_arrow(filter="k = 49").to_pylist()] == [None]  # as save() fills it


def test_what_no_statement_can_do_is_refused_by_name(spark: Any, tmp_path: Path) -> None:
    keyed = made(tmp_path / "a", ("p", "k"), {"bucket": "2"})
    append = made(tmp_path / "b", (), {})
    first = make_table(tmp_path / "c", fields=FIELDS, primary_keys=["k"], options={"merge-engine": "first-row"})
    frame = spark.sql("SELECT 1 p, 1L k")
    with pytest.raises(UnsupportedFeature, match=r"by keys from a table without primary key.*\(table db\.t\)"):
        delete_keys(frame, append)
    with pytest.raises(UnsupportedFeature, match="upserts into a table without primary key"):
        upsert(frame, append)
    with pytest.raises(UnsupportedFeature, match="first-row"):
        delete_where(spark, first, [("k", "=", 1)])
    with pytest.raises(ColumnNotFound, match="no column 'v'"):
        delete_keys(spark.sql("SELECT 1 p, 1L k, 'x' v"), keyed)
    with pytest.raises(ColumnNotFound, match="no column 'p'"):
        delete_keys(spark.sql("SELECT 1L k"), keyed)
    with pytest.raises(InvalidFilter, match="without a filter"):
        delete_where(spark, keyed, None)
    with pytest.raises(UnsupportedFeature, match="UPDATE of the primary key column 'k'"):
        update_where(spark, keyed, [("k", "=", 1)], {"k": 2})
    files = data_files(tmp_path)
    with pytest.raises(InvalidData, match="column 'n'"):
        update_where(spark, keyed, [("k", ">", 10)], {"n": "text"})
    assert data_files(tmp_path) == files
    assert len(keyed.snapshots()) == 2


def test_rows_that_others_wrote_meanwhile_are_never_undone(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path, ("p", "k"), {"bucket": "1"})
    plain = spark_changes.run_tasks

    def while_others_write(*arguments: Any) -> Any:
        outcomes = plain(*arguments)
        table.write(rows(range(10), "z"))
        return outcomes

    monkeypatch.setattr(spark_changes, "run_tasks", while_others_write)
    with pytest.raises(CommitConflict):
        delete_where(spark, table, [("k", "<", 10)])
    assert table.to_arrow(filter=[("v", "starts with", "z")]).num_rows == 10
    live = {name for name in data_files(tmp_path) if name.is_file()}
    table.remove_orphan_files(older_than_ms=0, dry_run=True)
    assert len(live) == len({path for path in live if path.exists()})
