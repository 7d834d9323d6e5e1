"""The layout's plots: every number of health is one, at its worst or summed; time alone changes no level diagram."""

from __future__ import annotations

from dataclasses import replace

import dagster as dg
import pytest

from orchestration.metadata import level_diagram, look_metadata
from orchestration.model import BucketLook, Look

ONE = BucketLook(
    partition="dt=1", bucket=0, sorted_runs=3, level0_files=2, files=3, small_files=3, rows=100, deletes=10,
    level_bytes=((0, 500), (5, 1000)), read_amplification=3.0, space_amplification=1.5, newest_ms=9, cost_minor=0,
    cost_full=1500, overlap_max=3, overlap_mean=2.5, level0_age_ms=7_200_000, ro_lag_ms=3_600_000, compacted_ms=5_000,
    score=50.0, amplification=50, amplification_limit=200,
)  # fmt: skip
TWO = replace(
    ONE, bucket=1, sorted_runs=1, level0_files=0, files=1, small_files=0, rows=300, deletes=0, level_bytes=((5, 9000),),
    read_amplification=1.0, space_amplification=1.0, cost_full=0, overlap_max=1, overlap_mean=1.0, level0_age_ms=0,
    ro_lag_ms=0, compacted_ms=8_000, score=0.0, amplification=0,
)  # fmt: skip


def plotted(look: Look) -> dict[str, float]:
    told = look_metadata(look)
    numbers = (dg.IntMetadataValue, dg.FloatMetadataValue)
    return {name: value.value for name, value in told.items() if isinstance(value, numbers)}  # type: ignore[misc]


def test_every_number_of_health_is_plotted() -> None:
    found = plotted(Look("a.b", 7, 6, (ONE, TWO)))
    assert found["overlap: most runs over a key"] == 3
    assert found["overlap: mean runs over a row's key"] == pytest.approx((100 * 2.5 + 300) / 400)
    assert (found["oldest level-0 file (hours)"], found["read-optimised view lags (hours)"]) == (2.0, 1.0)
    assert (found["due compaction reads (bytes)"], found["full compaction reads (bytes)"]) == (0, 1500)
    assert (found["delete ratio"], found["small files"], found["rows per run"]) == (0.025, 3, 100)
    assert (found["score (worst bucket)"], found["read amplification"], found["space amplification"]) == (
        50.0,
        3.0,
        1.5,
    )
    assert look_metadata(Look("a.b", 7, 6, (ONE, TWO)))["last compaction"].value == 8.0


def test_an_empty_table_has_its_zeros() -> None:
    found = plotted(Look("a.b", None, None))
    assert set(found.values()) == {0} and "overlap: mean runs over a row's key" in found


def test_a_partition_says_how_its_worst_bucket_stands() -> None:
    (state,) = Look("a.b", 7, 6, (TWO, ONE)).partitions()
    assert (state.sorted_runs, state.amplification, state.amplification_limit) == (3, 50, 200)


def test_looks_survive_their_way_between_ops_and_time_draws_nothing() -> None:
    look = Look("a.b", 7, 6, (ONE, TWO))
    assert Look.from_json(look.to_json()) == look
    later = Look("a.b", 8, 6, (replace(ONE, level0_age_ms=9_000_000), TWO))
    assert level_diagram(look, later) == "the levels did not change"
