"""Sort compaction on Spark: rows cross a shuffle into ranges, a task sorts each; the same rows as before, in fewer files to open."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import ColumnNotFound, CorruptFile, SparkFailed
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance.actions.compact.compaction import CompactItem
from lsm_core.spark import compact_table, verify_table
from tests.spark.tables import FIELDS, data_files, live_paths, make_table, rows, same
from tests.support.spark import EventLog, TracedSession, kill_when

pytestmark = pytest.mark.spark

# Types that Spark has no equal of: they cross as they are.
ODD = pa.schema(
    [*FIELDS, ("at", pa.timestamp("ns")), ("clock", pa.time32("ms")), ("tags", pa.map_(pa.string(), pa.int8()))]
)


def piled_up(root: Path, files: int = 4, size: int = 3000, target: str = "24 kb") -> Table:
    table = make_table(root, fields=ODD, primary_keys=(), options={"target-file-size": target, "bucket": "-1"})
    for number in range(files):
        plain = rows([(number + files * i) * 7919 % 100_003 for i in range(size)], f"tag {number}")
        at = plain.column("k").cast(pa.int64())
        table.write(
            plain.append_column("at", at.cast(pa.timestamp("ns")))
            .append_column("clock", at.cast(pa.int32()).cast(pa.time32("ms")))
            .append_column("tags", pa.array([[("a", 1)]] * size, ODD.field("tags").type))
        )
    return table


def opened(table: Table, column: str, low: float, high: float) -> int:
    found = table.plan_scan(filter=[(column, ">", low), (column, "<", high)])
    return sum(len(split.files) for split in found)


def test_a_large_partition_is_sorted_by_a_task_per_range(traced: TracedSession, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    before, log = table.to_arrow(), EventLog(traced.events)
    files = len(live_paths(table))
    assert opened(table, "k", 50_000, 50_100) == files
    report = compact_table(traced.spark, table, order_by=["k", "n"], strategy="zorder")
    stages = log.stages()
    assert same(before, table.to_arrow())
    assert (report.rows_in, report.rows_out, report.files_in, report.commits) == (12_000, 12_000, files, 1)
    assert report.verification.level == "V1"
    newest = table.latest_snapshot()
    assert newest is not None and newest.commit_kind is CommitKind.COMPACT
    assert max(stage.tasks for stage in stages) >= 3
    assert sum(size for stage in stages for size in stage.result_bytes) < sum(
        p.stat().st_size for p in live_paths(table)
    )
    assert opened(table, "k", 50_000, 50_100) <= len(live_paths(table)) // 2
    table.write(piled_up(tmp_path / "more", files=1, size=10).to_arrow())
    again = compact_table(traced.spark, table, order_by=["k"])
    assert again.rows_in == 12_010
    assert opened(table, "k", 50_000, 50_100) <= 2


def test_the_second_path_agrees_and_a_small_partition_needs_no_shuffle(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path, primary_keys=(), options={"bucket": "-1"})
    for number in range(3):
        table.write(rows(list(range(number, 300, 3))))
    newest = table.latest_snapshot()
    report = compact_table(spark, table, order_by=["d", "s"], strategy="hilbert")
    assert newest is not None and report.snapshot_id is not None
    assert (report.files_in, report.files_out) == (3, 1)
    assert verify_table(spark, table, newest.id, report.snapshot_id).ok


def test_a_failure_leaves_the_table_and_its_folder_as_they_were(spark: Any, tmp_path: Path) -> None:
    table = piled_up(tmp_path)
    with pytest.raises(ColumnNotFound):
        compact_table(spark, table, order_by=["nope"])
    before = sorted(path.name for path in Path(table.store.root).rglob("*.parquet"))
    victim = live_paths(table)[1]
    victim.write_bytes(victim.read_bytes()[:-50])
    with pytest.raises(CorruptFile, match=victim.name):
        compact_table(spark, table, order_by=["k"])
    assert sorted(path.name for path in Path(table.store.root).rglob("*.parquet")) == before


def test_incremental_clustering_gives_the_levels_of_its_plan(traced: TracedSession, tmp_path: Path) -> None:
    options = {"bucket": "-1", "clustering.incremental": "true", "clustering.columns": "k,n"}
    options |= {"target-file-size": "24 kb", "num-sorted-run.compaction-trigger": "3"}
    table = make_table(tmp_path, primary_keys=(), options={**options, "deletion-vectors.enabled": "true"})
    log, levels = EventLog(traced.events), set()
    for turn, full in enumerate([True, False, False]):
        for number in range(2 + 2 * (turn == 1)):
            table.write(rows([(7919 * i + turn) % 100_003 for i in range(number, 4000, 2 + number % 2)]))
            table = table.refresh()
        if turn == 1:
            table.delete("k < 30000")
            table = table.refresh()
        expected = table.to_arrow()
        (item,) = table.plan_maintenance("compact", full=full).items_of(CompactItem)
        before = {file.name for file in item.inputs}
        report = compact_table(traced.spark, table, full=full)
        table = table.refresh()
        files = [file for split in table.plan_scan() for file in split.files]
        assert same(table.to_arrow(), expected)
        assert not before.intersection(file.file_name for file in files)
        assert sum(file.row_count for file in files if file.level == item.output_level) >= report.rows_out > 0
        levels.add(item.output_level)
        assert max(stage.tasks for stage in log.stages()) > 1
    assert len(levels) > 1
    assert opened(table, "k", 50_000, 50_100) <= len(live_paths(table)) // 2
    assert all(check.passed for check in table.check())


@pytest.mark.soak
def test_a_killed_task_leaves_nothing_behind(traced: TracedSession, tmp_path: Path) -> None:
    piled_up(tmp_path / "made")
    for attempt in range(10):  # a worker may be faster than the killer
        shutil.copytree(tmp_path / "made", tmp_path / str(attempt))
        table = Catalog(str(tmp_path / str(attempt))).table("db.t")
        files = data_files(tmp_path / str(attempt))
        names, place = {path.name for path in files}, f"{table.store.root}/bucket-0/"

        def due(line: dict[str, Any], names: set[str] = names, place: str = place) -> bool:
            return str(line["path"]).startswith(place) and line["path"].rpartition("/")[2] not in names

        killer = kill_when(traced.trace, due)
        try:
            compact_table(traced.spark, table, order_by=["k"])
        except SparkFailed as failed:
            killed = str(failed)
            break
        finally:
            killer.stop.set()  # type: ignore[attr-defined]
    else:
        raise AssertionError("no worker was killed in its work")
    assert "sorting table db.t: Python worker exited" in killed
    assert data_files(tmp_path / str(attempt)) == files and not list(tmp_path.rglob("staged/*"))
