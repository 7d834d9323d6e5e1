"""V3: Spark SQL over the raw files agrees with an honest compaction, and sees every lie told after publishing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lsm_core import Table
from lsm_core.errors import CorruptFile, SnapshotNotFound, SparkFailed
from lsm_core.metadata import manifests, snapshots
from lsm_core.spark import spark_verify as verify_module
from lsm_core.spark import verify_table
from tests.spark.tables import live_paths, make_table, rewrite, rows
from tests.support.samples import one_in

pytestmark = pytest.mark.spark

SEQUENCE = pa.schema(
    [
        pa.field("p", pa.string(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        ("a", pa.int32()),
        ("b", pa.float64()),
        ("v", pa.string()),
    ]
)


def compacted(root: Path, full: bool = True) -> Table:
    """Three buckets, three commits, some deletes, then one compaction (snapshot 5)."""
    table = make_table(root)
    for number in range(3):
        table.write(rows(list(range(number * 50, number * 50 + 150)), f"c{number}"))
    table.write(rows(list(range(20, 40)), "x"), row_kinds=pa.array(["-D"] * 20))
    table.compact(full=full)
    return table


def test_an_honest_compaction_passes_and_says_how_it_was_checked(spark: Any, tmp_path: Path) -> None:
    table = compacted(tmp_path)
    report = verify_table(spark, table, 4, 5)
    assert report.ok
    assert (report.level, report.buckets, report.by_digest, report.by_reference) == ("V3", 3, 3, 0)
    assert report.rows_a == report.rows_b == table.to_arrow().num_rows
    assert report.differences == () and report.examples == ()


def test_snapshots_that_share_all_files_are_equal_without_reading(spark: Any, tmp_path: Path) -> None:
    table = compacted(tmp_path)
    for path in live_paths(table):
        path.unlink()
    report = verify_table(spark, table, 5, 5)
    assert (report.ok, report.by_reference, report.by_digest) == (True, 3, 0)


def test_a_changed_answer_is_told_by_bucket_with_examples(spark: Any, tmp_path: Path) -> None:
    table = compacted(tmp_path)
    table.write(rows([1000], "new"))
    report = verify_table(spark, table, 5, 6)
    assert not report.ok
    assert len(report.differences) == 1
    assert report.rows_b == report.rows_a + 1
    assert len(report.examples) == 1
    assert report.examples[0].startswith("only in snapshot 6: Row(k=1000, s='new-1000'")
    # over several compactions, in one bucket, with what was appended between them
    table.compact(full=True)
    (place,) = (
        entry["bucket"] for entry in manifests.delta_entries(table.store, snapshots.read(table.store, 6)).to_pylist()
    )
    report = verify_table(spark, table, 4, 7, places={(b"\0" * 12, place)}, appended=True)
    assert report.ok and (report.buckets, report.by_digest) == (1, 1) and report.rows_a == report.rows_b > 1


def test_a_rescaled_partition_is_compared_as_a_whole(spark: Any, tmp_path: Path) -> None:
    table = make_table(
        tmp_path, fields=SEQUENCE, primary_keys=["p", "k"], partition_keys=["p"], options={"bucket": "2"}
    )
    fields = {"a": pa.array(range(60), pa.int32()), "b": pa.array(np.arange(60) / 7), "v": ["x"] * 60}
    for p in ("one", "two"):
        table.write(pa.table({"p": [p] * 60, "k": range(60), **fields}, schema=SEQUENCE))
    table.apply(table.plan_maintenance("rescale", bucket_num=4, partitions=[{"p": "one"}]))
    report = verify_table(spark, table, 2, 3)
    assert report.ok, report
    assert (report.rows_a, report.rows_b) == (60, 60)
    assert report.by_reference == 2
    rewrite(next(path for path in live_paths(table) if "p=one" in str(path)), drop)
    report = verify_table(spark, table, 2, 3)
    assert [difference.bucket for difference in report.differences] == ["p=one, 2 and 4 buckets"]
    assert not report.ok and report.rows_b == report.rows_a - 1
    assert len(report.examples) == 1 and report.examples[0].startswith("only in snapshot 2")


@pytest.mark.parametrize(
    ("column", "engine"),
    [
        ("n", "partial-update"),
        pytest.param("ts", "deduplicate", marks=pytest.mark.soak),
        pytest.param("ts", "partial-update", marks=pytest.mark.soak),
        pytest.param("n", "deduplicate", marks=pytest.mark.soak),
    ],
)
def test_rows_that_were_over_at_the_compactions_clock_are_on_neither_side(
    spark: Any, tmp_path: Path, engine: str, column: str
) -> None:
    expiry = {"record-level.expire-time": "1 h", "record-level.time-field": column, "merge-engine": engine}
    table = make_table(tmp_path, options=expiry)
    for number in range(3):
        table.write(timed(rows(list(range(number * 20, number * 20 + 60)), f"c{number}"), number))
    report = table.compact(full=True)
    assert report.rows_dropped["expired"] > 20
    found = verify_table(spark, table, 3, 4)
    assert found.ok, found
    assert found.rows_a == found.rows_b == table.to_arrow().num_rows < 100
    rewrite(live_paths(table)[0], drop)
    assert not verify_table(spark, table, 3, 4).ok


def timed(data: pa.Table, number: int) -> pa.Table:
    """Times far in the past or the future, by key and commit; some are null."""
    far = [(int(key) * 7 + number * 3) % 5 for key in data.column("k").to_pylist()]
    seconds = [None if item == 4 else 2_000_000_000 if item % 2 else 1_000_000_000 for item in far]
    stamps = pa.array([None if s is None else s * 1000 for s in seconds], pa.int64()).cast(pa.timestamp("ms"))
    whole = data.set_column(data.schema.get_field_index("n"), data.schema.field("n"), pa.array(seconds, pa.int32()))
    return whole.set_column(whole.schema.get_field_index("ts"), whole.schema.field("ts"), stamps)


def drop(data: pa.Table) -> pa.Table:
    return data.slice(1)


def resurrect(data: pa.Table) -> pa.Table:
    """A deleted row is back: key 21 of some bucket, as its file would hold it."""
    ghost = {name: data.slice(0, 1).column(name) for name in data.column_names}
    for name in ("_KEY_k", "k"):
        ghost[name] = pa.chunked_array([pa.array([21], pa.int64())])
    return pa.concat_tables([data, pa.table(ghost, schema=data.schema)])


def swap(data: pa.Table) -> pa.Table:
    """The values of two rows change places."""
    order = np.arange(data.num_rows)
    order[[2, 5]] = [5, 2]
    at = data.schema.get_field_index("n")
    return data.set_column(at, data.schema.field(at), data.column("n").take(pa.array(order)))


def negate_zero(data: pa.Table) -> pa.Table:
    """-0.0 became 0.0: equal to Spark's `=`, not the same bits."""
    at = data.schema.get_field_index("d")
    return data.set_column(at, data.schema.field(at), pc.add(data.column("d"), 0.0))


def hide_in_null(data: pa.Table) -> pa.Table:
    """false instead of null."""
    at = data.schema.get_field_index("ok")
    return data.set_column(at, data.schema.field(at), pc.fill_null(data.column("ok"), fill_value=False))


def as_delete(data: pa.Table) -> pa.Table:
    """One row turned into a delete marker: the stored row count stays."""
    at = data.schema.get_field_index("_VALUE_KIND")
    kinds = np.asarray(data.column(at)).copy()
    kinds[3] = 3
    return data.set_column(at, data.schema.field(at), pa.array(kinds, pa.int8()))


@pytest.mark.parametrize(
    "lies", one_in(2, [pytest.param((drop, resurrect, swap)), pytest.param((negate_zero, hide_in_null, as_delete))], 1)
)
def test_sabotage_after_publishing_is_seen(
    spark: Any, tmp_path: Path, lies: tuple[Callable[[pa.Table], pa.Table], ...]
) -> None:
    """One lie per bucket: each of them must be told."""
    table = compacted(tmp_path)
    files = sorted(live_paths(table, level_at_least=1))
    for path, lie in zip(files, lies, strict=True):
        rewrite(path, lie)
    report = verify_table(spark, table, 4, 5)
    assert not report.ok
    assert [difference.bucket for difference in report.differences] == ["bucket-0", "bucket-1", "bucket-2"]


def test_a_missing_or_broken_file_is_an_error_that_names_it(spark: Any, tmp_path: Path) -> None:
    table = compacted(tmp_path)
    victim = live_paths(table, level_at_least=1)[0]
    content = victim.read_bytes()
    victim.write_bytes(content[: len(content) // 2])
    with pytest.raises((CorruptFile, SparkFailed), match=victim.name):
        verify_table(spark, table, 4, 5)
    victim.unlink()
    with pytest.raises(CorruptFile, match=victim.name):
        verify_table(spark, table, 4, 5)
    with pytest.raises(SnapshotNotFound):
        verify_table(spark, table, 4, 50)


@pytest.mark.parametrize("order", one_in(2, ["ascending", "descending"], 1))
def test_sequence_fields_nulls_and_partitions_rank_as_in_a_local_merge(spark: Any, tmp_path: Path, order: str) -> None:
    options = {"bucket": "2", "sequence.field": "a,b", "sequence.field.sort-order": order}
    table = make_table(tmp_path, fields=SEQUENCE, primary_keys=["p", "k"], partition_keys=["p"], options=options)
    rng = np.random.default_rng(7)
    for _ in range(5):
        n = 200
        table.write(
            pa.table(
                [
                    pa.array([["x", "y z%"][i] for i in rng.integers(0, 2, n)]),
                    pa.array(rng.integers(0, 40, n)),
                    pa.array(rng.integers(0, 3, n).astype(np.int32), mask=rng.random(n) < 0.2),
                    pa.array(rng.choice([1.0, 2.0, np.nan], n), mask=rng.random(n) < 0.2),
                    pa.array([f"v{i}" for i in rng.integers(0, 10**9, n)]),
                ],
                schema=SEQUENCE,
            ),
            row_kinds=pa.array(rng.choice(["+I", "+U", "-D"], n, p=[0.5, 0.3, 0.2])),
        )
    table.compact()
    report = verify_table(spark, table, 5, 6)
    assert report.ok, report.examples
    assert report.rows_a == table.to_arrow().num_rows > 0


def test_append_tables_are_compared_as_bags_of_rows(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path, primary_keys=())
    for number in range(6):
        table.write(rows([number, number, 3]))
    table.compact()
    assert verify_table(spark, table, 6, 7).ok
    rewrite(live_paths(table)[0], lambda data: pa.concat_tables([data.slice(1), data.slice(2, 1)]))
    assert not verify_table(spark, table, 6, 7).ok


def test_the_second_path_shares_no_code_with_the_merge() -> None:
    source = Path(verify_module.__file__).read_text()
    assert "lsm_core.merge" not in source
    assert "lsm_core.read" not in source
    assert pq is not None
