"""The ten journeys of docs/journeys.md over a real `dagster dev` with its daemon: walked through the GraphQL that the pages ask, and looked at in a browser.

`DREDGE_PICTURES` names a folder for pictures of the pages (`make screenshots`). Without a Chromium the journeys are walked, and no page is looked at.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import yaml

from dredge.orchestration.verbs.dagster_client import DagsterClient, Run
from dredge.orchestration.verbs.dagster_process import Platform, start_platform
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB
from lsm_core import Catalog, Table
from lsm_core.maintenance import read_ledger, waiting_plans
from scripts.browser import Pages, chromium, opened_browser
from tests.docs.pages import ROOT
from tests.support.platform import commit, keyed_table
from tests.ui.test_dagster_dev import wait_for

pytestmark = pytest.mark.soak

ORDERS, DAYS, ARCHIVE, BURST = "shop.orders", "shop.days", "shop.archive", "shop.burst"
POLICIES = """\
tables:
  shop.archive: {paused: {reason: storage move, since: 2024-05-30}}
  shop.burst: {level0_warn: 3, level0_critical: 12, paused: {reason: release, since: 2024-05-30}}
  shop.orders: {downstream: [reports/revenue]}
"""


@dataclass(frozen=True)
class Journey:
    """The running platform over four tables, and what its pages ask."""

    platform: Platform
    root: Path
    pages: Pages | None

    @property
    def client(self) -> DagsterClient:
        return self.platform.client

    def table(self, name: str) -> Table:
        return Catalog(str(self.root)).table(name)

    def layout(self, table: str) -> list[str]:
        return list(names.WarehouseNames.of(str(self.root)).layout_key(table).path)

    def finished(self, run_id: str) -> Run:
        """The run once it ended, which it did well."""
        wait_for(f"the end of {run_id}", lambda: any(run.finished for run in self.runs(run_id)))
        (run,) = self.runs(run_id)
        assert run.status == "SUCCESS", (run.job, run.tags)
        return run

    def runs(self, run_id: str) -> list[Run]:
        return [run for run in self.client.runs() if run.run_id == run_id]

    def launched(self, job: str, **config: Any) -> Run:
        """A job, as its launchpad starts it."""
        return self.finished(self.client.launch(job, run_config=config))

    def made(self, asset: Sequence[str]) -> dict[str, str]:
        """The metadata of the asset's newest materialization, as its page shows them."""
        asked = """query Q($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset {
          assetMaterializations(limit: 1) { metadataEntries { label
            ... on MarkdownMetadataEntry { mdStr } ... on TextMetadataEntry { text } ... on PathMetadataEntry { path } } } } } }"""
        (newest,) = self.client.query(asked, {"key": {"path": list(asset)}})["assetOrError"]["assetMaterializations"]
        return {
            entry["label"]: entry.get("mdStr") or entry.get("text") or entry.get("path") or ""
            for entry in newest["metadataEntries"]
        }

    def address(self, asset: Sequence[str], view: str) -> str:
        """Where the UI shows an asset."""
        return f"/assets/{'/'.join(quote(part, safe='') for part in asset)}?view={view}"

    def sees(
        self, picture: str, address: str, *texts: str, then: Sequence[str] = (), shown: Sequence[str] = ()
    ) -> None:
        """The page shows ``texts``; after clicks on ``then``, one after the other, ``shown`` as well, and nothing that looks ill. ``picture``: its name, "" for none."""
        if self.pages is None:
            return
        self.pages.opens(address, *texts)
        for text in then:
            self.pages.clicks(text)
        self.pages.shows(*shown)
        if picture:
            self.pages.picture(picture, [*texts, *shown][-1])
        assert self.pages.ills() == [], address

    def said(self, sensor: str) -> str:
        """The newest tick that looked."""
        return next((tick.text for tick in self.client.ticks(sensor) if tick.status in {"SKIPPED", "SUCCESS"}), "")


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journey]:
    folder = tmp_path_factory.mktemp("journeys")
    root = folder / "warehouse"
    commit(keyed_table(root, ORDERS, partitioned=False), 4)
    days = keyed_table(root, DAYS)
    for day in ("2024-05-01", "2024-05-02", "2024-05-03"):
        commit(days, 3, day=day)
    commit(keyed_table(root, ARCHIVE, partitioned=False), 10)
    commit(keyed_table(root, BURST, partitioned=False), 4)
    policies = folder / "policies.yaml"
    policies.write_text(POLICIES)
    environment = {
        "DREDGE_WAREHOUSE": str(root),
        "DREDGE_RUNNER": "local",
        "DREDGE_POLICIES": str(policies),
        "DREDGE_SENSOR_SECONDS": "5",
        "DREDGE_SCHEDULES": "off",
    }
    pictures = os.environ.get("DREDGE_PICTURES")
    platform = start_platform(folder / "home", environment)
    try:
        browser = opened_browser(platform.url, Path(pictures) if pictures else None) if chromium() else nullcontext()
        with browser as pages:
            yield Journey(platform, root, pages)
    finally:
        platform.stop()


def test_the_page_tells_ten_journeys() -> None:
    page = (ROOT / "docs" / "journeys.md").read_text()
    assert re.findall(r"^## (\d+)\. ", page, re.MULTILINE) == [str(number) for number in range(1, 11)]


def test_1_what_hurts(journey: Journey) -> None:
    ranking = names.WarehouseNames.of(str(journey.root)).warehouse_health_key().path
    journey.finished(journey.client.launch(ASSET_JOB, assets=[ranking]))
    text = "\n".join(journey.made(ranking).values())
    places = [text.index(table) for table in (ARCHIVE, ORDERS)]
    assert places == sorted(places), "ten runs that a pause holds back come before four that are fewer than the trigger"
    assert "storage move" in text
    page = journey.address(ranking, "overview")
    journey.sees(
        "what-hurts", page, "most urgent", journey.made(ranking)["most urgent"], "why, and next step", ARCHIVE, BURST
    )
    journey.sees(
        "",
        page,
        "most urgent",
        then=["[Show Markdown]"],
        shown=["costs most", "next action", ARCHIVE, BURST, "storage move"],
    )


def test_2_why_was_nothing_done(journey: Journey) -> None:
    wait_for("a tick", lambda: f"{ORDERS}: " in journey.said(names.SORTED_RUN_SENSOR))
    message = journey.said(names.SORTED_RUN_SENSOR)
    assert f"{ORDERS}: decline (too few runs): 4 sorted runs < 5" in message
    assert f"{ARCHIVE}: decline (paused by policy)" in message
    assert "storage move, since 2024-05-30" in message
    journey.sees(
        "why-not",
        f"/locations/dredge/sensors/{names.SORTED_RUN_SENSOR}",
        "num-sorted-run.compaction-trigger",
        then=["View logs"],
        shown=[f"{ORDERS}: decline (too few runs): 4 sorted runs < 5", "storage move, since 2024-05-30"],
    )


def test_3_compact_this_partition_now(journey: Journey) -> None:
    before = {bucket.partition_text: bucket.sorted_runs for bucket in journey.table(DAYS).health()}
    chosen = "dt=2024-05-01"
    assert before[chosen] == 3
    wait_for("the partitions of the asset", lambda: chosen in partitions(journey, journey.layout(DAYS)))
    run = journey.client.launch(ASSET_JOB, assets=[journey.layout(DAYS)], tags={"dagster/partition": chosen})
    assert journey.finished(run).tags[names.TAG_TABLE] == DAYS
    after = {bucket.partition_text: bucket.sorted_runs for bucket in journey.table(DAYS).health()}
    assert after == {**before, chosen: 1}
    page = f"{journey.address(journey.layout(DAYS), 'partitions')}&partition={quote(chosen)}"
    journey.sees(
        "compact-now",
        page,
        f"{chosen}/bucket-0: 3 -> 1 sorted runs",
        "asked for by a person",
        then=["[Show Markdown]"],
        shown=["(left) and"],
    )


def partitions(journey: Journey, asset: Sequence[str]) -> list[str]:
    asked = """query Q($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
      partitionKeysByDimension { partitionKeys } } } }"""
    node = journey.client.query(asked, {"key": {"path": list(asset)}})["assetNodeOrError"]
    return [key for dimension in node["partitionKeysByDimension"] for key in dimension["partitionKeys"]]


def test_4_preview_and_approve_a_deletion(journey: Journey) -> None:
    stray = Path(journey.table(ORDERS).store.root) / "bucket-0" / "data-2c1d7a52-9d0a-4f0e-8a3e-52f1b6f0a7d1-0.parquet"
    stray.write_bytes(b"half")
    long_ago = time.time() - 30 * 86_400
    os.utime(stray, (long_ago, long_ago))
    planned = journey.launched("orphans", table=ORDERS, dry_run=True)
    assert stray.exists()
    ranking = names.WarehouseNames.of(str(journey.root)).warehouse_health_key().path
    journey.finished(journey.client.launch(ASSET_JOB, assets=[ranking]))
    link = re.search(r"\[([0-9a-f]{32})\]\((\S+)\)", journey.made(ranking)["plans that wait for approval"])
    assert link is not None, (planned.tags, journey.made(ranking)["plans that wait for approval"])
    assert link[1] == planned.tags[names.TAG_WAITS]
    filled_in = yaml.safe_load(parse_qs(urlsplit(link[2]).query)["config"][0])
    journey.sees("approve", link[2], "apply_plan", "approved_by", link[1])
    journey.launched("apply_plan", **{**filled_in, "approved_by": "ann"})
    assert not waiting_plans(journey.table(ORDERS).store)
    assert read_ledger(journey.table(ORDERS).store)[-1].approved_by.startswith("ann (dagster run ")
    assert stray.exists(), "it waits in the trash, from where `restore` brings it back"
    journey.table(ORDERS).sweep_trash(now_ms=int(time.time() * 1000) + 90_000_000)
    assert not stray.exists()


def test_5_backfill_an_idle_month(journey: Journey) -> None:
    chosen = ["dt=2024-05-02", "dt=2024-05-03"]
    asked = """mutation B($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
      __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
    params = {"assetSelection": [{"path": journey.layout(DAYS)}], "partitionNames": chosen}
    begun = journey.client.query(asked, {"params": params})["launchPartitionBackfill"]
    assert begun["__typename"] == "LaunchBackfillSuccess", begun
    tags = {"dagster/backfill": begun["backfillId"]}

    def over() -> bool:
        runs = journey.client.runs(tags)
        return bool(runs) and all(run.finished for run in runs) and runs_left(journey) == 0

    def runs_left(where: Journey) -> int:
        return sum(bucket.sorted_runs > 1 for bucket in where.table(DAYS).health())

    wait_for("the backfill", over, 180)
    assert {run.status for run in journey.client.runs(tags)} == {"SUCCESS"}
    journey.sees("backfill", f"/runs/b/{begun['backfillId']}", "days_layout", "100% completed", *chosen)


def test_6_prove_it_was_harmless(journey: Journey) -> None:
    (newest, *_) = journey.client.check_results(journey.layout(DAYS), names.MERGED_VIEW_CHECK)
    assert newest.passed
    assert newest.run_id
    assert journey.made(journey.layout(DAYS))["compared"].startswith("V1: snapshots ")
    page = f"{journey.address(journey.layout(DAYS), 'checks')}&checkDetail={names.MERGED_VIEW_CHECK}"
    journey.sees("harmless", page, names.TREE_CHECK, "blocking", "have the same rows", "Passed")


def test_7_undo(journey: Journey) -> None:
    table = journey.table(ORDERS)
    rows = table.to_arrow().sort_by("id")
    journey.finished(journey.client.launch(ASSET_JOB, assets=[journey.layout(ORDERS)]))
    assert [bucket.sorted_runs for bucket in journey.table(ORDERS).health()] == [1]
    (run,) = [run for run in journey.client.runs({names.TAG_TABLE: ORDERS}) if run.job == ASSET_JOB]
    journey.sees(
        "undo", journey.address(journey.layout(ORDERS), "overview"), "launch the job undo", run.tags[names.TAG_UNDO]
    )
    journey.launched("undo", table=ORDERS, run_id=run.tags[names.TAG_UNDO])
    assert [bucket.sorted_runs for bucket in journey.table(ORDERS).health()] == [4]
    assert journey.table(ORDERS).to_arrow().sort_by("id").equals(rows)


def test_8_policy_a_or_b(journey: Journey) -> None:
    policies = {"eager": "num-sorted-run.compaction-trigger: 2", "lazy": "num-sorted-run.compaction-trigger: 8"}
    run = journey.launched("what_if", table=ARCHIVE, policies=policies)
    asked = """query Q($id: ID!) { runOrError(runId: $id) { ... on Run { eventConnection { events {
      ... on ExecutionStepOutputEvent { metadataEntries { label ... on MarkdownMetadataEntry { mdStr } } } } } } } }"""
    events = journey.client.query(asked, {"id": run.run_id})["runOrError"]["eventConnection"]["events"]
    metadata = "\n".join(entry.get("mdStr") or "" for event in events for entry in event.get("metadataEntries", ()))
    assert "eager" in metadata
    assert "lazy" in metadata
    assert "write amplification" in metadata
    assert journey.table(ARCHIVE).health()[0].sorted_runs == 10, "nothing was done"
    journey.sees(
        "what-if",
        f"/runs/{run.run_id}",
        f"{ARCHIVE}: eager",
        f"{ARCHIVE}: lazy",
        then=["[Show Markdown]"],
        shown=["write amplification"],
    )


def test_9_who_depends_on_this(journey: Journey) -> None:
    asked = """query Q($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
      dependedByKeys { path } } } }"""
    data = names.WarehouseNames.of(str(journey.root)).data_key(ORDERS).path
    found = journey.client.query(asked, {"key": {"path": list(data)}})["assetNodeOrError"]["dependedByKeys"]
    assert sorted(key["path"] for key in found) == sorted([journey.layout(ORDERS), ["reports", "revenue"]])
    journey.sees("who-depends", journey.address(data, "lineage"), "orders_layout", "revenue")


def test_10_the_incident(journey: Journey) -> None:
    burst, key = journey.table(BURST), journey.layout(BURST)
    wait_for(
        "the warning", lambda: any(not seen.passed for seen in journey.client.check_results(key, names.BACKLOG_CHECK))
    )
    assert journey.client.check_results(key, names.BACKLOG_CHECK)[0].severity == "WARN"
    assert not journey.client.runs({names.TAG_TABLE: BURST}), "paused, and not critical yet"
    backlog = f"{journey.address(key, 'checks')}&checkDetail={names.BACKLOG_CHECK}"
    journey.sees("incident", backlog, "WARN: 4 level-0 files >= 3", "policies.yaml:3")
    commit(burst, 9)
    wait_for("the recovery", lambda: bool(journey.client.runs({names.TAG_TABLE: BURST})))
    run = journey.finished(journey.client.runs({names.TAG_TABLE: BURST})[-1].run_id)
    assert "release" in run.tags[names.TAG_REASON] or "13 level-0 files" in run.tags[names.TAG_REASON]
    wait_for("the all-clear", lambda: journey.client.check_results(key, names.BACKLOG_CHECK)[0].passed)
    assert [bucket.level0_files for bucket in journey.table(BURST).health()] == [0]
    journey.sees("", backlog, "OK: 0 level-0 files", "Passed")


def test_the_report_has_all_tables_and_what_was_done(journey: Journey) -> None:
    ranking = names.WarehouseNames.of(str(journey.root)).warehouse_health_key().path
    journey.finished(journey.client.launch(ASSET_JOB, assets=[ranking]))
    page = Path(journey.made(ranking)["report"])
    text = page.read_text()
    assert text.index(f"{ARCHIVE}</button>") < text.index(f"{DAYS}</button>"), "the paused table comes first"
    assert all(f"<td>{action}<td>done<td>" in text for action in ("compact", "undo", "orphans"))
    if journey.pages is None:
        return
    journey.pages.page.set_viewport_size({"width": 1500, "height": 640})
    journey.pages.page.goto(page.as_uri())
    journey.pages.clicks(ORDERS)
    journey.pages.shows("storage move", "costs most", "undo")
    journey.pages.picture("report")
