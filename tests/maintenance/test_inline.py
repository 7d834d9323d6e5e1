"""Writers that maintain their table after their commits: what they compact and expire, what switches it off, and what a failure leaves."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.clock import FixedClock
from lsm_core.errors import CommitConflict, InvalidOption, VerificationFailed
from lsm_core.maintenance import MaintenancePlan, apply_plan, inline, plan_compaction
from lsm_core.maintenance.trash import read_trash
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import INLINE_VARIABLE
from lsm_core.storage import FaultyFileIO, LocalFileIO
from lsm_core.table.writing import StreamCommit
from tests.maintenance.tables import HOUR, NOW, assert_whole, content, keyed, rows, strays, with_io


@pytest.fixture(autouse=True)
def follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers of these tests maintain their tables, as everywhere but in most other tests."""
    monkeypatch.delenv(INLINE_VARIABLE, raising=False)


def kinds(table: Table) -> str:
    """The kinds of the snapshots, as first letters: "AAC"."""
    return "".join(str(snapshot.commit_kind)[0] for snapshot in snapshots.iterate(table.store))


def append(tmp_path: Path, **options: str) -> Table:
    made = Catalog(tmp_path / "wh", clock=FixedClock(NOW))
    made.create_database("db", ignore_if_exists=True)
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    fields = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.int64()), pa.field("s", pa.string())])
    return made.create_table("db.a", Schema(fields, options=given))


def write_by_commit(table: Table, data: pa.Table) -> None:
    with table.new_write() as writer:
        writer.write(data)
        messages = writer.prepare_commit()
    table.new_commit().commit(messages)


DOORS: dict[str, Callable[[Table, pa.Table], object]] = {
    "write": lambda table, data: table.write(data),
    "new_commit": write_by_commit,
    "upsert": lambda table, data: table.upsert(data),
}


@pytest.mark.parametrize("door", DOORS)
def test_the_fifth_run_of_a_bucket_is_compacted_in_a_snapshot_of_its_own(tmp_path: Path, door: str) -> None:
    table = keyed(tmp_path, bucket="2")
    for number in range(5):
        DOORS[door](table, rows(range(20), v=number))
    assert kinds(table) == "AAAAAC"
    assert {health.sorted_runs for health in table.health()} == {1}
    assert content(table) == sorted(((k, 4 + k, f"s{k}" if k % 5 else None) for k in range(20)), key=repr)


def test_only_buckets_that_the_write_touched_are_compacted(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True)
    for number in range(6):
        table.write(rows(range(5), v=number, dt="a"), compact=False)
    table.write(rows(range(5), dt="b"))
    assert kinds(table) == "A" * 7
    table.write(rows(range(5), dt="a"))
    assert {health.partition_text: health.sorted_runs for health in table.health()} == {"dt=a": 1, "dt=b": 1}


@pytest.mark.parametrize("off", ["write-only", "option", "argument", "environment", "dynamic"])
def test_what_switches_it_off(tmp_path: Path, off: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"write-only": {"write_only": "true"}, "option": {"dredge__compaction__inline": "never"}}.get(off, {})
    table = keyed(tmp_path, snapshot__num_retained__max="2", snapshot__num_retained__min="1", **options)
    if off == "environment":
        monkeypatch.setenv(INLINE_VARIABLE, "never")
    for number in range(6):
        target = table.copy({"write-only": "true"}) if off == "dynamic" else table
        target.write(rows(range(5), v=number), compact=off != "argument")
    assert "C" not in kinds(table)
    assert len(kinds(table)) == (2 if off == "argument" else 6)  # the argument concerns the compaction alone


@pytest.mark.parametrize(
    "options",
    [
        {"deletion_vectors__enabled": "true"},
        {"merge_engine": "first-row"},
        {"changelog_producer": "lookup"},
        {"force_lookup": "true"},
    ],
)
def test_rows_of_tables_that_look_keys_up_are_visible_when_the_write_returns(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = keyed(tmp_path, **options)
    for number in range(3):
        table.write(rows(range(number, number + 4), v=number))
        assert len(content(table)) == 4 + number
        assert table.last_write is not None
        assert (table.last_write.rows_unseen, table.last_write.warnings) == (0, ())
    assert kinds(table) == "ACACAC"


def test_rows_that_stay_unseen_are_reported_each_time_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = keyed(tmp_path, deletion_vectors__enabled="true", write_only="true")
    for _ in range(2):
        table.write(rows(range(3)))
        assert table.last_write is not None
        assert table.last_write.rows_unseen == 3
        assert "do not see 3 rows of this commit before the next compaction" in table.last_write.warnings[0]
    assert caplog.text.count("before the next compaction") == 1
    table.compact()
    assert len(content(table)) == 3


@pytest.mark.parametrize(("every", "expected"), [("1", "ACACACAC"), ("3", "AAACAAACAA")])
def test_full_compactions_follow_the_number_of_commits_and_give_the_changelog(
    tmp_path: Path, every: str, expected: str
) -> None:
    every_commits = {} if every == "1" else {"full_compaction__delta_commits": every}
    table = keyed(tmp_path, changelog_producer="full-compaction", **every_commits)
    writes = expected.count("A")
    for number in range(writes):
        table.write(rows(range(4), v=number))
    assert kinds(table) == expected
    files = [
        manifests.changelog_entries(table.store, snapshot).num_rows
        for snapshot in snapshots.iterate(table.store)
        if str(snapshot.commit_kind) == "COMPACT"
    ]
    assert files == [1] * expected.count("C")


def test_the_number_of_commits_counts_for_plans_and_health_too(tmp_path: Path) -> None:
    table = keyed(tmp_path, full_compaction__delta_commits="3", write_only="true")
    for number in range(2):
        table.write(rows(range(4), v=number))
    assert not plan_compaction(table.store).items
    assert table.health()[0].decision != "delta-commits"
    table.write(rows(range(4), v=3))
    (item,) = plan_compaction(table.store).items
    assert (item.trigger, item.full) == ("delta-commits", True)
    assert table.health()[0].decision == "delta-commits"
    table.compact()
    for number in range(2):
        table.write(rows(range(4), v=number))
        assert not plan_compaction(table.store).items
    table.write(rows(range(4), v=5))
    assert plan_compaction(table.store).items


def test_commits_that_expired_bring_the_full_compaction_forward(tmp_path: Path) -> None:
    table = keyed(tmp_path, full_compaction__delta_commits="9", write_only="true")
    for number in range(4):
        table.write(rows(range(4), v=number))
    assert not plan_compaction(table.store).items
    table.expire_snapshots(retain_max=2, retain_min=1)
    assert [item.trigger for item in plan_compaction(table.store).items] == ["delta-commits"]


@pytest.mark.parametrize("bucket", ["-1", "1"])
def test_small_files_of_append_tables_are_gathered(tmp_path: Path, bucket: str) -> None:
    given = {"bucket_key": "k"} if bucket == "1" else {}
    table = append(tmp_path, bucket=bucket, **given)
    for number in range(12):
        table.write(rows(range(3), v=number))
    assert kinds(table).count("C") >= 2
    assert sum(health.files for health in table.health()) < 6
    assert len(content(table)) == 36


def test_snapshots_expire_by_number_and_by_time_and_the_trash_is_swept(tmp_path: Path) -> None:
    table = keyed(
        tmp_path, snapshot__num_retained__max="3", snapshot__num_retained__min="1", snapshot__time_retained="1h"
    )
    clock = table.store.clock
    assert isinstance(clock, FixedClock)
    for number in range(5):
        table.write(rows(range(4), v=number))
    assert kinds(table) == "AAC"
    assert table.last_write is not None
    assert table.last_write.expired == (2, 3)
    waiting = len(read_trash(table.store).records)
    assert waiting
    clock.advance(2 * HOUR)
    table.write(rows(range(4), v=9))
    assert kinds(table) == "CA"
    assert table.last_write.files_swept
    assert len(read_trash(table.store).records) == 1
    assert_whole(table)


def test_a_consumer_holds_snapshots_until_it_moves_on(tmp_path: Path) -> None:
    table = keyed(tmp_path, snapshot__num_retained__max="2", snapshot__num_retained__min="1")
    table.write(rows(range(2)))
    table.reset_consumer("reader", 1)
    for number in range(4):
        table.write(rows(range(2), v=number), compact=False)
    held = kinds(table)
    table.forget_consumer("reader")
    table.write(rows(range(2)), compact=False)
    assert (held, kinds(table)) == ("AAAAA", "AA")


def test_expiry_in_the_background_ends_before_the_process_does(tmp_path: Path) -> None:
    options = {"snapshot__expire__execution_mode": "async"}
    table = keyed(tmp_path, snapshot__num_retained__max="2", snapshot__num_retained__min="1", **options)
    for number in range(4):
        table.write(rows(range(2), v=number))
        assert table.last_write is not None
        assert table.last_write.expired == ()
    inline._background().submit(lambda: None).result()
    assert kinds(table) == "AA"


@pytest.mark.parametrize("error", [CommitConflict("files-changed"), VerificationFailed("V1"), OSError("full")])
def test_a_compaction_that_fails_leaves_the_write_as_it_is_and_is_made_by_the_next(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(tmp_path)
    for number in range(4):
        table.write(rows(range(4), v=number))

    def failing(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("lsm_core.maintenance.actions.compact.execution.execute", failing)
        assert table.write(rows(range(4), v=7)) == 5
    assert table.last_write is not None
    race = isinstance(error, CommitConflict)
    (message,) = table.last_write.notes if race else table.last_write.warnings
    assert ("" if race else "the commit is done, but ") + "the new files are not compacted yet" in message
    assert kinds(table) == "AAAAA"
    assert [entry.outcome for entry in table.ledger()][:1] == ["failed"]
    table.write(rows(range(4), v=8))
    assert kinds(table) == "AAAAAAC"
    assert [row[1] for row in content(table)] == [8, 9, 10, 11]


def test_the_compaction_of_another_writer_at_the_same_time_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    table = keyed(tmp_path)
    for number in range(4):
        table.write(rows(range(4), v=number))
    planned = inline.plan_of_touched

    def beaten(store: object, snapshot_ids: Sequence[int]) -> object:
        plan = planned(table.store, snapshot_ids)
        table.compact(full=True)
        return plan

    monkeypatch.setattr(inline, "plan_of_touched", beaten)
    table.write(rows(range(4), v=7))
    assert kinds(table) == "AAAAAC"
    assert table.last_write is not None
    assert table.last_write.warnings == ()
    assert "compacted by a later commit" in table.last_write.notes[0]
    assert "compacted by a later commit" not in caplog.text  # another maintainer did the work: nothing to be warned of
    assert not strays(table)


def test_another_error_than_the_engines_own_does_not_fail_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(tmp_path)
    for number in range(4):
        table.write(rows(range(4), v=number))

    def failing(*_: object, **__: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr("lsm_core.maintenance.actions.compact.execution.execute", failing)
    assert table.write(rows(range(4), v=7)) == 5
    assert table.last_write is not None
    assert "the new files are not compacted yet: RuntimeError(" in table.last_write.warnings[0]
    assert [(entry.action, entry.outcome) for entry in table.ledger()] == [("compact", "failed")]
    assert "RuntimeError: cannot schedule" in str(table.ledger()[0].error)
    assert [row[1] for row in content(table)] == [7, 8, 9, 10]


BROKEN_STEPS = {
    "compact": "lsm_core.maintenance.actions.compact.planning.plan_compaction",
    "expire_snapshots": "lsm_core.maintenance.actions.expire_snapshots.expiry_is_due",
    "expire_partitions": "lsm_core.maintenance.actions.expire_partitions.plan_partition_expiry",
    "create_tag": "lsm_core.maintenance.automatic_tags.make_automatic_tags",
    "trash": "lsm_core.maintenance.trash.oldest_record",
}


@pytest.mark.parametrize("action", BROKEN_STEPS)
def test_an_unexpected_error_of_any_step_is_in_report_log_and_ledger_and_fails_no_write(
    tmp_path: Path, action: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = {
        "partition__expiration_time": "9999d",
        "partition__expiration_check_interval": "0s",
        "partition__timestamp_formatter": "yyyy-MM-dd",
    }
    table = keyed(tmp_path, partitioned=True, tag__automatic_creation="process-time", **options)

    def failing(*_: object, **__: object) -> None:
        raise RuntimeError("no such luck")

    with monkeypatch.context() as patch:
        patch.setattr(BROKEN_STEPS[action], failing)
        for number in range(2):
            assert table.write(rows(range(3), v=number, dt="2024-01-01")) == 1 + number
            assert table.last_write is not None
            assert "RuntimeError('no such luck')" in table.last_write.warnings[0]
    (entry,) = table.ledger()  # the same error again within the hour is in the report alone
    assert (entry.action, entry.outcome, entry.error) == (action, "failed", "RuntimeError: no such luck")
    assert caplog.text.count("no such luck") == 1
    assert len(content(table)) == 3


def test_all_commits_of_one_call_are_maintained(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True, num_sorted_run__compaction_trigger="2")
    for dt in ("a", "b"):
        table.write(rows(range(3), dt=dt), compact=False)
    committables = {}
    for number, dt in enumerate(("a", "b")):
        with table.new_write() as writer:
            writer.write(rows(range(2, 5), v=9, dt=dt))
            committables[number] = writer.prepare_commit()
    StreamCommit(table.store, "job", compact=True).filter_and_commit(committables)
    assert kinds(table) == "AAAAC"
    assert {health.partition_text: health.sorted_runs for health in table.health()} == {"dt=a": 1, "dt=b": 1}
    assert len(content(table)) == 10


def test_a_process_that_ends_expires_at_once_where_it_can_start_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    monkeypatch.setattr(inline, "_background", lambda: ended)
    options = {"snapshot__expire__execution_mode": "async"}
    table = keyed(tmp_path, snapshot__num_retained__max="2", snapshot__num_retained__min="1", **options)
    for number in range(4):
        table.write(rows(range(2), v=number))
    assert kinds(table) == "AA"


def test_a_forked_process_expires_in_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    of_parent = inline._background()
    assert inline._background() is of_parent
    process = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: -process)  # as a fork has it: the copied object without its thread
    assert inline._background() is not of_parent


def test_a_compaction_that_lost_its_race_is_planned_again_where_readers_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(tmp_path, deletion_vectors__enabled="true")
    table.write(rows(range(4)), compact=False)
    planned = inline.plan_of_touched
    plans: list[MaintenancePlan | None] = []

    def beaten(store: TableStore, snapshot_ids: Sequence[int]) -> MaintenancePlan | None:
        plan = planned(store, snapshot_ids)
        if not plans:  # another process compacts the older file alone
            assert plan is not None
            apply_plan(table.store, plan_of_first)
        plans.append(plan)
        return plan

    plan_of_first = plan_compaction(table.store)
    monkeypatch.setattr(inline, "plan_of_touched", beaten)
    table.write(rows(range(2, 6), v=7))
    assert len(plans) == 2
    assert kinds(table) == "AACC"
    assert table.last_write is not None
    assert (table.last_write.rows_unseen, table.last_write.warnings) == (0, ())
    assert len(content(table)) == 6


def test_rows_are_unseen_when_all_compactions_of_their_write_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(tmp_path, deletion_vectors__enabled="true")
    table.write(rows(range(4)), compact=False)
    planned = inline.plan_of_touched
    plan_of_first = plan_compaction(table.store)
    plans: list[MaintenancePlan | None] = []

    def beaten(store: TableStore, snapshot_ids: Sequence[int]) -> MaintenancePlan | None:
        if not plans:
            plans.append(planned(store, snapshot_ids))
            apply_plan(table.store, plan_of_first)
        return plans[0]

    monkeypatch.setattr(inline, "plan_of_touched", beaten)
    table.write(rows(range(4, 7), v=7))
    assert table.last_write is not None
    assert table.last_write.rows_unseen == 3
    assert "lost their races" in table.last_write.warnings[-1]
    assert len(content(table)) == 4


def test_unseen_rows_are_counted_when_their_snapshot_expires_during_the_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(tmp_path, deletion_vectors__enabled="true")
    table.write(rows(range(4)), compact=False)
    planned = inline.plan_of_touched
    plan_of_first = plan_compaction(table.store)

    def beaten(store: TableStore, snapshot_ids: Sequence[int]) -> MaintenancePlan | None:
        plan = planned(store, snapshot_ids)
        if plan is not None:
            apply_plan(table.store, plan_of_first)
            table.expire_snapshots(retain_max=1, retain_min=1)
        return plan

    monkeypatch.setattr(inline, "plan_of_touched", beaten)
    table.write(rows(range(4, 7), v=7))
    assert kinds(table) == "C"
    assert table.last_write is not None
    assert table.last_write.rows_unseen == 3
    assert "lost their races" in "".join(table.last_write.warnings)
    assert "not counted" not in "".join(table.last_write.warnings)


def test_rows_of_append_tables_with_deletion_vectors_are_seen_at_once(tmp_path: Path) -> None:
    table = append(tmp_path, bucket="-1", deletion_vectors__enabled="true")
    table.write(rows(range(3)))
    assert len(content(table)) == 3
    assert table.last_write is not None
    assert (table.last_write.rows_unseen, table.last_write.warnings) == (0, ())


@pytest.mark.parametrize("stride", [59, pytest.param(2, marks=(pytest.mark.soak, pytest.mark.timeout(7200)))])
def test_a_fault_at_any_step_leaves_the_rows_and_a_table_that_the_next_write_puts_right(
    tmp_path: Path, stride: int
) -> None:
    template = tmp_path / "template"
    table = keyed(template, snapshot__num_retained__max="3", snapshot__num_retained__min="1")
    for number in range(5):
        table.write(rows(range(6), v=number), compact=False)
    before = content(table)

    def fresh(name: str) -> Table:
        shutil.copytree(template, tmp_path / name)
        return Catalog(tmp_path / name / "wh", clock=f"fixed:{NOW + 2 * HOUR}").table("db.t")

    counting = FaultyFileIO(LocalFileIO())
    copy = fresh("count")
    opened = with_io(copy, counting)
    first = counting.steps + 1
    inline.after_commit(opened.store, (5,))
    assert kinds(copy)[-1] == "C"
    assert counting.steps > 60
    for step in range(first, counting.steps + 1, stride):
        for mode in ("before", "after"):
            copy = fresh(f"{step}-{mode}")
            faulty = FaultyFileIO(LocalFileIO())
            broken = with_io(copy, faulty)
            faulty.fail_at, faulty.mode = step, mode
            inline.after_commit(broken.store, (5,))  # never raises
            at = f"step {step} {mode}: {counting.log[step - 1]}"
            assert content(copy) == before, at
            assert_whole(copy)
            copy.write(rows([99]))
            assert {health.sorted_runs for health in copy.health()} <= {1, 2}, at
            assert len(content(copy)) == 7, at
            shutil.rmtree(tmp_path / f"{step}-{mode}")


def test_a_table_that_must_compact_and_must_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="force-compact' of table"):
        keyed(tmp_path, write_only="true", commit__force_compact="true")
    table = keyed(tmp_path, write_only="true")
    with pytest.raises(InvalidOption, match="write-only"):
        Catalog(tmp_path / "wh").alter_table("db.t", [SchemaChange.set_option("commit.force-compact", "true")])
    assert "commit.force-compact" not in table.refresh().options


def test_an_unknown_default_of_the_environment_is_refused_before_rows_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(tmp_path)
    monkeypatch.setenv(INLINE_VARIABLE, "bogus")
    for call in (
        lambda: table.write(rows([1])),
        lambda: table.upsert(rows([1])),
        lambda: table.delete("k = 1"),
        table.new_write,
        lambda: table.new_stream_write("job"),
    ):
        with pytest.raises(InvalidOption, match=f"'{INLINE_VARIABLE}' cannot be 'bogus'; accepted: follow, never"):
            call()
    assert table.snapshots() == []
    assert not (Path(table.store.root) / "bucket-0").exists()
    monkeypatch.setenv(INLINE_VARIABLE, "Never")
    assert table.write(rows([1])) == 1


@pytest.mark.parametrize("damage", ["snapshot", "base_manifest_list", "delta_manifest_list"])
def test_a_damaged_old_snapshot_is_named_once_with_the_repair_and_keeps_what_it_may_need(
    tmp_path: Path, damage: str
) -> None:
    table = keyed(tmp_path, snapshot__num_retained__max="2", snapshot__num_retained__min="1")
    writer = table.copy({"write-only": "true"})
    for number in range(5):
        writer.write(rows(range(5), v=number))
    damaged = Path(
        table.store.snapshot_path(3)
        if damage == "snapshot"
        else table.store.manifest_path(getattr(snapshots.read(table.store, 3), damage))
    )
    damaged.write_text("{")
    table.write(rows([1]), compact=False)
    assert table.last_write is not None
    assert table.last_write.expired == (1,)
    (warning,) = table.last_write.warnings
    assert warning.startswith("snapshot 3 is damaged, and nothing from the one before it on expires")
    assert warning.count("dredge repair db.t") == 1
    assert snapshots.list_ids(table.store) == [2, 3, 4, 5, 6]
    for number in (2, 4, 5, 6):
        assert table.to_arrow(snapshot_id=number).num_rows == 5
    table.apply(table.plan_maintenance("repair"))
    table.write(rows([1]), compact=False)
    assert snapshots.list_ids(table.store) == [6, 7]
    assert table.last_write.warnings == ()
