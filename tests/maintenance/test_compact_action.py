"""Compaction plans explain themselves, leave alone what needs nothing, and never publish what they should not."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core.compact import BucketResult, BucketTask, run_bucket_task
from lsm_core.errors import CorruptFile, InvalidOption, PlanStale, UnsupportedFeature, VerificationFailed
from lsm_core.maintenance import apply_plan
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata.store import TableStore
from lsm_core.table import Catalog, Schema
from tests.maintenance.tables import HOUR, catalog, content, keyed, on_disk, rows, strays
from tests.support import data


def test_a_decline_says_its_numbers(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(4):
        table.write(rows(range(20), v=i), row_kinds=pa.array(["+I"] * 18 + ["-D"] * 2))
    plan = table.plan_maintenance("compact")
    assert not plan.items
    (declined,) = plan.declined
    assert declined.subject == "bucket-0"
    assert declined.text.startswith("4 sorted runs < 5; ")
    assert declined.text.endswith("a full compaction would drop up to 8 deletes and save one merge of 80 rows")
    assert declined.facts["sorted_runs"] == 4


def test_a_plan_says_trigger_numbers_and_tombstones(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows(range(20), v=i), row_kinds=pa.array(["+I"] * 18 + ["-D"] * 2))
    (item,) = table.plan_maintenance("compact").items
    assert item.trigger == "size-amplification"
    assert item.reason == "5 sorted runs >= 5; size amplification: all to level 5; up to 10 tombstones dropped"
    assert (item.tombstones_dropped, item.runs_before, item.runs_after) == (10, 5, 1)
    assert item.facts["amplification_percent"] > item.facts["max_amplification_percent"]


def test_a_second_compaction_finds_nothing_to_do(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True, bucket="2")
    for i in range(6):
        table.write(rows(range(i, i + 40), v=i, dt="a"))
        table.write(rows(range(i, i + 40), v=i, dt="b"))
    before = content(table)
    report = table.compact()
    assert report.verification.level == "V2"
    assert report.verification.keys_checked == 2 * 45
    assert report.rows_in == report.rows_out + sum(report.rows_dropped.values())
    assert content(table) == before
    again = table.compact()
    assert (again.snapshot_id, again.commits) == (None, 0)
    assert {item.text for item in again.declined} == {"one sorted run: nothing to merge"}


def test_partitions_and_buckets_choose(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True, bucket="2")
    for i in range(5):
        table.write(rows(range(40), v=i, dt="a"))
        table.write(rows(range(40), v=i, dt="b"))
    plan = table.plan_maintenance("compact", partitions=[{"dt": "a"}], buckets=[1])
    assert [(item.partition_text, item.bucket) for item in plan.items] == [("dt=a", 1)]
    report = table.compact(partitions=[{"dt": "b"}])
    assert report.verification.units == 2
    assert [h.sorted_runs for h in table.health({"dt": "b"})] == [1, 1]
    assert [h.sorted_runs for h in table.health({"dt": "a"})] == [5, 5]


def test_tombstones_of_tables_with_a_sequence_field_outlive_compaction_when_asked(tmp_path: Path) -> None:
    options = {"sequence__field": "v", "dredge__tombstone_retention": "10 h"}
    table = keyed(tmp_path, **options)
    for i in range(5):
        table.write(rows([1, 2], v=10 * i), row_kinds=pa.array(["+I", "-D"]))
    (item,) = table.plan_maintenance("compact").items
    assert not item.drop_delete and item.tombstones_dropped == 0
    report = table.compact()
    assert "delete-at-bottom" not in report.rows_dropped
    table.write(rows([2], v=-50))  # late and older: must stay deleted
    assert [row[0] for row in content(table)] == [1]
    table.store.clock.advance(11 * HOUR)
    assert table.plan_maintenance("compact", full=True).items[0].drop_delete


@pytest.mark.parametrize("removing", ["on_delete", "on_sequence_group"])
def test_a_kept_delete_of_partial_update_would_keep_no_late_row_away(tmp_path: Path, removing: str) -> None:
    options = {"merge_engine": "partial-update", "dredge__tombstone_retention": "10 h"}
    if removing == "on_delete":
        options["partial-update__remove_record_on_delete"] = "true"
    else:
        options |= {"fields__v__sequence_group": "s", "partial-update__remove_record_on_sequence_group": "v"}
    table = keyed(tmp_path, **options)
    given = {"k": [1], "v": [50], "s": ["deleted"]}
    late = pa.table({"k": [1], "v": [3], "s": pa.array([None], pa.string())})
    table.write(given)
    table.write(given, row_kinds=["-D"])
    assert content(table) == []
    table.write(late)
    assert [row[0] for row in content(table)] == [1], "though the delete is still there"
    assert content(table)[0][2] == "deleted"
    other = keyed(tmp_path, name="db.other", **options)
    other.write(given)
    other.write(given, row_kinds=["-D"])
    assert other.plan_maintenance("compact", full=True).items[0].drop_delete
    other.compact(full=True)
    other.write(late)
    assert content(other) == [(1, 3, None)]


def test_an_input_that_moved_makes_only_its_bucket_stale(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="2")
    for i in range(5):
        table.write(rows(range(40), v=i))
    before = content(table)
    plan = table.plan_maintenance("compact")
    assert len(plan.items) == 2
    table.compact(buckets=[0])
    report = apply_plan(table.store, plan)
    assert [item.bucket for item in report.stale] == [0]
    assert report.verification.units == 1
    assert content(table) == before
    assert [h.sorted_runs for h in table.health()] == [1, 1]


def test_a_bucket_that_loses_its_inputs_while_it_runs_is_dropped_and_the_rest_commits(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="2")
    for i in range(5):
        table.write(rows(range(40), v=i))
    before = content(table)
    plan = table.plan_maintenance("compact")

    def racing(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
        results = [run_bucket_task(store, task, ReferenceJudge()) for task in tasks]
        table.compact(buckets=[1])
        yield from results

    report = apply_plan(table.store, plan, runner=racing)
    assert [item.bucket for item in report.stale] == [1]
    assert report.commits == 1
    assert content(table) == before
    assert not strays(table)


def test_failed_work_leaves_no_file_and_no_commit(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="2")
    for i in range(5):
        table.write(rows(range(40), v=i))
    before = on_disk(table)

    def failing(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
        yield run_bucket_task(store, tasks[0])
        raise VerificationFailed("V2", ["key 1"])

    with pytest.raises(VerificationFailed):
        apply_plan(table.store, table.plan_maintenance("compact"), runner=failing)
    assert on_disk(table, without=("dredge",)) == before
    entry = table.ledger()[-1]
    assert entry.outcome == "failed" and "VerificationFailed" in (entry.error or "")


def test_a_damaged_input_is_named_and_nothing_is_published(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows(range(40), v=i))
    victim = next(Path(table.store.root).rglob("bucket-0/*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-40])
    with pytest.raises(CorruptFile, match=victim.name):
        table.compact()
    assert table.latest_snapshot().id == 5
    assert not strays(table)


def test_small_files_of_append_tables_are_packed_once(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("dt", pa.string())])
    table = catalog(tmp_path).create_table("db.a", Schema(schema, [], ["dt"], {"bucket": "-1"}))
    for i in range(6):
        table.write(pa.table({"a": range(10), "dt": ["x"] * 10}))
        if i < 3:
            table.write(pa.table({"a": range(10), "dt": ["y"] * 10}))
    before = content(table)
    plan = table.plan_maintenance("compact")
    assert [(item.partition_text, item.reason) for item in plan.items] == [("dt=x", "6 small files >= 5 -> 1 bin")]
    assert [item.text for item in plan.declined] == ["3 small files < 5 (3 in all)"]
    report = table.apply(plan)
    assert (report.files_in, report.files_out, report.rows_out) == (6, 1, 60)
    assert content(table) == before
    assert not table.plan_maintenance("compact").items
    (item,) = table.plan_maintenance("compact", full=True).items
    assert item.reason == "3 small files; full compaction asked for -> 1 bin"
    full = table.compact(full=True)
    assert (full.files_in, full.files_out) == (3, 1)
    assert content(table) == before


def test_untouched_files_only_change_their_level(tmp_path: Path) -> None:
    table = keyed(tmp_path, target_file_size="8 kb", compaction__small_file_ratio="0.1")
    for i in range(5):
        table.write(rows(range(i * 100, i * 100 + 100)))
    report = table.compact(full=True)
    assert (report.files_upgraded, report.files_in, report.bytes_out) == (5, 0, 0)
    assert {level for h in table.health() for level in h.bytes_per_level} == {5}


@pytest.mark.parametrize("name", ["dedup_levels", "append_unaware"])
def test_tables_that_cannot_be_kept_up_are_refused_before_any_file(tmp_path: Path, name: str) -> None:
    data.unpack_golden(name, tmp_path)
    table = Catalog(tmp_path / "warehouse").table("db.t").copy({"commit.callbacks": "com.example.Callback"})
    before = on_disk(table)
    with pytest.raises(UnsupportedFeature):
        table.plan_maintenance("compact")
    with pytest.raises(UnsupportedFeature):
        table.compact(full=True)
    assert on_disk(table) == before


def test_a_plan_that_drops_deletes_is_stale_once_older_files_lie_below(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows(range(10), v=i), row_kinds=pa.array(["-D"] * 10))
    plan = table.plan_maintenance("compact")
    table.write(rows(range(10)), overwrite=True)
    report = table.apply(plan)
    assert report.snapshot_id is None and len(report.stale) == 1
    assert len(content(table)) == 10


def test_options_changed_between_plan_and_apply_are_named(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows(range(10), v=i))
    plan = table.copy({"target-file-size": "1 mb"}).plan_maintenance("compact")
    with pytest.raises(PlanStale, match="target-file-size"):
        table.apply(plan)


@pytest.mark.parametrize("plan", [None, "compact", {}])
def test_what_is_no_plan_is_named_and_leaves_no_record(tmp_path: Path, plan: Any) -> None:
    table = keyed(tmp_path)
    with pytest.raises(InvalidOption, match="'plan' of table db"):
        table.apply(plan)
    assert table.ledger() == []


def test_level_zero_of_a_first_row_table_moves_up_at_once_or_gently(tmp_path: Path) -> None:
    radical = keyed(tmp_path / "radical", merge_engine="first-row")
    radical.write(rows(range(10)))
    (item,) = radical.plan_maintenance("compact").items
    assert (item.trigger, item.output_level) == ("force-level-0", 5)
    assert radical.to_arrow().num_rows == 0
    radical.compact()
    assert radical.to_arrow().num_rows == 10
    gentle = keyed(
        tmp_path / "gentle",
        merge_engine="first-row",
        lookup_compact="gentle",
        lookup_compact__max_interval="3",
        num_sorted_run__compaction_trigger="3",
        compaction__max_size_amplification_percent="100000",
        compaction__size_ratio="0",
    )
    gentle.write(rows(range(5000)))
    gentle.compact(full=True)
    gentle.write(rows([1, 6000]))
    (declined,) = gentle.plan_maintenance("compact").declined
    assert declined.reason == "waiting"
    assert "; level 0 is forced up once in 3 decisions, this is number 1; " in declined.text
    assert (declined.facts["skipped_calls"], declined.facts["every_calls"], declined.facts["sorted_runs"]) == (1, 3, 2)


def test_off_peak_hours_are_those_of_the_machines_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = keyed(
        tmp_path,
        num_sorted_run__compaction_trigger="3",
        compaction__size_ratio="0",
        compaction__max_size_amplification_percent="100000",
        compaction__offpeak__start__hour="22",
        compaction__offpeak__end__hour="23",
        compaction__offpeak_ratio="100",
    )
    table.write(rows(range(20_000)))
    table.compact(full=True)
    table.write(rows(range(900)))
    table.write(rows(range(500)))
    assert time.gmtime(table.store.clock.now_ms() // 1000).tm_hour == 22
    decided = []
    for zone in ("UTC0", "AHEAD-2"):
        with monkeypatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            decided.append(table.plan_maintenance("compact"))
    time.tzset()
    assert [item.trigger for item in decided[0].items] == ["size-ratio"]
    assert decided[0].items[0].facts["size_ratio_percent"] == 100
    assert decided[1].declined[0].facts["size_ratio_percent"] == 0
