"""Append tables with incremental clustering: sorted level by level, never joined, with the same rows before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.clock import FixedClock
from lsm_core.errors import InvalidOption, UnsupportedFeature
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance.actions.compact.compaction import CompactItem
from lsm_core.maintenance.observe import health
from lsm_core.metadata import Purpose, unsupported
from lsm_core.options import REGISTRY
from lsm_core.sql.procedures import prepare_call
from tests.maintenance.tables import HOUR, NOW, assert_whole, catalog, content, strays
from tests.maintenance.test_sort_compaction import FIELDS, files_of, opened, rows

OPTIONS = {"bucket": "-1", "clustering.incremental": "true", "clustering.columns": "a,b", "target-file-size": "6 kb"}


def clustered(tmp_path: Path, partitioned: bool = False, **options: str) -> Table:
    given = {**OPTIONS, **{key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}}
    return catalog(tmp_path).create_table("db.h", Schema(FIELDS, [], ["dt"] if partitioned else [], given))


def levels(table: Table) -> list[int]:
    return sorted(file.level for split in table.plan_scan() for file in split.files)


def items(table: Table, **arguments: Any) -> list[CompactItem]:
    return list(table.plan_maintenance("compact", **arguments).items_of(CompactItem))


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_filters_skip_more_files_and_new_files_wait_for_their_level(tmp_path: Path, vectors: str) -> None:
    table = clustered(tmp_path, deletion_vectors__enabled=vectors)
    for seed in range(4):
        table.write(rows(300, seed))
    assert table.compact().snapshot_id is None and levels(table) == [0] * files_of(table)
    table.write(rows(300, 4))
    if vectors == "true":
        table.delete("a < 50")
    before = content(table)
    assert opened(table, "a", 500) == files_of(table)
    (bucket,) = health(table.store)
    assert bucket.cost_minor > 0 and bucket.small_files == files_of(table)
    report = table.compact()
    assert content(table) == before
    assert (report.verification.level, report.runs_before, report.runs_after) == ("V1", 5, 1)
    assert "sorted along a zorder curve over a, b" in report.lines("db.h")
    assert levels(table) == [5] * files_of(table)
    assert opened(table, "a", 500) < files_of(table)
    newest = table.latest_snapshot()
    assert newest is not None and newest.commit_kind is CommitKind.COMPACT
    (bucket,) = health(table.store)
    assert (bucket.cost_minor, bucket.small_files, bucket.cost_full) == (0, 0, 0)
    table.write(rows(50, 5))
    assert items(table) == []
    assert set(levels(table)) == {0, 5}
    (bucket,) = health(table.store)
    assert bucket.cost_full == sum(bucket.bytes_per_level.values())
    for seed in range(4):
        table.write(rows(50, 6 + seed))
    before = content(table)
    (item,) = items(table)
    assert 0 < item.output_level < 5 and not item.full and len(item.inputs) == 5
    table.compact()
    assert content(table) == before and set(levels(table)) == {item.output_level, 5}
    assert not strays(table)
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert content(table) == before
    assert_whole(table)


def test_a_full_compaction_is_done_once_until_columns_change_or_rows_are_deleted(tmp_path: Path) -> None:
    table = clustered(tmp_path, deletion_vectors__enabled="true")
    table.write(rows(500))
    assert table.compact(full=True).files_in == files_of(table) or levels(table)
    assert set(levels(table)) == {5}
    plan = table.plan_maintenance("compact", full=True)
    assert [declined.text for declined in plan.declined] == ["all files were sorted together"]
    table.delete("a < 100")
    before = content(table)
    (item,) = items(table, full=True)
    assert item.reason == "1 run < 5; full compaction asked for: all to level 5, along a zorder curve over a, b"
    table.compact(full=True)
    assert content(table) == before and items(table, full=True) == []
    house = Catalog(tmp_path / "wh", clock=FixedClock(NOW))
    house.alter_table("db.h", [SchemaChange.set_option("clustering.columns", "b")])
    table = house.table("db.h")
    assert items(table) == []
    (item,) = items(table, full=True)
    assert (item.order_by, item.strategy) == (("b",), "order")
    table.compact(full=True)
    assert content(table) == before and items(table, full=True) == []


def test_idle_partitions_are_sorted_beside_the_chosen_ones(tmp_path: Path) -> None:
    own = {"clustering.history-partition.idle-to-full-sort": "1 h", "clustering.history-partition.limit": "2"}
    table = clustered(tmp_path, partitioned=True, **own)
    clock = table.store.clock
    assert isinstance(clock, FixedClock)
    for dt in "wxyz":
        table.write(rows(100, dt=dt))
        clock.advance(HOUR)
    chosen = [{"dt": "x"}]
    assert items(table) == []
    assert [item.partition_text for item in items(table, partitions=chosen)] == ["dt=w", "dt=y"]
    table.compact(partitions=chosen)
    assert [item.partition_text for item in items(table, partitions=chosen)] == []  # z is exactly 1 h old
    clock.advance(1)
    assert [item.partition_text for item in items(table, partitions=chosen)] == ["dt=z"]


def test_writers_sort_buckets_alone_and_no_compaction_joins_small_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "follow")
    table = clustered(tmp_path)
    for seed in range(8):
        table.write(rows(20, seed))
    assert levels(table) == [0] * 8
    with pytest.raises(UnsupportedFeature, match=r"'clustering.incremental' = 'true': plan a compaction without"):
        table.compact(order_by=["a"])
    own = {"bucket": "2", "bucket-key": "a", "bucket-append-ordered": "false"}
    given = {**OPTIONS, **own}
    bucketed = catalog(tmp_path).create_table("db.b", Schema(FIELDS, options=given))
    for seed in range(7):
        bucketed.write(rows(100, seed))
    assert max(levels(bucketed)) > 0 and len(content(bucketed)) == 700
    assert_whole(bucketed)


def test_the_procedure_is_minor_by_default(tmp_path: Path) -> None:
    table = clustered(tmp_path)
    table.write(rows(200))
    house = Catalog(tmp_path / "wh", clock=FixedClock(NOW))
    prepare_call(house, "CALL sys.compact(`table` => 'db.h')").apply()
    assert set(levels(table)) == {0}
    prepare_call(house, "CALL sys.compact(`table` => 'db.h', compact_strategy => 'full')").apply()
    assert set(levels(house.table("db.h"))) == {5}


@pytest.mark.parametrize(
    ("keys", "options", "message"),
    [
        (["a"], {"bucket": "1"}, "clustering.incremental"),
        ([], {"bucket": "2", "bucket-key": "a"}, "bucket-append-ordered"),
        (
            [],
            {"bucket": "2", "bucket-key": "a", "bucket-append-ordered": "false", "deletion-vectors.enabled": "true"},
            "deletion-vectors.enabled",
        ),
    ],
)
def test_what_java_refuses_is_refused(tmp_path: Path, keys: list[str], options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        catalog(tmp_path).create_table("db.h", Schema(FIELDS, keys, [], {**OPTIONS, **options}))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (None, "incremental clustering without a column to sort by: set 'clustering.columns'"),
        ("dt", "incremental clustering without a column to sort by: set 'clustering.columns'"),
        ("a,tags", "incremental clustering by column 'tags' of type ARRAY<INT>"),
    ],
)
def test_tables_without_an_order_are_read_and_written_but_not_compacted(
    tmp_path: Path, columns: str | None, reason: str
) -> None:
    given = {key: value for key, value in OPTIONS.items() if key != "clustering.columns"}
    given |= {} if columns is None else {"clustering.columns": columns}
    table = catalog(tmp_path).create_table("db.h", Schema(FIELDS, [], ["dt"], given))
    table.write(rows(100))
    assert len(content(table)) == 100
    assert unsupported(table.store, Purpose.WRITE) == []
    assert unsupported(table.store, Purpose.COMPACT) == [reason]
    with pytest.raises(UnsupportedFeature):
        table.compact(full=True)
    assert health(table.store)[0].rows == 100


def test_the_option_is_acted_on() -> None:
    assert str(REGISTRY["clustering.incremental"].effect) == "acted on"
