"""A warehouse of 500 tables, 50 of them due, in a real `dagster dev`: each page says which state, why and what next.

`DREDGE_PICTURES` names a folder for pictures of the pages. `-s` prints the seconds of each page. Without a Chromium the
pages are asked for by GraphQL only.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dredge.orchestration.verbs.dagster_client import DagsterClient, Run, Tick
from dredge.orchestration.verbs.dagster_process import Platform, start_platform
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB
from dredge.platform_core.policies.table_state import TableState
from lsm_core import Catalog
from scripts.browser import Pages, chromium, opened_browser
from tests.maintenance.test_checks import publish, with_column
from tests.support.platform import commit, keyed_table
from tests.ui.test_dagster_dev import wait_for

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2_400)]

TABLES, DUE, AT_ONCE = 500, 50, 4
ODD = {
    TableState.CORRUPT: ["corrupt0", "corrupt1"],
    TableState.BLOCKED: ["blocked0", "blocked1"],
    TableState.APPROVAL: ["approval0", "approval1"],
    TableState.PAUSED: ["paused0", "paused1", "paused2"],
}
WORKED_ON = (TableState.DUE, TableState.RUNNING, TableState.HEALTHY)
"""States of the other tables, whose numbers change while runs work."""
POLICIES = f"""\
budget: {{concurrent_tables: {AT_ONCE}}}
tables:
  shop.approval*: {{approval: {{compact: required}}}}
  shop.paused*: {{paused: {{reason: storage move, since: 2024-05-30}}}}
"""
_START_S, _TICKS_S, _WORK_S = 300, 300, 1_800
_JUST_S = 8.0
_READY_S = 60.0
"""Most seconds until a page shows what it is asked for; generous, because other processes share the machine."""
_METADATA = """query Q($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset {
  assetMaterializations(limit: 1) { metadataEntries { label
    ... on MarkdownMetadataEntry { mdStr } ... on TextMetadataEntry { text } ... on IntMetadataEntry { intValue }
    ... on TableMetadataEntry { table { records } } } } } } }"""
_CATALOG = """query { assetNodes { assetKey { path } assetChecksOrError { ... on AssetChecks { checks { name
  executionForLatestMaterialization { status } } } } } }"""


_OVERFLOW = """() => [...document.querySelectorAll('table')].filter(
  table => table.parentElement.scrollWidth > table.parentElement.clientWidth + 1).map(table => table.innerText.slice(0, 80))"""


@dataclass(frozen=True)
class Fleet:
    """The running platform over 500 tables.

    Attributes:
        platform: the process of `dagster dev`.
        root: folder of the warehouse.
        pages: window of the browser, or None without a Chromium.
        pictures: whether pictures of the pages are saved.
    """

    platform: Platform
    root: Path
    pages: Pages | None

    @property
    def client(self) -> DagsterClient:
        return self.platform.client

    def layout(self, table: str, view: str = "overview") -> str:
        """Return the address of the page of a table's layout."""
        return _asset_page(names.WarehouseNames.of(str(self.root)).layout_key(f"shop.{table}").path, view)

    def runs(self, table: str) -> list[Run]:
        return self.client.runs({names.TAG_TABLE: f"shop.{table}"})

    def looks_at(
        self, picture: str, address: str, *texts: str, then: str = "", shown: tuple[str, ...] = (), around: str = ""
    ) -> None:
        """Open a page, click on the text `then`, and check that all texts appear and nothing looks wrong.

        A second picture is scrolled to the text `around`.
        """
        if self.pages is None:
            return
        begin = time.monotonic()
        self.pages.opens(address, *texts)
        seconds = time.monotonic() - begin
        print(f"{picture}: {seconds:.1f} s")
        if then:
            self.pages.clicks(then)
        self.pages.shows(*shown)
        self.pages.picture(f"500-{picture}")
        if around:
            self.pages.picture(f"500-{picture}-below", around)
        assert set(self.pages.ills()) <= {"Never materialized"}, address  # true before the first compaction
        assert seconds < _READY_S, address


def _asset_page(path: Any, view: str) -> str:
    return f"/assets/{'/'.join(quote(part, safe='') for part in path)}?view={view}"


def build(root: Path) -> None:
    """Create 500 tables of one bucket as hard links to five tables."""
    commit(keyed_table(root, "shop.calm", partitioned=False), 2, rows=8)
    commit(keyed_table(root, "shop.due", partitioned=False), 5, rows=8)
    broken = keyed_table(root, "shop.blocked", partitioned=False)
    commit(broken, 3, rows=8)
    publish(broken, lambda entries: with_column(entries, "level", [5] * entries.num_rows))  # key ranges overlap
    database = root / "shop.db"
    sources = {table: "blocked" if table.startswith("blocked") else "due" for group in ODD.values() for table in group}
    sources |= {f"due{number:02}": "due" for number in range(DUE)}
    sources |= {f"calm{number:03}": "calm" for number in range(TABLES - len(sources))}
    for table, source in sources.items():
        shutil.copytree(database / source, database / table, copy_function=os.link)
    for source in set(sources.values()):
        shutil.rmtree(database / source)
    for table in ODD[TableState.CORRUPT]:
        newest = database / table / "snapshot" / "snapshot-5"
        newest.unlink()  # the file is shared with the other tables
        newest.write_text("{")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    root, policies = folder / "warehouse", folder / "policies.yaml"
    build(root)
    policies.write_text(POLICIES)
    environment = {
        "DREDGE_WAREHOUSE": str(root),
        "DREDGE_RUNNER": "local",
        "DREDGE_POLICIES": str(policies),
        "DREDGE_SCHEDULES": "off",
    }
    begin = time.monotonic()
    platform = start_platform(folder / "home", environment, timeout_s=_START_S)
    print(f"\nthe UI answers: {time.monotonic() - begin:.1f} s")
    pictures = os.environ.get("DREDGE_PICTURES")
    try:
        browser = opened_browser(platform.url, Path(pictures) if pictures else None) if chromium() else nullcontext()
        with browser as pages:
            yield Fleet(platform, root, pages)
    finally:
        platform.stop()


def ended_ticks(fleet: Fleet, sensor: str) -> list[Tick]:
    return [tick for tick in fleet.client.ticks(sensor) if tick.status in {"SKIPPED", "SUCCESS"}]


def ranked(fleet: Fleet) -> dict[str, Any]:
    """Materialise the ranking of all tables and return its metadata by label."""
    key = names.WarehouseNames.of(str(fleet.root)).warehouse_health_key().path
    run_id = fleet.client.launch(ASSET_JOB, assets=[key])

    def run() -> Run:
        return next(run for run in fleet.client.runs() if run.run_id == run_id)

    begin = time.monotonic()
    wait_for("the ranking", lambda: run().finished, _WORK_S)
    print(f"ranking of {TABLES} tables, as a run: {time.monotonic() - begin:.1f} s")
    assert run().status == "SUCCESS"
    (newest,) = fleet.client.query(_METADATA, {"key": {"path": list(key)}})["assetOrError"]["assetMaterializations"]
    return {
        entry["label"]: entry.get("mdStr") or entry.get("text") or (entry.get("table") or {}).get("records")
        for entry in newest["metadataEntries"]
    }


def test_the_first_ticks_name_every_table_that_is_not_healthy(fleet: Fleet) -> None:
    sensor, begin = names.SORTED_RUN_SENSOR, time.monotonic()
    wait_for("a tick with all tables", lambda: any(tick.lines for tick in ended_ticks(fleet, sensor)), _TICKS_S)
    print(f"first tick of {sensor} ended: {time.monotonic() - begin:.1f} s after the UI answered")

    def unnamed() -> set[str]:
        text = "\n".join(tick.text for tick in ended_ticks(fleet, sensor))
        odd = [table for group in ODD.values() for table in group] + [f"due{number:02}" for number in range(DUE)]
        return {table for table in odd if f"shop.{table}" not in text}

    wait_for("a line for each table that is not healthy", lambda: not unnamed(), _TICKS_S)
    print(f"all named: {time.monotonic() - begin:.1f} s after the UI answered")


def test_the_pages_of_layouts_say_state_reason_and_next_step(fleet: Fleet) -> None:
    blocked = names.WarehouseNames.of(str(fleet.root)).layout_key("shop.blocked1").path
    wait_for("the failed check", lambda: bool(fleet.client.check_results(blocked, names.TREE_CHECK)), _TICKS_S)
    last = next(f"due{number:02}" for number in reversed(range(DUE)) if not fleet.runs(f"due{number:02}"))
    fleet.looks_at("due", fleet.layout(last), "due: 5 sorted runs >= 5", "next step", "place")
    fleet.looks_at("blocked", fleet.layout("blocked0"), "blocked: tree_is_valid failed", "overlap", "by hand")
    fleet.looks_at("corrupt", fleet.layout("corrupt0"), "corrupt", "next step")
    fleet.looks_at("paused", fleet.layout("paused0"), "paused by policy: storage move", "next step")


def parse_record(text: str) -> dict[str, Any]:
    document = json.loads(text)
    return document.get("data", document)


def test_the_first_screen_counts_states_and_ranks_by_state(fleet: Fleet) -> None:
    metadata = ranked(fleet)
    counts = {record["state"]: record["tables"] for record in map(parse_record, metadata["states"])}
    assert list(counts) == [state.value for state in TableState if state.value in counts], "the most urgent first"
    for state, tables in ODD.items():
        assert counts.pop(state.value) == len(tables), state
    assert set(counts) <= {state.value for state in WORKED_ON}
    assert sum(counts.values()) == TABLES - sum(map(len, ODD.values()))
    assert counts["due"] >= 1 and counts.get("running", 0) <= AT_ONCE
    rows = [row.split(" | ") for row in metadata["tables"].splitlines() if row.startswith("| [")]
    order = [row[0].split("](")[0].removeprefix("| [shop.") for row in rows]
    odd = [table for group in ODD.values() for table in group]
    assert sorted(order[: len(odd)]) == sorted(odd) and len(order) == 50
    states = [TableState(row[1]) for row in rows]
    assert states == sorted(states, key=lambda state: state.rank)
    assert all(row[2].strip() and row[3].strip() for row in rows), "a reason and a next action"
    fleet.looks_at(
        "warehouse-health",
        _asset_page(names.WarehouseNames.of(str(fleet.root)).warehouse_health_key().path, "overview"),
        metadata["most urgent"],
        "why, and next step",
        "waiting for approval",
        "storage move",
        around="why, and next step",
    )
    if fleet.pages is not None:
        assert fleet.pages.page.evaluate(_OVERFLOW) == [], "each text is within the page"


def find_unnamed(text: str) -> set[str]:
    """Return the tables that need a person and that the text of a tick does not name; paused ones are only counted."""
    odd = [table for state, group in ODD.items() if state is not TableState.PAUSED for table in group]
    return {table for table in odd if f"shop.{table}" not in text}


def test_the_newest_tick_and_the_catalog(fleet: Fleet) -> None:
    folded = ("unchanged: blocked (2): shop.blocked0", "waiting for approval (2)", "unchanged: paused (3)")

    def folds() -> bool:
        """Return whether the newest tick has just ended, so that no other is on the page, and folds its lines.

        The tick that visits a table for the first time logs its line; the next one folds it.
        """
        tick = ended_ticks(fleet, names.SORTED_RUN_SENSOR)[0]
        just_ended = tick.ended is not None and time.time() - tick.ended < _JUST_S
        return just_ended and all(text in tick.text for text in folded) and not find_unnamed(tick.text)

    wait_for("a tick that folds its lines", folds, _TICKS_S)
    fleet.looks_at(
        "tick",
        f"/locations/dredge/sensors/{names.SORTED_RUN_SENSOR}",
        "View logs",
        then="View logs",
        shown=folded,
    )
    begin = time.monotonic()
    nodes = fleet.client.query(_CATALOG, timeout_s=120)["assetNodes"]
    print(f"all checks of {len(nodes)} assets by GraphQL: {time.monotonic() - begin:.1f} s")
    fleet.looks_at("catalog", "/assets", "approval0")
    fleet.looks_at("runs", "/runs", "Success")


def test_no_tick_hides_a_table_that_needs_a_person_once_all_were_visited(fleet: Fleet) -> None:
    texts = [tick.text for tick in reversed(ended_ticks(fleet, names.SORTED_RUN_SENSOR))]  # the oldest first
    complete = next(count for count in range(1, len(texts) + 1) if not find_unnamed("\n".join(texts[:count])))
    assert len(texts) > complete
    assert [text for text in texts[complete:] if find_unnamed(text)] == []


def test_every_due_table_is_compacted_once_and_no_other(fleet: Fleet) -> None:
    def waiting() -> list[str]:
        tables = [f"due{number:02}" for number in range(DUE)]
        return [table for table in tables if not any(run.finished for run in fleet.runs(table))]

    begin = time.monotonic()
    wait_for("a run for each due table", lambda: not waiting(), _WORK_S)
    print(f"the last of {DUE} due tables was compacted {time.monotonic() - begin:.1f} s after the pages were read")
    for number in range(DUE):
        (run,) = fleet.runs(f"due{number:02}")
        assert run.status == "SUCCESS" and run.tags[names.TAG_ACTION] == "compact"
        assert [bucket.sorted_runs for bucket in Catalog(str(fleet.root)).table(f"shop.due{number:02}").health()] == [1]
    assert not [table for group in ODD.values() for table in group if fleet.runs(table)]
    watch = sorted(tick.started for tick in fleet.client.ticks(names.WATCH_SENSOR, limit=200, with_logs=False))
    gaps = [after - before for before, after in pairwise(watch)]
    print(f"ticks of watch: {len(watch)}, the longest gap {max(gaps, default=0):.0f} s for an interval of 60 s")
    assert max(gaps, default=0) <= 120, "alerts are at most 60 s late"
