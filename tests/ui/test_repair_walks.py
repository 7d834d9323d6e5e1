"""Sabotaged tables in a real `dagster dev`, led back to green in the browser: by the links on their pages alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dredge.orchestration.verbs.dagster_client import Run
from dredge.orchestration.verbs.dagster_process import start_platform
from dredge.platform_core import names
from lsm_core import Table
from scripts.browser import chromium, opened_browser
from tests.checks.test_blocking import vectors_index, vectors_table
from tests.support.platform import commit, compacted_file, keyed_table
from tests.ui.test_dagster_dev import wait_for
from tests.ui.test_journeys import Journey

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(chromium() is None, reason="the walks need a browser (Debian package: chromium)"),
]

REASONS = {  # a part of the text on the page of the failed check
    "other_size": "its manifest entry says",
    "other_rows": "differ in bucket-0",
    "cut": "its manifest entry says",
    "lost": "the file is missing",
    "vectors": "the checksum of a deletion vector is wrong",
}


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journey]:
    folder = tmp_path_factory.mktemp("walks")
    root = folder / "warehouse"
    for name in ("other_size", "cut", "lost"):
        commit(keyed_table(root, f"shop.{name}", partitioned=False), 5)
    avro = {"file.format": "avro", "file.compression": "none"}  # without checksums: changed bytes are other values
    commit(keyed_table(root, "shop.other_rows", partitioned=False, **avro), 5)
    vectors_table(root, name="shop.vectors")
    environment = {
        "DREDGE_WAREHOUSE": str(root),
        "DREDGE_RUNNER": "local",
        "DREDGE_SENSOR_SECONDS": "5",
        "DREDGE_SCHEDULES": "off",
    }
    pictures = os.environ.get("DREDGE_PICTURES")
    platform = start_platform(folder / "home", environment)
    try:
        with opened_browser(platform.url, Path(pictures) if pictures else None) as pages:
            yield Journey(platform, root, pages)
    finally:
        platform.stop()


def sabotage(table: Table, how: str) -> None:
    path = Path(compacted_file(table))
    data = path.read_bytes()
    match how:
        case "other_size":
            pq.write_table(pq.read_table(path).slice(1), path)
        case "other_rows":
            assert b"4/120" in data
            path.write_bytes(data.replace(b"4/120", b"4/999"))
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "lost":
            path.unlink()
        case "vectors":
            index = vectors_index(table)
            content = index.read_bytes()
            index.write_bytes(content[:-1] + bytes([content[-1] ^ 255]))


def reported_state(journey: Journey, asset: Sequence[str]) -> str:
    """Return the state in the newest event of an asset, as its page shows it."""
    event = "timestamp metadataEntries { label ... on TextMetadataEntry { text } }"
    text = f"""query Q($key: AssetKeyInput!) {{ assetOrError(assetKey: $key) {{ ... on Asset {{
      assetMaterializations(limit: 1) {{ {event} }} assetObservations(limit: 1) {{ {event} }} }} }} }}"""
    answer = journey.client.query(text, {"key": {"path": list(asset)}})["assetOrError"]
    events = [*answer["assetMaterializations"], *answer["assetObservations"]]
    newest = max(events, key=lambda item: float(item["timestamp"]))
    return next((entry["text"] for entry in newest["metadataEntries"] if entry["label"] == "state"), "")


@pytest.mark.parametrize("how", REASONS)
def test_the_links_of_the_pages_lead_from_the_sabotage_to_a_green_check(journey: Journey, how: str) -> None:
    assert journey.pages is not None
    name = f"shop.{how}"
    table, layout = journey.table(name), journey.layout(name)
    tag = {names.TAG_TABLE: name}
    wait_for("the compaction", lambda: any(run.finished for run in journey.client.runs(tag)), 240)
    rows = table.to_arrow().sort_by("id")
    sabotage(table, how)
    page = journey.pages
    checks = f"{journey.address(layout, 'checks')}&checkDetail={names.MERGED_VIEW_CHECK}"

    def execute_check(*, passes: bool) -> None:
        """Execute the check by the button on its page, and wait for its result."""
        known = {result.run_id for result in journey.client.check_results(layout, names.MERGED_VIEW_CHECK)}
        page.opens(checks, names.MERGED_VIEW_CHECK)
        page.page.locator("button", has_text=re.compile("^Execute$")).first.click()
        wait_for(
            "the result of the check",
            lambda: any(
                result.run_id not in known and result.passed == passes
                for result in journey.client.check_results(layout, names.MERGED_VIEW_CHECK)
            ),
        )

    execute_check(passes=False)
    wait_for("the state of the table", lambda: reported_state(journey, layout).startswith("blocked: "))
    page.opens(journey.address(layout, "events"), "merged_view_unchanged failed")
    page.picture(f"walk-{how}-1-state")
    page.opens(checks, REASONS[how], "Failed")
    page.picture(f"walk-{how}-2-failed")
    page.page.locator("tr", has_text=re.compile("^undo")).get_by_text("[Show Markdown]").first.click()
    page.shows("Launch the job undo", f"dredge undo {name} ")
    page.picture(f"walk-{how}-3-repair")
    page.clicks("Launch the job undo")
    page.shows("allow_changes", "run_id", "No errors")
    page.picture(f"walk-{how}-4-launchpad")
    assert page.ills() == []
    earlier = {run.run_id for run in journey.client.runs()}
    page.page.locator("button", has_text=re.compile("^Launch Run$")).first.click()

    def undone() -> list[Run]:
        return [run for run in journey.client.runs() if run.job == "undo" and run.run_id not in earlier]

    wait_for("the run of undo", lambda: any(run.finished for run in undone()))
    assert [run.status for run in undone()] == ["SUCCESS"]
    page.picture(f"walk-{how}-5-run")
    execute_check(passes=True)
    page.opens(checks, "Passed")
    page.picture(f"walk-{how}-6-green")
    assert page.ills() == []
    wait_for("the rows from before", lambda: journey.table(name).to_arrow().sort_by("id") == rows)
    wait_for("the end of the block", lambda: not reported_state(journey, layout).startswith("blocked: "))
