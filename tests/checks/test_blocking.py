"""Sabotage after publishing: the blocking check fails, what hangs on the layout does not run, and the table must rest."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dredge.checks import merged_view
from dredge.orchestration.ops import layout_ops
from dredge.orchestration.sensors.table_states import evaluate_states
from dredge.platform_core import names
from dredge.platform_core.obstacles import find_blocking_failure, find_failed_checks
from dredge.platform_core.policies import policy_source
from dredge.platform_core.policies.table_state import TableState
from dredge.platform_core.resources import SparkResource
from lsm_core import Table
from lsm_core.cli.app import run as run_cli
from lsm_core.clock import utc_text
from lsm_core.errors import UnsupportedFeature
from lsm_core.format.deletion_vector import DeletionVector, index_file
from lsm_core.maintenance import apply_plan
from lsm_core.maintenance.checks import metadata_validity
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import index_file_path
from tests.support.platform import (
    KEYED,
    House,
    commit,
    compacted_file,
    evaluations,
    keyed_table,
    open_house,
    sabotage,
)
from tests.support.samples import sample

KINDS = ("drop", "revive", "swap")
MART = "mart"


def kinds(one: str) -> pytest.MarkDecorator:
    """Parametrise ``kind``: one kind of sabotage, and, as soak tests, the others, which differ only in what the comparison finds."""
    others = [pytest.param(kind, marks=pytest.mark.soak) for kind in KINDS if kind != one]
    return pytest.mark.parametrize("kind", [one, *others])


def with_mart(root: Path) -> dg.Definitions:
    """A user's asset that hangs on the layout, and a job over both."""
    layout = names.WarehouseNames.of(str(root)).layout_key("shop.orders")

    @dg.asset(name=MART, deps=[layout])
    def mart() -> None: ...

    job = dg.define_asset_job("both", dg.AssetSelection.assets(layout, MART), executor_def=dg.in_process_executor)
    return dg.Definitions(assets=[mart], jobs=[job])


def house_with_backlog(tmp_path: Path, runner: str = "local") -> Any:
    root = tmp_path / "wh"
    commit(keyed_table(root, partitioned=False), 5)
    return open_house(root, extra=with_mart(root), DREDGE_RUNNER=runner)


def materialised(result: dg.ExecuteInProcessResult) -> set[str]:
    return {event.asset_key.path[-1] for event in result.get_asset_materialization_events() if event.asset_key}


def between_record_and_check(house: House, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Sabotage just before the check looks."""
    compare: Callable[..., Any] = merged_view.compare_with_previous

    def after_sabotage(*arguments: Any) -> Any:
        sabotage(house.warehouse.table("shop.orders"), kind)
        return compare(*arguments)

    monkeypatch.setattr(merged_view, "compare_with_previous", after_sabotage)


def assert_blocked(house: House, result: dg.ExecuteInProcessResult) -> None:
    """The run failed at the check; the mart did not run; nothing more is started, nothing expires."""
    assert not result.success
    assert not evaluations(result)["merged_view_unchanged"][0]
    assert MART not in materialised(result)
    reason = find_blocking_failure(house.instance, house.layout("shop.orders"))
    assert reason is not None
    assert reason.startswith("blocked: merged_view_unchanged failed")
    commit(house.warehouse.table("shop.orders"), 5)
    tick = house.tick(names.SORTED_RUN_SENSOR)
    assert not tick.run_requests
    assert any(
        "decline (blocked by a failed check): blocked: merged_view_unchanged failed" in line
        for line in house.lines(tick)
    )
    snapshots = [snapshot.id for snapshot in house.warehouse.table("shop.orders").snapshots()]
    assert house.execute(names.RETENTION_JOB).success
    assert [snapshot.id for snapshot in house.warehouse.table("shop.orders").snapshots()] == snapshots


def test_without_sabotage_the_mart_runs(tmp_path: Path) -> None:
    with house_with_backlog(tmp_path) as house:
        result = house.execute("both")
        assert result.success
        assert materialised(result) == {"orders_layout", MART}


@kinds("revive")
def test_sabotage_after_publishing_fails_the_check_and_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with house_with_backlog(tmp_path) as house:
        between_record_and_check(house, monkeypatch, kind)
        result = house.execute("both")
        assert_blocked(house, result)
        table = house.warehouse.table("shop.orders")
        output = evaluations(result)["merged_view_unchanged"][1]
        assert "tag 'before-compaction-6' keeps the files of snapshot 5" in output
        run = next(entry.run_id for entry in table.ledger() if entry.snapshot_id == 6)
        assert (
            f"undo: `dredge undo shop.orders {run} --allow-changes -w {tmp_path / 'wh'}`, then execute this" in output
        )
        assert table.tags()["before-compaction-6"].snapshot.id == 5


@kinds("drop")
def test_the_verify_op_stops_the_run_before_it_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with house_with_backlog(tmp_path) as house:

        def sabotaged(*arguments: Any, **rest: Any) -> Any:
            report = apply_plan(*arguments, **rest)
            sabotage(house.warehouse.table("shop.orders"), kind)
            return report

        monkeypatch.setattr(layout_ops, "apply_plan", sabotaged)
        result = house.execute("both")
        assert not result.success
        assert materialised(result) == set()
        assert set(house.warehouse.table("shop.orders").tags()) == {"before-compaction-6"}
        reason = find_blocking_failure(house.instance, house.layout("shop.orders"))
        assert reason is not None
        assert "merged_view_unchanged failed" in reason


def test_the_block_ends_when_the_check_passes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with house_with_backlog(tmp_path) as house:
        layout = house.layout("shop.orders")
        with monkeypatch.context() as patched:
            patched.setattr(merged_view, "compare_with_previous", lambda *_: _differs())
            assert not house.execute("both").success
        assert find_blocking_failure(house.instance, layout) is not None
        check = dg.AssetCheckKey(layout, names.MERGED_VIEW_CHECK)
        job = dg.define_asset_job("check_again", dg.AssetSelection.checks(check), executor_def=dg.in_process_executor)
        house.extra = dg.Definitions.merge(house.extra or dg.Definitions(), dg.Definitions(jobs=[job]))
        house.load()
        assert house.execute("check_again").success
        assert find_blocking_failure(house.instance, layout) is None


@pytest.fixture
def _pages_without_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files as Dredge wrote them once: a changed byte is another value, not a file that cannot be read."""
    writer = pq.ParquetWriter
    monkeypatch.setattr(
        pq, "ParquetWriter", lambda *args, **kwargs: writer(*args, **{**kwargs, "write_page_checksum": False})
    )


def with_damage(house: House, monkeypatch: pytest.MonkeyPatch) -> str:
    """A compaction that published a wrong value: its run fails before anything is recorded. Its entry in the ledger."""

    def damaged(*arguments: Any, **rest: Any) -> Any:
        report = apply_plan(*arguments, **rest)
        file = Path(compacted_file(house.warehouse.table("shop.orders")))
        file.write_bytes(file.read_bytes().replace(b"4/120", b"4/999"))  # not compressed, and as long as before
        return report

    with monkeypatch.context() as patched:
        patched.setattr(layout_ops, "apply_plan", damaged)
        assert not house.maintain("shop.orders").success
    return next(entry.run_id for entry in house.warehouse.table("shop.orders").ledger() if entry.snapshot_id == 6)


def check_again(house: House, table: str = "shop.orders") -> tuple[bool, str]:
    """Execute merged_view_unchanged by itself, as a person does on its page."""
    check = dg.AssetCheckKey(house.layout(table), names.MERGED_VIEW_CHECK)
    job = dg.define_asset_job("check_again", dg.AssetSelection.checks(check), executor_def=dg.in_process_executor)
    house.extra = dg.Definitions(jobs=[job])
    house.load()
    return evaluations(house.execute("check_again"))[names.MERGED_VIEW_CHECK]


@pytest.mark.usefixtures("_pages_without_checksums")
def test_damage_blocks_until_it_is_undone_whoever_looks_or_compacts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False, **{"file.compression": "none"})
    commit(table, 5)
    before = table.to_arrow().sort_by("id")
    with open_house(tmp_path / "wh") as house:
        run = with_damage(house, monkeypatch)
        assert table.to_arrow().sort_by("id") != before
        passed, text = check_again(house)
        assert not passed, "nobody undid it"
        assert "snapshots 5 and 6 differ in bucket-0: tag 'before-compaction-6' keeps the files" in text
        layout = house.layout("shop.orders")
        undo = {"table": "shop.orders", "run_id": run, "allow_changes": True}
        assert house.execute("undo", run_config=undo).success
        assert table.to_arrow().sort_by("id") == before
        assert house.materialisation("shop.orders")["compared"] == (
            "V1: snapshot 7 undid snapshot 6: snapshots 5 and 7 have the same rows"
        )
        assert find_blocking_failure(house.instance, layout) is not None
        passed, text = check_again(house)
        assert passed
        assert text == "snapshot 7 undid snapshot 6: snapshots 5 and 7 have the same rows (V1)"
        assert find_blocking_failure(house.instance, layout) is None
        assert house.execute(names.AUDIT_JOB, run_config={"tables": 1}).success, "neither damage nor undo is audited"
        assert find_blocking_failure(house.instance, layout) is None


@pytest.mark.usefixtures("_pages_without_checksums")
def test_no_sound_compaction_frees_a_damaged_table_but_who_accepts_the_damage_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False, **{"file.compression": "none"})
    commit(table, 5)
    with open_house(tmp_path / "wh") as house:
        with_damage(house, monkeypatch)
        layout = house.layout("shop.orders")
        commit(table, 2)
        table.compact(full=True)  # by a writer, say
        assert house.execute(names.AUDIT_JOB, run_config={"tables": 1}).success
        assert find_blocking_failure(house.instance, layout) is not None
        assert not check_again(house)[0]
        table.delete_tag("before-compaction-6")
        passed, text = check_again(house)
        assert not passed
        assert "the difference was accepted: the tag 'before-compaction-6'" in text
        assert find_blocking_failure(house.instance, layout) is None, "a warning"


def test_where_spark_has_no_second_path_the_first_one_looks_again_and_the_check_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: Any) -> Any:
        raise UnsupportedFeature("comparing column 'm' of type MAP on Spark", "shop.orders")

    with house_with_backlog(tmp_path) as house:
        monkeypatch.setattr(merged_view, "compare_with_previous", cannot)
        result = house.execute("both")
        assert result.success
        passed, text = evaluations(result)["merged_view_unchanged"]
        assert passed
        assert "have the same rows" in text
        assert "compared by digests only: not supported: comparing column 'm' of type MAP on Spark" in text


def test_a_proof_that_cannot_be_read_leaves_the_comparison_by_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: Any) -> Any:
        raise UnsupportedFeature("reading the proof", "shop.orders")

    with house_with_backlog(tmp_path) as house:
        monkeypatch.setattr(merged_view, "proof_of", cannot)
        passed, text = evaluations(house.execute("both"))["merged_view_unchanged"]
        assert passed
        assert text.endswith("compared by digests only: not supported: reading the proof (table shop.orders)")


def _differs() -> Any:
    from lsm_core.maintenance import BucketDifference, VerifyReport

    return VerifyReport(
        "shop.orders", 5, 6, ok=False, rows_a=3, rows_b=2, differences=(BucketDifference("bucket-0", 3, 2, "aa", "bb"),)
    )


def test_a_partition_is_blocked_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = keyed_table(tmp_path / "wh")
    commit(table, 5, day="a")
    commit(table, 1, day="b")  # not due: neighbours that are due share a run
    commit(table, 5, day="c")
    with open_house(tmp_path / "wh") as house:
        requests = {item.partition_key: item for item in house.tick(names.SORTED_RUN_SENSOR).run_requests}
        with monkeypatch.context() as patched:
            patched.setattr(merged_view, "compare_with_previous", lambda *_: _differs())
            assert not house.run(requests["dt=a"]).success
        layout = house.layout("shop.orders")
        assert find_blocking_failure(house.instance, layout, "dt=a") is not None
        assert find_blocking_failure(house.instance, layout, "dt=c") is None
        assert find_blocking_failure(house.instance, layout) is not None
        assert house.run(requests["dt=c"]).success
        spark = SparkResource.from_environment(house.environment)
        result = house.instance, house.warehouse, spark, "shop.orders", None
        assert merged_view.merged_view_result(*result, ["dt=c"]).passed
        with monkeypatch.context() as patched:
            patched.setattr(merged_view, "compare_with_previous", lambda *_: _differs())
            both = merged_view.merged_view_result(*result, ["dt=a", "dt=c"])
        assert not both.passed, "a run over both partitions is told of each: it does not free the one that differs"


def test_no_number_of_other_partitions_makes_a_failed_one_forgotten(tmp_path: Path) -> None:
    commit(keyed_table(tmp_path / "wh"), 1)
    with open_house(tmp_path / "wh") as house:
        layout = house.layout("shop.orders")

        def evaluate(partition: str | None, *, passed: bool) -> None:
            result = dg.AssetCheckEvaluation(layout, names.MERGED_VIEW_CHECK, passed, partition=partition)
            house.instance.report_runless_asset_event(result)

        evaluate("dt=a", passed=False)
        for number in range(60):
            evaluate(f"dt={number}", passed=True)
        evaluate(None, passed=True)  # as a run over several partitions is evaluated, whichever these were
        reason = "blocked: merged_view_unchanged of dt=a failed"
        assert str(find_blocking_failure(house.instance, layout)).startswith(reason)
        assert str(find_blocking_failure(house.instance, layout, "dt=a")).startswith(reason)
        assert find_blocking_failure(house.instance, layout, "dt=b") is None
        result = find_failed_checks(house.instance, {"shop.orders": layout, "shop.other": house.layout("shop.other")})
        texts = {table: check.text for table, check in result.items()}
        assert texts == {"shop.orders": "merged_view_unchanged of dt=a failed: see its metadata"}, "watch tells of it"


def test_a_block_says_since_when_the_check_fails_without_a_pass(tmp_path: Path) -> None:
    commit(keyed_table(tmp_path / "wh", partitioned=False), 1)
    with open_house(tmp_path / "wh") as house:
        layout = house.layout("shop.orders")

        def evaluate(*, passed: bool) -> float:
            result = dg.AssetCheckEvaluation(layout, names.MERGED_VIEW_CHECK, passed)
            house.instance.report_runless_asset_event(result)
            time.sleep(0.01)
            return time.time() * 1000

        evaluate(passed=False)
        passed_ms = evaluate(passed=True)
        first_ms = evaluate(passed=False)
        evaluate(passed=False)
        (check,) = find_failed_checks(house.instance, {"shop.orders": layout}).values()
        assert passed_ms - 5 <= check.since_ms <= first_ms
        tables, policies = [house.warehouse.card("shop.orders")], policy_source("").current()
        (evaluation,) = evaluate_states(house.warehouse, house.instance, tables, policies)
        assert (evaluation.status.state, evaluation.status.since_ms) == (TableState.BLOCKED, check.since_ms)
        assert f"since {utc_text(check.since_ms)[11:16]} UTC" in evaluation.status.line(check.since_ms)
        blocked = [line for line in house.lines(house.tick(names.WATCH_SENSOR)) if "a blocking check failed" in line]
        assert len(blocked) == 1 and f"; since {utc_text(check.since_ms)[:16]} UTC; no run starts" in blocked[0]


def test_a_failure_under_a_former_name_blocks_until_the_check_passes_under_its_new_one(tmp_path: Path) -> None:
    commit(keyed_table(tmp_path / "wh", partitioned=False), 1)
    with open_house(tmp_path / "wh") as house:
        layout = house.layout("shop.orders")

        def evaluate(key: dg.AssetKey, name: str, *, passed: bool) -> dict[str, str]:
            house.instance.report_runless_asset_event(dg.AssetCheckEvaluation(key, name, passed))
            failed = find_failed_checks(house.instance, {"shop.orders": layout})
            return {table: check.text for table, check in failed.items()}

        for key, name in [
            (layout, names.FORMER_TREE_CHECK),
            (names.former_layout_key(layout), names.FORMER_TREE_CHECK),
            (names.former_layout_key(layout), names.TREE_CHECK),
        ]:
            assert evaluate(key, name, passed=False) == {"shop.orders": "tree_is_valid failed: see its metadata"}
            assert evaluate(layout, names.TREE_CHECK, passed=True) == {}


def test_overlapping_files_of_one_level_break_the_tree_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with house_with_backlog(tmp_path) as house:
        real = metadata_validity.bucket_groups

        def doubled(entries: Any) -> Any:
            return [(*place, pa.concat_tables([files, files])) for *place, files in real(entries)]

        monkeypatch.setattr(metadata_validity, "bucket_groups", doubled)
        result = house.execute("both")
        assert not result.success
        passed, text = evaluations(result)["tree_is_valid"]
        assert not passed
        assert "is listed twice" in text
        assert MART not in materialised(result)


@pytest.mark.parametrize(
    ("how", "when"),
    [
        ("lost", "before the record"),
        pytest.param("zeros", "before the record", marks=pytest.mark.soak),
        pytest.param("truncated", "afterwards", marks=pytest.mark.soak),
        pytest.param("lost", "afterwards", marks=pytest.mark.soak),
    ],
)
def test_an_unreadable_output_blocks_until_the_undo_that_the_check_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, when: str
) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False)
    commit(table, 5)
    before = table.to_arrow().sort_by("id")

    def damage() -> None:
        path = Path(compacted_file(table))
        data = path.read_bytes()
        if how == "lost":
            path.unlink()
        else:
            path.write_bytes(data[: len(data) // 2] if how == "truncated" else bytes(len(data)))

    def damaged(*arguments: Any, **rest: Any) -> Any:
        report = apply_plan(*arguments, **rest)
        damage()
        return report

    with open_house(tmp_path / "wh") as house:
        layout = house.layout("shop.orders")
        with monkeypatch.context() as patched:
            if when == "before the record":
                patched.setattr(layout_ops, "apply_plan", damaged)
            assert house.maintain("shop.orders").success == (when == "afterwards")
        if when == "afterwards":
            damage()
        passed, text = check_again(house)
        assert not passed
        run = next(entry.run_id for entry in table.ledger() if entry.snapshot_id == 6)
        command = f"undo: `dredge undo shop.orders {run} --allow-changes -w {tmp_path / 'wh'}`, then execute this"
        assert command in text
        assert find_blocking_failure(house.instance, layout) is not None
        arguments = {"table": "shop.orders", "run_id": run, "allow_changes": True}
        assert house.execute("undo", run_config=arguments).success
        assert table.to_arrow().sort_by("id") == before
        assert check_again(house) == (True, "snapshot 7 undid snapshot 6: snapshots 5 and 7 have the same rows (V1)")
        assert find_blocking_failure(house.instance, layout) is None


def by_undo(table: Table, run: str) -> None:
    table.undo(run, allow_changes=True)


def by_rollback(table: Table, run: str) -> None:
    table.rollback_to(5)


def by_rollback_as_latest(table: Table, run: str) -> None:
    table.rollback_to_as_latest(5)


def by_acceptance(table: Table, run: str) -> None:
    table.delete_tag("before-compaction-6")


@pytest.mark.usefixtures("_pages_without_checksums")
@pytest.mark.parametrize(
    "repair",
    sample([by_undo, by_rollback, by_rollback_as_latest, by_acceptance], (by_acceptance,).__contains__),
)
def test_a_repair_ends_the_block_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repair: Callable[[Table, str], None]
) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False, **{"file.compression": "none"})
    commit(table, 5)
    before = table.to_arrow().sort_by("id")
    with open_house(tmp_path / "wh") as house:
        run = with_damage(house, monkeypatch)
        layout = house.layout("shop.orders")
        assert not check_again(house)[0]
        repair(table, run)
        for _ in range(3):  # each evaluation must know of the repair, not only the first one
            check_again(house)
            assert find_blocking_failure(house.instance, layout) is None
            assert "before-compaction-6" not in table.tags() or repair is not by_acceptance, "no new tag"
        passed, text = check_again(house)
        assert passed, text
        assert (table.to_arrow().sort_by("id") == before) == (repair is not by_acceptance)
        commit(table, 5)
        assert house.maintain("shop.orders").success
        assert check_again(house)[0]
        assert find_blocking_failure(house.instance, layout) is None


@pytest.mark.usefixtures("_pages_without_checksums")
def test_an_accepted_difference_says_nothing_of_a_later_snapshot_with_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False, **{"file.compression": "none"})
    commit(table, 5)
    with open_house(tmp_path / "wh") as house:
        with_damage(house, monkeypatch)
        assert not check_again(house)[0]
        table.delete_tag("before-compaction-6")
        check_again(house)
        assert check_again(house) == (
            True,
            "snapshot 6 differed from the previous one, and the difference was accepted",
        )
        table.rollback_to(5)
        with_damage(house, monkeypatch)
        passed, text = check_again(house)
        assert not passed
        assert "snapshots 5 and 6 differ in bucket-0" in text


def _damage(path: Path, how: str) -> None:
    """Replace, cut or delete a compaction's output."""
    data = path.read_bytes()
    match how:
        case "other size":
            table = pq.read_table(path)
            pq.write_table(table.slice(1), path)
        case "other rows":
            path.write_bytes(data.replace(b"4/120", b"4/999"))
        case "truncated":
            path.write_bytes(data[: len(data) // 2])
        case _:
            path.unlink()


def _run_named_command(text: str) -> None:
    """Run the command that a check's text names, as a person pastes it."""
    command = re.search(r"`(dredge [^`]+)`, then execute this", text)
    assert command is not None, text
    program, *arguments = shlex.split(command.group(1))
    assert program == "dredge"
    assert run_cli(arguments) == 0


@pytest.mark.usefixtures("_pages_without_checksums")
@pytest.mark.parametrize("how", sample(["other size", "other rows", "truncated", "lost"], ("other rows",).__contains__))
def test_the_command_that_the_check_names_leads_back_to_green(tmp_path: Path, how: str) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False, **{"file.compression": "none"})
    commit(table, 5)
    before = table.to_arrow().sort_by("id")
    with open_house(tmp_path / "wh") as house:
        assert house.maintain("shop.orders").success
        _damage(Path(compacted_file(table)), how)
        passed, text = check_again(house)
        assert not passed
        assert find_blocking_failure(house.instance, house.layout("shop.orders")) is not None
        _run_named_command(text)
        assert table.to_arrow().sort_by("id") == before
        for _ in range(2):
            assert check_again(house)[0]
        assert find_blocking_failure(house.instance, house.layout("shop.orders")) is None
        commit(table, 5)
        assert house.maintain("shop.orders").success


def by_undo_after_expiry(table: Table, run: str) -> None:
    """Undo when only the tag keeps the inputs."""
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert 5 not in {snapshot.id for snapshot in table.snapshots()}
    table.undo(run, allow_changes=True)


@pytest.mark.parametrize("how", ["lost", pytest.param("truncated", marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "repair",
    sample(
        [by_rollback, by_rollback_as_latest, by_acceptance, by_undo_after_expiry],
        (by_rollback_as_latest,).__contains__,
    ),
)
def test_an_unreadable_output_is_repaired_for_good(
    tmp_path: Path, repair: Callable[[Table, str], None], how: str
) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False)
    commit(table, 5)
    before = table.to_arrow().sort_by("id")
    with open_house(tmp_path / "wh") as house:
        assert house.maintain("shop.orders").success
        _damage(Path(compacted_file(table)), how)
        assert not check_again(house)[0]
        run = next(entry.run_id for entry in table.ledger() if entry.snapshot_id == 6)
        repair(table, run)
        for _ in range(2):
            check_again(house)
            assert find_blocking_failure(house.instance, house.layout("shop.orders")) is None
        if repair is not by_acceptance:
            assert check_again(house)[0]
            assert table.to_arrow().sort_by("id") == before


@pytest.mark.usefixtures("_pages_without_checksums")
@pytest.mark.parametrize("restored", [True, False])
def test_a_later_whole_compaction_ends_the_block_if_its_rows_are_those_from_before(
    tmp_path: Path, restored: bool
) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False, **{"file.compression": "none"})
    commit(table, 5)
    with open_house(tmp_path / "wh") as house:
        assert house.maintain("shop.orders").success
        output = Path(compacted_file(table))
        original = output.read_bytes()
        _damage(output, "other rows")
        assert not check_again(house)[0]
        if restored:
            output.write_bytes(original)
        commit(table, 2)
        table.compact(full=True)
        output.unlink()  # as after the sweep of an expired snapshot
        for _ in range(3):
            passed, text = check_again(house)
            assert passed == restored, text
        assert (find_blocking_failure(house.instance, house.layout("shop.orders")) is None) == restored
        if restored:
            table.delete_tag("before-compaction-6")
            assert check_again(house)[0]


def vectors_table(root: Path, name: str = "shop.orders", **options: str) -> Table:
    """Create a table whose next compaction marks rows of the top level by deletion vectors."""
    options = {"deletion-vectors.enabled": "true", "compaction.total-size-threshold": "1 kb", **options}
    table = keyed_table(root, name, partitioned=False, **options)
    commit(table, 1, rows=20_000)
    table.compact(full=True)
    for number in range(5):
        rows = {"dt": ["a"] * 3, "id": [2040 + number + row for row in range(3)], "v": [f"new {number}"] * 3}
        table.write(pa.table(rows, schema=KEYED))
    return table


def vectors_index(table: Table) -> Path:
    """Return the path of the only index file with deletion vectors."""
    newest = snapshots.latest(table.store)
    assert newest is not None
    (entry,) = manifests.index_entries(table.store, newest)
    return Path(index_file_path(table.store, entry))


def _damage_index(path: Path, how: str) -> None:
    """Damage, replace or delete an index file with one deletion vector: version, size, magic, bitmap, CRC32."""
    data = path.read_bytes()
    match how:
        case "checksum":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 255]))
        case "other rows":  # a valid file of the same size that marks other rows
            positions = DeletionVector.from_bytes(data[1:], str(path), len(data) - 9).positions()
            path.write_bytes(index_file([DeletionVector.of(positions + 100)])[0])
            assert path.stat().st_size == len(data)
        case "truncated":
            path.write_bytes(data[: len(data) // 2])
        case "other version":
            path.write_bytes(b"\5" + data[1:])
        case "empty":
            path.write_bytes(b"")
        case _:
            path.unlink()


@pytest.mark.parametrize(
    "how",
    [
        "other rows",
        *(
            pytest.param(how, marks=pytest.mark.soak)
            for how in ("lost", "truncated", "checksum", "other version", "empty")
        ),
    ],
)
def test_a_damaged_index_of_deletion_vectors_leads_back_to_green(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = vectors_table(tmp_path / "wh")
    with open_house(tmp_path / "wh") as house:
        layout = house.layout("shop.orders")
        assert house.run(house.tick(names.SORTED_RUN_SENSOR).run_requests[0]).success
        rows = table.to_arrow().sort_by("id")
        assert rows.num_rows == 20_000
        _damage_index(vectors_index(table), how)
        passed, text = check_again(house)
        assert not passed
        assert find_blocking_failure(house.instance, layout) is not None
        _run_named_command(text)
        assert "readers see 15 rows put back into level 0 only after the next compaction" in capsys.readouterr().out
        for _ in range(2):
            assert check_again(house)[0]
        assert find_blocking_failure(house.instance, layout) is None
        assert house.run(house.tick(names.SORTED_RUN_SENSOR).run_requests[0]).success, "due again at once"
        assert table.to_arrow().sort_by("id") == rows
        assert check_again(house)[0]


@pytest.mark.parametrize(
    ("options", "commits", "kept"),
    [
        ({"changelog-producer": "lookup"}, 0, True),
        ({"changelog-producer": "lookup"}, 2, False),
        pytest.param({"changelog-producer": "full-compaction"}, 0, True, marks=pytest.mark.soak),
        ({"bucket": "-1"}, 0, True),
    ],
)
def test_a_compaction_that_cannot_be_undone_names_the_way_back_that_works(
    tmp_path: Path, options: dict[str, str], commits: int, kept: bool
) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False, **options)
    commit(table, 5)
    before = table.to_arrow().sort_by("id")
    with open_house(tmp_path / "wh") as house:
        assert house.maintain("shop.orders").success
        _damage(Path(compacted_file(table)), "lost")
        commit(table, commits)
        passed, text = check_again(house)
        assert not passed
        assert ("undo is not possible: plan for table shop.orders refused by rule changes-told" in text) == (
            "changelog-producer" in options
        )
        assert ("; the rows of 2 later commits must be written again" in text) != kept
        _run_named_command(text)
        for _ in range(2):
            assert check_again(house)[0]
        assert table.to_arrow().sort_by("id") == before
        assert find_blocking_failure(house.instance, house.layout("shop.orders")) is None


@pytest.mark.parametrize("how", ["lost", pytest.param("truncated", marks=pytest.mark.soak)])
def test_a_damaged_input_that_the_compaction_replaced_costs_nothing(tmp_path: Path, how: str) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False)
    commit(table, 5)
    newest = snapshots.latest(table.store)
    assert newest is not None
    entry = manifests.live_entries(table.store, newest).to_pylist()[2]
    before = table.to_arrow().sort_by("id")
    with open_house(tmp_path / "wh") as house:
        assert house.maintain("shop.orders").success
        _damage(Path(table.store.data_path(entry["partition"], entry["bucket"], entry["file_name"])), how)
        passed, text = check_again(house)
        assert not passed
        assert "the rows of snapshot 6 do not need it: put it back from a copy, or accept snapshot 6 as it is" in text
        _run_named_command(text)
        check_again(house)
        assert find_blocking_failure(house.instance, house.layout("shop.orders")) is None, "a warning"
        assert check_again(house)[0]
        assert table.to_arrow().sort_by("id") == before


@pytest.mark.parametrize("kind", ["manifest", *(pytest.param(k, marks=pytest.mark.soak) for k in ("base", "delta"))])
def test_a_lost_manifest_or_manifest_list_of_a_compaction_leads_back_to_green(tmp_path: Path, kind: str) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False)
    commit(table, 5)
    before = table.to_arrow().sort_by("id")
    with open_house(tmp_path / "wh") as house:
        assert house.maintain("shop.orders").success
        newest = snapshots.latest(table.store)
        assert newest is not None
        names_of_files = {
            "manifest": manifests.data_manifests(table.store, newest)[-1].file_name,
            "base": newest.base_manifest_list,
            "delta": newest.delta_manifest_list,
        }
        Path(table.store.manifest_path(names_of_files[kind])).unlink()
        passed, text = check_again(house)
        assert not passed
        assert "undo is not possible: it reads this file; go back: `dredge rollback shop.orders --snapshot 5" in text
        _run_named_command(text)
        for _ in range(2):
            assert check_again(house)[0]
        assert find_blocking_failure(house.instance, house.layout("shop.orders")) is None
        assert table.to_arrow().sort_by("id") == before
        commit(table, 1)
        assert house.maintain("shop.orders").success


def test_a_lost_changelog_file_fails_the_data_check_until_its_snapshot_expires(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False, **{"changelog-producer": "input"})
    commit(table, 3)
    listed = manifests.changelog_list(table.store, snapshots.read(table.store, 2))
    (entry,) = manifests.entries_of(table.store, listed or []).to_pylist()
    Path(table.store.data_path(entry["partition"], entry["bucket"], entry["file_name"])).unlink()
    with open_house(tmp_path / "wh") as house:
        config = {"tables": ["shop.orders"], "checks": ["snapshot_chain"]}
        result = house.execute("expectations", run_config=config)
        (evaluation,) = result.get_asset_check_evaluations()
        assert not evaluation.passed
        step = str(evaluation.metadata["next step"].value)
        link = re.search(r"\[launch the job expire_snapshots\]\((\S+)\)", step)
        assert link is not None
        filled_in = yaml.safe_load(parse_qs(urlsplit(link[1]).query)["config"][0])
        assert filled_in == {"table": "shop.orders", "retain_min": 1, "retain_max": 1}
        assert house.execute("expire_snapshots", run_config=filled_in).success
        (evaluation,) = house.execute("expectations", run_config=config).get_asset_check_evaluations()
        assert evaluation.passed


def test_an_expiry_by_hand_does_not_end_the_block_while_the_tag_keeps_the_snapshot_before(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "w h", "shop.it's", partitioned=False)
    commit(table, 5)
    before = table.to_arrow().sort_by("id")
    with open_house(tmp_path / "w h") as house:
        assert house.maintain("shop.it's").success
        _damage(Path(compacted_file(table)), "truncated")
        assert not check_again(house, "shop.it's")[0]
        table.expire_snapshots(retain_max=1, retain_min=1)
        passed, text = check_again(house, "shop.it's")
        assert not passed
        assert find_blocking_failure(house.instance, house.layout("shop.it's")) is not None
        _run_named_command(text)
        assert check_again(house, "shop.it's")[0]
        assert find_blocking_failure(house.instance, house.layout("shop.it's")) is None
        assert table.to_arrow().sort_by("id") == before
