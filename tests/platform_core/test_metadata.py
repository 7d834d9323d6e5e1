"""The layout's plots: every number of health is one, at its worst or summed; time alone changes no level diagram."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import dagster as dg
import pytest

from dredge.platform_core.health import TableHealth
from dredge.platform_core.metadata import (
    bucket_table,
    cost_metadata,
    health_metadata,
    level_diagram,
    number_metadata,
    table_metadata,
)
from dredge.platform_core.table_card import TableCard
from dredge.platform_core.tree_picture import changed_buckets, tree_picture
from lsm_core.maintenance import BucketHealth
from lsm_core.maintenance.action import PlanEstimate
from tests.support.platform import bucket_health

NOW = 10_000_000
ONE = bucket_health(
    "dt=1", 0, sorted_runs=3, level0_files=2, files=3, small_files=3, rows=100, deletes=10, bytes_per_level={0: 500, 5: 1000},
    files_per_level={0: 2, 5: 1}, read_amplification=3.0, space_amplification=1.5, newest_file_ms=9, cost_full=1500,
    overlap_max=3, overlap_mean=2.5, oldest_level0_ms=NOW - 7_200_000, ro_lag_ms=3_600_000, last_compaction_ms=5_000, score=50.0,
    facts={"amplification_percent": 50, "max_amplification_percent": 200},
)  # fmt: skip
TWO = bucket_health(
    "dt=1", 1, files=1, rows=300, bytes_per_level={5: 9000}, files_per_level={5: 1}, last_compaction_ms=8_000,
    facts={"amplification_percent": 0, "max_amplification_percent": 200},
)  # fmt: skip


def health_of(*buckets: BucketHealth, snapshot: int | None = 7) -> TableHealth:
    return TableHealth("a.b", snapshot, 6 if buckets else None, NOW, buckets)


def plotted(health: TableHealth) -> dict[str, float]:
    metadata = health_metadata(health)
    numbers = (dg.IntMetadataValue, dg.FloatMetadataValue)
    return {name: value.value for name, value in metadata.items() if isinstance(value, numbers)}  # type: ignore[misc]


def test_every_number_of_health_is_plotted() -> None:
    found = plotted(health_of(ONE, TWO))
    assert found["overlap: most runs over a key"] == 3
    assert found["overlap: mean runs over a row's key"] == pytest.approx((100 * 2.5 + 300) / 400)
    assert (found["oldest level-0 file (hours)"], found["read-optimised view lags (hours)"]) == (2.0, 1.0)
    assert (found["due compaction reads (bytes)"], found["full compaction reads (bytes)"]) == (0, 1500)
    assert (found["delete ratio"], found["small files"], found["rows per run"]) == (0.025, 3, 100)
    assert (found["score, 0 is healthy"], found["read amplification"], found["space amplification"]) == (
        50.0,
        3.0,
        1.5,
    )
    assert health_metadata(health_of(ONE, TWO))["last compaction"].value == 8.0


def test_an_empty_table_has_its_zeros() -> None:
    found = plotted(health_of(snapshot=None))
    assert set(found.values()) == {0} and "overlap: mean runs over a row's key" in found


def test_a_partition_says_how_its_worst_bucket_stands() -> None:
    (state,) = health_of(TWO, ONE).partitions
    assert (state.sorted_runs, state.level0_files, state.small_files, state.rows) == (3, 2, 3, 400)
    assert state.worst is ONE
    assert state.total_bytes == 10_500
    (tie,) = health_of(replace(TWO, sorted_runs=3), ONE).partitions
    assert tie.worst is ONE  # as many runs, but more amplification


def test_time_draws_no_levels() -> None:
    before, later = health_of(ONE, TWO), health_of(replace(ONE, ro_lag_ms=9_000_000), TWO, snapshot=8)
    assert level_diagram(before, later) == "the levels did not change"
    assert before.partitions[0].shape == later.partitions[0].shape
    grown = health_of(replace(ONE, files_per_level={0: 3, 5: 1}), TWO, snapshot=8)
    assert "bucket-0: 3 -> 3 sorted runs" in level_diagram(before, grown)
    assert before.partitions[0].shape != grown.partitions[0].shape


def test_options_that_are_kept_but_not_acted_on_are_shown_with_the_table() -> None:
    card = TableCard("a.b", options={"bucket": "2", "metastore.tag-to-partition": "dt"})
    assert (
        table_metadata(card)["options without effect"].value == "kept but not acted on here: metastore.tag-to-partition"
    )
    assert "options without effect" not in table_metadata(TableCard("a.b", options={"bucket": "2"}))


def test_a_reports_numbers_plot_and_the_rest_is_text() -> None:
    numbers = {
        "rows_in": 3, "seconds": 0.12345, "snapshot_id": None, "warnings": [], "expired": (1, 2), "digest": "ab",
        "groups_spliced": 4,
        "rows_dropped": {"superseded": 1234, "expired": 0},
        "verification": {
            "level": "V2", "keys_checked": 7, "digests": {"dt=a|b/bucket-0": "ff", "dt=c": ""}, "independence": "by another",
        },
    }  # fmt: skip
    metadata = {name: value.value for name, value in number_metadata(numbers, "x: ").items()}
    assert metadata == {
        "x: rows in": 3,
        "x: row groups copied without decoding": 4,
        "x: seconds": 0.123,
        "x: expired": "1, 2",
        "x: digest": "ab",
        "x: rows dropped": "1,234 superseded",
        "x: verification": "V2 level, 7 keys checked, by another",
        "x: digests": "| | |\n|---|---|\n| dt=a\\|b/bucket-0 | ff |\n| dt=c | none |",
    }


SVG = "{http://www.w3.org/2000/svg}"


def drawn(markdown: str) -> ET.Element:
    """The image in a picture's Markdown, as Dagster's page shows it: nothing but Markdown's image with a data URL."""
    found = re.match(r"!\[[a-z ]+\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)\n\n", markdown)
    assert found is not None
    return ET.fromstring(base64.b64decode(found[1]))


def test_the_picture_shows_the_changed_levels_before_and_after() -> None:
    after = health_of(replace(ONE, sorted_runs=1, files_per_level={5: 1}, bytes_per_level={5: 1400}), TWO, snapshot=8)
    markdown = tree_picture(health_of(ONE, TWO), after)
    picture = drawn(markdown)
    texts = [item.text for item in picture.iter(f"{SVG}text")]
    assert texts == [
        "dt=1/bucket-0: 3 → 1 sorted runs",
        *("L0", "500 B, 2 files", "L5", "1000 B, 1 file"),
        *("L5", "1.4 KiB, 1 file"),
    ]
    boxes = list(picture.iter(f"{SVG}rect"))[1:]  # after the ground
    assert len(boxes) == 4, "two files of level 0, the last level, and the last level afterwards"
    before_last, after_last = (float(box.attrib["width"]) for box in boxes[2:])
    assert before_last < after_last < 201
    assert markdown.endswith("Snapshot 7 (left) and 8 (right); orange: a box is a file of level 0.")
    assert tree_picture(health_of(ONE), health_of(ONE, snapshot=8)) == ""


def test_buckets_that_a_change_adds_are_drawn_and_listed() -> None:
    before, after = health_of(ONE), health_of(ONE, replace(TWO, sorted_runs=2), snapshot=8)
    texts = [item.text for item in drawn(tree_picture(before, after)).iter(f"{SVG}text")]
    assert texts[0] == f"{TWO.partition_text}/bucket-{TWO.bucket}: 0 → 2 sorted runs"
    assert f"{TWO.partition_text}/bucket-{TWO.bucket}: 0 -> 2 sorted runs" in level_diagram(before, after)
    assert changed_buckets(health_of(), after)[0][0] is None


def test_hostile_names_stay_text_in_the_picture() -> None:
    name = 'dt=</text><script>alert("1")</script>\x07&amp;](javascript:alert(1))' + "x" * 500
    bucket = replace(ONE, partition_text=name)
    picture = drawn(tree_picture(health_of(bucket), health_of(snapshot=8)))
    assert {item.tag for item in picture.iter()} == {f"{SVG}svg", f"{SVG}rect", f"{SVG}text"}
    title = next(picture.iter(f"{SVG}text")).text or ""
    assert title.startswith('dt=</text><script>alert("1")</script>?&amp;](') and title.endswith(
        "...: 3 → 0 sorted runs"
    )


def test_a_large_tree_stays_a_small_picture() -> None:
    buckets = [
        replace(ONE, bucket=number, sorted_runs=900, files_per_level={0: 900}, bytes_per_level={0: 9000})
        for number in range(30)
    ]
    markdown = tree_picture(health_of(*buckets), health_of(snapshot=8))
    assert len(list(drawn(markdown).iter(f"{SVG}rect"))) == 1 + 8 * 40
    assert markdown.endswith(" 22 more buckets changed.") and len(markdown) < 60_000
    lines = bucket_table(buckets).splitlines()
    assert len(lines) == 2 + 20 + 2 and lines[-1] == "and 10 more buckets"


def test_prediction_stands_beside_measurement_and_sizes_have_units() -> None:
    metadata = cost_metadata(
        PlanEstimate(bytes_in=2048, bytes_out=1024, seconds=1.26),
        {"bytes_in": 2000, "bytes_out": 900, "seconds": 0.5, "x": 1},
    )
    assert metadata["prediction and measurement"].value == (
        "at most 2.0 KiB predicted, 2.0 KiB read; at most 1.0 KiB predicted, 900 B written; 1.3 s on one core predicted, 0.5 s taken"
    )
    assert (metadata["predicted bytes in"].value, metadata["predicted_seconds"].value) == (2048, 1.26)
    assert cost_metadata(PlanEstimate(), {"expired": "1, 2"}) == {}
    assert "size" not in health_metadata(health_of(ONE, TWO)), "no number is shown twice"
