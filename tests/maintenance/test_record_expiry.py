"""Record-level expiry: compactions leave out rows that are over at their plan's clock, reads never do, and no third answer appears."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Schema, Table
from lsm_core.clock import FixedClock
from lsm_core.compact import BucketResult, BucketTask, rewrite, run_bucket_task
from lsm_core.compact.pieces import join
from lsm_core.errors import PlanStale, VerificationFailed
from lsm_core.format.binary_row import encode_row
from lsm_core.maintenance import CompactionReport, MaintenancePlan, apply_plan
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.read.key_range import KeyRange
from lsm_core.read.prune import living_at
from lsm_core.types import parse, to_arrow
from tests.maintenance.tables import HOUR, NOW
from tests.support.stores import live_files

NOW_S = NOW // 1000
EDGE = NOW_S - 3600
"""The last second that is over at NOW is the one before."""
OLD, FRESH = EDGE - 1, EDGE
EXPIRY = {"bucket": "1", "record-level.expire-time": "1 h", "record-level.time-field": "t"}


def dated(root: Path, kind: str = "INT", **options: str) -> Table:
    """Keys k with a time t and a value v; options with _ for - and __ for . in their names."""
    warehouse = Catalog(root / "wh", clock=FixedClock(NOW))
    warehouse.create_database("db", ignore_if_exists=True)
    fields = [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("t", to_arrow(parse(kind))),
        pa.field("v", pa.int64()),
    ]
    given_options = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return warehouse.create_table("db.t", Schema(pa.schema(fields), ["k"], options={**EXPIRY, **given_options}))


def put(table: Table, *rows: tuple[int, int | None, int], kind: str = "+I") -> None:
    names = ("k", "t", "v")
    columns = [[row[i] for row in rows] for i in range(3)]
    shape = table.store.schema.arrow_schema
    arrays = [
        pa.array(column, pa.int64()).cast(shape.field(name).type) for name, column in zip(names, columns, strict=True)
    ]
    table.write(pa.table(arrays, schema=shape), row_kinds=pa.array([kind] * len(rows)))


def answer(table: Table, snapshot_id: int | None = None) -> dict[int, int]:
    found = table.to_arrow(snapshot_id=snapshot_id)
    return dict(zip(found.column("k").to_pylist(), found.column("v").to_pylist(), strict=True))


@pytest.mark.parametrize("kind", ["INT", "BIGINT", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)"])
def test_a_compaction_leaves_out_what_is_over_and_a_read_does_not(tmp_path: Path, kind: str) -> None:
    table = dated(tmp_path, kind)
    scale = {"ms": 10**3, "us": 10**6}.get(getattr(to_arrow(parse(kind)), "unit", ""), 1)
    put(table, (1, OLD * scale, 10), (2, FRESH * scale, 20), (3, None, 30))
    put(table, (4, OLD * scale, 40), (5, (NOW_S + 5) * scale, 50))
    before = answer(table)
    assert before == {1: 10, 2: 20, 3: 30, 4: 40, 5: 50}
    report = table.compact(full=True)
    assert answer(table) == {2: 20, 3: 30, 5: 50}
    assert (report.rows_in, report.rows_out, dict(report.rows_dropped)) == (5, 3, {"expired": 2})
    assert report.verification.level == "V2"
    assert answer(table, 2) == before
    assert table.verify(2, 3).ok


def test_an_older_version_that_lives_survives_a_newer_one_that_is_over(tmp_path: Path) -> None:
    table = dated(tmp_path)
    put(table, (1, FRESH, 10), (2, FRESH, 20), (3, OLD, 30))
    put(table, (1, OLD, 11))
    put(table, (2, OLD, 21), (3, OLD, 31), kind="-D")
    assert answer(table) == {1: 11}
    table.compact(full=True)
    assert answer(table) == {1: 10, 2: 20}


def test_the_clock_is_the_plans_wherever_and_whenever_it_is_applied(tmp_path: Path) -> None:
    table = dated(tmp_path)
    put(table, (1, OLD, 10), (2, FRESH, 20))
    put(table, (3, FRESH, 30))
    plan = table.plan_maintenance("compact", full=True)
    assert plan.items[0].expire_at_ms == NOW
    table.store.clock.advance(10 * HOUR)
    later = MaintenancePlan.from_json(plan.to_json())
    assert later == plan
    table.apply(later)
    assert answer(table) == {2: 20, 3: 30}
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None and (snapshot.properties or {})["dredge.expired-at"] == str(NOW)
    assert table.verify(2, 3).ok


def test_a_plan_whose_clock_was_turned_is_refused(tmp_path: Path) -> None:
    table = dated(tmp_path)
    put(table, (1, FRESH, 10))
    plan = table.plan_maintenance("compact", full=True)
    text = plan.to_json().replace(f'"expire_at_ms": {NOW}', f'"expire_at_ms": {NOW + 10 * HOUR}')
    assert text != plan.to_json()
    with pytest.raises(PlanStale, match="changed after planning"):
        MaintenancePlan.from_json(text)


def test_a_compacted_table_is_rewritten_file_by_file_where_rows_are_over(tmp_path: Path) -> None:
    table = dated(tmp_path, target_file_row_num="10")
    put(table, *((key, NOW_S + (-HOUR // 1000 + 60 if 10 <= key < 20 else 0), key) for key in range(40)))
    table.compact(full=True)
    ((_, files),) = live_files(table.store).items()
    assert [file.row_count for file in files] == [10] * 4
    again = table.compact(full=True)
    assert again.commits == 0 and again.declined[0].reason == "already-compacted"
    table.store.clock.advance(2 * 60_000)
    (item,) = table.plan_maintenance("compact", full=True).items
    assert (item.by_file, len(item.inputs), item.runs_before, item.runs_after) == (True, 1, 1, 1)
    assert item.facts["expired_files"] == 1
    assert item.reason.endswith(
        "full compaction asked for: 1 of 4 files rewritten one by one, as they hold expired rows"
    )
    report = table.compact(full=True)
    assert (report.files_in, report.files_out, report.rows_in, dict(report.rows_dropped)) == (1, 0, 10, {"expired": 10})
    assert sorted(answer(table)) == [*range(10), *range(20, 40)]
    kept = {file.file_name for file in next(iter(live_files(table.store).values()))}
    assert kept < {file.file_name for file in files} and len(kept) == 3
    table.verify(report.snapshot_id - 1, report.snapshot_id)  # type: ignore[operator]


def test_a_lone_large_file_is_upgraded_unless_it_holds_rows_that_are_over(tmp_path: Path) -> None:
    for old, rewritten in ((FRESH, False), (OLD, True)):
        table = dated(tmp_path / str(old), compaction__small_file_ratio="0")
        put(table, (1, old, 10), (2, NOW_S, 20))
        put(table, (8, NOW_S, 80))
        (item,) = table.plan_maintenance("compact", full=True).items
        assert len(item.upgrades) == (1 if rewritten else 2)
        table.compact(full=True)
        assert (1 in answer(table)) is not rewritten


def test_without_statistics_a_compacted_table_is_left_alone_unless_all_files_are_rewritten(tmp_path: Path) -> None:
    table = dated(tmp_path, metadata__stats_mode="none")
    put(table, (1, FRESH, 10), (2, NOW_S, 20))
    table.compact(full=True)
    table.store.clock.advance(HOUR // 2)
    assert table.compact(full=True).commits == 0
    forced = table.copy({"compaction.force-rewrite-all-files": "true"})
    assert dict(forced.compact(full=True).rows_dropped) == {"expired": 1}
    assert answer(table) == {2: 20}


def minor(root: Path, **options: str) -> Table:
    """A large run with old times at the top, a small one in the middle, and two new ones: the two are picked."""
    table = dated(root, num_sorted_run__compaction_trigger="3", compaction__size_ratio="50", **options)
    put(table, *((key, OLD, key) for key in range(2_000)))
    early = table.copy({"record-level.expire-time": "1000 d"})
    early.compact(full=True)
    return table


def test_a_unit_with_rows_that_are_over_is_closed_and_one_without_is_not(tmp_path: Path) -> None:
    table = minor(tmp_path / "over")
    put(table, (1, OLD, -1))
    put(table, (2, NOW_S, -2))
    plan = table.plan_maintenance("compact")
    assert plan.items[0].full and plan.items[0].facts["closed_files"] == 3
    (health,) = table.health()
    assert health.facts["closed_files"] == 3
    assert health.cost_minor == health.total_bytes
    table.apply(plan)
    assert answer(table) == {2: -2}
    free = minor(tmp_path / "free")
    put(free, (1, NOW_S, -1))
    put(free, (2, NOW_S, -2))
    plan = free.plan_maintenance("compact")
    assert len(plan.items[0].inputs) == 2
    before = answer(free)
    free.apply(plan)
    assert answer(free) == before


def test_as_paimon_uncovers_the_older_version_and_content_at_the_clock_stays(tmp_path: Path) -> None:
    table = minor(tmp_path, dredge__compaction__order_sensitive="as-paimon")
    put(table, (1, OLD, -1))
    put(table, (2, NOW_S, -2))
    report = table.compact()
    assert report.files_in == 2
    assert answer(table)[1] == 1  # what Paimon does: the row of before the update is back
    assert report.changed_keys == 0
    assert (
        "1 expired rows of db.t are gone; older versions of them may be read until a full compaction"
        in report.warnings[0]
    )
    assert report.snapshot_id is not None and table.verify(report.snapshot_id - 1, report.snapshot_id).ok


@pytest.mark.parametrize("clock", [None, NOW + 2 * HOUR], ids=["expires nothing", "expires too much"])
def test_the_judge_stops_a_rewrite_at_another_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: int | None
) -> None:
    table = dated(tmp_path)
    put(table, (1, OLD, 10), (2, FRESH, 20))
    put(table, (3, NOW_S, 30))
    monkeypatch.setattr(rewrite, "living_at", lambda store, now_ms: living_at(store, clock))
    with pytest.raises(VerificationFailed) as caught:
        table.compact(full=True)
    assert caught.value.level == "V2"
    assert answer(table) == {1: 10, 2: 20, 3: 30}


def test_verify_tells_a_row_that_did_not_expire_from_one_that_did(tmp_path: Path) -> None:
    table = dated(tmp_path)
    put(table, (1, OLD, 10), (2, FRESH, 20))
    table.compact(full=True)
    assert table.verify(1, 2).ok
    put(table, (2, FRESH, 21))
    assert not table.verify(2, 3).ok


TIMES = st.sampled_from([None, OLD - 5000, OLD, FRESH, NOW_S, NOW_S + 5000])
VERSION = st.tuples(st.integers(0, 5), TIMES, st.sampled_from(["+I", "+I", "+U", "-D"]))
STEP = st.one_of(st.lists(VERSION, min_size=1, max_size=6), st.sampled_from(["minor", "full", "later"]))
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "first_row": {"merge-engine": "first-row", "ignore-delete": "true"},
    "partial_update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "max": {
        "merge-engine": "aggregation",
        "fields.default-aggregate-function": "last_non_null_value",
        "fields.t.aggregate-function": "max",
        "fields.t.ignore-retract": "true",
        "fields.v.aggregate-function": "sum",
    },
}


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(engine=st.sampled_from(sorted(ENGINES)), life=st.lists(STEP, min_size=2, max_size=9))
def test_every_key_says_what_it_said_or_what_it_says_at_the_clock(
    engine: str, life: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After any compaction a key's answer is that of before, or that of merging its living versions: never a third."""
    table = dated(tmp_path_factory.mktemp("life"), num_sorted_run__compaction_trigger="2")
    table = alike(table, engine)
    number = 0
    for step in life:
        if step == "later":
            table.store.clock.advance(HOUR // 2)
        elif isinstance(step, str):
            before = everything(table)
            alive = everything(table, expired_left_out=True)
            report = table.compact(full=step == "full")
            after = everything(table)
            for key in before.keys() | after.keys():
                assert after.get(key) in (before.get(key), alive.get(key)), (key, life)
            if step == "full" and report.commits:
                assert after == alive
            if report.snapshot_id is not None:
                assert table.verify(report.snapshot_id - 1, report.snapshot_id).ok
        else:
            for kind in ("+I", "+U", "-D"):
                rows = [(key, time, number + i) for i, (key, time, mine) in enumerate(step) if mine == kind]
                if rows:
                    put(table, *rows, kind=kind)
            number += len(step)


def alike(table: Table, engine: str) -> Table:
    """A table of the same shape with another merge engine."""
    catalog = Catalog(Path(table.store.root).parent.parent, clock=table.store.clock)
    options = {**table.options, **ENGINES[engine]}
    return catalog.create_table(f"db.{engine}", Schema(table.store.schema.arrow_schema, ["k"], options=options))


def everything(table: Table, expired_left_out: bool = False) -> dict[int, tuple[Any, ...]]:
    """The merged rows of all files, level 0 of first-row tables too; at the clock if asked for."""
    from lsm_core.read import read_bucket_merged

    store = table.store
    living = living_at(store, store.clock.now_ms()) if expired_left_out else None
    found: dict[int, tuple[Any, ...]] = {}
    for (partition, bucket), files in live_files(store).items():
        for batch in read_bucket_merged(store, partition, bucket, files, living=living):
            columns = [batch.column(name).to_pylist() for name in ("k", "t", "v")]
            found.update({row[0]: row for row in zip(*columns, strict=True)})
    return found


def test_a_task_without_a_clock_lets_nothing_expire(tmp_path: Path) -> None:
    from lsm_core.maintenance.actions.compact.execution import execute, local_runner

    table = dated(tmp_path)
    put(table, (1, OLD, 10))
    put(table, (2, OLD, 20))
    plan = table.plan_maintenance("compact", full=True)
    bare = replace(plan, items=tuple(replace(item, expire_at_ms=None) for item in plan.items))
    done = execute(table.store, bare, local_runner(None))
    assert done.snapshot_id is not None
    assert answer(table) == {1: 10, 2: 20}


def test_pieces_and_workers_let_the_same_rows_expire(tmp_path: Path) -> None:
    """A task crosses a process as bytes and is cut by key: the clock goes with every piece."""
    table = dated(tmp_path)
    for write in range(3):
        put(table, *((key, (OLD, FRESH, None)[(key + write) % 3], 100 * write + key) for key in range(60)))
    alive = everything(table, expired_left_out=True)

    def runner(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
        for task in tasks:
            cuts = [encode_row((key,), store.schema.trimmed_key_types) for key in (7, 30)]
            ranges = [KeyRange(*ends) for ends in itertools.pairwise([None, *cuts, None])]
            pieces = [BucketTask.from_bytes(replace(task, piece=bounds).to_bytes()) for bounds in ranges]
            yield join(store, pieces, [run_bucket_task(store, piece, ReferenceJudge()) for piece in pieces])

    report = apply_plan(table.store, table.plan_maintenance("compact", full=True), runner)
    assert isinstance(report, CompactionReport)
    assert report.verification.level == "V2"
    assert report.rows_in == 180 == report.rows_out + sum(report.rows_dropped.values())
    assert report.rows_dropped["expired"] == 60
    assert everything(table) == alive
    assert table.verify(3, 4).ok
