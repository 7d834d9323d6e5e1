"""The stream job of the demo: running totals from the lookup changelog alone, equal to the table's whenever compactions told."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from dredge.assets.demo import carrier_totals
from dredge.assets.demo.carrier_totals import (
    CHECK,
    NAME,
    SCHEMA,
    SENSOR,
    TABLE,
    Progress,
    add_changes,
    compacted_totals,
    follow,
    newest_change,
    progress_path,
    read_progress,
    totals_key,
    totals_of,
    write_progress,
)
from dredge.assets.demo.tables import CARRIER_DAILY
from dredge.platform_core.resources import WarehouseResource
from lsm_core import Table
from lsm_core.errors import CorruptFile, InvalidOption
from lsm_core.metadata import consumers
from tests.support.platform import House, evaluations

CARRIERS = ("AA", "B6", "UA")


def send(table: Table, number: int) -> None:
    """Flights of three carriers; from the second commit on one figure of the commit before is taken back and sent again."""
    flights = [_event(number, carrier, "+I", 10 * number + i) for i, carrier in enumerate(CARRIERS)]
    if number > 1:
        wrong = 10 * (number - 1)
        flights += [_event(number - 1, "AA", "-U", wrong), _event(number - 1, "AA", "+U", wrong + 7)]
    rows = pa.Table.from_pylist([row for row, _ in flights], schema=CARRIER_DAILY.schema)
    table.write(rows, row_kinds=pa.array([kind for _, kind in flights]))


def _event(day: int, carrier: str, kind: str, delay: int) -> tuple[dict[str, object], str]:
    row = {
        "flight_date": datetime.date(2013, 1, day), "carrier": carrier, "flights": 1, "cancelled": 0,
        "arrived": 1, "arr_delay_total": None if carrier == "UA" else delay, "distance_km": Decimal("1.609344"),
        "last_tailnum": f"N{day}", "origins": ["JFK"], "any_cancelled": False,
    }  # fmt: skip
    return row, kind


def test_the_totals_are_the_tables_whenever_compactions_told(warehouse: WarehouseResource, tmp_path: Path) -> None:
    table, path = warehouse.table(TABLE), tmp_path / "totals.arrow"
    told_in_all: dict[str, int] = {}
    for number in range(1, 7):
        send(table, number)
        before = read_progress(path)
        found, changes = follow(table, path)
        assert not changes and found.totals.equals(before.totals), "nobody told of it yet"
        assert found.totals.equals(compacted_totals(warehouse.catalog(), found.following))
        if number % 2 == 0:
            table.compact(full=True)
            assert newest_change(table, found.following) is not None
            found, changes = follow(table, path)
            assert found.totals.equals(totals_of(table.to_arrow()))
            assert found.totals.equals(compacted_totals(warehouse.catalog(), found.following))
            assert newest_change(table, found.following) is None
            told_in_all = {kind: told_in_all.get(kind, 0) + changes.get(kind, 0) for kind in ("+I", "-U", "+U")}
    assert told_in_all == {"+I": 18, "-U": 2, "+U": 2}
    assert found.totals.column("days").to_pylist() == [6, 6, 6]
    assert found.totals.column("arr_delay_total").to_pylist() == [210 + 5 * 7, 216, 0]
    assert found.totals.column("distance_km").to_pylist() == [6 * Decimal("1.609344")] * 3
    assert consumers.read_consumer(table.store, NAME) == found.following == 6 + 3 + 1


def test_a_killed_run_neither_doubles_nor_loses_a_change(
    warehouse: WarehouseResource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path = warehouse.table(TABLE), tmp_path / "totals.arrow"
    for number in (1, 2):
        send(table, number)
        table.compact(full=True)
    kept: list[Progress] = []

    def killed(target: Path, progress: Progress) -> None:
        if kept:
            raise KeyboardInterrupt
        kept.append(progress)
        write_progress(target, progress)

    monkeypatch.setattr(carrier_totals, "write_progress", killed)
    with pytest.raises(KeyboardInterrupt):
        follow(table, path)
    monkeypatch.undo()
    assert read_progress(path).following == 3, "the first compaction's changes are kept, the second's are not"
    found, changes = follow(table, path)
    assert dict(changes) == {"+I": 3, "-U": 1, "+U": 1}
    assert found.totals.equals(totals_of(table.to_arrow()))


def test_without_its_file_the_stream_begins_anew(warehouse: WarehouseResource, tmp_path: Path) -> None:
    table, path = warehouse.table(TABLE), tmp_path / "totals.arrow"
    for number in (1, 2, 3):
        send(table, number)
        table.compact(full=True)
    first, _ = follow(table, path)
    path.unlink()
    again, changes = follow(table, path)
    assert again.totals.equals(first.totals) and changes["+I"] == 9
    path.unlink()
    table.forget_consumer(NAME)
    plan = table.plan_maintenance("expire_snapshots", retain_max=2, retain_min=1)
    table.apply(plan)
    assert table.snapshots()[0].id > 1
    whole, changes = follow(table, path)
    assert whole.totals.equals(first.totals) and dict(changes) == {"+I": 9}, "the newest compacted version comes first"


def test_rows_that_are_gone_take_their_carrier_along() -> None:
    rows = pa.Table.from_pylist([_event(1, "AA", "+I", 5)[0], _event(1, "B6", "+I", 6)[0]], schema=CARRIER_DAILY.schema)
    both = add_changes(SCHEMA.empty_table(), rows, pa.array(["+I", "+I"]))
    left = add_changes(both, rows.slice(0, 1), pa.array(["-D"]))
    assert both.column("carrier").to_pylist() == ["AA", "B6"]
    assert left.column("carrier").to_pylist() == ["B6"]


def test_a_torn_file_and_a_missing_folder_are_named(warehouse: WarehouseResource, tmp_path: Path) -> None:
    path = tmp_path / "totals.arrow"
    path.write_bytes(b"torn")
    with pytest.raises(CorruptFile, match=r"totals\.arrow"):
        read_progress(path)
    with pytest.raises(InvalidOption, match="DREDGE_REPLAY_STATE"):
        progress_path(WarehouseResource(path=warehouse.path))


def test_the_sensor_starts_the_job_once_a_compaction_told_and_the_check_judges(house: House) -> None:
    table = house.warehouse.table(TABLE)
    send(table, 1)
    assert house.tick(SENSOR).skip_message == f"{TABLE}: no compaction wrote changes since snapshot 0"
    table.compact(full=True)
    Path(house.warehouse.replay_state).write_text("batches 0-4", encoding="utf-8")
    assert house.tick(SENSOR).skip_message == "replay of batches 0-4 in progress"
    Path(house.warehouse.replay_state).write_text("", encoding="utf-8")
    requests = house.tick(SENSOR).run_requests or []
    assert [request.run_key for request in requests] == [f"{NAME}@2"]
    send(table, 2)
    result = house.run(requests[0], NAME)
    assert result.success
    message = "3 carriers, 3 flights: equal to the compacted table; 1 level-0 files wait"
    assert evaluations(result) == {CHECK: (True, message)}
    [made] = result.asset_materializations_for_node("__".join(totals_key(house.warehouse.path).path))
    assert (made.metadata["changes +I"].value, made.metadata["next snapshot"].value) == (3, 4)
    assert house.tick(SENSOR).skip_message == f"{TABLE}: no compaction wrote changes since snapshot 3"
    path = progress_path(house.warehouse)
    kept = read_progress(path)
    write_progress(path, Progress(kept.totals.slice(1), kept.following))
    passed, description = evaluations(house.execute(NAME))[CHECK]
    assert not passed and "NOT those of" in description


def test_the_stream_hangs_on_the_layout_whose_compactions_tell(house: House) -> None:
    specs = {spec.key: spec for spec in house.defs.resolve_all_asset_specs()}
    deps = specs[totals_key(house.warehouse.path)].deps
    assert [dep.asset_key for dep in deps] == [house.warehouse.names.layout_key(TABLE)]
