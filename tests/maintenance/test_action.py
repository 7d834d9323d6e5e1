"""An action is one place: a module and one call of the registry give it a plan, JSON, verbs, flags and the ledger."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Schema, Table
from lsm_core.cli.app import run
from lsm_core.errors import CorruptFile, InvalidOption, PlanStale, UnsupportedFeature
from lsm_core.maintenance import Action, MaintenancePlan, action_names, all_actions, dry_run, find_action, register
from lsm_core.maintenance import action as registry
from lsm_core.maintenance.action import ArgumentKind
from lsm_core.metadata import manifests
from tests.maintenance.tables import catalog, keyed, rows
from tests.maintenance.toy_action import NOTE


@pytest.fixture
def note(monkeypatch: pytest.MonkeyPatch) -> Action:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    register(NOTE)
    return NOTE


def test_a_registered_action_has_facade_json_and_ledger(tmp_path: Path, note: Action) -> None:
    table = keyed(tmp_path)
    assert action_names()[-1] == "note" and find_action("note") is note
    plan = table.plan_maintenance("note", text="hello ", times=2)
    again = MaintenancePlan.from_json(plan.to_json())
    assert again == plan and again.hash == plan.hash
    assert table.load_plan(table.save_plan(plan)) == plan and table.saved_plans() == [plan.hash]
    report = table.apply(again, approved_by="me")
    assert (Path(table.store.root) / "note.txt").read_text() == "hello hello "
    (entry,) = table.ledger()
    assert (entry.action, entry.outcome, entry.plan_hash, entry.approved_by) == ("note", "done", plan.hash, "me")
    assert entry.report["noted"] == report.noted == 2 and entry.lines == ({"event": "noted", "text": "hello "},)
    second = table.apply(plan)
    assert not second.changed and second.applied_before.text() == f"already applied, run {entry.run_id}"
    with pytest.raises(PlanStale, match="a note already"):
        table.apply(table.plan_maintenance("note", text="other"))
    assert sorted(item.outcome for item in table.ledger()) == ["done", "refused"]
    with pytest.raises(InvalidOption, match=r"'colour'.*text, times, loud"):
        table.plan_maintenance("note", text="x", colour="red")
    with pytest.raises(InvalidOption, match=r"'text' of table db\.t"):
        table.plan_maintenance("note")
    with pytest.raises(InvalidOption, match="'note'"):
        register(note)
    with pytest.raises(UnsupportedFeature, match=r"note before it is applied.*db\.t"):
        dry_run(plan)


def test_a_registered_action_has_its_flags_and_its_verb(
    tmp_path: Path, note: Action, capsys: pytest.CaptureFixture[str]
) -> None:
    keyed(tmp_path)
    keyed(tmp_path, name="db.u")
    place = ["-w", str(tmp_path / "wh")]
    assert run(["plan", "db.t", "--action", "note", "--text", "hi", "--times", "3", "--loud", *place]) == 0
    shown = capsys.readouterr().out
    assert "would note" in shown and "HI" in shown
    assert run(["plan", "db.t", "--action", "note", "--text", "hi", "--json", *place]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["items"] == [{"item": "note", "text": "hi", "times": 1}]
    assert run(["apply", "db.t", plan["hash"], *place]) == 0
    assert capsys.readouterr().out == "noted 1 times in db.t\n"
    assert run(["note", "db.u", "ho", "--times", "2", *place]) == 0
    assert capsys.readouterr().out == "noted 2 times in db.u\n"
    assert run(["plan", "db.t", "--action", "compact", "--loud", *place]) == 2
    refused = capsys.readouterr().err
    assert "--loud is for note; compact takes --full, --compact-strategy" in refused
    assert run(["note", "--help"]) == 0
    helped = capsys.readouterr().out
    assert "Write a note." in helped and "In capitals." in helped
    assert run(["--help"]) == 0
    assert "note" in capsys.readouterr().out


def test_plans_of_what_is_not_known_here_are_stale_by_name(
    tmp_path: Path, note: Action, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = keyed(tmp_path).plan_maintenance("note", text="x").to_json()
    value = json.loads(text)
    with pytest.raises(PlanStale, match=r"table db\.t.*item 'poem', which note does not know"):
        MaintenancePlan.from_json(json.dumps({**value, "items": [{"item": "poem"}]}))
    with pytest.raises(PlanStale, match=r"table db\.t.*made by dredge-0\.0\.1"):
        MaintenancePlan.from_json(json.dumps({**value, "code_version": "dredge-0.0.1"}))
    with pytest.raises(CorruptFile, match=r"db\.t.*unreadable"):
        MaintenancePlan.from_json(json.dumps({**value, "items": [{"item": "note", "colour": 1}]}))
    monkeypatch.setattr(registry, "_REGISTERED", {})
    with pytest.raises(PlanStale, match=r"table db\.t.*action 'note', which is not known"):
        MaintenancePlan.from_json(text)


def append_table_with_branch(tmp_path: Path) -> Table:
    """Return an append table whose branch dev has one more file."""
    table = catalog(tmp_path).create_table("db.appended", Schema(pa.schema([("v", pa.int64())])))
    table.write(pa.table({"v": [1]}))
    table.create_tag("one", 1)
    table.create_branch("dev", "one").write(pa.table({"v": [2]}))
    return table


def test_every_action_says_what_it_takes_and_what_people_see(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for number in range(3):
        table.write(rows(range(number, number + 5), v=number))
    for action in all_actions():
        assert action.help.endswith(".") and action.item_types()
        assert len({argument.option for argument in action.arguments}) == len(action.arguments)
        assert all(argument.help for argument in action.arguments)
        assert {kind.item_kind for kind in action.item_types()}
    made = [
        table.plan_maintenance("compact", full=True),
        table.plan_maintenance("expire_snapshots", retain_max=1),
        table.plan_maintenance("rescale", bucket_num=2),
    ]
    table.expire_snapshots(retain_max=1)
    made.append(table.plan_maintenance("trash", now_ms=table.store.clock.now_ms() + 10**9))
    (trash_id,) = {item.trash_id for item in made[-1].items}
    made.append(table.plan_maintenance("restore", trash_id=trash_id))
    waiting = keyed(tmp_path, name="db.waiting", bucket="-2")
    waiting.write(rows(range(3)))
    made.append(waiting.plan_maintenance("assign_buckets"))
    longer = keyed(tmp_path, name="db.longer", **{"changelog.num-retained.min": "20"})
    for number in range(3):
        longer.write(rows([number]))
    longer.expire_snapshots(retain_max=1)
    made.append(longer.plan_maintenance("expire_changelogs", retain_max=2))
    stray = Path(longer.store.root) / "manifest" / "manifest-4f5d7a0e-5b1c-4c5f-9d3a-0123456789ab-0"
    stray.touch()
    os.utime(stray, (0, 0))
    made.append(longer.plan_maintenance("orphans"))
    compacted = keyed(tmp_path, name="db.compacted")
    for number in range(3):
        compacted.write(rows([number]))
    made.append(compacted.plan_maintenance("undo", run_id=compacted.compact(full=True).run_id))
    longer.create_branch("dev", from_snapshot=3).write(rows([9]))
    made += [longer.plan_maintenance(name, branch="dev") for name in ("delete_branch", "fast_forward")]
    made.append(longer.plan_maintenance("analyze"))
    damaged = keyed(tmp_path, partitioned=True, name="db.damaged")
    for dt in ("2020-01-01", "2020-01-02"):
        damaged.write(rows([1], dt=dt))
    made.append(damaged.plan_maintenance("expire_partitions", older_than_ms=damaged.store.clock.now_ms()))
    made.append(damaged.plan_maintenance("drop_partitions", partitions=[{"dt": "2020-01-01"}]))
    made.append(damaged.plan_maintenance("rollback_as_latest", snapshot_id=1))
    made += [damaged.plan_maintenance("manifests"), damaged.plan_maintenance("purge", confirm="db.damaged")]
    next(Path(damaged.store.root).glob("dt=2020-01-01/*/data-*")).unlink()
    made.append(damaged.plan_maintenance("remove_unexisting_files"))
    (Path(damaged.store.snapshot_dir) / "EARLIEST").unlink()
    made.append(damaged.plan_maintenance("repair"))
    gone = manifests.data_manifests(damaged.store, damaged.latest_snapshot())[0]
    Path(damaged.store.manifest_path(gone.file_name)).unlink()
    made.append(damaged.plan_maintenance("remove_unexisting_manifests"))
    longer.create_tag("v", time_retained="1 ms")
    made.append(longer.plan_maintenance("create_tag", tag="w"))
    made.append(longer.plan_maintenance("delete_tag", tag="v"))
    longer.store.clock.advance(10)
    made.append(longer.plan_maintenance("expire_tags"))
    longer.write(rows([9]))
    made.append(longer.plan_maintenance("rollback", tag="v"))
    backlog = keyed(tmp_path, name="db.backlog", **{"num-sorted-run.compaction-trigger": "2", "write-only": "true"})
    for number in range(3):
        backlog.write(rows([number]))
    backlog.write(rows([9]))
    made.append(backlog.copy({"file-index.bloom-filter.columns": "k"}).plan_maintenance("rewrite_file_index"))
    published = backlog.copy({"metadata.iceberg.storage": "table-location"})
    made.append(published.plan_maintenance("refresh_iceberg"))
    appended = append_table_with_branch(tmp_path)
    made.append(appended.plan_maintenance("copy_table", target="db.copied"))
    made.append(appended.plan_maintenance("merge_branch", branch="dev"))
    made.append(backlog.plan_maintenance("recover"))
    assert {plan.action for plan in made} == {action.name for action in all_actions()}
    for plan in made:
        assert plan.items and MaintenancePlan.from_json(plan.to_json()) == plan
        unchanged = find_action(plan.action).unchanged(plan)
        assert getattr(unchanged, "trash_id", None) == plan.arguments.get("trash_id") and not unchanged.changed
        for item in plan.items:
            assert len(item.cells()) == len(item.columns)
            assert type(item) in find_action(plan.action).item_types()
    assert ArgumentKind.TIME in {argument.kind for argument in find_action("trash").arguments}


def test_a_plan_stored_before_the_hash_covered_everything_says_so() -> None:
    path = Path(__file__).parent.parent / "data" / "plans" / "compact-of-issue-13.json"
    with pytest.raises(
        PlanStale, match=r"table db\.t is stale: it was made by dredge-0\.1\.0/plan-1, .*; plan it again"
    ):
        MaintenancePlan.from_json(path.read_text("utf-8"))
