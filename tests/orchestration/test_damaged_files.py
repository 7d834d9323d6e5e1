"""A run that fails for a damaged file: no retry, an alert at once, and the ends of this state."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dredge.orchestration.sensors.table_states import find_conditions
from dredge.platform_core import names
from dredge.platform_core.failure_records import iterate_lasting
from dredge.platform_core.policies.table_state import TableState, judge_condition
from lsm_core import Table
from lsm_core.metadata import manifests, snapshots
from tests.support.platform import House, commit, keyed_table, open_house

TABLE = "shop.orders"


def input_file(table: Table, number: int = 0) -> Path:
    """Return the path of a live data file of the newest snapshot."""
    newest = snapshots.latest(table.store)
    assert newest is not None
    entry = manifests.live_entries(table.store, newest).to_pylist()[number]
    return Path(table.store.data_path(entry["partition"], entry["bucket"], entry["file_name"]))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lose(path: Path) -> None:
    path.unlink()


def run_due(house: House) -> bool:
    """Run what the sensor `sorted_run` requests; return whether it succeeded."""
    (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests or ()
    return house.run(request).success


def line_of(house: House) -> str:
    tick = house.tick(names.SORTED_RUN_SENSOR)
    assert not tick.run_requests
    return next(line for line in house.lines(tick) if line.startswith(TABLE))


def alerts(house: House) -> list[str]:
    return [line for line in house.lines(house.tick(names.WATCH_SENSOR)) if "a file is damaged or lost" in line]


@pytest.mark.parametrize("damage", [truncate, pytest.param(lose, marks=pytest.mark.soak)])
def test_a_damaged_input_is_alerted_at_the_first_failure_and_never_retried(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False)
    commit(table, 5)
    path = input_file(table, 2)
    shutil.copy2(path, tmp_path / "copy")
    damage(path)
    with open_house(tmp_path / "wh") as house:
        assert not run_due(house)
        line = line_of(house)
        assert line.startswith(f"{TABLE}: decline (corrupt): run ")
        assert path.name in line
        assert "no run that reads this file is started until the file is restored" in line
        (alert,) = alerts(house)
        assert alert.startswith(f"{TABLE}: error (a file is damaged or lost): run ")
        assert f"`dredge check {TABLE} --deep`" in alert
        commit(table, 1)
        assert "decline (corrupt)" in line_of(house), "the plan of a later commit reads the file, too"
        shutil.copy2(tmp_path / "copy", path)
        assert not alerts(house)
        assert run_due(house)
        assert not alerts(house)


def by_rollback(table: Table) -> None:
    table.rollback_to(2)


def by_removal(table: Table) -> None:
    from lsm_core.maintenance import apply_plan, plan_maintenance

    plan = plan_maintenance(table.store, "remove_unexisting_files", max_share=50)
    assert plan.items
    apply_plan(table.store, plan, approved_by="a person")


@pytest.mark.parametrize("repair", [pytest.param(by_rollback, marks=pytest.mark.soak), by_removal])
def test_a_commit_that_drops_the_file_ends_the_state(tmp_path: Path, repair: Callable[[Table], None]) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False)
    commit(table, 5)
    input_file(table, 3).unlink()
    with open_house(tmp_path / "wh") as house:
        assert not run_due(house)
        assert alerts(house)
        repair(table)
        assert not alerts(house)
        commit(table, 5)
        assert run_due(house)


def test_a_plan_without_the_damaged_file_runs(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh")
    commit(table, 5, day="a")
    truncate(input_file(table))
    commit(table, 5, day="b")
    with open_house(tmp_path / "wh") as house:
        (both,) = house.tick(names.SORTED_RUN_SENSOR).run_requests or ()
        assert not house.run(both).success
        (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests or ()
        assert request.partition_key == "dt=b", "tried on its own at once"
        assert house.run(request).success
        commit(table, 5, day="b")
        (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests or ()
        assert request.partition_key == "dt=b"
        assert len(alerts(house)) == 1


def test_resume_tries_once_more(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False)
    commit(table, 5)
    truncate(input_file(table))
    with open_house(tmp_path / "wh") as house:
        assert not run_due(house)
        config = {"tables": [TABLE], "reason": "the storage answers again"}
        assert house.execute(names.RESUME_JOB, run_config=config).success
        assert not alerts(house)
        assert not run_due(house)
        assert alerts(house)


def test_a_job_that_a_person_started_alerts_as_well(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False)
    commit(table, 2)
    truncate(input_file(table))
    with open_house(tmp_path / "wh") as house:
        result = house.execute("compact", run_config={"table": TABLE, "full": True})
        assert not result.success
        assert len(alerts(house)) == 1
        assert [failure.file_name for failure in iterate_lasting(house.instance, house.warehouse, [TABLE, "a.b"])] == [
            input_file(table).name
        ]


def test_tags_that_others_wrote_are_bounded_and_open_no_other_path(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False)
    commit(table, 5)
    truncate(input_file(table))
    with open_house(tmp_path / "wh") as house:
        assert not run_due(house)
        run = house.instance.get_runs(limit=1)[0]
        for detail in ("[]", "{", '{"file": "/etc/passwd", "state": "missing", "text": ' + '"%s"}' % ("x" * 9_000)):
            house.instance.add_run_tags(run.run_id, {names.TAG_FAILURE_DETAIL: detail})
            assert all(len(alert) < 2_000 and "passwd" not in alert for alert in alerts(house))


def scheduled_alerts(house: House) -> list[str]:
    lines = house.lines(house.tick(names.WATCH_SENSOR))
    return [line for line in lines if "scheduled maintenance cannot read a table" in line]


def damage_history(table: Table) -> Path:
    """Damage a manifest list that only an old snapshot needs: the table is readable, but does not expire."""
    path = Path(f"{table.store.metadata_root}/manifest/{snapshots.read(table.store, 1).delta_manifest_list}")
    path.write_bytes(b"")
    return path


def damage_newest(table: Table) -> Path:
    """Damage a manifest list of the newest snapshot: the table is not readable."""
    newest = snapshots.latest(table.store)
    assert newest is not None
    path = Path(f"{table.store.metadata_root}/manifest/{newest.base_manifest_list}")
    path.write_bytes(b"")
    return path


KEPT = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 h"}
UNATTENDED = {"pattern": "*", "unattended": True}


@pytest.mark.parametrize(
    ("job", "damage"), [(names.RETENTION_JOB, damage_history), (names.MAINTAIN_JOB, damage_newest)]
)
def test_an_unreadable_table_is_a_warning_of_a_scheduled_run_and_one_alert(
    tmp_path: Path, job: str, damage: Callable[[Table], Path]
) -> None:
    tables = [keyed_table(tmp_path / "wh", f"shop.t{number}", partitioned=False, **KEPT) for number in range(3)]
    for table in tables:
        commit(table, 5)
    path = damage(tables[1])
    with open_house(tmp_path / "wh") as house:
        for _ in range(2):
            result = house.execute(job, run_config=UNATTENDED if job == names.MAINTAIN_JOB else None)
            assert result.success
            (alert,) = scheduled_alerts(house)
            assert alert.startswith(f"shop.t1: error (scheduled maintenance cannot read a table): job {job}, run ")
            assert path.name in alert
        counts = [len(list(Path(table.store.root, "snapshot").glob("snapshot-*"))) for table in tables]
        assert counts[0] == counts[2] == 2 < counts[1], "the other tables expire"
        tables[1].store.file_io.delete_dir(tables[1].store.root)
        assert house.execute(job, run_config=UNATTENDED if job == names.MAINTAIN_JOB else None).success
        assert not scheduled_alerts(house)


def test_a_person_who_maintains_an_unreadable_table_gets_a_failed_run(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False, **KEPT)
    commit(table, 5)
    damage_newest(table)
    with open_house(tmp_path / "wh") as house:
        assert not house.execute(names.MAINTAIN_JOB, run_config={"pattern": "*"}).success


def maintained(house: House) -> dict[str, str]:
    """Run the job `maintain` as its schedule does; return the tables and partitions that it declined, with the reason."""
    result = house.execute(names.MAINTAIN_JOB, run_config=UNATTENDED)
    assert result.success
    (output,) = [event.step_output_data for event in result.all_events if event.is_successful_output]
    rows = (
        [line.split(" | ") for line in str(output.metadata["left alone"].value).splitlines()[2:]]
        if ("left alone" in output.metadata)
        else []
    )
    return {row[0].removeprefix("| "): row[1] for row in rows}


def test_an_unattended_round_declines_a_known_damaged_file_until_it_is_restored(tmp_path: Path) -> None:
    table, flat = keyed_table(tmp_path / "wh"), keyed_table(tmp_path / "wh", "shop.flat", partitioned=False)
    for day in ("a", "b"):
        commit(table, 5, day=day)
    commit(flat, 5)
    path = input_file(table, 2)
    assert "/dt=a/" in str(path)
    shutil.copy2(path, tmp_path / "copy")
    truncate(path)
    with open_house(tmp_path / "wh") as house:
        assert not maintained(house), "nobody knows of the damage before it is read"
        newest = snapshots.latest_id(table.store)
        (alert,) = alerts(house)
        assert alert.startswith("shop.orders: error (a file is damaged or lost)") and path.name in alert
        for _ in range(2):
            declined = maintained(house)
            assert list(declined) == ["shop.orders/dt=a"]
            assert (
                path.name in declined["shop.orders/dt=a"]
                and "until the file is restored" in declined["shop.orders/dt=a"]
            )
            assert snapshots.latest_id(table.store) == newest + 1, "the other partition was compacted"
            assert len(alerts(house)) == 1 and not scheduled_alerts(house)
        assert "decline (corrupt)" in next(
            line for line in house.lines(house.tick(names.SORTED_RUN_SENSOR)) if line.startswith("shop.orders/dt=a")
        ), "sensors know it, too"
        shutil.copy2(tmp_path / "copy", path)
        assert not maintained(house)
        assert snapshots.latest_id(table.store) == newest + 2
        assert not alerts(house)


def test_a_person_may_try_a_known_damaged_file_again(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False)
    commit(table, 5)
    truncate(input_file(table))
    with open_house(tmp_path / "wh") as house:
        maintained(house)
        assert list(maintained(house)) == [TABLE]
        assert not house.execute(names.MAINTAIN_JOB, run_config={"pattern": "*"}).success


@pytest.mark.parametrize("job", [names.RETENTION_JOB, names.MAINTAIN_JOB])
def test_damaged_history_shows_in_the_round_the_alert_and_the_state_until_it_is_repaired(
    tmp_path: Path, job: str
) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False, **KEPT)
    commit(table, 5)
    table.compact(full=True)
    path = damage_history(table)
    with open_house(tmp_path / "wh") as house:
        if job == names.MAINTAIN_JOB:
            declined = maintained(house)
            assert "nothing from the one before it on expires" in declined[TABLE]
        else:
            assert house.execute(job).success
        (alert,) = scheduled_alerts(house)
        assert f"job {job}, run " in alert and path.name in alert
        (condition,) = find_conditions(house.instance, house.warehouse, [TABLE])[TABLE]
        assert condition.state is TableState.CORRUPT and path.name in condition.text
        status = judge_condition(TABLE, condition)
        assert status.next_step() == f"`dredge repair {TABLE}`: by hand; nothing of it expires before"
        assert status.since_ms is not None
        path.write_bytes(b"restored: another size")
        assert not scheduled_alerts(house)
        assert not find_conditions(house.instance, house.warehouse, [TABLE])[TABLE]
