"""The first screen over 46 tables in all states: the order is by state, then score, and each table says why and what next."""

from __future__ import annotations

import datetime
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dredge.orchestration.sensors.table_states import TableEvaluation, evaluate_states
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB
from dredge.platform_core.policies import policy_source
from dredge.platform_core.policies.table_state import TableState
from dredge.platform_core.table_card import TableCard
from lsm_core import Catalog
from lsm_core.clock import SystemClock
from tests.support.platform import House, append_table, commit, keyed_table, open_house

_TOMORROW = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=2)).strftime("%a").lower()
POLICIES = f"""
tables:
  shop.approval*: {{approval: {{compact: required}}}}
  shop.paused*: {{paused: storage move}}
  shop.hours*: {{off_peak: {{time_zone: UTC, windows: [{{from: "10:00", to: "10:30", days: [{_TOMORROW}]}}]}}}}
"""
BUDGET = "budget: {bytes_an_hour: 40 kb}"
EXPECTED = {
    TableState.CORRUPT: ["corrupt1", "corrupt2", "corrupt3"],
    TableState.UNREADABLE: ["unreadable1"],
    TableState.BLOCKED: ["blocked1", "blocked2", "blocked3"],
    TableState.SUSPENDED: ["suspended1", "suspended2"],
    TableState.FAILING: ["failing1", "failing2"],
    TableState.APPROVAL: ["approval1", "approval2"],
    TableState.PERSON: ["canceled1", "canceled2"],
    TableState.NOT_LOADED: ["altered1"],
    TableState.PAUSED: ["paused1", "paused2", "paused3"],
    TableState.DUE: ["due1", "due2"],
    TableState.RUNNING: ["running1", "running2"],
    TableState.BACK_OFF: ["backoff1", "backoff2"],
    TableState.OUT_OF_BUDGET: ["large1"],
    TableState.OUT_OF_HOURS: ["hours1", "hours2"],
    TableState.INVISIBLE_ROWS: ["invisible1", "invisible2"],
    TableState.NOT_MAINTAINED: ["refused1"],
    TableState.HEALTHY: [f"calm{number}" for number in range(1, 16)],
}
_DUE = ("blocked", "suspended", "failing", "approval", "canceled", "paused", "due", "running", "backoff", "hours")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A warehouse of 46 tables, copied from a few; runs and checks of Dagster make the states that files cannot."""
    place = tmp_path_factory.mktemp("first-screen")
    root, policies = place / "wh", place / "policies.yaml"
    policies.write_text(POLICIES)
    commit(keyed_table(root, "shop.due1", partitioned=False), 5, rows=4)
    commit(keyed_table(root, "shop.calm1", partitioned=False), 1, rows=4)
    commit(append_table(root, "shop.calm2"), 1, rows=4)
    commit(keyed_table(root, "shop.large1", partitioned=False), 5, rows=4_000)
    options = {"deletion-vectors.enabled": "true", "write-only": "false"}
    with pytest.MonkeyPatch.context() as patches:
        patches.setenv("DREDGE_COMPACTION_INLINE", "follow")
        commit(keyed_table(root, "shop.invisible1", partitioned=False, **options), 5, rows=4)  # its writer compacts
    Catalog(str(root)).table("shop.invisible1").write([{"dt": "a", "id": 9, "v": "new"}], compact=False)
    for table in (table for group in EXPECTED.values() for table in group):
        target = root / "shop.db" / table
        if not target.exists():
            kind = table.rstrip("0123456789")
            source = {"invisible": "invisible1"}.get(kind, "due1" if kind in _DUE else "calm1")
            shutil.copytree(root / "shop.db" / source, target)
    _change_schema(root / "shop.db" / "refused1", options={"commit.callbacks": "a.B"})
    with open_house(root, DREDGE_POLICIES=str(policies)) as opened:
        _cards.extend(opened.warehouse.card(f"shop.{table}") for group in EXPECTED.values() for table in group)
        _damage(root / "shop.db")
        _add_events(opened)
        policies.write_text(POLICIES + BUDGET)
        yield opened


_cards: list[TableCard] = []
"""The tables as they were when the definitions were loaded."""


def _damage(database: Path) -> None:
    (database / "corrupt1" / "schema" / "schema-0").write_text("{")
    (database / "corrupt2" / "snapshot" / "snapshot-1").write_text("{")
    (database / "corrupt3" / "schema" / "schema-0").write_bytes(b"")
    _change_schema(database / "unreadable1", options={"bucket": "many"})
    shutil.rmtree(database / "altered1")
    keyed_table(database.parent, "shop.altered1")  # with other partition keys than when definitions were loaded


def _change_schema(table: Path, **changes: Any) -> None:
    file = table / "schema" / "schema-0"
    schema = json.loads(file.read_text())
    changes = {key: {**schema[key], **value} if isinstance(value, dict) else value for key, value in changes.items()}
    file.write_text(json.dumps({**schema, **changes}))


def _add_events(house: House) -> None:
    """Add runs and check results as they are after a day on which much went wrong."""
    requests = {
        request.tags[names.TAG_TABLE]: request
        for _ in range(4)  # a tick requests a dozen runs, and the next one begins with the others
        for request in house.tick(names.SORTED_RUN_SENSOR).run_requests or ()
    }

    def add(table: str, status: dg.DagsterRunStatus, number: int = 1, **tags: str) -> None:
        request = requests[f"shop.{table}"]
        for _ in range(number):
            made = dg.DagsterRun(
                job_name=ASSET_JOB,
                tags={**request.tags, names.WarehouseNames.of("").bytes_tag(): "", **tags},
                status=status,
            )
            house.instance.add_run(made)

    for number in (1, 2):
        add(f"suspended{number}", dg.DagsterRunStatus.FAILURE, 3)
        add(f"failing{number}", dg.DagsterRunStatus.FAILURE, **{names.TAG_PLAN: "of an earlier commit"})
        add(f"canceled{number}", dg.DagsterRunStatus.CANCELED)
        add(f"running{number}", dg.DagsterRunStatus.STARTED)
        add(f"backoff{number}", dg.DagsterRunStatus.FAILURE)
    # A run of the last hour has used up nearly all bytes: what reads little still starts.
    add(
        "due1",
        dg.DagsterRunStatus.SUCCESS,
        **{names.TAG_PLAN: "earlier", names.WarehouseNames.of("").bytes_tag(): "100"},
    )
    for number in (1, 2, 3):
        house.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                house.layout(f"shop.blocked{number}"), names.TREE_CHECK, passed=False, description="files overlap"
            )
        )


def evaluated(house: House) -> list[TableEvaluation]:
    policies = policy_source(house.environment["DREDGE_POLICIES"]).current()
    return evaluate_states(house.warehouse, house.instance, _cards, policies)


def test_the_first_screen_shows_46_tables_in_the_order_in_which_they_need_a_person(house: House) -> None:
    result = house.execute(names.WAREHOUSE_HEALTH)
    assert result.success
    (event,) = result.get_asset_materialization_events()
    metadata = event.materialization.metadata
    states = {record.data["state"]: record.data["tables"] for record in metadata["states"].records}
    assert states == {state.value: len(tables) for state, tables in EXPECTED.items()}
    assert list(states) == [state.value for state in TableState]
    rows = [row.split(" | ") for row in str(metadata["tables"].value).splitlines()[2:]]
    order = [row[0].split("](")[0].removeprefix("| [shop.") for row in rows]
    assert len(order) == 46
    by_state: dict[TableState, list[str]] = {}
    for table, row in zip(order, rows, strict=True):
        by_state.setdefault(TableState(row[1].split(" until ")[0]), []).append(table)
    assert {state: sorted(tables) for state, tables in by_state.items()} == {
        state: sorted(tables) for state, tables in EXPECTED.items()
    }
    assert list(by_state) == list(TableState), "by state"
    worst = [record.data for record in metadata["worst tables"].records]
    assert [str(cells["table"]).removeprefix("shop.") for cells in worst] == order[:15]
    assert all(re.fullmatch(".+[.] Next: .+", str(cells["why, and next step"])) for cells in worst)
    page = Path(str(metadata["report"].value)).read_text()
    assert [name.removeprefix("shop.") for name in re.findall("<button class=nm>([^<]+)", page)] == order
    assert re.findall('data-n="([^"]+)"', page) == [state.value for state in TableState]
    assert str(metadata["most urgent"].value).startswith("shop.corrupt")
    inline = [str(metadata["most urgent"].value), *(str(cells["why, and next step"]) for cells in worst)]
    assert max(len(word) for text in inline for word in text.split()) <= 36, "a long path would widen the page"
    assert max(len(word) for text in inline[1:] for word in text.split()) <= 24
    assert any("2/snapshot/snapshot-1" in text for text in inline), "the end of a path says which file"
    assert metadata["tables that need a person"].value == 16, "from corrupt to not loaded"


def test_each_state_says_why_and_what_happens_next(house: House) -> None:
    now = SystemClock().now_ms()
    status = {evaluation.name.removeprefix("shop."): evaluation.status for evaluation in evaluated(house)}
    assert status["blocked1"].line(now).startswith("blocked: tree_is_valid failed: files overlap; since ")
    assert "the job resume" in status["suspended1"].action
    assert status["failing1"].why.startswith("its last run failed (") and "5 sorted runs >= 5" in status["failing1"].why
    assert status["failing1"].when == "the next tick"
    assert status["approval1"].action.startswith("approve it: `dredge apply ")
    assert status["due1"].next_step() == "compact: the next tick"
    assert status["running1"].run_id
    assert status["backoff1"].when_ms is not None and 0 < status["backoff1"].when_ms - now <= 10 * 60_000
    assert status["backoff1"].label.startswith("in back-off until ")
    assert "place 1" in status["large1"].waits and "of 40 KiB" in status["large1"].waits
    assert status["hours1"].when_ms is not None and status["hours1"].when_ms > now
    assert "1 row not visible to readers" in status["invisible1"].why
    assert "commit callbacks" in status["refused1"].why
    assert status["calm1"].next_step() == "none"


def test_a_switched_off_sensor_makes_no_promise(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DREDGE_SENSORS", "off")
    status = {evaluation.name: evaluation.status for evaluation in evaluated(house)}
    assert status["shop.due1"].when == "not before the sensor sorted_run is switched on"
