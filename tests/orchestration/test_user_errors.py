"""What users do to a platform: odd names, torn folders, wrong variables; one bad thing never stops the care for the others."""

from __future__ import annotations

import json
import os
import shutil
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dredge.orchestration.definitions import build_definitions
from dredge.orchestration.ops import layout_ops
from dredge.platform_core import names
from dredge.platform_core.policies import load_policies
from dredge.platform_core.policies.policy_files import read_policies
from dredge.platform_core.resources import LedgerResource
from lsm_core.errors import CorruptFile, InvalidOption, SparkFailed
from lsm_core.maintenance import apply_plan
from lsm_core.metadata import snapshots
from tests.support.platform import append_table, commit, evaluations, keyed_table, open_house

RUNS, IDLE, CATALOG = names.SORTED_RUN_SENSOR, names.IDLE_SENSOR, names.CATALOG_SENSOR


def test_a_warehouse_that_is_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "wh").write_text("no folder")
    with pytest.raises(InvalidOption, match="DREDGE_WAREHOUSE"):
        build_definitions({"DREDGE_WAREHOUSE": str(tmp_path / "wh")})


def test_a_warehouse_that_becomes_a_file_is_told_on_every_tick(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    commit(keyed_table(root, partitioned=False))
    with open_house(root) as house:
        shutil.rmtree(root)
        root.write_text("no folder")
        assert house.lines(house.tick(RUNS))[0].startswith("shop.orders: decline (unreadable): CorruptFile")
        assert "the warehouse cannot be listed" in house.lines(house.tick(CATALOG))[0]


def test_folders_that_cannot_be_named_leave_the_other_tables_alone(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    commit(keyed_table(root, "shop.fine", partitioned=False), 5)
    (root / "a.b.db" / "t" / "schema").mkdir(parents=True)
    odd = os.fsencode(root / "shop.db") + b"/t\xff/schema"
    os.makedirs(odd)
    Path(os.fsdecode(odd), "schema-0").write_text("{}")
    with open_house(root) as house:
        assert [request.tags[names.TAG_TABLE] for request in house.tick(RUNS).run_requests] == ["shop.fine"]
        lines = house.lines(house.tick(CATALOG))
        assert lines[0] == "1 tables, as loaded"
        assert lines[1].startswith("database 'a.b' is left out: ")
        assert lines[2].startswith("table 'shop.t\\udcff' is left out: ")


def test_underscores_at_the_ends_of_names_do_not_collide(tmp_path: Path) -> None:
    tables = ["a_.b", "a._b", "a.b", "a.b_"]
    for name in tables:
        keyed_table(tmp_path / "wh", name)
    assert len({names.WarehouseNames.of("").op_name("maintain", name) for name in tables}) == 4
    with open_house(tmp_path / "wh") as house:
        assert len(house.lines(house.tick(RUNS))) == 4


def test_a_partition_that_dagster_cannot_hold_is_told_and_the_others_are_merged(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh")
    commit(table, 5, day="a...b")
    commit(table, 5, day="c")
    with open_house(tmp_path / "wh") as house:
        result = house.tick(RUNS)
        assert [request.partition_key for request in result.run_requests] == ["dt=c"]
        assert house.run(result.run_requests[0]).success
        lines = house.lines(house.tick(RUNS))
        assert any(line.startswith("shop.orders/dt=a...b: decline (name that Dagster cannot hold)") for line in lines)


def test_a_table_made_anew_with_other_keys_waits_for_a_reload(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    keyed_table(root, "shop.plain", partitioned=False)
    keyed_table(root, "shop.parted")
    commit(keyed_table(root, "shop.z", partitioned=False), 5)
    with open_house(root) as house:
        for name, partitioned in (("shop.plain", True), ("shop.parted", False)):
            house.warehouse.catalog().drop_table(name)
            commit(keyed_table(root, name, partitioned=partitioned), 5)
        assert [request.tags[names.TAG_TABLE] for request in house.tick(RUNS).run_requests] == ["shop.z"]
        lines = house.lines(house.tick(IDLE))
        assert lines[0].startswith("shop.parted: decline (changed since it was loaded): ")
        house.load()
        assert len(house.tick(RUNS).run_requests) == 3


@pytest.mark.parametrize("clock", ["yesterday", "fixed:soon", "file:"])
def test_a_malformed_clock_is_refused_by_name(tmp_path: Path, clock: str) -> None:
    with pytest.raises(InvalidOption, match="DREDGE_CLOCK"):
        build_definitions({"DREDGE_WAREHOUSE": str(tmp_path), "DREDGE_CLOCK": clock})


BAD_CLOCKS = pytest.mark.parametrize(("text", "reason"), [(None, "No such file"), ("soon", "'soon', not epoch")])


@BAD_CLOCKS
def test_a_clock_file_that_tells_no_time_is_refused_by_variable_and_file(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    place = tmp_path / "clock"
    if text is not None:
        place.write_text(text)
    with pytest.raises(InvalidOption, match="'DREDGE_CLOCK' cannot be 'file:.*/clock'; accepted: .*" + reason):
        build_definitions({"DREDGE_WAREHOUSE": str(tmp_path), "DREDGE_CLOCK": f"file:{place}"})


@BAD_CLOCKS
def test_a_clock_file_gone_bad_is_told_once_a_tick_and_not_as_broken_tables(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    place = tmp_path / "clock"
    place.write_text("1700000000000")
    commit(append_table(tmp_path / "wh"))
    commit(keyed_table(tmp_path / "wh", partitioned=False), 5)
    with open_house(tmp_path / "wh", DREDGE_CLOCK=f"file:{place}") as house:
        request = house.tick(RUNS).run_requests[0]
        place.unlink() if text is None else place.write_text(text)
        for sensor in (RUNS, IDLE, CATALOG):
            (line,) = house.lines(house.tick(sensor))
            assert f"'DREDGE_CLOCK' cannot be 'file:{place}'" in line
            assert reason in line
            assert "shop." not in line
        lines = [str(event.event_specific_data) for event in house.run(request).all_events if event.is_failure]
        assert any("'DREDGE_CLOCK' cannot be" in text for text in lines)


def test_a_replay_state_that_cannot_be_read_keeps_everything_still(tmp_path: Path) -> None:
    commit(keyed_table(tmp_path / "wh"), 5)
    with open_house(tmp_path / "wh", DREDGE_REPLAY_STATE=str(tmp_path)) as house:
        for sensor in (RUNS, IDLE, CATALOG):
            assert "cannot be read" in (house.tick(sensor).skip_message or "")


@pytest.mark.filterwarnings(
    "ignore:Using variable_values:DeprecationWarning"
)  # Dagster's client and gql's next version
def test_a_web_server_that_does_not_answer_is_told(tmp_path: Path) -> None:
    keyed_table(tmp_path / "wh")
    with open_house(tmp_path / "wh", DREDGE_DAGSTER_URL="http://127.0.0.1:9") as house:
        keyed_table(tmp_path / "wh", "shop.fresh")
        lines = house.lines(house.tick(CATALOG))
        assert lines[0] == "shop.fresh: new"
        assert "could not be reloaded through DREDGE_DAGSTER_URL=http://127.0.0.1:9: " in lines[1]
        assert "refused" in lines[1]


@pytest.mark.filterwarnings("ignore:Using variable_values:DeprecationWarning")
def test_a_web_server_below_a_path_is_asked_to_reload(tmp_path: Path) -> None:
    asked: list[str] = []
    entry = {"__typename": "WorkspaceLocationEntry", "locationOrLoadError": {"__typename": "RepositoryLocation"}}

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({"data": {"reloadRepositoryLocation": entry}}).encode())

    keyed_table(tmp_path / "wh")
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/dagster"
        with open_house(tmp_path / "wh", DREDGE_DAGSTER_URL=address) as house:
            keyed_table(tmp_path / "wh", "shop.fresh")
            assert "was reloaded" in house.lines(house.tick(CATALOG))[1]
        server.shutdown()
    assert asked == ["/dagster/graphql"]


@pytest.mark.parametrize("text", ["defaults: {idle_after: true}", "tables: {a.b: {paused: ' '}}"])
def test_policies_that_cannot_be_meant_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(InvalidOption, match=r"p\.yaml"):
        read_policies(tmp_path / "p.yaml")
    assert "maintenance is paused" in load_policies({"DREDGE_POLICIES": str(tmp_path / "p.yaml")}).trouble


def test_a_run_over_a_partitioned_table_wants_a_partition_before_it_changes_anything(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh")
    commit(table, 5)
    with open_house(tmp_path / "wh") as house:
        result = house.maintain("shop.orders")
        assert not result.success
        assert any("choose a partition" in str(event.event_specific_data) for event in result.all_events)
    assert snapshots.latest_id(table.store) == 5


def test_a_run_that_a_person_started_from_the_asset_page_keeps_the_next_one_waiting(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh")
    commit(table, 5, day="a")
    commit(table, 5, day="b")
    with open_house(tmp_path / "wh") as house:
        by_hand = dg.DagsterRun(
            job_name="__ASSET_JOB",
            asset_selection=frozenset({house.layout("shop.orders")}),
            tags={"dagster/partition": "dt=a"},
            status=dg.DagsterRunStatus.STARTED,
        )
        house.instance.add_run(by_hand)
        assert [request.partition_key for request in house.tick(RUNS).run_requests] == ["dt=b"]


def test_a_retry_after_its_commit_verifies_that_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(store: Any, plan: Any, **rest: Any) -> Any:
        apply_plan(store, plan, **rest)
        raise SparkFailed("the session", "gone after the commit")

    monkeypatch.setattr(layout_ops, "apply_plan", lost)
    commit(keyed_table(tmp_path / "wh", partitioned=False), 5)
    with open_house(tmp_path / "wh") as house:
        result = house.run(house.tick(RUNS).run_requests[0])
        assert result.success
        assert house.materialisation("shop.orders")["snapshot published"] == 6
        assert evaluations(result)["merged_view_unchanged"] == (True, "snapshots 5 and 6 have the same rows (V1)")


def test_a_ledger_that_cannot_be_written_loses_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = keyed_table(tmp_path / "wh", partitioned=False)
    commit(table, 5)
    ledger = Path(table.store.ledger_dir)
    ledger.parent.mkdir(parents=True, exist_ok=True)
    ledger.write_text("no folder")
    with open_house(tmp_path / "wh") as house:
        assert house.run(house.tick(RUNS).run_requests[0]).success
        assert house.materialisation("shop.orders")["snapshot published"] == 6
        with pytest.raises(CorruptFile, match="directory"):  # what the failures sensor tells
            LedgerResource.of(house.warehouse).record_failure("shop.orders", "run", "plan", "error")
