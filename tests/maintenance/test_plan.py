"""A plan is a value: explained, hashed over what matters, carried between processes, applied exactly or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lsm_core.errors import CorruptFile, InvalidOption, PlanStale
from lsm_core.maintenance import CompactionReport, Declined, MaintenancePlan, load_plan, save_plan
from tests.maintenance.tables import HOUR, content, keyed, on_disk, rows


def _five_runs(tmp_path: Path, **options: str):
    table = keyed(tmp_path, **options)
    for i in range(5):
        table.write(rows(range(i * 10, i * 10 + 30), v=i))
    return table


def test_a_plan_survives_json_with_its_hash(tmp_path: Path) -> None:
    table = _five_runs(tmp_path)
    plan = table.plan_maintenance("compact")
    again = MaintenancePlan.from_json(plan.to_json())
    assert again == plan
    assert again.hash == plan.hash
    expiry = table.plan_maintenance("expire_snapshots", retain_max=1)
    assert MaintenancePlan.from_json(expiry.to_json()) == expiry


def test_plans_in_the_layout_of_before_are_read_and_have_the_same_hash(tmp_path: Path) -> None:
    table = _five_runs(tmp_path)
    for plan in (table.plan_maintenance("compact"), table.plan_maintenance("expire_snapshots", retain_max=1)):
        value = json.loads(plan.to_json())
        assert MaintenancePlan.from_json(json.dumps(value, indent=2, ensure_ascii=False)) == plan
        assert value["items"] == [{"item": i.item_kind, **_as_json(i)} for i in plan.items]
        covered = {name: part for name, part in value.items() if name not in ("version", "hash", "created_ms")}
        text = json.dumps(covered, sort_keys=True, separators=(",", ":"))
        assert hashlib.sha256(text.encode()).hexdigest()[:32] == plan.hash


def _as_json(item: object) -> object:
    values = {name: v.hex() if isinstance(v, bytes) else v for name, v in dataclasses.asdict(item).items()}
    return json.loads(json.dumps(values))


def test_the_hash_covers_all_that_is_seen_and_all_that_is_applied(tmp_path: Path) -> None:
    plan = _five_runs(tmp_path).plan_maintenance("compact")
    item, left = plan.items[0], Declined("bucket-1", "too-few-runs", "1 sorted run", {"runs": 1})
    changed_inputs = dataclasses.replace(item, inputs=item.inputs[1:])
    changed_level = dataclasses.replace(item, inputs=(dataclasses.replace(item.inputs[0], level=3), *item.inputs[1:]))
    for other in (
        dataclasses.replace(plan, base_snapshot=99),
        dataclasses.replace(plan, items=(changed_inputs,)),
        dataclasses.replace(plan, items=(changed_level,)),
        dataclasses.replace(plan, items=(dataclasses.replace(item, output_level=4),)),
        dataclasses.replace(plan, items=(dataclasses.replace(item, drop_delete=not item.drop_delete),)),
        dataclasses.replace(plan, options={**plan.options, "num-levels": "9"}),
        dataclasses.replace(plan, code_version="other"),
        dataclasses.replace(plan, estimate=dataclasses.replace(plan.estimate, bytes_in=1)),
        dataclasses.replace(plan, items=(dataclasses.replace(item, reason="x"),)),
        dataclasses.replace(plan, items=(dataclasses.replace(item, facts={}),)),
        dataclasses.replace(plan, declined=(left,)),
        dataclasses.replace(plan, arguments={}),
    ):
        assert other.hash != plan.hash
    # The same plan made again is the same plan.
    assert dataclasses.replace(plan, created_ms=1).hash == plan.hash


def _paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], object]]:
    """Every plain value of a JSON text, with the way to it."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(inner, (*path, key))
    else:
        yield path, value


@pytest.mark.parametrize("action", ["compact", "expire_snapshots", "rescale", "trash", "restore"])
def test_no_figure_of_a_saved_plan_can_be_edited(tmp_path: Path, action: str) -> None:
    table = _five_runs(tmp_path)
    arguments: dict[str, object] = {"expire_snapshots": {"retain_max": 2}, "rescale": {"bucket_num": 2}}.get(action, {})
    if action in {"trash", "restore"}:
        trash_id = table.expire_snapshots(retain_max=2).trash_id
        arguments = {"trash_id": trash_id} if action == "restore" else {}
    if action == "trash":
        table.store.clock.advance(2 * HOUR)
    plan = table.plan_maintenance(action, **arguments)
    assert plan.items
    text = plan.to_json()
    for path, value in _paths(json.loads(text)):
        if path == ("created_ms",):  # the one thing that is told and not hashed: when it was made
            continue
        edited = json.loads(text)
        place = edited
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = "x" if value is None else not value if isinstance(value, bool) else f"{value}0"
        if isinstance(value, int | float) and not isinstance(value, bool):
            place[path[-1]] = value + 1
        with pytest.raises((PlanStale, CorruptFile)):
            MaintenancePlan.from_json(json.dumps(edited))


def test_a_plan_of_an_older_hash_says_so(tmp_path: Path) -> None:
    table = _five_runs(tmp_path)
    plan = table.plan_maintenance("compact")
    value = {**json.loads(plan.to_json()), "code_version": "dredge-0.1.0/plan-1", "hash": "ab" * 16}
    plans = Path(table.store.root) / "dredge" / "plans"
    plans.mkdir(parents=True)
    (plans / f"{'ab' * 16}.json").write_text(json.dumps(value))
    with pytest.raises(PlanStale, match=r"made by dredge-0\.1\.0/plan-1, this is .*; plan it again"):
        table.load_plan("ab")


def test_the_same_plan_made_later_has_the_same_hash(tmp_path: Path) -> None:
    options = {"compaction.optimization-interval": "1 d"}
    table = _five_runs(tmp_path, **options)
    table.compact(full=True)
    for i in range(2):
        table.write(rows(range(10), v=i))
    table.expire_snapshots(retain_max=2)
    plans = []
    for _ in range(2):
        table.store.clock.advance(1000)
        plans.append([table.plan_maintenance(action) for action in ("compact", "trash")])
    assert [plan.hash for plan in plans[0]] == [plan.hash for plan in plans[1]]
    assert all(plan.declined for plan in plans[0]), "nothing says an age"


def test_a_plan_edited_by_hand_is_refused(tmp_path: Path) -> None:
    plan = _five_runs(tmp_path).plan_maintenance("compact")
    value = json.loads(plan.to_json())
    value["items"][0]["output_level"] = 3
    with pytest.raises(PlanStale, match="changed after planning"):
        MaintenancePlan.from_json(json.dumps(value))
    for text in ("", "[]", "{}", '{"version": 1}', "null"):
        with pytest.raises((CorruptFile, PlanStale)):
            MaintenancePlan.from_json(text)


def test_planning_and_dry_runs_change_nothing_on_disk(tmp_path: Path) -> None:
    table = _five_runs(tmp_path)
    table.store.clock.advance(2 * HOUR)
    before = on_disk(table)
    table.plan_maintenance("compact", full=True)
    table.plan_maintenance("trash")
    table.health()
    report = table.expire_snapshots(retain_max=1, dry_run=True)
    assert report.dry_run and report.expired == (1, 2, 3, 4)
    assert table.sweep_trash(dry_run=True).dry_run
    assert on_disk(table) == before


def test_another_process_applies_a_saved_plan_by_its_hash(tmp_path: Path) -> None:
    table = _five_runs(tmp_path)
    before = content(table)
    plan = table.plan_maintenance("compact")
    save_plan(table.store, plan)
    table.write(rows([5], v=1000))  # new files do not make a plan stale
    place = str(tmp_path / "wh")
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "lsm_core.cli.app",
            "apply",
            "db.t",
            plan.hash,
            "--json",
            "--approved-by",
            "me",
            "-w",
            place,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["plan_hash"] == plan.hash
    assert (report["snapshot_id"], report["runs_before"], report["runs_after"]) == (7, 5, 1)
    assert [row for row in content(table) if row[0] != 5] == [row for row in before if row[0] != 5]
    assert (5, 1005, None) in content(table)
    entry = table.ledger()[-1]
    assert (entry.plan_hash, entry.approved_by, entry.outcome) == (plan.hash, "me", "done")


def test_a_plan_is_for_its_table_its_options_and_its_code_alone(tmp_path: Path) -> None:
    table = _five_runs(tmp_path)
    plan = table.plan_maintenance("compact")
    other = keyed(tmp_path, name="db.other")
    with pytest.raises(PlanStale, match=r"made for table db\.t"):
        other.apply(plan)
    with pytest.raises(PlanStale, match=r"option num-sorted-run\.compaction-trigger"):
        table.copy({"num-sorted-run.compaction-trigger": "9"}).apply(plan)
    with pytest.raises(PlanStale, match="made by old"):
        table.apply(dataclasses.replace(plan, code_version="old"))
    assert table.latest_snapshot().id == 5


def test_applying_twice_reports_stale_buckets_and_commits_once(tmp_path: Path) -> None:
    table = _five_runs(tmp_path)
    plan = table.plan_maintenance("compact")
    first, second = table.apply(plan), table.apply(plan)
    assert isinstance(first, CompactionReport) and isinstance(second, CompactionReport)
    assert (first.commits, second.commits, second.snapshot_id) == (1, 0, None)
    assert [(item.subject, item.reason) for item in second.stale] == [("bucket-0", "stale")]
    assert "is gone" in second.stale[0].text
    assert table.latest_snapshot().id == 6


def test_unknown_actions_arguments_and_hashes_are_named(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    with pytest.raises(InvalidOption, match=r"'reticulate'.*compact, expire_snapshots, expire_changelogs, .*trash"):
        table.plan_maintenance("reticulate")
    with pytest.raises(InvalidOption, match=r"'colour'.*full, compact_strategy, partitions"):
        table.plan_maintenance("compact", colour="red")
    with pytest.raises(PlanStale, match="no saved plan with hash abc"):
        load_plan(table.store, "abc")
